//! TLS: a client certificate replaces a token, and connections without TLS are refused.

use std::fs;
use std::io::{Error, ErrorKind};
use std::net::SocketAddr;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use causeway_proto::manager::admin_client::AdminClient;
use causeway_proto::manager::leases_client::LeasesClient;
use causeway_proto::manager::{
    CreateTokenRequest, DeleteUserRequest, ListLeasesRequest, RefusalCode, User, progress,
};
use causeway_security::{Authority, ClientTls, Issued, secure};
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;
use tonic::Code;
use tonic::transport::{Channel, Endpoint};

use super::process::{AT_MOST, Asked, Manager, Who, request};

/// A CA and the certificates that it has signed, as files.
struct Certificates {
    folder: tempfile::TempDir,
    authority: Authority,
}

impl Certificates {
    fn new() -> Certificates {
        let (authority, ca) = Authority::generate("test", valid()).unwrap();
        let folder = tempfile::tempdir().unwrap();
        let certificates = Certificates { folder, authority };
        certificates.write("ca", &ca);
        certificates
    }

    fn write(&self, name: &str, issued: &Issued) {
        fs::write(self.path(name, "pem"), &issued.certificate).unwrap();
        let key = self.path(name, "key");
        fs::write(&key, issued.key.reveal()).unwrap();
        fs::set_permissions(&key, fs::Permissions::from_mode(0o600)).unwrap();
    }

    fn user(&self, name: &str) {
        self.write(name, &self.authority.user(name, valid()).unwrap());
    }

    fn path(&self, name: &str, kind: &str) -> PathBuf {
        self.folder.path().join(format!("{name}.{kind}"))
    }

    fn manager(&self) -> Manager {
        let names = ["127.0.0.1".to_owned()];
        self.write("manager", &self.authority.node(&names, valid()).unwrap());
        let quoted = |name, kind| format!("{:?}", self.path(name, kind));
        Manager::configured(&format!(
            "authenticate = true\n[tls]\ncertificate = {}\nkey = {}\nclient_ca = {}\n",
            quoted("manager", "pem"),
            quoted("manager", "key"),
            quoted("ca", "pem"),
        ))
    }

    async fn connect(&self, address: SocketAddr, user: Option<&Certificates>) -> Option<Channel> {
        let files = user.map(|of| (of.path("ann", "pem"), of.path("ann", "key")));
        let identity = files.as_ref().map(|(c, k)| (Path::new(c), Path::new(k)));
        let tls = ClientTls::load(&self.path("ca", "pem"), identity).unwrap();
        let socket = TcpStream::connect(address).await.unwrap();
        let handshake = tls.handshake("127.0.0.1").unwrap();
        let stream = secure(handshake, socket, &[]).await.ok()?;
        let mut once = Some(TokioIo::new(stream));
        let connector = tower::service_fn(move |_| {
            let stream = once.take();
            std::future::ready(stream.ok_or(Error::from(ErrorKind::NotConnected)))
        });
        let endpoint = Endpoint::from_static("http://manager");
        endpoint.connect_with_connector(connector).await.ok()
    }
}

fn valid() -> std::ops::Range<SystemTime> {
    let hour = Duration::from_secs(3600);
    SystemTime::now() - hour..SystemTime::now() + hour
}

#[tokio::test]
async fn a_certificate_names_its_user_and_none_is_nobody() {
    let certificates = Certificates::new();
    certificates.user("ann");
    let manager = certificates.manager();
    let channel = certificates
        .connect(manager.address, Some(&certificates))
        .await;
    let mut ann = LeasesClient::new(channel.unwrap());
    let asked = ann.request(request("1")).await.unwrap();
    match Asked(asked.into_inner()).last().await {
        progress::Step::Refused(refused) => {
            assert_eq!(refused.code(), RefusalCode::NothingFits);
        }
        other => panic!("{other:?}"),
    }

    let channel = certificates.connect(manager.address, None).await;
    let mut nobody = LeasesClient::new(channel.unwrap());
    let status = nobody.list_leases(ListLeasesRequest {}).await.unwrap_err();
    assert_eq!(status.code(), Code::Unauthenticated, "{status}");
}

#[tokio::test]
async fn a_certificate_makes_no_token_that_would_outlive_it() {
    let certificates = Certificates::new();
    certificates.user("ann");
    let manager = certificates.manager();
    let channel = certificates
        .connect(manager.address, Some(&certificates))
        .await;
    let mut ann = AdminClient::new(channel.unwrap());
    let token = CreateTokenRequest {
        user: "ann".to_owned(),
        ..CreateTokenRequest::default()
    };
    let status = ann.create_token(token).await.unwrap_err();
    assert_eq!(status.code(), Code::PermissionDenied, "{status}");
}

#[tokio::test]
async fn another_cas_certificate_and_clear_words_get_nothing() {
    let (certificates, others) = (Certificates::new(), Certificates::new());
    others.user("ann");
    let manager = certificates.manager();
    // With TLS 1.3, the handshake succeeds for the client before the server has checked the certificate.
    if let Some(channel) = certificates.connect(manager.address, Some(&others)).await {
        let mut stranger = LeasesClient::new(channel);
        let list = stranger.list_leases(ListLeasesRequest {});
        let list = tokio::time::timeout(AT_MOST, list)
            .await
            .expect("an end in time");
        assert_ne!(list.unwrap_err().code(), Code::Unauthenticated);
    }
    assert!(others.connect(manager.address, None).await.is_none());
    let endpoint = Endpoint::from_shared(format!("http://{}", manager.address)).unwrap();
    if let Ok(channel) = endpoint.connect().await {
        let mut clear = LeasesClient::new(channel);
        let list = clear.list_leases(ListLeasesRequest {});
        let list = tokio::time::timeout(AT_MOST, list)
            .await
            .expect("an end in time");
        assert_ne!(list.unwrap_err().code(), Code::Unauthenticated);
    }
}

#[tokio::test]
async fn a_certificate_of_a_removed_user_is_refused_until_he_is_added_again() {
    let certificates = Certificates::new();
    certificates.user("ann");
    let mut manager = certificates.manager();
    let mut path = manager.store().as_os_str().to_owned();
    path.push(".admin-token");
    let token = fs::read_to_string(path).unwrap();
    let root = Who::Token(token.trim().to_owned());
    let user = User {
        name: "ann".to_owned(),
        ..User::default()
    };
    let mut admin = AdminClient::new(certificates.connect(manager.address, None).await.unwrap());
    admin.put_user(root.request(user.clone())).await.unwrap();
    let listed = async |manager: &Manager| {
        let channel = certificates
            .connect(manager.address, Some(&certificates))
            .await;
        let mut ann = LeasesClient::new(channel.unwrap());
        ann.list_leases(ListLeasesRequest {}).await
    };
    listed(&manager).await.unwrap();
    let name = user.name.clone();
    let delete = root.request(DeleteUserRequest { name });
    admin.delete_user(delete).await.unwrap();
    for restarts in [false, true] {
        if restarts {
            manager.kill_and_restart();
        }
        let status = listed(&manager).await.unwrap_err();
        assert_eq!(status.code(), Code::Unauthenticated, "{status}");
        assert!(status.message().contains("was removed"), "{status}");
    }
    let mut admin = AdminClient::new(certificates.connect(manager.address, None).await.unwrap());
    admin.put_user(root.request(user)).await.unwrap();
    listed(&manager).await.unwrap();
}
