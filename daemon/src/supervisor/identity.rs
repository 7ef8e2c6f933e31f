//! The persistent uuid of a node. A device manager recognizes a restarted node by it, and then knows that the leases of the
//! earlier run have ended. Clients find their devices again by it, also at other addresses.
//!
//! The file contains a random seed. The uuid is a digest of the seed and the machine's id. A cloned machine with a new
//! machine id is therefore another node. The daemon takes a random uuid if another daemon uses the seed, or if the seed
//! cannot be stored. It is then another node at each start. What depends on one run of a daemon uses [`Identity::run`].

use std::fs::{File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use causeway_discovery::Run;
use rustix::fs::{FlockOperation, flock};
use sha2::{Digest, Sha256};
use uuid::Uuid;

use crate::config::Settings;

const SEED: usize = 32;

/// Who this daemon is.
#[derive(Debug)]
pub(super) struct Identity {
    /// The node's uuid, which it keeps.
    pub(super) uuid: Uuid,
    /// Whether it keeps it.
    pub(super) is_kept: bool,
    /// New at each start.
    pub(super) run: Run,
    /// The file for the highest term of a manager that the node has met. `None`: the uuid is not kept.
    pub(super) term_file: Option<PathBuf>,
    /// Keeps other daemons from using the uuid.
    _lock: Option<File>,
}

impl Identity {
    /// The daemon's identity. `parked` is the uuid of the directory of parked sessions, which goes before all others.
    pub(super) fn of(settings: &Settings, parked: Option<Uuid>) -> Identity {
        // A private daemon lives as long as one program.
        let kept = match parked.or(settings.private.then(Uuid::new_v4)) {
            Some(uuid) => Ok((uuid, None)),
            None => {
                kept(settings.state.as_deref(), &machine()).map(|(uuid, lock)| (uuid, Some(lock)))
            }
        };
        let is_kept = kept.is_ok() && !settings.private;
        let state = settings.state.as_deref();
        let term_file = state.map(|folder| path(folder, &machine()).with_extension("term"));
        let (uuid, lock) = kept.unwrap_or_else(|problem| {
            let text = "this causewayd is another node at each start, so programs that wait for it after its end do not find it";
            // A user who gives the daemon no directory may want that, unless a manager or an announcement names the node.
            let is_named = settings.manager.is_some() || settings.announce.is_some();
            match matches!(problem, NotKept::NoFolder) && !is_named {
                true => tracing::info!("{problem}; {text}"),
                false => tracing::warn!("{problem}; {text}"),
            }
            (Uuid::new_v4(), None)
        });
        Identity {
            uuid,
            is_kept,
            run: rand::random(),
            // The lock is that of both files.
            term_file: term_file.filter(|_| lock.is_some()),
            _lock: lock,
        }
    }
}

/// Why the node's uuid is not kept.
#[derive(Debug, thiserror::Error)]
enum NotKept {
    #[error(
        "the node's identity cannot be stored, because no state directory is set (XDG_STATE_HOME, HOME or STATE_DIRECTORY)"
    )]
    NoFolder,
    #[error(
        "another running causewayd uses the identity of {file}; end the other one, or give this one a folder of its own \
         (XDG_STATE_HOME, or STATE_DIRECTORY)", file = .0.display()
    )]
    InUse(PathBuf),
    #[error("the node's identity in {file} cannot be read or stored: {error}", file = file.display())]
    System { file: PathBuf, error: io::Error },
}

/// Returns the node's uuid and the lock that keeps other daemons from using it.
fn kept(folder: Option<&Path>, machine: &[u8]) -> Result<(Uuid, File), NotKept> {
    let folder = folder.ok_or(NotKept::NoFolder)?;
    let file = path(folder, machine);
    match seed(folder, &file) {
        Ok((seed, lock)) => Ok((uuid_of(&seed, machine), lock)),
        // The seed's file is locked by the daemon that uses it.
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => Err(NotKept::InUse(file)),
        Err(error) => Err(NotKept::System { file, error }),
    }
}

/// The seed's file. Its name depends on the machine, because machines may share a home.
fn path(folder: &Path, machine: &[u8]) -> PathBuf {
    let digest = Sha256::new()
        .chain_update(b"causeway seed 1\0")
        .chain_update(machine)
        .finalize();
    let number = u32::from_be_bytes(std::array::from_fn(|i| digest[i]));
    folder.join(format!("node-{number:08x}.seed"))
}

fn seed(folder: &Path, path: &Path) -> io::Result<([u8; SEED], File)> {
    std::fs::create_dir_all(folder)?;
    causeway_security::check_own(path).map_err(io::Error::other)?;
    let mut file = open_locked(path)?;
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
pub(super) fn open_locked(path: &Path) -> io::Result<File> {
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
        let kept = |machine: &[u8]| kept(Some(folder.path()), machine);
        let (first, lock) = kept(b"one").unwrap();
        assert!(matches!(kept(b"one"), Err(NotKept::InUse(_))));
        // A home that two machines share, and that locks for both.
        let (other, other_lock) = kept(b"other").unwrap();
        assert_ne!(first, other);
        drop((lock, other_lock));
        assert_eq!(kept(b"one").unwrap().0, first);
        assert_eq!(kept(b"other").unwrap().0, other);
        assert!(matches!(super::kept(None, b""), Err(NotKept::NoFolder)));
    }

    #[test]
    fn a_clone_with_a_machine_id_of_its_own_is_another_node() {
        assert_ne!(uuid_of(&[1; SEED], b"one"), uuid_of(&[1; SEED], b"other"));
    }

    #[test]
    fn a_spoilt_seed_is_not_used() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(path(folder.path(), b"one"), b"short").unwrap();
        assert!(matches!(
            kept(Some(folder.path()), b"one"),
            Err(NotKept::System { .. })
        ));
    }
}
