//! Tests of what sessions of a host get from its driver: memory without the bytes of others, and the driver's answer to
//! what it refuses, while the neighbours go on.

use causeway_proto::command::{CreateImage, CreateSvm, ObjectKind, command::Kind};

use super::hosts::{SoonIdle, TOGETHER};
use crate::common::{Daemon, Session, allocate, context_on, eventually};

const MEM_OBJECT_ALLOCATION_FAILURE: i32 = -4;
const OUT_OF_HOST_MEMORY: i32 = -6;
const MIB: u64 = 1 << 20;

fn fake(settings: &str, arguments: &[&str]) -> Daemon {
    let watched = ["--metrics", "127.0.0.1:0"];
    Daemon::fake_with(settings, &[&watched[..], arguments].concat(), &[])
}

/// Writes and reads in a context.
fn computes(session: &mut Session, context: u64) {
    let queue = session.queue(context, 0);
    let buffer = session.buffer(context, 4, &[1, 2, 3, 4]);
    assert_eq!(session.bytes(queue, buffer, 0, 4)[..], [1, 2, 3, 4]);
}

#[test]
fn memory_that_a_neighbour_has_is_refused_as_memory_that_a_session_has_itself() {
    const CARD: &str = "[[device]]\nmemory = 67108864\n";
    // In a worker of its own, where the memory is the session's own.
    let alone = fake(CARD, &[]);
    let mut session = alone.session();
    let context = session.context();
    assert_eq!(allocate(&mut session, context, 40 * MIB).1, 0);
    let (_, code) = allocate(&mut session, context, 40 * MIB);
    assert_eq!(code, MEM_OBJECT_ALLOCATION_FAILURE);

    let together = fake(CARD, &TOGETHER);
    let mut both = [together.session(), together.session()];
    assert_eq!(both[0].workers().len(), 1);
    let contexts = both.each_mut().map(Session::context);
    let [first, second] = &mut both;
    let (of_first, status) = allocate(first, contexts[0], 40 * MIB);
    assert_eq!(status, 0);
    assert_eq!(allocate(second, contexts[1], 40 * MIB).1, code);
    // The refused session goes on, and gets the memory when its neighbour has given it back.
    computes(second, contexts[1]);
    first.release(ObjectKind::Memory, of_first);
    first.ping();
    assert_eq!(allocate(second, contexts[1], 40 * MIB).1, 0);
}

#[test]
fn a_driver_that_refuses_a_second_context_serves_sessions_with_the_first() {
    let refused: String = (2..=9)
        .map(|at| {
            format!(
                "[[call]]\nname = \"clCreateContext\"\nat = {at}\nfail = {OUT_OF_HOST_MEMORY}\n"
            )
        })
        .collect();
    let daemon = fake(&format!("devices = 2\n{refused}"), &TOGETHER);
    let mut sessions = [daemon.session(), daemon.session()];
    let host = sessions[0].worker();
    for session in &mut sessions {
        let context = session.context();
        computes(session, context);
    }
    // Another list of devices needs another context, which the driver refuses.
    let [first, second] = &mut sessions;
    let other = context_on(first, 1);
    first.ping();
    let mut notices = first.heard.notices.iter();
    let refused = notices.find(|notice| notice.id == other).expect("a notice");
    assert_eq!(refused.status, OUT_OF_HOST_MEMORY);
    for session in [first, second] {
        let context = session.context();
        computes(session, context);
    }
    assert_eq!(daemon.session().worker(), host);
}

#[test]
fn memory_that_a_driver_leaks_is_back_when_the_host_has_ended() {
    let settings = SoonIdle::new();
    let driver = "leaks = true\n[[device]]\nmemory = 67108864\n";
    let daemon = Daemon::fake_with(driver, &settings.arguments(), &[]);
    let allocates = || {
        let mut session = daemon.session();
        let context = session.context();
        let (_, status) = allocate(&mut session, context, 40 * MIB);
        computes(&mut session, context);
        (session.worker(), status)
    };
    // Keeps the host.
    let stays = daemon.session();
    let (host, status) = allocates();
    assert_eq!(status, 0);
    let leaked = allocates();
    assert_eq!(leaked, (host, MEM_OBJECT_ALLOCATION_FAILURE));
    drop(stays);
    eventually("the host ends", || {
        std::fs::metadata(format!("/proc/{host}"))
            .is_err()
            .then_some(())
    });
    assert_eq!(allocates().1, 0);
}

/// Side of an image of 4 bytes an element.
const SIDE: u64 = 64;
/// Bytes of each kind of memory: so few that a driver for processors gives them out again soon.
const BYTES: u64 = 4 * SIDE * SIDE;

/// Makes a buffer, an image and shared virtual memory.
fn memories(session: &mut Session, context: u64) -> [u64; 3] {
    const IMAGE_2D: u32 = 0x10F1;
    const RGBA: u32 = 0x10B5;
    const UNSIGNED_INT8: u32 = 0x10DA;
    let buffer = session.buffer(context, BYTES, &[]);
    let [image, svm, request] = [(); 3].map(|()| session.new_id());
    session.send(vec![
        Kind::CreateImage(CreateImage {
            image,
            context,
            flags: 1,
            image_type: IMAGE_2D,
            channel_order: RGBA,
            channel_type: UNSIGNED_INT8,
            width: SIDE,
            rows: SIDE,
            slices: 1,
            ..CreateImage::default()
        }),
        Kind::CreateSvm(CreateSvm {
            request,
            buffer: svm,
            context,
            flags: 1,
            size: BYTES,
            alignment: 64,
        }),
    ]);
    let answer = session.answer(request);
    assert_eq!(answer.status, 0, "{answer:?}");
    [buffer, image, svm]
}

#[test]
fn memory_of_a_session_that_has_ended_is_cleared_for_the_next() {
    let config = tempfile::NamedTempFile::new().unwrap();
    let text = "[sharing]\ntogether = \"user\"\n[sandbox]\nenvironment = [\"MALLOC_*\"]\n";
    std::fs::write(config.path(), text).unwrap();
    let config = ["--config", config.path().to_str().unwrap()];
    let watched = ["--metrics", "127.0.0.1:0"];
    // All threads get memory that any thread has freed.
    let environment = [("MALLOC_ARENA_MAX", "1")];
    let daemon = Daemon::with_both(&[&config[..], &watched].concat(), &environment);
    let stays = daemon.session();
    for _ in 0..4 {
        let mut session = daemon.session();
        assert_eq!(session.workers(), stays.workers());
        let context = session.context();
        let queue = session.queue(context, 0);
        for memory in memories(&mut session, context) {
            let found = session.bytes(queue, memory, 0, BYTES);
            assert!(found.iter().all(|byte| *byte == 0), "another's bytes");
            let event = session.write(queue, &[], memory, 0, &[0xA5; BYTES as usize]);
            assert_eq!(session.wait(event).status, 0);
        }
        drop(session);
        eventually("the session ends", || {
            (daemon.count("causeway_sessions") == 1).then_some(())
        });
    }
}
