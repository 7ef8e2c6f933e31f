//! The page in a real browser, against `--json` of the tool at the same moment. Skipped where Chromium is missing.

use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};
use std::time::Instant;

use serde_json::Value;

use super::super::process::{AT_MOST, DASHBOARD};
use super::super::real_node::{Daemon, library};
use super::super::several::Several;
use super::super::tool::{Secured, Tool};
use super::browser::Browser;

const TAB: &str = "\u{E004}";
const ENTER: &str = "\u{E007}";

/// A name that would run a script if it became markup. Names have no quotes, and arguments of this test no spaces.
const EVIL: &str = "<script>window.evil=1</script><img/src=x/onerror=window.evil=1>";

/// The rows of the list that is shown, cell by cell.
const ROWS: &str = "return [...document.querySelectorAll('#rows tr')].map((row) => \
                    Object.fromEntries([...row.cells].map((cell) => [cell.dataset.label, cell.textContent])))";

/// A manager with TLS, a daemon with two devices of a fake driver, and users.
pub(super) struct Site {
    secured: Secured,
    _daemon: Daemon,
    pub(super) admin: Tool,
    pub(super) ann: Tool,
    pub(super) evil: Tool,
}

impl Site {
    pub(super) fn start() -> Site {
        let secured = Secured::configured(DASHBOARD);
        let (ann, evil) = (secured.user("ann"), secured.named(EVIL, "evil.token"));
        let admin = secured.admin();
        admin.does("users add box --node");
        let token = secured.path("box.token");
        admin.does(&format!("tokens create box --out {}", token.display()));
        let address = secured.manager.address;
        let ca = secured.path("ca.pem");
        let text =
            format!("[manager]\naddress = [\"{address}\"]\nca = {ca:?}\ntoken_file = {token:?}\n");
        let daemon = Daemon::configured(secured.folder(), &text);
        until_there_are(&admin, "nodes", 2, |list| length(&list[0]["devices"]));
        Site {
            secured,
            _daemon: daemon,
            admin,
            ann: ann.with("CAUSEWAY_LIBRARY", library()),
            evil: evil.with("CAUSEWAY_LIBRARY", library()),
        }
    }

    /// Signs in by the form, by keyboard alone.
    pub(super) async fn sign_in(&self, browser: &Browser, user: &str) {
        sign_in(browser, &self.secured, user).await;
    }
}

/// Signs in by the form, by keyboard alone.
pub(super) async fn sign_in(browser: &Browser, secured: &Secured, user: &str) {
    browser
        .go(&format!("https://{}/", secured.manager.dashboard()))
        .await;
    browser
        .until("return location.pathname == '/sign-in' && document.activeElement.id == 'token'")
        .await;
    browser.keys(&token(secured, user)).await;
    browser.keys(ENTER).await;
    browser
        .until("return document.querySelector('#link')?.textContent == 'Live'")
        .await;
}

/// A user's token.
fn token(secured: &Secured, name: &str) -> String {
    let file = match name {
        "admin" => format!("{}.admin-token", secured.manager.store().display()),
        name => secured.path(&format!("{name}.token")).display().to_string(),
    };
    std::fs::read_to_string(file).unwrap().trim().to_owned()
}

/// Shows a list, and returns its rows once there are as many.
pub(super) async fn rows(browser: &Browser, view: &str, number: usize) -> Vec<Value> {
    browser.run(&format!("location.hash = '{view}'")).await;
    shown(browser, view, number).await
}

/// The rows of a list, once it is shown with as many. Unlike [`rows`], this does not choose the list.
async fn shown(browser: &Browser, view: &str, number: usize) -> Vec<Value> {
    browser
        .until(&format!(
            "return document.querySelector('nav [aria-current]')?.hash == '#{view}' && \
             document.querySelectorAll('#rows tr').length == {number}"
        ))
        .await;
    browser.run(ROWS).await.as_array().unwrap().clone()
}

/// A program that uses a device until its standard input ends.
pub(super) struct Program(Child);

impl Program {
    pub(super) fn start(tool: &Tool, options: &str) -> Program {
        let mut command = tool.command(&format!("run {options} --request 1 -- cat"));
        Program::started(command.stderr(Stdio::null()))
    }

    /// Starts a command whose standard input ends with the value, and so do all processes of its group.
    pub(super) fn started(command: &mut Command) -> Program {
        let command = command.stdin(Stdio::piped()).process_group(0);
        Program(command.spawn().unwrap())
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        drop(self.0.stdin.take());
        let group = rustix::process::Pid::from_raw(self.0.id() as i32).unwrap();
        // Fails only if all have ended.
        let _ = rustix::process::kill_process_group(group, rustix::process::Signal::KILL);
        let _ = self.0.wait();
    }
}

pub(super) fn length(list: &Value) -> Option<usize> {
    list.as_array().map(Vec::len)
}

/// Waits until a list of the tool has as many entries.
pub(super) fn until_there_are(
    tool: &Tool,
    list: &str,
    number: usize,
    length: impl Fn(&Value) -> Option<usize>,
) {
    let begin = Instant::now();
    while length(&tool.json(list)) != Some(number) {
        assert!(begin.elapsed() < AT_MOST, "{list}: {}", tool.json(list));
    }
}

fn short(id: &Value) -> &str {
    &id.as_str().unwrap()[..8]
}

#[tokio::test]
async fn the_page_shows_what_the_tool_shows_and_to_each_their_own() {
    let Some(browser) = Browser::start().await else {
        return;
    };
    let mut site = Site::start();
    let _ann = Program::start(&site.ann, "");
    let _evil = Program::start(&site.evil, "");
    until_there_are(&site.admin, "leases", 2, length);
    let _waits = Program::start(&site.evil, "--wait");
    until_there_are(&site.admin, "queue", 1, |list| length(&list["requests"]));
    let own = site.ann.json("leases")[0]["lease"].clone();

    site.sign_in(&browser, "admin").await;
    each_view_is_that_of_the_tool(&browser, &site).await;
    names_are_texts_and_fit(&browser).await;
    the_keyboard_is_enough(&browser).await;
    the_manager_goes_and_comes_back(&browser, &mut site).await;

    // Signing out ends at the form; then a user sees their own alone.
    browser
        .run("document.querySelector('#sign-out button').click()")
        .await;
    site.sign_in(&browser, "ann").await;
    let leases = rows(&browser, "leases", 1).await;
    assert_eq!(leases[0]["Lease"], short(&own));
    let text = browser.run("return document.body.textContent").await;
    assert!(
        !text.as_str().unwrap().contains("script"),
        "another user's name"
    );
    let views = "return [...document.querySelectorAll('nav a')].map((link) => link.hash).join(' ')";
    assert_eq!(browser.run(views).await, "#leases #queue #kinds #trace");
    let kinds = rows(&browser, "kinds", 1).await;
    assert_eq!(
        (&kinds[0]["Number"], &kinds[0]["Free"]),
        (&"2".into(), &"0".into())
    );

    // The token is revoked, and the page leads to the form by itself.
    let admin = &site.admin;
    let tokens = admin.json("tokens list");
    let mut tokens = tokens.as_array().unwrap().iter();
    let token = tokens.find(|token| token["user"] == "ann").unwrap();
    admin.does(&format!("tokens revoke {}", token["id"].as_str().unwrap()));
    browser
        .until("return location.pathname == '/sign-in'")
        .await;
    let complaints = browser.complaints().await;
    let policy = complaints
        .iter()
        .find(|line| line.contains("Content Security Policy"));
    assert_eq!(policy, None);
}

async fn each_view_is_that_of_the_tool(browser: &Browser, site: &Site) {
    let tool = &site.admin;
    let nodes = rows(browser, "nodes", 1).await;
    let told = tool.json("nodes");
    assert_eq!(nodes[0]["Node"], told[0]["name"]);
    assert_eq!(nodes[0]["State"], "connected");
    assert_eq!(nodes[0]["Leased"], "2 of 2");
    assert_eq!(nodes[0]["Id"], short(&told[0]["node"]));

    let devices = rows(browser, "devices", 2).await;
    for (row, told) in devices.iter().zip(told[0]["devices"].as_array().unwrap()) {
        assert_eq!(row["Device"], told["name"]);
        assert_eq!(row["Kind"], told["kind"]);
        assert_eq!(
            row["Place"],
            format!("{}.{}", told["platform"], told["device"])
        );
        assert_eq!(row["Use"], "leased");
    }

    let leases = rows(browser, "leases", 2).await;
    let told = tool.json("leases");
    for told in told.as_array().unwrap() {
        let mut found = leases
            .iter()
            .filter(|row| row["Lease"] == short(&told["lease"]));
        let row = found.next().expect("the lease of the tool");
        assert_eq!(
            (&row["User"], &row["State"]),
            (&told["user"], &told["state"])
        );
        let of = devices
            .iter()
            .find(|device| device["Users"] == told["user"]);
        let place = of.expect("a device of the user")["Place"].as_str().unwrap();
        assert!(row["Devices"].as_str().unwrap().contains(place), "{row}");
    }

    let queue = rows(browser, "queue", 1).await;
    let told = tool.json("queue");
    let told = &told["requests"][0];
    assert_eq!(
        (&queue[0]["User"], &queue[0]["Why"]),
        (&told["user"], &told["why"])
    );
    assert_eq!(queue[0]["Lease"], short(&told["lease"]));
    assert_eq!(queue[0]["Place"], told["position"].to_string());

    rows(browser, "links", 0).await;
    let none = browser.run("return document.querySelector('#empty').textContent");
    assert!(
        none.await
            .as_str()
            .unwrap()
            .contains("causeway links --measure")
    );
    assert_eq!(tool.json("links"), serde_json::json!([]));

    let managers = rows(browser, "managers", 1).await;
    let told = tool.json("managers");
    let told = &told["managers"][0];
    for key in ["role", "version"] {
        let label = format!("{}{}", key[..1].to_uppercase(), &key[1..]);
        assert_eq!(managers[0][label], told[key]);
    }
}

async fn names_are_texts_and_fit(browser: &Browser) {
    rows(browser, "leases", 2).await;
    let evil = format!(
        "return window.evil === undefined && document.querySelector('#rows').textContent.includes({})",
        Value::from(EVIL)
    );
    browser.until(&evil).await;
    for (view, number) in [
        ("leases", 2),
        ("devices", 2),
        ("queue", 1),
        ("nodes", 1),
        ("managers", 1),
    ] {
        rows(browser, view, number).await;
        // Not before, because the title is that of the view.
        let title = browser.run("return document.title").await;
        let view = format!("{}{}", view[..1].to_uppercase(), &view[1..]);
        assert_eq!(title, format!("{view} - Causeway"));
        for width in [320, 1001, 1920] {
            browser.size(width, 900).await;
            let fits = format!(
                "return innerWidth == {width} && document.documentElement.scrollWidth <= {width}"
            );
            browser.until(&fits).await;
        }
    }
}

async fn the_keyboard_is_enough(browser: &Browser) {
    browser
        .run("location.hash = 'devices'; document.activeElement.blur()")
        .await;
    shown(browser, "devices", 2).await;
    let focused = "return document.activeElement.hash ?? document.activeElement.id ?? ''";
    // To the list of leases, as a link of the views.
    for _ in 0..12 {
        if browser.run(focused).await == "#leases" {
            break;
        }
        browser.keys(TAB).await;
    }
    browser.keys(ENTER).await;
    shown(browser, "leases", 2).await;
    // To the filter, whose words leave one row.
    for _ in 0..12 {
        if browser.run(focused).await == "filter" {
            break;
        }
        browser.keys(TAB).await;
    }
    browser.keys("ann").await;
    shown(browser, "leases", 1).await;
    // To the button of the second column, which sorts.
    browser.keys("\u{E003}\u{E003}\u{E003}").await;
    shown(browser, "leases", 2).await;
    browser.keys(&format!("{TAB}{TAB}{ENTER}{ENTER}")).await;
    browser
        .until("return document.querySelector('th[aria-sort]')?.ariaSort == 'descending'")
        .await;
    let users = browser.run(ROWS).await;
    assert_eq!(
        (&users[0]["User"], &users[1]["User"]),
        (&"ann".into(), &EVIL.into())
    );
    let outlined = "return getComputedStyle(document.activeElement).outlineStyle != 'none'";
    assert_eq!(browser.run(outlined).await, true, "the focus is visible");
}

async fn the_manager_goes_and_comes_back(browser: &Browser, site: &mut Site) {
    site.secured.manager.kill();
    let says = "return !document.querySelector('#trouble').hidden && \
                document.querySelector('#link').textContent.startsWith('As of')";
    browser.until(says).await;
    // What was known is still there.
    rows(browser, "leases", 2).await;
    site.secured.manager.start_again();
    // The cookie has ended with the process, so the page leads to the form by itself.
    browser
        .until("return location.pathname == '/sign-in'")
        .await;
    site.sign_in(browser, "admin").await;
    rows(browser, "leases", 2).await;
    // A process that stands still for a while is the same, and the page comes back by itself.
    let manager = rustix::process::Pid::from_raw(site.secured.manager.pid() as i32).unwrap();
    let tell = |signal| rustix::process::kill_process(manager, signal).unwrap();
    tell(rustix::process::Signal::STOP);
    browser.until(says).await;
    tell(rustix::process::Signal::CONT);
    let back = "return document.querySelector('#trouble').hidden && \
                document.querySelector('#link').textContent == 'Live'";
    browser.until(back).await;
    rows(browser, "leases", 2).await;
}

#[tokio::test]
async fn the_page_of_the_leader_links_to_the_other_manager() {
    let Some(browser) = Browser::start().await else {
        return;
    };
    let Some(several) = Several::configured(DASHBOARD, &[], 1, 2).await else {
        return;
    };
    let (leader, _) = several.leader().await;
    let url = |at: usize| format!("http://{}/", several.managers[at].dashboard());
    browser.go(&format!("{}#managers", url(leader))).await;
    browser
        .until("return document.querySelectorAll('#rows tr').length == 2")
        .await;
    let links = "return [...document.querySelectorAll('#rows a')].map((link) => [link.textContent, link.href])";
    let links = browser.run(links).await;
    // The page does not link to itself.
    let standby = 1 - leader;
    let address = several.managers[standby].address.to_string();
    assert_eq!(links, serde_json::json!([[address, url(standby)]]));
    // The standby's dashboard leads back to the leader.
    browser
        .run("document.querySelector('#rows a').click()")
        .await;
    let back = format!(
        "return location.href.startsWith('{}') && document.querySelector('#link')?.textContent == 'Live'",
        url(leader)
    );
    browser.until(&back).await;
}
