//! Macros of a source: the part of the C preprocessor that is needed to find kernels made by macros.
//!
//! Supported are macros with and without parameters, and `##`. Not supported are `#`, which makes strings
//! and never a kernel's name, and calls over several lines. Invariant: expansion ends, because its depth
//! and its output are limited.

use std::collections::HashMap;

/// Maximum depth of nested macros.
const DEPTH: usize = 16;
/// Longest line that is still expanded.
const LENGTH: usize = 1 << 20;

struct Macro {
    /// `None` without a parameter list.
    parameters: Option<Vec<String>>,
    body: String,
}

/// All macros that are defined at some place in a source.
#[derive(Default)]
pub(crate) struct Macros(HashMap<String, Macro>);

/// Splits off the word at the beginning of a text.
pub(crate) fn split_word(text: &str) -> (&str, &str) {
    let end = text
        .find(|c: char| !(c.is_alphanumeric() || c == '_'))
        .unwrap_or(text.len());
    text.split_at(end)
}

impl Macros {
    /// Makes the macros of build options: `NAME` or `NAME=VALUE` each.
    pub(crate) fn of_options<'a>(definitions: impl IntoIterator<Item = &'a str>) -> Self {
        let mut macros = Self::default();
        for definition in definitions {
            let (name, value) = definition.split_once('=').unwrap_or((definition, "1"));
            macros.define(&format!("{name} {value}"));
        }
        macros
    }

    pub(crate) fn is_defined(&self, name: &str) -> bool {
        self.0.contains_key(name)
    }

    pub(crate) fn undefine(&mut self, name: &str) {
        self.0.remove(name);
    }

    /// Defines a macro from the text after `#define`.
    pub(crate) fn define(&mut self, text: &str) {
        let (name, rest) = split_word(text);
        // A parameter list follows the name without a blank.
        let list = rest.strip_prefix('(').and_then(|rest| rest.split_once(')'));
        let (parameters, body) = match list {
            Some((list, body)) => {
                let parameters = list.split(',').map(|name| name.trim().to_owned());
                (Some(parameters.collect()), body)
            }
            None => (None, rest),
        };
        let body = body.trim().to_owned();
        self.0.insert(name.to_owned(), Macro { parameters, body });
    }

    /// Returns a line with its macros replaced.
    pub(crate) fn expand(&self, line: &str) -> String {
        let mut text = String::new();
        self.expand_into(&mut text, line, DEPTH);
        text
    }

    fn expand_into(&self, text: &mut String, line: &str, depth: usize) {
        let mut rest = line;
        while let Some(first) = rest.chars().next() {
            let (word, after) = split_word(rest);
            if word.is_empty() || text.len() > LENGTH {
                text.push(first);
                rest = &rest[first.len_utf8()..];
                continue;
            }
            rest = after;
            let call = self.0.get(word).filter(|_| depth > 0);
            let body = call.and_then(|found| {
                let Some(parameters) = &found.parameters else {
                    return Some((found.body.clone(), after));
                };
                let (arguments, after) = arguments(after)?;
                Some((substitute(&found.body, parameters, &arguments), after))
            });
            match body {
                Some((body, after)) => {
                    self.expand_into(text, &body, depth - 1);
                    rest = after;
                }
                None => text.push_str(word),
            }
        }
    }
}

/// Returns the arguments in parentheses at the beginning of a text, and the rest.
fn arguments(text: &str) -> Option<(Vec<&str>, &str)> {
    let inside = text.trim_start().strip_prefix('(')?;
    let mut arguments = Vec::new();
    let (mut start, mut depth) = (0, 0);
    for (at, c) in inside.char_indices() {
        match c {
            '(' => depth += 1,
            ')' | ',' if depth == 0 => {
                arguments.push(inside[start..at].trim());
                start = at + 1;
                if c == ')' {
                    return Some((arguments, &inside[start..]));
                }
            }
            ')' => depth -= 1,
            _ => {}
        }
    }
    None
}

/// Replaces parameters by arguments in a body, and applies `##`.
fn substitute(body: &str, parameters: &[String], arguments: &[&str]) -> String {
    let mut text = String::new();
    let mut rest = body;
    while let Some(first) = rest.chars().next() {
        if let Some(after) = rest.trim_start().strip_prefix("##") {
            text.truncate(text.trim_end().len());
            rest = after.trim_start();
            continue;
        }
        let (word, after) = split_word(rest);
        let place = parameters.iter().position(|name| name == word);
        match place {
            Some(place) => text.push_str(arguments.get(place).unwrap_or(&"")),
            None if word.is_empty() => text.push(first),
            None => text.push_str(word),
        }
        rest = if word.is_empty() {
            &rest[first.len_utf8()..]
        } else {
            after
        };
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn expanded(definitions: &[&str], line: &str) -> String {
        let mut macros = Macros::default();
        for definition in definitions {
            macros.define(definition);
        }
        macros.expand(line)
    }

    #[test]
    fn macros_are_replaced() {
        assert_eq!(expanded(&["N 4"], "float N N4 x##N"), "float 4 N4 x##4");
        let sum = "KRN(T, n) kernel void sum_##T ## n(global T *a, int b)";
        let text = expanded(&[sum, "ALL(n) KRN(float, n) {} KRN(int, n) {}"], "ALL(2)");
        assert_eq!(
            text,
            "kernel void sum_float2(global float *a, int b) {} \
             kernel void sum_int2(global int *a, int b) {}"
        );
        assert_eq!(expanded(&["F(a) [a]"], "F F((1, 2)) F("), "F [(1, 2)] F(");
    }

    #[test]
    fn expansion_ends() {
        assert_eq!(expanded(&["A A"], "A"), "A");
        let grows = expanded(&["A A A A A A A A A"], "A");
        assert!(grows.len() < 2 * LENGTH + 64, "{}", grows.len());
    }
}
