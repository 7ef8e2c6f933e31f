//! Waking who sleeps on a ring: a byte on a socket, which also tells that the other process is gone.
//!
//! Invariant: ringing never blocks, and who waits hears it when either process ends or shuts the bell.
#![forbid(unsafe_code)]

use std::io;
use std::os::fd::OwnedFd;

use rustix::io::Errno;
use rustix::net::{SendFlags, Shutdown};

/// One end of a connected pair of stream sockets; one thread at a time waits on it.
#[derive(Debug)]
pub(crate) struct Bell(pub(crate) OwnedFd);

impl Bell {
    /// Wakes the other end. Where so many rings were not heard yet that one more finds no room, it is
    /// awake; where it is gone, this end finds out when it waits.
    pub(crate) fn ring(&self) {
        let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
        let _ = rustix::net::send(&self.0, &[0], flags);
    }

    /// Waits until the other end rings; false when there will be no ring any more.
    ///
    /// # Errors
    /// What the system says.
    pub(crate) fn wait(&self) -> io::Result<bool> {
        // Several rings are one.
        let mut rings = [0; 64];
        loop {
            match rustix::io::read(&self.0, &mut rings) {
                Ok(heard) => return Ok(heard > 0),
                Err(Errno::INTR) => {}
                Err(Errno::CONNRESET) => return Ok(false),
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// Nobody waits here any more, on either end.
    pub(crate) fn shut(&self) {
        let _ = rustix::net::shutdown(&self.0, Shutdown::Both);
    }
}
