//! Selection of a part of a graph.

use std::collections::BTreeSet;

use super::{Graph, Node};

/// The part of a graph to keep.
#[derive(Clone, Debug, Default)]
pub struct GraphFilter {
    /// Objects of this namespace.
    pub namespace: Option<String>,
    /// The object with this name, as `NAME`, `NAMESPACE/NAME` or `KIND/NAMESPACE/NAME`.
    pub name: Option<String>,
}

impl GraphFilter {
    fn selects(&self, node: &Node) -> bool {
        let is_in = |namespace: &String| node.namespace == *namespace;
        let is_named = |wanted: &String| {
            let kind = node.id.split('/').next().unwrap_or_default();
            let Node {
                namespace, name, ..
            } = node;
            let qualified = format!("{kind}/{namespace}/{name}");
            *wanted == *name
                || *wanted == format!("{namespace}/{name}")
                || wanted.eq_ignore_ascii_case(&qualified)
                || *wanted == node.id
        };
        self.namespace.as_ref().is_none_or(is_in) && self.name.as_ref().is_none_or(is_named)
    }
}

/// Keeps the nodes that a filter selects, and all nodes on paths to and from them.
pub fn filter(graph: Graph, filter: &GraphFilter) -> Graph {
    let seeds = graph.nodes.iter().filter(|node| filter.selects(node));
    let seeds: BTreeSet<&str> = seeds.map(|node| node.id.as_str()).collect();
    let (mut above, mut below) = (seeds.clone(), seeds);
    // Edges lead from each of the four layers to a higher one.
    for _ in 0..3 {
        for edge in &graph.edges {
            if below.contains(edge.from.as_str()) {
                below.insert(&edge.to);
            }
            if above.contains(edge.to.as_str()) {
                above.insert(&edge.from);
            }
        }
    }
    let is_kept = |id: &str| above.contains(id) || below.contains(id);
    // An edge is on a path through a seed only if both ends are on the same side of it.
    let is_on_path = |from: &str, to: &str| {
        above.contains(from) && above.contains(to) || below.contains(from) && below.contains(to)
    };
    let nodes = graph.nodes.iter().filter(|node| is_kept(&node.id));
    let edges = graph.edges.iter();
    let edges = edges.filter(|edge| is_on_path(&edge.from, &edge.to));
    Graph {
        nodes: nodes.cloned().collect(),
        edges: edges.cloned().collect(),
    }
}
