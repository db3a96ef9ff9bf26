//! Objects that are generated for a Gateway on Kubernetes: the parameters that configure them, and their state.
//!
//! The controller creates the objects and reports their state. It affects the status of the Gateway and its ListenerSets, never their frontends.

use std::net::IpAddr;

use pointsman_resources::gateway::{Gateway, GatewayClass};
use pointsman_resources::parameters::{GatewayParameters, GatewayParametersSpec};
use pointsman_resources::{Kind, Name, ObjectKey};

use crate::engine::Reader;
use crate::gateway_api::controller::LimitCheck;
use crate::gateway_api::gateway::{GatewayView, IP_ADDRESS};
use crate::gateway_api::observation::Observation;

/// State of the objects that are generated for a Gateway.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct InfrastructureState {
    /// Types and values of the Service's addresses.
    pub addresses: Vec<(String, String)>,
    /// Reason why there is no address.
    pub unassigned: Option<String>,
    /// Reason why an object could not be created or changed.
    pub failure: Option<String>,
    /// Reason why no proxy serves traffic.
    pub not_ready: Option<String>,
}

impl GatewayView {
    /// Adds the state of its generated objects to a Gateway, and what its proxies report about listeners.
    pub(crate) fn with_infrastructure(
        &self,
        state: Option<&InfrastructureState>,
        observation: Option<&Observation>,
    ) -> GatewayView {
        let mut view = self.clone();
        if view.refused.is_none() && !view.is_without_address {
            let requested = std::mem::take(&mut view.addresses);
            let known = view.unusable.take();
            (view.unusable, view.is_without_address) = match state {
                None => (
                    Some((
                        "Pending",
                        "the proxies of the Gateway have not been created yet".to_owned(),
                    )),
                    true,
                ),
                Some(state) => {
                    view.addresses = state.addresses.clone();
                    let serves = !state.addresses.is_empty() && state.not_ready.is_none();
                    (problem(state, &requested, known), !serves)
                }
            };
        }
        if let Some(observation) = observation {
            view.record_listener_failures(observation);
        }
        view
    }
}

/// Returns the reason and message if a Gateway is not programmed: an object could not be created, an address is missing, or no proxy is ready.
fn problem(
    state: &InfrastructureState,
    requested: &[(String, String)],
    known: Option<(&'static str, String)>,
) -> Option<(&'static str, String)> {
    if let Some(failure) = &state.failure {
        return Some(("NoResources", failure.clone()));
    }
    let is_same = |one: &str, other: &str| match (one.parse::<IpAddr>(), other.parse::<IpAddr>()) {
        (Ok(one), Ok(other)) => one == other,
        _ => one == other,
    };
    let is_assigned = |value: &str| state.addresses.iter().any(|(_, own)| is_same(value, own));
    let missing = requested.iter().filter(|(_, value)| !is_assigned(value));
    let missing: Vec<&str> = missing.map(|(_, value)| value.as_str()).collect();
    if known.is_some() || !missing.is_empty() {
        let known = known.into_iter().map(|(_, message)| message);
        let unassigned = (!missing.is_empty()).then(|| {
            let missing = missing.join(", ");
            format!("{missing}: the Service's load balancer has not assigned this address")
        });
        let all: Vec<String> = known.chain(unassigned).collect();
        return Some(("AddressNotUsable", all.join("; ")));
    }
    if state.addresses.is_empty() {
        let message = state
            .unassigned
            .as_deref()
            .unwrap_or("the Gateway has no address yet");
        return Some(("AddressNotAssigned", message.to_owned()));
    }
    let message = state.not_ready.clone()?;
    Some(("Pending", message))
}

/// Resolves the parameters of a Gateway: those of its class, merged with its own. Fails with a message.
pub(crate) fn parameters(
    reader: &Reader<'_>,
    class: &str,
    gateway: &Gateway,
) -> Result<GatewayParametersSpec, String> {
    let base = match reader.class(&Name::new("", class)) {
        Some(found) => class_parameters(reader, found)
            .map_err(|_| format!("GatewayClass {class} is not accepted"))?,
        None => None,
    };
    let infrastructure = gateway.spec.infrastructure.as_ref();
    let reference = infrastructure.and_then(|found| found.parameters_ref.as_ref());
    let own = match reference {
        Some(reference) => {
            let namespace = Some(&*gateway.metadata.namespace);
            let target = (&*reference.group, &*reference.kind, &*reference.name);
            let found = resolve(reader, target, namespace);
            Some(found.map_err(|why| format!("infrastructure.parametersRef: {why}"))?)
        }
        None => None,
    };
    let merged = GatewayParametersSpec::merge(base, own);
    merged.map_err(|error| format!("GatewayParameters: {error}"))
}

/// Removes limits that proxies would not accept: they would not start. Returns the errors.
pub(crate) fn remove_invalid_limits(
    reader: &Reader<'_>,
    parameters: &mut GatewayParametersSpec,
) -> Vec<String> {
    let LimitCheck(check) = reader.controller().check_limit;
    let mut ignored = Vec::new();
    parameters.proxy.limits.retain(|name, value| {
        let checked = check(name, value);
        ignored.extend(checked.as_ref().err().cloned());
        checked.is_ok()
    });
    ignored
}

/// Returns the message for parts of parameters that are ignored; empty if there are none.
pub(crate) fn ignored_message(ignored: &[String]) -> String {
    match ignored {
        [] => String::new(),
        _ => format!(
            "GatewayParameters: ignored in proxy.limits: {}",
            ignored.join("; ")
        ),
    }
}

/// Resolves the parameters of a GatewayClass. Fails with a message.
pub(crate) fn class_parameters<'a>(
    reader: &Reader<'a>,
    class: &GatewayClass,
) -> Result<Option<&'a GatewayParameters>, String> {
    let Some(reference) = &class.spec.parameters_ref else {
        return Ok(None);
    };
    let target = (&*reference.group, &*reference.kind, &*reference.name);
    let found = resolve(reader, target, reference.namespace.as_deref());
    let found = found.map_err(|why| format!("parametersRef: {why}"))?;
    match GatewayParametersSpec::merge(Some(found), None) {
        Ok(_) => Ok(Some(found)),
        Err(error) => Err(format!("GatewayParameters: {error}")),
    }
}

fn resolve<'a>(
    reader: &Reader<'a>,
    (group, kind, name): (&str, &str, &str),
    namespace: Option<&str>,
) -> Result<&'a GatewayParameters, String> {
    if Kind::find(group, kind) != Some(Kind::GatewayParameters) {
        return Err(format!(
            "{kind} {name} is not supported; use GatewayParameters.pointsman.io"
        ));
    }
    let Some(namespace) = namespace else {
        return Err(format!(
            "the namespace of GatewayParameters {name} is missing"
        ));
    };
    let name = Name::new(namespace, name);
    reader.gateway_parameters(&name).ok_or_else(|| {
        let kind = Kind::GatewayParameters;
        reader.missing(&ObjectKey { kind, name })
    })
}

/// Returns an IP address as a status lists it.
pub(crate) fn ip_address(value: String) -> (String, String) {
    (IP_ADDRESS.to_owned(), value)
}
