//! The rules for which builds are cached: pure.
//!
//! Invariant: a build that is accepted here has the same result each time, and no effect besides.
#![forbid(unsafe_code)]

use causeway_proto::source::{plain, words};

use super::{MAX_OPTIONS, MAX_TEXT};

/// Returns whether a build always has the same result, and no other effects.
///
/// This is not the case if the text uses the time, or the name of its file, which is a temporary one of the
/// compiler's. It is also not the case if the text could form such a name by token pasting. Only options
/// that are known to have no other effects are accepted, because others may read or write files.
#[must_use]
pub fn is_repeatable(text: &[u8], options: &str) -> bool {
    if text.len() > MAX_TEXT || options.len() > MAX_OPTIONS {
        return false;
    }
    !asks_for_the_moment(text)
        && !asks_for_the_moment(options.as_bytes())
        && words(options).into_iter().all(is_plain_option)
}

/// Names that expand differently in each build.
const OF_THE_MOMENT: [&[u8]; 8] = [
    b"__DATE__",
    b"__TIME__",
    b"__TIMESTAMP__",
    b"__FILE__",
    b"__FILE_NAME__",
    b"__BASE_FILE__",
    b"__builtin_FILE",
    b"__builtin_source_location",
];
/// Remainders of these names, for texts that can form the rest by token pasting.
const PARTS: [&[u8]; 4] = [b"DATE", b"TIME", b"FILE", b"source_location"];

fn asks_for_the_moment(text: &[u8]) -> bool {
    let text = plain(text);
    let pastes = text.windows(2).any(|pair| pair == b"##");
    let names = if pastes { &PARTS[..] } else { &OF_THE_MOMENT };
    // One pass over the text, because texts can be long.
    (0..text.len()).any(|at| {
        let rest = &text[at..];
        matches!(rest[0], b'_' | b'D' | b'T' | b'F' | b's')
            && names.iter().any(|name| rest.starts_with(name))
    })
}

fn is_plain_option(word: &str) -> bool {
    // These options pass anything on to the assembler, the linker or the preprocessor.
    let passed_on = ["-Wa,", "-Wl,", "-Wp,"];
    if passed_on.iter().any(|p| word.starts_with(p)) {
        return false;
    }
    // An option that defines a macro may have its definition in the next word, which does not begin with a
    // dash.
    let known = ["-D", "-U", "-cl-", "-W", "-O"];
    !word.starts_with(['-', '@']) || word == "-w" || known.iter().any(|p| word.starts_with(p))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn usual_builds_are_repeatable() {
        for options in [
            "",
            "-cl-std=CL1.2 -cl-mad-enable -w -Werror -O3",
            "-D N=4 -DX -D \"Y=a b\" -UZ -cl-nv-verbose",
        ] {
            assert!(is_repeatable(b"kernel void f() {}", options), "{options}");
        }
        let pasting = b"#define P(a, b) a##b\n#define KERNEL(T) void P(f_, T)()";
        assert!(is_repeatable(pasting, ""));
    }

    #[test]
    fn builds_with_the_time_are_not() {
        for text in [
            "char *s = __DATE__;",
            "char *s = __TI\\\nME__;",
            "constant char s[] = __TIMESTAMP__;",
            "#define P(a, b) a##b\nP(__DA, TE__) P(__, TIME__)",
        ] {
            assert!(!is_repeatable(text.as_bytes(), ""), "{text}");
        }
        assert!(!is_repeatable(b"", "-DX=__DATE__"));
    }

    #[test]
    fn builds_with_the_name_of_their_file_are_not() {
        for text in [
            "constant char s[] = __FILE__;",
            "__BASE_FILE__ __FI\\\nLE_NAME__",
            "__builtin_FILE()",
            "#define P(a) __##a##__\nP(FILE)",
        ] {
            assert!(!is_repeatable(text.as_bytes(), ""), "{text}");
        }
        assert!(!is_repeatable(b"", "-D WHERE=__FILE__"));
        assert!(is_repeatable(b"#ifndef __FILE_H__\nint FILE;", ""));
    }

    #[test]
    fn builds_that_may_touch_files_are_not() {
        for option in [
            "-save-temps",
            "-save-temps=obj",
            "--save-temps",
            "-MF x",
            "-o x",
            "-ftime-trace",
            "-Wl,-o,x",
            "-Wp,-MD,x",
            "-s x",
            "-x cl",
            "@file",
            "-include x",
        ] {
            assert!(!is_repeatable(b"", option), "{option}");
        }
    }

    #[test]
    fn what_is_too_long_is_not() {
        assert!(is_repeatable(&vec![b' '; MAX_TEXT], ""));
        assert!(!is_repeatable(&vec![b' '; MAX_TEXT + 1], ""));
        assert!(!is_repeatable(b"", &"a".repeat(MAX_OPTIONS + 1)));
    }
}
