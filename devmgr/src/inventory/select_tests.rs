//! Compares choices with an exhaustive search, over small random clusters.

use causeway_proto::control::InfoAnswer;
use causeway_proto::request::{DeviceRequest, Placement};
use proptest::collection::vec;
use proptest::prelude::*;

use super::*;

/// A device as these tests describe it: type bits, memory, number of shares.
type Model = (u64, u64, u16);

fn answers(&(kind, memory, _): &Model, own: u8) -> Vec<InfoAnswer> {
    let answer = |name, value: Vec<u8>| InfoAnswer {
        name,
        value: value.into(),
        status: 0,
    };
    vec![
        answer(0x1000, kind.to_le_bytes().to_vec()),
        answer(0x101F, memory.to_le_bytes().to_vec()),
        answer(0x106A, vec![own; 16]),
    ]
}

fn offered_devices(node: usize, models: &[Model]) -> Vec<OfferedDevice> {
    let device = |(at, model): (u32, &Model)| {
        let shares = match model.2 {
            1 => Shares::Whole,
            count => Shares::Equal {
                count,
                memory: Some(model.1),
            },
        };
        let id = DeviceId {
            platform: 0,
            device: at,
        };
        OfferedDevice::new(id, answers(model, (node * 8 + at as usize) as u8), shares)
    };
    (0..).zip(models).map(device).collect()
}

fn node(at: usize) -> NodeId {
    NodeId([at as u8; 16])
}

fn cluster(nodes: &[Vec<Model>]) -> Cluster {
    let mut cluster = Cluster::default();
    for (at, models) in nodes.iter().enumerate() {
        cluster.replace(node(at), &offered_devices(at, models));
        cluster.set_open(node(at), true);
    }
    cluster
}

/// Whether some choice exists, by trying all combinations.
fn exists(
    wanted: &[usize],
    request: &DeviceRequest,
    left: &mut Vec<(usize, Vec<InfoAnswer>, u64)>,
    chosen: &mut Vec<usize>,
    memory: u64,
) -> bool {
    let Some((kind, rest)) = wanted.split_first() else {
        return true;
    };
    for at in 0..left.len() {
        let (on, of, size) = left[at].clone();
        let placed = match request.placement() {
            Placement::Any => true,
            Placement::SameNode => chosen.iter().all(|other| *other == on),
            Placement::Spread => !chosen.contains(&on),
        };
        if !placed || size > memory || !request.wanted()[*kind].matches(&of) {
            continue;
        }
        let taken = left.remove(at);
        chosen.push(on);
        let found = exists(rest, request, left, chosen, memory - size);
        chosen.pop();
        left.insert(at, taken);
        if found {
            return true;
        }
    }
    false
}

fn models() -> impl Strategy<Value = Vec<Vec<Model>>> {
    let model = (prop_oneof![Just(2_u64), Just(4)], 1_u64..4, 1_u16..3);
    vec(vec(model, 0..4), 1..4)
}

fn request() -> impl Strategy<Value = DeviceRequest> {
    let kind = prop_oneof![
        Just("TYPE=GPU"),
        Just("TYPE=CPU"),
        Just("GLOBAL_MEM_SIZE>=2"),
        Just("GLOBAL_MEM_SIZE<=2"),
        Just("TYPE=ALL"),
        Just("UUID_KHR=01010101010101010101010101010101"),
        Just("UUID_KHR!=00000000000000000000000000000000, TYPE=GPU"),
    ];
    let wanted = (1_u32..3, kind).prop_map(|(count, kind)| format!("{count}, {kind}"));
    let placement = prop_oneof![Just("any"), Just("same-node"), Just("spread")];
    (vec(wanted, 1..4), placement)
        .prop_map(|(wanted, placement)| format!("{}; {placement}", wanted.join(";")))
        .prop_map(|line| line.parse().unwrap())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1000))]
    #[test]
    fn a_choice_is_found_exactly_if_there_is_one(
        models in models(),
        request in request(),
        spread: bool,
        memory in prop_oneof![Just(u64::MAX), 1_u64..8],
        taken in vec((0_usize..3, 0_u32..3), 0..4),
    ) {
        let mut cluster = cluster(&models);
        for (at, device) in &taken {
            let device = DeviceId { platform: 0, device: *device };
            for share in 0..2 {
                cluster.take(node(*at), Unit { device, share });
            }
        }
        let manner = Manner {
            placement: request.placement(),
            assignment: if spread { Assignment::Spread } else { Assignment::Pack },
            memory,
        };
        let mut left = Vec::new();
        for (at, models) in models.iter().enumerate() {
            for (device, model) in models.iter().enumerate() {
                if !taken.contains(&(at, device as u32)) {
                    left.push((at, answers(model, (at * 8 + device) as u8), model.1));
                }
            }
        }
        let counts = request.wanted().iter().enumerate();
        let wanted: Vec<usize> =
            counts.flat_map(|(at, of)| std::iter::repeat_n(at, of.count() as usize)).collect();
        let possible = exists(&wanted, &request, &mut left, &mut Vec::new(), memory);
        let chosen = cluster.choose(Level::Free, &request, manner);
        // With a limit of memory, kinds that are spread over nodes may miss a choice (see `select`).
        let approximate = memory != u64::MAX && request.placement() == Placement::Spread;
        prop_assert!(approximate && possible || chosen.is_ok() == possible, "{chosen:?}");
        if let Ok(chosen) = chosen {
            check(&request, &chosen, &models, memory)?;
            for of in &chosen {
                prop_assert!(cluster.take(of.node, of.unit), "{of:?} was not free");
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]
    #[test]
    fn of_forgotten_nodes_nothing_is_left(
        before in models(),
        after in models(),
        request in request(),
    ) {
        let manner = Manner {
            placement: request.placement(),
            assignment: Assignment::default(),
            memory: u64::MAX,
        };
        let mut changed = cluster(&before);
        let possible = cluster(&before).choose(Level::Known, &request, manner).is_ok();
        prop_assert_eq!(changed.choose(Level::Known, &request, manner).is_ok(), possible);
        for at in 0..before.len() {
            changed.forget(node(at));
        }
        prop_assert_eq!((changed.totals(), changed.kept()), ((0, 0), (0, before.len())));
        prop_assert!(changed.is_exhausted());
        prop_assert!(changed.choose(Level::Known, &request, manner).is_err());
        // Other nodes join, and reuse the places.
        for (at, models) in after.iter().enumerate() {
            changed.replace(node(at), &offered_devices(at, models));
            changed.set_open(node(at), true);
        }
        let mut fresh = cluster(&after);
        prop_assert_eq!(changed.totals(), fresh.totals());
        let places = before.len().max(after.len());
        prop_assert_eq!(changed.kept(), (fresh.kept().0, places));
        for level in [Level::Known, Level::Open, Level::Free] {
            let possible = fresh.choose(level, &request, manner).is_ok();
            prop_assert_eq!(changed.choose(level, &request, manner).is_ok(), possible);
        }
    }
}

/// Checks that the choice meets the request, kind by kind.
fn check(
    request: &DeviceRequest,
    chosen: &[Chosen],
    models: &[Vec<Model>],
    memory: u64,
) -> Result<(), TestCaseError> {
    prop_assert_eq!(chosen.len(), request.count() as usize);
    let mut rest = chosen.iter();
    for wanted in request.wanted() {
        for of in rest.by_ref().take(wanted.count() as usize) {
            let (on, device) = (of.node.0[0] as usize, of.unit.device.device as usize);
            let answers = answers(&models[on][device], (on * 8 + device) as u8);
            prop_assert!(wanted.matches(&answers));
        }
    }
    let devices: std::collections::BTreeSet<_> =
        chosen.iter().map(|of| (of.node, of.unit.device)).collect();
    prop_assert_eq!(devices.len(), chosen.len(), "a device twice");
    let nodes: std::collections::BTreeSet<_> = chosen.iter().map(|of| of.node).collect();
    match request.placement() {
        Placement::Any => {}
        Placement::SameNode => prop_assert_eq!(nodes.len(), 1),
        Placement::Spread => prop_assert_eq!(nodes.len(), chosen.len()),
    }
    prop_assert!(chosen.iter().map(|of| of.memory).sum::<u64>() <= memory);
    Ok(())
}
