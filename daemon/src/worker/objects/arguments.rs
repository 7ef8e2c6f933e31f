//! A kernel's arguments, in the order of commands.
//!
//! A launch carries only the arguments that changed since the kernel's previous launch. The table follows
//! the commands as they are applied. A launch takes the table in its current state, shared until the next
//! change. When the launch is enqueued, it sets the arguments that differ from those set natively. Each
//! change has its own version number, so this is one comparison. Invariant: a table never keeps a buffer
//! alive; a launch keeps all buffers of its own arguments alive.
#![forbid(unsafe_code)]

use std::collections::HashMap;
use std::sync::{Arc, Weak};

use causeway_proto::command::{KernelArg, kernel_arg};
use causeway_proto::id::{MemoryId, SamplerId};
use causeway_proto::status::Status;

use super::{Bound, DeviceQueue, Memory, Sampler};

/// The arguments of a kernel as of some command.
#[derive(Clone, Default)]
pub(crate) struct Arguments {
    slots: Vec<ArgumentSlot>,
    reaches: Reaches,
}

/// The shared virtual memory that the kernel reaches indirectly, by pointers in memory.
#[derive(Clone, Default)]
struct Reaches {
    // 0 means never set.
    version: u64,
    memory: Vec<Weak<Memory>>,
}

#[derive(Clone)]
struct ArgumentSlot {
    // 0 means never set.
    version: u64,
    value: Value,
}

/// The ids of the objects that arguments may name.
pub(crate) struct Names {
    pub(crate) memory: HashMap<*const Memory, MemoryId>,
    pub(crate) samplers: HashMap<*const Sampler, SamplerId>,
}

/// An argument is an object that has no id any more, or that nothing can name.
#[derive(Debug)]
pub(crate) struct Unnamed;

/// The value of an argument.
#[derive(Clone)]
pub(crate) enum Value {
    /// Up to 16 bytes; the number says how many.
    Small(u8, [u8; 16]),
    Large(Box<[u8]>),
    Memory(Weak<Memory>),
    /// The memory, and the offset of the pointer in it.
    Svm(Weak<Memory>, u64),
    NullMemory,
    Local(u64),
    // A strong reference, because no one notices a sampler's end, and enqueued launches still need it.
    Sampler(Arc<Sampler>),
    // A strong reference, for the same reason.
    DeviceQueue(Arc<DeviceQueue>),
}

impl Arguments {
    /// Sets an argument. `version` grows with every change in the session.
    pub(crate) fn set(&mut self, index: usize, value: Value, version: u64) {
        if self.slots.len() <= index {
            let empty = ArgumentSlot {
                version: 0,
                value: Value::NullMemory,
            };
            self.slots.resize(index + 1, empty);
        }
        self.slots[index] = ArgumentSlot { version, value };
    }

    /// Sets the memory that the kernel reaches indirectly.
    pub(crate) fn set_reaches(&mut self, memory: Vec<Weak<Memory>>, version: u64) {
        self.reaches = Reaches { version, memory };
    }

    /// Returns the arguments that are set, as a launch would set them. `names` knows the ids of the objects. An argument
    /// whose memory is gone is left out, because a launch with it fails as one without.
    ///
    /// # Errors
    /// [`Unnamed`].
    pub(crate) fn to_wire(&self, names: &Names) -> Result<Vec<KernelArg>, Unnamed> {
        let mut args = Vec::new();
        for (index, slot) in self
            .slots
            .iter()
            .enumerate()
            .filter(|(_, of)| of.version > 0)
        {
            let value = match &slot.value {
                Value::Small(length, bytes) => {
                    let bytes = bytes[..usize::from(*length)].to_vec();
                    kernel_arg::Value::Plain(bytes.into())
                }
                Value::Large(bytes) => kernel_arg::Value::Plain(bytes.to_vec().into()),
                Value::Memory(memory) => match memory.upgrade() {
                    None => continue,
                    Some(memory) => match names.memory.get(&Arc::as_ptr(&memory)) {
                        Some(id) => kernel_arg::Value::Memory(id.0),
                        None => continue,
                    },
                },
                Value::NullMemory => kernel_arg::Value::Memory(0),
                Value::Local(size) => kernel_arg::Value::LocalSize(*size),
                Value::Sampler(sampler) => {
                    let id = names.samplers.get(&Arc::as_ptr(sampler));
                    kernel_arg::Value::Sampler(id.ok_or(Unnamed)?.0)
                }
                Value::Svm(..) | Value::DeviceQueue(_) => return Err(Unnamed),
            };
            args.push(KernelArg {
                index: index as u32,
                value: Some(value),
            });
        }
        Ok(args)
    }

    /// Returns the memory that a launch with these arguments must keep alive until it is enqueued.
    ///
    /// # Errors
    /// `CL_INVALID_KERNEL_ARGS` when a buffer is gone; a broken object's own status.
    pub(crate) fn hold(&self) -> Result<Vec<Arc<Memory>>, Status> {
        let mut held = Vec::new();
        self.hold_in(&mut held)?;
        Ok(held)
    }

    /// As [`Arguments::hold`], but appends to `held`.
    ///
    /// # Errors
    /// As [`Arguments::hold`].
    pub(crate) fn hold_in(&self, held: &mut Vec<Arc<Memory>>) -> Result<(), Status> {
        // Released memory is omitted, because the kernel cannot reach it any more.
        held.extend(self.reaches.memory());
        for slot in &self.slots {
            if let Value::Memory(memory) | Value::Svm(memory, _) = &slot.value {
                let memory = memory.upgrade().ok_or(Status::INVALID_KERNEL_ARGS)?;
                memory.native()?;
                held.push(memory);
            }
            if let Value::Sampler(sampler) = &slot.value {
                sampler.native.as_ref().map_err(|status| *status)?;
            }
            if let Value::DeviceQueue(queue) = &slot.value {
                queue.native()?;
            }
        }
        Ok(())
    }

    /// Sets the arguments natively that differ from those set on the kernel.
    ///
    /// # Errors
    /// The driver's error.
    pub(crate) fn bind(&self, bound: &mut Bound) -> Result<(), Status> {
        if bound.set.len() < self.slots.len() {
            bound.set.resize(self.slots.len(), 0);
        }
        for (index, slot) in self.slots.iter().enumerate() {
            if bound.set[index] != slot.version {
                // Reset first, because a failure may leave the old value or none.
                bound.set[index] = 0;
                slot.value.set(bound, index as u32)?;
                bound.set[index] = slot.version;
            }
        }
        if bound.reaches != self.reaches.version {
            bound.reaches = 0;
            let addresses: Vec<u64> = self
                .reaches
                .memory()
                .filter_map(|memory| memory.native().ok()?.svm_address())
                .collect();
            bound.kernel.set_reaches(&addresses)?;
            bound.reaches = self.reaches.version;
        }
        Ok(())
    }
}

impl Reaches {
    fn memory(&self) -> impl Iterator<Item = Arc<Memory>> + '_ {
        self.memory.iter().filter_map(Weak::upgrade)
    }
}

impl Value {
    fn set(&self, bound: &mut Bound, index: u32) -> Result<(), Status> {
        match self {
            Value::Small(length, bytes) => bound
                .kernel
                .set_value(index, &bytes[..usize::from(*length)]),
            Value::Large(bytes) => bound.kernel.set_value(index, bytes),
            Value::Memory(memory) => {
                let memory = memory.upgrade().ok_or(Status::INVALID_KERNEL_ARGS)?;
                bound.kernel.set_buffer(index, Some(memory.native()?))
            }
            Value::Svm(memory, offset) => {
                let memory = memory.upgrade().ok_or(Status::INVALID_KERNEL_ARGS)?;
                bound.kernel.set_svm(index, memory.native()?, *offset)
            }
            Value::NullMemory => bound.kernel.set_buffer(index, None),
            Value::Local(size) => bound.kernel.set_local(index, *size),
            Value::Sampler(sampler) => {
                let native = sampler.native.as_ref().map_err(|status| *status)?;
                bound.kernel.set_sampler(index, native)
            }
            Value::DeviceQueue(queue) => bound.kernel.set_device_queue(index, queue.native()?),
        }
    }
}
