//! Complete output of `/config`, as users see it. `INSTA_UPDATE=always cargo test -p pointsman golden` updates it.

use insta::assert_snapshot;

use crate::support::*;

#[test]
fn config_lists_frontends_with_their_rules_in_order_of_precedence() {
    let port = free_port();
    let manifests = join(&[
        CLASS,
        &gateway("edge", port),
        &route("prefix", "/a"),
        &route("longer", "/a/b"),
    ]);
    let running = Running::start(&[("all.yaml", &manifests)]);
    let mut frontends = running.json("/config")["frontends"].clone();
    // They differ from run to run.
    frontends[0]["port"] = 8080.into();
    frontends[0]["addresses"] = vec!["ADDRESS"].into();
    assert_snapshot!(serde_json::to_string_pretty(&frontends).expect("JSON"));
}
