//! Reasons for replies that Pointsman gives instead of forwarding.

use std::fmt;

/// A request or stream that is answered instead of forwarded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault {
    /// HTTP status; for gRPC 500 and 503 become UNAVAILABLE, a stream is closed.
    pub status: u16,
    /// Machine-readable cause.
    pub reason: FaultReason,
    /// Human-readable cause.
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
}

macro_rules! reasons {
    ($($name:ident),* $(,)?) => {
        /// Machine-readable cause of a [`Fault`]: a condition's reason where the API has one. Used in logs, metrics and responses.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
        #[allow(missing_docs, reason = "the names are the documentation")]
        pub enum FaultReason {
            $($name,)*
            /// A reason that this version does not know, received from a newer control plane.
            Unknown,
        }

        impl FaultReason {
            /// The reason as conditions, logs and metrics write it.
            pub fn as_str(self) -> &'static str {
                match self {
                    $(FaultReason::$name => stringify!($name),)*
                    FaultReason::Unknown => "Unknown",
                }
            }

            /// Parses [`as_str`](Self::as_str)'s form.
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
    // Found out by the proxy.
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
