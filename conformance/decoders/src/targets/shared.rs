//! Offers of shared memory: the other process's bytes on the socket, its descriptors, and its
//! writes into the rings.

use std::io::{self, Read, Write};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::thread;
use std::time::{Duration, Instant};

use causeway_lane::{Stream, accept, offer};
use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, ftruncate, memfd_create};
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags,
};

use super::{Form, Target};

const PATIENCE: Duration = Duration::from_secs(60);
/// Maximum number of descriptors in one message.
const MOST: usize = 4;
/// Number of words of a ring, each in its own cache line: the positions of writer and reader,
/// and whether they sleep.
const WORDS: usize = 4;
const LINE: u64 = 128;

/// Memory whose descriptors can be sent. The first is made as our own sender makes it, the others are not.
struct Kit(Vec<OwnedFd>);

/// The input has five parts: the number of bytes sent with the descriptors, the number of descriptors,
/// which ones, two bytes to send, and the words of both rings.
pub(super) fn target() -> io::Result<Target> {
    let kit = Kit::new()?;
    let said = [1, 2, 0, 7, 0, 0, b'M', b'G'];
    let rings = [
        [0u64; WORDS],
        [4096, 0, 0, 0],
        [0, u64::MAX, 1, 1],
        [1 << 40, (1 << 40) - 100, 0, 1],
    ];
    let valid = rings.iter().map(|ring| {
        let words = ring.iter().chain(ring).flat_map(|word| word.to_le_bytes());
        said.into_iter().chain(words).collect()
    });
    let valid = valid.collect();
    Ok(
        Target::new("shared memory", Form::Bytes, valid, move |bytes| {
            kit.offered(bytes).expect("the system has sockets")
        })
        .weighing(4),
    )
}

impl Kit {
    fn new() -> io::Result<Kit> {
        let genuine = genuine()?;
        let length = rustix::fs::fstat(&genuine)?.st_size.cast_unsigned();
        let memory = |seals: SealFlags, length: u64| -> io::Result<OwnedFd> {
            let made = memfd_create("offered", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)?;
            ftruncate(&made, length)?;
            fcntl_add_seals(&made, seals)?;
            Ok(made)
        };
        let both = SealFlags::SHRINK | SealFlags::GROW;
        let files = vec![
            genuine,
            memory(SealFlags::empty(), length)?,
            memory(SealFlags::GROW, length)?,
            memory(both, length - 1)?,
            memory(both, 0)?,
            memory(both | SealFlags::WRITE, length)?,
            tempfile::tempfile()?.into(),
        ];
        Ok(Kit(files))
    }

    // Returns whether a lane was made.
    fn offered(&self, input: &[u8]) -> io::Result<bool> {
        let byte = |at: usize| input.get(at).copied().unwrap_or(0);
        let (ours, theirs) = UnixStream::pair()?;
        let (notifier, their_notifier) = UnixStream::pair()?;
        let sent: Vec<BorrowedFd<'_>> = (0..usize::from(byte(1)) % (MOST + 1))
            .map(|at| self.0.get(usize::from(byte(2 + at)) % (self.0.len() + 1)))
            .map(|file| file.map_or(their_notifier.as_fd(), AsFd::as_fd))
            .collect();
        let (words, memory) = input
            .get(2 + MOST..)
            .unwrap_or_default()
            .split_at_checked(2)
            .unwrap_or_default();
        let at_once = usize::from(byte(0)).min(words.len());
        send(&ours, &words[..at_once], &sent)?;
        (&ours).write_all(&words[at_once..])?;
        self.set(memory)?;
        ours.shutdown(std::net::Shutdown::Write)?;
        notifier.shutdown(std::net::Shutdown::Both)?;
        let Ok(shared) = accept(theirs.into(), Instant::now() + PATIENCE) else {
            return Ok(false);
        };
        let stream = Stream::Shared(shared);
        drop((ours, notifier));
        // Reads whatever the rings contain: bytes, an end, or an error.
        let mut into = [0; 4096];
        for _ in 0..4 {
            if !matches!((&stream).read(&mut into), Ok(1..)) {
                break;
            }
        }
        let _ = (&stream).write(&into);
        Ok(true)
    }

    // Writes into the rings as the other process might.
    fn set(&self, words: &[u8]) -> io::Result<()> {
        let memory = &self.0[0];
        let second = rustix::fs::fstat(memory)?.st_size.cast_unsigned() / 2;
        let places = [0, second]
            .into_iter()
            .flat_map(|ring| (0..WORDS as u64).map(move |word| ring + word * LINE));
        let mut words = words.chunks(size_of::<u64>());
        for place in places {
            let mut whole = [0; size_of::<u64>()];
            let word = words.next().unwrap_or_default();
            whole[..word.len()].copy_from_slice(word);
            rustix::io::pwrite(memory, &whole, place)?;
        }
        Ok(())
    }
}

// Returns the memory that our own sender offers.
fn genuine() -> io::Result<OwnedFd> {
    let (ours, theirs) = UnixStream::pair()?;
    let offering = thread::spawn(move || offer(theirs.into(), Instant::now() + PATIENCE).is_ok());
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(2))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let mut byte = [0];
    let mut parts = [io::IoSliceMut::new(&mut byte)];
    rustix::net::recvmsg(&ours, &mut parts, &mut control, RecvFlags::CMSG_CLOEXEC)?;
    let memory = control.drain().find_map(|message| match message {
        RecvAncillaryMessage::ScmRights(mut descriptors) => descriptors.next(),
        _ => None,
    });
    drop(ours);
    let _ = offering.join();
    memory.ok_or_else(|| io::Error::other("nothing was offered"))
}

fn send(socket: &UnixStream, words: &[u8], descriptors: &[BorrowedFd<'_>]) -> io::Result<()> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MOST))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    if !descriptors.is_empty() {
        control.push(SendAncillaryMessage::ScmRights(descriptors));
    }
    rustix::net::sendmsg(
        socket,
        &[io::IoSlice::new(words)],
        &mut control,
        SendFlags::NOSIGNAL,
    )?;
    Ok(())
}
