//! The figures of NVIDIA's cards reach `causeway top`, metrics and the dashboard, or the tool says why not. The fake
//! driver plays NVIDIA's, and NVML.

use std::time::Instant;

use serde_json::{Value, json};

use super::super::dashboard::snapshot;
use super::super::process::{AT_MOST, DASHBOARD, Manager};
use super::super::real_node::{Daemon, programs};
use super::super::watching::get;
use super::Tool;

/// A whole card, and one whose utilization the library does not say.
const DEVICES: &str = "
[[device]]
name = \"Whole\"
vendor_id = 0x10DE
card = { utilization = 37, memory_used = 1048576, temperature = 55 }
[[device]]
name = \"Part\"
vendor_id = 0x10DE
card = { memory_used = 2097152, temperature = 44 }
";

/// A node with these cards, and a manager with a dashboard.
struct Site {
    manager: Manager,
    daemon: Daemon,
    /// A node of the same kind without a manager, whose devices anybody may look at.
    alone: Daemon,
    admin: Tool,
    _folder: tempfile::TempDir,
}

impl Site {
    fn start(has_nvml: bool) -> Site {
        let manager = Manager::configured(DASHBOARD);
        let folder = tempfile::tempdir().unwrap();
        let driver = programs().join("libfake_opencl.so");
        let libraries = folder.path().join("libraries");
        std::fs::create_dir(&libraries).unwrap();
        if has_nvml {
            let nvml = libraries.join("libnvidia-ml.so.1");
            std::os::unix::fs::symlink(driver, nvml).unwrap();
        }
        let start = |name: &str, text: &str| {
            let own = folder.path().join(name);
            std::fs::create_dir(&own).unwrap();
            let listen = ["--listen", "127.0.0.1:0"];
            Daemon::over(&own, text, &listen, DEVICES, Some(&libraries))
        };
        let text = format!("[manager]\naddress = [\"{}\"]\n", manager.address);
        let (daemon, alone) = (start("managed", &text), start("alone", ""));
        let address = manager.address.to_string();
        let admin = Tool::of("admin").with("CAUSEWAY_MANAGER", address);
        Site {
            manager,
            daemon,
            alone,
            admin,
            _folder: folder,
        }
    }

    /// The devices of the node, once there are two and the condition holds. Heartbeats bring their figures.
    fn devices_once(&self, holds: impl Fn(&Value) -> bool) -> Value {
        let begin = Instant::now();
        loop {
            let load = self.admin.json("top --interval 100ms");
            let devices = &load["nodes"][0]["devices"];
            if devices.as_array().is_some_and(|of| of.len() == 2) && holds(devices) {
                return devices.clone();
            }
            assert!(begin.elapsed() < AT_MOST, "{load}");
        }
    }

    /// Waits until `causeway doctor` has such a finding about the node without a manager, whose first question makes it
    /// read its cards.
    fn doctor_finds(&self, is_it: impl Fn(&Value) -> bool) {
        let tool = Tool::of("ann").with("CAUSEWAY_SERVERS", self.alone.address().to_string());
        let begin = Instant::now();
        loop {
            let findings = tool.json("doctor");
            if findings.as_array().unwrap().iter().any(&is_it) {
                return;
            }
            assert!(begin.elapsed() < AT_MOST, "{findings}");
        }
    }
}

fn figures(device: &Value) -> Value {
    let names = [
        "utilization_percent",
        "memory_used_bytes",
        "temperature_celsius",
    ];
    json!(names.map(|name| device["use"][name].clone()))
}

#[tokio::test(flavor = "multi_thread")]
async fn the_figures_of_cards_reach_top_metrics_and_the_dashboard() {
    let site = Site::start(true);
    let devices = site.devices_once(|of| figures(&of[1])[2] == 44);
    let expected = [json!([37, 1 << 20, 55]), json!([null, 2 << 20, 44])];
    assert_eq!([figures(&devices[0]), figures(&devices[1])], expected);
    let text = site.admin.does("top --once --interval 100ms");
    let line = |name: &str| text.lines().find(|line| line.contains(name)).expect(&text);
    assert!(line("Whole").contains("37 %") && line("Whole").contains("55 °C"));
    assert!(!line("Part").contains("37 %") && line("Part").contains("44 °C"));
    let page = snapshot(site.manager.dashboard()).await;
    let shown = page["devices"].as_object().unwrap().values();
    let mut shown: Vec<_> = shown.map(figures).collect();
    shown.sort_by_key(|of| of[2].as_u64());
    assert_eq!(shown, [expected[1].clone(), expected[0].clone()]);
    let metrics = get(site.daemon.watched_at(), "/metrics").await;
    for line in [
        "causeway_device_utilization_percent{device=\"0.0\"} 37",
        "causeway_device_memory_used_bytes{device=\"0.1\"} 2097152",
        "causeway_device_temperature_celsius{device=\"0.1\"} 44",
    ] {
        assert!(metrics.lines().any(|of| of == line), "{line}: {metrics}");
    }
    assert!(!metrics.contains("causeway_device_utilization_percent{device=\"0.1\"}"));
    site.doctor_finds(|of| {
        let found = of["found"].as_str().unwrap_or_default();
        found.ends_with("the driver tells no utilization of Part")
    });
}

#[tokio::test(flavor = "multi_thread")]
async fn without_the_library_the_columns_are_empty_and_doctor_says_why() {
    let site = Site::start(false);
    site.doctor_finds(|of| {
        of["found"].as_str().is_some_and(|of| of.contains("CARDS"))
            && of["cure"]
                .as_str()
                .is_some_and(|of| of.contains("libnvidia-ml.so.1"))
    });
    // Metrics wait for a reading, so that what follows could have come.
    site.devices_once(|_| true);
    let metrics = get(site.daemon.watched_at(), "/metrics").await;
    assert!(!metrics.contains("causeway_device_utilization"));
    let devices = site.devices_once(|_| true);
    let none = json!([null, null, null]);
    for device in devices.as_array().unwrap() {
        assert_eq!(figures(device), none);
    }
    let page = snapshot(site.manager.dashboard()).await;
    for device in page["devices"].as_object().unwrap().values() {
        assert_eq!(figures(device), none);
    }
}
