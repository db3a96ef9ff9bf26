//! The command `graph`: the topology as a picture.

mod dot;
mod layout;
mod mermaid;
mod svg;

use std::process::ExitCode;

use anyhow::{Result, bail};
use pointsman_control::graph::{Graph, GraphFilter, filter, graph};
use pointsman_resources::Severity;

use crate::cli::{Format, GraphArgs, GraphFormat};
use crate::input::{self, ReportScope};
use crate::output;

/// Runs `graph`.
pub fn run(arguments: &GraphArgs) -> Result<ExitCode> {
    let (loaded, scope) = input::load(&arguments.sources())?;
    let findings = loaded.objects.findings.iter();
    let errors = findings.filter(|finding| finding.severity == Severity::Error);
    let mut unreadable = false;
    for error in errors {
        output::print_error(&error.to_string());
        unreadable = true;
    }
    let namespace = match scope {
        ReportScope::Namespace(namespace) => Some(namespace),
        ReportScope::All => arguments.namespace.clone(),
    };
    let selection = GraphFilter {
        namespace,
        name: arguments.name.clone(),
    };
    let graph = filter(graph(&loaded.binder, &loaded.tables), &selection);
    if let (true, Some(name)) = (graph.nodes.is_empty(), &arguments.name) {
        bail!("no Gateway, route or other object in the graph is named `{name}`");
    }
    match arguments.output {
        GraphFormat::Json => output::structured(Format::Json, &graph)?,
        format => output::print(&render(&graph, format))?,
    }
    Ok(match unreadable {
        true => ExitCode::from(2),
        false => ExitCode::SUCCESS,
    })
}

fn render(graph: &Graph, format: GraphFormat) -> String {
    match format {
        GraphFormat::Dot => dot::render(graph),
        GraphFormat::Mermaid => mermaid::render(graph),
        GraphFormat::Svg | GraphFormat::Json => svg::render(graph),
    }
}

/// Returns the lines of an edge's label.
fn edge_lines(label: &str, problem: Option<&str>) -> Vec<String> {
    let label = Some(label.to_owned()).filter(|label| !label.is_empty());
    let problem = problem.map(|problem| format!("✗ {problem}"));
    label.into_iter().chain(problem).collect()
}

/// Shortens a text, which is in the JSON output in full.
fn shortened(text: &str, length: usize) -> String {
    match text.char_indices().nth(length) {
        Some((at, _)) => format!("{}…", text[..at].trim_end()),
        None => text.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use pointsman_control::graph::{Edge, Layer, Node};

    use super::*;

    /// A graph with a title, a detail and an edge that would end a text or an element if they were not escaped.
    fn hostile() -> Graph {
        let node = |id: &str, layer| Node {
            id: id.to_owned(),
            layer,
            namespace: "a".to_owned(),
            name: "b".to_owned(),
            title: format!("<script>alert(\"{id}\")</script> & ]]> `x` \\"),
            details: vec!["\"]; b[\"".to_owned()],
            problems: Vec::new(),
        };
        Graph {
            nodes: vec![node("one", Layer::Parent), node("two", Layer::Route)],
            edges: vec![Edge {
                from: "one".to_owned(),
                to: "two".to_owned(),
                label: "\"|</text>\\".to_owned(),
                problem: None,
            }],
        }
    }

    #[test]
    fn names_of_objects_are_text_in_every_format() {
        let svg = svg::render(&hostile());
        assert!(
            !svg.contains("<script") && !svg.contains("\"|</text>"),
            "{svg}"
        );
        assert!(
            svg.contains("&lt;script&gt;alert(&quot;one&quot;)"),
            "{svg}"
        );
        let dot = dot::render(&hostile());
        assert!(
            dot.contains(r#"alert(\"one\")"#) && dot.contains(r"`x` \\"),
            "{dot}"
        );
        let mermaid = mermaid::render(&hostile());
        assert!(
            !mermaid.contains("<script") && !mermaid.contains("\"]; b"),
            "{mermaid}"
        );
    }

    #[test]
    fn a_long_text_is_shortened_at_a_character() {
        assert_eq!(shortened("äöü", 3), "äöü");
        assert_eq!(shortened("äöüß", 3), "äöü…");
    }
}
