//! What a worker process gives up before it loads a driver.
//!
//! A kernel may break out of its driver, so a worker is taken for what a stranger may come to rule. In this
//! order, because each step needs what a later one takes away: capabilities and the user, the privileges that
//! a program could gain, the files and ports ([`files`], Landlock), the system calls ([`calls`], seccomp).
//! Everything is inherited by the processes that a driver starts (PoCL's linker), and nothing of it can be
//! taken back.
//!
//! What it is not: it chooses nothing; the [`Plan`] is the supervisor's. Invariant: it runs while the process
//! has one thread, because the kernel confines threads, and those started later inherit it.
#![forbid(unsafe_code)]

mod calls;
mod files;

use std::io::Write;
use std::os::fd::{AsFd, OwnedFd};

use rustix::process::{DumpableBehavior, Gid, Resource, Rlimit, Signal, Uid};
use rustix::thread::{self, CapabilitySet, CapabilitySets};

use crate::confinement::{BadPlan, Identity, Plan};

/// Capabilities that there may be: the kernel's numbers, with room for later ones.
const CAPABILITIES: u32 = 64;

/// A worker is not confined as it should be, so it does not start.
#[derive(Debug, thiserror::Error)]
pub(super) enum NotConfined {
    /// It was not told how.
    #[error(transparent)]
    Plan(#[from] BadPlan),
    /// It cannot become whom it should be.
    #[error("it cannot become user {0}: {1}")]
    User(u32, std::io::Error),
    /// The system says no.
    #[error("{0}")]
    System(#[from] std::io::Error),
    /// Landlock is there, but takes not what it is given.
    #[error("Landlock: {0}")]
    Files(#[from] landlock::RulesetError),
    /// The same of seccomp.
    #[error("seccomp: {0}")]
    Calls(#[from] calls::NotFiltered),
}

/// Gives up what a worker does not need, and ties its life to the supervisor's. Says what this kernel lacks
/// of it, for people.
///
/// That the supervisor may have died before the tie was made is no gap: the socket that it held is
/// closed then, and a worker whose socket is closed ends.
pub(super) fn confine() -> Result<Vec<String>, NotConfined> {
    let plan = Plan::inherited()?;
    // When memory runs out, a session goes before the daemon does. Not every kernel lets us say so.
    let _ = std::fs::OpenOptions::new()
        .write(true)
        .open("/proc/self/oom_score_adj")
        .and_then(|mut file| file.write_all(b"500"));
    drop_bounds();
    if let Some(user) = &plan.user {
        become_user(user).map_err(|error| NotConfined::User(user.uid, error))?;
    }
    drop_capabilities()?;
    // Changing the user would undo it.
    close()?;
    let mut lacking = Vec::new();
    if let Some(sandbox) = &plan.sandbox {
        lacking.extend(files::restrict(sandbox)?);
        // Landlock does not judge to which ports datagrams go.
        lacking.extend(calls::restrict(sandbox.connect_ports.is_none())?);
    }
    Ok(lacking)
}

/// Ties the process's life to the supervisor's, lets no program that it runs gain a privilege, and nobody look
/// into it.
fn close() -> std::io::Result<()> {
    rustix::process::set_parent_process_death_signal(Some(Signal::KILL))?;
    thread::set_no_new_privs(true)?;
    Ok(rustix::process::set_dumpable_behavior(
        DumpableBehavior::NotDumpable,
    )?)
}

/// No program that this process runs can have a capability again. Only who may change capabilities can say
/// so; for others `no_new_privs` says the same.
fn drop_bounds() {
    for number in 0..CAPABILITIES {
        let _ = thread::remove_capability_from_bounding_set(CapabilitySet::from_bits_retain(
            1 << number,
        ));
    }
}

fn become_user(user: &Identity) -> std::io::Result<()> {
    let gid = Gid::from_raw(user.gid);
    let groups: Vec<Gid> = user.groups.iter().copied().map(Gid::from_raw).collect();
    thread::set_thread_groups(&groups)?;
    thread::set_thread_res_gid(gid, gid, gid)?;
    let uid = Uid::from_raw(user.uid);
    thread::set_thread_res_uid(uid, uid, uid)?;
    Ok(())
}

/// Root without capabilities is a user like others, but for the files that are root's.
fn drop_capabilities() -> std::io::Result<()> {
    // Kernels without ambient capabilities have none to clear.
    let _ = thread::clear_ambient_capability_set();
    let none = CapabilitySet::empty();
    thread::set_capabilities(
        None,
        CapabilitySets {
            effective: none,
            permitted: none,
            inheritable: none,
        },
    )?;
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
