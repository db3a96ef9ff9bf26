//! A MeshGateway: its listeners on each of the proxies that chose it, and the policies that govern them.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use pointsman_resources::kuma::{
    DataSource, ListenerProtocol, MeshGateway, MeshGatewayListener, MeshGatewayTlsMode, ProxyType,
    Tags, display_name, kubernetes_namespace, scope,
};
use pointsman_resources::route::{Header, HeaderModifier};
use pointsman_resources::{Kind, Name, ObjectKey};

use super::cross_mesh;
use super::destination::{PolicyOutcome, frontend, merged_route};
use super::lowering::{Callers, PolicyLowering, content};
use super::merge::{EffectiveRule, group_by_hostname, merge, sort_by_strength};
use super::policy::{MeshPolicy, ToItem};
use super::proxy::{self, MeshProxy};
use super::selection::has_tags;
use crate::bound::{
    BoundRule, Filter, FrontendId, FrontendTls, Hostname, Protocol, RouteBinding, SecretId,
    TlsModeKey,
};
use crate::certificates;
use crate::status::{Condition, ListenerStatus};
use crate::store::Reader;

/// A MeshGateway, as it was found to be.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct MeshGatewayView {
    /// What comes of it.
    pub outcome: PolicyOutcome,
    /// What is said of each listener.
    pub listeners: Vec<ListenerStatus>,
    /// The proxies that chose it.
    pub proxies: Vec<ObjectKey>,
    /// Proxies that it would be for and that have chosen another.
    pub chose_another: Vec<(ObjectKey, Name)>,
    /// The items of policies for it, and whether a listener serves one of their hostnames.
    pub items: BTreeMap<ToItemId, bool>,
}

/// A policy, and the place of one of its `to`.
pub(crate) type ToItemId = (ObjectKey, usize);

/// Looks at a MeshGateway. None if it does not exist.
pub(crate) fn bind_gateway(
    reader: &Reader<'_>,
    key: &ObjectKey,
    policies: &BTreeMap<ObjectKey, Arc<MeshPolicy>>,
) -> Option<MeshGatewayView> {
    let gateway = reader.mesh_gateway(&key.name)?;
    let mut proxies = proxies_of(reader, gateway);
    let mut view = MeshGatewayView {
        proxies: proxies.iter().map(|proxy| proxy.key.clone()).collect(),
        ..MeshGatewayView::default()
    };
    if proxies.is_empty() {
        view.chose_another = proxies_of_others(reader, gateway);
        proxies.push(placeholder_proxy(key, gateway));
    }
    let policies = policies_of_mesh(policies, gateway);
    for (index, listener) in gateway.spec.conf.listeners.iter().enumerate() {
        let mut resolver = ListenerResolver::new(reader, key, gateway, index);
        // A port for streams has one listener: hostnames can't be told apart there.
        let mut before = gateway.spec.conf.listeners[..index].iter();
        let is_first = !before.any(|other| other.port == listener.port);
        let tls = resolver.tls();
        for proxy in &proxies {
            match protocol(listener) != Protocol::Tcp || is_first {
                true => resolver.bind_on(proxy, tls.as_ref(), &policies, &mut view.outcome),
                // The first speaks for all.
                false => resolver.attach_to_shared_port(proxy, &policies),
            }
        }
        for (item, met) in std::mem::take(&mut resolver.found) {
            *view.items.entry(item).or_default() |= met;
        }
        view.listeners.push(resolver.status());
    }
    Some(view)
}

/// The proxies that chose a MeshGateway.
fn proxies_of(reader: &Reader<'_>, gateway: &MeshGateway) -> Vec<MeshProxy> {
    let proxies = reader.gateway_proxies(&gateway.mesh);
    let proxies = proxies.filter_map(|found| proxy::resolve_proxy(reader, &found));
    let is_chosen = |proxy: &MeshProxy| {
        gateway_for(reader, proxy)
            .is_some_and(|chosen| chosen.metadata.key() == gateway.metadata.key())
    };
    proxies.filter(is_chosen).collect()
}

/// The proxies that a MeshGateway that nobody serves would be for, with those that they have chosen.
fn proxies_of_others(reader: &Reader<'_>, gateway: &MeshGateway) -> Vec<(ObjectKey, Name)> {
    let proxies = reader.gateway_proxies(&gateway.mesh);
    let proxies = proxies.filter_map(|found| proxy::resolve_proxy(reader, &found));
    proxies
        .filter(|proxy| rank(gateway, proxy).is_some())
        .filter_map(|proxy| Some((gateway_for(reader, &proxy)?.metadata.key(), proxy)))
        .map(|(chosen, proxy)| (proxy.key, chosen))
        .collect()
}

/// A listener and the items that govern it, by hostname.
pub(crate) type ListenerItems<'p> = (String, BTreeMap<&'p str, Vec<ToItem<'p>>>);

/// The listeners of a MeshGateway on one of its proxies, else on the first, each with the items that govern it, the strongest first.
pub(crate) fn listeners<'p>(
    reader: &Reader<'_>,
    key: &ObjectKey,
    on: Option<&ObjectKey>,
    policies: &'p BTreeMap<ObjectKey, Arc<MeshPolicy>>,
) -> Vec<ListenerItems<'p>> {
    let Some(gateway) = reader.mesh_gateway(&key.name) else {
        return Vec::new();
    };
    let mut proxies = proxies_of(reader, gateway).into_iter();
    let found = proxies.find(|proxy| on.is_none_or(|on| proxy.key == *on));
    let proxy = found.unwrap_or_else(|| placeholder_proxy(key, gateway));
    let policies = policies_of_mesh(policies, gateway);
    let of = |index| {
        let listener = ListenerResolver::new(reader, key, gateway, index);
        let items = listener.items(&proxy, &policies, listener.is_http());
        (
            listener_name(listener.listener),
            listener.by_hostname(&items),
        )
    };
    (0..gateway.spec.conf.listeners.len()).map(of).collect()
}

/// The policies of a MeshGateway's mesh.
fn policies_of_mesh<'p>(
    policies: &'p BTreeMap<ObjectKey, Arc<MeshPolicy>>,
    gateway: &MeshGateway,
) -> Vec<&'p Arc<MeshPolicy>> {
    let all = policies.values();
    all.filter(|policy| policy.route.mesh == gateway.mesh)
        .collect()
}

/// The MeshGateway that a proxy chooses: "best tag-selector rank; tie => most recently created".
pub(super) fn gateway_for<'a>(reader: &Reader<'a>, proxy: &MeshProxy) -> Option<&'a MeshGateway> {
    reader
        .mesh_gateways(&proxy.mesh)
        .filter_map(|gateway| Some((rank(gateway, proxy)?, gateway)))
        .max_by_key(|(rank, gateway)| {
            let metadata = &gateway.metadata;
            (*rank, metadata.age(), Reverse(metadata.key()))
        })
        .map(|(_, gateway)| gateway)
}

/// How well a MeshGateway fits a proxy; none if it does not.
fn rank(gateway: &MeshGateway, proxy: &MeshProxy) -> Option<(usize, usize)> {
    let fitting = gateway.spec.selectors.iter().filter(|selector| {
        let mut sets = proxy.tag_sets.iter();
        sets.any(|tags| has_tags(tags, &selector.tags))
    });
    let ranks = fitting.map(|selector| {
        let exact = selector.tags.values().filter(|value| *value != "*").count();
        (selector.tags.len(), exact)
    });
    ranks.max()
}

/// For a MeshGateway that nobody serves: what it would do.
fn placeholder_proxy(key: &ObjectKey, gateway: &MeshGateway) -> MeshProxy {
    let selectors = gateway.spec.selectors.iter();
    MeshProxy {
        key: key.clone(),
        metadata: gateway.metadata.clone(),
        mesh: gateway.mesh.clone(),
        namespace: kubernetes_namespace(&gateway.metadata).map(Arc::from),
        tag_sets: selectors.map(|selector| selector.tags.clone()).collect(),
        outbounds: Vec::new(),
        unresolved: Vec::new(),
        is_transparent: false,
        is_unrestricted: false,
        kind: ProxyType::Gateway,
    }
}

/// The name under which a gateway's ports are found. None of these can be a Gateway's of the Gateway API.
pub(crate) fn gateway_name(mesh: &str, proxy: &ObjectKey) -> Name {
    match proxy.kind {
        Kind::Dataplane if proxy.namespace().starts_with("mesh:") => proxy.name.clone(),
        Kind::MeshGateway => Name::new(scope(mesh), format!("MeshGateway {}", proxy.name.name)),
        // Neither another kind nor a universal document has a space in its name.
        kind => {
            let name = format!("{kind} {}/{}", proxy.namespace(), proxy.name.name);
            Name::new(scope(mesh), name)
        }
    }
}

/// Returns whether a name is that of a proxy's ports, whatever its mesh.
pub(crate) fn is_gateway_name(name: &Name, proxy: &ObjectKey) -> bool {
    *name == gateway_name(name.namespace.trim_start_matches("mesh:"), proxy)
}

/// A listener of a MeshGateway on one of its proxies.
pub(super) fn frontend_id(
    gateway: &MeshGateway,
    proxy: &MeshProxy,
    listener: &MeshGatewayListener,
) -> FrontendId {
    FrontendId::Listener {
        gateway: gateway_name(&proxy.mesh, &proxy.key),
        owner: ObjectKey {
            kind: Kind::MeshGateway,
            name: gateway.metadata.key(),
        },
        listener: listener_name(listener).into(),
    }
}

/// "Effective listener tags = dataplane gateway tags ∪ gateway `tags` ∪ listener `tags`."
pub(super) fn listener_tags(
    proxy: &MeshProxy,
    gateway: &MeshGateway,
    listener: &MeshGatewayListener,
) -> Tags {
    let sets = proxy.tag_sets.iter();
    sets.chain([&gateway.spec.tags, &listener.tags])
        .flatten()
        .map(|(name, value)| (name.clone(), value.clone()))
        .collect()
}

/// A listener has no name of its own: its port, and its hostname if it has one.
fn listener_name(listener: &MeshGatewayListener) -> String {
    match listener.hostname() {
        Some(hostname) => format!("{}/{hostname}", listener.port),
        None => listener.port.to_string(),
    }
}

struct ListenerResolver<'a, 'r> {
    reader: &'a Reader<'r>,
    key: &'a ObjectKey,
    gateway: &'a MeshGateway,
    /// Index of the listener.
    index: usize,
    listener: &'a MeshGatewayListener,
    unresolved: Vec<String>,
    /// Why it is not accepted.
    refused: Option<String>,
    attached: BTreeSet<ObjectKey>,
    found: BTreeMap<ToItemId, bool>,
    served: bool,
}

impl<'a, 'r> ListenerResolver<'a, 'r> {
    fn new(
        reader: &'a Reader<'r>,
        key: &'a ObjectKey,
        gateway: &'a MeshGateway,
        index: usize,
    ) -> Self {
        ListenerResolver {
            reader,
            key,
            gateway,
            index,
            listener: &gateway.spec.conf.listeners[index],
            unresolved: Vec::new(),
            refused: None,
            attached: BTreeSet::new(),
            found: BTreeMap::new(),
            served: true,
        }
    }
}

impl ListenerResolver<'_, '_> {
    fn protocol(&self) -> Protocol {
        protocol(self.listener)
    }

    fn terminates_tls(&self) -> bool {
        matches!(
            self.protocol(),
            Protocol::Https | Protocol::Tls(TlsModeKey::Terminate)
        )
    }

    fn is_http(&self) -> bool {
        matches!(self.protocol(), Protocol::Http | Protocol::Https)
    }

    /// The items by those of their hostnames that this listener serves some hosts of.
    fn by_hostname<'p>(&self, items: &[ToItem<'p>]) -> BTreeMap<&'p str, Vec<ToItem<'p>>> {
        let own = self.listener.hostname().map(Hostname::new);
        let mut groups = group_by_hostname(items);
        groups.retain(|written, _| match (&own, hosts(written)) {
            (None, _) | (_, None) => true,
            (Some(own), Some(hosts)) => own.intersects(&hosts),
        });
        groups
    }

    /// Its certificates, where TLS is ended here; of a listener for all meshes, what proxies show each other.
    fn tls(&mut self) -> Option<Arc<FrontendTls>> {
        if self.listener.cross_mesh {
            return match cross_mesh::server_tls(self.reader, &self.gateway.mesh) {
                Ok(tls) => tls,
                Err(why) => {
                    self.refused = Some(why);
                    None
                }
            };
        }
        let tls = self
            .listener
            .tls
            .as_ref()
            .filter(|_| self.terminates_tls())?;
        let mut certificates = Vec::new();
        for (index, certificate) in tls.certificates.iter().enumerate() {
            match self.certificate(index, certificate) {
                Ok(id) => certificates.push(id),
                Err(why) => self
                    .unresolved
                    .push(format!("tls.certificates[{index}]: {why}")),
            }
        }
        (!certificates.is_empty()).then(|| {
            Arc::new(FrontendTls {
                certificates,
                clients: None,
            })
        })
    }

    /// Validates a certificate and its key, together as PEM: in a secret, or here.
    fn certificate(&mut self, index: usize, certificate: &DataSource) -> Result<SecretId, String> {
        match certificate {
            DataSource::Secret(name) => {
                let found = certificates::mesh_secret(self.reader, &self.gateway.mesh, name)?;
                let retained = found.retained.into_iter();
                let retained = retained.map(|why| format!("tls.certificates[{index}]: {why}"));
                self.unresolved.extend(retained);
                Ok(found.id)
            }
            source => {
                let pem = content(self.reader, source)?;
                certificates::certificate_of(&pem)?;
                Ok(SecretId::Listener {
                    gateway: self.key.name.clone(),
                    listener: self.index,
                    certificate: index,
                })
            }
        }
    }

    /// The listener on one of the gateway's proxies.
    fn bind_on(
        &mut self,
        proxy: &MeshProxy,
        tls: Option<&Arc<FrontendTls>>,
        policies: &[&Arc<MeshPolicy>],
        outcome: &mut PolicyOutcome,
    ) {
        let name = listener_name(self.listener);
        let id = frontend_id(self.gateway, proxy, self.listener);
        let protocol = self.protocol();
        let is_http = self.is_http();
        let items = self.items(proxy, policies, is_http);
        let groups = match is_http {
            true => self.by_hostname(&items),
            false => BTreeMap::from([("", items.clone())]),
        };
        let mut lowering = PolicyLowering {
            reader: self.reader,
            mesh: &proxy.mesh,
            destination: None,
            http: is_http,
            callers: [proxy.key.clone()].into(),
            uses: std::mem::take(&mut outcome.uses),
            findings: std::mem::take(&mut outcome.findings),
        };
        self.record_items(proxy, &items, &groups, &mut outcome.reached);
        let mut of_hosts: BTreeMap<Option<Hostname>, Vec<EffectiveRule<'_>>> = BTreeMap::new();
        for (written, items) in groups.iter().filter(|(_, items)| !items.is_empty()) {
            of_hosts
                .entry(hosts(written))
                .or_default()
                .extend(merge(items));
        }
        for (hosts, merged) in of_hosts {
            let merged = sort_by_strength(merged, &items);
            let mut rules = match is_http {
                true => lowering.http_rules(&merged),
                false => lowering.stream_rules(&merged),
            };
            if protocol == Protocol::Https {
                rules.iter_mut().for_each(add_hsts);
            }
            // Routes of one frontend go by different names: here by their hostname.
            let own = hosts.as_ref().map_or("", Hostname::as_str);
            let route = ObjectKey::new(Kind::MeshGateway, &*name, own);
            let attachment = (id.clone(), route.clone());
            let route = merged_route(route, RouteBinding::MeshGateway(id.clone()), hosts, rules);
            outcome.attachments.insert(attachment, Arc::new(route));
        }
        (outcome.uses, outcome.findings) = (lowering.uses, lowering.findings);
        if self.refused.is_some() || self.terminates_tls() && tls.is_none() {
            self.served = false;
            return;
        }
        let mut made = frontend(id.clone(), protocol, self.listener.port);
        let hostname = self.listener.hostname().map(Hostname::new);
        made.hostname = hostname.filter(|_| protocol != Protocol::Tcp);
        made.tls = tls.cloned();
        made.connection_limit = self.connection_limit();
        made.cross_mesh = self.listener.cross_mesh;
        outcome.frontends.insert(id, made);
    }

    /// Notes which of the items have a hostname that is served here.
    fn record_items(
        &mut self,
        proxy: &MeshProxy,
        items: &[ToItem<'_>],
        groups: &BTreeMap<&str, Vec<ToItem<'_>>>,
        reached: &mut BTreeMap<ObjectKey, BTreeSet<Callers>>,
    ) {
        let met = groups.values().flatten();
        let met: BTreeSet<(&ObjectKey, usize)> =
            met.map(|item| (&item.policy.key, item.to)).collect();
        // A stand-in is nobody.
        let somebody = Some(&proxy.key).filter(|key| *key != self.key);
        let somebody = somebody.map(|key| Callers::from([key.clone()]));
        for item in items {
            let policy = &item.policy.key;
            let is_met = met.contains(&(policy, item.to));
            if is_met {
                let reached = reached.entry(policy.clone()).or_default();
                reached.extend(somebody.clone());
                self.attached.insert(policy.clone());
            }
            *self.found.entry((policy.clone(), item.to)).or_default() |= is_met;
        }
    }

    /// Where another listener of the port speaks for this one: the policies that do.
    fn attach_to_shared_port(&mut self, proxy: &MeshProxy, policies: &[&Arc<MeshPolicy>]) {
        let items = self.items(proxy, policies, self.is_http());
        let policies = items.iter().map(|item| item.policy.key.clone());
        self.attached.extend(policies);
    }

    /// The listeners of a port share its connections, and those that name a limit agree on it; 0 is none.
    fn connection_limit(&self) -> Option<u32> {
        let all = self.gateway.spec.conf.listeners.iter();
        let mut limits = all
            .filter(|other| other.port == self.listener.port)
            .filter_map(|other| other.resources.connection_limit);
        limits.find(|limit| *limit != 0)
    }

    /// The items of the policies for this listener, the strongest first.
    fn items<'p>(
        &self,
        proxy: &MeshProxy,
        policies: &[&'p Arc<MeshPolicy>],
        http: bool,
    ) -> Vec<ToItem<'p>> {
        use pointsman_resources::kuma::TargetKind;
        let name = display_name(&self.gateway.metadata);
        let siblings = self.gateway.spec.conf.listeners.iter().filter(|other| {
            let same = (other.port, other.protocol) == (self.listener.port, self.listener.protocol);
            // On TCP all listeners of a port share what governs them.
            same && (protocol(other) == Protocol::Tcp || *other == self.listener)
        });
        let tags: Vec<Tags> = siblings
            .map(|listener| listener_tags(proxy, self.gateway, listener))
            .collect();
        let mut items = Vec::new();
        for policy in policies.iter().filter(|policy| policy.is_http() == http) {
            if !tags
                .iter()
                .any(|tags| policy.selects_listener(proxy, name, tags))
            {
                continue;
            }
            for (to, item) in policy.route.spec.to.iter().enumerate() {
                if item.target_ref.kind == TargetKind::Mesh {
                    items.push(ToItem { policy, to });
                }
            }
        }
        items.sort_by(ToItem::compare);
        items
    }

    fn status(self) -> ListenerStatus {
        let resolved = match self.unresolved.is_empty() {
            true => Condition::yes("ResolvedRefs", "ResolvedRefs", ""),
            false => Condition::no(
                "ResolvedRefs",
                "InvalidCertificateRef",
                self.unresolved.join("; "),
            ),
        };
        let accepted = match &self.refused {
            None => Condition::yes("Accepted", "Accepted", ""),
            Some(why) => Condition::no("Accepted", "UnsupportedValue", why.clone()),
        };
        let programmed = match (self.served, self.refused.is_some()) {
            (true, _) => Condition::yes("Programmed", "Programmed", ""),
            (false, true) => Condition::no("Programmed", "Invalid", "it is not accepted"),
            (false, false) => Condition::no("Programmed", "Invalid", "it has no certificate"),
        };
        ListenerStatus {
            name: listener_name(self.listener),
            supported_kinds: match self.listener.protocol {
                ListenerProtocol::Http | ListenerProtocol::Https => {
                    vec![Kind::MeshHTTPRoute, Kind::MeshGatewayHTTPRoute]
                }
                ListenerProtocol::Tcp | ListenerProtocol::Tls => vec![Kind::MeshTCPRoute],
            },
            attached_routes: self.attached.len(),
            conditions: vec![accepted, resolved, programmed],
        }
    }
}

/// What is spoken at a listener.
fn protocol(listener: &MeshGatewayListener) -> Protocol {
    let mode = listener.tls.as_ref().map(|tls| tls.mode);
    match listener.protocol {
        // What is inside of the mesh's own TLS are bytes.
        ListenerProtocol::Tls if listener.cross_mesh => Protocol::Tcp,
        ListenerProtocol::Http => Protocol::Http,
        ListenerProtocol::Https => Protocol::Https,
        ListenerProtocol::Tcp => Protocol::Tcp,
        ListenerProtocol::Tls => Protocol::Tls(match mode {
            Some(MeshGatewayTlsMode::Passthrough) => TlsModeKey::Passthrough,
            _ => TlsModeKey::Terminate,
        }),
    }
}

/// The hosts that a hostname of a policy means; none is all.
pub(crate) fn hosts(written: &str) -> Option<Hostname> {
    (!matches!(written, "" | "*")).then(|| Hostname::new(written))
}

/// "HTTPS vhosts: requireTls + HSTS": who came over TLS is told to do so again.
fn add_hsts(rule: &mut Arc<BoundRule>) {
    let header = Header {
        name: "strict-transport-security".to_owned(),
        value: "max-age=31536000; includeSubDomains".to_owned(),
    };
    let modifier = HeaderModifier {
        set: vec![header],
        ..HeaderModifier::default()
    };
    let filter = Filter::ResponseHeaders(Arc::new(modifier));
    Arc::make_mut(rule).filters.insert(0, filter);
}
