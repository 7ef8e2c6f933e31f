//! A text that is being gone through: the program's, or a file's inside of it.
//!
//! Invariant: what it tells of lines is what the text's own `#line` directives say.

use std::path::PathBuf;

use causeway_proto::source::{narrow, plain, wide};

use super::guard::Guard;
use super::quoted;
use super::search::Found;

/// See the module.
pub(in crate::stub::program) struct Level {
    /// Empty for the program's text.
    pub(super) path: PathBuf,
    /// The file's; none for the program's text.
    pub(super) number: Option<usize>,
    /// In which folder it was found, for `#include_next`.
    pub(super) folder: Option<usize>,
    /// Including it inside of itself gives nothing.
    pub(super) guarded: bool,
    /// It is inside of itself, or of a file that is.
    pub(super) circles: bool,
    /// Conditions that are open in it.
    pub(super) conditions: usize,
    // As many are its own guard's.
    of_guard: usize,
    // What is outside of conditions is compiled.
    sure: bool,
    // Added to a line's number to have the one that is shown, and the name that is.
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
            circles: false,
            conditions: 0,
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

    /// Whether this file inside of it is in a circle.
    pub(super) fn circles(&self, found: &Found) -> bool {
        self.circles || self.number == Some(found.number)
    }

    /// Whether what stands here now is compiled for sure.
    pub(super) fn is_sure(&self) -> bool {
        self.sure && self.conditions == self.of_guard
    }

    /// The number that is shown for a line.
    pub(super) fn shown_line(&self, line: usize) -> i64 {
        line as i64 + self.shift
    }

    /// The file that is shown for a line, empty for the program's text, and the number.
    pub(in crate::stub::program) fn place(&self, line: usize) -> (String, i64) {
        let shown = narrow(&self.shown);
        let shown = String::from_utf8_lossy(&shown).into_owned();
        (shown, self.shown_line(line))
    }

    /// Takes in `#line`, or a line marker, before line `next`.
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

    /// The line marker behind a file that was put in: what comes now is line `next`. An empty name means the
    /// file before.
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
