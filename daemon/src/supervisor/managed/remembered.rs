//! The highest term of a manager that this node has met, as a file beside the node's identity. After a restart, the daemon
//! believes no lower term of the same cluster.
//!
//! The file is written when the term rises, which is once for each leader. Without it, or if it cannot be read, the daemon
//! begins as a new one. Invariant: only the daemon that has the identity uses the file, so no two write it.

use std::path::PathBuf;

use causeway_managers::HighestTerm;
use causeway_proto::metadata::{ClusterId, Term};
use causeway_security::{BadFile, BadState, StateFile};

/// More than the longest content.
const MOST: usize = 128;

/// Why the stored term is not used.
#[derive(Debug, thiserror::Error)]
enum Unusable {
    #[error("{0}")]
    File(#[from] BadState),
    #[error("{0}")]
    Foreign(#[from] BadFile),
}

/// The file, and what it has. See the module.
#[derive(Debug, Default)]
pub(super) struct RememberedTerm {
    /// `None`: the node is another one after each start.
    file: Option<StateFile>,
    stored: Option<(ClusterId, Term)>,
}

impl RememberedTerm {
    /// Reads the file, if there is one.
    pub(super) fn open(file: Option<PathBuf>) -> RememberedTerm {
        let file = file.map(StateFile::at);
        let stored = file.as_ref().map(read).transpose();
        let stored = stored.unwrap_or_else(|error| {
            tracing::warn!(
                %error,
                "the highest known term of the device manager cannot be read; a restored manager may be believed"
            );
            None
        });
        RememberedTerm {
            stored: stored.flatten(),
            file,
        }
    }

    /// What a daemon that has just started believes.
    pub(super) fn highest(&self) -> HighestTerm {
        self.stored
            .map_or_else(HighestTerm::default, |(cluster, term)| {
                HighestTerm::remembering(cluster, term)
            })
    }

    /// Writes the term if it is higher than the stored one, or of another cluster.
    pub(super) fn keep(&mut self, highest: &HighestTerm) {
        let (Some(file), Some(cluster)) = (&self.file, highest.cluster()) else {
            return;
        };
        let term = highest.term();
        let is_stored = |(of, stored): (ClusterId, Term)| of == cluster && stored >= term;
        if self.stored.is_some_and(is_stored) {
            return;
        }
        if let Err(error) = file.replace_durably(&format!("{cluster} {term}\n")) {
            tracing::warn!(%error, "the highest known term of the device manager cannot be stored");
        }
        // Also after a failure, which would be repeated with each answer.
        self.stored = Some((cluster, term));
    }
}

fn read(file: &StateFile) -> Result<Option<(ClusterId, Term)>, Unusable> {
    let Some(text) = file.read(MOST)? else {
        return Ok(None);
    };
    causeway_security::check_own(file.path())?;
    let parsed = text
        .trim_end()
        .split_once(' ')
        .and_then(|(cluster, term)| Some((ClusterId::parse(cluster)?, Term::parse(term)?)));
    let damaged = || file.damaged(&"the file has no term");
    Ok(Some(parsed.ok_or_else(damaged)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: ClusterId = ClusterId([1; 16]);
    const B: ClusterId = ClusterId([2; 16]);

    fn met(cluster: ClusterId, term: u64) -> HighestTerm {
        let mut highest = HighestTerm::default();
        highest.hear(Some(Term(term)), Some(cluster)).unwrap();
        highest
    }

    #[test]
    fn the_next_daemon_believes_no_lower_term_and_a_new_cluster() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("node-1.term");
        let open = || RememberedTerm::open(Some(file.clone()));
        open().keep(&met(A, 7));
        let mut highest = open().highest();
        assert!(highest.hear(Some(Term(6)), Some(A)).is_err());
        assert_eq!(highest.hear(Some(Term(7)), Some(A)), Ok(()));
        // The store was made anew.
        let mut highest = open().highest();
        assert_eq!(highest.hear(Some(Term(1)), Some(B)), Ok(()));
        open().keep(&highest);
        assert_eq!(open().stored, Some((B, Term(1))));
    }

    #[test]
    fn the_file_is_written_only_when_the_term_rises() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("node-1.term");
        let mut remembered = RememberedTerm::open(Some(file.clone()));
        remembered.keep(&met(A, 7));
        std::fs::remove_file(&file).unwrap();
        remembered.keep(&met(A, 7));
        assert!(!file.exists());
        remembered.keep(&met(A, 8));
        assert!(file.exists());
    }

    #[test]
    fn a_damaged_file_and_none_are_no_term() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("node-1.term");
        for text in ["", "7", "x 7", &"1".repeat(200)] {
            std::fs::write(&file, text).unwrap();
            assert_eq!(
                RememberedTerm::open(Some(file.clone())).stored,
                None,
                "{text}"
            );
        }
        let mut none = RememberedTerm::open(None);
        none.keep(&met(A, 7));
        assert_eq!(none.stored, None);
    }
}
