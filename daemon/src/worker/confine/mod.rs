//! Confinement: the privileges that a worker process gives up before it loads a driver.
//!
//! A kernel may break out of its driver, so a worker must be treated as if an attacker controlled it. The
//! steps have a fixed order, because a later step removes what an earlier one needs: capabilities and the
//! user, privileges that a program could gain, files and ports ([`files`], Landlock), and system calls
//! ([`causeway_confine::calls`], seccomp). Processes that a driver starts, such as PoCL's linker, inherit everything.
//! Nothing can be undone.
//!
//! The supervisor makes the decisions, in its [`Plan`]. Invariant: this runs while the process has one
//! thread. The kernel confines single threads, and later threads inherit the confinement.
#![forbid(unsafe_code)]

mod files;

use std::os::fd::OwnedFd;

use causeway_confine::{
    calls, drop_bounds, drop_capabilities, harden, take_channel, yield_memory_first,
};
use rustix::process::{Gid, Resource, Rlimit, Uid};
use rustix::thread;

use crate::confinement::{BadPlan, Identity, Plan};

/// Why a worker cannot be confined as planned. It then does not start.
#[derive(Debug, thiserror::Error)]
pub(super) enum NotConfined {
    /// The inherited plan is missing or invalid.
    #[error(transparent)]
    Plan(#[from] BadPlan),
    /// The process cannot change its user.
    #[error(
        "the worker cannot change to user {0}: {1}; run causewayd as root or set another `uid_range` in daemon.toml"
    )]
    User(u32, std::io::Error),
    /// A system call failed.
    #[error("{0}")]
    System(#[from] std::io::Error),
    /// The kernel has Landlock, but rejects the rules.
    #[error("the kernel rejects the worker's Landlock rules: {0}")]
    Files(#[from] landlock::RulesetError),
    /// The kernel has seccomp, but rejects the filter.
    #[error("the kernel rejects the worker's seccomp filter: {0}")]
    Calls(#[from] calls::NotFiltered),
}

/// Confines the process and ties its life to the supervisor's. Returns what this kernel lacks for it, as
/// text for the administrator.
///
/// The supervisor may die before the tie is made. This leaves no gap, because its end of the worker's
/// socket is then closed, and the worker ends.
fn confine() -> Result<Vec<String>, NotConfined> {
    let plan = Plan::inherited()?;
    // When memory runs out, the kernel should kill a session before the daemon.
    yield_memory_first();
    drop_bounds();
    if let Some(user) = &plan.user {
        become_user(user).map_err(|error| NotConfined::User(user.uid, error))?;
    }
    drop_capabilities()?;
    // After the change of the user, which would reset these settings.
    harden()?;
    let mut lacking = Vec::new();
    if let Some(sandbox) = &plan.sandbox {
        lacking.extend(files::restrict(sandbox)?);
        lacking.extend(calls::restrict(sandbox.datagrams)?);
    }
    Ok(lacking)
}

fn become_user(user: &Identity) -> std::io::Result<()> {
    let gid = Gid::from_raw(user.gid);
    let groups: Vec<Gid> = user.groups.iter().copied().map(Gid::from_raw).collect();
    // Groups come first, because a process that has given up its user may no longer change them.
    thread::set_thread_groups(&groups)?;
    thread::set_thread_res_gid(gid, gid, gid)?;
    let uid = Uid::from_raw(user.uid);
    thread::set_thread_res_uid(uid, uid, uid)?;
    Ok(())
}

/// As [`causeway_confine::limit_memory`], for a host, which raises the limit with each further session.
pub(super) fn limit_host_memory(bytes: u64) -> std::io::Result<()> {
    let maximum = rustix::process::getrlimit(Resource::Data).maximum;
    let limit = Rlimit {
        current: Some(maximum.map_or(bytes, |maximum| maximum.min(bytes))),
        maximum,
    };
    Ok(rustix::process::setrlimit(Resource::Data, limit)?)
}

/// Limit on the descriptors of a host. Some libraries close all descriptors up to the limit one by one, so it is not
/// higher than needed.
const HOST_DESCRIPTORS: u64 = 1 << 16;

/// Lets a host have as many descriptors as the service manager allows, up to [`HOST_DESCRIPTORS`].
pub(super) fn raise_descriptor_limit() {
    let Rlimit { current, maximum } = rustix::process::getrlimit(Resource::Nofile);
    let most = maximum.map_or(HOST_DESCRIPTORS, |maximum| maximum.min(HOST_DESCRIPTORS));
    if current.is_none_or(|current| current >= most) {
        return;
    }
    let limit = Rlimit {
        current: Some(most),
        maximum,
    };
    if let Err(error) = rustix::process::setrlimit(Resource::Nofile, limit) {
        tracing::warn!(%error, "a host cannot raise its limit on descriptors, so it takes fewer sessions");
    }
}

/// Confines this process. Returns its socket to the supervisor, and what [`confine`] returns. If that fails, logs the
/// error and returns `None`; `process` names the process in that line.
pub(super) fn begin(process: &str) -> Option<(OwnedFd, Vec<String>)> {
    let begun = || -> Result<_, NotConfined> {
        let lacking = confine()?;
        Ok((take_channel()?, lacking))
    };
    begun()
        .inspect_err(|error| tracing::error!(%error, "{process} cannot start"))
        .ok()
}
