//! Ends processes that outlived the daemon that started them.
//!
//! The kernel kills a worker when its daemon dies. A process that an OpenCL kernel forked off survives.
//! That process stays in the worker's process group, because the worker's system call filter
//! (`worker::confine::calls`) does not let it leave. The daemon therefore records the group while the
//! worker lives. The next daemon ends the processes that are left in recorded groups. Where workers have
//! users of a range, it also kills processes of these users that no living daemon started.
//!
//! This module never kills a process by its number alone. A group's number is not reused while one of its
//! processes lives. A record is valid only in the PID namespace in which it was written. It applies only to
//! processes of the same user and session that started later. Users of the range that `/etc/passwd` or
//! `/etc/subuid` lists are left alone, and so are processes that can gain privileges. Invariants: the
//! clean-up takes about [`WITHIN`] at most; the daemon and its ancestors are never killed.
#![forbid(unsafe_code)]

use std::collections::{BTreeSet, HashMap, HashSet};
use std::ffi::OsStr;
use std::fs;
use std::io;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::process::{Pid, PidfdFlags, Signal};

/// Extension of the file names of records.
const SUFFIX: &str = "group";
/// Time limit for killing processes until none is left.
const WITHIN: Duration = Duration::from_secs(2);
const PAUSE: Duration = Duration::from_millis(5);
/// Name of the process that starts workers, as the kernel reports it.
const DAEMON: &str = "causewayd";

/// A process, as `/proc` describes it.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Process {
    pid: i32,
    name: String,
    parent: i32,
    group: i32,
    session: i32,
    /// Start time in clock ticks since the machine booted.
    began: u64,
    user: u32,
    /// Whether the process has `no_new_privs` set, as every confined worker and its children have.
    gains_nothing: bool,
}

/// The record of a worker's process group.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Group {
    boot: String,
    /// PID namespace in which the process ids are valid.
    namespace: u64,
    pid: i32,
    session: i32,
    began: u64,
    user: u32,
}

/// Returns the path of the record for the process that owns `folder`. The record lies beside the folder,
/// where the process itself cannot write.
#[must_use]
pub(crate) fn record_beside(folder: &Path) -> PathBuf {
    folder.with_extension(SUFFIX)
}

/// Records that the process `pid` leads a process group and runs as `user`.
pub(crate) fn write_down(record: &Path, pid: u32, user: u32) -> io::Result<()> {
    let pid = i32::try_from(pid).map_err(io::Error::other)?;
    let leader = process(pid).ok_or(io::ErrorKind::NotFound)?;
    let group = Group {
        boot: boot()?,
        namespace: namespace()?,
        pid,
        session: leader.session,
        began: leader.began,
        user,
    };
    fs::write(record, group.encode())
}

/// Ends the processes that are left in the groups recorded in `folder`, which belonged to a daemon that has
/// ended.
pub(crate) fn end_groups(folder: &Path) {
    let Ok(entries) = fs::read_dir(folder) else {
        return;
    };
    let records = entries.flatten().map(|entry| entry.path());
    let records = records.filter(|path| path.extension() == Some(OsStr::new(SUFFIX)));
    let (Ok(boot), Ok(namespace)) = (boot(), namespace()) else {
        return;
    };
    let groups = records.filter_map(|path| Group::decode(&fs::read_to_string(path).ok()?));
    let groups: Vec<Group> = groups
        .filter(|group| group.boot == boot && group.namespace == namespace)
        .filter(|group| group.may_remain(process(group.pid).as_ref()))
        .collect();
    if !groups.is_empty() {
        end(|process, _| groups.iter().any(|group| group.has(process)));
    }
}

/// Ends all processes of these users that no living daemon started. Skips users that `/etc/passwd` or
/// `/etc/subuid` lists.
pub(crate) fn end_users(users: &Range<u32>) {
    let list = |path| fs::read_to_string(path).unwrap_or_default();
    let others = others(users, &list("/etc/passwd"), &list("/etc/subuid"));
    if !others.is_empty() {
        let names: Vec<&str> = others.iter().map(|(name, _)| name.as_str()).collect();
        tracing::warn!(
            ?names,
            "uid_range overlaps with users in /etc/passwd or /etc/subuid; choose an unused range. Processes that a \
             killed daemon left under these numbers are not killed"
        );
    }
    if users.clone().any(has_processes) {
        end(|process, all| is_left(process, users, &others, all));
    }
}

fn is_left(
    process: &Process,
    users: &Range<u32>,
    others: &[(String, Range<u64>)],
    all: &HashMap<i32, Process>,
) -> bool {
    let user = u64::from(process.user);
    users.contains(&process.user)
        && process.gains_nothing
        && !others.iter().any(|(_, has)| has.contains(&user))
        && !is_anybodys(process, users, all)
}

/// Returns the users in the texts of `/etc/passwd` and `/etc/subuid` whose numbers overlap with `users`.
fn others(users: &Range<u32>, passwd: &str, subuid: &str) -> Vec<(String, Range<u64>)> {
    let fields = |line: &str| -> Vec<String> { line.split(':').map(str::to_owned).collect() };
    let of = |line: &str, first: usize, count: Option<usize>| {
        let fields = fields(line);
        let number = |at: usize| fields.get(at)?.trim().parse::<u64>().ok();
        let first = number(first)?;
        let count = count.map_or(Some(1), number)?;
        Some((fields.first()?.clone(), first..first.saturating_add(count)))
    };
    let named = passwd.lines().filter_map(|line| of(line, 2, None));
    let lent = subuid.lines().filter_map(|line| of(line, 1, Some(2)));
    let (start, end) = (u64::from(users.start), u64::from(users.end));
    let overlaps = |has: &Range<u64>| has.start < end && start < has.end;
    named.chain(lent).filter(|(_, has)| overlaps(has)).collect()
}

/// Returns whether any process runs as this user.
#[must_use]
pub(crate) fn has_processes(user: u32) -> bool {
    let user = rustix::process::Uid::from_raw(user);
    rustix::process::getpriority_user(user).is_ok()
}

/// Returns whether a living daemon started this process.
fn is_anybodys(process: &Process, users: &Range<u32>, all: &HashMap<i32, Process>) -> bool {
    let mut parent = all.get(&process.parent);
    // Bounds the loop: the list of processes is not a snapshot of one moment, so its parent links may form
    // a cycle.
    for _ in 0..all.len() {
        match parent {
            // Follows the parents to the first one outside the range of users. For a process of a living
            // daemon that is the daemon; for an orphan it is usually `init`.
            Some(of) if users.contains(&of.user) => parent = all.get(&of.parent),
            Some(of) => return of.name == DAEMON,
            None => return false,
        }
    }
    false
}

/// Kills the processes that `is_left` selects, until none is left or [`WITHIN`] has passed.
fn end(is_left: impl Fn(&Process, &HashMap<i32, Process>) -> bool) {
    let until = Instant::now() + WITHIN;
    let mut ended = HashSet::new();
    loop {
        // Lists the processes again in each round, because a process may fork while it is being killed.
        let all = processes();
        let own = ancestry(rustix::process::getpid().as_raw_nonzero().get(), &all);
        let left = all.values().filter(|of| !own.contains(&of.pid));
        let left: Vec<&Process> = left.filter(|of| is_left(of, &all)).collect();
        if left.is_empty() {
            break;
        }
        if Instant::now() >= until {
            let pids: Vec<i32> = left.iter().map(|of| of.pid).collect();
            tracing::error!(
                ?pids,
                "processes of an earlier daemon cannot be killed; end them by hand"
            );
            break;
        }
        let killed = left.iter().filter(|of| kill(of));
        ended.extend(killed.map(|of| (of.pid, of.began, of.user)));
        std::thread::sleep(PAUSE);
    }
    if !ended.is_empty() {
        let pids: Vec<i32> = ended.iter().map(|(pid, ..)| *pid).collect();
        let uids: BTreeSet<u32> = ended.iter().map(|(.., user)| *user).collect();
        tracing::warn!(
            ?pids,
            ?uids,
            "killed processes that an earlier daemon's sessions had left"
        );
    }
}

/// Returns a process id and the ids of all its ancestors.
fn ancestry(pid: i32, all: &HashMap<i32, Process>) -> HashSet<i32> {
    let mut found = HashSet::new();
    let mut next = Some(pid);
    while let Some(pid) = next.filter(|&pid| found.insert(pid)) {
        next = all.get(&pid).map(|of| of.parent);
    }
    found
}

fn kill(of: &Process) -> bool {
    let Some(pid) = Pid::from_raw(of.pid) else {
        return false;
    };
    let Ok(opened) = rustix::process::pidfd_open(pid, PidfdFlags::empty()) else {
        return false;
    };
    // The process may have ended before it was opened, and its number may belong to another process now.
    let same = process(of.pid).is_some_and(|now| now.began == of.began);
    same && rustix::process::pidfd_send_signal(opened, Signal::KILL).is_ok()
}

impl Group {
    /// Returns whether processes of the group can be left. `leader` is the process that has the group's
    /// number now. The kernel gives the number to a new process once the whole group has ended.
    fn may_remain(&self, leader: Option<&Process>) -> bool {
        leader.is_none_or(|leader| leader.began == self.began)
    }

    fn has(&self, process: &Process) -> bool {
        process.group == self.pid
            && process.session == self.session
            && process.began >= self.began
            && process.user == self.user
            && process.gains_nothing
    }

    fn encode(&self) -> String {
        let Group {
            boot,
            namespace,
            pid,
            session,
            began,
            user,
        } = self;
        format!("{boot} {namespace} {pid} {session} {began} {user}\n")
    }

    fn decode(text: &str) -> Option<Group> {
        let mut words = text.split_whitespace();
        Some(Group {
            boot: words.next()?.to_owned(),
            namespace: words.next()?.parse().ok()?,
            pid: words.next()?.parse().ok()?,
            session: words.next()?.parse().ok()?,
            began: words.next()?.parse().ok()?,
            user: words.next()?.parse().ok()?,
        })
    }
}

/// Returns the id of this boot. Neither process ids nor host clocks are comparable across boots.
pub(crate) fn boot() -> io::Result<String> {
    let boot = fs::read_to_string("/proc/sys/kernel/random/boot_id")?;
    Ok(boot.trim().to_owned())
}

/// Returns the inode of this PID namespace. Containers of one machine share the boot id, so the boot id
/// alone does not tell them apart.
fn namespace() -> io::Result<u64> {
    use std::os::unix::fs::MetadataExt;
    Ok(fs::metadata("/proc/self/ns/pid")?.ino())
}

/// Lists all processes that have not ended.
fn processes() -> HashMap<i32, Process> {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    pids.filter_map(|pid| Some((pid, process(pid)?))).collect()
}

fn process(pid: i32) -> Option<Process> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    parse(pid, &stat, &status)
}

fn parse(pid: i32, stat: &str, status: &str) -> Option<Process> {
    // The process name is in parentheses and may itself contain parentheses.
    let (head, fields) = stat.rsplit_once(')')?;
    let (_, name) = head.split_once('(')?;
    let fields: Vec<&str> = fields.split_whitespace().collect();
    let of = |name: &str| {
        let line = status.lines().find_map(|line| line.strip_prefix(name));
        line.and_then(|line| line.split_whitespace().next())
    };
    let is_over = matches!(*fields.first()?, "Z" | "X");
    (!is_over).then_some(())?;
    // In `fields`, index 0 is field 3 of proc(5)'s `stat`, so index 19 is `starttime`.
    Some(Process {
        pid,
        name: name.to_owned(),
        parent: fields.get(1)?.parse().ok()?,
        group: fields.get(2)?.parse().ok()?,
        session: fields.get(3)?.parse().ok()?,
        began: fields.get(19)?.parse().ok()?,
        user: of("Uid:")?.parse().ok()?,
        gains_nothing: of("NoNewPrivs:") == Some("1"),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn process(pid: i32, name: &str, parent: i32, user: u32) -> (i32, Process) {
        let process = Process {
            pid,
            name: name.to_owned(),
            parent,
            group: 70,
            session: 60,
            began: 1000,
            user,
            gains_nothing: true,
        };
        (pid, process)
    }

    #[test]
    fn this_process_is_told_of_as_it_is() {
        let own = std::process::id().try_into().unwrap();
        let found = processes().remove(&own).unwrap();
        assert_eq!(found.user, rustix::process::getuid().as_raw());
        assert_eq!(
            Some(found.group),
            Some(rustix::process::getpgrp().as_raw_nonzero().get())
        );
        assert!(has_processes(found.user));
        assert!(!has_processes(4_000_000_123));
    }

    #[test]
    fn a_name_hides_nothing() {
        let stat = "7 (a) R 1 (b) S 3 4 5 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 99 0";
        let found = parse(7, stat, "Uid:\t8\t9\nNoNewPrivs:\t0\n").unwrap();
        assert_eq!((found.name.as_str(), found.parent), ("a) R 1 (b", 3));
        assert_eq!((found.group, found.session, found.began), (4, 5, 99));
        assert_eq!((found.user, found.gains_nothing), (8, false));
        assert_eq!(parse(7, &stat.replace(") S", ") Z"), "Uid: 8\n"), None);
    }

    #[test]
    fn a_group_is_what_was_written_down_and_nobody_elses() {
        let group = Group {
            boot: "boot".to_owned(),
            namespace: 4_026_531_836,
            pid: 70,
            session: 60,
            began: 900,
            user: 5,
        };
        assert_eq!(Group::decode(&group.encode()).unwrap(), group);
        let (_, own) = process(71, "forked", 1, 5);
        assert!(group.has(&own));
        let others = [
            Process {
                group: 71,
                ..own.clone()
            },
            Process {
                session: 61,
                ..own.clone()
            },
            Process {
                began: 800,
                ..own.clone()
            },
            Process {
                user: 6,
                ..own.clone()
            },
            Process {
                gains_nothing: false,
                ..own.clone()
            },
        ];
        assert!(!others.iter().any(|other| group.has(other)));
    }

    #[test]
    fn a_group_whose_number_another_process_has_now_is_gone() {
        let group = Group {
            boot: "boot".to_owned(),
            namespace: 4_026_531_836,
            pid: 70,
            session: 60,
            began: 900,
            user: 5,
        };
        let (_, mut leader) = process(70, "worker", 1, 5);
        // A later process has the number, and is the leader of a group with the same number.
        assert!(group.has(&leader) && !group.may_remain(Some(&leader)));
        leader.began = 900;
        assert!(group.may_remain(Some(&leader)));
        assert!(group.may_remain(None));
    }

    #[test]
    fn what_a_living_daemon_has_started_is_left_alone() {
        let users = 200..210;
        let all: HashMap<i32, Process> = HashMap::from([
            process(1, "init", 0, 0),
            process(10, DAEMON, 1, 0),
            process(11, DAEMON, 10, 200),
            process(12, "linker", 11, 200),
            process(13, "forked", 1, 201),
            process(14, "child", 13, 201),
            process(15, DAEMON, 1, 202),
        ]);
        let left = |others: &[(String, Range<u64>)]| -> Vec<i32> {
            let pids = [11, 12, 13, 14, 15].into_iter();
            pids.filter(|pid| is_left(&all[pid], &users, others, &all))
                .collect()
        };
        assert_eq!(left(&[]), [13, 14, 15]);
        assert_eq!(left(&[("somebody".to_owned(), 201..202)]), [15]);
        let mut login = all[&15].clone();
        login.gains_nothing = false;
        assert!(!is_left(&login, &users, &[], &all));
        assert_eq!(ancestry(12, &all), HashSet::from([12, 11, 10, 1, 0]));
    }

    #[test]
    fn users_whom_the_machines_lists_name_are_found() {
        let passwd = "root:x:0:0:root:/root:/bin/sh\nme:x:1000:1000::/home/me:/bin/sh\n+nis\n";
        let subuid = "# lent\nme:100000:65536\nyou:165536:65536\n";
        let names = |users| -> Vec<String> {
            let others = others(&users, passwd, subuid);
            others.into_iter().map(|(name, _)| name).collect()
        };
        assert_eq!(names(1000..1200), ["me"]);
        assert_eq!(names(200_000..200_200), ["you"]);
        assert_eq!(names(165_535..165_537), ["me", "you"]);
        assert_eq!(names(1001..1200), [""; 0]);
        assert_eq!(names(231_072..231_272), [""; 0]);
    }
}
