//! Filters of rules and backends.

use std::sync::Arc;

use pointsman_binding::bound::{DirectResponse, Filter, Mirror};
use pointsman_resources::route::{
    Cors, Fraction, Header, HeaderModifier, PathModifier, RequestRedirect, UrlRewrite,
};

use crate::error::{DecodeError, convert, convert_all, to_u16};
use crate::proto;
use crate::rule::{decode_target, encode_target};

/// Decodes filters. Returns `None` if one of them is unknown, because the others may have no meaning without it.
pub(crate) fn decode_filters(
    filters: Vec<proto::Filter>,
) -> Result<Option<Vec<Filter>>, DecodeError> {
    let known = filters.into_iter().map(|message| message.filter);
    let known: Option<Vec<proto::filter::Filter>> = known.collect();
    known.map(convert_all).transpose()
}

impl From<&Filter> for proto::Filter {
    fn from(filter: &Filter) -> Self {
        use proto::filter::Filter as Message;
        let filter = match filter {
            Filter::RequestHeaders(modifier) => Message::RequestHeaders((&**modifier).into()),
            Filter::ResponseHeaders(modifier) => Message::ResponseHeaders((&**modifier).into()),
            Filter::Redirect(redirect) => Message::Redirect((&**redirect).into()),
            Filter::Rewrite(rewrite) => Message::Rewrite(proto::Rewrite {
                hostname: rewrite.hostname.clone(),
                path: rewrite.path.as_ref().map(Into::into),
            }),
            Filter::Mirror(mirror) => Message::Mirror(mirror.into()),
            Filter::Cors(cors) => Message::Cors((&**cors).into()),
            Filter::DirectResponse(response) => Message::DirectResponse(proto::DirectResponse {
                status: response.status.into(),
                body: response.body.to_vec(),
                content_type: response.content_type.to_string(),
            }),
        };
        proto::Filter {
            filter: Some(filter),
        }
    }
}

impl TryFrom<proto::filter::Filter> for Filter {
    type Error = DecodeError;

    fn try_from(filter: proto::filter::Filter) -> Result<Self, DecodeError> {
        use proto::filter::Filter as Message;
        Ok(match filter {
            Message::RequestHeaders(modifier) => Filter::RequestHeaders(Arc::new(modifier.into())),
            Message::ResponseHeaders(modifier) => {
                Filter::ResponseHeaders(Arc::new(modifier.into()))
            }
            Message::Redirect(redirect) => Filter::Redirect(Arc::new(redirect.try_into()?)),
            Message::Rewrite(rewrite) => Filter::Rewrite(Arc::new(UrlRewrite {
                hostname: rewrite.hostname,
                path: rewrite.path.map(Into::into),
            })),
            Message::Mirror(mirror) => Filter::Mirror(mirror.try_into()?),
            Message::Cors(cors) => Filter::Cors(Arc::new(cors.into())),
            Message::DirectResponse(response) => Filter::DirectResponse(Arc::new(DirectResponse {
                status: to_u16(response.status, "DirectResponse.status")?,
                body: response.body.into(),
                content_type: response.content_type.into(),
            })),
        })
    }
}

impl From<&HeaderModifier> for proto::HeaderModifier {
    fn from(modifier: &HeaderModifier) -> Self {
        let headers = |headers: &[Header]| {
            let headers = headers.iter().cloned();
            let encoded = headers.map(|Header { name, value }| proto::Header { name, value });
            encoded.collect()
        };
        proto::HeaderModifier {
            set: headers(&modifier.set),
            add: headers(&modifier.add),
            remove: modifier.remove.clone(),
        }
    }
}

impl From<proto::HeaderModifier> for HeaderModifier {
    fn from(modifier: proto::HeaderModifier) -> Self {
        let headers = |headers: Vec<proto::Header>| {
            let headers = headers.into_iter();
            let decoded = headers.map(|proto::Header { name, value }| Header { name, value });
            decoded.collect()
        };
        HeaderModifier {
            set: headers(modifier.set),
            add: headers(modifier.add),
            remove: modifier.remove,
        }
    }
}

impl From<&RequestRedirect> for proto::Redirect {
    fn from(redirect: &RequestRedirect) -> Self {
        proto::Redirect {
            scheme: redirect.scheme.clone(),
            hostname: redirect.hostname.clone(),
            path: redirect.path.as_ref().map(Into::into),
            port: redirect.port.map(Into::into),
            status_code: redirect.status_code.into(),
        }
    }
}

impl TryFrom<proto::Redirect> for RequestRedirect {
    type Error = DecodeError;

    fn try_from(redirect: proto::Redirect) -> Result<Self, DecodeError> {
        let port = redirect.port.map(|port| to_u16(port, "Redirect.port"));
        Ok(RequestRedirect {
            scheme: redirect.scheme,
            hostname: redirect.hostname,
            path: redirect.path.map(Into::into),
            port: port.transpose()?,
            status_code: to_u16(redirect.status_code, "Redirect.status_code")?,
        })
    }
}

impl From<&PathModifier> for proto::PathModifier {
    fn from(path: &PathModifier) -> Self {
        proto::PathModifier {
            r#type: path.kind.clone(),
            replace_full_path: path.replace_full_path.clone(),
            replace_prefix_match: path.replace_prefix_match.clone(),
        }
    }
}

impl From<proto::PathModifier> for PathModifier {
    fn from(path: proto::PathModifier) -> Self {
        PathModifier {
            kind: path.r#type,
            replace_full_path: path.replace_full_path,
            replace_prefix_match: path.replace_prefix_match,
        }
    }
}

impl From<&Cors> for proto::Cors {
    fn from(cors: &Cors) -> Self {
        let cors = cors.clone();
        proto::Cors {
            allow_origins: cors.allow_origins,
            allow_credentials: cors.allow_credentials,
            allow_methods: cors.allow_methods,
            allow_headers: cors.allow_headers,
            expose_headers: cors.expose_headers,
            max_age: cors.max_age,
        }
    }
}

impl From<proto::Cors> for Cors {
    fn from(cors: proto::Cors) -> Self {
        Cors {
            allow_origins: cors.allow_origins,
            allow_credentials: cors.allow_credentials,
            allow_methods: cors.allow_methods,
            allow_headers: cors.allow_headers,
            expose_headers: cors.expose_headers,
            max_age: cors.max_age,
        }
    }
}

impl From<&Mirror> for proto::Mirror {
    fn from(mirror: &Mirror) -> Self {
        proto::Mirror {
            reference: Some((&mirror.reference).into()),
            target: Some(encode_target(&mirror.target)),
            numerator: mirror.fraction.numerator,
            denominator: mirror.fraction.denominator,
            hostname: mirror.hostname.as_deref().map(str::to_owned),
        }
    }
}

impl TryFrom<proto::Mirror> for Mirror {
    type Error = DecodeError;

    fn try_from(mirror: proto::Mirror) -> Result<Self, DecodeError> {
        if mirror.denominator == 0 {
            let denominator = mirror.denominator;
            return Err(DecodeError::invalid(
                "Mirror.denominator",
                denominator,
                "1 or more",
            ));
        }
        Ok(Mirror {
            reference: convert(mirror.reference, "Mirror.reference")?,
            target: decode_target(mirror.target)?,
            fraction: Fraction {
                numerator: mirror.numerator,
                denominator: mirror.denominator,
            },
            hostname: mirror.hostname.map(Into::into),
        })
    }
}
