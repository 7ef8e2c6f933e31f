//! Simulated nodes, in great number, over the real wire. Their devices are busy by turns, and their leases have sessions.
//!
//! Unlike [`FakeNode`](super::super::node::FakeNode) they check nothing, and share a few connections.

use std::net::SocketAddr;
use std::time::Duration;

use causeway_proto::control::{CardReading, Device, DeviceUse, InfoAnswer, Inventory, Platform};
use causeway_proto::manager::nodes_client::NodesClient;
use causeway_proto::manager::{
    FromNode, Grant, GrantAcknowledged, Heartbeat, Hello, LeaseSessions, SharedDevice, from_node,
    to_node,
};
use causeway_proto::request::property;
use causeway_proto::version::WireVersion;
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio_stream::wrappers::ReceiverStream;

use super::super::process::{Who, channel};

/// Nodes of one connection, of which each needs a stream.
const TOGETHER: u32 = 100;
/// Interval of the heartbeats.
const EVERY: Duration = Duration::from_secs(2);
/// Devices of each node.
pub(super) const DEVICES: u32 = 8;
/// Shares of each device.
pub(super) const SHARES: u32 = 2;

/// Starts nodes, which live as long as the value.
pub(super) async fn nodes(manager: SocketAddr, count: u32) -> JoinSet<()> {
    let mut nodes = JoinSet::new();
    for first in (0..count).step_by(TOGETHER as usize) {
        let client = NodesClient::new(channel(manager).await);
        for number in first..count.min(first + TOGETHER) {
            let mut client = client.clone();
            nodes.spawn(async move {
                let (send, words) = mpsc::channel(64);
                say(&send, from_node::Message::Hello(hello(number))).await;
                let who = Who::Name("nodes".to_owned());
                let joined = client.join(who.request(ReceiverStream::new(words))).await;
                let mut words = joined.unwrap().into_inner();
                let mut beats = tokio::time::interval(EVERY);
                let (mut beat, mut busy) = (0, [0.0; DEVICES as usize]);
                loop {
                    tokio::select! {
                        word = words.message() => match word.map(|word| word.and_then(|of| of.message)) {
                            Ok(Some(to_node::Message::Grant(grant))) => take(&send, &grant).await,
                            Ok(Some(_)) => {}
                            Ok(None) | Err(_) => return,
                        },
                        _ = beats.tick() => {
                            beat += 1;
                            let word = heartbeat(number, beat, &mut busy);
                            say(&send, from_node::Message::Heartbeat(word)).await;
                        }
                    }
                }
            });
        }
    }
    nodes
}

async fn say(send: &mpsc::Sender<FromNode>, message: from_node::Message) {
    let message = Some(message);
    let _ = send.send(FromNode { message }).await;
}

async fn take(send: &mpsc::Sender<FromNode>, grant: &Grant) {
    let lease_id = grant.lease_id.clone();
    let epoch = grant.epoch;
    let acknowledged = GrantAcknowledged { lease_id, epoch };
    say(send, from_node::Message::Acknowledged(acknowledged)).await;
    let sessions = LeaseSessions {
        lease_id: grant.lease_id.clone(),
        epoch,
        sessions: 1,
    };
    say(send, from_node::Message::Sessions(sessions)).await;
}

fn hello(number: u32) -> Hello {
    let answer = |name: u32, value: &[u8]| InfoAnswer {
        name,
        value: value.to_vec().into(),
        status: 0,
    };
    let kinds: [&[u8]; 2] = [b"NVIDIA H100 80GB HBM3\0", b"AMD Instinct MI300X\0"];
    let device = Device {
        info: vec![
            answer(property::TYPE, &(1_u64 << 2).to_le_bytes()),
            answer(property::GLOBAL_MEM_SIZE, &(80_u64 << 30).to_le_bytes()),
            answer(property::NAME, kinds[number as usize % 2]),
        ],
        ..Device::default()
    };
    let shared = (0..DEVICES).map(|device| SharedDevice {
        device,
        shares: SHARES,
        ..SharedDevice::default()
    });
    let mut node_uuid = [0xC0; 16];
    node_uuid[..4].copy_from_slice(&number.wrapping_mul(0x9E37_79B1).to_be_bytes());
    Hello {
        wire_version: WireVersion::CURRENT.number().into(),
        node_uuid: node_uuid.to_vec().into(),
        name: format!("gpu{number:04}"),
        addresses: vec![format!("gpu{number:04}.example:7079")],
        shared: shared.collect(),
        inventory: Some(Inventory {
            platforms: vec![Platform {
                devices: vec![device; DEVICES as usize],
                ..Platform::default()
            }],
            ..Inventory::default()
        }),
        ..Hello::default()
    }
}

/// What the devices have done until now: busy in waves whose length and height differ.
fn heartbeat(number: u32, beat: u64, busy: &mut [f64; DEVICES as usize]) -> Heartbeat {
    let seconds = beat * EVERY.as_secs();
    let devices = (0..DEVICES).zip(busy).map(|(device, busy)| {
        let phase = f64::from(number * DEVICES + device);
        let wave = (seconds as f64 / (90.0 + phase % 70.0) + phase).sin();
        let level = (0.5 + 0.5 * wave) * (0.3 + 0.7 * (phase * 0.37).sin().abs());
        *busy += level * EVERY.as_secs_f64();
        DeviceUse {
            device,
            busy_ns: (*busy * 1e9) as u64,
            card: Some(CardReading {
                utilization: Some((level * 100.0) as u32),
                memory_used: Some(((level * 70.0) as u64 + 4) << 30),
                memory_total: Some(80 << 30),
                temperature: Some(35 + (level * 40.0) as u32),
            }),
            ..DeviceUse::default()
        }
    });
    Heartbeat {
        number: beat,
        devices: devices.collect(),
        bytes: seconds * u64::from(number % 17) * 50_000_000,
        commands: seconds * 1000,
        sessions: DEVICES,
        ..Heartbeat::default()
    }
}
