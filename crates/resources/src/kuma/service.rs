//! MeshService, MeshExternalService and MeshMultiZoneService.
#![allow(missing_docs, reason = "fields are named and documented as in Kuma")]

use std::collections::BTreeMap;

use serde::Deserialize;

use super::{DataSource, Tags, TargetPort};
use crate::meta::null_as_default;
use crate::refs::LabelSelector;

/// The spec of a MeshService.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
pub struct MeshServiceSpec {
    /// Dataplanes that back the service.
    #[serde(default, deserialize_with = "null_as_default")]
    pub selector: MeshServiceSelector,
    #[serde(default, deserialize_with = "null_as_default")]
    pub ports: Vec<MeshServicePort>,
}

/// Selects the Dataplanes that back a MeshService. At most one field is set.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct MeshServiceSelector {
    /// Selects Dataplanes with an inbound that has all of these tags.
    pub dataplane_tags: Option<Tags>,
    /// Selects a single Dataplane.
    pub dataplane_ref: Option<DataplaneRef>,
    pub dataplane_labels: Option<LabelSelector>,
}

/// Reference to a Dataplane.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
pub struct DataplaneRef {
    #[serde(default)]
    pub name: String,
}

/// A port of a MeshService or MeshMultiZoneService.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct MeshServicePort {
    pub name: Option<String>,
    pub port: u16,
    /// Port of the inbounds, by number or name; defaults to `port`.
    pub target_port: Option<TargetPort>,
    #[serde(default = "tcp")]
    pub app_protocol: String,
}

impl MeshServicePort {
    /// Returns the `sectionName` of the port: its name or, if unset, its number.
    pub fn section_name(&self) -> String {
        self.name.clone().unwrap_or_else(|| self.port.to_string())
    }
}

/// The spec of a MeshExternalService.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct MeshExternalServiceSpec {
    #[serde(rename = "match")]
    pub matched: ExternalMatch,
    #[serde(default, deserialize_with = "null_as_default")]
    pub endpoints: Vec<ExternalEndpoint>,
    pub tls: Option<ExternalTls>,
    /// Not supported.
    pub extension: Option<Extension>,
}

/// An extension of Kuma that handles the traffic of a MeshExternalService.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct Extension {
    /// Name of the extension.
    #[serde(rename = "type", default)]
    pub kind: String,
}

/// Port and protocol of a MeshExternalService within the mesh.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct ExternalMatch {
    pub port: u16,
    #[serde(default = "tcp")]
    pub protocol: String,
}

/// An endpoint of a MeshExternalService.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct ExternalEndpoint {
    /// IP address or hostname.
    pub address: String,
    /// Defaults to the port of the match.
    pub port: Option<u16>,
}

/// TLS configuration of connections to a MeshExternalService.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct ExternalTls {
    #[serde(default)]
    pub enabled: bool,
    #[serde(default, deserialize_with = "null_as_default")]
    pub verification: ExternalVerification,
}

/// Verification of the certificate of a MeshExternalService.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ExternalVerification {
    /// Server name (SNI) to send and to verify; defaults to the endpoint's hostname.
    pub server_name: Option<String>,
    /// Alternative names, one of which the certificate must match instead of the server name.
    #[serde(default, deserialize_with = "null_as_default")]
    pub subject_alt_names: Vec<SubjectAltName>,
    /// Trust anchors; default to those of the system.
    pub ca_cert: Option<DataSource>,
    pub client_cert: Option<DataSource>,
    pub client_key: Option<DataSource>,
}

/// A subject alternative name to match against a certificate.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct SubjectAltName {
    #[serde(rename = "type", default)]
    pub kind: SanMatch,
    pub value: String,
}

/// Match type of a subject alternative name.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
pub enum SanMatch {
    #[default]
    Exact,
    Prefix,
}

/// The spec of a MeshMultiZoneService.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
pub struct MeshMultiZoneServiceSpec {
    #[serde(default, deserialize_with = "null_as_default")]
    pub selector: MultiZoneSelector,
    #[serde(default, deserialize_with = "null_as_default")]
    pub ports: Vec<MeshServicePort>,
}

/// Selects the MeshServices that a MeshMultiZoneService aggregates.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct MultiZoneSelector {
    #[serde(default, deserialize_with = "null_as_default")]
    pub mesh_service: MeshServiceLabels,
}

/// Selects MeshServices by labels.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct MeshServiceLabels {
    /// Required labels and their values.
    #[serde(default, deserialize_with = "null_as_default")]
    pub match_labels: BTreeMap<String, String>,
}

fn tcp() -> String {
    "tcp".to_owned()
}
