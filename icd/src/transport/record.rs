//! The record of a session: the commands that created what is alive. A worker that takes the place of another one gets
//! them first.
//!
//! Pure: no socket, no clock, no lock. The record belongs to a *cut*: the number of the last command that the worker
//! before has applied. Commands behind the cut are sent as usual, so a creation behind the cut is left out, and an
//! object that is released behind the cut is created. The cut never lies before the last written command.
//!
//! Texts and binaries are shared with the command that carried them, not copied. Initial contents are left out, because
//! the worker before has kept the contents. Command buffers, shared virtual memory, pipes, device queues and links are
//! left out too: no session that has one is ever parked. Events are left out, because the worker before has kept them.
//!
//! Invariant: an entry leaves the record when its release is written and no other entry needs it.
#![forbid(unsafe_code)]

use std::collections::{VecDeque, hash_map};

use bytes::Bytes;
use causeway_proto::command::{
    Command, CommandBatch, CreateBuffer, CreateImage, ObjectKind, Recorded, Release,
    ReleaseSubDevice, command::Kind,
};
use causeway_proto::frame::PREFIX;
use causeway_proto::limits::BATCH_TARGET;
use prost::Message;
use rustc_hash::FxHashMap;

/// The record; see the module.
#[derive(Debug, Default)]
pub(super) struct Record {
    // Entries are far larger than keys. In boxes they leave the table small enough for the cache.
    entries: FxHashMap<Key, Box<RecordEntry>>,
    // Releases that may not be written yet, in the order of their numbers.
    released: VecDeque<(u64, Key)>,
}

/// What an entry is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Key {
    Object(i32, u64),
    /// Platform, and the index of the first sub-device that was made together.
    SubDevices(u32, u32),
}

#[derive(Debug)]
struct RecordEntry {
    number: u64,
    creation: Kind,
    // Builds and compilations of a program, by their numbers.
    builds: Vec<(u64, Kind)>,
    // Number of the release.
    released: Option<u64>,
    // How many other entries need this one to be created.
    needed: usize,
    // Sub-devices that are not released.
    parts: u32,
}

impl Record {
    /// Notes a command. `written`: the number up to which all commands are written.
    pub(super) fn note(&mut self, number: u64, kind: &Kind, written: u64) {
        match kind {
            Kind::Release(Release { object, id }) => {
                self.release(Key::Object(*object, *id), number, written);
            }
            Kind::ReleaseSubDevice(release) => self.release_sub_device(release, number, written),
            Kind::BuildProgram(build) => self.build(build.program, number, kind, written),
            Kind::CompileProgram(compile) => self.build(compile.program, number, kind, written),
            _ => {
                if let Some((key, creation)) = creation(kind) {
                    self.create(key, number, creation);
                }
            }
        }
    }

    /// Returns the commands that create what is alive at the cut, in an order in which a worker can apply them.
    pub(super) fn commands(&self, cut: u64) -> Vec<Kind> {
        let mut numbered: Vec<(u64, &Kind)> = Vec::new();
        let mut releases = Vec::new();
        for (key, entry) in &self.entries {
            let is_released = entry.released.is_some_and(|number| number <= cut);
            if entry.number > cut || is_released && entry.needed == 0 {
                continue;
            }
            numbered.push((entry.number, &entry.creation));
            let builds = entry.builds.iter().filter(|(number, _)| *number <= cut);
            numbered.extend(builds.map(|(number, kind)| (*number, kind)));
            if let (true, Key::Object(object, id)) = (is_released, *key) {
                releases.push(Kind::Release(Release { object, id }));
            }
        }
        numbered.sort_unstable_by_key(|(number, _)| *number);
        let creations = numbered.into_iter().map(|(_, kind)| kind.clone());
        creations.chain(releases).collect()
    }

    fn create(&mut self, key: Key, number: u64, creation: Kind) {
        self.need(&creation);
        let parts = match &creation {
            Kind::CreateSubDevices(create) => create.room,
            _ => 0,
        };
        let entry = RecordEntry {
            number,
            creation,
            builds: Vec::new(),
            released: None,
            needed: 0,
            parts,
        };
        self.entries.insert(key, Box::new(entry));
    }

    fn build(&mut self, program: u64, number: u64, kind: &Kind, written: u64) {
        let key = Key::Object(ObjectKind::Program.into(), program);
        let Some(entry) = self.entries.get_mut(&key) else {
            return;
        };
        // A build that is not written may come after the cut, so it does not replace another one yet.
        let replaced = drop_replaced(&mut entry.builds, written);
        entry.builds.push((number, kind.clone()));
        self.need(kind);
        for kind in &replaced {
            self.need_no_more(kind);
        }
    }

    fn release(&mut self, key: Key, number: u64, written: u64) {
        if let Some(entry) = self.entries.get_mut(&key) {
            entry.released = Some(number);
            self.released.push_back((number, key));
        }
        while let Some((number, key)) = self.released.front().copied()
            && number <= written
        {
            self.released.pop_front();
            self.forget(key, written);
        }
    }

    fn release_sub_device(&mut self, release: &ReleaseSubDevice, number: u64, written: u64) {
        let is_of = |key: &Key, entry: &RecordEntry| match (key, &entry.creation) {
            (Key::SubDevices(platform, first), Kind::CreateSubDevices(create)) => {
                let range = *first..first.saturating_add(create.room);
                *platform == release.platform && range.contains(&release.device)
            }
            _ => false,
        };
        let mut entries = self.entries.iter_mut();
        if let Some((key, entry)) = entries.find(|(key, entry)| is_of(key, entry)) {
            entry.parts = entry.parts.saturating_sub(1);
            if entry.parts == 0 {
                let key = *key;
                self.release(key, number, written);
            }
        }
    }

    // Forgets a released entry that nothing needs, and those that only it needed.
    fn forget(&mut self, key: Key, written: u64) {
        // The release of one that is needed no more may be behind the cut.
        let is_over = |of: &RecordEntry| {
            of.needed == 0 && of.released.is_some_and(|number| number <= written)
        };
        let mut next = Some(key);
        // Most entries need none, so this allocates nothing.
        let mut keys = Vec::new();
        while let Some(key) = next {
            if let hash_map::Entry::Occupied(found) = self.entries.entry(key)
                && is_over(found.get())
            {
                let entry = found.remove();
                let builds = entry.builds.iter().map(|(_, kind)| kind);
                for kind in std::iter::once(&entry.creation).chain(builds) {
                    keys.extend(self.need_no_more(kind));
                }
            }
            next = keys.pop();
        }
    }

    fn need(&mut self, kind: &Kind) {
        for key in needs(kind) {
            if let Some(entry) = self.entries.get_mut(&key) {
                entry.needed += 1;
            }
        }
    }

    // Returns the entries that `kind` needed.
    fn need_no_more(&mut self, kind: &Kind) -> Vec<Key> {
        let keys: Vec<Key> = needs(kind).collect();
        for key in &keys {
            if let Some(entry) = self.entries.get_mut(key) {
                entry.needed = entry.needed.saturating_sub(1);
            }
        }
        keys
    }
}

/// Encodes a record: for each batch room for the frame's prefix, then the batch. A worker that had part of it skips that
/// part by the numbers.
pub(super) fn batches(commands: &[Kind]) -> Vec<Vec<u8>> {
    let mut batches = Vec::new();
    let mut left = commands;
    loop {
        let mut bytes = 0;
        // A command is never larger than a batch.
        let fits = |kind: &&Kind| {
            bytes += kind.encoded_len() + 16;
            bytes <= BATCH_TARGET
        };
        let count = left.iter().take_while(fits).count().max(1).min(left.len());
        let (these, rest) = left.split_at(count);
        let recorded = match rest.is_empty() {
            true => Recorded::Last,
            false => Recorded::Part,
        };
        let batch = CommandBatch {
            commands: these
                .iter()
                .cloned()
                .map(|kind| Command { kind: Some(kind) })
                .collect(),
            first: (commands.len() - left.len()) as u64 + 1,
            recorded: recorded.into(),
            ..CommandBatch::default()
        };
        let mut encoded = vec![0; PREFIX];
        // Encoding into a vector cannot fail.
        let _ = batch.encode(&mut encoded);
        batches.push(encoded);
        if rest.is_empty() {
            return batches;
        }
        left = rest;
    }
}

// Returns what a creation creates, without initial contents. `None` for a command that the record leaves out.
fn creation(kind: &Kind) -> Option<(Key, Kind)> {
    let object = |object: ObjectKind, id: u64| Key::Object(object.into(), id);
    let key = match kind {
        Kind::CreateBuffer(create) => {
            let without = CreateBuffer {
                contents: Bytes::new(),
                ..*create
            };
            let key = object(ObjectKind::Memory, create.buffer);
            return Some((key, Kind::CreateBuffer(without)));
        }
        Kind::CreateImage(create) => {
            let without = CreateImage {
                contents: Bytes::new(),
                ..*create
            };
            let key = object(ObjectKind::Memory, create.image);
            return Some((key, Kind::CreateImage(without)));
        }
        Kind::CreateSubBuffer(create) => object(ObjectKind::Memory, create.buffer),
        Kind::CreateContext(create) => object(ObjectKind::Context, create.context),
        Kind::CreateQueue(create) => object(ObjectKind::Queue, create.queue),
        Kind::CreateSampler(create) => object(ObjectKind::Sampler, create.sampler),
        Kind::CreateProgram(create) => object(ObjectKind::Program, create.program),
        Kind::LinkProgram(link) => object(ObjectKind::Program, link.program),
        Kind::CreateKernel(create) => object(ObjectKind::Kernel, create.kernel),
        Kind::CreateSubDevices(create) if create.room > 0 => {
            Key::SubDevices(create.platform, create.first)
        }
        _ => return None,
    };
    Some((key, kind.clone()))
}

// Returns the objects that the program may release before the object that was made of them. All others are released
// after those that they belong to.
fn needs(kind: &Kind) -> impl Iterator<Item = Key> + use<'_> {
    let (inputs, headers) = match kind {
        Kind::LinkProgram(link) => (&link.inputs[..], &[][..]),
        Kind::CompileProgram(compile) => (&[][..], &compile.headers[..]),
        _ => (&[][..], &[][..]),
    };
    let headers = headers.iter().map(|header| header.program);
    let programs = inputs.iter().copied().chain(headers);
    programs.map(|id| Key::Object(ObjectKind::Program.into(), id))
}

// Drops written builds whose devices were all built again by a later written one. Returns them.
fn drop_replaced(builds: &mut Vec<(u64, Kind)>, written: u64) -> Vec<Kind> {
    let mut replaced = Vec::new();
    let mut at = 0;
    while at < builds.len() {
        let mut later = builds[at + 1..].iter();
        let is_replaced = later.any(|(number, later)| {
            let again = devices(later);
            *number <= written && devices(&builds[at].1).iter().all(|of| again.contains(of))
        });
        if is_replaced {
            replaced.push(builds.remove(at).1);
        } else {
            at += 1;
        }
    }
    replaced
}

fn devices(kind: &Kind) -> &[u32] {
    match kind {
        Kind::BuildProgram(build) => &build.devices,
        Kind::CompileProgram(compile) => &compile.devices,
        _ => &[],
    }
}

#[cfg(test)]
mod tests;
