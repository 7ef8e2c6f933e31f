//! The pictures of `devmgr/README.md`, and the page's marks at 1,000 nodes. They run by name:
//! `CAUSEWAY_PICTURES=DIR cargo test -p causeway-devmgr --test manager -- --ignored pictures --nocapture`.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use super::super::process::{AT_MOST, DASHBOARD, Manager, request, waiting};
use super::browser::Browser;
use super::crowd::{DEVICES, nodes};
use super::page::{Program, Site, length, rows, until_there_are};

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
    for (name, view, number, (width, height), dark) in [
        ("leases-dark", "leases", 2, (1280, 300), true),
        ("queue-narrow", "queue", 1, (320, 640), false),
        ("nodes", "nodes", 1, (1280, 300), false),
        ("managers", "managers", 1, (1280, 300), true),
        ("devices", "devices", 2, (1280, 300), false),
    ] {
        browser.size(width, height).await;
        browser.dark(dark).await;
        rows(&browser, view, number).await;
        browser.picture(&folder().join(format!("{name}.png"))).await;
    }
    browser.go(&format!("{}sign-in", site.url())).await;
    browser.picture(&folder().join("sign-in.png")).await;
}

/// Marks: a first view within 3 s, and 150 ms of the page's thread for an update. `CAUSEWAY_CROWD` is the number of
/// nodes, and `CAUSEWAY_MINUTES` the time for which they run before the pictures.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "writes pictures, and takes minutes"]
async fn of_a_thousand_nodes() {
    let number = |name: &str, usual: u32| {
        std::env::var(name).map_or(usual, |text| text.parse().expect("a number"))
    };
    let (count, minutes) = (
        number("CAUSEWAY_CROWD", 1000),
        number("CAUSEWAY_MINUTES", 0),
    );
    // So many nodes are slow on a machine that has other work.
    let config = format!("{DASHBOARD}\n[heartbeat]\nlimit_ms = 60000\n");
    let manager = Manager::configured(&config);
    let _nodes = nodes(manager.address, count).await;
    let mut admin = manager.user("admin").await;
    admin.see_nodes(count as usize).await;
    let mut waits = Vec::new();
    let (whole, single) = (count / 2, count * DEVICES / 2);
    for at in 0..whole + single + count / 5 {
        let mut user = manager.user(&format!("user{:02}", at * 7 % 60)).await;
        match at {
            at if at < whole => drop(user.granted(request("8; same-node")).await),
            at if at < whole + single => drop(user.granted(request("1")).await),
            _ => {
                let mut asked = user.ask(waiting("2, TYPE=GPU; same-node")).await.unwrap();
                asked.next().await;
                waits.push((user, asked));
            }
        }
    }
    tokio::time::sleep(Duration::from_secs(60) * minutes).await;
    let browser = Browser::start().await.expect("a browser");
    browser.size(1920, 1000).await;
    let begin = Instant::now();
    browser
        .go(&format!("http://{}/", manager.dashboard()))
        .await;
    browser
        .until("return document.querySelectorAll('#rows tr').length == 100")
        .await;
    println!("first view after {:?}", begin.elapsed());
    browser
        .until("return document.querySelectorAll('.bar').length == 100")
        .await;
    let before = browser.busy().await;
    let (begin, updates) = (Instant::now(), 10);
    browser.run("window.now = page.all.now").await;
    browser
        .until(&format!(
            "return page.all.now >= window.now + {}",
            updates * 1000
        ))
        .await;
    let busy = (browser.busy().await - before) / begin.elapsed().as_secs_f64();
    println!(
        "the page's thread is busy for {:.0} ms a second",
        busy * 1000.0
    );
    assert!(begin.elapsed() < AT_MOST);
    browser
        .picture(&folder().join("thousand-devices.png"))
        .await;
    browser.dark(true).await;
    for (view, number) in [
        ("leases", whole + single),
        ("queue", count / 5),
        ("nodes", count),
    ] {
        rows(&browser, view, number.min(100) as usize).await;
        browser
            .picture(&folder().join(format!("thousand-{view}.png")))
            .await;
    }
}
