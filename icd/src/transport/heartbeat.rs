//! Heartbeats: detects a peer that is gone without closing its connections.
//!
//! The worker sends a byte per interval on a separate connection. Silence is counted in slices that this
//! thread has actually waited through, and each slice ends with a check for unread bytes. So time during
//! which the client was stopped (Ctrl-Z, debugger) does not count as silence.
//!
//! A heartbeat is a zero byte. Any other bytes are the reason why the session has ended. The node sends them
//! here when its worker cannot do so any more. Single bytes cannot tear a message of the worker. With TLS, the
//! reason is no record, and stands at the end of the connection (`causeway_security::open_reason`).

use std::io::{self, Read};
use std::sync::Arc;
use std::time::{Duration, Instant};

use causeway_lane::{PathState, PathWatch, path_of};
use causeway_proto::id::SessionSecret;
use causeway_security::{Line, MAX_REASON, MAX_SEALED_REASON, open_reason};

use super::bulk::{Owner, PATH_DEAD};
use super::clock;
use super::core::Core;
use super::reconnect::Redialer;
use super::stops::Stops;
use crate::thread::Stack;

/// How often the paths of the connections are looked at, if the server has several addresses.
const LOOK_EVERY: Duration = Duration::from_millis(125);

/// Starts to listen for heartbeats. The thread ends with the session. If there is a `redialer`, the thread also
/// resumes the session when its connections break.
pub(super) fn start(
    core: &Arc<Core>,
    secret: SessionSecret,
    rhythm: Rhythm,
    mut redialer: Option<Redialer>,
) -> io::Result<()> {
    let core = Arc::clone(core);
    super::thread::spawn("cw-heartbeat", Stack::Small, move || {
        let _guard = core.guard();
        let rhythm = Rhythm {
            is_watched: redialer.is_some() && core.bulk.rails().are_several(),
            ..rhythm
        };
        let mut line = core.heartbeat();
        let mut stops = Stops::new(clock::since_boot());
        loop {
            let generation = core.generation();
            let ended = match line.socket().set_read_timeout(Some(rhythm.slice())) {
                Ok(()) => listen_on(&core, &line, &secret, rhythm, &mut stops),
                Err(error) => LossReason::Broken(super::socket::plain(&error)),
            };
            match ended {
                LossReason::Told(reason) if !core.may_be_replaced() => return core.told(reason),
                LossReason::Told(reason)
                | LossReason::Silent(reason)
                | LossReason::Broken(reason) => {
                    let is_away = core.break_off(generation, reason);
                    let resumed = redialer.as_mut().filter(|_| is_away);
                    match resumed.and_then(|redialer| redialer.resume(&core, &mut stops)) {
                        Some(next) => line = next,
                        None => return,
                    }
                }
            }
        }
    })
}

// Listens until the connection ends.
fn listen_on(
    core: &Arc<Core>,
    line: &Line,
    secret: &SessionSecret,
    rhythm: Rhythm,
    stops: &mut Stops,
) -> LossReason {
    let mut source = Source::new(line);
    let ended = listen(
        Noting {
            source: &mut source,
            core,
            stops,
            slice: rhythm.slice(),
            watch: rhythm.is_watched.then(PathWatch::default),
        },
        rhythm,
    );
    if let LossReason::Silent(reason) = &ended {
        let rails = core.bulk.rails();
        rails.note_dead(rails.current(), reason);
    }
    source.reason(secret).map_or(ended, LossReason::Told)
}

/// The heartbeat connection, on which each heartbeat is a time to acknowledge.
struct Noting<'a, 'b> {
    source: &'a mut Source<'b>,
    core: &'a Arc<Core>,
    stops: &'a mut Stops,
    /// How long a read may take.
    slice: Duration,
    /// Present if the session could move to another address of its server.
    watch: Option<PathWatch>,
}

impl Noting<'_, '_> {
    // Looks whether the paths of the connections are dead.
    fn look(&mut self) -> io::Result<()> {
        let Some(watch) = &mut self.watch else {
            return Ok(());
        };
        let (now, rails) = (Instant::now(), self.core.bulk.rails());
        let reading = path_of(self.source.line.socket());
        match reading.map(|reading| watch.look(now, reading, false)) {
            Some(PathState::Dead) if rails.note_dead(rails.current(), PATH_DEAD) => {
                return Err(io::Error::other(PATH_DEAD));
            }
            Some(PathState::Quiet) => self.core.acknowledge_again(),
            _ => {}
        }
        let owner: Arc<dyn Owner> = Arc::<Core>::clone(self.core);
        self.core.bulk.look_at_rails(&owner, now);
        Ok(())
    }
}

impl Read for Noting<'_, '_> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let read = self.source.read(into);
        self.stops.look(clock::since_boot(), self.slice);
        self.look()?;
        let count = read?;
        self.core.acknowledge();
        self.core.look_at_time();
        Ok(count)
    }
}

/// Heartbeat timing of a session.
#[derive(Debug, Clone, Copy)]
pub(super) struct Rhythm {
    /// Time between two heartbeats.
    pub(super) interval: Duration,
    /// Silence after which the peer counts as lost.
    pub(super) limit: Duration,
    /// Whether the paths of the connections are looked at between heartbeats.
    pub(super) is_watched: bool,
}

impl Rhythm {
    /// Converts the node's values. Limits them, so that the client neither spins nor waits for ever.
    pub(super) fn from_wire(interval_ms: u32, limit_ms: u32) -> Rhythm {
        let interval = Duration::from_millis(u64::from(interval_ms.clamp(10, 10_000)));
        let limit = Duration::from_millis(u64::from(limit_ms.clamp(100, 60_000)));
        Rhythm {
            interval,
            limit: limit.max(2 * interval),
            is_watched: false,
        }
    }

    fn slice(self) -> Duration {
        let slice = self.interval.min(self.limit / 4);
        match self.is_watched {
            true => slice.min(LOOK_EVERY),
            false => slice,
        }
    }
}

/// Time limit for the rest of a reason that TLS cannot read.
const REST_WITHIN: Duration = Duration::from_millis(500);

/// The heartbeat connection, with the last bytes that came over TLS.
struct Source<'a> {
    line: &'a Line,
    last: Vec<u8>,
}

impl<'a> Source<'a> {
    fn new(line: &'a Line) -> Source<'a> {
        Source {
            line,
            last: Vec::new(),
        }
    }

    /// Returns the reason with which the connection ended, if it has TLS and the node gave one.
    fn reason(&self, secret: &SessionSecret) -> Option<String> {
        open_reason(secret, &self.last)
    }

    fn receive_rest(&mut self) {
        let until = Instant::now() + REST_WITHIN;
        let mut bytes = [0; 512];
        // Ends at a timeout too: the node sends the reason as a whole.
        while let Ok(count @ 1..) = self.line.socket().read(&mut bytes)
            && Instant::now() < until
        {
            keep(&mut self.last, &bytes[..count]);
        }
    }
}

/// Appends `bytes`. Forgets those that are too old for a reason.
fn keep(last: &mut Vec<u8>, bytes: &[u8]) {
    last.extend_from_slice(bytes);
    let old = last.len().saturating_sub(MAX_SEALED_REASON);
    last.drain(..old);
}

impl Read for Source<'_> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let stream = match self.line {
            Line::Clear(socket) => return (&*socket).read(into),
            Line::Tls(stream) => stream,
        };
        let last = &mut self.last;
        let read = stream.read_by(into, |bytes| {
            let count = stream.socket().read(bytes)?;
            keep(last, &bytes[..count]);
            Ok(count)
        });
        if let Err(error) = &read
            && error.kind() == io::ErrorKind::InvalidData
        {
            self.receive_rest();
        }
        read
    }
}

/// Why the peer counts as lost.
#[derive(Debug, PartialEq, Eq)]
enum LossReason {
    /// The connection broke.
    Broken(String),
    /// No heartbeat came in time.
    Silent(String),
    /// The node has given this reason.
    Told(String),
}

fn listen(source: impl Read, rhythm: Rhythm) -> LossReason {
    let mut told = Vec::new();
    let ended = listen_for(source, rhythm, &mut told);
    match told.is_empty() {
        true => ended,
        false => LossReason::Told(String::from_utf8_lossy(&told).into_owned()),
    }
}

// Puts the bytes of a reason into `told`. Returns why the peer counts as lost otherwise.
fn listen_for(mut source: impl Read, rhythm: Rhythm, told: &mut Vec<u8>) -> LossReason {
    let allowed = rhythm.limit.as_micros() / rhythm.slice().as_micros().max(1);
    let mut silent = 0;
    let mut bytes = [0; 64];
    loop {
        match source.read(&mut bytes) {
            Ok(0) => {
                let closed = "the node's heartbeat connection was closed";
                return LossReason::Broken(closed.to_owned());
            }
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
                    let limit = rhythm.limit.as_millis();
                    return LossReason::Silent(format!(
                        "the node sent no heartbeat for {limit} ms"
                    ));
                }
            }
            Err(error) => return LossReason::Broken(super::socket::plain(&error)),
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
            assert_eq!(heard, LossReason::Told("a kernel crashed".to_owned()));
        }
        let endless = io::repeat(b'x').take(1 << 20);
        let LossReason::Told(text) = listen(endless, rhythm) else {
            panic!("no text")
        };
        assert_eq!(text.len(), MAX_REASON);
    }

    #[test]
    fn a_sealed_reason_is_found_behind_any_number_of_heartbeats() {
        let secret = SessionSecret([5; 32]);
        let sealed = causeway_security::seal_reason(&secret, "a kernel crashed").unwrap();
        let mut last = Vec::new();
        for _ in 0..1000 {
            keep(&mut last, &[7; 23]);
            assert!(last.len() <= MAX_SEALED_REASON);
        }
        for cut in sealed.chunks(10) {
            keep(&mut last, cut);
        }
        let reason = open_reason(&secret, &last);
        assert_eq!(reason.as_deref(), Some("a kernel crashed"));
    }

    fn silence(source: Script, rhythm: Rhythm) -> String {
        match listen(source, rhythm) {
            LossReason::Silent(reason) | LossReason::Broken(reason) => reason,
            LossReason::Told(reason) => panic!("{reason}"),
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
