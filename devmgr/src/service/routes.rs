//! Which service a call is for, by the first part of its path.

use std::convert::Infallible;
use std::task::{Context, Poll};

use causeway_proto::manager::admin_server::{self, AdminServer};
use causeway_proto::manager::leases_server::{self, LeasesServer};
use causeway_proto::manager::nodes_server::{self, NodesServer};
use tonic::Status;
use tonic::body::Body;
use tonic::codegen::{BoxFuture, Service, http};
use tonic_health::pb::health_server::{self, HealthServer};
use tonic_health::server::HealthService;

use super::admin::AdminService;
use super::leases::LeasesService;
use super::nodes::NodesService;

/// All services of the manager's port.
#[derive(Clone)]
pub(super) struct Routes {
    pub(super) nodes: NodesServer<NodesService>,
    pub(super) leases: LeasesServer<LeasesService>,
    pub(super) admin: AdminServer<AdminService>,
    pub(super) health: HealthServer<HealthService>,
}

impl Service<http::Request<Body>> for Routes {
    type Response = http::Response<Body>;
    type Error = Infallible;
    type Future = BoxFuture<Self::Response, Infallible>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        // As theirs: they are always ready.
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: http::Request<Body>) -> Self::Future {
        let path = request.uri().path();
        let service = path
            .strip_prefix('/')
            .and_then(|path| path.split('/').next());
        match service {
            Some(nodes_server::SERVICE_NAME) => self.nodes.call(request),
            Some(leases_server::SERVICE_NAME) => self.leases.call(request),
            Some(admin_server::SERVICE_NAME) => self.admin.call(request),
            Some(health_server::SERVICE_NAME) => self.health.call(request),
            _ => Box::pin(async {
                let status = Status::unimplemented("the device manager has no such service");
                Ok(status.into_http())
            }),
        }
    }
}
