//! Sizes: numbers of bytes, or texts with a unit such as `"8GiB"`.
#![forbid(unsafe_code)]

use std::fmt;

use causeway_proto::request;
use serde::de::{Error, Visitor};
use serde::{Deserialize, Deserializer};

/// A size in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Size(pub u64);

impl<'de> Deserialize<'de> for Size {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Size, D::Error> {
        deserializer.deserialize_any(SizeVisitor)
    }
}

struct SizeVisitor;

impl Visitor<'_> for SizeVisitor {
    type Value = Size;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a number of bytes, or a size in quotes, e.g. `\"8GiB\"`")
    }

    fn visit_i64<E: Error>(self, bytes: i64) -> Result<Size, E> {
        let negative = |_| E::custom(format!("invalid size `{bytes}`; expected 0 or more bytes"));
        u64::try_from(bytes).map(Size).map_err(negative)
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<Size, E> {
        let wrong = || E::custom(format!("invalid size `{text}`; expected e.g. `8GiB`"));
        request::number(text).map(Size).ok_or_else(wrong)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(value: &str) -> Result<u64, String> {
        #[derive(Deserialize)]
        struct Table {
            held: Size,
        }
        let table: Result<Table, _> = toml::from_str(&format!("held = {value}"));
        let table = table.map_err(|error| error.message().to_owned());
        table.map(|table| table.held.0)
    }

    #[test]
    fn sizes_are_bytes_or_have_a_unit() {
        assert_eq!(read("8589934592"), Ok(8 << 30));
        assert_eq!(read("\"8GiB\""), Ok(8 << 30));
        assert_eq!(read("\"16 MiB\""), Ok(16 << 20));
        assert_eq!(read("0"), Ok(0));
        for wrong in ["-1", "\"8GB\"", "\"\"", "1.5", "true"] {
            let error = read(wrong).unwrap_err();
            assert!(error.contains("expected"), "{wrong}: {error}");
        }
    }
}
