//! Tests of sessions whose worker dies, on nodes under the test's control: what interrupts the execution of their commands
//! again, and what a checkpoint may cost.

use std::ptr::{null, null_mut};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use causeway_cutter::{Forwarder, Target};
use parking_lot::MutexGuard;

use crate::frames::own_process::turn_with;
use crate::frames::programs::*;
use crate::frames::servers::*;

/// The log of a session, in bytes; see [`turn`].
const LOG: usize = 16 << 20;
const MIB: usize = 1 << 20;
const SOURCE: &str = "
    kernel void fake_add_u32(global uint *x, uint y) { x[get_global_id(0)] += y; }
    kernel void slow(global uint *x) {}
";

/// The tests share the process's settings, so they take turns.
fn turn() -> MutexGuard<'static, ()> {
    // Nothing listens there, but without a server there is no platform.
    let text =
        "[[server]]\naddress = \"127.0.0.1:1\"\n[survival]\nreexecute = true\nlog = \"16MiB\"\n";
    turn_with(|| text.to_owned())
}

/// How often the session on a server was resumed.
fn resumed(server: cl_server_WWU) -> u64 {
    number(&server_info(server, CL_SERVER_RESUMED_WWU))
}

/// Kills the workers, and waits until the session has another one.
fn replace_worker(daemon: &Daemon, server: cl_server_WWU) {
    let before = resumed(server);
    kill_workers_of(daemon.pid());
    eventually("another worker", || {
        (resumed(server) > before).then_some(())
    });
}

/// A buffer of one number, to which launches add.
pub(crate) struct Sum {
    pub(crate) cl: Fixture,
    add: cl_kernel,
    pub(crate) buffer: cl_mem,
}

impl Sum {
    pub(crate) fn on(device: cl_device_id) -> Sum {
        let cl = Fixture::on(device);
        let add = kernel(built(&cl, SOURCE, ""), "fake_add_u32");
        let buffer = cl.buffer_of(&[0; 4]);
        Sum { cl, add, buffer }
    }

    pub(crate) fn add(&self, more: u32) {
        assert_eq!(set(self.add, 0, &self.buffer), CL_SUCCESS);
        assert_eq!(set(self.add, 1, &more), CL_SUCCESS);
        assert_eq!(launch(self.cl.queue, self.add, 1), CL_SUCCESS);
    }

    pub(crate) fn check(&self, sum: u32) {
        assert_eq!(self.cl.read(self.buffer, 0, 4), sum.to_ne_bytes());
    }
}

/// Calls a function of the library that may wait for ever.
pub(crate) fn within<T: Send + 'static>(
    limit: Duration,
    call: impl FnOnce() -> T + Send + 'static,
) -> T {
    let (sender, done) = mpsc::channel();
    std::thread::spawn(move || sender.send(call()));
    done.recv_timeout(limit).expect("the library answers")
}

#[test]
fn protection_that_ends_while_commands_are_executed_again_leaves_nobody_waiting() {
    own_process!();
    let _turn = turn();
    for waits in [true, false] {
        let daemon = Daemon::start("kernel.slow.ns = 2000000000\n[[device]]\npipes = true");
        let server = connect(&daemon.address.to_string()).expect("a server");
        let sum = Sum::on(devices_of(server)[0]);
        let slow = kernel(built(&sum.cl, SOURCE, ""), "slow");
        assert_eq!(set(slow, 0, &sum.buffer), CL_SUCCESS);
        assert_eq!(launch(sum.cl.queue, slow, 1), CL_SUCCESS);
        sum.cl.finish();
        // These wait for the kernel, of which the program knows the end.
        sum.add(3);
        sum.check(3);
        match waits {
            true => replace_worker(&daemon, server),
            false => kill_workers_of(daemon.pid()),
        }
        let handles = [sum.cl.context, sum.cl.queue, sum.buffer].map(|of| of as usize);
        let code = within(Duration::from_secs(30), move || {
            let [context, queue, buffer] = handles.map(std::ptr::with_exposed_provenance_mut);
            let flags = CL_MEM_READ_WRITE | CL_MEM_HOST_NO_ACCESS;
            // Nobody can execute this again.
            let pipe = make!(clCreatePipe(context, flags, 4, 16, null()));
            let mut read = [0u8; 4];
            let mut read = || {
                let to = read.as_mut_ptr().cast();
                code!(clEnqueueReadBuffer(
                    queue,
                    buffer,
                    CL_TRUE,
                    0,
                    4,
                    to,
                    0,
                    null(),
                    null_mut()
                ))
            };
            pipe.map_or_else(|code| code, |_| read())
        });
        assert_ne!(code, CL_SUCCESS, "the program is told (waits: {waits})");
        std::mem::forget(sum);
        assert_eq!(disconnect(server), CL_SUCCESS);
    }
}

#[test]
fn a_checkpoint_waits_no_longer_than_two_seconds_for_commands() {
    own_process!();
    let _turn = turn();
    // A command occupies its device, so there is another one.
    let daemon = Daemon::start("devices = 2\nkernel.slow.ns = 180000000000");
    let server = connect(&daemon.address.to_string()).expect("a server");
    let [busy, free] = devices_of(server)[..] else {
        panic!("two devices")
    };
    let (busy, free) = (Sum::on(busy), Sum::on(free));
    let slow = kernel(built(&busy.cl, SOURCE, ""), "slow");
    assert_eq!(set(slow, 0, &busy.buffer), CL_SUCCESS);
    assert_eq!(launch(busy.cl.queue, slow, 1), CL_SUCCESS);
    ok!(clFlush(busy.cl.queue));
    let begun = Instant::now();
    let buffer = free.cl.buffer(CL_MEM_READ_WRITE, MIB);
    let mut longest = Duration::ZERO;
    // Three quarters of the log ask for a checkpoint.
    for seed in 0..LOG / MIB - 1 {
        let begun = Instant::now();
        free.cl.write(buffer, 0, &pattern(seed, MIB));
        longest = longest.max(begun.elapsed());
    }
    let all = begun.elapsed();
    assert!(
        longest > Duration::from_secs(1),
        "no checkpoint: {longest:?}"
    );
    // The kernel takes far longer.
    assert!(all < Duration::from_secs(90), "{longest:?} of {all:?}");
    // All is still in the log.
    replace_worker(&daemon, server);
    let last = pattern(LOG / MIB - 2, MIB);
    assert!(free.cl.read(buffer, 0, MIB) == last);
    free.add(5);
    free.check(5);
}

#[test]
fn a_new_worker_waits_for_a_client_that_is_away() {
    own_process!();
    let _turn = turn();
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("daemon.toml");
    std::fs::write(&file, "[sessions]\nconnect_limit = 3\n").expect("written");
    let flags = ["--config".to_owned(), file.display().to_string()];
    let daemon = Daemon::start_flagged("127.0.0.1:0", "devices = 1", &flags);
    let way = Forwarder::start(Some(Target::Tcp(daemon.address))).expect("a forwarder");
    let server = connect(&way.address().to_string()).expect("a server");
    let sum = Sum::on(devices_of(server)[0]);
    sum.add(3);
    sum.check(3);
    sum.add(4);
    way.close();
    kill_workers_of(daemon.pid());
    eventually("another worker", || {
        daemon
            .log()
            .contains("another one takes its place")
            .then_some(())
    });
    // The limit of a client that has never come passes.
    std::thread::sleep(Duration::from_secs(5));
    way.open();
    sum.check(7);
    assert_eq!(resumed(server), 1);
}

#[test]
fn memory_that_gets_the_contents_of_a_checkpoint_is_not_cleared_before() {
    own_process!();
    let _turn = turn();
    let flags = ["--log".to_owned(), "debug".to_owned()];
    let daemon = Daemon::start_logged("127.0.0.1:0", "devices = 1", &flags);
    let server = connect(&daemon.address.to_string()).expect("a server");
    let cl = Fixture::on(devices_of(server)[0]);
    let buffer = cl.buffer(CL_MEM_READ_WRITE, MIB);
    // Three quarters of the log ask for a checkpoint.
    for seed in 0..LOG / MIB - 1 {
        cl.write(buffer, 0, &pattern(seed, MIB));
    }
    let cleared = || daemon.calls().matches("clEnqueueFillBuffer(").count();
    let before = cleared();
    assert!(before > 0, "new memory is cleared");
    let says = |what| daemon.log().contains(what);
    eventually("a checkpoint", || {
        says("a checkpoint is made").then_some(())
    });
    replace_worker(&daemon, server);
    assert!(cl.read(buffer, 0, MIB) == pattern(LOG / MIB - 2, MIB));
    assert!(says("the session goes on in this worker"));
    assert_eq!(cleared(), before);
    // New memory is cleared again.
    assert_eq!(cl.read(cl.buffer(CL_MEM_READ_WRITE, MIB), 0, MIB), [0; MIB]);
    assert!(cleared() > before);
}
