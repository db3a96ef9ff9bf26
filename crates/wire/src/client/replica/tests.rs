//! Handling of responses: valid ones, malformed ones, and those of other versions.

use pointsman_binding::bound::{
    Backend, BackendId, BackendName, BackendProtocol, BoundRule, Endpoints, RouteBinding, RouteId,
    RuleId, Transport, WeightedBackend,
};
use pointsman_resources::{Kind, Name, ObjectKey};

use super::*;

fn backend_id(name: &str) -> BackendId {
    BackendId::new(
        ObjectKey::new(Kind::Service, "shop", name),
        80,
        Transport::Tcp,
    )
}

fn backend(name: &str) -> Resource {
    Resource::Backend(Arc::new(Backend {
        id: backend_id(name),
        protocol: BackendProtocol::Http1,
        tls: None,
        retry_budget: None,
    }))
}

fn endpoints(name: &str) -> Resource {
    let endpoints = Endpoints::Dns(name.into(), 80);
    Resource::Endpoints(backend_id(name), Arc::new(endpoints))
}

fn rule_id(index: usize) -> RuleId {
    let route = RouteId {
        route: ObjectKey::new(Kind::HTTPRoute, "shop", "r"),
        binding: RouteBinding::Gateway,
    };
    RuleId {
        route,
        index,
        part: 0,
    }
}

fn rule(index: usize, to: &str) -> Resource {
    let backend = WeightedBackend {
        reference: BackendName {
            kind: "Service".into(),
            name: Name::new("shop", to),
            port: Some(80),
            tags: Default::default(),
        },
        weight: 1,
        target: Ok(backend_id(to)),
        filters: Vec::new(),
    };
    let rule = BoundRule {
        index,
        part: 0,
        name: None,
        matches: Vec::new(),
        filters: Vec::new(),
        backends: vec![backend],
        fault: None,
        request_timeout: None,
        backend_timeout: None,
        retry: None,
        from: Vec::new(),
    };
    Resource::Rule(rule_id(index), Arc::new(rule))
}

fn message(resource: &Resource, version: &str) -> discovery::Resource {
    let id = resource.id();
    discovery::Resource {
        name: id.name(),
        version: version.to_owned(),
        resource: Some(prost_types::Any {
            type_url: id.resource_type().url().to_owned(),
            value: resource.encode(),
        }),
    }
}

fn broken(resource: &Resource, version: &str) -> discovery::Resource {
    let mut message = message(resource, version);
    message.resource.as_mut().expect("a resource").value = vec![0xff];
    message
}

fn response(updates: Vec<discovery::Resource>, removals: &[&Resource]) -> DeltaDiscoveryResponse {
    DeltaDiscoveryResponse {
        resources: updates,
        removed_resources: removals
            .iter()
            .map(|resource| resource.id().name())
            .collect(),
        ..DeltaDiscoveryResponse::default()
    }
}

/// Names in a delta: `+` before updates, `-` before removals.
fn names(delta: &Delta) -> Vec<String> {
    let changes = crate::resource::changes(delta);
    let mut names: Vec<String> = changes
        .map(|(id, resource)| format!("{}{id}", if resource.is_some() { '+' } else { '-' }))
        .collect();
    names.sort();
    names
}

#[test]
fn nothing_takes_effect_before_the_commit() {
    let mut replica = Replica::default();
    let all = [endpoints("a"), backend("a"), rule(0, "a")];
    for resource in &all {
        replica.receive(response(vec![message(resource, "1")], &[]));
    }
    assert_eq!(names(&replica.commit()).len(), 3);
    assert_eq!(names(&replica.commit()), [""; 0]);
    replica.receive(response(vec![], &[&all[2], &all[1], &all[0]]));
    let removed: Vec<String> = names(&replica.commit());
    assert!(
        removed.iter().all(|name| name.starts_with('-')),
        "{removed:?}"
    );
    assert_eq!(removed.len(), 3);
    assert!(replica.is_empty() && replica.digest().is_empty());
}

#[test]
fn a_broken_resource_is_rejected_alone_and_keeps_its_last_good_version() {
    let mut replica = Replica::default();
    replica.receive(response(vec![message(&rule(0, "a"), "1")], &[]));
    replica.commit();
    let before = replica.digest();
    replica.receive(response(
        vec![broken(&rule(0, "b"), "2"), message(&rule(1, "a"), "1")],
        &[],
    ));
    assert_eq!(
        names(&replica.commit()),
        ["+rule/HTTPRoute/shop/r/gateway/1/0"]
    );
    let rejected: Vec<_> = replica.rejected().collect();
    assert_eq!(rejected.len(), 1);
    assert_eq!(
        (&*rejected[0].name, &*rejected[0].version),
        ("rule/HTTPRoute/shop/r/gateway/0/0", "2")
    );
    assert!(
        rejected[0].message.contains("not a valid message"),
        "{}",
        rejected[0].message
    );
    let held = Fingerprint::new("rule/HTTPRoute/shop/r/gateway/0/0", "1");
    assert_ne!(before, replica.digest());
    assert!(
        replica
            .versions(&[held.bucket().into()])
            .contains(&(rejected[0].name.clone(), "1".to_owned()))
    );
    replica.receive(response(vec![message(&rule(0, "b"), "3")], &[]));
    assert_eq!(replica.rejected().count(), 0);
    assert_eq!(
        names(&replica.commit()),
        ["+rule/HTTPRoute/shop/r/gateway/0/0"]
    );
}

#[test]
fn references_of_a_retained_version_are_removed_only_when_a_valid_version_arrives() {
    let mut replica = Replica::default();
    let all = [endpoints("a"), backend("a"), rule(0, "a")];
    replica.receive(response(all.iter().map(|r| message(r, "1")).collect(), &[]));
    replica.commit();
    // The rule moves to another backend, in a way that this version does not understand; the old backend is no longer used.
    replica.receive(response(
        vec![
            message(&endpoints("b"), "1"),
            message(&backend("b"), "1"),
            broken(&all[2], "2"),
        ],
        &[&all[1], &all[0]],
    ));
    let changes = names(&replica.commit());
    assert_eq!(
        changes,
        [
            "+backend/Service/shop/b/80/tcp/",
            "+endpoints/Service/shop/b/80/tcp/"
        ]
    );
    replica.receive(response(vec![message(&rule(0, "b"), "3")], &[]));
    let changes = names(&replica.commit());
    let wanted = [
        "+rule/HTTPRoute/shop/r/gateway/0/0",
        "-backend/Service/shop/a/80/tcp/",
        "-endpoints/Service/shop/a/80/tcp/",
    ];
    assert_eq!(changes, wanted);
}

#[test]
fn a_removed_resource_that_comes_back_before_the_commit_is_not_removed() {
    let mut replica = Replica::default();
    replica.receive(response(vec![message(&backend("a"), "1")], &[]));
    replica.commit();
    replica.receive(response(vec![], &[&backend("a")]));
    replica.receive(response(vec![message(&backend("a"), "1")], &[]));
    assert_eq!(
        names(&replica.commit()),
        ["+backend/Service/shop/a/80/tcp/"]
    );
}

#[test]
fn types_of_a_newer_version_are_ignored_and_count_as_received() {
    let mut replica = Replica::default();
    let newer = discovery::Resource {
        name: "quota/shop/q".to_owned(),
        version: "1".to_owned(),
        resource: Some(prost_types::Any {
            type_url: "type.googleapis.com/pointsman.v1.Quota".to_owned(),
            value: vec![0xff],
        }),
    };
    replica.receive(response(vec![newer, message(&backend("a"), "1")], &[]));
    assert_eq!(replica.rejected().count(), 0);
    assert_eq!(
        names(&replica.commit()),
        ["+backend/Service/shop/a/80/tcp/"]
    );
    assert_eq!(replica.len(), 2, "it is not sent again after a reconnect");
    replica.receive(DeltaDiscoveryResponse {
        removed_resources: vec!["quota/shop/q".to_owned()],
        ..DeltaDiscoveryResponse::default()
    });
    assert_eq!(names(&replica.commit()), [""; 0]);
    assert_eq!(replica.len(), 1);
}

#[test]
fn ids_of_a_newer_version_are_rejected_alone() {
    let mut replica = Replica::default();
    let mut newer = message(&backend("a"), "1");
    newer.name = "backend/Volume/shop/v/80/tcp/".to_owned();
    let mut other_type = message(&backend("a"), "1");
    other_type.name = endpoints("a").id().name();
    replica.receive(response(
        vec![newer, other_type, message(&backend("a"), "1")],
        &[],
    ));
    assert_eq!(replica.rejected().count(), 2);
    assert_eq!(
        names(&replica.commit()),
        ["+backend/Service/shop/a/80/tcp/"]
    );
}

#[test]
fn an_encoded_replica_is_a_replica_with_the_same_digest() {
    let mut replica = Replica::default();
    let all = [endpoints("a"), backend("a"), rule(0, "a")];
    replica.receive(response(all.iter().map(|r| message(r, "1")).collect(), &[]));
    let mut copy = Replica::default();
    for chunk in replica.encode(|_| true) {
        copy.receive(DeltaDiscoveryResponse::decode(&*chunk).expect("a response"));
    }
    assert_eq!(copy.digest(), replica.digest());
    assert_eq!(names(&copy.commit()), names(&replica.commit()));
    let mut partial = Replica::default();
    for chunk in replica.encode(|kind| kind != ResourceType::Rule) {
        partial.receive(DeltaDiscoveryResponse::decode(&*chunk).expect("a response"));
    }
    assert_eq!(partial.len(), 2);
}

#[test]
fn a_changed_rule_is_held_back_while_a_new_backend_that_it_references_is_rejected() {
    let mut replica = Replica::default();
    let old = [endpoints("a"), backend("a"), rule(0, "a")];
    let all = old.iter().map(|resource| message(resource, "1"));
    replica.receive(response(all.collect(), &[]));
    replica.commit();
    // Another rule is new: without it, its requests would match another one.
    let changed = vec![
        broken(&backend("b"), "1"),
        message(&rule(0, "b"), "2"),
        message(&rule(1, "b"), "1"),
    ];
    replica.receive(response(changed, &[&old[0], &old[1]]));
    let delta = replica.commit();
    let changed: Vec<&RuleId> = delta.rules.iter().map(|(id, _)| id).collect();
    assert_eq!(changed, [&rule_id(1)]);
    assert!(delta.backends.is_empty(), "the old rule references it");
    let rejected: Vec<&str> = replica.rejected().map(|one| one.name.as_str()).collect();
    let name = |resource: &Resource| resource.id().name();
    assert_eq!(rejected, [name(&backend("b")), name(&rule(0, "b"))]);
    assert!(replica.is_committed());
    // What is stored is in effect.
    let mut restored = Replica::default();
    for chunk in replica.encode(|_| true) {
        let chunk = DeltaDiscoveryResponse::decode(&*chunk).expect("a response");
        restored.receive(chunk);
    }
    let stored = restored.commit();
    let (_, stored) = stored
        .rules
        .iter()
        .find(|(id, _)| *id == rule_id(0))
        .expect("it is stored");
    let target = &stored.as_ref().expect("a rule").backends[0].target;
    assert_eq!(*target, Ok(backend_id("a")));
    // A version that can be used releases it.
    replica.receive(response(vec![message(&backend("b"), "2")], &[]));
    let delta = replica.commit();
    let changed: Vec<&RuleId> = delta.rules.iter().map(|(id, _)| id).collect();
    assert_eq!(changed, [&rule_id(0)]);
    assert_eq!(
        delta.backends.len(),
        2,
        "one is new, the old one is removed"
    );
    assert_eq!(replica.rejected().count(), 0);
}
