//! Tests of the replay, with a model of workers that die.

use super::*;
use causeway_proto::command::{CreateKernel, CreateQueue, CreateUserEvent, NdRange};
use proptest::prelude::*;

use crate::transport::given::Gives;
use crate::transport::kept::KeptBatches;

fn command(kind: Kind) -> Command {
    Command { kind: Some(kind) }
}

fn launch(event: u64, queue: u64, wait: &[u64]) -> Command {
    command(Kind::Enqueue(Enqueue {
        event,
        queue,
        wait: wait.to_vec(),
        operation: Some(Operation::NdRange(NdRange {
            kernel: 1,
            ..NdRange::default()
        })),
        ..Enqueue::default()
    }))
}

#[test]
fn the_first_unended_command_of_a_queue_is_suspected_unless_it_waits() {
    let commands = vec![
        command(Kind::CreateKernel(CreateKernel {
            kernel: 1,
            name: "k".to_owned(),
            ..CreateKernel::default()
        })),
        command(Kind::CreateQueue(CreateQueue::default())),
        command(Kind::CreateUserEvent(CreateUserEvent { event: 90 })),
        // Unobserved: the end of the next one reports it.
        launch(1, 5, &[]),
        launch(2, 5, &[]),
        launch(3, 5, &[]),
        launch(4, 5, &[]),
        launch(5, 6, &[90]),
        launch(6, 7, &[4]),
    ];
    let mut given = Given::default();
    given.handle(Item::End(2), 0, None, 99);
    let batches = [encode(1, commands)];
    let running = Suspects::of(batches.iter(), &given).unwrap().running();
    let expected = Suspect {
        number: 6,
        what: "the kernel `k`".to_owned(),
        is_build: false,
    };
    assert_eq!(running, [expected]);
}

proptest! {
    // Commands leave once and in order, only as far as is allowed, also if the worker dies and all is put back.
    #[test]
    fn commands_leave_in_order(
        sizes in prop::collection::vec(1u64..9, 1..9),
        steps in prop::collection::vec((0u64..60, any::<bool>()), 1..30),
    ) {
        let mut batches = VecDeque::new();
        let mut first = 1;
        for size in sizes {
            let commands = (first..first + size)
                .map(|event| command(Kind::CreateUserEvent(CreateUserEvent { event })));
            batches.push_back(encode(first, commands.collect()));
            first += size;
        }
        let mut replay = Replay::new(batches);
        let (mut left, mut next) = (VecDeque::new(), 1);
        for (allowed, dies) in steps {
            while let Some((number, commands)) = replay.next(allowed).unwrap() {
                prop_assert_eq!(number, next);
                for command in &commands {
                    prop_assert!(next < allowed);
                    let expected = Kind::CreateUserEvent(CreateUserEvent { event: next });
                    prop_assert_eq!(command.kind.as_ref(), Some(&expected));
                    next += 1;
                }
                left.push_back(encode(number, commands));
            }
            if dies {
                replay.put_before(std::mem::take(&mut left));
                next = 1;
            }
        }
        while replay.next(u64::MAX).unwrap().is_some_and(|(_, commands)| {
            next += commands.len() as u64;
            true
        }) {}
        prop_assert!(replay.is_empty() && next == first);
    }
}

// ---- the model ---------------------------------------------------------------------

const CELLS: usize = 4;
const QUEUES: u64 = 2;

/// What a worker has done: the memory, and its commands that wait in queues.
#[derive(Clone, Default)]
struct Worker {
    memory: [u64; CELLS],
    queues: [VecDeque<u64>; QUEUES as usize],
    applied: u64,
}

impl Worker {
    // Applies commands of one batch: each waits in its queue.
    fn receive(&mut self, first: u64, commands: &[Command]) {
        for (number, command) in (first..).zip(commands) {
            let Some(Kind::Enqueue(enqueue)) = &command.kind else {
                unreachable!("the model sends nothing else")
            };
            assert_eq!((number, enqueue.event), (self.applied + 1, number));
            self.queues[enqueue.queue as usize].push_back(number);
            self.applied = number;
        }
    }

    // Executes the next command of a queue. Returns its number, and the result that the program sees.
    fn execute(&mut self, queue: usize) -> Option<(u64, u64)> {
        let number = self.queues[queue].pop_front()?;
        let cell = cell_of(number);
        self.memory[cell] = self.memory[cell].wrapping_mul(3).wrapping_add(number);
        Some((number, self.memory[cell]))
    }
}

fn cell_of(number: u64) -> usize {
    (number.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32) as usize % CELLS
}

/// The client's side: what it keeps, and its last checkpoint.
struct Client {
    kept: KeptBatches,
    given: Given,
    replay: Replay,
    replays: bool,
    appended: u64,
    // For each cell, the last command on it that the program does not know to have ended, and its queue.
    open: [Option<(u64, u64)>; CELLS],
    checkpoint: Worker,
    // What the program has seen of each command.
    seen: Vec<Option<u64>>,
}

impl Client {
    // The program appends a command, on a queue that needs no other one's order but what the program has seen.
    fn append(&mut self, queue: u64, worker: &mut Worker) {
        let number = self.appended + 1;
        let cell = cell_of(number);
        let queue = self.open[cell].map_or(queue, |(_, open)| open);
        self.appended = number;
        self.open[cell] = Some((number, queue));
        self.seen.push(None);
        let commands = vec![launch(number, queue, &[])];
        worker.receive(number, &commands);
        self.kept.keep(encode(number, commands));
    }

    // The worker reports the end of a command.
    fn handle_end(&mut self, number: u64, result: u64) {
        let gives = self
            .given
            .handle(Item::End(number), 0, Some(result.into()), self.appended + 1);
        assert_ne!(gives, Gives::Different, "command {number}");
        let seen = &mut self.seen[number as usize - 1];
        assert_eq!(gives == Gives::First, seen.is_none());
        *seen = Some(result);
        let open = &mut self.open[cell_of(number)];
        open.take_if(|(last, _)| *last == number);
    }

    fn send_again(&mut self, worker: &mut Worker) {
        while self.replays {
            let allowed = self.given.allowed();
            match self.replay.next(allowed).expect("sound batches") {
                Some((first, commands)) => {
                    worker.receive(first, &commands);
                    self.kept.keep(encode(first, commands));
                }
                None => {
                    self.replays = !(self.replay.is_empty() && allowed == u64::MAX);
                    return;
                }
            }
        }
    }
}

proptest! {
    // Memory after checkpoints and replays is the memory after everything, for random commands, ends, checkpoints and
    // deaths. The program uses two queues, whose order is the one in which it has seen ends.
    #[test]
    fn memory_after_replays_is_memory_after_everything(
        steps in prop::collection::vec((0u8..12, 0u64..QUEUES), 1..200),
    ) {
        let mut kept = KeptBatches::default();
        kept.retain();
        let mut client = Client {
            kept,
            given: Given::default(),
            replay: Replay::default(),
            replays: false,
            appended: 0,
            open: [None; CELLS],
            checkpoint: Worker::default(),
            seen: Vec::new(),
        };
        let mut worker = Worker::default();
        for (step, queue) in steps.into_iter().chain((0..900).map(|i| (5, i % QUEUES))) {
            match step {
                0..5 if !client.replays => client.append(queue, &mut worker),
                0..9 => {
                    if let Some((number, result)) = worker.execute(queue as usize) {
                        client.handle_end(number, result);
                    }
                }
                9 => client.kept.applied(worker.applied),
                10 if !client.replays && worker.queues.iter().all(VecDeque::is_empty) => {
                    client.kept.applied(worker.applied);
                    prop_assert_eq!(client.kept.cut(), Some(worker.applied));
                    client.given.cut();
                    client.checkpoint = worker.clone();
                }
                _ => {
                    worker = client.checkpoint.clone();
                    let written = client.kept.take_all(worker.applied);
                    client.replay.put_before(written);
                    client.given.begin_again();
                    client.replays = true;
                }
            }
            client.send_again(&mut worker);
        }
        // Without any death.
        let mut whole = Worker::default();
        for number in 1..=client.appended {
            whole.receive(number, &[launch(number, 0, &[])]);
            whole.execute(0);
        }
        prop_assert!(!client.replays);
        prop_assert_eq!(worker.memory, whole.memory);
        prop_assert!(client.seen.iter().all(Option::is_some));
    }
}
