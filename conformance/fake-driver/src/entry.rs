//! The C ABI: all entry points, made from the one list of `cl-headers`, and the dispatch table.
//!
//! An entry point does the common work. It catches panics, applies the configured rules for calls (delay,
//! meeting, failure, crash), writes the log line, and converts the body's `Result` to C. The bodies are
//! functions of the same names in the modules of their nouns. Extension functions in the table fail,
//! because this driver has none of these extensions.
//!
//! Invariant: without log, control file and rules, an entry point costs one load more than its body.

use std::cell::Cell;
use std::ffi::{CStr, c_char, c_void};
use std::panic::{AssertUnwindSafe, catch_unwind};

use cl_headers::types::*;
use cl_headers::{Dispatch, error_name};

use crate::error::{ClResult, Code};
use crate::{control, crash, late, log};

/// The static description of an entry point.
pub(crate) struct Call {
    pub(crate) name: &'static str,
    pub(crate) slot: usize,
    /// Names and types.
    pub(crate) parameters: &'static [(&'static str, &'static str)],
    pub(crate) returns: &'static str,
    /// Whether the last parameter is `errcode_ret`.
    pub(crate) errcode_ret: bool,
}

/// The return value of an entry point in C.
trait Answer: Sized {
    /// The type that the body returns on success.
    type Good;
    fn good(value: Self::Good) -> Self;
    fn bad(code: Code) -> Self;
    /// Formats the value for the log; `ty` is its type in C.
    fn show(&self, ty: &str) -> String;
}

impl Answer for cl_int {
    type Good = ();
    fn good((): ()) -> Self {
        CL_SUCCESS
    }
    fn bad(code: Code) -> Self {
        code.0
    }
    fn show(&self, _: &str) -> String {
        error_name(*self).to_owned()
    }
}

impl Answer for *mut c_void {
    type Good = Self;
    fn good(value: Self) -> Self {
        value
    }
    fn bad(_: Code) -> Self {
        std::ptr::null_mut()
    }
    fn show(&self, ty: &str) -> String {
        match ty.starts_with("cl_") {
            true => log::handle(*self as u64),
            false if self.is_null() => "null".to_owned(),
            false => "ptr".to_owned(),
        }
    }
}

impl Answer for () {
    type Good = ();
    fn good((): ()) -> Self {}
    fn bad(_: Code) -> Self {}
    fn show(&self, _: &str) -> String {
        "nothing".to_owned()
    }
}

/// An argument as a word.
trait Word {
    fn word(&self) -> u64;
}

macro_rules! words {
    ($($ty:ty),*) => {$(
        impl Word for $ty {
            fn word(&self) -> u64 {
                #[allow(clippy::unnecessary_cast, clippy::cast_sign_loss)]
                { *self as u64 }
            }
        }
    )*};
}
words!(cl_int, cl_uint, cl_ulong, size_t, isize);

impl<T> Word for *const T {
    fn word(&self) -> u64 {
        self.addr() as u64
    }
}
impl<T> Word for *mut T {
    fn word(&self) -> u64 {
        self.addr() as u64
    }
}

macro_rules! callback_words {
    ($($ty:ty),*) => {$(
        impl Word for $ty {
            fn word(&self) -> u64 {
                u64::from(self.is_some())
            }
        }
    )*};
}
// MemCallback, ProgramCallback and ContextDestructorCallback are one type.
callback_words!(
    ContextCallback,
    MemCallback,
    EventCallback,
    SvmFreeCallback,
    NativeKernel
);

thread_local! {
    static ALSO_FAILED: Cell<cl_int> = const { Cell::new(CL_SUCCESS) };
}

/// Has the running call report an error in addition to the object that it returns.
pub(crate) fn also_fail(code: cl_int) {
    ALSO_FAILED.set(code);
}

/// Runs the body of an entry point, with the common work before and after it.
///
/// # Safety
/// `words` are the call's arguments in order, and the application keeps OpenCL's contract for them.
#[inline]
unsafe fn enter<R: Answer, const N: usize>(
    call: &'static Call,
    words: impl FnOnce() -> [u64; N],
    body: impl FnOnce() -> ClResult<R::Good>,
) -> R {
    let duties = control::duties();
    if duties & !control::FILE != 0 {
        // SAFETY: the caller keeps the same contract.
        return unsafe { enter_with_duties(duties, call, &words(), body) };
    }
    let result = guarded(call, body);
    if call.errcode_ret {
        let code = code_of(&result);
        // SAFETY: the last argument of such a call is `errcode_ret`.
        unsafe { write_errcode(words().last().copied(), code) };
    }
    result.map_or_else(R::bad, R::good)
}

fn code_of<T>(result: &ClResult<T>) -> cl_int {
    let also = ALSO_FAILED.replace(CL_SUCCESS);
    result.as_ref().err().map_or(also, |code| code.0)
}

/// # Safety
/// `word` is an `errcode_ret`: NULL or writable.
unsafe fn write_errcode(word: Option<u64>, code: cl_int) {
    let errcode_ret = word.unwrap_or(0) as usize as *mut cl_int;
    if !errcode_ret.is_null() {
        // SAFETY: the caller keeps this function's contract.
        unsafe { errcode_ret.write(code) };
    }
}

fn guarded<T>(call: &Call, body: impl FnOnce() -> ClResult<T>) -> ClResult<T> {
    catch_unwind(AssertUnwindSafe(body)).unwrap_or_else(|_| {
        eprintln!("fake OpenCL: {} panicked", call.name);
        Err(Code(CL_OUT_OF_RESOURCES))
    })
}

/// # Safety
/// As [`enter`].
#[cold]
unsafe fn enter_with_duties<R: Answer>(
    duties: u32,
    call: &'static Call,
    words: &[u64],
    body: impl FnOnce() -> ClResult<R::Good>,
) -> R {
    let line = if duties & control::LOG == 0 {
        String::new()
    } else {
        // SAFETY: the caller keeps the same contract.
        unsafe { log::begin(call, words) }
    };
    let refused = if duties & control::CALLS == 0 {
        None
    } else {
        // SAFETY: the caller keeps the same contract.
        unsafe { obey_rules(call, words, &line) }
    };
    let result = match refused {
        Some(code) => Err(code),
        None => guarded(call, body),
    };
    let code = code_of(&result);
    if call.errcode_ret {
        // SAFETY: the last argument of such a call is `errcode_ret`.
        unsafe { write_errcode(words.last().copied(), code) };
    }
    let answer = result.map_or_else(R::bad, R::good);
    if duties & control::LOG != 0 {
        let shown = if code == CL_SUCCESS {
            answer.show(call.returns)
        } else {
            error_name(code).to_owned()
        };
        // SAFETY: the caller keeps the same contract.
        unsafe { log::end(&line, call, words, &shown, code == CL_SUCCESS) };
    }
    answer
}

/// Applies the configured rules to this call. Returns the error that a rule demands.
///
/// # Safety
/// As [`enter`].
unsafe fn obey_rules(call: &'static Call, words: &[u64], line: &str) -> Option<Code> {
    let mut refused = None;
    for rule in &control::current().calls {
        if rule.slot != call.slot || !rule.applies() {
            continue;
        }
        if !rule.delay.is_zero() {
            std::thread::sleep(rule.delay);
        }
        if let Some(crash) = rule.crash {
            // SAFETY: the caller keeps the same contract.
            unsafe { log::end(line, call, words, &format!("crash {crash:?}"), false) };
            crash::now(crash);
        }
        if let Some(library) = &rule.load {
            late::load(library);
        }
        let missed = rule.meeting.as_ref().filter(|meeting| !meeting.attend());
        refused = refused.or(missed.map(|_| Code(CL_OUT_OF_RESOURCES)));
        refused = refused.or(rule.fail.map(Code));
    }
    refused
}

macro_rules! has_errcode {
    (errcode_ret) => {
        true
    };
    ($other:ident) => {
        false
    };
}

macro_rules! run_body {
    (core $name:ident($($parameter:ident),*)) => {
        bodies::$name($($parameter),*)
    };
    (extension $name:ident($($parameter:ident),*)) => {{
        $(let _ = $parameter;)*
        Err(Code(CL_INVALID_OPERATION))
    }};
}

macro_rules! entry_points {
    ($($slot:literal $origin:ident($of:tt) $node:ident null($($null:tt)*) fails($how:ident)
       fn $name:ident($($parameter:ident: $ty:ty),*) -> $ret:ty;)*) => {$(
        #[allow(non_snake_case, reason = "OpenCL's name")]
        unsafe extern "C" fn $name($($parameter: $ty),*) -> $ret {
            static CALL: Call = Call {
                name: stringify!($name),
                slot: $slot,
                parameters: &[$((stringify!($parameter), stringify!($ty))),*],
                returns: stringify!($ret),
                errcode_ret: has_errcode!($how),
            };
            // SAFETY: the words are this call's arguments. The body requires only OpenCL's contract for
            // the function, which the application keeps.
            unsafe {
                enter(
                    &CALL,
                    || [$(Word::word(&$parameter)),*],
                    || run_body!($origin $name($($parameter),*)),
                )
            }
        }
    )*};
}
cl_headers::for_each_entry_point!(entry_points);

/// The bodies of all entry points.
mod bodies {
    pub(super) use crate::context::api::*;
    pub(super) use crate::device::api::*;
    pub(super) use crate::event::api::*;
    pub(super) use crate::image::api::*;
    pub(super) use crate::image_commands::api::*;
    pub(super) use crate::kernel::api::*;
    pub(super) use crate::launch::api::*;
    pub(super) use crate::map::api::*;
    pub(super) use crate::memory::api::*;
    pub(super) use crate::pipe::api::*;
    pub(super) use crate::platform::api::*;
    pub(super) use crate::program::api::*;
    pub(super) use crate::queue::api::*;
    pub(super) use crate::rect::api::*;
    pub(super) use crate::sampler::api::*;
    pub(super) use crate::svm::api::*;
    pub(super) use crate::transfer::api::*;
}

/// The dispatch table that every object points to.
pub(crate) static DISPATCH: Dispatch = cl_headers::dispatch_table!();

/// Returns the function of this name, for loaders that look functions up by name.
pub(crate) fn function(name: &CStr) -> *mut c_void {
    if name == c"clIcdGetPlatformIDsKHR" {
        return clIcdGetPlatformIDsKHR as *mut c_void;
    }
    let name = match name.to_bytes() {
        // Before OpenCL 3.1, this function belongs to the extension.
        b"clGetKernelSuggestedLocalWorkSizeKHR" => c"clGetKernelSuggestedLocalWorkSize",
        _ => name,
    };
    DISPATCH
        .function(name)
        .map_or(std::ptr::null_mut(), <*const c_void>::cast_mut)
}

/// Exported for loaders: the platforms of this driver (`cl_khr_icd`).
///
/// # Safety
/// As `clGetPlatformIDs`.
#[unsafe(no_mangle)]
#[allow(non_snake_case, reason = "OpenCL's name")]
unsafe extern "C" fn clIcdGetPlatformIDsKHR(
    num_entries: cl_uint,
    platforms: *mut cl_platform_id,
    num_platforms: *mut cl_uint,
) -> cl_int {
    // SAFETY: the caller keeps the same contract.
    unsafe { (DISPATCH.clGetPlatformIDs)(num_entries, platforms, num_platforms) }
}

mod exports {
    //! Separate from the functions of the table, because the names are the same.
    use super::*;

    /// Exported for loaders: any function of this driver by its name.
    ///
    /// # Safety
    /// As OpenCL requires: `func_name` is a string.
    #[unsafe(no_mangle)]
    #[allow(non_snake_case, reason = "OpenCL's name")]
    unsafe extern "C" fn clGetExtensionFunctionAddress(func_name: *const c_char) -> *mut c_void {
        // SAFETY: the caller keeps the same contract.
        unsafe { (DISPATCH.clGetExtensionFunctionAddress)(func_name) }
    }

    /// Exported for loaders: a platform's info.
    ///
    /// # Safety
    /// As OpenCL requires.
    #[unsafe(no_mangle)]
    #[allow(non_snake_case, reason = "OpenCL's name")]
    unsafe extern "C" fn clGetPlatformInfo(
        platform: cl_platform_id,
        param_name: cl_platform_info,
        param_value_size: size_t,
        param_value: *mut c_void,
        param_value_size_ret: *mut size_t,
    ) -> cl_int {
        // SAFETY: the caller keeps the same contract.
        unsafe {
            (DISPATCH.clGetPlatformInfo)(
                platform,
                param_name,
                param_value_size,
                param_value,
                param_value_size_ret,
            )
        }
    }
}
