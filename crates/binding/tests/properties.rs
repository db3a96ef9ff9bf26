//! Random sets of objects and random changes: applying changes gives the same result as binding the final objects from scratch, and the order of changes does
//! not matter.

mod common;

use std::sync::{Arc, LazyLock};

use common::certificates::{authority, secret};
use common::{Bound, doc, document, key, service, slice};
use pointsman_binding::bound::{
    BackendId, CertifiedKey, FrontendId, MeshIdentity, PrivateKey, Transport,
};
use pointsman_binding::{Change, Controller, Delta, EndpointPolicy, Observation};
use pointsman_resources::{Kind, Name, ObjectKey, Resource};
use proptest::prelude::*;

/// All objects, each in several versions.
static POOL: LazyLock<Vec<Vec<Resource>>> = LazyLock::new(pool);

/// External inputs, each in several versions, with the change that removes it.
static OUTSIDE: LazyLock<Vec<(Vec<Change>, Change)>> = LazyLock::new(outside);

fn outside() -> Vec<(Vec<Change>, Change)> {
    let mut all = Vec::new();
    for namespace in NAMESPACES {
        let gateway = Name::new(namespace, "g");
        let listener = |owner: &str, name: &str| FrontendId::Listener {
            gateway: gateway.clone(),
            owner: key(owner),
            listener: name.into(),
        };
        let why = "because".to_owned();
        let address = "127.0.64.1".parse().expect("an address");
        let placed = Observation {
            addresses: vec![address],
            ..Observation::default()
        };
        let own = listener(&format!("Gateway {namespace}/g"), "http");
        let seen = [
            Observation::default(),
            placed.clone(),
            Observation {
                unusable: [(address, why.clone())].into(),
                ..placed.clone()
            },
            Observation {
                unbound: [(own, why.clone())].into(),
                ..placed.clone()
            },
            Observation {
                unbound: [(listener("ListenerSet a/s", "l"), why.clone())].into(),
                faulty: [(
                    listener(&format!("Gateway {namespace}/g"), "https"),
                    why.clone(),
                )]
                .into(),
                ..placed.clone()
            },
        ];
        let forms = seen.map(|seen| Change::Observe(gateway.clone(), Some(seen)));
        all.push((forms.to_vec(), Change::Observe(gateway, None)));
        let id = BackendId::new(key(&format!("Service {namespace}/x")), 80, Transport::Tcp);
        all.push((
            vec![Change::Need(id.clone(), true)],
            Change::Need(id, false),
        ));
    }
    let range = "127.0.0.2/31".parse().expect("a range");
    let policies = [Vec::new(), vec![range]].map(EndpointPolicy::routable);
    all.push((
        policies
            .map(|one| Change::EndpointPolicy(Arc::new(one)))
            .to_vec(),
        Change::EndpointPolicy(Arc::default()),
    ));
    let names = ["pointsman.io/controller", "example.com/other"].map(|name| Controller {
        name: name.into(),
        class: None,
        generates_proxies: false,
        check_limit: Default::default(),
    });
    all.push((
        names.map(|one| Change::Controller(Arc::new(one))).to_vec(),
        Change::Controller(Arc::default()),
    ));
    all.extend(kuma_outside());
    all
}

/// External inputs about Kuma's gateways and meshes.
fn kuma_outside() -> Vec<(Vec<Change>, Change)> {
    let mut all = Vec::new();
    for proxy in ["c1", "c2", "MeshGatewayInstance a/i"] {
        let gateway = Name::new("mesh:m", proxy);
        let listener = |name: &str| FrontendId::Listener {
            gateway: gateway.clone(),
            owner: ObjectKey::new(Kind::MeshGateway, "mesh:m", "g"),
            listener: name.into(),
        };
        let address = "127.0.64.2:1080".parse().expect("an address");
        let placed = Observation {
            addresses: vec!["127.0.64.2".parse().expect("an address")],
            cross_mesh_addresses: [(listener("80"), vec![address])].into(),
            ..Observation::default()
        };
        let unbound = Observation {
            unbound: [(listener("80"), "because".to_owned())].into(),
            cross_mesh_addresses: [(listener("80"), Vec::new())].into(),
            ..placed.clone()
        };
        let seen = [Observation::default(), placed, unbound];
        let forms = seen.map(|seen| Change::Observe(gateway.clone(), Some(seen)));
        all.push((forms.to_vec(), Change::Observe(gateway, None)));
    }
    for mesh in ["m", "o"] {
        let identity = |name: &str| {
            let certificate = Arc::new(CertifiedKey {
                chain: vec![name.as_bytes().into()],
                key: PrivateKey::Pkcs8(name.as_bytes().into()),
            });
            Ok(Arc::new(MeshIdentity {
                authority: name.as_bytes().into(),
                uri: name.into(),
                certificate,
            }))
        };
        let forms = [identity("one"), identity("two"), Err("because".to_owned())];
        let forms = forms.map(|one| Change::Identity(mesh.into(), Some(one)));
        all.push((forms.to_vec(), Change::Identity(mesh.into(), None)));
    }
    all
}

fn slots() -> usize {
    POOL.len() + OUTSIDE.len()
}

const NAMESPACES: [&str; 2] = ["a", "b"];

/// All versions of one object.
fn forms(yaml: impl IntoIterator<Item = String>) -> Vec<Resource> {
    let all: Vec<Resource> = yaml
        .into_iter()
        .flat_map(|one| common::read(one.trim_start_matches("\n---\n")))
        .collect();
    assert!(all.windows(2).all(|two| two[0].key() == two[1].key()));
    all
}

fn pool() -> Vec<Vec<Resource>> {
    let mut pool = Vec::new();
    pool.push(forms(
        [
            "{controllerName: pointsman.io/controller}",
            "{controllerName: example.com/other}",
        ]
        .map(|spec| doc("GatewayClass", "ours", spec)),
    ));
    for namespace in NAMESPACES {
        pool.push(forms(
            [
                "",
                "labels: {trusted: 'yes', pointsman.io/mesh: enabled}, ",
                "labels: {kuma.io/sidecar-injection: enabled}, ",
            ]
            .map(|labels| {
                format!(
                    "{{apiVersion: v1, kind: Namespace, metadata: {{{labels}name: {namespace}}}}}"
                )
            }),
        ));
        pool.push(gateways(namespace));
        pool.push(listener_sets(namespace));
        for name in ["x", "z"] {
            pool.push(services(&format!("{namespace}/{name}")));
            pool.push(forms(["10.1.0.1", "127.0.0.1", "127.0.0.3"].map(|ip| {
                slice(&format!("{namespace}/{name}"), "http", 8080, ip)
            })));
        }
        pool.push(grants(namespace));
        for (kind, name) in [
            ("HTTPRoute", "r"),
            ("HTTPRoute", "s"),
            ("GRPCRoute", "r"),
            ("TLSRoute", "r"),
            ("TCPRoute", "r"),
            ("UDPRoute", "r"),
        ] {
            pool.push(routes(kind, &format!("{namespace}/{name}")));
        }
        let policy = |name: &str, target: &str| {
            doc(
                "BackendTLSPolicy",
                &format!("{namespace}/{name}"),
                &format!(
                    "{{targetRefs: [{{group: '', kind: Service, {target}}}], validation: {{hostname: h.example, caCertificateRefs: [{{group: '', kind: ConfigMap, name: ca}}]}}}}"
                ),
            )
        };
        for name in ["p", "q"] {
            pool.push(forms(
                ["name: x", "name: z", "name: x, sectionName: http"]
                    .map(|target| policy(name, target)),
            ));
        }
    }
    pool.extend(others());
    pool.extend(common::kuma::objects().into_iter().map(forms));
    pool
}

fn others() -> Vec<Vec<Resource>> {
    let x = "gateway.networking.x-k8s.io/v1alpha1";
    let settings = |name: &str| {
        let specs = [
            "{}",
            "{binding: Strict}",
            "{binding: Strict, allowedRoutes: {consumers: {namespaces: {from: None}}}}",
            "{referenceGrants: Required}",
            "{allowedRoutes: {consumers: {namespaces: {from: Selector, selector: {matchLabels: {trusted: 'yes'}}}}}}",
            "{allowedRoutes: {producers: {namespaces: {from: None}}}}",
        ];
        forms(specs.map(|spec| document("pointsman.io/v1alpha1", "MeshSettings", name, spec)))
    };
    let mesh = [
        "",
        ", parametersRef: {group: pointsman.io, kind: MeshSettings, name: own}",
    ];
    vec![
        settings("default"),
        settings("own"),
        forms(mesh.map(|reference| document(x, "XMesh", "m", &format!("{{controllerName: pointsman.io/controller{reference}}}")))),
        forms([include_str!("data/rsa.crt"), "broken"].map(|pem| authority("a/ca", pem))),
        forms([include_str!("data/ec.crt"), "broken"].map(|pem| secret("a/c", pem, include_str!("data/ec-sec1.key")))),
        forms(
            [
                "type: ExternalHostname, externalHostname: {hostname: api.example.com}",
                "type: ExternalHostname, externalHostname: {hostname: api.example.com}, protocol: MCP",
                "type: EndpointSelector, endpointSelector: {matchLabels: {app: x}}",
            ]
            .map(|spec| document(x, "XBackend", "a/out", &format!("{{{spec}, port: {{number: 443}}}}"))),
        ),
        forms(["x", "z"].map(|app| format!("{{apiVersion: v1, kind: Pod, metadata: {{namespace: a, name: pod, labels: {{app: {app}}}}}, status: {{podIP: 10.1.0.9}}}}"))),
        forms(["ClusterSetIP", "Headless"].map(|kind| document("multicluster.x-k8s.io/v1beta1", "ServiceImport", "a/far", &format!("{{type: {kind}, ports: [{{name: http, port: 80, protocol: TCP}}]}}")))),
        forms(["x", "z"].map(|name| document(x, "XBackendTrafficPolicy", "a/t", &format!("{{targetRefs: [{{group: '', kind: Service, name: {name}}}], retryConstraint: {{}}}}")))),
        forms(["Disabled", "ImplementationDefault"].map(|mode| document(x, "XTelemetryPolicy", "a/o", &format!("{{targetRefs: [{{group: gateway.networking.k8s.io, kind: Gateway, name: g}}], tracing: {{mode: {mode}}}}}")))),
    ]
}

fn gateways(namespace: &str) -> Vec<Resource> {
    let all = "allowedRoutes: {namespaces: {from: All}}";
    let specs = [
        "listeners: [{name: http, port: 80, protocol: HTTP}]".to_owned(),
        format!("allowedListeners: {{namespaces: {{from: All}}}}, listeners: [{{name: http, port: 80, protocol: HTTP, hostname: h.example, {all}}}]"),
        format!("allowedListeners: {{namespaces: {{from: Same}}}}, listeners: [{{name: http, port: 80, protocol: HTTP, {all}}}, {{name: https, port: 443, protocol: HTTPS, tls: {{certificateRefs: [{{name: c, namespace: a}}]}}}}]"),
        format!("defaultScope: All, listeners: [{{name: tcp, port: 90, protocol: TCP, {all}}}, {{name: udp, port: 90, protocol: UDP, {all}}}, {{name: tls, port: 91, protocol: TLS, tls: {{mode: Passthrough}}, {all}}}]"),
        format!("listeners: [{{name: http, port: 80, protocol: HTTP, {all}}}, {{name: tcp, port: 80, protocol: TCP, {all}}}]"),
        "listeners: [{name: http, port: 80, protocol: HTTP, allowedRoutes: {namespaces: {from: Selector, selector: {matchLabels: {trusted: 'yes'}}}}}]".to_owned(),
    ];
    forms(specs.map(|spec| {
        doc(
            "Gateway",
            &format!("{namespace}/g"),
            &format!("{{gatewayClassName: ours, {spec}}}"),
        )
    }))
}

fn listener_sets(namespace: &str) -> Vec<Resource> {
    let specs = [
        "namespace: a, name: g}, listeners: [{name: l, port: 80, protocol: HTTP, hostname: l.example}]",
        "namespace: a, name: g}, listeners: [{name: l, port: 80, protocol: HTTP, hostname: h.example}, {name: m, port: 81, protocol: HTTP}]",
        "namespace: b, name: g}, listeners: [{name: l, port: 90, protocol: TCP}]",
    ];
    forms(specs.map(|spec| {
        doc(
            "ListenerSet",
            &format!("{namespace}/s"),
            &format!("{{parentRef: {{{spec}}}"),
        )
    }))
}

fn services(name: &str) -> Vec<Resource> {
    let http = "{name: http, port: 80}";
    let specs = [
        format!("ports: [{http}]"),
        format!("ports: [{http}, {{name: b, port: 81}}, {{name: u, port: 80, protocol: UDP}}]"),
        format!("clusterIP: None, ports: [{http}]"),
        format!("type: ExternalName, externalName: e.example, ports: [{http}]"),
        "ports: [{name: http, port: 80, appProtocol: https}]".to_owned(),
    ];
    forms(specs.map(|spec| service(name, &format!("{{{spec}}}"))))
}

fn grants(namespace: &str) -> Vec<Resource> {
    let from = |kind: &str, namespace: &str| {
        format!("{{group: gateway.networking.k8s.io, kind: {kind}, namespace: {namespace}}}")
    };
    let other = if namespace == "a" { "b" } else { "a" };
    let specs = [
        format!(
            "from: [{}], to: [{{group: '', kind: Service}}]",
            from("HTTPRoute", other)
        ),
        format!(
            "from: [{}, {}], to: [{{group: '', kind: Service, name: x}}, {{group: '', kind: Secret}}]",
            from("TCPRoute", other),
            from("Gateway", other)
        ),
    ];
    forms(specs.map(|spec| {
        doc(
            "ReferenceGrant",
            &format!("{namespace}/grant"),
            &format!("{{{spec}}}"),
        )
    }))
}

fn routes(kind: &str, name: &str) -> Vec<Resource> {
    let service = |rest: &str| format!("{{group: '', kind: Service, {rest}}}");
    let parents = [
        "{namespace: a, name: g}".to_owned(),
        "{namespace: b, name: g}, {kind: ListenerSet, namespace: a, name: s}".to_owned(),
        service("namespace: a, name: x"),
        service("namespace: a, name: x, port: 80"),
        service("namespace: a, name: z, sectionName: http"),
        service("namespace: b, name: x"),
        "{group: multicluster.x-k8s.io, kind: ServiceImport, namespace: a, name: far}".to_owned(),
        format!(
            "{{namespace: a, name: g}}, {}",
            service("namespace: a, name: x")
        ),
        format!(
            "{}, {}",
            service("namespace: a, name: x"),
            service("namespace: b, name: z")
        ),
    ];
    let http = matches!(kind, "HTTPRoute" | "GRPCRoute");
    let mut backends = vec![
        "[{name: x, port: 80}]",
        "[{name: z, port: 80}, {name: x, port: 81}]",
        "[{namespace: a, name: z, port: 80}]",
        "[{namespace: b, name: x, port: 80, weight: 0}]",
        "[{group: gateway.networking.x-k8s.io, kind: XBackend, name: out}]",
    ];
    if http {
        backends.push("[]");
        backends.push(
            "[], sessionPersistence: {cookie: {name: c}}}, {backendRefs: [{name: x, port: 80}]",
        );
        backends.push("[{group: multicluster.x-k8s.io, kind: ServiceImport, name: far, port: 80}]");
    }
    let hostnames = if kind == "TLSRoute" {
        "hostnames: [h.example], "
    } else {
        ""
    };
    let mut all = Vec::new();
    for (at, parent) in parents.iter().enumerate() {
        for (to, backend) in backends.iter().enumerate() {
            let extra = if http && (at + to) % 3 == 0 {
                "hostnames: [h.example], "
            } else {
                hostnames
            };
            let default = if at == 2 {
                "useDefaultGateways: All, "
            } else {
                ""
            };
            let spec = format!(
                "{{{extra}{default}parentRefs: [{parent}], rules: [{{backendRefs: {backend}}}]}}"
            );
            let time = format!(
                "metadata: {{creationTimestamp: '2024-01-0{}T00:00:00Z', ",
                1 + (at + to) % 3
            );
            let text = doc(kind, name, &spec);
            all.push(if to % 2 == 0 {
                text.replacen("metadata: {", &time, 1)
            } else {
                text
            });
        }
    }
    forms(all)
}

/// An object of the pool and the version that it gets; `None` removes it.
type ObjectVersion = (usize, Option<usize>);

fn change((slot, form): ObjectVersion) -> Change {
    if let Some((forms, none)) = slot.checked_sub(POOL.len()).map(|at| &OUTSIDE[at]) {
        return form.map_or(none, |form| &forms[form % forms.len()]).clone();
    }
    let forms = &POOL[slot];
    match form {
        Some(form) => Change::Put(forms[form % forms.len()].clone()),
        None => Change::Delete(forms[0].key()),
    }
}

/// A version for every object of the pool, most of which exist.
fn worlds() -> impl Strategy<Value = Vec<ObjectVersion>> {
    let one = prop_oneof![4 => (0..72usize).prop_map(Some), 1 => Just(None)];
    proptest::collection::vec(one, slots())
        .prop_map(|forms| forms.into_iter().enumerate().collect())
}

fn changes() -> impl Strategy<Value = Vec<Vec<ObjectVersion>>> {
    let form = prop_oneof![3 => (0..72usize).prop_map(Some), 1 => Just(None)];
    let fate = (0..slots(), form);
    proptest::collection::vec(proptest::collection::vec(fate, 1..4), 1..12)
}

fn fresh(world: &[ObjectVersion]) -> Bound {
    let mut bound = Bound::default();
    bound.apply(
        world
            .iter()
            .copied()
            .filter(|(_, form)| form.is_some())
            .map(change),
    );
    bound
}

fn assert_same(followed: &Bound, fresh: &Bound) {
    for (key, status) in &fresh.statuses {
        assert_eq!(followed.statuses.get(key), Some(status), "status of {key}");
    }
    assert_eq!(followed.statuses, fresh.statuses);
    assert_eq!(followed.frontends, fresh.frontends);
    assert_eq!(followed.routes, fresh.routes);
    assert_eq!(followed.rules, fresh.rules);
    assert_eq!(followed.attached, fresh.attached);
    assert_eq!(followed.backends, fresh.backends);
    assert_eq!(followed.endpoints, fresh.endpoints);
    assert_eq!(followed.secrets, fresh.secrets);
    assert_eq!(followed.gateways, fresh.gateways);
    assert_eq!(followed.services, fresh.services);
    assert_eq!(followed.workloads, fresh.workloads);
    assert_eq!(followed.warnings(), fresh.warnings());
}

/// Asserts that the bound form is consistent: rules reference existing backends, and mesh routes attach to existing frontends.
fn assert_whole(bound: &Bound) {
    for ((id, route), attached) in &bound.attachments {
        if matches!(id, FrontendId::Mesh { .. }) {
            assert!(
                bound.frontends.contains_key(id),
                "{route} governs {id:?}, which is not there"
            );
        }
        for backend in attached.rules.iter().flat_map(|rule| &rule.backends) {
            if let Ok(id) = &backend.target {
                assert!(
                    bound.backends.contains_key(id),
                    "{route} uses {id}, which is not there"
                );
            }
        }
    }
    let named = bound.frontends.values().flat_map(|f| f.secrets());
    let named = named.chain(bound.backends.values().filter_map(|b| b.secret()));
    for id in named {
        assert!(bound.secrets.contains_key(id), "{id} is not there");
    }
    for id in bound.backends.keys() {
        assert!(bound.endpoints.contains_key(id), "{id} has no endpoints");
    }
    for rule in bound.rules.keys() {
        assert!(
            bound.routes.contains_key(&rule.route),
            "{rule:?} has no route"
        );
    }
    for (key, status) in &bound.statuses {
        assert_eq!(bound.status(key), Some(status));
    }
}

fn is_empty(delta: &Delta) -> bool {
    delta.frontends.is_empty()
        && delta.routes.is_empty()
        && delta.rules.is_empty()
        && delta.attachments.is_empty()
        && delta.backends.is_empty()
        && delta.endpoints.is_empty()
        && delta.secrets.is_empty()
        && delta.gateways.is_empty()
        && delta.services.is_empty()
        && delta.workloads.is_empty()
        && delta.statuses.is_empty()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, failure_persistence: None, max_shrink_iters: 2000, ..ProptestConfig::default() })]

    #[test]
    fn applying_changes_gives_the_same_result_as_binding_from_scratch(mut world in worlds(), batches in changes()) {
        let mut followed = fresh(&world);
        assert_whole(&followed);
        for batch in batches {
            for &(slot, form) in &batch {
                world[slot].1 = form;
            }
            followed.apply(batch.into_iter().map(change));
            assert_same(&followed, &fresh(&world));
            assert_whole(&followed);
        }
        let again = followed.apply(world.iter().copied().map(change));
        prop_assert!(is_empty(&again), "what is the same changes nothing: {again:?}");
    }

    #[test]
    fn the_order_of_changes_does_not_matter(world in worlds(), order in Just(()).prop_perturb(|(), mut rng| rng.random::<u64>()), size in 1..8usize) {
        let mut shuffled: Vec<ObjectVersion> = world.iter().copied().filter(|(_, form)| form.is_some()).collect();
        let mut seed = order | 1;
        for at in (1..shuffled.len()).rev() {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            shuffled.swap(at, (seed >> 33) as usize % (at + 1));
        }
        let mut bound = Bound::default();
        for batch in shuffled.chunks(size) {
            bound.apply(batch.iter().copied().map(change));
        }
        assert_same(&bound, &fresh(&world));
        let all: Vec<Change> = shuffled.iter().map(|&(slot, _)| change((slot, None))).collect();
        bound.apply(all);
        prop_assert!(bound.frontends.is_empty() && bound.attachments.is_empty() && bound.backends.is_empty() && bound.statuses.is_empty());
        prop_assert!(bound.routes.is_empty() && bound.rules.is_empty() && bound.endpoints.is_empty() && bound.secrets.is_empty());
        prop_assert!(bound.gateways.is_empty() && bound.services.is_empty() && bound.workloads.is_empty());
    }
}
