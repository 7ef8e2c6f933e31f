//! Build commands and queries behind the earlier ones on their programs, and their answers.
#![forbid(unsafe_code)]

use std::sync::Arc;

use causeway_proto::command::{Answer, BinariesAnswer, DeviceBinary, answer};
use causeway_proto::id::{ProgramId, RequestId};
use causeway_proto::limits::MAX_BATCH;
use causeway_proto::status::Status;

use super::{Answered, Program, natives};
use crate::accounting::Counter;
use crate::worker::session::shared::Shared;

/// Queues a build command on `program` and answers it with the result of `work`.
pub(super) fn submit(
    shared: &Arc<Shared>,
    program: Arc<Program>,
    others: Vec<ProgramId>,
    request: RequestId,
    work: impl FnOnce(&Arc<Program>) -> Answered + Send + 'static,
) {
    program.state.lock().jobs += 1;
    ask(shared, program, others, request, move |program| {
        let answer = work(program);
        // Before the answer is sent, because the client may create kernels as soon as it has the answer.
        program.state.lock().jobs -= 1;
        if let Ok((_, answer::Body::Program(body))) = &answer
            && body.devices.iter().any(|of| of.global_variable_size > 0)
        {
            program.may_have_variables();
        }
        answer
    });
}

/// Queues a query about `program` behind the earlier commands on it. Kernels may be created meanwhile.
fn ask(
    shared: &Arc<Shared>,
    program: Arc<Program>,
    mut others: Vec<ProgramId>,
    request: RequestId,
    work: impl FnOnce(&Arc<Program>) -> Answered + Send + 'static,
) {
    others.push(program.id);
    let (outbox, account) = (Arc::clone(&shared.outbox), shared.account.clone());
    shared.builder.submit(others, move || {
        account.begin(Counter::Building, 1);
        let answered = work(&program);
        account.end(Counter::Building, 1);
        if request.0 != 0 {
            let status = answered
                .as_ref()
                .map_or_else(|status| *status, |(status, _)| *status);
            outbox.answer(Answer {
                request: request.0,
                status: status.0,
                message: String::new(),
                body: answered.ok().map(|(_, body)| body),
            });
        }
    });
}

/// Answers a query for a program's binaries.
pub(crate) fn binaries(
    shared: &Arc<Shared>,
    program: Arc<Program>,
    request: RequestId,
    sizes_only: bool,
) {
    ask(shared, program, Vec::new(), request, move |program| {
        let body = binaries_of(program, sizes_only)?;
        Ok((Status::SUCCESS, answer::Body::Binaries(body)))
    });
}

fn binaries_of(program: &Program, sizes_only: bool) -> Result<BinariesAnswer, Status> {
    let native = program.native()?;
    let sizes = native.binary_sizes()?;
    let binaries = if sizes_only {
        vec![Vec::new(); sizes.len()]
    } else {
        native.binaries(MAX_BATCH / 2)?
    };
    let context = &program.context;
    let order = native.devices(&natives(&context.devices))?;
    let mut answer = BinariesAnswer::default();
    for ((at, binary), size) in order.into_iter().zip(binaries).zip(sizes) {
        if let Some((index, _)) = at.and_then(|at| context.devices.get(at)) {
            answer.per_device.push(DeviceBinary {
                device: index.0,
                binary: binary.into(),
            });
            answer.sizes.push(size);
        }
    }
    Ok(answer)
}
