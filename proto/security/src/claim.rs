//! Signed leases: credentials that the device manager gives to clients. A daemon verifies them without
//! asking the manager.
//!
//! A valid credential does not prove that the lease is still running. A daemon serves a lease only if it
//! has also acknowledged a grant of the same lease and epoch. This is how a lease can end early.
//! Invariant: a claim is decoded only after its signature was verified.

use std::fmt;
use std::time::{Duration, SystemTime};

use causeway_proto::manager::{Claim, ClaimedNode, SignedLease};
use prost::Message;
use ring::rand::SystemRandom;
use ring::signature::{ED25519, Ed25519KeyPair, KeyPair, UnparsedPublicKey};
use sha2::{Digest, Sha256};

use crate::Secret;

/// Prefix of the signed bytes. Nothing else that the key signs begins with it.
const CONTEXT: &[u8] = b"causeway lease 1\0";
/// Maximum size of a credential. A claim of a thousand units is far smaller.
const MAX_CREDENTIAL: usize = 256 << 10;
/// Tolerated difference between the clocks of manager and daemon.
pub(crate) const CLOCKS_APART: Duration = Duration::from_secs(30);

/// There is no usable key.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum BadKey {
    /// A stored key is damaged.
    #[error("the key is not an Ed25519 key in PKCS #8 format")]
    Format,
    /// No key can be made.
    #[error("the system gives no random numbers")]
    NoRandomness,
}

/// The manager's signing key.
pub struct LeaseKey {
    pub(crate) pair: Ed25519KeyPair,
    pkcs8: Secret,
}

impl LeaseKey {
    /// Generates a key.
    ///
    /// # Errors
    /// [`BadKey::NoRandomness`].
    pub fn generate() -> Result<LeaseKey, BadKey> {
        let document = Ed25519KeyPair::generate_pkcs8(&SystemRandom::new());
        let document = document.map_err(|_| BadKey::NoRandomness)?;
        LeaseKey::from_pkcs8(Secret::new(document.as_ref()))
    }

    /// Restores a stored key.
    ///
    /// # Errors
    /// [`BadKey::Format`] when the bytes are not the result of [`LeaseKey::to_pkcs8`].
    pub fn from_pkcs8(pkcs8: Secret) -> Result<LeaseKey, BadKey> {
        let pair = Ed25519KeyPair::from_pkcs8(pkcs8.reveal());
        let pair = pair.map_err(|_| BadKey::Format)?;
        Ok(LeaseKey { pair, pkcs8 })
    }

    /// The key in PKCS #8 format, to be stored.
    #[must_use]
    pub fn to_pkcs8(&self) -> &Secret {
        &self.pkcs8
    }

    /// The public part of the key, for daemons.
    #[must_use]
    pub fn verifier(&self) -> LeaseVerifier {
        let mut key = [0; 32];
        key.copy_from_slice(self.pair.public_key().as_ref());
        LeaseVerifier { key }
    }

    /// Signs a claim. Returns the credential: an encoded [`SignedLease`]. This function sets the claim's
    /// key id.
    #[must_use]
    pub fn sign(&self, mut claim: Claim) -> Vec<u8> {
        claim.key_id = self.verifier().key_id().to_vec().into();
        let claim = claim.encode_to_vec();
        let signature = self.pair.sign(&signed_bytes(&claim));
        SignedLease {
            claim: claim.into(),
            signature: signature.as_ref().to_vec().into(),
        }
        .encode_to_vec()
    }
}

impl fmt::Debug for LeaseKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "LeaseKey({:?})", self.verifier())
    }
}

/// The manager's public key.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct LeaseVerifier {
    pub(crate) key: [u8; 32],
}

/// Why a credential is rejected.
#[derive(Debug, thiserror::Error, PartialEq, Eq, Clone, Copy)]
pub enum NotALease {
    /// The credential cannot be decoded.
    #[error("the credential is not a signed lease")]
    Malformed,
    /// The credential is not signed by this manager, or was changed afterwards.
    #[error("the lease is not signed by this node's device manager")]
    Signature,
    /// The credential has expired.
    #[error("the lease's credential has expired; renewing the lease gives a new one")]
    Expired,
    /// This machine's clock is not set, so no credential counts as valid.
    #[error("this node's clock is before 1970; set it (timedatectl)")]
    ClockUnset,
}

impl LeaseVerifier {
    /// Makes a verifier from the manager's public key of 32 bytes. `None` for any other length.
    #[must_use]
    pub fn from_public_key(bytes: &[u8]) -> Option<LeaseVerifier> {
        let key = bytes.try_into().ok()?;
        Some(LeaseVerifier { key })
    }

    /// The public key of 32 bytes.
    #[must_use]
    pub fn public_key(&self) -> [u8; 32] {
        self.key
    }

    /// Short id of the key.
    #[must_use]
    pub fn key_id(&self) -> [u8; 8] {
        let digest = Sha256::digest(self.key);
        std::array::from_fn(|i| digest[i])
    }

    /// Verifies a credential's signature and expiry, and returns its claim.
    ///
    /// # Errors
    /// [`NotALease`].
    pub fn verify(&self, credential: &[u8], now: SystemTime) -> Result<VerifiedLease, NotALease> {
        if credential.len() > MAX_CREDENTIAL {
            return Err(NotALease::Malformed);
        }
        let signed = SignedLease::decode(credential).map_err(|_| NotALease::Malformed)?;
        UnparsedPublicKey::new(&ED25519, &self.key)
            .verify(&signed_bytes(&signed.claim), &signed.signature)
            .map_err(|_| NotALease::Signature)?;
        let claim = Claim::decode(&signed.claim[..]).map_err(|_| NotALease::Malformed)?;
        let lease = <[u8; 16]>::try_from(&claim.lease_id[..]).map_err(|_| NotALease::Malformed)?;
        let not_after = Duration::from_millis(claim.not_after_unix_ms).saturating_add(CLOCKS_APART);
        let now = now.duration_since(SystemTime::UNIX_EPOCH);
        if now.map_err(|_| NotALease::ClockUnset)? > not_after {
            return Err(NotALease::Expired);
        }
        Ok(VerifiedLease { lease, claim })
    }
}

impl fmt::Debug for LeaseVerifier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let id = self.key_id();
        id.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

/// A claim with a verified signature.
#[derive(Debug, Clone, PartialEq)]
pub struct VerifiedLease {
    lease: [u8; 16],
    claim: Claim,
}

impl VerifiedLease {
    /// The lease's id.
    #[must_use]
    pub fn lease(&self) -> [u8; 16] {
        self.lease
    }

    /// The user who has the lease.
    #[must_use]
    pub fn user(&self) -> &str {
        &self.claim.user
    }

    /// The lease's part of a node; `None` if it has none there.
    #[must_use]
    pub fn on_node(&self, uuid: &[u8; 16]) -> Option<&ClaimedNode> {
        let mut nodes = self.claim.nodes.iter();
        nodes.find(|node| node.node_uuid[..] == uuid[..])
    }
}

fn signed_bytes(claim: &[u8]) -> Vec<u8> {
    [CONTEXT, claim].concat()
}

#[cfg(test)]
mod tests {
    use super::*;
    use causeway_proto::manager::Unit;
    use proptest::prelude::*;

    const NODE: [u8; 16] = [7; 16];

    fn claim() -> Claim {
        Claim {
            lease_id: vec![9; 16].into(),
            user: "ann".to_owned(),
            nodes: vec![ClaimedNode {
                node_uuid: NODE.to_vec().into(),
                epoch: 3,
                units: vec![Unit {
                    platform: 0,
                    device: 1,
                    share: 0,
                }],
            }],
            not_after_unix_ms: 1_000_000,
            ..Claim::default()
        }
    }

    fn at(ms: u64) -> SystemTime {
        SystemTime::UNIX_EPOCH + Duration::from_millis(ms)
    }

    #[test]
    fn what_was_signed_is_believed_until_it_expires() {
        let key = LeaseKey::generate().unwrap();
        let kept = LeaseKey::from_pkcs8(key.to_pkcs8().clone()).unwrap();
        let verifier = LeaseVerifier::from_public_key(&key.verifier().public_key()).unwrap();
        let credential = kept.sign(claim());
        let verified = verifier.verify(&credential, at(1_000_000)).unwrap();
        assert_eq!((verified.lease(), verified.user()), ([9; 16], "ann"));
        assert_eq!(verified.on_node(&NODE).unwrap().epoch, 3);
        assert_eq!(verified.on_node(&[8; 16]), None);
        let late = at(1_000_001) + CLOCKS_APART;
        assert_eq!(verifier.verify(&credential, late), Err(NotALease::Expired));
        let before_time = SystemTime::UNIX_EPOCH - Duration::from_secs(1);
        assert_eq!(
            verifier.verify(&credential, before_time),
            Err(NotALease::ClockUnset)
        );
    }

    #[test]
    fn another_managers_lease_is_none() {
        let (ours, theirs) = (LeaseKey::generate().unwrap(), LeaseKey::generate().unwrap());
        let credential = theirs.sign(claim());
        assert_eq!(
            ours.verifier().verify(&credential, at(0)),
            Err(NotALease::Signature)
        );
    }

    #[test]
    fn nothing_of_the_key_is_shown() {
        let key = LeaseKey::generate().unwrap();
        let shown = format!("{key:?}");
        assert!(
            shown.starts_with("LeaseKey(") && shown.len() < 36,
            "{shown}"
        );
        assert!(LeaseKey::from_pkcs8(Secret::new(*b"no key")).is_err());
        assert!(LeaseVerifier::from_public_key(&[0; 31]).is_none());
    }

    proptest! {
        #[test]
        fn a_changed_credential_is_refused(at_byte in 0..200_usize, bit in 0..8_u8) {
            let key = LeaseKey::generate().unwrap();
            let mut credential = key.sign(claim());
            let at_byte = at_byte % credential.len();
            credential[at_byte] ^= 1 << bit;
            // A changed credential that still verifies is another encoding of the same message, so it
            // makes the same claim.
            if let Ok(verified) = key.verifier().verify(&credential, at(0)) {
                prop_assert_eq!(verified.user(), "ann");
                prop_assert_eq!(&verified.on_node(&NODE).unwrap().units, &claim().nodes[0].units);
            }
        }

        #[test]
        fn any_bytes_are_no_lease(bytes in proptest::collection::vec(any::<u8>(), 0..256)) {
            let key = LeaseKey::generate().unwrap();
            prop_assert!(key.verifier().verify(&bytes, at(0)).is_err());
        }
    }
}
