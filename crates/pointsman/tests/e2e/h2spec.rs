//! Runs all of h2spec, in plaintext and over TLS, if `H2SPEC` names its binary (`scripts/h2spec`).

use std::process::Command;

use crate::support::backend::Backend;
use crate::support::certificates::Authority;
use crate::support::gateway::{Gateway, HTTP, HTTPS};
use crate::support::manifests::*;

#[tokio::test]
async fn h2spec_passes() {
    let Ok(binary) = std::env::var("H2SPEC") else {
        println!("H2SPEC names no binary: nothing is tried");
        return;
    };
    let authority = Authority::new();
    let backend = Backend::http1("web").await;
    let https = format!(
        "{{name: https, port: {HTTPS}, protocol: HTTPS, tls: {{certificateRefs: [{{name: cert}}]}}}}"
    );
    let manifests = [
        gateway(&[
            &format!("{{name: http, port: {HTTP}, protocol: HTTP}}"),
            &https,
        ]),
        authority.issue(&["example.com"]).secret("default/cert"),
        service("web", &[&backend]),
        route("web", &[&to("web")]),
    ];
    let gateway = Gateway::of(&manifests.concat()).await;
    for (port, more) in [(HTTP, &[][..]), (HTTPS, &["-t", "-k"])] {
        let mut command = Command::new(&binary);
        command.arg("-h").arg(gateway.address.ip.to_string());
        command
            .args(["-p", &port.to_string(), "-o", "10"])
            .args(more);
        let run = tokio::task::spawn_blocking(move || command.output());
        let output = run.await.expect("no panic").expect("h2spec runs");
        let stdout = String::from_utf8_lossy(&output.stdout);
        println!("port {port}: {}", stdout.lines().last().unwrap_or_default());
        assert!(output.status.success(), "{stdout}");
    }
}
