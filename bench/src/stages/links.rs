//! Hosts with links of given rates and delays between them, a daemon on the second, iperf3 on the same link.
//!
//! iperf3 tries 1, 2 and 4 streams in the first round and keeps to the best. A transfer follows one that does not
//! count, as iperf3 leaves its first second out: what is compared is the steady state. Both use the congestion
//! control of the system.
#![forbid(unsafe_code)]

use std::collections::HashMap;
use std::path::PathBuf;
use std::time::Duration;

use causeway_network::{Builder, Network, Rate, Shape};

use super::side::{Probed, set_way, values};
use super::{Error, Stage};
use crate::cables::{Cables, PROGRAM};
use crate::figures::Side;
use crate::iperf;
use crate::options::Options;
use crate::report::Line;
use crate::rows::{Base, Direction, Link, Row, Task, Way};
use crate::setup::Process;
use crate::socket::{Order, Socket};

/// The node's host.
const NODE: usize = 1;

/// The stage.
pub(super) struct Links {
    vendors: Option<PathBuf>,
    /// Seconds that iperf3 sends.
    seconds: u64,
    /// Those that have been used.
    links: HashMap<Link, Laid>,
}

/// A link with what runs at its ends.
struct Laid {
    /// By the way of their bytes, and whether they outlive their session's process.
    probes: HashMap<(Way, bool), Probed>,
    socket: Option<(Process, Socket)>,
    /// How many streams are best for iperf3.
    streams: HashMap<Direction, u32>,
    /// Last, so that the daemon ends after the program.
    cables: Cables,
}

fn builder(link: Link) -> Builder {
    let network = Network::builder().hosts(2);
    let switch = |delay| {
        Network::builder().hosts(2).every_link(Shape {
            rate: Some(Rate::gbit(1)),
            ..Shape::delayed(delay)
        })
    };
    match link {
        Link::Plain => network,
        Link::Cable1 => network.rate(Rate::gbit(1)),
        // A busy machine gives the bucket's owner no turn for longer than the default lasts.
        Link::Cable10 => network.rate(Rate::gbit(10)).burst(Duration::from_millis(2)),
        // The emulator's two wakes are the other half of 0.2 ms.
        Link::Near1 => switch(Duration::from_micros(50)),
        Link::Far1 => switch(Duration::from_millis(10)),
    }
}

impl Links {
    /// Sees whether there can be networks.
    pub(super) fn start(options: &Options) -> Result<Links, Error> {
        Network::possible()?;
        Ok(Links {
            vendors: options.native_vendors.clone(),
            seconds: if options.quick { 1 } else { 2 },
            links: HashMap::new(),
        })
    }

    fn laid(&mut self, link: Link) -> Result<&mut Laid, Error> {
        if !self.links.contains_key(&link) {
            let cables = Cables::start(builder(link).build()?, self.vendors.as_deref())?;
            let laid = Laid {
                cables,
                probes: HashMap::new(),
                socket: None,
                streams: HashMap::new(),
            };
            self.links.insert(link, laid);
        }
        let laid = self.links.get_mut(&link);
        laid.ok_or_else(|| Error::Call("a link is gone".to_owned()))
    }
}

impl Laid {
    fn probe(&mut self, way: Way) -> Result<&mut Probed, Error> {
        self.probe_that(false, way)
    }

    fn probe_that(&mut self, survives: bool, way: Way) -> Result<&mut Probed, Error> {
        // The hosts share this machine's files.
        let way = if way == Way::Own { Way::Tcp } else { way };
        if !self.probes.contains_key(&(way, survives)) {
            let mut command = self.cables.program("probe", 1)?;
            set_way(&mut command, way);
            command.env("CAUSEWAY_REEXECUTE", if survives { "1" } else { "0" });
            let probe = Probed::start(&mut command)?;
            self.probes.insert((way, survives), probe);
        }
        let probe = self.probes.get_mut(&(way, survives));
        probe.ok_or_else(|| Error::Call("a probe is gone".to_owned()))
    }

    /// A round of a program that does not outlive its session's process. The first transfer does not count.
    fn unprotected(&mut self, row: &Row) -> Result<Vec<f64>, Error> {
        let probe = self.probe(row.way)?;
        probe.ask(row.task, 0)?;
        probe.round(row, 0)
    }

    /// A round of a program that does. Its session's process is killed afterwards, and with it that of the other program,
    /// which begins anew in the next round.
    fn surviving(&mut self, row: &Row) -> Result<Vec<f64>, Error> {
        let daemon = self.cables.daemon();
        let probe = self.probe_that(true, row.way)?;
        probe.ask(row.task, 0)?;
        let measured = probe.round(row, 0)?;
        probe.survive(daemon)?;
        self.probes.retain(|(_, survives), _| *survives);
        Ok(measured)
    }

    /// Bytes a second.
    fn iperf(&mut self, direction: Direction, seconds: u64) -> Result<f64, Error> {
        iperf::find().map_err(Error::Unavailable)?;
        let (from, to) = match direction {
            Direction::Up => (PROGRAM, NODE),
            Direction::Down => (NODE, PROGRAM),
        };
        let network = &self.cables.network;
        if let Some(streams) = self.streams.get(&direction) {
            return Ok(iperf::measure(network, from, to, *streams, seconds)?);
        }
        let mut best = (0.0, 1);
        for streams in [1, 2, 4] {
            let speed = iperf::measure(network, from, to, streams, seconds)?;
            if speed > best.0 {
                best = (speed, streams);
            }
        }
        self.streams.insert(direction, best.1);
        Ok(best.0)
    }

    /// Nanoseconds of round trips over the link.
    fn round_trips(&mut self) -> Result<Vec<u64>, Error> {
        let network = &self.cables.network;
        if self.socket.is_none() {
            let host = network.host(NODE);
            let mut command = host.command(self.cables.build.own_path()?);
            command.args(["socket-peer", "--listen", &format!("{}:0", host.address())]);
            let mut peer = Process::start(&mut command)?;
            let socket = Socket::new(peer.address()?);
            self.socket = Some((peer, socket));
        }
        let Some((_, socket)) = &self.socket else {
            return Ok(Vec::new());
        };
        let program = network.host(PROGRAM);
        Ok(program.enter(|| socket.ping_pong(Order::Echo, 64, 10))??)
    }

    /// Bytes that cross for an unmap.
    fn unmap_bytes(&mut self, row: &Row) -> Result<f64, Error> {
        let probe = self.probe(row.way)?;
        probe.begin(row.task, 0)?;
        probe.line()?;
        let before = self.cables.network.traffic()?;
        let probe = self.probe(row.way)?;
        probe.go_on()?;
        probe.end()?;
        let crossed = self.cables.network.traffic()?.since(&before);
        Ok(crossed.between(PROGRAM, NODE) as f64)
    }
}

impl Stage for Links {
    fn round(&mut self, line: &mut Line) -> Result<(), Error> {
        let row = line.row.clone();
        let seconds = self.seconds;
        let laid = self.laid(row.link)?;
        let bare = match row.base {
            Base::Iperf => vec![laid.iperf(row.direction(), seconds)?],
            Base::OwnTransfer => {
                let transfer = row.own_transfer();
                values(&row, &laid.probe(row.way)?.ask(transfer, 0)?)
            }
            Base::Idle => values(
                &row,
                &laid
                    .probe(row.way)?
                    .ask(Task::Busy(0, row.direction()), 0)?,
            ),
            Base::LinkRoundTrip => values(&row, &laid.round_trips()?),
            Base::Unprotected => laid.unprotected(&row)?,
            _ => Vec::new(),
        };
        line.samples.push(Side::Bare, bare);
        let ours = match row.task {
            Task::UnmapBytes(_) => vec![laid.unmap_bytes(&row)?],
            Task::FirstDevices => {
                let mut program = Process::start(&mut laid.cables.program("first-devices", 1)?)?;
                let told = program.line()?;
                let time = told.parse().map_err(|_| Error::Call(told))?;
                vec![time]
            }
            _ if row.base == Base::Unprotected => laid.surviving(&row)?,
            _ => laid.probe(row.way)?.round(&row, 0)?,
        };
        line.samples.push(Side::Causeway, ours);
        Ok(())
    }
}
