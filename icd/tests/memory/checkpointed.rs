//! Tests that a program goes on when the process of its session is killed, though the log has no room for all of its
//! commands: checkpoints cover the older ones.

use parking_lot::MutexGuard;

use crate::frames::opencl::*;
use crate::frames::own_process::turn_with;
use crate::frames::programs::*;

const SIZE: usize = 5 << 18;
const SOURCE: &str = "
    kernel void add(global int *all, int more) { all[get_global_id(0)] += more; }
";

/// The tests share the process's session, so they take turns.
fn turn() -> MutexGuard<'static, ()> {
    turn_with(settings)
}

fn settings() -> String {
    let address = daemon();
    let carrier = std::env::var("CAUSEWAY_TEST_CARRIER").unwrap_or_else(|_| "direct".to_owned());
    format!(
        "[[server]]\naddress = \"{address}\"\ncarrier = \"{carrier}\"\n[survival]\nreexecute = true\nlog = \"16MiB\"\n"
    )
}

fn numbers(bytes: &[u8]) -> Vec<i32> {
    let chunks = bytes.chunks_exact(4);
    chunks
        .map(|of| i32::from_ne_bytes([of[0], of[1], of[2], of[3]]))
        .collect()
}

#[test]
fn a_log_that_is_full_several_times_is_covered_by_checkpoints() {
    own_process!();
    let _turn = turn();
    let cl = Fixture::new();
    let add = kernel(built(&cl, SOURCE, ""), "add");
    // Made before all checkpoints, and never written again.
    let old = cl.buffer_of(&pattern(77, SIZE));
    let old_small = cl.buffer_of(&pattern(78, 100));
    let user = cl.user_event();
    let buffer = cl.buffer(CL_MEM_READ_WRITE, SIZE);
    assert_eq!(set(add, 0, &buffer), CL_SUCCESS);
    let mut expected = Vec::new();
    for round in 0..60 {
        let bytes = pattern(round, SIZE);
        if round % 2 == 0 {
            cl.write(buffer, 0, &bytes);
            expected = numbers(&bytes);
        }
        // The buffer is an argument from a launch before the checkpoints.
        let more = round as i32;
        assert_eq!(set(add, 1, &more), CL_SUCCESS);
        assert_eq!(launch(cl.queue, add, SIZE / 4), CL_SUCCESS);
        expected
            .iter_mut()
            .for_each(|of| *of = of.wrapping_add(more));
        if round % 9 == 8 {
            kill_workers();
        }
        if round % 4 == 3 {
            assert!(
                numbers(&cl.read(buffer, 0, SIZE)) == expected,
                "round {round}"
            );
        }
    }
    assert!(cl.read(old, 0, SIZE) == pattern(77, SIZE));
    assert_eq!(cl.read(old_small, 0, 100), pattern(78, 100));
    // An event from before the checkpoints.
    let mut after = std::ptr::null_mut();
    ok!(clEnqueueMarkerWithWaitList(
        cl.queue,
        1,
        &raw const user,
        &raw mut after
    ));
    ok!(clSetUserEventStatus(user, CL_COMPLETE));
    ok!(clWaitForEvents(1, &raw const after));
}

#[test]
fn without_checkpoints_a_full_log_ends_the_protection_and_the_program_goes_on() {
    own_process!();
    let _turn = turn();
    let cl = Fixture::new();
    let buffer = cl.buffer_of(&pattern(1, SIZE));
    // While a command waits for the program, there is no checkpoint.
    let (user, another) = (cl.user_event(), cl.another_queue(0));
    let mut waits = std::ptr::null_mut();
    ok!(clEnqueueMarkerWithWaitList(
        another,
        1,
        &raw const user,
        &raw mut waits
    ));
    ok!(clFlush(another));
    kill_workers();
    assert!(cl.read(buffer, 0, SIZE) == pattern(1, SIZE));
    for round in 0..20 {
        cl.write(buffer, 0, &pattern(round, SIZE));
    }
    assert!(cl.read(buffer, 0, SIZE) == pattern(19, SIZE));
    ok!(clSetUserEventStatus(user, CL_COMPLETE));
    ok!(clWaitForEvents(1, &raw const waits));
    kill_workers();
    // The loss is noticed while the command is under way.
    ok!(clEnqueueMarkerWithWaitList(
        cl.queue,
        0,
        std::ptr::null(),
        std::ptr::null_mut()
    ));
    assert_ne!(code!(clFinish(cl.queue)), CL_SUCCESS);
}

#[test]
fn bytes_that_left_while_the_program_stood_for_a_checkpoint_are_written_again() {
    own_process!();
    let _turn = turn();
    let cl = Fixture::new();
    // Writes of this size leave beside their commands, on the thread that waits for them.
    const EAGER: usize = 256 << 10;
    let buffers: Vec<cl_mem> = (0..120)
        .map(|_| cl.buffer(CL_MEM_READ_WRITE, EAGER))
        .collect();
    // The log is full twice. The thread never pauses, so the bytes of one write leave while the program stands, and its
    // command follows behind the checkpoint.
    for (seed, buffer) in buffers.iter().enumerate() {
        cl.write(*buffer, 0, &pattern(seed, EAGER));
    }
    kill_workers();
    for (seed, buffer) in buffers.iter().enumerate() {
        assert!(
            cl.read(*buffer, 0, EAGER) == pattern(seed, EAGER),
            "write {seed}"
        );
    }
}
