//! Tests `CAUSEWAY_SHARED_MEMORY=0`: no memory is shared, and large transfers use TCP.

use std::ptr::{null, null_mut};

use crate::frames::opencl::*;

#[test]
fn who_wants_no_shared_memory_has_none() {
    own_process!();
    // SAFETY: the library has not been asked anything yet, so nobody reads the environment.
    unsafe { std::env::set_var("CAUSEWAY_SHARED_MEMORY", "0") };
    let cl = Fixture::new();
    let bytes = pattern(3, 5 << 20);
    let buffer = cl.buffer_of(&bytes);
    let mut got = vec![0u8; bytes.len()];
    ok!(clEnqueueReadBuffer(
        cl.queue,
        buffer,
        CL_TRUE,
        0,
        got.len(),
        got.as_mut_ptr().cast(),
        0,
        null(),
        null_mut()
    ));
    assert!(got == bytes);
    assert_eq!(causeway_lane::carried_bytes(), 0);
    let maps = std::fs::read_to_string("/proc/self/maps").expect("procfs");
    assert!(!maps.contains("causeway-lane"));
}
