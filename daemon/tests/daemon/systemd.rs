//! Tests under a service manager: readiness, and sockets that it opened.

use std::os::unix::net::UnixDatagram;
use std::process::Command;

use crate::support::{PATIENCE, Setup, eventually};

#[tokio::test]
async fn readiness_and_the_end_are_told() {
    let setup = Setup::new();
    let path = setup.folder().join("notify");
    let manager = UnixDatagram::bind(&path).unwrap();
    manager.set_read_timeout(Some(PATIENCE)).unwrap();
    let mut daemon = setup.env("NOTIFY_SOCKET", &path).start();
    let mut said = [0; 64];
    let n = manager.recv(&mut said).unwrap();
    assert_eq!(&said[..n], b"READY=1");
    daemon.signal(rustix::process::Signal::TERM);
    let n = manager.recv(&mut said).unwrap();
    assert_eq!(&said[..n], b"STOPPING=1");
    assert!(daemon.wait().success());
}

/// A shell passes the listener as a service manager does, and becomes the daemon.
#[tokio::test]
async fn a_passed_socket_is_served() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let script = format!(
        "exec 3<&0 </dev/null; export LISTEN_FDS=1 LISTEN_PID=$$; exec {daemon:?} --log off",
        daemon = env!("CARGO_BIN_EXE_causewayd"),
    );
    let folder = tempfile::tempdir().unwrap();
    let output = std::fs::File::create(folder.path().join("out")).unwrap();
    let mut child = Command::new("/bin/sh")
        .args(["-c", &script])
        .env("OCL_ICD_VENDORS", folder.path())
        .env("CAUSEWAYD_BUILD_CACHE_SIZE", "0")
        .stdin(std::os::fd::OwnedFd::from(listener))
        .stdout(output)
        .spawn()
        .unwrap();
    let said = eventually("the line", || {
        let said = std::fs::read_to_string(folder.path().join("out")).unwrap();
        said.ends_with('\n').then_some(said)
    });
    assert_eq!(said, format!("listening on {address}\n"));
    let mut client = crate::support::client(address).await;
    let request = causeway_proto::control::GetStatusRequest {
        wire_version: crate::support::VERSION,
    };
    assert!(client.get_status(request).await.is_ok());
    child.kill().unwrap();
    child.wait().unwrap();
}
