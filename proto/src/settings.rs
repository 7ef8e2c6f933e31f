//! What the settings files of all programs have in common: numbers with a range, and the wording of errors.
//!
//! The programs read their TOML files with serde into raw tables, which refuse unknown keys, and turn these
//! into validated settings. This module opens no file. Invariant: a [`Within`] is in its range.

use std::fmt::Display;
use std::str::FromStr;

use serde::Deserialize;
use serde::de::{Deserializer, Error as _};

/// An error at a line of a settings file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fault {
    /// The line, from 1.
    pub line: usize,
    /// The fault and its cure.
    pub message: String,
}

impl Fault {
    /// An error at this byte of the text.
    #[must_use]
    pub fn at(text: &str, byte: usize, message: &dyn Display) -> Fault {
        let before = text.bytes().take(byte);
        Fault {
            line: 1 + before.filter(|&b| b == b'\n').count(),
            message: message.to_string(),
        }
    }

    /// The parser's error about this text. The message names the key.
    #[must_use]
    pub fn of(text: &str, mut error: toml::de::Error) -> Fault {
        let begin = error.span().map_or(0, |span| span.start);
        // Without the text, the error is shown as its message and the key, on two lines.
        error.set_input(None);
        let shown = error.to_string();
        Fault::at(text, begin, &shown.trim_end().replace('\n', " "))
    }
}

/// A number from `LEAST` to `MOST`, in a file or a flag.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Within<T, const LEAST: u64, const MOST: u64>(T);

/// The number is out of range, or the text is not a number.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[error("{found} is out of range; expected a number from {least} to {most}")]
pub struct OutOfRange {
    found: String,
    least: u64,
    most: u64,
}

impl<T: Copy, const LEAST: u64, const MOST: u64> Within<T, LEAST, MOST> {
    /// The number.
    #[must_use]
    pub fn get(self) -> T {
        self.0
    }
}

impl<T: TryFrom<u64>, const LEAST: u64, const MOST: u64> Within<T, LEAST, MOST> {
    fn checked(number: Option<u64>, found: &dyn Display) -> Result<Self, OutOfRange> {
        number
            .filter(|number| (LEAST..=MOST).contains(number))
            .and_then(|number| T::try_from(number).ok())
            .map(Within)
            .ok_or_else(|| OutOfRange {
                found: found.to_string(),
                least: LEAST,
                most: MOST,
            })
    }
}

impl<T: TryFrom<u64>, const LEAST: u64, const MOST: u64> FromStr for Within<T, LEAST, MOST> {
    type Err = OutOfRange;

    fn from_str(text: &str) -> Result<Self, OutOfRange> {
        Self::checked(text.parse().ok(), &text)
    }
}

impl<'de, T: TryFrom<u64>, const LEAST: u64, const MOST: u64> Deserialize<'de>
    for Within<T, LEAST, MOST>
{
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        // Signed, so that the message for a negative number names the range as well.
        let number = i64::deserialize(deserializer)?;
        Self::checked(u64::try_from(number).ok(), &number).map_err(D::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, Deserialize)]
    #[serde(deny_unknown_fields)]
    struct Table {
        number: Option<Within<u32, 1, 8>>,
        inner: Option<Box<Table>>,
    }

    #[test]
    fn errors_name_line_key_fault_and_range() {
        let range = "is out of range; expected a number from 1 to 8 in `number`";
        for (text, line, message) in [
            ("number = 9", 1, format!("9 {range}")),
            ("\nnumber = -1", 2, format!("-1 {range}")),
            (
                "\nnumber = \"x\"",
                2,
                "invalid type: string \"x\", expected i64 in `number`".to_owned(),
            ),
            (
                "number = 1\n[inner]\nnummer = 1\n",
                3,
                "unknown field `nummer`, expected `number` or `inner` in `inner`".to_owned(),
            ),
        ] {
            let error = toml::from_str::<Table>(text).unwrap_err();
            assert_eq!(Fault::of(text, error), Fault { line, message });
        }
        let fault = Fault::of("x = ", toml::from_str::<Table>("x = ").unwrap_err());
        assert!(!fault.message.contains('\n'), "{fault:?}");
    }

    #[test]
    fn a_number_is_read_from_a_file_and_from_a_flag() {
        let table: Table = toml::from_str("number = 8\n[inner]\nnumber = 1\n").unwrap();
        assert_eq!(table.number.map(Within::get), Some(8));
        let inner = table.inner.and_then(|inner| inner.number);
        assert_eq!(inner.map(Within::get), Some(1));
        type Count = Within<u32, 1, 8>;
        assert_eq!("3".parse::<Count>().map(Within::get), Ok(3));
        for wrong in ["0", "9", "-1", "", "x", "18446744073709551616"] {
            let error = wrong.parse::<Count>().unwrap_err().to_string();
            assert!(error.ends_with("expected a number from 1 to 8"), "{error}");
        }
    }
}
