//! What a rule does to requests and responses.

use serde::{Deserialize, Deserializer};

use super::BackendRef;
use crate::route::{Fraction, HeaderModifier, PathModifier, RequestRedirect};

/// What is done to a request or its response.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(try_from = "Written")]
#[allow(missing_docs, reason = "named as in Kuma")]
pub enum Filter {
    RequestHeaderModifier(HeaderModifier),
    ResponseHeaderModifier(HeaderModifier),
    RequestMirror(RequestMirror),
    RequestRedirect(RequestRedirect),
    URLRewrite(UrlRewrite),
    DirectResponse(DirectResponse),
}

/// A filter as it is written: its type, and one of these.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Written {
    #[serde(rename = "type")]
    kind: String,
    request_header_modifier: Option<HeaderModifier>,
    response_header_modifier: Option<HeaderModifier>,
    request_mirror: Option<RequestMirror>,
    request_redirect: Option<RequestRedirect>,
    url_rewrite: Option<UrlRewrite>,
    direct_response: Option<DirectResponse>,
}

impl TryFrom<Written> for Filter {
    type Error = String;

    fn try_from(written: Written) -> Result<Self, String> {
        let filter = match written.kind.as_str() {
            "RequestHeaderModifier" => written
                .request_header_modifier
                .map(Filter::RequestHeaderModifier),
            "ResponseHeaderModifier" => written
                .response_header_modifier
                .map(Filter::ResponseHeaderModifier),
            "RequestMirror" => written.request_mirror.map(Filter::RequestMirror),
            "RequestRedirect" => written.request_redirect.map(Filter::RequestRedirect),
            "URLRewrite" => written.url_rewrite.map(Filter::URLRewrite),
            "DirectResponse" => written.direct_response.map(Filter::DirectResponse),
            _ => None,
        };
        filter.ok_or_else(|| format!("a filter of type `{}` without its settings", written.kind))
    }
}

/// Sends a copy of requests elsewhere.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RequestMirror {
    /// Of how many.
    #[serde(default = "all", deserialize_with = "percentage")]
    pub percentage: Fraction,
    /// Where to.
    pub backend_ref: BackendRef,
}

/// Changes the host or path of a request.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct UrlRewrite {
    /// The new host.
    pub hostname: Option<String>,
    /// The new path.
    pub path: Option<PathModifier>,
    /// Whether the new host is that of the backend that was chosen. Only on gateways.
    #[serde(default)]
    pub host_to_backend_hostname: bool,
}

/// Answers by itself.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct DirectResponse {
    /// The status of the answer.
    pub status: u16,
    /// Its body; empty if left out.
    pub body: Option<DataSource>,
}

/// Where bytes come from.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Deserialize)]
#[serde(try_from = "Sources")]
pub enum DataSource {
    /// They stand here, in base64.
    InlineBytes(String),
    /// They stand here.
    InlineString(String),
    /// They are in this file.
    Filename(String),
    /// They are in this variable of the environment.
    EnvironmentVariable(String),
    /// They are in the secret of this name. Certificates only.
    Secret(String),
}

/// A [`DataSource`] as it is written: one of these. Certificates have shorter names for some, and newer ones.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Sources {
    inline_bytes: Option<String>,
    inline: Option<String>,
    inline_string: Option<String>,
    insecure_inline: Option<Part>,
    filename: Option<String>,
    file: Option<Part>,
    environment_variable: Option<String>,
    env_var: Option<Part>,
    secret: Option<String>,
    secret_ref: Option<Part>,
}

/// A text, or an object that has it in one field.
#[derive(Deserialize)]
#[serde(untagged)]
enum Part {
    Text(String),
    Path { path: String },
    Name { name: String },
    Value { value: String },
}

impl Part {
    fn text(self) -> String {
        match self {
            Part::Text(text)
            | Part::Path { path: text }
            | Part::Name { name: text }
            | Part::Value { value: text } => text,
        }
    }
}

impl TryFrom<Sources> for DataSource {
    type Error = &'static str;

    fn try_from(written: Sources) -> Result<Self, &'static str> {
        let or = |text: Option<String>, part: Option<Part>| text.or(part.map(Part::text));
        let bytes = written.inline_bytes.or(written.inline);
        let string = or(written.inline_string, written.insecure_inline);
        let file = or(written.filename, written.file);
        let variable = or(written.environment_variable, written.env_var);
        let secret = or(written.secret, written.secret_ref);
        bytes
            .map(DataSource::InlineBytes)
            .or(string.map(DataSource::InlineString))
            .or(file.map(DataSource::Filename))
            .or(variable.map(DataSource::EnvironmentVariable))
            .or(secret.map(DataSource::Secret))
            .ok_or("it says nothing of where the data is")
    }
}

fn all() -> Fraction {
    Fraction {
        numerator: 100,
        denominator: 100,
    }
}

/// Reads a whole number, or a decimal one in quotes.
fn percentage<'de, D: Deserializer<'de>>(d: D) -> Result<Fraction, D::Error> {
    #[derive(Deserialize)]
    #[serde(untagged)]
    enum Written {
        Number(u32),
        Text(String),
    }
    let text = match Written::deserialize(d)? {
        Written::Number(number) => number.to_string(),
        Written::Text(text) => text,
    };
    fraction(&text).ok_or_else(|| {
        serde::de::Error::custom(format!("`{text}` is not a percentage such as `12.5`"))
    })
}

/// A decimal number of hundredths, such as `12.5`, as a part of a whole. More than four decimals are cut off.
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
