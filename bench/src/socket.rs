//! The floor: the same bytes over bare TCP, between two processes, without anything of ours.
//!
//! The peer is a process of its own that serves connections: each opens with one [`Order`]. Invariant:
//! both ends set TCP_NODELAY and leave socket buffers to the kernel.

use std::io::{self, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::time::Instant;

const CHUNK: usize = 1 << 20;

/// What a connection does: kind, then bytes a message or in all.
#[derive(Clone, Copy)]
enum Order {
    /// Echo messages of so many bytes.
    Echo,
    /// Take so many bytes, then answer one.
    Sink,
    /// Send so many bytes.
    Source,
}

/// Serves until killed; says where.
pub(crate) fn peer() -> Result<(), Box<dyn std::error::Error>> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    println!("listening on {}", listener.local_addr()?);
    for stream in listener.incoming() {
        let stream = stream?;
        std::thread::spawn(move || serve(stream));
    }
    Ok(())
}

// A connection that breaks ends its thread; the runner sees it.
fn serve(mut stream: TcpStream) -> io::Result<()> {
    stream.set_nodelay(true)?;
    let mut order = [0; 9];
    let mut chunk = vec![0u8; CHUNK];
    loop {
        stream.read_exact(&mut order)?;
        let mut left = u64::from_le_bytes(std::array::from_fn(|i| order[1 + i])) as usize;
        match order[0] {
            0 => loop {
                stream.read_exact(&mut chunk[..left])?;
                stream.write_all(&chunk[..left])?;
            },
            1 => {
                while left > 0 {
                    let now = left.min(CHUNK);
                    stream.read_exact(&mut chunk[..now])?;
                    left -= now;
                }
                stream.write_all(&[1])?;
            }
            _ => {
                while left > 0 {
                    let now = left.min(CHUNK);
                    stream.write_all(&chunk[..now])?;
                    left -= now;
                }
            }
        }
    }
}

/// The measuring end.
pub(crate) struct Socket {
    address: String,
}

impl Socket {
    /// Against the peer at `address`.
    pub(crate) fn new(address: String) -> Socket {
        Socket { address }
    }

    fn open(&self) -> io::Result<TcpStream> {
        let stream = TcpStream::connect(&self.address)?;
        stream.set_nodelay(true)?;
        Ok(stream)
    }

    /// Nanoseconds of each of `count` round trips of `size` bytes.
    pub(crate) fn ping_pong(&self, size: usize, count: usize) -> io::Result<Vec<u64>> {
        let mut stream = self.open()?;
        send(&mut stream, Order::Echo, size as u64)?;
        let mut message = vec![0u8; size];
        let mut samples = Vec::with_capacity(count);
        for _ in 0..count {
            let begin = Instant::now();
            stream.write_all(&message)?;
            stream.read_exact(&mut message)?;
            samples.push(begin.elapsed().as_nanos() as u64);
        }
        Ok(samples)
    }

    /// Nanoseconds of each of some transfers of `size` bytes over `streams` connections, warm ones.
    pub(crate) fn transfer(&self, size: u64, streams: u64, upload: bool) -> io::Result<Vec<u64>> {
        let mut connections = (0..streams)
            .map(|_| self.open())
            .collect::<io::Result<Vec<_>>>()?;
        let mut memory = vec![1u8; size as usize];
        let repetitions = (256 << 20) / size.clamp(4 << 20, 256 << 20);
        let mut samples = Vec::new();
        for round in 0..=repetitions {
            let begin = Instant::now();
            once(&mut connections, &mut memory, upload)?;
            // The first warms connections and pages up.
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
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let socket = Socket::new(listener.local_addr().unwrap().to_string());
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                std::thread::spawn(move || serve(stream));
            }
        });
        assert_eq!(socket.ping_pong(64, 3).unwrap().len(), 3);
        assert!(!socket.transfer(3 << 20, 2, true).unwrap().is_empty());
        assert!(!socket.transfer(3 << 20, 2, false).unwrap().is_empty());
    }
}
