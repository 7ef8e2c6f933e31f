//! The language in which devices are asked for: how many, with which properties, how placed.
//!
//! - [`DeviceRequest`] is the structure, whoever wrote it: a line, TOML, the dOpenCL paper's XML.
//! - [`property`]: the one table of what can be asked about a device.
//! - `parse` and `print`: the one-line form, `2, TYPE=GPU, GLOBAL_MEM_SIZE>=8GiB; 1, TYPE=CPU; same-node`.
//!   It is the form on the wire and in stores as well.
//! - `matching`: a condition held against the bytes of a device's info answers.
//!
//! What it is not: it knows no devices that are free or taken, and no users. Invariant: a
//! [`Condition`] that exists is one that its property's kind can answer, and what is printed is read
//! back as the same request.

mod matching;
mod parse;
mod print;
pub mod property;
#[cfg(test)]
mod tests;

pub use matching::answer_of;
pub use parse::number;
pub use property::{Kind, Property};

/// Kinds of devices in one request.
pub const MAX_WANTED: usize = 32;

/// Devices in one request, of all kinds together.
pub const MAX_COUNT: u32 = 1 << 16;

/// Conditions on one kind of device.
pub const MAX_CONDITIONS: usize = 64;

/// Bytes of one value that is text.
pub const MAX_TEXT: usize = 1 << 10;

/// Bytes of a request in its one-line form, as it is kept: longer than it was asked with, because names are spelled out.
pub const MAX_LINE: usize = 64 << 10;

/// Bytes of a line that somebody asks with: a manager keeps it for as long as the request waits.
pub const MAX_ASKED: usize = 4 << 10;

/// Devices that belong together: all of them are given, or none.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct DeviceRequest {
    wanted: Vec<Wanted>,
    placement: Placement,
}

/// So many devices of one kind.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Wanted {
    count: u32,
    conditions: Vec<Condition>,
}

/// On which nodes the devices of a request may lie.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Placement {
    /// Wherever they are.
    #[default]
    Any,
    /// All on one node.
    SameNode,
    /// Each on a node of its own.
    Spread,
}

/// What a property of each device must be.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Condition {
    property: &'static Property,
    comparison: Comparison,
    value: Value,
}

/// How a device's answer is held against the value.
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
    /// `contains`: a part of a text (whatever the case of ASCII letters), a word of a list, bits of a bit field.
    Contains,
}

/// What is compared with.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Value {
    /// A number, a size in bytes, or bits.
    Number(u64),
    /// True or false.
    Bool(bool),
    /// Text; 16 bytes as hexadecimal digits.
    Text(String),
    /// A version of OpenCL or of something in it.
    Version {
        /// Before the first dot.
        major: u16,
        /// Behind it.
        minor: u16,
        /// Behind the second dot, else 0.
        patch: u16,
    },
}

/// Why something is no request.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RequestError {
    /// Nothing is asked for.
    #[error("the request names no device; '1' is any one device")]
    Empty,
    /// More than a limit of this module.
    #[error("the request has too many {what}: {limit} at most")]
    TooMany {
        /// Of what.
        what: &'static str,
        /// How many are allowed.
        limit: usize,
    },
    /// A count that is none.
    #[error("a kind of devices must be counted from 1 to {MAX_COUNT}")]
    Count,
    /// A part that is neither a count, a placement nor a condition.
    #[error("'{0}' is no condition: write PROPERTY, one of = != >= <= contains, and a value")]
    NotACondition(String),
    /// A count or a placement at a place where it means nothing.
    #[error(
        "'{0}' stands in the wrong place: the count comes first, 'same-node' or 'spread' alone behind ';', once"
    )]
    Misplaced(String),
    /// No property of this name.
    #[error("no property '{0}': use a name of clGetDeviceInfo without CL_DEVICE_")]
    UnknownProperty(String),
    /// A comparison that such a property does not allow.
    #[error("{property} cannot be compared by '{comparison}'; it takes {allowed}")]
    Comparison {
        /// The property's name.
        property: &'static str,
        /// What was asked for.
        comparison: &'static str,
        /// What is possible.
        allowed: &'static str,
    },
    /// A value that such a property cannot have.
    #[error("'{value}' is no value for {property}: {expected} is expected")]
    Value {
        /// The property's name.
        property: &'static str,
        /// What was given.
        value: String,
        /// What it may be.
        expected: &'static str,
    },
    /// A quote that is not closed, or text behind one.
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

    /// What somebody asks for with this line.
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

    /// Where they may lie.
    #[must_use]
    pub fn placement(&self) -> Placement {
        self.placement
    }

    /// Whether it asks for single devices, by a UUID or an address, which equal ones do not share.
    #[must_use]
    pub fn names_devices(&self) -> bool {
        let mut conditions = self.wanted.iter().flat_map(|of| &of.conditions);
        conditions.any(|of| of.property().identity)
    }

    /// Devices of all kinds together.
    #[must_use]
    pub fn count(&self) -> u32 {
        self.wanted.iter().map(|of| of.count).sum()
    }
}

impl Wanted {
    /// `count` devices, each of which meets all `conditions`.
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

    /// How many.
    #[must_use]
    pub fn count(&self) -> u32 {
        self.count
    }

    /// What each must be.
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

    /// A condition from a property's name and a value as text, as people write both.
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

    /// What is asked about.
    #[must_use]
    pub fn property(&self) -> &'static Property {
        self.property
    }

    /// How it is compared.
    #[must_use]
    pub fn comparison(&self) -> Comparison {
        self.comparison
    }

    /// With what.
    #[must_use]
    pub fn value(&self) -> &Value {
        &self.value
    }
}

impl Comparison {
    /// As it is written in the one-line form.
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
    /// As it is written in the one-line form and in TOML.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Self::Any => "any",
            Self::SameNode => "same-node",
            Self::Spread => "spread",
        }
    }

    /// The placement of this name.
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
