//! A connection to the device manager and its services. The library's code and settings locate the
//! manager, secure the connection and authenticate the caller.
//!
//! ```text
//! context.with_manager(async |manager| {
//!     let request = manager.request(ListLeasesRequest {});
//!     let list = manager.hear(manager.leases().list_leases(request)).await?;
//!     …
//! })
//! ```
//! Invariant: no call waits longer than [`LIMIT`], except for streams that the caller asks for.

use std::path::{Path, PathBuf};
use std::time::Duration;

use causeway::config::ServerSettings;
use causeway::transport::manager::Conversation;
use causeway_proto::manager::admin_client::AdminClient;
use causeway_proto::manager::leases_client::LeasesClient;
use causeway_proto::status::{TlsFault, WireError};
use tonic::transport::Channel;
use tonic::{Request, Response, Status, Streaming};

use crate::context::Context;
use crate::failure::Failure;
use crate::validity;

/// Timeout for reaching the manager, and then for each of its answers.
const LIMIT: Duration = Duration::from_secs(10);
/// Timeout for a conversation that is repeated.
const REPEATED_LIMIT: Duration = Duration::from_secs(20);
/// Maximum size of an answer: a list of all leases of a large cluster.
const MAX_WORD: usize = 64 << 20;

/// A connection to the device manager. See the module.
#[derive(Debug)]
pub(crate) struct Connection {
    conversation: Conversation,
    address: String,
    /// The certificate that is shown to the manager.
    certificate: Option<PathBuf>,
    has_several: bool,
}

impl Context {
    /// Connects to the configured manager and runs `work` with the connection.
    ///
    /// # Errors
    /// No manager is configured, or it cannot be reached, or `work` fails.
    pub(crate) fn with_manager<T>(
        &self,
        work: impl AsyncFnOnce(&Connection) -> Result<T, Failure>,
    ) -> Result<T, Failure> {
        block_on(async {
            let connection = Connection::new(self).await?;
            work(&connection).await
        })
    }

    /// As [`Context::with_manager`], for work that changes nothing at the manager. If the manager stops leading or the
    /// connection breaks meanwhile, the work is done again with the manager that leads then.
    ///
    /// # Errors
    /// No manager is configured, or it cannot be reached, or `work` fails.
    pub(crate) fn read_from_manager<T>(
        &self,
        work: impl AsyncFn(&Connection) -> Result<T, Failure>,
    ) -> Result<T, Failure> {
        block_on(async {
            let manager = configured(self)?;
            let work = &work;
            let converse = |conversation| {
                let connection = Connection::over(conversation, &manager);
                // Only an error of the connection ends the conversation.
                async move {
                    work(&connection)
                        .await
                        .map_or_else(Failure::of_connection, |done| Ok(Ok(done)))
                }
            };
            let done = Conversation::repeated(&manager, REPEATED_LIMIT, LIMIT, converse).await;
            done.unwrap_or_else(|error| Err(unreached(error, manager.tls.certificate.as_deref())))
        })
    }
}

/// The manager that the settings name.
fn configured(context: &Context) -> Result<ServerSettings, Failure> {
    let settings = context.settings();
    if let Some(manager) = settings.manager {
        return Ok(manager);
    }
    let of_manager = |problem: &&causeway::config::Problem| problem.origin != "CAUSEWAY_REQUEST";
    let problem = settings.problems.iter().find(of_manager);
    let what = problem.map_or_else(
        || "no device manager is configured".to_owned(),
        |problem| format!("the configured device manager cannot be used: {problem}"),
    );
    Err(Failure::new(what).cure(
        "name it with --manager HOST[:PORT], CAUSEWAY_MANAGER, or address in [manager] of servers.toml; discover:NAME \
         finds one that announces itself",
    ))
}

/// Runs a future to its end, on a runtime of its own.
///
/// # Errors
/// The future's error, or that no runtime can be created.
pub(crate) fn block_on<T>(work: impl Future<Output = Result<T, Failure>>) -> Result<T, Failure> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build();
    let runtime = runtime.map_err(|error| Failure::new(error.to_string()))?;
    let result = runtime.block_on(work);
    // Does not wait for background tasks whose peers have not answered.
    runtime.shutdown_background();
    result
}

impl Connection {
    /// Connects to the configured manager.
    ///
    /// # Errors
    /// No manager is configured, or it cannot be reached.
    pub(crate) async fn new(context: &Context) -> Result<Connection, Failure> {
        let manager = configured(context)?;
        let reached = Conversation::with(&manager, LIMIT).await;
        let failed = |error| unreached(error, manager.tls.certificate.as_deref());
        Ok(Connection::over(reached.map_err(failed)?, &manager))
    }

    fn over(conversation: Conversation, manager: &ServerSettings) -> Connection {
        Connection {
            address: conversation.address().to_owned(),
            conversation,
            certificate: manager.tls.certificate.clone(),
            // Of managers that announce themselves, another one may be found.
            has_several: !manager.further.is_empty() || manager.sought.is_some(),
        }
    }

    /// Whether the settings name several managers, so that another one may take over.
    pub(crate) fn has_several(&self) -> bool {
        self.has_several
    }

    /// The `host:port` of the manager that was reached, as configured.
    pub(crate) fn address(&self) -> &str {
        &self.address
    }

    /// The `Leases` service.
    pub(crate) fn leases(&self) -> LeasesClient<Channel> {
        LeasesClient::new(self.conversation.channel()).max_decoding_message_size(MAX_WORD)
    }

    /// The `Admin` service.
    pub(crate) fn admin(&self) -> AdminClient<Channel> {
        AdminClient::new(self.conversation.channel()).max_decoding_message_size(MAX_WORD)
    }

    /// A request with the caller's credentials.
    pub(crate) fn request<T>(&self, message: T) -> Request<T> {
        self.conversation.request(message)
    }

    /// Waits for the manager's answer.
    ///
    /// # Errors
    /// The manager refuses the call, or does not answer in time.
    pub(crate) async fn answer_to<T>(
        &self,
        call: impl Future<Output = Result<Response<T>, Status>>,
    ) -> Result<T, Failure> {
        match tokio::time::timeout(LIMIT, call).await {
            Ok(Ok(answer)) => {
                self.believe(&answer)?;
                Ok(answer.into_inner())
            }
            Ok(Err(status)) => Err(self.failure(&status)),
            Err(_) => Err(Failure::unreached(silent(&self.address))),
        }
    }

    /// Waits for all parts of an answer that comes in parts.
    ///
    /// # Errors
    /// The manager refuses the call, or a part does not come in time.
    pub(crate) async fn parts_of<T>(
        &self,
        call: impl Future<Output = Result<Response<Streaming<T>>, Status>>,
    ) -> Result<Vec<T>, Failure> {
        let mut stream = self.answer_to(call).await?;
        let mut parts = Vec::new();
        loop {
            match tokio::time::timeout(LIMIT, stream.message()).await {
                Ok(Ok(Some(part))) => parts.push(part),
                Ok(Ok(None)) => return Ok(parts),
                Ok(Err(status)) => return Err(self.failure(&status)),
                Err(_) => return Err(Failure::unreached(silent(&self.address))),
            }
        }
    }

    /// Decides whether an answer is believed.
    ///
    /// # Errors
    /// The manager was deposed, or belongs to another cluster.
    pub(crate) fn believe<T>(&self, answer: &Response<T>) -> Result<(), Failure> {
        let believed = self.conversation.believe(answer.metadata());
        believed.map_err(Failure::unreached)
    }

    /// Whether a status is the manager's own answer about a lease, and is believed.
    pub(crate) fn is_word(&self, status: &Status) -> bool {
        self.conversation.is_word(status)
    }

    /// The failure for a status of a call or stream.
    pub(crate) fn failure(&self, status: &Status) -> Failure {
        if let Some(error) = self.conversation.not_leading(status) {
            return Failure::unreached(error);
        }
        // Statuses that gRPC itself makes have a source; the manager's have none.
        match std::error::Error::source(status) {
            Some(_) => unreached(
                self.conversation.explain(status),
                self.certificate.as_deref(),
            ),
            None => Failure::answered(&self.address, status),
        }
    }
}

/// The failure for a connection that failed. An error about the manager is reported as it is. One about
/// our own certificate names that file. The TLS alert about it can get lost when the connection breaks;
/// then an expired certificate is taken as the cause.
fn unreached(error: WireError, certificate: Option<&Path>) -> Failure {
    let is_ours = |path: &&Path| match &error {
        WireError::Tls { fault, .. } if *fault == TlsFault::OwnExpired => true,
        WireError::Tls { fault, .. } if *fault != TlsFault::Other => false,
        WireError::Tls { .. } | WireError::Protocol { .. } | WireError::Closed { .. } => {
            validity::is_over(path)
        }
        _ => false,
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
