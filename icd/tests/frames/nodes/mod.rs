//! Several real daemons with different drivers, for contexts that span them; on top of `opencl`.
//!
//! A process defines its nodes once ([`start`]); they end with the process. With `CAUSEWAY_TEST_MANAGED` they belong
//! to a device manager, with TLS ([`managed`]).

pub mod managed;

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::ptr::{null, null_mut};
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use parking_lot::Mutex;

use crate::frames::fake_driver;
use crate::frames::opencl::*;
use crate::frames::servers;

/// The drivers of a node.
pub enum Drivers {
    /// The machine's own drivers.
    System,
    /// The fake driver with these devices (tables of its settings).
    Fake(&'static str),
}

pub struct Node {
    pid: u32,
    address: String,
    devices: &'static str,
    /// The folder of its settings, its call logs (`calls-PID`), and whatever the settings name.
    pub dir: PathBuf,
}

static CHILDREN: Mutex<Vec<Child>> = Mutex::new(Vec::new());
static NODES: OnceLock<Vec<Node>> = OnceLock::new();

extern "C" fn end_daemons() {
    for mut child in CHILDREN.lock().drain(..) {
        let _ = child.kill();
        let _ = child.wait();
    }
    managed::end();
}

/// Starts the nodes once, and configures the library with them in this order.
pub fn start(nodes: &[Drivers]) -> &'static [Node] {
    NODES.get_or_init(|| {
        // SAFETY: a function of this program, which is never unloaded.
        unsafe { libc::atexit(end_daemons) };
        let numbered = nodes.iter().enumerate();
        let nodes: Vec<Node> = numbered
            .map(|(number, drivers)| Node::start(number, drivers))
            .collect();
        if managed::is_wanted() {
            managed::configure(&nodes, nodes[0].dir.parent().expect("the node's folder"));
            return nodes;
        }
        let addresses: Vec<&str> = nodes.iter().map(|node| &node.address[..]).collect();
        configure(&addresses.join(","));
        nodes
    })
}

impl Node {
    fn start(number: usize, drivers: &Drivers) -> Node {
        let dir = PathBuf::from(env!("CARGO_TARGET_TMPDIR"))
            .join(format!("nodes-{}", std::process::id()))
            .join(number.to_string());
        std::fs::create_dir_all(&dir).expect("a folder");
        let mut command = causewayd("127.0.0.1:0");
        command
            .args(if managed::is_wanted() {
                managed::arguments()
            } else {
                secured::arguments()
            })
            // The folder of its identity.
            .env("STATE_DIRECTORY", &dir);
        if let Drivers::Fake(settings) = drivers {
            fake_driver::put(&dir, settings);
            fake_driver::used_by(&mut command, &dir)
                .env("FAKE_OPENCL_LOG", dir.join("calls-%p"))
                // Contains the folders where calls of several nodes meet.
                .env("CAUSEWAYD_SANDBOX_WRITE", dir.parent().unwrap_or(&dir));
        }
        let mut child = command
            .stderr(Stdio::piped())
            .spawn()
            .expect("causewayd starts");
        let address = address_of(&mut child);
        // The drivers' first answer may take longer than a client waits for a node.
        let stderr = child.stderr.take().expect("the daemon's standard error");
        let mut said = BufReader::new(stderr).lines().map_while(Result::ok);
        let known = said.any(|line| line.contains("inventory platforms="));
        assert!(known, "the daemon lists its devices");
        std::thread::spawn(move || said.for_each(|line| eprintln!("node {number}: {line}")));
        let pid = child.id();
        CHILDREN.lock().push(child);
        let devices = match drivers {
            Drivers::Fake(devices) => devices,
            Drivers::System => "",
        };
        Node {
            pid,
            address,
            devices,
            dir,
        }
    }

    pub fn pid(&self) -> u32 {
        self.pid
    }

    pub fn address(&self) -> &str {
        &self.address
    }

    /// Adds these rules to the fake driver's settings until the result is dropped. They are valid from the next call
    /// on.
    pub fn with_rules(&self, rules: &str) -> Rules<'_> {
        self.set(rules);
        Rules(self)
    }

    fn set(&self, rules: &str) {
        fake_driver::set(&self.dir, &format!("{}\n{rules}", self.devices));
    }

    /// Kills the daemon and its workers.
    pub fn kill(&self) {
        let mut children = CHILDREN.lock();
        let child = children.iter_mut().find(|child| child.id() == self.pid);
        let child = child.expect("a running daemon");
        child
            .kill()
            .and_then(|()| child.wait())
            .expect("the daemon ends");
    }

    /// Returns all calls that its fake driver has logged so far, in all processes.
    pub fn calls(&self) -> Vec<String> {
        let files = std::fs::read_dir(&self.dir)
            .expect("the node's folder")
            .flatten();
        let logs = files.filter(|file| file.file_name().to_string_lossy().starts_with("calls-"));
        let texts = logs.filter_map(|log| std::fs::read_to_string(log.path()).ok());
        texts
            .flat_map(|text| text.lines().map(str::to_owned).collect::<Vec<_>>())
            .collect()
    }

    /// Returns the number of logged calls of a function.
    pub fn count(&self, function: &str) -> usize {
        let calls = self.calls();
        let of = |call: &&String| call.split('(').next() == Some(function);
        calls.iter().filter(of).count()
    }

    /// Kills its workers, as a crash would.
    pub fn kill_workers(&self) {
        kill_workers_of(self.pid);
    }
}

/// See [`Node::with_rules`].
pub struct Rules<'a>(&'a Node);

impl Drop for Rules<'_> {
    fn drop(&mut self) {
        self.0.set("");
    }
}

/// Makes an empty folder of a node, where calls meet.
pub fn meeting(node: &Node, name: &str) -> PathBuf {
    let folder = node.dir.join(name);
    let _ = std::fs::remove_dir_all(&folder);
    std::fs::create_dir_all(&folder).expect("a folder");
    folder
}

/// Waits until this number of calls are at a meeting, for at most ten seconds.
pub fn await_meeting(folder: &Path, calls: usize) {
    let end = Instant::now() + Duration::from_secs(10);
    while std::fs::read_dir(folder).expect("the folder").count() < calls {
        assert!(Instant::now() < end, "no call came to {}", folder.display());
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// Returns all devices in the order of the nodes, once `expected` are there. Slow nodes are left out at first. Waits
/// for at most twenty seconds.
pub fn devices(expected: usize) -> Vec<cl_device_id> {
    let end = Instant::now() + Duration::from_secs(20);
    loop {
        let devices = servers::devices();
        if devices.len() == expected {
            return managed::in_order(devices);
        }
        let found = devices.len();
        assert!(Instant::now() < end, "{found} of {expected} devices");
        std::thread::sleep(Duration::from_millis(50));
    }
}

pub fn context_over(devices: &[cl_device_id]) -> cl_context {
    let count = devices.len() as cl_uint;
    make!(clCreateContext(
        null(),
        count,
        devices.as_ptr(),
        None,
        null_mut()
    ))
    .expect("a context")
}
