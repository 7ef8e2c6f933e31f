//! What a host's sessions share, made when the host begins. See [`commons`](crate::worker::objects::commons). Finds
//! native contexts that are of no further use, because a kernel has failed in them.
#![forbid(unsafe_code)]

use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use causeway_proto::status::Status;

pub(crate) use crate::worker::objects::commons::Commons;

use super::shared::Shared;
use crate::runtime::context::Context as NativeContext;
use crate::runtime::event::WaitList;
use crate::runtime::node::Device;
use crate::runtime::queue::Queue as NativeQueue;
use crate::runtime::stdout;
use crate::worker::objects::commons::Contexts;
use crate::worker::objects::console::Console;
use crate::worker::objects::pace::Devices;
use crate::worker::objects::progress::{Progresses, may_spoil};
use crate::worker::objects::warm::Warm;
use crate::worker::threads::Over;

/// Time for an empty command of a queue of its own. If it takes longer, the device is busy, and the context may be
/// good.
const PROBE_WITHIN: Duration = Duration::from_secs(1);
/// How often to look whether that command has ended.
const LOOK_EVERY: Duration = Duration::from_millis(10);

/// Looks whether native contexts of the session still work, if a command has failed so that they may not. Gives one
/// that does not work to no further session. The host then ends with its last session. A session whose commands another
/// worker can execute again ends here, before its client hears of the failure.
pub(super) fn look_for_spoiled_contexts(shared: &Shared) {
    let Some(commons) = &shared.commons else {
        return;
    };
    let is_suspect = shared.outbox.progress().take_suspicion();
    if !is_suspect && !commons.suspicion.swap(false, Ordering::Relaxed) {
        return;
    }
    let contexts: Vec<_> = shared
        .contexts
        .lock()
        .iter()
        .filter_map(Weak::upgrade)
        .collect();
    let mut is_lost = false;
    for context in contexts {
        let Ok(native) = context.native() else {
            continue;
        };
        let mut devices = context.devices.iter();
        let Some(status) = devices.find_map(|(_, device)| probe(native, *device, &shared.over))
        else {
            continue;
        };
        is_lost = true;
        if commons.contexts.spoil(native) {
            tracing::warn!(
                ?status,
                "no command succeeds any more in a context of a host, so the host takes no further \
                                     session"
            );
            retire(shared);
        }
    }
    match (&shared.builds, is_lost && shared.reexecutes) {
        (Some(builds), true) => builds.leave_host(),
        _ => shared.outbox.send_suspects(),
    }
}

/// Leaves it to the other sessions to look, because this one ends before it has looked itself.
pub(super) fn leave_suspicion(shared: &Shared) {
    if let Some(commons) = &shared.commons
        && shared.outbox.progress().take_suspicion()
    {
        commons.suspicion.store(true, Ordering::Relaxed);
    }
}

/// Handles that the driver has made no context for a session of a host. A kernel may have broken the driver for the
/// whole process. The next session then gets a process in which it works.
pub(super) fn note_no_context(shared: &Shared, status: Status) {
    if may_spoil(status) {
        tracing::warn!(
            ?status,
            "the driver makes no context in a host, so the host takes no further session"
        );
        retire(shared);
    }
}

fn retire(shared: &Shared) {
    if let Some(builds) = &shared.builds {
        builds.note_spoiled();
    }
}

/// Runs an empty command in a queue of its own. Returns its status if it fails.
fn probe(native: &NativeContext, device: Device, over: &Over) -> Option<Status> {
    let begin = || {
        let queue = NativeQueue::new(native, device, &[])?;
        let event = queue.marker(&WaitList::new())?;
        queue.flush()?;
        Ok((queue, event))
    };
    let (_queue, event) = match begin() {
        Ok(begun) => begun,
        Err(status) => return Some(status),
    };
    let until = Instant::now() + PROBE_WITHIN;
    while !event.looks_ended() {
        if over.pause(LOOK_EVERY) || Instant::now() >= until {
            return None;
        }
    }
    let status = event.confirm_end();
    status.is_error().then_some(status)
}

/// Captures the process's standard output, which is `/dev/null` until then, and starts the thread that has
/// sessions send their text. `clears` is for [`Commons::clears`]; `warm` are the contexts that were made before.
///
/// # Errors
/// The system cannot start the thread. If standard output cannot be captured, kernels' text is lost.
pub(crate) fn commons(clears: bool, warm: &Arc<Warm>) -> io::Result<Arc<Commons>> {
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
        contexts: Contexts::new(Arc::clone(warm)),
        console,
        clears,
        progresses: Progresses::default(),
        suspicion: AtomicBool::new(false),
        devices: Devices::default(),
    }))
}
