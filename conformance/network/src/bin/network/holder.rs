//! The process that holds a network: builds it, answers the other commands, and removes it at the end.

use std::fs;
use std::io;
use std::os::unix::net::{UnixListener, UnixStream};
use std::sync::Arc;
use std::sync::mpsc::{Sender, channel};
use std::thread;
use std::time::Duration;

use causeway_network::{Builder, Link, Network};
use parking_lot::Mutex;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

use crate::Failure;
use crate::protocol::{self, Answer, Change, Door, Ends, HostStatus, Request, Shaped, Status};
use crate::report;

/// The network; `None` once it is removed.
type Held = Arc<Mutex<Option<Network>>>;

/// Builds a network. Returns when a signal or `down` has removed it.
pub(crate) fn hold(name: &str, builder: &Builder) -> Result<(), Failure> {
    // Installed before anything is built, so that no signal leaves a half-built network.
    let mut signals =
        Signals::new([SIGINT, SIGTERM, SIGHUP]).map_err(Failure::io("watch signals"))?;
    Network::possible()?;
    let listener = listen(name)?;
    let network = match builder.clone().build() {
        Ok(network) => network,
        Err(error) => {
            forget(name);
            return Err(error.into());
        }
    };
    println!("{}", report::built(name, &network));
    let held: Held = Arc::new(Mutex::new(Some(network)));
    let (end, ended) = channel();

    let by_signal = end.clone();
    thread::spawn(move || {
        for _ in signals.forever() {
            let _ = by_signal.send(());
        }
    });
    let (served, served_name) = (Arc::clone(&held), name.to_owned());
    thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            // If the other end is gone, nobody can be informed.
            let _ = serve(&stream, &served, &served_name, &end);
        }
    });
    // This cannot fail: threads of this function hold the other ends.
    let _ = ended.recv();
    remove(&mut held.lock(), name);
    Ok(())
}

/// Removes the network and its files, once: another network may use the name as soon as it is free.
fn remove(held: &mut Option<Network>, name: &str) {
    if let Some(network) = held.take() {
        drop(network);
        forget(name);
    }
}

fn listen(name: &str) -> Result<UnixListener, Failure> {
    protocol::prepare()?;
    let path = protocol::socket(name);
    if UnixStream::connect(&path).is_ok() {
        return Err(Failure::Said(format!("network {name} is up already")));
    }
    // The file may be left over from a holder that was killed.
    let _ = fs::remove_file(&path);
    UnixListener::bind(&path).map_err(Failure::io(format!("bind {}", path.display())))
}

fn forget(name: &str) {
    let _ = fs::remove_file(protocol::socket(name));
    let _ = fs::remove_file(protocol::log(name));
}

fn serve(stream: &UnixStream, held: &Held, name: &str, end: &Sender<()>) -> io::Result<()> {
    // A client sends its request at once, so a short limit is enough.
    stream.set_read_timeout(Some(Duration::from_secs(2)))?;
    let request = protocol::hear(stream)?;
    let mut slot = held.lock();
    if matches!(request, Request::Down) {
        remove(&mut slot, name);
        drop(slot);
        protocol::say(stream, &Answer::Done)?;
        let _ = end.send(());
        return Ok(());
    }
    let answer = match &*slot {
        Some(network) => answer(network, request),
        None => Ok(Answer::Refused("the network is being removed".into())),
    };
    let answer = answer.unwrap_or_else(|error| Answer::Refused(error.to_string()));
    protocol::say(stream, &answer)
}

fn answer(network: &Network, request: Request) -> Result<Answer, Failure> {
    match request {
        Request::Status => Ok(Answer::Status(status(network)?)),
        Request::Enter(host) => {
            known(network, host)?;
            Ok(Answer::Enter {
                namespace: network.host(host).namespace(),
                network: network.name().to_owned(),
            })
        }
        Request::Change(change) => apply(network, change).map(|()| Answer::Done),
        Request::Down => Ok(Answer::Done),
    }
}

fn apply(network: &Network, change: Change) -> Result<(), Failure> {
    match change {
        Change::Shape(ends, shape) => link(network, ends)?.shape(shape)?,
        Change::Cut(ends, true) => link(network, ends)?.cut()?,
        Change::Cut(ends, false) => link(network, ends)?.mend()?,
        Change::Dialling(ends, true) => link(network, ends)?.allow_dialling()?,
        Change::Dialling(ends, false) => link(network, ends)?.refuse_dialling()?,
        Change::Port { host, port, door } => {
            known(network, host)?;
            let host = network.host(host);
            match door {
                Door::Open => host.open_port(port)?,
                Door::Silent => host.block_port(port)?,
                Door::Reset => host.refuse_port(port)?,
            }
        }
        Change::Plugged(host, plugged) => {
            known(network, host)?;
            let host = network.host(host);
            if plugged {
                host.plug()?
            } else {
                host.unplug()?
            }
        }
    }
    Ok(())
}

fn link(network: &Network, ends: Ends) -> Result<Link<'_>, Failure> {
    known(network, ends.from)?;
    known(network, ends.to)?;
    if ends.from == ends.to {
        return Err(Failure::Said("a link needs two hosts".into()));
    }
    Ok(if ends.both {
        network.link(ends.from, ends.to)
    } else {
        network.one_way(ends.from, ends.to)
    })
}

fn known(network: &Network, host: usize) -> Result<(), Failure> {
    match network.hosts().len() {
        hosts if host < hosts => Ok(()),
        hosts => Err(Failure::Said(format!(
            "there is no host {host}, only 0 to {}",
            hosts - 1
        ))),
    }
}

fn status(network: &Network) -> Result<Status, Failure> {
    let count = network.hosts().len();
    let pairs = (0..count).flat_map(|from| (0..count).map(move |to| (from, to)));
    let shaped = pairs
        .filter(|(from, to)| from != to)
        .filter_map(|(from, to)| {
            let way = network.one_way(from, to);
            Some(Shaped {
                from,
                to,
                shape: way.shaped()?,
                fate: way.fate(),
            })
        });
    let shaped = shaped.collect();
    let hosts = network.hosts().iter().map(|host| {
        Ok(HostStatus {
            address: host.address().to_string(),
            interface: host.interface()?,
        })
    });
    Ok(Status {
        network: network.name().to_owned(),
        process: std::process::id(),
        hosts: hosts.collect::<Result<_, Failure>>()?,
        traffic: network.traffic()?,
        shaped,
    })
}
