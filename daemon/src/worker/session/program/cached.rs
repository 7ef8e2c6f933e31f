//! Builds that come from the cache, and builds that are made for it.
//!
//! The cache is used for programs from source, built for all devices of the context at once. A driver
//! makes a program from binaries only for the devices of these binaries. So builds for some devices keep
//! the program from source. The driver must accept the cached binary, and the binary must have the
//! recorded kernels. Otherwise the program is built as without a cache.
//!
//! This module does not access the cache's directory (`build_cache`). Invariant: for a program from the
//! cache, a client gets the same answer as for the original build.
#![forbid(unsafe_code)]

use std::collections::BTreeSet;
use std::ffi::CString;
use std::path::Path;
use std::sync::Arc;

use causeway_proto::command::{DeviceBuild, KernelSignature, ProgramAnswer};
use causeway_proto::id::DeviceIndex;

use super::{build_of, is_executable, natives, signatures, source, with_arg_info, with_option};
use crate::build_cache::{Client, Entry, Job, Key, entry, repeatable};
use crate::runtime::context::Context as NativeContext;
use crate::runtime::node::{Device, Node};
use crate::runtime::program::Program as NativeProgram;
use crate::worker::session::Shared;

/// Largest binary that is kept, in bytes.
const MAX_BINARY: usize = 64 << 20;

/// A build that the cache may have.
pub(super) struct Cached {
    client: Arc<Client>,
    parts: Vec<Part>,
    text: Vec<u8>,
    options: String,
}

/// The part of a build for one device.
struct Part {
    key: Key,
    platform: u32,
    index: DeviceIndex,
    device: Device,
}

impl Cached {
    /// Describes the build of `text`, as the compiler gets it, for `devices`. `None` if the
    /// build cannot be cached.
    pub(super) fn of(
        shared: &Shared,
        text: &[u8],
        options: &str,
        devices: &[(DeviceIndex, Device)],
    ) -> Option<Cached> {
        let client = shared.builds.as_ref().filter(|client| client.is_on())?;
        if !repeatable::is_repeatable(text, options) {
            return None;
        }
        let part = |(index, device): &(DeviceIndex, Device)| {
            let identity = shared.node.identity(*device)?;
            Some(Part {
                key: Key::of(&identity, text, options),
                platform: shared.node.place_of(*device)?.0.0,
                index: *index,
                device: *device,
            })
        };
        Some(Cached {
            client: Arc::clone(client),
            parts: devices.iter().map(part).collect::<Option<_>>()?,
            text: text.to_vec(),
            options: options.to_owned(),
        })
    }

    /// Returns the program from the cache, and the answer to the client.
    pub(super) fn load(&self, context: &NativeContext) -> Option<(NativeProgram, ProgramAnswer)> {
        let keys: Vec<Key> = self.parts.iter().map(|part| part.key).collect();
        let entries = self.client.look_up(&keys)?;
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

    fn loaded(
        &self,
        context: &NativeContext,
        entries: &[Entry],
    ) -> Option<(NativeProgram, ProgramAnswer)> {
        let devices: Vec<Device> = self.parts.iter().map(|part| part.device).collect();
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
    fn answer(&self, entries: &[Entry]) -> Option<ProgramAnswer> {
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

    /// Has the build, which was just made, repeated for the cache in a separate process.
    pub(super) fn learn(self) {
        for part in &self.parts {
            let job = Job {
                platform: part.platform,
                device: part.index.0,
                text: self.text.clone(),
                options: self.options.clone(),
            };
            self.client.learn(&part.key, &job);
        }
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

/// Builds a job as a session would. Returns the encoded cache entry with its key; `None` if
/// the result must not be cached. `as_usual` rewrites the log. Files in the folder `own` that
/// the driver has mapped are its own products.
pub(crate) fn compile(
    node: &Node,
    job: &Job,
    own: Option<&Path>,
    as_usual: &dyn Fn(&str) -> String,
) -> Option<Vec<u8>> {
    // The job comes from an untrusted worker. So text that a session would have sealed first is not built.
    let sealed = source::sealed(&job.text, &[]);
    let options = job.options.as_bytes();
    let is_as_given = *sealed == *job.text && *source::without_paths(options) == *options;
    if !is_as_given || !repeatable::is_repeatable(&sealed, &job.options) {
        return None;
    }
    let platform = node.platforms().get(job.platform as usize)?;
    let device = platform.device(DeviceIndex(job.device))?;
    let key = Key::of(&node.identity(device)?, &sealed, &job.options);
    let context = NativeContext::new(platform, vec![device], Box::new(|_| {})).ok()?;
    let native = NativeProgram::with_source(&context, &sealed).ok()?;
    let devices = [(DeviceIndex(0), device)];
    let arg_info = with_arg_info(options, true, |options| {
        native.build(&natives(&devices), Some(options))
    });
    let arg_info = arg_info.ok()?;
    let mut build = build_of(&native, DeviceIndex(0), device);
    build.log = as_usual(&build.log);
    if !is_executable(build.status, build.binary_type) {
        return None;
    }
    let kernels = signatures(&native, &devices);
    let binary = native.binaries(MAX_BINARY).ok()?.pop()?;
    if binary.is_empty() {
        return None;
    }
    // Last, because the files that the driver needs for the binary are loaded now, too.
    let loaded = node.loaded_since(own)?;
    tracing::debug!(?key, ?loaded, "built for the cache");
    let answer = entry::Answer {
        arg_info,
        build: Some(build),
        kernels,
        loaded,
    };
    Entry { answer, binary }.encode(&key).ok()
}
