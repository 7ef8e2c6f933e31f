//! Signed statements of the device manager for measured links: who may measure on a node, and where a node is reached. And
//! with which key a node proves that it is the other end.
//!
//! The manager's have the same key as leases. Invariants: each kind of statement has a text of its own before the signed bytes, so
//! none counts as another one, nor as a lease. A statement is decoded only after its signature was verified.

use std::fmt;
use std::time::{Duration, SystemTime};

use causeway_proto::manager::{MeasuringClaim, NodePlace, SignedStatement};
use prost::Message;
use ring::rand::SystemRandom;
use ring::signature::{ED25519, Ed25519KeyPair, KeyPair, UnparsedPublicKey};

use crate::claim::{BadKey, CLOCKS_APART, LeaseKey, LeaseVerifier};

/// Texts before the signed bytes. Nothing else that the key signs begins with them.
const MEASURING: &[u8] = b"causeway measuring 1\0";
const PLACE: &[u8] = b"causeway place 1\0";
/// Text before the bytes that a node signs.
const END: &[u8] = b"causeway end 1\0";
/// Maximum size of a statement. A node's addresses are far shorter.
const MAX_STATEMENT: usize = 16 << 10;

/// Why a statement is rejected.
#[derive(Debug, thiserror::Error, PartialEq, Eq, Clone, Copy)]
pub enum NotStated {
    /// The statement cannot be decoded.
    #[error("the credential is not a statement of a device manager")]
    Malformed,
    /// The statement is not signed by this manager, is about something else, or was changed afterwards.
    #[error("the statement is not signed by this node's device manager")]
    Signature,
    /// The statement has expired.
    #[error("the statement has expired; the device manager gives a new one")]
    Expired,
    /// The claim is for another node.
    #[error("the statement is for another node")]
    OtherNode,
}

impl LeaseKey {
    /// Signs a claim for measuring. Returns an encoded [`SignedStatement`].
    #[must_use]
    pub fn sign_measuring(&self, claim: &MeasuringClaim) -> Vec<u8> {
        self.state(MEASURING, claim.encode_to_vec())
    }

    /// Signs where a node is reached. Returns an encoded [`SignedStatement`].
    #[must_use]
    pub fn sign_place(&self, place: &NodePlace) -> Vec<u8> {
        self.state(PLACE, place.encode_to_vec())
    }

    fn state(&self, context: &[u8], statement: Vec<u8>) -> Vec<u8> {
        let signature = self.pair.sign(&[context, &statement].concat());
        SignedStatement {
            statement: statement.into(),
            signature: signature.as_ref().to_vec().into(),
        }
        .encode_to_vec()
    }
}

impl LeaseVerifier {
    /// Verifies a claim for measuring on the node of this uuid.
    ///
    /// # Errors
    /// [`NotStated`].
    pub fn verify_measuring(
        &self,
        credential: &[u8],
        node: &[u8; 16],
        now: SystemTime,
    ) -> Result<MeasuringClaim, NotStated> {
        let claim: MeasuringClaim = self.stated(MEASURING, credential)?;
        if claim.node_uuid[..] != node[..] {
            return Err(NotStated::OtherNode);
        }
        in_time(claim.not_after_unix_ms, now)?;
        Ok(claim)
    }

    /// Verifies where a node is reached. The uuid of the result has 16 bytes.
    ///
    /// # Errors
    /// [`NotStated`].
    pub fn verify_place(&self, statement: &[u8], now: SystemTime) -> Result<NodePlace, NotStated> {
        let place: NodePlace = self.stated(PLACE, statement)?;
        if place.node_uuid.len() != 16 {
            return Err(NotStated::Malformed);
        }
        in_time(place.not_after_unix_ms, now)?;
        Ok(place)
    }

    fn stated<T: Message + Default>(&self, context: &[u8], bytes: &[u8]) -> Result<T, NotStated> {
        if bytes.len() > MAX_STATEMENT {
            return Err(NotStated::Malformed);
        }
        let signed = SignedStatement::decode(bytes).map_err(|_| NotStated::Malformed)?;
        UnparsedPublicKey::new(&ED25519, &self.key)
            .verify(&[context, &signed.statement].concat(), &signed.signature)
            .map_err(|_| NotStated::Signature)?;
        T::decode(&signed.statement[..]).map_err(|_| NotStated::Malformed)
    }
}

/// A node's key, with which it proves that it is the other end of a measurement. It ends with the process.
pub struct EndKey(Ed25519KeyPair);

impl EndKey {
    /// Generates a key.
    ///
    /// # Errors
    /// [`BadKey::NoRandomness`].
    pub fn generate() -> Result<EndKey, BadKey> {
        let document = Ed25519KeyPair::generate_pkcs8(&SystemRandom::new());
        let document = document.map_err(|_| BadKey::NoRandomness)?;
        let pair = Ed25519KeyPair::from_pkcs8(document.as_ref()).map_err(|_| BadKey::Format)?;
        Ok(EndKey(pair))
    }

    /// The public key.
    #[must_use]
    pub fn public_key(&self) -> &[u8] {
        self.0.public_key().as_ref()
    }

    /// Proves that the measurement of this id is the node's, with this certificate; empty: without TLS.
    #[must_use]
    pub fn prove(&self, id: &[u8; 16], certificate_sha256: &[u8]) -> Vec<u8> {
        let signed = [END, id, certificate_sha256].concat();
        self.0.sign(&signed).as_ref().to_vec()
    }
}

impl fmt::Debug for EndKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("EndKey(..)")
    }
}

/// Whether the node of this public key has proved that a measurement is its own.
#[must_use]
pub fn is_end_of(
    public_key: &[u8],
    id: &[u8; 16],
    certificate_sha256: &[u8],
    proof: &[u8],
) -> bool {
    let signed = [END, id, certificate_sha256].concat();
    let key = UnparsedPublicKey::new(&ED25519, public_key);
    key.verify(&signed, proof).is_ok()
}

fn in_time(not_after_unix_ms: u64, now: SystemTime) -> Result<(), NotStated> {
    let not_after = Duration::from_millis(not_after_unix_ms).saturating_add(CLOCKS_APART);
    // A clock before 1970 is not set, so no statement counts as valid.
    match now.duration_since(SystemTime::UNIX_EPOCH) {
        Ok(now) if now <= not_after => Ok(()),
        _ => Err(NotStated::Expired),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::NotALease;
    use causeway_proto::manager::{Claim, ClaimedNode};
    use proptest::prelude::*;

    const NODE: [u8; 16] = [7; 16];

    fn claim() -> MeasuringClaim {
        MeasuringClaim {
            node_uuid: NODE.to_vec().into(),
            user: "ann".to_owned(),
            admin: false,
            not_after_unix_ms: 1_000_000,
        }
    }

    fn place() -> NodePlace {
        NodePlace {
            node_uuid: NODE.to_vec().into(),
            name: "gpu1".to_owned(),
            addresses: vec!["10.0.0.1:7079".to_owned()],
            not_after_unix_ms: 1_000_000,
            link_key: vec![1; 32].into(),
            peer_addresses: vec!["10.1.0.1:7079".to_owned()],
            link_speeds: Vec::new(),
        }
    }

    fn lease() -> Claim {
        Claim {
            lease_id: vec![9; 16].into(),
            user: "ann".to_owned(),
            nodes: vec![ClaimedNode {
                node_uuid: NODE.to_vec().into(),
                epoch: 3,
                units: Vec::new(),
            }],
            not_after_unix_ms: 1_000_000,
            ..Claim::default()
        }
    }

    fn at(ms: u64) -> SystemTime {
        SystemTime::UNIX_EPOCH + Duration::from_millis(ms)
    }

    #[test]
    fn a_claim_counts_on_its_node_until_it_expires() {
        let key = LeaseKey::generate().unwrap();
        let (signed, verifier) = (key.sign_measuring(&claim()), key.verifier());
        let verify = |node, now| verifier.verify_measuring(&signed, node, now);
        assert_eq!(verify(&NODE, at(1_000_000)), Ok(claim()));
        assert_eq!(verify(&[8; 16], at(0)), Err(NotStated::OtherNode));
        let late = at(1_000_001) + CLOCKS_APART;
        assert_eq!(verify(&NODE, late), Err(NotStated::Expired));
        let signed = key.sign_place(&place());
        assert_eq!(verifier.verify_place(&signed, at(1_000_000)), Ok(place()));
        assert_eq!(
            verifier.verify_place(&signed, late),
            Err(NotStated::Expired)
        );
        let before_time = SystemTime::UNIX_EPOCH - Duration::from_secs(1);
        assert_eq!(
            verifier.verify_place(&signed, before_time),
            Err(NotStated::Expired)
        );
    }

    #[test]
    fn no_statement_counts_as_another_one_nor_as_a_lease() {
        let key = LeaseKey::generate().unwrap();
        let verifier = key.verifier();
        let (measuring, place, lease) = (
            key.sign_measuring(&claim()),
            key.sign_place(&place()),
            key.sign(lease()),
        );
        for wrong in [&place, &lease] {
            let verified = verifier.verify_measuring(wrong, &NODE, at(0));
            assert_eq!(verified, Err(NotStated::Signature));
        }
        for wrong in [&measuring, &lease] {
            assert_eq!(
                verifier.verify_place(wrong, at(0)),
                Err(NotStated::Signature)
            );
        }
        for wrong in [&measuring, &place] {
            assert_eq!(verifier.verify(wrong, at(0)), Err(NotALease::Signature));
        }
        let another = LeaseKey::generate().unwrap().verifier();
        let verified = another.verify_measuring(&measuring, &NODE, at(0));
        assert_eq!(verified, Err(NotStated::Signature));
    }

    #[test]
    fn only_the_nodes_key_proves_an_end_and_no_other_end() {
        let (node, other) = (EndKey::generate().unwrap(), EndKey::generate().unwrap());
        let (id, digest) = ([3; 16], [4; 32]);
        let proof = node.prove(&id, &digest);
        assert!(is_end_of(node.public_key(), &id, &digest, &proof));
        assert!(!is_end_of(other.public_key(), &id, &digest, &proof));
        assert!(!is_end_of(node.public_key(), &[5; 16], &digest, &proof));
        assert!(!is_end_of(node.public_key(), &id, &[], &proof));
        assert!(!is_end_of(&[], &id, &digest, &proof));
        assert!(!is_end_of(node.public_key(), &id, &digest, &[]));
        assert_eq!(format!("{node:?}"), "EndKey(..)");
    }

    proptest! {
        #[test]
        fn a_changed_claim_is_refused(at_byte in 0..200_usize, bit in 0..8_u8) {
            let key = LeaseKey::generate().unwrap();
            let mut signed = key.sign_measuring(&claim());
            let at_byte = at_byte % signed.len();
            signed[at_byte] ^= 1 << bit;
            // One that still verifies is another encoding of the same message.
            if let Ok(verified) = key.verifier().verify_measuring(&signed, &NODE, at(0)) {
                prop_assert_eq!(verified, claim());
            }
        }

        #[test]
        fn any_bytes_state_nothing(bytes in proptest::collection::vec(any::<u8>(), 0..256)) {
            let verifier = LeaseKey::generate().unwrap().verifier();
            prop_assert!(verifier.verify_measuring(&bytes, &NODE, at(0)).is_err());
            prop_assert!(verifier.verify_place(&bytes, at(0)).is_err());
        }
    }
}
