//! `causeway doctor`: checks everything between a program and its devices, with a cure for each problem.
//!
//! The checks follow the path of a call:
//! - [`local`]: the process's environment, the loader, the `.icd` file, the library, the configuration;
//! - [`secrets`]: the files of certificates, keys and tokens;
//! - [`nodes`]: the network, the daemon's version, the node's own OpenCL;
//! - [`discovery`]: multicast, and the nodes that announce themselves;
//! - [`links`]: kept figures of links, and pairs that are slow;
//! - [`manager`]: the device manager, its clock, and the user's identity and leases there; [`exposed`]:
//!   the parts of its cluster that `--insecure` exposes; [`reach`]: its nodes, from this machine.
//!
//! Invariant: the checks change nothing, take no lease, and print no secret.

mod discovery;
mod exposed;
mod finding;
mod links;
mod local;
mod manager;
mod nodes;
mod reach;
mod secrets;

use std::process::ExitCode;

use crate::context::Context;
use crate::failure::Outcome;
use finding::{Finding, Verdict};

/// Arguments of `doctor`.
#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {}

pub(crate) fn run(_: &Arguments, context: &Context) -> Outcome {
    let settings = context.settings();
    let mut findings = vec![
        local::guard(),
        local::loader(),
        local::icd_file(),
        local::library(),
    ];
    let variables = std::env::vars_os().map(|(name, _)| name);
    findings.extend(local::variables(variables));
    findings.extend(local::configuration(&settings));
    findings.extend(secrets::secrets(&settings));
    findings.extend(nodes::nodes(&settings));
    findings.extend(discovery::discovery(&settings));
    findings.extend(links::links(context, &settings));
    findings.extend(manager::manager(context, &settings));
    context.print(&findings, |findings| findings.iter().map(text).collect())?;
    let healthy = findings
        .iter()
        .all(|finding| finding.verdict != Verdict::Problem);
    Ok(if healthy {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}

fn text(finding: &Finding) -> String {
    let Finding {
        check,
        verdict,
        found,
        cure,
    } = finding;
    let verdict = match verdict {
        Verdict::Ok => "ok",
        Verdict::Note => "note",
        Verdict::Problem => "problem",
    };
    let cure = cure.as_ref().map(|cure| format!("         → {cure}\n"));
    format!("{verdict:8} {check}: {found}\n{}", cure.unwrap_or_default())
}
