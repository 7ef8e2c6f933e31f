//! Limits on the data of a connection: how much a stranger may send, and how fast known callers may send
//! frames without content.
//!
//! HTTP/2 has small frames that cost the server work without progress of any call: `WINDOW_UPDATE`, `PING`,
//! `SETTINGS`, `PRIORITY`, `RST_STREAM`, `CONTINUATION`, empty `DATA`. This module does not validate
//! frames; the HTTP/2 library does. The crate `governor` counts no frames that have come already: it refuses
//! them instead of telling the pause that they cost. Invariant: pure; no clock and no socket.

use std::time::{Duration, Instant};

/// Length of the HTTP/2 client preface in bytes.
const PREFACE: usize = 24;
/// Length of a frame header in bytes.
const HEAD: usize = 9;
const DATA: u8 = 0;
const HEADERS: u8 = 1;

/// Bytes that a stranger may send. The longest message that is read is a credential for many devices.
const STRANGERS_BYTES: usize = 128 << 10;
/// Frames that a stranger may send: enough for a few calls, such as health checks.
const STRANGERS_FRAMES: u32 = 512;
/// Frames without content: the largest burst, and the rate per second.
const IDLE_FRAMES: u32 = 8 << 10;
const IDLE_FRAMES_A_SECOND: u32 = 32 << 10;

/// A stranger has exceeded its limit.
#[derive(Debug, thiserror::Error)]
#[error(
    "the unauthenticated caller has sent more than {STRANGERS_FRAMES} frames or {STRANGERS_BYTES} bytes"
)]
pub(super) struct Spent;

/// The limits of one connection, and what is used of them.
#[derive(Debug)]
pub(super) struct Budget {
    frames: Frames,
    strangers_bytes: usize,
    strangers_frames: u32,
    /// Frames without content that may still come at once, and the time of that count.
    idle: (f64, Instant),
}

impl Budget {
    /// The limits of a connection that begins now.
    pub(super) fn new(now: Instant) -> Budget {
        Budget {
            frames: Frames::default(),
            strangers_bytes: 0,
            strangers_frames: 0,
            idle: (f64::from(IDLE_FRAMES), now),
        }
    }

    /// Counts bytes that were read. Returns a pause in which no more may be read.
    ///
    /// # Errors
    /// [`Spent`] when a stranger has exceeded its limit.
    pub(super) fn spend(
        &mut self,
        bytes: &[u8],
        is_known: bool,
        now: Instant,
    ) -> Result<Option<Duration>, Spent> {
        let counted = self.frames.take(bytes);
        if is_known {
            // A caller that becomes a stranger again has the full limit again.
            (self.strangers_bytes, self.strangers_frames) = (0, 0);
            return Ok(self.pause(counted.idle, now));
        }
        self.strangers_bytes += bytes.len();
        self.strangers_frames += counted.all;
        if self.strangers_bytes > STRANGERS_BYTES || self.strangers_frames > STRANGERS_FRAMES {
            return Err(Spent);
        }
        Ok(None)
    }

    fn pause(&mut self, idle: u32, now: Instant) -> Option<Duration> {
        let (left, since) = self.idle;
        let a_second = f64::from(IDLE_FRAMES_A_SECOND);
        let back = now.saturating_duration_since(since).as_secs_f64() * a_second;
        let left = (left + back).min(f64::from(IDLE_FRAMES)) - f64::from(idle);
        // A token bucket: during the pause, the missing tokens come back.
        let pause = (left < 0.0).then(|| Duration::from_secs_f64(-left / a_second));
        self.idle = (left.max(0.0), now + pause.unwrap_or_default());
        pause
    }
}

/// Finds the frame headers in a stream of bytes.
#[derive(Debug)]
struct Frames {
    /// Remaining bytes of the preface or of the current frame's payload.
    skip: usize,
    head: [u8; HEAD],
    have: usize,
}

impl Default for Frames {
    fn default() -> Frames {
        Frames {
            skip: PREFACE,
            head: [0; HEAD],
            have: 0,
        }
    }
}

/// Number of frames whose headers were in the bytes.
#[derive(Debug, Default, PartialEq, Eq)]
struct Counted {
    all: u32,
    /// Frames without content.
    idle: u32,
}

impl Frames {
    fn take(&mut self, mut bytes: &[u8]) -> Counted {
        let mut counted = Counted::default();
        while !bytes.is_empty() {
            let skipped = self.skip.min(bytes.len());
            self.skip -= skipped;
            bytes = &bytes[skipped..];
            let taken = (HEAD - self.have).min(bytes.len());
            self.head[self.have..self.have + taken].copy_from_slice(&bytes[..taken]);
            self.have += taken;
            bytes = &bytes[taken..];
            if self.have == HEAD {
                self.have = 0;
                let [a, b, c, kind, ..] = self.head;
                self.skip = u32::from_be_bytes([0, a, b, c]) as usize;
                let carries = kind == HEADERS || (kind == DATA && self.skip > 0);
                counted.all += 1;
                counted.idle += u32::from(!carries);
            }
        }
        counted
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frame(kind: u8, payload: usize) -> Vec<u8> {
        let length = u32::try_from(payload).unwrap().to_be_bytes();
        let mut frame = vec![length[1], length[2], length[3], kind, 0, 0, 0, 0, 0];
        frame.resize(HEAD + payload, 7);
        frame
    }

    fn begun() -> Budget {
        let mut budget = Budget::new(Instant::now());
        assert_eq!(budget.frames.take(&[b'P'; PREFACE]), Counted::default());
        budget
    }

    #[test]
    fn frames_are_found_however_the_bytes_come() {
        let stream = [
            vec![b'P'; PREFACE],
            frame(4, 0),
            frame(8, 4),
            frame(HEADERS, 300),
            frame(DATA, 0),
            frame(DATA, 1),
        ]
        .concat();
        for size in [1, 2, 7, 9, 10, 4096] {
            let mut frames = Frames::default();
            let mut sum = Counted::default();
            for part in stream.chunks(size) {
                let counted = frames.take(part);
                sum.all += counted.all;
                sum.idle += counted.idle;
            }
            assert_eq!(sum, Counted { all: 5, idle: 3 }, "{size}");
        }
    }

    #[test]
    fn a_stranger_has_so_many_frames_and_bytes() {
        let now = Instant::now();
        let mut budget = begun();
        for _ in 0..STRANGERS_FRAMES {
            assert!(budget.spend(&frame(8, 4), false, now).unwrap().is_none());
        }
        assert!(budget.spend(&frame(8, 4), false, now).is_err());
        let mut budget = begun();
        assert!(
            budget
                .spend(&vec![0; STRANGERS_BYTES + 1], false, now)
                .is_err()
        );
        // A known caller has no such limit.
        let mut budget = begun();
        for _ in 0..2 * STRANGERS_FRAMES {
            budget.spend(&frame(HEADERS, 300), true, now).unwrap();
        }
        assert!(budget.spend(&frame(8, 4), false, now).unwrap().is_none());
    }

    #[test]
    fn frames_that_carry_nothing_have_a_pace() {
        let mut budget = begun();
        let (_, now) = budget.idle;
        assert_eq!(budget.pause(IDLE_FRAMES, now), None);
        let pause = budget.pause(IDLE_FRAMES_A_SECOND / 2, now).unwrap();
        assert_eq!(pause, Duration::from_millis(500));
        assert!(budget.pause(1, now + pause).is_some());
        assert_eq!(budget.pause(IDLE_FRAMES, now + 2 * pause), None);
        for _ in 0..2 * IDLE_FRAMES {
            assert_eq!(budget.spend(&frame(HEADERS, 10), true, now).unwrap(), None);
        }
    }
}
