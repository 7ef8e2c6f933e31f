//! How sessions and their workers end: the label under which an end is counted, and its log message.

use std::process::ExitStatus;

use causeway_proto::id::SessionId;

use super::process;
use super::worker::{EndRequest, Worker};
use crate::accounting::Cause;
use crate::handover::Owner;

/// Labels of the reasons for which sessions end.
pub(super) const ENDINGS: [&str; 9] = [
    "closed",
    "client_lost",
    "violation",
    "never_connected",
    "told_to_end",
    "broken",
    "crashed",
    "unresponsive",
    "died",
];
/// Returns the label under which a session's end is counted, one of [`ENDINGS`].
pub(super) fn ending(
    worker: &Worker,
    said: Option<Cause>,
    status: &std::io::Result<ExitStatus>,
) -> &'static str {
    match (said, status) {
        (_, Ok(status)) if process::is_crash(*status) => "crashed",
        (Some(Cause::ClientClosed), _) => "closed",
        (Some(Cause::ClientLost), _) => "client_lost",
        (Some(Cause::Violation), _) => "violation",
        (Some(Cause::NeverConnected), _) => "never_connected",
        (Some(Cause::Broken), _) => "broken",
        (Some(Cause::ToldToEnd), _) => "told_to_end",
        (None, _) if worker.is_displaced() => "never_connected",
        (None, _) if worker.is_unresponsive() => "unresponsive",
        (None, _) if worker.was_asked() != EndRequest::Nothing => "told_to_end",
        (None, _) => "died",
    }
}

/// Logs how a worker ended, and whose session it served.
pub(super) fn log_end(
    worker: &Worker,
    session: Option<(SessionId, &Owner)>,
    status: std::io::Result<ExitStatus>,
    domain: Option<String>,
) {
    let serial = worker.serial;
    let status = match status {
        Ok(status) => status,
        Err(error) => {
            tracing::error!(%error, worker = serial, "cannot wait for the end of a worker");
            return;
        }
    };
    let cause = process::describe(status);
    let is_expected = status.success() || worker.was_asked() != EndRequest::Nothing;
    let Some((session, owner)) = session else {
        match is_expected {
            true => tracing::debug!(worker = serial, cause, "a spare worker ended"),
            false => tracing::warn!(
                worker = serial,
                cause,
                "a spare worker ended while it loaded the node's OpenCL"
            ),
        }
        return;
    };
    macro_rules! log {
        ($level:ident, $what:literal) => {
            tracing::$level!(
                ?session,
                lease = owner.lease,
                user = owner.user,
                worker = serial,
                domain,
                cause,
                $what
            )
        };
    }
    if domain.is_some() && !status.success() && !worker.leaves_host() {
        log!(warn, "the session ended with its host");
    } else if process::is_crash(status) {
        log!(
            error,
            "the session's worker crashed in a kernel or the driver; other sessions are not affected"
        );
    } else if is_expected {
        log!(info, "session ended");
    } else {
        log!(warn, "the session's worker ended unexpectedly");
    }
}

/// Logs that a worker has died, and that another one takes its place.
pub(super) fn log_replaced(
    before: &Worker,
    session: SessionId,
    owner: &Owner,
    now: &Worker,
    status: &std::io::Result<ExitStatus>,
) {
    tracing::warn!(
        ?session,
        lease = owner.lease,
        user = owner.user,
        worker = before.serial,
        next = now.serial,
        cause = status
            .as_ref()
            .ok()
            .map(|status| process::describe(*status)),
        "the session's worker died or left its host; another one takes its place, and the program executes its commands \
         again"
    );
}

/// Logs how a host ended.
pub(super) fn log_host_end(worker: &Worker, domain: &str, status: &std::io::Result<ExitStatus>) {
    let serial = worker.serial;
    match status {
        Err(error) => tracing::error!(%error, worker = serial, "cannot wait for the end of a host"),
        Ok(status) if status.success() || worker.was_asked() != EndRequest::Nothing => {
            let cause = process::describe(*status);
            tracing::info!(worker = serial, domain, cause, "a host ended");
        }
        Ok(status) => {
            let cause = process::describe(*status);
            tracing::error!(
                worker = serial,
                domain,
                cause,
                "a host crashed in a kernel or the driver; its sessions end, or their programs execute their commands again; \
                 other domains are not affected"
            );
        }
    }
}
