//! With discovery on and nobody there, the platform exists, and the first call takes less than a second.

use std::time::{Duration, Instant};

use crate::frames::log::{self, IntoLog};
use crate::frames::servers::*;
use crate::stage::*;

/// The descriptors and the threads of this process.
fn resources() -> (usize, Vec<String>) {
    let count = std::fs::read_dir("/proc/self/fd").expect("procfs").count();
    (count, thread_names())
}

#[test]
fn without_nodes_the_first_call_waits_a_little_and_nothing_is_left() {
    own_process!(waits);
    let Some(network) = network(2) else { return };
    let certificates = Certificates::new();
    certificates.node("gpu1");
    certificates.configure("", "");
    tracing_subscriber::fmt().with_writer(|| IntoLog).init();
    let (before, _) = resources();
    let count = || {
        let mut count = 0;
        let code = code!(clGetDeviceIDs(
            platform(),
            CL_DEVICE_TYPE_ALL,
            0,
            std::ptr::null_mut(),
            &raw mut count
        ));
        (code, count)
    };
    let program = || {
        let begun = Instant::now();
        assert_eq!(count(), (CL_DEVICE_NOT_FOUND, 0));
        let took = begun.elapsed();
        let expected = Duration::from_millis(600)..Duration::from_secs(10);
        assert!(expected.contains(&took), "{took:?}");
        let begun = Instant::now();
        assert_eq!(count(), (CL_DEVICE_NOT_FOUND, 0));
        eprintln!(
            "the first call: {took:?}, a later one: {:?}",
            begun.elapsed()
        );
    };
    network.host(0).enter(program).expect("the host's network");
    let said = log::logged();
    assert_eq!(
        said.matches("no node that announces itself can be used")
            .count(),
        1,
        "{said}"
    );
    eventually("the thread ends with its sockets", || {
        let (now, threads) = resources();
        (now <= before && !threads.iter().any(|name| name.starts_with("cw-discover"))).then_some(())
    });
    // A node that starts later is found by a later call.
    let _daemon = announced(network.host(1), "A", &certificates.flags("gpu1"));
    heard(network.host(0), &["gpu1"]);
    let program = || {
        eventually("the later node", || {
            (count() == (CL_SUCCESS, 1)).then_some(())
        })
    };
    network.host(0).enter(program).expect("the host's network");
}
