//! Image formats: which are valid, and how large an element is. Pure, from the specification's tables
//! ("Image Format Descriptor").

/// A `cl_image_format`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ImageFormat {
    /// `image_channel_order`.
    pub order: u32,
    /// `image_channel_data_type`.
    pub channel_type: u32,
}

/// The channel types that a channel order allows.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Takes {
    /// All types with separate channels.
    Any,
    /// Normalised and floating-point types.
    NormalisedOrFloat,
    /// Types of 8 bits. Also `CL_SNORM_INT16`, which the specification does not allow but NVIDIA's driver
    /// lists.
    Bytes,
    /// `CL_UNORM_INT8` only.
    Srgb,
    /// Types that pack three channels.
    Packed,
    /// `CL_UNORM_INT16` and `CL_FLOAT`.
    Depth,
    /// Depth with stencil, which exists only for sharing with graphics APIs.
    DepthStencil,
}

/// How a channel type stores its channels.
#[derive(Clone, Copy)]
enum Stores {
    /// Each channel in this number of bytes.
    Each(u64),
    /// Three channels together in this number of bytes.
    Three(u64),
    /// Four channels together in this number of bytes.
    Four(u64),
    /// 24 bits, next to other data.
    Mixed,
}

const SNORM_INT8: u32 = 0x10D0;
const SNORM_INT16: u32 = 0x10D1;
const UNORM_INT8: u32 = 0x10D2;
const UNORM_INT16: u32 = 0x10D3;
const HALF_FLOAT: u32 = 0x10DD;
const FLOAT: u32 = 0x10DE;
const RGBA: u32 = 0x10B5;

/// The number of channels of an order, and the types that it allows.
fn order(order: u32) -> Option<(u64, Takes)> {
    Some(match order {
        // R, A, Rx
        0x10B0 | 0x10B1 | 0x10BA => (1, Takes::Any),
        // RG, RA, RGx
        0x10B2 | 0x10B3 | 0x10BB => (2, Takes::Any),
        // RGB, RGBx
        0x10B4 | 0x10BC => (3, Takes::Packed),
        RGBA => (4, Takes::Any),
        // BGRA, ARGB, ABGR
        0x10B6 | 0x10B7 | 0x10C3 => (4, Takes::Bytes),
        // INTENSITY, LUMINANCE
        0x10B8 | 0x10B9 => (1, Takes::NormalisedOrFloat),
        0x10BD => (1, Takes::Depth),
        0x10BE => (2, Takes::DepthStencil),
        // sRGB, sRGBx
        0x10BF | 0x10C0 => (3, Takes::Srgb),
        // sRGBA, sBGRA
        0x10C1 | 0x10C2 => (4, Takes::Srgb),
        _ => return None,
    })
}

fn stored(channel_type: u32) -> Option<Stores> {
    Some(match channel_type {
        // and SIGNED_INT8, UNSIGNED_INT8
        SNORM_INT8 | UNORM_INT8 | 0x10D7 | 0x10DA => Stores::Each(1),
        // and SIGNED_INT16, UNSIGNED_INT16
        SNORM_INT16 | UNORM_INT16 | 0x10D8 | 0x10DB | HALF_FLOAT => Stores::Each(2),
        // SIGNED_INT32, UNSIGNED_INT32
        0x10D9 | 0x10DC | FLOAT => Stores::Each(4),
        // UNORM_SHORT_565, UNORM_SHORT_555
        0x10D4 | 0x10D5 => Stores::Three(2),
        // UNORM_INT_101010
        0x10D6 => Stores::Three(4),
        // UNORM_INT24
        0x10DF => Stores::Mixed,
        // UNORM_INT_101010_2
        0x10E0 => Stores::Four(4),
        _ => return None,
    })
}

impl ImageFormat {
    /// Whether the specification defines the format. A device need not support it.
    #[must_use]
    pub fn is_valid(self) -> bool {
        let (Some((_, takes)), Some(stores)) = (order(self.order), stored(self.channel_type))
        else {
            return false;
        };
        match (stores, takes) {
            (Stores::Three(_), _) => takes == Takes::Packed,
            (_, Takes::Packed) => false,
            (Stores::Four(_), _) => self.order == RGBA,
            (Stores::Mixed, _) => takes == Takes::DepthStencil,
            (Stores::Each(_), Takes::Any) => true,
            (Stores::Each(bytes), Takes::Bytes) => bytes == 1 || self.channel_type == SNORM_INT16,
            (Stores::Each(_), Takes::Srgb) => self.channel_type == UNORM_INT8,
            (Stores::Each(_), Takes::Depth) => matches!(self.channel_type, UNORM_INT16 | FLOAT),
            (Stores::Each(_), Takes::DepthStencil) => self.channel_type == FLOAT,
            (Stores::Each(_), Takes::NormalisedOrFloat) => matches!(
                self.channel_type,
                SNORM_INT8 | SNORM_INT16 | UNORM_INT8 | UNORM_INT16 | HALF_FLOAT | FLOAT
            ),
        }
    }

    /// Size of an element in bytes. `None` for an invalid format. Also `None` for the few formats whose
    /// elements are not a power of two of bytes or differ between drivers; these are not offered.
    #[must_use]
    pub fn element_size(self) -> Option<u64> {
        let (channels, takes) = order(self.order).filter(|_| self.is_valid())?;
        let bytes = match stored(self.channel_type)? {
            Stores::Each(bytes) => bytes * channels,
            Stores::Three(bytes) | Stores::Four(bytes) => bytes,
            Stores::Mixed => return None,
        };
        (bytes.is_power_of_two() && takes != Takes::DepthStencil).then_some(bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn format(order: u32, channel_type: u32) -> ImageFormat {
        ImageFormat {
            order,
            channel_type,
        }
    }

    #[test]
    fn elements_have_their_sizes() {
        let sizes = [
            (0x10B0, UNORM_INT8, Some(1)),
            (0x10B2, 0x10D8, Some(4)),
            (RGBA, UNORM_INT8, Some(4)),
            (RGBA, FLOAT, Some(16)),
            (RGBA, 0x10E0, Some(4)),
            (0x10B4, 0x10D4, Some(2)),
            (0x10BD, FLOAT, Some(4)),
            (0x10C1, UNORM_INT8, Some(4)),
            (0x10B6, SNORM_INT16, Some(8)),
            // sRGB, and depth with stencil.
            (0x10BF, UNORM_INT8, None),
            (0x10BE, 0x10DF, None),
        ];
        for (order, channel_type, size) in sizes {
            let format = format(order, channel_type);
            assert!(format.is_valid());
            assert_eq!(format.element_size(), size, "{format:x?}");
        }
    }

    #[test]
    fn what_the_tables_do_not_have_is_not_valid() {
        let wrong = [
            (0x10B4, UNORM_INT8),
            (RGBA, 0x10D4),
            (0x10B6, FLOAT),
            (0x10B8, 0x10DA),
            (0x10BD, UNORM_INT8),
            (0x10C1, FLOAT),
            (0x10B0, 0x10E0),
            (0, UNORM_INT8),
            (RGBA, 0),
        ];
        for (order, channel_type) in wrong {
            let format = format(order, channel_type);
            assert!(!format.is_valid(), "{format:x?}");
            assert_eq!(format.element_size(), None);
        }
    }
}
