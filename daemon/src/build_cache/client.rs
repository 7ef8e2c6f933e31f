//! The worker's end: asks the supervisor for entries, and sends it jobs.
//!
//! Invariant: whatever the supervisor does, a build waits for it [`PATIENCE`] at most, and goes on without
//! the cache then; one that was not answered costs the builds of the next [`SILENCE`] nothing.

use std::collections::HashMap;
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{self, Receiver, SyncSender};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use prost::Message;
use rustix::fs::MemfdFlags;

use super::entry::{Entry, MAX_ENTRY};
use super::job::JOB_SEALS;
use super::{Job, Key};
use crate::handover::{self, ToSupervisor};

/// The supervisor opens a file and answers; on a machine that takes longer for it a build takes longer yet.
const PATIENCE: Duration = Duration::from_secs(2);
/// For so long nothing is asked once a question was not answered: its disk may hang.
const SILENCE: Duration = Duration::from_secs(60);

/// The way to the cache.
#[derive(Debug)]
pub struct Client {
    channel: OwnedFd,
    on: AtomicBool,
    last: AtomicU64,
    asked: Mutex<HashMap<u64, SyncSender<Option<OwnedFd>>>>,
    // When a question was last left without an answer.
    unanswered: Mutex<Option<Instant>>,
    patience: Duration,
}

impl Client {
    /// Over the worker's channel to its supervisor; off until it is [switched on](Client::switch).
    #[must_use]
    pub fn new(channel: OwnedFd) -> Client {
        Client {
            channel,
            on: AtomicBool::new(false),
            last: AtomicU64::new(0),
            asked: Mutex::default(),
            unanswered: Mutex::default(),
            patience: PATIENCE,
        }
    }

    /// As the assignment says.
    pub fn switch(&self, on: bool) {
        self.on.store(on, Ordering::Relaxed);
    }

    /// Whether there is a cache.
    #[must_use]
    pub fn is_on(&self) -> bool {
        self.on.load(Ordering::Relaxed)
    }

    /// The supervisor's answer to the question of this number.
    pub fn answered(&self, ticket: u64, entry: Option<OwnedFd>) {
        if let Some(asked) = self.asked.lock().remove(&ticket) {
            // Nobody waits any more: the entry is closed.
            let _ = asked.try_send(entry);
        }
    }

    /// The entries of a build for several devices, if there is one for each that is whole and current.
    #[must_use]
    pub fn look_up(&self, keys: &[Key]) -> Option<Vec<Entry>> {
        let before = *self.unanswered.lock();
        if before.is_some_and(|before| before.elapsed() < SILENCE) {
            return None;
        }
        let until = Instant::now() + self.patience;
        let asked: Vec<Asked<'_>> = keys.iter().map(|key| self.ask(key)).collect();
        let answers = asked.into_iter().map(|asked| asked.answer(until));
        // A question that was not answered is the last one.
        let answers: Vec<Option<OwnedFd>> = answers.collect::<Option<_>>()?;
        let entries = keys.iter().zip(answers);
        entries
            .map(|(key, entry)| self.checked(key, entry?))
            .collect()
    }

    fn ask(&self, key: &Key) -> Asked<'_> {
        let ticket = self.last.fetch_add(1, Ordering::Relaxed);
        let (tell, told) = mpsc::sync_channel(1);
        self.asked.lock().insert(ticket, tell);
        let question = ToSupervisor::LookUp { ticket, key: *key };
        if handover::send_to_supervisor(&self.channel, &question).is_err() {
            // Nobody will answer.
            self.asked.lock().remove(&ticket);
        }
        Asked {
            client: self,
            ticket,
            told,
        }
    }

    fn checked(&self, key: &Key, entry: OwnedFd) -> Option<Entry> {
        let decoded = read(entry).map(|bytes| Entry::decode(&bytes, key));
        match decoded {
            Ok(Ok(entry)) if entry.is_current() => Some(entry),
            Ok(Ok(_)) => {
                tracing::info!(?key, "what was built before is another compiler's");
                self.send(&ToSupervisor::Outdated { key: *key });
                None
            }
            Ok(Err(error)) => {
                tracing::info!(%error, ?key, "the build cache");
                self.refuse(key);
                None
            }
            Err(error) => {
                tracing::debug!(%error, ?key, "the build cache");
                None
            }
        }
    }

    /// An entry is of no use: it is to be forgotten.
    pub fn refuse(&self, key: &Key) {
        self.send(&ToSupervisor::Refused { key: *key });
    }

    /// Has a build made again for the cache.
    pub fn learn(&self, key: &Key, job: &Job) {
        let written = || -> io::Result<OwnedFd> {
            let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
            let mut file = File::from(rustix::fs::memfd_create("build", flags)?);
            file.write_all(&job.encode_to_vec())?;
            rustix::fs::fcntl_add_seals(&file, JOB_SEALS)?;
            Ok(file.into())
        };
        match written() {
            Ok(job) => self.send(&ToSupervisor::Learn { key: *key, job }),
            Err(error) => tracing::debug!(%error, "the build cache"),
        }
    }

    fn send(&self, message: &ToSupervisor) {
        if let Err(error) = handover::send_to_supervisor(&self.channel, message) {
            tracing::debug!(%error, "the build cache");
        }
    }
}

/// A question that was sent.
struct Asked<'a> {
    client: &'a Client,
    ticket: u64,
    told: Receiver<Option<OwnedFd>>,
}

impl Asked<'_> {
    /// `None`: there was none by then.
    fn answer(self, until: Instant) -> Option<Option<OwnedFd>> {
        let left = until.saturating_duration_since(Instant::now());
        let answer = self.told.recv_timeout(left).ok();
        if answer.is_none() {
            tracing::info!("the build cache does not answer; it is left alone for a while");
            *self.client.unanswered.lock() = Some(Instant::now());
        }
        answer
    }
}

impl Drop for Asked<'_> {
    fn drop(&mut self) {
        self.client.asked.lock().remove(&self.ticket);
    }
}

fn read(entry: OwnedFd) -> io::Result<Vec<u8>> {
    let file = File::from(entry);
    let mut bytes = Vec::new();
    file.take(MAX_ENTRY as u64 + 1).read_to_end(&mut bytes)?;
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::build_cache::key::KEY;

    const KEYS: [Key; 2] = [Key([1; KEY]), Key([2; KEY])];

    // Questions that have come.
    fn questions(supervisor: &OwnedFd) -> usize {
        let mut count = 0;
        while let Ok(Some(ToSupervisor::LookUp { .. })) =
            handover::receive_in_supervisor(supervisor)
        {
            count += 1;
        }
        count
    }

    #[test]
    fn who_is_not_answered_builds_and_does_not_ask_again() {
        let (supervisor, worker) = handover::pair().unwrap();
        let mut client = Client::new(worker);
        client.patience = Duration::from_millis(1);
        assert_eq!(client.look_up(&KEYS), None);
        assert_eq!(questions(&supervisor), 2);
        // The late answer is closed.
        client.answered(0, None);
        assert_eq!(client.look_up(&KEYS), None);
        assert_eq!(questions(&supervisor), 0);
        assert!(client.asked.lock().is_empty());
    }

    #[test]
    fn all_devices_are_asked_for_at_once() {
        let (supervisor, worker) = handover::pair().unwrap();
        let client = Client::new(worker);
        std::thread::scope(|scope| {
            let asking = scope.spawn(|| client.look_up(&KEYS));
            let mut asked = 0;
            while asked < 2 {
                asked += questions(&supervisor);
                std::thread::yield_now();
            }
            for ticket in 0..2 {
                client.answered(ticket, None);
            }
            assert_eq!(asking.join().unwrap(), None);
        });
        assert!(client.unanswered.lock().is_none());
    }
}
