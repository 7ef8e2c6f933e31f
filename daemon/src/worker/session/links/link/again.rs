//! How the broken lanes of a link get their next connections.
//!
//! The end that has made the link dials; the other end accepts. A lane stops before its position is told to the other
//! end, and continues over the next connection from the position that the other end tells. When to dial, and when to
//! give up, says [`mending`](super::mending).
//!
//! Invariant: a connection continues a lane of its own incarnation and generation only.
#![forbid(unsafe_code)]

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Instant;

use causeway_lane::Stopped;
use causeway_proto::command::LinkState;
use causeway_proto::preamble::{EVENT_LANE, Verdict};
use causeway_security::Line;

use super::mending::Task;
use super::{Link, LinkPath, LinkSeat, Up};
use crate::worker::session::links::{Links, dial};

/// The next connection of a lane.
#[derive(Clone, Copy)]
pub(in super::super) struct Resumption {
    pub(in super::super) incarnation: u64,
    pub(in super::super) generation: u64,
    pub(in super::super) lane: u8,
    /// Where this end has stopped. Positions of the event lane are numbers of event messages.
    pub(in super::super) after: Stopped,
    /// Where this end has reached the other one, if this end dials.
    pub(in super::super) at: Option<SocketAddr>,
}

impl Link {
    /// Claims a broken lane, or one whose break this end has not noticed, for its next connection.
    ///
    /// # Errors
    /// [`Verdict::TooMany`] if the other end may retry; [`Verdict::UnknownLink`] when this end has given up the lane.
    pub(crate) fn claim_again(
        self: &Arc<Self>,
        links: &Links,
        lane: u8,
        generation: u64,
    ) -> Result<LinkSeat, Verdict> {
        let (attempt, incarnation) = {
            let mut state = self.state.lock();
            let state = &mut *state;
            let up = match &mut state.path {
                LinkPath::Up(up) if up.can_resume(self, generation) => up,
                // The last connection of the attempt is about to be handed over.
                LinkPath::Open(_) | LinkPath::Down if state.incoming.is_alive_as(generation) => {
                    return Err(Verdict::TooMany);
                }
                _ => return Err(Verdict::UnknownLink),
            };
            if !up.mending.is_broken(lane) && !up.takeovers.may_take(Instant::now()) {
                return Err(Verdict::TooMany);
            }
            (state.incoming.attempt, state.incarnation)
        };
        let resumed = self.stop_lane(links, incarnation, lane);
        Ok(LinkSeat {
            link: Arc::clone(self),
            attempt,
            lane,
            resumed: Some(resumed.ok_or(Verdict::TooMany)?),
        })
    }

    /// Ends the receiving over the present connection of a lane. `None` if the lane is gone or cannot stop now.
    pub(in super::super) fn stop_lane(
        &self,
        links: &Links,
        incarnation: u64,
        lane: u8,
    ) -> Option<Resumption> {
        let (generation, handled) = {
            let state = self.state.lock();
            match &state.path {
                LinkPath::Up(up) if state.incarnation == incarnation => {
                    (up.generation, Arc::clone(&up.handled))
                }
                _ => return None,
            }
        };
        let after = if lane == EVENT_LANE {
            let (position, next) = handled.next_connection();
            Stopped { position, next }
        } else {
            links.bulk.stop_peer_lane(self.id, incarnation, lane)?
        };
        Some(Resumption {
            incarnation,
            generation,
            lane,
            after,
            at: None,
        })
    }

    /// Continues a lane over its next connection. The other end has received `position` over the lane.
    pub(in super::super) fn resume(
        self: &Arc<Self>,
        links: &Arc<Links>,
        of: Resumption,
        line: Line,
        position: u64,
    ) {
        if let Err(reason) = self.try_resume(links, of, line, position) {
            self.come_down(links, of.incarnation, reason);
        }
    }

    fn try_resume(
        self: &Arc<Self>,
        links: &Arc<Links>,
        of: Resumption,
        line: Line,
        position: u64,
    ) -> Result<(), String> {
        let _turning = self.turning.lock();
        let mut state = self.state.lock();
        let incarnation = state.incarnation;
        let LinkPath::Up(up) = &mut state.path else {
            return Ok(());
        };
        if incarnation != of.incarnation {
            return Ok(());
        }
        let (lane, connection) = (of.lane, of.after.next);
        // Before the connection is installed, which may break at once.
        if !up.mending.lane_mended(lane, connection) {
            return Ok(());
        }
        up.at = of.at.or(up.at);
        if lane != EVENT_LANE {
            drop(state);
            let bulk = &links.bulk;
            if !bulk.resume_peer_lane(self.id, lane, of.after, line.into(), position) {
                self.lane_lost(links, incarnation, lane, connection);
                return Ok(());
            }
        } else {
            let next = up.messages.succeed(line, position);
            let (messages, heard) = next.map_err(|error| error.to_string())?;
            let messages = Arc::new(messages);
            up.messages = Arc::clone(&messages);
            let counted = (Arc::clone(&up.handled), connection);
            drop(state);
            self.serve(links, messages, heard, of.incarnation, counted);
        }
        self.changed.notify_all();
        tracing::info!(link = ?self.id, lane, "a connection of a link was replaced");
        Ok(())
    }

    /// Handles that a connection of a lane is broken. Returns false if a later connection has replaced it, or the link
    /// has come down. The caller may hold the lane's writing lock.
    pub(in super::super) fn lane_lost(
        self: &Arc<Self>,
        links: &Arc<Links>,
        incarnation: u64,
        lane: u8,
        connection: u64,
    ) -> bool {
        {
            let mut state = self.state.lock();
            if state.incarnation != incarnation {
                return false;
            }
            let LinkPath::Up(up) = &mut state.path else {
                return false;
            };
            if !up.mending.lane_broke(lane, connection, Instant::now()) {
                return false;
            }
            if lane == EVENT_LANE {
                up.messages.close();
            }
            if std::mem::replace(&mut up.is_mending, true) {
                drop(state);
                self.changed.notify_all();
                return true;
            }
        }
        let (link, of) = (Arc::clone(self), Arc::clone(links));
        let mend = move || link.mend(&of, incarnation);
        if let Err(error) = links.scope.try_spawn("link-mend", mend) {
            let what = format!("cannot start a thread for a broken link: {error}");
            links.scope.fail(&what);
        }
        true
    }

    pub(super) fn event_lost(
        self: &Arc<Self>,
        links: &Arc<Links>,
        incarnation: u64,
        connection: u64,
    ) {
        if self.lane_lost(links, incarnation, EVENT_LANE, connection) {
            // Only the event connection notices silence early. Most likely the others are dead too.
            links.bulk.break_peer_lanes(self.id);
        }
    }

    /// Whether lanes of this incarnation are still to be dialled.
    pub(in super::super) fn is_mending(&self, incarnation: u64) -> bool {
        let state = self.state.lock();
        matches!(&state.path, LinkPath::Up(up)
            if state.incarnation == incarnation && up.mending.goes_on())
    }

    /// The body of the `link-mend` thread.
    fn mend(self: &Arc<Self>, links: &Arc<Links>, incarnation: u64) {
        let reason = loop {
            let turning = self.turning.lock();
            let mut state = self.state.lock();
            if state.incarnation != incarnation {
                return;
            }
            let LinkPath::Up(up) = &mut state.path else {
                return;
            };
            let (task, at) = (up.mending.next(Instant::now()), up.at);
            match (task, at) {
                (Task::Finish { is_told }, _) => {
                    up.is_mending = false;
                    drop(state);
                    if is_told {
                        links.outbox.link(self.told(true, String::new()));
                    }
                    return;
                }
                (Task::Tell, _) => {
                    drop(state);
                    links.outbox.link(self.told_mending());
                }
                (Task::Wait(until), _) => {
                    drop(turning);
                    self.changed.wait_until(&mut state, until);
                }
                (Task::Dial(lanes), Some(at)) => {
                    drop((state, turning));
                    let done = dial::again(self, links, incarnation, at, &lanes);
                    if let Err(reason) = done {
                        break reason;
                    }
                    self.dialled_again(incarnation, done == Ok(true));
                }
                (Task::Dial(_), None) => break "this end does not dial".to_owned(),
                (Task::GiveUp(reason), _) => break reason,
            }
        };
        self.come_down(links, incarnation, reason);
    }

    fn dialled_again(&self, incarnation: u64, is_done: bool) {
        let mut state = self.state.lock();
        if state.incarnation == incarnation
            && let LinkPath::Up(up) = &mut state.path
        {
            up.mending.dialled(is_done, Instant::now());
        }
    }

    fn told_mending(&self) -> LinkState {
        LinkState {
            mending: true,
            ..self.told(false, "its connections are broken".to_owned())
        }
    }
}

impl Up {
    /// Whether a connection of the other end may continue a lane.
    fn can_resume(&self, link: &Link, generation: u64) -> bool {
        !link.resume.is_zero() && self.at.is_none() && self.generation == generation
    }
}
