//! Tests that a transfer soon fails if its worker dies, and that a new context works.

use std::ptr::{null, null_mut};
use std::sync::mpsc::channel;
use std::time::{Duration, Instant};

use crate::frames::opencl::*;

// Time limit for the failure of calls on a lost node.
const SOON: Duration = Duration::from_secs(5);
const SIZE: usize = 8 << 20;

/// Transfers until one fails, which must be soon after the workers are killed. Returns the code.
fn until_failure(mut transfer: impl FnMut() -> cl_int) -> cl_int {
    let (go, going) = channel();
    let killer = std::thread::spawn(move || {
        going.recv().expect("transfers run");
        kill_workers();
    });
    let begin = Instant::now();
    for _ in 0..2 {
        assert_eq!(transfer(), CL_SUCCESS);
    }
    // From now on, the kill comes in the middle of some transfer.
    go.send(()).expect("the killer waits");
    let code = loop {
        let code = transfer();
        if code != CL_SUCCESS {
            break code;
        }
        assert!(begin.elapsed() < SOON, "no transfer failed");
    };
    assert!(begin.elapsed() < SOON);
    killer.join().expect("workers are killed");
    code
}

#[test]
fn a_lost_worker_fails_its_transfers_and_is_replaced() {
    own_process!();
    let mut host = pattern(1, SIZE);
    for way in ["write", "read", "map"] {
        // Each round has a new session, since the last one was lost.
        let cl = Fixture::new();
        let buffer = cl.buffer_of(&pattern(2, SIZE));
        let at: *mut c_void = host.as_mut_ptr().cast();
        let code = until_failure(|| match way {
            "write" => code!(clEnqueueWriteBuffer(
                cl.queue,
                buffer,
                CL_TRUE,
                0,
                SIZE,
                at,
                0,
                null(),
                null_mut()
            )),
            "read" => code!(clEnqueueReadBuffer(
                cl.queue,
                buffer,
                CL_TRUE,
                0,
                SIZE,
                at,
                0,
                null(),
                null_mut()
            )),
            _ => {
                let mapped = make!(clEnqueueMapBuffer(
                    cl.queue,
                    buffer,
                    CL_TRUE,
                    CL_MAP_READ,
                    0,
                    SIZE,
                    0,
                    null(),
                    null_mut()
                ));
                match mapped {
                    Ok(at) => code!(clEnqueueUnmapMemObject(
                        cl.queue,
                        buffer,
                        at,
                        0,
                        null(),
                        null_mut()
                    )),
                    Err(code) => code,
                }
            }
        });
        assert_eq!(code, CL_DEVICE_NOT_AVAILABLE, "{way}");
        // No thread touches the memory any more, and everything can be released.
        host.copy_from_slice(&pattern(3, SIZE));
        ok!(clReleaseMemObject(buffer));
        assert!(host == pattern(3, SIZE));
    }
    let cl = Fixture::new();
    let buffer = cl.buffer_of(&pattern(4, 100));
    assert!(cl.read(buffer, 0, 100) == pattern(4, 100));
    ok!(clReleaseMemObject(buffer));
}
