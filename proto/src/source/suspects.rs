//! Finds words at which some compiler may read a file, under any reading of the text.
//!
//! Compilers differ in what hides a directive. `#warning /*` opens no comment, and raw strings and
//! trigraphs depend on the language. Unicode blanks and NUL bytes count as blanks, and a byte that is not
//! UTF-8 is dropped. So comments, strings, conditions and line splices hide nothing here. A word is
//! suspect wherever its introducer (the `#` of `include`, the `clang` of `module`) can precede it. A
//! false find inside of a comment or string does no harm: the caller replaces only the word, and the text
//! around it keeps its meaning.
//!
//! The result is not a list of a program's includes; see [`Directives`](super::Directives) for that.
//! Invariants: one pass in linear time. After the suspect words are replaced, no suspects are left.

use super::Header;
use super::text::{Text, ends_line, splice};

/// Directives that read a file. `__include_macros` belongs to Clang, for `-imacros`.
const DIRECTIVES: [&str; 5] = [
    "include",
    "include_next",
    "import",
    "embed",
    "__include_macros",
];
/// Namespaces of the pragmas in [`PRAGMAS`].
const NAMESPACES: [&str; 2] = ["clang", "GCC"];
/// Pragmas that read a file or reveal whether it exists. `#pragma clang module build` compiles a module
/// map, and `extern module x "file"` in it shows lines of the file.
const PRAGMAS: [&str; 3] = ["module", "dependency", "include_instead"];

/// A word at which a compiler may read a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Suspect {
    /// `include` or a related directive.
    Include {
        /// Offset of the word.
        start: usize,
        /// Offset after the word.
        end: usize,
        /// The header, if all readings agree on its name.
        header: Option<Header>,
    },
    /// A word of a pragma.
    Pragma {
        /// Offset of the word.
        start: usize,
        /// Offset after the word.
        end: usize,
    },
}

/// The introducers before a word: a `#`, the name of a namespace, both or neither.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Introduced {
    hash: bool,
    namespace: bool,
}

/// What precedes the current position, ignoring blanks and line ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Before {
    Introducer(Introduced),
    // A backslash after an introducer. It may spell a blank, as in `\u00A0` or `\N{EN SPACE}`.
    Escape(Introduced),
    Star,
    // A `*/`, which ends a comment if there is one.
    CommentEnd,
    Other,
}

/// Whether a `#` may be the first of its line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum LineStart {
    Open,
    // As `Before::Escape`.
    Escape,
    Closed,
}

/// Iterates over the suspect words of a text, in order.
#[derive(Debug)]
pub struct Suspects<'a> {
    text: Text<'a>,
    before: Before,
    line: LineStart,
    // The introducers after which a comment has begun. The end of the comment depends on the reading.
    commented: Introduced,
}

impl<'a> Suspects<'a> {
    /// The suspect words in `source`.
    #[must_use]
    pub fn of(source: &'a [u8]) -> Suspects<'a> {
        Suspects {
            text: Text { source, at: 0 },
            before: Before::Other,
            line: LineStart::Open,
            commented: Introduced::default(),
        }
    }

    /// The introducers that the next word may have.
    fn introduced(&self) -> Introduced {
        match self.before {
            Before::Introducer(by) | Before::Escape(by) => by,
            Before::CommentEnd => self.commented,
            Before::Star | Before::Other => Introduced::default(),
        }
    }

    fn step(&mut self, byte: u8) -> Option<Suspect> {
        let rest = &self.text.source[self.text.at..];
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'_' => return self.take_word(),
            b'\n' | b'\r' => {
                self.text.at += 1;
                self.line = LineStart::Open;
            }
            b'\\' => self.take_backslash(1),
            b'?' if rest.starts_with(b"??/") => self.take_backslash(3),
            b'/' => self.take_slash(),
            b'#' | b'%' | b'?' if self.text.take_hash() => self.take_hash(),
            // Blanks, and bytes that some compiler treats as blanks or drops.
            0..=b' ' | 0x7f.. => self.text.at += 1,
            _ => self.take_mark(byte),
        }
        None
    }

    fn take_word(&mut self) -> Option<Suspect> {
        let (source, start) = (self.text.source, self.text.at);
        let word = self.text.take_word();
        let end = self.text.at;
        let by = self.introduced();
        let escaped = matches!(self.before, Before::Escape(_));
        let is = |known: &&str| *word == **known || escaped && word.ends_with(known);
        let found = if by.hash && DIRECTIVES.iter().any(is) {
            let header = header(&source[end..]);
            Some(Suspect::Include { start, end, header })
        } else if by.namespace && PRAGMAS.iter().any(is) {
            Some(Suspect::Pragma { start, end })
        } else {
            None
        };
        if NAMESPACES.contains(&&*word) {
            self.before = Before::Introducer(Introduced {
                namespace: true,
                ..by
            });
        } else if !escaped {
            self.before = Before::Other;
        }
        // Splices in and after a word were read with it.
        if source[start..end].iter().any(|b| ends_line(*b)) {
            self.open_line();
        } else if self.line == LineStart::Open {
            self.line = LineStart::Closed;
        }
        found
    }

    // Called after a splice. Some compilers do not treat it as a splice, so a new line may begin here.
    fn open_line(&mut self) {
        if self.line == LineStart::Closed {
            self.line = LineStart::Open;
        }
    }

    /// Reads a backslash of `bytes` bytes, with the line end if it is a splice.
    fn take_backslash(&mut self, bytes: usize) {
        if let Some(length) = splice(&self.text.source[self.text.at..]) {
            self.text.at += length;
            self.open_line();
            return;
        }
        self.text.at += bytes;
        let by = self.introduced();
        self.before = match by == Introduced::default() {
            true => Before::Other,
            false => Before::Escape(by),
        };
        if self.line == LineStart::Open {
            self.line = LineStart::Escape;
        }
    }

    fn take_slash(&mut self) {
        self.text.at += 1;
        if self.before == Before::Star {
            self.before = Before::CommentEnd;
            self.line = LineStart::Open;
            return;
        }
        let at = self.text.at;
        let begins_comment = self.text.take(b"*");
        self.text.at = at;
        if begins_comment {
            let by = self.introduced();
            self.commented.hash |= by.hash;
            self.commented.namespace |= by.namespace;
        } else {
            self.line = LineStart::Closed;
        }
        self.before = Before::Other;
    }

    fn take_hash(&mut self) {
        self.before = match self.line {
            LineStart::Open | LineStart::Escape => Before::Introducer(Introduced {
                hash: true,
                namespace: false,
            }),
            LineStart::Closed => Before::Other,
        };
        self.line = LineStart::Closed;
    }

    fn take_mark(&mut self, byte: u8) {
        self.text.at += 1;
        let in_escape = matches!(byte, b'{' | b'}' | b'-');
        if !(in_escape && self.line == LineStart::Escape) {
            self.line = LineStart::Closed;
        }
        match self.before {
            Before::Escape(_) if in_escape => {}
            _ if byte == b'*' => self.before = Before::Star,
            _ => self.before = Before::Other,
        }
    }
}

impl Iterator for Suspects<'_> {
    type Item = Suspect;

    fn next(&mut self) -> Option<Suspect> {
        while let Some(byte) = self.text.source.get(self.text.at).copied() {
            let found = self.step(byte);
            if found.is_some() {
                return found;
            }
        }
        None
    }
}

// The header name at the start of `rest`, if it is on one line and no reading could change it.
fn header(rest: &[u8]) -> Option<Header> {
    let blanks = rest.iter().take_while(|b| matches!(b, b' ' | b'\t'));
    let (open, rest) = rest[blanks.count()..].split_first()?;
    let close = match open {
        b'"' => b'"',
        b'<' => b'>',
        _ => return None,
    };
    let length = rest.iter().position(|b| *b == close || ends_line(*b))?;
    (rest[length] == close).then(|| Header {
        name: rest[..length].to_vec(),
        quoted: close == b'"',
    })
}
