//! Kinds, names and object metadata.

use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::fmt;
use std::hash::{BuildHasher, Hash, Hasher};
use std::sync::{Arc, LazyLock};

use serde::{Deserialize, Deserializer};

/// The API group of the Gateway API.
pub const GATEWAY_GROUP: &str = "gateway.networking.k8s.io";
/// The API group of the Gateway API's experimental `X` kinds.
pub const GATEWAY_X_GROUP: &str = "gateway.networking.x-k8s.io";
/// The API group of the multi-cluster Services API.
pub const MCS_GROUP: &str = "multicluster.x-k8s.io";
/// The API group of ClusterTrustBundle.
pub const CERTIFICATES_GROUP: &str = "certificates.k8s.io";
/// The API group of Pointsman's own kinds.
pub const POINTSMAN_GROUP: &str = "pointsman.io";
/// The API group of Kuma.
pub const KUMA_GROUP: &str = "kuma.io";

/// A resource kind that Pointsman supports.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[allow(missing_docs, reason = "each variant is the kind of that name")]
pub enum Kind {
    GatewayClass,
    Gateway,
    ListenerSet,
    HTTPRoute,
    GRPCRoute,
    TLSRoute,
    TCPRoute,
    UDPRoute,
    ReferenceGrant,
    BackendTLSPolicy,
    XBackend,
    XBackendTrafficPolicy,
    XTelemetryPolicy,
    XMesh,
    MeshSettings,
    GatewayParameters,
    Mesh,
    Dataplane,
    MeshService,
    MeshExternalService,
    MeshMultiZoneService,
    MeshGateway,
    MeshGatewayInstance,
    MeshHTTPRoute,
    MeshTCPRoute,
    MeshGatewayHTTPRoute,
    Service,
    ServiceImport,
    EndpointSlice,
    Namespace,
    Pod,
    Secret,
    ConfigMap,
    ClusterTrustBundle,
}

impl Kind {
    /// All kinds, in display order.
    pub const ALL: [Kind; 34] = [
        Kind::GatewayClass,
        Kind::Gateway,
        Kind::ListenerSet,
        Kind::HTTPRoute,
        Kind::GRPCRoute,
        Kind::TLSRoute,
        Kind::TCPRoute,
        Kind::UDPRoute,
        Kind::ReferenceGrant,
        Kind::BackendTLSPolicy,
        Kind::XBackend,
        Kind::XBackendTrafficPolicy,
        Kind::XTelemetryPolicy,
        Kind::XMesh,
        Kind::MeshSettings,
        Kind::GatewayParameters,
        Kind::Mesh,
        Kind::Dataplane,
        Kind::MeshService,
        Kind::MeshExternalService,
        Kind::MeshMultiZoneService,
        Kind::MeshGateway,
        Kind::MeshGatewayInstance,
        Kind::MeshHTTPRoute,
        Kind::MeshTCPRoute,
        Kind::MeshGatewayHTTPRoute,
        Kind::Service,
        Kind::ServiceImport,
        Kind::EndpointSlice,
        Kind::Namespace,
        Kind::Pod,
        Kind::Secret,
        Kind::ConfigMap,
        Kind::ClusterTrustBundle,
    ];

    /// Returns the kind's name, its API group and the supported versions, the current one first.
    const fn type_meta(self) -> (&'static str, &'static str, &'static [&'static str]) {
        match self {
            Kind::GatewayClass => ("GatewayClass", GATEWAY_GROUP, &["v1", "v1beta1"]),
            Kind::Gateway => ("Gateway", GATEWAY_GROUP, &["v1", "v1beta1"]),
            Kind::ListenerSet => ("ListenerSet", GATEWAY_GROUP, &["v1"]),
            Kind::HTTPRoute => ("HTTPRoute", GATEWAY_GROUP, &["v1", "v1beta1"]),
            Kind::GRPCRoute => ("GRPCRoute", GATEWAY_GROUP, &["v1"]),
            Kind::TLSRoute => ("TLSRoute", GATEWAY_GROUP, &["v1", "v1alpha3", "v1alpha2"]),
            Kind::TCPRoute => ("TCPRoute", GATEWAY_GROUP, &["v1", "v1alpha2"]),
            Kind::UDPRoute => ("UDPRoute", GATEWAY_GROUP, &["v1", "v1alpha2"]),
            Kind::ReferenceGrant => ("ReferenceGrant", GATEWAY_GROUP, &["v1", "v1beta1"]),
            Kind::BackendTLSPolicy => ("BackendTLSPolicy", GATEWAY_GROUP, &["v1", "v1alpha3"]),
            Kind::XBackend => ("XBackend", GATEWAY_X_GROUP, &["v1alpha1"]),
            Kind::XBackendTrafficPolicy => {
                ("XBackendTrafficPolicy", GATEWAY_X_GROUP, &["v1alpha1"])
            }
            Kind::XTelemetryPolicy => ("XTelemetryPolicy", GATEWAY_X_GROUP, &["v1alpha1"]),
            Kind::XMesh => ("XMesh", GATEWAY_X_GROUP, &["v1alpha1"]),
            Kind::MeshSettings => ("MeshSettings", POINTSMAN_GROUP, &["v1alpha1"]),
            Kind::GatewayParameters => ("GatewayParameters", POINTSMAN_GROUP, &["v1alpha1"]),
            Kind::Mesh => ("Mesh", KUMA_GROUP, &["v1alpha1"]),
            Kind::Dataplane => ("Dataplane", KUMA_GROUP, &["v1alpha1"]),
            Kind::MeshService => ("MeshService", KUMA_GROUP, &["v1alpha1"]),
            Kind::MeshExternalService => ("MeshExternalService", KUMA_GROUP, &["v1alpha1"]),
            Kind::MeshMultiZoneService => ("MeshMultiZoneService", KUMA_GROUP, &["v1alpha1"]),
            Kind::MeshGateway => ("MeshGateway", KUMA_GROUP, &["v1alpha1"]),
            Kind::MeshGatewayInstance => ("MeshGatewayInstance", KUMA_GROUP, &["v1alpha1"]),
            Kind::MeshHTTPRoute => ("MeshHTTPRoute", KUMA_GROUP, &["v1alpha1"]),
            Kind::MeshTCPRoute => ("MeshTCPRoute", KUMA_GROUP, &["v1alpha1"]),
            Kind::MeshGatewayHTTPRoute => ("MeshGatewayHTTPRoute", KUMA_GROUP, &["v1alpha1"]),
            Kind::Service => ("Service", "", &["v1"]),
            Kind::ServiceImport => ("ServiceImport", MCS_GROUP, &["v1beta1", "v1alpha1"]),
            Kind::EndpointSlice => ("EndpointSlice", "discovery.k8s.io", &["v1", "v1beta1"]),
            Kind::Namespace => ("Namespace", "", &["v1"]),
            Kind::Pod => ("Pod", "", &["v1"]),
            Kind::Secret => ("Secret", "", &["v1"]),
            Kind::ConfigMap => ("ConfigMap", "", &["v1"]),
            Kind::ClusterTrustBundle => (
                "ClusterTrustBundle",
                CERTIFICATES_GROUP,
                &["v1", "v1beta1", "v1alpha1"],
            ),
        }
    }

    /// Returns the kind's name as written in `kind`.
    pub const fn name(self) -> &'static str {
        self.type_meta().0
    }

    /// Returns the kind's API group; the core group is the empty string.
    pub const fn group(self) -> &'static str {
        self.type_meta().1
    }

    /// Returns the supported versions, the current one first.
    pub const fn versions(self) -> &'static [&'static str] {
        self.type_meta().2
    }

    /// Returns the kind with this API group and name, if it is supported.
    pub fn find(group: &str, name: &str) -> Option<Kind> {
        Kind::ALL
            .into_iter()
            .find(|kind| kind.name() == name && kind.group() == group)
    }

    /// Returns the `apiVersion` of the current version, which is the one that status is written in.
    pub fn api_version(self) -> String {
        self.api_version_of(self.versions()[0])
    }

    /// Returns the `apiVersion` of one of the kind's versions.
    pub fn api_version_of(self, version: &str) -> String {
        match self.group() {
            "" => version.to_owned(),
            group => format!("{group}/{version}"),
        }
    }

    /// Returns whether the kind is cluster-scoped.
    pub const fn is_cluster_scoped(self) -> bool {
        matches!(
            self,
            Kind::GatewayClass
                | Kind::XMesh
                | Kind::MeshSettings
                | Kind::Mesh
                | Kind::MeshGateway
                | Kind::Namespace
                | Kind::ClusterTrustBundle
        )
    }

    /// Returns whether objects of this kind may be written as Kuma universal documents: all kinds of Kuma, and Secret.
    pub fn has_universal_form(self) -> bool {
        self.group() == KUMA_GROUP || self == Kind::Secret
    }

    /// Returns the kind that the `type` of a universal document names, if it is supported.
    pub fn find_universal(name: &str) -> Option<Kind> {
        let mut all = Kind::ALL.into_iter();
        all.find(|kind| kind.has_universal_form() && kind.name() == name)
    }

    /// Returns whether this is one of Kuma's three route kinds.
    pub const fn is_mesh_route(self) -> bool {
        matches!(
            self,
            Kind::MeshHTTPRoute | Kind::MeshTCPRoute | Kind::MeshGatewayHTTPRoute
        )
    }

    /// Returns whether this is one of the Gateway API's five route kinds.
    pub const fn is_route(self) -> bool {
        matches!(
            self,
            Kind::HTTPRoute | Kind::GRPCRoute | Kind::TLSRoute | Kind::TCPRoute | Kind::UDPRoute
        )
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// The namespace part of an object's name: a Kubernetes namespace, the mesh of a universal document of Kuma, or nothing for a cluster-scoped object. Cheap to
/// clone.
///
/// A mesh is written as `mesh:NAME`, which can't be the name of a Kubernetes namespace, so that documents of both forms can be in one folder.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Deserialize)]
#[serde(transparent)]
pub struct NamespaceName(Arc<str>);

impl NamespaceName {
    const MESH_PREFIX: &str = "mesh:";

    /// Creates the scope of universal documents of a mesh.
    pub fn of_mesh(mesh: &str) -> Self {
        NamespaceName(format!("{}{mesh}", Self::MESH_PREFIX).into())
    }

    /// Returns the mesh of a universal document.
    pub fn mesh(&self) -> Option<&str> {
        self.0.strip_prefix(Self::MESH_PREFIX)
    }

    /// Returns the name as a shared string.
    pub fn as_arc(&self) -> &Arc<str> {
        &self.0
    }

    /// Returns the Kubernetes namespace.
    pub fn kubernetes(&self) -> Option<&str> {
        (!self.0.is_empty() && self.mesh().is_none()).then_some(&self.0)
    }
}

impl std::ops::Deref for NamespaceName {
    type Target = str;

    fn deref(&self) -> &str {
        &self.0
    }
}

impl From<&str> for NamespaceName {
    fn from(name: &str) -> Self {
        NamespaceName(name.into())
    }
}

impl From<String> for NamespaceName {
    fn from(name: String) -> Self {
        NamespaceName(name.into())
    }
}

impl From<Arc<str>> for NamespaceName {
    fn from(name: Arc<str>) -> Self {
        NamespaceName(name)
    }
}

impl From<NamespaceName> for Arc<str> {
    fn from(name: NamespaceName) -> Self {
        name.0
    }
}

impl PartialEq<str> for NamespaceName {
    fn eq(&self, other: &str) -> bool {
        *self.0 == *other
    }
}

impl PartialEq<NamespaceName> for str {
    fn eq(&self, other: &NamespaceName) -> bool {
        *self == *other.0
    }
}

impl fmt::Display for NamespaceName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// A namespace and a name; cluster-scoped objects have an empty namespace. Cheap to clone. The hash is computed once, because names are
/// the keys of most maps.
#[derive(Clone, Debug, Eq)]
pub struct Name {
    /// The namespace, empty for cluster-scoped objects.
    pub namespace: NamespaceName,
    /// The name.
    pub name: Arc<str>,
    hash: u64,
}

/// Hashes names, with a random seed per process.
static HASHER: LazyLock<foldhash::fast::RandomState> = LazyLock::new(Default::default);

impl Name {
    /// Creates the name of an object.
    pub fn new(namespace: impl Into<NamespaceName>, name: impl Into<Arc<str>>) -> Self {
        let (namespace, name) = (namespace.into(), name.into());
        let hash = HASHER.hash_one((&*namespace, &*name));
        Name {
            namespace,
            name,
            hash,
        }
    }
}

impl Hash for Name {
    fn hash<H: Hasher>(&self, state: &mut H) {
        state.write_u64(self.hash);
    }
}

impl PartialEq for Name {
    fn eq(&self, other: &Self) -> bool {
        self.hash == other.hash && self.name == other.name && self.namespace == other.namespace
    }
}

impl Ord for Name {
    fn cmp(&self, other: &Self) -> Ordering {
        let namespaces = self.namespace.cmp(&other.namespace);
        namespaces.then_with(|| self.name.cmp(&other.name))
    }
}

impl PartialOrd for Name {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.namespace.is_empty() {
            f.write_str(&self.name)
        } else {
            write!(f, "{}/{}", self.namespace, self.name)
        }
    }
}

/// Identifies an object by kind, namespace and name.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ObjectKey {
    /// Kind of the object.
    pub kind: Kind,
    /// Namespace and name of the object.
    pub name: Name,
}

impl ObjectKey {
    /// Creates the key of an object.
    pub fn new(kind: Kind, namespace: impl Into<NamespaceName>, name: impl Into<Arc<str>>) -> Self {
        ObjectKey {
            kind,
            name: Name::new(namespace, name),
        }
    }

    /// Returns the object's namespace, which is empty if the object is cluster-scoped.
    pub fn namespace(&self) -> &NamespaceName {
        &self.name.namespace
    }
}

impl fmt::Display for ObjectKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.kind, self.name)
    }
}

/// Age of an object, by which conflicts are resolved. Older objects sort first.
///
/// Objects with a `creationTimestamp` are older than objects without one, which are ordered by their position in the input.
/// Callers break ties by namespace and name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Age {
    /// Creation time in seconds since the Unix epoch.
    At(i64),
    /// Position in the input, for objects without a `creationTimestamp`.
    InputOrder(u64),
}

/// The metadata of an object, reduced to the fields in use.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Meta {
    /// Name of the object.
    pub name: Arc<str>,
    /// Namespace of the object; empty if it is cluster-scoped.
    #[serde(default)]
    pub namespace: NamespaceName,
    /// Generation of the spec; 1 if unset.
    #[serde(default = "one", deserialize_with = "generation")]
    pub generation: i64,
    /// Labels of the object.
    #[serde(default, deserialize_with = "null_as_default")]
    pub labels: Labels,
    /// Annotations of Kuma (`*.kuma.io/*`). Others are dropped to save memory.
    #[serde(default, deserialize_with = "kuma_annotations")]
    pub annotations: Labels,
    /// Identifier that the API server assigned; `None` for objects from files.
    pub uid: Option<Arc<str>>,
    /// Creation time in seconds since the Unix epoch.
    #[serde(default, deserialize_with = "seconds")]
    pub creation_timestamp: Option<i64>,
    /// Position in the input, counted over all documents. Replaces the creation time of objects without one.
    #[serde(skip)]
    pub input_order: u64,
}

impl Meta {
    /// Returns the namespace and name.
    pub fn key(&self) -> Name {
        Name::new(self.namespace.clone(), self.name.clone())
    }

    /// Returns the object's age.
    pub fn age(&self) -> Age {
        self.creation_timestamp
            .map_or(Age::InputOrder(self.input_order), Age::At)
    }
}

/// Labels, sorted by key. A sorted slice takes less memory than a map for the few labels that most objects have.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Labels(Box<[(Box<str>, Box<str>)]>);

impl Labels {
    /// Returns the value of a label.
    pub fn get(&self, key: &str) -> Option<&str> {
        let at = self
            .0
            .binary_search_by(|(known, _)| (**known).cmp(key))
            .ok()?;
        Some(&self.0[at].1)
    }

    /// Iterates over the labels and their values in the order of the keys.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        self.0.iter().map(|(key, value)| (&**key, &**value))
    }

    /// Returns a copy with the label set to the value.
    pub fn with(&self, key: &str, value: &str) -> Labels {
        let others = self.0.iter().filter(|(known, _)| **known != *key).cloned();
        let mut all: Vec<_> = others.chain([(key.into(), value.into())]).collect();
        all.sort();
        Labels(all.into())
    }
}

impl<'de> Deserialize<'de> for Labels {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        let sorted = BTreeMap::<Box<str>, Box<str>>::deserialize(d)?;
        Ok(Labels(sorted.into_iter().collect()))
    }
}

fn kuma_annotations<'de, D: Deserializer<'de>>(d: D) -> Result<Labels, D::Error> {
    let mut all = Option::<BTreeMap<Box<str>, Box<str>>>::deserialize(d)?.unwrap_or_default();
    all.retain(|key, _| key.contains("kuma.io/"));
    Ok(Labels(all.into_iter().collect()))
}

fn one() -> i64 {
    1
}

fn generation<'de, D: Deserializer<'de>>(d: D) -> Result<i64, D::Error> {
    // The API server starts at 1. Exported manifests may contain 0 or null.
    Ok(Option::<i64>::deserialize(d)?
        .filter(|&g| g > 0)
        .unwrap_or(1))
}

/// Deserializes `null` to the default value, as the API server does.
pub(crate) fn null_as_default<'de, D, T>(d: D) -> Result<T, D::Error>
where
    D: Deserializer<'de>,
    T: Default + Deserialize<'de>,
{
    Ok(Option::<T>::deserialize(d)?.unwrap_or_default())
}

fn seconds<'de, D: Deserializer<'de>>(d: D) -> Result<Option<i64>, D::Error> {
    match Option::<String>::deserialize(d)? {
        None => Ok(None),
        Some(text) => rfc3339(&text).map(Some).ok_or_else(|| {
            serde::de::Error::custom(format!(
                "`{text}` is not a time such as 2026-01-31T12:00:00Z"
            ))
        }),
    }
}

/// Parses an RFC 3339 time to Unix seconds. Fractions are truncated: the API server keeps whole seconds.
pub fn rfc3339(text: &str) -> Option<i64> {
    let bytes = text.as_bytes();
    if bytes.len() < 20 || !text.is_ascii() {
        return None;
    }
    let number = |range: std::ops::Range<usize>| -> Option<i64> {
        let part = text.get(range)?;
        part.bytes()
            .all(|b| b.is_ascii_digit())
            .then(|| part.parse().ok())?
    };
    let separators = [(4, b"-"), (7, b"-"), (10, b"T"), (13, b":"), (16, b":")];
    if separators
        .iter()
        .any(|&(at, expected)| !bytes[at].eq_ignore_ascii_case(&expected[0]))
    {
        return None;
    }
    let (year, month, day) = (number(0..4)?, number(5..7)?, number(8..10)?);
    let (hour, minute, second) = (number(11..13)?, number(14..16)?, number(17..19)?);
    let leap = year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
    let days_in_month = match month {
        2 if leap => 29,
        2 => 28,
        4 | 6 | 9 | 11 => 30,
        1..=12 => 31,
        _ => return None,
    };
    if !(1..=days_in_month).contains(&day) || hour > 23 || minute > 59 || second > 60 {
        return None;
    }
    let mut rest = &text[19..];
    if let Some(fraction) = rest.strip_prefix('.') {
        let digits = fraction.bytes().take_while(u8::is_ascii_digit).count();
        if digits == 0 {
            return None;
        }
        rest = &fraction[digits..];
    }
    let offset = match rest.as_bytes() {
        [b'Z' | b'z'] => 0,
        [sign @ (b'+' | b'-'), h1, h2, b':', m1, m2] => {
            let digit = |b: u8| b.is_ascii_digit().then(|| i64::from(b - b'0'));
            let minutes = (digit(*h1)? * 10 + digit(*h2)?) * 60 + digit(*m1)? * 10 + digit(*m2)?;
            if *sign == b'-' {
                -minutes * 60
            } else {
                minutes * 60
            }
        }
        _ => return None,
    };
    // Days since 1970. Years start in March, so that a leap day is the last day of its year.
    let (y, m) = if month > 2 {
        (year, month - 3)
    } else {
        (year - 1, month + 9)
    };
    let days =
        y * 365 + y.div_euclid(4) - y.div_euclid(100) + y.div_euclid(400) + (m * 153 + 2) / 5 + day
            - 1
            - 719_468;
    Some(days * 86_400 + hour * 3_600 + minute * 60 + second - offset)
}

/// Formats Unix seconds as an RFC 3339 time, such as `2026-01-31T12:00:00Z`.
pub fn to_rfc3339(seconds: i64) -> String {
    let (days, rest) = (seconds.div_euclid(86_400), seconds.rem_euclid(86_400));
    // Years start in March, so that a leap day is the last day of its year; an era is 400 years.
    let days = days + 719_468;
    let (era, day) = (days.div_euclid(146_097), days.rem_euclid(146_097));
    let year = (day - day / 1_460 + day / 36_524 - day / 146_096) / 365;
    let day = day - (365 * year + year / 4 - year / 100);
    let month = (5 * day + 2) / 153;
    let day = day - (153 * month + 2) / 5 + 1;
    let (year, month) = match month {
        0..10 => (era * 400 + year, month + 3),
        _ => (era * 400 + year + 1, month - 9),
    };
    let (hour, minute, second) = (rest / 3_600, rest / 60 % 60, rest % 60);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}Z")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn formatted_times_parse_to_the_same_value() {
        for seconds in [
            -1,
            0,
            951_782_399,
            951_782_400,
            951_868_800,
            1_709_164_800,
            4_102_444_799,
        ] {
            let text = to_rfc3339(seconds);
            assert_eq!(rfc3339(&text), Some(seconds), "{text}");
        }
    }

    #[test]
    fn times_may_have_offsets_and_fractions() {
        assert_eq!(rfc3339("1970-01-01T00:00:00Z"), Some(0));
        assert_eq!(rfc3339("2000-02-29T12:30:15Z"), Some(951_827_415));
        assert_eq!(rfc3339("2000-02-29T14:30:15.25+02:00"), Some(951_827_415));
        assert_eq!(rfc3339("1969-12-31T23:59:59Z"), Some(-1));
        for invalid in [
            "",
            "2000-02-30T00:00:00Z",
            "2001-02-29T00:00:00Z",
            "2000-01-01 00:00:00Z",
            "2000-01-01T00:00:00",
            "2000-01-01T00:00:00.Z",
            "yesterday, around noon",
        ] {
            assert_eq!(rfc3339(invalid), None, "{invalid}");
        }
    }

    #[test]
    fn objects_with_a_creation_time_are_older_than_objects_without() {
        assert!(Age::At(5) < Age::At(6));
        assert!(Age::At(i64::MAX) < Age::InputOrder(0));
        assert!(Age::InputOrder(0) < Age::InputOrder(1));
    }
}
