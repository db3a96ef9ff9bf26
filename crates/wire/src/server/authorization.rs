//! The authorization file, which lists the permitted subscriptions of each identity.
//!
//! Each line starts with an identity, which is a subject alternative name of a proxy's certificate, followed by the resources that the proxy may subscribe to:
//!
//! ```text
//! # the edge in the first zone
//! spiffe://example.org/edge-1   gateway/infra/edge gateway/infra/internal
//! edge-2.example.org            gateway/infra/*
//! dataplane-7.example.org       dataplane/default/web
//! debug.example.org             *
//! ```
//!
//! A certificate with several names has the permissions of all of them. The file is read again when it changes. If it is invalid, the last valid version stays
//! in effect.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io;
use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};
use std::time::SystemTime;

use thiserror::Error;

use super::peer::Peer;
use super::selector::{Selector, Subscription};

/// Permitted subscriptions by identity.
type PermittedSubscriptions = BTreeMap<String, Subscription>;

/// An authorization file that can't be used.
#[derive(Debug, Error)]
pub enum AuthorizationError {
    /// The file can't be read.
    #[error("{0}: {1}")]
    Read(PathBuf, io::Error),
    /// A line is malformed.
    #[error("{0}:{1}: {2}")]
    Line(PathBuf, usize, String),
}

/// An authorization file.
#[derive(Debug)]
pub struct Authorization {
    path: PathBuf,
    state: Mutex<(ModificationStamp, PermittedSubscriptions)>,
}

type ModificationStamp = Option<(SystemTime, u64)>;

impl Authorization {
    /// Reads the file for the first time.
    pub fn new(path: PathBuf) -> Result<Self, AuthorizationError> {
        let stamp = stamp(&path);
        let permitted = read(&path)?;
        Ok(Authorization {
            path,
            state: Mutex::new((stamp, permitted)),
        })
    }

    /// Returns the permitted subscription of a peer.
    pub fn allowed(&self, peer: &Peer) -> Subscription {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let stamp = stamp(&self.path);
        if state.0 != stamp {
            state.0 = stamp;
            match read(&self.path) {
                Ok(permitted) => state.1 = permitted,
                Err(error) => {
                    tracing::warn!("{error}; the previous authorizations stay in effect");
                }
            }
        }
        let identities = peer.identities.as_deref().unwrap_or_default();
        let mut selectors = BTreeSet::new();
        for identity in identities {
            match state.1.get(identity) {
                Some(Subscription::Everything) => return Subscription::Everything,
                Some(Subscription::Selected(subscription)) => {
                    selectors.extend(subscription.iter().cloned())
                }
                None => {}
            }
        }
        Subscription::Selected(selectors)
    }
}

fn stamp(path: &PathBuf) -> ModificationStamp {
    let metadata = fs::metadata(path).ok()?;
    Some((metadata.modified().ok()?, metadata.len()))
}

fn read(path: &PathBuf) -> Result<PermittedSubscriptions, AuthorizationError> {
    let text = fs::read_to_string(path);
    let text = text.map_err(|error| AuthorizationError::Read(path.clone(), error))?;
    parse(&text).map_err(|(line, reason)| AuthorizationError::Line(path.clone(), line, reason))
}

/// Parses the file. An error has the number of the line.
fn parse(text: &str) -> Result<PermittedSubscriptions, (usize, String)> {
    let mut permitted = PermittedSubscriptions::new();
    for (line, number) in text.lines().zip(1..) {
        let mut words = line.split_whitespace();
        let Some(identity) = words.next().filter(|word| !word.starts_with('#')) else {
            continue;
        };
        let words: Vec<&str> = words.collect();
        if words.is_empty() {
            let reason = format!("`{identity}` is not followed by a permitted subscription");
            return Err((number, reason));
        }
        let subscription = match words.contains(&"*") {
            true => Subscription::Everything,
            false => {
                let selectors = words.iter().map(|word| word.parse::<Selector>());
                let selectors = selectors.collect::<Result<_, _>>();
                Subscription::Selected(selectors.map_err(|reason| (number, reason))?)
            }
        };
        match (permitted.get_mut(identity), subscription) {
            (Some(Subscription::Everything), _) => {}
            (Some(Subscription::Selected(all)), Subscription::Selected(subscription)) => {
                all.extend(subscription)
            }
            (_, subscription) => drop(permitted.insert(identity.to_owned(), subscription)),
        }
    }
    Ok(permitted)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn peer(identities: &[&str]) -> Peer {
        let identities: Vec<String> = identities.iter().map(|name| (*name).to_owned()).collect();
        Peer {
            address: ([127, 0, 0, 1], 1).into(),
            identities: Some(identities.into()),
            certificate_expires: None,
            token: None,
        }
    }

    const FILE: &str = "
# a comment
edge-1.example   gateway/infra/edge gateway/infra/internal
edge-1.example   dataplane/web

spiffe://example/all *
spiffe://example/all gateway/infra/edge
";

    #[test]
    fn an_identity_may_subscribe_to_what_its_lines_list_and_others_to_nothing() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("authorize");
        fs::write(&path, FILE).expect("written");
        let file = Authorization::new(path.clone()).expect("a valid file");
        let names = |identities: &[&str]| file.allowed(&peer(identities)).names();
        let own = [
            "gateway/infra/edge",
            "gateway/infra/internal",
            "dataplane/web",
        ];
        assert_eq!(names(&["edge-1.example"]), own);
        assert_eq!(names(&["other", "edge-1.example"]), own);
        assert_eq!(names(&["spiffe://example/all", "edge-1.example"]), ["*"]);
        assert_eq!(names(&["other"]), [""; 0]);
        assert_eq!(names(&[]), [""; 0]);
        // A change takes effect; a broken file does not.
        fs::write(&path, "other gateway/a/b\n").expect("written");
        assert_eq!(names(&["other"]), ["gateway/a/b"]);
        fs::write(&path, "broken\n").expect("written");
        assert_eq!(names(&["other"]), ["gateway/a/b"]);
        fs::remove_file(&path).expect("removed");
        assert_eq!(names(&["other"]), ["gateway/a/b"]);
    }

    #[test]
    fn a_malformed_line_is_named() {
        for (text, line, reason) in [
            ("\nedge", 2, "not followed by a permitted"),
            ("edge planet/a/b", 1, "neither gateway"),
            ("edge gateway/edge", 1, "NAMESPACE/NAME"),
        ] {
            let (number, message) = parse(text).expect_err(text);
            assert_eq!(number, line, "{text}");
            assert!(message.contains(reason), "{text}: {message}");
        }
    }
}
