//! redb's panics over a damaged file, as errors.
//!
//! redb believes what a page says as long as its checksum was not looked at, and panics where that makes no sense.
//! Invariant: within [`guarded`] a panic ends as [`StoreError::Damaged`], and its place is in the log, because it may be a
//! fault of ours and not of the file; all other panics are as before.

use std::any::Any;
use std::backtrace::Backtrace;
use std::cell::Cell;
use std::panic::{AssertUnwindSafe, PanicHookInfo, catch_unwind, set_hook, take_hook};
use std::sync::Once;

use super::StoreError;

thread_local! {
    /// Whether this thread is within [`guarded`].
    static IS_GUARDED: Cell<bool> = const { Cell::new(false) };
}

/// What `work` gives; a panic of it is an error. What `work` has used must not be used any more then.
pub(super) fn guarded<T>(work: impl FnOnce() -> Result<T, StoreError>) -> Result<T, StoreError> {
    static HOOK: Once = Once::new();
    HOOK.call_once(|| {
        let before = take_hook();
        set_hook(Box::new(move |info: &PanicHookInfo<'_>| {
            if IS_GUARDED.get() {
                log(info);
            } else {
                before(info);
            }
        }));
    });
    let was_guarded = IS_GUARDED.replace(true);
    let result = catch_unwind(AssertUnwindSafe(work));
    IS_GUARDED.set(was_guarded);
    result.unwrap_or_else(|panic| {
        Err(StoreError::Damaged(format!(
            "a page of it makes no sense ({})",
            said(&*panic).lines().next().unwrap_or_default()
        )))
    })
}

fn log(info: &PanicHookInfo<'_>) {
    let place = info.location().map(ToString::to_string);
    tracing::error!(
        said = said(info.payload()),
        place = place.unwrap_or_default(),
        // Empty unless `RUST_BACKTRACE` asks for it.
        backtrace = %Backtrace::capture(),
        "the store's library or the manager has panicked over the store"
    );
}

fn said(panic: &(dyn Any + Send)) -> &str {
    let said = panic.downcast_ref::<String>().map(String::as_str);
    let said = said.or_else(|| panic.downcast_ref::<&str>().copied());
    said.unwrap_or("redb has panicked")
}
