//! A stream from memory to memory over the lanes of one direction, a thread for each lane, as bulk data has.
//!
//! Invariant: both ends of a stream end by themselves. The receiver closes the lanes when its time is up, and the sender
//! ends with its lanes, or when time is up by far.

use std::io::{self, Read, Write};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{OnceLock, mpsc};
use std::time::{Duration, Instant};

use causeway_security::Line;

use crate::dial::is_pause;
use crate::exchange::Terms;
use crate::figures::Meter;

/// Bytes of one write or read.
const CHUNK: usize = 256 << 10;
/// Smallest chunk of a stream with a limited rate.
const SMALLEST_CHUNK: usize = 4 << 10;
/// How often a receiver that gets nothing looks at the time.
const LOOK_EVERY: Duration = Duration::from_millis(20);
/// How long a sender goes on when the receiver should have closed the lanes.
const GRACE: Duration = Duration::from_millis(500);

/// Why a stream has no figure.
#[derive(Debug, thiserror::Error)]
pub enum NoStream {
    /// Nothing arrived.
    #[error("no data arrived within the time of the measurement")]
    Silent,
    /// The stream ended early.
    #[error("the stream ended before its time: {0}")]
    Cut(io::Error),
    /// A thread could not be started.
    #[error("cannot start a thread: {0}")]
    NoThread(io::Error),
}

/// Receives for the duration `each` after the first byte, and closes the lanes. Returns the bytes per second.
pub(crate) fn receive(
    lanes: Vec<Line>,
    each: Duration,
    deadline: Instant,
) -> Result<u64, NoStream> {
    let first = OnceLock::new();
    let meters = on_threads(&lanes, |line| receive_lane(line, each, &first, deadline));
    // Now rather than later: the sender waits for it.
    for line in &lanes {
        line.shut_down();
    }
    drop(lanes);
    let mut whole = Meter::new(each);
    for meter in meters {
        whole.join(&meter?);
    }
    match first.get() {
        Some(_) => Ok(whole.rate()),
        None => Err(NoStream::Silent),
    }
}

fn receive_lane(
    mut line: &Line,
    each: Duration,
    first: &OnceLock<Instant>,
    deadline: Instant,
) -> Result<Meter, NoStream> {
    let mut meter = Meter::new(each);
    let mut bytes = vec![0; CHUNK];
    line.socket()
        .set_read_timeout(Some(LOOK_EVERY))
        .map_err(NoStream::Cut)?;
    loop {
        let read = line.read(&mut bytes);
        let now = Instant::now();
        match read {
            Ok(0) => return Err(NoStream::Cut(io::ErrorKind::UnexpectedEof.into())),
            Ok(count) => {
                let since = now.saturating_duration_since(*first.get_or_init(|| now));
                meter.add(since, count as u64);
            }
            Err(error) if is_pause(&error) => {}
            Err(error) => return Err(NoStream::Cut(error)),
        }
        let end = first.get().map_or(deadline, |first| *first + each);
        if now >= end.min(deadline) {
            return Ok(meter);
        }
    }
}

/// Sends until the receiver closes the lanes, but not for much longer than the terms say.
pub(crate) fn send(lanes: Vec<Line>, terms: &Terms, deadline: Instant) -> Result<(), NoStream> {
    let begun = Instant::now();
    let end = (begun + terms.each() + GRACE).min(deadline);
    let sent = AtomicU64::new(0);
    let (done, ends) = mpsc::channel();
    let lane = |line: &Line| {
        send_lane(line, terms, (begun, end), &sent);
        // Nobody waits for the last one.
        let _ = done.send(());
        Ok(())
    };
    std::thread::scope(|scope| {
        let lines = &lanes;
        // A blocked write does not look at the time, and timeouts of sockets may be late.
        scope.spawn(move || {
            let ended = |_: &Line| ends.recv_timeout(end.saturating_duration_since(Instant::now()));
            if !lines.iter().map(ended).all(|ended| ended.is_ok()) {
                lines.iter().for_each(Line::shut_down);
            }
        });
        on_threads(lines, lane).into_iter().collect()
    })
}

fn send_lane(mut line: &Line, terms: &Terms, (begun, end): (Instant, Instant), sent: &AtomicU64) {
    let chunk = terms.rate.map_or(CHUNK, |rate| {
        let in_a_slice = usize::try_from(rate / 100).unwrap_or(CHUNK);
        in_a_slice.clamp(SMALLEST_CHUNK, CHUNK)
    });
    let bytes = vec![0x5a; chunk];
    loop {
        // The receiver has closed the lane, or time is up. The receiver judges whether that was too early.
        if Instant::now() >= end || line.write_all(&bytes).is_err() {
            return;
        }
        let sum = sent.fetch_add(chunk as u64, Ordering::Relaxed) + chunk as u64;
        if let Some(rate) = terms.rate {
            let due = Duration::from_secs_f64(sum as f64 / rate.max(1) as f64);
            let due = (begun + due).min(end);
            std::thread::sleep(due.saturating_duration_since(Instant::now()));
        }
    }
}

/// Does the same for each lane, each on a thread.
fn on_threads<T: Send>(
    lanes: &[Line],
    each: impl Fn(&Line) -> Result<T, NoStream> + Sync,
) -> Vec<Result<T, NoStream>> {
    let each = &each;
    std::thread::scope(|scope| {
        let threads: Vec<_> = lanes
            .iter()
            .map(|line| {
                std::thread::Builder::new()
                    .name("link-lane".into())
                    .spawn_scoped(scope, move || each(line))
            })
            .collect();
        let ends = threads.into_iter().map(|thread| match thread {
            Ok(thread) => match thread.join() {
                Ok(result) => result,
                Err(panic) => std::panic::resume_unwind(panic),
            },
            Err(error) => Err(NoStream::NoThread(error)),
        });
        ends.collect()
    })
}
