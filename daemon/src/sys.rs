//! The few system calls that neither std nor rustix wraps safely.
//!
//! What it is not: no policy. Invariant: the only `unsafe` of the daemon outside `runtime` and `bulk`.

use std::ffi::CString;
use std::io;
use std::mem::MaybeUninit;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

/// The first file descriptor that systemd passes.
const FIRST_PASSED: i32 = 3;

/// Takes the listening sockets that a service manager passed (`LISTEN_PID`, `LISTEN_FDS`) and marks
/// every other inherited descriptor close-on-exec, so that no worker sees it.
///
/// To be called once, first thing in `main`, before anything opens a descriptor.
#[must_use]
pub fn take_inherited() -> Vec<OwnedFd> {
    let for_us = std::env::var("LISTEN_PID").is_ok_and(|pid| pid == std::process::id().to_string());
    let count = std::env::var("LISTEN_FDS")
        .ok()
        .filter(|_| for_us)
        .and_then(|n| n.parse::<i32>().ok())
        .map_or(0, |n| n.clamp(0, 1024));
    // SAFETY: close_range takes three integers; with CLOEXEC it closes nothing. A kernel that lacks it
    // (before 5.11) answers with an error, and then only what the caller leaked stays open.
    unsafe {
        libc::syscall(
            libc::SYS_close_range,
            FIRST_PASSED as libc::c_uint,
            libc::c_uint::MAX,
            libc::CLOSE_RANGE_CLOEXEC,
        );
    }
    (FIRST_PASSED..FIRST_PASSED + count)
        .filter(|&fd| {
            // SAFETY: F_GETFD only looks; it fails on a number that names nothing.
            unsafe { libc::fcntl(fd, libc::F_GETFD) != -1 }
        })
        // SAFETY: the descriptor is open (checked above), the service manager passed it to us, and
        // nothing in this process has taken it: we run first.
        .map(|fd| unsafe { OwnedFd::from_raw_fd(fd) })
        .collect()
}

/// Sets the queueing priority of a socket's packets (`SO_PRIORITY`, 0 to 6 without privileges).
///
/// # Errors
/// What the system says.
pub fn set_priority(socket: BorrowedFd<'_>, priority: libc::c_int) -> io::Result<()> {
    // SAFETY: the option's value is one int, which lives through the call; the descriptor is borrowed.
    let result = unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_PRIORITY,
            (&raw const priority).cast(),
            size_of::<libc::c_int>() as libc::socklen_t,
        )
    };
    if result == 0 {
        Ok(())
    } else {
        Err(io::Error::last_os_error())
    }
}

/// The addresses of the interfaces that are up, but for those that mean something only together with an
/// interface's name.
///
/// # Errors
/// What the system says.
pub fn interface_addresses() -> io::Result<Vec<IpAddr>> {
    let mut list = std::ptr::null_mut();
    // SAFETY: on success it points `list` to a list that is ours until freeifaddrs, below.
    if unsafe { libc::getifaddrs(&raw mut list) } != 0 {
        return Err(io::Error::last_os_error());
    }
    let mut found = Vec::new();
    let mut next = list;
    // SAFETY: an element of the list, or null at its end.
    while let Some(interface) = unsafe { next.as_ref() } {
        next = interface.ifa_next;
        let up = interface.ifa_flags & libc::IFF_UP as libc::c_uint != 0;
        // SAFETY: null, or the address of this element, which lives as long as the list.
        let address = unsafe { ip_address(interface.ifa_addr) };
        found.extend(address.filter(|_| up));
    }
    // SAFETY: from getifaddrs, and nothing of it is used any more.
    unsafe { libc::freeifaddrs(list) };
    Ok(found)
}

/// # Safety
/// Null, or a socket address of the size that its family says.
unsafe fn ip_address(address: *const libc::sockaddr) -> Option<IpAddr> {
    // SAFETY: as the caller promises.
    let family = i32::from(unsafe { address.as_ref() }?.sa_family);
    match family {
        libc::AF_INET => {
            // SAFETY: of this family, so of this type; read without regard to alignment.
            let v4 = unsafe { address.cast::<libc::sockaddr_in>().read_unaligned() };
            let bytes = v4.sin_addr.s_addr.to_ne_bytes();
            Some(Ipv4Addr::from(bytes).into())
        }
        libc::AF_INET6 => {
            // SAFETY: as above.
            let v6 = unsafe { address.cast::<libc::sockaddr_in6>().read_unaligned() };
            let ip = Ipv6Addr::from(v6.sin6_addr.s6_addr);
            (!ip.is_unicast_link_local()).then_some(ip.into())
        }
        _ => None,
    }
}

/// Has the runtime tell when a descriptor of ours is readable.
///
/// # Errors
/// What the system says.
pub fn readable(descriptor: OwnedFd) -> io::Result<AsyncFd<OwnedFd>> {
    // SAFETY: an owned descriptor is the same until it is dropped, and the value that is returned owns it.
    let registered = unsafe { AsyncFd::register_with_interest(descriptor, Interest::READABLE) };
    registered.map_err(|error| error.into_parts().1)
}

/// The number of a user, and of its group; `None`: there is no such user.
///
/// # Errors
/// What the system says, when it cannot look.
pub fn user(name: &str) -> io::Result<Option<(u32, u32)>> {
    let name = CString::new(name)?;
    look_up(|buffer, length| {
        let mut entry = MaybeUninit::<libc::passwd>::uninit();
        let mut found = std::ptr::null_mut();
        // SAFETY: the name ends in NUL, the buffer has the length that is said, and the other two are ours to
        // be written. Nothing of the buffer is used after it.
        let code = unsafe {
            libc::getpwnam_r(
                name.as_ptr(),
                entry.as_mut_ptr(),
                buffer,
                length,
                &raw mut found,
            )
        };
        // SAFETY: not null means that the entry has been written, and points to it.
        let entry = unsafe { found.as_ref() };
        (code, entry.map(|entry| (entry.pw_uid, entry.pw_gid)))
    })
}

/// The number of a group; `None`: there is no such group.
///
/// # Errors
/// As [`user`].
pub fn group(name: &str) -> io::Result<Option<u32>> {
    let name = CString::new(name)?;
    look_up(|buffer, length| {
        let mut entry = MaybeUninit::<libc::group>::uninit();
        let mut found = std::ptr::null_mut();
        // SAFETY: as for users.
        let code = unsafe {
            libc::getgrnam_r(
                name.as_ptr(),
                entry.as_mut_ptr(),
                buffer,
                length,
                &raw mut found,
            )
        };
        // SAFETY: as for users.
        let entry = unsafe { found.as_ref() };
        (code, entry.map(|entry| entry.gr_gid))
    })
}

/// Asks the user database with buffers of more and more bytes: a group may have many members.
fn look_up<T>(
    mut ask: impl FnMut(*mut libc::c_char, usize) -> (libc::c_int, Option<T>),
) -> io::Result<Option<T>> {
    const MOST: usize = 16 << 20;
    let mut buffer: Vec<libc::c_char> = vec![0; 1 << 10];
    loop {
        match ask(buffer.as_mut_ptr(), buffer.len()) {
            (0, found) => return Ok(found),
            (libc::ERANGE, _) if buffer.len() < MOST => buffer.resize(4 * buffer.len(), 0),
            (libc::EINTR, _) => {}
            // So some databases say that there is none.
            (libc::ENOENT | libc::ESRCH, _) => return Ok(None),
            (error, _) => return Err(io::Error::from_raw_os_error(error)),
        }
    }
}

/// Ends the process at once: no destructors, no `atexit` handlers of a driver, no flush.
pub fn exit_now(code: i32) -> ! {
    // SAFETY: _exit has no preconditions and does not return.
    unsafe { libc::_exit(code) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn root_is_known_and_nobody_of_no_name() {
        assert_eq!(user("root").unwrap(), Some((0, 0)));
        assert_eq!(group("root").unwrap(), Some(0));
        assert_eq!(user("no such user").unwrap(), None);
        assert_eq!(group("no such group").unwrap(), None);
    }

    #[test]
    fn this_machine_has_a_loopback_address() {
        let found = interface_addresses().unwrap();
        assert!(found.contains(&Ipv4Addr::LOCALHOST.into()), "{found:?}");
    }
}
