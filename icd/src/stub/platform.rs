//! The one platform, *Causeway*: its devices are those of every configured node.
//!
//! Enumeration is free: it reads the supervisors' inventories once, opens no session and is
//! remembered. Nothing configured: no platform, no socket, no thread.

use std::sync::{Arc, OnceLock};

use causeway_proto::id::{DeviceIndex, PlatformIndex};

use super::device::{Device, answers};
use super::{Binding, presented};
use crate::config::Settings;
use crate::transport::{self, Discovered};

/// See the module.
#[derive(Debug)]
pub struct Platform {
    pub(crate) binding: Binding,
    settings: &'static Settings,
    devices: OnceLock<Vec<Arc<Device>>>,
}

impl Platform {
    /// The platform; none when no server is configured, or inside of a daemon's own process.
    #[must_use]
    pub fn get() -> Option<&'static Arc<Platform>> {
        static PLATFORM: OnceLock<Option<Arc<Platform>>> = OnceLock::new();
        PLATFORM
            .get_or_init(|| {
                if std::env::var_os(causeway_proto::RECURSION_GUARD).is_some() {
                    return None;
                }
                let settings = Settings::of_process();
                (!settings.servers.is_empty()).then(|| {
                    crate::config::log::init();
                    Arc::new(Platform {
                        binding: Binding::default(),
                        settings,
                        devices: OnceLock::new(),
                    })
                })
            })
            .as_ref()
    }

    /// All devices, in the order of the configuration. The first call asks the nodes: at most a second.
    pub fn devices(&self) -> &[Arc<Device>] {
        self.devices.get_or_init(|| {
            transport::discover(&self.settings.servers)
                .into_iter()
                .flat_map(devices_of)
                .collect()
        })
    }
}

fn devices_of(found: Discovered) -> Vec<Arc<Device>> {
    let inventory = match found.inventory {
        Ok(inventory) => inventory,
        Err(error) => {
            tracing::warn!("{error}; its devices are left out");
            return Vec::new();
        }
    };
    let mut devices = Vec::new();
    for (number, platform) in (0..).zip(&inventory.platforms) {
        let platform_info = Arc::new(answers(&platform.info));
        for (index, device) in (0..).zip(&platform.devices) {
            devices.push(Arc::new(Device::new(
                found.node.clone(),
                PlatformIndex(number),
                DeviceIndex(index),
                presented::present(answers(&device.info)),
                platform_info.clone(),
            )));
        }
    }
    devices
}
