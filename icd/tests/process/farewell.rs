//! Tests that programs over gRPC end without waiting, and that their sessions end with them.

use std::process::Command;
use std::ptr::{null, null_mut};
use std::time::{Duration, Instant};

use crate::frames::own_process::run_this_test;
use crate::frames::servers::*;

/// This variable is set in the program that ends.
const ENDING: &str = "CAUSEWAY_TEST_FAREWELL";
/// Number of programs.
const PROGRAMS: usize = 20;
/// A session without a farewell ends later: after 3 s if its program seems to be killed.
const AT_ONCE: Duration = Duration::from_secs(2);

// Makes several batches, and ends without waiting for any of them.
fn work_and_exit() -> ! {
    let cl = Fixture::on(devices()[0]);
    for _ in 0..10 {
        ok!(clEnqueueMarkerWithWaitList(cl.queue, 0, null(), null_mut()));
        ok!(clFlush(cl.queue));
    }
    std::process::exit(0);
}

fn workers_of(daemon: &Daemon) -> usize {
    let tasks = std::fs::read_dir(format!("/proc/{}/task", daemon.pid())).expect("a daemon");
    let children = tasks.flatten().map(|task| {
        let children = std::fs::read_to_string(task.path().join("children"));
        children.unwrap_or_default().split_whitespace().count()
    });
    children.sum()
}

#[test]
fn the_session_of_a_program_over_grpc_ends_with_it() {
    if std::env::var_os(ENDING).is_some() {
        work_and_exit();
    }
    let flags = ["--spare-workers", "0"].map(str::to_owned);
    let daemon = Daemon::start_flagged("127.0.0.1:0", "[[device]]\nname = \"A\"", &flags);
    let folder = tempfile::tempdir().expect("a folder");
    let settings = folder.path().join("servers.toml");
    let servers = format!(
        "[[server]]\naddress = \"{}\"\ncarrier = \"grpc\"\nresume = \"600s\"\n",
        daemon.address
    );
    std::fs::write(&settings, servers).expect("written");
    eventually("no worker lists devices", || {
        (workers_of(&daemon) == 0).then_some(())
    });
    for program in 0..PROGRAMS {
        let mut command = Command::new(std::env::current_exe().expect("a path"));
        let ended = run_this_test(&mut command)
            .env(ENDING, "1")
            .env("CAUSEWAY_CONFIG", &settings)
            .output()
            .expect("the program runs");
        let begun = Instant::now();
        assert!(ended.status.success(), "program {program}: {ended:?}");
        eventually("the worker ends", || {
            (workers_of(&daemon) == 0).then_some(())
        });
        let took = begun.elapsed();
        assert!(
            took < AT_ONCE,
            "program {program}: {took:?}\n{}",
            daemon.log()
        );
    }
}
