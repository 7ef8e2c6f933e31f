//! Line numbers in the logs of a compiler that ignores `#line` directives.
//!
//! The text has lines that the program did not write: inserted headers, and lines that undefine macros.
//! NVIDIA's compiler calls all of it `<kernel>` and counts every line; `#line` and line markers affect only
//! `__LINE__` and `__FILE__`. So this module rewrites its logs to the file names and line numbers of the
//! program.
//!
//! Not here: a parser of logs. Invariant: a part that names no line of the text stays unchanged.
#![forbid(unsafe_code)]

use std::collections::BTreeMap;

use cl_headers::types::CL_PLATFORM_VENDOR;

use super::headers::Level;
use crate::stub::Device;

/// The name of the text in such a compiler's log.
const TEXT: &str = "<kernel>:";

/// Whether the device has such a compiler.
pub(super) fn counts_all(device: &Device) -> bool {
    let vendor = device.platform_info(CL_PLATFORM_VENDOR);
    let vendor = vendor.and_then(Result::ok).map(|vendor| &vendor[..]);
    vendor.is_some_and(|vendor| vendor.starts_with(b"NVIDIA"))
}

/// Whether a log names the text at all. Most successful builds have an empty log.
pub(super) fn names_text(log: &str) -> bool {
    log.contains(TEXT)
}

/// Returns the log with the file names and line numbers that the markers in `text` define.
pub(super) fn placed(text: &[u8], log: &str) -> String {
    let numbers = log
        .split(TEXT)
        .skip(1)
        .filter_map(|rest| Some(number(rest)?.0));
    let places = places(text, numbers.collect());
    let mut parts = log.split(TEXT);
    let mut placed = parts.next().unwrap_or_default().to_owned();
    for rest in parts {
        let known = number(rest).and_then(|(line, behind)| Some((places.get(&line)?, behind)));
        match known {
            Some(((file, line), behind)) if file.is_empty() => {
                placed += &format!("{TEXT}{line}{behind}");
            }
            Some(((file, line), behind)) => placed += &format!("{file}:{line}{behind}"),
            None => placed += &[TEXT, rest].concat(),
        }
    }
    placed
}

/// Splits off the number that a text begins with.
fn number(text: &str) -> Option<(usize, &str)> {
    let end = text
        .find(|c: char| !c.is_ascii_digit())
        .unwrap_or(text.len());
    Some((text[..end].parse().ok()?, &text[end..]))
}

/// Returns file and line of these lines of the text, by its own markers. The file is empty for the
/// program's text.
fn places(text: &[u8], mut wanted: Vec<usize>) -> BTreeMap<usize, (String, i64)> {
    wanted.sort_unstable();
    let mut places = BTreeMap::new();
    let Some(&last) = wanted.last() else {
        return places;
    };
    let mut level = Level::outermost();
    for (at, line) in (1..=last).zip(text.split(|byte| *byte == b'\n')) {
        if wanted.binary_search(&at).is_ok() {
            let (file, line) = level.place(at);
            places.insert(at, (file, line));
        }
        // A marker applies to the line behind it.
        if let Some(argument) = marker(line) {
            level.renumber(argument, at + 1);
        }
    }
    places
}

/// Returns the argument of `#line`, or of a line marker.
fn marker(line: &[u8]) -> Option<&[u8]> {
    let line = line
        .trim_ascii_start()
        .strip_prefix(b"#")?
        .trim_ascii_start();
    match line.strip_prefix(b"line") {
        Some(rest) if rest.starts_with(b" ") || rest.starts_with(b"\t") => {
            Some(rest.trim_ascii_start())
        }
        _ => line.first()?.is_ascii_digit().then_some(line),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_log_is_in_the_terms_of_the_text() {
        let text = b"#undef cl_a\n#line 1\nint first;\n# 1 \"in/a.h\" 1\nint in_a;\nint bad;\n# 3 \"\" 2\nint third;\n";
        let log = "<kernel>:3:1: one\n<kernel>:6:5: error: two\n<kernel>:8:1: three\nIn file included from <kernel>:8:\n";
        let expected = "<kernel>:1:1: one\nin/a.h:2:5: error: two\n<kernel>:3:1: three\nIn file included from <kernel>:3:\n";
        assert_eq!(placed(text, log), expected);
        // A number that is no line of the text, and a place without a number, stay unchanged.
        let strange = "<kernel>:99:1: x\n<kernel>: y <kernel>:";
        assert_eq!(placed(text, strange), strange);
        assert_eq!(placed(b"", ""), "");
        assert!(names_text(log) && names_text(strange));
        assert!(!names_text("") && !names_text("a.h:3:1: one\n"));
    }
}
