//! The packets that a host accepts: `nft` scripts for cuts, closed ports and refused dialing, and a
//! counter per other host.
//!
//! Pure text. All rules apply where packets *arrive*. A rule on the sender's side would return an error
//! to the sending program (`EPERM`), but a broken network reports nothing.

use std::fmt::Write;
use std::net::Ipv4Addr;

/// The behaviour of a closed port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Refusal {
    /// Drops packets.
    Silent,
    /// Answers with a TCP reset.
    Reset,
}

/// Returns the table and its hook, in "raw" order: before connection tracking.
pub(crate) fn table(peers: &[Ipv4Addr]) -> String {
    let mut text = String::from(
        "table inet network {
  set cut { type ipv4_addr; }
  set undialled { type ipv4_addr; }
  set silent { type inet_service; }
  set refused { type inet_service; }
",
    );
    for peer in peers {
        // Writing to a String cannot fail.
        let _ = writeln!(text, "  counter {} {{ }}", counter(*peer));
    }
    text.push_str(
        "  chain arriving {
    type filter hook input priority 0; policy accept;
    iifname \"lo\" accept
    ip saddr @cut drop
    ip saddr @undialled tcp flags & (syn | ack) == syn drop
    tcp dport @silent drop
    udp dport @silent drop
",
    );
    for peer in peers {
        let _ = writeln!(text, "    ip saddr {peer} counter name {}", counter(*peer));
    }
    // After the counters, because a refused packet has crossed the network.
    text.push_str("    tcp dport @refused reject with tcp reset\n  }\n}\n");
    text
}

/// Name of the counter for packets from `peer`.
pub(crate) fn counter(peer: Ipv4Addr) -> String {
    format!("from_{}", peer.to_string().replace('.', "_"))
}

/// Drops, or stops dropping, all packets from a host.
pub(crate) fn cut(from: Ipv4Addr, on: bool) -> String {
    member("cut", from, on)
}

/// Drops, or stops dropping, connection attempts from a host. Those in the other direction work.
pub(crate) fn undialled(from: Ipv4Addr, on: bool) -> String {
    member("undialled", from, on)
}

/// Closes `port`.
pub(crate) fn close_port(port: u16, how: Refusal) -> String {
    let (into, out_of) = match how {
        Refusal::Silent => ("silent", "refused"),
        Refusal::Reset => ("refused", "silent"),
    };
    member(into, port, true) + &member(out_of, port, false)
}

/// Opens `port`, however it was closed.
pub(crate) fn open_port(port: u16) -> String {
    member("silent", port, false) + &member("refused", port, false)
}

/// Adds or deletes an element. In `nft`, only adding is idempotent, so an element to delete is added
/// first in the same transaction.
fn member(set: &str, element: impl std::fmt::Display, on: bool) -> String {
    let mut text = format!("add element inet network {set} {{ {element} }}\n");
    if !on {
        let _ = writeln!(text, "delete element inet network {set} {{ {element} }}");
    }
    text
}
