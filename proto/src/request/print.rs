//! Prints the one-line form of requests.
//!
//! Invariant: a printed request is read back as the same structure (a property test in `tests` checks
//! this).

use std::fmt;

use super::property::{Kind, TYPES};
use super::{Comparison, Condition, DeviceRequest, Placement, Value, Wanted};

/// Names of size units, each with its power of two.
pub(super) const UNITS: [(&str, u32); 4] = [("TiB", 40), ("GiB", 30), ("MiB", 20), ("KiB", 10)];

impl fmt::Display for DeviceRequest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, wanted) in self.wanted.iter().enumerate() {
            let separator = if at == 0 { "" } else { "; " };
            write!(f, "{separator}{wanted}")?;
        }
        match self.placement {
            Placement::Any => Ok(()),
            placement => write!(f, "; {}", placement.word()),
        }
    }
}

impl fmt::Display for Wanted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.count)?;
        for condition in &self.conditions {
            write!(f, ", {condition}")?;
        }
        Ok(())
    }
}

impl fmt::Display for Condition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let value = value_text(self.property.kind, &self.value);
        let name = self.property.name;
        match self.comparison {
            Comparison::Contains => write!(f, "{name} contains {value}"),
            comparison => write!(f, "{name}{}{value}", comparison.sign()),
        }
    }
}

/// Prints a value in the form that properties of this kind use.
pub(super) fn value_text(kind: Kind, value: &Value) -> String {
    match value {
        Value::Number(bits) if kind == Kind::Type => type_names(*bits),
        Value::Number(bits) if kind == Kind::Bits => format!("{bits:#x}"),
        Value::Number(bytes) if kind == Kind::Bytes => size(*bytes),
        Value::Number(number) => number.to_string(),
        Value::Bool(value) => value.to_string(),
        Value::Text(text) => quoted(text),
        Value::Version {
            major,
            minor,
            patch: 0,
        } => format!("{major}.{minor}"),
        Value::Version {
            major,
            minor,
            patch,
        } => format!("{major}.{minor}.{patch}"),
    }
}

fn type_names(bits: u64) -> String {
    let mut left = bits;
    let mut names = Vec::new();
    for (name, of) in TYPES {
        if left & of == of {
            names.push(name.to_owned());
            left &= !of;
        }
    }
    if left != 0 {
        names.push(format!("{left:#x}"));
    }
    names.join("|")
}

/// Prints a size in the largest unit that divides it.
fn size(bytes: u64) -> String {
    UNITS
        .iter()
        .find(|(_, unit)| bytes != 0 && bytes.is_multiple_of(1 << unit))
        .map_or_else(
            || bytes.to_string(),
            |(name, unit)| format!("{}{name}", bytes >> unit),
        )
}

/// Prints text without quotes if no character of it could be misread.
fn quoted(text: &str) -> String {
    let plain = |of: char| of.is_ascii_alphanumeric() || " ._-+()/:@[]".contains(of);
    if !text.is_empty() && text.trim() == text && text.chars().all(plain) {
        return text.to_owned();
    }
    let escaped = text.replace('\\', "\\\\").replace('"', "\\\"");
    format!("\"{escaped}\"")
}
