//! Converts a colour to the bytes of an image element, where the client itself fills an image ("Conversion
//! Rules").
//!
//! The client fills only images over buffers; for others the node's driver converts. Pure.
#![allow(non_upper_case_globals, reason = "OpenCL's names in patterns")]

use causeway_proto::image_format::ImageFormat;
use cl_headers::types::{
    CL_A, CL_ABGR, CL_ARGB, CL_BGRA, CL_DEPTH, CL_FLOAT, CL_HALF_FLOAT, CL_INTENSITY, CL_LUMINANCE,
    CL_R, CL_RA, CL_RG, CL_RGB, CL_RGBA, CL_RGBx, CL_RGx, CL_Rx, CL_SIGNED_INT8, CL_SIGNED_INT16,
    CL_SIGNED_INT32, CL_SNORM_INT8, CL_SNORM_INT16, CL_UNORM_INT_101010, CL_UNORM_INT_101010_2,
    CL_UNORM_INT8, CL_UNORM_INT16, CL_UNORM_SHORT_555, CL_UNORM_SHORT_565, CL_UNSIGNED_INT8,
    CL_UNSIGNED_INT16, CL_UNSIGNED_INT32, CL_sBGRA, CL_sRGBA,
};

/// Returns the channels of an element, in storage order: red, green, blue, alpha are 0 to 3.
fn channels(order: u32) -> Option<&'static [usize]> {
    Some(match order {
        CL_R | CL_Rx | CL_INTENSITY | CL_LUMINANCE | CL_DEPTH => &[0],
        CL_A => &[3],
        CL_RG | CL_RGx => &[0, 1],
        CL_RA => &[0, 3],
        CL_RGB | CL_RGBx => &[0, 1, 2],
        CL_RGBA | CL_sRGBA => &[0, 1, 2, 3],
        CL_BGRA | CL_sBGRA => &[2, 1, 0, 3],
        CL_ARGB => &[3, 0, 1, 2],
        CL_ABGR => &[3, 2, 1, 0],
        _ => return None,
    })
}

/// Returns the bytes of an element with this colour. `colour` is as for `clEnqueueFillImage`: four floats,
/// or four integers for formats of unnormalised integers. `None` for a format that no device offers.
#[must_use]
pub fn element(format: ImageFormat, colour: [u8; 16]) -> Option<Vec<u8>> {
    let channels = channels(format.order)?;
    let words: [[u8; 4]; 4] = std::array::from_fn(|i| std::array::from_fn(|j| colour[4 * i + j]));
    let float = |channel: usize| {
        let linear = f32::from_ne_bytes(words[channel]);
        if matches!(format.order, CL_sRGBA | CL_sBGRA) && channel < 3 {
            to_srgb(linear)
        } else {
            linear
        }
    };
    let packed = |bits: &[(usize, u32, u32)]| {
        let parts = bits.iter().map(|&(channel, bits, shift)| {
            (scaled(float(channel), 0.0, (1 << bits) - 1) as u32) << shift
        });
        parts.fold(0, |all, part| all | part)
    };
    let mut bytes = Vec::with_capacity(16);
    match format.channel_type {
        CL_UNORM_SHORT_565 => {
            let value = packed(&[(0, 5, 11), (1, 6, 5), (2, 5, 0)]) as u16;
            bytes.extend(value.to_ne_bytes());
        }
        CL_UNORM_SHORT_555 => {
            let value = packed(&[(0, 5, 10), (1, 5, 5), (2, 5, 0)]) as u16;
            bytes.extend(value.to_ne_bytes());
        }
        CL_UNORM_INT_101010 => {
            let value = packed(&[(0, 10, 20), (1, 10, 10), (2, 10, 0)]);
            bytes.extend(value.to_ne_bytes());
        }
        CL_UNORM_INT_101010_2 => {
            let value = packed(&[(0, 10, 22), (1, 10, 12), (2, 10, 2), (3, 2, 0)]);
            bytes.extend(value.to_ne_bytes());
        }
        channel_type => {
            for &channel in channels {
                push(&mut bytes, channel_type, words[channel], float(channel))?;
            }
        }
    }
    Some(bytes)
}

fn push(bytes: &mut Vec<u8>, channel_type: u32, word: [u8; 4], float: f32) -> Option<()> {
    let (signed, unsigned) = (i32::from_ne_bytes(word), u32::from_ne_bytes(word));
    match channel_type {
        CL_SNORM_INT8 => bytes.extend((scaled(float, -128.0, 127) as i8).to_ne_bytes()),
        CL_SNORM_INT16 => bytes.extend((scaled(float, -32768.0, 32767) as i16).to_ne_bytes()),
        CL_UNORM_INT8 => bytes.push(scaled(float, 0.0, 255) as u8),
        CL_UNORM_INT16 => bytes.extend((scaled(float, 0.0, 65535) as u16).to_ne_bytes()),
        CL_SIGNED_INT8 => bytes.extend((signed.clamp(-128, 127) as i8).to_ne_bytes()),
        CL_SIGNED_INT16 => bytes.extend((signed.clamp(-32768, 32767) as i16).to_ne_bytes()),
        CL_UNSIGNED_INT8 => bytes.push(unsigned.min(255) as u8),
        CL_UNSIGNED_INT16 => bytes.extend((unsigned.min(65535) as u16).to_ne_bytes()),
        CL_SIGNED_INT32 | CL_UNSIGNED_INT32 => bytes.extend(word),
        CL_FLOAT => bytes.extend(float.to_ne_bytes()),
        CL_HALF_FLOAT => bytes.extend(to_half(float).to_ne_bytes()),
        _ => return None,
    }
    Some(())
}

// Rounds to the nearest value, ties to even; NaN becomes 0.
fn scaled(value: f32, lowest: f32, highest: u32) -> f32 {
    let highest = highest as f32;
    let value = (value * highest).round_ties_even();
    if value.is_nan() {
        0.0
    } else {
        value.clamp(lowest, highest)
    }
}

fn to_srgb(linear: f32) -> f32 {
    let clamped = if linear.is_nan() {
        0.0
    } else {
        linear.clamp(0.0, 1.0)
    };
    if clamped < 0.003_130_8 {
        12.92 * clamped
    } else {
        1.055 * clamped.powf(1.0 / 2.4) - 0.055
    }
}

/// Converts to the nearest half-precision value, ties to even.
fn to_half(value: f32) -> u16 {
    let bits = value.to_bits();
    let sign = (bits >> 16 & 0x8000) as u16;
    let magnitude = f32::from_bits(bits & 0x7FFF_FFFF);
    if magnitude.is_nan() {
        return sign | 0x7E00;
    }
    // Larger values round to infinity.
    if magnitude >= 65520.0 {
        return sign | 0x7C00;
    }
    if magnitude < 6.103_515_6e-5 {
        // Subnormal: a multiple of the smallest half-precision value, rounded.
        return sign | (magnitude * 16_777_216.0).round_ties_even() as u16;
    }
    let bits = magnitude.to_bits();
    let (kept, rest) = (bits >> 13, bits & 0x1FFF);
    let up = u32::from(rest > 0x1000 || rest == 0x1000 && kept & 1 == 1);
    sign | (kept + up - (112 << 10)) as u16
}

#[cfg(test)]
mod tests {
    use super::*;

    fn floats(values: [f32; 4]) -> [u8; 16] {
        let bytes: Vec<u8> = values
            .iter()
            .flat_map(|value| value.to_ne_bytes())
            .collect();
        bytes.try_into().unwrap()
    }

    fn of(order: u32, channel_type: u32, colour: [u8; 16]) -> Vec<u8> {
        let format = ImageFormat {
            order,
            channel_type,
        };
        let bytes = element(format, colour).unwrap();
        assert_eq!(Some(bytes.len() as u64), format.element_size());
        bytes
    }

    #[test]
    fn channels_are_stored_in_their_order() {
        let colour = floats([1.0, 0.0, 0.2, 2.0]);
        assert_eq!(of(CL_RGBA, CL_UNORM_INT8, colour), [255, 0, 51, 255]);
        assert_eq!(of(CL_BGRA, CL_UNORM_INT8, colour), [51, 0, 255, 255]);
        assert_eq!(of(CL_ARGB, CL_UNORM_INT8, colour), [255, 255, 0, 51]);
        assert_eq!(of(CL_ABGR, CL_UNORM_INT8, colour), [255, 51, 0, 255]);
        assert_eq!(
            of(CL_RA, CL_UNORM_INT8, floats([0.2, 0.0, 0.0, 1.0])),
            [51, 255]
        );
        assert_eq!(of(CL_A, CL_FLOAT, colour), 2f32.to_ne_bytes());
    }

    #[test]
    fn values_are_rounded_and_bounded() {
        let colour = floats([0.5, -1.0, f32::NAN, 1.5]);
        assert_eq!(of(CL_RGBA, CL_UNORM_INT8, colour), [128, 0, 0, 255]);
        assert_eq!(of(CL_RGBA, CL_SNORM_INT8, colour), [64, 129, 0, 127]);
        let numbers: Vec<u8> = [300i32, -300, 7, -7]
            .iter()
            .flat_map(|n| n.to_ne_bytes())
            .collect();
        let numbers: [u8; 16] = numbers.try_into().unwrap();
        assert_eq!(of(CL_RGBA, CL_SIGNED_INT8, numbers), [127, 128, 7, 249]);
        assert_eq!(of(CL_R, CL_UNSIGNED_INT16, numbers), 300u16.to_ne_bytes());
    }

    #[test]
    fn packed_ones_have_red_highest() {
        let red = floats([1.0, 0.0, 0.0, 1.0]);
        assert_eq!(of(CL_RGB, CL_UNORM_SHORT_565, red), 0xF800u16.to_ne_bytes());
        assert_eq!(of(CL_RGB, CL_UNORM_SHORT_555, red), 0x7C00u16.to_ne_bytes());
        let word = of(CL_RGBA, CL_UNORM_INT_101010_2, red);
        assert_eq!(word, 0xFFC0_0003u32.to_ne_bytes());
    }

    #[test]
    fn halves_are_the_nearest() {
        for (value, half) in [
            (0.0, 0),
            (1.0, 0x3C00),
            (-2.0, 0xC000),
            (65504.0, 0x7BFF),
            (65519.0, 0x7BFF),
            (65520.0, 0x7C00),
            (5.960_464_5e-8, 1),
            (2.980_232_2e-8, 0),
            (6.097_555e-5, 0x3FF),
            (1.000_488_3, 0x3C00),
            (1.001_464_8, 0x3C02),
            (0.999_99, 0x3C00),
        ] {
            assert_eq!(to_half(value), half, "{value}");
        }
        assert_eq!(to_half(f32::NAN), 0x7E00);
    }

    #[test]
    fn srgb_is_lighter_than_linear() {
        let grey = of(CL_sRGBA, CL_UNORM_INT8, floats([0.5, 0.0, 1.0, 0.5]));
        assert_eq!(grey, [188, 0, 255, 128]);
    }
}
