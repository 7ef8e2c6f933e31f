//! Tests of builds over the real protocol: logs, harmless failures, headers, links, binaries, and files that a build
//! may not read.

use causeway_proto::command::{answer::Body, command::Kind, *};
use prost::bytes::Bytes;

use crate::common::{Daemon, Session, launch, memory};

const BUILD_PROGRAM_FAILURE: i32 = -11;
const CL_BUILD_SUCCESS: i32 = 0;
const CL_BUILD_ERROR: i32 = -2;

fn body(answer: Answer) -> ProgramAnswer {
    match answer.body {
        Some(Body::Program(body)) => body,
        other => panic!("no program answer: {other:?}"),
    }
}

fn create(session: &mut Session, context: u64, from: create_program::From) -> u64 {
    let program = session.new_id();
    session.send(vec![Kind::CreateProgram(CreateProgram {
        program,
        context,
        from: Some(from),
        request: 0,
    })]);
    program
}

fn source(text: &str) -> create_program::From {
    create_program::From::Source(Bytes::copy_from_slice(text.as_bytes()))
}

#[test]
fn a_failing_build_tells_its_log_and_disturbs_nothing() {
    let daemon = Daemon::start();
    let mut session = daemon.session();
    let context = session.context();
    let queue = session.queue(context, 0);
    let buffer = session.buffer(context, 4, &[1, 2, 3, 4]);
    let (program, answer) = session.build(context, "kernel void f( { syntax }", "-cl-mad-enable");
    assert_eq!(answer.status, BUILD_PROGRAM_FAILURE);
    let told = body(answer);
    assert_eq!(told.devices[0].status, CL_BUILD_ERROR);
    assert!(
        told.devices[0].log.contains("error"),
        "{}",
        told.devices[0].log
    );
    assert!(told.kernels.is_empty());
    // A kernel of this program is unusable, and so is a launch of that kernel.
    let kernel = session.kernel(program, "f");
    let event = session.enqueue(queue, &[], launch(kernel, vec![], &[1], &[]));
    assert!(session.wait(event).status < 0);
    assert_eq!(session.heard.notices.len(), 1);
    assert_eq!(&session.bytes(queue, buffer, 0, 4)[..], [1, 2, 3, 4]);
}

#[test]
fn a_build_reads_nothing_of_the_nodes_files() {
    let daemon = Daemon::start();
    let mut session = daemon.session();
    let context = session.context();
    let secret = "root:";
    for text in [
        "#include \"/etc/passwd\"\n",
        "%:inc\\\nlude </etc/passwd>\n",
        "#warning /*\n#include \"/etc/passwd\"\n",
        "#pragma mark /*\n#include \"/etc/passwd\"\n",
        "\u{feff}#include \"/etc/passwd\"\n",
        // Only the compiler knows the name. The sandbox lets drivers read this file.
        "#define FILE \"/etc/hosts\"\n#include FILE\n",
    ] {
        let (_, answer) = session.build(context, text, "-I /etc -I/");
        assert_eq!(answer.status, BUILD_PROGRAM_FAILURE);
        let log = &body(answer).devices[0].log;
        assert!(
            log.contains("the client did not send this header with the program"),
            "{log}"
        );
        assert!(!log.contains(secret), "{log}");
    }
    // Some of Clang's modes treat the first two as includes. A module map is no program, so Clang shows its lines.
    for text in [
        "\u{a0}#include \"/etc/passwd\"\n",
        "#\\u00A0include \"/etc/passwd\"\n",
        "#pragma clang module build a\nextern module a \"/etc/passwd\"\n#pragma clang module endbuild\n",
    ] {
        let (_, answer) = session.build(context, text, "");
        assert_eq!(answer.status, BUILD_PROGRAM_FAILURE);
        assert!(!body(answer).devices[0].log.contains(secret));
    }
    // A driver would look for such a header at its path.
    let name = "/etc/passwd";
    let header = create(&mut session, context, source("int given;\n"));
    let program = create(&mut session, context, source("#include \"/etc/passwd\"\n"));
    let request = session.new_id();
    session.send(vec![Kind::CompileProgram(CompileProgram {
        request,
        program,
        headers: vec![Header {
            include_name: Bytes::from_static(name.as_bytes()),
            program: header,
            ..Header::default()
        }],
        ..CompileProgram::default()
    })]);
    let answer = session.answer(request);
    assert!(answer.status < 0);
    let log = &body(answer).devices[0].log;
    assert!(
        log.contains("the client did not send this header with the program"),
        "{log}"
    );
    // An include in a skipped group does no harm.
    let text = "#ifndef __OPENCL_VERSION__\n#include <stdio.h>\n#endif\nkernel void f() {}";
    assert_eq!(session.build(context, text, "").1.status, 0);
}

#[test]
fn programs_are_compiled_with_their_headers_and_linked() {
    let daemon = Daemon::start();
    let mut session = daemon.session();
    let context = session.context();
    let queue = session.queue(context, 0);
    let buffer = session.buffer(context, 4, &[0; 4]);
    let inner = create(&mut session, context, source("#define SEVEN 7\n"));
    let outer = create(
        &mut session,
        context,
        source("#include \"inner.h\"\nint seven();\n"),
    );
    let user = "#include \"outer.h\"\nkernel void f(global int *x) { *x = seven(); }";
    let library = "#include \"outer.h\"\nint seven() { return SEVEN; }";
    let mut objects = Vec::new();
    for text in [user, library] {
        let program = create(&mut session, context, source(text));
        let request = session.new_id();
        let header = |name: &str, program| Header {
            include_name: Bytes::copy_from_slice(name.as_bytes()),
            program,
            ..Header::default()
        };
        session.send(vec![Kind::CompileProgram(CompileProgram {
            request,
            program,
            devices: vec![],
            options: Bytes::new(),
            source: Bytes::new(),
            constants: Vec::new(),
            headers: vec![header("inner.h", inner), header("outer.h", outer)],
        })]);
        let answer = session.answer(request);
        assert_eq!(answer.status, 0, "{answer:?}");
        objects.push(program);
    }
    let (request, program) = (session.new_id(), session.new_id());
    session.send(vec![Kind::LinkProgram(LinkProgram {
        request,
        program,
        context,
        devices: vec![],
        options: Bytes::new(),
        inputs: objects.clone(),
    })]);
    let linked = session.answer(request);
    assert_eq!(linked.status, 0, "{linked:?}");
    assert_eq!(body(linked).kernels.len(), 1);
    let kernel = session.kernel(program, "f");
    session.enqueue(queue, &[], launch(kernel, vec![memory(buffer)], &[1], &[]));
    assert_eq!(&session.bytes(queue, buffer, 0, 4)[..], 7i32.to_ne_bytes());
    // A link without a needed function fails, and still has a program to query.
    let (request, program) = (session.new_id(), session.new_id());
    session.send(vec![Kind::LinkProgram(LinkProgram {
        request,
        program,
        context,
        devices: vec![],
        options: Bytes::new(),
        inputs: vec![objects[0]],
    })]);
    assert!(session.answer(request).status < 0);
}

#[test]
fn binaries_come_back_and_are_taken_again() {
    let daemon = Daemon::start();
    let mut session = daemon.session();
    let context = session.context();
    let text = "kernel void f(global int *x, int v) { *x = v; }";
    let (program, _) = session.build(context, text, "");
    let ask = |session: &mut Session, sizes_only| {
        let request = session.new_id();
        let question = query::Question::ProgramBinaries(ProgramBinaries {
            program,
            sizes_only,
        });
        session.send(vec![Kind::Query(Query {
            request,
            question: Some(question),
        })]);
        match session.answer(request).body {
            Some(Body::Binaries(binaries)) => binaries,
            other => panic!("{other:?}"),
        }
    };
    let sizes = ask(&mut session, true);
    assert!(sizes.per_device[0].binary.is_empty());
    let binaries = ask(&mut session, false);
    assert_eq!(binaries.per_device[0].binary.len() as u64, sizes.sizes[0]);

    let load = |session: &mut Session, binary: Bytes| {
        let (program, request) = (session.new_id(), session.new_id());
        let per_device = vec![DeviceBinary { device: 0, binary }];
        session.send(vec![Kind::CreateProgram(CreateProgram {
            program,
            context,
            from: Some(create_program::From::Binaries(Binaries { per_device })),
            request,
        })]);
        (program, session.answer(request))
    };
    let (_, answer) = load(&mut session, Bytes::from_static(b"no binary at all"));
    assert!(answer.status < 0);
    assert!(body(answer).devices[0].binary_status < 0);

    let (again, answer) = load(&mut session, binaries.per_device[0].binary.clone());
    assert_eq!(answer.status, 0, "{answer:?}");
    let request = session.new_id();
    session.send(vec![Kind::BuildProgram(BuildProgram {
        request,
        program: again,
        devices: vec![],
        options: Bytes::new(),
        null_options: true,
        source: Bytes::new(),
        constants: Vec::new(),
    })]);
    let built = session.answer(request);
    assert_eq!(built.status, 0, "{built:?}");
    let told = body(built);
    assert_eq!(told.devices[0].status, CL_BUILD_SUCCESS);
    assert_eq!(told.kernels[0].args.len(), 2);
    let queue = session.queue(context, 0);
    let buffer = session.buffer(context, 4, &[]);
    let kernel = session.kernel(again, "f");
    let args = vec![memory(buffer), crate::common::plain(&5i32.to_ne_bytes())];
    session.enqueue(queue, &[], launch(kernel, args, &[1], &[]));
    assert_eq!(&session.bytes(queue, buffer, 0, 4)[..], 5i32.to_ne_bytes());
}

#[test]
fn a_long_build_delays_no_other_command() {
    let daemon = Daemon::start();
    let mut session = daemon.session();
    let context = session.context();
    let queue = session.queue(context, 0);
    let buffer = session.buffer(context, 4, &[1, 2, 3, 4]);
    let mut text = String::new();
    for i in 0..40 {
        text += &format!(
            "kernel void k{i}(global float *x) {{ for (int i = 0; i < 99; i++) x[i] += sin(x[i + {i}]); }}\n"
        );
    }
    let (program, request) = (session.new_id(), session.new_id());
    session.send(vec![
        Kind::CreateProgram(CreateProgram {
            program,
            context,
            from: Some(source(&text)),
            request: 0,
        }),
        Kind::BuildProgram(BuildProgram {
            request,
            program,
            devices: vec![],
            options: Bytes::new(),
            null_options: false,
            source: Bytes::new(),
            constants: Vec::new(),
        }),
    ]);
    assert_eq!(&session.bytes(queue, buffer, 0, 4)[..], [1, 2, 3, 4]);
    assert!(
        !session.heard.answers.contains_key(&request),
        "the build was no long one"
    );
    let told = body(session.answer(request));
    assert_eq!(told.kernels.len(), 40);
}

#[test]
fn questions_about_kernels_and_timers_are_answered() {
    const KERNEL_LOCAL_MEM_SIZE: u32 = 0x11B2;
    let daemon = Daemon::start();
    let mut session = daemon.session();
    let context = session.context();
    let (program, _) = session.build(context, "kernel void f(local int *x) { *x = 1; }", "");
    let kernel = session.kernel(program, "f");
    let ask = |session: &mut Session, question| {
        let request = session.new_id();
        session.send(vec![Kind::Query(Query {
            request,
            question: Some(question),
        })]);
        session.answer(request)
    };
    let question = query::Question::KernelWorkGroup(KernelWorkGroup {
        kernel,
        device: 0,
        name: KERNEL_LOCAL_MEM_SIZE,
        args: vec![KernelArg {
            index: 0,
            value: Some(kernel_arg::Value::LocalSize(4096)),
        }],
    });
    match ask(&mut session, question).body {
        Some(Body::Value(value)) => {
            assert!(u64::from_ne_bytes(value[..].try_into().unwrap()) >= 4096);
        }
        other => panic!("{other:?}"),
    }
    let timer = query::Question::DeviceTimer(DeviceTimer {
        platform: 0,
        device: 0,
    });
    for question in [timer, query::Question::Ping(Ping {})] {
        match ask(&mut session, question).body {
            Some(Body::Timer(timer)) => assert_ne!(timer.host_ns, 0),
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn a_build_cannot_ask_which_files_the_node_has() {
    let daemon = Daemon::start();
    let mut session = daemon.session();
    let context = session.context();
    let asking = |rest: &str| {
        format!(
            "#ifdef __has_include\n#error there is such an operator\n#endif\n\
             #define PASTE(a, b) a##b\nkernel void PASTE(f, g)(global int *x) {{ }}\n{rest}"
        )
    };
    let (program, answer) = session.build(context, &asking(""), "");
    assert_eq!(answer.status, 0, "{answer:?}");
    session.kernel(program, "fg");
    // The answer does not depend on the existence of the file.
    let pasted = |file: &str| asking(&format!("#if PASTE(__has_inc, lude)(\"{file}\")\n#endif\n"));
    for file in ["/etc/passwd", "/no/such/file"] {
        let (_, answer) = session.build(context, &pasted(file), "");
        assert_ne!(answer.status, 0, "{answer:?}");
    }
}
