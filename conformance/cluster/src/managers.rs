//! Several device managers of one cluster, as one caller reaches them.
//!
//! This module finds the leader and opens the connection; the caller makes the calls. Invariants: no connection
//! and no question whether a manager leads takes longer than [`ASK_WITHIN`]. Sockets belong to the network
//! namespace of the thread that polls.

use std::net::SocketAddr;
use std::path::Path;
use std::time::Duration;

use causeway_managers::probe::{self, Probed};
use causeway_managers::{Disbelieved, Finder, NotLeader, Patience, Refusal};
use causeway_proto::manager::GetManagerRequest;
use causeway_security::ClientTls;
use parking_lot::Mutex;
use tonic::Request;
use tonic::metadata::MetadataMap;
use tonic::transport::Channel;

use crate::Error;
use crate::dial::dial;

/// Time limit for a connection, and for the answer whether a manager leads.
const ASK_WITHIN: Duration = Duration::from_secs(5);

/// The managers. See the module.
pub struct Managers {
    addresses: Vec<SocketAddr>,
    tls: ClientTls,
    token: String,
    /// The manager that led last.
    led: Mutex<Option<usize>>,
}

impl Managers {
    /// The managers at these addresses. The caller has this token.
    ///
    /// # Errors
    /// [`Error::File`] if the CA's certificate cannot be read.
    pub fn new(addresses: &[SocketAddr], ca: &Path, token: &str) -> Result<Managers, Error> {
        Ok(Managers {
            addresses: addresses.to_owned(),
            tls: ClientTls::load(ca, None)?,
            token: token.to_owned(),
            led: Mutex::new(None),
        })
    }

    /// The number of the manager that led when a caller last found one.
    #[must_use]
    pub fn led(&self) -> Option<usize> {
        *self.led.lock()
    }

    /// Waits until a manager leads, and returns a connection to it. `hear` decides whether an answer is
    /// believed. `tell` adds the caller's term to a question.
    pub async fn leader(
        &self,
        hear: impl Fn(&MetadataMap, bool) -> Result<(), Disbelieved> + Copy,
        tell: impl Fn(&mut MetadataMap) + Copy,
    ) -> Channel {
        let hinted = *self.led.lock();
        let mut finder = Finder::new(self.addresses.len(), hinted, Patience::Forever);
        let ask = |number: usize| async move {
            let asked = tokio::time::timeout(ASK_WITHIN, self.reach(number, hear, tell)).await;
            let failed = NotLeader {
                refusal: Refusal::Failed,
                reason: (),
            };
            asked.unwrap_or(Err(failed))
        };
        loop {
            // A patient search ends only with a leader.
            if let Some((number, channel)) = finder.find(ask).await {
                *self.led.lock() = Some(number);
                return channel;
            }
        }
    }

    /// Adds the caller's token to a message.
    pub fn request<T>(&self, message: T) -> Request<T> {
        let mut request = Request::new(message);
        if let Ok(value) = format!("Bearer {}", self.token).parse() {
            request.metadata_mut().insert("authorization", value);
        }
        request
    }

    async fn reach(
        &self,
        number: usize,
        hear: impl Fn(&MetadataMap, bool) -> Result<(), Disbelieved>,
        tell: impl Fn(&mut MetadataMap),
    ) -> Result<Channel, NotLeader<()>> {
        let failed = || NotLeader {
            refusal: Refusal::Failed,
            reason: (),
        };
        let address = self.addresses[number];
        let dialled = dial(address, &self.tls).await;
        let channel = dialled.map_err(|_| failed())?;
        let mut question = self.request(GetManagerRequest {});
        tell(question.metadata_mut());
        let leads = probe::leads(channel.clone(), question, hear).await;
        let number_of = |named: &str| {
            let named = named.parse().ok()?;
            self.addresses.iter().position(|address| *address == named)
        };
        leads.map_err(|probed: Probed| probed.not_leader(number_of, drop))?;
        Ok(channel)
    }
}
