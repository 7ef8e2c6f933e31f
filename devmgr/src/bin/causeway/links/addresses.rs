//! Which addresses of a node are measured from this machine, if the node has several.
//!
//! Invariant: an address that leads nowhere costs the node none of its time for measurements. Its user is told why.

use std::io;
use std::net::{SocketAddr, TcpStream, ToSocketAddrs};
use std::sync::mpsc;
use std::time::{Duration, Instant};

/// Time in which names are looked up: longer than the system asks two name servers, for 5 s each, of which the first is down.
const RESOLVED_WITHIN: Duration = Duration::from_secs(12);
/// Time in which an address accepts a connection.
const ANSWERS_WITHIN: Duration = Duration::from_secs(2);

/// The addresses that are measured, and why others are not.
pub(super) fn usable(addresses: Vec<String>) -> (Vec<String>, Vec<String>) {
    let (routes, unresolved) = routes(addresses);
    let (answering, silent) = answering(routes);
    let fault = |address: String| format!("{address}: accepts no connection");
    let faults = unresolved.into_iter().chain(silent.into_iter().map(fault));
    (answering, faults.collect())
}

/// An address, and where it leads.
#[derive(Debug, PartialEq, Eq)]
struct Route {
    address: String,
    at: Vec<SocketAddr>,
}

/// The addresses that are measured one by one, because programs use all of them at a time, and why others lead nowhere. Names
/// of an address that has come before are left out. So are link-local ones, which are not dialled, if there are others.
fn routes(addresses: Vec<String>) -> (Vec<Route>, Vec<String>) {
    let (local, others): (Vec<_>, Vec<_>) =
        (addresses.into_iter()).partition(|of| of.contains('%'));
    if others.is_empty() {
        // The measurement has the reason.
        let route = |address| Route {
            address,
            at: Vec::new(),
        };
        return (local.into_iter().map(route).collect(), Vec::new());
    }
    let (numbers, names): (Vec<_>, Vec<_>) =
        (others.into_iter()).partition(|of| of.parse::<SocketAddr>().is_ok());
    let numbers = numbers.into_iter().map(|address| {
        let at = address.parse().into_iter().collect();
        (address, Ok(at))
    });
    let (mut routes, mut faults) = (Vec::<Route>::new(), Vec::new());
    for (address, at) in numbers.chain(resolved(names, RESOLVED_WITHIN, look_up)) {
        let at: Vec<SocketAddr> = match at {
            Ok(at) => at,
            Err(error) => {
                faults.push(format!("{address}: {error}"));
                continue;
            }
        };
        let mut known = routes.iter().flat_map(|route| &route.at);
        if !known.any(|known| at.iter().any(|of| of.ip() == known.ip())) {
            routes.push(Route { address, at });
        }
    }
    (routes, faults)
}

/// Where a host name leads.
type Resolved = io::Result<Vec<SocketAddr>>;

/// As the system's resolver says, which may take long.
fn look_up(name: &str) -> Resolved {
    let at: Vec<_> = name.to_socket_addrs()?.collect();
    match at.is_empty() {
        true => Err(io::Error::other("the host name has no address")),
        false => Ok(at),
    }
}

/// Looks names up side by side. A server has few.
fn resolved(
    names: Vec<String>,
    within: Duration,
    look_up: fn(&str) -> Resolved,
) -> impl Iterator<Item = (String, Resolved)> {
    let until = Instant::now() + within;
    let asked = names.into_iter().map(|name| {
        let (found, answer) = mpsc::channel();
        let wanted = name.clone();
        // The thread ends when the resolver does, for which nobody may wait any more.
        let asks = move || drop(found.send(look_up(&wanted)));
        let thread = std::thread::Builder::new().name("link-name".into());
        (name, thread.spawn(asks).map(|_| answer))
    });
    let asked: Vec<_> = asked.collect();
    asked.into_iter().map(move |(name, answer)| {
        let left = until.saturating_duration_since(Instant::now());
        let late = |_| io::Error::new(io::ErrorKind::TimedOut, "the name was not resolved in time");
        let at = answer.and_then(|answer| answer.recv_timeout(left).map_err(late)?);
        (name, at)
    })
}

/// The addresses that accept connections, and the others. A node that waits for a silent one in vain counts that time as used.
fn answering(routes: Vec<Route>) -> (Vec<String>, Vec<String>) {
    let answers = |route: &Route| match &route.at[..] {
        [] => true,
        at => (at.iter()).any(|at| TcpStream::connect_timeout(at, ANSWERS_WITHIN).is_ok()),
    };
    let answers: Vec<bool> = std::thread::scope(|scope| {
        let asked = routes.iter().map(|of| scope.spawn(|| answers(of)));
        let asked: Vec<_> = asked.collect();
        let asked = asked.into_iter();
        asked.map(|of| of.join().unwrap_or(true)).collect()
    });
    let all = routes.into_iter().map(|of| of.address).zip(answers);
    let (answering, silent): (Vec<_>, Vec<_>) = all.partition(|(_, answers)| *answers);
    let bare = |of: Vec<(String, bool)>| of.into_iter().map(|(address, _)| address).collect();
    (bare(answering), bare(silent))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::TcpListener;
    use std::sync::Barrier;

    fn texts(of: &[&str]) -> Vec<String> {
        of.iter().map(|&of| of.to_owned()).collect()
    }

    #[test]
    fn each_address_is_measured_once() {
        let of = |addresses: &[&str]| {
            let (routes, faults) = routes(texts(addresses));
            let routes = routes.into_iter().map(|of| of.address).collect::<Vec<_>>();
            (routes, faults)
        };
        let two = ["10.0.0.5:7079", "[fd00::5]:7079"];
        let none = Vec::<String>::new;
        assert_eq!(of(&two), (texts(&two), none()));
        assert_eq!(
            of(&["localhost:1", "127.0.0.1:1", "127.0.0.1:2"]),
            (texts(&["127.0.0.1:1"]), none())
        );
        let local = "[fe80::1%eth0]:1";
        assert_eq!(of(&[local, two[0]]), (texts(&two[..1]), none()));
        assert_eq!(of(&[local]), (texts(&[local]), none()));
        let (routes, faults) = of(&["no.such.invalid:1", two[0]]);
        assert_eq!(routes, two[..1]);
        assert!(
            faults.len() == 1 && faults[0].starts_with("no.such.invalid:1: "),
            "{faults:?}"
        );
    }

    #[test]
    fn names_are_looked_up_side_by_side_and_for_a_limited_time() {
        static ALL: Barrier = Barrier::new(3);
        let names = texts(&["one:1", "two:1", "three:1"]);
        let together = |_: &str| {
            ALL.wait();
            Ok(vec![SocketAddr::from(([10, 0, 0, 5], 1))])
        };
        let found = resolved(names.clone(), Duration::from_secs(60), together);
        let found: Vec<_> = found.map(|(name, at)| (name, at.unwrap().len())).collect();
        let expected: Vec<_> = names.iter().map(|name| (name.clone(), 1)).collect();
        assert_eq!(found, expected);
        let never = |_: &str| {
            loop {
                std::thread::park();
            }
        };
        let late = resolved(names, Duration::from_millis(20), never);
        let late = late.map(|(_, at)| at.unwrap_err().kind());
        assert_eq!(late.collect::<Vec<_>>(), [io::ErrorKind::TimedOut; 3]);
    }

    #[test]
    fn silent_addresses_are_not_measured() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let open = listener.local_addr().unwrap().to_string();
        // Nobody else gets the port of the open one.
        let shut = open.replace("127.0.0.1:", "127.0.0.3:");
        let (routes, faults) = usable(vec![shut.clone(), open.clone()]);
        assert_eq!(routes, [open]);
        assert_eq!(faults, [format!("{shut}: accepts no connection")]);
    }
}
