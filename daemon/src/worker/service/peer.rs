//! Connections that other workers open to this one.
//!
//! The peer proves the secret of a link, which the client has given to both ends. If the
//! client has informed the other end first, the connection waits a little for the client's
//! message. After that the peer has to retry.
//!
//! Invariant: a peer that knows no link's secret learns only whether the session exists.

use std::net::TcpStream;
use std::sync::Arc;
use std::time::{Duration, Instant};

use causeway_proto::id::LinkId;
use causeway_proto::preamble::{ClientWord, Introduction, PREAMBLE, Verdict};
use causeway_security::Line;

use super::stage::Stage;
use super::{proof, sockets};
use crate::worker::session::Session;
use crate::worker::session::links::{self, Link, LinkSeat};

/// How long a connection waits for the session to begin and to learn of the link.
const WAIT_FOR_LINK: Duration = Duration::from_secs(1);

/// A connection that has proved its link's secret.
pub(super) struct Proved {
    line: Line,
    session: Arc<Session>,
    place: LinkSeat,
    /// The bytes that the other end has received over earlier connections of this lane.
    received: u64,
}

impl Proved {
    /// Hands the connection to its link.
    pub(super) fn attach(self) {
        self.session
            .attach_peer(self.place, self.line, self.received);
    }
}

/// Finds the link and checks the proof of its secret.
pub(super) fn prove(
    stage: &Stage,
    preamble: &Introduction,
    bytes: &[u8; PREAMBLE],
    socket: TcpStream,
) -> Result<Proved, proof::Refused> {
    let found = proof::fits(&socket, preamble.purpose)
        .and_then(|()| sockets::assignment(stage, preamble))
        .and_then(|_| find(stage, preamble));
    let (session, link) = match found {
        Ok(found) => found,
        Err(verdict) => {
            proof::refuse(&socket.into(), verdict);
            return Err(verdict.into());
        }
    };
    let deadline = proof::deadline();
    let line = proof::secure(socket, preamble.purpose, stage.tls().as_ref(), deadline)?;
    let mut received = 0;
    let claim = |word: &ClientWord| {
        // 0 is the position of a first connection.
        let place = match word.position.checked_sub(1) {
            None => link.claim(preamble.lane, word.generation)?,
            Some(position) => {
                received = position;
                link.claim_again(session.links(), preamble.lane, word.generation)?
            }
        };
        let position = place.position();
        Ok((place, position))
    };
    let place = proof::prove(&line, link.secret(), bytes, deadline, claim)?;
    links::set_options(line.socket(), preamble.lane)?;
    Ok(Proved {
        line,
        session,
        place,
        received,
    })
}

fn find(stage: &Stage, preamble: &Introduction) -> Result<(Arc<Session>, Arc<Link>), Verdict> {
    let deadline = Instant::now() + WAIT_FOR_LINK;
    let session = stage.session_by(deadline).ok_or(Verdict::UnknownLink)?;
    let link = session.links().wait_for(LinkId(preamble.link), deadline);
    Ok((session, link.ok_or(Verdict::UnknownLink)?))
}
