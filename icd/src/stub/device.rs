//! A device of a node: a simple stub, answered from the node's inventory. A sub-device is answered from
//! what the node reported when it was created (`sub_device.rs`).
//!
//! A node's answers about a device may change, for example after a restart with another driver. The handle
//! stays the same as long as it is the same device (`Device::identity`). Invariant: an answer that was
//! handed out once stays readable for the life of the process, like the handle.

pub(in crate::stub) mod info;
mod sub_device;
pub mod timer;

use std::collections::{BTreeSet, HashMap};
use std::hash::BuildHasherDefault;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use bytes::Bytes;
use causeway_proto::control::{ImageFormats as WireFormats, InfoAnswer};
use causeway_proto::id::{DeviceIndex, PlatformIndex};
use causeway_proto::image_format::ImageFormat;
use cl_headers::types::{
    CL_DEVICE_EXTENSIONS, CL_DEVICE_IL_VERSION, CL_DEVICE_NAME, CL_DEVICE_UUID_KHR,
    CL_DEVICE_VENDOR, CL_DEVICE_VERSION, CL_PLATFORM_NAME,
};
use parking_lot::RwLock;
use rustc_hash::FxHasher;

use crate::error::ClResult;
use crate::stub::device::sub_device::Share;
use crate::stub::{Binding, SessionLink};
use crate::transport::Node;

/// Info answers by name: the bytes, or the node's error code.
pub(super) type Answers = HashMap<u32, Result<Bytes, i32>, BuildHasherDefault<FxHasher>>;

/// A device of a node; see the module.
#[derive(Debug)]
pub struct Device {
    pub(crate) binding: Binding,
    node: Arc<Node>,
    answers: AnswerCell,
    gone: AtomicBool,
    // Present in a sub-device.
    share: Option<Share>,
}

/// Storage for what the node reports about a device.
#[derive(Debug)]
enum AnswerCell {
    // Queries return references into the answers, so replaced answers are leaked: a few kilobytes each time
    // a node comes back with another driver.
    Root(RwLock<&'static DeviceAnswers>),
    // A sub-device's answers never change.
    Part(Box<DeviceAnswers>),
}

/// The answers of a node about one device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct DeviceAnswers {
    /// The native platform of the device.
    pub(super) platform: PlatformIndex,
    /// The index of the device in its platform.
    pub(super) index: DeviceIndex,
    /// The device's info answers.
    pub(super) info: Answers,
    /// Compiler macros of features that the device does not report.
    pub(super) hidden_macros: BTreeSet<String>,
    /// The platform's info answers.
    pub(super) platform_info: Arc<Answers>,
    /// The supported image formats.
    pub(super) image_formats: Vec<FormatList>,
}

/// The image formats that a device supports for some image types and kernel accesses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct FormatList {
    // Pairs of kernel access flag and image type.
    uses: Vec<(u64, u32)>,
    formats: Vec<ImageFormat>,
}

impl FormatList {
    /// Decodes the wire message. Drops formats whose element size is unknown to the client.
    pub(super) fn new(wire: &WireFormats) -> FormatList {
        let pairs = wire.formats.chunks_exact(2);
        let formats = pairs.map(|pair| ImageFormat {
            order: pair[0],
            channel_type: pair[1],
        });
        FormatList {
            uses: wire
                .uses
                .iter()
                .map(|of| (of.flags, of.image_type))
                .collect(),
            formats: formats
                .filter(|format| format.element_size().is_some())
                .collect(),
        }
    }
}

/// Identifies a device when the node is queried again. If several devices of a node have the same identity,
/// their order decides.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct Identity {
    platform: Option<Bytes>,
    // The device's UUID if there is one, else name and vendor.
    device: [Option<Bytes>; 2],
}

impl DeviceAnswers {
    /// Returns the device's [`Identity`].
    #[must_use]
    pub(super) fn identity(&self) -> Identity {
        let answer = |answers: &Answers, name| answers.get(&name).and_then(|a| a.clone().ok());
        let uuid = answer(&self.info, CL_DEVICE_UUID_KHR)
            .filter(|uuid| uuid.iter().any(|&byte| byte != 0));
        let device = match uuid {
            Some(uuid) => [Some(uuid), None],
            None => [CL_DEVICE_NAME, CL_DEVICE_VENDOR].map(|name| answer(&self.info, name)),
        };
        Identity {
            platform: answer(&self.platform_info, CL_PLATFORM_NAME),
            device,
        }
    }
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
    /// Makes a root device from the node's inventory.
    #[must_use]
    pub(super) fn new(node: Arc<Node>, reported: DeviceAnswers) -> Device {
        Device {
            binding: Binding::default(),
            node,
            answers: AnswerCell::Root(RwLock::new(Box::leak(Box::new(reported)))),
            gone: AtomicBool::new(false),
            share: None,
        }
    }

    /// Makes a sub-device from what the node reported about it.
    #[must_use]
    pub(super) fn part(share: Share, reported: DeviceAnswers) -> Device {
        Device {
            binding: Binding::default(),
            node: Arc::clone(share.parent().node()),
            answers: AnswerCell::Part(Box::new(reported)),
            gone: AtomicBool::new(false),
            share: Some(share),
        }
    }

    fn node_answers(&self) -> &DeviceAnswers {
        match &self.answers {
            AnswerCell::Root(reported) => *reported.read(),
            AnswerCell::Part(reported) => reported,
        }
    }

    /// Returns the answers for a sub-device: those of this device, with the changes that `differ` makes.
    pub(super) fn answers_of_part(
        &self,
        index: DeviceIndex,
        differ: impl FnOnce(&mut DeviceAnswers),
    ) -> DeviceAnswers {
        let mut reported = DeviceAnswers {
            index,
            ..self.node_answers().clone()
        };
        differ(&mut reported);
        reported
    }

    /// Returns the parent of a sub-device; `None` for a root device.
    #[must_use]
    pub fn parent(&self) -> Option<&Arc<Device>> {
        self.share.as_ref().map(Share::parent)
    }

    /// Creates a sub-device in the session, unless the session knows it already. Does nothing for a root
    /// device.
    ///
    /// # Errors
    /// `CL_DEVICE_NOT_AVAILABLE` when the session is lost.
    pub(super) fn ensure_on(&self, link: &Arc<SessionLink>) -> ClResult {
        match &self.share {
            Some(share) => share.ensure_on(link),
            None => Ok(()),
        }
    }

    /// Replaces the answers of a root device. Returns whether platform and index stayed the same.
    pub(super) fn replace_answers(&self, reported: DeviceAnswers) -> bool {
        let before = self.node_answers();
        let same_place = before.platform == reported.platform && before.index == reported.index;
        if let AnswerCell::Root(place) = &self.answers
            && *before != reported
        {
            *place.write() = Box::leak(Box::new(reported));
        }
        self.gone.store(false, Ordering::Release);
        same_place
    }

    /// Marks the device as missing from the node's latest inventory.
    pub(super) fn set_gone(&self) {
        self.gone.store(true, Ordering::Release);
    }

    /// Whether the node's latest inventory lacks the device, or its parent.
    #[must_use]
    pub fn is_gone(&self) -> bool {
        match self.parent() {
            Some(parent) => parent.is_gone(),
            None => self.gone.load(Ordering::Acquire),
        }
    }

    /// Returns `CL_DEVICE_AVAILABLE` as far as the client knows; sends no request.
    #[must_use]
    pub fn is_available(&self) -> bool {
        !self.is_gone() && self.node.is_available()
    }

    /// Returns the device's [`Identity`].
    #[must_use]
    pub(super) fn identity(&self) -> Identity {
        self.node_answers().identity()
    }

    /// Returns the node that the device belongs to.
    #[must_use]
    pub fn node(&self) -> &Arc<Node> {
        &self.node
    }

    /// Returns the index of the device's native platform.
    #[must_use]
    pub fn platform(&self) -> PlatformIndex {
        // The parent's platform may have another index since the sub-device was created.
        match self.parent() {
            Some(parent) => parent.platform(),
            None => self.node_answers().platform,
        }
    }

    /// Returns the device's index in its platform. A sub-device has an id of its own instead.
    #[must_use]
    pub fn index(&self) -> DeviceIndex {
        self.node_answers().index
    }

    /// Returns the node's answer for an info name: the bytes or the node's error. `None` if the inventory
    /// has no answer.
    #[must_use]
    pub fn info(&self, name: u32) -> Option<Result<&Bytes, i32>> {
        self.node_answers()
            .info
            .get(&name)
            .map(|answer| answer.as_ref().map_err(|&status| status))
    }

    /// Returns the native platform's answer for an info name, like [`Device::info`].
    #[must_use]
    pub fn platform_info(&self, name: u32) -> Option<Result<&Bytes, i32>> {
        self.node_answers()
            .platform_info
            .get(&name)
            .map(|answer| answer.as_ref().map_err(|&status| status))
    }

    /// Returns an integer answer of 1, 2, 4 or 8 bytes; 0 when there is none.
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

    /// Returns an answer that is an array of `size_t`; empty when there is none.
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

    /// Returns a string answer without its NUL; empty when there is none.
    #[must_use]
    pub fn text(&self, name: u32) -> &str {
        match self.info(name) {
            Some(Ok(bytes)) => std::str::from_utf8(bytes)
                .unwrap_or("")
                .trim_end_matches('\0'),
            _ => "",
        }
    }

    /// Returns the supported image formats for an image type (`CL_MEM_OBJECT_IMAGE*`). `access` says how
    /// kernels use the image: one of the flags of `clGetSupportedImageFormats`.
    #[must_use]
    pub fn image_formats(&self, access: u64, image_type: u32) -> &[ImageFormat] {
        let lists = &self.node_answers().image_formats;
        let list = lists
            .iter()
            .find(|list| list.uses.contains(&(access, image_type)));
        list.map_or(&[], |list| &list.formats)
    }

    /// Whether the device accepts programs in an intermediate language.
    #[must_use]
    pub fn takes_il(&self) -> bool {
        !self.text(CL_DEVICE_IL_VERSION).is_empty()
    }

    /// Returns the compiler macros of features that the device does not report.
    pub(super) fn hidden_macros(&self) -> &BTreeSet<String> {
        &self.node_answers().hidden_macros
    }

    /// Whether the device reports an extension of this name.
    #[must_use]
    pub fn has_extension(&self, name: &str) -> bool {
        self.text(CL_DEVICE_EXTENSIONS)
            .split(' ')
            .any(|own| own == name)
    }

    /// Whether the device offers a built-in kernel of this name.
    #[must_use]
    pub fn has_built_in_kernel(&self, name: &str) -> bool {
        let offered = self.text(cl_headers::types::CL_DEVICE_BUILT_IN_KERNELS);
        !name.is_empty() && offered.split(';').any(|one| one.trim() == name)
    }

    /// Returns the device's OpenCL version as (major, minor), from `CL_DEVICE_VERSION`.
    #[must_use]
    pub fn version(&self) -> (u32, u32) {
        let text = self.text(CL_DEVICE_VERSION);
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
