//! Both ends of a connection in one process: which peers are accepted and rejected, and that bytes arrive
//! unchanged.

use std::fs;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use causeway_security::{
    Authority, ClientCertificates, ClientTls, Handshake, Issued, NotSecured, Opener, Records,
    ServerTls, SessionCertificate, TlsStream, complete, pinned, user_of,
};
use proptest::prelude::*;

const LIMIT: Duration = Duration::from_secs(10);
const DAY: Duration = Duration::from_secs(86_400);

fn pair() -> (TcpStream, TcpStream) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let near = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    (near, listener.accept().unwrap().0)
}

type Outcome = Result<(TcpStream, Arc<Records>), NotSecured>;

// Runs the handshake and returns its result at either end.
fn shake(client: Handshake, server: Handshake) -> (Outcome, Outcome) {
    let (near, far) = pair();
    let serving = std::thread::spawn(move || {
        let records = complete(server, &far, Instant::now() + LIMIT);
        records.map(|records| (far, records))
    });
    let records = complete(client, &near, Instant::now() + LIMIT);
    let client = records.map(|records| (near, records));
    (client, serving.join().unwrap())
}

fn lanes() -> (TlsStream, TlsStream) {
    let certificate = SessionCertificate::generate().unwrap();
    let server = certificate.server().unwrap().handshake().unwrap();
    let (near, far) = shake(pinned(certificate.fingerprint()).unwrap(), server);
    let lane = |(socket, records)| TlsStream::new(socket, records).unwrap();
    (lane(near.unwrap()), lane(far.unwrap()))
}

#[test]
fn much_goes_both_ways_at_once() {
    let (near, far) = lanes();
    let much: Vec<u8> = (0..5_000_000u32).map(|i| (i / 7) as u8).collect();
    std::thread::scope(|scope| {
        for (from, to) in [(&near, &far), (&far, &near)] {
            let much = &much;
            scope.spawn(move || {
                for part in much.chunks(777_777) {
                    let mut from = from;
                    from.write_all(part).unwrap();
                }
            });
            scope.spawn(move || {
                let (mut to, mut got) = (to, vec![0; much.len()]);
                to.read_exact(&mut got).unwrap();
                assert!(got == *much);
            });
        }
    });
    near.shut_down();
    assert_eq!((&far).read(&mut [0]).unwrap(), 0);
}

#[test]
fn who_has_taken_leave_and_talks_on_is_not_listened_to() {
    let certificate = SessionCertificate::generate().unwrap();
    let server = certificate.server().unwrap().handshake().unwrap();
    let mut client = pinned(certificate.fingerprint()).unwrap();
    let (mut near, far) = pair();
    let (tell, told) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        let records = complete(server, &far, Instant::now() + LIMIT).unwrap();
        let stream = TlsStream::new(far, records).unwrap();
        let mut all = Vec::new();
        let ended = (&stream).read_to_end(&mut all).is_ok();
        tell.send((ended, all)).unwrap();
    });
    while client.is_handshaking() {
        client.complete_io(&mut near).unwrap();
    }
    client.writer().write_all(b"last").unwrap();
    client.send_close_notify();
    while client.wants_write() {
        client.write_tls(&mut near).unwrap();
    }
    // More than one read takes, so that some of it arrives separately.
    let _ = near.write_all(&[23; 200_000]);
    let (ended, all) = told.recv_timeout(LIMIT).expect("the end of the read");
    assert!(ended);
    assert_eq!(all, b"last");
}

#[test]
fn who_has_another_certificate_is_not_taken_for_the_session() {
    let (own, other) = (
        SessionCertificate::generate().unwrap(),
        SessionCertificate::generate().unwrap(),
    );
    let impostor = other.server().unwrap().handshake().unwrap();
    let (client, server) = shake(pinned(own.fingerprint()).unwrap(), impostor);
    assert!(matches!(client, Err(NotSecured::Tls(_))), "{client:?}");
    assert!(server.is_err());
    // The right certificate without its key is rejected too.
    let stolen = SessionCertificate {
        certificate: own.certificate.clone(),
        key: other.key,
    };
    if let Ok(server) = stolen.server() {
        let handshake = server.handshake().unwrap();
        let (client, _) = shake(pinned(own.fingerprint()).unwrap(), handshake);
        assert!(client.is_err());
    }
}

#[test]
fn a_changed_byte_is_the_end() {
    let certificate = SessionCertificate::generate().unwrap();
    let server = certificate.server().unwrap().handshake().unwrap();
    let (near, far) = shake(pinned(certificate.fingerprint()).unwrap(), server);
    let (near, far) = (near.unwrap().1, far.unwrap().1);
    let mut sealed = Vec::new();
    near.seal(b"word", &mut sealed).unwrap();
    let last = sealed.len() - 1;
    sealed[last] ^= 1;
    let mut plain = Vec::new();
    assert!(far.open(&sealed, &mut plain).is_err());
    assert!(plain.is_empty());
    assert!(far.open(&[], &mut plain).is_err());
}

#[test]
fn a_peer_that_says_nothing_is_not_waited_for() {
    let (near, far) = pair();
    let handshake = pinned(SessionCertificate::generate().unwrap().fingerprint()).unwrap();
    let error = complete(handshake, &near, Instant::now() + Duration::from_millis(50)).unwrap_err();
    assert!(error.is_late(), "{error}");
    drop(far);
}

struct Files(tempfile::TempDir);

impl Files {
    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn write(&self, name: &str, issued: &Issued) -> (PathBuf, PathBuf) {
        let (certificate, key) = (self.path(name), self.path(&format!("{name}.key")));
        fs::write(&certificate, &issued.certificate).unwrap();
        fs::write(&key, issued.key.reveal()).unwrap();
        fs::set_permissions(&certificate, fs::Permissions::from_mode(0o644)).unwrap();
        fs::set_permissions(&key, fs::Permissions::from_mode(0o600)).unwrap();
        (certificate, key)
    }
}

fn valid() -> std::ops::Range<SystemTime> {
    let now = SystemTime::now();
    now - DAY..now + DAY
}

fn client(ca: &Path, identity: Option<&(PathBuf, PathBuf)>) -> ClientTls {
    ClientTls::load(ca, identity.map(|(c, k)| (c.as_path(), k.as_path()))).unwrap()
}

#[test]
fn a_node_is_believed_by_its_ca_name_and_day_and_no_other() {
    let files = Files(tempfile::tempdir().unwrap());
    let (ours, ca) = Authority::generate("ours", valid()).unwrap();
    let (theirs, _) = Authority::generate("theirs", valid()).unwrap();
    let ca = files.write("ca", &ca).0;
    let names = ["node1.cluster".to_owned(), "127.0.0.1".to_owned()];
    let over = SystemTime::now() - 2 * DAY..SystemTime::now() - DAY;
    for (name, issued, asked, believed) in [
        ("good", ours.node(&names, valid()), "node1.cluster", true),
        ("address", ours.node(&names, valid()), "127.0.0.1", true),
        ("name", ours.node(&names, valid()), "node2.cluster", false),
        (
            "foreign",
            theirs.node(&names, valid()),
            "node1.cluster",
            false,
        ),
        ("expired", ours.node(&names, over), "node1.cluster", false),
        (
            "user",
            ours.user("node1.cluster", valid()),
            "node1.cluster",
            false,
        ),
    ] {
        let (certificate, key) = files.write(name, &issued.unwrap());
        let server = ServerTls::load(&certificate, &key, ClientCertificates::None).unwrap();
        let asking = client(&ca, None).handshake(asked).unwrap();
        let (client, _) = shake(asking, server.handshake().unwrap());
        assert_eq!(client.is_ok(), believed, "{name}: {:?}", client.err());
    }
}

#[test]
fn users_show_certificates_where_they_are_asked_for() {
    let files = Files(tempfile::tempdir().unwrap());
    let (ours, ca) = Authority::generate("ours", valid()).unwrap();
    let (theirs, _) = Authority::generate("theirs", valid()).unwrap();
    let ca = files.write("ca", &ca).0;
    let node = ours.node(&["127.0.0.1".to_owned()], valid()).unwrap();
    let node = files.write("node", &node);
    let alice = files.write("alice", &ours.user("alice", valid()).unwrap());
    let mallory = files.write("mallory", &theirs.user("alice", valid()).unwrap());
    for (clients, shown, let_in) in [
        (ClientCertificates::Required(&ca), Some(&alice), true),
        (ClientCertificates::Required(&ca), Some(&mallory), false),
        (ClientCertificates::Required(&ca), None, false),
        (ClientCertificates::Optional(&ca), Some(&alice), true),
        (ClientCertificates::Optional(&ca), Some(&mallory), false),
        (ClientCertificates::Optional(&ca), None, true),
        (ClientCertificates::None, Some(&alice), true),
    ] {
        let server = ServerTls::load(&node.0, &node.1, clients).unwrap();
        let asking = client(&ca, shown).handshake("127.0.0.1").unwrap();
        let (_, server) = shake(asking, server.handshake().unwrap());
        assert_eq!(server.is_ok(), let_in, "{clients:?} {shown:?}");
        let Ok((_, records)) = server else { continue };
        let user = records.peer_certificate().map(|shown| user_of(&shown));
        let asked = clients != ClientCertificates::None;
        let expected = (asked && shown.is_some()).then(|| "alice".to_owned());
        assert_eq!(user, expected, "{clients:?} {shown:?}");
    }
}

#[test]
fn an_authority_goes_on_from_its_files() {
    let files = Files(tempfile::tempdir().unwrap());
    let (_, ca) = Authority::generate("ours", valid()).unwrap();
    let (certificate, key) = files.write("ca", &ca);
    let again = Authority::load(&certificate, &key).unwrap();
    let node = again.node(&["node1".to_owned()], valid()).unwrap();
    let (node, node_key) = files.write("node", &node);
    let server = ServerTls::load(&node, &node_key, ClientCertificates::None).unwrap();
    let asking = client(&certificate, None).handshake("node1").unwrap();
    assert!(shake(asking, server.handshake().unwrap()).0.is_ok());
    // A key that belongs to another certificate is reported at once.
    assert!(ServerTls::load(&node, &key, ClientCertificates::None).is_err());
    assert!(again.user("not a name", valid()).is_err());
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    // Bytes arrive unchanged, however plain bytes are split before encryption, and encrypted bytes on the
    // way.
    #[test]
    fn bytes_come_out_in_their_order(
        words in prop::collection::vec(prop_oneof![0..50usize, 16_000..60_000usize], 1..12),
        cuts in prop::collection::vec(1..40_000usize, 1..8),
        takes in prop::collection::vec(1..40_000usize, 1..8),
    ) {
        let certificate = SessionCertificate::generate().unwrap();
        let server = certificate.server().unwrap().handshake().unwrap();
        let (near, far) = shake(pinned(certificate.fingerprint()).unwrap(), server);
        let (near, far) = (near.unwrap().1, far.unwrap().1);
        let (mut plain, mut sealed) = (Vec::new(), Vec::new());
        for (i, length) in words.into_iter().enumerate() {
            let word: Vec<u8> = (0..length).map(|j| (i * 31 + j) as u8).collect();
            near.seal(&word, &mut sealed).unwrap();
            plain.extend_from_slice(&word);
        }
        let (mut opener, mut at) = (Opener::new(far).unwrap(), 0);
        let (mut cuts, mut takes) = (cuts.iter().cycle(), takes.iter().cycle());
        let mut got = Vec::new();
        loop {
            let mut into = vec![0; *takes.next().unwrap()];
            let count = opener.read(&mut into, |bytes| {
                let count = (*cuts.next().unwrap()).min(bytes.len()).min(sealed.len() - at);
                bytes[..count].copy_from_slice(&sealed[at..at + count]);
                at += count;
                Ok(count)
            }).unwrap();
            if count == 0 {
                break;
            }
            got.extend_from_slice(&into[..count]);
        }
        prop_assert!(got == plain);
        prop_assert!(!opener.holds_more());
    }
}

#[test]
fn a_key_of_another_certificate_is_told_from_a_broken_one() {
    let files = Files(tempfile::tempdir().unwrap());
    let (authority, ca) = Authority::generate("ours", valid()).unwrap();
    let names = ["node".to_owned()];
    let certificate = files
        .write("one", &authority.node(&names, valid()).unwrap())
        .0;
    let key = files
        .write("two", &authority.node(&names, valid()).unwrap())
        .1;
    let ca = files.write("ca", &ca).0;
    let server = ServerTls::load(&certificate, &key, ClientCertificates::None).unwrap_err();
    let client = ClientTls::load(&ca, Some((&certificate, &key))).unwrap_err();
    for error in [server, client] {
        let error = error.to_string();
        for file in [&certificate, &key] {
            assert!(error.contains(file.to_str().unwrap()), "{error}");
        }
        assert!(error.contains("the key does not belong to"), "{error}");
    }
}
