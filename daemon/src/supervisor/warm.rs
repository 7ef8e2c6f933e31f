//! The devices on which spare workers and hosts keep a context ready (`[sessions] warm`), and when spare
//! workers may make these contexts.
//!
//! Pure: the time is passed in. The workers make the contexts (`worker::objects::warm`). Invariant: after a worker
//! died or hung over its contexts, spare workers make none for [`BACKOFF`]. So a driver that fails in this way costs
//! few processes, and sessions find workers that have not tried.

use std::time::{Duration, Instant};

use causeway_proto::control::{ComputeMode, Device, Inventory};
use causeway_proto::id::{DeviceIndex, PlatformIndex};

use super::devices::{is_selected, listed, name_of};
use super::exclusive;
use crate::config::{MAX_WARM, Settings, WarmDevices, WhichDevice};

/// Pause after a worker died or hung while it made contexts.
const BACKOFF: Duration = Duration::from_secs(600);
/// Time after which a driver hangs that has not made a worker's contexts.
const HANGS_AFTER: Duration = Duration::from_secs(60);

/// A device by its indices on the wire.
pub(super) type WarmDevice = (PlatformIndex, DeviceIndex);

/// What spare workers are to make ready.
#[derive(Debug, Default)]
pub(super) struct Warming {
    devices: Vec<WarmDevice>,
    paused_until: Option<Instant>,
}

impl Warming {
    /// Sets the devices. A change of them also ends the pause after a crash, because it means other drivers.
    pub(super) fn set(&mut self, devices: Vec<WarmDevice>) {
        if self.devices != devices {
            self.paused_until = None;
            self.devices = devices;
        }
    }

    /// Returns the devices for a spare worker that runs at `now`; empty if it is to make no contexts.
    pub(super) fn devices(&self, now: Instant) -> &[WarmDevice] {
        match self.paused_until {
            Some(until) if now < until => &[],
            _ => &self.devices,
        }
    }

    /// Notes that a worker died while it made contexts.
    pub(super) fn note_crash(&mut self, now: Instant) {
        self.pause(now, "died");
    }

    /// Notes that a worker makes contexts since then. If it does so for too long, the driver hangs.
    pub(super) fn note_under_way(&mut self, since: Instant, now: Instant) {
        if now.saturating_duration_since(since) >= HANGS_AFTER {
            self.pause(now, "hangs");
        }
    }

    fn pause(&mut self, now: Instant, what: &str) {
        if self.paused_until.is_none_or(|until| until <= now) {
            tracing::error!(
                pause = ?BACKOFF,
                "a worker {what} over contexts for [sessions] warm; spare workers make none for this time, and sessions make \
                 their own; if this goes on, take the device out of warm"
            );
        }
        self.paused_until = Some(now + BACKOFF);
    }
}

/// Returns the devices that the settings select and that several processes may use, in the order of the inventory.
/// On a device in exclusive mode, a context that nobody uses yet would keep others away.
pub(super) fn devices(warm: &WarmDevices, inventory: &Inventory) -> Vec<WarmDevice> {
    let chosen = listed(inventory).filter(|(at, device)| match warm {
        WarmDevices::All => true,
        WarmDevices::Listed(which) => which.iter().any(|which| is_selected(which, *at, device)),
    });
    chosen
        .filter(|(_, device)| may_be_warm(device))
        .map(|(at, _)| (PlatformIndex(at.platform), DeviceIndex(at.device)))
        .take(MAX_WARM)
        .collect()
}

fn may_be_warm(device: &Device) -> bool {
    match device.compute_mode() {
        ComputeMode::Exclusive | ComputeMode::Prohibited => false,
        ComputeMode::Shared | ComputeMode::Unknown => true,
    }
}

/// Returns what is wrong with the settings on this node.
pub(super) fn faults(settings: &Settings, inventory: &Inventory) -> Vec<String> {
    let mut faults = Vec::new();
    if let WarmDevices::Listed(which) = &settings.warm {
        let is_there =
            |which: &WhichDevice| listed(inventory).any(|(at, of)| is_selected(which, at, of));
        let absent = which.iter().filter(|which| !is_there(which));
        faults.extend(absent.map(|which| {
            format!(
                "[sessions] warm names the device {which}, but this node has no such device; causeway devices lists them"
            )
        }));
    }
    if !settings.warm.is_none() {
        let kept_free = listed(inventory).filter(|(_, device)| !may_be_warm(device));
        faults.extend(kept_free.map(|(_, device)| {
            format!(
                "[sessions] warm has no effect on {}, because one process at a time can use it; change its compute mode with \
                 nvidia-smi -c DEFAULT as root",
                exclusive::name(device)
            )
        }));
    }
    if !settings.warm.is_none() && settings.sessions.spare_workers == 0 {
        faults.push(
            "[sessions] warm has no effect, because there are no spare workers; set spare_workers to 1 or more"
                .to_owned(),
        );
    }
    faults
}

/// Returns the remark of a node that keeps contexts ready, for tools.
pub(super) fn remark(warm: &WarmDevices, inventory: &Inventory) -> Option<String> {
    let warm = devices(warm, inventory);
    let names: Vec<String> = listed(inventory)
        .filter(|(at, _)| warm.contains(&(PlatformIndex(at.platform), DeviceIndex(at.device))))
        .map(|(at, device)| {
            let name = String::from_utf8_lossy(name_of(device).unwrap_or_default());
            format!("{name} ({}.{})", at.platform, at.device)
        })
        .collect();
    (!names.is_empty()).then(|| {
        format!(
            "WARM: spare workers keep a context ready on {}, and each context takes memory of its device; to free it, remove the \
             device from [sessions] warm",
            names.join(", ")
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{ConfigFile, Flags};
    use crate::supervisor::devices::NAME;
    use causeway_proto::control::{InfoAnswer, Platform};
    use std::path::Path;

    fn inventory() -> Inventory {
        let device = |name: &str| Device {
            info: vec![InfoAnswer {
                name: NAME,
                value: [name.as_bytes(), b"\0"].concat().into(),
                status: 0,
            }],
            ..Device::default()
        };
        let platform = |devices| Platform {
            info: Vec::new(),
            devices,
        };
        Inventory {
            platforms: vec![
                platform(vec![device("a"), device("b")]),
                platform(vec![device("a")]),
            ],
            ..Inventory::default()
        }
    }

    fn settings(text: &str) -> Settings {
        let file = ConfigFile::parse(Path::new("daemon.toml"), format!("[sessions]\n{text}\n"));
        Settings::combine(&Flags::default(), &file.unwrap()).unwrap()
    }

    fn of(text: &str) -> Vec<(u32, u32)> {
        let devices = devices(&settings(text).warm, &inventory());
        devices.iter().map(|(p, d)| (p.0, d.0)).collect()
    }

    #[test]
    fn devices_are_found_by_name_and_place() {
        assert!(of("").is_empty());
        assert_eq!(of("warm = \"all\""), [(0, 0), (0, 1), (1, 0)]);
        assert_eq!(of("warm = [\"1.0\", \"b\", \"0.1\"]"), [(0, 1), (1, 0)]);
        assert_eq!(of("warm = [\"a\"]"), [(0, 0), (1, 0)]);
    }

    #[test]
    fn devices_of_one_process_stay_free() {
        let mut inventory = inventory();
        inventory.platforms[0].devices[0].compute_mode = ComputeMode::Exclusive.into();
        inventory.platforms[1].devices[0].compute_mode = ComputeMode::Shared.into();
        let settings = settings("warm = \"all\"");
        let found = devices(&settings.warm, &inventory);
        let found: Vec<_> = found.iter().map(|(p, d)| (p.0, d.0)).collect();
        assert_eq!(found, [(0, 1), (1, 0)]);
        let faults = faults(&settings, &inventory);
        assert!(
            faults.len() == 1 && faults[0].contains("no effect on a,"),
            "{faults:?}"
        );
    }

    #[test]
    fn absent_devices_and_absent_spare_workers_are_reported() {
        assert!(faults(&settings("warm = [\"a\", \"0.1\"]"), &inventory()).is_empty());
        assert!(faults(&settings("spare_workers = 0"), &inventory()).is_empty());
        let found = faults(&settings("warm = [\"c\", \"0.2\", \"b\"]"), &inventory());
        assert_eq!(found.len(), 2);
        assert!(found[0].contains("names the device c,"), "{found:?}");
        assert!(found[1].contains("names the device 0.2,"), "{found:?}");
        let found = faults(&settings("warm = \"all\"\nspare_workers = 0"), &inventory());
        assert!(found.len() == 1 && found[0].contains("spare_workers"));
    }

    #[test]
    fn tools_see_the_devices_by_name() {
        let remark = |text| remark(&settings(text).warm, &inventory());
        assert_eq!(remark("warm = [\"c\"]"), None);
        let text = remark("warm = [\"b\", \"1.0\"]").unwrap();
        assert!(text.contains("b (0.1), a (1.0),"), "{text}");
    }

    #[test]
    fn a_crash_pauses_until_the_time_is_over_or_the_devices_change() {
        let now = Instant::now();
        let one = vec![(PlatformIndex(0), DeviceIndex(0))];
        let mut warming = Warming::default();
        warming.set(one.clone());
        assert_eq!(warming.devices(now), one);
        warming.note_crash(now);
        warming.set(one.clone());
        assert!(warming.devices(now).is_empty());
        assert_eq!(warming.devices(now + BACKOFF), one);
        warming.note_crash(now);
        warming.set(vec![(PlatformIndex(1), DeviceIndex(0))]);
        assert_eq!(warming.devices(now).len(), 1);
    }

    #[test]
    fn a_driver_that_hangs_pauses_too() {
        let now = Instant::now();
        let mut warming = Warming::default();
        warming.set(vec![(PlatformIndex(0), DeviceIndex(0))]);
        let later = now + HANGS_AFTER;
        warming.note_under_way(now, later - Duration::from_secs(1));
        assert_eq!(warming.devices(later).len(), 1);
        warming.note_under_way(now, later);
        assert!(warming.devices(later).is_empty());
        assert_eq!(warming.devices(later + BACKOFF).len(), 1);
    }
}
