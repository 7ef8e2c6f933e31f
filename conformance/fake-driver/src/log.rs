//! The call log: one line per call, with its arguments in a form that allows to compare two runs.
//!
//! `clEnqueueWriteBuffer(command_queue=queue#1, buffer=buffer#2, blocking_write=1, offset=0, size=4,
//! ptr=ptr, num_events_in_wait_list=1, event_wait_list=[event#1], event=event#2) = CL_SUCCESS;
//! data=2:9f3a…`. Handles appear by kind and number in order of creation, addresses only as `ptr` or
//! `null`. The [notes](note) of the entry point's body follow the result.
//!
//! `FAKE_OPENCL_LOG` names the file; `%p` becomes the process's number. A line is appended when the call
//! returns, each by one write, so that a crash loses none. Callbacks and completions are not logged,
//! because they have no reliable order.
//!
//! Invariant: without `FAKE_OPENCL_LOG`, the log costs only the check of one static.

use std::cell::RefCell;
use std::ffi::{CStr, c_char, c_void};
use std::fmt::Write as _;
use std::fs::File;
use std::io::Write as _;
use std::sync::LazyLock;

use parking_lot::Mutex;

use crate::entry::Call;
use crate::object;

static FILE: LazyLock<Option<Mutex<File>>> = LazyLock::new(|| {
    let path = std::env::var("FAKE_OPENCL_LOG").ok()?;
    let path = path.replace("%p", &std::process::id().to_string());
    let file = File::options().create(true).append(true).open(&path);
    file.map(Mutex::new)
        .map_err(|error| eprintln!("fake OpenCL: {path}: {error}"))
        .ok()
});

thread_local! {
    static NOTES: RefCell<String> = const { RefCell::new(String::new()) };
}

/// Whether calls are logged.
pub(crate) fn enabled() -> bool {
    FILE.is_some()
}

/// Adds `key=value` to the line of the running call, if there is a log.
pub(crate) fn note(key: &str, value: impl FnOnce() -> String) {
    if enabled() {
        let value = value();
        NOTES.with_borrow_mut(|notes| {
            let _ = write!(notes, "; {key}={value}");
        });
    }
}

/// Formats bytes for the log: `LENGTH:HASH`.
///
/// The hash is a polynomial, Σ (byteᵢ + 1) · Kⁱ modulo 2⁶¹ − 1. So the hash of two pieces together can be
/// computed from theirs: `hash(a ‖ b) = hash(a) + K^length(a) · hash(b)`.
pub(crate) fn digest<'a>(pieces: impl IntoIterator<Item = &'a [u8]>) -> String {
    const PRIME: u128 = (1 << 61) - 1;
    const K: u128 = 0x1234_5678_9ABC_DEF1;
    let (mut hash, mut power, mut length) = (0, 1, 0);
    for piece in pieces {
        length += piece.len();
        for byte in piece {
            hash = (hash + (u128::from(*byte) + 1) * power) % PRIME;
            power = power * K % PRIME;
        }
    }
    format!("{length}:{hash:016x}")
}

/// The placeholder of the event's name, which is known only after the call.
const EVENT: &str = "\0";

/// Returns the part of a call's line that is known before the call. After a release, for example, the
/// handle would have no name any more.
///
/// # Safety
/// `words` are the call's arguments. Those that OpenCL declares readable are readable.
pub(crate) unsafe fn begin(call: &Call, words: &[u64]) -> String {
    let mut text = String::with_capacity(256);
    text.push_str(call.name);
    text.push('(');
    let mut lists = Lists {
        count: 0,
        dimension: 3,
    };
    let mut first = true;
    for (&(name, ty), &word) in call.parameters.iter().zip(words) {
        if name == "errcode_ret" {
            continue;
        }
        if !first {
            text.push_str(", ");
        }
        first = false;
        let _ = write!(text, "{name}=");
        // SAFETY: the caller keeps the same contract.
        unsafe { argument(&mut text, name, ty, word, lists) };
        match (name, ty) {
            ("work_dim", _) => lists.dimension = word,
            (_, "cl_uint") => lists.count = word,
            _ => {}
        }
    }
    text.push(')');
    text
}

/// Writes the line of a call that has ended with `result`, or that ends in a crash.
///
/// # Safety
/// As [`begin`]. After success, an event is stored where the call wants it.
pub(crate) unsafe fn end(line: &str, call: &Call, words: &[u64], result: &str, succeeded: bool) {
    let Some(file) = &*FILE else { return };
    let mut line = line.to_owned();
    if line.contains(EVENT) {
        let place = call
            .parameters
            .iter()
            .position(|parameter| parameter.1.ends_with("mut cl_event"));
        let place = place.map_or(std::ptr::null(), |at| {
            words[at] as usize as *const *mut c_void
        });
        // SAFETY: `place` is not NULL, because the line has a placeholder for the event.
        let event = succeeded.then(|| unsafe { place.read() });
        let name = event.map_or("ptr".to_owned(), |event| handle(event as u64));
        line = line.replace(EVENT, &name);
    }
    let notes = NOTES.with_borrow_mut(std::mem::take);
    let text = format!("{line} = {result}{notes}\n");
    // A full disk must not change what the program sees. The comparison will notice the missing line.
    let _ = file.lock().write_all(text.as_bytes());
}

/// The lengths of the list arguments that follow.
#[derive(Clone, Copy)]
struct Lists {
    count: u64,
    dimension: u64,
}

/// # Safety
/// As [`begin`].
unsafe fn argument(text: &mut String, name: &str, ty: &str, word: u64, lists: Lists) {
    let pointer = word as usize as *const c_void;
    let bare = ty.replace(' ', "");
    match bare.as_str() {
        "cl_platform_id" | "cl_device_id" | "cl_context" | "cl_command_queue" | "cl_mem"
        | "cl_program" | "cl_kernel" | "cl_event" | "cl_sampler" => text.push_str(&handle(word)),
        _ if pointer.is_null() && bare.starts_with('*') => text.push_str("null"),
        "*mutcl_event" => text.push_str(EVENT),
        "*constcl_event" | "*constcl_mem" | "*constcl_device_id" | "*constcl_program" => {
            // SAFETY: the list is as long as its count says. It is cut at a length that no legitimate call has.
            let list = unsafe { words(pointer, lists.count.min(1024)) };
            let list: Vec<String> = list.into_iter().map(handle).collect();
            let _ = write!(text, "[{}]", list.join(","));
        }
        "*constsize_t" if name != "lengths" && name != "sizes" => {
            let length = if name.contains("work") {
                lists.dimension
            } else {
                3
            };
            // With a wrong `work_dim`, the length of the list is unknown.
            let length = if length > 3 { 0 } else { length };
            // SAFETY: the list has `work_dim` elements for a launch, and 3 for regions and origins.
            let list = unsafe { words(pointer, length) };
            let _ = write!(text, "{list:?}");
        }
        "*constc_char" => {
            // SAFETY: OpenCL's strings end with NUL.
            let string = unsafe { CStr::from_ptr(pointer.cast::<c_char>()) };
            let _ = write!(text, "{:?}", string.to_string_lossy());
        }
        "*constcl_context_properties"
        | "*constcl_queue_properties"
        | "*constcl_mem_properties"
        | "*constcl_sampler_properties" => {
            // SAFETY: OpenCL's property lists end with 0.
            unsafe { properties(text, pointer) };
        }
        "cl_int" => {
            let _ = write!(text, "{}", word as i32);
        }
        "cl_uint" | "cl_bool" | "size_t" | "cl_ulong" => {
            let _ = write!(text, "{word}");
        }
        _ if bare.starts_with('*') => text.push_str("ptr"),
        _ if bare.ends_with("Callback") || bare.ends_with("Kernel") => {
            text.push_str(if word == 0 { "null" } else { "fn" });
        }
        _ => {
            let _ = write!(text, "{word:#x}");
        }
    }
}

/// # Safety
/// `pointer` is NULL or points to `count` words.
unsafe fn words(pointer: *const c_void, count: u64) -> Vec<u64> {
    let pointer = pointer.cast::<usize>();
    (0..count as usize)
        // SAFETY: the index is within the length of this function's contract.
        .map(|index| unsafe { pointer.add(index).read() } as u64)
        .collect()
}

/// # Safety
/// `pointer` points to pairs of words, ended by a name of 0.
unsafe fn properties(text: &mut String, pointer: *const c_void) {
    let mut pointer = pointer.cast::<usize>();
    text.push('[');
    loop {
        // SAFETY: this does not pass the 0 that ends the list.
        let name = unsafe { pointer.read() };
        if name == 0 {
            break;
        }
        // SAFETY: a name is followed by its value.
        let value = unsafe { pointer.add(1).read() };
        let _ = write!(text, "{name:#x}:{},", value_of_property(value as u64));
        // SAFETY: as above.
        pointer = unsafe { pointer.add(2) };
    }
    text.push(']');
}

fn value_of_property(word: u64) -> String {
    // A platform's handle is the only address in a property here.
    if word > 0xFFFF_FFFF {
        handle(word)
    } else {
        format!("{word:#x}")
    }
}

/// Returns the name of a handle.
pub(crate) fn handle(word: u64) -> String {
    let pointer = word as usize as *mut c_void;
    if pointer.is_null() {
        return "null".to_owned();
    }
    // SAFETY: the application passed this as a handle, so it is one or was one.
    match unsafe { object::tag_and_serial(pointer) } {
        Some((tag, serial)) => format!("{}#{serial}", crate::tag::label(tag)),
        None => "invalid".to_owned(),
    }
}
