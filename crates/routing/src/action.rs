//! The routing decision: what is done with a request that a rule has taken.
//!
//! [`MatchedRule::action`] is the only place where a rule's fault, its CORS policy, its redirect or direct response, its weights and its
//! header edits are put in order. The proxy executes the [`Action`], `explain` prints it. Nothing here changes a counter: whoever asks
//! says which backend comes next.

use std::borrow::Cow;
use std::sync::{Arc, LazyLock};

use pointsman_binding::bound::{
    BoundRule, Fault, FaultReason, Frontend, FrontendId, Mirror, Protocol,
};
use pointsman_resources::Kind;

use crate::entry::Hit;
use crate::filters::cors::{self, Asked, Verdict};
use crate::filters::headers::{self, Edit, Field, TextField};
use crate::filters::redirect::{Manner, Redirect, Requested};
use crate::filters::{Forwarding, ReplyFilter, RuleFilters};
use crate::request::Request;
use crate::split::Split;

/// What is done with a request.
#[derive(Debug)]
pub enum Action<'r> {
    /// The rule can't be served: an error is returned to the client.
    Fail(&'r Fault),
    /// A filter replies.
    Reply(Reply<'r>),
    /// A backend replies.
    Forward(Forward<'r>),
}

/// A response that a filter makes, complete but for its framing and date.
#[derive(Debug, PartialEq, Eq)]
pub struct Reply<'r> {
    /// The filter.
    pub kind: ReplyKind,
    /// The status.
    pub status: u16,
    /// The header fields.
    pub headers: Vec<TextField<'r>>,
    /// The body.
    pub body: &'r [u8],
}

/// The filter that makes a [`Reply`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReplyKind {
    /// CORS, for a preflight request.
    Preflight,
    /// A redirect.
    Redirect,
    /// A direct response.
    Direct,
}

/// A request on its way to a backend, and what is changed in it and in the response.
#[derive(Debug)]
pub struct Forward<'r> {
    /// The backend's place in the rule.
    pub backend: usize,
    filters: Option<&'r Forwarding>,
    cors: cors::Fields<'r>,
}

/// A rule that has taken a request, at a frontend.
#[derive(Clone, Copy, Debug)]
pub struct MatchedRule<'r> {
    /// The frontend that the request arrived at.
    pub frontend: &'r Frontend,
    /// The rule.
    pub rule: &'r BoundRule,
    /// Its filters, compiled; none if it has none.
    pub filters: Option<&'r RuleFilters>,
}

impl<'r> MatchedRule<'r> {
    /// The rule that a lookup found.
    pub fn new(frontend: &'r Frontend, hit: &Hit<'r>) -> Self {
        MatchedRule {
            frontend,
            rule: hit.rule,
            filters: hit.filters.map(|filters| &**filters),
        }
    }

    /// What the rule does with a request. `next` gives the place of the backend whose turn it is, none if all weights are 0; it is
    /// called only if the request is forwarded. `port_offset` is how much above their own ports the listeners are bound here.
    pub fn action<R: Request>(
        self,
        request: &'r R,
        port_offset: u16,
        next: impl FnOnce() -> Option<usize>,
    ) -> Action<'r> {
        if let Some(fault) = &self.rule.fault {
            return Action::Fail(fault);
        }
        let mut cors = cors::Fields::new();
        if let Some(filters) = self.filters {
            match judge_origin(filters, request) {
                Some(Verdict::Preflight(fields)) => return Action::Reply(preflight(fields)),
                Some(Verdict::Simple(fields)) => cors = fields,
                None => {}
            }
            if let Some(filter) = &filters.reply {
                let edits = &filters.rule.response;
                return Action::Reply(match filter {
                    ReplyFilter::Redirect(redirect) => {
                        let location = self.location(redirect, request, port_offset);
                        let location = field("location", location);
                        reply(ReplyKind::Redirect, redirect.status, cors, location, edits)
                    }
                    ReplyFilter::Direct(direct) => {
                        let kind = Some(&*direct.content_type).filter(|_| !direct.body.is_empty());
                        let kind = kind.map(|kind| TextField::from(("content-type", kind)));
                        Reply {
                            body: &direct.body,
                            ..reply(ReplyKind::Direct, direct.status, cors, kind, edits)
                        }
                    }
                });
            }
        }
        match self.backend(next) {
            Err(fault) => Action::Fail(fault),
            Ok(backend) => Action::Forward(Forward {
                backend,
                filters: self.filters.map(|filters| &**filters.backend(backend)),
                cors,
            }),
        }
    }

    /// The place of the backend whose turn it is, for a request, a connection or a session.
    pub fn backend(self, next: impl FnOnce() -> Option<usize>) -> Result<usize, &'r Fault> {
        if let Some(fault) = &self.rule.fault {
            return Err(fault);
        }
        if self.rule.backends.is_empty() {
            return Err(&NO_BACKENDS);
        }
        next().ok_or(&*NO_WEIGHT)
    }

    /// The `Location` of a redirect.
    fn location<R: Request>(self, redirect: &Redirect, request: &R, offset: u16) -> String {
        let written = request.header("host").next();
        let written = written.and_then(|host| std::str::from_utf8(host).ok()?.rsplit_once(':'));
        redirect.location(&Requested {
            manner: Manner::of(&self.frontend.id),
            scheme: match self.frontend.protocol {
                Protocol::Https => "https",
                _ => "http",
            },
            host: request.authority(),
            // The last part of an IPv6 address is no port: it has a bracket behind it.
            written_port: written.and_then(|(_, port)| port.parse().ok()),
            port: self.frontend.port,
            offset,
            path: request.path(),
            query: request.query(),
        })
    }
}

/// The result of a rule's CORS policy, if it has one.
fn judge_origin<'r, R: Request>(filters: &'r RuleFilters, request: &'r R) -> Option<Verdict<'r>> {
    let policy = filters.cors.as_ref()?;
    let text = |name: &'static str| std::str::from_utf8(request.header(name).next()?).ok();
    policy.judge(&Asked {
        method: request.method(),
        origin: text("origin"),
        request_method: text("access-control-request-method"),
        request_headers: text("access-control-request-headers"),
    })
}

/// The reply to a CORS preflight request: no filter of the rule changes it.
fn preflight(fields: cors::Fields<'_>) -> Reply<'_> {
    reply(ReplyKind::Preflight, 204, fields, None, &[])
}

/// A reply whose header fields are those of CORS, then one of its own, then changed by the rule's filters.
fn reply<'r>(
    kind: ReplyKind,
    status: u16,
    cors: cors::Fields<'r>,
    own: impl Into<Option<TextField<'r>>>,
    edits: &'r [Edit],
) -> Reply<'r> {
    let mut fields: Vec<TextField<'r>> = cors.into_iter().map(TextField::from).collect();
    fields.extend(own.into());
    headers::apply(edits, &mut fields);
    Reply {
        kind,
        status,
        headers: fields,
        body: &[],
    }
}

fn field(name: &'static str, value: String) -> TextField<'static> {
    TextField {
        name: Cow::Borrowed(name),
        value: Cow::Owned(value),
    }
}

impl<'r> Forward<'r> {
    /// To the only backend of a port that no rule governs.
    pub fn unchanged() -> Self {
        Forward {
            backend: 0,
            filters: None,
            cors: cors::Fields::new(),
        }
    }

    /// The same with other filters for what is forwarded.
    pub(crate) fn with(&self, filters: &'r Forwarding) -> Self {
        Forward {
            backend: self.backend,
            filters: Some(filters),
            cors: self.cors.clone(),
        }
    }

    /// The path that the backend receives for this one.
    pub fn path<'p>(&self, path: &'p str) -> Cow<'p, str>
    where
        'r: 'p,
    {
        match self.filters.and_then(|filters| filters.path.as_ref()) {
            Some(rewrite) => rewrite.apply(path),
            None => Cow::Borrowed(path),
        }
    }

    /// Edits the request's header fields, `host` among them: the rule's edits, then the backend's. Fields of the client that an origin may take for edited
    /// ones are removed first.
    pub fn edit_request<'e, F>(&'e self, fields: &mut Vec<F>)
    where
        F: Field + From<(&'e str, &'e str)>,
    {
        let edited = self.filters.map(|filters| &filters.edited);
        headers::remove_ambiguous(fields, edited);
        if let Some(filters) = self.filters {
            headers::apply(&filters.request, fields);
        }
    }

    /// Reports whether a filter sets, adds or removes the request header field that an origin may take a field of this name for.
    pub fn edits_request_field(&self, name: &[u8]) -> bool {
        self.filters
            .is_some_and(|filters| filters.edited.contains(name))
    }

    /// Edits the response's header fields: what CORS says, then the rule's edits, then the backend's.
    pub fn edit_response<'e, F>(&'e self, fields: &mut Vec<F>)
    where
        F: Field + From<(&'e str, &'e str)>,
    {
        for (name, value) in &self.cors {
            let field = F::from((name, value));
            match *name {
                "vary" => fields.push(field),
                name => headers::set(fields, name.as_bytes(), field),
            }
        }
        if let Some(filters) = self.filters {
            headers::apply(&filters.response, fields);
        }
    }

    /// Names of the response's header fields that are edited.
    pub(crate) fn edited(&self) -> impl Iterator<Item = &str> {
        let edits = self.filters.map(|filters| filters.response.as_slice());
        let cors = self.cors.iter().map(|(name, _)| *name);
        cors.chain(edits.unwrap_or_default().iter().map(Edit::name))
    }

    /// Where copies go, and of which requests.
    pub fn mirrors(&self) -> impl Iterator<Item = &'r (Mirror, Arc<Split>)> + use<'r> {
        self.filters
            .into_iter()
            .flat_map(|filters| &filters.mirrors)
    }
}

static NO_BACKENDS: LazyLock<Fault> =
    LazyLock::new(|| Fault::new(500, FaultReason::NoBackends, "the rule has no backends"));
static NO_WEIGHT: LazyLock<Fault> =
    LazyLock::new(|| Fault::new(503, FaultReason::NoWeight, "every weight is 0"));
static NO_ENDPOINTS: LazyLock<Fault> =
    LazyLock::new(|| Fault::new(503, FaultReason::NoEndpoints, "no ready endpoint"));
static NO_ROUTE: LazyLock<Fault> =
    LazyLock::new(|| Fault::new(404, FaultReason::NoRoute, "no rule takes this request"));
static NO_LISTENER: LazyLock<Fault> =
    LazyLock::new(|| Fault::new(404, FaultReason::NoListener, "no listener serves this host"));
static CLOSED: LazyLock<Fault> = LazyLock::new(|| {
    let message = "the listener for this host can't serve requests";
    Fault::new(404, FaultReason::NoListener, message)
});
static MISDIRECTED: LazyLock<Fault> = LazyLock::new(|| {
    let message = "this connection was made for another host";
    Fault::new(421, FaultReason::Misdirected, message)
});

/// The error for a backend without ready endpoints.
pub fn no_endpoints() -> &'static Fault {
    &NO_ENDPOINTS
}

/// The error for a request that no rule takes.
pub fn no_route() -> &'static Fault {
    &NO_ROUTE
}

/// The error for a request that no listener serves.
pub fn no_listener() -> &'static Fault {
    &NO_LISTENER
}

/// The error for a request whose listener can't serve.
pub fn closed() -> &'static Fault {
    &CLOSED
}

/// The error for a request whose host belongs to another listener than its connection, which was made to this one. RFC 9110 §7.4: it is
/// misdirected. Kuma's gateways answer 404.
pub fn misdirected(listener: &FrontendId) -> &'static Fault {
    match listener.parent().kind {
        Kind::MeshGateway => &NO_LISTENER,
        _ => &MISDIRECTED,
    }
}

/// The gRPC status that stands for an HTTP status: every error that is made here is told to gRPC calls as HTTP 200 with this.
pub fn grpc_status(status: u16) -> u16 {
    match status {
        // UNIMPLEMENTED
        404 => 12,
        // DEADLINE_EXCEEDED
        504 => 4,
        // INTERNAL: what is wrong with the request itself
        400 => 13,
        // RESOURCE_EXHAUSTED
        413 | 414 | 431 => 8,
        // UNAVAILABLE
        _ => 14,
    }
}
