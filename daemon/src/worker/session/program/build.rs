//! The commands that compile: build, compile, link. Each queues a job for the builder, which answers.
#![forbid(unsafe_code)]

use std::ffi::{CStr, CString};
use std::sync::Arc;

use causeway_proto::command::{BuildProgram, CompileProgram, LinkProgram, SpecConstant};
use causeway_proto::id::{ContextId, DeviceIndex, ProgramId, RequestId};
use causeway_proto::limits::MAX_LIST;
use causeway_proto::status::Status;

use super::jobs::submit;
use super::{Answered, Program, answer, natives, source, with_arg_info};
use crate::accounting::Counter;
use crate::runtime::node::Device;
use crate::runtime::program::Program as NativeProgram;
use crate::worker::objects::printed::Printed;
use crate::worker::session::shared::Shared;
use crate::worker::session::tables::{add, find};
use crate::worker::session::violation::Violation;

/// Expects printed text if headers or options contain `printf`, even though the program's source may not.
fn expect_text<'a>(shared: &Shared, program: &Program, texts: impl IntoIterator<Item = &'a [u8]>) {
    if texts
        .into_iter()
        .any(|text| Printed::may_come_from(Some(text)))
    {
        shared.outbox.printed().expect();
        program.may_print();
    }
}

/// Applies `BuildProgram`.
pub(crate) fn build(shared: &Arc<Shared>, build: BuildProgram) -> Result<(), Violation> {
    let program = find(
        &shared.core.lock().objects.programs,
        ProgramId(build.program),
    )?;
    let devices = program.devices(&build.devices)?;
    expect_text(shared, &program, [&build.source[..], &build.options]);
    program.note_language(&build.options);
    submit(shared, program, Vec::new(), RequestId(build.request), {
        let shared = Arc::clone(shared);
        move |program| build_now(&shared, program, &build, &devices)
    });
    Ok(())
}

fn build_now(
    shared: &Arc<Shared>,
    program: &Arc<Program>,
    build: &BuildProgram,
    devices: &[(DeviceIndex, Device)],
) -> Answered {
    let options = source::without_paths(&build.options);
    // A build with other options is not cached.
    let text = std::str::from_utf8(&options).ok();
    let cached = text.and_then(|text| {
        program.cached(
            &shared.node,
            shared.builds.as_ref(),
            &build.source,
            text,
            devices,
        )
    });
    if let Some(cached) = &cached
        && let Ok(context) = program.context.native()
        && let Some((native, body)) = cached.load(context)
    {
        program.set_loaded(native, &options);
        shared.account.add(Counter::CachedBuilds, 1);
        return Ok((Status::SUCCESS, answer::Body::Program(body)));
    }
    shared.account.add(Counter::Builds, 1);
    let native = program.to_build(&build.source, &[], devices)?;
    let list = natives(devices);
    let (native, result) = program.work_on(native, devices, |native| {
        set_constants(native, &build.constants)?;
        if build.null_options && !program.has_source {
            return native.build(&list, None).map(|()| false);
        }
        let build = |options: &CStr| native.build(&list, Some(options));
        with_arg_info(&options, program.has_source, build)
    });
    let told = answer(&native, result.map(drop), devices);
    if let (Some(cached), Ok(arg_info), Ok((_, answer::Body::Program(body)))) =
        (cached, result, &told)
    {
        program.store_later(
            &shared.builder,
            &shared.node,
            cached.built(native, arg_info, body.clone()),
        );
    }
    told
}

fn set_constants(native: &NativeProgram, constants: &[SpecConstant]) -> Result<(), Status> {
    let mut constants = constants.iter();
    constants.try_for_each(|constant| native.set_constant(constant.id, &constant.value))
}

/// Applies `CompileProgram`.
pub(crate) fn compile(shared: &Arc<Shared>, compile: CompileProgram) -> Result<(), Violation> {
    if compile.headers.len() > MAX_LIST {
        return Err(Violation::Malformed("a list of headers is too long"));
    }
    let (program, headers) = {
        let core = shared.core.lock();
        let program = find(&core.objects.programs, ProgramId(compile.program))?;
        let headers = compile
            .headers
            .iter()
            .map(|h| find(&core.objects.programs, ProgramId(h.program)))
            .collect::<Result<Vec<_>, Violation>>()?;
        (program, headers)
    };
    let devices = program.devices(&compile.devices)?;
    expect_text(shared, &program, [&compile.source[..], &compile.options]);
    program.note_language(&compile.options);
    let texts = compile.headers.iter().map(|h| &h.source[..]);
    expect_text(shared, &program, texts);
    if headers.iter().any(|header| header.prints()) {
        program.may_print();
    }
    let others = headers.iter().map(|header| header.id).collect();
    shared.account.add(Counter::Builds, 1);
    submit(shared, program, others, RequestId(compile.request), {
        move |program| compile_now(program, &compile, &headers, &devices)
    });
    Ok(())
}

fn compile_now(
    program: &Arc<Program>,
    compile: &CompileProgram,
    headers: &[Arc<Program>],
    devices: &[(DeviceIndex, Device)],
) -> Answered {
    // An include of any other header is refused like one that did not come with the call.
    let given = compile.headers.iter().zip(headers);
    let given = given.filter(|(h, _)| source::is_inside(&h.include_name));
    let names: Vec<&[u8]> = given.clone().map(|(h, _)| &h.include_name[..]).collect();
    let native = program.to_build(&compile.source, &names, devices)?;
    let headers = given
        .map(|(h, header)| {
            let name = CString::new(&h.include_name[..]);
            let name = name.map_err(|_| Status::INVALID_VALUE)?;
            Ok((name, header.as_header(&h.source, &names)?))
        })
        .collect::<Result<Vec<_>, Status>>()?;
    let options = source::without_paths(&compile.options).into_owned();
    let list = natives(devices);
    let compiled = move |native: &NativeProgram, options: &CStr| {
        let headers = headers.iter().map(|(name, h)| (name.as_c_str(), &**h));
        native.compile(&list, options, &headers.collect::<Vec<_>>())
    };
    let (native, result) = program.work_on(native, devices, |native| {
        set_constants(native, &compile.constants)?;
        let compile = |options: &CStr| compiled(native, options);
        with_arg_info(&options, program.has_source, compile)
    });
    let plain = Arc::clone(&native);
    let plainly = move || {
        let options = CString::new(options).map_err(|_| Status::INVALID_BUILD_OPTIONS)?;
        let result = compiled(&plain, &options);
        plain.forbid_asking();
        result
    };
    program.set_plainly((result == Ok(true)).then(|| Box::new(plainly) as _));
    let result = result.map(drop);
    answer(&native, result, devices)
}

/// Applies `LinkProgram`.
pub(crate) fn link(shared: &Arc<Shared>, link: LinkProgram) -> Result<(), Violation> {
    if link.inputs.len() > MAX_LIST {
        return Err(Violation::Malformed("a list of programs is too long"));
    }
    let id = ProgramId(link.program);
    let (program, inputs, room) = {
        let mut core = shared.core.lock();
        let room = core.room(shared)?;
        let context = find(&core.objects.contexts, ContextId(link.context))?;
        let inputs = link
            .inputs
            .iter()
            .map(|input| find(&core.objects.programs, ProgramId(*input)))
            .collect::<Result<Vec<_>, _>>()?;
        let program = Program::new(id, context, Err(Status::INVALID_PROGRAM_EXECUTABLE));
        add(&mut core.objects.programs, id, program)?;
        (find(&core.objects.programs, id)?, inputs, room)
    };
    if inputs.iter().any(|input| input.prints()) {
        program.may_print();
    }
    if inputs.iter().any(|input| input.has_variables()) {
        program.may_have_variables();
    }
    let devices = program.devices(&link.devices)?;
    let others = inputs.iter().map(|input| input.id).collect();
    shared.account.add(Counter::Builds, 1);
    submit(
        shared,
        program,
        others,
        RequestId(link.request),
        move |program| {
            room?;
            let compiled = inputs
                .iter()
                .map(|i| i.native())
                .collect::<Result<Vec<_>, _>>()?;
            let context = program.context.native()?;
            let options = CString::new(&*source::without_paths(&link.options))
                .map_err(|_| Status::INVALID_VALUE)?;
            let compiled: Vec<&NativeProgram> = compiled.iter().map(|c| &**c).collect();
            let link = || NativeProgram::link(context, &natives(&devices), &options, &compiled);
            // A failed link also returns a program, which has the log.
            let (mut linked, mut result) = link();
            // NVIDIA's linker also fails for kernels without arguments that have argument info.
            if result.is_err() && compile_plainly(&inputs) {
                (linked, result) = link();
            }
            let failed = result.err().unwrap_or(Status::INVALID_PROGRAM);
            program.set_native(linked.ok_or(failed));
            answer(&*program.native()?, result, &devices)
        },
    );
    Ok(())
}

/// Recompiles programs without the added option, as the application asked. Returns whether there were any.
fn compile_plainly(programs: &[Arc<Program>]) -> bool {
    let compile = |any, program: &Arc<Program>| program.compile_plainly() || any;
    programs.iter().fold(false, compile)
}
