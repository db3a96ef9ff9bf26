//! Metrics of a control plane in Prometheus' text exposition format.

use std::fmt::{Display, Write};

/// Metrics rendered so far.
#[derive(Debug, Default)]
pub struct Exposition {
    out: String,
}

impl Exposition {
    /// Returns the text.
    pub fn finish(self) -> String {
        self.out
    }

    /// Adds a counter without labels.
    pub fn counter(&mut self, name: &str, help: &str, value: impl Display) {
        self.family(name, help, "counter");
        self.sample(name, None, value);
    }

    /// Adds a gauge without labels.
    pub fn gauge(&mut self, name: &str, help: &str, value: impl Display) {
        self.family(name, help, "gauge");
        self.sample(name, None, value);
    }

    /// Begins a family whose samples follow.
    pub fn family(&mut self, name: &str, help: &str, kind: &str) {
        self.line(format_args!("# HELP {name} {help}"));
        self.line(format_args!("# TYPE {name} {kind}"));
    }

    /// Adds a sample, with at most one label. The label's value must not need escapes.
    pub fn sample(&mut self, name: &str, label: Option<(&str, &str)>, value: impl Display) {
        match label {
            Some((label, text)) => self.line(format_args!("{name}{{{label}=\"{text}\"}} {value}")),
            None => self.line(format_args!("{name} {value}")),
        }
    }

    /// Adds a histogram: the upper bounds of its buckets, the number of values in each bucket (not cumulative), and the number and sum of all values.
    pub fn histogram(
        &mut self,
        name: &str,
        help: &str,
        buckets: impl IntoIterator<Item = (f64, u64)>,
        total: (u64, f64),
    ) {
        self.family(name, help, "histogram");
        let mut cumulative = 0;
        for (bound, count) in buckets {
            cumulative += count;
            self.line(format_args!("{name}_bucket{{le=\"{bound}\"}} {cumulative}"));
        }
        let (total, sum) = total;
        self.line(format_args!("{name}_bucket{{le=\"+Inf\"}} {total}"));
        self.line(format_args!("{name}_sum {sum}"));
        self.line(format_args!("{name}_count {total}"));
    }

    fn line(&mut self, line: std::fmt::Arguments<'_>) {
        // Writing to a string can't fail.
        let _ = writeln!(self.out, "{line}");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_family_has_its_help_and_type_and_buckets_are_cumulative() {
        let mut metrics = Exposition::default();
        metrics.gauge("a", "One.", 1.5);
        metrics.family("b_total", "Two.", "counter");
        metrics.sample("b_total", Some(("kind", "Pod")), 2);
        metrics.histogram("c_seconds", "Three.", [(0.5, 1), (1.0, 2)], (7, 9.25));
        let expected = "# HELP a One.
# TYPE a gauge
a 1.5
# HELP b_total Two.
# TYPE b_total counter
b_total{kind=\"Pod\"} 2
# HELP c_seconds Three.
# TYPE c_seconds histogram
c_seconds_bucket{le=\"0.5\"} 1
c_seconds_bucket{le=\"1\"} 3
c_seconds_bucket{le=\"+Inf\"} 7
c_seconds_sum 9.25
c_seconds_count 7
";
        assert_eq!(metrics.finish(), expected);
    }
}
