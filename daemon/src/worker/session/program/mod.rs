//! Programs: made on the reading thread, built on the builder's threads.
//!
//! A program from source without includes exists natively from the start. One with include directives is
//! made natively by each build or compilation. Its source is sealed against the node's files, with the
//! headers of that call ([`source`]). Builds add `-cl-kernel-arg-info`, which the client never sees.
//! Their answers have the log, the state and the signatures of all kernels. A build that was made before
//! may come from the daemon's cache, and a build of this session goes there later (`cached`).
//!
//! Invariant: the reading thread never waits for a compiler. A kernel that is created before the
//! program's build is answered is broken with `CL_INVALID_PROGRAM_EXECUTABLE`.
#![forbid(unsafe_code)]

pub(super) mod build;
pub(crate) mod builder;
mod cached;
pub(super) mod create;
pub(super) mod jobs;
mod signature;
mod source;

use std::collections::HashMap;
use std::ffi::{CStr, CString};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use bytes::Bytes;
use causeway_proto::command::{DeviceBuild, KernelSignature, ProgramAnswer, answer};
use causeway_proto::id::{DeviceIndex, ProgramId};
use causeway_proto::limits::{MAX_BATCH, MAX_LIST};
use causeway_proto::source::contains;
use causeway_proto::status::Status;
use parking_lot::Mutex;

use self::builder::Builder;
use self::cached::{Cached, Unstored};
use super::violation::Violation;
use crate::build_cache::Client;
use crate::runtime::node::{Device, Node};
use crate::runtime::program::Program as NativeProgram;
use crate::worker::objects::Context;
use crate::worker::objects::pace::Cost;

const ARG_INFO: &str = "-cl-kernel-arg-info";
/// Longest log in bytes; more is cut off. A log must fit into one batch with everything else.
const MAX_LOG: usize = 4 << 20;

/// A program.
pub(crate) struct Program {
    pub(crate) id: ProgramId,
    pub(crate) context: Arc<Context>,
    // The source, if each build must seal it again.
    source: Option<Bytes>,
    // The source, if it needs no sealing and the cache may be used.
    text: Option<Bytes>,
    has_source: bool,
    // Whether kernels of the program may print.
    prints: AtomicBool,
    // Whether the program has variables of its own, whose contents nobody can read.
    has_variables: AtomicBool,
    // How long launches take, by the kernel's name. Programs may make a kernel for each launch.
    costs: Mutex<HashMap<Box<str>, Arc<Cost>>>,
    state: Mutex<ProgramState>,
}

struct ProgramState {
    native: Result<Arc<NativeProgram>, Status>,
    // Set while `native` came from the cache.
    loaded: Option<Loaded>,
    // The last build from source, while the cache may lack it.
    unstored: Option<Unstored>,
    // Set while `native` has argument info because of the added option. Compiles it without that option.
    plainly: Option<Plainly>,
    // Number of builds, compilations and links that are not answered yet.
    jobs: usize,
}

/// Data of a program whose last build came from the cache.
struct Loaded {
    // The program from source, which has not been built.
    plain: Result<Arc<NativeProgram>, Status>,
    // The options of the cached build.
    options: Vec<u8>,
}

/// Compiles a program again with the application's own options.
type Plainly = Box<dyn FnOnce() -> Result<(), Status> + Send>;

/// The answer of a build command: its status and content. An error is a status without content.
type Answered = Result<(Status, answer::Body), Status>;

impl Program {
    fn new(id: ProgramId, context: Arc<Context>, native: Result<NativeProgram, Status>) -> Program {
        Program {
            id,
            context,
            source: None,
            text: None,
            has_source: false,
            prints: AtomicBool::new(false),
            has_variables: AtomicBool::new(false),
            costs: Mutex::default(),
            state: Mutex::new(ProgramState {
                native: native.map(Arc::new),
                loaded: None,
                unstored: None,
                plainly: None,
                jobs: 0,
            }),
        }
    }

    /// Notes that the program may have variables of its own. Drivers need not say so: PoCL reports a size of 0.
    fn may_have_variables(&self) {
        self.has_variables.store(true, Ordering::Relaxed);
    }

    /// Notes the options of a build. OpenCL C 1 has no variables that a kernel can write.
    fn note_language(&self, options: &[u8]) {
        if is_later_language(options) {
            self.may_have_variables();
        }
    }

    /// Whether the program has variables of its own, or may have.
    pub(crate) fn has_variables(&self) -> bool {
        self.has_variables.load(Ordering::Relaxed)
    }

    /// Whether kernels of the program may print.
    pub(crate) fn prints(&self) -> bool {
        self.prints.load(Ordering::Relaxed)
    }

    /// Returns how long launches of the kernel of this name take.
    pub(crate) fn cost(&self, kernel: &str) -> Arc<Cost> {
        let mut costs = self.costs.lock();
        if let Some(cost) = costs.get(kernel) {
            return Arc::clone(cost);
        }
        Arc::clone(costs.entry(kernel.into()).or_default())
    }

    /// Notes that kernels of the program may print. Commands are applied in order, so kernels that are made
    /// later know it.
    fn may_print(&self) {
        self.prints.store(true, Ordering::Relaxed);
    }

    /// Returns the native program if no build is in progress.
    ///
    /// # Errors
    /// `CL_INVALID_PROGRAM_EXECUTABLE` while a build is in progress; otherwise the program's own failure.
    pub(crate) fn settled(&self) -> Result<Arc<NativeProgram>, Status> {
        let state = self.state.lock();
        if state.jobs > 0 {
            return Err(Status::INVALID_PROGRAM_EXECUTABLE);
        }
        state.native.clone()
    }

    fn native(&self) -> Result<Arc<NativeProgram>, Status> {
        self.state.lock().native.clone()
    }

    fn set_native(&self, native: Result<NativeProgram, Status>) {
        let native = native.map(Arc::new);
        let mut state = self.state.lock();
        state.native = native;
        state.loaded = None;
        state.plainly = None;
    }

    /// Notes that the program is compiled. `plainly` compiles it without argument info, if only the added
    /// option asked for that.
    fn set_plainly(&self, plainly: Option<Plainly>) {
        self.state.lock().plainly = plainly;
    }

    /// Compiles the program with the application's own options, unless it is already. Returns
    /// whether that was done.
    fn compile_plainly(&self) -> bool {
        // The lock is released before the compiler runs.
        let plainly = self.state.lock().plainly.take();
        plainly.is_some_and(|plainly| plainly().is_ok())
    }

    /// Uses `native`, from the cache, until a command needs the program from source again.
    fn set_loaded(&self, native: NativeProgram, options: &[u8]) {
        let mut state = self.state.lock();
        let before = std::mem::replace(&mut state.native, Ok(Arc::new(native)));
        let plain = state.loaded.take().map_or(before, |loaded| loaded.plain);
        state.loaded = Some(Loaded {
            plain,
            options: options.to_owned(),
        });
    }

    /// Stores a build of this program in the cache when the session is quiet or ends. A driver may take long
    /// for the binary, and lock the program meanwhile. If the program is built again before that, only the
    /// last build is stored.
    fn store_later(self: &Arc<Self>, builder: &Builder, node: &Arc<Node>, build: Unstored) {
        self.state.lock().unstored = Some(build);
        let (program, node) = (Arc::clone(self), Arc::clone(node));
        builder.later(self.id, move || {
            let build = program.state.lock().unstored.take();
            if let Some(build) = build {
                build.store(&node);
            }
        });
    }

    /// Describes this build for the cache; `given` as in [`Program::to_build`].
    fn cached(
        &self,
        node: &Node,
        builds: Option<&Arc<Client>>,
        given: &[u8],
        options: &str,
        devices: &[(DeviceIndex, Device)],
    ) -> Option<Cached> {
        let all = &self.context.devices;
        let every = all
            .iter()
            .all(|(index, _)| devices.iter().any(|(i, _)| i == index));
        if !self.has_source || !every || devices.len() != all.len() {
            return None;
        }
        let given = (!given.is_empty()).then_some(given);
        match given.or(self.source.as_deref()) {
            Some(text) => Cached::of(node, builds, &source::sealed(text, &[]), options, devices),
            None => Cached::of(node, builds, self.text.as_deref()?, options, devices),
        }
    }

    /// Returns the native program to build for `devices`. Its source may include `headers`. `given` is
    /// the source if the client has already inserted its headers; empty otherwise.
    fn to_build(
        &self,
        given: &[u8],
        headers: &[&[u8]],
        devices: &[(DeviceIndex, Device)],
    ) -> Result<Arc<NativeProgram>, Status> {
        // The native program is about to change.
        self.state.lock().unstored = None;
        let given = (!given.is_empty()).then_some(given);
        if let Some(text) = given.or(self.source.as_deref()) {
            let sealed = source::sealed(text, headers);
            self.set_native(NativeProgram::with_source(self.context.native()?, &sealed));
            return self.native();
        }
        let Some(loaded) = self.state.lock().loaded.take() else {
            return self.native();
        };
        if let Ok(plain) = &loaded.plain
            && devices.len() < self.context.devices.len()
        {
            // The other devices must keep their build, so repeat it for all. It succeeded before.
            let all = natives(&self.context.devices);
            let built = with_arg_info(&loaded.options, true, |o| plain.build(&all, Some(o)));
            tracing::debug!(?built, "the worker builds a program from the cache again");
        }
        self.state.lock().native = loaded.plain;
        self.native()
    }

    /// Builds or compiles `native`, a native program of this object, for `devices`. Returns the native program
    /// that was used. The client knows of no kernels, but a driver may hold those of the last launches a
    /// little longer. Then a new native program replaces this one, and those kernels keep the old one.
    fn work_on<T>(
        &self,
        native: Arc<NativeProgram>,
        devices: &[(DeviceIndex, Device)],
        work: impl Fn(&Arc<NativeProgram>) -> Result<T, Status>,
    ) -> (Arc<NativeProgram>, Result<T, Status>) {
        let result = work(&native);
        if result.as_ref().err() != Some(&Status::INVALID_OPERATION) {
            return (native, result);
        }
        match self.renewed(&native, devices) {
            Ok(fresh) => {
                let result = work(&fresh);
                (fresh, result)
            }
            Err(status) => {
                tracing::debug!(?status, "cannot rebuild a program that is in use");
                (native, result)
            }
        }
    }

    /// Replaces `native` by a new native program. Devices other than `building` keep their builds.
    fn renewed(
        &self,
        native: &NativeProgram,
        building: &[(DeviceIndex, Device)],
    ) -> Result<Arc<NativeProgram>, Status> {
        let all = &self.context.devices;
        let fresh = native.again(self.context.native()?, &natives(all), MAX_BATCH / 2)?;
        let is_building = |index| building.iter().any(|(i, _)| *i == index);
        for (_, device) in all.iter().filter(|(index, _)| !is_building(*index)) {
            let before = native.build_state(*device);
            if is_executable(before.status, before.binary_type) {
                fresh.build(&[*device], Some(&native.build_options(*device)))?;
            }
        }
        self.set_native(Ok(fresh));
        self.native()
    }

    /// Returns the native program as created, before any cached build.
    fn unbuilt(&self) -> Result<Arc<NativeProgram>, Status> {
        let state = self.state.lock();
        let loaded = state.loaded.as_ref();
        loaded.map_or(&state.native, |loaded| &loaded.plain).clone()
    }

    /// Returns a native program that serves as a header beside `headers`; `given` as in
    /// [`Program::to_build`].
    fn as_header(&self, given: &[u8], headers: &[&[u8]]) -> Result<Arc<NativeProgram>, Status> {
        let given = (!given.is_empty()).then_some(given);
        match given.or(self.source.as_deref()) {
            None => self.unbuilt(),
            Some(text) => {
                let sealed = source::sealed(text, headers);
                NativeProgram::with_source(self.context.native()?, &sealed).map(Arc::new)
            }
        }
    }

    /// Returns the named devices, or all of the context's if the list is empty.
    fn devices(&self, named: &[u32]) -> Result<Vec<(DeviceIndex, Device)>, Violation> {
        devices_of(&self.context, named)
    }
}

fn devices_of(context: &Context, named: &[u32]) -> Result<Vec<(DeviceIndex, Device)>, Violation> {
    if named.is_empty() {
        return Ok(context.devices.clone());
    }
    if named.len() > MAX_LIST {
        return Err(Violation::Malformed("a list of devices is too long"));
    }
    named
        .iter()
        .map(|index| {
            let index = DeviceIndex(*index);
            let device = context.device(index).map(|device| (index, device));
            device.ok_or_else(|| Violation::Unknown(format!("{index:?} in a context")))
        })
        .collect()
}

/// Whether the options name another language than OpenCL C 1, which is the default.
fn is_later_language(options: &[u8]) -> bool {
    let key = b"std=";
    let named = |at: usize| !options[at + key.len()..].starts_with(b"CL1");
    let mut keys = options.windows(key.len()).enumerate();
    keys.any(|(at, window)| window == key && named(at))
}

fn natives(devices: &[(DeviceIndex, Device)]) -> Vec<Device> {
    devices.iter().map(|(_, device)| *device).collect()
}

/// Makes the answer to a build, a compilation or a link.
fn answer(
    native: &NativeProgram,
    result: Result<(), Status>,
    devices: &[(DeviceIndex, Device)],
) -> Answered {
    let builds = builds_of(native, devices);
    let executable = builds
        .iter()
        .any(|build| is_executable(build.status, build.binary_type));
    let kernels = if executable {
        signatures(native, devices)
    } else {
        Vec::new()
    };
    let body = ProgramAnswer {
        devices: builds,
        kernels,
    };
    let status = result.err().unwrap_or(Status::SUCCESS);
    Ok((status, answer::Body::Program(body)))
}

fn is_executable(status: i32, binary_type: u32) -> bool {
    status == 0 && binary_type == crate::runtime::names::CL_PROGRAM_BINARY_TYPE_EXECUTABLE
}

fn builds_of(native: &NativeProgram, devices: &[(DeviceIndex, Device)]) -> Vec<DeviceBuild> {
    devices
        .iter()
        .map(|(index, device)| build_of(native, *index, *device))
        .collect()
}

fn build_of(native: &NativeProgram, index: DeviceIndex, device: Device) -> DeviceBuild {
    let state = native.build_state(device);
    DeviceBuild {
        device: index.0,
        status: state.status,
        log: presented(state.log),
        binary_type: state.binary_type,
        global_variable_size: state.global_variable_size,
        binary_status: 0,
    }
}

fn signatures(native: &NativeProgram, devices: &[(DeviceIndex, Device)]) -> Vec<KernelSignature> {
    let natives: Vec<Device> = devices.iter().map(|(_, device)| *device).collect();
    let kernels = native.kernels(&natives).unwrap_or_default();
    kernels
        .into_iter()
        .filter_map(|kernel| signature::of(kernel, devices).ok())
        .collect()
}

/// Returns a log without the option that the application did not give, cut to [`MAX_LOG`].
fn presented(mut log: String) -> String {
    if log.contains(ARG_INFO) {
        log = log
            .replace(&format!(" {ARG_INFO}"), "")
            .replace(ARG_INFO, "");
    }
    if log.len() > MAX_LOG {
        let cut = (0..=MAX_LOG)
            .rev()
            .find(|at| log.is_char_boundary(*at))
            .unwrap_or(0);
        log.truncate(cut);
    }
    log
}

/// Builds with argument info if the program is built from source. Returns whether the info is there. If
/// that build fails, builds once more with the application's options. The driver may not know the added
/// option, or fail because of it (NVIDIA's does for kernels without arguments). Besides, a log must refer
/// to the application's options only. `CL_INVALID_OPERATION` is not retried: the driver refuses because
/// it still holds the program's kernels.
fn with_arg_info(
    options: &[u8],
    from_source: bool,
    build: impl Fn(&CStr) -> Result<(), Status>,
) -> Result<bool, Status> {
    let plain = CString::new(options).map_err(|_| Status::INVALID_BUILD_OPTIONS)?;
    if from_source && !contains(options, ARG_INFO.as_bytes()) {
        let added = CString::new(with_option(options));
        match build(&added.map_err(|_| Status::INVALID_BUILD_OPTIONS)?) {
            Ok(()) => return Ok(true),
            Err(Status::INVALID_OPERATION) => return Err(Status::INVALID_OPERATION),
            Err(_) => {}
        }
    }
    build(&plain).map(|()| false)
}

/// Returns the options with the one that asks for argument info.
fn with_option(options: &[u8]) -> Vec<u8> {
    let separator: &[u8] = if options.is_empty() { b"" } else { b" " };
    [options, separator, ARG_INFO.as_bytes()].concat()
}
