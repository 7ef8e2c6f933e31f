//! Authentication: claims and the credentials made of them, tokens, lists of tokens.

use std::fs;
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::time::{Duration, SystemTime};

use causeway_proto::manager::{Claim, MeasuringClaim, SignedLease, SignedStatement};
use causeway_security::{LeaseKey, LeaseVerifier, Token, TokenList};
use prost::Message;
use rand::rngs::StdRng;

use super::messages::samples;
use super::{Form, Target, words};

const TOKENS: [&[u8]; 2] = [b"causeway-token-1", b"another"];

pub(super) fn targets(random: &mut StdRng) -> io::Result<Vec<Target>> {
    let key = LeaseKey::generate().map_err(io::Error::other)?;
    let mut claims = samples::<Claim>(random);
    // A decoded message has no valid lease id, so one is set.
    claims.extend(samples::<Claim>(random).iter().filter_map(|claim| {
        let lease_id = vec![5; 16].into();
        let claim = Claim::decode(&claim[..]).ok()?;
        Some(Claim { lease_id, ..claim }.encode_to_vec())
    }));
    Ok(vec![
        credential(&key, &claims),
        statement(&key, random),
        claim(key, claims),
        token(),
        token_list()?,
    ])
}

// Without the key, no changed credential may be accepted.
fn credential(key: &LeaseKey, claims: &[Vec<u8>]) -> Target {
    let verifier = key.verifier();
    let signed = claims
        .iter()
        .filter_map(|claim| Claim::decode(&claim[..]).ok())
        .map(|claim| key.sign(claim));
    let genuine: Vec<Vec<u8>> = signed.collect();
    let known: Vec<SignedLease> = genuine
        .iter()
        .filter_map(|signed| SignedLease::decode(&signed[..]).ok())
        .collect();
    Target::new("credential", Form::Message, genuine, move |bytes| {
        let verified = verifier.verify(bytes, SystemTime::UNIX_EPOCH);
        if verified.is_ok() {
            let signed = SignedLease::decode(bytes).expect("a verified lease");
            assert!(known.contains(&signed), "an unsigned lease was accepted");
        }
        verified.is_ok()
    })
    .weighing(8)
}

// As above, for the statements about measuring.
fn statement(key: &LeaseKey, random: &mut StdRng) -> Target {
    const NODE: [u8; 16] = [5; 16];
    let verifier = key.verifier();
    let claims = samples::<MeasuringClaim>(random);
    let claims = claims.iter().filter_map(|claim| {
        let node_uuid = NODE.to_vec().into();
        let claim = MeasuringClaim::decode(&claim[..]).ok()?;
        Some(MeasuringClaim { node_uuid, ..claim })
    });
    let genuine: Vec<Vec<u8>> = claims.map(|claim| key.sign_measuring(&claim)).collect();
    let known: Vec<SignedStatement> = genuine
        .iter()
        .filter_map(|signed| SignedStatement::decode(&signed[..]).ok())
        .collect();
    Target::new("statement", Form::Message, genuine, move |bytes| {
        let verified = verifier.verify_measuring(bytes, &NODE, SystemTime::UNIX_EPOCH);
        if verified.is_ok() {
            let signed = SignedStatement::decode(bytes).expect("a verified statement");
            assert!(
                known.contains(&signed),
                "an unsigned statement was accepted"
            );
        }
        let place = verifier.verify_place(bytes, SystemTime::UNIX_EPOCH);
        assert!(place.is_err(), "a claim for measuring is no place");
        verified.is_ok()
    })
    .weighing(8)
}

// A manager signs a claim with unusual strings.
fn claim(key: LeaseKey, claims: Vec<Vec<u8>>) -> Target {
    let verifier = key.verifier();
    Target::new("signed claim", Form::Message, claims, move |bytes| {
        let _ = LeaseVerifier::from_public_key(bytes);
        let Ok(claim) = Claim::decode(bytes) else {
            return false;
        };
        let Ok(verified) = verifier.verify(&key.sign(claim.clone()), SystemTime::UNIX_EPOCH) else {
            return false;
        };
        assert_eq!(
            (&verified.lease()[..], verified.user()),
            (&claim.lease_id[..], &claim.user[..])
        );
        for node in &claim.nodes {
            if let Ok(uuid) = <[u8; 16]>::try_from(&node.node_uuid[..]) {
                assert!(verified.on_node(&uuid).is_some());
            }
        }
        true
    })
    .weighing(8)
}

fn token() -> Target {
    let valid = TOKENS.map(<[u8]>::to_vec).to_vec();
    Target::new("token", Form::Bytes, valid, |bytes| {
        let Ok(token) = Token::parse(bytes) else {
            return false;
        };
        let again =
            Token::parse(token.reveal().as_bytes()).expect("a token that was parsed before");
        assert!(token.hash().matches(&again.hash()));
        true
    })
    .weighing(8)
}

fn token_list() -> io::Result<Target> {
    let folder = tempfile::tempdir()?;
    let path = folder.path().join("tokens");
    fs::write(&path, [])?;
    fs::set_permissions(&path, fs::Permissions::from_mode(0o600))?;
    let tokens: Vec<Token> = TOKENS
        .iter()
        .filter_map(|text| Token::parse(text).ok())
        .collect();
    let hashes: Vec<String> = tokens
        .iter()
        .map(|token| token.hash().to_string())
        .collect();
    let text = format!(
        "# who may\n{} alice 2026-12-31\n{} bob 1798761600 # late\n\n{} carol\n",
        hashes[0],
        hashes[1],
        "ab".repeat(32)
    );
    let valid = vec![text.as_bytes().to_vec()];
    let now = SystemTime::UNIX_EPOCH + Duration::from_secs(1);
    Ok(Target::new(
        "list of tokens",
        Form::Text(words(&[&text])),
        valid,
        move |bytes| {
            fs::write(&path, bytes).expect("the folder is ours");
            let list = TokenList::load(&path).map_err(|error| error.to_string());
            let Ok(list) = list else { return false };
            for (token, hash) in tokens.iter().zip(&hashes) {
                let listed = String::from_utf8_lossy(bytes)
                    .to_ascii_lowercase()
                    .contains(hash);
                assert!(
                    listed || list.user(token, now).is_err(),
                    "nobody has listed it"
                );
            }
            folder.path().exists()
        },
    )
    // A file of secrets is read into memory of fixed size, so that it leaves no copies when it grows.
    .holding(2 << 20)
    .weighing(4))
}
