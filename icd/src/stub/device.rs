//! A root device of a node: a simple stub, answered from the node's inventory.

use std::collections::HashMap;
use std::hash::BuildHasherDefault;
use std::sync::Arc;

use bytes::Bytes;
use causeway_proto::control::InfoAnswer;
use causeway_proto::id::{DeviceIndex, PlatformIndex};
use rustc_hash::FxHasher;

use super::Binding;
use crate::transport::Node;

/// Info answers by name.
pub(super) type Answers = HashMap<u32, Result<Bytes, i32>, BuildHasherDefault<FxHasher>>;

/// See the module.
#[derive(Debug)]
pub struct Device {
    pub(crate) binding: Binding,
    node: Arc<Node>,
    platform: PlatformIndex,
    index: DeviceIndex,
    info: Answers,
    platform_info: Arc<Answers>,
}

/// Turns the wire's list into a map.
#[must_use]
pub(super) fn answers(list: &[InfoAnswer]) -> Answers {
    list.iter()
        .map(|answer| {
            let value = if answer.status == 0 {
                Ok(answer.value.clone())
            } else {
                Err(answer.status)
            };
            (answer.name, value)
        })
        .collect()
}

impl Device {
    /// A device as the node's inventory tells it.
    #[must_use]
    pub fn new(
        node: Arc<Node>,
        platform: PlatformIndex,
        index: DeviceIndex,
        info: Answers,
        platform_info: Arc<Answers>,
    ) -> Device {
        Device {
            binding: Binding::default(),
            node,
            platform,
            index,
            info,
            platform_info,
        }
    }

    /// The node it sits in.
    #[must_use]
    pub fn node(&self) -> &Arc<Node> {
        &self.node
    }

    /// Its native platform.
    #[must_use]
    pub fn platform(&self) -> PlatformIndex {
        self.platform
    }

    /// Its place in the platform.
    #[must_use]
    pub fn index(&self) -> DeviceIndex {
        self.index
    }

    /// The node's answer for an info name: the bytes, the node's error, or nothing if it was not asked.
    #[must_use]
    pub fn info(&self, name: u32) -> Option<Result<&Bytes, i32>> {
        self.info
            .get(&name)
            .map(|answer| answer.as_ref().map_err(|&status| status))
    }

    /// The native platform's answer for an info name.
    #[must_use]
    pub fn platform_info(&self, name: u32) -> Option<Result<&Bytes, i32>> {
        self.platform_info
            .get(&name)
            .map(|answer| answer.as_ref().map_err(|&status| status))
    }

    /// An integer answer of 1, 2, 4 or 8 bytes; 0 when there is none.
    #[must_use]
    pub fn number(&self, name: u32) -> u64 {
        let Some(Ok(bytes)) = self.info(name) else {
            return 0;
        };
        match bytes.len() {
            1 | 2 | 4 | 8 => {
                let mut wide = [0; 8];
                wide[..bytes.len()].copy_from_slice(bytes);
                u64::from_le_bytes(wide)
            }
            _ => 0,
        }
    }

    /// An array of `size_t`.
    #[must_use]
    pub fn sizes(&self, name: u32) -> Vec<u64> {
        let Some(Ok(bytes)) = self.info(name) else {
            return Vec::new();
        };
        bytes
            .chunks_exact(8)
            .map(|chunk| u64::from_le_bytes(std::array::from_fn(|i| chunk[i])))
            .collect()
    }

    /// A string answer without its NUL; empty when there is none.
    #[must_use]
    pub fn text(&self, name: u32) -> &str {
        match self.info(name) {
            Some(Ok(bytes)) => std::str::from_utf8(bytes)
                .unwrap_or("")
                .trim_end_matches('\0'),
            _ => "",
        }
    }

    /// The device's OpenCL version as (major, minor), from `CL_DEVICE_VERSION`.
    #[must_use]
    pub fn version(&self) -> (u32, u32) {
        let text = self.text(cl_headers::types::CL_DEVICE_VERSION);
        let number = text
            .strip_prefix("OpenCL ")
            .unwrap_or("")
            .split(' ')
            .next()
            .unwrap_or("");
        let (major, minor) = number.split_once('.').unwrap_or(("1", "0"));
        (major.parse().unwrap_or(1), minor.parse().unwrap_or(0))
    }
}
