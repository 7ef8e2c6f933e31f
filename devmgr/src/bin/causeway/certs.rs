//! `causeway certs`: a small CA, and from it certificates for nodes, managers and users.
//!
//! `certs ca DIR` makes the CA, `certs node NAME` and `certs client USER` sign with it. Each prints what is to be
//! done next.
//!
//! What it is not: it sends nothing anywhere, and keeps no list of what was signed. Files are made
//! by `new_file`: none is overwritten, and no key can be read by others.

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
/// Clocks of machines that are to believe a fresh certificate may be behind by so much.
const CLOCKS: Duration = Duration::from_secs(60 * 60);
/// A century.
const MOST_DAYS: i64 = 36_500;

/// What `certs` takes.
#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    what: What,
}

#[derive(Debug, Subcommand)]
enum What {
    /// Make a CA: DIR/ca.pem for everyone, DIR/ca.key for nobody else
    Ca {
        /// Where to put it; made if it is not there
        #[arg(value_name = "DIR")]
        directory: PathBuf,
        /// What the CA calls itself
        #[arg(long, default_value = "Causeway CA")]
        name: String,
        /// How long it is valid
        #[arg(long, default_value_t = 3650, value_parser = clap::value_parser!(u32).range(1..=MOST_DAYS))]
        days: u32,
    },
    /// Make a certificate for a node or for the device manager: NAME.pem and NAME.key
    Node {
        /// Its name: the host's, by which clients reach it and the device manager knows it
        name: String,
        /// What else it is reached by: a name, or a numeric address (may be given several times)
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
    /// Where to put certificate and key [default: the folder of the CA]
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// How long it is valid
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
            "keep {} here: who has it is believed by all of them",
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
        // People write it with the port that they know it by.
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
            "bring {}, {} and {} to {name}, into /etc/causeway",
            certificate.display(),
            key.display(),
            ca.display()
        ),
        format!(
            "there, in daemon.toml (or manager.toml):\n[tls]\ncertificate = \"/etc/causeway/{name}.pem\"\nkey = \"/etc/causeway/{name}.key\"\nclient_ca = \"/etc/causeway/ca.pem\""
        ),
        format!("a node of a device manager: causeway users add {name} --node"),
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
        format!("for groups, quotas or administration: causeway users add {user}"),
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
    Failure::new(format!("{number} is a numeric address, and no name")).cure(format!(
        "give the node a name, by which the device manager knows it, and say --address {number} beside it"
    ))
}

fn valid(days: u32) -> Range<SystemTime> {
    let now = SystemTime::now();
    now - CLOCKS..now + DAY * days
}

fn until(valid: &Range<SystemTime>) -> String {
    humantime::format_rfc3339_seconds(valid.end).to_string()
}

/// Both files, or none.
fn save(folder: &Path, name: &str, issued: &Issued) -> Result<(PathBuf, PathBuf), Failure> {
    let certificate = NewFile::create(folder.join(format!("{name}.pem")), PUBLIC)?;
    let key = NewFile::create(folder.join(format!("{name}.key")), SECRET)?;
    let key = key.write(issued.key.reveal())?;
    Ok((certificate.write(issued.certificate.as_bytes())?, key))
}
