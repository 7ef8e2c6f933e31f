//! `causeway certs`: a small CA, and certificates from it for nodes, managers and users.
//!
//! `certs ca DIR` creates the CA. `certs node NAME` and `certs client USER` sign with it. Each prints the
//! next steps.
//!
//! This verb sends nothing over the network, and keeps no list of certificates. `new_file` creates the
//! files: it overwrites none, and only their owner can read keys.

use std::fs::DirBuilder;
use std::net::IpAddr;
use std::ops::Range;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use causeway::config::Address;
use causeway_security::{Authority, Issued};
use clap::Subcommand;

use crate::context::Context;
use crate::failure::{Failure, Outcome};
use crate::json::Certificate;
use crate::new_file::{NewFile, PUBLIC, SECRET};

const CA: &str = "ca";
const DAY: Duration = Duration::from_secs(24 * 60 * 60);
/// How far the clocks of other machines may be behind, so that they still accept a fresh certificate.
const CLOCKS: Duration = Duration::from_secs(60 * 60);
/// Maximum validity: a century.
const MOST_DAYS: i64 = 36_500;

/// Arguments of `certs`.
#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    what: What,
}

#[derive(Debug, Subcommand)]
enum What {
    /// Make a CA: DIR/ca.pem for everyone, DIR/ca.key to keep secret
    Ca {
        /// The folder for the CA; created if missing
        #[arg(value_name = "DIR")]
        directory: PathBuf,
        /// The CA's name
        #[arg(long, default_value = "Causeway CA")]
        name: String,
        /// Validity in days
        #[arg(long, default_value_t = 3650, value_parser = clap::value_parser!(u32).range(1..=MOST_DAYS))]
        days: u32,
    },
    /// Make a certificate for a node or the device manager: NAME.pem and NAME.key
    Node {
        /// The host's name, by which clients reach it and the device manager knows it
        name: String,
        /// Another name or numeric address of the host; may be repeated
        #[arg(long = "address", value_name = "HOST")]
        addresses: Vec<String>,
        #[command(flatten)]
        signing: Signing,
    },
    /// Make a certificate for a user: USER.pem and USER.key
    Client {
        /// The user's name at nodes and device manager
        user: String,
        #[command(flatten)]
        signing: Signing,
    },
}

#[derive(Debug, clap::Args)]
struct Signing {
    /// The folder of the CA
    #[arg(long, value_name = "DIR", default_value = ".")]
    from: PathBuf,
    /// The folder for certificate and key [default: the folder of the CA]
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// Validity in days
    #[arg(long, default_value_t = 365, value_parser = clap::value_parser!(u32).range(1..=MOST_DAYS))]
    days: u32,
}

pub(crate) fn run(arguments: &Arguments, context: &Context) -> Outcome {
    let made = match &arguments.what {
        What::Ca {
            directory,
            name,
            days,
        } => ca(directory, name, *days),
        What::Node {
            name,
            addresses,
            signing,
        } => node(name, addresses, signing),
        What::Client { user, signing } => client(user, signing),
    }?;
    context.print(&made, text)
}

fn text(made: &Certificate) -> String {
    let (certificate, key) = (made.certificate.display(), made.key.display());
    let next: String = made.next.iter().map(|line| format!("  {line}\n")).collect();
    format!(
        "{certificate}  may be given to everyone\n{key}  is for its owner alone\nvalid until {}\nnext:\n{next}",
        made.valid_until
    )
}

fn ca(directory: &Path, name: &str, days: u32) -> Result<Certificate, Failure> {
    DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(directory)
        .map_err(|error| Failure::new(format!("{}: {error}", directory.display())))?;
    let valid = valid(days);
    let valid_until = until(&valid);
    let (_, issued) = Authority::generate(name, valid).map_err(not_certified)?;
    let (certificate, key) = save(directory, CA, &issued)?;
    let next = vec![
        format!(
            "causeway certs node NAME --address HOST --from {}    for the device manager and for each node",
            directory.display()
        ),
        format!(
            "keep {} secret: whoever has this key can make certificates that all nodes accept",
            key.display()
        ),
    ];
    Ok(Certificate {
        certificate,
        key,
        names: Vec::new(),
        valid_until,
        next,
    })
}

fn node(name: &str, addresses: &[String], signing: &Signing) -> Result<Certificate, Failure> {
    if let Ok(number) = name.parse() {
        return Err(number_as_name(number));
    }
    let mut names = vec![name.to_owned()];
    for text in addresses {
        // A port in the address is accepted and ignored.
        let address = Address::with_port(text, causeway_proto::DAEMON_PORT);
        let address =
            address.map_err(|error| Failure::new(format!("--address {text}: {error}")))?;
        let host = address.host().to_owned();
        if !names.contains(&host) {
            names.push(host);
        }
    }
    let valid = valid(signing.days);
    let valid_until = until(&valid);
    let issued = signing.authority()?.node(&names, valid);
    let issued = issued.map_err(not_certified)?;
    let (certificate, key) = save(signing.out(), name, &issued)?;
    let ca = signing.from.join(format!("{CA}.pem"));
    let next = vec![
        format!(
            "copy {}, {} and {} to /etc/causeway on {name}",
            certificate.display(),
            key.display(),
            ca.display()
        ),
        format!(
            "on {name}, in daemon.toml (or manager.toml):\n[tls]\ncertificate = \"/etc/causeway/{name}.pem\"\nkey = \"/etc/causeway/{name}.key\"\nclient_ca = \"/etc/causeway/ca.pem\""
        ),
        format!("for a device manager's node, also run: causeway users add {name} --node"),
    ];
    Ok(Certificate {
        certificate,
        key,
        names,
        valid_until,
        next,
    })
}

fn client(user: &str, signing: &Signing) -> Result<Certificate, Failure> {
    let valid = valid(signing.days);
    let valid_until = until(&valid);
    let issued = signing.authority()?.user(user, valid);
    let issued = issued.map_err(not_certified)?;
    let (certificate, key) = save(signing.out(), user, &issued)?;
    let next = vec![
        format!(
            "give {user} {}, {} and {}",
            certificate.display(),
            key.display(),
            signing.from.join(format!("{CA}.pem")).display()
        ),
        format!(
            "in {user}'s ~/.config/causeway/servers.toml:\n[tls]\nca = \"ca.pem\"\ncertificate = \"{user}.pem\"\nkey = \"{user}.key\""
        ),
        format!(
            "if {user} needs groups, quotas or administration, also run: causeway users add {user}"
        ),
    ];
    Ok(Certificate {
        certificate,
        key,
        names: vec![user.to_owned()],
        valid_until,
        next,
    })
}

impl Signing {
    fn authority(&self) -> Result<Authority, Failure> {
        let file = |kind: &str| self.from.join(format!("{CA}.{kind}"));
        Authority::load(&file("pem"), &file("key")).map_err(|error| {
            Failure::new(format!("the CA cannot be used: {error}"))
                .cure("--from DIR names the folder where `causeway certs ca DIR` has made it")
        })
    }

    fn out(&self) -> &Path {
        self.out.as_deref().unwrap_or(&self.from)
    }
}

fn not_certified(error: causeway_security::NotCertified) -> Failure {
    Failure::new(error.to_string())
}

fn number_as_name(number: IpAddr) -> Failure {
    Failure::new(format!(
        "invalid node name `{number}`: it is a numeric address"
    ))
    .cure(format!(
        "choose a name for the node and add --address {number}"
    ))
}

fn valid(days: u32) -> Range<SystemTime> {
    let now = SystemTime::now();
    now - CLOCKS..now + DAY * days
}

fn until(valid: &Range<SystemTime>) -> String {
    humantime::format_rfc3339_seconds(valid.end).to_string()
}

/// Writes both files, or neither.
fn save(folder: &Path, name: &str, issued: &Issued) -> Result<(PathBuf, PathBuf), Failure> {
    // Both files are created before either is written, so that an existing one stops both.
    let certificate = NewFile::create(folder.join(format!("{name}.pem")), PUBLIC)?;
    let key = NewFile::create(folder.join(format!("{name}.key")), SECRET)?;
    let key = key.write(issued.key.reveal())?;
    Ok((certificate.write(issued.certificate.as_bytes())?, key))
}
