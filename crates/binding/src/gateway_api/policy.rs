//! Policies for backends and Gateways: precedence, effect and status.

use std::collections::BTreeSet;
use std::sync::Arc;

use pointsman_resources::policy::{
    BackendTLSPolicy, BackendTlsValidation, SubjectAltName, XBackendTrafficPolicy, XTelemetryPolicy,
};
use pointsman_resources::{Kind, Name, ObjectKey, Resource};

use crate::bound::{BackendTls, Fault, FaultReason, PeerName, RetryBudget, Trust, duration};
use crate::engine::Reader;
use crate::gateway_api::backends;
use crate::gateway_api::certificates::{self, CertificateRefError};
use crate::gateway_api::gateway;
use crate::gateway_api::grants;
use crate::status::{AncestorStatus, Condition};

/// Resolves the trust anchors of a validation. Returns them if any is valid, and the errors of its references.
pub(crate) fn resolve_trust(
    reader: &Reader<'_>,
    from: Kind,
    namespace: &str,
    validation: &BackendTlsValidation,
) -> (Option<Trust>, Vec<(&'static str, String)>) {
    match validation.well_known_ca_certificates.as_deref() {
        Some("System") => return (Some(Trust::System), Vec::new()),
        Some(other) => {
            let message =
                format!("wellKnownCACertificates `{other}` is not supported; use `System`");
            return (None, vec![("Invalid", message)]);
        }
        None => {}
    }
    let (mut all, mut problems) = (Vec::new(), Vec::new());
    for reference in &validation.ca_certificate_refs {
        let parts = (&*reference.group, &*reference.kind, &*reference.name, None);
        match certificates::resolve_authorities(reader, from, namespace, parts) {
            Ok(some) => all.extend(some),
            Err((CertificateRefError::InvalidKind, message)) => {
                problems.push(("InvalidKind", message))
            }
            Err((_, message)) => problems.push(("InvalidCACertificateRef", message)),
        }
    }
    (
        (!all.is_empty()).then_some(Trust::Authorities(all)),
        problems,
    )
}

/// Converts the names of which a certificate must have one.
pub(crate) fn peer_names(names: &[SubjectAltName]) -> Vec<PeerName> {
    let peer = |name: &SubjectAltName| match name.kind.as_str() {
        "Hostname" => name.hostname.clone().map(PeerName::Hostname),
        "URI" => name.uri.clone().map(PeerName::Uri),
        _ => None,
    };
    names.iter().filter_map(peer).collect()
}

/// Returns the BackendTLSPolicy that applies to a port. Policies for the port take precedence over those for the whole Service, then older ones over
/// younger ones.
fn tls_policy<'a>(
    reader: &Reader<'a>,
    target: &ObjectKey,
    port: Option<&str>,
) -> Option<&'a BackendTLSPolicy> {
    let policies: Vec<&BackendTLSPolicy> = reader
        .policies(Kind::BackendTLSPolicy, target)
        .into_iter()
        .filter_map(|policy| match policy {
            Resource::BackendTLSPolicy(policy) => Some(&**policy),
            _ => None,
        })
        .collect();
    let naming = |section: Option<&str>| {
        policies.iter().copied().find(|policy| {
            policy.spec.target_refs.iter().any(|reference| {
                Kind::find(&reference.group, &reference.kind) == Some(target.kind)
                    && *reference.name == *target.name.name
                    && reference.section_name.as_deref() == section
            })
        })
    };
    port.and_then(|port| naming(Some(port)))
        .or_else(|| naming(None))
}

/// Returns the TLS settings of a port by the policy that applies, or the fault if that is invalid.
pub(crate) fn backend_tls(
    reader: &Reader<'_>,
    target: &ObjectKey,
    port: Option<&str>,
) -> Option<Result<Arc<BackendTls>, Fault>> {
    let policy = tls_policy(reader, target, port)?;
    let validation = &policy.spec.validation;
    let from = Kind::BackendTLSPolicy;
    let (found, problems) = resolve_trust(reader, from, &policy.metadata.namespace, validation);
    let option = unsupported_option(policy);
    Some(match found.filter(|_| option.is_none()) {
        Some(trust) => Ok(Arc::new(BackendTls {
            hostname: validation.hostname.as_str().into(),
            trust,
            names: peer_names(&validation.subject_alt_names),
            client_certificate: None,
            of_mesh: false,
        })),
        None => {
            let reason = match option {
                Some(_) => FaultReason::Invalid,
                None => FaultReason::NoValidCACertificate,
            };
            let why: Vec<String> = option
                .into_iter()
                .chain(problems.into_iter().map(|(_, message)| message))
                .collect();
            let name = policy.metadata.key();
            let message = format!(
                "BackendTLSPolicy {name} is not valid: {}",
                grants::join(&why)
            );
            Err(Fault {
                status: 502,
                reason,
                message,
            })
        }
    })
}

fn unsupported_option(policy: &BackendTLSPolicy) -> Option<String> {
    let option = policy.spec.options.keys().next()?;
    Some(format!("options `{option}` is not supported; remove it"))
}

/// Computes the status of a BackendTLSPolicy, with an ancestor for each Gateway whose routes use its targets.
pub(crate) fn tls_policy_status(
    reader: &Reader<'_>,
    policy: &BackendTLSPolicy,
    ancestors: impl Fn(&ObjectKey) -> Vec<Name>,
) -> Vec<AncestorStatus> {
    let namespace = &policy.metadata.namespace;
    let mut gateways: BTreeSet<Name> = BTreeSet::new();
    let (mut found, mut missing, mut overridden) = (0, Vec::new(), Vec::new());
    for reference in &policy.spec.target_refs {
        let Some(kind @ (Kind::Service | Kind::ServiceImport)) =
            Kind::find(&reference.group, &reference.kind)
        else {
            missing.push(format!(
                "{} {} is not a supported target",
                reference.kind, reference.name
            ));
            continue;
        };
        let target = ObjectKey::new(kind, namespace.clone(), reference.name.as_str());
        gateways.extend(ancestors(&target));
        let section = reference.section_name.as_deref();
        let ports = match kind {
            Kind::Service => reader
                .service(&target.name)
                .map(|service| &service.spec.ports),
            _ => reader
                .service_import(&target.name)
                .map(|import| &import.spec.ports),
        };
        match ports {
            None => missing.push(reader.missing(&target)),
            Some(ports)
                if section.is_some_and(|s| !ports.iter().any(|p| p.name.as_deref() == Some(s))) =>
            {
                missing.push(format!(
                    "{target} has no port named {}",
                    section.unwrap_or_default()
                ));
            }
            Some(_) => {
                found += 1;
                match tls_policy(reader, &target, section) {
                    Some(winner)
                        if winner.metadata.name != policy.metadata.name
                            && has_target(winner, &target, section) =>
                    {
                        let port = section.map(|s| format!(" port {s}")).unwrap_or_default();
                        overridden.push(format!(
                            "{target}{port}: overridden by BackendTLSPolicy {}, which is older",
                            winner.metadata.key()
                        ));
                    }
                    _ => {}
                }
            }
        }
    }
    let validation = &policy.spec.validation;
    let (trusted, problems) = resolve_trust(reader, Kind::BackendTLSPolicy, namespace, validation);
    let text = |problems: &[(&'static str, String)]| {
        let messages: Vec<&str> = problems
            .iter()
            .map(|(_, message)| message.as_str())
            .collect();
        grants::join(&messages)
    };
    let accepted = if found == 0 {
        Condition::no("Accepted", "TargetNotFound", missing.join("; "))
    } else if overridden.len() == found {
        Condition::no("Accepted", "Conflicted", overridden.join("; "))
    } else if let Some(why) = unsupported_option(policy) {
        Condition::no("Accepted", "Invalid", why)
    } else if let Some((reason @ "Invalid", message)) = problems.first() {
        Condition::no("Accepted", reason, message.clone())
    } else if trusted.is_none() {
        Condition::no("Accepted", "NoValidCACertificate", text(&problems))
    } else {
        missing.extend(overridden);
        Condition::yes("Accepted", "Accepted", missing.join("; "))
    };
    let unresolved = problems.iter().find(|(reason, _)| *reason != "Invalid");
    let resolved = match unresolved {
        Some((reason, _)) => Condition::no("ResolvedRefs", reason, text(&problems)),
        None => Condition::yes("ResolvedRefs", "ResolvedRefs", ""),
    };
    ancestor_statuses(gateways, &[accepted, resolved])
}

fn has_target(policy: &BackendTLSPolicy, target: &ObjectKey, section: Option<&str>) -> bool {
    policy.spec.target_refs.iter().any(|reference| {
        *reference.name == *target.name.name && reference.section_name.as_deref() == section
    })
}

fn ancestor_statuses(gateways: BTreeSet<Name>, conditions: &[Condition]) -> Vec<AncestorStatus> {
    gateways
        .into_iter()
        .map(|name| AncestorStatus {
            ancestor: ObjectKey {
                kind: Kind::Gateway,
                name,
            },
            conditions: conditions.to_vec(),
        })
        .collect()
}

fn traffic_policy<'a>(
    reader: &Reader<'a>,
    target: &ObjectKey,
) -> Option<&'a XBackendTrafficPolicy> {
    match reader
        .policies(Kind::XBackendTrafficPolicy, target)
        .into_iter()
        .next()?
    {
        Resource::XBackendTrafficPolicy(policy) => Some(policy),
        _ => None,
    }
}

/// Returns the retry budget of a backend by the policy that applies.
pub(crate) fn retry_budget(reader: &Reader<'_>, target: &ObjectKey) -> Option<RetryBudget> {
    let policy = traffic_policy(reader, target)?;
    let constraint = policy
        .spec
        .retry_constraint
        .as_ref()
        .filter(|_| policy.spec.session_persistence.is_none())?;
    Some(RetryBudget {
        percent: constraint.budget.percent,
        interval: duration(&constraint.budget.interval)?,
        min_count: constraint.min_retry_rate.count,
        min_interval: duration(&constraint.min_retry_rate.interval)?,
    })
}

/// Computes the status of an XBackendTrafficPolicy, with an ancestor for each Gateway whose routes use its targets.
pub(crate) fn traffic_policy_status(
    reader: &Reader<'_>,
    policy: &XBackendTrafficPolicy,
    ancestors: impl Fn(&ObjectKey) -> Vec<Name>,
) -> Vec<AncestorStatus> {
    let mut gateways = BTreeSet::new();
    let (mut found, mut missing, mut overridden) = (0, Vec::new(), Vec::new());
    for reference in &policy.spec.target_refs {
        let kind = Kind::find(&reference.group, &reference.kind);
        let Some(kind @ (Kind::Service | Kind::ServiceImport | Kind::XBackend)) = kind else {
            missing.push(format!(
                "{} {} is not a supported target",
                reference.kind, reference.name
            ));
            continue;
        };
        let target = ObjectKey::new(
            kind,
            policy.metadata.namespace.clone(),
            reference.name.as_str(),
        );
        gateways.extend(ancestors(&target));
        if reader.object(&target).is_none() {
            missing.push(reader.missing(&target));
            continue;
        }
        found += 1;
        if let Some(winner) = traffic_policy(reader, &target)
            && winner.metadata.name != policy.metadata.name
        {
            let winner = winner.metadata.key();
            overridden.push(format!(
                "{target}: overridden by XBackendTrafficPolicy {winner}, which is older"
            ));
        }
    }
    let accepted = if found == 0 {
        Condition::no("Accepted", "TargetNotFound", missing.join("; "))
    } else if overridden.len() == found {
        Condition::no("Accepted", "Conflicted", overridden.join("; "))
    } else if policy.spec.session_persistence.is_some() {
        Condition::no("Accepted", "Invalid", "sessionPersistence is not supported")
    } else {
        missing.extend(overridden);
        Condition::yes("Accepted", "Accepted", missing.join("; "))
    };
    ancestor_statuses(gateways, &[accepted])
}

/// Computes the status of an XTelemetryPolicy, with an ancestor for each Gateway that it targets.
pub(crate) fn telemetry_policy_status(
    reader: &Reader<'_>,
    policy: &XTelemetryPolicy,
) -> Vec<AncestorStatus> {
    let mut statuses = Vec::new();
    for reference in &policy.spec.target_refs {
        if Kind::find(&reference.group, &reference.kind) != Some(Kind::Gateway) {
            continue;
        }
        let namespace = policy.metadata.namespace.clone();
        let target = ObjectKey::new(Kind::Gateway, namespace, reference.name.as_str());
        let ours = reader
            .gateway(&target.name)
            .is_some_and(|found| gateway::is_our_class(reader, &found.spec.gateway_class_name));
        if !ours {
            continue;
        }
        let oldest = reader
            .policies(Kind::XTelemetryPolicy, &target)
            .into_iter()
            .next();
        let winner = oldest.map(|policy| policy.meta().key());
        let accepted = if winner.as_ref() != Some(&policy.metadata.key()) {
            let name = winner.map(|winner| winner.to_string()).unwrap_or_default();
            let message = format!("overridden by XTelemetryPolicy {name}, which is older");
            Condition::no("Accepted", "Conflicted", message)
        } else if policy.spec.tracing.mode == "Enabled" {
            Condition::no(
                "Accepted",
                "Invalid",
                "tracing.mode Enabled is not supported",
            )
        } else {
            Condition::yes("Accepted", "Accepted", "")
        };
        let resolved = Condition::yes("ResolvedRefs", "ResolvedRefs", "");
        statuses.push(AncestorStatus {
            ancestor: target,
            conditions: vec![accepted, resolved],
        });
    }
    statuses
}

/// Computes the status of an XBackend, with an ancestor for each Gateway whose routes use it.
pub(crate) fn x_backend_status(
    reader: &Reader<'_>,
    name: &Name,
    refused: Option<Condition>,
    ancestors: impl Fn(&ObjectKey) -> Vec<Name>,
) -> Vec<AncestorStatus> {
    let Some(backend) = reader.backend(name) else {
        return Vec::new();
    };
    let unsupported = backends::x_backend_unsupported(backend);
    let accepted = match (unsupported, backends::x_backend_tls(reader, backend)) {
        (Some(why), _) => Condition::no("Accepted", "UnsupportedValue", why),
        (None, Some(Err(fault))) => Condition::no("Accepted", fault.reason.as_str(), fault.message),
        (None, _) => Condition::yes("Accepted", "Accepted", ""),
    };
    let mut conditions = vec![accepted];
    let reference = backend.spec.tls.client_certificate_ref.as_ref();
    let resolved = reference.and_then(|reference| {
        let namespace = &backend.metadata.namespace;
        certificates::resolve_certificate(reader, Kind::XBackend, namespace, reference).ok()
    });
    if let Some(why) = resolved.and_then(|resolved| resolved.retained) {
        let reason = "InvalidClientCertificateRef";
        conditions.push(Condition::no("ResolvedRefs", reason, why));
    }
    let key = ObjectKey {
        kind: Kind::XBackend,
        name: name.clone(),
    };
    conditions.extend(refused);
    ancestor_statuses(ancestors(&key).into_iter().collect(), &conditions)
}
