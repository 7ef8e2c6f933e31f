//! What each worker process has for itself: a folder, a user where the settings say so, and the plan of its
//! confinement.
//!
//! What it is not: it starts no process ([`super::process`]), and confines none (`worker::confine`). Invariant:
//! no two processes that live have the same folder, nor, with a range of users, the same user; a folder goes,
//! and a user is free again, when the process has ended, and is not given out as long as any process has it.

use std::collections::{HashSet, VecDeque};
use std::ffi::OsString;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::Mutex;

use super::process::Role;
use crate::build_cache::pocl;
use crate::config::{DriverCaches, Groups, SandboxSettings, WorkerUser};
use crate::confinement::{self, BadPlan, Identity, Plan, Sandbox};
use crate::leftovers;
use crate::scratch::{Folder, Scratch};
use crate::sys;

/// By which drivers are told where they keep what they have compiled, besides those that a cell sets.
const OTHER_CACHES: [&str; 3] = [
    "AMD_COMGR_CACHE_DIR",
    "MESA_SHADER_CACHE_DIR",
    "NEO_CACHE_DIR",
];

/// There are no cells.
#[derive(Debug, thiserror::Error)]
pub enum NoCells {
    /// The folder of folders cannot be made.
    #[error(
        "no folder for sessions' processes can be made in {}: {error} ([sandbox] directory in daemon.toml names another place)",
        parent.display()
    )]
    Folder {
        /// Where.
        parent: PathBuf,
        /// Why not.
        error: io::Error,
    },
    /// Who is not root stays who he is.
    #[error("[sessions] {0}: the daemon must be started as root to give its workers another user")]
    NotRoot(&'static str),
    /// A user or group that this machine does not have.
    #[error("[sessions] {kind}: there is no {kind} {name:?} on this machine")]
    Unknown {
        /// `user` or `group`.
        kind: &'static str,
        /// Its name.
        name: String,
    },
    /// Workers would be what they are to be kept from.
    #[error("[sessions] user: {0:?} is root")]
    Root(String),
    /// The user database.
    #[error("the users of this machine cannot be looked up: {0}")]
    Database(#[source] io::Error),
}

/// Makes cells.
#[derive(Clone)]
pub(super) struct Cells(Arc<Shared>);

struct Shared {
    scratch: Scratch,
    users: Users,
    sandbox: SandboxSettings,
    private_caches: bool,
    /// The daemon serves one program of its own user's.
    private: bool,
    /// Drivers work outside of the sandbox only, and the settings allow that.
    fallen_back: AtomicBool,
}

enum Users {
    Daemon,
    Named(Identity),
    Range { groups: Vec<u32>, free: Mutex<Free> },
}

/// The numbers of a range that no cell has.
struct Free {
    /// The one that has been free for longest first.
    numbers: VecDeque<u32>,
    /// Those of which the log has said that somebody else has them.
    told: HashSet<u32>,
}

/// One process's.
pub(super) struct Cell {
    folder: Option<Folder>,
    user: Option<Identity>,
    cells: Cells,
}

impl Cells {
    /// More of the daemon's variables for those that live in cells.
    pub(super) fn variables(&self) -> &[String] {
        &self.0.sandbox.environment
    }

    /// As the settings say. Drivers' caches are private unless they say otherwise where workers have users of
    /// their own, which could not write to others' caches, or where `strangers` to each other are
    /// served. `private`: see [`Settings::private`](crate::config::Settings::private).
    ///
    /// # Errors
    /// [`NoCells`].
    pub(super) fn open(
        sandbox: SandboxSettings,
        user: &WorkerUser,
        strangers: bool,
        private: bool,
    ) -> Result<Cells, NoCells> {
        let parent = sandbox.directory.clone().unwrap_or_else(std::env::temp_dir);
        let users = Users::of(user)?;
        let scratch = Scratch::open(&parent).map_err(|error| NoCells::Folder { parent, error })?;
        for path in sandbox.read.iter().chain(&sandbox.write) {
            if !path.exists() {
                tracing::warn!(path = %path.display(), "[sandbox] names what is not there");
            }
        }
        let private_caches = match sandbox.driver_caches {
            Some(caches) => caches == DriverCaches::Private,
            None => strangers || *user != WorkerUser::Daemon,
        };
        Ok(Cells(Arc::new(Shared {
            scratch,
            users,
            sandbox,
            private_caches,
            private,
            fallen_back: AtomicBool::new(false),
        })))
    }

    /// One for a process that is to be started.
    ///
    /// # Errors
    /// What the system says, or that no user is free.
    pub(super) fn cell(&self) -> io::Result<Cell> {
        let mut cell = Cell {
            folder: None,
            user: self.0.users.take()?,
            cells: self.clone(),
        };
        let folder = cell.folder.insert(self.0.scratch.folder()?);
        let temporary = folder.path().join(TEMPORARY);
        std::fs::create_dir(&temporary)?;
        if let Some(user) = &cell.user {
            for path in [folder.path(), &temporary] {
                std::os::unix::fs::chown(path, Some(user.uid), Some(user.gid))?;
            }
        }
        Ok(cell)
    }

    /// Whether processes are started in a sandbox.
    pub(super) fn are_closed(&self) -> bool {
        self.0.sandbox.enabled && !self.0.fallen_back.load(Ordering::Relaxed)
    }

    /// Whether the settings allow to go on without.
    pub(super) fn may_fall_back(&self) -> bool {
        self.0.sandbox.fall_back
    }

    /// Processes that are started from now on have no sandbox.
    pub(super) fn fall_back(&self) {
        self.0.fallen_back.store(true, Ordering::Relaxed);
    }

    /// What is less safe than it could be, for people.
    pub(super) fn remarks(&self) -> Vec<String> {
        let mut remarks = Vec::new();
        if !self.0.sandbox.enabled {
            remarks.push(
                "the sandbox is switched off: sessions' processes may reach all that their user may"
                    .to_owned(),
            );
        } else if !self.are_closed() {
            remarks.push(
                "drivers show devices outside of the sandbox only, and [sandbox] fall_back allows that: \
                 sessions' processes may reach all that their user may"
                    .to_owned(),
            );
        }
        // A private daemon serves a program of the same user, and has no daemon.toml that could name another.
        let is_roots = rustix::process::geteuid().is_root() && !self.0.private;
        if is_roots && matches!(self.0.users, Users::Daemon) {
            remarks.push(
                "sessions' processes are root's, without capabilities: give them a user of their own by \
                 [sessions] uid_range (or user) in daemon.toml"
                    .to_owned(),
            );
        }
        remarks
    }
}

const TEMPORARY: &str = "tmp";
/// By which AMD's runtime is told to leave its threads on the processors that they start on. Its default, to set a
/// new thread's processors by the thread's number, is denied in the sandbox, and the thread would not start.
const AMD_AFFINITY: &str = "HSA_OVERRIDE_CPU_AFFINITY_DEBUG";

impl Cell {
    /// A process was started for it, which leads a group: what is left of that if the daemon is killed is ended by the
    /// next one.
    pub(super) fn is_for(&self, pid: u32) {
        let own = rustix::process::geteuid().as_raw();
        let user = self.user.as_ref().map_or(own, |user| user.uid);
        if let Some(folder) = &self.folder
            && let Err(error) =
                leftovers::write_down(&leftovers::record_beside(folder.path()), pid, user)
        {
            tracing::debug!(%error, pid, "the process's group is not written down");
        }
    }

    /// The variables that a process of this role has for it: to be set, or removed.
    ///
    /// # Errors
    /// When a path cannot be passed on.
    pub(super) fn environment(
        &self,
        role: Role,
    ) -> Result<Vec<(&'static str, Option<OsString>)>, BadPlan> {
        let mut variables = vec![(
            confinement::VARIABLE,
            Some(self.plan(role).encode()?.into()),
        )];
        if std::env::var_os(AMD_AFFINITY).is_none() {
            variables.push((AMD_AFFINITY, Some("0".into())));
        }
        let Some(folder) = self.folder.as_ref().map(Folder::path) else {
            return Ok(variables);
        };
        let mut place = |name, path: &str| variables.push((name, Some(folder.join(path).into())));
        place("TMPDIR", TEMPORARY);
        if self.has_private_caches(role) {
            place("HOME", "");
            place("XDG_CACHE_HOME", "cache");
            place(pocl::FOLDER, "pocl");
            place("CUDA_CACHE_PATH", "nv");
            variables.extend(OTHER_CACHES.map(|name| (name, None)));
        }
        if matches!(role, Role::Compiler) {
            let usual = pocl::folder(&|name| std::env::var_os(name));
            variables.push((pocl::USUAL, Some(usual)));
        }
        Ok(variables)
    }

    fn plan(&self, role: Role) -> Plan {
        let settings = &self.cells.0.sandbox;
        let own = self.folder.iter().map(|folder| folder.path().to_owned());
        let sandbox = (self.cells.are_closed() && !matches!(role, Role::Trial)).then(|| Sandbox {
            read: settings.read.clone(),
            write: settings.write.iter().cloned().chain(own).collect(),
            shared_caches: !self.has_private_caches(role),
            connect_ports: settings.connect_ports.clone(),
        });
        Plan {
            user: self.user.clone(),
            sandbox,
        }
    }

    /// PoCL does not survive that two processes fill one cache with the same program at once, and what is
    /// built for everybody comes from nobody's cache: the compiling worker always has its own.
    fn has_private_caches(&self, role: Role) -> bool {
        self.cells.0.private_caches || matches!(role, Role::Compiler)
    }
}

impl Drop for Cell {
    fn drop(&mut self) {
        let (cells, folder) = (self.cells.clone(), self.folder.take());
        let uid = self.user.as_ref().map(|user| user.uid);
        let vacate = move || {
            drop(folder);
            cells.0.users.give_back(uid);
        };
        // A disk may be slow, and the supervisor has one thread.
        match tokio::runtime::Handle::try_current() {
            Ok(runtime) => drop(runtime.spawn_blocking(vacate)),
            Err(_) => vacate(),
        }
    }
}

impl Users {
    fn of(user: &WorkerUser) -> Result<Users, NoCells> {
        let root_for = |key| match rustix::process::geteuid().is_root() {
            true => Ok(()),
            false => Err(NoCells::NotRoot(key)),
        };
        match user {
            WorkerUser::Daemon => Ok(Users::Daemon),
            WorkerUser::Named { name, groups } => {
                root_for("user")?;
                let found = sys::user(name).map_err(NoCells::Database)?;
                let (uid, gid) = found.ok_or_else(|| unknown("user", name))?;
                if uid == 0 {
                    return Err(NoCells::Root(name.clone()));
                }
                let groups = numbers(groups)?;
                Ok(Users::Named(Identity { uid, gid, groups }))
            }
            WorkerUser::Range {
                first,
                count,
                groups,
            } => {
                root_for("uid_range")?;
                let range = *first..*first + *count;
                leftovers::end_users(&range);
                Ok(Users::Range {
                    groups: numbers(groups)?,
                    free: Mutex::new(Free {
                        numbers: range.collect(),
                        told: HashSet::new(),
                    }),
                })
            }
        }
    }

    fn take(&self) -> io::Result<Option<Identity>> {
        match self {
            Users::Daemon => Ok(None),
            Users::Named(user) => Ok(Some(user.clone())),
            Users::Range { groups, free } => {
                let uid = free.lock().take(leftovers::has_processes);
                let uid = uid.ok_or_else(|| io::Error::other("no user of uid_range is free"))?;
                Ok(Some(Identity {
                    uid,
                    gid: uid,
                    groups: groups.clone(),
                }))
            }
        }
    }

    fn give_back(&self, uid: Option<u32>) {
        if let (Users::Range { free, .. }, Some(uid)) = (self, uid) {
            free.lock().numbers.push_back(uid);
        }
    }
}

impl Free {
    /// The first that no process has: not one that a session has left, nor one of another daemon with the same range.
    /// Those before it go to the back, so that they are not asked about each time.
    fn take(&mut self, has_processes: impl Fn(u32) -> bool) -> Option<u32> {
        for _ in 0..self.numbers.len() {
            let uid = self.numbers.pop_front()?;
            if !has_processes(uid) {
                self.told.remove(&uid);
                return Some(uid);
            }
            self.numbers.push_back(uid);
            if self.told.insert(uid) {
                tracing::warn!(
                    uid,
                    "a number of uid_range has processes already: another is taken"
                );
            }
        }
        None
    }
}

fn unknown(kind: &'static str, name: &str) -> NoCells {
    NoCells::Unknown {
        kind,
        name: name.to_owned(),
    }
}

fn numbers(groups: &Groups) -> Result<Vec<u32>, NoCells> {
    let mut numbers = Vec::new();
    for name in &groups.names {
        match sys::group(name).map_err(NoCells::Database)? {
            Some(gid) => numbers.push(gid),
            None if groups.must_exist => return Err(unknown("group", name)),
            None => {}
        }
    }
    Ok(numbers)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_that_somebody_has_waits_behind_the_others() {
        let mut free = Free {
            numbers: (1..=4).collect(),
            told: HashSet::new(),
        };
        assert_eq!(free.take(|uid| uid == 1), Some(2));
        assert_eq!(
            (free.numbers.make_contiguous(), free.told.len()),
            (&mut [3, 4, 1][..], 1)
        );
        assert_eq!(free.take(|_| true), None);
        assert_eq!((free.numbers.len(), free.told.len()), (3, 3));
        assert_eq!(free.take(|_| false), Some(3));
        assert!(!free.told.contains(&3));
    }
}
