//! Names of things on the wire.
//!
//! The client chooses every object's id, from one counter a process, so that an id is never reused
//! and a late message about a dead object finds nothing. 0 names no object.

use std::fmt;

macro_rules! ids {
    ($($(#[$doc:meta])* $name:ident($inner:ty);)*) => {$(
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(pub $inner);

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "{}#{}", stringify!($name), self.0)
            }
        }
    )*};
}

ids! {
    /// A context on one site.
    ContextId(u64);
    /// A command queue.
    QueueId(u64);
    /// A buffer, sub-buffer or image.
    MemoryId(u64);
    /// A program.
    ProgramId(u64);
    /// A kernel.
    KernelId(u64);
    /// An event: a command's, or a user event. Names the command's bulk transfer too.
    EventId(u64);
    /// A sampler.
    SamplerId(u64);
    /// A command buffer.
    CommandBufferId(u64);
    /// The path between the workers of two sessions; 0: a worker's path to itself.
    LinkId(u64);
    /// A question that awaits an answer.
    RequestId(u64);
    /// Position of a platform in a node's inventory.
    PlatformIndex(u32);
    /// Position of a root device in its platform; a higher number is a part of one, which its session knows.
    DeviceIndex(u32);
}

/// A session: random, so that a stranger cannot name one.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct SessionId(pub [u8; 16]);

impl fmt::Debug for SessionId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Four bytes tell sessions apart in a log and are too few to name one.
        write!(
            f,
            "session {:02x}{:02x}{:02x}{:02x}",
            self.0[0], self.0[1], self.0[2], self.0[3]
        )
    }
}

/// What the two ends of a session know and nobody else; never shown.
#[derive(Clone, PartialEq, Eq)]
pub struct SessionSecret(pub [u8; 32]);

impl fmt::Debug for SessionSecret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SessionSecret(…)")
    }
}
