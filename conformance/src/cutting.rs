//! How a run's connections are broken: the options `--cut` and `--cut-every`, and words for sizes and times. How many
//! were broken by forwarders that have ended.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use causeway_cutter::{Counts, Plan};

/// Silence in place of some cuts: longer than the heartbeat limit of 4 s.
const SILENCE: Duration = Duration::from_secs(5);

static CUTS: AtomicU64 = AtomicU64::new(0);
static SILENCES: AtomicU64 = AtomicU64::new(0);

/// Adds what a forwarder has done.
pub(crate) fn add(counts: Counts) {
    CUTS.fetch_add(counts.cuts, Ordering::Relaxed);
    SILENCES.fetch_add(counts.silences, Ordering::Relaxed);
}

/// Returns what all forwarders have done that have ended, for people.
pub(crate) fn summary() -> String {
    let [cuts, silences] = [&CUTS, &SILENCES].map(|count| count.load(Ordering::Relaxed));
    format!("{cuts} cuts, {silences} of them silences")
}

/// Returns the plan that the options ask for, if they ask for one.
pub(crate) fn plan(bytes: Option<u64>, every: Option<Duration>, seed: u64) -> Option<Plan> {
    let by_bytes = bytes.map(|mean| Plan::Bytes {
        mean,
        seed,
        silence: SILENCE,
    });
    by_bytes.or(every.map(Plan::Every))
}

/// Reads a size such as `4MiB`, `64KiB` or `1000`.
pub(crate) fn size(text: &str) -> Result<u64, String> {
    let wrong = || format!("invalid size `{text}`; expected e.g. `4MiB`");
    let (number, unit) = split(text);
    let unit = match unit {
        "" | "B" => 1,
        "KiB" => 1 << 10,
        "MiB" => 1 << 20,
        "GiB" => 1 << 30,
        _ => return Err(wrong()),
    };
    let size = number.parse::<u64>().ok().and_then(|n| n.checked_mul(unit));
    size.filter(|size| *size > 0).ok_or_else(wrong)
}

/// Reads a time such as `2s` or `400ms`.
pub(crate) fn duration(text: &str) -> Result<Duration, String> {
    let wrong = || format!("invalid duration `{text}`; expected e.g. `2s` or `400ms`");
    let (number, unit) = split(text);
    let unit = match unit {
        "ms" => 1,
        "s" => 1000,
        "m" => 60_000,
        _ => return Err(wrong()),
    };
    let time = number.parse::<u64>().ok().and_then(|n| n.checked_mul(unit));
    let time = time.filter(|time| *time > 0).ok_or_else(wrong)?;
    Ok(Duration::from_millis(time))
}

fn split(text: &str) -> (&str, &str) {
    let end = text.find(|letter: char| !letter.is_ascii_digit());
    text.split_at(end.unwrap_or(text.len()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_and_times_have_units() {
        assert_eq!(size("4MiB"), Ok(4 << 20));
        assert_eq!(size("12"), Ok(12));
        assert_eq!(duration("400ms"), Ok(Duration::from_millis(400)));
        assert_eq!(duration("2s"), Ok(Duration::from_secs(2)));
        for wrong in ["", "4", "s", "-1s", "4x", "0s"] {
            assert!(duration(wrong).is_err(), "{wrong}");
        }
        assert!(size("0").is_err() && size("4mb").is_err());
    }
}
