//! The thread that reads the direct carrier, and decoding, which both carriers share.

use std::io;
use std::net::TcpStream;
use std::sync::Arc;

use causeway_proto::command::EventBatch;
use prost::Message;

use super::carrier::direct::FrameReader;
use super::core::Core;
use crate::thread::Stack;

/// Starts reading frames; buries the session when they end.
pub(super) fn start(core: &Arc<Core>, socket: Arc<TcpStream>) -> io::Result<()> {
    let core = Arc::clone(core);
    super::thread::spawn("cw-events", Stack::Small, move || {
        let undertaker = Undertaker(core);
        read(&undertaker.0, &socket);
    })
}

fn read(core: &Core, socket: &TcpStream) {
    let mut frames = FrameReader::new(socket);
    let mut decoder = Decoder::default();
    loop {
        let reason = match frames.next() {
            Ok(Some(frame)) => match decoder.handle(core, frame) {
                Ok(()) => continue,
                Err(reason) => reason,
            },
            Ok(None) => "the node closed the connection".to_owned(),
            Err(error) => super::socket::plain(&error),
        };
        return core.fail(reason);
    }
}

/// Decodes event batches into the same vectors again and again.
#[derive(Debug, Default)]
pub(super) struct Decoder {
    batch: EventBatch,
}

impl Decoder {
    /// Decodes one batch and hands it on.
    ///
    /// # Errors
    /// Why the peer is no worker of ours.
    pub(super) fn handle(&mut self, core: &Core, bytes: impl bytes::Buf) -> Result<(), String> {
        self.batch
            .merge(bytes)
            .map_err(|error| format!("the node sent nonsense: {error}"))?;
        core.handle_batch(&mut self.batch)
    }
}

/// Buries the session when the reading thread ends, by a panic of a callback too.
pub(super) struct Undertaker(pub(super) Arc<Core>);

impl Drop for Undertaker {
    fn drop(&mut self) {
        self.0.bury("the reading thread has ended".to_owned());
    }
}
