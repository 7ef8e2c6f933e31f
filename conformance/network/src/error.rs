//! Errors of a network. Callers distinguish [`Error::Unavailable`], a reason to skip, from all others,
//! which are reasons to fail.

use std::io;

/// Why a network could not be built, changed or read.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// This machine or this user cannot have networks at all; the text is for a "skipped: …" line.
    #[error("no networks of several hosts here: {0}")]
    Unavailable(String),
    /// `ip`, `tc` or `nft` failed.
    #[error("{command}: {said}")]
    Tool {
        /// The command line, shortened.
        command: String,
        /// The command's output on stderr.
        said: String,
    },
    /// A system call failed.
    #[error("{what}: {source}")]
    Io {
        /// The attempted operation.
        what: String,
        /// The kernel's error.
        source: io::Error,
    },
    /// An invalid setting.
    #[error("{0}")]
    Setting(String),
    /// A tool's output could not be parsed.
    #[error("{what} printed something unexpected: {said}")]
    Unexpected {
        /// The tool.
        what: &'static str,
        /// A part of its output.
        said: String,
    },
}

impl Error {
    /// Whether a test should report that it is skipped, rather than fail.
    #[must_use]
    pub fn is_unavailable(&self) -> bool {
        matches!(self, Self::Unavailable(_))
    }

    pub(crate) fn io<E: Into<io::Error>>(what: impl Into<String>) -> impl FnOnce(E) -> Self {
        let what = what.into();
        move |source| Self::Io {
            what,
            source: source.into(),
        }
    }
}

/// The result of every function of this crate that can fail.
pub type Result<T, E = Error> = std::result::Result<T, E>;
