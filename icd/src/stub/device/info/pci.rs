//! Changes addresses on PCI buses, so that they cannot be confused with the client's.
//!
//! A program may look up a device's address on its own host, for example to read sensors. Or it may take
//! two devices with one address for the same device. So a node's buses are reported in PCI domains that no
//! host has. Linux uses 16-bit numbers, and continues from 0x10000. NVIDIA's older query has no domain, so
//! the number is put above the 8 bits of the bus. AMD's query has no room for it and is not answered
//! (`overrides.rs`).
//!
//! Invariant: devices of different nodes, or of different domains of a node, have different answers to each
//! of these queries (unless two hashes collide). Bus, device and function are the node's own.
#![forbid(unsafe_code)]

use bytes::Bytes;

use crate::stub::device::Answers;

const CL_DEVICE_PCI_BUS_ID_NV: u32 = 0x4008;
const CL_DEVICE_PCI_DOMAIN_ID_NV: u32 = 0x400A;
const CL_DEVICE_PCI_BUS_INFO_KHR: u32 = 0x410F;

/// Rewrites the address of a device in `answers`. `node` is the node's UUID.
pub(in crate::stub) fn present(answers: &mut Answers, node: &[u8]) {
    let first = |name| answers.get(&name).and_then(|a| word(a.as_ref().ok()?));
    let (bus, domain) = (
        first(CL_DEVICE_PCI_BUS_ID_NV),
        first(CL_DEVICE_PCI_DOMAIN_ID_NV),
    );
    if let Some(domain) = first(CL_DEVICE_PCI_BUS_INFO_KHR) {
        replace_first(answers, CL_DEVICE_PCI_BUS_INFO_KHR, domain_of(node, domain));
    }
    let shown = domain_of(node, domain.unwrap_or(0));
    if domain.is_some() {
        replace_first(answers, CL_DEVICE_PCI_DOMAIN_ID_NV, shown);
    }
    if let Some(bus) = bus {
        // Keep 22 bits and set the next one, so that the number is larger than a host's domains.
        let above = (shown & 0x3F_FFFF | 0x40_0000) << 8;
        replace_first(answers, CL_DEVICE_PCI_BUS_ID_NV, above | bus & 0xFF);
    }
}

/// Returns the domain that replaces a node's domain. It has 31 bits, so that it is positive as an `int`.
fn domain_of(node: &[u8], domain: u32) -> u32 {
    // FNV-1a, because it gives the same result in every process.
    let bytes = node.iter().copied().chain(domain.to_le_bytes());
    let hash = bytes.fold(0xCBF2_9CE4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01B3)
    });
    (hash ^ hash >> 32) as u32 & 0x3FFF_FFFF | 0x4000_0000
}

fn word(answer: &Bytes) -> Option<u32> {
    answer.first_chunk().map(|bytes| u32::from_le_bytes(*bytes))
}

fn replace_first(answers: &mut Answers, name: u32, word: u32) {
    if let Some(Ok(answer)) = answers.get_mut(&name) {
        let rest = answer.slice(size_of::<u32>()..);
        *answer = [&word.to_le_bytes(), &*rest].concat().into();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(node: u8, name: u32, words: &[u32]) -> Vec<u32> {
        let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
        let mut answers: Answers = [(name, Ok(bytes.into()))].into_iter().collect();
        present(&mut answers, &[node; 16]);
        let told = answers[&name].as_ref().unwrap().chunks_exact(4);
        told.map(|word| u32::from_le_bytes(word.try_into().unwrap()))
            .collect()
    }

    #[test]
    fn each_node_has_domains_of_its_own_that_no_host_has() {
        let one = shown(1, CL_DEVICE_PCI_BUS_INFO_KHR, &[0, 0x18, 3, 1]);
        assert_eq!(one[1..], [0x18, 3, 1]);
        assert!(one[0] > 0x3FFF_FFFF && one[0] < 1 << 31);
        assert_eq!(one, shown(1, CL_DEVICE_PCI_BUS_INFO_KHR, &[0, 0x18, 3, 1]));
        for (node, domain) in [(2, 0), (1, 1)] {
            let other = shown(node, CL_DEVICE_PCI_BUS_INFO_KHR, &[domain, 0x18, 3, 1]);
            assert_ne!(other[0], one[0]);
        }
    }

    #[test]
    fn a_bus_without_a_domain_carries_the_node() {
        let (one, other) = (
            shown(1, CL_DEVICE_PCI_BUS_ID_NV, &[0x18]),
            shown(2, CL_DEVICE_PCI_BUS_ID_NV, &[0x18]),
        );
        assert_ne!(one, other);
        assert_eq!((one[0] & 0xFF, other[0] & 0xFF), (0x18, 0x18));
        assert!(one[0] >> 8 >= 0x40_0000 && other[0] >> 8 >= 0x40_0000);
        assert_eq!(
            shown(1, CL_DEVICE_PCI_DOMAIN_ID_NV, &[0]),
            [domain_of(&[1; 16], 0)]
        );
    }

    #[test]
    fn what_is_not_told_stays_untold() {
        let mut answers: Answers = [
            (CL_DEVICE_PCI_BUS_INFO_KHR, Err(-30)),
            (CL_DEVICE_PCI_BUS_ID_NV, Ok(Bytes::from_static(&[1]))),
        ]
        .into_iter()
        .collect();
        let before = answers.clone();
        present(&mut answers, &[1; 16]);
        assert_eq!(answers, before);
    }
}
