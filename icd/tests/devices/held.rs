//! Tests of `hold = "client"`: the daemon of a session is killed, and the next one executes all of the program's commands.

use std::sync::Once;

use parking_lot::{Mutex, MutexGuard};

use crate::frames::programs::*;
use crate::frames::servers::*;

const MIB: usize = 1 << 20;
/// The log of a session, in bytes.
const LOG: usize = 16 * MIB;
const SOURCE: &str =
    "kernel void fake_add_u32(global uint *x, uint y) { x[get_global_id(0)] += y; }";
pub(crate) const DEVICE: &str = "[[device]]\nname = \"A\"";

/// The tests share the process's settings, so they take turns.
fn turn() -> MutexGuard<'static, ()> {
    static TURN: Mutex<()> = Mutex::new(());
    static CONFIGURED: Once = Once::new();
    let turn = TURN.lock();
    // Nothing listens there, but without a server there is no platform.
    CONFIGURED.call_once(|| configure("[[server]]\naddress = \"127.0.0.1:1\"\n"));
    turn
}

/// Configures the library with these servers. Must precede everything else.
pub(crate) fn configure(servers: &str) {
    let folder = env!("CARGO_TARGET_TMPDIR");
    let file = format!("{folder}/held-{}.toml", std::process::id());
    let survival = "[survival]\nreexecute = true\nlog = \"16MiB\"\nhold = \"client\"\n";
    std::fs::write(&file, format!("{servers}{survival}")).expect("written");
    // SAFETY: the library has not been asked anything yet, so nobody reads the environment.
    unsafe {
        std::env::remove_var("CAUSEWAY_SERVERS");
        std::env::set_var("CAUSEWAY_CONFIG", file);
    }
}

/// How often the session on a server was resumed.
fn resumed(server: cl_server_WWU) -> u64 {
    number(&server_info(server, CL_SERVER_RESUMED_WWU))
}

/// Kills the daemon, and starts the next one at its address.
fn replace(daemon: &mut Daemon, flags: &[String], server: cl_server_WWU) {
    let before = resumed(server);
    daemon.crash();
    daemon.start_again(flags);
    eventually("the next daemon has the session", || {
        (resumed(server) > before).then_some(())
    });
}

/// A buffer of one number, to which launches add.
struct Sum {
    cl: Fixture,
    add: cl_kernel,
    buffer: cl_mem,
}

impl Sum {
    fn on(device: cl_device_id) -> Sum {
        let cl = Fixture::on(device);
        let add = kernel(built(&cl, SOURCE, ""), "fake_add_u32");
        let buffer = cl.buffer_of(&[0; 4]);
        Sum { cl, add, buffer }
    }

    fn add(&self, more: u32) {
        assert_eq!(set(self.add, 0, &self.buffer), CL_SUCCESS);
        assert_eq!(set(self.add, 1, &more), CL_SUCCESS);
        assert_eq!(launch(self.cl.queue, self.add, 1), CL_SUCCESS);
    }

    fn check(&self, sum: u32) {
        assert_eq!(self.cl.read(self.buffer, 0, 4), sum.to_ne_bytes());
    }
}

/// Kills the daemon again and again while the device is used.
pub(crate) fn outlives(daemon: &mut Daemon, flags: &[String], device: cl_device_id) {
    let server = server_of(device);
    let sum = Sum::on(device);
    let bulk = sum.cl.buffer(CL_MEM_READ_WRITE, MIB);
    sum.cl.write(bulk, 0, &pattern(1, MIB));
    sum.add(3);
    sum.check(3);
    for round in 1..4 {
        // Some commands have ended, and some are under way.
        sum.add(1);
        sum.check(3 + 2 * round - 1);
        sum.add(1);
        replace(daemon, flags, server);
        sum.check(3 + 2 * round);
        assert_eq!(sum.cl.read(bulk, 0, MIB), pattern(1, MIB));
    }
}

#[test]
fn a_program_outlives_its_daemon_again_and_again() {
    own_process!();
    let _turn = turn();
    let mut daemon = Daemon::start(DEVICE);
    let server = connect(&daemon.address.to_string()).expect("a server");
    outlives(&mut daemon, &[], devices_of(server)[0]);
    assert_eq!(disconnect(server), CL_SUCCESS);
}

#[test]
fn a_program_whose_log_is_full_ends_with_its_daemon() {
    own_process!();
    let _turn = turn();
    let mut daemon = Daemon::start(DEVICE);
    let server = connect(&daemon.address.to_string()).expect("a server");
    let sum = Sum::on(devices_of(server)[0]);
    let bulk = sum.cl.buffer(CL_MEM_READ_WRITE, MIB);
    for seed in 0..LOG / MIB + 1 {
        sum.cl.write(bulk, 0, &pattern(seed, MIB));
    }
    sum.add(1);
    sum.check(1);
    daemon.crash();
    daemon.start_again(&[]);
    eventually("the loss", || {
        let code = launch(sum.cl.queue, sum.add, 1);
        (code != CL_SUCCESS).then_some(())
    });
    std::mem::forget(sum);
    assert_eq!(disconnect(server), CL_SUCCESS);
}
