//! Tests that the use of sessions is counted where the supervisor sees it, and that the counts outlive the workers.

use crate::common::bulk::{STAGED, download, pattern, upload};
use crate::common::{Daemon, linear, read, write};

const FROM: &str = "causeway_bulk_bytes_total{with=\"client\",direction=\"received\"}";
const TO: &str = "causeway_bulk_bytes_total{with=\"client\",direction=\"sent\"}";
const COMMANDS: &str = "causeway_commands_total";

#[test]
fn bytes_and_commands_are_counted_and_outlive_a_killed_worker() {
    for environment in [&[][..], STAGED] {
        let daemon = Daemon::fake_with("", &["--metrics", "127.0.0.1:0"], environment);
        let mut session = daemon.session();
        let mut lanes = vec![session.lane(0)];
        let context = session.context();
        let queue = session.queue(context, 0);
        // Reads of several chunks, and of one chunk that the thread of a command's end sends.
        for length in [(2 << 20) + 7_u64, 50_000] {
            let before = [FROM, TO].map(|name| daemon.count(name));
            let buffer = session.buffer(context, length, &[]);
            let put = session.enqueue(queue, &[], write(buffer, linear(0, length), None));
            let get = session.enqueue(queue, &[], read(buffer, linear(0, length), true));
            let bytes = pattern(length as usize);
            upload(&mut lanes, put, &bytes, false);
            assert!(download(&mut lanes, get, length as usize) == bytes);
            assert_eq!(session.wait(get).status, 0);
            let after = [FROM, TO].map(|name| daemon.count(name));
            assert_eq!(after[0] - before[0], length);
            // Sent bytes are counted when the socket has them, which may be a moment after they have arrived.
            assert!(after[1] - before[1] <= length);
        }
        session.ping();
        let commands = daemon.count(COMMANDS);
        assert!(commands >= 8, "{commands}");
        let bytes = daemon.count(FROM);
        let worker = rustix::process::Pid::from_raw(session.worker() as i32).unwrap();
        rustix::process::kill_process(worker, rustix::process::Signal::KILL).unwrap();
        session.ends();
        let until = std::time::Instant::now() + crate::common::LIMIT;
        while daemon.count("causeway_sessions") > 0 {
            assert!(std::time::Instant::now() < until, "the session stays");
        }
        assert_eq!(
            daemon.count("causeway_sessions_ended_total{reason=\"died\"}"),
            1
        );
        assert!(daemon.count(COMMANDS) >= commands);
        assert_eq!(daemon.count(FROM), bytes);
        assert_eq!(daemon.count(TO), bytes, "all read bytes were counted");
    }
}
