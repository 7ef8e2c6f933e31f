//! Tests of sessions that a daemon parks when it ends, and of the next daemon, which puts them together again.

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};
use std::process::Command as Process;
use std::time::{Duration, SystemTime};

use causeway_proto::command::{command::Kind, *};
use causeway_proto::id::SessionSecret;
use causeway_proto::preamble::{Purpose, Verdict};
use prost::bytes::Bytes;

use crate::common::parking::{come_back, contents, hear_parking, park, read, record_on, stands};
use crate::common::resuming::Resuming;
use crate::common::{Daemon, LIMIT, eventually};

pub(super) const FAKE: &str = "devices = 1";
pub(super) const LONG: (u32, u32) = (60_000, 600_000);
pub(super) const LOOPBACK: &str = "127.0.0.1:0";
pub(super) const CONTENTS: &[u8; 64] = &[7; 64];

/// A directory for parked sessions, and daemons that use it one after the other.
pub(super) struct Node {
    folder: tempfile::TempDir,
}

fn arguments<'a>(settings: &'a str, drain_limit: &'a str) -> [&'a str; 4] {
    ["--config", settings, "--drain-limit", drain_limit]
}

impl Node {
    fn new() -> Node {
        Node::holding("")
    }

    /// With more keys of `[survival]`, or further tables.
    pub(super) fn holding(more: &str) -> Node {
        let folder = tempfile::tempdir().unwrap();
        let parked = folder.path().join("parked");
        let text = format!("[survival]\ndirectory = {parked:?}\n{more}\n");
        fs::write(folder.path().join("daemon.toml"), text).unwrap();
        Node { folder }
    }

    fn settings(&self) -> String {
        let file = self.folder.path().join("daemon.toml");
        file.into_os_string().into_string().unwrap()
    }

    pub(super) fn daemon(&self, listen: &str, fake: &str, drain_limit: &str) -> Daemon {
        Daemon::fake_at(listen, fake, &arguments(&self.settings(), drain_limit))
    }

    /// A daemon whose service manager hears at this socket.
    fn notifying(&self, socket: &Path, drain_limit: &str) -> Daemon {
        let settings = self.settings();
        let arguments = arguments(&settings, drain_limit);
        let environment = [("NOTIFY_SOCKET", socket.to_str().unwrap())];
        Daemon::fake_with(FAKE, &arguments, &environment)
    }

    /// The files of sessions, by their kinds.
    fn files(&self) -> Vec<(String, PathBuf)> {
        let entries = fs::read_dir(self.folder.path().join("parked")).unwrap();
        let paths = entries.map(|entry| entry.unwrap().path());
        let kind = |path: &PathBuf| Some(path.extension()?.to_str()?.to_owned());
        let mut files: Vec<_> = paths
            .filter_map(|path| Some((kind(&path)?, path)))
            .collect();
        files.sort();
        files
    }

    pub(super) fn kinds(&self) -> Vec<String> {
        self.files().into_iter().map(|(kind, _)| kind).collect()
    }

    /// The contents that a process keeps on the disk, because it has opened them. Only root sees all processes' files.
    fn opened(&self) -> Vec<PathBuf> {
        let entries = |path: PathBuf| fs::read_dir(path).into_iter().flatten().flatten();
        let files = entries("/proc".into()).flat_map(|process| entries(process.path().join("fd")));
        let targets = files.filter_map(|file| fs::read_link(file.path()).ok());
        let are_contents = |target: &PathBuf| {
            target.starts_with(self.folder.path()) && target.to_string_lossy().contains(".contents")
        };
        targets.filter(are_contents).collect()
    }

    /// A session with a context, a queue and a buffer, after its first commands.
    fn session(&self, daemon: &Daemon) -> Resuming {
        self.session_for(daemon, LONG)
    }

    /// A session that waits for so long for its client.
    fn session_for(&self, daemon: &Daemon, times: (u32, u32)) -> Resuming {
        let mut session = Resuming::open(daemon, times);
        assert_eq!(session.reply.restart_ms, 300_000);
        session.send(record(CONTENTS));
        session.send(vec![Resuming::ping(1)]);
        session.answer(1);
        session
    }

    /// Ends the daemon while the session is parked. Returns the next one, at the same address.
    fn restarted(&self, daemon: Daemon, session: &mut Resuming, fake: &str) -> Daemon {
        let address = end_parked(daemon, session);
        self.daemon(&address, fake, "30")
    }
}

/// The commands that create the objects. Without `contents`, as a record has them.
pub(super) fn record(contents: &'static [u8]) -> Vec<Kind> {
    record_on(0, contents)
}

/// Ends the daemon while it parks the session. Returns its address.
fn end_parked(daemon: Daemon, session: &mut Resuming) -> String {
    let address = daemon.address.clone();
    let ended = std::thread::spawn(|| daemon.terminate());
    park(session);
    assert!(ended.join().unwrap());
    address
}

/// Waits for the end of the session, and returns the reason.
fn close_reason(session: &mut Resuming) -> String {
    let mut reason = String::new();
    while let Some(batch) = session.hear() {
        reason += &batch.close_reason;
    }
    reason
}

#[test]
fn a_session_goes_on_where_it_was_parked() {
    let node = Node::new();
    let daemon = node.daemon(LOOPBACK, FAKE, "30");
    let mut session = node.session(&daemon);
    session.send(vec![
        Kind::CreateUserEvent(CreateUserEvent { event: 10 }),
        Kind::CreateUserEvent(CreateUserEvent { event: 11 }),
        Kind::SetUserEventStatus(SetUserEventStatus {
            event: 11,
            status: -5,
        }),
        read(12, vec![]),
    ]);
    contents(&mut session, 12);
    let address = end_parked(daemon, &mut session);
    assert_eq!(node.kinds(), ["contents", "session"]);
    let files = node.files();
    let modes = files
        .iter()
        .map(|(_, path)| fs::metadata(path).unwrap().mode() & 0o777);
    assert!(modes.into_iter().all(|mode| mode == 0o600));

    let _daemon = node.daemon(&address, FAKE, "30");
    // A stranger changes nothing.
    let secret = std::mem::replace(&mut session.secret, SessionSecret([0; 32]));
    let stranger = eventually("the node takes the session back", || {
        let refused = session.connect(Purpose::Heartbeat, 0).err();
        refused.filter(|verdict| *verdict != Verdict::Parked)
    });
    assert_eq!(stranger, Verdict::Unproved);
    session.secret = secret;
    assert_eq!(come_back(&mut session, record(&[])), 8);
    assert!(node.files().is_empty());
    // An event that has ended, one that failed, and one that is still open.
    session.send(vec![
        read(13, vec![12, 10]),
        read(14, vec![11]),
        Kind::SetUserEventStatus(SetUserEventStatus {
            event: 10,
            status: 0,
        }),
    ]);
    let mut ended = Vec::new();
    while ended.len() < 2 {
        let batch = session.hear().expect("the session goes on");
        ended.extend(batch.completions);
    }
    ended.sort_by_key(|completion| completion.event);
    assert_eq!(&ended[0].contents[..], CONTENTS);
    assert_eq!((ended[1].event, ended[1].status), (14, -14));
    assert_eq!(node.opened(), Vec::<PathBuf>::new());
    session.say_farewell();
}

#[test]
fn a_command_that_waits_for_the_client_is_waited_for() {
    let node = Node::new();
    let daemon = node.daemon(LOOPBACK, FAKE, "30");
    let mut session = node.session(&daemon);
    session.send(vec![
        Kind::CreateUserEvent(CreateUserEvent { event: 10 }),
        read(11, vec![10]),
        Resuming::ping(2),
    ]);
    session.answer(2);
    let address = daemon.address.clone();
    let ended = std::thread::spawn(|| daemon.terminate());
    // The client goes on to the next command that waits, and stands only then.
    let set = |event| Kind::SetUserEventStatus(SetUserEventStatus { event, status: 0 });
    session.send(vec![set(10)]);
    assert_eq!(&contents(&mut session, 11)[..], CONTENTS);
    hear_parking(&mut session, Parking::Stand);
    session.send(vec![
        Kind::CreateUserEvent(CreateUserEvent { event: 20 }),
        read(21, vec![20]),
    ]);
    session.send_raw(&stands());
    hear_parking(&mut session, Parking::GoOn);
    session.send(vec![set(20)]);
    assert_eq!(&contents(&mut session, 21)[..], CONTENTS);
    park(&mut session);
    assert!(ended.join().unwrap());
    let _daemon = node.daemon(&address, FAKE, "30");
    come_back(&mut session, record(&[]));
    session.send(vec![read(30, vec![])]);
    assert_eq!(&contents(&mut session, 30)[..], CONTENTS);
}

#[test]
fn a_client_that_is_away_is_waited_for() {
    let node = Node::new();
    let path = node.folder.path().join("notify");
    let manager = UnixDatagram::bind(&path).unwrap();
    manager.set_read_timeout(Some(LIMIT)).unwrap();
    let daemon = node.notifying(&path, "8");
    let mut session = node.session(&daemon);
    session.leave();
    // On its way when the network fails.
    session.send(vec![read(12, vec![])]);
    let address = daemon.address.clone();
    let ended = std::thread::spawn(|| daemon.terminate());
    // The daemon asks for time every 5 s. So the last question comes later than `drain_limit`, and than the daemon waits
    // for the clients of sessions that cannot be parked.
    let asks = "EXTEND_TIMEOUT_USEC=";
    for expected in ["READY=1", "STOPPING=1", asks, asks, asks] {
        let mut said = [0; 64];
        let length = manager.recv(&mut said).unwrap();
        let said = String::from_utf8_lossy(&said[..length]);
        let number = said.strip_prefix(expected);
        let number = number.unwrap_or_else(|| panic!("{said}, not {expected}"));
        if expected == asks {
            let micros: u64 = number.parse().unwrap();
            assert!(micros > 10_000_000, "{micros}");
        }
    }
    assert!(!ended.is_finished());
    session.resume().unwrap();
    assert_eq!(&contents(&mut session, 12)[..], CONTENTS);
    park(&mut session);
    assert!(ended.join().unwrap());
    let _daemon = node.daemon(&address, FAKE, "30");
    assert_eq!(come_back(&mut session, record(&[])), 5);
    session.send(vec![read(30, vec![])]);
    assert_eq!(&contents(&mut session, 30)[..], CONTENTS);
}

#[test]
fn a_client_that_comes_back_too_late_is_told_why_its_session_is_lost() {
    let node = Node::new();
    let daemon = node.daemon(LOOPBACK, FAKE, "1");
    // Long enough for the daemon to be told to end meanwhile.
    let session = node.session_for(&daemon, (5000, 600_000));
    let address = daemon.address.clone();
    let mut here = node.session(&daemon);
    session.leave();
    let ended = std::thread::spawn(|| daemon.terminate());
    // This one does not stand.
    let reason = close_reason(&mut here);
    assert!(reason.contains("has not received everything"), "{reason}");
    assert!(ended.join().unwrap());
    assert_eq!(node.kinds(), ["session", "session"]);
    let _daemon = node.daemon(&address, FAKE, "30");
    let reason = session.end_reason();
    assert!(reason.contains("not come back"), "{reason}");
    let refused = session.connect(Purpose::Commands, session.handled).err();
    assert_eq!(refused, Some(Verdict::UnknownSession));
    eventually("the session's files are removed", || {
        node.files().is_empty().then_some(())
    });
}

#[test]
fn a_client_that_ends_its_session_while_the_daemon_ends_leaves_nothing() {
    let node = Node::new();
    let daemon = node.daemon(LOOPBACK, FAKE, "30");
    let mut session = node.session(&daemon);
    let ended = std::thread::spawn(|| daemon.terminate());
    hear_parking(&mut session, Parking::Stand);
    session.say_farewell();
    session.leave();
    assert!(ended.join().unwrap());
    let kinds = node.kinds();
    assert!(!kinds.contains(&"session".to_owned()), "{kinds:?}");
}

#[test]
fn a_session_whose_state_nobody_can_read_ends_with_the_daemon() {
    let svm = Kind::CreateSvm(CreateSvm {
        request: 9,
        buffer: 9,
        context: 1,
        flags: 1,
        size: 64,
        alignment: 64,
    });
    let pipe = Kind::CreatePipe(CreatePipe {
        pipe: 9,
        context: 1,
        packet_size: 4,
        max_packets: 4,
        ..CreatePipe::default()
    });
    let device_queue = Kind::CreateDeviceQueue(CreateDeviceQueue {
        queue: 9,
        context: 1,
        ..CreateDeviceQueue::default()
    });
    let command_buffer = Kind::CreateCommandBuffer(CreateCommandBuffer {
        command_buffer: 9,
        context: 1,
    });
    let mirror = Kind::CreateMirror(CreateMirror { mirror: 9, link: 0 });
    for (command, expected) in [
        (svm, "shared virtual memory"),
        (pipe, "a pipe"),
        (device_queue, "a device queue"),
        (command_buffer, "a command buffer"),
        (mirror, "data between several nodes"),
    ] {
        ends_with_its_daemon(vec![command], expected);
    }
    let program = vec![
        Kind::CreateProgram(CreateProgram {
            program: 9,
            context: 1,
            from: Some(create_program::From::Source(Bytes::from_static(b"int n;"))),
            request: 0,
        }),
        Kind::BuildProgram(BuildProgram {
            request: 9,
            program: 9,
            devices: vec![0],
            options: Bytes::from_static(b"-w -cl-std=CL2.0"),
            ..BuildProgram::default()
        }),
    ];
    ends_with_its_daemon(program, "variables of its own");
}

fn ends_with_its_daemon(commands: Vec<Kind>, expected: &str) {
    let node = Node::new();
    let daemon = node.daemon(LOOPBACK, FAKE, "1");
    let mut session = node.session(&daemon);
    session.send(commands);
    session.send(vec![Resuming::ping(2)]);
    session.answer(2);
    ends_unparked(&node, daemon, &mut session, expected);
}

/// Ends the daemon. The session cannot be parked, goes on, and ends when the time for draining is over.
fn ends_unparked(node: &Node, daemon: Daemon, session: &mut Resuming, expected: &str) {
    let ended = std::thread::spawn(|| daemon.terminate());
    let reason = close_reason(session);
    assert!(
        reason.starts_with("the node's daemon was stopped, and the session could not be parked: "),
        "{reason}"
    );
    assert!(reason.contains(expected), "{reason}");
    assert!(ended.join().unwrap());
    assert_eq!(node.kinds(), ["session"]);
}

#[test]
fn a_session_goes_on_if_the_disk_is_full() {
    let node = Node::new();
    // The system refuses to make a file longer than 32 KiB.
    let mut limited = Process::new("sh");
    limited.args(["-c", "trap '' XFSZ; ulimit -f 64; exec \"$@\"", "sh"]);
    limited.arg(env!("CARGO_BIN_EXE_causewayd"));
    let directory = node.folder.path().join("parked");
    let directory = directory.to_str().unwrap();
    let arguments = ["--survival-dir", directory, "--drain-limit", "2"];
    let environment = [("CAUSEWAYD_BUILD_CACHE_SIZE", "0")];
    let daemon = Daemon::by_fake(limited, FAKE, &arguments, &environment);
    let mut session = node.session(&daemon);
    session.send(vec![Kind::CreateBuffer(CreateBuffer {
        buffer: 9,
        context: 1,
        flags: 1,
        size: 1 << 20,
        ..CreateBuffer::default()
    })]);
    let ended = std::thread::spawn(|| daemon.terminate());
    hear_parking(&mut session, Parking::Stand);
    session.send_raw(&stands());
    hear_parking(&mut session, Parking::GoOn);
    session.send(vec![read(30, vec![])]);
    assert_eq!(&contents(&mut session, 30)[..], CONTENTS);
    let reason = close_reason(&mut session);
    assert!(reason.contains("File too large"), "{reason}");
    assert!(ended.join().unwrap());
    assert_eq!(node.kinds(), ["session"]);
}

#[test]
fn a_session_goes_on_if_the_directory_cannot_be_written() {
    let node = Node::new();
    let daemon = node.daemon(LOOPBACK, FAKE, "1");
    let mut session = node.session(&daemon);
    let directory = node.folder.path().join("parked");
    fs::remove_dir_all(&directory).unwrap();
    fs::write(&directory, "").unwrap();
    let ended = std::thread::spawn(|| daemon.terminate());
    let reason = close_reason(&mut session);
    assert!(reason.contains("its files cannot be made"), "{reason}");
    assert!(ended.join().unwrap());
}

#[test]
fn a_daemon_with_an_unusable_directory_does_not_start() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("file");
    fs::write(&file, "").unwrap();
    let open = folder.path().join("open");
    fs::create_dir(&open).unwrap();
    fs::set_permissions(&open, fs::Permissions::from_mode(0o755)).unwrap();
    let missing = folder.path().join("missing/parked");
    for (directory, expected) in [
        (file, "mode 0700"),
        (open, "mode 0700"),
        (missing, "missing does not exist; create it first"),
    ] {
        let mut daemon = Process::new(env!("CARGO_BIN_EXE_causewayd"));
        daemon.args(["--listen", LOOPBACK, "--survival-dir"]);
        let ended = daemon.arg(&directory).output().unwrap();
        let said = String::from_utf8_lossy(&ended.stderr);
        assert!(!ended.status.success(), "{said}");
        let about = format!("the directory {} of [survival]", directory.display());
        assert!(said.contains(&about) && said.contains(expected), "{said}");
    }
}

#[test]
fn a_session_that_is_not_fetched_is_removed() {
    let node = Node::new();
    let daemon = node.daemon(LOOPBACK, FAKE, "30");
    let mut session = node.session(&daemon);
    let address = end_parked(daemon, &mut session);
    // Nearly ten minutes ago.
    let (_, path) = &node.files()[1];
    let file = fs::OpenOptions::new().write(true).open(path).unwrap();
    let age = Duration::from_millis(10 * 60_000 - 1_500);
    file.set_modified(SystemTime::now() - age).unwrap();
    let _daemon = node.daemon(&address, FAKE, "30");
    let reason = session.end_reason();
    assert!(reason.contains("has not come back in time"), "{reason}");
    eventually("the session's files are removed", || {
        node.files().is_empty().then_some(())
    });
}

#[test]
fn without_a_directory_nothing_is_granted_and_nothing_is_parked() {
    let daemon = Daemon::fake_at(LOOPBACK, FAKE, &["--drain-limit", "1"]);
    let mut session = Resuming::open(&daemon, LONG);
    assert_eq!(session.reply.restart_ms, 0);
    let ended = std::thread::spawn(|| daemon.terminate());
    let mut parkings = Vec::new();
    while let Some(batch) = session.hear() {
        parkings.push(batch.parking);
    }
    assert!(parkings.iter().all(|parking| *parking == 0), "{parkings:?}");
    assert!(ended.join().unwrap());
}

#[test]
fn damaged_contents_and_other_records_end_the_session() {
    type Change = fn(&Node, &mut Vec<Kind>);
    let damage: Change = |node, _| {
        let (_, path) = &node.files()[0];
        let mut bytes = fs::read(path).unwrap();
        let at = bytes.len() - 40;
        bytes[at] ^= 1;
        fs::write(path, bytes).unwrap();
    };
    let damage_state: Change = |node, _| {
        let (_, path) = &node.files()[0];
        let mut bytes = fs::read(path).unwrap();
        bytes[9] ^= 1;
        fs::write(path, bytes).unwrap();
    };
    let lengthen: Change = |node, _| {
        let (_, path) = &node.files()[0];
        let mut bytes = fs::read(path).unwrap();
        bytes.push(0);
        fs::write(path, bytes).unwrap();
    };
    let shorten: Change = |node, _| {
        let (_, path) = &node.files()[0];
        let length = fs::metadata(path).unwrap().len();
        let file = fs::OpenOptions::new().write(true).open(path).unwrap();
        file.set_len(length - 50).unwrap();
    };
    let forget: Change = |_, record| drop(record.pop());
    let shrink: Change = |_, record| {
        if let Some(Kind::CreateBuffer(create)) = record.last_mut() {
            create.size = 32;
        }
    };
    let broken: Change = |_, record| {
        if let Some(Kind::CreateBuffer(create)) = record.last_mut() {
            create.size = 0;
        }
    };
    for (change, expected) in [
        (damage, "is damaged"),
        (damage_state, "is damaged"),
        (lengthen, "is damaged"),
        (shorten, "the file with the contents"),
        (forget, "does not fit"),
        (shrink, "does not fit"),
        (broken, "could not create memory object 3"),
    ] {
        let node = Node::new();
        let daemon = node.daemon(LOOPBACK, FAKE, "30");
        let mut session = node.session(&daemon);
        let address = end_parked(daemon, &mut session);
        let mut commands = record(&[]);
        change(&node, &mut commands);
        let _daemon = node.daemon(&address, FAKE, "30");
        come_back(&mut session, commands);
        let reason = close_reason(&mut session);
        assert!(reason.contains(expected), "{reason}");
    }
}

#[test]
fn commands_before_the_record_and_what_belongs_into_none_end_the_session() {
    let event = Kind::CreateUserEvent(CreateUserEvent { event: 9 });
    for recorded in [Recorded::No, Recorded::Part] {
        let node = Node::new();
        let daemon = node.daemon(LOOPBACK, FAKE, "30");
        let mut session = node.session(&daemon);
        let _daemon = node.restarted(daemon, &mut session, FAKE);
        let connected = || session.connect(Purpose::Commands, session.handled).ok();
        let (commands, _) = eventually("the node takes the session back", connected);
        session.commands = commands;
        session.send_raw(&CommandBatch {
            first: 1,
            commands: vec![Command {
                kind: Some(event.clone()),
            }],
            recorded: recorded.into(),
            ..CommandBatch::default()
        });
        while session.hear().is_some() {}
        assert!(session.end_reason().contains("record"));
    }
}

#[test]
fn a_daemon_of_another_wire_version_refuses_and_says_so() {
    let node = Node::new();
    let daemon = node.daemon(LOOPBACK, FAKE, "30");
    let mut session = node.session(&daemon);
    let address = end_parked(daemon, &mut session);
    let (_, path) = &node.files()[1];
    let mut ticket = fs::read(path).unwrap();
    // The first field is the version.
    assert_eq!(ticket[0], 8);
    ticket[1] -= 1;
    fs::write(path, ticket).unwrap();
    let _daemon = node.daemon(&address, FAKE, "30");
    let refused = eventually("the node refuses the session", || {
        let refused = session.connect(Purpose::Commands, session.handled).err();
        refused.filter(|verdict| *verdict != Verdict::Parked)
    });
    assert_eq!(refused, Verdict::UnknownSession);
    assert!(session.end_reason().contains("wire version"));
}

#[test]
fn other_devices_do_not_take_a_session_back() {
    let node = Node::new();
    let daemon = node.daemon(LOOPBACK, FAKE, "30");
    let mut session = node.session(&daemon);
    let _daemon = node.restarted(daemon, &mut session, "devices = 2");
    let refused = eventually("the node refuses the session", || {
        let refused = session.connect(Purpose::Commands, session.handled).err();
        refused.filter(|verdict| *verdict != Verdict::Parked)
    });
    assert_eq!(refused, Verdict::UnknownSession);
    let reason = session.end_reason();
    assert!(
        reason.contains("devices or drivers have changed"),
        "{reason}"
    );
    eventually("the session's files are removed", || {
        node.files().is_empty().then_some(())
    });
}

#[test]
fn a_checkpoint_that_is_being_made_ends_before_the_session_is_parked() {
    let node = Node::new();
    let daemon = node.daemon(LOOPBACK, FAKE, "30");
    let mut session = Resuming::open_reexecuted(&daemon, LONG);
    session.send(record(CONTENTS));
    session.send(vec![Resuming::ping(1)]);
    session.answer(1);
    session.send_raw(&CommandBatch {
        checkpoint: true,
        ..CommandBatch::default()
    });
    hear_parking(&mut session, Parking::Stand);
    let address = daemon.address.clone();
    let ended = std::thread::spawn(|| daemon.terminate());
    // The daemon asks for the parking meanwhile. Nothing shows that it has. A machine that is slower shows less, and fails
    // nothing.
    std::thread::sleep(Duration::from_millis(300));
    session.send_raw(&stands());
    // If the client heard this after the other word, it would go on in a session that is parked.
    hear_parking(&mut session, Parking::Checkpoint);
    park(&mut session);
    assert!(ended.join().unwrap());
    let _daemon = node.daemon(&address, FAKE, "30");
    come_back(&mut session, record(&[]));
    session.send(vec![read(11, vec![])]);
    assert_eq!(contents(&mut session, 11), &CONTENTS[..]);
}

#[test]
fn a_checkpoint_that_the_node_does_not_keep_is_not_made() {
    let asks = CommandBatch {
        checkpoint: true,
        ..CommandBatch::default()
    };
    let hear_unable = |session: &mut Resuming| {
        while session.parkings.last() != Some(&Parking::Unable) {
            assert!(!session.parkings.contains(&Parking::Checkpoint));
            session.hear().expect("the session goes on");
            session.acknowledge(session.handled);
        }
    };
    // Without any memory, which takes no bytes.
    let daemon = Node::holding("held = 0").daemon(LOOPBACK, FAKE, "30");
    let mut session = Resuming::open_reexecuted(&daemon, LONG);
    session.send(vec![Resuming::ping(1)]);
    session.answer(1);
    session.send_raw(&asks);
    hear_unable(&mut session);

    // The memory fits, and the file with it does not.
    let node = Node::holding("held = 64");
    assert_eq!(CONTENTS.len(), 64);
    let daemon = node.daemon(LOOPBACK, FAKE, "30");
    let mut session = Resuming::open_reexecuted(&daemon, LONG);
    session.send(record(CONTENTS));
    session.send(vec![Resuming::ping(1)]);
    session.answer(1);
    session.send_raw(&asks);
    hear_parking(&mut session, Parking::Stand);
    session.send_raw(&stands());
    hear_unable(&mut session);
    session.send(vec![read(11, vec![])]);
    assert_eq!(contents(&mut session, 11), &CONTENTS[..]);
}
