//! The library's own log: `CAUSEWAY_LOG`, to stderr, with warnings only by default.
//!
//! `CAUSEWAY_LOG` takes the syntax of `tracing-subscriber`'s `EnvFilter`: `info`,
//! `causeway::transport=debug`, `h2=trace`. The HTTP/2 libraries log only when named. `libcauseway.so`
//! contains its own copy of the tracing crate, so its subscriber does not affect a host application in
//! Rust. A program that links this crate as a library shares the copy. So nothing here runs unless [`init`]
//! is called, which only the C entry points do, and an existing subscriber stays.

mod late;

use std::io::{self, IsTerminal};
use std::sync::Once;

use tracing_subscriber::EnvFilter;
use tracing_subscriber::filter::LevelFilter;

use crate::stderr;

/// The environment variable with the filter.
pub const VARIABLE: &str = "CAUSEWAY_LOG";

// A general `debug` is meant for Causeway, and these libraries would flood the log. The user's directives
// come later and win.
const QUIET: &str = "h2=warn,hyper=warn,hyper_util=warn,tower=warn,tonic=warn";

/// Starts the log. Only the first call has an effect. Call this only when servers are configured: a library
/// without configuration does nothing at all.
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
            // These messages would go to where writing has just failed, and panic.
            .log_internal_errors(false)
            .compact();
        // Another thread may have set a subscriber meanwhile. That one stays, so the result is ignored.
        let _ = match filter {
            // Without a filter of the user's, a plain level is enough: the filter machinery costs a
            // millisecond.
            None => tracing::subscriber::set_global_default(late::Guarded(
                subscriber.with_max_level(LevelFilter::WARN).finish(),
            )),
            Some(wanted) => {
                let filter = EnvFilter::builder().with_default_directive(LevelFilter::WARN.into());
                let filter = filter
                    .parse(format!("{QUIET},{wanted}"))
                    .unwrap_or_else(|error| {
                        stderr::say(format_args!(
                            "{VARIABLE}: invalid log filter ({error}); only warnings are logged"
                        ));
                        EnvFilter::new("warn")
                    });
                let subscriber = subscriber.with_env_filter(filter).finish();
                tracing::subscriber::set_global_default(late::Guarded(subscriber))
            }
        };
    });
}
