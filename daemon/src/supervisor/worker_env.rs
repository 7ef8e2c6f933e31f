//! The worker environment: a folder for each worker process, its own user where the settings say so, and
//! its confinement plan.
//!
//! This module starts no process ([`super::process`]) and confines none (`worker::confine`). Invariants: no
//! two living processes share a folder, nor, with a range of users, a user id. When the process has ended,
//! its folder is removed and its user id becomes free. A user id is not assigned while any process runs
//! under it.

use std::collections::{HashSet, VecDeque};
use std::ffi::OsString;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::Mutex;
use rustix::fs::{Access, access};

use super::inherited;
use super::process::Role;
use crate::build_cache::pocl;
use crate::config::{DriverCaches, Groups, SandboxSettings, WorkerUser};
use crate::confinement::{self, BadPlan, Identity, Plan, Sandbox};
use crate::leftovers;
use crate::scratch::{Folder, Scratch};
use crate::sys;

/// Variables that name drivers' compiler caches, in addition to those that [`WorkerEnv::variables`] sets.
const OTHER_CACHES: [&str; 3] = [
    "AMD_COMGR_CACHE_DIR",
    "MESA_SHADER_CACHE_DIR",
    "NEO_CACHE_DIR",
];

/// The worker environments cannot be set up.
#[derive(Debug, thiserror::Error)]
pub enum WorkerEnvError {
    /// The parent folder of the workers' folders cannot be made.
    #[error(
        "cannot make a folder for sessions' processes in {}: {error}; set [sandbox] directory in daemon.toml to \
         another one",
        parent.display()
    )]
    Folder {
        /// Directory in which the folder should be made.
        parent: PathBuf,
        /// The system's error.
        error: io::Error,
    },
    /// The settings name another user for the workers, but only root can change users.
    #[error(
        "[sessions] {0} requires a daemon that runs as root; start it as root or remove the setting"
    )]
    NotRoot(&'static str),
    /// The machine does not have a configured user or group.
    #[error("[sessions] {kind}: this machine has no {kind} {name:?}; create it or name another")]
    Unknown {
        /// `user` or `group`.
        kind: &'static str,
        /// The name that was not found.
        name: String,
    },
    /// The configured user for workers is root.
    #[error("[sessions] user: {0:?} is root; name an unprivileged user")]
    Root(String),
    /// The user database cannot be read.
    #[error("cannot read this machine's user database: {0}")]
    Database(#[source] io::Error),
}

/// Makes worker environments.
#[derive(Clone)]
pub(super) struct WorkerEnvs(Arc<Shared>);

struct Shared {
    scratch: Scratch,
    users: Users,
    sandbox: SandboxSettings,
    private_caches: bool,
    /// Whether the daemon serves one program of its own user only.
    private: bool,
    /// Set when drivers work only outside the sandbox, and the settings allow to run without it.
    fallen_back: AtomicBool,
}

enum Users {
    Daemon,
    Named(Identity),
    Range { groups: Vec<u32>, free: Mutex<Free> },
}

/// The user ids of the range that are not assigned.
struct Free {
    /// The ids that have been free for longest come first.
    numbers: VecDeque<u32>,
    /// Ids for which the log already has a warning that other processes use them.
    told: HashSet<u32>,
}

/// The environment of one worker process.
pub(super) struct WorkerEnv {
    folder: Option<Folder>,
    user: Option<Identity>,
    worker_envs: WorkerEnvs,
}

impl WorkerEnvs {
    /// Returns the names of further variables that workers inherit from the daemon.
    pub(super) fn inherited(&self) -> &[String] {
        &self.0.sandbox.environment
    }

    /// Sets up the worker environments according to the settings.
    ///
    /// If the settings do not decide, drivers' caches are private in three cases. In the first, workers have
    /// users of their own, which could not write to shared caches. In the second, the daemon's user has no
    /// home to write to, and PoCL has no devices without a cache. In the third, the daemon serves
    /// `strangers`: callers that are unrelated to each other. `private`: see
    /// [`Settings::private`](crate::config::Settings::private).
    ///
    /// # Errors
    /// [`WorkerEnvError`].
    pub(super) fn open(
        sandbox: SandboxSettings,
        user: &WorkerUser,
        strangers: bool,
        private: bool,
    ) -> Result<WorkerEnvs, WorkerEnvError> {
        let parent = sandbox.directory.clone().unwrap_or_else(std::env::temp_dir);
        let users = Users::of(user)?;
        let scratch =
            Scratch::open(&parent).map_err(|error| WorkerEnvError::Folder { parent, error })?;
        for path in sandbox.read.iter().chain(&sandbox.write) {
            if !path.exists() {
                tracing::warn!(path = %path.display(), "[sandbox] names a path that does not exist");
            }
        }
        let private_caches = match sandbox.driver_caches {
            Some(caches) => caches == DriverCaches::Private,
            None => {
                strangers || *user != WorkerUser::Daemon || !has_home(|name| std::env::var_os(name))
            }
        };
        Ok(WorkerEnvs(Arc::new(Shared {
            scratch,
            users,
            sandbox,
            private_caches,
            private,
            fallen_back: AtomicBool::new(false),
        })))
    }

    /// Makes the environment for a process that is about to start.
    ///
    /// # Errors
    /// The system's error, or an error if no user id is free.
    pub(super) fn create(&self) -> io::Result<WorkerEnv> {
        // The environment owns the user id from the start, so an error below makes the id free again.
        let mut worker_env = WorkerEnv {
            folder: None,
            user: self.0.users.take()?,
            worker_envs: self.clone(),
        };
        let folder = worker_env.folder.insert(self.0.scratch.folder()?);
        let temporary = folder.path().join(TEMPORARY);
        std::fs::create_dir(&temporary)?;
        if let Some(user) = &worker_env.user {
            for path in [folder.path(), &temporary] {
                std::os::unix::fs::chown(path, Some(user.uid), Some(user.gid))?;
            }
        }
        Ok(worker_env)
    }

    /// Returns whether new processes run in a sandbox.
    pub(super) fn are_sandboxed(&self) -> bool {
        self.0.sandbox.enabled && !self.0.fallen_back.load(Ordering::Relaxed)
    }

    /// Returns whether the settings allow workers without a sandbox if a driver needs that.
    pub(super) fn may_fall_back(&self) -> bool {
        self.0.sandbox.fall_back
    }

    /// Starts all further processes without a sandbox.
    pub(super) fn fall_back(&self) {
        self.0.fallen_back.store(true, Ordering::Relaxed);
    }

    /// Returns remarks for administrators about settings that are less safe than they could be.
    pub(super) fn remarks(&self) -> Vec<String> {
        let mut remarks = Vec::new();
        if !self.0.sandbox.enabled {
            remarks.push(
                "the sandbox is disabled: sessions' processes have all rights of their user; leave out --no-sandbox and \
                 [sandbox] enabled = false"
                    .to_owned(),
            );
        } else if !self.are_sandboxed() {
            remarks.push(
                "drivers show devices only outside the sandbox, so it is disabled as [sandbox] fall_back allows: \
                 sessions' processes have all rights of their user; name the drivers' files in [sandbox] read"
                    .to_owned(),
            );
        }
        // A private daemon serves its own user only, and it has no daemon.toml in which another user could
        // be named.
        let is_roots = rustix::process::geteuid().is_root() && !self.0.private;
        if is_roots && matches!(self.0.users, Users::Daemon) {
            remarks.push(
                "sessions' processes run as root, without capabilities; set [sessions] uid_range (or user) in \
                 daemon.toml"
                    .to_owned(),
            );
        }
        remarks
    }
}

/// Whether drivers find a folder for their caches that this process may write to.
fn has_home(variable: impl Fn(&str) -> Option<OsString>) -> bool {
    ["XDG_CACHE_HOME", "HOME"]
        .into_iter()
        .filter_map(variable)
        .any(|folder| access(Path::new(&folder), Access::WRITE_OK).is_ok())
}

const TEMPORARY: &str = "tmp";
/// Variable that makes AMD's runtime leave its threads on the processors on which they start. By default
/// the runtime sets a new thread's processor affinity. The sandbox denies that call, and the thread would
/// not start.
const AMD_AFFINITY: &str = "HSA_OVERRIDE_CPU_AFFINITY_DEBUG";
/// Variable that names the folder of an MPS server's pipes. A process that finds an MPS server there becomes
/// its client, and NVIDIA's OpenCL then creates no context (-9999). So workers get a folder that does not
/// exist, unless `[sandbox] environment` names the variable.
const MPS_PIPES: &str = "CUDA_MPS_PIPE_DIRECTORY";

impl WorkerEnv {
    /// Records the process group of the process that was started in this environment. If the daemon is
    /// killed, the next daemon ends the processes that are left in the group.
    pub(super) fn is_for(&self, pid: u32) {
        let own = rustix::process::geteuid().as_raw();
        let user = self.user.as_ref().map_or(own, |user| user.uid);
        if let Some(folder) = &self.folder
            && let Err(error) =
                leftovers::write_down(&leftovers::record_beside(folder.path()), pid, user)
        {
            tracing::debug!(%error, pid, "a worker's process group cannot be recorded");
        }
    }

    /// Returns the environment variables for a process of this role; `None` as a value removes the
    /// variable.
    ///
    /// # Errors
    /// [`BadPlan`] if a path is not valid UTF-8.
    pub(super) fn variables(
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
        if !inherited::is_named(MPS_PIPES.as_ref(), self.worker_envs.inherited()) {
            place(MPS_PIPES, "no-mps");
        }
        if self.worker_envs.0.private_caches {
            place("HOME", "");
            place("XDG_CACHE_HOME", "cache");
            place(pocl::FOLDER, "pocl");
            place("CUDA_CACHE_PATH", "nv");
            variables.extend(OTHER_CACHES.map(|name| (name, None)));
        }
        Ok(variables)
    }

    fn plan(&self, role: Role) -> Plan {
        let settings = &self.worker_envs.0.sandbox;
        let own = self.folder.iter().map(|folder| folder.path().to_owned());
        let is_sandboxed = self.worker_envs.are_sandboxed();
        let sandbox = match role {
            Role::Trial => None,
            // These read strangers' packets. They need no files beyond the system's, and no connections. They need no driver,
            // so no driver keeps them out of the sandbox.
            Role::Announce | Role::Find => settings.enabled.then(|| Sandbox {
                connect_ports: Some(Vec::new()),
                datagrams: true,
                ..Sandbox::default()
            }),
            // Connects where workers may. It needs no driver, so no driver keeps it out of the sandbox.
            Role::Link => settings.enabled.then(|| Sandbox {
                connect_ports: settings.connect_ports.clone(),
                datagrams: settings.connect_ports.is_none(),
                ..Sandbox::default()
            }),
            _ => is_sandboxed.then(|| Sandbox {
                read: settings.read.clone(),
                write: settings.write.iter().cloned().chain(own).collect(),
                shared_caches: !self.worker_envs.0.private_caches,
                connect_ports: settings.connect_ports.clone(),
                datagrams: settings.connect_ports.is_none(),
            }),
        };
        Plan {
            user: self.user.clone(),
            sandbox,
        }
    }
}

impl Drop for WorkerEnv {
    fn drop(&mut self) {
        let (worker_envs, folder) = (self.worker_envs.clone(), self.folder.take());
        let uid = self.user.as_ref().map(|user| user.uid);
        let vacate = move || {
            // The user id becomes free only when its files are gone.
            drop(folder);
            worker_envs.0.users.give_back(uid);
        };
        // Removing files may be slow, and the supervisor has only one thread.
        match tokio::runtime::Handle::try_current() {
            Ok(runtime) => drop(runtime.spawn_blocking(vacate)),
            Err(_) => vacate(),
        }
    }
}

impl Users {
    fn of(user: &WorkerUser) -> Result<Users, WorkerEnvError> {
        let root_for = |key| match rustix::process::geteuid().is_root() {
            true => Ok(()),
            false => Err(WorkerEnvError::NotRoot(key)),
        };
        match user {
            WorkerUser::Daemon => Ok(Users::Daemon),
            WorkerUser::Named { name, groups } => {
                root_for("user")?;
                let found = sys::user(name).map_err(WorkerEnvError::Database)?;
                let (uid, gid) = found.ok_or_else(|| unknown("user", name))?;
                if uid == 0 {
                    return Err(WorkerEnvError::Root(name.clone()));
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
                let uid = uid.ok_or_else(|| {
                    io::Error::other(
                        "all user ids of uid_range are in use; enlarge the range or end the processes that use it",
                    )
                })?;
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
    /// Takes the first user id that no process uses. A process may be left over from a session, or belong
    /// to another daemon with the same range. Ids in use move to the back of the queue, so that they are
    /// not checked first each time.
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
                    "another process already uses this user id of uid_range; the next one is used"
                );
            }
        }
        None
    }
}

fn unknown(kind: &'static str, name: &str) -> WorkerEnvError {
    WorkerEnvError::Unknown {
        kind,
        name: name.to_owned(),
    }
}

fn numbers(groups: &Groups) -> Result<Vec<u32>, WorkerEnvError> {
    let mut numbers = Vec::new();
    for name in &groups.names {
        match sys::group(name).map_err(WorkerEnvError::Database)? {
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
    fn a_home_that_does_not_exist_holds_no_caches() {
        let folder = tempfile::tempdir().unwrap();
        let home = |at: PathBuf| {
            has_home(move |name| (name == "HOME").then(|| at.clone().into_os_string()))
        };
        assert!(home(folder.path().to_owned()));
        assert!(!home(folder.path().join("nonexistent")));
        assert!(!has_home(|_| None));
    }

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
