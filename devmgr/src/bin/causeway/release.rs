//! `causeway release`: releases a lease before its program ends, or cancels a waiting request.

use std::collections::BTreeMap;
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

/// Arguments of `release`.
#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    /// The id of the lease or waiting request, or an unambiguous prefix of it
    #[arg(value_name = "ID", value_parser = digits)]
    id: String,
    /// Revoke another user's lease or request; for administrators
    #[arg(long)]
    revoke: bool,
    /// The reason, which the user sees
    #[arg(long, value_name = "TEXT", requires = "revoke", default_value = "")]
    reason: String,
}

/// Number of digits of an id.
const WHOLE: usize = 32;

fn digits(text: &str) -> Result<String, String> {
    let are_digits = text.bytes().all(|byte| byte.is_ascii_hexdigit());
    if are_digits && (1..=WHOLE).contains(&text.len()) {
        Ok(text.to_ascii_lowercase())
    } else {
        Err(format!(
            "invalid id: expected {WHOLE} hexadecimal digits, or a prefix"
        ))
    }
}

pub(crate) fn run(arguments: &Arguments, context: &Context) -> Outcome {
    let lease = context.with_manager(async |manager| {
        if arguments.revoke && !who(manager).await?.admin {
            let failure = Failure::new("--revoke is for administrators of the device manager");
            return Err(
                failure.cure("ask an administrator; to release your own lease, leave --revoke out")
            );
        }
        let lease = which(manager, &arguments.id).await?;
        let lease_id = lease.to_be_bytes().to_vec().into();
        if arguments.revoke {
            let reason = arguments.reason.clone();
            let request = manager.request(RevokeLeaseRequest { lease_id, reason });
            manager
                .answer_to(manager.admin().revoke_lease(request))
                .await?;
        } else {
            let request = manager.request(ReleaseLease { lease_id });
            if let Err(failure) = manager.answer_to(manager.leases().release(request)).await {
                // The refusal does not say whether the lease exists. The lists that the caller may see can
                // tell.
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

/// The leases and requests that the caller may see: ids and users.
async fn visible(manager: &Connection) -> Result<BTreeMap<String, String>, Failure> {
    let request = manager.request(ListLeasesRequest {});
    let leases = manager
        .answer_to(manager.leases().list_leases(request))
        .await?;
    let request = manager.request(ListQueueRequest {});
    let queue = manager
        .answer_to(manager.leases().list_queue(request))
        .await?;
    let leases = leases.leases.into_iter().map(|of| (of.lease_id, of.user));
    let waiting = queue.requests.into_iter().map(|of| (of.lease_id, of.user));
    let all = leases.chain(waiting);
    Ok(all.map(|(lease, user)| (id(&lease), user)).collect())
}

/// The failure for another user's lease, if the caller may see it.
async fn of_another(manager: &Connection, lease: u128) -> Option<Failure> {
    let lease = id(&lease.to_be_bytes());
    let user = visible(manager).await.ok()?.remove(&lease)?;
    let failure = Failure::new(format!("{lease} is {}'s, not yours", printable(&user)));
    Some(failure.cure(format!(
        "an administrator can revoke it: causeway release --revoke {lease}"
    )))
}

/// Finds a lease or request by its id, or by a prefix among those that the caller may see.
async fn which(manager: &Connection, digits: &str) -> Result<u128, Failure> {
    let whole = |text: &str| {
        u128::from_str_radix(text, 16).map_err(|error| Failure::new(error.to_string()))
    };
    if digits.len() == WHOLE {
        return whole(digits);
    }
    let visible = visible(manager).await?;
    let meant: Vec<_> = visible.keys().filter(|of| of.starts_with(digits)).collect();
    match meant.as_slice() {
        [one] => whole(one),
        [] => Err(
            Failure::new(format!("no lease and no request begins with {digits}"))
                .cure("causeway leases, causeway queue show what there is"),
        ),
        _ => Err(
            Failure::new(format!("{} leases begin with {digits}", meant.len()))
                .cure("give a longer prefix"),
        ),
    }
}
