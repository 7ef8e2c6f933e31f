//! A daemon for the duration of one run, on a Unix socket in a folder that only its user can enter.
//!
//! The daemon's standard input is a pipe from this process. However this process ends, the kernel closes
//! the pipe, and the daemon ends.

use std::fs::Permissions;
use std::io::{BufRead, BufReader};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};

use tempfile::TempDir;

/// File name of the socket.
const SOCKET: &str = "socket";
/// Maximum length in bytes of a Unix socket's path.
const LONGEST_SOCKET_PATH: usize = 107;

/// Timeout until the daemon listens. It first asks its drivers for their devices, for which it gives them
/// a minute.
const START_LIMIT: Duration = Duration::from_secs(70);

/// Timeout until the daemon has ended its workers and removed its files. After that it is killed.
const END_LIMIT: Duration = Duration::from_secs(1);

/// The size of the daemon's build cache, 0 unless the user's environment sets it. The daemon ends with
/// the program, usually before any program is built again, and the cache's builds would use the program's
/// processors.
const BUILD_CACHE: &str = "CAUSEWAYD_BUILD_CACHE_SIZE";

/// Why no daemon was started.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The program cannot be executed.
    #[error("{path} cannot be started: {error}")]
    Spawn {
        /// The program.
        path: String,
        /// The system's error.
        error: std::io::Error,
    },
    /// The folder for the socket cannot be created.
    #[error("the folder of the daemon's socket cannot be made: {0}")]
    Folder(std::io::Error),
    /// The machine has no device.
    #[error("this machine's own OpenCL has no device{0}")]
    NoDevice(String),
    /// The daemon ended, or was not ready in time.
    #[error("the daemon did not start: {0}")]
    Silent(String),
}

/// A running daemon; ended on drop.
#[derive(Debug)]
pub struct PrivateDaemon {
    child: Child,
    said: Announcement,
    address: String,
    /// The folder of the socket.
    _folder: TempDir,
}

/// The daemon's messages on its standard output: the address that it listens on, or why it does not
/// listen. The channel disconnects when the daemon ends, because no other process has this output.
type Announcement = Receiver<Result<String, String>>;

impl PrivateDaemon {
    /// Starts the daemon at `path` for this machine's own OpenCL, and waits until it listens. The daemon
    /// knows its devices then. That matters because a program enumerates once, and gives a connection
    /// only a second.
    ///
    /// # Errors
    /// [`StartError`]
    pub fn start(path: &Path) -> Result<PrivateDaemon, StartError> {
        let folder = folder().map_err(StartError::Folder)?;
        let socket = format!("unix:{}", folder.path().join(SOCKET).display());
        let mut command = Command::new(path);
        if std::env::var_os(BUILD_CACHE).is_none() {
            command.env(BUILD_CACHE, "0");
        }
        let mut child = command
            // The configuration of this machine as a node (certificate, manager) does not apply to its
            // users' own daemons.
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

    /// The daemon's address, for `CAUSEWAY_SERVERS`.
    #[must_use]
    pub fn address(&self) -> &str {
        &self.address
    }
}

impl Drop for PrivateDaemon {
    fn drop(&mut self) {
        // The daemon ends when its standard input is closed.
        drop(self.child.stdin.take());
        let until = Instant::now() + END_LIMIT;
        loop {
            let rest = until.saturating_duration_since(Instant::now());
            match self.said.recv_timeout(rest) {
                Ok(_) => {}
                Err(RecvTimeoutError::Disconnected) => break,
                Err(RecvTimeoutError::Timeout) => {
                    // The workers end with the daemon.
                    let _ = self.child.kill();
                    break;
                }
            }
        }
        let _ = self.child.wait();
    }
}

/// Creates a folder that only this user can enter. Its path is short, as a socket's path must be.
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

// Waits for the first message, with a timeout: a thread reads the output. The thread goes on reading
// after that, so that the daemon never writes to a closed pipe.
fn first_address(child: &mut Child) -> Result<(String, Announcement), StartError> {
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
            // The receiver waits for the first message only.
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
