//! Durations of settings, in the form `90s`, `30min`, `1h 30min`, `2days`, and pauses that double.
//!
//! Invariant: a duration that was read is not zero, unless it is how long to wait.

use std::time::Duration;

/// The longest time that a program waits for a session, or that a session is kept.
const LONGEST_WAIT: Duration = Duration::from_secs(24 * 3600);

/// The text is not a duration of this setting.
#[derive(Debug, Clone, thiserror::Error, PartialEq, Eq)]
pub enum BadDuration {
    /// The text is not a duration.
    #[error("invalid duration `{0}`; expected e.g. `90s`, `30min` or `2h`")]
    Invalid(String),
    /// A program does not wait for this long.
    #[error("`{0}` is too long; expected at most `24h`")]
    TooLong(String),
}

/// Parses a duration.
///
/// # Errors
/// [`BadDuration`] for anything else, and for a duration of zero.
pub fn duration(text: &str) -> Result<Duration, BadDuration> {
    let read = humantime::parse_duration(text).ok();
    let read = read.filter(|duration| !duration.is_zero());
    read.ok_or_else(|| BadDuration::Invalid(text.to_owned()))
}

/// Parses how long to wait for a session or to keep one: from `0s` to `24h`.
///
/// # Errors
/// [`BadDuration`] for anything else.
pub fn wait(text: &str) -> Result<Duration, BadDuration> {
    match humantime::parse_duration(text) {
        Ok(wait) if wait <= LONGEST_WAIT => Ok(wait),
        Ok(_) => Err(BadDuration::TooLong(text.to_owned())),
        Err(_) => Err(BadDuration::Invalid(text.to_owned())),
    }
}

/// Returns the pause before the next try after this number of further failures: the first pause, doubled for each failure,
/// up to the longest.
#[must_use]
pub fn pause((first, longest): (Duration, Duration), failures: u32) -> Duration {
    first.saturating_mul(1 << failures.min(16)).min(longest)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_grow_up_to_a_bound() {
        let of = |first, longest, failures| {
            let seconds = Duration::from_secs;
            pause((seconds(first), seconds(longest)), failures).as_secs()
        };
        let seconds: Vec<u64> = (0..8).map(|failures| of(1, 60, failures)).collect();
        assert_eq!(seconds, [1, 2, 4, 8, 16, 32, 60, 60]);
        assert_eq!(of(10, 600, 0), 10);
        assert_eq!(of(10, 600, 1), 20);
        assert_eq!(of(10, 600, u32::MAX), 600);
    }

    #[test]
    fn what_people_write_is_read() {
        for (text, seconds) in [
            ("90s", 90.0),
            ("30 min", 1800.0),
            ("1h30min", 5400.0),
            ("1day 2h 3m", 93_780.0),
            ("250ms", 0.25),
        ] {
            assert_eq!(
                duration(text),
                Ok(Duration::from_secs_f64(seconds)),
                "{text}"
            );
        }
    }

    #[test]
    fn what_is_none_is_named() {
        for text in ["", "90", "s", "0s", "-1s", "2 fortnights"] {
            assert_eq!(duration(text), Err(BadDuration::Invalid(text.to_owned())));
        }
        assert_eq!(wait("0s"), Ok(Duration::ZERO));
        assert_eq!(wait("24h"), Ok(LONGEST_WAIT));
        assert_eq!(
            wait("24h 1s"),
            Err(BadDuration::TooLong("24h 1s".to_owned()))
        );
    }
}
