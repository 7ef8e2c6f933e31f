//! A daemon of a test's own, and the processes that serve its sessions.

use std::io::{BufRead, BufReader};
use std::process::{Child, Command as Process, Stdio};

use causeway_proto::control::node_client::NodeClient;
use causeway_proto::control::{GetInventoryRequest, Inventory};
use causeway_proto::version::WireVersion;

use super::Session;

const LOOPBACK: &str = "127.0.0.1:0";

/// A daemon on a free loopback port; ends with its value.
pub struct Daemon {
    pub(super) child: Child,
    pub address: String,
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
        Daemon::run(LOOPBACK, arguments, &[])
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
        let mut daemon = Daemon::run(listen, arguments, &environment);
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
        let mut line = String::new();
        let stdout = child.stdout.take().expect("its standard output");
        BufReader::new(stdout)
            .read_line(&mut line)
            .expect("its first line");
        let address = line
            .trim()
            .strip_prefix("listening on ")
            .expect("an address")
            .to_owned();
        Daemon {
            child,
            address,
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
        // Others list devices, or build for the cache.
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
