//! Writes metrics in Prometheus' text format, version 0.0.4.
//!
//! This module counts nothing. Invariant: every name has the server's prefix. A family is written once,
//! with its help and type before its samples.

use std::fmt::Write;

/// The media type of the format.
pub const CONTENT_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

/// The type of a metric.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// The value only grows while the process lives. The name ends in `_total`.
    Counter,
    /// The value can grow and shrink.
    Gauge,
}

/// The text while it is written.
#[derive(Debug)]
pub struct Exposition {
    prefix: &'static str,
    text: String,
}

/// A family whose samples are being written.
#[derive(Debug)]
pub struct Family<'a> {
    text: &'a mut String,
    name: String,
}

impl Exposition {
    /// Starts a text whose names begin with `prefix` and an underscore.
    #[must_use]
    pub fn new(prefix: &'static str) -> Exposition {
        Exposition {
            prefix,
            text: String::new(),
        }
    }

    /// Begins a family. `help` is a sentence without its full stop.
    pub fn family(&mut self, kind: Kind, name: &str, help: &str) -> Family<'_> {
        let name = format!("{}_{name}", self.prefix);
        let kind = match kind {
            Kind::Counter => "counter",
            Kind::Gauge => "gauge",
        };
        // Writing to a string cannot fail, here and below.
        let _ = write!(self.text, "# HELP {name} {help}.\n# TYPE {name} {kind}\n");
        Family {
            text: &mut self.text,
            name,
        }
    }

    /// A counter without labels.
    pub fn counter(&mut self, name: &str, help: &str, value: u64) {
        self.family(Kind::Counter, name, help).sample(&[], value);
    }

    /// A gauge without labels.
    pub fn gauge(&mut self, name: &str, help: &str, value: u64) {
        self.family(Kind::Gauge, name, help).sample(&[], value);
    }

    /// The complete text.
    #[must_use]
    pub fn finish(self) -> String {
        self.text
    }
}

impl Family<'_> {
    /// Writes a sample with its labels.
    pub fn sample(&mut self, labels: &[(&str, &str)], value: u64) -> &mut Self {
        self.text.push_str(&self.name);
        for (n, (label, of)) in labels.iter().enumerate() {
            let before = if n == 0 { '{' } else { ',' };
            let _ = write!(self.text, "{before}{label}=\"{}\"", escaped(of));
        }
        let after = if labels.is_empty() { "" } else { "}" };
        let _ = writeln!(self.text, "{after} {value}");
        self
    }
}

fn escaped(value: &str) -> String {
    let mut escaped = String::with_capacity(value.len());
    for c in value.chars() {
        match c {
            '\\' => escaped.push_str("\\\\"),
            '"' => escaped.push_str("\\\""),
            '\n' => escaped.push_str("\\n"),
            c => escaped.push(c),
        }
    }
    escaped
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_family_is_told_with_its_samples() {
        let mut text = Exposition::new("causeway");
        text.gauge("sessions", "Sessions now", 3);
        text.family(Kind::Counter, "bytes_total", "Bytes")
            .sample(&[("to", "client"), ("node", "a\"b\\c\nd")], u64::MAX)
            .sample(&[("to", "node"), ("node", "")], 0);
        let expected = "\
            # HELP causeway_sessions Sessions now.\n\
            # TYPE causeway_sessions gauge\n\
            causeway_sessions 3\n\
            # HELP causeway_bytes_total Bytes.\n\
            # TYPE causeway_bytes_total counter\n\
            causeway_bytes_total{to=\"client\",node=\"a\\\"b\\\\c\\nd\"} 18446744073709551615\n\
            causeway_bytes_total{to=\"node\",node=\"\"} 0\n";
        assert_eq!(text.finish(), expected);
    }
}
