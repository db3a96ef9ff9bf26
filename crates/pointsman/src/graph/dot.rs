//! The graph in the language of Graphviz.

use std::fmt::Write;

use pointsman_control::graph::{Graph, Layer};

use super::edge_lines;

/// Renders a graph.
pub fn render(graph: &Graph) -> String {
    let mut out = String::from(
        "digraph pointsman {\n  rankdir=LR;\n  node [shape=box, style=\"rounded,filled\", fillcolor=white, fontname=\"sans-serif\", fontsize=11];\n  edge [fontname=\"sans-serif\", fontsize=10];\n",
    );
    for node in &graph.nodes {
        let mut lines = vec![node.title.clone()];
        lines.extend(node.details.iter().cloned());
        lines.extend(node.problems.iter().map(|problem| format!("✗ {problem}")));
        let style = match (node.problems.is_empty(), node.layer) {
            (false, _) => ", color=red, fontcolor=red",
            (true, Layer::Parent) => ", fillcolor=\"#e8f0fe\"",
            (true, _) => "",
        };
        let (id, label) = (quoted(&[&node.id]), quoted(&lines));
        let _ = writeln!(out, "  {id} [label={label}{style}];");
    }
    for edge in &graph.edges {
        let lines = edge_lines(&edge.label, edge.problem.as_deref());
        let style = match edge.problem {
            Some(_) => ", color=red, fontcolor=red, style=dashed",
            None => "",
        };
        let (from, to, label) = (quoted(&[&edge.from]), quoted(&[&edge.to]), quoted(&lines));
        let _ = writeln!(out, "  {from} -> {to} [label={label}{style}];");
    }
    out.push_str("}\n");
    out
}

/// Returns a quoted string of these lines.
fn quoted(lines: &[impl AsRef<str>]) -> String {
    let escaped = lines.iter().map(|line| {
        let line = line.as_ref().replace('\\', "\\\\").replace('"', "\\\"");
        line.replace(['\n', '\r'], " ")
    });
    format!("\"{}\"", escaped.collect::<Vec<_>>().join("\\n"))
}
