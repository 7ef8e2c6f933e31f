//! The few system calls that neither std nor rustix wraps safely.
//!
//! This module makes no policy decisions. Invariant: this is the only `unsafe` code of the daemon outside
//! `runtime`, `bulk` and `accounting::page`.

use std::ffi::{CStr, CString};
use std::io;
use std::mem::MaybeUninit;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

/// First file descriptor that systemd passes.
const FIRST_PASSED: i32 = 3;

/// Takes the listening sockets that a service manager passed (`LISTEN_PID`, `LISTEN_FDS`). Marks all
/// inherited descriptors close-on-exec, so that no worker inherits them.
///
/// Must be called once, at the start of `main`, before anything opens a descriptor.
#[must_use]
pub fn take_inherited() -> Vec<OwnedFd> {
    let for_us = std::env::var("LISTEN_PID").is_ok_and(|pid| pid == std::process::id().to_string());
    let count = std::env::var("LISTEN_FDS")
        .ok()
        .filter(|_| for_us)
        .and_then(|n| n.parse::<i32>().ok())
        .map_or(0, |n| n.clamp(0, 1024));
    // SAFETY: close_range takes three integers; with CLOEXEC it closes nothing. A kernel before 5.11
    // returns an error. In that case, only the descriptors that the caller leaked stay open in children.
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
            // SAFETY: F_GETFD only reads flags; it fails on a number that is not an open descriptor.
            unsafe { libc::fcntl(fd, libc::F_GETFD) != -1 }
        })
        // SAFETY: the descriptor is open (checked above), and the service manager passed it to this
        // process. No other code owns it, because this function runs first.
        .map(|fd| unsafe { OwnedFd::from_raw_fd(fd) })
        .collect()
}

/// Sets the queueing priority of a socket's packets (`SO_PRIORITY`, 0 to 6 without privileges).
pub fn set_priority(socket: BorrowedFd<'_>, priority: libc::c_int) -> io::Result<()> {
    // SAFETY: the option's value is one int that lives through the call; the descriptor is borrowed for the
    // call.
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

/// Returns the addresses of the interfaces that are up. Leaves out IPv6 link-local addresses, which are
/// valid only together with an interface's name.
pub fn interface_addresses() -> io::Result<Vec<IpAddr>> {
    let mut list = std::ptr::null_mut();
    // SAFETY: on success getifaddrs points `list` to a list that this function owns until freeifaddrs
    // below.
    if unsafe { libc::getifaddrs(&raw mut list) } != 0 {
        return Err(io::Error::last_os_error());
    }
    let mut found = Vec::new();
    let mut next = list;
    // SAFETY: `next` is an element of the list, or null at its end.
    while let Some(interface) = unsafe { next.as_ref() } {
        next = interface.ifa_next;
        let up = interface.ifa_flags & libc::IFF_UP as libc::c_uint != 0;
        // SAFETY: `ifa_addr` is null, or the address of this element, which lives as long as the list.
        let address = unsafe { ip_address(interface.ifa_addr) };
        found.extend(address.filter(|_| up));
    }
    // SAFETY: `list` comes from getifaddrs, and nothing refers to it after this.
    unsafe { libc::freeifaddrs(list) };
    Ok(found)
}

/// Converts a socket address; `None` for null, IPv6 link-local addresses and other families.
///
/// # Safety
/// `address` is null, or points to a socket address of the size that its family requires.
unsafe fn ip_address(address: *const libc::sockaddr) -> Option<IpAddr> {
    // SAFETY: the caller promises that `address` is null or valid.
    let family = i32::from(unsafe { address.as_ref() }?.sa_family);
    match family {
        libc::AF_INET => {
            // SAFETY: the family is AF_INET, so this is a `sockaddr_in`; an unaligned read needs no
            // alignment.
            let v4 = unsafe { address.cast::<libc::sockaddr_in>().read_unaligned() };
            let bytes = v4.sin_addr.s_addr.to_ne_bytes();
            Some(Ipv4Addr::from(bytes).into())
        }
        libc::AF_INET6 => {
            // SAFETY: the family is AF_INET6, so this is a `sockaddr_in6`; an unaligned read needs no
            // alignment.
            let v6 = unsafe { address.cast::<libc::sockaddr_in6>().read_unaligned() };
            let ip = Ipv6Addr::from(v6.sin6_addr.s6_addr);
            (!ip.is_unicast_link_local()).then_some(ip.into())
        }
        _ => None,
    }
}

/// Registers a descriptor with tokio, so that the caller can wait until it is readable.
pub fn readable(descriptor: OwnedFd) -> io::Result<AsyncFd<OwnedFd>> {
    // SAFETY: an owned descriptor stays open until it is dropped, and the returned value owns it.
    let registered = unsafe { AsyncFd::register_with_interest(descriptor, Interest::READABLE) };
    registered.map_err(|error| error.into_parts().1)
}

/// Returns the ids of a user and of its primary group; `None` if the user does not exist.
///
/// # Errors
/// The system's error if the user database cannot be read.
pub fn user(name: &str) -> io::Result<Option<(u32, u32)>> {
    let name = CString::new(name)?;
    look_up(|buffer, length| {
        let mut entry = MaybeUninit::<libc::passwd>::uninit();
        let mut found = std::ptr::null_mut();
        // SAFETY: the name ends in NUL, the buffer has the length that is passed, and both result pointers
        // are writable. The entry's pointers into the buffer are not used after the lookup.
        let code = unsafe {
            libc::getpwnam_r(
                name.as_ptr(),
                entry.as_mut_ptr(),
                buffer,
                length,
                &raw mut found,
            )
        };
        // SAFETY: `found` is null, or points to `entry`, which the call has written.
        let entry = unsafe { found.as_ref() };
        (code, entry.map(|entry| (entry.pw_uid, entry.pw_gid)))
    })
}

/// Returns the id of a group; `None` if the group does not exist.
///
/// # Errors
/// As [`user`].
pub fn group(name: &str) -> io::Result<Option<u32>> {
    look_up_group(name, |entry| entry.gr_gid)
}

/// Returns the names of the users that a group lists; `None` if the group does not exist. Users who have it
/// as their primary group are not among them, unless the group lists them too.
///
/// # Errors
/// As [`user`].
pub fn group_members(name: &str) -> io::Result<Option<Vec<String>>> {
    // SAFETY: the list and its names lie in the buffer of `look_up_group`, which nothing has changed since the call.
    look_up_group(name, |entry| unsafe { texts(entry.gr_mem) })
}

/// Reads one thing from a group's entry; `None` if the group does not exist.
fn look_up_group<T>(name: &str, read: impl Fn(&libc::group) -> T) -> io::Result<Option<T>> {
    let name = CString::new(name)?;
    look_up(|buffer, length| {
        let mut entry = MaybeUninit::<libc::group>::uninit();
        let mut found = std::ptr::null_mut();
        // SAFETY: as in `user`.
        let code = unsafe {
            libc::getgrnam_r(
                name.as_ptr(),
                entry.as_mut_ptr(),
                buffer,
                length,
                &raw mut found,
            )
        };
        // SAFETY: as in `user`.
        let entry = unsafe { found.as_ref() };
        (code, entry.map(&read))
    })
}

/// Copies the texts of a list that ends in a null pointer.
///
/// # Safety
/// `list` is null, or points to pointers of which the last is null and each other points to a C string.
unsafe fn texts(list: *const *mut libc::c_char) -> Vec<String> {
    let mut texts = Vec::new();
    let mut next = list;
    // SAFETY: the caller promises that `next` is null, or that a null pointer ends its list.
    while let Some(text) = unsafe { next.as_ref() }.filter(|text| !text.is_null()) {
        // SAFETY: the caller promises that each pointer points to a C string.
        let text = unsafe { CStr::from_ptr(*text) };
        texts.push(text.to_string_lossy().into_owned());
        // SAFETY: this was not the last element, so the next one belongs to the same list.
        next = unsafe { next.add(1) };
    }
    texts
}

/// Queries the user database with growing buffers, because a group may have many members.
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
            // Some databases report a missing entry with these codes.
            (libc::ENOENT | libc::ESRCH, _) => return Ok(None),
            (error, _) => return Err(io::Error::from_raw_os_error(error)),
        }
    }
}

/// Ends the process at once. Runs no destructors and no `atexit` handlers of a driver, and flushes nothing.
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
        assert!(group_members("root").unwrap().is_some());
        assert_eq!(group_members("no such group").unwrap(), None);
    }

    #[test]
    fn a_list_of_texts_ends_at_the_null_pointer() {
        let mut names = [*b"ann\0", *b"bob\0"];
        let mut list: Vec<_> = names
            .iter_mut()
            .map(|name| name.as_mut_ptr().cast())
            .collect();
        list.push(std::ptr::null_mut());
        // SAFETY: the list has two C strings and ends in a null pointer.
        assert_eq!(unsafe { texts(list.as_ptr()) }, ["ann", "bob"]);
        // SAFETY: a null pointer is an empty list.
        assert!(unsafe { texts(std::ptr::null()) }.is_empty());
    }

    #[test]
    fn this_machine_has_a_loopback_address() {
        let found = interface_addresses().unwrap();
        assert!(found.contains(&Ipv4Addr::LOCALHOST.into()), "{found:?}");
    }
}
