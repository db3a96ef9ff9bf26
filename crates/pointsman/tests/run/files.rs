//! Files that change while `run` is active.

use std::process::Command;

use crate::support::*;

fn running() -> Running {
    let gateway = gateway("edge", free_port());
    Running::start(&[
        ("base.yaml", &join(&[CLASS, &gateway])),
        ("one.yaml", &route("one", "/one")),
    ])
}

#[test]
fn routes_follow_their_files() {
    let running = running();
    assert_eq!(running.paths(), ["/one"]);
    running.write("two.yaml", &route("two", "/two"));
    running.until_paths(&["/one", "/two"]);
    running.write("two.yaml", &route("two", "/other"));
    running.until_paths(&["/one", "/other"]);
    // In place, like a shell redirection.
    std::fs::write(running.path("m/one.yaml"), route("one", "/first")).expect("written");
    running.until_paths(&["/first", "/other"]);
    std::fs::remove_file(running.path("m/two.yaml")).expect("removed");
    running.until_paths(&["/first"]);
    assert!(running.object("HTTPRoute", "two").is_none());
}

#[test]
fn files_that_are_not_manifests_are_ignored() {
    let running = running();
    running.write(".hidden.yaml", &route("hidden", "/hidden"));
    running.write("readme.txt", &route("text", "/text"));
    running.write("two.yml", &route("two", "/two"));
    running.until_paths(&["/one", "/two"]);
}

#[test]
fn events_of_other_files_publish_no_new_version() {
    let running = running();
    let version = || {
        running.json("/config")["version"]
            .as_u64()
            .expect("a number")
    };
    let before = version();
    for number in 0..10 {
        std::fs::write(running.path(&format!("beside-{number}")), "x").expect("written");
        running.write("readme.txt", &number.to_string());
        // Long enough for separate events.
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
    running.write("two.yaml", &route("two", "/two"));
    running.until_paths(&["/one", "/two"]);
    assert!(version() <= before + 2, "from {before} to {}", version());
}

#[test]
fn a_broken_file_keeps_its_last_valid_version_and_is_reported() {
    let running = running();
    running.write("one.yaml", "{apiVersion: [\n");
    let errors = until("an error", || {
        Some(running.findings("errors")).filter(|errors| !errors.is_empty())
    });
    assert!(errors[0].starts_with("m/one.yaml: "), "{errors:?}");
    assert_eq!(running.paths(), ["/one"]);
    let kept = running.findings("warnings").join("\n");
    assert!(
        kept.contains("HTTPRoute infra/one: its last valid version stays in effect"),
        "{kept}"
    );
    assert!(running.log().contains("m/one.yaml"), "{}", running.log());
    running.write("one.yaml", &route("one", "/mended"));
    running.until_paths(&["/mended"]);
    until("no error", || {
        running.findings("errors").is_empty().then_some(())
    });
}

#[test]
fn a_broken_document_does_not_affect_others_in_its_file() {
    let running = running();
    running.write(
        "one.yaml",
        &join(&[
            &route("one", "/one"),
            &route("two", "/two"),
            &route("three", "/three"),
        ]),
    );
    running.until_paths(&["/one", "/three", "/two"]);
    let broken = route("two", "/new")
        .replace("parentRefs", "parentRef_s: 1, parentRefs")
        .replace("statusCode: 302", "statusCode: 999");
    // `two` is broken and keeps its last version, `three` is removed, `one` has changed.
    running.write("one.yaml", &join(&[&route("one", "/uno"), &broken]));
    running.until_paths(&["/two", "/uno"]);
    assert_eq!(
        running.findings("errors").len(),
        1,
        "{:?}",
        running.findings("errors")
    );
}

#[test]
fn an_object_that_moves_to_another_file_is_never_absent() {
    let running = running();
    let both = join(&[&route("one", "/one"), &route("moving", "/moving")]);
    running.write("a.yaml", &route("moving", "/moving"));
    running.until_paths(&["/moving", "/one"]);
    for round in 0..10 {
        // Added to the other file first, then removed from this one.
        running.write("one.yaml", &both);
        running.write("a.yaml", "");
        assert_eq!(running.paths(), ["/moving", "/one"], "round {round}");
        until("only one has it", || {
            running.findings("errors").is_empty().then_some(())
        });
        assert_eq!(running.paths(), ["/moving", "/one"], "round {round}");
        running.write("a.yaml", &route("moving", "/moving"));
        running.write("one.yaml", &route("one", "/one"));
        assert_eq!(running.paths(), ["/moving", "/one"], "round {round}");
        until("only one has it", || {
            running.findings("errors").is_empty().then_some(())
        });
    }
}

#[test]
fn an_object_in_two_files_is_reported_as_by_check() {
    let running = running();
    running.write("two.yaml", &route("one", "/second"));
    until("an error", || {
        (running.findings("errors").len() == 1).then_some(())
    });
    assert_eq!(running.paths(), ["/one"]);
    let output = Command::new(env!("CARGO_BIN_EXE_pointsman"))
        .args(["check", "-f", "m", "-o", "json"])
        .current_dir(running.folder.path())
        .output()
        .expect("the binary runs");
    let check: serde_json::Value = serde_json::from_slice(&output.stdout).expect("JSON");
    let status = running.json("/status");
    assert_eq!(check["errors"], status["errors"]);
    assert_eq!(check["warnings"], status["warnings"]);
    // Without the first file, the object belongs to the second.
    std::fs::remove_file(running.path("m/one.yaml")).expect("removed");
    running.until_paths(&["/second"]);
    until("no error", || {
        running.findings("errors").is_empty().then_some(())
    });
}

#[test]
fn directories_can_be_created_moved_and_removed() {
    let running = running();
    let apart = running.path("apart");
    std::fs::create_dir_all(apart.join("deep")).expect("a folder");
    std::fs::write(apart.join("deep/two.yaml"), route("two", "/two")).expect("written");
    running.rename("apart", "m/inside");
    running.until_paths(&["/one", "/two"]);
    std::fs::write(
        running.path("m/inside/deep/three.yaml"),
        route("three", "/three"),
    )
    .expect("written");
    running.until_paths(&["/one", "/three", "/two"]);
    running.rename("m/inside", "m/renamed");
    until("found under the new name", || {
        let config = running.json("/status");
        (!config.to_string().contains("inside")).then_some(())
    });
    std::fs::write(
        running.path("m/renamed/deep/three.yaml"),
        route("three", "/drei"),
    )
    .expect("written");
    running.until_paths(&["/drei", "/one", "/two"]);
    running.rename("m/renamed", "apart");
    running.until_paths(&["/one"]);
    std::fs::create_dir(running.path("m/new")).expect("a folder");
    std::fs::write(running.path("m/new/four.yaml"), route("four", "/four")).expect("written");
    running.until_paths(&["/four", "/one"]);
}

#[test]
fn moving_the_whole_directory_away_keeps_the_configuration() {
    let running = running();
    running.rename("m", "away");
    let errors = until("an error", || {
        Some(running.findings("errors")).filter(|errors| !errors.is_empty())
    });
    assert!(errors[0].contains("stays in effect"), "{errors:?}");
    assert_eq!(running.paths(), ["/one"]);
    std::fs::write(running.path("away/two.yaml"), route("two", "/two")).expect("written");
    running.rename("away", "m");
    running.until_paths(&["/one", "/two"]);
    until("no error", || {
        running.findings("errors").is_empty().then_some(())
    });
    running.write("one.yaml", &route("one", "/again"));
    running.until_paths(&["/again", "/two"]);
}

#[test]
fn a_directory_that_is_a_symbolic_link_is_watched_at_its_target() {
    let folder = tempfile::tempdir().expect("a folder");
    for (name, path) in [("red", "/red"), ("green", "/green")] {
        let inside = folder.path().join(name);
        std::fs::create_dir(&inside).expect("a folder");
        let text = join(&[CLASS, &gateway("edge", free_port()), &route("one", path)]);
        std::fs::write(inside.join("all.yaml"), text).expect("written");
    }
    relink("red", &folder.path().join("m"));
    let running = Running::on(folder, &["--address-pool", &pool()]);
    assert_eq!(running.paths(), ["/red"]);
    relink("green", &running.path("m"));
    running.until_paths(&["/green"]);
    relink("red", &running.path("m"));
    running.until_paths(&["/red"]);
}

#[test]
fn updates_of_a_mounted_config_map_take_effect() {
    let folder = tempfile::tempdir().expect("a folder");
    let mount = folder.path().join("m");
    let fill = |version: &str, path: &str| {
        let real = mount.join(version);
        std::fs::create_dir_all(&real).expect("a folder");
        let text = join(&[CLASS, &gateway("edge", free_port()), &route("one", path)]);
        std::fs::write(real.join("all.yaml"), text).expect("written");
        relink(version, &mount.join("..data"));
    };
    fill("..2026_1", "/first");
    std::os::unix::fs::symlink("..data/all.yaml", mount.join("all.yaml")).expect("linked");
    let running = Running::on(folder, &["--address-pool", &pool()]);
    assert_eq!(running.paths(), ["/first"]);
    let mount = running.path("m");
    for (version, old, path) in [
        ("..2026_2", "..2026_1", "/second"),
        ("..2026_3", "..2026_2", "/third"),
    ] {
        let real = mount.join(version);
        std::fs::create_dir_all(&real).expect("a folder");
        let text = join(&[CLASS, &gateway("edge", free_port()), &route("one", path)]);
        std::fs::write(real.join("all.yaml"), text).expect("written");
        relink(version, &mount.join("..data"));
        std::fs::remove_dir_all(mount.join(old)).expect("removed");
        running.until_paths(&[path]);
    }
    assert!(running.findings("errors").is_empty());
}

#[test]
fn an_unchanged_condition_keeps_its_transition_time() {
    let running = running();
    let times = |running: &Running| {
        let route = running.object("HTTPRoute", "one").expect("the route");
        let gateway = running.object("Gateway", "edge").expect("the Gateway");
        (
            route["status"]["parents"][0]["conditions"][0]["lastTransitionTime"].clone(),
            gateway["status"]["conditions"][0]["lastTransitionTime"].clone(),
            gateway["status"]["listeners"][0]["attachedRoutes"].clone(),
        )
    };
    let (route_time, gateway_time, _) = times(&running);
    // Transition times have a resolution of one second.
    std::thread::sleep(std::time::Duration::from_millis(1100));
    running.write(
        "one.yaml",
        &join(&[&route("one", "/uno"), &route("two", "/two")]),
    );
    running.until_paths(&["/two", "/uno"]);
    assert_eq!(times(&running), (route_time, gateway_time, 2.into()));
    let two = running.object("HTTPRoute", "two").expect("the route");
    assert_ne!(
        two["status"]["parents"][0]["conditions"][0]["lastTransitionTime"],
        times(&running).0
    );
}

#[test]
fn conditions_of_other_controllers_are_kept() {
    let running = running();
    let condition = "{type: example.com/Theirs, status: 'True', reason: Said, message: '', lastTransitionTime: '2026-01-01T00:00:00Z'}";
    let path = "/new";
    let text = route("one", path);
    let text = text.trim_end().strip_suffix('}').expect("a mapping");
    running.write(
        "one.yaml",
        &format!(
            "{text}, status: {{parents: [{{controllerName: example.com/other, parentRef: {{name: edge}}, conditions: [{condition}]}}]}}}}\n"
        ),
    );
    running.until_paths(&[path]);
    let route = running.object("HTTPRoute", "one").expect("the route");
    let parents = route["status"]["parents"].as_array().expect("parents");
    let theirs = |parent: &&serde_json::Value| parent["controllerName"] == "example.com/other";
    assert_eq!(parents.len(), 2, "{route}");
    let theirs = parents.iter().find(theirs).expect("their entry");
    assert_eq!(theirs["conditions"][0]["type"], "example.com/Theirs");
}

#[test]
fn sighup_reloads_all_files() {
    let running = running();
    // Written through a hard link in a directory that is not watched.
    std::fs::hard_link(running.path("m/one.yaml"), running.path("other")).expect("linked");
    std::fs::write(running.path("other"), route("one", "/reread")).expect("written");
    running.signal("HUP");
    running.until_paths(&["/reread"]);
}

#[test]
fn an_empty_directory_is_watched() {
    let running = Running::with(&[], &["--address-pool", &pool()]);
    assert!(
        running.lines[0].contains("not listening: "),
        "{:?}",
        running.lines
    );
    running.write(
        "all.yaml",
        &join(&[CLASS, &gateway("edge", free_port()), &route("one", "/one")]),
    );
    running.until_paths(&["/one"]);
    until("no error", || {
        running.findings("errors").is_empty().then_some(())
    });
}
