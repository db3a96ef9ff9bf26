//! The Gateway API: Gateways, routes, policies and the mesh (GAMMA).

pub(crate) mod backends;
pub(crate) mod certificates;
pub(crate) mod controller;
pub(crate) mod features;
pub(crate) mod gateway;
pub(crate) mod grants;
mod inactive;
pub(crate) mod infrastructure;
pub(crate) mod listener;
pub(crate) mod mesh;
pub(crate) mod namespaces;
pub(crate) mod observation;
pub(crate) mod parents;
pub(crate) mod policy;
pub(crate) mod route;
pub(crate) mod rules;
pub(crate) mod served_api;
mod topology;
