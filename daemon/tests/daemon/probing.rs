//! Tests of the inventory when drivers change, crash or hang.

use std::path::Path;

use causeway_proto::preamble::Purpose;

use crate::support::{Setup, read_to_close};

/// The registration of PoCL, which every machine that runs these tests has.
const POCL: &str = "/etc/OpenCL/vendors/pocl.icd";

#[tokio::test]
async fn no_driver_is_a_problem_to_tell_and_no_failure() {
    let daemon = Setup::new().start();
    let inventory = daemon.inventory().await;
    assert!(inventory.platforms.is_empty());
    assert!(!inventory.problems.is_empty());
    assert_eq!(daemon.status().await.problems, inventory.problems);
}

#[tokio::test]
async fn a_driver_installed_later_is_found() {
    let daemon = Setup::new().start();
    let before = daemon.inventory().await;
    assert!(before.platforms.is_empty());
    let vendors = daemon.folder.path().join("vendors");
    std::fs::copy(Path::new(POCL), vendors.join("pocl.icd")).unwrap();
    let after = daemon.inventory().await;
    assert_eq!(after.platforms.len(), 1, "{:?}", after.problems);
    assert_ne!(before.generation, after.generation);
    // The spare worker that listed no device does not serve the session.
    daemon.open().await;
}

#[tokio::test]
async fn the_machines_devices_are_listed_with_their_answers() {
    let daemon = Setup::with_drivers().start();
    let inventory = daemon.inventory().await;
    assert!(!inventory.node_name.is_empty());
    assert_eq!(inventory.daemon_version, env!("CARGO_PKG_VERSION"));
    let device = &inventory.platforms[0].devices[0];
    let name = device
        .info
        .iter()
        .find(|answer| answer.name == 0x102b)
        .unwrap();
    assert!(name.value.len() > 1 && name.status == 0);
}

#[tokio::test]
async fn a_driver_that_crashes_is_told_by_its_signal() {
    let crash = "[[call]]\nname = \"clGetDeviceIDs\"\ncrash = \"segv\"\n";
    let daemon = Setup::with_fake_driver(crash).start();
    let inventory = daemon.inventory().await;
    assert!(inventory.platforms.is_empty());
    let problem = &inventory.problems[0];
    assert!(problem.contains("signal SIGSEGV"), "{problem}");
    assert_eq!(daemon.status().await.problems, inventory.problems);

    // The driver is repaired: its file changes, and the next query notices that.
    let folder = daemon.folder.path();
    std::fs::write(folder.join("fake.toml"), "").unwrap();
    let icd = folder.join("vendors/fake.icd");
    let repaired = std::fs::read_to_string(&icd).unwrap() + "# repaired\n";
    std::fs::write(&icd, repaired).unwrap();
    let inventory = daemon.inventory().await;
    assert_eq!(inventory.platforms.len(), 1, "{:?}", inventory.problems);
    assert!(inventory.problems.is_empty());
    daemon.assert_serves().await;
}

#[tokio::test]
async fn a_driver_that_hangs_is_given_up_and_leaves_no_process() {
    let hang = "[[call]]\nname = \"clGetDeviceIDs\"\ndelay_us = 600000000\n";
    let daemon = Setup::with_fake_driver(hang)
        .args(&["--spare-workers", "0"])
        .config("[inventory]\nprobe_time_limit = 1\n")
        .start();
    let inventory = daemon.inventory().await;
    let problem = &inventory.problems[0];
    assert!(problem.contains("more than 1 s"), "{problem}");
    assert!(daemon.children().is_empty());
}

#[tokio::test]
async fn a_spare_worker_that_dies_is_not_replaced_in_a_frenzy() {
    let crash = "[[call]]\nname = \"clGetPlatformInfo\"\ncrash = \"abort\"\n";
    let daemon = Setup::with_fake_driver(crash).start();
    daemon.inventory().await;
    daemon.until(|status| status.spare_workers == 0).await;
    assert!(daemon.children().is_empty());
    assert_eq!(daemon.log().matches("a spare worker ended").count(), 1);
}

#[tokio::test]
async fn a_driver_that_hangs_for_a_session_ends_the_session() {
    let daemon = Setup::with_fake_driver("")
        .args(&["--spare-workers", "0"])
        .config("[inventory]\nprobe_time_limit = 1\n[sessions]\nconnect_limit = 1\n")
        .start();
    assert_eq!(daemon.inventory().await.platforms.len(), 1);
    let hang = "[[call]]\nname = \"clGetDeviceIDs\"\ndelay_us = 600000000\n";
    std::fs::write(daemon.folder.path().join("fake.toml"), hang).unwrap();
    let session = daemon.open().await;
    let mut commands = session.connect(Purpose::Commands, 0).unwrap();
    assert!(read_to_close(&mut commands).is_empty());
    daemon.until_sessions(0).await;
    assert!(daemon.log().contains("did not load before the timeout"));
}
