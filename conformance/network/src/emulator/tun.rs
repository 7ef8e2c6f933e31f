//! The TUN device through which packets leave the kernel for the emulator and return.
//!
//! The device uses segmentation offload (`IFF_VNET_HDR`): a run of TCP segments is one packet
//! of up to 64 KiB after a small header for cutting it. Without that, one gigabit per second
//! would need 83,000 system calls per second.

use std::fs::{File, OpenOptions};
use std::os::unix::fs::OpenOptionsExt;

use rustix::fs::OFlags;
use rustix::ioctl::{IntegerSetter, Setter, ioctl};

use crate::error::{Error, Result};

/// Size of the largest packet with its header.
pub(super) const LARGEST: usize = 65_536 + super::segments::HEADER;

const TUNSETIFF: rustix::ioctl::Opcode = 0x4004_54ca;
const TUNSETOFFLOAD: rustix::ioctl::Opcode = 0x4004_54d0;

const IFF_TUN: u16 = 0x0001;
const IFF_NO_PI: u16 = 0x1000;
const IFF_VNET_HDR: u16 = 0x4000;

/// Checksums may be left to the receiver. TCP over IPv4 may arrive unsegmented, also with congestion marks.
const OFFLOADS: usize = 0x01 | 0x02 | 0x08;

/// The kernel's `struct ifreq` as `TUNSETIFF` reads it: 40 bytes on every 64-bit Linux.
#[repr(C)]
struct InterfaceRequest {
    name: [u8; 16],
    flags: u16,
    rest: [u8; 22],
}

/// Opens a device called `name` in the calling thread's namespace. The device is removed with the descriptor.
pub(super) fn open(name: &str) -> Result<File> {
    let nonblocking = i32::try_from(OFlags::NONBLOCK.bits()).unwrap_or_default();
    let file = OpenOptions::new()
        .read(true)
        .write(true)
        .custom_flags(nonblocking)
        .open("/dev/net/tun")
        .map_err(|error| {
            Error::Unavailable(format!("the link emulator needs /dev/net/tun: {error}"))
        })?;
    let mut request = InterfaceRequest {
        name: [0; 16],
        flags: IFF_TUN | IFF_NO_PI | IFF_VNET_HDR,
        rest: [0; 22],
    };
    for (to, from) in request.name.iter_mut().take(15).zip(name.bytes()) {
        *to = from;
    }
    // SAFETY: TUNSETIFF takes a pointer to a `struct ifreq`, and `InterfaceRequest` has its layout. The
    // kernel only reads and writes within its 40 bytes.
    unsafe { ioctl(&file, Setter::<TUNSETIFF, _>::new(request)) }
        .map_err(Error::io("make a TUN device"))?;
    // SAFETY: TUNSETOFFLOAD takes flags by value.
    unsafe { ioctl(&file, IntegerSetter::<TUNSETOFFLOAD>::new_usize(OFFLOADS)) }
        .map_err(Error::io("switch a TUN device's offloads on"))?;
    Ok(file)
}
