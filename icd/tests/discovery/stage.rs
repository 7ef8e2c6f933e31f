//! The stage of the tests: a network, certificates of two CAs, daemons that announce themselves, and answers that
//! somebody else makes.

use std::fs::File;
use std::net::{Ipv4Addr, UdpSocket};
use std::ops::Deref;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant, SystemTime};

use causeway::config::ServerSettings;
use causeway_discovery::{Announcement, Found, Role, Search, SearchProgress};
use causeway_network::{Builder, Host, Network};
use causeway_security::{Authority, Issued};

use crate::frames::servers::*;

/// A CA with its folder.
pub(crate) struct Certificates {
    authority: Authority,
    pub(crate) folder: tempfile::TempDir,
}

impl Certificates {
    pub(crate) fn new() -> Certificates {
        let folder = tempfile::tempdir().expect("a folder");
        let (authority, ca) = Authority::generate("test", valid()).expect("a CA");
        write(&folder.path().join("ca.pem"), ca.certificate.as_bytes());
        Certificates { authority, folder }
    }

    pub(crate) fn path(&self, file: &str) -> PathBuf {
        self.folder.path().join(file)
    }

    pub(crate) fn node(&self, name: &str) {
        let issued = self.authority.node(&[name.to_owned()], valid());
        self.keep(name, &issued.expect("a certificate"));
    }

    pub(crate) fn user(&self, name: &str) {
        let issued = self.authority.user(name, valid()).expect("a certificate");
        self.keep(name, &issued);
    }

    fn keep(&self, name: &str, issued: &Issued) {
        write(
            &self.path(&format!("{name}.pem")),
            issued.certificate.as_bytes(),
        );
        write(&self.path(&format!("{name}.key")), issued.key.reveal());
    }

    /// The flags of a daemon with the certificate of this name.
    pub(crate) fn flags(&self, name: &str) -> Vec<String> {
        let files = [
            ("--tls-certificate", format!("{name}.pem")),
            ("--tls-key", format!("{name}.key")),
            ("--tls-client-ca", "ca.pem".to_owned()),
        ];
        let flag = |(flag, file): (&str, String)| {
            [flag.to_owned(), self.path(&file).display().to_string()]
        };
        files.into_iter().flat_map(flag).collect()
    }

    /// Makes this process's library look for nodes, with the certificate of the user `alice` and further lines.
    pub(crate) fn configure(&self, first: &str, more: &str) {
        self.user("alice");
        configure(&self.path("servers.toml"), &self.settings(first, more));
    }

    /// The settings of a program of the user `alice` that looks for nodes.
    pub(crate) fn settings(&self, first: &str, more: &str) -> String {
        format!(
            "discover = true\n{first}\n[tls]\nca = \"ca.pem\"\ncertificate = \"alice.pem\"\nkey = \"alice.key\"\n{more}"
        )
    }
}

/// Makes this process's library read these settings.
pub(crate) fn configure(file: &Path, text: &str) {
    std::fs::write(file, text).expect("written");
    // SAFETY: the library has not been asked anything yet, so nobody reads the environment.
    unsafe {
        std::env::remove_var("CAUSEWAY_SERVERS");
        std::env::set_var("CAUSEWAY_CONFIG", file);
        std::env::set_var("XDG_STATE_HOME", file.parent().expect("a folder"));
    }
}

fn valid() -> std::ops::Range<SystemTime> {
    let day = Duration::from_secs(86_400);
    SystemTime::now() - day..SystemTime::now() + day
}

/// Writes a file that only its user may read.
pub(crate) fn write(path: &Path, bytes: &[u8]) {
    std::fs::write(path, bytes).expect("written");
    let mode = std::fs::Permissions::from_mode(0o600);
    std::fs::set_permissions(path, mode).expect("the file's mode");
}

/// A network that is alone on this machine: the first list of devices waits for answers only so long, and two
/// processors are soon busy with several networks.
pub(crate) struct Stage {
    network: Network,
    _alone: File,
}

impl Deref for Stage {
    type Target = Network;

    fn deref(&self) -> &Network {
        &self.network
    }
}

/// A network, or `None` where there can be none. Waits until the networks of other tests and processes are over.
pub(crate) fn network(hosts: usize) -> Option<Stage> {
    build(Network::builder().hosts(hosts))
}

/// As [`network`], with a builder.
pub(crate) fn build(builder: Builder) -> Option<Stage> {
    let lock = std::env::temp_dir().join("causeway-test-discovery.lock");
    let alone = File::create(lock).expect("a lock file");
    alone.lock().expect("locked");
    match builder.build() {
        Err(error) if error.is_unavailable() => {
            eprintln!("skipped: {error}");
            None
        }
        network => Some(Stage {
            network: network.expect("a network"),
            _alone: alone,
        }),
    }
}

/// Starts a daemon on a host, with one device of this name. The daemon does not announce itself.
pub(crate) fn quiet(host: &Host, device: &str, flags: &[String]) -> Daemon {
    let settings = format!("[[device]]\nname = \"{device}\"");
    let started = host.enter(|| Daemon::start_flagged("0.0.0.0:0", &settings, flags));
    started.expect("the host's network")
}

/// Starts a daemon that announces itself.
pub(crate) fn announced(host: &Host, device: &str, flags: &[String]) -> Daemon {
    quiet(host, device, &[flags, &["--announce".to_owned()]].concat())
}

/// A device executes commands: bytes that are written to it are read again.
pub(crate) fn is_used(device: cl_device_id) {
    let cl = Fixture::on(device);
    let buffer = cl.buffer(CL_MEM_READ_WRITE, 1 << 16);
    cl.write(buffer, 0, &pattern(1, 1 << 16));
    assert!(cl.read(buffer, 0, 1 << 16) == pattern(1, 1 << 16));
    ok!(clReleaseMemObject(buffer));
}

/// Waits until as many nodes as these are heard on a host. Returns what was heard.
pub(crate) fn heard(host: &Host, names: &[&str]) -> Vec<Found> {
    let listen = || {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let mut search = Search::begin(Vec::new(), false).expect("a socket");
            let until = Instant::now() + Duration::from_millis(700);
            while search.step(until).expect("sockets") != SearchProgress::Over {
                let found = search.found();
                let is_there = |name: &&str| found.iter().any(|of| of.name == **name);
                if names.iter().all(is_there) {
                    return found;
                }
            }
            assert!(
                Instant::now() < deadline,
                "{names:?} not heard: {:?}",
                search.found()
            );
        }
    };
    host.enter(listen).expect("the host's network")
}

/// Returns the settings of a daemon on a host, for the user `alice`.
pub(crate) fn server(at: &Host, daemon: &Daemon, of: &Certificates, name: &str) -> ServerSettings {
    let address = format!("{}:{}", at.address(), daemon.address.port());
    let mut settings = ServerSettings::at(address.parse().expect("an address"));
    settings.tls.ca = Some(of.path("ca.pem"));
    settings.tls.certificate = Some(of.path("alice.pem"));
    settings.tls.key = Some(of.path("alice.key"));
    settings.tls.name = Some(name.to_owned());
    settings
}

/// Returns the uuid of a node without announcement, as the user `alice` gets it on the network of `from`.
pub(crate) fn uuid_of(
    from: &Host,
    at: &Host,
    daemon: &Daemon,
    of: &Certificates,
    name: &str,
) -> [u8; 16] {
    let ask = || {
        let settings = server(at, daemon, of, name);
        let reply = causeway::transport::ask(&[settings.into()]).remove(0);
        reply.inventory.expect("an inventory").node_uuid.clone()
    };
    let uuid = from.enter(ask).expect("the host's network");
    uuid.as_ref().try_into().expect("a uuid")
}

/// What a node says that nobody knows.
pub(crate) fn said(id: u8, ca: Option<[u8; 8]>) -> Announcement {
    Announcement {
        role: Role::Node,
        id: [id; 16],
        run: [id; 8],
        wire: causeway_proto::version::WireVersion::CURRENT.number(),
        tls: true,
        managed: false,
        ca,
    }
}

/// An answer that nobody asked for: a service of this name at a port of the address.
pub(crate) fn answer(
    name: &str,
    announcement: &Announcement,
    port: u16,
    address: Ipv4Addr,
) -> Vec<u8> {
    const SERVICE: [&str; 3] = ["_causeway", "_tcp", "local"];
    let labels = |labels: &[&str]| {
        let mut bytes = Vec::new();
        for label in labels {
            bytes.push(u8::try_from(label.len()).expect("a label"));
            bytes.extend(label.as_bytes());
        }
        bytes.push(0);
        bytes
    };
    let record = |name: &[u8], kind: u16, data: &[u8]| {
        let mut bytes = name.to_vec();
        bytes.extend(kind.to_be_bytes());
        bytes.extend([0, 1, 0, 0, 0, 120]);
        bytes.extend(u16::try_from(data.len()).expect("short").to_be_bytes());
        bytes.extend(data);
        bytes
    };
    let service = labels(&SERVICE);
    let instance = labels(&[&[name], &SERVICE[..]].concat());
    let host = labels(&[name.split('.').next().expect("a label"), "local"]);
    let txt: Vec<u8> = (announcement.to_txt().iter())
        .flat_map(|(key, value)| {
            let text = format!("{key}={value}");
            [&[u8::try_from(text.len()).expect("short")], text.as_bytes()].concat()
        })
        .collect();
    let srv = [&[0, 0, 0, 0], &port.to_be_bytes()[..], &host[..]].concat();
    let header = [0, 0, 0x84, 0, 0, 0, 0, 4, 0, 0, 0, 0];
    let records = [
        record(&service, 12, &instance),
        record(&instance, 33, &srv),
        record(&instance, 16, &txt),
        record(&host, 1, &address.octets()),
    ];
    [&header[..], &records.concat()].concat()
}

/// A socket of a host that multicasts.
pub(crate) fn multicaster(host: &Host) -> UdpSocket {
    let open = || {
        let socket = UdpSocket::bind((host.address(), 0)).expect("a socket");
        let socket = socket2::Socket::from(socket);
        socket
            .set_multicast_if_v4(&host.address())
            .expect("an interface");
        UdpSocket::from(socket)
    };
    host.enter(open).expect("the host's network")
}

/// Ends what another thread does when dropped, so that a failed assertion does not wait for it.
pub(crate) struct Ends<'a>(pub(crate) &'a AtomicBool);

impl Drop for Ends<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Where answers are multicast.
pub(crate) const EVERYBODY: (Ipv4Addr, u16) = (Ipv4Addr::new(224, 0, 0, 251), 5353);

/// Returns the number of handshake records in a TLS stream, which may end with an alert. `None`: it has other records.
pub(crate) fn records(mut bytes: &[u8]) -> Option<usize> {
    let mut count = 0;
    while let [0x16, _, _, high, low, rest @ ..] = bytes {
        bytes = rest.get(usize::from(u16::from_be_bytes([*high, *low]))..)?;
        count += 1;
    }
    // Whoever refuses the other end says so in an alert.
    if let [0x15, _, _, high, low, rest @ ..] = bytes {
        bytes = rest.get(usize::from(u16::from_be_bytes([*high, *low]))..)?;
    }
    bytes.is_empty().then_some(count)
}

/// Gives a host another address instead of its own.
pub(crate) fn readdress(host: &Host, address: &str) {
    for arguments in [
        format!("address del {}/16 dev eth0", host.address()),
        format!("address add {address}/16 dev eth0"),
    ] {
        let output = host.command("ip").args(arguments.split(' ')).output();
        let output = output.expect("ip runs");
        assert!(output.status.success(), "{arguments}: {output:?}");
    }
}

/// Returns the names of this process's threads.
pub(crate) fn thread_names() -> Vec<String> {
    let threads = std::fs::read_dir("/proc/self/task").expect("procfs");
    let names = threads.filter_map(|of| std::fs::read_to_string(of.ok()?.path().join("comm")).ok());
    names.collect()
}

/// Returns a figure of a process, in KiB.
pub(crate) fn figure_of(pid: u32, key: &str) -> Option<u64> {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let line = status.lines().find(|line| line.starts_with(key))?;
    line.split_whitespace().nth(1)?.parse().ok()
}

/// Returns the process of a daemon that announces it.
pub(crate) fn announcer(of: &Daemon) -> u32 {
    child_of(of, "--internal-announce")
}

/// Returns the process of a daemon that was started with this flag.
pub(crate) fn child_of(of: &Daemon, flag: &str) -> u32 {
    let is_it = |pid: &u32| {
        let command = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        let command = String::from_utf8_lossy(&command).into_owned();
        command.contains(flag) && figure_of(*pid, "PPid:") == Some(of.pid().into())
    };
    eventually(flag, || {
        let entries = std::fs::read_dir("/proc").expect("procfs").flatten();
        let mut numbers = entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
        numbers.find(is_it)
    })
}
