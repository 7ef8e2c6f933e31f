//! The connection to the device manager, of whichever of its services: found, secured and authenticated as the
//! library does it, by the same settings.
//!
//! ```text
//! context.with_manager(async |manager| {
//!     let request = manager.request(ListLeasesRequest {});
//!     let list = manager.hear(manager.leases().list_leases(request)).await?;
//!     …
//! })
//! ```
//! Invariant: nothing waits longer than [`LIMIT`], but streams that are asked to.

use std::path::{Path, PathBuf};
use std::time::Duration;

use causeway::transport::manager::Conversation;
use causeway_proto::manager::admin_client::AdminClient;
use causeway_proto::manager::leases_client::LeasesClient;
use causeway_proto::status::WireError;
use tonic::transport::Channel;
use tonic::{Request, Response, Status};

use crate::context::Context;
use crate::failure::Failure;
use crate::validity;

/// For reaching the manager, and then for each of its answers.
const LIMIT: Duration = Duration::from_secs(10);
/// A list of all leases of a large cluster.
const MAX_WORD: usize = 64 << 20;

/// See the module.
#[derive(Debug)]
pub(crate) struct Connection {
    conversation: Conversation,
    address: String,
    /// What is shown to it.
    certificate: Option<PathBuf>,
}

impl Context {
    /// Does `work` with the manager that is configured.
    ///
    /// # Errors
    /// There is none, or it cannot be reached, or what `work` says.
    pub(crate) fn with_manager<T>(
        &self,
        work: impl AsyncFnOnce(&Connection) -> Result<T, Failure>,
    ) -> Result<T, Failure> {
        block_on(async {
            let connection = Connection::new(self).await?;
            work(&connection).await
        })
    }
}

/// Does what has to wait for the network.
///
/// # Errors
/// What the work says, or that the system has no room for it.
pub(crate) fn block_on<T>(work: impl Future<Output = Result<T, Failure>>) -> Result<T, Failure> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build();
    let runtime = runtime.map_err(|error| Failure::new(error.to_string()))?;
    let result = runtime.block_on(work);
    // Whatever a peer has not answered is not waited for.
    runtime.shutdown_background();
    result
}

impl Connection {
    /// To the manager that is configured.
    ///
    /// # Errors
    /// There is none, or it cannot be reached.
    pub(crate) async fn new(context: &Context) -> Result<Connection, Failure> {
        let settings = context.settings();
        let Some(manager) = &settings.manager else {
            let of_manager =
                |problem: &&causeway::config::Problem| problem.origin != "CAUSEWAY_REQUEST";
            let problem = settings.problems.iter().find(of_manager);
            let what = problem.map_or_else(
                || "no device manager is configured".to_owned(),
                |problem| format!("no device manager is configured that can be used: {problem}"),
            );
            return Err(Failure::new(what).cure(
                "--manager HOST[:PORT], CAUSEWAY_MANAGER, or address below [manager] in servers.toml names it",
            ));
        };
        let address = manager.address.to_string();
        let reached = tokio::time::timeout(LIMIT, Conversation::with(manager)).await;
        let reached = reached.unwrap_or_else(|_| Err(silent(&address)));
        let certificate = manager.tls.certificate.clone();
        let failed = |error| unreached(error, certificate.as_deref());
        Ok(Connection {
            conversation: reached.map_err(failed)?,
            address,
            certificate,
        })
    }

    /// `host:port` as configured.
    pub(crate) fn address(&self) -> &str {
        &self.address
    }

    /// What programs and tools do with leases.
    pub(crate) fn leases(&self) -> LeasesClient<Channel> {
        LeasesClient::new(self.conversation.channel()).max_decoding_message_size(MAX_WORD)
    }

    /// What administrators do.
    pub(crate) fn admin(&self) -> AdminClient<Channel> {
        AdminClient::new(self.conversation.channel()).max_decoding_message_size(MAX_WORD)
    }

    /// A message with who says it.
    pub(crate) fn request<T>(&self, message: T) -> Request<T> {
        self.conversation.request(message)
    }

    /// Waits for the manager's answer.
    ///
    /// # Errors
    /// It refuses, or says nothing.
    pub(crate) async fn hear<T>(
        &self,
        call: impl Future<Output = Result<Response<T>, Status>>,
    ) -> Result<T, Failure> {
        match tokio::time::timeout(LIMIT, call).await {
            Ok(Ok(answer)) => Ok(answer.into_inner()),
            Ok(Err(status)) => Err(self.failure(&status)),
            Err(_) => Err(Failure::unreached(silent(&self.address))),
        }
    }

    /// What a status means, of a stream for example.
    pub(crate) fn failure(&self, status: &Status) -> Failure {
        // What gRPC's machinery made up has a source.
        match std::error::Error::source(status) {
            Some(_) => unreached(
                self.conversation.explain(status),
                self.certificate.as_deref(),
            ),
            None => Failure::answered(status),
        }
    }
}

/// As whom is spoken to says, unless it is about our own certificate. TLS tells that by its own word, which a connection
/// that breaks may swallow: then it is the cause if it has expired.
fn unreached(error: WireError, certificate: Option<&Path>) -> Failure {
    let (WireError::Protocol { reason, .. } | WireError::Closed { reason, .. }) = &error else {
        return Failure::unreached(error);
    };
    let is_ours = |path: &&Path| {
        reason.contains("alert: CertificateExpired")
            || !reason.contains("invalid peer certificate") && validity::is_over(path)
    };
    match certificate.filter(is_ours) {
        Some(path) => validity::refused(path),
        None => Failure::unreached(error),
    }
}

fn silent(address: &str) -> WireError {
    WireError::Unreachable {
        address: address.to_owned(),
        reason: format!("no answer within {} s", LIMIT.as_secs()),
    }
}
