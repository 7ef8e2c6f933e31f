//! The worker's side of the build cache: asks the supervisor for entries and passes it new ones.
//!
//! Invariant: a build waits for the supervisor [`PATIENCE`] at most, and then continues without the cache.
//! After a timeout, builds do not ask at all for [`SILENCE`].

use std::collections::HashMap;
use std::fs::File;
use std::io::{self, Read};
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{self, Receiver, SyncSender};
use std::time::{Duration, Instant};

use parking_lot::Mutex;

use super::Key;
use super::entry::{CachedBuild, MAX_ENTRY};
use super::memory_file;
use crate::handover::{self, ToSupervisor};

/// Timeout for an answer. The supervisor only opens a file; on a machine where that takes longer, a build
/// takes longer still.
const PATIENCE: Duration = Duration::from_secs(2);
/// Pause after a timeout, during which no lookups are sent. The supervisor's disk may hang.
const SILENCE: Duration = Duration::from_secs(60);

/// The worker's connection to the build cache.
#[derive(Debug)]
pub struct Client {
    channel: OwnedFd,
    on: AtomicBool,
    last: AtomicU64,
    asked: Mutex<HashMap<u64, SyncSender<Option<OwnedFd>>>>,
    // Time of the latest timeout.
    unanswered: Mutex<Option<Instant>>,
    patience: Duration,
}

impl Client {
    /// Makes a client that uses the worker's channel to its supervisor. It is off until [`Client::switch`]
    /// turns it on.
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

    /// Turns the client on or off, as the assignment says.
    pub fn switch(&self, on: bool) {
        self.on.store(on, Ordering::Relaxed);
    }

    /// Returns whether the daemon has a build cache.
    pub fn is_on(&self) -> bool {
        self.on.load(Ordering::Relaxed)
    }

    /// Delivers the supervisor's answer to the lookup with this ticket.
    pub fn answered(&self, ticket: u64, entry: Option<OwnedFd>) {
        if let Some(asked) = self.asked.lock().remove(&ticket) {
            // If the lookup has timed out meanwhile, this fails and closes the entry.
            let _ = asked.try_send(entry);
        }
    }

    /// Looks up the entries of a build for several devices. Returns them only if there is an intact and
    /// current one for each device.
    #[must_use]
    pub fn look_up(&self, keys: &[Key]) -> Option<Vec<CachedBuild>> {
        let entries = keys.iter().zip(self.answers(keys)?);
        entries
            .map(|(key, entry)| self.checked(key, entry?))
            .collect()
    }

    /// Returns whether there is an entry for each device. Reads none of them.
    #[must_use]
    pub fn has(&self, keys: &[Key]) -> bool {
        let answers = self.answers(keys);
        answers.is_some_and(|answers| answers.iter().all(Option::is_some))
    }

    /// Asks for all entries and returns the answers; `None` after a timeout.
    fn answers(&self, keys: &[Key]) -> Option<Vec<Option<OwnedFd>>> {
        let before = *self.unanswered.lock();
        if before.is_some_and(|before| before.elapsed() < SILENCE) {
            return None;
        }
        // All questions are sent before the first answer is awaited, and share one deadline.
        let until = Instant::now() + self.patience;
        let asked: Vec<Lookup<'_>> = keys.iter().map(|key| self.ask(key)).collect();
        // Stops at the first timeout.
        asked.into_iter().map(|asked| asked.answer(until)).collect()
    }

    fn ask(&self, key: &Key) -> Lookup<'_> {
        let ticket = self.last.fetch_add(1, Ordering::Relaxed);
        let (tell, told) = mpsc::sync_channel(1);
        self.asked.lock().insert(ticket, tell);
        let question = ToSupervisor::LookUp { ticket, key: *key };
        if handover::send_to_supervisor(&self.channel, &question).is_err() {
            // Dropping the sender makes the wait for an answer end at once.
            self.asked.lock().remove(&ticket);
        }
        Lookup {
            client: self,
            ticket,
            told,
        }
    }

    fn checked(&self, key: &Key, entry: OwnedFd) -> Option<CachedBuild> {
        let decoded = read(entry).map(|bytes| CachedBuild::decode(&bytes, key));
        match decoded {
            Ok(Ok(entry)) if entry.is_current() => Some(entry),
            Ok(Ok(_)) => {
                tracing::info!(
                    ?key,
                    "a cached build is outdated, because its compiler has changed; the program is built again"
                );
                self.refuse(key);
                None
            }
            Ok(Err(error)) => {
                tracing::info!(%error, ?key, "a cached build is damaged; the program is built again");
                self.refuse(key);
                None
            }
            Err(error) => {
                tracing::debug!(%error, ?key, "a cached build cannot be read; the program is built again");
                None
            }
        }
    }

    /// Asks the supervisor to remove an entry that cannot be used.
    pub fn refuse(&self, key: &Key) {
        self.send(&ToSupervisor::Refused { key: *key });
    }

    /// Passes an entry to the supervisor, which stores it for other sessions of this session's user.
    pub fn store(&self, key: &Key, entry: &CachedBuild) {
        let made = match entry.encode(key) {
            Ok(bytes) => memory_file::of(&bytes),
            Err(error) => {
                tracing::debug!(%error, ?key, "a build is not cached");
                return;
            }
        };
        match made {
            Ok(entry) => self.send(&ToSupervisor::Store {
                key: *key,
                entry: entry.into(),
            }),
            Err(error) => tracing::debug!(%error, ?key, "a build is not cached"),
        }
    }

    /// Tells the supervisor that the session's end waits for a compiler.
    pub fn note_building(&self) {
        self.send(&ToSupervisor::Building);
    }

    /// Tells the supervisor that the host should get no further session.
    pub fn note_spoiled(&self) {
        self.send(&ToSupervisor::Spoiled);
    }

    /// Tells the supervisor that the session has to go on in another process.
    pub fn leave_host(&self) {
        self.send(&ToSupervisor::LeavesHost);
    }

    fn send(&self, message: &ToSupervisor) {
        if let Err(error) = handover::send_to_supervisor(&self.channel, message) {
            tracing::debug!(%error, "a message to the build cache cannot be sent");
        }
    }
}

/// A lookup that was sent.
struct Lookup<'a> {
    client: &'a Client,
    ticket: u64,
    told: Receiver<Option<OwnedFd>>,
}

impl Lookup<'_> {
    /// Waits for the answer; `None` after a timeout.
    fn answer(self, until: Instant) -> Option<Option<OwnedFd>> {
        let left = until.saturating_duration_since(Instant::now());
        let answer = self.told.recv_timeout(left).ok();
        if answer.is_none() {
            tracing::info!(
                "the build cache does not answer; builds do not use it for the next {} s",
                SILENCE.as_secs()
            );
            *self.client.unanswered.lock() = Some(Instant::now());
        }
        answer
    }
}

impl Drop for Lookup<'_> {
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

    // Counts the lookups that have arrived.
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
        // The late answer is ignored and closed.
        client.answered(0, None);
        assert_eq!(client.look_up(&KEYS), None);
        assert_eq!(questions(&supervisor), 0);
        assert!(client.asked.lock().is_empty());
    }

    #[test]
    fn whether_an_entry_exists_is_known_without_reading_it() {
        let (supervisor, worker) = handover::pair().unwrap();
        let client = Client::new(worker);
        // Neither can be read.
        let folder = || OwnedFd::from(File::open("/").unwrap());
        let has = |second: Option<OwnedFd>| {
            std::thread::scope(|scope| {
                let asking = scope.spawn(|| client.has(&KEYS));
                let mut asked = Vec::new();
                while asked.len() < 2 {
                    match handover::receive_in_supervisor(&supervisor) {
                        Ok(Some(ToSupervisor::LookUp { ticket, .. })) => asked.push(ticket),
                        _ => std::thread::yield_now(),
                    }
                }
                client.answered(asked[0], Some(folder()));
                client.answered(asked[1], second);
                asking.join().unwrap()
            })
        };
        assert!(has(Some(folder())));
        assert!(!has(None));
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
