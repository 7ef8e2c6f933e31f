//! A device of a node: a simple stub, answered from the node's inventory; a part of one, from what the node told
//! when it was made (`sub_device.rs`).
//!
//! What the node tells of a device may change: it was started anew with another driver, say. The handle
//! stays the same as long as it is the same device ([`Device::identity`]). Invariant: what was told once
//! stays readable for the life of the process, as the handle does.

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

use super::sub_device::Share;
use super::{Binding, SessionLink};
use crate::error::ClResult;
use crate::transport::Node;

/// Info answers by name.
pub(super) type Answers = HashMap<u32, Result<Bytes, i32>, BuildHasherDefault<FxHasher>>;

/// See the module.
#[derive(Debug)]
pub struct Device {
    pub(crate) binding: Binding,
    node: Arc<Node>,
    told: Tale,
    gone: AtomicBool,
    // Of a part of another device.
    share: Option<Share>,
}

/// Where it stands what the node tells of a device.
#[derive(Debug)]
enum Tale {
    // Answers are handed out as references, so what was told before is never freed: a few kilobytes,
    // each time that a node comes back with another driver.
    Root(RwLock<&'static Told>),
    // Told once.
    Part(Box<Told>),
}

/// What the node tells of a device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Told {
    /// Its native platform.
    pub(super) platform: PlatformIndex,
    /// Its place there.
    pub(super) index: DeviceIndex,
    /// What it answers.
    pub(super) info: Answers,
    /// Macros of its compiler for what it is not shown to have.
    pub(super) hidden_macros: BTreeSet<String>,
    /// What its platform answers.
    pub(super) platform_info: Arc<Answers>,
    /// What it takes as images.
    pub(super) image_formats: Vec<FormatList>,
}

/// What a device takes as images of some types, for some accesses by kernels.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct FormatList {
    // Access and type.
    uses: Vec<(u64, u32)>,
    formats: Vec<ImageFormat>,
}

impl FormatList {
    /// From the wire; without formats whose elements we could not count with.
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

/// By what a device is known again. Several of a node may have the same; then their order tells.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct Identity {
    platform: Option<Bytes>,
    // The device's UUID where it has one, else name and vendor.
    device: [Option<Bytes>; 2],
}

impl Told {
    /// See [`Identity`].
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
    /// A device as the node's inventory tells it.
    #[must_use]
    pub(super) fn new(node: Arc<Node>, told: Told) -> Device {
        Device {
            binding: Binding::default(),
            node,
            told: Tale::Root(RwLock::new(Box::leak(Box::new(told)))),
            gone: AtomicBool::new(false),
            share: None,
        }
    }

    /// A part of another device, of which the node has told this.
    #[must_use]
    pub(super) fn part(share: Share, told: Told) -> Device {
        Device {
            binding: Binding::default(),
            node: Arc::clone(share.parent().node()),
            told: Tale::Part(Box::new(told)),
            gone: AtomicBool::new(false),
            share: Some(share),
        }
    }

    fn told(&self) -> &Told {
        match &self.told {
            Tale::Root(told) => *told.read(),
            Tale::Part(told) => told,
        }
    }

    /// What is told of a part of it: what is told of it, but for what `differ` changes.
    pub(super) fn told_of_part(&self, index: DeviceIndex, differ: impl FnOnce(&mut Told)) -> Told {
        let mut told = Told {
            index,
            ..self.told().clone()
        };
        differ(&mut told);
        told
    }

    /// The device that it is a part of; none of a root device.
    #[must_use]
    pub fn parent(&self) -> Option<&Arc<Device>> {
        self.share.as_ref().map(Share::parent)
    }

    /// Tells a session of it, if it is a part of another device and the session does not know it yet.
    ///
    /// # Errors
    /// `CL_DEVICE_NOT_AVAILABLE` when the session is lost.
    pub(super) fn ensure_on(&self, link: &Arc<SessionLink>) -> ClResult {
        match &self.share {
            Some(share) => share.ensure_on(link),
            None => Ok(()),
        }
    }

    /// The node tells something else of the same root device. Says whether it stands where it stood.
    pub(super) fn retell(&self, told: Told) -> bool {
        let before = self.told();
        let same_place = before.platform == told.platform && before.index == told.index;
        if let Tale::Root(place) = &self.told
            && *before != told
        {
            *place.write() = Box::leak(Box::new(told));
        }
        self.gone.store(false, Ordering::Release);
        same_place
    }

    /// The node has it no more.
    pub(super) fn set_gone(&self) {
        self.gone.store(true, Ordering::Release);
    }

    /// Whether its node has it no more.
    #[must_use]
    pub fn is_gone(&self) -> bool {
        match self.parent() {
            Some(parent) => parent.is_gone(),
            None => self.gone.load(Ordering::Acquire),
        }
    }

    /// `CL_DEVICE_AVAILABLE`, as far as is known; asks nobody.
    #[must_use]
    pub fn is_available(&self) -> bool {
        !self.is_gone() && self.node.is_available()
    }

    /// By what it is known again.
    #[must_use]
    pub(super) fn identity(&self) -> Identity {
        self.told().identity()
    }

    /// The node it sits in.
    #[must_use]
    pub fn node(&self) -> &Arc<Node> {
        &self.node
    }

    /// Its native platform.
    #[must_use]
    pub fn platform(&self) -> PlatformIndex {
        // A root device may have moved since.
        match self.parent() {
            Some(parent) => parent.platform(),
            None => self.told().platform,
        }
    }

    /// Its place in the platform, or what stands for it for a part of a device.
    #[must_use]
    pub fn index(&self) -> DeviceIndex {
        self.told().index
    }

    /// The node's answer for an info name: the bytes, the node's error, or nothing if it was not asked.
    #[must_use]
    pub fn info(&self, name: u32) -> Option<Result<&Bytes, i32>> {
        self.told()
            .info
            .get(&name)
            .map(|answer| answer.as_ref().map_err(|&status| status))
    }

    /// The native platform's answer for an info name.
    #[must_use]
    pub fn platform_info(&self, name: u32) -> Option<Result<&Bytes, i32>> {
        self.told()
            .platform_info
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

    /// The formats that it takes for images of a type (`CL_MEM_OBJECT_IMAGE*`), by what kernels may do with them: one of
    /// the flags of `clGetSupportedImageFormats`.
    #[must_use]
    pub fn image_formats(&self, access: u64, image_type: u32) -> &[ImageFormat] {
        let lists = &self.told().image_formats;
        let list = lists
            .iter()
            .find(|list| list.uses.contains(&(access, image_type)));
        list.map_or(&[], |list| &list.formats)
    }

    /// Whether it takes programs in an intermediate language.
    #[must_use]
    pub fn takes_il(&self) -> bool {
        !self.text(CL_DEVICE_IL_VERSION).is_empty()
    }

    /// Macros of its compiler for what it is not shown to have.
    pub(super) fn hidden_macros(&self) -> &BTreeSet<String> {
        &self.told().hidden_macros
    }

    /// Whether it has an extension, as shown.
    #[must_use]
    pub fn has_extension(&self, name: &str) -> bool {
        self.text(CL_DEVICE_EXTENSIONS)
            .split(' ')
            .any(|own| own == name)
    }

    /// Whether it offers a built-in kernel of this name.
    #[must_use]
    pub fn has_built_in_kernel(&self, name: &str) -> bool {
        let offered = self.text(cl_headers::types::CL_DEVICE_BUILT_IN_KERNELS);
        !name.is_empty() && offered.split(';').any(|one| one.trim() == name)
    }

    /// The device's OpenCL version as (major, minor), from `CL_DEVICE_VERSION`.
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
