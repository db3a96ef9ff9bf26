//! Status and warnings of routes with invalid or unsupported rules, filters and references.

mod common;

use std::sync::Arc;

use common::{
    Bound, accepted, attached, bind_on_base, condition, conditions, doc, document, key, message,
    puts, service, summary,
};
use pointsman_binding::{Binder, Change};

const TO_EDGE: &str = "parentRefs: [{name: edge, namespace: infra}]";
const AUTH: &str = "{type: ExternalAuth, externalAuth: {protocol: HTTP, http: {}, backendRef: {name: web, port: 80}}}";
const EXTENSION: &str =
    "{type: ExtensionRef, extensionRef: {group: example.com, kind: F, name: f}}";
const WEB: &str = "backendRefs: [{name: web, port: 80}]";

fn route(rules: &str) -> String {
    doc(
        "HTTPRoute",
        "shop/r",
        &format!("{{{TO_EDGE}, rules: [{rules}]}}"),
    )
}

fn warnings(binder: &Binder) -> Vec<String> {
    let all = binder.warnings().into_iter();
    all.map(|w| format!("{} {}: {}", w.object, w.field, w.message))
        .collect()
}

// PartiallyInvalid "MUST NOT be set if a Route is fully valid, fully invalid, or not accepted."
#[test]
fn a_route_without_servable_rules_is_not_accepted_and_replies_500() {
    let unserved = [
        format!("{{filters: [{AUTH}], {WEB}}}"),
        format!("{{filters: [{EXTENSION}], {WEB}}}"),
        format!("{{sessionPersistence: {{cookie: {{name: c}}}}, {WEB}}}"),
        format!("{{backendRefs: [{{name: web, port: 80, filters: [{EXTENSION}]}}]}}"),
        format!("{{filters: [{AUTH}], {WEB}}}, {{filters: [{EXTENSION}], {WEB}}}"),
        format!(
            "{{matches: [{{path: {{type: RegularExpression, value: '('}}}}], {WEB}}}, {{filters: [{AUTH}], {WEB}}}"
        ),
    ];
    for rules in unserved {
        let bound = Bound::of(&format!("{}\n---\n{}", common::BASE, route(&rules)));
        let text = summary(&bound, "HTTPRoute shop/r");
        assert!(
            text.starts_with("Accepted=False/UnsupportedValue"),
            "{rules}: {text}"
        );
        assert!(!text.contains("PartiallyInvalid"), "{rules}: {text}");
        let text = message(&bound, "HTTPRoute shop/r", "Accepted");
        assert!(text.starts_with("no rule can be served: rule 0"), "{text}");
        assert!(text.contains("replies with 500: "), "{text}");
        // "Routes with any other value for the Accepted condition MUST NOT be included in this count."
        assert_eq!(attached(&bound, "Gateway infra/edge"), ["http=0"]);
        // A broader route must not match its requests without the filter.
        let goes = bound.destinations("HTTPRoute shop/r");
        assert!(goes.iter().all(|line| line.contains(": 500 ")), "{goes:?}");
        assert!(!goes.is_empty());
        // It applies to its requests, so it is not listed as inactive.
        let refused = bound.inactive_routes(&key("Gateway infra/edge"));
        assert!(
            refused.iter().all(|refusal| refusal.rule.is_some()),
            "{refused:?}"
        );
    }
}

#[test]
fn a_route_with_one_servable_rule_is_accepted() {
    let served = [
        format!("{{filters: [{AUTH}], {WEB}}}, {{{WEB}}}"),
        // Half of its requests are served.
        format!(
            "{{backendRefs: [{{name: web, port: 80, filters: [{EXTENSION}]}}, {{name: web, port: 80}}]}}"
        ),
    ];
    for rules in served {
        let binder = bind_on_base(&route(&rules));
        assert_eq!(
            accepted(&binder, "HTTPRoute shop/r"),
            "True/Accepted",
            "{rules}"
        );
    }
}

// "Drop Rule(s): With this approach, implementations will drop the invalid Route Rule(s) […]. The message for this condition MUST
// start with the prefix "Dropped Rule"": a rule that replies is not dropped.
#[test]
fn a_rule_that_replies_500_is_not_reported_as_dropped() {
    let broken = format!("{{matches: [{{path: {{type: RegularExpression, value: '('}}}}], {WEB}}}");
    let partly = |rules: String| {
        let binder = bind_on_base(&route(&rules));
        message(&binder, "HTTPRoute shop/r", "PartiallyInvalid")
    };
    assert_eq!(
        partly(format!("{{filters: [{AUTH}], {WEB}}}, {{{WEB}}}")),
        "rule 0 replies with 500: filter ExternalAuth is not supported"
    );
    let both = partly(format!("{{filters: [{AUTH}], {WEB}}}, {broken}, {{{WEB}}}"));
    assert!(
        both.starts_with("Dropped Rule: rule 1: match 0: path `(`"),
        "{both}"
    );
    assert!(
        both.ends_with("; rule 0 replies with 500: filter ExternalAuth is not supported"),
        "{both}"
    );
    let on_backend = AUTH.replace("ExternalAuth", "CORS").replace(
        "externalAuth: {protocol: HTTP, http: {}, backendRef: {name: web, port: 80}}",
        "cors: {allowOrigins: ['*']}",
    );
    let share = partly(format!(
        "{{backendRefs: [{{name: web, port: 80, filters: [{on_backend}]}}, {{name: web-v2, port: 80}}]}}"
    ));
    assert_eq!(
        share,
        "rule 0 replies with 500 to a share of its requests: filter CORS is not supported on a backendRef"
    );
}

#[test]
fn the_message_about_an_extension_ref_names_the_rule_once() {
    let rules = format!(
        "{{{WEB}}}, {{filters: [{EXTENSION}, {EXTENSION}], backendRefs: [{{name: web, port: 80, filters: [{EXTENSION}]}}]}}"
    );
    let binder = bind_on_base(&route(&rules));
    assert_eq!(
        conditions(&binder, "HTTPRoute shop/r"),
        [
            "parent Gateway infra/edge: Accepted=True/Accepted",
            "parent Gateway infra/edge: ResolvedRefs=False/InvalidKind"
        ]
    );
    assert_eq!(
        message(&binder, "HTTPRoute shop/r", "ResolvedRefs"),
        "rule 1: filter F.example.com f is not supported; remove the extensionRef"
    );
}

// "Only one action for a given header name is permitted. Filters specifying multiple actions of the same or different type for any
// one header name are invalid".
#[test]
fn several_actions_on_one_header_are_reported_in_status_and_warnings() {
    let modifier =
        "{set: [{name: X-A, value: '1'}], add: [{name: x-a, value: '2'}], remove: [X-a, other]}";
    for (kind, place) in [
        (
            "HTTPRoute",
            "spec.rules[0].filters[0].requestHeaderModifier",
        ),
        (
            "GRPCRoute",
            "spec.rules[0].filters[0].requestHeaderModifier",
        ),
        (
            "HTTPRoute",
            "spec.rules[0].backendRefs[0].filters[0].requestHeaderModifier",
        ),
    ] {
        let filters = format!(
            "filters: [{{type: RequestHeaderModifier, requestHeaderModifier: {modifier}}}]"
        );
        let rule = match place.contains("backendRefs") {
            true => format!("{{backendRefs: [{{name: web, port: 80, {filters}}}]}}"),
            false => format!("{{{filters}, {WEB}}}"),
        };
        let binder = bind_on_base(&doc(
            kind,
            "shop/r",
            &format!("{{{TO_EDGE}, rules: [{rule}]}}"),
        ));
        let text = "x-a is in set and add and remove, but a filter may have only one action for a header; they are applied in the order set, add, remove";
        let name = format!("{kind} shop/r");
        assert_eq!(accepted(&binder, &name), "True/Accepted");
        assert_eq!(
            message(&binder, &name, "Accepted"),
            format!("rule 0: header {text}")
        );
        let warnings = warnings(&binder);
        assert!(
            warnings.contains(&format!("{name} {place}: {text}")),
            "{warnings:?}"
        );
    }
}

#[test]
fn header_names_that_are_ignored_or_remove_nothing_cause_warnings() {
    let modifier =
        "{set: [{name: X-A, value: '1'}, {name: x-a, value: '2'}], remove: ['not a token', x-b]}";
    let rule = format!(
        "{{filters: [{{type: ResponseHeaderModifier, responseHeaderModifier: {modifier}}}], {WEB}}}"
    );
    let warnings = warnings(&bind_on_base(&route(&rule)));
    let at = "HTTPRoute shop/r spec.rules[0].filters[0].responseHeaderModifier";
    let about: Vec<&String> = warnings.iter().filter(|w| w.starts_with(at)).collect();
    assert_eq!(
        about,
        [
            &format!(
                "{at}.set[1]: this entry for x-a is ignored, because an earlier one differs from it only in case"
            ),
            &format!(
                "{at}.remove[0]: `not a token` is not a valid header name, so it removes nothing"
            ),
        ]
    );
}

#[test]
fn an_x_backend_has_no_ancestor_through_a_forbidden_reference() {
    let backend = document(
        "gateway.networking.x-k8s.io/v1alpha1",
        "XBackend",
        "team/api",
        "{type: ExternalHostname, externalHostname: {hostname: api.example.com}, port: {number: 443}}",
    );
    let to = |namespace: &str| {
        let rules = format!(
            "{{backendRefs: [{{group: gateway.networking.x-k8s.io, kind: XBackend, name: api, namespace: {namespace}}}]}}"
        );
        doc(
            "HTTPRoute",
            &format!("{namespace}/r"),
            &format!("{{{TO_EDGE}, rules: [{rules}]}}"),
        ) + &doc(
            "HTTPRoute",
            "shop/r",
            &format!("{{{TO_EDGE}, rules: [{rules}]}}"),
        )
    };
    let binder = bind_on_base(&(backend.clone() + &to("team")));
    assert_eq!(
        condition(&binder, "HTTPRoute shop/r", "ResolvedRefs"),
        "False/RefNotPermitted"
    );
    assert_eq!(
        conditions(&binder, "XBackend team/api"),
        ["ancestor Gateway infra/edge: Accepted=True/Accepted"],
        "the route of its own namespace"
    );
    let rules = "{backendRefs: [{group: gateway.networking.x-k8s.io, kind: XBackend, name: api, namespace: team}]}";
    let binder = bind_on_base(&(backend + &route(rules)));
    assert!(conditions(&binder, "XBackend team/api").is_empty());
}

fn rejected(object: &str) -> Change {
    Change::Reject(key(object), Some(Arc::from("broken.yaml:3:7")))
}

#[test]
fn references_to_a_rejected_object_name_the_location_of_the_error() {
    let policy = doc(
        "BackendTLSPolicy",
        "shop/tls",
        "{targetRefs: [{group: '', kind: Service, name: gone}], validation: {hostname: a.example, caCertificateRefs: [{group: '', kind: ConfigMap, name: ca}]}}",
    );
    let secure = doc(
        "Gateway",
        "infra/secure",
        "{gatewayClassName: pointsman, listeners: [{name: s, port: 443, protocol: HTTPS, tls: {certificateRefs: [{name: cert}]}}]}",
    );
    let unserved = doc(
        "Gateway",
        "infra/unserved",
        "{gatewayClassName: nobody, listeners: [{name: a, port: 80, protocol: HTTP}]}",
    );
    let mesh = doc(
        "HTTPRoute",
        "shop/mesh",
        "{parentRefs: [{group: '', kind: Service, name: gone}]}",
    );
    let mut binder = bind_on_base(&format!(
        "{}{mesh}{policy}{secure}{unserved}{}",
        doc(
            "HTTPRoute",
            "shop/lost",
            "{parentRefs: [{name: away, namespace: infra}]}"
        ),
        route("{backendRefs: [{name: gone, port: 80}]}"),
    ));
    assert_eq!(
        message(&binder, "HTTPRoute shop/r", "ResolvedRefs"),
        "Service shop/gone does not exist"
    );
    binder.apply([
        rejected("Service shop/gone"),
        rejected("Secret infra/cert"),
        rejected("Gateway infra/away"),
        rejected("GatewayClass nobody"),
    ]);
    let at = "was rejected as invalid at broken.yaml:3:7";
    for (object, kind, wanted) in [
        ("HTTPRoute shop/r", "ResolvedRefs", "Service shop/gone"),
        ("HTTPRoute shop/mesh", "Accepted", "Service shop/gone"),
    ] {
        assert_eq!(message(&binder, object, kind), format!("{wanted} {at}"));
    }
    let listener = binder
        .status(&key("Gateway infra/secure"))
        .expect("a status");
    let conditions = listener.conditions();
    let unresolved = conditions
        .iter()
        .find(|(place, c)| place == "listener s" && c.kind == "ResolvedRefs");
    let unresolved = unresolved.map(|(_, c)| c.message.to_string());
    assert_eq!(unresolved, Some(format!("Secret infra/cert {at}")));
    let warnings = warnings(&binder);
    for wanted in [
        format!("HTTPRoute shop/lost spec.parentRefs[0]: Gateway infra/away {at}"),
        format!(
            "Gateway infra/unserved spec.gatewayClassName: GatewayClass nobody {at}, so Gateway infra/unserved is not served"
        ),
        format!(
            "BackendTLSPolicy shop/tls spec.targetRefs[0]: Service shop/gone {at}, so the policy has no effect there"
        ),
    ] {
        assert!(warnings.contains(&wanted), "{wanted}\n{warnings:#?}");
    }
    // Once it is valid, no message mentions the error.
    binder.apply(puts(&service(
        "shop/gone",
        "{clusterIP: 10.0.0.9, ports: [{port: 80}]}",
    )));
    binder.apply([Change::Reject(key("Service shop/gone"), None)]);
    assert_eq!(
        condition(&binder, "HTTPRoute shop/r", "ResolvedRefs"),
        "True/ResolvedRefs"
    );
    assert_eq!(accepted(&binder, "HTTPRoute shop/mesh"), "True/Accepted");
}

#[test]
fn a_policy_for_a_missing_service_names_it() {
    let trust = "validation: {hostname: a.example, wellKnownCACertificates: System}";
    let tls = doc(
        "BackendTLSPolicy",
        "shop/tls",
        &format!("{{targetRefs: [{{group: '', kind: Service, name: nowhere}}], {trust}}}"),
    );
    let warned = warnings(&bind_on_base(&tls));
    let wanted = "BackendTLSPolicy shop/tls spec.targetRefs[0]: Service shop/nowhere does not exist, so the policy has no effect there";
    assert!(warned.iter().any(|warning| warning == wanted), "{warned:?}");
}

#[test]
fn the_message_about_a_wrong_group_names_the_right_one() {
    let policy = |group: &str, kind: &str| {
        let spec = format!(
            "{{targetRefs: [{{group: '', kind: Service, name: web}}], validation: {{hostname: a.example, caCertificateRefs: [{{group: '{group}', kind: {kind}, name: ca}}]}}}}"
        );
        let policy = doc("BackendTLSPolicy", "shop/tls", &spec);
        let binder = bind_on_base(&(policy + &route(&format!("{{{WEB}}}"))));
        message(&binder, "BackendTLSPolicy shop/tls", "ResolvedRefs")
    };
    assert_eq!(
        policy("", "ClusterTrustBundle"),
        "ClusterTrustBundle ca: the group of ClusterTrustBundle is \"certificates.k8s.io\", not \"\"; write `group: certificates.k8s.io`"
    );
    assert_eq!(
        policy("core", "ConfigMap"),
        "ConfigMap ca: the group of ConfigMap is \"\", not \"core\"; write `group: \"\"`"
    );
    assert!(policy("", "Pod").contains("is not a supported reference to CA certificates"));
}

#[test]
fn the_yaml_in_a_message_comes_last() {
    let rules =
        "{backendRefs: [{name: other, namespace: team, port: 80}, {name: nowhere, port: 80}]}";
    let binder = bind_on_base(&route(rules));
    let text = message(&binder, "HTTPRoute shop/r", "ResolvedRefs");
    let (before, yaml) = text.split_once("This one would allow it:\n").expect("YAML");
    assert!(
        before.contains("Service shop/nowhere does not exist"),
        "{text}"
    );
    assert!(
        yaml.starts_with("apiVersion: ") && yaml.ends_with("name: other\n"),
        "{text}"
    );
    assert!(!yaml.contains(';'), "{text}");
}
