//! Tests of sessions whose daemon is killed or has parked them, and which go on with its next start.

use std::ptr::{null, null_mut};
use std::time::{Duration, Instant};

use causeway_cutter::{Forwarder, Target};
use parking_lot::MutexGuard;
use tempfile::TempDir;

use crate::frames::own_process::turn_with;
use crate::frames::servers::*;
use crate::replaced::{Sum, within};

/// A daemon is waited for longer than a connection. A checkpoint would be lost with its daemon.
const SETTINGS: &str = "resume = \"2s\"\nrestart = \"15s\"\n[[server]]\naddress = \"127.0.0.1:1\"\n\
    [survival]\nreexecute = true\ninterval = \"24h\"\n";

/// The tests share the process's settings, so they take turns.
fn turn() -> MutexGuard<'static, ()> {
    turn_with(|| SETTINGS.to_owned())
}

/// A sum whose session has no checkpoint yet, on the only device of a daemon.
pub(crate) fn begun(daemon: &Daemon) -> Sum {
    let server = connect(&daemon.address.to_string()).expect("a server");
    let sum = Sum::on(devices_of(server)[0]);
    sum.add(3);
    sum.check(3);
    sum
}

/// Reads a sum whose session is lost. Returns how long that took.
pub(crate) fn lost(sum: Sum) -> Duration {
    let begun = Instant::now();
    let handles = [sum.cl.queue, sum.buffer].map(|of| of as usize);
    std::mem::forget(sum);
    let code = within(Duration::from_secs(30), move || {
        let [queue, buffer] = handles.map(std::ptr::with_exposed_provenance_mut);
        let mut read = [0u8; 4];
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
    });
    assert_ne!(code, CL_SUCCESS);
    begun.elapsed()
}

#[test]
fn a_session_without_a_checkpoint_outlives_its_daemons() {
    own_process!();
    let _turn = turn();
    let mut daemon = Daemon::start("devices = 1");
    let sum = begun(&daemon);
    let mut total = 3;
    for more in 1..4 {
        sum.add(more);
        daemon.crash();
        sum.add(1);
        daemon.start_again(&[]);
        // Two deaths at one command are the end.
        total += more + 1;
        sum.check(total);
    }
}

/// The arguments of a daemon that parks its sessions in this folder.
pub(crate) fn parks_in(folder: &TempDir) -> Vec<String> {
    let folder = folder.path().join("parked").display().to_string();
    vec!["--survival-dir".to_owned(), folder]
}

#[test]
fn a_session_that_was_parked_outlives_its_processes() {
    own_process!();
    let _turn = turn();
    let folder = tempfile::tempdir().expect("a folder");
    let flags = parks_in(&folder);
    let mut daemon = Daemon::start_flagged("127.0.0.1:0", "devices = 1", &flags);
    let sum = begun(&daemon);
    let mut total = 3;
    for more in 1..4 {
        sum.add(more);
        daemon.terminate();
        sum.add(10);
        daemon.start_again(&flags);
        total += more + 10;
        sum.check(total);
        // Nothing has happened since the last death.
        for _ in 0..2 {
            kill_workers_of(daemon.pid());
            sum.check(total);
        }
        sum.add(100);
        kill_workers_of(daemon.pid());
        total += 100;
        sum.check(total);
    }
}

#[test]
fn a_session_is_opened_again_on_the_same_devices_only() {
    own_process!();
    let _turn = turn();
    // ---- another node at the same address
    let daemon = Daemon::start("devices = 1");
    let sum = begun(&daemon);
    let address = daemon.kill();
    let _other = Daemon::start_at(&address, "devices = 1");
    // Nothing has listened there for a while, so the program waits for `restart`.
    assert!(lost(sum) < Duration::from_secs(20));
    // ---- the same node with other devices
    let mut daemon = Daemon::start("[[device]]\nname = \"A\"");
    let sum = begun(&daemon);
    daemon.crash();
    crate::frames::fake_driver::put(daemon.state(), "[[device]]\nname = \"B\"");
    daemon.start_again(&[]);
    lost(sum);
}

#[test]
fn a_break_is_waited_for_no_longer_than_without_execution_again() {
    own_process!();
    let _turn = turn();
    let daemon = Daemon::start("devices = 1");
    let way = Forwarder::start(Some(Target::Tcp(daemon.address))).expect("a forwarder");
    let server = connect(&way.address().to_string()).expect("a server");
    let sum = Sum::on(devices_of(server)[0]);
    sum.add(3);
    sum.check(3);
    way.close();
    let took = lost(sum);
    assert!(took < Duration::from_secs(12), "{took:?}");
}
