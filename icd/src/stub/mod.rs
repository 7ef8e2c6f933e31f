//! Client-side stubs of all OpenCL objects: safe Rust that works on ids and states, without the C ABI.
//!
//! There is one folder per OpenCL noun. They name each other, as OpenCL's objects do: a queue has a context,
//! an event a queue, a buffer the events that write it. A stub answers from local state what it can, and
//! sends everything else as commands to its sites. Ids are unique in the process. An object has one id on each site where it
//! has been created (`context/remote.rs`).
//!
//! Not here: handles and argument checks (`api`), sockets (`transport`). Invariant: no thread holds a
//! stub's lock while it calls the application or waits for a socket.

mod binding;
mod command_buffer;
mod context;
pub mod device;
mod distributed;
pub mod event;
pub mod kernel;
pub mod memory;
pub mod program;
pub mod queue;
pub mod semaphore;
pub mod server;

pub use binding::Binding;
pub use command_buffer::{
    Change, CommandBuffer, Mutable, MutableCommand, Phase, Properties, Recorded, Replay,
};
pub use context::{Context, ContextNotify};
pub use device::Device;
pub use event::{Event, EventCallback, EventSpec, Finisher};
pub use kernel::{ArgValue, Kernel, Range};
pub use memory::buffer::{Buffer, BufferSpec};
pub use memory::host_ranges::HostRanges;
pub use memory::image::Image;
pub use memory::mapped::{MapKey, MapReference, NewMap, Unmap, Upload};
pub use memory::pipe::Pipe;
pub use memory::sampler::{Sampler, SamplerSpec};
pub use memory::transfer::{dropping, nothing};
pub use program::{BuildNotify, BuildRequest, Origin, Program, Verb};
pub use queue::Queue;
pub use queue::command::{Command, Enqueue, Enqueued, HostTransfer, Map, NodeCommand};
pub use queue::device_queue::DeviceQueue;
pub use queue::encoded::Encoded;
pub use semaphore::Semaphore;
pub use server::Server;
pub use server::link::SessionLink;
pub use server::platform::Platform;
pub use server::site::Site;

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
