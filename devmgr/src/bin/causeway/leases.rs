//! `causeway leases`: the leases that the caller may see, with their devices.

use causeway_proto::manager::ListLeasesRequest;

use crate::context::Context;
use crate::failure::Outcome;
use crate::json::Lease;
use crate::text::{NodeNames, Table, duration, shares};

/// Arguments of `leases`.
#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {}

pub(crate) fn run(_: &Arguments, context: &Context) -> Outcome {
    let list = context.read_from_manager(async |manager| {
        let request = manager.request(ListLeasesRequest {});
        manager
            .answer_to(manager.leases().list_leases(request))
            .await
    })?;
    let leases: Vec<Lease> = list.leases.into_iter().map(Lease::from).collect();
    context.print(&leases, |leases| text(leases))
}

fn text(leases: &[Lease]) -> String {
    if leases.is_empty() {
        return "There is no lease.\n".to_owned();
    }
    let mut table = Table::new([
        "LEASE",
        "USER",
        "STATE",
        "AGE",
        "RENEWAL WITHIN",
        "DEVICES",
        "PROGRAM",
    ]);
    let all = leases
        .iter()
        .flat_map(|lease| lease.nodes.iter().chain(&lease.lost));
    let names = NodeNames::of_shares(all);
    for lease in leases {
        table.row([
            lease.lease.clone(),
            lease.user.clone(),
            match lease.away {
                0 => lease.state.to_owned(),
                away => format!("{} ({away} away)", lease.state),
            },
            duration(lease.age_ms),
            duration(lease.lifetime_ms),
            devices(lease, &names),
            lease
                .client
                .as_ref()
                .map(ToString::to_string)
                .unwrap_or_default(),
        ]);
    }
    table.to_string()
}

/// The units that the lease has, and those that it has lost.
fn devices(lease: &Lease, names: &NodeNames) -> String {
    let has = match lease.nodes.is_empty() && !lease.lost.is_empty() {
        true => "waits for equal devices".to_owned(),
        false => shares(&lease.nodes, names),
    };
    match lease.lost.is_empty() {
        true => has,
        false => format!("{has}; lost: {}", shares(&lease.lost, names)),
    }
}
