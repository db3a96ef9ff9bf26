//! Binds a MeshGateway: its listeners on each proxy that serves it, and the policies that apply to them.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use pointsman_resources::kuma::{
    DataSource, ListenerProtocol, MeshGateway, MeshGatewayListener, MeshGatewayTlsMode, ProxyType,
    Tags, display_name,
};
use pointsman_resources::route::{Header, HeaderModifier};
use pointsman_resources::{Kind, Name, NamespaceName, ObjectKey};

use super::cross_mesh;
use super::destination::{PolicyOutcome, merged_route};
use super::lowering::{Callers, PolicyLowering, content};
use super::merge::{EffectiveRule, group_by_hostname, merge, sort_by_strength};
use super::policy::{MeshPolicy, ToItem};
use super::proxy::{self, MeshProxy};
use super::selection::has_tags;
use crate::bound::{
    BoundRule, Filter, Frontend, FrontendId, FrontendTls, Hostname, Protocol, RouteBinding,
    SecretId, TlsModeKey,
};
use crate::engine::Reader;
use crate::gateway_api::certificates;
use crate::status::{Condition, ListenerStatus};

/// A MeshGateway with its listeners and policies resolved.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct MeshGatewayView {
    pub outcome: PolicyOutcome,
    pub listeners: Vec<ListenerStatus>,
    /// Proxies that serve it.
    pub proxies: Vec<ObjectKey>,
    /// If no proxy serves it: proxies that match its selectors but serve another MeshGateway, which is named.
    pub chose_another: Vec<(ObjectKey, Name)>,
    /// Items of policies that select it; `true` if a listener serves one of the item's hostnames.
    pub items: BTreeMap<ToItemId, bool>,
}

/// Key of a policy, and the index of one of its `to` items.
pub(crate) type ToItemId = (ObjectKey, usize);

/// Binds a MeshGateway. Returns `None` if it does not exist.
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
        // TCP listeners of a port share one frontend, since streams have no hostname to distinguish them.
        let mut before = gateway.spec.conf.listeners[..index].iter();
        let is_first = !before.any(|other| other.port == listener.port);
        let tls = resolver.tls();
        for proxy in &proxies {
            match protocol(listener) != Protocol::Tcp || is_first {
                true => resolver.bind_on(proxy, tls.as_ref(), &policies, &mut view.outcome),
                false => resolver.attach_to_shared_port(proxy, &policies),
            }
        }
        for (item, is_served) in std::mem::take(&mut resolver.items) {
            *view.items.entry(item).or_default() |= is_served;
        }
        view.listeners.push(resolver.status());
    }
    Some(view)
}

/// Returns the proxies that serve a MeshGateway.
fn proxies_of(reader: &Reader<'_>, gateway: &MeshGateway) -> Vec<MeshProxy> {
    let proxies = reader.gateway_proxies(&gateway.mesh);
    let proxies = proxies.filter_map(|found| proxy::resolve_proxy(reader, &found));
    let serves = |proxy: &MeshProxy| {
        gateway_for(reader, proxy)
            .is_some_and(|served| served.metadata.key() == gateway.metadata.key())
    };
    proxies.filter(serves).collect()
}

/// Returns the proxies that match the selectors of a MeshGateway, with the MeshGateways that they serve.
fn proxies_of_others(reader: &Reader<'_>, gateway: &MeshGateway) -> Vec<(ObjectKey, Name)> {
    let proxies = reader.gateway_proxies(&gateway.mesh);
    let proxies = proxies.filter_map(|found| proxy::resolve_proxy(reader, &found));
    proxies
        .filter(|proxy| rank(gateway, proxy).is_some())
        .filter_map(|proxy| Some((gateway_for(reader, &proxy)?.metadata.key(), proxy)))
        .map(|(chosen, proxy)| (proxy.key, chosen))
        .collect()
}

/// A listener's name, and the items that apply to it by hostname.
pub(crate) type ListenerItems<'p> = (String, BTreeMap<&'p str, Vec<ToItem<'p>>>);

/// Returns the listeners of a MeshGateway on one of its proxies (the first by default), each with the items that apply to it, most specific first.
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
        let resolver = ListenerResolver::new(reader, key, gateway, index);
        let items = resolver.items_for(&proxy, &policies, resolver.is_http());
        (
            listener_name(resolver.listener),
            resolver.by_hostname(&items),
        )
    };
    (0..gateway.spec.conf.listeners.len()).map(of).collect()
}

/// Returns the policies of a MeshGateway's mesh.
fn policies_of_mesh<'p>(
    policies: &'p BTreeMap<ObjectKey, Arc<MeshPolicy>>,
    gateway: &MeshGateway,
) -> Vec<&'p Arc<MeshPolicy>> {
    let all = policies.values();
    all.filter(|policy| policy.route.mesh == gateway.mesh)
        .collect()
}

/// Returns the MeshGateway that a proxy serves: "best tag-selector rank; tie => most recently created".
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

/// Ranks how specifically a MeshGateway selects a proxy; `None` if it does not.
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

/// Creates a placeholder for the proxy of a MeshGateway that no proxy serves, so that its policies are evaluated nevertheless.
fn placeholder_proxy(key: &ObjectKey, gateway: &MeshGateway) -> MeshProxy {
    let selectors = gateway.spec.selectors.iter();
    MeshProxy {
        key: key.clone(),
        metadata: gateway.metadata.clone(),
        mesh: gateway.mesh.clone(),
        namespace: gateway.metadata.namespace.kubernetes().map(Arc::from),
        tag_sets: selectors.map(|selector| selector.tags.clone()).collect(),
        outbounds: Vec::new(),
        unresolved: Vec::new(),
        is_transparent: false,
        is_unrestricted: false,
        kind: ProxyType::Gateway,
    }
}

/// Returns the `gateway` name in the [`FrontendId`]s of a proxy's listeners. It can't collide with the name of a Gateway of the Gateway API.
pub(crate) fn gateway_name(mesh: &str, proxy: &ObjectKey) -> Name {
    match proxy.kind {
        Kind::Dataplane if proxy.namespace().mesh().is_some() => proxy.name.clone(),
        Kind::MeshGateway => Name::new(
            NamespaceName::of_mesh(mesh),
            format!("MeshGateway {}", proxy.name.name),
        ),
        // The space keeps the name distinct from those of universal documents.
        kind => {
            let name = format!("{kind} {}/{}", proxy.namespace(), proxy.name.name);
            Name::new(NamespaceName::of_mesh(mesh), name)
        }
    }
}

/// Returns whether a name is the [`gateway_name`] of a proxy, in any mesh.
pub(crate) fn is_gateway_name(name: &Name, proxy: &ObjectKey) -> bool {
    let mesh = name.namespace.mesh();
    mesh.is_some_and(|mesh| *name == gateway_name(mesh, proxy))
}

/// Returns the id of a listener on one of the MeshGateway's proxies.
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

/// Returns the name of a listener: its port, and its hostname if it has one.
fn listener_name(listener: &MeshGatewayListener) -> String {
    match listener.hostname() {
        Some(hostname) => format!("{}/{hostname}", listener.port),
        None => listener.port.to_string(),
    }
}

/// Resolves one listener of a MeshGateway on each of its proxies.
struct ListenerResolver<'a, 'r> {
    reader: &'a Reader<'r>,
    key: &'a ObjectKey,
    gateway: &'a MeshGateway,
    /// Index of the listener.
    index: usize,
    listener: &'a MeshGatewayListener,
    /// Errors in references.
    unresolved: Vec<String>,
    /// Reason why the listener is not accepted.
    refused: Option<String>,
    /// Policies attached to the listener.
    attached: BTreeSet<ObjectKey>,
    /// Items that select the listener; `true` if it serves one of the item's hostnames.
    items: BTreeMap<ToItemId, bool>,
    /// True if the listener is bound on every proxy.
    is_programmed: bool,
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
            items: BTreeMap::new(),
            is_programmed: true,
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

    /// Groups items by those of their hostnames that intersect the listener's.
    fn by_hostname<'p>(&self, items: &[ToItem<'p>]) -> BTreeMap<&'p str, Vec<ToItem<'p>>> {
        let own = self.listener.hostname().map(Hostname::new);
        let mut groups = group_by_hostname(items);
        groups.retain(|written, _| match (&own, hosts(written)) {
            (None, _) | (_, None) => true,
            (Some(own), Some(hosts)) => own.intersects(&hosts),
        });
        groups
    }

    /// Returns the certificates of a listener that terminates TLS; a cross-mesh listener presents that of its mesh.
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

    /// Validates a certificate and its key, which are concatenated as PEM in a Secret or in the MeshGateway.
    fn certificate(&mut self, index: usize, certificate: &DataSource) -> Result<SecretId, String> {
        match certificate {
            DataSource::Secret(name) => {
                let found =
                    certificates::resolve_mesh_secret(self.reader, &self.gateway.mesh, name)?;
                let retained = found.retained.into_iter();
                let retained = retained.map(|why| format!("tls.certificates[{index}]: {why}"));
                self.unresolved.extend(retained);
                Ok(found.id)
            }
            source => {
                let pem = content(self.reader, source)?;
                certificates::parse_certified_key(&pem)?;
                Ok(SecretId::Listener {
                    gateway: self.key.name.clone(),
                    listener: self.index,
                    certificate: index,
                })
            }
        }
    }

    /// Binds the listener on one of the gateway's proxies.
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
        let items = self.items_for(proxy, policies, is_http);
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
            // Routes of a frontend need distinct keys; these are named after the listener and the hostname.
            let own = hosts.as_ref().map_or("", Hostname::as_str);
            let route = ObjectKey::new(Kind::MeshGateway, &*name, own);
            let attachment = (id.clone(), route.clone());
            let route = merged_route(
                route,
                RouteBinding::MeshGateway(Arc::new(id.clone())),
                hosts,
                rules,
            );
            outcome.attachments.insert(attachment, Arc::new(route));
        }
        (outcome.uses, outcome.findings) = (lowering.uses, lowering.findings);
        if self.refused.is_some() || self.terminates_tls() && tls.is_none() {
            self.is_programmed = false;
            return;
        }
        let mut frontend = Frontend::new(id.clone(), protocol, self.listener.port);
        let hostname = self.listener.hostname().map(Hostname::new);
        frontend.hostname = hostname.filter(|_| protocol != Protocol::Tcp);
        frontend.tls = tls.cloned();
        frontend.connection_limit = self.connection_limit();
        frontend.cross_mesh = self.listener.cross_mesh;
        outcome.frontends.insert(id, frontend);
    }

    /// Records which items have a hostname that the listener serves; those attach to it and reach the proxy.
    fn record_items(
        &mut self,
        proxy: &MeshProxy,
        items: &[ToItem<'_>],
        groups: &BTreeMap<&str, Vec<ToItem<'_>>>,
        reached: &mut BTreeMap<ObjectKey, BTreeSet<Callers>>,
    ) {
        let served = groups.values().flatten();
        let served: BTreeSet<(&ObjectKey, usize)> =
            served.map(|item| (&item.policy.key, item.to)).collect();
        // A placeholder has the key of the MeshGateway and is not a proxy.
        let real_proxy = Some(&proxy.key).filter(|key| *key != self.key);
        let real_proxy = real_proxy.map(|key| Callers::from([key.clone()]));
        for item in items {
            let policy = &item.policy.key;
            let is_served = served.contains(&(policy, item.to));
            if is_served {
                let reached = reached.entry(policy.clone()).or_default();
                reached.extend(real_proxy.clone());
                self.attached.insert(policy.clone());
            }
            *self.items.entry((policy.clone(), item.to)).or_default() |= is_served;
        }
    }

    /// Attaches policies to a TCP listener whose port another listener already bound; they apply to that one.
    fn attach_to_shared_port(&mut self, proxy: &MeshProxy, policies: &[&Arc<MeshPolicy>]) {
        let items = self.items_for(proxy, policies, self.is_http());
        let policies = items.iter().map(|item| item.policy.key.clone());
        self.attached.extend(policies);
    }

    /// Returns the connection limit of the listener's port. Validation ensures that all listeners of a port that set a limit agree; 0 means unlimited.
    fn connection_limit(&self) -> Option<u32> {
        let all = self.gateway.spec.conf.listeners.iter();
        let mut limits = all
            .filter(|other| other.port == self.listener.port)
            .filter_map(|other| other.resources.connection_limit);
        limits.find(|limit| *limit != 0)
    }

    /// Returns the items that select this listener, most specific first.
    fn items_for<'p>(
        &self,
        proxy: &MeshProxy,
        policies: &[&'p Arc<MeshPolicy>],
        http: bool,
    ) -> Vec<ToItem<'p>> {
        use pointsman_resources::kuma::TargetKind;
        let name = display_name(&self.gateway.metadata);
        let siblings = self.gateway.spec.conf.listeners.iter().filter(|other| {
            let same = (other.port, other.protocol) == (self.listener.port, self.listener.protocol);
            // All TCP listeners of a port share their policies.
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
        let programmed = match (self.is_programmed, self.refused.is_some()) {
            (true, _) => Condition::yes("Programmed", "Programmed", ""),
            (false, true) => Condition::no("Programmed", "Invalid", "the listener is not accepted"),
            (false, false) => {
                let message = "the listener has no valid certificate";
                Condition::no("Programmed", "Invalid", message)
            }
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

/// Returns the protocol of a listener.
fn protocol(listener: &MeshGatewayListener) -> Protocol {
    let mode = listener.tls.as_ref().map(|tls| tls.mode);
    match listener.protocol {
        // Inside the mesh's TLS, the client's TLS is an opaque stream.
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

/// Parses a hostname of a policy; `None` stands for all hosts.
pub(crate) fn hosts(written: &str) -> Option<Hostname> {
    (!matches!(written, "" | "*")).then(|| Hostname::new(written))
}

/// Adds a Strict-Transport-Security header to responses: "HTTPS vhosts: requireTls + HSTS".
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
