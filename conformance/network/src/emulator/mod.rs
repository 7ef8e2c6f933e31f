//! The link emulator: replaces `netem` where the kernel lacks it.
//!
//! The switch sends packets between shaped pairs of hosts into a TUN device. One thread reads them, holds each
//! one as long as its [`Way`](way::Way) says, and writes it back. The kernel then carries it to its host.
//!
//! Routing decides which pairs are shaped, in [`network`](crate::network); `firewall` makes cuts.
//! Invariant: a packet of an unknown pair passes at once, so a change of shape strands nothing.

mod segments;
mod tun;
mod way;

use std::cmp::{Ordering, Reverse};
use std::collections::{BinaryHeap, HashMap};
use std::fs::File;
use std::io::{self, Read, Write};
use std::net::Ipv4Addr;
use std::num::NonZeroU64;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};

use self::segments::Packet;
pub use self::way::Fate;
use self::way::Way;
use crate::error::{Error, Result};
use crate::namespace::Namespace;
use crate::shape::Shape;

/// The addresses of sender and receiver.
pub(crate) type Ends = (Ipv4Addr, Ipv4Addr);

/// Number of packets to read before due packets are written.
const BATCH: usize = 64;

/// A running emulator. Its drop ends the thread and removes the device.
pub(crate) struct Emulator {
    ways: Arc<Mutex<HashMap<Ends, Way>>>,
    wake: Arc<OwnedFd>,
    thread: Option<JoinHandle<()>>,
    seed: u64,
}

impl Emulator {
    /// Opens the device `name` in `namespace` and starts to forward.
    pub(crate) fn start(namespace: &Namespace, name: &str, seed: u64) -> Result<Self> {
        let device = namespace.enter(|| tun::open(name))??;
        let flags = EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK;
        let wake = Arc::new(eventfd(0, flags).map_err(Error::io("make an event descriptor"))?);
        let ways = Arc::new(Mutex::new(HashMap::new()));
        let mut forwarder = Forwarder {
            device,
            stop: Arc::clone(&wake),
            ways: Arc::clone(&ways),
            waiting: BinaryHeap::new(),
            number: 0,
        };
        let thread = thread::Builder::new()
            .name("network-emulate".into())
            .spawn(move || forwarder.run())
            .map_err(Error::io("start the link emulator"))?;
        Ok(Self {
            ways,
            wake,
            thread: Some(thread),
            seed,
        })
    }

    /// Shapes one direction from now on. Packets that are already waiting keep their times.
    pub(crate) fn shape(&self, ends: Ends, shape: Shape) {
        let mut ways = self.ways.lock();
        match ways.get_mut(&ends) {
            Some(way) => way.reshape(shape),
            None => {
                let own = u64::from(u32::from(ends.0)) << 32 | u64::from(u32::from(ends.1));
                ways.insert(ends, Way::new(shape, self.seed ^ own));
            }
        }
    }

    pub(crate) fn shape_of(&self, ends: Ends) -> Option<Shape> {
        self.ways.lock().get(&ends).map(Way::shape)
    }

    pub(crate) fn fate(&self, ends: Ends) -> Option<Fate> {
        self.ways.lock().get(&ends).map(Way::fate)
    }
}

impl Drop for Emulator {
    fn drop(&mut self) {
        // The counter of the event descriptor has room for one more. The thread ends when it reads it.
        let _ = rustix::io::write(&*self.wake, &1_u64.to_ne_bytes());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// The emulator's thread.
struct Forwarder {
    device: File,
    stop: Arc<OwnedFd>,
    ways: Arc<Mutex<HashMap<Ends, Way>>>,
    waiting: BinaryHeap<Reverse<Waiting>>,
    number: u64,
}

impl Forwarder {
    fn run(&mut self) {
        // Wake up with microsecond precision, and before the programs under test, because the emulator
        // stands for the wire. If either setting is refused, delays are less exact.
        let _ = rustix::thread::set_current_timer_slack(NonZeroU64::new(1));
        let _ = rustix::process::setpriority_process(Some(rustix::thread::gettid()), -15);
        let mut buffer = vec![0; tun::LARGEST];
        while self.sleep() {
            let more = self.take(&mut buffer);
            self.give();
            if more.is_err() {
                return;
            }
        }
    }

    /// Sleeps until a packet can be read or written. Returns false when the thread has to end.
    fn sleep(&self) -> bool {
        let limit = self.waiting.peek().map(|Reverse(first)| {
            let left = first.due.saturating_duration_since(Instant::now());
            timespec(left)
        });
        let mut watched = [
            PollFd::new(&self.device, PollFlags::IN),
            PollFd::new(&*self.stop, PollFlags::IN),
        ];
        match poll(&mut watched, limit.as_ref()) {
            Ok(_) | Err(rustix::io::Errno::INTR) => watched[1].revents().is_empty(),
            Err(_) => false,
        }
    }

    /// Reads the packets that have arrived, up to a batch. An error means that the device is gone.
    fn take(&mut self, buffer: &mut [u8]) -> io::Result<()> {
        let mut ways = self.ways.lock();
        for _ in 0..BATCH {
            let read = match self.device.read(buffer) {
                Ok(read) => read,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(()),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) => return Err(error),
            };
            let Some(packet) = Packet::new(&buffer[..read]) else {
                continue;
            };
            let now = Instant::now();
            let (waiting, number) = (&mut self.waiting, &mut self.number);
            let mut keep = |due, packet| {
                *number += 1;
                waiting.push(Reverse(Waiting {
                    due,
                    number: *number,
                    packet,
                }));
            };
            match ways.get_mut(&packet.ends()) {
                Some(way) => way.admit(now, packet, keep),
                None => keep(now, packet),
            }
        }
        Ok(())
    }

    /// Writes every packet that is due.
    fn give(&mut self) {
        let now = Instant::now();
        while self
            .waiting
            .peek()
            .is_some_and(|Reverse(first)| first.due <= now)
        {
            if let Some(Reverse(first)) = self.waiting.pop() {
                // A refused packet counts as lost, as if the receiver had no room for it.
                let _ = self.device.write(first.packet.bytes());
            }
        }
    }
}

/// A waiting packet. Ordered by time, then by arrival.
struct Waiting {
    due: Instant,
    number: u64,
    packet: Packet,
}

impl Ord for Waiting {
    fn cmp(&self, other: &Self) -> Ordering {
        (self.due, self.number).cmp(&(other.due, other.number))
    }
}

impl PartialOrd for Waiting {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Waiting {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for Waiting {}

fn timespec(time: Duration) -> Timespec {
    Timespec {
        tv_sec: i64::try_from(time.as_secs()).unwrap_or(i64::MAX),
        tv_nsec: time.subsec_nanos().into(),
    }
}
