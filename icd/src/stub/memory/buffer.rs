//! A buffer, a sub-buffer, an image or a pipe: a compound stub.
//!
//! The wire calls all of them `memory`. A sub-buffer is a range of its parent. An image is treated as the
//! bytes of its elements without gaps; see [`crate::stub::memory::image`]. For pipes see [`crate::stub::memory::pipe`]. The client
//! handles host-pointer flags; the node gets only the kernel access flags. Specification: "Buffer Objects".
//!
//! Invariant: a part keeps its parent alive, and its bytes lie inside the parent's.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use causeway_proto::command::{
    CreateBuffer, CreateImage, CreatePipe, CreateSubBuffer, ObjectKind, command::Kind,
};
use causeway_proto::id::MemoryId;
use causeway_proto::limits::{INLINE_CONTENTS, INLINE_PAYLOAD};
use causeway_proto::region::Region;
use cl_headers::types::{
    CL_COMMAND_WRITE_BUFFER, CL_INVALID_VALUE, CL_MEM_READ_ONLY, CL_MEM_READ_WRITE,
    CL_MEM_WRITE_ONLY,
};
use parking_lot::Mutex;

use crate::stub::context::remote::Remotes;
use crate::stub::memory::mapped::Mapped;
use crate::stub::memory::range_table::overlap;
use smallvec::smallvec;

use crate::coherence::Contents;
use crate::error::{ClResult, Status, fail, require};
use crate::shadow::Shadow;
use crate::stub::event::EventSpec;
use crate::stub::queue::command::{Command, Enqueue, HostTransfer};
use crate::stub::{Binding, Context, Image, Pipe, Queue, Site, event::callbacks, next_id};
use crate::transport::HostRegion;

/// Flags that say how kernels may use memory. Nodes get no other flags.
pub(in crate::stub) const KERNEL_ACCESS: u64 =
    CL_MEM_READ_WRITE | CL_MEM_WRITE_ONLY | CL_MEM_READ_ONLY;

/// A memory object; see the module.
pub struct Buffer {
    pub(crate) binding: Binding,
    id: MemoryId,
    remotes: Remotes,
    spec: BufferSpec,
    parent: Option<Parent>,
    // Number of live parts of this object: sub-buffers, and images over its bytes.
    parts: AtomicUsize,
    // Maps of a whole object. Maps of a part are recorded in its parent.
    pub(in crate::stub) mapped: Mapped,
    destructors: Mutex<Vec<Box<dyn FnOnce() + Send>>>,
    // Whether this is shared virtual memory; its shadow has the same address as the node's allocation.
    is_svm: bool,
    pipe: Option<Pipe>,
}

/// The parameters that a buffer or image is made with.
#[derive(Debug, Clone)]
pub struct BufferSpec {
    /// The context of the object.
    pub context: Arc<Context>,
    /// `CL_MEM_FLAGS`; for a sub-buffer, including inherited flags.
    pub flags: u64,
    /// The list that `CL_MEM_PROPERTIES` returns: with the terminating 0, or empty for NULL.
    pub properties: Vec<u64>,
    /// The size in bytes.
    pub size: u64,
    /// Address of the application's memory with `CL_MEM_USE_HOST_PTR`.
    pub host_address: Option<usize>,
    /// Format and shape of an image; `None` for a buffer.
    pub image: Option<Image>,
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
    /// Makes a buffer or image. `contents`, which must have the size of the object, are copied before this
    /// returns. Few bytes travel inside the command. Many bytes use the bulk connections, and the call
    /// waits for the node.
    ///
    /// # Errors
    /// `CL_DEVICE_NOT_AVAILABLE` when the session is lost; the node's code when it fails to take large
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

    /// Makes a pipe. In a context of several sites, the first launch that uses the pipe creates it on a
    /// site.
    ///
    /// # Errors
    /// `CL_DEVICE_NOT_AVAILABLE` when the session of the only site is lost.
    pub fn of_pipe(context: Arc<Context>, flags: u64, pipe: Pipe) -> ClResult<Arc<Buffer>> {
        let spec = BufferSpec {
            context,
            flags,
            properties: Vec::new(),
            size: pipe.size(),
            host_address: None,
            image: None,
        };
        let mut buffer = Buffer::with_id(spec, None);
        buffer.pipe = Some(pipe);
        if !buffer.context().is_distributed() {
            buffer.id_on(buffer.context().site())?;
        }
        Ok(Arc::new(buffer))
    }

    /// Makes a sub-buffer. `parent` must not be a sub-buffer, and `flags` include the inherited ones.
    /// `origin` and `size` are in bytes.
    ///
    /// # Errors
    /// `CL_INVALID_VALUE` for a range outside of the parent, `CL_DEVICE_NOT_AVAILABLE` when the session is
    /// lost.
    pub fn sub_buffer(
        parent: &Arc<Buffer>,
        flags: u64,
        origin: u64,
        size: u64,
    ) -> ClResult<Arc<Buffer>> {
        // clCreateSubBuffer: CL_INVALID_VALUE when the region leaves the buffer.
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
            image: None,
        };
        Buffer::part_of(parent, origin, spec)
    }

    /// Makes an image over the bytes of a buffer, a sub-buffer or another image.
    ///
    /// # Errors
    /// `CL_DEVICE_NOT_AVAILABLE` when the session is lost.
    pub fn image_over(parent: &Arc<Buffer>, spec: BufferSpec) -> ClResult<Arc<Buffer>> {
        Buffer::part_of(parent, 0, spec)
    }

    /// Makes the stub of shared virtual memory that the only site of its context has already allocated as
    /// `on_site`. `shadow` is its memory in the client.
    pub(in crate::stub) fn svm(spec: BufferSpec, on_site: u64, shadow: Shadow) -> Arc<Buffer> {
        let mut buffer = Buffer::with_id(spec, None);
        let site = buffer.context().site().clone();
        buffer.remotes.adopt(&site, on_site);
        buffer.mapped = Mapped::at(shadow);
        buffer.is_svm = true;
        Arc::new(buffer)
    }

    /// Makes a buffer over bytes of shared virtual memory, from byte `origin`. The buffer uses their
    /// storage.
    ///
    /// # Errors
    /// `CL_DEVICE_NOT_AVAILABLE` when the session is lost.
    pub fn over_svm(svm: &Arc<Buffer>, origin: u64, spec: BufferSpec) -> ClResult<Arc<Buffer>> {
        Buffer::part_of(svm, origin, spec)
    }

    fn part_of(parent: &Arc<Buffer>, origin: u64, spec: BufferSpec) -> ClResult<Arc<Buffer>> {
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
            parent.buffer.parts.fetch_add(1, Ordering::Relaxed);
        }
        Buffer {
            binding: Binding::default(),
            id: MemoryId(next_id()),
            remotes: Remotes::new(&spec.context),
            spec,
            parent,
            parts: AtomicUsize::new(0),
            mapped: Mapped::default(),
            destructors: Mutex::default(),
            is_svm: false,
            pipe: None,
        }
    }

    // In a distributed context, the client keeps the initial contents until a site needs them.
    fn keep_contents(self: &Arc<Self>, contents: Option<HostRegion>) -> ClResult<Contents> {
        let Some(contents) = contents else {
            return Ok(Contents::Undefined);
        };
        if self.host_address().is_none() {
            let whole = self.range(0, self.size())?;
            let copied = self.client_bytes(whole)?.copy_from(&contents);
            require(copied, CL_INVALID_VALUE)?;
        }
        Ok(Contents::AtClient)
    }

    /// Converts a region of this object to a region of its root object.
    ///
    /// # Errors
    /// `CL_INVALID_VALUE` when the region cannot be inside of the root object.
    pub(in crate::stub) fn in_root(&self, region: &Region) -> ClResult<Region> {
        match &self.parent {
            None => Ok(*region),
            Some(parent) => parent.buffer.in_root(&self.in_parent(region)?),
        }
    }

    /// Converts a region of a part to a region of its parent.
    ///
    /// # Errors
    /// `CL_INVALID_VALUE` when the region cannot be inside of the parent.
    pub(in crate::stub) fn in_parent(&self, region: &Region) -> ClResult<Region> {
        match &self.spec.image {
            Some(image) => image.in_memory(region),
            None => {
                let origin = self.parent.as_ref().map_or(0, |parent| parent.origin);
                region.at(origin + region.offset()).ok()
            }
        }
        .ok_or(Status(CL_INVALID_VALUE))
    }

    // Creates the object on the site. `contents` are either all of its bytes or empty.
    fn create_on(&self, site: &Site, contents: Vec<u8>) -> ClResult<MemoryId> {
        let created = self.remotes.on(site, |id| {
            if let Some(pipe) = &self.pipe {
                return site.send(Kind::CreatePipe(CreatePipe {
                    pipe: id,
                    context: site.context().0,
                    flags: self.flags() & KERNEL_ACCESS,
                    packet_size: pipe.packet_size(),
                    max_packets: pipe.max_packets(),
                }));
            }
            // Transfers of this buffer will need bulk lanes, so the session may open them in advance.
            if self.size() > INLINE_PAYLOAD as u64 {
                site.session().expect_transfers();
            }
            site.send(match &self.spec.image {
                Some(image) => Kind::CreateImage(CreateImage {
                    image: id,
                    context: site.context().0,
                    flags: self.flags() & KERNEL_ACCESS,
                    contents: contents.into(),
                    ..image.to_wire()
                }),
                None => Kind::CreateBuffer(CreateBuffer {
                    buffer: id,
                    context: site.context().0,
                    flags: self.flags() & KERNEL_ACCESS,
                    size: self.size(),
                    contents: contents.into(),
                }),
            })
        });
        created.map(MemoryId)
    }

    /// Returns the object's id on the site, and creates the object there if necessary. Does not wait.
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
            site.send(match &self.spec.image {
                Some(image) => Kind::CreateImage(CreateImage {
                    image: id,
                    context: site.context().0,
                    flags: self.flags() & KERNEL_ACCESS,
                    parent: whole.0,
                    ..image.to_wire()
                }),
                None => Kind::CreateSubBuffer(CreateSubBuffer {
                    buffer: id,
                    parent: whole.0,
                    flags: self.flags() & KERNEL_ACCESS,
                    origin: parent.origin,
                    size: self.size(),
                }),
            })
        });
        created.map(MemoryId)
    }

    fn fill_from(self: &Arc<Self>, contents: HostRegion) -> ClResult {
        let queue = Queue::of_context(self.context())?;
        let region = self.range(0, self.size())?;
        let command = Command::Write(HostTransfer {
            buffer: self.clone(),
            region,
            host: contents,
        });
        let event = EventSpec {
            event_type: CL_COMMAND_WRITE_BUFFER,
            wait: Vec::new(),
            hold: smallvec![self.clone()],
            finisher: None,
            visible: false,
            note: None,
        };
        let written = queue.enqueue(Enqueue { command, event })?;
        written.event.outcome()
    }

    /// Returns the object's id in the client's own tables.
    #[must_use]
    pub fn id(&self) -> MemoryId {
        self.id
    }

    /// Returns the object's context.
    #[must_use]
    pub fn context(&self) -> &Arc<Context> {
        &self.spec.context
    }

    /// Returns `CL_MEM_FLAGS`.
    #[must_use]
    pub fn flags(&self) -> u64 {
        self.spec.flags
    }

    /// Returns `CL_MEM_PROPERTIES`, with the terminating 0; empty when the object was made without a list.
    #[must_use]
    pub fn properties(&self) -> &[u64] {
        &self.spec.properties
    }

    /// Returns the size in bytes.
    #[must_use]
    pub fn size(&self) -> u64 {
        self.spec.size
    }

    /// Returns the address of the application's memory that the object uses, if any.
    #[must_use]
    pub fn host_address(&self) -> Option<usize> {
        self.spec.host_address
    }

    /// Returns the application's object that this one is a part of.
    #[must_use]
    pub fn parent(&self) -> Option<&Arc<Buffer>> {
        self.part().map(|parent| &parent.buffer)
    }

    // To the application, a buffer over shared virtual memory is a whole object.
    fn part(&self) -> Option<&Parent> {
        self.parent.as_ref().filter(|parent| !parent.buffer.is_svm)
    }

    /// Returns `CL_MEM_USES_SVM_POINTER`.
    #[must_use]
    pub fn uses_svm(self: &Arc<Self>) -> bool {
        self.root().is_svm
    }

    /// Returns format and shape, if the object is an image.
    #[must_use]
    pub fn image(&self) -> Option<&Image> {
        self.spec.image.as_ref()
    }

    /// Returns packet size and count, if the object is a pipe.
    #[must_use]
    pub fn pipe(&self) -> Option<&Pipe> {
        self.pipe.as_ref()
    }

    /// Whether live sub-buffers or images refer to this object.
    #[must_use]
    pub fn has_parts(&self) -> bool {
        self.parts.load(Ordering::Relaxed) > 0
    }

    /// Returns the offset of the first byte in the [parent](Buffer::parent); 0 without a parent.
    #[must_use]
    pub fn origin(&self) -> u64 {
        self.part().map_or(0, |parent| parent.origin)
    }

    /// Returns the root object that holds the bytes: this object, its parent, or (for an image over a
    /// sub-buffer) the parent's parent.
    #[must_use]
    pub fn root(self: &Arc<Self>) -> &Arc<Buffer> {
        let mut whole = self;
        while let Some(parent) = &whole.parent {
            whole = &parent.buffer;
        }
        whole
    }

    /// Returns the region of `length` bytes from `offset`.
    ///
    /// # Errors
    /// `CL_INVALID_VALUE` when the range exceeds the object.
    pub fn range(&self, offset: u64, length: u64) -> ClResult<Region> {
        match Region::linear(offset, length) {
            Ok(region) if region.end() <= self.size() => Ok(region),
            _ => fail(CL_INVALID_VALUE),
        }
    }

    /// Whether a region of this object and a region of `other` overlap in the same root object.
    #[must_use]
    pub fn shares(
        self: &Arc<Self>,
        region: &Region,
        other: &Arc<Buffer>,
        other_region: &Region,
    ) -> bool {
        let (Ok(one), Ok(another)) = (self.in_root(region), other.in_root(other_region)) else {
            return false;
        };
        Arc::ptr_eq(self.root(), other.root()) && overlap(&one, &another)
    }

    /// `clSetMemObjectDestructorCallback`: registers a callback that runs once, after the object is
    /// destroyed. Callbacks run in reverse order of registration.
    pub fn on_destroyed(&self, callback: Box<dyn FnOnce() + Send>) {
        self.destructors.lock().push(callback);
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        if let Some(parent) = &self.parent {
            parent.buffer.parts.fetch_sub(1, Ordering::Relaxed);
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
