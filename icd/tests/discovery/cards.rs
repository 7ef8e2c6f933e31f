//! Network cards of hosts, as processes read them.
//!
//! The kernel lets nobody set the speed of a veth, which is no card either. So processes get files of a test in place of
//! `/sys/class/net`. Nothing else of the machine changes.

use std::io;
use std::path::Path;
use std::process::Command;

use causeway::config::ServerSettings;
use causeway_discovery::Interfaces;
use causeway_network::Host;
use rustix::thread::{UnshareFlags, unshare_unsafe};

use crate::frames::servers::*;

/// Where the kernel shows interfaces.
const INTERFACES: &str = "/sys/class/net";

/// Runs `body` in a thread that sees cards of these names and speeds in Mbit/s, and no other ones. So do the threads and
/// processes that it starts, to their end.
pub(crate) fn with_cards<T: Send>(cards: &[(&str, u32)], body: impl FnOnce() -> T + Send) -> T {
    let seeing = || {
        cover().expect("root");
        for (name, mbits) in cards {
            let card = Path::new(INTERFACES).join(name);
            std::fs::create_dir_all(card.join("device")).expect("a folder");
            std::fs::write(card.join("speed"), format!("{mbits}\n")).expect("written");
        }
        body()
    };
    std::thread::scope(|scope| match scope.spawn(seeing).join() {
        Ok(done) => done,
        Err(panic) => std::panic::resume_unwind(panic),
    })
}

/// Whether a thread can see other cards. Prints the reason if it cannot, as in a container that forbids mounts.
pub(crate) fn can_be_shown() -> bool {
    match std::thread::spawn(cover).join() {
        Ok(Ok(())) => true,
        Ok(Err(error)) => {
            eprintln!("skipped: no other cards can be shown: {error}");
            false
        }
        Err(panic) => std::panic::resume_unwind(panic),
    }
}

/// Gives the calling thread an empty folder in place of the kernel's interfaces.
fn cover() -> io::Result<()> {
    // SAFETY: the thread gets its own mounts, and keeps sharing the descriptors, which the function's contract is about.
    unsafe { unshare_unsafe(UnshareFlags::NEWNS) }?;
    mount(&["--make-rprivate", "/"])?;
    // It ends with the last process that sees it.
    mount(&["-t", "tmpfs", "cards", INTERFACES])
}

fn mount(arguments: &[&str]) -> io::Result<()> {
    match Command::new("mount").args(arguments).status()?.success() {
        true => Ok(()),
        false => Err(io::Error::other(format!("mount {arguments:?} fails"))),
    }
}

/// Waits until these cables of a host carry. The kernel says so up to a second later.
pub(crate) fn carry(host: &Host, interfaces: &[&str]) {
    let carried = || {
        let up = Interfaces::of_host().expect("the host's interfaces").0;
        interfaces
            .iter()
            .all(|name| up.iter().any(|of| of.name == *name))
    };
    eventually("the cables", || {
        let carried = host.enter(carried).expect("the host's network");
        carried.then_some(())
    });
}

/// Waits until a daemon tells so many speeds. It does not wait long for cards, so its first answer may have none.
pub(crate) fn told(client: &Host, daemon: &str, count: usize) {
    let server = ServerSettings::at(daemon.parse().expect("an address"));
    eventually("the speeds", || {
        let ask = || causeway::transport::ask(&[server.clone().into()]).remove(0);
        let reply = client.enter(ask).expect("the host's network");
        let inventory = reply.inventory.ok()?;
        (inventory.link_speeds.len() == count).then_some(())
    });
}
