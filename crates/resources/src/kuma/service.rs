//! Destinations: services in the mesh, outside it, and over several zones.

use std::collections::BTreeMap;

use serde::Deserialize;

use super::{DataSource, Tags, TargetPort};
use crate::meta::null_as_default;
use crate::refs::LabelSelector;

/// The spec of a MeshService.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
pub struct MeshServiceSpec {
    /// The Dataplanes behind it.
    #[serde(default, deserialize_with = "null_as_default")]
    pub selector: MeshServiceSelector,
    /// Its ports.
    #[serde(default, deserialize_with = "null_as_default")]
    pub ports: Vec<MeshServicePort>,
}

/// Which Dataplanes are behind a MeshService; one of the three is set.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct MeshServiceSelector {
    /// Those with an inbound of all these tags.
    pub dataplane_tags: Option<Tags>,
    /// The one of this name.
    pub dataplane_ref: Option<DataplaneRef>,
    /// Those with these labels.
    pub dataplane_labels: Option<LabelSelector>,
}

/// A Dataplane by its name.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
pub struct DataplaneRef {
    /// The name.
    #[serde(default)]
    pub name: String,
}

/// A port of a MeshService or MeshMultiZoneService.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct MeshServicePort {
    /// Its name.
    pub name: Option<String>,
    /// Its number.
    pub port: u16,
    /// The port of the inbounds, by number or name; the same number if left out.
    pub target_port: Option<TargetPort>,
    /// Its protocol.
    #[serde(default = "tcp")]
    pub app_protocol: String,
}

impl MeshServicePort {
    /// What a `sectionName` calls it: its name, or its number if it has none.
    pub fn section_name(&self) -> String {
        self.name.clone().unwrap_or_else(|| self.port.to_string())
    }
}

/// The spec of a MeshExternalService.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct MeshExternalServiceSpec {
    /// The port and protocol under which the mesh knows it.
    #[serde(rename = "match")]
    pub matched: ExternalMatch,
    /// Where it is.
    #[serde(default, deserialize_with = "null_as_default")]
    pub endpoints: Vec<ExternalEndpoint>,
    /// Whether TLS is spoken with it.
    pub tls: Option<ExternalTls>,
    /// A plugin of Kuma's that carries its traffic. None is supported.
    pub extension: Option<Extension>,
}

/// A plugin that carries the traffic of a MeshExternalService.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct Extension {
    /// The name of the plugin.
    #[serde(rename = "type", default)]
    pub kind: String,
}

/// The port and protocol under which the mesh knows a MeshExternalService.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct ExternalMatch {
    /// The port.
    pub port: u16,
    /// The protocol.
    #[serde(default = "tcp")]
    pub protocol: String,
}

/// Where a MeshExternalService is.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct ExternalEndpoint {
    /// An address or a hostname.
    pub address: String,
    /// The port; that of the match if left out.
    pub port: Option<u16>,
}

/// Whether TLS is spoken with a MeshExternalService.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct ExternalTls {
    /// Whether it is.
    #[serde(default)]
    pub enabled: bool,
    /// Whom to trust.
    #[serde(default, deserialize_with = "null_as_default")]
    pub verification: ExternalVerification,
}

/// How the certificate of a MeshExternalService is verified.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ExternalVerification {
    /// The name that is asked for and verified; the endpoint's hostname if left out.
    pub server_name: Option<String>,
    /// The names that the certificate must have one of, in place of that.
    #[serde(default, deserialize_with = "null_as_default")]
    pub subject_alt_names: Vec<SubjectAltName>,
    /// Who must have signed it; an authority of the system if left out.
    pub ca_cert: Option<DataSource>,
    /// The certificate that is shown.
    pub client_cert: Option<DataSource>,
    /// The key of that.
    pub client_key: Option<DataSource>,
}

/// A name in a certificate.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct SubjectAltName {
    /// How it is compared.
    #[serde(rename = "type", default)]
    pub kind: SanMatch,
    /// The name.
    pub value: String,
}

/// How a name in a certificate is compared.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[allow(missing_docs, reason = "named as in Kuma")]
pub enum SanMatch {
    #[default]
    Exact,
    Prefix,
}

/// The spec of a MeshMultiZoneService.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
pub struct MeshMultiZoneServiceSpec {
    /// The MeshServices that it is made of.
    #[serde(default, deserialize_with = "null_as_default")]
    pub selector: MultiZoneSelector,
    /// Its ports.
    #[serde(default, deserialize_with = "null_as_default")]
    pub ports: Vec<MeshServicePort>,
}

/// Which MeshServices a MeshMultiZoneService is made of.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct MultiZoneSelector {
    /// Those with these labels.
    #[serde(default, deserialize_with = "null_as_default")]
    pub mesh_service: MeshServiceLabels,
}

/// Labels of MeshServices.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct MeshServiceLabels {
    /// Labels that must be there with these values.
    #[serde(default, deserialize_with = "null_as_default")]
    pub match_labels: BTreeMap<String, String>,
}

fn tcp() -> String {
    "tcp".to_owned()
}
