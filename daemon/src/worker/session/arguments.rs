//! A kernel's arguments, in command order.
//!
//! A launch carries only what changed since the kernel's launch before it. The table follows the
//! commands as they are applied; a launch takes the table as it then is (shared until the next change),
//! and sets natively, when it is enqueued, what differs from what is set. Each change has a number of
//! its own, so "differs" is one comparison. Invariant: a table never keeps a buffer alive, a launch
//! keeps all of its own.
#![forbid(unsafe_code)]

use std::sync::{Arc, Weak};

use causeway_proto::command::{KernelArg, kernel_arg};
use causeway_proto::id::MemoryId;
use causeway_proto::status::Status;

use super::Violation;
use super::objects::{Bound, Memory, Objects, find};

const INVALID_KERNEL_ARGS: Status = Status(-52);
/// More than any device takes; bounds what an index can make us allocate.
const MAX_ARGUMENTS: u32 = 1 << 12;

/// The arguments of a kernel after some command.
#[derive(Clone, Default)]
pub(crate) struct Arguments {
    slots: Vec<Slot>,
}

#[derive(Clone)]
struct Slot {
    // 0: never set.
    version: u64,
    value: Value,
}

#[derive(Clone)]
enum Value {
    Small(u8, [u8; 16]),
    Large(Box<[u8]>),
    Memory(Weak<Memory>),
    NullMemory,
    Local(u64),
}

impl Arguments {
    /// Applies what a launch says has changed. `version` grows with every call in the session.
    pub(crate) fn change(
        &mut self,
        changes: &[KernelArg],
        objects: &Objects,
        version: u64,
    ) -> Result<(), Violation> {
        for change in changes {
            if change.index >= MAX_ARGUMENTS {
                return Err(Violation::Malformed("an argument's index is absurd"));
            }
            let index = change.index as usize;
            if self.slots.len() <= index {
                let empty = Slot {
                    version: 0,
                    value: Value::NullMemory,
                };
                self.slots.resize(index + 1, empty);
            }
            self.slots[index] = Slot {
                version,
                value: Value::from_wire(change, objects)?,
            };
        }
        Ok(())
    }

    /// Everything that a launch with these arguments must keep alive until it is enqueued.
    ///
    /// # Errors
    /// `CL_INVALID_KERNEL_ARGS` when a buffer is gone, a broken buffer's own status.
    pub(crate) fn hold(&self) -> Result<Vec<Arc<Memory>>, Status> {
        let mut held = Vec::new();
        for slot in &self.slots {
            if let Value::Memory(memory) = &slot.value {
                let memory = memory.upgrade().ok_or(INVALID_KERNEL_ARGS)?;
                memory.native()?;
                held.push(memory);
            }
        }
        Ok(held)
    }

    /// Sets natively what differs from what is set.
    ///
    /// # Errors
    /// What the driver says.
    pub(crate) fn bind(&self, bound: &mut Bound) -> Result<(), Status> {
        if bound.set.len() < self.slots.len() {
            bound.set.resize(self.slots.len(), 0);
        }
        for (index, slot) in self.slots.iter().enumerate() {
            if bound.set[index] != slot.version {
                // Forgotten first: a failure may leave the old value or none.
                bound.set[index] = 0;
                slot.value.set(bound, index as u32)?;
                bound.set[index] = slot.version;
            }
        }
        Ok(())
    }
}

impl Value {
    fn from_wire(argument: &KernelArg, objects: &Objects) -> Result<Value, Violation> {
        Ok(match &argument.value {
            Some(kernel_arg::Value::Plain(bytes)) if bytes.len() <= 16 => {
                let mut small = [0; 16];
                small[..bytes.len()].copy_from_slice(bytes);
                Value::Small(bytes.len() as u8, small)
            }
            // A copy: a slice would keep the whole batch alive.
            Some(kernel_arg::Value::Plain(bytes)) => Value::Large(bytes.to_vec().into()),
            Some(kernel_arg::Value::Memory(0)) => Value::NullMemory,
            Some(kernel_arg::Value::Memory(id)) => {
                Value::Memory(Arc::downgrade(&find(&objects.memory, MemoryId(*id))?))
            }
            Some(kernel_arg::Value::LocalSize(size)) => Value::Local(*size),
            Some(kernel_arg::Value::Sampler(_)) => {
                return Err(Violation::Malformed(
                    "an argument names a sampler; none exists",
                ));
            }
            None => return Err(Violation::Malformed("an argument without a value")),
        })
    }

    fn set(&self, bound: &mut Bound, index: u32) -> Result<(), Status> {
        match self {
            Value::Small(length, bytes) => bound
                .kernel
                .set_value(index, &bytes[..usize::from(*length)]),
            Value::Large(bytes) => bound.kernel.set_value(index, bytes),
            Value::Memory(memory) => {
                let memory = memory.upgrade().ok_or(INVALID_KERNEL_ARGS)?;
                bound.kernel.set_buffer(index, Some(memory.native()?))
            }
            Value::NullMemory => bound.kernel.set_buffer(index, None),
            Value::Local(size) => bound.kernel.set_local(index, *size),
        }
    }
}
