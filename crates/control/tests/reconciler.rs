//! The reconciler, with a source and a sink that are test doubles.

mod common;

use std::sync::Arc;
use std::sync::mpsc::channel;
use std::time::Duration;

use common::{BASE, Harness, key, route, update};
use pointsman_control::{Inbox, Reconciler, Snapshots, SourceUpdate};

#[test]
fn a_slow_reader_does_not_delay_a_change() {
    let mut harness = Harness::new(BASE);
    let snapshots = harness.snapshots.clone();
    let (entered, is_inside) = channel();
    let (release, released) = channel::<()>();
    std::thread::scope(|scope| {
        let reader = scope.spawn(move || {
            let snapshot = snapshots.latest();
            snapshots.with_binder(&snapshot, |binder| {
                entered.send(()).expect("the test is waiting");
                // Expires only if the change waits for the reader.
                let _ = released.recv_timeout(Duration::from_secs(20));
                binder.object(&key("HTTPRoute shop/new")).is_some()
            })
        });
        is_inside.recv().expect("the reader reads");
        harness.apply(&route("new", "edge"));
        assert_eq!(harness.attached(), 1, "the change is in effect");
        assert_eq!(harness.accepted("HTTPRoute shop/new"), Some(true));
        let is_still_reading = release.send(()).is_ok();
        assert!(is_still_reading, "the change did not wait for the reader");
        let seen = reader.join().expect("the reader ends");
        assert!(!seen, "the reader sees the snapshot that it started with");
    });
}

#[test]
fn a_reader_of_an_old_snapshot_sees_its_state() {
    let mut harness = Harness::new(BASE);
    let old = harness.snapshots.latest();
    harness.apply(&route("new", "edge"));
    let new = harness.snapshots.latest();
    let new_route = key("HTTPRoute shop/new");
    for (snapshot, exists) in [(&new, true), (&old, false), (&new, true)] {
        let read = |binder: &pointsman_binding::Binder| binder.status(&new_route).is_some();
        assert_eq!(harness.snapshots.with_binder(snapshot, read), exists);
    }
}

#[test]
fn reports_of_staging_are_bound_before_the_change_is_committed() {
    let harness = Harness::new(BASE);
    let log = harness.log();
    assert_eq!(
        log.events,
        ["stage", "report", "stage", "commit", "report", "stage"],
        "the address is reported while staging, the port while committing; neither changes traffic"
    );
    assert_eq!(
        log.backends_at_commit,
        [1],
        "the needed backend is in the tables"
    );
    let status = harness.snapshots.status();
    assert!(status.contains("127.0.64.9"), "{status}");
}

#[test]
fn the_position_of_a_rejected_object_appears_in_statuses() {
    let text = BASE.to_owned() + &route("r", "away");
    let mut harness = Harness::new(&text);
    let mut update = SourceUpdate::default();
    let position = Some(Arc::from("a.yaml:3:7"));
    update.rejected.insert(key("Gateway shop/away"), position);
    harness.reconciler.apply_changes(update);
    let expected = "was rejected as invalid at a.yaml:3:7";
    assert!(harness.snapshots.status().contains(expected));
    let mut update = SourceUpdate::default();
    update.rejected.insert(key("Gateway shop/away"), None);
    harness.reconciler.apply_changes(update);
    let status = harness.snapshots.status();
    assert!(!status.contains("was rejected"), "{status}");
    assert!(status.contains("does not exist"), "{status}");
}

#[test]
fn an_object_whose_generation_decreases_gets_a_new_status() {
    let with = |generation: u32| {
        let text = route("r", "edge");
        text.replace("name: r,", &format!("name: r, generation: {generation},"))
    };
    let mut harness = Harness::new(&(BASE.to_owned() + &with(5)));
    assert!(
        harness
            .snapshots
            .status()
            .contains("\"observedGeneration\":5")
    );
    harness.apply(&with(2));
    let status = harness.snapshots.status();
    assert!(!status.contains("\"observedGeneration\":5"), "{status}");
    assert!(status.contains("\"observedGeneration\":2"), "{status}");
}

#[test]
fn deleting_an_unknown_object_publishes_nothing() {
    let mut harness = Harness::new(BASE);
    let before = harness.snapshots.latest().version;
    let mut update = SourceUpdate::default();
    update.objects.insert(key("HTTPRoute shop/none"), None);
    harness.reconciler.apply_changes(update);
    assert_eq!(harness.snapshots.latest().version, before);
}

#[test]
fn a_deleted_object_is_removed_from_status_and_tables() {
    let mut harness = Harness::new(&(BASE.to_owned() + &route("r", "edge")));
    assert_eq!(harness.attached(), 1);
    harness.delete("HTTPRoute shop/r");
    assert_eq!(harness.attached(), 0);
    assert!(!harness.snapshots.status().contains("\"r\""));
}

#[test]
fn pending_updates_are_merged_and_applied_as_one_change() {
    let snapshots: Arc<Snapshots> = Arc::default();
    let mut reconciler = Reconciler::new(Vec::new(), snapshots.clone());
    let inbox = Inbox::default();
    for text in [BASE.to_owned(), route("a", "edge"), route("b", "edge")] {
        assert!(inbox.merge(|pending| pending.merge(update(&text))));
    }
    std::thread::scope(|scope| {
        scope.spawn(|| reconciler.run(&inbox));
        while snapshots.latest().version == 0 {
            std::thread::yield_now();
        }
        inbox.close();
    });
    let snapshot = snapshots.latest();
    assert_eq!(
        snapshot.version, 1,
        "pending updates were applied as one change"
    );
    let objects: Vec<String> = snapshot
        .entries
        .values()
        .map(|entry| entry.document.resource.key().to_string())
        .collect();
    assert!(
        objects.contains(&"HTTPRoute shop/b".to_owned()),
        "{objects:?}"
    );
}
