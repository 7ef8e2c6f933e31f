//! Tests two nodes that work on one buffer. If they cannot reach each other, or not any more, its bytes go through
//! the client. Otherwise no byte does.

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::ptr::{null, null_mut};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use causeway::stub::server::peer;
use causeway::transport::relayed_bytes;
use causeway_proto::preamble::{PREAMBLE, Preamble, Purpose};
use parking_lot::Mutex;

use crate::frames::servers::*;

const WORDS: usize = 5 << 20;
const BYTES: usize = 4 * WORDS;
/// Bytes that the kernel changes, although it may touch the whole buffer.
const CHANGED: usize = 1000;

const SOURCE: &str = "kernel void fake_add_u32(global uint *target, uint value) {}";

/// A proxy in front of a daemon, at the address that the client and other nodes use. It forwards everything. While
/// closed, it forwards the client's connections only.
#[derive(Default)]
struct Wall {
    is_closed: AtomicBool,
    refused: AtomicUsize,
    peers: Mutex<Vec<TcpStream>>,
}

impl Wall {
    // Also returns the proxy's address.
    fn before(daemon: &Daemon) -> (Arc<Wall>, SocketAddr) {
        let (wall, daemon) = (Arc::new(Wall::default()), daemon.address);
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = listener.local_addr().expect("an address");
        let of = wall.clone();
        std::thread::spawn(move || {
            for inner in listener.incoming().map_while(Result::ok) {
                let wall = of.clone();
                std::thread::spawn(move || wall.pass(inner, daemon));
            }
        });
        (wall, address)
    }

    fn pass(&self, mut inner: TcpStream, daemon: SocketAddr) -> std::io::Result<()> {
        let mut first = [0; PREAMBLE];
        let mut begun = 1;
        inner.read_exact(&mut first[..1])?;
        // Other connections are gRPC.
        if first[0] == b'C' {
            begun = PREAMBLE;
            inner.read_exact(&mut first[1..])?;
        }
        let mut outer = TcpStream::connect(daemon)?;
        if Preamble::decode(&first).is_ok_and(|told| told.purpose == Purpose::Peer) {
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
        std::thread::spawn(move || copy(back.0, back.1));
        copy(inner, outer);
        Ok(())
    }

    // Breaks the connections between nodes.
    fn close(&self) {
        let mut peers = self.peers.lock();
        self.is_closed.store(true, Ordering::SeqCst);
        for peer in peers.drain(..) {
            let _ = peer.shutdown(Shutdown::Both);
        }
    }

    fn open(&self) {
        self.is_closed.store(false, Ordering::SeqCst);
    }

    fn has_refused(&self) -> bool {
        self.refused.load(Ordering::SeqCst) > 0
    }
}

fn copy(mut from: TcpStream, mut to: TcpStream) {
    let _ = std::io::copy(&mut from, &mut to);
    let _ = to.shutdown(Shutdown::Both);
    let _ = from.shutdown(Shutdown::Both);
}

/// A context over two devices of different nodes, with a kernel that changes a buffer.
struct Shared {
    context: cl_context,
    program: cl_program,
    kernel: cl_kernel,
    queues: [cl_command_queue; 2],
    buffer: cl_mem,
}

impl Shared {
    fn new(devices: [cl_device_id; 2]) -> Shared {
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

    fn write(&self, at: usize, words: &[u32]) {
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

    // Launches the kernel after `after`, which is usually an event of the other node.
    fn add(&self, at: usize, value: u32, after: Option<cl_event>) -> cl_event {
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

    fn read(&self, at: usize, after: cl_event) -> Vec<u32> {
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

    // Moves the buffer back and forth. Returns the bytes that went through the client.
    fn play(&self) -> u64 {
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

#[test]
fn the_client_carries_what_two_nodes_cannot_exchange_and_nothing_else() {
    own_process!();
    // Some devices map their memory for transfers, and others use a ring of pinned memory.
    let settings = |name: &str, unified: bool| {
        format!("[[device]]\nname = \"{name}\"\nunified_memory = {unified}")
    };
    let walled = [("A", true), ("B", false), ("C", false)];
    let walled = walled.map(|(name, unified)| Daemon::start_apart(&settings(name, unified)));
    let open = Daemon::start(&settings("D", true));
    let (walls, mut addresses): (Vec<_>, Vec<_>) = walled.iter().map(Wall::before).unzip();
    addresses.push(open.address);
    let addresses: Vec<String> = addresses.iter().map(SocketAddr::to_string).collect();
    configure(&addresses.join(","));
    let devices = eventually("four devices", || {
        let devices = devices();
        (devices.len() == 4).then_some(devices)
    });
    let [a, b, c, d] = devices[..] else {
        unreachable!("as many were asked for");
    };
    let all_ways = 3 * BYTES as u64;

    // A path that breaks, is tried again without success, and comes back.
    let pair = Shared::new([a, b]);
    assert_eq!(pair.play(), 0);
    for _ in 0..2 {
        let direct = peer::changes();
        walls.iter().for_each(|wall| wall.close());
        eventually("another route", || (peer::changes() > direct).then_some(()));
        assert!(walls.iter().any(|wall| wall.has_refused()));
        assert!(pair.play() >= all_ways);
        walls.iter().for_each(|wall| wall.open());
        eventually("the direct route", || (pair.play() == 0).then_some(()));
    }
    walls.iter().for_each(|wall| wall.close());

    // A path that never existed. Transfers wait while the nodes look for it.
    assert!(Shared::new([c, b]).play() >= all_ways);

    // A path that only the second node can dial.
    assert_eq!(Shared::new([d, a]).play(), 0);

    // A node is lost while its bytes are in flight to the other, or before. The other node goes on.
    let there = pair.add(1, 1, None);
    let here = pair.add(0, 1, Some(there));
    ok!(clFlush(pair.queues[0]));
    let [_a, b, _c] = walled;
    b.kill();
    let status = eventually("an end of the command", || {
        let status = status_of(here);
        (status <= CL_COMPLETE).then_some(status)
    });
    let codes = [
        CL_COMPLETE,
        CL_DEVICE_NOT_AVAILABLE,
        CL_EXEC_STATUS_ERROR_FOR_EVENTS_IN_WAIT_LIST,
    ];
    assert!(codes.contains(&status), "{status}");
    pair.write(0, &vec![1; WORDS]);
    let changed = pair.add(0, 1, None);
    let got = pair.read(0, changed);
    assert_eq!(got[..=CHANGED], [&[2; CHANGED][..], &[1]].concat());
    for event in [there, here, changed] {
        ok!(clReleaseEvent(event));
    }
}

fn status_of(event: cl_event) -> cl_int {
    let mut status = 77;
    let (name, to) = (CL_EVENT_COMMAND_EXECUTION_STATUS, (&raw mut status).cast());
    ok!(clGetEventInfo(event, name, 4, to, null_mut()));
    status
}
