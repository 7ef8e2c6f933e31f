//! Metrics in Prometheus' text format, version 0.0.4, which the crate `prometheus-client` writes.
//!
//! This module counts nothing: a server fills a [`Registry`] for each request. Invariant: no label needs
//! escaping, because `prometheus-client` escapes none.

use std::collections::BTreeMap;
use std::fmt;
use std::time::{Duration, SystemTime};

use causeway_security::OwnCertificate;
use prometheus_client::encoding::{EncodeLabelSet, EncodeMetric, MetricEncoder, text};
pub use prometheus_client::metrics::gauge::ConstGauge;
pub use prometheus_client::metrics::histogram::Histogram;
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

/// A histogram of durations in seconds, from `10^first` to `10^last`, with the bounds 1 and 3 of each power of ten.
/// Clones share the counts.
#[must_use]
pub fn durations(first: i32, last: i32) -> Histogram {
    let each = (first..last).flat_map(|power| [1.0, 3.0].map(|digit| at_power(digit, power)));
    Histogram::new(each.chain([at_power(1.0, last)]))
}

/// `digit × 10^power`, as near as can be: powers below 1 are divided by, so that 0.003 is not 0.0030000000000000001.
fn at_power(digit: f64, power: i32) -> f64 {
    match power < 0 {
        true => digit / 10_f64.powi(-power),
        false => digit * 10_f64.powi(power),
    }
}

/// The samples of counters by reason.
pub type ByReason = Samples<[(&'static str, &'static str); 1], Total>;

/// The samples of [`Reasons`](crate::counts::Reasons).
#[must_use]
pub fn by_reason(counts: BTreeMap<&'static str, u64>) -> ByReason {
    let counts = counts.into_iter();
    counts
        .map(|(reason, count)| ([("reason", reason)], Total(count)))
        .collect()
}

/// Adds when a server's own certificate expires. Without a readable certificate, nothing is added.
pub fn certificate_end(certificate: Option<&OwnCertificate>, registry: &mut Registry) {
    let end = certificate.and_then(OwnCertificate::end);
    let since = end.and_then(|end| end.duration_since(SystemTime::UNIX_EPOCH).ok());
    if let Some(since) = since {
        registry.register(
            "certificate_expiry_timestamp_seconds",
            "When the server's own certificate expires, in seconds since 1970",
            ConstGauge::new(since.as_secs()),
        );
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
    fn durations_are_counted_in_buckets_of_seconds() {
        let mut registry = Registry::with_prefix("causeway");
        let waits = durations(-2, 0);
        let samples = Samples::from_iter([([("store", "file")], waits.clone())]);
        registry.register("wait_seconds", "Waits", samples);
        waits.observe(0.03);
        waits.observe(7.5);
        let expected = "\
            # HELP causeway_wait_seconds Waits.\n\
            # TYPE causeway_wait_seconds histogram\n\
            causeway_wait_seconds_sum{store=\"file\"} 7.53\n\
            causeway_wait_seconds_count{store=\"file\"} 2\n\
            causeway_wait_seconds_bucket{le=\"0.01\",store=\"file\"} 0\n\
            causeway_wait_seconds_bucket{le=\"0.03\",store=\"file\"} 1\n\
            causeway_wait_seconds_bucket{le=\"0.1\",store=\"file\"} 1\n\
            causeway_wait_seconds_bucket{le=\"0.3\",store=\"file\"} 1\n\
            causeway_wait_seconds_bucket{le=\"1.0\",store=\"file\"} 1\n\
            causeway_wait_seconds_bucket{le=\"+Inf\",store=\"file\"} 2\n";
        assert_eq!(written(&registry), expected);
    }

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
