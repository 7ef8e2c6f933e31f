//! Uncompressed PNG files, grey or RGB, with 8 bits for each channel.
//!
//! Invariant: the bytes depend on the picture alone.
#![forbid(unsafe_code)]

use std::io;
use std::path::Path;

/// A picture.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Picture {
    /// Pixels of a line.
    pub(crate) width: usize,
    /// Bytes of a pixel: 1 for grey, 3 for RGB.
    pub(crate) channels: usize,
    /// Lines from the top.
    pub(crate) bytes: Vec<u8>,
}

impl Picture {
    /// Writes the picture to a file.
    pub(crate) fn write(&self, path: &Path) -> io::Result<()> {
        std::fs::write(path, self.encode())
    }

    fn encode(&self) -> Vec<u8> {
        let line = self.width * self.channels;
        let height = self.bytes.len() / line.max(1);
        let mut header = Vec::new();
        header.extend_from_slice(&(self.width as u32).to_be_bytes());
        header.extend_from_slice(&(height as u32).to_be_bytes());
        // Depth, colour type, and the methods, of which only one exists.
        header.extend_from_slice(&[8, if self.channels == 1 { 0 } else { 2 }, 0, 0, 0]);
        let mut lines = Vec::with_capacity((line + 1) * height);
        for pixels in self.bytes.chunks_exact(line.max(1)) {
            // Filter 0 leaves the bytes as they are.
            lines.push(0);
            lines.extend_from_slice(pixels);
        }
        let mut file = b"\x89PNG\r\n\x1a\n".to_vec();
        chunk(&mut file, *b"IHDR", &header);
        chunk(&mut file, *b"IDAT", &stored(&lines));
        chunk(&mut file, *b"IEND", &[]);
        file
    }
}

fn chunk(file: &mut Vec<u8>, kind: [u8; 4], data: &[u8]) {
    file.extend_from_slice(&(data.len() as u32).to_be_bytes());
    let begin = file.len();
    file.extend_from_slice(&kind);
    file.extend_from_slice(data);
    let crc = crc32(&file[begin..]);
    file.extend_from_slice(&crc.to_be_bytes());
}

/// A zlib stream of stored blocks.
fn stored(data: &[u8]) -> Vec<u8> {
    const BLOCK: usize = 65_535;
    let mut stream = vec![0x78, 0x01];
    let last = data.len().saturating_sub(1) / BLOCK;
    for (index, block) in data.chunks(BLOCK).enumerate() {
        let length = block.len() as u16;
        stream.push(u8::from(index == last));
        stream.extend_from_slice(&length.to_le_bytes());
        stream.extend_from_slice(&(!length).to_le_bytes());
        stream.extend_from_slice(block);
    }
    stream.extend_from_slice(&adler32(data).to_be_bytes());
    stream
}

fn adler32(data: &[u8]) -> u32 {
    let (a, b) = data.iter().fold((1u32, 0u32), |(a, b), byte| {
        let a = (a + u32::from(*byte)) % 65_521;
        (a, (a + b) % 65_521)
    });
    b << 16 | a
}

fn crc32(data: &[u8]) -> u32 {
    !data.iter().fold(!0u32, |crc, byte| {
        (0..8).fold(crc ^ u32::from(*byte), |crc, _| {
            if crc & 1 == 1 {
                0xedb8_8320 ^ crc >> 1
            } else {
                crc >> 1
            }
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn checksums_are_the_known_ones() {
        assert_eq!(crc32(b"123456789"), 0xcbf4_3926);
        assert_eq!(adler32(b"Wikipedia"), 0x11e6_0398);
    }

    #[test]
    fn a_picture_has_its_size_in_the_header() {
        let picture = Picture {
            width: 3,
            channels: 1,
            bytes: vec![7; 6],
        };
        let file = picture.encode();
        assert_eq!(&file[16..24], [0, 0, 0, 3, 0, 0, 0, 2]);
        assert_eq!(&file[file.len() - 8..file.len() - 4], b"IEND");
    }
}
