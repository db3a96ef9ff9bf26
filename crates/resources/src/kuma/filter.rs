//! Filters of Kuma's HTTP routes.
#![allow(missing_docs, reason = "fields are named and documented as in Kuma")]

use serde::{Deserialize, Deserializer};

use super::BackendRef;
use crate::route::{Fraction, HeaderModifier, PathModifier, RequestRedirect};

/// A filter of a rule.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(try_from = "RawFilter")]
pub enum Filter {
    RequestHeaderModifier(HeaderModifier),
    ResponseHeaderModifier(HeaderModifier),
    RequestMirror(RequestMirror),
    RequestRedirect(RequestRedirect),
    URLRewrite(UrlRewrite),
    DirectResponse(DirectResponse),
}

/// Serialized form of [`Filter`]: the type, and one field with its settings.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct RawFilter {
    #[serde(rename = "type")]
    kind: String,
    request_header_modifier: Option<HeaderModifier>,
    response_header_modifier: Option<HeaderModifier>,
    request_mirror: Option<RequestMirror>,
    request_redirect: Option<RequestRedirect>,
    url_rewrite: Option<UrlRewrite>,
    direct_response: Option<DirectResponse>,
}

impl TryFrom<RawFilter> for Filter {
    type Error = String;

    fn try_from(raw: RawFilter) -> Result<Self, String> {
        let filter = match raw.kind.as_str() {
            "RequestHeaderModifier" => raw
                .request_header_modifier
                .map(Filter::RequestHeaderModifier),
            "ResponseHeaderModifier" => raw
                .response_header_modifier
                .map(Filter::ResponseHeaderModifier),
            "RequestMirror" => raw.request_mirror.map(Filter::RequestMirror),
            "RequestRedirect" => raw.request_redirect.map(Filter::RequestRedirect),
            "URLRewrite" => raw.url_rewrite.map(Filter::URLRewrite),
            "DirectResponse" => raw.direct_response.map(Filter::DirectResponse),
            _ => None,
        };
        filter.ok_or_else(|| {
            format!(
                "the settings of a filter of type `{}` are missing",
                raw.kind
            )
        })
    }
}

/// Sends copies of requests to another backend.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RequestMirror {
    #[serde(default = "all", deserialize_with = "percentage")]
    pub percentage: Fraction,
    pub backend_ref: BackendRef,
}

/// Rewrites the host or path of a request.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct UrlRewrite {
    pub hostname: Option<String>,
    pub path: Option<PathModifier>,
    /// True if the host is replaced by the selected backend's hostname. Gateways only.
    #[serde(default)]
    pub host_to_backend_hostname: bool,
}

/// Responds without contacting a backend.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct DirectResponse {
    pub status: u16,
    /// Empty if unset.
    pub body: Option<DataSource>,
}

/// Source of a response body, certificate or key.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Deserialize)]
#[serde(try_from = "RawDataSource")]
pub enum DataSource {
    /// Base64-encoded data.
    InlineBytes(String),
    /// Plain text.
    InlineString(String),
    /// Path of a file.
    Filename(String),
    /// Name of an environment variable.
    EnvironmentVariable(String),
    /// Name of a Secret. Certificates and keys only.
    Secret(String),
}

/// Serialized form of [`DataSource`]: exactly one field is set. Several sources have more than one field name, because certificates and
/// response bodies use different ones.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct RawDataSource {
    inline_bytes: Option<String>,
    inline: Option<String>,
    inline_string: Option<String>,
    insecure_inline: Option<DataSourceField>,
    filename: Option<String>,
    file: Option<DataSourceField>,
    environment_variable: Option<String>,
    env_var: Option<DataSourceField>,
    secret: Option<String>,
    secret_ref: Option<DataSourceField>,
}

/// A string, or an object with a single string field.
#[derive(Deserialize)]
#[serde(untagged)]
enum DataSourceField {
    Text(String),
    Path { path: String },
    Name { name: String },
    Value { value: String },
}

impl DataSourceField {
    fn into_text(self) -> String {
        match self {
            DataSourceField::Text(text)
            | DataSourceField::Path { path: text }
            | DataSourceField::Name { name: text }
            | DataSourceField::Value { value: text } => text,
        }
    }
}

impl TryFrom<RawDataSource> for DataSource {
    type Error = &'static str;

    fn try_from(raw: RawDataSource) -> Result<Self, &'static str> {
        let or = |text: Option<String>, field: Option<DataSourceField>| {
            text.or(field.map(DataSourceField::into_text))
        };
        let bytes = raw.inline_bytes.or(raw.inline);
        let string = or(raw.inline_string, raw.insecure_inline);
        let file = or(raw.filename, raw.file);
        let variable = or(raw.environment_variable, raw.env_var);
        let secret = or(raw.secret, raw.secret_ref);
        bytes
            .map(DataSource::InlineBytes)
            .or(string.map(DataSource::InlineString))
            .or(file.map(DataSource::Filename))
            .or(variable.map(DataSource::EnvironmentVariable))
            .or(secret.map(DataSource::Secret))
            .ok_or("the data source is empty")
    }
}

fn all() -> Fraction {
    Fraction {
        numerator: 100,
        denominator: 100,
    }
}

/// Deserializes a percentage: an integer, or a decimal number as a string.
fn percentage<'de, D: Deserializer<'de>>(d: D) -> Result<Fraction, D::Error> {
    #[derive(Deserialize)]
    #[serde(untagged)]
    enum RawPercentage {
        Number(u32),
        Text(String),
    }
    let text = match RawPercentage::deserialize(d)? {
        RawPercentage::Number(number) => number.to_string(),
        RawPercentage::Text(text) => text,
    };
    fraction(&text).ok_or_else(|| {
        serde::de::Error::custom(format!("`{text}` is not a percentage such as `12.5`"))
    })
}

/// Parses a percentage such as `12.5` to a fraction. Decimals after the fourth are ignored.
pub(crate) fn fraction(text: &str) -> Option<Fraction> {
    let (whole, decimals) = text.split_once('.').unwrap_or((text, "0"));
    let digits = |part: &str| !part.is_empty() && part.bytes().all(|b| b.is_ascii_digit());
    if !digits(whole) || !digits(decimals) {
        return None;
    }
    let kept = &decimals[..decimals.len().min(4)];
    let scale = 10_u32.pow(u32::try_from(kept.len()).ok()?);
    let whole: u32 = whole.parse().ok().filter(|whole| *whole <= 100)?;
    let numerator = whole * scale + kept.parse::<u32>().ok()?;
    let denominator = 100 * scale;
    (numerator <= denominator).then_some(Fraction {
        numerator,
        denominator,
    })
}
