//! Calls of administrators, one method for each.

use causeway_proto::manager::{
    CreateTokenRequest, DeleteUserRequest, ListQuotasRequest, ListTokensRequest, ListUsersRequest,
    Quota, RevokeLeaseRequest, RevokeTokenRequest, User,
};
use tonic::Status;

use super::process::Client;

/// A user with a name, and no groups or rights.
pub(crate) fn named(name: &str) -> User {
    User {
        name: name.to_owned(),
        ..User::default()
    }
}

impl Client {
    pub(crate) async fn put_user(&mut self, user: User) -> Result<(), Status> {
        let request = self.who.request(user);
        self.admin.put_user(request).await.map(drop)
    }

    pub(crate) async fn delete_user(&mut self, name: &str) -> Result<(), Status> {
        let name = name.to_owned();
        let request = self.who.request(DeleteUserRequest { name });
        self.admin.delete_user(request).await.map(drop)
    }

    /// Creates a token; returns the token and its id.
    pub(crate) async fn create_token(&mut self, user: &str) -> Result<(String, String), Status> {
        let request = self.who.request(CreateTokenRequest {
            user: user.to_owned(),
            ..CreateTokenRequest::default()
        });
        let reply = self.admin.create_token(request).await?.into_inner();
        Ok((reply.token, reply.token_id))
    }

    pub(crate) async fn revoke_token(&mut self, token_id: &str) -> Result<(), Status> {
        let token_id = token_id.to_owned();
        let request = self.who.request(RevokeTokenRequest { token_id });
        self.admin.revoke_token(request).await.map(drop)
    }

    pub(crate) async fn put_quota(&mut self, quota: Quota) -> Result<(), Status> {
        let request = self.who.request(quota);
        self.admin.put_quota(request).await.map(drop)
    }

    pub(crate) async fn revoke_lease(&mut self, lease: &[u8], reason: &str) -> Result<(), Status> {
        let request = self.who.request(RevokeLeaseRequest {
            lease_id: lease.to_vec().into(),
            reason: reason.to_owned(),
        });
        self.admin.revoke_lease(request).await.map(drop)
    }

    pub(crate) async fn users(&mut self) -> Result<Vec<User>, Status> {
        let request = self.who.request(ListUsersRequest {});
        Ok(self.admin.list_users(request).await?.into_inner().users)
    }

    pub(crate) async fn quotas(&mut self) -> Vec<Quota> {
        let request = self.who.request(ListQuotasRequest {});
        let list = self.admin.list_quotas(request).await;
        list.unwrap().into_inner().quotas
    }

    /// The number of a user's tokens.
    pub(crate) async fn tokens_of(&mut self, user: &str) -> usize {
        let user = user.to_owned();
        let request = self.who.request(ListTokensRequest { user });
        let list = self.admin.list_tokens(request).await;
        list.unwrap().into_inner().tokens.len()
    }
}
