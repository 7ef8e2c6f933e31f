//! Calls the C API as a program does, through the dispatch table, on a real daemon over the node's own OpenCL. Each
//! process has one daemon, on a free loopback port, which ends with the process.

pub mod secured;

use std::ffi::CStr;
use std::io::{BufRead, BufReader};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::ptr::{null, null_mut};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicI32, Ordering};

pub use cl_headers::Dispatch;
pub use cl_headers::types::*;

/// The function table that every handle points to.
pub fn cl() -> &'static Dispatch {
    causeway::api::dispatch()
}

/// Calls a function that returns a code. Evaluates to the code.
macro_rules! code {
    ($name:ident($($argument:expr),* $(,)?)) => {
        // SAFETY: the test gives what the specification asks for, or what it must refuse.
        unsafe { (crate::frames::opencl::cl().$name)($($argument),*) }
    };
}

/// Calls a function that returns a code, which must be success.
macro_rules! ok {
    ($name:ident($($argument:expr),* $(,)?)) => {
        assert_eq!(crate::frames::opencl::code!($name($($argument),*)), CL_SUCCESS, stringify!($name))
    };
}

/// Calls a function that returns an object or pointer. Evaluates to `Ok` of the object, or `Err` of the code.
macro_rules! make {
    ($name:ident($($argument:expr),* $(,)?)) => {{
        let mut code = 77;
        // SAFETY: as in `code!`; the code has a place.
        let made = unsafe { (crate::frames::opencl::cl().$name)($($argument,)* &raw mut code) };
        assert_eq!(made.is_null(), code != CL_SUCCESS, stringify!($name));
        if code == CL_SUCCESS { Ok(made) } else { Err(code) }
    }};
}

pub(crate) use {code, make, ok};

static DAEMON: AtomicI32 = AtomicI32::new(0);

extern "C" fn end_daemon() {
    let pid = DAEMON.swap(0, Ordering::AcqRel);
    if pid > 0 {
        // SAFETY: our own child, which nobody else waits for.
        unsafe {
            libc::kill(pid, libc::SIGKILL);
            libc::waitpid(pid, null_mut(), 0);
        }
    }
}

/// Kills the daemon's workers, as a crash would.
pub fn kill_workers() {
    kill_workers_of(DAEMON.load(Ordering::Acquire) as u32);
}

/// Kills the workers of any daemon, as a crash would.
pub fn kill_workers_of(daemon: u32) {
    signal_workers_of(daemon, libc::SIGKILL);
}

/// Sends a signal to the workers of any daemon.
pub fn signal_workers_of(daemon: u32, signal: libc::c_int) {
    let tasks = std::fs::read_dir(format!("/proc/{daemon}/task")).expect("a running daemon");
    for task in tasks.flatten() {
        let children = std::fs::read_to_string(task.path().join("children")).unwrap_or_default();
        let children = children.split_whitespace();
        for child in children.filter_map(|pid| pid.parse().ok()) {
            // SAFETY: a signal to a process of our own daemon.
            unsafe { libc::kill(child, signal) };
        }
    }
}

/// Builds packages with the profile of these tests. Returns the folder of their programs. `CAUSEWAY_BUILT` says that
/// the whole workspace has just been built.
/// `CAUSEWAY_BUILT` says that the whole workspace has just been built.
pub fn programs_of(packages: &[&str]) -> PathBuf {
    let mut path = std::env::current_exe().expect("a path");
    path.pop();
    path.pop();
    if std::env::var_os("CAUSEWAY_BUILT").is_some() {
        return path;
    }
    let done = Command::new(env!("CARGO"))
        .args(["build", "--quiet"])
        .args(packages.iter().flat_map(|package| ["-p", package]))
        .args((!cfg!(debug_assertions)).then_some("--release"))
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .status()
        .expect("cargo runs");
    assert!(done.success(), "{packages:?} can be built");
    path
}

/// Returns the command of a daemon without a build cache, which prints its address.
pub fn causewayd(listen: &str) -> Command {
    static PROGRAM: OnceLock<PathBuf> = OnceLock::new();
    let program = PROGRAM.get_or_init(|| programs_of(&["causewayd"]).join("causewayd"));
    let mut command = Command::new(program);
    command
        .args(["--listen", listen])
        .env("CAUSEWAYD_BUILD_CACHE_SIZE", "0")
        .stdin(Stdio::null())
        .stdout(Stdio::piped());
    command
}

/// Reads a daemon's first line, which contains its address.
pub fn address_of(child: &mut Child) -> String {
    let mut line = String::new();
    BufReader::new(child.stdout.take().expect("the daemon's standard output"))
        .read_line(&mut line)
        .expect("the daemon's first line");
    let address = line.trim().strip_prefix("listening on ");
    address.expect("an address").to_owned()
}

/// Returns the text of a settings file with this carrier. `CAUSEWAY_TEST_CARRIER=grpc` chooses gRPC.
fn settings(address: &str, carrier: &str) -> String {
    let file = format!(
        "{}/servers-{}.toml",
        env!("CARGO_TARGET_TMPDIR"),
        std::process::id()
    );
    let text = format!("[[server]]\naddress = \"{address}\"\ncarrier = \"{carrier}\"\n");
    std::fs::write(&file, text).expect("written");
    file
}

/// Starts the daemon once, and configures the library with it. Returns the address.
#[allow(clippy::zombie_processes, reason = "`end_daemon` waits for it")]
pub fn daemon() -> &'static str {
    static ADDRESS: OnceLock<String> = OnceLock::new();
    ADDRESS.get_or_init(|| {
        let mut child = causewayd("127.0.0.1:0")
            .args(secured::arguments())
            .spawn()
            .expect("causewayd starts");
        DAEMON.store(child.id() as i32, Ordering::Release);
        // SAFETY: a function of this program, which is never unloaded.
        unsafe { libc::atexit(end_daemon) };
        let address = address_of(&mut child);
        let (name, value) = match std::env::var("CAUSEWAY_TEST_CARRIER") {
            Ok(carrier) => ("CAUSEWAY_CONFIG", settings(&address, &carrier)),
            Err(_) => ("CAUSEWAY_SERVERS", address.clone()),
        };
        // SAFETY: the library has not been asked anything yet, so nobody reads the environment.
        unsafe { std::env::set_var(name, value) };
        address
    })
}

/// Configures the library with these servers. Must precede every other call of the library.
pub fn configure(servers: &str) {
    // SAFETY: the library has not been asked anything yet, so nobody reads the environment.
    unsafe {
        std::env::remove_var("CAUSEWAY_CONFIG");
        std::env::set_var("CAUSEWAY_SERVERS", servers);
    }
}

pub fn platform() -> cl_platform_id {
    let mut platform = null_mut();
    ok!(clGetPlatformIDs(1, &raw mut platform, null_mut()));
    platform
}

/// Returns the address of a platform function by name, or NULL.
pub fn address_by_name(name: &CStr) -> *mut c_void {
    let (platform, name_at) = (platform(), name.as_ptr());
    // SAFETY: a live platform and a C string.
    unsafe { (cl().clGetExtensionFunctionAddressForPlatform)(platform, name_at) }
}

/// Returns an extension's function by name, with the type of the header.
pub fn function<T>(name: &CStr) -> T {
    let address = address_by_name(name);
    assert!(!address.is_null(), "{name:?}");
    assert_eq!(size_of::<T>(), size_of_val(&address));
    // SAFETY: an optional function, which is as large as its address.
    unsafe { std::mem::transmute_copy(&address) }
}

pub fn device() -> cl_device_id {
    daemon();
    first_device()
}

/// Returns the first device of the configured nodes.
pub fn first_device() -> cl_device_id {
    let mut device = null_mut();
    ok!(clGetDeviceIDs(
        platform(),
        CL_DEVICE_TYPE_ALL,
        1,
        &raw mut device,
        null_mut()
    ));
    device
}

/// A context with a queue.
pub struct Fixture {
    pub device: cl_device_id,
    pub context: cl_context,
    pub queue: cl_command_queue,
}

impl Fixture {
    /// Makes a context with an in-order queue.
    pub fn new() -> Fixture {
        Fixture::on(device())
    }

    /// Makes a context of this device with an in-order queue.
    pub fn on(device: cl_device_id) -> Fixture {
        let context = make!(clCreateContext(
            null(),
            1,
            &raw const device,
            None,
            null_mut()
        ))
        .expect("a context");
        let mut fixture = Fixture {
            device,
            context,
            queue: null_mut(),
        };
        fixture.queue = fixture.another_queue(0);
        fixture
    }

    pub fn another_queue(&self, properties: cl_command_queue_properties) -> cl_command_queue {
        make!(clCreateCommandQueue(self.context, self.device, properties)).expect("a queue")
    }

    pub fn buffer(&self, flags: cl_mem_flags, size: usize) -> cl_mem {
        make!(clCreateBuffer(self.context, flags, size, null_mut())).expect("a buffer")
    }

    /// Makes a buffer with contents.
    pub fn buffer_of(&self, bytes: &[u8]) -> cl_mem {
        let contents = bytes.as_ptr().cast_mut().cast();
        make!(clCreateBuffer(
            self.context,
            CL_MEM_COPY_HOST_PTR,
            bytes.len(),
            contents
        ))
        .expect("a buffer")
    }

    pub fn user_event(&self) -> cl_event {
        make!(clCreateUserEvent(self.context)).expect("a user event")
    }

    pub fn write(&self, buffer: cl_mem, offset: usize, bytes: &[u8]) {
        let from = bytes.as_ptr().cast();
        ok!(clEnqueueWriteBuffer(
            self.queue,
            buffer,
            CL_TRUE,
            offset,
            bytes.len(),
            from,
            0,
            null(),
            null_mut()
        ));
    }

    pub fn read(&self, buffer: cl_mem, offset: usize, length: usize) -> Vec<u8> {
        let mut bytes = vec![0xee; length];
        let to = bytes.as_mut_ptr().cast();
        ok!(clEnqueueReadBuffer(
            self.queue,
            buffer,
            CL_TRUE,
            offset,
            length,
            to,
            0,
            null(),
            null_mut()
        ));
        bytes
    }

    pub fn finish(&self) {
        ok!(clFinish(self.queue));
    }
}

impl Drop for Fixture {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            ok!(clReleaseCommandQueue(self.queue));
            ok!(clReleaseContext(self.context));
        }
    }
}

/// Returns bytes that depend on position and seed.
pub fn pattern(seed: usize, length: usize) -> Vec<u8> {
    (0..length)
        .map(|at| (at * 31 + at / 251 + seed * 97) as u8)
        .collect()
}

/// Returns an info answer of one number.
pub fn mem_info<T: Copy + Default>(memory: cl_mem, name: cl_mem_info) -> T {
    let (mut value, mut size) = (T::default(), 0);
    let room = size_of::<T>();
    ok!(clGetMemObjectInfo(
        memory,
        name,
        room,
        (&raw mut value).cast(),
        &raw mut size
    ));
    assert_eq!(size, room);
    value
}

pub fn status_of(event: cl_event) -> cl_int {
    let mut status = 77;
    let to = (&raw mut status).cast();
    ok!(clGetEventInfo(
        event,
        CL_EVENT_COMMAND_EXECUTION_STATUS,
        4,
        to,
        null_mut()
    ));
    status
}

/// Waits for an event, releases it, and returns its status.
pub fn finish(event: cl_event) -> cl_int {
    let waited = code!(clWaitForEvents(1, &raw const event));
    let status = status_of(event);
    let expected = if status < 0 {
        CL_EXEC_STATUS_ERROR_FOR_EVENTS_IN_WAIT_LIST
    } else {
        CL_SUCCESS
    };
    assert_eq!(waited, expected, "a wait for an event with status {status}");
    ok!(clReleaseEvent(event));
    status
}

pub fn command_of(event: cl_event) -> cl_command_type {
    let mut command = 77;
    let to = (&raw mut command).cast();
    ok!(clGetEventInfo(
        event,
        CL_EVENT_COMMAND_TYPE,
        4,
        to,
        null_mut()
    ));
    command
}
