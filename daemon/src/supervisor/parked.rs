//! The directory of `[survival]`: sessions that a daemon which ended has parked for the next one.
//!
//! A session has two files. Its worker writes `ID.contents`, over a descriptor that the supervisor has opened. The
//! supervisor writes `ID.session`, with the session's secret and key. Both are readable for the daemon's user only, and
//! go away when the client comes back, or after [`KEPT`]. Nothing of them is logged.
//!
//! A session that its daemon has ended without parking it has `ID.session` alone, with the reason. The next daemon reads
//! and removes that file when it starts.
//!
//! The directory also has the node's uuid. The next daemon takes it over, and with it the place where programs of this
//! host find it. While a daemon runs, it locks that file, so no other daemon has the directory.
//!
//! Invariant: a session without `ID.session` does not exist. That file is written last and removed first.
#![forbid(unsafe_code)]

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Read, Seek, Write};
use std::net::IpAddr;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use causeway_proto::control::Client;
use causeway_proto::id::SessionId;
use causeway_proto::version::WireVersion;
use prost::Message;
use uuid::Uuid;

use super::holders::Holder;
use super::identity::open_locked;
use crate::handover::Assignment;

/// Time for which a parked session is kept.
pub(super) const KEPT: Duration = Duration::from_secs(600);
const SESSION: &str = "session";
const CONTENTS: &str = "contents";
const UNFINISHED: &str = "unfinished";
const KINDS: [&str; 3] = [SESSION, CONTENTS, UNFINISHED];
/// More than a session's own file has.
const ROOM: usize = 4096;
/// The file with the node's uuid.
const NODE: &str = "node";

/// The directory.
#[derive(Clone, Debug)]
pub(super) struct ParkedSessions {
    directory: PathBuf,
    /// The node's uuid. The file is locked until the daemon ends.
    uuid: Uuid,
    _lock: Arc<File>,
}

/// A session as its file describes it.
#[derive(Clone, PartialEq, Message)]
pub(super) struct Ticket {
    #[prost(uint32, tag = "1")]
    pub(super) wire_version: u32,
    /// The inventory's generation, by which the next daemon knows that its devices are the same.
    #[prost(uint64, tag = "2")]
    pub(super) generation: u64,
    /// An encoded [`Assignment`], which contains the secret.
    #[prost(bytes = "vec", tag = "3")]
    assignment: Vec<u8>,
    #[prost(message, optional, tag = "4")]
    pub(super) client: Option<Client>,
    #[prost(string, tag = "5")]
    address: String,
    #[prost(string, optional, tag = "6")]
    user: Option<String>,
    #[prost(uint64, tag = "7")]
    pub(super) restart_ms: u64,
    /// Why the session was not parked and is lost.
    #[prost(string, optional, tag = "8")]
    pub(super) lost: Option<String>,
    /// If the session may share a process with others: the boot by whose host clock it goes. A process has one clock. Empty in
    /// tickets of older daemons.
    #[prost(string, tag = "9")]
    pub(super) boot: String,
}

impl Ticket {
    pub(super) fn new(
        assignment: &Assignment,
        generation: u64,
        client: Client,
        holder: &Holder,
        restart: Duration,
    ) -> Ticket {
        Ticket {
            wire_version: WireVersion::CURRENT.number().into(),
            generation,
            assignment: assignment.to_bytes(),
            client: Some(client),
            address: holder.address.map(|of| of.to_string()).unwrap_or_default(),
            user: holder.user.clone(),
            restart_ms: u64::try_from(restart.as_millis()).unwrap_or(u64::MAX),
            lost: None,
            boot: String::new(),
        }
    }

    /// What another node needs of the session.
    pub(super) fn to_bytes(&self) -> Vec<u8> {
        self.encode_to_vec()
    }

    /// Reads the description of a session of another node. `None` if it is damaged.
    pub(super) fn from_bytes(bytes: &[u8]) -> Option<Ticket> {
        Ticket::decode(bytes).ok()
    }

    /// The session's assignment; `None` if it is damaged.
    pub(super) fn assignment(&self) -> Option<Assignment> {
        Assignment::from_bytes(&self.assignment)
    }

    pub(super) fn holder(&self) -> Holder {
        Holder {
            address: self.address.parse::<IpAddr>().ok(),
            user: self.user.clone(),
        }
    }
}

impl ParkedSessions {
    /// Opens the directory, and makes it if there is none.
    pub(super) fn open(directory: &Path) -> io::Result<ParkedSessions> {
        match DirBuilder::new().mode(0o700).create(directory) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                let parent = directory.parent().unwrap_or(directory).display();
                return Err(io::Error::other(format!(
                    "{parent} does not exist; create it first"
                )));
            }
            made => made?,
        }
        let found = fs::metadata(directory)?;
        let own = rustix::process::geteuid().as_raw();
        if !found.is_dir() || found.uid() != own || found.mode() & 0o077 != 0 {
            return Err(io::Error::other(
                "it must be a directory of the daemon's user with mode 0700",
            ));
        }
        let (uuid, lock) = uuid(&directory.join(NODE))?;
        Ok(ParkedSessions {
            directory: directory.to_owned(),
            uuid,
            _lock: Arc::new(lock),
        })
    }

    /// The node's uuid, which the daemons of this directory have in common.
    pub(super) fn node_uuid(&self) -> Uuid {
        self.uuid
    }

    /// Makes the file for a session's contents, and room for the session itself, so that [`Self::keep`] finds it.
    pub(super) fn contents(&self, id: &SessionId) -> io::Result<File> {
        create(&self.path(id, UNFINISHED))?.write_all(&[0; ROOM])?;
        create(&self.path(id, CONTENTS))
    }

    /// Writes a session, whose contents are written. Removes the contents of one that is lost.
    pub(super) fn keep(&self, id: &SessionId, ticket: &Ticket) -> io::Result<()> {
        if ticket.lost.is_some() {
            self.remove(id, CONTENTS);
        }
        let unfinished = self.path(id, UNFINISHED);
        let ticket = ticket.encode_to_vec();
        let mut file = OpenOptions::new().write(true).open(&unfinished)?;
        file.write_all(&ticket)?;
        file.set_len(ticket.len() as u64)?;
        fs::rename(unfinished, self.path(id, SESSION))
    }

    /// Opens the contents of a session and removes both files.
    pub(super) fn take(&self, id: &SessionId) -> io::Result<File> {
        let contents = File::open(self.path(id, CONTENTS));
        self.discard(id);
        contents
    }

    /// Removes the files of a session.
    pub(super) fn discard(&self, id: &SessionId) {
        for kind in KINDS {
            self.remove(id, kind);
        }
    }

    fn remove(&self, id: &SessionId, kind: &str) {
        match fs::remove_file(self.path(id, kind)) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                tracing::warn!(%error, session = ?id, "cannot remove a file of a parked session");
            }
            _ => {}
        }
    }

    /// Returns all sessions, and for how long each is kept from now on. Removes the files of others.
    pub(super) fn all(&self) -> io::Result<Vec<(SessionId, Ticket, Duration)>> {
        let mut all = Vec::new();
        let mut others = Vec::new();
        for entry in fs::read_dir(&self.directory)? {
            let path = entry?.path();
            let has_kind = |kind: &&str| path.extension() == Some(kind.as_ref());
            match read(&path) {
                Some(found) if path == self.path(&found.0, SESSION) => all.push(found),
                _ if KINDS.iter().any(has_kind) => others.push(path),
                _ => {}
            }
        }
        let is_of = |path: &Path| {
            let contents = all.iter().map(|(id, ..)| self.path(id, CONTENTS));
            contents.into_iter().any(|of| of == path)
        };
        for path in others.iter().filter(|path| !is_of(path)) {
            let _ = fs::remove_file(path);
        }
        Ok(all)
    }

    fn path(&self, id: &SessionId, kind: &str) -> PathBuf {
        let name = Uuid::from_bytes(id.0);
        self.directory.join(format!("{name}.{kind}"))
    }
}

// Reads the file of a session that is not too old.
fn read(path: &Path) -> Option<(SessionId, Ticket, Duration)> {
    if path.extension()? != SESSION {
        return None;
    }
    let written = fs::metadata(path).ok()?.modified().ok()?;
    let age = SystemTime::now()
        .duration_since(written)
        .unwrap_or_default();
    let left = KEPT.checked_sub(age)?;
    let ticket = Ticket::decode(&fs::read(path).ok()?[..]).ok()?;
    Some((ticket.assignment()?.id, ticket, left))
}

// Locks the file with the node's uuid. Makes it if there is none.
fn uuid(path: &Path) -> io::Result<(Uuid, File)> {
    let mut file = open_locked(path).map_err(|error| match error.kind() {
        io::ErrorKind::WouldBlock => {
            io::Error::other("another causewayd uses it; give each its own")
        }
        _ => error,
    })?;
    let mut bytes = Vec::new();
    (&file).take(17).read_to_end(&mut bytes)?;
    if let Ok(known) = Uuid::from_slice(&bytes) {
        return Ok((known, file));
    }
    let new = Uuid::new_v4();
    file.set_len(0)?;
    file.rewind()?;
    file.write_all(new.as_bytes())?;
    Ok((new, file))
}

fn create(path: &Path) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options.read(true).write(true).create_new(true).mode(0o600);
    match options.open(path) {
        // An earlier attempt of this daemon.
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
            fs::remove_file(path)?;
            options.open(path)
        }
        opened => opened,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn a_directory_that_others_may_read_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o755)).unwrap();
        assert!(ParkedSessions::open(folder.path()).is_err());
        let nowhere = folder.path().join("no").join("parked");
        let error = ParkedSessions::open(&nowhere).unwrap_err().to_string();
        assert!(
            error.ends_with("/no does not exist; create it first"),
            "{error}"
        );
        let own = folder.path().join("parked");
        let parked = ParkedSessions::open(&own).unwrap();
        assert_eq!(fs::metadata(&own).unwrap().mode() & 0o777, 0o700);
        let id = SessionId([7; 16]);
        parked.contents(&id).unwrap();
        let mode = fs::metadata(parked.path(&id, CONTENTS)).unwrap().mode();
        assert_eq!(mode & 0o777, 0o600);
    }

    #[test]
    fn files_that_are_no_sessions_are_removed_and_those_of_others_are_not() {
        let folder = tempfile::tempdir().unwrap();
        let parked = ParkedSessions::open(&folder.path().join("parked")).unwrap();
        parked.contents(&SessionId([1; 16])).unwrap();
        fs::write(parked.path(&SessionId([2; 16]), SESSION), b"nonsense").unwrap();
        let copy = ticket(SessionId([3; 16])).encode_to_vec();
        fs::write(parked.path(&SessionId([4; 16]), SESSION), copy).unwrap();
        fs::write(parked.directory.join("notes.txt"), b"a stranger's").unwrap();
        fs::create_dir(parked.directory.join("folder.contents")).unwrap();
        assert!(parked.all().unwrap().is_empty());
        let entries = fs::read_dir(&parked.directory).unwrap();
        let mut left: Vec<_> = entries.map(|of| of.unwrap().file_name()).collect();
        left.sort();
        assert_eq!(left, ["folder.contents", NODE, "notes.txt"]);
    }

    #[test]
    fn sessions_are_kept_for_their_time() {
        let folder = tempfile::tempdir().unwrap();
        let parked = ParkedSessions::open(&folder.path().join("parked")).unwrap();
        let id = SessionId([3; 16]);
        let ticket = ticket(id);
        parked.contents(&id).unwrap();
        parked.keep(&id, &ticket).unwrap();
        let (found, read, left) = parked.all().unwrap().remove(0);
        assert_eq!((found, &read), (id, &ticket));
        assert!(left <= KEPT && left > KEPT - Duration::from_secs(60));
        let file = File::options()
            .write(true)
            .open(parked.path(&id, SESSION))
            .unwrap();
        file.set_modified(SystemTime::now() - KEPT).unwrap();
        assert!(parked.all().unwrap().is_empty());
        assert!(!parked.path(&id, CONTENTS).exists());
    }

    fn ticket(id: SessionId) -> Ticket {
        let restart = Duration::from_secs(9);
        Ticket::new(
            &Assignment::of_test(id),
            5,
            Client::default(),
            &Holder::default(),
            restart,
        )
    }

    #[test]
    fn the_next_daemon_has_the_same_uuid_and_two_at_once_are_refused() {
        let folder = tempfile::tempdir().unwrap();
        let directory = folder.path().join("parked");
        let first = ParkedSessions::open(&directory).unwrap();
        assert!(ParkedSessions::open(&directory).is_err());
        let uuid = first.node_uuid();
        drop(first);
        assert_eq!(ParkedSessions::open(&directory).unwrap().node_uuid(), uuid);
    }
}
