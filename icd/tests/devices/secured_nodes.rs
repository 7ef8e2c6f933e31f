//! Tests that the links between workers of TLS nodes are secured too. Each end knows the other by the digest that the
//! client sends.

use crate::frames::opencl::secured;
use crate::frames::several::*;

#[test]
fn buffers_and_events_go_from_node_to_node_over_tls() {
    own_process!();
    let secured = secured::secure();
    let cl = several();
    let words = 700_000;
    let buffers = ALL.map(|_| cl.buffer(0, 4 * words));
    for (value, from) in (1..).zip(ALL) {
        let mut before = cl.fill(from, buffers[from], value, (0, 4 * words), &[]);
        for to in ALL {
            // Each node reads what another node wrote, and waits for that node's event.
            let next = cl.fill(to, buffers[from], value + 10, (0, 4), &[before]);
            release(&[before]);
            before = next;
            let got = cl.numbers(to, buffers[from], words);
            assert_eq!((got[0], got[1], got[words - 1]), (value + 10, value, value));
        }
        release(&[before]);
    }
    release_memory(&buffers);
    assert_eq!(
        causeway::transport::relayed_bytes(),
        0,
        "the nodes reach each other"
    );
    let hidden = secured.token.reveal();
    for node in cl.nodes {
        // The command line of the node's process does not contain the token.
        let commands = std::fs::read(format!("/proc/{}/cmdline", node.pid())).expect("procfs");
        assert!(!String::from_utf8_lossy(&commands).contains(hidden));
    }
}
