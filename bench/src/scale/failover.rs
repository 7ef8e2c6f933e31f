//! `bench failover`: how long a change of the leader takes, of three managers over three members of etcd.
//!
//! 1. The nodes of [`cluster`](super::cluster) join. Clients ([`holders`](super::holders)) lease all their devices, and
//!    others wait.
//! 2. At each change, the leader is killed, or goes as `--how` says. In the same moment a client begins to release its
//!    lease, and another one to request a device without waiting. Both look for the next leader. Times run from that moment.
//! 3. The manager that went is started again, and all who wait are back, before the next change.
//!
//! With `--seconds`, nobody takes the lead away. Clients request, hold and release devices at a rate, and no change of the
//! leader may happen. The memory of the managers and etcd's database are measured.
//!
//! Invariant: a lease counts as ended if a client holds it and its node, the leader's list or the leader's answer says
//! otherwise.
#![forbid(unsafe_code)]

mod report;

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use causeway_network::{Host, Network};
use causeway_proto::manager::admin_client::AdminClient;
use causeway_proto::manager::{ListManagersRequest, ManagerList, ManagerRole, StepDownRequest};
use rustix::process::Signal;
use tokio::time::{Instant, sleep};

use super::clients::{Clients, Crowd, Rate};
use super::cluster::{Cluster, Size};
use super::holders::Holders;
use super::leader::{FAR, Seeker};
use super::{Error, PATIENCE, allow_files, said};
use crate::manager::{MEMBERS, Manager, on};
use crate::process;
use crate::random::Random;
use report::{Change, Memory, Report, load};

/// Number of requests and connections at a time, while all devices are leased.
const BATCH: u32 = 100;
/// Interval at which the managers are listed until all of them can lead.
const LOOK: Duration = Duration::from_millis(20);

/// How a leader goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum, serde::Serialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum How {
    /// The process is killed.
    Kill,
    /// The process is told to end.
    Sigterm,
    /// The leader is told to step down.
    StepDown,
    /// The process stops without closing its connections.
    Stop,
    /// The cable of its host is pulled out, with the member of etcd that leads; needs root.
    Unplug,
}

/// How to run it.
#[derive(Debug, Clone, clap::Args)]
pub(crate) struct Options {
    /// Also write the results to this file
    #[arg(long, value_name = "FILE", num_args = 0..=1, default_missing_value = "bench.json")]
    json: Option<PathBuf>,
    /// Changes of the leader
    #[arg(long, default_value_t = 10, value_parser = clap::value_parser!(u32).range(1..))]
    changes: u32,
    /// How the leader goes
    #[arg(long, value_enum, default_value = "kill")]
    how: How,
    /// Simulated nodes
    #[arg(long, default_value_t = 1000, value_parser = clap::value_parser!(u32).range(1..))]
    nodes: u32,
    /// Leases of one device each, with a client each that renews; a multiple of the number of nodes
    #[arg(long, default_value_t = 3000, value_parser = clap::value_parser!(u32).range(1..))]
    leases: u32,
    /// Clients that wait for a device
    #[arg(long, default_value_t = 500, value_parser = clap::value_parser!(u32).range(1..))]
    waiting: u32,
    /// Connections at a time of clients that hold leases
    #[arg(long, default_value_t = 4000, value_parser = clap::value_parser!(u32).range(1..))]
    connections: u32,
    /// Instead of changes: for so long, requests at a rate
    #[arg(long, value_name = "S")]
    seconds: Option<u32>,
    /// Requests a second, with --seconds
    #[arg(long, default_value_t = 1000, requires = "seconds", value_parser = clap::value_parser!(u32).range(1..=100_000))]
    rate: u32,
    /// How long a client keeps its device then, ms
    #[arg(long, default_value_t = 2000, requires = "seconds")]
    hold: u64,
    /// Folder for etcd's data; one in /dev/shm shows what the disk costs
    #[arg(long, value_name = "DIR")]
    folder: Option<PathBuf>,
}

impl Options {
    /// Devices of each node: all are leased, and as many again are free for twice the requests at the rate.
    fn devices(&self) -> Result<u32, Error> {
        if !self.leases.is_multiple_of(self.nodes) {
            let text = format!(
                "{} leases are no multiple of {} nodes",
                self.leases, self.nodes
            );
            return Err(text.into());
        }
        let at_a_time = u64::from(self.rate) * self.hold / 1000;
        let free = match self.seconds {
            Some(_) if at_a_time * 2 > self.connections.into() => {
                let text = format!("{} connections are needed for the rate", at_a_time * 2);
                return Err(text.into());
            }
            // A quarter of the devices is of the model that their requests do not match.
            Some(_) => u32::try_from((2 * at_a_time).div_ceil(3) * 4)?.div_ceil(self.nodes),
            None => 0,
        };
        Ok(self.leases / self.nodes + free)
    }

    fn size(&self) -> Result<Size, Error> {
        Ok(Size {
            nodes: self.nodes,
            devices: self.devices()?,
            // Daemons do not wait for each other.
            batch: self.nodes,
        })
    }

    fn requests(&self, seconds: u32) -> Rate {
        Rate {
            rate: self.rate,
            hold: Duration::from_millis(self.hold),
            count: self.rate as usize * seconds as usize,
        }
    }
}

/// Runs the experiment and reports. Returns whether all marks were met.
pub(crate) fn run(options: &Options) -> Result<bool, Box<dyn std::error::Error>> {
    run_here(options).map_err(|error| -> Box<dyn std::error::Error> { error })
}

fn run_here(options: &Options) -> Result<bool, Error> {
    allow_files(options.nodes + options.waiting + 2 * options.connections)?;
    let report = match options.how {
        How::Unplug => {
            let network = Network::builder().hosts(MEMBERS + 1).build()?;
            let [managers @ .., load] = network.hosts() else {
                return Err("the network has no hosts".into());
            };
            let managers: &[Host; MEMBERS] = managers.try_into()?;
            route_participants(load, managers)?;
            load.enter(|| measured(options, Some(managers)))??
        }
        _ => measured(options, None)?,
    };
    print!("{report}");
    if let Some(path) = &options.json {
        std::fs::write(path, serde_json::to_string_pretty(&report)?)?;
    }
    Ok(report.is_met())
}

/// Gives nodes and clients addresses of their own on the host that simulates them, as in a cluster: managers limit the
/// new connections of one address.
fn route_participants(load: &Host, managers: &[Host; MEMBERS]) -> Result<(), Error> {
    let (first, bits) = FAR;
    let (range, gateway) = (format!("{first}/{bits}"), load.address().to_string());
    let route = |host: &Host, more: &[&str]| {
        let mut command = host.command("ip");
        let status = command.args(["route", "add"]).args(more).status()?;
        match status.success() {
            true => Ok(()),
            false => Err(Error::from(format!("the route to {range} cannot be added"))),
        }
    };
    route(load, &["local", &range, "dev", "lo"])?;
    for manager in managers {
        route(manager, &[&range, "via", &gateway])?;
    }
    Ok(())
}

/// Measures. Nodes and clients take all cores, because in a cluster each of them has a host of its own.
fn measured(options: &Options, hosts: Option<&[Host; MEMBERS]>) -> Result<Report, Error> {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()?;
    runtime.block_on(measure(options, hosts))
}

async fn measure(options: &Options, hosts: Option<&[Host; MEMBERS]>) -> Result<Report, Error> {
    let mut run = Run::start(options, hosts).await?;
    match options.seconds {
        Some(seconds) => run.at_a_rate(options, seconds).await?,
        None => run.changes(options).await?,
    }
    run.seeker.find().await?;
    let changes = u64::try_from(run.report.changes.len())?;
    run.report.uncaused = run.seeker.term() - run.first_term - run.steps - changes;
    run.cluster.assert_no_fault()?;
    run.holders.assert_no_fault()?;
    eprint!("\r{:60}\r", "");
    Ok(run.report)
}

/// The processes, nodes and clients of a run.
struct Run<'a> {
    /// The managers' hosts, if each has one of its own.
    hosts: Option<&'a [Host; MEMBERS]>,
    managers: Vec<Manager>,
    addresses: Arc<[String]>,
    cluster: Cluster,
    holders: Holders,
    seeker: Seeker,
    first_term: u64,
    /// Changes of the leader that were wanted and not measured.
    steps: u64,
    waiting: usize,
    /// The leases that have ended though nobody has ended them.
    ended: BTreeSet<Vec<u8>>,
    report: Report,
}

impl<'a> Run<'a> {
    /// Starts the managers, lets the nodes join, and leases the devices.
    async fn start(
        options: &Options,
        hosts: Option<&'a [Host; MEMBERS]>,
    ) -> Result<Run<'a>, Error> {
        let managers = Manager::start_several(options.folder.as_deref(), hosts)?;
        let addresses = managers.iter().map(|of| of.address().to_owned());
        let addresses: Arc<[String]> = addresses.collect();
        let mut seeker = Seeker::new(&addresses);
        seeker.find().await?;
        let first_term = seeker.term();

        said("nodes join");
        let mut cluster = Cluster::start(options.size()?, &addresses);
        cluster.all_are_there().await?;
        said("clients lease devices");
        let mut holders = Holders::new(&addresses, options.connections);
        let begun = Instant::now();
        holders.fill(options.leases, BATCH).await?;
        let report = Report::new(options, begun.elapsed());
        if options.seconds.is_none() {
            said("clients wait");
            holders.wait(options.waiting);
            holders.all_wait_after(0, options.waiting as usize).await?;
        }
        let mut run = Run {
            hosts,
            managers,
            addresses,
            cluster,
            holders,
            seeker,
            first_term,
            steps: 0,
            waiting: options.waiting as usize,
            ended: BTreeSet::new(),
            report,
        };
        run.count_ended().await?;
        run.all_can_lead().await?;
        Ok(run)
    }

    async fn changes(&mut self, options: &Options) -> Result<(), Error> {
        let mut random = Random::new(20);
        for number in 1..=options.changes {
            // Keep-alives and heartbeats are in another phase at each change.
            sleep(Duration::from_secs(1).mul_f64(random.unit())).await;
            said(&format!("change {number} of {}", options.changes));
            if options.how == How::Unplug {
                self.lead_where_etcd_leads().await?;
            }
            let before = self.leader().await?;
            let change = self.change(options.how, before).await?;
            eprintln!("\r{number}: {change:60}");
            self.report.changes.push(change);
            self.count_ended().await?;
            self.come_back(options.how, before).await?;
            self.holders.wait(1);
            self.holders
                .all_wait_after(before.term, self.waiting)
                .await?;
            self.cluster.assert_no_fault()?;
            self.holders.assert_no_fault()?;
        }
        Ok(())
    }

    async fn leader(&mut self) -> Result<Leader, Error> {
        self.seeker.find().await?;
        let number = self.seeker.led().ok_or("no manager leads")?;
        let list = self.list().await?;
        Ok(Leader {
            number,
            term: self.seeker.term(),
            member: leading_member(&list),
        })
    }

    /// Takes the lead away, and measures.
    async fn change(&mut self, how: How, before: Leader) -> Result<Change, Error> {
        let channel = self.seeker.find().await?;
        let load_before = load()?;
        let used = process::cpu(std::process::id());
        let begun = Instant::now();
        self.take_away(how, before)?;
        if how == How::StepDown {
            let mut admin = AdminClient::new(channel);
            admin.step_down(StepDownRequest {}).await?;
        }
        self.holders.release_one()?;
        let asked = self.holders.ask_at_once();
        let request = async {
            let answer = asked.await?;
            Ok::<_, Error>((begun.elapsed(), answer))
        };
        let (cluster, term) = (&self.cluster, before.term);
        let node = async { cluster.one_is_after(term).await.map(|()| begun.elapsed()) };
        let nodes = async { cluster.all_are_after(term).await.map(|()| begun.elapsed()) };
        let granted = self.holders.until_granted();
        let (granted, node, nodes, (request, answer)) =
            tokio::try_join!(granted, node, nodes, request)?;
        let used = process::cpu(std::process::id()) - used;
        Ok(Change {
            granted: granted.duration_since(begun).as_secs_f64(),
            node: node.as_secs_f64(),
            nodes: nodes.as_secs_f64(),
            request: request.as_secs_f64(),
            answer,
            cpu: used / begun.elapsed().as_secs_f64(),
            load: load_before.max(load()?),
        })
    }

    fn take_away(&mut self, how: How, of: Leader) -> Result<(), Error> {
        let manager = &mut self.managers[of.number];
        match how {
            How::Kill => manager.kill(),
            How::Sigterm => manager.signal(Signal::TERM)?,
            How::StepDown => {}
            How::Stop => manager.signal(Signal::STOP)?,
            How::Unplug => self.host(of)?.unplug()?,
        }
        Ok(())
    }

    fn host(&self, of: Leader) -> Result<&'a Host, Error> {
        let hosts = self
            .hosts
            .ok_or("the managers have no hosts of their own")?;
        Ok(&hosts[of.number])
    }

    /// Lets managers step down until the one leads whose host has the leading member of etcd.
    async fn lead_where_etcd_leads(&mut self) -> Result<(), Error> {
        let begun = Instant::now();
        while begun.elapsed() < PATIENCE {
            let before = self.leader().await?;
            if before.member == Some(before.number) {
                return Ok(());
            }
            let mut admin = AdminClient::new(self.seeker.find().await?);
            admin.step_down(StepDownRequest {}).await?;
            self.steps += 1;
            self.cluster.all_are_after(before.term).await?;
            self.holders
                .all_wait_after(before.term, self.waiting)
                .await?;
            self.all_can_lead().await?;
        }
        Err("no manager leads on the host of etcd's leader".into())
    }

    /// The manager that went can lead again.
    async fn come_back(&mut self, how: How, of: Leader) -> Result<(), Error> {
        let host = self.hosts.map(|hosts| &hosts[of.number]);
        let manager = &mut self.managers[of.number];
        match how {
            How::Kill => on(host, || manager.begin())?,
            How::Sigterm => {
                manager.wait()?;
                on(host, || manager.begin())?;
            }
            How::StepDown => {}
            How::Stop => manager.signal(Signal::CONT)?,
            How::Unplug => self.host(of)?.plug()?,
        }
        self.all_can_lead().await
    }

    /// Waits until one manager leads, all others stand by and can lead, and etcd has all its members.
    async fn all_can_lead(&mut self) -> Result<(), Error> {
        let begun = Instant::now();
        loop {
            // A manager that went may still be listed, or be asked.
            match self.list().await {
                Ok(list) if is_whole(&list, &self.addresses) => return Ok(()),
                Ok(list) if begun.elapsed() > PATIENCE => {
                    return Err(format!("not all managers can lead: {list:?}").into());
                }
                Err(error) if begun.elapsed() > PATIENCE => return Err(error),
                Ok(_) | Err(_) => sleep(LOOK).await,
            }
        }
    }

    async fn list(&mut self) -> Result<ManagerList, Error> {
        let mut admin = AdminClient::new(self.seeker.find().await?);
        let list = admin.list_managers(ListManagersRequest {});
        Ok(tokio::time::timeout(PATIENCE, list).await??.into_inner())
    }

    /// Counts leases that have ended though nobody has ended them.
    async fn count_ended(&mut self) -> Result<(), Error> {
        let (held, served) = (self.holders.held(), self.cluster.served());
        let listed = self.holders.listed().await?;
        let lasts = |lease: &&Vec<u8>| served.contains(*lease) && listed.contains(*lease);
        self.ended
            .extend(held.iter().filter(|of| !lasts(of)).cloned());
        let told = self.holders.told_over();
        self.report.ended = self.ended.len().max(told.len());
        self.report.reasons = told;
        Ok(())
    }

    /// Requests at a rate, while nobody takes the lead away.
    async fn at_a_rate(&mut self, options: &Options, seconds: u32) -> Result<(), Error> {
        let leader = self.leader().await?;
        // More clients than connections, so that each comes and goes.
        let crowd = Crowd {
            clients: options.connections.saturating_add(1),
            connections: options.connections,
            batch: BATCH,
        };
        let mut clients = Clients::connect(crowd, &self.addresses[leader.number]).await?;
        said("requests at a rate");
        let timed = clients.at_a_rate(options.requests(seconds)).await?;
        let memory = self.memory(leader).await?;
        self.report
            .at_a_rate((options.rate, seconds), &timed, memory)?;
        self.count_ended().await
    }

    async fn memory(&mut self, leader: Leader) -> Result<Memory, Error> {
        let list = self.list().await?;
        let peak = |number: usize| process::peak(self.managers[number].id());
        let standbys = (0..self.managers.len()).filter(|number| *number != leader.number);
        let databases = list.members.iter().map(|of| of.database_bytes);
        Ok(Memory {
            leader: peak(leader.number),
            standby: standbys.map(peak).max().unwrap_or(0),
            database: databases.max().unwrap_or(0),
        })
    }
}

/// The manager that leads before a change.
#[derive(Clone, Copy, Debug)]
struct Leader {
    number: usize,
    term: u64,
    /// The number of etcd's member that leads.
    member: Option<usize>,
}

/// The number of etcd's member that leads.
fn leading_member(list: &ManagerList) -> Option<usize> {
    let leader = list.members.iter().find(|member| member.leader)?;
    leader.name.strip_prefix('m')?.parse().ok()
}

/// Whether all managers are listed, each once, and none has a problem, and neither has a member of etcd.
fn is_whole(list: &ManagerList, addresses: &[String]) -> bool {
    let is_fit = |address: &String| {
        let mut of = list.managers.iter().filter(|of| of.address == *address);
        let is_fit = of
            .next()
            .is_some_and(|of| of.problem.is_empty() && of.role() != ManagerRole::Unspecified);
        is_fit && of.next().is_none()
    };
    let members_are_well = list.members.iter().all(|member| member.problem.is_empty());
    addresses.iter().all(is_fit) && members_are_well
}
