//! Tests calls that a program makes when its thread's local values are gone: in static destructors and by `atexit`.

use std::process::Command;
use std::ptr::{null_mut, without_provenance_mut};

use cl_headers::types::*;

use crate::frames::opencl::*;
use crate::frames::own_process::run_this_test;

/// This variable is set in the program that ends.
const ENDING: &str = "CAUSEWAY_TEST_ENDING";

// A handle that is not ours.
fn ask() -> cl_int {
    code!(clGetPlatformInfo(
        without_provenance_mut(8),
        CL_PLATFORM_NAME,
        0,
        null_mut(),
        null_mut()
    ))
}

extern "C" fn late() {
    println!("late: {}", ask());
}

#[test]
fn a_call_at_the_very_end_is_answered_whatever_is_logged() {
    if std::env::var_os(ENDING).is_some() {
        let mut count = 0;
        ok!(clGetPlatformIDs(0, null_mut(), &raw mut count));
        println!("in time: {}", ask());
        // SAFETY: a function of this program, which is never unloaded.
        unsafe { libc::atexit(late) };
        // The thread's local values are dropped first. Then the registered functions run on it.
        std::process::exit(0);
    }
    let mut program = Command::new(std::env::current_exe().expect("a path"));
    let ended = run_this_test(&mut program)
        .env(ENDING, "1")
        .env("CAUSEWAY_LOG", "trace")
        .env("CAUSEWAY_SERVERS", "127.0.0.1:1")
        .output()
        .expect("the program runs");
    let (out, err) = (
        String::from_utf8_lossy(&ended.stdout),
        String::from_utf8_lossy(&ended.stderr),
    );
    assert!(ended.status.success(), "{}: {err}", ended.status);
    let said = |when: &str| out.contains(&format!("{when}: {CL_INVALID_PLATFORM}"));
    assert!(said("in time") && said("late"), "{out}");
    // Messages before that were logged.
    assert!(
        err.contains("clGetPlatformInfo: CL_INVALID_PLATFORM"),
        "{err}"
    );
}
