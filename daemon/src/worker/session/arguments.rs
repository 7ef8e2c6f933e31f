//! Reads a launch's changes of its kernel's arguments.
//!
//! Invariant: every object that an argument names is looked up here, in the order of commands.
#![forbid(unsafe_code)]

use std::sync::Arc;

use causeway_proto::command::{KernelArg, SvmPointers, kernel_arg};
use causeway_proto::id::{MemoryId, QueueId, SamplerId};
use causeway_proto::limits::{MAX_ARGUMENTS, MAX_LIST};

use super::tables::{Objects, find};
use super::violation::Violation;
use crate::worker::objects::arguments::{Arguments, Value};

/// Applies the changes that a launch carries. `version` grows with every call in the session.
pub(super) fn change(
    arguments: &mut Arguments,
    changes: &[KernelArg],
    objects: &Objects,
    version: u64,
) -> Result<(), Violation> {
    for change in changes {
        let index = change.index as usize;
        if index >= MAX_ARGUMENTS {
            return Err(Violation::Malformed(
                "a kernel argument's index is above the limit",
            ));
        }
        arguments.set(index, value(change, objects)?, version);
    }
    Ok(())
}

/// Sets the memory that the launch's kernel reaches indirectly.
pub(super) fn reach(
    arguments: &mut Arguments,
    svm: &SvmPointers,
    objects: &Objects,
    version: u64,
) -> Result<(), Violation> {
    if svm.memory.len() > MAX_LIST {
        return Err(Violation::Malformed("a list of memory objects is too long"));
    }
    let found = |id: &u64| find(&objects.memory, MemoryId(*id)).map(|of| Arc::downgrade(&of));
    let memory = svm.memory.iter().map(found).collect::<Result<_, _>>()?;
    arguments.set_reaches(memory, version);
    Ok(())
}

fn value(argument: &KernelArg, objects: &Objects) -> Result<Value, Violation> {
    Ok(match &argument.value {
        Some(kernel_arg::Value::Plain(bytes)) if bytes.len() <= 16 => {
            let mut small = [0; 16];
            small[..bytes.len()].copy_from_slice(bytes);
            Value::Small(bytes.len() as u8, small)
        }
        // Copied, because a slice would keep the whole batch alive.
        Some(kernel_arg::Value::Plain(bytes)) => Value::Large(bytes.to_vec().into()),
        Some(kernel_arg::Value::Memory(0)) => Value::NullMemory,
        Some(kernel_arg::Value::Memory(id)) => {
            Value::Memory(Arc::downgrade(&find(&objects.memory, MemoryId(*id))?))
        }
        Some(kernel_arg::Value::Svm(at)) => {
            let memory = find(&objects.memory, MemoryId(at.memory))?;
            Value::Svm(Arc::downgrade(&memory), at.offset)
        }
        Some(kernel_arg::Value::LocalSize(size)) => Value::Local(*size),
        Some(kernel_arg::Value::Sampler(id)) => {
            Value::Sampler(find(&objects.samplers, SamplerId(*id))?)
        }
        Some(kernel_arg::Value::DeviceQueue(id)) => {
            Value::DeviceQueue(find(&objects.device_queues, QueueId(*id))?)
        }
        None => return Err(Violation::Malformed("a kernel argument has no value")),
    })
}
