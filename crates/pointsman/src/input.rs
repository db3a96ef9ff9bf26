//! Input of the commands that carry no traffic: manifests, or the objects of a cluster as kubectl would read them.

use std::sync::Arc;

use anyhow::{Context, Result};
use pointsman_binding::{Controller, LimitCheck};
use pointsman_control::offline::{self, Loaded, LoadedObjects};
use pointsman_kube::connect::{ConnectError, connect};
use pointsman_kube::listing::{self, Installation, Listing};
use pointsman_resources::{Finding, Kind, ObjectKey, Severity};

use crate::cli::{
    ClusterConnection, DEFAULT_GATEWAY_CLASS, EndpointAddresses, Sources, check_limit,
};
use crate::output;

/// Objects that a report covers. Others are read too, because objects reference each other.
pub enum ReportScope {
    /// All.
    All,
    /// Those of a namespace, and those without one.
    Namespace(String),
}

impl ReportScope {
    /// Returns whether the report covers an object.
    pub fn includes(&self, key: &ObjectKey) -> bool {
        match self {
            ReportScope::All => true,
            ReportScope::Namespace(namespace) => {
                key.kind.is_cluster_scoped() || key.namespace().to_string() == *namespace
            }
        }
    }
}

/// Loads manifests or, without `-f`, the objects of a cluster.
pub fn load(sources: &Sources) -> Result<(Loaded, ReportScope)> {
    if sources.paths.is_empty() {
        return load_cluster(sources);
    }
    let permissions = sources.permissions.permissions()?;
    let mut objects = offline::read(&sources.paths);
    if let Some(class) = &sources.cluster.connection.gateway_class {
        add_gateway_class(&mut objects, installation(sources, class));
    }
    let loaded = offline::bind(objects, controller(sources), &permissions);
    Ok((loaded, ReportScope::All))
}

/// Adds the GatewayClass of an installation, unless the manifests have one with the name.
fn add_gateway_class(objects: &mut LoadedObjects, installation: Installation<'_>) {
    let key = ObjectKey::new(Kind::GatewayClass, "", installation.class);
    let documents = objects.documents.iter();
    let mut keys = documents.map(|document| document.resource.key());
    if !keys.any(|other| other == key) {
        let class = listing::assumed_class(installation);
        objects.documents.extend(class);
    }
}

fn installation<'s>(sources: &'s Sources, class: &'s str) -> Installation<'s> {
    Installation {
        controller: &sources.controller_name,
        class,
    }
}

/// Returns the controller whose statuses are reported.
fn controller(sources: &Sources) -> Controller {
    Controller {
        name: sources.controller_name.as_str().into(),
        check_limit: LimitCheck(check_limit),
        ..Controller::default()
    }
}

fn load_cluster(sources: &Sources) -> Result<(Loaded, ReportScope)> {
    let permissions = sources
        .permissions
        .permissions_or(EndpointAddresses::Routable)?;
    let flags = &sources.cluster;
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    let (listing, namespace) = runtime.block_on(async {
        let ClusterConnection {
            kubeconfig,
            context,
            gateway_class,
        } = &flags.connection;
        let connection = connect(kubeconfig.as_deref(), context.as_deref());
        let connection = connection.await.map_err(explain_default)?;
        let namespace = flags.namespace.clone();
        let namespace = namespace.unwrap_or_else(|| connection.namespace.clone());
        let class = gateway_class.as_deref();
        let installation = installation(sources, class.unwrap_or(DEFAULT_GATEWAY_CLASS));
        let listing = listing::list(&connection.client, &namespace, installation).await;
        let listing = listing.with_context(|| format!("cluster {}", connection.url))?;
        anyhow::Ok((listing, namespace))
    })?;
    for restriction in &listing.restrictions {
        output::print_error(&format!("warning: {restriction}"));
    }
    let scope = match flags.all_namespaces {
        true => ReportScope::All,
        false => ReportScope::Namespace(namespace),
    };
    let objects = objects(listing, &scope);
    let loaded = offline::bind(objects, controller(sources), &permissions);
    Ok((loaded, scope))
}

/// Adds a hint to the error of a command line without `-f`.
fn explain_default(error: ConnectError) -> anyhow::Error {
    let hint = match &error {
        ConnectError::Infer(_) => "without -f, objects are read from a cluster",
        _ => "the cluster can't be read",
    };
    anyhow::Error::from(error).context(hint)
}

fn objects(listing: Listing, scope: &ReportScope) -> LoadedObjects {
    let reported = listing
        .rejected
        .iter()
        .filter(|(key, _)| scope.includes(key));
    let findings = reported.map(|(key, why)| Finding {
        severity: Severity::Error,
        file: key.to_string().into(),
        line: 0,
        column: 0,
        field: String::new(),
        message: format!("rejected as invalid: {why}"),
    });
    LoadedObjects {
        findings: findings.collect(),
        documents: listing.documents,
        rejected: listing
            .rejected
            .into_iter()
            .map(|(key, why)| (key, why.into()))
            .collect(),
        served_api: Some(Arc::new(listing.served)),
        ..LoadedObjects::default()
    }
}
