//! The layout of a picture: a column for each layer, and nodes in a column next to those that lead to them.
//!
//! Text is set in a monospaced font, so its width is known without a font.

use std::collections::HashMap;

use pointsman_control::graph::{Graph, Layer};

use super::{edge_lines, shortened};

/// Width of a character.
pub const CHARACTER: f64 = 6.7;
/// Height of a line of text.
pub const LINE: f64 = 15.0;
/// Space around the text of a node.
pub const PADDING: f64 = 8.0;
/// Space around the picture.
const MARGIN: f64 = 16.0;
/// Space between the nodes of a column.
const GAP: f64 = 14.0;
/// Least space between columns.
const COLUMN_GAP: f64 = 60.0;
/// Maximum number of characters in a line of a node.
const MAX_LINE: usize = 60;
/// Maximum number of characters in a line of a label.
const MAX_LABEL: usize = 48;

/// A picture.
pub struct Picture {
    pub width: f64,
    pub height: f64,
    pub boxes: Vec<NodeBox>,
    pub arrows: Vec<Arrow>,
}

/// A node in the picture.
pub struct NodeBox {
    pub x: f64,
    pub y: f64,
    pub width: f64,
    pub height: f64,
    pub layer: Layer,
    /// Lines with whether each is a problem.
    pub lines: Vec<(String, bool)>,
    pub is_problem: bool,
}

/// An edge in the picture.
pub struct Arrow {
    pub start: (f64, f64),
    pub end: (f64, f64),
    pub lines: Vec<String>,
    pub is_problem: bool,
}

/// Arranges a graph.
pub fn arrange(graph: &Graph) -> Picture {
    let index: HashMap<&str, usize> = graph
        .nodes
        .iter()
        .enumerate()
        .map(|(index, node)| (node.id.as_str(), index))
        .collect();
    let edges: Vec<(usize, usize, Vec<String>, bool)> = graph
        .edges
        .iter()
        .filter_map(|edge| {
            let lines = edge_lines(&edge.label, edge.problem.as_deref());
            let lines = lines.iter().map(|line| shortened(line, MAX_LABEL));
            let (from, to) = (index.get(&*edge.from)?, index.get(&*edge.to)?);
            Some((*from, *to, lines.collect(), edge.problem.is_some()))
        })
        .collect();
    let mut boxes: Vec<NodeBox> = graph.nodes.iter().map(node_box).collect();
    // Each edge leaves its node at a height of its own, with room for its label.
    let mut outgoing = vec![0.0; boxes.len()];
    for (from, _, lines, _) in &edges {
        outgoing[*from] += LINE * lines.len().max(1) as f64;
    }
    for (own, needed) in boxes.iter_mut().zip(&outgoing) {
        own.height = own.height.max(needed + PADDING);
    }
    let columns = columns(&boxes, &edges);
    let (width, height) = place(&mut boxes, &columns, &edges);
    let arrows = arrows(&boxes, &edges);
    Picture {
        width,
        height,
        boxes,
        arrows,
    }
}

fn node_box(node: &pointsman_control::graph::Node) -> NodeBox {
    let mut lines = vec![(shortened(&node.title, MAX_LINE), false)];
    let details = node
        .details
        .iter()
        .map(|line| (shortened(line, MAX_LINE), false));
    lines.extend(details);
    let problems = node.problems.iter();
    lines.extend(problems.map(|line| (shortened(&format!("✗ {line}"), MAX_LINE), true)));
    let longest = lines.iter().map(|(line, _)| line.chars().count()).max();
    NodeBox {
        x: 0.0,
        y: 0.0,
        width: longest.unwrap_or_default() as f64 * CHARACTER + 2.0 * PADDING,
        height: lines.len() as f64 * LINE + 2.0 * PADDING,
        layer: node.layer,
        is_problem: !node.problems.is_empty(),
        lines,
    }
}

type LabelledEdge = (usize, usize, Vec<String>, bool);

/// Returns the nodes of each column from top to bottom: in the order of the graph, then by the mean position of the nodes that lead to them.
fn columns(boxes: &[NodeBox], edges: &[LabelledEdge]) -> Vec<Vec<usize>> {
    let layers = [Layer::Parent, Layer::Frontend, Layer::Route, Layer::Backend];
    let mut columns: Vec<Vec<usize>> = layers
        .iter()
        .map(|layer| {
            (0..boxes.len())
                .filter(|at| boxes[*at].layer == *layer)
                .collect()
        })
        .collect();
    let mut position = vec![0.0; boxes.len()];
    for column in &mut columns {
        let mean = |at: usize, position: &[f64]| {
            let before: Vec<f64> = edges
                .iter()
                .filter(|(_, to, ..)| *to == at)
                .map(|(from, ..)| position[*from])
                .collect();
            match before.is_empty() {
                true => f64::MAX,
                false => before.iter().sum::<f64>() / before.len() as f64,
            }
        };
        let means: HashMap<usize, f64> = column
            .iter()
            .map(|at| (*at, mean(*at, &position)))
            .collect();
        // The sort is stable, so the order of the graph decides ties.
        column.sort_by(|a, b| means[a].total_cmp(&means[b]));
        for (place, at) in column.iter().enumerate() {
            position[*at] = place as f64;
        }
    }
    columns
}

/// Places the nodes. Returns the size of the picture.
fn place(boxes: &mut [NodeBox], columns: &[Vec<usize>], edges: &[LabelledEdge]) -> (f64, f64) {
    let mut x = MARGIN;
    let mut height: f64 = 0.0;
    for column in columns.iter().filter(|column| !column.is_empty()) {
        let width = column.iter().map(|at| boxes[*at].width).fold(0.0, f64::max);
        let mut y = MARGIN;
        for at in column {
            let own = &mut boxes[*at];
            (own.x, own.y, own.width) = (x, y, width);
            y += own.height + GAP;
        }
        height = height.max(y - GAP + MARGIN);
        let labels = edges.iter().filter(|(from, ..)| column.contains(from));
        let longest = labels
            .flat_map(|(_, _, lines, _)| lines)
            .map(|line| line.chars().count())
            .max();
        x += width + COLUMN_GAP + longest.unwrap_or_default() as f64 * CHARACTER;
    }
    let right = boxes
        .iter()
        .map(|own| own.x + own.width)
        .fold(0.0, f64::max);
    (right + MARGIN, height.max(2.0 * MARGIN))
}

/// Draws the edges of each node from top to bottom in the order of the nodes that they lead to.
fn arrows(boxes: &[NodeBox], edges: &[LabelledEdge]) -> Vec<Arrow> {
    let mut order: Vec<&LabelledEdge> = edges.iter().collect();
    order.sort_by(|a, b| {
        let key = |edge: &LabelledEdge| (edge.0, boxes[edge.1].x, boxes[edge.1].y);
        let ((a, ax, ay), (b, bx, by)) = (key(a), key(b));
        a.cmp(&b).then(ax.total_cmp(&bx)).then(ay.total_cmp(&by))
    });
    let mut used = vec![PADDING / 2.0; boxes.len()];
    let mut arrows = Vec::new();
    for (from, to, lines, is_problem) in order {
        let (a, b) = (&boxes[*from], &boxes[*to]);
        let room = LINE * lines.len().max(1) as f64;
        let start = (a.x + a.width, a.y + used[*from] + room);
        used[*from] += room;
        arrows.push(Arrow {
            start,
            end: (b.x, b.y + (b.height / 2.0).min(PADDING + LINE / 2.0)),
            lines: lines.clone(),
            is_problem: *is_problem,
        });
    }
    arrows
}
