//! Tests of TLS and authentication: which callers are accepted and refused, without an effect on others.

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr};
use std::os::unix::fs::PermissionsExt;
use std::time::{Duration, SystemTime};

use causeway_proto::command::EventBatch;
use causeway_proto::frame::{self, PREFIX};
use causeway_proto::preamble::{Purpose, client_proof};
use causeway_security::{Authority, Fingerprint, SessionCertificate, TlsStream, Token, pinned};
use prost::Message;
use tonic::Code;

use crate::carriers::{frame_of, ping};
use crate::secured::{
    Caller, Cluster, assert_serves, commands, connect_after, introduce, now, secret_of, shake,
};
use crate::support::{Setup, children_of, client, connect, connect_from, read_to_close};

#[tokio::test]
async fn a_certificate_that_is_over_is_told_of_at_the_start() {
    let cluster = Cluster::new();
    let fresh = cluster.with_tokens().start();
    assert!(!fresh.log().contains("the server's certificate has expired"));
    let end = SystemTime::now() - Duration::from_secs(3600);
    let long_ago = end - Duration::from_secs(3600)..end;
    let (authority, _) = Authority::generate("CA", long_ago.clone()).unwrap();
    let issued = authority.node(&["127.0.0.1".to_owned()], long_ago).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let (file, key) = (folder.path().join("old.pem"), folder.path().join("old.key"));
    std::fs::write(&file, &issued.certificate).unwrap();
    std::fs::write(&key, issued.key.reveal()).unwrap();
    std::fs::set_permissions(&key, std::fs::Permissions::from_mode(0o600)).unwrap();
    let (file, key) = (file.to_str().unwrap(), key.to_str().unwrap());
    let over = Setup::new()
        .args(&["--tls-certificate", file, "--tls-key", key])
        .start();
    let log = over.log();
    let mut lines = log.lines();
    let told = lines.find(|line| line.contains("the server's certificate has expired"));
    let told = told.expect(&log);
    assert!(told.contains("ERROR") && told.contains(file), "{told}");
}

#[tokio::test]
async fn a_session_goes_on_over_further_connections_with_its_certificate() {
    let cluster = Cluster::new();
    let daemon = cluster.with_tokens().start();
    let tls = cluster.client(None);
    let caller = Caller::reach(daemon.address(), &tls, Some(&cluster.token)).await;
    let reply = caller.unwrap().open_for(60_000).await.unwrap();
    let mut handled = 0;
    for number in 1..=5 {
        let (commands, applied) = connect_after(&daemon, &reply, Purpose::Commands, handled);
        let (heartbeat, _) = connect_after(&daemon, &reply, Purpose::Heartbeat, 0);
        assert!(applied < number);
        // What was applied comes again.
        for again in 1..=number {
            (&commands).write_all(&frame_of(&ping(again))).unwrap();
        }
        let mut has_answer = false;
        while !has_answer {
            let mut prefix = [0; PREFIX];
            (&commands).read_exact(&mut prefix).unwrap();
            let mut bytes = vec![0; frame::length(prefix).unwrap()];
            (&commands).read_exact(&mut bytes).unwrap();
            let batch = EventBatch::decode(&bytes[..]).unwrap();
            assert_eq!(batch.number, handled + 1);
            handled = batch.number;
            has_answer = !batch.answers.is_empty();
            assert!(batch.answers.iter().all(|of| of.request == 1000 + number));
        }
        // An acknowledgement may come in two records, and two in one.
        let [first, second] = [handled - 1, handled].map(u64::to_le_bytes);
        let bytes = [first, second].concat();
        (&heartbeat).write_all(&bytes[..5]).unwrap();
        (&heartbeat).write_all(&bytes[5..]).unwrap();
        if number == 5 {
            let sent = (&heartbeat).write_all(&(handled + 1).to_le_bytes());
            sent.unwrap();
            daemon_ends(&commands);
        }
        commands.socket().shutdown(Shutdown::Both).unwrap();
        heartbeat.socket().shutdown(Shutdown::Both).unwrap();
    }
    assert!(daemon.log().contains("the client violated the protocol"));
}

/// Waits until the node closes the connection.
fn daemon_ends(mut connection: &TlsStream) {
    let _ = connection.read_to_end(&mut Vec::new());
}

async fn refusal(address: SocketAddr, cluster: &Cluster, token: Option<&Token>) -> (Code, String) {
    let caller = Caller::reach(address, &cluster.client(None), token).await;
    let status = caller.unwrap().open().await.unwrap_err();
    (status.code(), status.message().to_owned())
}

#[tokio::test]
async fn a_list_that_becomes_unreadable_is_told_of_with_its_cause() {
    let cluster = Cluster::new();
    let daemon = cluster.with_tokens().watched().start();
    let own = Some(&cluster.token);
    let set = |mode| {
        let permissions = std::os::unix::fs::PermissionsExt::from_mode(mode);
        std::fs::set_permissions(cluster.path("tokens"), permissions).unwrap();
    };
    set(0o666);
    for _ in 0..3 {
        let (code, message) = refusal(daemon.address(), &cluster, own).await;
        assert_eq!(code, Code::Unauthenticated);
        assert!(message.contains("cannot read its list"), "{message}");
    }
    let health = crate::watched::get(&daemon, "/healthz");
    assert!(health.starts_with("HTTP/1.1 503 "), "{health}");
    assert!(health.contains("list of tokens"), "{health}");
    let warnings = |log: &str| log.matches("the list of tokens cannot be read").count();
    let log = daemon.log();
    assert_eq!(warnings(&log), 1, "{log}");
    assert!(log.contains("mode 666"), "{log}");
    set(0o600);
    let health = crate::watched::get(&daemon, "/healthz");
    assert!(!health.contains("list of tokens"), "{health}");
    let at = daemon.address();
    let mut caller = Caller::reach(at, &cluster.client(None), own).await.unwrap();
    caller.open().await.unwrap();
    // A missing file is unreadable too, for another reason.
    std::fs::remove_file(cluster.path("tokens")).unwrap();
    refusal(daemon.address(), &cluster, own).await;
    let log = daemon.log();
    assert_eq!(warnings(&log), 2, "{log}");
}

#[tokio::test]
async fn tokens_open_the_door_until_they_expire_or_are_revoked() {
    let cluster = Cluster::new();
    let (late, stranger) = (Token::generate(), Token::generate());
    let own = format!("{} alice\n", cluster.token.hash());
    cluster.list(&format!("{own}{} bob 2020-01-01\n", late.hash()));
    let daemon = cluster.with_tokens().start();
    let at = daemon.address();
    let own = Some(&cluster.token);
    let mut caller = Caller::reach(at, &cluster.client(None), own).await.unwrap();
    let opened = caller.open().await.unwrap();
    assert!(Fingerprint::from_wire(&opened.certificate_sha256).is_some());
    assert!(daemon.log().contains("alice"));
    for (token, said) in [
        (None, "requires a token"),
        (Some(&stranger), "is unknown"),
        (Some(&late), "expired"),
    ] {
        let (code, message) = refusal(at, &cluster, token).await;
        assert_eq!(code, Code::Unauthenticated);
        assert!(message.contains(said), "{message}");
    }
    // Also on the connection that was open before.
    cluster.list(&format!("{} carol\n", stranger.hash()));
    assert_eq!(
        caller.status().await.unwrap_err().code(),
        Code::Unauthenticated
    );
    let (code, message) = refusal(at, &cluster, own).await;
    assert!(
        code == Code::Unauthenticated && message.contains("revoked"),
        "{message}"
    );
    let mut carol = Caller::reach(at, &cluster.client(None), Some(&stranger))
        .await
        .unwrap();
    carol.status().await.unwrap();
}

#[tokio::test]
async fn certificates_open_the_door_if_their_ca_signed_them() {
    let cluster = Cluster::new();
    let (foreign, foreign_ca) = Authority::generate("foreign", now()).unwrap();
    cluster.write("foreign-ca", &foreign_ca);
    cluster.write("alice", &cluster.authority.user("alice", now()).unwrap());
    cluster.write("mallory", &foreign.user("alice", now()).unwrap());
    let past = SystemTime::UNIX_EPOCH..SystemTime::now() - Duration::from_secs(60);
    cluster.write("late", &cluster.authority.user("alice", past).unwrap());
    let daemon = cluster
        .setup("node")
        .args(&["--tls-client-ca", &cluster.text("ca")])
        .start();
    for (identity, served) in [
        (Some("alice"), true),
        (Some("mallory"), false),
        (Some("late"), false),
        (None, false),
    ] {
        // The first answer shows whether the node accepts a certificate.
        let served_now =
            match Caller::reach(daemon.address(), &cluster.client(identity), None).await {
                Ok(mut caller) => caller.open().await.is_ok(),
                Err(_) => false,
            };
        assert_eq!(served_now, served, "{identity:?}");
    }
    assert!(daemon.log().contains("alice"));
}

#[tokio::test]
async fn a_node_that_is_not_the_one_is_told_nothing() {
    let cluster = Cluster::new();
    let (foreign, foreign_ca) = Authority::generate("foreign", now()).unwrap();
    cluster.write("foreign-ca", &foreign_ca);
    let past = SystemTime::UNIX_EPOCH..SystemTime::now() - Duration::from_secs(60);
    let own = ["127.0.0.1".to_owned()];
    let other = ["node2.cluster".to_owned()];
    cluster.write("impostor", &foreign.node(&own, now()).unwrap());
    cluster.write("late", &cluster.authority.node(&own, past).unwrap());
    cluster.write("other", &cluster.authority.node(&other, now()).unwrap());
    for certificate in ["impostor", "late", "other"] {
        let daemon = cluster.setup(certificate).start();
        let token = Some(&cluster.token);
        let reached = Caller::reach(daemon.address(), &cluster.client(None), token).await;
        assert!(reached.is_err(), "{certificate}");
    }
}

#[tokio::test]
async fn in_the_clear_nobody_is_served() {
    let cluster = Cluster::new();
    let daemon = cluster.with_tokens().start();
    let mut clear = client(daemon.address()).await;
    let request = causeway_proto::control::GetStatusRequest::default();
    let error = clear.get_status(request).await.unwrap_err();
    // This is HTTP/2's INADEQUATE_SECURITY, for which gRPC has no other code.
    assert_eq!(error.code(), Code::PermissionDenied, "{error:?}");
    assert!(std::error::Error::source(&error).is_some());
    assert_serves(&daemon, &cluster).await;
}

#[tokio::test]
async fn a_sessions_connections_need_tls_with_its_own_certificate() {
    let cluster = Cluster::new();
    let daemon = cluster.with_tokens().start();
    let tls = cluster.client(None);
    let mut caller = Caller::reach(daemon.address(), &tls, Some(&cluster.token))
        .await
        .unwrap();
    let reply = caller.open().await.unwrap();
    let (secret, other) = (secret_of(&reply), SessionCertificate::generate().unwrap());

    // The proof in the clear, as without TLS.
    let (mut clear, preamble) = introduce(&daemon, &reply);
    let preamble: [u8; 32] = preamble.try_into().unwrap();
    clear
        .write_all(&client_proof(
            &secret,
            &preamble,
            &[0; 32],
            &Default::default(),
        ))
        .unwrap();
    let said = read_to_close(&mut clear);
    assert!(
        said.is_empty() || said[0] == 21,
        "an alert at most: {said:?}"
    );
    // A man in the middle has another certificate.
    let (socket, _) = introduce(&daemon, &reply);
    assert!(shake(pinned(other.fingerprint()).unwrap(), &socket).is_err());
    // The node's certificate is not the session's.
    let (socket, _) = introduce(&daemon, &reply);
    assert!(shake(tls.handshake("127.0.0.1").unwrap(), &socket).is_err());

    commands(&daemon, &reply);
}

#[tokio::test]
async fn handshakes_by_the_hundred_that_go_on_for_ever_keep_nobody_out() {
    let cluster = Cluster::new();
    let daemon = cluster.with_tokens().start();
    // Each connection sends a part of a first record.
    let slow: Vec<_> = (0..200u8)
        .map(|number| {
            let mut socket = connect_from(number / 50, daemon.address());
            socket
                .write_all(&[0x16, 3, 1, 2, 0][..1 + usize::from(number % 5)])
                .unwrap();
            socket
        })
        .collect();
    for _ in 0..5 {
        assert_serves(&daemon, &cluster).await;
    }
    drop(slow);
    for garbage in [
        &[0x16; 600][..],
        b"\x16\x03\x01\xff\xff",
        b"GET / HTTP/1.1\r\n\r\n",
    ] {
        let mut socket = connect(daemon.address());
        socket.write_all(garbage).unwrap();
        let _ = socket.shutdown(std::net::Shutdown::Write);
        read_to_close(&mut socket);
    }
    assert_serves(&daemon, &cluster).await;
}

#[tokio::test]
async fn what_is_secret_is_shown_by_no_log_and_no_process() {
    let cluster = Cluster::new();
    let daemon = cluster.with_tokens().args(&["--log", "trace"]).start();
    let tls = cluster.client(None);
    let mut caller = Caller::reach(daemon.address(), &tls, Some(&cluster.token))
        .await
        .unwrap();
    let reply = caller.open().await.unwrap();
    let stranger = Token::generate();
    let (_, refused) = refusal(daemon.address(), &cluster, Some(&stranger)).await;
    let key = std::fs::read_to_string(cluster.path("node.key")).unwrap();
    let key = key.lines().nth(1).unwrap().to_owned();
    let secret = &reply.session_secret[..];
    let hex: String = secret.iter().map(|byte| format!("{byte:02x}")).collect();
    let hidden = [
        cluster.token.reveal().to_owned(),
        stranger.reveal().to_owned(),
        key,
        hex,
        format!("{secret:?}"),
    ];
    let mut shown = vec![("a refusal", refused), ("the log", daemon.log())];
    for pid in daemon.children().into_iter().chain([daemon.pid()]) {
        for file in ["cmdline", "environ"] {
            let path = format!("/proc/{}/{file}", pid.as_raw_nonzero());
            // A worker may forbid others to read its memory.
            let bytes = std::fs::read(path).unwrap_or_default();
            shown.push((file, String::from_utf8_lossy(&bytes).into_owned()));
        }
    }
    assert!(!children_of(daemon.pid()).is_empty());
    assert!(shown[1].1.contains("session opened"));
    for (place, text) in &shown {
        for secret in &hidden {
            assert!(!text.contains(secret.as_str()), "{place} shows a secret");
        }
    }
}

#[tokio::test]
async fn other_machines_are_served_with_tls_and_names_or_loudly() {
    let cluster = Cluster::new();
    let everywhere = ["--listen", "0.0.0.0:0"];
    let daemon = cluster.with_tokens().args(&everywhere).start_as_is();
    assert!(!daemon.log().contains("INSECURE"));
    // TLS without authentication of clients does not suffice.
    let (said, status) = cluster.setup("node").args(&everywhere).refused();
    assert!(
        said.contains("--insecure") && status.code() == Some(2),
        "{said}"
    );
    let loud = Setup::new()
        .args(&everywhere)
        .args(&["--insecure"])
        .start_as_is();
    assert!(loud.log().contains("INSECURE"));
    let at = SocketAddr::from(([127, 0, 0, 1], loud.address().port()));
    let mut client = client(at).await;
    let wire_version = crate::support::VERSION;
    let request = causeway_proto::control::GetStatusRequest { wire_version };
    let problems = client
        .get_status(request)
        .await
        .unwrap()
        .into_inner()
        .problems;
    assert!(
        problems.iter().any(|said| said.contains("INSECURE")),
        "{problems:?}"
    );
    let request = causeway_proto::control::GetInventoryRequest {
        wire_version,
        ..Default::default()
    };
    let told = client.get_inventory(request).await.unwrap().into_inner();
    assert!(told.remarks.iter().any(|said| said.contains("INSECURE")));
}

#[test]
fn settings_that_secure_nothing_are_refused() {
    let cluster = Cluster::new();
    let (certificate, key) = (cluster.text("node"), cluster.text("node.key"));
    let tokens = cluster.text("tokens");
    let refused = |arguments: &[&str], part: &str| {
        let (said, status) = Setup::new().args(arguments).refused();
        assert!(said.contains(part), "{arguments:?}: {said}");
        assert_eq!(status.code(), Some(2));
    };
    refused(&["--tls-certificate", &certificate], "--tls-key");
    refused(&["--tokens", &tokens], "requires TLS");
    let both = ["--tls-certificate", &certificate, "--tls-key"];
    refused(&[&both[..], &["/nowhere"]].concat(), "/nowhere");
    refused(&[&both[..], &[&cluster.text("ca.key")]].concat(), "ca.key");
    std::fs::set_permissions(&key, std::fs::Permissions::from_mode(0o644)).unwrap();
    refused(&[&both[..], &[&key]].concat(), "others can access it");
}
