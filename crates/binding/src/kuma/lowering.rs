//! Lowers merged rules into the bound form: expressions are validated, filters converted and backends resolved.
//!
//! The failure policy is that of [`crate::gateway_api::rules`]: a rule that can be matched but not served replies with an error, one that can't be matched is dropped,
//! and both are reported in the status of the policies that they come from.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use pointsman_resources::kuma::{
    BackendRef, DataSource, DirectResponse, Filter as KumaFilter, HeaderTest, KubernetesService,
    Match, MeshRoute, TargetRef,
};
use pointsman_resources::route::{PathMatchType, UrlRewrite as HostAndPath};
use pointsman_resources::{Kind, ObjectKey};

use super::backend;
use super::cross_mesh;
use super::external;
use super::merge::{EffectiveRule, OverriddenRule};
use super::policy::MeshPolicy;
use crate::bound::{
    self, BackendId, BackendName, BoundMatch, BoundRule, Fault, FaultReason, Filter, Mirror,
    PathPredicate, RuleSource, StringPredicate, Tags, ValuePredicate, WeightedBackend,
};
use crate::engine::Reader;
use crate::gateway_api::rules::{compile_pattern, normalize_prefix, value_predicates};

/// Findings about policies, for their status.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct PolicyFindings {
    /// References that do not resolve: reason and message.
    pub unresolved: BTreeMap<ObjectKey, BTreeSet<(&'static str, String)>>,
    /// Rules that are not implemented as written.
    pub invalid: BTreeMap<ObjectKey, BTreeSet<String>>,
    /// Rules and lists that more specific policies override, with the callers to whom that applies.
    pub overridden: BTreeMap<ObjectKey, BTreeSet<(OverriddenRule, Callers)>>,
    /// Surprising effects of merging.
    pub remarks: BTreeMap<ObjectKey, BTreeSet<String>>,
    /// Backends with a weight above 0, with the rules that name them.
    pub backends: BTreeSet<(RuleSource, BackendId)>,
}

/// Proxies to whose calls the same policies apply.
pub(crate) type Callers = Arc<[ObjectKey]>;

/// Index of a `to` item, and of a rule in it.
pub(crate) type RuleIndex = (Option<usize>, usize);

/// Returns the field of a rule in its policy.
pub(crate) fn rule_field((to, rule): RuleIndex) -> String {
    match to {
        Some(to) => format!("spec.to[{to}].rules[{rule}]"),
        None => format!("spec.rules[{rule}]"),
    }
}

/// Lowers rules for one destination or listener.
pub(crate) struct PolicyLowering<'a, 'r> {
    pub reader: &'a Reader<'r>,
    pub mesh: &'a str,
    /// Original destination of the calls; `None` on a gateway.
    pub destination: Option<&'a BackendId>,
    /// True if HTTP requests are routed, not streams.
    pub http: bool,
    pub callers: Callers,
    /// Backends in use.
    pub uses: BTreeSet<BackendId>,
    pub findings: PolicyFindings,
}

impl PolicyLowering<'_, '_> {
    /// Lowers the rules of an HTTP frontend.
    pub fn http_rules(&mut self, merged: &[EffectiveRule<'_>]) -> Vec<Arc<BoundRule>> {
        let mut rules = Vec::new();
        for (index, rule) in merged.iter().enumerate() {
            self.record_overridden(rule);
            match lower_matches(rule.matches, self.default_path_predicate()) {
                Ok(matches) => self.rule(index, rule, matches, &mut rules),
                Err(why) => {
                    for source in &rule.from {
                        self.record_invalid(source, &why);
                    }
                }
            }
        }
        rules
    }

    /// Lowers the most specific of a stream's rules: "backendRefs replaced as a whole".
    pub fn stream_rules(&mut self, merged: &[EffectiveRule<'_>]) -> Vec<Arc<BoundRule>> {
        let mut rules = Vec::new();
        if let Some(first) = merged.first() {
            self.record_overridden(first);
            self.rule(0, first, Vec::new(), &mut rules);
        }
        rules
    }

    /// Returns the rule that applies without policies: calls are forwarded to their original destination.
    pub fn default_rule(&mut self) -> Option<BoundRule> {
        let backend = self.own_destination(false)?;
        let matches = match self.http {
            true => lower_matches(&[Match::default()], self.default_path_predicate())
                .unwrap_or_default(),
            false => Vec::new(),
        };
        Some(new_rule(
            0,
            matches,
            Vec::new(),
            vec![backend],
            None,
            Vec::new(),
        ))
    }

    /// Returns the path predicate of a match without a path: "a match without a path comes after all (on gateways it is prefix `/`)".
    fn default_path_predicate(&self) -> PathPredicate {
        match self.destination {
            Some(_) => PathPredicate::Any,
            None => PathPredicate::Prefix("/".into()),
        }
    }

    fn record_overridden(&mut self, rule: &EffectiveRule<'_>) {
        for overridden in &rule.overridden {
            let all = self
                .findings
                .overridden
                .entry(overridden.rule.policy.clone())
                .or_default();
            all.insert((overridden.clone(), self.callers.clone()));
        }
    }

    fn rule(
        &mut self,
        index: usize,
        rule: &EffectiveRule<'_>,
        matches: Vec<BoundMatch>,
        rules: &mut Vec<Arc<BoundRule>>,
    ) {
        let (mut filters, mut fault, mut replaces) = (Vec::new(), None, false);
        let sets_host = rule
            .filters
            .as_ref()
            .is_some_and(|(all, ..)| sets_host(all));
        if let Some((written, policy, source)) = &rule.filters {
            for filter in *written {
                match self.filter(filter, policy, source, sets_host) {
                    Ok(filter) => filters.extend(filter),
                    Err(why) => fault = fault.or(Some(why)),
                }
                let rewrite = match filter {
                    KumaFilter::URLRewrite(rewrite) => rewrite.path.as_ref(),
                    KumaFilter::RequestRedirect(redirect) => redirect.path.as_ref(),
                    _ => None,
                };
                replaces |= rewrite.is_some_and(|path| path.replace_prefix_match.is_some());
            }
        }
        let has_response = filters.iter().any(Filter::replies);
        let mut backends = Vec::new();
        match &rule.backend_refs {
            Some((written, policy, source)) if !written.is_empty() => {
                if has_response {
                    let remark = format!(
                        "{}: its backendRefs get no requests, because the merged rule has a redirect or direct response",
                        rule_field((source.to, source.rule))
                    );
                    let remarks = self.findings.remarks.entry(policy.key.clone()).or_default();
                    remarks.insert(remark);
                } else {
                    let backend = |reference| self.backend(reference, policy, sets_host);
                    backends = written.iter().map(backend).collect();
                    let used = backends.iter().filter(|backend| backend.weight > 0);
                    let used = used.filter_map(|backend| backend.target.as_ref().ok());
                    let used = used.map(|id| (source.clone(), id.clone()));
                    self.findings.backends.extend(used);
                }
            }
            _ if has_response || fault.is_some() => {}
            _ => match self.own_destination(sets_host) {
                Some(backend) => backends.push(backend),
                None => fault = Some(Fault::no_backend_refs()),
            },
        }
        // Replacing a prefix depends on the match, so each match gets a rule of its own.
        let is_divided = replaces && matches.len() > 1;
        let groups: Vec<Vec<BoundMatch>> = match is_divided {
            true => matches.into_iter().map(|matched| vec![matched]).collect(),
            false => vec![matches],
        };
        for (part, matches) in groups.into_iter().enumerate() {
            let (filters, backends) = (filters.clone(), backends.clone());
            let from = rule.from.clone();
            let mut rule = new_rule(index, matches, filters, backends, fault.clone(), from);
            rule.part = part;
            rules.push(Arc::new(rule));
        }
    }

    fn own_destination(&mut self, sets_host: bool) -> Option<WeightedBackend> {
        let id = self.destination?;
        let away = cross_mesh::caller_fault(self.reader, self.mesh, id);
        let target = match away.or_else(|| external::unsupported(self.reader, id)) {
            Some(fault) => Err(fault),
            None => Ok(id.clone()),
        };
        if target.is_ok() {
            self.uses.insert(id.clone());
        }
        let filters = self.external_host_rewrite(target.as_ref(), sets_host);
        Some(WeightedBackend {
            reference: BackendName {
                kind: id.object.kind.name().into(),
                name: id.object.name.clone(),
                port: Some(id.port).filter(|port| *port != 0),
                tags: id.tags.clone(),
            },
            weight: 1,
            target,
            filters: filters.into_iter().collect(),
        })
    }

    /// Returns the rewrite of the Host header for a MeshExternalService: "its own hostname, unless a filter sets another". It applies to that backend only.
    fn external_host_rewrite(
        &self,
        target: Result<&BackendId, &Fault>,
        sets_host: bool,
    ) -> Option<Filter> {
        if sets_host || !self.http {
            return None;
        }
        let hostname = external::hostname(self.reader, target.ok()?)?;
        Some(Filter::Rewrite(Arc::new(HostAndPath {
            hostname: Some(hostname),
            path: None,
        })))
    }

    fn record_invalid(&mut self, source: &RuleSource, why: &str) {
        let all = self
            .findings
            .invalid
            .entry(source.policy.clone())
            .or_default();
        let field = rule_field((source.to, source.rule));
        all.insert(format!("{field}: {why}"));
    }

    fn backend(
        &mut self,
        reference: &BackendRef,
        policy: &MeshPolicy,
        sets_host: bool,
    ) -> WeightedBackend {
        let target = self.resolve(reference, policy);
        let filters = self.external_host_rewrite(target.as_ref(), sets_host);
        WeightedBackend {
            reference: backend_name(&reference.target, reference.port, policy),
            weight: reference.weight,
            target,
            filters: filters.into_iter().collect(),
        }
    }

    fn resolve(&mut self, reference: &BackendRef, policy: &MeshPolicy) -> Result<BackendId, Fault> {
        let namespace = policy.namespace();
        let found = backend::resolve(self.reader, self.mesh, namespace, reference);
        let found = found.and_then(|id| match external::unsupported(self.reader, &id) {
            Some(fault) => Err(fault),
            None => Ok(id),
        });
        let found = found.and_then(|id| match self.supports_protocol(&id) {
            true => Ok(id),
            false => Err(Fault {
                status: 500,
                reason: FaultReason::UnsupportedProtocol,
                message: format!(
                    "the protocol of {id} is not HTTP, which a {} requires",
                    policy.key.kind
                ),
            }),
        });
        match &found {
            Ok(id) => {
                self.uses.insert(id.clone());
            }
            Err(fault) => {
                let all = self
                    .findings
                    .unresolved
                    .entry(policy.key.clone())
                    .or_default();
                all.insert((fault.reason.as_str(), fault.message.clone()));
            }
        }
        found
    }

    /// "A TCP route may split to HTTP backends; an HTTP route drops/500s non-HTTP backends." A backend without a declared protocol may be HTTP.
    fn supports_protocol(&self, id: &BackendId) -> bool {
        let protocol = backend::protocol(self.reader, id);
        !self.http || protocol.is_none() || backend::is_http(protocol.as_deref())
    }

    fn filter(
        &mut self,
        filter: &KumaFilter,
        policy: &MeshPolicy,
        source: &RuleSource,
        sets_host: bool,
    ) -> Result<Option<Filter>, Fault> {
        Ok(Some(match filter {
            KumaFilter::RequestHeaderModifier(change) => {
                Filter::RequestHeaders(Arc::new(change.clone()))
            }
            KumaFilter::ResponseHeaderModifier(change) => {
                Filter::ResponseHeaders(Arc::new(change.clone()))
            }
            KumaFilter::RequestRedirect(redirect) => Filter::Redirect(Arc::new(redirect.clone())),
            KumaFilter::URLRewrite(rewrite) => {
                if rewrite.hostname.is_none() && rewrite.path.is_none() {
                    return Ok(None);
                }
                Filter::Rewrite(Arc::new(HostAndPath {
                    hostname: rewrite.hostname.clone(),
                    path: rewrite.path.clone(),
                }))
            }
            KumaFilter::RequestMirror(mirror) => {
                let reference = &mirror.backend_ref;
                let target = self.resolve(reference, policy);
                let found = target.as_ref().ok().filter(|_| !sets_host);
                let hostname = found.and_then(|id| external::hostname(self.reader, id));
                Filter::Mirror(Mirror {
                    reference: backend_name(&reference.target, reference.port, policy),
                    target,
                    fraction: mirror.percentage,
                    hostname: hostname.map(Into::into),
                })
            }
            KumaFilter::DirectResponse(direct) => {
                let response = self.direct_response(direct).map_err(|why| {
                    self.record_invalid(source, &format!("{why}; requests get 500"));
                    // The reply does not disclose names of files to clients.
                    let message = "the body of the direct response can't be read".to_owned();
                    Fault {
                        status: 500,
                        reason: FaultReason::DirectResponse,
                        message,
                    }
                })?;
                Filter::DirectResponse(Arc::new(response))
            }
        }))
    }

    fn direct_response(&self, direct: &DirectResponse) -> Result<bound::DirectResponse, String> {
        let body: Arc<[u8]> = match &direct.body {
            None => Arc::default(),
            Some(source) => content(self.reader, source)?,
        };
        let content_type = match std::str::from_utf8(&body) {
            Ok(_) => "text/plain; charset=utf-8",
            Err(_) => "application/octet-stream",
        };
        Ok(bound::DirectResponse {
            status: direct.status,
            body,
            content_type: content_type.into(),
        })
    }
}

/// Returns whether filters set a Host header; `hostToBackendHostname` keeps that of the backend.
fn sets_host(filters: &[KumaFilter]) -> bool {
    let asks = |filter: &KumaFilter| matches!(filter, KumaFilter::URLRewrite(rewrite) if rewrite.host_to_backend_hostname);
    let sets = |filter: &KumaFilter| match filter {
        KumaFilter::URLRewrite(rewrite) => rewrite.hostname.is_some(),
        KumaFilter::RequestHeaderModifier(change) => {
            let mut headers = change.set.iter().chain(&change.add);
            headers.any(|header| header.name.eq_ignore_ascii_case("host"))
        }
        _ => false,
    };
    !filters.iter().any(asks) && filters.iter().any(sets)
}

/// Returns the content of a data source. Files and environment variables are read elsewhere and are inputs here.
pub(crate) fn content(reader: &Reader<'_>, source: &DataSource) -> Result<Arc<[u8]>, String> {
    match source {
        DataSource::InlineString(text) => Ok(text.as_bytes().into()),
        DataSource::InlineBytes(text) => {
            let bare: String = text.split_ascii_whitespace().collect();
            let bytes = STANDARD.decode(bare);
            bytes
                .map(Into::into)
                .map_err(|error| format!("inlineBytes is not base64: {error}"))
        }
        DataSource::Secret(name) => Err(format!("secret `{name}` can't be used here")),
        DataSource::Filename(_) | DataSource::EnvironmentVariable(_) => {
            reader.content(source).unwrap_or_else(|| match source {
                DataSource::Filename(name) => Err(format!("file `{name}` was not read")),
                DataSource::EnvironmentVariable(name) => {
                    Err(format!("environment variable `{name}` was not read"))
                }
                _ => Ok(Arc::default()),
            })
        }
    }
}

fn new_rule(
    index: usize,
    matches: Vec<BoundMatch>,
    filters: Vec<Filter>,
    backends: Vec<WeightedBackend>,
    fault: Option<Fault>,
    from: Vec<RuleSource>,
) -> BoundRule {
    BoundRule {
        index,
        part: 0,
        name: None,
        matches,
        filters,
        backends,
        fault,
        request_timeout: None,
        backend_timeout: None,
        retry: None,
        from,
    }
}

/// Returns a backend reference as written.
fn backend_name(target: &TargetRef, port: Option<u16>, policy: &MeshPolicy) -> BackendName {
    let namespace = target.namespace.as_deref();
    let namespace = namespace.or(policy.namespace());
    let namespace = namespace.unwrap_or(policy.key.namespace());
    let tags = target.tags.iter();
    let tags: Tags = tags.map(|(k, v)| (k.as_str(), v.as_str())).collect();
    let labels = target.labels.iter();
    let labels: Vec<String> = labels
        .map(|(name, value)| format!("{name}={value}"))
        .collect();
    let labels = labels.join(",");
    let name = target.name.as_deref().unwrap_or(&labels);
    // A value of `kuma.io/service` on Kubernetes contains the namespace.
    let whole = KubernetesService::parse(name).is_some();
    let namespace = if whole { "" } else { namespace };
    BackendName {
        kind: target.kind.name().into(),
        name: pointsman_resources::Name::new(namespace, name),
        port,
        tags,
    }
}

/// Returns the errors of a policy none of whose rules can be matched; `None` if one can, or if it has no rules.
pub(crate) fn unmatchable_rules(key: &ObjectKey, route: &MeshRoute) -> Option<String> {
    let mut why = Vec::new();
    for (to, item) in route.spec.to.iter().enumerate() {
        let to = (key.kind != Kind::MeshGatewayHTTPRoute).then_some(to);
        for (index, rule) in item.rules.iter().enumerate() {
            let error = lower_matches(&rule.matches, PathPredicate::Any).err()?;
            why.push(format!("{}: {error}", rule_field((to, index))));
        }
    }
    (!why.is_empty()).then(|| why.join("; "))
}

fn lower_matches(wanted: &[Match], default_path: PathPredicate) -> Result<Vec<BoundMatch>, String> {
    wanted
        .iter()
        .enumerate()
        .map(|(index, wanted)| lower_match(index, wanted, &default_path))
        .collect()
}

fn lower_match(
    index: usize,
    wanted: &Match,
    default_path: &PathPredicate,
) -> Result<BoundMatch, String> {
    let path = match &wanted.path {
        None => default_path.clone(),
        Some(path) => match path.kind {
            PathMatchType::Exact => PathPredicate::Exact(path.value.as_str().into()),
            PathMatchType::PathPrefix => PathPredicate::Prefix(normalize_prefix(&path.value)),
            PathMatchType::RegularExpression => {
                PathPredicate::Regex(compile_pattern(index, "path", &path.value)?)
            }
        },
    };
    let mut headers = Vec::new();
    for header in &wanted.headers {
        let value = match &header.test {
            HeaderTest::Exact(value) => StringPredicate::Exact(value.as_str().into()),
            HeaderTest::Present => StringPredicate::Present,
            HeaderTest::Absent => StringPredicate::Absent,
            // "empty prefix => Present"
            HeaderTest::Prefix(start) => StringPredicate::Prefix(start.as_str().into()),
            HeaderTest::RegularExpression(text) => {
                let what = format!("header {}", header.name);
                StringPredicate::Regex(compile_pattern(index, &what, text)?)
            }
        };
        headers.push(ValuePredicate {
            name: header.name.to_ascii_lowercase().into(),
            value,
        });
    }
    Ok(BoundMatch {
        index,
        path,
        grpc: None,
        method: wanted.method.as_deref().map(Into::into),
        headers,
        query: value_predicates(
            index,
            "query parameter",
            &wanted.query_params,
            str::to_owned,
        )?,
    })
}
