//! Tests one launch, end to end over the real protocol: objects, build, arguments, profiling, bytes back.

use causeway_proto::command::{ArgKind, ObjectKind};

use crate::common::{Daemon, launch, memory, plain};

const SCALE: &str = "kernel void scale(global float *x, float by, local float *l, int3 v)
{ size_t i = get_global_id(0); x[i] *= by; }";

#[test]
fn a_launch_computes_and_tells_its_times() {
    let daemon = Daemon::start();
    let mut session = daemon.session();
    let context = session.context();
    let queue = session.queue(context, 2);
    let input: Vec<u8> = (0..64u32).flat_map(|i| (i as f32).to_ne_bytes()).collect();
    let buffer = session.buffer(context, 256, &input);
    let (program, answer) = session.build(context, SCALE, "");
    assert_eq!(answer.status, 0, "{answer:?}");
    let kernel = session.kernel(program, "scale");
    let arguments = vec![
        memory(buffer),
        plain(&3f32.to_ne_bytes()),
        causeway_proto::command::kernel_arg::Value::LocalSize(64),
        plain(&[0; 16]),
    ];
    let event = session.enqueue(queue, &[], launch(kernel, arguments, &[64], &[]));
    // The next launch sends only the changed arguments: none.
    let again = session.enqueue(queue, &[event], launch(kernel, vec![], &[64], &[8]));
    session.release(ObjectKind::Kernel, kernel);
    session.release(ObjectKind::Program, program);
    let done = session.wait(again);
    assert_eq!(done.status, 0, "{}", done.message);
    assert!(done.queued <= done.submitted && done.started <= done.ended && done.ended > 0);
    let output = session.bytes(queue, buffer, 0, 256);
    let output: Vec<f32> = output
        .chunks_exact(4)
        .map(|c| f32::from_ne_bytes(c.try_into().unwrap()))
        .collect();
    assert!(
        output.iter().enumerate().all(|(i, x)| *x == 9.0 * i as f32),
        "{output:?}"
    );
}

#[test]
fn a_build_tells_the_kernels_signatures() {
    let daemon = Daemon::start();
    let mut session = daemon.session();
    let context = session.context();
    let source = "typedef struct { int a; char b[17]; } odd;
        kernel __attribute__((reqd_work_group_size(4, 2, 1)))
        void f(global const int *p, odd s, local float *l, double d, uchar3 v, constant int *c) {}
        kernel void g(int x) {}";
    let (_, answer) = session.build(context, source, "");
    let Some(causeway_proto::command::answer::Body::Program(body)) = answer.body else {
        panic!("{answer:?}");
    };
    assert!(!body.devices[0].log.contains("kernel-arg-info"));
    let names: Vec<_> = body.kernels.iter().map(|k| k.name.as_str()).collect();
    assert!(names.contains(&"f") && names.contains(&"g"), "{names:?}");
    let f = body.kernels.iter().find(|k| k.name == "f").unwrap();
    let kinds: Vec<_> = f.args.iter().map(|a| (a.kind(), a.size)).collect();
    // PoCL does not check the size of a structure, which it does not know. NVIDIA does.
    let structure = kinds[1].1;
    assert!([0, 24].contains(&structure));
    assert_eq!(
        kinds,
        [
            (ArgKind::Memory, 0),
            (ArgKind::Value, structure),
            (ArgKind::Local, 0),
            (ArgKind::Value, 8),
            (ArgKind::Value, 4),
            (ArgKind::Memory, 0),
        ],
        "{f:?}"
    );
    assert!(f.args.iter().all(|a| a.has_info));
    assert_eq!(
        (f.args[0].name.as_str(), f.args[0].type_name.as_str()),
        ("p", "int*")
    );
    assert_eq!(f.devices[0].compile_work_group_size, [4, 2, 1]);
    assert!(f.devices[0].work_group_size > 0);
}
