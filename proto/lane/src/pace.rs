//! The pace of a lane's sending end: reads a connection's state from the kernel and sets its rate.
//!
//! `pacer.rs` decides when to send at which rate. Invariant: any refusal by the system costs only speed.
#![allow(unsafe_code)]

use std::io;
use std::net::TcpStream;
use std::os::fd::AsRawFd;
use std::time::{Duration, Instant};

use crate::pacer::{Beside, Crossing, Pacer, Reading};
use crate::path::PathReading;
use crate::stream::Stream;

/// The pacing state of one lane.
#[derive(Debug, Default)]
pub struct Pace {
    // Whether the lane uses a network whose queue could grow.
    adapts: bool,
    crossing: Crossing,
    pacer: Pacer,
    // Upper limit in bytes per second.
    most: Option<u64>,
    // The rate that the kernel was told last.
    told: Option<u64>,
}

impl Pace {
    /// The pace of a lane that sends as fast as it can or, with `adapts`, slower while small commands
    /// share its network.
    #[must_use]
    pub fn new(adapts: bool) -> Pace {
        Pace {
            adapts,
            ..Pace::default()
        }
    }

    /// Sets an upper limit in bytes per second, which always applies.
    pub fn set_most(&mut self, bytes_a_second: Option<u64>) {
        self.most = bytes_a_second;
    }

    /// Adjusts the rate. Must be called before each chunk that is sent on `stream`, always the same one.
    /// Streams without a socket have no pace.
    pub fn before_chunk(&mut self, stream: &Stream, beside: &Beside) {
        if self.adapts || self.most != self.told {
            stream.with_socket(|socket| self.look(socket, beside));
        }
    }

    /// Notes that the stream has a new socket, which was told no rate.
    pub fn forget_socket(&mut self) {
        self.told = None;
    }

    fn look(&mut self, socket: &TcpStream, beside: &Beside) {
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
            // If the kernel refuses, the lane continues at its old rate.
            let _ = set_most(socket, rate);
        }
    }
}

/// The beginning of Linux's `struct tcp_info`, up to the last field used here. Kernels only append
/// fields.
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

/// Place of the number of unacknowledged segments among the counts.
const UNACKNOWLEDGED: usize = 4;

fn read(socket: &TcpStream) -> Option<Reading> {
    // A minimum of all ones means that no round trip has been measured.
    let info = info(socket).filter(|info| info.rtt > 0 && info.min_rtt < u32::MAX)?;
    Some(Reading {
        round_trip: Duration::from_micros(info.rtt.into()),
        least: Duration::from_micros(info.min_rtt.into()),
        acknowledged: info.bytes_acked,
        busy: Duration::from_micros(info.busy_time),
    })
}

/// What the kernel knows about the path of a connection. `None` for other sockets than TCP, and on old kernels.
#[must_use]
pub fn path_of(socket: &TcpStream) -> Option<PathReading> {
    let info = info(socket)?;
    Some(PathReading {
        has_unacknowledged: info.counts[UNACKNOWLEDGED] > 0,
        acknowledged: info.bytes_acked,
        received: info.bytes_received,
        round_trip: Duration::from_micros(info.rtt.into()),
    })
}

fn info(socket: &TcpStream) -> Option<TcpInfo> {
    let mut info = TcpInfo::default();
    let wanted = size_of::<TcpInfo>() as libc::socklen_t;
    let mut length = wanted;
    // SAFETY: the pointers refer to local variables that live through the call. The kernel writes at most
    // `length` bytes into the first, for which every bit pattern is valid.
    let result = unsafe {
        libc::getsockopt(
            socket.as_raw_fd(),
            libc::IPPROTO_TCP,
            libc::TCP_INFO,
            (&raw mut info).cast(),
            &raw mut length,
        )
    };
    // Kernels before 4.10 return fewer fields.
    (result == 0 && length >= wanted).then_some(info)
}

/// Sets `SO_MAX_PACING_RATE` in bytes per second; `None` is no limit.
fn set_most(socket: &TcpStream, rate: Option<u64>) -> io::Result<()> {
    // All ones means no limit. Kernels that use only 32 bits take the lower half, which is then all ones
    // too.
    let value = rate.unwrap_or(u64::MAX);
    // SAFETY: the pointer and length describe a local variable that lives through the call.
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
        // SAFETY: the pointers refer to local variables that live through the call.
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
        // An answer carries the acknowledgement of the bytes that it answers.
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
