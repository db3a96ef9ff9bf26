//! Mutated bytes: they cause no panic, and each resource is in effect either completely or not at all.

use std::collections::BTreeMap;
use std::sync::OnceLock;

use pointsman_binding::Delta;
use pointsman_routing::Tables;
use pointsman_wire::client::Replica;
use pointsman_wire::xds::discovery::{DeltaDiscoveryRequest, DeltaDiscoveryResponse};
use pointsman_wire::{changes, decode, encode};
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::Index;
use prost::Message;

use crate::support::*;

/// A change of bytes.
#[derive(Clone, Debug)]
enum Mutation {
    Set(Index, u8),
    Insert(Index, Vec<u8>),
    Remove(Index, u8),
    Copy(Index, Index, u8),
    Truncate(Index),
}

fn mutation() -> impl Strategy<Value = Mutation> {
    let index = any::<Index>;
    prop_oneof![
        4 => (index(), any::<u8>()).prop_map(|(at, byte)| Mutation::Set(at, byte)),
        2 => (index(), vec(any::<u8>(), 1..8)).prop_map(|(at, bytes)| Mutation::Insert(at, bytes)),
        2 => (index(), 1..16u8).prop_map(|(at, length)| Mutation::Remove(at, length)),
        2 => (index(), index(), 1..32u8).prop_map(|(from, to, length)| Mutation::Copy(from, to, length)),
        1 => index().prop_map(Mutation::Truncate),
    ]
}

fn mutate(bytes: &mut Vec<u8>, mutation: &Mutation) {
    if bytes.is_empty() {
        return;
    }
    let length = bytes.len();
    let end = |start: usize, count: u8| (start + usize::from(count)).min(length);
    match mutation {
        Mutation::Set(at, byte) => bytes[at.index(length)] = *byte,
        Mutation::Insert(at, new) => {
            let at = at.index(length);
            bytes.splice(at..at, new.iter().copied());
        }
        Mutation::Remove(at, count) => {
            let at = at.index(length);
            bytes.drain(at..end(at, *count));
        }
        Mutation::Copy(from, to, count) => {
            let (from, to) = (from.index(length), to.index(length));
            let part = bytes[from..end(from, *count)].to_vec();
            bytes.splice(to..to, part);
        }
        Mutation::Truncate(at) => bytes.truncate(at.index(length)),
    }
}

fn base() -> &'static DeltaDiscoveryResponse {
    static BASE: OnceLock<DeltaDiscoveryResponse> = OnceLock::new();
    BASE.get_or_init(|| {
        let mut response = DeltaDiscoveryResponse::decode(&*encode(&bind())).expect("a response");
        for resource in &mut response.resources {
            resource.version = "1".to_owned();
        }
        response
    })
}

/// The resources in effect, encoded.
type InEffect = BTreeMap<String, Vec<u8>>;

fn apply(state: &mut InEffect, delta: &Delta) {
    for (id, resource) in changes(delta) {
        match resource {
            Some(resource) => drop(state.insert(id.name(), resource.encode())),
            None => drop(state.remove(&id.name())),
        }
    }
}

/// Applies each resource of a response separately.
fn apply_alone(state: &mut InEffect, response: &DeltaDiscoveryResponse) {
    for resource in &response.resources {
        let alone = DeltaDiscoveryResponse {
            resources: vec![resource.clone()],
            ..DeltaDiscoveryResponse::default()
        };
        let decoded = decode(&alone.encode_to_vec()).expect("a response");
        apply(state, &decoded.delta);
    }
    for name in &response.removed_resources {
        state.remove(name);
    }
}

fn check(response: DeltaDiscoveryResponse) -> Result<(), TestCaseError> {
    let (mut replica, mut tables) = (Replica::default(), Tables::default());
    let (mut found, mut wanted) = (InEffect::new(), InEffect::new());
    for response in [base().clone(), response] {
        apply_alone(&mut wanted, &response);
        replica.receive(response);
        let delta = replica.commit();
        tables.apply(&delta);
        apply(&mut found, &delta);
    }
    // A removed resource that a retained version references stays.
    let retained = |name: &String| replica.rejected().count() > 0 && !wanted.contains_key(name);
    found.retain(|name, _| !retained(name));
    prop_assert_eq!(&found, &wanted);
    let buckets: Vec<u32> = (0..1024).collect();
    prop_assert_eq!(replica.versions(&buckets).len(), replica.len());
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 500, ..ProptestConfig::default() })]

    #[test]
    fn a_mutated_resource_is_in_effect_as_a_whole_or_not_at_all(
        at in any::<Index>(),
        mutations in vec(mutation(), 1..6)
    ) {
        let mut resource = at.get(&base().resources).clone();
        resource.version = "2".to_owned();
        let any = resource.resource.as_mut().expect("a value");
        mutations.iter().for_each(|mutation| mutate(&mut any.value, mutation));
        check(DeltaDiscoveryResponse { resources: vec![resource], ..DeltaDiscoveryResponse::default() })?;
    }

    #[test]
    fn a_mutated_response_is_rejected_as_a_whole_or_per_resource(
        start in any::<Index>(),
        mutations in vec(mutation(), 1..6)
    ) {
        let start = start.index(base().resources.len());
        let few = base().resources.iter().skip(start).take(5).cloned();
        let response = DeltaDiscoveryResponse {
            resources: few.collect(),
            removed_resources: vec![base().resources[0].name.clone()],
            ..DeltaDiscoveryResponse::default()
        };
        let mut bytes = response.encode_to_vec();
        mutations.iter().for_each(|mutation| mutate(&mut bytes, mutation));
        if let Ok(response) = DeltaDiscoveryResponse::decode(&*bytes) {
            check(response)?;
        }
    }
}

/// A proxy that sends mutated requests and reports does not affect others.
#[test]
fn mutated_requests_end_their_own_stream_at_most() {
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    let (server, address) = runtime.block_on(async { control_plane() });
    server.apply(pointsman_wire::server::encode_all(&bind()));
    let recordings = [
        ("proxy.bin", DELTA_PATH),
        ("proxy-resume.bin", DELTA_PATH),
        ("proxy-reports.bin", REPORT_PATH),
    ];
    let recordings =
        recordings.map(|(name, path)| (std::fs::read(data(name)).expect("a recording"), path));
    let mut runner = proptest::test_runner::TestRunner::new(ProptestConfig::with_cases(100));
    let input = (0..recordings.len(), vec(mutation(), 1..6));
    let run = runner.run(&input, |(which, mutations)| {
        let (bytes, path) = &recordings[which];
        let mut bytes = bytes.clone();
        mutations
            .iter()
            .for_each(|mutation| mutate(&mut bytes, mutation));
        runtime.block_on(async {
            let exchange = exchange(address, path, bytes);
            let limit = std::time::Duration::from_secs(10);
            let ended = tokio::time::timeout(limit, exchange).await;
            ended.expect("the control plane answers");
        });
        Ok(())
    });
    run.expect("no panic");
    // It still serves.
    let first = messages::<DeltaDiscoveryRequest>(&recordings[0].0).swap_remove(0);
    runtime.block_on(async {
        let (sender, mut received) = call(address, DELTA_PATH).await;
        sender.send(frame(&first)).expect("sent");
        let response = received.next::<DeltaDiscoveryResponse>().await;
        assert!(response.is_some_and(|response| !response.resources.is_empty()));
    });
}
