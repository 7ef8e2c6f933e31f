//! Rates in the form `900 Mbit/s`, `100 MB/s`.
//!
//! Invariant: a rate is at least 80 kbit/s, so that a typing error cannot stop all transfers.
#![forbid(unsafe_code)]

/// The smallest rate, in bytes a second.
const LEAST: u64 = 10_000;

/// The reason why a text is not a rate.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum BadRate {
    /// The text has another form.
    #[error("invalid rate `{0}`; expected e.g. `900 Mbit/s` or `100 MB/s`")]
    Spelling(String),
    /// The rate is a typing error, most likely.
    #[error("rate `{0}` is too low; expected at least `80 kbit/s`")]
    Little(String),
}

/// Parses a rate. Returns bytes a second.
///
/// # Errors
/// [`BadRate`] says what is wrong.
pub fn read(text: &str) -> Result<u64, BadRate> {
    let spelling = || BadRate::Spelling(text.to_owned());
    let trimmed = text.trim();
    let unit = trimmed
        .find(|c: char| c.is_ascii_alphabetic())
        .ok_or_else(spelling)?;
    let (number, unit) = trimmed.split_at(unit);
    let number = number.trim();
    let plain = number.bytes().all(|c| c.is_ascii_digit() || c == b'.');
    let number: f64 = number.parse().map_err(|_| spelling())?;
    let bytes = match unit {
        "kbit/s" => 125.0,
        "Mbit/s" => 125e3,
        "Gbit/s" => 125e6,
        "kB/s" => 1e3,
        "MB/s" => 1e6,
        "GB/s" => 1e9,
        "KiB/s" => 1024.0,
        "MiB/s" => 1024.0 * 1024.0,
        "GiB/s" => 1024.0 * 1024.0 * 1024.0,
        _ => return Err(spelling()),
    };
    if !plain {
        return Err(spelling());
    }
    // The conversion saturates: a rate too large for u64 becomes the largest, which is no limit in
    // practice.
    let rate = (number * bytes) as u64;
    if rate < LEAST {
        return Err(BadRate::Little(text.to_owned()));
    }
    Ok(rate)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn bits_and_bytes_are_told_apart() {
        for (text, rate) in [
            ("900 Mbit/s", 112_500_000),
            ("1Gbit/s", 125_000_000),
            ("2.5 Gbit/s", 312_500_000),
            ("100 MB/s", 100_000_000),
            ("100 MiB/s", 104_857_600),
            ("80 kbit/s", LEAST),
        ] {
            assert_eq!(read(text), Ok(rate), "{text}");
        }
    }

    #[test]
    fn what_is_no_rate_is_refused() {
        for text in [
            "",
            "900",
            "Mbit/s",
            "900 mbit/s",
            "-1 MB/s",
            "1e3 MB/s",
            "inf MB/s",
            "1.2.3 MB/s",
        ] {
            assert_eq!(read(text), Err(BadRate::Spelling(text.to_owned())));
        }
        assert!(matches!(read("1 kB/s"), Err(BadRate::Little(_))));
    }

    proptest! {
        #[test]
        fn any_text_is_read_or_refused(text in ".{0,20}") {
            if let Ok(rate) = read(&text) {
                prop_assert!(rate >= LEAST);
            }
        }
    }
}
