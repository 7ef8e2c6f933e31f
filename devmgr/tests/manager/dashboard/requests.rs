//! The dashboard's answers: authentication, permissions, headers, slow readers and floods.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

use serde_json::Value;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpSocket, TcpStream};

use super::super::node::FakeNode;
use super::super::process::{AT_MOST, DASHBOARD, Manager, request, waiting};
use super::super::several::Several;
use super::super::tool::Secured;
use super::client::{Answer, Events, Wire, ask, clear, over_tls};

/// A manager with TLS, authentication and a dashboard, and a user with a token.
struct Site {
    secured: Secured,
    token: String,
}

impl Site {
    fn start() -> Site {
        let secured = Secured::configured(DASHBOARD);
        secured.user("ann");
        let token = std::fs::read_to_string(secured.path("ann.token")).unwrap();
        let token = token.trim().to_owned();
        Site { secured, token }
    }

    async fn wire(&self) -> Box<dyn Wire> {
        let address = self.secured.manager.dashboard();
        over_tls(address, &self.secured.path("ca.pem"), None).await
    }

    async fn get(&self, path: &str, headers: &str) -> Answer {
        ask(self.wire().await, &format!("GET {path}"), headers, "").await
    }

    /// Signs in, and returns the header with the cookie.
    async fn cookie(&self, token: &str) -> String {
        let answer = ask(
            self.wire().await,
            "POST /sign-in",
            "",
            &format!("token={token}"),
        )
        .await;
        assert_eq!(
            (answer.code, answer.header("location")),
            (303, Some("/")),
            "{answer:?}"
        );
        cookie_in(&answer)
    }

    fn admin_token(&self) -> String {
        let mut path = self.secured.manager.store().as_os_str().to_owned();
        path.push(".admin-token");
        std::fs::read_to_string(PathBuf::from(path))
            .unwrap()
            .trim()
            .to_owned()
    }
}

fn cookie_in(answer: &Answer) -> String {
    let cookie = answer.header("set-cookie").expect("a cookie");
    let (value, attributes) = cookie.split_once(';').unwrap();
    for attribute in ["HttpOnly", "SameSite=Strict", "Secure", "Path=/"] {
        assert!(attributes.contains(attribute), "{cookie}");
    }
    format!("Cookie: other=1; {value}\r\n")
}

#[tokio::test]
async fn a_token_becomes_a_cookie_that_shows_its_users_own_and_ends_with_the_token() {
    let site = Site::start();
    let cookie = site.cookie(&site.token).await;
    assert!(!cookie.contains(&site.token[9..]), "the cookie is no token");
    let session = site.get("/session", &cookie).await.json();
    assert_eq!(
        (&session["user"], &session["sees_all"]),
        (&"ann".into(), &false.into())
    );
    let mut events = Events::open(site.wire().await, &cookie).await;
    let first = events.expect("snapshot").await;
    assert!(
        first["leases"].is_object() && first.get("nodes").is_none(),
        "{first}"
    );
    // A busy machine may miss a change, and gets the whole in its place.
    let (_, second) = events.next().await.expect("an event");
    assert!(second["now"].as_u64() > first["now"].as_u64());

    let admin = site.secured.admin();
    let tokens = admin.json("tokens list");
    let mut tokens = tokens.as_array().unwrap().iter();
    let token = tokens.find(|token| token["user"] == "ann").unwrap();
    admin.does(&format!("tokens revoke {}", token["id"].as_str().unwrap()));
    let begin = Instant::now();
    let over = loop {
        let (name, data) = events.next().await.expect("an end with a reason");
        if name == "over" {
            break data;
        }
        assert!(begin.elapsed() < AT_MOST);
    };
    assert!(
        over["reason"].as_str().unwrap().contains("revoked"),
        "{over}"
    );
    assert!(events.next().await.is_none());
    assert_eq!(site.get("/session", &cookie).await.code, 401);
    assert_eq!(site.get("/events", &cookie).await.code, 401);
}

#[tokio::test]
async fn who_shows_nothing_or_something_else_sees_nothing() {
    let site = Site::start();
    for headers in [
        "",
        "Cookie: __Host-causeway-dashboard-1=1.2\r\n",
        "Authorization: Bearer causeway_1\r\n",
        "causeway-user: admin\r\n",
    ] {
        for path in ["/session", "/events"] {
            let answer = site.get(path, headers).await;
            assert_eq!(answer.code, 401, "{path} {headers}: {answer:?}");
        }
    }
    // The cookie of one token does not serve with the id of another.
    let (ann, admin) = (
        site.cookie(&site.token).await,
        site.cookie(&site.admin_token()).await,
    );
    let (name, _) = admin.trim_end().rsplit_once('.').unwrap();
    let (_, secret) = ann.trim_end().rsplit_once('.').unwrap();
    assert_eq!(
        site.get("/session", &format!("{name}.{secret}\r\n"))
            .await
            .code,
        401
    );
    for wrong in ["token=causeway_1", "token=", "", "token=%zz"] {
        let answer = ask(site.wire().await, "POST /sign-in", "", wrong).await;
        assert_eq!(
            (answer.code, answer.header("set-cookie")),
            (403, None),
            "{wrong}"
        );
    }
    let long = format!("token={}", "a".repeat(10_000));
    assert_eq!(
        ask(site.wire().await, "POST /sign-in", "", &long)
            .await
            .code,
        413
    );
    let cross = "Origin: https://evil.example\r\n";
    let answer = ask(site.wire().await, "POST /sign-in", cross, "token=x").await;
    assert_eq!(
        (answer.code, answer.body.contains("another site")),
        (403, true)
    );
    let cross = format!("{ann}Sec-Fetch-Site: cross-site\r\n");
    assert_eq!(site.get("/events", &cross).await.code, 403);
    // Signing out takes the cookie away.
    let out = ask(site.wire().await, "POST /sign-out", &ann, "").await;
    assert!(out.header("set-cookie").unwrap().contains("Max-Age=0"));
}

#[tokio::test]
async fn a_certificate_serves_without_a_token_and_a_nodes_credentials_do_not() {
    let site = Site::start();
    let folder = site.secured.folder().to_str().unwrap();
    let nobody = site.secured.nobody();
    nobody.does(&format!("certs client bob --from {folder}"));
    let address = site.secured.manager.dashboard();
    let (certificate, key) = (site.secured.path("bob.pem"), site.secured.path("bob.key"));
    let identity: (&Path, &Path) = (&certificate, &key);
    let ca = site.secured.path("ca.pem");
    let open = || over_tls(address, &ca, Some(identity));
    let session = ask(open().await, "GET /session", "", "").await.json();
    assert_eq!(
        (&session["user"], &session["by_token"]),
        (&"bob".into(), &false.into())
    );
    Events::open(open().await, "")
        .await
        .expect("snapshot")
        .await;
    let admin = site.secured.admin();
    admin.does("users add box --node");
    let out = site.secured.path("box.token");
    admin.does(&format!("tokens create box --out {}", out.display()));
    let token = std::fs::read_to_string(out).unwrap();
    let body = format!("token={}", token.trim());
    assert_eq!(
        ask(site.wire().await, "POST /sign-in", "", &body)
            .await
            .code,
        403
    );
    // Without TLS, nothing is answered.
    let mut clear = TcpStream::connect(address).await.unwrap();
    clear
        .write_all(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
        .await
        .unwrap();
    let mut answer = Vec::new();
    // A reset is an end, too.
    let _ = clear.read_to_end(&mut answer).await;
    assert!(answer.is_empty(), "{}", String::from_utf8_lossy(&answer));
}

#[tokio::test]
async fn each_answer_has_the_policy_and_the_files_are_public() {
    let manager = Manager::configured(DASHBOARD);
    let address = manager.dashboard();
    for (path, kind) in [
        ("/", "text/html; charset=utf-8"),
        ("/page.js", "text/javascript; charset=utf-8"),
        ("/trace_file.js", "text/javascript; charset=utf-8"),
        ("/trace_view.js", "text/javascript; charset=utf-8"),
        ("/page.css", "text/css; charset=utf-8"),
        ("/icon.svg", "image/svg+xml"),
        ("/sign-in", "text/html; charset=utf-8"),
        ("/session", "application/json"),
    ] {
        let answer = ask(clear(address).await, &format!("GET {path}"), "", "").await;
        assert_eq!(
            (answer.code, answer.header("content-type")),
            (200, Some(kind)),
            "{path}"
        );
        let policy = answer.header("content-security-policy").unwrap();
        assert!(policy.starts_with("default-src 'self'; ") && !policy.contains("unsafe"));
        assert!(policy.contains("frame-ancestors 'none'"));
        assert_eq!(answer.header("x-content-type-options"), Some("nosniff"));
    }
    let none = ask(clear(address).await, "GET /other", "", "").await;
    assert_eq!(
        (none.code, none.header("content-security-policy").is_some()),
        (404, true)
    );
    for method in ["PUT", "DELETE", "POST"] {
        let answer = ask(clear(address).await, &format!("{method} /events"), "", "").await;
        assert_eq!(answer.code, 405, "{method}");
    }
    // A name that a stranger has made to lead here.
    let mut wire = clear(address).await;
    wire.write_all(b"GET /session HTTP/1.1\r\nHost: evil.example\r\n\r\n")
        .await
        .unwrap();
    let mut answer = String::new();
    wire.read_to_string(&mut answer).await.unwrap();
    assert!(answer.starts_with("HTTP/1.1 421 "), "{answer}");
}

#[tokio::test]
async fn slow_readers_and_floods_make_nobody_wait() {
    let manager = Manager::configured(&format!("{DASHBOARD}\n[heartbeat]\nlimit_ms = 60000\n"));
    // Snapshots of 800 devices, for viewers with small buffers that never read.
    let count = 100;
    let _nodes = super::crowd::nodes(manager.address, count).await;
    let mut ann = manager.user("ann").await;
    ann.see_nodes(count as usize).await;
    let address = manager.dashboard();
    let mut events = Events::open(clear(address).await, "").await;
    let first = events.expect("snapshot").await;
    assert!(first.to_string().len() > 200_000);
    let mut slow = Vec::new();
    for _ in 0..20 {
        let socket = TcpSocket::new_v4().unwrap();
        socket.set_recv_buffer_size(4096).unwrap();
        let wire: Box<dyn Wire> = Box::new(socket.connect(address).await.unwrap());
        slow.push(Events::open(wire, "").await);
    }
    // Connections that say nothing.
    let mut silent = Vec::new();
    for _ in 0..400 {
        silent.push(TcpStream::connect(address).await.unwrap());
    }
    // Others' snapshots come each second, with what has happened since.
    let granted = ann.granted(request("1")).await;
    let id = super::super::process::hex(&granted.lease_id);
    let mut number = 0;
    loop {
        let (_, data) = events.next().await.expect("an event");
        if data["leases"].get(&id).is_some() {
            break;
        }
        number += 1;
        assert!(number < 30, "no event with the lease");
    }
    newcomers_are_answered(address).await;
    drop((silent, slow));
}

/// Newcomers displace connections that have been silent for longer than the grace of a second.
async fn newcomers_are_answered(address: SocketAddr) {
    let begin = Instant::now();
    loop {
        let mut wire = TcpStream::connect(address).await.unwrap();
        let head = b"GET /events HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n";
        let mut first = [0; 15];
        let answered = async {
            wire.write_all(head).await?;
            wire.read_exact(&mut first).await
        };
        if answered.await.is_ok() {
            assert_eq!(&first, b"HTTP/1.1 200 OK");
            return;
        }
        assert!(begin.elapsed() < AT_MOST, "nobody is answered");
    }
}

#[tokio::test]
async fn a_user_has_32_streams_and_others_have_theirs() {
    let site = Site::start();
    let (ann, admin) = (
        site.cookie(&site.token).await,
        site.cookie(&site.admin_token()).await,
    );
    let mut streams = Vec::new();
    for _ in 0..32 {
        streams.push(Events::open(site.wire().await, &ann).await);
    }
    let refused = site.get("/events", &ann).await;
    assert_eq!(refused.code, 503);
    assert!(refused.body.contains("too many pages"), "{refused:?}");
    Events::open(site.wire().await, &admin).await;
    // A place is free once the manager has noticed that a page has gone.
    streams.pop();
    let begin = Instant::now();
    while !Events::opens(site.wire().await, &ann).await {
        assert!(begin.elapsed() < AT_MOST, "no place becomes free");
    }
}

#[tokio::test]
async fn a_restart_ends_streams_and_cookies() {
    let mut site = Site::start();
    let cookie = site.cookie(&site.token).await;
    let mut events = Events::open(site.wire().await, &cookie).await;
    events.expect("snapshot").await;
    site.secured.manager.kill_and_restart();
    while events.next().await.is_some() {}
    // The store alone does not make a cookie, so it does not check one either.
    assert_eq!(site.get("/session", &cookie).await.code, 401);
    let cookie = site.cookie(&site.token).await;
    let mut events = Events::open(site.wire().await, &cookie).await;
    events.expect("snapshot").await;
}

#[tokio::test]
async fn a_user_sees_nobody_elses_and_an_administrator_everyones() {
    let manager = Manager::configured(&format!("authenticate = true\n{DASHBOARD}"));
    let mut admin = super::super::strangers::admin(&manager).await;
    let (ann_token, _) = super::super::strangers::user(&mut admin, "ann", false).await;
    let (bob_token, _) = super::super::strangers::user(&mut admin, "bob", false).await;
    let (node_token, _) = super::super::strangers::user(&mut admin, "box", true).await;
    let who = |token: &str| super::super::process::Who::Token(token.to_owned());
    let _node = FakeNode::start_as(manager.address, 1, 1, who(&node_token));
    admin.see_nodes(1).await;
    let mut ann = manager.client(who(&ann_token)).await;
    let mut bob = manager.client(who(&bob_token)).await;
    ann.granted(request("1")).await;
    let mut waits = bob.ask(waiting("1")).await.unwrap();
    waits.next().await;
    let address = manager.dashboard();
    let page = async |token: &str| {
        let body = format!("token={token}");
        let answer = ask(clear(address).await, "POST /sign-in", "", &body).await;
        let cookie = answer.header("set-cookie").unwrap();
        let (cookie, _) = cookie.split_once(';').unwrap();
        let wire = clear(address).await;
        Events::open(wire, &format!("Cookie: {cookie}\r\n"))
            .await
            .expect("snapshot")
            .await
    };
    let (of_ann, of_bob) = (page(&ann_token).await, page(&bob_token).await);
    assert!(!of_ann.to_string().contains("bob") && !of_bob.to_string().contains("ann"));
    assert_eq!(of_ann["leases"].as_object().unwrap().len(), 1);
    assert_eq!(of_bob["leases"].as_object().unwrap().len(), 0);
    assert_eq!(of_bob["queue"].as_object().unwrap().len(), 1);
    assert_eq!(of_ann["waiting"], 1);
    let token = std::fs::read_to_string(format!("{}.admin-token", manager.store().display()));
    let all = page(token.unwrap().trim()).await;
    assert_eq!(all["nodes"].as_object().unwrap().len(), 1);
    let devices = all["devices"].as_object().unwrap();
    assert_eq!(
        devices.values().next().unwrap()["users"],
        serde_json::json!(["ann"])
    );
    assert_eq!(all["managers"]["managers"].as_object().unwrap().len(), 1);
}

/// Waits until a dashboard shows these managers, each with its dashboard, and one member of etcd. A busy manager shows
/// snapshots without managers at first, because it does not wait for etcd.
async fn shows_managers(dashboard: SocketAddr, wanted: &[(String, String)]) {
    let begin = Instant::now();
    loop {
        let mut events = Events::open(clear(dashboard).await, "").await;
        let page = events.expect("snapshot").await;
        let (managers, members) = (&page["managers"]["managers"], &page["managers"]["members"]);
        let count = |of: &Value| of.as_object().map_or(0, |of| of.len());
        let has = |(address, url): &(String, String)| managers[address]["dashboard"] == **url;
        if count(managers) == wanted.len() && wanted.iter().all(has) && count(members) == 1 {
            return;
        }
        assert!(begin.elapsed() < AT_MOST, "{page}");
        // The next snapshot.
        events.next().await;
    }
}

#[tokio::test]
async fn a_standby_names_the_leaders_dashboard_also_after_a_failover() {
    let Some(mut several) = Several::configured(DASHBOARD, &[], 1, 2).await else {
        return;
    };
    let (leader, _) = several.leader().await;
    let standby = 1 - leader;
    let dashboard = |several: &Several, at: usize| several.managers[at].dashboard();
    let url = |several: &Several, at| format!("http://{}/", dashboard(several, at));
    let session = async |several: &Several, at| {
        let wire = clear(dashboard(several, at)).await;
        ask(wire, "GET /session", "", "").await
    };
    assert_eq!(session(&several, leader).await.code, 200);
    let begin = Instant::now();
    // The leader is known at once, and its dashboard when etcd was asked.
    let named = loop {
        let answer = session(&several, standby).await;
        assert_eq!(answer.code, 503, "{answer:?}");
        if answer.json()["dashboard"] != Value::Null {
            break answer.json();
        }
        assert!(begin.elapsed() < AT_MOST, "{answer:?}");
    };
    assert_eq!(named["dashboard"], url(&several, leader));
    let address = several.managers[leader].address.to_string();
    assert!(
        named["reason"].as_str().unwrap().contains(&address),
        "{named}"
    );
    let wanted = [leader, standby].map(|at| {
        let address = several.managers[at].address.to_string();
        (address, url(&several, at))
    });
    shows_managers(dashboard(&several, leader), &wanted).await;
    several.managers[leader].kill();
    // Until the successor serves, it names no dashboard of its own, to which its page would lead forever.
    let begin = Instant::now();
    loop {
        let answer = session(&several, standby).await;
        if answer.code == 200 {
            break;
        }
        assert_ne!(answer.json()["dashboard"], url(&several, standby));
        assert!(begin.elapsed() < AT_MOST, "{answer:?}");
    }
    // The former leader comes back as a standby, and names its successor.
    several.managers[leader].start_again();
    let begin = Instant::now();
    while session(&several, leader).await.json()["dashboard"] != url(&several, standby) {
        assert!(begin.elapsed() < AT_MOST);
    }
}

/// Runs the lines of the README, in a network of their own, because they name ports.
#[test]
fn the_lines_of_the_readme_show_a_dashboard() {
    let has_network = Command::new("unshare")
        .args(["-n", "ip", "link", "set", "lo", "up"])
        .status();
    if !has_network.is_ok_and(|status| status.success()) {
        println!("skipped: `unshare -n` needs root, and `ip` is of iproute2");
        return;
    }
    let readme = concat!(env!("CARGO_MANIFEST_DIR"), "/README.md");
    let readme = std::fs::read_to_string(readme).unwrap();
    let (_, lines) = readme.split_once("<!-- dashboard -->\n```sh\n").unwrap();
    let (lines, _) = lines.split_once("```").unwrap();
    let folder = tempfile::tempdir().unwrap();
    let programs = Path::new(env!("CARGO_BIN_EXE_causeway-devmgr")).parent();
    let path = format!(
        "{}:/usr/sbin:/usr/bin:/sbin:/bin",
        programs.unwrap().display()
    );
    let look = "until exec 3<>/dev/tcp/127.0.0.1/9080; do sleep 0.1; done 2>/dev/null\n\
                printf 'GET /session HTTP/1.1\\r\\nHost: 127.0.0.1:9080\\r\\n\\r\\n' >&3; cat <&3; kill %1";
    let out = Command::new("unshare")
        .args(["-n", "timeout", "60", "bash", "-c"])
        .arg(format!("ip link set lo up\n{lines}\n{look}"))
        .current_dir(folder.path())
        .env_clear()
        .env("PATH", path)
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&out.stdout);
    assert!(text.contains("dashboard on 127.0.0.1:9080"), "{out:?}");
    assert!(
        text.contains("HTTP/1.1 200 OK") && text.contains("\"sees_all\":true"),
        "{out:?}"
    );
}
