//! What a host lets in: `nft` scripts for cuts, closed ports, refused dialling, and a counter for each other host.
//!
//! Pure text. Everything is checked where packets *arrive*: a rule on the sender's side would tell the sending
//! program (`EPERM`), and a broken network tells nobody.

use std::fmt::Write;
use std::net::Ipv4Addr;

/// How a closed port answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Refusal {
    /// Not at all.
    Silent,
    /// With a TCP reset.
    Reset,
}

/// The table and its hook: in "raw" order, before connection tracking could exist.
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
    // After the counters: a refused packet has crossed the network.
    text.push_str("    tcp dport @refused reject with tcp reset\n  }\n}\n");
    text
}

/// The counter for what arrives from `peer`.
pub(crate) fn counter(peer: Ipv4Addr) -> String {
    format!("from_{}", peer.to_string().replace('.', "_"))
}

/// Whose packets vanish.
pub(crate) fn cut(from: Ipv4Addr, on: bool) -> String {
    member("cut", from, on)
}

/// Whose connection attempts vanish, while those in the other direction work.
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

/// Adding is idempotent in `nft`, deleting is not: what is to go is added first, in the same transaction.
fn member(set: &str, element: impl std::fmt::Display, on: bool) -> String {
    let mut text = format!("add element inet network {set} {{ {element} }}\n");
    if !on {
        let _ = writeln!(text, "delete element inet network {set} {{ {element} }}");
    }
    text
}
