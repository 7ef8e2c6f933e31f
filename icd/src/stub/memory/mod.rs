//! Memory objects: buffers, images, pipes, shared virtual memory and samplers, and the host memory that
//! commands read and write.
//!
//! - [`buffer`], [`image`], [`pipe`], [`sampler`], [`svm`]: OpenCL's objects; an image and a pipe are buffers
//!   with more properties;
//! - [`mapped`], `map_table`: where an object is mapped, and which maps exist;
//! - [`host_ranges`], `range_table`: which host memory incomplete commands will still write;
//! - [`transfer`]: bytes that a command moves to or from host memory;
//! - [`colour`]: a colour as an image element.
//!
//! Not here: which site has which bytes (`coherence`). Invariant: the client holds no bytes of an object but
//! those of its maps, and in contexts of several sites its own copy.

pub mod buffer;
pub mod colour;
pub mod host_ranges;
pub mod image;
mod map_table;
pub mod mapped;
pub mod pipe;
mod range_table;
pub mod sampler;
pub mod svm;
pub mod transfer;
