//! Tests the trace of a program: each test runs itself as a traced program on real daemons, and reads the file.

use std::collections::{BTreeMap, HashMap};
use std::io::{BufRead, BufReader, Write as _};
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::ptr::{null, null_mut};
use std::time::{Duration, Instant};

use causeway_trace::format::Kind;
use causeway_trace::read::{Contents, Slice, contents};
use causeway_trace::timeline::TrackKind;

use crate::frames::opencl::*;
use crate::frames::own_process::run_this_test;
use crate::frames::programs::{kernel, program_in, set};

/// Set in the program that is traced: what the program does.
const WORK: &str = "CAUSEWAY_TEST_TRACED";
/// Begins the lines in which the program reports the times of a command.
const TIMES: &str = "times of";
/// Begins the line in which the program reports that everything has ended.
const DONE: &str = "done";
const PATIENCE: Duration = Duration::from_secs(60);
/// Large enough for the bulk connections.
const SIZE: usize = 3 << 20;
const SOURCE: &str = "kernel void increment(global uint *a) { a[get_global_id(0)] += 1; }";

// ---- the program ---------------------------------------------------------------

struct Work {
    queues: Vec<cl_command_queue>,
    context: cl_context,
    buffer: cl_mem,
    kernel: cl_kernel,
    events: Vec<(&'static str, cl_event)>,
}

fn devices() -> Vec<cl_device_id> {
    let mut count = 0;
    let all = CL_DEVICE_TYPE_ALL;
    ok!(clGetDeviceIDs(
        platform(),
        all,
        0,
        null_mut(),
        &raw mut count
    ));
    let mut devices = vec![null_mut(); count as usize];
    ok!(clGetDeviceIDs(
        platform(),
        all,
        count,
        devices.as_mut_ptr(),
        null_mut()
    ));
    devices
}

impl Work {
    fn new(properties: cl_command_queue_properties) -> Work {
        let devices = devices();
        let count = devices.len() as cl_uint;
        let made = make!(clCreateContext(
            null(),
            count,
            devices.as_ptr(),
            None,
            null_mut()
        ));
        let context = made.expect("a context");
        let program = program_in(context, SOURCE);
        ok!(clBuildProgram(program, 0, null(), null(), None, null_mut()));
        let made = make!(clCreateBuffer(context, CL_MEM_READ_WRITE, SIZE, null_mut()));
        let work = Work {
            queues: (devices.iter())
                .map(|device| {
                    make!(clCreateCommandQueue(context, *device, properties)).expect("a queue")
                })
                .collect(),
            context,
            buffer: made.expect("a buffer"),
            kernel: kernel(program, "increment"),
            events: Vec::new(),
        };
        assert_eq!(set(work.kernel, 0, &work.buffer), CL_SUCCESS);
        work
    }

    fn launch(&mut self, queue: usize, wait: &[cl_event]) -> cl_event {
        let (mut event, global) = (null_mut(), 1024);
        let list = if wait.is_empty() {
            null()
        } else {
            wait.as_ptr()
        };
        ok!(clEnqueueNDRangeKernel(
            self.queues[queue],
            self.kernel,
            1,
            null(),
            &raw const global,
            null(),
            wait.len() as cl_uint,
            list,
            &raw mut event
        ));
        self.events.push(("increment", event));
        event
    }

    fn move_bytes(&mut self, queue: usize, length: usize) {
        let mut bytes = vec![1u8; length];
        let (mut event, at) = (null_mut(), bytes.as_mut_ptr().cast());
        ok!(clEnqueueWriteBuffer(
            self.queues[queue],
            self.buffer,
            CL_TRUE,
            0,
            length,
            at,
            0,
            null(),
            &raw mut event
        ));
        self.events.push(("write buffer", event));
        ok!(clEnqueueReadBuffer(
            self.queues[queue],
            self.buffer,
            CL_TRUE,
            0,
            length,
            at,
            0,
            null(),
            &raw mut event
        ));
        self.events.push(("read buffer", event));
    }

    fn unobserved(&mut self, count: usize) {
        let global = 16;
        for _ in 0..count {
            ok!(clEnqueueNDRangeKernel(
                self.queues[0],
                self.kernel,
                1,
                null(),
                &raw const global,
                null(),
                0,
                null(),
                null_mut()
            ));
        }
    }

    fn finish(&self) {
        for queue in &self.queues {
            ok!(clFinish(*queue));
        }
    }

    fn report(&self) {
        for (name, event) in &self.events {
            let times = [0x1280, 0x1281, 0x1282, 0x1283, 0x1284].map(|name| {
                let mut ns = 0u64;
                ok!(clGetEventProfilingInfo(
                    *event,
                    name,
                    8,
                    (&raw mut ns).cast(),
                    null_mut()
                ));
                ns.to_string()
            });
            println!("\n{TIMES} {name}: {}", times.join(" "));
        }
        println!("\n{DONE}");
    }
}

/// Every kind of command, on every device.
fn all_kinds() -> Work {
    let mut work = Work::new(CL_QUEUE_PROFILING_ENABLE);
    for queue in 0..work.queues.len() {
        work.move_bytes(queue, 64);
        work.move_bytes(queue, SIZE);
        let gate = make!(clCreateUserEvent(work.context)).expect("a user event");
        let first = work.launch(queue, &[gate]);
        let other = (queue + 1) % work.queues.len();
        work.launch(other, &[first]);
        ok!(clSetUserEventStatus(gate, CL_COMPLETE));
        let mut marker = null_mut();
        ok!(clEnqueueMarkerWithWaitList(
            work.queues[queue],
            0,
            null(),
            &raw mut marker
        ));
        work.events.push(("marker", marker));
        work.finish();
    }
    work.unobserved(100);
    work.finish();
    work
}

/// Runs as the traced program if this process is one.
fn run_if_traced() {
    let Ok(work) = std::env::var(WORK) else {
        return;
    };
    match work.as_str() {
        "all kinds" => all_kinds().report(),
        "until killed" => {
            all_kinds().report();
            std::io::stdout().flush().expect("flushed");
            let mut line = String::new();
            let _ = std::io::stdin().read_line(&mut line);
            panic!("must have been killed");
        }
        "beyond the limit" => {
            let mut work = Work::new(0);
            // SAFETY: plain calls. Writes beyond the limit fail then.
            unsafe {
                libc::signal(libc::SIGXFSZ, libc::SIG_IGN);
                let limit = libc::rlimit {
                    rlim_cur: 1 << 20,
                    rlim_max: 1 << 20,
                };
                assert_eq!(libc::setrlimit(libc::RLIMIT_FSIZE, &raw const limit), 0);
            }
            for _ in 0..40 {
                work.unobserved(500);
                work.finish();
            }
            println!("\n{DONE}");
        }
        other => panic!("{other}"),
    }
    std::process::exit(0);
}

// ---- the tests -------------------------------------------------------------------

/// Daemons over the machine's own OpenCL, killed on drop.
struct Nodes(Vec<Child>, Vec<String>);

impl Nodes {
    fn start(count: usize) -> Nodes {
        let mut nodes = Nodes(Vec::new(), Vec::new());
        for _ in 0..count {
            let mut child = causewayd("127.0.0.1:0").spawn().expect("causewayd starts");
            nodes.1.push(address_of(&mut child));
            nodes.0.push(child);
        }
        nodes
    }

    fn program(&self, work: &str, file: &Path) -> Command {
        let mut command = Command::new(std::env::current_exe().expect("a path"));
        run_this_test(&mut command)
            .env(WORK, work)
            .env("CAUSEWAY_SERVERS", self.1.join(","))
            .env("CAUSEWAY_TRACE", file)
            .env_remove("CAUSEWAY_CONFIG")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped());
        command
    }
}

impl Drop for Nodes {
    fn drop(&mut self) {
        for node in &mut self.0 {
            let _ = node.kill();
            let _ = node.wait();
        }
    }
}

type Times = Vec<(String, [u64; 5])>;

/// The times that the program was told, sorted.
fn told(output: &str) -> Times {
    let lines = output.lines().filter_map(|line| line.strip_prefix(TIMES));
    let mut told: Times = lines
        .map(|line| {
            let (name, times) = line.split_once(": ").expect("a name");
            let times: Vec<u64> = times
                .split(' ')
                .map(|ns| ns.parse().expect("a number"))
                .collect();
            (name.trim().to_owned(), times.try_into().expect("five"))
        })
        .collect();
    told.sort();
    told
}

fn commands(trace: &Contents) -> Vec<Slice<'_>> {
    let slices = trace.slices().into_iter();
    slices.filter(|of| of.begin.category == "command").collect()
}

fn times_of(slice: &Slice<'_>) -> [u64; 5] {
    let of = |name| slice.begin.number(name).expect("a time");
    [
        of("queued"),
        of("submitted"),
        slice.begin.at,
        slice.end,
        of("completed"),
    ]
}

/// Checks that the trace has each of these commands once, `unobserved` others, and nothing else.
fn check_commands(trace: &Contents, told: &Times, unobserved: usize) {
    let mut shown: Times = commands(trace)
        .iter()
        .map(|slice| (slice.begin.name.clone(), times_of(slice)))
        .collect();
    shown.sort();
    let (known, others): (Times, Times) = shown.into_iter().partition(|of| told.contains(of));
    assert_eq!(&known, told);
    assert_eq!(others.len(), unobserved);
    assert!(
        others.iter().all(|(name, _)| name == "increment"),
        "{others:?}"
    );
    let mut events: Vec<_> = commands(trace)
        .iter()
        .map(|of| of.begin.number("event"))
        .collect();
    events.sort_unstable();
    events.dedup();
    assert_eq!(events.len(), told.len() + unobserved);
}

/// Checks that slices of one track do not overlap, unless one is inside of the other.
fn check_tracks(trace: &Contents) {
    let mut tracks: HashMap<u64, Vec<(u64, u64)>> = HashMap::new();
    for slice in trace.slices() {
        assert!(trace.tracks.contains_key(&slice.begin.track));
        if slice.depth == 0 && slice.begin.kind == Kind::Begin {
            let spans = tracks.entry(slice.begin.track).or_default();
            spans.push((slice.begin.at, slice.end));
        }
    }
    for mut spans in tracks.into_values() {
        spans.sort_unstable();
        assert!(spans.windows(2).all(|two| two[0].1 < two[1].0), "{spans:?}");
    }
}

fn statement(trace: &Contents) -> String {
    let mut events = trace.events.iter();
    let statement = events.find(|event| event.category == "trace");
    statement.expect("a statement").name.clone()
}

fn read(file: &Path) -> Contents {
    contents(&std::fs::read(file).expect("a trace"))
}

fn text(output: &Output) -> String {
    assert!(output.status.success(), "{output:?}");
    String::from_utf8(output.stdout.clone()).expect("text")
}

/// Counts slices by category and name.
fn counts(trace: &Contents) -> BTreeMap<(String, String), usize> {
    let mut counts = BTreeMap::new();
    for slice in trace.slices() {
        let key = (slice.begin.category.clone(), slice.begin.name.clone());
        *counts.entry(key).or_default() += 1;
    }
    counts
}

fn traced(nodes: usize) -> Contents {
    let nodes = Nodes::start(nodes);
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("trace");
    let output = nodes
        .program("all kinds", &file)
        .output()
        .expect("the program runs");
    let trace = read(&file);
    check_commands(&trace, &told(&text(&output)), 100);
    check_tracks(&trace);
    assert_eq!(statement(&trace), "The trace is complete");
    trace
}

/// Checks that an arrow leads from a slice for which `from` holds to each slice for which `to` holds.
fn check_arrows(
    trace: &Contents,
    from: impl Fn(&Slice<'_>) -> bool,
    to: impl Fn(&Slice<'_>) -> bool,
) {
    let slices = trace.slices();
    let begins = slices
        .iter()
        .filter(|of| from(of))
        .flat_map(|of| &of.begin.arrows);
    let begins: Vec<u64> = begins.copied().collect();
    let mut count = 0;
    for slice in slices.iter().filter(|of| to(of)) {
        let arrives = |arrow: &u64| begins.contains(arrow);
        assert!(slice.begin.arrow_ends.iter().any(arrives), "{slice:?}");
        count += 1;
    }
    assert!(count > 0);
}

#[test]
fn every_command_stands_once_with_the_times_that_the_program_is_told() {
    run_if_traced();
    let trace = traced(1);
    let counts = counts(&trace);
    let count = |category: &str, name: &str| {
        let key = (category.to_owned(), name.to_owned());
        counts.get(&key).copied().unwrap_or(0)
    };
    assert_eq!(count("call", "clEnqueueNDRangeKernel"), 102);
    assert_eq!(count("call", "clFinish"), 2);
    assert_eq!(count("build", "build"), 1);
    assert_eq!(count("transfer", "client to node"), 1);
    assert_eq!(count("transfer", "node to client"), 1);
    assert!(count("wire", "batch") > 0 && count("wait", "waits for the node") > 0);

    let transfers = trace
        .slices()
        .into_iter()
        .filter(|of| of.begin.category == "transfer");
    for transfer in transfers {
        assert_eq!(transfer.begin.number("bytes"), Some(SIZE as u64));
    }
    let batched: u64 = (trace.slices().iter())
        .filter(|of| of.begin.name == "batch")
        .filter_map(|of| of.begin.number("commands"))
        .sum();
    assert!(batched > 107, "{batched}");
    let is_command = |of: &Slice<'_>| of.begin.category == "command";
    check_arrows(&trace, |of| of.begin.category == "call", is_command);
    // Of the two commands with a wait list, one waited for the other.
    let waited = |of: &Slice<'_>| is_command(of) && of.begin.arrow_ends.len() == 2;
    assert_eq!(trace.slices().iter().filter(|of| waited(of)).count(), 1);
    check_arrows(&trace, is_command, waited);

    let thread = trace
        .tracks
        .values()
        .find(|track| matches!(track.kind, TrackKind::Thread { .. }));
    let process = thread.expect("a thread").parent.expect("a process");
    assert!(matches!(
        trace.tracks[&process].kind,
        TrackKind::Process { .. }
    ));
}

#[test]
fn two_nodes_are_in_one_trace_with_the_transfers_between_them() {
    run_if_traced();
    let trace = traced(2);
    let names = |of: u64| trace.tracks[&of].name.clone();
    let queues: Vec<u64> = (trace.tracks.iter())
        .filter(|(_, track)| track.name.starts_with("queue") && !track.name.ends_with("waiting"))
        .filter_map(|(_, track)| track.parent)
        .collect();
    assert!(
        queues.iter().any(|node| names(*node) != names(queues[0])),
        "{queues:?}"
    );
    let slices = trace.slices();
    let between = |way: &str| {
        let found = slices.iter().filter(|of| of.begin.category == "transfer");
        found.filter(|of| of.begin.name.starts_with(way)).count()
    };
    assert!(
        between("from ") > 0 && between("from ") == between("to "),
        "{slices:?}"
    );
}

#[test]
fn the_trace_of_a_killed_program_can_be_read_and_says_so() {
    run_if_traced();
    let nodes = Nodes::start(1);
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("trace-%p");
    let mut program = nodes
        .program("until killed", &file)
        .spawn()
        .expect("the program runs");
    let mut output = String::new();
    let mut lines = BufReader::new(program.stdout.take().expect("standard output"));
    while !output.ends_with(&format!("{DONE}\n")) {
        assert_ne!(lines.read_line(&mut output).expect("text"), 0, "{output}");
    }
    let file = folder.path().join(format!("trace-{}", program.id()));
    let told = told(&output);
    let end = Instant::now() + PATIENCE;
    // Every state of the file can be read.
    while commands(&read(&file)).len() < told.len() + 100 {
        assert!(Instant::now() < end, "the commands are not written");
        std::thread::yield_now();
    }
    program.kill().expect("killed");
    program.wait().expect("ended");
    let trace = read(&file);
    check_commands(&trace, &told, 100);
    check_tracks(&trace);
    assert!(
        statement(&trace).starts_with("the trace was not closed"),
        "{}",
        statement(&trace)
    );
}

#[test]
fn a_program_whose_trace_has_no_room_goes_on() {
    run_if_traced();
    let nodes = Nodes::start(1);
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("trace");
    let mut program = nodes.program("beyond the limit", &file);
    let output = program
        .stderr(Stdio::piped())
        .output()
        .expect("the program runs");
    assert!(text(&output).contains(DONE));
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(said.matches("ends here").count(), 1, "{said}");
    let trace = read(&file);
    check_tracks(&trace);
    assert!(!commands(&trace).is_empty());
    assert!(
        statement(&trace).contains("could not be written"),
        "{}",
        statement(&trace)
    );

    // A folder cannot be the file.
    let mut program = nodes.program("all kinds", folder.path());
    let output = program
        .stderr(Stdio::piped())
        .output()
        .expect("the program runs");
    assert_eq!(told(&text(&output)).len(), 7);
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(said.matches("runs without a trace").count(), 1, "{said}");
}
