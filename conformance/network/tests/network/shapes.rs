//! Tests of delay, rate, loss and reordering.

use std::time::{Duration, Instant};

use causeway_network::{Network, Rate, Shape};

use crate::support::{PATIENCE, SILENCE, build, dial, echo, ping, send, sink, socket};

#[test]
fn a_round_trip_takes_twice_the_delay() {
    let delay = Duration::from_millis(15);
    let shaped = Network::builder()
        .hosts(3)
        .link(0, 1, Shape::delayed(delay));
    let Some(network) = build(shaped) else { return };
    let here = socket(network.host(0), PATIENCE);
    let (far, near) = (echo(network.host(1)), echo(network.host(2)));
    let fastest = |to| (0..5).map(|_| ping(&here, to).unwrap()).min().unwrap();
    assert!(fastest(far) >= 2 * delay);
    assert!(
        fastest(near) < 2 * delay,
        "a link beside a shaped one is not shaped"
    );

    let short = Duration::from_micros(100);
    network.one_way(0, 1).shape(Shape::delayed(short)).unwrap();
    network
        .one_way(1, 0)
        .shape(Shape::delayed(5 * short))
        .unwrap();
    let quick = fastest(far);
    assert!(quick >= 6 * short && quick < 2 * delay, "{quick:?}");
}

#[test]
fn bytes_arrive_in_order_through_loss_and_reordering() {
    let shape = Shape {
        loss: 0.01,
        reorder: 0.02,
        late: Duration::from_millis(2),
        ..Shape::delayed(Duration::from_millis(1))
    };
    let Some(network) = build(Network::builder().link(0, 1, shape)) else {
        return;
    };
    let port = sink(network.host(1), 0);
    let to = network.host(1).address();
    send(dial(network.host(0), to, port, PATIENCE).unwrap(), 4 << 20);
    let fate = network.one_way(0, 1).fate();
    assert!(fate.lost > 0 && fate.late > 0, "{fate:?}");
    assert!(fate.passed > (4 << 20) / 1500, "{fate:?}");
}

#[test]
fn a_link_that_loses_everything_carries_nothing() {
    let Some(network) = build(Network::builder()) else {
        return;
    };
    let here = socket(network.host(0), PATIENCE);
    let there = echo(network.host(1));
    assert!(ping(&here, there).is_some());
    let lossy = Shape {
        loss: 1.0,
        ..Shape::default()
    };
    network.one_way(1, 0).shape(lossy).unwrap();
    here.set_read_timeout(Some(SILENCE)).unwrap();
    assert!(ping(&here, there).is_none());
    assert_eq!(network.one_way(1, 0).fate().lost, 1);
    network.one_way(1, 0).shape(Shape::default()).unwrap();
    here.set_read_timeout(Some(PATIENCE)).unwrap();
    assert!(ping(&here, there).is_some());
}

#[test]
fn rates_hold_for_cables_and_for_links() {
    let rate = Rate::mbit(100);
    let cables = Network::builder().rate(rate);
    let links = Network::builder().link(
        0,
        1,
        Shape {
            rate: Some(rate),
            ..Shape::default()
        },
    );
    for builder in [cables, links] {
        let Some(network) = build(builder) else {
            return;
        };
        let port = sink(network.host(1), 0);
        let stream = dial(network.host(0), network.host(1).address(), port, PATIENCE).unwrap();
        let bytes = 2 << 20;
        let begin = Instant::now();
        send(stream, bytes);
        // The amount of one burst passes at once.
        let least = rate.time_for(bytes as u64) - rate.time_for(64 << 10);
        assert!(begin.elapsed() >= least, "{:?}", begin.elapsed());
    }
}
