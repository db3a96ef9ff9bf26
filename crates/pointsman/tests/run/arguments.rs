//! Invalid command lines.

use crate::support::run_to_exit;

#[test]
fn an_invalid_argument_is_named() {
    for (arguments, expected) in [
        (&["run"][..], "--filename"),
        (
            &["run", "-f", "m", "--address-pool", "10.0.0.0"],
            "such as 127.0.64.0/18",
        ),
        (
            &["run", "-f", "m", "--address-pool", "10.0.0.0/40"],
            "such as 127.0.64.0/18",
        ),
        (
            &["run", "-f", "m", "--address", "here"],
            "invalid IP address",
        ),
        (
            &[
                "run",
                "-f",
                "m",
                "--address",
                "127.0.0.1",
                "--address-pool",
                "127.0.0.0/8",
            ],
            "cannot be used with",
        ),
        (&["run", "-f", "m", "--port-offset", "70000"], "70000"),
        (
            &["run", "-f", "m", "--admin", "15000"],
            "expected an IP address and a port, such as 127.0.0.1:15000, or `off`",
        ),
        (
            &["run", "-f", "m", "--probes", "localhost:15021"],
            "expected an IP address and a port, such as 0.0.0.0:15021",
        ),
        (
            &["controller", "--xds", "localhost:15010"],
            "expected an IP address and a port, such as 127.0.0.1:15010",
        ),
        (&["run", "-f", "m", "--workers", "0"], "1..=1024"),
        (
            &["run", "-f", "m", "--trusted-proxies", "all"],
            "10.0.0.0/8",
        ),
        (
            &["run", "-f", "m", "--access-log", "xml"],
            "`text` or `json`",
        ),
        (
            &["run", "-f", "m", "--access-log", "json:"],
            "the file name after the colon is missing",
        ),
        (&["run", "-f", "m", "--limit", "streams"], "NAME=VALUE"),
        (&["run", "-f", "m", "--limit", "stream=5"], "stream"),
        (&["run", "-f", "m", "--drain", "soon"], "such as 30s"),
    ] {
        let (code, stderr) = run_to_exit(arguments);
        assert_eq!(code, Some(2), "{arguments:?}: {stderr}");
        assert!(stderr.contains(expected), "{arguments:?}: {stderr}");
    }
}

#[test]
fn a_missing_path_is_named() {
    let (code, stderr) = run_to_exit(&["run", "-f", "nowhere", "--admin", "off"]);
    assert_eq!(code, Some(2), "{stderr}");
    assert!(stderr.contains("error: nowhere: No such file"), "{stderr}");
    assert_eq!(stderr.matches("No such file").count(), 1, "once: {stderr}");
    assert!(stderr.contains("no input could be read"), "{stderr}");
    // Every command prints the same line.
    let (_, other) = run_to_exit(&["explain", "-f", "nowhere", "http://a/"]);
    assert_eq!(other.lines().next(), stderr.lines().next(), "{other}");
}

#[test]
fn an_admin_port_in_use_is_named() {
    let taken = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = taken.local_addr().expect("an address").to_string();
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().to_string_lossy();
    let (code, stderr) = run_to_exit(&["run", "-f", &path, "--admin", &address]);
    assert_eq!(code, Some(2), "{stderr}");
    assert!(
        stderr.contains(&address) && stderr.contains("--admin"),
        "{stderr}"
    );
}
