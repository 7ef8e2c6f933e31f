//! Launches: what a kernel's arguments were when one was enqueued, and what of that its site must be told.
//!
//! A launch is sent at once ([`Launch::submit`]), or captured whole and sent when its time has come
//! ([`Launch::capture`]). Invariant: what changed is computed and the launch is appended to the session
//! under the lock of what the kernel's site knows, so that the order of a kernel's launches on the wire
//! is the order of the differences between them.

use std::sync::Arc;

use causeway_proto::command::{
    KernelArg, NdRange, SuggestedLocalSize, SvmPointer, SvmPointers, enqueue::Operation,
    query::Question,
};
use causeway_proto::id::KernelId;
use cl_headers::types::{
    CL_INVALID_KERNEL_ARGS, CL_INVALID_OPERATION, CL_INVALID_PROGRAM_EXECUTABLE, CL_INVALID_VALUE,
    CL_KERNEL_ARG_ACCESS_READ_ONLY, CL_KERNEL_ARG_ADDRESS_CONSTANT, CL_KERNEL_ARG_TYPE_CONST,
    CL_MEM_READ_ONLY, CL_MISALIGNED_SUB_BUFFER_OFFSET, CL_OUT_OF_RESOURCES,
};
use parking_lot::MutexGuard;

use super::args::{Args, Captured, Known, Value};
use super::signature::Declared;
use super::{Dispatch, Kernel, Limits, Range, State, put};
use crate::coherence::{Access, ArgumentKind};
use crate::config::Settings;
use crate::error::{ClResult, Status, require};
use crate::stub::encoded::{Argument, Encoded};
use crate::stub::pipe::has_pipes;
use crate::stub::{Buffer, Device, Event, Hold, Queue, Site, Submission, Work};

/// A launch about to be enqueued; nobody sets arguments of the kernel meanwhile.
pub struct Launch<'a> {
    kernel: &'a Arc<Kernel>,
    device: &'a Arc<Device>,
    limits: &'a Limits,
    // In the order of the arguments.
    buffers: Hold,
    state: MutexGuard<'a, State>,
}

/// A launch with everything that it needs, whatever becomes of the kernel's arguments.
#[derive(Clone, Debug)]
pub struct Snapshot {
    kernel: Arc<Kernel>,
    args: Arc<[Captured]>,
    // By pointers in memory; in contexts of one site only.
    reached: Arc<[Arc<Buffer>]>,
    range: Range,
}

/// Held from when a launch was made into a command until that is appended to the session: no other
/// launch of the kernel gets between. Dropped without [`Commit::sent`], nothing was sent.
pub struct Commit<'a> {
    known: MutexGuard<'a, Known>,
    args: &'a [Captured],
}

impl Kernel {
    /// Begins a launch: takes the arguments as they are and keeps them so until the launch is sent,
    /// captured or given up. Some may be unset where `deferred` says that later changes set them.
    ///
    /// # Errors
    /// `CL_INVALID_PROGRAM_EXECUTABLE` when it was not built for the device; `CL_INVALID_KERNEL_ARGS`,
    /// `CL_INVALID_MEM_OBJECT`.
    pub fn launch(self: &Arc<Self>, device: &Device, deferred: bool) -> ClResult<Launch<'_>> {
        let mut all = self.limits.iter();
        let (device, limits) = all
            .find(|(known, _)| std::ptr::eq(&**known, device))
            .ok_or(Status(CL_INVALID_PROGRAM_EXECUTABLE))?;
        let state = self.state.lock();
        require(deferred || state.args.are_set(), CL_INVALID_KERNEL_ARGS)?;
        let buffers = state.args.buffers()?;
        Ok(Launch {
            kernel: self,
            device,
            limits,
            buffers,
            state,
        })
    }

    fn known(&self, site: &Site) -> MutexGuard<'_, Known> {
        self.known[site.index()].lock()
    }
}

impl Launch<'_> {
    /// What the kernel takes on the device.
    #[must_use]
    pub fn limits(&self) -> &Limits {
        self.limits
    }

    /// Whether the device can take the memory: sub-buffers where it can address them, images that it has, and no more
    /// local memory than it has (some drivers do not survive that).
    ///
    /// # Errors
    /// `CL_MISALIGNED_SUB_BUFFER_OFFSET`, `CL_INVALID_IMAGE_SIZE`, `CL_IMAGE_FORMAT_NOT_SUPPORTED`,
    /// `CL_INVALID_OPERATION` for images and pipes on a device without, `CL_OUT_OF_RESOURCES`;
    /// `CL_INVALID_KERNEL_ARGS` for a device queue of another device.
    pub fn check_memory(&self) -> ClResult {
        check_memory(self.device, self.limits, &self.state.args, &self.buffers)
    }

    /// Takes everything along that the launch needs, to be sent later.
    ///
    /// # Errors
    /// `CL_INVALID_OPERATION` when a pipe belongs to another site.
    pub fn capture(self, range: &Range) -> ClResult<Snapshot> {
        Snapshot::new(
            self.kernel,
            self.device,
            &self.state.args,
            &self.buffers,
            range,
        )
    }

    /// The launch as one that may be changed later; `range` as the application gave it.
    #[must_use]
    pub fn dispatch(&self, range: &Range) -> Dispatch {
        Dispatch::new(self.kernel, self.device, &self.state.args, range)
    }

    /// Sends it.
    ///
    /// # Errors
    /// As [`Queue::submit`].
    pub fn submit(
        self,
        queue: &Arc<Queue>,
        command: u32,
        range: &Range,
        wait: Vec<Arc<Event>>,
        visible: bool,
    ) -> ClResult<Arc<Event>> {
        if queue.context().is_distributed() {
            let hold = self.buffers.clone();
            let submission = Submission {
                work: Work::Launch(self.capture(range)?),
                command,
                wait,
                hold,
                finisher: None,
                visible,
            };
            return queue.submit(submission, |_| Ok(()));
        }
        let site = queue.site();
        let id = self.kernel.on(site)?;
        let mut known = self.kernel.known(site);
        let args = &self.state.args;
        let mut launch = Encoded::launch(id);
        for (index, value) in known.changed(args.with(&self.buffers)) {
            launch.argument(index as u32, argument(value, site)?);
        }
        let [global, offset, local] = sizes(range);
        launch.sizes(global, offset, local);
        if let Some(memory) = known.reaches(args, &self.buffers) {
            let ids = memory.iter().map(|memory| Ok(memory.id_on(site)?.0));
            launch.reaches(&ids.collect::<ClResult<Vec<_>>>()?);
        }
        let submission = Submission {
            work: Work::Encoded(launch),
            command,
            wait,
            hold: self.buffers,
            finisher: None,
            visible,
        };
        let event = queue.submit(submission, |_| Ok(()))?;
        known.note(args.changes());
        known.note_reaches(args);
        Ok(event)
    }
}

/// See [`Launch::check_memory`].
pub(super) fn check_memory(
    device: &Device,
    limits: &Limits,
    args: &Args,
    buffers: &[Arc<Buffer>],
) -> ClResult {
    let mut origins = buffers.iter().map(|buffer| buffer.origin());
    let aligned = origins.all(|origin| origin % limits.alignment == 0);
    require(aligned, CL_MISALIGNED_SUB_BUFFER_OFFSET)?;
    for buffer in buffers {
        if let Some(image) = buffer.image() {
            image.check_on(device, buffer.flags())?;
        }
        let fits = buffer.pipe().is_none() || has_pipes(device);
        require(fits, CL_INVALID_OPERATION)?;
    }
    require(args.queues_are_of(device), CL_INVALID_KERNEL_ARGS)?;
    let needed = limits.own_local_mem.checked_add(args.local_memory());
    let enough = needed.is_some_and(|needed| needed <= limits.local_mem);
    require(enough, CL_OUT_OF_RESOURCES)
}

impl Snapshot {
    /// With the buffers that [`Args::buffers`] gave. Its pipes belong to the device's site from here on.
    ///
    /// # Errors
    /// `CL_INVALID_OPERATION` when a pipe belongs to another site.
    pub(super) fn new(
        kernel: &Arc<Kernel>,
        device: &Device,
        args: &Args,
        buffers: &[Arc<Buffer>],
        range: &Range,
    ) -> ClResult<Snapshot> {
        for pipe in buffers.iter().filter_map(|buffer| buffer.pipe()) {
            pipe.use_on(kernel.program().context().site_of(device))?;
        }
        Ok(Snapshot {
            kernel: kernel.clone(),
            args: args.capture(buffers).into(),
            reached: args.reached(buffers).into(),
            range: *range,
        })
    }

    /// The launch as a command for a site, naming the arguments that differ from the launch sent there
    /// before; makes the kernel and its buffers there if they are not yet. The command is to be appended
    /// to the site's session while the second result is held, which is then told.
    ///
    /// # Errors
    /// `CL_DEVICE_NOT_AVAILABLE` when the session is lost, and what making a buffer says.
    pub fn operation(&self, site: &Site) -> ClResult<(Operation, Commit<'_>)> {
        let id = self.kernel.on(site)?;
        let known = self.kernel.known(site);
        let args = self.args.iter().map(Captured::argument);
        let news = known.news(args, |value| argument(value, site))?;
        let commit = Commit {
            known,
            args: &self.args,
        };
        let launch = nd_range(id, news, &self.range);
        Ok((Operation::NdRange(launch), commit))
    }

    /// The launch with all of its arguments, as a command buffer keeps it on a site: what the kernel's own launches
    /// say there stays as it is.
    ///
    /// # Errors
    /// As [`Snapshot::operation`].
    pub fn recorded(&self, site: &Site) -> ClResult<NdRange> {
        let id = self.kernel.on(site)?;
        let args = self.args.iter().map(Captured::argument);
        let nothing = Known::nothing(self.args.len());
        let all = nothing.news(args, |value| argument(value, site))?;
        let reached = self.reached.iter().map(|memory| Ok(memory.id_on(site)?.0));
        let memory = reached.collect::<ClResult<Vec<_>>>()?;
        Ok(NdRange {
            reaches: (!memory.is_empty()).then_some(SvmPointers { memory }),
            ..nd_range(id, all, &self.range)
        })
    }

    /// `clGetKernelSuggestedLocalWorkSize` for this launch on a queue's device: a size for each dimension; one round
    /// trip.
    ///
    /// # Errors
    /// As [`Snapshot::operation`], and what the node says.
    pub fn suggested_local_size(&self, queue: &Queue) -> ClResult<Vec<u64>> {
        let ask = Question::SuggestedLocalSize(SuggestedLocalSize {
            queue: queue.id().0,
            launch: Some(self.recorded(queue.site())?),
        });
        let told = put(queue.site(), ask)?;
        let sizes: Vec<u64> = told
            .chunks_exact(8)
            .filter_map(|size| Some(u64::from_le_bytes(size.try_into().ok()?)))
            .collect();
        require(sizes.len() == self.range.dimensions, CL_INVALID_VALUE)?;
        Ok(sizes)
    }

    /// What it reaches by pointers in memory.
    #[must_use]
    pub fn reached(&self) -> &[Arc<Buffer>] {
        &self.reached
    }

    /// Of what.
    #[must_use]
    pub fn kernel(&self) -> &Arc<Kernel> {
        &self.kernel
    }

    /// What it reads and writes, in a context of several sites.
    ///
    /// # Errors
    /// What placing a buffer in its root says.
    pub fn accesses(&self) -> ClResult<Vec<Access>> {
        if self.is_empty() {
            return Ok(Vec::new());
        }
        let const_is_read = Settings::of_process().const_is_read;
        // Of pipes there is no copy to be valid.
        let bytes = self.buffers().filter(|(buffer, _)| buffer.pipe().is_none());
        let accesses = bytes.map(|(buffer, kind)| {
            let whole = buffer.in_root(&buffer.range(0, buffer.size())?)?;
            let root = buffer.root().id();
            Ok(Access::argument(root, whole, kind, const_is_read))
        });
        accesses.collect()
    }

    /// Whether no work-item would run: then no memory is touched.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.range.is_empty()
    }

    /// The buffers, images and pipes among its arguments, each with what is known of how the kernel uses it: nothing, where
    /// some node does not tell how the argument was declared. A buffer that is two arguments comes twice.
    pub fn buffers(&self) -> impl Iterator<Item = (&Arc<Buffer>, ArgumentKind)> {
        let declared = self.kernel.signature.args.iter().map(|arg| arg.declared);
        let args = self.args.iter().zip(declared);
        args.filter_map(|(arg, declared)| {
            let buffer = arg.buffer()?;
            Some((buffer, kind_of(buffer, declared)))
        })
    }
}

fn kind_of(buffer: &Buffer, declared: Option<Declared>) -> ArgumentKind {
    let is_read_image = |of: Declared| of.access_qualifier == CL_KERNEL_ARG_ACCESS_READ_ONLY;
    let is_const = |of: Declared| of.type_qualifier & u64::from(CL_KERNEL_ARG_TYPE_CONST) != 0;
    ArgumentKind {
        constant: declared.is_some_and(|of| of.address_qualifier == CL_KERNEL_ARG_ADDRESS_CONSTANT),
        pointer_to_const: declared.is_some_and(is_const),
        read_only: buffer.flags() & CL_MEM_READ_ONLY != 0 || declared.is_some_and(is_read_image),
    }
}

impl Commit<'_> {
    /// The command has been appended.
    pub fn sent(mut self) {
        self.known.note(self.args.iter().map(Captured::change));
    }
}

pub(super) fn argument<'a>(value: Value<'a>, site: &Site) -> ClResult<Argument<'a>> {
    Ok(match value {
        Value::Plain(bytes) => Argument::Plain(bytes),
        Value::Local(size) => Argument::LocalSize(size),
        Value::Svm(buffer, offset) => Argument::Svm(SvmPointer {
            memory: buffer.id_on(site)?.0,
            offset,
        }),
        Value::Memory(None) => Argument::Memory(0),
        Value::Memory(Some(buffer)) => Argument::Memory(buffer.id_on(site)?.0),
        Value::Sampler(sampler) => Argument::Sampler(sampler.id_on(site)?.0),
        // On no other site: it is of the launch's device.
        Value::Queue(queue) => Argument::DeviceQueue(queue.id().0),
    })
}

// Global, offset and local sizes as the wire has them: none of a launch of nothing.
fn sizes(range: &Range) -> [&[u64]; 3] {
    if range.is_empty() {
        return [&[]; 3];
    }
    let given = [
        Some(&range.global),
        range.offset.as_ref(),
        range.local.as_ref(),
    ];
    given.map(|sizes| sizes.map_or(&[][..], |sizes| &sizes[..range.dimensions]))
}

pub(super) fn nd_range(kernel: KernelId, args: Vec<KernelArg>, range: &Range) -> NdRange {
    let [global, offset, local] = sizes(range).map(<[u64]>::to_vec);
    NdRange {
        kernel: kernel.0,
        args,
        global,
        offset,
        local,
        reaches: None,
    }
}
