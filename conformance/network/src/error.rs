//! What can go wrong with a network. A caller tells "not possible here" ([`Error::Unavailable`], a reason to
//! skip) from "possible, but failed" (everything else, a reason to fail).

use std::io;

/// Why a network could not be built, changed or read.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// This machine or this user cannot have one at all; the text is for a "skipped: …" line.
    #[error("no networks of several hosts here: {0}")]
    Unavailable(String),
    /// `ip`, `tc` or `nft` refused.
    #[error("{command}: {said}")]
    Tool {
        /// The command line, shortened.
        command: String,
        /// What it wrote to stderr.
        said: String,
    },
    /// The kernel refused.
    #[error("{what}: {source}")]
    Io {
        /// What was tried.
        what: String,
        /// The kernel's answer.
        source: io::Error,
    },
    /// A setting that makes no sense.
    #[error("{0}")]
    Setting(String),
    /// What a tool printed was not understood.
    #[error("{what} printed something unexpected: {said}")]
    Unexpected {
        /// The tool.
        what: &'static str,
        /// A part of what it printed.
        said: String,
    },
}

impl Error {
    /// Whether a test should be skipped, visibly, rather than fail.
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

/// The result of everything here that can fail.
pub type Result<T, E = Error> = std::result::Result<T, E>;
