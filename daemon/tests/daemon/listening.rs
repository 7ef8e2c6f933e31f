//! Tests of the daemon's addresses, and of how it reports them.

use std::collections::HashSet;

use causeway_proto::control::GetInventoryRequest;

use crate::support::{Setup, VERSION, client};

#[tokio::test]
async fn every_listener_has_its_line_and_leads_to_the_same_node() {
    let daemon = Setup::new().listeners(3).start();
    let ports: HashSet<_> = daemon.addresses.iter().map(|a| a.port()).collect();
    assert_eq!(ports.len(), 3);
    assert!(!ports.contains(&0));
    let mut nodes = HashSet::new();
    for address in &daemon.addresses {
        let request = GetInventoryRequest {
            wire_version: VERSION,
            ..GetInventoryRequest::default()
        };
        let inventory = client(*address).await.get_inventory(request).await.unwrap();
        nodes.insert(inventory.into_inner().node_uuid);
    }
    assert_eq!(nodes.len(), 1);
    assert_eq!(nodes.iter().next().unwrap().len(), 16);
}

#[tokio::test]
async fn two_daemons_on_one_machine_are_two_nodes() {
    let (one, other) = (Setup::new().start(), Setup::new().start());
    assert_ne!(
        one.inventory().await.node_uuid,
        other.inventory().await.node_uuid
    );
}

#[test]
fn other_machines_are_served_only_on_demand() {
    let (said, status) = Setup::new().args(&["--listen", "0.0.0.0:0"]).refused();
    assert!(said.contains("--insecure"), "{said}");
    assert_eq!(status.code(), Some(2));
}

#[test]
fn a_wrong_file_is_named_with_its_line() {
    let (said, status) = Setup::new()
        .config("insecure = false\nport = 7079\n")
        .refused();
    assert!(
        said.contains("daemon.toml:2: unknown field `port`"),
        "{said}"
    );
    assert_eq!(status.code(), Some(2));
}

#[test]
fn an_address_in_use_is_named() {
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let (said, status) = Setup::new().args(&["--listen", &address]).refused();
    assert!(
        said.contains(&format!("cannot listen on {address}")) && said.contains("--listen"),
        "{said}"
    );
    assert_eq!(status.code(), Some(1));
}
