//! Devices in exclusive mode: one process at a time has contexts on them.
//!
//! The process locks the device's file with its first context and unlocks it with its last. The lock is a
//! record lock of the process, so the system releases it if the process is killed. Invariant: this module
//! opens a device's file once at a time, because closing any descriptor of it would release the lock.

use std::collections::HashMap;
use std::fs::File;
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};

use cl_headers::types::CL_DEVICE_NOT_AVAILABLE;
use parking_lot::Mutex;

use crate::error::{ClResult, fail};

/// The files that this process has locked, each with the number of contexts.
static LOCKED: Mutex<Option<HashMap<PathBuf, (File, usize)>>> = Mutex::new(None);

/// A context's hold on a device.
pub(crate) struct Hold(PathBuf);

impl Hold {
    /// Takes the device whose file this is. Fails while another process has it.
    pub(crate) fn take(path: &Path) -> ClResult<Hold> {
        let mut locked = LOCKED.lock();
        let locked = locked.get_or_insert_default();
        if let Some((_, contexts)) = locked.get_mut(path) {
            *contexts += 1;
            return Ok(Hold(path.to_owned()));
        }
        let opened = File::options()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .open(path);
        match opened.ok().filter(lock) {
            Some(file) => {
                locked.insert(path.to_owned(), (file, 1));
                Ok(Hold(path.to_owned()))
            }
            None => fail(CL_DEVICE_NOT_AVAILABLE),
        }
    }
}

impl Drop for Hold {
    fn drop(&mut self) {
        let mut locked = LOCKED.lock();
        let Some(locked) = locked.as_mut() else {
            return;
        };
        if let Some((_, contexts)) = locked.get_mut(&self.0) {
            *contexts -= 1;
            if *contexts == 0 {
                locked.remove(&self.0);
            }
        }
    }
}

/// Locks the whole file for this process. Returns whether no other process has locked it.
fn lock(file: &File) -> bool {
    // SAFETY: the structure consists of integers, for which zeros are valid.
    let mut whole: libc::flock = unsafe { std::mem::zeroed() };
    whole.l_type = libc::F_WRLCK as libc::c_short;
    whole.l_whence = libc::SEEK_SET as libc::c_short;
    // SAFETY: the descriptor is open, and F_SETLK reads the structure during the call.
    unsafe { libc::fcntl(file.as_raw_fd(), libc::F_SETLK, &raw const whole) == 0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_has_its_device_until_its_last_context_is_gone() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("lock");
        let count = || {
            let locked = LOCKED.lock();
            locked.as_ref().and_then(|of| of.get(&path)).map(|of| of.1)
        };
        let first = Hold::take(&path).unwrap();
        let second = Hold::take(&path).unwrap();
        assert_eq!(count(), Some(2));
        drop(first);
        assert_eq!(count(), Some(1));
        drop(second);
        assert_eq!(count(), None);
        assert!(Hold::take(&folder.path().join("no/lock")).is_err());
    }
}
