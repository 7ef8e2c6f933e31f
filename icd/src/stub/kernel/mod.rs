//! A kernel: its signature, the arguments set so far, and its launches.
//!
//! Arguments live here until a launch takes them along. Invariant: the changed arguments are computed
//! and the launch is sent under the kernel's one lock, so that the order of a kernel's launches on the
//! wire is the order of the differences between them.

mod args;
mod range;
mod signature;

use std::sync::Arc;

use causeway_proto::command::{
    CreateKernel, KernelWorkGroup, NdRange, ObjectKind, Query, answer::Body, command::Kind,
    enqueue::Operation, query::Question,
};
use causeway_proto::id::{DeviceIndex, KernelId, RequestId};
use cl_headers::types::{
    CL_INVALID_PROGRAM_EXECUTABLE, CL_INVALID_VALUE, CL_KERNEL_LOCAL_MEM_SIZE,
    CL_MISALIGNED_SUB_BUFFER_OFFSET, CL_OUT_OF_RESOURCES,
};
use parking_lot::{Mutex, MutexGuard};

use self::args::{Args, Captured};
use super::{Binding, Device, Event, Program, Queue, Submission, next_id};
use crate::error::{ClResult, Status, require};

pub use args::ArgValue;
pub use range::{Limits, Range};
pub use signature::{Arg, ArgInfo, OnDevice, Signature};

/// See the module.
pub struct Kernel {
    pub(crate) binding: Binding,
    id: KernelId,
    program: Arc<Program>,
    signature: Arc<Signature>,
    limits: Vec<(DeviceIndex, Limits)>,
    state: Mutex<State>,
}

struct State {
    args: Args,
    // CL_KERNEL_LOCAL_MEM_SIZE as the node told it for the present local arguments.
    local_mem: Vec<(DeviceIndex, u64)>,
}

impl std::fmt::Debug for Kernel {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Kernel")
            .field("id", &self.id)
            .field("name", &self.signature.name)
            .finish_non_exhaustive()
    }
}

impl Kernel {
    /// `clCreateKernel`; waits for nothing.
    ///
    /// # Errors
    /// `CL_INVALID_PROGRAM_EXECUTABLE`, `CL_INVALID_KERNEL_NAME`, `CL_INVALID_KERNEL_DEFINITION`,
    /// `CL_DEVICE_NOT_AVAILABLE`.
    pub fn new(program: &Arc<Program>, name: &str) -> ClResult<Arc<Kernel>> {
        let (signature, non_uniform) = program.attach(name)?;
        let args = Args::new(signature.args.len());
        let limits = signature.devices.iter().filter_map(|on| {
            let mut devices = program.devices().iter();
            let device = devices.find(|device| device.index() == on.device)?;
            Some((on.device, Limits::new(device, on, non_uniform)))
        });
        let limits = limits.collect();
        Kernel::attached(program, signature, limits, args)
    }

    /// `clCloneKernel`: the same function with the same arguments.
    ///
    /// # Errors
    /// `CL_DEVICE_NOT_AVAILABLE`.
    pub fn duplicate(&self) -> ClResult<Arc<Kernel>> {
        self.program.attach_another();
        let args = self.state.lock().args.for_clone();
        Kernel::attached(
            &self.program,
            self.signature.clone(),
            self.limits.clone(),
            args,
        )
    }

    // The program counts it already.
    fn attached(
        program: &Arc<Program>,
        signature: Arc<Signature>,
        limits: Vec<(DeviceIndex, Limits)>,
        args: Args,
    ) -> ClResult<Arc<Kernel>> {
        let kernel = Arc::new(Kernel {
            binding: Binding::default(),
            id: KernelId(next_id()),
            program: program.clone(),
            signature,
            limits,
            state: Mutex::new(State {
                args,
                local_mem: Vec::new(),
            }),
        });
        program
            .context()
            .site()
            .send(Kind::CreateKernel(CreateKernel {
                kernel: kernel.id.0,
                program: program.id().0,
                name: kernel.signature.name.clone(),
            }))?;
        Ok(kernel)
    }

    /// Its name on the wire.
    #[must_use]
    pub fn id(&self) -> KernelId {
        self.id
    }

    /// Its program.
    #[must_use]
    pub fn program(&self) -> &Arc<Program> {
        &self.program
    }

    /// What is known of its function.
    #[must_use]
    pub fn signature(&self) -> &Arc<Signature> {
        &self.signature
    }

    /// Sets an argument; `index` and value suit the signature.
    pub fn set_arg(&self, index: usize, value: ArgValue) {
        let mut state = self.state.lock();
        if matches!(value, ArgValue::Local(_)) {
            state.local_mem.clear();
        }
        state.args.set(index, value);
    }

    /// `CL_KERNEL_LOCAL_MEM_SIZE`, which counts the local arguments set so far: with some set, one
    /// round trip for each new set of sizes.
    ///
    /// # Errors
    /// What the node says; `CL_DEVICE_NOT_AVAILABLE`.
    pub fn local_mem_size(&self, on: &OnDevice) -> ClResult<u64> {
        let args = {
            let state = self.state.lock();
            let mut known = state.local_mem.iter();
            if let Some((_, size)) = known.find(|(device, _)| *device == on.device) {
                return Ok(*size);
            }
            state.args.locals()
        };
        if args.is_empty() {
            return Ok(on.local_mem_size);
        }
        let bytes = self.ask(on.device, CL_KERNEL_LOCAL_MEM_SIZE, args.clone())?;
        let size = <[u8; 8]>::try_from(&bytes[..]).map_err(|_| Status(CL_INVALID_VALUE))?;
        let size = u64::from_le_bytes(size);
        let mut state = self.state.lock();
        // Another thread may have set other sizes meanwhile.
        if state.args.locals() == args {
            state.local_mem.push((on.device, size));
        }
        Ok(size)
    }

    /// An answer of `clGetKernelWorkGroupInfo` that only the node has; one round trip.
    ///
    /// # Errors
    /// What the node says; `CL_DEVICE_NOT_AVAILABLE`.
    pub fn ask_work_group(&self, on: &OnDevice, name: u32) -> ClResult<bytes::Bytes> {
        self.ask(on.device, name, Vec::new())
    }

    fn ask(
        &self,
        device: DeviceIndex,
        name: u32,
        args: Vec<causeway_proto::command::KernelArg>,
    ) -> ClResult<bytes::Bytes> {
        let request = RequestId(next_id());
        let query = Kind::Query(Query {
            request: request.0,
            question: Some(Question::KernelWorkGroup(KernelWorkGroup {
                kernel: self.id.0,
                device: device.0,
                name,
                args,
            })),
        });
        let session = self.program.context().site().session();
        let answer = session.request(request, &query)?;
        require(answer.status >= 0, answer.status)?;
        match answer.body {
            Some(Body::Value(bytes)) => Ok(bytes),
            _ => Err(Status(CL_INVALID_VALUE)),
        }
    }

    /// Begins a launch: takes the arguments as they are and keeps them so until the launch is sent
    /// or given up.
    ///
    /// # Errors
    /// `CL_INVALID_PROGRAM_EXECUTABLE` when it was not built for the device; `CL_INVALID_KERNEL_ARGS`,
    /// `CL_INVALID_MEM_OBJECT`.
    pub fn launch<'a>(&'a self, device: &Device) -> ClResult<Launch<'a>> {
        let mut all = self.limits.iter();
        let (_, limits) = all
            .find(|(index, _)| *index == device.index())
            .ok_or(Status(CL_INVALID_PROGRAM_EXECUTABLE))?;
        let state = self.state.lock();
        let captured = state.args.capture()?;
        Ok(Launch {
            kernel: self,
            limits,
            captured,
            state,
        })
    }
}

/// A launch whose arguments are captured; nobody sets arguments of the kernel meanwhile.
pub struct Launch<'a> {
    kernel: &'a Kernel,
    limits: &'a Limits,
    captured: Captured,
    state: MutexGuard<'a, State>,
}

impl Launch<'_> {
    /// What the kernel takes on the device.
    #[must_use]
    pub fn limits(&self) -> &Limits {
        self.limits
    }

    /// Whether the device can take the memory: sub-buffers where it can address them, and no more local
    /// memory than it has (some drivers do not survive that).
    ///
    /// # Errors
    /// `CL_MISALIGNED_SUB_BUFFER_OFFSET`, `CL_OUT_OF_RESOURCES`.
    pub fn check_memory(&self) -> ClResult {
        let aligned = self
            .captured
            .memory
            .iter()
            .all(|buffer| buffer.origin() % self.limits.alignment == 0);
        require(aligned, CL_MISALIGNED_SUB_BUFFER_OFFSET)?;
        let needed = self
            .limits
            .own_local_mem
            .checked_add(self.state.args.local_memory());
        let enough = needed.is_some_and(|needed| needed <= self.limits.local_mem);
        require(enough, CL_OUT_OF_RESOURCES)
    }

    /// Sends it.
    ///
    /// # Errors
    /// As [`Queue::submit`].
    pub fn submit(
        mut self,
        queue: &Arc<Queue>,
        command: u32,
        range: &Range,
        wait: Vec<Arc<Event>>,
        visible: bool,
    ) -> ClResult<Arc<Event>> {
        let sizes = |sizes: &Option<[u64; 3]>| {
            sizes
                .as_ref()
                .map_or_else(Vec::new, |sizes| range.wire(sizes))
        };
        let nothing = range.is_empty();
        let event = queue.submit(
            Submission {
                operation: Operation::NdRange(NdRange {
                    kernel: self.kernel.id.0,
                    args: self.captured.changed,
                    global: sizes(&Some(range.global).filter(|_| !nothing)),
                    offset: sizes(&range.offset.filter(|_| !nothing)),
                    local: sizes(&range.local.filter(|_| !nothing)),
                }),
                command,
                wait,
                hold: self.captured.memory,
                finisher: None,
                visible,
            },
            |_| Ok(()),
        )?;
        self.state.args.sent();
        Ok(event)
    }
}

impl Drop for Kernel {
    fn drop(&mut self) {
        self.program.detach();
        self.program
            .context()
            .site()
            .release(ObjectKind::Kernel, self.id.0);
    }
}
