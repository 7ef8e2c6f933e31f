//! Tests of what the node says about cards: use, memory, temperature, and what a process takes by itself. The fake
//! driver plays NVIDIA's, and NVML.

use causeway_proto::control::{CardReading, DeviceUse};

use crate::common::{Daemon, eventually};

const MIB: u64 = 1 << 20;

/// A folder with NVML, and what it says about the card.
struct Cards(tempfile::TempDir);

impl Cards {
    fn new() -> Cards {
        let folder = tempfile::tempdir().unwrap();
        let driver = std::env::current_exe().unwrap();
        let driver = driver.with_file_name("libfake_opencl.so");
        std::os::unix::fs::symlink(driver, folder.path().join("libnvidia-ml.so.1")).unwrap();
        Cards(folder)
    }

    fn start(&self, card: &str) -> Daemon {
        let settings = format!("[[device]]; vendor_id = 0x10DE; {card}");
        let libraries = self.0.path().to_str().unwrap();
        let watched = ["--metrics", "127.0.0.1:0"];
        Daemon::fake_with(&settings, &watched, &[("LD_LIBRARY_PATH", libraries)])
    }
}

fn usage(daemon: &Daemon) -> DeviceUse {
    let [usage] = daemon.inventory().uses[..] else {
        panic!("one device");
    };
    usage
}

/// What the node says about cards that it cannot read.
fn remarks(daemon: &Daemon) -> Vec<String> {
    let mut remarks = daemon.inventory().remarks;
    remarks.retain(|of| of.starts_with("CARDS:"));
    remarks
}

/// Waits until a line of the metrics is there.
fn until_told(daemon: &Daemon, line: &str) {
    eventually(line, || {
        let metrics = daemon.metrics();
        metrics.lines().any(|of| of == line).then_some(())
    });
}

const CARD: &str = "card = { utilization = 37, memory_used = 1048576, temperature = 55, context_memory = 555745280 }";

#[test]
fn a_card_is_seen_and_what_a_process_takes_of_it() {
    let cards = Cards::new();
    let daemon = cards.start(CARD);
    for line in [
        "causeway_device_utilization_percent{device=\"0.0\"} 37",
        "causeway_device_memory_used_bytes{device=\"0.0\"} 1048576",
        "causeway_device_memory_bytes{device=\"0.0\"} 4294967296",
        "causeway_device_temperature_celsius{device=\"0.0\"} 55",
        "causeway_device_context_memory_bytes{device=\"0.0\"} 555745280",
    ] {
        until_told(&daemon, line);
    }
    let usage = usage(&daemon);
    let reading = CardReading {
        utilization: Some(37),
        memory_used: Some(MIB),
        memory_total: Some(4096 * MIB),
        temperature: Some(55),
    };
    assert_eq!(usage.card, Some(reading));
    assert_eq!((usage.context_memory, usage.busy_ns), (Some(530 * MIB), 0));
    assert_eq!(remarks(&daemon), [""; 0]);
}

#[test]
fn a_driver_without_the_library_is_served_as_before() {
    let daemon = Daemon::fake_with(
        &format!("[[device]]; vendor_id = 0x10DE; {CARD}"),
        &["--metrics", "127.0.0.1:0"],
        &[],
    );
    assert_eq!(usage(&daemon), DeviceUse::default());
    let [remark] = &remarks(&daemon)[..] else {
        panic!("one remark");
    };
    assert!(remark.contains("install libnvidia-ml.so.1"), "{remark}");
    let metrics = daemon.metrics();
    assert!(
        !metrics.contains("causeway_device_utilization"),
        "{metrics}"
    );
    assert!(
        metrics.contains("causeway_device_busy_seconds_total{device=\"0.0\"} 0"),
        "{metrics}"
    );
}

#[test]
fn a_library_that_crashes_harms_nobody() {
    let cards = Cards::new();
    let daemon = cards.start("card = { crash = true }");
    // The processes that use it die.
    for _ in 0..3 {
        let metrics = daemon.metrics();
        assert!(
            !metrics.contains("causeway_device_utilization"),
            "{metrics}"
        );
        assert_eq!(usage(&daemon).card, Some(CardReading::default()));
    }
    let remark = eventually("a remark", || remarks(&daemon).pop());
    assert!(remark.contains("has failed"), "{remark}");
    let mut session = daemon.session();
    let context = session.context();
    let queue = session.queue(context, 0);
    let buffer = session.buffer(context, 4, &[1, 2, 3, 4]);
    assert_eq!(session.bytes(queue, buffer, 0, 4)[..], [1, 2, 3, 4]);
}
