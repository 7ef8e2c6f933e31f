//! How the memory gets from who makes it to the other process.
//!
//! On a Unix socket where both have proved the session's secret the maker sends one byte with two
//! descriptors, the memory and a second socket; the other answers with one byte when it has mapped it. From
//! then on the two sockets are the rings' bells, and nothing else goes over them. Invariant: what is not fit
//! to be mapped without risk is refused, and descriptors that come uncalled for are closed.
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

use crate::bell::Bell;
use crate::memory::{Memory, Unfit, Which};
use crate::shared::Shared;

const HERE: u8 = b'M';
const TAKEN: u8 = b'T';
/// The memory and a bell.
const DESCRIPTORS: usize = 2;

/// No memory is shared over this socket.
#[derive(Debug, thiserror::Error)]
pub enum NotShared {
    /// Something of the system's, a time limit included.
    #[error("{0}")]
    System(#[from] io::Error),
    /// What was offered.
    #[error(transparent)]
    Unfit(#[from] Unfit),
    /// The other side said something else.
    #[error("the other side does not share memory")]
    Nothing,
}

/// Makes memory, and has the other end of `socket` [accept](accept) it.
///
/// # Errors
/// [`NotShared`]; the socket is closed.
pub fn offer(socket: OwnedFd, deadline: Instant) -> Result<Shared, NotShared> {
    let (memory, made) = Memory::make()?;
    let (bell, theirs) = rustix::net::socketpair(
        AddressFamily::UNIX,
        SocketType::STREAM,
        SocketFlags::CLOEXEC,
        None,
    )
    .map_err(io::Error::from)?;
    limit(&socket, Some(deadline))?;
    send(&socket, [made.as_fd(), theirs.as_fd()])?;
    let mut answer = [0];
    let got = retry(|| rustix::io::read(&socket, &mut answer))?;
    if got != 1 || answer != [TAKEN] {
        return Err(NotShared::Nothing);
    }
    limit(&socket, None)?;
    Ok(Shared::new(
        memory,
        Which::FromMaker,
        Bell(socket),
        Bell(bell),
    ))
}

/// Takes the memory that the other end of `socket` [offers](offer).
///
/// # Errors
/// [`NotShared`]; the socket is closed.
pub fn accept(socket: OwnedFd, deadline: Instant) -> Result<Shared, NotShared> {
    limit(&socket, Some(deadline))?;
    let (made, bell) = receive(&socket)?;
    let memory = Memory::adopt(&made)?;
    let domain = sockopt::socket_domain(&bell).map_err(io::Error::from)?;
    if domain != AddressFamily::UNIX {
        return Err(NotShared::Nothing);
    }
    rustix::io::ioctl_fionbio(&bell, false).map_err(io::Error::from)?;
    limit(&socket, None)?;
    retry(|| rustix::net::send(&socket, &[TAKEN], SendFlags::NOSIGNAL))?;
    Ok(Shared::new(
        memory,
        Which::ToMaker,
        Bell(bell),
        Bell(socket),
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
        (Some(made), Some(bell)) if got.bytes == 1 && byte == [HERE] => Ok((made, bell)),
        _ => Err(NotShared::Nothing),
    }
}

fn retry<T>(mut call: impl FnMut() -> rustix::io::Result<T>) -> io::Result<T> {
    loop {
        match call() {
            Err(rustix::io::Errno::INTR) => {}
            Err(rustix::io::Errno::AGAIN) => return Err(io::ErrorKind::TimedOut.into()),
            other => return Ok(other?),
        }
    }
}
