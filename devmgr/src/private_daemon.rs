//! A daemon for the time of one run, on a Unix socket in a folder that only its user can enter.
//!
//! Its standard input is a pipe from this process. The kernel closes that however this process ends, and then the daemon ends.

use std::fs::Permissions;
use std::io::{BufRead, BufReader};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};

use tempfile::TempDir;

/// The socket's name in its folder.
const SOCKET: &str = "socket";
/// Bytes of a path that fit into a Unix socket's address.
const LONGEST_SOCKET_PATH: usize = 107;

/// How long a daemon may take until it says that it listens: it asks its drivers for their devices first, for which it
/// gives them a minute.
const START_LIMIT: Duration = Duration::from_secs(70);

/// How long a daemon may take for its end, in which it ends its workers and removes what it has written. Then it is killed.
const END_LIMIT: Duration = Duration::from_secs(1);

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
    /// The socket has no place.
    #[error("the folder of the daemon's socket cannot be made: {0}")]
    Folder(std::io::Error),
    /// The machine has nothing to serve.
    #[error("this machine's own OpenCL has no device{0}")]
    NoDevice(String),
    /// It ended, or said nothing within the limit.
    #[error("the daemon did not say where it listens: {0}")]
    Silent(String),
}

/// A running daemon; ended on drop.
#[derive(Debug)]
pub struct PrivateDaemon {
    child: Child,
    said: Said,
    address: String,
    /// Of the socket.
    _folder: TempDir,
}

/// What the daemon says of itself on its standard output: where it listens, or why it does not. It disconnects when the
/// daemon ends: nobody else has that output.
type Said = Receiver<Result<String, String>>;

impl PrivateDaemon {
    /// Starts the daemon at `path` over this machine's own OpenCL and waits until it listens, and so knows its
    /// devices: a program asks for them once, and waits for a second only.
    ///
    /// # Errors
    /// [`StartError`].
    pub fn start(path: &Path) -> Result<PrivateDaemon, StartError> {
        let folder = folder().map_err(StartError::Folder)?;
        let socket = format!("unix:{}", folder.path().join(SOCKET).display());
        let mut command = Command::new(path);
        if std::env::var_os(BUILD_CACHE).is_none() {
            command.env(BUILD_CACHE, "0");
        }
        let mut child = command
            // What is set for this machine as a node (certificate, manager) is not for its users' own.
            .args(["--config", "/dev/null"])
            .args(["--private", "--listen", &socket, "--log", "warn"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .map_err(|error| StartError::Spawn {
                path: path.display().to_string(),
                error,
            })?;
        match first_address(&mut child) {
            Ok((address, said)) => Ok(PrivateDaemon {
                child,
                said,
                address,
                _folder: folder,
            }),
            Err(error) => {
                let _ = child.kill();
                let _ = child.wait();
                Err(error)
            }
        }
    }

    /// As `CAUSEWAY_SERVERS` names it.
    #[must_use]
    pub fn address(&self) -> &str {
        &self.address
    }
}

impl Drop for PrivateDaemon {
    fn drop(&mut self) {
        // It ends when its standard input does.
        drop(self.child.stdin.take());
        let until = Instant::now() + END_LIMIT;
        loop {
            let rest = until.saturating_duration_since(Instant::now());
            match self.said.recv_timeout(rest) {
                Ok(_) => {}
                Err(RecvTimeoutError::Disconnected) => break,
                Err(RecvTimeoutError::Timeout) => {
                    // Its workers die with it.
                    let _ = self.child.kill();
                    break;
                }
            }
        }
        let _ = self.child.wait();
    }
}

/// Where only this user gets: somewhere short, because the path of a socket must be.
fn folder() -> std::io::Result<TempDir> {
    let new = || {
        let mut builder = tempfile::Builder::new();
        builder
            .prefix("causeway-node-")
            .permissions(Permissions::from_mode(0o700));
        builder
    };
    let usual = new().tempdir()?;
    let length = usual.path().as_os_str().len() + 1 + SOCKET.len();
    if length <= LONGEST_SOCKET_PATH {
        return Ok(usual);
    }
    new().tempdir_in("/tmp")
}

// Reads stdout on a thread of its own, so that the wait is bounded; the thread goes on reading, so
// that the daemon never meets a closed pipe.
fn first_address(child: &mut Child) -> Result<(String, Said), StartError> {
    let Some(stdout) = child.stdout.take() else {
        return Err(StartError::Silent("no standard output".to_owned()));
    };
    let (sender, lines) = channel();
    std::thread::spawn(move || {
        for line in BufReader::new(stdout).lines().map_while(Result::ok) {
            let said = match line.split_once(' ') {
                Some(("listening", rest)) => rest.strip_prefix("on ").map(|at| Ok(at.to_owned())),
                Some(("no", rest)) => rest.strip_prefix("device ").map(|why| Err(why.to_owned())),
                _ => None,
            };
            // Only the first is waited for.
            if let Some(said) = said {
                let _ = sender.send(said);
            }
        }
    });
    let said = lines.recv_timeout(START_LIMIT).map_err(|error| {
        StartError::Silent(match error {
            RecvTimeoutError::Timeout => format!("nothing within {} s", START_LIMIT.as_secs()),
            RecvTimeoutError::Disconnected => "it ended".to_owned(),
        })
    })?;
    let address = said.map_err(|why| {
        StartError::NoDevice(match why.trim() {
            "" => String::new(),
            why => format!(" ({why})"),
        })
    })?;
    Ok((address, lines))
}
