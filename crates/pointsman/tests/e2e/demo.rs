//! The README's first command.

use std::net::TcpListener;
use std::process::Command;

#[test]
fn the_demo_runs_all_examples_successfully() {
    // Blocks of four ports, below those that the system gives out. The demo takes three of a block; whoever holds the fourth has the block among
    // tests. What some other program has, the demo says, and the next block is tried.
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
        let (said, complained) = (
            String::from_utf8_lossy(&output.stdout),
            String::from_utf8_lossy(&output.stderr),
        );
        if complained.contains("choose another port with --port") {
            continue;
        }
        assert_eq!(output.status.code(), Some(0), "{said}\n{complained}");
        assert!(said.ends_with("all responses are as expected\n"), "{said}");
        // Its folder is removed at the end, which nobody has to be warned of.
        assert_eq!(complained, "");
        return;
    }
    panic!("every port is taken");
}
