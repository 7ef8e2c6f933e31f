//! Tests that a program goes on when the process of its session is killed: its commands are executed again, and what it
//! has been given is not given again.

use std::ptr::{null, null_mut};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use parking_lot::{Mutex, MutexGuard};

use crate::frames::opencl::*;
use crate::frames::programs::*;

const SMALL: usize = 1 << 10;
const LARGE: usize = 5 << 18;
const SOURCE: &str = "
    kernel void add(global int *all, int more) { all[get_global_id(0)] += more; }
    kernel void spin(global int *all, int rounds) {
        int sum = 0;
        for (int i = 0; i < rounds; i++) sum = sum * 1664525 + all[get_global_id(0)] + i;
        all[get_global_id(0)] += sum;
    }
    kernel void where(global ulong *all) { all[get_global_id(0)] = (ulong)(uintptr_t)all; }
    kernel void crash(global int *all, int from) { *(volatile global int *)(uintptr_t)from = all[0]; }
";

/// The tests share the process's session.
fn turn() -> MutexGuard<'static, ()> {
    static TURN: Mutex<()> = Mutex::new(());
    let turn = TURN.lock();
    // SAFETY: the library has not been asked anything yet, or has read the same.
    unsafe { std::env::set_var("CAUSEWAY_REEXECUTE", "1") };
    turn
}

fn as_bytes(numbers: &[i32]) -> Vec<u8> {
    numbers.iter().flat_map(|of| of.to_ne_bytes()).collect()
}

fn numbers(bytes: &[u8]) -> Vec<i32> {
    let chunks = bytes.chunks_exact(4);
    chunks
        .map(|of| i32::from_ne_bytes([of[0], of[1], of[2], of[3]]))
        .collect()
}

/// Runs a large and a small buffer through non-idempotent kernels.
struct Run {
    cl: Fixture,
    add: cl_kernel,
    buffers: [(cl_mem, Vec<i32>); 2],
}

impl Run {
    fn new() -> Run {
        let cl = Fixture::new();
        let program = built(&cl, SOURCE, "");
        let add = kernel(program, "add");
        let buffers = [SMALL, LARGE].map(|size| {
            let bytes = pattern(size, size);
            (cl.buffer_of(&bytes), numbers(&bytes))
        });
        Run { cl, add, buffers }
    }

    fn add(&mut self, more: i32, wait: &[cl_event]) {
        for (buffer, expected) in &mut self.buffers {
            assert_eq!(set(self.add, 0, buffer), CL_SUCCESS);
            assert_eq!(set(self.add, 1, &more), CL_SUCCESS);
            let count = expected.len();
            assert_eq!(
                launch_after(self.cl.queue, self.add, count, wait),
                CL_SUCCESS
            );
            expected
                .iter_mut()
                .for_each(|of| *of = of.wrapping_add(more));
        }
    }

    fn write(&mut self, seed: usize) {
        for (buffer, expected) in &mut self.buffers {
            let half = expected.len() / 2;
            let bytes = pattern(seed, half * 4);
            self.cl.write(*buffer, 0, &bytes);
            expected[..half].copy_from_slice(&numbers(&bytes));
        }
    }

    fn check(&self) {
        for (buffer, expected) in &self.buffers {
            let read = numbers(&self.cl.read(*buffer, 0, expected.len() * 4));
            assert!(read == *expected, "{} numbers", expected.len());
        }
    }
}

#[test]
fn writes_kernels_and_reads_survive_kills() {
    own_process!();
    let _turn = turn();
    let mut run = Run::new();
    for round in 0..4 {
        run.add(round + 1, &[]);
        run.check();
        kill_workers();
        run.add(100, &[]);
        run.write(round as usize);
        run.add(7, &[]);
        // The read must complete with another worker.
        kill_workers();
        run.check();
    }
}

#[test]
fn maps_survive_kills() {
    own_process!();
    let _turn = turn();
    let mut run = Run::new();
    for round in 0..3 {
        let (buffer, expected) = &mut run.buffers[1];
        let size = expected.len() * 4;
        let at = make!(clEnqueueMapBuffer(
            run.cl.queue,
            *buffer,
            CL_TRUE,
            CL_MAP_READ | CL_MAP_WRITE,
            0,
            size,
            0,
            null(),
            null_mut()
        ))
        .expect("a map");
        // SAFETY: the map has so many bytes, and nothing else uses them.
        let mapped = unsafe { std::slice::from_raw_parts_mut(at.cast::<i32>(), expected.len()) };
        assert!(*mapped == **expected);
        kill_workers();
        mapped[round] = 4711;
        expected[round] = 4711;
        ok!(clEnqueueUnmapMemObject(
            run.cl.queue,
            *buffer,
            at,
            0,
            null(),
            null_mut()
        ));
        run.add(3, &[]);
        kill_workers();
        run.check();
    }
}

extern "C" fn count(_: cl_event, status: cl_int, counter: *mut c_void) {
    // SAFETY: the test gives a counter that outlives the event.
    let counter = unsafe { &*counter.cast::<AtomicU32>() };
    assert_eq!(status, CL_COMPLETE);
    counter.fetch_add(1, Ordering::SeqCst);
}

#[test]
fn user_events_wait_and_callbacks_run_once() {
    own_process!();
    let _turn = turn();
    let mut run = Run::new();
    let counters: Vec<AtomicU32> = (0..4).map(|_| AtomicU32::new(0)).collect();
    for counter in &counters {
        let user = run.cl.user_event();
        run.add(5, &[user]);
        let mut marker = null_mut();
        ok!(clEnqueueMarkerWithWaitList(
            run.cl.queue,
            0,
            null(),
            &raw mut marker
        ));
        let argument = (&raw const *counter).cast_mut().cast();
        ok!(clSetEventCallback(
            marker,
            CL_COMPLETE,
            Some(count),
            argument
        ));
        ok!(clFlush(run.cl.queue));
        kill_workers();
        assert_eq!(counter.load(Ordering::SeqCst), 0);
        ok!(clSetUserEventStatus(user, CL_COMPLETE));
        ok!(clWaitForEvents(1, &raw const marker));
        kill_workers();
        run.check();
        ok!(clReleaseEvent(user));
        ok!(clReleaseEvent(marker));
    }
    // Callbacks run on a thread of their own.
    let end = Instant::now() + Duration::from_secs(10);
    while counters.iter().any(|of| of.load(Ordering::SeqCst) == 0) {
        assert!(Instant::now() < end, "a callback has not run");
        std::thread::yield_now();
    }
    assert!(counters.iter().all(|of| of.load(Ordering::SeqCst) == 1));
}

#[test]
fn what_the_program_did_between_two_queues_is_kept_in_order() {
    own_process!();
    let _turn = turn();
    let mut run = Run::new();
    let (first, second) = (run.cl.queue, run.cl.another_queue(0));
    // Each read is done before the other queue's launch, but only the program knows.
    for round in 0..12 {
        run.cl.queue = if round % 2 == 0 { second } else { first };
        run.add(round, &[]);
        run.check();
        if round % 5 == 4 {
            kill_workers();
        }
    }
    run.cl.queue = first;
    ok!(clReleaseCommandQueue(second));
}

#[test]
fn ends_of_commands_without_events_come_again_before_what_followed_them() {
    own_process!();
    let _turn = turn();
    let mut run = Run::new();
    let (first, second) = (run.cl.queue, run.cl.another_queue(0));
    for round in 0..3 {
        // No event, no later command in this queue, and nobody waits.
        run.cl.queue = first;
        run.add(round, &[]);
        ok!(clFlush(first));
        // The library has heard of the ends by now, so these commands wait for them after a kill. A machine that is slower
        // shows less, and fails nothing.
        std::thread::sleep(Duration::from_millis(300));
        run.cl.queue = second;
        run.add(100, &[]);
        run.cl.finish();
        kill_workers();
        run.check();
    }
    run.cl.queue = first;
    ok!(clReleaseCommandQueue(second));
}

#[test]
fn a_kernel_that_is_killed_in_its_middle_is_executed_again() {
    own_process!();
    let _turn = turn();
    let run = Run::new();
    let program = built(&run.cl, SOURCE, "");
    let spin = kernel(program, "spin");
    let (buffer, expected) = &run.buffers[0];
    let launch_spin = || {
        assert_eq!(set(spin, 0, buffer), CL_SUCCESS);
        assert_eq!(set(spin, 1, &2_000_000i32), CL_SUCCESS);
        assert_eq!(launch(run.cl.queue, spin, expected.len()), CL_SUCCESS);
        ok!(clFlush(run.cl.queue));
    };
    let size = expected.len() * 4;
    launch_spin();
    let once = run.cl.read(*buffer, 0, size);
    run.cl.write(*buffer, 0, &as_bytes(expected));
    launch_spin();
    std::thread::sleep(Duration::from_millis(50));
    kill_workers();
    assert!(run.cl.read(*buffer, 0, size) == once);
}

#[test]
fn a_result_that_the_program_has_seen_and_that_changes_ends_the_session() {
    own_process!();
    let _turn = turn();
    let cl = Fixture::new();
    let program = built(&cl, SOURCE, "");
    let place = kernel(program, "where");
    let buffer = cl.buffer(CL_MEM_READ_WRITE, LARGE);
    assert_eq!(set(place, 0, &buffer), CL_SUCCESS);
    assert_eq!(launch(cl.queue, place, LARGE / 8), CL_SUCCESS);
    let seen = cl.read(buffer, 0, LARGE);
    kill_workers();
    let mut bytes = vec![0u8; LARGE];
    let code = code!(clEnqueueReadBuffer(
        cl.queue,
        buffer,
        CL_TRUE,
        0,
        LARGE,
        bytes.as_mut_ptr().cast(),
        0,
        null(),
        null_mut()
    ));
    // The allocator may choose the same address.
    assert!(
        code == CL_DEVICE_NOT_AVAILABLE
            || code == CL_EXEC_STATUS_ERROR_FOR_EVENTS_IN_WAIT_LIST
            || bytes == seen,
        "{code}"
    );
}

#[test]
fn a_kernel_that_kills_its_worker_is_executed_twice_only() {
    own_process!();
    let _turn = turn();
    let run = Run::new();
    let program = built(&run.cl, SOURCE, "");
    let crash = kernel(program, "crash");
    assert_eq!(set(crash, 0, &run.buffers[0].0), CL_SUCCESS);
    assert_eq!(set(crash, 1, &8i32), CL_SUCCESS);
    assert_eq!(launch(run.cl.queue, crash, 1), CL_SUCCESS);
    assert_ne!(code!(clFinish(run.cl.queue)), CL_SUCCESS);
    // A new session.
    Run::new().check();
}

#[test]
fn memory_that_is_written_from_and_then_read_into_survives_kills() {
    own_process!();
    let _turn = turn();
    let run = Run::new();
    let (buffer, expected) = &run.buffers[1];
    let (mut host, mut sum) = (expected.clone(), expected.clone());
    let size = host.len() * 4;
    for round in 0..6 {
        ok!(clEnqueueWriteBuffer(
            run.cl.queue,
            *buffer,
            CL_FALSE,
            0,
            size,
            host.as_ptr().cast(),
            0,
            null(),
            null_mut()
        ));
        assert_eq!(set(run.add, 0, buffer), CL_SUCCESS);
        assert_eq!(set(run.add, 1, &(round + 3)), CL_SUCCESS);
        assert_eq!(launch(run.cl.queue, run.add, host.len()), CL_SUCCESS);
        // Its bytes may arrive before the end of the write is reported.
        ok!(clEnqueueReadBuffer(
            run.cl.queue,
            *buffer,
            CL_TRUE,
            0,
            size,
            host.as_mut_ptr().cast(),
            0,
            null(),
            null_mut()
        ));
        sum.iter_mut()
            .for_each(|of| *of = of.wrapping_add(round + 3));
        assert!(host == sum, "round {round}");
        if round % 2 == 1 {
            kill_workers();
        }
    }
}

#[test]
fn a_write_in_whose_middle_the_worker_dies_is_in_the_log_when_its_event_has_ended() {
    const SIZE: usize = 24 << 20;
    own_process!();
    let _turn = turn();
    let run = Run::new();
    let buffer = run.cl.buffer(CL_MEM_READ_WRITE, SIZE);
    for round in 0..3 {
        let written = pattern(round, SIZE);
        let mut host = written.clone();
        let mut event = null_mut();
        ok!(clEnqueueWriteBuffer(
            run.cl.queue,
            buffer,
            CL_FALSE,
            0,
            SIZE,
            host.as_ptr().cast(),
            0,
            null(),
            &raw mut event
        ));
        ok!(clFlush(run.cl.queue));
        // Chunks are being copied and sent.
        kill_workers();
        ok!(clWaitForEvents(1, &raw const event));
        ok!(clReleaseEvent(event));
        host.fill(0);
        kill_workers();
        assert!(run.cl.read(buffer, 0, SIZE) == written, "round {round}");
    }
}
