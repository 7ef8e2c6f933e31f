//! Tests of sessions whose checkpoints the program holds: they outlive their workers and their daemons.

use std::process::Command;

use parking_lot::MutexGuard;

use crate::frames::own_process::{run_this_test, turn_with};
use crate::frames::servers::*;
use crate::outlived::{begun, lost, parks_in};
use crate::replaced::Sum;

/// The log is soon full, and asks for checkpoints then.
const SETTINGS: &str = "resume = \"2s\"\nrestart = \"15s\"\n[[server]]\naddress = \"127.0.0.1:1\"\n\
    [survival]\nreexecute = true\ninterval = \"24h\"\nlog = \"16MiB\"\nhold = \"client\"\nheld = \"24MiB\"\n";
const MIB: usize = 1 << 20;
/// Set in the program whose checkpoint does not fit.
const OVERFULL: &str = "CAUSEWAY_TEST_OVERFULL";
/// What the library says when the protection ends.
const END: &str = "are not executed again if the node's process of the session dies";

/// The tests share the process's settings, so they take turns.
fn turn() -> MutexGuard<'static, ()> {
    turn_with(|| SETTINGS.to_owned())
}

/// Writes more than the log has room for, so that checkpoints are made.
fn fill_log(sum: &Sum, buffer: cl_mem, rounds: std::ops::Range<usize>) {
    for seed in rounds {
        sum.cl.write(buffer, 0, &pattern(seed, MIB));
        sum.add(1);
    }
}

#[test]
fn a_session_whose_checkpoints_the_program_holds_outlives_its_daemons() {
    own_process!();
    let _turn = turn();
    let mut daemon = Daemon::start("devices = 1");
    let sum = begun(&daemon);
    let old = sum.cl.buffer_of(&pattern(99, 5 * MIB / 4));
    let buffer = sum.cl.buffer(CL_MEM_READ_WRITE, MIB);
    let mut total = 3;
    for life in 0..3 {
        fill_log(&sum, buffer, life * 40..life * 40 + 40);
        total += 40;
        if life == 1 {
            // The device is read only here, so the program has seen nothing since the checkpoint.
            sum.check(total);
        }
        daemon.crash();
        sum.add(1);
        total += 1;
        daemon.start_again(&[]);
        sum.check(total);
        let last = life * 40 + 39;
        assert!(sum.cl.read(buffer, 0, MIB) == pattern(last, MIB), "{life}");
        assert!(sum.cl.read(old, 0, 5 * MIB / 4) == pattern(99, 5 * MIB / 4));
    }
}

#[test]
fn a_checkpoint_of_the_program_serves_after_the_session_was_parked() {
    own_process!();
    let _turn = turn();
    let folder = tempfile::tempdir().expect("a folder");
    let flags = parks_in(&folder);
    let mut daemon = Daemon::start_flagged("127.0.0.1:0", "devices = 1", &flags);
    let sum = begun(&daemon);
    let buffer = sum.cl.buffer(CL_MEM_READ_WRITE, MIB);
    let mut total = 3;
    for life in 0..2 {
        fill_log(&sum, buffer, life * 40..life * 40 + 40);
        daemon.terminate();
        sum.add(1);
        daemon.start_again(&flags);
        total += 41;
        sum.check(total);
        kill_workers_of(daemon.pid());
        sum.add(1);
        total += 1;
        sum.check(total);
        // Only the program's checkpoint is left.
        daemon.crash();
        sum.add(1);
        total += 1;
        daemon.start_again(&flags);
        sum.check(total);
        let last = pattern(life * 40 + 39, MIB);
        assert!(sum.cl.read(buffer, 0, MIB) == last, "{life}");
    }
}

#[test]
fn a_worker_that_dies_is_replaced_from_the_programs_checkpoint() {
    own_process!();
    let _turn = turn();
    let mut daemon = Daemon::start("devices = 1");
    let sum = begun(&daemon);
    let buffer = sum.cl.buffer(CL_MEM_READ_WRITE, MIB);
    let mut total = 3;
    for life in 0..3 {
        fill_log(&sum, buffer, life * 40..life * 40 + 40);
        kill_workers_of(daemon.pid());
        sum.add(1);
        total += 41;
        sum.check(total);
    }
    // The same checkpoint serves the next daemon.
    daemon.crash();
    daemon.start_again(&[]);
    sum.check(total);
    assert!(sum.cl.read(buffer, 0, MIB) == pattern(119, MIB));
}

#[test]
fn a_checkpoint_that_does_not_fit_ends_the_protection_once_and_the_program_goes_on() {
    own_process!();
    let _turn = turn();
    if std::env::var_os(OVERFULL).is_none() {
        let mut program = Command::new(std::env::current_exe().expect("a path"));
        let ended = run_this_test(&mut program)
            .env(OVERFULL, "1")
            .env("CAUSEWAY_LOG", "warn")
            .output()
            .expect("the program runs");
        let log = String::from_utf8_lossy(&ended.stderr);
        assert!(ended.status.success(), "{}: {log}", ended.status);
        let lines = log.lines().filter(|line| line.contains(END));
        let told: Vec<_> = lines.collect();
        assert!(
            told.len() == 1 && told[0].contains("`held` in servers.toml"),
            "{log}"
        );
        return;
    }
    let daemon = Daemon::start("devices = 1");
    let sum = begun(&daemon);
    // More than the program has room for.
    let _large = sum.cl.buffer(CL_MEM_READ_WRITE, 24 * MIB);
    let buffer = sum.cl.buffer(CL_MEM_READ_WRITE, MIB);
    fill_log(&sum, buffer, 0..60);
    sum.check(63);
    assert!(sum.cl.read(buffer, 0, MIB) == pattern(59, MIB));
    kill_workers_of(daemon.pid());
    // The session is not protected any more.
    lost(sum);
}
