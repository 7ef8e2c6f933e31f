//! Tests bulk lanes when the system starts no more threads: no lane opens that nobody would read, and a session that
//! needs none lives.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

use causeway::config::Carrier;
use causeway::transport::{HostRegion, Session};
use causeway_proto::bulk::{HEADER, Header, Kind};
use causeway_proto::id::EventId;
use causeway_proto::region::Region;

use crate::frames::fake_node::upper::{Upper, command};
use crate::frames::fake_node::{FakeNode, Faults, PATIENCE};

const EVENT: EventId = EventId(77);
/// The stack size of the session's threads, which distinguishes them from the fake node's.
const SMALL: usize = 256 << 10;
const NO_LIMIT: usize = usize::MAX / 2;

static LEFT: AtomicUsize = AtomicUsize::new(NO_LIMIT);
static REFUSED: AtomicUsize = AtomicUsize::new(0);

type Create = unsafe extern "C" fn(
    *mut libc::pthread_t,
    *const libc::pthread_attr_t,
    extern "C" fn(*mut libc::c_void) -> *mut libc::c_void,
    *mut libc::c_void,
) -> libc::c_int;

/// Replaces the system's function, which `std` calls.
#[unsafe(no_mangle)]
unsafe extern "C" fn pthread_create(
    thread: *mut libc::pthread_t,
    attributes: *const libc::pthread_attr_t,
    start: extern "C" fn(*mut libc::c_void) -> *mut libc::c_void,
    argument: *mut libc::c_void,
) -> libc::c_int {
    let mut stack = 0;
    if !attributes.is_null() {
        // SAFETY: the caller's attributes.
        unsafe { libc::pthread_attr_getstacksize(attributes, &raw mut stack) };
    }
    let take = |left: usize| left.checked_sub(1);
    if stack == SMALL
        && LEFT
            .fetch_update(Ordering::SeqCst, Ordering::SeqCst, take)
            .is_err()
    {
        REFUSED.fetch_add(1, Ordering::SeqCst);
        return libc::EAGAIN;
    }
    // SAFETY: a name that every libc has.
    let real = unsafe { libc::dlsym(libc::RTLD_NEXT, c"pthread_create".as_ptr()) };
    assert!(!real.is_null());
    // SAFETY: that function's signature, and the caller's arguments.
    unsafe {
        std::mem::transmute::<*mut libc::c_void, Create>(real)(thread, attributes, start, argument)
    }
}

// These tests run one after the other, because they count the process's threads.
#[test]
fn lanes_and_their_threads() {
    own_process!();
    a_lane_without_threads_is_not_opened();
    no_thread_ahead_of_need_is_no_loss();
}

fn upload(session: &Session, bytes: &Arc<Vec<u8>>) {
    let region = Region::linear(0, bytes.len() as u64).unwrap();
    // SAFETY: the transfer keeps them.
    let source = unsafe { HostRegion::new(bytes.as_ptr().cast_mut(), region) };
    session.upload(EVENT, source, bytes.clone(), None).unwrap();
}

// The worker requests the bytes on the first lane, and gets them. If that lane ended, the session would end.
fn serve(fake: &FakeNode, bytes: &[u8]) -> TcpStream {
    let mut lane = fake.lane();
    let credit = Header {
        kind: Kind::Credit,
        transfer: EVENT,
        offset: bytes.len() as u64,
        length: 0,
    };
    lane.write_all(&credit.encode()).unwrap();
    let mut header = [0; HEADER];
    lane.read_exact(&mut header).unwrap();
    assert_eq!(Header::decode(&header).unwrap().kind, Kind::Data);
    let mut got = vec![0; bytes.len()];
    lane.read_exact(&mut got).unwrap();
    assert!(got == bytes);
    lane
}

fn a_lane_without_threads_is_not_opened() {
    let bytes = Arc::new(vec![7; 1000]);
    let mut served = Vec::new();
    // One thread opens lanes, and each lane needs two.
    for threads in 0..8 {
        // With one lane, the test knows where the bytes arrive.
        let fake = FakeNode::start(Faults {
            bulk_connections: 1,
            ..Faults::default()
        });
        let upper = Upper::new();
        let (_node, session, _worker) = fake.open(Carrier::Direct, &upper);
        LEFT.store(threads, Ordering::SeqCst);
        upload(&session, &bytes);
        wait_for(|| fake.lanes_asked() > 0 || session.is_lost().is_some());
        if fake.lanes_asked() > 0 {
            let _lane = serve(&fake, &bytes);
            assert_eq!(session.is_lost(), None);
        } else {
            let error = upper.loss().to_string();
            assert!(error.contains("thread"), "{error}");
        }
        served.push(fake.lanes_asked() > 0);
        LEFT.store(NO_LIMIT, Ordering::SeqCst);
    }
    assert!(
        !served[0] && !served[1] && !served[2] && served[7],
        "{served:?}"
    );
    assert!(served.is_sorted(), "{served:?}");
}

fn no_thread_ahead_of_need_is_no_loss() {
    let bytes = Arc::new(vec![9; 1000]);
    let fake = FakeNode::start(Faults {
        bulk_connections: 1,
        ..Faults::default()
    });
    let (_node, session, _worker) = fake.open(Carrier::Direct, &Upper::new());
    let before = REFUSED.load(Ordering::SeqCst);
    LEFT.store(0, Ordering::SeqCst);
    session.expect_transfers();
    session.send(&command(1)).unwrap();
    wait_for(|| REFUSED.load(Ordering::SeqCst) > before);
    LEFT.store(NO_LIMIT, Ordering::SeqCst);
    // The lane opens when the next transfer needs it.
    upload(&session, &bytes);
    let _lane = serve(&fake, &bytes);
    assert_eq!(session.is_lost(), None);
}

fn wait_for(condition: impl Fn() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !condition() {
        assert!(Instant::now() < deadline, "not in time");
        std::thread::yield_now();
    }
}
