//! Variants of a request on which the effect of filters depends.

use std::collections::BTreeSet;
use std::sync::Arc;

use pointsman_binding::bound::{BoundRule, Filter, PathPredicate};
use pointsman_resources::route::{Cors, HeaderModifier};

use super::request::RepresentativeRequest;
use super::sample::ANY_VALUE;

/// Returns variants of a request for the filters of two rules: with the headers that they edit, at the ends of rewritten prefixes, and from other origins.
pub(super) fn of_filters(
    probe: &RepresentativeRequest,
    rules: [&Arc<BoundRule>; 2],
) -> Vec<RepresentativeRequest> {
    let mut headers = BTreeSet::new();
    let mut variants = Vec::new();
    for rule in rules {
        let of_backends = rule.backends.iter().flat_map(|backend| &backend.filters);
        for filter in rule.filters.iter().chain(of_backends) {
            match filter {
                Filter::RequestHeaders(modifier) => headers.extend(edited(modifier)),
                Filter::Rewrite(_) | Filter::Redirect(_) => variants.extend(paths(probe, rule)),
                Filter::Cors(cors) => variants.extend(origins(probe, cors)),
                Filter::ResponseHeaders(_) | Filter::Mirror(_) | Filter::DirectResponse(_) => {}
            }
        }
    }
    let with_all = headers.iter().fold(probe.clone(), |probe, name| {
        match probe.headers.iter().any(|(other, _)| other == name) {
            true => probe,
            false => probe.with_header(name, Some(ANY_VALUE)),
        }
    });
    variants.push(with_all);
    variants.retain(|variant| variant != probe);
    variants
}

fn edited(modifier: &HeaderModifier) -> impl Iterator<Item = String> {
    let given = modifier.set.iter().chain(&modifier.add);
    let names = given.map(|header| &header.name).chain(&modifier.remove);
    let names = names.map(|name| name.to_ascii_lowercase());
    names.filter(|name| name != "host")
}

/// Returns variants at the prefixes of a rule, without and with a trailing slash.
fn paths(probe: &RepresentativeRequest, rule: &BoundRule) -> Vec<RepresentativeRequest> {
    let prefixes = rule
        .matches
        .iter()
        .filter_map(|matched| match &matched.path {
            PathPredicate::Prefix(prefix) => Some(prefix.trim_end_matches('/')),
            _ => None,
        });
    let paths = prefixes.flat_map(|prefix| [prefix.to_owned(), format!("{prefix}/")]);
    paths
        .filter(|path| path.starts_with('/'))
        .map(|path| probe.with_path(path))
        .collect()
}

/// Returns simple and preflight requests from the origins of a CORS policy and from another one.
fn origins(probe: &RepresentativeRequest, cors: &Cors) -> Vec<RepresentativeRequest> {
    let origins = cors.allow_origins.iter();
    let origins = origins.map(|origin| match origin.as_str() {
        "*" => "https://other.example".to_owned(),
        origin => origin.replace('*', ANY_VALUE),
    });
    let origins = origins.chain(["https://unlisted.invalid".to_owned()]);
    let methods = cors.allow_methods.iter().map(String::as_str);
    let methods: Vec<&str> = methods
        .filter(|method| *method != "*")
        .chain(["GET"])
        .collect();
    let headers = cors.allow_headers.iter().filter(|name| *name != "*");
    let headers: Vec<&str> = headers.map(String::as_str).chain(["x-other"]).collect();
    let headers = headers.join(",");
    let mut variants = Vec::new();
    for origin in origins {
        let simple = probe.with_header("origin", Some(&origin));
        for method in &methods {
            let mut preflight = simple.with_header("access-control-request-method", Some(method));
            preflight.method = "OPTIONS".to_owned();
            variants.push(preflight.with_header("access-control-request-headers", Some(&headers)));
            variants.push(preflight);
        }
        variants.push(simple);
    }
    variants
}
