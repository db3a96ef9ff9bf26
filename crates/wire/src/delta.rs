//! Changes of the bound form. Statuses are not sent: the control plane keeps them.

use std::fmt;
use std::sync::Arc;

use pointsman_binding::Delta;
use prost::Message;

use crate::error::{DecodeError, required};
use crate::proto;
use proto::resource::Value;
use proto::resource_id::Id;

/// Changes that were decoded, and resources that could not be.
#[derive(Debug, Default)]
pub struct Decoded {
    /// Changes that can be applied.
    pub delta: Delta,
    /// Resources that were left out. They never affect the others.
    pub rejected: Vec<Rejection>,
}

/// A resource that was left out.
#[derive(Clone, Debug, PartialEq)]
pub struct Rejection {
    /// Id of the resource.
    pub id: proto::ResourceId,
    /// Reason.
    pub error: DecodeError,
}

impl fmt::Display for Rejection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}: {}", self.id.id, self.error)
    }
}

/// Encodes the changes of a delta, except for statuses.
pub fn encode(delta: &Delta) -> Vec<u8> {
    to_message(delta).encode_to_vec()
}

fn to_message(delta: &Delta) -> proto::Delta {
    let Delta {
        frontends,
        routes,
        rules,
        attachments,
        backends,
        endpoints,
        secrets,
        gateways,
        services,
        workloads,
        statuses: _,
    } = delta;
    let mut message = proto::Delta::default();
    for (id, frontend) in frontends {
        let value = frontend.as_deref().map(|value| value.into());
        message.push(Id::Frontend(id.into()), value.map(Value::Frontend));
    }
    for (id, route) in routes {
        let value = route.as_deref().map(|value| value.into());
        message.push(Id::Route(id.into()), value.map(Value::Route));
    }
    for (id, rule) in rules {
        let value = rule.as_deref().map(|value| value.into());
        message.push(Id::Rule(id.into()), value.map(Value::Rule));
    }
    for (id, attached) in attachments {
        let value = attached.then_some(Value::Attachment(()));
        message.push(Id::Attachment(id.into()), value);
    }
    for (id, backend) in backends {
        let value = backend.as_deref().map(|value| value.into());
        message.push(Id::Backend(id.into()), value.map(Value::Backend));
    }
    for (id, endpoints) in endpoints {
        let value = endpoints.as_deref().map(|value| value.into());
        message.push(Id::Endpoints(id.into()), value.map(Value::Endpoints));
    }
    for (id, secret) in secrets {
        let value = secret.as_deref().map(|value| value.into());
        message.push(Id::Secret(id.into()), value.map(Value::Secret));
    }
    for (id, request) in gateways {
        let value = request.as_deref().map(|value| value.into());
        message.push(Id::Gateway(id.into()), value.map(Value::Gateway));
    }
    for (id, service) in services {
        let value = service.as_deref().map(|value| value.into());
        message.push(Id::Service(id.into()), value.map(Value::Service));
    }
    for (id, workload) in workloads {
        let value = workload.as_deref().map(|value| value.into());
        message.push(Id::Workload(id.into()), value.map(Value::Workload));
    }
    message
}

impl proto::Delta {
    fn push(&mut self, id: Id, value: Option<Value>) {
        let id = proto::ResourceId { id: Some(id) };
        match value {
            Some(_) => self.updated.push(proto::Resource {
                id: Some(id),
                value,
            }),
            None => self.removed.push(id),
        }
    }
}

/// Decodes changes. Kinds of resources that this version does not know are ignored; other resources that can't be decoded are reported. Fails only if the
/// bytes are not a message at all.
pub fn decode(bytes: &[u8]) -> Result<Decoded, prost::DecodeError> {
    let message = proto::Delta::decode(bytes)?;
    let mut decoded = Decoded::default();
    for resource in message.updated {
        // A kind of resource that this version does not know.
        let Some(id) = resource.id.and_then(|id| id.id) else {
            continue;
        };
        decoded.add(id, Some(resource.value));
    }
    for id in message.removed.into_iter().filter_map(|id| id.id) {
        decoded.add(id, None);
    }
    Ok(decoded)
}

impl Decoded {
    /// Adds an update, or a removal if `value` is `None`.
    fn add(&mut self, id: Id, value: Option<Option<Value>>) {
        let rejected = proto::ResourceId {
            id: Some(id.clone()),
        };
        let result = match value {
            Some(value) => required(value, "Resource.value").and_then(|v| self.update(id, v)),
            None => self.remove(id),
        };
        if let Err(error) = result {
            let id = rejected;
            self.rejected.push(Rejection { id, error });
        }
    }

    fn update(&mut self, id: Id, value: Value) -> Result<(), DecodeError> {
        let delta = &mut self.delta;
        match (id, value) {
            (Id::Frontend(id), Value::Frontend(message)) => {
                let frontend = message.decode(id.try_into()?)?;
                let id = frontend.id.clone();
                delta.frontends.push((id, Some(Arc::new(frontend))));
            }
            (Id::Route(id), Value::Route(message)) => {
                let route = message.decode(id.try_into()?)?;
                delta.routes.push((route.id.clone(), Some(Arc::new(route))));
            }
            (Id::Rule(id), Value::Rule(message)) => {
                let id = id.try_into()?;
                let rule = message.decode(&id)?;
                delta.rules.push((id, Some(Arc::new(rule))));
            }
            (Id::Attachment(id), Value::Attachment(())) => {
                delta.attachments.push((id.try_into()?, true));
            }
            (Id::Backend(id), Value::Backend(message)) => {
                let backend = message.decode(id.try_into()?)?;
                let id = backend.id.clone();
                delta.backends.push((id, Some(Arc::new(backend))));
            }
            (Id::Endpoints(id), Value::Endpoints(message)) => {
                let endpoints = Arc::new(message.try_into()?);
                delta.endpoints.push((id.try_into()?, Some(endpoints)));
            }
            (Id::Secret(id), Value::Secret(message)) => {
                let secret = Arc::new(message.try_into()?);
                delta.secrets.push((id.try_into()?, Some(secret)));
            }
            (Id::Gateway(id), Value::Gateway(message)) => {
                let request = message.decode(id.into())?;
                let id = request.gateway.clone();
                delta.gateways.push((id, Some(Arc::new(request))));
            }
            (Id::Service(id), Value::Service(message)) => {
                let service = Arc::new(message.try_into()?);
                delta.services.push((id.try_into()?, Some(service)));
            }
            (Id::Workload(id), Value::Workload(message)) => {
                let workload = Arc::new(message.try_into()?);
                delta.workloads.push((id.try_into()?, Some(workload)));
            }
            _ => {
                let found = "a value of another kind";
                let expected = "a value of the id's kind";
                return Err(DecodeError::invalid("Resource.value", found, expected));
            }
        }
        Ok(())
    }

    fn remove(&mut self, id: Id) -> Result<(), DecodeError> {
        let delta = &mut self.delta;
        match id {
            Id::Frontend(id) => delta.frontends.push((id.try_into()?, None)),
            Id::Route(id) => delta.routes.push((id.try_into()?, None)),
            Id::Rule(id) => delta.rules.push((id.try_into()?, None)),
            Id::Attachment(id) => delta.attachments.push((id.try_into()?, false)),
            Id::Backend(id) => delta.backends.push((id.try_into()?, None)),
            Id::Endpoints(id) => delta.endpoints.push((id.try_into()?, None)),
            Id::Secret(id) => delta.secrets.push((id.try_into()?, None)),
            Id::Gateway(id) => delta.gateways.push((id.into(), None)),
            Id::Service(id) => delta.services.push((id.try_into()?, None)),
            Id::Workload(id) => delta.workloads.push((id.try_into()?, None)),
        }
        Ok(())
    }
}
