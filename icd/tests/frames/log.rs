//! The library's log in memory, for the tests of one process that read it. Not here: who subscribes to it.

use std::io::{self, Write};
use std::sync::Mutex;

static LOG: Mutex<Vec<u8>> = Mutex::new(Vec::new());

/// Writes to the log.
pub struct IntoLog;

impl Write for IntoLog {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        LOG.lock().unwrap().write(bytes)
    }
    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// What was logged so far.
pub fn logged() -> String {
    String::from_utf8(LOG.lock().unwrap().clone()).expect("text")
}
