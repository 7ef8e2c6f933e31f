//! Sessions whose clients are away: who has them, and which end for other sessions of their users.

use std::io;
use std::net::IpAddr;
use std::process::ExitStatus;
use std::sync::Arc;
use std::time::{Duration, Instant};

use causeway_proto::control::Client;
use causeway_proto::id::{SessionId, SessionSecret};
use subtle::ConstantTimeEq;

use super::super::ended::SessionEnd;
use super::super::holders::Holder;
use super::super::process;
use super::super::worker::Worker;
use super::{ROOM_WITHIN, Served, Workers, WorkersState};

/// How long a session must have been away before it ends for another session of its user.
pub(in super::super) const AWAY_LONG: Duration = Duration::from_secs(5);
/// Time for sessions to end whose programs have ended, and for one that is about to end.
const END_WITHIN: Duration = Duration::from_secs(10);
/// Longest text of a client that is kept, in characters.
const LONGEST: usize = 64;

/// Describes the end of a session of which nobody has said a reason.
pub(super) fn describe_end(label: &str, status: &io::Result<ExitStatus>) -> String {
    let cause = status.as_ref().map(|status| process::describe(*status));
    match (label, cause) {
        ("crashed", Ok(cause)) => {
            format!("the session's process crashed in a kernel or the driver ({cause})")
        }
        ("unresponsive", _) => {
            "the session's process did not end after its client was gone, and was killed".to_owned()
        }
        (_, Ok(cause)) => format!("the session's process ended ({cause})"),
        (_, Err(error)) => format!("the session's process ended ({error})"),
    }
}

/// A process on a client's host, as its library describes it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(in super::super) struct ClientProcess {
    program: String,
    pid: u32,
    start_time: u64,
    boot_id: String,
    pid_namespace: u64,
    /// The user on the client's host.
    user: String,
}

/// A client, as far as it decides which sessions another client may see and end.
pub(in super::super) struct Neighbor<'a> {
    pub(in super::super) process: &'a ClientProcess,
    /// The owner's user; `None` if nobody knows.
    pub(in super::super) user: Option<&'a str>,
    pub(in super::super) address: Option<IpAddr>,
}

impl Neighbor<'_> {
    /// Whether both are of one user and host. Without authentication the client says which user that is, so its address
    /// must be the same, too.
    fn is_beside(&self, other: &Neighbor<'_>) -> bool {
        let is_same = || self.address == other.address && self.process.user == other.process.user;
        self.user == other.user
            && self.process.is_beside(other.process)
            && (self.user.is_some() || is_same())
    }
}

/// Numbers of a holder's sessions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in super::super) struct Own {
    pub(in super::super) sessions: usize,
    /// Those whose clients are away.
    pub(in super::super) away: usize,
}

impl Served {
    /// Whether the session is a holder's. Callers that have no user have an address.
    fn is_of(&self, holder: &Holder) -> bool {
        match &holder.user {
            Some(_) => self.holder.user == holder.user,
            None => self.holder == *holder,
        }
    }

    fn neighbor(&self) -> Neighbor<'_> {
        Neighbor {
            process: &self.client,
            user: self.owner.user.as_deref(),
            address: self.holder.address,
        }
    }
}

impl ClientProcess {
    pub(in super::super) fn of(client: &Client) -> ClientProcess {
        let short = |text: &str| text.chars().take(LONGEST).collect();
        ClientProcess {
            program: short(&client.program),
            pid: client.pid,
            start_time: client.start_time,
            boot_id: short(&client.boot_id),
            pid_namespace: client.pid_namespace,
            user: short(&client.user),
        }
    }

    /// Returns whether both processes see each other by their ids. Processes of unknown hosts do not.
    fn is_beside(&self, other: &ClientProcess) -> bool {
        let host = |of: &ClientProcess| (of.boot_id.clone(), of.pid_namespace);
        !self.boot_id.is_empty() && self.pid_namespace != 0 && host(self) == host(other)
    }

    fn is(&self, other: &ClientProcess) -> bool {
        let process = |of: &ClientProcess| (of.pid, of.start_time);
        self.start_time != 0 && self.is_beside(other) && process(self) == process(other)
    }

    /// Describes the process as [`ClientProcess::of`] reads it.
    pub(super) fn whole(&self) -> Client {
        Client {
            user: self.user.clone(),
            ..self.to_wire()
        }
    }

    fn to_wire(&self) -> Client {
        Client {
            program: self.program.clone(),
            pid: self.pid,
            start_time: self.start_time,
            boot_id: self.boot_id.clone(),
            pid_namespace: self.pid_namespace,
            ..Client::default()
        }
    }
}

impl WorkersState {
    /// Returns the sessions of the caller's user and host that are away.
    fn away_beside(&self, caller: &Neighbor<'_>) -> impl Iterator<Item = &Served> {
        let all = self.sessions.values();
        all.filter(|of| of.worker.away_since().is_some() && caller.is_beside(&of.neighbor()))
    }

    /// Selects the session that ends if the holder may have no more: the one that is away longest, and long enough.
    fn longest_away(&self, holder: &Holder, now: Instant) -> Option<Arc<Worker>> {
        let theirs = self.sessions.values().filter(|of| of.is_of(holder));
        let away = theirs.filter_map(|of| {
            let since = of.worker.away_since()?;
            let is_long = now.saturating_duration_since(since) >= AWAY_LONG;
            is_long.then_some((since, &of.worker))
        });
        let (_, worker) = away.min_by_key(|(since, _)| *since)?;
        Some(Arc::clone(worker))
    }
}

impl Workers {
    /// Returns the number of sessions whose clients are away, and how often clients have come back.
    pub(in super::super) fn away(&self) -> (usize, u64) {
        let state = self.0.state.lock();
        let sessions = || state.sessions.values().map(|of| &of.worker);
        let away = sessions().filter(|of| of.away_since().is_some()).count();
        (
            away,
            state.resumed + sessions().map(|of| of.resumed()).sum::<u64>(),
        )
    }

    /// Counts the sessions of `holder`.
    pub(in super::super) fn held_by(&self, holder: &Holder) -> Own {
        let state = self.0.state.lock();
        let own = || state.sessions.values().filter(|of| of.is_of(holder));
        Own {
            sessions: own().count(),
            away: own().filter(|of| of.worker.away_since().is_some()).count(),
        }
    }

    /// Waits until there are sessions, and the clients of all have been away for this long. A session that is being
    /// parked counts as one whose client is here.
    pub(in super::super) async fn all_away_for(&self, time: Duration) {
        loop {
            let reaped = self.0.reaped.notified();
            let (here, last) = {
                let state = self.0.state.lock();
                let sessions = || state.sessions.values().map(|of| &of.worker);
                let here = sessions().find(|of| of.is_worth_waiting_for());
                let last = sessions().filter_map(|of| of.away_since()).max();
                (here.cloned(), last)
            };
            let changes = async {
                match (here, last.map(|last| last + time)) {
                    (Some(here), _) => here.leaves().await,
                    (None, Some(end)) if end <= Instant::now() => return true,
                    (None, Some(end)) => tokio::time::sleep_until(end.into()).await,
                    (None, None) => std::future::pending().await,
                }
                false
            };
            tokio::select! {
                are_away = changes => if are_away { return },
                () = reaped => {}
            }
        }
    }

    /// Returns the number of sessions of this lease whose clients are away.
    pub(in super::super) fn away_with(&self, lease: &str) -> usize {
        let state = self.0.state.lock();
        let of_lease = state.sessions.values().filter(|of| {
            of.owner.lease.as_deref() == Some(lease) && of.worker.away_since().is_some()
        });
        of_lease.count()
    }

    /// Returns the processes of the caller's user and host that have a session which is away.
    pub(in super::super) fn away_beside(&self, caller: &Neighbor<'_>) -> Vec<Client> {
        let state = self.0.state.lock();
        let beside = state.away_beside(caller);
        beside.map(|of| of.client.to_wire()).collect()
    }

    /// Ends the sessions of the caller's user and host that are away and whose processes have ended. Waits until they
    /// have ended, at most [`END_WITHIN`]. Returns how many have.
    pub(in super::super) async fn end_away(
        &self,
        caller: &Neighbor<'_>,
        ended: &[ClientProcess],
    ) -> usize {
        let ending: Vec<u64> = {
            let state = self.0.state.lock();
            let has_ended = |of: &&Served| ended.iter().any(|process| process.is(&of.client));
            (state.away_beside(caller).filter(has_ended))
                .map(|of| {
                    of.worker
                        .end_because("the program that opened the session has ended");
                    of.worker.serial
                })
                .collect()
        };
        let is_over = |state: &WorkersState| {
            let mut open = state.sessions.values();
            !open.any(|of| ending.contains(&of.worker.serial))
        };
        let _ = tokio::time::timeout(END_WITHIN, self.until(is_over)).await;
        let state = self.0.state.lock();
        let open = state.sessions.values();
        ending.len() - open.filter(|of| ending.contains(&of.worker.serial)).count()
    }

    /// If a limit leaves no place for a session of `holder`, ends theirs that is away longest. Waits until it has ended,
    /// at most [`ROOM_WITHIN`].
    pub(super) async fn end_one_away(&self, holder: &Holder) {
        let host_memory = self.0.sessions.limits.host_memory;
        let longest = {
            let state = self.0.state.lock();
            let is_full = state.sessions.len() >= self.0.sessions.limit as usize;
            let has_room = !is_full && self.0.holdings.may_take(holder, host_memory).is_ok();
            match has_room || state.draining {
                true => None,
                false => state.longest_away(holder, Instant::now()),
            }
        };
        let Some(worker) = longest else { return };
        tracing::info!(
            worker = worker.serial,
            "a session that is away is ended, because its user opens another and a limit is reached"
        );
        worker.end_because(
            "the session was away, and its user opened another one while a limit on sessions was reached",
        );
        let is_over = |state: &WorkersState| {
            let mut open = state.sessions.values();
            !open.any(|of| of.worker.serial == worker.serial)
        };
        let _ = tokio::time::timeout(ROOM_WITHIN, self.until(is_over)).await;
    }

    /// Returns how a session has ended, to a caller that knows its secret. Waits for one that is about to end.
    pub(in super::super) async fn session_end(
        &self,
        id: &SessionId,
        secret: &SessionSecret,
    ) -> Option<SessionEnd> {
        let is_ending = {
            let state = self.0.state.lock();
            let served = state.sessions.get(id);
            served
                .is_some_and(|of| bool::from(of.secret.0.ct_eq(&secret.0)) && of.worker.is_ending())
        };
        if is_ending {
            let is_over = |state: &WorkersState| !state.sessions.contains_key(id);
            let _ = tokio::time::timeout(END_WITHIN, self.until(is_over)).await;
        }
        let mut state = self.0.state.lock();
        state.ended.end(id, secret, Instant::now())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn without_authentication_only_a_user_at_the_same_address_is_beside() {
        let process = |user: &str| {
            ClientProcess::of(&Client {
                user: user.to_owned(),
                boot_id: "a boot".to_owned(),
                pid_namespace: 7,
                ..Client::default()
            })
        };
        let (own, of_another) = (process("one"), process("another"));
        let client = |process, user, last| Neighbor {
            process,
            user,
            address: Some(IpAddr::from([10, 0, 0, last])),
        };
        let caller = client(&own, None, 1);
        assert!(caller.is_beside(&client(&own, None, 1)));
        assert!(!caller.is_beside(&client(&own, None, 2)));
        assert!(!caller.is_beside(&client(&of_another, None, 1)));
        assert!(!caller.is_beside(&client(&own, Some("u"), 1)));
        // A user that the node knows may come from elsewhere.
        let known = client(&own, Some("u"), 1);
        assert!(known.is_beside(&client(&of_another, Some("u"), 2)));
        assert!(!known.is_beside(&client(&own, Some("v"), 1)));
    }
}
