//! What a connection counts as: a stranger's, until somebody was let in over it.
//!
//! What it is not: it asks nobody who he is. Invariant: a connection has one place, among the strangers' or
//! among those of callers who are known.

use std::net::{IpAddr, SocketAddr};

use causeway_serving::admission::{Admission, Permit};
use parking_lot::Mutex;

/// Places for connections. A clone counts with it.
#[derive(Clone)]
pub(crate) struct Places {
    pub(crate) strangers: Admission,
    pub(crate) known: Admission,
}

/// There is no place for a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("too many connections")]
pub(crate) struct Full;

/// See the module.
pub(crate) struct Standing {
    address: IpAddr,
    known: Admission,
    place: Mutex<Place>,
}

/// What is counted out when the connection ends.
enum Place {
    Stranger { _place: Permit },
    Known { _place: Permit },
}

impl Standing {
    /// Of a new connection.
    ///
    /// # Errors
    /// [`Full`].
    pub(crate) fn new(
        address: SocketAddr,
        is_known: bool,
        places: &Places,
    ) -> Result<Standing, Full> {
        let address = address.ip();
        let place = match is_known {
            true => known(address, &places.known)?,
            false => Place::Stranger {
                _place: places.strangers.admit(address).ok_or(Full)?,
            },
        };
        Ok(Standing {
            address,
            known: places.known.clone(),
            place: Mutex::new(place),
        })
    }

    /// Somebody is let in.
    ///
    /// # Errors
    /// [`Full`]: he is not, for now.
    pub(crate) fn let_in(&self) -> Result<(), Full> {
        let mut place = self.place.lock();
        if let Place::Stranger { .. } = *place {
            *place = known(self.address, &self.known)?;
        }
        Ok(())
    }

    /// Whether somebody was.
    pub(crate) fn is_known(&self) -> bool {
        matches!(*self.place.lock(), Place::Known { .. })
    }
}

fn known(address: IpAddr, places: &Admission) -> Result<Place, Full> {
    let place = places.admit(address).ok_or(Full)?;
    Ok(Place::Known { _place: place })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn strangers_take_no_place_of_those_who_are_known() {
        let places = Places {
            strangers: Admission::new(1, 1),
            known: Admission::new(1, 1),
        };
        let open = |is_known| Standing::new("127.0.0.1:1".parse().unwrap(), is_known, &places);
        let first = open(false).ok().unwrap();
        assert!(!first.is_known());
        assert_eq!(open(false).err(), Some(Full));
        first.let_in().unwrap();
        first.let_in().unwrap();
        assert!(first.is_known());
        // Its place among the strangers is another's, who finds none among the others.
        let second = open(false).ok().unwrap();
        assert_eq!((second.let_in(), open(true).err()), (Err(Full), Some(Full)));
        assert!(!second.is_known());
        drop(first);
        second.let_in().unwrap();
    }
}
