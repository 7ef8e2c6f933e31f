//! Tests of TLS nodes and clients that lack the CA or token, have wrong ones, or meet a man in the middle: the errors
//! are right, and nothing is sent in the clear.

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::time::{Duration, Instant, SystemTime};

use causeway::config::{Carrier, ServerSettings, TlsSettings};
use causeway::transport::{Node, WireError, discover};
use causeway_cutter::{Forwarder, Target};
use causeway_proto::preamble::PREAMBLE;
use causeway_proto::status::TlsFault;
use causeway_security::{Authority, SessionCertificate, Token, complete};

use crate::frames::fake_node::upper::Upper;
use crate::frames::opencl;
use crate::frames::opencl::secured;

/// The settings of a client that the node accepts.
fn known(address: &str) -> ServerSettings {
    let folder = &secured::secure().folder;
    ServerSettings {
        tls: TlsSettings {
            ca: Some(folder.join("ca.pem")),
            token_file: Some(folder.join("token")),
            ..TlsSettings::default()
        },
        ..ServerSettings::at(address.parse().expect("an address"))
    }
}

fn daemon() -> &'static str {
    secured::secure();
    opencl::daemon()
}

fn private(name: &str, contents: &str) -> PathBuf {
    let path = secured::secure().folder.join(name);
    std::fs::write(&path, contents).expect("written");
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600))
        .expect("the file's mode");
    path
}

fn refusal(settings: ServerSettings) -> String {
    let found = discover(&[settings]).pop().expect("one answer");
    found.inventory.expect_err("a refusal").to_string()
}

#[test]
fn who_may_not_is_told_why() {
    own_process!();
    let address = daemon();
    discover(&[known(address)])[0]
        .inventory
        .as_ref()
        .expect("the node's devices");
    let good = known(address).tls;
    let day = Duration::from_secs(86_400);
    let valid = SystemTime::now() - day..SystemTime::now() + day;
    let foreign = Authority::generate("foreign", valid).expect("a CA").1;
    let of = |tls: TlsSettings| ServerSettings {
        tls,
        ..known(address)
    };
    let token = |contents: &str| TlsSettings {
        token_file: Some(private(&format!("token-{}", contents.len()), contents)),
        ..good.clone()
    };
    let shown = private(
        "shown",
        good.ca.as_ref().expect("one").to_str().expect("text"),
    );
    std::fs::set_permissions(&shown, std::fs::Permissions::from_mode(0o644))
        .expect("the file's mode");
    for (settings, said) in [
        (of(TlsSettings::default()), "requires TLS"),
        (
            of(TlsSettings {
                ca: Some(private("foreign.pem", &foreign.certificate)),
                ..good.clone()
            }),
            "UnknownIssuer",
        ),
        (
            of(TlsSettings {
                name: Some("another.node".to_owned()),
                ..good.clone()
            }),
            "not valid for name",
        ),
        (
            of(TlsSettings {
                token_file: None,
                ..good.clone()
            }),
            "requires a token",
        ),
        (of(token(Token::generate().reveal())), "is unknown"),
        (of(token("two words")), "one line"),
        (
            of(TlsSettings {
                token_file: Some(shown),
                ..good.clone()
            }),
            "others can access it",
        ),
        (
            of(TlsSettings {
                ca: None,
                ..good.clone()
            }),
            "need TLS",
        ),
        (
            of(TlsSettings {
                is_broken: true,
                ..good.clone()
            }),
            "are invalid",
        ),
        (
            of(TlsSettings {
                ca: Some("/nowhere".into()),
                ..good.clone()
            }),
            "/nowhere",
        ),
    ] {
        let text = refusal(settings);
        assert!(text.contains(said), "{said:?} is not in {text:?}");
        assert!(!text.contains("causeway_"), "a token is shown: {text}");
    }
}

#[test]
fn each_address_of_a_server_is_verified_by_its_own_name() {
    own_process!();
    let node = daemon();
    let closed = TcpListener::bind("127.0.0.1:0").expect("a port");
    let dead = closed.local_addr().expect("an address").to_string();
    drop(closed);
    let target = Target::Tcp(node.parse().expect("an address"));
    let listen = SocketAddr::from(([127, 0, 0, 2], 0));
    let elsewhere = Forwarder::start_on(listen, Some(target)).expect("a port");
    let both = |further: &str| ServerSettings {
        further: vec![further.parse().expect("an address")],
        ..known(&dead)
    };
    let found = discover(&[both(node)]).pop().expect("one answer");
    assert!(found.inventory.is_ok(), "{:?}", found.inventory);
    // The node's certificate does not have this address.
    let error = discover(&[both(&elsewhere.address().to_string())])
        .pop()
        .expect("one answer");
    let error = error.inventory.expect_err("a refusal");
    assert!(
        matches!(
            &error,
            WireError::Tls {
                fault: TlsFault::OtherName,
                ..
            }
        ),
        "{error:?}"
    );
}

/// Forwards connections to the supervisor unchanged, and answers connections of sessions itself.
fn between(address: &str) -> SocketAddr {
    let node: SocketAddr = address.parse().expect("numbers");
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let at = listener.local_addr().expect("the listener's address");
    let certificate = SessionCertificate::generate().expect("a certificate");
    std::thread::spawn(move || {
        for client in listener.incoming().map_while(Result::ok) {
            let certificate = certificate.clone();
            std::thread::spawn(move || answer(client, node, &certificate));
        }
    });
    at
}

fn answer(mut client: TcpStream, node: SocketAddr, certificate: &SessionCertificate) {
    let mut server = TcpStream::connect(node).expect("the node");
    let mut first = [0];
    if client.peek(&mut first).is_err() {
        return;
    }
    if first == *b"C" {
        let mut preamble = [0; PREAMBLE];
        client.read_exact(&mut preamble).expect("a preamble");
        server.write_all(&preamble).expect("sent");
        let handshake = certificate
            .server()
            .and_then(|tls| tls.handshake())
            .expect("TLS");
        let until = Instant::now() + Duration::from_secs(10);
        let taken = complete(handshake, &client, until);
        assert!(
            taken.is_err(),
            "the client speaks to whoever stands between"
        );
        return;
    }
    let (mut from_client, mut to_client) = (client.try_clone().expect("a copy"), client);
    let (mut to_server, mut from_server) = (server.try_clone().expect("a copy"), server);
    std::thread::spawn(move || {
        let _ = std::io::copy(&mut from_client, &mut to_server);
        let _ = to_server.shutdown(Shutdown::Write);
    });
    let _ = std::io::copy(&mut from_server, &mut to_client);
    let _ = to_client.shutdown(Shutdown::Both);
}

#[test]
fn who_stands_between_is_found_out() {
    own_process!();
    let at = between(daemon()).to_string();
    for carrier in [Carrier::Direct, Carrier::Grpc] {
        let settings = ServerSettings {
            carrier,
            ..known(&at)
        };
        let found = discover(&[settings]).pop().expect("one answer");
        found.inventory.expect("the forwarded answer is the node's");
        let node: std::sync::Arc<Node> = found.node;
        let error = node.session(Upper::new()).expect_err("no session");
        assert!(
            matches!(&error, WireError::Protocol { reason, .. } if reason.contains("intercepts the connection")),
            "{error}"
        );
    }
}
