//! Heartbeats: detects a peer that is gone without closing its connections.
//!
//! The worker sends a byte per interval on a separate connection. Silence is counted in slices that this
//! thread has actually waited through, and each slice ends with a check for unread bytes. So time during
//! which the client was stopped (Ctrl-Z, debugger) does not count as silence.
//!
//! A heartbeat is a zero byte. Any other bytes are the reason why the session has ended. The node sends them
//! here when its worker cannot do so any more. Single bytes cannot tear a message of the worker.

use std::io::{self, Read};
use std::sync::Arc;
use std::time::Duration;

use causeway_security::Line;

use super::core::Core;
use crate::thread::Stack;

/// Starts to listen for heartbeats. The thread ends with the session.
pub(super) fn start(core: &Arc<Core>, line: Arc<Line>, rhythm: Rhythm) -> io::Result<()> {
    line.socket().set_read_timeout(Some(rhythm.slice()))?;
    let core = Arc::clone(core);
    super::thread::spawn("cw-heartbeat", Stack::Small, move || {
        match listen(&*line, rhythm) {
            Ended::Silent(reason) => core.fail(reason),
            Ended::Told(reason) => core.told(reason),
        }
    })
}

/// Heartbeat timing of a session.
#[derive(Debug, Clone, Copy)]
pub(super) struct Rhythm {
    /// Time between two heartbeats.
    pub(super) interval: Duration,
    /// Silence after which the peer counts as lost.
    pub(super) limit: Duration,
}

impl Rhythm {
    /// Converts the node's values. Limits them, so that the client neither spins nor waits for ever.
    pub(super) fn from_wire(interval_ms: u32, limit_ms: u32) -> Rhythm {
        let interval = Duration::from_millis(u64::from(interval_ms.clamp(10, 10_000)));
        let limit = Duration::from_millis(u64::from(limit_ms.clamp(100, 60_000)));
        Rhythm {
            interval,
            limit: limit.max(2 * interval),
        }
    }

    fn slice(self) -> Duration {
        self.interval.min(self.limit / 4)
    }
}

/// Maximum length of a reason in bytes. The rest is ignored.
const MAX_REASON: usize = 1024;

/// Why the peer counts as lost.
#[derive(Debug, PartialEq, Eq)]
enum Ended {
    /// The connection broke, or no heartbeat came in time.
    Silent(String),
    /// The node has given this reason.
    Told(String),
}

fn listen(source: impl Read, rhythm: Rhythm) -> Ended {
    let mut told = Vec::new();
    let silent = listen_for(source, rhythm, &mut told);
    match told.is_empty() {
        true => Ended::Silent(silent),
        false => Ended::Told(String::from_utf8_lossy(&told).into_owned()),
    }
}

// Puts the bytes of a reason into `told`. Returns why the peer counts as lost otherwise.
fn listen_for(mut source: impl Read, rhythm: Rhythm, told: &mut Vec<u8>) -> String {
    let allowed = rhythm.limit.as_micros() / rhythm.slice().as_micros().max(1);
    let mut silent = 0;
    let mut bytes = [0; 64];
    loop {
        match source.read(&mut bytes) {
            Ok(0) => return "the node's heartbeat connection was closed".to_owned(),
            Ok(count) => {
                silent = 0;
                let text = bytes[..count].iter().filter(|byte| **byte != 0);
                told.extend(text.take(MAX_REASON - told.len()));
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error)
                if matches!(
                    error.kind(),
                    io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut
                ) =>
            {
                // The read timed out, so one more slice has passed without a heartbeat.
                silent += 1;
                if silent >= allowed {
                    return format!(
                        "the node sent no heartbeat for {} ms",
                        rhythm.limit.as_millis()
                    );
                }
            }
            Err(error) => return super::socket::plain(&error),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reason_among_heartbeats_is_heard_however_it_is_cut() {
        let rhythm = Rhythm::from_wire(500, 4000);
        let whole = b"\0\0a kernel crashed\0";
        for cut in 1..whole.len() {
            let (one, other) = whole.split_at(cut);
            let heard = listen(one.chain(other), rhythm);
            assert_eq!(heard, Ended::Told("a kernel crashed".to_owned()));
        }
        let endless = io::repeat(b'x').take(1 << 20);
        let Ended::Told(text) = listen(endless, rhythm) else {
            panic!("no text")
        };
        assert_eq!(text.len(), MAX_REASON);
    }

    fn silence(source: Script, rhythm: Rhythm) -> String {
        match listen(source, rhythm) {
            Ended::Silent(reason) => reason,
            Ended::Told(reason) => panic!("{reason}"),
        }
    }

    struct Script(Vec<io::Result<usize>>);

    impl Read for Script {
        fn read(&mut self, _: &mut [u8]) -> io::Result<usize> {
            self.0.pop().unwrap_or(Ok(0))
        }
    }

    fn timeouts(count: usize) -> impl Iterator<Item = io::Result<usize>> {
        (0..count).map(|_| Err(io::ErrorKind::WouldBlock.into()))
    }

    #[test]
    fn silence_counts_only_when_nothing_breaks_it() {
        let rhythm = Rhythm::from_wire(500, 4000);
        // The script is read backwards: seven slices of silence, a heartbeat, seven again, a heartbeat,
        // the end.
        let script = [Ok(0), Ok(1)]
            .into_iter()
            .chain(timeouts(7))
            .chain([Ok(1)])
            .chain(timeouts(7))
            .collect();
        assert!(silence(Script(script), rhythm).contains("closed"));
        assert!(silence(Script(timeouts(8).collect()), rhythm).contains("no heartbeat"));
    }

    #[test]
    fn a_senseless_rhythm_is_put_right() {
        let rhythm = Rhythm::from_wire(0, 0);
        assert!(rhythm.slice() >= Duration::from_millis(10));
        assert!(rhythm.limit >= 2 * rhythm.interval);
        let slow = Rhythm::from_wire(60_000, 1_000);
        assert!(slow.limit >= 2 * slow.interval);
    }
}
