//! Tests of a client whose worker dies: which ends of connections it takes for a death.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::slice;
use std::sync::Arc;
use std::time::Duration;

use causeway::config::{Carrier, Hold};
use causeway::transport::{HostRegion, Node, Session};
use causeway_proto::bulk::{self, CHECKPOINT, HEADER, Header};
use causeway_proto::command::command::Kind;
use causeway_proto::command::{
    ClientCheckpoint, CommandBatch, CreateKernel, CreateQueue, Enqueue, EventBatch, Holder,
    NdRange, Parking, ReadBuffer, Recorded, enqueue::Operation,
};
use causeway_proto::id::EventId;
use causeway_proto::limits::BULK_CHUNK;
use causeway_proto::preamble::{REEXECUTES, WANTS_RECORD};
use causeway_proto::region::Region;

use crate::frames::fake_node::bulk::{Bulk, EVENT, memory_is, pattern, say, send, wait_for};
use crate::frames::fake_node::upper::{Upper, command, completed, number};
use crate::frames::fake_node::{FakeNode, FakeWorker, Faults};

const LAUNCH: u64 = 9;

fn node() -> FakeNode {
    FakeNode::start(Faults {
        resume_ms: 60_000,
        reexecutes: true,
        ..Faults::default()
    })
}

/// A kernel that does not end.
fn commands() -> Vec<Kind> {
    let queue = CreateQueue {
        queue: 1,
        ..CreateQueue::default()
    };
    let kernel = CreateKernel {
        kernel: 2,
        name: "endless".to_owned(),
        ..CreateKernel::default()
    };
    let launch = NdRange {
        kernel: 2,
        ..NdRange::default()
    };
    let launch = Enqueue {
        queue: 1,
        event: LAUNCH,
        operation: Some(Operation::NdRange(launch)),
        ..Enqueue::default()
    };
    vec![
        Kind::CreateQueue(queue),
        Kind::CreateKernel(kernel),
        Kind::Enqueue(launch),
    ]
}

/// Opens a session whose worker has the commands.
fn executing(
    fake: &FakeNode,
    carrier: Carrier,
    upper: &Arc<Upper>,
) -> (Arc<Node>, Arc<Session>, FakeWorker) {
    let (node, session, mut worker) = fake.open(carrier, upper);
    for kind in commands() {
        session.send_now(&kind).unwrap();
    }
    let mut received = 0;
    while received < commands().len() {
        received += worker.receive().commands.len();
    }
    (node, session, worker)
}

/// Receives the record, which is empty, and the commands.
fn receive_all(worker: &mut FakeWorker) {
    assert_eq!(worker.receive().recorded(), Recorded::Last);
    let mut received = Vec::new();
    while received.len() < commands().len() {
        received.extend(worker.receive().commands);
    }
    let kinds: Vec<_> = received.into_iter().filter_map(|of| of.kind).collect();
    assert_eq!(kinds, commands());
}

#[test]
fn connections_that_break_again_and_again_are_no_deaths() {
    let fake = node();
    let upper = Upper::new();
    let (_node, session, mut worker) = executing(&fake, Carrier::Direct, &upper);
    // The first death. The connections to the next worker break before it has put the session together.
    fake.set_position(WANTS_RECORD | REEXECUTES);
    fake.set_incarnation(2);
    for _ in 0..4 {
        worker.die();
        worker = fake.worker();
        receive_all(&mut worker);
    }
    worker.send(EventBatch {
        applied: 3,
        ..completed(LAUNCH, 0)
    });
    assert_eq!(upper.completion(LAUNCH).status, 0);
    assert!(session.is_lost().is_none());
}

#[test]
fn a_kernel_at_which_two_workers_die_is_not_executed_again() {
    let fake = node();
    let upper = Upper::new();
    let (_node, _session, worker) = executing(&fake, Carrier::Direct, &upper);
    fake.set_position(WANTS_RECORD | REEXECUTES);
    fake.set_incarnation(2);
    worker.die();
    let mut worker = fake.worker();
    receive_all(&mut worker);
    fake.set_incarnation(3);
    worker.die();
    let loss = upper.loss().to_string();
    assert!(
        loss.contains("died 2 times at the kernel `endless`"),
        "{loss}"
    );
}

#[test]
fn a_daemons_deaths_are_no_deaths_at_a_kernel() {
    let fake = node();
    let upper = Upper::new();
    let (_node, session, mut worker) = executing(&fake, Carrier::Direct, &upper);
    fake.set_position(WANTS_RECORD | REEXECUTES);
    for incarnation in 2..5 {
        fake.set_incarnation(incarnation);
        fake.lose_session();
        worker.die();
        worker = fake.worker();
        receive_all(&mut worker);
    }
    assert_eq!(fake.sessions_opened(), 4);
    worker.send(EventBatch {
        applied: 3,
        ..completed(LAUNCH, 0)
    });
    assert_eq!(upper.completion(LAUNCH).status, 0);
    assert!(session.is_lost().is_none());
}

#[test]
fn a_kernel_during_which_four_daemons_end_is_not_executed_again() {
    let fake = node();
    let upper = Upper::new();
    let (_node, _session, mut worker) = executing(&fake, Carrier::Direct, &upper);
    fake.set_position(WANTS_RECORD | REEXECUTES);
    for incarnation in 2..5 {
        fake.set_incarnation(incarnation);
        fake.lose_session();
        worker.die();
        worker = fake.worker();
        receive_all(&mut worker);
    }
    fake.set_incarnation(5);
    fake.lose_session();
    worker.die();
    let loss = upper.loss().to_string();
    assert!(
        loss.contains("daemon ended 4 times during the kernel `endless`"),
        "{loss}"
    );
}

#[test]
fn a_worker_that_dies_between_both_connections_dies_at_no_command() {
    for carrier in [Carrier::Direct, Carrier::Grpc] {
        let fake = node();
        let upper = Upper::new();
        let (_node, session, worker) = executing(&fake, carrier, &upper);
        // The client's heartbeat connection leads to the second worker, and its command connection to the third.
        fake.set_position(WANTS_RECORD | REEXECUTES);
        fake.set_incarnation(2);
        fake.die_after_heartbeat(3);
        worker.die();
        let mut worker = fake.worker();
        receive_all(&mut worker);
        worker.send(EventBatch {
            applied: 3,
            ..completed(LAUNCH, 0)
        });
        assert_eq!(upper.completion(LAUNCH).status, 0);
        assert!(session.is_lost().is_none());
    }
}

fn header_of(lane: &mut TcpStream) -> Header {
    let mut header = [0; HEADER];
    lane.read_exact(&mut header).unwrap();
    Header::decode(&header).unwrap()
}

#[test]
fn an_acknowledgement_of_a_dead_workers_lane_goes_to_no_other_worker() {
    const CHUNKS: usize = 16;
    const READ: EventId = EventId(EVENT.0 + 1);
    let bulk = Bulk::new(Faults {
        bulk_connections: 1,
        resume_ms: 60_000,
        reexecutes: true,
        ..Faults::default()
    });
    // The node reads none of the upload's bytes, so they keep the lane's writer busy.
    let upload = Arc::new(vec![1; 64 << 20]);
    bulk.upload(&upload, Region::linear(0, upload.len() as u64).unwrap());
    let mut lane = bulk.fake.lane();
    say(&mut lane, bulk::Kind::Credit, u64::MAX);
    assert_eq!(header_of(&mut lane).kind, bulk::Kind::Data);
    // Each chunk is worth an acknowledgement. The last byte is missing, so the read does not end.
    let mut memory = vec![0; CHUNKS * BULK_CHUNK + 1];
    let region = Region::linear(0, memory.len() as u64).unwrap();
    // SAFETY: the test keeps the memory longer than the node sends bytes of the read.
    let target = unsafe { HostRegion::new(memory.as_mut_ptr(), region) };
    bulk.session.download(READ, target).unwrap();
    let chunk = vec![2; BULK_CHUNK];
    for at in 0..CHUNKS {
        let header = Header {
            kind: bulk::Kind::Data,
            transfer: READ,
            offset: (at * BULK_CHUNK) as u64,
            length: BULK_CHUNK as u32,
        };
        lane.write_all(&header.encode()).unwrap();
        lane.write_all(&chunk).unwrap();
    }
    // The acknowledgements of the chunks before the last have been left to the writer.
    wait_for(|| memory_is(&memory, CHUNKS * BULK_CHUNK - 1, 2));

    bulk.fake.set_position(WANTS_RECORD | REEXECUTES);
    bulk.fake.set_incarnation(2);
    bulk.worker.die();
    let mut worker = bulk.fake.worker();
    assert_eq!(worker.receive().recorded(), Recorded::Last);
    let mut lane = bulk.fake.lane();
    say(&mut lane, bulk::Kind::Credit, u64::MAX);
    let first = header_of(&mut lane);
    assert_eq!((first.kind, first.transfer), (bulk::Kind::Data, EVENT));
    assert!(bulk.session.is_lost().is_none());
}

/// Lets another worker take the place of the present one.
fn next_worker(fake: &FakeNode, worker: FakeWorker, incarnation: u64) -> FakeWorker {
    fake.set_position(WANTS_RECORD | REEXECUTES);
    fake.set_incarnation(incarnation);
    worker.die();
    let mut worker = fake.worker();
    worker.begin_behind(*fake.positions().last().unwrap());
    assert_eq!(worker.receive().recorded(), Recorded::Last);
    worker
}

fn survives() -> Faults {
    Faults {
        resume_ms: 60_000,
        reexecutes: true,
        ..Faults::default()
    }
}

#[test]
fn a_write_during_which_the_worker_dies_comes_whole_from_memory_and_then_from_the_log() {
    const LENGTH: usize = 8 * BULK_CHUNK + 5;
    let mut bulk = Bulk::new(survives());
    let written = pattern(LENGTH);
    let mut memory = written.clone();
    let program = memory.as_mut_ptr();
    let region = Region::linear(0, LENGTH as u64).unwrap();
    // SAFETY: the test keeps the memory longer than the session sends bytes of it.
    let source = unsafe { HostRegion::new(program, region) };
    let keep = Arc::new(());
    bulk.session.upload(EVENT, source, keep, None).unwrap();
    let [mut lane, _other] = bulk.lanes();
    say(&mut lane, bulk::Kind::Credit, u64::MAX);
    // The lanes copy and send. The node reads one header only, so the sockets are soon full.
    lane.read_exact(&mut [0; HEADER]).unwrap();
    for incarnation in 2..=3 {
        bulk.worker = next_worker(&bulk.fake, bulk.worker, incarnation);
        let (mut lanes, arrivals) = bulk.lanes_read();
        say(&mut lanes[0], bulk::Kind::Credit, u64::MAX);
        let mut got = vec![0; LENGTH];
        arrivals.fill(&mut got, LENGTH);
        assert!(got == written, "worker {incarnation}");
        // The second worker has all bytes, so a read may overwrite them before the write's end is reported.
        // SAFETY: no lane reads the memory now, because all bytes have left.
        unsafe { program.write_bytes(0xee, LENGTH) };
    }
    assert!(bulk.session.is_lost().is_none());
}

/// A bulk read of buffer 3.
fn read(length: usize) -> Kind {
    let region = Region::linear(0, length as u64).unwrap();
    let read = ReadBuffer {
        buffer: 3,
        region: Some(region.to_wire()),
        bulk: true,
    };
    Kind::Enqueue(Enqueue {
        queue: 1,
        event: EVENT.0,
        operation: Some(Operation::ReadBuffer(read)),
        ..Enqueue::default()
    })
}

/// Receives the read, sends its bytes over both lanes, the chunk with the number `first` first, and then its end. The lanes
/// must stay open: bytes that the client has not read yet may be lost with them.
#[must_use]
fn answer_read(bulk: &mut Bulk, bytes: &[u8], first: usize) -> [TcpStream; 2] {
    let commands = receive_commands(&mut bulk.worker, 1);
    assert_eq!(commands, [read(bytes.len())]);
    let mut lanes = bulk.lanes();
    let chunks = bytes.len().div_ceil(BULK_CHUNK);
    for at in 0..chunks {
        let from = (first + at) % chunks * BULK_CHUNK;
        let to = bytes.len().min(from + BULK_CHUNK);
        send(&mut lanes[at % 2], bytes, from, to);
    }
    bulk.worker.send(EventBatch {
        applied: 1,
        ..completed(EVENT.0, 0)
    });
    lanes
}

/// Executes a read, whose end the program gets, and puts another worker into the place of the one that had it. Nothing may
/// get into the program's memory afterwards, which is returned.
fn read_then_die(bytes: &[u8]) -> (Bulk, Vec<u8>) {
    let mut bulk = Bulk::new(survives());
    let mut memory = vec![0; bytes.len()];
    bulk.download(&mut memory, Region::linear(0, bytes.len() as u64).unwrap());
    bulk.session.send_now(&read(bytes.len())).unwrap();
    let _lanes = answer_read(&mut bulk, bytes, 0);
    assert_eq!(bulk.upper.completion(EVENT.0).status, 0);
    assert!(memory == bytes);
    memory.fill(0xee);
    bulk.worker = next_worker(&bulk.fake, bulk.worker, 2);
    (bulk, memory)
}

#[test]
fn a_read_that_gives_the_same_bytes_again_in_another_order_lets_new_commands_leave() {
    let bytes = pattern(3 * BULK_CHUNK + 5);
    let (mut bulk, memory) = read_then_die(&bytes);
    bulk.session.send_now(&command(5)).unwrap();
    let _lanes = answer_read(&mut bulk, &bytes, 2);
    assert_eq!(receive_commands(&mut bulk.worker, 1), [command(5)]);
    assert!(memory.iter().all(|byte| *byte == 0xee));
    assert_eq!(bulk.upper.heard().completions.len(), 1);
    assert!(bulk.session.is_lost().is_none());
}

#[test]
fn a_read_that_gives_another_byte_ends_the_session() {
    let mut bytes = pattern(3 * BULK_CHUNK + 5);
    let (mut bulk, memory) = read_then_die(&bytes);
    bytes[BULK_CHUNK + 7] ^= 1;
    let _lanes = answer_read(&mut bulk, &bytes, 2);
    let loss = bulk.upper.loss().to_string();
    assert!(
        loss.contains("a read of buffer 3 gave another result when it was executed again"),
        "{loss}"
    );
    assert!(memory.iter().all(|byte| *byte == 0xee));
}

/// Receives batches until one is as `is_it` says.
fn receive_until(worker: &mut FakeWorker, is_it: impl Fn(&CommandBatch) -> bool) -> CommandBatch {
    loop {
        let batch = worker.receive();
        if is_it(&batch) {
            return batch;
        }
    }
}

/// Copies a checkpoint behind so many commands, of as many bytes. Returns who is going to hold it.
fn copy_checkpoint(worker: &mut FakeWorker, applied: u64, bytes: usize) -> Holder {
    worker.send(EventBatch {
        applied,
        parking: Parking::Stand.into(),
        ..EventBatch::default()
    });
    receive_until(worker, |of| of.stands);
    worker.send(EventBatch {
        parking: Parking::Copied.into(),
        checkpoint_bytes: bytes as u64,
        ..EventBatch::default()
    });
    receive_until(worker, |of| of.holder() != Holder::Unknown).holder()
}

/// Sends a part of a checkpoint.
fn send_checkpoint(lane: &mut TcpStream, bytes: &[u8], from: usize, to: usize) {
    for at in (from..to).step_by(BULK_CHUNK) {
        let length = BULK_CHUNK.min(to - at);
        let header = Header {
            kind: bulk::Kind::Data,
            transfer: CHECKPOINT,
            offset: at as u64,
            length: length as u32,
        };
        lane.write_all(&header.encode()).unwrap();
        lane.write_all(&bytes[at..at + length]).unwrap();
    }
}

/// How often the client dials a lane that the node closes without an answer.
const ATTEMPTS: usize = 5;

#[test]
fn lanes_stay_if_connections_break_before_the_next_worker_is_whole() {
    let mut bulk = Bulk::new(Faults {
        bulk_connections: 1,
        ..survives()
    });
    let bytes = Arc::new(pattern(5));
    bulk.upload(&bytes, Region::linear(0, 5).unwrap());
    let _dead = bulk.fake.lane();
    bulk.worker = next_worker(&bulk.fake, bulk.worker, 2);
    let mut lane = bulk.fake.lane();
    assert_eq!(bulk.fake.claimed(0), 0);
    say(&mut lane, bulk::Kind::Credit, 5);
    assert_eq!(header_of(&mut lane).kind, bulk::Kind::Data);
    let mut got = [0; 5];
    lane.read_exact(&mut got).unwrap();
    assert_eq!(got, bytes[..]);
    bulk.fake.received(0, (HEADER + got.len()) as u64);
    bulk.worker = next_worker(&bulk.fake, bulk.worker, 2);
    let _again = bulk.fake.lane();
    assert_eq!(bulk.fake.claimed(0), HEADER as u64);
    assert!(bulk.session.is_lost().is_none());
}

/// Whether any thread of the process opens bulk connections.
fn opens_lanes() -> bool {
    let tasks = std::fs::read_dir("/proc/self/task").unwrap();
    let names = tasks.filter_map(|of| std::fs::read_to_string(of.ok()?.path().join("comm")).ok());
    names.into_iter().any(|name| name.trim() == "cw-bulk-open")
}

#[test]
fn no_transfer_waits_for_lanes_that_opened_ahead_of_need_to_a_dead_worker() {
    let mut bulk = Bulk::new(Faults {
        held_lanes: 1..1 + ATTEMPTS,
        ..survives()
    });
    bulk.session.expect_transfers();
    // The lanes open once the session has been quiet after its first command.
    let queue = commands().swap_remove(0);
    bulk.session.send_now(&queue).unwrap();
    assert_eq!(
        receive_commands(&mut bulk.worker, 1),
        slice::from_ref(&queue)
    );
    let _first = bulk.fake.lane();
    wait_for(|| bulk.fake.lanes_asked() == 2);
    bulk.worker = next_worker(&bulk.fake, bulk.worker, 2);
    assert_eq!(receive_commands(&mut bulk.worker, 1), [queue]);
    // Only now does the client learn that the second lane to the worker before does not open.
    bulk.fake.close_held_lanes();
    wait_for(|| bulk.fake.lanes_asked() == 1 + ATTEMPTS && !opens_lanes());
    let bytes = pattern(3 * BULK_CHUNK);
    let mut memory = vec![0; bytes.len()];
    bulk.download(&mut memory, Region::linear(0, bytes.len() as u64).unwrap());
    bulk.session.send_now(&read(bytes.len())).unwrap();
    let _lanes = answer_read(&mut bulk, &bytes, 0);
    assert_eq!(bulk.upper.completion(EVENT.0).status, 0);
    assert!(memory == bytes);
}

/// Receives this number of commands.
fn receive_commands(worker: &mut FakeWorker, count: usize) -> Vec<Kind> {
    let mut received = Vec::new();
    while received.len() < count {
        received.extend(worker.receive().commands);
    }
    received.into_iter().filter_map(|of| of.kind).collect()
}

#[test]
fn a_checkpoint_of_the_client_counts_when_all_of_its_bytes_have_come() {
    for carrier in [Carrier::Direct, Carrier::Grpc] {
        let fake = FakeNode::start(Faults {
            bulk_connections: 1,
            hold: Hold::Client,
            ..survives()
        });
        let upper = Upper::new();
        let (_node, session, mut worker) = executing(&fake, carrier, &upper);
        worker.send(EventBatch {
            applied: 3,
            ..completed(LAUNCH, 0)
        });
        assert_eq!(upper.completion(LAUNCH).status, 0);
        let bytes = pattern(2 * BULK_CHUNK);

        // ---- the worker dies before the last byte
        let holder = copy_checkpoint(&mut worker, 3, bytes.len());
        assert_eq!(holder, Holder::Client);
        let mut lane = fake.lane();
        send_checkpoint(&mut lane, &bytes, 0, bytes.len() - 1);
        // The client goes on meanwhile.
        session.send_now(&command(5)).unwrap();
        assert_eq!(receive_commands(&mut worker, 1), [command(5)]);
        let mut worker = next_worker(&fake, worker, 2);
        assert_eq!(receive_commands(&mut worker, 3), commands());
        worker.send(completed(LAUNCH, 0));
        assert_eq!(receive_commands(&mut worker, 1), [command(5)]);

        // ---- all bytes come, and then the worker dies
        let holder = copy_checkpoint(&mut worker, 4, bytes.len());
        assert_eq!(holder, Holder::Client);
        let mut lane = fake.lane();
        send_checkpoint(&mut lane, &bytes, 0, bytes.len());
        session.send_now(&command(6)).unwrap();
        assert_eq!(receive_commands(&mut worker, 1), [command(6)]);
        // Each chunk is worth an acknowledgement.
        let on_the_wire = (bytes.len() + 2 * HEADER) as u64;
        while header_of(&mut lane).offset < on_the_wire {}
        worker.send(completed(CHECKPOINT.0, 0));
        // The client has handled the checkpoint before this.
        worker.send(completed(LAUNCH + 1, 0));
        wait_for(|| upper.heard().completions.len() == 2);
        fake.set_position(WANTS_RECORD | REEXECUTES);
        fake.set_incarnation(3);
        worker.die();
        let mut worker = fake.worker();
        worker.begin_behind(*fake.positions().last().unwrap());
        let head = worker.receive();
        let whole = ClientCheckpoint {
            applied: 4,
            bytes: bytes.len() as u64,
        };
        assert_eq!(head.restores, Some(whole));
        let mut got = Vec::new();
        while got.len() < bytes.len() {
            let piece = worker.receive();
            assert_eq!(piece.recorded(), Recorded::Part);
            got.extend(piece.contents);
        }
        assert!(got == bytes);
        let record = worker.receive();
        assert_eq!(
            (record.recorded(), record.commands.len()),
            (Recorded::Last, 2)
        );
        let next = receive_until(&mut worker, |of| !of.commands.is_empty());
        assert_eq!(next.first, 5);
        assert_eq!(next.commands.iter().map(number).collect::<Vec<_>>(), [6]);
        assert!(session.is_lost().is_none());
    }
}

#[test]
fn commands_wait_while_the_log_is_full_and_a_checkpoint_comes() {
    let fake = FakeNode::start(Faults {
        bulk_connections: 1,
        hold: Hold::Client,
        log: 2048,
        ..survives()
    });
    let upper = Upper::new();
    let (_node, session, mut worker) = executing(&fake, Carrier::Direct, &upper);
    // Three quarters of the log, about.
    for event in 100..300 {
        session.send_now(&command(event)).unwrap();
    }
    receive_commands(&mut worker, 200);
    worker.send(EventBatch {
        applied: 203,
        ..completed(LAUNCH, 0)
    });
    assert!(receive_until(&mut worker, |of| of.checkpoint).may_hold);
    let bytes = pattern(BULK_CHUNK);
    let holder = copy_checkpoint(&mut worker, 203, bytes.len());
    assert_eq!(holder, Holder::Client);
    let mut lane = fake.lane();
    for event in 300..600 {
        session.send_now(&command(event)).unwrap();
    }
    receive_commands(&mut worker, 300);
    // The client sees how full its log is.
    worker.send(EventBatch {
        applied: 503,
        ..EventBatch::default()
    });
    // The client has handled the batch before this.
    worker.send(completed(LAUNCH + 1, 0));
    wait_for(|| upper.heard().completions.len() == 2);
    session.send_now(&command(1000)).unwrap();
    // A command that had left would be before the client's answer.
    worker.send(EventBatch {
        parking: Parking::Stand.into(),
        ..EventBatch::default()
    });
    let stands = receive_until(&mut worker, |of| of.stands || !of.commands.is_empty());
    assert_eq!((stands.stands, stands.commands), (true, Vec::new()));
    worker.send(EventBatch {
        parking: Parking::GoOn.into(),
        ..EventBatch::default()
    });
    send_checkpoint(&mut lane, &bytes, 0, bytes.len());
    worker.send(completed(CHECKPOINT.0, 0));
    // The protection has not ended, and the command leaves now.
    let next = receive_until(&mut worker, |of| !of.commands.is_empty());
    assert_eq!(next.commands.iter().map(number).collect::<Vec<_>>(), [1000]);
    fake.set_position(WANTS_RECORD | REEXECUTES);
    fake.set_incarnation(2);
    worker.die();
    let mut worker = fake.worker();
    let restores = worker.receive().restores.expect("the client's checkpoint");
    assert_eq!(restores.applied, 203);
    receive_until(&mut worker, |of| of.recorded() == Recorded::Last);
    assert_eq!(receive_commands(&mut worker, 1)[0], command(300));
    assert!(session.is_lost().is_none());
}

#[test]
fn the_node_holds_a_checkpoint_while_nothing_is_known_of_the_link() {
    let fake = FakeNode::start(Faults {
        hold: Hold::Auto,
        ..survives()
    });
    let upper = Upper::new();
    let (_node, session, mut worker) = executing(&fake, Carrier::Direct, &upper);
    worker.send(EventBatch {
        applied: 3,
        ..completed(LAUNCH, 0)
    });
    assert_eq!(copy_checkpoint(&mut worker, 3, 1), Holder::Node);
    worker.send(EventBatch {
        parking: Parking::Checkpoint.into(),
        ..EventBatch::default()
    });
    session.send_now(&command(5)).unwrap();
    assert_eq!(receive_commands(&mut worker, 1), [command(5)]);
    fake.set_position(3 | WANTS_RECORD | REEXECUTES);
    fake.set_incarnation(2);
    worker.die();
    let mut worker = fake.worker();
    let record = worker.receive();
    assert_eq!(
        (record.recorded(), record.commands.len()),
        (Recorded::Last, 2)
    );
    assert_eq!(record.restores, None);
    assert_eq!(receive_commands(&mut worker, 1), [command(5)]);
    assert!(session.is_lost().is_none());
}

/// Reads into the program's memory until the client has measured the link. Returns the lane, and how many bytes the client has
/// received over it.
fn measure(bulk: &mut Bulk) -> (TcpStream, u64) {
    let bytes = pattern(32 * BULK_CHUNK);
    let mut memory = vec![0; bytes.len()];
    let region = Region::linear(0, bytes.len() as u64).unwrap();
    let mut opened = None;
    let mut on_the_wire = 0;
    for event in EVENT.0.. {
        // SAFETY: the memory stays until the end of the read.
        let target = unsafe { HostRegion::new(memory.as_mut_ptr(), region) };
        bulk.session.download(EventId(event), target).unwrap();
        let lane = opened.get_or_insert_with(|| bulk.fake.lane());
        for at in (0..bytes.len()).step_by(BULK_CHUNK) {
            let header = Header {
                kind: bulk::Kind::Data,
                transfer: EventId(event),
                offset: at as u64,
                length: BULK_CHUNK as u32,
            };
            lane.write_all(&header.encode()).unwrap();
            lane.write_all(&bytes[at..at + BULK_CHUNK]).unwrap();
            on_the_wire += (HEADER + BULK_CHUNK) as u64;
        }
        bulk.worker.send(completed(event, 0));
        assert_eq!(bulk.upper.completion(event).status, 0);
        if bulk._node.gauge().bandwidth() > 0 {
            break;
        }
    }
    (opened.expect("a lane"), on_the_wire)
}

#[test]
fn a_fast_link_carries_checkpoints_to_the_client_and_the_node_holds_what_does_not_fit_there() {
    let faults = Faults {
        bulk_connections: 1,
        hold: Hold::Auto,
        held: 64 << 20,
        // A tenth of this is enough for any link.
        interval: Some(Duration::from_secs(24 * 3600)),
        ..survives()
    };
    let held = faults.held as usize;
    let mut bulk = Bulk::new(faults);
    let (mut lane, before) = measure(&mut bulk);
    for kind in commands() {
        bulk.session.send_now(&kind).unwrap();
    }
    receive_commands(&mut bulk.worker, 3);
    let worker = &mut bulk.worker;
    // ---- one that fits
    let bytes = pattern(BULK_CHUNK);
    assert_eq!(copy_checkpoint(worker, 3, bytes.len()), Holder::Client);
    send_checkpoint(&mut lane, &bytes, 0, bytes.len());
    // Each chunk is worth an acknowledgement.
    let on_the_wire = before + (HEADER + bytes.len()) as u64;
    while header_of(&mut lane).offset < on_the_wire {}
    worker.send(completed(CHECKPOINT.0, 0));
    bulk.session.send_now(&command(5)).unwrap();
    assert_eq!(receive_commands(worker, 1), [command(5)]);
    // ---- one that does not
    assert_eq!(copy_checkpoint(worker, 4, held), Holder::Node);
    worker.send(EventBatch {
        parking: Parking::Checkpoint.into(),
        ..EventBatch::default()
    });
    bulk.session.send_now(&command(6)).unwrap();
    assert_eq!(receive_commands(worker, 1), [command(6)]);
    bulk.fake.set_position(4 | WANTS_RECORD | REEXECUTES);
    bulk.fake.set_incarnation(2);
    bulk.worker.die();
    let mut worker = bulk.fake.worker();
    let record = worker.receive();
    assert_eq!((record.recorded(), record.restores), (Recorded::Last, None));
    assert_eq!(receive_commands(&mut worker, 1), [command(6)]);
    assert!(bulk.session.is_lost().is_none());
}
