//! Filters of rules and backends. The methods of [`Filter`] state what other code has to know about each; its effect is in `routing`.

use std::sync::Arc;

use pointsman_resources::route::{Cors, Fraction, HeaderModifier, RequestRedirect, UrlRewrite};

use super::{BackendId, BackendName, Fault};

/// A filter. Unsupported filters are not represented; they cause faults.
#[derive(Clone, Debug, PartialEq)]
pub enum Filter {
    /// Changes the request's headers.
    RequestHeaders(Arc<HeaderModifier>),
    /// Changes the response's headers.
    ResponseHeaders(Arc<HeaderModifier>),
    /// Replies with a redirect.
    Redirect(Arc<RequestRedirect>),
    /// Changes the host or path.
    Rewrite(Arc<UrlRewrite>),
    /// Sends copies of requests to another backend.
    Mirror(Mirror),
    /// Replies to CORS preflight requests, and adds CORS headers to responses.
    Cors(Arc<Cors>),
    /// Replies with a fixed response.
    DirectResponse(Arc<DirectResponse>),
}

impl Filter {
    /// Returns the name of its type in the APIs.
    pub fn kind(&self) -> &'static str {
        match self {
            Filter::RequestHeaders(_) => "RequestHeaderModifier",
            Filter::ResponseHeaders(_) => "ResponseHeaderModifier",
            Filter::Redirect(_) => "RequestRedirect",
            Filter::Rewrite(_) => "URLRewrite",
            Filter::Mirror(_) => "RequestMirror",
            Filter::Cors(_) => "CORS",
            Filter::DirectResponse(_) => "DirectResponse",
        }
    }

    /// Returns whether it replies to every request, so that a rule with it needs no backend.
    pub fn replies(&self) -> bool {
        matches!(self, Filter::Redirect(_) | Filter::DirectResponse(_))
    }

    /// Returns the backend that it sends requests to.
    pub fn target(&self) -> Option<&Result<BackendId, Fault>> {
        match self {
            Filter::Mirror(mirror) => Some(&mirror.target),
            _ => None,
        }
    }
}

/// A fixed response.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DirectResponse {
    /// HTTP status.
    pub status: u16,
    /// Body.
    pub body: Arc<[u8]>,
    /// Content-Type, unless a filter sets another.
    pub content_type: Arc<str>,
}

/// A filter that sends copies of some requests to another backend.
#[derive(Clone, Debug, PartialEq)]
pub struct Mirror {
    /// The reference as written, for display.
    pub reference: BackendName,
    /// The resolved backend. With a fault, no copies are sent.
    pub target: Result<BackendId, Fault>,
    /// Fraction of requests to copy.
    pub fraction: Fraction,
    /// Host header of the copies; `None` keeps that of the request.
    pub hostname: Option<Arc<str>>,
}
