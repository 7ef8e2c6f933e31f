//! A real browser: Debian's Chromium without a screen, steered over WebDriver by its chromedriver.
//!
//! WebDriver is JSON over HTTP on loopback. The crate `fantoccini` speaks it, too, but brings code under MPL-2.0, which
//! `.ci/dependencies.py` does not let in. Invariant: driver and browser end with the value, and with the test's process
//! however that ends.

use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc;
use std::time::Instant;

use serde_json::{Value, json};

use super::super::process::AT_MOST;
use super::client::{ask, clear};

/// Starts the driver, and ends it with its browser when the standard input ends, which a process that is killed closes,
/// too. The processes of a browser leave the driver's group, so the folder `$PROFILE` in their arguments tells them apart.
const GUARD: &str = r#"
chromedriver --port=0 </dev/null 2>/dev/null &
exec >/dev/null
while read -r _; do :; done
kill -KILL $!; wait $! 2>/dev/null
for _ in 1 2; do
    for of in /proc/[0-9]*; do
        grep -qsF -- "$PROFILE" "$of/cmdline" && kill -KILL "${of#/proc/}"
    done
done
rm -rf -- "$PROFILE"
"#;

/// How often the driver is started until it has a port.
const ATTEMPTS: usize = 5;

/// A browser with one window.
pub(super) struct Browser {
    /// The process of [`GUARD`].
    guard: Child,
    address: SocketAddr,
    session: String,
    profile: tempfile::TempDir,
}

impl Browser {
    /// Starts a browser. `None`, with a line that says why: there is none on this machine.
    pub(super) async fn start() -> Option<Browser> {
        let there_is_one = Command::new("chromedriver").arg("--version").output();
        if there_is_one.is_err() {
            println!("skipped: chromedriver is missing (apt-get install chromium chromium-driver)");
            return None;
        }
        let mut browser = (0..ATTEMPTS)
            .find_map(|_| Browser::driver())
            .expect("chromedriver says its port");
        let data = format!("--user-data-dir={}", browser.profile.path().display());
        let options = json!({
            // As root, Chromium has no sandbox of its own. `/dev/shm` of a container is small.
            "args": ["--headless=new", "--no-sandbox", "--disable-dev-shm-usage", "--disable-gpu", data],
        });
        let capabilities = json!({ "alwaysMatch": {
            "browserName": "chrome",
            "acceptInsecureCerts": true,
            "goog:chromeOptions": options,
            "goog:loggingPrefs": { "browser": "ALL" },
        }});
        let answer = browser
            .request("POST", "/session", json!({ "capabilities": capabilities }))
            .await;
        match answer["sessionId"].as_str() {
            Some(session) => browser.session = session.to_owned(),
            None => {
                println!("skipped: chromium does not start: {answer}");
                return None;
            }
        }
        Some(browser)
    }

    /// Starts the driver. `None`: it has ended. It does so if another program has the port that it chose for IPv4 in IPv6.
    fn driver() -> Option<Browser> {
        let profile = tempfile::tempdir().unwrap();
        let guard = Command::new("bash")
            .args(["-c", GUARD])
            .env("PROFILE", profile.path())
            // A signal for the group of the test does not end the guard.
            .process_group(0)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut browser = Browser {
            guard,
            address: SocketAddr::from(([127, 0, 0, 1], 0)),
            session: String::new(),
            profile,
        };
        let port = port(&mut browser.guard)?;
        browser.address.set_port(port);
        Some(browser)
    }

    async fn request(&self, method: &str, path: &str, body: Value) -> Value {
        let body = if method == "GET" {
            String::new()
        } else {
            body.to_string()
        };
        let headers = "Content-Type: application/json\r\nConnection: close\r\n";
        let wire = clear(self.address).await;
        let answer = ask(wire, &format!("{method} {path}"), headers, &body).await;
        answer.json()["value"].clone()
    }

    async fn command(&self, method: &str, path: &str, body: Value) -> Value {
        let path = format!("/session/{}{path}", self.session);
        let value = self.request(method, &path, body).await;
        assert!(value.get("error").is_none(), "{path}: {value}");
        value
    }

    pub(super) async fn go(&self, url: &str) {
        self.command("POST", "/url", json!({ "url": url })).await;
    }

    /// Runs a script in the page, and returns its value.
    pub(super) async fn run(&self, script: &str) -> Value {
        let body = json!({ "script": script, "args": [] });
        self.command("POST", "/execute/sync", body).await
    }

    /// Waits until a script returns true.
    pub(super) async fn until(&self, script: &str) {
        let begin = Instant::now();
        while self.run(script).await != true {
            if begin.elapsed() > AT_MOST {
                let body = self.run("return document.body.innerText").await;
                panic!("never: {script}\n{}", body.as_str().unwrap_or_default());
            }
        }
    }

    /// Presses keys, one after another. Special keys have WebDriver's code points.
    pub(super) async fn keys(&self, keys: &str) {
        let actions = keys.chars().flat_map(|key| {
            ["keyDown", "keyUp"].map(|action| json!({ "type": action, "value": key.to_string() }))
        });
        let actions: Vec<_> = actions.collect();
        let keyboard = json!({ "type": "key", "id": "keyboard", "actions": actions });
        self.command("POST", "/actions", json!({ "actions": [keyboard] }))
            .await;
    }

    /// Presses a key while Shift is down.
    pub(super) async fn shift(&self, key: char) {
        let press = |action: &str, key: char| json!({ "type": action, "value": key.to_string() });
        let shift = '\u{E008}';
        let actions = [
            press("keyDown", shift),
            press("keyDown", key),
            press("keyUp", key),
            press("keyUp", shift),
        ];
        let keyboard = json!({ "type": "key", "id": "keyboard", "actions": actions });
        self.command("POST", "/actions", json!({ "actions": [keyboard] }))
            .await;
    }

    /// Turns the wheel over a place of the window, with Ctrl.
    pub(super) async fn zoom(&self, (x, y): (i64, i64), down: i64) {
        let pause = json!({ "type": "pause" });
        let key = |action: &str| json!({ "type": action, "value": "\u{E009}" });
        let scroll = json!({
            "type": "scroll", "x": x, "y": y, "deltaX": 0, "deltaY": down, "origin": "viewport",
        });
        let keyboard = json!({
            "type": "key", "id": "keyboard", "actions": [key("keyDown"), pause, key("keyUp")],
        });
        let wheel = json!({ "type": "wheel", "id": "wheel", "actions": [pause, scroll, pause] });
        self.command("POST", "/actions", json!({ "actions": [keyboard, wheel] }))
            .await;
    }

    /// Moves the mouse to the places of the window, with its button pressed from the first one on if `drags`.
    pub(super) async fn mouse(&self, places: &[(i64, i64)], drags: bool) {
        let to =
            |(x, y): &(i64, i64)| json!({ "type": "pointerMove", "x": x, "y": y, "duration": 0 });
        let button = |action: &str| json!({ "type": action, "button": 0 });
        let mut actions: Vec<Value> = places.iter().map(to).collect();
        if drags {
            actions.insert(1, button("pointerDown"));
            actions.push(button("pointerUp"));
        }
        let mouse = json!({ "type": "pointer", "id": "mouse", "actions": actions });
        self.command("POST", "/actions", json!({ "actions": [mouse] }))
            .await;
    }

    /// Chooses a file in a form.
    pub(super) async fn choose(&self, input: &str, file: &Path) {
        let body = json!({ "using": "css selector", "value": input });
        let found = self.command("POST", "/element", body).await;
        let element = found.as_object().unwrap().values().next().unwrap();
        let path = format!("/element/{}/value", element.as_str().unwrap());
        self.command("POST", &path, json!({ "text": file.to_str().unwrap() }))
            .await;
    }

    /// A command of Chromium's own.
    async fn devtools(&self, command: &str, params: Value) -> Value {
        let body = json!({ "cmd": command, "params": params });
        self.command("POST", "/goog/cdp/execute", body).await
    }

    /// Processor time of the page's thread in its tasks, in seconds, from the first call on.
    pub(super) async fn busy(&self) -> f64 {
        let domain = json!({ "timeDomain": "threadTicks" });
        self.devtools("Performance.enable", domain).await;
        let metrics = self.devtools("Performance.getMetrics", json!({})).await;
        let mut metrics = metrics["metrics"].as_array().unwrap().iter();
        let metric = metrics.find(|metric| metric["name"] == "TaskDuration");
        metric.unwrap()["value"].as_f64().unwrap()
    }

    /// Sets the size of the page, which a window without a screen would not make as small.
    pub(super) async fn size(&self, width: u32, height: u32) {
        let params = json!({
            "width": width, "height": height, "deviceScaleFactor": 1, "mobile": false,
        });
        self.devtools("Emulation.setDeviceMetricsOverride", params)
            .await;
    }

    /// Prefers dark or light colours.
    pub(super) async fn dark(&self, dark: bool) {
        let value = if dark { "dark" } else { "light" };
        let features = json!([{ "name": "prefers-color-scheme", "value": value }]);
        self.devtools(
            "Emulation.setEmulatedMedia",
            json!({ "features": features }),
        )
        .await;
    }

    /// Writes a picture of the page.
    pub(super) async fn picture(&self, file: &Path) {
        let text = self.command("GET", "/screenshot", Value::Null).await;
        std::fs::write(file, plain(text.as_str().unwrap())).unwrap();
    }

    /// What the browser has complained about.
    pub(super) async fn complaints(&self) -> Vec<String> {
        let log = self
            .command("POST", "/se/log", json!({ "type": "browser" }))
            .await;
        let lines = log.as_array().unwrap().iter();
        lines
            .map(|line| line["message"].as_str().unwrap().to_owned())
            .collect()
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        drop(self.guard.stdin.take());
        let _ = self.guard.wait();
    }
}

/// The port of the driver, which says it in its first lines.
fn port(guard: &mut Child) -> Option<u16> {
    let out = BufReader::new(guard.stdout.take()?);
    let (send, port) = mpsc::channel();
    // Reads on after the port, so that the driver never waits.
    std::thread::spawn(move || {
        for line in out.lines().map_while(Result::ok) {
            let port = line.rsplit_once("successfully on port ");
            let port = port.and_then(|(_, port)| port.trim_end_matches('.').parse().ok());
            // Nobody waits for a second port.
            let _ = port.map(|port| send.send(port));
        }
    });
    port.recv_timeout(AT_MOST).ok()
}

/// Whether a process has this text among its arguments.
fn is_argument(text: &str) -> bool {
    let processes = std::fs::read_dir("/proc").unwrap().flatten();
    let mut lines = processes.filter_map(|of| std::fs::read(of.path().join("cmdline")).ok());
    lines.any(|line| String::from_utf8_lossy(&line).contains(text))
}

/// What the next test kills.
#[tokio::test]
#[ignore = "lasts until it is killed"]
async fn a_browser_that_stays() {
    if let Some(browser) = Browser::start().await {
        println!("profile {}", browser.profile.path().display());
        std::io::stdin().read_line(&mut String::new()).unwrap();
    }
}

#[test]
fn a_browser_ends_with_a_test_that_is_killed() {
    let name = "dashboard::browser::a_browser_that_stays";
    let mut test = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", name, "--ignored", "--nocapture"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let out = BufReader::new(test.stdout.take().unwrap());
    let mut lines = out.lines().map_while(Result::ok);
    let profile = lines.find_map(|line| Some(line.split_once("profile ")?.1.to_owned()));
    let Some(profile) = profile else {
        println!("skipped: no browser starts here");
        test.wait().unwrap();
        return;
    };
    assert!(is_argument(&profile), "the browser runs");
    test.kill().unwrap();
    test.wait().unwrap();
    let begin = Instant::now();
    while is_argument(&profile) || Path::new(&profile).exists() {
        assert!(
            begin.elapsed() < AT_MOST,
            "the browser of {profile} runs on"
        );
    }
}

/// The bytes of a text in base64.
fn plain(text: &str) -> Vec<u8> {
    let digits = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let value = |byte: u8| digits.iter().position(|of| *of == byte);
    let (mut bytes, mut bits, mut count) = (Vec::new(), 0_usize, 0);
    for value in text.bytes().filter_map(value) {
        (bits, count) = ((bits << 6 | value) & 0xFFFF, count + 6);
        if count >= 8 {
            count -= 8;
            bytes.push((bits >> count & 0xFF) as u8);
        }
    }
    bytes
}
