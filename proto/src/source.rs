//! OpenCL C as far as both ends must read it alike: where a text includes another, and what the words of
//! build options are.
//!
//! The client puts its own headers in place of the directives that name them; the worker lets no other
//! file of its node in. What one overlooked, the other must not find. No preprocessor: directives are
//! seen as the compiler sees them (after line splices, comments, digraphs and trigraphs), conditions and
//! macros are not.
//!
//! Invariant: every input ends in an answer; nothing here allocates more than the text is long.

mod text;

use self::text::{Text, begins_splice, ends_line};

const DIRECTIVES: [&str; 4] = ["include", "include_next", "import", "embed"];

/// Bytes of any encoding as text: each is the character of its number, so what is ASCII looks as it is.
#[must_use]
pub fn wide(bytes: &[u8]) -> String {
    bytes.iter().copied().map(char::from).collect()
}

/// The bytes of which [`wide`] made a text. A character that is none of its own is `?`.
#[must_use]
pub fn narrow(text: &str) -> Vec<u8> {
    let byte = |c: char| u8::try_from(c).unwrap_or(b'?');
    text.chars().map(byte).collect()
}

/// The words of build options: separated by blanks outside quotes.
#[must_use]
pub fn words(options: &str) -> Vec<&str> {
    let mut words = Vec::new();
    let mut start = None;
    let mut quote = None;
    for (at, c) in options.char_indices() {
        match (quote, c) {
            (Some(open), c) if c == open => quote = None,
            (None, '"' | '\'') => {
                quote = Some(c);
                start.get_or_insert(at);
            }
            (None, c) if c.is_ascii_whitespace() => {
                words.extend(start.take().map(|from| &options[from..at]));
            }
            _ => {
                start.get_or_insert(at);
            }
        }
    }
    words.extend(start.map(|from| &options[from..]));
    words
}

/// `source` with line splices taken out and every spelling of `#` made one.
#[must_use]
pub fn plain(source: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(source.len());
    let mut text = Text { source, at: 0 };
    while let Some(byte) = text.peek() {
        if text.take_hash() {
            out.push(b'#');
        } else {
            out.push(byte);
            text.at += 1;
        }
        let from = text.at;
        text.skip_to(|byte| matches!(byte, b'#' | b'%') || begins_splice(byte));
        out.extend_from_slice(&source[from..text.at]);
    }
    out
}

/// An include directive.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Include {
    /// `include`, or one of its kin.
    pub directive: &'static str,
    /// Offset of its `#` (blanks before it are not part of it).
    pub start: usize,
    /// Offset of what is to be included.
    pub argument: usize,
    /// Offset of the newline that ends it, or of the end of the text.
    pub end: usize,
    /// What is to be included, where it stands there by name.
    pub header: Option<Header>,
}

/// The name in an include directive.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Header {
    /// As it stands between the delimiters, of any encoding.
    pub name: Vec<u8>,
    /// In quotes, not angle brackets: looked for beside the including file first.
    pub quoted: bool,
}

/// A directive of any kind.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Directive {
    /// Its word: `define`, `if`…; empty for a null directive or a line marker.
    pub word: String,
    /// As [`Include::start`].
    pub start: usize,
    /// Offset of what stands behind the word and blanks.
    pub argument: usize,
    /// As [`Include::end`].
    pub end: usize,
}

impl Directive {
    /// As an include directive of the same text, if it is one.
    #[must_use]
    pub fn include(&self, source: &[u8]) -> Option<Include> {
        let known = |known: &&str| *known == self.word;
        let directive = DIRECTIVES.into_iter().find(known)?;
        let mut text = Text {
            source,
            at: self.argument,
        };
        Some(Include {
            directive,
            start: self.start,
            argument: self.argument,
            end: self.end,
            header: text.take_header(),
        })
    }
}

/// The directives of a text, in order.
#[derive(Debug)]
pub struct Directives<'a> {
    text: Text<'a>,
}

impl<'a> Directives<'a> {
    /// Those in `source`.
    #[must_use]
    pub fn of(source: &'a [u8]) -> Directives<'a> {
        Directives {
            text: Text { source, at: 0 },
        }
    }
}

impl Iterator for Directives<'_> {
    type Item = Directive;

    fn next(&mut self) -> Option<Directive> {
        let text = &mut self.text;
        while text.at < text.source.len() {
            text.skip_to(|byte| !ends_line(byte));
            text.skip_blanks();
            let start = text.at;
            if text.take_hash() {
                text.skip_blanks();
                let word = text.take_word();
                text.skip_blanks();
                let argument = text.at;
                if word.contains("include") || word == "import" || word == "embed" {
                    // Quotes in a header's name are none of a string.
                    text.take_header();
                }
                text.skip_line();
                return Some(Directive {
                    word,
                    start,
                    argument,
                    end: text.at,
                });
            }
            text.skip_line();
            text.advance();
        }
        None
    }
}

/// The include directives of a text, in order.
#[derive(Debug)]
pub struct Includes<'a> {
    directives: Directives<'a>,
}

impl<'a> Includes<'a> {
    /// Those in `source`.
    #[must_use]
    pub fn of(source: &'a [u8]) -> Includes<'a> {
        Includes {
            directives: Directives::of(source),
        }
    }
}

impl Iterator for Includes<'_> {
    type Item = Include;

    fn next(&mut self) -> Option<Include> {
        let source = self.directives.text.source;
        self.directives
            .find_map(|directive| directive.include(source))
    }
}

/// Whether `word` stands anywhere in a text.
#[must_use]
pub fn contains(text: &[u8], word: &[u8]) -> bool {
    let Some(first) = word.first() else {
        return true;
    };
    let mut rest = text;
    while let Some(at) = rest.iter().position(|byte| byte == first) {
        rest = &rest[at..];
        if rest.starts_with(word) {
            return true;
        }
        rest = &rest[1..];
    }
    false
}

/// Whether a text is only blanks and comments.
#[must_use]
pub fn is_blank(source: &[u8]) -> bool {
    let mut text = Text { source, at: 0 };
    while text.at < source.len() {
        text.skip_blanks();
        if text.take(b"//") {
            text.skip_rest();
        }
        match text.peek() {
            Some(byte) if ends_line(byte) => text.at += 1,
            None => return true,
            Some(_) => return false,
        }
    }
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(source: &str) -> Vec<(String, bool)> {
        let found = Includes::of(source.as_bytes());
        found
            .filter_map(|include| include.header)
            .map(|header| (wide(&header.name), header.quoted))
            .collect()
    }

    #[test]
    fn names_and_how_they_are_written() {
        let source =
            "#include \"a b.h\"\n # include <sys/c.h> // d\n//#include <e>\n#include MACRO\n";
        let expected = [("a b.h".to_owned(), true), ("sys/c.h".to_owned(), false)];
        assert_eq!(headers(source), expected);
        assert_eq!(Includes::of(source.as_bytes()).count(), 3);
    }

    #[test]
    fn names_have_any_encoding() {
        let found = Includes::of(b"#include \"caf\xe9.h\"\n").next().unwrap();
        assert_eq!(found.header.unwrap().name, b"caf\xe9.h");
        let all: Vec<u8> = (0..=255).collect();
        assert_eq!(narrow(&wide(&all)), all);
        assert_eq!(wide(b"-I caf\xe9"), "-I caf\u{e9}");
    }

    #[test]
    fn a_word_is_found_wherever_it_stands() {
        for text in ["ab", "aab", "xab", "abx", "aaxab"] {
            assert!(contains(text.as_bytes(), b"ab"), "{text}");
        }
        for text in ["", "a", "ba", "a b"] {
            assert!(!contains(text.as_bytes(), b"ab"), "{text}");
        }
        assert!(contains(b"", b""));
    }

    // What is passed over in one step may not hide a splice, a quote's end or a comment's.
    #[test]
    fn directives_behind_long_lines_are_seen() {
        for before in [
            "int x = 1 / 2; char *s = \"/* # \\\" \";\n\n\r\n\n",
            "int x; // 'a \\ \nint y '\n",
            "/* ** / #no\n#no *\\\n/ ",
            "int a ??/\n = '\\'' ? 1 : 2; // \r",
            "",
        ] {
            let source = format!("{before}#found\n");
            let words: Vec<_> = Directives::of(source.as_bytes())
                .map(|found| found.word)
                .collect();
            assert_eq!(words, ["found"], "{source:?}");
        }
        assert_eq!(plain(b"a%:b ??=\\\n#c??/\nd"), b"a#b ##cd");
    }

    #[test]
    fn directives_of_all_kinds_are_seen() {
        let source =
            b"#if A /* x\n*/ > 1\n  # define F(x) \\\n \"#\" #x\n/*\n#no\n*/ # \n%:endif // y\n";
        let words: Vec<_> = Directives::of(source).map(|found| found.word).collect();
        assert_eq!(words, ["if", "define", "", "endif"]);
        let defined = Directives::of(source).nth(1).unwrap();
        assert_eq!(
            &source[defined.argument..defined.end],
            b"F(x) \\\n \"#\" #x"
        );
    }

    #[test]
    fn comments_are_blank() {
        assert!(is_blank(b" // x\n/* y\n */ \n") && is_blank(b""));
        assert!(!is_blank(b"// x\n;") && !is_blank(b"/ *") && is_blank(b"// x \\\n int y;\n"));
    }

    #[test]
    fn words_are_separated_outside_quotes() {
        assert_eq!(
            words(" -I \"a b\"  -DX='y z'"),
            ["-I", "\"a b\"", "-DX='y z'"]
        );
    }
}
