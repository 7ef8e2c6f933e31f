//! `causeway links`: how fast nodes, and this machine, reach each other. Shows the figures that are kept; with
//! `--measure`, measures them first.
//!
//! - [`measuring`]: the rounds, and one measurement of a pair; [`ends`]: who takes part; [`addresses`]: where;
//! - [`managed`]: the device manager's nodes, figures and claims;
//! - [`matrix`]: the kept figures as a matrix, and slow pairs; pure;
//! - [`drawn`]: the same as a picture; pure.
//!
//! Invariant: without `--measure`, no node is loaded, and nothing is written.

mod addresses;
mod drawn;
mod ends;
mod managed;
mod matrix;
mod measuring;

use std::path::PathBuf;
use std::time::Duration;

use causeway::config::{Settings, rate};
use causeway_links::Terms;
use causeway_proto::manager::{LinkList, LinkNode};

use crate::context::Context;
use crate::failure::{Failure, Outcome, USAGE};
use crate::json::id;
use crate::new_file::{NewFile, PUBLIC};
use crate::say::say;
use crate::text::printable;

pub(crate) use ends::Hosts;
use managed::Claims;
pub(crate) use managed::listed;
use matrix::Host;
pub(crate) use matrix::{Figures, bandwidth, slow};

/// Arguments of `links`.
#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    /// Measure the links among this machine and the nodes, each for a second; they do other work meanwhile, but slower
    #[arg(long)]
    measure: bool,
    /// The nodes to measure or show, by name or address [default: all configured nodes, and all of the device manager]
    #[arg(value_name = "NODE")]
    nodes: Vec<String>,
    /// Seconds of each direction of a link, from 0.05 to 10
    #[arg(long, value_name = "S", default_value_t = 0.5, requires = "measure")]
    seconds: f64,
    /// Highest rate of a measurement, for example "100 MB/s" [default: as fast as possible]
    #[arg(long, requires = "measure", value_parser = rate)]
    rate: Option<u64>,
    /// Measure while sessions move data, and longer than the node allows in a minute; for administrators of the manager, or of the node
    #[arg(long, requires = "measure")]
    force: bool,
    /// Draw the cluster with its links into this new file
    #[arg(long, value_name = "FILE")]
    svg: Option<PathBuf>,
}

fn rate(text: &str) -> Result<u64, rate::BadRate> {
    rate::read(text)
}

pub(crate) fn run(arguments: &Arguments, context: &Context) -> Outcome {
    let settings = context.settings();
    for problem in &settings.problems {
        say!("causeway links: {problem}");
    }
    // Before anything is measured, so that no measurement is lost for a wrong path.
    let svg = arguments.svg.clone();
    let svg = svg.map(|path| NewFile::create(path, PUBLIC)).transpose()?;
    let seconds = Duration::try_from_secs_f64(arguments.seconds).unwrap_or_default();
    let terms = Terms::new(seconds, arguments.rate).ok_or_else(|| {
        let what = format!("invalid number of seconds `{}`", arguments.seconds);
        Failure::new(what)
            .cure("give 0.05 to 10 seconds")
            .code(USAGE)
    })?;
    let claims = claims(context, &settings, arguments.measure)?;
    let (hosts, absent) = Hosts::find(context, &settings, &arguments.nodes, claims.as_ref())?;
    tell(&absent);
    let mut measured = measuring::MeasuredPairs::default();
    if arguments.measure {
        tell(&hosts.not_measurable());
        measured = measuring::measure(context, &hosts, claims, (terms, arguments.force));
    }
    let (mut kept, problems) = hosts.links();
    kept.extend(measured.by_nodes);
    let not_kept = measured.not_kept.into_iter();
    kept.extend(not_kept.map(|of| ends::shown("", of)));
    tell(&problems);
    let figures = Figures::of(&hosts.names(), kept);
    if let Some(file) = svg {
        file.write(drawn::svg(&figures).as_bytes())?;
    }
    let printed = context.print(figures.links(), |_| figures.to_string())?;
    // Who names a node wants it to be measured.
    let is_named = arguments.measure && !arguments.nodes.is_empty();
    let skipped = hosts.not_found + hosts.not_measurable().len();
    let skipped = if is_named { skipped } else { 0 };
    match (measured.why, measured.failed, skipped) {
        (Some(why), ..) => Err(why),
        (None, 0, 0) => Ok(printed),
        (None, 0, skipped) => Err(Failure::new(format!(
            "named nodes that were not measured: {skipped}"
        ))),
        (None, failed, _) => Err(Failure::new(format!(
            "links that could not be measured: {failed}"
        ))),
    }
}

/// The claims for measuring. `None` if nothing is measured on a device manager's nodes.
fn claims(
    context: &Context,
    settings: &Settings,
    is_measuring: bool,
) -> Result<Option<Claims>, Failure> {
    if !is_measuring || settings.manager.is_none() {
        return Ok(None);
    }
    match Claims::ask(context) {
        Ok(claims) => Ok(Some(claims)),
        // The configured nodes need none.
        Err(failure) if settings.discover || !settings.servers.is_empty() => {
            say!("causeway links: no node of the device manager is measured: {failure}");
            Ok(None)
        }
        Err(failure) => Err(failure),
    }
}

/// The figures among the device manager's nodes.
pub(crate) fn of_manager(list: &LinkList) -> Figures {
    let host = |of: &LinkNode| Host {
        name: of.name.clone(),
        id: id(&of.node_uuid),
    };
    let hosts: Vec<_> = list.nodes.iter().map(host).collect();
    Figures::of(&hosts, managed::figures(list))
}

fn tell(problems: &[String]) {
    for problem in problems {
        say!("causeway links: {}", printable(problem));
    }
}
