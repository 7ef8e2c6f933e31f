//! The open transfers of a session: which bytes are left to send or to receive, and which completions
//! wait for bytes. Pure: no sockets, no threads.
//!
//! Invariant: while `touching` of a transfer is not 0, a lane may access the application's memory. Until
//! then neither the transfer's completion nor its removal is reported.

use std::any::Any;
use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use causeway_proto::command::Completion;
use causeway_proto::id::EventId;
use causeway_proto::limits::BULK_CHUNK;

use super::digest::Digested;
use super::eager::EagerGrant;
use super::memory::HostRegion;

/// An object that keeps the application's memory alive until its bytes are sent.
pub(super) type Keep = Arc<dyn Any + Send + Sync>;

/// The open transfers.
#[derive(Default)]
pub(super) struct TransferTable {
    uploads: HashMap<EventId, Upload>,
    downloads: HashMap<EventId, Download>,
    // Uploads that may send now, in the order in which they became ready.
    ready: VecDeque<EventId>,
    touching: usize,
    closed: bool,
    // Bytes may have to be sent again, so an upload keeps its memory until its end.
    sends_again: bool,
}

struct Upload {
    source: Arc<HostRegion>,
    keep: Option<Keep>,
    // Packed offsets: bytes below `next` are sent, bytes below `credit` may be sent.
    next: u64,
    credit: u64,
    touching: usize,
    given_up: bool,
    // Present if the upload is sent without request, as one chunk. The worker expects the chunk even if
    // the command fails meanwhile. The grant is kept until the upload ends.
    eager: Option<EagerGrant>,
    completion: Option<Completion>,
}

struct Download {
    target: Arc<HostRegion>,
    received: u64,
    digested: Digested,
    touching: usize,
    completion: Option<Completion>,
}

/// Bytes to send.
#[derive(Debug)]
pub(super) struct Chunk {
    pub(super) event: EventId,
    pub(super) source: Arc<HostRegion>,
    pub(super) offset: u64,
    pub(super) length: u64,
    pub(super) eager: bool,
}

/// Destination of arriving bytes.
#[derive(Debug)]
pub(super) enum Destination {
    /// The application's memory; [`TransferTable::data_done`] must follow.
    Memory(Arc<HostRegion>),
    /// No destination: the transfer is over, and the bytes are discarded.
    Nowhere,
    /// A protocol error: these bytes are not part of the transfer.
    Impossible,
}

/// The consequences of the end of a chunk.
#[derive(Default)]
pub(super) struct Outcome {
    /// A completion to deliver.
    pub(super) completion: Option<Completion>,
    /// Set if all bytes of an upload are sent. To be dropped before `uploaded` is reported.
    pub(super) uploaded: Option<Keep>,
    /// The bytes of a download that has ended with this.
    pub(super) received: Option<Received>,
}

/// The bytes of a download. Their memory is the program's again.
pub(in crate::transport) struct Received {
    /// Their digest. Unknown if they were not digested as they came, or did not come as [parts](super::digest).
    pub(in crate::transport) digest: Option<u128>,
}

/// Bytes of a download that were digested as they came.
pub(super) struct DigestedBytes {
    pub(super) offset: u64,
    pub(super) length: u64,
    pub(super) digest: u128,
}

impl TransferTable {
    /// Registers an upload and takes its `keep`. Returns false when the table is closed. The caller then drops the
    /// `keep` without locks. With a grant of its size, the upload may be sent at once.
    pub(super) fn add_upload(
        &mut self,
        event: EventId,
        source: HostRegion,
        keep: &mut Option<Keep>,
        eager: Option<EagerGrant>,
    ) -> bool {
        if self.closed {
            return false;
        }
        let credit = if eager.is_some() { source.length() } else { 0 };
        if eager.is_some() {
            self.ready.push_back(event);
        }
        let upload = Upload {
            keep: keep.take(),
            credit,
            eager,
            ..Upload::on_request(Arc::new(source))
        };
        let before = self.uploads.insert(event, upload);
        debug_assert!(before.is_none(), "{event:?} is used twice");
        true
    }

    /// Registers a download. Returns false when the table is closed.
    pub(super) fn add_download(&mut self, event: EventId, target: HostRegion) -> bool {
        self.add_fetch(event, Arc::new(target))
    }

    /// As [`TransferTable::add_download`], for memory that the caller keeps, too.
    pub(super) fn add_fetch(&mut self, event: EventId, target: Arc<HostRegion>) -> bool {
        let download = Download {
            target,
            received: 0,
            digested: Digested::default(),
            touching: 0,
            completion: None,
        };
        if !self.closed {
            let before = self.downloads.insert(event, download);
            debug_assert!(before.is_none(), "{event:?} is used twice");
        }
        !self.closed
    }

    /// Removes a transfer whose command was not sent, or not completely. No lane enters its memory any
    /// more. Returns whether a lane is still inside (it leaves before the table is quiet), and what the
    /// upload kept.
    #[must_use]
    pub(super) fn withdraw(&mut self, event: EventId) -> (bool, Option<Keep>) {
        self.ready.retain(|ready| *ready != event);
        let upload = self.uploads.remove(&event);
        let download = self.downloads.remove(&event);
        let touching = upload.as_ref().map_or(0, |upload| upload.touching)
            + download.map_or(0, |download| download.touching);
        (touching > 0, upload.and_then(|upload| upload.keep))
    }

    /// Processes credit: the worker accepts bytes up to `offset`. Returns how many chunks that allows.
    pub(super) fn handle_credit(&mut self, event: EventId, offset: u64) -> usize {
        // An unknown event means that the credit crossed the upload's end.
        let Some(upload) = self.uploads.get_mut(&event) else {
            return 0;
        };
        let credit = offset.min(upload.source.length());
        if self.closed || upload.given_up || credit <= upload.credit {
            return 0;
        }
        if upload.next == upload.credit {
            self.ready.push_back(event);
        }
        upload.credit = credit;
        usize::try_from((credit - upload.next).div_ceil(BULK_CHUNK as u64)).unwrap_or(usize::MAX)
    }

    /// Processes a cancellation: the worker wants no more of an upload. Returns what was kept for it, if
    /// no lane uses it.
    pub(super) fn handle_cancel(&mut self, event: EventId) -> Outcome {
        let Some(upload) = self.uploads.get_mut(&event) else {
            return Outcome::default();
        };
        upload.given_up = true;
        let idle = upload.touching == 0;
        self.ready.retain(|ready| *ready != event);
        let ended = idle.then(|| self.uploads.remove(&event)).flatten();
        ended.map_or_else(Outcome::default, |upload| Outcome {
            completion: None,
            uploaded: upload.keep,
            received: None,
        })
    }

    /// Takes the next bytes to send; [`TransferTable::chunk_sent`] must follow.
    pub(super) fn next_chunk(&mut self) -> Option<Chunk> {
        let event = *self.ready.front()?;
        let upload = self.uploads.get_mut(&event)?;
        let chunk = upload.next_chunk(event);
        self.touching += 1;
        if upload.next == upload.credit {
            self.ready.pop_front();
        }
        Some(chunk)
    }

    /// Takes the bytes of this upload, if they are sent eagerly and not yet taken; [`TransferTable::chunk_sent`]
    /// must follow.
    pub(super) fn claim(&mut self, event: EventId) -> Option<Chunk> {
        let upload = self.uploads.get_mut(&event)?;
        upload.eager.as_ref()?;
        let place = self.ready.iter().position(|ready| *ready == event)?;
        self.ready.remove(place);
        self.touching += 1;
        Some(upload.next_chunk(event))
    }

    /// Number of uploads with bytes that may be sent.
    pub(super) fn ready(&self) -> usize {
        self.ready.len()
    }

    /// Records that a lane has left the memory of an upload.
    pub(super) fn chunk_sent(&mut self, event: EventId) -> Outcome {
        self.touching -= 1;
        let Some(upload) = self.uploads.get_mut(&event) else {
            return Outcome::default();
        };
        upload.touching -= 1;
        if upload.touching > 0 {
            return Outcome::default();
        }
        let all_sent = upload.next == upload.source.length();
        let mut outcome = Outcome::default();
        if all_sent && !self.sends_again {
            outcome.uploaded = upload.keep.take();
        }
        if (upload.given_up || upload.completion.is_some())
            && let Some(upload) = self.uploads.remove(&event)
        {
            outcome.completion = upload.completion;
            outcome.uploaded = outcome.uploaded.or(upload.keep);
        }
        outcome
    }

    /// Records that a lane has left the memory of an upload, because its connection broke.
    pub(super) fn chunk_failed(&mut self, event: EventId) -> Outcome {
        self.touching -= 1;
        if let Some(upload) = self.uploads.get_mut(&event) {
            upload.touching -= 1;
        }
        Outcome::default()
    }

    /// Whether a transfer whose command has ended still needs a lane.
    pub(super) fn awaits_bytes(&self) -> bool {
        let mut uploads = self.uploads.values();
        let mut downloads = self.downloads.values();
        uploads.any(|upload| upload.completion.is_some())
            || downloads.any(|download| download.completion.is_some())
    }

    /// Handles that another worker has taken the place of one that got no command of the open transfers: nothing of
    /// them was sent. No lane may access their memory.
    pub(super) fn begin_anew(&mut self) {
        self.ready.clear();
        for (event, upload) in &mut self.uploads {
            upload.next = 0;
            upload.credit = 0;
            if upload.eager.is_some() {
                upload.credit = upload.source.length();
                self.ready.push_back(*event);
            }
        }
    }

    /// As [`TransferTable::begin_anew`], if that worker gets all commands again. Those whose commands were not sent are sent as
    /// before. `sent`: see [`Bulk::begin_again`](super::Bulk::begin_again).
    pub(super) fn begin_again(&mut self, sent: impl Fn(EventId) -> Option<Arc<HostRegion>>) {
        for (event, upload) in &mut self.uploads {
            if let Some(sent) = sent(*event) {
                upload.source = sent;
            }
            upload.completion = None;
            upload.given_up = false;
        }
        for download in self.downloads.values_mut() {
            download.completion = None;
            download.received = 0;
            download.digested = Digested::default();
        }
        self.begin_anew();
    }

    /// Whether there is such an upload.
    pub(super) fn has_upload(&self, event: EventId) -> bool {
        self.uploads.contains_key(&event)
    }

    /// Whether there is such a download.
    pub(super) fn has_download(&self, event: EventId) -> bool {
        self.downloads.contains_key(&event)
    }

    /// Registers an upload of bytes that were sent before, on request.
    pub(super) fn add_again(&mut self, event: EventId, source: Arc<HostRegion>) {
        self.uploads.insert(event, Upload::on_request(source));
    }

    /// Bytes may have to be sent again from now on.
    pub(super) fn send_again(&mut self) {
        self.sends_again = true;
    }

    /// Enters the memory of an upload to send bytes again. Returns false if the upload is over, so that its memory
    /// must not be accessed. Otherwise [`TransferTable::chunk_sent`] must follow.
    pub(super) fn enter_again(&mut self, event: EventId) -> bool {
        let upload = self.uploads.get_mut(&event);
        let Some(upload) = upload.filter(|upload| !upload.given_up && !self.closed) else {
            return false;
        };
        upload.touching += 1;
        self.touching += 1;
        true
    }

    /// Decides where the bytes `offset..offset + length` of a download go, which are about to arrive.
    pub(super) fn handle_data(&mut self, event: EventId, offset: u64, length: u64) -> Destination {
        let Some(download) = self.downloads.get_mut(&event) else {
            return Destination::Nowhere;
        };
        let failed = download
            .completion
            .as_ref()
            .is_some_and(|completion| completion.status < 0);
        if self.closed || failed {
            return Destination::Nowhere;
        }
        let total = download.target.length();
        // More bytes than the transfer has would mean that some arrived twice.
        let counted = download
            .received
            .checked_add(length)
            .is_some_and(|sum| sum <= total);
        if !counted || offset.checked_add(length).is_none_or(|end| end > total) {
            return Destination::Impossible;
        }
        // The bytes are counted before they are received, so that two lanes cannot both pass the check
        // with the last bytes.
        download.received += length;
        download.touching += 1;
        self.touching += 1;
        Destination::Memory(Arc::clone(&download.target))
    }

    /// Records that a lane has left the memory of a download.
    pub(super) fn data_done(&mut self, event: EventId, digested: Option<DigestedBytes>) -> Outcome {
        self.touching -= 1;
        let mut outcome = Outcome::default();
        if let Some(download) = self.downloads.get_mut(&event) {
            download.touching -= 1;
            if let Some(bytes) = digested {
                let total = download.target.length();
                (download.digested).note(bytes.offset, bytes.length, total, bytes.digest);
            }
            if download.is_over()
                && let Some(download) = self.downloads.remove(&event)
            {
                outcome = download.end();
            }
        }
        outcome
    }

    /// Records that a lane has left the memory of a download, because its connection broke before `length` bytes had
    /// arrived.
    pub(super) fn data_failed(&mut self, event: EventId, length: u64) -> Outcome {
        self.touching -= 1;
        if let Some(download) = self.downloads.get_mut(&event) {
            download.touching -= 1;
            download.received -= length;
        }
        Outcome::default()
    }

    /// Processes the worker's completion of a command. Returns it if the application may be told now.
    /// Otherwise the end of a lane's access returns it.
    pub(super) fn handle_completion(&mut self, event: EventId, completion: Completion) -> Outcome {
        if let Some(upload) = self.uploads.get_mut(&event) {
            upload.completion = Some(completion);
            // An eager chunk must still be sent, because the worker expects it.
            if upload.eager.is_some() && upload.next < upload.credit && !self.closed {
                return Outcome::default();
            }
            upload.given_up = true;
            if upload.next < upload.credit {
                self.ready.retain(|ready| *ready != event);
            }
            if upload.touching > 0 {
                return Outcome::default();
            }
            let upload = self.uploads.remove(&event);
            return upload.map_or_else(Outcome::default, |upload| Outcome {
                completion: upload.completion,
                uploaded: upload.keep,
                received: None,
            });
        }
        if let Some(download) = self.downloads.get_mut(&event) {
            download.completion = Some(completion);
            if !download.is_over() {
                return Outcome::default();
            }
            let download = self.downloads.remove(&event);
            return download.map_or_else(Outcome::default, Download::end);
        }
        Outcome {
            completion: Some(completion),
            ..Outcome::default()
        }
    }

    /// Closes the table: no lane may enter the application's memory any more.
    pub(super) fn close(&mut self) {
        self.closed = true;
        self.ready.clear();
    }

    /// Takes what uploads keep whose memory no lane accesses. The table must be closed, so that no lane enters it again.
    #[must_use]
    pub(super) fn let_go(&mut self) -> Vec<Keep> {
        let uploads = self.uploads.values_mut();
        let idle = uploads.filter(|upload| upload.touching == 0);
        idle.filter_map(|upload| upload.keep.take()).collect()
    }

    pub(super) fn is_closed(&self) -> bool {
        self.closed
    }

    /// Whether a transfer is not over.
    pub(super) fn has_transfers(&self) -> bool {
        !(self.uploads.is_empty() && self.downloads.is_empty())
    }

    /// Whether no lane accesses the application's memory.
    pub(super) fn is_quiet(&self) -> bool {
        self.touching == 0
    }
}

impl Upload {
    fn on_request(source: Arc<HostRegion>) -> Upload {
        Upload {
            source,
            keep: None,
            next: 0,
            credit: 0,
            touching: 0,
            given_up: false,
            eager: None,
            completion: None,
        }
    }

    fn next_chunk(&mut self, event: EventId) -> Chunk {
        let length = (self.credit - self.next).min(BULK_CHUNK as u64);
        let offset = self.next;
        self.next += length;
        self.touching += 1;
        Chunk {
            event,
            source: Arc::clone(&self.source),
            offset,
            length,
            eager: self.eager.is_some(),
        }
    }
}

impl Download {
    fn end(self) -> Outcome {
        Outcome {
            completion: self.completion,
            uploaded: None,
            received: Some(Received {
                digest: self.digested.whole(self.target.length()),
            }),
        }
    }

    fn is_over(&self) -> bool {
        let all_there = self.received == self.target.length();
        let ended = self
            .completion
            .as_ref()
            .is_some_and(|completion| completion.status < 0 || all_there);
        ended && self.touching == 0
    }
}

#[cfg(test)]
mod tests;
