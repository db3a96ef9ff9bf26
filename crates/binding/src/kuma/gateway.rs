//! A MeshGateway: its listeners on each of the proxies that chose it, and the policies that govern them.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::sync::Arc;

use pointsman_resources::kuma::{
    DataSource, GatewayListener, ListenerProtocol, MeshGateway, Tags, TlsMode, display_name,
    kubernetes_namespace, scope,
};
use pointsman_resources::route::{Header, HeaderModifier};
use pointsman_resources::{Kind, Name, ObjectKey};

use super::destination::{Outcome, bound, frontend};
use super::lower::{Lowering, content};
use super::merge::{by_hostname, merge};
use super::policy::{Item, Policy, SYSTEM_NAMESPACE};
use super::proxy::{self, Proxy};
use super::select::has;
use crate::bound::{
    BoundRule, CertifiedKey, Filter, FrontendId, FrontendTls, Hostname, Protocol, TlsModeKey,
};
use crate::certificates;
use crate::status::{Condition, ListenerStatus};
use crate::store::Reader;

/// A MeshGateway, as it was found to be.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct MeshGatewayView {
    /// What comes of it.
    pub outcome: Outcome,
    /// What is said of each listener.
    pub listeners: Vec<ListenerStatus>,
    /// The proxies that chose it.
    pub proxies: Vec<ObjectKey>,
}

/// Looks at a MeshGateway. None if it does not exist.
pub(crate) fn view(
    reader: &Reader<'_>,
    key: &ObjectKey,
    policies: &BTreeMap<ObjectKey, Arc<Policy>>,
) -> Option<MeshGatewayView> {
    let gateway = reader.mesh_gateway(&key.name)?;
    let mut proxies = proxies_of(reader, gateway);
    let mut view = MeshGatewayView {
        proxies: proxies.iter().map(|proxy| proxy.key.clone()).collect(),
        ..MeshGatewayView::default()
    };
    if proxies.is_empty() {
        proxies.push(stand_in(key, gateway));
    }
    let policies = of_mesh(policies, gateway);
    for (index, listener) in gateway.spec.conf.listeners.iter().enumerate() {
        let mut looking = Looking::new(reader, key, gateway, listener);
        // A port for streams has one listener: hostnames can't be told apart there.
        let ports = gateway.spec.conf.listeners[..index].iter();
        let is_first = !ports
            .filter(|other| other.protocol == ListenerProtocol::Tcp)
            .any(|other| other.port == listener.port);
        if listener.protocol != ListenerProtocol::Tcp || is_first {
            let tls = looking.tls();
            for proxy in &proxies {
                looking.at(proxy, tls.as_ref(), &policies, &mut view.outcome);
            }
        }
        view.listeners.push(looking.status());
    }
    Some(view)
}

/// The proxies that chose a MeshGateway.
fn proxies_of(reader: &Reader<'_>, gateway: &MeshGateway) -> Vec<Proxy> {
    let proxies = reader.gateway_proxies(&gateway.mesh);
    let proxies = proxies.filter_map(|found| proxy::view(reader, &found));
    let is_chosen = |proxy: &Proxy| {
        chosen(reader, proxy).is_some_and(|chosen| chosen.metadata.key() == gateway.metadata.key())
    };
    proxies.filter(is_chosen).collect()
}

/// The listeners of a MeshGateway on the first of its proxies, each with the items that govern it, the strongest first.
pub(crate) fn listeners<'p>(
    reader: &Reader<'_>,
    key: &ObjectKey,
    policies: &'p BTreeMap<ObjectKey, Arc<Policy>>,
) -> Vec<(String, Vec<Item<'p>>)> {
    let Some(gateway) = reader.mesh_gateway(&key.name) else {
        return Vec::new();
    };
    let first = proxies_of(reader, gateway).into_iter().next();
    let proxy = first.unwrap_or_else(|| stand_in(key, gateway));
    let policies = of_mesh(policies, gateway);
    let of = |listener| {
        let looking = Looking::new(reader, key, gateway, listener);
        let http = matches!(looking.protocol(), Protocol::Http | Protocol::Https);
        (
            listener_name(listener),
            looking.items(&proxy, &policies, http),
        )
    };
    gateway.spec.conf.listeners.iter().map(of).collect()
}

/// The policies of a MeshGateway's mesh.
fn of_mesh<'p>(
    policies: &'p BTreeMap<ObjectKey, Arc<Policy>>,
    gateway: &MeshGateway,
) -> Vec<&'p Arc<Policy>> {
    let all = policies.values();
    all.filter(|policy| policy.route.mesh == gateway.mesh)
        .collect()
}

/// The MeshGateway that a proxy chooses: "best tag-selector rank; tie => most recently created".
fn chosen<'a>(reader: &Reader<'a>, proxy: &Proxy) -> Option<&'a MeshGateway> {
    let rank = |gateway: &&MeshGateway| {
        let fitting = gateway.spec.selectors.iter().filter(|selector| {
            let mut sets = proxy.tag_sets.iter();
            sets.any(|tags| has(tags, &selector.tags))
        });
        let ranks = fitting.map(|selector| {
            let exact = selector.tags.values().filter(|value| *value != "*").count();
            (selector.tags.len(), exact)
        });
        ranks.max()
    };
    reader
        .mesh_gateways(&proxy.mesh)
        .filter_map(|gateway| Some((rank(&gateway)?, gateway)))
        .max_by_key(|(rank, gateway)| {
            let metadata = &gateway.metadata;
            (*rank, metadata.age(), Reverse(metadata.key()))
        })
        .map(|(_, gateway)| gateway)
}

/// For a MeshGateway that nobody serves: what it would do.
fn stand_in(key: &ObjectKey, gateway: &MeshGateway) -> Proxy {
    let selectors = gateway.spec.selectors.iter();
    Proxy {
        key: key.clone(),
        metadata: gateway.metadata.clone(),
        mesh: gateway.mesh.clone(),
        namespace: kubernetes_namespace(&gateway.metadata).map(Arc::from),
        tag_sets: selectors.map(|selector| selector.tags.clone()).collect(),
        outbounds: Vec::new(),
        calls_all: false,
        is_builtin: true,
    }
}

/// The name under which a gateway's ports are found. None of these can be a Gateway's of the Gateway API.
pub(crate) fn port_name(mesh: &str, proxy: &ObjectKey) -> Name {
    match proxy.kind {
        Kind::Dataplane if proxy.namespace().starts_with("mesh:") => proxy.name.clone(),
        Kind::MeshGateway => Name::new(scope(mesh), format!("MeshGateway {}", proxy.name.name)),
        _ => {
            let name = format!("{}.{}", proxy.name.name, proxy.namespace());
            Name::new(scope(mesh), name)
        }
    }
}

/// A listener has no name of its own: its port, and its hostname if it has one.
fn listener_name(listener: &GatewayListener) -> String {
    match listener
        .hostname()
        .filter(|_| listener.protocol != ListenerProtocol::Tcp)
    {
        Some(hostname) => format!("{}/{hostname}", listener.port),
        None => listener.port.to_string(),
    }
}

struct Looking<'a, 'r> {
    reader: &'a Reader<'r>,
    key: &'a ObjectKey,
    gateway: &'a MeshGateway,
    listener: &'a GatewayListener,
    unresolved: Vec<String>,
    attached: usize,
    served: bool,
}

impl<'a, 'r> Looking<'a, 'r> {
    fn new(
        reader: &'a Reader<'r>,
        key: &'a ObjectKey,
        gateway: &'a MeshGateway,
        listener: &'a GatewayListener,
    ) -> Self {
        Looking {
            reader,
            key,
            gateway,
            listener,
            unresolved: Vec::new(),
            attached: 0,
            served: true,
        }
    }
}

impl Looking<'_, '_> {
    fn protocol(&self) -> Protocol {
        let mode = self.listener.tls.as_ref().map(|tls| tls.mode);
        match self.listener.protocol {
            ListenerProtocol::Http => Protocol::Http,
            ListenerProtocol::Https => Protocol::Https,
            ListenerProtocol::Tcp => Protocol::Tcp,
            ListenerProtocol::Tls => Protocol::Tls(match mode {
                Some(TlsMode::Passthrough) => TlsModeKey::Passthrough,
                _ => TlsModeKey::Terminate,
            }),
        }
    }

    fn ends_tls(&self) -> bool {
        matches!(
            self.protocol(),
            Protocol::Https | Protocol::Tls(TlsModeKey::Terminate)
        )
    }

    /// Its certificates, where TLS is ended here.
    fn tls(&mut self) -> Option<Arc<FrontendTls>> {
        let tls = self.listener.tls.as_ref().filter(|_| self.ends_tls())?;
        let mut certificates = Vec::new();
        for certificate in &tls.certificates {
            match self.certificate(certificate) {
                Ok(key) => certificates.push(Arc::new(key)),
                Err(why) => self.unresolved.push(why),
            }
        }
        (!certificates.is_empty()).then(|| {
            Arc::new(FrontendTls {
                certificates,
                clients: None,
            })
        })
    }

    /// A certificate and its key, together as PEM: in a secret, or here.
    fn certificate(&self, certificate: &DataSource) -> Result<CertifiedKey, String> {
        match certificate {
            DataSource::Secret(name) => {
                let name = Name::new(SYSTEM_NAMESPACE, name.as_str());
                certificates::of_secret(self.reader, &name)
            }
            source => {
                let pem = content(self.reader, source)?;
                certificates::of_pem(self.key.name.clone(), &pem)
            }
        }
    }

    /// The listener on one of the gateway's proxies.
    fn at(
        &mut self,
        proxy: &Proxy,
        tls: Option<&Arc<FrontendTls>>,
        policies: &[&Arc<Policy>],
        outcome: &mut Outcome,
    ) {
        let name = listener_name(self.listener);
        let id = FrontendId::Listener {
            gateway: port_name(&proxy.mesh, &proxy.key),
            owner: self.key.clone(),
            listener: name.as_str().into(),
        };
        let protocol = self.protocol();
        let is_http = matches!(protocol, Protocol::Http | Protocol::Https);
        let items = self.items(proxy, policies, is_http);
        self.attached = items.len();
        for item in &items {
            let reached = outcome.reached.entry(item.policy.key.clone()).or_default();
            reached.insert(proxy.key.clone());
        }
        let mut lowering = Lowering {
            reader: self.reader,
            mesh: &proxy.mesh,
            destination: None,
            http: is_http,
            uses: std::mem::take(&mut outcome.uses),
            told: std::mem::take(&mut outcome.told),
        };
        let hostname = self.listener.hostname().map(Hostname::new);
        if is_http {
            for (written, items) in by_hostname(&items) {
                let own = (!written.is_empty()).then(|| Hostname::new(written));
                let meets = match (&hostname, &own) {
                    (Some(listener), Some(own)) => listener.intersects(own),
                    _ => true,
                };
                if !meets {
                    continue;
                }
                let mut rules = lowering.rules(&merge(&items));
                if protocol == Protocol::Https {
                    rules.iter_mut().for_each(demand_tls);
                }
                // Routes of one frontend go by different names: here by their hostname.
                let route = ObjectKey::new(Kind::MeshGateway, &*name, written);
                let attachment = (id.clone(), route.clone());
                let route = bound(route, own, rules);
                outcome.attachments.insert(attachment, Arc::new(route));
            }
        } else if !items.is_empty() {
            let rules = lowering.stream(&items);
            let route = bound(self.key.clone(), None, rules);
            let attachment = (id.clone(), self.key.clone());
            outcome.attachments.insert(attachment, Arc::new(route));
        }
        (outcome.uses, outcome.told) = (lowering.uses, lowering.told);
        if self.ends_tls() && tls.is_none() {
            self.served = false;
            return;
        }
        let mut made = frontend(id.clone(), protocol, self.listener.port);
        made.hostname = hostname.filter(|_| protocol != Protocol::Tcp);
        made.tls = tls.cloned();
        made.connection_limit = self.listener.resources.connection_limit;
        made.cross_mesh = self.listener.cross_mesh;
        outcome.frontends.insert(id, made);
    }

    /// The items of the policies for this listener, the strongest first.
    fn items<'p>(&self, proxy: &Proxy, policies: &[&'p Arc<Policy>], http: bool) -> Vec<Item<'p>> {
        use pointsman_resources::kuma::TargetKind;
        let name = display_name(&self.gateway.metadata);
        let siblings = self.gateway.spec.conf.listeners.iter().filter(|other| {
            let same = (other.port, other.protocol) == (self.listener.port, self.listener.protocol);
            // On TCP all listeners of a port share what governs them.
            same && (other.protocol == ListenerProtocol::Tcp || *other == self.listener)
        });
        let tags: Vec<Tags> = siblings
            .map(|listener| self.tags(proxy, listener))
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
                    items.push(Item { policy, to });
                }
            }
        }
        items.sort_by(Item::compare);
        items
    }

    /// "Effective listener tags = dataplane gateway tags ∪ gateway `tags` ∪ listener `tags`."
    fn tags(&self, proxy: &Proxy, listener: &GatewayListener) -> Tags {
        let sets = proxy.tag_sets.iter();
        sets.chain([&self.gateway.spec.tags, &listener.tags])
            .flatten()
            .map(|(name, value)| (name.clone(), value.clone()))
            .collect()
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
        let programmed = match self.served {
            true => Condition::yes("Programmed", "Programmed", ""),
            false => Condition::no("Programmed", "Invalid", "it has no certificate"),
        };
        ListenerStatus {
            name: listener_name(self.listener),
            supported_kinds: match self.listener.protocol {
                ListenerProtocol::Http | ListenerProtocol::Https => {
                    vec![Kind::MeshHTTPRoute, Kind::MeshGatewayHTTPRoute]
                }
                ListenerProtocol::Tcp | ListenerProtocol::Tls => vec![Kind::MeshTCPRoute],
            },
            attached_routes: self.attached,
            conditions: vec![
                Condition::yes("Accepted", "Accepted", ""),
                resolved,
                programmed,
            ],
        }
    }
}

/// "HTTPS vhosts: requireTls + HSTS": who came over TLS is told to do so again.
fn demand_tls(rule: &mut Arc<BoundRule>) {
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
