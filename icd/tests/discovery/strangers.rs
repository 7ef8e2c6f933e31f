//! Nodes of the own CA are used, and strangers are not, whatever they announce.

use std::io::Read;
use std::net::TcpListener;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use crate::frames::servers::*;
use crate::stage::*;

#[test]
fn nodes_of_the_own_ca_are_used_and_strangers_get_nothing() {
    own_process!(waits);
    let Some(network) = network(8) else { return };
    let (ours, theirs) = (Certificates::new(), Certificates::new());
    for name in ["gpu1.lab", "gpu2", "gpu6", "gpu7"] {
        ours.node(name);
    }
    ours.user("mallory");
    theirs.node("gpu3");
    ours.configure("", "");
    let host = |number: usize| network.host(number);
    let _right = [("A", 1, "gpu1.lab"), ("B", 2, "gpu2")]
        .map(|(device, number, name)| announced(host(number), device, &ours.flags(name)));
    let _other_ca = announced(host(3), "other CA", &theirs.flags("gpu3"));
    let clear = ["--insecure".to_owned()];
    let _no_tls = announced(host(4), "no TLS", &clear);
    let _user = announced(host(5), "user", &ours.flags("mallory"));
    // A right node, whom somebody else announces under another node's name.
    let other_name = quiet(host(6), "other name", &ours.flags("gpu6"));
    let claimed = answer(
        "gpu7",
        &said(6, None),
        other_name.address.port(),
        host(6).address(),
    );
    // Somebody who only listens.
    let listen = || TcpListener::bind((host(7).address(), 7079)).expect("a socket");
    let listener = host(7).enter(listen).expect("the host's network");
    let listening = answer("gpu2", &said(7, None), 7079, host(7).address());
    heard(host(0), &["gpu1.lab", "gpu2", "gpu3", "mallory"]);
    let is_over = AtomicBool::new(false);
    let received = std::thread::scope(|scope| {
        let sockets = [
            (multicaster(host(6)), claimed),
            (multicaster(host(7)), listening),
        ];
        let is_over = &is_over;
        scope.spawn(move || {
            while !is_over.load(Ordering::Relaxed) {
                for (socket, packet) in &sockets {
                    socket.send_to(packet, EVERYBODY).expect("sent");
                }
                std::thread::sleep(Duration::from_millis(20));
            }
        });
        let receiving = scope.spawn(|| {
            let (mut stream, _) = listener.accept().expect("a connection");
            let mut bytes = Vec::new();
            stream.read_to_end(&mut bytes).expect("its bytes");
            bytes
        });
        let program = || {
            let begun = Instant::now();
            // A node whose answer comes late is found by the next call.
            loop {
                let names = names();
                let is_ours = |name: &String| ["A", "B"].contains(&name.as_str());
                assert!(names.iter().all(is_ours), "{names:?}");
                let took = begun.elapsed();
                assert!(took < Duration::from_secs(10), "{took:?}: {names:?}");
                if names == ["A", "B"] {
                    break;
                }
            }
            // Later calls dial the strangers again, and have no other result.
            std::thread::sleep(Duration::from_millis(1200));
            assert_eq!(names(), ["A", "B"]);
            devices().into_iter().for_each(is_used);
        };
        let enter = || host(0).enter(program).expect("the host's network");
        let ended = catch_unwind(AssertUnwindSafe(enter));
        is_over.store(true, Ordering::Relaxed);
        ended.unwrap_or_else(|panic| resume_unwind(panic));
        receiving.join().expect("the bytes")
    });
    assert_eq!(records(&received), Some(1), "one ClientHello: {received:?}");
}
