//! Tests of hostile clients that know a session's words for resumption: they harm no session but their own.

use std::io::Write;
use std::net::TcpStream;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use causeway_proto::bulk::Header;
use causeway_proto::id::SessionSecret;
use causeway_proto::preamble::{ClientWord, Preamble, Purpose, Verdict};

use crate::common::resuming::Resuming;
use crate::common::{Daemon, eventually, try_to_prove};

const FAKE: &str = "devices = 1";
const WATCHED: [&str; 2] = ["--metrics", "127.0.0.1:0"];
const LONG: (u32, u32) = (60_000, 600_000);

fn daemon() -> Daemon {
    Daemon::fake_with(FAKE, &WATCHED, &[])
}

/// A session that has handled the answers to this number of requests.
fn with_answers(daemon: &Daemon, count: u64) -> Resuming {
    let mut session = Resuming::open(daemon, LONG);
    for request in 1..=count {
        session.send(vec![Resuming::ping(request)]);
        session.answer(request);
    }
    session
}

fn assert_goes_on(session: &mut Resuming, request: u64) {
    session.send(vec![Resuming::ping(request)]);
    session.answer(request);
}

#[test]
fn numbers_of_another_session_end_the_session_that_names_them() {
    let daemon = daemon();
    let mut other = with_answers(&daemon, 50);
    let named: [fn(&mut Resuming, u64); 2] = [
        |session, number| session.acknowledge(number),
        |session, number| {
            let _ = session.connect(Purpose::Commands, number);
        },
    ];
    for name in named {
        let mut session = with_answers(&daemon, 3);
        assert!(other.handled > session.handled);
        name(&mut session, other.handled);
        let reason = session.end_reason();
        assert!(reason.contains("violated the protocol"), "{reason}");
    }
    // The secret of one session does not open another.
    let mut session = with_answers(&daemon, 3);
    let secret = std::mem::replace(&mut session.secret, other.secret.clone());
    let refused = session.connect(Purpose::Commands, 0).err();
    assert_eq!(refused, Some(Verdict::Unproved));
    session.secret = secret;
    assert_goes_on(&mut session, 51);
    assert_goes_on(&mut other, 51);
}

#[test]
fn bytes_of_a_lane_that_were_not_sent_cannot_be_acknowledged() {
    let daemon = daemon();
    let claims: [fn(&Resuming) -> TcpStream; 2] = [
        |session| {
            let (mut lane, _) = session.connect(Purpose::Bulk, 0).unwrap();
            lane.write_all(&Header::ack(0, 0).encode()).unwrap();
            lane.write_all(&Header::ack(0, 1 << 40).encode()).unwrap();
            lane
        },
        |session| {
            let (_lane, received) = session.connect(Purpose::Bulk, 0).unwrap();
            assert_eq!(received, 0);
            // The session may not have the first connection yet.
            let resume = || session.connect(Purpose::Bulk, 1 << 40).ok();
            eventually("the lane goes on over a second connection", resume).0
        },
    ];
    for claim in claims {
        let session = with_answers(&daemon, 1);
        let _lane = claim(&session);
        let reason = session.end_reason();
        assert!(reason.contains("violated the protocol"), "{reason}");
    }
}

#[test]
fn a_second_holder_of_a_secret_takes_nothing_from_the_first_but_time() {
    let daemon = daemon();
    let mut first = with_answers(&daemon, 5);
    for turn in 0..4 {
        // The second one has handled less, and gets the events again. It acknowledges them at once.
        let (mut commands, _) = first.connect(Purpose::Commands, 0).unwrap();
        let _ = commands.write_all(&[100, 0, 0, 0, 7]);
        let (mut heartbeat, _) = first.connect(Purpose::Heartbeat, 0).unwrap();
        heartbeat.write_all(&first.handled.to_le_bytes()).unwrap();
        first.resume().unwrap();
        assert_goes_on(&mut first, 100 + turn);
    }
    let answers = first.answers.clone();
    assert_eq!(answers, [1, 2, 3, 4, 5, 100, 101, 102, 103]);
}

/// Connects to a session as fast as it can until `is_over`. Returns how many connections were accepted.
fn flood(session: &Resuming, secret: &SessionSecret, is_over: &AtomicBool) -> usize {
    let (mut accepted, mut newest) = (0, [None, None]);
    while !is_over.load(Ordering::Relaxed) {
        for (purpose, newest) in [Purpose::Commands, Purpose::Heartbeat]
            .into_iter()
            .zip(&mut newest)
        {
            let preamble = Preamble {
                purpose,
                lane: 0,
                session: session.id,
                link: 0,
            };
            let socket = TcpStream::connect(&session.address).unwrap();
            // A node with too many new connections closes some.
            let proved = try_to_prove(socket, &preamble, secret, &ClientWord::default());
            if let Ok(Ok(connection)) = proved {
                // The next one takes the place of a connection that works.
                *newest = Some(connection);
                accepted += 1;
            }
        }
    }
    accepted
}

#[test]
fn a_flood_of_resumptions_leaves_a_good_client_alone() {
    let daemon = daemon();
    let mut good = with_answers(&daemon, 1);
    let greedy = with_answers(&daemon, 1);
    let strangers = SessionSecret([7; 32]);
    let (is_over, accepted) = (AtomicBool::new(false), AtomicUsize::new(0));
    let begun = Instant::now();
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                accepted.fetch_add(flood(&greedy, &greedy.secret, &is_over), Ordering::Relaxed)
            });
            scope.spawn(|| assert_eq!(flood(&greedy, &strangers, &is_over), 0));
        }
        for request in 2..=200 {
            assert_goes_on(&mut good, request);
            if request % 50 == 0 {
                good.leave();
                good.resume().unwrap();
            }
        }
        is_over.store(true, Ordering::Relaxed);
    });
    // Ten of each purpose in ten seconds. A connection takes nothing before the one that has the place is in use.
    let periods = 1 + begun.elapsed().as_secs() as usize / 10;
    let accepted = accepted.load(Ordering::Relaxed);
    assert!(
        accepted <= 2 * 15 * periods,
        "{accepted} in {:?}",
        begun.elapsed()
    );
    assert_eq!(good.answers, (1..=200).collect::<Vec<_>>());
    assert!(begun.elapsed() < Duration::from_secs(60));
}
