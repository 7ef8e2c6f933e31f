//! Both ends of a session that outlives its connections, over wires that are cut at any byte: the client's and the
//! worker's own accounting of commands and events, without sockets and clocks.
//!
//! Invariants that are checked: every command and every event counts once, in order. What is kept stays within a bound.
//! Never do both ends wait: when the network is whole, everything arrives.
//!
//! `PROPTEST_CASES=100000 cargo test --release -p causeway-cutter --test both_ends` runs as many cases.
#![allow(missing_docs)]

use std::collections::VecDeque;

use causeway::transport::kept::{Batch, KeptBatches};
use causeway::transport::received::Received;
use causeway_daemon::worker::service::window::{Frames, Window};
use causeway_daemon::worker::session::numbering;
use causeway_proto::command::command::Kind;
use causeway_proto::command::{Command, CommandBatch, Release};
use causeway_proto::frame::PREFIX;
use proptest::prelude::*;

/// Above so many kept bytes the client writes no further batch.
const COMMANDS: usize = 400;
/// Above so many kept bytes the worker applies no further command.
const EVENTS: usize = 300;
/// The longest command and event.
const LONGEST: usize = 60;
/// Commands in a batch, and events of a command.
const MANY: usize = 4;
/// The first bytes of a batch on the wire: the frame's prefix and the number of the first command.
const HEAD: usize = PREFIX + 8;

/// One direction of a connection: bytes that were written and not read.
#[derive(Default)]
struct Wire {
    bytes: VecDeque<u8>,
    /// What the reader has of a frame that is not whole.
    partial: Vec<u8>,
}

impl Wire {
    fn write(&mut self, bytes: &[u8]) {
        self.bytes.extend(bytes);
    }

    /// Reads some bytes. Returns the frames that are whole with them, with their prefixes.
    fn read(&mut self, most: usize) -> Vec<Vec<u8>> {
        let count = most.min(self.bytes.len());
        self.partial.extend(self.bytes.drain(..count));
        let frames: Vec<Vec<u8>> = Frames(&self.partial).map(<[u8]>::to_vec).collect();
        let whole: usize = frames.iter().map(Vec::len).sum();
        self.partial.drain(..whole);
        frames
    }
}

/// The connections, which break together.
#[derive(Default)]
struct Wires {
    commands: Wire,
    events: Wire,
    /// Acknowledgements of events.
    heartbeat: Wire,
}

#[derive(Default)]
struct Client {
    /// Commands so far, and batches that wait for room.
    made: u64,
    waiting: VecDeque<Batch>,
    kept: KeptBatches,
    received: Received,
    /// Number of the last event.
    event: u64,
}

#[derive(Default)]
struct Worker {
    applied: u64,
    reported: u64,
    window: Window,
    /// Events so far.
    made: u64,
    /// Batches that were read while too many events were kept.
    unread: VecDeque<Vec<u8>>,
}

#[derive(Default)]
struct Session {
    client: Client,
    worker: Worker,
    wires: Option<Wires>,
}

fn number(bytes: &[u8]) -> u64 {
    u64::from_le_bytes(bytes[..8].try_into().unwrap())
}

fn framed(parts: &[&[u8]]) -> Vec<u8> {
    let body = parts.concat();
    [&(body.len() as u32).to_le_bytes()[..], &body].concat()
}

/// A batch as it crosses the wire.
fn written(batch: &Batch) -> Vec<u8> {
    framed(&[&batch.first.to_le_bytes(), &batch.bytes[PREFIX..]])
}

/// Encoded commands: each has its length, its number and padding.
fn decoded(mut bytes: &[u8], first: u64) -> CommandBatch {
    let mut commands = Vec::new();
    while let Some((length, rest)) = bytes.split_first() {
        let (command, rest) = rest.split_at(usize::from(*length));
        let release = Release {
            object: 0,
            id: number(command),
        };
        commands.push(Command {
            kind: Some(Kind::Release(release)),
        });
        bytes = rest;
    }
    CommandBatch {
        first,
        commands,
        ..CommandBatch::default()
    }
}

impl Session {
    /// The program makes commands, which are written when there is room.
    fn enqueue(&mut self, sizes: &[usize]) {
        let client = &mut self.client;
        let mut bytes = vec![0; PREFIX];
        let first = client.made + 1;
        for size in sizes {
            client.made += 1;
            let length = 8 + size % LONGEST;
            bytes.push(length as u8);
            bytes.extend_from_slice(&client.made.to_le_bytes());
            bytes.resize(bytes.len() + length - 8, 7);
        }
        client.waiting.push_back(Batch {
            first,
            last: client.made,
            bytes,
        });
        self.write_commands();
    }

    fn write_commands(&mut self) {
        while let Some(wires) = &mut self.wires
            && self.client.kept.bytes() <= COMMANDS
            && let Some(batch) = self.client.waiting.pop_front()
        {
            wires.commands.write(&written(&batch));
            self.client.kept.keep(batch);
        }
    }

    /// The worker reads commands, unless too many events are kept, and applies them.
    fn read_commands(&mut self, most: usize) {
        let Some(wires) = &mut self.wires else { return };
        if self.worker.unread.is_empty() && self.worker.window.bytes() <= EVENTS {
            self.worker.unread.extend(wires.commands.read(most));
        }
        while self.worker.window.bytes() <= EVENTS
            && let Some(frame) = self.worker.unread.pop_front()
        {
            let mut batch = decoded(&frame[HEAD..], number(&frame[PREFIX..]));
            assert!(
                batch.first <= self.worker.applied + 1,
                "commands are missing"
            );
            numbering::skip_applied(&mut batch, self.worker.applied + 1);
            for command in batch.commands {
                let Some(Kind::Release(Release { id, .. })) = command.kind else {
                    panic!("another command");
                };
                assert_eq!(
                    id,
                    self.worker.applied + 1,
                    "commands are applied once, in order"
                );
                self.worker.applied += 1;
                self.send_events(id as usize % MANY, id as usize % LONGEST);
            }
        }
    }

    /// The worker sends events, each with the number of the commands that are applied.
    fn send_events(&mut self, count: usize, size: usize) {
        let worker = &mut self.worker;
        for _ in 0..count {
            worker.reported = worker.applied;
            worker.made += 1;
            let number = worker.window.last() + 1;
            assert_eq!(number, worker.made);
            let parts = [number, worker.applied].map(u64::to_le_bytes);
            let frame = framed(&[&parts[0], &parts[1], &vec![7; size]]);
            worker.window.keep(&frame);
            if let Some(wires) = &mut self.wires {
                wires.events.write(&frame);
            }
        }
    }

    /// The client reads events.
    fn read_events(&mut self, most: usize) {
        let Some(wires) = &mut self.wires else { return };
        let frames = wires.events.read(most);
        for frame in frames {
            let client = &mut self.client;
            let event = number(&frame[PREFIX..]);
            if client.received.is_next(0, event).unwrap() {
                client.event += 1;
                assert_eq!(event, client.event, "events are handled once, in order");
                client.received.end();
            }
            client.kept.applied(number(&frame[HEAD..]));
            if client.received.note(frame.len()) {
                self.acknowledge();
            }
        }
        self.write_commands();
    }

    /// The client acknowledges events on the heartbeat connection.
    fn acknowledge(&mut self) {
        let received = &mut self.client.received;
        if let Some(wires) = &mut self.wires
            && let Some(handled) = received.next_acknowledgement(received.handled())
        {
            wires.heartbeat.write(&framed(&[&handled.to_le_bytes()]));
        }
    }

    /// The worker reads acknowledgements, and reports what it has applied.
    fn heartbeat(&mut self, most: usize) {
        let Some(wires) = &mut self.wires else { return };
        for frame in wires.heartbeat.read(most) {
            self.worker
                .window
                .acknowledge(number(&frame[PREFIX..]))
                .unwrap();
        }
        if self.worker.reported < self.worker.applied {
            self.send_events(1, 0);
        }
    }

    /// The connections break. So many bytes of each still arrive.
    fn cut(&mut self, arrives: [usize; 3]) {
        self.read_commands(arrives[0]);
        self.read_events(arrives[1]);
        self.heartbeat(arrives[2]);
        self.wires = None;
        // What was read and not applied is a part of the connection.
        self.worker.unread.clear();
    }

    /// The client comes back: both ends say what they have, and send the rest again.
    fn resume(&mut self, most: usize) {
        if self.wires.is_some() {
            return;
        }
        let mut wires = Wires::default();
        let (kept, worker) = (&mut self.client.kept, &mut self.worker);
        kept.skip_to(worker.applied).unwrap();
        for batch in kept.take() {
            wires.commands.write(&written(&batch));
            kept.put_back(batch);
        }
        let mut next = worker
            .window
            .resume(self.client.received.handled())
            .unwrap();
        while next <= worker.window.last() {
            let mut frames = Vec::new();
            next = worker.window.copy(next, 1 + most, &mut frames);
            wires.events.write(&frames);
        }
        self.wires = Some(wires);
        self.write_commands();
    }

    fn check_bounds(&self) {
        let batch = MANY * (1 + 8 + LONGEST);
        assert!(self.client.kept.bytes() <= COMMANDS + batch);
        // The client's batches are merged, so that one contains all that is kept.
        let frame = PREFIX + 16 + LONGEST;
        let commands = (COMMANDS + batch) / 9;
        assert!(self.worker.window.bytes() <= EVENTS + (commands * MANY + 1) * frame);
    }

    fn is_done(&self) -> bool {
        let (client, worker) = (&self.client, &self.worker);
        worker.applied == client.made
            && client.event == worker.made
            && client.waiting.is_empty()
            && (client.kept.bytes(), worker.window.bytes()) == (0, 0)
    }
}

#[derive(Clone, Debug)]
enum Step {
    Enqueue(Vec<usize>),
    ReadCommands(usize),
    ReadEvents(usize),
    Heartbeat(usize),
    Acknowledge,
    Cut([usize; 3]),
    Resume(usize),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        6 => prop::collection::vec(0..LONGEST, 1..=MANY).prop_map(Step::Enqueue),
        5 => (0..300usize).prop_map(Step::ReadCommands),
        5 => (0..300usize).prop_map(Step::ReadEvents),
        2 => (0..40usize).prop_map(Step::Heartbeat),
        2 => Just(Step::Acknowledge),
        2 => prop::array::uniform3(0..200usize).prop_map(Step::Cut),
        3 => (0..200usize).prop_map(Step::Resume),
    ]
}

proptest! {
    #[test]
    fn everything_counts_once_over_wires_that_are_cut_at_any_byte(
        steps in prop::collection::vec(step(), 0..50),
    ) {
        let mut session = Session { wires: Some(Wires::default()), ..Session::default() };
        for step in steps {
            match step {
                Step::Enqueue(sizes) => session.enqueue(&sizes),
                Step::ReadCommands(most) => session.read_commands(most),
                Step::ReadEvents(most) => session.read_events(most),
                Step::Heartbeat(most) => session.heartbeat(most),
                Step::Acknowledge => session.acknowledge(),
                Step::Cut(arrives) => session.cut(arrives),
                Step::Resume(most) => session.resume(most),
            }
            session.check_bounds();
        }
        // The network is whole from now on. Each round must bring both ends forward.
        session.resume(0);
        let mut rounds = 0;
        while !session.is_done() {
            session.read_commands(usize::MAX);
            session.read_events(usize::MAX);
            session.acknowledge();
            session.heartbeat(usize::MAX);
            session.check_bounds();
            rounds += 1;
            prop_assert!(rounds < 1000, "both ends wait");
        }
    }
}
