//! Packets as the TUN device returns them: an offload header (`struct virtio_net_hdr`), then an IPv4
//! packet, which may be a run of TCP segments.
//!
//! Pure. This module finds a packet's addresses and cuts a run into shorter runs. So a loss or a delay
//! can affect one segment of it, as on a wire. Invariant: every piece is a packet that the kernel
//! accepts. The pieces carry the bytes of the run once each, in order.

use std::net::Ipv4Addr;
use std::ops::Range;

/// The length of the offload header.
pub(super) const HEADER: usize = 10;

/// `gso_type` of a run of TCP segments over IPv4, without the flag for congestion marks.
const RUN_OF_TCP: u8 = 1;
const CONGESTION_MARKED: u8 = 0x80;

const FIN: u8 = 0x01;
const PSH: u8 = 0x08;
const CWR: u8 = 0x80;

/// One packet with its offload header.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Packet(Box<[u8]>);

impl Packet {
    /// Parses a packet; `None` if it is not IPv4, or shorter than its headers say.
    pub(super) fn new(bytes: &[u8]) -> Option<Self> {
        let ip = bytes.get(HEADER..)?;
        let version = ip.first()? >> 4;
        (version == 4 && ip.len() >= 20).then(|| Self(bytes.into()))
    }

    /// The bytes to write to the device.
    pub(super) fn bytes(&self) -> &[u8] {
        &self.0
    }

    /// The length as an IP packet.
    pub(super) fn len(&self) -> usize {
        self.0.len() - HEADER
    }

    /// The addresses of sender and receiver.
    pub(super) fn ends(&self) -> (Ipv4Addr, Ipv4Addr) {
        let address = |at: usize| Ipv4Addr::from(self.word(at));
        (address(HEADER + 12), address(HEADER + 16))
    }

    /// The number of packets on the wire that this packet stands for. It is 1 for all but a
    /// run of TCP segments.
    pub(super) fn segments(&self) -> usize {
        match self.run() {
            Some(run) => run.payload().len().div_ceil(run.segment).max(1),
            None => 1,
        }
    }

    /// Returns the segments `which` of a run, as a run or a single packet.
    pub(super) fn cut(&self, which: Range<usize>) -> Self {
        let segments = self.segments();
        let run = match self.run() {
            Some(run) if which != (0..segments) => run,
            _ => return self.clone(),
        };
        let payload = run.payload();
        let from = payload.start + which.start * run.segment;
        let to = (payload.start + which.end * run.segment).min(payload.end);
        let mut part = [&self.0[..payload.start], &self.0[from..to]].concat();

        if which.len() == 1 {
            // The receiver still has to compute the checksum, but there is nothing to cut.
            part[1] = 0;
            part[4..6].fill(0);
        }
        let offset = u32::try_from(which.start * run.segment).unwrap_or(0);
        let sequence = self.word(run.tcp + 4).wrapping_add(offset);
        part[run.tcp + 4..run.tcp + 8].copy_from_slice(&sequence.to_be_bytes());
        let flags = &mut part[run.tcp + 13];
        if which.end < segments {
            *flags &= !(FIN | PSH);
        }
        if which.start > 0 {
            *flags &= !CWR;
        }
        let first = u16::try_from(which.start).unwrap_or(0);
        restamp(&mut part, run.tcp, first);
        Self(part.into())
    }

    fn word(&self, at: usize) -> u32 {
        u32::from_be_bytes([self.0[at], self.0[at + 1], self.0[at + 2], self.0[at + 3]])
    }

    fn run(&self) -> Option<Run> {
        let bytes = &self.0;
        let segment = usize::from(u16::from_le_bytes([bytes[4], bytes[5]]));
        if bytes[1] & !CONGESTION_MARKED != RUN_OF_TCP || segment == 0 {
            return None;
        }
        let words = |nibble: u8| (nibble >= 5).then_some(usize::from(nibble) * 4);
        let tcp = HEADER + words(bytes[HEADER] & 0x0f)?;
        let start = tcp + words(bytes.get(tcp + 12)? >> 4)?;
        (start < bytes.len()).then_some(Run {
            segment,
            tcp,
            start,
            end: bytes.len(),
        })
    }
}

/// The positions of the parts of a run of TCP segments.
struct Run {
    /// Payload bytes of each segment except the last.
    segment: usize,
    /// Position of the TCP header.
    tcp: usize,
    start: usize,
    end: usize,
}

impl Run {
    fn payload(&self) -> Range<usize> {
        self.start..self.end
    }
}

/// Corrects lengths, identification and checksums after a cut.
fn restamp(part: &mut [u8], tcp: usize, first: u16) {
    let length = u16::try_from(part.len() - HEADER).unwrap_or(u16::MAX);
    let ip = HEADER;
    let identification = u16::from_be_bytes([part[ip + 4], part[ip + 5]]).wrapping_add(first);
    part[ip + 2..ip + 4].copy_from_slice(&length.to_be_bytes());
    part[ip + 4..ip + 6].copy_from_slice(&identification.to_be_bytes());
    part[ip + 10..ip + 12].fill(0);
    let sum = !folded(add(0, &part[ip..tcp]));
    part[ip + 10..ip + 12].copy_from_slice(&sum.to_be_bytes());

    // The receiver adds the rest. This field holds only the sum of the pseudo header, not inverted.
    let tcp_length = u32::try_from(part.len() - tcp).unwrap_or(0);
    let protocol = u32::from(part[ip + 9]);
    let pseudo = folded(add(protocol + tcp_length, &part[ip + 12..ip + 20]));
    part[tcp + 16..tcp + 18].copy_from_slice(&pseudo.to_be_bytes());
}

/// Adds 16-bit words to an internet checksum. `bytes` must have an even length.
fn add(sum: u32, bytes: &[u8]) -> u32 {
    let words = bytes.chunks_exact(2);
    words.fold(sum, |sum, word| {
        sum + u32::from(u16::from_be_bytes([word[0], word[1]]))
    })
}

fn folded(sum: u32) -> u16 {
    let once = (sum & 0xffff) + (sum >> 16);
    let twice = (once & 0xffff) + (once >> 16);
    u16::try_from(twice).unwrap_or(u16::MAX)
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// Makes a run of `payload` bytes in segments of `segment`, from 10.0.0.1 to 10.0.0.2,
    /// with FIN, PSH and CWR.
    pub(in super::super) fn run(payload: usize, segment: u16) -> Packet {
        let mut bytes = vec![0; HEADER + 40];
        bytes[0] = 1;
        bytes[1] = RUN_OF_TCP;
        bytes[4..6].copy_from_slice(&segment.to_le_bytes());
        let ip = HEADER;
        bytes[ip] = 0x45;
        bytes[ip + 9] = 6;
        bytes[ip + 12..ip + 16].copy_from_slice(&[10, 0, 0, 1]);
        bytes[ip + 16..ip + 20].copy_from_slice(&[10, 0, 0, 2]);
        let tcp = ip + 20;
        bytes[tcp + 4..tcp + 8].copy_from_slice(&u32::MAX.to_be_bytes());
        bytes[tcp + 12] = 0x50;
        bytes[tcp + 13] = FIN | PSH | CWR;
        bytes.extend((0..payload).map(|at| u8::try_from(at % 251).unwrap()));
        restamp(&mut bytes, tcp, 0);
        Packet::new(&bytes).unwrap()
    }

    const PAYLOAD: usize = HEADER + 40;

    #[test]
    fn ends_and_segments_are_found() {
        let packet = run(2500, 1000);
        let ends = (Ipv4Addr::new(10, 0, 0, 1), Ipv4Addr::new(10, 0, 0, 2));
        assert_eq!(
            (packet.ends(), packet.segments(), packet.len()),
            (ends, 3, 2540)
        );
        assert!(Packet::new(&[0; HEADER + 20]).is_none());
        assert!(Packet::new(&[0x45; HEADER]).is_none());
    }

    #[test]
    fn pieces_carry_the_bytes_of_the_run_once() {
        let packet = run(2500, 1000);
        let pieces = [packet.cut(0..1), packet.cut(1..2), packet.cut(2..3)];
        let joined = pieces.iter().flat_map(|piece| piece.0[PAYLOAD..].to_vec());
        assert_eq!(joined.collect::<Vec<u8>>(), packet.0[PAYLOAD..]);
        assert_eq!(packet.cut(0..2).segments(), 2);
        assert_eq!(packet.cut(1..3).len(), 40 + 1500);
        assert_eq!(packet.cut(0..3), packet);
    }

    #[test]
    fn what_only_claims_to_be_a_run_stays_whole() {
        let whole = run(2500, 1000);
        // Invalid header lengths, and a segment of length 0.
        for (at, value) in [(HEADER, 0x40), (HEADER + 32, 0x10), (HEADER + 32, 0x40)] {
            let mut packet = whole.clone();
            packet.0[at] = value;
            assert_eq!((packet.segments(), packet.cut(0..1)), (1, packet.clone()));
        }
        assert_eq!(run(2500, 0).segments(), 1);
        let short = Packet::new(&whole.0[..HEADER + 30]).unwrap();
        assert_eq!(short.segments(), 1);
    }

    #[test]
    fn a_piece_has_headers_of_its_own() {
        let packet = run(2500, 1000);
        let (first, last) = (packet.cut(0..1), packet.cut(2..3));
        let tcp = HEADER + 20;
        assert_eq!(last.word(tcp + 4), u32::MAX.wrapping_add(2000));
        assert_eq!(first.0[tcp + 13], CWR);
        assert_eq!(last.0[tcp + 13], FIN | PSH);
        assert_eq!((first.0[1], last.segments()), (0, 1));
        for piece in [first, last, packet.cut(0..2)] {
            assert_eq!(
                folded(add(0, &piece.0[HEADER..tcp])),
                0xffff,
                "checksum of IP"
            );
            let length = usize::from(u16::from_be_bytes([
                piece.0[HEADER + 2],
                piece.0[HEADER + 3],
            ]));
            assert_eq!(length, piece.len());
        }
    }
}
