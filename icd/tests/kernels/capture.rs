//! Tests captured launches, on the stubs themselves: each site gets the arguments that it does not know, in whatever
//! order launches are sent. Also tests how a kernel uses its buffers.

use std::sync::Arc;

use bytes::Bytes;
use causeway::coherence::ArgumentKind;
use causeway::stub::kernel::Snapshot;
use causeway::stub::{
    ArgValue, Buffer, BufferSpec, BuildRequest, Context, Device, Kernel, Platform, Program, Range,
    Site, Verb,
};
use causeway_proto::command::{NdRange, kernel_arg};
use prost::Message;

use crate::frames::nodes::*;
use crate::frames::opencl::*;

const SOURCE: &str = "\
kernel void k(global int *rw, global const int *r, constant int *c, int a, local int *l) {
    rw[0] = r[0] + c[0] + a;
}
";

/// Makes a context over two nodes, one of them with PoCL.
fn context() -> Arc<Context> {
    start(&[
        Drivers::Fake("[[device]]\nname = \"Alpha\""),
        Drivers::System,
    ]);
    devices(2);
    let platform = Platform::get().expect("nodes are configured");
    Context::new(platform.devices(), Vec::new(), None).expect("a context")
}

fn kernel_in(context: &Arc<Context>, devices: &[Arc<Device>]) -> Arc<Kernel> {
    let source = Bytes::from_static(SOURCE.as_bytes());
    let program = Program::from_source(context, source).expect("a program");
    let request = BuildRequest {
        verb: Verb::Build { null_options: true },
        devices: devices.to_vec(),
        options: bytes::Bytes::new(),
    };
    program.build(request, None).expect("a build");
    Kernel::new(&program, "k").expect("a kernel")
}

fn buffer_in(context: &Arc<Context>, flags: u64) -> Arc<Buffer> {
    let spec = BufferSpec {
        context: context.clone(),
        flags,
        properties: Vec::new(),
        size: 64,
        host_address: None,
        image: None,
    };
    Buffer::new(spec, None).expect("a buffer")
}

fn memory(buffer: &Arc<Buffer>) -> ArgValue {
    ArgValue::Memory(Some(Arc::downgrade(buffer)))
}

fn number(value: i32) -> ArgValue {
    ArgValue::Plain(value.to_ne_bytes()[..].into())
}

fn captured(kernel: &Arc<Kernel>, device: &Device) -> Snapshot {
    let range = Range {
        dimensions: 1,
        global: [1; 3],
        offset: None,
        local: None,
    };
    let launch = kernel.launch(device, false).expect("a launch");
    launch.capture(&range).expect("no pipe is elsewhere")
}

/// Returns the message that the site would get. `sends` says whether it is sent.
fn news(launch: &Snapshot, site: &Site, sends: bool) -> NdRange {
    let (operation, commit) = launch.encode(site).expect("a command");
    if sends {
        commit.sent();
    }
    NdRange::decode(operation.body()).expect("a launch")
}

fn indices(launch: &NdRange) -> Vec<u32> {
    launch.args.iter().map(|arg| arg.index).collect()
}

#[test]
fn each_site_is_told_what_it_does_not_know() {
    own_process!();
    let context = context();
    let [one, two] = context.sites() else {
        panic!("two nodes, two sites");
    };
    let kernel = kernel_in(&context, context.devices());
    let (first, second) = (buffer_in(&context, 0), buffer_in(&context, 0));
    for index in 0..3 {
        kernel.set_arg(index, memory(&first));
    }
    kernel.set_arg(3, number(7));
    kernel.set_arg(4, ArgValue::Local(64));
    let device = &context.devices()[0];
    let early = captured(&kernel, device);
    // The launch was given up, so the site knows nothing.
    assert_eq!(indices(&news(&early, one, false)), [0, 1, 2, 3, 4]);
    assert_eq!(indices(&news(&early, one, true)), [0, 1, 2, 3, 4]);
    assert_eq!(indices(&news(&early, one, true)), [0u32; 0]);

    kernel.set_arg(3, number(8));
    kernel.set_arg(1, memory(&second));
    let late = captured(&kernel, device);
    assert_eq!(indices(&news(&late, one, true)), [1, 3]);
    // The earlier launch is sent only now, and then the later one again.
    let back = news(&early, one, true);
    assert_eq!(indices(&back), [1, 3]);
    let seven = kernel_arg::Value::Plain(7i32.to_ne_bytes().to_vec().into());
    assert_eq!(back.args[1].value, Some(seven));
    assert_eq!(indices(&news(&late, one, true)), [1, 3]);

    // The other site knows nothing, and has other ids for everything.
    let (here, there) = (news(&early, one, true), news(&early, two, true));
    assert_eq!(indices(&there), [0, 1, 2, 3, 4]);
    assert_ne!(here.kernel, there.kernel);
    let name = |site| kernel_arg::Value::Memory(first.id_on(site).unwrap().0);
    assert_eq!(there.args[0].value, Some(name(two)));
    assert_ne!(name(one), name(two));

    // A clone is another kernel, of which no site knows anything.
    let clone = kernel.duplicate().expect("a clone");
    let cloned = news(&captured(&clone, device), one, true);
    assert_eq!(indices(&cloned), [0, 1, 2, 3, 4]);
}

#[test]
fn a_captured_launch_keeps_its_buffers_and_the_arguments_none() {
    own_process!();
    let context = context();
    let kernel = kernel_in(&context, context.devices());
    let buffer = buffer_in(&context, 0);
    for index in 0..3 {
        kernel.set_arg(index, memory(&buffer));
    }
    kernel.set_arg(3, number(7));
    kernel.set_arg(4, ArgValue::Local(64));
    let device = &context.devices()[1];
    let launch = captured(&kernel, device);
    let watch = Arc::downgrade(&buffer);
    drop(buffer);
    assert!(watch.upgrade().is_some());
    assert_eq!(news(&launch, &context.sites()[1], true).args.len(), 5);
    drop(launch);
    assert!(watch.upgrade().is_none());
    let gone = kernel.launch(device, false).err().map(|status| status.0);
    assert_eq!(gone, Some(CL_INVALID_MEM_OBJECT));
}

#[test]
fn how_a_kernel_uses_its_buffers_is_known_from_declaration_and_flags() {
    own_process!();
    let context = context();
    for devices in [
        context.devices(),
        &context.devices()[..1],
        &context.devices()[1..],
    ] {
        let kernel = kernel_in(&context, devices);
        let (plain, read_only) = (
            buffer_in(&context, 0),
            buffer_in(&context, CL_MEM_READ_ONLY),
        );
        kernel.set_arg(0, memory(&plain));
        kernel.set_arg(1, memory(&read_only));
        kernel.set_arg(2, memory(&plain));
        kernel.set_arg(3, number(7));
        kernel.set_arg(4, ArgValue::Local(64));
        let launch = captured(&kernel, &devices[0]);
        let uses: Vec<_> = launch.buffers().collect();
        assert_eq!(uses.len(), 3);
        assert!(Arc::ptr_eq(uses[0].0, &plain) && Arc::ptr_eq(uses[1].0, &read_only));
        assert_eq!(uses[0].1, ArgumentKind::default());
        assert!(uses[1].1.pointer_to_const && uses[1].1.read_only && !uses[1].1.constant);
        assert!(uses[2].1.constant && !uses[2].1.read_only);
    }
}
