//! A launch in a command buffer: its arguments and sizes, which may be changed for later replays.
//!
//! These arguments and sizes are separate from the kernel's own. References to memory are weak: a replay
//! keeps memory alive, the command buffer does not. Specification:
//! `cl_khr_command_buffer_mutable_dispatch`. Invariant: in all versions of one recorded launch, the same
//! change number means the same value. So one comparison for each argument finds the differences.

use std::sync::{Arc, Weak};

use causeway_proto::command::{NdRange, SvmPointers};
use cl_headers::types::CL_INVALID_PROGRAM_EXECUTABLE;

use super::args::{ArgValue, Args, SentArgs};
use super::launch::{Snapshot, argument, check_memory, nd_range};
use super::{Kernel, Limits, Range};
use crate::error::{ClResult, Status};
use crate::stub::{Buffer, Device, Site};

/// One version of a recorded launch; see the module.
#[derive(Clone, Debug)]
pub struct Dispatch {
    kernel: Arc<Kernel>,
    device: Arc<Device>,
    args: Args,
    // As the application gave it, without the kernel's required group size.
    range: Range,
}

impl Dispatch {
    /// Makes a dispatch for a device that the kernel was built for.
    pub(super) fn new(
        kernel: &Arc<Kernel>,
        device: &Arc<Device>,
        args: &Args,
        range: &Range,
    ) -> Dispatch {
        Dispatch {
            kernel: kernel.clone(),
            device: device.clone(),
            args: args.clone(),
            range: *range,
        }
    }

    /// Returns the kernel.
    #[must_use]
    pub fn kernel(&self) -> &Arc<Kernel> {
        &self.kernel
    }

    /// Returns the sizes, as the application gave them.
    #[must_use]
    pub fn range(&self) -> &Range {
        &self.range
    }

    /// Whether every argument was set.
    #[must_use]
    pub fn has_arguments(&self) -> bool {
        self.args.are_set()
    }

    /// Changes the sizes.
    pub fn set_range(&mut self, range: Range) {
        self.range = range;
    }

    /// Changes an argument. The caller has checked `index` and `value` against the kernel's signature.
    pub fn set_arg(&mut self, index: usize, value: ArgValue) {
        self.args.set(index, value);
    }

    /// Changes the shared virtual memory that the launch reaches through pointers in memory.
    pub fn set_reaches(&mut self, memory: Vec<Weak<Buffer>>) {
        self.args.set_reaches(memory);
    }

    fn limits(&self) -> ClResult<&Limits> {
        let mut all = self.kernel.limits.iter();
        let found = all.find(|(known, _)| Arc::ptr_eq(known, &self.device));
        let (_, limits) = found.ok_or(Status(CL_INVALID_PROGRAM_EXECUTABLE))?;
        Ok(limits)
    }

    /// Whether all work-groups have the same size.
    #[must_use]
    pub fn is_uniform(&self) -> bool {
        let range = self.limits().map(|limits| self.range.with_required(limits));
        range.is_ok_and(|range| range.is_uniform())
    }

    /// Returns a complete launch, checked like an enqueue, except that arguments may be unset.
    ///
    /// # Errors
    /// Those of `clEnqueueNDRangeKernel` for arguments and sizes.
    pub fn snapshot(&self) -> ClResult<Snapshot> {
        let limits = self.limits()?;
        let buffers = self.args.buffers()?;
        let range = self.range.with_required(limits);
        range.check(limits)?;
        check_memory(&self.device, limits, &self.args, &buffers)?;
        Snapshot::new(&self.kernel, &self.device, &self.args, &buffers, &range)
    }

    /// Returns the message that updates a site which knows the launch as of version `before`.
    ///
    /// # Errors
    /// `CL_DEVICE_NOT_AVAILABLE` when the session is lost, `CL_INVALID_MEM_OBJECT` for memory that no
    /// longer exists.
    pub fn news(&self, before: &Dispatch, site: &Site) -> ClResult<NdRange> {
        let id = self.kernel.on(site)?;
        let known = SentArgs::of(&before.args);
        let buffers = self.args.buffers()?;
        let args = known.news(self.args.with(&buffers), |value| argument(value, site))?;
        let reached = known.reaches(&self.args, &buffers);
        let reached = reached.map(|memory| memory.iter().map(|of| Ok(of.id_on(site)?.0)));
        let memory = reached.map(Iterator::collect::<ClResult<_>>).transpose()?;
        let range = self.range.with_required(self.limits()?);
        Ok(NdRange {
            reaches: memory.map(|memory| SvmPointers { memory }),
            ..nd_range(id, args, &range)
        })
    }
}
