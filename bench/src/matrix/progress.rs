//! The lines of JSON by which a program of the matrix experiment reports its progress.
//!
//! The farm's master and `programs/matrix_mpi.c` print the same lines. Invariant: `Done` is the last one.
#![forbid(unsafe_code)]

use std::io::{self, Write};

use serde::{Deserialize, Serialize};

/// A line. Times are in seconds.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Progress {
    /// All devices are ready, and the first product begins.
    Ready {
        /// Products that an earlier checkpoint contains.
        round: u64,
    },
    /// A checkpoint was written.
    Checkpoint {
        /// How long it took.
        seconds: f64,
    },
    /// A product of the plain program is complete.
    Product {
        /// How long it took.
        seconds: f64,
    },
    /// A worker that was lost is back.
    Lost {
        /// From taking its last work until it was back.
        seconds: f64,
    },
    /// The result is written.
    Done {
        /// From `Ready` to the result, checkpoints in between included.
        seconds: f64,
    },
}

impl Progress {
    /// Prints the line.
    pub(super) fn print(&self) -> io::Result<()> {
        let mut out = io::stdout().lock();
        writeln!(out, "{}", serde_json::to_string(self)?)?;
        out.flush()
    }

    /// Reads a line.
    pub(super) fn parse(line: &str) -> io::Result<Progress> {
        serde_json::from_str(line)
            .map_err(|error| io::Error::other(format!("{error} in what a program printed: {line}")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_lines_of_the_c_program_are_understood() {
        for (line, wanted) in [
            (r#"{"ready":{"round":3}}"#, Progress::Ready { round: 3 }),
            (
                r#"{"checkpoint":{"seconds":0.500000}}"#,
                Progress::Checkpoint { seconds: 0.5 },
            ),
            (
                r#"{"done":{"seconds":2.000000}}"#,
                Progress::Done { seconds: 2.0 },
            ),
        ] {
            assert_eq!(Progress::parse(line).unwrap(), wanted);
        }
        assert!(Progress::parse("done").is_err());
    }
}
