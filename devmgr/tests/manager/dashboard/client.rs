//! A plain client of the dashboard, over HTTP/1.1, with TLS or without.

use std::io;
use std::net::SocketAddr;
use std::path::Path;

use causeway_security::{ClientTls, secure};
use serde_json::Value;
use tokio::io::{AsyncBufReadExt, AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, BufReader};
use tokio::net::TcpStream;

use super::super::process::AT_MOST;

/// A connection in the clear, or one with TLS.
pub(super) trait Wire: AsyncRead + AsyncWrite + Unpin + Send {}
impl<S: AsyncRead + AsyncWrite + Unpin + Send> Wire for S {}

/// An answer.
#[derive(Debug)]
pub(super) struct Answer {
    pub(super) code: u16,
    pub(super) head: String,
    pub(super) body: String,
}

impl Answer {
    /// The value of a header, in the case of the server.
    pub(super) fn header(&self, name: &str) -> Option<&str> {
        let mut lines = self.head.lines().filter_map(|line| line.split_once(": "));
        lines.find(|(of, _)| *of == name).map(|(_, value)| value)
    }

    pub(super) fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }
}

/// Opens a connection with TLS, and with a client certificate if there is one.
pub(super) async fn over_tls(
    address: SocketAddr,
    ca: &Path,
    identity: Option<(&Path, &Path)>,
) -> Box<dyn Wire> {
    let tls = ClientTls::load(ca, identity).unwrap().over_http1();
    let socket = TcpStream::connect(address).await.unwrap();
    let stream = secure(tls.handshake("127.0.0.1").unwrap(), socket, &[]);
    Box::new(stream.await.unwrap())
}

pub(super) async fn clear(address: SocketAddr) -> Box<dyn Wire> {
    Box::new(TcpStream::connect(address).await.unwrap())
}

/// Sends a request, and returns the whole answer.
pub(super) async fn ask(mut wire: Box<dyn Wire>, head: &str, headers: &str, body: &str) -> Answer {
    let length = body.len();
    let text = format!(
        "{head} HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: {length}\r\n{headers}\r\n{body}"
    );
    wire.write_all(text.as_bytes()).await.unwrap();
    let answer = tokio::time::timeout(AT_MOST, whole(wire)).await;
    let answer = answer.expect("an answer in time").unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").expect("a head");
    let code = head.split(' ').nth(1).and_then(|code| code.parse().ok());
    Answer {
        code: code.expect("a status"),
        head: head.to_owned(),
        body: body.to_owned(),
    }
}

/// An answer with its head. Some servers leave the connection open after it.
async fn whole(wire: Box<dyn Wire>) -> io::Result<String> {
    let (mut wire, mut answer, mut length) = (BufReader::new(wire), String::new(), None);
    while !answer.ends_with("\r\n\r\n") {
        let from = answer.len();
        if wire.read_line(&mut answer).await? == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        let line = answer[from..].trim_end().to_ascii_lowercase();
        let told = line.strip_prefix("content-length:");
        length = told.and_then(|told| told.trim().parse().ok()).or(length);
    }
    match length {
        Some(length) => wire.take(length).read_to_string(&mut answer).await?,
        None => wire.read_to_string(&mut answer).await?,
    };
    Ok(answer)
}

/// A stream of events.
pub(super) struct Events {
    wire: BufReader<Box<dyn Wire>>,
    /// What has come of the next events.
    text: Vec<u8>,
}

impl Events {
    /// Opens the stream. It must be accepted.
    pub(super) async fn open(wire: Box<dyn Wire>, headers: &str) -> Events {
        let (events, head) = Events::ask(wire, headers).await;
        assert!(head.starts_with("HTTP/1.1 200 "), "{head}");
        events
    }

    /// Whether the stream is accepted. It ends at once.
    pub(super) async fn opens(wire: Box<dyn Wire>, headers: &str) -> bool {
        let (_, head) = Events::ask(wire, headers).await;
        head.starts_with("HTTP/1.1 200 ")
    }

    async fn ask(mut wire: Box<dyn Wire>, headers: &str) -> (Events, String) {
        let text = format!("GET /events HTTP/1.1\r\nHost: 127.0.0.1\r\n{headers}\r\n");
        wire.write_all(text.as_bytes()).await.unwrap();
        let mut events = Events {
            wire: BufReader::new(wire),
            text: Vec::new(),
        };
        let mut head = String::new();
        while !head.ends_with("\r\n\r\n") {
            head += &events.line().await.unwrap();
        }
        (events, head)
    }

    async fn line(&mut self) -> io::Result<String> {
        let mut line = String::new();
        let read = tokio::time::timeout(AT_MOST, self.wire.read_line(&mut line)).await;
        match read.expect("a line in time")? {
            0 => Err(io::ErrorKind::UnexpectedEof.into()),
            _ => Ok(line),
        }
    }

    /// Reads a chunk of the body. A long event has several.
    async fn chunk(&mut self) -> io::Result<()> {
        let line = self.line().await?;
        let length = usize::from_str_radix(line.trim_end(), 16).expect("a length");
        if length == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        let mut chunk = vec![0; length + 2];
        let read = tokio::time::timeout(AT_MOST, self.wire.read_exact(&mut chunk)).await;
        read.expect("a chunk in time")?;
        self.text.extend_from_slice(&chunk[..length]);
        Ok(())
    }

    /// The next event: its name and its data. `None`: the stream has ended.
    pub(super) async fn next(&mut self) -> Option<(String, Value)> {
        loop {
            while !self.text.ends_with(b"\n\n") {
                self.chunk().await.ok()?;
            }
            // A chunk has the end of one event at most, because each is sent by itself.
            let text = String::from_utf8(std::mem::take(&mut self.text)).unwrap();
            let event = text.strip_prefix("event: ");
            // Others are comments.
            if let Some((name, data)) = event.and_then(|event| event.split_once("\ndata: ")) {
                return Some((name.to_owned(), serde_json::from_str(data).unwrap()));
            }
        }
    }

    /// The next event, which must have this name.
    pub(super) async fn expect(&mut self, name: &str) -> Value {
        let (of, data) = self.next().await.expect("an event");
        assert_eq!(of, name, "{data}");
        data
    }
}
