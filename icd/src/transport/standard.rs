//! The places of the program's standard streams, which no descriptor of ours may take.
//!
//! A program may run with descriptor 0, 1 or 2 closed (`program >&-`, some daemons). The system gives a new
//! descriptor the lowest free number, so a socket of ours would get what the program prints, and the program
//! would read from it. What opens descriptors that stay does so under a [`kept_free`]. It is not about
//! duplicates, which std never puts so low, nor about files that are closed at once.
//! Invariant: while one is held, a new descriptor is above 2; afterwards the places are as they were.

use std::os::fd::{AsRawFd as _, OwnedFd};

use parking_lot::Mutex;
use rustix::fs::{Mode, OFlags};

/// Of the standard streams.
const HIGHEST: i32 = 2;

static HELD: Mutex<Held> = Mutex::new(Held {
    guards: 0,
    fillers: Vec::new(),
});

// The fillers are there for all guards together: who opens while another's are there finds no place free.
struct Held {
    guards: usize,
    fillers: Vec<OwnedFd>,
}

/// Until it is dropped, no new descriptor gets a standard stream's place.
#[must_use]
pub(super) struct KeptFree(());

/// Fills those of the places that are free. Costs a system call or two; where there is no `/dev/null`, or no
/// descriptor left, nothing is filled.
pub(super) fn kept_free() -> KeptFree {
    let mut held = HELD.lock();
    held.guards += 1;
    while let Ok(filler) =
        rustix::fs::open("/dev/null", OFlags::RDWR | OFlags::CLOEXEC, Mode::empty())
        && filler.as_raw_fd() <= HIGHEST
    {
        held.fillers.push(filler);
    }
    KeptFree(())
}

impl Drop for KeptFree {
    fn drop(&mut self) {
        let mut held = HELD.lock();
        held.guards -= 1;
        if held.guards == 0 {
            held.fillers.clear();
        }
    }
}
