//! What the tests of leases share: a cluster of a device manager and managed daemons, all with TLS; and programs
//! that get their devices there.
//!
//! A [`Program`] is the test program again, which does what it is told, line by line ([`played`]).

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
use rustix::process::{Pid, Signal, kill_process};

use crate::frames::own_process::run_this_test;
use crate::frames::servers;
use crate::frames::servers::*;

/// No answer of a program takes longer.
const ANSWER: Duration = Duration::from_secs(90);
/// Set in a program that is to play.
const PLAYED: &str = "CAUSEWAY_TEST_PLAYED";
/// A program uses its device once more when it ends, by what it has registered for that before all else.
const LATE: &str = "CAUSEWAY_TEST_LATE";

/// A manager, and a user of it.
pub struct Cluster {
    pub manager: Manager,
    pub user: Caller,
    token: PathBuf,
}

impl Cluster {
    /// With this in the manager's file.
    pub fn start(settings: &str) -> Cluster {
        Cluster::start_at(Ipv4Addr::LOCALHOST, settings)
    }

    /// The same at another address, of the network that the calling thread is in.
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

    /// A managed daemon over the fake driver, once its devices are known.
    pub fn node(&self, settings: &str) -> Daemon {
        let before = self.devices();
        let arguments = self.manager.node_arguments();
        let daemon = Daemon::start_flagged(&self.any_port(), settings, &arguments);
        let more = settings.matches("[[device]]").count().max(1);
        self.manager.see_devices(before + more).expect("they come");
        daemon
    }

    /// Starts a node again that was killed, and waits until its one device is known.
    pub fn start_again(&self, daemon: &mut Daemon) {
        daemon.start_again(&self.manager.node_arguments());
        self.manager.see_devices(1).expect("it comes");
    }

    fn devices(&self) -> usize {
        let nodes = self.manager.admin().nodes().expect("a list");
        let there = nodes.iter().filter(|node| node.connected);
        there.map(|node| node.devices.len()).sum()
    }

    /// A daemon whose devices anybody may use, with the nodes' certificate.
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

    /// How the leases stand that there are.
    pub fn states(&self) -> Vec<LeaseState> {
        self.manager.admin().states().expect("a list")
    }

    /// Waits until they stand so.
    pub fn see(&self, states: &[LeaseState]) {
        let is_so = |admin: &Caller| Ok(admin.states()? == states);
        let seen = self.manager.see(&format!("{states:?}"), is_so);
        seen.expect("it comes to that");
    }

    /// An administrator ends the only lease there is.
    pub fn revoke(&self) {
        let admin = self.manager.admin();
        let leases = admin.leases().expect("a list");
        assert_eq!(leases.len(), 1);
        admin.revoke(&leases[0], "for the test").expect("revoked");
    }

    /// What the library has to be told to ask for this, as its user.
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

    /// Has the library of this process ask for it, beside these servers. To be called before it is asked anything.
    pub fn configure(&self, servers: &str, request: &str) {
        servers::configure(servers);
        for (name, value) in self.variables(request) {
            // SAFETY: the library has not been asked anything yet, so nobody reads the environment.
            unsafe { std::env::set_var(name, value) };
        }
    }

    /// A program that asks for it.
    pub fn program(&self, request: &str) -> Program {
        self.program_with(request, &[])
    }

    /// One that has it, and has used it. On a busy machine a program finds nothing within its second, and asks again.
    pub fn using(&self, request: &str) -> Program {
        self.using_with(request, &[])
    }

    /// The same, with more variables.
    pub fn using_with(&self, request: &str, more: &[(&str, &str)]) -> Program {
        let mut program = self.program_with(request, more);
        eventually("a device", || {
            (program.code("use") == CL_SUCCESS).then_some(())
        });
        program
    }

    /// A program with more variables.
    pub fn program_with(&self, request: &str, more: &[(&str, &str)]) -> Program {
        Program::start(Command::new(this()), &self.variables(request), more)
    }

    /// The same by a command for this program, which runs it elsewhere.
    pub fn program_by(&self, command: Command, request: &str) -> Program {
        Program::start(command, &self.variables(request), &[])
    }
}

/// Whether the process has a thread of this name.
pub fn has_thread(name: &str) -> bool {
    let tasks = std::fs::read_dir("/proc/self/task").expect("a list");
    tasks.flatten().any(|task| {
        std::fs::read_to_string(task.path().join("comm")).is_ok_and(|comm| comm.trim() == name)
    })
}

// ---- programs ------------------------------------------------------------------

/// A program that does what it is told. Killed when dropped.
pub struct Program {
    child: Child,
    orders: Option<ChildStdin>,
    answers: Receiver<String>,
    /// What the library has told its user.
    warned: Arc<Mutex<String>>,
}

/// This program, to be run once more.
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
            .expect("it starts");
        let warned = Arc::new(Mutex::new(String::new()));
        let warnings = BufReader::new(child.stderr.take().expect("its errors"));
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
        let output = BufReader::new(child.stdout.take().expect("its output"));
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

    /// Waits until its context has been told so, which a thread of the library's does.
    pub fn hears(&mut self, what: &str) {
        eventually(what, || self.ask("told").contains(what).then_some(()));
    }

    /// Waits until its user has been told so.
    pub fn warns(&self, what: &str) {
        eventually(what, || {
            let warned = self.warned.lock().expect("no panic");
            warned.contains(what).then_some(())
        });
    }

    /// The same that uses its device once more at its end.
    pub fn start_late(cluster: &Cluster, request: &str) -> Program {
        cluster.program_with(request, &[(LATE, "1")])
    }

    /// Has it begin something.
    pub fn tell(&mut self, order: &str) {
        let orders = self.orders.as_mut().expect("it has not ended");
        writeln!(orders, "{order}").expect("it hears");
    }

    /// What it says next.
    pub fn answer(&mut self) -> String {
        let answer = self.answers.recv_timeout(ANSWER);
        answer.expect("an answer in time")
    }

    /// Has it do something, and say what came of it.
    pub fn ask(&mut self, order: &str) -> String {
        self.tell(order);
        self.answer()
    }

    /// The same for what answers with a code.
    pub fn code(&mut self, order: &str) -> cl_int {
        self.ask(order).parse().expect("a code")
    }

    pub fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).expect("it is there");
    }

    /// Has it end; what it says meanwhile, and how it did.
    pub fn end_with(mut self) -> (Vec<String>, ExitStatus) {
        drop(self.orders.take());
        let mut said = Vec::new();
        // The channel ends with its output.
        while let Ok(answer) = self.answers.recv_timeout(ANSWER) {
            said.push(answer);
        }
        (said, self.child.wait().expect("its status"))
    }

    /// Has it end well, without another word.
    pub fn end(self) {
        let (said, status) = self.end_with();
        assert!(status.success() && said.is_empty(), "{status}: {said:?}");
    }

    /// As by a crash.
    pub fn kill(mut self) {
        self.signal(Signal::KILL);
        let status = self.child.wait().expect("its status");
        assert_eq!(status.signal(), Some(9));
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// In a [`Program`]: does what it is told, then true. To be asked first by each test.
pub fn played() -> bool {
    if std::env::var_os(PLAYED).is_none() {
        return false;
    }
    if std::env::var_os(LATE).is_some() {
        // SAFETY: a function of this program, which is never unloaded.
        unsafe { libc::atexit(use_once_more) };
    }
    for order in std::io::stdin().lines().map_while(Result::ok) {
        let answer = obey(&order);
        println!("\n> {answer}");
    }
    IS_ENDING.store(true, Ordering::SeqCst);
    true
}

extern "C" fn use_once_more() {
    println!("\n> late {}", obey("round"));
}

/// What the program works with: addresses of a context and a queue.
static USED: OnceLock<(usize, usize)> = OnceLock::new();
/// What its context was told.
static IS_ENDING: AtomicBool = AtomicBool::new(false);
static TOLD: Mutex<Vec<String>> = Mutex::new(Vec::new());

unsafe extern "C" fn told(text: *const c_char, _: *const c_void, _: usize, _: *mut c_void) {
    // SAFETY: the library passes a C string.
    let text = unsafe { std::ffi::CStr::from_ptr(text) };
    if IS_ENDING.load(Ordering::SeqCst) {
        let line = format!("\n> told at the end: {}\n", text.to_string_lossy());
        // Not through what the program may have given up.
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

fn obey(order: &str) -> String {
    match order {
        "devices" => names().join(" "),
        // Its first context, and a queue, to be kept.
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
        // Another context.
        "again" => match devices().first() {
            Some(device) => try_out(*device).to_string(),
            None => CL_DEVICE_NOT_FOUND.to_string(),
        },
        // Another on each of its devices.
        "each" => {
            let codes = devices()
                .into_iter()
                .map(|device| try_out(device).to_string());
            codes.collect::<Vec<_>>().join(" ")
        }
        // For what never happens.
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
        other => panic!("what is {other:?}"),
    }
}
