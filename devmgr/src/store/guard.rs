//! Turns redb's panics over a damaged file into errors.
//!
//! redb trusts a page's contents until its checksum is verified, and panics where they make no sense.
//! Invariant: a panic within [`guarded`] becomes [`StoreError::Damaged`]. Its location is logged, because
//! the fault may be in the program and not in the file. All other panics are handled as before.

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

/// Runs `work` and turns its panic into an error. After such an error, the objects that `work` used must
/// not be used again.
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
    // Restored and not cleared, because calls can be nested.
    IS_GUARDED.set(was_guarded);
    result.unwrap_or_else(|panic| {
        Err(StoreError::Damaged(format!(
            "a page is invalid ({})",
            said(&*panic).lines().next().unwrap_or_default()
        )))
    })
}

fn log(info: &PanicHookInfo<'_>) {
    let place = info.location().map(ToString::to_string);
    tracing::error!(
        said = said(info.payload()),
        place = place.unwrap_or_default(),
        // Empty unless `RUST_BACKTRACE` is set.
        backtrace = %Backtrace::capture(),
        "a panic while the store was accessed"
    );
}

fn said(panic: &(dyn Any + Send)) -> &str {
    let said = panic.downcast_ref::<String>().map(String::as_str);
    let said = said.or_else(|| panic.downcast_ref::<&str>().copied());
    said.unwrap_or("redb has panicked")
}
