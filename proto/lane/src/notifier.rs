//! Wakes a thread that sleeps on a ring: a byte on a socket, which also shows when the other process is
//! gone.
//!
//! Invariant: ringing never blocks. A waiting thread wakes up when either process ends or shuts the notifier.
#![forbid(unsafe_code)]

use std::io;
use std::os::fd::OwnedFd;

use rustix::io::Errno;
use rustix::net::{SendFlags, Shutdown};

/// One end of a connected pair of stream sockets. One thread at a time waits on it.
#[derive(Debug)]
pub(crate) struct Notifier(pub(crate) OwnedFd);

impl Notifier {
    /// Wakes the other end. If the socket has no room for one more ring, the other end is awake already.
    /// If the other end is gone, this end finds out when it waits.
    pub(crate) fn ring(&self) {
        let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
        let _ = rustix::net::send(&self.0, &[0], flags);
    }

    /// Waits until the other end rings. Returns false when it will never ring again.
    ///
    /// # Errors
    /// Errors of the system.
    pub(crate) fn wait(&self) -> io::Result<bool> {
        // Several unread rings count as one.
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

    /// Shuts the notifier: no thread waits here any more, on either end.
    pub(crate) fn shut(&self) {
        let _ = rustix::net::shutdown(&self.0, Shutdown::Both);
    }
}
