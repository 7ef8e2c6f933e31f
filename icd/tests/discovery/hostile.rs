//! A host that announces what is not so: another's uuid, third parties, goodbyes for others, and damaged packets.

use std::io::Read;
use std::net::{Ipv4Addr, TcpListener};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use causeway_network::Host;
use socket2::{Domain, Protocol, Socket, Type};

use crate::frames::servers::*;
use crate::scene::Scene;
use crate::stage::*;

const TOKEN: &str = "causeway-secret-token";
/// A network that nobody here is on.
const FAR: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 1);
/// All protocols of Ethernet, in the byte order of the network.
const ALL: i32 = 0x0300;

/// Reads everything that crosses a host's interfaces, until it is over.
fn capture(host: &Host, is_over: &AtomicBool) -> Vec<u8> {
    let open = || Socket::new(Domain::PACKET, Type::RAW, Some(Protocol::from(ALL)));
    let mut socket = host
        .enter(open)
        .expect("the host's network")
        .expect("a socket");
    let limit = Some(Duration::from_millis(50));
    socket.set_read_timeout(limit).expect("a limit");
    let (mut all, mut packet) = (Vec::new(), vec![0; 1 << 16]);
    while !is_over.load(Ordering::Relaxed) {
        if let Ok(length) = socket.read(&mut packet) {
            all.extend(&packet[..length]);
        }
    }
    all
}

fn has(bytes: &[u8], text: &str) -> bool {
    bytes.windows(text.len()).any(|of| of == text.as_bytes())
}

/// What somebody who listens has heard, until it is over.
fn received(listener: &TcpListener, is_over: &AtomicBool) -> Vec<Vec<u8>> {
    listener.set_nonblocking(true).expect("a mode");
    let mut all = Vec::new();
    while !is_over.load(Ordering::Relaxed) {
        let Ok((mut stream, _)) = listener.accept() else {
            std::thread::sleep(Duration::from_millis(10));
            continue;
        };
        stream.set_nonblocking(false).expect("a mode");
        let mut bytes = Vec::new();
        // A reset ends it, too.
        let _ = stream.read_to_end(&mut bytes);
        all.push(bytes);
    }
    all
}

fn listen(host: &Host, address: Ipv4Addr, port: u16) -> TcpListener {
    let listen = || TcpListener::bind((address, port)).expect("a socket");
    host.enter(listen).expect("the host's network")
}

/// The packets of the hostile host.
fn packets(scene: &Scene, gpu1: [u8; 16], gpu1_port: u16, loopback_port: u16) -> Vec<Vec<u8>> {
    let at = |number: usize| scene.host(number).address();
    let mut copied = said(9, None);
    copied.id = gpu1;
    let mut left = said(1, None);
    left.id = gpu1;
    let whole = answer("gpu9", &copied, 7079, at(3));
    // Records with the lifetime 0 take a service back.
    let mut goodbye = answer("gpu1", &left, gpu1_port, at(1));
    for at in 0..goodbye.len() - 4 {
        if goodbye[at..].starts_with(&[0, 0, 0, 120]) {
            goodbye[at + 3] = 0;
        }
    }
    let header = [0, 0, 0x84, 0, 0, 0, 0, 1, 0, 0, 0, 0];
    let of_header = |rest: &[u8]| [&header[..], rest].concat();
    let long_name: Vec<u8> = std::iter::repeat_n([&[63u8][..], &[b'a'; 63]].concat(), 9)
        .flatten()
        .collect();
    let mut all = vec![
        answer("gpu8", &said(8, None), 22, at(2)),
        answer("gpu7", &said(7, None), loopback_port, Ipv4Addr::LOCALHOST),
        answer("gpu6", &said(6, None), 7079, FAR),
        goodbye,
        // A name that points to itself, one that is too long, a label that is too long, and a packet that is too long.
        of_header(&[0xc0, 12, 0, 12, 0, 1, 0, 0, 0, 120, 0, 2, 0xc0, 12]),
        of_header(&[&long_name[..], &[0, 0, 12, 0, 1, 0, 0, 0, 120, 0, 0]].concat()),
        of_header(&[&[127][..], &[b'a'; 127], &[0, 0, 12, 0, 1]].concat()),
        [&whole[..], &vec![0; 9_200]].concat(),
    ];
    all.extend(
        (0..whole.len())
            .step_by(7)
            .map(|length| whole[..length].to_vec()),
    );
    all.push(whole);
    all
}

#[test]
fn what_a_hostile_host_announces_harms_nobody_and_learns_nothing() {
    own_process!(waits);
    let Some(scene) = Scene::new(4, &["gpu1"]) else {
        return;
    };
    let host = |number: usize| scene.host(number);
    write(
        &scene.certificates.path("token"),
        format!("{TOKEN}\n").as_bytes(),
    );
    let more = "token_file = \"token\"\n[discovery]\nnames = [\"gpu*\"]\n";
    scene.certificates.configure("", more);
    let right = announced(host(1), "A", &scene.certificates.flags("gpu1"));
    let gpu1 = heard(host(0), &["gpu1"])[0].announcement.id;
    let third = listen(host(2), host(2).address(), 22);
    let own = listen(host(3), host(3).address(), 7079);
    let loopback = listen(host(0), Ipv4Addr::LOCALHOST, 0);
    loopback.set_nonblocking(true).expect("a mode");
    // With a route, packets to the far network would leave.
    for command in [
        "ip route add 192.0.2.0/24 dev eth0",
        "nft add table inet far",
        "nft add chain inet far out { type filter hook output priority 0 ; }",
        "nft add rule inet far out ip daddr 192.0.2.0/24 counter",
    ] {
        scene.on(0, command);
    }
    let loopback_port = loopback.local_addr().expect("an address").port();
    let packets = packets(&scene, gpu1, right.address.port(), loopback_port);
    let all = packets.len();
    let socket = multicaster(host(3));
    let (is_over, sent) = (AtomicBool::new(false), AtomicUsize::new(0));
    let (captured, by_third, by_own) = std::thread::scope(|scope| {
        let ends = Ends(&is_over);
        let (is_over, sent) = (&is_over, &sent);
        let capturing = scope.spawn(|| capture(host(0), is_over));
        let [by_third, by_own] = [&third, &own].map(|of| scope.spawn(|| received(of, is_over)));
        scope.spawn(move || {
            for packet in packets.iter().cycle() {
                if is_over.load(Ordering::Relaxed) {
                    return;
                }
                // A full queue loses packets, as a network does.
                let _ = socket.send_to(packet, EVERYBODY);
                sent.fetch_add(1, Ordering::Relaxed);
                std::thread::sleep(Duration::from_millis(2));
            }
        });
        let program = || {
            let claims = heard(host(0), &["gpu6", "gpu7", "gpu8", "gpu9"]);
            assert!(
                claims
                    .iter()
                    .all(|of| of.name.starts_with("gpu") && of.name.len() == 4)
            );
            assert_eq!(names(), ["A"]);
            let device = devices()[0];
            is_used(device);
            // The goodbyes end no session, and later calls have no other result.
            let before = sent.load(Ordering::Relaxed);
            eventually("all packets again", || {
                (sent.load(Ordering::Relaxed) > before + 2 * all).then_some(())
            });
            assert_eq!(names(), ["A"]);
            assert!(is_available(device));
            is_used(device);
        };
        host(0).enter(program).expect("the host's network");
        drop(ends);
        let captured = capturing.join().expect("the packets");
        let [third, own] = [by_third, by_own].map(|of| of.join().expect("the bytes"));
        (captured, third, own)
    });
    assert!(loopback.accept().is_err(), "nobody dials this host itself");
    let mut command = host(0).command("nft");
    let counted = command.args(["list", "table", "inet", "far"]).output();
    let counted = String::from_utf8(counted.expect("nft runs").stdout).expect("text");
    assert!(counted.contains("counter packets 0 "), "{counted}");
    assert!(!by_own.is_empty(), "the stranger was dialled");
    for bytes in by_third.iter().chain(&by_own) {
        // Whoever hangs up early has heard nothing.
        let records = records(bytes).expect("records of the handshake");
        assert!(records <= 1, "a ClientHello at most: {bytes:?}");
    }
    assert!(has(&captured, "_causeway"), "{} bytes", captured.len());
    for secret in [TOKEN, "alice"] {
        assert!(!has(&captured, secret), "{secret} was in the clear");
    }
}
