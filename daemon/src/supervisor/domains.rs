//! Which sessions may have one host process: the domain of a session, from the settings and from what is
//! known about its client. Pure.
//!
//! This module starts no process and reads no user database. Sessions of equal [`Domain`]s may have one host.
//! A session without a domain has a worker of its own. A domain is decided once, when the session is opened,
//! so a change of the settings concerns new sessions only.
//!
//! Invariants: two users have equal domains only if the settings of each device that both may use say so. A
//! session that may use an excepted driver has no domain. Domains of different sets of devices, or of
//! different generations of the inventory, are not equal, because a host has loaded the drivers of one
//! generation.

use std::collections::{BTreeMap, BTreeSet};
use std::io;

use causeway_proto::control::{Inventory, Platform};
use causeway_proto::request::answer_of;

use super::devices::listed;
use super::managed::DeviceAt;
use crate::config::{ShareSettings, SharingSettings, Together};
use crate::handover::MAX_USER;

/// `CL_PLATFORM_NAME` and `CL_PLATFORM_ICD_SUFFIX_KHR` (OpenCL specification, table of platform queries).
const NAMES: [u32; 2] = [0x0902, 0x0920];

/// A group of the settings cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum BadGroup {
    /// The machine does not have it.
    #[error(
        "together = \"group:{0}\" in daemon.toml: this machine has no group {0:?}; create it or name another"
    )]
    Unknown(String),
    /// The system's error.
    #[error(
        "together = \"group:{name}\" in daemon.toml: cannot read this machine's groups: {error}"
    )]
    Unreadable {
        /// The group.
        name: String,
        /// The system's error.
        error: io::Error,
    },
}

/// Decides to which domain a session belongs.
#[derive(Clone, Debug)]
pub(super) struct Domains {
    together: Together,
    except: Vec<String>,
    /// The users whom each group of the settings lists.
    members: BTreeMap<String, BTreeSet<String>>,
    /// Whether callers without a name are one user: the daemon authenticates nobody, and only this machine
    /// reaches it.
    is_local: bool,
}

/// What is known about a session that is about to open.
#[derive(Clone, Copy, Debug)]
pub(super) struct DomainRequest<'a> {
    /// The user of the lease, or the authenticated user.
    pub(super) user: Option<&'a str>,
    /// The devices of the lease, each with the `together` of its share; `None`: all devices of the node.
    pub(super) leased: Option<&'a BTreeMap<DeviceAt, Option<Together>>>,
    /// The client asks for a worker of its own.
    pub(super) isolated: bool,
}

/// A domain: sessions with equal ones may have one host process.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Domain {
    users: Users,
    devices: BTreeSet<DeviceAt>,
    generation: u64,
}

/// The users whose sessions are together.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Users {
    /// The one user of this name.
    One(String),
    /// The users of this machine, on a daemon that authenticates nobody.
    Local,
    /// The users whom this group lists.
    Group(String),
    Everyone,
}

impl Domains {
    /// Makes the rules of these settings. `is_local`: callers without a name are one user. `members_of`
    /// returns the users whom a group of this machine lists, or `None` if there is no such group.
    ///
    /// # Errors
    /// [`BadGroup`].
    pub(super) fn new(
        sharing: &SharingSettings,
        shares: &[ShareSettings],
        is_local: bool,
        members_of: impl Fn(&str) -> io::Result<Option<Vec<String>>>,
    ) -> Result<Domains, BadGroup> {
        let of_shares = shares.iter().filter_map(|share| share.together.as_ref());
        let mut members = BTreeMap::new();
        for together in of_shares.chain([&sharing.together]) {
            let Together::Group(name) = together else {
                continue;
            };
            let listed = members_of(name).map_err(|error| BadGroup::Unreadable {
                name: name.clone(),
                error,
            })?;
            let listed = listed.ok_or_else(|| BadGroup::Unknown(name.clone()))?;
            members.insert(name.clone(), listed.into_iter().collect());
        }
        Ok(Domains {
            together: sharing.together.clone(),
            except: sharing.except.clone(),
            members,
            is_local,
        })
    }

    /// Returns the domain of a session, or `None` if it must have a worker of its own. `inventory` is the
    /// node's whole inventory.
    pub(super) fn of(&self, asked: &DomainRequest<'_>, inventory: &Inventory) -> Option<Domain> {
        if asked.isolated {
            return None;
        }
        let all = || listed(inventory).map(|(at, _)| (at, None)).collect();
        let wanted = asked.leased.cloned().unwrap_or_else(all);
        let platforms: BTreeSet<u32> = wanted.keys().map(|at| at.platform).collect();
        for number in platforms {
            if self.is_excepted(inventory.platforms.get(number as usize)?) {
                return None;
            }
        }
        let mut users = None;
        for together in wanted.values() {
            let of_device = self.users(together.as_ref().unwrap_or(&self.together), asked.user)?;
            users = match users {
                None => Some(of_device),
                Some(users) => Some(narrower(users, of_device)?),
            };
        }
        Some(Domain {
            users: users?,
            devices: wanted.into_keys().collect(),
            generation: inventory.generation,
        })
    }

    /// Returns the users with whom a caller's sessions may be together by one setting.
    fn users(&self, together: &Together, user: Option<&str>) -> Option<Users> {
        match (together, user) {
            (Together::None, _) => None,
            (Together::User, Some(user)) => Some(Users::One(user.to_owned())),
            (Together::User, None) => self.is_local.then_some(Users::Local),
            (Together::Group(name), user) => self
                .members
                .get(name)
                .is_some_and(|members| user.is_some_and(|user| members.contains(user)))
                .then(|| Users::Group(name.clone())),
            (Together::All, _) => Some(Users::Everyone),
        }
    }

    fn is_excepted(&self, platform: &Platform) -> bool {
        let is = |name: &String| is_named(platform, name);
        self.except.iter().any(is)
    }

    /// Returns what administrators should know about the settings, given the node's drivers.
    pub(super) fn notes(&self, inventory: &Inventory) -> Vec<String> {
        let note = |name: &String| match inventory.platforms.iter().any(|of| is_named(of, name)) {
            true => format!(
                "sessions that may use {name} have processes of their own, as [sharing] except says"
            ),
            false => {
                format!("[sharing] except names {name}, but no platform of this node has this name")
            }
        };
        self.except.iter().map(note).collect()
    }
}

impl Domain {
    /// Returns whether all sessions are of one user whom the node, or the manager of a lease, knows by
    /// name. Memory that goes from one session to another is then not filled with zeros.
    pub(super) fn is_one_user(&self) -> bool {
        matches!(self.users, Users::One(_))
    }

    /// Returns what kind of domain this is, without any name: metrics are shown to everyone who can reach them.
    pub(super) fn kind(&self) -> &'static str {
        match &self.users {
            Users::One(_) | Users::Local => "user",
            Users::Group(_) => "group",
            Users::Everyone => "all",
        }
    }

    /// Returns the domain's name for texts, such as "user alice".
    pub(super) fn name(&self) -> String {
        match &self.users {
            Users::One(name) => {
                // Users of an open manager choose their names.
                let short = name.chars().filter(|c| !c.is_control()).take(MAX_USER);
                format!("user {}", short.collect::<String>())
            }
            Users::Local => "this machine's users".to_owned(),
            Users::Group(name) => format!("group {name}"),
            Users::Everyone => "everyone on this node".to_owned(),
        }
    }
}

/// Returns the remark of a node whose settings let sessions share processes, for tools.
pub(super) fn remark(sharing: &SharingSettings, shares: &[ShareSettings]) -> Option<String> {
    let of_shares = shares.iter().filter_map(|share| share.together.as_ref());
    let mut named: Vec<String> = of_shares
        .chain([&sharing.together])
        .filter(|together| **together != Together::None)
        .map(|together| format!("together = \"{together}\""))
        .collect();
    named.sort();
    named.dedup();
    (!named.is_empty()).then(|| {
        format!(
            "SHARING: sessions may share a process here ({}); in it, a kernel's wild pointer can reach another session's \
             memory, and a crash, or a kernel that goes on after its program has ended, ends all of them; \
             CAUSEWAY_ISOLATED=1 asks for a process of its own, and [sharing] of daemon.toml decides for all",
            named.join(", ")
        )
    })
}

/// Returns the users that are in both; `None` if no value names them.
fn narrower(a: Users, b: Users) -> Option<Users> {
    match (a, b) {
        (a, b) if a == b => Some(a),
        (Users::Everyone, other) | (other, Users::Everyone) => Some(other),
        // The caller is a member of the group.
        (one @ Users::One(_), Users::Group(_)) | (Users::Group(_), one @ Users::One(_)) => {
            Some(one)
        }
        _ => None,
    }
}

fn is_named(platform: &Platform, name: &str) -> bool {
    NAMES.into_iter().any(|query| {
        let told = answer_of(&platform.info, query);
        told.is_some_and(|told| {
            let told = told.strip_suffix(b"\0").unwrap_or(told);
            told.eq_ignore_ascii_case(name.as_bytes())
        })
    })
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use causeway_proto::control::{Device, InfoAnswer};
    use proptest::prelude::*;
    use std::time::Duration;

    fn inventory() -> Inventory {
        let platform = |name: &str, short: &str, devices| {
            let answer = |(name, value): (u32, &str)| InfoAnswer {
                name,
                value: [value.as_bytes(), b"\0"].concat().into(),
                status: 0,
            };
            Platform {
                info: NAMES.into_iter().zip([name, short]).map(answer).collect(),
                devices: vec![Device::default(); devices],
            }
        };
        Inventory {
            generation: 7,
            platforms: vec![
                platform("NVIDIA CUDA", "NV", 2),
                platform("Portable Computing Language", "POCL", 1),
            ],
            ..Inventory::default()
        }
    }

    fn settings(together: Together, except: &[&str]) -> SharingSettings {
        SharingSettings {
            together,
            except: except.iter().map(|name| (*name).to_owned()).collect(),
            host_idle: Duration::from_secs(60),
        }
    }

    /// A user's domain, for tests of other modules.
    pub(in super::super) fn domain_of(user: &str) -> Domain {
        let domains = domains(Together::User, &[], false);
        domains.of(&asked(Some(user)), &inventory()).unwrap()
    }

    /// Group `lab` lists `ann` and `bob`, group `ops` lists `ann`.
    fn members_of(name: &str) -> io::Result<Option<Vec<String>>> {
        Ok(match name {
            "lab" => Some(vec!["ann".to_owned(), "bob".to_owned()]),
            "ops" => Some(vec!["ann".to_owned()]),
            _ => None,
        })
    }

    fn domains(together: Together, except: &[&str], is_local: bool) -> Domains {
        let shares = ["lab", "ops"].map(|name| ShareSettings {
            device: crate::config::WhichDevice::Name(name.to_owned()),
            count: 2,
            memory: 0,
            times: Vec::new(),
            strict: false,
            together: Some(Together::Group(name.to_owned())),
        });
        Domains::new(&settings(together, except), &shares, is_local, members_of).unwrap()
    }

    fn asked(user: Option<&str>) -> DomainRequest<'_> {
        DomainRequest {
            user,
            leased: None,
            isolated: false,
        }
    }

    fn group(name: &str) -> Together {
        Together::Group(name.to_owned())
    }

    #[test]
    fn each_setting_names_its_domain() {
        let name = |together, user, is_local| {
            let domain = domains(together, &[], is_local).of(&asked(user), &inventory());
            domain.map(|domain| (domain.name(), domain.is_one_user()))
        };
        let of = |text: &str, one| Some((text.to_owned(), one));
        assert_eq!(name(Together::None, Some("ann"), true), None);
        assert_eq!(
            name(Together::User, Some("ann"), false),
            of("user ann", true)
        );
        assert_eq!(
            name(Together::User, None, true),
            of("this machine's users", false)
        );
        assert_eq!(name(Together::User, None, false), None);
        assert_eq!(
            name(group("lab"), Some("bob"), false),
            of("group lab", false)
        );
        assert_eq!(name(group("ops"), Some("bob"), false), None);
        assert_eq!(name(group("lab"), None, true), None);
        assert_eq!(
            name(Together::All, None, false),
            of("everyone on this node", false)
        );
        assert_eq!(
            name(Together::User, Some("a\nb"), false),
            of("user ab", true)
        );
    }

    #[test]
    fn isolated_sessions_and_excepted_drivers_have_no_domain() {
        let all = domains(Together::All, &["pocl"], true);
        assert_eq!(all.of(&asked(None), &inventory()), None);
        let at = |platform| DeviceAt {
            platform,
            device: 0,
        };
        let of = |platform, isolated| {
            let leased = BTreeMap::from([(at(platform), None)]);
            let asked = DomainRequest {
                user: Some("ann"),
                leased: Some(&leased),
                isolated,
            };
            all.of(&asked, &inventory())
        };
        assert!(of(0, false).is_some());
        assert_eq!(
            (of(0, true), of(1, false), of(2, false)),
            (None, None, None)
        );
        let by_name = domains(Together::All, &["nvidia cuda", "Else"], true);
        assert_eq!(by_name.of(&asked(None), &inventory()), None);
        let notes = by_name.notes(&inventory());
        assert!(notes[0].starts_with("sessions that may use nvidia cuda have processes"));
        assert!(notes[1].starts_with("[sharing] except names Else, but no platform"));
        // A node without devices has nothing to share.
        assert_eq!(all.of(&asked(None), &Inventory::default()), None);
    }

    #[test]
    fn a_domain_belongs_to_one_generation_and_one_set_of_devices() {
        let user = domains(Together::User, &[], false);
        let domain = |inventory: &Inventory| user.of(&asked(Some("ann")), inventory).unwrap();
        let (now, mut later) = (inventory(), inventory());
        assert_eq!(domain(&now), domain(&now));
        later.generation += 1;
        assert_ne!(domain(&now), domain(&later));
        let leased = |device| {
            let leased = BTreeMap::from([(
                DeviceAt {
                    platform: 0,
                    device,
                },
                None,
            )]);
            let asked = DomainRequest {
                leased: Some(&leased),
                ..asked(Some("ann"))
            };
            user.of(&asked, &now).unwrap()
        };
        assert_eq!(leased(0), leased(0));
        assert_ne!(leased(0), leased(1));
        assert_ne!(leased(0), domain(&now));
    }

    #[test]
    fn users_whose_names_begin_alike_are_two() {
        let user = domains(Together::User, &[], false);
        let [ann, also] = ["x", "y"].map(|end| format!("{}{end}", "a".repeat(MAX_USER)));
        let of = |name: &str| user.of(&asked(Some(name)), &inventory()).unwrap();
        assert_ne!(of(&ann), of(&also));
    }

    #[test]
    fn a_group_must_exist_and_be_readable() {
        let of = |members: fn(&str) -> io::Result<Option<Vec<String>>>| {
            let settings = settings(group("x"), &[]);
            Domains::new(&settings, &[], false, members)
                .unwrap_err()
                .to_string()
        };
        let unknown = of(|_| Ok(None));
        assert!(
            unknown.contains("this machine has no group \"x\""),
            "{unknown}"
        );
        let unreadable = of(|_| Err(io::Error::other("broken")));
        assert!(
            unreadable.contains("group:x") && unreadable.contains("broken"),
            "{unreadable}"
        );
    }

    #[test]
    fn the_remark_names_what_is_shared_and_how_to_avoid_it() {
        let shares = domains_of_shares();
        assert_eq!(remark(&settings(Together::None, &[]), &[]), None);
        let said = remark(&settings(Together::User, &[]), &shares).unwrap();
        assert!(
            said.contains("(together = \"all\", together = \"user\")"),
            "{said}"
        );
        assert!(
            said.contains("a kernel that goes on after its program has ended"),
            "{said}"
        );
        assert!(said.contains("CAUSEWAY_ISOLATED=1"), "{said}");
    }

    fn domains_of_shares() -> Vec<ShareSettings> {
        let share = |together| ShareSettings {
            device: crate::config::WhichDevice::Name("a".to_owned()),
            count: 2,
            memory: 0,
            times: Vec::new(),
            strict: false,
            together,
        };
        vec![share(None), share(Some(Together::All))]
    }

    fn a_setting() -> impl Strategy<Value = Together> {
        prop_oneof![
            Just(Together::None),
            Just(Together::User),
            Just(group("lab")),
            Just(group("ops")),
            Just(Together::All),
        ]
    }

    fn a_user() -> impl Strategy<Value = Option<&'static str>> {
        prop::sample::select(vec![None, Some("ann"), Some("bob"), Some("carl")])
    }

    fn a_lease() -> impl Strategy<Value = Option<BTreeMap<DeviceAt, Option<Together>>>> {
        let device = (0..2_u32, 0..2_u32).prop_map(|(platform, device)| DeviceAt {
            platform,
            device: if platform == 1 { 0 } else { device },
        });
        let setting = prop::option::of(a_setting());
        prop::option::of(prop::collection::btree_map(device, setting, 1..=3))
    }

    /// Whether one setting allows that sessions of these two callers are together.
    fn allows(setting: &Together, a: Option<&str>, b: Option<&str>, is_local: bool) -> bool {
        let lists = |group: &str, user: Option<&str>| {
            let members = members_of(group).unwrap().unwrap_or_default();
            user.is_some_and(|user| members.iter().any(|member| member == user))
        };
        match setting {
            Together::None => false,
            Together::User => a == b && (a.is_some() || is_local),
            Together::Group(name) => lists(name, a) && lists(name, b),
            Together::All => true,
        }
    }

    proptest! {
        #[test]
        fn two_sessions_are_together_only_if_every_setting_allows_it(
            node in a_setting(),
            leases in (a_lease(), a_lease()),
            users in (a_user(), a_user()),
            isolated in any::<(bool, bool)>(),
            is_local in any::<bool>(),
        ) {
            let rules = domains(node.clone(), &[], is_local);
            let of = |user, leased: &Option<_>, isolated| {
                let asked = DomainRequest { user, leased: leased.as_ref(), isolated };
                rules.of(&asked, &inventory())
            };
            let first = of(users.0, &leases.0, isolated.0);
            let second = of(users.1, &leases.1, isolated.1);
            if first.is_some() && first == second {
                prop_assert!(!isolated.0 && !isolated.1);
                for lease in [&leases.0, &leases.1] {
                    let own = lease.iter().flat_map(BTreeMap::values);
                    let settings: Vec<_> = own.map(|own| own.as_ref().unwrap_or(&node)).collect();
                    for setting in if lease.is_none() { vec![&node] } else { settings } {
                        prop_assert!(allows(setting, users.0, users.1, is_local), "{setting:?}");
                    }
                }
            }
        }

        #[test]
        fn equal_callers_are_together_where_the_setting_allows_it(
            node in a_setting(),
            user in a_user(),
            is_local in any::<bool>(),
        ) {
            let domain = domains(node.clone(), &[], is_local).of(&asked(user), &inventory());
            prop_assert_eq!(domain.is_some(), allows(&node, user, user, is_local));
            prop_assert!(domain.is_none_or(|of| !of.is_one_user() || user.is_some()));
        }
    }
}
