//! The engine: one thread that takes commands from all queues and runs them when they may run.
//!
//! An enqueue pushes into its queue's inbox and returns. The engine takes whole inboxes, runs the ready
//! commands, and announces ended ones once per pass. Without work, it naps for some milliseconds, in short
//! naps that only a waiting thread or a flush interrupts. Then it sleeps. So a stream of enqueues wakes no
//! thread. Commands that take time occupy their device one after the other, in the order of their enqueues as far as
//! they may run; commands that take no time do not.
//!
//! In instant mode, a command that may run at once and takes no time runs within the enqueue, under its
//! queue's lock. This keeps the queue's order.
//!
//! The effects of commands are defined elsewhere. Invariants: a command runs when its wait list has ended
//! and its queue's order permits, and ends once. The application is never called under a lock.

mod notifier;

use std::collections::{HashMap, VecDeque};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering, fence};
use std::thread::Thread;
use std::time::Duration;

use cl_headers::types::*;
use parking_lot::Mutex;

use self::notifier::{ASLEEP, AWAKE, MODE, NAPPING, announce, ring_unless};
pub(crate) use self::notifier::{ring, wait};
use crate::command::{Command, Rank, Time};
use crate::config::Order;
use crate::event::{Due, Moment};
use crate::object::{Object, Ref};
use crate::queue::Queue;
use crate::{clock, control};

/// The first nap. Each nap is twice as long as the one before, because many engines may share few
/// processors, and a device must use none.
const NAP: Duration = Duration::from_micros(50);
/// Number of naps without work before the engine sleeps: about 3 ms in all.
const NAPS: u32 = 6;

/// Counts ends of commands and user events. If it has not changed, waiting commands need not be checked.
static ENDS: AtomicU64 = AtomicU64::new(0);
/// The number of the next command.
static LATEST: AtomicU64 = AtomicU64::new(0);
/// Queues that the engine has not seen yet.
static NEW_QUEUES: Mutex<Vec<Ref<Queue>>> = Mutex::new(Vec::new());
/// Callbacks for statuses that had been reached before their registration.
static SOON: Mutex<Vec<Due>> = Mutex::new(Vec::new());
/// Other callbacks of the application: of builds, of contexts.
static NOTICES: Mutex<Vec<Notice>> = Mutex::new(Vec::new());
/// A call to the application that the engine has to make.
pub(crate) type Notice = Box<dyn FnOnce() + Send>;

/// Puts a command into its queue, or runs it immediately (instant mode).
pub(crate) fn enqueue(queue: &Object<Queue>, mut command: Command) {
    let mut inbox = queue.inbox.lock();
    if may_run_here(queue, &command) {
        run_here(&command);
        // Unlocked before the command drops its objects, because a destructor callback may follow.
        drop(inbox);
        return;
    }
    queue.open.fetch_add(1, Ordering::Relaxed);
    command.number = LATEST.fetch_add(1, Ordering::Relaxed);
    inbox.push(command);
    drop(inbox);
    ring_unless(NAPPING);
}

fn may_run_here(queue: &Object<Queue>, command: &Command) -> bool {
    control::current().instant
        && command.time == Time::None
        && queue.open.load(Ordering::Acquire) == 0
        && command.dependencies().is_some()
}

fn run_here(command: &Command) {
    let status = match command.dependencies() {
        Some(CL_COMPLETE) | None => command.work.run(),
        Some(failed) => failed,
    };
    let Some(event) = &command.event else { return };
    event.stamp(Moment::Submitted, command.queued_ns);
    event.stamp(Moment::Started, command.queued_ns);
    if command.queued_ns != 0 {
        event.stamp_end(clock::host_ns(), command.work.children_ns());
    }
    // The application gets the event only after this, so nothing waits for it and it has no callbacks.
    event.advance(status, &mut Vec::new());
}

/// Adds a new queue to the engine.
pub(crate) fn adopt(queue: Ref<Queue>) {
    NEW_QUEUES.lock().push(queue);
    ring_unless(NAPPING);
}

/// Has the engine call a callback.
pub(crate) fn call_soon(due: Due) {
    SOON.lock().push(due);
    ring();
}

/// Has the engine make a call.
pub(crate) fn notify_soon(notice: Notice) {
    NOTICES.lock().push(notice);
    ring();
}

/// Handles the end of a user event: commands that wait for it may continue.
pub(crate) fn user_event_ended(mut due: Vec<Due>) {
    ENDS.fetch_add(1, Ordering::Release);
    if !due.is_empty() {
        SOON.lock().append(&mut due);
    }
    ring();
    announce();
}

fn thread() -> &'static Thread {
    static THREAD: OnceLock<Thread> = OnceLock::new();
    THREAD.get_or_init(|| {
        let engine = std::thread::Builder::new()
            .name("fake-opencl".to_owned())
            .spawn(|| Engine::default().run());
        match engine {
            Ok(handle) => handle.thread().clone(),
            Err(error) => {
                eprintln!("fake OpenCL: no engine thread: {error}");
                std::process::abort()
            }
        }
    })
}

/// The result of a step of a command.
enum Step {
    Ended(cl_int),
    Waiting,
}

/// The state of a device for commands that take time.
#[derive(Default)]
struct Lane {
    busy: bool,
    /// Time at which the last command that takes time has ended or will end.
    free_ns: u64,
    /// The first command that could start in this pass, which starts in the next one.
    first: Option<u64>,
    starts: Option<u64>,
}

/// A queue and its commands that the engine has taken.
struct Line {
    queue: Ref<Queue>,
    /// In order. For an out-of-order queue, only until the next pass.
    pending: VecDeque<Command>,
    /// Commands of an out-of-order queue, in the order of the enqueues.
    #[allow(
        clippy::vec_box,
        reason = "the vector closes its gaps often; commands are large"
    )]
    waiting: Vec<Box<Command>>,
    /// Time at which the queue's last command that took time ended.
    last_ns: u64,
    /// Number of started commands of the queue that take time.
    running: usize,
    /// Value of `ENDS` at the last check, to avoid useless checks of waiting commands.
    seen: u64,
}

#[derive(Default)]
struct Engine {
    lines: Vec<Line>,
    lanes: HashMap<usize, Lane>,
    /// Callbacks that are due because of ends in this pass.
    due: Vec<Due>,
    /// Time of the next end of a command that takes time, at which sleep must end.
    next_ns: Option<u64>,
    random: u64,
    taken: Vec<Command>,
}

impl Engine {
    fn run(mut self) {
        // SAFETY: this is a setting of the calling thread, for exact timers.
        unsafe { libc::prctl(libc::PR_SET_TIMERSLACK, 1_000_u64) };
        self.random = control::current().seed | 1;
        let mut idle = 0;
        loop {
            if self.pass() {
                idle = 0;
                continue;
            }
            let nap = (idle < NAPS).then(|| NAP * (1 << idle));
            let mode = if nap.is_some() { NAPPING } else { ASLEEP };
            MODE.store(mode, Ordering::Relaxed);
            fence(Ordering::SeqCst);
            if !self.has_news() {
                self.rest(nap);
                idle += 1;
            }
            MODE.store(AWAKE, Ordering::Relaxed);
        }
    }

    fn rest(&self, nap: Option<Duration>) {
        let timer = self
            .next_ns
            .map(|next| Duration::from_nanos(next.saturating_sub(clock::host_ns())));
        match (timer, nap) {
            (Some(timer), Some(nap)) => std::thread::park_timeout(timer.min(nap)),
            (Some(time), None) | (None, Some(time)) => std::thread::park_timeout(time),
            (None, None) => std::thread::park(),
        }
    }

    fn has_news(&self) -> bool {
        !SOON.lock().is_empty()
            || !NOTICES.lock().is_empty()
            || !NEW_QUEUES.lock().is_empty()
            || self.lines.iter().any(|line| {
                !line.queue.inbox.lock().is_empty()
                    || (line.seen != ENDS.load(Ordering::Acquire) && !line.is_empty())
                    || line.finished()
            })
    }

    /// Checks everything once. Returns whether anything has changed.
    fn pass(&mut self) -> bool {
        let mut moved = false;
        for queue in NEW_QUEUES.lock().drain(..) {
            self.lines.push(Line {
                queue,
                pending: VecDeque::new(),
                waiting: Vec::new(),
                last_ns: 0,
                running: 0,
                seen: 0,
            });
        }
        let order = control::current().order;
        self.next_ns = None;
        for lane in self.lanes.values_mut() {
            lane.starts = lane.first.take();
        }
        let mut lines = std::mem::take(&mut self.lines);
        let mut sequence: Vec<usize> = (0..lines.len()).collect();
        self.arrange(order, &mut sequence);
        for index in sequence {
            moved |= self.look_at(&mut lines[index], order);
        }
        lines.retain(|line| !line.finished());
        self.lines = lines;
        if moved {
            announce();
        }
        self.due.append(&mut SOON.lock());
        moved |= !self.due.is_empty();
        let mut due = std::mem::take(&mut self.due);
        if order == Order::Random {
            // Ends that were noticed together have no order among them.
            self.arrange(order, &mut due);
        }
        for callback in due {
            callback.call();
        }
        // A command is about to start.
        moved |= self.lanes.values().any(|lane| lane.first.is_some());
        let notices = std::mem::take(&mut *NOTICES.lock());
        moved |= !notices.is_empty();
        for notice in notices {
            notice();
        }
        moved
    }

    /// Puts things without an order into the configured one.
    fn arrange<T>(&mut self, order: Order, things: &mut [T]) {
        match order {
            Order::Forward => {}
            Order::Reverse => things.reverse(),
            Order::Random => {
                for last in (1..things.len()).rev() {
                    things.swap(last, self.draw(last + 1));
                }
            }
        }
    }

    /// Returns a random number below `end` (xorshift).
    fn draw(&mut self, end: usize) -> usize {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        (self.random % end as u64) as usize
    }

    fn look_at(&mut self, line: &mut Line, order: Order) -> bool {
        let mut taken = std::mem::take(&mut self.taken);
        std::mem::swap(&mut taken, &mut *line.queue.inbox.lock());
        let news = !taken.is_empty();
        let submitted_ns = match taken.first() {
            Some(first) if first.queued_ns != 0 => clock::host_ns(),
            _ => 0,
        };
        for command in &taken {
            if let Some(event) = &command.event {
                event.stamp(Moment::Submitted, submitted_ns.max(command.queued_ns));
                event.advance(CL_SUBMITTED, &mut self.due);
            }
        }
        line.pending.extend(taken.drain(..));
        self.taken = taken;
        let ends = ENDS.load(Ordering::Acquire);
        let starts = self.lane(line).starts.is_some();
        if !news && line.running == 0 && line.seen == ends && !starts {
            return false;
        }
        line.seen = ends;
        if line.queue.out_of_order() {
            self.run_out_of_order(line, order)
        } else {
            self.run_in_order(line)
        }
    }

    fn run_in_order(&mut self, line: &mut Line) -> bool {
        let mut moved = false;
        while let Some(mut command) = line.pending.pop_front() {
            match self.step(&mut command, line) {
                Step::Ended(status) => {
                    self.end(&line.queue, &command, status);
                    moved = true;
                }
                Step::Waiting => {
                    line.pending.push_front(command);
                    break;
                }
            }
        }
        moved
    }

    /// Runs every command that may run. In forward order, each runs as soon as its turn comes. In another
    /// order, all runnable commands are found first.
    fn run_out_of_order(&mut self, line: &mut Line, order: Order) -> bool {
        let mut waiting = std::mem::take(&mut line.waiting);
        waiting.extend(line.pending.drain(..).map(Box::new));
        let mut ready = Vec::new();
        let mut open = 0;
        let mut moved = false;
        for (place, command) in waiting.iter_mut().enumerate() {
            let for_all = command.rank != Rank::Plain && command.waits.is_empty();
            let held = for_all && open > 0;
            if !held && order == Order::Forward {
                moved |= self.try_to_end(command, line);
            } else if !held && command.dependencies().is_some() {
                ready.push(place);
            }
            if !command.ended {
                open += 1;
                if command.rank == Rank::Barrier {
                    break;
                }
            }
        }
        self.arrange(order, &mut ready);
        for place in ready {
            moved |= self.try_to_end(&mut waiting[place], line);
        }
        if moved {
            waiting.retain(|command| !command.ended);
        }
        line.waiting = waiting;
        moved
    }

    fn try_to_end(&mut self, command: &mut Command, line: &mut Line) -> bool {
        if let Step::Ended(status) = self.step(command, line) {
            self.end(&line.queue, command, status);
            command.ended = true;
        }
        command.ended
    }

    /// Advances a command as far as possible now.
    fn step(&mut self, command: &mut Command, line: &mut Line) -> Step {
        if let Some(end) = command.ends_ns {
            if clock::host_ns() < end {
                self.sleep_until(end);
                return Step::Waiting;
            }
            self.lane(line).busy = false;
            line.running -= 1;
            line.last_ns = end;
            return Step::Ended(command.work.run());
        }
        match command.dependencies() {
            None => return Step::Waiting,
            Some(CL_COMPLETE) => {}
            Some(failed) => return Step::Ended(failed),
        }
        let ns = match command.time {
            Time::None => {
                if let Some(event) = &command.event
                    && command.queued_ns != 0
                {
                    event.stamp(Moment::Started, clock::host_ns());
                }
                return Step::Ended(command.work.run());
            }
            Time::Takes(ns) => ns,
            Time::Never => u64::MAX,
        };
        let lane = self.lane(line);
        if lane.busy {
            return Step::Waiting;
        }
        if control::current().order == Order::Forward && lane.starts != Some(command.number) {
            let first = lane
                .first
                .map_or(command.number, |first| first.min(command.number));
            lane.first = Some(first);
            return Step::Waiting;
        }
        (lane.first, lane.starts) = (None, None);
        // Starts at the end of the previous command, not now, so that the engine's delays do not add up.
        let start = command.queued_ns.max(lane.free_ns).max(line.last_ns);
        let end = start.saturating_add(ns);
        lane.busy = true;
        lane.free_ns = end;
        command.ends_ns = Some(end);
        line.running += 1;
        if let Some(event) = &command.event {
            event.stamp(Moment::Started, start);
            event.advance(CL_RUNNING, &mut self.due);
        }
        command.work.begin();
        self.step(command, line)
    }

    fn lane(&mut self, line: &Line) -> &mut Lane {
        self.lanes.entry(line.queue.device.index).or_default()
    }

    fn sleep_until(&mut self, end: u64) {
        if end != u64::MAX {
            self.next_ns = Some(self.next_ns.map_or(end, |next| next.min(end)));
        }
    }

    fn end(&mut self, queue: &Ref<Queue>, command: &Command, status: cl_int) {
        if let Some(event) = &command.event {
            if command.queued_ns != 0 {
                let end = command.ends_ns.unwrap_or_else(clock::host_ns);
                event.stamp_end(end, command.work.children_ns());
            }
            event.advance(status, &mut self.due);
        }
        if status < 0 && status != CL_EXEC_STATUS_ERROR_FOR_EVENTS_IN_WAIT_LIST {
            queue.context.report(status);
        }
        ENDS.fetch_add(1, Ordering::Release);
        queue.open.fetch_sub(1, Ordering::Release);
    }
}

impl Line {
    fn is_empty(&self) -> bool {
        self.pending.is_empty() && self.waiting.is_empty()
    }

    /// Whether the queue is empty and can get no more commands.
    fn finished(&self) -> bool {
        self.queue.references() == 0 && self.is_empty() && self.queue.inbox.lock().is_empty()
    }
}
