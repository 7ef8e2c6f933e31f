//! The device manager's messages: encoding and decoding keep them unchanged, and arbitrary bytes do no
//! harm.

use causeway_proto::control::{Client, Device, InfoAnswer, Inventory, Platform};
use causeway_proto::manager::{
    Claim, ClaimedNode, FromNode, GrantAcknowledged, Granted, Heartbeat, Hello, LeaseMove,
    LeasedUnit, NodeShare, Position, Priority, Progress, RefusalCode, Refused, RequestDevices,
    RunningLease, SharedDevice, SignedLease, Stopping, ToNode, Unit, Withdraw, from_node, progress,
    to_node,
};
use proptest::prelude::*;
use prost::Message;

fn hello() -> Hello {
    let device = Device {
        info: vec![InfoAnswer {
            name: 0x101f,
            value: 8_u64.to_le_bytes().to_vec().into(),
            status: 0,
        }],
        ..Device::default()
    };
    Hello {
        wire_version: 5,
        node_uuid: vec![7; 16].into(),
        name: "alpha".to_owned(),
        addresses: vec!["alpha:7079".to_owned()],
        inventory: Some(Inventory {
            platforms: vec![Platform {
                info: Vec::new(),
                devices: vec![device; 2],
            }],
            ..Inventory::default()
        }),
        shared: vec![SharedDevice {
            platform: 0,
            device: 1,
            shares: 4,
            memory_per_share: 1 << 30,
        }],
        leases: vec![RunningLease {
            lease_id: vec![9; 16].into(),
            epoch: 3,
            sessions: 1,
        }],
        stopping: true,
        insecure: true,
        term: 7,
        cluster_id: vec![5; 16].into(),
        link_key: vec![6; 32].into(),
    }
}

fn units() -> Vec<LeasedUnit> {
    vec![LeasedUnit {
        unit: Some(Unit {
            platform: 0,
            device: 1,
            share: 3,
        }),
        memory: 1 << 30,
    }]
}

#[test]
fn what_nodes_and_the_manager_say() {
    use from_node::Message as From;
    use to_node::Message as To;
    let (lease_id, epoch): (bytes::Bytes, u64) = (vec![9; 16].into(), 3);
    for message in [
        From::Hello(hello()),
        From::Acknowledged(GrantAcknowledged {
            lease_id: lease_id.clone(),
            epoch,
        }),
        From::Heartbeat(Heartbeat {
            bytes: u64::MAX,
            commands: 1,
            sessions: 2,
            number: 4,
            leases: Vec::new(),
            devices: Vec::new(),
            hosts: Vec::new(),
            ..Default::default()
        }),
        From::Stopping(Stopping {}),
    ] {
        let message = FromNode {
            message: Some(message),
        };
        assert_eq!(FromNode::decode(&message.encode_to_vec()[..]), Ok(message));
    }
    for message in [
        To::Grant(causeway_proto::manager::Grant {
            lease_id: lease_id.clone(),
            epoch,
            user: "ann".to_owned(),
            units: units(),
            limit_ms: 0,
            autonomy_ms: 600_000,
            ..Default::default()
        }),
        To::Withdraw(Withdraw {
            lease_id,
            epoch,
            reason: "revoked".to_owned(),
        }),
    ] {
        let message = ToNode {
            message: Some(message),
        };
        assert_eq!(ToNode::decode(&message.encode_to_vec()[..]), Ok(message));
    }
}

#[test]
fn what_clients_and_the_manager_say() {
    let request = RequestDevices {
        wire_version: 5,
        client: Some(Client {
            pid: 1,
            user: "ann".to_owned(),
            ..Client::default()
        }),
        request: "2, TYPE=GPU, GLOBAL_MEM_SIZE>=8GiB; spread".to_owned(),
        priority: Priority::High.into(),
        time_limit_ms: 1,
        wait: true,
        reserve: false,
        lease_id: vec![9; 16].into(),
        follow: true,
        replace: true,
    };
    assert_eq!(
        RequestDevices::decode(&request.encode_to_vec()[..]),
        Ok(request)
    );
    let claim = Claim {
        lease_id: vec![9; 16].into(),
        user: "ann".to_owned(),
        nodes: vec![ClaimedNode {
            node_uuid: vec![7; 16].into(),
            epoch: 3,
            units: units().into_iter().filter_map(|unit| unit.unit).collect(),
        }],
        not_after_unix_ms: 1,
        key_id: vec![1; 8].into(),
    };
    let signed = SignedLease {
        claim: claim.encode_to_vec().into(),
        signature: vec![2; 64].into(),
    };
    for step in [
        progress::Step::Position(Position {
            position: 1,
            waiting: 2,
            lease_id: vec![9; 16].into(),
            lack: String::new(),
            why: "2 requests are ahead".to_owned(),
        }),
        progress::Step::Granted(Granted {
            lease_id: vec![9; 16].into(),
            signed_lease: signed.encode_to_vec().into(),
            nodes: vec![NodeShare {
                node_uuid: vec![7; 16].into(),
                name: "alpha".to_owned(),
                addresses: vec!["alpha:7079".to_owned()],
                units: vec![Unit::default()],
                devices: vec!["GPU".to_owned()],
            }],
            lost: vec![NodeShare {
                node_uuid: vec![8; 16].into(),
                ..NodeShare::default()
            }],
            lifetime_ms: 10_000,
            reserved: true,
            time_left_ms: 0,
            moves: vec![LeaseMove {
                from: Some(NodeShare::default()),
                to: None,
                replaced: true,
            }],
            replaced_within_ms: 1_260_000,
        }),
        progress::Step::Refused(Refused {
            code: RefusalCode::NothingFree.into(),
            reason: "taken".to_owned(),
        }),
    ] {
        let step = Progress { step: Some(step) };
        assert_eq!(Progress::decode(&step.encode_to_vec()[..]), Ok(step));
    }
    assert_eq!(Claim::decode(&signed.claim[..]), Ok(claim));
}

proptest! {
    #[test]
    fn any_bytes_are_a_message_or_an_error(bytes in proptest::collection::vec(any::<u8>(), 0..512)) {
        let _ = FromNode::decode(&bytes[..]);
        let _ = ToNode::decode(&bytes[..]);
        let _ = RequestDevices::decode(&bytes[..]);
        let _ = Progress::decode(&bytes[..]);
        let _ = SignedLease::decode(&bytes[..]);
        let _ = Claim::decode(&bytes[..]);
    }

    #[test]
    fn a_message_that_was_hurt_on_the_way_does_no_harm(at in 0..200_usize, to in any::<u8>(), cut in 0..200_usize) {
        let mut bytes = hello().encode_to_vec();
        let (at, cut) = (at % bytes.len(), cut % bytes.len());
        bytes[at] = to;
        let _ = Hello::decode(&bytes[..]);
        let _ = Hello::decode(&bytes[..cut]);
    }
}
