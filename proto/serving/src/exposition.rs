//! Metrics in Prometheus' text format, version 0.0.4, which the crate `prometheus-client` writes.
//!
//! This module counts nothing: a server fills a [`Registry`] for each request. Invariant: no label needs
//! escaping, because `prometheus-client` escapes none.

use std::fmt;
use std::time::Duration;

use prometheus_client::encoding::{EncodeLabelSet, EncodeMetric, MetricEncoder, text};
pub use prometheus_client::metrics::gauge::ConstGauge;
use prometheus_client::metrics::{MetricType, TypedMetric};
pub use prometheus_client::registry::Registry;

/// The media type of the format.
pub(crate) const CONTENT_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

/// A counter: the value only grows while the process lives. Its name ends in `_total`.
///
/// The crate's own counter is OpenMetrics': it has that ending in its samples, and not in its name. Readers
/// of version 0.0.4 would not find its type.
#[derive(Debug)]
pub struct Total(pub u64);

impl TypedMetric for Total {
    const TYPE: MetricType = MetricType::Counter;
}

impl EncodeMetric for Total {
    fn encode(&self, mut encoder: MetricEncoder<'_>) -> fmt::Result {
        // A gauge is written by its name alone.
        encoder.encode_gauge(&self.0)
    }

    fn metric_type(&self) -> MetricType {
        Total::TYPE
    }
}

/// A counter in seconds, with a fraction.
#[derive(Debug)]
pub struct Seconds(pub Duration);

impl TypedMetric for Seconds {
    const TYPE: MetricType = MetricType::Counter;
}

impl EncodeMetric for Seconds {
    fn encode(&self, mut encoder: MetricEncoder<'_>) -> fmt::Result {
        encoder.encode_gauge(&self.0.as_secs_f64())
    }

    fn metric_type(&self) -> MetricType {
        Seconds::TYPE
    }
}

/// The labelled samples of one name, in their order. The crate's own family would change the order with
/// each request.
#[derive(Debug)]
pub struct Samples<L, M>(Vec<(L, M)>);

impl<L, M> FromIterator<(L, M)> for Samples<L, M> {
    fn from_iter<I: IntoIterator<Item = (L, M)>>(samples: I) -> Samples<L, M> {
        Samples(samples.into_iter().collect())
    }
}

impl<L: EncodeLabelSet, M: EncodeMetric + TypedMetric> EncodeMetric for Samples<L, M> {
    fn encode(&self, mut encoder: MetricEncoder<'_>) -> fmt::Result {
        for (labels, metric) in &self.0 {
            metric.encode(encoder.encode_family(labels)?)?;
        }
        Ok(())
    }

    fn metric_type(&self) -> MetricType {
        M::TYPE
    }
}

/// The complete text. OpenMetrics would end it with a mark.
pub(crate) fn written(registry: &Registry) -> String {
    let mut text = String::new();
    // Writing to a string cannot fail, and text can express all values.
    let _ = text::encode_registry(&mut text, registry);
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_family_is_told_with_its_samples_in_their_order() {
        let mut registry = Registry::with_prefix("causeway");
        registry.register("sessions", "Sessions now", ConstGauge::new(3_u64));
        let sample = |to, node, value: u64| ([("to", to), ("node", node)], Total(value));
        let samples = [sample("client", "b", u64::MAX), sample("node", "", 0)];
        registry.register("bytes_total", "Bytes", Samples::from_iter(samples));
        let busy = Seconds(Duration::from_millis(1500));
        registry.register("busy_seconds_total", "Busy", busy);
        let expected = "\
            # HELP causeway_sessions Sessions now.\n\
            # TYPE causeway_sessions gauge\n\
            causeway_sessions 3\n\
            # HELP causeway_bytes_total Bytes.\n\
            # TYPE causeway_bytes_total counter\n\
            causeway_bytes_total{to=\"client\",node=\"b\"} 18446744073709551615\n\
            causeway_bytes_total{to=\"node\",node=\"\"} 0\n\
            # HELP causeway_busy_seconds_total Busy.\n\
            # TYPE causeway_busy_seconds_total counter\n\
            causeway_busy_seconds_total 1.5\n";
        assert_eq!(written(&registry), expected);
    }
}
