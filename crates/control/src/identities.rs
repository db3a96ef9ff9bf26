//! Identities of meshes with mutual TLS. Each mesh has a certificate authority and a certificate that its proxies present to each other.
//!
//! Both are issued when the mesh first appears, and exist as long as this process. They are used only between proxies of this process, so no other client needs
//! to trust them.

use std::collections::HashMap;
use std::sync::Arc;

use pointsman_binding::bound::{CertifiedKey, MeshIdentity, PrivateKey};
use pointsman_binding::{Change, Identity};
use pointsman_resources::kuma::Mesh;
use pointsman_resources::{Kind, ObjectKey, Resource};
use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair, SanType};

/// Identities by mesh name.
#[derive(Default)]
pub struct MeshIdentities(HashMap<Arc<str>, Arc<MeshIdentity>>);

impl MeshIdentities {
    /// Returns the change of a mesh's identity after an object was applied; `None` in `object` means deleted.
    pub fn update(&mut self, key: &ObjectKey, object: Option<&Resource>) -> Option<Change> {
        if key.kind != Kind::Mesh {
            return None;
        }
        let has_mtls = |mesh: &Mesh| mesh.spec.has_mtls();
        let required = matches!(object, Some(Resource::Mesh(mesh)) if has_mtls(mesh));
        let mesh = &key.name.name;
        let identity = required.then(|| self.get_or_issue(mesh));
        Some(Change::Identity(mesh.clone(), identity))
    }

    fn get_or_issue(&mut self, mesh: &Arc<str>) -> Identity {
        if let Some(known) = self.0.get(mesh) {
            return Ok(known.clone());
        }
        let issued = Arc::new(issue(mesh).map_err(|error| error.to_string())?);
        self.0.insert(mesh.clone(), issued.clone());
        Ok(issued)
    }
}

fn issue(mesh: &str) -> Result<MeshIdentity, rcgen::Error> {
    let mut authority = CertificateParams::default();
    authority.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    let name = format!("Authority of mesh {mesh}");
    authority.distinguished_name.push(DnType::CommonName, name);
    let key = KeyPair::generate()?;
    let root = authority.self_signed(&key)?;
    let issuer = Issuer::new(authority, key);

    let uri = format!("spiffe://{mesh}/proxy");
    let mut leaf = CertificateParams::default();
    leaf.subject_alt_names = vec![SanType::URI(uri.as_str().try_into()?)];
    let key = KeyPair::generate()?;
    let certificate = leaf.signed_by(&key, &issuer)?;
    Ok(MeshIdentity {
        authority: root.der().as_ref().into(),
        uri: uri.into(),
        certificate: Arc::new(CertifiedKey {
            chain: vec![certificate.der().as_ref().into()],
            key: PrivateKey::Pkcs8(key.serialize_der().into()),
        }),
    })
}
