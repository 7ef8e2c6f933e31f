//! Real hosts: how many bytes cross each link, and faults between two nodes.
//!
//! Each case has its own network (`causeway-network`). Host 0 is the client's; the others have one node
//! each. The counters count bytes that arrived at a host, with all headers. Invariant: a case knows what
//! must cross each link, and checks that the rest of the network stayed quiet.

use std::thread;
use std::time::{Duration, Instant};

use causeway_network::{Builder, Network, Rate, Shape, Traffic};

use super::running::{Ended, RunningProgram};
use super::stage::{Driver, LOOK, Node, PATIENCE, Stage, Way};
use super::{Fault, Wrong, in_time};
use crate::case::Verdict;
use crate::process::Exit;

/// All cases.
pub(super) const CASES: &[(&str, Fault)] = &[
    ("bytes-ping-pong", ping_pong),
    ("bytes-const-on-8-nodes", constant),
    ("bytes-halves", halves),
    ("bytes-rectangles", rectangles),
    ("no-path-between-nodes", no_path),
    ("one-way-between-nodes", one_way),
    ("one-way-back-between-nodes", one_way_back),
    ("link-cut-in-a-transfer", cut_in_a_transfer),
    ("link-cut-and-mended-in-a-transfer", cut_and_mended),
    ("node-unplugged-and-plugged", node_plugged),
    ("node-killed", node_killed),
    ("node-unplugged", node_unplugged),
    ("delayed-coherence", delayed_coherence),
    ("delayed-graphs", delayed_graphs),
];

const MIB: u64 = 1 << 20;

/// How long a network is cut in cases in which the program goes on.
const CUT_FOR: Duration = Duration::from_secs(8);

/// Limit for calls, completions and acknowledgements on a link without data.
const QUIET: u64 = MIB;

/// The client's program and its nodes on a network.
struct Scene {
    program: RunningProgram,
    nodes: Vec<Node>,
    network: Network,
}

impl Scene {
    /// Runs `programs/hosts.c` on a network of the client and this number of nodes.
    fn hosts(stage: &Stage, nodes: usize, arguments: &[&str]) -> Result<Self, Wrong> {
        let builder = Network::builder().hosts(1 + nodes);
        Self::open(stage, builder, nodes, |_| Ok(()), "hosts", arguments)
    }

    fn open(
        stage: &Stage,
        builder: Builder,
        nodes: usize,
        prepare: impl FnOnce(&Network) -> Result<(), Wrong>,
        program: &str,
        arguments: &[&str],
    ) -> Result<Self, Wrong> {
        Self::open_by(stage, builder, nodes, prepare, program, arguments, |way| {
            way
        })
    }

    /// As [`Self::open`]; the program waits for nodes that are away.
    fn resuming(
        stage: &Stage,
        builder: Builder,
        nodes: usize,
        arguments: &[&str],
    ) -> Result<Self, Wrong> {
        let prepare = |_: &Network| Ok(());
        Self::open_by(stage, builder, nodes, prepare, "hosts", arguments, |way| {
            way.resuming()
        })
    }

    fn open_by(
        stage: &Stage,
        builder: Builder,
        nodes: usize,
        prepare: impl FnOnce(&Network) -> Result<(), Wrong>,
        program: &str,
        arguments: &[&str],
        change: impl FnOnce(Way<'_>) -> Way<'_>,
    ) -> Result<Self, Wrong> {
        let network = match builder.build() {
            Err(error) if error.is_unavailable() => return Err(Wrong::Skipped(error.to_string())),
            network => network?,
        };
        prepare(&network)?;
        let fake = Driver::Fake("kernel.fails.fail = -5");
        let nodes = (1..=nodes)
            .map(|host| Node::start_on(stage, fake, Some(network.host(host))))
            .collect::<Result<Vec<_>, _>>()?;
        let mut way = Way::to(nodes[0].address()).from(network.host(0));
        for node in &nodes[1..] {
            way = way.and(node.address());
        }
        let program = stage.programs.path(program)?;
        let program = RunningProgram::with(stage, &program, arguments, &change(way))?;
        Ok(Self {
            program,
            nodes,
            network,
        })
    }

    /// Waits until the program reaches a place. Returns the traffic since the network was made.
    fn at(&mut self, place: &str) -> Result<Traffic, Wrong> {
        self.program.until(place)?;
        Ok(self.network.traffic()?)
    }

    /// Lets the program continue to the next place. Returns the traffic on the way.
    fn on_to(&mut self, place: &str) -> Result<Traffic, Wrong> {
        let before = self.network.traffic()?;
        self.program.go_on()?;
        Ok(self.at(place)?.since(&before))
    }

    /// Lets the program continue to its end; its output must contain this line.
    fn finish(mut self, says: &str) -> Result<Ended, Wrong> {
        self.program.go_on()?;
        let end = self.program.end(PATIENCE)?;
        end.assert_said(says)?;
        Ok(end)
    }
}

/// Checks that the given number of bytes crossed each named link, and almost none the others.
fn assert_moved(
    place: &str,
    traffic: &Traffic,
    wanted: &[((usize, usize), u64)],
) -> Result<String, Wrong> {
    let mut told = Vec::new();
    for from in 0..traffic.hosts() {
        for to in (0..traffic.hosts()).filter(|to| *to != from) {
            let bytes = traffic.bytes(from, to);
            let wanted = wanted.iter().find(|(link, _)| *link == (from, to));
            let wanted = wanted.map_or(0, |(_, bytes)| *bytes);
            // Headers add about a twentieth, and acknowledgements of the other direction are small.
            let most = wanted + wanted / 10 + QUIET;
            if bytes < wanted || bytes > most {
                return Err(Wrong::new(format!(
                    "{place}: {bytes} bytes crossed from host {from} to {to}, not {wanted}"
                )));
            }
            if wanted > 0 {
                told.push(format!("{from}→{to} {:.1} MiB", bytes as f64 / MIB as f64));
            }
        }
    }
    Ok(format!("{place}: {}", told.join(", ")))
}

fn ping_pong(stage: &Stage) -> Result<Verdict, Wrong> {
    let mut scene = Scene::hosts(stage, 2, &["pingpong", "64", "4"])?;
    scene.at("filled")?;
    let moved = scene.on_to("stepped")?;
    let told = assert_moved(
        "4 steps of 64 MiB",
        &moved,
        &[((1, 2), 128 * MIB), ((2, 1), 128 * MIB)],
    )?;
    scene.finish("first 11, last 11")?;
    Ok(Verdict::Noted(told))
}

fn constant(stage: &Stage) -> Result<Verdict, Wrong> {
    const NODES: usize = 8;
    let mut scene = Scene::hosts(stage, NODES, &["const", "16", "8"])?;
    let before = scene.at("opened")?;
    scene.on_to("written")?;
    scene.on_to("read")?;
    let moved = scene.network.traffic()?.since(&before);
    let from_client: u64 = (1..=NODES).map(|node| moved.bytes(0, node)).sum();
    let to_nodes: u64 = (1..=NODES)
        .flat_map(|from| (1..=NODES).map(move |to| (from, to)))
        .filter(|(from, to)| from != to)
        .map(|(from, to)| moved.bytes(from, to))
        .sum();
    let back: u64 = (1..=NODES).map(|node| moved.bytes(node, 0)).sum();
    let others = (NODES as u64 - 1) * 16 * MIB;
    let fits = |bytes, wanted| (wanted..=wanted + wanted / 10 + 2 * QUIET).contains(&bytes);
    if !fits(from_client, 16 * MIB) || !fits(to_nodes, others) || back > 2 * QUIET {
        return Err(Wrong::new(format!(
            "{from_client} bytes from the client, {to_nodes} between nodes, {back} to the client"
        )));
    }
    let most = (1..=NODES)
        .map(|from| {
            (1..=NODES)
                .filter(|to| *to != from)
                .map(|to| moved.bytes(from, to))
                .sum()
        })
        .max()
        .unwrap_or(0_u64);
    scene.finish("8 devices right")?;
    let mib = |bytes: u64| bytes as f64 / MIB as f64;
    Ok(Verdict::Noted(format!(
        "16 MiB for 8 nodes: {:.1} MiB from the client, {:.1} between nodes, {:.1} from the busiest",
        mib(from_client),
        mib(to_nodes),
        mib(most)
    )))
}

fn halves(stage: &Stage) -> Result<Verdict, Wrong> {
    let mut scene = Scene::hosts(stage, 2, &["halves", "32"])?;
    scene.at("opened")?;
    let apart = assert_moved("halves apart", &scene.on_to("halves")?, &[])?;
    let whole = assert_moved(
        "the whole on one",
        &scene.on_to("whole")?,
        &[((2, 1), 16 * MIB)],
    )?;
    let piece = assert_moved("a piece back", &scene.on_to("piece")?, &[((1, 2), 4 * MIB)])?;
    scene.finish("words 9 10 10")?;
    Ok(Verdict::Noted([apart, whole, piece].join("; ")))
}

fn rectangles(stage: &Stage) -> Result<Verdict, Wrong> {
    let mut scene = Scene::hosts(stage, 2, &["rects", "32"])?;
    scene.at("opened")?;
    let written = assert_moved(
        "half rows written",
        &scene.on_to("written")?,
        &[((0, 1), 16 * MIB), ((0, 2), 16 * MIB)],
    )?;
    let copied = assert_moved("copied in place", &scene.on_to("copied")?, &[])?;
    let gathered = assert_moved(
        "gathered",
        &scene.on_to("done")?,
        &[((1, 0), 16 * MIB), ((2, 0), 16 * MIB)],
    )?;
    scene.finish("gathered right")?;
    Ok(Verdict::Noted([written, copied, gathered].join("; ")))
}

fn no_path(stage: &Stage) -> Result<Verdict, Wrong> {
    let begin = Instant::now();
    let builder = Network::builder().hosts(3);
    let cut = |network: &Network| Ok(network.link(1, 2).cut()?);
    let mut scene = Scene::open(stage, builder, 2, cut, "hosts", &["pingpong", "8", "2"])?;
    scene.at("filled")?;
    let moved = scene.on_to("stepped")?;
    let told = assert_moved(
        "through the client",
        &moved,
        &[
            ((1, 0), 8 * MIB),
            ((0, 2), 8 * MIB),
            ((2, 0), 8 * MIB),
            ((0, 1), 8 * MIB),
        ],
    )?;
    let end = scene.finish("first 9, last 9")?;
    let said = end
        .warned
        .lines()
        .filter(|line| line.contains("cannot connect to each other"));
    if said.count() != 1 {
        return Err(end.wrong("its log should say once that there is no path"));
    }
    in_time(told, begin.elapsed(), PATIENCE)
}

fn one_way(stage: &Stage) -> Result<Verdict, Wrong> {
    refused(stage, 1, 2)
}

fn one_way_back(stage: &Stage) -> Result<Verdict, Wrong> {
    refused(stage, 2, 1)
}

/// One node cannot dial the other, so the other dials.
fn refused(stage: &Stage, from: usize, to: usize) -> Result<Verdict, Wrong> {
    let builder = Network::builder().hosts(3);
    let refuse = |network: &Network| Ok(network.one_way(from, to).refuse_dialling()?);
    let mut scene = Scene::open(stage, builder, 2, refuse, "hosts", &["pingpong", "8", "2"])?;
    scene.at("filled")?;
    let moved = scene.on_to("stepped")?;
    let links = [((1, 2), 8 * MIB), ((2, 1), 8 * MIB)];
    let told = assert_moved("dialled the other way", &moved, &links)?;
    scene.finish("first 9, last 9")?;
    Ok(Verdict::Noted(told))
}

/// Three hosts, of which the nodes have a slow link: 64 MiB take five seconds.
fn slow_link() -> Builder {
    let slow = Shape {
        rate: Some(Rate::mbit(100)),
        ..Shape::default()
    };
    Network::builder().hosts(3).link(1, 2, slow)
}

/// Lets the program begin a transfer between its two nodes.
fn begin_transfer(scene: &mut Scene) -> Result<(), Wrong> {
    let before = scene.at("filled")?;
    scene.program.go_on()?;
    let patience = Instant::now() + PATIENCE;
    while scene.network.traffic()?.since(&before).bytes(1, 2) < 2 * MIB {
        if Instant::now() > patience {
            return Err(Wrong::new("no transfer between the nodes has begun"));
        }
        thread::sleep(LOOK);
    }
    Ok(())
}

/// The link is cut in a transfer, for longer than the nodes wait for a sign of each other. Then the transfer ends.
fn cut_and_mended(stage: &Stage) -> Result<Verdict, Wrong> {
    let mut scene = Scene::resuming(stage, slow_link(), 2, &["pingpong", "64", "1"])?;
    begin_transfer(&mut scene)?;
    scene.network.link(1, 2).cut()?;
    // This sleep waits for nothing: the silence itself is the fault.
    thread::sleep(CUT_FOR);
    scene.network.link(1, 2).mend()?;
    let begin = Instant::now();
    scene.program.until("stepped")?;
    let took = begin.elapsed();
    scene.finish("first 8, last 8")?;
    in_time("nothing: went on", took, Duration::from_secs(20))
}

/// A node without its cable for a while loses nothing.
fn node_plugged(stage: &Stage) -> Result<Verdict, Wrong> {
    let builder = Network::builder().hosts(4);
    let mut scene = Scene::resuming(stage, builder, 3, &["lost", "8"])?;
    scene.at("placed")?;
    scene.network.host(2).unplug()?;
    scene.program.go_on()?;
    // This sleep waits for nothing: the silence itself is the fault.
    thread::sleep(CUT_FOR);
    scene.network.host(2).plug()?;
    let begin = Instant::now();
    let end = scene.program.end(PATIENCE)?;
    let took = begin.elapsed();
    let half = |line: &&String| line.starts_with("of the lost half: ");
    match end.said.iter().find(half) {
        Some(line) if line.ends_with(": 0") => {
            in_time("nothing: went on", took, Duration::from_secs(20))
        }
        _ => Err(end.wrong("nothing should be lost")),
    }
}

fn cut_in_a_transfer(stage: &Stage) -> Result<Verdict, Wrong> {
    let arguments = ["pingpong", "64", "1"];
    let mut scene = Scene::open(stage, slow_link(), 2, |_| Ok(()), "hosts", &arguments)?;
    begin_transfer(&mut scene)?;
    let begin = Instant::now();
    scene.network.link(1, 2).cut()?;
    let end = scene.program.end(PATIENCE)?;
    let took = begin.elapsed();
    let saw = end.saw()?.to_owned();
    for node in &mut scene.nodes {
        node.assert_alive()?;
    }
    in_time(saw, took, Duration::from_secs(30))
}

fn node_killed(stage: &Stage) -> Result<Verdict, Wrong> {
    node_lost(stage, |scene| {
        for worker in scene.nodes[1].workers() {
            worker.kill();
        }
        scene.nodes[1].kill()
    })
}

fn node_unplugged(stage: &Stage) -> Result<Verdict, Wrong> {
    node_lost(stage, |scene| Ok(scene.network.host(2).unplug()?))
}

/// Loses one of three nodes. Data that only this node had is gone, and reads of it fail.
/// Everything else continues.
fn node_lost(
    stage: &Stage,
    lose: impl FnOnce(&mut Scene) -> Result<(), Wrong>,
) -> Result<Verdict, Wrong> {
    let mut scene = Scene::hosts(stage, 3, &["lost", "8"])?;
    scene.at("placed")?;
    lose(&mut scene)?;
    let begin = Instant::now();
    scene.program.go_on()?;
    let end = scene.program.end(PATIENCE)?;
    let took = begin.elapsed();
    end.assert_said("other half 1, shared 4, kept 3")?;
    end.assert_said("after: kept 4, only 9")?;
    let lost = end
        .said
        .iter()
        .find(|line| line.starts_with("of the lost half: "));
    match lost {
        Some(line) if !line.ends_with(": 0") => in_time(line, took, Duration::from_secs(15)),
        _ => Err(end.wrong("a read of what is lost should fail")),
    }
}

fn delayed_coherence(stage: &Stage) -> Result<Verdict, Wrong> {
    delayed(
        stage,
        "coherence",
        &["--devices", "3", "--rounds", "25", "--computes", "0"],
    )
}

fn delayed_graphs(stage: &Stage) -> Result<Verdict, Wrong> {
    delayed(
        stage,
        "graphs",
        &["--devices", "3", "--graphs", "60", "--failing", "1"],
    )
}

/// Runs one of our random programs on a network with a varying delay of every packet.
fn delayed(stage: &Stage, program: &str, arguments: &[&str]) -> Result<Verdict, Wrong> {
    let late = Shape {
        delay: Duration::from_millis(3),
        jitter: Duration::from_millis(2),
        ..Shape::default()
    };
    let builder = Network::builder().hosts(4).every_link(late).seed(5);
    let mut scene = Scene::open(stage, builder, 3, |_| Ok(()), program, arguments)?;
    let end = scene.program.end(3 * PATIENCE)?;
    match end.exit {
        Exit::Code(0) => Ok(Verdict::Noted(end.said.last().cloned().unwrap_or_default())),
        _ => Err(end.wrong("it should end well")),
    }
}
