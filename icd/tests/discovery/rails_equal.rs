//! Large transfers to a node with two networks that were measured to be equally fast: they share the bytes.

use crate::rails_by_speed::{SIZE, TwoNetworks};

#[test]
fn equal_networks_share_the_bytes() {
    own_process!(waits);
    let Some(networks) = TwoNetworks::new("100mbit") else {
        return;
    };
    networks.measure();
    networks.configure();
    let [one, other] = networks.transfer();
    assert!(one + other > 2 * SIZE as u64);
    let part = 100 * one / (one + other);
    assert!(
        (40..=60).contains(&part),
        "{part} of 100 crossed the first network"
    );
}
