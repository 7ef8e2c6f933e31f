//! Writing the one-line form.
//!
//! Invariant: what is written here is read back as the same structure (a property test in `tests`).

use std::fmt;

use super::property::{Kind, TYPES};
use super::{Comparison, Condition, DeviceRequest, Placement, Value, Wanted};

/// Names of sizes, and the power of two that each stands for.
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

/// A value as it is written for a property of this kind.
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

/// In the largest unit that leaves no rest.
fn size(bytes: u64) -> String {
    UNITS
        .iter()
        .find(|(_, unit)| bytes != 0 && bytes.is_multiple_of(1 << unit))
        .map_or_else(
            || bytes.to_string(),
            |(name, unit)| format!("{}{name}", bytes >> unit),
        )
}

/// As it is, where nothing in it could be taken for something else.
fn quoted(text: &str) -> String {
    let plain = |of: char| of.is_ascii_alphanumeric() || " ._-+()/:@[]".contains(of);
    if !text.is_empty() && text.trim() == text && text.chars().all(plain) {
        return text.to_owned();
    }
    let escaped = text.replace('\\', "\\\\").replace('"', "\\\"");
    format!("\"{escaped}\"")
}
