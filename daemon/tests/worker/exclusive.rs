//! Tests of a card in exclusive compute mode: one session's process at a time has contexts on it, or one host for
//! several sessions. The fake driver plays NVIDIA's, and NVML.

use std::time::Instant;

use tonic::{Code, Status};

use crate::common::{Daemon, LIMIT, Session};

/// A device of NVIDIA's that one process at a time can use.
fn card(folder: &tempfile::TempDir) -> String {
    let lock = folder.path().join("lock");
    format!("[[device]]; vendor_id = 0x10DE; exclusive = {lock:?}")
}

/// Creates a context and a buffer on the card.
fn uses_the_card(session: &mut Session) {
    let context = session.context();
    let _buffer = session.buffer(context, 64, &[]);
    session.ping();
    let notices = &session.heard.notices;
    assert!(notices.is_empty(), "{notices:?}");
}

/// Starts a daemon with such a card, and NVML.
fn daemon(folder: &tempfile::TempDir, arguments: &[&str]) -> Daemon {
    let driver = std::env::current_exe().unwrap();
    let driver = driver.with_file_name("libfake_opencl.so");
    std::os::unix::fs::symlink(driver, folder.path().join("libnvidia-ml.so.1")).unwrap();
    let libraries = folder.path().to_str().unwrap();
    Daemon::fake_with(&card(folder), arguments, &[("LD_LIBRARY_PATH", libraries)])
}

fn opens(daemon: &Daemon) -> Session {
    let mut session = daemon.session();
    uses_the_card(&mut session);
    session
}

/// Opens a session as soon as the one before has ended.
fn until_admitted(open: impl Fn() -> Result<Session, Status>) -> Session {
    let until = Instant::now() + LIMIT;
    loop {
        match open() {
            Ok(session) => return session,
            Err(status) => assert_eq!(status.code(), Code::ResourceExhausted, "{status}"),
        }
        assert!(Instant::now() < until, "no session is admitted");
    }
}

#[test]
fn a_session_gets_the_card_when_the_one_before_has_ended() {
    let folder = tempfile::tempdir().unwrap();
    let daemon = daemon(&folder, &[]);
    let first = opens(&daemon);
    let refused = Session::try_open(&daemon, &[]).err().expect("no session");
    assert_eq!(refused.code(), Code::ResourceExhausted, "{refused}");
    drop(first);
    let mut second = until_admitted(|| Session::try_open(&daemon, &[]));
    uses_the_card(&mut second);
}

#[test]
fn sessions_of_one_host_have_the_card_together_and_an_idle_host_makes_way() {
    let folder = tempfile::tempdir().unwrap();
    let daemon = daemon(&folder, &["--together", "user"]);
    let both = [opens(&daemon), opens(&daemon)];
    drop(both);
    // The host is kept for a minute, and the session that wants a process of its own gets the card.
    let mut alone = until_admitted(|| Session::try_open_isolated(&daemon));
    uses_the_card(&mut alone);
}
