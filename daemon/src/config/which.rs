//! How settings name devices: by name, or by position.

use std::fmt;

/// Selects devices by name or position.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum WhichDevice {
    /// The device with these indices in the inventory.
    Index {
        /// Index of the platform.
        platform: u32,
        /// Index of the device in its platform.
        device: u32,
    },
    /// All devices with this `CL_DEVICE_NAME`.
    Name(String),
}

impl WhichDevice {
    /// Parses a name, or `PLATFORM.DEVICE` by index; `None` if the text is empty.
    pub(super) fn parse(text: &str) -> Option<WhichDevice> {
        let name = text.trim();
        let index = name.split_once('.').and_then(|(platform, device)| {
            Some(WhichDevice::Index {
                platform: platform.parse().ok()?,
                device: device.parse().ok()?,
            })
        });
        let by_name = || WhichDevice::Name(name.to_owned());
        (!name.is_empty()).then(|| index.unwrap_or_else(by_name))
    }
}

impl fmt::Display for WhichDevice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            WhichDevice::Index { platform, device } => write!(f, "{platform}.{device}"),
            WhichDevice::Name(name) => f.write_str(name),
        }
    }
}
