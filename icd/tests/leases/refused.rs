//! Tests refusals: other users' leases, wrong tokens and certificates at the manager, and leases at the node that are
//! over.

use std::time::Duration;

use bytes::Bytes;
use causeway::config::{ServerSettings, TlsSettings};
use causeway::transport::{self, Target};

use crate::cluster::{Cluster, played};
use crate::frames::servers::eventually;

const ONE: &str = "[[device]]\nname = \"A\"";

#[test]
fn what_is_not_the_user_s_is_not_shown() {
    if played() {
        return;
    }
    let cluster = Cluster::start("");
    let _node = cluster.node(ONE);
    let lease = cluster.user.lease("1").expect("a free device");
    let id: String = lease
        .lease_id
        .iter()
        .map(|of| format!("{of:02x}"))
        .collect();
    let (eve, eves) = cluster.manager.user("eve").expect("a user");
    let certificates = &cluster.manager.certificates;
    let shown = |path: &std::path::Path| path.display().to_string();
    let wrong = certificates
        .private("wrong", b"causeway_0000")
        .expect("written");
    let (node, _) = certificates.server("other", &["other"]).expect("signed");
    let port = cluster.manager.address().port();
    for (more, why) in [
        // Another user's lease, whose id is known, looks like a lease that does not exist.
        (
            &[
                ("CAUSEWAY_LEASE", id),
                ("CAUSEWAY_TOKEN_FILE", shown(&eves)),
            ][..],
            "unknown lease",
        ),
        (
            &[("CAUSEWAY_TOKEN_FILE", shown(&wrong))],
            "the token is unknown",
        ),
        (&[("CAUSEWAY_TOKEN_FILE", String::new())], "neither a token"),
        // The manager's certificate is for 127.0.0.1, and from another CA.
        (
            &[("CAUSEWAY_MANAGER", format!("localhost:{port}"))],
            "not valid for name",
        ),
        (&[("CAUSEWAY_CA", shown(&node))], "UnknownIssuer"),
    ] {
        let more: Vec<_> = more.iter().map(|(name, of)| (*name, of.as_str())).collect();
        let mut stranger = cluster.program_with("1", &more);
        assert_eq!(stranger.ask("devices"), "", "{more:?}");
        stranger.warns(why);
        stranger.end();
    }
    assert!(
        eve.release(&lease).is_err(),
        "another user's lease was released"
    );
    assert_eq!(eve.leases().expect("a list"), []);
    assert_eq!(cluster.user.leases().expect("a list").len(), 1);
}

#[test]
fn whose_token_counts_no_more_is_told_so() {
    if played() {
        return;
    }
    let cluster = Cluster::start("");
    let _node = cluster.node(ONE);
    let admin = cluster.manager.admin();
    let soon = admin.another_token("tester", Duration::from_millis(1));
    let gone = admin.another_token("tester", Duration::ZERO);
    let gone = gone.expect("a token");
    admin.revoke_token(gone.token_id()).expect("revoked");
    for (caller, why) in [
        (soon.expect("a token"), "the token has expired"),
        (gone, "the token is unknown or was revoked"),
    ] {
        // Retries until the token has expired: its time is checked at each use.
        let refusal = eventually(why, || caller.leases().err());
        assert!(refusal.to_string().contains(why), "{refusal}");
        let file = cluster
            .manager
            .certificates
            .private("old.token", caller.token().as_bytes());
        let file = file.expect("written").display().to_string();
        let mut program = cluster.program_with("1", &[("CAUSEWAY_TOKEN_FILE", &file)]);
        assert_eq!(program.ask("devices"), "");
        program.warns(why);
        program.end();
    }
    assert_eq!(cluster.states(), []);
}

#[test]
fn a_node_shows_its_devices_to_leases_that_run() {
    if played() {
        return;
    }
    let cluster = Cluster::start("");
    let node = cluster.node(ONE);
    let server = ServerSettings {
        tls: TlsSettings {
            ca: Some(cluster.manager.certificates.ca()),
            ..TlsSettings::default()
        },
        ..ServerSettings::at(node.address.to_string().parse().expect("an address"))
    };
    // Returns how many devices the node shows to a caller with this credential, and the node's remark.
    let shown = |credential: &Bytes| {
        let target = Target {
            server: server.clone(),
            credential: credential.clone(),
        };
        let reply = transport::ask(&[target]).remove(0);
        let inventory = reply.inventory.expect("an answer");
        let devices = inventory.platforms.iter().flat_map(|of| &of.devices);
        let there = devices.filter(|device| !device.info.is_empty()).count();
        (there, inventory.problems.join(" "))
    };
    let first = cluster.user.lease("1").expect("a free device");
    assert_eq!(shown(&first.signed_lease).0, 1);
    let mut forged = first.signed_lease.to_vec();
    let last = forged.len() - 1;
    forged[last] ^= 1;
    assert_eq!(shown(&Bytes::from(forged)).0, 0);
    assert_eq!(shown(&Bytes::new()).0, 0);

    // ---- a lease that is over, shown again, also next to a newer lease of the same device
    cluster.user.release(&first).expect("given back");
    let second = cluster.user.wait_for("1").expect("a place");
    let second = second.granted().expect("the device");
    let (there, why) = shown(&first.signed_lease);
    assert_eq!(there, 0);
    assert!(!why.is_empty());
    assert_eq!(shown(&second.signed_lease).0, 1);

    // ---- a lease of another manager
    let other = Cluster::start("");
    let elsewhere = other.node(ONE);
    let theirs = other.user.lease("1").expect("a free device");
    assert_eq!(shown(&theirs.signed_lease).0, 0);
    drop(elsewhere);
}
