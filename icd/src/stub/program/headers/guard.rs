//! Protection of a file against being compiled twice: include guards and `#pragma once`.
//!
//! Invariant: a file with a guard compiles to nothing where the guard's macro is defined.

use std::path::Path;

use causeway_proto::source::{Directive, Directives, is_blank as is_blank_text, wide};

use super::tokens::is_blank;

/// The guard of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Guard {
    /// A macro that the file itself defines, around all of its contents.
    Macro(String),
    /// The file has a `#pragma once`, or an `#import` names it.
    Once,
}

impl Guard {
    /// Returns the guard of a text.
    pub(super) fn of(text: &[u8]) -> Option<Guard> {
        let directives: Vec<Directive> = Directives::of(text).collect();
        if directives.iter().any(|one| is_once(text, one)) {
            return Some(Guard::Once);
        }
        macro_around(text, &directives).map(Guard::Macro)
    }

    /// Returns the name of the macro that is defined once the file has been compiled.
    pub(super) fn name(&self, path: &Path) -> String {
        match self {
            Guard::Macro(name) => name.clone(),
            // Not the file's number: the headers of one `clCompileProgram` are expanded separately.
            Guard::Once => format!("CAUSEWAY_ONCE_{:016x}", hash(path)),
        }
    }
}

/// Whether the directive is `#pragma once`.
pub(super) fn is_once(text: &[u8], directive: &Directive) -> bool {
    directive.word == "pragma" && argument(text, directive) == "once"
}

fn macro_around(text: &[u8], directives: &[Directive]) -> Option<String> {
    let [first, second, .., last] = directives else {
        return None;
    };
    let name = argument(text, first);
    let defined = argument(text, second);
    let defined = defined.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
    let guarded = first.word == "ifndef"
        && second.word == "define"
        && defined.into_iter().next() == Some(&*name)
        && is_blank_text(&text[..first.start])
        && is_blank_text(&text[last.end..]);
    let mut depth = 0;
    for directive in directives {
        match directive.word.as_str() {
            "if" | "ifdef" | "ifndef" => depth += 1,
            "endif" => depth -= 1,
            "else" | "elif" if depth == 1 => return None,
            _ => {}
        }
        // The first condition must end with the last directive, and not earlier.
        if depth <= 0 && directive.start != last.start {
            return None;
        }
    }
    (guarded && depth == 0).then_some(name)
}

// The first word of a directive's argument.
fn argument(text: &[u8], directive: &Directive) -> String {
    let argument = wide(&text[directive.argument..directive.end]);
    let mut words = argument.split(|c: char| is_blank(c) || c == '/');
    words.next().unwrap_or("").to_owned()
}

fn hash(path: &Path) -> u64 {
    use std::hash::{BuildHasher, BuildHasherDefault};
    BuildHasherDefault::<rustc_hash::FxHasher>::default().hash_one(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(text: &str) -> Option<Guard> {
        Guard::of(text.as_bytes())
    }

    #[test]
    fn a_guard_is_around_everything() {
        let name = Some(Guard::Macro("G".to_owned()));
        assert_eq!(
            of("// x\n#ifndef G\n#define G // y\nint a;\n#endif // G\n"),
            name
        );
        assert_eq!(
            of("#ifndef G\n#define G\n#if X\n#else\n#endif\n#endif"),
            name
        );
        for none in [
            "int a;\n#ifndef G\n#define G\n#endif\n",
            "#ifndef G\n#define G\n#endif\nint a;\n",
            "#ifndef G\n#define G\n#else\n#endif\n",
            "#ifndef G\n#define H\n#endif\n",
            "#ifndef G\n#define G\n#endif\n#ifdef H\n#endif\n",
            "#ifndef G\n#define G\n",
            "#define G\n",
            "",
        ] {
            assert_eq!(of(none), None, "{none}");
        }
    }

    #[test]
    fn once_is_found_wherever_it_is() {
        assert_eq!(of("int a;\n # pragma once\n"), Some(Guard::Once));
        assert_eq!(of("#pragma unroll\n"), None);
    }
}
