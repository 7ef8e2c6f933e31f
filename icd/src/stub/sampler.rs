//! A sampler. No device of this version offers images, so none can be made yet.

use super::Binding;

/// See the module.
#[derive(Debug)]
pub struct Sampler {
    pub(crate) binding: Binding,
}
