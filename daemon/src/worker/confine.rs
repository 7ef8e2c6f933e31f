//! What a worker process gives up before it loads a driver.
#![forbid(unsafe_code)]

use std::io::Write;
use std::os::fd::{AsFd, OwnedFd};

use rustix::process::{DumpableBehavior, Resource, Rlimit, Signal};

/// Gives up what a worker does not need, and ties its life to the supervisor's.
///
/// That the supervisor may have died before the tie was made is no gap: the socket that it held is
/// closed then, and a worker whose socket is closed ends.
pub(super) fn confine() -> std::io::Result<()> {
    // When memory runs out, a session goes before the daemon does. Not every kernel lets us say so.
    let _ = std::fs::OpenOptions::new()
        .write(true)
        .open("/proc/self/oom_score_adj")
        .and_then(|mut file| file.write_all(b"500"));
    rustix::process::set_parent_process_death_signal(Some(Signal::KILL))?;
    rustix::thread::set_no_new_privs(true)?;
    rustix::process::set_dumpable_behavior(DumpableBehavior::NotDumpable)?;
    Ok(())
}

/// Lets the process have no more than so many bytes of memory of its own; 0: as many as there are.
///
/// What counts is what it can write (`RLIMIT_DATA`): drivers reserve far more address space than they
/// use.
pub(super) fn limit_memory(bytes: u64) -> std::io::Result<()> {
    if bytes > 0 {
        let limit = Rlimit {
            current: Some(bytes),
            maximum: Some(bytes),
        };
        rustix::process::setrlimit(Resource::Data, limit)?;
    }
    Ok(())
}

/// Takes the socket to the supervisor from descriptor 0 and leaves `/dev/null` there.
pub(super) fn take_channel() -> std::io::Result<OwnedFd> {
    let channel = std::io::stdin().as_fd().try_clone_to_owned()?;
    let null = std::fs::File::open("/dev/null")?;
    rustix::stdio::dup2_stdin(&null)?;
    Ok(channel)
}
