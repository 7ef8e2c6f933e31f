//! The yardstick: the same bytes over bare TCP between two processes, without any part of Causeway.
//!
//! The peer is a process of its own that serves connections. Each begins with one [`Order`]. A round trip may have a
//! [`Call`] of the native driver in its middle. The peer reports the call's time, and the caller subtracts it. Both
//! ends have then slept as long as those of a session do. Invariant: both ends set TCP_NODELAY and leave socket buffers
//! to the kernel.
#![forbid(unsafe_code)]

use std::error::Error;
use std::io::{self, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::time::Instant;

const CHUNK: usize = 1 << 20;

/// Round trips of a connection that are not counted.
const WARM: usize = 5;

/// The use of a connection: kind, then bytes of a message or in all.
#[derive(Clone, Copy)]
pub(crate) enum Order {
    /// Echo messages of this size.
    Echo = 0,
    /// Receive this number of bytes, then answer with one.
    Sink = 1,
    /// Send this number of bytes.
    Source = 2,
    /// Echo messages after an empty launch and `clFinish`.
    Launch = 3,
    /// Echo messages after a blocking read of 4 bytes.
    Read = 4,
    /// Echo messages after building a source that nobody has seen.
    Build = 5,
}

/// A native call, which can be repeated.
pub(crate) type Call = Box<dyn FnMut() -> Result<(), Box<dyn Error>>>;

/// Makes the call in the middle of an [`Order`]; `None` for an order without one.
pub(crate) type MakeCall = fn(Order) -> Result<Option<Call>, Box<dyn Error>>;

/// Prints its address, and serves until it is killed.
pub(crate) fn peer(listen: &str, make: MakeCall) -> Result<(), Box<dyn Error>> {
    let listener = TcpListener::bind(listen)?;
    println!("listening on {}", listener.local_addr()?);
    for stream in listener.incoming() {
        let stream = stream?;
        std::thread::spawn(move || {
            // The caller closes its connections when it is done.
            if let Err(error) = serve(stream, make)
                && !error.downcast_ref().is_some_and(|e: &io::Error| is_end(e))
            {
                eprintln!("bench socket-peer: {error}");
            }
        });
    }
    Ok(())
}

fn is_end(error: &io::Error) -> bool {
    use io::ErrorKind::{BrokenPipe, ConnectionReset, UnexpectedEof};
    matches!(error.kind(), BrokenPipe | ConnectionReset | UnexpectedEof)
}

fn serve(mut stream: TcpStream, make: MakeCall) -> Result<(), Box<dyn Error>> {
    stream.set_nodelay(true)?;
    let mut order = [0; 9];
    let mut chunk = vec![0u8; CHUNK];
    loop {
        stream.read_exact(&mut order)?;
        let size = u64::from_le_bytes(std::array::from_fn(|i| order[1 + i])) as usize;
        match order[0] {
            1 => {
                take(&mut stream, &mut chunk, size)?;
                stream.write_all(&[1])?;
            }
            2 => give(&mut stream, &chunk, size)?,
            kind => {
                let order = [Order::Launch, Order::Read, Order::Build];
                let order = order.into_iter().find(|order| *order as u8 == kind);
                return echo(
                    &mut stream,
                    &mut chunk[..size],
                    make(order.unwrap_or(Order::Echo))?,
                );
            }
        }
    }
}

fn take(stream: &mut TcpStream, chunk: &mut [u8], mut left: usize) -> io::Result<()> {
    while left > 0 {
        let now = left.min(chunk.len());
        stream.read_exact(&mut chunk[..now])?;
        left -= now;
    }
    Ok(())
}

fn give(stream: &mut TcpStream, chunk: &[u8], mut left: usize) -> io::Result<()> {
    while left > 0 {
        let now = left.min(chunk.len());
        stream.write_all(&chunk[..now])?;
        left -= now;
    }
    Ok(())
}

/// With a call in its middle, the answer begins with the call's nanoseconds in 4 bytes.
fn echo(
    stream: &mut TcpStream,
    message: &mut [u8],
    mut call: Option<Call>,
) -> Result<(), Box<dyn Error>> {
    loop {
        stream.read_exact(message)?;
        if let Some(call) = &mut call {
            let begin = Instant::now();
            call()?;
            let took = u32::try_from(begin.elapsed().as_nanos()).unwrap_or(u32::MAX);
            message[..4].copy_from_slice(&took.to_le_bytes());
        }
        stream.write_all(message)?;
    }
}

/// The measuring end.
pub(crate) struct Socket {
    address: String,
}

impl Socket {
    /// For the peer at `address`.
    pub(crate) fn new(address: String) -> Socket {
        Socket { address }
    }

    fn open(&self) -> io::Result<TcpStream> {
        let stream = TcpStream::connect(&self.address)?;
        stream.set_nodelay(true)?;
        Ok(stream)
    }

    /// Nanoseconds of each of `count` round trips of `size` bytes, without the time of the call in their middle.
    ///
    /// They use ten connections, one after the other. The scheduler decides whether the two ends share a core, which
    /// makes a factor of five. With one connection, one decision would count for all round trips.
    pub(crate) fn ping_pong(
        &self,
        order: Order,
        size: usize,
        count: usize,
    ) -> io::Result<Vec<u64>> {
        let connections = count.min(10);
        let mut samples = Vec::with_capacity(count);
        for _ in 0..connections {
            self.ping_pong_once(order, size, count / connections, &mut samples)?;
        }
        Ok(samples)
    }

    fn ping_pong_once(
        &self,
        order: Order,
        size: usize,
        count: usize,
        samples: &mut Vec<u64>,
    ) -> io::Result<()> {
        let mut stream = self.open()?;
        send(&mut stream, order, size as u64)?;
        let message = &mut vec![0u8; size];
        for repetition in 0..WARM + count {
            message.fill(0);
            let begin = Instant::now();
            stream.write_all(message)?;
            stream.read_exact(message)?;
            let all = begin.elapsed().as_nanos() as u64;
            let called = u32::from_le_bytes(std::array::from_fn(|i| message[i]));
            if repetition >= WARM {
                samples.push(all.saturating_sub(called.into()));
            }
        }
        Ok(())
    }

    /// Nanoseconds of each of `count` transfers of `size` bytes over `streams` warm connections.
    pub(crate) fn transfer(
        &self,
        size: u64,
        streams: u64,
        upload: bool,
        count: usize,
    ) -> io::Result<Vec<u64>> {
        let mut connections = (0..streams)
            .map(|_| self.open())
            .collect::<io::Result<Vec<_>>>()?;
        let mut memory = vec![1u8; size as usize];
        let mut samples = Vec::new();
        for round in 0..=count {
            let begin = Instant::now();
            once(&mut connections, &mut memory, upload)?;
            // The first transfer warms connections and pages.
            if round > 0 {
                samples.push(begin.elapsed().as_nanos() as u64);
            }
        }
        Ok(samples)
    }
}

fn once(connections: &mut [TcpStream], memory: &mut [u8], upload: bool) -> io::Result<()> {
    let share = memory.len().div_ceil(connections.len());
    std::thread::scope(|scope| {
        let parts: Vec<_> = connections
            .iter_mut()
            .zip(memory.chunks_mut(share))
            .map(|(stream, part)| scope.spawn(move || one_part(stream, part, upload)))
            .collect();
        parts.into_iter().try_for_each(|part| {
            part.join()
                .unwrap_or_else(|_| Err(io::ErrorKind::Other.into()))
        })
    })
}

fn one_part(stream: &mut TcpStream, part: &mut [u8], upload: bool) -> io::Result<()> {
    if upload {
        send(stream, Order::Sink, part.len() as u64)?;
        for chunk in part.chunks(CHUNK) {
            stream.write_all(chunk)?;
        }
        stream.read_exact(&mut [0])
    } else {
        send(stream, Order::Source, part.len() as u64)?;
        stream.read_exact(part)
    }
}

fn send(stream: &mut TcpStream, order: Order, bytes: u64) -> io::Result<()> {
    let mut message = [0; 9];
    message[0] = order as u8;
    message[1..].copy_from_slice(&bytes.to_le_bytes());
    stream.write_all(&message)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_go_and_come() {
        fn make(order: Order) -> Result<Option<Call>, Box<dyn Error>> {
            let call: Call = Box::new(|| Ok(()));
            Ok(matches!(order, Order::Launch).then_some(call))
        }

        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let socket = Socket::new(listener.local_addr().unwrap().to_string());
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                std::thread::spawn(move || serve(stream, make).is_ok());
            }
        });
        assert_eq!(socket.ping_pong(Order::Echo, 64, 3).unwrap().len(), 3);
        assert_eq!(socket.ping_pong(Order::Launch, 4, 2).unwrap().len(), 2);
        assert!(!socket.transfer(3 << 20, 2, true, 1).unwrap().is_empty());
        assert!(!socket.transfer(3 << 20, 2, false, 1).unwrap().is_empty());
    }
}
