//! Random changes interleaved with reads: the readers' binder agrees with the reconciler's.

mod common;

use common::{BASE, Harness, route};
use pointsman_binding::{Binder, has_status};
use proptest::prelude::*;

#[derive(Clone, Debug)]
enum Step {
    Put(usize),
    Delete(usize),
    /// Reads the snapshot from this many changes ago.
    Read(usize),
}

/// Returns a manifest and its key. The first three are those of the base; routes come in two forms each.
fn form(index: usize) -> (String, String) {
    let documents: Vec<&str> = BASE.split("---").collect();
    let keys = [
        "GatewayClass pointsman",
        "Gateway shop/edge",
        "Service shop/web",
    ];
    match index {
        0..3 => (documents[index].to_owned(), keys[index].to_owned()),
        _ => {
            let (name, parent) = (format!("r{}", index / 2), ["edge", "none"][index % 2]);
            (route(&name, parent), format!("HTTPRoute shop/{name}"))
        }
    }
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        3 => (0..12usize).prop_map(Step::Put),
        2 => (0..12usize).prop_map(Step::Delete),
        2 => (0..4usize).prop_map(Step::Read),
    ];
    proptest::collection::vec(step, 1..24)
}

/// Returns the statuses of all objects that may have one.
fn statuses(binder: &Binder) -> Vec<String> {
    let objects = binder.objects().map(|(key, _)| key);
    let mut all: Vec<String> = objects
        .filter(|key| has_status(key.kind))
        .map(|key| format!("{key} {:?}", binder.status(&key)))
        .collect();
    all.sort();
    all
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_reader_sees_the_statuses_of_its_snapshot(steps in steps()) {
        let mut harness = Harness::new(BASE);
        let mut history = vec![harness.snapshots.latest()];
        for step in steps {
            match step {
                Step::Put(index) => harness.apply(&form(index).0),
                Step::Delete(index) => harness.delete(&form(index).1),
                Step::Read(age) => {
                    let snapshot = &history[history.len().saturating_sub(age + 1)];
                    let read = harness.snapshots.with_binder(snapshot, statuses);
                    let mut recorded: Vec<String> = snapshot
                        .entries
                        .values()
                        .map(|entry| format!("{} {:?}", entry.document.resource.key(), entry.status.as_ref()))
                        .collect();
                    recorded.sort();
                    prop_assert_eq!(read, recorded);
                }
            }
            history.push(harness.snapshots.latest());
        }
    }
}

#[test]
fn tables_that_no_sink_uses_are_compiled_for_readers() {
    let mut harness = Harness::without_sinks(BASE);
    assert_eq!(harness.attached(), 0);
    harness.apply(&route("a", "edge"));
    let before = harness.snapshots.latest();
    harness.apply(&route("b", "edge"));
    assert_eq!(harness.attached(), 2);
    harness.delete("HTTPRoute shop/a");
    harness.apply(&route("b", "none"));
    assert_eq!(harness.attached(), 0);
    // A reader may be late.
    let tables = harness.snapshots.tables(&before);
    let attached: usize = tables.frontends().map(|table| table.routes().count()).sum();
    assert_eq!(attached, 1);
}
