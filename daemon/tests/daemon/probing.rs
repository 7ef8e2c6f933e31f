//! The inventory, and what happens to it when drivers change, crash or hang.

use std::path::Path;

use crate::support::Setup;

/// PoCL, which every machine that runs these tests has.
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
    // The spare worker that had listed nothing is not the one that serves.
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
