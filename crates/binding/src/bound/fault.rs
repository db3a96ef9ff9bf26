//! Reasons for local replies, which Pointsman sends instead of forwarding a request.

use std::fmt;

/// The reason why a request gets a local reply, or a stream is closed, instead of being forwarded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault {
    /// HTTP status. gRPC clients get UNAVAILABLE for 500 and 503; streams are closed.
    pub status: u16,
    /// Machine-readable reason.
    pub reason: FaultReason,
    /// Human-readable reason.
    pub message: String,
}

impl Fault {
    /// Creates a fault.
    pub fn new(status: u16, reason: FaultReason, message: impl Into<String>) -> Self {
        Fault {
            status,
            reason,
            message: message.into(),
        }
    }

    /// Creates the fault of a rule without backends that no filter replies to.
    pub(crate) fn no_backend_refs() -> Self {
        Fault::new(
            500,
            FaultReason::NoBackendRefs,
            "the rule has no backendRefs",
        )
    }
}

impl Fault {
    /// Returns the reason for clients, without names of objects, which only the operator should see.
    pub fn client_message(&self) -> &str {
        match self.reason {
            FaultReason::BackendNotFound
            | FaultReason::InvalidKind
            | FaultReason::RefNotPermitted
            | FaultReason::UnsupportedProtocol
            | FaultReason::UnsupportedValue => "the route for this request can't be served",
            FaultReason::BackendTlsUnusable
            | FaultReason::Invalid
            | FaultReason::InvalidCertificateRef
            | FaultReason::InvalidClientCertificateRef
            | FaultReason::NoMutualTls
            | FaultReason::NoValidCACertificate => "TLS to the backend can't be used",
            FaultReason::DirectResponse
            | FaultReason::NoBackendRefs
            | FaultReason::NoBackends
            | FaultReason::NoWeight
            | FaultReason::ConnectFailed
            | FaultReason::ConnectTimeout
            | FaultReason::Misdirected
            | FaultReason::NoEndpoints
            | FaultReason::NoListener
            | FaultReason::NoRoute
            | FaultReason::ProtocolMismatch
            | FaultReason::TlsFailed => &self.message,
            FaultReason::Unknown => "the request can't be served",
        }
    }
}

macro_rules! reasons {
    ($($name:ident),* $(,)?) => {
        /// Machine-readable reason of a [`Fault`], in logs, metrics and local replies. It is the condition's reason if the API defines one.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
        #[allow(missing_docs, reason = "the names are the documentation")]
        pub enum FaultReason {
            $($name,)*
            /// A reason from a newer control plane that this version does not know.
            Unknown,
        }

        impl FaultReason {
            /// Returns the reason in the form of conditions, logs and metrics.
            pub fn as_str(self) -> &'static str {
                match self {
                    $(FaultReason::$name => stringify!($name),)*
                    FaultReason::Unknown => "Unknown",
                }
            }

            /// Parses the form that [`as_str`](Self::as_str) returns.
            pub fn parse(text: &str) -> Self {
                match text {
                    $(stringify!($name) => FaultReason::$name,)*
                    _ => FaultReason::Unknown,
                }
            }
        }
    };
}

reasons! {
    // The rule or its references.
    BackendNotFound,
    DirectResponse,
    InvalidKind,
    NoBackendRefs,
    NoBackends,
    NoWeight,
    RefNotPermitted,
    UnsupportedProtocol,
    UnsupportedValue,
    // TLS towards backends.
    BackendTlsUnusable,
    Invalid,
    InvalidCertificateRef,
    InvalidClientCertificateRef,
    NoMutualTls,
    NoValidCACertificate,
    // Detected by the proxy.
    ConnectFailed,
    ConnectTimeout,
    Misdirected,
    NoEndpoints,
    NoListener,
    NoRoute,
    ProtocolMismatch,
    TlsFailed,
}

impl fmt::Display for FaultReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}
