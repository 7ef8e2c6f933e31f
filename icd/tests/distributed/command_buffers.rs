//! Tests of command buffers in contexts of several nodes: a replay uses the newest bytes, and other commands find
//! what it wrote.

use crate::frames::opencl::*;
use crate::frames::programs::{kernel, set};
use crate::frames::recorded::*;
use crate::frames::several::*;

const COUNT: usize = 256;
const SIZE: usize = 4 * COUNT;

fn words(value: u32) -> Vec<u8> {
    std::iter::repeat_n(value.to_ne_bytes(), COUNT)
        .flatten()
        .collect()
}

// Records `x += 5`, then a copy of x to y, then a fill of z.
fn record(cl: &Several, site: usize, [x, y, z]: [cl_mem; 3]) -> Recorded {
    let add = kernel(cl.program, "fake_add_u32");
    assert_eq!(set(add, 0, &x), CL_SUCCESS);
    assert_eq!(set(add, 1, &5u32), CL_SUCCESS);
    let recorded = Recorded::new(cl.queues[site]);
    let added = recorded.launch(add, COUNT, &[]).unwrap();
    recorded.copy((x, y), (0, 0, SIZE), &[added]).unwrap();
    recorded.fill(z, 9, SIZE, &[]).unwrap();
    assert_eq!(recorded.finalize(), CL_SUCCESS);
    ok!(clReleaseKernel(add));
    recorded
}

#[test]
fn replays_and_other_nodes_see_each_others_bytes() {
    for properties in [0, OUT_OF_ORDER] {
        let cl = several_with(properties);
        let [x, y, z] = [1u32, 2, 3].map(|value| cl.buffer_of(0, &words(value)));
        let recorded: Vec<_> = ALL.iter().map(|&at| record(&cl, at, [x, y, z])).collect();
        let mut value = 1;
        for site in [BETA, DELTA, GAMMA, ALPHA, BETA] {
            let event = recorded[site].enqueue(&[]);
            assert_eq!(finish(event), CL_SUCCESS);
            value += 5;
            let other = (site + 1) % ALL.len();
            assert!(cl.read(other, y, 0, SIZE) == words(value), "copied");
            assert!(cl.read(other, z, 0, SIZE) == words(9), "filled");
            // The next replay adds to what another node wrote.
            value *= 3;
            cl.write(other, x, 0, &words(value));
        }
        drop(recorded);
        for memory in [x, y, z] {
            ok!(clReleaseMemObject(memory));
        }
    }
}

#[test]
fn one_that_the_application_holds_back_finds_what_came_before_it() {
    let cl = several();
    let [x, y, z] = [1u32, 2, 3].map(|value| cl.buffer_of(0, &words(value)));
    let recorded = record(&cl, DELTA, [x, y, z]);
    let gate = cl.user_event();
    let bytes = words(40);
    let written = cl.begin_write(ALPHA, x, 0, &bytes, &[gate]);
    let replayed = recorded.enqueue(&[written]);
    drop(recorded);
    assert!(status_of(replayed) > CL_COMPLETE);
    ok!(clSetUserEventStatus(gate, CL_COMPLETE));
    assert_eq!(finish(replayed), CL_SUCCESS);
    assert!(cl.read(BETA, y, 0, SIZE) == words(45));
    for event in [gate, written] {
        ok!(clReleaseEvent(event));
    }
    for memory in [x, y, z] {
        ok!(clReleaseMemObject(memory));
    }
}

#[test]
fn a_queue_of_another_device_is_refused() {
    let cl = several();
    let [x, y, z] = [1u32, 2, 3].map(|value| cl.buffer_of(0, &words(value)));
    let recorded = record(&cl, BETA, [x, y, z]);
    for other in [ALPHA, GAMMA, DELTA] {
        assert_eq!(
            recorded.try_enqueue(&[cl.queues[other]], &[]),
            Err(CL_INCOMPATIBLE_COMMAND_QUEUE_KHR)
        );
    }
    drop(recorded);
    for memory in [x, y, z] {
        ok!(clReleaseMemObject(memory));
    }
}

#[test]
fn a_launch_that_changes_while_replays_are_held_back_runs_as_each_was_enqueued() {
    for properties in [0, OUT_OF_ORDER] {
        let cl = several_with(properties);
        let [x, y] = [100u32, 200].map(|value| cl.buffer_of(0, &words(value)));
        let add = kernel(cl.program, "fake_add_u32");
        assert_eq!(set(add, 0, &x), CL_SUCCESS);
        assert_eq!(set(add, 1, &1u32), CL_SUCCESS);
        let recorded = Recorded::mutable(cl.queues[BETA]);
        let handle = recorded.launch_mutable(None, add, COUNT, None).unwrap();
        assert_eq!(recorded.finalize(), CL_SUCCESS);
        let gate = cl.user_event();
        let held = recorded.enqueue(&[gate]);
        // Writes to the other buffer. This replay may run first, if the queue allows it.
        let value = 10u32;
        let args = [arg(0, &y), arg(1, &value)];
        assert_eq!(
            recorded.update(&[config_of_args(handle, &args)]),
            CL_SUCCESS
        );
        let (free, early) = match properties {
            0 => (recorded.enqueue(&[gate]), false),
            _ => (recorded.enqueue(&[]), true),
        };
        if early {
            assert_eq!(finish(free), CL_SUCCESS);
            assert!(cl.read(ALPHA, y, 0, SIZE) == words(210));
        }
        let half = COUNT / 2;
        let change = cl_mutable_dispatch_config_khr {
            work_dim: 1,
            global_work_size: &raw const half,
            ..config(handle)
        };
        assert_eq!(recorded.update(&[change]), CL_SUCCESS);
        let last = recorded.enqueue(&[held]);
        ok!(clSetUserEventStatus(gate, CL_COMPLETE));
        assert_eq!(finish(last), CL_SUCCESS);
        if !early {
            assert_eq!(finish(free), CL_SUCCESS);
        }
        assert_eq!(finish(held), CL_SUCCESS);
        assert!(cl.read(DELTA, x, 0, SIZE) == words(101), "the first alone");
        let expected = [&words(220)[..SIZE / 2], &words(210)[..SIZE / 2]].concat();
        assert!(cl.read(GAMMA, y, 0, SIZE) == expected, "the others");
        drop(recorded);
        ok!(clReleaseEvent(gate));
        ok!(clReleaseKernel(add));
        for memory in [x, y] {
            ok!(clReleaseMemObject(memory));
        }
    }
}
