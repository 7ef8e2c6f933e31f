//! The library's own log: `CAUSEWAY_LOG`, to stderr, off but for warnings.
//!
//! `CAUSEWAY_LOG` takes the syntax of `tracing-subscriber`'s `EnvFilter`: `info`,
//! `causeway::transport=debug`, `h2=trace`; the HTTP/2 libraries speak only when named. In `libcauseway.so` the tracing crate is linked in privately, so
//! that a subscriber installed there is invisible to a host application written in Rust, which has its
//! own copy. A program that links this crate as a library shares the copy; therefore nothing here runs
//! unless [`init`] is called, which only the C entry points do, and a subscriber that is
//! already there stays.

mod late;

use std::io::{self, IsTerminal};
use std::sync::Once;

use tracing_subscriber::EnvFilter;
use tracing_subscriber::filter::LevelFilter;

use crate::stderr;

/// The variable.
pub const VARIABLE: &str = "CAUSEWAY_LOG";

// A general `debug` is meant for Causeway; these would drown it. What the user names comes later and holds.
const QUIET: &str = "h2=warn,hyper=warn,hyper_util=warn,tower=warn,tonic=warn";

/// Starts the log, once; later calls do nothing. Call only when servers are configured: an
/// unconfigured library does nothing at all.
pub fn init() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        if tracing::dispatcher::has_been_set() {
            return;
        }
        let filter = std::env::var(VARIABLE)
            .ok()
            .filter(|value| !value.is_empty());
        let subscriber = tracing_subscriber::fmt()
            .with_writer(late::stderr)
            .with_ansi(io::stderr().is_terminal())
            // It would tell of them where it cannot write, and panic.
            .log_internal_errors(false)
            .compact();
        // Another thread may have set one meanwhile; then that one stays.
        let _ = match filter {
            // Without a wish, a plain level: the filter's machinery costs a millisecond.
            None => tracing::subscriber::set_global_default(late::Guarded(
                subscriber.with_max_level(LevelFilter::WARN).finish(),
            )),
            Some(wish) => {
                let filter = EnvFilter::builder().with_default_directive(LevelFilter::WARN.into());
                let filter = filter
                    .parse(format!("{QUIET},{wish}"))
                    .unwrap_or_else(|error| {
                        stderr::say(format_args!("{VARIABLE}: {error}"));
                        EnvFilter::new("warn")
                    });
                let subscriber = subscriber.with_env_filter(filter).finish();
                tracing::subscriber::set_global_default(late::Guarded(subscriber))
            }
        };
    });
}
