//! The commands other than `up`.

use std::env;
use std::ffi::OsString;
use std::fs::{self, File};
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use causeway_network::command_on;

use crate::Failure;
use crate::protocol::{self, Answer, Change, Request, Status};
use crate::report;

/// Time limit for building or removing a network.
const PATIENCE: Duration = Duration::from_secs(30);

/// Starts this program again in the background with the same arguments, and waits until the network is ready.
pub(crate) fn detach(name: &str) -> Result<(), Failure> {
    protocol::prepare()?;
    if ask_status(name).is_ok() {
        return Err(Failure::Said(format!("network {name} is up already")));
    }
    let path = protocol::log(name);
    let log = File::create(&path).map_err(Failure::io(path.display().to_string()))?;
    let errors = log.try_clone().map_err(Failure::io("share a log file"))?;
    let program = env::current_exe().map_err(Failure::io("find this program"))?;
    let mut holder = Command::new(program)
        .args(
            env::args_os()
                .skip(1)
                .filter(|argument| argument != "--detach"),
        )
        .process_group(0)
        .stdin(Stdio::null())
        .stdout(log)
        .stderr(errors)
        .spawn()
        .map_err(Failure::io("start the network's process"))?;
    let begin = Instant::now();
    loop {
        if let Ok(Some(_)) = holder.try_wait() {
            let said = fs::read_to_string(&path).unwrap_or_default();
            let _ = fs::remove_file(&path);
            return Err(Failure::Said(
                said.trim().trim_start_matches("network: ").to_owned(),
            ));
        }
        // The holder listens before it builds and answers afterwards. So an answer means that
        // the network is ready.
        if ask_status(name).is_ok() {
            print!("{}", fs::read_to_string(&path).unwrap_or_default());
            return Ok(());
        }
        if begin.elapsed() > PATIENCE {
            return Err(Failure::Said(format!(
                "network {name} was not built in time"
            )));
        }
        // Polling is the simplest way to watch a child's state. Nothing depends on the interval.
        thread::sleep(Duration::from_millis(10));
    }
}

/// Replaces this process by `command` on a host. Returns only on failure.
pub(crate) fn run(name: &str, host: usize, command: &[OsString]) -> Failure {
    let (namespace, network) = match protocol::ask(name, &Request::Enter(host)) {
        Ok(Answer::Enter { namespace, network }) => (namespace, network),
        Ok(other) => return unexpected(&other),
        Err(failure) => return failure,
    };
    let Some((program, arguments)) = command.split_first() else {
        return Failure::Said("run what?".into());
    };
    match command_on(&namespace, &network, program) {
        Ok(mut there) => {
            let error = there.args(arguments).exec();
            Failure::io(program.to_string_lossy())(error)
        }
        Err(error) => error.into(),
    }
}

pub(crate) fn status(name: &str, json: bool) -> Result<(), Failure> {
    let status = ask_status(name).map_err(|failure| with_names(failure, name))?;
    if json {
        let text = serde_json::to_string_pretty(&status);
        println!(
            "{}",
            text.map_err(|error| Failure::Said(error.to_string()))?
        );
    } else {
        print!("{}", report::status(name, &status));
    }
    Ok(())
}

fn ask_status(name: &str) -> Result<Status, Failure> {
    match protocol::ask(name, &Request::Status)? {
        Answer::Status(status) => Ok(status),
        other => Err(unexpected(&other)),
    }
}

/// Adds the names of existing networks to an error.
fn with_names(failure: Failure, name: &str) -> Failure {
    let others = protocol::names();
    if others.is_empty() || others.iter().any(|other| other == name) {
        return failure;
    }
    Failure::Said(format!("{failure}; there is {}", others.join(", ")))
}

pub(crate) fn change(name: &str, change: Change) -> Result<(), Failure> {
    match protocol::ask(name, &Request::Change(change))? {
        Answer::Done => Ok(()),
        other => Err(unexpected(&other)),
    }
}

pub(crate) fn down(name: &str) -> Result<(), Failure> {
    match protocol::ask(name, &Request::Down)? {
        Answer::Done => Ok(()),
        other => Err(unexpected(&other)),
    }
}

/// Removes sockets that nobody answers, and processes on hosts of networks that nobody holds.
pub(crate) fn clean() -> Result<(), Failure> {
    causeway_network::Network::possible()?;
    let mut removed = 0;
    for name in protocol::names() {
        let path = protocol::socket(&name);
        if std::os::unix::net::UnixStream::connect(&path).is_err() {
            fs::remove_file(&path).map_err(Failure::io(path.display().to_string()))?;
            let _ = fs::remove_file(protocol::log(&name));
            println!("removed the socket of network {name}");
            removed += 1;
        }
    }
    let ended = causeway_network::clean();
    for left in &ended {
        println!(
            "ended process {} of network {}: {}",
            left.process, left.network, left.command
        );
    }
    if removed + ended.len() == 0 {
        println!("nothing was left over");
    }
    Ok(())
}

fn unexpected(answer: &Answer) -> Failure {
    Failure::Said(format!("an unexpected answer: {answer:?}"))
}
