//! The objects that a watch has delivered. Their versions are compared when the objects are listed again, so that a reconnect causes no changes.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;

use kube::ResourceExt;
use pointsman_control::SourceUpdate;
use pointsman_resources::{Kind, Name, ObjectKey};

use crate::decode::decode;
use crate::object::RawObject;

/// An object that can't be used.
#[derive(Debug)]
pub struct Rejection {
    /// Field and reason.
    pub why: String,
    /// UID of the object.
    pub uid: Option<String>,
}

/// Changes that a watch delivers.
#[derive(Debug, Default)]
pub struct Batch {
    /// Changes for the reconciler, without findings.
    pub update: SourceUpdate,
    /// Rejected objects. `None` for one that is no longer rejected.
    pub rejected: BTreeMap<ObjectKey, Option<Rejection>>,
}

/// The objects of one kind and namespace.
pub struct WatchedObjects {
    kind: Kind,
    objects: HashMap<Name, Object>,
    /// A list that is being received.
    listing: Option<PartialList>,
}

struct Object {
    resource_version: Box<str>,
    is_rejected: bool,
}

#[derive(Default)]
struct PartialList {
    names: HashSet<Name>,
    batch: Batch,
}

impl WatchedObjects {
    /// Creates an empty set.
    pub fn new(kind: Kind) -> Self {
        WatchedObjects {
            kind,
            objects: HashMap::new(),
            listing: None,
        }
    }

    /// Starts a list. An incomplete previous one is discarded.
    pub fn begin_list(&mut self) {
        // Its versions are discarded as well, because its changes were not delivered.
        if let Some(listing) = self.listing.replace(PartialList::default()) {
            for key in listing.batch.update.objects.keys() {
                if let Some(object) = self.objects.get_mut(&key.name) {
                    object.resource_version = Box::default();
                }
            }
        }
    }

    /// Records an object of the current list.
    pub fn list(&mut self, version: &str, object: &RawObject) {
        let mut listing = self.listing.take().unwrap_or_default();
        listing.names.insert(name(object));
        self.put(version, object, &mut listing.batch);
        self.listing = Some(listing);
    }

    /// Completes the list: objects that are not in it were deleted.
    pub fn end_list(&mut self) -> Batch {
        let PartialList { names, mut batch } = self.listing.take().unwrap_or_default();
        let watched = self.objects.keys();
        let gone: Vec<Name> = watched
            .filter(|name| !names.contains(name))
            .cloned()
            .collect();
        gone.into_iter()
            .for_each(|name| self.remove(name, &mut batch));
        batch
    }

    /// Records a new or changed object.
    pub fn apply(&mut self, version: &str, object: &RawObject) -> Batch {
        let mut batch = Batch::default();
        self.put(version, object, &mut batch);
        batch
    }

    /// Records a deleted object.
    pub fn delete(&mut self, object: &RawObject) -> Batch {
        let mut batch = Batch::default();
        self.remove(name(object), &mut batch);
        batch
    }

    /// Assumes that these objects exist until the next list.
    pub fn assume(&mut self, version: &str, objects: &[RawObject]) -> Batch {
        self.begin_list();
        objects.iter().for_each(|object| self.list(version, object));
        self.end_list()
    }

    /// Records that the kind is no longer served.
    pub fn clear(&mut self) -> Batch {
        self.listing = None;
        self.end_list()
    }

    fn put(&mut self, version: &str, object: &RawObject, batch: &mut Batch) {
        let name = name(object);
        let resource_version = object.resource_version().unwrap_or_default();
        let before = self.objects.get(&name);
        if before.is_some_and(|before| *before.resource_version == *resource_version) {
            return;
        }
        let was_rejected = before.is_some_and(|before| before.is_rejected);
        let key = ObjectKey {
            kind: self.kind,
            name: name.clone(),
        };
        let document = decode(self.kind, version, object.json());
        let is_rejected = document.is_err();
        match document {
            Ok(document) => {
                if was_rejected {
                    batch.update.rejected.insert(key.clone(), None);
                    batch.rejected.insert(key.clone(), None);
                }
                let document = Some(Arc::new(document));
                batch.update.objects.insert(key, document);
            }
            // The last valid version does not stay in effect, because a restarted process and other replicas would not have it.
            Err(invalid) => {
                let why = invalid.to_string();
                let location = Some(why.as_str().into());
                batch.update.rejected.insert(key.clone(), location);
                let uid = object.uid();
                let rejection = Rejection { why, uid };
                batch.rejected.insert(key.clone(), Some(rejection));
                batch.update.objects.insert(key, None);
            }
        }
        let resource_version = resource_version.into();
        let object = Object {
            resource_version,
            is_rejected,
        };
        self.objects.insert(name, object);
    }

    fn remove(&mut self, name: Name, batch: &mut Batch) {
        let Some(object) = self.objects.remove(&name) else {
            return;
        };
        let kind = self.kind;
        let key = ObjectKey { kind, name };
        if object.is_rejected {
            batch.update.rejected.insert(key.clone(), None);
            batch.rejected.insert(key.clone(), None);
        }
        batch.update.objects.insert(key, None);
    }
}

fn name(object: &RawObject) -> Name {
    let namespace = object.namespace().unwrap_or_default();
    Name::new(namespace, object.name_any())
}

#[cfg(test)]
mod tests {
    use super::*;

    const VALID: &str = "{}";
    const BROKEN: &str = r#"{"parentRefs": 5}"#;

    fn route(name: &str, resource_version: u32, spec: &str) -> RawObject {
        let json = format!(
            r#"{{"metadata": {{"name": "{name}", "namespace": "shop", "resourceVersion": "{resource_version}"}}, "spec": {spec}}}"#
        );
        serde_json::from_str(&json).expect("it is JSON")
    }

    fn listed(watched: &mut WatchedObjects, objects: &[RawObject]) -> Batch {
        watched.begin_list();
        objects.iter().for_each(|object| watched.list("v1", object));
        watched.end_list()
    }

    /// Names of objects, each with whether the object exists.
    fn changes(batch: &Batch) -> Vec<(&str, bool)> {
        let objects = batch.update.objects.iter();
        objects
            .map(|(key, document)| (&*key.name.name, document.is_some()))
            .collect()
    }

    #[test]
    fn a_relist_reports_only_what_differs() {
        let mut watched = WatchedObjects::new(Kind::HTTPRoute);
        let first = listed(&mut watched, &[route("a", 1, VALID), route("b", 2, VALID)]);
        assert_eq!(changes(&first), [("a", true), ("b", true)]);
        let same = listed(&mut watched, &[route("a", 1, VALID), route("b", 2, VALID)]);
        assert_eq!(changes(&same), []);
        let other = listed(&mut watched, &[route("b", 5, VALID), route("c", 6, VALID)]);
        assert_eq!(changes(&other), [("a", false), ("b", true), ("c", true)]);
    }

    #[test]
    fn nothing_is_deleted_before_a_list_is_complete() {
        let mut watched = WatchedObjects::new(Kind::HTTPRoute);
        listed(&mut watched, &[route("a", 1, VALID), route("b", 2, VALID)]);
        watched.begin_list();
        watched.list("v1", &route("b", 9, VALID));
        // The connection is lost, and the list begins again.
        let again = listed(&mut watched, &[route("a", 1, VALID), route("b", 9, VALID)]);
        assert_eq!(
            changes(&again),
            [("b", true)],
            "it was not delivered before"
        );
    }

    #[test]
    fn an_invalid_object_is_reported_and_affects_no_other() {
        let mut watched = WatchedObjects::new(Kind::HTTPRoute);
        let batch = listed(&mut watched, &[route("a", 1, BROKEN), route("b", 2, VALID)]);
        assert_eq!(changes(&batch), [("a", false), ("b", true)]);
        let key = ObjectKey::new(Kind::HTTPRoute, "shop", "a");
        let why = batch.update.rejected[&key].as_deref().expect("a reason");
        assert!(why.starts_with("spec.parentRefs: "), "{why}");
        assert!(batch.rejected[&key].is_some());
        let batch = watched.apply("v1", &route("a", 3, VALID));
        assert_eq!(changes(&batch), [("a", true)]);
        assert!(batch.update.rejected[&key].is_none() && batch.rejected[&key].is_none());
    }

    // "an invalid edit never keeps serving the old route as if valid"
    #[test]
    fn an_edit_that_makes_an_object_invalid_takes_it_out_of_effect() {
        let mut watched = WatchedObjects::new(Kind::HTTPRoute);
        listed(&mut watched, &[route("a", 1, VALID)]);
        let batch = watched.apply("v1", &route("a", 2, BROKEN));
        assert_eq!(changes(&batch), [("a", false)]);
        let batch = watched.delete(&route("a", 3, BROKEN));
        let key = ObjectKey::new(Kind::HTTPRoute, "shop", "a");
        assert!(batch.rejected[&key].is_none());
    }

    #[test]
    fn objects_of_a_kind_that_is_no_longer_served_are_removed() {
        let mut watched = WatchedObjects::new(Kind::HTTPRoute);
        listed(&mut watched, &[route("a", 1, VALID)]);
        assert_eq!(changes(&watched.clear()), [("a", false)]);
        let back = listed(&mut watched, &[route("a", 1, VALID)]);
        assert_eq!(changes(&back), [("a", true)]);
    }
}
