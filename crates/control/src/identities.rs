//! What the proxies of a mesh show each other: a certificate, signed by an authority of the mesh's own.
//!
//! Both are made when a mesh with mutual TLS is first met, and live as long as this process: proxies speak it with each other here and
//! nowhere else, so nobody has to know them.

use std::collections::HashMap;
use std::sync::Arc;

use pointsman_binding::bound::{CertifiedKey, MeshIdentity, PrivateKey};
use pointsman_binding::{Change, Identity};
use pointsman_resources::kuma::Mesh;
use pointsman_resources::{Kind, Name, ObjectKey, Resource};
use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair, SanType};

/// The identities of meshes, by their names.
#[derive(Default)]
pub struct Identities(HashMap<Arc<str>, Arc<MeshIdentity>>);

impl Identities {
    /// What changes with an object that is put, or with one that is gone.
    pub fn follow(&mut self, key: &ObjectKey, object: Option<&Resource>) -> Option<Change> {
        if key.kind != Kind::Mesh {
            return None;
        }
        let has_mtls = |mesh: &Mesh| mesh.spec.has_mtls();
        let wanted = matches!(object, Some(Resource::Mesh(mesh)) if has_mtls(mesh));
        let mesh = &key.name.name;
        let identity = wanted.then(|| self.of(mesh));
        Some(Change::Identity(mesh.clone(), identity))
    }

    fn of(&mut self, mesh: &Arc<str>) -> Identity {
        if let Some(known) = self.0.get(mesh) {
            return Ok(known.clone());
        }
        let made = Arc::new(make(mesh).map_err(|error| error.to_string())?);
        self.0.insert(mesh.clone(), made.clone());
        Ok(made)
    }
}

fn make(mesh: &str) -> Result<MeshIdentity, rcgen::Error> {
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
            secret: Name::new("", format!("of mesh {mesh}")),
            chain: vec![certificate.der().as_ref().into()],
            key: PrivateKey::Pkcs8(key.serialize_der().into()),
        }),
    })
}
