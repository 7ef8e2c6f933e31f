//! Parses the one-line form of requests.
//!
//! ```text
//! request   = part *( ";" part )
//! part      = placement | count | [ count "," ] condition *( "," condition )
//! condition = NAME ( "=" | "!=" | ">=" | "<=" | "contains" ) value
//! value     = bare text | '"' text with \" and \\ '"'
//! placement = "any" | "same-node" | "spread"
//! ```
//!
//! Invariant: every text gives a request or an error. All allocations are bounded by the line's length,
//! which `MAX_LINE` bounds.

use std::str::FromStr;

use super::property::{self, Kind, Property};
use super::{
    Comparison, Condition, DeviceRequest, MAX_LINE, Placement, RequestError, Value, Wanted,
};

impl FromStr for DeviceRequest {
    type Err = RequestError;

    fn from_str(line: &str) -> Result<Self, RequestError> {
        super::limited("bytes", line.len(), MAX_LINE)?;
        if line.trim().is_empty() {
            return Err(RequestError::Empty);
        }
        let mut wanted = Vec::new();
        let mut placement = None;
        for part in split(line, ';') {
            // A placement stands alone between semicolons, at any position but only once.
            match Placement::from_word(part) {
                Some(_) if placement.is_some() => return Err(misplaced(part)),
                Some(found) => placement = Some(found),
                None => wanted.push(part.parse()?),
            }
        }
        Self::new(wanted, placement.unwrap_or_default())
    }
}

impl FromStr for Wanted {
    type Err = RequestError;

    /// Parses one part between semicolons.
    fn from_str(part: &str) -> Result<Self, RequestError> {
        let mut items = split(part, ',').into_iter().peekable();
        let counted = |item: &str| !item.is_empty() && item.bytes().all(|of| of.is_ascii_digit());
        let count = match items.next_if(|item| counted(item)) {
            Some(digits) => digits.parse().map_err(|_| RequestError::Count)?,
            None => 1,
        };
        let mut conditions = Vec::new();
        for item in items {
            if counted(item) || Placement::from_word(item).is_some() {
                return Err(misplaced(item));
            }
            conditions.push(item.parse()?);
        }
        Self::new(count, conditions)
    }
}

impl FromStr for Condition {
    type Err = RequestError;

    /// Parses one condition: `NAME>=value`.
    fn from_str(item: &str) -> Result<Self, RequestError> {
        let wrong = || RequestError::NotACondition(shortened(item));
        let end = item
            .find(|of: char| !of.is_ascii_alphanumeric() && of != '_')
            .ok_or_else(wrong)?;
        let (name, rest) = item.split_at(end);
        if name.is_empty() {
            return Err(wrong());
        }
        let (comparison, value) = comparison(rest.trim_start()).ok_or_else(wrong)?;
        let value = unquoted(value.trim())?;
        Self::from_text(name, comparison, &value)
    }
}

/// Splits `rest` into the comparison that it starts with and the text after it.
fn comparison(rest: &str) -> Option<(Comparison, &str)> {
    for (sign, comparison) in [
        (">=", Comparison::AtLeast),
        ("<=", Comparison::AtMost),
        ("!=", Comparison::NotEqual),
        ("=", Comparison::Equal),
    ] {
        if let Some(value) = rest.strip_prefix(sign) {
            return Some((comparison, value));
        }
    }
    let word = "contains";
    let start = rest.get(..word.len())?;
    let value = &rest[word.len()..];
    let parted = value.starts_with(|of: char| of.is_whitespace() || of == '"');
    (start.eq_ignore_ascii_case(word) && parted).then_some((Comparison::Contains, value))
}

/// Splits at `separator`s that are not within quotes, and trims the pieces.
fn split(text: &str, separator: char) -> Vec<&str> {
    let mut pieces = Vec::new();
    let mut start = 0;
    let (mut quoted, mut escaped) = (false, false);
    for (at, of) in text.char_indices() {
        match of {
            _ if escaped => escaped = false,
            '\\' if quoted => escaped = true,
            '"' => quoted = !quoted,
            _ if of == separator && !quoted => {
                pieces.push(text[start..at].trim());
                start = at + of.len_utf8();
            }
            _ => {}
        }
    }
    pieces.push(text[start..].trim());
    pieces
}

/// Removes quotes and escapes from a value.
fn unquoted(value: &str) -> Result<String, RequestError> {
    let Some(rest) = value.strip_prefix('"') else {
        return Ok(value.to_owned());
    };
    let mut text = String::new();
    let mut characters = rest.chars();
    loop {
        match characters.next().ok_or(RequestError::Quote)? {
            '"' => break,
            '\\' => text.push(characters.next().ok_or(RequestError::Quote)?),
            of => text.push(of),
        }
    }
    if characters.next().is_some() {
        return Err(RequestError::Quote);
    }
    Ok(text)
}

/// Parses a value of a property.
pub(super) fn value(
    property: &'static Property,
    comparison: Comparison,
    text: &str,
) -> Result<Value, RequestError> {
    let read = match property.kind {
        Kind::Number | Kind::Bytes | Kind::Bits | Kind::Numbers => number(text).map(Value::Number),
        Kind::Bool => boolean(text).map(Value::Bool),
        Kind::Type => types(text).map(Value::Number),
        Kind::Version => version(text),
        Kind::VersionText if comparison != Comparison::Contains => version(text),
        Kind::Digits => Some(Value::Text(text.replace('-', "").to_ascii_lowercase())),
        Kind::Text | Kind::Words | Kind::NamedVersions | Kind::VersionText => {
            Some(Value::Text(text.to_owned()))
        }
    };
    read.ok_or_else(|| RequestError::Value {
        property: property.name,
        value: shortened(text),
        expected: property.kind.expected(comparison),
    })
}

/// Parses a number in decimal or hexadecimal. A decimal number may have a unit of 2^10, 2^20, 2^30 or
/// 2^40 bytes: `8GiB`.
#[must_use]
pub fn number(text: &str) -> Option<u64> {
    if let Some(digits) = text.strip_prefix("0x") {
        return digits
            .bytes()
            .all(|of| of.is_ascii_hexdigit())
            .then(|| u64::from_str_radix(digits, 16).ok())?;
    }
    let end = text
        .find(|of: char| !of.is_ascii_digit())
        .unwrap_or(text.len());
    let (digits, unit) = text.split_at(end);
    let unit = match unit.trim_start() {
        "" => 0,
        unit => {
            super::print::UNITS
                .iter()
                .find(|(name, _)| name.eq_ignore_ascii_case(unit))?
                .1
        }
    };
    digits.parse::<u64>().ok()?.checked_mul(1 << unit)
}

fn boolean(text: &str) -> Option<bool> {
    match text.to_ascii_lowercase().as_str() {
        "true" | "cl_true" | "yes" | "1" => Some(true),
        "false" | "cl_false" | "no" | "0" => Some(false),
        _ => None,
    }
}

fn types(text: &str) -> Option<u64> {
    text.split('|').try_fold(0, |bits, name| {
        let name = name.trim().to_ascii_uppercase();
        let name = name.strip_prefix("CL_DEVICE_TYPE_").unwrap_or(&name);
        let known = property::TYPES.iter().find(|(known, _)| *known == name);
        let more = match known {
            Some((_, bits)) => Some(*bits),
            None => number(&name.to_ascii_lowercase()),
        };
        Some(bits | more?)
    })
}

/// Parses `3`, `3.0` or `3.0.14`, with or without `OpenCL` or `OpenCL C` before it.
fn version(text: &str) -> Option<Value> {
    let text = ["OpenCL C ", "OpenCL "]
        .iter()
        .find_map(|before| text.strip_prefix(before))
        .unwrap_or(text);
    let mut parts = text.trim().split('.').map(|part| {
        let digits = part.bytes().all(|of| of.is_ascii_digit());
        digits.then(|| part.parse::<u16>().ok()).flatten()
    });
    let value = Value::Version {
        major: parts.next()??,
        minor: parts.next().unwrap_or(Some(0))?,
        patch: parts.next().unwrap_or(Some(0))?,
    };
    parts.next().is_none().then_some(value)
}

fn misplaced(text: &str) -> RequestError {
    RequestError::Misplaced(shortened(text))
}

/// Shortens a wrong text for an error message.
pub(super) fn shortened(text: &str) -> String {
    const SHOWN: usize = 60;
    if text.chars().count() <= SHOWN {
        return text.to_owned();
    }
    text.chars().take(SHOWN).chain(['…']).collect()
}
