//! Carries out a plan of faults on the processes and hosts of a proof.
//!
//! Invariant: after the plan, every process runs and every host reaches every other one. A process that ends by
//! itself is started again after a second, as the system's service manager does.

use std::fs::{self, File};
use std::io::Write;
use std::path::PathBuf;
use std::thread;
use std::time::{Duration, Instant};

use causeway_network::Network;

use super::cluster::{CLIENTS, Cluster, MANAGERS, MEMBERS, NODES, Servers};
use super::faults::{Fault, Manager, Others, Planned, SMALL, Target, Ways};
use super::server::Server;
use crate::SetupError;

/// Interval at which ended processes are looked for. They are started again at the next look.
const LOOK: Duration = Duration::from_secs(1);
/// libfaketime, below this folder's subfolders (Debian: faketime).
const LIBRARIES: &str = "/usr/lib";
const FAKETIME: &str = "faketime/libfaketimeMT.so.1";

/// Carries out a plan. See the module.
pub(super) struct Harm<'a> {
    cluster: &'a Cluster,
    servers: &'a mut Servers,
    /// The manager that led when an observer last looked.
    leader: &'a (dyn Fn() -> Option<usize> + Sync),
    faketime: Option<PathBuf>,
    /// Processes that have crashed, for people.
    pub(super) crashes: Vec<String>,
}

/// The beginning or the end of a fault.
struct Step {
    at: Duration,
    number: usize,
    begins: bool,
}

impl<'a> Harm<'a> {
    pub(super) fn new(
        cluster: &'a Cluster,
        servers: &'a mut Servers,
        leader: &'a (dyn Fn() -> Option<usize> + Sync),
    ) -> Harm<'a> {
        let faketime = faketime();
        if faketime.is_none() {
            println!("skipped: wall clocks that are off (Debian: faketime)");
        }
        Harm {
            cluster,
            servers,
            leader,
            faketime,
            crashes: Vec::new(),
        }
    }

    /// Carries the plan out, and mends everything.
    pub(super) fn carry_out(&mut self, plan: &[Planned]) -> Result<(), SetupError> {
        let began = Instant::now();
        // The leader at a fault's beginning is also meant at its end.
        let mut faults: Vec<Fault> = plan.iter().map(|of| of.fault).collect();
        for step in steps(plan) {
            self.wait(began + step.at)?;
            let fault = &mut faults[step.number];
            if step.begins {
                *fault = self.with_number(*fault);
                let lasts = plan[step.number].end - plan[step.number].begin;
                println!("{:7.1?} {fault:?} for {lasts:.1?}", began.elapsed());
                self.begin(*fault)?;
            } else {
                let fault = *fault;
                self.end(fault)?;
            }
        }
        self.revive()
    }

    /// Waits, and starts processes again that have ended by themselves.
    fn wait(&mut self, until: Instant) -> Result<(), SetupError> {
        loop {
            let rest = until.saturating_duration_since(Instant::now());
            thread::sleep(rest.min(LOOK));
            if rest <= LOOK {
                return Ok(());
            }
            self.revive()?;
        }
    }

    fn revive(&mut self) -> Result<(), SetupError> {
        let Servers {
            managers,
            members,
            daemons,
            ..
        } = &mut *self.servers;
        for (server, is_ours) in managers
            .iter_mut()
            .chain(daemons)
            .map(|of| (of, true))
            .chain(members.iter_mut().map(|of| (of, false)))
        {
            let Some(ended) = server.ended() else {
                continue;
            };
            println!("        {}", ended.what);
            // etcd ends by itself when its disk is full.
            if is_ours && ended.has_crashed {
                self.crashes
                    .push(format!("{}\n{}", ended.what, server.log()));
            }
            server.start(&self.cluster.network)?;
        }
        Ok(())
    }

    /// The fault with the leader's number, if it concerns the leader.
    fn with_number(&self, fault: Fault) -> Fault {
        let number = |manager| match manager {
            Manager::Leader => Manager::Number((self.leader)().unwrap_or_default()),
            number => number,
        };
        let target = |target| match target {
            Target::Manager(manager) => Target::Manager(number(manager)),
            member => member,
        };
        match fault {
            Fault::Kill(of) => Fault::Kill(target(of)),
            Fault::Stop(of) => Fault::Stop(target(of)),
            Fault::Cut(of, others, ways) => Fault::Cut(target(of), others, ways),
            Fault::Clock(of, ahead) => Fault::Clock(number(of), ahead),
            other => other,
        }
    }

    fn server(&mut self, target: Target) -> &mut Server {
        match target {
            Target::Manager(of) => &mut self.servers.managers[number(of)],
            Target::Member(number) => &mut self.servers.members[number],
        }
    }

    fn begin(&mut self, fault: Fault) -> Result<(), SetupError> {
        match fault {
            Fault::Kill(of) => self.server(of).kill(),
            Fault::Stop(of) => self.server(of).stop(true),
            Fault::Cut(of, others, ways) => cut(&self.cluster.network, of, others, ways, true)?,
            Fault::Minority(rest) => {
                let members = self.servers.members.iter_mut().enumerate();
                let others = members.filter(|(number, _)| *number != rest);
                others.for_each(|(_, member)| member.kill());
            }
            Fault::FullDisk => self.fill_disk(),
            Fault::Clock(of, ahead) => {
                let offset = if ahead { "+3600" } else { "-3600" };
                self.set_clock(number(of), Some(offset))?;
            }
        }
        Ok(())
    }

    fn end(&mut self, fault: Fault) -> Result<(), SetupError> {
        let network = &self.cluster.network;
        match fault {
            Fault::Kill(of) => self.server(of).start(network)?,
            Fault::Stop(of) => self.server(of).stop(false),
            Fault::Cut(of, others, ways) => cut(network, of, others, ways, false)?,
            Fault::Minority(_) => {
                for member in &mut self.servers.members {
                    member.start(network)?;
                }
            }
            // Fails only if the disk was never filled.
            Fault::FullDisk => drop(fs::remove_file(self.filler())),
            Fault::Clock(of, _) => self.set_clock(number(of), None)?,
        }
        Ok(())
    }

    fn filler(&self) -> PathBuf {
        PathBuf::from(self.cluster.member_folder(SMALL)).join("filler")
    }

    /// Writes until the disk has no space left.
    fn fill_disk(&self) {
        let block = vec![0; 64 << 10];
        if let Ok(mut file) = File::create(self.filler()) {
            while file.write_all(&block).is_ok() {}
        }
    }

    /// Starts a manager anew with this offset of its wall clock.
    fn set_clock(&mut self, number: usize, offset: Option<&str>) -> Result<(), SetupError> {
        let Some(library) = &self.faketime else {
            return Ok(());
        };
        let library = library.display().to_string();
        let manager = &mut self.servers.managers[number];
        manager.variables.clear();
        if let Some(offset) = offset {
            let variables = [
                ("LD_PRELOAD", library.as_str()),
                ("FAKETIME", offset),
                ("FAKETIME_DONT_FAKE_MONOTONIC", "1"),
                ("DONT_FAKE_MONOTONIC", "1"),
            ];
            let variables = variables.map(|(name, value)| (name.to_owned(), value.to_owned()));
            manager.variables.extend(variables);
        }
        manager.kill();
        manager.start(&self.cluster.network)
    }
}

/// All beginnings and ends, by time.
fn steps(plan: &[Planned]) -> Vec<Step> {
    let both = plan.iter().enumerate().flat_map(|(number, of)| {
        let step = |at, begins| Step { at, number, begins };
        [step(of.begin, true), step(of.end, false)]
    });
    let mut steps: Vec<Step> = both.collect();
    steps.sort_by_key(|step| step.at);
    steps
}

/// The number of a manager. [`Harm::with_number`] has replaced the leader.
fn number(manager: Manager) -> usize {
    match manager {
        Manager::Number(number) => number,
        Manager::Leader => 0,
    }
}

fn cut(
    network: &Network,
    target: Target,
    others: Others,
    ways: Ways,
    cuts: bool,
) -> Result<(), SetupError> {
    let one = match target {
        Target::Manager(of) => MANAGERS[number(of)],
        Target::Member(number) => MEMBERS[number],
    };
    let others = match others {
        Others::Managers => &MANAGERS[..],
        Others::Members => &MEMBERS[..],
        Others::Nodes(number) => &NODES[number..=number],
        Others::Clients(number) => &CLIENTS[number..=number],
    };
    for other in others.iter().copied().filter(|other| *other != one) {
        let link = match ways {
            Ways::Both => network.link(one, other),
            Ways::Out => network.one_way(one, other),
            Ways::In => network.one_way(other, one),
        };
        if cuts { link.cut()? } else { link.mend()? }
    }
    Ok(())
}

/// Finds libfaketime. `None`: it is not installed.
fn faketime() -> Option<PathBuf> {
    let folders = fs::read_dir(LIBRARIES).ok()?.flatten();
    let mut libraries = folders.map(|folder| folder.path().join(FAKETIME));
    libraries.find(|library| library.exists())
}
