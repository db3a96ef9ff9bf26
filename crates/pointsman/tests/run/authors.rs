//! `run` with untrusted manifests and untrusted clients.

use std::fs::File;
use std::os::unix::fs::symlink;
use std::process::Command;

use crate::support::*;

fn files() -> String {
    join(&[CLASS, &gateway("edge", free_port())])
}

#[test]
fn an_irregular_file_never_stops_the_watcher() {
    let running = Running::start(&[("all.yaml", &files()), ("one.yaml", &route("one", "/one"))]);
    let path = |name: &str| running.path("m").join(name);
    let made = Command::new("mkfifo").arg(path("a.yaml")).status();
    assert!(made.expect("mkfifo").success());
    symlink("/dev/zero", path("b.yaml")).expect("linked");
    let large = File::create(path("c.yaml")).expect("a file");
    large.set_len(1 << 40).expect("sparse");
    drop(large);
    let errors = until("three errors", || {
        Some(running.findings("errors")).filter(|errors| errors.len() == 3)
    });
    assert_eq!(
        errors,
        [
            "m/a.yaml: this is a pipe; only regular files are read",
            "m/b.yaml: this is a device; only regular files are read",
            "m/c.yaml: larger than 16 MiB, the maximum size",
        ]
    );
    // Other files are still watched.
    running.write("one.yaml", &route("one", "/uno"));
    running.until_paths(&["/uno"]);
    // A file that is replaced by a device keeps its last content in effect, and a reload does not read the device.
    symlink("/dev/zero", running.path("new")).expect("linked");
    running.rename("new", "m/one.yaml");
    until("a word on it", || {
        let errors = running.findings("errors").join("\n");
        let kept = "m/one.yaml: this is a device; only regular files are read; its last content stays in effect";
        errors.contains(kept).then_some(())
    });
    running.signal("HUP");
    running.write("two.yaml", &route("two", "/two"));
    running.until_paths(&["/two", "/uno"]);
    for name in ["a.yaml", "b.yaml", "c.yaml", "one.yaml"] {
        std::fs::remove_file(path(name)).expect("removed");
    }
    running.until_paths(&["/two"]);
    until("no error", || {
        running.findings("errors").is_empty().then_some(())
    });
}

// A shell's `<(…)` can be read only once: its content stays in effect after a reload.
#[test]
fn a_pipe_on_the_command_line_is_read_once() {
    let folder = tempfile::tempdir().expect("a folder");
    std::fs::create_dir(folder.path().join("m")).expect("a folder");
    std::fs::write(folder.path().join("m/one.yaml"), route("one", "/one")).expect("written");
    let pipe = folder.path().join("pipe");
    let made = Command::new("mkfifo").arg(&pipe).status();
    assert!(made.expect("mkfifo").success());
    let writer = {
        let text = files();
        let pipe = pipe.clone();
        std::thread::spawn(move || std::fs::write(pipe, text).expect("written"))
    };
    let running = Running::on(folder, &["--address-pool", &pool(), "-f", "pipe"]);
    writer.join().expect("it is read");
    assert_eq!(running.paths(), ["/one"]);
    running.signal("HUP");
    running.write("two.yaml", &route("two", "/two"));
    running.until_paths(&["/one", "/two"]);
    assert!(running.findings("errors").is_empty());
}

#[test]
fn the_admin_server_rejects_forwarded_requests() {
    let running = Running::start(&[("all.yaml", &files())]);
    let host = format!("Host: {}\r\n", running.admin);
    for field in [
        "X-Forwarded-For: 10.0.0.1",
        "x-forwarded-proto: http",
        "X-FORWARDED-HOST: shop.example",
        "X-Request-Id: 7f",
        "Forwarded: for=10.0.0.1",
        "Via: 1.1 somebody",
    ] {
        for page in ["/", "/status", "/config", "/metrics", "/healthz"] {
            let request = format!("GET {page} HTTP/1.1\r\n{host}{field}\r\n\r\n");
            let (status, _, body) = running.exchange(&request);
            assert_eq!(status, 403, "{page} {field}: {body}");
            assert!(body.contains("forwarded by a proxy"), "{body}");
        }
    }
    assert_eq!(running.get("/status").0, 200);
}

// DNS rebinding: a web page at evil.example, a name that now resolves to this machine, sends requests with that name.
#[test]
fn the_admin_server_rejects_other_host_names() {
    for listen in ["127.0.0.1:0", "0.0.0.0:0"] {
        let running = Running::with(
            &[("all.yaml", &files())],
            &[
                "--address-pool",
                &pool(),
                "--admin",
                listen,
                "--admin-host",
                "admin.internal",
            ],
        );
        let port = running.admin.port();
        for (host, status) in [
            ("evil.example", 421),
            ("127.0.0.1.evil.example", 421),
            ("localhost.evil.example", 421),
            ("[::1].evil.example", 421),
            ("admin.internal.evil.example", 421),
            ("127.0.0.1", 200),
            ("[::1]", 200),
            ("LocalHost", 200),
            ("admin.internal", 200),
        ] {
            for host in [host.to_owned(), format!("{host}:{port}")] {
                let request = format!("GET /config HTTP/1.1\r\nHost: {host}\r\n\r\n");
                assert_eq!(running.exchange(&request).0, status, "{listen}: {host}");
            }
        }
        let two = "GET /config HTTP/1.1\r\nHost: localhost\r\nHost: evil.example\r\n\r\n";
        assert_eq!(running.exchange(two).0, 400);
    }
}

#[test]
fn a_missing_content_directory_is_named() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().to_string_lossy();
    let (code, stderr) = run_to_exit(&["run", "-f", &path, "--content-dir", "nowhere"]);
    assert_eq!(code, Some(2), "{stderr}");
    assert!(
        stderr.contains("--content-dir nowhere: No such file"),
        "{stderr}"
    );
}
