//! The graph as a Mermaid flowchart, which GitHub and GitLab display in Markdown.

use std::collections::HashMap;
use std::fmt::Write;

use pointsman_control::graph::Graph;

use super::{edge_lines, shortened};

/// Maximum length of a line in a node.
const MAX_LINE: usize = 80;

/// Renders a graph.
pub fn render(graph: &Graph) -> String {
    let mut out = String::from("flowchart LR\n");
    let mut numbers = HashMap::new();
    for (number, node) in graph.nodes.iter().enumerate() {
        numbers.insert(node.id.as_str(), number);
        let mut lines = vec![node.title.clone()];
        lines.extend(node.details.iter().cloned());
        lines.extend(node.problems.iter().map(|problem| format!("✗ {problem}")));
        let class = match node.problems.is_empty() {
            true => "",
            false => ":::problem",
        };
        let _ = writeln!(out, "  n{number}[\"{}\"]{class}", text(&lines));
    }
    let mut refused = Vec::new();
    let edges = graph.edges.iter().enumerate();
    for (index, edge) in edges {
        let (Some(from), Some(to)) = (
            numbers.get(edge.from.as_str()),
            numbers.get(edge.to.as_str()),
        ) else {
            continue;
        };
        let lines = edge_lines(&edge.label, edge.problem.as_deref());
        let label = match lines.is_empty() {
            true => String::new(),
            false => format!("|\"{}\"|", text(&lines)),
        };
        let arrow = match edge.problem {
            Some(_) => "-.->",
            None => "-->",
        };
        refused.extend(edge.problem.as_ref().map(|_| index.to_string()));
        let _ = writeln!(out, "  n{from} {arrow}{label} n{to}");
    }
    out.push_str("  classDef problem stroke:#d32f2f,color:#d32f2f\n");
    if !refused.is_empty() {
        let _ = writeln!(
            out,
            "  linkStyle {} stroke:#d32f2f,color:#d32f2f",
            refused.join(",")
        );
    }
    out
}

/// Escapes the lines of a label. Mermaid knows entities with `#` in place of `&`.
fn text(lines: &[String]) -> String {
    let mut out = String::new();
    for line in lines {
        if !out.is_empty() {
            out.push_str("<br>");
        }
        for letter in shortened(line, MAX_LINE).chars() {
            match letter {
                '#' | '&' | '<' | '>' | '"' | '`' | '|' | '\\' | ';' | '[' | ']' | '{' | '}' => {
                    let _ = write!(out, "#{};", u32::from(letter));
                }
                '\n' | '\r' => out.push(' '),
                letter => out.push(letter),
            }
        }
    }
    out
}
