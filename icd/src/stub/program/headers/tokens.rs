//! Tokens of an `#include`'s argument and of macros, with only the kinds that naming a file needs.
//!
//! The text is in the form that [`wide`] returns.
//!
//! Not here: a compiler's lexer. Whatever is not a word, literal or `##` is a mark or a blank. Invariant:
//! `spelled` writes what `tokens` read, with each run of blanks and each comment as one space.

use causeway_proto::source::{plain, wide};

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Token {
    Word(String),
    // A string literal, with its quotes.
    Text(String),
    Blank,
    // ##
    Paste,
    Mark(char),
}

impl Token {
    /// The parentheses that the token opens; negative if it closes one.
    pub(super) fn nesting(&self) -> i32 {
        match self {
            Token::Mark('(') => 1,
            Token::Mark(')') => -1,
            _ => 0,
        }
    }
}

/// Whether the character may be part of a name or a number.
pub(super) fn is_word(c: char) -> bool {
    c.is_ascii_alphanumeric() || c == '_'
}

/// Whether compilers treat the character as a blank.
pub(super) fn is_blank(c: char) -> bool {
    c.is_ascii_whitespace() || c == '\u{b}'
}

/// Returns the text without surrounding blanks.
pub(super) fn trimmed(text: &str) -> &str {
    text.trim_matches(is_blank)
}

/// Returns the tokens of a directive's argument.
pub(super) fn tokens_of(argument: &[u8]) -> Vec<Token> {
    tokens(trimmed(&wide(&plain(argument))))
}

pub(super) fn tokens(text: &str) -> Vec<Token> {
    let mut out = Vec::new();
    let mut rest = text;
    while let Some(first) = rest.chars().next() {
        let blanks = |c: char| !is_blank(c);
        let length = match first {
            c if is_word(c) => rest.find(|c| !is_word(c)).unwrap_or(rest.len()),
            '"' => rest[1..].find('"').map_or(rest.len(), |end| end + 2),
            c if is_blank(c) => rest.find(blanks).unwrap_or(rest.len()),
            '/' if rest.starts_with("//") => rest.len(),
            '/' if rest.starts_with("/*") => rest[2..].find("*/").map_or(rest.len(), |end| end + 4),
            '#' if rest.starts_with("##") => 2,
            c => c.len_utf8(),
        };
        let (piece, after) = rest.split_at(length);
        rest = after;
        out.push(match first {
            c if is_word(c) => Token::Word(piece.to_owned()),
            '"' => Token::Text(piece.to_owned()),
            c if is_blank(c) => Token::Blank,
            '/' if length > 1 => Token::Blank,
            '#' if length > 1 => Token::Paste,
            c => Token::Mark(c),
        });
    }
    out
}

pub(super) fn spelled(tokens: &[Token]) -> String {
    let mut text = String::new();
    for token in tokens {
        match token {
            Token::Word(piece) | Token::Text(piece) => text.push_str(piece),
            Token::Blank => text.push(' '),
            Token::Paste => text.push_str("##"),
            Token::Mark(c) => text.push(*c),
        }
    }
    text
}

/// Returns the tokens inside of the parentheses that follow, and the tokens behind them.
pub(super) fn in_parentheses(tokens: &[Token]) -> Option<(&[Token], &[Token])> {
    let start = tokens.iter().position(|token| *token != Token::Blank)?;
    if tokens[start] != Token::Mark('(') {
        return None;
    }
    let mut depth = 0;
    let length = tokens[start..].iter().position(|token| {
        depth += token.nesting();
        depth == 0
    })?;
    let end = start + length;
    Some((&tokens[start + 1..end], &tokens[end + 1..]))
}
