//! Tests of copies out of the client's own copy of a buffer, in a context of several nodes.

use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::ptr::{null, null_mut};

use crate::frames::opencl::*;
use crate::frames::several::*;

const SIZE: usize = 1 << 20;

/// Pages at which every access blocks until the test releases them.
struct Stuck {
    at: usize,
    faults: OwnedFd,
}

#[repr(C)]
struct Api {
    api: u64,
    features: u64,
    ioctls: u64,
}

#[repr(C)]
struct Register {
    start: u64,
    length: u64,
    mode: u64,
    ioctls: u64,
}

const UFFD_USER_MODE_ONLY: i32 = 1;
const UFFDIO_API: u64 = 0xc018_aa3f;
const UFFDIO_REGISTER: u64 = 0xc020_aa00;

impl Stuck {
    /// `None` if the system does not allow it.
    fn new() -> Option<Stuck> {
        // SAFETY: new pages and a new file descriptor, and structures of the kernel's layout.
        unsafe {
            let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
            let access = libc::PROT_READ | libc::PROT_WRITE;
            let at = libc::mmap(null_mut(), SIZE, access, flags, -1, 0);
            assert_ne!(at, libc::MAP_FAILED);
            let fd = libc::syscall(libc::SYS_userfaultfd, UFFD_USER_MODE_ONLY | libc::O_CLOEXEC);
            if fd < 0 {
                let error = std::io::Error::last_os_error();
                let refused = [libc::EPERM, libc::ENOSYS].map(Some);
                assert!(refused.contains(&error.raw_os_error()), "{error}");
                return None;
            }
            let faults = OwnedFd::from_raw_fd(fd as i32);
            let mut api = Api {
                api: 0xaa,
                features: 0,
                ioctls: 0,
            };
            assert_eq!(libc::ioctl(fd as i32, UFFDIO_API, &raw mut api), 0);
            let mut register = Register {
                start: at.addr() as u64,
                length: SIZE as u64,
                mode: 1,
                ioctls: 0,
            };
            assert_eq!(
                libc::ioctl(fd as i32, UFFDIO_REGISTER, &raw mut register),
                0
            );
            Some(Stuck {
                at: at.expose_provenance(),
                faults,
            })
        }
    }

    /// Waits until a thread blocks at a page.
    fn await_touch(&self) {
        let mut poll = libc::pollfd {
            fd: self.faults.as_raw_fd(),
            events: libc::POLLIN,
            revents: 0,
        };
        let limit = PATIENCE.as_millis() as i32;
        // SAFETY: one structure.
        let ready = unsafe { libc::poll(&raw mut poll, 1, limit) };
        assert_eq!(ready, 1, "no thread touched a page");
    }

    /// Releases the pages. Returns their bytes, which live as long as the process.
    fn let_go(self) -> &'static [u8] {
        drop(self.faults);
        let at = std::ptr::with_exposed_provenance(self.at);
        // SAFETY: mapped, and never unmapped.
        unsafe { std::slice::from_raw_parts(at, SIZE) }
    }
}

#[test]
fn a_long_copy_to_the_application_keeps_nobody_waiting() {
    let Some(stuck) = Stuck::new() else {
        return eprintln!("not tried: userfaultfd is not allowed here");
    };
    let cl = several();
    let contents = pattern(4, SIZE);
    let buffer = cl.buffer_of(0, &contents);
    let other = cl.buffer(0, 64);
    let (queue, memory, at) = (Shared(cl.queues[ALPHA]), Shared(buffer), stuck.at);
    let begun = soon(move || {
        let (queue, memory, mut event) = (queue.get(), memory.get(), null_mut());
        ok!(clEnqueueReadBuffer(
            queue,
            memory,
            CL_FALSE,
            0,
            SIZE,
            std::ptr::with_exposed_provenance_mut(at),
            0,
            null(),
            &raw mut event
        ));
        Shared(event)
    });
    stuck.await_touch();
    let read = begun
        .recv_timeout(PATIENCE)
        .expect("the read returns")
        .get();
    assert_eq!(finish(cl.fill(DELTA, other, 1, (0, 64), &[])), CL_SUCCESS);
    assert!(status_of(read) > CL_COMPLETE);
    let bytes = stuck.let_go();
    assert_eq!(finish(read), CL_SUCCESS);
    assert!(bytes == contents);
    release_memory(&[buffer, other]);
}
