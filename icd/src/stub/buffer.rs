//! A buffer or sub-buffer: a compound stub.
//!
//! `memory` on the wire. A sub-buffer is a range of its parent. Host-pointer flags are the client's
//! business; the node sees kernel access flags only. Specification: "Buffer Objects".
//!
//! Invariant: a sub-buffer keeps its parent, and its range lies inside the parent's.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use causeway_proto::command::{CreateBuffer, CreateSubBuffer, ObjectKind, command::Kind};
use causeway_proto::id::MemoryId;
use causeway_proto::limits::{INLINE_CONTENTS, INLINE_PAYLOAD};
use causeway_proto::region::Region;
use cl_headers::types::{
    CL_COMMAND_WRITE_BUFFER, CL_INVALID_VALUE, CL_MEM_READ_ONLY, CL_MEM_READ_WRITE,
    CL_MEM_WRITE_ONLY,
};
use parking_lot::Mutex;

use super::mapped::Mapped;
use super::range_table::overlap;
use super::remote::Remotes;
use super::{Binding, Context, Queue, Site, Transfer, callbacks, next_id};
use crate::coherence::Contents;
use crate::error::{ClResult, Status, fail, require};
use crate::shadow;
use crate::transport::HostRegion;

/// How kernels may use memory: all that a node is told of a buffer's flags.
const KERNEL_ACCESS: u64 = CL_MEM_READ_WRITE | CL_MEM_WRITE_ONLY | CL_MEM_READ_ONLY;

/// See the module.
pub struct Buffer {
    pub(crate) binding: Binding,
    id: MemoryId,
    remotes: Remotes,
    spec: BufferSpec,
    parent: Option<Parent>,
    // Of this buffer, alive.
    sub_buffers: AtomicUsize,
    // Of a whole buffer; a sub-buffer is mapped where its parent is.
    pub(super) mapped: Mapped,
    destructors: Mutex<Vec<Box<dyn FnOnce() + Send>>>,
}

/// What a buffer is made with.
#[derive(Debug, Clone)]
pub struct BufferSpec {
    /// Its context.
    pub context: Arc<Context>,
    /// `CL_MEM_FLAGS`; a sub-buffer's with what it inherits.
    pub flags: u64,
    /// What `CL_MEM_PROPERTIES` echoes: with its 0, empty for NULL.
    pub properties: Vec<u64>,
    /// Bytes.
    pub size: u64,
    /// Address of the application's memory with `CL_MEM_USE_HOST_PTR`.
    pub host_address: Option<usize>,
}

#[derive(Debug)]
struct Parent {
    buffer: Arc<Buffer>,
    origin: u64,
}

impl std::fmt::Debug for Buffer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Buffer")
            .field("id", &self.id)
            .field("size", &self.spec.size)
            .finish_non_exhaustive()
    }
}

impl Buffer {
    /// Makes a buffer. `contents` (as many bytes as the buffer has) are taken before this returns:
    /// few ride along, many go over the bulk connections, which waits for the node.
    ///
    /// # Errors
    /// `CL_DEVICE_NOT_AVAILABLE` when the session is lost; what the node says when it cannot take large
    /// contents.
    pub fn new(spec: BufferSpec, contents: Option<HostRegion>) -> ClResult<Arc<Buffer>> {
        if let Some(distributed) = spec.context.distributed() {
            let buffer = Arc::new(Buffer::with_id(spec.clone(), None));
            let contents = buffer.keep_contents(contents)?;
            distributed.add_buffer(&buffer, contents)?;
            return Ok(buffer);
        }
        let (few, many) = match contents {
            Some(contents) if spec.size <= INLINE_CONTENTS as u64 => (contents.copy_out(), None),
            many => (Vec::new(), many),
        };
        let buffer = Arc::new(Buffer::with_id(spec, None));
        buffer.create_on(buffer.context().site(), few)?;
        if let Some(contents) = many {
            buffer.fill_from(contents)?;
        }
        Ok(buffer)
    }

    /// Makes a sub-buffer of a buffer that is none itself; `flags` with what it inherits.
    ///
    /// # Errors
    /// `CL_INVALID_VALUE` for a range outside of the parent, `CL_DEVICE_NOT_AVAILABLE` when the session is lost.
    pub fn sub_buffer(
        parent: &Arc<Buffer>,
        flags: u64,
        origin: u64,
        size: u64,
    ) -> ClResult<Arc<Buffer>> {
        if origin
            .checked_add(size)
            .is_none_or(|end| end > parent.size())
        {
            return fail(CL_INVALID_VALUE);
        }
        let spec = BufferSpec {
            context: parent.context().clone(),
            flags,
            properties: Vec::new(),
            size,
            host_address: parent.host_address().map(|base| base + origin as usize),
        };
        let within = Parent {
            buffer: parent.clone(),
            origin,
        };
        let buffer = Arc::new(Buffer::with_id(spec, Some(within)));
        if !buffer.context().is_distributed() {
            buffer.id_on(buffer.context().site())?;
        }
        Ok(buffer)
    }

    fn with_id(spec: BufferSpec, parent: Option<Parent>) -> Buffer {
        if let Some(parent) = &parent {
            parent.buffer.sub_buffers.fetch_add(1, Ordering::Relaxed);
        }
        Buffer {
            binding: Binding::default(),
            id: MemoryId(next_id()),
            remotes: Remotes::new(&spec.context),
            spec,
            parent,
            sub_buffers: AtomicUsize::new(0),
            mapped: Mapped::default(),
            destructors: Mutex::default(),
        }
    }

    // In a distributed context the client keeps the initial contents until a site needs them.
    fn keep_contents(self: &Arc<Self>, contents: Option<HostRegion>) -> ClResult<Contents> {
        let Some(contents) = contents else {
            return Ok(Contents::Undefined);
        };
        if self.host_address().is_none() {
            let whole = self.range(0, self.size())?;
            let copied = shadow::view(self.client_base()?, whole).copy_from(&contents);
            require(copied, CL_INVALID_VALUE)?;
        }
        Ok(Contents::AtClient)
    }

    /// A region of this object, counted from the start of the whole buffer.
    ///
    /// # Errors
    /// `CL_INVALID_VALUE` when it cannot be inside.
    pub(super) fn in_root(&self, region: &Region) -> ClResult<Region> {
        let moved = region.at(self.origin() + region.offset());
        moved.map_err(|_| Status(CL_INVALID_VALUE))
    }

    // Makes it on the site, with these contents if they are as many bytes as it has.
    fn create_on(&self, site: &Site, contents: Vec<u8>) -> ClResult<MemoryId> {
        let created = self.remotes.on(site, |id| {
            if self.size() > INLINE_PAYLOAD as u64 {
                site.session().expect_transfers();
            }
            site.send(Kind::CreateBuffer(CreateBuffer {
                buffer: id,
                context: site.context().0,
                flags: self.flags() & KERNEL_ACCESS,
                size: self.size(),
                contents: contents.into(),
            }))
        });
        created.map(MemoryId)
    }

    /// Its name on the site, where it is made if it is not there yet; waits for nothing.
    ///
    /// # Errors
    /// `CL_DEVICE_NOT_AVAILABLE` when the site's session is lost.
    pub fn id_on(&self, site: &Site) -> ClResult<MemoryId> {
        if let Some(id) = self.remotes.known(site) {
            return Ok(MemoryId(id));
        }
        let Some(parent) = &self.parent else {
            return self.create_on(site, Vec::new());
        };
        let whole = parent.buffer.id_on(site)?;
        let created = self.remotes.on(site, |id| {
            site.send(Kind::CreateSubBuffer(CreateSubBuffer {
                buffer: id,
                parent: whole.0,
                flags: self.flags() & KERNEL_ACCESS,
                origin: parent.origin,
                size: self.size(),
            }))
        });
        created.map(MemoryId)
    }

    fn fill_from(self: &Arc<Self>, contents: HostRegion) -> ClResult {
        let queue = Queue::of_context(self.context())?;
        let region = self.range(0, self.size())?;
        let transfer = Transfer {
            buffer: self.clone(),
            region,
            host: contents,
            command: CL_COMMAND_WRITE_BUFFER,
            wait: Vec::new(),
            wants_event: false,
            keep: None,
        };
        transfer.write(&queue)?.event.outcome()
    }

    /// Its name in the client's own tables.
    #[must_use]
    pub fn id(&self) -> MemoryId {
        self.id
    }

    /// Its context.
    #[must_use]
    pub fn context(&self) -> &Arc<Context> {
        &self.spec.context
    }

    /// `CL_MEM_FLAGS`.
    #[must_use]
    pub fn flags(&self) -> u64 {
        self.spec.flags
    }

    /// `CL_MEM_PROPERTIES`, with its 0; empty when made without a list.
    #[must_use]
    pub fn properties(&self) -> &[u64] {
        &self.spec.properties
    }

    /// Bytes.
    #[must_use]
    pub fn size(&self) -> u64 {
        self.spec.size
    }

    /// The address of the application's memory that it was made to use, if it was.
    #[must_use]
    pub fn host_address(&self) -> Option<usize> {
        self.spec.host_address
    }

    /// What it is a part of.
    #[must_use]
    pub fn parent(&self) -> Option<&Arc<Buffer>> {
        self.parent.as_ref().map(|parent| &parent.buffer)
    }

    /// Whether sub-buffers of it are alive, which name it.
    #[must_use]
    pub fn has_sub_buffers(&self) -> bool {
        self.sub_buffers.load(Ordering::Relaxed) > 0
    }

    /// Its first byte in its parent; 0 for a whole buffer.
    #[must_use]
    pub fn origin(&self) -> u64 {
        self.parent.as_ref().map_or(0, |parent| parent.origin)
    }

    /// The whole buffer that its bytes are in: its parent, or itself.
    #[must_use]
    pub fn root(self: &Arc<Self>) -> &Arc<Buffer> {
        self.parent().unwrap_or(self)
    }

    /// `length` bytes from `offset`.
    ///
    /// # Errors
    /// `CL_INVALID_VALUE` when they are not all inside.
    pub fn range(&self, offset: u64, length: u64) -> ClResult<Region> {
        match Region::linear(offset, length) {
            Ok(region) if region.end() <= self.size() => Ok(region),
            _ => fail(CL_INVALID_VALUE),
        }
    }

    /// Whether bytes of this buffer and of another one are the same: both in one whole buffer, and
    /// overlapping there.
    #[must_use]
    pub fn shares(
        self: &Arc<Self>,
        region: &Region,
        other: &Arc<Buffer>,
        other_region: &Region,
    ) -> bool {
        let (Ok(one), Ok(another)) = (
            region.at(self.origin() + region.offset()),
            other_region.at(other.origin() + other_region.offset()),
        ) else {
            return false;
        };
        Arc::ptr_eq(self.root(), other.root()) && overlap(&one, &another)
    }

    /// `clSetMemObjectDestructorCallback`: runs once when the buffer is gone, the last registered first.
    pub fn on_destroyed(&self, callback: Box<dyn FnOnce() + Send>) {
        self.destructors.lock().push(callback);
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        if let Some(parent) = self.parent() {
            parent.sub_buffers.fetch_sub(1, Ordering::Relaxed);
        }
        self.remotes.release(self.context(), ObjectKind::Memory);
        if self.parent.is_none()
            && let Some(distributed) = self.context().distributed()
        {
            distributed.note_gone(self.id);
        }
        for callback in std::mem::take(self.destructors.get_mut()).into_iter().rev() {
            callbacks::run(callback);
        }
    }
}
