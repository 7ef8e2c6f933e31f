//! The system calls that a worker and other confined processes cannot make: a seccomp filter.
//!
//! The filter lists what is denied, not what is allowed. Drivers are not ours: PoCL starts a compiler and
//! a linker. The drivers of NVIDIA, AMD and Intel make device calls (`ioctl`) of their own, which change
//! with every release. A list of allowed calls would often be wrong, and users would then switch it off.
//!
//! No driver needs the denied calls. With them, a process could leave its confinement, change other
//! processes or read-only files, or reach rarely used parts of the kernel. A denied call fails with
//! `EPERM`, and the process continues.
//!
//! Calls that name a process are denied for all but 0 and the worker's own id. A filter sees only
//! numbers. So a thread may change its own priority or processors by 0, and those of no other thread.
//!
//! `clone3` and `openat2` fail with `ENOSYS`, because a filter cannot look at their flags; their callers
//! have a fallback. Calls newer than this list fail with `ENOSYS` too, because new calls repeat old
//! effects (`file_setattr`). `setsid` and `setpgid` are denied so that a driver's processes stay in the
//! worker's process group, which ends with the worker. Calls by another architecture's numbers (32 bit)
//! end the process, because this list does not apply to them.
//!
//! Invariant: the order of the filter's rules does not matter.

use std::collections::BTreeMap;

use seccompiler::{
    BackendError, BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition,
    SeccompFilter, SeccompRule, TargetArch, sock_filter,
};

/// The newest call that a worker may make (`mseal`). Calls this new have the same number on all architectures.
const NEWEST: u32 = 462;

// Calls that `libc` does not name on every target. Their numbers are the same on all architectures.
const SYS_MOUNT_SETATTR: i64 = 442;
const SYS_QUOTACTL_FD: i64 = 443;
const SYS_PROCESS_MRELEASE: i64 = 448;
const SYS_STATMOUNT: i64 = 457;
const SYS_LISTMOUNT: i64 = 458;
const SYS_FCHMODAT2: i64 = 452;

/// Calls that act on other processes.
const OTHERS: [i64; 13] = [
    libc::SYS_ptrace,
    libc::SYS_process_vm_readv,
    libc::SYS_process_vm_writev,
    libc::SYS_process_madvise,
    SYS_PROCESS_MRELEASE,
    libc::SYS_pidfd_open,
    libc::SYS_pidfd_getfd,
    libc::SYS_pidfd_send_signal,
    libc::SYS_kcmp,
    // These signal a thread by its number alone, or send a value with the signal.
    libc::SYS_tkill,
    libc::SYS_rt_sigqueueinfo,
    libc::SYS_setsid,
    libc::SYS_setpgid,
];

/// Calls that change what the process sees: mounts, roots, namespaces, files by number. Two of them
/// (`statmount`, `listmount`) report mounts, as `/proc/mounts` does, which is unreadable too.
const WORLD: [i64; 20] = [
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
    SYS_MOUNT_SETATTR,
    SYS_STATMOUNT,
    SYS_LISTMOUNT,
    libc::SYS_unshare,
    libc::SYS_setns,
    libc::SYS_open_by_handle_at,
    libc::SYS_fanotify_init,
    libc::SYS_quotactl,
    SYS_QUOTACTL_FD,
    libc::SYS_acct,
];

/// Calls that change a file's metadata: mode, owner, times and attributes. Landlock does not check these
/// calls. So they could change every file of the worker's user, even through a read-only descriptor. Linkers
/// try to make their output executable, but continue without: a library that is loaded needs no such mode.
const ATTRIBUTES: [i64; 12] = [
    libc::SYS_fchmod,
    libc::SYS_fchmodat,
    SYS_FCHMODAT2,
    libc::SYS_fchown,
    libc::SYS_fchownat,
    libc::SYS_setxattr,
    libc::SYS_lsetxattr,
    libc::SYS_fsetxattr,
    libc::SYS_removexattr,
    libc::SYS_lremovexattr,
    libc::SYS_fremovexattr,
    libc::SYS_utimensat,
];

/// Calls for named shared memory, semaphores and message queues. These outlive the process, no limit
/// counts them, and nothing removes them.
const LASTING: [i64; 14] = [
    libc::SYS_shmget,
    libc::SYS_shmat,
    libc::SYS_shmctl,
    libc::SYS_shmdt,
    libc::SYS_semget,
    libc::SYS_semop,
    libc::SYS_semtimedop,
    libc::SYS_semctl,
    libc::SYS_msgget,
    libc::SYS_msgsnd,
    libc::SYS_msgrcv,
    libc::SYS_msgctl,
    libc::SYS_mq_open,
    libc::SYS_mq_unlink,
];

/// Calls that accept connections, and calls that watch other processes' files. A listening socket without
/// an address gets a port from the kernel, which Landlock does not check. The supervisor accepts all
/// connections for a worker. Landlock does not check file watches either.
const SERVING: [i64; 2] = [libc::SYS_listen, libc::SYS_inotify_add_watch];

/// Calls to parts of the kernel that have often had vulnerabilities and that no driver needs.
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

/// Calls that change the machine's state.
const MACHINE: [i64; 12] = [
    libc::SYS_kexec_load,
    libc::SYS_kexec_file_load,
    libc::SYS_reboot,
    libc::SYS_swapon,
    libc::SYS_swapoff,
    libc::SYS_syslog,
    libc::SYS_settimeofday,
    libc::SYS_clock_settime,
    libc::SYS_clock_adjtime,
    libc::SYS_adjtimex,
    libc::SYS_sethostname,
    libc::SYS_setdomainname,
];

/// Calls that only this architecture has: older forms of those above.
#[cfg(target_arch = "x86_64")]
const ARCHITECTURE: [i64; 10] = [
    libc::SYS_iopl,
    libc::SYS_ioperm,
    libc::SYS_modify_ldt,
    libc::SYS_uselib,
    libc::SYS_chmod,
    libc::SYS_chown,
    libc::SYS_lchown,
    libc::SYS_utime,
    libc::SYS_utimes,
    libc::SYS_futimesat,
];
#[cfg(not(target_arch = "x86_64"))]
const ARCHITECTURE: [i64; 0] = [];

/// Calls with the index of their process argument. That argument must be 0 or the worker's own id.
const OF_ITSELF: [(i64, u8); 12] = [
    (libc::SYS_prlimit64, 0),
    (libc::SYS_sched_setaffinity, 0),
    (libc::SYS_sched_setattr, 0),
    (libc::SYS_sched_setparam, 0),
    (libc::SYS_sched_setscheduler, 0),
    (libc::SYS_setpriority, 1),
    (libc::SYS_ioprio_set, 1),
    (libc::SYS_migrate_pages, 0),
    (libc::SYS_move_pages, 0),
    (libc::SYS_kill, 0),
    (libc::SYS_tgkill, 0),
    (libc::SYS_rt_tgsigqueueinfo, 0),
];

/// Calls whose first argument is the kind of their second, with the one value that is allowed: a process.
/// Other kinds are process groups and users.
const BY_KIND: [(i64, u64); 2] = [
    (libc::SYS_setpriority, 0), // PRIO_PROCESS
    (libc::SYS_ioprio_set, 1),  // IOPRIO_WHO_PROCESS
];

/// Denied flags of `clone`: new namespaces, and a child of the supervisor, which nothing would reap.
const CLONE: [i32; 8] = [
    libc::CLONE_NEWNS,
    libc::CLONE_NEWCGROUP,
    libc::CLONE_NEWUTS,
    libc::CLONE_NEWIPC,
    libc::CLONE_NEWUSER,
    libc::CLONE_NEWPID,
    libc::CLONE_NEWNET,
    libc::CLONE_PARENT,
];

/// Calls that may create a file, with the indices of their mode and flag arguments. The mode
/// must not have a set-user-id or set-group-id bit. Otherwise a worker that runs as root
/// could make such programs for all users.
const MAKING: [(i64, u8, u8); 1] = [(libc::SYS_openat, 3, 2)];
/// Calls that always create a file, with the index of their mode argument.
const MAKING_ALWAYS: [(i64, u8); 1] = [(libc::SYS_mknodat, 2)];
#[cfg(target_arch = "x86_64")]
const MAKING_HERE: [(i64, u8, u8); 1] = [(libc::SYS_open, 2, 1)];
#[cfg(target_arch = "x86_64")]
const MAKING_ALWAYS_HERE: [(i64, u8); 2] = [(libc::SYS_creat, 1), (libc::SYS_mknod, 1)];
#[cfg(not(target_arch = "x86_64"))]
const MAKING_HERE: [(i64, u8, u8); 0] = [];
#[cfg(not(target_arch = "x86_64"))]
const MAKING_ALWAYS_HERE: [(i64, u8); 0] = [];
const OF_OWNER: [u64; 2] = [libc::S_ISUID as u64, libc::S_ISGID as u64];
/// Bits of the flags that create a file: `O_CREAT`, and `O_TMPFILE` without the flag for directories.
const MAKES: [u64; 2] = [
    libc::O_CREAT as u64,
    (libc::O_TMPFILE & !libc::O_DIRECTORY) as u64,
];

/// Denied requests of `ioctl`, for every driver. Some set terminals and have a size in their number.
/// Others send signals to other processes or change a file's metadata.
const REQUESTS: [u32; 13] = [
    0x402c_542b, // TCSETS2
    0x402c_542c, // TCSETSW2
    0x402c_542d, // TCSETSF2
    0x4004_5431, // TIOCSPTLCK
    0x4004_5436, // TIOCSIG
    0x8901,      // FIOSETOWN
    0x8902,      // SIOCSPGRP
    0x4008_6602, // FS_IOC_SETFLAGS
    0x401c_5820, // FS_IOC_FSSETXATTR
    0x4008_7602, // FS_IOC_SETVERSION
    0x4008_6604, // EXT4_IOC_SETVERSION
    0x4080_6685, // FS_IOC_ENABLE_VERITY
    0x800c_6613, // FS_IOC_SET_ENCRYPTION_POLICY
];

/// The range of terminal requests. A worker's standard error may be the terminal from which the daemon
/// was started. So the worker must not type there (`TIOCSTI`), take its input (`TIOCSPGRP`), change its
/// settings or stop its output.
const OF_TERMINALS: [u64; 2] = [0x5400, 0x54ff];
/// Requests of that range that are allowed: queries, and requests that work on any descriptor.
const TERMINALS_ALLOWED: [u64; 11] = [
    0x5401, // TCGETS
    0x5405, // TCGETA
    0x540f, // TIOCGPGRP
    0x5411, // TIOCOUTQ
    0x5413, // TIOCGWINSZ
    0x541b, // FIONREAD
    0x5421, // FIONBIO
    0x5429, // TIOCGSID
    0x5450, // FIONCLEX
    0x5451, // FIOCLEX
    0x5460, // FIOQSIZE
];

/// Denied commands of `fcntl`: signals to other processes, leases that delay the next opening of a file,
/// and watches on folders.
const CONTROLS: [i32; 5] = [
    libc::F_SETOWN,
    F_SETSIG,
    F_SETOWN_EX,
    libc::F_SETLEASE,
    libc::F_NOTIFY,
];
const F_SETSIG: i32 = 10;
const F_SETOWN_EX: i32 = 15;

/// Denied requests of `prctl`: the worker must still end with its supervisor, and must not share a
/// processor core's scheduling group.
const OF_THE_PROCESS: [i32; 2] = [libc::PR_SET_PDEATHSIG, libc::PR_SCHED_CORE];

/// The argument with which `personality` only reports; other arguments would change it.
const ASKED: u64 = 0xffff_ffff;

/// The kinds of sockets that are allowed, each with its protocols. Other kinds lead to parts of the
/// kernel that no driver needs, or to connections that Landlock does not check (MPTCP, SCTP).
const SOCKETS: [(i32, &[i32]); 4] = [
    (libc::AF_UNIX, &[0, libc::AF_UNIX]),
    (libc::AF_INET, INTERNET),
    (libc::AF_INET6, INTERNET),
    (
        libc::AF_NETLINK,
        &[libc::NETLINK_ROUTE, libc::NETLINK_KOBJECT_UEVENT],
    ),
];
const INTERNET: &[i32] = &[0, libc::IPPROTO_TCP, libc::IPPROTO_UDP];
/// Level and number of the socket option `TCP_ULP`, which turns a TCP socket into one of another protocol.
const LAYER: [u64; 2] = [libc::IPPROTO_TCP as u64, 31];
/// Mask of a socket's type without its flags.
const TYPE: u64 = 0xf;

/// Calls that send, with the index of their flag argument. `MSG_FASTOPEN` would connect
/// without the call that Landlock checks.
const SENDING: [(i64, u8); 3] = [
    (libc::SYS_sendto, 3),
    (libc::SYS_sendmsg, 2),
    (libc::SYS_sendmmsg, 3),
];

/// The filter cannot be built, or the kernel rejects it.
#[derive(Debug, thiserror::Error)]
pub enum NotFiltered {
    /// The rules do not form a filter.
    #[error("{0}")]
    Made(#[from] BackendError),
    /// The kernel's error.
    #[error("{0}")]
    Taken(#[from] seccompiler::Error),
}

/// Installs the filter for this thread and everything that it starts. Returns what this kernel lacks for
/// it. If `datagrams` is false, UDP sockets are denied too.
///
/// # Errors
/// [`NotFiltered`].
pub fn restrict(datagrams: bool) -> Result<Option<String>, NotFiltered> {
    let Ok(target) = TargetArch::try_from(std::env::consts::ARCH) else {
        let arch = std::env::consts::ARCH;
        return Ok(Some(format!(
            "Causeway has no seccomp filter for {arch}: sessions' processes may make any system call"
        )));
    };
    match seccompiler::apply_filter(&program(target, datagrams)?) {
        Ok(()) => Ok(None),
        Err(seccompiler::Error::Seccomp(error)) if is_lacking(&error) => Ok(Some(
            "this kernel has no seccomp filters: sessions' processes may make any system call"
                .to_owned(),
        )),
        Err(error) => Err(error.into()),
    }
}

/// Whether the kernel has no `seccomp` call, or has it without filters.
fn is_lacking(error: &std::io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::ENOSYS | libc::EINVAL))
}

fn program(target: TargetArch, datagrams: bool) -> Result<BpfProgram, BackendError> {
    let denied = SeccompFilter::new(
        rules(std::process::id(), datagrams)?.0,
        SeccompAction::Allow,
        SeccompAction::Errno(libc::EPERM as u32),
        target,
    )?;
    let mut program = absent();
    program.extend(BpfProgram::try_from(denied)?);
    Ok(program)
}

/// The beginning of the filter: calls that fail as if this kernel did not have them.
fn absent() -> BpfProgram {
    const LOAD: u16 = 0x20; // loads a word of the call's data
    const EQUAL: u16 = 0x15;
    const ABOVE: u16 = 0x25;
    const RETURN: u16 = 0x06;
    const ENOSYS: u32 = 0x0005_0000 | libc::ENOSYS as u32; // SECCOMP_RET_ERRNO
    let step = |code, jt, jf, k| sock_filter { code, jt, jf, k };
    vec![
        step(LOAD, 0, 0, 0), // the call's number
        step(EQUAL, 2, 0, libc::SYS_clone3 as u32),
        step(EQUAL, 1, 0, libc::SYS_openat2 as u32),
        // Calls of the x32 ABI have a high bit set, so they count as newer too.
        step(ABOVE, 0, 1, NEWEST),
        step(RETURN, 0, 0, ENOSYS),
    ]
}

/// The denied calls. A call is denied always, or if one of its rules matches.
struct Rules(BTreeMap<i64, Vec<SeccompRule>>);

fn rules(own: u32, datagrams: bool) -> Result<Rules, BackendError> {
    let lists: [&[i64]; 8] = [
        &OTHERS,
        &WORLD,
        &ATTRIBUTES,
        &LASTING,
        &SERVING,
        &KERNEL,
        &MACHINE,
        &ARCHITECTURE,
    ];
    let always = lists.into_iter().flatten();
    let mut rules = Rules(always.map(|&call| (call, Vec::new())).collect());
    rules.deny_for_processes(own)?;
    rules.deny_for_files()?;
    rules.deny_for_descriptors()?;
    rules.deny_for_sockets(datagrams)?;
    Ok(rules)
}

impl Rules {
    fn add(&mut self, call: i64, conditions: &[SeccompCondition]) -> Result<(), BackendError> {
        let rule = SeccompRule::new(conditions.to_vec())?;
        self.0.entry(call).or_default().push(rule);
        Ok(())
    }

    /// Other processes, and what a process may not change of itself.
    fn deny_for_processes(&mut self, own: u32) -> Result<(), BackendError> {
        for (call, process) in OF_ITSELF {
            self.add(call, &none_of(process, [0, u64::from(own)])?)?;
        }
        for (call, kind) in BY_KIND {
            self.add(call, &none_of(0, [kind])?)?;
        }
        for flag in CLONE {
            let flag = u64::from(flag as u32);
            self.add(
                libc::SYS_clone,
                &[is(0, SeccompCmpOp::MaskedEq(flag), flag)?],
            )?;
        }
        for option in OF_THE_PROCESS {
            self.add(libc::SYS_prctl, &[is(0, SeccompCmpOp::Eq, option as u64)?])?;
        }
        self.add(libc::SYS_personality, &none_of(0, [ASKED])?)?;
        Ok(())
    }

    /// Files that would run with their owner's rights.
    fn deny_for_files(&mut self) -> Result<(), BackendError> {
        for (call, mode, flags) in MAKING.into_iter().chain(MAKING_HERE) {
            for (bit, flag) in OF_OWNER
                .into_iter()
                .flat_map(|bit| MAKES.map(|flag| (bit, flag)))
            {
                let makes = is(flags, SeccompCmpOp::MaskedEq(flag), flag)?;
                self.add(call, &[is(mode, SeccompCmpOp::MaskedEq(bit), bit)?, makes])?;
            }
        }
        for (call, mode) in MAKING_ALWAYS.into_iter().chain(MAKING_ALWAYS_HERE) {
            for bit in OF_OWNER {
                self.add(call, &[is(mode, SeccompCmpOp::MaskedEq(bit), bit)?])?;
            }
        }
        Ok(())
    }

    /// Requests to devices and terminals, and signals from descriptors.
    fn deny_for_descriptors(&mut self) -> Result<(), BackendError> {
        for request in REQUESTS {
            self.add(libc::SYS_ioctl, &[is(1, SeccompCmpOp::Eq, request.into())?])?;
        }
        let [first, last] = OF_TERMINALS;
        let mut terminals = none_of(1, TERMINALS_ALLOWED)?;
        terminals.push(is(1, SeccompCmpOp::Ge, first)?);
        terminals.push(is(1, SeccompCmpOp::Le, last)?);
        self.add(libc::SYS_ioctl, &terminals)?;
        for command in CONTROLS {
            self.add(libc::SYS_fcntl, &[is(1, SeccompCmpOp::Eq, command as u64)?])?;
        }
        Ok(())
    }

    /// Kinds of sockets, and ways around Landlock on the others.
    fn deny_for_sockets(&mut self, datagrams: bool) -> Result<(), BackendError> {
        for (call, flags) in SENDING {
            let flag = libc::MSG_FASTOPEN as u64;
            self.add(call, &[is(flags, SeccompCmpOp::MaskedEq(flag), flag)?])?;
        }
        let [level, option] = LAYER;
        self.add(
            libc::SYS_setsockopt,
            &[
                is(1, SeccompCmpOp::Eq, level)?,
                is(2, SeccompCmpOp::Eq, option)?,
            ],
        )?;
        let families = SOCKETS.map(|(family, _)| family as u64);
        self.add(libc::SYS_socket, &none_of(0, families)?)?;
        for (family, protocols) in SOCKETS {
            let of_family = is(0, SeccompCmpOp::Eq, family as u64)?;
            let mut other = none_of(2, protocols.iter().map(|&protocol| protocol as u64))?;
            other.push(of_family.clone());
            self.add(libc::SYS_socket, &other)?;
            if !datagrams && matches!(family, libc::AF_INET | libc::AF_INET6) {
                let datagram = is(1, SeccompCmpOp::MaskedEq(TYPE), libc::SOCK_DGRAM as u64)?;
                self.add(libc::SYS_socket, &[of_family, datagram])?;
            }
        }
        Ok(())
    }
}

fn none_of(
    argument: u8,
    values: impl IntoIterator<Item = u64>,
) -> Result<Vec<SeccompCondition>, BackendError> {
    let other = |value| is(argument, SeccompCmpOp::Ne, value);
    values.into_iter().map(other).collect()
}

/// A condition on the lower half of an argument: the kernel ignores the upper half of these arguments.
fn is(argument: u8, operation: SeccompCmpOp, value: u64) -> Result<SeccompCondition, BackendError> {
    SeccompCondition::new(argument, SeccompCmpArgLen::Dword, operation, value)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;

    /// Runs itself again in a process of its own, because a filter cannot be removed.
    #[test]
    fn what_is_denied_fails_and_the_rest_works() {
        const ROLE: &str = "CAUSEWAYD_TEST_FILTERED";
        if std::env::var_os(ROLE).is_none() {
            let own = std::env::current_exe().unwrap();
            let status = Command::new(own)
                .args([
                    "--exact",
                    "--nocapture",
                    "calls::tests::what_is_denied_fails_and_the_rest_works",
                ])
                .env(ROLE, "1")
                .status()
                .unwrap();
            assert!(status.success());
            return;
        }
        assert_eq!(restrict(true).unwrap(), None);
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
        for family in [libc::AF_UNIX, libc::AF_INET, libc::AF_INET6] {
            open(family as u16).unwrap();
        }
        // Threads and processes still start normally.
        std::thread::spawn(|| ()).join().unwrap();
        assert!(Command::new("/bin/true").status().unwrap().success());
    }
}
