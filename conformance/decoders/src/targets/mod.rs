//! What reads bytes from outside.

mod fixed;
mod messages;
mod settings;
mod shared;
mod texts;
mod trust;

use std::io;

use rand::rngs::StdRng;

/// Usually a decoder may take this much, whatever the input. (TOML's and XML's readers have tables.)
const MEMORY: usize = 256 << 10;
/// And so much for each byte. An empty element of a list is two bytes on the wire, and what it is decoded to some hundred;
/// a list that grows holds three times as much for a moment.
const MEMORY_EACH: usize = 1 << 10;

/// Whether it took the input.
pub(crate) type Read = Box<dyn FnMut(&[u8]) -> bool>;

/// What valid input looks like.
pub(crate) enum Form {
    /// Protobuf.
    Message,
    /// Text, with these words.
    Text(Vec<String>),
    /// Anything else.
    Bytes,
}

/// A decoder.
pub(crate) struct Target {
    pub(crate) name: &'static str,
    pub(crate) form: Form,
    /// Valid input.
    pub(crate) valid: Vec<Vec<u8>>,
    /// Its part of all inputs.
    pub(crate) weight: u64,
    /// Bytes that it may hold, whatever the input.
    pub(crate) memory: usize,
    /// And for each byte of the input.
    pub(crate) memory_each: usize,
    /// Whether it took the input; panics if something does not hold.
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

    /// With another part of all inputs.
    fn weighing(self, weight: u64) -> Target {
        Target { weight, ..self }
    }

    /// With more memory.
    fn holding(self, memory: usize) -> Target {
        Target { memory, ..self }
    }
}

/// All of them.
pub(crate) fn all(random: &mut StdRng) -> io::Result<Vec<Target>> {
    let mut all = fixed::targets();
    all.extend(messages::targets(random));
    all.extend(texts::targets());
    all.extend(settings::targets()?);
    all.extend(trust::targets(random)?);
    all.push(shared::target()?);
    Ok(all)
}

// The words that text in these is made of, and punctuation.
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
