//! The application's own headers: `-I` and `#include` refer to files of the client's machine.
//!
//! The node must not look for them among its own files. So before a build, the client inserts each header
//! in place of its directive, between line markers that keep file names and line numbers. The node's
//! compiler decides whether a place is compiled. For the same reason, a directive whose file is not found
//! stays as it is.
//!
//! If a directive names its header by macros with several definitions, only the node's compiler knows which
//! definition applies. So a numbering macro is defined behind each relevant definition, and all possible
//! files are inserted under conditions on these numbers. `__has_include` is answered here, from the files
//! of this machine.
//!
//! # Why the node's compiler does not get the files
//! The files could travel to the node instead, and its compiler could follow the directives. Names made by
//! macros prevent that, for two reasons:
//! - The worker could not refuse files of its node. It sees only `#include F`; the compiler makes
//!   `"/etc/hosts"` of it, and shows the file's lines in the log. The sandbox allows what drivers read, and
//!   older kernels have no sandbox. Test: `a_build_reads_nothing_of_the_nodes_files`.
//! - The worker could not provide the files. `-D FOLDER=/home/me/cl` and `#include STRING(FOLDER/x.h)` make a
//!   path of the client's machine, which the worker may not create. Another value of `FOLDER` would be visible
//!   to the program. Case: `headers_named_by_macros`.
//!
//! Files are read again for every build. `#pragma once` and `#import` become include guards. A guarded file
//! that was certainly compiled before is not inserted again. An unguarded file that includes itself is
//! followed while the text stays within bounds. Paths, options and texts may have any encoding; [`wide`]
//! makes text of them, and [`narrow`] reverts it.
//!
//! Not here: a preprocessor. Only [`macros`] are known, so a name that depends on compiler macros
//! (`__OPENCL_VERSION__`, `__LINE__`) is not found. Invariant: the expansion ends for all inputs, and its
//! result has a bounded size.

mod guard;
mod level;
mod macros;
mod search;
mod tokens;

use std::collections::{HashMap, HashSet};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use causeway_proto::source::{Directive, Directives, Header, narrow, plain, wide, without_mark};

use self::guard::Guard;
use self::macros::{Choice, Macros};
use self::search::{Found, Read, Search};
use self::tokens::{Token, in_parentheses, spelled, tokens_of};

pub(super) use self::level::Level;
pub(super) use self::search::from_disk;

/// Maximum nesting of files; compilers stop at 200. If the text grows too large, files that include
/// themselves are nested less deeply.
const NESTING: [usize; 5] = [200, 24, 6, 3, 1];
/// Maximum size of the whole text in bytes; a larger one would not fit into a command.
const MAX_TEXT: usize = 32 << 20;
/// Maximum number of inserted files that are inside of themselves. Without it, a text that grows too large
/// takes seconds.
const MAX_CIRCLING: usize = 20_000;

/// Prefix of a macro whose value is the number of the definition of NAME that applies.
const NUMBER_OF: &str = "CAUSEWAY_DEFINITION_OF_";
/// Operators that test for files.
const HAS: [&str; 2] = ["__has_include", "__has_include_next"];

/// Returns `source` with its headers inserted. `None` when there is nothing to insert, or more than a build
/// may have. `embedded` are the names of headers that were passed with the call; their directives stay.
pub(super) fn expand(
    source: &[u8],
    options: &[u8],
    embedded: &[&[u8]],
    read: Read<'_>,
) -> Option<Vec<u8>> {
    let (source, options) = (without_mark(source), &wide(options));
    let mut search = Search::new(options, read);
    let out = NESTING.into_iter().find_map(|nesting| {
        let mut expansion = Expansion::new(options, embedded, nesting, &mut search);
        expansion.whole(source)?;
        expansion.finished()
    });
    out.filter(|out| out != source)
}

struct Expansion<'e, 's> {
    search: &'e mut Search<'s>,
    embedded: &'e [&'e [u8]],
    nesting: usize,
    macros: Macros,
    out: Vec<u8>,
    marks: Vec<Mark>,
    // Number of inserted files that are inside of themselves.
    circling: usize,
    // The macros that conditions test.
    tested: HashSet<String>,
    // The program's text, and the nested files inside of it.
    outermost: Level,
    files: Vec<Level>,
    guards: HashMap<usize, Option<Guard>>,
    // Guarded files that have certainly been compiled.
    settled: HashSet<usize>,
}

/// Lines of this module, and their offset in the text. A directive behind them tells whether they are needed,
/// so they are inserted last.
struct Mark {
    at: usize,
    needed: Needed,
    lines: String,
}

/// The condition under which the lines of a [`Mark`] are needed.
enum Needed {
    /// A condition of the text tests this macro, which the lines define.
    Tested(String),
    /// Lines were inserted behind the mark with this index. If a compiler skips these, it also skips the
    /// markers behind them, and its line numbers are wrong after the skipped group.
    Shifted(usize),
    Always,
}

impl<'e, 's> Expansion<'e, 's> {
    fn new(
        options: &str,
        embedded: &'e [&'e [u8]],
        nesting: usize,
        search: &'e mut Search<'s>,
    ) -> Expansion<'e, 's> {
        Expansion {
            search,
            embedded,
            nesting,
            macros: Macros::of_options(options),
            out: Vec::new(),
            marks: Vec::new(),
            circling: 0,
            tested: HashSet::new(),
            outermost: Level::outermost(),
            files: Vec::new(),
            guards: HashMap::new(),
            settled: HashSet::new(),
        }
    }

    /// Expands the program's text, preceded by what the options put before it. `None` if the result is too
    /// large.
    fn whole(&mut self, source: &[u8]) -> Option<()> {
        for (name, number) in self.macros.given().to_vec() {
            let lines = numbered(&name, number) + "#line 1\n";
            self.mark(Needed::Tested(name), lines);
        }
        for name in self.search.forced.clone() {
            let line = format!("#include \"{name}\"");
            let name = narrow(&name);
            let header = Header { name, quoted: true };
            match self.search.find(&header, None, false) {
                Some(found) => self.file(&found, 1, true)?,
                // The file does not exist here; the node's compiler reports that.
                None => self.line(&line),
            }
            self.end_line();
        }
        if !self.out.is_empty() {
            self.line("#line 1");
        }
        self.text(source)
    }

    /// Appends the text of the innermost level, with its headers inserted. `None` if the result is too
    /// large.
    fn text(&mut self, text: &[u8]) -> Option<()> {
        let (mut copied, mut next) = (0, 2);
        for directive in Directives::of(text) {
            // Only blanks and comments can precede the directive on its line.
            self.out.extend_from_slice(&text[copied..directive.start]);
            next += newlines(&text[copied..directive.end]);
            copied = directive.end;
            if !self.directive(text, &directive, next)? {
                self.copy(text, &directive);
            }
            if self.out.len() > MAX_TEXT || self.circling > MAX_CIRCLING {
                return None;
            }
        }
        self.out.extend_from_slice(&text[copied..]);
        (self.out.len() <= MAX_TEXT).then_some(())
    }

    fn copy(&mut self, text: &[u8], directive: &Directive) {
        let text = &text[directive.start..directive.end];
        self.out.extend_from_slice(text);
    }

    fn mark(&mut self, needed: Needed, lines: String) {
        let at = self.out.len();
        self.marks.push(Mark { at, needed, lines });
    }

    /// Returns the expanded text with the marks that are needed. `None` if it is too large.
    fn finished(self) -> Option<Vec<u8>> {
        let (mut text, mut copied) = (Vec::with_capacity(self.out.len()), 0);
        let mut last = None;
        for (index, mark) in self.marks.iter().enumerate() {
            let is_needed = match &mark.needed {
                Needed::Tested(name) => self.tested.contains(name),
                Needed::Shifted(since) => last >= Some(*since),
                Needed::Always => true,
            };
            if is_needed {
                text.extend_from_slice(&self.out[copied..mark.at]);
                text.extend(narrow(&mark.lines));
                (copied, last) = (mark.at, Some(index));
            }
        }
        text.extend_from_slice(&self.out[copied..]);
        (text.len() <= MAX_TEXT).then_some(text)
    }

    /// Handles a directive, and returns whether a replacement was appended. `next` is the number of the
    /// line behind the directive. `None` if the result is too large.
    fn directive(&mut self, text: &[u8], directive: &Directive, next: usize) -> Option<bool> {
        let done = match directive.word.as_str() {
            "if" | "ifdef" | "ifndef" => {
                let since = self.marks.len();
                self.level().conditions.push(since);
                self.condition(text, directive)
            }
            "else" | "elif" | "endif" => {
                if !self.condition(text, directive) {
                    self.copy(text, directive);
                }
                let level = self.level();
                let line = format!("\n#line {}", level.shown_line(next));
                let since = level.conditions.pop();
                if directive.word != "endif" {
                    level.conditions.extend(since);
                }
                if let Some(since) = since {
                    self.mark(Needed::Shifted(since), line);
                }
                true
            }
            "define" | "undef" => self.definition(text, directive, next),
            "pragma" if !self.files.is_empty() && guard::is_once(text, directive) => {
                // The guard around the file replaces it. The number of lines stays.
                let lines = newlines(&text[directive.start..directive.end]);
                self.out.extend(std::iter::repeat_n(b'\n', lines));
                true
            }
            "line" | "" => {
                let argument = &text[directive.argument..directive.end];
                self.level().renumber(argument, next);
                false
            }
            "include" | "include_next" | "import" => {
                let Some(header) = directive.header(text) else {
                    return self.computed(text, directive, next);
                };
                let Some(found) = self.found(&header, &directive.word) else {
                    return Some(false);
                };
                self.file(&found, next, true)?;
                true
            }
            _ => false,
        };
        Some(done)
    }

    /// Returns the file that a directive refers to, if it is to be inserted.
    fn found(&mut self, header: &Header, word: &str) -> Option<Found> {
        if self.embedded.contains(&&header.name[..]) || self.files.len() >= NESTING[0] {
            return None;
        }
        let found = self.there(header, word)?;
        if word == "import" {
            // From here on, the file is compiled only if no copy of it was compiled before.
            self.guards.insert(found.number, Some(Guard::Once));
            self.tested.insert(Guard::Once.name(&found.path));
        }
        // An unguarded file inside of itself is followed only `nesting` levels deep.
        let inside = |level: &&Level| level.number == Some(found.number) && !level.guarded;
        let depth = self.files.iter().filter(inside).count();
        self.circling += usize::from(depth > 0);
        (depth < self.nesting).then_some(found)
    }

    // The file on this machine for a directive or operator `word`.
    fn there(&mut self, header: &Header, word: &str) -> Option<Found> {
        let next = word.ends_with("_next");
        self.search.find(header, self.files.last(), next)
    }

    /// Appends a file in place of a directive, and a marker back to line `next`. `sure`: the directive is
    /// certainly compiled if its surroundings are.
    fn file(&mut self, found: &Found, next: usize, sure: bool) -> Option<()> {
        let path = &found.path;
        let guard = self.guards.entry(found.number);
        let guard = guard.or_insert_with(|| Guard::of(&found.contents)).clone();
        let name = guard.as_ref().map(|guard| guard.name(path));
        let undefined = |name: &String| self.macros.is_undefined(name);
        let inside = |level: &Level| level.number == Some(found.number) && level.guarded;
        let settled = self.settled.contains(&found.number) && !name.as_ref().is_some_and(undefined);
        // The guard would make this copy empty.
        if settled || self.files.iter().any(inside) {
            self.relocate(next);
            return Some(());
        }
        let sure = sure && self.level().is_sure();
        // If the guard's macro is already defined, the whole file is skipped.
        let defined = |name: &String| self.macros.is_defined(name);
        let first = !name.as_ref().is_some_and(defined);
        let once = Guard::Once.name(path);
        if guard.is_none() {
            // A later `#import` tests whether this copy was compiled.
            self.mark(Needed::Tested(once.clone()), format!("#define {once}\n"));
        }
        self.mark(Needed::Always, String::new());
        self.line(&format!("# 1 \"{}\" 1", quoted(path)));
        let wrapped = guard == Some(Guard::Once);
        if wrapped {
            self.macros.define(&once);
            self.line(&format!("#ifndef {once}\n#define {once}\n#line 1"));
        }
        self.files
            .push(Level::of_file(found, guard.as_ref(), sure && first));
        self.text(&found.contents)?;
        self.end_line();
        self.files.pop();
        if wrapped {
            self.line("#endif");
        }
        if sure && guard.is_some() {
            self.settled.insert(found.number);
        }
        let back = self.level().way_back(next);
        self.out.extend(narrow(&back));
        Some(())
    }

    /// Handles a directive whose header is named by macros: appends all files that it may refer to.
    fn computed(&mut self, text: &[u8], directive: &Directive, next: usize) -> Option<bool> {
        let argument = tokens_of(&text[directive.argument..directive.end]);
        let mut word = "#if";
        for choice in self.macros.choices(&argument).unwrap_or_default() {
            let Some(header) = &choice.header else {
                continue;
            };
            let embedded = self.embedded.contains(&&header.name[..]);
            let found = self.found(header, &directive.word);
            if !embedded && found.is_none() {
                continue;
            }
            let names = choice.when.iter().map(|(name, _)| name.clone());
            self.tested.extend(names);
            self.line(&format!("{word} {}", condition_of(&choice)));
            word = "#elif";
            match found {
                Some(found) => self.file(&found, next, false)?,
                None => self.line(&format!("#include \"{}\"", wide(&header.name))),
            }
            self.end_line();
        }
        if word == "#if" {
            return Some(false);
        }
        self.mark(Needed::Always, String::new());
        // The original directive stays for all other cases, so that the node's compiler reports the missing
        // header.
        self.line("#else");
        self.relocate(next - 1);
        self.end_line();
        self.copy(text, directive);
        self.line("\n#endif");
        self.relocate(next);
        Some(true)
    }

    /// Appends a `#define` or `#undef`, and marks the number of the definition; returns whether it did.
    fn definition(&mut self, text: &[u8], directive: &Directive, next: usize) -> bool {
        let argument = plain(&text[directive.argument..directive.end]);
        let argument = wide(&argument);
        let changed = match directive.word.as_str() {
            "define" => self.macros.define(&argument),
            _ => self.macros.undefine(&argument),
        };
        let Some((name, number)) = changed else {
            return false;
        };
        self.copy(text, directive);
        let next = self.level().shown_line(next);
        let lines = format!("\n{}#line {next}", numbered(&name, number));
        self.mark(Needed::Tested(name), lines);
        true
    }

    /// Answers `__has_include` in a condition; returns whether a replacement was appended.
    fn condition(&mut self, text: &[u8], directive: &Directive) -> bool {
        let argument = &text[directive.argument..directive.end];
        let tokens = tokens_of(argument);
        let asks = |token: &Token| matches!(token, Token::Word(word) if HAS.contains(&&**word));
        if !tokens.iter().any(asks) {
            return false;
        }
        let mut out = Vec::new();
        let mut rest = &tokens[..];
        while let Some((token, behind)) = rest.split_first() {
            rest = behind;
            let Token::Word(word) = token else {
                out.push(token.clone());
                continue;
            };
            let answer = match in_parentheses(behind).filter(|_| asks(token)) {
                Some((header, after)) => self.has(header, word).inspect(|_| rest = after),
                // Without parentheses, the text only tests whether the operator exists; Clang has it.
                None => asks(token).then_some("__clang__"),
            };
            let answer = answer.unwrap_or(word);
            out.push(Token::Word(answer.to_owned()));
        }
        if out == tokens {
            return false;
        }
        self.out
            .extend_from_slice(&text[directive.start..directive.argument]);
        self.out.extend(narrow(&spelled(&out)));
        // Keep the number of lines.
        let lines = std::iter::repeat_n(b'\n', newlines(argument));
        self.out.extend(lines);
        true
    }

    // `None`: the answer depends on which definitions apply.
    fn has(&mut self, header: &[Token], operator: &str) -> Option<&'static str> {
        let mut answers = self.macros.choices(header)?.into_iter().map(|choice| {
            let header = choice.header?;
            let embedded = self.embedded.contains(&&header.name[..]);
            Some(embedded || self.there(&header, operator).is_some())
        });
        let first = answers.next()??;
        let same = answers.all(|answer| answer == Some(first));
        same.then_some(if first { "1" } else { "0" })
    }

    fn level(&mut self) -> &mut Level {
        self.files.last_mut().unwrap_or(&mut self.outermost)
    }

    /// Appends a marker that the following line is line `next` of the level.
    fn relocate(&mut self, next: usize) {
        let line = format!("#line {}", self.level().shown_line(next));
        self.out.extend_from_slice(line.as_bytes());
    }

    fn line(&mut self, text: &str) {
        self.out.extend(narrow(text));
        self.out.push(b'\n');
    }

    fn end_line(&mut self) {
        if !self.out.ends_with(b"\n") {
            self.out.push(b'\n');
        }
    }
}

// The lines behind the definition of a macro, which number it.
fn numbered(name: &str, number: usize) -> String {
    let undefined = format!("#undef {NUMBER_OF}{name}\n");
    match number {
        0 => undefined,
        _ => format!("{undefined}#define {NUMBER_OF}{name} {number}\n"),
    }
}

// The condition under which this choice applies, in terms of numbered definitions.
fn condition_of(choice: &Choice) -> String {
    let one = |(name, number): &(String, usize)| format!("{NUMBER_OF}{name} == {number}");
    let all: Vec<String> = choice.when.iter().map(one).collect();
    match all.is_empty() {
        true => "1".to_owned(),
        false => all.join(" && "),
    }
}

fn newlines(text: &[u8]) -> usize {
    text.iter().filter(|&&byte| byte == b'\n').count()
}

fn quoted(path: &Path) -> String {
    let text = wide(path.as_os_str().as_bytes());
    text.replace('\\', "\\\\").replace('"', "\\\"")
}

#[cfg(test)]
mod tests;
