//! How long the lease machine takes for an event: 1,000 nodes of 8 devices, 10,000 clients.
//!
//! `cargo run --release -p causeway-devmgr --example lease_speed`. It measures the machine alone: no
//! network, no store; nodes acknowledge at once.

use std::time::{Duration, Instant};

use causeway_devmgr::inventory::{DeviceId, NodeId, OfferedDevice, Shares, limits};
use causeway_devmgr::lease::{
    Action, Event, GrantReport, Joined, LeaseId, Manager, NewRequest, Outcome, Rows, Transition,
};
use causeway_devmgr::policy::Class;
use causeway_devmgr::policy::ledger::Party;
use causeway_devmgr::time::{Calendar, Span, Time, Wall};
use causeway_proto::control::InfoAnswer;

const NODES: u32 = 1_000;
const CLIENTS: u32 = 10_000;

struct Bench {
    manager: Manager,
    now: Time,
    times: Vec<Duration>,
}

impl Bench {
    fn new() -> Bench {
        let start = Calendar {
            time: Time(0),
            wall: Wall(1_700_000_000_000),
        };
        Bench {
            manager: Manager::load(Rows::default(), start),
            now: Time(0),
            times: Vec::new(),
        }
    }

    /// Lets a node join, and returns its id.
    fn join(&mut self, node: u32, devices: Vec<OfferedDevice>) -> NodeId {
        let mut id = [0; 16];
        id[..4].copy_from_slice(&node.to_be_bytes());
        let step = self.event(Event::NodeJoined(Joined {
            stopping: false,
            node: NodeId(id),
            account: None,
            name: format!("node{id:?}"),
            addresses: Vec::new(),
            devices,
            running: Vec::new(),
        }));
        self.carry_out(step);
        NodeId(id)
    }

    fn event(&mut self, event: Event) -> Transition {
        self.now.0 += 1;
        let start = Instant::now();
        let step = self.manager.handle(self.now, event);
        self.times.push(start.elapsed());
        step
    }

    /// Hands a step's grants to nodes that acknowledge them, and its withdrawals; grants that were told of.
    fn carry_out(&mut self, step: Transition) -> u32 {
        let mut granted = 0;
        for action in step.actions {
            let next = match action {
                Action::Grant(grant) => Event::GrantAcknowledged(GrantReport {
                    node: grant.node,
                    lease: grant.lease,
                    epoch: grant.epoch,
                }),
                Action::Withdraw {
                    node, lease, epoch, ..
                } => Event::Withdrawn(GrantReport { node, lease, epoch }),
                Action::Tell {
                    outcome: Outcome::Leased(_),
                    ..
                } => {
                    granted += 1;
                    continue;
                }
                _ => continue,
            };
            let step = self.event(next);
            granted += self.carry_out(step);
        }
        granted
    }

    /// What was measured since the last report.
    fn report(&mut self, what: &str) {
        let mut times = std::mem::take(&mut self.times);
        times.sort_unstable();
        let part = |of: usize| times[(times.len() * of / 1000).min(times.len() - 1)];
        let all: Duration = times.iter().sum();
        println!(
            "{what:<34} {:>7} events  mean {:>9.1?}  p50 {:>9.1?}  p99 {:>9.1?}  most {:>9.1?}",
            times.len(),
            all / times.len() as u32,
            part(500),
            part(990),
            part(1000)
        );
    }
}

fn device(node: u32, at: u32) -> OfferedDevice {
    let answer = |name, value: Vec<u8>| InfoAnswer {
        name,
        value: value.into(),
        status: 0,
    };
    // Four models; each device has a UUID of its own, and a long list of extensions.
    let memory = (8_u64 << (node % 4)) << 30;
    let mut uuid = [0; 16];
    uuid[..4].copy_from_slice(&(node * 8 + at).to_be_bytes());
    let answers = vec![
        answer(0x1000, 4_u64.to_le_bytes().to_vec()),
        answer(0x1002, (20 * (node % 4 + 1)).to_le_bytes().to_vec()),
        answer(0x101F, memory.to_le_bytes().to_vec()),
        answer(0x1030, "cl_khr_fp64 ".repeat(40).into_bytes()),
        answer(0x106A, uuid.to_vec()),
    ];
    let id = DeviceId {
        platform: 0,
        device: at,
    };
    OfferedDevice::new(id, answers, Shares::Whole)
}

fn lease(of: u32) -> LeaseId {
    let mut id = [0; 16];
    id[..4].copy_from_slice(&of.wrapping_mul(0x9E37_79B9).to_be_bytes());
    id[4..8].copy_from_slice(&of.to_be_bytes());
    LeaseId(id)
}

fn request(of: u32, line: &str, wait: bool) -> Event {
    Event::Request(NewRequest {
        lease: lease(of),
        party: Party {
            user: format!("user{}", of % 2_000).as_str().into(),
            groups: Vec::new(),
        },
        devices: line.parse().expect("a request"),
        class: Class::Normal,
        limit: None,
        wait,
        reserve: false,
        replace: false,
    })
}

fn release(of: u32) -> Event {
    Event::Release {
        lease: lease(of),
        user: format!("user{}", of % 2_000).as_str().into(),
    }
}

/// What a node account may bring at most, in one hello and in all.
fn largest(nodes: u32, devices: u32, kinds: u32, what: &str) {
    let mut bench = Bench::new();
    for node in 0..nodes {
        let own = |at: u32| {
            let mut device = device(node, at);
            let kind = node * kinds + at % kinds;
            let name = format!("device {kind}").into_bytes();
            device.answers.push(InfoAnswer {
                name: 0x102B,
                value: name.into(),
                status: 0,
            });
            device
        };
        let devices: Vec<_> = (0..devices).map(own).collect();
        limits::check_node(&devices).expect("within the limits");
        let id = bench.join(node, devices);
        // Half of them are lost, which is counted node by node.
        if node % 2 == 1 {
            let step = bench.event(Event::NodeLost { node: id });
            bench.carry_out(step);
        }
    }
    bench.report(&format!("{what}: a node joins"));
    const REFUSED: [&str; 4] = [
        "1, TYPE=CPU",
        "65536",
        "60000, EXTENSIONS contains cl_khr_fp64; 1, TYPE=CPU; same-node",
        "1, TYPE=CPU; 1, UUID_KHR=00000000000000000000000000000000",
    ];
    for line in REFUSED {
        for of in 0..20 {
            let step = bench.event(request(of, line, false));
            bench.carry_out(step);
        }
        bench.report(&format!(
            "{what}: {}",
            line.split(',').next_back().unwrap_or(line)
        ));
    }
}

fn main() {
    largest(1, 1024, 64, "largest hello");
    largest(4096, 16, 1, "largest account");
    let mut bench = Bench::new();
    for node in 0..NODES {
        bench.join(node, (0..8).map(|at| device(node, at)).collect());
    }
    bench.report("a node joins");
    const LINES: [&str; 3] = [
        "1",
        "2, TYPE=GPU, GLOBAL_MEM_SIZE>=16GiB; same-node",
        "1, MAX_COMPUTE_UNITS>=40",
    ];
    let free: u32 = 4_000;
    for of in 0..free {
        let step = bench.event(request(of, LINES[of as usize % 3], false));
        bench.carry_out(step);
    }
    bench.report("request and answers, free units");
    for of in 0..free {
        let step = bench.event(Event::Renew {
            lease: lease(of),
            user: format!("user{}", of % 2_000).as_str().into(),
        });
        bench.carry_out(step);
    }
    bench.report("renewal");
    for of in free..free + 3_000 {
        let step = bench.event(request(of, "1", false));
        bench.carry_out(step);
    }
    bench.times.clear();
    for of in CLIENTS..2 * CLIENTS {
        let step = bench.event(request(of, LINES[of as usize % 3], true));
        bench.carry_out(step);
    }
    bench.report("request that has to wait");
    let mut granted = 0;
    for of in 0..free {
        let step = bench.event(release(of));
        granted += bench.carry_out(step);
    }
    bench.report("release that serves who waits");
    println!("{granted} of those who waited were served");
    let before = Instant::now();
    let step = bench
        .manager
        .handle(Time(bench.now.0 + Span::seconds(1).0), Event::Tick);
    println!(
        "a tick with {} actions: {:.1?}",
        step.actions.len(),
        before.elapsed()
    );
}
