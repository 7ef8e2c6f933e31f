//! A program: where it came from, its builds, and the kernels that they gave.
//!
//! Status, logs, options, binary types and kernel signatures come with the answer to a build and are
//! held here, so that queries cost no traffic; only binaries are asked of the node. Specification:
//! "Program Objects".
//!
//! Invariant: at most one build of a program runs at a time, and none starts while it has kernels; the
//! lock is never held while the node is waited for.

pub mod binary;
mod build;
mod include;
mod macros;

use std::sync::Arc;

use bytes::Bytes;
use causeway_proto::command::{
    Answer, Binaries, CreateProgram, DeviceBinary, DeviceBuild, ObjectKind, ProgramAnswer,
    ProgramBinaries, Query, answer::Body, command::Kind, create_program::From, query::Question,
};
use causeway_proto::id::{DeviceIndex, ProgramId, RequestId};
use cl_headers::types::{
    CL_BUILD_NONE, CL_BUILD_SUCCESS, CL_INVALID_BINARY, CL_INVALID_KERNEL_DEFINITION,
    CL_INVALID_KERNEL_NAME, CL_INVALID_PROGRAM_EXECUTABLE, CL_PROGRAM_BINARY_TYPE_EXECUTABLE,
    CL_PROGRAM_BINARY_TYPE_NONE,
};
use parking_lot::{Mutex, MutexGuard};

pub use build::{BuildNotify, BuildRequest, Verb};

use super::kernel::Signature;
use super::{Binding, Context, Device, next_id};
use crate::error::{ClResult, Status, require};
use binary::Identity;

/// See the module.
pub struct Program {
    pub(crate) binding: Binding,
    id: ProgramId,
    context: Arc<Context>,
    devices: Vec<Arc<Device>>,
    origin: Origin,
    state: Mutex<State>,
}

/// Where a program came from.
#[derive(Clone, Debug)]
pub enum Origin {
    /// `clCreateProgramWithSource`: the joined text.
    Source(Bytes),
    /// `clCreateProgramWithBinary`.
    Binaries,
    /// `clCreateProgramWithBuiltInKernels`.
    BuiltInKernels,
    /// `clLinkProgram`.
    Link,
}

/// How the last build went on one device.
#[derive(Clone, Debug)]
pub struct Build {
    /// `CL_PROGRAM_BUILD_STATUS`.
    pub status: i32,
    /// `CL_PROGRAM_BUILD_OPTIONS`, exactly as given.
    pub options: Arc<str>,
    /// `CL_PROGRAM_BUILD_LOG`.
    pub log: Arc<str>,
    /// `CL_PROGRAM_BINARY_TYPE`.
    pub binary_type: u32,
    /// `CL_PROGRAM_BUILD_GLOBAL_VARIABLE_TOTAL_SIZE`, bytes.
    pub global_variable_size: u64,
}

impl Default for Build {
    fn default() -> Build {
        Build {
            status: CL_BUILD_NONE,
            options: Arc::from(""),
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

/// What the options of a program's builds said that matters later.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Traits {
    // Argument info may be shown.
    arg_info: bool,
    // Launches may have smaller groups at the edges.
    non_uniform: bool,
}

struct State {
    // By position in `devices`.
    builds: Vec<Build>,
    running: bool,
    kernels: usize,
    signatures: Vec<Arc<Signature>>,
    traits: Traits,
    binary_sizes: Option<Vec<u64>>,
}

impl std::fmt::Debug for Program {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Program")
            .field("id", &self.id)
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
            id: ProgramId(next_id()),
            context: context.clone(),
            devices,
            origin,
            state: Mutex::new(State {
                builds,
                running: false,
                kernels: 0,
                signatures: Vec::new(),
                traits,
                binary_sizes: None,
            }),
        }
    }

    fn create(&self, from: From, request: u64) -> Kind {
        Kind::CreateProgram(CreateProgram {
            program: self.id.0,
            context: self.context.site().context().0,
            from: Some(from),
            request,
        })
    }

    // Creates it on the node and waits for the verdict.
    fn create_and_wait(&self, from: From) -> ClResult<Answer> {
        let request = RequestId(next_id());
        let command = self.create(from, request.0);
        Ok(self.context.site().session().request(request, &command)?)
    }

    /// `clCreateProgramWithSource`; waits for nothing.
    ///
    /// # Errors
    /// `CL_DEVICE_NOT_AVAILABLE` when the session is lost, `CL_OUT_OF_HOST_MEMORY` for a text that no
    /// command takes.
    pub fn from_source(context: &Arc<Context>, source: Bytes) -> ClResult<Arc<Program>> {
        let devices = context.devices().to_vec();
        let origin = Origin::Source(source.clone());
        let program = Program::new(context, devices, origin, Traits::of_source());
        context
            .site()
            .send(program.create(From::Source(source), 0))?;
        Ok(Arc::new(program))
    }

    /// `clCreateProgramWithBinary`: one binary a device. The second result is `binary_status`, by
    /// position.
    ///
    /// # Errors
    /// `CL_INVALID_BINARY`, as found here or by the node; `CL_DEVICE_NOT_AVAILABLE`.
    pub fn from_binaries(
        context: &Arc<Context>,
        devices: Vec<Arc<Device>>,
        binaries: &[&[u8]],
    ) -> (ClResult<Arc<Program>>, Vec<i32>) {
        let mut verdicts = vec![0; devices.len()];
        let mut per_device = Vec::with_capacity(devices.len());
        for ((device, given), verdict) in devices.iter().zip(binaries).zip(&mut verdicts) {
            match Identity::of(device).unwrap(given) {
                Ok(native) => per_device.push(DeviceBinary {
                    device: device.index().0,
                    binary: Bytes::copy_from_slice(native),
                }),
                Err(status) => *verdict = status.0,
            }
        }
        if per_device.len() < devices.len() {
            return (Err(Status(CL_INVALID_BINARY)), verdicts);
        }
        let program = Program::new(context, devices, Origin::Binaries, Traits::of_binaries());
        let answer = match program.create_and_wait(From::Binaries(Binaries { per_device })) {
            Ok(answer) => answer,
            Err(status) => return (Err(status), verdicts),
        };
        let status = Status(answer.status.min(0));
        for told in program_answer(answer).devices {
            if let Some(at) = program.position(DeviceIndex(told.device)) {
                verdicts[at] = told.binary_status;
                program.state.lock().builds[at] = told_build(told, Build::default());
            }
        }
        let result = if status.is_error() {
            Err(status)
        } else {
            Ok(Arc::new(program))
        };
        (result, verdicts)
    }

    /// `clCreateProgramWithBuiltInKernels`: `names` separated by semicolons. It needs no build.
    ///
    /// # Errors
    /// What the node says; `CL_DEVICE_NOT_AVAILABLE`.
    pub fn from_built_in_kernels(
        context: &Arc<Context>,
        devices: Vec<Arc<Device>>,
        names: &str,
    ) -> ClResult<Arc<Program>> {
        let traits = Traits::of_binaries();
        let program = Program::new(context, devices, Origin::BuiltInKernels, traits);
        let answer = program.create_and_wait(From::BuiltInKernels(names.to_owned()))?;
        require(answer.status >= 0, answer.status)?;
        let told = program_answer(answer);
        {
            let mut state = program.state.lock();
            for build in told.devices {
                if let Some(at) = program.position(DeviceIndex(build.device)) {
                    state.builds[at] = told_build(build, Build::default());
                }
            }
            let kernels = told.kernels.into_iter();
            state.signatures = kernels
                .map(|wire| Arc::new(Signature::new(wire, true)))
                .collect();
        }
        Ok(Arc::new(program))
    }

    /// Its name on the wire.
    #[must_use]
    pub fn id(&self) -> ProgramId {
        self.id
    }

    /// Its context.
    #[must_use]
    pub fn context(&self) -> &Arc<Context> {
        &self.context
    }

    /// `CL_PROGRAM_DEVICES`.
    #[must_use]
    pub fn devices(&self) -> &[Arc<Device>] {
        &self.devices
    }

    /// Where it came from.
    #[must_use]
    pub fn origin(&self) -> &Origin {
        &self.origin
    }

    /// The last build for a device; none for one that is not among [`Program::devices`].
    #[must_use]
    pub fn build_of(&self, device: &Device) -> Option<Build> {
        let at = self
            .devices
            .iter()
            .position(|own| std::ptr::eq(&**own, device))?;
        Some(self.state.lock().builds[at].clone())
    }

    fn position(&self, device: DeviceIndex) -> Option<usize> {
        self.devices.iter().position(|own| own.index() == device)
    }

    // The state, if there is an executable for at least one device.
    fn executable(&self) -> ClResult<MutexGuard<'_, State>> {
        let state = self.state.lock();
        let built = match self.origin {
            Origin::BuiltInKernels => true,
            _ => state.builds.iter().any(Build::is_executable),
        };
        require(built, CL_INVALID_PROGRAM_EXECUTABLE)?;
        Ok(state)
    }

    /// The names of its kernels.
    ///
    /// # Errors
    /// `CL_INVALID_PROGRAM_EXECUTABLE` before a build.
    pub fn kernel_names(&self) -> ClResult<Vec<String>> {
        let state = self.executable()?;
        Ok(state.signatures.iter().map(|of| of.name.clone()).collect())
    }

    /// The names of the kernels that `clCreateKernelsInProgram` makes: without those about which the
    /// devices disagree.
    ///
    /// # Errors
    /// As [`Program::kernel_names`].
    pub fn creatable_kernels(&self) -> ClResult<Vec<String>> {
        let state = self.executable()?;
        let creatable = state.signatures.iter().filter(|of| !of.conflicting);
        Ok(creatable.map(|of| of.name.clone()).collect())
    }

    // A kernel is about to be made of a function: until `detach` no build may start. Tells also
    // whether its launches may have smaller groups at the edges.
    pub(super) fn attach(&self, name: &str) -> ClResult<(Arc<Signature>, bool)> {
        let mut state = self.executable()?;
        let found = state.signatures.iter().find(|of| of.name == name).cloned();
        let signature = found.ok_or(Status(CL_INVALID_KERNEL_NAME))?;
        require(!signature.conflicting, CL_INVALID_KERNEL_DEFINITION)?;
        state.kernels += 1;
        Ok((signature, state.traits.non_uniform))
    }

    // One more kernel of a function that has one (clCloneKernel).
    pub(super) fn attach_another(&self) {
        self.state.lock().kernels += 1;
    }

    pub(super) fn detach(&self) {
        self.state.lock().kernels -= 1;
    }

    fn ask_binaries(&self, sizes_only: bool) -> ClResult<Vec<(usize, Bytes, u64)>> {
        let request = RequestId(next_id());
        let query = Kind::Query(Query {
            request: request.0,
            question: Some(Question::ProgramBinaries(ProgramBinaries {
                program: self.id.0,
                sizes_only,
            })),
        });
        let answer = self.context.site().session().request(request, &query)?;
        require(answer.status >= 0, answer.status)?;
        let Some(Body::Binaries(told)) = answer.body else {
            return Ok(Vec::new());
        };
        let sizes = told.sizes.into_iter().chain(std::iter::repeat(0));
        let placed = told
            .per_device
            .into_iter()
            .zip(sizes)
            .filter_map(|(of, size)| {
                let at = self.position(DeviceIndex(of.device))?;
                Some((at, of.binary, size))
            });
        Ok(placed.collect())
    }

    // Whether some device can have a binary at all.
    fn may_have_binaries(&self) -> bool {
        let built = |build: &Build| build.binary_type != CL_PROGRAM_BINARY_TYPE_NONE;
        matches!(self.origin, Origin::Binaries) || self.state.lock().builds.iter().any(built)
    }

    /// `CL_PROGRAM_BINARY_SIZES`: bytes of each device's container, 0 where there is no binary. One
    /// round trip after each build.
    ///
    /// # Errors
    /// What the node says; `CL_DEVICE_NOT_AVAILABLE`.
    pub fn binary_sizes(&self) -> ClResult<Vec<u64>> {
        let known = self.state.lock().binary_sizes.clone();
        if let Some(sizes) = known {
            return Ok(sizes);
        }
        let mut sizes = vec![0; self.devices.len()];
        if self.may_have_binaries() {
            for (at, _, size) in self.ask_binaries(true)? {
                if size > 0 {
                    sizes[at] = size + Identity::of(&self.devices[at]).overhead() as u64;
                }
            }
        }
        let mut state = self.state.lock();
        if !state.running {
            state.binary_sizes = Some(sizes.clone());
        }
        Ok(sizes)
    }

    /// `CL_PROGRAM_BINARIES`: each device's container, empty where there is no binary. One round trip.
    ///
    /// # Errors
    /// What the node says; `CL_DEVICE_NOT_AVAILABLE`.
    pub fn binaries(&self) -> ClResult<Vec<Vec<u8>>> {
        let mut binaries = vec![Vec::new(); self.devices.len()];
        if self.may_have_binaries() {
            for (at, native, _) in self.ask_binaries(false)? {
                if !native.is_empty() {
                    binaries[at] = Identity::of(&self.devices[at]).wrap(&native);
                }
            }
        }
        Ok(binaries)
    }
}

fn program_answer(answer: Answer) -> ProgramAnswer {
    match answer.body {
        Some(Body::Program(program)) => program,
        _ => ProgramAnswer::default(),
    }
}

// What the node told of a build, over what is known here (the options).
fn told_build(told: DeviceBuild, known: Build) -> Build {
    Build {
        status: told.status,
        log: told.log.into(),
        binary_type: told.binary_type,
        global_variable_size: told.global_variable_size,
        ..known
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        self.context.site().release(ObjectKind::Program, self.id.0);
    }
}
