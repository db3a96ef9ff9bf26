use std::collections::BTreeSet;
use std::sync::Arc;

use pointsman_binding::bound::Transport;
use pointsman_resources::Name;
use pointsman_resources::parameters::GatewayParameters;

use super::*;

fn gateway(spec: Value) -> Infrastructure {
    let object = json!({"metadata": {"name": "p", "namespace": "shop"}, "spec": spec});
    let own: GatewayParameters = serde_json::from_value(object).expect("it is valid");
    let parameters = GatewayParametersSpec::merge(None, Some(&own)).expect("it is valid");
    Infrastructure {
        gateway: Name::new("shop", "edge"),
        uid: Some("uid-1".into()),
        class: "pointsman".into(),
        ports: [
            (80, Transport::Tcp),
            (443, Transport::Tcp),
            (8080, Transport::Tcp),
            (53, Transport::Udp),
        ]
        .into(),
        labels: [("team".to_owned(), "a".to_owned())].into(),
        annotations: [("note".to_owned(), "b".to_owned())].into(),
        addresses: Vec::new(),
        parameters: Arc::new(parameters),
    }
}

fn settings() -> InfrastructureSettings {
    InfrastructureSettings {
        image: "pointsman:1".to_owned(),
        pull_policy: "IfNotPresent".to_owned(),
        control_plane: "https://pointsman-controller.pointsman-system.svc:15010".to_owned(),
        probes: [0, 0, 0, 0].into(),
        controller_name: "pointsman.io/controller".to_owned(),
        endpoint_flags: vec!["--endpoint-addresses=routable".to_owned()],
        replacement_deadline: crate::gateways::REPLACEMENT_DEADLINE,
    }
}

fn objects(gateway: &Infrastructure) -> Vec<Object> {
    generate(gateway, &settings(), "PEM")
}

fn of_kind(gateway: &Infrastructure, kind: ObjectKind) -> Value {
    let mut objects = objects(gateway).into_iter();
    let found = objects.find(|object| object.kind == kind);
    found.map(|object| object.value).unwrap_or_default()
}

fn kinds(gateway: &Infrastructure) -> Vec<ObjectKind> {
    objects(gateway).iter().map(|object| object.kind).collect()
}

fn pod(gateway: &Infrastructure) -> Value {
    of_kind(gateway, ObjectKind::Deployment)["spec"]["template"]["spec"].take()
}

fn command_line(gateway: &Infrastructure) -> Vec<String> {
    let line = pod(gateway)["containers"][0]["args"].take();
    serde_json::from_value(line).expect("a list of texts")
}

// GEP-1762: "resources they generate … MUST be labeled with gateway.networking.k8s.io/gateway-name"
// GatewayInfrastructure: "Labels that SHOULD be applied to any resources created in response to this Gateway."
#[test]
fn every_object_has_the_gateways_name_labels_annotations_and_owner() {
    let gateway = gateway(json!({"autoscaling": {"maxReplicas": 4}}));
    let objects = objects(&gateway);
    assert_eq!(objects.len(), 6);
    for object in objects {
        let metadata = &object.value["metadata"];
        assert_eq!(metadata["name"], "edge-pointsman", "{object:?}");
        assert_eq!(metadata["namespace"], "shop");
        assert_eq!(
            metadata["labels"],
            json!({"team": "a", GATEWAY_NAME: "edge", GATEWAY_CLASS_NAME: "pointsman", "app.kubernetes.io/managed-by": "pointsman"})
        );
        assert_eq!(
            metadata["annotations"],
            json!({"note": "b", GATEWAY: "edge", CONTROLLER_NAME: "pointsman.io/controller"})
        );
        let owner = json!({"apiVersion": "gateway.networking.k8s.io/v1", "kind": "Gateway", "name": "edge", "uid": "uid-1", "controller": true});
        assert_eq!(metadata["ownerReferences"], json!([owner]));
    }
    let deployment = of_kind(&gateway, ObjectKind::Deployment);
    let template = &deployment["spec"]["template"]["metadata"];
    assert_eq!(template["labels"]["team"], "a");
    assert_eq!(template["annotations"]["note"], "b");
}

#[test]
fn labels_by_which_objects_are_selected_cant_be_overridden() {
    let mut gateway = gateway(
        json!({"patches": {"service": {"metadata": {"labels": {GATEWAY_NAME: "x", "c": "d"}, "name": "x", "ownerReferences": []}}}}),
    );
    gateway
        .labels
        .insert(GATEWAY_NAME.to_owned(), "y".to_owned());
    let metadata = of_kind(&gateway, ObjectKind::Service)["metadata"].take();
    assert_eq!(metadata["labels"][GATEWAY_NAME], "edge");
    assert_eq!(metadata["labels"]["c"], "d");
    assert_eq!(metadata["name"], "edge-pointsman");
    assert_eq!(metadata["ownerReferences"][0]["uid"], "uid-1");
}

#[test]
fn ports_below_1024_map_to_unprivileged_ports() {
    let service = of_kind(&gateway(json!({})), ObjectKind::Service);
    let expected = json!([
        {"name": "udp-53", "port": 53, "protocol": "UDP", "targetPort": 64565},
        {"name": "tcp-80", "port": 80, "protocol": "TCP", "targetPort": 64592},
        {"name": "tcp-443", "port": 443, "protocol": "TCP", "targetPort": 64955},
        {"name": "tcp-8080", "port": 8080, "protocol": "TCP", "targetPort": 8080},
    ]);
    assert_eq!(service["spec"]["ports"], expected);
    assert_eq!(service["spec"]["type"], "LoadBalancer");
    let line = command_line(&gateway(json!({})));
    assert!(line.contains(&"--low-port-offset=64512".to_owned()));
    let all: BTreeSet<u16> = (1..1024).map(container_port).collect();
    assert_eq!((all.first(), all.last()), (Some(&64513), Some(&65535)));
}

// https://kubernetes.io/docs/concepts/security/pod-security-standards/#restricted
#[test]
fn the_restricted_pod_security_standard_admits_the_pods() {
    let pod = pod(&gateway(json!({})));
    let context = &pod["securityContext"];
    assert_eq!(context["runAsNonRoot"], true);
    assert_eq!(context["seccompProfile"], json!({"type": "RuntimeDefault"}));
    let container = &pod["containers"][0]["securityContext"];
    assert_eq!(container["allowPrivilegeEscalation"], false);
    assert_eq!(container["capabilities"], json!({"drop": ["ALL"]}));
    assert_eq!(container["readOnlyRootFilesystem"], true);
    assert_eq!(pod["automountServiceAccountToken"], false);
    assert_eq!(pod["enableServiceLinks"], false);
    let volumes = pod["volumes"].as_array().cloned().unwrap_or_default();
    let is_allowed = |volume: &Value| {
        volume
            .get("configMap")
            .or(volume.get("projected"))
            .is_some()
    };
    assert!(volumes.iter().all(is_allowed));
}

#[test]
fn a_proxy_ends_only_after_its_drain_period() {
    let pod = pod(&gateway(json!({})));
    let grace = pod["terminationGracePeriodSeconds"].as_u64();
    let line = command_line(&gateway(json!({})));
    let seconds = |name: &str| -> u64 {
        let mut flags = line.iter();
        let value = flags.find_map(|flag| flag.strip_prefix(name)?.strip_suffix('s'));
        value.expect("a flag").parse().expect("a number")
    };
    assert!(grace > Some(seconds("--drain-delay=") + seconds("--drain=")));
    let deployment = of_kind(&gateway(json!({})), ObjectKind::Deployment);
    let rolling = &deployment["spec"]["strategy"]["rollingUpdate"];
    assert_eq!(*rolling, json!({"maxSurge": 1, "maxUnavailable": 0}));
}

#[test]
fn parameters_choose_workload_and_scaling() {
    use ObjectKind::{ConfigMap, DaemonSet, Deployment, HorizontalPodAutoscaler};
    use ObjectKind::{PodDisruptionBudget, Service, ServiceAccount};
    let plain = gateway(json!({}));
    assert_eq!(
        kinds(&plain),
        [
            ServiceAccount,
            ConfigMap,
            Deployment,
            Service,
            PodDisruptionBudget
        ]
    );
    assert_eq!(of_kind(&plain, Deployment)["spec"]["replicas"], 2);
    let fixed = gateway(json!({"replicas": 5}));
    assert_eq!(of_kind(&fixed, Deployment)["spec"]["replicas"], 5);
    let scaled = gateway(
        json!({"autoscaling": {"minReplicas": 3, "maxReplicas": 9, "targetCPUUtilizationPercentage": 50}}),
    );
    assert_eq!(of_kind(&scaled, Deployment)["spec"].get("replicas"), None);
    let autoscaler = of_kind(&scaled, HorizontalPodAutoscaler)["spec"].take();
    assert_eq!(
        (&autoscaler["minReplicas"], &autoscaler["maxReplicas"]),
        (&json!(3), &json!(9))
    );
    let target = &autoscaler["metrics"][0]["resource"]["target"];
    assert_eq!(target["averageUtilization"], 50);
    let every_node = gateway(json!({"workload": "DaemonSet"}));
    assert!(kinds(&every_node).contains(&DaemonSet) && !kinds(&every_node).contains(&Deployment));
    assert!(!kinds(&every_node).contains(&PodDisruptionBudget));
}

#[test]
fn parameters_of_the_service_are_its_fields() {
    let mut gateway = gateway(json!({"service": {
        "annotations": {"cloud": "internal"}, "loadBalancerClass": "c", "loadBalancerSourceRanges": ["10.0.0.0/8"], "externalTrafficPolicy": "Local",
    }}));
    gateway.addresses = vec![[192, 0, 2, 1].into(), [192, 0, 2, 2].into()];
    let service = of_kind(&gateway, ObjectKind::Service);
    let spec = &service["spec"];
    assert_eq!(service["metadata"]["annotations"]["cloud"], "internal");
    assert_eq!(spec["loadBalancerClass"], "c");
    assert_eq!(spec["loadBalancerSourceRanges"], json!(["10.0.0.0/8"]));
    assert_eq!(spec["externalTrafficPolicy"], "Local");
    assert_eq!(spec["loadBalancerIP"], "192.0.2.1");
    assert_eq!(spec.get("externalIPs"), None);
    let deployment = of_kind(&gateway, ObjectKind::Deployment);
    assert_eq!(deployment["metadata"]["annotations"].get("cloud"), None);
}

#[test]
fn static_addresses_of_other_services_are_external_addresses() {
    for kind in ["NodePort", "ClusterIP"] {
        let mut gateway = gateway(json!({"service": {"type": kind}}));
        gateway.addresses = vec![[192, 0, 2, 1].into(), [192, 0, 2, 2].into()];
        let spec = of_kind(&gateway, ObjectKind::Service)["spec"].take();
        assert_eq!(spec["type"], kind);
        assert_eq!(spec["externalIPs"], json!(["192.0.2.1", "192.0.2.2"]));
        assert_eq!(spec.get("loadBalancerIP"), None);
    }
}

#[test]
fn pods_are_killed_only_after_their_drain_period() {
    let of = |proxy: Value| {
        let gateway = gateway(json!({"proxy": proxy}));
        let line = command_line(&gateway);
        let flags = line.into_iter().filter(|flag| flag.starts_with("--drain"));
        let grace = pod(&gateway)["terminationGracePeriodSeconds"].take();
        (flags.collect::<Vec<_>>().join(" "), grace)
    };
    let default = of(json!({}));
    assert_eq!(
        default,
        ("--drain-delay=5s --drain=30s".to_owned(), json!(40))
    );
    let long = of(json!({"drainDelay": "1m", "drain": "1h500ms"}));
    assert_eq!(
        long,
        ("--drain-delay=1m --drain=1h500ms".to_owned(), json!(3666))
    );
}

#[test]
fn parameters_of_pods_and_proxies_reach_them() {
    let gateway = gateway(json!({
        "pod": {
            "image": "other:2", "imagePullPolicy": "Always", "imagePullSecrets": [{"name": "s"}], "resources": {"limits": {"memory": "1Gi"}},
            "nodeSelector": {"role": "edge"}, "affinity": {"podAntiAffinity": {}}, "tolerations": [{"operator": "Exists"}],
            "topologySpreadConstraints": [{"maxSkew": 2, "topologyKey": "rack", "whenUnsatisfiable": "DoNotSchedule"}],
            "priorityClassName": "high",
        },
        "proxy": {"logLevel": "debug", "accessLog": "JSON", "limits": {"header-bytes": "128KiB"}, "trustedProxies": ["10.0.0.0/8", "fd00::/8"], "proxyProtocol": ["192.0.2.0/24"], "minTLSVersion": "1.3"},
    }));
    let pod = pod(&gateway);
    assert_eq!(pod["imagePullSecrets"], json!([{"name": "s"}]));
    assert_eq!(pod["nodeSelector"], json!({"role": "edge"}));
    assert_eq!(pod["affinity"], json!({"podAntiAffinity": {}}));
    assert_eq!(pod["tolerations"], json!([{"operator": "Exists"}]));
    assert_eq!(pod["priorityClassName"], "high");
    let spread = &pod["topologySpreadConstraints"];
    assert_eq!(spread.as_array().map(Vec::len), Some(1));
    assert_eq!(
        spread[0]["labelSelector"]["matchLabels"][GATEWAY_NAME],
        "edge"
    );
    let container = &pod["containers"][0];
    assert_eq!(
        (&container["image"], &container["imagePullPolicy"]),
        (&json!("other:2"), &json!("Always"))
    );
    assert_eq!(container["resources"], json!({"limits": {"memory": "1Gi"}}));
    assert_eq!(
        container["env"][3],
        json!({"name": "RUST_LOG", "value": "debug"})
    );
    let line = command_line(&gateway);
    for flag in [
        "--gateway=shop/edge",
        "--access-log=json",
        "--limit=header-bytes=128KiB",
        "--trusted-proxies=10.0.0.0/8",
        "--trusted-proxies=fd00::/8",
        "--proxy-protocol=192.0.2.0/24",
        "--min-tls=1.3",
        "--endpoint-addresses=routable",
    ] {
        assert!(line.contains(&flag.to_owned()), "{flag}: {line:?}");
    }
}

#[test]
fn patches_change_their_kind_only() {
    let gateway = gateway(json!({"patches": {
        "deployment": {"spec": {"template": {"spec": {"containers": [{"name": "proxy", "stdin": true}], "hostname": "x"}}}},
        "podDisruptionBudget": {"spec": {"maxUnavailable": null, "minAvailable": 1}},
    }}));
    let pod = pod(&gateway);
    assert_eq!(pod["hostname"], "x");
    let container = &pod["containers"][0];
    assert_eq!(
        (&container["stdin"], &container["image"]),
        (&json!(true), &json!("pointsman:1"))
    );
    let budget = of_kind(&gateway, ObjectKind::PodDisruptionBudget);
    assert_eq!(budget["spec"].get("maxUnavailable"), None);
    assert_eq!(budget["spec"]["minAvailable"], 1);
}
