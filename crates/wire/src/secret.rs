//! Secrets, the only messages that contain private keys. Errors never contain a key.

use pointsman_binding::bound::{CertifiedKey, PrivateKey, SecretId};

use crate::error::{DecodeError, required, to_index};
use crate::proto;

impl From<&SecretId> for proto::SecretId {
    fn from(id: &SecretId) -> Self {
        use proto::secret_id::Id;
        let id = match id {
            SecretId::Object(name) => Id::Object(name.into()),
            SecretId::Listener {
                gateway,
                listener,
                certificate,
            } => Id::Listener(proto::MeshGatewayCertificate {
                gateway: Some(gateway.into()),
                listener: *listener as u64,
                certificate: *certificate as u64,
            }),
            SecretId::ExternalService(name) => Id::ExternalService(name.into()),
            SecretId::Mesh(mesh) => Id::Mesh(mesh.to_string()),
        };
        proto::SecretId { id: Some(id) }
    }
}

impl TryFrom<proto::SecretId> for SecretId {
    type Error = DecodeError;

    fn try_from(id: proto::SecretId) -> Result<Self, DecodeError> {
        use proto::secret_id::Id;
        Ok(match required(id.id, "SecretId.id")? {
            Id::Object(name) => SecretId::Object(name.into()),
            Id::Listener(id) => SecretId::Listener {
                gateway: required(id.gateway, "MeshGatewayCertificate.gateway")?.into(),
                listener: to_index(id.listener, "MeshGatewayCertificate.listener")?,
                certificate: to_index(id.certificate, "MeshGatewayCertificate.certificate")?,
            },
            Id::ExternalService(name) => SecretId::ExternalService(name.into()),
            Id::Mesh(mesh) => SecretId::Mesh(mesh.into()),
        })
    }
}

impl From<&CertifiedKey> for proto::Secret {
    fn from(secret: &CertifiedKey) -> Self {
        use proto::secret::Key;
        let key = match &secret.key {
            PrivateKey::Pkcs8(der) => Key::Pkcs8(der.to_vec()),
            PrivateKey::Pkcs1(der) => Key::Pkcs1(der.to_vec()),
            PrivateKey::Sec1(der) => Key::Sec1(der.to_vec()),
        };
        proto::Secret {
            chain: secret.chain.iter().map(|der| der.to_vec()).collect(),
            key: Some(key),
        }
    }
}

impl TryFrom<proto::Secret> for CertifiedKey {
    type Error = DecodeError;

    fn try_from(secret: proto::Secret) -> Result<Self, DecodeError> {
        use proto::secret::Key;
        let key = match required(secret.key, "Secret.key")? {
            Key::Pkcs8(der) => PrivateKey::Pkcs8(der.into()),
            Key::Pkcs1(der) => PrivateKey::Pkcs1(der.into()),
            Key::Sec1(der) => PrivateKey::Sec1(der.into()),
        };
        Ok(CertifiedKey {
            chain: secret.chain.into_iter().map(Into::into).collect(),
            key,
        })
    }
}
