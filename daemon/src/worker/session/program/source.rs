//! Restricts the files that a build may read to those that came with the program.
//!
//! A compiler prints lines of a file that does not compile. So `#include "/etc/shadow"` would leak that
//! file into the build log. In an include directive for any file other than the program's headers, the
//! directive's word is replaced by `error` and an explanation. The node's compiler still decides whether
//! the place is reached, and line numbers stay. Clang's pragmas that read files get an unknown name.
//! Options that name files or folders are removed, because they mean the client's file system.
//!
//! `__has_include` and similar operators would reveal which files the node has. They are undefined before any
//! text that names them or could compose their names. To a program, the compiler then has no such operators.
//!
//! This is not a preprocessor. Comments, strings and conditions hide no directive from it, because no two
//! compilers agree on all of them (see [`Suspects`]). A replaced word in a comment does no harm. A header
//! that is named by a macro counts as unknown.
#![forbid(unsafe_code)]

use std::borrow::Cow;

use causeway_proto::source::{
    Suspect, Suspects, contains, narrow, plain, wide, without_mark, words,
};

/// Undefines the operators without a message in the log, and resets the line number.
const WITHOUT_OPERATORS: &[u8] = b"#pragma clang diagnostic push\n\
#pragma clang diagnostic ignored \"-Wbuiltin-macro-redefined\"\n\
#undef __has_include\n#undef __has_include_next\n#undef __has_embed\n\
#pragma clang diagnostic pop\n#line 1\n";

/// Whether `text` names an operator that asks for files, or can compose such a name by pasting.
fn asks_for_files(text: &[u8]) -> bool {
    let text = plain(text);
    let has = |word| contains(&text, word);
    has(b"has_include") || has(b"has_embed") || has(b"##")
}

/// Replaces the word of an include directive.
const REFUSED: &[u8] = b"error the client did not send this header with the program:";
/// Replaces the word of a pragma.
const UNKNOWN: &[u8] = b"unknown_to_causeway";

/// Returns `source` without operators and pragmas that ask for files. Include directives are replaced
/// unless they name one of `headers`.
pub(crate) fn sealed<'a>(source: &'a [u8], headers: &[&[u8]]) -> Cow<'a, [u8]> {
    let mut out: Vec<u8> = Vec::new();
    let mut rest = source;
    // Added only once: a source that was sealed before begins with this text.
    if asks_for_files(source) && !source.starts_with(WITHOUT_OPERATORS) {
        out.extend_from_slice(WITHOUT_OPERATORS);
        rest = without_mark(source);
    }
    let mut copied = source.len() - rest.len();
    for found in Suspects::of(source) {
        let (word, instead) = match found {
            Suspect::Include { ref header, .. }
                if header
                    .as_ref()
                    .is_some_and(|h| headers.contains(&&h.name[..])) =>
            {
                continue;
            }
            Suspect::Include { start, end, .. } => (start..end, REFUSED),
            Suspect::Pragma { start, end } => (start..end, UNKNOWN),
        };
        out.extend_from_slice(&source[copied..word.start]);
        out.extend_from_slice(instead);
        // Keep the line splices of the replaced word, so that line numbers stay.
        let lines = source[word.start..word.end].iter();
        out.extend(lines.filter(|b| **b == b'\n').flat_map(|_| b"\\\n"));
        copied = word.end;
    }
    if out.is_empty() {
        return Cow::Borrowed(source);
    }
    out.extend_from_slice(&source[copied..]);
    Cow::Owned(out)
}

/// Whether a header of that name stays inside the folder into which a driver writes the program's
/// headers. PoCL writes other names wherever they lead, and Clang reads them there.
pub(crate) fn is_inside(name: &[u8]) -> bool {
    let mut parts = name.split(|byte| matches!(byte, b'/' | b'\\'));
    let starts_there = !name.starts_with(b"/") && !name.starts_with(b"\\");
    starts_there && parts.all(|part| part != b"..")
}

/// Whether `source` contains anything that [`sealed`] changes.
pub(crate) fn asks(source: &[u8]) -> bool {
    asks_for_files(source) || Suspects::of(source).next().is_some()
}

/// Options besides `-I` that name files or folders. Few drivers support any of them.
const WITH_PATH: [&str; 7] = [
    "-include",
    "-imacros",
    "-isystem",
    "-iquote",
    "-idirafter",
    "-isysroot",
    "--sysroot",
];
/// An empty file that is not a folder.
const NOTHING: &str = "/dev/null";

/// Removes the client's files and folders from build options. Also removes macros that ask for files or
/// could, because these come before the program's text. An option that names a file keeps its place with
/// an empty file, so that the driver decides whether it knows the option.
pub(crate) fn without_paths(options: &[u8]) -> Cow<'_, [u8]> {
    let text = wide(options);
    let tokens = words(&text);
    let mut kept = Vec::new();
    let mut rest = tokens.iter().copied();
    while let Some(token) = rest.next() {
        // `-I dir` names its folder in the next word, `-Idir` in its own.
        if let Some(folder) = token.strip_prefix("-I") {
            let _ = folder.is_empty().then(|| rest.next());
        } else if let Some(option) = WITH_PATH.iter().find(|o| token.starts_with(**o)) {
            let _ = (token == *option).then(|| rest.next());
            kept.extend([*option, NOTHING]);
        } else if token.starts_with('@') || hides_path(token) {
            // The whole word is removed.
        } else if asks(token.as_bytes()) {
            // Handles `-D macro` in two words.
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

// White space as C defines it. No driver ends a word at any other character.
fn is_blank(c: char) -> bool {
    c.is_ascii_whitespace() || c == '\u{b}'
}

/// Whether a driver that parses quotes differently would find an option with a file in this word.
fn hides_path(token: &str) -> bool {
    let mut parts = token.split(|c: char| is_blank(c) || "\"'\\".contains(c));
    parts.next();
    parts.any(|part| part.starts_with('@') || WITH_PATH.iter().any(|o| part.starts_with(o)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use proptest::strategy::ValueTree;

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
            out.starts_with(
                "#include \"a.h\"\nint x;\n # error the client did not send this header"
            ),
            "{out}"
        );
        assert!(out.ends_with(": </etc/passwd>\nint y;"), "{out}");
        assert_eq!(
            seal("int x; // #include <a>\n", &[]),
            "int x; // #include <a>\n"
        );
        assert_eq!(
            seal("#include \"a.h\\\n\"", &["a.h"]),
            "#error the client did not send this header with the program: \"a.h\\\n\""
        );
        assert_eq!(
            seal("char *s = \"#include <a>\\n#include <b>\";\n", &[]),
            "char *s = \"#include <a>\\n#include <b>\";\n"
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
            "#warning /*\n#include \"/x\"\n",
            "#error /*\n#include \"/x\"\n",
            "#pragma mark /*\n#include \"/x\"\n",
            "R\"x(\")x\" /*\"\n#include \"/x\"\n//*/\n",
            "// ??/\n#include \"/x\"\n",
            "#/* *??/\n/ x */ include \"/x\"\n",
            "#/* *\\\n\\\n/ include \"/x\"\n",
            "/* *\\\n/ #include \"/x\"\n",
            "\u{feff}#include \"/x\"\n",
            "\u{a0}#\u{2003}include \"/x\"\n",
            "\\u00A0#\\u{a0}include \"/x\"\n",
            "\\N{NO-BREAK SPACE}#\\u0\\\n0A0include \"/x\"\n",
            "??/u00A0#include \"/x\"\n",
            "\0#\0include \"/x\"\n",
            "<<<<<<< x /*\n#include \"/x\"\n=======\n>>>>>>> y\n",
            "#if 0\n'/*\n#endif\n#include \"/x\"\n",
            "#__include_macros \"/x\"\n",
        ] {
            let out = seal(source, &[]);
            assert!(
                out.contains("error the client did not send this header"),
                "{source:?} -> {out:?}"
            );
            assert_eq!(out.lines().count(), source.lines().count(), "{source:?}");
            assert!(Suspects::of(out.as_bytes()).next().is_none(), "{out:?}");
        }
        let invalid = sealed(b"\xff#include \"/x\"\n", &[]);
        assert!(contains(&invalid, b"#error"));
    }

    #[test]
    fn names_that_lead_out_of_the_headers_folder_are_known() {
        for name in [
            "/etc/passwd",
            "../x.h",
            "a/../../x.h",
            "..",
            "a\\..\\x.h",
            "\\x.h",
        ] {
            assert!(!is_inside(name.as_bytes()), "{name}");
        }
        for name in ["a.h", "a/b.h", "..a/b..h", "./a.h"] {
            assert!(is_inside(name.as_bytes()), "{name}");
        }
    }

    #[test]
    fn pragmas_that_read_files_are_unknown() {
        for source in [
            "#pragma clang module build a\nextern module a \"/x\"\n#pragma clang module endbuild\n",
            "#pragma clang mod\\\nule build a\n",
            "#pragma clang /* x */ module build a\n",
            "#pragma clang\u{a0}module build a\n",
            "#pragma clang \\u00A0module build a\n",
            "_Pragma(R\"(clang\nmodule build a\n)\")\n",
            "#pragma GCC dependency \"/x\"\n",
            "#define D _Pragma(\"clang dependency \\\"/x\\\"\")\n",
            "#pragma clang include_instead(\"/x\")\n",
        ] {
            let out = seal(source, &[]);
            assert!(out.contains("unknown_to_causeway"), "{source:?} -> {out:?}");
            assert!(Suspects::of(out.as_bytes()).next().is_none(), "{out:?}");
            assert!(asks(source.as_bytes()));
        }
        let usual = "#pragma clang loop unroll(full)\nint module, dependency;\n";
        assert_eq!(seal(usual, &[]), usual);
        assert_eq!(left_of("-DX -DP=_Pragma(\"GCC\tdependency\")"), "-DX");
    }

    #[test]
    fn a_byte_order_mark_stays_first_or_goes() {
        let marked = "\u{feff}int x;\n";
        assert_eq!(seal(marked, &[]), marked);
        let out = seal("\u{feff}#if __has_include(<x>)\n", &[]);
        assert!(
            out.ends_with("#line 1\n#if __has_include(<x>)\n"),
            "{out:?}"
        );
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
            "/* \n * #include <a>\n */\n",
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

    /// Runs a Clang of this machine over the texts. Returns its output, in which `-H` lists
    /// every file that it read.
    fn opened_by(clang: &str, texts: &[Vec<u8>]) -> Option<String> {
        let folder = tempfile::tempdir().unwrap();
        let names = texts.iter().enumerate().map(|(at, text)| {
            let path = folder.path().join(format!("{at}.cl"));
            std::fs::write(&path, text).unwrap();
            path
        });
        let names: Vec<_> = names.collect();
        std::fs::write(folder.path().join("s.h"), "int secret_of_a_node;\n").unwrap();
        let mut all = String::new();
        for standard in ["-cl-std=CL1.2", "-cl-std=clc++"] {
            let mut command = std::process::Command::new(clang);
            command.args(["-x", "cl", "-fsyntax-only", "-H", standard]);
            let output = command.args(&names).output().ok()?;
            all.push_str(&wide(&output.stderr));
        }
        Some(all)
    }

    const PIECES: [&[u8]; 58] = [
        b"#",
        b"#",
        b"%:",
        b"??=",
        b"include",
        b"include",
        b"import",
        b"include_next",
        b"\"s.h\"",
        b"\"s.h\"",
        b"<s.h>",
        b" ",
        b" ",
        b"\t",
        b"\n",
        b"\n",
        b"\n",
        b"\r",
        b"\r\n",
        b"\x0b",
        b"\x0c",
        b"\0",
        b"\\",
        b"\\\n",
        b"\\ \n",
        b"??/",
        b"??/\n",
        b"/*",
        b"*/",
        b"//",
        b"*",
        b"/",
        b"\"",
        b"'",
        b"R\"(",
        b")\"",
        b"R\"x(",
        b")x\"",
        b"warning ",
        b"error ",
        b"pragma mark ",
        b"#warning /*",
        b"#if 0",
        b"#if 1",
        b"#else",
        b"#endif",
        b"x",
        b";",
        b"\xc2\xa0",
        b"\xff",
        b"\\u00A0",
        b"\\u{a0}",
        b"\\N{EN SPACE}",
        b"\xef\xbb\xbf",
        b"<<<<<<< x",
        b"=======",
        b">>>>>>> y",
        b"pragma clang module build a\nextern module a \"s.h\"\n#pragma clang module endbuild\n",
    ];

    // The installed compiler decides. Without one, only the tables above are tested.
    #[test]
    fn no_clang_reads_a_file_for_a_sealed_text() {
        let mut runner = proptest::test_runner::TestRunner::deterministic();
        let piece = proptest::sample::select(PIECES.to_vec());
        let texts = proptest::collection::vec(piece, 1..24).prop_map(|pieces| pieces.concat());
        let rounds = std::env::var("CAUSEWAY_SEALED_TEXTS").map_or(40, |n| n.parse().unwrap());
        let texts: Vec<Vec<u8>> = (0..rounds)
            .map(|_| texts.new_tree(&mut runner).unwrap().current())
            .collect();
        let compilers = ["clang-14", "clang-15", "clang"];
        let given = |clang: &&str| opened_by(clang, &texts[..texts.len().min(40)]);
        let Some((clang, given)) = compilers
            .iter()
            .find_map(|clang| Some((clang, given(clang)?)))
        else {
            return;
        };
        assert!(given.contains("s.h"), "the texts have nothing to seal");
        let sealed: Vec<_> = (texts.iter().map(|text| sealed(text, &[]).into_owned())).collect();
        for some in sealed.chunks(40) {
            let opened = opened_by(clang, some).unwrap();
            let marks = ["While building module", "secret_of"];
            let line = opened.lines().find(|line| {
                line.starts_with(". ") || marks.iter().any(|mark| line.contains(mark))
            });
            assert_eq!(line, None, "{clang}");
        }
    }

    proptest! {
        #[test]
        fn sealing_ends_and_leaves_nothing(source in "[#a \\n\\r\"</*\\\\?include]{0,60}") {
            let out = seal(&source, &[]);
            prop_assert!(Suspects::of(out.as_bytes()).next().is_none(), "{:?} -> {:?}", source, out);
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
