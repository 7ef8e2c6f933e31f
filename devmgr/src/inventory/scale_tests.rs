//! Tests that the time of a choice grows in proportion to the cluster's devices and kinds.

use std::time::Duration;

use causeway_proto::control::InfoAnswer;
use causeway_proto::request::DeviceRequest;

use super::*;

/// Requests that are refused after different kinds of search.
const LINES: [&str; 4] = [
    "60000, GLOBAL_MEM_SIZE>=1",
    "1, GLOBAL_MEM_SIZE>=1; 1, TYPE=ACCELERATOR; same-node",
    "60000, GLOBAL_MEM_SIZE>=1; spread",
    "60000, GLOBAL_MEM_SIZE>=1; 1, UUID_KHR=00000000000000000000000000000000",
];

fn device(at: u32, memory: u64, own: u32) -> OfferedDevice {
    let answer = |name, value: Vec<u8>| InfoAnswer {
        name,
        value: value.into(),
        status: 0,
    };
    let mut uuid = vec![1; 16];
    uuid[..4].copy_from_slice(&own.to_be_bytes());
    let answers = vec![
        answer(0x1000, 4_u64.to_le_bytes().to_vec()),
        answer(0x101F, memory.to_le_bytes().to_vec()),
        answer(0x106A, uuid),
    ];
    let id = DeviceId {
        platform: 0,
        device: at,
    };
    OfferedDevice::new(id, answers, Shares::Whole)
}

/// A cluster in which each node has two devices, of kinds that no other node has.
fn cluster(nodes: u32) -> Cluster {
    let mut cluster = Cluster::default();
    for node in 0..nodes {
        let devices = [0, 1].map(|at| {
            let own = 2 * node + at;
            device(at, u64::from(own) + 1, own)
        });
        cluster.replace(id(node), &devices);
        cluster.set_open(id(node), true);
    }
    cluster
}

fn id(node: u32) -> NodeId {
    let mut id = [0; 16];
    id[..4].copy_from_slice(&node.to_be_bytes());
    NodeId(id)
}

/// The processor time of one refused request.
fn refusal(cluster: &mut Cluster, nodes: u32, request: &DeviceRequest) -> Duration {
    let manner = Manner {
        placement: request.placement(),
        assignment: Assignment::Pack,
        memory: u64::MAX,
    };
    let start = processor_time();
    for level in [Level::Free, Level::Known] {
        assert!(cluster.choose(level, request, manner).is_err());
        cluster.count(level, request);
    }
    let all: Vec<NodeId> = (0..nodes).map(id).collect();
    for node in all {
        cluster.count_on(node, request);
    }
    processor_time() - start
}

/// The processor time of this thread, which other processes and tests do not influence.
fn processor_time() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

#[test]
fn a_refusal_costs_in_proportion_to_the_kinds() {
    for line in LINES {
        let request: DeviceRequest = line.parse().unwrap();
        let cost = |nodes: u32| {
            let mut cluster = cluster(nodes);
            let times = (0..5).map(|_| refusal(&mut cluster, nodes, &request));
            times.min().unwrap()
        };
        let (some, more) = (cost(512), cost(4096));
        // With eight times as many devices, quadratic work takes 64 times as long.
        assert!(more < some * 24, "{line}: {some:?}, then {more:?}");
        println!("{line}: {some:?}, then {more:?}");
    }
}
