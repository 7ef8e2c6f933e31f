//! The pace of a lane's sending end: what the kernel says of a connection, and what it is told.
//!
//! What it is not: when to send how fast is `pacer.rs`'s to say. Invariant: whatever the system refuses costs
//! speed only.
#![allow(unsafe_code)]

use std::io;
use std::net::TcpStream;
use std::os::fd::AsRawFd;
use std::time::{Duration, Instant};

use crate::pacer::{Beside, Crossing, Pacer, Reading};
use crate::stream::Stream;

/// What one lane keeps about how fast it sends.
#[derive(Debug, Default)]
pub struct Pace {
    // Whether there is a link whose queue could grow.
    adapts: bool,
    crossing: Crossing,
    pacer: Pacer,
    // Never more, bytes a second.
    most: Option<u64>,
    // What the kernel was told last.
    told: Option<u64>,
}

impl Pace {
    /// Of a lane that sends as it can, or, if it `adapts`, slower beside small commands.
    #[must_use]
    pub fn new(adapts: bool) -> Pace {
        Pace {
            adapts,
            ..Pace::default()
        }
    }

    /// From now on so many bytes a second at most, whatever else crosses the link.
    pub fn set_most(&mut self, bytes_a_second: Option<u64>) {
        self.most = bytes_a_second;
    }

    /// To be called before each chunk that is sent on `stream`, always the same: sees whether it should go faster or
    /// slower than the last. Shared memory has no pace.
    pub fn before_chunk(&mut self, stream: &Stream, beside: &Beside) {
        let Some(socket) = stream.socket() else {
            return;
        };
        if !self.adapts && self.most == self.told {
            return;
        }
        let now = Instant::now();
        let rate = if self.adapts && self.crossing.look(now, beside) {
            read(socket).and_then(|reading| self.pacer.look(now, reading))
        } else {
            self.pacer.rest();
            None
        };
        let rate = match (rate, self.most) {
            (Some(rate), Some(most)) => Some(rate.min(most)),
            (rate, most) => rate.or(most),
        };
        if rate != self.told {
            self.told = rate;
            // It goes on as fast as before, then.
            let _ = set_most(socket, rate);
        }
    }
}

/// The beginning of Linux's `struct tcp_info`, up to what is wanted of it; kernels only ever append.
#[repr(C)]
#[derive(Clone, Copy, Default)]
struct TcpInfo {
    states: [u8; 8],
    counts: [u32; 15],
    rtt: u32,
    other: [u32; 8],
    pacing: [u64; 2],
    bytes_acked: u64,
    bytes_received: u64,
    segments: [u32; 3],
    min_rtt: u32,
    data_segments: [u32; 2],
    delivery_rate: u64,
    busy_time: u64,
}

fn read(socket: &TcpStream) -> Option<Reading> {
    let mut info = TcpInfo::default();
    let wanted = size_of::<TcpInfo>() as libc::socklen_t;
    let mut length = wanted;
    // SAFETY: the pointers are to locals that live through the call; the kernel writes at most `length` bytes
    // into the first, of which every pattern is a value.
    let result = unsafe {
        libc::getsockopt(
            socket.as_raw_fd(),
            libc::IPPROTO_TCP,
            libc::TCP_INFO,
            (&raw mut info).cast(),
            &raw mut length,
        )
    };
    // A kernel of before 4.10 knows less. No round trip has been measured where the least is all ones.
    let known = result == 0 && length >= wanted && info.rtt > 0 && info.min_rtt < u32::MAX;
    known.then(|| Reading {
        round_trip: Duration::from_micros(info.rtt.into()),
        least: Duration::from_micros(info.min_rtt.into()),
        acknowledged: info.bytes_acked,
        busy: Duration::from_micros(info.busy_time),
    })
}

/// `SO_MAX_PACING_RATE`, bytes a second.
fn set_most(socket: &TcpStream, rate: Option<u64>) -> io::Result<()> {
    // All ones is no limit. Kernels that know 32 bits only take the lower half, which is all ones then, too.
    let value = rate.unwrap_or(u64::MAX);
    // SAFETY: the pointer and length describe a local that lives through the call.
    let result = unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_MAX_PACING_RATE,
            (&raw const value).cast(),
            size_of::<u64>() as libc::socklen_t,
        )
    };
    if result == 0 {
        Ok(())
    } else {
        Err(io::Error::last_os_error())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read, Write};
    use std::mem::offset_of;
    use std::net::TcpListener;

    fn pair() -> (TcpStream, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let one = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        (one, listener.accept().unwrap().0)
    }

    fn most_of(socket: &TcpStream) -> u64 {
        let (mut value, mut length) = (0u64, size_of::<u64>() as libc::socklen_t);
        // SAFETY: the pointers are to locals that live through the call.
        let result = unsafe {
            libc::getsockopt(
                socket.as_raw_fd(),
                libc::SOL_SOCKET,
                libc::SO_MAX_PACING_RATE,
                (&raw mut value).cast(),
                &raw mut length,
            )
        };
        assert_eq!(result, 0);
        value
    }

    #[test]
    fn the_fields_are_where_the_kernel_has_them() {
        assert_eq!(offset_of!(TcpInfo, rtt), 68);
        assert_eq!(offset_of!(TcpInfo, bytes_acked), 120);
        assert_eq!(offset_of!(TcpInfo, min_rtt), 148);
        assert_eq!(offset_of!(TcpInfo, busy_time), 168);
    }

    #[test]
    fn the_kernel_tells_what_was_acknowledged() {
        let (mut one, mut other) = pair();
        let begun = read(&one).unwrap().acknowledged;
        one.write_all(&[7; 1000]).unwrap();
        other.read_exact(&mut [0; 1000]).unwrap();
        // An answer carries the acknowledgement of what it answers.
        other.write_all(&[1]).unwrap();
        one.read_exact(&mut [0]).unwrap();
        let reading = read(&one).unwrap();
        assert_eq!(reading.acknowledged - begun, 1000);
        assert!(reading.least <= reading.round_trip.max(reading.least));
    }

    #[test]
    fn a_most_is_told_once_and_holds_without_commands() {
        let (one, _other) = pair();
        let stream = Stream::Tcp(one);
        let Stream::Tcp(socket) = &stream else { return };
        let mut pace = Pace::new(true);
        pace.set_most(Some(1_000_000));
        pace.before_chunk(&stream, &Beside::default());
        assert_eq!(most_of(socket), 1_000_000);
        pace.set_most(None);
        pace.before_chunk(&stream, &Beside::default());
        assert_eq!(most_of(socket), u64::MAX);
    }
}
