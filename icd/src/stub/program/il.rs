//! SPIR-V, as far as specialisation constants need it.
//!
//! The node's driver reads modules. Here only ids and sizes of constants are looked up, so that
//! `clSetProgramSpecializationConstant` needs no round trip. Invariant: pure; a damaged module has no
//! constants.

const MAGIC: u32 = 0x0723_0203;
const HEADER: usize = 5;
const OP_TYPE_INT: u32 = 21;
const OP_TYPE_FLOAT: u32 = 22;
const OP_SPEC_CONSTANT_TRUE: u32 = 48;
const OP_SPEC_CONSTANT_FALSE: u32 = 49;
const OP_SPEC_CONSTANT: u32 = 50;
const OP_DECORATE: u32 = 71;
const DECORATION_SPEC_ID: u32 = 1;

/// Returns the size in bytes of a specialisation constant's value, 1 for a Boolean; `None` if there is no
/// such constant.
pub(super) fn constant_size(module: &[u8], id: u32) -> Option<usize> {
    let words = words(module)?;
    let instructions = || Instructions(&words[HEADER..]);
    let target = instructions().find_map(|instruction| match instruction {
        [first, target, DECORATION_SPEC_ID, literal, ..]
            if operation(*first) == OP_DECORATE && *literal == id =>
        {
            Some(*target)
        }
        _ => None,
    })?;
    let type_id = instructions().find_map(|instruction| match instruction {
        [first, type_id, result, ..] if *result == target => match operation(*first) {
            OP_SPEC_CONSTANT_TRUE | OP_SPEC_CONSTANT_FALSE => Some(None),
            OP_SPEC_CONSTANT => Some(Some(*type_id)),
            _ => None,
        },
        _ => None,
    })?;
    let Some(type_id) = type_id else {
        return Some(1);
    };
    instructions().find_map(|instruction| match instruction {
        [first, result, width, ..] if *result == type_id => {
            let number = matches!(operation(*first), OP_TYPE_INT | OP_TYPE_FLOAT);
            number.then_some(*width as usize / 8)
        }
        _ => None,
    })
}

// The words of a module, in either byte order.
fn words(module: &[u8]) -> Option<Vec<u32>> {
    let chunks = module.chunks_exact(4);
    let whole = chunks.remainder().is_empty() && module.len() / 4 >= HEADER;
    let little = chunks.map(|bytes| u32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]));
    let words: Vec<u32> = little.collect();
    match words.first() {
        Some(&MAGIC) if whole => Some(words),
        Some(first) if whole && first.swap_bytes() == MAGIC => {
            Some(words.into_iter().map(u32::swap_bytes).collect())
        }
        _ => None,
    }
}

fn operation(first: u32) -> u32 {
    first & 0xFFFF
}

/// The instructions of a module, up to the first damaged one.
struct Instructions<'a>(&'a [u32]);

impl<'a> Iterator for Instructions<'a> {
    type Item = &'a [u32];

    fn next(&mut self) -> Option<&'a [u32]> {
        let length = (self.0.first()? >> 16) as usize;
        let (instruction, rest) = self.0.split_at_checked(length.max(1))?;
        self.0 = rest;
        Some(instruction)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Constants: 7 is a Boolean, 8 an `int`, 9 a `double`; 10 decorates nothing.
    fn module() -> Vec<u32> {
        let decorated = |target, id| [4 << 16 | OP_DECORATE, target, DECORATION_SPEC_ID, id];
        let head = [MAGIC, 0x0001_0000, 0, 99, 0];
        [
            &head[..],
            &decorated(20, 7),
            &decorated(21, 8),
            &decorated(22, 9),
            &decorated(23, 10),
            &[2 << 16 | 20, 1],
            &[4 << 16 | OP_TYPE_INT, 2, 32, 0],
            &[3 << 16 | OP_TYPE_FLOAT, 3, 64],
            &[3 << 16 | OP_SPEC_CONSTANT_TRUE, 1, 20],
            &[4 << 16 | OP_SPEC_CONSTANT, 2, 21, 5],
            &[5 << 16 | OP_SPEC_CONSTANT, 3, 22, 0, 0],
        ]
        .concat()
    }

    fn bytes(words: &[u32], of: fn(u32) -> [u8; 4]) -> Vec<u8> {
        words.iter().flat_map(|word| of(*word)).collect()
    }

    #[test]
    fn constants_have_the_sizes_of_their_types() {
        for of in [u32::to_le_bytes, u32::to_be_bytes] {
            let module = bytes(&module(), of);
            let sizes = [7, 8, 9, 10, 11].map(|id| constant_size(&module, id));
            assert_eq!(sizes, [Some(1), Some(4), Some(8), None, None]);
        }
        assert_eq!(constant_size(b"kernel void k() {}", 7), None);
    }

    proptest! {
        #[test]
        fn a_damaged_module_is_survived(at in 0usize..200, byte: u8, length in 0usize..200) {
            let mut module = bytes(&module(), u32::to_le_bytes);
            let place = at % module.len();
            module[place] = byte;
            module.truncate(length.max(1));
            let _ = constant_size(&module, 8);
        }
    }
}
