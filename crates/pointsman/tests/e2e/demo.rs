//! The README's first command.

use std::process::Command;

#[test]
fn the_demo_tries_its_own_lines_and_is_satisfied() {
    // Its ports are on addresses that others have too, so one that is taken is no failure: it says so, and another is tried.
    let first = 20_000 + std::process::id() % 10_000;
    for port in (first..).step_by(7).take(20) {
        let output = Command::new(env!("CARGO_BIN_EXE_pointsman"))
            .args(["demo", "--once", "--port", &port.to_string()])
            .env("NO_COLOR", "1")
            .output()
            .expect("the binary runs");
        let (said, complained) = (
            String::from_utf8_lossy(&output.stdout),
            String::from_utf8_lossy(&output.stderr),
        );
        if complained.contains("choose another with --port") {
            continue;
        }
        assert_eq!(output.status.code(), Some(0), "{said}\n{complained}");
        assert!(said.ends_with("all is as it should be\n"), "{said}");
        return;
    }
    panic!("twenty ports are taken");
}
