//! Ids of objects on the wire.
//!
//! The client chooses every object's id, from one counter per process. So an id is never reused, and a
//! late message about a dead object finds nothing. 0 is not a valid id.

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
    /// An event: a command's event or a user event. Also names the command's bulk transfer.
    EventId(u64);
    /// A sampler.
    SamplerId(u64);
    /// A command buffer.
    CommandBufferId(u64);
    /// The path between the workers of two sessions. 0 is a worker's path to itself.
    LinkId(u64);
    /// A request that awaits an answer.
    RequestId(u64);
    /// Index of a platform in a node's inventory.
    PlatformIndex(u32);
    /// Index of a root device in its platform. Higher indices are sub-devices, which only their session
    /// knows.
    DeviceIndex(u32);
}

/// Id of a session. It is random, so that strangers cannot name one.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct SessionId(pub [u8; 16]);

impl fmt::Debug for SessionId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Four bytes distinguish sessions in a log and are too few to name one.
        write!(
            f,
            "{:02x}{:02x}{:02x}{:02x}",
            self.0[0], self.0[1], self.0[2], self.0[3]
        )
    }
}

/// Secret shared by the two ends of a session; never shown.
#[derive(Clone, PartialEq, Eq)]
pub struct SessionSecret(pub [u8; 32]);

impl fmt::Debug for SessionSecret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SessionSecret(…)")
    }
}
