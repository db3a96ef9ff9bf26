//! Untrusted authors of routes: their routes can't reach the admin server or protected endpoints, nor serve files of the machine.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::process::Command;

use crate::kuma::{calls, dataplane, mesh};
use crate::support::backend::Backend;
use crate::support::eventually;
use crate::support::gateway::{Address, CONTROLLER_ADMIN, Gateway, SPLIT, XDS};
use crate::support::http1::Http1;
use crate::support::manifests::*;
use crate::support::message::*;

const TCP: u16 = 9000;
const PROBES: u16 = 15020;

/// Returns the servers of Pointsman besides its admin server, by port, with their names in conditions.
fn other_servers() -> Vec<(u16, &'static str)> {
    let mut servers = vec![(PROBES, "Pointsman's own server for probes")];
    if SPLIT {
        servers.push((XDS, "Pointsman's own control plane"));
        servers.push((CONTROLLER_ADMIN, "Pointsman's own admin server"));
    }
    servers
}

/// Returns a Gateway whose HTTP and TCP traffic goes to the Service `admin`, with a host name that the admin server accepts.
fn to_admin() -> String {
    let rewrite = "filters: [{type: URLRewrite, urlRewrite: {hostname: localhost}}, {type: RequestHeaderModifier, requestHeaderModifier: {remove: [x-forwarded-for, x-forwarded-proto, x-forwarded-host, x-request-id]}}]";
    gateway(&[
        "{name: http, port: 8080, protocol: HTTP}",
        &format!("{{name: tcp, port: {TCP}, protocol: TCP}}"),
    ]) + &route("web", &[&format!("{{{rewrite}, {}}}", to("admin"))])
        + &route_of("TCPRoute", "bytes", "", &[&to("admin")])
        + &service_at("admin", "http", &[])
}

/// Returns whether a text is one of the admin server's pages.
fn is_admins(text: &str) -> bool {
    ["frontends", "conditions", "pointsman_", "<!doctype"]
        .iter()
        .any(|part| text.contains(part))
}

// "An EndpointSlice at 127.0.0.1:<admin port> with a URLRewrite to localhost gives any network client the whole /status and /config."
#[tokio::test]
async fn no_route_reaches_the_admin_server() {
    let gateway = Gateway::of(&to_admin()).await;
    let IpAddr::V4(own) = gateway.admin().ip() else {
        panic!("an IPv4 address");
    };
    let port = gateway.admin().port();
    for ip in [own, Ipv4Addr::UNSPECIFIED] {
        gateway.write(
            "slices.yaml",
            &slices("admin", &[SocketAddr::new(ip.into(), port)]),
        );
        eventually("a condition", || async {
            let status = gateway.ask_admin("/status").await.text();
            let refused = format!("{ip}:{port} is Pointsman's own admin server");
            status.contains("pointsman.io/EndpointsRefused") && status.contains(&refused)
        })
        .await;
        for page in ["/status", "/config", "/metrics", "/"] {
            let answer = gateway.ask(get(page)).await;
            assert_eq!(answer.status, 503, "{ip} {page}: {}", answer.text());
            assert!(!is_admins(&answer.text()));
        }
        let mut client = Http1::connect(gateway.at(TCP)).await;
        client
            .send("GET /config HTTP/1.1\r\nHost: localhost\r\n\r\n")
            .await;
        let got = String::from_utf8_lossy(&client.rest().await).into_owned();
        assert_eq!(got, "", "{ip}");
        let explained = "/explain?url=http://a.example/&gateway=default/edge";
        let explained = gateway.ask_admin(explained).await.text();
        assert!(explained.contains("503"), "explain agrees: {explained}");
    }
    // Other endpoints are used.
    let other = Backend::http1("other").await;
    let addresses = [gateway.admin(), other.address];
    gateway.write("slices.yaml", &slices("admin", &addresses));
    gateway
        .until("the other endpoint", get("/"), |response| {
            response.backend() == Some("other")
        })
        .await;
    for _ in 0..10 {
        assert_eq!(gateway.ask(get("/")).await.backend(), Some("other"));
    }
}

// A client of a control plane without TLS receives private keys.
#[tokio::test]
async fn no_route_reaches_other_servers_of_pointsman() {
    let gateway = Gateway::setup(&to_admin())
        .argument("--probes", &format!("ADDRESS:{PROBES}"))
        .start()
        .await;
    for (port, server) in other_servers() {
        for ip in [gateway.address.ip, Ipv4Addr::UNSPECIFIED.into()] {
            let endpoint = SocketAddr::new(ip, port);
            gateway.write("slices.yaml", &slices("admin", &[endpoint]));
            eventually("a condition", || async {
                let status = gateway.ask_admin("/status").await.text();
                status.contains(&format!("{endpoint} is {server}"))
            })
            .await;
            assert_eq!(gateway.ask(get("/metrics")).await.status, 503, "{endpoint}");
            let mut client = Http1::connect(gateway.at(TCP)).await;
            // The preface of HTTP/2, to which a control plane responds with its settings.
            client.send("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n").await;
            assert_eq!(client.rest().await, b"", "{endpoint}");
        }
    }
}

#[tokio::test]
async fn no_hostname_reaches_other_servers_of_pointsman() {
    if !has_own_hosts() {
        return;
    }
    let name = |port: u16| format!("b{port}");
    let mut manifests = plain();
    let mut rules = Vec::new();
    for (port, _) in other_servers() {
        manifests += &external(&name(port), "own.example.test", port);
        rules.push(to_external(&format!("/{port}"), &name(port)));
    }
    let rules: Vec<&str> = rules.iter().map(String::as_str).collect();
    manifests += &route("web", &rules);
    let gateway = Gateway::setup(&manifests)
        .hosts("ADDRESS own.example.test\n")
        .argument("--probes", &format!("ADDRESS:{PROBES}"))
        .start()
        .await;
    for (port, server) in other_servers() {
        let refused = format!("own.example.test ({}) is {server}", gateway.address.ip);
        eventually("a condition", || async {
            gateway.ask_admin("/status").await.text().contains(&refused)
        })
        .await;
        let response = gateway.ask(get(&format!("/{port}"))).await;
        assert!([502, 503].contains(&response.status), "{port}");
        assert!(!is_admins(&response.text()), "{port}: {}", response.text());
    }
}

// A name is looked up again when the hostname of an XBackend changes, and its addresses are used.
#[tokio::test]
async fn a_changed_hostname_is_resolved_and_used() {
    if !has_own_hosts() {
        return;
    }
    let backend = Backend::http1("behind").await;
    let port = backend.address.port();
    let setup = plain() + &route("web", &[&to_external("/", "out")]);
    let hosts = format!("{0} a.example.test\n{0} b.example.test\n", backend.address.ip());
    let gateway = Gateway::setup(&setup)
        .file("backend.yaml", &external("out", "a.example.test", port))
        .hosts(&hosts)
        .start()
        .await;
    let is_backends = |response: &Response| response.backend() == Some("behind");
    gateway.until("the first name", get("/"), is_backends).await;
    gateway.write("backend.yaml", &external("out", "b.example.test", port));
    eventually("the second name", || async {
        gateway.ask_admin("/config").await.text().contains("b.example.test")
    })
    .await;
    gateway.until("its addresses", get("/"), is_backends).await;
}

fn external(name: &str, hostname: &str, port: u16) -> String {
    format!(
        "---\napiVersion: gateway.networking.x-k8s.io/v1alpha1\nkind: XBackend\nmetadata: {{name: {name}, namespace: default}}\nspec:\n  type: ExternalHostname\n  \
         externalHostname: {{hostname: {hostname}}}\n  port: {{number: {port}}}\n"
    )
}

fn to_external(path: &str, name: &str) -> String {
    format!(
        "{{matches: [{{path: {{value: {path}}}}}], backendRefs: [{{group: gateway.networking.x-k8s.io, kind: XBackend, name: {name}}}]}}"
    )
}

/// Returns whether processes can be started with their own hosts file, which requires privileges. Prints a message if not.
#[allow(clippy::print_stderr, reason = "a test that is skipped says why")]
fn has_own_hosts() -> bool {
    let done = Command::new("unshare")
        .args(["-m", "mount", "--bind", "/etc/hosts", "/etc/hosts"])
        .output();
    let can = done.is_ok_and(|done| done.status.success());
    if !can {
        eprintln!("skipped: a mount namespace of one's own is not permitted");
    }
    can
}

#[tokio::test]
async fn no_hostname_reaches_the_admin_server() {
    if !has_own_hosts() {
        return;
    }
    let manifests = [
        plain(),
        external("sneaky", "sneaky.example.test", 15000),
        external("mapped", "mapped.example.test", 15000),
        external("any", "any.example.test", 15000),
        route(
            "web",
            &[
                &to_external("/sneaky", "sneaky"),
                &to_external("/mapped", "mapped"),
                &to_external("/any", "any"),
            ],
        ),
    ];
    let gateway = Gateway::setup(&manifests.concat())
        .hosts("ADDRESS sneaky.example.test\n::ffff:ADDRESS mapped.example.test\n0.0.0.0 any.example.test\n")
        .argument("--access-log", "json")
        .start()
        .await;
    for path in ["/sneaky", "/mapped", "/any"] {
        eventually("the name is known", || async {
            gateway.ask(get(path)).await;
            gateway.log().contains(&format!("\"path\":\"{path}"))
                && gateway.log().contains("ConnectFailed")
        })
        .await;
        let answer = gateway.ask(get(path)).await;
        assert!(
            [502, 503].contains(&answer.status),
            "{path}: {}",
            answer.status
        );
        assert!(!is_admins(&answer.text()));
    }
    for (name, address) in [
        ("sneaky", gateway.address.ip.to_string()),
        ("mapped", format!("::ffff:{}", gateway.address.ip)),
        ("any", "0.0.0.0".to_owned()),
    ] {
        let refused = format!("{name}.example.test ({address}) is Pointsman's own admin server");
        eventually("a condition", || async {
            gateway.ask_admin("/status").await.text().contains(&refused)
        })
        .await;
    }
}

// "refused, with a condition, by a controller on Kubernetes …; XBackend hostnames that resolve there too"
#[tokio::test]
async fn routable_policy_rejects_hostnames_that_resolve_to_this_machine() {
    if !has_own_hosts() {
        return;
    }
    let backend = Backend::http1("inside").await;
    let port = backend.address.port();
    let manifests = [
        plain(),
        external("inside", "inside.example.test", port),
        external("metadata", "metadata.example.test", port),
        route(
            "web",
            &[
                &to_external("/inside", "inside"),
                &to_external("/metadata", "metadata"),
            ],
        ),
    ]
    .concat();
    let start = |manifests: &str| {
        let hosts = format!(
            "{} inside.example.test\n169.254.169.254 metadata.example.test\n",
            backend.address.ip()
        );
        Gateway::setup(manifests).hosts(&hosts)
    };
    let gateway = start(&manifests).start().await;
    gateway
        .until("by default it is allowed", get("/inside"), |response| {
            response.backend() == Some("inside")
        })
        .await;

    let strict = |manifests: &str| start(manifests).argument("--endpoint-addresses", "routable");
    let gateway = strict(&manifests).start().await;
    eventually("conditions", || async {
        let status = gateway.ask_admin("/status").await.text();
        let loopback = format!("inside.example.test ({}) is loopback", backend.address.ip());
        let link = "metadata.example.test (169.254.169.254) is link-local";
        status.contains("pointsman.io/EndpointsRefused")
            && status.contains(&loopback)
            && status.contains(link)
    })
    .await;
    for path in ["/inside", "/metadata"] {
        assert_eq!(gateway.ask(get(path)).await.status, 503, "{path}");
    }
    let log = gateway.log();
    assert!(
        log.contains("resolves to addresses that are not allowed"),
        "{log}"
    );

    let range = format!("{}/32", backend.address.ip());
    let gateway = strict(&manifests)
        .argument("--allow-endpoint-range", &range)
        .start()
        .await;
    gateway
        .until("an exception", get("/inside"), |response| {
            response.backend() == Some("inside")
        })
        .await;
}

#[tokio::test]
async fn routable_policy_sends_no_traffic_to_endpoints_on_this_machine() {
    let backend = Backend::http1("inside").await;
    let manifests = [
        plain(),
        service("inside", &[&backend]),
        route("web", &[&to("inside")]),
    ];
    let gateway = Gateway::setup(&manifests.concat())
        .argument("--endpoint-addresses", "routable")
        .start()
        .await;
    assert_eq!(gateway.ask(get("/")).await.status, 503);
    let status = gateway.ask_admin("/status").await.text();
    let refused = format!("{} is loopback", backend.address);
    assert!(status.contains(&refused), "{status}");
    assert_eq!(backend.connections(), 0);
}

// "Without them the rule answers 500 and status names the flag."
#[tokio::test]
async fn a_direct_response_serves_only_what_the_operator_allows() {
    let (client, edge) = (Address::new(), Address::new());
    let v1 = Backend::http1("v1").await;
    let folder = tempfile::tempdir().expect("a folder");
    let path = |name: &str| folder.path().join(name).to_string_lossy().into_owned();
    std::fs::create_dir(path("bodies")).expect("a folder");
    std::fs::write(path("bodies/tea"), "short and stout").expect("written");
    std::fs::write(path("secret"), "SECRET").expect("written");
    let rule = |at: &str, body: &str| {
        format!(
            "{{matches: [{{path: {{type: PathPrefix, value: {at}}}}}], default: {{filters: [{{type: DirectResponse, directResponse: {{status: 200, body: {body}}}}}]}}}}"
        )
    };
    let rules = [
        rule("/tea", &format!("{{filename: {}}}", path("bodies/tea"))),
        rule("/secret", &format!("{{filename: {}}}", path("secret"))),
        rule(
            "/up",
            &format!("{{filename: {}}}", path("bodies/../secret")),
        ),
        rule("/env", "{environmentVariable: TEA}"),
        rule("/other-env", "{environmentVariable: HIDDEN}"),
    ];
    let manifests = mesh(client.ip, edge.ip)
        + &dataplane("backend", "http", "v1", &v1)
        + &calls("own", &format!("[{}]", rules.join(", ")));
    let setup = || {
        Gateway::setup(&manifests)
            .environment("TEA", "from the environment")
            .environment("HIDDEN", "SECRET")
    };
    let ask = async |path: &str| {
        let at = SocketAddr::new(client.ip, 10001);
        let answer = Http1::connect(at).await.ask(&get(path)).await;
        (answer.status, answer.text())
    };
    let gateway = setup().start().await;
    for path in ["/tea", "/secret", "/up", "/env", "/other-env"] {
        let (status, body) = ask(path).await;
        assert_eq!(status, 500, "{path}");
        assert!(
            !body.contains("SECRET") && !body.contains("stout"),
            "{body}"
        );
    }
    let status = gateway.ask_admin("/status").await.text();
    for flag in ["--content-dir DIR", "--content-env TEA"] {
        assert!(status.contains(flag), "{status}");
    }
    drop(gateway);
    let _gateway = setup()
        .argument("--content-dir", &path("bodies"))
        .argument("--content-env", "TEA")
        .start()
        .await;
    assert_eq!(ask("/tea").await, (200, "short and stout".to_owned()));
    assert_eq!(ask("/env").await, (200, "from the environment".to_owned()));
    for path in ["/secret", "/up", "/other-env"] {
        assert_eq!(ask(path).await.0, 500, "{path}");
    }
}

// A client learns that a route can't be served, but no names of objects.
#[tokio::test]
async fn error_responses_do_not_name_objects() {
    let dead = "backendRefs: [{name: dead, port: 80}]";
    let rule = |path: &str, rest: &str| format!("{{matches: [{{path: {{value: {path}}}}}], {rest}}}");
    let rules = [
        rule("/missing", "backendRefs: [{name: internal-ledger, port: 80}]"),
        rule("/foreign", "backendRefs: [{name: internal-ledger, namespace: bank, port: 80}]"),
        rule("/filter", "filters: [{type: ExtensionRef, extensionRef: {group: x.example, kind: Plugin, name: internal-ledger}}]"),
        rule("/dead", dead),
    ];
    let rules: Vec<&str> = rules.iter().map(String::as_str).collect();
    let free = Address::new();
    let closed = SocketAddr::new(free.ip, 9);
    let manifests = plain()
        + &route("web", &rules)
        + &service_at("dead", "http", &[closed]);
    let gateway = Gateway::of(&manifests).await;
    for (path, status) in [("/missing", 500), ("/foreign", 500), ("/filter", 500), ("/dead", 503)] {
        let response = gateway.ask(get(path)).await;
        assert_eq!(response.status, status, "{path}");
        let text = response.text();
        for secret in ["ledger", "bank", "ReferenceGrant", "Plugin", &free.ip.to_string()] {
            assert!(!text.contains(secret), "{path}: {text}");
        }
        let grpc = get(path).header("content-type", "application/grpc");
        let grpc = gateway.ask_http2(grpc).await;
        let message = grpc.header("grpc-message").unwrap_or_default().to_owned();
        assert!(!message.contains("ledger"), "{path}: {message}");
    }
}
