//! `[sessions] warm`: the devices on which spare workers and hosts keep a context ready.
//!
//! This module does not know the node's devices; `supervisor::warm` finds them. Invariant: a list has at most
//! [`MAX_WARM`] entries, and no entry is empty.

use std::fmt;

use serde::de::{Error, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer};

use super::which::WhichDevice;

/// Maximum number of devices on which a worker keeps a context ready.
pub const MAX_WARM: usize = 64;

/// Devices on which spare workers and hosts keep a context ready.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum WarmDevices {
    /// All devices of the node.
    All,
    /// These devices; by default none.
    Listed(Vec<WhichDevice>),
}

impl WarmDevices {
    /// Returns whether the settings name no device.
    #[must_use]
    pub fn is_none(&self) -> bool {
        matches!(self, WarmDevices::Listed(listed) if listed.is_empty())
    }
}

impl Default for WarmDevices {
    fn default() -> WarmDevices {
        WarmDevices::Listed(Vec::new())
    }
}

impl<'de> Deserialize<'de> for WarmDevices {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<WarmDevices, D::Error> {
        deserializer.deserialize_any(Warm)
    }
}

/// Reads the value.
struct Warm;

impl<'de> Visitor<'de> for Warm {
    type Value = WarmDevices;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("\"all\", or a list of devices, each by name or as PLATFORM.DEVICE by index, e.g. [\"0.1\"]")
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<WarmDevices, E> {
        match text {
            "all" => Ok(WarmDevices::All),
            other => Err(E::custom(format!(
                "invalid value `{other}` of warm; expected `all` or a list, e.g. [\"0.1\"]"
            ))),
        }
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<WarmDevices, A::Error> {
        let mut listed = Vec::new();
        while let Some(text) = list.next_element::<String>()? {
            let device = WhichDevice::parse(&text).ok_or_else(|| {
                A::Error::custom(
                    "a device of warm is empty; expected its name, or PLATFORM.DEVICE by index, e.g. \"0.1\"",
                )
            })?;
            listed.push(device);
        }
        if listed.len() > MAX_WARM {
            return Err(A::Error::custom(format!(
                "warm names {} devices; at most {MAX_WARM} are possible",
                listed.len()
            )));
        }
        Ok(WarmDevices::Listed(listed))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::ConfigFile;
    use std::path::Path;

    fn read(text: &str) -> Result<WarmDevices, String> {
        let text = format!("[sessions]\n{text}\n");
        let file = ConfigFile::parse(Path::new("daemon.toml"), text);
        file.map(|file| file.table.sessions.warm.unwrap_or_default())
            .map_err(|error| error.to_string())
    }

    #[test]
    fn devices_are_all_or_named_or_none() {
        assert!(read("").unwrap().is_none());
        assert!(read("warm = []").unwrap().is_none());
        assert_eq!(read("warm = \"all\"").unwrap(), WarmDevices::All);
        let expected = vec![
            WhichDevice::Index {
                platform: 0,
                device: 1,
            },
            WhichDevice::Name("GPU 1.5".to_owned()),
        ];
        let listed = read("warm = [\"0.1\", \" GPU 1.5 \"]").unwrap();
        assert_eq!(listed, WarmDevices::Listed(expected));
        assert!(!listed.is_none());
    }

    #[test]
    fn faults_name_the_line_and_the_cure() {
        let many = format!("warm = [{}]", "\"0.0\",".repeat(MAX_WARM + 1));
        for (text, fault) in [
            ("warm = \"some\"", "invalid value `some` of warm"),
            ("warm = [\"0.0\", \" \"]", "a device of warm is empty"),
            ("warm = 1", "expected \"all\", or a list"),
            (&many, "warm names 65 devices"),
        ] {
            let error = read(text).unwrap_err();
            assert!(error.starts_with("daemon.toml:2: "), "{error}");
            assert!(error.contains(fault), "{error}");
        }
    }
}
