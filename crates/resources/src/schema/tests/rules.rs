//! Each demand of one field on another, broken once.

use serde_json::Value as Json;

use super::{errors, objects, read, valid};
use crate::meta::Kind;

/// A change to a valid document: a path, and the value to be put there as YAML. `~` takes away.
type Change = (&'static str, &'static str);

/// Kind, which of its valid documents, changes, the field that the finding names, and what it says.
pub(super) type Case = (Kind, usize, &'static [Change], &'static str, &'static str);

/// The document of a case.
pub(super) fn changed(kind: Kind, version: &str, document: usize, changes: &[Change]) -> Json {
    let mut object = valid(kind, version).swap_remove(document);
    for (path, yaml) in changes {
        put(&mut object, path, value(yaml));
    }
    object
}

fn value(yaml: &str) -> Json {
    let mut wrapped = objects(&format!("value: {yaml}"));
    wrapped[0]["value"].take()
}

fn put(object: &mut Json, path: &str, value: Json) {
    let mut at = object;
    for step in path.split(['.', '[']).map(|step| step.trim_end_matches(']')) {
        at = match at {
            Json::Array(items) => {
                let index: usize = step.parse().expect("an index");
                if index == items.len() {
                    items.push(Json::Null);
                }
                &mut items[index]
            }
            map => &mut map[step],
        };
    }
    *at = value;
}

#[test]
fn every_rule_is_kept_and_says_which() {
    for (kind, document, changes, field, says) in cases() {
        let object = changed(kind, kind.versions()[0], document, changes);
        let input = read(&object);
        let errors = errors(&input);
        let found = errors.iter().find(|error| error.field == field && error.message.contains(says));
        assert!(found.is_some(), "{kind} {changes:?}: {field}: {says}\n{errors:#?}");
        assert!(input.documents.is_empty());
    }
}

#[test]
fn older_versions_have_their_own_rules() {
    // (kind, version, changes, whether they are accepted)
    let second_rule = ("spec.rules[1]", "{name: second, backendRefs: [{name: a, port: 1}]}");
    let same_name = ("spec.rules[1]", "{name: first, backendRefs: [{name: a, port: 1}]}");
    let cases: &[(Kind, &str, &[Change], bool)] = &[
        (Kind::TLSRoute, "v1", &[second_rule], false),
        (Kind::TLSRoute, "v1alpha3", &[second_rule], false),
        (Kind::TLSRoute, "v1alpha2", &[second_rule], true),
        (Kind::TLSRoute, "v1alpha2", &[same_name], false),
        (Kind::TLSRoute, "v1", &[("spec.hostnames", "~")], false),
        (Kind::TLSRoute, "v1alpha3", &[("spec.hostnames", "~")], false),
        (Kind::TLSRoute, "v1alpha2", &[("spec.hostnames", "~")], true),
        (Kind::TLSRoute, "v1alpha3", &[("spec.hostnames[0]", "192.0.2.1")], false),
        (Kind::TLSRoute, "v1alpha2", &[("spec.hostnames[0]", "192.0.2.1")], true),
        (Kind::TCPRoute, "v1", &[second_rule], false),
        (Kind::TCPRoute, "v1alpha2", &[second_rule], true),
        (Kind::TCPRoute, "v1alpha2", &[same_name], false),
        (Kind::UDPRoute, "v1", &[second_rule], false),
        (Kind::UDPRoute, "v1alpha2", &[second_rule], true),
        (Kind::UDPRoute, "v1alpha2", &[same_name], false),
    ];
    for (kind, version, changes, accepted) in cases {
        let input = read(&changed(*kind, version, 0, changes));
        assert_eq!(errors(&input).is_empty(), *accepted, "{kind} {version} {changes:?}");
    }
}

/// Documents that come close to breaking a rule and don't.
pub(super) const NEAR: &[(Kind, usize, &[Change])] = &[
    (Kind::HTTPRoute, 0, &[("spec.rules[0].timeouts", "{request: 0s, backendRequest: 10s}")]),
    (Kind::HTTPRoute, 0, &[("spec.rules[0].timeouts", "{request: 1s, backendRequest: 1000ms}")]),
    (Kind::HTTPRoute, 0, &[("spec.rules[0].matches[0].path", "{type: RegularExpression, value: 'x#//'}"),
        ("spec.rules[0].filters[4]", "{type: CORS, cors: {}}"), ("spec.rules[0].filters[5]", "{type: RequestMirror, requestMirror: {backendRef: {kind: Foo, name: a}}}")]),
    // Of two backendRefs that replace a prefix the CRD looks at neither.
    (Kind::HTTPRoute, 1, &[("spec.rules[0].matches", "[{path: {type: Exact, value: /}}]"),
        ("spec.rules[0].backendRefs[0].filters", "[{type: URLRewrite, urlRewrite: {path: {type: ReplacePrefixMatch, replacePrefixMatch: /}}}]")]),
    (Kind::HTTPRoute, 1, &[("spec.parentRefs", "[{name: a, port: 80}, {name: a, port: 81}, {name: a, namespace: b}]")]),
    (Kind::HTTPRoute, 1, &[("spec.parentRefs", "[{name: a, sectionName: x, port: 80}, {name: a, sectionName: x, port: 81}]")]),
    (Kind::HTTPRoute, 1, &[("spec.rules[0].backendRefs[0]", "{kind: Foo, name: a}")]),
    (Kind::HTTPRoute, 1, &[("spec.rules[0].backendRefs[0].port", "80.0")]),
    (Kind::HTTPRoute, 1, &[("spec.rules[0].matches", "[]"), ("spec.rules[0].backendRefs", "[]")]),
    (Kind::HTTPRoute, 1, &[("spec.rules[0].filters", "[]"), ("spec.rules[0].retry", "{attempts: 99999999999}")]),
    (Kind::GRPCRoute, 0, &[("spec.rules[0].matches[0].method", "{type: RegularExpression, method: '.*'}")]),
    (Kind::GRPCRoute, 0, &[("spec.rules[0].matches[0].method", "{service: .Shop_1.v1}")]),
    (Kind::GRPCRoute, 0, &[("spec.rules[0].matches[0]", "{}"), ("spec.rules[1].name", "~")]),
    (Kind::Gateway, 0, &[("spec.addresses", "[{}, {}, {type: Hostname}, {type: Hostname}, {type: NamedAddress, value: a}, {type: NamedAddress, value: a}]")]),
    (Kind::Gateway, 0, &[("spec.addresses[0]", "{type: SomeHostname/IPAddress, value: a}")]),
    (Kind::Gateway, 0, &[("spec.listeners[1].tls", "~")]),
    (Kind::Gateway, 0, &[("spec.listeners[1].tls", "{options: {a: b}}")]),
    (Kind::Gateway, 0, &[("spec.listeners[2].tls", "{certificateRefs: [{name: a}]}")]),
    (Kind::Gateway, 0, &[("spec.listeners[2].hostname", "a.example.com"), ("spec.listeners[2].port", "80")]),
    (Kind::Gateway, 0, &[("spec.listeners[0].allowedRoutes", "{}"), ("spec.allowedListeners", "{}")]),
    (Kind::XBackend, 0, &[("spec.protocol", "~")]),
    (Kind::XBackend, 1, &[("spec.protocol", "MCP")]),
    (Kind::XBackend, 1, &[("spec.port", "{numer: 1}")]),
    (Kind::XBackendTrafficPolicy, 0, &[("spec.retryConstraint.budget.interval", "60m")]),
    (Kind::XTelemetryPolicy, 1, &[("spec.tracing", "{}")]),
    (Kind::BackendTLSPolicy, 1, &[("spec.targetRefs[1]", "{group: '', kind: Service, name: basket}")]),
    (Kind::TLSRoute, 0, &[("spec.hostnames[0]", "192.0.2.256")]),
    (Kind::ListenerSet, 0, &[("spec.listeners[0].protocol", "example.com/web")]),
];

#[test]
fn what_only_comes_close_to_breaking_a_rule_is_accepted() {
    for (kind, document, changes) in NEAR {
        let input = read(&changed(*kind, kind.versions()[0], *document, changes));
        assert_eq!(errors(&input), Vec::<&crate::Finding>::new(), "{kind} {changes:?}");
    }
}

/// All cases: those below, and those that stand in several places.
pub(super) fn cases() -> Vec<Case> {
    let mut all = CASES.to_vec();
    for (kind, member) in [(Kind::Gateway, 0), (Kind::ListenerSet, 0)] {
        all.extend(LISTENER.iter().map(|(changes, field, says)| (kind, member, *changes, *field, *says)));
    }
    for kind in [Kind::HTTPRoute, Kind::GRPCRoute, Kind::TLSRoute, Kind::TCPRoute, Kind::UDPRoute] {
        all.extend(ROUTE.iter().map(|(changes, field, says)| (kind, 0, *changes, *field, *says)));
    }
    for kind in [Kind::HTTPRoute, Kind::GRPCRoute] {
        all.extend(LAYER_7.iter().map(|(changes, field, says)| (kind, 0, *changes, *field, *says)));
    }
    all
}

type Shared = (&'static [Change], &'static str, &'static str);

const ROUTE: &[Shared] = &[
    (&[("spec.parentRefs", "[{name: a, sectionName: b}, {name: a}]")], "spec.parentRefs[1]", "both must set"),
    (&[("spec.parentRefs", "[{name: a, port: 1}, {name: a, sectionName: b}]")], "spec.parentRefs[1]", "both must set"),
    (&[("spec.parentRefs", "[{name: a}, {name: b}, {name: a}]")], "spec.parentRefs[2]", "they must differ in sectionName or port"),
    (&[("spec.parentRefs", "[{name: a, namespace: b, port: 1}, {name: a, namespace: b, port: 1}]")], "spec.parentRefs[1]", "names the same as item 0"),
    (&[("spec.rules[0].backendRefs[0].port", "~")], "spec.rules[0].backendRefs[0].port", "a reference to a Service needs `port`"),
    (&[("spec.rules[0].backendRefs[0]", "{group: gateway.networking.x-k8s.io, kind: XBackend, name: a, port: 1}")], "spec.rules[0].backendRefs[0].port", "takes no `port`"),
];

const LAYER_7: &[Shared] = &[
    (&[("spec.rules[1].name", "first")], "spec.rules[1].name", "an earlier item has the name `first` too"),
    (&[("spec.rules[0].sessionPersistence.absoluteTimeout", "~"), ("spec.rules[0].sessionPersistence.cookie.lifetimeType", "Permanent")], "spec.rules[0].sessionPersistence.absoluteTimeout", "needs `absoluteTimeout`"),
    (&[("spec.rules[0].sessionPersistence", "{}")], "spec.rules[0].sessionPersistence.cookie", "type Cookie needs `cookie`"),
    (&[("spec.rules[0].sessionPersistence.header", "{name: a}")], "spec.rules[0].sessionPersistence.header", "goes with type Header only"),
    (&[("spec.rules[0].sessionPersistence.type", "Header")], "spec.rules[0].sessionPersistence.cookie", "goes with type Cookie only"),
    (&[("spec.rules[1].sessionPersistence.header", "~")], "spec.rules[1].sessionPersistence.header", "type Header needs `header`"),
    (&[("spec.rules[0].filters[0].type", "ResponseHeaderModifier")], "spec.rules[0].filters[0].requestHeaderModifier", "goes with type RequestHeaderModifier only"),
    (&[("spec.rules[0].filters[0].type", "ResponseHeaderModifier")], "spec.rules[0].filters[0].responseHeaderModifier", "type ResponseHeaderModifier needs `responseHeaderModifier`"),
    (&[("spec.rules[0].filters[1].type", "RequestHeaderModifier")], "spec.rules[0].filters[1].responseHeaderModifier", "goes with type ResponseHeaderModifier only"),
    (&[("spec.rules[0].filters[1].type", "RequestHeaderModifier")], "spec.rules[0].filters[1].requestHeaderModifier", "needs `requestHeaderModifier`"),
    (&[("spec.rules[0].filters[2].type", "ExtensionRef")], "spec.rules[0].filters[2].requestMirror", "goes with type RequestMirror only"),
    (&[("spec.rules[0].filters[2].type", "ExtensionRef")], "spec.rules[0].filters[2].extensionRef", "needs `extensionRef`"),
    (&[("spec.rules[0].filters[2].requestMirror", "~")], "spec.rules[0].filters[2].requestMirror", "needs `requestMirror`"),
    (&[("spec.rules[0].filters[2].extensionRef", "{group: a, kind: a, name: a}")], "spec.rules[0].filters[2].extensionRef", "goes with type ExtensionRef only"),
    (&[("spec.rules[0].backendRefs[0].filters[0].type", "ResponseHeaderModifier")], "spec.rules[0].backendRefs[0].filters[0].requestHeaderModifier", "goes with type RequestHeaderModifier only"),
    (&[("spec.rules[0].backendRefs[0].filters[2].requestMirror", "~")], "spec.rules[0].backendRefs[0].filters[2].requestMirror", "needs `requestMirror`"),
    (&[("spec.rules[0].filters[2]", "{type: RequestHeaderModifier, requestHeaderModifier: {}}")], "spec.rules[0].filters[2]", "a RequestHeaderModifier filter stands here twice"),
    (&[("spec.rules[0].filters[2]", "{type: ResponseHeaderModifier, responseHeaderModifier: {}}")], "spec.rules[0].filters[2]", "a ResponseHeaderModifier filter stands here twice"),
    (&[("spec.rules[0].backendRefs[0].filters[2]", "{type: RequestHeaderModifier, requestHeaderModifier: {}}")], "spec.rules[0].backendRefs[0].filters[2]", "twice"),
    (&[("spec.rules[0].backendRefs[0].filters[2]", "{type: ResponseHeaderModifier, responseHeaderModifier: {}}")], "spec.rules[0].backendRefs[0].filters[2]", "twice"),
    (&[("spec.rules[0].filters[2].requestMirror.fraction", "{numerator: 1}")], "spec.rules[0].filters[2].requestMirror.fraction", "either `percent` or `fraction`"),
    (&[("spec.rules[0].filters[3].requestMirror.fraction", "{numerator: 101}")], "spec.rules[0].filters[3].requestMirror.fraction", "the numerator 101 is more than the denominator 100"),
    (&[("spec.rules[0].filters[2].requestMirror.backendRef.port", "~")], "spec.rules[0].filters[2].requestMirror.backendRef.port", "needs `port`"),
    (&[("spec.rules[0].filters[2].requestMirror.backendRef", "{group: gateway.networking.x-k8s.io, kind: XBackend, name: a, port: 1}")], "spec.rules[0].filters[2].requestMirror.backendRef.port", "takes no `port`"),
];

const LISTENER: &[Shared] = &[
    (&[("spec.listeners[0].tls", "{certificateRefs: [{name: a}]}")], "spec.listeners[0].tls", "protocol HTTP takes no `tls`"),
    (&[("spec.listeners[0]", "{name: a, port: 1, protocol: TCP, tls: {certificateRefs: [{name: a}]}}")], "spec.listeners[0].tls", "protocol TCP takes no `tls`"),
    (&[("spec.listeners[0]", "{name: a, port: 1, protocol: UDP, tls: {certificateRefs: [{name: a}]}}")], "spec.listeners[0].tls", "protocol UDP takes no `tls`"),
    (&[("spec.listeners[1].tls.mode", "Passthrough")], "spec.listeners[1].tls.mode", "HTTPS has tls mode Terminate"),
    (&[("spec.listeners[1]", "{name: a, port: 1, protocol: TLS}")], "spec.listeners[1].tls", "protocol TLS needs `tls`"),
    (&[("spec.listeners[1]", "{name: a, port: 1, protocol: TCP, hostname: a}")], "spec.listeners[1].hostname", "protocol TCP takes no `hostname`"),
    (&[("spec.listeners[1]", "{name: a, port: 1, protocol: UDP, hostname: a}")], "spec.listeners[1].hostname", "protocol UDP takes no `hostname`"),
    (&[("spec.listeners[1].tls", "{}")], "spec.listeners[1].tls", "mode Terminate needs `certificateRefs` or `options`"),
    (&[("spec.listeners[1].tls", "{certificateRefs: [], options: {}}")], "spec.listeners[1].tls", "mode Terminate needs"),
    (&[("spec.listeners[0].hostname", "~"), ("spec.listeners[1]", "{name: a, port: 80, protocol: HTTP}")], "spec.listeners[1]", "listener 0 has the same port, protocol and hostname"),
    (&[("spec.listeners[0].hostname", "a.b"), ("spec.listeners[1]", "{name: a, port: 80, protocol: HTTP, hostname: a.b}")], "spec.listeners[1]", "listener 0 has the same"),
    (&[("spec.listeners[0].filters.requests[0].type", "ExtensionRef")], "spec.listeners[0].filters.requests[0].externalAuth", "goes with type ExternalAuth only"),
    (&[("spec.listeners[0].filters.requests[0].type", "ExtensionRef")], "spec.listeners[0].filters.requests[0].extensionRef", "needs `extensionRef`"),
    (&[("spec.listeners[0].filters.requests[2].type", "ExternalAuth")], "spec.listeners[0].filters.requests[2].extensionRef", "goes with type ExtensionRef only"),
    (&[("spec.listeners[0].filters.requests[2].type", "ExternalAuth")], "spec.listeners[0].filters.requests[2].externalAuth", "needs `externalAuth`"),
    (&[("spec.listeners[0].filters.requests[0].externalAuth.protocol", "GRPC")], "spec.listeners[0].filters.requests[0].externalAuth.grpc", "protocol GRPC needs `grpc`"),
    (&[("spec.listeners[0].filters.requests[0].externalAuth.protocol", "GRPC")], "spec.listeners[0].filters.requests[0].externalAuth.http", "goes with protocol HTTP only"),
    (&[("spec.listeners[0].filters.requests[1].externalAuth.protocol", "HTTP")], "spec.listeners[0].filters.requests[1].externalAuth.http", "protocol HTTP needs `http`"),
    (&[("spec.listeners[0].filters.requests[1].externalAuth.protocol", "HTTP")], "spec.listeners[0].filters.requests[1].externalAuth.grpc", "goes with protocol GRPC only"),
    (&[("spec.listeners[0].filters.requests[0].externalAuth.backendRef.port", "~")], "spec.listeners[0].filters.requests[0].externalAuth.backendRef.port", "needs `port`"),
];

const CASES: &[Case] = &[
    // Gateway
    (Kind::Gateway, 0, &[("spec.addresses[1].value", "192.0.2.1")], "spec.addresses[1].value", "the IPAddress `192.0.2.1` stands here twice"),
    (Kind::Gateway, 0, &[("spec.addresses[3]", "{type: Hostname, value: '*.example.com'}")], "spec.addresses[3].value", "the Hostname `*.example.com` stands here twice"),
    (Kind::Gateway, 0, &[("spec.addresses[0].value", "example.com")], "spec.addresses[0].value", "`example.com` is not an IP address"),
    (Kind::Gateway, 0, &[("spec.addresses[0].value", "''")], "spec.addresses[0].value", "is not an IP address"),
    (Kind::Gateway, 0, &[("spec.addresses[0].value", "192.0.2.01")], "spec.addresses[0].value", "is not an IP address"),
    (Kind::Gateway, 0, &[("spec.addresses[2].value", "Example.com")], "spec.addresses[2].value", "`Example.com` is not a lowercase hostname"),
    (Kind::Gateway, 0, &[("spec.addresses[0].routability", "Public")], "spec.addresses[0].routability", "`Public` is not `Cluster`"),
    (Kind::Gateway, 0, &[("spec.addresses[0].routability", "networking.k8s.io/zone")], "spec.addresses[0].routability", "outside k8s.io"),
    (Kind::Gateway, 0, &[("spec.addresses[0].routability", "k8s.io/zone")], "spec.addresses[0].routability", "outside k8s.io"),
    (Kind::Gateway, 0, &[("spec.addresses[0].routability", "Example/zone")], "spec.addresses[0].routability", "is not `Cluster`"),
    (Kind::Gateway, 0, &[("spec.addresses[0].routability", "example.com/")], "spec.addresses[0].routability", "is not `Cluster`"),
    (Kind::Gateway, 0, &[("spec.infrastructure.labels", "{-a: b}")], "spec.infrastructure.labels[-a]", "the key is not a key"),
    (Kind::Gateway, 0, &[("spec.infrastructure.annotations", "{a/b/c: b}")], "spec.infrastructure.annotations[a/b/c]", "the key is not a key"),
    (Kind::Gateway, 0, &[("spec.listeners[0].protocol", "example.com/web")], "spec.listeners[0].filters", "goes with protocol HTTP or HTTPS only"),
    (Kind::Gateway, 0, &[("spec.tls.frontend.default.validation.caCertificateRefs[1].namespace", "a")], "spec.tls.frontend.default.validation.caCertificateRefs[1].namespace", "a ClusterTrustBundle is in no namespace"),
    (Kind::Gateway, 0, &[("spec.tls.frontend.perPort[0].tls.validation.caCertificateRefs[0]", "{group: certificates.k8s.io, kind: ClusterTrustBundle, name: a, namespace: a}")], "spec.tls.frontend.perPort[0].tls.validation.caCertificateRefs[0].namespace", "a ClusterTrustBundle is in no namespace"),
    // HTTPRoute: paths
    (Kind::HTTPRoute, 0, &[("spec.rules[0].matches[0].path.value", "cart")], "spec.rules[0].matches[0].path.value", "must begin with `/`"),
    (Kind::HTTPRoute, 0, &[("spec.rules[0].matches[0].path.value", "''")], "spec.rules[0].matches[0].path.value", "must begin with `/`"),
    (Kind::HTTPRoute, 0, &[("spec.rules[0].matches[0].path.value", "/a//b")], "spec.rules[0].matches[0].path.value", "must not contain `//`"),
    (Kind::HTTPRoute, 0, &[("spec.rules[0].matches[0].path.value", "/a/./b")], "spec.rules[0].matches[0].path.value", "must not contain `/./`"),
    (Kind::HTTPRoute, 0, &[("spec.rules[0].matches[0].path.value", "/a/../b")], "spec.rules[0].matches[0].path.value", "must not contain `/../`"),
    (Kind::HTTPRoute, 0, &[("spec.rules[0].matches[0].path.value", "/a%2fb")], "spec.rules[0].matches[0].path.value", "must not contain `%2f`"),
    (Kind::HTTPRoute, 0, &[("spec.rules[0].matches[0].path.value", "/a%2Fb")], "spec.rules[0].matches[0].path.value", "must not contain `%2F`"),
    (Kind::HTTPRoute, 0, &[("spec.rules[0].matches[0].path.value", "'/a#b'")], "spec.rules[0].matches[0].path.value", "must not contain `#`"),
    (Kind::HTTPRoute, 0, &[("spec.rules[0].matches[0].path.value", "/a/..")], "spec.rules[0].matches[0].path.value", "must not end with `/..`"),
    (Kind::HTTPRoute, 0, &[("spec.rules[0].matches[0].path.value", "/a/.")], "spec.rules[0].matches[0].path.value", "must not end with `/.`"),
    (Kind::HTTPRoute, 0, &[("spec.rules[0].matches[0].path.value", "/a b")], "spec.rules[0].matches[0].path.value", "is not a path"),
    (Kind::HTTPRoute, 0, &[("spec.rules[1].matches[0].path.value", "/100%")], "spec.rules[1].matches[0].path.value", "a path of type Exact is not"),
    // HTTPRoute: rules
    (Kind::HTTPRoute, 0, &[("spec.rules[1].backendRefs", "[{name: a, port: 1}]")], "spec.rules[1].filters[0].requestRedirect", "takes no `backendRefs`"),
    (Kind::HTTPRoute, 0, &[("spec.rules[2].matches", "[{path: {type: Exact, value: /}}]")], "spec.rules[2].filters[0].requestRedirect.path", "ReplacePrefixMatch needs exactly one match"),
    (Kind::HTTPRoute, 0, &[("spec.rules[2].matches", "[]")], "spec.rules[2].filters[0].requestRedirect.path", "exactly one match"),
    (Kind::HTTPRoute, 0, &[("spec.rules[0].matches[1]", "{}")], "spec.rules[0].filters[4].urlRewrite.path", "exactly one match"),
    (Kind::HTTPRoute, 0, &[("spec.rules[0].matches[0].path", "{type: RegularExpression, value: /}")], "spec.rules[0].filters[4].urlRewrite.path", "of type PathPrefix"),
    (Kind::HTTPRoute, 1, &[("spec.rules[0].matches", "[{}, {}]")], "spec.rules[0].backendRefs[0].filters[0].requestRedirect.path", "exactly one match"),
    (Kind::HTTPRoute, 1, &[("spec.rules[0].matches", "[{}, {}]")], "spec.rules[0].backendRefs[2].filters[0].urlRewrite.path", "exactly one match"),
    (Kind::HTTPRoute, 0, &[("spec.rules[0].timeouts.backendRequest", "10001ms")], "spec.rules[0].timeouts.backendRequest", "is longer than `request`"),
    // HTTPRoute: filters
    (Kind::HTTPRoute, 0, &[("spec.rules[0].filters[7]", "{type: RequestRedirect, requestRedirect: {}}")], "spec.rules[0].filters", "either a RequestRedirect or a URLRewrite"),
    (Kind::HTTPRoute, 0, &[("spec.rules[0].backendRefs[0].filters[7]", "{type: RequestRedirect, requestRedirect: {}}")], "spec.rules[0].backendRefs[0].filters", "either a RequestRedirect or a URLRewrite"),
    (Kind::HTTPRoute, 0, &[("spec.rules[0].filters[7]", "{type: URLRewrite, urlRewrite: {}}")], "spec.rules[0].filters[7]", "a URLRewrite filter stands here twice"),
    (Kind::HTTPRoute, 0, &[("spec.rules[0].filters[7]", "{type: CORS, cors: {}}")], "spec.rules[0].filters[7]", "a CORS filter stands here twice"),
    (Kind::HTTPRoute, 0, &[("spec.rules[1].filters[1]", "{type: RequestRedirect, requestRedirect: {}}")], "spec.rules[1].filters[1]", "a RequestRedirect filter stands here twice"),
    (Kind::HTTPRoute, 0, &[("spec.rules[0].filters[4].type", "RequestRedirect")], "spec.rules[0].filters[4].urlRewrite", "goes with type URLRewrite only"),
    (Kind::HTTPRoute, 0, &[("spec.rules[0].filters[4].type", "RequestRedirect")], "spec.rules[0].filters[4].requestRedirect", "needs `requestRedirect`"),
    (Kind::HTTPRoute, 0, &[("spec.rules[1].filters[0].type", "URLRewrite")], "spec.rules[1].filters[0].requestRedirect", "goes with type RequestRedirect only"),
    (Kind::HTTPRoute, 0, &[("spec.rules[1].filters[0].type", "URLRewrite")], "spec.rules[1].filters[0].urlRewrite", "needs `urlRewrite`"),
    (Kind::HTTPRoute, 0, &[("spec.rules[0].filters[5].type", "ExternalAuth")], "spec.rules[0].filters[5].cors", "goes with type CORS only"),
    (Kind::HTTPRoute, 0, &[("spec.rules[0].filters[5].type", "ExternalAuth")], "spec.rules[0].filters[5].externalAuth", "needs `externalAuth`"),
    (Kind::HTTPRoute, 0, &[("spec.rules[0].filters[6].type", "CORS")], "spec.rules[0].filters[6].externalAuth", "goes with type ExternalAuth only"),
    (Kind::HTTPRoute, 0, &[("spec.rules[0].filters[6].type", "CORS")], "spec.rules[0].filters[6].cors", "needs `cors`"),
    (Kind::HTTPRoute, 0, &[("spec.rules[0].filters[5].cors.allowOrigins[2]", "'*'")], "spec.rules[0].filters[5].cors.allowOrigins[2]", "goes with no other"),
    (Kind::HTTPRoute, 0, &[("spec.rules[0].filters[5].cors.allowMethods[2]", "'*'")], "spec.rules[0].filters[5].cors.allowMethods[2]", "goes with no other"),
    (Kind::HTTPRoute, 0, &[("spec.rules[0].filters[5].cors.allowHeaders[1]", "'*'")], "spec.rules[0].filters[5].cors.allowHeaders[1]", "goes with no other"),
    (Kind::HTTPRoute, 0, &[("spec.rules[0].filters[6].externalAuth.protocol", "GRPC")], "spec.rules[0].filters[6].externalAuth.grpc", "protocol GRPC needs `grpc`"),
    (Kind::HTTPRoute, 0, &[("spec.rules[0].filters[6].externalAuth.protocol", "GRPC")], "spec.rules[0].filters[6].externalAuth.http", "goes with protocol HTTP only"),
    (Kind::HTTPRoute, 0, &[("spec.rules[0].filters[7].externalAuth.protocol", "HTTP")], "spec.rules[0].filters[7].externalAuth.http", "protocol HTTP needs `http`"),
    (Kind::HTTPRoute, 0, &[("spec.rules[0].filters[7].externalAuth.protocol", "HTTP")], "spec.rules[0].filters[7].externalAuth.grpc", "goes with protocol GRPC only"),
    (Kind::HTTPRoute, 0, &[("spec.rules[0].filters[7].externalAuth.backendRef.port", "~")], "spec.rules[0].filters[7].externalAuth.backendRef.port", "needs `port`"),
    (Kind::HTTPRoute, 0, &[("spec.rules[1].filters[0].requestRedirect.path.type", "ReplacePrefixMatch")], "spec.rules[1].filters[0].requestRedirect.path.replaceFullPath", "goes with type ReplaceFullPath only"),
    (Kind::HTTPRoute, 0, &[("spec.rules[1].filters[0].requestRedirect.path.type", "ReplacePrefixMatch")], "spec.rules[1].filters[0].requestRedirect.path.replacePrefixMatch", "needs `replacePrefixMatch`"),
    (Kind::HTTPRoute, 0, &[("spec.rules[0].filters[4].urlRewrite.path.type", "ReplaceFullPath")], "spec.rules[0].filters[4].urlRewrite.path.replacePrefixMatch", "goes with type ReplacePrefixMatch only"),
    (Kind::HTTPRoute, 0, &[("spec.rules[0].filters[4].urlRewrite.path.type", "ReplaceFullPath")], "spec.rules[0].filters[4].urlRewrite.path.replaceFullPath", "needs `replaceFullPath`"),
    // GRPCRoute
    (Kind::GRPCRoute, 0, &[("spec.rules[0].matches[0].method", "{}")], "spec.rules[0].matches[0].method", "`service` or `method` or both must be set"),
    (Kind::GRPCRoute, 0, &[("spec.rules[0].matches[0].method.service", "shop/v1")], "spec.rules[0].matches[0].method.service", "`shop/v1` is not a gRPC service"),
    (Kind::GRPCRoute, 0, &[("spec.rules[0].matches[0].method.method", "1st")], "spec.rules[0].matches[0].method.method", "`1st` is not a gRPC method"),
    // TLSRoute
    (Kind::TLSRoute, 0, &[("spec.hostnames[0]", "192.0.2.1")], "spec.hostnames[0]", "`192.0.2.1` is an IP address"),
    (Kind::TLSRoute, 0, &[("spec.hostnames[0]", "a.*.example.com")], "spec.hostnames[0]", "is not a lowercase hostname"),
    // BackendTLSPolicy
    (Kind::BackendTLSPolicy, 0, &[("spec.targetRefs[1].sectionName", "~")], "spec.targetRefs[1]", "both must set sectionName"),
    (Kind::BackendTLSPolicy, 0, &[("spec.targetRefs[1].sectionName", "https")], "spec.targetRefs[1]", "they must differ in sectionName"),
    (Kind::BackendTLSPolicy, 0, &[("spec.validation.wellKnownCACertificates", "System")], "spec.validation", "not both"),
    (Kind::BackendTLSPolicy, 1, &[("spec.validation.wellKnownCACertificates", "~")], "spec.validation", "is needed"),
    (Kind::BackendTLSPolicy, 0, &[("spec.validation.subjectAltNames[0].hostname", "~")], "spec.validation.subjectAltNames[0].hostname", "type Hostname needs `hostname`"),
    (Kind::BackendTLSPolicy, 0, &[("spec.validation.subjectAltNames[0].uri", "a://b")], "spec.validation.subjectAltNames[0].uri", "goes with type URI only"),
    (Kind::BackendTLSPolicy, 0, &[("spec.validation.subjectAltNames[1].uri", "~")], "spec.validation.subjectAltNames[1].uri", "type URI needs `uri`"),
    (Kind::BackendTLSPolicy, 0, &[("spec.validation.subjectAltNames[1].hostname", "a")], "spec.validation.subjectAltNames[1].hostname", "goes with type Hostname only"),
    // XBackend
    (Kind::XBackend, 0, &[("spec.externalHostname", "~")], "spec.externalHostname", "type ExternalHostname needs `externalHostname`"),
    (Kind::XBackend, 1, &[("spec.externalHostname", "{hostname: a}")], "spec.externalHostname", "goes with type ExternalHostname only"),
    (Kind::XBackend, 1, &[("spec.endpointSelector", "~")], "spec.endpointSelector", "type EndpointSelector needs `endpointSelector`"),
    (Kind::XBackend, 0, &[("spec.endpointSelector", "{matchLabels: {a: b}}")], "spec.endpointSelector", "goes with type EndpointSelector only"),
    (Kind::XBackend, 0, &[("spec.protocol", "H2C")], "spec.tls.mode", "H2C goes without TLS"),
    (Kind::XBackend, 1, &[("spec.protocol", "HTTP2")], "spec.tls.mode", "HTTP2 needs TLS"),
    (Kind::XBackend, 1, &[("spec.protocol", "WSS")], "spec.tls.mode", "WSS needs TLS"),
    (Kind::XBackend, 0, &[("spec.sessionPersistence", "{cookie: {}}")], "spec.sessionPersistence", "goes with type EndpointSelector only"),
    (Kind::XBackend, 0, &[("spec.externalHostname.hostname", "a.b.svc.cluster.local")], "spec.externalHostname.hostname", ".cluster.local"),
    (Kind::XBackend, 1, &[("spec.endpointSelector.matchLabels", "{-a: b}")], "spec.endpointSelector.matchLabels[-a]", "the key is not a key"),
    (Kind::XBackend, 1, &[("spec.port", "{}")], "spec.port", "at least 1 of number must be set"),
    (Kind::XBackend, 0, &[("spec.tls.clientCertificateRef", "~")], "spec.tls.clientCertificateRef", "mode ClientAndServer needs"),
    (Kind::XBackend, 2, &[("spec.tls.clientCertificateRef", "{name: a}")], "spec.tls.clientCertificateRef", "goes with mode ClientAndServer only"),
    (Kind::XBackend, 2, &[("spec.tls.validation", "~")], "spec.tls.validation", "mode ServerOnly needs `validation`"),
    (Kind::XBackend, 2, &[("spec.tls.mode", "None")], "spec.tls.validation", "goes with mode ServerOnly or ClientAndServer only"),
    (Kind::XBackend, 2, &[("spec.tls.validation.wellKnownCACertificates", "~")], "spec.tls.validation", "is needed"),
    (Kind::XBackend, 1, &[("spec.sessionPersistence.absoluteTimeout", "~")], "spec.sessionPersistence.absoluteTimeout", "needs `absoluteTimeout`"),
    // XBackendTrafficPolicy
    (Kind::XBackendTrafficPolicy, 0, &[("spec.retryConstraint.budget.interval", "999ms")], "spec.retryConstraint.budget.interval", "at least one second"),
    (Kind::XBackendTrafficPolicy, 0, &[("spec.retryConstraint.budget.interval", "61m")], "spec.retryConstraint.budget.interval", "at most one hour"),
    (Kind::XBackendTrafficPolicy, 0, &[("spec.retryConstraint.minRetryRate.interval", "0s")], "spec.retryConstraint.minRetryRate.interval", "more than 0"),
    (Kind::XBackendTrafficPolicy, 0, &[("spec.retryConstraint.minRetryRate.interval", "1h1ms")], "spec.retryConstraint.minRetryRate.interval", "at most one hour"),
    (Kind::XBackendTrafficPolicy, 0, &[("spec.sessionPersistence.type", "Header")], "spec.sessionPersistence.header", "needs `header`"),
    // XTelemetryPolicy
    (Kind::XTelemetryPolicy, 0, &[("spec.tracing.provider", "~")], "spec.tracing.provider", "mode Enabled needs `provider`"),
    (Kind::XTelemetryPolicy, 1, &[("spec.tracing.provider", "{backendRef: {name: a, port: 1}}")], "spec.tracing.provider", "goes with mode Enabled only"),
    (Kind::XTelemetryPolicy, 1, &[("spec.tracing.samplingRate", "{numerator: 1}")], "spec.tracing.samplingRate", "goes with mode Enabled only"),
    (Kind::XTelemetryPolicy, 1, &[("spec.tracing.parentBasedSampling", "{}")], "spec.tracing.parentBasedSampling", "goes with mode Enabled only"),
    (Kind::XTelemetryPolicy, 1, &[("spec.tracing.serviceName", "a")], "spec.tracing.serviceName", "goes with mode Enabled only"),
    (Kind::XTelemetryPolicy, 1, &[("spec.tracing.spanName", "a")], "spec.tracing.spanName", "goes with mode Enabled only"),
    (Kind::XTelemetryPolicy, 1, &[("spec.tracing.attributes", "[]")], "spec.tracing.attributes", "goes with mode Enabled only"),
    (Kind::XTelemetryPolicy, 0, &[("spec.tracing.samplingRate", "{numerator: 2, denominator: 1}")], "spec.tracing.samplingRate", "the numerator 2 is more"),
    (Kind::XTelemetryPolicy, 0, &[("spec.tracing.parentBasedSampling.mode", "Disabled")], "spec.tracing.parentBasedSampling.samplingRate", "goes with mode Enabled only"),
    (Kind::XTelemetryPolicy, 0, &[("spec.tracing.attributes[0].headerName", "~")], "spec.tracing.attributes[0].headerName", "needs `headerName`"),
    (Kind::XTelemetryPolicy, 0, &[("spec.tracing.attributes[0].literalValue", "a")], "spec.tracing.attributes[0].literalValue", "goes with sourceType Literal only"),
    (Kind::XTelemetryPolicy, 0, &[("spec.tracing.attributes[1].literalValue", "~")], "spec.tracing.attributes[1].literalValue", "needs `literalValue`"),
    (Kind::XTelemetryPolicy, 0, &[("spec.tracing.attributes[1].headerName", "a")], "spec.tracing.attributes[1].headerName", "goes with sourceType Header only"),
    (Kind::XTelemetryPolicy, 0, &[("spec.tracing.attributes[2].attributeKey", "~")], "spec.tracing.attributes[2].attributeKey", "needs `attributeKey`"),
    (Kind::XTelemetryPolicy, 0, &[("spec.tracing.attributes[0].attributeKey", "a")], "spec.tracing.attributes[0].attributeKey", "goes with sourceType Attribute only"),
    (Kind::XTelemetryPolicy, 0, &[("spec.tracing.provider.backendRef.port", "~")], "spec.tracing.provider.backendRef.port", "needs `port`"),
    (Kind::XTelemetryPolicy, 0, &[("spec.tracing", "~")], "spec.tracing", "this required field is missing"),
];

#[test]
fn all_rules_of_a_route_have_at_most_128_matches() {
    for kind in [Kind::HTTPRoute, Kind::GRPCRoute] {
        let mut object = valid(kind, "v1").swap_remove(0);
        let header = |n: usize| serde_json::json!({"headers": [{"name": "x", "value": n.to_string()}]});
        let rule = |n: usize| serde_json::json!({"matches": (0..n).map(header).collect::<Vec<_>>()});
        object["spec"]["rules"] = serde_json::json!([rule(64), rule(64)]);
        assert_eq!(read(&object).findings, []);
        object["spec"]["rules"] = serde_json::json!([rule(64), rule(64), rule(1)]);
        let input = read(&object);
        assert_eq!(errors(&input)[0].field, "spec.rules");
        assert!(errors(&input)[0].message.contains("129 matches"), "{:?}", input.findings);
    }
}
