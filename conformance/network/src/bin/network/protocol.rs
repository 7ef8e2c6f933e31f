//! The protocol between the commands and the process that holds a network: one line of JSON in each
//! direction, then the connection ends.

use std::fs;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::unix::fs::DirBuilderExt;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

use causeway_network::{Fate, Interface, Shape, Traffic};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::Failure;

/// Directory of the sockets. Only root may enter it.
const DIRECTORY: &str = "/run/causeway-network";
/// Longest line in bytes. A status of the largest network has 4096 pairs.
const LONGEST: u64 = 4 << 20;
/// Time limit for any request.
const PATIENCE: Duration = Duration::from_secs(60);

#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum Request {
    Status,
    /// Query how to run a program on a host.
    Enter(usize),
    Change(Change),
    Down,
}

#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum Change {
    Shape(Ends, Shape),
    Cut(Ends, bool),
    Dialling(Ends, bool),
    Port { host: usize, port: u16, door: Door },
    Plugged(usize, bool),
}

#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(crate) enum Door {
    Open,
    Silent,
    Reset,
}

#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(crate) struct Ends {
    pub(crate) from: usize,
    pub(crate) to: usize,
    pub(crate) both: bool,
}

#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum Answer {
    Done,
    Status(Status),
    /// A path to the host's namespace, and the network's unique name.
    Enter {
        namespace: String,
        network: String,
    },
    Refused(String),
}

/// The state of a network.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Status {
    /// The unique name, which processes on its hosts have in their environment.
    pub(crate) network: String,
    /// The process that holds the network.
    pub(crate) process: u32,
    pub(crate) hosts: Vec<HostStatus>,
    pub(crate) traffic: Traffic,
    pub(crate) shaped: Vec<Shaped>,
}

#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct HostStatus {
    pub(crate) address: String,
    pub(crate) interface: Interface,
}

/// One shaped direction.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Shaped {
    pub(crate) from: usize,
    pub(crate) to: usize,
    pub(crate) shape: Shape,
    pub(crate) fate: Fate,
}

/// Path of the socket of the network with this name.
pub(crate) fn socket(name: &str) -> PathBuf {
    Path::new(DIRECTORY).join(format!("{name}.socket"))
}

/// Path of the log of a network in the background.
pub(crate) fn log(name: &str) -> PathBuf {
    Path::new(DIRECTORY).join(format!("{name}.log"))
}

/// Makes the directory of the sockets.
pub(crate) fn prepare() -> Result<(), Failure> {
    let mut directory = fs::DirBuilder::new();
    directory
        .recursive(true)
        .mode(0o700)
        .create(DIRECTORY)
        .map_err(Failure::io(DIRECTORY))
}

/// Returns the names that have a socket, whether or not a process answers there.
pub(crate) fn names() -> Vec<String> {
    let entries = fs::read_dir(DIRECTORY).into_iter().flatten().flatten();
    let mut names: Vec<String> = entries
        .filter_map(|entry| {
            Some(
                entry
                    .file_name()
                    .to_str()?
                    .strip_suffix(".socket")?
                    .to_owned(),
            )
        })
        .collect();
    names.sort();
    names
}

/// Sends a request to the holder of `name`. Fails if there is none or it refuses.
pub(crate) fn ask(name: &str, request: &Request) -> Result<Answer, Failure> {
    let stream = UnixStream::connect(socket(name)).map_err(|error| match error.kind() {
        io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused => {
            Failure::Said(format!("no network called {name} is up"))
        }
        _ => Failure::io(format!("reach network {name}"))(error),
    })?;
    let answer = exchange(&stream, request).map_err(Failure::io(format!("ask network {name}")))?;
    match answer {
        Answer::Refused(why) => Err(Failure::Said(why)),
        answer => Ok(answer),
    }
}

fn exchange(stream: &UnixStream, request: &Request) -> io::Result<Answer> {
    stream.set_read_timeout(Some(PATIENCE))?;
    say(stream, request)?;
    hear(stream)
}

/// Writes one line.
pub(crate) fn say(mut stream: &UnixStream, what: &impl Serialize) -> io::Result<()> {
    let mut line = serde_json::to_vec(what)?;
    line.push(b'\n');
    stream.write_all(&line)
}

/// Reads one line.
pub(crate) fn hear<T: DeserializeOwned>(stream: &UnixStream) -> io::Result<T> {
    let mut line = String::new();
    BufReader::new(stream.take(LONGEST)).read_line(&mut line)?;
    Ok(serde_json::from_str(&line)?)
}
