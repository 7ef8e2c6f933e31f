//! Parses a line of the fake driver's log.
//!
//! The meaning of the calls is not handled here. Invariant: a line is parsed completely or not at all.

use std::collections::BTreeMap;

/// One call.
#[derive(Debug)]
pub(crate) struct Call {
    /// The function.
    pub(crate) name: String,
    arguments: BTreeMap<String, String>,
    /// The returned handle, or the name of the returned code.
    pub(crate) result: String,
    /// The driver's further notes, in order.
    notes: Vec<(String, String)>,
}

impl Call {
    /// Parses `name(key=value, …) = result; key=value…`.
    pub(crate) fn parse(line: &str) -> Option<Self> {
        let (name, rest) = line.split_once('(')?;
        let pieces = split(rest, ')');
        let (arguments, rest) = rest.split_at(pieces.first()?.len());
        let rest = rest.strip_prefix(") = ")?;
        let mut tail = rest.split("; ");
        let result = tail.next()?.to_owned();
        Some(Self {
            name: name.to_owned(),
            arguments: split(arguments, ',').into_iter().filter_map(pair).collect(),
            result,
            notes: tail.filter_map(pair).collect(),
        })
    }

    /// Returns an argument; empty if the call has no argument of this name.
    pub(crate) fn argument(&self, name: &str) -> &str {
        self.arguments.get(name).map_or("", String::as_str)
    }

    /// Returns an argument as a number, decimal or with `0x`.
    pub(crate) fn number(&self, name: &str) -> u64 {
        number(self.argument(name))
    }

    /// Returns the elements of a list argument; none for `null`.
    pub(crate) fn list(&self, name: &str) -> Vec<&str> {
        elements(self.argument(name))
    }

    /// Returns a note; empty if there is none of this name.
    pub(crate) fn note(&self, name: &str) -> &str {
        let found = self.notes.iter().find(|note| note.0 == name);
        found.map_or("", |note| note.1.as_str())
    }

    /// Returns all notes of a name.
    pub(crate) fn notes<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a str> {
        let found = self.notes.iter().filter(move |note| note.0 == name);
        found.map(|note| note.1.as_str())
    }
}

/// Parses a number, decimal or with `0x`; 0 if the text is no number.
pub(crate) fn number(text: &str) -> u64 {
    match text.strip_prefix("0x") {
        Some(digits) => u64::from_str_radix(digits, 16).unwrap_or(0),
        None => text.parse().unwrap_or(0),
    }
}

/// Returns the elements of `[a,b]` or `[a, b]`.
pub(crate) fn elements(list: &str) -> Vec<&str> {
    let inside = list
        .strip_prefix('[')
        .and_then(|rest| rest.strip_suffix(']'));
    let elements = inside.unwrap_or("").split(',').map(str::trim);
    elements.filter(|element| !element.is_empty()).collect()
}

fn pair(text: &str) -> Option<(String, String)> {
    let (key, value) = text.trim().split_once('=')?;
    Some((key.to_owned(), value.to_owned()))
}

/// Splits at a character outside of brackets and quotes.
fn split(text: &str, at: char) -> Vec<&str> {
    let mut pieces = Vec::new();
    let (mut start, mut depth, mut quoted, mut escaped) = (0, 0, false, false);
    for (place, c) in text.char_indices() {
        match c {
            '\\' if quoted && !escaped => {
                escaped = true;
                continue;
            }
            '"' if !escaped => quoted = !quoted,
            _ if quoted => {}
            '[' | '(' => depth += 1,
            c if c == at && depth == 0 => {
                pieces.push(&text[start..place]);
                start = place + c.len_utf8();
            }
            ']' | ')' => depth -= 1,
            _ => {}
        }
        escaped = false;
    }
    pieces.push(&text[start..]);
    pieces
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_taken_apart() {
        let call = Call::parse(
            "clBuild(program=program#1, list=[device#1,device#2], sizes=[1, 2], \
             options=\"-D\\\"a, b)\\\" [\", n=0x10) = CL_SUCCESS; kernel=k#1:a; kernel=k#2:b",
        )
        .unwrap();
        assert_eq!(call.name, "clBuild");
        assert_eq!(call.list("list"), ["device#1", "device#2"]);
        assert_eq!(call.list("sizes"), ["1", "2"]);
        assert_eq!(call.argument("options"), "\"-D\\\"a, b)\\\" [\"");
        assert_eq!(call.number("n"), 16);
        assert_eq!(call.result, "CL_SUCCESS");
        assert_eq!(call.notes("kernel").collect::<Vec<_>>(), ["k#1:a", "k#2:b"]);
        assert!(call.list("options").is_empty());
    }

    #[test]
    fn what_is_no_call_is_refused() {
        assert!(Call::parse("").is_none());
        assert!(Call::parse("clFinish(queue=queue#1").is_none());
    }
}
