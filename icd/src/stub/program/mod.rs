//! A program: its origin, its builds, and their kernels; a compound stub.
//!
//! The answers to a build bring status, logs, options, binary types and kernel signatures. They are stored
//! here, so queries cost no traffic; only binaries are fetched from the nodes. In a context of several
//! sites, a program from source is created on a site with its first build there. A program from binaries,
//! built-in kernels or a link exists on its devices' sites from the start. Specification: "Program
//! Objects".
//!
//! Invariant: at most one build of a program runs at a time, and none starts while the program has kernels.
//! No thread holds the lock while it waits for a node.

mod binaries;
pub mod binary;
mod build;
mod create;
mod headers;
mod il;
mod log_lines;

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;
use causeway_proto::command::{
    Answer, CreateProgram, DeviceBuild, ObjectKind, ProgramAnswer, SpecConstant, answer::Body,
    command::Kind, create_program::From,
};
use causeway_proto::id::{DeviceIndex, ProgramId};
use causeway_proto::limits::{MAX_ARGUMENTS, MAX_NAME};
use causeway_proto::status::WireError;
use cl_headers::types::{
    CL_BUILD_ERROR, CL_BUILD_NONE, CL_BUILD_SUCCESS, CL_INVALID_KERNEL_DEFINITION,
    CL_INVALID_KERNEL_NAME, CL_INVALID_PROGRAM, CL_INVALID_PROGRAM_EXECUTABLE, CL_INVALID_SPEC_ID,
    CL_INVALID_VALUE, CL_OUT_OF_HOST_MEMORY, CL_PROGRAM_BINARY_TYPE_EXECUTABLE,
    CL_PROGRAM_BINARY_TYPE_NONE,
};
use parking_lot::{Mutex, MutexGuard};

pub use build::{BuildNotify, BuildRequest, Verb};

use crate::error::{ClResult, Status, fail, require};
use crate::stub::context::remote::Remotes;
use crate::stub::kernel::{Signature, united};
use crate::stub::{Binding, Context, Device, Site};

/// A program object; see the module.
pub struct Program {
    pub(crate) binding: Binding,
    remotes: Remotes,
    context: Arc<Context>,
    devices: Vec<Arc<Device>>,
    origin: Origin,
    state: Mutex<ProgramState>,
    release_callbacks: Mutex<Vec<Box<dyn FnOnce() + Send>>>,
}

/// The origin of a program.
#[derive(Clone, Debug)]
pub enum Origin {
    /// `clCreateProgramWithSource`: the joined text.
    Source(Bytes),
    /// `clCreateProgramWithBinary`.
    Binaries,
    /// `clCreateProgramWithBuiltInKernels`.
    BuiltInKernels,
    /// `clCreateProgramWithIL`: the module.
    Il(Bytes),
    /// `clLinkProgram`.
    Link,
}

/// The result of the last build for one device.
#[derive(Clone, Debug)]
pub struct Build {
    /// `CL_PROGRAM_BUILD_STATUS`.
    pub status: i32,
    /// `CL_PROGRAM_BUILD_OPTIONS`, exactly as given.
    pub options: Bytes,
    /// `CL_PROGRAM_BUILD_LOG`.
    pub log: Arc<str>,
    /// `CL_PROGRAM_BINARY_TYPE`.
    pub binary_type: u32,
    /// `CL_PROGRAM_BUILD_GLOBAL_VARIABLE_TOTAL_SIZE`, in bytes.
    pub global_variable_size: u64,
}

impl Default for Build {
    fn default() -> Build {
        Build {
            status: CL_BUILD_NONE,
            options: Bytes::new(),
            log: Arc::from(""),
            binary_type: CL_PROGRAM_BINARY_TYPE_NONE,
            global_variable_size: 0,
        }
    }
}

impl Build {
    fn is_executable(&self) -> bool {
        self.status == CL_BUILD_SUCCESS && self.binary_type == CL_PROGRAM_BINARY_TYPE_EXECUTABLE
    }
}

/// Effects of build options that matter after the build.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Traits {
    // Whether the application may see argument info.
    arg_info: bool,
    // Whether launches may have smaller groups at the edges.
    non_uniform: bool,
}

struct ProgramState {
    // By position in `devices`.
    builds: Vec<Build>,
    running: bool,
    kernels: usize,
    // Signatures as each site reported them, by the site's index; and all of them merged.
    told: Vec<Vec<Arc<Signature>>>,
    signatures: Vec<Arc<Signature>>,
    traits: Traits,
    binary_sizes: Option<binaries::BinarySizes>,
    // Specialisation constants set so far, by id.
    constants: BTreeMap<u32, Bytes>,
}

impl std::fmt::Debug for Program {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Program")
            .field("remotes", &self.remotes)
            .finish_non_exhaustive()
    }
}

impl Program {
    fn new(
        context: &Arc<Context>,
        devices: Vec<Arc<Device>>,
        origin: Origin,
        traits: Traits,
    ) -> Program {
        let builds = vec![Build::default(); devices.len()];
        Program {
            binding: Binding::default(),
            remotes: Remotes::new(context),
            context: context.clone(),
            devices,
            origin,
            release_callbacks: Mutex::default(),
            state: Mutex::new(ProgramState {
                builds,
                running: false,
                kernels: 0,
                told: vec![Vec::new(); context.sites().len()],
                signatures: Vec::new(),
                traits,
                binary_sizes: None,
                constants: BTreeMap::new(),
            }),
        }
    }

    /// Returns the program's id on a site, if the program exists there.
    pub(super) fn known_on(&self, site: &Site) -> Option<ProgramId> {
        self.remotes.known(site).map(ProgramId)
    }

    // Returns the program's id on a site. Creates a program from source there if necessary.
    fn on(&self, site: &Site) -> Result<ProgramId, WireError> {
        let id = self.remotes.on(site, |id| match &self.origin {
            Origin::Source(text) => {
                site.session()
                    .send(&create(site, id, From::Source(site.source(text)), 0))
            }
            _ => Err(WireError::Refused {
                address: site.devices()[0].node().address().to_owned(),
                reason: "the program was not created on this node".to_owned(),
            }),
        });
        id.map(ProgramId)
    }

    // The sites of the context that have some of `devices`.
    fn sites_of(&self, devices: &[Arc<Device>]) -> Vec<Arc<Site>> {
        let sites = self.context.sites().iter();
        let concerned = sites.filter(|site| devices.iter().any(|device| site.has(device)));
        concerned.cloned().collect()
    }

    /// Returns the program's context.
    #[must_use]
    pub fn context(&self) -> &Arc<Context> {
        &self.context
    }

    /// `clSetProgramReleaseCallback`: registers a callback that runs once, after the program is destroyed.
    /// Callbacks run in reverse order of registration.
    pub fn on_released(&self, callback: Box<dyn FnOnce() + Send>) {
        self.release_callbacks.lock().push(callback);
    }

    /// Returns `CL_PROGRAM_DEVICES`.
    #[must_use]
    pub fn devices(&self) -> &[Arc<Device>] {
        &self.devices
    }

    /// Returns the program's origin.
    #[must_use]
    pub fn origin(&self) -> &Origin {
        &self.origin
    }

    /// `clSetProgramSpecializationConstant`: sets a constant for the next build and later ones.
    ///
    /// # Errors
    /// `CL_INVALID_PROGRAM` when the program was not made from an intermediate language,
    /// `CL_INVALID_SPEC_ID` for an unknown constant, `CL_INVALID_VALUE` for a value of another size.
    pub fn set_constant(&self, id: u32, value: &[u8]) -> ClResult {
        let Origin::Il(module) = &self.origin else {
            // clSetProgramSpecializationConstant: CL_INVALID_PROGRAM when the program was not made from
            // intermediate language.
            return fail(CL_INVALID_PROGRAM);
        };
        // clSetProgramSpecializationConstant: CL_INVALID_SPEC_ID when the module has no such constant.
        let size = il::constant_size(module, id).ok_or(Status(CL_INVALID_SPEC_ID))?;
        // clSetProgramSpecializationConstant: CL_INVALID_VALUE when spec_size is not the size of the
        // constant.
        require(size == value.len(), CL_INVALID_VALUE)?;
        let value = Bytes::copy_from_slice(value);
        self.state.lock().constants.insert(id, value);
        Ok(())
    }

    fn constants(&self) -> Vec<SpecConstant> {
        let state = self.state.lock();
        let all = state.constants.iter();
        let wire = all.map(|(id, value)| SpecConstant {
            id: *id,
            value: value.clone(),
        });
        wire.collect()
    }

    /// Returns the last build for a device of the context. "If a program binary has not been built for a
    /// sub-device, the program binary associated with the parent device will be used." `None` if neither
    /// the device nor a parent is in [`Program::devices`].
    #[must_use]
    pub fn build_of(&self, device: &Device) -> Option<Build> {
        let mut all = self.context.devices().iter();
        let device = all.find(|own| std::ptr::eq(&***own, device))?;
        let state = self.state.lock();
        let mut first = None;
        for part in with_parents(device) {
            let Some(build) = self.own_build(&state.builds, part) else {
                continue;
            };
            if build.status != CL_BUILD_NONE {
                return Some(build.clone());
            }
            first.get_or_insert(build);
        }
        first.cloned()
    }

    // The entry of `builds` for the device itself, not its parents.
    fn own_build<'a>(&self, builds: &'a [Build], device: &Device) -> Option<&'a Build> {
        let mut all = self.devices.iter();
        let at = all.position(|own| std::ptr::eq(&**own, device))?;
        builds.get(at)
    }

    // Extends a signature by the context's sub-devices that use their parents' builds.
    fn with_parts(&self, of: Arc<Signature>, builds: &[Build]) -> Arc<Signature> {
        let parts = self.context.devices().iter().filter_map(|part| {
            let own = self.own_build(builds, part);
            let is_built = own.is_some_and(|build| build.status != CL_BUILD_NONE);
            if is_built || of.on_device(part).is_some() {
                return None;
            }
            let on = with_parents(part).find_map(|parent| of.on_device(parent))?;
            Some(on.for_part(part))
        });
        let parts: Vec<_> = parts.collect();
        if parts.is_empty() {
            return of;
        }
        let mut all = Signature::clone(&of);
        all.devices.extend(parts);
        Arc::new(all)
    }

    // The position in `devices` of a site's device.
    fn position_on(&self, site: &Site, index: DeviceIndex) -> Option<usize> {
        self.devices
            .iter()
            .position(|own| own.index() == index && site.has(own))
    }

    // Locks the state, if there is an executable for at least one device.
    fn executable(&self) -> ClResult<MutexGuard<'_, ProgramState>> {
        let state = self.state.lock();
        let built = match self.origin {
            Origin::BuiltInKernels => true,
            _ => state.builds.iter().any(Build::is_executable),
        };
        // clCreateKernel, clGetProgramInfo: CL_INVALID_PROGRAM_EXECUTABLE when no device has a
        // successfully built executable.
        require(built, CL_INVALID_PROGRAM_EXECUTABLE)?;
        Ok(state)
    }

    /// Returns the names of the program's kernels.
    ///
    /// # Errors
    /// `CL_INVALID_PROGRAM_EXECUTABLE` before a successful build.
    pub fn kernel_names(&self) -> ClResult<Vec<String>> {
        let state = self.executable()?;
        Ok(state.signatures.iter().map(|of| of.name.clone()).collect())
    }

    /// Returns the names of the kernels that `clCreateKernelsInProgram` creates: those that the devices
    /// agree about.
    ///
    /// # Errors
    /// Those of [`Program::kernel_names`].
    pub fn creatable_kernels(&self) -> ClResult<Vec<String>> {
        let state = self.executable()?;
        let creatable = state.signatures.iter().filter(|of| !of.conflicting);
        Ok(creatable.map(|of| of.name.clone()).collect())
    }

    // Counts a kernel that is about to be made; no build may start until `detach`. Also returns whether
    // launches may have smaller groups at the edges.
    pub(super) fn attach(&self, name: &str) -> ClResult<(Arc<Signature>, bool)> {
        let mut state = self.executable()?;
        let found = state.signatures.iter().find(|of| of.name == name).cloned();
        // clCreateKernel: CL_INVALID_KERNEL_NAME when the program has no kernel of this name.
        let signature = found.ok_or(Status(CL_INVALID_KERNEL_NAME))?;
        // clCreateKernel: CL_INVALID_KERNEL_DEFINITION when the kernel's arguments differ between
        // devices.
        require(!signature.conflicting, CL_INVALID_KERNEL_DEFINITION)?;
        // A worker rejects longer names and more arguments.
        let fits = name.len() <= MAX_NAME && signature.args.len() <= MAX_ARGUMENTS;
        require(fits, CL_OUT_OF_HOST_MEMORY)?;
        state.kernels += 1;
        Ok((signature, state.traits.non_uniform))
    }

    // Counts one more kernel of the same function (`clCloneKernel`).
    pub(super) fn attach_another(&self) {
        self.state.lock().kernels += 1;
    }

    pub(super) fn detach(&self) {
        self.state.lock().kernels -= 1;
    }
}

impl ProgramState {
    // Replaces what a site has reported about kernels, except for devices that were not built for this
    // time. Takes effect with `unite`.
    fn learn(&mut self, site: &Site, kernels: Vec<Signature>, rebuilt: impl Fn(&Device) -> bool) {
        let told = &mut self.told[site.index()];
        let earlier = std::mem::take(told);
        told.extend(kernels.into_iter().map(Arc::new));
        told.extend(earlier.iter().filter_map(|of| of.without(&rebuilt)));
    }

    fn unite(&mut self, program: &Program) {
        let united = united(self.told.iter().flatten()).into_iter();
        let with_parts = united.map(|of| program.with_parts(of, &self.builds));
        self.signatures = with_parts.collect();
    }
}

// The device, its parent, and so on.
fn with_parents(device: &Arc<Device>) -> impl Iterator<Item = &Arc<Device>> {
    std::iter::successors(Some(device), |part| part.parent())
}

// The command that creates a program on a site. The worker answers if `request` is not 0.
fn create(site: &Site, program: u64, from: From, request: u64) -> Kind {
    Kind::CreateProgram(CreateProgram {
        program,
        context: site.context().0,
        from: Some(from),
        request,
    })
}

fn program_answer(answer: Answer) -> ProgramAnswer {
    match answer.body {
        Some(Body::Program(program)) => program,
        _ => ProgramAnswer::default(),
    }
}

// Merges what the node reported about a build into what the client knows (the options).
fn told_build(told: DeviceBuild, known: Build) -> Build {
    // Some drivers (PoCL) report the program of a failed build as an executable.
    let binary_type = match told.status {
        CL_BUILD_ERROR => CL_PROGRAM_BINARY_TYPE_NONE,
        _ => told.binary_type,
    };
    Build {
        status: told.status,
        log: told.log.into(),
        binary_type,
        global_variable_size: told.global_variable_size,
        ..known
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        self.remotes.release(&self.context, ObjectKind::Program);
        let callbacks = std::mem::take(self.release_callbacks.get_mut());
        for callback in callbacks.into_iter().rev() {
            crate::stub::event::callbacks::run(callback);
        }
    }
}
