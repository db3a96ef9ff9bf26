//! The command `demo`.

use std::net::TcpListener;
use std::process::Command;

#[test]
fn the_demo_runs_all_examples_successfully() {
    // Blocks of four ports below the ephemeral range. The demo uses three ports of a block; a test reserves the block by binding the fourth. If another
    // program uses a port, the demo reports it, and the test tries the next block.
    let first = std::process::id() % 2500;
    for block in (first..2500).chain(0..first) {
        let port = 20_000 + block * 4;
        let lock = u16::try_from(port + 3).expect("a port");
        let Ok(_held) = TcpListener::bind(("127.0.77.10", lock)) else {
            continue;
        };
        let output = Command::new(env!("CARGO_BIN_EXE_pointsman"))
            .args(["demo", "--once", "--port", &port.to_string()])
            .env("NO_COLOR", "1")
            .output()
            .expect("the binary runs");
        let (stdout, stderr) = (
            String::from_utf8_lossy(&output.stdout),
            String::from_utf8_lossy(&output.stderr),
        );
        if stderr.contains("choose another port with --port") {
            continue;
        }
        assert_eq!(output.status.code(), Some(0), "{stdout}\n{stderr}");
        assert!(
            stdout.ends_with("all responses are as expected\n"),
            "{stdout}"
        );
        // Removing the manifests at the end must not log a warning.
        assert_eq!(stderr, "");
        return;
    }
    panic!("every port is taken");
}
