//! The one platform, *Causeway*: its devices are those of every connected server.
//!
//! Enumeration is free: it reads the supervisors' inventories, opens no session and is remembered; only
//! servers that did not answer, or were lost since, are asked again, now and then. Nothing configured: no
//! platform, no socket, no thread.
//!
//! Invariant: a node is one server, by however many addresses it was found; servers are never removed, so
//! that their devices' handles stay what they are.
#![forbid(unsafe_code)]

use std::collections::BTreeSet;
use std::sync::{Arc, OnceLock};
use std::time::Instant;

use causeway_proto::command::{UnloadCompiler, command::Kind};
use cl_headers::server::CL_CONNECTION_FAILURE_WWU;
use cl_headers::types::{
    CL_DEVICE_EXTENSIONS, CL_DEVICE_EXTENSIONS_WITH_VERSION, CL_INVALID_OPERATION,
    CL_INVALID_VALUE, cl_version,
};
use parking_lot::{Mutex, MutexGuard, RwLock};

use super::device::Device;
use super::{Binding, Server, extensions};
use crate::config::{Address, ServerSettings, Settings};
use crate::error::{ClResult, fail, require};
use crate::transport::{self, Reply};

/// What may stand before a server's address.
const SCHEME: &str = "causeway://";

/// See the module.
#[derive(Debug)]
pub struct Platform {
    pub(crate) binding: Binding,
    settings: &'static Settings,
    // In the order in which they became known, the configured ones first.
    servers: RwLock<Vec<Arc<Server>>>,
    // Held while nodes are asked, a second at most, and while servers come and go.
    asking: Mutex<Asking>,
}

/// Whether the configured servers were asked.
#[derive(Debug, Default)]
struct Asking {
    begun: bool,
}

impl Platform {
    /// The platform; none when no server is configured, or inside of a daemon's own process.
    #[must_use]
    pub fn get() -> Option<&'static Arc<Platform>> {
        static PLATFORM: OnceLock<Option<Arc<Platform>>> = OnceLock::new();
        PLATFORM
            .get_or_init(|| {
                if std::env::var_os(causeway_proto::RECURSION_GUARD).is_some() {
                    return None;
                }
                let settings = Settings::of_process();
                (!settings.servers.is_empty()).then(|| {
                    crate::config::log::init();
                    Arc::new(Platform {
                        binding: Binding::default(),
                        settings,
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
        let asked = ServerSettings {
            tls: self.settings.tls.clone(),
            ..ServerSettings::at(address)
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
                    let server = Server::new(asked);
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
        require(server.remove_reference(), CL_INVALID_OPERATION)
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
        let servers = self.servers.read();
        let due: Vec<Arc<Server>> = servers
            .iter()
            .filter(|server| server.is_due(now))
            .cloned()
            .collect();
        drop(servers);
        if !due.is_empty() {
            let settings: Vec<ServerSettings> = due
                .iter()
                .map(|server| server.node().settings().clone())
                .collect();
            for (server, reply) in due.iter().zip(transport::ask(&settings)) {
                self.hear(server, reply, now);
            }
        }
        asking
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
        server.asked(asked.elapsed(), None);
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
