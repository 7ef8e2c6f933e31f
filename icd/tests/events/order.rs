//! Tests that a command ends only after earlier ones, in whatever order the node reports ends and the bytes of reads
//! arrive. An application concludes from a command's end that earlier commands have ended.

use std::io::Write;
use std::net::TcpStream;
use std::ptr::{null, null_mut};
use std::sync::{Mutex, MutexGuard, PoisonError, mpsc};

use bytes::Bytes;
use causeway_proto::bulk::{Header, Kind as Piece};
use causeway_proto::command::command::Kind;
use causeway_proto::command::enqueue::Operation;
use causeway_proto::command::{Completion, Enqueue, EventBatch};
use causeway_proto::id::EventId;

use crate::frames::fake_node::{FakeNode, FakeWorker, Faults, PATIENCE};
use crate::frames::opencl::*;

const SMALL: usize = 64;
const LARGE: usize = 64 << 10;

/// The node of this process: the library reads its servers once. A test has the node for itself, and loses its
/// session at the end, so that the next test gets a new one.
static NODE: Mutex<Option<FakeNode>> = Mutex::new(None);

struct Stage {
    cl: Fixture,
    worker: FakeWorker,
    // A queue whose commands only end on request.
    probes: cl_command_queue,
    // Commands that were enqueued, and that the test has not read yet.
    enqueued: std::collections::VecDeque<Enqueue>,
    // User events that the client has set.
    opened: Vec<u64>,
    node: MutexGuard<'static, Option<FakeNode>>,
}

impl Stage {
    fn new(properties: cl_command_queue_properties) -> Stage {
        let mut node = NODE.lock().unwrap_or_else(PoisonError::into_inner);
        let fake = node.get_or_insert_with(|| {
            let fake = FakeNode::start(Faults {
                bulk_connections: 1,
                ..Faults::default()
            });
            configure(&fake.address.to_string());
            fake
        });
        let device = first_device();
        let context = make!(clCreateContext(
            null(),
            1,
            &raw const device,
            None,
            null_mut()
        ))
        .expect("a context");
        let mut cl = Fixture {
            device,
            context,
            queue: null_mut(),
        };
        cl.queue = cl.another_queue(properties);
        Stage {
            probes: cl.another_queue(0),
            worker: fake.worker(),
            cl,
            enqueued: std::collections::VecDeque::new(),
            opened: Vec::new(),
            node,
        }
    }

    /// Enqueues a non-blocking read.
    fn read(&self, queue: cl_command_queue, buffer: cl_mem, host: &mut [u8]) -> cl_event {
        let mut event = null_mut();
        ok!(clEnqueueReadBuffer(
            queue,
            buffer,
            CL_FALSE,
            0,
            host.len(),
            host.as_mut_ptr().cast(),
            0,
            null(),
            &raw mut event
        ));
        ok!(clFlush(queue));
        event
    }

    fn marker(&self, queue: cl_command_queue, wait: &[cl_event]) -> cl_event {
        let mut event = null_mut();
        let list = if wait.is_empty() {
            null()
        } else {
            wait.as_ptr()
        };
        ok!(clEnqueueMarkerWithWaitList(
            queue,
            wait.len() as cl_uint,
            list,
            &raw mut event
        ));
        ok!(clFlush(queue));
        event
    }

    fn receive(&mut self) {
        for command in self.worker.receive().commands {
            match command.kind {
                Some(Kind::Enqueue(enqueue)) => self.enqueued.push_back(enqueue),
                Some(Kind::SetUserEventStatus(set)) => self.opened.push(set.event),
                _ => {}
            }
        }
    }

    /// Returns the next enqueued command.
    fn next_command(&mut self) -> Enqueue {
        while self.enqueued.is_empty() {
            self.receive();
        }
        self.enqueued.pop_front().expect("just looked")
    }

    /// Returns the event id of the next enqueued command.
    fn next(&mut self) -> u64 {
        self.next_command().event
    }

    /// Lets the node report these ends, in this order. Returns when the client has processed all.
    fn tell(&mut self, ends: &[(u64, cl_int, &[u8])]) {
        let probe = self.marker(self.probes, &[]);
        let number = self.next();
        let end = |(event, status, contents): (u64, cl_int, &[u8])| Completion {
            event,
            status,
            contents: Bytes::copy_from_slice(contents),
            ..Completion::default()
        };
        let completions = ends.iter().copied().chain([(number, 0, &[][..])]).map(end);
        self.worker.send(EventBatch {
            completions: completions.collect(),
            ..EventBatch::default()
        });
        ok!(clWaitForEvents(1, &raw const probe));
        ok!(clReleaseEvent(probe));
    }

    fn lane(&self) -> TcpStream {
        self.node.as_ref().expect("started").lane()
    }

    /// Loses the session and waits until the program has noticed.
    fn lose(self) {
        let probe = self.marker(self.probes, &[]);
        self.worker.die();
        assert_eq!(
            code!(clWaitForEvents(1, &raw const probe)),
            CL_EXEC_STATUS_ERROR_FOR_EVENTS_IN_WAIT_LIST
        );
        ok!(clReleaseEvent(probe));
        ok!(clReleaseCommandQueue(self.probes));
    }
}

/// Sends a bulk read's bytes.
fn bytes_of(lane: &mut TcpStream, event: u64, bytes: &[u8]) {
    let header = Header {
        kind: Piece::Data,
        transfer: EventId(event),
        offset: 0,
        length: bytes.len() as u32,
    };
    lane.write_all(&header.encode()).expect("a lane");
    lane.write_all(bytes).expect("a lane");
}

/// Waits as the application does, on a separate thread, so that a wait without end fails the test.
fn ends(event: cl_event) {
    let (tell, told) = mpsc::channel();
    let handle = event.expose_provenance();
    std::thread::spawn(move || {
        let event: cl_event = std::ptr::with_exposed_provenance_mut(handle);
        let _ = tell.send(code!(clWaitForEvents(1, &raw const event)));
    });
    let code = told.recv_timeout(PATIENCE).expect("the wait ends");
    assert_eq!(code, CL_SUCCESS);
}

/// Sends the end of `event` to the channel.
fn heard(event: cl_event) -> mpsc::Receiver<cl_int> {
    extern "C" fn callback(_: cl_event, status: cl_int, to: *mut c_void) {
        // SAFETY: made for this one call below.
        let to = unsafe { Box::from_raw(to.cast::<mpsc::Sender<cl_int>>()) };
        let _ = to.send(status);
    }
    let (to, heard) = mpsc::channel::<cl_int>();
    ok!(clSetEventCallback(
        event,
        CL_COMPLETE,
        Some(callback),
        Box::into_raw(Box::new(to)).cast()
    ));
    heard
}

fn release(events: &[cl_event]) {
    for event in events {
        ok!(clReleaseEvent(*event));
    }
}

#[test]
fn maps_and_unmaps_that_move_nothing_and_that_nobody_can_see_send_nothing() {
    own_process!();
    let mut stage = Stage::new(0);
    let (queue, buffer) = (stage.cl.queue, stage.cl.buffer(0, SMALL));
    let map = |flags, event| {
        make!(clEnqueueMapBuffer(
            queue,
            buffer,
            CL_FALSE,
            flags,
            0,
            SMALL,
            0,
            null(),
            event
        ))
        .expect("a map")
    };
    let unmap = |at| {
        ok!(clEnqueueUnmapMemObject(
            queue,
            buffer,
            at,
            0,
            null(),
            null_mut()
        ));
        ok!(clFlush(queue));
    };
    let mut event = null_mut();
    let at = map(CL_MAP_READ, &raw mut event);
    ok!(clFlush(queue));
    let of_map = stage.next();
    // The bytes are in flight, and the unmap comes after them.
    unmap(at);
    let of_unmap = stage.next();
    stage.tell(&[(of_map, 0, &pattern(1, SMALL)), (of_unmap, 0, &[])]);
    ok!(clReleaseEvent(event));

    // The bytes are there, so the unmap has nothing to wait for, and neither has a map that fetches no bytes.
    let at = map(CL_MAP_READ, &raw mut event);
    ok!(clFlush(queue));
    let of_map = stage.next();
    stage.tell(&[(of_map, 0, &pattern(2, SMALL))]);
    unmap(at);
    let at = map(CL_MAP_WRITE_INVALIDATE_REGION, null_mut());
    let marker = stage.marker(queue, &[]);
    let next = stage.next_command();
    assert!(
        matches!(next.operation, Some(Operation::Marker(_))),
        "{next:?}"
    );
    ok!(clReleaseEvent(event));

    // Behind the marker, such a map has to wait, and the written bytes are sent.
    unmap(at);
    let at = map(CL_MAP_WRITE_INVALIDATE_REGION, null_mut());
    ok!(clFlush(queue));
    let (written, of_map) = (stage.next_command(), stage.next());
    assert!(
        matches!(written.operation, Some(Operation::WriteBuffer(_))),
        "{written:?}"
    );
    stage.tell(&[
        (next.event, 0, &[]),
        (written.event, 0, &[]),
        (of_map, 0, &[]),
    ]);
    assert_eq!(status_of(marker), CL_COMPLETE);
    ok!(clReleaseEvent(marker));
    unmap(at);
    let of_unmap = stage.next();
    stage.tell(&[(of_unmap, 0, &[])]);

    // The node reports the end of an event that the application has.
    let at = map(CL_MAP_WRITE_INVALIDATE_REGION, &raw mut event);
    ok!(clFlush(queue));
    let of_map = stage.next();
    stage.tell(&[(of_map, 0, &[])]);
    ends(event);
    ok!(clReleaseEvent(event));
    unmap(at);
    ok!(clReleaseMemObject(buffer));
    stage.lose();
}

#[test]
fn an_in_order_queue_ends_in_order() {
    own_process!();
    let mut stage = Stage::new(0);
    let buffer = stage.cl.buffer(0, SMALL);
    let mut host = vec![0; SMALL];
    let read = stage.read(stage.cl.queue, buffer, &mut host);
    let first = stage.marker(stage.cl.queue, &[]);
    let second = stage.marker(stage.cl.queue, &[]);
    let [of_read, of_first, of_second] = [stage.next(), stage.next(), stage.next()];
    let heard = heard(second);
    stage.tell(&[(of_second, 0, &[]), (of_first, 0, &[])]);
    assert_eq!(
        [read, first, second].map(status_of),
        [CL_SUBMITTED; 3],
        "nothing has overtaken the read"
    );
    heard.try_recv().expect_err("no callback before its time");
    let (tell, told) = mpsc::channel();
    let handle = second.expose_provenance();
    let waiter = std::thread::spawn(move || {
        let event: cl_event = std::ptr::with_exposed_provenance_mut(handle);
        let _ = tell.send(code!(clWaitForEvents(1, &raw const event)));
    });
    told.try_recv().expect_err("a wait lasts");
    stage.tell(&[(of_read, 0, &pattern(1, SMALL))]);
    assert_eq!([read, first, second].map(status_of), [CL_COMPLETE; 3]);
    assert_eq!(host, pattern(1, SMALL));
    assert_eq!(told.recv_timeout(PATIENCE), Ok(CL_SUCCESS));
    assert_eq!(heard.recv_timeout(PATIENCE), Ok(CL_COMPLETE));
    waiter.join().expect("the waiting thread ends");
    release(&[read, first, second]);
    ok!(clReleaseMemObject(buffer));
    stage.lose();
}

#[test]
fn nothing_overtakes_a_large_read_whose_bytes_are_on_their_way() {
    own_process!();
    // The order comes from the queue, from a wait list on another queue, or from a marker or barrier of an
    // out-of-order queue.
    for case in ["in order", "wait list", "marker", "barrier"] {
        let properties = match case {
            "marker" | "barrier" => CL_QUEUE_OUT_OF_ORDER_EXEC_MODE_ENABLE,
            _ => 0,
        };
        let mut stage = Stage::new(properties);
        let other = stage.cl.another_queue(0);
        let buffer = stage.cl.buffer(0, LARGE);
        let mut host = vec![0; LARGE];
        let read = stage.read(stage.cl.queue, buffer, &mut host);
        let of_read = stage.next();
        let mut of_later = Vec::new();
        let later = match case {
            "wait list" => stage.marker(other, &[read]),
            "barrier" => {
                ok!(clEnqueueBarrierWithWaitList(
                    stage.cl.queue,
                    0,
                    null(),
                    null_mut()
                ));
                let gone = stage.marker(stage.cl.queue, &[read]);
                of_later.push((stage.next(), 0, &[][..]));
                gone
            }
            _ => stage.marker(stage.cl.queue, &[]),
        };
        of_later.push((stage.next(), 0, &[]));
        of_later.push((of_read, 0, &[]));
        let mut lane = stage.lane();
        stage.tell(&of_later);
        assert_eq!([read, later].map(status_of), [CL_SUBMITTED; 2], "{case}");
        bytes_of(&mut lane, of_read, &pattern(1, LARGE));
        ends(later);
        assert_eq!(status_of(read), CL_COMPLETE, "{case}");
        assert!(host == pattern(1, LARGE), "{case}");
        release(&[read, later]);
        ok!(clReleaseCommandQueue(other));
        ok!(clReleaseMemObject(buffer));
        stage.lose();
    }
}

// The marker's completion has arrived, and the bytes of the read before it have not. A command behind the marker
// still follows the read.
#[test]
fn a_write_behind_a_hidden_end_waits_for_the_read_before_it() {
    own_process!();
    let mut stage = Stage::new(0);
    let (queue, other) = (stage.cl.queue, stage.cl.another_queue(0));
    let (buffer, target) = (stage.cl.buffer(0, LARGE), stage.cl.buffer(0, SMALL));
    let mut host = vec![0; LARGE];
    let user = make!(clCreateUserEvent(stage.cl.context)).expect("a user event");
    let mut read = null_mut();
    ok!(clEnqueueReadBuffer(
        queue,
        buffer,
        CL_FALSE,
        0,
        LARGE,
        host.as_mut_ptr().cast(),
        1,
        &raw const user,
        &raw mut read
    ));
    let marker = stage.marker(queue, &[]);
    let (of_read, of_marker) = (stage.next(), stage.next());
    ok!(clSetUserEventStatus(user, CL_COMPLETE));
    let mut lane = stage.lane();
    stage.tell(&[(of_read, 0, &[]), (of_marker, 0, &[])]);
    assert_eq!([read, marker].map(status_of), [CL_SUBMITTED; 2]);
    let mut write = null_mut();
    ok!(clEnqueueWriteBuffer(
        other,
        target,
        CL_FALSE,
        0,
        SMALL,
        host.as_ptr().cast(),
        1,
        &raw const marker,
        &raw mut write
    ));
    ok!(clFlush(other));
    let command = stage.next_command();
    let Some(Operation::WriteBuffer(written)) = command.operation else {
        panic!("no write: {:?}", command.operation);
    };
    assert!(
        written.bulk && !written.eager,
        "the bytes are not there yet"
    );
    let [of_first, gate] = command.wait[..] else {
        panic!("waits for {:?}", command.wait);
    };
    assert_eq!(of_first, of_marker);
    assert!(!stage.opened.contains(&gate), "bytes are still to come");
    bytes_of(&mut lane, of_read, &pattern(1, LARGE));
    while !stage.opened.contains(&gate) {
        stage.receive();
    }
    assert!(host == pattern(1, LARGE));
    release(&[user, read, marker, write]);
    ok!(clReleaseCommandQueue(other));
    ok!(clReleaseMemObject(buffer));
    ok!(clReleaseMemObject(target));
    stage.lose();
}

#[test]
fn a_large_read_leaves_the_node_when_nothing_else_is_on_its_way_to_its_memory() {
    own_process!();
    let mut stage = Stage::new(0);
    let queue = stage.cl.queue;
    let buffer = stage.cl.buffer(0, LARGE);
    let mut host = vec![0; LARGE];
    let first = stage.read(queue, buffer, &mut host[..LARGE - 1]);
    let beside = stage.read(queue, buffer, &mut host[LARGE - 1..]);
    let second = stage.read(queue, buffer, &mut host);
    let (of_first, of_beside) = (stage.next(), stage.next());
    let command = stage.next_command();
    let [gate] = command.wait[..] else {
        panic!("waits for {:?}", command.wait);
    };
    let mut lane = stage.lane();
    stage.tell(&[(of_first, 0, &[]), (of_beside, 0, &[7])]);
    assert!(!stage.opened.contains(&gate), "bytes are still to come");
    bytes_of(&mut lane, of_first, &pattern(1, LARGE - 1));
    while !stage.opened.contains(&gate) {
        stage.receive();
    }
    bytes_of(&mut lane, command.event, &pattern(2, LARGE));
    stage.tell(&[(command.event, 0, &[])]);
    ends(second);
    assert!(host == pattern(2, LARGE));
    release(&[first, beside, second]);
    ok!(clReleaseMemObject(buffer));
    stage.lose();
}

#[test]
fn what_an_out_of_order_queue_does_not_order_ends_as_it_comes() {
    own_process!();
    let mut stage = Stage::new(CL_QUEUE_OUT_OF_ORDER_EXEC_MODE_ENABLE);
    let buffer = stage.cl.buffer(0, SMALL);
    let (mut one, mut two) = (vec![0; SMALL], vec![0; SMALL]);
    let reads = [
        stage.read(stage.cl.queue, buffer, &mut one),
        stage.read(stage.cl.queue, buffer, &mut two),
    ];
    let [first, second] = [stage.next(), stage.next()];
    stage.tell(&[(second, 0, &pattern(1, SMALL))]);
    assert_eq!(reads.map(status_of), [CL_SUBMITTED, CL_COMPLETE]);
    stage.tell(&[(first, 0, &pattern(1, SMALL))]);
    assert_eq!(reads.map(status_of), [CL_COMPLETE; 2]);
    release(&reads);
    ok!(clReleaseMemObject(buffer));
    stage.lose();
}

#[test]
fn a_failure_is_told_at_once_and_lets_nothing_overtake_what_came_before_it() {
    own_process!();
    let mut stage = Stage::new(0);
    let other = stage.cl.another_queue(0);
    let queue = stage.cl.queue;
    let gate = stage.cl.user_event();
    let gated = stage.marker(queue, &[gate]);
    let failing = stage.marker(queue, &[]);
    let after = stage.marker(queue, &[]);
    // This command is on the other queue, whose order does not know the gate.
    let dependant = stage.marker(other, &[failing]);
    let free = stage.marker(other, &[]);
    let numbers: [u64; 5] = std::array::from_fn(|_| stage.next());
    let [of_gated, of_failing, of_after, of_dependant, of_free] = numbers;
    stage.tell(&[
        (of_free, 0, &[]),
        (of_after, 0, &[]),
        (of_failing, CL_OUT_OF_RESOURCES, &[]),
        (
            of_dependant,
            CL_EXEC_STATUS_ERROR_FOR_EVENTS_IN_WAIT_LIST,
            &[],
        ),
    ]);
    assert_eq!(
        [gated, failing, after, dependant, free].map(status_of),
        [
            CL_SUBMITTED,
            CL_OUT_OF_RESOURCES,
            CL_SUBMITTED,
            CL_EXEC_STATUS_ERROR_FOR_EVENTS_IN_WAIT_LIST,
            CL_COMPLETE
        ]
    );
    ok!(clSetUserEventStatus(gate, CL_COMPLETE));
    stage.tell(&[(of_gated, 0, &[])]);
    assert_eq!([gated, after].map(status_of), [CL_COMPLETE; 2]);
    release(&[gate, gated, failing, after, dependant, free]);
    ok!(clReleaseCommandQueue(other));
    stage.lose();
}

#[test]
fn a_long_queue_that_ends_backwards_ends() {
    own_process!();
    const COMMANDS: usize = 20_000;
    let mut stage = Stage::new(0);
    for _ in 0..COMMANDS {
        ok!(clEnqueueMarkerWithWaitList(
            stage.cl.queue,
            0,
            null(),
            null_mut()
        ));
    }
    let last = stage.marker(stage.cl.queue, &[]);
    let mut ends: Vec<(u64, cl_int, &[u8])> = Vec::new();
    ends.extend((0..=COMMANDS).map(|_| (stage.next(), 0, &[][..])));
    ends.reverse();
    let first = ends.pop().expect("many");
    stage.tell(&ends);
    assert_eq!(status_of(last), CL_SUBMITTED);
    stage.tell(&[first]);
    assert_eq!(status_of(last), CL_COMPLETE);
    stage.cl.finish();
    release(&[last]);
    stage.lose();
}

#[test]
fn a_lost_session_leaves_nothing_open() {
    own_process!();
    let mut stage = Stage::new(0);
    let queue = stage.cl.queue;
    let events: [cl_event; 3] = std::array::from_fn(|_| stage.marker(queue, &[]));
    let [_, second, _] = [stage.next(), stage.next(), stage.next()];
    stage.tell(&[(second, 0, &[])]);
    stage.lose();
    // The node has executed the second command.
    assert_eq!(
        events.map(status_of),
        [
            CL_DEVICE_NOT_AVAILABLE,
            CL_COMPLETE,
            CL_DEVICE_NOT_AVAILABLE
        ]
    );
    release(&events);
}
