//! The token that a proxy presents. Another process, such as the kubelet, replaces its file before it expires.

use std::fs;
use std::io;
use std::path::PathBuf;
use std::time::Duration;

use tonic::Request;
use tonic::metadata::{AsciiMetadataValue, errors::InvalidMetadataValue};

use super::ControlPlaneConnectError;

/// Interval between reads of the file. A token is replaced long before it expires.
const INTERVAL: Duration = Duration::from_secs(15);

/// A file with a token.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TokenFile(PathBuf);

/// The value of the header `authorization`.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Credential(AsciiMetadataValue);

impl TokenFile {
    /// Creates a reader of a file.
    pub fn new(path: PathBuf) -> Self {
        TokenFile(path)
    }

    /// Reads the token.
    pub(crate) fn read(&self) -> Result<Credential, ControlPlaneConnectError> {
        let failed = |error| ControlPlaneConnectError::Token(self.0.clone(), error);
        let invalid = |reason: &str| failed(io::Error::new(io::ErrorKind::InvalidData, reason));
        let text = fs::read_to_string(&self.0).map_err(failed)?;
        let token = text.trim();
        if token.is_empty() {
            return Err(invalid("the file is empty"));
        }
        let value: Result<AsciiMetadataValue, InvalidMetadataValue> =
            format!("Bearer {token}").parse();
        let mut value = value.map_err(|_| invalid("a token is one line of ASCII characters"))?;
        value.set_sensitive(true);
        Ok(Credential(value))
    }

    /// Waits until the file has another token than the one in use.
    pub(crate) async fn wait_for_replacement(&self, used: &Credential) {
        loop {
            tokio::time::sleep(INTERVAL).await;
            // If the file can't be read now, the token in use may still be valid.
            if self.read().is_ok_and(|now| now != *used) {
                return;
            }
        }
    }
}

impl Credential {
    /// Adds the token to a request.
    pub(crate) fn attach<T>(credential: Option<&Credential>, request: &mut Request<T>) {
        if let Some(Credential(value)) = credential {
            let metadata = request.metadata_mut();
            metadata.insert("authorization", value.clone());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_is_one_line_and_an_error_names_the_file() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("token");
        let file = TokenFile::new(path.clone());
        let error = |file: &TokenFile| file.read().err().map(|error| error.to_string());
        assert!(error(&file).is_some_and(|error| error.contains("token: No such file")));
        for bad in ["", "\n", "a\nb"] {
            fs::write(&path, bad).expect("written");
            assert!(error(&file).is_some(), "{bad:?}");
        }
        fs::write(&path, "abc\n").expect("written");
        let mut request = Request::new(());
        let credential = file.read().ok();
        Credential::attach(credential.as_ref(), &mut request);
        let value = request.metadata().get("authorization").expect("a header");
        assert_eq!(value.to_str().ok(), Some("Bearer abc"));
        assert!(!format!("{value:?}").contains("abc"), "it is a credential");
    }

    #[tokio::test(start_paused = true)]
    async fn another_token_in_the_file_is_noticed() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("token");
        fs::write(&path, "old").expect("written");
        let file = TokenFile::new(path.clone());
        let used = file.read().expect("a token");
        let replaced = file.wait_for_replacement(&used);
        tokio::pin!(replaced);
        let minute = Duration::from_secs(60);
        assert!(tokio::time::timeout(minute, &mut replaced).await.is_err());
        fs::remove_file(&path).expect("removed");
        assert!(tokio::time::timeout(minute, &mut replaced).await.is_err());
        fs::write(&path, "new").expect("written");
        assert!(tokio::time::timeout(minute, &mut replaced).await.is_ok());
    }
}
