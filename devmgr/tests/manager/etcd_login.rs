//! A manager that logs in to etcd: it logs in again when etcd does not accept its token any more, and does again
//! what it was not permitted to do.

use std::path::PathBuf;
use std::time::Instant;

use causeway_devmgr::etcd::{Access, Etcd};
use causeway_proto::manager::{ListManagersRequest, ManagerRole};
use etcd_client::{Permission, PermissionType};

use super::etcd::{Cluster, PREFIX};
use super::etcd_trouble::see_health;
use super::orders::named;
use super::process::{AT_MOST, Client, Manager, Who};

/// A member of etcd that authenticates users, and signs their tokens.
struct Guarded {
    cluster: Cluster,
    folder: tempfile::TempDir,
}

impl Guarded {
    /// Starts etcd with the user `manager`, who may use the keys that begin with one of these.
    async fn start(permitted: &[&str]) -> Option<Guarded> {
        let folder = tempfile::tempdir().unwrap();
        let key = folder.path().join("key");
        std::fs::write(&key, "a key for this test").unwrap();
        let key = key.to_str().unwrap();
        let flag = format!("--auth-token=jwt,priv-key={key},sign-method=HS256");
        let cluster = Cluster::with_flags(&[&flag], 1).await?;
        let guarded = Guarded { cluster, folder };
        let mut auth = guarded.cluster.client().await.auth_client();
        for user in ["root", "manager"] {
            std::fs::write(guarded.password_file(user), user).unwrap();
            auth.user_add(user, user, None).await.unwrap();
            auth.role_add(user).await.unwrap();
            auth.user_grant_role(user, user).await.unwrap();
        }
        for beginning in permitted {
            auth.role_grant_permission("manager", permission(beginning))
                .await
                .unwrap();
        }
        auth.auth_enable().await.unwrap();
        Some(guarded)
    }

    fn password_file(&self, user: &str) -> PathBuf {
        self.folder.path().join(user)
    }

    /// etcd's administrator. Each change of users and roles makes all earlier tokens invalid.
    async fn root(&self) -> etcd_client::AuthClient {
        let access = self.cluster.access().access().clone();
        let login = Some(("root".to_owned(), self.password_file("root")));
        let etcd = Etcd::new(Access { login, ..access });
        etcd.client(0).await.unwrap().auth_client()
    }

    /// Starts a manager, and waits until it leads.
    async fn manager(&self) -> Manager {
        let file = self.password_file("manager");
        let login = format!("user = \"manager\"\npassword_file = {file:?}\n");
        let table = self.cluster.table(&self.folder.path().join("token"));
        let manager = Manager::configured(&(table + &login));
        see_health(manager.address, &[" 200 "]).await;
        manager
    }
}

fn permission(beginning: &str) -> Permission {
    let key = format!("{PREFIX}{beginning}");
    Permission::new(PermissionType::Readwrite, key).with_prefix()
}

#[tokio::test(flavor = "multi_thread")]
async fn after_a_change_of_etcds_users_the_manager_logs_in_again() {
    let Some(guarded) = Guarded::start(&[""]).await else {
        return;
    };
    let manager = guarded.manager().await;
    let mut root = Client::connect(manager.address, Who::Nobody).await;
    root.put_user(named("ann")).await.unwrap();
    let mut etcd = guarded.root().await;
    etcd.user_add("another", "password", None).await.unwrap();
    root.put_user(named("bob")).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_password_that_is_refused_is_named_until_the_file_has_another() {
    let Some(guarded) = Guarded::start(&[""]).await else {
        return;
    };
    let manager = guarded.manager().await;
    let mut etcd = guarded.root().await;
    let changed = etcd.user_change_password("manager", "another");
    changed.await.unwrap();
    let says = [" 503 ", "standby", "authentication failed"];
    see_health(manager.address, &says).await;
    std::fs::write(guarded.password_file("manager"), "another\n").unwrap();
    see_health(manager.address, &[" 200 "]).await;
    let mut root = Client::connect(manager.address, Who::Nobody).await;
    root.put_user(named("ann")).await.unwrap();
}

/// The keys of the managers are not permitted at first.
#[tokio::test(flavor = "multi_thread")]
async fn a_registration_that_failed_is_repeated() {
    let permitted = ["leader", "aside", "step", "pending", "parts/", "rows/"];
    let Some(guarded) = Guarded::start(&permitted).await else {
        return;
    };
    let manager = guarded.manager().await;
    let mut root = Client::connect(manager.address, Who::Nobody).await;
    let list = || root.who.request(ListManagersRequest {});
    let refused = root.admin.list_managers(list()).await.unwrap_err();
    assert!(refused.message().contains("permission denied"), "{refused}");
    let mut etcd = guarded.root().await;
    let granted = etcd.role_grant_permission("manager", permission("managers/"));
    granted.await.unwrap();
    let begin = Instant::now();
    loop {
        let listed = root.admin.list_managers(list()).await;
        let managers = listed.map(|of| of.into_inner().managers);
        let roles = |of: Vec<causeway_proto::manager::ManagerState>| {
            of.iter().map(|of| of.role()).collect::<Vec<_>>()
        };
        if managers
            .clone()
            .is_ok_and(|of| roles(of) == [ManagerRole::Leader])
        {
            break;
        }
        assert!(begin.elapsed() < AT_MOST, "{managers:?}");
    }
}
