//! `causeway release`: gives a lease back before its program ends, or takes a request out of the queue.

use std::process::ExitCode;

use causeway_proto::manager::{
    ListLeasesRequest, ListQueueRequest, ReleaseLease, RevokeLeaseRequest,
};

use crate::connection::Connection;
use crate::context::Context;
use crate::failure::{Failure, Outcome};
use crate::json::{Released, id};
use crate::text::printable;
use crate::tokens::who;

/// What `release` takes.
#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    /// The lease, or the request that waits: its id, or as much of the beginning as tells it apart
    #[arg(value_name = "ID", value_parser = digits)]
    id: String,
    /// Take it from whomever has it; for administrators
    #[arg(long)]
    revoke: bool,
    /// What the one is told who had it
    #[arg(long, value_name = "TEXT", requires = "revoke", default_value = "")]
    reason: String,
}

/// Digits of an id.
const WHOLE: usize = 32;

fn digits(text: &str) -> Result<String, String> {
    let are_digits = text.bytes().all(|byte| byte.is_ascii_hexdigit());
    if are_digits && (1..=WHOLE).contains(&text.len()) {
        Ok(text.to_ascii_lowercase())
    } else {
        Err(format!(
            "an id has {WHOLE} hexadecimal digits, or the first of them"
        ))
    }
}

pub(crate) fn run(arguments: &Arguments, context: &Context) -> Outcome {
    let lease = context.with_manager(async |manager| {
        if arguments.revoke && !who(manager).await?.admin {
            let failure = Failure::new("--revoke is for administrators of the device manager");
            return Err(failure.cure("ask one, or give back your own without it"));
        }
        let lease = which(manager, &arguments.id).await?;
        let lease_id = lease.to_be_bytes().to_vec().into();
        if arguments.revoke {
            let reason = arguments.reason.clone();
            let request = manager.request(RevokeLeaseRequest { lease_id, reason });
            manager.hear(manager.admin().revoke_lease(request)).await?;
        } else {
            let request = manager.request(ReleaseLease { lease_id });
            if let Err(failure) = manager.hear(manager.leases().release(request)).await {
                return Err(of_another(manager, lease).await.unwrap_or(failure));
            }
        }
        Ok(lease)
    })?;
    if !context.json() {
        return Ok(ExitCode::SUCCESS);
    }
    let released = id(&lease.to_be_bytes());
    context.print(&Released { released }, |_| String::new())
}

/// What to do about one of somebody else's, for whom is shown it.
async fn of_another(manager: &Connection, lease: u128) -> Option<Failure> {
    let request = manager.request(ListLeasesRequest {});
    let leases = manager
        .hear(manager.leases().list_leases(request))
        .await
        .ok()?
        .leases;
    let request = manager.request(ListQueueRequest {});
    let queue = manager
        .hear(manager.leases().list_queue(request))
        .await
        .ok()?
        .requests;
    let leases = leases.into_iter().map(|of| (of.lease_id, of.user));
    let mut all = leases.chain(queue.into_iter().map(|of| (of.lease_id, of.user)));
    let (id_of, user) = all.find(|(id, _)| id[..] == lease.to_be_bytes())?;
    let failure = Failure::new(format!(
        "{} is {}'s, not yours",
        id(&id_of),
        printable(&user)
    ));
    Some(failure.cure(format!(
        "an administrator takes it from him: causeway release --revoke {}",
        id(&id_of)
    )))
}

/// The one that is meant: among all that the caller may see, if it is not the whole id.
async fn which(manager: &Connection, digits: &str) -> Result<u128, Failure> {
    let whole = |text: &str| {
        u128::from_str_radix(text, 16).map_err(|error| Failure::new(error.to_string()))
    };
    if digits.len() == WHOLE {
        return whole(digits);
    }
    let request = manager.request(ListLeasesRequest {});
    let leases = manager.hear(manager.leases().list_leases(request)).await?;
    let request = manager.request(ListQueueRequest {});
    let queue = manager.hear(manager.leases().list_queue(request)).await?;
    let leases = leases.leases.iter().map(|of| id(&of.lease_id));
    let waiting = queue.requests.iter().map(|of| id(&of.lease_id));
    let mut meant: Vec<String> = leases.chain(waiting).collect();
    meant.retain(|of| of.starts_with(digits));
    meant.sort_unstable();
    meant.dedup();
    match meant.as_slice() {
        [one] => whole(one),
        [] => Err(Failure::new("there is no such lease (any more)")
            .cure("causeway leases, causeway queue show what there is")),
        _ => Err(
            Failure::new(format!("{} leases begin with {digits}", meant.len()))
                .cure("write more of the id"),
        ),
    }
}
