//! Measured links, beside iperf3, and other ends that do not do what they should.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream, UdpSocket};
use std::path::PathBuf;
use std::process::Stdio;
use std::time::{Duration, Instant};

use causeway::config::ServerSettings;
use causeway::transport::links::{links_of, measure_link};
use causeway_links::{Terms, lanes};
use causeway_network::{Host, Network, Rate, Shape};
use causeway_proto::control::{Link, LinkEnd};
use causeway_proto::id::{SessionId, SessionSecret};
use causeway_proto::preamble::{
    CLIENT_PROOF, Greeting, PREAMBLE, Preamble, check_client_proof, worker_proof,
};
use causeway_proto::status::WireError;

use crate::frames::servers::*;
use crate::stage::*;

/// The hosts of the nodes; host 0 is the client.
pub(crate) const ONE: usize = 1;
pub(crate) const OTHER: usize = 2;

/// A client and two nodes.
pub(crate) struct Pair {
    network: Stage,
    certificates: Certificates,
    pub(crate) daemons: [Daemon; 2],
}

impl Pair {
    fn new(builder: causeway_network::Builder) -> Option<Pair> {
        Pair::configured(builder, ["", ""])
    }

    /// With these texts as the nodes' `daemon.toml`.
    pub(crate) fn configured(builder: causeway_network::Builder, texts: [&str; 2]) -> Option<Pair> {
        let network = build(builder.hosts(3))?;
        let certificates = Certificates::new();
        certificates.user("alice");
        let daemons = [(ONE, "gpu1"), (OTHER, "gpu2")].map(|(host, name)| {
            certificates.node(name);
            let file = certificates.path(&format!("{name}.toml"));
            write(&file, texts[host - 1].as_bytes());
            let config = ["--config".to_owned(), file.display().to_string()];
            let flags = [certificates.flags(name), config.to_vec()].concat();
            quiet(network.host(host), name, &flags)
        });
        Some(Pair {
            network,
            certificates,
            daemons,
        })
    }

    pub(crate) fn host(&self, number: usize) -> &Host {
        self.network.host(number)
    }

    pub(crate) fn server(&self, number: usize) -> ServerSettings {
        let name = format!("gpu{number}");
        let daemon = &self.daemons[number - 1];
        server(self.host(number), daemon, &self.certificates, &name)
    }

    /// Calls from the client's host.
    pub(crate) fn on_client<T: Send>(&self, call: impl FnOnce() -> T + Send) -> T {
        self.host(0).enter(call).expect("the host's network")
    }

    /// Makes the second node the other end of a measurement.
    pub(crate) fn end(&self, terms: &Terms) -> LinkEnd {
        let reply =
            self.on_client(|| measure_link(&self.server(OTHER), terms, false, no_claim(), None));
        reply.expect("it is free").end.expect("an end")
    }

    /// Has the first node measure the link to an end.
    pub(crate) fn measure(&self, terms: &Terms, end: LinkEnd) -> Result<Link, WireError> {
        let end = Some(end);
        let reply =
            self.on_client(|| measure_link(&self.server(ONE), terms, false, no_claim(), end))?;
        assert_eq!(reply.busy_ms, 0, "nothing else is measured");
        Ok(reply.link.expect("figures"))
    }

    pub(crate) fn network(&self) -> &Network {
        &self.network
    }

    /// The path of a file beside the certificates.
    pub(crate) fn path(&self, file: &str) -> PathBuf {
        self.certificates.path(file)
    }

    fn kept(&self) -> Vec<Link> {
        let kept = self.on_client(|| links_of(&self.server(ONE)));
        kept.expect("the figures")
    }
}

/// Nodes without a device manager need no claim.
pub(crate) fn no_claim() -> bytes::Bytes {
    bytes::Bytes::new()
}

pub(crate) fn terms(milliseconds: u64) -> Terms {
    Terms::new(Duration::from_millis(milliseconds), None).expect("valid")
}

/// Bytes per second from one host to the other by iperf3, without its first second. `None` if it is not installed.
pub(crate) fn iperf(network: &Network, from: usize, to: usize) -> Option<f64> {
    let address = network.host(to).address().to_string();
    // A client or server that hangs must not hang the test.
    let limited = |host: usize| {
        let mut command = network.host(host).command("timeout");
        command.args(["20", "iperf3", "--forceflush"]);
        command
    };
    let mut server = limited(to);
    server.args(["--server", "--one-off", "--bind", &address]);
    let mut server = server.stdout(Stdio::piped()).spawn().expect("timeout runs");
    let lines = BufReader::new(server.stdout.take().expect("its output")).lines();
    let mut lines = lines.map_while(Result::ok);
    if !lines.any(|line| line.contains("listening on")) {
        eprintln!("skipped: iperf3 is not installed");
        server.wait().expect("the server's status");
        return None;
    }
    let mut client = limited(from);
    client.args(["--client", &address, "--json", "--omit", "1", "--time", "2"]);
    let output = client.output().expect("timeout runs");
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    drop(lines);
    server.wait().expect("the server ends after one client");
    let sum = &text[text.find("sum_received").expect("a sum")..];
    let rate = sum.split("\"bits_per_second\":").nth(1).expect("a rate");
    let rate = rate.split([',', '}']).next().expect("a number").trim();
    Some(rate.parse::<f64>().expect("a number") / 8.0)
}

/// The shortest round trip of small datagrams, which the kernel and a thread on the other host answer.
fn datagrams(network: &Network, from: usize, to: usize) -> Duration {
    let socket = |host: usize| {
        let host = network.host(host);
        let address = (host.address(), 0);
        let socket = host
            .enter(|| UdpSocket::bind(address))
            .expect("the host's network");
        let socket = socket.expect("a free port");
        socket.set_read_timeout(Some(PATIENCE)).expect("a timeout");
        socket
    };
    let (one, other) = (socket(from), socket(to));
    one.connect(other.local_addr().expect("an address"))
        .expect("connected");
    const COUNT: usize = 20;
    std::thread::scope(|scope| {
        scope.spawn(move || {
            for _ in 0..COUNT {
                let mut bytes = [0; 9];
                let (_, at) = other.recv_from(&mut bytes).expect("a datagram");
                other.send_to(&bytes, at).expect("sent");
            }
        });
        let trip = |_| {
            let begun = Instant::now();
            one.send(&[7; 9]).expect("sent");
            one.recv(&mut [0; 9]).expect("the answer");
            begun.elapsed()
        };
        (0..COUNT).map(trip).min().expect("several")
    })
}

pub(crate) fn is_near(measured: u64, expected: f64) -> bool {
    (measured as f64 / expected - 1.0).abs() <= 0.1
}

#[test]
fn links_of_several_speeds_are_as_iperf_sees_them() {
    let processors = std::thread::available_parallelism().map_or(1, usize::from);
    for rate in [Rate::mbit(100), Rate::gbit(1)] {
        // Both ends share the processors, and TLS needs much of them.
        if rate == Rate::gbit(1) && processors < 4 {
            eprintln!("skipped: {rate} needs four processors");
            continue;
        }
        let builder = Network::builder().host_rate(OTHER, rate).hosts(3);
        let Some(pair) = Pair::new(builder.host_rate(ONE, rate)) else {
            return;
        };
        let Some(there) = iperf(&pair.network, ONE, OTHER) else {
            return;
        };
        let back = iperf(&pair.network, OTHER, ONE).expect("it is installed");
        let terms = terms(1000);
        let end = pair.end(&terms);
        let link = pair.measure(&terms, end).expect("figures");
        eprintln!("{rate}: iperf3 {there:.0}, {back:.0} B/s; {link:?}");
        assert!(is_near(link.outward, there) && is_near(link.inward, back));
        assert!(link.tls);
        assert_eq!(link.to, pair.server(OTHER).address.to_string());
        assert_eq!(link.from, pair.host(ONE).address().to_string());
        assert_eq!(pair.kept(), [link]);
    }
}

#[test]
fn a_delay_is_the_round_trip() {
    let delay = Shape::delayed(Duration::from_millis(2));
    let Some(pair) = Pair::new(Network::builder().link(ONE, OTHER, delay).hosts(3)) else {
        return;
    };
    let terms = terms(100);
    let end = pair.end(&terms);
    let link = pair.measure(&terms, end).expect("figures");
    let least = Duration::from_nanos(link.least_ns);
    let datagrams = datagrams(&pair.network, ONE, OTHER);
    eprintln!(
        "datagrams {datagrams:?}, measured {least:?}, median {} ns",
        link.median_ns
    );
    assert!(least >= Duration::from_millis(4));
    // Without optimization, TLS takes a part of the time.
    let most = match cfg!(debug_assertions) {
        true => Duration::from_millis(1),
        false => Duration::from_micros(100),
    };
    assert!(least.abs_diff(datagrams) <= most);
    assert_eq!(link.lost, 0);
}

#[test]
fn a_long_way_and_one_that_loses_packets_are_measured() {
    let of = |delay, loss| Shape {
        loss,
        rate: Some(Rate::mbit(100)),
        ..Shape::delayed(Duration::from_millis(delay))
    };
    // Each connection takes four round trips, and a lost first segment a second.
    for (delay, loss, share) in [(75, 0.0, 0.5), (5, 0.01, 0.0)] {
        let builder = Network::builder().link(ONE, OTHER, of(delay, loss));
        let Some(pair) = Pair::new(builder.hosts(3)) else {
            return;
        };
        let terms = terms(3_000);
        let end = pair.end(&terms);
        let link = pair.measure(&terms, end).expect("figures");
        eprintln!("{delay} ms each way, loss {loss}: {link:?}");
        assert!(Duration::from_nanos(link.least_ns) >= Duration::from_millis(2 * delay));
        for rate in [link.outward, link.inward] {
            // What waits in a buffer when the time that counts begins comes in addition.
            let of_rate = rate as f64 / 12_500_000.0;
            assert!(of_rate > share && of_rate <= 1.3, "{of_rate}");
        }
    }
}

/// What an end does that has proved the secret.
#[derive(Clone, Copy, Debug)]
enum Does {
    Nothing,
    Floods,
    Ends,
}

/// An end that proves the secret on each connection, and then does this. Returns what the node is told about it.
fn hostile(host: &Host, does: Does) -> LinkEnd {
    let address = (host.address(), 0);
    let listener = host
        .enter(|| TcpListener::bind(address))
        .expect("the host's network");
    let listener = listener.expect("a free port");
    let end = LinkEnd {
        id: vec![3; 16].into(),
        secret: vec![4; 32].into(),
        addresses: vec![listener.local_addr().expect("an address").to_string()],
        node_uuid: vec![9; 16].into(),
        node_name: "hostile".to_owned(),
        ..LinkEnd::default()
    };
    std::thread::spawn(move || {
        let threads = (0..lanes::ALL).map(|_| {
            let (socket, _) = listener.accept()?;
            Ok(std::thread::spawn(move || misbehave(socket, does)))
        });
        // Until all threads have ended, no connection closes by itself.
        let threads: std::io::Result<Vec<_>> = threads.collect();
        threads.map(|threads| threads.into_iter().all(|of| of.join().is_ok()))
    });
    end
}

fn misbehave(mut socket: TcpStream, does: Does) -> std::io::Result<()> {
    let mut preamble = [0; PREAMBLE];
    socket.read_exact(&mut preamble)?;
    let introduction = Preamble::decode(&preamble).map_err(std::io::Error::other)?;
    assert!(introduction.is_for(&SessionId([3; 16])));
    let greeting = Greeting::welcome();
    socket.write_all(&greeting.encode())?;
    let mut proof = [0; CLIENT_PROOF];
    socket.read_exact(&mut proof)?;
    let secret = SessionSecret([4; 32]);
    let nonce = &greeting.nonce;
    assert!(check_client_proof(&secret, &preamble, nonce, &proof).is_some());
    socket.write_all(&worker_proof(&secret, &preamble, nonce, &proof, 0))?;
    match does {
        Does::Ends => Ok(()),
        // Until the node closes the connection.
        Does::Nothing => std::io::copy(&mut socket, &mut std::io::sink()).map(drop),
        Does::Floods => loop {
            socket.write_all(&[0x50; 4096])?;
        },
    }
}

#[test]
fn an_end_that_misbehaves_ends_in_time_and_changes_no_figure() {
    let Some(pair) = Pair::new(Network::builder()) else {
        return;
    };
    let short = terms(200);
    let end = pair.end(&short);
    pair.measure(&short, end).expect("figures");
    let before = pair.kept();
    let within = |what: &str, measure: &dyn Fn() -> Result<Link, WireError>| {
        let begun = Instant::now();
        let error = measure().expect_err(what);
        let took = begun.elapsed();
        eprintln!("{what}: {took:?}, {error}");
        took
    };
    for does in [Does::Nothing, Does::Floods, Does::Ends] {
        let end = hostile(pair.host(OTHER), does);
        let what = format!("{does:?}");
        let took = within(&what, &|| pair.measure(&short, end.clone()));
        assert!(
            took < short.limit() + Duration::from_secs(1),
            "{what}: {took:?}"
        );
    }
    // Another's measurement: the node that answers knows no such id.
    let stolen = LinkEnd {
        addresses: vec![pair.server(OTHER).address.to_string()],
        ..hostile(pair.host(OTHER), Does::Nothing)
    };
    let took = within("a wrong id", &|| pair.measure(&short, stolen.clone()));
    assert!(took < short.limit() + Duration::from_secs(1), "{took:?}");
    // The right id with a wrong secret.
    let end = pair.end(&short);
    let wrong = LinkEnd {
        secret: vec![5; 32].into(),
        ..end
    };
    let took = within("a wrong secret", &|| pair.measure(&short, wrong.clone()));
    assert!(took < short.limit() + Duration::from_secs(1), "{took:?}");
    assert_eq!(pair.kept(), before);
}

#[test]
fn a_cut_ends_a_measurement_in_time_and_the_next_one_works() {
    let Some(pair) = Pair::new(Network::builder().rate(Rate::mbit(100))) else {
        return;
    };
    let long = terms(1500);
    let end = pair.end(&long);
    let begun = Instant::now();
    let result = std::thread::scope(|scope| {
        let measuring = scope.spawn(|| pair.measure(&long, end));
        // The stream has begun when so much has crossed the cable.
        let before = pair.network.traffic().expect("counters");
        eventually("the stream", || {
            let since = pair.network.traffic().expect("counters").since(&before);
            (since.between(ONE, OTHER) > 1 << 20).then_some(())
        });
        pair.network.link(ONE, OTHER).cut().expect("nft");
        measuring.join().expect("no panic")
    });
    let took = begun.elapsed();
    eprintln!("a cut: {took:?}, {result:?}");
    assert!(result.is_err());
    assert!(took < long.limit() + Duration::from_secs(1), "{took:?}");
    assert_eq!(pair.kept(), []);
    pair.network.link(ONE, OTHER).mend().expect("nft");
    let short = terms(200);
    // The other end may still wait for its own time to pass.
    let end = eventually("a free node", || {
        let asked = || measure_link(&pair.server(OTHER), &short, false, no_claim(), None);
        let reply = pair.on_client(asked).expect("an answer");
        reply.end
    });
    pair.measure(&short, end).expect("figures");
    assert_eq!(pair.kept().len(), 1);
}

#[test]
fn figures_are_their_users_and_a_busy_node_says_how_long() {
    let Some(pair) = Pair::new(Network::builder()) else {
        return;
    };
    let short = terms(100);
    let end = pair.end(&short);
    pair.measure(&short, end).expect("figures");
    pair.certificates.user("bob");
    let of_bob = |number: usize| {
        let mut server = pair.server(number);
        server.tls.certificate = Some(pair.certificates.path("bob.pem"));
        server.tls.key = Some(pair.certificates.path("bob.key"));
        server
    };
    let seen = pair.on_client(|| links_of(&of_bob(ONE)));
    assert_eq!(
        (seen.expect("an answer"), pair.kept().len()),
        (Vec::new(), 1)
    );
    // The node waits for somebody who dials, and serves nobody else meanwhile.
    let long = terms(4_000);
    let end = pair.end(&long);
    let ask = |terms: &Terms, is_forced| {
        pair.on_client(|| measure_link(&of_bob(OTHER), terms, is_forced, no_claim(), None))
    };
    let busy = ask(&short, false).expect("an answer");
    let longest = long.limit() + Duration::from_secs(1);
    assert!(busy.end.is_none() && busy.busy_ms > 0);
    assert!(u128::from(busy.busy_ms) <= longest.as_millis(), "{busy:?}");
    let refused = ask(&short, true);
    assert!(
        matches!(refused, Err(WireError::Refused { .. })),
        "{refused:?}"
    );
    drop(end);
}
