//! Requests and responses, independent of the protocol version.

use bytes::Bytes;
use serde_json::Value;

/// Header fields or trailers, in order.
pub type Fields = Vec<(String, String)>;

/// A request to be sent.
#[derive(Debug, Clone)]
pub struct TestRequest {
    pub method: String,
    pub target: String,
    pub host: String,
    pub headers: Fields,
    pub body: Option<Bytes>,
}

pub fn ask(method: &str, target: &str) -> TestRequest {
    TestRequest {
        method: method.to_owned(),
        target: target.to_owned(),
        host: "example.com".to_owned(),
        headers: Vec::new(),
        body: None,
    }
}

pub fn get(target: &str) -> TestRequest {
    ask("GET", target)
}

pub fn post(target: &str, body: impl Into<Bytes>) -> TestRequest {
    TestRequest {
        body: Some(body.into()),
        ..ask("POST", target)
    }
}

impl TestRequest {
    pub fn host(mut self, host: &str) -> TestRequest {
        host.clone_into(&mut self.host);
        self
    }

    pub fn header(mut self, name: &str, value: &str) -> TestRequest {
        self.headers.push((name.to_owned(), value.to_owned()));
        self
    }

    /// Encodes the request in HTTP/1.1.
    pub fn bytes(&self) -> Vec<u8> {
        let mut head = format!(
            "{} {} HTTP/1.1\r\nHost: {}\r\n",
            self.method, self.target, self.host
        );
        for (name, value) in &self.headers {
            head.push_str(&format!("{name}: {value}\r\n"));
        }
        if let Some(body) = &self.body {
            head.push_str(&format!("Content-Length: {}\r\n", body.len()));
        }
        head.push_str("\r\n");
        let mut bytes = head.into_bytes();
        bytes.extend_from_slice(self.body.as_deref().unwrap_or_default());
        bytes
    }
}

/// A completely received response.
#[derive(Debug, Clone, Default)]
pub struct Response {
    pub status: u16,
    pub headers: Fields,
    pub body: Vec<u8>,
    pub trailers: Fields,
    /// Statuses of the informational responses before it.
    pub interim: Vec<u16>,
}

/// The first field of that name.
pub fn field<'a>(fields: &'a Fields, name: &str) -> Option<&'a str> {
    fields
        .iter()
        .find(|(key, _)| key.eq_ignore_ascii_case(name))
        .map(|(_, value)| value.as_str())
}

/// All fields of that name.
pub fn fields<'a>(fields: &'a Fields, name: &str) -> Vec<&'a str> {
    fields
        .iter()
        .filter(|(key, _)| key.eq_ignore_ascii_case(name))
        .map(|(_, value)| value.as_str())
        .collect()
}

impl Response {
    pub fn header(&self, name: &str) -> Option<&str> {
        field(&self.headers, name)
    }

    pub fn all(&self, name: &str) -> Vec<&str> {
        fields(&self.headers, name)
    }

    pub fn trailer(&self, name: &str) -> Option<&str> {
        field(&self.trailers, name)
    }

    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }

    pub fn json(&self) -> Value {
        serde_json::from_slice(&self.body)
            .unwrap_or_else(|error| panic!("{error}: {}", self.text()))
    }

    /// Name of the backend that responded; `None` for a local reply.
    pub fn backend(&self) -> Option<&str> {
        self.header("x-backend")
    }

    /// Reason of a local reply.
    pub fn reason(&self) -> Option<&str> {
        self.header("x-pointsman-reason")
    }
}

/// Converts fields of the `http` crate.
pub fn of_map(map: &http::HeaderMap) -> Fields {
    map.iter()
        .map(|(name, value)| {
            (
                name.as_str().to_owned(),
                String::from_utf8_lossy(value.as_bytes()).into_owned(),
            )
        })
        .collect()
}

/// Converts fields to those of the `http` crate.
pub fn to_map(fields: &Fields) -> http::HeaderMap {
    fields
        .iter()
        .map(|(name, value)| {
            (
                http::HeaderName::from_bytes(name.as_bytes()).expect("a name"),
                http::HeaderValue::from_bytes(value.as_bytes()).expect("a value"),
            )
        })
        .collect()
}
