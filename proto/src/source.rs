//! OpenCL C source text as far as both ends must read it alike: where a text includes another, and the
//! words of build options.
//!
//! The client replaces directives that include its own headers by their text ([`Directives`]). The worker
//! allows no other file of its node to be included ([`Suspects`]). So the worker refuses a directive that
//! the client overlooks.
//!
//! This is no preprocessor. [`Directives`] returns the directives that OpenCL C sees after line splices,
//! comments, digraphs and trigraphs. Conditions and macros are not evaluated.
//!
//! Invariant: every function ends for every input, and allocates no more than the length of the text.

mod suspects;
mod text;

use std::borrow::Cow;

pub use self::suspects::{Suspect, Suspects};
use self::text::{Text, begins_splice, ends_line};

/// Directives that include a file.
const INCLUDES: [&str; 4] = ["include", "include_next", "import", "embed"];
/// Byte order mark, which Clang skips at the start of a text, and only there.
const BYTE_ORDER_MARK: &[u8] = b"\xEF\xBB\xBF";

/// The text without its byte order mark. Callers that put other text in front must remove the mark.
#[must_use]
pub fn without_mark(source: &[u8]) -> &[u8] {
    source.strip_prefix(BYTE_ORDER_MARK).unwrap_or(source)
}

/// Bytes of any encoding as text. Each byte becomes the character with its number, so ASCII stays
/// readable.
#[must_use]
pub fn wide(bytes: &[u8]) -> String {
    bytes.iter().copied().map(char::from).collect()
}

/// The bytes from which [`wide`] made a text. Characters above 255 become `?`.
#[must_use]
pub fn narrow(text: &str) -> Vec<u8> {
    let byte = |c: char| u8::try_from(c).unwrap_or(b'?');
    text.chars().map(byte).collect()
}

/// Splits build options into words, which are separated by blanks outside of quotes.
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

/// `source` without line splices, and with every spelling of `#` replaced by `#`.
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

/// The name in an include directive.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Header {
    /// The name between the delimiters, in any encoding.
    pub name: Vec<u8>,
    /// Whether the name is in quotes, not angle brackets. The compiler then looks in the including file's
    /// folder first.
    pub quoted: bool,
}

/// A preprocessing directive of any kind.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Directive {
    /// The directive's word: `define`, `if`…; empty for a null directive or a line marker.
    pub word: String,
    /// Offset of its `#`, without the blanks before it.
    pub start: usize,
    /// Offset of the text after the word and its blanks.
    pub argument: usize,
    /// Offset of the newline that ends the directive, or of the end of the text.
    pub end: usize,
}

impl Directive {
    /// The header that this directive includes, if it is an include directive with a literal name.
    #[must_use]
    pub fn header(&self, source: &[u8]) -> Option<Header> {
        let at = self.argument;
        let is_include = INCLUDES.contains(&&*self.word);
        is_include.then(|| Text { source, at }.take_header())?
    }
}

/// Iterates over the directives of a text, in order.
#[derive(Debug)]
pub struct Directives<'a> {
    text: Text<'a>,
}

impl<'a> Directives<'a> {
    /// The directives in `source`.
    #[must_use]
    pub fn of(source: &'a [u8]) -> Directives<'a> {
        let at = source.len() - without_mark(source).len();
        Directives {
            text: Text { source, at },
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
                let word = text.take_word().into_owned();
                // Clang reads these texts verbatim: nothing in them begins a comment. It reads `#error`
                // verbatim too. But where an `#error` is compiled the build fails anyway, and in a
                // skipped group comments count.
                let mut as_is = word == "warning";
                if !as_is {
                    text.skip_blanks();
                    as_is = word == "pragma" && text.is_word("mark");
                }
                let argument = text.at;
                if INCLUDES.contains(&&*word) {
                    // Quotes in a header's name do not begin a string.
                    text.take_header();
                }
                if as_is {
                    text.skip_rest();
                } else {
                    text.skip_line();
                }
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

/// The text without line continuations: each backslash before a line end, also as a trigraph or with blanks behind
/// it.
#[must_use]
pub fn spliced(text: &[u8]) -> Cow<'_, [u8]> {
    if !text.contains(&b'\\') && !contains(text, b"??/") {
        return Cow::Borrowed(text);
    }
    let mut spliced = Vec::with_capacity(text.len());
    let mut rest = text;
    while let Some((&first, behind)) = rest.split_first() {
        match behind_splice(rest) {
            Some(next) => rest = next,
            None => {
                spliced.push(first);
                rest = behind;
            }
        }
    }
    Cow::Owned(spliced)
}

/// Returns the text behind the line continuation with which a text begins.
fn behind_splice(text: &[u8]) -> Option<&[u8]> {
    let behind = (text.strip_prefix(b"\\")).or_else(|| text.strip_prefix(b"??/"))?;
    let blanks = behind
        .iter()
        .take_while(|byte| matches!(byte, b' ' | b'\t' | b'\x0B' | b'\x0C'));
    let end = &behind[blanks.count()..];
    (end.strip_prefix(b"\r\n"))
        .or_else(|| end.strip_prefix(b"\n"))
        .or_else(|| end.strip_prefix(b"\r"))
}

/// Whether `word` occurs anywhere in a text.
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

/// Whether a text has only blanks and comments.
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
        let source = source.as_bytes();
        Directives::of(source)
            .filter_map(|directive| directive.header(source))
            .map(|header| (wide(&header.name), header.quoted))
            .collect()
    }

    #[test]
    fn names_and_how_they_are_written() {
        let source =
            "#include \"a b.h\"\n # include <sys/c.h> // d\n//#include <e>\n#include MACRO\n";
        let expected = [("a b.h".to_owned(), true), ("sys/c.h".to_owned(), false)];
        assert_eq!(headers(source), expected);
    }

    #[test]
    fn names_have_any_encoding() {
        let source = b"#include \"caf\xe9.h\"\n";
        let found = Directives::of(source).next().unwrap();
        assert_eq!(found.header(source).unwrap().name, b"caf\xe9.h");
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

    // Skipping several bytes at once must not miss a splice, or the end of a quote or comment.
    #[test]
    fn directives_behind_long_lines_are_seen() {
        for before in [
            "int x = 1 / 2; char *s = \"/* # \\\" \";\n\n\r\n\n",
            "int x; // 'a \\ \nint y '\n",
            "/* ** / #no\n#no *\\\n/ ",
            "int a ??/\n = '\\'' ? 1 : 2; // \r",
            "",
            "\u{feff}",
            "\0",
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
    fn texts_of_warnings_begin_no_comment() {
        let words = |source: &str| -> Vec<String> {
            let found = Directives::of(source.as_bytes());
            found.map(|directive| directive.word).collect()
        };
        for line in [
            "#warning /* x",
            "#pragma mark /* x",
            "# pragma\tmark\\\n /*",
        ] {
            assert_eq!(words(&format!("{line}\n#include <a>\n")).len(), 2, "{line}");
        }
        assert_eq!(
            words("#pragma marker /*\n#include <a>\n*/\n#if\n"),
            ["pragma", "if"]
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
