//! Topology hints of endpoints: the nodes and zones from which an endpoint should be used.
//!
//! A cluster's EndpointSlice controller writes them. Without a cluster they are derived in the same way, from the node and zone of an endpoint and
//! `trafficDistribution` of its Service.

use std::sync::Arc;

use pointsman_resources::core::{Endpoint, TopologyName, TrafficDistribution};

use crate::bound::TopologyHints;

/// Returns the hints of an endpoint; `None` if there are none.
pub(super) fn hints(
    endpoint: &Endpoint,
    distribution: Option<TrafficDistribution>,
) -> Option<Arc<TopologyHints>> {
    let names = |names: &[TopologyName]| names.iter().map(|name| name.name.clone()).collect();
    let mut hints = match (&endpoint.hints, distribution) {
        (Some(hints), _) => TopologyHints {
            nodes: names(&hints.for_nodes),
            zones: names(&hints.for_zones),
        },
        (None, Some(distribution)) => TopologyHints {
            nodes: match distribution {
                TrafficDistribution::PreferSameNode => endpoint.node_name.iter().cloned().collect(),
                TrafficDistribution::PreferSameZone => Vec::new(),
            },
            zones: endpoint.zone.iter().cloned().collect(),
        },
        (None, None) => return None,
    };
    hints.nodes.sort();
    hints.zones.sort();
    let is_empty = hints.nodes.is_empty() && hints.zones.is_empty();
    (!is_empty).then(|| Arc::new(hints))
}
