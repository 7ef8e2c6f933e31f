//! Passes the errors of a native context to the sessions that use it.
//!
//! A driver gets one listener with a context and keeps it for ever, but sessions come and go. Invariant: no
//! listener is called under the lock.
#![forbid(unsafe_code)]

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::Mutex;

use crate::runtime::context::ErrorListener;

/// The listeners of one native context. Clones are the same list.
#[derive(Clone, Default)]
pub(crate) struct Listeners(Arc<Mutex<Listed>>);

#[derive(Default)]
struct Listed {
    last: u64,
    all: HashMap<u64, Arc<ErrorListener>>,
}

/// Keeps a session's listener for a context's errors registered.
pub(crate) struct Listening {
    listeners: Listeners,
    number: u64,
}

impl Drop for Listening {
    fn drop(&mut self) {
        self.listeners.0.lock().all.remove(&self.number);
    }
}

impl Listeners {
    /// Returns the listener for the driver.
    pub(crate) fn for_driver(&self) -> ErrorListener {
        let listeners = self.clone();
        Box::new(move |text| listeners.tell(text))
    }

    /// Adds a session's listener.
    pub(crate) fn add(&self, listener: ErrorListener) -> Listening {
        let mut listed = self.0.lock();
        listed.last += 1;
        let number = listed.last;
        listed.all.insert(number, Arc::new(listener));
        Listening {
            listeners: self.clone(),
            number,
        }
    }

    /// Returns whether no session uses the context.
    pub(crate) fn is_empty(&self) -> bool {
        self.0.lock().all.is_empty()
    }

    fn tell(&self, text: &str) {
        let all: Vec<_> = self.0.lock().all.values().map(Arc::clone).collect();
        for listener in all {
            listener(text);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_reach_those_who_listen() {
        let listeners = Listeners::default();
        let driver = listeners.for_driver();
        let heard = Arc::new(Mutex::new(Vec::new()));
        let listen = |name: &'static str| {
            let heard = Arc::clone(&heard);
            listeners.add(Box::new(move |text| {
                heard.lock().push(format!("{name}: {text}"))
            }))
        };
        driver("before");
        assert!(listeners.is_empty());
        let first = listen("a");
        driver("one");
        let _second = listen("b");
        drop(first);
        driver("two");
        assert!(!listeners.is_empty());
        assert_eq!(*heard.lock(), ["a: one", "b: two"]);
    }
}
