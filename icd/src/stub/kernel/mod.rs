//! A kernel: its signature and the current arguments; a compound stub.
//!
//! Arguments stay in the client until a launch sends them (`launch.rs`). In a context of several sites, the
//! kernel is created on a site with its first launch or query there.

mod args;
mod dispatch;
mod launch;
mod range;
mod signature;

use std::borrow::Cow;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};

use causeway_proto::command::{
    CreateKernel, KernelArg, KernelSubGroup, KernelWorkGroup, ObjectKind, Query, answer::Body,
    command::Kind, query::Question,
};
use causeway_proto::id::{DeviceIndex, KernelId, RequestId};
use cl_headers::types::{
    CL_INVALID_PROGRAM_EXECUTABLE, CL_INVALID_VALUE, CL_KERNEL_LOCAL_MEM_SIZE,
};
use parking_lot::Mutex;

use self::args::{Args, SentArgs};
use crate::error::{ClResult, Status, require};
use crate::stub::context::remote::Remotes;
use crate::stub::event::Note;
use crate::stub::{Binding, Buffer, Device, Program, Site, next_id};
use crate::trace;

pub use args::{ArgValue, PlainBytes};
pub use dispatch::Dispatch;
pub use launch::{Commit, Launch, Snapshot};
pub use range::{Limits, Range};
pub use signature::{Arg, ArgInfo, Declared, OnDevice, Signature, united};

/// A kernel object; see the module.
pub struct Kernel {
    pub(crate) binding: Binding,
    remotes: Remotes,
    program: Arc<Program>,
    signature: Arc<Signature>,
    // The function's name for the program's trace; empty without a trace.
    traced_name: Cow<'static, str>,
    limits: Vec<(Arc<Device>, Limits)>,
    state: Mutex<KernelState>,
    // Set when the kernel is part of a command buffer that names it; queries may then return its handle.
    recorded: AtomicBool,
    // The arguments that each site knows, by the site's index. Locked after `state`, and after any lock
    // that orders commands.
    known: Box<[Mutex<SentArgs>]>,
}

struct KernelState {
    args: Args,
    // `CL_KERNEL_LOCAL_MEM_SIZE` as the node reported it for the current local arguments.
    local_mem: Vec<(Arc<Device>, u64)>,
    // The node's answers about sub-groups. They depend only on the question, so arguments do not matter.
    sub_groups: Vec<(SubGroupQuestion, bytes::Bytes)>,
}

// The kernel's id on a site, the device there, the info name, the input, and the largest number of sizes in
// the answer.
type SubGroupQuestion = (u64, DeviceIndex, u32, Vec<u64>, u32);

/// Maximum number of remembered answers about sub-groups. A normal program asks about only a few sizes.
const MAX_REMEMBERED: usize = 64;

impl std::fmt::Debug for Kernel {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Kernel")
            .field("name", &self.signature.name)
            .finish_non_exhaustive()
    }
}

impl Kernel {
    /// `clCreateKernel`: makes a kernel, without waiting.
    ///
    /// # Errors
    /// `CL_INVALID_PROGRAM_EXECUTABLE`, `CL_INVALID_KERNEL_NAME`, `CL_INVALID_KERNEL_DEFINITION`.
    /// `CL_OUT_OF_HOST_MEMORY` when the name is longer, or the arguments are more, than a worker accepts.
    /// `CL_DEVICE_NOT_AVAILABLE`.
    pub fn new(program: &Arc<Program>, name: &str) -> ClResult<Arc<Kernel>> {
        let (signature, non_uniform) = program.attach(name)?;
        let args = Args::new(signature.args.len());
        let limits = signature.devices.iter().map(|on| {
            let limits = Limits::new(&on.device, on, non_uniform);
            (on.device.clone(), limits)
        });
        let limits = limits.collect();
        Kernel::attached(program, signature, limits, args)
    }

    /// `clCloneKernel`: makes another kernel of the same function with the same arguments.
    ///
    /// # Errors
    /// `CL_DEVICE_NOT_AVAILABLE` when the session is lost.
    pub fn duplicate(&self) -> ClResult<Arc<Kernel>> {
        self.program.attach_another();
        let args = self.state.lock().args.clone();
        Kernel::attached(
            &self.program,
            self.signature.clone(),
            self.limits.clone(),
            args,
        )
    }

    // Makes the kernel. The caller has already counted it in the program.
    fn attached(
        program: &Arc<Program>,
        signature: Arc<Signature>,
        limits: Vec<(Arc<Device>, Limits)>,
        args: Args,
    ) -> ClResult<Arc<Kernel>> {
        let context = program.context();
        let known = || Mutex::new(SentArgs::nothing(args.len()));
        let traced_name = match trace::is_on() {
            true => trace::lasting(&signature.name),
            false => Cow::default(),
        };
        let kernel = Arc::new(Kernel {
            binding: Binding::default(),
            remotes: Remotes::new(context),
            program: program.clone(),
            signature,
            traced_name,
            limits,
            recorded: AtomicBool::new(false),
            known: context.sites().iter().map(|_| known()).collect(),
            state: Mutex::new(KernelState {
                args,
                local_mem: Vec::new(),
                sub_groups: Vec::new(),
            }),
        });
        if !context.is_distributed() {
            kernel.on(context.site())?;
        }
        Ok(kernel)
    }

    /// Returns the kernel's id on a site, and creates the kernel there if necessary.
    ///
    /// # Errors
    /// `CL_INVALID_PROGRAM_EXECUTABLE` when the program does not exist there, `CL_DEVICE_NOT_AVAILABLE`
    /// when the session is lost.
    fn on(&self, site: &Site) -> ClResult<KernelId> {
        let id = self.remotes.on(site, |id| {
            let program = self.program.known_on(site);
            let program = program.ok_or(Status(CL_INVALID_PROGRAM_EXECUTABLE))?;
            site.send(Kind::CreateKernel(CreateKernel {
                kernel: id,
                program: program.0,
                name: self.signature.name.clone(),
            }))
        });
        id.map(KernelId)
    }

    /// Returns what a trace that is on says of the kernel's launches.
    pub(in crate::stub) fn note(&self) -> Note {
        Note {
            name: Some(self.traced_name.clone()),
            bytes: None,
        }
    }

    /// Records that a launch of a command buffer names this kernel.
    pub(super) fn set_recorded(&self) {
        self.recorded.store(true, Ordering::Relaxed);
    }

    /// Whether a query may return the kernel's handle even after the application has released it.
    #[must_use]
    pub fn is_recorded(&self) -> bool {
        self.recorded.load(Ordering::Relaxed)
    }

    /// Returns the kernel's program.
    #[must_use]
    pub fn program(&self) -> &Arc<Program> {
        &self.program
    }

    /// Returns the signature of the kernel's function.
    #[must_use]
    pub fn signature(&self) -> &Arc<Signature> {
        &self.signature
    }

    /// Sets an argument. The caller has checked `index` and `value` against the signature.
    pub fn set_arg(&self, index: usize, value: ArgValue) {
        let mut state = self.state.lock();
        // The remembered sizes are only right for the previous local arguments.
        if matches!(value, ArgValue::Local(_)) {
            state.local_mem.clear();
        }
        state.args.set(index, value);
    }

    /// Sets the shared virtual memory that the kernel reaches through pointers in memory.
    pub fn set_reaches(&self, memory: Vec<Weak<Buffer>>) {
        self.state.lock().args.set_reaches(memory);
    }

    /// Returns `CL_KERNEL_LOCAL_MEM_SIZE`, in bytes, which includes the current local arguments. Without
    /// local arguments the answer is known; otherwise each new set of sizes costs one round trip.
    ///
    /// # Errors
    /// The node's code; `CL_DEVICE_NOT_AVAILABLE` when the session is lost.
    pub fn local_mem_size(&self, on: &OnDevice) -> ClResult<u64> {
        let args = {
            let state = self.state.lock();
            let mut known = state.local_mem.iter();
            if let Some((_, size)) = known.find(|(device, _)| Arc::ptr_eq(device, &on.device)) {
                return Ok(*size);
            }
            state.args.locals()
        };
        if args.is_empty() {
            return Ok(on.local_mem_size);
        }
        let bytes = self.ask(&on.device, CL_KERNEL_LOCAL_MEM_SIZE, args.clone())?;
        let size = <[u8; 8]>::try_from(&bytes[..]).map_err(|_| Status(CL_INVALID_VALUE))?;
        let size = u64::from_le_bytes(size);
        let mut state = self.state.lock();
        // Another thread may have set other sizes during the query.
        if state.args.locals() == args {
            state.local_mem.push((on.device.clone(), size));
        }
        Ok(size)
    }

    /// Returns an answer of `clGetKernelWorkGroupInfo` that only the node has. Costs one round trip.
    ///
    /// # Errors
    /// The node's code; `CL_DEVICE_NOT_AVAILABLE` when the session is lost.
    pub fn ask_work_group(&self, on: &OnDevice, name: u32) -> ClResult<bytes::Bytes> {
        self.ask(&on.device, name, Vec::new())
    }

    /// Returns an answer of `clGetKernelSubGroupInfo` with at most `room` sizes. Costs one round trip for
    /// each new question.
    ///
    /// # Errors
    /// The node's code; `CL_DEVICE_NOT_AVAILABLE` when the session is lost.
    pub fn ask_sub_group(
        &self,
        on: &OnDevice,
        name: u32,
        input: Vec<u64>,
        room: u32,
    ) -> ClResult<bytes::Bytes> {
        let site = self.program.context().site_of(&on.device);
        let device = on.device.index();
        let question = (self.on(site)?.0, device, name, input, room);
        let known = |state: &KernelState| {
            let mut all = state.sub_groups.iter();
            all.find(|(asked, _)| *asked == question)
                .map(|(_, told)| told.clone())
        };
        if let Some(told) = known(&self.state.lock()) {
            return Ok(told);
        }
        let (kernel, _, name, input, room) = question.clone();
        let ask = Question::KernelSubGroup(KernelSubGroup {
            kernel,
            device: device.0,
            name,
            input,
            room,
        });
        let told = put(site, ask)?;
        let mut state = self.state.lock();
        if state.sub_groups.len() < MAX_REMEMBERED && known(&state).is_none() {
            state.sub_groups.push((question, told.clone()));
        }
        Ok(told)
    }

    fn ask(&self, device: &Device, name: u32, args: Vec<KernelArg>) -> ClResult<bytes::Bytes> {
        let site = self.program.context().site_of(device);
        put(
            site,
            Question::KernelWorkGroup(KernelWorkGroup {
                kernel: self.on(site)?.0,
                device: device.index().0,
                name,
                args,
            }),
        )
    }
}

// Sends a query to a site and waits for the answer.
fn put(site: &Site, question: Question) -> ClResult<bytes::Bytes> {
    let request = RequestId(next_id());
    let query = Kind::Query(Query {
        request: request.0,
        question: Some(question),
    });
    let answer = site.session().request(request, &query)?;
    require(answer.status >= 0, answer.status)?;
    match answer.body {
        Some(Body::Value(bytes)) => Ok(bytes),
        _ => Err(Status(CL_INVALID_VALUE)),
    }
}

impl Drop for Kernel {
    fn drop(&mut self) {
        self.program.detach();
        self.remotes
            .release(self.program.context(), ObjectKind::Kernel);
    }
}
