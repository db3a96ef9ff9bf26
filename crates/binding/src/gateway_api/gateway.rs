//! Evaluates a Gateway with its ListenerSets: acceptance, listeners and conditions.

use std::sync::Arc;

use pointsman_resources::gateway::{From, Gateway, GatewayAddress, ListenerSet};
use pointsman_resources::parameters::GatewayParametersSpec;
use pointsman_resources::{Kind, Name, ObjectKey};

use crate::bound::{Frontend, SecretId};
use crate::engine::Reader;
use crate::gateway_api::certificates::{self, CertificateRefError};
use crate::gateway_api::infrastructure;
use crate::gateway_api::listener::{self, ListenerView};
use crate::gateway_api::namespaces;
use crate::status::Condition;

/// A Gateway that Pointsman manages, evaluated. Attached routes are counted elsewhere, so that an added or removed route does not change it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct GatewayView {
    pub generation: i64,
    /// Reason and message if the whole Gateway is not accepted.
    pub refused: Option<(&'static str, String)>,
    /// Reason and message if some of its addresses can't be used.
    pub unusable: Option<(&'static str, String)>,
    /// True if it serves nothing: none of its addresses can be used, or no proxy is ready.
    pub is_without_address: bool,
    /// Its own listeners.
    pub listeners: Vec<ListenerView>,
    /// ListenerSets that reference it, oldest first.
    pub sets: Vec<ListenerSetView>,
    /// Reason and message if a reference of the Gateway itself does not resolve.
    pub unresolved: Option<(&'static str, String)>,
    /// Client certificate for connections to backends.
    pub client_certificate: Option<SecretId>,
    /// Type and value of each requested address.
    pub addresses: Vec<(String, String)>,
    /// Parameters of its generated objects.
    pub parameters: Arc<GatewayParametersSpec>,
    /// Parts of the parameters that are invalid and ignored, with the reasons.
    pub ignored_parameters: Vec<String>,
    /// True if some port accepts clients without a valid certificate.
    pub insecure_fallback: bool,
    /// True if ListenerSets may attach.
    pub allows_sets: bool,
}

/// A ListenerSet of a Gateway, evaluated.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ListenerSetView {
    pub name: Name,
    /// Reason and message if the Gateway does not allow it.
    pub refused: Option<(&'static str, String)>,
    /// Listeners; empty if it is not allowed.
    pub listeners: Vec<ListenerView>,
}

impl ListenerSetView {
    /// Returns whether at least one of its listeners is valid, that is, able to serve traffic.
    fn is_valid(&self) -> bool {
        self.refused.is_none() && self.listeners.iter().any(ListenerView::is_programmed)
    }
}

impl GatewayView {
    /// Returns the listeners that the Gateway or one of its ListenerSets declares; `None` for an unknown ListenerSet.
    pub fn listeners_of(&self, owner: &ObjectKey) -> Option<&[ListenerView]> {
        if owner.kind == Kind::Gateway {
            return Some(&self.listeners);
        }
        self.sets
            .iter()
            .find(|set| set.name == owner.name)
            .map(|set| &set.listeners[..])
    }

    /// Returns the number of attached ListenerSets, which are those that are accepted.
    pub fn attached_sets(&self) -> usize {
        let all = self.sets.iter().filter(|set| set.is_valid());
        if self.refused.is_some() {
            0
        } else {
            all.count()
        }
    }

    /// Returns the frontends of its listeners.
    pub fn frontends(&self) -> impl Iterator<Item = Frontend> {
        let serves = self.refused.is_none() && !self.is_without_address;
        self.listeners
            .iter()
            .chain(self.sets.iter().flat_map(|set| &set.listeners))
            .filter(move |_| serves)
            .filter_map(|listener| listener.frontend(self.client_certificate.as_ref()))
    }

    /// Returns the reason and message if no listener serves traffic or an address can't be used.
    pub fn not_programmed(&self) -> Option<(&'static str, String)> {
        if let Some((_, message)) = &self.refused {
            return Some(("Invalid", message.clone()));
        }
        if let Some((reason, message)) = &self.unusable {
            let message = match *reason == "AddressNotUsable" && !self.is_without_address {
                true => format!("{message}; the other addresses serve traffic"),
                false => message.clone(),
            };
            return Some((reason, message));
        }
        let mut all = self
            .listeners
            .iter()
            .chain(self.sets.iter().flat_map(|set| &set.listeners));
        (!all.any(ListenerView::is_programmed))
            .then(|| ("Invalid", "no listener can serve traffic".to_owned()))
    }

    /// Returns the Gateway's own conditions.
    pub fn conditions(&self) -> Vec<Condition> {
        let mut all = Vec::new();
        let invalid = invalid_listeners(&self.listeners);
        all.push(match &self.refused {
            Some((reason, message)) => Condition::no("Accepted", reason, message.clone()),
            None if invalid.is_empty() => {
                let message = infrastructure::ignored_message(&self.ignored_parameters);
                Condition::yes("Accepted", "Accepted", message)
            }
            None => {
                let mut message = format!("invalid listeners: {}", invalid.join(", "));
                if !self.ignored_parameters.is_empty() {
                    let ignored = infrastructure::ignored_message(&self.ignored_parameters);
                    message = format!("{message}; {ignored}");
                }
                let status = invalid.len() < self.listeners.len();
                Condition::new("Accepted", status, "ListenersNotValid", message)
            }
        });
        all.push(match self.not_programmed() {
            Some((reason, message)) => Condition::no("Programmed", reason, message),
            None => Condition::yes("Programmed", "Programmed", ""),
        });
        let unresolved: Vec<&str> = self
            .listeners
            .iter()
            .filter(|listener| !listener.unresolved.is_empty())
            .map(|listener| listener.spec.name.as_str())
            .collect();
        all.push(match &self.unresolved {
            Some((reason, message)) => Condition::no("ResolvedRefs", reason, message.clone()),
            None if unresolved.is_empty() => Condition::yes("ResolvedRefs", "ResolvedRefs", ""),
            None => Condition::no(
                "ResolvedRefs",
                "ListenersNotResolved",
                format!(
                    "listeners with unresolved references: {}",
                    unresolved.join(", ")
                ),
            ),
        });
        if self.insecure_fallback {
            all.push(Condition::yes(
                "InsecureFrontendValidationMode",
                "ConfigurationChanged",
                "clients without a valid certificate are accepted, because mode is AllowInsecureFallback",
            ));
        }
        all
    }

    /// Returns the conditions of one of its ListenerSets.
    pub fn set_conditions(&self, set: &ListenerSetView) -> Vec<Condition> {
        let both = |reason: &'static str, message: &str| {
            vec![
                Condition::no("Accepted", reason, message.to_owned()),
                Condition::no("Programmed", reason, message.to_owned()),
            ]
        };
        if let Some((reason, message)) = &set.refused {
            return both(reason, message);
        }
        if self.refused.is_some() {
            return both("ParentNotAccepted", "the Gateway is not accepted");
        }
        let invalid = invalid_listeners(&set.listeners);
        let message = format!("invalid listeners: {}", invalid.join(", "));
        if !set.is_valid() {
            return both("ListenersNotValid", &message);
        }
        let accepted = match invalid.is_empty() {
            true => Condition::yes("Accepted", "Accepted", ""),
            false => Condition::yes("Accepted", "ListenersNotValid", message),
        };
        let programmed = match &self.unusable {
            Some((_, message)) if self.is_without_address => {
                Condition::no("Programmed", "ParentNotProgrammed", message.clone())
            }
            _ => Condition::yes("Programmed", "Programmed", ""),
        };
        vec![accepted, programmed]
    }
}

/// Returns the names of the listeners that can't serve traffic: they are not accepted, or have no valid certificate or route kind.
fn invalid_listeners(listeners: &[ListenerView]) -> Vec<&str> {
    let invalid = listeners.iter().filter(|one| !one.is_programmed());
    invalid.map(|one| one.spec.name.as_str()).collect()
}

/// Returns whether Pointsman serves a GatewayClass.
pub(crate) fn is_our_class(reader: &Reader<'_>, name: &str) -> bool {
    reader
        .class(&Name::new("", name))
        .is_some_and(|class| reader.controller().serves_class(class))
}

/// Evaluates a Gateway. Returns `None` if it does not exist or belongs to another controller.
pub(crate) fn evaluate(reader: &Reader<'_>, name: &Name) -> Option<GatewayView> {
    let gateway = reader.gateway(name)?;
    let class = &gateway.spec.gateway_class_name;
    if !is_our_class(reader, class) {
        return None;
    }
    let spec = &gateway.spec;
    let tls = spec.tls.as_ref();
    let owner = ObjectKey {
        kind: Kind::Gateway,
        name: name.clone(),
    };
    let see = |listener| listener::evaluate(reader, name, &owner, tls, listener);
    let mut listeners: Vec<ListenerView> = spec.listeners.iter().map(see).collect();
    let mut sets = evaluate_sets(reader, name, gateway);
    let mut owners = vec![&mut listeners];
    owners.extend(sets.iter_mut().map(|set| &mut set.listeners));
    listener::resolve_conflicts(&mut owners);

    let (mut parameters, mut refused) = match infrastructure::parameters(reader, class, gateway) {
        Ok(parameters) => (parameters, None),
        Err(message) => (
            GatewayParametersSpec::default(),
            Some(("InvalidParameters", message)),
        ),
    };
    let ignored_parameters = infrastructure::remove_invalid_limits(reader, &mut parameters);
    let mut unusable = None;
    for address in &spec.addresses {
        check_address(address, &mut refused, &mut unusable);
    }
    let (client_certificate, unresolved) = client_certificate(reader, gateway);
    let is_usable = |address: &&GatewayAddress| address.kind == IP_ADDRESS;
    let mut usable = spec.addresses.iter().filter(is_usable).peekable();
    let is_without_address = !spec.addresses.is_empty() && usable.peek().is_none();
    let addresses = usable
        .filter_map(|a| Some((a.kind.clone(), a.value.clone().filter(|v| !v.is_empty())?)))
        .filter(|_| refused.is_none())
        .collect();
    let allowed = spec
        .allowed_listeners
        .as_ref()
        .and_then(|a| a.namespaces.as_ref());
    Some(GatewayView {
        generation: gateway.metadata.generation,
        refused,
        unusable,
        is_without_address,
        listeners,
        sets,
        unresolved,
        client_certificate,
        addresses,
        parameters: Arc::new(parameters),
        ignored_parameters,
        insecure_fallback: listener::has_insecure_fallback(tls),
        allows_sets: allowed
            .and_then(|a| a.from)
            .is_some_and(|from| from != From::None),
    })
}

/// Evaluates the ListenerSets that reference a Gateway.
fn evaluate_sets(reader: &Reader<'_>, name: &Name, gateway: &Gateway) -> Vec<ListenerSetView> {
    let sets = reader.listener_sets(name).into_iter();
    let sets = sets.filter(|set| {
        let parent = &set.spec.parent_ref;
        Kind::find(&parent.group, &parent.kind) == Some(Kind::Gateway)
    });
    let evaluate = |set: &ListenerSet| {
        let owner = ObjectKey {
            kind: Kind::ListenerSet,
            name: set.metadata.key(),
        };
        let tls = gateway.spec.tls.as_ref();
        let see = |listener| listener::evaluate(reader, name, &owner, tls, listener);
        let refused = check_set(reader, gateway, set);
        let listeners = match refused {
            Some(_) => Vec::new(),
            None => set.spec.listeners.iter().map(see).collect(),
        };
        ListenerSetView {
            name: owner.name,
            refused,
            listeners,
        }
    };
    sets.map(evaluate).collect()
}

fn check_set(
    reader: &Reader<'_>,
    gateway: &Gateway,
    set: &ListenerSet,
) -> Option<(&'static str, String)> {
    let choice = gateway
        .spec
        .allowed_listeners
        .as_ref()
        .and_then(|a| a.namespaces.as_ref());
    let (home, namespace) = (&gateway.metadata.namespace, &set.metadata.namespace);
    let rule = namespaces::check_allowed(reader, choice, From::None, home, namespace).err()?;
    let name = gateway.metadata.key();
    Some((
        "NotAllowed",
        format!("Gateway {name} does not allow this ListenerSet: allowedListeners.{rule}"),
    ))
}

/// The supported type of addresses.
pub(crate) const IP_ADDRESS: &str = "IPAddress";

fn check_address(
    address: &GatewayAddress,
    refused: &mut Option<(&'static str, String)>,
    unusable: &mut Option<(&'static str, String)>,
) {
    if let Some(scope) = address
        .routability
        .as_deref()
        .filter(|scope| !scope.is_empty())
    {
        let message = format!("routability {scope} of an address is not supported; remove it");
        refused.get_or_insert(("UnsupportedAddress", message));
    }
    match (address.kind.as_str(), address.value.as_deref()) {
        (IP_ADDRESS, _) => {}
        ("Hostname", value) => {
            let message = format!(
                "can't listen on hostname {}; use an address of type IPAddress",
                value.unwrap_or("(any)")
            );
            unusable.get_or_insert(("AddressNotUsable", message));
        }
        (other, _) => {
            let message = format!("addresses of type {other} are not supported; use IPAddress");
            refused.get_or_insert(("UnsupportedAddress", message));
        }
    }
}

/// Resolves the client certificate for connections to backends. Returns it if it is valid, and the error of its reference.
fn client_certificate(
    reader: &Reader<'_>,
    gateway: &Gateway,
) -> (Option<SecretId>, Option<(&'static str, String)>) {
    let backend = gateway
        .spec
        .tls
        .as_ref()
        .and_then(|tls| tls.backend.as_ref());
    let Some(reference) = backend.and_then(|backend| backend.client_certificate_ref.as_ref())
    else {
        return (None, None);
    };
    let namespace = &gateway.metadata.namespace;
    match certificates::resolve_certificate(reader, Kind::Gateway, namespace, reference) {
        Ok(resolved) => {
            let retained = resolved.retained;
            let retained = retained.map(|why| ("InvalidClientCertificateRef", why));
            (Some(resolved.id), retained)
        }
        Err((CertificateRefError::NotPermitted, message)) => {
            (None, Some(("RefNotPermitted", message)))
        }
        Err((_, message)) => (None, Some(("InvalidClientCertificateRef", message))),
    }
}
