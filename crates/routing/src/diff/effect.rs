//! Comparison of the effects that two decisions have on a request.

use std::collections::BTreeMap;

use pointsman_binding::bound::{
    Backend, BackendProtocol, BackendTls, BoundRoute, BoundRule, Endpoints, Filter, PathPredicate,
    RetryPolicy,
};

use super::{Change, Side};
use crate::explain::{
    BackendShare, Decision, ExplainedResponse, Explanation, Outcome, ReceivedRequest, ReplyStatus,
    Timeouts,
};

/// Returns the differences between the effects of two decisions for the same request. A different rule with the same effect does not count.
pub(super) fn changes(
    old: (&Side<'_>, &Decision<'_>),
    new: (&Side<'_>, &Decision<'_>),
) -> Vec<Change> {
    let (a, b) = (&old.1.explanation, &new.1.explanation);
    let mut changes = Changes::default();
    if class(a) != class(b) {
        changes.add("outcome", outcome(a), outcome(b));
        return changes.0;
    }
    changes.add("backends", backends(a), backends(b));
    changes.add_request("", a.request.as_ref(), b.request.as_ref());
    changes.add_response("", a.response.as_ref(), b.response.as_ref());
    changes.add_backends(a, b);
    changes.add("mirrors", mirrors(a), mirrors(b));
    let timeouts = [a, b].map(|side| side.timeouts.as_ref());
    let of = |get: fn(&Timeouts) -> &Option<String>| {
        timeouts.map(|timeouts| timeouts.and_then(|timeouts| get(timeouts).clone()))
    };
    let [x, y] = of(|timeouts| &timeouts.request);
    changes.add("request timeout", x, y);
    let [x, y] = of(|timeouts| &timeouts.backend_request);
    changes.add("backend request timeout", x, y);
    let rule = |decision: &Decision<'_>| decision.hit.as_ref().map(|hit| hit.rule.clone());
    let rules = [rule(old.1), rule(new.1)];
    let [x, y] = rules
        .each_ref()
        .map(|rule| retry(rule.as_ref()?.retry.as_ref()?));
    changes.add("retry", x, y);
    changes.add_connections(old, new);
    changes.0
}

/// Differences, as they are found.
#[derive(Default)]
struct Changes(Vec<Change>);

/// A text, or `None` if there is none.
trait IntoText {
    fn into_text(self) -> Option<String>;
}

impl IntoText for String {
    fn into_text(self) -> Option<String> {
        Some(self)
    }
}

impl IntoText for Option<String> {
    fn into_text(self) -> Option<String> {
        self
    }
}

impl Changes {
    fn add(&mut self, field: impl Into<String>, old: impl IntoText, new: impl IntoText) {
        let (old, new) = (old.into_text(), new.into_text());
        if old != new {
            let field = field.into();
            self.0.push(Change { field, old, new });
        }
    }

    fn add_request(
        &mut self,
        of: &str,
        old: Option<&ReceivedRequest>,
        new: Option<&ReceivedRequest>,
    ) {
        let (Some(old), Some(new)) = (old, new) else {
            let carried = |request: Option<&ReceivedRequest>| match request {
                Some(_) => "HTTP".to_owned(),
                None => "TCP".to_owned(),
            };
            if of.is_empty() {
                self.add("protocol", carried(old), carried(new));
            }
            return;
        };
        self.add(
            format!("method that the backend gets{of}"),
            old.method.clone(),
            new.method.clone(),
        );
        let path = |request: &ReceivedRequest| {
            let rest = request.url.split_once("://").map_or("", |(_, rest)| rest);
            rest.find('/')
                .map_or(String::new(), |at| rest[at..].to_owned())
        };
        self.add(
            format!("path that the backend gets{of}"),
            path(old),
            path(new),
        );
        self.add_fields(&format!("request header{of}"), &old.headers, &new.headers);
    }

    fn add_fields(
        &mut self,
        of: &str,
        old: &BTreeMap<String, String>,
        new: &BTreeMap<String, String>,
    ) {
        let names: std::collections::BTreeSet<&String> = old.keys().chain(new.keys()).collect();
        for name in names {
            self.add(
                format!("{of} {name}"),
                old.get(name).cloned(),
                new.get(name).cloned(),
            );
        }
    }

    fn add_response(
        &mut self,
        of: &str,
        old: Option<&ExplainedResponse>,
        new: Option<&ExplainedResponse>,
    ) {
        let none = ExplainedResponse::default();
        let (old, new) = (old.unwrap_or(&none), new.unwrap_or(&none));
        self.add_fields(&format!("response header{of}"), &old.headers, &new.headers);
        let removed = |response: &ExplainedResponse| {
            let mut names = response.removed.clone();
            names.sort();
            Some(names.join(", ")).filter(|names| !names.is_empty())
        };
        self.add(
            format!("removed response headers{of}"),
            removed(old),
            removed(new),
        );
        self.add(
            format!("response body{of}"),
            old.body.clone(),
            new.body.clone(),
        );
    }

    /// Compares the filters of single backends.
    fn add_backends(&mut self, old: &Explanation, new: &Explanation) {
        for a in used(old) {
            let label = label(a);
            let Some(b) = used(new).find(|b| self::label(b) == label) else {
                continue;
            };
            let of = format!(" of {label}");
            let request = |share: &BackendShare, all: &Explanation| {
                share.request.clone().or_else(|| all.request.clone())
            };
            let (x, y) = (request(a, old), request(b, new));
            if (&x, &y) != (&old.request, &new.request) {
                self.add_request(&of, x.as_ref(), y.as_ref());
            }
            let response = |share: &BackendShare, all: &Explanation| {
                share.response.clone().or_else(|| all.response.clone())
            };
            let (x, y) = (response(a, old), response(b, new));
            if (&x, &y) != (&old.response, &new.response) {
                self.add_response(&of, x.as_ref(), y.as_ref());
            }
        }
    }

    /// Compares the connections to backends that both sides use.
    fn add_connections(
        &mut self,
        old: (&Side<'_>, &Decision<'_>),
        new: (&Side<'_>, &Decision<'_>),
    ) {
        let (a, b) = (targets(old), targets(new));
        for (name, x) in &a {
            let Some(y) = b.get(name) else { continue };
            self.add(
                format!("protocol of {name}"),
                protocol(x.protocol),
                protocol(y.protocol),
            );
            if x.tls != y.tls {
                let mut texts = [tls(x), tls(y)];
                if texts[0] == texts[1] {
                    texts[1].push_str(", with other settings");
                }
                let [x, y] = texts;
                self.add(format!("TLS to {name}"), x, y);
            }
            let budget = |backend: &Backend| {
                backend.retry_budget.map(|budget| {
                    let (percent, seconds) = (budget.percent, budget.interval.as_secs_f64());
                    let (count, minimum) = (budget.min_count, budget.min_interval.as_secs_f64());
                    format!("{percent}% within {seconds}s, at least {count} per {minimum}s")
                })
            };
            self.add(format!("retry budget of {name}"), budget(x), budget(y));
        }
    }
}

/// Returns the resolved backends of a decision's rule that get requests, by name.
fn targets<'t>((side, decision): (&Side<'t>, &Decision<'t>)) -> BTreeMap<String, &'t Backend> {
    let rule = decision.hit.as_ref().map(|hit| hit.rule);
    let backends = rule.iter().flat_map(|rule| &rule.backends);
    let used = backends.filter(|backend| backend.weight > 0);
    used.filter_map(|backend| {
        let id = backend.target.as_ref().ok()?;
        Some((id.to_string(), &**side.tables.backend(id)?))
    })
    .collect()
}

fn protocol(protocol: BackendProtocol) -> String {
    let name = match protocol {
        BackendProtocol::Unspecified => "not declared",
        BackendProtocol::Http1 => "HTTP/1.1",
        BackendProtocol::Http2 => "HTTP/2",
        BackendProtocol::Grpc => "gRPC",
        BackendProtocol::WebSocket => "WebSocket",
        BackendProtocol::Tcp => "TCP",
        BackendProtocol::Udp => "UDP",
    };
    name.to_owned()
}

fn tls(backend: &Backend) -> String {
    match backend.tls.as_ref().map(Result::as_deref) {
        None => "none".to_owned(),
        Some(Ok(BackendTls { hostname, .. })) => format!("for {hostname}"),
        Some(Err(fault)) => format!("unusable: {}", fault.message),
    }
}

/// Kind of an outcome, with what the client sees of it. Reasons are texts for people and not compared.
type Class = (u8, Option<u16>, Option<ReplyStatus>, Option<u16>);

fn class(explanation: &Explanation) -> Class {
    let response = explanation.response.as_ref().and_then(|r| r.status);
    let kind = match explanation.outcome {
        Outcome::Forward if explanation.fails() => 1,
        Outcome::Forward => 0,
        // A reply of a filter, which has a response, differs from an error of the same status.
        Outcome::Redirect | Outcome::Respond if response.is_some() => 2,
        Outcome::Redirect | Outcome::Respond | Outcome::NoRoute | Outcome::NoFrontend => 3,
    };
    (kind, response, explanation.status, explanation.grpc_status)
}

/// Describes an outcome.
pub(super) fn outcome(explanation: &Explanation) -> String {
    let status = match (explanation.status, explanation.grpc_status) {
        (_, Some(status)) => format!("gRPC status {status}"),
        (Some(ReplyStatus::Http(status)), None) => status.to_string(),
        (Some(ReplyStatus::Reset), None) => "connection reset".to_owned(),
        (None, None) => "no connection".to_owned(),
    };
    let reason = match explanation.outcome {
        Outcome::Forward if explanation.fails() => {
            return format!("no backend is available: {}", backends(explanation));
        }
        Outcome::Forward => return format!("forwarded to {}", backends(explanation)),
        Outcome::Redirect | Outcome::Respond if explanation.response.is_some() => {
            let response = explanation.response.as_ref();
            let location = response.and_then(|response| response.headers.get("location"));
            return match location.filter(|_| explanation.outcome == Outcome::Redirect) {
                Some(location) => format!("{status} to {location}"),
                None => format!("{status} from a filter"),
            };
        }
        Outcome::NoRoute => Some("no rule matches"),
        Outcome::NoFrontend => Some(explanation.why.as_str()),
        Outcome::Redirect | Outcome::Respond => explanation.reason.as_deref(),
    };
    match reason.map(|reason| reason.lines().next().unwrap_or_default()) {
        Some(reason) if !reason.is_empty() => format!("{status} ({reason})"),
        _ => status,
    }
}

fn used(explanation: &Explanation) -> impl Iterator<Item = &BackendShare> {
    explanation
        .backends
        .iter()
        .filter(|share| share.share > 0.0)
}

/// Returns the name of a backend, with its error if it has one. Addresses of endpoints are not part of it: they change with every Pod.
fn label(share: &BackendShare) -> String {
    let mut text = match share.namespace.is_empty() {
        true => format!("{} {}", share.kind, share.name),
        false => format!("{} {}/{}", share.kind, share.namespace, share.name),
    };
    if let Some(port) = share.port {
        text.push_str(&format!(" port {port}"));
    }
    for (name, value) in &share.tags {
        text.push_str(&format!(" {name}={value}"));
    }
    match (share.status, share.grpc_status) {
        (_, Some(status)) => text.push_str(&format!(" (gRPC status {status})")),
        (Some(ReplyStatus::Http(status)), None) => text.push_str(&format!(" ({status})")),
        (Some(ReplyStatus::Reset), None) => text.push_str(" (reset)"),
        (None, None) => {}
    }
    text
}

/// Lists the backends with their shares, in alphabetical order.
fn backends(explanation: &Explanation) -> String {
    let mut shares: BTreeMap<String, f64> = BTreeMap::new();
    for share in used(explanation) {
        *shares.entry(label(share)).or_default() += share.share;
    }
    match shares.len() {
        0 => "no backend".to_owned(),
        1 => shares.into_keys().collect(),
        _ => {
            let listed = shares
                .iter()
                .map(|(label, share)| format!("{label} {}", percent(*share)));
            listed.collect::<Vec<_>>().join(", ")
        }
    }
}

/// Formats a share with up to two decimals.
fn percent(share: f64) -> String {
    let text = format!("{:.2}", share * 100.0);
    let text = text.trim_end_matches('0').trim_end_matches('.');
    format!("{text}%")
}

fn mirrors(explanation: &Explanation) -> Option<String> {
    let mut texts: Vec<String> = explanation
        .mirrors
        .iter()
        .filter(|mirror| mirror.share > 0.0)
        .map(|mirror| {
            let port = mirror
                .port
                .map_or(String::new(), |port| format!(" port {port}"));
            let tags = mirror.tags.iter();
            let tags: String = tags
                .map(|(name, value)| format!(" {name}={value}"))
                .collect();
            let host = mirror.host.as_ref();
            let host = host.map_or(String::new(), |host| format!(" as {host}"));
            let reason = mirror.reason.as_ref().map_or("", |_| " (unresolved)");
            let (kind, namespace, name) = (&mirror.kind, &mirror.namespace, &mirror.name);
            let share = percent(mirror.share);
            format!("{kind} {namespace}/{name}{port}{tags}{host} {share}{reason}")
        })
        .collect();
    texts.sort();
    Some(texts.join(", ")).filter(|text| !text.is_empty())
}

fn retry(retry: &RetryPolicy) -> Option<String> {
    let codes: Vec<String> = retry.codes.iter().map(u16::to_string).collect();
    let backoff = retry
        .backoff
        .map_or(String::new(), |time| format!(" after {time:?}"));
    let codes = match codes.is_empty() {
        true => String::new(),
        false => format!(" on {}", codes.join(", ")),
    };
    Some(format!("up to {} times{codes}{backoff}", retry.attempts))
}

/// Returns whether two rules certainly have the same effect on every request that both match.
pub(super) fn is_same(
    old: (&Side<'_>, &BoundRoute, &BoundRule),
    new: (&Side<'_>, &BoundRoute, &BoundRule),
) -> bool {
    let ((a_side, a_route, a), (b_side, b_route, b)) = (old, new);
    let settings = a.fault == b.fault
        && a.request_timeout == b.request_timeout
        && a.backend_timeout == b.backend_timeout
        && a.retry == b.retry
        && a.backends == b.backends;
    settings
        && a_route.dialect == b_route.dialect
        && has_same_filters(a, b)
        && a.backends.iter().all(|backend| match &backend.target {
            Err(_) => true,
            Ok(id) => {
                let state = |side: &Side<'_>| {
                    let has_endpoints = side
                        .tables
                        .endpoints(id)
                        .map(|endpoints| is_usable(endpoints));
                    (
                        side.tables.backend(id).cloned(),
                        has_endpoints.unwrap_or(false),
                    )
                };
                state(a_side) == state(b_side)
            }
        })
}

fn is_usable(endpoints: &Endpoints) -> bool {
    match endpoints {
        Endpoints::Dns(..) => true,
        Endpoints::Addresses(all) => !all.is_empty(),
    }
}

/// Returns whether the filters of two rules, and of their backends that get requests, have the same settings.
pub(super) fn has_same_filters(a: &BoundRule, b: &BoundRule) -> bool {
    let none = |rule: &BoundRule| {
        rule.filters.is_empty()
            && rule
                .backends
                .iter()
                .all(|backend| backend.filters.is_empty())
    };
    if none(a) && none(b) {
        return true;
    }
    // ReplacePrefixMatch depends on the prefix of the rule's only match.
    let prefix = |rule: &BoundRule| match rule.matches.as_slice() {
        [only] => match &only.path {
            PathPredicate::Prefix(prefix) => Some(prefix.clone()),
            _ => None,
        },
        _ => None,
    };
    let of_backends = |rule: &BoundRule| -> Vec<(String, Vec<Filter>)> {
        let used = rule.backends.iter().filter(|backend| backend.weight > 0);
        let mut all: Vec<_> = used
            .filter(|backend| !backend.filters.is_empty())
            .map(|backend| (format!("{:?}", backend.reference), backend.filters.clone()))
            .collect();
        all.sort_by(|a, b| a.0.cmp(&b.0));
        all
    };
    prefix(a) == prefix(b) && a.filters == b.filters && of_backends(a) == of_backends(b)
}

/// Returns the names of the filters of a rule and of its backends.
pub(super) fn filter_names(rule: &BoundRule) -> String {
    let of_backends = rule.backends.iter().flat_map(|backend| &backend.filters);
    let names: Vec<&str> = rule
        .filters
        .iter()
        .chain(of_backends)
        .map(Filter::kind)
        .collect();
    match names.is_empty() {
        true => "none".to_owned(),
        false => names.join(", "),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_share_is_a_percentage_with_as_many_decimals_as_it_needs() {
        for (share, wanted) in [
            (1.0, "100%"),
            (0.5, "50%"),
            (1.0 / 3.0, "33.33%"),
            (0.001, "0.1%"),
        ] {
            assert_eq!(percent(share), wanted);
        }
    }
}
