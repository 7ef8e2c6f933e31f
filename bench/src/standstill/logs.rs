//! What the logs of the processes say about the time in which a program stood.
//!
//! Only the time at the beginning of a line is understood. Invariant: no line is shown that is not of that time.
#![forbid(unsafe_code)]

use std::fmt::Write;
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Lines are shown from so many seconds before the program stood.
const BEFORE: f64 = 0.05;
const DAY: f64 = 86_400.0;

/// The logs of a round, in a folder.
pub(super) struct Logs {
    folder: PathBuf,
}

impl Logs {
    /// Logs in a new folder of this name below `scratch`.
    pub(super) fn new(scratch: &Path, name: &str) -> io::Result<Logs> {
        let folder = scratch.join(name);
        fs::create_dir_all(&folder)?;
        Ok(Logs { folder })
    }

    /// The file of a process.
    pub(super) fn file(&self, who: &str) -> PathBuf {
        self.folder.join(who)
    }

    /// Has a command write its log to the file of a process.
    pub(super) fn of(&self, who: &str, command: &mut Command) -> io::Result<()> {
        command.stderr(File::create(self.file(who))?);
        Ok(())
    }

    /// The lines of the time in which the program stood, which began at this time of the day, in seconds.
    pub(super) fn during(&self, begun: f64, stood: f64) -> io::Result<String> {
        let mut lines = Vec::new();
        for entry in fs::read_dir(&self.folder)? {
            let entry = entry?;
            let text = fs::read(entry.path())?;
            let who = entry.file_name().to_string_lossy().into_owned();
            for line in String::from_utf8_lossy(&text).lines() {
                if let Some((after, text)) = since(line, begun)
                    && (-BEFORE..=stood + BEFORE).contains(&after)
                {
                    lines.push((after, who.clone(), text.to_owned()));
                }
            }
        }
        lines.sort_by(|one, other| one.0.total_cmp(&other.0));
        let mut shown = String::new();
        for (after, who, text) in lines {
            let _ = writeln!(shown, "{after:8.3} {who:8} {text}");
        }
        Ok(shown)
    }
}

/// The seconds from a time of the day to a line's, and the rest of the line. `None` without a time.
fn since(line: &str, begun: f64) -> Option<(f64, &str)> {
    let (time, rest) = line.split_once(char::is_whitespace)?;
    let (_, clock) = time.strip_suffix('Z')?.split_once('T')?;
    let mut seconds = 0.0;
    for part in clock.split(':') {
        seconds = seconds * 60.0 + part.parse::<f64>().ok()?;
    }
    let after = (seconds - begun).rem_euclid(DAY);
    let after = if after > DAY / 2.0 {
        after - DAY
    } else {
        after
    };
    Some((after, rest.trim_start()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_placed_by_their_time_of_the_day() {
        let line = "2026-11-28T00:00:01.500000Z  INFO a: b";
        let (after, rest) = since(line, 86_399.0).unwrap();
        assert!((after - 2.5).abs() < 1e-6);
        assert_eq!(rest, "INFO a: b");
        assert!((since(line, 2.0).unwrap().0 + 0.5).abs() < 1e-6);
        assert_eq!(since("  continued", 0.0), None);
        assert_eq!(since("a b", 0.0), None);
    }

    #[test]
    fn only_lines_of_the_time_are_shown() {
        let folder = tempfile::tempdir().unwrap();
        let logs = Logs::new(folder.path(), "round").unwrap();
        let lines =
            "2026-11-28T00:00:09Z early\n2026-11-28T00:00:11Z b\n2026-11-28T00:00:13Z late\n";
        fs::write(logs.file("one"), lines).unwrap();
        fs::write(logs.file("two"), "2026-11-28T00:00:10.5Z a\n").unwrap();
        let shown = logs.during(10.0, 2.0).unwrap();
        assert_eq!(shown, "   0.500 two      a\n   1.000 one      b\n");
    }
}
