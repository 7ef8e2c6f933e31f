//! The dashboard: what a plain client gets of it, and what a real browser shows.

mod browser;
mod client;
mod crowd;
mod page;
mod pictures;
mod requests;
mod trace;

/// The first snapshot of a dashboard that does not authenticate.
pub(super) async fn snapshot(address: std::net::SocketAddr) -> serde_json::Value {
    let mut events = client::Events::open(client::clear(address).await, "").await;
    events.expect("snapshot").await
}
