//! The manifests that `install` prints, on a real API server.

use std::process::Command;

use serde_json::{Value, json};

use crate::support::{BINARY, Lab, kubectl, try_kubectl};

/// Returns the manifests of an installation in the namespace of a lab.
fn manifests(lab: &Lab) -> String {
    let namespace = &lab.namespace;
    let arguments = ["install", "--image", "example.com/none:1", "--kuma-crds"];
    let class = format!("{namespace}-installed");
    let names = ["--namespace", namespace, "--gateway-class", &class];
    let output = Command::new(BINARY).args(arguments).args(names).output();
    let output = output.expect("the binary runs");
    assert!(output.status.success());
    String::from_utf8(output.stdout).expect("UTF-8")
}

#[test]
#[ignore = "needs a cluster"]
fn an_api_server_accepts_every_object_of_an_installation() {
    let lab = Lab::new("install");
    let arguments = ["apply", "--server-side", "--dry-run=server", "-f", "-"];
    let arguments = [&arguments[..], &["--warnings-as-errors"]].concat();
    let applied = kubectl(&arguments, &manifests(&lab));
    for kind in ["deployment.apps", "clusterrole.rbac", "gatewayclass"] {
        assert!(applied.contains(kind), "{kind} in {applied}");
    }
}

// "a namespace with the restricted Pod Security Standard enforced admits the controller"
#[test]
#[ignore = "needs a cluster"]
fn the_restricted_pod_security_standard_admits_the_controller() {
    let lab = Lab::new("restricted");
    let enforce = "pod-security.kubernetes.io/enforce=restricted";
    kubectl(&["label", "namespace", &lab.namespace, enforce], "");
    lab.apply("{apiVersion: v1, kind: ServiceAccount, metadata: {name: pointsman-controller}}");
    let arguments = ["create", "--dry-run=client", "-o", "json", "-f", "-"];
    let printed = kubectl(&arguments, &manifests(&lab));
    let objects = serde_json::Deserializer::from_str(&printed).into_iter::<Value>();
    let mut objects = objects.map(|object| object.expect("it is JSON"));
    let deployment = objects.find(|object| object["kind"] == "Deployment");
    let mut spec = deployment.expect("a Deployment")["spec"]["template"]["spec"].clone();
    let admit = |spec: &Value| {
        let pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "one", "namespace": lab.namespace}, "spec": spec});
        let arguments = ["create", "--dry-run=server", "-f", "-"];
        try_kubectl(&arguments, &pod.to_string())
    };
    admit(&spec).expect("the Pod is admitted");
    spec["containers"][0]["securityContext"]["allowPrivilegeEscalation"] = json!(true);
    let denied = admit(&spec).expect_err("the standard is enforced");
    assert!(denied.contains("PodSecurity"), "{denied}");
}
