//! A flood of announcements: the right nodes are in the first list, and neither the program nor the daemons grow.

use std::net::UdpSocket;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use crate::frames::servers::*;
use crate::stage::*;

/// Bytes a second: 50 Mbit/s.
const RATE: u64 = 50_000_000 / 8;
const SERVICES: usize = 10_000;

/// A client, two nodes that announce themselves, and what a third host sends.
struct Flood {
    network: Stage,
    _certificates: Certificates,
    daemons: [Daemon; 2],
    packets: Vec<Vec<u8>>,
    socket: UdpSocket,
}

impl Flood {
    fn new() -> Option<Flood> {
        let network = network(4)?;
        let certificates = Certificates::new();
        for name in ["gpu1", "gpu2"] {
            certificates.node(name);
        }
        certificates.configure("", "");
        let daemons = [("A", 1, "gpu1"), ("B", 2, "gpu2")].map(|(device, number, name)| {
            announced(network.host(number), device, &certificates.flags(name))
        });
        heard(network.host(0), &["gpu1", "gpu2"]);
        let attacker = network.host(3);
        let packet = |number| answer(&format!("x{number}"), &said(3, None), 9, attacker.address());
        Some(Flood {
            packets: (0..SERVICES).map(packet).collect(),
            socket: multicaster(attacker),
            network,
            _certificates: certificates,
            daemons,
        })
    }
}

/// Sends packets at the rate, from one to the next, until it is over.
fn send(socket: &UdpSocket, packets: &[Vec<u8>], is_over: &AtomicBool, sent: &AtomicU64) {
    let begun = Instant::now();
    for packet in packets.iter().cycle() {
        if is_over.load(Ordering::Relaxed) {
            return;
        }
        // A full queue loses packets, as a network does.
        let _ = socket.send_to(packet, EVERYBODY);
        let total = sent.fetch_add(packet.len() as u64, Ordering::Relaxed);
        let due = Duration::from_micros(total * 1_000_000 / RATE);
        std::thread::sleep(due.saturating_sub(begun.elapsed()));
    }
}

#[test]
fn a_flood_hides_no_node_and_costs_little_memory() {
    own_process!(waits);
    let Some(flood) = Flood::new() else { return };
    let Flood {
        network,
        daemons,
        packets,
        socket,
        ..
    } = &flood;
    let announcers = daemons.each_ref().map(announcer);
    let (is_over, sent) = (AtomicBool::new(false), AtomicU64::new(0));
    let own = || figure_of(std::process::id(), "RssAnon:").expect("procfs");
    let grown = std::thread::scope(|scope| {
        let ends = Ends(&is_over);
        scope.spawn(|| send(socket, packets, &is_over, &sent));
        eventually("the flood", || {
            (sent.load(Ordering::Relaxed) > RATE / 2).then_some(())
        });
        let before = own();
        let most = scope.spawn(|| {
            let mut most = 0;
            while !is_over.load(Ordering::Relaxed) {
                most = most.max(own());
                std::thread::sleep(Duration::from_millis(5));
            }
            most
        });
        let program = || {
            let begun = Instant::now();
            let first = names();
            let took = begun.elapsed();
            // The whole second, and not more, however much is announced.
            assert!(took < Duration::from_secs(10), "{took:?}");
            assert_eq!(first, ["A", "B"]);
            std::thread::sleep(Duration::from_secs(3));
            assert_eq!(names(), ["A", "B"]);
        };
        network.host(0).enter(program).expect("the host's network");
        drop(ends);
        most.join().expect("a figure").saturating_sub(before)
    });
    eprintln!(
        "the program has grown by {grown} KiB; {} bytes were sent",
        sent.load(Ordering::Relaxed)
    );
    assert!(grown <= 8 << 10, "{grown} KiB");
    for pid in announcers {
        let resident = figure_of(pid, "VmHWM:").expect("the announcer still runs");
        eprintln!("an announcer has had {resident} KiB at most");
        assert!(resident <= 64 << 10, "{resident} KiB");
    }
}

/// The median time of a command with its finish, over a while.
fn round_trip(cl: &Fixture, buffer: cl_mem, lasting: Duration) -> Duration {
    let (begun, mut times) = (Instant::now(), Vec::new());
    while begun.elapsed() < lasting {
        let one = Instant::now();
        let byte = [1u8];
        ok!(clEnqueueFillBuffer(
            cl.queue,
            buffer,
            byte.as_ptr().cast(),
            1,
            0,
            4096,
            0,
            std::ptr::null(),
            std::ptr::null_mut()
        ));
        cl.finish();
        times.push(one.elapsed());
    }
    times.sort_unstable();
    times[times.len() / 2]
}

/// The announcers that run, whichever they are by now.
fn announcers_of(daemons: &[Daemon]) -> Vec<u32> {
    daemons.iter().map(announcer).collect()
}

/// Prints figures; other machines have others.
#[test]
#[ignore = "takes more than a minute and measures, so the machine must be quiet: run by name"]
fn a_flood_of_a_minute_costs() {
    const LASTS: Duration = Duration::from_secs(60);
    own_process!(waits);
    let Some(flood) = Flood::new() else { return };
    let Flood {
        network,
        daemons,
        packets,
        socket,
        ..
    } = &flood;
    let (is_over, sent) = (AtomicBool::new(false), AtomicU64::new(0));
    let own = || figure_of(std::process::id(), "RssAnon:").expect("procfs");
    let program = || {
        assert_eq!(names(), ["A", "B"]);
        let cl = Fixture::on(devices()[0]);
        let buffer = cl.buffer(CL_MEM_READ_WRITE, 4096);
        // Warms up.
        round_trip(&cl, buffer, Duration::from_secs(2));
        let quiet = round_trip(&cl, buffer, Duration::from_secs(10));
        let before = own();
        std::thread::scope(|scope| {
            let ends = Ends(&is_over);
            scope.spawn(|| send(socket, packets, &is_over, &sent));
            let begun = Instant::now();
            let (mut flooded, mut most, mut of_announcers) = (Vec::new(), 0, 0);
            while begun.elapsed() < LASTS {
                flooded.push(round_trip(&cl, buffer, Duration::from_secs(2)));
                // Asks again: the program reads the flood.
                assert_eq!(names(), ["A", "B"]);
                most = most.max(own());
                for pid in announcers_of(daemons) {
                    of_announcers = of_announcers.max(figure_of(pid, "VmHWM:").unwrap_or(0));
                }
            }
            drop(ends);
            flooded.sort_unstable();
            let (median, grown) = (flooded[flooded.len() / 2], most.saturating_sub(before));
            eprintln!(
                "a command and its finish: quiet {quiet:?}, in the flood {median:?} (x {:.3}); the program has grown by \
                 {grown} KiB; an announcer has had {of_announcers} KiB at most; {} MB were sent",
                median.as_secs_f64() / quiet.as_secs_f64(),
                sent.load(Ordering::Relaxed) / 1_000_000,
            );
            assert!(grown <= 8 << 10, "{grown} KiB");
            assert!(of_announcers <= 64 << 10, "{of_announcers} KiB");
        });
        ok!(clReleaseMemObject(buffer));
    };
    network.host(0).enter(program).expect("the host's network");
}
