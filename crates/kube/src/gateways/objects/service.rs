//! The Service of a Gateway. It maps the ports of the listeners to unprivileged ports of the proxies.

use std::net::IpAddr;

use pointsman_resources::parameters::GatewayServiceType;
use serde_json::{Value, json};

use super::{Context, Object, ObjectKind, container_port};

/// Returns the Service.
pub fn service(context: &Context<'_>) -> Object {
    let parameters = &context.parameters.service;
    let mut annotations = context.annotations.clone();
    for (key, value) in &parameters.annotations {
        annotations.insert(key, value.clone());
    }
    let mut spec = json!({
        "type": parameters.kind,
        "selector": context.selector(),
        "ports": ports(context),
        // Both families where the cluster has them.
        "ipFamilyPolicy": "PreferDualStack",
    });
    let mut set = |field: &str, value: Option<Value>| {
        if let Some(value) = value {
            spec[field] = value;
        }
    };
    let class = parameters.load_balancer_class.as_deref();
    set("loadBalancerClass", class.map(Value::from));
    let ranges = parameters.load_balancer_source_ranges.clone();
    set("loadBalancerSourceRanges", ranges.map(Value::from));
    let policy = parameters.external_traffic_policy.as_deref();
    set("externalTrafficPolicy", policy.map(Value::from));
    let addresses = &context.gateway.addresses;
    match parameters.kind {
        // `loadBalancerIP` has room for one address only.
        GatewayServiceType::LoadBalancer => {
            let first = addresses.first().map(IpAddr::to_string);
            set("loadBalancerIP", first.map(Value::from));
        }
        GatewayServiceType::NodePort | GatewayServiceType::ClusterIP => {
            let all: Vec<String> = addresses.iter().map(IpAddr::to_string).collect();
            set("externalIPs", (!all.is_empty()).then(|| Value::from(all)));
        }
    }
    let metadata = json!({"labels": context.labels, "annotations": annotations});
    let patch = &context.parameters.patches.service;
    context.object_with(ObjectKind::Service, patch, json!({"spec": spec}), metadata)
}

fn ports(context: &Context<'_>) -> Vec<Value> {
    let ports = context.gateway.ports.iter();
    let port = |(port, transport): &(u16, _)| {
        let transport = pointsman_binding::bound::Transport::name(*transport);
        json!({
            "name": format!("{}-{port}", transport.to_ascii_lowercase()),
            "port": port,
            "protocol": transport,
            "targetPort": container_port(*port),
        })
    };
    ports.map(port).collect()
}
