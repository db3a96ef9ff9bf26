//! Connections to API servers, as kubectl makes them.

use std::path::{Path, PathBuf};

use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Client, Config};

/// A connection to an API server.
#[derive(Clone)]
pub struct Connection {
    /// The client.
    pub client: Client,
    /// Name of the kubeconfig's context; `None` within a cluster.
    pub context: Option<String>,
    /// URL of the API server.
    pub url: String,
    /// Namespace of the context, or of this Pod.
    pub namespace: String,
}

/// Reason why there is no connection.
#[derive(Debug, thiserror::Error)]
pub enum ConnectError {
    /// A kubeconfig can't be used.
    #[error("{0}")]
    Kubeconfig(PathBuf, #[source] kube::config::KubeconfigError),
    /// The default kubeconfig, or the context in it, can't be used.
    #[error("the kubeconfig can't be used")]
    Default(#[from] kube::config::KubeconfigError),
    /// There is neither a kubeconfig nor a ServiceAccount of a Pod.
    ///
    /// The message has the causes, so the error is not also a source.
    #[error("no cluster is configured (neither a kubeconfig nor a Pod's ServiceAccount): {0}")]
    Infer(kube::config::InferConfigError),
    /// The configuration can't be used.
    #[error("the client can't be configured")]
    Client(#[from] kube::Error),
}

/// Connects to the cluster of a kubeconfig and context. By default these are the ones that kubectl would use, or within a Pod its own cluster.
///
/// Must be called within a tokio runtime. No request is made.
pub async fn connect(
    kubeconfig: Option<&Path>,
    context: Option<&str>,
) -> Result<Connection, ConnectError> {
    let read = match kubeconfig {
        Some(path) => Some(
            Kubeconfig::read_from(path)
                .map_err(|error| ConnectError::Kubeconfig(path.to_owned(), error))?,
        ),
        None if context.is_some() => Some(Kubeconfig::read()?),
        None => None,
    };
    let current = match &read {
        Some(read) => read.current_context.clone(),
        // The client below reads the same one.
        None => Kubeconfig::read()
            .ok()
            .and_then(|read| read.current_context),
    };
    let mut config = match read {
        Some(read) => {
            let options = KubeConfigOptions {
                context: context.map(str::to_owned),
                ..KubeConfigOptions::default()
            };
            Config::from_custom_kubeconfig(read, &options).await?
        }
        None => Config::infer().await.map_err(ConnectError::Infer)?,
    };
    identify(&mut config);
    let (url, namespace) = (
        config.cluster_url.to_string(),
        config.default_namespace.clone(),
    );
    Ok(Connection {
        client: Client::try_from(config)?,
        context: context.map(str::to_owned).or(current),
        url,
        namespace,
    })
}

/// Names this program in the API server's audit log, metrics and `managedFields`.
fn identify(config: &mut Config) {
    const AGENT: &str = concat!("pointsman/", env!("CARGO_PKG_VERSION"));
    if let (Ok(name), Ok(value)) = ("user-agent".parse(), AGENT.parse()) {
        config.headers.push((name, value));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // The API server derives the manager of fields from the part before the slash.
    #[test]
    fn requests_name_the_program_and_its_version() {
        let mut config = Config::new("https://192.0.2.1".parse().expect("a URL"));
        identify(&mut config);
        let (name, value) = config.headers.first().expect("a header");
        let version = env!("CARGO_PKG_VERSION");
        assert_eq!(name.as_str(), "user-agent");
        assert_eq!(value.to_str().ok(), Some(&*format!("pointsman/{version}")));
    }
}
