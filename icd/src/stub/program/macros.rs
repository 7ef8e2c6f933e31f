//! Macros, as far as an `#include` that names its file by one needs them.
//!
//! `#include HEADER` with `-DHEADER="\"x.h\""`, and names glued from a folder given by `-D` and a file's
//! name, as in `#include STRING(FOLDER/x.h)`. Object-like and function-like macros and `#` are known.
//!
//! What it is not: a preprocessor. Conditions are not looked at: of several definitions the last stands.
//! Invariant: expansion ends and its result is short.

use std::collections::HashMap;

use causeway_proto::source::{Header, words};

/// Macros inside of macros; more is a circle.
const MAX_DEPTH: usize = 32;
/// No file's name is longer.
const MAX_NAME: usize = 4096;

#[derive(Debug, Default)]
pub(super) struct Macros {
    known: HashMap<String, Macro>,
}

#[derive(Clone, Debug)]
struct Macro {
    // None: object-like.
    parameters: Option<Vec<String>>,
    body: Vec<Token>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Token {
    Word(String),
    // A literal, with its quotes.
    Text(String),
    Blank,
    Mark(char),
}

impl Macros {
    /// Those that `-D` defines.
    pub(super) fn of_options(options: &str) -> Macros {
        let mut macros = Macros::default();
        let mut words = words(options).into_iter();
        while let Some(word) = words.next() {
            // The whole definition may stand in quotes, and so may its value.
            let Some(joined) = unquoted(word).strip_prefix("-D") else {
                continue;
            };
            let definition = if joined.is_empty() {
                unquoted(words.next().unwrap_or(""))
            } else {
                joined
            };
            let (name, value) = definition.split_once('=').unwrap_or((definition, "1"));
            macros.define(name, None, &value.replace("\\\"", "\""));
        }
        macros
    }

    /// Takes in the definitions of a piece of text that ends with a whole line.
    pub(super) fn read(&mut self, text: &[u8]) {
        let text = String::from_utf8_lossy(text);
        let joined = text.replace("\\\r\n", " ").replace("\\\n", " ");
        for line in joined.lines() {
            let directive = line.trim_start().strip_prefix('#').map(str::trim_start);
            if let Some(rest) = directive.and_then(|rest| rest.strip_prefix("define")) {
                self.read_definition(rest.trim_start());
            }
        }
    }

    fn read_definition(&mut self, rest: &str) {
        let end = rest.find(|c: char| !is_word(c)).unwrap_or(rest.len());
        let (name, rest) = rest.split_at(end);
        // Only a parenthesis right behind the name begins parameters.
        match rest.strip_prefix('(').and_then(|rest| rest.split_once(')')) {
            Some((parameters, body)) => {
                let parameters = parameters.split(',').map(|one| one.trim().to_owned());
                self.define(name, Some(parameters.collect()), body);
            }
            None => self.define(name, None, rest),
        }
    }

    fn define(&mut self, name: &str, parameters: Option<Vec<String>>, body: &str) {
        if !name.is_empty() {
            let body = tokens(body.trim());
            self.known
                .insert(name.to_owned(), Macro { parameters, body });
        }
    }

    /// The header that an argument of `#include` comes to, if it is one.
    pub(super) fn header(&self, argument: &[u8]) -> Option<Header> {
        let argument = std::str::from_utf8(argument).ok()?;
        let expanded = self.expand(&tokens(argument.trim()), MAX_DEPTH)?;
        let text = spelled(&expanded);
        let text = text.trim();
        let (open, close) = (text.chars().next()?, text.chars().last()?);
        if text.len() < 3 || !matches!((open, close), ('"', '"') | ('<', '>')) {
            return None;
        }
        Some(Header {
            name: text[1..text.len() - 1].to_owned(),
            quoted: open == '"',
        })
    }

    // None: a circle, or too long.
    fn expand(&self, tokens: &[Token], depth: usize) -> Option<Vec<Token>> {
        let depth = depth.checked_sub(1)?;
        let mut out = Vec::new();
        let mut rest = tokens;
        while let Some((first, behind)) = rest.split_first() {
            rest = behind;
            let Token::Word(word) = first else {
                out.push(first.clone());
                continue;
            };
            let replaced = match self.known.get(word) {
                None => None,
                Some(of) => match &of.parameters {
                    None => Some(of.body.clone()),
                    Some(parameters) => arguments(behind).map(|(given, after)| {
                        rest = after;
                        self.filled(of, parameters, &given, depth)
                    }),
                },
            };
            match replaced {
                // A macro is not expanded in its own expansion.
                Some(body) if body != [first.clone()] => out.extend(self.expand(&body, depth)?),
                _ => out.push(first.clone()),
            }
            if out.len() > MAX_NAME {
                return None;
            }
        }
        Some(out)
    }

    fn filled(
        &self,
        of: &Macro,
        parameters: &[String],
        given: &[Vec<Token>],
        depth: usize,
    ) -> Vec<Token> {
        let argument = |token: &Token| match token {
            Token::Word(word) => {
                let place = parameters.iter().position(|one| one == word)?;
                Some(given.get(place).cloned().unwrap_or_default())
            }
            _ => None,
        };
        let mut out = Vec::new();
        let mut body = of.body.iter().peekable();
        while let Some(token) = body.next() {
            if *token == Token::Mark('#')
                && let Some(given) = body.peek().and_then(|next| argument(next))
            {
                body.next();
                out.push(Token::Text(format!("\"{}\"", spelled(&given).trim())));
            } else if let Some(given) = argument(token) {
                out.extend(self.expand(&given, depth).unwrap_or_default());
            } else {
                out.push(token.clone());
            }
        }
        out
    }
}

/// Without quotes around the whole.
fn unquoted(word: &str) -> &str {
    let inner = word
        .strip_prefix('"')
        .and_then(|word| word.strip_suffix('"'));
    inner.unwrap_or(word)
}

/// The arguments of a function-like macro, and what stands behind them.
fn arguments(tokens: &[Token]) -> Option<(Vec<Vec<Token>>, &[Token])> {
    let start = tokens.iter().position(|token| *token != Token::Blank)?;
    if tokens[start] != Token::Mark('(') {
        return None;
    }
    let (mut given, mut depth) = (vec![Vec::new()], 0);
    for (place, token) in tokens.iter().enumerate().skip(start + 1) {
        match token {
            Token::Mark(')') if depth == 0 => return Some((given, &tokens[place + 1..])),
            Token::Mark(',') if depth == 0 => {
                given.push(Vec::new());
                continue;
            }
            Token::Mark('(') => depth += 1,
            Token::Mark(')') => depth -= 1,
            _ => {}
        }
        given.last_mut()?.push(token.clone());
    }
    None
}

fn is_word(c: char) -> bool {
    c.is_ascii_alphanumeric() || c == '_'
}

fn tokens(text: &str) -> Vec<Token> {
    let mut out = Vec::new();
    let mut rest = text;
    while let Some(first) = rest.chars().next() {
        let length = match first {
            c if is_word(c) => rest.find(|c| !is_word(c)).unwrap_or(rest.len()),
            '"' => rest[1..].find('"').map_or(rest.len(), |end| end + 2),
            c if c.is_whitespace() => rest
                .find(|c: char| !c.is_whitespace())
                .unwrap_or(rest.len()),
            c => c.len_utf8(),
        };
        let (piece, after) = rest.split_at(length);
        rest = after;
        out.push(match first {
            c if is_word(c) => Token::Word(piece.to_owned()),
            '"' => Token::Text(piece.to_owned()),
            c if c.is_whitespace() => Token::Blank,
            '/' if rest.starts_with('/') || rest.starts_with('*') => return out,
            c => Token::Mark(c),
        });
    }
    out
}

fn spelled(tokens: &[Token]) -> String {
    let mut text = String::new();
    for token in tokens {
        match token {
            Token::Word(piece) | Token::Text(piece) => text.push_str(piece),
            Token::Blank => text.push(' '),
            Token::Mark(c) => text.push(*c),
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn name(options: &str, text: &str, argument: &str) -> Option<(String, bool)> {
        let mut macros = Macros::of_options(options);
        macros.read(text.as_bytes());
        let header = macros.header(argument.as_bytes())?;
        Some((header.name, header.quoted))
    }

    fn quoted(name: &str) -> Option<(String, bool)> {
        Some((name.to_owned(), true))
    }

    #[test]
    fn a_header_named_by_an_option_or_a_definition() {
        assert_eq!(name("-D H=\\\"x.h\\\"", "", "H"), quoted("x.h"));
        assert_eq!(name("-DH=\"y.h\" -w", "", "H"), quoted("y.h"));
        let text = "#define A B\n # define B <in/x.h>\n";
        assert_eq!(name("", text, "A // which"), Some(("in/x.h".into(), false)));
        assert_eq!(
            name("", "#define B <a>\n#define B \\\n \"b\"\n", "B"),
            quoted("b")
        );
    }

    #[test]
    fn a_folder_and_a_name_are_glued_by_stringification() {
        let text = "#define TEXT(x) #x\n#define STRING(x) TEXT(x)\n";
        let options = "-D FOLDER=/opt/some-kernels/cl";
        let found = name(options, text, "STRING(FOLDER/inc_types.h)");
        assert_eq!(found, quoted("/opt/some-kernels/cl/inc_types.h"));
    }

    #[test]
    fn what_is_no_header_is_none_and_circles_end() {
        assert_eq!(name("", "", "UNKNOWN"), None);
        assert_eq!(name("", "#define A B\n#define B A\n", "A"), None);
        assert_eq!(name("", "#define F(x) F(x)F(x)\n", "F(1)"), None);
        assert_eq!(name("", "#define F(x) x\n", "F"), None);
    }

    proptest! {
        #[test]
        fn nothing_makes_it_panic(text in "(#define [AB](\\(x\\))? [AB(),#x\" ]{0,12}\n){0,4}", argument in "[AB(),x\"<> ]{0,12}", options in "[-DA=\"\\\\ ]{0,12}") {
            let _ = name(&options, &text, &argument);
        }
    }
}
