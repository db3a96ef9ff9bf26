//! The topology as a graph: Gateways, mesh parents and Dataplanes, their listeners and ports, routes, and backends with their endpoints. It shows what is bound, and
//! what is refused or unresolved with the reason.

mod build;
mod filter;

pub use build::graph;
pub use filter::{GraphFilter, filter};

use serde::Serialize;

/// A graph, in a fixed order.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Graph {
    /// The nodes, ordered by layer and id.
    pub nodes: Vec<Node>,
    /// The edges, ordered by the nodes that they connect.
    pub edges: Vec<Edge>,
}

/// A node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Node {
    /// Unique id, such as `HTTPRoute/shop/cart` or `Gateway/infra/edge/http`.
    pub id: String,
    /// Layer from left to right.
    pub layer: Layer,
    /// The namespace, or the mesh of a universal document of Kuma; empty if there is none.
    pub namespace: String,
    /// The name of the object.
    pub name: String,
    /// Text for people.
    pub title: String,
    /// Additional lines.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub details: Vec<String>,
    /// Problems, such as refused listeners.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub problems: Vec<String>,
}

/// Layer of a node. Edges lead from lower to higher layers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Layer {
    /// A Gateway, ListenerSet, MeshGateway, Service as a parent, or Dataplane.
    Parent,
    /// A listener of a Gateway, a port of a mesh parent, or an outbound of a Dataplane.
    Frontend,
    /// A route, or a policy of Kuma.
    Route,
    /// A backend.
    Backend,
}

/// An edge between two nodes.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct Edge {
    /// Id of the node where it starts.
    pub from: String,
    /// Id of the node where it ends.
    pub to: String,
    /// Text for people, such as rules and weights.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub label: String,
    /// The reason if the connection was refused or can't be used.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub problem: Option<String>,
}
