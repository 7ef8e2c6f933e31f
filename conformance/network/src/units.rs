//! Rates and durations as people and `tc` write them: `1gbit`, `250mbit`, `0.1ms`, `20ms`.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::error::Error;

/// Bits per second.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Rate(u64);

impl Rate {
    /// Makes a rate of `bits` per second; at least 1000, so that times stay finite.
    #[must_use]
    pub const fn bits(bits: u64) -> Self {
        Self(if bits < 1000 { 1000 } else { bits })
    }

    /// Millions of bits per second.
    #[must_use]
    pub const fn mbit(mega: u64) -> Self {
        Self::bits(mega.saturating_mul(1_000_000))
    }

    /// Billions of bits per second.
    #[must_use]
    pub const fn gbit(giga: u64) -> Self {
        Self::mbit(giga.saturating_mul(1000))
    }

    /// Bits per second.
    #[must_use]
    pub const fn bits_per_second(self) -> u64 {
        self.0
    }

    /// Returns how long `bytes` take at this rate.
    #[must_use]
    pub fn time_for(self, bytes: u64) -> Duration {
        let nanoseconds = u128::from(bytes) * 8 * 1_000_000_000 / u128::from(self.0);
        Duration::from_nanos(u64::try_from(nanoseconds).unwrap_or(u64::MAX))
    }

    /// Returns how many bytes pass in `time`.
    #[must_use]
    pub fn bytes_in(self, time: Duration) -> u64 {
        let bytes = time.as_nanos() * u128::from(self.0) / 8 / 1_000_000_000;
        u64::try_from(bytes).unwrap_or(u64::MAX)
    }
}

impl fmt::Display for Rate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            bits if bits % 1_000_000_000 == 0 => write!(f, "{}gbit", bits / 1_000_000_000),
            bits if bits % 1_000_000 == 0 => write!(f, "{}mbit", bits / 1_000_000),
            bits if bits % 1000 == 0 => write!(f, "{}kbit", bits / 1000),
            bits => write!(f, "{bits}bit"),
        }
    }
}

impl FromStr for Rate {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        let units = [("gbit", 1e9), ("mbit", 1e6), ("kbit", 1e3), ("bit", 1.0)];
        let bits = scaled(&text.to_lowercase(), &units).ok_or_else(|| {
            Error::Setting(format!("{text:?} is no rate, such as 1gbit or 250mbit"))
        })?;
        if bits < 1000.0 {
            return Err(Error::Setting(format!("{text}: a rate is at least 1kbit")));
        }
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
        Ok(Self::bits(bits as u64))
    }
}

/// Parses `20ms`, `0.1ms`, `250us` or `1s`.
///
/// # Errors
///
/// [`Error::Setting`] for any other text.
/// [`Error::Setting`] when it is none of these.
pub fn duration(text: &str) -> Result<Duration, Error> {
    let units = [("ms", 1e-3), ("us", 1e-6), ("ns", 1e-9), ("s", 1.0)];
    scaled(text, &units)
        .and_then(|seconds| Duration::try_from_secs_f64(seconds).ok())
        .ok_or_else(|| Error::Setting(format!("{text:?} is no duration, such as 20ms or 250us")))
}

/// Parses a share of packets, `0.001` or `0.1%`.
///
/// # Errors
///
/// [`Error::Setting`] if the text is neither, or is not between 0 and 1.
/// [`Error::Setting`] when it is neither, or not between 0 and 1.
pub fn share(text: &str) -> Result<f64, Error> {
    let value = match text.strip_suffix('%') {
        Some(percent) => percent.trim().parse::<f64>().map(|percent| percent / 100.0),
        None => text.parse::<f64>(),
    };
    match value {
        Ok(value) if (0.0..=1.0).contains(&value) => Ok(value),
        _ => Err(Error::Setting(format!(
            "{text:?} is no share, such as 0.001 or 0.1%"
        ))),
    }
}

/// Parses a number with one of the `units`. `None` without a unit or below 0.
fn scaled(text: &str, units: &[(&str, f64)]) -> Option<f64> {
    let (number, factor) = units
        .iter()
        .find_map(|(unit, factor)| Some((text.strip_suffix(unit)?, factor)))?;
    let number: f64 = number.trim().parse().ok()?;
    (number.is_finite() && number >= 0.0).then_some(number * factor)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_are_read_and_written() {
        for (text, bits) in [
            ("1gbit", 1_000_000_000),
            ("2.5Gbit", 2_500_000_000),
            ("100 mbit", 100_000_000),
        ] {
            assert_eq!(
                text.parse::<Rate>().unwrap().bits_per_second(),
                bits,
                "{text}"
            );
        }
        assert_eq!(Rate::mbit(2500).to_string(), "2500mbit");
        assert_eq!(Rate::gbit(10).to_string(), "10gbit");
        for text in ["", "1", "gbit", "-1gbit", "nangbit", "1gb", "10bit"] {
            assert!(text.parse::<Rate>().is_err(), "{text}");
        }
    }

    #[test]
    fn a_rate_converts_bytes_and_time() {
        assert_eq!(Rate::gbit(1).time_for(125_000), Duration::from_millis(1));
        assert_eq!(Rate::gbit(1).bytes_in(Duration::from_millis(1)), 125_000);
    }

    #[test]
    fn durations_and_shares_are_read() {
        assert_eq!(duration("0.1ms").unwrap(), Duration::from_micros(100));
        assert_eq!(duration("2s").unwrap(), Duration::from_secs(2));
        assert!(duration("2").is_err() && duration("-1ms").is_err());
        assert!((share("0.1%").unwrap() - 0.001).abs() < 1e-12);
        assert!(share("1.5").is_err() && share("x").is_err() && share("nan").is_err());
    }
}
