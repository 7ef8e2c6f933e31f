//! A daemon on a free loopback port, for the time of one run.

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::Duration;

/// How long a daemon may take until it says that it listens: it asks its drivers for their devices first, for which it
/// gives them a minute.
const START_LIMIT: Duration = Duration::from_secs(70);

/// The size of the daemon's build cache. It has none unless the user's environment says so: the daemon goes
/// with the program, mostly before it has built anything again, and would take the program's processors.
const BUILD_CACHE: &str = "CAUSEWAYD_BUILD_CACHE_SIZE";

/// Why there is no daemon.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// It could not be started at all.
    #[error("{path} cannot be started: {error}")]
    Spawn {
        /// The program.
        path: String,
        /// What the system said.
        error: std::io::Error,
    },
    /// It ended, or said nothing within the limit.
    #[error("the daemon did not say where it listens: {0}")]
    Silent(String),
}

/// A running daemon; ended on drop.
#[derive(Debug)]
pub struct PrivateDaemon {
    child: Child,
    address: String,
}

impl PrivateDaemon {
    /// Starts the daemon at `path` over this machine's own OpenCL and waits until it listens, and so knows its
    /// devices: a program asks for them once, and waits for a second only.
    ///
    /// # Errors
    /// [`StartError`].
    pub fn start(path: &Path) -> Result<PrivateDaemon, StartError> {
        let mut command = Command::new(path);
        if std::env::var_os(BUILD_CACHE).is_none() {
            command.env(BUILD_CACHE, "0");
        }
        let mut child = command
            // What is set for this machine as a node (certificate, manager) is not for its users' own.
            .args(["--config", "/dev/null"])
            .args(["--listen", "127.0.0.1:0", "--log", "warn"])
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()
            .map_err(|error| StartError::Spawn {
                path: path.display().to_string(),
                error,
            })?;
        match first_address(&mut child) {
            Ok(address) => Ok(PrivateDaemon { child, address }),
            Err(error) => {
                let _ = child.kill();
                let _ = child.wait();
                Err(error)
            }
        }
    }

    /// `host:port`.
    #[must_use]
    pub fn address(&self) -> &str {
        &self.address
    }
}

impl Drop for PrivateDaemon {
    fn drop(&mut self) {
        // Its workers die with it.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

// Reads stdout on a thread of its own, so that the wait is bounded; the thread goes on reading, so
// that the daemon never meets a closed pipe.
fn first_address(child: &mut Child) -> Result<String, StartError> {
    let Some(stdout) = child.stdout.take() else {
        return Err(StartError::Silent("no standard output".to_owned()));
    };
    let (sender, lines) = channel();
    std::thread::spawn(move || {
        for line in BufReader::new(stdout).lines().map_while(Result::ok) {
            if let Some(address) = line.strip_prefix("listening on ") {
                let _ = sender.send(address.trim().to_owned());
            }
        }
    });
    lines.recv_timeout(START_LIMIT).map_err(|error| {
        StartError::Silent(match error {
            RecvTimeoutError::Timeout => format!("nothing within {} s", START_LIMIT.as_secs()),
            RecvTimeoutError::Disconnected => "it ended".to_owned(),
        })
    })
}
