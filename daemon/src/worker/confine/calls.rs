//! The system calls that a worker does without: a seccomp filter.
//!
//! A list of what is denied, not of what is allowed. Drivers are foreign: PoCL starts a compiler and a linker,
//! NVIDIA's, AMD's and Intel's make device calls (`ioctl`) of their own and change with every release; a list
//! of what they may do would be wrong somewhere each month, and its cure would be to switch it off. What is
//! denied has no place in any driver and is how a process gets out of its confinement, looks into others, or
//! reaches the kernel's less trodden paths. What a driver tries nevertheless fails with `EPERM`, as without
//! the privilege for it; the process goes on.
//!
//! `clone3` fails with `ENOSYS`, because a filter cannot look at its flags; the C library uses `clone` then,
//! whose flags for new namespaces are denied. `setsid` and `setpgid` are denied so that what a driver starts
//! stays in the worker's process group, which ends with the worker. Calls by the numbers of another
//! architecture (32 bit) end the process: the list is of this one's.
//!
//! Invariant: nothing is denied that needs a privilege to be harmless; the order of the filter's parts does
//! not matter.
#![forbid(unsafe_code)]

use std::collections::BTreeMap;

use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter,
    SeccompRule, TargetArch, sock_filter,
};

/// Of other processes.
const OTHERS: [i64; 6] = [
    libc::SYS_ptrace,
    libc::SYS_process_vm_readv,
    libc::SYS_process_vm_writev,
    libc::SYS_process_madvise,
    libc::SYS_pidfd_getfd,
    libc::SYS_kcmp,
];

/// Of what the process sees: mounts, roots, namespaces, files by number.
const WORLD: [i64; 17] = [
    libc::SYS_mount,
    libc::SYS_umount2,
    libc::SYS_pivot_root,
    libc::SYS_chroot,
    libc::SYS_move_mount,
    libc::SYS_open_tree,
    libc::SYS_fsopen,
    libc::SYS_fsconfig,
    libc::SYS_fsmount,
    libc::SYS_fspick,
    libc::SYS_mount_setattr,
    libc::SYS_unshare,
    libc::SYS_setns,
    libc::SYS_open_by_handle_at,
    libc::SYS_fanotify_init,
    libc::SYS_quotactl,
    libc::SYS_acct,
];

/// Of the kernel: doors that have often stood open, for uses that no driver has.
const KERNEL: [i64; 12] = [
    libc::SYS_bpf,
    libc::SYS_perf_event_open,
    libc::SYS_userfaultfd,
    libc::SYS_io_uring_setup,
    libc::SYS_io_uring_enter,
    libc::SYS_io_uring_register,
    libc::SYS_add_key,
    libc::SYS_request_key,
    libc::SYS_keyctl,
    libc::SYS_init_module,
    libc::SYS_finit_module,
    libc::SYS_delete_module,
];

/// Of the machine, and of the process group.
const MACHINE: [i64; 12] = [
    libc::SYS_kexec_load,
    libc::SYS_kexec_file_load,
    libc::SYS_reboot,
    libc::SYS_swapon,
    libc::SYS_swapoff,
    libc::SYS_syslog,
    libc::SYS_settimeofday,
    libc::SYS_clock_settime,
    libc::SYS_sethostname,
    libc::SYS_setdomainname,
    libc::SYS_setsid,
    libc::SYS_setpgid,
];

#[cfg(target_arch = "x86_64")]
const ARCHITECTURE: [i64; 3] = [libc::SYS_iopl, libc::SYS_ioperm, libc::SYS_modify_ldt];
#[cfg(not(target_arch = "x86_64"))]
const ARCHITECTURE: [i64; 0] = [];

/// New namespaces, as flags of `clone`.
const NAMESPACES: [i32; 7] = [
    libc::CLONE_NEWNS,
    libc::CLONE_NEWCGROUP,
    libc::CLONE_NEWUTS,
    libc::CLONE_NEWIPC,
    libc::CLONE_NEWUSER,
    libc::CLONE_NEWPID,
    libc::CLONE_NEWNET,
];

/// Requests of `ioctl` that type into the terminal from which the daemon was started.
const TYPING: [libc::c_ulong; 2] = [libc::TIOCSTI, libc::TIOCLINUX];

/// The only kinds of sockets: others lead to parts of the kernel that no driver needs.
const FAMILIES: [i32; 4] = [
    libc::AF_UNIX,
    libc::AF_INET,
    libc::AF_INET6,
    libc::AF_NETLINK,
];

/// Calls of the x32 ABI have this bit in their numbers, and this architecture's name.
#[cfg(target_arch = "x86_64")]
const X32: u32 = 0x4000_0000;

/// The filter cannot be made, or the kernel does not take it.
#[derive(Debug, thiserror::Error)]
pub(in crate::worker) enum NotFiltered {
    /// The list makes no filter.
    #[error("{0}")]
    Made(#[from] seccompiler::BackendError),
    /// What the kernel says.
    #[error("{0}")]
    Taken(#[from] seccompiler::Error),
}

/// Denies them to this thread and all that come from it. Says what this kernel lacks for it.
pub(super) fn restrict() -> Result<Option<String>, NotFiltered> {
    let Ok(target) = TargetArch::try_from(std::env::consts::ARCH) else {
        let arch = std::env::consts::ARCH;
        return Ok(Some(format!("system calls are not filtered on {arch}")));
    };
    match seccompiler::apply_filter(&program(target)?) {
        Ok(()) => Ok(None),
        Err(seccompiler::Error::Seccomp(error)) if is_lacking(&error) => Ok(Some(
            "this kernel has no seccomp filters: sessions' processes may make any system call"
                .to_owned(),
        )),
        Err(error) => Err(error.into()),
    }
}

/// A kernel without the call, and one with the call but without filters.
fn is_lacking(error: &std::io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::ENOSYS | libc::EINVAL))
}

fn program(target: TargetArch) -> Result<BpfProgram, seccompiler::BackendError> {
    let denied = SeccompFilter::new(
        rules()?,
        SeccompAction::Allow,
        SeccompAction::Errno(libc::EPERM as u32),
        target,
    )?;
    let mut program = absent();
    program.extend(BpfProgram::try_from(denied)?);
    Ok(program)
}

/// The filter's beginning: calls that this kernel is said not to have.
fn absent() -> BpfProgram {
    const LOAD: u16 = 0x20; // a word of what the filter is told
    const EQUAL: u16 = 0x15;
    const RETURN: u16 = 0x06;
    const ENOSYS: u32 = 0x0005_0000 | libc::ENOSYS as u32; // SECCOMP_RET_ERRNO
    let step = |code, jt, jf, k| sock_filter { code, jt, jf, k };
    let mut steps = vec![
        step(LOAD, 0, 0, 0), // the call's number
        step(EQUAL, 0, 1, libc::SYS_clone3 as u32),
        step(RETURN, 0, 0, ENOSYS),
    ];
    #[cfg(target_arch = "x86_64")]
    {
        const AT_LEAST: u16 = 0x35;
        steps.push(step(AT_LEAST, 0, 1, X32));
        steps.push(step(RETURN, 0, 0, ENOSYS));
    }
    steps
}

fn rules() -> Result<BTreeMap<i64, Vec<SeccompRule>>, seccompiler::BackendError> {
    let always = OTHERS
        .iter()
        .chain(&WORLD)
        .chain(&KERNEL)
        .chain(&MACHINE)
        .chain(&ARCHITECTURE);
    let mut rules: BTreeMap<_, _> = always.map(|&call| (call, Vec::new())).collect();
    let namespaces = NAMESPACES.map(|flag| {
        let flag = u64::from(flag as u32);
        rule(&[condition(0, SeccompCmpOp::MaskedEq(flag), flag)?])
    });
    let typing = TYPING.map(|request| rule(&[condition(1, SeccompCmpOp::Eq, request)?]));
    let families = FAMILIES.map(|family| condition(0, SeccompCmpOp::Ne, family as u64));
    let families: Vec<_> = families.into_iter().collect::<Result<_, _>>()?;
    rules.insert(
        libc::SYS_clone,
        namespaces.into_iter().collect::<Result<_, _>>()?,
    );
    rules.insert(
        libc::SYS_ioctl,
        typing.into_iter().collect::<Result<_, _>>()?,
    );
    rules.insert(libc::SYS_socket, vec![rule(&families)?]);
    Ok(rules)
}

fn rule(conditions: &[SeccompCondition]) -> Result<SeccompRule, seccompiler::BackendError> {
    SeccompRule::new(conditions.to_vec())
}

/// Of the lower half of an argument: the kernel looks at no more of these.
fn condition(
    argument: u8,
    operation: SeccompCmpOp,
    value: u64,
) -> Result<SeccompCondition, seccompiler::BackendError> {
    SeccompCondition::new(argument, SeccompCmpArgLen::Dword, operation, value)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;

    /// A process of its own: a filter stays. The test runs itself again to be it.
    #[test]
    fn what_is_denied_fails_and_the_rest_works() {
        const ROLE: &str = "CAUSEWAYD_TEST_FILTERED";
        if std::env::var_os(ROLE).is_none() {
            let own = std::env::current_exe().unwrap();
            let status = Command::new(own)
                .args([
                    "--exact",
                    "--nocapture",
                    "worker::confine::calls::tests::what_is_denied_fails_and_the_rest_works",
                ])
                .env(ROLE, "1")
                .status()
                .unwrap();
            assert!(status.success());
            return;
        }
        assert_eq!(restrict().unwrap(), None);
        let refused = |error: std::io::Error| error.raw_os_error() == Some(libc::EPERM);
        assert!(refused(rustix::process::setsid().unwrap_err().into()));
        let set = rustix::thread::LinkNameSpaceType::Network;
        let own = std::fs::File::open("/proc/self/ns/net").unwrap();
        let moved =
            rustix::thread::move_into_link_name_space(std::os::fd::AsFd::as_fd(&own), Some(set));
        assert!(refused(moved.unwrap_err().into()));
        let open = |family| {
            let kind = rustix::net::SocketType::DGRAM;
            rustix::net::socket(rustix::net::AddressFamily::from_raw(family), kind, None)
        };
        assert!(refused(open(libc::AF_VSOCK as u16).unwrap_err().into()));
        for family in FAMILIES {
            if family != libc::AF_NETLINK {
                open(family as u16).unwrap();
            }
        }
        // Threads and processes begin as ever.
        std::thread::spawn(|| ()).join().unwrap();
        assert!(Command::new("/bin/true").status().unwrap().success());
    }
}
