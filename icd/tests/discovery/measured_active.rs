//! How long a node measures beside a session that executes commands.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use causeway::config::ServerSettings;
use causeway::transport::links::measure_link;

use crate::frames::servers::*;
use crate::measured::{no_claim, terms};

#[test]
fn a_node_with_an_active_session_measures_for_half_of_the_time() {
    own_process!();
    let daemon = Daemon::start("[[device]]\nname = \"A\"");
    configure(&daemon.address.to_string());
    let server = ServerSettings::at(daemon.address.to_string().parse().expect("an address"));
    let ask = || measure_link(&server, &terms(2_600), false, no_claim(), None);
    let cl = Fixture::on(devices()[0]);
    let buffer = cl.buffer(CL_MEM_READ_WRITE, 4);
    cl.write(buffer, 0, &[7; 4]);
    let is_over = AtomicBool::new(false);
    let refused = std::thread::scope(|scope| {
        let asking = scope.spawn(|| {
            let answer = ask();
            is_over.store(true, Ordering::Relaxed);
            answer
        });
        while !is_over.load(Ordering::Relaxed) && !asking.is_finished() {
            cl.read(buffer, 0, 4);
            // The program computes, and moves far less than what counts as traffic.
            std::thread::sleep(Duration::from_millis(1));
        }
        asking.join().expect("no panic")
    });
    let refused = refused.expect_err("5.2 s are too long").to_string();
    assert!(
        refused.contains("beside active sessions for 5 s"),
        "{refused}"
    );
    ok!(clReleaseMemObject(buffer));
    // The session is open, and executes nothing.
    let end = eventually("an idle node", || ask().ok()?.end);
    assert!(!end.id.is_empty(), "{end:?}");
}
