//! A header that names the lease of a call to a node: the lease's id, without proof.
//!
//! A node reads a long message only if its header names a lease that the node serves. The id alone grants
//! nothing. The credential in the message does, once its signature is verified. Invariant: reading
//! returns what was written.

use prost::Message;

use crate::manager::{Claim, SignedLease};

/// Name of the header. Its value has 32 hexadecimal digits.
pub const HEADER: &str = "causeway-lease";

/// The header's value for a caller with this credential. `None` if the credential is not a lease.
#[must_use]
pub fn told(credential: &[u8]) -> Option<String> {
    let signed = SignedLease::decode(credential).ok()?;
    let claim = Claim::decode(&signed.claim[..]).ok()?;
    let id = <[u8; 16]>::try_from(&claim.lease_id[..]).ok()?;
    Some(format!("{:032x}", u128::from_be_bytes(id)))
}

/// Decodes the id in a header's value.
#[must_use]
pub fn heard(value: &[u8]) -> Option<[u8; 16]> {
    let text = std::str::from_utf8(value).ok()?;
    let is_id = text.len() == 32 && text.bytes().all(|byte| byte.is_ascii_hexdigit());
    let id = is_id.then(|| u128::from_str_radix(text, 16).ok())??;
    Some(id.to_be_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn credential(lease_id: Vec<u8>) -> Vec<u8> {
        let claim = Claim {
            lease_id: lease_id.into(),
            user: "ann".to_owned(),
            ..Claim::default()
        };
        let signed = SignedLease {
            claim: claim.encode_to_vec().into(),
            ..SignedLease::default()
        };
        signed.encode_to_vec()
    }

    #[test]
    fn what_a_credential_names_is_heard() {
        for id in [[0; 16], [0xab; 16], [0xff; 16]] {
            let told = told(&credential(id.to_vec())).unwrap();
            assert_eq!(heard(told.as_bytes()), Some(id), "{told}");
        }
    }

    #[test]
    fn what_is_no_lease_names_none() {
        for credential in [
            Vec::new(),
            b"a lease".to_vec(),
            credential(Vec::new()),
            credential(vec![1; 15]),
        ] {
            assert_eq!(told(&credential), None);
        }
        let signs = format!("+{}", "0".repeat(31));
        let long = "0".repeat(33);
        for value in [
            &b""[..],
            b"abc",
            signs.as_bytes(),
            long.as_bytes(),
            &[0xff; 32],
        ] {
            assert_eq!(heard(value), None);
        }
    }
}
