//! Shared parts of the tests of leases: a cluster of a device manager and managed daemons, all with TLS, and programs
//! that get their devices there.
//!
//! A [`Program`] is this test program again, which executes orders, line by line ([`played`]).

use std::io::{BufRead, BufReader, Write};
use std::net::{Ipv4Addr, SocketAddr};
use std::os::unix::process::ExitStatusExt;
use std::path::PathBuf;
use std::process::{Child, ChildStdin, Command, ExitStatus, Stdio};
use std::ptr::{null, null_mut};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, Receiver};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;

pub use causeway_cluster::{Caller, Manager};
pub use causeway_proto::manager::LeaseState;
pub use rustix::process::Signal;
use rustix::process::{Pid, kill_process};

use crate::frames::own_process::run_this_test;
use crate::frames::programs::{build, kernel, launch, program_in, set};
use crate::frames::servers;
use crate::frames::servers::*;

/// Time limit for an answer of a program.
const ANSWER: Duration = Duration::from_secs(90);
/// This variable is set in a program that executes orders.
const PLAYED: &str = "CAUSEWAY_TEST_PLAYED";
/// The order that a program executes at its end, in a function that it registered before all others.
pub const LATE: &str = "CAUSEWAY_TEST_LATE";

/// A manager and one of its users.
pub struct Cluster {
    pub manager: Manager,
    pub user: Caller,
    token: PathBuf,
}

impl Cluster {
    /// Starts a manager with these settings.
    pub fn start(settings: &str) -> Cluster {
        Cluster::start_at(Ipv4Addr::LOCALHOST, settings)
    }

    /// Starts a manager at another address, in the network of the calling thread.
    pub fn start_at(address: Ipv4Addr, settings: &str) -> Cluster {
        let program = programs_of(&["causeway-devmgr"]).join("causeway-devmgr");
        let manager = Manager::start_at(address.into(), &program, settings).expect("a manager");
        let (user, token) = manager.user("tester").expect("a user");
        Cluster {
            manager,
            user,
            token,
        }
    }

    /// Starts a managed daemon over the fake driver, and waits until its devices are known.
    pub fn node(&self, settings: &str) -> Daemon {
        self.node_with(settings, &[])
    }

    /// Starts such a daemon, whose driver logs its calls.
    pub fn logging_node(&self, settings: &str) -> Daemon {
        self.node_by(Daemon::start_logged, settings, &[])
    }

    /// Starts such a daemon with more arguments.
    pub fn node_with(&self, settings: &str, more: &[&str]) -> Daemon {
        self.node_by(Daemon::start_flagged, settings, more)
    }

    fn node_by(
        &self,
        start: fn(&str, &str, &[String]) -> Daemon,
        settings: &str,
        more: &[&str],
    ) -> Daemon {
        let before = self.devices();
        let mut arguments = self.manager.node_arguments();
        arguments.extend(more.iter().map(|&of| of.to_owned()));
        let daemon = start(&self.any_port(), settings, &arguments);
        let more = settings.matches("[[device]]").count().max(1);
        self.manager.see_devices(before + more).expect("they come");
        daemon
    }

    /// Restarts a killed node, and waits until its one device is known.
    pub fn start_again(&self, daemon: &mut Daemon) {
        daemon.start_again(&self.manager.node_arguments());
        self.manager.see_devices(1).expect("the node joins");
    }

    fn devices(&self) -> usize {
        let nodes = self.manager.admin().nodes().expect("a list");
        let there = nodes.iter().filter(|node| node.connected);
        there.map(|node| node.devices.len()).sum()
    }

    /// Starts a daemon with the nodes' certificate whose devices everyone may use.
    pub fn plain(&self, settings: &str) -> Daemon {
        let path = |file: &str| self.manager.certificates.path(file).display().to_string();
        let arguments = [
            "--tls-certificate".to_owned(),
            path("node.pem"),
            "--tls-key".to_owned(),
            path("node.key"),
        ];
        Daemon::start_flagged(&self.any_port(), settings, &arguments)
    }

    fn any_port(&self) -> String {
        SocketAddr::new(self.manager.address().ip(), 0).to_string()
    }

    /// Returns the states of all leases.
    pub fn states(&self) -> Vec<LeaseState> {
        self.manager.admin().states().expect("a list")
    }

    /// Waits until no lease is left. Until then each may only wait for its node, and must not lapse.
    pub fn sees_all_given_back(&self) {
        eventually("the end of all leases", || {
            let states = self.states();
            let ends = |state: &LeaseState| *state == LeaseState::Ending;
            assert!(states.iter().all(ends), "{states:?}");
            states.is_empty().then_some(())
        });
    }

    /// Waits until the leases have these states.
    pub fn see(&self, states: &[LeaseState]) {
        let is_so = |admin: &Caller| Ok(admin.states()? == states);
        let seen = self.manager.see(&format!("{states:?}"), is_so);
        seen.expect("the leases reach these states");
    }

    /// Revokes the only lease as an administrator.
    pub fn revoke(&self) {
        let admin = self.manager.admin();
        let leases = admin.leases().expect("a list");
        assert_eq!(leases.len(), 1);
        admin.revoke(&leases[0], "for the test").expect("revoked");
    }

    /// Returns the variables that make the library send this request, as the user.
    pub fn variables(&self, request: &str) -> Vec<(&'static str, String)> {
        let ca = self.manager.certificates.ca();
        let nothing = self.manager.certificates.private("servers.toml", b"");
        let nothing = nothing.expect("written");
        vec![
            ("CAUSEWAY_CONFIG", nothing.display().to_string()),
            ("CAUSEWAY_MANAGER", self.manager.address().to_string()),
            ("CAUSEWAY_REQUEST", request.to_owned()),
            ("CAUSEWAY_CA", ca.display().to_string()),
            ("CAUSEWAY_TOKEN_FILE", self.token.display().to_string()),
        ]
    }

    /// Makes this process's library send this request, next to these servers. Must precede every other call of the
    /// library.
    pub fn configure(&self, servers: &str, request: &str) {
        servers::configure(servers);
        for (name, value) in self.variables(request) {
            // SAFETY: the library has not been asked anything yet, so nobody reads the environment.
            unsafe { std::env::set_var(name, value) };
        }
    }

    /// Starts a program with this request.
    pub fn program(&self, request: &str) -> Program {
        self.program_with(request, &[])
    }

    /// Starts a program that has used its device. On a busy machine a program may find no device within its second,
    /// and asks again.
    pub fn using(&self, request: &str) -> Program {
        self.using_with(request, &[])
    }

    /// Starts such a program with more variables.
    pub fn using_with(&self, request: &str, more: &[(&str, &str)]) -> Program {
        let mut program = self.program_with(request, more);
        eventually("a device", || {
            (program.code("use") == CL_SUCCESS).then_some(())
        });
        program
    }

    /// Starts a program with more variables.
    pub fn program_with(&self, request: &str, more: &[(&str, &str)]) -> Program {
        Program::start(Command::new(this()), &self.variables(request), more)
    }

    /// Starts a program by a command, which may run it elsewhere, with this `servers.toml`.
    pub fn program_by(&self, command: Command, request: &str, settings: &str) -> Program {
        let certificates = &self.manager.certificates;
        let file = certificates.private("own-servers.toml", settings.as_bytes());
        let file = file.expect("written").display().to_string();
        let more = [("CAUSEWAY_CONFIG", file.as_str())];
        Program::start(command, &self.variables(request), &more)
    }
}

/// Whether the process has a thread of this name.
pub fn has_thread(name: &str) -> bool {
    thread("self", name).is_some()
}

/// The folder of a process's thread of this name.
fn thread(process: &str, name: &str) -> Option<PathBuf> {
    let tasks = std::fs::read_dir(format!("/proc/{process}/task")).expect("a list");
    let mut folders = tasks.flatten().map(|task| task.path());
    folders.find(|folder| {
        std::fs::read_to_string(folder.join("comm")).is_ok_and(|comm| comm.trim() == name)
    })
}

// ---- programs ------------------------------------------------------------------

/// A program that executes orders. Killed on drop.
pub struct Program {
    child: Child,
    orders: Option<ChildStdin>,
    answers: Receiver<String>,
    /// The library's output on standard error.
    warned: Arc<Mutex<String>>,
}

/// Returns the path of this program.
pub fn this() -> PathBuf {
    std::env::current_exe().expect("a path")
}

impl Program {
    fn start(
        mut command: Command,
        variables: &[(&'static str, String)],
        more: &[(&str, &str)],
    ) -> Program {
        let mut child = run_this_test(&mut command)
            .env(PLAYED, "1")
            .env_remove("CAUSEWAY_SERVERS")
            .envs(variables.iter().map(|(name, value)| (name, value)))
            .envs(more.iter().copied())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("the program starts");
        let warned = Arc::new(Mutex::new(String::new()));
        let warnings = BufReader::new(child.stderr.take().expect("the program's standard error"));
        std::thread::spawn({
            let warned = Arc::clone(&warned);
            move || {
                for line in warnings.lines().map_while(Result::ok) {
                    eprintln!("program: {line}");
                    *warned.lock().expect("no panic") += &line;
                }
            }
        });
        let (send, answers) = mpsc::channel();
        let output = BufReader::new(child.stdout.take().expect("the program's output"));
        std::thread::spawn(move || {
            for line in output.lines().map_while(Result::ok) {
                if let Some((_, answer)) = line.split_once("> ") {
                    let _ = send.send(answer.to_owned());
                }
            }
        });
        Program {
            orders: child.stdin.take(),
            child,
            answers,
            warned,
        }
    }

    /// Waits until its context's callback got this text, which comes from a thread of the library.
    pub fn hears(&mut self, what: &str) {
        eventually(what, || self.ask("told").contains(what).then_some(()));
    }

    /// Waits until the library has printed this text.
    pub fn warns(&self, what: &str) {
        eventually(what, || self.warned().contains(what).then_some(()));
    }

    /// Returns what the library has printed so far.
    pub fn warned(&self) -> String {
        self.warned.lock().expect("no panic").clone()
    }

    /// Starts a program that uses its device once more at its end.
    pub fn start_late(cluster: &Cluster, request: &str) -> Program {
        cluster.program_with(request, &[(LATE, "round")])
    }

    /// Gives an order, without waiting.
    pub fn tell(&mut self, order: &str) {
        let orders = self.orders.as_mut().expect("the program has not ended");
        writeln!(orders, "{order}").expect("the program reads orders");
    }

    /// Returns the next answer.
    pub fn answer(&mut self) -> String {
        let answer = self.answers.recv_timeout(ANSWER);
        answer.expect("an answer in time")
    }

    /// Gives an order. Returns the answer.
    pub fn ask(&mut self, order: &str) -> String {
        self.tell(order);
        self.answer()
    }

    /// Gives an order that is answered with a code. Returns the code.
    pub fn code(&mut self, order: &str) -> cl_int {
        self.ask(order).parse().expect("a code")
    }

    /// Stops the thread that writes what nobody flushes, until the program has ended. The others go on.
    pub fn stop_flusher(&self) {
        let folder = thread(&self.child.id().to_string(), "cw-flush").expect("a session");
        let state = || std::fs::read_to_string(folder.join("status")).expect("its state");
        // A flusher that ticks wakes up every millisecond. One that sleeps holds no lock.
        eventually("the flusher sleeps", || {
            let before = state();
            std::thread::sleep(Duration::from_millis(50));
            (before.contains("State:\tS") && state() == before).then_some(())
        });
        let number = folder
            .file_name()
            .and_then(|name| name.to_str()?.parse().ok());
        let number: libc::pid_t = number.expect("a thread's number");
        let (stopped, is_stopped) = mpsc::channel();
        // No signal reaches the library's threads, so the flusher is traced. A thread of its own waits for the flusher's
        // end, because the program's end waits for that.
        std::thread::spawn(move || {
            // SAFETY: these requests use no memory.
            let trace = |request| unsafe { libc::ptrace(request, number, 0usize, 0usize) };
            let requests = [libc::PTRACE_SEIZE, libc::PTRACE_INTERRUPT].map(trace);
            let mut status = 0;
            // SAFETY: `status` is a live local.
            let mut wait = || unsafe { libc::waitpid(number, &raw mut status, libc::__WALL) };
            let is_stopped = requests == [0, 0] && wait() == number;
            let _ = stopped.send(is_stopped);
            wait();
        });
        assert!(
            is_stopped.recv().expect("an answer"),
            "a child cannot be traced"
        );
    }

    pub fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).expect("the program is there");
    }

    /// Orders the program to end. Returns its further answers and its exit status.
    pub fn end_with(mut self) -> (Vec<String>, ExitStatus) {
        drop(self.orders.take());
        let mut said = Vec::new();
        // The channel ends with the program's output.
        while let Ok(answer) = self.answers.recv_timeout(ANSWER) {
            said.push(answer);
        }
        (said, self.child.wait().expect("the program's status"))
    }

    /// Orders the program to end, which must succeed without further answers.
    pub fn end(self) {
        let (said, status) = self.end_with();
        assert!(status.success() && said.is_empty(), "{status}: {said:?}");
    }

    /// Kills the program, as a crash would.
    pub fn kill(mut self) {
        self.signal(Signal::KILL);
        let status = self.child.wait().expect("the program's status");
        assert_eq!(status.signal(), Some(9));
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// In a [`Program`], executes orders and returns true. Each test must call this first.
pub fn played() -> bool {
    if std::env::var_os(PLAYED).is_none() {
        return false;
    }
    if std::env::var_os(LATE).is_some() {
        // SAFETY: a function of this program, which is never unloaded.
        unsafe { libc::atexit(obey_late) };
    }
    for order in std::io::stdin().lines().map_while(Result::ok) {
        let answer = obey(&order);
        println!("\n> {answer}");
    }
    IS_ENDING.store(true, Ordering::SeqCst);
    true
}

extern "C" fn obey_late() {
    let order = std::env::var(LATE).expect("an order");
    println!("\n> late {}", obey(&order));
}

/// The addresses of the program's context and queue.
static USED: OnceLock<(usize, usize)> = OnceLock::new();
/// The addresses of a buffer, and of a kernel that adds 1 to each of its numbers.
static KEPT: OnceLock<(usize, usize)> = OnceLock::new();
/// Whether the program is ending.
static IS_ENDING: AtomicBool = AtomicBool::new(false);
static TOLD: Mutex<Vec<String>> = Mutex::new(Vec::new());

unsafe extern "C" fn told(text: *const c_char, _: *const c_void, _: usize, _: *mut c_void) {
    // SAFETY: the library passes a C string.
    let text = unsafe { std::ffi::CStr::from_ptr(text) };
    if IS_ENDING.load(Ordering::SeqCst) {
        let line = format!("\n> told at the end: {}\n", text.to_string_lossy());
        // Writes to the descriptor, and not through an object that the program may have dropped.
        let _ = rustix::io::write(rustix::stdio::stdout(), line.as_bytes());
        return;
    }
    let mut all = TOLD.lock().expect("no panic");
    all.push(text.to_string_lossy().into_owned());
}

fn used() -> (cl_context, cl_command_queue) {
    let (context, queue) = *USED.get().expect("something to work with");
    let context = std::ptr::with_exposed_provenance_mut(context);
    (context, std::ptr::with_exposed_provenance_mut(queue))
}

/// How many numbers a kept buffer has. They take several pieces of a parked session's file.
const NUMBERS: usize = 1 << 20;
/// How many of them the kernel adds to, which takes little time in the fake driver.
const ADDED: usize = 4096;
const ADD: &str = "kernel void fake_add_u32(global uint *target, uint value) {}";

fn numbers(context: cl_context, queue: cl_command_queue) -> (usize, usize) {
    let bytes = NUMBERS * 4;
    let first: Vec<u32> = (0..NUMBERS as u32).collect();
    let buffer = make!(clCreateBuffer(
        context,
        CL_MEM_READ_WRITE,
        bytes,
        null_mut()
    ))
    .expect("a buffer");
    ok!(clEnqueueWriteBuffer(
        queue,
        buffer,
        CL_TRUE,
        0,
        bytes,
        first.as_ptr().cast(),
        0,
        null(),
        null_mut()
    ));
    let program = program_in(context, ADD);
    assert_eq!(build(program, ""), CL_SUCCESS);
    let kernel = kernel(program, "fake_add_u32");
    assert_eq!(set(kernel, 0, &buffer), CL_SUCCESS);
    assert_eq!(set(kernel, 1, &1u32), CL_SUCCESS);
    (buffer.expose_provenance(), kernel.expose_provenance())
}

fn add() -> cl_int {
    let (_, queue) = used();
    let (_, kernel) = *KEPT.get().expect("a kernel");
    let code = launch(queue, std::ptr::with_exposed_provenance_mut(kernel), ADDED);
    match code {
        CL_SUCCESS => code!(clFinish(queue)),
        code => code,
    }
}

fn sum() -> String {
    let (_, queue) = used();
    let (buffer, _) = *KEPT.get().expect("a buffer");
    let mut now = vec![0u32; NUMBERS];
    ok!(clEnqueueReadBuffer(
        queue,
        std::ptr::with_exposed_provenance_mut(buffer),
        CL_TRUE,
        0,
        NUMBERS * 4,
        now.as_mut_ptr().cast(),
        0,
        null(),
        null_mut()
    ));
    let added = now[0];
    let expected = |at: u32| {
        if (at as usize) < ADDED {
            at + added
        } else {
            at
        }
    };
    let is_so = (0..).zip(&now).all(|(at, of)| *of == expected(at));
    match is_so {
        true => format!("{added} added"),
        false => "the numbers are wrong".to_owned(),
    }
}

fn obey(order: &str) -> String {
    match order {
        "devices" => names().join(" "),
        // Makes the first context and a queue, and keeps them.
        "use" => {
            let Some(device) = devices().first().copied() else {
                return CL_DEVICE_NOT_FOUND.to_string();
            };
            let context = make!(clCreateContext(
                null(),
                1,
                &raw const device,
                Some(told),
                null_mut()
            ));
            let context = match context {
                Ok(context) => context,
                Err(code) => return code.to_string(),
            };
            let queue = make!(clCreateCommandQueue(context, device, 0)).expect("a queue");
            let _ = USED.set((context.expose_provenance(), queue.expose_provenance()));
            round_trip(context, queue).to_string()
        }
        "round" => {
            let (context, queue) = used();
            round_trip(context, queue).to_string()
        }
        // Makes a buffer with numbers, and a kernel that adds to them, and keeps both.
        "keep" => {
            let (context, queue) = used();
            let _ = KEPT.set(numbers(context, queue));
            "kept".to_owned()
        }
        "add" => add().to_string(),
        // Adds again and again, while an event of the last launch is waited for.
        "many" => {
            let codes = (0..200).map(|_| {
                std::thread::sleep(Duration::from_millis(10));
                add()
            });
            codes.filter(|code| *code == CL_SUCCESS).count().to_string()
        }
        // Reads the numbers, and says what was added to each.
        "sum" => sum(),
        "pipe" => {
            let (context, _) = used();
            let flags = CL_MEM_READ_WRITE | CL_MEM_HOST_NO_ACCESS;
            let pipe = make!(clCreatePipe(context, flags, 4, 16, null()));
            pipe.map_or_else(|code| code, |_| CL_SUCCESS).to_string()
        }
        // Enqueues a barrier that nobody flushes or waits for.
        "barrier" => {
            let (_, queue) = used();
            code!(clEnqueueBarrierWithWaitList(queue, 0, null(), null_mut())).to_string()
        }
        // Makes another context.
        "again" => match devices().first() {
            Some(device) => try_out(*device).to_string(),
            None => CL_DEVICE_NOT_FOUND.to_string(),
        },
        // Makes another context on each device.
        "each" => {
            let codes = devices()
                .into_iter()
                .map(|device| try_out(device).to_string());
            codes.collect::<Vec<_>>().join(" ")
        }
        // Waits for an event that never ends.
        "wait" => {
            let (context, queue) = used();
            let gate = make!(clCreateUserEvent(context)).expect("a user event");
            let mut held = null_mut();
            ok!(clEnqueueMarkerWithWaitList(
                queue,
                1,
                &raw const gate,
                &raw mut held
            ));
            ok!(clFlush(queue));
            println!("\n> waits");
            code!(clWaitForEvents(1, &raw const held)).to_string()
        }
        "disconnect" => disconnect(server_of(devices()[0])).to_string(),
        "fork" => {
            // SAFETY: the child only ends, in the way that calls what was registered for the end.
            let status = unsafe {
                let child = libc::fork();
                if child == 0 {
                    libc::exit(0);
                }
                let mut status = -1;
                assert_eq!(libc::waitpid(child, &raw mut status, 0), child);
                status
            };
            status.to_string()
        }
        "told" => TOLD.lock().expect("no panic").join(" | "),
        other => panic!("unknown order {other:?}"),
    }
}
