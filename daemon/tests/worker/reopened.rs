//! Tests of sessions that are opened again because their daemon was killed.

use causeway_proto::id::{SessionId, SessionSecret};
use causeway_proto::preamble::{ClientWord, Preamble, Purpose, REEXECUTES, WANTS_RECORD};
use tonic::Code;

use crate::common::resuming::Resuming;
use crate::common::{Daemon, eventually, prove_with};

const LONG: (u32, u32) = (60_000, 600_000);

fn refusal(daemon: &Daemon, id: SessionId, secret: &SessionSecret, reexecute: bool) -> Code {
    let refused = Resuming::reopen(daemon, id, secret, reexecute);
    refused.expect_err("a refusal").code()
}

#[test]
fn a_session_that_the_daemon_knows_is_not_opened_again() {
    let daemon = Daemon::fake("devices = 1");
    let session = Resuming::open_reexecuted(&daemon, LONG);
    let again = || refusal(&daemon, session.id, &session.secret, true);
    assert_eq!(again(), Code::AlreadyExists);
    session.close();
    eventually("the session has ended", || {
        session.session_end(&session.secret).known.then_some(())
    });
    assert_eq!(again(), Code::AlreadyExists);
}

#[test]
fn a_session_that_is_opened_again_begins_with_nothing_under_its_id() {
    let daemon = Daemon::fake("devices = 1");
    let (id, secret) = (SessionId([3; 16]), SessionSecret([4; 32]));
    let without = refusal(&daemon, id, &secret, false);
    assert_eq!(without, Code::FailedPrecondition);
    let reply = Resuming::reopen(&daemon, id, &secret, true).expect("a session");
    assert_eq!(
        (&reply.session_id[..], &reply.session_secret[..]),
        (&id.0[..], &secret.0[..])
    );
    assert!(reply.reexecutes);
    let preamble = Preamble {
        purpose: Purpose::Commands,
        lane: 0,
        session: id,
        link: 0,
    };
    let socket = std::net::TcpStream::connect(&daemon.address).unwrap();
    let proved = prove_with(socket, &preamble, &secret, &ClientWord::default());
    assert_eq!(proved.unwrap().1, WANTS_RECORD | REEXECUTES);
    assert_eq!(refusal(&daemon, id, &secret, true), Code::AlreadyExists);
}
