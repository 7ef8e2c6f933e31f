//! `causeway queue`: the waiting requests that the caller may see.

use causeway_proto::manager::ListQueueRequest;

use crate::context::Context;
use crate::failure::Outcome;
use crate::json::Queue;
use crate::text::{Table, duration};

/// Arguments of `queue`.
#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {}

pub(crate) fn run(_: &Arguments, context: &Context) -> Outcome {
    let list = context.read_from_manager(async |manager| {
        let request = manager.request(ListQueueRequest {});
        manager
            .answer_to(manager.leases().list_queue(request))
            .await
    })?;
    context.print(&Queue::from(list), text)
}

fn text(queue: &Queue) -> String {
    if queue.waiting == 0 {
        return "No request is waiting.\n".to_owned();
    }
    let mut table = Table::new([
        "PLACE", "USER", "WAITING", "PRIORITY", "LEASE", "DEVICES", "PROGRAM", "WHY",
    ]);
    for of in &queue.requests {
        table.row([
            of.position.to_string(),
            of.user.clone(),
            duration(of.waiting_ms),
            of.priority.to_owned(),
            of.lease.clone(),
            of.request.clone(),
            of.client
                .as_ref()
                .map(ToString::to_string)
                .unwrap_or_default(),
            of.why.clone().unwrap_or_default(),
        ]);
    }
    let others = (queue.waiting as usize).saturating_sub(queue.requests.len());
    let others = match others {
        0 => String::new(),
        others => format!("Waiting requests of other users: {others}\n"),
    };
    if queue.requests.is_empty() {
        return others;
    }
    format!("{table}{others}")
}
