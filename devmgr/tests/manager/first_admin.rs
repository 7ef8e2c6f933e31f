//! `--new-admin-token` makes a token after the last administrator's token was lost, and changes nothing
//! else.

use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Output};

use causeway_proto::manager::{
    CreateTokenRequest, DeleteUserRequest, ListTokensRequest, ListUsersRequest, RevokeTokenRequest,
    User,
};
use tonic::Code;

use super::process::{Client, Manager, Who, request};
use super::strangers::{AUTHENTICATE, admin, user};

/// Runs `causeway-devmgr --new-admin-token` over this store.
fn new_token(store: &Path) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_causeway-devmgr"));
    command
        .args(["--config", "/dev/null", "--new-admin-token", "--store"])
        .arg(store);
    command.output().unwrap()
}

fn file(store: &Path) -> std::path::PathBuf {
    let mut path = store.as_os_str().to_owned();
    path.push(".admin-token");
    path.into()
}

async fn may_administrate(client: &mut Client) -> bool {
    let list = client.who.request(ListUsersRequest {});
    match client.admin.list_users(list).await {
        Ok(_) => true,
        Err(status) => {
            let refused = [Code::Unauthenticated, Code::PermissionDenied];
            assert!(refused.contains(&status.code()), "{status}");
            false
        }
    }
}

#[tokio::test]
async fn a_restart_makes_no_other_token_and_the_flag_does() {
    let mut manager = Manager::configured(AUTHENTICATE);
    let (ann, _) = user(&mut admin(&manager).await, "ann", false).await;
    let store = manager.store().to_owned();
    std::fs::remove_file(file(&store)).unwrap();
    manager.kill_and_restart();
    assert!(
        !file(&store).exists(),
        "who has the store need not be an administrator"
    );
    // A running manager locks its store.
    let refused = new_token(&store);
    let said = String::from_utf8_lossy(&refused.stderr);
    assert!(
        !refused.status.success() && said.contains("another process uses the store"),
        "{said}"
    );

    manager.kill();
    let made = new_token(&store);
    assert!(made.status.success(), "{made:?}");
    let mode = std::fs::metadata(file(&store))
        .unwrap()
        .permissions()
        .mode();
    assert_eq!(mode & 0o777, 0o600);
    let token = std::fs::read_to_string(file(&store)).unwrap();
    let said = String::from_utf8_lossy(&made.stdout);
    assert!(
        said.contains(".admin-token") && !said.contains(token.trim()),
        "{said}"
    );
    manager.kill_and_restart();
    assert!(may_administrate(&mut admin(&manager).await).await);
    // All other users are unchanged.
    let mut ann = manager.client(Who::Token(ann)).await;
    ann.ask(request("1")).await.unwrap();
    assert!(!may_administrate(&mut ann).await);
}

#[tokio::test]
async fn it_is_the_administrators_also_where_he_was_removed() {
    let mut manager = Manager::configured(AUTHENTICATE);
    let mut first = admin(&manager).await;
    let root = User {
        name: "root".to_owned(),
        admin: true,
        ..User::default()
    };
    first.admin.put_user(first.who.request(root)).await.unwrap();
    // Without this token, no administrator would be left.
    let delete = || DeleteUserRequest {
        name: "admin".to_owned(),
    };
    let refused = first.admin.delete_user(first.who.request(delete())).await;
    let refused = refused.unwrap_err();
    assert_eq!(refused.code(), Code::FailedPrecondition, "{refused}");
    assert!(
        refused.message().contains("causeway tokens create"),
        "{refused}"
    );
    let token = CreateTokenRequest {
        user: "root".to_owned(),
        ..CreateTokenRequest::default()
    };
    let token = first.who.request(token);
    first.admin.create_token(token).await.unwrap();
    let delete = first.who.request(delete());
    first.admin.delete_user(delete).await.unwrap();
    assert!(!may_administrate(&mut first).await);
    manager.kill();
    assert!(new_token(manager.store()).status.success());
    manager.kill_and_restart();
    assert!(may_administrate(&mut admin(&manager).await).await);
    assert!(
        !may_administrate(&mut first).await,
        "his earlier token is as it was"
    );
}

#[tokio::test]
async fn the_last_administrators_last_token_cannot_be_revoked() {
    let manager = Manager::configured(AUTHENTICATE);
    let mut first = admin(&manager).await;
    let his = || ListTokensRequest {
        user: "admin".to_owned(),
    };
    let tokens = first.admin.list_tokens(first.who.request(his())).await;
    let token_id = tokens.unwrap().into_inner().tokens[0].token_id.clone();
    let revoke = || RevokeTokenRequest {
        token_id: token_id.clone(),
    };
    let refused = first.admin.revoke_token(first.who.request(revoke())).await;
    let refused = refused.unwrap_err();
    assert_eq!(refused.code(), Code::FailedPrecondition, "{refused}");
    assert!(
        refused.message().contains("causeway tokens create"),
        "{refused}"
    );
    assert!(may_administrate(&mut first).await);
    // With another token, the first one can be revoked.
    let token = CreateTokenRequest {
        user: "admin".to_owned(),
        ..CreateTokenRequest::default()
    };
    let made = first.admin.create_token(first.who.request(token)).await;
    let other = Who::Token(made.unwrap().into_inner().token);
    let revoked = first.admin.revoke_token(first.who.request(revoke())).await;
    revoked.unwrap();
    assert!(!may_administrate(&mut first).await);
    assert!(may_administrate(&mut manager.client(other).await).await);
}

#[test]
fn where_there_is_no_store_none_is_made() {
    let folder = tempfile::tempdir().unwrap();
    let store = folder.path().join("mistyped");
    let refused = new_token(&store);
    let said = String::from_utf8_lossy(&refused.stderr);
    assert!(
        !refused.status.success() && said.contains("mistyped"),
        "{said}"
    );
    assert!(!store.exists() && !file(&store).exists());
}
