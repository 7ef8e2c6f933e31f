//! `causeway managers`: the device managers that share a store, and its members; makes another one lead.

use std::process::ExitCode;
use std::time::{Duration, Instant};

use causeway_proto::manager::{ListManagersRequest, ManagerList, StepDownRequest};

use crate::connection::Connection;
use crate::context::Context;
use crate::failure::{Failure, Outcome};
use crate::json::Managers;
use crate::say::say;
use crate::text::{Table, bytes, duration};

/// Longest wait for the next leader. A standby takes over in less than a second, unless etcd or the machine is slow.
const TAKES_OVER_WITHIN: Duration = Duration::from_secs(30);
/// Pause between two questions who leads.
const PAUSE: Duration = Duration::from_millis(50);

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
    let list = context.read_from_manager(listed)?;
    context.print(&Managers::from(list), text)
}

async fn listed(manager: &Connection) -> Result<ManagerList, Failure> {
    let request = manager.request(ListManagersRequest {});
    manager
        .answer_to(manager.admin().list_managers(request))
        .await
}

/// Makes the leader give up its lead, and waits until another manager that the settings name leads.
fn step_down(context: &Context) -> Outcome {
    let (former_term, has_several) = context.with_manager(async |manager| {
        let term = listed(manager).await?.term;
        let request = manager.request(StepDownRequest {});
        manager
            .answer_to(manager.admin().step_down(request))
            .await?;
        Ok((term, manager.has_several()))
    })?;
    let begin = Instant::now();
    loop {
        match context.with_manager(listed) {
            Ok(list) if list.term > former_term => {
                let leader = list.managers.into_iter().next().unwrap_or_default();
                say!("The device manager at {} leads now.", leader.address);
                return Ok(ExitCode::SUCCESS);
            }
            // The settings name the former leader alone, so the next one cannot be asked whether it serves already.
            Err(failure) if failure.is_leaderless() && !has_several => {
                say!("The leader has given up its lead, and another device manager takes over.");
                return Ok(ExitCode::SUCCESS);
            }
            // The former leader has not given up its lead yet, or nobody leads yet.
            Ok(_) | Err(_) if begin.elapsed() < TAKES_OVER_WITHIN => {}
            Ok(_) => return Err(not_taken_over()),
            Err(failure) => return Err(failure),
        }
        std::thread::sleep(PAUSE);
    }
}

fn not_taken_over() -> Failure {
    let limit = TAKES_OVER_WITHIN.as_secs();
    Failure::new(format!(
        "the leader has not given up its lead within {limit} s"
    ))
    .cure("look at its log, and at `causeway managers`")
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
