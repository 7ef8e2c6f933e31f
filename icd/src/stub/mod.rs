//! The client's side of every OpenCL object: safe Rust, ids and states, no C.
//!
//! One file per OpenCL noun. A stub holds what can be answered without the network and knows how to
//! say the rest to its sites. Ids are unique in the process; an object has one on each site where it
//! has come to be (`remote.rs`).
//!
//! Not here: handles and argument checks (`api`), sockets (`transport`). Invariant: no lock of a stub
//! is held while the application is called or a socket is waited for.

mod ask;
mod binding;
mod buffer;
pub mod callbacks;
pub mod colour;
mod command_buffer;
mod context;
mod device;
pub mod device_queue;
mod distributed;
mod encoded;
mod event;
mod extensions;
mod host_ranges;
pub mod image;
pub mod kernel;
mod lenience;
mod link;
mod map_table;
mod mapped;
mod pci;
pub mod peer;
pub mod pipe;
mod platform;
mod precedence;
mod presented;
pub mod program;
mod queue;
mod range_table;
mod recent;
mod remote;
mod repeats;
mod sampler;
pub mod semaphore;
mod server;
mod site;
mod sub_device;
pub mod svm;
pub mod timer;
mod transfer;
mod undefined;
mod work;

pub use binding::Binding;
pub use buffer::{Buffer, BufferSpec};
pub use command_buffer::{
    Change, CommandBuffer, Mutable, MutableCommand, Phase, Properties, Recorded,
};
pub use context::{Context, ContextNotify};
pub use device::Device;
pub use device_queue::DeviceQueue;
pub use event::{Event, EventCallback};
pub use host_ranges::HostRanges;
pub use image::Image;
pub use kernel::{ArgValue, Kernel, Range};
pub use link::SessionLink;
pub use mapped::{MapKey, NewMap, Place, Unmap, Upload};
pub use pipe::Pipe;
pub use platform::Platform;
pub use program::{BuildNotify, BuildRequest, Origin, Program, Verb};
pub use queue::{Queue, Submission};
pub use sampler::{Sampler, SamplerSpec};
pub use semaphore::Semaphore;
pub use server::Server;
pub use site::Site;
pub use transfer::{Transfer, Written, copy_on_host, nothing};
pub use work::{Map, Work};

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use smallvec::SmallVec;

/// Buffers and images that a command reads or writes: they live until it is done. As many as most commands have need no
/// memory of their own.
pub type Hold = SmallVec<[Arc<Buffer>; 8]>;

/// The next id of the process's one counter; never 0.
pub fn next_id() -> u64 {
    static NEXT: AtomicU64 = AtomicU64::new(1);
    NEXT.fetch_add(1, Ordering::Relaxed)
}
