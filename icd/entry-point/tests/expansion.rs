//! The C functions that the attribute makes, in a crate with the module that they call.
//!
//! The module here only shows what reaches it. `icd/src/api/entry.rs` is the real one.

use std::ptr;

use causeway_entry_point::entry_point;
use cl_headers::types::*;

type ClResult<T = ()> = Result<T, cl_int>;

mod api {
    pub(crate) mod entry {
        use std::cell::Cell;
        use std::ptr;

        use crate::ClResult;

        thread_local! {
            /// The name with which the last call came.
            pub(crate) static NAME: Cell<&'static str> = const { Cell::new("") };
        }

        pub(crate) fn code(name: &'static str, body: impl FnOnce() -> ClResult) -> i32 {
            NAME.set(name);
            body().err().unwrap_or(0)
        }

        pub(crate) fn pointer<T>(
            name: &'static str,
            body: impl FnOnce() -> ClResult<*mut T>,
        ) -> *mut T {
            NAME.set(name);
            body().unwrap_or(ptr::null_mut())
        }

        pub(crate) unsafe fn object<T>(
            name: &'static str,
            errcode_ret: *mut i32,
            body: impl FnOnce() -> ClResult<*mut T>,
        ) -> *mut T {
            NAME.set(name);
            let result = body();
            // SAFETY: the tests below pass the address of a number.
            unsafe { errcode_ret.write(result.err().unwrap_or(0)) };
            result.unwrap_or(ptr::null_mut())
        }
    }
}

fn name() -> &'static str {
    api::entry::NAME.get()
}

#[entry_point]
fn clOfCode(number: cl_int) -> ClResult {
    if number == 0 {
        return Ok(());
    }
    Err(number)
}

// The parameter has the name of a variable in the expansion.
#[entry_point]
fn clOfObject(body: cl_mem) -> ClResult<cl_mem> {
    if body.is_null() {
        Err(CL_INVALID_MEM_OBJECT)?;
    }
    Ok(body)
}

#[entry_point(no_code)]
fn clOfPointer(pointer: *mut c_void, fails: cl_bool) -> ClResult<*mut c_void> {
    if fails == CL_TRUE {
        Err(CL_INVALID_VALUE)
    } else {
        Ok(pointer)
    }
}

#[entry_point(no_code)]
fn clOfNothing(seen: *mut cl_int) -> ClResult {
    // SAFETY: the test passes the address of a number.
    unsafe { seen.write(1) };
    Err(CL_INVALID_VALUE)
}

/// Other attributes go to the C function.
#[entry_point]
#[unsafe(no_mangle)]
pub(crate) fn clOfSymbol() -> ClResult {
    Err(CL_INVALID_OPERATION)
}

#[test]
fn a_result_without_a_value_is_the_code() {
    let function: unsafe extern "C" fn(cl_int) -> cl_int = clOfCode;
    // SAFETY: the function demands nothing.
    let codes = unsafe { [function(0), function(CL_INVALID_VALUE)] };
    assert_eq!(codes, [CL_SUCCESS, CL_INVALID_VALUE]);
    assert_eq!(name(), "clOfCode");
}

#[test]
fn a_result_with_a_value_adds_errcode_ret_as_the_last_parameter() {
    let function: unsafe extern "C" fn(cl_mem, *mut cl_int) -> cl_mem = clOfObject;
    let given = ptr::dangling_mut();
    for (object, code) in [
        (given, CL_SUCCESS),
        (ptr::null_mut(), CL_INVALID_MEM_OBJECT),
    ] {
        let mut errcode_ret = 1;
        // SAFETY: the address is that of a number. The object is not followed.
        let returned = unsafe { function(object, &raw mut errcode_ret) };
        assert_eq!((returned, errcode_ret), (object, code));
    }
    assert_eq!(name(), "clOfObject");
}

#[test]
fn a_function_without_a_code_returns_the_value_or_null() {
    let function: unsafe extern "C" fn(*mut c_void, cl_bool) -> *mut c_void = clOfPointer;
    let given = ptr::dangling_mut();
    // SAFETY: the pointer is not followed.
    let returned = unsafe { [function(given, CL_FALSE), function(given, CL_TRUE)] };
    assert_eq!(returned, [given, ptr::null_mut()]);
    assert_eq!(name(), "clOfPointer");
}

#[test]
fn a_function_without_a_code_and_value_returns_nothing() {
    let function: unsafe extern "C" fn(*mut cl_int) = clOfNothing;
    let mut seen = 0;
    // SAFETY: the address is that of a number.
    unsafe { function(&raw mut seen) };
    assert_eq!((seen, name()), (1, "clOfNothing"));
}

#[test]
fn other_attributes_belong_to_the_c_function() {
    // SAFETY: `clOfSymbol` has this signature.
    unsafe extern "C" {
        #[link_name = "clOfSymbol"]
        fn by_symbol() -> cl_int;
    }
    // SAFETY: the function demands nothing.
    assert_eq!(unsafe { by_symbol() }, CL_INVALID_OPERATION);
}
