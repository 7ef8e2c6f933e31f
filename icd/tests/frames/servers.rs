//! Shared parts of the tests of servers: daemons over the fake driver, each with its own settings; on top of
//! `opencl`. The library reads its settings once per process, so a module of such tests has its own process.
//! `opencl`. The library's settings are read once a process, so a module of such tests has a process of its own.

use std::ffi::CStr;
use std::net::SocketAddr;
use std::path::Path;
use std::process::Child;
use std::ptr::{null, null_mut};
use std::time::{Duration, Instant};

pub use cl_headers::server::*;

use crate::frames::fake_driver;
pub use crate::frames::opencl::*;

/// Time limit of each step of a test.
pub const PATIENCE: Duration = Duration::from_secs(60);

/// The log of the fake driver's calls, in the daemon's folder.
const CALLS: &str = "calls";

// ---- daemons -----------------------------------------------------------------

/// A daemon over the fake driver, killed on drop.
pub struct Daemon {
    child: Child,
    pub address: SocketAddr,
    folder: tempfile::TempDir,
}

impl Daemon {
    /// Starts a daemon with the devices of `settings` (the fake driver's), on a free port.
    pub fn start(settings: &str) -> Daemon {
        Daemon::start_at("127.0.0.1:0", settings)
    }

    /// Starts such a daemon at an address.
    pub fn start_at(listen: &str, settings: &str) -> Daemon {
        Daemon::start_with(listen, settings, &[], &[])
    }

    /// Starts a daemon that names an address without a listener to other nodes.
    pub fn start_apart(settings: &str) -> Daemon {
        Daemon::start_with(
            "127.0.0.1:0",
            settings,
            &[],
            &["--advertise", "127.0.0.1:1"],
        )
    }

    /// Starts a daemon whose host clock is ahead of the client's.
    pub fn start_ahead(settings: &str, ns: u64) -> Daemon {
        Daemon::start_with(
            "127.0.0.1:0",
            settings,
            &[("CAUSEWAYD_CLOCK_AHEAD", &ns.to_string())],
            &[],
        )
    }

    /// Starts a daemon with more arguments, whose fake driver logs its calls.
    pub fn start_logged(listen: &str, settings: &str, flags: &[String]) -> Daemon {
        let folder = tempfile::tempdir().expect("a folder");
        let log = folder.path().join(CALLS).display().to_string();
        let written = folder.path().display().to_string();
        let environment = [
            ("FAKE_OPENCL_LOG", log.as_str()),
            ("CAUSEWAYD_SANDBOX_WRITE", written.as_str()),
        ];
        Daemon::start_in(folder, listen, settings, &environment, &texts(flags))
    }

    /// Starts a daemon at an address, with more arguments.
    pub fn start_flagged(listen: &str, settings: &str, flags: &[String]) -> Daemon {
        Daemon::start_with(listen, settings, &[], &texts(flags))
    }

    fn start_with(
        listen: &str,
        settings: &str,
        environment: &[(&str, &str)],
        flags: &[&str],
    ) -> Daemon {
        let folder = tempfile::tempdir().expect("a folder");
        Daemon::start_in(folder, listen, settings, environment, flags)
    }

    fn start_in(
        folder: tempfile::TempDir,
        listen: &str,
        settings: &str,
        environment: &[(&str, &str)],
        flags: &[&str],
    ) -> Daemon {
        fake_driver::put(folder.path(), settings);
        let (child, address) = run(folder.path(), listen, environment, flags);
        Daemon {
            child,
            address,
            folder,
        }
    }

    /// Kills the daemon and its workers, as a crash would.
    pub fn crash(&mut self) {
        self.child.kill().expect("the daemon is there");
        self.child.wait().expect("the daemon's status");
    }

    /// Ends the daemon as an administrator does. With a directory for that, it parks its sessions.
    pub fn terminate(&mut self) {
        // SAFETY: a signal to our own daemon, which has not been waited for.
        unsafe { libc::kill(self.pid() as libc::pid_t, libc::SIGTERM) };
        let status = self.child.wait().expect("the daemon's status");
        assert!(status.success(), "{status}");
    }

    /// Starts the daemon again with its address and identity, and these arguments.
    pub fn start_again(&mut self, flags: &[String]) {
        let listen = self.address.to_string();
        (self.child, self.address) = run(self.folder.path(), &listen, &[], &texts(flags));
    }

    /// Returns the folder with the daemon's state.
    pub fn state(&self) -> &Path {
        self.folder.path()
    }

    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Returns the daemon's log.
    pub fn log(&self) -> String {
        std::fs::read_to_string(self.folder.path().join("log")).expect("the log")
    }

    /// Returns the calls of the fake driver of a daemon that [`Daemon::start_logged`] has started.
    pub fn calls(&self) -> String {
        std::fs::read_to_string(self.folder.path().join(CALLS)).expect("the calls")
    }

    /// Returns another address of the same daemon.
    pub fn other_address(&self) -> String {
        format!("localhost:{}", self.address.port())
    }

    /// Sends a signal to the daemon, for example to stop or continue it.
    pub fn signal(&self, signal: rustix::process::Signal) {
        let process = rustix::process::Pid::from_child(&self.child);
        rustix::process::kill_process(process, signal).expect("the daemon is there");
    }

    /// Kills the daemon and its workers. Returns the address.
    pub fn kill(self) -> String {
        self.address.to_string()
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        // The workers end with the daemon.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Starts a daemon over the drivers in its folder.
fn run(
    folder: &Path,
    listen: &str,
    environment: &[(&str, &str)],
    flags: &[&str],
) -> (Child, SocketAddr) {
    let mut child = fake_driver::used_by(&mut causewayd(listen), folder)
        .args(flags)
        .env("CAUSEWAYD_SANDBOX_READ", folder)
        .envs(environment.iter().copied())
        .stderr(std::fs::File::create(folder.join("log")).expect("made"))
        .spawn()
        .expect("causewayd starts");
    let address = address_of(&mut child);
    (child, address.parse().expect("an address"))
}

fn texts(flags: &[String]) -> Vec<&str> {
    flags.iter().map(String::as_str).collect()
}

/// Calls `ask` until it returns a value.
pub fn eventually<T>(what: &str, mut ask: impl FnMut() -> Option<T>) -> T {
    let deadline = Instant::now() + PATIENCE;
    loop {
        if let Some(answer) = ask() {
            return answer;
        }
        assert!(Instant::now() < deadline, "in vain: {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

// ---- OpenCL ------------------------------------------------------------------

pub fn devices() -> Vec<cl_device_id> {
    let mut devices = [null_mut(); 64];
    let mut count = 0;
    let code = code!(clGetDeviceIDs(
        platform(),
        CL_DEVICE_TYPE_ALL,
        64,
        devices.as_mut_ptr(),
        &raw mut count
    ));
    assert!(code == CL_SUCCESS || code == CL_DEVICE_NOT_FOUND, "{code}");
    devices[..count as usize].to_vec()
}

/// Returns the bytes of an info answer.
pub fn bytes(ask: impl Fn(usize, *mut c_void, *mut usize) -> cl_int) -> Vec<u8> {
    let mut size = 0;
    assert_eq!(ask(0, null_mut(), &raw mut size), CL_SUCCESS);
    let mut bytes = vec![0; size];
    assert_eq!(ask(size, bytes.as_mut_ptr().cast(), null_mut()), CL_SUCCESS);
    bytes
}

pub fn number(bytes: &[u8]) -> u64 {
    let mut wide = [0; 8];
    wide[..bytes.len()].copy_from_slice(bytes);
    u64::from_le_bytes(wide)
}

pub fn text(bytes: &[u8]) -> String {
    let text = CStr::from_bytes_with_nul(bytes).expect("a NUL at the end");
    text.to_str().expect("UTF-8").to_owned()
}

pub fn device_info(device: cl_device_id, name: cl_device_info) -> Vec<u8> {
    bytes(|size, value, ret| code!(clGetDeviceInfo(device, name, size, value, ret)))
}

pub fn name_of(device: cl_device_id) -> String {
    text(&device_info(device, CL_DEVICE_NAME))
}

pub fn is_available(device: cl_device_id) -> bool {
    number(&device_info(device, CL_DEVICE_AVAILABLE)) == 1
}

pub fn names() -> Vec<String> {
    devices().into_iter().map(name_of).collect()
}

pub fn context(device: cl_device_id) -> Result<cl_context, cl_int> {
    make!(clCreateContext(
        null(),
        1,
        &raw const device,
        None,
        null_mut()
    ))
}

/// Writes and reads a buffer. Returns the code of the first call that fails.
pub fn round_trip(context: cl_context, queue: cl_command_queue) -> cl_int {
    let sent = [7u8; 64];
    let mut got = [0u8; 64];
    let buffer = match make!(clCreateBuffer(context, CL_MEM_READ_WRITE, 64, null_mut())) {
        Ok(buffer) => buffer,
        Err(code) => return code,
    };
    let (from, to) = (sent.as_ptr().cast(), got.as_mut_ptr().cast());
    let mut code = code!(clEnqueueWriteBuffer(
        queue,
        buffer,
        CL_TRUE,
        0,
        64,
        from,
        0,
        null(),
        null_mut()
    ));
    if code == CL_SUCCESS {
        code = code!(clEnqueueReadBuffer(
            queue,
            buffer,
            CL_TRUE,
            0,
            64,
            to,
            0,
            null(),
            null_mut()
        ));
        assert!(code != CL_SUCCESS || got == sent);
    }
    ok!(clReleaseMemObject(buffer));
    code
}

/// Uses a device. Returns the code.
pub fn try_out(device: cl_device_id) -> cl_int {
    let context = match context(device) {
        Ok(context) => context,
        Err(code) => return code,
    };
    let code = match make!(clCreateCommandQueue(context, device, 0)) {
        Ok(queue) => {
            let code = round_trip(context, queue);
            ok!(clReleaseCommandQueue(queue));
            code
        }
        // The node may have been lost since the context was made.
        Err(code) => code,
    };
    ok!(clReleaseContext(context));
    code
}

// ---- the extension -----------------------------------------------------------

pub fn connect_raw(url: *const c_char) -> Result<cl_server_WWU, cl_int> {
    let connect: clConnectServerWWU_fn = function(c"clConnectServerWWU");
    let mut code = 77;
    // SAFETY: the caller's argument is a C string or NULL.
    let server = unsafe { connect(url, &raw mut code) };
    assert_eq!(server.is_null(), code != CL_SUCCESS);
    if code == CL_SUCCESS {
        Ok(server)
    } else {
        Err(code)
    }
}

pub fn connect(url: &str) -> Result<cl_server_WWU, cl_int> {
    let url = std::ffi::CString::new(url).expect("no NUL");
    connect_raw(url.as_ptr())
}

pub fn disconnect(server: cl_server_WWU) -> cl_int {
    let disconnect: clDisconnectServerWWU_fn = function(c"clDisconnectServerWWU");
    // SAFETY: a handle, or what must be refused.
    unsafe { disconnect(server) }
}

pub fn server_info_code(
    server: cl_server_WWU,
    name: cl_server_info,
    size: usize,
    value: *mut c_void,
    ret: *mut usize,
) -> cl_int {
    let ask: clGetServerInfoWWU_fn = function(c"clGetServerInfoWWU");
    // SAFETY: the caller's arguments are as the header wants them.
    unsafe { ask(server, name, size, value, ret) }
}

pub fn server_info(server: cl_server_WWU, name: cl_server_info) -> Vec<u8> {
    bytes(|size, value, ret| server_info_code(server, name, size, value, ret))
}

pub fn link_info_code(
    from: cl_device_id,
    to: cl_device_id,
    name: cl_link_info,
    size: usize,
    value: *mut c_void,
    ret: *mut usize,
) -> cl_int {
    let ask: clGetLinkInfoWWU_fn = function(c"clGetLinkInfoWWU");
    // SAFETY: the caller's arguments are as the header wants them.
    unsafe { ask(from, to, name, size, value, ret) }
}

pub fn link_info(from: cl_device_id, to: cl_device_id, name: cl_link_info) -> Vec<u8> {
    bytes(|size, value, ret| link_info_code(from, to, name, size, value, ret))
}

pub fn server_of(device: cl_device_id) -> cl_server_WWU {
    let bytes = device_info(device, CL_DEVICE_SERVER_WWU);
    std::ptr::with_exposed_provenance_mut(number(&bytes) as usize)
}

pub fn devices_of(server: cl_server_WWU) -> Vec<cl_device_id> {
    let bytes = server_info(server, CL_SERVER_DEVICES_WWU);
    let handle = |chunk: &[u8]| std::ptr::with_exposed_provenance_mut(number(chunk) as usize);
    bytes.chunks_exact(8).map(handle).collect()
}
