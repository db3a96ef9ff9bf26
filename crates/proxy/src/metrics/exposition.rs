//! Prometheus' text exposition format.

use std::fmt::{Display, Write};

use super::primitives::{BUCKETS, CLASSES, HistogramTotals};
use super::series::{MetricDef, MetricFamily, MetricValue};

/// Metrics rendered so far.
#[derive(Default)]
pub(crate) struct Exposition {
    out: String,
}

impl Exposition {
    pub(crate) fn finish(self) -> String {
        self.out
    }

    /// Begins a family with its HELP and TYPE lines.
    pub(crate) fn family(&mut self, family: &MetricFamily, kind: &str) {
        let MetricFamily { name, help } = family;
        self.line(format_args!("# HELP {name} {help}"));
        self.line(format_args!("# TYPE {name} {kind}"));
    }

    /// Adds a sample. `labels` comes from a [`LabelSet`]; `more` is one further label.
    pub(crate) fn sample(
        &mut self,
        name: &str,
        labels: &str,
        more: Option<(&str, &str)>,
        value: impl Display,
    ) {
        let more = more.map(|(key, value)| LabelSet::default().with(key, value).0);
        let comma = if more.is_some() && !labels.is_empty() {
            ","
        } else {
            ""
        };
        let more = more.unwrap_or_default();
        match labels.is_empty() && more.is_empty() {
            true => self.line(format_args!("{name} {value}")),
            false => self.line(format_args!("{name}{{{labels}{comma}{more}}} {value}")),
        }
    }

    fn line(&mut self, line: std::fmt::Arguments<'_>) {
        // Writing to a string can't fail.
        let _ = writeln!(self.out, "{line}");
    }

    /// Adds every family of a table, with one sample per object: the sum of its series. Empty families, histograms and status classes are left out.
    pub(crate) fn add_table<'s, S: 's>(
        &mut self,
        table: &[MetricDef<S>],
        objects: &[(String, Vec<&'s S>)],
    ) {
        for (family, value) in table {
            let Some(first) = objects.iter().find_map(|(_, series)| series.first()) else {
                return;
            };
            self.family(family, kind(&value(first)));
            for (labels, series) in objects {
                let values: Vec<MetricValue<'_>> =
                    series.iter().map(|series| value(series)).collect();
                self.sum(family.name, labels, &values);
            }
        }
    }

    fn sum(&mut self, name: &str, labels: &str, values: &[MetricValue<'_>]) {
        let mut number = 0u64;
        let mut codes = [0u64; CLASSES.len()];
        let mut results = [("", 0u64); 2];
        let mut totals = HistogramTotals::default();
        for value in values {
            match value {
                MetricValue::Counter(counter) => number = number.wrapping_add(counter.get()),
                MetricValue::Gauge(gauge) => number += gauge.get(),
                MetricValue::StatusClasses(counts) => codes
                    .iter_mut()
                    .zip(counts.get())
                    .for_each(|(sum, counts)| *sum += counts),
                MetricValue::Results(counts) => {
                    for (sum, (result, counts)) in results.iter_mut().zip(counts) {
                        *sum = (result, sum.1 + counts.get());
                    }
                }
                MetricValue::Histogram(counts) => counts.add_to(&mut totals),
            }
        }
        match values.first() {
            None => {}
            Some(MetricValue::Counter(_) | MetricValue::Gauge(_)) => {
                self.sample(name, labels, None, number)
            }
            Some(MetricValue::StatusClasses(_)) => {
                for (class, count) in CLASSES.iter().zip(codes).filter(|(_, count)| *count > 0) {
                    self.sample(name, labels, Some(("code", class)), count);
                }
            }
            Some(MetricValue::Results(_)) => {
                for (result, count) in results {
                    self.sample(name, labels, Some(("result", result)), count);
                }
            }
            Some(MetricValue::Histogram(_)) => self.histogram(name, labels, &totals),
        }
    }

    fn histogram(&mut self, name: &str, labels: &str, totals: &HistogramTotals) {
        if totals.buckets.iter().all(|count| *count == 0) {
            return;
        }
        let bucket = format!("{name}_bucket");
        let ends = BUCKETS.iter().map(|(_, end)| *end).chain(["+Inf"]);
        let mut count = 0;
        for (end, counts) in ends.zip(totals.buckets) {
            count += counts;
            self.sample(&bucket, labels, Some(("le", end)), count);
        }
        let seconds = totals.nanoseconds as f64 / 1e9;
        self.sample(&format!("{name}_sum"), labels, None, seconds);
        self.sample(&format!("{name}_count"), labels, None, count);
    }
}

/// Returns the type of a metric for the TYPE line.
pub(crate) fn kind(value: &MetricValue<'_>) -> &'static str {
    match value {
        MetricValue::Counter(_) | MetricValue::StatusClasses(_) | MetricValue::Results(_) => {
            "counter"
        }
        MetricValue::Gauge(_) => "gauge",
        MetricValue::Histogram(_) => "histogram",
    }
}

/// Rendered labels.
#[derive(Default)]
pub(crate) struct LabelSet(String);

impl LabelSet {
    /// Adds a label unless its value is empty, which to Prometheus is the same as no label.
    pub(crate) fn with(mut self, key: &str, value: impl Display) -> Self {
        let value = value.to_string();
        if value.is_empty() {
            return self;
        }
        if !self.0.is_empty() {
            self.0.push(',');
        }
        self.0.push_str(key);
        self.0.push_str("=\"");
        for c in value.chars() {
            match c {
                '\\' => self.0.push_str("\\\\"),
                '"' => self.0.push_str("\\\""),
                '\n' => self.0.push_str("\\n"),
                c => self.0.push(c),
            }
        }
        self.0.push('"');
        self
    }

    pub(crate) fn finish(self) -> String {
        self.0
    }
}
