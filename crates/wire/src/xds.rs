//! Messages of delta xDS, generated from vendored minimal definitions.

#![allow(missing_docs, clippy::all, reason = "documented in the .proto files")]

pub mod envoy {
    pub mod config {
        pub mod core {
            pub mod v3 {
                include!(concat!(env!("OUT_DIR"), "/envoy.config.core.v3.rs"));
            }
        }
    }
    pub mod service {
        pub mod discovery {
            pub mod v3 {
                include!(concat!(env!("OUT_DIR"), "/envoy.service.discovery.v3.rs"));
            }
        }
    }
}

pub mod google {
    pub mod rpc {
        include!(concat!(env!("OUT_DIR"), "/google.rpc.rs"));
    }
}

pub use envoy::config::core::v3 as core;
pub use envoy::service::discovery::v3 as discovery;
