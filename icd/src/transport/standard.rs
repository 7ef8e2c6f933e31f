//! Keeps this library's descriptors out of the numbers of the standard streams.
//!
//! A program may run with descriptor 0, 1 or 2 closed (`program >&-`, some daemons). The system gives a
//! new descriptor the lowest free number. So a socket of this library could receive what the program
//! prints, and the program would read from it. Code that opens lasting descriptors does so under a
//! [`kept_free`] guard. Duplicates need no guard, since std never makes them that low, nor do files that
//! are closed at once. Invariant: while a guard exists, a new descriptor is above 2. Afterwards the
//! numbers are free as before.
//!
//! A file that is closed at once, of this library, of libc or of the program, may have such a number when a guard
//! begins. It would leave the number to the next descriptor. So the guard waits for it, at most [`PATIENCE`]. The
//! invariant does not hold for the number of a file that stays for longer and is then closed.

use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd as _, IntoRawFd as _, OwnedFd};
use std::path::Path;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use rustix::fs::{MemfdFlags, fstat, memfd_create};

use super::sys;

/// Highest descriptor number of the standard streams.
const HIGHEST: i32 = 2;

/// Longest wait for a file at such a number to be closed, on a busy machine too. No guard waits again for a file that
/// stays: it is the program's own, or the loader's directory.
const PATIENCE: Duration = Duration::from_millis(30);

static HELD: Mutex<Fillers> = Mutex::new(Fillers {
    guards: 0,
    fillers: Vec::new(),
    stays: [None; HIGHEST as usize + 1],
});

// The fillers serve all guards together: while they exist, a second guard finds no number free.
struct Fillers {
    guards: usize,
    fillers: Vec<Filler>,
    // The files, by inode, that have outlasted a wait at these numbers.
    stays: [Option<u64>; HIGHEST as usize + 1],
}

/// A file of this library at such a number, recognised by its inode.
struct Filler {
    descriptor: OwnedFd,
    inode: u64,
}

/// A guard: until it is dropped, no new descriptor gets the number of a standard stream.
#[must_use]
pub(super) struct KeptFree(());

/// Fills the numbers that are free. Costs five system calls. If the system has no descriptors left, nothing is
/// filled.
pub(super) fn kept_free() -> KeptFree {
    let mut held = HELD.lock();
    held.guards += 1;
    held.fill();
    if held.is_one_passing() {
        held.wait_until_filled();
    }
    KeptFree(())
}

/// Opens a file that the process keeps, for reading and writing. Creates it if it does not exist.
///
/// # Errors
/// The system's error.
pub(crate) fn open_lasting(path: &Path) -> io::Result<File> {
    let _kept_free = kept_free();
    let mut options = File::options();
    options.read(true).write(true).create(true).truncate(false);
    options.open(path)
}

impl Fillers {
    fn fill(&mut self) {
        while let Ok(descriptor) = memfd_create(c"causeway", MemfdFlags::CLOEXEC)
            && descriptor.as_raw_fd() <= HIGHEST
            && let Ok(told) = fstat(&descriptor)
        {
            // The loop ends with a descriptor above the range, which is closed at once.
            let inode = told.st_ino;
            self.fillers.push(Filler { descriptor, inode });
        }
    }

    fn wait_until_filled(&mut self) {
        let begun = Instant::now();
        while self.is_one_passing() {
            if begun.elapsed() > PATIENCE {
                self.stays = std::array::from_fn(|number| sys::inode(number as i32));
                return;
            }
            std::thread::yield_now();
            self.fill();
        }
    }

    // Whether a file that will be closed soon seems to have one of the numbers. A standard stream is inherited by the
    // programs that this one starts; such a file is not.
    fn is_one_passing(&self) -> bool {
        (0..=HIGHEST).zip(self.stays).any(|(number, stays)| {
            let is_filler = |filler: &Filler| filler.descriptor.as_raw_fd() == number;
            if self.fillers.iter().any(is_filler) {
                return false;
            }
            match sys::is_close_on_exec(number) {
                Some(is_close_on_exec) => is_close_on_exec && stays != sys::inode(number),
                // It was closed since the numbers were filled.
                None => true,
            }
        })
    }
}

impl Filler {
    /// Closes the filler, unless the program has put a file of its own there meanwhile (`dup2`).
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
