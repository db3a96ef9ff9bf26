//! Untrusted manifests can't read files of the machine or block `check` and `explain`.

use std::fs::File;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::{Command, Output};
use std::time::Duration;

use crate::{WELL, json, pointsman, text};

/// A client `web` with an outbound to `backend` at 127.0.0.1:10001, and a direct response whose body comes from a data source.
fn direct_response(body: &str) -> String {
    format!(
        "{{type: Mesh, name: default}}
---\n{{type: Dataplane, mesh: default, name: web, networking: {{address: 127.0.0.1, inbound: [{{port: 1, tags: {{kuma.io/service: web}}}}], outbound: [{{port: 10001, tags: {{kuma.io/service: backend}}}}]}}}}
---\n{{type: Dataplane, mesh: default, name: backend, networking: {{address: 127.0.0.1, inbound: [{{port: 2, tags: {{kuma.io/service: backend, kuma.io/protocol: http}}}}]}}}}
---\n{{type: MeshHTTPRoute, mesh: default, name: tea, spec: {{to: [{{targetRef: {{kind: MeshService, name: backend}}, rules: [{{matches: [{{path: {{type: PathPrefix, value: /}}}}], default: {{filters: [{{type: DirectResponse, directResponse: {{status: 200, body: {body}}}}}]}}}}]}}]}}}}"
    )
}

fn explain(manifests: &str, flags: &[&str]) -> (Option<i32>, serde_json::Value) {
    let from = ["explain", "-f", "-", "--from", "dataplane/web"];
    let what = ["-o", "json", "http://127.0.0.1:10001/"];
    let output = pointsman(&[&from, flags, &what].concat(), manifests);
    (output.status.code(), json(&output))
}

/// Asserts the same outcome in `check` (status names the flag) and in `explain` (the rule responds with 500).
fn is_refused(manifests: &str, flags: &[&str], says: &str) {
    let checked = pointsman(&[&["check", "-f", "-"], flags].concat(), manifests);
    let printed = text(&checked);
    assert_eq!(checked.status.code(), Some(1), "{printed}");
    let lines: Vec<&str> = printed.split_whitespace().collect();
    assert!(lines.join(" ").contains(says), "{says}\n{printed}");
    let (code, explained) = explain(manifests, flags);
    assert_eq!((code, &explained["status"]), (Some(1), &500.into()));
    assert!(!explained.to_string().contains("SECRET"), "{explained}");
}

#[test]
fn files_and_variables_are_read_only_if_the_operator_allows_them() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = |name: &str| folder.path().join(name).to_string_lossy().into_owned();
    std::fs::create_dir(path("bodies")).expect("a folder");
    std::fs::write(path("bodies/tea"), "short and stout").expect("written");
    std::fs::write(path("secret"), "SECRET").expect("written");
    symlink("../secret", path("bodies/link")).expect("linked");
    let bodies = path("bodies");
    let allowed = ["--content-dir", bodies.as_str()];

    let tea = direct_response(&format!("{{filename: {}}}", path("bodies/tea")));
    is_refused(&tea, &[], "no directory is allowed (--content-dir DIR)");
    let (code, explained) = explain(&tea, &allowed);
    assert_eq!(code, Some(0), "{explained}");
    assert_eq!(explained["response"]["body"], "short and stout");
    let relative = direct_response("{filename: tea}");
    assert_eq!(explain(&relative, &allowed).0, Some(0));

    let outside = "not in a directory allowed by --content-dir";
    let escapes = "leaves the directory allowed by --content-dir";
    for (name, says) in [
        (path("secret"), outside),
        ("/etc/shadow".to_owned(), outside),
        (path("bodies/../secret"), escapes),
        ("../secret".to_owned(), escapes),
        ("link".to_owned(), escapes),
    ] {
        let manifests = direct_response(&format!("{{filename: {name}}}"));
        is_refused(&manifests, &allowed, says);
    }
    let variable = direct_response("{environmentVariable: PATH}");
    is_refused(&variable, &[], "is not allowed (--content-env PATH)");
    is_refused(
        &variable,
        &["--content-env", "HOME"],
        "(--content-env PATH)",
    );
    assert_eq!(explain(&variable, &["--content-env", "PATH"]).0, Some(0));
}

#[test]
fn a_file_named_by_a_manifest_never_blocks_or_exhausts_memory() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = |name: &str| folder.path().join(name).to_string_lossy().into_owned();
    let here = folder.path().to_string_lossy();
    fifo(&folder.path().join("pipe"));
    let large = File::create(path("large")).expect("a file");
    large.set_len(1 << 40).expect("sparse");
    for (name, says) in [("pipe", "this is a pipe"), ("large", "larger than 1 MiB")] {
        let manifests = direct_response(&format!("{{filename: {name}}}"));
        is_refused(&manifests, &["--content-dir", &here], says);
    }
    let zero = direct_response("{filename: /dev/zero}");
    is_refused(&zero, &["--content-dir", "/dev"], "this is a device");
}

#[test]
fn the_same_rule_applies_to_certificates_of_kuma() {
    let folder = tempfile::tempdir().expect("a folder");
    let key = rcgen::KeyPair::generate().expect("a key");
    let certificate = rcgen::CertificateParams::new(vec!["a.example".to_owned()]);
    let certificate = certificate.expect("names").self_signed(&key).expect("one");
    let pem = certificate.pem() + &key.serialize_pem();
    std::fs::write(folder.path().join("a.pem"), pem).expect("written");
    let here = folder.path().to_string_lossy();
    let manifests = format!(
        "{{type: Mesh, name: default}}
---\n{{type: Dataplane, mesh: default, name: edge, networking: {{address: 127.0.0.1, gateway: {{type: BUILTIN, tags: {{kuma.io/service: edge}}}}}}}}
---\n{{type: MeshGateway, mesh: default, name: edge, selectors: [{{match: {{kuma.io/service: edge}}}}], conf: {{listeners: [{{port: 8443, protocol: HTTPS, hostname: a.example, tls: {{mode: TERMINATE, certificates: [{{file: {here}/a.pem}}]}}}}]}}}}"
    );
    let output = pointsman(&["check", "-f", "-"], &manifests);
    assert_eq!(output.status.code(), Some(1), "{}", text(&output));
    assert!(text(&output).contains("--content-dir"), "{}", text(&output));
    let output = pointsman(&["check", "-f", "-", "--content-dir", &here], &manifests);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output));
}

fn fifo(path: &Path) {
    let made = Command::new("mkfifo").arg(path).status();
    assert!(made.expect("mkfifo").success());
}

/// Runs a shell command with limited time and memory.
fn bounded(shell: &str) -> Output {
    let limited = format!("ulimit -v 2000000; {shell}");
    let limit = Duration::from_secs(20).as_secs().to_string();
    let output = Command::new("timeout")
        .args([&limit, "bash", "-c", &limited])
        .env("P", env!("CARGO_BIN_EXE_pointsman"))
        .output()
        .expect("bash");
    assert_ne!(output.status.code(), Some(124), "it hangs: {shell}");
    output
}

#[test]
fn an_irregular_file_is_one_error_and_other_files_are_read() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = |name: &str| folder.path().join(name);
    std::fs::write(path("b.yaml"), WELL).expect("written");
    fifo(&path("a.yaml"));
    symlink("/dev/zero", path("c.yaml")).expect("linked");
    symlink("a.yaml", path("d.json")).expect("linked");
    let large = File::create(path("e.yml")).expect("a file");
    large.set_len(16 * 1024 * 1024 + 1).expect("sparse");
    std::os::unix::net::UnixListener::bind(path("f.yaml")).expect("a socket");
    let here = folder.path().display();
    let output = bounded(&format!("$P check -f {here}"));
    assert_eq!(output.status.code(), Some(2), "{}", text(&output));
    let printed = text(&output);
    let regular = "only regular files are read";
    for line in [
        format!("error: {here}/a.yaml: this is a pipe; {regular}"),
        format!("error: {here}/c.yaml: this is a device; {regular}"),
        format!("error: {here}/d.json: this is a pipe; {regular}"),
        format!("error: {here}/e.yml: larger than 16 MiB, the maximum size"),
        format!("error: {here}/f.yaml: this is a socket; {regular}"),
    ] {
        assert!(
            printed.lines().any(|other| other == line),
            "{line}\n{printed}"
        );
    }
    assert!(printed.contains("HTTPRoute shop/web"), "{printed}");
    let explained = bounded(&format!(
        "$P explain -f {here} --gateway infra/edge http://a.example/"
    ));
    assert!(text(&explained).contains("HTTPRoute shop/web"));
}

/// A link to `/` would cause the whole machine to be scanned, including `/proc` and network mounts; so would folders nested as deeply as a path is long.
#[test]
fn links_to_folders_elsewhere_are_not_followed_and_nesting_has_an_end() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = |name: &str| folder.path().join(name);
    std::fs::create_dir_all(path("m/inner")).expect("a folder");
    std::fs::write(path("m/inner/a.yaml"), WELL).expect("written");
    symlink("/", path("m/root")).expect("linked");
    symlink("../..", path("m/inner/up")).expect("linked");
    symlink("inner", path("m/same")).expect("linked");
    let mut deep = path("m");
    deep.extend(std::iter::repeat_n("d", 1500));
    std::fs::create_dir_all(&deep).expect("folders");
    let here = path("m");
    let here = here.display();
    let output = bounded(&format!("$P check -f {here}"));
    let printed = text(&output);
    assert_eq!(output.status.code(), Some(2), "{printed}");
    let errors = printed.lines().filter(|line| line.starts_with("error: "));
    let outside = "this link leads out of the directories that -f names; it is not followed";
    let nested = format!("{here}{}", "/d".repeat(65));
    assert_eq!(
        errors.collect::<Vec<_>>(),
        [
            format!("error: {nested}: nested too deeply; this directory is not scanned"),
            format!("error: {here}/inner/up: {outside}"),
            format!("error: {here}/root: {outside}"),
        ]
    );
    assert!(printed.contains("HTTPRoute shop/web"), "{printed}");
    // A link into another folder that -f names is followed.
    std::fs::remove_dir_all(path("m/d")).expect("removed");
    std::fs::remove_file(path("m/root")).expect("removed");
    std::fs::remove_file(path("m/inner/up")).expect("removed");
    std::fs::create_dir(path("other")).expect("a folder");
    symlink("../other", path("m/other")).expect("linked");
    std::fs::rename(path("m/inner/a.yaml"), path("other/a.yaml")).expect("moved");
    let output = bounded(&format!(
        "$P check -f {here} -f {}",
        path("other").display()
    ));
    assert_eq!(output.status.code(), Some(0), "{}", text(&output));
}

#[test]
fn control_characters_of_manifests_reach_no_terminal() {
    let value = r"\e[2J\e]0;title\a\u009b31m";
    let manifests = direct_response(&format!("{{filename: \"{value}\"}}"))
        + &format!("\n---\n{{apiVersion: v1, kind: Service, metadata: {{name: \"{value}\"}}}}\n")
        + &format!("---\n{{apiVersion: v1, kind: \"{value}\", metadata: {{name: other}}}}\n");
    let from = ["--from", "dataplane/web", "http://127.0.0.1:10001/"];
    let explain = [&["explain", "-f", "-", "-H", "x: \x1b[2J"][..], &from].concat();
    for arguments in [&["check", "-f", "-"][..], &explain] {
        let output = pointsman(arguments, &manifests);
        for text in [&output.stdout, &output.stderr] {
            let text = String::from_utf8_lossy(text);
            let control = |letter: char| letter.is_control() && letter != '\n';
            assert!(!text.contains(control), "{arguments:?}: {text:?}");
        }
        let printed = [output.stdout, output.stderr].concat();
        assert!(String::from_utf8_lossy(&printed).contains(r"\x1b[2J"));
    }
}

// CI runners execute lines such as `::error::…` in the output of a command.
#[test]
fn a_value_with_line_ends_stays_on_the_line_of_its_error() {
    let value = r"a\n::error::injected";
    let route = |path: &str, backend: &str| {
        format!(
            "{{apiVersion: gateway.networking.k8s.io/v1, kind: HTTPRoute, metadata: {{name: web, namespace: shop}}, spec: {{parentRefs: [{{group: '', kind: Service, name: web, port: 80}}], \
             rules: [{{matches: [{{path: {{value: \"{path}\"}}}}], backendRefs: [{{name: \"{backend}\", namespace: other, port: 80}}]}}]}}}}\n"
        )
    };
    for manifests in [
        route(value, "cart"),
        format!("{WELL}---\n{}", route("/", value)),
        format!("{{apiVersion: v1, kind: Service, metadata: {{name: \"{value}\"}}}}\n"),
        format!("{{apiVersion: v1, kind: \"{value}\", metadata: {{name: a}}}}\n"),
        format!("{{\"{value}\": 1}}\n"),
        format!(
            "{WELL}---\n{}",
            route(&format!("/{value}("), "cart")
                .replace("{value: ", "{type: RegularExpression, value: ")
        ),
        format!(
            "{WELL}---\n{}",
            route(&format!("/{value}"), "cart")
                .replace("{value: ", "{type: RegularExpression, value: ")
        ),
    ] {
        for arguments in [
            &["check", "-f", "-"][..],
            &["explain", "-f", "-", "http://a/"],
        ] {
            let output = pointsman(arguments, &manifests);
            let printed = [output.stdout, output.stderr].concat();
            let printed = String::from_utf8_lossy(&printed);
            let is_injected = |line: &str| line.trim_start().starts_with("::error");
            assert!(
                !printed.lines().any(is_injected),
                "{arguments:?}: {printed}"
            );
        }
    }
}

#[test]
fn a_file_of_16_mib_is_read() {
    let folder = tempfile::tempdir().expect("a folder");
    let mut all = WELL.to_owned();
    let line = format!("# {}\n", "x".repeat(1021));
    all.extend(std::iter::repeat_n(
        &*line,
        (16 * 1024 * 1024 - all.len()) / line.len(),
    ));
    std::fs::write(folder.path().join("a.yaml"), all).expect("written");
    let path = folder.path().to_string_lossy().into_owned();
    let output = pointsman(&["check", "-f", &path], "");
    assert_eq!(output.status.code(), Some(0), "{}", text(&output));
}

// `<(…)` is a pipe on the command line, and so is standard input: both are read to their end, up to the same size.
#[test]
fn a_pipe_on_the_command_line_is_read_up_to_the_size_limit() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("well.yaml");
    std::fs::write(&path, WELL).expect("written");
    let path = path.display();
    for shell in [
        format!("$P check -f <(cat {path})"),
        format!("cat {path} | $P check -f /dev/stdin"),
        format!("cat {path} | $P check -f -"),
        format!("$P check -f /dev/fd/9 9< <(cat {path})"),
    ] {
        let output = bounded(&shell);
        assert_eq!(output.status.code(), Some(0), "{shell}: {}", text(&output));
        assert!(text(&output).contains("5 resources"), "{shell}");
    }
    for shell in [
        "$P check -f <(cat /dev/zero)",
        "cat /dev/zero | $P check -f -",
        "$P check -f - < /dev/zero",
        "$P check -f /dev/zero",
    ] {
        let output = bounded(shell);
        assert_eq!(output.status.code(), Some(2), "{shell}: {}", text(&output));
        assert!(text(&output).contains("larger than 16 MiB"), "{shell}");
    }
}

#[test]
fn routable_policy_rejects_endpoints_on_this_machine() {
    let output = pointsman(&["check", "-f", "-"], WELL);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output));
    let routable = ["check", "-f", "-", "--endpoint-addresses", "routable"];
    let output = pointsman(&routable, WELL);
    assert_eq!(output.status.code(), Some(1), "{}", text(&output));
    let printed = text(&output);
    for expected in [
        "pointsman.io/EndpointsRefused True  AddressNotAllowed",
        "Service shop/web port 80: 127.0.0.1:8080 is loopback",
        "--allow-endpoint-range",
        "Service shop/web port 80 has no ready endpoint; its share of requests gets 503",
    ] {
        assert!(printed.contains(expected), "{expected}\n{printed}");
    }
    let allowed = [&routable[..], &["--allow-endpoint-range", "127.0.0.1"]].concat();
    assert_eq!(pointsman(&allowed, WELL).status.code(), Some(0));
    let elsewhere = WELL.replace("[127.0.0.1]", "[10.0.0.7]");
    assert_eq!(pointsman(&routable, &elsewhere).status.code(), Some(0));

    let explain = |flags: &[&str]| {
        let all = [&["explain", "-f", "-", "-o", "json"], flags].concat();
        let all = [&all[..], &["--gateway", "infra/edge", "http://a.example/"]].concat();
        json(&pointsman(&all, WELL))["backends"][0].clone()
    };
    assert_eq!(explain(&[])["endpoints"][0], "127.0.0.1:8080");
    let refused = explain(&["--endpoint-addresses", "routable"]);
    assert_eq!(refused["status"], 503, "{refused}");

    // Without a Kuma policy for the traffic there is no condition that could report it.
    let calls = "{type: Mesh, name: default}
---\n{type: Dataplane, mesh: default, name: web, networking: {address: 10.0.0.7, inbound: [{port: 1, tags: {kuma.io/service: web}}], outbound: [{port: 10001, tags: {kuma.io/service: backend}}]}}
---\n{type: Dataplane, mesh: default, name: backend, networking: {address: 127.0.0.1, inbound: [{port: 2, tags: {kuma.io/service: backend}}]}}\n";
    let printed = text(&pointsman(&routable, calls));
    let said = "Dataplane mesh:default/web: 127.0.0.1:10001: MeshService mesh:default/backend: 127.0.0.1:2 is loopback";
    assert!(printed.contains(said), "{printed}");
    let printed = text(&pointsman(&allowed, calls));
    assert!(!printed.contains("loopback"), "{printed}");

    let output = pointsman(&["check", "-f", "-", "--allow-endpoint-range", "::1"], WELL);
    assert_eq!(output.status.code(), Some(2));
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(stderr.contains("--endpoint-addresses routable"), "{stderr}");
}
