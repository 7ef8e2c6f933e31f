//! Tests of the client's copy of a buffer of several nodes. Bytes arrive there in the order of the commands. A map
//! ends when its bytes have arrived, in whatever order the nodes report ends.

use std::collections::VecDeque;
use std::ptr::{null, null_mut};

use bytes::Bytes;
use causeway_proto::command::command::Kind;
use causeway_proto::command::enqueue::Operation;
use causeway_proto::command::{Completion, Enqueue, EventBatch};

use crate::frames::fake_node::{FakeNode, FakeWorker, Faults};
use crate::frames::opencl::*;

const SIZE: usize = 64;

struct Side {
    worker: FakeWorker,
    queue: cl_command_queue,
    probes: cl_command_queue,
    enqueued: VecDeque<Enqueue>,
    opened: Vec<u64>,
    // The ids of the queues on the wire, in the order of their creation.
    queues: Vec<u64>,
}

impl Side {
    fn receive(&mut self) {
        for command in self.worker.receive().commands {
            match command.kind {
                Some(Kind::Enqueue(enqueue)) => self.enqueued.push_back(enqueue),
                Some(Kind::SetUserEventStatus(set)) => self.opened.push(set.event),
                Some(Kind::CreateQueue(queue)) => self.queues.push(queue.queue),
                _ => {}
            }
        }
    }

    fn next(&mut self) -> Enqueue {
        while self.enqueued.is_empty() {
            self.receive();
        }
        self.enqueued.pop_front().expect("just looked")
    }

    fn next_read(&mut self) -> Enqueue {
        loop {
            let next = self.next();
            if matches!(next.operation, Some(Operation::ReadBuffer(_))) {
                return next;
            }
        }
    }

    /// Lets the node report these ends. Returns when the client has processed all.
    fn tell(&mut self, ends: &[(u64, &[u8])]) {
        let mut probe = null_mut();
        ok!(clEnqueueMarkerWithWaitList(
            self.probes,
            0,
            null(),
            &raw mut probe
        ));
        ok!(clFlush(self.probes));
        let mut number = self.next();
        while number.queue != self.queues[1] {
            number = self.next();
        }
        let end = |(event, contents): (u64, &[u8])| Completion {
            event,
            contents: Bytes::copy_from_slice(contents),
            ..Completion::default()
        };
        let ends = ends.iter().copied().chain([(number.event, &[][..])]);
        self.worker.send(EventBatch {
            completions: ends.map(end).collect(),
            ..EventBatch::default()
        });
        ok!(clWaitForEvents(1, &raw const probe));
        ok!(clReleaseEvent(probe));
    }
}

/// A context over two fake nodes that the test controls, and a buffer in it.
fn stage() -> (cl_mem, [Side; 2]) {
    let faults = |number: u8| Faults {
        uuid: [number; 16],
        bulk_connections: 1,
        ..Faults::default()
    };
    let nodes = [FakeNode::start(faults(1)), FakeNode::start(faults(2))];
    configure(&format!("{},{}", nodes[0].address, nodes[1].address));
    let (mut platform, mut devices) = (null_mut(), [null_mut(); 2]);
    ok!(clGetPlatformIDs(1, &raw mut platform, null_mut()));
    ok!(clGetDeviceIDs(
        platform,
        CL_DEVICE_TYPE_ALL,
        2,
        devices.as_mut_ptr(),
        null_mut()
    ));
    let context = make!(clCreateContext(
        null(),
        2,
        devices.as_ptr(),
        None,
        null_mut()
    ))
    .expect("a context");
    let sides = [0, 1].map(|at| {
        let queue = || make!(clCreateCommandQueue(context, devices[at], 0)).expect("a queue");
        Side {
            worker: nodes[at].worker(),
            queue: queue(),
            probes: queue(),
            enqueued: VecDeque::new(),
            opened: Vec::new(),
            queues: Vec::new(),
        }
    });
    // The nodes serve until the process ends.
    std::mem::forget(nodes);
    let buffer = make!(clCreateBuffer(context, 0, SIZE, null_mut())).expect("a buffer");
    (buffer, sides)
}

fn write(queue: cl_command_queue, buffer: cl_mem, bytes: &[u8]) {
    ok!(clEnqueueWriteBuffer(
        queue,
        buffer,
        CL_FALSE,
        0,
        bytes.len(),
        bytes.as_ptr().cast(),
        0,
        null(),
        null_mut()
    ));
}

fn migrate_to_host(queue: cl_command_queue, buffer: cl_mem) {
    let flags = CL_MIGRATE_MEM_OBJECT_HOST;
    ok!(clEnqueueMigrateMemObjects(
        queue,
        1,
        &raw const buffer,
        flags,
        0,
        null(),
        null_mut()
    ));
    ok!(clFlush(queue));
}

/// Makes a non-blocking map for reading.
fn map(queue: cl_command_queue, buffer: cl_mem) -> (*const u8, cl_event) {
    let mut event = null_mut();
    let at = make!(clEnqueueMapBuffer(
        queue,
        buffer,
        CL_FALSE,
        CL_MAP_READ,
        0,
        SIZE,
        0,
        null(),
        &raw mut event
    ));
    ok!(clFlush(queue));
    (at.expect("a map").cast_const().cast(), event)
}

fn contents(at: *const u8) -> Vec<u8> {
    // SAFETY: a map of that many bytes, which has ended.
    unsafe { std::slice::from_raw_parts(at, SIZE) }.to_vec()
}

#[test]
fn a_map_ends_when_its_bytes_have_landed_in_order() {
    own_process!();
    let (buffer, [mut one, mut other]) = stage();
    write(one.queue, buffer, &pattern(1, SIZE));
    migrate_to_host(one.queue, buffer);
    let first = one.next_read();

    // Its bytes are in flight to the client, on behalf of the migration.
    let (at, mapped) = map(other.queue, buffer);
    let marker = other.next();
    other.tell(&[(marker.event, &[])]);
    assert_eq!(status_of(mapped), CL_SUBMITTED, "they have not landed");

    // These newer bytes must not arrive before the older ones.
    let (again, mapped_again) = {
        write(one.queue, buffer, &pattern(2, SIZE));
        map(one.queue, buffer)
    };
    let second = one.next_read();
    let gate = *second.wait.last().expect("waits for those");
    assert!(!one.opened.contains(&gate));

    one.tell(&[(first.event, &pattern(1, SIZE))]);
    assert_eq!(status_of(mapped), CL_COMPLETE);
    while !one.opened.contains(&gate) {
        one.receive();
    }
    assert_eq!(contents(at), pattern(1, SIZE));
    assert_eq!(status_of(mapped_again), CL_SUBMITTED);
    one.tell(&[(second.event, &pattern(2, SIZE))]);
    assert_eq!(contents(again), pattern(2, SIZE));
}
