//! The few system calls that neither std nor rustix wraps safely.
//!
//! What it is not: no policy. Invariant: the only `unsafe` of the daemon outside `runtime` and `bulk`.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

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

/// Ends the process at once: no destructors, no `atexit` handlers of a driver, no flush.
pub fn exit_now(code: i32) -> ! {
    // SAFETY: _exit has no preconditions and does not return.
    unsafe { libc::_exit(code) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_machine_has_a_loopback_address() {
        let found = interface_addresses().unwrap();
        assert!(found.contains(&Ipv4Addr::LOCALHOST.into()), "{found:?}");
    }
}
