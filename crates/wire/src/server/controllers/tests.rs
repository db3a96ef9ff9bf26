//! Several controllers that exchange reports know what one controller with all proxies would know, in whatever order messages arrive.

use std::collections::{BTreeMap, HashMap};
use std::net::Ipv4Addr;

use pointsman_binding::bound::{Attachment, FrontendId, RouteBinding, RouteId};
use pointsman_binding::{Change, Effect, Observation, OutdatedProxies, OwnServers, RouteEffect};
use pointsman_resources::{Kind, Name};
use proptest::prelude::*;

use super::*;
use crate::digest::Fingerprint;
use crate::id::ResourceId;
use crate::resource::ResourceType;
use crate::server::encoded_change::{EncodedChange, EncodedUpdate, Payload};
use crate::server::peer::{CredentialValidity, authorize_by_certificate};
use crate::server::proxies::ConnectedProxy;
use crate::server::selector::{Subscription, SubscriptionRoot};
use crate::server::service::Server;
use crate::server::store::{ProxyId, RoutesToExamine};

const GATEWAYS: [&str; 2] = ["edge", "internal"];

fn frontend(gateway: &str) -> FrontendId {
    FrontendId::Listener {
        gateway: Name::new("infra", gateway),
        owner: ObjectKey::new(Kind::Gateway, "infra", gateway),
        listener: "http".into(),
    }
}

fn encoded(
    name: String,
    version: u32,
    references: Vec<String>,
    parent: Option<String>,
) -> EncodedChange {
    let payload = Payload {
        version: version.into(),
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

/// Resources of a version of a route that is attached to all Gateways.
fn route(name: &str, version: u32) -> Vec<EncodedChange> {
    let id = RouteId {
        route: ObjectKey::new(Kind::HTTPRoute, "infra", name),
        binding: RouteBinding::Gateway,
    };
    let resource = ResourceId::Route(id.clone()).name();
    let rule = encoded(
        format!("rule/{name}/0"),
        version,
        vec![],
        Some(resource.clone()),
    );
    let mut all = vec![encoded(resource.clone(), 0, vec![], None), rule];
    for gateway in GATEWAYS {
        let attachment = Attachment::new(&frontend(gateway), &id);
        let parent = ResourceId::Frontend(frontend(gateway)).name();
        let attachment = ResourceId::Attachment(attachment).name();
        all.push(encoded(attachment, 0, vec![resource.clone()], Some(parent)));
    }
    for change in &mut all {
        change.routes = vec![id.route.clone()];
    }
    all
}

fn gateway(name: &str) -> [EncodedChange; 2] {
    let gateway = format!("gateway/infra/{name}");
    let mut request = encoded(gateway.clone(), 0, vec![], None);
    if let Some(update) = &mut request.update {
        update.root = Some(Box::new(SubscriptionRoot::Gateway(Name::new(
            "infra", name,
        ))));
    }
    let listener = ResourceId::Frontend(frontend(name)).name();
    [request, encoded(listener, 0, vec![], Some(gateway))]
}

/// An effect without the time since which proxies lag: a route that another controller has not received is pending for longer.
fn without_times(effect: &RouteEffect) -> RouteEffect {
    let stripped = |effect: &Effect| match effect {
        Effect::Partial(outdated) => Effect::Partial(Arc::new(OutdatedProxies {
            since: None,
            ..(**outdated).clone()
        })),
        other => other.clone(),
    };
    match effect {
        RouteEffect::Uniform(effect) => RouteEffect::Uniform(stripped(effect)),
        RouteEffect::PerFrontend(all) => {
            let all = all.iter();
            RouteEffect::PerFrontend(all.map(|(id, e)| (id.clone(), stripped(e))).collect())
        }
    }
}

/// A controller without streams of proxies, and what it has reported.
struct Controller {
    server: Server,
    effects: BTreeMap<String, RouteEffect>,
    observations: BTreeMap<Name, Observation>,
    /// Connected proxies, with the numbers of the streams of their reports.
    proxies: HashMap<usize, (ProxyId, u64)>,
}

impl Controller {
    fn new(name: &str) -> Self {
        let authorize = authorize_by_certificate(|_| Subscription::Everything);
        let server = Server::new(name.to_owned(), authorize, || {});
        let controllers = Arc::new(|_| -> crate::server::peer::ControllerAuthorizationFuture {
            Box::pin(std::future::ready(Ok(CredentialValidity::default())))
        });
        let server = server.with_controllers(name.into(), controllers);
        for name in GATEWAYS {
            server.apply(gateway(name).into());
        }
        Controller {
            server,
            effects: BTreeMap::new(),
            observations: BTreeMap::new(),
            proxies: HashMap::new(),
        }
    }

    fn connect(&mut self, proxy: usize, subscription: &[&str]) {
        let names = subscription
            .iter()
            .map(|name| format!("gateway/infra/{name}"));
        let subscription = Subscription::parse(&names.collect::<Vec<_>>()).expect("it is valid");
        let now = Instant::now();
        let name = format!("proxy-{proxy}");
        let id = {
            let mut state = self.server.state();
            let (id, _) = state
                .store
                .connect(&subscription, &HashMap::new(), None, now);
            let connected = ConnectedProxy {
                name: name.clone(),
                key: name.clone(),
                software: String::new(),
                address: (Ipv4Addr::LOCALHOST, 1).into(),
                identities: Vec::new(),
                subscription,
                connected: now,
                bytes: 0,
                rejected: BTreeMap::new(),
                rejected_count: 0,
            };
            state.proxies.insert(id, connected);
            id
        };
        let own = OwnServers::default();
        let stream = self.server.reports().start(&name, &name, own);
        self.server.schedule_reports(&[name]);
        self.proxies.insert(proxy, (id, stream));
    }

    fn acknowledge(&self, proxy: usize) {
        let mut state = self.server.state();
        let store = &mut state.store;
        let (id, _) = self.proxies[&proxy];
        while store.has_changes(id) {
            let batch = store.next_batch(id, 10_000).expect("a batch");
            if let Some(commit) = batch.commit {
                store.acknowledge(id, commit, Instant::now());
            }
        }
    }

    fn observe(&self, proxy: usize, gateway: &str, is_bound: bool) {
        let mut observation = Observation {
            addresses: vec![Ipv4Addr::new(192, 0, 2, proxy as u8).into()],
            ..Observation::default()
        };
        if !is_bound {
            observation
                .unbound
                .insert(frontend(gateway), "taken".to_owned());
        }
        let change = Change::Observe(Name::new("infra", gateway), Some(observation));
        let name = format!("proxy-{proxy}");
        let (_, stream) = self.proxies[&proxy];
        self.server.reports().apply(&name, stream, vec![change]);
        self.server.schedule_reports(&[name]);
    }

    fn leave(&mut self, proxy: usize) {
        let Some((id, stream)) = self.proxies.remove(&proxy) else {
            return;
        };
        let name = format!("proxy-{proxy}");
        {
            let mut state = self.server.state();
            state.store.disconnect(id, Instant::now());
            state.proxies.remove(id);
        }
        self.server.reports().end(&name, stream, Instant::now());
        self.server.schedule_reports(&[name]);
    }

    /// Does what the reconciler does when it is notified.
    fn examine(&mut self, routes: RoutesToExamine) {
        for change in self.server.take_reports() {
            match change {
                Change::Observe(gateway, Some(observation)) => {
                    drop(self.observations.insert(gateway, observation));
                }
                Change::Observe(gateway, None) => drop(self.observations.remove(&gateway)),
                _ => {}
            }
        }
        for (key, effect) in self.server.take_effects(routes, 1_000).changes {
            let name = key.name.name.to_string();
            match effect {
                Some(effect) => drop(self.effects.insert(name, without_times(&effect))),
                None => drop(self.effects.remove(&name)),
            }
        }
    }

    fn proxy_names(&self) -> Vec<String> {
        let proxies = self.server.proxies().into_iter();
        proxies.map(|proxy| proxy.name).collect()
    }
}

/// Two ends of a stream, each with the messages that it has sent and the other one has not received.
struct Wire {
    ends: [(usize, StreamId); 2],
    sent: [std::collections::VecDeque<crate::proto::ControllerReport>; 2],
    statuses: [BTreeMap<String, crate::proto::ConnectedProxy>; 2],
}

/// A leader, which is the first one, and its followers.
struct Cluster {
    controllers: Vec<Controller>,
    wires: Vec<Wire>,
    alone: Controller,
}

impl Cluster {
    fn new() -> Self {
        let mut cluster = Cluster {
            controllers: ["a", "b", "c"].map(Controller::new).into(),
            wires: Vec::new(),
            alone: Controller::new("alone"),
        };
        for follower in 1..3 {
            cluster.open_stream(0, follower);
        }
        cluster
    }

    fn open_stream(&mut self, leader: usize, follower: usize) {
        let open = |index: usize, forwards_others| {
            let server = &self.controllers[index].server;
            (index, server.open_controller_stream(forwards_others))
        };
        let ends = [open(leader, true), open(follower, false)];
        let mut wire = Wire {
            ends,
            sent: Default::default(),
            statuses: Default::default(),
        };
        for (end, (index, _)) in ends.iter().enumerate() {
            let server = &self.controllers[*index].server;
            wire.sent[end].push_back(reports::local_start(server));
        }
        self.wires.push(wire);
    }

    fn close_stream(&mut self, wire: usize) {
        for (index, stream) in self.wires.remove(wire).ends {
            self.controllers[index]
                .server
                .close_controller_stream(stream);
        }
    }

    /// Delivers one message from one end of a stream. Returns whether there was one.
    fn deliver(&mut self, wire: usize, end: usize) -> bool {
        let wire = &mut self.wires[wire];
        let (index, stream) = wire.ends[end];
        let server = &self.controllers[index].server;
        wire.sent[end].extend(stream::status_changes(server, &mut wire.statuses[end]));
        wire.sent[end].extend(server.next_report(stream));
        let Some(report) = wire.sent[end].pop_front() else {
            return false;
        };
        let (index, stream) = wire.ends[1 - end];
        let server = &self.controllers[index].server;
        server.receive_report(stream, report).expect("it is valid");
        true
    }

    fn deliver_all(&mut self) {
        let mut is_done = false;
        while !is_done {
            is_done = true;
            for end in 0..self.wires.len() * 2 {
                is_done &= !self.deliver(end / 2, end % 2);
            }
        }
    }

    /// Delivers everything and examines it, until nothing changes any more.
    fn settle(&mut self) {
        for _ in 0..4 {
            self.deliver_all();
            for controller in self.controllers.iter_mut().chain([&mut self.alone]) {
                controller.examine(RoutesToExamine::AllPending);
            }
        }
    }

    fn assert_equal(&self) {
        for controller in &self.controllers {
            let name = controller.server.name();
            assert_eq!(controller.effects, self.alone.effects, "{name}");
            assert_eq!(controller.observations, self.alone.observations, "{name}");
            assert_eq!(controller.proxy_names(), self.alone.proxy_names(), "{name}");
        }
    }

    fn apply(&mut self, step: &Step) {
        match step {
            Step::Route(number, version, at) => {
                let changes = route(&format!("route-{number}"), *version);
                let at = at.map_or(0..3, |at| at..at + 1);
                for controller in &mut self.controllers[at.clone()] {
                    controller.server.apply(changes.clone());
                    controller.examine(RoutesToExamine::Changed);
                }
                if at.contains(&0) {
                    self.alone.server.apply(changes.clone());
                    self.alone.examine(RoutesToExamine::Changed);
                }
            }
            Step::Connect(proxy, controller, gateways) => {
                let gateways = &GATEWAYS[..*gateways];
                self.leave(*proxy);
                self.controllers[*controller].connect(*proxy, gateways);
                self.alone.connect(*proxy, gateways);
            }
            Step::Acknowledge(proxy) => {
                self.each(*proxy, |controller| controller.acknowledge(*proxy));
            }
            Step::Observe(proxy, gateway, is_bound) => {
                let gateway = GATEWAYS[*gateway];
                self.each(*proxy, |c| c.observe(*proxy, gateway, *is_bound));
            }
            Step::Leave(proxy) => self.leave(*proxy),
            Step::Deliver(wire, end) => drop(self.deliver(*wire % self.wires.len(), *end)),
            Step::Examine(controller) => {
                self.controllers[*controller].examine(RoutesToExamine::AllPending)
            }
            Step::ReopenStream(follower) => {
                let is_of = |wire: &Wire| wire.ends[1].0 == *follower;
                let wire = self.wires.iter().position(is_of).expect("it is connected");
                self.close_stream(wire);
                self.open_stream(0, *follower);
            }
        }
    }

    fn each(&mut self, proxy: usize, act: impl Fn(&mut Controller)) {
        let all = self.controllers.iter_mut().chain([&mut self.alone]);
        all.filter(|controller| controller.proxies.contains_key(&proxy))
            .for_each(act);
    }

    fn leave(&mut self, proxy: usize) {
        self.each(proxy, |controller| controller.leave(proxy));
    }
}

#[derive(Clone, Debug)]
enum Step {
    /// A version of a route arrives at one controller, or at all.
    Route(usize, u32, Option<usize>),
    /// A proxy connects to a controller, for a number of Gateways.
    Connect(usize, usize, usize),
    Acknowledge(usize),
    /// A proxy can bind the port of a Gateway, or can't.
    Observe(usize, usize, bool),
    Leave(usize),
    /// One end of a stream receives a message.
    Deliver(usize, usize),
    Examine(usize),
    /// A follower's stream breaks, and it connects again.
    ReopenStream(usize),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        (0..3usize, 0..5u32, proptest::option::of(0..3usize))
            .prop_map(|(route, version, at)| Step::Route(route, version, at)),
        (0..4usize, 0..3usize, 1..3usize)
            .prop_map(|(proxy, controller, gateways)| Step::Connect(proxy, controller, gateways)),
        (0..4usize).prop_map(Step::Acknowledge),
        (0..4usize, 0..2usize, any::<bool>())
            .prop_map(|(proxy, gateway, is_bound)| { Step::Observe(proxy, gateway, is_bound) }),
        (0..4usize).prop_map(Step::Leave),
        (0..2usize, 0..2usize).prop_map(|(wire, end)| Step::Deliver(wire, end)),
        (0..2usize, 0..2usize).prop_map(|(wire, end)| Step::Deliver(wire, end)),
        (0..3usize).prop_map(Step::Examine),
        (1..3usize).prop_map(Step::ReopenStream),
    ]
}

fn paused(test: impl Future<Output = ()>) {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .start_paused(true)
        .build();
    runtime.expect("a runtime").block_on(test);
}

/// Longer than any reports of disconnected proxies count.
const LONG: Duration = Duration::from_secs(100);

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]
    #[test]
    fn each_of_several_controllers_knows_what_one_would_know(
        steps in proptest::collection::vec(step(), 0..60),
        lagging in 0..5usize,
    ) {
        paused(async {
            let mut cluster = Cluster::new();
            for step in &steps {
                cluster.apply(step);
            }
            // All controllers have the same configuration in the end, and all proxies but one run it.
            for number in 0..3 {
                cluster.apply(&Step::Route(number, 9, None));
            }
            for proxy in (0..4).filter(|proxy| *proxy != lagging) {
                cluster.apply(&Step::Acknowledge(proxy));
            }
            for _ in 0..2 {
                cluster.settle();
                tokio::time::advance(LONG).await;
            }
            cluster.settle();
            cluster.assert_equal();
        });
    }
}

fn lagging(controller: &Controller, route: &str) -> Vec<String> {
    match &controller.effects[route] {
        RouteEffect::Uniform(Effect::Partial(outdated)) => {
            outdated.lagging.iter().map(ToString::to_string).collect()
        }
        other => vec![format!("{other:?}")],
    }
}

/// Three controllers with a route, and proxies of the last two that run it.
fn started() -> Cluster {
    let mut cluster = Cluster::new();
    cluster.apply(&Step::Route(0, 1, None));
    for proxy in [1, 2] {
        cluster.apply(&Step::Connect(proxy, proxy, 2));
        cluster.apply(&Step::Acknowledge(proxy));
    }
    cluster.settle();
    cluster
}

// "True when EVERY connected proxy that serves it runs this generation; False, naming the proxies that lag"
#[test]
fn a_proxy_of_any_controller_that_lags_is_named_by_each() {
    paused(async {
        let mut cluster = started();
        for controller in &cluster.controllers {
            let effect = &controller.effects["route-0"];
            assert_eq!(*effect, RouteEffect::Uniform(Effect::InEffect));
        }
        cluster.apply(&Step::Route(0, 2, None));
        cluster.apply(&Step::Acknowledge(1));
        cluster.settle();
        let pending = RouteEffect::Uniform(Effect::Pending);
        assert_eq!(cluster.controllers[0].effects["route-0"], pending);
        tokio::time::advance(Duration::from_secs(2)).await;
        cluster.settle();
        for controller in &cluster.controllers {
            assert_eq!(lagging(controller, "route-0"), ["proxy-2"]);
        }
    });
}

#[test]
fn a_controller_that_has_not_received_a_change_lags_with_all_its_proxies() {
    paused(async {
        let mut cluster = started();
        for at in [0, 1] {
            cluster.apply(&Step::Route(0, 2, Some(at)));
        }
        cluster.apply(&Step::Acknowledge(1));
        tokio::time::advance(Duration::from_secs(2)).await;
        cluster.settle();
        let named = ["the proxies of replica c"];
        assert_eq!(lagging(&cluster.controllers[0], "route-0"), named);
        cluster.apply(&Step::Route(0, 2, Some(2)));
        cluster.apply(&Step::Acknowledge(2));
        cluster.settle();
        let effect = &cluster.controllers[0].effects["route-0"];
        assert_eq!(*effect, RouteEffect::Uniform(Effect::InEffect));
    });
}

#[test]
fn a_controller_that_is_lost_is_expected_back_before_its_proxies_do_not_count() {
    paused(async {
        let mut cluster = started();
        cluster.close_stream(1);
        let is = |cluster: &Cluster, effect: Effect| {
            assert_eq!(
                cluster.controllers[0].effects["route-0"],
                RouteEffect::Uniform(effect)
            );
        };
        cluster.settle();
        is(&cluster, Effect::InEffect);
        // Nothing is known of a change there. That is not reported as a problem.
        cluster.apply(&Step::Route(0, 2, None));
        cluster.apply(&Step::Acknowledge(1));
        tokio::time::advance(RECONNECT_GRACE / 2).await;
        cluster.settle();
        is(&cluster, Effect::Pending);
        tokio::time::advance(RECONNECT_GRACE).await;
        cluster.settle();
        is(&cluster, Effect::InEffect);
        assert_eq!(cluster.controllers[0].proxy_names(), ["proxy-1"]);
        assert_eq!(
            cluster.controllers[1].proxy_names(),
            ["proxy-1"],
            "it is relayed"
        );
        // When it is back, its proxies count again.
        cluster.open_stream(0, 2);
        cluster.settle();
        tokio::time::advance(Duration::from_secs(2)).await;
        cluster.settle();
        assert_eq!(lagging(&cluster.controllers[1], "route-0"), ["proxy-2"]);
    });
}

#[test]
fn a_new_leader_is_told_everything() {
    paused(async {
        let mut cluster = started();
        cluster.close_stream(1);
        cluster.close_stream(0);
        cluster.open_stream(1, 0);
        cluster.open_stream(1, 2);
        cluster.settle();
        cluster.assert_equal();
        cluster.apply(&Step::Route(0, 2, None));
        cluster.apply(&Step::Acknowledge(1));
        cluster.settle();
        tokio::time::advance(Duration::from_secs(2)).await;
        cluster.settle();
        for controller in &cluster.controllers {
            assert_eq!(lagging(controller, "route-0"), ["proxy-2"]);
        }
    });
}
