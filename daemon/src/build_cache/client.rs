//! The worker's end: asks the supervisor for entries, and sends it jobs.
//!
//! Invariant: whatever the supervisor does, a build waits for it [`PATIENCE`] at most, and goes on without
//! the cache then.

use std::collections::HashMap;
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{self, SyncSender};
use std::time::Duration;

use parking_lot::Mutex;
use prost::Message;
use rustix::fs::MemfdFlags;

use super::entry::{Entry, MAX_ENTRY};
use super::{Job, Key};
use crate::handover::{self, ToSupervisor};

/// The supervisor opens a file and answers; on a machine that takes longer for it a build takes longer yet.
const PATIENCE: Duration = Duration::from_secs(2);

/// The way to the cache.
#[derive(Debug)]
pub struct Client {
    channel: OwnedFd,
    on: AtomicBool,
    last: AtomicU64,
    asked: Mutex<HashMap<u64, SyncSender<Option<OwnedFd>>>>,
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

    /// The entry of a build, if there is one that is whole.
    #[must_use]
    pub fn look_up(&self, key: &Key) -> Option<Entry> {
        let ticket = self.last.fetch_add(1, Ordering::Relaxed);
        let (tell, told) = mpsc::sync_channel(1);
        self.asked.lock().insert(ticket, tell);
        let question = ToSupervisor::LookUp { ticket, key: *key };
        let sent = handover::send_to_supervisor(&self.channel, &question);
        let answer = sent.ok().and_then(|()| told.recv_timeout(PATIENCE).ok());
        self.asked.lock().remove(&ticket);
        let entry = answer??;
        let decoded = read(entry).map(|bytes| Entry::decode(&bytes, key));
        match decoded {
            Ok(Ok(entry)) => Some(entry),
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
            let memory = rustix::fs::memfd_create("build", MemfdFlags::CLOEXEC)?;
            let mut file = File::from(memory);
            file.write_all(&job.encode_to_vec())?;
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

fn read(entry: OwnedFd) -> io::Result<Vec<u8>> {
    let file = File::from(entry);
    let mut bytes = Vec::new();
    file.take(MAX_ENTRY as u64 + 1).read_to_end(&mut bytes)?;
    Ok(bytes)
}
