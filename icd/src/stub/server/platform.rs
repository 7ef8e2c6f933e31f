//! The one platform, *Causeway*: its devices are those of all connected servers.
//!
//! Enumeration is cheap: it reads the supervisors' inventories, opens no session, and remembers the result.
//! Later calls query only servers that did not answer or were lost, with pauses in between. Without
//! configuration there is no platform, socket or thread. With a device manager, enumeration reserves
//! devices, and their nodes become servers.
//!
//! Invariant: a node is one server, however many addresses lead to it. Known servers are kept, so that
//! their devices' handles stay valid.
#![forbid(unsafe_code)]

use std::collections::BTreeSet;
use std::sync::{Arc, OnceLock};
use std::time::Instant;

use causeway_discovery::{Found, Run};
use causeway_proto::command::{UnloadCompiler, command::Kind};
use causeway_proto::control::Inventory;
use cl_headers::server::CL_CONNECTION_FAILURE_WWU;
use cl_headers::types::{
    CL_DEVICE_EXTENSIONS, CL_DEVICE_EXTENSIONS_WITH_VERSION, CL_DEVICE_NOT_AVAILABLE,
    CL_INVALID_OPERATION, CL_INVALID_VALUE, cl_version,
};
use parking_lot::{Mutex, MutexGuard, RwLock};

use super::finding::{Answered, Finding};
use crate::config::remembered::RememberedNode;
use crate::config::{Address, ServerSettings, Settings};
use crate::error::{ClResult, fail, require};
use crate::lease::{Lease, Offer, Offered, Unconfirmed};
use crate::stub::device::Device;
use crate::stub::device::info::extensions;
use crate::stub::{Binding, Server};
use crate::transport::{self, Reply, Target};

/// Optional prefix of a server's address.
const SCHEME: &str = "causeway://";

/// The platform; see the module.
#[derive(Debug)]
pub struct Platform {
    pub(crate) binding: Binding,
    settings: &'static Settings,
    // Nodes that announce themselves, if they are looked for.
    finding: Option<Finding>,
    // Devices from a device manager, if one is configured.
    lease: Option<Arc<Lease>>,
    // In the order in which the servers became known, configured ones first.
    servers: RwLock<Vec<Arc<Server>>>,
    // Locked while nodes are queried, and while servers are added or removed. Queries take a second at
    // most; those of a device manager and of a lease's nodes may take longer.
    asking: Mutex<Asking>,
}

/// Whether the configured servers have been added to the list.
#[derive(Debug, Default)]
struct Asking {
    begun: bool,
}

impl Platform {
    /// Returns the platform. `None` when neither servers, a lease nor discovery is configured, and in a daemon's own
    /// processes.
    #[must_use]
    pub fn get() -> Option<&'static Arc<Platform>> {
        static PLATFORM: OnceLock<Option<Arc<Platform>>> = OnceLock::new();
        PLATFORM
            .get_or_init(|| {
                if std::env::var_os(causeway_proto::RECURSION_GUARD).is_some() {
                    return None;
                }
                let settings = Settings::of_process();
                let is_configured =
                    !settings.servers.is_empty() || settings.lease.is_some() || settings.discover;
                is_configured.then(|| {
                    crate::config::log::init();
                    crate::trace::init(transport::open_lasting);
                    if crate::trace::is_on() {
                        transport::end_trace_at_end();
                    }
                    Arc::new(Platform {
                        binding: Binding::default(),
                        settings,
                        finding: settings.discover.then(|| Finding::new(settings)),
                        lease: Lease::new(settings),
                        servers: RwLock::default(),
                        asking: Mutex::default(),
                    })
                })
            })
            .as_ref()
    }

    /// Returns all devices of connected servers, in the order of the servers. The first call queries the
    /// nodes. Later calls query only those that do not answer, with pauses in between. A query takes a
    /// second at most.
    #[must_use]
    pub fn devices(&self) -> Vec<Arc<Device>> {
        drop(self.ask());
        let servers = self.servers.read();
        let connected = servers.iter().filter(|server| server.is_connected());
        connected.flat_map(|server| server.devices()).collect()
    }

    /// Returns the extensions that all devices have, each with the lowest version among the devices. The
    /// platform reports these in addition to its own. May query nodes, as [`Platform::devices`] does.
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

    /// `clUnloadPlatformCompiler`: passes the hint to the drivers of all nodes that this process has a
    /// session with. Does not wait.
    pub fn unload_compiler(&self) {
        let servers = self.servers.read().clone();
        for server in servers {
            let Some(session) = server.node().live_session() else {
                continue;
            };
            let devices = server.devices();
            let platforms: BTreeSet<u32> = devices.iter().map(|of| of.platform().0).collect();
            for platform in platforms {
                // A lost session has no compiler loaded, so its error does not matter.
                let _ = session.send(&Kind::UnloadCompiler(UnloadCompiler { platform }));
            }
        }
    }

    /// Returns the server of a device.
    #[must_use]
    pub fn server_of(&self, device: &Device) -> Option<Arc<Server>> {
        let servers = self.servers.read();
        let own = |server: &&Arc<Server>| Arc::ptr_eq(server.node(), device.node());
        servers.iter().find(own).cloned()
    }

    /// `clConnectServerWWU`: returns the server at `url`, with one more reference.
    ///
    /// # Errors
    /// `CL_INVALID_VALUE` when `url` is not an address; `CL_CONNECTION_FAILURE_WWU` when the node cannot be
    /// reached.
    pub fn connect(&self, url: &str) -> ClResult<Arc<Server>> {
        let Some(address) = address_of(url) else {
            // clConnectServerWWU: CL_INVALID_VALUE when url is not an address.
            return fail(CL_INVALID_VALUE);
        };
        let asking = self.ask();
        let at_address = self.find(|server| server.node().settings().is_at(&address));
        if let Some(server) = &at_address
            && server.node().is_available()
        {
            server.add_references(1);
            return Ok(Arc::clone(server));
        }
        let asked = match &at_address {
            Some(server) => server.node().target(),
            None => Target::from(self.settings.connected(address)),
        };
        let Some(reply) = transport::ask(std::slice::from_ref(&asked)).pop() else {
            return fail(CL_CONNECTION_FAILURE_WWU);
        };
        let inventory = match &reply.inventory {
            Ok(inventory) => Arc::clone(inventory),
            Err(error) => {
                tracing::warn!("{error}");
                // clConnectServerWWU: CL_CONNECTION_FAILURE_WWU when the node cannot be reached.
                return fail(CL_CONNECTION_FAILURE_WWU);
            }
        };
        // The node may be known already by another address.
        let same_node = self.find(|server| server.uuid() == inventory.node_uuid);
        if let Some(known) = same_node
            .as_ref()
            .filter(|of| is_copy(of, &inventory, Instant::now()))
        {
            tracing::warn!(
                "{}",
                transport::copied(&shown(known), asked.server.address.as_str())
            );
            // clConnectServerWWU: CL_CONNECTION_FAILURE_WWU when the node cannot be reached.
            return fail(CL_CONNECTION_FAILURE_WWU);
        }
        let server = match same_node.or(at_address) {
            Some(server) => {
                server.add_references(1);
                server
            }
            None => {
                let server = Server::new(asked.server);
                self.servers.write().push(Arc::clone(&server));
                server
            }
        };
        server.node().note_answer(reply.rail, reply.round_trip);
        server.take(&inventory);
        drop(asking);
        Ok(server)
    }

    /// `clDisconnectServerWWU`: removes one reference.
    ///
    /// # Errors
    /// `CL_INVALID_OPERATION` when the server has no reference.
    pub fn disconnect(&self, server: &Server) -> ClResult {
        // Locked, so that no `connect` adds a reference meanwhile.
        let _nobody_connects = self.asking.lock();
        // clDisconnectServerWWU: CL_INVALID_OPERATION when the server has no connection left.
        require(server.remove_reference(), CL_INVALID_OPERATION)?;
        if let Some(lease) = self.lease.as_ref().filter(|lease| lease.has(server.node())) {
            let in_use = |server: &Server| server.is_connected() && lease.has(server.node());
            // The last server of the lease has gone, so the devices can go back to the manager.
            if self.find(in_use).is_none() {
                lease.leave();
            }
        }
        Ok(())
    }

    /// Turns the reservation into a lease, if some of `devices` come from the device manager. Waits for the
    /// network only the first time.
    ///
    /// # Errors
    /// `CL_DEVICE_NOT_AVAILABLE` when the manager refuses the lease, or now offers other devices.
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
                Err(Unconfirmed::NoAnswer) => break,
                // The reservation expired before the program created a context; reserve again.
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

    // Queries the servers that are due; the first call queries all.
    fn ask(&self) -> MutexGuard<'_, Asking> {
        let mut asking = self.asking.lock();
        let is_first = !std::mem::replace(&mut asking.begun, true);
        if is_first {
            let configured = self.settings.servers.iter().cloned().map(Server::new);
            *self.servers.write() = configured.collect();
        }
        let now = Instant::now();
        // Announcements come, and remembered nodes answer, while the configured nodes are queried.
        let recalling = self.finding.as_ref().and_then(|finding| {
            finding.begin();
            finding.recall(now, |uuid| self.find(|of| of.uuid() == uuid).is_some())
        });
        // Starts the reservation first, so that it runs while the configured nodes are queried.
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
                self.on_reply(server, reply, now);
            }
        }
        if let (Some(lease), Some(reserving)) = (&self.lease, reserving)
            && let Some(offer) = reserving.finish()
        {
            self.adopt(lease, offer, now);
        }
        if let Some(finding) = &self.finding {
            let recalled = recalling.map_or_else(Vec::new, |of| finding.recalled(of));
            let has_recalled = self.adopt_found(finding, recalled, now);
            // The first call waits for announcements, unless a remembered node serves. A later call then takes what they
            // bring.
            if is_first && !has_recalled {
                finding.wait();
            }
            if !is_first || !has_recalled {
                self.ask_found(finding, now);
            }
            if is_first && self.servers.read().is_empty() {
                tracing::warn!(
                    "no node that announces itself can be used; `causeway discover` says which there are, and why"
                );
            }
        }
        asking
    }

    // Dials nodes that have announced themselves.
    fn ask_found(&self, finding: &Finding, asked: Instant) {
        let is_known = |found: &Found| {
            let said = &found.announcement;
            let is_it = |server: &Server| {
                let run = server.run();
                // Another name and another start: it may be a copy of the machine.
                let is_same = said.run == Run::default()
                    || !transport::are_other_starts(&run, &said.run)
                    || server.node().settings().name.as_ref() == Some(&found.name);
                server.uuid() == said.id && is_same && server.node().is_available()
            };
            self.find(is_it).is_some()
        };
        self.adopt_found(finding, finding.ask(asked, is_known), asked);
    }

    // Adds a server for a found node, which is looked for again when it is away.
    fn add_found(&self, settings: ServerSettings) -> Arc<Server> {
        let server = Server::found(settings);
        server.node().on_away(Box::new(|node| {
            let platform = Platform::get().and_then(|platform| platform.finding.as_ref());
            if let Some(finding) = platform {
                finding.follow(node);
            }
        }));
        self.servers.write().push(Arc::clone(&server));
        server
    }

    // Turns found nodes that have answered into servers, and remembers them. Returns whether any of the nodes shows a
    // device.
    fn adopt_found(&self, finding: &Finding, answers: Vec<Answered>, asked: Instant) -> bool {
        let (mut used, mut serves) = (Vec::new(), false);
        for answered in answers {
            let (target, reply) = (&answered.target, &answered.reply);
            let Ok(inventory) = &reply.inventory else {
                continue;
            };
            // By now, a device manager may control a node that is remembered.
            if hides_all(inventory) {
                continue;
            }
            let uuid = inventory.node_uuid.clone();
            // A node that was lost may be back: with its uuid at other addresses, or at its addresses with a new uuid.
            let is_back = |server: &Server| {
                let now = server.node().target().server;
                now.name == target.server.name && target.server.addresses().any(|of| now.is_at(of))
            };
            let same = self
                .find(|server| server.uuid() == uuid)
                .or_else(|| self.find(is_back));
            let server = match same {
                Some(server) => {
                    let is_lost = !server.node().is_available();
                    if !is_lost && is_copy(&server, inventory, asked) {
                        finding.set_aside(
                            &answered,
                            &transport::copied(&shown(&server), &answered.shown()),
                        );
                    }
                    if !(is_lost && server.is_connected() && server.is_found()) {
                        serves |= !is_lost && !server.devices().is_empty();
                        continue;
                    }
                    // Any node can answer with this uuid. Its name is proved.
                    if server.node().target().server.name != target.server.name {
                        finding.set_aside(&answered, &posed(&shown(&server), &answered.shown()));
                        continue;
                    }
                    server.node().move_to(uuid.clone(), target.server.clone());
                    server
                }
                None => self.add_found(target.server.clone()),
            };
            serves |= inventory.platforms.iter().any(|of| !of.devices.is_empty());
            let target = answered.target;
            self.on_reply(&server, answered.reply, asked);
            used.extend(RememberedNode::of(&target.server, &uuid));
        }
        finding.remember(used);
        serves
    }

    // Turns the nodes of an offer into servers. A node that is known already, for example from the
    // configuration, keeps its server.
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
                known == uuid || (known.is_empty() && server.node().settings().is_at(&address))
            };
            let server = self.find(is_it).unwrap_or_else(|| {
                let server = Server::new(target.server);
                self.servers.write().push(Arc::clone(&server));
                server
            });
            if !server.is_connected() {
                server.add_references(1);
            }
            // The end of an earlier lease may have disconnected the node.
            server.node().connect();
            server.node().set_credential(offer.credential.clone());
            nodes.push(Arc::clone(server.node()));
            self.on_reply(&server, reply, asked);
        }
        let before = lease.replace_nodes(nodes);
        for node in before.iter().filter(|node| !lease.has(node)) {
            if let Some(server) = self.find(|server| Arc::ptr_eq(server.node(), node)) {
                // The node belongs to a lease that was replaced, so all its references go.
                while server.remove_reference() {}
            }
        }
    }

    fn on_reply(&self, server: &Arc<Server>, reply: Reply, asked: Instant) {
        server.node().note_answer(reply.rail, reply.round_trip);
        let inventory = match reply.inventory {
            Ok(inventory) => inventory,
            Err(error) => {
                server.node().set_unreachable();
                return server.asked(asked.elapsed(), Some(&error.to_string()));
            }
        };
        let is_other = |known: &Server| {
            known.uuid() == inventory.node_uuid && !Arc::ptr_eq(known.node(), server.node())
        };
        let other = self.find(is_other);
        if let Some(known) = other.as_ref().filter(|of| is_copy(of, &inventory, asked)) {
            server.node().set_unreachable();
            let text = transport::copied(&shown(known), &shown(server));
            return server.asked(asked.elapsed(), Some(&text));
        }
        let hidden = (self.lease.is_none() && hides_all(&inventory)).then(|| {
            format!(
                "{}: a device manager controls this node's devices; run the program with `causeway run --request 1 -- \
                 PROGRAM`, or set CAUSEWAY_MANAGER and CAUSEWAY_REQUEST=1",
                server.node().address()
            )
        });
        server.asked(asked.elapsed(), hidden.as_deref());
        match other {
            Some(known) => {
                tracing::warn!(
                    "servers {} and {} are the same node ({}); using {} only; configure only one of them (servers.toml, CAUSEWAY_SERVERS)",
                    known.node().address(),
                    server.node().address(),
                    known.name(),
                    known.node().address()
                );
                if server.uuid().is_empty() {
                    // The server was never reached, so the application has no handle of it and it can be
                    // removed.
                    let mut servers = self.servers.write();
                    servers.retain(|of| !Arc::ptr_eq(of, server));
                } else {
                    // The server's machine is gone, and another node has the address now.
                    while server.remove_reference() {}
                }
            }
            None => server.take(&inventory),
        }
    }
}

/// Whether this answer is that of a copy of a known server's machine. If the answer is of another start than the one that
/// is known, the known node is asked again: it may itself have been started again. `asked` is when the caller's query began.
fn is_copy(known: &Server, answer: &Inventory, asked: Instant) -> bool {
    let is_other = |run: &[u8]| transport::are_other_starts(run, &answer.run);
    if known.uuid() != answer.node_uuid || !is_other(&known.run()) {
        return false;
    }
    known.run_now(asked).is_some_and(|run| is_other(&run))
}

/// Says that a node answers with the uuid of another one, which is lost.
fn posed(lost: &str, other: &str) -> String {
    format!(
        "node {other} has the identity of {lost}, which does not answer; {other} is not used instead, because its name is \
         another; if it is the same machine, start the program again"
    )
}

/// A server as messages name it.
fn shown(server: &Server) -> String {
    let address = server.node().target().server.address;
    match server.name() {
        name if name == address.as_str() => name,
        name => format!("{name} ({address})"),
    }
}

/// Whether the node has devices but shows none of them to this program.
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
