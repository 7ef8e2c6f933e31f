//! What a node does not do when it measures a link: leave its sandbox, or measure beside sessions or for too long.

use std::io::ErrorKind;
use std::net::TcpListener;
use std::sync::atomic::{AtomicBool, Ordering};

use causeway::config::ServerSettings;
use causeway::transport::links::measure_link;
use causeway_network::Network;
use causeway_proto::control::LinkEnd;
use causeway_proto::status::WireError;

use crate::frames::servers::*;
use crate::measured::*;
use crate::stage::*;

fn refusal<T: std::fmt::Debug>(result: Result<T, WireError>, part: &str) {
    let text = result.expect_err(part).to_string();
    assert!(text.contains(part), "{text}");
}

#[test]
fn the_process_is_confined_and_dials_no_other_port() {
    let texts = ["[sandbox]\nconnect_ports = [1]\n", ""];
    let Some(pair) = Pair::configured(Network::builder(), texts) else {
        return;
    };
    let short = terms(100);
    let listener = pair.host(OTHER).enter(|| TcpListener::bind("0.0.0.0:0"));
    let listener = listener.expect("the host's network").expect("a free port");
    let port = listener.local_addr().expect("an address").port();
    let end = LinkEnd {
        id: vec![3; 16].into(),
        secret: vec![4; 32].into(),
        addresses: vec![format!("{}:{port}", pair.host(OTHER).address())],
        node_uuid: vec![9; 16].into(),
        ..LinkEnd::default()
    };
    let ask = |number: usize, end: Option<LinkEnd>| {
        pair.on_client(|| measure_link(&pair.server(number), &short, false, no_claim(), end))
    };
    refusal(ask(ONE, Some(end.clone())), "Permission denied");
    listener.set_nonblocking(true).expect("a socket");
    let accepted = listener.accept().map(drop).map_err(|error| error.kind());
    assert_eq!(accepted, Err(ErrorKind::WouldBlock));
    // A digest of a wrong length is no consent to clear text.
    let wrong = LinkEnd {
        certificate_sha256: vec![5; 31].into(),
        ..end
    };
    refusal(ask(OTHER, Some(wrong)), "wrong length");
    // The same node can be dialled, also by one that may connect anywhere.
    let reply = ask(ONE, None).expect("it is free");
    let process = child_of(&pair.daemons[0], "--internal-link");
    // It confines itself before it reads from anybody.
    eventually("a filter of system calls", || {
        figure_of(process, "Seccomp:").filter(|mode| *mode == 2)
    });
    assert_eq!(figure_of(process, "NoNewPrivs:"), Some(1));
    let reply = ask(OTHER, reply.end).expect("figures");
    assert!(reply.link.is_some(), "{reply:?}");
}

#[test]
fn only_an_administrator_measures_for_longer() {
    let texts = [
        "[links]\nadministrators = [\"bob\"]\n",
        "[links]\nadministrators = [\"alice\"]\n",
    ];
    let Some(pair) = Pair::configured(Network::builder(), texts) else {
        return;
    };
    let long = terms(5_100);
    let ask = |number: usize, is_forced| {
        pair.on_client(|| measure_link(&pair.server(number), &long, is_forced, no_claim(), None))
    };
    refusal(ask(ONE, true), "administrators");
    refusal(ask(OTHER, false), "10 s a minute");
    let reply = ask(OTHER, true).expect("alice may");
    assert!(reply.end.is_some(), "{reply:?}");
}

#[test]
fn a_node_whose_sessions_move_data_measures_by_force_only() {
    own_process!();
    let daemon = Daemon::start("[[device]]\nname = \"A\"");
    crate::frames::servers::configure(&daemon.address.to_string());
    let server = ServerSettings::at(daemon.address.to_string().parse().expect("an address"));
    let ask = |is_forced| measure_link(&server, &terms(100), is_forced, no_claim(), None);
    let cl = Fixture::on(devices()[0]);
    let (is_over, bytes) = (AtomicBool::new(false), pattern(1, 1 << 20));
    let buffer = cl.buffer(CL_MEM_READ_WRITE, bytes.len());
    cl.write(buffer, 0, &bytes);
    let (refused, forced) = std::thread::scope(|scope| {
        let asking = scope.spawn(|| {
            let answers = (ask(false), ask(true));
            is_over.store(true, Ordering::Relaxed);
            answers
        });
        while !is_over.load(Ordering::Relaxed) && !asking.is_finished() {
            cl.write(buffer, 0, &bytes);
        }
        asking.join().expect("no panic")
    });
    refusal(refused, "move");
    assert!(
        forced
            .expect("without authentication, everybody may")
            .end
            .is_some()
    );
    ok!(clReleaseMemObject(buffer));
}
