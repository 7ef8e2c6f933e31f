//! How much a connection may have a server do: what a stranger may say at all, and how fast others may send frames
//! that carry nothing.
//!
//! HTTP/2 has frames of a few bytes that cost the server work and bring no call forward: `WINDOW_UPDATE`, `PING`,
//! `SETTINGS`, `PRIORITY`, `RST_STREAM`, `CONTINUATION`, empty `DATA`. What it is not: it judges no frame; the HTTP/2
//! library does. Invariant: pure; no clock and no socket.

use std::time::{Duration, Instant};

/// How an HTTP/2 client begins.
const PREFACE: usize = 24;
/// Bytes of a frame's head.
const HEAD: usize = 9;
const DATA: u8 = 0;
const HEADERS: u8 = 1;

/// A stranger may send so many bytes: a credential for many devices, in a message, is the longest that is read.
const STRANGERS_BYTES: usize = 128 << 10;
/// A stranger may send so many frames: a few calls, such as questions about the server's health.
const STRANGERS_FRAMES: u32 = 512;
/// Frames that carry nothing: at once, and in a second.
const IDLE_FRAMES: u32 = 8 << 10;
const IDLE_FRAMES_A_SECOND: u32 = 32 << 10;

/// A stranger has said more than strangers may.
#[derive(Debug, thiserror::Error)]
#[error(
    "the caller has sent more than {STRANGERS_FRAMES} frames or {STRANGERS_BYTES} bytes, and showed no credential"
)]
pub(super) struct Spent;

/// See the module.
#[derive(Debug)]
pub(super) struct Budget {
    frames: Frames,
    strangers_bytes: usize,
    strangers_frames: u32,
    /// Frames that carry nothing and may still come at once, as of this moment.
    idle: (f64, Instant),
}

impl Budget {
    /// Of a connection that begins now.
    pub(super) fn new(now: Instant) -> Budget {
        Budget {
            frames: Frames::default(),
            strangers_bytes: 0,
            strangers_frames: 0,
            idle: (f64::from(IDLE_FRAMES), now),
        }
    }

    /// Counts what was read; how long nothing more is to be read.
    ///
    /// # Errors
    /// [`Spent`].
    pub(super) fn spend(
        &mut self,
        bytes: &[u8],
        is_known: bool,
        now: Instant,
    ) -> Result<Option<Duration>, Spent> {
        let counted = self.frames.take(bytes);
        if is_known {
            // Whoever becomes a stranger again has the whole of it again.
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
        // What is missing comes back during the pause.
        let pause = (left < 0.0).then(|| Duration::from_secs_f64(-left / a_second));
        self.idle = (left.max(0.0), now + pause.unwrap_or_default());
        pause
    }
}

/// Finds the frames in a stream of bytes.
#[derive(Debug)]
struct Frames {
    /// Bytes that belong to what has begun: the preface, or a frame's payload.
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

/// Frames whose heads were in the bytes.
#[derive(Debug, Default, PartialEq, Eq)]
struct Counted {
    all: u32,
    /// Those that carry nothing.
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
        // Somebody who is known has no such limit.
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
