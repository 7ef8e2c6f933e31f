//! Questions that only the node can answer.
#![forbid(unsafe_code)]

use std::sync::Arc;

use causeway_proto::command::{
    Answer, DeviceTimer, KernelArg, KernelWorkGroup, Query, TimerAnswer, answer, kernel_arg, query,
};
use causeway_proto::id::{DeviceIndex, KernelId, PlatformIndex, ProgramId, RequestId};
use causeway_proto::status::Status;

use super::objects::find;
use super::{Shared, Violation};
use crate::runtime::clock;

/// Answers a question: at once, or from the builder where the driver may take its time.
///
/// # Errors
/// [`Violation`] for what no client of ours asks.
pub(crate) fn answer(shared: &Arc<Shared>, query: Query) -> Result<(), Violation> {
    let result = match query.question {
        Some(query::Question::Ping(_)) => Ok(Some(timer(0))),
        Some(query::Question::ProgramBinaries(ask)) => {
            let program = find(&shared.core.lock().objects.programs, ProgramId(ask.program))?;
            let request = RequestId(query.request);
            super::program::binaries(shared, program, request, ask.sizes_only);
            return Ok(());
        }
        Some(query::Question::KernelWorkGroup(ask)) => kernel_work_group(shared, &ask)?.map(Some),
        Some(query::Question::DeviceTimer(ask)) => Ok(Some(device_timer(shared, &ask)?)),
        None => return Err(Violation::Malformed("a query without a question")),
    };
    let status = result.as_ref().err().copied().unwrap_or(Status::SUCCESS);
    shared.outbox.answer(Answer {
        request: query.request,
        status: status.0,
        message: String::new(),
        body: result.ok().flatten(),
    });
    Ok(())
}

fn device_timer(shared: &Arc<Shared>, ask: &DeviceTimer) -> Result<answer::Body, Violation> {
    let (platform, device) = (PlatformIndex(ask.platform), DeviceIndex(ask.device));
    let device = shared
        .node
        .platform(platform)
        .filter(|_| shared.part.allows(platform, device))
        .and_then(|platform| platform.device(device))
        .ok_or(Violation::Malformed("a timer of no device of the node"))?;
    Ok(timer(device.now()))
}

fn timer(device_ns: u64) -> answer::Body {
    answer::Body::Timer(TimerAnswer {
        device_ns,
        host_ns: clock::host_ns(),
    })
}

/// The kernel's local arguments are set for the question and forgotten after it, so that the next
/// launch sets its own.
fn kernel_work_group(
    shared: &Arc<Shared>,
    ask: &KernelWorkGroup,
) -> Result<Result<answer::Body, Status>, Violation> {
    let kernel = find(&shared.core.lock().objects.kernels, KernelId(ask.kernel))?;
    let device = kernel
        .context
        .device(DeviceIndex(ask.device))
        .ok_or(Violation::Malformed(
            "a kernel's question about no device of its context",
        ))?;
    let answer = || -> Result<answer::Body, Status> {
        let mut bound = kernel.native.as_ref().map_err(|s| *s)?.lock();
        for argument in &ask.args {
            if let KernelArg {
                index,
                value: Some(kernel_arg::Value::LocalSize(size)),
            } = argument
            {
                if let Some(set) = bound.set.get_mut(*index as usize) {
                    *set = 0;
                }
                bound.kernel.set_local(*index, *size)?;
            }
        }
        let value = bound.kernel.work_group_info(device, ask.name)?;
        Ok(answer::Body::Value(value.into()))
    };
    Ok(answer())
}
