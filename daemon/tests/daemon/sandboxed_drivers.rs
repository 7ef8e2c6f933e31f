//! Tests of a driver that needs more than the sandbox allows.

use std::path::Path;
use std::process::Command;

use crate::support::Setup;

/// A driver that is linked to the fake driver, which is in a folder that no rule allows.
fn behind() -> Setup {
    let setup = Setup::new();
    let [near, far] = ["near", "far"].map(|name| setup.folder().join(name));
    std::fs::create_dir(&near).unwrap();
    std::fs::create_dir(&far).unwrap();
    let fake = std::env::current_exe()
        .unwrap()
        .with_file_name("libfake_opencl.so");
    std::fs::copy(fake, far.join("libfar.so")).unwrap();
    let driver = near.join("libnear.so");
    let linked = Command::new("cc")
        .args(["-shared", "-o"])
        .arg(&driver)
        .arg("-Wl,--no-as-needed")
        .arg(format!("-Wl,-rpath,{}", far.display()))
        .arg(far.join("libfar.so"))
        .status()
        .unwrap();
    assert!(linked.success());
    let icd = setup.folder().join("vendors/near.icd");
    std::fs::write(icd, format!("{}\n", driver.display())).unwrap();
    setup
}

fn read(folder: &Path) -> String {
    format!("[sandbox]\nread = [{:?}]\n", folder.join("far"))
}

#[tokio::test]
async fn its_devices_are_named_with_the_cure() {
    let daemon = behind().start();
    let inventory = daemon.inventory().await;
    assert!(inventory.platforms.is_empty());
    let told = inventory.problems.last().unwrap();
    assert!(told.contains("sandbox hides devices: "), "{told}");
    assert!(told.contains("fall_back = true"), "{told}");
    assert_eq!(daemon.status().await.problems, inventory.problems);
}

#[tokio::test]
async fn what_the_settings_add_is_reached() {
    let setup = behind();
    let wider = read(setup.folder());
    let daemon = setup.config(&wider).start();
    let inventory = daemon.inventory().await;
    assert_eq!(inventory.platforms.len(), 1, "{:?}", inventory.problems);
    assert!(inventory.problems.is_empty());
    daemon.assert_serves().await;
}

#[tokio::test]
async fn without_the_sandbox_it_goes_on_where_that_is_allowed() {
    let daemon = behind().config("[sandbox]\nfall_back = true\n").start();
    let inventory = daemon.inventory().await;
    assert_eq!(inventory.platforms.len(), 1, "{:?}", inventory.problems);
    let said = |text: &str| inventory.remarks.iter().any(|r| r.contains(text));
    assert!(said("fall_back"), "{:?}", inventory.remarks);
    daemon.assert_serves().await;
    assert!(daemon.log().contains("fall_back"));
}

#[tokio::test]
async fn a_sandbox_that_is_switched_off_is_told() {
    let daemon = behind().args(&["--no-sandbox"]).start();
    let inventory = daemon.inventory().await;
    assert_eq!(inventory.platforms.len(), 1, "{:?}", inventory.problems);
    assert!(inventory.remarks[0].contains("is disabled"));
}
