//! Regions: the sets into which a configuration divides the requests to one frontend group, in order of precedence.
//!
//! A request belongs to the first region that matches it. If a request is treated differently by two configurations, then it belongs, on one side at least, to a
//! region that the other side does not have, or has at another position. Only these have to be examined.

use std::collections::HashMap;
use std::sync::Arc;

use pointsman_binding::bound::{FrontendId, Hostname, PathPredicate, RouteId};
use pointsman_resources::Kind;

use crate::entry::MatchEntry;
use crate::expression::{CompiledMatch, Expression};
use crate::path;
use crate::precedence::HostRank;
use crate::table::FrontendTable;

/// The requests of a listener that match an entry, or all requests of the listener.
pub(super) struct Region<'t> {
    /// The table of the listener.
    pub(super) table: &'t Arc<FrontendTable>,
    /// The entry; `None` stands for the requests of the listener that match no rule.
    pub(super) entry: Option<Arc<MatchEntry>>,
}

impl Region<'_> {
    /// Returns the match of the entry; `None` if every request or stream of the host matches.
    pub(super) fn matched(&self) -> Option<&CompiledMatch> {
        self.entry.as_ref()?.matched()
    }

    /// Returns the hostnames that all requests of the region match.
    pub(super) fn hostnames(&self) -> impl Iterator<Item = &Hostname> {
        let of_route = self
            .entry
            .as_ref()
            .and_then(|entry| entry.hostname.as_ref());
        self.table.frontend().hostname.iter().chain(of_route)
    }

    /// Returns whether the region belongs to a GRPCRoute.
    pub(super) fn is_grpc(&self) -> bool {
        let kind = self.entry.as_ref().map(|entry| entry.route.id.route.kind);
        kind == Some(Kind::GRPCRoute)
    }

    /// Returns whether a request may belong to both regions, by a quick look at hostnames and paths.
    pub(super) fn may_overlap(&self, other: &Region<'_>) -> bool {
        let paths = match (self.matched(), other.matched()) {
            (Some(own), Some(other)) => may_overlap(&own.path, &other.path),
            _ => true,
        };
        paths
            && self
                .hostnames()
                .all(|own| other.hostnames().all(|name| own.intersects(name)))
    }

    fn key(&self) -> (&FrontendId, Option<&Hostname>, Option<&RouteId>) {
        let entry = self.entry.as_ref();
        (
            &self.table.frontend().id,
            entry.and_then(|entry| entry.hostname.as_ref()),
            entry.map(|entry| &entry.route.id),
        )
    }

    fn matches_the_same(&self, other: &Region<'_>) -> bool {
        let (a, b) = (self.table.frontend(), other.table.frontend());
        let without_index = |matched: &CompiledMatch| CompiledMatch {
            index: 0,
            ..matched.clone()
        };
        a.hostname == b.hostname
            && self.matched().map(without_index) == other.matched().map(without_index)
    }
}

fn may_overlap(a: &PathPredicate<Expression>, b: &PathPredicate<Expression>) -> bool {
    match (a, b) {
        (PathPredicate::Exact(a), PathPredicate::Exact(b)) => a == b,
        (PathPredicate::Exact(path), PathPredicate::Prefix(prefix))
        | (PathPredicate::Prefix(prefix), PathPredicate::Exact(path)) => {
            path::has_prefix(path, prefix)
        }
        (PathPredicate::Prefix(a), PathPredicate::Prefix(b)) => {
            path::has_prefix(a, b) || path::has_prefix(b, a)
        }
        _ => true,
    }
}

/// Returns the regions of a frontend group's listeners, in order of precedence.
pub(super) fn regions<'t>(tables: &[&'t Arc<FrontendTable>]) -> Vec<Region<'t>> {
    let mut tables = tables.to_vec();
    tables.sort_by_key(|table| {
        let frontend = table.frontend();
        let rank = HostRank::of(frontend.hostname.as_ref());
        (rank, frontend.hostname.clone(), frontend.id.clone())
    });
    let mut all = Vec::new();
    for table in tables {
        let entries = match table.closed() {
            Some(_) => Vec::new(),
            None => table.entries(),
        };
        let entries = entries.into_iter().map(Some).chain([None]);
        all.extend(entries.map(|entry| Region { table, entry }));
    }
    all
}

/// Returns the indices of the regions of each side that the other side does not have, or has in another order. `has_same_effect` compares the effects of two
/// regions with the same requests.
pub(super) fn changed(
    old: &[Region<'_>],
    new: &[Region<'_>],
    has_same_effect: impl Fn(&Region<'_>, &Region<'_>) -> bool,
) -> [Vec<usize>; 2] {
    let mut by_key: HashMap<_, Vec<usize>> = HashMap::new();
    for (index, region) in new.iter().enumerate() {
        by_key.entry(region.key()).or_default().push(index);
    }
    let mut pairs: Vec<(usize, usize)> = Vec::new();
    for (index, region) in old.iter().enumerate() {
        let Some(candidates) = by_key.get_mut(&region.key()) else {
            continue;
        };
        let same = candidates.iter().position(|other| {
            let other = &new[*other];
            region.matches_the_same(other) && has_same_effect(region, other)
        });
        if let Some(position) = same {
            pairs.push((index, candidates.remove(position)));
        }
    }
    let kept = longest_increasing(&pairs);
    let mut is_kept = [vec![false; old.len()], vec![false; new.len()]];
    for position in kept {
        let (a, b) = pairs[position];
        is_kept[0][a] = true;
        is_kept[1][b] = true;
    }
    is_kept.map(|side| {
        let indices = side.iter().enumerate();
        indices
            .filter(|(_, kept)| !**kept)
            .map(|(index, _)| index)
            .collect()
    })
}

/// Returns the positions of a longest subsequence whose second components increase. The first ones do already.
fn longest_increasing(pairs: &[(usize, usize)]) -> Vec<usize> {
    // `ends[n]` is the position of the smallest end of a subsequence with n + 1 elements.
    let mut ends: Vec<usize> = Vec::new();
    let mut previous: Vec<Option<usize>> = vec![None; pairs.len()];
    for (position, (_, value)) in pairs.iter().enumerate() {
        let length = ends.partition_point(|end| pairs[*end].1 < *value);
        previous[position] = length.checked_sub(1).map(|before| ends[before]);
        match ends.get_mut(length) {
            Some(end) => *end = position,
            None => ends.push(position),
        }
    }
    let mut chosen = Vec::new();
    let mut next = ends.last().copied();
    while let Some(position) = next {
        chosen.push(position);
        next = previous[position];
    }
    chosen
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_longest_increasing_subsequence_leaves_out_what_has_moved() {
        let pairs = |values: &[usize]| values.iter().copied().enumerate().collect::<Vec<_>>();
        for (values, wanted) in [
            (vec![], vec![]),
            (vec![0, 1, 2], vec![0, 1, 2]),
            // The last one has moved to the front.
            (vec![1, 2, 3, 0], vec![0, 1, 2]),
            (vec![2, 0, 1], vec![1, 2]),
        ] {
            let mut found = longest_increasing(&pairs(&values));
            found.reverse();
            assert_eq!(found, wanted, "{values:?}");
        }
    }
}
