//! The application's own headers: `-I` and `#include` mean files of its machine.
//!
//! The node must not look for them among its files, so they are put into the text here, before a build,
//! each in place of the directive that names it, between line markers that keep file names and line
//! numbers. Whether a place is ever compiled the node's compiler decides. A name that leads nowhere stays
//! as it is, for the same reason.
//!
//! Where a directive names its header by macros, and these have several definitions, it is the node's
//! compiler again that knows which one stands: behind each definition that matters another macro is
//! defined, as its number, and in place of the directive all files that it can come to stand under
//! conditions on these numbers. `__has_include` is answered here, from this machine's files.
//!
//! Files are read anew for every build: a header that changed changes the build. `#pragma once` and
//! `#import` become the include guards that they stand for. A guarded file that surely has been compiled
//! before is not put in again. An unguarded one that includes itself is followed as deep as the text stays
//! within bounds.
//!
//! Paths, and so options and texts, have any encoding: where they are looked at as text here, they are so in the form
//! that [`wide`] gives them, and go out by [`narrow`].
//!
//! What it is not: no preprocessor. Of macros it knows what [`macros`] knows, so a name that depends on
//! what only a compiler defines (`__OPENCL_VERSION__`, `__LINE__`) is not found. Invariant: it ends,
//! whatever the files include, and gives a text of bounded size.

mod guard;
mod level;
mod macros;
mod search;
mod tokens;

use std::collections::{BTreeSet, HashMap, HashSet};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use causeway_proto::source::{Directive, Directives, Header, narrow, plain, wide, without_mark};

use self::guard::Guard;
use self::macros::{Choice, Macros};
use self::search::{Found, Read, Search};
use self::tokens::{Token, in_parentheses, spelled, tokens_of};

pub(super) use self::level::Level;
pub(super) use self::search::from_disk;

/// Nested files; compilers stop at 200. Where the text grows too large, fewer of those that are inside of
/// themselves.
const NESTING: [usize; 5] = [200, 24, 6, 3, 1];
/// Bytes of the whole text; more would not fit a command.
const MAX_TEXT: usize = 32 << 20;
/// Files put in that are inside of themselves, or of one that is: such would go on for ever.
const MAX_CIRCLING: usize = 20_000;
/// Times that the text is begun anew because more was learned of it.
const MAX_ROUNDS: usize = 12;

/// Its value is the number of the definition of NAME that stands.
const NUMBER_OF: &str = "CAUSEWAY_DEFINITION_OF_";
/// Operators that ask for files.
const HAS: [&str; 2] = ["__has_include", "__has_include_next"];

/// `source` with the headers that it includes in place; none when there is nothing of the kind, or they
/// are more than a build takes.
///
/// `embedded` are the names of headers given with the call: these stay directives.
pub(super) fn expand(
    source: &[u8],
    options: &[u8],
    embedded: &[&[u8]],
    read: Read<'_>,
) -> Option<Vec<u8>> {
    let options = &wide(options);
    let mut search = Search::new(options, read);
    let mut learned = Learned::default();
    for nesting in NESTING {
        for _ in 0..MAX_ROUNDS {
            let before = learned.clone();
            let mut expansion =
                Expansion::new(options, embedded, nesting, &mut search, &mut learned);
            if expansion.whole(source).is_none() {
                // Files that are in no circle are as many at any depth.
                if expansion.circling == 0 {
                    return None;
                }
                break;
            }
            let Expansion { out, replaced, .. } = expansion;
            if learned == before {
                return (replaced > 0).then_some(out);
            }
        }
    }
    None
}

/// What is known of the whole text only once it has been gone through.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Learned {
    /// Macros on which the names of headers depend.
    names: BTreeSet<String>,
    /// Files that `#import` names: these are compiled once.
    imported: BTreeSet<PathBuf>,
}
struct Expansion<'e, 's> {
    search: &'e mut Search<'s>,
    learned: &'e mut Learned,
    embedded: &'e [&'e [u8]],
    nesting: usize,
    macros: Macros,
    out: Vec<u8>,
    // Directives for which something else stands.
    replaced: usize,
    // Files put in that are inside of themselves.
    circling: usize,
    // The program's text, and the files inside of it.
    outermost: Level,
    files: Vec<Level>,
    // Names that were defined, and those that were undefined, wherever.
    defined: HashSet<String>,
    undefined: HashSet<String>,
    guards: HashMap<usize, Option<Guard>>,
    // Guarded files that were put in, and those of them that surely have been compiled.
    seen: HashSet<usize>,
    settled: HashSet<usize>,
}

impl<'e, 's> Expansion<'e, 's> {
    fn new(
        options: &str,
        embedded: &'e [&'e [u8]],
        nesting: usize,
        search: &'e mut Search<'s>,
        learned: &'e mut Learned,
    ) -> Expansion<'e, 's> {
        let macros = Macros::of_options(options);
        let defined = macros.given().iter().map(|(name, _)| name.clone());
        Expansion {
            search,
            learned,
            embedded,
            nesting,
            defined: defined.collect(),
            macros,
            out: Vec::new(),
            replaced: 0,
            circling: 0,
            outermost: Level::outermost(),
            files: Vec::new(),
            undefined: HashSet::new(),
            guards: HashMap::new(),
            seen: HashSet::new(),
            settled: HashSet::new(),
        }
    }

    /// The program's text, with what the options put before it. None: it grows too large.
    fn whole(&mut self, source: &[u8]) -> Option<()> {
        for (name, number) in self.macros.given().to_vec() {
            self.number(&name, number);
        }
        for name in self.search.forced.clone() {
            let line = format!("#include \"{name}\"");
            let name = narrow(&name);
            let header = Header { name, quoted: true };
            match self.search.find(&header, None, None) {
                Some(found) => self.file(&found, 1, true)?,
                // The node says that it is not there.
                None => self.line(&line),
            }
            self.end_line();
        }
        if self.out.is_empty() {
            return self.text(source);
        }
        self.line("#line 1");
        self.text(without_mark(source))
    }

    /// Appends the innermost level's text with its headers in place.
    fn text(&mut self, text: &[u8]) -> Option<()> {
        let (mut copied, mut counted, mut next) = (0, 0, 2);
        for directive in Directives::of(text) {
            next += newlines(&text[counted..directive.end]);
            counted = directive.end;
            // What stands before the directive on its line is only blanks and comments.
            self.out.extend_from_slice(&text[copied..directive.start]);
            copied = directive.start;
            if self.directive(text, &directive, next)? {
                copied = directive.end;
            }
            if self.out.len() > MAX_TEXT || self.circling > MAX_CIRCLING {
                return None;
            }
        }
        self.out.extend_from_slice(&text[copied..]);
        (self.out.len() <= MAX_TEXT).then_some(())
    }

    /// Looks at a directive; whether what stands for it has been appended. `next` is the number of the
    /// line behind it.
    fn directive(&mut self, text: &[u8], directive: &Directive, next: usize) -> Option<bool> {
        let done = match directive.word.as_str() {
            "if" | "ifdef" | "ifndef" => {
                self.level().conditions += 1;
                self.condition(text, directive)
            }
            "elif" => self.condition(text, directive),
            "endif" => {
                let level = self.level();
                level.conditions = level.conditions.saturating_sub(1);
                false
            }
            "define" | "undef" => self.definition(text, directive, next),
            "line" | "" => {
                let argument = &text[directive.argument..directive.end];
                self.level().renumber(argument, next);
                false
            }
            "include" | "include_next" | "import" => match directive.header(text) {
                Some(header) => match self.found(&header, &directive.word) {
                    Some(found) => {
                        self.file(&found, next, true)?;
                        true
                    }
                    None => false,
                },
                None => self.computed(text, directive, next)?,
            },
            _ => false,
        };
        Some(done)
    }

    /// The file that a directive means, if it is to be put in.
    fn found(&mut self, header: &Header, word: &str) -> Option<Found> {
        if self.embedded.contains(&&header.name[..]) || self.files.len() >= NESTING[0] {
            return None;
        }
        let found = self.there(header, word)?;
        if word == "import" {
            self.learned.imported.insert(found.path.clone());
        }
        let inside = |level: &&Level| level.number == Some(found.number) && !level.guarded;
        let depth = self.files.iter().filter(inside).count();
        (depth < self.nesting).then_some(found)
    }

    // The file of this machine, for a directive or operator of this kind.
    fn there(&mut self, header: &Header, word: &str) -> Option<Found> {
        let from = self.files.last();
        let after = from
            .filter(|_| word.ends_with("_next"))
            .and_then(|level| level.folder);
        let from = from.map(|level| level.path.as_path());
        self.search.find(header, from, after)
    }

    /// Appends a file in place of a directive, and the way back to line `next`. `sure`: the directive is
    /// compiled if what stands around it is.
    fn file(&mut self, found: &Found, next: usize, sure: bool) -> Option<()> {
        self.replaced += 1;
        let path = &found.path;
        let guard = self.guard_of(found);
        let name = guard.as_ref().map(|guard| guard.name(path));
        let undefined = |name: &String| self.undefined.contains(name);
        let inside = |level: &Level| level.number == Some(found.number) && level.guarded;
        let settled = self.settled.contains(&found.number) && !name.as_ref().is_some_and(undefined);
        if settled || self.files.iter().any(inside) {
            self.relocate(next);
            return Some(());
        }
        let sure = sure && self.level().is_sure();
        // A guard that is defined already keeps all out.
        let first = name
            .as_ref()
            .is_none_or(|name| self.seen.insert(found.number) && !self.defined.contains(name));
        self.line(&format!("# 1 \"{}\" 1", quoted(path)));
        let circles = self.files.iter().any(|level| level.circles(found));
        self.circling += usize::from(circles);
        let mut level = Level::of_file(found, guard.as_ref(), sure && first);
        level.circles = circles;
        self.files.push(level);
        match (&guard, &name) {
            (Some(Guard::Once(places)), Some(name)) => {
                self.line(&format!("#ifndef {name}\n#define {name}\n#line 1"));
                self.text(&without(&found.contents, places))?;
                self.end_line();
                self.line("#endif");
            }
            _ => {
                self.text(&found.contents)?;
                self.end_line();
            }
        }
        self.files.pop();
        if sure && guard.is_some() {
            self.settled.insert(found.number);
        }
        let back = self.level().way_back(next);
        self.out.extend(narrow(&back));
        Some(())
    }

    fn guard_of(&mut self, found: &Found) -> Option<Guard> {
        let imported = self.learned.imported.contains(&found.path);
        let known = self.guards.entry(found.number);
        let of = || Guard::of(&found.contents, imported);
        known.or_insert_with(of).clone()
    }

    /// Appends, for a directive whose header is named by macros, all files that it may mean.
    fn computed(&mut self, text: &[u8], directive: &Directive, next: usize) -> Option<bool> {
        let argument = tokens_of(&text[directive.argument..directive.end]);
        let mut word = "#if";
        for choice in self.macros.choices(&argument).unwrap_or_default() {
            let names = choice.when.iter().map(|(name, _)| name.clone());
            self.learned.names.extend(names);
            let Some(header) = &choice.header else {
                continue;
            };
            let embedded = self.embedded.contains(&&header.name[..]);
            let found = self.found(header, &directive.word);
            if !embedded && found.is_none() {
                continue;
            }
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
        // The node says that there is no such header.
        self.line("#else");
        self.relocate(next - 1);
        self.end_line();
        self.out
            .extend_from_slice(&text[directive.start..directive.end]);
        self.line("\n#endif");
        self.relocate(next);
        Some(true)
    }

    /// Takes in a definition or its end, and makes its number known where that matters.
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
        let matters = self.learned.names.contains(&name);
        if matters {
            self.out
                .extend_from_slice(&text[directive.start..directive.end]);
            self.out.push(b'\n');
            self.number(&name, number);
            self.relocate(next);
        }
        match number {
            0 => self.undefined.insert(name),
            _ => self.defined.insert(name),
        };
        matters
    }

    fn number(&mut self, name: &str, number: usize) {
        if !self.learned.names.contains(name) {
            return;
        }
        self.line(&format!("#undef {NUMBER_OF}{name}"));
        if number > 0 {
            self.line(&format!("#define {NUMBER_OF}{name} {number}"));
        }
    }

    /// Answers `__has_include` in a condition; whether anything was to be answered.
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
                // Whether there is the operator: Clang has it.
                None => asks(token).then_some("__clang__"),
            };
            let answer = answer.unwrap_or(word);
            out.push(Token::Word(answer.to_owned()));
        }
        if out == tokens {
            return false;
        }
        self.replaced += 1;
        self.out
            .extend_from_slice(&text[directive.start..directive.argument]);
        self.out.extend(narrow(&spelled(&out)));
        // As many lines as before.
        let lines = std::iter::repeat_n(b'\n', newlines(argument));
        self.out.extend(lines);
        true
    }

    // None: it depends on what stands.
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

    /// The line that comes next is `next` of the level's.
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

// That the definitions stand under which it is this choice.
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

/// The text with blanks in some places.
fn without(text: &[u8], places: &[(usize, usize)]) -> Vec<u8> {
    let mut kept = text.to_vec();
    for &(start, end) in places {
        let place = kept[start..end].iter_mut().filter(|byte| **byte != b'\n');
        place.for_each(|byte| *byte = b' ');
    }
    kept
}

#[cfg(test)]
mod tests;
