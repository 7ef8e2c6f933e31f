//! Tests of contexts that spare workers make before a session asks for them: who gets them, and that none of them
//! stops a session.

use std::path::PathBuf;

use causeway_proto::command::{CreateContext, CreateQueue, ObjectKind, command::Kind};

use crate::common::{Daemon, Session, eventually, launch};

const IN_SPARES: &str = "causeway_warm_contexts{by=\"spare\"}";
const IN_SESSIONS: &str = "causeway_warm_contexts{by=\"session\"}";
const IN_HOSTS: &str = "causeway_warm_contexts{by=\"host\"}";

/// A daemon over the fake driver, whose calls each worker logs.
struct Node {
    daemon: Daemon,
    folder: tempfile::TempDir,
}

impl Node {
    /// Starts a daemon with `[sessions] warm`, one spare worker, and these settings of the driver.
    fn start(warm: &str, driver: &str, arguments: &[&str]) -> Node {
        let folder = tempfile::tempdir().unwrap();
        let config = folder.path().join("daemon.toml");
        std::fs::write(&config, format!("[sessions]\nwarm = {warm}\n")).unwrap();
        let log = folder.path().join("calls-%p");
        let own = ["--config", config.to_str().unwrap(), "--spare-workers", "1"];
        let watched = ["--metrics", "127.0.0.1:0"];
        let all = [&own[..], &watched, arguments].concat();
        let environment = [("FAKE_OPENCL_LOG", log.to_str().unwrap())];
        let daemon = Daemon::fake_with(driver, &all, &environment);
        Node { daemon, folder }
    }

    /// Waits until the spare worker has this many contexts. Returns its log.
    fn ready(&self, contexts: u64) -> Log {
        self.reaches(IN_SPARES, contexts);
        self.log_with("clCreateContext")
    }

    fn reaches(&self, name: &str, count: u64) {
        eventually(name, || (self.daemon.count(name) == count).then_some(()));
    }

    /// Waits until a worker has logged this call. Returns the worker's log.
    fn log_with(&self, call: &str) -> Log {
        eventually(call, || {
            let entries = std::fs::read_dir(self.folder.path()).unwrap();
            let mut logs = entries.map(|entry| Log(entry.unwrap().path()));
            logs.find(|log| log.is_log() && log.calls(call) > 0)
        })
    }
}

/// The log of one worker.
struct Log(PathBuf);

impl Log {
    fn is_log(&self) -> bool {
        let name = self.0.file_name().unwrap().to_str().unwrap();
        name.starts_with("calls-")
    }

    fn calls(&self, name: &str) -> usize {
        let text = std::fs::read_to_string(&self.0).unwrap();
        let call = format!("{name}(");
        text.lines().filter(|line| line.contains(&call)).count()
    }
}

/// Makes a context on these devices, and uses it on the first.
fn use_context(session: &mut Session, devices: &[u32]) {
    let (context, queue) = (session.new_id(), session.new_id());
    session.send(vec![
        Kind::CreateContext(CreateContext {
            context,
            platform: 0,
            devices: devices.to_vec(),
        }),
        Kind::CreateQueue(CreateQueue {
            queue,
            context,
            device: devices[0],
            ..CreateQueue::default()
        }),
    ]);
    let buffer = session.buffer(context, 4, &[1, 2, 3, 4]);
    assert_eq!(session.bytes(queue, buffer, 0, 4)[..], [1, 2, 3, 4]);
}

#[test]
fn a_sessions_first_context_is_there_before_the_session() {
    let node = Node::start("\"all\"", "devices = 1", &[]);
    let log = node.ready(1);
    let commands = log.calls("clEnqueueFillBuffer");
    assert_eq!((log.calls("clCreateContext"), commands), (1, 1));
    let remarks = node.daemon.inventory().remarks;
    let told = |remark: &String| remark.starts_with("WARM: ") && remark.contains("(0.0)");
    assert!(remarks.iter().any(told), "{remarks:?}");
    let mut session = node.daemon.session();
    use_context(&mut session, &[0]);
    assert_eq!(log.calls("clCreateContext"), 1);
    assert_eq!(log.calls("clEnqueueReadBuffer"), 1);
    // The next spare worker is warm, too.
    drop(session);
    node.ready(1);
}

#[test]
fn a_context_is_for_one_request_with_the_same_devices() {
    let node = Node::start("[\"0.0\"]", "devices = 2", &[]);
    let log = node.ready(1);
    let mut session = node.daemon.session();
    for (devices, made) in [(&[0][..], 1), (&[0, 1], 2), (&[0], 3)] {
        use_context(&mut session, devices);
        assert_eq!(log.calls("clCreateContext"), made, "{devices:?}");
    }
}

#[test]
fn what_a_session_does_not_take_is_released_after_its_first_context() {
    let node = Node::start("\"all\"", "devices = 3", &[]);
    let log = node.ready(3);
    let mut session = node.daemon.session();
    assert_eq!(node.daemon.count(IN_SESSIONS), 3);
    use_context(&mut session, &[1]);
    node.reaches(IN_SESSIONS, 0);
    assert_eq!(log.calls("clCreateContext"), 3);
    assert_eq!(log.calls("clReleaseContext"), 2);
    // The one that the session has taken works on.
    use_context(&mut session, &[1]);
}

#[test]
fn a_context_that_cannot_be_made_stops_no_session() {
    for call in ["clCreateContext", "clEnqueueFillBuffer"] {
        let rule = format!("[[call]]\nname = \"{call}\"\nat = 1\nfail = -30\n");
        let node = Node::start("[\"0.0\"]", &rule, &[]);
        let log = node.log_with(call);
        let mut session = node.daemon.session();
        use_context(&mut session, &[0]);
        assert!(session.heard.notices.is_empty());
        assert!(log.calls("clCreateContext") <= 2);
        assert_eq!(log.calls("clEnqueueReadBuffer"), 1);
    }
}

#[test]
fn a_driver_that_hangs_over_a_context_stops_no_session() {
    let rule = "[[call]]\nname = \"clCreateContext\"\nat = 1\ndelay_us = 600000000\n";
    let node = Node::start("[\"0.0\"]", rule, &[]);
    let mut session = node.daemon.session();
    use_context(&mut session, &[0]);
    assert_eq!(node.daemon.count(IN_SPARES), 0);
}

#[test]
fn a_driver_that_crashes_over_a_context_stops_no_session() {
    // Only a warm context is filled.
    let rule = "[[call]]\nname = \"clEnqueueFillBuffer\"\ncrash = \"abort\"\n";
    let node = Node::start("[\"0.0\"]", rule, &[]);
    node.reaches("causeway_workers_spare", 0);
    for _ in 0..3 {
        use_context(&mut node.daemon.session(), &[0]);
    }
}

#[test]
fn the_errors_of_a_taken_context_reach_the_session() {
    let node = Node::start("[\"0.0\"]", "kernel.bad = { fail = -5 }", &[]);
    let log = node.ready(1);
    let mut session = node.daemon.session();
    let context = session.context();
    let queue = session.queue(context, 0);
    let (program, answer) = session.build(context, "kernel void bad() {}", "");
    assert_eq!(answer.status, 0, "{answer:?}");
    let kernel = session.kernel(program, "bad");
    let event = session.enqueue(queue, &[], launch(kernel, vec![], &[1], &[]));
    assert!(session.wait(event).status < 0);
    while session.heard.notices.is_empty() {
        assert!(session.hear(), "the session ended");
    }
    let notice = &session.heard.notices[0];
    assert_eq!(notice.object, i32::from(ObjectKind::Context));
    assert_eq!((notice.id, notice.context), (context, context));
    assert!(notice.message.contains("a command failed"), "{notice:?}");
    assert_eq!(log.calls("clCreateContext"), 1);
}

#[test]
fn a_host_keeps_its_context_and_replaces_a_broken_one() {
    // The queues are: one before any session; two of each session, of which one clears memory; and one to check what
    // a session has left.
    let rule = "[[call]]\nname = \"clCreateCommandQueueWithProperties\"\nat = 7\nfail = -36\n";
    let node = Node::start("[\"0.0\"]", rule, &["--together", "user"]);
    let log = node.ready(1);
    for made in [1, 1, 2] {
        let mut session = node.daemon.session();
        use_context(&mut session, &[0]);
        assert_eq!(node.daemon.count(IN_HOSTS), 1);
        assert_eq!(log.calls("clCreateContext"), made);
        drop(session);
        node.reaches("causeway_sessions", 0);
    }
    assert_eq!(log.calls("clReleaseContext"), 1);
}
