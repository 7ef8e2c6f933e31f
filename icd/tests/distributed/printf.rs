//! Tests the text that kernels print in a context of several nodes. All text comes once, in each queue's order. A
//! wait returns after the text of everything that it covers, on any node.

use std::ffi::CStr;
use std::io::{Read, Seek, SeekFrom};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::ptr::{null, null_mut};

use crate::frames::nodes::Drivers;
use crate::frames::opencl::*;
use crate::frames::several::*;

/// Bytes that a launch of `much` prints: more than a pipe holds.
const LONG: usize = 100_000;

/// The fake driver prints the text of its settings. A worker expects text where a source contains `printf`.
const SOURCE: &CStr = c"
kernel void much(global uint *x) { printf(\"...\"); }
kernel void middle(global uint *x) { printf(\"...\"); }
kernel void last(global uint *x) { printf(\"...\"); }
";

/// Each node prints other letters. The settings' text must live as long as the program.
fn drivers([long, middle, last]: [char; 3]) -> Drivers {
    let long = long.to_string().repeat(LONG);
    let settings = format!(
        "kernel.much.print = \"{long}\"\nkernel.middle.print = \"{middle}\"\n\
         kernel.last.print = \"{last}\"\n[[device]]\nname = \"{last}\""
    );
    Drivers::Fake(Box::leak(settings.into_boxed_str()))
}

/// A context of two nodes, and a program that prints on both.
fn two() -> (Several, cl_program) {
    let nodes = [drivers(['a', 'b', 'c']), drivers(['x', 'y', 'z'])];
    let cl = several_on(&nodes, 2, 0);
    let source = SOURCE.as_ptr();
    let program = make!(clCreateProgramWithSource(
        cl.context,
        1,
        (&raw const source).cast_mut(),
        null()
    ));
    let program = program.expect("a program");
    let options = c"".as_ptr();
    ok!(clBuildProgram(
        program,
        0,
        null(),
        options,
        None,
        null_mut()
    ));
    (cl, program)
}

/// Redirects standard output to a file until dropped.
struct Captured {
    file: std::fs::File,
    before: OwnedFd,
}

fn redirect(to: BorrowedFd<'_>) {
    // SAFETY: both descriptors are open; what was standard output is kept by whoever redirects it.
    let made = unsafe { libc::dup2(to.as_raw_fd(), 1) };
    assert_eq!(made, 1);
}

impl Captured {
    fn begin() -> Captured {
        let file = tempfile::tempfile().expect("a file");
        let before = std::io::stdout().as_fd().try_clone_to_owned();
        let before = before.expect("another descriptor");
        redirect(file.as_fd());
        Captured { file, before }
    }

    /// Returns all text printed so far.
    fn text(&mut self) -> String {
        let mut text = String::new();
        // The descriptors share one file position.
        self.file.seek(SeekFrom::Start(0)).expect("rewound");
        self.file.read_to_string(&mut text).expect("text");
        text
    }
}

impl Drop for Captured {
    fn drop(&mut self) {
        redirect(self.before.as_fd());
    }
}

/// Launches at a site. Returns the event.
fn launch(
    (cl, program): (&Several, cl_program),
    site: usize,
    name: &CStr,
    buffer: cl_mem,
    wait: &[cl_event],
) -> cl_event {
    let kernel = make!(clCreateKernel(program, name.as_ptr())).expect("a kernel");
    let (size, at) = (size_of::<cl_mem>(), (&raw const buffer).cast());
    ok!(clSetKernelArg(kernel, 0, size, at));
    let (one, mut event) = (1, null_mut());
    let (count, list) = list(wait);
    ok!(clEnqueueNDRangeKernel(
        cl.queues[site],
        kernel,
        1,
        null(),
        &raw const one,
        null(),
        count,
        list,
        &raw mut event
    ));
    ok!(clReleaseKernel(kernel));
    event
}

const FIRST: usize = 0;
const SECOND: usize = 1;

#[test]
fn everything_is_printed_once_and_each_queues_in_order() {
    own_process!();
    let (cl, program) = two();
    let buffers = [cl.buffer(0, 64), cl.buffer(0, 64)];
    let mut output = Captured::begin();
    let turns = 12;
    for _ in 0..turns {
        for site in [FIRST, SECOND] {
            for name in [c"much", c"middle", c"last"] {
                release(&[launch((&cl, program), site, name, buffers[site], &[])]);
            }
        }
    }
    cl.finish_all();
    let text = output.text();
    drop(output);
    for letters in ["abc", "xyz"] {
        let own: String = text.chars().filter(|c| letters.contains(*c)).collect();
        let mut letters = letters.chars();
        let long = letters.next().expect("three").to_string().repeat(LONG);
        let turn = long + letters.as_str();
        assert_eq!(own.len(), turn.len() * turns);
        assert!(own == turn.repeat(turns), "out of order");
    }
    assert_eq!(text.len(), 2 * (LONG + 2) * turns);
    release_memory(&buffers);
    ok!(clReleaseProgram(program));
}

#[test]
fn a_wait_covers_what_was_printed_on_other_nodes() {
    own_process!();
    let (cl, program) = two();
    let buffers = [cl.buffer(0, 64), cl.buffer(0, 64)];
    for turn in 0..100 {
        let (here, there) = [(FIRST, SECOND), (SECOND, FIRST)][turn % 2];
        let mut output = Captured::begin();
        let printing = launch((&cl, program), there, c"much", buffers[there], &[]);
        // The wait reaches the printing node only through the other one.
        let last = launch((&cl, program), here, c"last", buffers[here], &[printing]);
        let ended = finish(last);
        let text = output.text();
        drop(output);
        assert_eq!(ended, CL_SUCCESS);
        // All text comes, but between nodes in any order (see the limits in `icd/README.md`).
        let [there, here] = [['x', 'c'], ['a', 'z']][turn % 2];
        assert_eq!(text.matches(there).count(), LONG, "turn {turn}");
        assert_eq!(text.matches(here).count(), 1, "turn {turn}");
        assert_eq!(text.len(), LONG + 1, "turn {turn}");
        assert_eq!(status_of(printing), CL_COMPLETE);
        release(&[printing]);
    }
    release_memory(&buffers);
    ok!(clReleaseProgram(program));
}
