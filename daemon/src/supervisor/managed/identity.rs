//! The persistent uuid of a managed node. The device manager recognizes a restarted node by it, and then
//! knows that the leases of the earlier run have ended.
//!
//! The file contains a random seed. The uuid is a digest of the seed and the machine's id. A cloned machine
//! with a new machine id is therefore another node. The daemon takes a random uuid if another daemon uses
//! the seed, or if the seed cannot be stored. Its earlier leases then end only when they time out.

use std::fs::{File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use rustix::fs::{FlockOperation, flock};
use sha2::{Digest, Sha256};
use uuid::Uuid;

const SEED: usize = 32;

/// Advice for administrators who run two daemons on one machine on purpose.
const OWN_FOLDER: &str =
    "end the other one, or give this one a folder of its own (XDG_STATE_HOME, or STATE_DIRECTORY)";

/// Returns the node's uuid and the lock that keeps other daemons from using it.
pub(crate) fn node_uuid(folder: Option<&Path>) -> (Uuid, Option<File>) {
    let Some(folder) = folder else {
        tracing::warn!(
            "the node's identity cannot be stored, because no state directory is set (XDG_STATE_HOME, HOME or \
             STATE_DIRECTORY); the device manager sees a new node at each start"
        );
        return (Uuid::new_v4(), None);
    };
    match seed(folder) {
        Ok((seed, lock)) => (uuid_of(&seed, &machine()), Some(lock)),
        Err(error) => {
            let file = path(folder);
            // The seed's file is locked by the daemon that uses it.
            if error.kind() == io::ErrorKind::WouldBlock {
                tracing::warn!(
                    file = %file.display(),
                    cure = OWN_FOLDER,
                    "another running causewayd uses this identity; the device manager sees this one as a new node at \
                     each start"
                );
                return (Uuid::new_v4(), None);
            }
            tracing::warn!(
                file = %file.display(),
                %error,
                "the node's identity cannot be read or stored; the device manager sees a new node"
            );
            (Uuid::new_v4(), None)
        }
    }
}

fn path(folder: &Path) -> PathBuf {
    folder.join("node.seed")
}

fn seed(folder: &Path) -> io::Result<([u8; SEED], File)> {
    std::fs::create_dir_all(folder)?;
    causeway_security::check_own(&path(folder)).map_err(io::Error::other)?;
    let mut file = open_locked(&path(folder))?;
    let mut bytes = Vec::new();
    (&file).take(SEED as u64 + 1).read_to_end(&mut bytes)?;
    if bytes.is_empty() {
        let seed: [u8; SEED] = rand::random();
        file.write_all(&seed)?;
        file.sync_all()?;
        return Ok((seed, file));
    }
    let seed = bytes.try_into();
    let seed = seed.map_err(|_| {
        io::Error::new(
            io::ErrorKind::InvalidData,
            "the file is not a node seed; remove it",
        )
    })?;
    Ok((seed, file))
}

/// Opens a file that only this process may use until it ends. Makes the file if there is none.
pub(in super::super) fn open_locked(path: &Path) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options
        .read(true)
        .write(true)
        .create(true)
        .truncate(false)
        .mode(0o600);
    let file = options.open(path)?;
    flock(&file, FlockOperation::NonBlockingLockExclusive)?;
    Ok(file)
}

fn machine() -> Vec<u8> {
    // Without a machine id, the uuid depends on the seed alone.
    std::fs::read("/etc/machine-id").unwrap_or_default()
}

fn uuid_of(seed: &[u8; SEED], machine: &[u8]) -> Uuid {
    let digest = Sha256::new()
        .chain_update(b"causeway node 1\0")
        .chain_update(seed)
        .chain_update(machine)
        .finalize();
    let bytes = std::array::from_fn(|i| digest[i]);
    uuid::Builder::from_random_bytes(bytes).into_uuid()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_node_is_the_same_after_a_restart_and_never_twice_at_once() {
        let folder = tempfile::tempdir().unwrap();
        let (first, lock) = node_uuid(Some(folder.path()));
        let (meanwhile, none) = node_uuid(Some(folder.path()));
        assert_ne!(first, meanwhile);
        assert!(none.is_none());
        drop(lock);
        assert_eq!(node_uuid(Some(folder.path())).0, first);
    }

    #[test]
    fn a_clone_with_a_machine_id_of_its_own_is_another_node() {
        assert_ne!(uuid_of(&[1; SEED], b"one"), uuid_of(&[1; SEED], b"other"));
    }

    #[test]
    fn a_spoilt_seed_is_not_used() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(path(folder.path()), b"short").unwrap();
        assert!(node_uuid(Some(folder.path())).1.is_none());
    }
}
