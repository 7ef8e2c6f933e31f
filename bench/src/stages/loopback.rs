//! One daemon on loopback, over the node's driver or the fake one. The native driver, a bare socket and,
//! on request, a peer are measured beside it.
//!
//! There is one program with shared memory and one without, because a session keeps its way.
#![forbid(unsafe_code)]

use std::time::{Duration, Instant};

use super::side::{Node, Probed, values};
use super::{Cast, Error, Stage};
use crate::figures::{Side, quantile};
use crate::options::Options;
use crate::probe::repetitions;
use crate::process;
use crate::report::Line;
use crate::rows::{Base, Direction, Often, Row, Task, Way};
use crate::setup::{Build, Process};
use crate::socket::{Order, Socket};

/// Number of threads in the rows of many threads.
const MANY: u16 = 8;

/// Size of the build cache: enough for all builds of a run.
const CACHE_BYTES: u64 = 256 << 20;

/// Timeout for the build cache to store a build.
const STORED_WITHIN: Duration = Duration::from_secs(20);

/// The stage.
pub(super) struct Loopback {
    native: Probed,
    own: Probed,
    tcp: Probed,
    peer: Option<Probed>,
    socket: Socket,
    _socket_peer: Process,
    nonce: u64,
    carrier: String,
    /// A daemon with a build cache. The others have none, because it builds beside their work.
    cached: Option<Node>,
    /// The last field, so that the daemon ends after the programs.
    node: Node,
}

impl Loopback {
    /// Starts the daemon, the programs and the socket's peer.
    pub(super) fn start(options: &Options, fake: bool) -> Result<Loopback, Error> {
        let build = Build::find()?;
        let vendors = if fake {
            Some(build.vendors("fake", "libfake_opencl.so")?)
        } else {
            options.native_vendors.clone()
        };
        let node = Node::start(build, vendors, &options.carrier)?;
        let native = Probed::start(&mut node.native("probe")?)?;
        let own = Probed::start(&mut node.causeway("probe", Way::Own)?)?;
        let tcp = Probed::start(&mut node.causeway("probe", Way::Tcp)?)?;
        let peer = match &options.peer_platform {
            Some(name) if !fake => Some(peer(&node, options, name)?),
            _ => None,
        };
        let mut socket_peer = Process::start(&mut node.native("socket-peer")?)?;
        let socket = Socket::new(socket_peer.address()?);
        Ok(Loopback {
            node,
            native,
            own,
            tcp,
            peer,
            socket,
            _socket_peer: socket_peer,
            nonce: 0,
            carrier: options.carrier.clone(),
            cached: None,
        })
    }

    /// A number that no other request has, so that no cache serves one side what another has built.
    fn nonce(&mut self) -> u64 {
        self.nonce += 1;
        self.nonce
    }

    fn causeway(&mut self, way: Way) -> &mut Probed {
        match way {
            Way::Own => &mut self.own,
            Way::Tcp | Way::Lz4 => &mut self.tcp,
        }
    }

    /// Nanoseconds of the row's yardstick.
    fn bare(&mut self, row: &Row) -> Result<Vec<u64>, Error> {
        Ok(match row.base {
            Base::RoundTrip => match row.task {
                Task::LaunchFinish => self.socket.ping_pong(Order::Launch, 64, 500)?,
                Task::ReadSmall => self.socket.ping_pong(Order::Read, 4, 500)?,
                Task::Build => self.socket.ping_pong(Order::Build, 64, 20)?,
                _ => self.socket.ping_pong(Order::Echo, 64, 500)?,
            },
            Base::Streams => self.streams(row)?,
            Base::Singly => match row.task {
                Task::Replayed(count) => self.own.ask(Task::Pipelined(count), 0)?,
                _ => Vec::new(),
            },
            Base::OwnTransfer => self.causeway(row.way).ask(row.own_transfer(), 0)?,
            _ => Vec::new(),
        })
    }

    /// Nanoseconds of a plain ping-pong of as many bytes as the row's own round trip has, for rows that wait.
    fn plain(&self, row: &Row) -> Result<Vec<u64>, Error> {
        Ok(match row.task {
            Task::LaunchFinish => self.socket.ping_pong(Order::Echo, 64, 500)?,
            Task::ReadSmall => self.socket.ping_pong(Order::Echo, 4, 500)?,
            _ => Vec::new(),
        })
    }

    /// The best of 1, 2 and 4 bare streams.
    fn streams(&self, row: &Row) -> Result<Vec<u64>, Error> {
        let up = row.direction() == Direction::Up;
        let count = repetitions(row.bytes() as usize);
        let mut best = (f64::INFINITY, Vec::new());
        for streams in [1, 2, 4] {
            let round = self.socket.transfer(row.bytes(), streams, up, count)?;
            let median = quantile(
                &round.iter().map(|time| *time as f64).collect::<Vec<_>>(),
                0.5,
            );
            if median < best.0 {
                best = (median, round);
            }
        }
        Ok(best.1)
    }

    /// A probe's rate of many threads divided by that of one.
    fn scaling(probe: &mut Probed, count: u32) -> Result<Vec<f64>, Error> {
        let one = probe.ask(Task::Threads(1, count), 0)?;
        let many = probe.ask(Task::Threads(MANY, count), 0)?;
        let rate = |times: &[u64]| 1.0 / times.first().copied().unwrap_or(1).max(1) as f64;
        Ok(vec![rate(&many) / rate(&one)])
    }

    /// Processor time in nanoseconds of a turn, of a probe and of other processes together.
    fn processor(
        probe: &mut Probed,
        others: &[u32],
        often: Often,
        turns: u32,
    ) -> Result<Vec<f64>, Error> {
        let ids = [others, &[probe.id()]].concat();
        let used = || ids.iter().map(|id| process::cpu(*id)).sum::<f64>();
        let before = used();
        probe.ask(Task::WaitOften(often, turns), 0)?;
        Ok(vec![(used() - before) * 1e9 / f64::from(turns)])
    }

    /// Builds a source in one session, and measures the build in a new one.
    fn build_seen(&mut self, line: &mut Line) -> Result<(), Error> {
        let nonce = self.nonce();
        self.native.ask(Task::Build, nonce)?;
        let mut again = Probed::start(&mut self.node.native("probe")?)?;
        let times = again.ask(Task::BuildSeen, nonce)?;
        line.samples.push(Side::Native, values(&line.row, &times));

        let nonce = self.nonce();
        if self.cached.is_none() {
            let (build, vendors) = (Build::find()?, self.node.vendors.clone());
            let node = Node::with_cache(build, vendors, &self.carrier, CACHE_BYTES)?;
            self.cached = Some(node);
        }
        let Some(node) = &self.cached else {
            return Ok(());
        };
        // The cache will hold the probe's own source and this one.
        let known = node.cached_builds().max(1) + 1;
        let mut first = Probed::start(&mut node.causeway("probe", Way::Own)?)?;
        first.ask(Task::Build, nonce)?;
        // A session stores its build when it is quiet, and tells nobody.
        let end = Instant::now() + STORED_WITHIN;
        while node.cached_builds() < known && Instant::now() < end {
            std::thread::sleep(Duration::from_millis(20));
        }
        let mut again = Probed::start(&mut node.causeway("probe", Way::Own)?)?;
        let times = again.ask(Task::BuildSeen, nonce)?;
        line.samples.push(Side::Causeway, values(&line.row, &times));
        Ok(())
    }
}

fn peer(node: &Node, options: &Options, name: &str) -> Result<Probed, Error> {
    let vendors = options.peer_vendors.as_deref();
    let mut command = node.peer("probe", vendors, &options.peer_environment)?;
    Probed::start(command.args(["--platform", name]))
        .map_err(|error| Error::Call(format!("--peer-platform {name}: {error}")))
}

impl Stage for Loopback {
    fn round(&mut self, line: &mut Line) -> Result<(), Error> {
        let row = line.row.clone();
        match row.task {
            Task::BuildSeen => return self.build_seen(line),
            Task::Processor(often, turns) => {
                let native = Self::processor(&mut self.native, &[], often, turns)?;
                line.samples.push(Side::Native, native);
                let workers = process::children(self.node.daemon.id())?;
                let causeway = Self::processor(&mut self.own, &workers, often, turns)?;
                line.samples.push(Side::Causeway, causeway);
                return Ok(());
            }
            Task::Scaling(count) => {
                line.samples
                    .push(Side::Native, Self::scaling(&mut self.native, count)?);
                line.samples
                    .push(Side::Causeway, Self::scaling(&mut self.own, count)?);
                return Ok(());
            }
            _ => {}
        }
        let nonce = self.nonce();
        line.samples
            .push(Side::Native, self.native.round(&row, nonce)?);
        line.samples
            .push(Side::Bare, values(&row, &self.bare(&row)?));
        line.samples
            .push(Side::Plain, values(&row, &self.plain(&row)?));
        let nonce = self.nonce();
        line.samples
            .push(Side::Causeway, self.causeway(row.way).round(&row, nonce)?);
        let nonce = self.nonce();
        if let Some(peer) = &mut self.peer {
            line.samples.push(Side::Peer, peer.round(&row, nonce)?);
        }
        Ok(())
    }

    fn cast(&self) -> Cast {
        let greeting = &self.native.greeting;
        Cast {
            device: Some((greeting.device.clone(), greeting.accelerator)),
            peer: self.peer.as_ref().map(|peer| peer.greeting.device.clone()),
        }
    }
}
