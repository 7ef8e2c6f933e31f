//! One measurement over proved connections: probes, a stream each way, and the report of what the other end has received.
//!
//! ```text
//! leader                      follower
//!   probe  ── control ──►       sends it back          11 times
//!   begin  ── control ──►       receives; the message has the shortest round trip
//!   bytes  ══ up lanes ══►      closes the lanes when time is up
//!          ◄── control ──  rate
//!   begin back ─ control ─►     sends
//!   receives ◄══ down lanes ═   until the lanes close
//! ```
//!
//! Each direction has lanes of its own, so that the end of a stream is the end of its connections. Nothing has to be
//! drained on a slow link. Invariants: each end keeps its own time and deadline. A figure counts only with all steps done.

use std::io;
use std::time::{Duration, Instant};

use causeway_proto::limits::LINK_LANES;
use causeway_security::Line;

use crate::dial::{read_by, write_by};
use crate::figures::{Measured, Meter, PROBES, RoundTrip};
use crate::stream::{NoStream, receive, send};

/// The numbers of a measurement's connections.
pub mod lanes {
    use super::LINK_LANES;
    use std::ops::Range;

    /// The connection for probes and reports.
    pub const CONTROL: u8 = 0;
    /// The connections from the leader to the follower.
    pub const UP: Range<u8> = 1..1 + LINK_LANES;
    /// The connections from the follower to the leader.
    pub const DOWN: Range<u8> = UP.end..UP.end + LINK_LANES;
    /// Number of all connections.
    pub const ALL: usize = DOWN.end as usize;
}

/// Time for the connections, the probes and the reports.
const SETUP: Duration = Duration::from_secs(5);
/// Part of [`SETUP`] that is kept for the reports.
const REPORTS: Duration = Duration::from_millis(500);
/// Longest stream in each direction.
const LONGEST: Duration = Duration::from_secs(10);
const SHORTEST: Duration = Duration::from_millis(50);

/// How long streams last, and how fast they may be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Terms {
    each: Duration,
    /// Most bytes per second of a stream; `None`: as fast as possible.
    pub rate: Option<u64>,
}

impl Terms {
    /// Terms with streams of this duration each way. `None` if it is not between 50 ms and 10 s.
    #[must_use]
    pub fn new(each: Duration, rate: Option<u64>) -> Option<Terms> {
        (SHORTEST..=LONGEST)
            .contains(&each)
            .then_some(Terms { each, rate })
    }

    /// Duration of each stream.
    #[must_use]
    pub fn each(&self) -> Duration {
        self.each
    }

    /// Time in which both ends must be connected.
    #[must_use]
    pub fn connected_within(&self) -> Duration {
        SETUP
    }

    /// Time in which the measurement loads the network.
    #[must_use]
    pub fn streams(&self) -> Duration {
        2 * self.each
    }

    /// Time in which the measurement has ended, whatever the other end does.
    #[must_use]
    pub fn limit(&self) -> Duration {
        SETUP + self.streams()
    }
}

/// The connections of a measurement.
#[derive(Debug)]
pub struct Ends {
    /// Probes and reports.
    pub control: Line,
    /// For bytes from the leader.
    pub up: Vec<Line>,
    /// For bytes to the leader.
    pub down: Vec<Line>,
}

/// Why there are no figures.
#[derive(Debug, thiserror::Error)]
pub enum NotMeasured {
    /// The other end is silent, too slow, or gone.
    #[error("the other end did not answer in time, or closed the connection: {0}")]
    Io(#[from] io::Error),
    /// A stream ended early.
    #[error("{0}")]
    Stream(#[from] NoStream),
    /// The other end does not follow the protocol.
    #[error("the other end sent a wrong message")]
    Nonsense,
}

const PROBE: u8 = b'P';
const BEGIN: u8 = b'B';
const RATE: u8 = b'R';
const BACK: u8 = b'D';

/// A message on the control connection: a kind and a number.
fn say(control: &Line, kind: u8, number: u64, deadline: Instant) -> io::Result<()> {
    let mut bytes = [0; 9];
    bytes[0] = kind;
    bytes[1..].copy_from_slice(&number.to_le_bytes());
    write_by(control, &bytes, deadline)
}

fn hear(control: &Line, deadline: Instant) -> io::Result<(u8, u64)> {
    let mut bytes = [0; 9];
    read_by(control, &mut bytes, deadline)?;
    let number = u64::from_le_bytes(std::array::from_fn(|i| bytes[1 + i]));
    Ok((bytes[0], number))
}

/// Measures, from the end that has made the connections. Ends before `deadline`.
///
/// # Errors
/// [`NotMeasured`].
pub fn lead(ends: Ends, terms: &Terms, deadline: Instant) -> Result<Measured, NotMeasured> {
    let Ends { control, up, down } = ends;
    let probes_until = deadline
        .checked_sub(terms.streams() + REPORTS)
        .unwrap_or(deadline);
    let round_trip = probe(&control, probes_until, deadline)?;
    let trip = u64::try_from(round_trip.least.as_nanos()).unwrap_or(u64::MAX);
    say(&control, BEGIN, trip, deadline)?;
    // The follower closes the lanes. What was sent is of no interest: the follower counts what has arrived.
    send(up, terms, deadline)?;
    let outward = match hear(&control, deadline)? {
        (RATE, 0) => return Err(NoStream::Silent.into()),
        (RATE, rate) => rate,
        _ => return Err(NotMeasured::Nonsense),
    };
    say(&control, BACK, 0, deadline)?;
    let inward = receive(down, Meter::new(terms.each, round_trip.least), deadline)?;
    Ok(Measured {
        round_trip,
        outward,
        inward,
    })
}

/// Sends the probes one after the other. With a very long round trip, there are fewer.
fn probe(control: &Line, until: Instant, deadline: Instant) -> Result<RoundTrip, NotMeasured> {
    let mut answered = Vec::with_capacity(PROBES);
    for number in 0..PROBES as u64 {
        let sent = Instant::now();
        say(control, PROBE, number, deadline)?;
        if hear(control, deadline)? != (PROBE, number) {
            return Err(NotMeasured::Nonsense);
        }
        answered.push(sent.elapsed());
        if Instant::now() >= until {
            break;
        }
    }
    let sent = answered.len();
    RoundTrip::of(&answered, sent).ok_or(NotMeasured::Nonsense)
}

/// Follows the other end's measurement. Ends before `deadline`.
///
/// # Errors
/// [`NotMeasured`].
pub fn follow(ends: Ends, terms: &Terms, deadline: Instant) -> Result<(), NotMeasured> {
    let Ends { control, up, down } = ends;
    let mut probes = 0;
    let round_trip = loop {
        match hear(&control, deadline)? {
            (PROBE, number) if probes < PROBES => {
                probes += 1;
                say(&control, PROBE, number, deadline)?;
            }
            (BEGIN, nanoseconds) => break Duration::from_nanos(nanoseconds),
            _ => return Err(NotMeasured::Nonsense),
        }
    };
    let rate = receive(up, Meter::new(terms.each, round_trip), deadline)?;
    say(&control, RATE, rate, deadline)?;
    match hear(&control, deadline)? {
        (BACK, _) => send(down, terms, deadline).map_err(NotMeasured::from),
        _ => Err(NotMeasured::Nonsense),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;
    use std::net::{TcpListener, TcpStream};

    fn pair() -> (Line, Line) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let one = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        (one.into(), listener.accept().unwrap().0.into())
    }

    fn ends() -> (Ends, Ends) {
        let (control, other) = pair();
        let many = |lanes: std::ops::Range<u8>| lanes.map(|_| pair()).unzip();
        let ((up, other_up), (down, other_down)) = (many(lanes::UP), many(lanes::DOWN));
        let leader = Ends { control, up, down };
        let follower = Ends {
            control: other,
            up: other_up,
            down: other_down,
        };
        (leader, follower)
    }

    fn terms(rate: Option<u64>) -> Terms {
        Terms::new(Duration::from_millis(200), rate).unwrap()
    }

    #[test]
    fn both_directions_are_measured_and_the_rate_is_kept() {
        let (leader, follower) = ends();
        let terms = terms(Some(20_000_000));
        let deadline = Instant::now() + terms.limit();
        let following = std::thread::spawn(move || follow(follower, &terms, deadline));
        let measured = lead(leader, &terms, deadline).unwrap();
        following.join().unwrap().unwrap();
        for rate in [measured.outward, measured.inward] {
            // A machine that is busy counts less, or what it counts falls into a shorter time.
            assert!((4_000_000..=30_000_000).contains(&rate), "{measured:?}");
        }
        assert_eq!(measured.round_trip.lost, 0);
        assert!(measured.round_trip.least <= measured.round_trip.median);
    }

    #[test]
    fn a_silent_end_and_one_that_goes_end_the_measurement_in_time() {
        let terms = terms(None);
        let begun = Instant::now();
        let (leader, silent) = ends();
        assert!(lead(leader, &terms, begun + terms.limit()).is_err());
        let (silent_leader, follower) = ends();
        assert!(follow(follower, &terms, Instant::now() + terms.limit()).is_err());
        assert!(begun.elapsed() < 2 * (terms.limit() + Duration::from_secs(1)));
        drop((silent, silent_leader));
        let (leader, gone) = ends();
        drop(gone);
        assert!(lead(leader, &terms, Instant::now() + terms.limit()).is_err());
    }

    #[test]
    fn an_end_that_never_stops_is_cut_off() {
        let terms = terms(None);
        let begun = Instant::now();
        let (leader, follower) = ends();
        let deadline = begun + terms.limit();
        let flooding = std::thread::spawn(move || {
            let (_control, down) = before_streaming(follower, &terms, deadline);
            let mut bytes = 0_u64;
            while (&down[0]).write_all(&[7; 4096]).is_ok() {
                bytes += 4096;
            }
            bytes
        });
        let measured = lead(leader, &terms, deadline).unwrap();
        assert!(begun.elapsed() < terms.limit() + Duration::from_secs(1));
        let sent = flooding.join().unwrap();
        assert!(measured.inward > 0 && sent > 0);
    }

    /// Follows until this end is to stream. Returns the control connection and the lanes down.
    fn before_streaming(follower: Ends, terms: &Terms, deadline: Instant) -> (Line, Vec<Line>) {
        let Ends { control, up, down } = follower;
        while let (PROBE, number) = hear(&control, deadline).unwrap() {
            say(&control, PROBE, number, deadline).unwrap();
        }
        let rate = receive(up, Meter::new(terms.each, Duration::ZERO), deadline).unwrap();
        say(&control, RATE, rate, deadline).unwrap();
        hear(&control, deadline).unwrap();
        (control, down)
    }

    #[test]
    fn a_stream_that_stalls_after_its_first_bytes_has_no_figure() {
        let terms = terms(None);
        let (leader, follower) = ends();
        let deadline = Instant::now() + terms.limit();
        let stalling = std::thread::spawn(move || {
            let (_control, down) = before_streaming(follower, &terms, deadline);
            (&down[0]).write_all(&[7; 4096]).unwrap();
            // Until the leader closes the lanes.
            let _ = hear(&down[0], deadline);
        });
        let measured = lead(leader, &terms, deadline);
        assert!(
            matches!(measured, Err(NotMeasured::Stream(NoStream::Silent))),
            "{measured:?}"
        );
        stalling.join().unwrap();
    }

    #[test]
    fn a_stream_that_is_cut_has_no_figure() {
        let terms = terms(None);
        let (leader, follower) = ends();
        let deadline = Instant::now() + terms.limit();
        let cutting = std::thread::spawn(move || {
            let (_control, down) = before_streaming(follower, &terms, deadline);
            (&down[0]).write_all(&[7; 4096]).unwrap();
        });
        let measured = lead(leader, &terms, deadline);
        assert!(
            matches!(measured, Err(NotMeasured::Stream(_))),
            "{measured:?}"
        );
        cutting.join().unwrap();
    }
}
