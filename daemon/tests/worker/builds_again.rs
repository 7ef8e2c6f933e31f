//! Tests of builds while the driver still holds kernels that the client has released. The driver refuses such a
//! build, and the worker builds another native program instead.

use causeway_proto::command::{answer::Body, command::Kind, *};

use crate::common::{Daemon, Session, launch, memory};

const SOURCE: &str = "kernel void f(global int *x) {}";

/// Starts a daemon whose driver refuses this call of a function, as it does while kernels are attached.
fn refusing(function: &str, call: u32) -> Daemon {
    let rule = format!("[[call]]\nname = \"{function}\"\nat = {call}\nfail = -59\n");
    Daemon::fake_with("", &[], &[("FAKE_OPENCL_CONFIG", &rule)])
}

fn body(answer: Answer) -> ProgramAnswer {
    assert_eq!(answer.status, 0, "{answer:?}");
    match answer.body {
        Some(Body::Program(body)) => body,
        other => panic!("no program answer: {other:?}"),
    }
}

fn build(session: &mut Session, program: u64, devices: &[u32]) -> ProgramAnswer {
    let request = session.new_id();
    session.send(vec![Kind::BuildProgram(BuildProgram {
        request,
        program,
        devices: devices.to_vec(),
        ..BuildProgram::default()
    })]);
    body(session.answer(request))
}

fn has_arg_info(answer: &ProgramAnswer) -> bool {
    answer.kernels[0].args[0].type_name == "int*"
}

#[test]
fn a_refused_build_is_made_in_another_native_program() {
    let daemon = refusing("clBuildProgram", 2);
    let mut session = daemon.session();
    let context = session.context();
    let (program, answer) = session.build(context, SOURCE, "");
    let first = body(answer);
    assert!(has_arg_info(&first), "{first:?}");
    assert_eq!(build(&mut session, program, &[]), first);
}

#[test]
fn a_refused_compilation_is_made_in_another_native_program() {
    let daemon = refusing("clCompileProgram", 2);
    let mut session = daemon.session();
    let context = session.context();
    let (program, _) = session.build(context, SOURCE, "");
    let mut compile = || {
        let request = session.new_id();
        session.send(vec![Kind::CompileProgram(CompileProgram {
            request,
            program,
            // This is the worker's own option, so no compilation runs without it.
            options: "-cl-kernel-arg-info".into(),
            ..CompileProgram::default()
        })]);
        body(session.answer(request))
    };
    let first = compile();
    assert_eq!(compile(), first);
}

#[test]
fn other_devices_keep_the_builds_that_they_have() {
    let rules = "[[device]]\nname = \"A\"\n[[device]]\nname = \"B\"\n\
        [[call]]\nname = \"clBuildProgram\"\nat = 2\nfail = -59\n";
    let daemon = Daemon::fake_with("", &[], &[("FAKE_OPENCL_CONFIG", rules)]);
    let mut session = daemon.session();
    let context = session.new_id();
    session.send(vec![Kind::CreateContext(CreateContext {
        context,
        platform: 0,
        devices: vec![0, 1],
    })]);
    let (program, answer) = session.build(context, SOURCE, "-DON_BOTH");
    assert_eq!(body(answer).devices.len(), 2);
    build(&mut session, program, &[1]);
    // Both programs have an executable with binaries.
    let request = session.new_id();
    session.send(vec![Kind::Query(Query {
        request,
        question: Some(query::Question::ProgramBinaries(ProgramBinaries {
            program,
            sizes_only: true,
        })),
    })]);
    match session.answer(request).body {
        Some(Body::Binaries(told)) => {
            assert_eq!(told.sizes.len(), 2);
            assert!(told.sizes.iter().all(|size| *size > 0), "{told:?}");
        }
        other => panic!("no binaries: {other:?}"),
    }
    let queue = session.queue(context, 0);
    let kernel = session.kernel(program, "f");
    let buffer = session.buffer(context, 4, &[]);
    let launched = session.enqueue(queue, &[], launch(kernel, vec![memory(buffer)], &[1], &[]));
    assert_eq!(session.wait(launched).status, 0);
}

#[test]
fn a_program_from_binaries_is_made_again_from_them() {
    let daemon = refusing("clBuildProgram", 3);
    let mut session = daemon.session();
    let context = session.context();
    let (source, _) = session.build(context, SOURCE, "");
    let request = session.new_id();
    session.send(vec![Kind::Query(Query {
        request,
        question: Some(query::Question::ProgramBinaries(ProgramBinaries {
            program: source,
            sizes_only: false,
        })),
    })]);
    let Some(Body::Binaries(told)) = session.answer(request).body else {
        panic!("no binaries");
    };
    let (program, request) = (session.new_id(), session.new_id());
    session.send(vec![Kind::CreateProgram(CreateProgram {
        program,
        context,
        from: Some(create_program::From::Binaries(Binaries {
            per_device: told.per_device,
        })),
        request,
    })]);
    body(session.answer(request));
    let first = build(&mut session, program, &[]);
    assert_eq!(build(&mut session, program, &[]), first);
}
