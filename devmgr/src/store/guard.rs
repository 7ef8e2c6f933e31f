//! redb's panics over a damaged file, as errors.
//!
//! redb believes what a page says as long as its checksum was not looked at, and panics where that makes no sense.
//! Invariant: within [`guarded`] a panic writes nothing to standard error and ends as [`StoreError::Damaged`]; all other
//! panics are as before.

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
            if !IS_GUARDED.get() {
                before(info);
            }
        }));
    });
    let was_guarded = IS_GUARDED.replace(true);
    let result = catch_unwind(AssertUnwindSafe(work));
    IS_GUARDED.set(was_guarded);
    result.unwrap_or_else(|panic| {
        let said = panic.downcast_ref::<String>().map(String::as_str);
        let said = said.or_else(|| panic.downcast_ref::<&str>().copied());
        let first = said.and_then(|said| said.lines().next());
        Err(StoreError::Damaged(format!(
            "a page of it makes no sense ({})",
            first.unwrap_or("redb has panicked")
        )))
    })
}
