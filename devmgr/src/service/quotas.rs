//! Quotas on the wire: the limits, and each subject's use.
//!
//! Invariant: a user who is no administrator learns nothing about other users. About their groups they
//! learn the limits, and not what the members use.

use causeway_proto::manager as pb;
use tonic::Status;

use super::authentication::check_name;
use super::book::Sight;
use super::wire;
use crate::identity::Caller;
use crate::policy::{Quota, Subject};

/// The quotas that concern the caller; all of them for administrators.
pub(super) fn quota_list(sight: &Sight<'_>, caller: &Caller) -> pb::QuotaList {
    let is_own = |subject: &Subject| *subject == Subject::User(caller.user.clone());
    let concerns = |subject: &Subject| match subject {
        Subject::EveryUser => true,
        Subject::User(_) => is_own(subject),
        Subject::Group(group) => caller.groups.contains(group),
    };
    let quotas = sight.book.quotas.iter();
    let quotas = quotas.filter(|(subject, _)| caller.admin || concerns(subject));
    let users = sight.manager.ledger().subjects();
    let users = users.filter(|subject| caller.admin || is_own(subject));
    pb::QuotaList {
        quotas: quotas.map(|(of, limits)| quota(of, limits)).collect(),
        window_seconds: sight.book.policy.accounting_window.0 / 1000,
        uses: users.filter_map(|of| quota_use(sight, of)).collect(),
    }
}

fn quota_use(sight: &Sight<'_>, of: &Subject) -> Option<pb::QuotaUse> {
    use pb::quota_use::Who;
    let ledger = sight.manager.ledger();
    let has = ledger.holdings(of);
    let had = ledger.used(of, sight.now.wall, sight.book.policy.accounting_window);
    Some(pb::QuotaUse {
        who: Some(match of {
            // `EveryUser` is a default for users, so nothing is counted for it.
            Subject::EveryUser => return None,
            Subject::User(name) => Who::User(name.to_string()),
            Subject::Group(name) => Who::Group(name.to_string()),
        }),
        devices: has.devices,
        memory: has.memory,
        device_seconds: had.0.saturating_add(has.promised.0) / 1000,
    })
}

pub(super) fn quota_of(quota: pb::Quota) -> Result<(Subject, Option<Quota>), Status> {
    use pb::quota::Who;
    let bad = |text: String| Status::invalid_argument(text);
    let subject = match quota.who {
        Some(Who::User(name)) => {
            check_name(&name).map_err(bad)?;
            Subject::User(name.as_str().into())
        }
        Some(Who::Group(name)) => {
            check_name(&name).map_err(bad)?;
            Subject::Group(name.as_str().into())
        }
        Some(Who::EveryUser(_)) => Subject::EveryUser,
        None => {
            return Err(Status::invalid_argument(
                "missing subject: a quota needs a user, a group, or every user",
            ));
        }
    };
    let limits = Quota {
        devices: Some(quota.devices).filter(|&n| n != 0),
        memory: Some(quota.memory).filter(|&n| n != 0),
        device_time: wire::span(quota.device_seconds.saturating_mul(1000)),
        class: quota.highest.map(wire::class).transpose()?,
    };
    let is_limit = limits != Quota::default();
    Ok((subject, is_limit.then_some(limits)))
}

fn quota(subject: &Subject, quota: &Quota) -> pb::Quota {
    use pb::quota::Who;
    pb::Quota {
        who: Some(match subject {
            Subject::EveryUser => Who::EveryUser(true),
            Subject::User(name) => Who::User(name.to_string()),
            Subject::Group(name) => Who::Group(name.to_string()),
        }),
        devices: quota.devices.unwrap_or(0),
        memory: quota.memory.unwrap_or(0),
        device_seconds: quota.device_time.map_or(0, |span| span.0 / 1000),
        highest: quota.class.map(|class| wire::priority(class).into()),
    }
}
