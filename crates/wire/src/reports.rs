//! Reports of proxies as messages: observations of Gateways, backends that are needed, refused addresses of DNS names.

use std::collections::{BTreeMap, HashMap};

use pointsman_binding::bound::FrontendId;
use pointsman_binding::{Change, Observation};
use pointsman_resources::Name;

use crate::error::{DecodeError, parse, parse_ips};
use crate::id::ResourceId;
use crate::proto;

/// Encodes changes that a data plane reports. Changes of other kinds are left out: a data plane has none.
pub fn encode_report<'c>(changes: impl IntoIterator<Item = &'c Change>) -> proto::ProxyReport {
    let mut report = proto::ProxyReport::default();
    for change in changes {
        match change {
            Change::Observe(gateway, observation) => report.gateways.push(proto::GatewayReport {
                namespace: gateway.namespace.to_string(),
                name: gateway.name.to_string(),
                observation: observation.as_ref().map(Into::into),
            }),
            Change::Need(id, needed) => report.backends.push(proto::NeededBackend {
                backend: ResourceId::Backend(id.clone()).name(),
                needed: *needed,
            }),
            Change::RefusedResolution(name, refused) => {
                report.resolutions.push(proto::RefusedResolution {
                    name: name.to_string(),
                    addresses: refused.iter().map(ToString::to_string).collect(),
                });
            }
            Change::Put(_)
            | Change::Delete(_)
            | Change::Reject(..)
            | Change::Content(..)
            | Change::Identity(..)
            | Change::RetainSecret(..)
            | Change::Controller(_)
            | Change::ServedApi(_)
            | Change::ObserveInfrastructure(..)
            | Change::EndpointPolicy(_)
            | Change::Effect(..)
            | Change::EffectOnCommit => {}
        }
    }
    report
}

/// Decodes a report. Parts that this version does not understand are left out.
pub fn decode_report(report: proto::ProxyReport) -> Vec<Change> {
    let gateways = report.gateways.into_iter().filter_map(|gateway| {
        let name = Name::new(gateway.namespace, gateway.name);
        let observation = gateway.observation.map(TryInto::try_into).transpose();
        Some(Change::Observe(name, observation.ok()?))
    });
    let backends =
        report
            .backends
            .into_iter()
            .filter_map(|backend| match backend.backend.parse().ok()? {
                ResourceId::Backend(id) => Some(Change::Need(id, backend.needed)),
                _ => None,
            });
    let resolutions = report.resolutions.into_iter().filter_map(|resolution| {
        let addresses = parse_ips(&resolution.addresses, "RefusedResolution.addresses");
        Some(Change::RefusedResolution(
            resolution.name.into(),
            addresses.ok()?,
        ))
    });
    gateways.chain(backends).chain(resolutions).collect()
}

impl From<&Observation> for proto::GatewayObservation {
    fn from(observation: &Observation) -> Self {
        let Observation {
            addresses,
            unusable,
            unassigned,
            unbound,
            faulty,
            cross_mesh_addresses,
        } = observation;
        let mut listeners: BTreeMap<&FrontendId, proto::ListenerReport> = BTreeMap::new();
        let report = |id: &FrontendId| proto::ListenerReport {
            frontend: ResourceId::Frontend(id.clone()).name(),
            ..proto::ListenerReport::default()
        };
        for (id, reason) in unbound {
            let listener = listeners.entry(id).or_insert_with(|| report(id));
            listener.unbound = Some(reason.clone());
        }
        for (id, reason) in faulty {
            let listener = listeners.entry(id).or_insert_with(|| report(id));
            listener.faulty = Some(reason.clone());
        }
        for (id, sockets) in cross_mesh_addresses {
            let listener = listeners.entry(id).or_insert_with(|| report(id));
            listener.addresses = sockets.iter().map(ToString::to_string).collect();
        }
        let unusable = unusable.iter();
        proto::GatewayObservation {
            addresses: addresses.iter().map(ToString::to_string).collect(),
            unusable: unusable
                .map(|(a, reason)| (a.to_string(), reason.clone()))
                .collect(),
            unassigned: unassigned.clone(),
            listeners: listeners.into_values().collect(),
        }
    }
}

impl TryFrom<proto::GatewayObservation> for Observation {
    type Error = DecodeError;

    fn try_from(message: proto::GatewayObservation) -> Result<Self, DecodeError> {
        let mut observation = Observation {
            addresses: parse_ips(&message.addresses, "GatewayObservation.addresses")?,
            unusable: decode_unusable(message.unusable)?,
            unassigned: message.unassigned,
            ..Observation::default()
        };
        for listener in message.listeners {
            let ResourceId::Frontend(id) = listener.frontend.parse()? else {
                let (field, expected) = ("ListenerReport.frontend", "a frontend");
                return Err(DecodeError::invalid(field, listener.frontend, expected));
            };
            if let Some(reason) = listener.unbound {
                observation.unbound.insert(id.clone(), reason);
            }
            if let Some(reason) = listener.faulty {
                observation.faulty.insert(id.clone(), reason);
            }
            if !listener.addresses.is_empty() {
                let sockets = listener.addresses.iter();
                let sockets =
                    sockets.map(|text| parse(text, "ListenerReport.addresses", "a socket address"));
                observation
                    .cross_mesh_addresses
                    .insert(id, sockets.collect::<Result<_, _>>()?);
            }
        }
        Ok(observation)
    }
}

fn decode_unusable(
    unusable: HashMap<String, String>,
) -> Result<BTreeMap<std::net::IpAddr, String>, DecodeError> {
    let unusable = unusable.into_iter().map(|(address, reason)| {
        let address = parse(&address, "GatewayObservation.unusable", "an IP address")?;
        Ok((address, reason))
    });
    unusable.collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use pointsman_binding::bound::{BackendId, Transport};
    use pointsman_resources::{Kind, ObjectKey};

    #[test]
    fn a_decoded_report_is_the_report_that_was_encoded() {
        let gateway = Name::new("infra", "edge");
        let listener = |name: &str| FrontendId::Listener {
            gateway: gateway.clone(),
            owner: ObjectKey::new(Kind::Gateway, "infra", "edge"),
            listener: name.into(),
        };
        let observation = Observation {
            addresses: vec!["127.0.64.1".parse().expect("an address")],
            unusable: [(
                "192.0.2.1".parse().expect("an address"),
                "not here".to_owned(),
            )]
            .into(),
            unassigned: Some("none left".to_owned()),
            unbound: [(listener("a"), "taken".to_owned())].into(),
            faulty: [
                (listener("a"), "no key".to_owned()),
                (listener("b"), "old".to_owned()),
            ]
            .into(),
            cross_mesh_addresses: [(
                listener("c"),
                vec!["127.0.0.1:80".parse().expect("an address")],
            )]
            .into(),
        };
        let service = ObjectKey::new(Kind::Service, "shop", "web");
        let changes = [
            Change::Observe(gateway.clone(), Some(observation)),
            Change::Observe(Name::new("infra", "gone"), None),
            Change::Need(BackendId::new(service, 80, Transport::Udp), true),
            Change::RefusedResolution("a.example".into(), vec!["::1".parse().expect("an address")]),
            Change::RefusedResolution("b.example".into(), Vec::new()),
        ];
        let decoded = decode_report(encode_report(&changes));
        assert_eq!(format!("{decoded:?}"), format!("{changes:?}"));
    }
}
