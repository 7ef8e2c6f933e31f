//! A blocking connection with TLS, for one who reads and one who writes at the same time.
//!
//! Invariant: records leave in the order in which they were sealed, since one lock is held over both.

use std::io::{self, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::sync::Arc;

use parking_lot::Mutex;

use crate::records::{Opener, Records};

/// See the module.
#[derive(Debug)]
pub struct LaneTls {
    socket: TcpStream,
    records: Arc<Records>,
    reading: Mutex<Opener>,
    // Sealed bytes, empty between two writes.
    writing: Mutex<Vec<u8>>,
}

/// Plain bytes that are sealed, then written, so that the other end has something to do meanwhile.
const AT_ONCE: usize = 64 << 10;

impl LaneTls {
    /// Of an established connection.
    ///
    /// # Errors
    /// As [`Records::open`], of what came with the handshake.
    pub fn new(socket: TcpStream, records: Arc<Records>) -> io::Result<LaneTls> {
        Ok(LaneTls {
            socket,
            reading: Mutex::new(Opener::new(Arc::clone(&records))?),
            writing: Mutex::default(),
            records,
        })
    }

    /// Its socket, for options and shutting down; not to be read or written.
    #[must_use]
    pub fn socket(&self) -> &TcpStream {
        &self.socket
    }

    /// What seals and opens; for who takes the connection over. Nothing of it is to be in use any more.
    #[must_use]
    pub fn into_parts(self) -> (TcpStream, Arc<Records>) {
        (self.socket, self.records)
    }

    /// Ends it in both directions; who reads or writes returns.
    pub fn shut_down(&self) {
        let _ = self.socket.shutdown(Shutdown::Both);
    }
}

impl Read for &LaneTls {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let receive = |bytes: &mut [u8]| (&self.socket).read(bytes);
        self.reading.lock().read(into, receive)
    }
}

impl Write for &LaneTls {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let mut sealed = self.writing.lock();
        for part in bytes.chunks(AT_ONCE) {
            sealed.clear();
            self.records.seal(part, &mut sealed)?;
            (&self.socket).write_all(&sealed)?;
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
