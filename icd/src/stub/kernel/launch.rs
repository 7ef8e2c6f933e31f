//! Launches: the arguments of a kernel at the time of an enqueue, and what its site must be told of them.
//!
//! A launch is either sent at once ([`Launch::submit`]), or captured completely and sent later
//! ([`Launch::capture`], [`Snapshot`]). Invariant: the differences are computed, and the launch is appended to the
//! session, under the lock of what the site knows. So the order of a kernel's launches on the wire is the
//! order of their differences.

use std::sync::Arc;

use causeway_proto::command::{
    KernelArg, NdRange, SuggestedLocalSize, SvmPointer, SvmPointers, query::Question,
};
use causeway_proto::id::KernelId;
use cl_headers::types::{
    CL_INVALID_KERNEL_ARGS, CL_INVALID_OPERATION, CL_INVALID_PROGRAM_EXECUTABLE, CL_INVALID_VALUE,
    CL_KERNEL_ARG_ACCESS_READ_ONLY, CL_KERNEL_ARG_ADDRESS_CONSTANT, CL_KERNEL_ARG_TYPE_CONST,
    CL_MEM_READ_ONLY, CL_MISALIGNED_SUB_BUFFER_OFFSET, CL_OUT_OF_RESOURCES,
};
use parking_lot::MutexGuard;

use super::args::{Args, Captured, SentArgs, Value};
use super::signature::Declared;
use super::{Dispatch, Kernel, KernelState, Limits, Range, put};
use crate::coherence::{Access, ArgumentKind};
use crate::config::Settings;
use crate::error::{ClResult, Status, require};
use crate::stub::event::EventSpec;
use crate::stub::memory::pipe::has_pipes;
use crate::stub::queue::encoded::{Argument, Encoded};
use crate::stub::{Buffer, Command, Device, Enqueue, Event, Hold, NodeCommand, Queue, Site};
use crate::trace;

/// A launch about to be enqueued. The kernel's arguments are locked meanwhile.
pub struct Launch<'a> {
    kernel: &'a Arc<Kernel>,
    device: &'a Arc<Device>,
    limits: &'a Limits,
    // In the order of the arguments; memory reached through pointers follows.
    buffers: Hold,
    state: MutexGuard<'a, KernelState>,
}

/// A launch with everything it needs, independent of later changes to the kernel's arguments.
#[derive(Clone, Debug)]
pub struct Snapshot {
    kernel: Arc<Kernel>,
    args: Arc<[Captured]>,
    // Memory reached through pointers; used in contexts of one site only.
    reached: Arc<[Arc<Buffer>]>,
    range: Range,
}

/// Lock between making a command from a launch and appending it to the session, so that no other launch of
/// the kernel comes between. If dropped without [`Commit::sent`], the launch counts as not sent.
pub struct Commit<'a> {
    known: MutexGuard<'a, SentArgs>,
    args: &'a [Captured],
}

impl Kernel {
    /// Begins a launch: locks the current arguments until the launch is sent, captured or dropped. With
    /// `deferred`, arguments may be unset, because later changes set them.
    ///
    /// # Errors
    /// `CL_INVALID_PROGRAM_EXECUTABLE` when the kernel was not built for the device;
    /// `CL_INVALID_KERNEL_ARGS` for an unset argument; `CL_INVALID_MEM_OBJECT` for memory that no longer
    /// exists.
    pub fn launch(self: &Arc<Self>, device: &Device, deferred: bool) -> ClResult<Launch<'_>> {
        // clEnqueueNDRangeKernel: CL_INVALID_PROGRAM_EXECUTABLE when the program has no executable for
        // the queue's device.
        let mut all = self.limits.iter();
        let (device, limits) = all
            .find(|(known, _)| std::ptr::eq(&**known, device))
            .ok_or(Status(CL_INVALID_PROGRAM_EXECUTABLE))?;
        let state = self.state.lock();
        // clEnqueueNDRangeKernel: CL_INVALID_KERNEL_ARGS when an argument is not set.
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

    fn known(&self, site: &Site) -> MutexGuard<'_, SentArgs> {
        self.known[site.index()].lock()
    }
}

impl Launch<'_> {
    /// Returns the limits of the kernel on the device.
    #[must_use]
    pub fn limits(&self) -> &Limits {
        self.limits
    }

    /// Checks that the device can use the launch's memory. Sub-buffers must be aligned, and images and
    /// pipes supported. The local memory must suffice, because some drivers crash otherwise.
    ///
    /// # Errors
    /// `CL_MISALIGNED_SUB_BUFFER_OFFSET`, `CL_INVALID_IMAGE_SIZE`, `CL_IMAGE_FORMAT_NOT_SUPPORTED`.
    /// `CL_INVALID_OPERATION` for images and pipes on a device without them, `CL_OUT_OF_RESOURCES` for too
    /// much local memory, `CL_INVALID_KERNEL_ARGS` for a device queue of another device.
    pub fn check_memory(&self) -> ClResult {
        check_memory(self.device, self.limits, &self.state.args, &self.buffers)
    }

    /// Captures everything that the launch needs, to be sent later.
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

    /// Returns the launch in a form that may be changed later; `range` is as the application gave it.
    #[must_use]
    pub fn dispatch(&self, range: &Range) -> Dispatch {
        Dispatch::new(self.kernel, self.device, &self.state.args, range)
    }

    /// Sends the launch.
    ///
    /// # Errors
    /// Those of [`Queue::enqueue`].
    pub fn submit(
        self,
        queue: &Arc<Queue>,
        command: u32,
        range: &Range,
        wait: Vec<Arc<Event>>,
        visible: bool,
    ) -> ClResult<Arc<Event>> {
        let mut event = EventSpec {
            event_type: command,
            wait,
            hold: Hold::new(),
            finisher: None,
            visible,
            note: None,
        };
        if queue.context().is_distributed() {
            event.hold.clone_from(&self.buffers);
            let command = Command::Node(NodeCommand::Launch(self.capture(range)?));
            return Ok(queue.enqueue(Enqueue { command, event })?.event);
        }
        if trace::is_on() {
            event.note = Some(Box::new(self.kernel.note()));
        }
        // The fast path: the message is encoded from the kernel's own arguments, without a snapshot.
        let site = queue.site();
        let id = self.kernel.on(site)?;
        // Locked until the launch is appended, so that no other launch of the kernel comes between.
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
        event.hold = self.buffers;
        let event = queue.send_launch(&launch, event)?;
        // Recorded only after a successful send: after a failure, the next launch repeats these changes.
        known.note(args.changes());
        known.note_reaches(args);
        Ok(event)
    }
}

/// Implements [`Launch::check_memory`].
pub(super) fn check_memory(
    device: &Device,
    limits: &Limits,
    args: &Args,
    buffers: &[Arc<Buffer>],
) -> ClResult {
    let mut origins = buffers.iter().map(|buffer| buffer.origin());
    let aligned = origins.all(|origin| origin % limits.alignment == 0);
    // clEnqueueNDRangeKernel: CL_MISALIGNED_SUB_BUFFER_OFFSET when the offset of a sub-buffer argument
    // does not suit the device's CL_DEVICE_MEM_BASE_ADDR_ALIGN.
    require(aligned, CL_MISALIGNED_SUB_BUFFER_OFFSET)?;
    for buffer in buffers {
        if let Some(image) = buffer.image() {
            image.check_on(device, buffer.flags())?;
        }
        let fits = buffer.pipe().is_none() || has_pipes(device);
        require(fits, CL_INVALID_OPERATION)?;
    }
    // The specification leaves a queue_t of another device open. The code is CL_INVALID_KERNEL_ARGS,
    // because that queue may be on another node.
    require(args.queues_are_of(device), CL_INVALID_KERNEL_ARGS)?;
    let needed = limits.own_local_mem.checked_add(args.local_memory());
    let enough = needed.is_some_and(|needed| needed <= limits.local_mem);
    // clEnqueueNDRangeKernel: CL_OUT_OF_RESOURCES when the device's resources do not suffice for the
    // launch, such as its local memory.
    require(enough, CL_OUT_OF_RESOURCES)
}

impl Snapshot {
    /// Captures a launch, with the buffers that [`Args::buffers`] returned. From now on its pipes belong to
    /// the device's site.
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

    /// Returns the launch's message for a site. It names the arguments that differ from the previous launch
    /// sent there. Creates the kernel and its buffers on the site if necessary. Append the message to the
    /// site's session while holding the [`Commit`], and then call [`Commit::sent`].
    ///
    /// # Errors
    /// `CL_DEVICE_NOT_AVAILABLE` when the session is lost, and the errors of creating a buffer.
    pub fn encode(&self, site: &Site) -> ClResult<(Encoded, Commit<'_>)> {
        let id = self.kernel.on(site)?;
        let known = self.kernel.known(site);
        let mut launch = Encoded::launch(id);
        let args = self.args.iter().map(Captured::argument);
        for (index, value) in known.changed(args) {
            launch.argument(index as u32, argument(value, site)?);
        }
        let [global, offset, local] = sizes(&self.range);
        launch.sizes(global, offset, local);
        let commit = Commit {
            known,
            args: &self.args,
        };
        Ok((launch, commit))
    }

    /// Returns the launch with all of its arguments, for a command buffer on the site. This does not affect
    /// what the site knows from the kernel's own launches.
    ///
    /// # Errors
    /// Those of [`Snapshot::encode`].
    pub fn recorded(&self, site: &Site) -> ClResult<NdRange> {
        let id = self.kernel.on(site)?;
        let args = self.args.iter().map(Captured::argument);
        let nothing = SentArgs::nothing(self.args.len());
        let all = nothing.news(args, |value| argument(value, site))?;
        let reached = self.reached.iter().map(|memory| Ok(memory.id_on(site)?.0));
        let memory = reached.collect::<ClResult<Vec<_>>>()?;
        Ok(NdRange {
            reaches: (!memory.is_empty()).then_some(SvmPointers { memory }),
            ..nd_range(id, all, &self.range)
        })
    }

    /// `clGetKernelSuggestedLocalWorkSize` for this launch on a queue's device: returns one size for each
    /// dimension. Costs one round trip.
    ///
    /// # Errors
    /// Those of [`Snapshot::encode`], and the node's code.
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

    /// Returns the memory that the launch reaches through pointers.
    #[must_use]
    pub fn reached(&self) -> &[Arc<Buffer>] {
        &self.reached
    }

    /// Returns the kernel.
    #[must_use]
    pub fn kernel(&self) -> &Arc<Kernel> {
        &self.kernel
    }

    /// Returns the ranges that the launch reads and writes, in a context of several sites.
    ///
    /// # Errors
    /// `CL_INVALID_VALUE` when a buffer is not inside its root.
    pub fn accesses(&self) -> ClResult<Vec<Access>> {
        if self.is_empty() {
            return Ok(Vec::new());
        }
        let const_is_read = Settings::of_process().const_is_read;
        // Pipes have no copies that could be valid or invalid.
        let bytes = self.buffers().filter(|(buffer, _)| buffer.pipe().is_none());
        let accesses = bytes.map(|(buffer, kind)| {
            let whole = buffer.in_root(&buffer.range(0, buffer.size())?)?;
            let root = buffer.root().id();
            Ok(Access::argument(root, whole, kind, const_is_read))
        });
        accesses.collect()
    }

    /// Whether the launch has no work-items, and so touches no memory.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.range.is_empty()
    }

    /// Returns the buffers, images and pipes among the arguments, each with what is known about its use.
    /// Nothing is known if some node does not report how the argument was declared. A buffer that is used
    /// for two arguments is returned twice.
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
    /// Records that the command was appended.
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
        // The queue exists on this site only: `check_memory` has ensured that it belongs to the launch's
        // device.
        Value::Queue(queue) => Argument::DeviceQueue(queue.id().0),
    })
}

// Global, offset and local sizes for the wire; all empty for a launch without work-items.
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
