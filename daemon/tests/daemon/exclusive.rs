//! Tests of devices in exclusive compute mode. The fake driver plays NVIDIA's, and NVML.

use causeway_proto::control::{CloseSessionRequest, ComputeMode, Inventory};
use tonic::Code;

use crate::support::{Daemon, Setup};

/// A device of NVIDIA's that one process at a time can use.
fn exclusive(folder: &tempfile::TempDir) -> String {
    let lock = folder.path().join("lock");
    format!("[[device]]\nname = \"Card\"\nvendor_id = 0x10DE\nexclusive = {lock:?}\n")
}

/// A daemon whose driver has no NVML.
fn without_nvml(folder: &tempfile::TempDir, devices: &str) -> Setup {
    Setup::with_fake_driver(devices).env("CAUSEWAYD_SANDBOX_WRITE", folder.path())
}

fn setup(folder: &tempfile::TempDir, devices: &str) -> Setup {
    let driver = std::env::current_exe().unwrap();
    let driver = driver.with_file_name("libfake_opencl.so");
    std::os::unix::fs::symlink(driver, folder.path().join("libnvidia-ml.so.1")).unwrap();
    without_nvml(folder, devices).env("LD_LIBRARY_PATH", folder.path())
}

fn modes(inventory: &Inventory) -> Vec<ComputeMode> {
    let devices = inventory.platforms.iter().flat_map(|of| &of.devices);
    devices.map(|device| device.compute_mode()).collect()
}

/// Returns why a session was refused.
async fn refusal(daemon: &Daemon) -> String {
    let status = daemon.try_open().await.expect_err("no session");
    assert_eq!(status.code(), Code::ResourceExhausted, "{status}");
    status.message().to_owned()
}

#[tokio::test]
async fn an_exclusive_device_has_one_session_at_a_time() {
    let folder = tempfile::tempdir().unwrap();
    let daemon = setup(&folder, &exclusive(&folder)).start();
    let inventory = daemon.inventory().await;
    assert_eq!(modes(&inventory), [ComputeMode::Exclusive]);
    let remark = "EXCLUSIVE: Card is in exclusive compute mode";
    let has = |remarks: &[String]| remarks.iter().any(|of| of.starts_with(remark));
    assert!(has(&inventory.remarks), "{:?}", inventory.remarks);
    let session = daemon.open().await;
    let why = refusal(&daemon).await;
    assert!(
        why.contains("in exclusive compute mode, and another session uses it"),
        "{why}"
    );
    let close = CloseSessionRequest {
        session_id: session.id.0.to_vec().into(),
        session_secret: session.secret.0.to_vec().into(),
    };
    daemon.client().await.close_session(close).await.unwrap();
    daemon.until_sessions(0).await;
    daemon.open().await;
}

#[tokio::test]
async fn sessions_that_may_use_other_devices_are_admitted() {
    let folder = tempfile::tempdir().unwrap();
    let devices = format!("{}[[device]]\nname = \"Other\"\n", exclusive(&folder));
    let daemon = setup(&folder, &devices).start();
    let inventory = daemon.inventory().await;
    assert_eq!(
        modes(&inventory),
        [ComputeMode::Exclusive, ComputeMode::Unknown]
    );
    let _first = daemon.open().await;
    daemon.open().await;
}

#[tokio::test]
async fn a_device_in_the_mode_of_new_cards_is_shared() {
    let folder = tempfile::tempdir().unwrap();
    let daemon = setup(&folder, "[[device]]\nvendor_id = 0x10DE\n").start();
    let inventory = daemon.inventory().await;
    assert_eq!(modes(&inventory), [ComputeMode::Shared]);
    assert!(!inventory.remarks.iter().any(|of| of.contains("EXCLUSIVE")));
}

#[tokio::test]
async fn without_nvml_the_mode_is_unknown_and_nothing_changes() {
    let folder = tempfile::tempdir().unwrap();
    let daemon = without_nvml(&folder, &exclusive(&folder)).start();
    let inventory = daemon.inventory().await;
    assert_eq!(modes(&inventory), [ComputeMode::Unknown]);
    assert!(inventory.remarks.iter().all(|of| !of.contains("EXCLUSIVE")));
    let _first = daemon.open().await;
    daemon.open().await;
}

/// A managed node with shares of a card of 4 GiB, of which each process takes 500 MiB by itself.
fn with_shares(folder: &tempfile::TempDir, shares: &str) -> Setup {
    const CARD: &str =
        "[[device]]\nname = \"Card\"\nvendor_id = 0x10DE\ncard = { context_memory = 524288000 }\n";
    setup(folder, CARD)
        .config(&format!("[[shares]]\ndevice = \"0.0\"\n{shares}"))
        .args(&["--manager", "127.0.0.1:1"])
}

#[test]
fn shares_of_more_memory_than_the_card_has_are_refused_at_the_start() {
    // 4 shares of 600 MiB, and 4 processes of 500 MiB.
    let shares = "count = 4\nmemory = 629145600\n";
    let folder = tempfile::tempdir().unwrap();
    let refused = with_shares(&folder, shares).args(&["--listen", "127.0.0.1:0"]);
    let (said, status) = refused.refused();
    let sum = 4 * (600_u64 << 20) + 4 * (500 << 20);
    let text = format!("are {sum} bytes, but Card has {}", 4_u64 << 30);
    assert!(
        said.contains("[[shares]] 0.0: 4 shares") && said.contains(&text),
        "{said}"
    );
    assert_eq!(status.code(), Some(1));
    // Here all shares have one process, and there each is smaller.
    for shares in [
        &format!("{shares}together = \"all\"\n"),
        "count = 4\nmemory = 512000000\n",
    ] {
        let folder = tempfile::tempdir().unwrap();
        drop(with_shares(&folder, shares).start());
    }
}

#[test]
fn shares_of_an_exclusive_device_are_refused_at_the_start() {
    let folder = tempfile::tempdir().unwrap();
    let (said, status) = setup(&folder, &exclusive(&folder))
        .config("[[shares]]\ndevice = \"0.0\"\ncount = 2\n")
        .args(&["--listen", "127.0.0.1:0", "--manager", "127.0.0.1:1"])
        .refused();
    let why = "[[shares]] 0.0: Card is in exclusive compute mode";
    assert!(
        said.contains(why) && said.contains("nvidia-smi -c DEFAULT"),
        "{said}"
    );
    assert_eq!(status.code(), Some(1));
}
