//! A text that is being expanded: the program's, or a file inside of it.
//!
//! Invariant: reported line numbers follow the text's own `#line` directives.

use std::path::PathBuf;

use causeway_proto::source::{narrow, plain, wide};

use super::guard::Guard;
use super::quoted;
use super::search::Found;

/// The state of one text; see the module.
pub(in crate::stub::program) struct Level {
    /// The file's path; empty for the program's text.
    pub(super) path: PathBuf,
    /// The file's number; `None` for the program's text.
    pub(super) number: Option<usize>,
    /// Index of the folder in which the file was found, for `#include_next`.
    pub(super) folder: Option<usize>,
    /// Whether including the file inside of itself inserts nothing.
    pub(super) guarded: bool,
    /// The conditions that are open in the text, each by the number of marks before it.
    pub(super) conditions: Vec<usize>,
    // Number of open conditions that belong to the file's own guard.
    of_guard: usize,
    // Whether lines outside of conditions are certainly compiled.
    sure: bool,
    // Offset from a line's number to the reported number, and the reported file name.
    shift: i64,
    shown: String,
}

impl Level {
    pub(in crate::stub::program) fn outermost() -> Level {
        Level {
            path: PathBuf::new(),
            number: None,
            folder: None,
            guarded: false,
            conditions: Vec::new(),
            of_guard: 0,
            sure: true,
            shift: 0,
            shown: String::new(),
        }
    }

    pub(super) fn of_file(found: &Found, guard: Option<&Guard>, sure: bool) -> Level {
        Level {
            path: found.path.clone(),
            number: Some(found.number),
            folder: found.folder,
            guarded: guard.is_some(),
            of_guard: usize::from(matches!(guard, Some(Guard::Macro(_)))),
            sure,
            shown: quoted(&found.path),
            ..Level::outermost()
        }
    }

    /// Whether the current place is certainly compiled.
    pub(super) fn is_sure(&self) -> bool {
        self.sure && self.conditions.len() == self.of_guard
    }

    /// Returns the reported number of a line.
    pub(super) fn shown_line(&self, line: usize) -> i64 {
        line as i64 + self.shift
    }

    /// Returns the reported file, which is empty for the program's text, and the reported number of a line.
    pub(in crate::stub::program) fn place(&self, line: usize) -> (String, i64) {
        let shown = narrow(&self.shown);
        let shown = String::from_utf8_lossy(&shown).into_owned();
        (shown, self.shown_line(line))
    }

    /// Applies a `#line` directive or line marker that stands before line `next`.
    pub(in crate::stub::program) fn renumber(&mut self, argument: &[u8], next: usize) {
        let argument = plain(argument);
        let argument = wide(&argument);
        let (number, rest) = match argument.split_once(|c: char| c.is_ascii_whitespace()) {
            Some(parts) => parts,
            None => (&argument[..], ""),
        };
        let Ok(number) = number.parse::<u32>() else {
            return;
        };
        self.shift = i64::from(number) - next as i64;
        let name = rest.trim_start().strip_prefix('"');
        if let Some((name, _)) = name.and_then(|name| name.rsplit_once('"')) {
            self.shown = name.to_owned();
        }
    }

    /// Returns the line marker behind an inserted file, so that line `next` follows. An empty name means
    /// the file before.
    pub(super) fn way_back(&self, next: usize) -> String {
        format!("# {} \"{}\" 2", self.shown_line(next), self.shown)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_line_directives_say_is_shown() {
        let mut level = Level::outermost();
        assert_eq!(level.way_back(5), "# 5 \"\" 2");
        level.renumber(b"100", 5);
        assert_eq!(level.way_back(7), "# 102 \"\" 2");
        level.renumber(b"3 \"a \\\"b\" 1", 9);
        assert_eq!(level.way_back(9), "# 3 \"a \\\"b\" 2");
        level.renumber(b"LINE \"c\"", 20);
        assert_eq!(level.way_back(20), "# 14 \"a \\\"b\" 2");
    }
}
