//! What a build may read: only what came with the program, never the node's own files.
//!
//! A compiler shows the lines of a file that does not compile, so `#include "/etc/shadow"` would leak
//! it into the build log. Include directives for anything but the headers given with the program are
//! replaced, in place, by an `#error` that says so; the node's compiler decides whether the place is
//! ever reached, and line numbers stay. Options that name files or folders are taken out: they mean
//! the client's file system, and only the client can serve them.
//!
//! What it is not: no preprocessor. It sees directives as the compiler does (after line splices,
//! comments, digraphs and trigraphs) and nothing else; the argument of a directive that is itself a
//! macro counts as unknown.
#![forbid(unsafe_code)]

use std::borrow::Cow;

const DIRECTIVES: [&str; 4] = ["include", "include_next", "import", "embed"];

/// `source` with every include directive replaced that does not name one of `headers`.
pub(crate) fn sealed<'a>(source: &'a [u8], headers: &[&str]) -> Cow<'a, [u8]> {
    let mut out: Vec<u8> = Vec::new();
    let mut copied = 0;
    for found in Directives::of(source) {
        if found
            .header
            .as_deref()
            .is_some_and(|h| headers.contains(&h))
        {
            continue;
        }
        out.extend_from_slice(&source[copied..found.start]);
        out.extend_from_slice(b"#error no such header came with the program: ");
        // The argument as text, without what could end or continue the line.
        let argument = &source[found.argument..found.end];
        out.extend(argument.iter().filter(|b| !b"\n\r\\?".contains(b)));
        let lines = source[found.start..found.end]
            .iter()
            .filter(|b| **b == b'\n')
            .count();
        out.extend(std::iter::repeat_n(b'\n', lines));
        copied = found.end;
    }
    if copied == 0 {
        return Cow::Borrowed(source);
    }
    out.extend_from_slice(&source[copied..]);
    Cow::Owned(out)
}

/// Whether `source` has include directives at all.
pub(crate) fn includes(source: &[u8]) -> bool {
    Directives::of(source).next().is_some()
}

/// Options without those that name files or folders of the client.
pub(crate) fn without_paths(options: &str) -> Cow<'_, str> {
    const WITH_PATH: [&str; 8] = [
        "-include",
        "-imacros",
        "-isystem",
        "-iquote",
        "-idirafter",
        "-isysroot",
        "--sysroot",
        "-I",
    ];
    let tokens = tokens(options);
    let mut kept = Vec::new();
    let mut skip = false;
    for token in &tokens {
        if std::mem::take(&mut skip) {
            continue;
        }
        match WITH_PATH.iter().find(|o| token.starts_with(**o)) {
            // "-I dir" names its folder in the next word, "-Idir" in its own.
            Some(option) => skip = token.len() == option.len(),
            None if token.starts_with('@') => {}
            None => kept.push(*token),
        }
    }
    if kept.len() == tokens.len() {
        Cow::Borrowed(options)
    } else {
        Cow::Owned(kept.join(" "))
    }
}

/// Words separated by blanks outside quotes.
fn tokens(options: &str) -> Vec<&str> {
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

/// An include directive: from its `#` to before the newline that ends it.
struct Directive {
    start: usize,
    argument: usize,
    end: usize,
    header: Option<String>,
}

struct Directives<'a> {
    text: Text<'a>,
}

impl<'a> Directives<'a> {
    fn of(source: &'a [u8]) -> Directives<'a> {
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
            text.skip_blanks();
            let start = text.at;
            if text.take_hash() {
                text.skip_blanks();
                let word = text.take_word();
                if DIRECTIVES.contains(&word.as_str()) {
                    text.skip_blanks();
                    let argument = text.at;
                    let header = text.take_header();
                    text.skip_line();
                    return Some(Directive {
                        start,
                        argument,
                        end: text.at,
                        header,
                    });
                }
            }
            text.skip_line();
            text.advance();
        }
        None
    }
}

/// Source text, read as the first phases of translation see it.
struct Text<'a> {
    source: &'a [u8],
    at: usize,
}

impl Text<'_> {
    fn rest(&self) -> &[u8] {
        &self.source[self.at..]
    }

    /// The next character after line splices.
    fn peek(&mut self) -> Option<u8> {
        loop {
            let rest = self.rest();
            let splice: Option<usize> = [&b"\\\n"[..], b"\\\r\n", b"??/\n", b"??/\r\n"]
                .iter()
                .find(|s| rest.starts_with(s))
                .map(|s| s.len());
            match splice {
                Some(length) => self.at += length,
                None => return rest.first().copied(),
            }
        }
    }

    fn advance(&mut self) {
        if self.peek().is_some() {
            self.at += 1;
        }
    }

    fn take(&mut self, wanted: &[u8]) -> bool {
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

    fn take_hash(&mut self) -> bool {
        self.take(b"#") || self.take(b"%:") || self.take(b"??=")
    }

    /// Blanks and comments within a line; a block comment may span lines.
    fn skip_blanks(&mut self) {
        loop {
            match self.peek() {
                Some(b' ' | b'\t' | 0x0b | 0x0c | b'\r') => self.at += 1,
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
        }
    }

    fn take_word(&mut self) -> String {
        let mut word = String::new();
        while let Some(byte) = self
            .peek()
            .filter(|b| b.is_ascii_alphanumeric() || *b == b'_')
        {
            word.push(char::from(byte));
            self.at += 1;
        }
        word
    }

    fn take_header(&mut self) -> Option<String> {
        let close = match self.peek()? {
            b'"' => b'"',
            b'<' => b'>',
            _ => return None,
        };
        self.at += 1;
        let mut name = Vec::new();
        loop {
            match self.peek()? {
                b'\n' => return None,
                byte if byte == close => {
                    self.at += 1;
                    return String::from_utf8(name).ok();
                }
                byte => {
                    name.push(byte);
                    self.at += 1;
                }
            }
        }
    }

    /// To the newline that ends the line, past strings and comments in it.
    fn skip_line(&mut self) {
        let mut quote = None;
        while let Some(byte) = self.peek() {
            match (quote, byte) {
                (_, b'\n') => return,
                (Some(_), b'\\') => {
                    self.at += 1;
                    if self.peek().is_some_and(|b| b != b'\n') {
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
                        while self.peek().is_some_and(|b| b != b'\n') {
                            self.at += 1;
                        }
                        return;
                    }
                }
                _ => {}
            }
            self.at += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn seal(source: &str, headers: &[&str]) -> String {
        String::from_utf8(sealed(source.as_bytes(), headers).into_owned()).unwrap()
    }

    #[test]
    fn only_given_headers_may_be_included() {
        let source = "#include \"a.h\"\nint x;\n # include </etc/passwd>\nint y;";
        let out = seal(source, &["a.h"]);
        assert!(
            out.starts_with("#include \"a.h\"\nint x;\n #error no such header"),
            "{out}"
        );
        assert!(out.ends_with("</etc/passwd>\nint y;"), "{out}");
        assert_eq!(
            seal("int x; // #include <a>\n", &[]),
            "int x; // #include <a>\n"
        );
    }

    #[test]
    fn disguises_are_seen_through() {
        for source in [
            "%:include \"/x\"\n",
            "??=include \"/x\"\n",
            "#inc\\\nlude \"/x\"\n",
            "/* a\nb */ # /* c */ include \"/x\"\n",
            "#include MACRO\n",
            "#embed \"/x\"\n",
            "#??/\ninclude \"/x\"\n",
            "char *s = \"//\"; /* \n*/ \n#import \"/x\"\n",
        ] {
            let out = seal(source, &[]);
            assert!(out.contains("#error"), "{source:?} -> {out:?}");
            assert_eq!(out.lines().count(), source.lines().count(), "{source:?}");
            assert!(!includes(out.as_bytes()), "{out:?}");
        }
    }

    #[test]
    fn what_is_no_directive_stays() {
        for source in [
            "/* \n#include <a>\n */\n",
            "int a = b\n%c;",
            "#define include x\n",
            "",
            "#",
        ] {
            assert_eq!(seal(source, &[]), source);
        }
    }

    #[test]
    fn options_lose_their_paths_only() {
        assert_eq!(
            without_paths("-DX=1  -cl-mad-enable"),
            "-DX=1  -cl-mad-enable"
        );
        assert_eq!(without_paths("-I /etc -DX -I/tmp -I \"a b\" -w"), "-DX -w");
        assert_eq!(
            without_paths("-DT=\"-I x\" -include f -D Y"),
            "-DT=\"-I x\" -D Y"
        );
    }

    proptest! {
        #[test]
        fn sealing_ends_and_leaves_nothing(source in "[#a \\n\"</*\\\\include]{0,60}") {
            let out = seal(&source, &[]);
            prop_assert!(!includes(out.as_bytes()), "{:?} -> {:?}", source, out);
            prop_assert_eq!(seal(&out, &[]), out.clone());
            let lines = |s: &str| s.matches('\n').count();
            prop_assert_eq!(lines(&out), lines(&source));
        }

        #[test]
        fn options_never_panic(options in ".{0,40}") {
            let _ = without_paths(&options);
        }
    }
}
