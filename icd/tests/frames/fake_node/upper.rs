//! An upper half that only records its calls.

use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::time::Instant;

use bytes::Bytes;
use causeway::transport::{SessionEvents, WireError};
use causeway_proto::command::command::Kind;
use causeway_proto::command::{Completion, CreateUserEvent, EventBatch, Notice};

use super::PATIENCE;

#[derive(Default)]
pub struct Upper {
    heard: Mutex<Heard>,
    changed: Condvar,
    // Locked by a test that delays completions.
    gate: Mutex<()>,
}

#[derive(Default, Clone, Debug)]
pub struct Heard {
    pub completions: Vec<Completion>,
    pub notices: Vec<Notice>,
    pub printed: Vec<Bytes>,
    pub lost: Vec<WireError>,
}

impl Upper {
    pub fn new() -> Arc<Upper> {
        Arc::default()
    }

    pub fn heard(&self) -> Heard {
        self.heard.lock().unwrap().clone()
    }

    /// Delays completions until the result is dropped.
    pub fn delay(&self) -> MutexGuard<'_, ()> {
        self.gate.lock().unwrap()
    }

    /// Waits until the recorded calls satisfy `enough`.
    pub fn wait(&self, enough: impl Fn(&Heard) -> bool) -> Heard {
        let deadline = Instant::now() + PATIENCE;
        let mut heard = self.heard.lock().unwrap();
        while !enough(&heard) {
            let left = deadline.checked_duration_since(Instant::now());
            let left = left.unwrap_or_else(|| panic!("not heard in time; heard {heard:?}"));
            heard = self.changed.wait_timeout(heard, left).unwrap().0;
        }
        heard.clone()
    }

    /// Waits for a completion of `event`.
    pub fn completion(&self, event: u64) -> Completion {
        let of = |heard: &Heard| heard.completions.iter().find(|c| c.event == event).cloned();
        of(&self.wait(|heard| of(heard).is_some())).unwrap()
    }

    pub fn has_completed(&self, event: u64) -> bool {
        self.heard
            .lock()
            .unwrap()
            .completions
            .iter()
            .any(|c| c.event == event)
    }

    /// Waits for the session's loss.
    pub fn loss(&self) -> WireError {
        self.wait(|heard| !heard.lost.is_empty()).lost[0].clone()
    }

    fn note(&self, note: impl FnOnce(&mut Heard)) {
        note(&mut self.heard.lock().unwrap());
        self.changed.notify_all();
    }
}

impl SessionEvents for Upper {
    fn completed(&self, completion: Completion) {
        drop(self.gate.lock().unwrap());
        self.note(|heard| heard.completions.push(completion));
    }
    fn notice(&self, notice: Notice) {
        self.note(|heard| heard.notices.push(notice));
    }
    fn printed(&self, text: Bytes) {
        self.note(|heard| heard.printed.push(text));
    }
    fn lost(&self, error: &WireError) {
        self.note(|heard| heard.lost.push(error.clone()));
    }
}

/// Makes a small command with a recognisable number.
pub fn command(number: u64) -> Kind {
    Kind::CreateUserEvent(CreateUserEvent { event: number })
}

/// The number in a [`command`].
pub fn number(command: &causeway_proto::command::Command) -> u64 {
    match command.kind {
        Some(Kind::CreateUserEvent(CreateUserEvent { event })) => event,
        ref other => panic!("not a numbered command: {other:?}"),
    }
}

/// A batch of one completion.
pub fn completed(event: u64, status: i32) -> EventBatch {
    let completion = Completion {
        event,
        status,
        ..Completion::default()
    };
    EventBatch {
        completions: vec![completion],
        ..EventBatch::default()
    }
}
