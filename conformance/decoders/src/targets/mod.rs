//! The decoders: everything that reads bytes from outside.

mod fixed;
mod messages;
mod settings;
mod shared;
mod texts;
mod trust;

use std::io;

use rand::rngs::StdRng;

/// Default memory limit of a decoder, independent of the input, in bytes. The readers of TOML
/// and XML have tables.
const MEMORY: usize = 256 << 10;
/// Additional limit per byte of input. An empty list element is two bytes on the wire and some hundred in
/// memory. A growing list briefly needs three times as much.
const MEMORY_EACH: usize = 1 << 10;

/// Decodes an input. Returns whether it was accepted.
pub(crate) type Read = Box<dyn FnMut(&[u8]) -> bool>;

/// The form of valid input.
pub(crate) enum Form {
    /// Protobuf.
    Message,
    /// Text that consists of these words.
    Text(Vec<String>),
    /// Any other form.
    Bytes,
}

/// A decoder.
pub(crate) struct Target {
    pub(crate) name: &'static str,
    pub(crate) form: Form,
    /// Valid input.
    pub(crate) valid: Vec<Vec<u8>>,
    /// The decoder's share of all inputs, as a weight.
    pub(crate) weight: u64,
    /// Memory limit independent of the input, in bytes.
    pub(crate) memory: usize,
    /// Additional memory limit per byte of the input.
    pub(crate) memory_each: usize,
    /// Decodes an input. Returns whether it was accepted; panics if a check fails.
    pub(crate) read: Read,
}

impl Target {
    fn new(
        name: &'static str,
        form: Form,
        valid: Vec<Vec<u8>>,
        read: impl FnMut(&[u8]) -> bool + 'static,
    ) -> Target {
        Target {
            name,
            form,
            valid,
            weight: 20,
            memory: MEMORY,
            memory_each: MEMORY_EACH,
            read: Box::new(read),
        }
    }

    /// Sets another share of all inputs.
    fn weighing(self, weight: u64) -> Target {
        Target { weight, ..self }
    }

    /// Sets a higher memory limit.
    fn holding(self, memory: usize) -> Target {
        Target { memory, ..self }
    }
}

/// Returns all decoders.
pub(crate) fn all(random: &mut StdRng) -> io::Result<Vec<Target>> {
    let mut all = fixed::targets();
    all.extend(messages::targets(random));
    all.extend(texts::targets());
    all.extend(settings::targets()?);
    all.extend(trust::targets(random)?);
    all.push(shared::target()?);
    Ok(all)
}

// Returns the words of these texts, and punctuation.
fn words(texts: &[&str]) -> Vec<String> {
    let is_part = |c: char| c.is_alphanumeric() || "_-.".contains(c);
    let mut words: Vec<String> = texts
        .iter()
        .flat_map(|text| text.split(|c| !is_part(c)))
        .filter(|word| !word.is_empty())
        .map(str::to_owned)
        .collect();
    let marks = [
        "\n",
        " ",
        "\"",
        "'",
        "\"\"\"",
        "=",
        "==",
        "!=",
        ">=",
        "<=",
        "[",
        "]",
        "[[",
        "]]",
        "{",
        "}",
        "(",
        ")",
        "<",
        ">",
        "</",
        "/>",
        "<!--",
        "-->",
        "<![CDATA[",
        "]]>",
        "&amp;",
        "&#0;",
        "&#x10ffff;",
        "<!DOCTYPE a [<!ENTITY b \"c\">]>",
        "&b;",
        "?>",
        "<?xml",
        ":",
        ",",
        ";",
        ".",
        "#",
        "//",
        "/*",
        "*/",
        "\\",
        "\\\n",
        "\\u0000",
        "-1",
        "1e308",
        "nan",
        "0x",
        "true",
        "[::1]",
        "::",
        "%",
    ];
    words.extend(marks.map(str::to_owned));
    words.sort();
    words.dedup();
    words
}
