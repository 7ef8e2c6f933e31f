//! A real browser: Debian's Chromium without a screen, steered over WebDriver by its chromedriver.
//!
//! WebDriver is JSON over HTTP on loopback. The crate `fantoccini` speaks it, too, but brings code under MPL-2.0, which
//! `.ci/dependencies.py` does not let in. Invariant: driver and browser end with the value.

use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Instant;

use serde_json::{Value, json};

use super::super::process::AT_MOST;
use super::client::{ask, clear};

/// A browser with one window.
pub(super) struct Browser {
    driver: Child,
    address: SocketAddr,
    session: String,
    _profile: tempfile::TempDir,
}

impl Browser {
    /// Starts a browser. `None`, with a line that says why: there is none on this machine.
    pub(super) async fn start() -> Option<Browser> {
        let profile = tempfile::tempdir().unwrap();
        let started = Command::new("chromedriver")
            .arg("--port=0")
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn();
        let Ok(mut driver) = started else {
            println!("skipped: chromedriver is missing (apt-get install chromium chromium-driver)");
            return None;
        };
        let out = BufReader::new(driver.stdout.take().unwrap());
        let port = out.lines().map_while(Result::ok).find_map(|line| {
            let (_, port) = line.rsplit_once("successfully on port ")?;
            port.trim_end_matches('.').parse::<u16>().ok()
        });
        let port = port.expect("chromedriver says its port");
        let mut browser = Browser {
            driver,
            address: SocketAddr::from(([127, 0, 0, 1], port)),
            session: String::new(),
            _profile: profile,
        };
        let data = format!("--user-data-dir={}", browser._profile.path().display());
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
        // The browser is a child of the driver, which ends it when it is told to end.
        let pid = rustix::process::Pid::from_child(&self.driver);
        let _ = rustix::process::kill_process(pid, rustix::process::Signal::TERM);
        let _ = self.driver.wait();
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
