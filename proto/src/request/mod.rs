//! The language of device requests: how many devices, with which properties, placed how.
//!
//! - [`DeviceRequest`] is the structure, whatever it was written in: a line, TOML, or the XML of the
//!   dOpenCL paper.
//! - [`property`]: the table of all device properties that a request can use.
//! - `parse` and `print`: the one-line form, `2, TYPE=GPU, GLOBAL_MEM_SIZE>=8GiB; 1, TYPE=CPU;
//!   same-node`. The wire and the manager's store use it too.
//! - `matching`: compares a condition with the bytes of a device's info answers.
//!
//! This module does not know users, or which devices are free. Invariant: a [`Condition`] fits its
//! property's kind. A printed request is read back as the same request.

mod matching;
mod parse;
mod print;
pub mod property;
#[cfg(test)]
mod tests;

pub use matching::answer_of;
pub use parse::number;
pub use property::{Kind, Property};

/// Maximum number of kinds of devices in one request.
pub const MAX_WANTED: usize = 32;

/// Maximum number of devices in one request, of all kinds together.
pub const MAX_COUNT: u32 = 1 << 16;

/// Maximum number of conditions on one kind of device.
pub const MAX_CONDITIONS: usize = 64;

/// Maximum size of one text value in bytes.
pub const MAX_TEXT: usize = 1 << 10;

/// Maximum size of a stored request in its one-line form, in bytes. It is longer than the line a user
/// wrote, because names are spelled out.
pub const MAX_LINE: usize = 64 << 10;

/// Maximum size of a line in a new request, in bytes. A manager keeps the line for as long as the request
/// waits.
pub const MAX_ASKED: usize = 4 << 10;

/// Devices that are granted together: all of them or none.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct DeviceRequest {
    wanted: Vec<Wanted>,
    placement: Placement,
}

/// A number of devices of one kind.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Wanted {
    count: u32,
    conditions: Vec<Condition>,
}

/// The nodes on which the devices of a request may be.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Placement {
    /// On any nodes.
    #[default]
    Any,
    /// All on the same node.
    SameNode,
    /// Each on a different node.
    Spread,
}

/// A condition on one property of each device.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Condition {
    property: &'static Property,
    comparison: Comparison,
    value: Value,
}

/// How a device's answer is compared with the value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Comparison {
    /// `=`
    Equal,
    /// `!=`
    NotEqual,
    /// `>=`
    AtLeast,
    /// `<=`
    AtMost,
    /// `contains`: a part of a text (ignoring the case of ASCII letters), a word of a list, or bits of a
    /// bit field.
    Contains,
}

/// The value to compare with.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Value {
    /// A number, a size in bytes, or bits.
    Number(u64),
    /// True or false.
    Bool(bool),
    /// Text; or bytes as hexadecimal digits.
    Text(String),
    /// A version of OpenCL or of a part of it.
    Version {
        /// The number before the first dot.
        major: u16,
        /// The number after the first dot.
        minor: u16,
        /// The number after the second dot, or 0.
        patch: u16,
    },
}

/// Why a request is invalid.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RequestError {
    /// The request asks for nothing.
    #[error("the request is empty; write e.g. '1' for any device")]
    Empty,
    /// The request exceeds a limit of this module.
    #[error("the request has too many {what}: {limit} at most")]
    TooMany {
        /// The items that are too many.
        what: &'static str,
        /// The limit.
        limit: usize,
    },
    /// The count is 0 or too large.
    #[error("invalid number of devices; expected 1 to {MAX_COUNT}")]
    Count,
    /// A part is neither a count, a placement nor a condition.
    #[error("invalid condition '{0}'; expected PROPERTY, one of = != >= <= contains, and a value")]
    NotACondition(String),
    /// A count or a placement is in the wrong place.
    #[error(
        "'{0}' is in the wrong place; put the count first, and 'same-node' or 'spread' alone behind a ';', once"
    )]
    Misplaced(String),
    /// No property has this name.
    #[error("unknown property '{0}'; use a name of clGetDeviceInfo without CL_DEVICE_")]
    UnknownProperty(String),
    /// The property does not allow this comparison.
    #[error("{property} cannot be compared by '{comparison}'; it takes {allowed}")]
    Comparison {
        /// The property's name.
        property: &'static str,
        /// The requested comparison.
        comparison: &'static str,
        /// The comparisons that the property allows.
        allowed: &'static str,
    },
    /// The property cannot have this value.
    #[error("invalid value '{value}' for {property}; expected {expected}")]
    Value {
        /// The property's name.
        property: &'static str,
        /// The value that was given.
        value: String,
        /// A description of valid values.
        expected: &'static str,
    },
    /// A quote is not closed, or text follows it.
    #[error("a quoted value must end in '\"' and be followed by ',' or ';'")]
    Quote,
}

impl DeviceRequest {
    /// A request for all of `wanted`, in this order.
    ///
    /// # Errors
    /// [`RequestError::Empty`] or [`RequestError::TooMany`].
    pub fn new(wanted: Vec<Wanted>, placement: Placement) -> Result<Self, RequestError> {
        if wanted.is_empty() {
            return Err(RequestError::Empty);
        }
        limited("kinds of devices", wanted.len(), MAX_WANTED)?;
        let all = wanted.iter().map(|of| of.count as usize).sum();
        limited("devices", all, MAX_COUNT as usize)?;
        Ok(Self { wanted, placement })
    }

    /// Parses a line of a new request.
    ///
    /// # Errors
    /// [`RequestError`]; [`RequestError::TooMany`] for a line of more than [`MAX_ASKED`] bytes.
    pub fn asked(line: &str) -> Result<Self, RequestError> {
        limited("bytes", line.len(), MAX_ASKED)?;
        line.parse()
    }

    /// The kinds of devices.
    #[must_use]
    pub fn wanted(&self) -> &[Wanted] {
        &self.wanted
    }

    /// The placement of the devices.
    #[must_use]
    pub fn placement(&self) -> Placement {
        self.placement
    }

    /// Whether the request names single devices by a UUID or an address, which no two devices share.
    #[must_use]
    pub fn names_devices(&self) -> bool {
        let mut conditions = self.wanted.iter().flat_map(|of| &of.conditions);
        conditions.any(|of| of.property().identity)
    }

    /// Number of devices of all kinds together.
    #[must_use]
    pub fn count(&self) -> u32 {
        self.wanted.iter().map(|of| of.count).sum()
    }
}

impl Wanted {
    /// `count` devices, each of which matches all `conditions`.
    ///
    /// # Errors
    /// [`RequestError::Count`] or [`RequestError::TooMany`].
    pub fn new(count: u32, conditions: Vec<Condition>) -> Result<Self, RequestError> {
        if count == 0 || count > MAX_COUNT {
            return Err(RequestError::Count);
        }
        limited("conditions", conditions.len(), MAX_CONDITIONS)?;
        Ok(Self { count, conditions })
    }

    /// Number of devices of this kind.
    #[must_use]
    pub fn count(&self) -> u32 {
        self.count
    }

    /// The conditions that each device must match.
    #[must_use]
    pub fn conditions(&self) -> &[Condition] {
        &self.conditions
    }
}

impl Condition {
    /// A condition on a property.
    ///
    /// # Errors
    /// [`RequestError::Comparison`] or [`RequestError::Value`] if the property's kind does not allow it.
    pub fn new(
        property: &'static Property,
        comparison: Comparison,
        value: Value,
    ) -> Result<Self, RequestError> {
        property.kind.check(property.name, comparison, &value)?;
        Ok(Self {
            property,
            comparison,
            value,
        })
    }

    /// A condition from a property's name and a value, both as text in the form that people write.
    ///
    /// # Errors
    /// [`RequestError::UnknownProperty`], [`RequestError::Comparison`] or [`RequestError::Value`].
    pub fn from_text(
        name: &str,
        comparison: Comparison,
        value: &str,
    ) -> Result<Self, RequestError> {
        let property = property::by_name(name)
            .ok_or_else(|| RequestError::UnknownProperty(parse::shortened(name)))?;
        let value = parse::value(property, comparison, value)?;
        Self::new(property, comparison, value)
    }

    /// The property.
    #[must_use]
    pub fn property(&self) -> &'static Property {
        self.property
    }

    /// The comparison.
    #[must_use]
    pub fn comparison(&self) -> Comparison {
        self.comparison
    }

    /// The value to compare with.
    #[must_use]
    pub fn value(&self) -> &Value {
        &self.value
    }
}

impl Comparison {
    /// The comparison in the one-line form.
    #[must_use]
    pub fn sign(self) -> &'static str {
        match self {
            Self::Equal => "=",
            Self::NotEqual => "!=",
            Self::AtLeast => ">=",
            Self::AtMost => "<=",
            Self::Contains => "contains",
        }
    }
}

impl Placement {
    /// The placement in the one-line form and in TOML.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Self::Any => "any",
            Self::SameNode => "same-node",
            Self::Spread => "spread",
        }
    }

    /// Parses the name of a placement.
    #[must_use]
    pub fn from_word(word: &str) -> Option<Self> {
        [Self::Any, Self::SameNode, Self::Spread]
            .into_iter()
            .find(|placement| placement.word() == word)
    }
}

fn limited(what: &'static str, count: usize, limit: usize) -> Result<(), RequestError> {
    if count > limit {
        return Err(RequestError::TooMany { what, limit });
    }
    Ok(())
}
