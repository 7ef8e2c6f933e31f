//! The one platform, *Causeway*: its devices are those of every connected server.
//!
//! Enumeration is free: it reads the supervisors' inventories, opens no session and is remembered; only
//! servers that did not answer, or were lost since, are asked again, now and then. Nothing configured: no
//! platform, no socket, no thread. What a device manager gives is reserved then, and its nodes are servers as others.
//!
//! Invariant: a node is one server, by however many addresses it was found; servers are never removed, so
//! that their devices' handles stay what they are.
#![forbid(unsafe_code)]

use std::collections::BTreeSet;
use std::sync::{Arc, OnceLock};
use std::time::Instant;

use causeway_proto::command::{UnloadCompiler, command::Kind};
use causeway_proto::control::Inventory;
use cl_headers::server::CL_CONNECTION_FAILURE_WWU;
use cl_headers::types::{
    CL_DEVICE_EXTENSIONS, CL_DEVICE_EXTENSIONS_WITH_VERSION, CL_DEVICE_NOT_AVAILABLE,
    CL_INVALID_OPERATION, CL_INVALID_VALUE, cl_version,
};
use parking_lot::{Mutex, MutexGuard, RwLock};

use super::device::Device;
use super::{Binding, Server, extensions};
use crate::config::{Address, ServerSettings, Settings};
use crate::error::{ClResult, fail, require};
use crate::lease::{Lease, Offer, Offered, Unconfirmed};
use crate::transport::{self, Reply, Target};

/// What may stand before a server's address.
const SCHEME: &str = "causeway://";

/// See the module.
#[derive(Debug)]
pub struct Platform {
    pub(crate) binding: Binding,
    settings: &'static Settings,
    // What a device manager gives.
    lease: Option<Arc<Lease>>,
    // In the order in which they became known, the configured ones first.
    servers: RwLock<Vec<Arc<Server>>>,
    // Held while nodes are asked (a second at most; a device manager's and a lease's nodes for longer), and while
    // servers come and go.
    asking: Mutex<Asking>,
}

/// Whether the configured servers were asked.
#[derive(Debug, Default)]
struct Asking {
    begun: bool,
}

impl Platform {
    /// The platform; none when neither a server nor a lease is configured, or inside of a daemon's own process.
    #[must_use]
    pub fn get() -> Option<&'static Arc<Platform>> {
        static PLATFORM: OnceLock<Option<Arc<Platform>>> = OnceLock::new();
        PLATFORM
            .get_or_init(|| {
                if std::env::var_os(causeway_proto::RECURSION_GUARD).is_some() {
                    return None;
                }
                let settings = Settings::of_process();
                let is_configured = !settings.servers.is_empty() || settings.lease.is_some();
                is_configured.then(|| {
                    crate::config::log::init();
                    Arc::new(Platform {
                        binding: Binding::default(),
                        settings,
                        lease: Lease::new(settings),
                        servers: RwLock::default(),
                        asking: Mutex::default(),
                    })
                })
            })
            .as_ref()
    }

    /// All devices of connected servers, in the order of the servers. The first call asks the nodes, later
    /// ones those that do not answer, not often: at most a second.
    #[must_use]
    pub fn devices(&self) -> Vec<Arc<Device>> {
        drop(self.ask());
        let servers = self.servers.read();
        let connected = servers.iter().filter(|server| server.is_connected());
        connected.flat_map(|server| server.devices()).collect()
    }

    /// The extensions that all devices have, with the lowest version: those that every platform must report
    /// as its own besides. Asks as [`Platform::devices`] does.
    #[must_use]
    pub fn common_extensions(&self) -> Vec<(String, cl_version)> {
        let devices = self.devices();
        let told = devices.iter().map(|device| {
            let versions = device.info(CL_DEVICE_EXTENSIONS_WITH_VERSION);
            let versions = versions.and_then(Result::ok).map_or(&[][..], |bytes| bytes);
            (device.text(CL_DEVICE_EXTENSIONS), versions)
        });
        extensions::common(&told.collect::<Vec<_>>())
    }

    /// `clUnloadPlatformCompiler`: passes the hint on to the nodes' drivers, as far as the program has
    /// sessions with them. Waits for nothing.
    pub fn unload_compiler(&self) {
        let servers = self.servers.read().clone();
        for server in servers {
            let Some(session) = server.node().live_session() else {
                continue;
            };
            let devices = server.devices();
            let platforms: BTreeSet<u32> = devices.iter().map(|of| of.platform().0).collect();
            for platform in platforms {
                // A lost session has nothing loaded.
                let _ = session.send(&Kind::UnloadCompiler(UnloadCompiler { platform }));
            }
        }
    }

    /// The server of a device.
    #[must_use]
    pub fn server_of(&self, device: &Device) -> Option<Arc<Server>> {
        let servers = self.servers.read();
        let own = |server: &&Arc<Server>| Arc::ptr_eq(server.node(), device.node());
        servers.iter().find(own).cloned()
    }

    /// `clConnectServerWWU`: the server at an address, with one reference more.
    ///
    /// # Errors
    /// `CL_INVALID_VALUE` for what is no address; `CL_CONNECTION_FAILURE_WWU`.
    pub fn connect(&self, url: &str) -> ClResult<Arc<Server>> {
        let Some(address) = address_of(url) else {
            return fail(CL_INVALID_VALUE);
        };
        let asking = self.ask();
        let at_address = self.find(|server| server.node().settings().address == address);
        if let Some(server) = &at_address
            && server.node().is_available()
        {
            server.add_references(1);
            return Ok(Arc::clone(server));
        }
        let asked = match &at_address {
            Some(server) => server.node().target(),
            None => Target::from(ServerSettings {
                tls: self.settings.tls.clone(),
                ..ServerSettings::at(address)
            }),
        };
        let Some(reply) = transport::ask(std::slice::from_ref(&asked)).pop() else {
            return fail(CL_CONNECTION_FAILURE_WWU);
        };
        let inventory = match &reply.inventory {
            Ok(inventory) => Arc::clone(inventory),
            Err(error) => {
                tracing::warn!("{error}");
                return fail(CL_CONNECTION_FAILURE_WWU);
            }
        };
        let same_node = self.find(|server| server.uuid() == inventory.node_uuid);
        let server = match same_node {
            Some(server) => {
                server.add_references(1);
                server
            }
            None => match at_address {
                Some(server) => {
                    server.add_references(1);
                    server
                }
                None => {
                    let server = Server::new(asked.server);
                    self.servers.write().push(Arc::clone(&server));
                    server
                }
            },
        };
        server.node().note_round_trip(reply.round_trip);
        server.take(&inventory);
        drop(asking);
        Ok(server)
    }

    /// `clDisconnectServerWWU`: one reference less.
    ///
    /// # Errors
    /// `CL_INVALID_OPERATION` when there is none.
    pub fn disconnect(&self, server: &Server) -> ClResult {
        let _nobody_connects = self.asking.lock();
        require(server.remove_reference(), CL_INVALID_OPERATION)?;
        if let Some(lease) = self.lease.as_ref().filter(|lease| lease.has(server.node())) {
            let in_use = |server: &Server| server.is_connected() && lease.has(server.node());
            if self.find(in_use).is_none() {
                lease.leave();
            }
        }
        Ok(())
    }

    /// Makes a lease of what a device manager has set aside, if some of the devices are of it. Waits for the network
    /// only the first time.
    ///
    /// # Errors
    /// `CL_DEVICE_NOT_AVAILABLE` when the manager does not give it, or gives other devices by now.
    pub fn confirm(&self, devices: &[Arc<Device>]) -> ClResult {
        let Some(lease) = &self.lease else {
            return Ok(());
        };
        let is_leased = |device: &Arc<Device>| lease.has(device.node());
        if !devices.iter().any(is_leased) {
            return Ok(());
        }
        for _ in 0..2 {
            match lease.confirm() {
                Ok(()) => return Ok(()),
                Err(Unconfirmed::Unheard) => break,
                // A program may think for longer than a reservation is kept.
                Err(Unconfirmed::Over) => drop(self.ask()),
            }
            let mut leased = devices.iter().filter(|device| is_leased(device));
            if !leased.all(|device| device.is_available()) {
                break;
            }
        }
        fail(CL_DEVICE_NOT_AVAILABLE)
    }

    fn find(&self, is: impl Fn(&Server) -> bool) -> Option<Arc<Server>> {
        let servers = self.servers.read();
        servers.iter().find(|server| is(server)).cloned()
    }

    // Asks those that are due; all, the first time.
    fn ask(&self) -> MutexGuard<'_, Asking> {
        let mut asking = self.asking.lock();
        if !std::mem::replace(&mut asking.begun, true) {
            let configured = self.settings.servers.iter().cloned().map(Server::new);
            *self.servers.write() = configured.collect();
        }
        let now = Instant::now();
        let reserving = self.lease.as_ref().and_then(Lease::enumerate);
        let servers = self.servers.read();
        let due: Vec<Arc<Server>> = servers
            .iter()
            .filter(|server| server.is_due(now))
            .cloned()
            .collect();
        drop(servers);
        if !due.is_empty() {
            let targets: Vec<Target> = due.iter().map(|server| server.node().target()).collect();
            for (server, reply) in due.iter().zip(transport::ask(&targets)) {
                self.hear(server, reply, now);
            }
        }
        if let (Some(lease), Some(reserving)) = (&self.lease, reserving)
            && let Some(offer) = reserving.finish()
        {
            self.adopt(lease, offer, now);
        }
        asking
    }

    // The nodes of an offer become servers. One that is known already, by the configuration say, stays what it is.
    fn adopt(&self, lease: &Arc<Lease>, offer: Offer, asked: Instant) {
        let mut nodes = Vec::new();
        for Offered {
            uuid,
            target,
            reply,
        } in offer.nodes
        {
            let address = target.server.address.clone();
            let is_it = |server: &Server| {
                let known = server.uuid();
                known == uuid || (known.is_empty() && server.node().settings().address == address)
            };
            let server = self.find(is_it).unwrap_or_else(|| {
                let server = Server::new(target.server);
                self.servers.write().push(Arc::clone(&server));
                server
            });
            if !server.is_connected() {
                server.add_references(1);
            }
            // The lease before may have ended.
            server.node().connect();
            server.node().set_credential(offer.credential.clone());
            nodes.push(Arc::clone(server.node()));
            self.hear(&server, reply, asked);
        }
        let before = lease.replace_nodes(nodes);
        for node in before.iter().filter(|node| !lease.has(node)) {
            if let Some(server) = self.find(|server| Arc::ptr_eq(server.node(), node)) {
                // Nobody else knows what it was.
                while server.remove_reference() {}
            }
        }
    }

    fn hear(&self, server: &Arc<Server>, reply: Reply, asked: Instant) {
        server.node().note_round_trip(reply.round_trip);
        let inventory = match reply.inventory {
            Ok(inventory) => inventory,
            Err(error) => {
                server.node().set_unreachable();
                return server.asked(asked.elapsed(), Some(&error.to_string()));
            }
        };
        let hidden = (self.lease.is_none() && hides_all(&inventory)).then(|| {
            format!(
                "{}: this node's devices are given out by a device manager: run the program by causeway run --request 1 -- \
                 PROGRAM, or set CAUSEWAY_MANAGER and CAUSEWAY_REQUEST=1",
                server.node().address()
            )
        });
        server.asked(asked.elapsed(), hidden.as_deref());
        let is_other = |known: &Server| {
            known.uuid() == inventory.node_uuid && !Arc::ptr_eq(known.node(), server.node())
        };
        match self.find(is_other) {
            Some(known) => {
                tracing::warn!(
                    "{} and {} are one node ({}): it is taken once",
                    known.node().address(),
                    server.node().address(),
                    known.name()
                );
                if server.uuid().is_empty() {
                    // Never reached, so nobody but the list holds it.
                    let mut servers = self.servers.write();
                    servers.retain(|of| !Arc::ptr_eq(of, server));
                } else {
                    // Its machine is gone, and the address is another's now.
                    while server.remove_reference() {}
                }
            }
            None => server.take(&inventory),
        }
    }
}

/// Whether the node has devices, and shows this program none of them.
fn hides_all(inventory: &Inventory) -> bool {
    let devices = inventory.platforms.iter().flat_map(|of| &of.devices);
    let mut devices = devices.peekable();
    devices.peek().is_some() && devices.all(|device| device.info.is_empty())
}

fn address_of(url: &str) -> Option<Address> {
    let address = match url.strip_prefix(SCHEME) {
        Some(rest) => rest.strip_suffix('/').unwrap_or(rest),
        None => url,
    };
    address.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use causeway_proto::control::InfoAnswer;

    #[test]
    fn a_node_that_shows_nothing_of_what_it_has_is_known() {
        let of = |devices: &[&[u32]]| Inventory {
            platforms: vec![causeway_proto::control::Platform {
                info: Vec::new(),
                devices: devices
                    .iter()
                    .map(|names| causeway_proto::control::Device {
                        info: names
                            .iter()
                            .map(|name| InfoAnswer {
                                name: *name,
                                ..InfoAnswer::default()
                            })
                            .collect(),
                        ..Default::default()
                    })
                    .collect(),
            }],
            ..Inventory::default()
        };
        assert!(hides_all(&of(&[&[], &[]])));
        assert!(!hides_all(&of(&[])) && !hides_all(&of(&[&[], &[1]])));
    }

    #[test]
    fn an_address_may_look_like_a_url() {
        for (url, address) in [
            ("host", "host:7079"),
            ("causeway://host/", "host:7079"),
            ("causeway://[::1]:80", "[::1]:80"),
        ] {
            assert_eq!(address_of(url).expect(url).as_str(), address);
        }
        for url in ["", "http://host", "causeway://", "host/", "host:0", "a b"] {
            assert!(address_of(url).is_none(), "{url}");
        }
    }
}
