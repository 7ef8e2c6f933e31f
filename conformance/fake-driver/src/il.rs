//! The kernels of a SPIR-V module, as a source without bodies.
//!
//! Only the entry points and the number of their parameters are read. The types of parameters are not
//! determined, so any argument is accepted. Invariant: pure; a damaged module is refused.

const MAGIC: u32 = 0x0723_0203;
const OP_ENTRY_POINT: u32 = 15;
const OP_FUNCTION: u32 = 54;
const OP_FUNCTION_PARAMETER: u32 = 55;
const MODEL_KERNEL: u32 = 6;

/// Returns the declarations of a module's kernels; `None` if the bytes are no module.
pub(crate) fn declarations(module: &[u8]) -> Option<String> {
    let words: Vec<u32> = module
        .chunks_exact(4)
        .map(|bytes| u32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]))
        .collect();
    if !module.len().is_multiple_of(4) || words.len() < 5 || words[0] != MAGIC {
        return None;
    }
    let mut kernels: Vec<(u32, String, usize)> = Vec::new();
    let mut function = 0;
    let mut rest = &words[5..];
    while let Some(&first) = rest.first() {
        let (length, operation) = ((first >> 16) as usize, first & 0xFFFF);
        if length == 0 || length > rest.len() {
            return None;
        }
        let (instruction, next) = rest.split_at(length);
        match (operation, instruction) {
            (OP_ENTRY_POINT, [_, MODEL_KERNEL, id, name @ ..]) => {
                kernels.push((*id, literal(name), 0));
            }
            (OP_FUNCTION, [_, _, id, ..]) => function = *id,
            (OP_FUNCTION_PARAMETER, _) => {
                for kernel in &mut kernels {
                    kernel.2 += usize::from(kernel.0 == function);
                }
            }
            _ => {}
        }
        rest = next;
    }
    let declared = kernels.into_iter().map(|(_, name, parameters)| {
        let parameters: Vec<_> = (0..parameters).map(|at| format!("unknown a{at}")).collect();
        format!("kernel void {name}({});\n", parameters.join(", "))
    });
    Some(declared.collect())
}

/// Reads a string that ends with a 0 byte.
fn literal(words: &[u32]) -> String {
    let bytes = words.iter().flat_map(|word| word.to_le_bytes());
    let bytes: Vec<u8> = bytes.take_while(|byte| *byte != 0).collect();
    String::from_utf8_lossy(&bytes).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bytes(words: &[u32]) -> Vec<u8> {
        words.iter().flat_map(|word| word.to_le_bytes()).collect()
    }

    #[test]
    fn entry_points_and_their_parameters_are_found() {
        let name = u32::from_le_bytes(*b"k\0\0\0");
        let module = [
            MAGIC,
            0x0001_0000,
            0,
            9,
            0, // header
            4 << 16 | OP_ENTRY_POINT,
            MODEL_KERNEL,
            7,
            name,
            5 << 16 | OP_FUNCTION,
            1,
            7,
            0,
            2,
            3 << 16 | OP_FUNCTION_PARAMETER,
            3,
            8,
        ];
        let text = declarations(&bytes(&module)).unwrap();
        assert_eq!(text, "kernel void k(unknown a0);\n");
    }

    #[test]
    fn damaged_modules_are_refused() {
        assert_eq!(declarations(b"__kernel void k() {}"), None);
        assert_eq!(
            declarations(&bytes(&[MAGIC, 0, 0, 0, 0, 9 << 16 | 15])),
            None
        );
        assert_eq!(declarations(&bytes(&[MAGIC, 0, 0, 0, 0, 0])), None);
    }
}
