//! The nodes of [`super`] under a device manager, all with TLS: the program gets every device by a lease.
//!
//! The lease lists its nodes in another order, which this module corrects for the tests.

use std::path::Path;
use std::sync::OnceLock;

use causeway_cluster::Manager;
use parking_lot::Mutex;

use super::Node;
use crate::frames::servers::*;

/// Turns this on, in every test program with several nodes.
pub const VARIABLE: &str = "CAUSEWAY_TEST_MANAGED";

/// The manager ends with the process.
static MANAGER: Mutex<Option<Manager>> = Mutex::new(None);
static ORDER: OnceLock<Vec<String>> = OnceLock::new();

/// Whether the nodes belong to a manager.
pub fn is_wanted() -> bool {
    std::env::var_os(VARIABLE).is_some()
}

/// Returns the arguments of a daemon, among them the folder of its identity.
pub fn arguments() -> Vec<String> {
    let mut manager = MANAGER.lock();
    let manager = manager.get_or_insert_with(|| {
        let program = programs_of(&["causeway-devmgr"]).join("causeway-devmgr");
        Manager::start(&program, "").expect("a manager")
    });
    manager.node_arguments()
}

/// Makes this process's library request all devices of these nodes, once the nodes are connected.
pub fn configure(nodes: &[Node], folder: &Path) {
    let manager = MANAGER.lock();
    let manager = manager.as_ref().expect("the nodes' manager");
    let mut devices = 0;
    let come = manager.see("all nodes", |admin| {
        let there = admin.nodes()?;
        let there = there.iter().filter(|node| node.connected);
        let each: Vec<usize> = there.map(|node| node.devices.len()).collect();
        devices = each.iter().sum();
        Ok(each.iter().filter(|of| **of > 0).count() == nodes.len())
    });
    come.expect("they come");
    let (_, token) = manager.user("tester").expect("a user");
    let config = folder.join("servers.toml");
    let settings = manager.client_settings(&token, "");
    std::fs::write(
        &config,
        format!("{settings}[[request]]\ncount = {devices}\n"),
    )
    .expect("written");
    let addresses = nodes.iter().map(|node| node.address.clone()).collect();
    ORDER.set(addresses).expect("once");
    for (name, value) in [
        ("CAUSEWAY_CONFIG", config.as_os_str()),
        // Otherwise no large transfer would use TLS.
        ("CAUSEWAY_SHARED_MEMORY", "0".as_ref()),
    ] {
        // SAFETY: the library has not been asked anything yet, so nobody reads the environment.
        unsafe { std::env::set_var(name, value) };
    }
}

/// Sorts devices into the order of the nodes.
pub fn in_order(mut devices: Vec<cl_device_id>) -> Vec<cl_device_id> {
    if let Some(order) = ORDER.get() {
        devices.sort_by_key(|device| {
            let server = server_of(*device);
            let address = text(&server_info(server, CL_SERVER_ADDRESS_WWU));
            order
                .iter()
                .position(|of| *of == address)
                .expect("one of the nodes")
        });
    }
    devices
}

/// Ends the manager and deletes its files.
pub fn end() {
    drop(MANAGER.lock().take());
}
