//! A daemon of one test, and the processes that serve its sessions.

use std::fmt::Debug;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::{Child, Command as Process, Stdio};
use std::str::FromStr;

use causeway_proto::control::node_client::NodeClient;
use causeway_proto::control::{GetInventoryRequest, Inventory};
use causeway_proto::version::WireVersion;

use super::{LIMIT, Session};

const LOOPBACK: &str = "127.0.0.1:0";

/// A daemon on a free loopback port, killed on drop.
pub struct Daemon {
    pub(super) child: Child,
    pub address: String,
    /// The address of `/metrics`, if the arguments turn it on.
    pub watched_at: Option<String>,
    vendors: Option<tempfile::TempDir>,
}

impl Daemon {
    pub fn start() -> Daemon {
        Daemon::with(&[])
    }

    pub fn with(environment: &[(&str, &str)]) -> Daemon {
        Daemon::run(LOOPBACK, &[], environment)
    }

    pub fn with_arguments(arguments: &[&str]) -> Daemon {
        Daemon::with_both(arguments, &[])
    }

    pub fn with_both(arguments: &[&str], environment: &[(&str, &str)]) -> Daemon {
        Daemon::run(LOOPBACK, arguments, environment)
    }

    /// Starts a daemon with the fake driver alone and these settings.
    pub fn fake(settings: &str) -> Daemon {
        Daemon::fake_on(LOOPBACK, settings)
    }

    /// Starts such a daemon at another address.
    pub fn fake_on(listen: &str, settings: &str) -> Daemon {
        Daemon::run_fake(listen, settings, &[], &[])
    }

    /// Starts such a daemon with arguments and environment.
    pub fn fake_with(settings: &str, arguments: &[&str], environment: &[(&str, &str)]) -> Daemon {
        Daemon::run_fake(LOOPBACK, settings, arguments, environment)
    }

    /// Starts such a daemon at an address, with arguments.
    pub fn fake_at(listen: &str, settings: &str, arguments: &[&str]) -> Daemon {
        Daemon::run_fake(listen, settings, arguments, &[])
    }

    fn run_fake(listen: &str, settings: &str, arguments: &[&str], more: &[(&str, &str)]) -> Daemon {
        Daemon::with_fake(settings, more, |environment| {
            Daemon::run(listen, arguments, environment)
        })
    }

    /// Starts a daemon with the fake driver alone by a command that becomes the daemon.
    pub fn by_fake(
        program: Process,
        settings: &str,
        arguments: &[&str],
        more: &[(&str, &str)],
    ) -> Daemon {
        Daemon::with_fake(settings, more, |environment| {
            Daemon::by(program, arguments, environment)
        })
    }

    fn with_fake(
        settings: &str,
        more: &[(&str, &str)],
        run: impl FnOnce(&[(&str, &str)]) -> Daemon,
    ) -> Daemon {
        // Cargo puts the driver next to the test programs.
        let library = std::env::current_exe()
            .unwrap()
            .with_file_name("libfake_opencl.so");
        assert!(library.exists(), "{library:?}");
        let vendors = tempfile::tempdir().unwrap();
        std::fs::write(vendors.path().join("fake.icd"), library.to_str().unwrap()).unwrap();
        let mut environment = vec![
            ("OCL_ICD_VENDORS", vendors.path().to_str().unwrap()),
            ("FAKE_OPENCL_CONFIG", settings),
        ];
        environment.extend(more);
        let mut daemon = run(&environment);
        daemon.vendors = Some(vendors);
        daemon
    }

    fn run(listen: &str, arguments: &[&str], environment: &[(&str, &str)]) -> Daemon {
        let mut program = Process::new(env!("CARGO_BIN_EXE_causewayd"));
        program
            // Builds of a test must not affect other tests or the user.
            .env("CAUSEWAYD_BUILD_CACHE_SIZE", "0")
            // The folder of the fake driver's settings and logs.
            .env("CAUSEWAYD_SANDBOX_WRITE", std::env::temp_dir());
        Daemon::start_by(program, listen, arguments, environment)
    }

    /// Starts a daemon by a command that becomes it, without any addition to the command.
    pub fn by(program: Process, arguments: &[&str], environment: &[(&str, &str)]) -> Daemon {
        Daemon::start_by(program, LOOPBACK, arguments, environment)
    }

    fn start_by(
        mut program: Process,
        listen: &str,
        arguments: &[&str],
        environment: &[(&str, &str)],
    ) -> Daemon {
        if !arguments.contains(&"--spare-workers") {
            program.args(["--spare-workers", "0"]);
        }
        let mut child = program
            .args(["--listen", listen])
            .args(arguments)
            .envs(environment.iter().copied())
            .stdout(Stdio::piped())
            .spawn()
            .expect("causewayd starts");
        let stdout = child.stdout.take().expect("the daemon's standard output");
        let mut lines = BufReader::new(stdout).lines();
        let mut next = |prefix| {
            let line = lines.next().expect("a line").expect("of text");
            line.strip_prefix(prefix).expect("an address").to_owned()
        };
        Daemon {
            child,
            address: next("listening on "),
            watched_at: arguments
                .contains(&"--metrics")
                .then(|| next("metrics on ")),
            vendors: None,
        }
    }

    /// Changes the registration of the fake driver, so that the daemon's devices may have changed.
    pub fn change_driver(&self) {
        let vendors = self.vendors.as_ref().expect("the fake driver");
        let icd = vendors.path().join("fake.icd");
        let text = std::fs::read_to_string(&icd).unwrap() + "\n# changed\n";
        std::fs::write(icd, text).unwrap();
    }

    /// The daemon's process.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// The workers, spare ones too.
    pub fn workers(&self) -> Vec<u32> {
        workers_of(self.child.id())
    }

    pub fn inventory(&self) -> Inventory {
        self.inventory_for(&[])
    }

    /// Returns the inventory that a caller with this credential sees.
    pub fn inventory_for(&self, credential: &[u8]) -> Inventory {
        block_on(async {
            let mut node = NodeClient::connect(format!("http://{}", self.address))
                .await
                .unwrap();
            let request = GetInventoryRequest {
                wire_version: WireVersion::CURRENT.number().into(),
                credential: credential.to_vec().into(),
            };
            node.get_inventory(request).await.unwrap().into_inner()
        })
    }

    /// Returns the answer of `/metrics`.
    pub fn metrics(&self) -> String {
        let mut socket = TcpStream::connect(self.watched_at.as_ref().unwrap()).unwrap();
        socket.set_read_timeout(Some(LIMIT)).unwrap();
        socket.write_all(b"GET /metrics HTTP/1.1\r\n\r\n").unwrap();
        let mut answer = String::new();
        socket.read_to_string(&mut answer).unwrap();
        answer
    }

    fn sample<T: FromStr<Err: Debug>>(&self, name: &str) -> T {
        let answer = self.metrics();
        let mut lines = answer.lines();
        let value = lines.find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
        value
            .unwrap_or_else(|| panic!("{name}: {answer}"))
            .parse()
            .unwrap()
    }

    /// Returns a count of `/metrics`.
    pub fn count(&self, name: &str) -> u64 {
        self.sample(name)
    }

    /// Returns a time of `/metrics`, in seconds.
    pub fn seconds(&self, name: &str) -> f64 {
        self.sample(name)
    }

    pub fn session(&self) -> Session {
        Session::open(self)
    }

    /// Tells the daemon to end, and waits. Returns whether it succeeded.
    pub fn terminate(self) -> bool {
        self.begin_to_end();
        self.has_ended_well()
    }

    /// Tells the daemon to end.
    pub fn begin_to_end(&self) {
        let pid = rustix::process::Pid::from_child(&self.child);
        rustix::process::kill_process(pid, rustix::process::Signal::TERM).unwrap();
    }

    /// Waits until the daemon has ended. Returns whether it succeeded.
    pub fn has_ended_well(mut self) -> bool {
        self.child.wait().unwrap().success()
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Session {
    /// The worker of this session: the daemon's child that is a worker.
    pub fn worker(&self) -> u32 {
        let workers = self.workers();
        assert_eq!(workers.len(), 1, "one session, one worker: {workers:?}");
        workers[0]
    }

    /// The workers of the daemon's sessions.
    pub fn workers(&self) -> Vec<u32> {
        workers_of(self.daemon)
    }
}

/// The workers of a daemon.
fn workers_of(daemon: u32) -> Vec<u32> {
    let mut children = children_of(daemon);
    // Other children list devices.
    children.retain(|pid| {
        let line = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        String::from_utf8_lossy(&line).contains("--internal-worker")
    });
    children
}

fn children_of(parent: u32) -> Vec<u32> {
    let stat = |pid: u32| std::fs::read_to_string(format!("/proc/{pid}/stat")).ok();
    std::fs::read_dir("/proc")
        .unwrap()
        .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse::<u32>().ok())
        .filter(|pid| {
            // The state and the parent follow the name in brackets.
            let parent_of = stat(*pid).and_then(|s| {
                let rest = s.rsplit_once(')')?.1.to_owned();
                rest.split_whitespace().nth(1)?.parse::<u32>().ok()
            });
            parent_of == Some(parent)
        })
        .collect()
}

pub fn block_on<T>(work: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap()
        .block_on(work)
}
