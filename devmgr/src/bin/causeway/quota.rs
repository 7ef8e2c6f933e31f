//! `causeway quota`: the limits of users and groups at the device manager, and their use.
//!
//! Three amounts are limited: devices at once, their memory, and device-hours in the policy's window. A
//! quota is for one user, for a group together, or for every user who has none of their own. Invariant:
//! `set` changes only the limits that it names.

use causeway_proto::manager::{
    ListQuotasRequest, Priority, Quota as QuotaWord, QuotaList, QuotaUse, quota, quota_use,
};
use causeway_proto::request;
use clap::{Subcommand, ValueEnum};

use crate::connection::Connection;
use crate::context::Context;
use crate::failure::{Failure, Outcome};
use crate::json::{Quota, Quotas, Used, class};
use crate::say::say;
use crate::text::{Table, bytes, duration, printable};
use crate::tokens;
use crate::users::users;

/// Arguments of `quota`.
#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    what: Option<What>,
}

#[derive(Debug, Subcommand)]
enum What {
    /// Show your quotas and their use; administrators see all (the default)
    Show,
    /// Set limits; others stay as they are
    Set {
        #[command(flatten)]
        who: Who,
        #[command(flatten)]
        limits: Limits,
    },
    /// Remove a quota with all its limits
    Remove {
        #[command(flatten)]
        who: Who,
    },
}

#[derive(Clone, Debug, clap::Args)]
#[group(required = true, multiple = false)]
struct Who {
    /// The quota of this user
    #[arg(long)]
    user: Option<String>,
    /// The quota of this group, for all its members together
    #[arg(long)]
    group: Option<String>,
    /// The quota of each user who has none of their own
    #[arg(long)]
    every_user: bool,
}

#[derive(Clone, Debug, clap::Args)]
#[group(required = true, multiple = true)]
struct Limits {
    /// Devices at once, where a share counts as one; or none
    #[arg(long, value_name = "COUNT", value_parser = devices)]
    devices: Option<Limit<u32>>,
    /// Device memory at once, such as 64GiB; or none
    #[arg(long, value_name = "BYTES", value_parser = memory)]
    memory: Option<Limit<u64>>,
    /// Device-hours in the manager's window (two devices for an hour are two hours); or none
    #[arg(long, value_name = "HOURS", value_parser = hours)]
    device_hours: Option<Limit<u64>>,
    /// The highest priority class allowed; or none
    #[arg(long, value_name = "CLASS", value_enum)]
    highest: Option<Class>,
}

/// A limit, or none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Limit<T>(Option<T>);

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Class {
    Low,
    Normal,
    High,
    None,
}

/// Zero means no limit on the wire, so it cannot be a limit.
const NOT_ZERO: &str =
    "a limit must be more than 0; to give a user nothing, remove the user (causeway users remove)";
const NONE: &str = "none";

fn devices(text: &str) -> Result<Limit<u32>, String> {
    limit(text, |text| text.parse().ok(), "a number of devices")
}

fn memory(text: &str) -> Result<Limit<u64>, String> {
    limit(text, request::number, "a number of bytes such as 64GiB")
}

/// Parses hours into seconds.
fn hours(text: &str) -> Result<Limit<u64>, String> {
    let seconds = |text: &str| {
        let seconds = text.parse::<f64>().ok()? * 3600.0;
        // More than a thousand years of all devices.
        (0.0..1e15)
            .contains(&seconds)
            .then(|| seconds.round() as u64)
    };
    limit(text, seconds, "a number of hours such as 100 or 0.5")
}

fn limit<T: PartialEq + Default>(
    text: &str,
    read: impl FnOnce(&str) -> Option<T>,
    expected: &str,
) -> Result<Limit<T>, String> {
    if text == NONE {
        return Ok(Limit(None));
    }
    match read(text) {
        None => Err(format!("expected {expected}, or `none`")),
        Some(zero) if zero == T::default() => Err(NOT_ZERO.to_owned()),
        value => Ok(Limit(value)),
    }
}

pub(crate) fn run(arguments: &Arguments, context: &Context) -> Outcome {
    let (quotas, sees_all) = match arguments.what.as_ref().unwrap_or(&What::Show) {
        What::Show => context.read_from_manager(async |manager| {
            Ok((list(manager).await?, tokens::who(manager).await?.admin))
        })?,
        What::Set { who, limits } => context.with_manager(async |manager| {
            // The manager replaces a quota as a whole, so limits that are not named are read first.
            let quotas = list(manager).await?.quotas.into_iter();
            let who = who.word();
            let set = quotas.into_iter().find(|of| of.who == who);
            let mut quota = set.unwrap_or_default();
            quota.who = who;
            limits.apply(&mut quota);
            warn_of_nobody(manager, &quota).await?;
            Ok((put(manager, quota).await?, true))
        })?,
        What::Remove { who } => context.with_manager(async |manager| {
            let who = who.word();
            let known = list(manager).await?.quotas;
            if !known.iter().any(|of| of.who == who) {
                let failure = Failure::new(format!("{} has no quota", named(who.as_ref())));
                return Err(failure.cure("causeway quota shows those that are set"));
            }
            let quota = QuotaWord {
                who,
                ..QuotaWord::default()
            };
            Ok((put(manager, quota).await?, true))
        })?,
    };
    context.print(&quotas_of(quotas, sees_all), text)
}

async fn list(manager: &Connection) -> Result<QuotaList, Failure> {
    let request = manager.request(ListQuotasRequest {});
    manager
        .answer_to(manager.admin().list_quotas(request))
        .await
}

/// Warns if a quota applies to no known user or member: a mistyped name would leave the intended user
/// unlimited. A user with a certificate need not be known.
async fn warn_of_nobody(manager: &Connection, quota: &QuotaWord) -> Result<(), Failure> {
    let users = users(manager).await?;
    if users.is_empty() {
        return Ok(());
    }
    let nobody = match &quota.who {
        Some(quota::Who::User(name)) if users.iter().all(|user| user.name != *name) => {
            format!(
                "user {name} is unknown; the quota applies to callers with a certificate of this name"
            )
        }
        Some(quota::Who::Group(name)) if users.iter().all(|user| !user.groups.contains(name)) => {
            format!("nobody is in the group {name} (yet): causeway users groups NAME {name}")
        }
        _ => return Ok(()),
    };
    say!("causeway quota: {}", printable(&nobody));
    Ok(())
}

/// Sets a quota, and returns all quotas after that.
async fn put(manager: &Connection, quota: QuotaWord) -> Result<QuotaList, Failure> {
    let request = manager.request(quota);
    manager
        .answer_to(manager.admin().put_quota(request))
        .await?;
    list(manager).await
}

impl Who {
    fn word(&self) -> Option<quota::Who> {
        let user = self.user.clone().map(quota::Who::User);
        let group = self.group.clone().map(quota::Who::Group);
        let every = self.every_user.then_some(quota::Who::EveryUser(true));
        user.or(group).or(every)
    }
}

impl Limits {
    fn apply(&self, quota: &mut QuotaWord) {
        if let Some(Limit(limit)) = self.devices {
            quota.devices = limit.unwrap_or(0);
        }
        if let Some(Limit(limit)) = self.memory {
            quota.memory = limit.unwrap_or(0);
        }
        if let Some(Limit(limit)) = self.device_hours {
            quota.device_seconds = limit.unwrap_or(0);
        }
        if let Some(class) = self.highest {
            quota.highest = match class {
                Class::Low => Some(Priority::Low.into()),
                Class::Normal => Some(Priority::Normal.into()),
                Class::High => Some(Priority::High.into()),
                Class::None => None,
            };
        }
    }
}

/// Converts quotas from the wire. An administrator (`sees_all`) gets the use of all subjects, so one that
/// is missing uses nothing. Others do not get the use of groups.
fn quotas_of(list: QuotaList, sees_all: bool) -> Quotas {
    let limit = |value: u64| Some(value).filter(|&value| value != 0);
    let mut used: Vec<Used> = list.uses.into_iter().map(used_of).collect();
    let is_hidden = |of: &&QuotaWord| matches!(of.who, Some(quota::Who::Group(_))) && !sees_all;
    for quota in list.quotas.iter().filter(is_hidden) {
        let who = named(quota.who.as_ref());
        if used.iter().all(|used| used.who != who) {
            used.push(Used {
                who,
                devices: None,
                memory_bytes: None,
                device_seconds: None,
            });
        }
    }
    let quotas = list.quotas.into_iter().map(|of| Quota {
        highest: of.highest.map(|_| class(of.highest())),
        devices: limit(of.devices.into()),
        memory_bytes: limit(of.memory),
        device_seconds: limit(of.device_seconds),
        who: named(of.who.as_ref()),
    });
    Quotas {
        window_seconds: list.window_seconds,
        quotas: quotas.collect(),
        used,
    }
}

fn used_of(of: QuotaUse) -> Used {
    Used {
        who: match of.who {
            Some(quota_use::Who::Group(name)) => format!("group {name}"),
            Some(quota_use::Who::User(name)) => format!("user {name}"),
            None => "nobody".to_owned(),
        },
        devices: Some(of.devices),
        memory_bytes: Some(of.memory),
        device_seconds: Some(of.device_seconds),
    }
}

/// A use as text: nothing if it is missing, `-` if it is hidden.
fn shown<T: Default>(
    used: Option<&Used>,
    of: impl Fn(&Used) -> Option<T>,
    text: fn(T) -> String,
) -> String {
    match used {
        None => text(T::default()),
        Some(used) => of(used).map_or_else(|| "-".to_owned(), text),
    }
}

fn named(who: Option<&quota::Who>) -> String {
    match who {
        Some(quota::Who::User(name)) => format!("user {name}"),
        Some(quota::Who::Group(name)) => format!("group {name}"),
        Some(quota::Who::EveryUser(_)) | None => "every user".to_owned(),
    }
}

fn text(quotas: &Quotas) -> String {
    let used = |who: &str| quotas.used.iter().find(|used| used.who == who);
    let other = quotas.used.iter();
    let other = other.filter(|used| !quotas.quotas.iter().any(|quota| quota.who == used.who));
    if quotas.quotas.is_empty() && quotas.used.is_empty() {
        return "No quota is set: users are not limited.\n".to_owned();
    }
    let window = duration(quotas.window_seconds.saturating_mul(1000));
    let hours = format!("DEVICE-HOURS IN {window}");
    let mut table = Table::new(["WHO", "DEVICES", "MEMORY", &hours, "CLASS UP TO"]);
    for quota in &quotas.quotas {
        let used = used(&quota.who);
        let is_one = quota.who != "every user";
        // A quota of every user is no single user's, so it has no use.
        let of = |used: String| {
            if is_one {
                format!("{used} of ")
            } else {
                String::new()
            }
        };
        let cell = |has: String, limit: Option<String>| match limit {
            Some(limit) => of(has) + &limit,
            None if is_one => has,
            None => "-".to_owned(),
        };
        table.row([
            quota.who.clone(),
            cell(
                shown(used, |of| of.devices, |count| count.to_string()),
                quota.devices.map(|count| count.to_string()),
            ),
            cell(
                shown(used, |of| of.memory_bytes, bytes),
                quota.memory_bytes.map(bytes),
            ),
            cell(
                shown(used, |of| of.device_seconds, in_hours),
                quota.device_seconds.map(in_hours),
            ),
            quota.highest.unwrap_or("-").to_owned(),
        ]);
    }
    for used in other {
        table.row([
            used.who.clone(),
            shown(Some(used), |of| of.devices, |count| count.to_string()),
            shown(Some(used), |of| of.memory_bytes, bytes),
            shown(Some(used), |of| of.device_seconds, in_hours),
            "-".to_owned(),
        ]);
    }
    table.to_string()
}

fn in_hours(seconds: u64) -> String {
    // A small use must not look like none.
    let hours = match seconds {
        1..36 => format!("{:.4}", seconds as f64 / 3600.0),
        _ => format!("{:.2}", seconds as f64 / 3600.0),
    };
    hours.trim_end_matches('0').trim_end_matches('.').to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_group_uses_is_not_told_to_its_members_as_nothing() {
        let list = QuotaList {
            quotas: vec![QuotaWord {
                who: Some(quota::Who::Group("lab".to_owned())),
                devices: 1,
                ..QuotaWord::default()
            }],
            ..QuotaList::default()
        };
        let told = |sees_all| text(&quotas_of(list.clone(), sees_all));
        assert!(told(false).contains("- of 1"), "{}", told(false));
        assert!(told(true).contains("0 of 1"), "{}", told(true));
        assert_eq!(quotas_of(list, false).used[0].devices, None);
    }

    #[test]
    fn limits_are_read_as_people_write_them() {
        assert_eq!(devices("3"), Ok(Limit(Some(3))));
        assert_eq!(memory("64GiB"), Ok(Limit(Some(64 << 30))));
        assert_eq!(hours("0.5"), Ok(Limit(Some(1800))));
        assert_eq!(memory("none"), Ok(Limit(None)));
        for wrong in ["", "-1", "0", "x", "NaN", "1e300", "inf"] {
            assert!(devices(wrong).is_err() && memory(wrong).is_err() && hours(wrong).is_err());
        }
        let said = [0, 4, 36, 1800, 7200].map(in_hours);
        assert_eq!(said, ["0", "0.0011", "0.01", "0.5", "2"]);
    }

    #[test]
    fn a_limit_that_is_not_named_stays() {
        let mut quota = QuotaWord {
            devices: 4,
            memory: 1 << 30,
            ..QuotaWord::default()
        };
        let limits = Limits {
            devices: Some(Limit(None)),
            memory: None,
            device_hours: Some(Limit(Some(60))),
            highest: Some(Class::Low),
        };
        limits.apply(&mut quota);
        assert_eq!((quota.devices, quota.memory), (0, 1 << 30));
        assert_eq!(quota.device_seconds, 60);
        assert_eq!(quota.highest, Some(Priority::Low.into()));
    }
}
