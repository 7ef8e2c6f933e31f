//! `causeway request`: tells whether devices could be granted now, without taking them, and if not, why.

use std::process::ExitCode;

use causeway::config::Settings;
use causeway_proto::manager as pb;
use causeway_proto::manager::considered::Outcome as Considered;

use crate::context::Context;
use crate::failure::{Failure, Outcome};
use crate::json::{self, Fitting, NodeShare};
use crate::request_options::{self, RequestOptions, Terms};
use crate::say::say;
use crate::text::{NodeNames, printable, shares};

/// Arguments of `request`.
#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    /// The devices, such as '2, TYPE=GPU, GLOBAL_MEM_SIZE>=8GiB; spread' [default: those configured]
    request: Option<String>,
    #[command(flatten)]
    terms: Terms,
}

pub(crate) fn run(arguments: &Arguments, context: &Context) -> Outcome {
    let line = arguments.request.as_deref();
    let mut variables = context.variables();
    variables.extend(request_options::variables(line, &arguments.terms));
    let settings = Settings::load_with(&variables);
    let options = RequestOptions::of(line, &settings)?;
    let options = options.ok_or_else(|| {
        for problem in &settings.problems {
            say!("causeway request: {problem}");
        }
        Failure::new("no devices are requested").cure(
            "causeway request '1' asks for any one device; CAUSEWAY_REQUEST and [[request]] in servers.toml say it for good",
        )
    })?;
    let considered = context.read_from_manager(async |manager| {
        let request = manager.request(options.message("causeway request"));
        manager.answer_to(manager.leases().consider(request)).await
    })?;
    let mut fitting = Fitting {
        request: options.devices.to_string(),
        ..Fitting::default()
    };
    match considered.outcome {
        Some(Considered::Fitting(found)) => {
            fitting.fits = true;
            (fitting.nodes, fitting.devices) = told(found.nodes);
        }
        Some(Considered::Refused(refused)) => {
            fitting.refusal = Some(json::refusal(refused.code()));
            fitting.reason = Some(refused.reason);
        }
        None => return Err(Failure::new("the device manager's answer is empty")),
    }
    context.print(&fitting, text)?;
    Ok(if fitting.fits {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}

/// The nodes, as far as they are named, and the names of all devices.
fn told(mut nodes: Vec<pb::NodeShare>) -> (Vec<NodeShare>, Vec<String>) {
    let devices = nodes.iter().flat_map(|node| node.devices.clone()).collect();
    nodes.retain(|node| !node.node_uuid.is_empty());
    (nodes.into_iter().map(NodeShare::from).collect(), devices)
}

fn text(fitting: &Fitting) -> String {
    match &fitting.reason {
        None if fitting.nodes.is_empty() => {
            let names: Vec<String> = fitting.devices.iter().map(|of| printable(of)).collect();
            let count = names.len();
            let devices = if count == 1 { "device" } else { "devices" };
            format!(
                "It would be granted now: {count} {devices} ({})\n",
                names.join(", ")
            )
        }
        None => format!(
            "It would be granted now: {}\n",
            shares(&fitting.nodes, &NodeNames::of_shares(&fitting.nodes))
        ),
        Some(reason) => format!("It would not be granted now: {reason}.\n"),
    }
}
