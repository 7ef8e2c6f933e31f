//! Source text as the first translation phases see it: after line splices, comments, digraphs and
//! trigraphs.
//!
//! This module recognises words, names and line ends, but no directives. Invariant: every step moves
//! forward.

use std::borrow::Cow;

use super::Header;

/// A reading position in a source text; see the module.
#[derive(Debug)]
pub(super) struct Text<'a> {
    pub(super) source: &'a [u8],
    /// Offset of the next byte to read.
    pub(super) at: usize,
}

/// The length of the line splice at the start of `rest`. As in Clang, blanks may precede the newline,
/// which is LF, CR, or both in either order.
pub(super) fn splice(rest: &[u8]) -> Option<usize> {
    let mark = if rest.starts_with(b"\\") {
        1
    } else if rest.starts_with(b"??/") {
        3
    } else {
        return None;
    };
    let blanks = rest[mark..]
        .iter()
        .take_while(|b| matches!(b, b' ' | b'\t' | 0x0b | 0x0c))
        .count();
    let at = mark + blanks;
    match (rest.get(at)?, rest.get(at + 1)) {
        (b'\n', Some(b'\r')) | (b'\r', Some(b'\n')) => Some(at + 2),
        (b'\n' | b'\r', _) => Some(at + 1),
        _ => None,
    }
}

pub(super) fn begins_splice(byte: u8) -> bool {
    matches!(byte, b'\\' | b'?')
}

pub(super) fn ends_line(byte: u8) -> bool {
    matches!(byte, b'\n' | b'\r')
}

fn is_of_word(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte == b'_'
}

/// Whether code that reads a line must look at this byte: a line end, a quote, or a byte that may begin a
/// comment or a splice.
fn matters_in_line(byte: u8) -> bool {
    ends_line(byte) || matches!(byte, b'"' | b'\'' | b'/') || begins_splice(byte)
}

impl<'a> Text<'a> {
    fn rest(&self) -> &'a [u8] {
        &self.source[self.at..]
    }

    /// The next character, after line splices.
    pub(super) fn peek(&mut self) -> Option<u8> {
        // Nearly all bytes begin no splice.
        match self.source.get(self.at) {
            Some(b'\\' | b'?') => {}
            byte => return byte.copied(),
        }
        loop {
            let rest = self.rest();
            match splice(rest) {
                Some(length) => self.at += length,
                None => return rest.first().copied(),
            }
        }
    }

    pub(super) fn advance(&mut self) {
        if self.peek().is_some() {
            self.at += 1;
        }
    }

    pub(super) fn take(&mut self, wanted: &[u8]) -> bool {
        let begin = self.at;
        for byte in wanted {
            if self.peek() != Some(*byte) {
                self.at = begin;
                return false;
            }
            self.at += 1;
        }
        true
    }

    pub(super) fn take_hash(&mut self) -> bool {
        let may_begin = matches!(self.peek(), Some(b'#' | b'%' | b'?'));
        may_begin && (self.take(b"#") || self.take(b"%:") || self.take(b"??="))
    }

    /// Moves to the next byte for which `is_sought` is true, or to the end. `is_sought` must be true for
    /// bytes that begin a splice.
    pub(super) fn skip_to(&mut self, is_sought: impl Fn(u8) -> bool) {
        let rest = self.rest();
        let next = rest.iter().position(|byte| is_sought(*byte));
        self.at += next.unwrap_or(rest.len());
    }

    /// Skips blanks and comments within a line. A block comment may span lines.
    pub(super) fn skip_blanks(&mut self) {
        loop {
            match self.peek() {
                Some(0 | b' ' | b'\t' | 0x0b | 0x0c) => self.at += 1,
                Some(b'/') if self.take(b"/*") => self.skip_comment(),
                _ => return,
            }
        }
    }

    fn skip_comment(&mut self) {
        while self.peek().is_some() {
            if self.take(b"*/") {
                return;
            }
            self.at += 1;
            self.skip_to(|byte| byte == b'*' || begins_splice(byte));
        }
    }

    /// Reads a name or a number. The result is a copy only if it contains splices.
    pub(super) fn take_word(&mut self) -> Cow<'a, str> {
        let rest = &self.source[self.at..];
        let length = rest.iter().take_while(|b| is_of_word(**b)).count();
        let ends = !rest.get(length).is_some_and(|b| begins_splice(*b));
        if let Ok(word) = std::str::from_utf8(&rest[..length])
            && ends
            && length > 0
        {
            self.at += length;
            return Cow::Borrowed(word);
        }
        let mut word = String::new();
        while let Some(byte) = self.peek().filter(|b| is_of_word(*b)) {
            word.push(char::from(byte));
            self.at += 1;
        }
        Cow::Owned(word)
    }

    /// Whether this word comes next.
    pub(super) fn is_word(&self, word: &str) -> bool {
        let (source, at) = (self.source, self.at);
        Text { source, at }.take_word() == word
    }

    pub(super) fn take_header(&mut self) -> Option<Header> {
        let close = match self.peek()? {
            b'"' => b'"',
            b'<' => b'>',
            _ => return None,
        };
        self.at += 1;
        let mut name = Vec::new();
        loop {
            match self.peek()? {
                byte if ends_line(byte) => return None,
                byte if byte == close => {
                    self.at += 1;
                    return Some(Header {
                        name,
                        quoted: close == b'"',
                    });
                }
                byte => {
                    name.push(byte);
                    self.at += 1;
                }
            }
        }
    }

    /// Moves to the newline that ends the line, taking everything verbatim.
    pub(super) fn skip_rest(&mut self) {
        while self.peek().is_some_and(|b| !ends_line(b)) {
            self.at += 1;
            self.skip_to(|byte| ends_line(byte) || begins_splice(byte));
        }
    }

    /// Moves to the newline that ends the line, skipping strings and comments.
    pub(super) fn skip_line(&mut self) {
        let mut quote = None;
        while let Some(byte) = self.peek() {
            match (quote, byte) {
                (_, b'\n' | b'\r') => return,
                (Some(_), b'\\') => {
                    self.at += 1;
                    if self.peek().is_some_and(|b| !ends_line(b)) {
                        self.at += 1;
                    }
                    continue;
                }
                (Some(open), byte) if byte == open => quote = None,
                (None, b'"' | b'\'') => quote = Some(byte),
                (None, b'/') => {
                    if self.take(b"/*") {
                        self.skip_comment();
                        continue;
                    }
                    if self.take(b"//") {
                        self.skip_rest();
                        return;
                    }
                }
                _ => {}
            }
            self.at += 1;
            self.skip_to(matters_in_line);
        }
    }
}
