//! Frontends and their ids.

use std::sync::Arc;

use pointsman_binding::bound::{
    Attachment, ClientValidation, Frontend, FrontendId, FrontendTls, Hostname, Outbound, Protocol,
    Scope, TlsModeKey,
};
use pointsman_resources::gateway::FrontendValidationMode;

use crate::error::{DecodeError, convert, convert_all, optional, parse, required, small};
use crate::proto;

impl From<&FrontendId> for proto::FrontendId {
    fn from(id: &FrontendId) -> Self {
        use proto::frontend_id::Id;
        let id = match id {
            FrontendId::Listener {
                gateway,
                owner,
                listener,
            } => Id::Listener(proto::ListenerId {
                gateway: Some(gateway.into()),
                owner: Some(owner.into()),
                listener: listener.to_string(),
            }),
            FrontendId::Mesh {
                parent,
                port,
                transport,
                scope,
            } => Id::Mesh(proto::MeshPortId {
                parent: Some(parent.into()),
                port: (*port).into(),
                transport: proto::Transport::from(*transport).into(),
                scope: Some(scope.into()),
            }),
            FrontendId::Outbound(outbound) => Id::Outbound(proto::OutboundId {
                dataplane: Some((&outbound.dataplane).into()),
                destination: Some((&outbound.destination).into()),
                listen: outbound.listen.map(|address| address.to_string()),
            }),
        };
        proto::FrontendId { id: Some(id) }
    }
}

impl TryFrom<proto::FrontendId> for FrontendId {
    type Error = DecodeError;

    fn try_from(id: proto::FrontendId) -> Result<Self, DecodeError> {
        use proto::frontend_id::Id;
        Ok(match required(id.id, "FrontendId.id")? {
            Id::Listener(id) => FrontendId::Listener {
                gateway: required(id.gateway, "ListenerId.gateway")?.into(),
                owner: convert(id.owner, "ListenerId.owner")?,
                listener: id.listener.into(),
            },
            Id::Mesh(id) => FrontendId::Mesh {
                transport: id.transport().try_into()?,
                parent: convert(id.parent, "MeshPortId.parent")?,
                port: small(id.port, "MeshPortId.port")?,
                scope: required(id.scope, "MeshPortId.scope")?.into(),
            },
            Id::Outbound(id) => {
                let listen = id.listen.as_deref();
                let listen =
                    listen.map(|text| parse(text, "OutboundId.listen", "a socket address"));
                FrontendId::Outbound(Arc::new(Outbound {
                    dataplane: convert(id.dataplane, "OutboundId.dataplane")?,
                    destination: convert(id.destination, "OutboundId.destination")?,
                    listen: listen.transpose()?,
                }))
            }
        })
    }
}

impl From<&Scope> for proto::mesh_port_id::Scope {
    fn from(scope: &Scope) -> Self {
        match scope {
            Scope::Everyone => proto::mesh_port_id::Scope::Everyone(()),
            Scope::Namespace(name) => proto::mesh_port_id::Scope::Namespace(name.to_string()),
        }
    }
}

impl From<proto::mesh_port_id::Scope> for Scope {
    fn from(scope: proto::mesh_port_id::Scope) -> Self {
        match scope {
            proto::mesh_port_id::Scope::Everyone(()) => Scope::Everyone,
            proto::mesh_port_id::Scope::Namespace(name) => Scope::Namespace(name.into()),
        }
    }
}

impl From<&Attachment> for proto::AttachmentId {
    fn from(attachment: &Attachment) -> Self {
        proto::AttachmentId {
            frontend: Some((&attachment.frontend).into()),
            route: Some((&attachment.route).into()),
        }
    }
}

impl TryFrom<proto::AttachmentId> for Attachment {
    type Error = DecodeError;

    fn try_from(id: proto::AttachmentId) -> Result<Self, DecodeError> {
        Ok(Attachment {
            frontend: convert(id.frontend, "AttachmentId.frontend")?,
            route: convert(id.route, "AttachmentId.route")?,
        })
    }
}

impl From<&Frontend> for proto::Frontend {
    fn from(frontend: &Frontend) -> Self {
        // Sent apart, as the resource's id.
        let Frontend {
            id: _,
            protocol,
            port,
            hostname,
            tls,
            client_certificate,
            mesh_certificate,
            kind,
            connection_limit,
            cross_mesh,
        } = frontend;
        proto::Frontend {
            protocol: proto::Protocol::from(*protocol).into(),
            port: (*port).into(),
            hostname: hostname.as_ref().map(|name| name.as_str().to_owned()),
            tls: tls.as_deref().map(Into::into),
            client_certificate: client_certificate.as_ref().map(Into::into),
            mesh_certificate: mesh_certificate.as_ref().map(Into::into),
            kind: kind.map(Into::into),
            connection_limit: *connection_limit,
            cross_mesh: *cross_mesh,
        }
    }
}

impl proto::Frontend {
    /// Decodes the frontend with this id.
    pub(crate) fn decode(self, id: FrontendId) -> Result<Frontend, DecodeError> {
        Ok(Frontend {
            id,
            protocol: self.protocol().try_into()?,
            port: small(self.port, "Frontend.port")?,
            hostname: self.hostname.as_deref().map(Hostname::new),
            tls: optional(self.tls)?.map(Arc::new),
            client_certificate: optional(self.client_certificate)?,
            mesh_certificate: optional(self.mesh_certificate)?,
            kind: optional(self.kind)?,
            connection_limit: self.connection_limit,
            cross_mesh: self.cross_mesh,
        })
    }
}

impl From<Protocol> for proto::Protocol {
    fn from(protocol: Protocol) -> Self {
        match protocol {
            Protocol::Http => proto::Protocol::Http,
            Protocol::Https => proto::Protocol::Https,
            Protocol::Tls(TlsModeKey::Terminate) => proto::Protocol::TlsTerminate,
            Protocol::Tls(TlsModeKey::Passthrough) => proto::Protocol::TlsPassthrough,
            Protocol::Tcp => proto::Protocol::Tcp,
            Protocol::Udp => proto::Protocol::Udp,
        }
    }
}

impl TryFrom<proto::Protocol> for Protocol {
    type Error = DecodeError;

    fn try_from(protocol: proto::Protocol) -> Result<Self, DecodeError> {
        Ok(match protocol {
            proto::Protocol::Unspecified => return Err(DecodeError::Unset("Frontend.protocol")),
            proto::Protocol::Http => Protocol::Http,
            proto::Protocol::Https => Protocol::Https,
            proto::Protocol::TlsTerminate => Protocol::Tls(TlsModeKey::Terminate),
            proto::Protocol::TlsPassthrough => Protocol::Tls(TlsModeKey::Passthrough),
            proto::Protocol::Tcp => Protocol::Tcp,
            proto::Protocol::Udp => Protocol::Udp,
        })
    }
}

impl From<&FrontendTls> for proto::FrontendTls {
    fn from(tls: &FrontendTls) -> Self {
        proto::FrontendTls {
            certificates: tls.certificates.iter().map(Into::into).collect(),
            clients: tls.clients.as_ref().map(Into::into),
        }
    }
}

impl TryFrom<proto::FrontendTls> for FrontendTls {
    type Error = DecodeError;

    fn try_from(tls: proto::FrontendTls) -> Result<Self, DecodeError> {
        Ok(FrontendTls {
            certificates: convert_all(tls.certificates)?,
            clients: tls.clients.map(Into::into),
        })
    }
}

impl From<&ClientValidation> for proto::ClientValidation {
    fn from(clients: &ClientValidation) -> Self {
        use proto::ClientValidationMode as Mode;
        let mode = match clients.mode {
            FrontendValidationMode::AllowValidOnly => Mode::AllowValidOnly,
            FrontendValidationMode::AllowInsecureFallback => Mode::AllowInsecureFallback,
        };
        proto::ClientValidation {
            authorities: clients.authorities.iter().map(|der| der.to_vec()).collect(),
            mode: mode.into(),
        }
    }
}

impl From<proto::ClientValidation> for ClientValidation {
    fn from(clients: proto::ClientValidation) -> Self {
        use proto::ClientValidationMode as Mode;
        let mode = match clients.mode() {
            Mode::AllowInsecureFallback => FrontendValidationMode::AllowInsecureFallback,
            Mode::AllowValidOnly | Mode::Unspecified => FrontendValidationMode::AllowValidOnly,
        };
        ClientValidation {
            authorities: clients.authorities.into_iter().map(Into::into).collect(),
            mode,
        }
    }
}
