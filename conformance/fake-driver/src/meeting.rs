//! Calls of several processes that wait for each other. So a test knows that they ran at the same time.
//!
//! Each attending call leaves a file in the meeting's folder, which tests can see as well. Invariant: no
//! call waits longer than [`PATIENCE`].

use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

const PATIENCE: Duration = Duration::from_secs(10);

/// The folder of a meeting, and the number of calls.
#[derive(Clone, Debug)]
pub(crate) struct Meeting {
    pub(crate) folder: PathBuf,
    pub(crate) of: usize,
}

impl Meeting {
    /// Waits for the other calls. Returns whether they came.
    pub(crate) fn attend(&self) -> bool {
        static CALLS: AtomicU64 = AtomicU64::new(0);
        let call = CALLS.fetch_add(1, Ordering::Relaxed);
        let mark = format!("{}-{call}", std::process::id());
        let end = Instant::now() + PATIENCE;
        if std::fs::write(self.folder.join(mark), "").is_err() {
            return false;
        }
        while self.present() < self.of {
            if Instant::now() > end {
                return false;
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        true
    }

    fn present(&self) -> usize {
        std::fs::read_dir(&self.folder).map_or(0, Iterator::count)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_wait_for_each_other() {
        let folder = tempfile::tempdir().unwrap();
        let meeting = Meeting {
            folder: folder.path().to_owned(),
            of: 2,
        };
        let other = meeting.clone();
        let waiter = std::thread::spawn(move || other.attend());
        assert!(meeting.attend() && waiter.join().unwrap());
        let nowhere = Meeting {
            folder: folder.path().join("nowhere"),
            of: 1,
        };
        assert!(!nowhere.attend());
    }
}
