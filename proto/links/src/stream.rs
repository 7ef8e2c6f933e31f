//! A stream from memory to memory over the lanes of one direction, a thread for each lane, as bulk data has.
//!
//! Invariant: both ends of a stream end by themselves. The receiver closes the lanes when its time is up, and the sender
//! ends with its lanes, or when time is up by far.

use std::io::{self, Read, Write};
use std::sync::{Mutex, OnceLock, PoisonError, mpsc};
use std::time::{Duration, Instant};

use causeway_security::Line;

use crate::dial::is_pause;
use crate::exchange::Terms;
use crate::figures::Meter;

/// Bytes of one write or read.
const CHUNK: usize = 256 << 10;
/// Smallest chunk of a stream with a limited rate.
const SMALLEST_CHUNK: usize = 1 << 10;
/// How often a receiver that gets nothing looks at the time.
const LOOK_EVERY: Duration = Duration::from_millis(20);
/// How long a sender goes on when the receiver should have closed the lanes.
const GRACE: Duration = Duration::from_millis(500);

/// Why a stream has no figure.
#[derive(Debug, thiserror::Error)]
pub enum NoStream {
    /// Nothing arrived, at least not in the time that counts.
    #[error("no data arrived within the time of the measurement")]
    Silent,
    /// The stream ended early.
    #[error("the stream ended before its time: {0}")]
    Cut(io::Error),
    /// A thread could not be started.
    #[error("cannot start a thread: {0}")]
    NoThread(io::Error),
}

/// Receives for the meter's time after the first byte, and closes the lanes. Returns the bytes per second.
pub(crate) fn receive(
    lanes: Vec<Line>,
    mut whole: Meter,
    deadline: Instant,
) -> Result<u64, NoStream> {
    let first = OnceLock::new();
    let meters = on_threads(&lanes, |line| {
        receive_lane(line, whole.clone(), &first, deadline)
    });
    // Now rather than later: the sender waits for it.
    for line in &lanes {
        line.shut_down();
    }
    drop(lanes);
    for meter in meters {
        whole.join(&meter?);
    }
    match whole.rate() {
        0 => Err(NoStream::Silent),
        rate => Ok(rate),
    }
}

fn receive_lane(
    mut line: &Line,
    mut meter: Meter,
    first: &OnceLock<Instant>,
    deadline: Instant,
) -> Result<Meter, NoStream> {
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
        let end = first.get().map_or(deadline, |first| *first + meter.each());
        if now >= end.min(deadline) {
            return Ok(meter);
        }
    }
}

/// Sends until the receiver closes the lanes, but not for much longer than the terms say.
pub(crate) fn send(lanes: Vec<Line>, terms: &Terms, deadline: Instant) -> Result<(), NoStream> {
    let begun = Instant::now();
    let end = (begun + terms.each() + GRACE).min(deadline);
    let pace = Mutex::new(begun);
    let (done, ends) = mpsc::channel();
    let lane = |line: &Line| {
        let sent = send_lane(line, terms, end, &pace);
        // Nobody waits for the last one.
        let _ = done.send(());
        sent
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

fn send_lane(
    mut line: &Line,
    terms: &Terms,
    end: Instant,
    pace: &Mutex<Instant>,
) -> Result<(), NoStream> {
    let chunk = terms.rate.map_or(CHUNK, |rate| {
        let in_a_slice = usize::try_from(rate / 100).unwrap_or(CHUNK);
        in_a_slice.clamp(SMALLEST_CHUNK, CHUNK)
    });
    let bytes = vec![0x5a; chunk];
    loop {
        if Instant::now() >= end {
            return Ok(());
        }
        match line.write_all(&bytes) {
            Ok(()) => {}
            // The other lanes would go on, and their figure would be too low.
            Err(error) if is_pause(&error) => return Err(NoStream::Cut(error)),
            // The receiver has closed the lane. It judges whether that was too early.
            Err(_) => return Ok(()),
        }
        if let Some(rate) = terms.rate {
            let each = Duration::from_secs_f64(chunk as f64 / rate.max(1) as f64);
            let mut due = pace.lock().unwrap_or_else(PoisonError::into_inner);
            *due = next_due(*due, Instant::now(), each);
            let until = (*due).min(end);
            drop(due);
            std::thread::sleep(until.saturating_duration_since(Instant::now()));
        }
    }
}

/// When the next chunk is due, if one takes so long. After a stall, one chunk at most is made up for, because the rate is a
/// limit.
fn next_due(due: Instant, now: Instant, each: Duration) -> Instant {
    due.max(now.checked_sub(each).unwrap_or(now)) + each
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

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::{TcpListener, TcpStream};

    #[test]
    fn a_stall_is_made_up_for_by_one_chunk() {
        let (begun, each) = (Instant::now(), Duration::from_millis(10));
        let second = next_due(begun, begun, each);
        assert_eq!(second, begun + each);
        // A chunk is a little late, and the rate is kept.
        let third = next_due(second, second + each / 2, each);
        assert_eq!(third, second + each);
        let late = third + 100 * each;
        let first = next_due(third, late, each);
        assert_eq!(first, late);
        assert_eq!(next_due(first, late, each), late + each);
    }

    #[test]
    fn a_lane_whose_write_is_given_up_is_an_error() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let socket = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let _silent = listener.accept().unwrap();
        let timeout = Some(Duration::from_millis(20));
        socket.set_write_timeout(timeout).unwrap();
        let terms = Terms::new(Duration::from_secs(5), None).unwrap();
        let deadline = Instant::now() + terms.limit();
        let sent = send(vec![socket.into()], &terms, deadline);
        assert!(matches!(sent, Err(NoStream::Cut(_))), "{sent:?}");
    }
}
