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

/// Maximum nesting of files; compilers stop at 200. If the text grows too large, files that include
/// themselves are nested less deeply.
const NESTING: [usize; 5] = [200, 24, 6, 3, 1];
/// Maximum size of the whole text in bytes; a larger one would not fit into a command.
const MAX_TEXT: usize = 32 << 20;
/// Maximum number of inserted files that are inside of themselves, or inside of such a file. Without a
/// limit these would go on for ever.
const MAX_CIRCLING: usize = 20_000;
/// Maximum number of passes over the text; each pass uses what the passes before have learned.
const MAX_ROUNDS: usize = 12;

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
    let options = &wide(options);
    let mut search = Search::new(options, read);
    let mut learned = Learned::default();
    for nesting in NESTING {
        // Each pass may learn facts that change the text before them. A pass that learns nothing is final.
        for _ in 0..MAX_ROUNDS {
            let before = learned.clone();
            let mut expansion =
                Expansion::new(options, embedded, nesting, &mut search, &mut learned);
            if expansion.whole(source).is_none() {
                // Without files that include themselves, less nesting would not make the text smaller.
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

/// Facts about the whole text that are known only after a pass over it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Learned {
    /// Macros that the names of headers depend on.
    names: BTreeSet<String>,
    /// Files that `#import` names; these are compiled once.
    imported: BTreeSet<PathBuf>,
}
struct Expansion<'e, 's> {
    search: &'e mut Search<'s>,
    learned: &'e mut Learned,
    embedded: &'e [&'e [u8]],
    nesting: usize,
    macros: Macros,
    out: Vec<u8>,
    // Number of directives that were replaced.
    replaced: usize,
    // Number of inserted files that are inside of themselves.
    circling: usize,
    // The program's text, and the nested files inside of it.
    outermost: Level,
    files: Vec<Level>,
    // Names that were defined and names that were undefined, anywhere.
    defined: HashSet<String>,
    undefined: HashSet<String>,
    guards: HashMap<usize, Option<Guard>>,
    // Guarded files that were inserted, and those that have certainly been compiled.
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

    /// Expands the program's text, preceded by what the options put before it. `None` if the result is too
    /// large.
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
                // The file does not exist here; the node's compiler reports that.
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

    /// Appends the text of the innermost level, with its headers inserted. `None` if the result is too
    /// large.
    fn text(&mut self, text: &[u8]) -> Option<()> {
        let (mut copied, mut counted, mut next) = (0, 0, 2);
        for directive in Directives::of(text) {
            next += newlines(&text[counted..directive.end]);
            counted = directive.end;
            // Only blanks and comments can precede the directive on its line.
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

    /// Handles a directive, and returns whether a replacement was appended. `next` is the number of the
    /// line behind the directive. `None` if the result is too large.
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

    /// Returns the file that a directive refers to, if it is to be inserted.
    fn found(&mut self, header: &Header, word: &str) -> Option<Found> {
        if self.embedded.contains(&&header.name[..]) || self.files.len() >= NESTING[0] {
            return None;
        }
        let found = self.there(header, word)?;
        if word == "import" {
            self.learned.imported.insert(found.path.clone());
        }
        // An unguarded file inside of itself is followed only `nesting` levels deep.
        let inside = |level: &&Level| level.number == Some(found.number) && !level.guarded;
        let depth = self.files.iter().filter(inside).count();
        (depth < self.nesting).then_some(found)
    }

    // The file on this machine for a directive or operator `word`.
    fn there(&mut self, header: &Header, word: &str) -> Option<Found> {
        let from = self.files.last();
        let after = from
            .filter(|_| word.ends_with("_next"))
            .and_then(|level| level.folder);
        let from = from.map(|level| level.path.as_path());
        self.search.find(header, from, after)
    }

    /// Appends a file in place of a directive, and a marker back to line `next`. `sure`: the directive is
    /// certainly compiled if its surroundings are.
    fn file(&mut self, found: &Found, next: usize, sure: bool) -> Option<()> {
        self.replaced += 1;
        let path = &found.path;
        let guard = self.guard_of(found);
        let name = guard.as_ref().map(|guard| guard.name(path));
        let undefined = |name: &String| self.undefined.contains(name);
        let inside = |level: &Level| level.number == Some(found.number) && level.guarded;
        let settled = self.settled.contains(&found.number) && !name.as_ref().is_some_and(undefined);
        // The guard would make this copy empty.
        if settled || self.files.iter().any(inside) {
            self.relocate(next);
            return Some(());
        }
        let sure = sure && self.level().is_sure();
        // If the guard's macro is already defined, the whole file is skipped.
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

    /// Handles a directive whose header is named by macros: appends all files that it may refer to.
    fn computed(&mut self, text: &[u8], directive: &Directive, next: usize) -> Option<bool> {
        let argument = tokens_of(&text[directive.argument..directive.end]);
        let mut word = "#if";
        for choice in self.macros.choices(&argument).unwrap_or_default() {
            // The next pass numbers the definitions of these macros, because this name depends on them.
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
        // The original directive stays for all other cases, so that the node's compiler reports the missing
        // header.
        self.line("#else");
        self.relocate(next - 1);
        self.end_line();
        self.out
            .extend_from_slice(&text[directive.start..directive.end]);
        self.line("\n#endif");
        self.relocate(next);
        Some(true)
    }

    /// Records a `#define` or `#undef`. If the macro matters, appends the directive and the number of the
    /// definition; returns whether it did.
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
        self.replaced += 1;
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

/// Returns the text with blanks at some places.
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
