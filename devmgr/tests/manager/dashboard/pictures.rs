//! The pictures of `devmgr/README.md`, which has the command, and the page's marks at 1,000 nodes. `CAUSEWAY_PICTURES`
//! is a folder, as seen from `devmgr`. The tests run one after another: the marks want a machine without other work.

use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use super::super::process::{Asked, DASHBOARD, Manager, request, waiting};
use super::super::real_node::{Daemon, library};
use super::super::tool::{Secured, Tool, said};
use super::browser::Browser;
use super::crowd::{DEVICES, SHARES, nodes};
use super::page::{Program, Site, length, rows, sign_in, until_there_are};

fn folder() -> PathBuf {
    let folder = std::env::var_os("CAUSEWAY_PICTURES").expect("CAUSEWAY_PICTURES names a folder");
    PathBuf::from(folder)
}

#[tokio::test]
#[ignore = "writes pictures"]
async fn of_a_small_cluster() {
    let browser = Browser::start().await.expect("a browser");
    let site = Site::start();
    let _ann = Program::start(&site.ann, "");
    let _evil = Program::start(&site.evil, "");
    until_there_are(&site.admin, "leases", 2, length);
    let _waits = Program::start(&site.ann, "--wait");
    until_there_are(&site.admin, "queue", 1, |list| length(&list["requests"]));
    site.sign_in(&browser, "admin").await;
    for (name, view, number, (width, height)) in [
        ("dashboard-narrow", "queue", 1, (320, 640)),
        ("dashboard-small", "devices", 2, (1280, 300)),
    ] {
        browser.size(width, height).await;
        rows(&browser, view, number).await;
        browser.picture(&folder().join(format!("{name}.png"))).await;
    }
}

/// A real cluster: a manager with TLS, two nodes over this machine's own OpenCL, a program that runs, one that waits, and
/// the timeline of a program over both nodes.
#[tokio::test]
#[ignore = "writes pictures, and needs an OpenCL driver and cc"]
async fn of_two_nodes() {
    let browser = Browser::start().await.expect("a browser");
    let secured = Secured::configured(DASHBOARD);
    let admin = secured.admin();
    let library = library();
    let [ann, bob] =
        ["ann", "bob"].map(|name| secured.user(name).with("CAUSEWAY_LIBRARY", &library));
    let _nodes = ["gpu1", "gpu2"].map(|name| node(&secured, &admin, name));
    until_there_are(&admin, "nodes", 2, |list| {
        let nodes = list.as_array()?.iter();
        Some(nodes.filter(|of| length(&of["devices"]) > Some(0)).count())
    });
    let draw = mandelbrot(&ann);
    let file = trace(&ann, &draw);
    // Ends by itself, also when this test is killed.
    let loops = format!(
        "end=$(($(date +%s) + 200)); while [ $(date +%s) -lt $end ]; do {draw} --device 0 --iterations 20000; done"
    );
    let _runs = run(&ann, "--request 1", &loops);
    until_there_are(&admin, "leases", 1, length);
    let _waits = run(&bob, "--wait --request 2;spread", "true");
    until_there_are(&admin, "queue", 1, |list| length(&list["requests"]));
    sign_in(&browser, &secured, "admin").await;
    // The last hour has a point for each minute.
    tokio::time::sleep(Duration::from_secs(90)).await;
    for (name, view, number, height) in [
        ("dashboard-two-nodes", "devices", 2, 330),
        ("dashboard-two-nodes-queue", "queue", 1, 260),
    ] {
        browser.size(1280, height).await;
        rows(&browser, view, number).await;
        browser.picture(&folder().join(format!("{name}.png"))).await;
    }
    browser.size(1280, 900).await;
    browser.run("location.hash = 'trace'").await;
    browser.choose("#trace-file", &file).await;
    browser
        .until("return Number(document.querySelector('#timeline').dataset.slices) > 0")
        .await;
    browser.picture(&folder().join("dashboard-trace.png")).await;
}

/// Compiles the program in a user's folder. Returns the command that draws into nothing.
fn mandelbrot(user: &Tool) -> String {
    let program = user.home().join("mandelbrot");
    let source = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../conformance/programs/mandelbrot.c"
    );
    let status = Command::new("cc")
        .args(["-std=c99", "-O2", "-o"])
        .arg(&program)
        .args([source, "-lOpenCL", "-lm"])
        .status();
    assert!(status.unwrap().success());
    let program = program.display();
    format!("{program} --width 600 --height 400 --output /dev/null")
}

/// The timeline of one program on each node, side by side.
fn trace(user: &Tool, draw: &str) -> PathBuf {
    let both = format!(
        "{draw} --device 0 --iterations 3000 & other=$!; {draw} --device 1 --iterations 3000 && wait $other"
    );
    let mut command = user.command("run --request 2;spread --trace both.pftrace -- sh -c");
    command.arg(&both);
    let end = said(command);
    assert_eq!(end.code, Some(0), "{end:?}");
    user.home().join("both.pftrace")
}

/// Starts a script with a lease.
fn run(user: &Tool, request: &str, script: &str) -> Program {
    let mut command = user.command(&format!("run {request} -- sh -c"));
    let command = command.arg(script);
    Program::started(command.stdout(Stdio::null()).stderr(Stdio::null()))
}

/// A managed daemon over this machine's own OpenCL.
fn node(secured: &Secured, admin: &Tool, name: &str) -> (Daemon, tempfile::TempDir) {
    let folder = tempfile::tempdir().unwrap();
    admin.does(&format!("users add {name} --node"));
    let token = secured.path(&format!("{name}.token"));
    admin.does(&format!("tokens create {name} --out {}", token.display()));
    let from = secured.folder().display();
    admin.does(&format!(
        "certs node {name} --address 127.0.0.1 --from {from}"
    ));
    let [certificate, key] = ["pem", "key"].map(|kind| secured.path(&format!("{name}.{kind}")));
    let (address, ca) = (secured.manager.address, secured.path("ca.pem"));
    let text = format!(
        "[tls]\ncertificate = {certificate:?}\nkey = {key:?}\n\
         [manager]\naddress = [\"{address}\"]\nca = {ca:?}\ntoken_file = {token:?}\n"
    );
    let listen = ["--listen", "127.0.0.1:0", "--name", name];
    let daemon = Daemon::with_variables(folder.path(), &text, &listen, &[]);
    (daemon, folder)
}

/// How many of each there are at the marks' number of nodes. The manager takes one request at a time, so that there are
/// many takes minutes.
struct Crowd {
    _nodes: tokio::task::JoinSet<()>,
    _waits: Vec<Asked>,
    leases: u32,
    waiting: u32,
}

/// Starts a manager with so many nodes, of whose devices each is two shares: for 1,000 nodes 10,000 leases, and 2,000
/// requests that wait.
async fn crowd(count: u32) -> (Manager, Crowd) {
    // So many nodes are slow on a machine that has other work.
    let config = format!("{DASHBOARD}\n[heartbeat]\nlimit_ms = 60000\n");
    let manager = Manager::configured(&config);
    let nodes = nodes(manager.address, count).await;
    let mut users = Vec::new();
    for user in 0..60 {
        users.push(manager.user(&format!("user{user:02}")).await);
    }
    users[0].see_nodes(count as usize).await;
    let shares = count * DEVICES * SHARES;
    // Leases of two shares, and as many of one that all shares are leased: 6 and 4 of 10.
    let (pairs, singles, queued) = (shares * 3 / 8, shares / 4, count * 2);
    let mut waits = Vec::new();
    for at in 0..pairs + singles + queued {
        let user = &mut users[(at * 7 % 60) as usize];
        match at {
            at if at < pairs => drop(user.granted(request("2; same-node")).await),
            at if at < pairs + singles => drop(user.granted(request("1")).await),
            _ => {
                let mut asked = user.ask(waiting("2, TYPE=GPU; same-node")).await.unwrap();
                asked.next().await;
                waits.push(asked);
            }
        }
    }
    let crowd = Crowd {
        _nodes: nodes,
        _waits: waits,
        leases: pairs + singles,
        waiting: queued,
    };
    (manager, crowd)
}

/// Marks: a first view within 3 s, and 150 ms of the page's thread for an update. `CAUSEWAY_CROWD` is the number of
/// nodes, and `CAUSEWAY_MINUTES` the time for which they run before the pictures.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "writes pictures, and takes minutes"]
async fn of_a_thousand_nodes() {
    let number = |name: &str, usual: u32| {
        std::env::var(name).map_or(usual, |text| text.parse().expect("a number"))
    };
    let count = number("CAUSEWAY_CROWD", 1000);
    let begin = Instant::now();
    let (manager, crowd) = crowd(count).await;
    let (leases, waiting) = (crowd.leases, crowd.waiting);
    println!(
        "{count} nodes, {leases} leases and {waiting} waiting requests after {:?}",
        begin.elapsed()
    );
    tokio::time::sleep(Duration::from_secs(60) * number("CAUSEWAY_MINUTES", 0)).await;
    let browser = Browser::start().await.expect("a browser");
    browser.size(1920, 1000).await;
    measure(&browser, &manager).await;
    let file = |name: &str| folder().join(name);
    browser.picture(&file("dashboard-devices.png")).await;
    browser.dark(true).await;
    rows(&browser, "queue", waiting.min(100) as usize).await;
    browser.picture(&file("dashboard-dark.png")).await;
}

/// Prints the figures of the page, beside the load of the machine.
async fn measure(browser: &Browser, manager: &Manager) {
    let begin = Instant::now();
    browser
        .go(&format!("http://{}/", manager.dashboard()))
        .await;
    browser
        .until("return document.querySelectorAll('#rows tr').length == 100")
        .await;
    println!("first view after {:?} (mark 3 s)", begin.elapsed());
    let size = "return performance.getEntriesByType('resource').concat(performance.getEntriesByType('navigation'))\
                .filter((of) => !/events|session/.test(of.name)).reduce((sum, of) => sum + of.decodedBodySize, 0)";
    let size = browser.run(size).await;
    println!(
        "page of {} KiB (mark 300 KiB)",
        size.as_f64().unwrap() / 1024.0
    );
    browser
        .until("return document.querySelectorAll('.bar').length == 100")
        .await;
    let before = browser.busy().await;
    let begin = Instant::now();
    let updates = browser.run(UPDATES).await.as_f64().unwrap();
    let busy = (browser.busy().await - before) * 1000.0;
    assert!(updates > 0.0, "no update in {:?}", begin.elapsed());
    println!(
        "an update takes {:.0} ms of the page's thread (mark 150 ms), {updates} updates in {:?}",
        busy / updates,
        begin.elapsed()
    );
    let load = std::fs::read_to_string("/proc/loadavg").unwrap();
    println!("load of the machine: {}", load.trim());
}

/// Counts the updates of ten seconds, or of 25 s if there is none before. The page waits by itself, because questions by
/// WebDriver would take its thread's time. There is less than one update a second if a snapshot takes long.
const UPDATES: &str = "
    const [from, original] = [performance.now(), draw];
    let updates = 0;
    draw = () => { updates += 1; original(); };
    return new Promise((done) => {
        const timer = setInterval(() => {
            const took = performance.now() - from;
            if (took < 10000 || (!updates && took < 25000)) return;
            clearInterval(timer);
            draw = original;
            done(updates);
        }, 250);
    });";
