//! Tests of hosts: sessions of one domain in one process compute apart, and the end of one leaves nothing behind and
//! costs its neighbours nothing, or tells them why.

use std::collections::BTreeSet;
use std::io::Read;
use std::net::TcpStream;
use std::panic::AssertUnwindSafe;
use std::time::{Duration, Instant};

use causeway_proto::command::{CreateSvm, command::Kind};
use causeway_proto::preamble::Purpose;
use rustix::process::{Pid, Resource, Rlimit, prlimit};

use crate::common::{
    Daemon, Session, Told, build_commands, eventually, launch, linear, memory, plain, read, write,
};

pub(super) const TOGETHER: [&str; 2] = ["--together", "user"];
pub(super) const SOURCE: &str = "kernel void put(global int *x, int i, int v) { x[i] = v; }";
/// What a session can leave behind.
pub(super) const STEPS: usize = 10;
/// Rounds of a test in which sessions come and go.
const ROUNDS: usize = 50;
const MANY_ROUNDS: usize = 1000;
/// Memory in MiB that a card's driver may keep after many sessions.
const CARD_KEEPS: u64 = 16;
/// Time within which clients learn that their host is gone.
const SOON: Duration = Duration::from_secs(5);

fn together() -> Daemon {
    Daemon::with_arguments(&TOGETHER)
}

fn fake(settings: &str) -> Daemon {
    Daemon::fake_with(settings, &TOGETHER, &[])
}

/// A session with what it computes with.
pub(super) struct Program {
    pub(super) session: Session,
    pub(super) queue: u64,
    pub(super) buffer: u64,
    pub(super) kernel: u64,
}

impl Program {
    pub(super) fn new(mut session: Session) -> Program {
        let context = session.context();
        let queue = session.queue(context, 0);
        let buffer = session.buffer(context, 64, &[0; 64]);
        let (program, answer) = session.build(context, SOURCE, "");
        assert_eq!(answer.status, 0, "{answer:?}");
        let kernel = session.kernel(program, "put");
        Program {
            session,
            queue,
            buffer,
            kernel,
        }
    }

    pub(super) fn put(&mut self, wait: &[u64], index: i32, value: i32) -> u64 {
        let args = vec![
            memory(self.buffer),
            plain(&index.to_ne_bytes()),
            plain(&value.to_ne_bytes()),
        ];
        let put = launch(self.kernel, args, &[1], &[]);
        self.session.enqueue(self.queue, wait, put)
    }

    pub(super) fn values(&mut self) -> Vec<i32> {
        let bytes = self.session.bytes(self.queue, self.buffer, 0, 64);
        let words = bytes.chunks_exact(4);
        words
            .map(|word| i32::from_ne_bytes(word.try_into().unwrap()))
            .collect()
    }
}

/// The number of threads and of descriptors of a process.
pub(super) fn held(pid: u32) -> (usize, usize) {
    let count = |of: &str| {
        let entries = std::fs::read_dir(format!("/proc/{pid}/{of}"));
        entries.map_or(0, Iterator::count)
    };
    (count("task"), count("fd"))
}

/// Used memory of the machine's first NVIDIA card in MiB; `None` without one.
fn used_on_card() -> Option<u64> {
    let arguments = ["--query-gpu=memory.used", "--format=csv,noheader,nounits"];
    let told = std::process::Command::new("nvidia-smi")
        .args(arguments)
        .output()
        .ok()?;
    let text = String::from_utf8(told.stdout).ok()?;
    text.lines().next()?.trim().parse().ok()
}

pub(super) fn kill(pid: u32) {
    let pid = rustix::process::Pid::from_raw(pid.try_into().unwrap()).unwrap();
    rustix::process::kill_process(pid, rustix::process::Signal::KILL).unwrap();
}

#[test]
fn sessions_in_one_process_compute_apart() {
    let daemon = together();
    let mut programs: Vec<Program> = (0..3).map(|_| Program::new(daemon.session())).collect();
    assert_eq!(programs[0].session.workers().len(), 1);
    for value in 0..16 {
        for (base, program) in (0..).zip(&mut programs) {
            program.put(&[], value, 100 * base + value);
        }
    }
    for (base, program) in (0..).zip(&mut programs) {
        let expected: Vec<i32> = (0..16).map(|value| 100 * base + value).collect();
        assert_eq!(program.values(), expected);
    }
}

#[test]
fn a_neighbours_id_is_unknown_and_ends_only_the_session_that_names_it() {
    let daemon = together();
    let mut good = Program::new(daemon.session());
    let mut guesses = Program::new(daemon.session());
    good.put(&[], 0, 7);
    let foreign = read(good.buffer, linear(0, 64), false);
    guesses.session.enqueue(guesses.queue, &[], foreign);
    guesses.session.ends();
    assert!(guesses.session.heard.completions.is_empty());
    assert_eq!(good.values()[0], 7);
    // The process goes on and takes further sessions.
    let mut next = Program::new(daemon.session());
    assert_eq!(next.session.workers().len(), 1);
    next.put(&[], 1, 8);
    assert_eq!((next.values()[1], good.values()[0]), (8, 7));
}

/// Begins everything that a session can leave behind, and stops after `steps` of it.
pub(super) fn leave_behind(daemon: &Daemon, steps: usize) {
    let mut session = daemon.session();
    let context = session.context();
    let queue = session.queue(context, 0);
    let large = 8 << 20;
    let buffer = session.buffer(context, large, &[]);
    let user_event = session.user_event();
    let (mut program, mut kernel) = (0, 0);
    // Kept until the session is cut off.
    let mut _lane = None;
    for step in 0..steps {
        match step {
            0 => drop(session.write(queue, &[], buffer, 0, &[1; 4096])),
            1 => (program, _) = session.build(context, SOURCE, ""),
            2 => kernel = session.kernel(program, "put"),
            3 => {
                let args = vec![memory(buffer), plain(&[0; 4]), plain(&[0; 4])];
                session.enqueue(queue, &[], launch(kernel, args, &[1], &[]));
            }
            4 => _lane = Some(session.lane(0)),
            // A transfer whose bytes never come: a mapping stays open. The second one waits for the first.
            5 | 6 => drop(session.enqueue(queue, &[], write(buffer, linear(0, large), None))),
            7 => drop(session.enqueue(queue, &[], read(buffer, linear(0, large), true))),
            8 => drop(session.write(queue, &[user_event], buffer, 0, &[2; 16])),
            9 => {
                let request = session.new_id();
                let buffer = session.new_id();
                session.send(vec![Kind::CreateSvm(CreateSvm {
                    request,
                    context,
                    buffer,
                    flags: 1,
                    size: 4096,
                    alignment: 64,
                })]);
            }
            _ => session.send(vec![]),
        }
    }
}

fn nothing_is_left(daemon: &Daemon, rounds: usize) {
    let mut stays = Program::new(daemon.session());
    let host = stays.session.worker();
    // The first sessions start threads of the driver.
    for steps in 0..=STEPS {
        leave_behind(daemon, steps);
    }
    let sessions = || daemon.count("causeway_sessions");
    eventually("the first sessions end", || (sessions() == 1).then_some(()));
    let (before, card_before) = (held(host), used_on_card());
    for round in 0..rounds {
        leave_behind(daemon, round % (STEPS + 1));
    }
    eventually("all sessions end", || (sessions() == 1).then_some(()));
    let until = Instant::now() + SOON;
    loop {
        let now = held(host);
        if now.0 <= before.0 && now.1 <= before.1 {
            break;
        }
        assert!(Instant::now() < until, "{before:?} became {now:?}");
        std::thread::yield_now();
    }
    if let (Some(before), Some(now)) = (card_before, used_on_card()) {
        assert!(now <= before + CARD_KEEPS, "{before} MiB became {now}");
    }
    until_alone(&stays.session, host);
    // A write and not a launch, because the fake driver's kernels compute nothing.
    let (queue, buffer) = (stays.queue, stays.buffer);
    stays
        .session
        .write(queue, &[], buffer, 12, &4i32.to_ne_bytes());
    assert_eq!(stays.values()[3], 4);
}

/// Waits until this host is the only one. On a busy machine, a session that comes while commands of one that has left go
/// on gets another host.
pub(super) fn until_alone(session: &Session, host: u32) {
    eventually("other hosts end", || {
        (session.workers() == [host]).then_some(())
    });
}

/// The settings of a daemon with hosts that end soon when they have no session.
pub(super) struct SoonIdle(tempfile::NamedTempFile);

impl SoonIdle {
    pub(super) fn new() -> SoonIdle {
        let settings = tempfile::NamedTempFile::new().unwrap();
        let text = "[sharing]\ntogether = \"user\"\nhost_idle = \"1s\"\n";
        std::fs::write(settings.path(), text).unwrap();
        SoonIdle(settings)
    }

    pub(super) fn arguments(&self) -> [&str; 4] {
        let path = self.0.path().to_str().unwrap();
        ["--config", path, "--metrics", "127.0.0.1:0"]
    }
}

fn watched(driver: Option<&str>) -> Daemon {
    let settings = SoonIdle::new();
    let arguments = settings.arguments();
    match driver {
        None => Daemon::with_arguments(&arguments),
        Some(settings) => Daemon::fake_with(settings, &arguments, &[]),
    }
}

#[test]
fn sessions_that_are_cut_off_anywhere_leave_nothing() {
    nothing_is_left(&watched(None), ROUNDS);
}

/// The fake driver's devices have memory of their own, so transfers go through pinned memory.
#[test]
fn sessions_that_are_cut_off_leave_no_pinned_memory() {
    nothing_is_left(&watched(Some("devices = 1")), ROUNDS);
}

#[test]
#[ignore = "takes minutes; run it by name"]
fn a_thousand_sessions_leave_nothing() {
    nothing_is_left(&watched(None), MANY_ROUNDS);
}

/// Launches kernels that print, and returns the text.
fn say(session: &mut Session, name: &str, times: i32) -> String {
    let context = session.context();
    let queue = session.queue(context, 0);
    let source = format!("kernel void say(int n) {{ printf(\"{name} %d\\n\", n); }}");
    let (program, answer) = session.build(context, &source, "");
    assert_eq!(answer.status, 0, "{answer:?}");
    let kernel = session.kernel(program, "say");
    for n in 0..times {
        let args = vec![plain(&n.to_ne_bytes())];
        let event = session.enqueue(queue, &[], launch(kernel, args, &[1], &[]));
        session.wait(event);
        let mut order = session.heard.order.iter();
        let ended = order.position(|told| *told == Told::Ended(event)).unwrap();
        let text = printed(&session.heard.order[..ended]);
        assert!(text.ends_with(&format!("{name} {n}\n")), "{text:?}");
    }
    printed(&session.heard.order)
}

fn printed(order: &[Told]) -> String {
    let texts = order.iter().filter_map(|told| match told {
        Told::Printed(text) => Some(text.as_str()),
        Told::Ended(_) => None,
    });
    texts.collect()
}

#[test]
fn printed_text_reaches_its_own_program_while_others_compute() {
    const TIMES: i32 = 40;
    let daemon = together();
    let mut quiet = Program::new(daemon.session());
    std::thread::scope(|scope| {
        let sayers = ["one", "other"].map(|name| {
            let mut session = daemon.session();
            scope.spawn(move || (name, say(&mut session, name, TIMES)))
        });
        for value in 0..16 {
            quiet.put(&[], value, value);
        }
        assert_eq!(quiet.values(), (0..16).collect::<Vec<_>>());
        for sayer in sayers {
            let (name, text) = sayer.join().unwrap();
            let expected: String = (0..TIMES).map(|n| format!("{name} {n}\n")).collect();
            assert_eq!(text, expected);
        }
    });
    assert_eq!(printed(&quiet.session.heard.order), "");
}

/// Opens the connection on which a client hears why its host has ended.
fn heartbeat(session: &Session) -> TcpStream {
    let mut heartbeat = session.connect(Purpose::Heartbeat, 0, false).unwrap();
    // The supervisor knows a connection that beats.
    heartbeat.read_exact(&mut [0]).unwrap();
    heartbeat
}

fn reason(mut heartbeat: TcpStream) -> String {
    let mut bytes = Vec::new();
    heartbeat.read_to_end(&mut bytes).unwrap();
    bytes.retain(|byte| *byte != 0);
    String::from_utf8(bytes).unwrap()
}

#[test]
fn each_session_of_a_host_that_crashes_is_told_whether_it_was_the_cause() {
    let in_a_build = "[[call]]\nname = \"clBuildProgram\"\nat = 2\ncrash = \"segv\"";
    let in_a_kernel = "kernel.crashes.crash = \"divide\"";
    for settings in [in_a_build, in_a_kernel] {
        let daemon = fake(settings);
        let neighbour = Program::new(daemon.session());
        let mut crashes = daemon.session();
        let heard = [&neighbour.session, &crashes].map(heartbeat);
        let context = crashes.context();
        let queue = crashes.queue(context, 0);
        let (program, request) = (crashes.new_id(), crashes.new_id());
        let source = "kernel void crashes() {}";
        crashes.send(build_commands(context, program, request, source, ""));
        if settings == in_a_kernel {
            assert_eq!(crashes.answer(request).status, 0);
            let kernel = crashes.kernel(program, "crashes");
            crashes.enqueue(queue, &[], launch(kernel, vec![], &[1], &[]));
        }
        let [neighbour, crashed] = heard.map(reason);
        assert!(
            neighbour.contains("another one is the likely cause"),
            "{neighbour}"
        );
        assert!(crashed.contains("only this session had"), "{crashed}");
    }
}

#[test]
fn a_host_that_is_killed_ends_its_sessions_with_the_reason_and_the_next_is_new() {
    let daemon = together();
    let mut programs = [(); 2].map(|()| Program::new(daemon.session()));
    let heartbeats = programs.each_ref().map(|of| heartbeat(&of.session));
    let host = programs[0].session.worker();
    let killed = Instant::now();
    kill(host);
    for (program, heartbeat) in programs.iter_mut().zip(heartbeats) {
        program.session.ends();
        assert_eq!(program.session.heard.close_reason, "");
        let reason = reason(heartbeat);
        assert!(reason.contains("this machine's users"), "{reason}");
        assert!(reason.contains("signal SIGKILL"), "{reason}");
    }
    assert!(killed.elapsed() < SOON);
    let mut next = Program::new(daemon.session());
    next.put(&[], 0, 5);
    assert_eq!(next.values()[0], 5);
    assert_ne!(next.session.worker(), host);
}

#[test]
fn a_stopped_daemon_tells_all_sessions_of_a_host() {
    let arguments = [&TOGETHER[..], &["--drain-limit", "1"]].concat();
    let daemon = Daemon::with_arguments(&arguments);
    let mut programs = [(); 2].map(|()| Program::new(daemon.session()));
    let host = programs[0].session.worker();
    std::thread::scope(|scope| {
        let stopping = scope.spawn(|| daemon.terminate());
        for program in &mut programs {
            program.session.ends();
            let reason = &program.session.heard.close_reason;
            assert!(reason.contains("stopped"), "{reason}");
        }
        assert!(stopping.join().unwrap());
    });
    assert!(std::fs::metadata(format!("/proc/{host}")).is_err());
}

#[test]
fn a_kernel_that_never_ends_costs_its_neighbours_the_host_with_the_reason() {
    let daemon = fake("devices = 1\nkernel.endless.hang = true");
    let mut neighbour = Program::new(daemon.session());
    let mut endless = daemon.session();
    let context = endless.context();
    let queue = endless.queue(context, 0);
    let buffer = endless.buffer(context, 4, b"good");
    let source = "kernel void endless(global int *x) { }";
    let (program, _) = endless.build(context, source, "");
    let kernel = endless.kernel(program, "endless");
    endless.enqueue(queue, &[], launch(kernel, vec![memory(buffer)], &[1], &[]));
    endless.ping();
    let host = neighbour.session.worker();
    drop(endless);
    neighbour.session.ends();
    let reason = neighbour.session.heard.close_reason.clone();
    assert!(reason.contains("this machine's users"), "{reason}");
    assert!(reason.contains("does not return"), "{reason}");
    assert!(
        reason.contains("that other session is the likely cause"),
        "{reason}"
    );
    let next = Program::new(daemon.session());
    let workers = || next.session.workers();
    eventually("the host is gone", || {
        (!workers().contains(&host)).then_some(())
    });
}

#[test]
fn a_session_gets_another_host_while_a_kernel_of_a_program_that_is_gone_runs() {
    let daemon = watched(Some(
        "devices = 1\nkernel.endless.hang = true\nkernel.short.ns = 1000",
    ));
    let mut endless = Session::open_resuming(&daemon, 2000);
    begin(&mut endless, "endless", "");
    endless.ping();
    let host = endless.worker();
    // The program is there and may go on.
    let beside = daemon.session();
    assert_eq!(beside.worker(), host);
    drop((beside, endless));
    eventually("the session is away", || {
        (daemon.count("causeway_sessions_away") == 1).then_some(())
    });
    let mut next = daemon.session();
    begin(&mut next, "short", "");
    let mut third = daemon.session();
    third.ping();
    let workers = third.workers();
    assert!(workers.len() == 2 && workers.contains(&host), "{workers:?}");
    eventually("the host is gone with its session", || {
        let is_gone = !third.workers().contains(&host) && daemon.count("causeway_sessions") == 2;
        is_gone.then_some(())
    });
    next.ping();
    third.ping();
}

#[test]
fn a_session_joins_the_host_of_a_program_that_is_gone_and_left_nothing_running() {
    let daemon = watched(Some("devices = 1\nkernel.short.ns = 1000"));
    let mut gone = Session::open_resuming(&daemon, 60_000);
    let event = begin(&mut gone, "short", "");
    gone.wait(event);
    let host = gone.worker();
    drop(gone);
    eventually("the session is away", || {
        (daemon.count("causeway_sessions_away") == 1).then_some(())
    });
    assert_eq!(daemon.session().worker(), host);
}

/// A kernel that takes longer than a session has to end, and its neighbours.
const LONG: &str = "devices = 1\nkernel.long = { ns = 6000000000, print = \"long\" }\nkernel.short = { ns = 1000, print = \"short\" }";

/// Launches a kernel that may print, if `source` says so, and makes sure that it is on its way.
fn begin(session: &mut Session, name: &str, body: &str) -> u64 {
    let context = session.context();
    let queue = session.queue(context, 0);
    let (program, answer) =
        session.build(context, &format!("kernel void {name}() {{ {body} }}"), "");
    assert_eq!(answer.status, 0, "{answer:?}");
    let kernel = session.kernel(program, name);
    session.enqueue(queue, &[], launch(kernel, vec![], &[1], &[]))
}

#[test]
fn a_session_that_leaves_behind_a_long_kernel_of_a_neighbour_costs_it_nothing() {
    let daemon = watched(Some(LONG));
    let mut long = daemon.session();
    let event = begin(&mut long, "long", "");
    long.ping();
    let mut leaves = daemon.session();
    begin(&mut leaves, "short", "");
    leaves.ping();
    drop(leaves);
    assert_eq!(long.wait(event).status, 0);
    eventually("the other session ends", || {
        (daemon.count("causeway_sessions") == 1).then_some(())
    });
    long.ping();
}

/// As long as a neighbour's client is there, a session may wait for its kernel. Then the kernel has to end too.
#[test]
fn a_host_with_an_endless_kernel_ends_after_the_session_that_has_launched_it() {
    let daemon = watched(Some(
        "devices = 1\nkernel.endless.ns = 3600000000000\nkernel.short.ns = 1000",
    ));
    let mut endless = daemon.session();
    begin(&mut endless, "endless", "");
    endless.ping();
    let host = endless.worker();
    let mut leaves = daemon.session();
    begin(&mut leaves, "short", "");
    leaves.ping();
    drop(leaves);
    // Longer than a session may take that waits for nothing.
    let until = Instant::now() + Duration::from_secs(8);
    while Instant::now() < until {
        endless.ping();
        assert_eq!(daemon.count("causeway_sessions"), 2);
    }
    let left = Instant::now();
    drop(endless);
    eventually("the host ends", || {
        std::fs::metadata(format!("/proc/{host}"))
            .is_err()
            .then_some(())
    });
    assert!(
        left.elapsed() < SOON + Duration::from_secs(2),
        "{:?}",
        left.elapsed()
    );
}

#[test]
fn a_session_that_waits_for_the_console_leaves_at_once() {
    let daemon = watched(Some(LONG));
    let mut long = daemon.session();
    let event = begin(&mut long, "long", "printf();");
    long.ping();
    let mut waits = daemon.session();
    // The thread that waits does not read the command connection.
    let heartbeat = waits.connect(Purpose::Heartbeat, 0, false).unwrap();
    begin(&mut waits, "short", "printf();");
    drop((waits, heartbeat));
    eventually("the session that waits ends", || {
        (daemon.count("causeway_sessions") == 1).then_some(())
    });
    assert!(!long.heard.completions.contains_key(&event));
    assert_eq!(long.wait(event).status, 0);
}

#[test]
fn a_host_without_free_descriptors_refuses_a_session_and_a_lane_and_keeps_the_others() {
    let daemon = watched(None);
    let mut first = Program::new(daemon.session());
    let host = first.session.worker();
    let limited = |current| {
        let limit = Rlimit {
            current: Some(current),
            maximum: hard_limit(host),
        };
        prlimit(
            Pid::from_raw(host.try_into().unwrap()),
            Resource::Nofile,
            limit,
        )
        .unwrap()
    };
    let open = held(host).1;
    let before = limited(open as u64);
    let refused = std::panic::catch_unwind(|| drop(daemon.session()));
    assert!(refused.is_err());
    eventually("the refused session ends", || {
        (daemon.count("causeway_sessions") == 1 && held(host).1 <= open).then_some(())
    });
    // A new descriptor takes the lowest free number, which the limit forbids. What the host has open for a moment only must
    // not take part.
    let mut seen = (0, 0);
    let free = eventually("the host opens and closes nothing", || {
        let free = lowest_free(host);
        seen = (free, if free == seen.0 { seen.1 + 1 } else { 0 });
        (seen.1 == 50).then_some(free)
    });
    limited(free);
    let lane = AssertUnwindSafe(|| first.session.lane(0));
    assert!(std::panic::catch_unwind(lane).is_err());
    limited(before.current.unwrap());
    first.put(&[], 0, 1);
    assert_eq!(first.values()[0], 1);
    let second = Program::new(daemon.session());
    assert_eq!(second.session.worker(), host);
}

/// The lowest number that no descriptor of a process has.
fn lowest_free(host: u32) -> u64 {
    let open = std::fs::read_dir(format!("/proc/{host}/fd")).unwrap();
    let open = open
        .flatten()
        .filter_map(|of| of.file_name().to_str()?.parse().ok());
    let open: BTreeSet<u64> = open.collect();
    (0..).find(|number| !open.contains(number)).unwrap()
}

/// The hard limit on descriptors of a process.
fn hard_limit(host: u32) -> Option<u64> {
    let limits = std::fs::read_to_string(format!("/proc/{host}/limits")).unwrap_or_default();
    let line = limits
        .lines()
        .find(|line| line.starts_with("Max open files"));
    let hard = line.and_then(|line| line.split_whitespace().nth(4)?.parse().ok());
    hard.or_else(|| rustix::process::getrlimit(Resource::Nofile).maximum)
}

#[test]
fn a_host_without_sessions_ends_when_its_process_is_needed() {
    let settings = tempfile::NamedTempFile::new().unwrap();
    let text = "[sessions]\nlimit = 1\n[sharing]\ntogether = \"user\"\n";
    std::fs::write(settings.path(), text).unwrap();
    let daemon = Daemon::with_arguments(&["--config", settings.path().to_str().unwrap()]);
    let first = Program::new(daemon.session());
    let host = first.session.worker();
    drop(first);
    let alone = loop {
        // The first session may still count.
        if let Ok(session) = Session::try_open_isolated(&daemon) {
            break session;
        }
    };
    assert_ne!(alone.worker(), host);
}

#[test]
fn a_context_in_which_nothing_works_any_more_is_given_to_no_further_session() {
    let settings = "devices = 1\n[kernel.bad]\nfail = -5\n[[call]]\nname = \"clEnqueueMarkerWithWaitList\"\nfail = -36";
    let daemon = fake(settings);
    let mut bad = daemon.session();
    let event = begin(&mut bad, "bad", "");
    assert_eq!(bad.wait(event).status, -5);
    let host = bad.worker();
    // The session finds out within a moment, and tells the supervisor.
    let other = eventually("another host serves the next session", || {
        let next = daemon.session();
        let mut workers = next.workers();
        workers.retain(|worker| *worker != host);
        workers.first().copied()
    });
    bad.ping();
    drop(bad);
    let workers = || daemon.session().workers();
    eventually("the host ends with its last session", || {
        (!workers().contains(&host)).then_some(())
    });
    assert!(workers().contains(&other));
}

#[test]
fn a_host_whose_driver_makes_no_context_any_more_gets_no_further_session() {
    // The first context of each process is refused, also when the host asks again.
    let refused: String = (1..=6)
        .map(|at| format!("[[call]]\nname = \"clCreateContext\"\nat = {at}\nfail = -9999\n"))
        .collect();
    let daemon = fake(&format!("devices = 1\n{refused}"));
    let mut first = daemon.session();
    let host = first.worker();
    first.context();
    first.ping();
    eventually("another host serves the next session", || {
        let workers = daemon.session().workers();
        workers.iter().any(|worker| *worker != host).then_some(())
    });
}

#[test]
fn a_failure_in_a_session_that_ends_at_once_is_found_by_its_neighbours() {
    let settings = "devices = 1\n[kernel.bad]\nfail = -5\n[[call]]\nname = \"clEnqueueMarkerWithWaitList\"\nfail = -36";
    let daemon = fake(settings);
    let mut neighbour = daemon.session();
    let host = neighbour.worker();
    neighbour.context();
    neighbour.ping();
    let mut bad = daemon.session();
    let event = begin(&mut bad, "bad", "");
    assert_eq!(bad.wait(event).status, -5);
    drop(bad);
    eventually("another host serves the next session", || {
        let workers = daemon.session().workers();
        workers.iter().any(|worker| *worker != host).then_some(())
    });
}

#[test]
fn a_host_without_sessions_ends_after_a_while() {
    let daemon = watched(None);
    let first = Program::new(daemon.session());
    let host = first.session.worker();
    drop(first);
    // A session that comes in time keeps the host.
    let second = Program::new(daemon.session());
    assert_eq!(second.session.worker(), host);
    let handle = second.session.id();
    drop(second);
    eventually(&format!("the host of {handle:?} ends"), || {
        let status = std::fs::read_to_string(format!("/proc/{host}/stat")).ok();
        status.is_none().then_some(())
    });
}

#[test]
fn sessions_that_come_when_their_host_is_about_to_end_are_served() {
    let settings = tempfile::NamedTempFile::new().unwrap();
    let text = "[sharing]\ntogether = \"user\"\nhost_idle = \"1ms\"\n";
    std::fs::write(settings.path(), text).unwrap();
    let daemon = Daemon::with_arguments(&["--config", settings.path().to_str().unwrap()]);
    for _ in 0..ROUNDS {
        let mut session = daemon.session();
        session.context();
        session.ping();
    }
}

#[test]
fn a_session_that_wants_to_be_alone_is_alone() {
    let daemon = together();
    let mut one = Program::new(daemon.session());
    let mut alone = Program::new(Session::open_isolated(&daemon));
    assert_eq!(one.session.workers().len(), 2);
    alone.put(&[], 0, 1);
    one.put(&[], 0, 2);
    assert_eq!((alone.values()[0], one.values()[0]), (1, 2));
}

#[test]
fn the_native_context_is_made_once_and_memory_is_cleared_between_users() {
    let log = tempfile::NamedTempFile::new().unwrap();
    let environment = [("FAKE_OPENCL_LOG", log.path().to_str().unwrap())];
    let daemon = Daemon::fake_with("devices = 1", &TOGETHER, &environment);
    let mut programs: Vec<Program> = (0..3).map(|_| Program::new(daemon.session())).collect();
    for program in &mut programs {
        let session = &mut program.session;
        let context = session.context();
        let queue = session.queue(context, 0);
        let fresh = session.buffer(context, 32, &[]);
        assert_eq!(&session.bytes(queue, fresh, 0, 32)[..], [0; 32]);
    }
    let calls = |name: &str| {
        let text = std::fs::read_to_string(log.path()).unwrap();
        text.lines().filter(|line| line.contains(name)).count()
    };
    assert_eq!(calls("clCreateContext"), 1);
    // Local users are not told apart, so their memory is cleared.
    assert_eq!(calls("clEnqueueFillBuffer"), 3);
}
