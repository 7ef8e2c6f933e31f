//! A network namespace without a name: it lives as long as something holds it (a descriptor here, a process
//! inside) and the kernel removes it, with every device in it, when nothing does. That is why a crash of the
//! process that built a network leaves no bridge and no cable behind.
//!
//! Not here: what is in a namespace. The only place of this crate where threads and processes change theirs.

use std::ffi::OsStr;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::sync::Arc;
use std::thread;

use rustix::thread::{LinkNameSpaceType, UnshareFlags, move_into_link_name_space, unshare_unsafe};

use crate::error::{Error, Result};

/// One network namespace, shared by those who hold it.
#[derive(Clone, Debug)]
pub(crate) struct Namespace {
    file: Arc<File>,
}

impl Namespace {
    /// A new, empty one: its loopback is down. [`Error::Unavailable`] without the privilege.
    pub(crate) fn new() -> Result<Self> {
        let file = within_a_thread(|| {
            // SAFETY: a new network namespace leaves the descriptor table shared, which is what the function's
            // contract is about; the thread ends right after.
            unsafe { unshare_unsafe(UnshareFlags::NEWNET) }.map_err(|error| {
                Error::Unavailable(format!(
                    "no new network namespace (root is needed): {error}"
                ))
            })?;
            File::open("/proc/thread-self/ns/net").map_err(Error::io("open a network namespace"))
        })?;
        Ok(Self {
            file: Arc::new(file),
        })
    }

    /// One that another process holds.
    pub(crate) fn open(path: &str) -> Result<Self> {
        let file = File::open(path).map_err(Error::io(format!("open {path}")))?;
        Ok(Self {
            file: Arc::new(file),
        })
    }

    /// Runs `body` in a thread of its own inside. Sockets that it opens, and threads and processes that it
    /// starts, belong to the namespace for good.
    pub(crate) fn enter<T: Send>(&self, body: impl FnOnce() -> T + Send) -> Result<T> {
        within_a_thread(|| {
            join(&self.file).map_err(Error::io("enter a network namespace"))?;
            Ok(body())
        })
    }

    /// A command that runs inside once it is spawned.
    pub(crate) fn command(&self, program: impl AsRef<OsStr>) -> Command {
        let mut command = Command::new(program);
        let file = Arc::clone(&self.file);
        // SAFETY: between fork and exec only `setns` is called, a plain system call; nothing is allocated and no
        // lock is taken. The closure owns the descriptor, so it is open whenever the command is spawned.
        unsafe { command.pre_exec(move || join(&file)) };
        command
    }

    /// A path by which another process of root can open it while this one lives.
    pub(crate) fn path(&self) -> String {
        format!("/proc/{}/fd/{}", std::process::id(), self.file.as_raw_fd())
    }

    /// What `/proc/PID/ns/net` of a process inside links to.
    pub(crate) fn label(&self) -> Result<String> {
        let link = std::fs::read_link(self.path()).map_err(Error::io("read a namespace's name"))?;
        Ok(link.to_string_lossy().into_owned())
    }
}

/// Puts the calling thread into the namespace behind `file`, for good.
fn join(file: &File) -> io::Result<()> {
    move_into_link_name_space(file.as_fd(), Some(LinkNameSpaceType::Network))?;
    Ok(())
}

/// Runs `body` in a new thread: a change of namespace must not stay with the caller's.
fn within_a_thread<T: Send>(body: impl FnOnce() -> Result<T> + Send) -> Result<T> {
    thread::scope(|scope| {
        let thread = thread::Builder::new()
            .name("network-enter".into())
            .spawn_scoped(scope, body)
            .map_err(Error::io("start a thread"))?;
        thread
            .join()
            .unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    })
}
