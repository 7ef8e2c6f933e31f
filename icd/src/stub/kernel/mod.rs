//! A kernel: its signature and the arguments set so far; a compound stub.
//!
//! Arguments live here until a launch takes them along (`launch.rs`). In a context of several sites the
//! kernel comes to be on a site when it is first launched or asked there.

mod args;
mod dispatch;
mod launch;
mod range;
mod signature;

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

use self::args::{Args, Known};
use super::remote::Remotes;
use super::{Binding, Buffer, Device, Program, Site, next_id};
use crate::error::{ClResult, Status, require};

pub use args::{ArgValue, PlainBytes};
pub use dispatch::Dispatch;
pub use launch::{Commit, Launch, Snapshot};
pub use range::{Limits, Range};
pub use signature::{Arg, ArgInfo, Declared, OnDevice, Signature, united};

/// See the module.
pub struct Kernel {
    pub(crate) binding: Binding,
    remotes: Remotes,
    program: Arc<Program>,
    signature: Arc<Signature>,
    limits: Vec<(Arc<Device>, Limits)>,
    state: Mutex<State>,
    // In a command buffer whose launches name it: from then on queries give its handle back.
    recorded: AtomicBool,
    // By the site's index. Locked after `state` and after whatever orders commands.
    known: Box<[Mutex<Known>]>,
}

struct State {
    args: Args,
    // CL_KERNEL_LOCAL_MEM_SIZE as the node told it for the present local arguments.
    local_mem: Vec<(Arc<Device>, u64)>,
    // What the node told of sub-groups; depends on what is asked only.
    sub_groups: Vec<(SubGroupQuestion, bytes::Bytes)>,
}

// The kernel on a site, a device there, name, input, and how many sizes the answer may have.
type SubGroupQuestion = (u64, DeviceIndex, u32, Vec<u64>, u32);

/// Answers about sub-groups that are remembered; who asks more is no loop over a few sizes.
const MAX_REMEMBERED: usize = 64;

impl std::fmt::Debug for Kernel {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Kernel")
            .field("name", &self.signature.name)
            .finish_non_exhaustive()
    }
}

impl Kernel {
    /// `clCreateKernel`; waits for nothing.
    ///
    /// # Errors
    /// `CL_INVALID_PROGRAM_EXECUTABLE`, `CL_INVALID_KERNEL_NAME`, `CL_INVALID_KERNEL_DEFINITION`,
    /// `CL_OUT_OF_HOST_MEMORY` for more arguments, or a longer name, than a worker takes; `CL_DEVICE_NOT_AVAILABLE`.
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

    /// `clCloneKernel`: the same function with the same arguments.
    ///
    /// # Errors
    /// `CL_DEVICE_NOT_AVAILABLE`.
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

    // The program counts it already.
    fn attached(
        program: &Arc<Program>,
        signature: Arc<Signature>,
        limits: Vec<(Arc<Device>, Limits)>,
        args: Args,
    ) -> ClResult<Arc<Kernel>> {
        let context = program.context();
        let known = || Mutex::new(Known::nothing(args.len()));
        let kernel = Arc::new(Kernel {
            binding: Binding::default(),
            remotes: Remotes::new(context),
            program: program.clone(),
            signature,
            limits,
            recorded: AtomicBool::new(false),
            known: context.sites().iter().map(|_| known()).collect(),
            state: Mutex::new(State {
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

    /// Its id on a site; made there now if it is not yet.
    ///
    /// # Errors
    /// `CL_INVALID_PROGRAM_EXECUTABLE` when the program is not there, `CL_DEVICE_NOT_AVAILABLE` when the
    /// session is lost.
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

    /// A handle of a command buffer's launch names it.
    pub(super) fn set_recorded(&self) {
        self.recorded.store(true, Ordering::Relaxed);
    }

    /// Whether a query may give its handle back when the application holds it no more.
    #[must_use]
    pub fn is_recorded(&self) -> bool {
        self.recorded.load(Ordering::Relaxed)
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

    /// Sets which shared virtual memory it reaches by pointers in memory.
    pub fn set_reaches(&self, memory: Vec<Weak<Buffer>>) {
        self.state.lock().args.set_reaches(memory);
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
        // Another thread may have set other sizes meanwhile.
        if state.args.locals() == args {
            state.local_mem.push((on.device.clone(), size));
        }
        Ok(size)
    }

    /// An answer of `clGetKernelWorkGroupInfo` that only the node has; one round trip.
    ///
    /// # Errors
    /// What the node says; `CL_DEVICE_NOT_AVAILABLE`.
    pub fn ask_work_group(&self, on: &OnDevice, name: u32) -> ClResult<bytes::Bytes> {
        self.ask(&on.device, name, Vec::new())
    }

    /// An answer of `clGetKernelSubGroupInfo`, of at most `room` sizes; one round trip for each question
    /// that was not asked before.
    ///
    /// # Errors
    /// What the node says; `CL_DEVICE_NOT_AVAILABLE`.
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
        let known = |state: &State| {
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

// Asks a site and waits.
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
