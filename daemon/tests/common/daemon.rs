//! A daemon of a test's own, and the processes that serve its sessions.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::{Child, Command as Process, Stdio};

use causeway_proto::control::node_client::NodeClient;
use causeway_proto::control::{GetInventoryRequest, Inventory};
use causeway_proto::version::WireVersion;

use super::{LIMIT, Session};

const LOOPBACK: &str = "127.0.0.1:0";

/// A daemon on a free loopback port; ends with its value.
pub struct Daemon {
    pub(super) child: Child,
    pub address: String,
    /// Where `/metrics` is, if arguments ask for it.
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

    /// With the fake driver alone, told by `settings` what to do.
    pub fn fake(settings: &str) -> Daemon {
        Daemon::fake_on(LOOPBACK, settings)
    }

    /// The same at another address than other daemons.
    pub fn fake_on(listen: &str, settings: &str) -> Daemon {
        Daemon::run_fake(listen, settings, &[], &[])
    }

    /// The same with arguments and environment.
    pub fn fake_with(settings: &str, arguments: &[&str], environment: &[(&str, &str)]) -> Daemon {
        Daemon::run_fake(LOOPBACK, settings, arguments, environment)
    }

    fn run_fake(listen: &str, settings: &str, arguments: &[&str], more: &[(&str, &str)]) -> Daemon {
        Daemon::with_fake(settings, more, |environment| {
            Daemon::run(listen, arguments, environment)
        })
    }

    /// By a command that becomes the daemon, on the fake driver alone.
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
        // Cargo puts the driver beside the test programs.
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
            // What a test builds is no other test's affair, nor the user's.
            .env("CAUSEWAYD_BUILD_CACHE_SIZE", "0")
            // Where the fake driver's settings and logs are.
            .env("CAUSEWAYD_SANDBOX_WRITE", std::env::temp_dir());
        Daemon::start_by(program, listen, arguments, environment)
    }

    /// By a command that becomes the daemon, with nothing that its command does not say.
    pub fn by(program: Process, arguments: &[&str], environment: &[(&str, &str)]) -> Daemon {
        Daemon::start_by(program, LOOPBACK, arguments, environment)
    }

    fn start_by(
        mut program: Process,
        listen: &str,
        arguments: &[&str],
        environment: &[(&str, &str)],
    ) -> Daemon {
        let mut child = program
            .args(["--listen", listen, "--spare-workers", "0"])
            .args(arguments)
            .envs(environment.iter().copied())
            .stdout(Stdio::piped())
            .spawn()
            .expect("causewayd starts");
        let stdout = child.stdout.take().expect("its standard output");
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

    /// Its process.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    pub fn inventory(&self) -> Inventory {
        self.inventory_for(&[])
    }

    /// As who shows this credential sees it.
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

    /// A count that `/metrics` tells.
    pub fn count(&self, name: &str) -> u64 {
        let mut socket = TcpStream::connect(self.watched_at.as_ref().unwrap()).unwrap();
        socket.set_read_timeout(Some(LIMIT)).unwrap();
        socket.write_all(b"GET /metrics HTTP/1.1\r\n\r\n").unwrap();
        let mut answer = String::new();
        socket.read_to_string(&mut answer).unwrap();
        let mut lines = answer.lines();
        let value = lines.find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
        value
            .unwrap_or_else(|| panic!("{name}: {answer}"))
            .parse()
            .unwrap()
    }

    pub fn session(&self) -> Session {
        Session::open(self)
    }

    /// Tells it to end, and waits for that; whether it ended well.
    pub fn terminate(mut self) -> bool {
        let pid = rustix::process::Pid::from_child(&self.child);
        rustix::process::kill_process(pid, rustix::process::Signal::TERM).unwrap();
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
    /// The process that serves this session: the daemon's child that is a worker.
    pub fn worker(&self) -> u32 {
        let workers = self.workers();
        assert_eq!(workers.len(), 1, "one session, one worker: {workers:?}");
        workers[0]
    }

    /// The processes that serve its daemon's sessions.
    pub fn workers(&self) -> Vec<u32> {
        let mut children = children_of(self.daemon);
        // Others list devices.
        children.retain(|pid| {
            let line = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
            String::from_utf8_lossy(&line).contains("--internal-worker")
        });
        children
    }
}

fn children_of(parent: u32) -> Vec<u32> {
    let stat = |pid: u32| std::fs::read_to_string(format!("/proc/{pid}/stat")).ok();
    std::fs::read_dir("/proc")
        .unwrap()
        .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse::<u32>().ok())
        .filter(|pid| {
            // After the name in brackets: state, parent.
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
