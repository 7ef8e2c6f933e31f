//! The places of the program's standard streams, which no descriptor of ours may take.
//!
//! A program may run with descriptor 0, 1 or 2 closed (`program >&-`, some daemons). The system gives a new
//! descriptor the lowest free number, so a socket of ours would get what the program prints, and the program
//! would read from it. What opens descriptors that stay does so under a [`kept_free`]. It is not about
//! duplicates, which std never puts so low, nor about files that are closed at once.
//! Invariant: while one is held, a new descriptor is above 2; afterwards the places are as they were.

use std::os::fd::{AsRawFd as _, IntoRawFd as _, OwnedFd};

use parking_lot::Mutex;
use rustix::fs::{MemfdFlags, fstat, memfd_create};

/// Of the standard streams.
const HIGHEST: i32 = 2;

static HELD: Mutex<Held> = Mutex::new(Held {
    guards: 0,
    fillers: Vec::new(),
});

// The fillers are there for all guards together: who opens while another's are there finds no place free.
struct Held {
    guards: usize,
    fillers: Vec<Filler>,
}

/// A file of our own in such a place, by whose inode it is known.
struct Filler {
    descriptor: OwnedFd,
    inode: u64,
}

/// Until it is dropped, no new descriptor gets a standard stream's place.
#[must_use]
pub(super) struct KeptFree(());

/// Fills those of the places that are free. Costs two system calls; where there is no descriptor left, nothing is
/// filled.
pub(super) fn kept_free() -> KeptFree {
    let mut held = HELD.lock();
    held.guards += 1;
    while let Ok(descriptor) = memfd_create(c"causeway", MemfdFlags::CLOEXEC)
        && descriptor.as_raw_fd() <= HIGHEST
        && let Ok(told) = fstat(&descriptor)
    {
        let inode = told.st_ino;
        held.fillers.push(Filler { descriptor, inode });
    }
    KeptFree(())
}

impl Filler {
    /// Closes it, unless the program has put something of its own there meanwhile (`dup2`).
    fn leave(self) {
        if !fstat(&self.descriptor).is_ok_and(|told| told.st_ino == self.inode) {
            let _ = self.descriptor.into_raw_fd();
        }
    }
}

impl Drop for KeptFree {
    fn drop(&mut self) {
        let mut held = HELD.lock();
        held.guards -= 1;
        if held.guards == 0 {
            held.fillers.drain(..).for_each(Filler::leave);
        }
    }
}
