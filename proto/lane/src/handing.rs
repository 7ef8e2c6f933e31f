//! Passes the shared memory from its maker to the other process.
//!
//! The two processes use a Unix socket on which both have proved the session's secret. The maker sends
//! one byte with two descriptors: the memory and a second socket. The other process answers with one byte
//! when it has mapped the memory. A third byte from the maker confirms the lane. From then on the two
//! sockets are the rings' notifiers and carry nothing else.
//!
//! Invariants: memory that cannot be mapped safely is refused, and unexpected descriptors are closed. The
//! other process never has a lane that the maker has given up. In the reverse case, when the other
//! process gives up while the maker confirms, the maker's stream ends at once.
#![forbid(unsafe_code)]

use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};
use std::time::Instant;

use rustix::net::sockopt::{self, Timeout};
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, SocketFlags, SocketType,
};

use crate::memory::{MappingError, Memory, Which};
use crate::notifier::Notifier;
use crate::shared::RingPair;

const HERE: u8 = b'M';
const TAKEN: u8 = b'T';
const GO: u8 = b'G';
/// Number of descriptors: the memory and a notifier.
const DESCRIPTORS: usize = 2;

/// Why no memory is shared over this socket.
#[derive(Debug, thiserror::Error)]
pub enum NotShared {
    /// An error of the system, or a timeout.
    #[error("{0}")]
    System(#[from] io::Error),
    /// The offered memory is unsuitable.
    #[error(transparent)]
    MappingError(#[from] MappingError),
    /// The other side sent something else.
    #[error("the other side does not share memory")]
    Nothing,
}

/// Makes memory, and lets the other end of `socket` [accept](accept) it.
///
/// # Errors
/// [`NotShared`]; the socket is closed.
pub fn offer(socket: OwnedFd, deadline: Instant) -> Result<RingPair, NotShared> {
    let (memory, made) = Memory::make()?;
    let (notifier, theirs) = rustix::net::socketpair(
        AddressFamily::UNIX,
        SocketType::STREAM,
        SocketFlags::CLOEXEC,
        None,
    )
    .map_err(io::Error::from)?;
    limit(&socket, Some(deadline))?;
    send(&socket, [made.as_fd(), theirs.as_fd()])?;
    receive_byte(&socket, TAKEN, deadline)?;
    limit(&socket, None)?;
    // After the deadline the other side may have given up, so the lane must not be confirmed.
    if Instant::now() >= deadline {
        return Err(NotShared::System(io::ErrorKind::TimedOut.into()));
    }
    // This is the last step that can fail. Once it succeeds, both sides have a lane.
    send_byte(&socket, GO)?;
    Ok(RingPair::new(
        memory,
        Which::FromMaker,
        Notifier(socket),
        Notifier(notifier),
    ))
}

/// Accepts the memory that the other end of `socket` [offers](offer). The deadline should be later than
/// the other end's, so that the other end gives up first.
///
/// # Errors
/// [`NotShared`]; the socket is closed. Nothing was written to the memory.
pub fn accept(socket: OwnedFd, deadline: Instant) -> Result<RingPair, NotShared> {
    limit(&socket, Some(deadline))?;
    let (made, notifier) = receive(&socket)?;
    let memory = Memory::adopt(&made)?;
    let domain = sockopt::socket_domain(&notifier).map_err(io::Error::from)?;
    if domain != AddressFamily::UNIX {
        return Err(NotShared::Nothing);
    }
    // The maker may have made the socket non-blocking. Waits on a notifier must block.
    rustix::io::ioctl_fionbio(&notifier, false).map_err(io::Error::from)?;
    send_byte(&socket, TAKEN)?;
    receive_byte(&socket, GO, deadline)?;
    limit(&socket, None)?;
    Ok(RingPair::new(
        memory,
        Which::ToMaker,
        Notifier(notifier),
        Notifier(socket),
    ))
}

fn limit(socket: &OwnedFd, deadline: Option<Instant>) -> io::Result<()> {
    let left = deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
    if left.is_some_and(|left| left.as_millis() == 0) {
        return Err(io::ErrorKind::TimedOut.into());
    }
    for timeout in [Timeout::Recv, Timeout::Send] {
        sockopt::set_socket_timeout(socket, timeout, left)?;
    }
    Ok(())
}

fn send_byte(socket: &OwnedFd, word: u8) -> io::Result<()> {
    retry(|| rustix::net::send(socket, &[word], SendFlags::NOSIGNAL)).map(drop)
}

fn receive_byte(socket: &OwnedFd, word: u8, deadline: Instant) -> Result<(), NotShared> {
    limit(socket, Some(deadline))?;
    let mut heard = [0];
    match retry(|| rustix::io::read(socket, &mut heard))? {
        1 if heard == [word] => Ok(()),
        _ => Err(NotShared::Nothing),
    }
}

fn send(
    socket: &OwnedFd,
    descriptors: [std::os::fd::BorrowedFd<'_>; DESCRIPTORS],
) -> io::Result<()> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(DESCRIPTORS))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    control.push(SendAncillaryMessage::ScmRights(&descriptors));
    let bytes = [IoSlice::new(&[HERE])];
    retry(|| rustix::net::sendmsg(socket, &bytes, &mut control, SendFlags::NOSIGNAL)).map(drop)
}

fn receive(socket: &OwnedFd) -> Result<(OwnedFd, OwnedFd), NotShared> {
    let mut byte = [0];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(DESCRIPTORS))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let got = retry(|| {
        let mut parts = [IoSliceMut::new(&mut byte)];
        rustix::net::recvmsg(socket, &mut parts, &mut control, RecvFlags::CMSG_CLOEXEC)
    })?;
    let mut descriptors = control.drain().flat_map(|message| match message {
        RecvAncillaryMessage::ScmRights(descriptors) => descriptors.collect::<Vec<_>>(),
        _ => Vec::new(),
    });
    let (first, second) = (descriptors.next(), descriptors.next());
    match (first, second) {
        (Some(made), Some(notifier)) if got.bytes == 1 && byte == [HERE] => Ok((made, notifier)),
        _ => Err(NotShared::Nothing),
    }
}

fn retry<T>(mut call: impl FnMut() -> rustix::io::Result<T>) -> io::Result<T> {
    loop {
        match call() {
            Err(rustix::io::Errno::INTR) => {}
            // An expired socket timeout shows as EAGAIN.
            Err(rustix::io::Errno::AGAIN) => return Err(io::ErrorKind::TimedOut.into()),
            other => return Ok(other?),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read, Write};
    use std::os::unix::net::UnixStream;
    use std::thread::JoinHandle;
    use std::time::Duration;

    const LIMIT: Duration = Duration::from_secs(10);

    // Starts an accepting end with this deadline. Returns the offering end after the memory was mapped.
    fn half_way(deadline: Instant) -> (UnixStream, JoinHandle<Result<RingPair, NotShared>>) {
        let (mut maker, taker) = UnixStream::pair().unwrap();
        maker.set_read_timeout(Some(LIMIT)).unwrap();
        let taking = std::thread::spawn(move || accept(taker.into(), deadline));
        let (_memory, made) = Memory::make().unwrap();
        let (_bell, theirs) = UnixStream::pair().unwrap();
        let socket = OwnedFd::from(maker.try_clone().unwrap());
        send(&socket, [made.as_fd(), theirs.as_fd()]).unwrap();
        let mut taken = [0];
        maker.read_exact(&mut taken).unwrap();
        assert_eq!(taken, [TAKEN]);
        (maker, taking)
    }

    #[test]
    fn who_takes_has_a_lane_only_once_the_maker_says_so() {
        let (mut maker, taking) = half_way(Instant::now() + LIMIT);
        maker.write_all(&[GO]).unwrap();
        taking.join().unwrap().unwrap();
        for said in [&b""[..], &[0], &[TAKEN]] {
            let (mut maker, taking) = half_way(Instant::now() + LIMIT);
            maker.write_all(said).unwrap();
            drop(maker);
            assert!(taking.join().unwrap().is_err(), "{said:?}");
        }
    }

    #[test]
    fn a_maker_that_says_nothing_is_not_waited_for() {
        let (mut maker, taking) = half_way(Instant::now() + Duration::from_millis(100));
        let error = taking.join().unwrap().unwrap_err();
        assert!(
            matches!(&error, NotShared::System(error) if error.kind() == io::ErrorKind::TimedOut),
            "{error}"
        );
        // The maker sees that the socket is closed, and can use another transport.
        assert_eq!(maker.read(&mut [0]).unwrap(), 0);
        assert!(maker.write_all(&[GO]).is_err());
    }

    #[test]
    fn a_maker_whose_time_is_over_says_no_more() {
        let (maker, mut taker) = UnixStream::pair().unwrap();
        taker.set_read_timeout(Some(LIMIT)).unwrap();
        let deadline = Instant::now() + Duration::from_millis(100);
        let offering = std::thread::spawn(move || offer(maker.into(), deadline));
        let memory = receive(&OwnedFd::from(taker.try_clone().unwrap()));
        memory.unwrap();
        assert!(offering.join().unwrap().is_err());
        // The deadline has passed.
        assert!(taker.write_all(&[TAKEN]).is_err());
        assert_eq!(taker.read(&mut [0]).unwrap(), 0);
    }
}
