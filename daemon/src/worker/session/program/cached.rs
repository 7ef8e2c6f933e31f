//! Builds that come from the cache, and builds of this session that go there.
//!
//! The cache is used for programs from source, built for all devices of the context at once. A driver
//! makes a program from binaries only for the devices of these binaries. So builds for some devices keep
//! the program from source. The driver must accept the cached binary, and the binary must have the
//! recorded kernels. Otherwise the program is built as without a cache.
//!
//! A build that the cache lacks goes there later ([`Unstored`]). PoCL compiles each kernel once more for
//! the binary (0.25 s each), under a lock that creating a kernel needs as well.
//!
//! This module does not access the cache's directory (`build_cache`). Invariant: for a program from the
//! cache, a client gets the same answer as for the original build.
#![forbid(unsafe_code)]

use std::collections::BTreeSet;
use std::ffi::CString;
use std::sync::Arc;

use causeway_proto::command::{DeviceBuild, KernelSignature, ProgramAnswer};
use causeway_proto::id::DeviceIndex;

use super::{is_executable, with_option};
use crate::build_cache::{CachedBuild, Client, Key, entry, pocl, repeatable};
use crate::runtime::context::Context as NativeContext;
use crate::runtime::node::{Device, Node};
use crate::runtime::program::Program as NativeProgram;

/// Maximum size of a program's binaries for all devices together, in bytes.
const MAX_BINARIES: usize = 64 << 20;

/// A build that the cache may have.
pub(super) struct Cached {
    client: Arc<Client>,
    parts: Vec<Part>,
    options: String,
}

/// The part of a build for one device.
struct Part {
    key: Key,
    index: DeviceIndex,
    device: Device,
}

impl Cached {
    /// Describes the build of `text`, as the compiler gets it, for `devices`. `None` if the
    /// build cannot be cached.
    pub(super) fn of(
        node: &Node,
        builds: Option<&Arc<Client>>,
        text: &[u8],
        options: &str,
        devices: &[(DeviceIndex, Device)],
    ) -> Option<Cached> {
        let client = builds.filter(|client| client.is_on())?;
        if !repeatable::is_repeatable(text, options) {
            return None;
        }
        let part = |(index, device): &(DeviceIndex, Device)| {
            let identity = node.identity(*device)?;
            Some(Part {
                key: Key::of(&identity, text, options),
                index: *index,
                device: *device,
            })
        };
        Some(Cached {
            client: Arc::clone(client),
            parts: devices.iter().map(part).collect::<Option<_>>()?,
            options: options.to_owned(),
        })
    }

    /// Returns the program from the cache, and the answer to the client.
    pub(super) fn load(&self, context: &NativeContext) -> Option<(NativeProgram, ProgramAnswer)> {
        let entries = self.client.look_up(&self.keys())?;
        let loaded = self.loaded(context, &entries);
        if loaded.is_none() {
            tracing::info!(
                key = ?self.parts.first().map(|part| part.key),
                "the driver refuses a cached binary, so the program is built again"
            );
            self.parts
                .iter()
                .for_each(|part| self.client.refuse(&part.key));
        }
        loaded
    }

    fn keys(&self) -> Vec<Key> {
        self.parts.iter().map(|part| part.key).collect()
    }

    fn devices(&self) -> Vec<Device> {
        self.parts.iter().map(|part| part.device).collect()
    }

    fn loaded(
        &self,
        context: &NativeContext,
        entries: &[CachedBuild],
    ) -> Option<(NativeProgram, ProgramAnswer)> {
        let devices = self.devices();
        let binaries: Vec<&[u8]> = entries.iter().map(|e| e.binary.as_slice()).collect();
        let (native, verdicts) = NativeProgram::with_binaries(context, &devices, &binaries);
        let native = native.ok().filter(|_| verdicts.iter().all(|v| *v == 0))?;
        let arg_info = entries.first()?.answer.arg_info;
        if entries.iter().any(|e| e.answer.arg_info != arg_info) {
            return None;
        }
        let given = self.options.as_bytes();
        let options = if arg_info {
            with_option(given)
        } else {
            given.to_vec()
        };
        native
            .build(&devices, Some(&CString::new(options).ok()?))
            .ok()?;
        let states = devices.iter().map(|device| native.build_state(*device));
        if !states
            .into_iter()
            .all(|s| is_executable(s.status, s.binary_type))
        {
            return None;
        }
        let answer = self.answer(entries)?;
        // A program with a kernel that the driver lists and cannot make is built each time.
        let listed: BTreeSet<String> = native.kernel_names(&devices).ok()?.into_iter().collect();
        let recorded = answer.kernels.iter().map(|kernel| kernel.name.clone());
        (listed == recorded.collect()).then_some((native, answer))
    }

    /// Combines the answers of all entries, with this session's device numbers.
    fn answer(&self, entries: &[CachedBuild]) -> Option<ProgramAnswer> {
        let mut devices = Vec::new();
        let mut kernels: Vec<KernelSignature> = Vec::new();
        for (part, entry) in self.parts.iter().zip(entries) {
            let build = entry.answer.build.clone()?;
            devices.push(DeviceBuild {
                device: part.index.0,
                ..build
            });
            let mut own = entry.answer.kernels.clone();
            for on in own.iter_mut().flat_map(|kernel| &mut kernel.devices) {
                on.device = part.index.0;
            }
            if kernels.is_empty() {
                kernels = own;
            } else {
                merge(&mut kernels, own)?;
            }
        }
        Some(ProgramAnswer { devices, kernels })
    }

    /// Describes the build after `native` was built. `arg_info` says whether the build recorded argument
    /// info; `answer` is the answer to the client.
    pub(super) fn built(
        self,
        native: Arc<NativeProgram>,
        arg_info: bool,
        answer: ProgramAnswer,
    ) -> Unstored {
        Unstored {
            cached: self,
            native,
            arg_info,
            answer,
        }
    }
}

/// A build of this session that the cache may lack.
pub(super) struct Unstored {
    cached: Cached,
    native: Arc<NativeProgram>,
    arg_info: bool,
    answer: ProgramAnswer,
}

impl Unstored {
    /// Takes the binaries from the driver and passes them to the supervisor. May take long.
    pub(super) fn store(self, node: &Node) {
        // Another session of the user may have stored them meanwhile.
        if self.cached.client.has(&self.cached.keys()) {
            return;
        }
        let parts = &self.cached.parts;
        for (part, entry) in parts.iter().zip(self.entries(node).unwrap_or_default()) {
            self.cached.client.store(&part.key, &entry);
        }
    }

    /// Returns an entry for each part; `None` if the build cannot be cached.
    fn entries(&self, node: &Node) -> Option<Vec<CachedBuild>> {
        let order = self.native.devices(&self.cached.devices()).ok()?;
        let mut binaries = self.native.binaries(MAX_BINARIES).ok()?;
        // PoCL's kernels are its own products. The canonical path is the one under which the system lists
        // mapped files.
        let folder = pocl::folder(&|name| std::env::var_os(name));
        let folder = std::fs::canonicalize(folder).ok();
        // After the binaries, because the driver may have loaded files for them.
        let loaded = node.loaded_since(folder.as_deref())?;
        let parts = self.cached.parts.iter().enumerate();
        parts
            .map(|(at, part)| {
                let place = order.iter().position(|of| *of == Some(at))?;
                let binary = std::mem::take(binaries.get_mut(place)?);
                let answer = entry::Answer {
                    arg_info: self.arg_info,
                    build: Some(self.build_of(part)?),
                    kernels: self.kernels_of(part),
                    loaded: loaded.clone(),
                };
                (!binary.is_empty()).then_some(CachedBuild { answer, binary })
            })
            .collect()
    }

    fn build_of(&self, part: &Part) -> Option<DeviceBuild> {
        let mut builds = self.answer.devices.iter();
        let build = builds.find(|build| build.device == part.index.0)?;
        let build = DeviceBuild {
            device: 0,
            ..build.clone()
        };
        is_executable(build.status, build.binary_type).then_some(build)
    }

    /// Returns the signatures of the kernels as if the part's device were the only one.
    fn kernels_of(&self, part: &Part) -> Vec<KernelSignature> {
        let mut kernels = self.answer.kernels.clone();
        for kernel in &mut kernels {
            kernel.devices.retain(|on| on.device == part.index.0);
            for on in &mut kernel.devices {
                on.device = 0;
            }
        }
        kernels
    }
}

/// Adds the signatures from another device's build. `None` if the builds differ.
fn merge(kernels: &mut [KernelSignature], others: Vec<KernelSignature>) -> Option<()> {
    if kernels.len() != others.len() {
        return None;
    }
    for (kernel, other) in kernels.iter_mut().zip(others) {
        let same = kernel.name == other.name
            && kernel.attributes == other.attributes
            && kernel.args == other.args;
        if !same {
            return None;
        }
        kernel.devices.extend(other.devices);
    }
    Some(())
}
