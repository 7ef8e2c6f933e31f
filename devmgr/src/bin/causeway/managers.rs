//! `causeway managers`: the device managers that share a store, and its members; makes another one lead.

use std::process::ExitCode;

use causeway_proto::manager::{ListManagersRequest, StepDownRequest};

use crate::context::Context;
use crate::failure::Outcome;
use crate::json::Managers;
use crate::say::say;
use crate::text::{Table, bytes, duration};

/// Arguments of `managers`.
#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    action: Option<Action>,
}

#[derive(Debug, clap::Subcommand)]
enum Action {
    /// Show the device managers, and the members of etcd (the default)
    List,
    /// Make another device manager lead; leases, places and waiting programs stay
    StepDown,
}

pub(crate) fn run(arguments: &Arguments, context: &Context) -> Outcome {
    match &arguments.action {
        None | Some(Action::List) => list(context),
        Some(Action::StepDown) => step_down(context),
    }
}

fn list(context: &Context) -> Outcome {
    let list = context.read_from_manager(async |manager| {
        let request = manager.request(ListManagersRequest {});
        manager
            .answer_to(manager.admin().list_managers(request))
            .await
    })?;
    context.print(&Managers::from(list), text)
}

fn step_down(context: &Context) -> Outcome {
    context.with_manager(async |manager| {
        let request = manager.request(StepDownRequest {});
        manager.answer_to(manager.admin().step_down(request)).await
    })?;
    say!("The leader steps down, and another device manager takes over.");
    Ok(ExitCode::SUCCESS)
}

fn text(of: &Managers) -> String {
    let mut managers = Table::new(["MANAGER", "ROLE", "SINCE", "VERSION", "PROBLEM"]);
    for manager in &of.managers {
        managers.row([
            manager.address.clone(),
            manager.role.to_owned(),
            duration(manager.since_ms),
            manager.version.clone(),
            manager.problem.clone(),
        ]);
    }
    let store = format!(
        "Term {} of cluster {}, store {}\n",
        of.term, of.cluster, of.store
    );
    if of.members.is_empty() {
        return format!("{managers}{store}");
    }
    let mut members = Table::new(["ETCD", "ROLE", "VERSION", "DATABASE", "ADDRESS", "PROBLEM"]);
    for member in &of.members {
        let answers = !member.version.is_empty();
        members.row([
            member.name.clone(),
            match (answers, member.leader) {
                (false, _) => "unreachable",
                (true, true) => "leader",
                (true, false) => "follower",
            }
            .to_owned(),
            member.version.clone(),
            bytes(member.database_bytes),
            member.addresses.first().cloned().unwrap_or_default(),
            member.problem.clone(),
        ]);
    }
    format!("{managers}{store}\n{members}")
}
