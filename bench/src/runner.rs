//! One run: starts everything, asks each side for a round in turn, hands the samples on.

use std::io;
use std::path::Path;

use crate::Options;
use crate::plot;
use crate::probe::Request;
use crate::report::{Line, Report};
use crate::rows::{Group, Row};
use crate::setup::{Build, Process};
use crate::socket::Socket;

type Error = Box<dyn std::error::Error>;

/// Native and Causeway on one node driver, with the bare socket beside them.
struct Bench {
    build: Build,
    native: Process,
    causeway: Process,
    socket: Socket,
    enumerate: [(Option<std::path::PathBuf>, Option<std::path::PathBuf>); 2],
    device: String,
    _socket_peer: Process,
    _daemon: Process,
    nonce: u64,
}

impl Bench {
    fn start(options: &Options, fake: bool) -> Result<Bench, Error> {
        let build = Build::find()?;
        let node = if fake {
            Some(build.vendors("fake", "libfake_opencl.so")?)
        } else {
            options.native_vendors.clone()
        };
        let ours = build.vendors("causeway", "libcauseway.so")?;
        let (daemon, address) = build.daemon(node.as_deref())?;
        let config = build.config("bench", &address, &options.carrier)?;
        let mut native = Process::start(&mut build.own("probe", node.as_deref(), None)?)?;
        let mut causeway = Process::start(&mut build.own("probe", Some(&ours), Some(&config))?)?;
        let device = serde_json::from_str(&native.line()?)?;
        causeway.line()?;
        let mut socket_peer = Process::start(&mut build.own("socket-peer", None, None)?)?;
        let socket = Socket::new(socket_peer.address()?);
        Ok(Bench {
            enumerate: [(node, None), (Some(ours), Some(config))],
            build,
            native,
            causeway,
            socket,
            device,
            _socket_peer: socket_peer,
            _daemon: daemon,
            nonce: 0,
        })
    }

    fn round(&mut self, row: Row, line: &mut Line) -> Result<(), Error> {
        if row == Row::FirstDevices {
            line.native.push(self.first_devices(0)?);
            line.causeway.push(self.first_devices(1)?);
        } else {
            self.nonce += 1;
            let request = Request {
                row,
                nonce: self.nonce,
            };
            line.native.push(samples(&mut self.native, &request)?);
            // Another source than the native side's, lest a shared cache serves the second.
            self.nonce += 1;
            line.causeway.push(samples(
                &mut self.causeway,
                &Request {
                    row,
                    nonce: self.nonce,
                },
            )?);
        }
        if let Some(round) = self.bare(row)? {
            line.socket.push(round);
        }
        Ok(())
    }

    fn first_devices(&self, side: usize) -> Result<Vec<u64>, Error> {
        let (vendors, config) = &self.enumerate[side];
        let mut command = self
            .build
            .own("first-devices", vendors.as_deref(), config.as_deref())?;
        Ok(vec![Process::start(&mut command)?.line()?.parse()?])
    }

    // What the same bytes cost without OpenCL: a ping-pong, or the best of 1, 2 and 4 streams.
    fn bare(&self, row: Row) -> io::Result<Option<Vec<u64>>> {
        match row {
            Row::LaunchFinish => self.socket.ping_pong(64, 500).map(Some),
            Row::ReadSmall => self.socket.ping_pong(4, 500).map(Some),
            _ if row.bytes() > 0 => {
                let rounds =
                    [1, 2, 4].map(|n| self.socket.transfer(row.bytes(), n, row.is_upload()));
                let mut best: Option<Vec<u64>> = None;
                for round in rounds {
                    let round = round?;
                    if best
                        .as_ref()
                        .is_none_or(|best| median(&round) < median(best))
                    {
                        best = Some(round);
                    }
                }
                Ok(best)
            }
            _ => Ok(None),
        }
    }
}

fn samples(probe: &mut Process, request: &Request) -> Result<Vec<u64>, Error> {
    let samples = probe.ask(request)?;
    match samples.error {
        Some(error) => Err(format!("{}: {error}", request.row.name()).into()),
        None => Ok(samples.nanoseconds),
    }
}

/// The middle of some samples; 0 of none.
pub(crate) fn median(samples: &[u64]) -> u64 {
    quantile(samples, 0.5)
}

/// The sample below which `share` of all lie; 0 of none.
pub(crate) fn quantile(samples: &[u64], share: f64) -> u64 {
    let mut sorted = samples.to_vec();
    sorted.sort_unstable();
    let last = sorted.len().saturating_sub(1);
    sorted
        .get((last as f64 * share).round() as usize)
        .copied()
        .unwrap_or(0)
}

/// Measures the groups and reports.
pub(crate) fn run(options: &Options, groups: &[Group]) -> Result<(), Error> {
    let mut report = Report::new(options);
    for &group in groups {
        let mut bench = Bench::start(options, group == Group::Commands)?;
        report.device(&bench.device);
        let rows = Row::of(group, options.largest << 20);
        let mut lines: Vec<Line> = rows.iter().map(|&row| Line::new(row)).collect();
        for round in 0..options.rounds {
            for line in &mut lines {
                eprint!(
                    "\rround {} of {}: {:<40}",
                    round + 1,
                    options.rounds,
                    line.row.name()
                );
                bench.round(line.row, line)?;
            }
        }
        eprint!("\r{:60}\r", "");
        report.add(lines);
    }
    print!("{report}");
    if let Some(path) = &options.json {
        std::fs::write(path, report.to_json()?)?;
    }
    draw(&report, &options.plots)
}

fn draw(report: &Report, folder: &Path) -> Result<(), Error> {
    std::fs::create_dir_all(folder)?;
    for file in plot::draw(report, folder)? {
        println!("plot: {}", file.display());
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_of_few_and_of_none() {
        assert_eq!(median(&[3, 1, 2]), 2);
        assert_eq!(quantile(&[1, 2, 3, 4, 5], 0.99), 5);
        assert_eq!(median(&[]), 0);
    }
}
