//! MeshExternalServices: the Host of requests to them, and plugins, which are not supported.

use pointsman_resources::Kind;
use pointsman_routing::explain::Explanation;

use crate::{World, fate};

const EXTERNAL: &str = r#"
---
{type: MeshExternalService, mesh: default, name: api, spec: {match: {type: HostnameGenerator, port: 80, protocol: http}, endpoints: [{address: api.example.com, port: 8080}]}}
---
{type: MeshExternalService, mesh: default, name: by-address, spec: {match: {type: HostnameGenerator, port: 80, protocol: http}, endpoints: [{address: 192.0.2.1, port: 80}]}}
---
{type: MeshExternalService, mesh: default, name: lambda, spec: {match: {type: HostnameGenerator, port: 80, protocol: http}, extension: {type: Lambda}, endpoints: [{address: lambda.example.com, port: 80}]}}
---
{type: Dataplane, mesh: default, name: client, networking: {address: 10.0.0.13, outbound: [{port: 10001, tags: {kuma.io/service: backend}}, {port: 10003, backendRef: {kind: MeshExternalService, name: api}}, {port: 10004, backendRef: {kind: MeshExternalService, name: lambda}}]}}
"#;

fn world(filters: &str, backends: &str) -> World {
    let rule = format!(
        "{{matches: [{{path: {{type: PathPrefix, value: /}}}}], default: {{filters: {filters}, backendRefs: {backends}}}}}"
    );
    World::with(&format!(
        "{EXTERNAL}\n---\n{{type: MeshHTTPRoute, mesh: default, name: out, spec: {{to: [{{targetRef: {{kind: MeshService, name: backend}}, rules: [{rule}]}}]}}}}"
    ))
}

/// The Host that each backend receives, in order.
fn hosts(found: &Explanation) -> Vec<String> {
    let common = found
        .request
        .as_ref()
        .map(|request| request.headers["host"].clone());
    let backends = found.backends.iter();
    let own = backends.map(|backend| match &backend.request {
        Some(request) => request.headers["host"].clone(),
        None => common.clone().unwrap_or_default(),
    });
    own.collect()
}

const BOTH: &str = "[{kind: MeshService, name: backend, weight: 9}, {kind: MeshExternalService, name: api}, {kind: MeshExternalService, name: by-address}]";

/// "Host of requests to a MeshExternalService: its own hostname, unless a filter sets another".
#[test]
fn requests_to_an_external_service_carry_its_hostname() {
    let ask = |filters: &str| hosts(&world(filters, BOTH).from("client", "http://backend.mesh/"));
    assert_eq!(
        ask("[]"),
        ["backend.mesh", "api.example.com", "backend.mesh"]
    );
    for sets in [
        "{urlRewrite: {hostname: other.example}}",
        "{requestHeaderModifier: {set: [{name: host, value: other.example}]}}",
        "{requestHeaderModifier: {add: [{name: Host, value: other.example}]}}",
    ] {
        assert_eq!(ask(&format!("[{sets}]")), ["other.example"; 3], "{sets}");
    }
    let other = "[{requestHeaderModifier: {set: [{name: x-host, value: a}]}}]";
    assert_eq!(ask(other)[1], "api.example.com");
}

/// Also without a policy for the service.
#[test]
fn an_outbound_to_an_external_service_carries_its_hostname() {
    let found = world("[]", BOTH).from("client", "http://127.0.0.1:10003/");
    assert_eq!(
        (fate(&found).as_str(), hosts(&found)),
        ("api 100", vec!["api.example.com".to_owned()])
    );
}

#[test]
fn copies_to_an_external_service_carry_its_hostname() {
    let mirror = |name: &str| {
        format!("{{requestMirror: {{backendRef: {{kind: MeshExternalService, name: {name}}}}}}}")
    };
    let filters = format!("[{}, {}]", mirror("api"), mirror("by-address"));
    let found = world(&filters, "[{kind: MeshService, name: backend}]")
        .from("client", "http://backend.mesh/");
    let hosts: Vec<_> = found
        .mirrors
        .iter()
        .map(|mirror| mirror.host.as_deref())
        .collect();
    assert_eq!(hosts, [Some("api.example.com"), None]);
    assert_eq!(
        found.request.expect("a request").headers["host"],
        "backend.mesh"
    );
}

/// "a rule that can be matched but not served … answers 500"; a plugin's field is reported, not ignored.
#[test]
fn an_extension_is_refused_in_status_and_answers_500() {
    let world = world(
        "[]",
        "[{kind: MeshService, name: backend}, {kind: MeshExternalService, name: lambda}]",
    );
    assert_eq!(
        fate(&world.from("client", "http://backend.mesh/")),
        "backend 50, lambda 50 (500)"
    );
    assert_eq!(
        fate(&world.from("client", "http://127.0.0.1:10004/")),
        "lambda 100 (500)"
    );
    let why = "spec.extension of type `Lambda` is not supported; requests get 500";
    assert_eq!(
        world.conditions(Kind::MeshExternalService, "lambda"),
        [format!("Accepted=false/UnsupportedValue: {why}")]
    );
    assert_eq!(
        world.conditions(Kind::MeshExternalService, "api"),
        ["Accepted=true/Accepted: "]
    );
    let said = world.conditions(Kind::MeshHTTPRoute, "out");
    assert_eq!(
        said[1],
        format!(
            "ResolvedRefs=false/UnsupportedValue: MeshExternalService mesh:default/lambda: {why}"
        )
    );
}
