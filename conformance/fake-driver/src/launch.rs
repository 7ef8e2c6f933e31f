//! Launches: their checks, and the effects of a few kernels.
//!
//! Kernels compute nothing, except those with the following names and parameters. These act on the
//! work-items of the first dimension, within the buffer:
//!
//! | kernel | effect of work-item `i` |
//! |---|---|
//! | `fake_fill_u32(global uint *target, uint value)` | `target[i] = value` |
//! | `fake_add_u32(global uint *target, uint value)` | `target[i] += value` |
//! | `fake_iota_u32(global uint *target, uint first)` | `target[i] = first + i` |
//! | `fake_copy(global uchar *target, global const uchar *source)` | `target[i] = source[i]` |
//! | `fake_put(write_only pipe uint to, global const uint *from)` | puts `from[i]` into the pipe, unless it is full |
//! | `fake_take(read_only pipe uint from, global uint *to)` | takes `to[i]` out of the pipe, unless it is empty |
//! | `fake_enqueue_add(queue_t queue, global uint *target, uint value)` | enqueues `target[i] += value`, in [`CHILD_NS`] |
//! | `fake_queue_sizes(queue_t queue, global uint *target)` | the first two: the sizes of `queue` and the default one, 0 for none |
//!
//! Invariant: a launch keeps its buffers alive, and touches no byte outside of them.

use std::ffi::{c_int, c_void};

use cl_headers::types::*;

use crate::command::{Enqueue, Time, Work};
use crate::config::KernelRule;
use crate::device::{LOCAL_MEMORY, MAX_GROUP, MAX_GROUP_SIZES};
use crate::error::{ClResult, Code, ensure};
use crate::kernel::{Kernel, Value, Values, local_memory, show};
use crate::memory::Memory;
use crate::object::{Object, Ref};
use crate::queue::Queue;
use crate::source::{Parameter, Signature};
use crate::{arg, control, crash, log};

/// The effect of a kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Behaviour {
    Fill,
    Add,
    Iota,
    Copy,
    Put,
    Take,
    EnqueueAdd,
    QueueSizes,
}

/// How long the work that a launch enqueues on its device takes, in nanoseconds.
pub(crate) const CHILD_NS: u64 = 5000;

/// Returns the effect of a kernel, if its name and parameters are known ones.
pub(crate) fn behaviour(signature: &Signature) -> Option<Behaviour> {
    let parameters: Vec<_> = signature.arguments.iter().map(|a| &a.parameter).collect();
    let with_value = parameters == [&Parameter::Memory, &Parameter::Value(Some(4))];
    let with_buffers = parameters == [&Parameter::Memory, &Parameter::Memory];
    let with_pipe = parameters == [&Parameter::Pipe, &Parameter::Memory];
    let queue = [&Parameter::Queue, &Parameter::Memory];
    let with_queue = parameters == queue;
    let child = parameters.starts_with(&queue) && parameters[2..] == [&Parameter::Value(Some(4))];
    match signature.name.as_str() {
        "fake_fill_u32" if with_value => Some(Behaviour::Fill),
        "fake_add_u32" if with_value => Some(Behaviour::Add),
        "fake_iota_u32" if with_value => Some(Behaviour::Iota),
        "fake_copy" if with_buffers => Some(Behaviour::Copy),
        "fake_put" if with_pipe => Some(Behaviour::Put),
        "fake_take" if with_pipe => Some(Behaviour::Take),
        "fake_enqueue_add" if child => Some(Behaviour::EnqueueAdd),
        "fake_queue_sizes" if with_queue => Some(Behaviour::QueueSizes),
        _ => None,
    }
}

/// A launch with everything that it needs.
pub(crate) struct Launch {
    kernel: Ref<Kernel>,
    /// The values at the enqueue.
    values: Values,
    /// The buffers among the values, in order.
    buffers: Box<[Ref<Memory>]>,
    /// The device queue among the values, and the device's default queue at the enqueue.
    queues: [Option<Ref<Queue>>; 2],
    /// First work-item and number of work-items of the first dimension.
    first: usize,
    count: usize,
    /// Number of work-items of the second dimension.
    rows: usize,
    /// Whether the rows are already in the buffer.
    drawn: bool,
}

impl Launch {
    /// Draws the rows while the launch takes its time, as a device would. If drawn at its end, a large
    /// picture would take processor time in addition to the device's time.
    pub(crate) fn begin(&mut self) {
        if let Some(rule) = control::current().kernels.get(&self.kernel.signature.name) {
            self.draw(rule);
            self.drawn = true;
        }
    }

    fn draw(&self, rule: &KernelRule) {
        if let (Some(rows), Some(target)) = (&rule.rows, self.buffers.first()) {
            rows.draw(target, &self.values, self.count, self.rows);
        }
    }

    /// Runs the launch, with the configured rules for kernels of its name.
    pub(crate) fn run(&self) -> cl_int {
        let kernels = &control::current().kernels;
        if !kernels.is_empty()
            && let Some(rule) = kernels.get(&self.kernel.signature.name)
        {
            if let Err(code) = obey(rule) {
                return code.0;
            }
            if !self.drawn {
                self.draw(rule);
            }
        }
        if let Some(behaviour) = self.kernel.behaviour {
            self.act(behaviour);
        }
        CL_COMPLETE
    }

    fn act(&self, behaviour: Behaviour) {
        // A NULL buffer has no effect.
        let Some(target) = self.buffers.first() else {
            return;
        };
        match behaviour {
            Behaviour::Copy => self.copy(target),
            Behaviour::Put | Behaviour::Take => self.pipe(target, behaviour),
            Behaviour::QueueSizes => self.queue_sizes(target),
            Behaviour::EnqueueAdd => {
                if self.queues[0].is_some() {
                    self.change(target, 2, Behaviour::Add);
                }
            }
            Behaviour::Fill | Behaviour::Add | Behaviour::Iota => self.change(target, 1, behaviour),
        }
    }

    fn copy(&self, target: &Memory) {
        if let Some(source) = self.buffers.get(1) {
            let most = target.size.min(source.size);
            let (first, count) = self.within(most);
            // SAFETY: the bytes are within both buffers, which the launch holds. The buffers may be the same.
            unsafe {
                let source = (source.address as *const u8).add(first);
                ((target.address as *mut u8).add(first)).copy_from(source, count);
            }
        }
    }

    /// Transfers between a pipe and a buffer.
    fn pipe(&self, pipe: &Memory, behaviour: Behaviour) {
        let (Some(pipe), Some(buffer)) = (&pipe.pipe, self.buffers.get(1)) else {
            return;
        };
        let (first, count) = self.within(buffer.size / 4);
        for item in first..first + count {
            let element = (buffer.address as *mut u32).wrapping_add(item);
            if behaviour == Behaviour::Put {
                // SAFETY: the element is within the buffer, which the launch holds.
                pipe.put(unsafe { element.read_unaligned() });
            } else if let Some(number) = pipe.take() {
                // SAFETY: as above.
                unsafe { element.write_unaligned(number) };
            }
        }
    }

    fn queue_sizes(&self, target: &Memory) {
        let size = |queue: &Option<Ref<Queue>>| queue.as_ref().and_then(|of| of.on_device);
        let sizes = self.queues.iter().map(size).take(target.size / 4);
        for (item, size) in sizes.enumerate() {
            let element = (target.address as *mut u32).wrapping_add(item);
            // SAFETY: the element is within the buffer, which the launch holds.
            unsafe { element.write_unaligned(size.unwrap_or(0)) };
        }
    }

    /// Sets or changes each number of a buffer by the value of an argument.
    fn change(&self, target: &Memory, argument: usize, behaviour: Behaviour) {
        let Some(Some(Value::Bytes(value))) = self.values.get(argument) else {
            return;
        };
        let value = u32::from_ne_bytes(value[..4].try_into().unwrap_or_default());
        let (first, count) = self.within(target.size / 4);
        for item in first..first + count {
            let element = (target.address as *mut u32).wrapping_add(item);
            // SAFETY: the element is within the buffer, which the launch keeps alive. A sub-buffer or the
            // application's own memory may be unaligned.
            unsafe {
                let new = match behaviour {
                    Behaviour::Add => element.read_unaligned().wrapping_add(value),
                    Behaviour::Iota => value.wrapping_add(item as u32),
                    _ => value,
                };
                element.write_unaligned(new);
            }
        }
    }

    /// Returns how long the work that this launch enqueues on the device takes.
    pub(crate) fn children_ns(&self) -> u64 {
        match self.kernel.behaviour {
            Some(Behaviour::EnqueueAdd) => CHILD_NS,
            _ => 0,
        }
    }

    /// Returns first element and number of elements, limited to `most`.
    fn within(&self, most: usize) -> (usize, usize) {
        let first = self.first.min(most);
        (first, self.count.min(most - first))
    }
}

fn obey(rule: &KernelRule) -> ClResult {
    if let Some(text) = &rule.print {
        // Printed through C's stdout, as kernels' printf is, and flushed before the command completes.
        let length = c_int::try_from(text.len()).unwrap_or(c_int::MAX);
        // SAFETY: the format takes a length and as many bytes. NULL flushes all streams.
        unsafe {
            libc::printf(c"%.*s".as_ptr(), length, text.as_ptr());
            libc::fflush(std::ptr::null_mut());
        }
    }
    if let Some(crash) = rule.crash {
        crash::now(crash);
    }
    rule.fail.map_or(Ok(()), |code| Err(Code(code)))
}

/// The checked sizes of a launch.
struct Range {
    global: [usize; 3],
    offset: [usize; 3],
}

impl Range {
    fn items(&self) -> usize {
        self.global.iter().product()
    }
}

/// # Safety
/// The arguments are those of a launch.
unsafe fn range(
    enqueue: &Enqueue<'_>,
    kernel: &Kernel,
    work_dim: cl_uint,
    offset: *const size_t,
    global: *const size_t,
    local: *const size_t,
) -> ClResult<Range> {
    ensure((1..=3).contains(&work_dim), CL_INVALID_WORK_DIMENSION)?;
    let dimensions = work_dim as usize;
    // SAFETY: the application passes arrays of `work_dim` elements.
    let triple = |list: *const size_t, rest: usize| unsafe {
        let mut triple = [rest; 3];
        let list = arg::list(dimensions, list);
        triple[..list.len()].copy_from_slice(list);
        triple
    };
    let empty = global.is_null() || triple(global, 1).contains(&0);
    let allowed = !empty || enqueue.queue.device.at_least(2, 1);
    ensure(allowed, CL_INVALID_GLOBAL_WORK_SIZE)?;
    let sizes = if empty { [0; 3] } else { triple(global, 1) };
    let range = Range {
        global: sizes,
        offset: triple(offset, 0),
    };
    let in_reach = (0..3).all(|at| range.offset[at].checked_add(range.global[at]).is_some());
    ensure(in_reach, CL_INVALID_GLOBAL_OFFSET)?;
    let required = kernel.signature.required;
    if local.is_null() {
        return Ok(range);
    }
    let local = triple(local, 1);
    ensure(!local.contains(&0), CL_INVALID_WORK_GROUP_SIZE)?;
    for at in 0..dimensions {
        ensure(local[at] <= MAX_GROUP_SIZES[at], CL_INVALID_WORK_ITEM_SIZE)?;
    }
    let total = local.iter().product::<usize>();
    let fits = total <= MAX_GROUP && (required == [0; 3] || required == local);
    // Work-groups of uneven size are not supported.
    let even = empty || (0..dimensions).all(|at| range.global[at].is_multiple_of(local[at]));
    ensure(fits && even, CL_INVALID_WORK_GROUP_SIZE)?;
    Ok(range)
}

/// Returns how long a launch takes.
fn time(enqueue: &Enqueue<'_>, kernel: &Kernel, values: &Values, range: &Range) -> Time {
    let settings = &enqueue.queue.device.settings;
    let kernels = &control::current().kernels;
    let rule = if kernels.is_empty() {
        None
    } else {
        kernels.get(&kernel.signature.name)
    };
    if rule.is_some_and(|rule| rule.hang) {
        return Time::Never;
    }
    let of_device = || settings.kernel_ns + (settings.ns_per_item * range.items() as f64) as u64;
    let of_rule = |rule: &KernelRule| match &rule.rows {
        Some(rows) => Some(rows.time(values, range.global[1])),
        None => rule.ns,
    };
    match rule.and_then(of_rule).unwrap_or_else(of_device) {
        0 => Time::None,
        ns => Time::Takes(ns),
    }
}

/// Returns references to the buffers among a kernel's values.
fn buffers(values: &Values) -> ClResult<Box<[Ref<Memory>]>> {
    let mut buffers = Vec::with_capacity(values.len());
    for value in values.iter() {
        match value {
            None => return crate::error::fail(CL_INVALID_KERNEL_ARGS),
            Some(Value::Memory(Some(memory))) => {
                let memory = memory.upgrade().ok_or(Code(CL_INVALID_KERNEL_ARGS))?;
                buffers.push(memory);
            }
            Some(_) => {}
        }
    }
    Ok(buffers.into_boxed_slice())
}

/// Returns the device queue among a kernel's values, if any.
fn device_queue(values: &Values) -> ClResult<Option<Ref<Queue>>> {
    let queue = values.iter().flatten().find_map(|value| match value {
        Value::Queue(queue) => Some(queue),
        _ => None,
    });
    let held = queue.map(|queue| queue.upgrade().ok_or(Code(CL_INVALID_KERNEL_ARGS)));
    held.transpose()
}

/// Checks the kernel, captures its arguments, and enqueues the launch.
///
/// # Safety
/// The arguments are those of a launch.
unsafe fn launch(
    mut enqueue: Enqueue<'_>,
    kernel: cl_kernel,
    work_dim: cl_uint,
    offset: *const size_t,
    global: *const size_t,
    local: *const size_t,
) -> ClResult {
    // SAFETY: the application passes a handle that it got from this driver, or NULL.
    let kernel = unsafe { Object::<Kernel>::borrow(kernel) }?;
    let program = &kernel.program;
    let queue = enqueue.queue;
    let same = program.context.handle() == queue.context.handle();
    ensure(same, CL_INVALID_CONTEXT)?;
    let built = kernel.built_for(&queue.device);
    ensure(built, CL_INVALID_PROGRAM_EXECUTABLE)?;
    let values = kernel.values.lock().clone();
    let buffers = buffers(&values)?;
    let queues = [
        device_queue(&values)?,
        queue.context.device_queues.default_of(&queue.device),
    ];
    // SAFETY: the caller keeps the same contract.
    let range = unsafe { range(&enqueue, kernel, work_dim, offset, global, local) }?;
    ensure(local_memory(&values) <= LOCAL_MEMORY, CL_OUT_OF_RESOURCES)?;
    log::note("args", || {
        let values: Vec<_> = values.iter().map(|value| show(value.as_ref())).collect();
        format!("[{}]", values.join(","))
    });
    let work = if range.items() == 0 {
        Work::Nothing
    } else {
        enqueue.time = time(&enqueue, kernel, &values, &range);
        Work::Launch(Box::new(Launch {
            kernel: kernel.hold(),
            values,
            buffers,
            queues,
            first: range.offset[0],
            count: range.global[0],
            rows: range.global[1],
            drawn: false,
        }))
    };
    // SAFETY: the caller keeps the same contract.
    unsafe { enqueue.submit(work) }
}

/// Maximum group size in the first dimension that the driver chooses.
const CHOSEN: usize = 64;

/// Returns the local size of a launch that does not specify one: the size required by the source, if any.
/// Otherwise a divisor of the first dimension, smaller if the arguments take more local memory.
fn suggestion(kernel: &Kernel, range: &Range) -> [usize; 3] {
    if kernel.signature.required != [0; 3] {
        return kernel.signature.required;
    }
    let local = local_memory(&kernel.values.lock());
    let room = LOCAL_MEMORY.checked_div(local).unwrap_or(CHOSEN as u64);
    let most = room.clamp(1, CHOSEN as u64) as usize;
    let first = range.global[0];
    let chosen = (1..=most).rev().find(|size| first.is_multiple_of(*size));
    [chosen.unwrap_or(1), 1, 1]
}

pub(crate) mod api {
    #![allow(non_snake_case, reason = "OpenCL's names")]
    #![allow(clippy::too_many_arguments, reason = "OpenCL's functions")]
    use super::*;

    pub(crate) unsafe fn clEnqueueNDRangeKernel(
        queue: cl_command_queue,
        kernel: cl_kernel,
        work_dim: cl_uint,
        offset: *const size_t,
        global: *const size_t,
        local: *const size_t,
        count: cl_uint,
        list: *const cl_event,
        event: *mut cl_event,
    ) -> ClResult {
        let kind = CL_COMMAND_NDRANGE_KERNEL;
        // SAFETY: the caller keeps the same contract.
        let enqueue = unsafe { Enqueue::begin(queue, kind, count, list, event) }?;
        // SAFETY: the caller keeps the same contract.
        unsafe { launch(enqueue, kernel, work_dim, offset, global, local) }
    }

    pub(crate) unsafe fn clEnqueueTask(
        queue: cl_command_queue,
        kernel: cl_kernel,
        count: cl_uint,
        list: *const cl_event,
        event: *mut cl_event,
    ) -> ClResult {
        // SAFETY: the caller keeps the same contract.
        let enqueue = unsafe { Enqueue::begin(queue, CL_COMMAND_TASK, count, list, event) }?;
        let (none, one) = (std::ptr::null(), [1_usize]);
        // SAFETY: the caller keeps the same contract. The sizes are those of a task.
        unsafe { launch(enqueue, kernel, 1, none, one.as_ptr(), one.as_ptr()) }
    }

    pub(crate) unsafe fn clEnqueueNativeKernel(
        queue: cl_command_queue,
        _function: NativeKernel,
        _args: *mut c_void,
        _cb_args: size_t,
        _num_mem_objects: cl_uint,
        _mem_list: *const cl_mem,
        _args_mem_loc: *mut *const c_void,
        count: cl_uint,
        list: *const cl_event,
        event: *mut cl_event,
    ) -> ClResult {
        // SAFETY: the caller keeps the same contract.
        unsafe { Enqueue::begin(queue, CL_COMMAND_NATIVE_KERNEL, count, list, event) }?;
        // CL_DEVICE_EXECUTION_CAPABILITIES does not include native kernels.
        crate::error::fail(CL_INVALID_OPERATION)
    }

    pub(crate) unsafe fn clGetKernelSuggestedLocalWorkSize(
        queue: cl_command_queue,
        kernel: cl_kernel,
        work_dim: cl_uint,
        offset: *const size_t,
        global: *const size_t,
        suggested: *mut size_t,
    ) -> ClResult {
        let (none, no_event) = (std::ptr::null(), std::ptr::null_mut());
        // SAFETY: the caller keeps the same contract. There is no list and no event.
        let enqueue = unsafe { Enqueue::begin(queue, CL_COMMAND_MARKER, 0, none, no_event) }?;
        let has_it = (enqueue.queue.device).has_extension("cl_khr_suggested_local_work_size");
        ensure(has_it, CL_INVALID_OPERATION)?;
        // SAFETY: the application passes a handle that it got from this driver, or NULL.
        let kernel = unsafe { Object::<Kernel>::borrow(kernel) }?;
        let is_set = kernel.values.lock().iter().all(Option::is_some);
        ensure(is_set, CL_INVALID_KERNEL_ARGS)?;
        // SAFETY: the caller keeps the same contract.
        let range = unsafe { range(&enqueue, kernel, work_dim, offset, global, std::ptr::null()) }?;
        ensure(range.items() > 0, CL_INVALID_GLOBAL_WORK_SIZE)?;
        ensure(!suggested.is_null(), CL_INVALID_VALUE)?;
        let sizes = suggestion(kernel, &range);
        for (at, size) in sizes.iter().enumerate().take(work_dim as usize) {
            // SAFETY: the application passes an array of `work_dim` elements.
            unsafe { suggested.add(at).write(*size) };
        }
        Ok(())
    }
}
