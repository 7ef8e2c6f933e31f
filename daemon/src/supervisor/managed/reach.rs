//! The addresses at which the device manager's users are told to reach this node. Pure.
//!
//! Users compare the name that they dial with the node's certificate. A node without configured addresses
//! therefore reports those of its own addresses that its certificate covers, and the host names in the
//! certificate. This module looks up no names.

use std::net::{IpAddr, SocketAddr};

use causeway_security::OwnCertificate;
use causeway_serving::is_loopback;

use crate::config::Advertised;

/// Maximum number of addresses. Users do not try more.
const MOST: usize = causeway_proto::limits::MAX_LINK_ADDRESSES / 2;

/// The node's settings that decide where it can be reached.
pub(super) struct Node<'a> {
    /// Addresses on which the node listens.
    pub(super) listening: &'a [SocketAddr],
    /// Addresses that the settings advertise.
    pub(super) advertised: &'a [Advertised],
    /// Certificate of the node's port, if it has one.
    pub(super) certificate: Option<&'a OwnCertificate>,
}

/// A problem that keeps users from the node, and advice on how to fix it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Hindrance {
    pub(super) problem: String,
    pub(super) cure: &'static str,
}

/// Returns addresses as `HOST:PORT`, the most likely first. `own` contains the addresses that other nodes
/// get.
pub(super) fn addresses(node: &Node<'_>, own: Vec<String>) -> Vec<String> {
    let Some(certificate) = node.certificate else {
        return own;
    };
    if !node.advertised.is_empty() {
        return own;
    }
    // Addresses come first, because they certainly lead to this node. Another node may have a certificate
    // with the same names.
    let covered = own.iter().filter(|at| certificate.covers(host(at)));
    let mut told: Vec<String> = covered.cloned().collect();
    // A name resolves to an address of the machine, on which only listeners beyond loopback are found.
    if let Some(beyond) = node.listening.iter().find(|at| !is_loopback(at)) {
        let names = certificate.host_names();
        let names = names.iter().filter(|name| !is_local(name));
        told.extend(names.map(|name| format!("{name}:{}", beyond.port())));
    }
    told.truncate(MOST);
    match told.is_empty() {
        // These addresses do not work either, and a warning says so. They help the manager's users to find
        // the problem.
        true => own,
        false => told,
    }
}

/// Returns the problems with the addresses in `told`. `is_near`: the manager runs on this machine.
pub(super) fn hindrances(node: &Node<'_>, told: &[String], is_near: bool) -> Vec<Hindrance> {
    let mut all = Vec::new();
    if !is_near && told.iter().all(|at| is_local(host(at))) {
        all.push(Hindrance {
            problem: format!(
                "the device manager is on another machine, but its users are told to reach this node at {}, which is \
                 their own machine",
                told.join(", ")
            ),
            cure: "listen on a reachable address (--listen 0.0.0.0, listen in daemon.toml), or advertise one \
                   (--advertise HOST)",
        });
    }
    if let Some(certificate) = node.certificate {
        let covers = |at: &&String| certificate.covers(host(at));
        let bad: Vec<_> = told.iter().filter(|at| !covers(at)).cloned().collect();
        if !bad.is_empty() {
            all.push(Hindrance {
                problem: format!(
                    "{} is not valid for {}, where the device manager's users are told to reach this node: they will \
                     refuse it there",
                    certificate.file().display(),
                    bad.join(", ")
                ),
                cure: "advertise a name of the certificate (--advertise HOST, advertise in daemon.toml), or make it one \
                       for this name (causeway certs node NAME --address HOST)",
            });
        }
    }
    all
}

/// Returns the host of `HOST:PORT`, without brackets.
fn host(address: &str) -> &str {
    let host = address.rsplit_once(':').map_or(address, |(host, _)| host);
    host.trim_start_matches('[').trim_end_matches(']')
}

fn is_local(host: &str) -> bool {
    let address = host.parse::<IpAddr>();
    address.map_or_else(
        |_| host == "localhost" || host.ends_with(".localhost"),
        |address| address.to_canonical().is_loopback(),
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::parse_advertised;
    use causeway_security::Authority;
    use std::time::{Duration, SystemTime};

    fn certificate(names: &[&str]) -> OwnCertificate {
        let folder = tempfile::tempdir().unwrap();
        let now = SystemTime::now();
        let valid = now..now + Duration::from_secs(60);
        let (authority, _) = Authority::generate("CA", valid.clone()).unwrap();
        let names: Vec<_> = names.iter().map(|name| (*name).to_owned()).collect();
        let issued = authority.node(&names, valid).unwrap();
        let file = folder.path().join("node.pem");
        std::fs::write(&file, &issued.certificate).unwrap();
        OwnCertificate::load(&file).unwrap()
    }

    /// Returns the addresses, and the number of problems with them for a manager on this machine and for
    /// one elsewhere.
    fn told(
        listening: &str,
        advertised: &[&str],
        names: Option<&[&str]>,
        own: &[&str],
    ) -> (Vec<String>, [usize; 2]) {
        let advertised: Vec<_> = advertised
            .iter()
            .map(|text| parse_advertised(text).unwrap())
            .collect();
        let certificate = names.map(certificate);
        let node = Node {
            listening: &[listening.parse().unwrap()],
            advertised: &advertised,
            certificate: certificate.as_ref(),
        };
        let told = addresses(&node, own.iter().map(|at| (*at).to_owned()).collect());
        let wrong = [true, false].map(|is_near| hindrances(&node, &told, is_near).len());
        (told, wrong)
    }

    fn are(told: &[&str]) -> Vec<String> {
        told.iter().map(|at| (*at).to_owned()).collect()
    }

    #[test]
    fn who_was_told_nothing_is_called_by_the_names_of_its_certificate() {
        let own = ["10.0.0.1:7", "10.0.1.1:7"];
        let names = ["gpu1", "localhost", "10.0.1.1"];
        assert_eq!(
            told("0.0.0.0:7", &[], Some(&names), &own),
            (are(&["10.0.1.1:7", "gpu1:7"]), [0, 0])
        );
        // The certificate has no name that leads here, so the addresses are reported although it does not
        // cover them.
        assert_eq!(
            told("0.0.0.0:7", &[], Some(&["localhost"]), &own),
            (are(&own), [1, 1])
        );
        assert_eq!(told("0.0.0.0:7", &[], None, &own), (are(&own), [0, 0]));
    }

    #[test]
    fn who_listens_on_loopback_is_not_called_by_a_name_and_is_warned() {
        let own = ["127.0.0.1:7"];
        let listening = "127.0.0.1:7";
        assert_eq!(
            told(listening, &[], Some(&["gpu1"]), &own),
            (are(&own), [1, 2])
        );
        let names = ["gpu1", "127.0.0.1"];
        assert_eq!(
            told(listening, &[], Some(&names), &own),
            (are(&own), [0, 1])
        );
        assert_eq!(told(listening, &[], None, &own), (are(&own), [0, 1]));
    }

    #[test]
    fn what_is_advertised_is_told_as_it_is_and_compared() {
        let own = ["gpu1:7", "gpu2:9"];
        let advertised = ["gpu1", "gpu2:9"];
        let of = |names: &[&str]| told("0.0.0.0:7", &advertised, Some(names), &own);
        assert_eq!(of(&["gpu1"]), (are(&own), [1, 1]));
        assert_eq!(of(&["gpu1", "gpu2"]), (are(&own), [0, 0]));
        assert_eq!(host("[::1]:7"), "::1");
    }
}
