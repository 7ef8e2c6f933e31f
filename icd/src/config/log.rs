//! The library's own log: `CAUSEWAY_LOG`, to stderr, with warnings only by default.
//!
//! `CAUSEWAY_LOG` takes a level and `target=level` pairs: `info`, `causeway::transport=debug`, `h2=trace`.
//! They are `tracing-subscriber`'s `Targets`: its `EnvFilter`, which knows spans too, would make the library
//! larger by a regular-expression engine. The HTTP/2 libraries log only when named. `libcauseway.so`
//! contains its own copy of the tracing crate, so its subscriber does not affect a host application in
//! Rust. A program that links this crate as a library shares the copy. So nothing here runs unless [`init`]
//! is called, which only the C entry points do, and an existing subscriber stays.

mod late;

use std::io::{self, IsTerminal};
use std::sync::Once;

use causeway_proto::log_filter::{self, BadDirective};
use tracing_subscriber::filter::{LevelFilter, ParseError, Targets};
use tracing_subscriber::fmt;
use tracing_subscriber::layer::SubscriberExt as _;

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
        let warnings = Targets::new().with_default(LevelFilter::WARN);
        let filter = match std::env::var(VARIABLE) {
            Ok(wanted) if !wanted.is_empty() => targets(&wanted).unwrap_or_else(|error| {
                stderr::say(format_args!(
                    "{VARIABLE}: invalid log filter ({error}); only warnings are logged"
                ));
                warnings
            }),
            _ => warnings,
        };
        let lines = fmt::layer()
            .with_writer(late::stderr)
            .with_ansi(io::stderr().is_terminal())
            // These messages would go to where writing has just failed, and panic.
            .log_internal_errors(false)
            .compact();
        let subscriber = tracing_subscriber::registry().with(lines).with(filter);
        // Another thread may have set a subscriber meanwhile. That one stays, so the result is ignored.
        let _ = tracing::subscriber::set_global_default(late::Guarded(subscriber));
    });
}

fn targets(wanted: &str) -> Result<Targets, BadDirective> {
    let directives = log_filter::directives(&format!("{QUIET},{wanted}"))?;
    let targets = directives.parse();
    targets.map_err(|_: ParseError| BadDirective::Invalid(wanted.to_owned()))
}
