//! What a build may read: only what came with the program, never the node's own files.
//!
//! A compiler shows the lines of a file that does not compile, so `#include "/etc/shadow"` would leak
//! it into the build log. Include directives for anything but the headers given with the program are
//! replaced, in place, by an `#error` that says so; the node's compiler decides whether the place is
//! ever reached, and line numbers stay. Options that name files or folders are taken out: they mean
//! the client's file system, and only the client can serve them.
//!
//! `__has_include` and its kin would tell which files the node has. They are undefined before any text
//! that names them or could make up their names; to a program this is a compiler that has no such
//! operators.
//!
//! What it is not: no preprocessor. It sees directives as the compiler does (after line splices,
//! comments, digraphs and trigraphs) and nothing else; the argument of a directive that is itself a
//! macro counts as unknown.
#![forbid(unsafe_code)]

use std::borrow::Cow;

use causeway_proto::source::{Includes, contains, narrow, plain, wide, words};

/// Takes the operators away without a word in the log, and leaves the line numbers as they were.
const WITHOUT_OPERATORS: &[u8] = b"#pragma clang diagnostic push\n\
#pragma clang diagnostic ignored \"-Wbuiltin-macro-redefined\"\n\
#undef __has_include\n#undef __has_include_next\n#undef __has_embed\n\
#pragma clang diagnostic pop\n#line 1\n";

/// Whether `text` names an operator that asks for files, or can make up a name by pasting.
fn asks_for_files(text: &[u8]) -> bool {
    let text = plain(text);
    let has = |word| contains(&text, word);
    has(b"has_include") || has(b"has_embed") || has(b"##")
}

/// `source` with every include directive replaced that does not name one of `headers`, and without
/// operators that ask for files.
pub(crate) fn sealed<'a>(source: &'a [u8], headers: &[&[u8]]) -> Cow<'a, [u8]> {
    let mut out: Vec<u8> = Vec::new();
    let mut copied = 0;
    // Once: what was sealed before begins with it.
    if asks_for_files(source) && !source.starts_with(WITHOUT_OPERATORS) {
        out.extend_from_slice(WITHOUT_OPERATORS);
    }
    for found in Includes::of(source) {
        if found
            .header
            .as_ref()
            .is_some_and(|h| headers.contains(&&h.name[..]))
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
    if out.is_empty() {
        return Cow::Borrowed(source);
    }
    out.extend_from_slice(&source[copied..]);
    Cow::Owned(out)
}

/// Whether `source` has anything to seal.
pub(crate) fn asks(source: &[u8]) -> bool {
    asks_for_files(source) || Includes::of(source).next().is_some()
}

/// Options that name files or folders, besides `-I`. Few drivers know any.
const WITH_PATH: [&str; 7] = [
    "-include",
    "-imacros",
    "-isystem",
    "-iquote",
    "-idirafter",
    "-isysroot",
    "--sysroot",
];
/// A file with nothing in it, and no folder.
const NOTHING: &str = "/dev/null";

/// Options without the files and folders of the client that they name, and without macros that ask for
/// files or could: those come before any text of the program. Whether it knows an option that names one the
/// driver may judge: it is left with a file of nothing.
pub(crate) fn without_paths(options: &[u8]) -> Cow<'_, [u8]> {
    let text = wide(options);
    let tokens = words(&text);
    let mut kept = Vec::new();
    let mut rest = tokens.iter().copied();
    while let Some(token) = rest.next() {
        // "-I dir" names its folder in the next word, "-Idir" in its own.
        if let Some(folder) = token.strip_prefix("-I") {
            let _ = folder.is_empty().then(|| rest.next());
        } else if let Some(option) = WITH_PATH.iter().find(|o| token.starts_with(**o)) {
            let _ = (token == *option).then(|| rest.next());
            kept.extend([*option, NOTHING]);
        } else if token.starts_with('@') || hides_path(token) {
            // Nothing is left of it.
        } else if asks_for_files(token.as_bytes()) {
            // "-D macro" in two words.
            kept.pop_if(|before| *before == "-D");
        } else {
            kept.push(token);
        }
    }
    if kept == tokens {
        Cow::Borrowed(options)
    } else {
        Cow::Owned(narrow(&kept.join(" ")))
    }
}

// As C has it; no driver takes others for the end of a word.
fn is_blank(c: char) -> bool {
    c.is_ascii_whitespace() || c == '\u{b}'
}

/// Whether a driver that does not know our quotes would find an option with a file in the word.
fn hides_path(token: &str) -> bool {
    let mut parts = token.split(|c: char| is_blank(c) || "\"'\\".contains(c));
    parts.next();
    parts.any(|part| part.starts_with('@') || WITH_PATH.iter().any(|o| part.starts_with(o)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn seal(source: &str, headers: &[&str]) -> String {
        let headers: Vec<&[u8]> = headers.iter().map(|name| name.as_bytes()).collect();
        String::from_utf8(sealed(source.as_bytes(), &headers).into_owned()).unwrap()
    }

    fn left_of(options: &str) -> String {
        String::from_utf8(without_paths(options.as_bytes()).into_owned()).unwrap()
    }

    #[test]
    fn names_and_options_have_any_encoding() {
        let source = b"#include \"caf\xe9.h\"\n";
        assert_eq!(*sealed(source, &[b"caf\xe9.h"]), source[..]);
        assert_ne!(*sealed(source, &[b"caf\xe8.h"]), source[..]);
        assert_eq!(
            *without_paths(b"-DX=\"caf\xe9\" -I/caf\xe9 -DY=\xa0@z"),
            b"-DX=\"caf\xe9\" -DY=\xa0@z"[..]
        );
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
            "int x;\r#include \"/x\"\n",
            "// y\r#include \"/x\"\n",
            "#inc\\ \t\nlude \"/x\"\n",
            "#inc\\\rlude \"/x\"\n",
            "#inc\\\n\rlude \"/x\"\n",
            "char *s = \"//\"; /* \n*/ \n#import \"/x\"\n",
        ] {
            let out = seal(source, &[]);
            assert!(out.contains("#error"), "{source:?} -> {out:?}");
            assert_eq!(out.lines().count(), source.lines().count(), "{source:?}");
            assert!(Includes::of(out.as_bytes()).next().is_none(), "{out:?}");
        }
    }

    #[test]
    fn operators_that_ask_for_files_are_taken_away() {
        for source in [
            "#if __has_include(\"/x\")\n#endif\n",
            "#if __has_\\\ninclude(\"/x\")\n#endif\n",
            "#define I(x) __has_include_next(x)\n",
            "#define P(a, b) a##b\n",
            "#define P(a, b) a%:%:b\n",
            "#define P(a, b) a#\\\n??=b\n",
        ] {
            let out = seal(source, &[]);
            assert!(
                out.as_bytes().starts_with(WITHOUT_OPERATORS) && out.ends_with(source),
                "{out:?}"
            );
            assert!(asks(source.as_bytes()));
        }
        assert!(!asks(b"#define S(x) #x\n#if X\n#endif\n"));
        let options = "-w -DI(x)=__has_include(x) -D P(a,b)=a##b -DX";
        assert_eq!(left_of(options), "-w -DX");
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
        assert_eq!(left_of("-DX=1  -cl-mad-enable"), "-DX=1  -cl-mad-enable");
        assert_eq!(left_of("-I /etc -DX -I/tmp -I \"a b\" -w"), "-DX -w");
        assert_eq!(
            left_of("-DT=\"-I x\" -include f -D Y -isystem/x"),
            "-DT=\"-I x\" -include /dev/null -D Y -isystem /dev/null"
        );
        for smuggled in ["-DT='a -include /x'", "-DT=\"\"-imacros/x", "-D'T @x'"] {
            assert_eq!(left_of(smuggled), "");
        }
    }

    proptest! {
        #[test]
        fn sealing_ends_and_leaves_nothing(source in "[#a \\n\\r\"</*\\\\include]{0,60}") {
            let out = seal(&source, &[]);
            prop_assert!(Includes::of(out.as_bytes()).next().is_none(), "{:?} -> {:?}", source, out);
            prop_assert_eq!(seal(&out, &[]), out.clone());
            let lines = |s: &str| s.matches('\n').count();
            let added = if asks_for_files(source.as_bytes()) { 7 } else { 0 };
            prop_assert_eq!(lines(&out), lines(&source) + added);
        }

        #[test]
        fn options_never_panic(options in proptest::collection::vec(any::<u8>(), 0..40)) {
            let _ = without_paths(&options);
        }
    }
}
