//! The command `status`: lists the proxies that are connected to a controller and to its replicas.

use std::process::ExitCode;
use std::time::Duration;

use anyhow::Result;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::cli::{Format, StatusArgs};
use crate::output::{self, Paint, Style};

/// Time limit for a request.
const TIMEOUT: Duration = Duration::from_secs(10);

/// Maximum width of a column. Longer texts are not truncated, but do not widen the column.
const MAX_WIDTH: usize = 60;

/// The page `/proxies`. Fields that this version does not know are printed as JSON and YAML.
#[derive(Deserialize, Serialize)]
struct ProxiesPage {
    /// Reason why proxies of other controllers may be missing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    incomplete: Option<String>,
    #[serde(flatten)]
    more: serde_json::Map<String, Value>,
    proxies: Vec<Value>,
}

/// A connected proxy, as far as the table shows it.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct ProxyRow {
    name: String,
    /// The controller that it is connected to. Earlier versions do not report it.
    #[serde(default)]
    controller: String,
    identities: Vec<String>,
    address: String,
    software: String,
    version: Option<u64>,
    target_version: u64,
    lag_seconds: Option<f64>,
    resources: usize,
    last_error: Option<String>,
}

/// Runs `status`.
pub fn run(arguments: &StatusArgs) -> Result<ExitCode> {
    let page: ProxiesPage = arguments.server.json("/proxies", TIMEOUT)?;
    if let Some(why) = &page.incomplete {
        output::print_error(&format!("pointsman: the list is incomplete: {why}"));
    }
    match arguments.output {
        Format::Text => {
            let rows = page.proxies.into_iter().map(serde_json::from_value);
            let rows: Vec<ProxyRow> = rows.collect::<Result<_, _>>()?;
            output::print(&table(&rows, &Paint::new()))?;
        }
        format => output::structured(format, &page)?,
    }
    Ok(ExitCode::SUCCESS)
}

const HEADINGS: [&str; 9] = [
    "NAME",
    "CONTROLLER",
    "IDENTITY",
    "ADDRESS",
    "SOFTWARE",
    "VERSION",
    "LAG",
    "RESOURCES",
    "LAST ERROR",
];

fn table(proxies: &[ProxyRow], paint: &Paint) -> String {
    if proxies.is_empty() {
        return "no proxy is connected\n".to_owned();
    }
    let rows: Vec<[String; 9]> = proxies.iter().map(cells).collect();
    // With one controller, the column has no information.
    let first = &proxies[0].controller;
    let has_several = proxies.iter().any(|proxy| proxy.controller != *first);
    let is_shown = |column: usize| HEADINGS[column] != "CONTROLLER" || has_several;
    let width = |column: usize| {
        let cells = rows.iter().map(|row| row[column].chars().count());
        let widest = cells.filter(|width| *width <= MAX_WIDTH).max();
        widest.unwrap_or(0).max(HEADINGS[column].len())
    };
    let widths: [usize; 9] = std::array::from_fn(width);
    let line = |cells: &[String; 9]| {
        let padded = (0..cells.len())
            .filter(|column| is_shown(*column))
            .map(|column| format!("{:<width$}", cells[column], width = widths[column]));
        padded.collect::<Vec<_>>().join("  ").trim_end().to_owned()
    };
    let mut out = paint.paint(Style::Strong, &line(&HEADINGS.map(str::to_owned))) + "\n";
    for (row, proxy) in rows.iter().zip(proxies) {
        let style = match (&proxy.last_error, proxy.lag_seconds) {
            (Some(_), _) => Some(Style::Bad),
            (None, Some(_)) => Some(Style::Warn),
            (None, None) => None,
        };
        let text = line(row);
        out += &style.map_or(text.clone(), |style| paint.paint(style, &text));
        out.push('\n');
    }
    out
}

fn cells(proxy: &ProxyRow) -> [String; 9] {
    let version = proxy
        .version
        .map_or("none".to_owned(), |version| version.to_string());
    [
        proxy.name.clone(),
        proxy.controller.clone(),
        match proxy.identities.is_empty() {
            true => "-".to_owned(),
            false => proxy.identities.join(","),
        },
        proxy.address.clone(),
        proxy.software.clone(),
        match proxy.lag_seconds {
            Some(_) => format!("{version} of {}", proxy.target_version),
            None => version,
        },
        proxy
            .lag_seconds
            .map_or("-".to_owned(), |lag| format!("{lag:.1}s")),
        proxy.resources.to_string(),
        // An error may contain text of other programs, with several lines.
        proxy
            .last_error
            .as_deref()
            .unwrap_or("-")
            .replace('\n', " "),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn proxy(name: &str) -> ProxyRow {
        ProxyRow {
            name: name.to_owned(),
            controller: "one".to_owned(),
            identities: Vec::new(),
            address: "127.0.0.1:40000".to_owned(),
            software: "0.1.0".to_owned(),
            version: Some(12),
            target_version: 12,
            lag_seconds: None,
            resources: 7,
            last_error: None,
        }
    }

    #[test]
    fn the_table_has_a_line_for_each_proxy() {
        let lagging = ProxyRow {
            identities: vec!["edge-2.example".to_owned()],
            version: Some(9),
            lag_seconds: Some(3.25),
            last_error: Some("rule/x: unknown\nfilter".to_owned()),
            ..proxy("edge-2")
        };
        let text = table(&[proxy("edge-1"), lagging], &Paint::plain());
        let expected = "\
NAME    IDENTITY        ADDRESS          SOFTWARE  VERSION  LAG   RESOURCES  LAST ERROR
edge-1  -               127.0.0.1:40000  0.1.0     12       -     7          -
edge-2  edge-2.example  127.0.0.1:40000  0.1.0     9 of 12  3.2s  7          rule/x: unknown filter
";
        assert_eq!(text, expected);
        assert_eq!(table(&[], &Paint::plain()), "no proxy is connected\n");
    }

    #[test]
    fn with_several_controllers_the_table_has_that_of_each_proxy() {
        let elsewhere = ProxyRow {
            controller: "other".to_owned(),
            ..proxy("edge-2")
        };
        let text = table(&[proxy("edge-1"), elsewhere], &Paint::plain());
        let expected = "\
NAME    CONTROLLER  IDENTITY  ADDRESS          SOFTWARE  VERSION  LAG  RESOURCES  LAST ERROR
edge-1  one         -         127.0.0.1:40000  0.1.0     12       -    7          -
edge-2  other       -         127.0.0.1:40000  0.1.0     12       -    7          -
";
        assert_eq!(text, expected);
    }
}
