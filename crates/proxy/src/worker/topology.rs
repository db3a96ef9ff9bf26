//! The endpoints of a backend that are near the proxy, by their topology hints.

use std::net::SocketAddr;

use pointsman_binding::bound::BoundEndpoint;

use crate::balance::Readiness;
use crate::options::Location;

/// The topology that distinguishes near from distant endpoints.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Topology {
    Node,
    Zone,
}

/// Returns the addresses of endpoints with their readiness for requests from a location.
///
/// The rules are those of kube-proxy: hints count if all ready endpoints have them and one of them is for this node or, if none is, for this zone. Otherwise all
/// endpoints are near.
pub(super) fn readiness(
    endpoints: &[BoundEndpoint],
    location: &Location,
) -> Vec<(SocketAddr, Readiness)> {
    let is_selecting = |topology: &Topology| {
        let mut near = false;
        let mut ready = endpoints.iter().filter(|endpoint| !endpoint.terminating);
        let have_hints = ready.all(|endpoint| {
            near |= is_near(endpoint, location, *topology);
            !hints(endpoint, *topology).is_empty()
        });
        have_hints && near
    };
    let topology = [Topology::Node, Topology::Zone]
        .into_iter()
        .find(is_selecting);
    let readiness = |endpoint: &BoundEndpoint| match topology {
        _ if endpoint.terminating => Readiness::Terminating,
        Some(topology) if !is_near(endpoint, location, topology) => Readiness::Distant,
        _ => Readiness::Ready,
    };
    let endpoints = endpoints.iter();
    endpoints
        .map(|endpoint| (endpoint.address, readiness(endpoint)))
        .collect()
}

fn hints(endpoint: &BoundEndpoint, topology: Topology) -> &[String] {
    match (&endpoint.hints, topology) {
        (None, _) => &[],
        (Some(hints), Topology::Node) => &hints.nodes,
        (Some(hints), Topology::Zone) => &hints.zones,
    }
}

fn is_near(endpoint: &BoundEndpoint, location: &Location, topology: Topology) -> bool {
    let own = match topology {
        Topology::Node => &location.node,
        Topology::Zone => &location.zone,
    };
    let mut named = hints(endpoint, topology).iter();
    own.as_ref()
        .is_some_and(|own| named.any(|name| name == own))
}

#[cfg(test)]
mod tests {
    use pointsman_binding::bound::TopologyHints;

    use super::*;
    use Readiness::{Distant, Ready, Terminating};

    /// Creates endpoints from their hints, nodes before `/` and zones after it.
    fn endpoints(hints: &[&str]) -> Vec<BoundEndpoint> {
        let names = |text: &str| -> Vec<String> {
            let names = text.split(',').filter(|name| !name.is_empty());
            names.map(str::to_owned).collect()
        };
        let endpoint = |(number, hints): (usize, &&str)| {
            let hints = hints.split_once('/').map(|(nodes, zones)| TopologyHints {
                nodes: names(nodes),
                zones: names(zones),
            });
            BoundEndpoint {
                hints: hints.map(Into::into),
                ..BoundEndpoint::ready(([10, 0, 0, number as u8], 80).into())
            }
        };
        hints.iter().enumerate().map(endpoint).collect()
    }

    fn near(node: &str, zone: &str, hints: &[&str]) -> Vec<Readiness> {
        let name = |name: &str| Some(name.to_owned()).filter(|name| !name.is_empty());
        let location = Location {
            node: name(node),
            zone: name(zone),
        };
        let found = readiness(&endpoints(hints), &location);
        found.into_iter().map(|(_, readiness)| readiness).collect()
    }

    #[test]
    fn endpoints_hinted_for_the_zone_are_near() {
        // EndpointHints: "forZones indicates the zone(s) this endpoint should be consumed by when using topology aware routing."
        assert_eq!(
            near("n", "a", &["/a", "/b", "/b,a"]),
            [Ready, Distant, Ready]
        );
    }

    #[test]
    fn endpoints_hinted_for_the_node_are_near_before_those_of_the_zone() {
        // EndpointHints: "forNodes indicates the node(s) this endpoint should be consumed by when using topology aware routing."
        assert_eq!(
            near("n", "a", &["n/a", "m/a", "o/b"]),
            [Ready, Distant, Distant]
        );
        // None is for this node.
        assert_eq!(
            near("x", "a", &["n/a", "m/a", "o/b"]),
            [Ready, Ready, Distant]
        );
    }

    #[test]
    fn all_endpoints_are_near_if_none_is_hinted_for_the_zone() {
        // ServiceSpec, trafficDistribution: "offers a way to express preferences", and "implementations can use this field as a hint, but are not required to
        // guarantee strict adherence".
        assert_eq!(near("n", "c", &["/a", "/b"]), [Ready, Ready]);
        assert_eq!(near("n", "", &["/a", "/b"]), [Ready, Ready]);
        assert_eq!(near("", "", &["m/a", "n/b"]), [Ready, Ready]);
    }

    #[test]
    fn hints_are_ignored_unless_every_ready_endpoint_has_them() {
        // kube-proxy: "if every ready endpoint has a zone hint, and at least one endpoint is hinted for this node's zone".
        assert_eq!(near("n", "a", &["/a", "", "/b"]), [Ready, Ready, Ready]);
        let location = Location {
            node: None,
            zone: Some("a".to_owned()),
        };
        let mut some = endpoints(&["/a", "", "/b"]);
        some[1].terminating = true;
        let found = readiness(&some, &location);
        let found: Vec<Readiness> = found.into_iter().map(|(_, readiness)| readiness).collect();
        assert_eq!(found, [Ready, Terminating, Distant]);
    }
}
