//! The last configuration on disk, for a start without a control plane.
//!
//! `DIR/snapshot` starts with a line that names the format and a line with the subscription. Chunks follow, each a length of 4 bytes (big-endian) and a
//! `DeltaDiscoveryResponse`; a chunk of length 0 ends the list. Then come encrypted chunks with the secrets, in the same way, and the SHA-256 hash of
//! everything before. The key of the secrets, for AES-256-GCM, is in `DIR/key`. Only their owner can read both files. A file that was truncated or modified is
//! not used. `DIR/lock` is locked while a process uses the directory.

use std::fs::{self, DirBuilder, File, OpenOptions, TryLockError};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use aws_lc_rs::aead::{AES_256_GCM, Aad, NONCE_LEN, Nonce, RandomizedNonceKey};
use aws_lc_rs::digest::{SHA256, SHA256_OUTPUT_LEN, digest};
use aws_lc_rs::rand;
use prost::Message;
use thiserror::Error;

use super::replica::Replica;
use crate::resource::ResourceType;
use crate::server::Subscription;
use crate::xds::discovery::DeltaDiscoveryResponse;

/// First line of the file.
const FORMAT: &str = "pointsman configuration 1";

/// Largest chunk.
const MAX_CHUNK: usize = 64 * 1024 * 1024;

/// Length of the key.
const KEY_LEN: usize = 32;

/// A directory with the last configuration.
#[derive(Clone, Debug)]
pub struct Cache {
    directory: PathBuf,
    /// True if private keys are stored too.
    with_secrets: bool,
    _lock: Arc<File>,
}

/// A cached configuration that can't be used.
#[derive(Debug, Error)]
pub enum CacheError {
    /// A file can't be read or written.
    #[error("{0}: {1}")]
    Io(PathBuf, io::Error),
    /// Another process uses the directory.
    #[error("{0} is used by another process")]
    InUse(PathBuf),
    /// The file contains the configuration of another subscription.
    #[error("{0} contains the configuration of another subscription: {1}")]
    OtherSubscription(PathBuf, String),
    /// The file is truncated, modified, or written by another version.
    #[error("{0}: {1}")]
    Malformed(PathBuf, &'static str),
}

impl Cache {
    /// Opens the cache in a directory, which is created if it does not exist. `with_secrets` includes private keys; without it, keys that were stored before are
    /// removed.
    pub fn open(directory: PathBuf, with_secrets: bool) -> Result<Self, CacheError> {
        let failed = |error| CacheError::Io(directory.clone(), error);
        let mut builder = DirBuilder::new();
        builder.recursive(true).mode(0o700);
        builder.create(&directory).map_err(failed)?;
        let mode = fs::metadata(&directory)
            .map_err(failed)?
            .permissions()
            .mode();
        if mode & 0o022 != 0 {
            let path = directory.display();
            tracing::warn!(
                "{path} can be written by other users, who could replace the configuration"
            );
        }
        let mut options = OpenOptions::new();
        let options = options.create(true).write(true).mode(0o600);
        let lock = options.open(directory.join("lock")).map_err(failed)?;
        match lock.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => return Err(CacheError::InUse(directory)),
            Err(TryLockError::Error(error)) => return Err(failed(error)),
        }
        let key = directory.join("key");
        if !with_secrets && fs::metadata(&key).is_ok_and(|key| key.len() == KEY_LEN as u64) {
            fs::remove_file(&key).map_err(failed)?;
        }
        Ok(Cache {
            directory,
            with_secrets,
            _lock: Arc::new(lock),
        })
    }

    /// Reads the configuration of a subscription. Returns an empty one if nothing is stored.
    pub fn load(&self, subscription: &Subscription) -> Result<Replica, CacheError> {
        let path = self.directory.join("snapshot");
        let bytes = match fs::read(&path) {
            Ok(bytes) => bytes,
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                return Ok(Replica::default());
            }
            Err(error) => return Err(CacheError::Io(path, error)),
        };
        let malformed = |reason| CacheError::Malformed(path.clone(), reason);
        let end = bytes.len().checked_sub(SHA256_OUTPUT_LEN);
        let (content, hash) = bytes.split_at(end.ok_or_else(|| malformed("it is truncated"))?);
        if digest(&SHA256, content).as_ref() != hash {
            return Err(malformed("it was truncated or modified"));
        }
        let mut rest = content;
        if take_line(&mut rest) != Some(FORMAT) {
            return Err(malformed("it was written by another version of Pointsman"));
        }
        let mut replica = Replica::default();
        let stored = take_line(&mut rest).unwrap_or_default();
        if stored != subscription.to_string() {
            return Err(CacheError::OtherSubscription(path, stored.to_owned()));
        }
        while let Some(bytes) = take_chunk(&mut rest).map_err(malformed)? {
            receive(&mut replica, bytes).map_err(malformed)?;
        }
        let key = match self.with_secrets {
            true => self.read_key()?,
            false => None,
        };
        let mut unreadable = 0;
        while let Some(bytes) = take_chunk(&mut rest).map_err(malformed)? {
            // Without the key, secrets are missing until a control plane sends them.
            match key.as_ref().map(|key| decrypt(key, bytes)) {
                Some(Ok(bytes)) => receive(&mut replica, &bytes).map_err(malformed)?,
                Some(Err(_)) | None => unreadable += 1,
            }
        }
        if unreadable > 0 && self.with_secrets {
            let path = path.display();
            tracing::warn!(
                "{path}: private keys can't be decrypted: the key is missing or was replaced"
            );
        }
        Ok(replica)
    }

    /// Replaces the configuration.
    pub fn store(&self, subscription: &Subscription, replica: &Replica) -> Result<(), CacheError> {
        let failed = |error| CacheError::Io(self.directory.clone(), error);
        let mut content = format!("{FORMAT}\n{subscription}\n").into_bytes();
        for chunk in replica.encode(|kind| kind != ResourceType::Secret) {
            append(&mut content, &chunk);
        }
        append(&mut content, &[]);
        if self.with_secrets {
            let key = match self.read_key()? {
                Some(key) => key,
                None => self.create_key().map_err(failed)?,
            };
            for chunk in replica.encode(|kind| kind == ResourceType::Secret) {
                append(&mut content, &encrypt(&key, chunk).map_err(failed)?);
            }
        }
        append(&mut content, &[]);
        let hash = digest(&SHA256, &content);
        content.extend(hash.as_ref());
        self.replace("snapshot", &content).map_err(failed)
    }

    /// Reads the key; `None` if there is none, or if it is truncated, so that the next [`Cache::store`] creates one.
    fn read_key(&self) -> Result<Option<[u8; KEY_LEN]>, CacheError> {
        let path = self.directory.join("key");
        match fs::read(&path) {
            Ok(bytes) => Ok(bytes.try_into().ok()),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(CacheError::Io(path, error)),
        }
    }

    fn create_key(&self) -> io::Result<[u8; KEY_LEN]> {
        let mut key = [0; KEY_LEN];
        rand::fill(&mut key).map_err(|_| io::Error::other("no random numbers"))?;
        self.replace("key", &key)?;
        Ok(key)
    }

    /// Replaces a file atomically.
    fn replace(&self, name: &str, content: &[u8]) -> io::Result<()> {
        let beside = self.directory.join(format!("{name}.new"));
        let _ = fs::remove_file(&beside);
        let mut options = OpenOptions::new();
        let mut file = options
            .write(true)
            .create_new(true)
            .mode(0o600)
            .open(&beside)?;
        file.write_all(content)?;
        file.sync_all()?;
        fs::rename(&beside, self.directory.join(name))?;
        sync_directory(&self.directory)
    }
}

fn sync_directory(path: &Path) -> io::Result<()> {
    fs::File::open(path)?.sync_all()
}

/// Removes and returns the first line.
fn take_line<'b>(rest: &mut &'b [u8]) -> Option<&'b str> {
    let end = rest.iter().position(|byte| *byte == b'\n')?;
    let (line, after) = rest.split_at(end);
    *rest = &after[1..];
    std::str::from_utf8(line).ok()
}

/// Removes and returns the first chunk; `None` at the end of a list.
fn take_chunk<'b>(rest: &mut &'b [u8]) -> Result<Option<&'b [u8]>, &'static str> {
    let (length, after) = rest.split_first_chunk().ok_or("it is truncated")?;
    let length = u32::from_be_bytes(*length) as usize;
    if length > MAX_CHUNK || length > after.len() {
        return Err("invalid chunk length");
    }
    let (chunk, after) = after.split_at(length);
    *rest = after;
    Ok((length > 0).then_some(chunk))
}

fn append(content: &mut Vec<u8>, chunk: &[u8]) {
    content.extend((chunk.len() as u32).to_be_bytes());
    content.extend(chunk);
}

fn receive(replica: &mut Replica, bytes: &[u8]) -> Result<(), &'static str> {
    let response = DeltaDiscoveryResponse::decode(bytes);
    replica.receive(response.map_err(|_| "invalid message")?);
    Ok(())
}

fn encrypt(key: &[u8; KEY_LEN], mut chunk: Vec<u8>) -> io::Result<Vec<u8>> {
    let failed = |_| io::Error::other("private keys can't be encrypted");
    let key = RandomizedNonceKey::new(&AES_256_GCM, key).map_err(failed)?;
    let nonce = key
        .seal_in_place_append_tag(Aad::empty(), &mut chunk)
        .map_err(failed)?;
    let mut sealed = nonce.as_ref().to_vec();
    sealed.append(&mut chunk);
    Ok(sealed)
}

fn decrypt(key: &[u8; KEY_LEN], sealed: &[u8]) -> Result<Vec<u8>, &'static str> {
    const WRONG: &str = "private keys can't be decrypted: the key has changed";
    let (nonce, chunk) = sealed.split_first_chunk::<NONCE_LEN>().ok_or(WRONG)?;
    let key = RandomizedNonceKey::new(&AES_256_GCM, key).map_err(|_| WRONG)?;
    let nonce = Nonce::assume_unique_for_key(*nonce);
    let mut chunk = chunk.to_vec();
    let opened = key.open_in_place(nonce, Aad::empty(), &mut chunk);
    Ok(opened.map_err(|_| WRONG)?.to_vec())
}

#[cfg(test)]
mod tests {
    use pointsman_binding::bound::{CertifiedKey, PrivateKey, SecretId};
    use pointsman_resources::Name;

    use super::*;
    use crate::resource::Resource;
    use crate::xds::discovery;

    const PRIVATE: &[u8] = b"a very private key";

    fn replica() -> Replica {
        let secret = CertifiedKey {
            chain: vec![b"a certificate".as_slice().into()],
            key: PrivateKey::Pkcs8(PRIVATE.into()),
        };
        let id = SecretId::Object(Name::new("infra", "tls"));
        let endpoints = pointsman_binding::bound::Endpoints::Dns("a.example".into(), 80);
        let service =
            pointsman_resources::ObjectKey::new(pointsman_resources::Kind::Service, "shop", "web");
        let backend = pointsman_binding::bound::BackendId::new(
            service,
            80,
            pointsman_binding::bound::Transport::Tcp,
        );
        let all = [
            Resource::Secret(id, Arc::new(secret)),
            Resource::Endpoints(backend, Arc::new(endpoints)),
        ];
        let mut replica = Replica::default();
        replica.receive(DeltaDiscoveryResponse {
            resources: all
                .iter()
                .map(|resource| discovery::Resource {
                    name: resource.id().name(),
                    version: "1".to_owned(),
                    resource: Some(prost_types::Any {
                        type_url: resource.id().resource_type().url().to_owned(),
                        value: resource.encode(),
                    }),
                })
                .collect(),
            ..DeltaDiscoveryResponse::default()
        });
        replica
    }

    fn contains(bytes: &[u8], part: &[u8]) -> bool {
        bytes.windows(part.len()).any(|window| window == part)
    }

    #[test]
    fn a_stored_configuration_is_loaded_and_private_keys_are_encrypted() {
        let folder = tempfile::tempdir().expect("a folder");
        let cache = Cache::open(folder.path().join("cache"), true).expect("a cache");
        let all = Subscription::Everything;
        assert!(cache.load(&all).expect("nothing").is_empty());
        cache.store(&all, &replica()).expect("stored");
        assert_eq!(
            cache.load(&all).expect("loaded").digest(),
            replica().digest()
        );
        let bytes = fs::read(folder.path().join("cache/snapshot")).expect("read");
        assert!(!contains(&bytes, PRIVATE));
        assert!(!contains(&bytes, b"a certificate"));
        let mode = |name: &str| {
            let metadata = fs::metadata(folder.path().join(name)).expect("a file");
            metadata.permissions().mode() & 0o777
        };
        assert_eq!(
            [mode("cache"), mode("cache/snapshot"), mode("cache/key")],
            [0o700, 0o600, 0o600]
        );
        // Stored again with the same key.
        cache.store(&all, &replica()).expect("stored");
        assert_eq!(cache.load(&all).expect("loaded").len(), 2);
    }

    #[test]
    fn secrets_are_loaded_even_if_there_is_nothing_else() {
        let folder = tempfile::tempdir().expect("a folder");
        let cache = Cache::open(folder.path().to_owned(), true).expect("a cache");
        let mut only = replica();
        let buckets: Vec<u32> = (0..1024).collect();
        let mut names: Vec<String> = only
            .versions(&buckets)
            .into_iter()
            .map(|(name, _)| name)
            .collect();
        names.retain(|name| !name.starts_with("secret/"));
        only.receive(DeltaDiscoveryResponse {
            removed_resources: names,
            ..DeltaDiscoveryResponse::default()
        });
        only.commit();
        assert_eq!(only.len(), 1);
        cache
            .store(&Subscription::Everything, &only)
            .expect("stored");
        let loaded = cache.load(&Subscription::Everything).expect("loaded");
        assert_eq!(loaded.digest(), only.digest());
    }

    #[test]
    fn without_secrets_no_private_key_and_no_key_for_it_is_stored() {
        let folder = tempfile::tempdir().expect("a folder");
        let cache = Cache::open(folder.path().to_owned(), false).expect("a cache");
        cache
            .store(&Subscription::Everything, &replica())
            .expect("stored");
        assert_eq!(
            cache.load(&Subscription::Everything).expect("loaded").len(),
            1
        );
        assert!(!folder.path().join("key").exists());
    }

    #[test]
    fn without_its_key_only_the_secrets_are_missing() {
        let folder = tempfile::tempdir().expect("a folder");
        let cache = Cache::open(folder.path().to_owned(), true).expect("a cache");
        cache
            .store(&Subscription::Everything, &replica())
            .expect("stored");
        fs::remove_file(folder.path().join("key")).expect("removed");
        assert_eq!(
            cache.load(&Subscription::Everything).expect("loaded").len(),
            1
        );
    }

    #[test]
    fn a_configuration_that_was_cut_or_changed_is_not_used() {
        let folder = tempfile::tempdir().expect("a folder");
        let cache = Cache::open(folder.path().to_owned(), true).expect("a cache");
        cache
            .store(&Subscription::Everything, &replica())
            .expect("stored");
        let path = folder.path().join("snapshot");
        let good = fs::read(&path).expect("read");
        for length in [0, 10, good.len() / 2, good.len() - 1] {
            fs::write(&path, &good[..length]).expect("written");
            assert!(cache.load(&Subscription::Everything).is_err(), "{length}");
        }
        let mut changed = good.clone();
        changed[40] ^= 1;
        fs::write(&path, &changed).expect("written");
        assert!(cache.load(&Subscription::Everything).is_err());
    }

    #[test]
    fn the_configuration_of_another_subscription_is_not_used() {
        let folder = tempfile::tempdir().expect("a folder");
        let cache = Cache::open(folder.path().to_owned(), true).expect("a cache");
        cache
            .store(&Subscription::Everything, &replica())
            .expect("stored");
        let other =
            Subscription::parse(&["gateway/infra/edge".to_owned()]).expect("a subscription");
        let error = cache.load(&other).expect_err("another subscription");
        assert!(
            error.to_string().contains("another subscription: "),
            "{error}"
        );
    }

    #[test]
    fn a_directory_is_used_by_one_process_at_a_time() {
        let folder = tempfile::tempdir().expect("a folder");
        let cache = Cache::open(folder.path().to_owned(), true).expect("a cache");
        let second = Cache::open(folder.path().to_owned(), true).expect_err("in use");
        assert!(second.to_string().ends_with("is used by another process"));
        drop(cache);
        assert!(Cache::open(folder.path().to_owned(), true).is_ok());
    }

    #[test]
    fn a_key_that_does_not_fit_costs_only_the_secrets_until_the_next_store() {
        let folder = tempfile::tempdir().expect("a folder");
        let cache = Cache::open(folder.path().to_owned(), true).expect("a cache");
        let all = Subscription::Everything;
        for key in [&[7; KEY_LEN][..], b"too short"] {
            cache.store(&all, &replica()).expect("stored");
            assert_eq!(cache.load(&all).expect("loaded").len(), 2);
            fs::write(folder.path().join("key"), key).expect("written");
            assert_eq!(cache.load(&all).expect("loaded").len(), 1);
        }
        cache.store(&all, &replica()).expect("stored");
        assert_eq!(cache.load(&all).expect("loaded").len(), 2);
    }

    #[test]
    fn keys_are_removed_once_secrets_are_not_stored_any_more() {
        let folder = tempfile::tempdir().expect("a folder");
        let cache = Cache::open(folder.path().to_owned(), true).expect("a cache");
        let all = Subscription::Everything;
        cache.store(&all, &replica()).expect("stored");
        drop(cache);
        let cache = Cache::open(folder.path().to_owned(), false).expect("a cache");
        assert!(!folder.path().join("key").exists());
        assert_eq!(cache.load(&all).expect("loaded").len(), 1);
    }
}
