//! Lowers the rules of a route into the bound form: expressions are validated, filters converted and backends resolved.
//!
//! The failure policy: a rule that can be matched but not served replies with an error; a rule that can't be matched is dropped. Neither affects other
//! rules, and both are reported in status.

use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;

use pointsman_resources::refs::BackendObjectReference;
use pointsman_resources::route::{
    Fraction, GrpcMethodMatch, MatchType, MethodMatch, PathMatchType, RequestMirror, Route,
    RouteBackendRef, RouteFilter, RouteMatch, RouteRule, ValueMatch,
};
use pointsman_resources::text::single_line;
use pointsman_resources::{Kind, Name, ObjectKey};

use crate::bound::{
    BackendId, BackendName, BoundMatch, BoundRule, Fault, FaultReason, Filter, GrpcPredicate,
    Mirror, PathPredicate, Pattern, RetryPolicy, StringPredicate, Tags, ValuePredicate,
    WeightedBackend, duration,
};
use crate::engine::Reader;
use crate::gateway_api::backends::{self, ReferringRoute};

/// Rules of a route for one type of parent.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct LoweredRules {
    /// Rules that can be matched.
    pub rules: Vec<Arc<BoundRule>>,
    /// Reasons and messages about references that do not resolve.
    pub unresolved: Vec<(&'static str, String)>,
    /// Rules that are not implemented as written, in order, with at most one entry per rule and effect.
    pub invalid: Vec<InvalidRule>,
    /// Backends in use.
    pub uses: BTreeSet<BackendId>,
    /// Referenced XBackends that can't be used, whose own status reports that.
    pub unusable: BTreeSet<ObjectKey>,
}

/// A rule that is not implemented as written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct InvalidRule {
    /// Index in the route.
    pub index: usize,
    /// Human-readable reason.
    pub why: String,
    pub effect: Effect,
    /// True if `ResolvedRefs` already reports the reason.
    pub is_unresolved: bool,
}

/// Effect of an invalid part of a rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Effect {
    /// The rule can't be matched, so it is dropped.
    Dropped,
    /// Every request that matches the rule gets 500.
    Fails,
    /// The share of requests for some of its backends gets 500.
    FailsPartly,
}

impl fmt::Display for InvalidRule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let InvalidRule { index, why, .. } = self;
        match self.effect {
            Effect::Dropped => write!(f, "rule {index}: {why}"),
            Effect::Fails => write!(f, "rule {index} replies with 500: {why}"),
            Effect::FailsPartly => {
                write!(
                    f,
                    "rule {index} replies with 500 to a share of its requests: {why}"
                )
            }
        }
    }
}

impl LoweredRules {
    /// Returns whether every rule is dropped. A rule that replies with an error is not: its requests must not match a broader rule that lacks its filters.
    pub fn drops_every_rule(&self) -> bool {
        self.rules.is_empty() && !self.invalid.is_empty()
    }

    /// Returns whether every rule is dropped, or replies with 500 to all requests because a part of it is not supported.
    pub fn serves_nothing(&self) -> bool {
        let fails = |rule: &Arc<BoundRule>| {
            let mut invalid = self.invalid.iter();
            invalid.any(|other| other.index == rule.index && other.effect == Effect::Fails)
        };
        !self.invalid.is_empty() && self.rules.iter().all(fails)
    }
}

/// Lowers the rules of a route. `implicit` is the backend of rules without backendRefs: the mesh parent's own endpoints.
pub(crate) fn lower(
    reader: &Reader<'_>,
    route: &Route,
    referrer: ReferringRoute<'_>,
    implicit: Option<&BackendId>,
) -> LoweredRules {
    let mut lowering = RuleLowering {
        reader,
        route,
        referrer,
        implicit,
        out: LoweredRules::default(),
    };
    for (index, rule) in route.spec.rules.iter().enumerate() {
        lowering.rule(index, rule);
    }
    lowering.out
}

struct RuleLowering<'a> {
    reader: &'a Reader<'a>,
    route: &'a Route,
    referrer: ReferringRoute<'a>,
    implicit: Option<&'a BackendId>,
    out: LoweredRules,
}

impl RuleLowering<'_> {
    fn rule(&mut self, index: usize, rule: &RouteRule) {
        let matches = match self.lower_matches(rule) {
            Ok(matches) => matches,
            Err(why) => {
                self.record_invalid(index, Effect::Dropped, why, false);
                return;
            }
        };
        let (filters, mut unsupported) = self.filters(&rule.filters, false);
        if rule.session_persistence.is_some() {
            unsupported
                .get_or_insert_with(|| Unsupported::value("sessionPersistence is not supported"));
        }
        let mut fault = unsupported.map(|what| self.record_unsupported(index, Effect::Fails, what));
        let backends: Vec<_> = rule
            .backend_refs
            .iter()
            .map(|reference| (reference, self.filters(&reference.filters, true)))
            .collect();
        // If the shares of all backends fail, the whole rule fails.
        let all_fail = backends
            .iter()
            .all(|(_, (_, unsupported))| unsupported.is_some());
        let effect = match all_fail {
            true => Effect::Fails,
            false => Effect::FailsPartly,
        };
        let mut backends: Vec<WeightedBackend> = backends
            .into_iter()
            .map(|(reference, (filters, unsupported))| {
                let fault = unsupported.map(|what| self.record_unsupported(index, effect, what));
                self.backend(reference, filters, fault)
            })
            .collect();
        let replies = filters.iter().any(Filter::replies);
        if backends.is_empty() && !replies && fault.is_none() {
            match self.implicit {
                Some(id) => backends.push(self.implicit_backend(id)),
                None => fault = Some(Fault::no_backend_refs()),
            }
        }
        let timeouts = rule.timeouts.as_ref();
        let time = |text: Option<&String>| text.and_then(|text| duration(text));
        self.out.rules.push(Arc::new(BoundRule {
            index,
            part: 0,
            name: rule.name.as_deref().map(Arc::from),
            matches,
            filters,
            backends,
            fault,
            request_timeout: time(timeouts.and_then(|t| t.request.as_ref())),
            backend_timeout: time(timeouts.and_then(|t| t.backend_request.as_ref())),
            retry: rule.retry.as_ref().map(|retry| RetryPolicy {
                codes: retry.codes.clone(),
                attempts: retry.attempts,
                backoff: time(retry.backoff.as_ref()),
            }),
            from: Vec::new(),
        }));
    }

    /// Records that a rule is not implemented as written. Of several effects on a rule the worst counts, and of equal ones the first.
    fn record_invalid(&mut self, index: usize, effect: Effect, why: String, is_unresolved: bool) {
        let mut known = self.out.invalid.iter();
        if !known.any(|other| other.index == index && other.effect <= effect) {
            self.out.invalid.push(InvalidRule {
                index,
                why,
                effect,
                is_unresolved,
            });
        }
    }

    /// Records an unsupported part of a rule, and returns the resulting fault.
    fn record_unsupported(&mut self, index: usize, effect: Effect, what: Unsupported) -> Fault {
        let Unsupported { reason, message } = what;
        let is_unresolved = reason == FaultReason::InvalidKind;
        self.record_invalid(index, effect, message.clone(), is_unresolved);
        match is_unresolved {
            true => {
                let message = format!("rule {index}: {message}");
                self.record_unresolved(Fault::new(500, reason, message))
            }
            false => Fault::new(500, reason, message),
        }
    }

    fn implicit_backend(&mut self, id: &BackendId) -> WeightedBackend {
        let fault = backends::missing_trust_for_parent(self.reader, self.route.kind, id);
        let target = match fault {
            Some(fault) => Err(self.record_unresolved(fault)),
            None => Ok(id.clone()),
        };
        if target.is_ok() {
            self.out.uses.insert(id.clone());
        }
        let reference = BackendName {
            kind: id.object.kind.name().into(),
            name: id.object.name.clone(),
            port: Some(id.port),
            tags: Tags::default(),
        };
        WeightedBackend {
            reference,
            weight: 1,
            target,
            filters: Vec::new(),
        }
    }

    fn backend(
        &mut self,
        reference: &RouteBackendRef,
        filters: Vec<Filter>,
        fault: Option<Fault>,
    ) -> WeightedBackend {
        let mut resolved = self.resolve(&reference.target);
        if let (Some(fault), Ok(_)) = (fault, &resolved) {
            resolved = Err(fault);
        }
        WeightedBackend {
            reference: self.backend_name(&reference.target, &resolved),
            weight: reference.weight,
            target: resolved,
            filters,
        }
    }

    /// Returns a backend reference as written, with the port that it resolves to.
    fn backend_name(
        &self,
        reference: &BackendObjectReference,
        resolved: &Result<BackendId, Fault>,
    ) -> BackendName {
        let namespace = reference.namespace.as_deref();
        let namespace = namespace.unwrap_or(self.referrer.namespace);
        BackendName {
            kind: reference.kind.as_str().into(),
            name: Name::new(namespace, reference.name.as_str()),
            port: match resolved {
                Ok(id) => Some(id.port),
                Err(_) => reference.port,
            },
            tags: Tags::default(),
        }
    }

    fn resolve(&mut self, reference: &BackendObjectReference) -> Result<BackendId, Fault> {
        let resolved = backends::resolve(self.reader, self.referrer, reference);
        match &resolved {
            Ok(id) => {
                self.out.uses.insert(id.clone());
            }
            Err(fault) => {
                let namespace = reference.namespace.as_deref();
                let namespace = namespace.unwrap_or(self.referrer.namespace);
                // Without permission by its owner, an XBackend does not get the Gateway as an ancestor.
                let is_permitted = fault.reason != FaultReason::RefNotPermitted;
                let kind = Kind::find(&reference.group, &reference.kind);
                if kind == Some(Kind::XBackend) && is_permitted {
                    let object = ObjectKey::new(Kind::XBackend, namespace, reference.name.as_str());
                    self.out.unusable.insert(object);
                }
                self.record_unresolved(fault.clone());
            }
        }
        resolved
    }

    /// Records a reference that does not resolve.
    fn record_unresolved(&mut self, fault: Fault) -> Fault {
        let entry = (fault.reason.as_str(), fault.message.clone());
        if !self.out.unresolved.contains(&entry) {
            self.out.unresolved.push(entry);
        }
        fault
    }

    /// Lowers filters. Returns the supported ones, and the first unsupported one, which causes the rule or backend to fail.
    fn filters(
        &mut self,
        filters: &[RouteFilter],
        on_backend: bool,
    ) -> (Vec<Filter>, Option<Unsupported>) {
        let (mut all, mut unsupported) = (Vec::new(), None);
        for filter in filters {
            match self.supported_filter(filter, on_backend) {
                Some(lowered) => all.push(lowered),
                None => {
                    unsupported.get_or_insert_with(|| Unsupported::filter(filter, on_backend));
                }
            }
        }
        (all, unsupported)
    }

    fn supported_filter(&mut self, filter: &RouteFilter, on_backend: bool) -> Option<Filter> {
        match filter.kind.as_str() {
            "RequestHeaderModifier" => {
                let change = filter.request_header_modifier.as_ref()?;
                Some(Filter::RequestHeaders(Arc::new(change.clone())))
            }
            "ResponseHeaderModifier" => {
                let change = filter.response_header_modifier.as_ref()?;
                Some(Filter::ResponseHeaders(Arc::new(change.clone())))
            }
            "URLRewrite" => {
                let rewrite = filter.url_rewrite.as_ref()?;
                Some(Filter::Rewrite(Arc::new(rewrite.clone())))
            }
            "RequestMirror" => Some(self.mirror(filter.request_mirror.as_ref()?)),
            "RequestRedirect" if !on_backend => {
                let redirect = filter.request_redirect.as_ref()?;
                Some(Filter::Redirect(Arc::new(redirect.clone())))
            }
            "CORS" if !on_backend => {
                let cors = filter.cors.as_ref()?;
                Some(Filter::Cors(Arc::new(cors.clone())))
            }
            _ => None,
        }
    }

    fn mirror(&mut self, mirror: &RequestMirror) -> Filter {
        let fraction = match (mirror.percent, mirror.fraction) {
            (Some(numerator), _) => Fraction {
                numerator,
                denominator: 100,
            },
            (None, Some(fraction)) => fraction,
            (None, None) => Fraction {
                numerator: 1,
                denominator: 1,
            },
        };
        let target = self.resolve(&mirror.backend_ref);
        Filter::Mirror(Mirror {
            reference: self.backend_name(&mirror.backend_ref, &target),
            target,
            fraction,
            hostname: None,
        })
    }

    fn lower_matches(&self, rule: &RouteRule) -> Result<Vec<BoundMatch>, String> {
        if !matches!(self.route.kind, Kind::HTTPRoute | Kind::GRPCRoute) {
            return Ok(Vec::new());
        }
        if rule.matches.is_empty() {
            // "If no matches are specified, the default is a prefix path match on /."
            return lower_match(0, &RouteMatch::default()).map(|only| vec![only]);
        }
        // `collect` would reserve room for four, and almost all rules have one.
        let mut matches = Vec::with_capacity(rule.matches.len());
        for (index, wanted) in rule.matches.iter().enumerate() {
            matches.push(lower_match(index, wanted)?);
        }
        Ok(matches)
    }
}

/// A part of a rule that is not supported.
struct Unsupported {
    reason: FaultReason,
    message: String,
}

impl Unsupported {
    fn value(message: impl Into<String>) -> Self {
        let reason = FaultReason::UnsupportedValue;
        let message = message.into();
        Unsupported { reason, message }
    }

    /// "If a reference to a custom filter type cannot be resolved, the filter MUST NOT be skipped. Instead, requests that would
    /// have been processed by that filter MUST receive a HTTP error response."
    fn filter(filter: &RouteFilter, on_backend: bool) -> Self {
        let Some(reference) = &filter.extension_ref else {
            let scope = if on_backend { " on a backendRef" } else { "" };
            let kind = &filter.kind;
            return Unsupported::value(format!("filter {kind} is not supported{scope}"));
        };
        let (kind, group, name) = (&reference.kind, &reference.group, &reference.name);
        let message =
            format!("filter {kind}.{group} {name} is not supported; remove the extensionRef");
        let reason = FaultReason::InvalidKind;
        Unsupported { reason, message }
    }
}

fn lower_match(index: usize, wanted: &RouteMatch) -> Result<BoundMatch, String> {
    let (mut path, mut grpc, mut method) = (PathPredicate::Prefix("/".into()), None, None);
    if let Some(wanted) = &wanted.path {
        path = match wanted.kind {
            PathMatchType::Exact => PathPredicate::Exact(wanted.value.as_str().into()),
            PathMatchType::PathPrefix => PathPredicate::Prefix(normalize_prefix(&wanted.value)),
            PathMatchType::RegularExpression => {
                PathPredicate::Regex(compile_pattern(index, "path", &wanted.value)?)
            }
        };
    }
    match &wanted.method {
        Some(MethodMatch::Http(name)) => method = Some(name.as_str().into()),
        Some(MethodMatch::Grpc(wanted)) => (path, grpc) = grpc_match(index, wanted)?,
        None => {}
    }
    Ok(BoundMatch {
        index,
        path,
        grpc,
        method,
        headers: value_predicates(index, "header", &wanted.headers, |name| {
            name.to_ascii_lowercase()
        })?,
        query: value_predicates(
            index,
            "query parameter",
            &wanted.query_params,
            str::to_owned,
        )?,
    })
}

/// "When a trailing slash is given it is ignored": `/abc/` is `/abc`.
pub(crate) fn normalize_prefix(value: &str) -> Arc<str> {
    match value.trim_end_matches('/') {
        "" => "/".into(),
        trimmed => trimmed.into(),
    }
}

fn grpc_match(
    index: usize,
    wanted: &GrpcMethodMatch,
) -> Result<(PathPredicate, Option<GrpcPredicate>), String> {
    let named = |text: &Option<String>| text.clone().filter(|text| !text.is_empty());
    let (service, method) = (named(&wanted.service), named(&wanted.method));
    if wanted.kind == MatchType::Exact {
        return Ok(match (service, method) {
            (Some(service), Some(method)) => (
                PathPredicate::Exact(format!("/{service}/{method}").into()),
                None,
            ),
            (Some(service), None) => (PathPredicate::Prefix(format!("/{service}").into()), None),
            (None, Some(method)) => {
                let method = Some(StringPredicate::Exact(method.into()));
                (
                    PathPredicate::Prefix("/".into()),
                    Some(GrpcPredicate {
                        service: None,
                        method,
                    }),
                )
            }
            (None, None) => (PathPredicate::Prefix("/".into()), None),
        });
    }
    let part = |what, text: Option<String>| {
        text.map(|text| compile_pattern(index, what, &text).map(StringPredicate::Regex))
            .transpose()
    };
    let predicate = GrpcPredicate {
        service: part("service", service)?,
        method: part("method", method)?,
    };
    Ok((PathPredicate::Prefix("/".into()), Some(predicate)))
}

pub(crate) fn compile_pattern(index: usize, what: &str, text: &str) -> Result<Pattern, String> {
    Pattern::new(text).map_err(|error| {
        let why = error.to_string();
        let why = why
            .lines()
            .last()
            .unwrap_or_default()
            .trim_start_matches("error: ");
        let text = single_line(text);
        format!("match {index}: {what} `{text}` is not a regular expression in RE2 syntax: {why}")
    })
}

/// "Only the first entry with an equivalent name is considered": later ones are ignored.
pub(crate) fn value_predicates(
    index: usize,
    what: &str,
    wanted: &[ValueMatch],
    normal: impl Fn(&str) -> String,
) -> Result<Vec<ValuePredicate>, String> {
    let mut all: Vec<ValuePredicate> = Vec::new();
    for entry in wanted {
        let name = normal(&entry.name);
        if all.iter().any(|known| *known.name == *name) {
            continue;
        }
        let value = match entry.kind {
            MatchType::Exact => StringPredicate::Exact(entry.value.as_str().into()),
            MatchType::RegularExpression => {
                let what = format!("{what} {}", entry.name);
                StringPredicate::Regex(compile_pattern(index, &what, &entry.value)?)
            }
        };
        all.push(ValuePredicate {
            name: name.into(),
            value,
        });
    }
    Ok(all)
}
