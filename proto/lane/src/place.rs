//! Decides whether two processes can share memory: whether they have the same running kernel and network
//! namespace.
//!
//! A daemon listens on an abstract Unix socket name and tells its clients a salted digest of its place. A
//! client that computes the same digest is in the same place, where the name belongs to the daemon. In
//! another place another program could listen on that name, so the client does not connect. Invariant:
//! the digest reveals nothing about a machine to processes on other machines.
#![forbid(unsafe_code)]

use std::fmt::Write as _;
use std::fs;
use std::io;
use std::os::fd::OwnedFd;
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::fs::MetadataExt as _;
use std::os::unix::net::{SocketAddr, UnixListener};

use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};
use sha2::{Digest, Sha256};

const SALT: usize = 16;
const DIGEST: usize = 32;

/// The place of one daemon; see the module.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DaemonPlace {
    salt: [u8; SALT],
    digest: [u8; DIGEST],
}

impl DaemonPlace {
    /// The place of this process. `salt` must differ for each daemon. `None` if the system does not
    /// provide the information.
    #[must_use]
    pub fn here(salt: [u8; SALT]) -> Option<DaemonPlace> {
        let boot = fs::read("/proc/sys/kernel/random/boot_id").ok()?;
        let network = fs::metadata("/proc/self/ns/net").ok()?;
        let mut digest = Sha256::new();
        for part in [&b"causeway lane"[..], &salt, &boot] {
            // The lengths keep different parts from giving the same digest input.
            digest.update((part.len() as u64).to_le_bytes());
            digest.update(part);
        }
        digest.update(network.dev().to_le_bytes());
        digest.update(network.ino().to_le_bytes());
        let digest = digest.finalize().into();
        Some(DaemonPlace { salt, digest })
    }

    /// The encoded place, which a daemon tells its clients.
    #[must_use]
    pub fn tell(&self) -> [u8; SALT + DIGEST] {
        let mut told = [0; SALT + DIGEST];
        told[..SALT].copy_from_slice(&self.salt);
        told[SALT..].copy_from_slice(&self.digest);
        told
    }

    /// Decodes a place. `None` if this process is in another place.
    #[must_use]
    pub fn told(told: &[u8]) -> Option<DaemonPlace> {
        let (salt, digest) = told.split_at_checked(SALT)?;
        let here = DaemonPlace::here(salt.try_into().ok()?)?;
        (here.digest == digest).then_some(here)
    }

    /// Listens on the place's socket name.
    ///
    /// # Errors
    /// Errors of the system.
    pub fn listen(&self) -> io::Result<UnixListener> {
        UnixListener::bind_addr(&SocketAddr::from_abstract_name(self.name())?)
    }

    /// Connects to the place's socket name. Does not wait.
    ///
    /// # Errors
    /// Errors of the system; `WouldBlock` when too many connections are pending.
    pub fn connect(&self) -> io::Result<OwnedFd> {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let socket =
            rustix::net::socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
        let address = SocketAddrUnix::new_abstract_name(self.name().as_bytes())?;
        rustix::net::connect(&socket, &address)?;
        rustix::io::ioctl_fionbio(&socket, false)?;
        Ok(socket)
    }

    fn name(&self) -> String {
        self.digest[..16]
            .iter()
            .fold("causeway-".to_owned(), |mut name, byte| {
                let _ = write!(name, "{byte:02x}");
                name
            })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_is_a_daemons_own() {
        let place = DaemonPlace::here([1; SALT]).unwrap();
        assert_eq!(DaemonPlace::told(&place.tell()), Some(place));
        assert_ne!(DaemonPlace::here([2; SALT]), Some(place));
        let mut elsewhere = place.tell();
        elsewhere[SALT] ^= 1;
        for told in [&elsewhere[..], &elsewhere[..SALT], &[]] {
            assert_eq!(DaemonPlace::told(told), None);
        }
    }

    #[test]
    fn who_listens_is_reached_and_nobody_else() {
        let salt = u128::from(std::process::id()).to_le_bytes();
        let place = DaemonPlace::here(salt).unwrap();
        let error = place.connect().unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::ConnectionRefused);
        let listener = place.listen().unwrap();
        let _socket = place.connect().unwrap();
        listener.accept().unwrap();
    }
}
