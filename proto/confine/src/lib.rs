//! Confinement: how a process that handles strangers' data gives up its privileges.
//!
//! - [`calls`]: the system calls that it cannot make (seccomp);
//! - [`take_channel`], [`drop_bounds`], [`drop_capabilities`], [`harden`], [`limit_memory`]: single steps;
//! - [`seal`]: all of them, for a process that needs no files and no connections.
//!
//! Which files a driver needs is not known here; `daemon/src/worker/confine` knows it. Nothing can be undone. Invariant: all
//! of this runs while the process has one thread. The kernel confines single threads, and later threads inherit it.
#![forbid(unsafe_code)]

pub mod calls;

use std::fs::OpenOptions;
use std::io::{self, Write};
use std::os::fd::{AsFd, OwnedFd};

use landlock::{
    ABI, Access, AccessFs, AccessNet, Ruleset, RulesetAttr, RulesetError, RulesetStatus, Scope,
};
use rustix::process::{DumpableBehavior, Resource, Rlimit, Signal};
use rustix::thread::{self, CapabilitySet, CapabilitySets};

/// The Landlock version that is requested, which includes signals and device calls. An older kernel enforces less.
pub const WANTED: ABI = ABI::V6;
/// Number of capabilities to drop: those that the kernel has, with room for later ones.
const CAPABILITIES: u32 = 64;

/// Why a process cannot be sealed. It must not go on.
#[derive(Debug, thiserror::Error)]
pub enum NotSealed {
    /// A system call failed.
    #[error("{0}")]
    System(#[from] io::Error),
    /// The kernel has Landlock, but rejects the rules.
    #[error("the kernel rejects the Landlock rules: {0}")]
    Files(#[from] RulesetError),
    /// The kernel has seccomp, but rejects the filter.
    #[error("the kernel rejects the seccomp filter: {0}")]
    Calls(#[from] calls::NotFiltered),
}

/// Confines a process that needs its socket to its parent, memory and UDP: no files, no TCP, no signals to others, no
/// capabilities. Ties its life to its parent's. Returns the socket, and what this kernel lacks.
///
/// # Errors
/// [`NotSealed`].
pub fn seal() -> Result<(OwnedFd, Vec<String>), NotSealed> {
    yield_memory_first();
    drop_bounds();
    drop_capabilities()?;
    harden()?;
    // This needs a file, which the process cannot open any more below.
    let channel = take_channel()?;
    let status = Ruleset::default()
        .handle_access(AccessFs::from_all(WANTED))?
        .handle_access(AccessNet::from_all(WANTED))?
        .scope(Scope::from_all(WANTED))?
        .create()?
        .restrict_self()?;
    let mut lacking = Vec::new();
    if status.ruleset != RulesetStatus::FullyEnforced {
        lacking.push(
            "this kernel's Landlock is too old or switched off: the process may reach files of its user"
                .to_owned(),
        );
    }
    lacking.extend(calls::restrict(true)?);
    Ok((channel, lacking))
}

/// Asks the kernel to kill this process before others when memory runs out. Not every kernel permits this setting.
pub fn yield_memory_first() {
    let file = OpenOptions::new()
        .write(true)
        .open("/proc/self/oom_score_adj");
    let _ = file.and_then(|mut file| file.write_all(b"500"));
}

/// Ties the process's life to its parent's. Denies new privileges to programs that it runs, and access to its memory to
/// other processes.
///
/// # Errors
/// The system's.
pub fn harden() -> io::Result<()> {
    rustix::process::set_parent_process_death_signal(Some(Signal::KILL))?;
    thread::set_no_new_privs(true)?;
    Ok(rustix::process::set_dumpable_behavior(
        DumpableBehavior::NotDumpable,
    )?)
}

/// Removes all capabilities from the bounding set, so that no program run by this process can regain one.
/// This needs a privilege; without it, `no_new_privs` has the same effect.
pub fn drop_bounds() {
    for number in 0..CAPABILITIES {
        let _ = thread::remove_capability_from_bounding_set(CapabilitySet::from_bits_retain(
            1 << number,
        ));
    }
}

/// Drops all capabilities. Root without capabilities is an ordinary user, except that it owns root's files.
///
/// # Errors
/// The system's.
pub fn drop_capabilities() -> io::Result<()> {
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

/// Limits the process's own memory to `bytes`; 0 means no limit.
///
/// The limit is on writable memory (`RLIMIT_DATA`), because drivers reserve far more address space than they use.
///
/// # Errors
/// The system's.
pub fn limit_memory(bytes: u64) -> io::Result<()> {
    if bytes > 0 {
        let limit = Rlimit {
            current: Some(bytes),
            maximum: Some(bytes),
        };
        rustix::process::setrlimit(Resource::Data, limit)?;
    }
    Ok(())
}

/// Takes the socket to the parent from descriptor 0, and puts `/dev/null` there.
///
/// # Errors
/// The system's.
pub fn take_channel() -> io::Result<OwnedFd> {
    let channel = io::stdin().as_fd().try_clone_to_owned()?;
    let null = std::fs::File::open("/dev/null")?;
    rustix::stdio::dup2_stdin(&null)?;
    Ok(channel)
}

#[cfg(test)]
mod tests {
    use std::net::{TcpListener, TcpStream, UdpSocket};
    use std::process::Command;

    use super::*;

    /// Runs itself again in a process of its own, because a process cannot be unsealed.
    #[test]
    fn a_sealed_process_has_udp_and_no_files_or_connections() {
        const ROLE: &str = "CAUSEWAY_TEST_SEALED";
        let Some(port) = std::env::var_os(ROLE) else {
            let listener = TcpListener::bind("127.0.0.1:0").unwrap();
            let own = std::env::current_exe().unwrap();
            let status = Command::new(own)
                .args([
                    "--exact",
                    "--nocapture",
                    "tests::a_sealed_process_has_udp_and_no_files_or_connections",
                ])
                .env(ROLE, listener.local_addr().unwrap().port().to_string())
                .stdin(std::process::Stdio::null())
                .status()
                .unwrap();
            assert!(status.success());
            return;
        };
        // The test runs in a thread; the kernel confines that one.
        let (_, lacking) = seal().unwrap();
        if !lacking.is_empty() {
            eprintln!("skipped: {lacking:?}");
            return;
        }
        let is_refused = |error: io::Error| error.kind() == io::ErrorKind::PermissionDenied;
        let port: u16 = port.into_string().unwrap().parse().unwrap();
        assert!(is_refused(std::fs::read("/etc/passwd").unwrap_err()));
        assert!(is_refused(
            std::fs::File::create("/tmp/sealed").unwrap_err()
        ));
        assert!(is_refused(
            TcpStream::connect(("127.0.0.1", port)).unwrap_err()
        ));
        assert!(is_refused(TcpListener::bind("127.0.0.1:0").unwrap_err()));
        assert!(Command::new("/bin/true").status().is_err());
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        let own = socket.local_addr().unwrap();
        socket.send_to(b"x", own).unwrap();
        assert_eq!(socket.recv_from(&mut [0; 4]).unwrap(), (1, own));
    }
}
