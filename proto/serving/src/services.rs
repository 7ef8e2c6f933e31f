//! The gRPC services of one port, with gRPC's health and reflection. The first part of a call's path
//! selects the service.
//!
//! This module does not authenticate callers; Causeway's own services do. Invariant: reflection lists
//! exactly the services of the port.

use std::collections::HashMap;
use std::convert::Infallible;
use std::future::ready;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::sync::watch;
use tonic::Status;
use tonic::body::Body;
use tonic::codegen::{BoxFuture, Service, http};
use tonic::server::NamedService;
use tonic_health::ServingStatus;
use tonic_health::server::HealthReporter;
use tower::ServiceExt;
use tower::util::BoxCloneSyncService;

type Request = http::Request<Body>;
type Response = http::Response<Body>;
type Boxed = BoxCloneSyncService<Request, Response, Infallible>;

/// Size limit of messages to the health and reflection services, in bytes. They contain only names.
const MAX_NAME: usize = 4 << 10;

/// The services of a port.
#[derive(Clone, Default)]
pub struct Services {
    named: HashMap<&'static str, Boxed>,
    limit: Option<Duration>,
}

/// The file descriptors for reflection are not valid. They are compiled in, so this is an error in the
/// program.
#[derive(Debug, thiserror::Error)]
#[error("gRPC reflection cannot be set up: {0}")]
pub struct NotReflected(#[from] tonic_reflection::server::Error);

impl Services {
    /// Adds a service.
    #[must_use]
    pub fn with<S>(mut self, service: S) -> Services
    where
        S: Service<Request, Response = Response, Error = Infallible>
            + NamedService
            + Clone
            + Send
            + Sync
            + 'static,
        S::Future: Send + 'static,
    {
        // The box hides the service's type. Each call gets a clone of its own.
        self.named
            .insert(S::NAME, BoxCloneSyncService::new(service));
        self
    }

    /// Adds gRPC's health service for the services added so far and for the whole server. Its status
    /// follows `state`.
    #[must_use]
    pub fn with_health<T: Send + Sync + 'static>(
        self,
        mut state: watch::Receiver<T>,
        is_serving: impl Fn(&T) -> bool + Send + 'static,
    ) -> Services {
        let reporter = HealthReporter::new();
        let service = tonic_health::server::HealthService::from_health_reporter(reporter.clone());
        let names: Vec<&'static str> = self.named.keys().copied().chain([""]).collect();
        tokio::spawn(async move {
            loop {
                let status = match is_serving(&state.borrow_and_update()) {
                    true => ServingStatus::Serving,
                    false => ServingStatus::NotServing,
                };
                for name in &names {
                    reporter.set_service_status(*name, status).await;
                }
                if state.changed().await.is_err() {
                    return;
                }
            }
        });
        let server = tonic_health::pb::health_server::HealthServer::new(service);
        self.with(server.max_decoding_message_size(MAX_NAME))
    }

    /// Adds gRPC's reflection, in both versions, for the services added so far. `described` is an encoded
    /// set of their file descriptors.
    ///
    /// # Errors
    /// [`NotReflected`] when the file descriptors are not valid.
    pub fn with_reflection(self, described: &[u8]) -> Result<Services, NotReflected> {
        let names: Vec<&'static str> = self.named.keys().copied().collect();
        let builder = || {
            let builder = tonic_reflection::server::Builder::configure()
                .register_encoded_file_descriptor_set(described)
                .register_encoded_file_descriptor_set(tonic_health::pb::FILE_DESCRIPTOR_SET);
            let names = names.iter().copied();
            names.fold(
                builder,
                tonic_reflection::server::Builder::with_service_name,
            )
        };
        let (v1, v1alpha) = (builder().build_v1()?, builder().build_v1alpha()?);
        let v1 = v1.max_decoding_message_size(MAX_NAME);
        Ok(self
            .with(v1)
            .with(v1alpha.max_decoding_message_size(MAX_NAME)))
    }

    /// Sets a timeout for the start of a call's answer. It applies whatever the call waits for: the rest of
    /// its own message, or the service.
    #[must_use]
    pub fn within(self, limit: Duration) -> Services {
        let limit = Some(limit);
        Services { limit, ..self }
    }
}

impl Service<Request> for Services {
    type Response = Response;
    type Error = Infallible;
    type Future = BoxFuture<Response, Infallible>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        // Each call gets a clone of its service, and waits until that is ready.
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request) -> Self::Future {
        let path = request.uri().path();
        let name = path
            .strip_prefix('/')
            .and_then(|path| path.split('/').next());
        let Some(service) = name.and_then(|name| self.named.get(name)) else {
            let name = name.unwrap_or_default();
            let none = Status::unimplemented(format!("this port has no service `{name}`"));
            return Box::pin(ready(Ok(none.into_http())));
        };
        let answer = service.clone().oneshot(request);
        let Some(limit) = self.limit else {
            return Box::pin(answer);
        };
        Box::pin(async move {
            tokio::time::timeout(limit, answer)
                .await
                .unwrap_or_else(|_| {
                    let late = format!("the call was not answered within {} s", limit.as_secs());
                    Ok(Status::deadline_exceeded(late).into_http())
                })
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A service that never answers.
    #[derive(Clone)]
    struct Waits;

    impl NamedService for Waits {
        const NAME: &'static str = "waits";
    }

    impl Service<Request> for Waits {
        type Response = Response;
        type Error = Infallible;
        type Future = BoxFuture<Response, Infallible>;

        fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
            Poll::Ready(Ok(()))
        }

        fn call(&mut self, _: Request) -> Self::Future {
            Box::pin(std::future::pending())
        }
    }

    #[tokio::test]
    async fn a_call_that_never_gets_done_is_over() {
        let services = Services::default().with(Waits).within(Duration::ZERO);
        let call = http::Request::post("/waits/For")
            .body(Body::empty())
            .unwrap();
        let answer = services.oneshot(call).await.unwrap();
        let status = Status::from_header_map(answer.headers()).unwrap();
        assert_eq!(status.code(), tonic::Code::DeadlineExceeded, "{status}");
    }
}
