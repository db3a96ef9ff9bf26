//! Pseudo-random routes and requests, reproducible by their seed.

use super::message::{TestRequest, ask};

/// A pseudo-random number generator (SplitMix64).
pub struct Rng(u64);

impl Rng {
    pub fn new(seed: u64) -> Rng {
        Rng(seed)
    }

    pub fn number(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    pub fn one_in(&mut self, sides: u64) -> bool {
        self.number().is_multiple_of(sides)
    }

    pub fn pick(&mut self, of: &[&'static str]) -> &'static str {
        of[(self.number() % of.len() as u64) as usize]
    }
}

const NAMES: [&str; 5] = [
    "a.example.com",
    "b.example.com",
    "*.example.com",
    "*.com",
    "x.org",
];
const HOSTS: [&str; 6] = [
    "a.example.com",
    "b.example.com",
    "c.example.com",
    "d.b.example.com",
    "x.org",
    "y.net",
];
const PATHS: [&str; 7] = ["/", "/a", "/a/b", "/a/b/c", "/ab", "/b", "/b/a"];
const ASKED: [&str; 10] = [
    "/", "/a", "/a/", "/a/b", "/a/b/c/d", "/ab", "/abc", "/b", "/b/a/x", "/c",
];
const METHODS: [&str; 3] = ["GET", "POST", "DELETE"];
const FIELDS: [&str; 2] = ["x-one", "x-two"];
const VALUES: [&str; 2] = ["1", "2"];

/// A rule with one match.
#[derive(Debug, Clone)]
pub struct Rule {
    pub exact: bool,
    pub path: &'static str,
    pub method: Option<&'static str>,
    pub headers: Vec<(&'static str, &'static str)>,
    pub query: Vec<(&'static str, &'static str)>,
    pub does: RuleAction,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RuleAction {
    Forward,
    /// With a header set for the backend.
    Edit,
    /// With the prefix replaced by `/new`; only where the path is a prefix and not `/`.
    Rewrite,
    /// To `https://moved.example`.
    Redirect,
}

#[derive(Debug, Clone)]
pub struct Route {
    pub name: String,
    pub hostname: Option<&'static str>,
    pub rules: Vec<Rule>,
}

fn pairs(dice: &mut Rng) -> Vec<(&'static str, &'static str)> {
    let mut pairs = Vec::new();
    for name in FIELDS {
        if dice.one_in(4) {
            pairs.push((name, dice.pick(&VALUES)));
        }
    }
    pairs
}

pub fn routes(dice: &mut Rng, count: usize) -> Vec<Route> {
    (0..count)
        .map(|number| Route {
            name: format!("route-{number:02}"),
            hostname: (!dice.one_in(4)).then(|| dice.pick(&NAMES)),
            rules: (0..1 + dice.number() % 3).map(|_| rule(dice)).collect(),
        })
        .collect()
}

fn rule(dice: &mut Rng) -> Rule {
    let (exact, path) = (dice.one_in(4), dice.pick(&PATHS));
    let does = match dice.number() % 6 {
        0 => RuleAction::Edit,
        1 if !exact && path != "/" => RuleAction::Rewrite,
        2 => RuleAction::Redirect,
        _ => RuleAction::Forward,
    };
    Rule {
        exact,
        path,
        method: dice.one_in(4).then(|| dice.pick(&METHODS)),
        headers: pairs(dice),
        query: pairs(dice),
        does,
    }
}

pub fn request(dice: &mut Rng) -> TestRequest {
    let mut target = dice.pick(&ASKED).to_owned();
    let query: Vec<String> = pairs(dice)
        .iter()
        .map(|(name, value)| format!("{name}={value}"))
        .collect();
    if !query.is_empty() {
        target = format!("{target}?{}", query.join("&"));
    }
    let mut request = ask(dice.pick(&METHODS), &target).host(dice.pick(&HOSTS));
    for (name, value) in pairs(dice) {
        request = request.header(name, value);
    }
    request
}

impl Route {
    /// Returns an HTTPRoute to Service `web`. Every response names its rule.
    pub fn manifest(&self) -> String {
        let rules: Vec<String> = self
            .rules
            .iter()
            .enumerate()
            .map(|(at, rule)| rule.manifest(&self.tag(at)))
            .collect();
        let rules: Vec<&str> = rules.iter().map(String::as_str).collect();
        let hostname = self
            .hostname
            .map(|name| format!("  hostnames: ['{name}']\n"));
        super::manifests::route_of(
            "HTTPRoute",
            &self.name,
            &hostname.unwrap_or_default(),
            &rules,
        )
    }

    pub fn tag(&self, rule: usize) -> String {
        format!("{}-{rule}", self.name)
    }
}

impl Rule {
    fn manifest(&self, tag: &str) -> String {
        let list = |pairs: &[(&str, &str)]| {
            let all: Vec<String> = pairs
                .iter()
                .map(|(name, value)| format!("{{name: {name}, value: '{value}'}}"))
                .collect();
            all.join(", ")
        };
        let kind = if self.exact { "Exact" } else { "PathPrefix" };
        let method = self
            .method
            .map(|method| format!("method: {method}, "))
            .unwrap_or_default();
        let mut filters = vec![format!(
            "{{type: ResponseHeaderModifier, responseHeaderModifier: {{set: [{{name: x-rule, value: {tag}}}]}}}}"
        )];
        match self.does {
            RuleAction::Forward => {}
            RuleAction::Edit => filters.push("{type: RequestHeaderModifier, requestHeaderModifier: {set: [{name: x-one, value: edited}], remove: [x-two]}}".to_owned()),
            RuleAction::Rewrite => filters.push("{type: URLRewrite, urlRewrite: {path: {type: ReplacePrefixMatch, replacePrefixMatch: /new}}}".to_owned()),
            RuleAction::Redirect => filters.push("{type: RequestRedirect, requestRedirect: {scheme: https, hostname: moved.example, statusCode: 301}}".to_owned()),
        }
        let backends = match self.does {
            RuleAction::Redirect => String::new(),
            _ => ", backendRefs: [{name: web, port: 80}]".to_owned(),
        };
        format!(
            "{{matches: [{{path: {{type: {kind}, value: {}}}, {method}headers: [{}], queryParams: [{}]}}], filters: [{}]{backends}}}",
            self.path,
            list(&self.headers),
            list(&self.query),
            filters.join(", ")
        )
    }
}
