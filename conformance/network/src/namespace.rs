//! A network namespace without a name. It lives as long as a descriptor here or a process inside refers
//! to it. Then the kernel removes it with every device in it. So a crash of the process that built a
//! network leaves no bridge and no cable behind.
//!
//! The contents of a namespace are not handled here. Only this file of the crate changes the namespace of
//! threads and processes.

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

/// One network namespace, shared by its holders.
#[derive(Clone, Debug)]
pub(crate) struct Namespace {
    file: Arc<File>,
}

impl Namespace {
    /// Makes a new, empty namespace, whose loopback is down. [`Error::Unavailable`] without the privilege.
    pub(crate) fn new() -> Result<Self> {
        let file = within_a_thread(|| {
            // SAFETY: a new network namespace leaves the descriptor table shared, which the function's
            // contract is about. The thread ends right after.
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

    /// Opens a namespace that another process holds.
    pub(crate) fn open(path: &str) -> Result<Self> {
        let file = File::open(path).map_err(Error::io(format!("open {path}")))?;
        Ok(Self {
            file: Arc::new(file),
        })
    }

    /// Runs `body` in its own thread inside of the namespace. Its sockets, threads and
    /// processes stay in the namespace.
    pub(crate) fn enter<T: Send>(&self, body: impl FnOnce() -> T + Send) -> Result<T> {
        within_a_thread(|| {
            join(&self.file).map_err(Error::io("enter a network namespace"))?;
            Ok(body())
        })
    }

    /// Returns a command that runs inside of the namespace.
    pub(crate) fn command(&self, program: impl AsRef<OsStr>) -> Command {
        let mut command = Command::new(program);
        let file = Arc::clone(&self.file);
        // SAFETY: between fork and exec only `setns` is called, a plain system call. Nothing is allocated and
        // no lock is taken. The closure owns the descriptor, so it is open whenever the command is spawned.
        unsafe { command.pre_exec(move || join(&file)) };
        command
    }

    /// A path by which another process of root can open the namespace while this process lives.
    pub(crate) fn path(&self) -> String {
        format!("/proc/{}/fd/{}", std::process::id(), self.file.as_raw_fd())
    }

    /// The target of `/proc/PID/ns/net` of a process inside.
    pub(crate) fn label(&self) -> Result<String> {
        let link = std::fs::read_link(self.path()).map_err(Error::io("read a namespace's name"))?;
        Ok(link.to_string_lossy().into_owned())
    }
}

/// Moves the calling thread into the namespace behind `file`, permanently.
fn join(file: &File) -> io::Result<()> {
    move_into_link_name_space(file.as_fd(), Some(LinkNameSpaceType::Network))?;
    Ok(())
}

/// Runs `body` in a new thread, because a change of namespace must not affect the caller's thread.
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
