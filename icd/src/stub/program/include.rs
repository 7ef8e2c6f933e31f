//! The application's own headers: `-I` and `#include` mean files of its machine.
//!
//! The node must not look for them among its files, so they are put into the text here, before a build,
//! each in place of the directive that names it, between line markers that keep file names and line
//! numbers. Whether a place is ever compiled the node's compiler decides. A name that leads nowhere stays
//! as it is, for the same reason.
//!
//! Files are read anew for every build: a header that changed changes the build. `#pragma once` becomes
//! the include guard that it stands for.
//!
//! What it is not: no preprocessor. Of macros it knows what [`super::macros`] knows; `-include` and kin
//! are not followed. Invariant: it ends, whatever the files include, and gives a text of bounded size.

use std::collections::HashMap;
use std::path::{Component, Path, PathBuf};
use std::rc::Rc;

use causeway_proto::source::{Header, Include, Includes, words};

use super::macros::Macros;

/// Nested files; compilers stop at 200.
const MAX_DEPTH: usize = 200;
/// Bytes of the whole text; more would not fit a command.
const MAX_TEXT: usize = 32 << 20;
/// Directives replaced; files that include each other unguarded would go on for ever.
const MAX_REPLACED: usize = 20_000;

/// Reads a file; none when it is not there.
pub(super) type Read<'a> = &'a dyn Fn(&Path) -> Option<Vec<u8>>;

/// Reads regular files of this machine.
pub(super) fn from_disk(path: &Path) -> Option<Vec<u8>> {
    // Opening a pipe or a device could wait for ever.
    let regular = std::fs::metadata(path).is_ok_and(|meta| meta.is_file());
    regular.then(|| std::fs::read(path).ok())?
}

/// `source` with the headers that it includes in place; none when there are none to be found, or they
/// are more than a build takes.
///
/// `embedded` are the names of headers given with the call: these stay directives.
pub(super) fn expand(
    source: &[u8],
    options: &str,
    embedded: &[&str],
    read: Read<'_>,
) -> Option<Vec<u8>> {
    let mut expansion = Expansion {
        folders: include_folders(options),
        embedded,
        read,
        out: Vec::with_capacity(source.len()),
        replaced: 0,
        known: HashMap::new(),
        macros: Macros::of_options(options),
        macros_read: 0,
        open: Vec::new(),
    };
    let whole = expansion.text(source, None);
    (whole && expansion.replaced > 0).then_some(expansion.out)
}

/// The folders that `-I` names, in order.
fn include_folders(options: &str) -> Vec<PathBuf> {
    let mut folders = Vec::new();
    let mut words = words(options).into_iter();
    while let Some(word) = words.next() {
        if let Some(joined) = word.strip_prefix("-I") {
            let folder = if joined.is_empty() {
                words.next().unwrap_or("")
            } else {
                joined
            };
            let bare = folder.trim_matches(|c| c == '"' || c == '\'');
            folders.push(PathBuf::from(bare));
        }
    }
    folders
}

/// A file being put in.
struct Open {
    path: PathBuf,
    // Including it inside of itself gives nothing.
    guarded: bool,
}

struct Expansion<'a> {
    folders: Vec<PathBuf>,
    embedded: &'a [&'a str],
    read: Read<'a>,
    out: Vec<u8>,
    replaced: usize,
    known: HashMap<PathBuf, Option<Rc<[u8]>>>,
    macros: Macros,
    // As far as definitions in `out` are known.
    macros_read: usize,
    open: Vec<Open>,
}

impl Expansion<'_> {
    /// Appends a text with its headers in place; false when it grows too large.
    fn text(&mut self, text: &[u8], path: Option<&Path>) -> bool {
        let mut copied = 0;
        for include in Includes::of(text) {
            self.out.extend_from_slice(&text[copied..include.start]);
            copied = include.start;
            let Some((file, contents)) = self.look_up(&include, text, path) else {
                continue;
            };
            copied = include.end;
            let next_line = 1 + lines(&text[..include.end]);
            if !self.file(file, &contents, next_line, path) {
                return false;
            }
        }
        self.out.extend_from_slice(&text[copied..]);
        self.out.len() <= MAX_TEXT && self.replaced <= MAX_REPLACED
    }

    /// Appends a file in place of a directive, and the way back to the line after it.
    fn file(&mut self, file: PathBuf, contents: &[u8], line: usize, from: Option<&Path>) -> bool {
        self.replaced += 1;
        let inside = |open: &Open| open.path == file && open.guarded;
        if self.open.iter().any(inside) {
            return true;
        }
        let once = once(contents);
        let guarded = once.is_some() || has_guard(contents);
        let name = quoted(&file);
        // What stands before the directive on its line is only blanks.
        self.line(&format!("# 1 \"{name}\" 1"));
        let macro_name = format!("CAUSEWAY_ONCE_{:016x}", hash(&file));
        if once.is_some() {
            self.line(&format!(
                "#ifndef {macro_name}\n#define {macro_name}\n# 1 \"{name}\""
            ));
        }
        self.open.push(Open {
            path: file.clone(),
            guarded,
        });
        let fits = self.text(once.as_deref().unwrap_or(contents), Some(&file));
        self.open.pop();
        if !self.out.ends_with(b"\n") {
            self.out.push(b'\n');
        }
        if once.is_some() {
            self.line("#endif");
        }
        // An empty name: the one before.
        let back = from.map(quoted).unwrap_or_default();
        let marker = format!("# {} \"{back}\" 2", line);
        self.out.extend_from_slice(marker.as_bytes());
        fits
    }

    fn line(&mut self, text: &str) {
        self.out.extend_from_slice(text.as_bytes());
        self.out.push(b'\n');
    }

    /// The header that a directive names by a macro.
    fn named_by_macro(&mut self, argument: &[u8]) -> Option<Header> {
        let unread = &self.out[self.macros_read..];
        // The directive itself may follow blanks on its line: only whole lines are read.
        let lines = unread
            .iter()
            .rposition(|&byte| byte == b'\n')
            .map_or(0, |at| at + 1);
        self.macros.read(&unread[..lines]);
        self.macros_read += lines;
        self.macros.header(argument)
    }

    /// The file that a directive means, and what is in it.
    fn look_up(
        &mut self,
        include: &Include,
        text: &[u8],
        from: Option<&Path>,
    ) -> Option<(PathBuf, Rc<[u8]>)> {
        let header = match &include.header {
            Some(header) => header.clone(),
            None => self.named_by_macro(&text[include.argument..include.end])?,
        };
        let Header { name, quoted } = &header;
        let known = matches!(include.directive, "include" | "import");
        if !known || self.embedded.contains(&name.as_str()) || self.open.len() >= MAX_DEPTH {
            return None;
        }
        // Beside the including file first; the program's text lies in the working directory.
        let beside = quoted.then(|| from.and_then(Path::parent).unwrap_or(Path::new("")));
        let folders = beside
            .into_iter()
            .chain(self.folders.iter().map(PathBuf::as_path));
        // An absolute name is itself, joined to anything.
        let absolute = Path::new(name).is_absolute().then_some(Path::new(""));
        let paths: Vec<PathBuf> = folders
            .chain(absolute)
            .map(|folder| tidy(&folder.join(name)))
            .collect();
        paths
            .into_iter()
            .find_map(|path| Some((path.clone(), self.contents(path)?)))
    }

    fn contents(&mut self, path: PathBuf) -> Option<Rc<[u8]>> {
        let read = self.read;
        let known = self.known.entry(path);
        known
            .or_insert_with_key(|path| read(path).map(Rc::from))
            .clone()
    }
}

/// Without `.` in it, so that one file has one name.
fn tidy(path: &Path) -> PathBuf {
    path.components()
        .filter(|part| *part != Component::CurDir)
        .collect()
}

fn quoted(path: &Path) -> String {
    let text = path.to_string_lossy();
    text.replace('\\', "\\\\").replace('"', "\\\"")
}

fn lines(text: &[u8]) -> usize {
    text.iter().filter(|&&byte| byte == b'\n').count() + 1
}

fn hash(path: &Path) -> u64 {
    use std::hash::{BuildHasher, BuildHasherDefault};
    BuildHasherDefault::<rustc_hash::FxHasher>::default().hash_one(path)
}

/// The text without its `#pragma once`, if it has one.
fn once(text: &[u8]) -> Option<Vec<u8>> {
    let is_once = |line: &[u8]| {
        let mut words = line
            .split(|byte| byte.is_ascii_whitespace() || *byte == b'#')
            .filter(|word| !word.is_empty());
        line.trim_ascii_start().starts_with(b"#")
            && words.next() == Some(b"pragma")
            && words.next() == Some(b"once")
    };
    let all: Vec<&[u8]> = text.split(|&byte| byte == b'\n').collect();
    let place = all.iter().position(|line| is_once(line))?;
    let mut kept = all;
    kept[place] = b"";
    Some(kept.join(&b'\n'))
}

/// Whether the text's first directives are those of an include guard.
fn has_guard(text: &[u8]) -> bool {
    let text = String::from_utf8_lossy(text);
    let mut directives = text
        .lines()
        .filter_map(|line| line.trim_start().strip_prefix('#'));
    let mut word_after = |directive: &str| {
        let rest = directives.next()?.trim_start().strip_prefix(directive)?;
        rest.split_whitespace().next().map(str::to_owned)
    };
    word_after("ifndef").is_some_and(|name| word_after("define") == Some(name))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    type Files = HashMap<PathBuf, Vec<u8>>;

    fn files(list: &[(&str, &str)]) -> Files {
        list.iter()
            .map(|(path, text)| (PathBuf::from(path), text.as_bytes().to_vec()))
            .collect()
    }

    fn expanded(source: &str, options: &str, files: &Files) -> Option<String> {
        let read = |path: &Path| files.get(path).cloned();
        let out = expand(source.as_bytes(), options, &["given.h"], &read)?;
        Some(String::from_utf8(out).unwrap())
    }

    #[test]
    fn folders_are_searched_in_order_and_line_numbers_kept() {
        let files = files(&[("/b/x.h", "int b;"), ("/c d/x.h", "int c;\n")]);
        let out = expanded(
            "int a;\n  #include <x.h>\nint z;\n",
            "-I /a -I\"/c d\" -I/b",
            &files,
        );
        let expected = "int a;\n  # 1 \"/c d/x.h\" 1\nint c;\n# 3 \"\" 2\nint z;\n";
        assert_eq!(out.as_deref(), Some(expected));
    }

    #[test]
    fn nested_headers_are_found_beside_the_one_that_names_them() {
        let files = files(&[("in/a.h", "#include \"./b.h\"\n"), ("in/b.h", "int b;\n")]);
        let out = expanded("#include \"in/a.h\"\n", "", &files).unwrap();
        assert!(
            out.contains("# 1 \"in/b.h\" 1\nint b;\n# 2 \"in/a.h\" 2\n"),
            "{out}"
        );
    }

    #[test]
    fn what_leads_nowhere_or_came_with_the_call_stays() {
        let files = files(&[("given.h", "wrong"), ("/abs.h", "right\n")]);
        assert_eq!(
            expanded("#include \"given.h\"\n#include <no.h>\n", "", &files),
            None
        );
        let out = expanded("#include </abs.h>\n#include M\n", "", &files).unwrap();
        assert!(
            out.contains("right\n") && out.ends_with("#include M\n"),
            "{out}"
        );
    }

    #[test]
    fn a_header_named_by_a_macro_is_found_where_the_macro_is_defined() {
        let files = files(&[
            ("/d/m.h", "#define S(x) #x\n#define T(x) S(x)\n"),
            ("/d/x.h", "x\n"),
        ]);
        let source = "#include \"m.h\"\n#include T(WHERE/x.h)\n";
        let out = expanded(source, "-I /d -D WHERE=/d", &files).unwrap();
        assert!(out.contains("# 1 \"/d/x.h\" 1\nx\n# 3 \"\" 2\n"), "{out}");
    }

    #[test]
    fn pragma_once_becomes_a_guard_and_circles_end() {
        let files = files(&[
            ("once.h", "#pragma once\n#include \"once.h\"\nint o;\n"),
            (
                "g.h",
                "// x\n#ifndef G\n#define G\n#include \"h.h\"\n#endif\n",
            ),
            ("h.h", "#ifndef H\n#define H\n#include \"g.h\"\n#endif\n"),
        ]);
        let out = expanded("#include \"once.h\"\n#include \"g.h\"\n", "", &files).unwrap();
        assert!(!out.contains("pragma"), "{out}");
        assert_eq!(out.matches("int o;").count(), 1, "{out}");
        assert_eq!(out.matches("#define G\n").count(), 1, "{out}");
    }

    #[test]
    fn a_text_that_grows_without_end_is_given_up() {
        let twice = "#include \"x.h\"\n#include \"x.h\"\n";
        let files = files(&[("x.h", twice)]);
        assert_eq!(expanded(twice, "", &files), None);
    }

    proptest! {
        #[test]
        fn no_text_makes_it_panic(source in "[#incluxh.\"<>\n \\\\/*]{0,80}", options in ".{0,30}") {
            let files = files(&[("x.h", "#include \"l.h\"\n"), ("l.h", "x")]);
            let _ = expanded(&source, &options, &files);
        }
    }
}
