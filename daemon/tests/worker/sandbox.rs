//! Tests what a kernel can do that controls its worker: native code on the node's processor, which makes system calls
//! itself.
#![cfg(target_arch = "x86_64")]

use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::path::{Path, PathBuf};
use std::process::Command as Process;
use std::time::{Duration, Instant};

use crate::common::cached::entries;
use crate::common::{Daemon, LIMIT, Session, launch, memory};

/// Makes the given system calls, of four words each. A word with the bit of `text` set is a position in the text. The
/// results follow the words.
const HOSTILE: &str = "
long call(long n, long a, long b, long c) {
    long r;
    __asm__ volatile(\"xor %%r10d, %%r10d; xor %%r8d, %%r8d; xor %%r9d, %%r9d; syscall\" : \"=a\"(r)
        : \"a\"(n), \"D\"(a), \"S\"(b), \"d\"(c) : \"rcx\", \"r8\", \"r9\", \"r10\", \"r11\", \"memory\");
    return r;
}
long word(long w, global char *text) {
    return w & (1L << 60) ? (long)text + (w & 0xffff) : w;
}
kernel void hostile(global long *w, global char *text) {
    long count = w[0];
    for (long i = 0; i < count; i++) {
        global long *x = w + 1 + 5 * i;
        x[4] = call(x[0], word(x[1], text), word(x[2], text), word(x[3], text));
    }
}
kernel void forks(global long *w, global char *text) {
    long child = call(57, 0, 0, 0);
    if (child == 0) {
        call(112, 0, 0, 0);
        for (;;) call(34, 0, 0, 0);
    }
    w[0] = child;
}
kernel void floods(global long *w, global char *text) {
    long sent = 0;
    for (long fd = 3; fd < 64 && !sent; fd++) {
        w[1] = 64;
        text[0] = 0;
        // The channel to the supervisor is the Unix socket.
        if (call(51, fd, (long)text, (long)(w + 1)) || text[0] != 1)
            continue;
        for (; sent < w[0] && call(1, fd, (long)(text + 64), 1) == 1; sent++);
    }
    w[0] = sent;
}";

const PERMISSION: i64 = -1;
const ACCESS: i64 = -13;
const ABSENT: i64 = -38;
const OPENAT: i64 = 257;
const SOCKET: i64 = 41;
const HERE: i64 = -100;
const CREATE: i64 = 0o101;

/// System calls for a kernel to make.
#[derive(Default)]
struct Asked {
    words: Vec<i64>,
    text: Vec<u8>,
}

impl Asked {
    fn text(&mut self, text: impl AsRef<Path>) -> i64 {
        let at = self.text.len() as i64;
        self.text.extend(text.as_ref().to_str().unwrap().bytes());
        self.text.push(0);
        1 << 60 | at
    }

    fn call(&mut self, number: i64, arguments: [i64; 3]) -> &mut Asked {
        self.words.push(number);
        self.words.extend(arguments);
        self.words.push(0);
        self
    }

    fn open(&mut self, path: impl AsRef<Path>, flags: i64) -> &mut Asked {
        let path = self.text(path);
        self.call(OPENAT, [HERE, path, flags])
    }

    /// Runs the system calls. Returns their results.
    fn run(mut self, session: &mut Session) -> Vec<i64> {
        let count = self.words.len() / 5;
        self.words.insert(0, count as i64);
        self.text.push(0);
        let words = run(session, "hostile", &self.words, &self.text);
        words[1..].chunks(5).map(|call| call[4]).collect()
    }
}

fn run(session: &mut Session, kernel: &str, words: &[i64], text: &[u8]) -> Vec<i64> {
    let (queue, buffer) = begin(session, kernel, words, text);
    let bytes = session.bytes(queue, buffer, 0, 8 * words.len() as u64);
    bytes
        .chunks(8)
        .map(|word| i64::from_ne_bytes(word.try_into().unwrap()))
        .collect()
}

/// Starts the kernel. Returns its queue, and the buffer with the words.
fn begin(session: &mut Session, kernel: &str, words: &[i64], text: &[u8]) -> (u64, u64) {
    let context = session.context();
    let queue = session.queue(context, 0);
    let (program, answer) = session.build(context, HOSTILE, "");
    assert_eq!(answer.status, 0, "{answer:?}");
    let kernel = session.kernel(program, kernel);
    let bytes: Vec<u8> = words.iter().flat_map(|w| w.to_ne_bytes()).collect();
    let buffer = session.buffer(context, bytes.len() as u64, &bytes);
    let text = session.buffer(context, text.len() as u64, text);
    let arguments = vec![memory(buffer), memory(text)];
    session.enqueue(queue, &[], launch(kernel, arguments, &[1], &[1]));
    (queue, buffer)
}

/// The files of a daemon: settings with keys, and the build cache.
struct Place {
    folder: tempfile::TempDir,
}

impl Place {
    fn new() -> Place {
        let folder = tempfile::tempdir().unwrap();
        // The mode of the folder must not be what keeps workers out.
        std::fs::set_permissions(&folder, PermissionsExt::from_mode(0o755)).unwrap();
        let place = Place { folder };
        std::fs::write(place.path("key"), "a secret").unwrap();
        std::fs::create_dir(place.path("home")).unwrap();
        place
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn daemon(&self, program: Process, config: &str) -> Daemon {
        let file = self.path("daemon.toml");
        std::fs::write(&file, config).unwrap();
        let [home, cache] = ["home", "cache"].map(|name| self.path(name));
        let environment = [
            ("HOME", home.to_str().unwrap()),
            ("CAUSEWAYD_BUILD_CACHE_DIR", cache.to_str().unwrap()),
        ];
        Daemon::by(program, &["--config", file.to_str().unwrap()], &environment)
    }

    fn entries(&self) -> Vec<PathBuf> {
        entries(&self.path("cache"))
    }
}

fn causewayd() -> Process {
    Process::new(env!("CARGO_BIN_EXE_causewayd"))
}

/// Returns the command of a daemon that runs as a user without privileges.
fn as_nobody(place: &Place) -> Process {
    for path in [place.folder.path(), &place.path("home"), &place.path("key")] {
        chown(path, Some(65_534), Some(65_534)).unwrap();
    }
    let mut setpriv = Process::new("setpriv");
    setpriv
        .args(["--reuid", "65534", "--regid", "65534", "--clear-groups"])
        .arg(env!("CARGO_BIN_EXE_causewayd"));
    setpriv
}

fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

fn until(what: &str, holds: impl Fn() -> bool) {
    let end = Instant::now() + LIMIT;
    while !holds() {
        assert!(Instant::now() < end, "waited for {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Returns a line of a process's status.
fn status(pid: u32, line: &str) -> String {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let found = status.lines().find_map(|l| l.strip_prefix(line));
    found.unwrap().trim_start_matches(':').trim().to_owned()
}

/// Returns a process's processor time in the system's ticks.
fn processor_time(pid: u32) -> u64 {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
    let fields = stat.rsplit_once(')').unwrap().1.split_whitespace();
    // The fields of user and system time.
    fields
        .skip(11)
        .take(2)
        .map(|n| n.parse::<u64>().unwrap())
        .sum()
}

fn assert_powerless(pid: u32) {
    for set in ["CapInh", "CapPrm", "CapEff", "CapAmb"] {
        assert_eq!(status(pid, set), "0000000000000000", "{set}");
    }
    assert_eq!(status(pid, "NoNewPrivs"), "1");
    assert_eq!(status(pid, "Seccomp"), "2");
}

/// Checks everything that a worker may not access, whichever user runs the daemon.
fn assert_confined(place: &Place, daemon: &Daemon) {
    let mut session = daemon.session();
    // The cache has an entry that could be damaged.
    let context = session.context();
    let (_, answer) = session.build(context, "kernel void f(global int *x) { *x = 1; }", "");
    assert_eq!(answer.status, 0);
    until("an entry", || !place.entries().is_empty());
    let entry = place.entries().remove(0);
    let supervisor = i64::from(daemon.pid());

    let mut asked = Asked::default();
    asked
        .open("/etc/shadow", 0)
        .open(place.path("key"), 0)
        .open(place.path("daemon.toml"), 0)
        .open(place.path("home"), 0)
        .open(place.path("home/new"), CREATE)
        .open(&entry, 0)
        .open(&entry, 1)
        .open(place.path("cache/new"), CREATE)
        .open("/usr/lib/new", CREATE)
        .open("/tmp", 0)
        .open("/root", 0)
        .open(format!("/proc/{supervisor}/environ"), 0);
    asked.open(format!("/proc/{supervisor}/mem"), 0);
    let files = asked.run(&mut session);
    assert_eq!(files, vec![ACCESS; files.len()]);

    let mut asked = Asked::default();
    asked
        .call(101, [16, supervisor, 0]) // ptrace
        .call(310, [supervisor, 0, 0]) // process_vm_readv
        .call(62, [supervisor, 0, 0]) // kill
        .call(112, [0; 3]) // setsid
        .call(272, [0x1000_0000, 0, 0]) // unshare
        .call(56, [0x1000_0011, 0, 0]) // clone into a user namespace
        .call(165, [0; 3]) // mount
        .call(321, [0; 3]) // bpf
        .call(425, [1, 0, 0]) // io_uring_setup
        .call(323, [0; 3]) // userfaultfd
        .call(250, [0; 3]) // keyctl
        .call(SOCKET, [17, 3, 0]) // AF_PACKET
        .call(SOCKET, [40, 1, 0]); // AF_VSOCK
    let calls = asked.run(&mut session);
    assert_eq!(calls, vec![PERMISSION; calls.len()]);

    let mut asked = Asked::default();
    asked
        .call(435, [0; 3]) // clone3
        .call(0x4000_0000 | 521, [16, supervisor, 0]) // ptrace by its x32 number
        .open("/usr/lib", 0)
        .open("/proc/self/maps", 0)
        .open("/dev/null", 2)
        .call(SOCKET, [2, 1, 0]);
    let rest = asked.run(&mut session);
    assert_eq!(rest[..2], [ABSENT; 2]);
    assert!(rest[2..].iter().all(|&result| result >= 0), "{rest:?}");

    assert_powerless(session.worker());
}

#[test]
fn a_kernel_that_rules_its_worker_rules_nothing_else() {
    let place = Place::new();
    let daemon = place.daemon(causewayd(), "");
    assert_confined(&place, &daemon);
}

#[test]
fn so_it_is_where_the_daemon_is_nobody() {
    if is_root() {
        let place = Place::new();
        let daemon = place.daemon(as_nobody(&place), "");
        assert_confined(&place, &daemon);
    }
}

#[test]
fn so_it_is_where_each_worker_is_somebody() {
    if !is_root() {
        return;
    }
    let place = Place::new();
    let config = "[sessions]\nuid_range = \"200000-200099\"\n";
    let daemon = place.daemon(causewayd(), config);
    assert_confined(&place, &daemon);
    let sessions = [daemon.session(), daemon.session()];
    // The previous session has a moment to store its builds.
    until("its end", || sessions[0].workers().len() == 2);
    let mut users: Vec<u32> = sessions[0]
        .workers()
        .into_iter()
        .map(|worker| {
            assert_eq!(status(worker, "CapBnd"), "0000000000000000");
            let uids = status(worker, "Uid");
            uids.split_whitespace().next().unwrap().parse().unwrap()
        })
        .collect();
    assert!(
        users.iter().all(|uid| (200_000..=200_099).contains(uid)),
        "{users:?}"
    );
    users.sort_unstable();
    users.dedup();
    assert_eq!(users.len(), 2);
}

/// The sandbox of a host is that of a worker, and all sessions of a domain have the host's user.
#[test]
fn so_it_is_in_a_host() {
    let place = Place::new();
    let range = match is_root() {
        true => "[sessions]\nuid_range = \"200400-200499\"\n",
        false => "",
    };
    let config = format!("{range}[sharing]\ntogether = \"user\"\n");
    let daemon = place.daemon(causewayd(), &config);
    let neighbour = daemon.session();
    assert_confined(&place, &daemon);
    let host = neighbour.worker();
    if is_root() {
        let uids = status(host, "Uid");
        let mut uids = uids.split_whitespace().map(|uid| uid.parse::<u32>());
        assert!(uids.all(|uid| uid.is_ok_and(|uid| (200_400..=200_499).contains(&uid))));
    }
}

/// A compiler shows the lines of a file that does not compile. The search for directives that name files may miss
/// one, and then the compiler must be unable to read the file.
#[test]
fn a_compiler_cannot_read_the_nodes_files() {
    let place = Place::new();
    std::fs::write(place.path("text"), "a secret\n").unwrap();
    let daemon = place.daemon(causewayd(), "");
    let mut session = daemon.session();
    let context = session.context();
    let own = place.path("text");
    let own = own.to_str().unwrap();
    for file in [
        "/etc/passwd",
        "/proc/self/environ",
        "/usr/include/stdio.h",
        own,
    ] {
        for text in [
            format!("#warning /*\n#include \"{file}\"\n#warning */\n"),
            format!("#pragma mark /*\n#include \"{file}\"\n#pragma mark */\n"),
        ] {
            let (_, answer) = session.build(context, &text, "");
            assert_ne!(answer.status, 0, "{answer:?}");
            // A compiler's message about a line that it has read begins like this.
            let line = format!("{file}:1");
            let answer = format!("{answer:?}");
            assert!(!answer.contains(&line), "{answer}");
        }
    }
}

#[test]
fn a_worker_that_floods_its_supervisor_slows_no_other_session_down() {
    // A flood of this length lasts longer than all measurements.
    const MESSAGES: i64 = 1 << 40;
    let place = Place::new();
    let daemon = place.daemon(causewayd(), "");
    let slowest = || {
        let opened = (0..5).map(|_| {
            let begun = Instant::now();
            daemon.session().ping();
            begun.elapsed()
        });
        opened.max().unwrap()
    };
    let quiet = slowest();
    let mut session = daemon.session();
    // Behind the address stands the byte that says that OpenCL is loaded.
    let text = [&[0; 64][..], &[3]].concat();
    // The kernel finds the worker's channel.
    assert_eq!(run(&mut session, "floods", &[100, 0], &text)[0], 100);
    begin(&mut session, "floods", &[MESSAGES, 0], &text);
    session.ping();
    let flooded = slowest();
    // The flood does not keep the supervisor busy: ticks are hundredths of a second.
    let before = processor_time(daemon.pid());
    std::thread::sleep(Duration::from_secs(1));
    let took = processor_time(daemon.pid()) - before;
    assert!(took < 20, "{took} ticks");
    let most = 2 * quiet + Duration::from_millis(500);
    assert!(flooded <= most, "{flooded:?}, quiet {quiet:?}");
}

#[test]
fn what_a_kernel_has_started_ends_with_its_session() {
    let place = Place::new();
    let daemon = place.daemon(causewayd(), "");
    let mut session = daemon.session();
    let child = run(&mut session, "forks", &[0], &[0])[0];
    assert!(child > 0, "{child}");
    let running = Path::new("/proc").join(child.to_string());
    assert!(running.exists());
    drop(session);
    until("its end", || !running.exists());
}

/// Tests that a kernel's child lives on when its daemon is killed, until the next daemon starts with these settings.
fn what_is_left_ends_at_the_next_start(settings: &str) {
    let place = Place::new();
    let temporary = place.path("tmp");
    std::fs::create_dir(&temporary).unwrap();
    std::fs::set_permissions(&temporary, PermissionsExt::from_mode(0o711)).unwrap();
    let config =
        format!("{settings}[sandbox]\ndirectory = {temporary:?}\n[build_cache]\nsize = 0\n");
    let daemon = place.daemon(causewayd(), &config);
    let mut session = daemon.session();
    let child = run(&mut session, "forks", &[0], &[0])[0];
    assert!(child > 0, "{child}");
    let running = Path::new("/proc").join(child.to_string());
    let worker = Path::new("/proc").join(session.worker().to_string());
    // The drop kills the daemon by SIGKILL.
    drop(daemon);
    until("the worker's end", || !worker.exists());
    assert!(running.exists());
    // A process of this test, which no daemon may mistake for a leftover.
    let mut own = std::process::Command::new("sleep")
        .arg("60")
        .spawn()
        .unwrap();
    let daemon = place.daemon(causewayd(), &config);
    until("its end", || !running.exists());
    assert!(own.try_wait().unwrap().is_none());
    own.kill().unwrap();
    own.wait().unwrap();
    let mut session = daemon.session();
    assert_eq!(session.workers().len(), 1);
    session.ping();
}

#[test]
fn what_a_killed_daemon_has_left_ends_at_the_next_start() {
    what_is_left_ends_at_the_next_start("");
}

#[test]
fn so_it_does_where_each_worker_is_somebody() {
    if is_root() {
        what_is_left_ends_at_the_next_start("[sessions]\nuid_range = \"200100-200199\"\n");
    }
}

/// Starts a process of this user that belongs to no daemon.
fn stranger(uid: u32) -> std::process::Child {
    use std::os::unix::process::CommandExt;
    std::process::Command::new("sleep")
        .arg("60")
        .uid(uid)
        .gid(uid)
        .spawn()
        .unwrap()
}

#[test]
fn a_process_of_the_range_that_is_no_workers_lives_on() {
    if !is_root() {
        return;
    }
    let mut own = stranger(200_310);
    let daemon = Place::new().daemon(
        causewayd(),
        "[sessions]\nlimit = 2\nuid_range = \"200300-200311\"\n",
    );
    daemon.session().ping();
    assert!(own.try_wait().unwrap().is_none());
    own.kill().unwrap();
    own.wait().unwrap();
}

#[test]
fn a_number_that_a_process_has_is_not_given_out() {
    if !is_root() {
        return;
    }
    let place = Place::new();
    let config = "[sessions]\nlimit = 2\nuid_range = \"200200-200211\"\n";
    let daemon = place.daemon(causewayd(), config);
    // Other processes take the next user ids while the daemon runs.
    let mut strangers: Vec<_> = (200_200..200_211).map(stranger).collect();
    let session = daemon.session();
    let uids = status(session.worker(), "Uid");
    for stranger in &mut strangers {
        stranger.kill().unwrap();
        stranger.wait().unwrap();
    }
    assert!(uids.starts_with("200211"), "{uids}");
}

#[test]
fn a_session_has_a_folder_of_its_own_which_goes_with_it() {
    let place = Place::new();
    let temporary = place.path("tmp");
    std::fs::create_dir(&temporary).unwrap();
    let config = format!(
        "[sandbox]\ndirectory = {temporary:?}\ndriver_caches = \"private\"\n[build_cache]\nsize = 0\n"
    );
    let daemon = place.daemon(causewayd(), &config);
    let folders = || -> Vec<PathBuf> {
        let list = |path: &Path| -> Vec<PathBuf> {
            let entries = std::fs::read_dir(path).into_iter().flatten();
            entries.map(|entry| entry.unwrap().path()).collect()
        };
        list(&temporary).iter().flat_map(|own| list(own)).collect()
    };
    until("no folder of the probing worker", || folders().is_empty());
    let mut session = daemon.session();
    // A file beside the folder names its process group.
    let own = folders().into_iter().find(|path| path.is_dir()).unwrap();
    let pocl = own.join("pocl");
    assert_eq!(own.metadata().unwrap().mode() & 0o777, 0o700);
    let mut asked = Asked::default();
    asked.open(pocl.join("mine"), CREATE);
    assert!(asked.run(&mut session)[0] >= 0);
    // The driver's cache is there, and nowhere else.
    assert!(std::fs::read_dir(&pocl).unwrap().count() > 1);
    assert!(!place.path("home/.cache").exists());
    drop(session);
    until("no folder", || folders().is_empty());
    assert!(daemon.terminate());
    assert_eq!(std::fs::read_dir(&temporary).unwrap().count(), 0);
}
