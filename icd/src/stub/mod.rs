//! Client-side stubs of all OpenCL objects: safe Rust that works on ids and states, without the C ABI.
//!
//! There is one file per OpenCL noun. A stub answers from local state what it can, and sends everything
//! else as commands to its sites. Ids are unique in the process. An object has one id on each site where it
//! has been created (`remote.rs`).
//!
//! Not here: handles and argument checks (`api`), sockets (`transport`). Invariant: no thread holds a
//! stub's lock while it calls the application or waits for a socket.

mod ask;
mod binding;
mod buffer;
pub mod callbacks;
pub mod colour;
mod command;
mod command_buffer;
mod context;
mod device;
pub mod device_queue;
mod distributed;
mod encoded;
mod event;
mod host_ranges;
pub mod image;
mod info;
pub mod kernel;
mod link;
mod map_table;
mod mapped;
pub mod peer;
pub mod pipe;
mod platform;
mod precedence;
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

pub use binding::Binding;
pub use buffer::{Buffer, BufferSpec};
pub use command::{Command, Enqueue, Enqueued, HostTransfer, Map};
pub use command_buffer::{
    Change, CommandBuffer, Mutable, MutableCommand, Phase, Properties, Recorded, Replay,
};
pub use context::{Context, ContextNotify};
pub use device::Device;
pub use device_queue::DeviceQueue;
pub use encoded::Encoded;
pub use event::{Event, EventCallback, EventSpec, Finisher};
pub use host_ranges::HostRanges;
pub use image::Image;
pub use kernel::{ArgValue, Kernel, Range};
pub use link::SessionLink;
pub use mapped::{MapKey, NewMap, Place, Unmap, Upload};
pub use pipe::Pipe;
pub use platform::Platform;
pub use program::{BuildNotify, BuildRequest, Origin, Program, Verb};
pub use queue::Queue;
pub use sampler::{Sampler, SamplerSpec};
pub use semaphore::Semaphore;
pub use server::Server;
pub use site::Site;
pub use transfer::{dropping, nothing};

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use smallvec::SmallVec;

/// Buffers and images that a command reads or writes; the command keeps them alive until it is done. Up to
/// eight need no allocation, which is enough for most commands.
pub type Hold = SmallVec<[Arc<Buffer>; 8]>;

/// Returns the next id of the process-wide counter; never 0.
pub fn next_id() -> u64 {
    static NEXT: AtomicU64 = AtomicU64::new(1);
    NEXT.fetch_add(1, Ordering::Relaxed)
}
