//! Tests that sessions with TLS outlive their connections, over both carriers: results are those of a whole network.

use std::time::Duration;

use causeway_cutter::{Cut, Forwarder, Plan, Target};

use crate::frames::opencl::secured;
use crate::frames::servers::*;

/// Number of resumptions after which a test has seen enough.
const ENOUGH: u64 = 10;

struct Node {
    _daemon: Daemon,
    way: Forwarder,
}

fn start() -> Node {
    let daemon = Daemon::start_flagged("127.0.0.1:0", "devices = 1", &secured::arguments());
    let way = Forwarder::start(Some(Target::Tcp(daemon.address))).unwrap();
    Node {
        _daemon: daemon,
        way,
    }
}

/// Configures the library with a server of each carrier.
fn configure_carriers(nodes: &[Node; 2], folder: &std::path::Path) {
    let carriers = ["direct", "grpc"];
    let servers = nodes.iter().zip(carriers).map(|(node, carrier)| {
        let address = node.way.address();
        format!("[[server]]\naddress = \"{address}\"\ncarrier = \"{carrier}\"\n")
    });
    let file = folder.join("servers.toml");
    std::fs::write(&file, servers.collect::<String>()).unwrap();
    // SAFETY: the library has not been asked anything yet, so nobody reads the environment.
    unsafe { std::env::set_var("CAUSEWAY_CONFIG", file) };
}

fn round_trip(fixture: &Fixture, round: usize) {
    let length = [64, 40_000, 3 << 20][round % 3] + round;
    let bytes = pattern(round, length);
    let buffer = fixture.buffer(0, length);
    fixture.write(buffer, 0, &bytes);
    let got = fixture.read(buffer, 0, length);
    assert!(got == bytes, "round {round}");
    ok!(clReleaseMemObject(buffer));
}

#[test]
fn sessions_with_tls_outlive_their_connections() {
    own_process!();
    secured::secure();
    let folder = tempfile::tempdir().unwrap();
    let nodes = [start(), start()];
    configure_carriers(&nodes, folder.path());
    for (device, node) in devices().into_iter().zip(&nodes) {
        let server = server_of(device);
        let context = context(device).unwrap();
        let queue = make!(clCreateCommandQueue(context, device, 0)).unwrap();
        let fixture = Fixture {
            device,
            context,
            queue,
        };
        node.way.set_plan(Plan::Bytes {
            mean: 1 << 20,
            seed: 18,
            silence: Duration::ZERO,
        });
        let resumed = || number(&server_info(server, CL_SERVER_RESUMED_WWU));
        let mut rounds = 0;
        while resumed() < ENOUGH {
            if rounds % 5 == 0 {
                node.way.cut_sessions(Cut::Reset);
            }
            round_trip(&fixture, rounds);
            rounds += 1;
            assert!(rounds < 1000, "resumed {} times", resumed());
        }
    }
    // No byte went through shared memory.
    assert_eq!(causeway_lane::carried_bytes(), 0);
}
