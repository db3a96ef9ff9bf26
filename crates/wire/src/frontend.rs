//! Frontends.

use std::sync::Arc;

use pointsman_binding::bound::{
    ClientValidation, Frontend, FrontendId, FrontendTls, Hostname, Protocol, TlsModeKey,
};
use pointsman_resources::gateway::FrontendValidationMode;

use crate::error::{DecodeError, convert_all, convert_optional, to_u16};
use crate::proto;

impl From<&Frontend> for proto::Frontend {
    fn from(frontend: &Frontend) -> Self {
        // The id is sent as that of the resource.
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
            closed,
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
            closed: closed.as_deref().map(str::to_owned),
        }
    }
}

impl proto::Frontend {
    /// Decodes the frontend with this id.
    pub(crate) fn with_id(self, id: FrontendId) -> Result<Frontend, DecodeError> {
        Ok(Frontend {
            id,
            protocol: self.protocol().try_into()?,
            port: to_u16(self.port, "Frontend.port")?,
            hostname: self.hostname.as_deref().map(Hostname::new),
            tls: convert_optional(self.tls)?.map(Arc::new),
            client_certificate: convert_optional(self.client_certificate)?,
            mesh_certificate: convert_optional(self.mesh_certificate)?,
            kind: convert_optional(self.kind)?,
            connection_limit: self.connection_limit,
            cross_mesh: self.cross_mesh,
            closed: self.closed.map(Into::into),
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
