//! Representative requests: for each region the plainest request that belongs to it, for each pair of regions one that belongs to both, and near misses.

use std::collections::BTreeMap;
use std::fmt::Write;

use pointsman_binding::bound::{GrpcPredicate, Hostname, PathPredicate, StringPredicate};

use super::region::Region;
use super::sample::{ANY_VALUE, common_value, samples, values};
use crate::entry::grpc_admits;
use crate::expression::Expression;
use crate::path;

/// A request, without the frontend group that receives it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct RepresentativeRequest {
    /// Host or SNI.
    pub(super) host: String,
    pub(super) path: String,
    pub(super) method: String,
    /// Names in lower case, each at most once.
    pub(super) headers: Vec<(String, String)>,
    pub(super) query: Vec<(String, String)>,
    /// The request is a gRPC call.
    pub(super) grpc: bool,
}

impl RepresentativeRequest {
    /// Returns the query of the URL, encoded.
    pub(super) fn query_text(&self) -> String {
        let mut text = String::new();
        for (name, value) in &self.query {
            if !text.is_empty() {
                text.push('&');
            }
            encode(name, &mut text);
            text.push('=');
            encode(value, &mut text);
        }
        text
    }

    /// Sets or removes a header.
    pub(super) fn with_header(&self, name: &str, value: Option<&str>) -> RepresentativeRequest {
        let mut probe = self.clone();
        set(&mut probe.headers, name, value);
        probe
    }

    fn with_parameter(&self, name: &str, value: Option<&str>) -> RepresentativeRequest {
        let mut probe = self.clone();
        set(&mut probe.query, name, value);
        probe
    }

    pub(super) fn with_path(&self, path: String) -> RepresentativeRequest {
        RepresentativeRequest {
            path,
            ..self.clone()
        }
    }
}

fn set(all: &mut Vec<(String, String)>, name: &str, value: Option<&str>) {
    all.retain(|(other, _)| other != name);
    all.extend(value.map(|value| (name.to_owned(), value.to_owned())));
}

fn encode(text: &str, out: &mut String) {
    for byte in text.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' => {
                out.push(char::from(byte));
            }
            byte => {
                let _ = write!(out, "%{byte:02X}");
            }
        }
    }
}

/// Values that no rule of a frontend group mentions, so that a request has as few of the rules' properties as possible.
pub(super) struct UnusedValues {
    /// A method that no match names.
    method: String,
    /// A path segment that no path has.
    segment: String,
    /// A value that no header or query parameter is compared with.
    word: String,
    /// A label that no hostname has.
    label: String,
    /// A host that no hostname matches.
    host: String,
    /// Headers that some match requires to be absent.
    absent: Vec<String>,
}

impl UnusedValues {
    /// Collects the values of a frontend group's regions.
    pub(super) fn new<'r>(regions: impl Iterator<Item = &'r Region<'r>> + Clone) -> Self {
        let matches = || regions.clone().filter_map(Region::matched);
        let methods = ["GET", "PUT", "POST", "DELETE", "PATCH", "HEAD", "PROPFIND"];
        let mut methods = methods.into_iter();
        let is_free =
            |method: &&str| !matches().any(|matched| matched.method.as_deref() == Some(method));
        let paths: Vec<&str> = matches()
            .filter_map(|matched| match &matched.path {
                PathPredicate::Exact(path) | PathPredicate::Prefix(path) => Some(&**path),
                PathPredicate::Regex(_) | PathPredicate::Any => None,
            })
            .collect();
        let hostnames: Vec<&Hostname> = regions.clone().flat_map(Region::hostnames).collect();
        let label = unused_word(|word| !hostnames.iter().any(|name| name.as_str().contains(word)));
        let hosts = ["example", "test", "invalid"];
        let mut hosts = hosts.iter().map(|domain| format!("{label}.{domain}"));
        let is_unknown = |host: &String| !hostnames.iter().any(|name| name.matches(host));
        let values: Vec<&str> = matches()
            .flat_map(|matched| matched.headers.iter().chain(&matched.query))
            .filter(|predicate| !matches!(predicate.value, StringPredicate::Regex(_)))
            .map(|predicate| predicate.value.as_str())
            .collect();
        let mut absent: Vec<String> = matches()
            .flat_map(|matched| &matched.headers)
            .filter(|header| header.value == StringPredicate::Absent)
            .map(|header| header.name.to_string())
            .collect();
        absent.sort();
        absent.dedup();
        UnusedValues {
            method: methods.find(is_free).unwrap_or("REPORT").to_owned(),
            word: unused_word(|word| !values.iter().any(|value| value.contains(word))),
            segment: unused_word(|word| !paths.iter().any(|path| path.contains(word))),
            host: hosts
                .find(is_unknown)
                .unwrap_or_else(|| format!("{label}.pointsman-diff")),
            label,
            absent,
        }
    }

    /// Returns requests that belong to all regions, as far as their own conditions go, and have no other property that a match asks for. Without expressions
    /// there is at most one, or one of each kind if a GRPCRoute is involved.
    pub(super) fn common(&self, regions: &[&Region<'_>]) -> Vec<RepresentativeRequest> {
        let Some(base) = self.base(regions) else {
            return Vec::new();
        };
        let mut probes = Vec::new();
        let is_grpc = regions.iter().any(|region| region.is_grpc());
        for path in self.paths(regions) {
            let probe = base.with_path(path);
            let posts = regions
                .iter()
                .filter_map(|region| region.matched()?.method.as_deref())
                .all(|method| method == "POST");
            if is_grpc && posts {
                probes.push(RepresentativeRequest {
                    grpc: true,
                    method: "POST".to_owned(),
                    ..probe.clone()
                });
            }
            probes.push(probe);
        }
        probes
    }

    /// Returns the request without its path.
    fn base(&self, regions: &[&Region<'_>]) -> Option<RepresentativeRequest> {
        let matches = || regions.iter().filter_map(|region| region.matched());
        let mut methods = matches().filter_map(|matched| matched.method.as_deref());
        let method = methods.next();
        if methods.any(|other| Some(other) != method) {
            return None;
        }
        let headers = matches().flat_map(|matched| &matched.headers);
        let query = matches().flat_map(|matched| &matched.query);
        Some(RepresentativeRequest {
            host: self.host(regions)?,
            path: String::new(),
            method: method.unwrap_or(&self.method).to_owned(),
            headers: self.fields(headers.map(|header| (&*header.name, &header.value)))?,
            query: self.fields(query.map(|parameter| (&*parameter.name, &parameter.value)))?,
            grpc: false,
        })
    }

    fn host(&self, regions: &[&Region<'_>]) -> Option<String> {
        let names = || regions.iter().flat_map(|region| region.hostnames());
        let exact = names().find(|name| name.suffix().is_none());
        let longest = names().filter_map(Hostname::suffix).max_by_key(|s| s.len());
        let host = match (exact, longest) {
            (Some(exact), _) => exact.as_str().to_owned(),
            (None, Some(suffix)) => format!("{}{suffix}", self.label),
            (None, None) => self.host.clone(),
        };
        names().all(|name| name.matches(&host)).then_some(host)
    }

    /// Returns paths that satisfy the regions' matches, the plainest first.
    fn paths(&self, regions: &[&Region<'_>]) -> Vec<String> {
        let matches: Vec<_> = regions
            .iter()
            .filter_map(|region| region.matched())
            .collect();
        let mut found = Vec::new();
        for matched in &matches {
            match &matched.path {
                PathPredicate::Exact(path) => found.push(path.to_string()),
                PathPredicate::Prefix(prefix) => found.push(self.below(prefix)),
                PathPredicate::Regex(expression) => found.extend(samples(expression)),
                PathPredicate::Any => found.push(self.below("/")),
            }
        }
        if matches.is_empty() {
            found.push(self.below("/"));
        }
        if matches.iter().any(|matched| matched.grpc.is_some()) {
            let paths: Vec<&PathPredicate<_>> =
                matches.iter().map(|matched| &matched.path).collect();
            let grpc = matches.iter().filter_map(|matched| matched.grpc.as_ref());
            found.extend(self.calls(&paths, &grpc.collect::<Vec<_>>()));
        }
        found.sort_by_key(|path| !path.ends_with(&self.segment));
        found.dedup();
        found.retain(|path| {
            is_path(path)
                && matches.iter().all(|matched| {
                    let grpc = matched.grpc.as_ref();
                    path_matches(&matched.path, path)
                        && grpc.is_none_or(|grpc| grpc_admits(grpc, path, |_| {}))
                })
        });
        let has_expression = matches.iter().any(|matched| {
            matches!(matched.path, PathPredicate::Regex(_)) || matched.grpc.is_some()
        });
        found.truncate(if has_expression { 6 } else { 1 });
        found
    }

    /// Returns `/service/method` for the services and methods that gRPC predicates and paths name.
    fn calls(
        &self,
        paths: &[&PathPredicate<Expression>],
        grpc: &[&GrpcPredicate<Expression>],
    ) -> Vec<String> {
        let mut parts = [vec![self.segment.clone()], vec![self.segment.clone()]];
        for predicate in grpc {
            for (part, wanted) in parts
                .iter_mut()
                .zip([&predicate.service, &predicate.method])
            {
                part.extend(
                    wanted
                        .iter()
                        .flat_map(|wanted| values(wanted, &self.segment)),
                );
            }
        }
        for path in paths {
            if let PathPredicate::Exact(path) | PathPredicate::Prefix(path) = path {
                let segments = path::prefix_segments(path).map(str::to_owned);
                for (part, segment) in parts.iter_mut().zip(segments) {
                    part.push(segment);
                }
            }
        }
        let [services, methods] = &parts;
        let of_service = |service: &String| {
            let methods = methods.iter();
            methods
                .map(|method| format!("/{service}/{method}"))
                .collect::<Vec<_>>()
        };
        services.iter().flat_map(of_service).collect()
    }

    fn below(&self, prefix: &str) -> String {
        format!("{}/{}", prefix.trim_end_matches('/'), self.segment)
    }

    /// Returns requests that differ from a region's own in one property: just inside and just outside of its match.
    pub(super) fn near(
        &self,
        region: &Region<'_>,
        base: &RepresentativeRequest,
    ) -> Vec<RepresentativeRequest> {
        let mut probes = Vec::new();
        for name in region.hostnames() {
            let hosts = match name.suffix() {
                Some(suffix) => [
                    suffix[1..].to_owned(),
                    format!("{0}.{0}{suffix}", self.label),
                ],
                None => [format!("{}.{name}", self.label), self.host.clone()],
            };
            probes.extend(hosts.map(|host| RepresentativeRequest {
                host,
                ..base.clone()
            }));
        }
        for name in &self.absent {
            if !base.headers.iter().any(|(other, _)| other == name) {
                probes.push(base.with_header(name, Some(&self.word)));
            }
        }
        let Some(matched) = region.matched() else {
            return probes;
        };
        let paths = self.near_paths(&matched.path, &base.path).into_iter();
        probes.extend(paths.map(|path| base.with_path(path)));
        if matched.method.is_some() {
            probes.push(RepresentativeRequest {
                method: self.method.clone(),
                ..base.clone()
            });
        }
        for header in &matched.headers {
            probes.push(base.with_header(&header.name, None));
            for value in self.near_values(&header.value) {
                probes.push(base.with_header(&header.name, Some(&value)));
            }
        }
        for parameter in &matched.query {
            probes.push(base.with_parameter(&parameter.name, None));
            for value in self.near_values(&parameter.value) {
                probes.push(base.with_parameter(&parameter.name, Some(&value)));
            }
        }
        probes
    }

    fn near_paths(&self, wanted: &PathPredicate<Expression>, path: &str) -> Vec<String> {
        let (start, mut near) = match wanted {
            PathPredicate::Exact(path) | PathPredicate::Prefix(path) => (&**path, Vec::new()),
            PathPredicate::Regex(expression) => {
                let mut shorter = path.to_owned();
                shorter.pop();
                (path, [samples(expression), vec![shorter]].concat())
            }
            PathPredicate::Any => ("/", Vec::new()),
        };
        let bare = start.trim_end_matches('/');
        let parent = bare.rsplit_once('/').map_or("", |(parent, _)| parent);
        near.extend([
            bare.to_owned(),
            format!("{bare}/"),
            format!("{bare}x"),
            self.below(bare),
            self.below(&self.below(bare)),
            self.below(parent),
            format!("{parent}/"),
        ]);
        near.retain(|near| near != path && is_path(near));
        near
    }

    /// Returns headers or query parameters that satisfy all predicates; `None` if none were found.
    fn fields<'p>(
        &self,
        predicates: impl Iterator<Item = (&'p str, &'p StringPredicate<Expression>)>,
    ) -> Option<Vec<(String, String)>> {
        let mut by_name: BTreeMap<&str, Vec<&StringPredicate<Expression>>> = BTreeMap::new();
        for (name, predicate) in predicates {
            by_name.entry(name).or_default().push(predicate);
        }
        let mut fields = Vec::new();
        for (name, predicates) in by_name {
            let value = common_value(&predicates, &self.word)?;
            fields.extend(value.map(|value| (name.to_owned(), value)));
        }
        Some(fields)
    }

    /// Returns values that satisfy a predicate, and values that are close to it.
    fn near_values(&self, predicate: &StringPredicate<Expression>) -> Vec<String> {
        let mut near = values(predicate, &self.word);
        let longer: Vec<String> = near.iter().map(|value| format!("{value}x")).collect();
        near.extend(longer);
        near.push(self.word.clone());
        near
    }
}

/// Returns whether a path is one that a request has after normalization.
fn is_path(path: &str) -> bool {
    path.starts_with('/') && path::normalize_path(path).is_ok_and(|normal| normal == path)
}

/// Returns a word that satisfies a condition.
fn unused_word(mut is_free: impl FnMut(&str) -> bool) -> String {
    if is_free(ANY_VALUE) {
        return ANY_VALUE.to_owned();
    }
    let mut number = 2;
    loop {
        let word = format!("{ANY_VALUE}-{number}");
        if is_free(&word) {
            return word;
        }
        number += 1;
    }
}

fn path_matches(wanted: &PathPredicate<Expression>, path: &str) -> bool {
    match wanted {
        PathPredicate::Exact(wanted) => **wanted == *path,
        PathPredicate::Prefix(prefix) => path::has_prefix(path, prefix),
        PathPredicate::Regex(expression) => expression.is_match(path),
        PathPredicate::Any => path.starts_with('/'),
    }
}
