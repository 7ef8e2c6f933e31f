//! Tests that transfers behind a long command delay no other transfers, also on devices with a few in-order queues
//! only.

use crate::frames::nodes::{Drivers, Rules};
use crate::frames::opencl::*;
use crate::frames::several::*;

const NODES: [Drivers; 3] = [
    Drivers::Fake("[[device]]\nname = \"Home\""),
    Drivers::Fake(
        "[[device]]\nname = \"First\"\nout_of_order = false\n[[device]]\nname = \"Second\"\nout_of_order = false",
    ),
    Drivers::Fake(
        "[[device]]\nname = \"Third\"\nout_of_order = false\n[[device]]\nname = \"Fourth\"",
    ),
];
const HOME: usize = 0;
const SIZE: usize = 1 << 18;

/// A queue for each device, and at the end an out-of-order queue of Home.
fn with_queue_at_home() -> (Several, usize) {
    let mut cl = several_on(&NODES, 5, 0);
    let queue = make!(clCreateCommandQueue(
        cl.context,
        cl.devices[HOME],
        OUT_OF_ORDER
    ));
    cl.queues.push(queue.expect("a queue"));
    let last = cl.queues.len() - 1;
    (cl, last)
}

/// Lets a device work on a buffer forever.
#[must_use = "the rule holds as long as this"]
fn occupy(
    cl: &Several,
    (node, site): (usize, usize),
    buffer: cl_mem,
) -> (Rules<'static>, cl_event) {
    let rules = cl.nodes[node].with_rules("[kernel.nothing]\nhang = true");
    let args = [buffer; 3].map(Arg::Memory);
    let event = cl.try_launch(site, "nothing", &args, 1, &[]);
    (rules, event.expect("launched"))
}

fn ends(event: cl_event) {
    let event = Shared(event);
    let ended = soon(move || finish(event.get()));
    assert_eq!(ended.recv_timeout(PATIENCE), Ok(CL_SUCCESS));
}

/// One device of a site works forever on a buffer that `reads` reads and a kernel in each direction wait for. The
/// other device has work that other nodes need.
fn others_pass(node: usize, [quick, busy]: [usize; 2], reads: usize) {
    let (mut cl, home) = with_queue_at_home();
    let (held, free) = (cl.buffer(0, SIZE), cl.buffer(0, SIZE));
    cl.write(busy, held, 0, &pattern(1, SIZE));
    cl.write(quick, free, 0, &pattern(2, SIZE));
    let (_rules, launch) = occupy(&cl, (node, busy), held);
    // Transfers from the site: to the application's memory, and to another node.
    let mut never = vec![0; SIZE];
    let parts = never.chunks_mut(SIZE / reads).enumerate();
    let mut waiting: Vec<cl_event> = parts
        .map(|(part, to)| cl.begin_read(home, held, part * (SIZE / reads), to, &[launch]))
        .collect();
    waiting.push(cl.add(home, held, 1, SIZE / 4, &[]));
    let mut read = vec![0; SIZE];
    ends(cl.begin_read(home, free, 0, &mut read, &[]));
    assert_eq!(read, pattern(2, SIZE));
    ends(cl.fill(quick, free, 3, (0, SIZE), &[]));
    ends(cl.add(home, free, 1, SIZE / 4, &[]));
    // Transfers to the site: the waiting one overwrites bytes that the kernel uses.
    let queue = make!(clCreateCommandQueue(cl.context, cl.devices[quick], 0));
    cl.queues.push(queue.expect("a queue"));
    let other = cl.queues.len() - 1;
    waiting.push(cl.add(quick, held, 1, SIZE / 4, &[]));
    ends(cl.add(other, free, 1, SIZE / 4, &[]));
    assert_eq!(cl.numbers(other, free, 4), [5; 4]);
    assert!(waiting.iter().all(|event| status_of(*event) > CL_COMPLETE));
    release(&waiting);
    release(&[launch]);
    release_memory(&[held, free]);
    // Commands may write to this memory as long as the process runs.
    std::mem::forget(never);
}

#[test]
fn transfers_of_in_order_devices_pass_those_that_wait() {
    own_process!();
    // Together with the kernel, these are fewer than the in-order queues.
    others_pass(1, [1, 2], 2);
}

#[test]
fn transfers_of_a_site_with_both_kinds_of_devices_pass_those_that_wait() {
    own_process!();
    others_pass(2, [3, 4], 8);
}
