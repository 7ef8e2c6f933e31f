//! Durations of settings, in the form `90s`, `30min`, `1h 30min`, `2days`.
//!
//! Invariant: a duration that was read is not zero, unless the setting allows that.

use std::time::Duration;

/// The text is not a duration.
#[derive(Debug, Clone, thiserror::Error, PartialEq, Eq)]
#[error("invalid duration `{0}`; expected e.g. `90s`, `30min` or `2h`")]
pub struct BadDuration(String);

/// Parses a duration.
///
/// # Errors
/// [`BadDuration`] for anything else, and for a duration of zero.
pub fn duration(text: &str) -> Result<Duration, BadDuration> {
    let read = humantime::parse_duration(text).ok();
    let read = read.filter(|duration| !duration.is_zero());
    read.ok_or_else(|| BadDuration(text.to_owned()))
}

/// Parses a duration that may be zero.
///
/// # Errors
/// [`BadDuration`] for anything else.
pub fn duration_or_zero(text: &str) -> Result<Duration, BadDuration> {
    humantime::parse_duration(text).map_err(|_| BadDuration(text.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

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
            assert_eq!(duration(text), Err(BadDuration(text.to_owned())));
        }
        assert_eq!(duration_or_zero("0s"), Ok(Duration::ZERO));
    }
}
