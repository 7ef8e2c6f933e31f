//! Libraries that are loaded by a call, as drivers load their compilers with the first build.
//!
//! Not here: anything that such a library is asked. Invariant: what was loaded stays.

use std::ffi::CString;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// Loads a library; one that cannot be is missed by nobody but the test that wants it.
pub(crate) fn load(library: &Path) {
    let Ok(name) = CString::new(library.as_os_str().as_bytes()) else {
        return;
    };
    // SAFETY: a C string; whoever wrote the configuration vouches for what the library does when it is loaded.
    unsafe { libc::dlopen(name.as_ptr(), libc::RTLD_NOW | libc::RTLD_LOCAL) };
}
