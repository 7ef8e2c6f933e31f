//! Device managers under the test's control, over the real protocol: each leads, stands by, or hangs.

use std::convert::Infallible;
use std::future::{Ready, ready};
use std::net::{SocketAddr, TcpListener};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};

use causeway_proto::manager::leases_server::{Leases, LeasesServer};
use causeway_proto::manager::*;
use causeway_proto::metadata::{CLUSTER, ClusterId, LEADER, TERM};
use tonic::body::Body;
use tonic::codegen::{Service, http};
use tonic::metadata::MetadataMap;
use tonic::server::NamedService;
use tonic::transport::Server;
use tonic::transport::server::TcpIncoming;
use tonic::{Request, Response, Status};

/// What a fake manager does with the calls that it gets.
#[derive(Clone, Debug)]
pub enum Part {
    /// Leads in this term, in this cluster. Knows every lease, or none.
    Leads(u64, ClusterId, Knows),
    /// Stands by, and names this leader.
    StandsBy(Option<SocketAddr>),
}

/// Which leases a fake leader knows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Knows {
    All,
    None,
}

/// A fake manager. Ends with the test's process.
#[derive(Clone)]
pub struct FakeManager {
    pub address: SocketAddr,
    shared: Arc<Mutex<Shared>>,
}

struct Shared {
    part: Part,
    /// The calls so far, each with the term that its caller had met.
    calls: Vec<(&'static str, Option<String>)>,
    /// What to do when the next call about a lease comes, before it is answered.
    before_answer: Option<Box<dyn FnOnce() + Send>>,
}

impl FakeManager {
    pub fn start(part: Part) -> FakeManager {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        listener.set_nonblocking(true).expect("not blocking");
        let address = listener.local_addr().expect("an address");
        let manager = FakeManager {
            address,
            shared: Arc::new(Mutex::new(Shared {
                part,
                calls: Vec::new(),
                before_answer: None,
            })),
        };
        let service = manager.clone();
        std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread()
                .enable_all()
                .build()
                .expect("a runtime");
            runtime.block_on(async move {
                let listener = tokio::net::TcpListener::from_std(listener).expect("a listener");
                let served = Server::builder()
                    .add_service(LeasesServer::new(service.clone()))
                    .add_service(AdminPart(service))
                    .serve_with_incoming(TcpIncoming::from(listener));
                served.await.expect("it serves");
            });
        });
        manager
    }

    pub fn plays(&self, part: Part) {
        self.shared.lock().expect("no panic").part = part;
    }

    /// Runs `act` when the next call about a lease comes, before it is answered.
    pub fn before_answer(&self, act: impl FnOnce() + Send + 'static) {
        self.shared.lock().expect("no panic").before_answer = Some(Box::new(act));
    }

    /// The calls so far, without the terms.
    pub fn calls(&self) -> Vec<&'static str> {
        let shared = self.shared.lock().expect("no panic");
        shared.calls.iter().map(|(call, _)| *call).collect()
    }

    /// The term that the caller of the last call had met.
    pub fn last_term(&self) -> Option<String> {
        let shared = self.shared.lock().expect("no panic");
        shared.calls.last().and_then(|(_, term)| term.clone())
    }

    fn called(&self, call: &'static str, metadata: &MetadataMap) {
        let term = metadata.get(TERM).and_then(|term| term.to_str().ok());
        let mut shared = self.shared.lock().expect("no panic");
        shared.calls.push((call, term.map(str::to_owned)));
    }

    /// The status of a standby, or the metadata of a leader's answer.
    fn judge(&self) -> Result<(MetadataMap, Knows), Status> {
        let shared = self.shared.lock().expect("no panic");
        let mut metadata = MetadataMap::new();
        match &shared.part {
            Part::Leads(term, cluster, knows) => {
                metadata.insert(TERM, (*term).into());
                let cluster = cluster.to_string();
                metadata.insert(CLUSTER, cluster.parse().expect("ASCII"));
                Ok((metadata, *knows))
            }
            Part::StandsBy(leader) => {
                let leader = leader.map(|leader| leader.to_string());
                if let Some(leader) = leader {
                    metadata.insert(LEADER, leader.parse().expect("ASCII"));
                }
                let text = "this device manager is a standby";
                Err(Status::with_metadata(
                    tonic::Code::Unavailable,
                    text,
                    metadata,
                ))
            }
        }
    }

    fn grant<T>(
        &self,
        call: &'static str,
        request: &Request<T>,
    ) -> Result<Response<Granted>, Status> {
        self.called(call, request.metadata());
        let act = self.shared.lock().expect("no panic").before_answer.take();
        act.into_iter().for_each(|act| act());
        let (metadata, knows) = self.judge()?;
        if knows == Knows::None {
            let text = "there is no such lease";
            return Err(Status::with_metadata(tonic::Code::NotFound, text, metadata));
        }
        let granted = Granted {
            lease_id: vec![1; 16].into(),
            lifetime_ms: 60_000,
            ..Granted::default()
        };
        let extensions = tonic::Extensions::default();
        Ok(Response::from_parts(metadata, granted, extensions))
    }
}

type Steps = tokio_stream::Once<Result<Progress, Status>>;

#[tonic::async_trait]
impl Leases for FakeManager {
    type RequestStream = Steps;

    async fn request(&self, request: Request<RequestDevices>) -> Result<Response<Steps>, Status> {
        let id = request.get_ref().lease_id.clone();
        let (metadata, mut granted, _) = self.grant("request", &request)?.into_parts();
        granted.lease_id = id;
        let step = Some(progress::Step::Granted(granted));
        let steps = tokio_stream::once(Ok(Progress { step }));
        let extensions = tonic::Extensions::default();
        Ok(Response::from_parts(metadata, steps, extensions))
    }

    async fn confirm(
        &self,
        request: Request<ConfirmReservation>,
    ) -> Result<Response<Granted>, Status> {
        self.grant("confirm", &request)
    }

    async fn renew(&self, request: Request<RenewLease>) -> Result<Response<Granted>, Status> {
        self.grant("renew", &request)
    }

    async fn consider(&self, _: Request<RequestDevices>) -> Result<Response<Considered>, Status> {
        Err(Status::unimplemented("not played"))
    }

    async fn release(
        &self,
        _: Request<ReleaseLease>,
    ) -> Result<Response<ReleaseLeaseReply>, Status> {
        Err(Status::unimplemented("not played"))
    }

    async fn list_leases(
        &self,
        _: Request<ListLeasesRequest>,
    ) -> Result<Response<LeaseList>, Status> {
        Err(Status::unimplemented("not played"))
    }

    async fn list_queue(
        &self,
        _: Request<ListQueueRequest>,
    ) -> Result<Response<QueueList>, Status> {
        Err(Status::unimplemented("not played"))
    }

    async fn list_kinds(&self, _: Request<ListKindsRequest>) -> Result<Response<KindList>, Status> {
        Err(Status::unimplemented("not played"))
    }

    async fn allow_measuring(
        &self,
        _: Request<AllowMeasuringRequest>,
    ) -> Result<Response<MeasuringAllowed>, Status> {
        Err(Status::unimplemented("not played"))
    }

    type ListLinksStream = tokio_stream::Empty<Result<LinkList, Status>>;

    async fn list_links(
        &self,
        _: Request<ListLinksRequest>,
    ) -> Result<Response<Self::ListLinksStream>, Status> {
        Err(Status::unimplemented("not played"))
    }
}

/// The service `Admin`, of which only the question who leads is asked. A leader refuses it, as one does whom
/// the caller shows no credentials.
#[derive(Clone)]
struct AdminPart(FakeManager);

impl NamedService for AdminPart {
    const NAME: &'static str = "causeway.manager.v1.Admin";
}

impl Service<http::Request<Body>> for AdminPart {
    type Response = http::Response<Body>;
    type Error = Infallible;
    type Future = Ready<Result<http::Response<Body>, Infallible>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: http::Request<Body>) -> Self::Future {
        let metadata = MetadataMap::from_headers(request.headers().clone());
        self.0.called("probe", &metadata);
        let status = match self.0.judge() {
            Ok((metadata, _)) => Status::with_metadata(
                tonic::Code::Unauthenticated,
                "a token is required",
                metadata,
            ),
            Err(status) => status,
        };
        ready(Ok(status.into_http()))
    }
}
