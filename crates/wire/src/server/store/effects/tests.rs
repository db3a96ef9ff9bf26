//! Proxies that acknowledge, lag, reject and disconnect, and the reported effects of routes.

use std::collections::BTreeMap;
use std::net::{Ipv4Addr, SocketAddr};

use pointsman_binding::bound::{Attachment, FrontendId, RouteBinding, RouteId};
use pointsman_binding::{Effect, OutdatedProxies};
use pointsman_resources::{Kind, Name};

use super::*;
use crate::digest::Fingerprint;
use crate::id::ResourceId;
use crate::resource::ResourceType;
use crate::server::authorize_by_certificate;
use crate::server::encoded_change::{EncodedChange, EncodedUpdate, Payload};
use crate::server::proxies::{ConnectedProxy, Proxies};
use crate::server::selector::{Subscription, SubscriptionRoot};
use crate::server::service::{Server, ServerState};

/// A control plane with Gateways and routes, without streams.
#[derive(Default)]
struct Plane {
    store: Store,
    proxies: Proxies,
    content: u32,
    reported: BTreeMap<String, Effect>,
    /// Number of changes that were reported.
    reports: usize,
    /// The time.
    unix: i64,
}

fn frontend(gateway: &str) -> FrontendId {
    FrontendId::Listener {
        gateway: Name::new("infra", gateway),
        owner: ObjectKey::new(Kind::Gateway, "infra", gateway),
        listener: "http".into(),
    }
}

fn route(name: &str) -> RouteId {
    RouteId {
        route: ObjectKey::new(Kind::HTTPRoute, "infra", name),
        binding: RouteBinding::Gateway,
    }
}

fn rule(name: &str) -> String {
    format!("rule/{name}/0")
}

impl Plane {
    fn encoded(
        &mut self,
        name: String,
        references: Vec<String>,
        parent: Option<String>,
    ) -> EncodedChange {
        self.content += 1;
        let payload = Payload {
            version: self.content.into(),
            value: Box::default(),
        };
        EncodedChange {
            kind: ResourceType::of_name(&name).expect("a type"),
            routes: Vec::new(),
            update: Some(EncodedUpdate {
                fingerprint: Fingerprint::new(&name, &payload.version_text()),
                payload,
                references: references.into_iter().map(Into::into).collect(),
                parent: parent.map(Into::into),
                root: None,
            }),
            name: name.into(),
        }
    }

    fn gateway(&mut self, name: &str) {
        let gateway = format!("gateway/infra/{name}");
        let mut request = self.encoded(gateway.clone(), vec![], None);
        if let Some(update) = &mut request.update {
            update.root = Some(Box::new(SubscriptionRoot::Gateway(Name::new(
                "infra", name,
            ))));
        }
        let listener = ResourceId::Frontend(frontend(name)).name();
        let listener = self.encoded(listener, vec![], Some(gateway));
        self.store.apply(vec![request, listener], Instant::now());
    }

    /// Adds a new version of a route that is attached to some Gateways.
    fn route(&mut self, name: &str, gateways: &[&str]) {
        let id = route(name);
        let resource = ResourceId::Route(id.clone()).name();
        let backend = format!("backend/{name}");
        let mut changes = vec![
            self.encoded(resource.clone(), vec![], None),
            self.encoded(rule(name), vec![backend.clone()], Some(resource.clone())),
        ];
        for gateway in gateways {
            let frontend = frontend(gateway);
            let attachment = Attachment::new(&frontend, &id);
            let attachment = ResourceId::Attachment(attachment).name();
            let parent = ResourceId::Frontend(frontend).name();
            if self.store.slots.find(&attachment).is_none() {
                changes.push(self.encoded(attachment, vec![resource.clone()], Some(parent)));
            }
        }
        for change in &mut changes {
            change.routes = vec![id.route.clone()];
        }
        if self.store.slots.find(&backend).is_none() {
            changes.push(self.encoded(backend, vec![], None));
        }
        self.store.apply(changes, Instant::now());
        self.examine(RoutesToExamine::Changed);
    }

    /// Connects a proxy that has a configuration, or none.
    fn connect(&mut self, name: &str, subscription: &[&str], has_configuration: bool) -> ProxyId {
        let names: Vec<String> = subscription.iter().map(|name| (*name).to_owned()).collect();
        let subscription = Subscription::parse(&names).expect("a subscription");
        let digest = match has_configuration {
            true => HashMap::from([("0".to_owned(), "something".to_owned())]),
            false => HashMap::new(),
        };
        let (id, _) = self
            .store
            .connect(&subscription, &digest, None, Instant::now());
        let proxy = ConnectedProxy {
            name: name.to_owned(),
            key: name.to_owned(),
            software: String::new(),
            address: SocketAddr::from((Ipv4Addr::LOCALHOST, 1)),
            identities: Vec::new(),
            subscription,
            connected: Instant::now(),
            bytes: 0,
            rejected: BTreeMap::new(),
            rejected_count: 0,
        };
        self.proxies.insert(id, proxy);
        id
    }

    /// Connects a proxy that subscribes to everything.
    fn join(&mut self, name: &str, subscription: &[&str]) -> ProxyId {
        let id = self.connect(name, subscription, false);
        self.acknowledge(id);
        id
    }

    /// A proxy acknowledges everything.
    fn acknowledge(&mut self, proxy: ProxyId) {
        while self.store.has_changes(proxy) {
            let batch = self.store.next_batch(proxy, 10_000).expect("a batch");
            if let Some(commit) = batch.commit {
                self.store.acknowledge(proxy, commit, Instant::now());
            }
        }
    }

    /// A proxy rejects these resources and no others.
    fn reject(&mut self, proxy: ProxyId, names: &[&str]) {
        let connected = self.proxies.get_mut(proxy).expect("a proxy");
        let reason = |name: &&str| ((*name).to_owned(), "unknown".to_owned());
        connected.rejected = names.iter().map(reason).collect();
        self.store.reject(proxy, names.iter().copied());
        self.store
            .finish_rejections(proxy, names.iter().copied(), Instant::now());
    }

    fn leave(&mut self, proxy: ProxyId) {
        self.store.disconnect(proxy, Instant::now());
        self.proxies.remove(proxy);
    }

    /// Examines all routes. Returns the time of the next examination.
    fn examine(&mut self, routes: RoutesToExamine) -> Option<Instant> {
        let mut found = EffectChanges::default();
        let mut cursor = None;
        let context = (&self.proxies, Instant::now(), self.unix);
        self.store.examine(routes, &mut cursor, context, &mut found);
        assert_eq!(cursor, None);
        for (key, effect) in found.changes {
            self.reports += 1;
            let name = key.name.name.to_string();
            match effect.as_deref() {
                Some(RouteEffect::Uniform(effect)) => {
                    self.reported.insert(name, effect.clone());
                }
                Some(RouteEffect::PerFrontend(all)) => {
                    for (id, effect) in all {
                        let FrontendId::Listener { gateway, .. } = id else {
                            continue;
                        };
                        let name = format!("{name}@{}", gateway.name);
                        self.reported.insert(name, effect.clone());
                    }
                }
                None => drop(self.reported.remove(&name)),
            }
        }
        found.next
    }

    fn effect(&mut self, route: &str) -> Effect {
        self.examine(RoutesToExamine::AllPending);
        self.reported[route].clone()
    }

    /// Names of the proxies that are reported to lag.
    fn lagging(&mut self, route: &str) -> String {
        match self.effect(route) {
            Effect::Partial(outdated) => {
                let OutdatedProxies {
                    lagging,
                    has_more_lagging,
                    ..
                } = &*outdated;
                let mut names: Vec<&str> = lagging.iter().map(|name| &**name).collect();
                names.extend(has_more_lagging.then_some("and others"));
                names.join(" ")
            }
            other => format!("{other:?}"),
        }
    }
}

async fn wait(time: Duration) {
    tokio::time::advance(time).await;
}

/// One Gateway with one route and one proxy that is up to date.
fn one_of_each() -> (Plane, ProxyId) {
    let mut plane = Plane::default();
    plane.gateway("edge");
    plane.route("shop", &["edge"]);
    let proxy = plane.join("edge-1", &["*"]);
    assert_eq!(plane.effect("shop"), Effect::InEffect);
    (plane, proxy)
}

#[tokio::test(start_paused = true)]
async fn a_change_is_pending_until_all_proxies_have_acknowledged_it() {
    let (mut plane, one) = one_of_each();
    let other = plane.join("edge-2", &["gateway/infra/edge"]);
    plane.examine(RoutesToExamine::AllPending);
    let before = plane.reports;
    plane.route("shop", &["edge"]);
    assert_eq!(plane.effect("shop"), Effect::Pending);
    wait(GRACE / 4).await;
    plane.acknowledge(one);
    assert_eq!(plane.effect("shop"), Effect::Pending);
    plane.acknowledge(other);
    assert_eq!(plane.effect("shop"), Effect::InEffect);
    assert_eq!(plane.reports, before + 2);
    assert_eq!(plane.store.pending_routes(), 0);
    let histogram = plane.store.effect_histogram();
    assert_eq!(
        histogram.counts.iter().sum::<u64>(),
        1,
        "the change, and no connection"
    );
    assert_eq!(histogram.sum, GRACE / 4);
}

#[tokio::test(start_paused = true)]
async fn a_proxy_that_does_not_acknowledge_a_change_in_time_is_named() {
    let (mut plane, slow) = one_of_each();
    let fast = plane.join("edge-2", &["*"]);
    plane.route("shop", &["edge"]);
    plane.acknowledge(fast);
    let wake = plane.examine(RoutesToExamine::AllPending);
    assert_eq!(
        wake,
        Some(Instant::now() + GRACE),
        "it is examined again then"
    );
    wait(GRACE).await;
    assert_eq!(plane.lagging("shop"), "edge-1");
    // Another change does not begin a new grace period.
    plane.route("shop", &["edge"]);
    plane.acknowledge(fast);
    assert_eq!(plane.lagging("shop"), "edge-1");
    plane.acknowledge(slow);
    assert_eq!(plane.effect("shop"), Effect::InEffect);
}

// "True carries no counts, so that scaling proxies writes no status."
#[tokio::test(start_paused = true)]
async fn proxies_that_connect_or_disconnect_change_nothing_while_one_is_left() {
    let (mut plane, first) = one_of_each();
    let before = plane.reports;
    let proxies: Vec<ProxyId> = (0..10)
        .map(|n| plane.join(&format!("p{n}"), &["*"]))
        .collect();
    plane.examine(RoutesToExamine::AllPending);
    plane.leave(first);
    plane.examine(RoutesToExamine::AllPending);
    for proxy in &proxies[1..] {
        plane.leave(*proxy);
    }
    plane.examine(RoutesToExamine::AllPending);
    assert_eq!(plane.reports, before);
    assert_eq!(plane.store.pending_routes(), 0);
}

#[tokio::test(start_paused = true)]
async fn without_proxies_the_effect_is_unknown_at_once_except_shortly_after_the_start() {
    let mut plane = Plane::default();
    plane.gateway("edge");
    plane.route("shop", &["edge"]);
    assert_eq!(plane.effect("shop"), Effect::Reconnecting);
    wait(START_GRACE).await;
    assert_eq!(plane.effect("shop"), Effect::NoProxy);
    plane.route("new", &["edge"]);
    assert_eq!(plane.effect("new"), Effect::NoProxy);
}

#[tokio::test(start_paused = true)]
async fn a_short_disconnection_is_not_reported_as_one() {
    let (mut plane, proxy) = one_of_each();
    wait(START_GRACE).await;
    plane.leave(proxy);
    assert_eq!(plane.effect("shop"), Effect::Reconnecting);
    wait(RECONNECT_GRACE / 2).await;
    let proxy = plane.join("edge-1", &["*"]);
    assert_eq!(plane.effect("shop"), Effect::InEffect);
    plane.leave(proxy);
    plane.examine(RoutesToExamine::AllPending);
    wait(RECONNECT_GRACE).await;
    assert_eq!(plane.effect("shop"), Effect::NoProxy);
}

#[tokio::test(start_paused = true)]
async fn a_proxy_counts_only_for_routes_in_its_subscription() {
    let mut plane = Plane::default();
    plane.gateway("edge");
    plane.gateway("internal");
    plane.route("shop", &["edge", "internal"]);
    plane.route("admin", &["internal"]);
    let edge = plane.join("edge-1", &["gateway/infra/edge"]);
    let internal = plane.join("internal-1", &["gateway/infra/internal"]);
    assert_eq!(plane.effect("shop"), Effect::InEffect);
    plane.route("admin", &["internal"]);
    plane.route("shop", &["edge", "internal"]);
    plane.acknowledge(edge);
    wait(GRACE).await;
    assert_eq!(plane.lagging("admin"), "internal-1");
    assert_eq!(plane.lagging("shop@internal"), "internal-1");
    assert_eq!(plane.effect("shop@edge"), Effect::InEffect);
    // Changes for other proxies only are not waited for.
    plane.acknowledge(internal);
    plane.examine(RoutesToExamine::AllPending);
    plane.route("other", &["internal"]);
    plane.route("third", &["edge"]);
    plane.acknowledge(edge);
    wait(GRACE).await;
    assert_eq!(plane.effect("third"), Effect::InEffect);
    assert_eq!(plane.lagging("other"), "internal-1");
}

#[tokio::test(start_paused = true)]
async fn a_route_is_not_lagging_where_only_other_routes_are() {
    let (mut plane, proxy) = one_of_each();
    plane.route("new", &["edge"]);
    wait(GRACE).await;
    assert_eq!(plane.lagging("new"), "edge-1");
    assert_eq!(plane.effect("shop"), Effect::InEffect);
    plane.leave(proxy);
}

#[tokio::test(start_paused = true)]
async fn a_removed_rule_is_waited_for() {
    let (mut plane, proxy) = one_of_each();
    let removal = EncodedChange {
        name: rule("shop").into(),
        kind: ResourceType::Rule,
        routes: vec![route("shop").route],
        update: None,
    };
    plane.store.apply(vec![removal], Instant::now());
    assert_eq!(plane.effect("shop"), Effect::Pending);
    plane.acknowledge(proxy);
    assert_eq!(plane.effect("shop"), Effect::InEffect);
}

#[tokio::test(start_paused = true)]
async fn a_proxy_that_connects_with_a_configuration_and_stays_silent_lags() {
    let (mut plane, _) = one_of_each();
    let silent = plane.connect("edge-2", &["*"], true);
    let fresh = plane.connect("edge-3", &["*"], false);
    wait(GRACE / 2).await;
    assert_eq!(plane.effect("shop"), Effect::InEffect);
    wait(GRACE / 2).await;
    assert_eq!(plane.lagging("shop"), "edge-2");
    // A new proxy does not count yet, but has to after a grace period.
    wait(START_GRACE).await;
    assert_eq!(plane.lagging("shop"), "edge-2 edge-3");
    plane.acknowledge(silent);
    plane.acknowledge(fresh);
    assert_eq!(plane.effect("shop"), Effect::InEffect);
}

#[tokio::test(start_paused = true)]
async fn a_rejected_resource_concerns_the_routes_that_use_it() {
    let (mut plane, proxy) = one_of_each();
    plane.route("other", &["edge"]);
    plane.acknowledge(proxy);
    for resource in [rule("shop"), "backend/shop".to_owned()] {
        plane.reject(proxy, &[&resource]);
        let Effect::Partial(outdated) = plane.effect("shop") else {
            panic!("it is not in effect");
        };
        let wanted = ("edge-1".into(), resource.as_str().into(), "unknown".into());
        assert_eq!(outdated.rejections, [wanted].into());
        assert_eq!(plane.effect("other"), Effect::InEffect);
        plane.reject(proxy, &[]);
        assert_eq!(plane.effect("shop"), Effect::InEffect, "{resource}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_slot_of_a_rejected_resource_is_not_used_for_another_one() {
    let (mut plane, proxy) = one_of_each();
    plane.reject(proxy, &["backend/shop"]);
    for name in [rule("shop"), "backend/shop".to_owned()] {
        let removal = EncodedChange {
            kind: ResourceType::of_name(&name).expect("a type"),
            name: name.into(),
            routes: Vec::new(),
            update: None,
        };
        plane.store.apply(vec![removal], Instant::now());
    }
    plane.acknowledge(proxy);
    plane.route("other", &["edge"]);
    assert!(plane.store.slots.find("backend/shop").is_some());
    plane.leave(proxy);
    plane.route("other", &["edge"]);
    assert!(plane.store.slots.find("backend/shop").is_none());
}

#[tokio::test(start_paused = true)]
async fn the_proxies_that_lag_are_listed_up_to_a_bound_and_updated_at_intervals() {
    let (mut plane, first) = one_of_each();
    let others: Vec<ProxyId> = (2..9)
        .map(|n| plane.join(&format!("edge-{n}"), &["*"]))
        .collect();
    plane.examine(RoutesToExamine::AllPending);
    plane.route("shop", &["edge"]);
    wait(GRACE).await;
    assert!(plane.lagging("shop").ends_with(" and others"));
    let before = plane.reports;
    plane.acknowledge(first);
    for proxy in &others[..6] {
        plane.acknowledge(*proxy);
        plane.examine(RoutesToExamine::AllPending);
    }
    assert_eq!(
        plane.reports, before,
        "a status is not written for each of them"
    );
    wait(UPDATE_INTERVAL).await;
    assert_eq!(plane.lagging("shop"), "edge-8");
    plane.acknowledge(others[6]);
    assert_eq!(
        plane.effect("shop"),
        Effect::InEffect,
        "this is not waited for"
    );
}

#[tokio::test(start_paused = true)]
async fn the_time_since_which_proxies_lag_does_not_change() {
    let (mut plane, _) = one_of_each();
    plane.route("shop", &["edge"]);
    let since = |effect: Effect| match effect {
        Effect::Partial(outdated) => outdated.since,
        other => panic!("{other:?}"),
    };
    wait(GRACE).await;
    plane.unix = 1_001;
    let first = since(plane.effect("shop"));
    let before = plane.reports;
    // The clock has passed a full second, the age has not.
    wait(UPDATE_INTERVAL + GRACE / 2).await;
    plane.unix = 1_007;
    assert_eq!(since(plane.effect("shop")), first);
    assert_eq!(plane.reports, before, "nothing is written");
}

#[tokio::test(start_paused = true)]
async fn a_route_without_resources_has_no_effect() {
    let (mut plane, _) = one_of_each();
    let id = route("shop");
    let attachment = Attachment::new(&frontend("edge"), &id);
    let names = [
        (
            ResourceId::Attachment(attachment).name(),
            ResourceType::Attachment,
        ),
        (rule("shop"), ResourceType::Rule),
        (ResourceId::Route(id).name(), ResourceType::Route),
    ];
    let removals = names.map(|(name, kind)| EncodedChange {
        name: name.into(),
        kind,
        routes: Vec::new(),
        update: None,
    });
    plane.store.apply(removals.into(), Instant::now());
    plane.examine(RoutesToExamine::Changed);
    assert!(plane.reported.is_empty());
    assert!(plane.store.effects.ids.is_empty());
}

// A Kuma policy has no attachments: it is in effect where the rules that it contributes to are.
#[tokio::test(start_paused = true)]
async fn a_policy_is_in_effect_where_its_rules_are() {
    let (mut plane, proxy) = one_of_each();
    let policy = ObjectKey::new(Kind::MeshHTTPRoute, "mesh:default", "canary");
    let resource = ResourceId::Route(route("shop")).name();
    let mut change = plane.encoded(rule("shop"), vec![], Some(resource));
    change.routes = vec![policy];
    plane.store.apply(vec![change], Instant::now());
    assert_eq!(plane.effect("canary"), Effect::Pending);
    plane.acknowledge(proxy);
    assert_eq!(plane.effect("canary"), Effect::InEffect);
    assert_eq!(plane.effect("shop"), Effect::InEffect);
}

// "memory must not grow with routes × proxies"
#[tokio::test(start_paused = true)]
async fn memory_does_not_grow_with_routes_times_proxies() {
    let mut plane = Plane::default();
    plane.gateway("edge");
    for number in 0..100 {
        plane.route(&format!("route-{number}"), &["edge"]);
    }
    for number in 0..100 {
        plane.connect(&format!("proxy-{number}"), &["*"], true);
    }
    wait(GRACE).await;
    plane.examine(RoutesToExamine::AllPending);
    let effects = &plane.store.effects;
    assert_eq!(effects.pending.len(), 100);
    assert_eq!(effects.followers.len(), 1);
    let followers = &effects.followers[&LogId::Everything];
    assert_eq!(followers.acknowledged, BTreeMap::from([(None, 100)]));
    let named = |effect: &Effect| match effect {
        Effect::Partial(outdated) => outdated.lagging.len(),
        _ => panic!("it is not in effect"),
    };
    assert!(plane.reported.values().all(|effect| named(effect) <= 5));
}

#[tokio::test(start_paused = true)]
async fn very_many_effects_are_taken_a_part_at_a_time() {
    const ROUTES: usize = 9_000;
    let mut plane = Plane::default();
    plane.gateway("edge");
    for number in 0..ROUTES {
        plane.route(&number.to_string(), &["edge"]);
    }
    plane.join("edge-1", &["*"]);
    let Plane { store, proxies, .. } = plane;
    let authorize = authorize_by_certificate(|_| Subscription::Everything);
    let server = Server::new("test".to_owned(), authorize, || {});
    *server.state() = ServerState {
        store,
        proxies,
        ..ServerState::default()
    };
    let mut taken = BTreeMap::new();
    loop {
        let found = server.take_effects(RoutesToExamine::AllPending, 1_000);
        let count = found.changes.len();
        assert!(count < ROUTES, "{count} at once");
        taken.extend(found.changes);
        match found.next {
            Some(next) => assert_eq!(next, Instant::now(), "the rest is due at once"),
            None => break,
        }
    }
    assert_eq!(taken.len(), ROUTES);
    let in_effect = RouteEffect::Uniform(Effect::InEffect);
    let is_in_effect = |effect: &Option<Arc<RouteEffect>>| effect.as_deref() == Some(&in_effect);
    assert!(taken.values().all(is_in_effect));
}
