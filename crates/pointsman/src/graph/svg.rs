//! The graph as an SVG picture, which every browser displays. It has no scripts, no links and no external resources.

use std::fmt::Write;

use pointsman_control::graph::{Graph, Layer};

use super::layout::{CHARACTER, LINE, PADDING, arrange};

/// Distance between an edge and its label.
const LABEL_GAP: f64 = 4.0;

/// Colors and fonts.
const STYLE: &str = "text{font:11px ui-monospace,Menlo,Consolas,'DejaVu Sans Mono',monospace;fill:#1f2328}
rect{stroke:#57606a;fill:#fff}.parent{fill:#ddf4ff}.frontend{fill:#f6f8fa}.backend{fill:#dafbe1}
path{stroke:#57606a;fill:none}.label{fill:#57606a;font-size:11px}.title{font-weight:bold}
.bad rect{stroke:#cf222e;stroke-width:2}text.bad,.bad text.label{fill:#cf222e}.bad path{stroke:#cf222e;stroke-dasharray:5 3}
";

/// Renders a graph.
pub fn render(graph: &Graph) -> String {
    let picture = arrange(graph);
    let empty = graph.nodes.is_empty();
    let (width, height) = match empty {
        true => (260.0, 48.0),
        false => (picture.width, picture.height),
    };
    let mut out = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{width:.0}\" height=\"{height:.0}\" viewBox=\"0 0 {width:.0} {height:.0}\" role=\"img\">\n<title>Topology</title>\n<style>{STYLE}</style>\n"
    );
    out.push_str("<defs><marker id=\"arrow\" viewBox=\"0 0 8 8\" refX=\"8\" refY=\"4\" markerWidth=\"7\" markerHeight=\"7\" orient=\"auto\"><path d=\"M0 0L8 4L0 8\"/></marker></defs>\n");
    let _ = writeln!(
        out,
        "<rect width=\"{width:.0}\" height=\"{height:.0}\" style=\"stroke:none\"/>"
    );
    if empty {
        out.push_str("<text x=\"16\" y=\"28\">no Gateways, routes or backends</text>\n");
    }
    for arrow in &picture.arrows {
        let ((x, y), (to_x, to_y)) = (arrow.start, arrow.end);
        // The edge is straight below its label and bends after it.
        let longest = arrow.lines.iter().map(|line| line.chars().count()).max();
        let bend = (x + longest.unwrap_or_default() as f64 * CHARACTER + 2.0 * LABEL_GAP)
            .min(to_x - 20.0)
            .max(x);
        let middle = (bend + to_x) / 2.0;
        let class = if arrow.is_problem {
            " class=\"bad\""
        } else {
            ""
        };
        let _ = write!(
            out,
            "<g{class}><path d=\"M{x:.1} {y:.1}H{bend:.1}C{middle:.1} {y:.1} {middle:.1} {to_y:.1} {to_x:.1} {to_y:.1}\" marker-end=\"url(#arrow)\"/>"
        );
        for (index, line) in arrow.lines.iter().rev().enumerate() {
            let y = y - LABEL_GAP - LINE * index as f64;
            let (x, text) = (x + LABEL_GAP, escaped(line));
            let _ = write!(
                out,
                "<text class=\"label\" x=\"{x:.1}\" y=\"{y:.1}\">{text}</text>"
            );
        }
        out.push_str("</g>\n");
    }
    for own in &picture.boxes {
        let layer = match own.layer {
            Layer::Parent => "parent",
            Layer::Frontend => "frontend",
            Layer::Route => "route",
            Layer::Backend => "backend",
        };
        let class = if own.is_problem { " class=\"bad\"" } else { "" };
        let (x, y, width, height) = (own.x, own.y, own.width, own.height);
        let _ = write!(
            out,
            "<g{class}><rect class=\"{layer}\" x=\"{x:.1}\" y=\"{y:.1}\" width=\"{width:.1}\" height=\"{height:.1}\" rx=\"5\"/>"
        );
        for (index, (line, is_problem)) in own.lines.iter().enumerate() {
            let class = match (index, is_problem) {
                (_, true) => " class=\"bad\"",
                (0, false) => " class=\"title\"",
                _ => "",
            };
            let (x, y) = (x + PADDING, y + PADDING + LINE * (index as f64 + 0.75));
            let text = escaped(line);
            let _ = write!(out, "<text{class} x=\"{x:.1}\" y=\"{y:.1}\">{text}</text>");
        }
        out.push_str("</g>\n");
    }
    out.push_str("</svg>\n");
    out
}

/// Escapes text, and removes characters that XML does not allow.
fn escaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for letter in text.chars() {
        match letter {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            letter if letter.is_control() || matches!(letter, '\u{fffe}' | '\u{ffff}') => {
                out.push('\u{fffd}');
            }
            letter => out.push(letter),
        }
    }
    out
}
