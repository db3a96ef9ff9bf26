//! Backends and endpoints.

use std::sync::Arc;

use pointsman_binding::bound::{
    Backend, BackendId, BackendProtocol, BackendTls, BoundEndpoint, Endpoints, PeerName,
    RetryBudget, TopologyHints, Trust,
};

use crate::error::{
    DecodeError, convert, convert_all, convert_optional, decode_duration, encode_duration, parse,
    required, to_u16,
};
use crate::name::{decode_tags, encode_tags};
use crate::proto;
use crate::rule::unsupported;

impl From<&BackendId> for proto::BackendId {
    fn from(id: &BackendId) -> Self {
        proto::BackendId {
            object: Some((&id.object).into()),
            port: id.port.into(),
            transport: proto::Transport::from(id.transport).into(),
            tags: encode_tags(&id.tags),
        }
    }
}

impl TryFrom<proto::BackendId> for BackendId {
    type Error = DecodeError;

    fn try_from(id: proto::BackendId) -> Result<Self, DecodeError> {
        Ok(BackendId {
            transport: id.transport().try_into()?,
            tags: decode_tags(&id.tags),
            object: convert(id.object, "BackendId.object")?,
            port: to_u16(id.port, "BackendId.port")?,
        })
    }
}

impl From<&Backend> for proto::Backend {
    fn from(backend: &Backend) -> Self {
        use proto::backend_tls_state::State;
        let Backend {
            id: _,
            protocol,
            tls,
            retry_budget,
        } = backend;
        let state = tls.as_ref().map(|tls| match tls {
            Ok(tls) => State::Tls((&**tls).into()),
            Err(fault) => State::Fault(fault.into()),
        });
        proto::Backend {
            protocol: proto::BackendProtocol::from(*protocol).into(),
            tls: state.map(|state| proto::BackendTlsState { state: Some(state) }),
            retry_budget: retry_budget.map(Into::into),
        }
    }
}

impl proto::Backend {
    /// Decodes the backend with this id.
    pub(crate) fn with_id(self, id: BackendId) -> Result<Backend, DecodeError> {
        use proto::backend_tls_state::State;
        let protocol = self.protocol().try_into()?;
        let tls = match self.tls.map(|tls| tls.state) {
            None => None,
            Some(Some(State::Tls(tls))) => Some(Ok(Arc::new(tls.try_into()?))),
            Some(Some(State::Fault(fault))) => Some(Err(fault.try_into()?)),
            Some(None) => Some(Err(unsupported("TLS configuration"))),
        };
        Ok(Backend {
            id,
            protocol,
            tls,
            retry_budget: convert_optional(self.retry_budget)?,
        })
    }
}

impl From<BackendProtocol> for proto::BackendProtocol {
    fn from(protocol: BackendProtocol) -> Self {
        match protocol {
            BackendProtocol::Unspecified => proto::BackendProtocol::Default,
            BackendProtocol::Http1 => proto::BackendProtocol::Http1,
            BackendProtocol::Http2 => proto::BackendProtocol::Http2,
            BackendProtocol::Grpc => proto::BackendProtocol::Grpc,
            BackendProtocol::WebSocket => proto::BackendProtocol::Websocket,
            BackendProtocol::Tcp => proto::BackendProtocol::Tcp,
            BackendProtocol::Udp => proto::BackendProtocol::Udp,
        }
    }
}

impl TryFrom<proto::BackendProtocol> for BackendProtocol {
    type Error = DecodeError;

    fn try_from(protocol: proto::BackendProtocol) -> Result<Self, DecodeError> {
        Ok(match protocol {
            proto::BackendProtocol::Unspecified => {
                return Err(DecodeError::Unset("Backend.protocol"));
            }
            proto::BackendProtocol::Default => BackendProtocol::Unspecified,
            proto::BackendProtocol::Http1 => BackendProtocol::Http1,
            proto::BackendProtocol::Http2 => BackendProtocol::Http2,
            proto::BackendProtocol::Grpc => BackendProtocol::Grpc,
            proto::BackendProtocol::Websocket => BackendProtocol::WebSocket,
            proto::BackendProtocol::Tcp => BackendProtocol::Tcp,
            proto::BackendProtocol::Udp => BackendProtocol::Udp,
        })
    }
}

impl From<&BackendTls> for proto::BackendTls {
    fn from(tls: &BackendTls) -> Self {
        use proto::backend_tls::Trust as Message;
        let BackendTls {
            hostname,
            trust,
            names,
            client_certificate,
            of_mesh,
        } = tls;
        let trust = match trust {
            Trust::System => Message::System(()),
            Trust::Authorities(authorities) => Message::Authorities(proto::Authorities {
                certificates: authorities.iter().map(|der| der.to_vec()).collect(),
            }),
        };
        proto::BackendTls {
            hostname: hostname.to_string(),
            trust: Some(trust),
            names: names.iter().map(Into::into).collect(),
            client_certificate: client_certificate.as_ref().map(Into::into),
            of_mesh: *of_mesh,
        }
    }
}

impl TryFrom<proto::BackendTls> for BackendTls {
    type Error = DecodeError;

    fn try_from(tls: proto::BackendTls) -> Result<Self, DecodeError> {
        use proto::backend_tls::Trust as Message;
        let trust = match required(tls.trust, "BackendTls.trust")? {
            Message::System(()) => Trust::System,
            Message::Authorities(authorities) => {
                let certificates = authorities.certificates.into_iter();
                Trust::Authorities(certificates.map(Into::into).collect())
            }
        };
        Ok(BackendTls {
            hostname: tls.hostname.into(),
            trust,
            names: convert_all(tls.names)?,
            client_certificate: convert_optional(tls.client_certificate)?,
            of_mesh: tls.of_mesh,
        })
    }
}

impl From<&PeerName> for proto::PeerName {
    fn from(name: &PeerName) -> Self {
        use proto::peer_name::Name;
        let name = match name {
            PeerName::Hostname(hostname) => Name::Hostname(hostname.clone()),
            PeerName::Uri(uri) => Name::Uri(uri.clone()),
            PeerName::Prefix(prefix) => Name::Prefix(prefix.clone()),
        };
        proto::PeerName { name: Some(name) }
    }
}

impl TryFrom<proto::PeerName> for PeerName {
    type Error = DecodeError;

    fn try_from(name: proto::PeerName) -> Result<Self, DecodeError> {
        use proto::peer_name::Name;
        Ok(match required(name.name, "PeerName.name")? {
            Name::Hostname(hostname) => PeerName::Hostname(hostname),
            Name::Uri(uri) => PeerName::Uri(uri),
            Name::Prefix(prefix) => PeerName::Prefix(prefix),
        })
    }
}

impl From<RetryBudget> for proto::RetryBudget {
    fn from(budget: RetryBudget) -> Self {
        proto::RetryBudget {
            percent: budget.percent,
            interval: Some(encode_duration(budget.interval)),
            min_count: budget.min_count,
            min_interval: Some(encode_duration(budget.min_interval)),
        }
    }
}

impl TryFrom<proto::RetryBudget> for RetryBudget {
    type Error = DecodeError;

    fn try_from(budget: proto::RetryBudget) -> Result<Self, DecodeError> {
        let duration = |value, field| decode_duration(required(value, field)?, field);
        Ok(RetryBudget {
            percent: budget.percent,
            interval: duration(budget.interval, "RetryBudget.interval")?,
            min_count: budget.min_count,
            min_interval: duration(budget.min_interval, "RetryBudget.min_interval")?,
        })
    }
}

impl From<&Endpoints> for proto::Endpoints {
    fn from(endpoints: &Endpoints) -> Self {
        use proto::endpoints::Endpoints as Message;
        let endpoints = match endpoints {
            Endpoints::Addresses(endpoints) => Message::Addresses(proto::EndpointAddresses {
                endpoints: endpoints.iter().map(Into::into).collect(),
            }),
            Endpoints::Dns(name, port) => Message::Dns(proto::DnsName {
                name: name.to_string(),
                port: (*port).into(),
            }),
        };
        proto::Endpoints {
            endpoints: Some(endpoints),
        }
    }
}

impl TryFrom<proto::Endpoints> for Endpoints {
    type Error = DecodeError;

    fn try_from(endpoints: proto::Endpoints) -> Result<Self, DecodeError> {
        use proto::endpoints::Endpoints as Message;
        Ok(
            match required(endpoints.endpoints, "Endpoints.endpoints")? {
                Message::Addresses(addresses) => {
                    Endpoints::Addresses(convert_all(addresses.endpoints)?)
                }
                Message::Dns(dns) => {
                    Endpoints::Dns(dns.name.into(), to_u16(dns.port, "DnsName.port")?)
                }
            },
        )
    }
}

impl From<&BoundEndpoint> for proto::Endpoint {
    fn from(endpoint: &BoundEndpoint) -> Self {
        let hints = endpoint.hints.as_deref();
        proto::Endpoint {
            address: endpoint.address.to_string(),
            terminating: endpoint.terminating,
            for_nodes: hints.map_or_else(Vec::new, |hints| hints.nodes.clone()),
            for_zones: hints.map_or_else(Vec::new, |hints| hints.zones.clone()),
        }
    }
}

impl TryFrom<proto::Endpoint> for BoundEndpoint {
    type Error = DecodeError;

    fn try_from(endpoint: proto::Endpoint) -> Result<Self, DecodeError> {
        let hints = TopologyHints {
            nodes: endpoint.for_nodes,
            zones: endpoint.for_zones,
        };
        Ok(BoundEndpoint {
            address: parse(&endpoint.address, "Endpoint.address", "a socket address")?,
            terminating: endpoint.terminating,
            hints: (hints != TopologyHints::default()).then(|| Arc::new(hints)),
        })
    }
}
