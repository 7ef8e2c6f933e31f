//! What measurements cost a program beside them, and figures of links that lose packets or are fast. By name, because the
//! figures need an idle machine: `cargo test --test discovery -- --ignored measured_proof`.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use causeway::transport::links::measure_link;
use causeway_network::{Host, Network, Rate};

use crate::frames::servers::*;
use crate::measured::*;
use crate::stage;

/// Number of windows with a measurement, and of windows without one.
const WINDOWS: usize = 4;
/// Length of a window without a measurement.
const WINDOW: Duration = Duration::from_millis(2_500);
/// The default of `causeway links --measure`.
const DEFAULT_MS: u64 = 500;

fn median(mut of: Vec<f64>) -> f64 {
    of.sort_by(f64::total_cmp);
    of[of.len() / 2]
}

/// What a program does while something is measured beside it, and without, by turns: the medians. `step` is one step of
/// the program; `beside` measures once.
fn alternately(step: &dyn Fn(), beside: &(dyn Fn() + Sync)) -> (f64, f64) {
    let steps = |goes_on: &dyn Fn(Duration) -> bool| {
        let begun = Instant::now();
        let mut count = 0;
        while goes_on(begun.elapsed()) {
            step();
            count += 1;
        }
        f64::from(count) / begun.elapsed().as_secs_f64()
    };
    let window = |since| since < WINDOW;
    let (mut with, mut without) = (Vec::new(), Vec::new());
    steps(&window);
    for _ in 0..WINDOWS {
        without.push(steps(&window));
        with.push(std::thread::scope(|scope| {
            let measuring = scope.spawn(beside);
            // No step counts after the measurement: it would hide what the others have lost.
            let rate = steps(&|_| !measuring.is_finished());
            measuring.join().expect("no panic");
            rate
        }));
    }
    (median(with), median(without))
}

/// What a program does in a minute, in steps a second, while `beside` asks for a measurement every six seconds: in all of it,
/// and outside of what was asked. Beside an active session a node measures for 5 s of a minute by default, and a measurement
/// takes one. One minute has both, because machines are not equally fast in two.
fn a_minute(step: &dyn Fn(), beside: &(dyn Fn() + Sync)) -> (f64, f64) {
    const MINUTE: Duration = Duration::from_secs(60);
    let begun = Instant::now();
    let asks = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for tenth in 0..10 {
                let at = tenth * MINUTE / 10;
                std::thread::sleep(at.saturating_sub(begun.elapsed()));
                asks.store(true, Ordering::Relaxed);
                beside();
                asks.store(false, Ordering::Relaxed);
            }
        });
        let (mut all, mut outside, mut took) = (0, 0, Duration::ZERO);
        while begun.elapsed() < MINUTE {
            let (at, is_inside) = (Instant::now(), asks.load(Ordering::Relaxed));
            step();
            all += 1;
            if !is_inside {
                (outside, took) = (outside + 1, took + at.elapsed());
            }
        }
        let rate = |count: u32, took: Duration| f64::from(count) / took.as_secs_f64();
        (rate(all, begun.elapsed()), rate(outside, took))
    })
}

#[test]
#[ignore = "a measurement, by name"]
fn a_program_beside_a_measurement_loses_little() {
    own_process!(waits);
    let rate = Rate::gbit(1);
    let builder = Network::builder().hosts(3);
    let builder = (0..3).fold(builder, |builder, host| builder.host_rate(host, rate));
    let Some(pair) = Pair::configured(builder, ["", ""]) else {
        return;
    };
    let address = pair.server(ONE).address;
    let settings = format!(
        "[tls]\nca = \"ca.pem\"\ncertificate = \"alice.pem\"\nkey = \"alice.key\"\n\
         [[server]]\naddress = \"{address}\"\ntls_name = \"gpu1\"\n"
    );
    stage::configure(&pair.path("servers.toml"), &settings);
    let terms = terms(DEFAULT_MS);
    let measured = AtomicUsize::new(0);
    // A node that is busy with sessions refuses.
    let beside = || {
        let end = match measure_link(&pair.server(OTHER), &terms, false, no_claim(), None) {
            Ok(reply) => reply.end,
            Err(error) => return eprintln!("not dialled: {error}"),
        };
        match measure_link(&pair.server(ONE), &terms, false, no_claim(), end) {
            Ok(reply) => {
                measured.fetch_add(usize::from(reply.link.is_some()), Ordering::Relaxed);
            }
            Err(error) => eprintln!("not measured: {error}"),
        }
    };
    let beside = || pair.on_client(beside);
    let program = || {
        let cl = Fixture::on(devices()[0]);
        let buffer = cl.buffer(CL_MEM_READ_WRITE, 8 << 20);
        let bytes = pattern(1, 8 << 20);
        // A program that computes, and moves less than a node counts as traffic. This one is first, because attempts in
        // vain use up the user's minute.
        let compute = || {
            cl.read(buffer, 0, 4);
            std::thread::sleep(Duration::from_millis(1));
        };
        let (with, without) = a_minute(&compute, &beside);
        let reads = with / without;
        let count = measured.swap(0, Ordering::Relaxed);
        eprintln!(
            "reads of 4 bytes, and 1 ms: {with:.0} a second in a minute with {count} measurements, {without:.0} outside of \
             them: {reads:.3}"
        );
        // The node is busy for the other five.
        assert!((4..=5).contains(&count), "{count} measurements");
        let transfer = || cl.write(buffer, 0, &bytes);
        let (with, without) = alternately(&transfer, &beside);
        let transfers = with / without;
        eprintln!(
            "writes of 8 MiB: {with:.2} a second beside measurements, {without:.2} alone: {transfers:.3}"
        );
        assert_eq!(measured.load(Ordering::Relaxed), 0, "sessions come first");
        assert!(transfers >= 0.95 && reads >= 0.95, "{transfers} {reads}");
        ok!(clReleaseMemObject(buffer));
    };
    pair.host(0).enter(program).expect("the host's network");
}

/// Loses so many of a thousand packets that reach a host.
fn lose(host: &Host, of_thousand: u32) {
    let rules = format!(
        "add table inet loss; add chain inet loss input {{ type filter hook input priority 0; }}; flush chain inet loss input; \
         add rule inet loss input iifname != \"lo\" numgen random mod 1000 < {of_thousand} drop"
    );
    let output = host.command("nft").arg(rules).output().expect("nft runs");
    assert!(output.status.success(), "{output:?}");
}

#[test]
#[ignore = "a measurement, by name"]
fn a_link_that_loses_packets_is_as_iperf_sees_it_and_its_probes_show_the_loss() {
    let processors = std::thread::available_parallelism().map_or(1, usize::from);
    let rate = Rate::mbit(100);
    let builder = Network::builder().host_rate(OTHER, rate).hosts(3);
    let Some(pair) = Pair::configured(builder.host_rate(ONE, rate), ["", ""]) else {
        return;
    };
    let both = |of_thousand| [ONE, OTHER].map(|of| lose(pair.host(of), of_thousand));
    both(5);
    let Some(there) = iperf(pair.network(), ONE, OTHER) else {
        return;
    };
    let back = iperf(pair.network(), OTHER, ONE).expect("it is installed");
    let long = terms(2_000);
    let end = pair.end(&long);
    let link = pair.measure(&long, end).expect("figures");
    eprintln!("loss 0.5 %: iperf3 {there:.0}, {back:.0} B/s; {link:?}");
    let figures = (link.outward, link.inward);
    // Connections may lose their first packets, which takes seconds.
    both(100);
    let short = terms(100);
    let lost = eventually("probes that are lost", || {
        let end = measure_link_of(&pair, &short)?;
        let link = pair.measure(&short, end).ok()?;
        eprintln!("loss 10 %: {link:?}");
        (link.lost > 0).then_some(link.lost)
    });
    assert!(lost <= 11);
    if processors < 4 {
        eprintln!("not judged below four processors: {figures:?}");
        return;
    }
    assert!(is_near(figures.0, there) && is_near(figures.1, back));
}

/// Makes the second node the other end, if it is free.
fn measure_link_of(
    pair: &Pair,
    terms: &causeway_links::Terms,
) -> Option<causeway_proto::control::LinkEnd> {
    let asked = || measure_link(&pair.server(OTHER), terms, false, no_claim(), None);
    pair.on_client(asked).ok()?.end
}

#[test]
#[ignore = "a measurement, by name"]
fn a_link_of_10_gbit_is_as_iperf_sees_it() {
    let processors = std::thread::available_parallelism().map_or(1, usize::from);
    let rate = Rate::gbit(10);
    let builder = Network::builder().host_rate(OTHER, rate).hosts(3);
    let Some(pair) = Pair::configured(builder.host_rate(ONE, rate), ["", ""]) else {
        return;
    };
    let Some(there) = iperf(pair.network(), ONE, OTHER) else {
        return;
    };
    let back = iperf(pair.network(), OTHER, ONE).expect("it is installed");
    let long = terms(2_000);
    let end = pair.end(&long);
    let link = pair.measure(&long, end).expect("figures");
    eprintln!("{rate}: iperf3 {there:.0}, {back:.0} B/s; {link:?}");
    // Both ends encrypt 1.25 GB/s each.
    if processors < 8 || cfg!(debug_assertions) {
        eprintln!("not judged below eight processors, or without optimization");
        return;
    }
    assert!(is_near(link.outward, there) && is_near(link.inward, back));
}
