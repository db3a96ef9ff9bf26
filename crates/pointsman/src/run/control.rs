//! One change after another: from files to what is bound, to the data plane, to what is said of it.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;
use std::time::{Duration, Instant};

use imbl::OrdMap;
use pointsman_binding::bound::FrontendId;
use pointsman_binding::{Change, has_status};
use pointsman_control::files::{Changed, Files};
use pointsman_control::identities::Identities;
use pointsman_control::{clock, contents};
use pointsman_proxy::placement::{Listeners, gateway_kind};
use pointsman_proxy::{Owner, SocketKey, Update};
use pointsman_resources::{Finding, ObjectKey, Resource};
use pointsman_routing::Tables;

use super::state::{Entry, Shared, Snapshot};

/// How long an object that is gone is waited for: it may be on its way from one file to another, and an editor may put a file aside
/// before it writes the new one.
const GRACE: Duration = Duration::from_millis(50);

/// The control side of a running data plane.
pub struct Control {
    files: Files,
    listeners: Listeners,
    identities: Identities,
    tables: Tables,
    shared: Arc<Shared>,
    /// Objects that are gone from the files, and until when they are waited for.
    leaving: BTreeMap<ObjectKey, Instant>,
    entries: OrdMap<(u64, ObjectKey), Arc<Entry>>,
    places: HashMap<ObjectKey, u64>,
    findings: Arc<Vec<Finding>>,
    passed_over: Arc<BTreeMap<String, usize>>,
    /// The findings that these are.
    noted: Option<u64>,
    unbound: Arc<BTreeMap<SocketKey, String>>,
    faulty: BTreeMap<FrontendId, String>,
    version: u64,
}

impl Control {
    /// Nothing is bound yet.
    pub fn new(files: Files, listeners: Listeners, shared: Arc<Shared>) -> Self {
        Control {
            files,
            listeners,
            identities: Identities::default(),
            tables: Tables::default(),
            shared,
            leaving: BTreeMap::new(),
            entries: OrdMap::new(),
            places: HashMap::new(),
            findings: Arc::default(),
            passed_over: Arc::default(),
            noted: None,
            unbound: Arc::default(),
            faulty: BTreeMap::new(),
            version: 0,
        }
    }

    /// The files.
    pub fn files(&mut self) -> &mut Files {
        &mut self.files
    }

    /// Puts in effect what has changed in the files.
    pub fn take(&mut self, changed: Changed) {
        let now = clock::instant();
        let mut changes = Vec::new();
        let mut keys = Changed::new();
        for key in changed {
            match self.files.document(&key) {
                Some(document) => {
                    self.leaving.remove(&key);
                    // Files are read before the binder is held: others ask it too.
                    let read = contents::of(&document.resource);
                    let read = contents::changes(&document.resource, read, &self.shared.binder());
                    changes.extend(read);
                    changes.push(Change::Put(document.resource.clone()));
                    changes.extend(self.identities.follow(&key, Some(&document.resource)));
                    keys.insert(key);
                }
                None if self.shared.binder().object(&key).is_some() => {
                    self.leaving.entry(key).or_insert(now + GRACE);
                }
                None => {}
            }
        }
        // What happens beside the files is heard too, and is none of ours.
        if keys.is_empty() && self.noted == Some(self.files.noted()) {
            return;
        }
        self.apply(changes, keys, false);
    }

    /// When something has to be done without being asked.
    pub fn due(&self) -> Option<Instant> {
        self.leaving.values().min().copied()
    }

    /// Takes away what has been waited for long enough.
    pub fn let_go(&mut self) {
        let now = clock::instant();
        let gone: Changed = self
            .leaving
            .iter()
            .filter(|(_, until)| **until <= now)
            .map(|(key, _)| key.clone())
            .collect();
        if gone.is_empty() {
            return;
        }
        self.leaving.retain(|key, _| !gone.contains(key));
        let mut changes: Vec<Change> = gone.iter().cloned().map(Change::Delete).collect();
        {
            let binder = self.shared.binder();
            let objects = gone.iter().filter_map(|key| binder.object(key));
            let forgotten = objects.flat_map(|object| contents::forgotten(object, &binder));
            changes.extend(forgotten.collect::<Vec<_>>());
        }
        let identities = gone
            .iter()
            .filter_map(|key| self.identities.follow(key, None));
        changes.extend(identities);
        self.apply(changes, gone, false);
    }

    /// Reads again what objects take from files beside the manifests, and from the environment.
    pub fn reread(&mut self) {
        let objects: Vec<Resource> = {
            let binder = self.shared.binder();
            binder.objects().map(|(_, object)| object.clone()).collect()
        };
        let mut changes = Vec::new();
        for object in &objects {
            let read = contents::of(object);
            if !read.is_empty() {
                changes.extend(contents::changes(object, read, &self.shared.binder()));
            }
        }
        if !changes.is_empty() {
            self.apply(changes, Changed::new(), false);
        }
    }

    /// Asks again for addresses and ports that could not be had.
    pub fn look_again(&mut self) {
        self.apply(Vec::new(), Changed::new(), true);
    }

    /// Whether there are such.
    pub fn wants_more(&self) -> bool {
        !self.unbound.is_empty() || self.listeners.wants_more()
    }

    fn apply(&mut self, changes: Vec<Change>, keys: Changed, look_again: bool) {
        let shared = self.shared.clone();
        let mut said: BTreeSet<ObjectKey> = keys.clone();
        let mut binder = shared.binder();
        let delta = binder.apply(changes);
        said.extend(delta.statuses.iter().map(|(key, _)| key.clone()));
        let (mut needs, mut moved) = self.listeners.follow(keys.iter(), &delta, &binder);
        if look_again {
            needs.extend(self.listeners.look_again(&binder));
            moved = true;
        }
        self.tables.apply(&delta);
        self.listeners.mesh.follow_backends(&delta);
        if moved {
            // Where listeners are may be where others send to.
            needs.extend(self.listeners.observations(&self.unbound, &self.faulty));
        }
        if !needs.is_empty() {
            let delta = binder.apply(needs);
            self.tables.apply(&delta);
            self.listeners.mesh.follow_backends(&delta);
            let tables = &self.tables;
            self.listeners.mesh.fill(|id| tables.backend(id).cloned());
            said.extend(delta.statuses.into_iter().map(|(key, _)| key));
        }
        drop(binder);

        let mut changed = false;
        if let Some(proxy) = &mut *shared.proxy() {
            let outcome = proxy.apply(Update {
                tables: self.tables.clone(),
                sockets: self.listeners.sockets.clone(),
                pods: self.listeners.mesh.pods.clone(),
                implicit: self.listeners.mesh.implicit.clone(),
            });
            let unbound = outcome.unbound.iter();
            let unbound: BTreeMap<SocketKey, String> =
                unbound.map(|(key, error)| (*key, why(error))).collect();
            changed |= *self.unbound != unbound || self.faulty != outcome.faulty;
            if *self.unbound != unbound {
                self.report(&unbound);
                self.unbound = Arc::new(unbound);
            }
            self.faulty = outcome.faulty;
        }
        if changed {
            let seen = self.listeners.observations(&self.unbound, &self.faulty);
            let delta = shared.binder().apply(seen);
            self.tables.apply(&delta);
            said.extend(delta.statuses.into_iter().map(|(key, _)| key));
        }
        self.say(&said);
        self.publish();
    }

    fn report(&self, unbound: &BTreeMap<SocketKey, String>) {
        for (key, why) in unbound {
            if self.unbound.get(key) != Some(why) {
                let owner = self
                    .listeners
                    .sockets
                    .get(key)
                    .map(ToString::to_string)
                    .unwrap_or_default();
                tracing::warn!(
                    "{} {} can't be bound for {owner}: {why}",
                    key.address,
                    key.transport
                );
            }
        }
        for key in self.unbound.keys() {
            if !unbound.contains_key(key)
                && let Some(who) = self.listeners.sockets.get(key)
            {
                tracing::info!("{} {} is bound now for {}", key.address, key.transport, who);
            }
        }
    }

    /// Writes down what is said of these objects from now on.
    fn say(&mut self, keys: &BTreeSet<ObjectKey>) {
        let shared = self.shared.clone();
        let binder = shared.binder();
        let now = clock::now();
        for key in keys.iter().filter(|key| has_status(key.kind)) {
            let old = self.places.remove(key);
            let before = old.and_then(|place| self.entries.remove(&(place, key.clone())));
            let known = binder.object(key).is_some();
            // What is waited for is still said of as it was.
            let current = self.files.document(key);
            let document = current.or(before.as_ref().map(|entry| &entry.document));
            let new = document.filter(|_| known).map(|document| {
                let status = binder.status(key).cloned();
                Entry::new(document.clone(), status, before.as_deref(), &now)
            });
            if let Some(entry) = new {
                let place = entry.document.resource.meta().place;
                self.places.insert(key.clone(), place);
                let at = (place, key.clone());
                self.entries.insert(at, Arc::new(entry));
            }
        }
    }

    fn publish(&mut self) {
        if self.noted != Some(self.files.noted()) {
            self.noted = Some(self.files.noted());
            self.findings = Arc::new(self.files.findings());
            self.passed_over = Arc::new(self.files.passed_over());
        }
        self.version += 1;
        self.shared.publish(Snapshot {
            version: self.version,
            tables: self.tables.clone(),
            entries: self.entries.clone(),
            findings: self.findings.clone(),
            passed_over: self.passed_over.clone(),
            sockets: self.listeners.sockets.clone(),
            unbound: self.unbound.clone(),
        });
    }

    /// Where everything is listened on, a line for each listener.
    pub fn places_text(&self) -> Vec<String> {
        let mut lines = Vec::new();
        for (gateway, assigned) in &self.listeners.assigned {
            for (address, why) in &assigned.unusable {
                let kind = gateway_kind(gateway);
                lines.push(format!("{kind} {gateway}: {address}: {why}"));
            }
            for (id, listener) in self.listeners.listeners_of(gateway) {
                let FrontendId::Listener {
                    owner,
                    listener: name,
                    ..
                } = id
                else {
                    continue;
                };
                let guard = if listener.cross_mesh {
                    " in mutual TLS"
                } else {
                    ""
                };
                let spoken = spoken(listener.protocol);
                let what = format!("{owner} listener {name}: {spoken}{guard}");
                match self.listeners.lost.get(id) {
                    Some(why) => lines.push(format!("{what} nowhere: {why}")),
                    None => {
                        let places = self.listeners.places(gateway, *listener);
                        if places.is_empty() {
                            lines.push(format!("{what} nowhere: no address could be found for it"));
                        }
                        lines.extend(places.iter().map(|key| self.place_text(&what, key)));
                    }
                }
            }
        }
        for (key, who) in self.listeners.sockets.iter() {
            let is_listed = matches!(who, Owner::Gateway { gateway, .. } if self.listeners.assigned.contains_key(gateway));
            if !is_listed {
                let what = format!("{who}: {}", key.transport);
                lines.push(self.place_text(&what, key));
            }
        }
        lines
    }

    fn place_text(&self, what: &str, key: &SocketKey) -> String {
        match self.unbound.get(key) {
            Some(why) => format!("{what} not on {}: {why}", key.address),
            None => format!("{what} on {}", key.address),
        }
    }
}

/// What is spoken, as listeners write it.
pub fn spoken(protocol: pointsman_binding::bound::Protocol) -> &'static str {
    use pointsman_binding::bound::Protocol;
    match protocol {
        Protocol::Http => "HTTP",
        Protocol::Https => "HTTPS",
        Protocol::Tls(_) => "TLS",
        Protocol::Tcp => "TCP",
        Protocol::Udp => "UDP",
    }
}

fn why(error: &std::io::Error) -> String {
    match error.kind() {
        std::io::ErrorKind::PermissionDenied => format!(
            "{error}: low ports need a privilege; --port-offset 8000 would put port 80 at 8080"
        ),
        std::io::ErrorKind::AddrInUse => "another program listens there".to_owned(),
        _ => error.to_string(),
    }
}
