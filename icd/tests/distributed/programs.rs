//! Tests of programs in contexts of several nodes. They are built everywhere at the same time, and each device has
//! its own status, log, options and binary. Further cases are failed and lost nodes.

use std::ffi::CStr;
use std::ptr::{null, null_mut};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Duration;

use crate::frames::nodes::*;
use crate::frames::opencl::*;
use crate::frames::programs;
use crate::frames::programs::kernel;
use crate::stage::*;

const PATIENCE: Duration = Duration::from_secs(60);

#[test]
fn all_nodes_build_at_the_same_time() {
    own_process!();
    let stage = stage();
    let over = over(&[stage.alpha, stage.betas[0], stage.gamma], PLAIN);
    let folder = meeting(&stage.nodes[0], "together");
    let rules = builds_meet(&folder, 3);
    let _rules = [0, 1, 2].map(|node| stage.nodes[node].with_rules(&rules));
    // Each node's build ends only when the others have begun.
    assert_eq!(build_for(over.program, &[], " -DA=1"), CL_SUCCESS);
    for device in [stage.alpha, stage.betas[0], stage.gamma] {
        assert_eq!(status(over.program, device), CL_BUILD_SUCCESS);
        assert_eq!(
            text(over.program, device, CL_PROGRAM_BUILD_OPTIONS),
            " -DA=1"
        );
    }
}

unsafe extern "C" fn report(program: cl_program, user_data: *mut c_void) {
    // SAFETY: lives as long as the test that gave it.
    let told = unsafe { &*user_data.cast::<Sender<usize>>() };
    let _ = told.send(program.addr());
}

#[test]
fn one_notification_comes_when_the_last_node_is_done() {
    own_process!();
    let stage = stage();
    let over = over(&[stage.alpha, stage.betas[0]], PLAIN);
    let folder = meeting(&stage.nodes[1], "slow");
    let held = stage.nodes[1].with_rules(&builds_meet(&folder, 2));
    let (sender, told): (_, Receiver<usize>) = channel();
    ok!(clBuildProgram(
        over.program,
        0,
        null(),
        null(),
        Some(report),
        (&raw const sender).cast_mut().cast()
    ));
    await_meeting(&folder, 1);
    // Beta has not begun to compile.
    assert_eq!(status(over.program, stage.alpha), CL_BUILD_IN_PROGRESS);
    assert_eq!(status(over.program, stage.betas[0]), CL_BUILD_IN_PROGRESS);
    assert_eq!(build_for(over.program, &[], ""), CL_INVALID_OPERATION);
    assert!(told.try_recv().is_err());
    std::fs::write(folder.join("the test"), "").unwrap();
    assert_eq!(told.recv_timeout(PATIENCE), Ok(over.program.addr()));
    assert_eq!(status(over.program, stage.alpha), CL_BUILD_SUCCESS);
    assert_eq!(status(over.program, stage.betas[0]), CL_BUILD_SUCCESS);
    // No callback comes twice: the next one belongs to the next build.
    drop(held);
    assert_eq!(build_for(over.program, &[], ""), CL_SUCCESS);
    assert!(told.try_recv().is_err());
}

#[test]
fn a_build_that_fails_on_one_node_leaves_the_others_usable() {
    own_process!();
    let stage = stage();
    let source =
        format!("{PLAIN}\n#ifdef __OPENCL_VERSION__\nconstant int broken = missing;\n#endif\n");
    let over = over(&[stage.pocl, stage.alpha], &source);
    assert_eq!(build_for(over.program, &[], ""), CL_BUILD_PROGRAM_FAILURE);
    assert_eq!(status(over.program, stage.pocl), CL_BUILD_ERROR);
    let said = log(over.program, stage.pocl);
    assert!(said.contains("missing"), "{said}");
    assert_eq!(status(over.program, stage.alpha), CL_BUILD_SUCCESS);
    assert!(!log(over.program, stage.alpha).contains("missing"));
    assert_eq!(kernel_names(over.program), "k");
    let kernel = kernel(over.program, "k");
    assert!(local_mem_size(kernel, stage.alpha).is_ok());
    assert_eq!(local_mem_size(kernel, stage.pocl), Err(CL_INVALID_DEVICE));
    ok!(clReleaseKernel(kernel));
    // A build for the remaining devices succeeds.
    let fixed = "-Dmissing=1";
    assert_eq!(build_for(over.program, &[stage.pocl], fixed), CL_SUCCESS);
    assert_eq!(status(over.program, stage.alpha), CL_BUILD_SUCCESS);
    assert_eq!(
        text(over.program, stage.alpha, CL_PROGRAM_BUILD_OPTIONS),
        ""
    );
    let kernel = programs::kernel(over.program, "k");
    assert!(local_mem_size(kernel, stage.pocl).is_ok());
    assert!(local_mem_size(kernel, stage.alpha).is_ok());
    ok!(clReleaseKernel(kernel));
}

#[test]
fn what_one_node_refuses_is_told_in_its_devices_log() {
    own_process!();
    let stage = stage();
    let over = over(&[stage.alpha, stage.betas[0]], PLAIN);
    let refuse = "[[call]]\nname = \"clBuildProgram\"\nfail = -43";
    let one = stage.nodes[0].with_rules(refuse);
    assert_eq!(build_for(over.program, &[], ""), CL_BUILD_PROGRAM_FAILURE);
    assert_eq!(status(over.program, stage.alpha), CL_BUILD_ERROR);
    let said = log(over.program, stage.alpha);
    assert!(said.contains("CL_INVALID_BUILD_OPTIONS"), "{said}");
    assert_eq!(status(over.program, stage.betas[0]), CL_BUILD_SUCCESS);
    // If all nodes refuse, their code is the call's own.
    let _both = (one, stage.nodes[1].with_rules(refuse));
    assert_eq!(build_for(over.program, &[], ""), CL_INVALID_BUILD_OPTIONS);
}

fn binaries_of(program: cl_program, count: usize) -> Vec<Vec<u8>> {
    let mut sizes = vec![0usize; count];
    let (room, to) = (8 * count, sizes.as_mut_ptr().cast());
    let name = CL_PROGRAM_BINARY_SIZES;
    ok!(clGetProgramInfo(program, name, room, to, null_mut()));
    let mut binaries: Vec<Vec<u8>> = sizes.iter().map(|&size| vec![0; size]).collect();
    let mut places: Vec<*mut u8> = binaries.iter_mut().map(|of| of.as_mut_ptr()).collect();
    let name = CL_PROGRAM_BINARIES;
    let to = places.as_mut_ptr().cast();
    ok!(clGetProgramInfo(program, name, room, to, null_mut()));
    binaries
}

fn from_binaries(
    context: cl_context,
    devices: &[cl_device_id],
    binaries: &[&[u8]],
) -> (Result<cl_program, cl_int>, Vec<cl_int>) {
    let lengths: Vec<usize> = binaries.iter().map(|of| of.len()).collect();
    let mut texts: Vec<*const u8> = binaries.iter().map(|of| of.as_ptr()).collect();
    let mut verdicts = vec![77; devices.len()];
    let made = make!(clCreateProgramWithBinary(
        context,
        devices.len() as cl_uint,
        devices.as_ptr(),
        lengths.as_ptr(),
        texts.as_mut_ptr(),
        verdicts.as_mut_ptr()
    ));
    (made, verdicts)
}

#[test]
fn each_device_gives_and_gets_its_own_binary() {
    own_process!();
    let stage = stage();
    let devices = [stage.pocl, stage.alpha, stage.betas[1], stage.other];
    let over = over(&devices, PLAIN);
    // Before a build, no device has a binary.
    assert!(binaries_of(over.program, 4).iter().all(Vec::is_empty));
    assert_eq!(build_for(over.program, &devices[..3], ""), CL_SUCCESS);
    let binaries = binaries_of(over.program, 4);
    let there: Vec<bool> = binaries.iter().map(|of| !of.is_empty()).collect();
    assert_eq!(there, [true, true, true, false]);

    let order = [2, 0, 1];
    let chosen = order.map(|at| devices[at]);
    let given = order.map(|at| &binaries[at][..]);
    let (made, verdicts) = from_binaries(over.context, &chosen, &given);
    assert_eq!(verdicts, [0, 0, 0]);
    let program = made.expect("a program");
    assert_eq!(build_for(program, &[], ""), CL_SUCCESS);
    let kernel = kernel(program, "k");
    ok!(clSetKernelArg(kernel, 1, 32, null()));
    for device in chosen {
        assert!(local_mem_size(kernel, device).unwrap() >= 32);
    }
    ok!(clReleaseKernel(kernel));
    // The same binaries again, in this program's order of devices.
    assert_eq!(binaries_of(program, 3)[1], binaries[0]);
    ok!(clReleaseProgram(program));

    // A binary of another device is detected, whichever it is.
    let mixed = [&binaries[2][..], &binaries[0], &binaries[2]];
    let (made, verdicts) = from_binaries(over.context, &chosen, &mixed);
    assert_eq!(made, Err(CL_INVALID_BINARY));
    assert_eq!(verdicts, [0, 0, CL_INVALID_BINARY]);
}

#[test]
fn programs_are_compiled_and_linked_on_the_nodes_that_have_the_parts() {
    own_process!();
    let stage = stage();
    let devices = [stage.alpha, stage.betas[0]];
    let context = context_over(&devices);
    let header = program_in(
        context,
        "kernel void from_header(global int *x) { x[0] = 1; }\n",
    );
    let main = program_in(context, &format!("#include \"part.h\"\n{PLAIN}"));
    let more = program_in(context, "kernel void more(global int *x) { x[0] = 2; }");
    let compile = |program, list: &[cl_device_id]| {
        let mut name = c"part.h".as_ptr();
        let count = list.len() as cl_uint;
        code!(clCompileProgram(
            program,
            count,
            list.as_ptr(),
            null(),
            1,
            &raw const header,
            &raw mut name,
            None,
            null_mut()
        ))
    };
    let link = |parts: &[cl_program]| {
        make!(clLinkProgram(
            context,
            0,
            null(),
            null(),
            parts.len() as cl_uint,
            parts.as_ptr(),
            None,
            null_mut()
        ))
    };
    assert_eq!(compile(main, &devices), CL_SUCCESS);
    assert_eq!(compile(more, &devices[1..]), CL_SUCCESS);
    // Alpha has one input's binary and lacks the other's.
    assert_eq!(link(&[main, more]), Err(CL_INVALID_OPERATION));
    let only = link(&[more]).expect("a program");
    assert_eq!(status(only, devices[0]), CL_BUILD_NONE);
    assert_eq!(status(only, devices[1]), CL_BUILD_SUCCESS);
    ok!(clReleaseProgram(only));
    assert_eq!(compile(more, &devices[..1]), CL_SUCCESS);
    let linked = link(&[main, more]).expect("a program");
    for device in devices {
        assert_eq!(status(linked, device), CL_BUILD_SUCCESS);
    }
    assert_eq!(kernel_names(linked), "from_header;k;more");
    let kernel = kernel(linked, "k");
    ok!(clSetKernelArg(kernel, 1, 32, null()));
    assert!(local_mem_size(kernel, devices[1]).unwrap() >= 32);
    ok!(clReleaseKernel(kernel));
    for program in [linked, more, main, header] {
        ok!(clReleaseProgram(program));
    }
    ok!(clReleaseContext(context));
}

unsafe extern "C" fn hear(
    text: *const c_char,
    _private: *const c_void,
    _size: size_t,
    user_data: *mut c_void,
) {
    // SAFETY: lives as long as the test that gave it; the text is a C string.
    let (told, text) = unsafe { (&*user_data.cast::<Sender<String>>(), CStr::from_ptr(text)) };
    let _ = told.send(text.to_string_lossy().into_owned());
}

#[test]
fn a_node_that_is_lost_during_a_build_fails_it_for_its_devices_only() {
    own_process!();
    let stage = stage();
    let node = &stage.nodes[2];
    let devices = [stage.gamma, stage.alpha];
    let (sender, told): (_, Receiver<String>) = channel();
    let context = make!(clCreateContext(
        null(),
        2,
        devices.as_ptr(),
        Some(hear),
        (&raw const sender).cast_mut().cast()
    ))
    .expect("a context");
    let program = program_in(context, PLAIN);
    let folder = meeting(node, "never");
    let rules = node.with_rules(&builds_meet(&folder, 99));
    let built = std::thread::scope(|scope| {
        let handle = program.expose_provenance();
        let builder =
            scope.spawn(move || build_for(std::ptr::with_exposed_provenance_mut(handle), &[], ""));
        await_meeting(&folder, 1);
        node.kill_workers();
        builder.join().unwrap()
    });
    drop(rules);
    assert_eq!(built, CL_BUILD_PROGRAM_FAILURE);
    assert_eq!(status(program, stage.gamma), CL_BUILD_ERROR);
    let said = log(program, stage.gamma);
    assert!(
        said.contains(node.address()) && said.contains("lost"),
        "{said}"
    );
    assert_eq!(status(program, stage.alpha), CL_BUILD_SUCCESS);
    let heard = told.recv_timeout(PATIENCE).expect("the context's callback");
    assert!(heard.contains(node.address()), "{heard}");

    // The remaining devices go on.
    let kernel = kernel(program, "k");
    ok!(clSetKernelArg(kernel, 1, 32, null()));
    assert!(local_mem_size(kernel, stage.alpha).is_ok());
    assert_eq!(local_mem_size(kernel, stage.gamma), Err(CL_INVALID_DEVICE));
    ok!(clReleaseKernel(kernel));
    let binaries = binaries_of(program, 2);
    assert!(binaries[0].is_empty() && !binaries[1].is_empty());
    assert_eq!(build_for(program, &devices[1..], ""), CL_SUCCESS);
    // No other node was asked, so the loss is the call's code.
    let lost = build_for(program, &devices[..1], "");
    assert_eq!(lost, CL_DEVICE_NOT_AVAILABLE);
    assert_eq!(build_for(program, &[], ""), CL_BUILD_PROGRAM_FAILURE);
    let (made, verdicts) = from_binaries(context, &devices, &[b"x", &binaries[1]]);
    assert_eq!(made, Err(CL_DEVICE_NOT_AVAILABLE));
    assert_eq!(verdicts, [CL_DEVICE_NOT_AVAILABLE, CL_SUCCESS]);
    ok!(clReleaseProgram(program));
    ok!(clReleaseContext(context));
}

fn extensions(tell: impl Fn(size_t, *mut c_void) -> cl_int) -> Vec<String> {
    let mut bytes = vec![0u8; 1 << 14];
    assert_eq!(tell(bytes.len(), bytes.as_mut_ptr().cast()), CL_SUCCESS);
    let text = CStr::from_bytes_until_nul(&bytes).expect("a C string");
    let text = text.to_str().expect("UTF-8");
    text.split_whitespace().map(str::to_owned).collect()
}

#[test]
fn the_platform_has_the_extensions_that_all_devices_have() {
    own_process!();
    let stage = stage();
    let mut platform = null_mut();
    ok!(clGetPlatformIDs(1, &raw mut platform, null_mut()));
    let name = CL_PLATFORM_EXTENSIONS;
    let told =
        extensions(|room, to| code!(clGetPlatformInfo(platform, name, room, to, null_mut())));
    let of_devices = devices(7).into_iter().map(|device| {
        let name = CL_DEVICE_EXTENSIONS;
        extensions(|room, to| code!(clGetDeviceInfo(device, name, room, to, null_mut())))
    });
    let of_devices: Vec<_> = of_devices.collect();
    let common = of_devices[0]
        .iter()
        .filter(|one| of_devices.iter().all(|all| all.contains(one)));
    let expected = ["cl_khr_icd", "cl_wwu_server"].into_iter();
    let expected: Vec<&str> = expected.chain(common.map(String::as_str)).collect();
    assert_eq!(told, expected);
    assert!(expected.len() > 2);
    // Gamma has no such extension.
    assert!(of_devices[0].iter().any(|one| one == "cl_khr_fp64"));
    assert!(!told.iter().any(|one| one == "cl_khr_fp64"));
    drop(stage);
}

#[test]
fn the_hint_to_unload_compilers_reaches_the_nodes_in_use_and_harms_nothing() {
    own_process!();
    let stage = stage();
    let over = over(&[stage.alpha, stage.other], PLAIN);
    let unloaded = || [0, 1].map(|node| stage.nodes[node].count("clUnloadPlatformCompiler"));
    let before = unloaded();
    let mut platform = null_mut();
    ok!(clGetPlatformIDs(1, &raw mut platform, null_mut()));
    ok!(clUnloadPlatformCompiler(platform));
    assert_eq!(build_for(over.program, &[], ""), CL_SUCCESS);
    // The unload was sent before the build, and reached both drivers of the second node.
    assert_eq!(unloaded(), [before[0] + 1, before[1] + 2]);
    let unknown = std::ptr::without_provenance_mut(64);
    assert_eq!(
        code!(clUnloadPlatformCompiler(unknown)),
        CL_INVALID_PLATFORM
    );
}

#[test]
fn a_context_from_a_type_does_without_nodes_that_are_gone() {
    own_process!();
    let stage = stage();
    stage.nodes[3].kill();
    let context = make!(clCreateContextFromType(
        null(),
        CL_DEVICE_TYPE_GPU,
        None,
        null_mut()
    ))
    .expect("a context of the others");
    let mut listed: [cl_device_id; 8] = [null_mut(); 8];
    let mut size = 0;
    let to = listed.as_mut_ptr().cast();
    let name = CL_CONTEXT_DEVICES;
    ok!(clGetContextInfo(context, name, 64, to, &raw mut size));
    let [beta, beta2] = stage.betas;
    assert_eq!(
        listed[..size / 8],
        [stage.alpha, beta, beta2, stage.other, stage.gamma]
    );
    ok!(clReleaseContext(context));
    // Calls that name it get an error instead.
    let made = make!(clCreateContext(
        null(),
        2,
        [stage.alpha, stage.delta].as_ptr(),
        None,
        null_mut()
    ));
    assert_eq!(made, Err(CL_DEVICE_NOT_AVAILABLE));
}
