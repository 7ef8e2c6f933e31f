//! Random requests, losses, restarts and clock jumps, checked after every step and at the end.

use causeway_proto::control::InfoAnswer;
use proptest::collection::vec;
use proptest::prelude::*;

use super::*;
use crate::inventory::{DeviceId, Shares};
use crate::policy::ledger::Party;
use crate::policy::{Class, Policy, Quota, Subject};

/// A random operation. Its numbers select among the objects that exist.
#[derive(Clone, Debug)]
pub(super) enum Op {
    Request {
        user: u8,
        shape: u8,
        limit: u8,
        class: u8,
        wait: bool,
        reserve: bool,
        replace: bool,
    },
    Confirm(u8),
    Renew(u8),
    /// All clients renew what they have.
    RenewAll,
    Release(u8),
    Cancel(u8),
    RequestAgain(u8),
    RequestLost(u8),
    Revoke(u8),
    Stranger(u8),
    ToNode(u8),
    ToManager(u8),
    All,
    DropToNode(u8),
    DropToManager(u8),
    RepeatToNode(u8),
    RepeatToManager(u8),
    Sessions(u8, u8),
    Lose(u8),
    Join(u8),
    Reboot(u8),
    Replug(u8),
    Stop(u8),
    Drain(u8, bool),
    Migrate(u8, u8),
    Forget(u8, bool),
    Pass(u16),
    Stall(u32),
    Crash(bool),
    Restart,
    WallJump(i32),
}

fn op() -> impl Strategy<Value = Op> {
    let request = (
        0_u8..3,
        0_u8..9,
        0_u8..4,
        0_u8..3,
        any::<bool>(),
        any::<bool>(),
        any::<bool>(),
    );
    let request =
        request.prop_map(
            |(user, shape, limit, class, wait, reserve, replace)| Op::Request {
                user,
                shape,
                limit,
                class,
                wait,
                reserve,
                replace,
            },
        );
    let which = any::<u8>();
    prop_oneof![
        8 => request,
        3 => which.prop_map(Op::Confirm),
        3 => which.prop_map(Op::Renew),
        4 => which.prop_map(Op::Release),
        1 => which.prop_map(Op::Cancel),
        1 => which.prop_map(Op::RequestAgain),
        1 => which.prop_map(Op::RequestLost),
        1 => which.prop_map(Op::Revoke),
        1 => which.prop_map(Op::Stranger),
        6 => which.prop_map(Op::ToNode),
        6 => which.prop_map(Op::ToManager),
        6 => Just(Op::All),
        1 => which.prop_map(Op::DropToNode),
        1 => which.prop_map(Op::DropToManager),
        1 => which.prop_map(Op::RepeatToNode),
        1 => which.prop_map(Op::RepeatToManager),
        2 => (which, 0_u8..3).prop_map(|(at, count)| Op::Sessions(at, count)),
        2 => which.prop_map(Op::Lose),
        3 => which.prop_map(Op::Join),
        1 => which.prop_map(Op::Reboot),
        1 => which.prop_map(Op::Replug),
        1 => which.prop_map(Op::Stop),
        1 => (which, any::<bool>()).prop_map(|(at, on)| Op::Drain(at, on)),
        2 => (which, 0_u8..3).prop_map(|(at, within)| Op::Migrate(at, within)),
        1 => (which, any::<bool>()).prop_map(|(at, force)| Op::Forget(at, force)),
        4 => (0_u16..40_000).prop_map(Op::Pass),
        1 => (0_u32..2_000_000).prop_map(Op::Stall),
        1 => any::<bool>().prop_map(Op::Crash),
        1 => Just(Op::Restart),
        1 => any::<i32>().prop_map(Op::WallJump),
    ]
}

/// Operations that lose nodes of leases again and again, whose clients live on.
fn op_of_losses() -> impl Strategy<Value = Op> {
    let request = (0_u8..3, 0_u8..3, 0_u8..4, any::<bool>());
    let request = request.prop_map(|(user, shape, limit, reserve)| Op::Request {
        user,
        shape,
        limit,
        class: 1,
        wait: true,
        reserve,
        replace: true,
    });
    let which = any::<u8>();
    prop_oneof![
        4 => request,
        2 => which.prop_map(Op::Confirm),
        8 => Just(Op::RenewAll),
        1 => which.prop_map(Op::Release),
        3 => which.prop_map(Op::ToNode),
        3 => which.prop_map(Op::ToManager),
        8 => Just(Op::All),
        1 => which.prop_map(Op::DropToNode),
        1 => which.prop_map(Op::RepeatToNode),
        1 => which.prop_map(Op::RepeatToManager),
        1 => (which, 0_u8..3).prop_map(|(at, count)| Op::Sessions(at, count)),
        2 => which.prop_map(Op::Lose),
        8 => which.prop_map(Op::Join),
        4 => which.prop_map(Op::Reboot),
        1 => which.prop_map(Op::Replug),
        1 => which.prop_map(Op::Stop),
        1 => (which, 0_u8..3).prop_map(|(at, within)| Op::Migrate(at, within)),
        1 => which.prop_map(|at| Op::Drain(at, false)),
        1 => (which, any::<bool>()).prop_map(|(at, force)| Op::Forget(at, force)),
        3 => (0_u16..20_000).prop_map(Op::Pass),
        1 => any::<bool>().prop_map(Op::Crash),
        1 => Just(Op::Restart),
    ]
}

/// Device requests that the operations select from.
const SHAPES: [&str; 9] = [
    "1",
    "1, TYPE=GPU",
    "2",
    "2; same-node",
    "2; spread",
    "1, TYPE=GPU; 1, TYPE=CPU",
    "3, TYPE=GPU",
    "1, GLOBAL_MEM_SIZE>=8",
    "9",
];

/// Device `at` of a node: a GPU or a CPU.
pub(super) fn device(at: u32, gpu: bool, memory: u64, shares: u16) -> OfferedDevice {
    let answer = |name, value: u64| InfoAnswer {
        name,
        value: value.to_le_bytes().to_vec().into(),
        status: 0,
    };
    let id = DeviceId {
        platform: 0,
        device: at,
    };
    let answers = vec![
        answer(0x1000, if gpu { 4 } else { 2 }),
        answer(0x101F, memory),
    ];
    let shares = match shares {
        1 => Shares::Whole,
        count => Shares::Equal {
            count,
            memory: None,
        },
    };
    OfferedDevice::new(id, answers, shares)
}

fn quotas() -> Vec<(Subject, Quota)> {
    let quota = |devices, memory, time| Quota {
        devices,
        memory,
        device_time: time,
        class: Some(Class::Normal),
    };
    vec![
        (Subject::User("u1".into()), quota(Some(2), None, None)),
        (
            Subject::User("u2".into()),
            quota(None, Some(12), Some(Span::seconds(900))),
        ),
        (Subject::Group("g".into()), quota(Some(3), None, None)),
    ]
}

pub(super) fn world() -> World {
    let nodes = [
        vec![
            device(0, true, 8, 1),
            device(1, true, 8, 1),
            device(2, false, 4, 1),
        ],
        vec![device(0, true, 8, 2), device(1, false, 4, 1)],
        vec![device(0, true, 4, 1)],
    ];
    world_of(&nodes)
}

/// Devices of three nodes that can take each other's places.
fn equals() -> World {
    let whole = vec![device(0, true, 4, 1), device(1, true, 4, 1)];
    let shared = vec![device(0, true, 4, 2), device(1, true, 4, 1)];
    world_of(&[whole.clone(), whole, shared])
}

fn world_of(nodes: &[Vec<OfferedDevice>]) -> World {
    let mut policy = Policy::default();
    // Nodes end their leases and return before they are forgotten. So absences are stored, and deleted again.
    policy.timing.autonomy = Span::seconds(20);
    policy.timing.margin = Span::seconds(5);
    policy.timing.forget = Span::seconds(100);
    let rows = Rows {
        quotas: quotas(),
        policy: Some(policy),
        ..Rows::default()
    };
    World::new(nodes, rows)
}

impl World {
    fn some_lease(&self, which: u8) -> Option<(LeaseId, UserName)> {
        let at = usize::from(which) % self.users.len().max(1);
        let found = self.users.iter().nth(at);
        found.map(|(lease, user)| (*lease, user.clone()))
    }

    /// One of the leases that were requested last, as a client would use.
    fn recent_lease(&self, which: u8) -> Option<(LeaseId, UserName)> {
        let at = self.users.len().checked_sub(1 + usize::from(which) % 6)?;
        let found = self.users.iter().nth(at);
        found.map(|(lease, user)| (*lease, user.clone()))
    }

    pub(super) fn new_request(&mut self, user: u8, shape: &str) -> NewRequest {
        let number = self.users.len() as u32 + 1;
        let mut id = [0; 16];
        id[..4].copy_from_slice(&number.to_be_bytes());
        let lease = LeaseId(id);
        let name: UserName = format!("u{user}").as_str().into();
        self.users.insert(lease, name.clone());
        NewRequest {
            lease,
            party: Party {
                user: name,
                groups: if user < 2 {
                    vec!["g".into()]
                } else {
                    Vec::new()
                },
            },
            devices: shape.parse().unwrap(),
            class: Class::Normal,
            limit: None,
            wait: true,
            reserve: false,
            replace: false,
        }
    }

    fn run(&mut self, op: &Op) {
        let node = |which: u8| usize::from(which) % self.nodes.len();
        match *op {
            Op::Request {
                user,
                shape,
                limit,
                class,
                wait,
                reserve,
                replace,
            } => {
                let mut new = self.new_request(user, SHAPES[usize::from(shape)]);
                new.limit =
                    [None, Some(20), Some(60), Some(400)][usize::from(limit)].map(Span::seconds);
                new.class = [Class::Low, Class::Normal, Class::High][usize::from(class)];
                (new.wait, new.reserve, new.replace) = (wait, reserve, replace);
                self.check_considered(&new);
                self.event(Event::Request(new));
            }
            Op::ToNode(at) => drop(self.deliver_to_node(node(at))),
            Op::ToManager(at) => drop(self.deliver_to_manager(node(at))),
            Op::All => self.deliver_all(),
            Op::Lose(at) => self.lose(node(at)),
            Op::Join(at) => self.join(node(at)),
            Op::Pass(span) => self.pass(Span(span.into())),
            Op::Stall(span) => self.move_to(self.time.after(Span(span.into()))),
            Op::Crash(store) => {
                self.crash = Some(if store {
                    Crash::BeforeActions
                } else {
                    Crash::BeforeStore
                });
            }
            Op::Restart => self.restart(),
            Op::RenewAll => self.renew_all(),
            Op::WallJump(by) => self.wall.0 = self.wall.0.saturating_add_signed(by.into()),
            _ => drop(self.run_on_node(op) || self.run_as_client(op)),
        }
    }

    fn run_on_node(&mut self, op: &Op) -> bool {
        let (Op::DropToNode(at)
        | Op::DropToManager(at)
        | Op::RepeatToNode(at)
        | Op::RepeatToManager(at)
        | Op::Sessions(at, _)
        | Op::Reboot(at)
        | Op::Replug(at)
        | Op::Stop(at)
        | Op::Drain(at, _)
        | Op::Migrate(at, _)
        | Op::Forget(at, _)) = *op
        else {
            return false;
        };
        let at = usize::from(at) % self.nodes.len();
        let id = self.nodes[at].id;
        match *op {
            Op::DropToNode(_) => self.drop_message(at, false),
            Op::DropToManager(_) => self.drop_message(at, true),
            Op::RepeatToNode(_) => self.repeat_message(at, false),
            Op::RepeatToManager(_) => self.repeat_message(at, true),
            Op::Sessions(which, count) => {
                let serving: Vec<_> = self.nodes[at].serving.keys().copied().collect();
                if !serving.is_empty() {
                    let epoch = serving[usize::from(which / 3) % serving.len()];
                    self.nodes[at].use_grant(epoch, count.into());
                }
            }
            Op::Reboot(_) => {
                self.lose(at);
                self.nodes[at].reboot();
            }
            Op::Replug(_) => {
                let node = &mut self.nodes[at];
                let last = node.devices.len() as u32 - 1;
                let gpu = node.devices.len().is_multiple_of(2);
                node.devices.pop();
                node.devices.push(device(last, gpu, 8, 1));
                node.addresses[0].push('0');
                if node.link.is_some() {
                    let event = node.changed();
                    self.event(event);
                }
            }
            Op::Stop(_) => self.nodes[at].stop(),
            Op::Drain(_, draining) => self.event(Event::Drain { node: id, draining }),
            Op::Migrate(_, within) => {
                let within = [None, Some(20), Some(60)][usize::from(within)].map(Span::seconds);
                self.event(Event::Drain {
                    node: id,
                    draining: true,
                });
                self.event(Event::Migrate { node: id, within });
            }
            Op::Forget(_, force) => self.forget(id, force),
            _ => {}
        }
        true
    }

    fn run_as_client(&mut self, op: &Op) -> bool {
        let event = match *op {
            Op::Confirm(at) => self
                .recent_lease(at)
                .map(|(lease, user)| Event::Confirm { lease, user }),
            Op::Renew(at) => self
                .some_lease(at)
                .map(|(lease, user)| Event::Renew { lease, user }),
            Op::Release(at) => self
                .some_lease(at)
                .map(|(lease, user)| Event::Release { lease, user }),
            Op::Cancel(at) => self
                .recent_lease(at)
                .map(|(lease, user)| Event::Release { lease, user }),
            Op::RequestLost(at) => self
                .recent_lease(at)
                .map(|(lease, _)| Event::RequestLost { lease }),
            Op::Revoke(at) => self
                .some_lease(at)
                .map(|(lease, _)| Event::Revoke { lease }),
            Op::Stranger(at) => return self.stranger(at),
            Op::RequestAgain(at) => self.recent_lease(at).map(|(lease, user)| {
                let mut again = self.new_request(0, "1");
                self.users.remove(&again.lease);
                (again.lease, again.party.user) = (lease, user);
                Event::Request(again)
            }),
            _ => None,
        };
        if let Some(event) = event {
            self.event(event);
        }
        true
    }

    /// Another user names a lease: the manager tells them nothing and changes nothing.
    fn stranger(&mut self, at: u8) -> bool {
        let Some((lease, _)) = self.recent_lease(at) else {
            return true;
        };
        let before = self.manager.leases().count();
        for event in [
            Event::Renew {
                lease,
                user: "mallory".into(),
            },
            Event::Confirm {
                lease,
                user: "mallory".into(),
            },
            Event::Release {
                lease,
                user: "mallory".into(),
            },
        ] {
            let transition = self
                .manager
                .clone()
                .handle(self.manager.now.after(self.manager.skew), event);
            let unknown = Action::Tell {
                lease,
                outcome: Outcome::Unknown,
            };
            assert!(
                transition.actions.contains(&unknown),
                "{:?}",
                transition.actions
            );
        }
        assert_eq!(before, self.manager.leases().count());
        true
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(150))]
    #[test]
    fn no_unit_is_in_two_leases_and_none_is_lost(ops in vec(op(), 1..120)) {
        let mut world = world();
        for op in &ops {
            world.run(op);
        }
        world.check_in_the_end();
    }

    #[test]
    fn leases_whose_nodes_are_lost_again_and_again_keep_the_rules(ops in vec(op_of_losses(), 40..160)) {
        let mut world = equals();
        for op in &ops {
            world.run(op);
        }
        world.check_in_the_end();
    }
}
