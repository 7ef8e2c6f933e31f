//! Proxies in front of nodes that break the connections between them, and two nodes that work on one buffer; on top of
//! `servers`.

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::ptr::{null, null_mut};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};

use causeway::transport::relayed_bytes;
use causeway_proto::preamble::{PREAMBLE, Preamble, Purpose};
use parking_lot::Mutex;

use crate::frames::servers::*;

pub const WORDS: usize = 5 << 20;
pub const BYTES: usize = 4 * WORDS;
/// Bytes that the kernel changes, although it may touch the whole buffer.
pub const CHANGED: usize = 1000;

const SOURCE: &str = "kernel void fake_add_u32(global uint *target, uint value) {}";

/// A proxy in front of a daemon, at the address that the client and other nodes use. It forwards everything. While
/// closed, it forwards the client's connections only. It can break each connection between nodes after some bytes.
pub struct Wall {
    is_closed: AtomicBool,
    refused: AtomicUsize,
    /// Bytes of each direction of a connection between nodes.
    most: AtomicU64,
    breaks: AtomicUsize,
    peers: Mutex<Vec<TcpStream>>,
}

impl Wall {
    /// Also returns the proxy's address.
    pub fn before(daemon: &Daemon) -> (Arc<Wall>, SocketAddr) {
        let wall = Wall {
            is_closed: AtomicBool::new(false),
            refused: AtomicUsize::new(0),
            most: AtomicU64::new(u64::MAX),
            breaks: AtomicUsize::new(0),
            peers: Mutex::default(),
        };
        let (wall, daemon) = (Arc::new(wall), daemon.address);
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = listener.local_addr().expect("an address");
        let of = wall.clone();
        std::thread::spawn(move || {
            for inner in listener.incoming().map_while(Result::ok) {
                // Without the daemon, nothing listens at its address either.
                let Ok(outer) = TcpStream::connect(daemon) else {
                    return;
                };
                let wall = of.clone();
                std::thread::spawn(move || wall.pass(inner, outer));
            }
        });
        (wall, address)
    }

    fn pass(self: Arc<Self>, mut inner: TcpStream, mut outer: TcpStream) -> std::io::Result<()> {
        let mut first = [0; PREAMBLE];
        let mut begun = 1;
        inner.read_exact(&mut first[..1])?;
        // Other connections are gRPC.
        if first[0] == b'C' {
            begun = PREAMBLE;
            inner.read_exact(&mut first[1..])?;
        }
        let is_peer = Preamble::decode(&first).is_ok_and(|told| told.purpose == Purpose::Peer);
        if is_peer {
            let mut peers = self.peers.lock();
            if self.is_closed.load(Ordering::SeqCst) {
                self.refused.fetch_add(1, Ordering::SeqCst);
                return Ok(());
            }
            peers.extend([inner.try_clone()?, outer.try_clone()?]);
        }
        inner.set_nodelay(true)?;
        outer.set_nodelay(true)?;
        outer.write_all(&first[..begun])?;
        let back = (outer.try_clone()?, inner.try_clone()?);
        let most = if is_peer {
            self.most.load(Ordering::SeqCst)
        } else {
            u64::MAX
        };
        let of = Arc::clone(&self);
        std::thread::spawn(move || of.copy(back.0, back.1, most));
        self.copy(inner, outer, most);
        Ok(())
    }

    fn copy(&self, from: TcpStream, mut to: TcpStream, most: u64) {
        let copied = std::io::copy(&mut (&from).take(most), &mut to);
        if copied.is_ok_and(|bytes| bytes == most) {
            self.breaks.fetch_add(1, Ordering::SeqCst);
        }
        let _ = to.shutdown(Shutdown::Both);
        let _ = from.shutdown(Shutdown::Both);
    }

    /// Breaks each later connection between nodes after this number of bytes in one direction.
    pub fn break_after(&self, bytes: u64) {
        self.most.store(bytes, Ordering::SeqCst);
    }

    /// The number of connections that were broken so.
    pub fn breaks(&self) -> usize {
        self.breaks.load(Ordering::SeqCst)
    }

    /// Breaks the connections between nodes.
    pub fn close(&self) {
        let mut peers = self.peers.lock();
        self.is_closed.store(true, Ordering::SeqCst);
        for peer in peers.drain(..) {
            let _ = peer.shutdown(Shutdown::Both);
        }
    }

    pub fn open(&self) {
        self.is_closed.store(false, Ordering::SeqCst);
    }

    pub fn has_refused(&self) -> bool {
        self.refused.load(Ordering::SeqCst) > 0
    }
}

/// A context over two devices of different nodes, with a kernel that changes a buffer.
pub struct Shared {
    context: cl_context,
    program: cl_program,
    kernel: cl_kernel,
    pub queues: [cl_command_queue; 2],
    buffer: cl_mem,
}

impl Shared {
    pub fn new(devices: [cl_device_id; 2]) -> Shared {
        let context = make!(clCreateContext(
            null(),
            2,
            devices.as_ptr(),
            None,
            null_mut()
        ))
        .expect("a context");
        let mut text = SOURCE.as_ptr().cast();
        let length = SOURCE.len();
        let program = make!(clCreateProgramWithSource(
            context,
            1,
            &raw mut text,
            &raw const length
        ))
        .expect("a program");
        ok!(clBuildProgram(program, 0, null(), null(), None, null_mut()));
        let kernel = make!(clCreateKernel(program, c"fake_add_u32".as_ptr())).expect("a kernel");
        let queue = |device| make!(clCreateCommandQueue(context, device, 0)).expect("a queue");
        let buffer = make!(clCreateBuffer(
            context,
            CL_MEM_READ_WRITE,
            BYTES,
            null_mut()
        ));
        Shared {
            context,
            program,
            kernel,
            queues: [queue(devices[0]), queue(devices[1])],
            buffer: buffer.expect("a buffer"),
        }
    }

    pub fn write(&self, at: usize, words: &[u32]) {
        ok!(clEnqueueWriteBuffer(
            self.queues[at],
            self.buffer,
            CL_TRUE,
            0,
            BYTES,
            words.as_ptr().cast(),
            0,
            null(),
            null_mut()
        ));
    }

    pub fn user_event(&self) -> cl_event {
        make!(clCreateUserEvent(self.context)).expect("a user event")
    }

    /// Launches the kernel after `after`, which is usually an event of the other node.
    pub fn add(&self, at: usize, value: u32, after: Option<cl_event>) -> cl_event {
        let (buffer, value) = (&raw const self.buffer, &raw const value);
        ok!(clSetKernelArg(
            self.kernel,
            0,
            size_of::<cl_mem>(),
            buffer.cast()
        ));
        ok!(clSetKernelArg(self.kernel, 1, 4, value.cast()));
        let (global, mut event) = (CHANGED, null_mut());
        ok!(clEnqueueNDRangeKernel(
            self.queues[at],
            self.kernel,
            1,
            null(),
            &raw const global,
            null(),
            cl_uint::from(after.is_some()),
            after.as_ref().map_or(null(), std::ptr::from_ref),
            &raw mut event
        ));
        event
    }

    pub fn read(&self, at: usize, after: cl_event) -> Vec<u32> {
        let mut words = vec![0u32; WORDS];
        ok!(clEnqueueReadBuffer(
            self.queues[at],
            self.buffer,
            CL_TRUE,
            0,
            BYTES,
            words.as_mut_ptr().cast(),
            1,
            &raw const after,
            null_mut()
        ));
        words
    }

    /// Moves the buffer back and forth. Returns the bytes that went through the client.
    pub fn play(&self) -> u64 {
        let before = relayed_bytes();
        let words: Vec<u32> = (0..WORDS as u32).collect();
        self.write(0, &words);
        let mut last = self.add(1, 10, None);
        for (at, value) in [(0, 200), (1, 3000)] {
            let next = self.add(at, value, Some(last));
            ok!(clReleaseEvent(last));
            last = next;
        }
        let got = self.read(0, last);
        ok!(clReleaseEvent(last));
        let (changed, kept) = got.split_at(CHANGED);
        assert!(
            changed
                .iter()
                .zip(0u32..)
                .all(|(got, at)| *got == at + 3210)
        );
        assert!(*kept == words[CHANGED..]);
        relayed_bytes() - before
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        ok!(clReleaseMemObject(self.buffer));
        ok!(clReleaseKernel(self.kernel));
        ok!(clReleaseProgram(self.program));
        for queue in self.queues {
            ok!(clReleaseCommandQueue(queue));
        }
        ok!(clReleaseContext(self.context));
    }
}
