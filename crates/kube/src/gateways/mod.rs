//! The objects that are generated for each Gateway.

mod name;

pub use name::{label_value, object_name};
