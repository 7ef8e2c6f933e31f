//! Queries that only the node can answer.
#![forbid(unsafe_code)]

use std::sync::Arc;

use causeway_proto::command::{
    Answer, DeviceTimer, KernelArg, KernelSubGroup, KernelWorkGroup, Query, SuggestedLocalSize,
    TimerAnswer, answer, kernel_arg, query,
};
use causeway_proto::id::{DeviceIndex, KernelId, PlatformIndex, ProgramId, QueueId, RequestId};
use causeway_proto::status::Status;

use super::commands::{self, whole};
use super::shared::Shared;
use super::sub_devices;
use super::tables::find;
use super::violation::Violation;
use crate::runtime::clock;
use crate::runtime::node::Device;
use crate::worker::objects::Kernel;
use crate::worker::objects::arguments::Arguments;

/// Answers a query: at once, or from the builder if the driver may take long.
pub(crate) fn answer(shared: &Arc<Shared>, query: Query) -> Result<(), Violation> {
    let result = match query.question {
        Some(query::Question::Ping(_)) => Ok(Some(timer(0))),
        Some(query::Question::ProgramBinaries(ask)) => {
            let program = find(&shared.core.lock().objects.programs, ProgramId(ask.program))?;
            let request = RequestId(query.request);
            super::program::jobs::binaries(shared, program, request, ask.sizes_only);
            return Ok(());
        }
        Some(query::Question::KernelWorkGroup(ask)) => kernel_work_group(shared, &ask)?.map(Some),
        Some(query::Question::KernelSubGroup(ask)) => kernel_sub_group(shared, &ask)?.map(Some),
        Some(query::Question::SuggestedLocalSize(ask)) => {
            suggested_local_size(shared, &ask)?.map(Some)
        }
        Some(query::Question::DeviceTimer(ask)) => device_timer(shared, &ask)?.map(Some),
        None => return Err(Violation::Malformed("a query has no question")),
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

fn device_timer(
    shared: &Arc<Shared>,
    ask: &DeviceTimer,
) -> Result<Result<answer::Body, Status>, Violation> {
    let (platform, device) = (PlatformIndex(ask.platform), DeviceIndex(ask.device));
    let found = sub_devices::find(shared, platform, device).ok_or(Violation::Malformed(
        "a timer query names a device that the node does not have",
    ))?;
    Ok(found.status.map(|()| timer(found.device.now())))
}

fn timer(device_ns: u64) -> answer::Body {
    answer::Body::Timer(TimerAnswer {
        device_ns,
        host_ns: clock::host_ns(),
    })
}

/// Sets the kernel's local arguments for the query. Resets their versions, so that the next
/// launch sets its own.
fn kernel_work_group(
    shared: &Arc<Shared>,
    ask: &KernelWorkGroup,
) -> Result<Result<answer::Body, Status>, Violation> {
    let (kernel, device) = kernel_on(shared, ask.kernel, ask.device)?;
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

/// Maximum number of sizes in a query about sub-groups, or in its answer.
const MAX_SIZES: usize = 3;

fn kernel_sub_group(
    shared: &Arc<Shared>,
    ask: &KernelSubGroup,
) -> Result<Result<answer::Body, Status>, Violation> {
    let (kernel, device) = kernel_on(shared, ask.kernel, ask.device)?;
    if ask.input.len() > MAX_SIZES {
        return Err(Violation::Malformed(
            "a sub-group query has too long an input",
        ));
    }
    let input: Vec<usize> = ask.input.iter().map(|size| *size as usize).collect();
    let room = (ask.room as usize).clamp(1, MAX_SIZES);
    let answer = || -> Result<answer::Body, Status> {
        let bound = kernel.native.as_ref().map_err(|s| *s)?.lock();
        let value = bound
            .kernel
            .sub_group_info(device, ask.name, &input, room)?;
        Ok(answer::Body::Value(value.into()))
    };
    Ok(answer())
}

/// Sets the kernel's arguments for the query. The kernel's next launch sets its own again.
fn suggested_local_size(
    shared: &Arc<Shared>,
    ask: &SuggestedLocalSize,
) -> Result<Result<answer::Body, Status>, Violation> {
    let launch = ask.launch.as_ref();
    let launch = launch.ok_or(Violation::Malformed(
        "a query of a local size has no launch",
    ))?;
    let (queue, operation) = {
        let mut core = shared.core.lock();
        core.version += 1;
        let queue = find(&core.objects.queues, QueueId(ask.queue))?;
        let arguments = Arguments::default();
        (
            queue,
            whole(launch, arguments, &core.objects, core.version)?,
        )
    };
    let answer = || -> Result<answer::Body, Status> {
        let sizes = commands::suggested_local_size(&queue, &operation?)?;
        let bytes: Vec<u8> = (sizes.into_iter())
            .flat_map(|size| (size as u64).to_le_bytes())
            .collect();
        Ok(answer::Body::Value(bytes.into()))
    };
    Ok(answer())
}

fn kernel_on(
    shared: &Shared,
    kernel: u64,
    device: u32,
) -> Result<(Arc<Kernel>, Device), Violation> {
    let kernel = find(&shared.core.lock().objects.kernels, KernelId(kernel))?;
    let device = kernel
        .context
        .device(DeviceIndex(device))
        .ok_or(Violation::Malformed(
            "a kernel query names a device that is not in the kernel's context",
        ))?;
    Ok((kernel, device))
}
