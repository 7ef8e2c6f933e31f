//! Compares conditions with a device's info answers.
//!
//! Invariant: an answer consists of untrusted bytes. An answer that is too short, too long or not text
//! matches no condition and does no harm. A device that does not answer a property matches no condition
//! on it, not even `!=`.

use std::cmp::Ordering;

use super::property::Kind;
use super::{Comparison, Condition, Value, Wanted};
use crate::control::InfoAnswer;

/// Size of a `cl_name_version` in bytes: the version, and a name that ends with a zero.
const NAMED_VERSION: usize = 4 + 64;

impl Wanted {
    /// Whether a device with these answers matches every condition.
    #[must_use]
    pub fn matches(&self, answers: &[InfoAnswer]) -> bool {
        self.conditions.iter().all(|of| of.matches(answers))
    }
}

impl Condition {
    /// Whether a device with these answers matches the condition.
    #[must_use]
    pub fn matches(&self, answers: &[InfoAnswer]) -> bool {
        answer_of(answers, self.property.info)
            .is_some_and(|answer| self.holds(answer).unwrap_or(false))
    }

    /// Compares one answer; `None` if its bytes are not of the property's kind.
    fn holds(&self, answer: &[u8]) -> Option<bool> {
        match (self.property.kind, &self.value) {
            (Kind::Number | Kind::Bytes, Value::Number(wanted)) => {
                Some(self.ordered(number(answer)?.cmp(wanted)))
            }
            (Kind::Bool, Value::Bool(wanted)) => {
                Some(self.equal((number(answer)? != 0) == *wanted))
            }
            (Kind::Bits, Value::Number(wanted)) => {
                let bits = number(answer)?;
                Some(match self.comparison {
                    Comparison::Contains => bits & wanted == *wanted,
                    _ => self.equal(bits == *wanted),
                })
            }
            (Kind::Type, Value::Number(wanted)) => {
                Some(self.equal(is_type(number(answer)?, *wanted)))
            }
            (Kind::Text, Value::Text(wanted)) => {
                let found = text(answer)?;
                Some(match self.comparison {
                    Comparison::Contains => contains(found, wanted),
                    _ => self.equal(found == wanted),
                })
            }
            (Kind::Words, Value::Text(wanted)) => {
                let found = text(answer)?;
                Some(match self.comparison {
                    Comparison::Contains => found
                        .split([' ', ';'])
                        .any(|word| !word.is_empty() && word == wanted),
                    _ => self.equal(found.trim() == wanted.trim()),
                })
            }
            (Kind::NamedVersions, Value::Text(wanted)) => Some(
                answer
                    .chunks_exact(NAMED_VERSION)
                    .any(|entry| text(&entry[4..]) == Some(wanted)),
            ),
            (Kind::Version, wanted) => {
                // `cl_version` packs major, minor and patch into 10, 10 and 12 bits.
                let packed = u32::from_le_bytes(answer.try_into().ok()?);
                let found = (packed >> 22, packed >> 12 & 0x3FF, packed & 0xFFF);
                Some(self.ordered(found.cmp(&version(wanted)?)))
            }
            (Kind::VersionText, Value::Text(wanted)) => Some(contains(text(answer)?, wanted)),
            (Kind::VersionText, wanted) => {
                Some(self.ordered(version_in(text(answer)?)?.cmp(&version(wanted)?)))
            }
            (Kind::Numbers, Value::Number(wanted)) => Some(
                answer
                    .chunks_exact(8)
                    .any(|element| number(element) == Some(*wanted)),
            ),
            (Kind::Digits, Value::Text(wanted)) => Some(self.equal(digits(answer) == *wanted)),
            _ => None,
        }
    }

    /// Result for `=` and `!=`, and for `contains` with a single value.
    fn equal(&self, equal: bool) -> bool {
        equal != (self.comparison == Comparison::NotEqual)
    }

    fn ordered(&self, found: Ordering) -> bool {
        match self.comparison {
            Comparison::AtLeast => found.is_ge(),
            Comparison::AtMost => found.is_le(),
            _ => self.equal(found.is_eq()),
        }
    }
}

/// The device's answer for one `cl_device_info`, if it succeeded.
#[must_use]
pub fn answer_of(answers: &[InfoAnswer], info: u32) -> Option<&[u8]> {
    answers
        .iter()
        .find(|answer| answer.name == info && answer.status == 0)
        .map(|answer| answer.value.as_ref())
}

/// An unsigned integer of 1 to 8 bytes, little endian like all supported hosts.
fn number(answer: &[u8]) -> Option<u64> {
    if answer.is_empty() || answer.len() > 8 {
        return None;
    }
    let mut bytes = [0; 8];
    bytes[..answer.len()].copy_from_slice(answer);
    Some(u64::from_le_bytes(bytes))
}

/// The text up to its terminating zero.
fn text(answer: &[u8]) -> Option<&str> {
    let end = answer
        .iter()
        .position(|of| *of == 0)
        .unwrap_or(answer.len());
    std::str::from_utf8(&answer[..end]).ok()
}

fn contains(text: &str, part: &str) -> bool {
    text.to_ascii_lowercase()
        .contains(&part.to_ascii_lowercase())
}

/// Compares device types as `clGetDeviceIDs` does: one common bit is enough, and ALL excludes custom
/// devices.
fn is_type(found: u64, wanted: u64) -> bool {
    const ALL: u64 = 0xFFFF_FFFF;
    const CUSTOM: u64 = 1 << 4;
    if wanted & ALL == ALL {
        return found & !CUSTOM != 0;
    }
    found & wanted != 0
}

fn version(value: &Value) -> Option<(u32, u32, u32)> {
    match value {
        Value::Version {
            major,
            minor,
            patch,
        } => Some(((*major).into(), (*minor).into(), (*patch).into())),
        _ => None,
    }
}

/// The version in `OpenCL 3.0 …` or `OpenCL C 1.2 …`.
fn version_in(text: &str) -> Option<(u32, u32, u32)> {
    let rest = text.strip_prefix("OpenCL ")?;
    let rest = rest.strip_prefix("C ").unwrap_or(rest);
    let word = rest.split(' ').next()?;
    let (major, minor) = word.split_once('.')?;
    Some((major.parse().ok()?, minor.parse().ok()?, 0))
}

fn digits(answer: &[u8]) -> String {
    answer.iter().map(|of| format!("{of:02x}")).collect()
}
