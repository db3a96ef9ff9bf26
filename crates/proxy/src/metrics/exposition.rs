//! Prometheus' text format.

use std::fmt::{Display, Write};

use super::primitives::{BUCKETS, CLASSES, HistogramTotals};
use super::series::{MetricDef, MetricFamily, MetricValue};

/// The text as it grows.
#[derive(Default)]
pub(crate) struct Exposition {
    out: String,
}

impl Exposition {
    /// All of it.
    pub(crate) fn finish(self) -> String {
        self.out
    }

    /// What comes next.
    pub(crate) fn family(&mut self, family: &MetricFamily, kind: &str) {
        let MetricFamily { name, help } = family;
        self.line(format_args!("# HELP {name} {help}"));
        self.line(format_args!("# TYPE {name} {kind}"));
    }

    /// A sample; its labels are written by [`Labels`], more may follow those.
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
        // A string can be written to.
        let _ = writeln!(self.out, "{line}");
    }

    /// Every family of a table, each with the sum of every thing's series. A family without any is left out, and so are histograms and
    /// classes of status of which nothing was seen.
    pub(crate) fn all<'s, S: 's>(
        &mut self,
        table: &[MetricDef<S>],
        things: &[(String, Vec<&'s S>)],
    ) {
        for (family, figure) in table {
            let Some(first) = things.iter().find_map(|(_, series)| series.first()) else {
                return;
            };
            self.family(family, kind(&figure(first)));
            for (labels, series) in things {
                let figures: Vec<MetricValue<'_>> =
                    series.iter().map(|series| figure(series)).collect();
                self.sum(family.name, labels, &figures);
            }
        }
    }

    fn sum(&mut self, name: &str, labels: &str, figures: &[MetricValue<'_>]) {
        let mut number = 0u64;
        let mut codes = [0u64; CLASSES.len()];
        let mut results = [("", 0u64); 2];
        let mut observed = HistogramTotals::default();
        for figure in figures {
            match figure {
                MetricValue::Counter(counter) => number = number.wrapping_add(counter.get()),
                MetricValue::Gauge(gauge) => number += gauge.get(),
                MetricValue::StatusClasses(own) => codes
                    .iter_mut()
                    .zip(own.get())
                    .for_each(|(sum, own)| *sum += own),
                MetricValue::Results(own) => {
                    for (sum, (result, own)) in results.iter_mut().zip(own) {
                        *sum = (result, sum.1 + own.get());
                    }
                }
                MetricValue::Histogram(own) => own.add_to(&mut observed),
            }
        }
        match figures.first() {
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
            Some(MetricValue::Histogram(_)) => self.histogram(name, labels, &observed),
        }
    }

    fn histogram(&mut self, name: &str, labels: &str, observed: &HistogramTotals) {
        if observed.buckets.iter().all(|count| *count == 0) {
            return;
        }
        let bucket = format!("{name}_bucket");
        let ends = BUCKETS.iter().map(|(_, end)| *end).chain(["+Inf"]);
        let mut count = 0;
        for (end, own) in ends.zip(observed.buckets) {
            count += own;
            self.sample(&bucket, labels, Some(("le", end)), count);
        }
        let seconds = observed.nanoseconds as f64 / 1e9;
        self.sample(&format!("{name}_sum"), labels, None, seconds);
        self.sample(&format!("{name}_count"), labels, None, count);
    }
}

/// What a figure is, in Prometheus' words.
pub(crate) fn kind(figure: &MetricValue<'_>) -> &'static str {
    match figure {
        MetricValue::Counter(_) | MetricValue::StatusClasses(_) | MetricValue::Results(_) => {
            "counter"
        }
        MetricValue::Gauge(_) => "gauge",
        MetricValue::Histogram(_) => "histogram",
    }
}

/// Labels, written.
#[derive(Default)]
pub(crate) struct LabelSet(String);

impl LabelSet {
    /// And this one. One without a value is left out: to Prometheus that is the same.
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

    /// As they are written.
    pub(crate) fn finish(self) -> String {
        self.0
    }
}
