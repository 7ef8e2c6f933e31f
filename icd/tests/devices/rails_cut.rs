//! Tests a server with two addresses of which one falls silent: nothing arrives, and no end is notified.
//!
//! Program and node have a host each in a network of two. The node's host has two addresses.

use causeway_network::{Host, Network};

use crate::frames::servers::*;

const SECOND: &str = "10.79.1.2";
const SIZE: usize = 24 << 20;

fn run(host: &Host, program: &str, arguments: &[&str]) {
    let status = host.command(program).args(arguments).status();
    assert!(status.expect("it starts").success(), "{arguments:?}");
}

/// Drops what is sent to this address of the node, and from it.
fn cut(here: &Host, there: &Host, address: &str) {
    for (host, side) in [(here, "saddr"), (there, "daddr")] {
        let rules = format!(
            "add table inet cut; add chain inet cut in {{ type filter hook input priority 0; }}; \
             add rule inet cut in ip {side} {address} drop"
        );
        run(host, "nft", &[&rules]);
    }
}

fn mend(here: &Host, there: &Host) {
    for host in [here, there] {
        run(host, "nft", &["delete table inet cut"]);
    }
}

#[test]
fn an_address_that_falls_silent_costs_no_byte_and_no_error() {
    own_process!(waits);
    let network = match Network::builder().hosts(2).build() {
        Err(error) if error.is_unavailable() => {
            eprintln!("skipped: {error}");
            return;
        }
        network => network.expect("a network"),
    };
    let (here, there) = (network.host(0), network.host(1));
    let second = format!("{SECOND}/16");
    run(there, "ip", &["address", "add", &second, "dev", "eth0"]);
    let settings = "[[device]]\nname = \"A\"";
    let flags = ["--insecure".to_owned()];
    let started = there.enter(|| Daemon::start_flagged("0.0.0.0:0", settings, &flags));
    let daemon = started.expect("the host's network");
    let (first, port) = (there.address().to_string(), daemon.address.port());
    let file = std::env::temp_dir().join(format!("rails-cut-{}.toml", std::process::id()));
    let text = format!("[[server]]\naddress = [\"{first}:{port}\", \"{SECOND}:{port}\"]\n");
    std::fs::write(&file, text).expect("written");
    // SAFETY: the library has not been asked anything yet, so nobody reads the environment.
    unsafe {
        std::env::remove_var("CAUSEWAY_SERVERS");
        std::env::set_var("CAUSEWAY_CONFIG", &file);
    }
    let program = || {
        assert_eq!(names(), ["A"]);
        let cl = Fixture::on(first_device());
        let buffer = cl.buffer(CL_MEM_READ_WRITE, SIZE);
        cl.write(buffer, 0, &pattern(1, SIZE));
        // Lanes are on both addresses, commands on the first, and after the second cut on the second.
        for (round, address) in [(2, SECOND), (3, &first), (4, SECOND)] {
            let bytes = pattern(round, SIZE);
            cut(here, there, address);
            cl.write(buffer, 0, &bytes);
            assert!(cl.read(buffer, 0, SIZE) == bytes, "{address}");
            mend(here, there);
        }
        ok!(clReleaseMemObject(buffer));
    };
    here.enter(program).expect("the host's network");
    std::fs::remove_file(file).expect("removed");
}
