//! Random changes with proxies that connect, disconnect and are slow: after a commit, a proxy always has exactly the resources of its subscription.

use std::collections::BTreeMap;

use pointsman_resources::Name;
use proptest::prelude::*;
use prost::Message;

use super::*;
use crate::server::encoded_change::Payload;
use crate::server::selector::SubscriptionRoot;
use crate::xds::discovery::Resource;

/// A resource of the model: its content is a number.
#[derive(Clone, Debug)]
struct Node {
    content: u32,
    references: Vec<String>,
    parent: Option<String>,
    root: Option<SubscriptionRoot>,
}

fn now() -> Instant {
    Instant::now()
}

fn apply(store: &mut Store, changes: &[EncodedChange]) {
    store.apply(changes.to_vec(), now());
}

type Model = BTreeMap<String, Node>;

/// Names by layer: a resource references only those of lower layers, and parents are in higher ones.
fn name(layer: usize, number: usize) -> String {
    let kinds = [
        "secret",
        "endpoints",
        "backend",
        "rule",
        "route",
        "attachment",
        "frontend",
        "gateway",
    ];
    format!("{}/ns/{number}", kinds[layer])
}

fn payload(content: u32) -> Payload {
    Payload {
        version: content.into(),
        value: Box::default(),
    }
}

fn encoded(name: &str, node: Option<&Node>) -> EncodedChange {
    let kind = ResourceType::of_name(name).expect("a type");
    let update = node.map(|node| EncodedUpdate {
        fingerprint: Fingerprint::new(name, &payload(node.content).version_text()),
        payload: payload(node.content),
        references: node
            .references
            .iter()
            .map(|name| name.as_str().into())
            .collect(),
        parent: node.parent.as_deref().map(Into::into),
        root: node.root.clone().map(Box::new),
    });
    EncodedChange {
        name: name.into(),
        kind,
        routes: Vec::new(),
        update,
    }
}

/// Resources that a subscription reaches, computed from scratch.
fn reachable(model: &Model, subscription: &Subscription) -> BTreeMap<String, u32> {
    let mut found = BTreeMap::new();
    let mut open: Vec<&String> = match subscription {
        Subscription::Everything => model.keys().collect(),
        _ => {
            let selects = |node: &Node| node.root.as_ref().is_some_and(|r| subscription.selects(r));
            model
                .iter()
                .filter(|(_, node)| selects(node))
                .map(|(name, _)| name)
                .collect()
        }
    };
    while let Some(name) = open.pop() {
        let children = model
            .iter()
            .filter(|(_, node)| node.parent.as_ref() == Some(name));
        open.extend(
            children
                .map(|(name, _)| name)
                .filter(|name| !found.contains_key(*name)),
        );
        let Some(node) = model.get(name) else {
            continue;
        };
        if found.insert(name.clone(), node.content).is_none() {
            open.extend(&node.references);
        }
    }
    found
}

/// The test's model of a proxy.
#[derive(Clone, Debug)]
struct Receiver {
    id: ProxyId,
    subscription: Subscription,
    has: BTreeMap<String, u32>,
    /// Position of the last commit.
    position: Option<Position>,
}

impl Receiver {
    fn connect(store: &mut Store, subscription: Subscription) -> Receiver {
        let (id, resume) = store.connect(&subscription, &HashMap::new(), None, now());
        assert_eq!(resume, Resume::SendChanges);
        Receiver {
            id,
            subscription,
            has: BTreeMap::new(),
            position: None,
        }
    }

    fn versions(&self) -> HashMap<String, String> {
        let has = self.has.iter();
        has.map(|(name, content)| (name.clone(), payload(*content).version_text()))
            .collect()
    }

    /// Reconnects. Returns the number of resources that are sent to a proxy that was up to date.
    fn reconnect(&mut self, store: &mut Store, by_position: bool) {
        store.disconnect(self.id, now());
        let mut digest = Digest::default();
        for (name, version) in self.versions() {
            digest.add(Fingerprint::new(&name, &version));
        }
        let position = self.position.filter(|_| by_position);
        let (id, resume) =
            store.connect(&self.subscription, &digest.to_versions(), position, now());
        self.id = id;
        if let Resume::Compare(buckets) = resume {
            let mut versions = self.versions();
            versions.retain(|name, _| buckets.contains(&Fingerprint::new(name, "").bucket()));
            let mut found = Comparison::default();
            // In two parts.
            let (first, second) = versions
                .into_iter()
                .partition(|(name, _)| name.len() % 2 == 0);
            store.compare(id, first, &mut found);
            store.compare(id, second, &mut found);
            store.finish_comparison(id, &buckets, found);
        }
    }

    /// Receives one batch. Returns whether it ended in a commit, and the number of resources in it.
    fn receive(&mut self, store: &mut Store, bytes: usize) -> (bool, usize) {
        let Some(batch) = store.next_batch(self.id, bytes) else {
            self.reconnect(store, true);
            return (false, 0);
        };
        let number = batch.updates.len() + batch.removals.len();
        for (kind, message) in batch.updates {
            let resource = Resource::decode(message).expect("a resource");
            let content = u32::from_str_radix(&resource.version, 16).expect("a number");
            assert_eq!(ResourceType::of_name(&resource.name), Some(kind));
            self.has.insert(resource.name, content);
        }
        for (_, name) in batch.removals {
            self.has.remove(&*name);
        }
        // Between two commits a proxy has no position.
        let commit = batch.commit.and_then(|at| store.position_of(self.id, at));
        self.position = commit.map(|at| at.to_string().parse().expect("a position"));
        (batch.commit.is_some(), number)
    }

    fn receive_all(&mut self, store: &mut Store) -> usize {
        let mut number = 0;
        while store.has_changes(self.id) {
            number += self.receive(store, 64).1;
        }
        number
    }
}

#[derive(Clone, Debug)]
enum Step {
    Put {
        layer: usize,
        number: usize,
        content: u32,
        references: Vec<(usize, usize)>,
    },
    Remove {
        layer: usize,
        number: usize,
    },
    Commit,
    Receive {
        proxy: usize,
        bytes: usize,
    },
    Reconnect {
        proxy: usize,
        by_position: bool,
        /// Its new permitted subscription.
        subscription: Option<usize>,
    },
    Leave {
        proxy: usize,
    },
    Join {
        subscription: usize,
    },
}

fn step() -> impl Strategy<Value = Step> {
    let put = (
        0..8usize,
        0..3usize,
        0..3u32,
        prop::collection::vec((0..7usize, 0..3usize), 0..3),
    );
    prop_oneof![
        6 => put.prop_map(|(layer, number, content, references)| Step::Put {
            layer, number, content, references
        }),
        3 => (0..8usize, 0..3usize).prop_map(|(layer, number)| Step::Remove { layer, number }),
        3 => Just(Step::Commit),
        6 => (0..4usize, 1..200usize).prop_map(|(proxy, bytes)| Step::Receive { proxy, bytes }),
        1 => (0..4usize, any::<bool>(), prop::option::of(0..4usize)).prop_map(|(proxy, by_position, subscription)| Step::Reconnect {
            proxy, by_position, subscription
        }),
        1 => (0..4usize).prop_map(|proxy| Step::Leave { proxy }),
        1 => (0..4usize).prop_map(|subscription| Step::Join { subscription }),
    ]
}

fn subscription(number: usize) -> Subscription {
    let names: &[&str] = match number {
        0 => &["*"],
        1 => &["gateway/ns/0"],
        2 => &["gateway/ns/0", "gateway/ns/1"],
        _ => &["gateway/ns/2", "dataplane/2"],
    };
    let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
    Subscription::parse(&names).expect("a subscription")
}

/// Returns the node for a step. Parents depend only on the name, as with real ids.
fn node(layer: usize, number: usize, content: u32, references: &[(usize, usize)]) -> Node {
    let lower = references.iter().filter(|(of, _)| *of < layer.min(5));
    let mut references: Vec<String> = lower.map(|(layer, number)| name(*layer, *number)).collect();
    references.sort();
    references.dedup();
    let parent = match layer {
        3 => Some(name(4, number)),
        5 => Some(name(6, number)),
        6 => Some(name(7, number)),
        _ => None,
    };
    if layer == 5 {
        references.push(name(4, number));
        references.sort();
        references.dedup();
    }
    // Rules are children of routes, so no resource references rules, and routes reference no resources.
    references.retain(|reference| !reference.starts_with("rule") && layer != 4);
    let root = (layer == 7).then(|| SubscriptionRoot::Gateway(Name::new("ns", number.to_string())));
    // Content includes references: different references mean different content.
    let all = references.concat();
    let content = all.bytes().fold(content, |hash, byte| {
        hash.wrapping_mul(31).wrapping_add(byte.into())
    });
    Node {
        content,
        references,
        parent,
        root,
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, ..ProptestConfig::default() })]

    #[test]
    fn after_a_commit_a_proxy_has_exactly_the_resources_of_its_subscription(
        steps in prop::collection::vec(step(), 1..120)
    ) {
        let mut store = Store::default();
        let mut model = Model::new();
        let mut staged: BTreeMap<String, Option<Node>> = BTreeMap::new();
        let mut proxies: Vec<Receiver> = Vec::new();
        for step in steps {
            match step {
                Step::Put { layer, number, content, references } => {
                    staged.insert(name(layer, number), Some(node(layer, number, content, &references)));
                }
                Step::Remove { layer, number } => drop(staged.insert(name(layer, number), None)),
                Step::Commit => {
                    let mut changes: Vec<EncodedChange> = Vec::new();
                    for (name, node) in std::mem::take(&mut staged) {
                        changes.push(encoded(&name, node.as_ref()));
                        match node {
                            Some(node) => drop(model.insert(name, node)),
                            None => drop(model.remove(&name)),
                        }
                    }
                    apply(&mut store, &changes);
                }
                Step::Receive { proxy, bytes } => {
                    let Some(proxy) = proxies.get_mut(proxy) else { continue };
                    let (is_commit, _) = proxy.receive(&mut store, bytes);
                    if is_commit {
                        prop_assert_eq!(&proxy.has, &reachable(&model, &proxy.subscription));
                    }
                }
                Step::Reconnect { proxy, by_position, subscription: allowed } => {
                    if let Some(proxy) = proxies.get_mut(proxy) {
                        if let Some(allowed) = allowed {
                            proxy.subscription = subscription(allowed);
                        }
                        proxy.reconnect(&mut store, by_position);
                    }
                }
                Step::Leave { proxy } if proxy < proxies.len() => {
                    let gone = proxies.swap_remove(proxy);
                    store.disconnect(gone.id, now());
                }
                Step::Join { subscription: number } if proxies.len() < 4 => {
                    proxies.push(Receiver::connect(&mut store, subscription(number)));
                }
                Step::Leave { .. } | Step::Join { .. } => {}
            }
        }
        for proxy in &mut proxies {
            proxy.receive_all(&mut store);
            prop_assert_eq!(&proxy.has, &reachable(&model, &proxy.subscription));
            // A proxy that is up to date receives only a commit, even from a new store.
            for by_position in [true, false] {
                proxy.reconnect(&mut store, by_position);
                prop_assert_eq!(proxy.receive_all(&mut store), 0);
            }
        }
        let mut rebuilt = Store::default();
        let all: Vec<EncodedChange> = model.iter().map(|(name, node)| encoded(name, Some(node))).collect();
        apply(&mut rebuilt, &all);
        for proxy in &proxies {
            let mut proxy = proxy.clone();
            proxy.reconnect(&mut rebuilt, false);
            prop_assert_eq!(proxy.receive_all(&mut rebuilt), 0);
        }
        // No slots are leaked.
        let names: Vec<String> = model.keys().cloned().collect();
        for proxy in &proxies {
            store.disconnect(proxy.id, now());
        }
        apply(&mut store, &names.iter().map(|name| encoded(name, None)).collect::<Vec<_>>());
        prop_assert_eq!(store.slots.len(), 0);
        prop_assert!(store.sets.is_empty() && store.roots.is_empty());
        prop_assert_eq!(&store.digest, &Digest::default());
    }
}

/// A Gateway with this number of routes, each with its own rule and backend.
fn topology(routes: usize) -> Vec<EncodedChange> {
    let mut all = Vec::new();
    let mut put = |name: String, references: Vec<String>, parent: Option<String>, root| {
        let node = Node {
            content: 1,
            references,
            parent,
            root,
        };
        all.push(encoded(&name, Some(&node)));
    };
    let (gateway, frontend) = (name(7, 0), name(6, 0));
    for route in 0..routes {
        put(name(1, route), vec![], None, None);
        put(name(2, route), vec![name(1, route)], None, None);
        put(name(4, route), vec![], None, None);
        put(
            name(3, route),
            vec![name(2, route)],
            Some(name(4, route)),
            None,
        );
        put(
            name(5, route),
            vec![name(4, route)],
            Some(frontend.clone()),
            None,
        );
    }
    put(frontend, vec![], Some(gateway.clone()), None);
    put(
        gateway,
        vec![],
        None,
        Some(SubscriptionRoot::Gateway(Name::new("ns", "0"))),
    );
    all
}

fn changed_rule(route: usize, content: u32) -> EncodedChange {
    let node = Node {
        content,
        references: vec![name(2, route)],
        parent: Some(name(4, route)),
        root: None,
    };
    encoded(&name(3, route), Some(&node))
}

#[test]
fn a_changed_rule_is_one_message_and_pending_changes_are_coalesced() {
    for number in [0, 1] {
        let mut store = Store::default();
        apply(&mut store, &topology(100));
        let mut proxy = Receiver::connect(&mut store, subscription(number));
        proxy.receive_all(&mut store);
        assert_eq!(proxy.has.len(), 502);
        for content in 2..50 {
            apply(&mut store, &[changed_rule(7, content)]);
        }
        assert_eq!(
            proxy.receive(&mut store, 1000),
            (true, 1),
            "only the latest version is sent"
        );
        assert!(!store.has_changes(proxy.id));
    }
}

#[test]
fn a_reconnect_at_five_thousand_routes_transfers_only_what_changed() {
    for number in [0, 1] {
        for by_position in [true, false] {
            let mut store = Store::default();
            apply(&mut store, &topology(5000));
            let mut proxy = Receiver::connect(&mut store, subscription(number));
            // Another proxy keeps the set alive.
            let other = Receiver::connect(&mut store, subscription(number));
            proxy.receive_all(&mut store);
            store.disconnect(proxy.id, now());
            apply(
                &mut store,
                &[changed_rule(7, 2), encoded(&name(5, 8), None)],
            );
            proxy.reconnect(&mut store, by_position);
            let number = proxy.receive_all(&mut store);
            // Without its attachment, the route and its parts leave the set.
            let wanted = match other.subscription {
                Subscription::Everything => 2,
                Subscription::Selected(_) => 6,
            };
            assert_eq!(number, wanted, "{:?} {by_position}", other.subscription);
        }
    }
}

#[test]
fn a_proxy_that_missed_too_many_removals_reconnects_and_keeps_its_resources() {
    let mut store = Store::default();
    apply(&mut store, &topology(3));
    let mut proxy = Receiver::connect(&mut store, Subscription::Everything);
    proxy.receive_all(&mut store);
    for round in 0..3 {
        let names = (0..6000).map(|number| format!("endpoints/{round}/{number}"));
        let names: Vec<String> = names.collect();
        let node = Node {
            content: 1,
            references: vec![],
            parent: None,
            root: None,
        };
        apply(
            &mut store,
            &names
                .iter()
                .map(|name| encoded(name, Some(&node)))
                .collect::<Vec<_>>(),
        );
        apply(
            &mut store,
            &names
                .iter()
                .map(|name| encoded(name, None))
                .collect::<Vec<_>>(),
        );
    }
    assert!(store.log.horizon > 0, "removals were forgotten");
    assert!(
        store.next_batch(proxy.id, 1000).is_none(),
        "it has to connect again"
    );
    proxy.reconnect(&mut store, true);
    let sent = proxy.receive_all(&mut store);
    assert!(sent < 10_000, "{sent}");
    assert_eq!(proxy.has.len(), 17);
}

// "memory must not grow with routes × proxies"
#[test]
fn a_proxy_of_which_all_versions_differ_takes_four_bytes_per_resource() {
    let mut store = Store::default();
    apply(&mut store, &topology(1000));
    let mut proxy = Receiver::connect(&mut store, Subscription::Everything);
    proxy.receive_all(&mut store);
    proxy.has.values_mut().for_each(|content| *content += 7);
    proxy.position = None;
    proxy.reconnect(&mut store, true);
    let progress = &store.proxies[&proxy.id];
    assert_eq!(progress.backlog.len(), store.len());
    assert_eq!(size_of_val(&progress.backlog[0]), 4);
    assert!(progress.gone.is_empty());
    proxy.receive_all(&mut store);
    let progress = &store.proxies[&proxy.id];
    assert_eq!(progress.backlog.capacity(), 0, "the memory is freed");
}

#[test]
fn a_slow_proxy_keeps_nothing_but_its_position() {
    // A position, an empty backlog, no rejections and a few flags, regardless of the number of routes.
    assert!(std::mem::size_of::<Progress>() <= 192);
    let mut store = Store::default();
    apply(&mut store, &topology(1000));
    let slow = Receiver::connect(&mut store, Subscription::Everything);
    for content in 2..1000 {
        apply(&mut store, &[changed_rule(content as usize, content)]);
    }
    let progress = &store.proxies[&slow.id];
    assert_eq!(progress.backlog.capacity(), 0);
    assert_eq!(
        store.log.after(0).count(),
        5002,
        "each resource is in the log once"
    );
}
