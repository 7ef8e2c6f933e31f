//! Tests of builds: results and their time, refusals, separate compilation, binaries.

use std::ffi::CString;
use std::ptr::{null, null_mut};
use std::sync::mpsc::{Sender, channel};
use std::time::Duration;

use crate::frames::opencl;
use crate::frames::opencl::*;
use crate::frames::programs::*;

const PATIENCE: Duration = Duration::from_secs(60);

// The channel to which a callback reports, and the device that it queries.
type Told = (Sender<(usize, i32)>, usize);

const TWO: &str =
    "kernel void one(global int *x) { *x = 1; }\nkernel void two(global int *x) { *x = 2; }\n";

/// Runs the kernel. Returns the value that it writes.
fn answer_of(cl: &Fixture, program: cl_program, name: &str) -> i32 {
    let buffer = cl.buffer(0, 4);
    let kernel = kernel(program, name);
    assert_eq!(set(kernel, 0, &buffer), CL_SUCCESS);
    assert_eq!(launch(cl.queue, kernel, 1), CL_SUCCESS);
    let answer = ints(cl, buffer, 1)[0];
    ok!(clReleaseKernel(kernel));
    ok!(clReleaseMemObject(buffer));
    answer
}

#[test]
fn a_program_is_nothing_before_its_build_and_knows_its_kernels_after() {
    let cl = Fixture::new();
    let program = program(&cl, TWO);
    assert_eq!(status_of_build(&cl, program), CL_BUILD_NONE);
    assert_eq!(build_text(&cl, program, CL_PROGRAM_BUILD_OPTIONS), "");
    assert_eq!(log_of(&cl, program), "");
    let before = Err(CL_INVALID_PROGRAM_EXECUTABLE);
    assert_eq!(program_number(program, CL_PROGRAM_NUM_KERNELS), before);
    assert_eq!(
        try_kernel(program, "one"),
        before.map(|_: usize| null_mut())
    );
    assert_eq!(program_number(program, CL_PROGRAM_BINARY_SIZES), Ok(0));

    assert_eq!(build(program, "-DA=1  -w "), CL_SUCCESS);
    assert_eq!(status_of_build(&cl, program), CL_BUILD_SUCCESS);
    assert_eq!(
        build_text(&cl, program, CL_PROGRAM_BUILD_OPTIONS),
        "-DA=1  -w "
    );
    let kind = build_number(&cl, program, CL_PROGRAM_BINARY_TYPE);
    assert_eq!(kind as u32, CL_PROGRAM_BINARY_TYPE_EXECUTABLE);
    assert_eq!(program_number(program, CL_PROGRAM_NUM_KERNELS), Ok(2));
    assert_eq!(try_kernel(program, "three"), Err(CL_INVALID_KERNEL_NAME));
    assert_eq!(
        (
            answer_of(&cl, program, "one"),
            answer_of(&cl, program, "two")
        ),
        (1, 2)
    );
    ok!(clReleaseProgram(program));
}

#[test]
fn no_build_starts_while_there_are_kernels() {
    let cl = Fixture::new();
    let program = built(&cl, TWO, "");
    let kernel = kernel(program, "one");
    assert_eq!(build(program, "-DB"), CL_INVALID_OPERATION);
    assert_eq!(status_of_build(&cl, program), CL_BUILD_SUCCESS);
    ok!(clReleaseKernel(kernel));
    assert_eq!(build(program, "-DB"), CL_SUCCESS);
    ok!(clReleaseProgram(program));
}

#[test]
fn a_failed_build_leaves_a_log_and_no_kernels_and_may_be_repeated() {
    let cl = Fixture::new();
    let program = program(&cl, "kernel void k(global int *x) { *x = VALUE; }\n");
    assert_eq!(build(program, ""), CL_BUILD_PROGRAM_FAILURE);
    assert_eq!(status_of_build(&cl, program), CL_BUILD_ERROR);
    assert!(
        log_of(&cl, program).contains("VALUE"),
        "{}",
        log_of(&cl, program)
    );
    assert_eq!(try_kernel(program, "k"), Err(CL_INVALID_PROGRAM_EXECUTABLE));
    assert_eq!(build(program, "-DVALUE=7"), CL_SUCCESS);
    assert_eq!(answer_of(&cl, program, "k"), 7);
    assert_eq!(build(program, "-no-such-option"), CL_INVALID_BUILD_OPTIONS);
    ok!(clReleaseProgram(program));
}

unsafe extern "C" fn built_now(program: cl_program, user_data: *mut c_void) {
    // SAFETY: made by `by_callback`, for one call.
    let told = unsafe { *Box::from_raw(user_data.cast::<Told>()) };
    let device = std::ptr::with_exposed_provenance_mut(told.1);
    let mut status = 77;
    let to = (&raw mut status).cast();
    let name = CL_PROGRAM_BUILD_STATUS;
    // All answers are final before the callback runs.
    ok!(clGetProgramBuildInfo(
        program,
        device,
        name,
        4,
        to,
        null_mut()
    ));
    let _ = told.0.send((program.addr(), status));
}

#[test]
fn a_callback_comes_when_status_and_log_are_final() {
    let cl = Fixture::new();
    let (sender, told) = channel();
    for (source, expected) in [(TWO, CL_BUILD_SUCCESS), ("no program", CL_BUILD_ERROR)] {
        let program = program(&cl, source);
        let data: *mut Told =
            Box::into_raw(Box::new((sender.clone(), cl.device.expose_provenance())));
        ok!(clBuildProgram(
            program,
            0,
            null(),
            null(),
            Some(built_now),
            data.cast()
        ));
        // A second build is refused while the first runs. If the first has ended already, the second starts.
        let again = build(program, "");
        assert!([CL_INVALID_OPERATION, CL_SUCCESS, CL_BUILD_PROGRAM_FAILURE].contains(&again));
        let answer = told.recv_timeout(PATIENCE).expect("the callback");
        assert_eq!(answer, (program.addr(), expected));
        ok!(clReleaseProgram(program));
    }
}

#[test]
fn a_program_may_be_released_while_it_is_built() {
    let cl = Fixture::new();
    let (sender, told) = channel();
    let program = program(&cl, "kernel void released(global int *x) { *x = 1; }");
    let data: *mut Told = Box::into_raw(Box::new((sender, cl.device.expose_provenance())));
    ok!(clBuildProgram(
        program,
        0,
        null(),
        null(),
        Some(built_now),
        data.cast()
    ));
    ok!(clReleaseProgram(program));
    assert_eq!(
        told.recv_timeout(PATIENCE).expect("the callback").1,
        CL_BUILD_SUCCESS
    );
}

#[test]
fn wrong_arguments_of_a_build() {
    let cl = Fixture::new();
    let program = program(&cl, TWO);
    let with =
        |count, devices, data| code!(clBuildProgram(program, count, devices, null(), None, data));
    let mut nothing = 0u8;
    assert_eq!(with(0, &raw const cl.device, null_mut()), CL_INVALID_VALUE);
    assert_eq!(with(1, null(), null_mut()), CL_INVALID_VALUE);
    let no_device = null_mut();
    assert_eq!(with(1, &raw const no_device, null_mut()), CL_INVALID_DEVICE);
    assert_eq!(with(0, null(), (&raw mut nothing).cast()), CL_INVALID_VALUE);
    assert_eq!(status_of_build(&cl, program), CL_BUILD_NONE);
    ok!(clReleaseProgram(program));
}

fn compile(program: cl_program, options: &str, headers: &[(&str, cl_program)]) -> cl_int {
    let options = CString::new(options).unwrap();
    let names: Vec<CString> = headers
        .iter()
        .map(|(name, _)| CString::new(*name).unwrap())
        .collect();
    let mut names: Vec<_> = names.iter().map(|name| name.as_ptr()).collect();
    let programs: Vec<cl_program> = headers.iter().map(|(_, program)| *program).collect();
    let (programs, names) = if headers.is_empty() {
        (null(), null_mut())
    } else {
        (programs.as_ptr(), names.as_mut_ptr())
    };
    code!(clCompileProgram(
        program,
        0,
        null(),
        options.as_ptr(),
        headers.len() as cl_uint,
        programs,
        names,
        None,
        null_mut()
    ))
}

fn link(cl: &Fixture, options: &str, inputs: &[cl_program]) -> (cl_program, cl_int) {
    let options = CString::new(options).unwrap();
    let mut code = 77;
    // SAFETY: all lists are as long as said.
    let program = unsafe {
        (opencl::cl().clLinkProgram)(
            cl.context,
            0,
            null(),
            options.as_ptr(),
            inputs.len() as cl_uint,
            inputs.as_ptr(),
            None,
            null_mut(),
            &raw mut code,
        )
    };
    (program, code)
}

#[test]
fn parts_are_compiled_with_given_headers_and_linked() {
    let cl = Fixture::new();
    let header = program(&cl, "#define ANSWER 42\nint part(void);\n");
    let whole = program(
        &cl,
        "#include \"a.h\"\nkernel void k(global int *x) { *x = part(); }\n",
    );
    let part = program(&cl, "#include <a.h>\nint part(void) { return ANSWER; }\n");
    assert_eq!(
        link(&cl, "", &[whole, part]),
        (null_mut(), CL_INVALID_OPERATION)
    );
    assert_eq!(compile(part, "", &[]), CL_COMPILE_PROGRAM_FAILURE);
    for program in [whole, part] {
        assert_eq!(
            compile(program, "", &[("a.h", header)]),
            CL_SUCCESS,
            "{}",
            log_of(&cl, program)
        );
        let kind = build_number(&cl, program, CL_PROGRAM_BINARY_TYPE);
        assert_eq!(kind as u32, CL_PROGRAM_BINARY_TYPE_COMPILED_OBJECT);
    }
    assert_eq!(try_kernel(whole, "k"), Err(CL_INVALID_PROGRAM_EXECUTABLE));
    let (linked, code) = link(&cl, "", &[whole, part]);
    assert_eq!(code, CL_SUCCESS);
    assert_eq!(answer_of(&cl, linked, "k"), 42);
    assert_eq!(build(linked, ""), CL_INVALID_OPERATION);
    assert_eq!(
        link(&cl, "-no-such", &[whole, part]).1,
        CL_INVALID_LINKER_OPTIONS
    );
    for program in [header, whole, part, linked] {
        ok!(clReleaseProgram(program));
    }
}

/// Returns a program's binary, in its container.
fn binary_of(program: cl_program) -> Vec<u8> {
    let size = program_number(program, CL_PROGRAM_BINARY_SIZES).unwrap();
    let mut binary = vec![0u8; size];
    let mut pointers = [binary.as_mut_ptr()];
    let to = pointers.as_mut_ptr().cast();
    ok!(clGetProgramInfo(
        program,
        CL_PROGRAM_BINARIES,
        8,
        to,
        null_mut()
    ));
    // A NULL entry is skipped.
    let mut none = [null_mut::<u8>()];
    let to = none.as_mut_ptr().cast();
    ok!(clGetProgramInfo(
        program,
        CL_PROGRAM_BINARIES,
        8,
        to,
        null_mut()
    ));
    binary
}

fn from_binary(cl: &Fixture, binary: &[u8]) -> (Result<cl_program, cl_int>, cl_int) {
    let (mut bytes, length, mut verdict) = (binary.as_ptr(), binary.len(), 77);
    let made = make!(clCreateProgramWithBinary(
        cl.context,
        1,
        &raw const cl.device,
        &raw const length,
        &raw mut bytes,
        &raw mut verdict
    ));
    (made, verdict)
}

#[test]
fn a_binary_makes_the_program_again_and_a_foreign_one_is_refused() {
    let cl = Fixture::new();
    let program = built(&cl, TWO, "");
    let binary = binary_of(program);
    ok!(clReleaseProgram(program));
    let (again, verdict) = from_binary(&cl, &binary);
    let again = again.expect("a program");
    assert_eq!(verdict, CL_SUCCESS);
    // A program from binaries must be built too.
    assert_eq!(status_of_build(&cl, again), CL_BUILD_NONE);
    assert_eq!(try_kernel(again, "two"), Err(CL_INVALID_PROGRAM_EXECUTABLE));
    assert_eq!(compile(again, "", &[]), CL_INVALID_OPERATION);
    ok!(clBuildProgram(again, 0, null(), null(), None, null_mut()));
    assert_eq!(answer_of(&cl, again, "two"), 2);
    ok!(clReleaseProgram(again));

    let mut foreign = binary.clone();
    // This byte belongs to the identity, behind the head.
    foreign[24] ^= 1;
    let refused = (Err(CL_INVALID_BINARY), CL_INVALID_BINARY);
    assert_eq!(from_binary(&cl, &foreign), refused);
    assert_eq!(from_binary(&cl, &binary[..40]), refused);
    assert_eq!(from_binary(&cl, b"neither ours nor anybody's"), refused);
    assert_eq!(
        from_binary(&cl, b""),
        (Err(CL_INVALID_VALUE), CL_INVALID_VALUE)
    );
}

#[test]
fn headers_of_this_machine_are_found_and_read_anew() {
    let cl = Fixture::new();
    let folder = tempfile::tempdir().unwrap();
    let options = format!("-I {}", folder.path().display());
    let source = "#include <value.h>\nkernel void k(global int *x) { *x = VALUE; }\n";
    let program = program(&cl, source);
    assert_eq!(build(program, &options), CL_BUILD_PROGRAM_FAILURE);
    for value in [5, 6] {
        let text = format!("#define VALUE {value}\n");
        std::fs::write(folder.path().join("value.h"), text).unwrap();
        assert_eq!(
            build(program, &options),
            CL_SUCCESS,
            "{}",
            log_of(&cl, program)
        );
        assert_eq!(answer_of(&cl, program, "k"), value);
    }
    ok!(clReleaseProgram(program));
}

#[test]
fn headers_given_with_a_compilation_may_include_those_of_this_machine() {
    let cl = Fixture::new();
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("value.h"), "#define VALUE 9\n").unwrap();
    let options = format!("-I {}", folder.path().display());
    let header = program(&cl, "#include <value.h>\n#define GIVEN (VALUE + 1)\n");
    let source = "#include \"given.h\"\nkernel void k(global int *x) { *x = GIVEN; }\n";
    let program = program(&cl, source);
    let code = compile(program, &options, &[("given.h", header)]);
    assert_eq!(code, CL_SUCCESS, "{}", log_of(&cl, program));
    let (linked, code) = link(&cl, "", &[program]);
    assert_eq!((code, answer_of(&cl, linked, "k")), (CL_SUCCESS, 10));
    for program in [header, program, linked] {
        ok!(clReleaseProgram(program));
    }
}

#[test]
fn asking_for_binaries_does_not_keep_others_from_making_kernels() {
    let cl = Fixture::new();
    let program = built(&cl, TWO, "");
    let address = program.expose_provenance();
    std::thread::scope(|scope| {
        scope.spawn(move || {
            for _ in 0..8 {
                binary_of(std::ptr::with_exposed_provenance_mut(address));
            }
        });
        for _ in 0..30 {
            assert_eq!(answer_of(&cl, program, "two"), 2);
        }
    });
    ok!(clReleaseProgram(program));
}

// A driver may keep the last launch's kernel a little longer than clFinish waits.
#[test]
fn a_program_is_built_again_and_again_behind_its_last_launch() {
    let cl = Fixture::new();
    let program = program(&cl, TWO);
    for round in 0..400 {
        let options = format!("-DROUND={}", round % 2);
        assert_eq!(build(program, &options), CL_SUCCESS, "round {round}");
        assert_eq!(answer_of(&cl, program, "two"), 2);
    }
}
