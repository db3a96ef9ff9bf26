//! Computes the status of each kind of object.

use std::borrow::Cow;

use pointsman_resources::parameters::GatewayParametersSpec;
use pointsman_resources::{Kind, Name, ObjectKey};

use crate::bound::FrontendId;
use crate::engine::{Input, Query, Reader};
use crate::gateway_api::gateway::GatewayView;
use crate::gateway_api::infrastructure::{self, class_parameters};
use crate::gateway_api::listener::ListenerView;
use crate::gateway_api::{features, mesh, policy};
use crate::status::{Condition, ListenerStatus, ParentStatus, Status, StatusBody};
use crate::{Binder, kuma};

impl Binder {
    /// Computes the status of an object; `None` if Pointsman does not manage it.
    pub(crate) fn status_of(&self, reader: &Reader<'_>, key: &ObjectKey) -> Option<Status> {
        let generation = reader.object(key)?.meta().generation;
        let ancestors = |object: &ObjectKey| -> Vec<Name> {
            reader.record_read(Input::Ancestors(object.clone()));
            self.ancestors
                .get(object)
                .into_iter()
                .flatten()
                .map(|(gateway, _)| gateway.clone())
                .collect()
        };
        let body = match key.kind {
            Kind::GatewayClass => StatusBody::Class {
                conditions: class_conditions(reader, &key.name)?,
                features: {
                    let controller = reader.controller();
                    let features = features::of_gateways(controller.generates_proxies);
                    reader.served_api().features(&features)
                },
            },
            Kind::XMesh => StatusBody::Class {
                conditions: mesh::mesh_conditions(reader, &key.name)?,
                features: reader.served_api().features(features::MESH),
            },
            Kind::Gateway => self.gateway_status(reader, key)?,
            Kind::ListenerSet => self.listener_set_status(reader, key)?,
            Kind::BackendTLSPolicy => {
                let policy = reader.tls_policy(&key.name)?;
                StatusBody::Policy(policy::tls_policy_status(reader, policy, ancestors))
            }
            Kind::XBackendTrafficPolicy => {
                let policy = reader.traffic_policy(&key.name)?;
                StatusBody::Policy(policy::traffic_policy_status(reader, policy, ancestors))
            }
            Kind::XTelemetryPolicy => {
                let policy = reader.telemetry_policy(&key.name)?;
                StatusBody::Policy(policy::telemetry_policy_status(reader, policy))
            }
            Kind::XBackend => {
                let refused = self.refused_condition(self.refused_backends_of(key));
                let status = policy::x_backend_status(reader, &key.name, refused, ancestors);
                StatusBody::Backend(status)
            }
            Kind::MeshGateway => self.mesh_gateway_status(reader, key)?,
            Kind::MeshExternalService => StatusBody::Mesh {
                conditions: kuma::external::conditions(reader.mesh_external_service(&key.name)?),
                reaches: Vec::new(),
            },
            kind if kind.is_mesh_route() => self.policy_status(key)?,
            _ => self.route_status(reader, key)?,
        };
        let controller = self.store.controller.name.clone();
        Some(Status {
            generation,
            controller,
            body,
        })
    }

    /// Returns a Gateway with its state in the data plane.
    fn observed_gateway(&self, reader: &Reader<'_>, name: &Name) -> Option<Cow<'_, GatewayView>> {
        reader.record_read(Input::Result(Query::Gateway(name.clone())));
        let view = self.gateways.get(name)?;
        let observation = reader.observation(name);
        if reader.controller().generates_proxies {
            let state = reader.infrastructure(name);
            return Some(Cow::Owned(view.with_infrastructure(state, observation)));
        }
        Some(match observation {
            Some(observation) => Cow::Owned(view.with_observation(observation)),
            None => Cow::Borrowed(view),
        })
    }

    fn gateway_status(&self, reader: &Reader<'_>, key: &ObjectKey) -> Option<StatusBody> {
        let view = &*self.observed_gateway(reader, &key.name)?;
        Some(StatusBody::Gateway {
            conditions: view.conditions(),
            addresses: view.addresses.clone(),
            listeners: self.listener_statuses(reader, key, view, &view.listeners),
            attached_listener_sets: (view.allows_sets || !view.sets.is_empty())
                .then_some(view.attached_sets()),
        })
    }

    fn listener_set_status(&self, reader: &Reader<'_>, key: &ObjectKey) -> Option<StatusBody> {
        let gateway = reader.listener_set(&key.name)?.gateway();
        let view = &*self.observed_gateway(reader, &gateway)?;
        let set = view.sets.iter().find(|set| set.name == key.name)?;
        Some(StatusBody::Gateway {
            conditions: view.set_conditions(set),
            addresses: Vec::new(),
            listeners: self.listener_statuses(reader, key, view, &set.listeners),
            attached_listener_sets: None,
        })
    }

    fn listener_statuses(
        &self,
        reader: &Reader<'_>,
        owner: &ObjectKey,
        gateway: &GatewayView,
        listeners: &[ListenerView],
    ) -> Vec<ListenerStatus> {
        reader.record_read(Input::AttachedRoutes(owner.clone()));
        let without_address = gateway.unusable.as_ref();
        let without_address = without_address.filter(|_| gateway.is_without_address);
        let parent = match (&gateway.refused, without_address) {
            (Some((_, message)), _) => Some(("Invalid", message.as_str())),
            // "Pending": the listener is valid, but not ready yet.
            (None, Some((_, message))) => Some(("Pending", message.as_str())),
            (None, None) => None,
        };
        listeners
            .iter()
            .map(|listener| ListenerStatus {
                name: listener.spec.name.clone(),
                supported_kinds: listener.kinds.clone(),
                attached_routes: self.attached.get(&listener.id).copied().unwrap_or(0),
                conditions: listener.conditions(parent),
            })
            .collect()
    }

    fn route_status(&self, reader: &Reader<'_>, key: &ObjectKey) -> Option<StatusBody> {
        reader.record_read(Input::Result(Query::Route(key.clone())));
        let view = self.routes.get(key)?;
        let parents = view
            .parents
            .iter()
            .map(|parent| ParentStatus {
                parent: parent.reference.clone(),
                conditions: {
                    let conflict = match parent.attached.first() {
                        Some((FrontendId::Mesh { .. }, _)) => {
                            reader.record_read(Input::Result(Query::MeshParent(
                                parent.parent.clone(),
                            )));
                            self.groups
                                .get(&parent.parent)
                                .and_then(|group| group.conflict(key, &parent.attached))
                        }
                        _ => None,
                    };
                    let mut conditions = parent.conditions(conflict.as_ref());
                    if conditions[0].is_true() {
                        conditions.extend(self.overridden(reader, &parent.attached));
                        conditions.extend(self.refused_condition(view.backends()));
                        let frontends = parent.attached.iter().map(|(id, _)| id);
                        conditions.extend(self.store.route_effect(key, frontends));
                    }
                    conditions
                },
            })
            .collect();
        Some(StatusBody::Route(parents))
    }
}

/// Returns the conditions of a GatewayClass; `None` if it belongs to another controller.
fn class_conditions(reader: &Reader<'_>, name: &Name) -> Option<Vec<Condition>> {
    let class = reader.class(name)?;
    if !reader.controller().serves_class(class) {
        return None;
    }
    let accepted = match class_parameters(reader, class) {
        Ok(parameters) => {
            // It has been merged without an error before.
            let mut spec = GatewayParametersSpec::merge(parameters, None).unwrap_or_default();
            let ignored = infrastructure::remove_invalid_limits(reader, &mut spec);
            let message = infrastructure::ignored_message(&ignored);
            Condition::yes("Accepted", "Accepted", message)
        }
        Err(message) => Condition::no("Accepted", "InvalidParameters", message),
    };
    Some(vec![accepted, reader.served_api().condition()])
}
