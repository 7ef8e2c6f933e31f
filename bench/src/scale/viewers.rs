//! Pages that look at the dashboard while the manager is under load, as a browser's streams would.
//!
//! All are one thread beside that of the load. They read and count; nothing is drawn. Invariant: a stream that is
//! refused, or that ends early, fails the run.
#![forbid(unsafe_code)]

use std::thread::JoinHandle;

use serde::Serialize;
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::net::TcpStream;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::Instant;

use super::{Error, PATIENCE};

/// What the pages got.
#[derive(Debug, Clone, Copy, Default, Serialize)]
pub(super) struct Views {
    pub(super) viewers: u32,
    pub(super) seconds: f64,
    /// Snapshots and changes.
    pub(super) events: u64,
    pub(super) bytes: u64,
    /// The longest time without an event of one page, from its request to its end, in seconds.
    pub(super) pause: f64,
}

/// The pages; see the module.
pub(super) struct Viewers {
    stop: watch::Sender<bool>,
    thread: JoinHandle<Result<Views, Error>>,
}

impl Viewers {
    /// Opens the streams.
    pub(super) fn open(count: u32, dashboard: &str) -> Result<Viewers, Error> {
        let (stop, stopped) = watch::channel(false);
        let address = dashboard.to_owned();
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()?;
        let thread = std::thread::Builder::new().name("viewers".to_owned());
        let thread = thread.spawn(move || runtime.block_on(look(count, &address, stopped)))?;
        Ok(Viewers { stop, thread })
    }

    /// Closes them, and returns what they got.
    pub(super) fn end(self) -> Result<Views, Error> {
        // Fails only if the thread has ended, whose result says why.
        let _ = self.stop.send(true);
        let ended = self.thread.join();
        ended.map_err(|_| "the thread of the viewers has panicked")?
    }
}

async fn look(count: u32, address: &str, stopped: watch::Receiver<bool>) -> Result<Views, Error> {
    let begun = Instant::now();
    let mut pages = JoinSet::new();
    for _ in 0..count {
        pages.spawn(page(address.to_owned(), stopped.clone()));
    }
    let mut all = Views {
        viewers: count,
        ..Views::default()
    };
    while let Some(one) = pages.join_next().await {
        let one = one??;
        all.events += one.events;
        all.bytes += one.bytes;
        all.pause = all.pause.max(one.pause);
    }
    all.seconds = begun.elapsed().as_secs_f64();
    Ok(all)
}

/// One stream, until the run is over.
async fn page(address: String, mut stopped: watch::Receiver<bool>) -> Result<Views, Error> {
    let mut last = Instant::now();
    let mut socket = TcpStream::connect(&address).await?;
    let head = format!("GET /events HTTP/1.1\r\nHost: {address}\r\n\r\n");
    socket.write_all(head.as_bytes()).await?;
    let (mut reader, mut line) = (BufReader::with_capacity(64 << 10, socket), Vec::new());
    reader.read_until(b'\n', &mut line).await?;
    if !line.starts_with(b"HTTP/1.1 200 ") {
        let line = String::from_utf8_lossy(&line).into_owned();
        return Err(format!("the dashboard refuses a viewer: {line}").into());
    }
    let mut views = Views::default();
    loop {
        line.clear();
        let read = tokio::select! {
            _ = stopped.wait_for(|stop| *stop) => break,
            // The part of a line that is lost with a cancelled read is that of the last event.
            read = tokio::time::timeout(PATIENCE, reader.read_until(b'\n', &mut line)) => read??,
        };
        if read == 0 {
            return Err("the dashboard has ended a viewer's stream".into());
        }
        views.bytes += read as u64;
        // Each event begins a part of the body, so the lengths of parts stand on lines of their own.
        if line.starts_with(b"event: ") {
            views.events += 1;
            views.pause = views.pause.max(last.elapsed().as_secs_f64());
            last = Instant::now();
        }
    }
    // A page that gets nothing more until the end has waited, too.
    views.pause = views.pause.max(last.elapsed().as_secs_f64());
    Ok(views)
}
