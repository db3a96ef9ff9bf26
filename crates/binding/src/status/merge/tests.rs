//! Merging with an existing status.

use std::sync::Arc;

use pointsman_resources::Kind;

use super::*;
use crate::CONTROLLER_NAME;
use crate::status::ParentStatus;

fn route_status(status: bool) -> Status {
    let parent = Arc::new(ParentReference {
        group: "gateway.networking.k8s.io".to_owned(),
        kind: "Gateway".to_owned(),
        namespace: None,
        name: "edge".to_owned(),
        section_name: None,
        port: None,
    });
    let condition = Condition::new("Accepted", status, "X", "");
    let body = StatusBody::Route(vec![ParentStatus {
        parent,
        conditions: vec![condition],
    }]);
    Status {
        generation: 2,
        controller: CONTROLLER_NAME.into(),
        body,
    }
}

#[test]
fn entries_of_other_controllers_are_kept_unchanged() {
    let foreign = json!({"parentRef": {"name": "other"}, "controllerName": "example.com/c",
        "conditions": [{"type": "Accepted", "status": "True", "message": "", "observedGeneration": 1}]});
    let merged = route_status(true).merge("shop", Some(&json!({ "parents": [foreign] })), "T1");
    assert_eq!(merged["parents"][0], foreign);
    assert_eq!(merged["parents"][1]["controllerName"], CONTROLLER_NAME);
    assert_eq!(
        merged["parents"][1]["conditions"][0]["observedGeneration"],
        2
    );
}

#[test]
fn a_policy_has_at_most_16_ancestors() {
    let entry = |at: usize| AncestorStatus {
        ancestor: ObjectKey::new(Kind::Gateway, "infra", format!("g{at}")),
        conditions: vec![Condition::yes("Accepted", "Accepted", "")],
    };
    let status = Status {
        generation: 1,
        controller: CONTROLLER_NAME.into(),
        body: StatusBody::Policy((0..20).map(entry).collect()),
    };
    let foreign = json!({"ancestorRef": {"name": "other"}, "controllerName": "example.com/c", "conditions": []});
    let merged = status.merge("shop", Some(&json!({ "ancestors": [foreign] })), "T1");
    let list = merged["ancestors"].as_array().expect("a list");
    assert_eq!((list.len(), &list[0]), (16, &foreign));
}

#[test]
fn an_x_backend_has_at_most_32_ancestors() {
    let entry = |at: usize| AncestorStatus {
        ancestor: ObjectKey::new(Kind::Gateway, "infra", format!("g{at}")),
        conditions: vec![Condition::yes("Accepted", "Accepted", "")],
    };
    let status = Status {
        generation: 1,
        controller: CONTROLLER_NAME.into(),
        body: StatusBody::Backend((0..40).map(entry).collect()),
    };
    let merged = status.merge("shop", None, "T1");
    assert_eq!(merged["ancestors"].as_array().map(Vec::len), Some(32));
}

// "Implementations MUST NOT remove or reorder Conditions that they are not directly responsible for."
#[test]
fn an_own_entry_is_recognised_with_defaults_filled_in() {
    let foreign_condition = json!({"type": "example.com/Checked", "status": "True"});
    let accepted = json!({"type": "Accepted", "status": "True", "reason": "X", "message": "",
        "observedGeneration": 1, "lastTransitionTime": "T0"});
    for reference in [
        json!({"name": "edge"}),
        json!({"name": "edge", "namespace": "shop"}),
        json!({"kind": "Gateway", "name": "edge", "namespace": "shop"}),
        json!({"group": GATEWAY_GROUP, "kind": "Gateway", "name": "edge", "namespace": null}),
    ] {
        let own = json!({"parentRef": reference, "controllerName": CONTROLLER_NAME,
            "conditions": [foreign_condition, accepted]});
        let other = json!({"parentRef": {"name": "edge"}, "controllerName": "example.com/c", "conditions": []});
        let existing = json!({ "parents": [own, other] });
        let merged = route_status(true).merge("shop", Some(&existing), "T1");
        assert_eq!(
            merged["parents"].as_array().map(Vec::len),
            Some(2),
            "{reference}"
        );
        assert_eq!(merged["parents"][1], other, "the order is kept");
        let conditions = &merged["parents"][0]["conditions"];
        assert_eq!(conditions[0], foreign_condition, "{reference}");
        assert_eq!(conditions[1]["lastTransitionTime"], "T0", "{reference}");
        assert_eq!(conditions[1]["observedGeneration"], 2, "{reference}");
    }
    for reference in [
        json!({"name": "edge", "namespace": "other"}),
        json!({"name": "edge", "sectionName": "http"}),
        json!({"name": "edge", "kind": "ListenerSet"}),
    ] {
        let own = json!({"parentRef": reference, "controllerName": CONTROLLER_NAME,
            "conditions": [foreign_condition, accepted]});
        let existing = json!({ "parents": [own] });
        let merged = route_status(true).merge("shop", Some(&existing), "T1");
        let conditions = merged["parents"][0]["conditions"].as_array();
        assert_eq!(conditions.map(Vec::len), Some(1), "{reference}");
    }
}

#[test]
fn an_own_entry_for_a_service_is_recognised_in_each_spelling_of_the_core_group() {
    let reference = |group: &str| json!({"group": group, "kind": "Service", "name": "web"});
    for (written, existing) in [("core", ""), ("", "core"), (GATEWAY_GROUP, "")] {
        let mut status = route_status(true);
        let StatusBody::Route(parents) = &mut status.body else {
            unreachable!()
        };
        let parent = Arc::make_mut(&mut parents[0].parent);
        parent.group = written.to_owned();
        parent.kind = "Service".to_owned();
        parent.name = "web".to_owned();
        let foreign = json!({"type": "example.com/Checked", "status": "True"});
        let own = json!({"parentRef": reference(existing), "controllerName": CONTROLLER_NAME,
            "conditions": [foreign]});
        let merged = status.merge("shop", Some(&json!({ "parents": [own] })), "T1");
        let entry = &merged["parents"][0];
        assert_eq!(entry["conditions"][0], foreign, "{written:?} {existing:?}");
        assert_eq!(entry["parentRef"], reference(written));
        assert_eq!(merged["parents"].as_array().map(Vec::len), Some(1));
    }
}

#[test]
fn a_condition_of_a_newer_generation_is_kept() {
    let newer = json!({"type": "Accepted", "status": "False", "reason": "Later", "message": "m",
        "observedGeneration": 3, "lastTransitionTime": "T0"});
    let no_longer_reported =
        json!({"type": "PartiallyInvalid", "status": "True", "observedGeneration": 3});
    let older = json!({"type": "ResolvedRefs", "status": "True", "observedGeneration": 2});
    let own = json!({"parentRef": {"name": "edge"}, "controllerName": CONTROLLER_NAME,
        "conditions": [newer, no_longer_reported, older]});
    let existing = json!({ "parents": [own] });
    let merged = route_status(true).merge("shop", Some(&existing), "T1");
    assert_eq!(
        merged["parents"][0]["conditions"],
        json!([newer, no_longer_reported])
    );
}

#[test]
fn an_entry_for_a_removed_parent_is_removed() {
    let ours =
        json!({"parentRef": {"name": "gone"}, "controllerName": CONTROLLER_NAME, "conditions": []});
    let merged = route_status(true).merge("shop", Some(&json!({ "parents": [ours] })), "T1");
    assert_eq!(merged["parents"].as_array().map(Vec::len), Some(1));
    assert_eq!(merged["parents"][0]["parentRef"]["name"], "edge");
}

#[test]
fn a_condition_keeps_its_transition_time_until_its_status_changes() {
    let first = route_status(true).merge("shop", None, "T1");
    let same = route_status(true).merge("shop", Some(&first), "T2");
    assert_eq!(same, first);
    let changed = route_status(false).merge("shop", Some(&first), "T2");
    assert_eq!(
        changed["parents"][0]["conditions"][0]["lastTransitionTime"],
        "T2"
    );
}

#[test]
fn conditions_of_unknown_types_are_kept_and_stale_own_ones_removed() {
    let existing = json!({"conditions": [
        {"type": "example.com/Stale", "status": "True", "message": ""},
        {"type": "Conflicted", "status": "True"},
    ]});
    let body = StatusBody::Gateway {
        conditions: vec![Condition::yes("Accepted", "Accepted", "")],
        addresses: Vec::new(),
        listeners: Vec::new(),
        attached_listener_sets: None,
    };
    let merged = Status {
        generation: 1,
        controller: CONTROLLER_NAME.into(),
        body,
    }
    .merge("shop", Some(&existing), "T");
    let kinds: Vec<&str> = merged["conditions"]
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(|c| c["type"].as_str())
        .collect();
    assert_eq!(kinds, ["example.com/Stale", "Accepted"]);
}
