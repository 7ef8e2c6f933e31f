//! Opens a connection to a device manager: HTTP/2 over TLS over TCP.
//!
//! This module knows no calls. Invariant: the socket belongs to the network namespace of the calling thread.

use std::net::SocketAddr;

use causeway_proto::endpoint::{KeepAlive, over_connection};
use causeway_security::{ClientTls, secure};
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;
use tonic::transport::Channel;

use crate::Refused;

/// Connects to the manager at this address.
pub(crate) async fn dial(address: SocketAddr, tls: &ClientTls) -> Result<Channel, Refused> {
    let no = |error: &dyn std::fmt::Display| Refused(error.to_string());
    let socket = TcpStream::connect(address)
        .await
        .map_err(|error| no(&error))?;
    let handshake = tls
        .handshake(&address.ip().to_string())
        .map_err(|error| no(&error))?;
    let secured = secure(handshake, socket, &[])
        .await
        .map_err(|error| no(&error))?;
    let mut once = Some(TokioIo::new(secured));
    let connector = tower::service_fn(move |_| {
        let stream = once.take();
        let gone = || std::io::Error::from(std::io::ErrorKind::NotConnected);
        std::future::ready(stream.ok_or_else(gone))
    });
    over_connection("http://manager", KeepAlive::OF_SEVERAL)
        .connect_with_connector(connector)
        .await
        .map_err(|error| no(&error))
}
