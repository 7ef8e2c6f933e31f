//! What a host's sessions share, made when the host begins. See [`commons`](crate::worker::objects::commons).
#![forbid(unsafe_code)]

use std::io;
use std::sync::Arc;

pub(crate) use crate::worker::objects::commons::Commons;

use crate::runtime::stdout;
use crate::worker::objects::commons::Contexts;
use crate::worker::objects::console::Console;
use crate::worker::objects::progress::Progresses;

/// Captures the process's standard output, which is `/dev/null` until then, and starts the thread that has
/// sessions send their text. `clears` is for [`Commons::clears`].
///
/// # Errors
/// The system cannot start the thread. If standard output cannot be captured, kernels' text is lost.
pub(crate) fn commons(clears: bool) -> io::Result<Arc<Commons>> {
    let captured = stdout::capture();
    if let Err(error) = &captured {
        tracing::warn!(%error, "cannot capture standard output, so the output of kernels' printf is lost");
    }
    let console = captured.ok().map(Console::new);
    if let Some(console) = console.clone() {
        let thread = std::thread::Builder::new().name("printf".into());
        thread.spawn(move || console.serve())?;
    }
    Ok(Arc::new(Commons {
        contexts: Contexts::default(),
        console,
        clears,
        progresses: Progresses::default(),
    }))
}
