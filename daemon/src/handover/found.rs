//! The messages between the supervisor and the process that looks for a device manager.
//!
//! The supervisor sends one question and closes its half of the socket. The process answers once and ends. Both ends are the
//! same binary, so the format has no version. Invariant: an answer has at most [`MOST_FOUND`] bytes.

use causeway_discovery::CaDigest;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

/// Longest message, in bytes.
pub const MOST_FOUND: u64 = 64 << 10;

/// Which manager is looked for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Wanted {
    /// The announced name.
    pub name: String,
    /// The CAs whose claims are kept first.
    pub cas: Vec<CaDigest>,
}

/// What was announced under the name. Nothing of it is proved.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Announced {
    /// The claims to the name.
    pub claims: Vec<AnnouncedManager>,
    /// Why nothing could be heard.
    pub fault: Option<String>,
}

/// One claim.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AnnouncedManager {
    /// The cluster's id.
    pub id: [u8; 16],
    /// The addresses to dial, as `HOST:PORT`.
    pub addresses: Vec<String>,
}

/// Encodes a message.
///
/// # Errors
/// The message is not representable.
pub fn encode<T: Serialize>(message: &T) -> Result<Vec<u8>, toml::ser::Error> {
    toml::to_string(message).map(String::into_bytes)
}

/// Decodes a message.
///
/// # Errors
/// The bytes are no such message.
pub fn decode<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, toml::de::Error> {
    toml::from_slice(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_arrive_as_they_were() {
        let wanted = Wanted {
            name: "mgr1".to_owned(),
            cas: vec![[7; 8]],
        };
        assert_eq!(decode::<Wanted>(&encode(&wanted).unwrap()).unwrap(), wanted);
        let announced = Announced {
            claims: vec![AnnouncedManager {
                id: [9; 16],
                addresses: vec!["[fe80::1%eth0]:7078".to_owned()],
            }],
            fault: None,
        };
        let bytes = encode(&announced).unwrap();
        assert_eq!(decode::<Announced>(&bytes).unwrap(), announced);
        assert!(decode::<Announced>(b"claims = 3").is_err());
    }
}
