//! Operations between two hosts: shapes, cuts, refused dialing, counts.

use crate::emulator::Fate;
use crate::error::{Error, Result};
use crate::firewall;
use crate::host::Host;
use crate::network::Network;
use crate::shape::Shape;
use crate::tools;

/// One direction between two hosts, or both, of a [`Network`]. Changes are effective when the call returns.
#[derive(Clone, Copy)]
pub struct Link<'n> {
    network: &'n Network,
    from: &'n Host,
    to: &'n Host,
    both: bool,
}

impl<'n> Link<'n> {
    pub(crate) fn new(network: &'n Network, from: &'n Host, to: &'n Host, both: bool) -> Self {
        assert!(from.index != to.index, "a link needs two hosts");
        Self {
            network,
            from,
            to,
            both,
        }
    }

    fn directions(&self) -> impl Iterator<Item = (&'n Host, &'n Host)> + use<'n> {
        let back = self.both.then_some((self.to, self.from));
        [(self.from, self.to)].into_iter().chain(back)
    }

    /// Delays, loses, reorders or slows packets. With [`Network::link`], each of the two directions gets
    /// the shape, so a delay of 10 ms makes a round trip of 20.
    ///
    /// # Errors
    ///
    /// [`Error::Setting`] for an invalid shape; [`Error::Unavailable`] without `/dev/net/tun`.
    pub fn shape(&self, shape: Shape) -> Result<()> {
        let ways = self
            .directions()
            .map(|(from, to)| (from.index, to.index, shape));
        self.network.shape(&ways.collect::<Vec<_>>())
    }

    /// Returns the shape of the direction from the first host to the second, if it has one.
    #[must_use]
    pub fn shaped(&self) -> Option<Shape> {
        let emulator = self.network.emulator()?;
        emulator.shape_of((self.from.address, self.to.address))
    }

    /// Returns the statistics of a shaped link, both directions added.
    #[must_use]
    pub fn fate(&self) -> Fate {
        let Some(emulator) = self.network.emulator() else {
            return Fate::default();
        };
        let fates = self
            .directions()
            .map(|(from, to)| emulator.fate((from.address, to.address)));
        fates.flatten().fold(Fate::default(), |sum, fate| Fate {
            passed: sum.passed + fate.passed,
            lost: sum.lost + fate.lost,
            late: sum.late + fate.late,
            overflowed: sum.overflowed + fate.overflowed,
        })
    }

    /// Cuts the link: from now on nothing arrives, without any notification.
    ///
    /// # Errors
    ///
    /// [`Error::Tool`] if `nft` fails.
    pub fn cut(&self) -> Result<()> {
        self.set(firewall::cut, true)
    }

    /// Undoes a cut.
    ///
    /// # Errors
    ///
    /// [`Error::Tool`] if `nft` fails.
    pub fn mend(&self) -> Result<()> {
        self.set(firewall::cut, false)
    }

    /// Drops the first host's attempts to open TCP connections to the second from now on. The other
    /// direction and open connections still work, as if the second host were behind a NAT router.
    ///
    /// # Errors
    ///
    /// [`Error::Tool`] if `nft` fails.
    pub fn refuse_dialling(&self) -> Result<()> {
        self.set(firewall::undialled, true)
    }

    /// Undoes [`refuse_dialling`](Self::refuse_dialling).
    ///
    /// # Errors
    ///
    /// [`Error::Tool`] if `nft` fails.
    pub fn allow_dialling(&self) -> Result<()> {
        self.set(firewall::undialled, false)
    }

    fn set(&self, script: fn(std::net::Ipv4Addr, bool) -> String, on: bool) -> Result<()> {
        for (from, to) in self.directions() {
            tools::nft(&to.namespace, &script(from.address, on))?;
        }
        Ok(())
    }

    /// Returns how many bytes arrived, both directions added; [`Traffic`](crate::Traffic) defines what counts.
    ///
    /// # Errors
    ///
    /// Any error that prevents reading the counters.
    pub fn bytes(&self) -> Result<u64, Error> {
        let traffic = self.network.traffic()?;
        let bytes = self
            .directions()
            .map(|(from, to)| traffic.bytes(from.index, to.index));
        Ok(bytes.sum())
    }
}
