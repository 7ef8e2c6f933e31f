//! Creation of programs: from source, intermediate language, binaries, or names of built-in kernels.
//!
//! Linked programs are made in `build`. Invariant: a program exists, working or broken, before any command that
//! names it is applied. Only binaries are loaded by the builder, because a driver may take long to check them.
#![forbid(unsafe_code)]

use std::ffi::CString;
use std::sync::Arc;

use bytes::Bytes;
use causeway_proto::command::{
    CreateProgram, DeviceBinary, DeviceBuild, ObjectKind, ProgramAnswer, answer, create_program,
};
use causeway_proto::id::{ProgramId, RequestId};
use causeway_proto::status::Status;

use super::jobs::submit;
use super::{Answered, Program, build_of, builds_of, natives, signatures, source};
use crate::build_cache::MAX_TEXT;
use crate::runtime::program::Program as NativeProgram;
use crate::worker::objects::Context;
use crate::worker::objects::printed::Printed;
use crate::worker::session::shared::Shared;
use crate::worker::session::tables::{add, find};
use crate::worker::session::violation::Violation;

/// Applies `CreateProgram`.
pub(crate) fn create(shared: &Arc<Shared>, create: CreateProgram) -> Result<(), Violation> {
    let id = ProgramId(create.program);
    let context = shared.context(create.context)?;
    let from = create.from.ok_or(Violation::Malformed(
        "a program has neither source, IL, binaries nor built-in kernels",
    ))?;
    let is_opaque = matches!(
        from,
        create_program::From::Il(_) | create_program::From::Binaries(_)
    );
    let text = match &from {
        create_program::From::Source(text) => Some(text.as_ref()),
        _ => None,
    };
    if text.is_some() {
        shared.builder.expect();
    }
    let prints = Printed::may_come_from(text);
    if prints {
        shared.outbox.printed().expect();
    }
    let (program, binaries) = make(shared, id, context, from)?;
    if binaries.is_none() && create.request == 0 {
        // A program with includes is made natively by each build, so it is not broken yet.
        let broken = program.native().err().filter(|_| program.source.is_none());
        shared.tell_broken(
            ObjectKind::Program,
            id.0,
            broken.as_ref(),
            program.context.id,
        );
    }
    if prints {
        program.may_print();
    }
    if is_opaque {
        program.may_have_variables();
    }
    let program = {
        let mut core = shared.core.lock();
        add(&mut core.objects.programs, id, program)?;
        find(&core.objects.programs, id)?
    };
    let request = RequestId(create.request);
    match binaries {
        Some(binaries) => from_binaries(shared, program, binaries, request)?,
        None if request.0 != 0 => submit(shared, program, Vec::new(), request, made),
        None => {}
    }
    Ok(())
}

/// Makes the program, as far as it needs no build. Also returns the binaries from which it is to be built.
fn make(
    shared: &Shared,
    id: ProgramId,
    context: Arc<Context>,
    from: create_program::From,
) -> Result<(Program, Option<Vec<DeviceBinary>>), Violation> {
    let room = shared.room()?;
    let program = match from {
        _ if room.is_err() => {
            let native = room.and(Err(Status::OUT_OF_HOST_MEMORY));
            Program::new(id, context, native)
        }
        create_program::From::Source(text) => {
            let known = shared.builds.as_ref().is_some_and(|builds| builds.is_on());
            from_source(id, context, text, known)
        }
        create_program::From::BuiltInKernels(names) => from_built_in(id, context, names),
        create_program::From::Il(il) => {
            let native = context
                .native()
                .and_then(|c| NativeProgram::with_il(c, &il));
            Program::new(id, context, native)
        }
        create_program::From::Binaries(list) => {
            let program = Program::new(id, context, Err(Status::INVALID_PROGRAM));
            return Ok((program, Some(list.per_device)));
        }
    };
    Ok((program, None))
}

/// Answers for built-in kernels. They need no build, so their signatures are known now.
fn made(program: &Arc<Program>) -> Answered {
    let devices = &program.context.devices;
    let native = program.native()?;
    let body = ProgramAnswer {
        devices: builds_of(&native, devices),
        kernels: signatures(&native, devices),
    };
    Ok((Status::SUCCESS, answer::Body::Program(body)))
}

fn from_built_in(id: ProgramId, context: Arc<Context>, names: String) -> Program {
    let native = CString::new(names)
        .map_err(|_| Status::INVALID_VALUE)
        .and_then(|names| {
            let devices = natives(&context.devices);
            NativeProgram::with_built_in_kernels(context.native()?, &devices, &names)
        });
    Program::new(id, context, native)
}

/// Makes a program from source. `known` means that the cache may have it.
fn from_source(id: ProgramId, context: Arc<Context>, text: Bytes, known: bool) -> Program {
    if source::asks(&text) {
        let mut program = Program::new(id, context, Err(Status::INVALID_PROGRAM_EXECUTABLE));
        // Copied, because a slice would keep the whole batch alive.
        program.source = Some(Bytes::copy_from_slice(&text));
        program.has_source = true;
        return program;
    }
    let native = context
        .native()
        .and_then(|c| NativeProgram::with_source(c, &text));
    let mut program = Program::new(id, context, native);
    program.has_source = true;
    if known && text.len() <= MAX_TEXT {
        program.text = Some(Bytes::copy_from_slice(&text));
    }
    program
}

fn from_binaries(
    shared: &Arc<Shared>,
    program: Arc<Program>,
    binaries: Vec<DeviceBinary>,
    request: RequestId,
) -> Result<(), Violation> {
    let named: Vec<u32> = binaries.iter().map(|b| b.device).collect();
    if named.is_empty() {
        return Err(Violation::Malformed("a program of binaries has no binary"));
    }
    let devices = program.devices(&named)?;
    submit(shared, program, Vec::new(), request, move |program| {
        let context = program.context.native()?;
        let bytes: Vec<&[u8]> = binaries.iter().map(|b| b.binary.as_ref()).collect();
        let (native, verdicts) = NativeProgram::with_binaries(context, &natives(&devices), &bytes);
        let status = native.as_ref().err().copied().unwrap_or(Status::SUCCESS);
        program.set_native(native);
        let native = program.native();
        let devices = devices
            .iter()
            .zip(verdicts)
            .map(|((index, device), verdict)| DeviceBuild {
                binary_status: verdict,
                ..match &native {
                    Ok(native) => build_of(native, *index, *device),
                    Err(_) => DeviceBuild {
                        device: index.0,
                        ..DeviceBuild::default()
                    },
                }
            })
            .collect();
        let body = ProgramAnswer {
            devices,
            kernels: Vec::new(),
        };
        Ok((status, answer::Body::Program(body)))
    });
    Ok(())
}
