//! Sends the sessions of a lease to another node: the call that brings them.
//!
//! This module decides nothing about sessions. Invariants: nothing is sent for a move that has ended. A session's ticket
//! follows when the other node has all its contents.
#![forbid(unsafe_code)]

use std::thread::{Builder, ScopedJoinHandle};
use std::time::Duration;

use bytes::Bytes;
use causeway_proto::control::node_client::NodeClient;
use causeway_proto::control::{SessionPart, SessionsTaken, Taking, session_part::Part};
use causeway_proto::id::SessionId;
use causeway_proto::manager::NodeShare;
use causeway_proto::version::WireVersion;
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinHandle;
use tokio::time::Instant;
use tokio_stream::StreamExt as _;
use tokio_stream::wrappers::ReceiverStream;
use tonic::Status;

use super::super::super::contents::Contents;
use super::super::super::workers::{Departing, Progress};
use super::super::{Managed, dial};
use super::send_file::{Connections, File, NoWay, NotSent};
use super::{LOOK_EVERY, NotMoved, STILL_WAITS, TAKEN_WITHIN};

/// Bytes of contents in one message.
const PIECE: usize = 48 << 10;
/// Messages that wait for the network.
const QUEUED: usize = 32;
/// A session that is not parked in time is the reason for which a move fails, not the other node.
const BEHIND: Duration = Duration::from_millis(100);
/// Time for the call to say why a connection of its transfer has failed.
const SAID_WITHIN: Duration = Duration::from_secs(1);

/// Where a call that sends sessions has failed.
enum Failed {
    /// The contents cannot be read.
    Here(std::io::Error),
    /// The other node has refused them, or is lost.
    There(Status),
}

impl From<Status> for Failed {
    fn from(status: Status) -> Failed {
        Failed::There(status)
    }
}

impl From<std::io::Error> for Failed {
    fn from(error: std::io::Error) -> Failed {
        Failed::Here(error)
    }
}

impl From<NotSent> for Failed {
    fn from(error: NotSent) -> Failed {
        match error {
            NotSent::Here(error) => Failed::Here(error),
            other => Failed::There(Status::unavailable(other.to_string())),
        }
    }
}

impl Failed {
    // The result of a move to this node.
    fn at(self, target: &NodeShare) -> NotMoved {
        match self {
            Failed::Here(error) => NotMoved::not_read(&error),
            Failed::There(status) => {
                let (name, why) = (&target.name, status.message());
                NotMoved::not_taken(format!("node {name} did not take its sessions: {why}"))
            }
        }
    }
}

impl Managed {
    /// Sends the sessions to another node, from when the first of them is being written.
    pub(super) async fn send(
        &self,
        target: &NodeShare,
        credential: Bytes,
        departing: Vec<Departing>,
        until: Instant,
    ) -> Result<(), NotMoved> {
        let (queue, mut sent) = mpsc::channel(QUEUED);
        // Once the other node has begun to answer, the call would not end with its future.
        let (call, _goes_on) = oneshot::channel();
        let connections = Connections::default();
        let _ends_with_call = connections.end_with_call();
        let parts = Parts {
            queue,
            call,
            connections: connections.clone(),
        };
        let taking = Taking {
            wire_version: WireVersion::CURRENT.number().into(),
            credential,
            sessions: u32::try_from(departing.len()).unwrap_or(u32::MAX),
        };
        let workers = self.0.workers.clone();
        let progress = move |id| workers.progress(id);
        let reading =
            tokio::task::spawn_blocking(move || read(&parts, taking, departing, &progress));
        let Some(first) = sent.recv().await else {
            let read = read_by(reading).await;
            return Err(read.err().unwrap_or_else(ended_early).at(target));
        };
        // Anew, because the other node ends idle connections, and a session may have taken long to stand still.
        let (mut client, address) = self.reach(&target.addresses, until).await?;
        let sent = tokio_stream::once(first).chain(ReceiverStream::new(sent));
        let mut request = tonic::Request::new(sent);
        dial::authorize(&mut request, self.0.settings.token.as_ref());
        let by = until + BEHIND;
        let needs_tls = self.0.settings.tls.is_some();
        let connects = |taken: &SessionsTaken| {
            let way = taken.contents.as_ref()?;
            Some(connections.found(way, address.clone(), needs_tls))
        };
        let taken = take(&mut client, request, reading, connects);
        let taken = tokio::time::timeout_at(by, taken).await;
        let too_long = |_| Err(Status::deadline_exceeded("it took too long").into());
        taken
            .unwrap_or_else(too_long)
            .map_err(|failed| failed.at(target))
    }
}

// Has another node take the sessions, which a thread reads. `connects` handles an answer that says how connections are
// made, and returns `None` for the last one.
async fn take<Stream>(
    client: &mut NodeClient<tonic::transport::Channel>,
    request: tonic::Request<Stream>,
    reading: JoinHandle<Result<(), Failed>>,
    connects: impl Fn(&SessionsTaken) -> Option<Result<(), NoWay>>,
) -> Result<(), Failed>
where
    Stream: tokio_stream::Stream<Item = SessionPart> + Send + 'static,
{
    let answer = async {
        let mut answers = client.take_sessions(request).await?.into_inner();
        while let Some(answer) = answers.message().await? {
            match connects(&answer) {
                None => return Ok(()),
                Some(connects) => connects.map_err(|error| Status::unknown(error.to_string()))?,
            }
        }
        Err(Status::unavailable("the node closed the connection"))
    };
    tokio::pin!(answer);
    tokio::select! {
        // First, because the other node refuses what ends early.
        biased;
        read = read_by(reading) => read?,
        // An answer before the last part is a refusal.
        answer = &mut answer => return Ok(answer?),
    }
    let answer = tokio::time::timeout(TAKEN_WITHIN, answer).await;
    answer.map_err(|_| Status::deadline_exceeded("it did not answer in time"))??;
    Ok(())
}

async fn read_by(thread: JoinHandle<Result<(), Failed>>) -> Result<(), Failed> {
    thread.await.map_err(std::io::Error::other)?
}

fn ended_early() -> Failed {
    std::io::Error::other("the sessions stay").into()
}

/// Where the parts of a call go.
struct Parts {
    queue: mpsc::Sender<SessionPart>,
    /// Closed when nobody waits for the call any more.
    call: oneshot::Sender<()>,
    connections: Connections,
}

impl Parts {
    /// Whether the call has ended. Its answer says why, if anybody waits for it.
    fn are_over(&self) -> bool {
        self.queue.is_closed() || self.call.is_closed()
    }

    fn push(&self, part: Part) {
        if !self.are_over() {
            let _ = self.queue.blocking_send(SessionPart { part: Some(part) });
        }
    }
}

// Sends all parts, or ends early with the call. The files are read on threads that may wait for a disk.
fn read(
    parts: &Parts,
    taking: Taking,
    departing: Vec<Departing>,
    progress: &(dyn Fn(SessionId) -> Progress + Sync),
) -> Result<(), Failed> {
    if let Some(Departing { id, contents }) = departing.first()
        && let Some(first) = contents.first()
    {
        while !parts.are_over() && matches!(progress(*id), Progress::Parks) && first.length()? == 0
        {
            std::thread::sleep(LOOK_EVERY);
        }
    }
    parts.push(Part::Taking(taking));
    for (departing, number) in departing.iter().zip(1..) {
        let progress = || progress(departing.id);
        if !read_session(parts, number, departing, &progress)? {
            break;
        }
    }
    Ok(())
}

// Sends a session as far as it is written, until it is whole. Returns whether the next one follows.
fn read_session(
    parts: &Parts,
    session: u64,
    Departing { id, contents }: &Departing,
    progress: &(dyn Fn() -> Progress + Sync),
) -> Result<bool, Failed> {
    let Some((first, further)) = contents.split_first() else {
        return Err(ended_early());
    };
    // The other node prepares for the session, or refuses it.
    parts.push(Part::Contents(Bytes::new()));
    std::thread::scope(|scope| {
        let files = further.iter().zip(1..).map(|(contents, number)| {
            let file = File {
                session,
                number,
                contents,
            };
            let thread = Builder::new().name("file".into());
            thread.spawn_scoped(scope, move || parts.connections.send(&file, progress))
        });
        let files = files.collect::<std::io::Result<Vec<_>>>();
        let sent = files.map_err(Failed::from).and_then(|files| {
            let mut further = FurtherFiles(files);
            read_first(parts, first, &mut further, progress)
        });
        let ticket = match sent {
            Ok(After::Ticket(ticket)) => ticket,
            Ok(After::Ended) => {
                parts.push(Part::Ended(true));
                return Ok(true);
            }
            Ok(After::Nothing) => {
                parts.connections.end();
                return Ok(false);
            }
            Err(error) => {
                parts.connections.end();
                return Err(error);
            }
        };
        tracing::debug!(session = ?id, "a session is sent to another node");
        parts.push(Part::Ticket(ticket.into()));
        Ok(true)
    })
}

/// What follows the contents of a session.
enum After {
    Ticket(Vec<u8>),
    /// The session has ended.
    Ended,
    /// The call has ended, or its sessions stay.
    Nothing,
}

/// The threads that send the further files of a session.
struct FurtherFiles<'scope>(Vec<ScopedJoinHandle<'scope, Result<(), NotSent>>>);

impl FurtherFiles<'_> {
    /// Returns whether the other node has all of them.
    fn are_sent(&mut self, parts: &Parts) -> Result<bool, Failed> {
        while let Some(at) = self.0.iter().position(ScopedJoinHandle::is_finished) {
            let sent = match self.0.swap_remove(at).join() {
                Ok(sent) => sent,
                Err(panic) => std::panic::resume_unwind(panic),
            };
            if let Err(error) = sent {
                // The other node's answer may say why, in place of this error.
                let until = std::time::Instant::now() + SAID_WITHIN;
                while !parts.are_over() && std::time::Instant::now() < until {
                    std::thread::sleep(LOOK_EVERY);
                }
                return match parts.are_over() {
                    true => Ok(false),
                    false => Err(error.into()),
                };
            }
        }
        Ok(self.0.is_empty())
    }
}

// Sends the first file, and waits for the others.
fn read_first(
    parts: &Parts,
    contents: &Contents,
    further: &mut FurtherFiles<'_>,
    progress: &dyn Fn() -> Progress,
) -> Result<After, Failed> {
    let (mut at, mut last) = (0, Instant::now());
    loop {
        // Asked before the contents are read: then they are whole when the session is parked.
        let now = progress();
        let before = at;
        at = push_contents(parts, contents, at)?;
        let are_sent = further.are_sent(parts)?;
        // Looked at last: the session may be parked for a later move.
        if parts.are_over() {
            return Ok(After::Nothing);
        }
        match now {
            Progress::Parked(ticket) if are_sent => return Ok(After::Ticket(ticket.to_bytes())),
            Progress::Parked(_) | Progress::Parks => {}
            Progress::Over => return Ok(After::Ended),
            Progress::Stays => return Ok(After::Nothing),
        }
        if at > before {
            last = Instant::now();
        } else if last.elapsed() >= STILL_WAITS {
            parts.push(Part::Contents(Bytes::new()));
            last = Instant::now();
        }
        std::thread::sleep(LOOK_EVERY);
    }
}

// Sends the contents from a position on, as far as they are written. Returns the next position.
fn push_contents(parts: &Parts, contents: &Contents, mut at: u64) -> std::io::Result<u64> {
    while !parts.are_over() {
        let piece = contents.read_at(at, PIECE)?;
        if piece.is_empty() {
            break;
        }
        at += piece.len() as u64;
        parts.push(Part::Contents(piece.into()));
    }
    Ok(at)
}

#[cfg(test)]
mod tests {
    use super::super::tests::{Scene, memory};
    use super::*;
    use rustix::fs::{MemfdFlags, SeekFrom, memfd_create, seek};
    use std::io::Write;

    // The worker that restores a session reads from the position that all descriptors of the file share.
    #[test]
    fn sending_leaves_the_position_to_the_worker() {
        const LENGTH: usize = 3 * PIECE + 5;
        let mut file = std::fs::File::from(memfd_create("test", MemfdFlags::CLOEXEC).unwrap());
        let bytes: Vec<u8> = (0..LENGTH).map(|at| (at / 7) as u8).collect();
        file.write_all(&bytes).unwrap();
        let contents = Contents::from(file);
        let worker = contents.at_the_start().unwrap();
        seek(&worker, SeekFrom::Start(7)).unwrap();
        let (queue, mut sent) = mpsc::channel(16);
        let (call, _goes_on) = oneshot::channel();
        let parts = Parts {
            queue,
            call,
            connections: Connections::default(),
        };
        let departing = vec![Departing {
            id: SessionId([1; 16]),
            contents: vec![contents],
        }];
        let parked = |_| Progress::Parked(Box::default());
        assert!(read(&parts, Taking::default(), departing, &parked).is_ok());
        drop(parts);
        let mut arrived = Vec::new();
        while let Some(part) = sent.blocking_recv() {
            if let Some(Part::Contents(piece)) = part.part {
                arrived.extend_from_slice(&piece);
            }
        }
        assert!(arrived == bytes);
        assert_eq!(seek(&worker, SeekFrom::Current(0)).unwrap(), 7);
    }

    /// Sends a session with the contents of these further files. Returns whether its ticket followed, and how it ended.
    fn send_all(scene: &Scene, further: &[Vec<u8>]) -> (bool, Result<(), Failed>) {
        let (queue, mut sent) = mpsc::channel(16);
        let (call, _goes_on) = oneshot::channel();
        let parts = Parts {
            queue,
            call,
            connections: scene.connections(),
        };
        let first: &[u8] = b"state";
        let files = std::iter::once(first).chain(further.iter().map(Vec::as_slice));
        let contents = files.map(|bytes| {
            let contents = memory();
            contents.write_at(bytes, 0).unwrap();
            contents
        });
        let departing = vec![Departing {
            id: SessionId([1; 16]),
            contents: contents.collect(),
        }];
        let parked = |_| Progress::Parked(Box::default());
        let ended = read(&parts, Taking::default(), departing, &parked);
        drop(parts);
        let mut has_ticket = false;
        while let Some(part) = sent.blocking_recv() {
            has_ticket |= matches!(part.part, Some(Part::Ticket(_)));
        }
        (has_ticket, ended)
    }

    #[test]
    fn the_ticket_follows_when_all_files_have_come_over_connections_of_their_own() {
        let scene = Scene::new(u64::MAX, None);
        scene.underway.transfer.begin_session();
        let further: Vec<_> = (1..=4).map(|of| vec![of; usize::from(of) << 20]).collect();
        let (has_ticket, ended) = send_all(&scene, &further);
        assert!(has_ticket && ended.is_ok());
        let files = scene.underway.transfer.end_session().unwrap();
        let bytes = files.iter().map(|of| of.read_at(0, 5 << 20).unwrap());
        assert!(bytes.collect::<Vec<_>>() == further);
    }

    #[test]
    fn no_ticket_follows_if_one_of_several_connections_breaks() {
        // The room is for all files but one, whose connection the other end closes.
        let scene = Scene::new(7 << 20, None);
        scene.underway.transfer.begin_session();
        let further: Vec<_> = (1..=4).map(|of| vec![of; 2 << 20]).collect();
        let (has_ticket, ended) = send_all(&scene, &further);
        assert!(!has_ticket && matches!(ended, Err(Failed::There(_))));
    }
}
