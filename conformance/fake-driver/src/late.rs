//! Libraries that a call loads, as drivers load their compilers with the first build.
//!
//! Such a library is not used further. Invariant: a loaded library stays loaded.

use std::ffi::CString;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// Loads a library. A failure is ignored; the test that needs the library will notice it.
pub(crate) fn load(library: &Path) {
    let Ok(name) = CString::new(library.as_os_str().as_bytes()) else {
        return;
    };
    // SAFETY: `name` is a C string. The author of the configuration vouches for the library's initialisation.
    unsafe { libc::dlopen(name.as_ptr(), libc::RTLD_NOW | libc::RTLD_LOCAL) };
}
