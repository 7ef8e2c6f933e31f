//! The arguments of a kernel, and which of them the node does not know yet.
//!
//! A launch carries what changed since the launch *sent* before it. Memory is referred to weakly: an
//! argument holds no buffer, a launch does. Specification: "Setting Kernel Arguments". Invariant: an
//! argument counts as known to the node only after a command with it was sent.

use std::sync::{Arc, Weak};

use bytes::Bytes;
use causeway_proto::command::{KernelArg, kernel_arg};
use cl_headers::types::{CL_INVALID_KERNEL_ARGS, CL_INVALID_MEM_OBJECT};

use crate::error::{ClResult, Status, fail};
use crate::stub::Buffer;

/// What an argument is set to.
#[derive(Clone, Debug)]
pub enum ArgValue {
    /// Bytes of a value.
    Plain(Bytes),
    /// A buffer; none for NULL.
    Memory(Option<Weak<Buffer>>),
    /// Local memory, bytes.
    Local(u64),
}

impl ArgValue {
    // Setting it again would change nothing.
    fn is(&self, other: &ArgValue) -> bool {
        match (self, other) {
            (ArgValue::Plain(one), ArgValue::Plain(two)) => one == two,
            (ArgValue::Memory(None), ArgValue::Memory(None)) => true,
            (ArgValue::Memory(Some(one)), ArgValue::Memory(Some(two))) => Weak::ptr_eq(one, two),
            (ArgValue::Local(one), ArgValue::Local(two)) => one == two,
            _ => false,
        }
    }
}

#[derive(Clone, Debug, Default)]
struct Slot {
    value: Option<ArgValue>,
    changed: bool,
}

/// See the module.
#[derive(Clone, Debug)]
pub(super) struct Args {
    slots: Vec<Slot>,
    memory: usize,
    // Wider than any one, so that no sum overflows.
    local: u128,
}

/// What a launch takes along.
#[derive(Debug)]
pub(super) struct Captured {
    pub(super) changed: Vec<KernelArg>,
    pub(super) memory: Vec<Arc<Buffer>>,
}

impl Args {
    pub(super) fn new(count: usize) -> Args {
        Args {
            slots: vec![Slot::default(); count],
            memory: 0,
            local: 0,
        }
    }

    /// Sets an argument whose index is known to be right.
    pub(super) fn set(&mut self, index: usize, value: ArgValue) {
        let slot = &mut self.slots[index];
        if slot.value.as_ref().is_some_and(|old| old.is(&value)) {
            return;
        }
        self.memory += usize::from(matches!(value, ArgValue::Memory(Some(_))));
        self.local += local_of(&value);
        if let Some(old) = &slot.value {
            self.memory -= usize::from(matches!(old, ArgValue::Memory(Some(_))));
            self.local -= local_of(old);
        }
        *slot = Slot {
            value: Some(value),
            changed: true,
        };
    }

    /// Local memory that the arguments ask for, bytes.
    pub(super) fn local_memory(&self) -> u64 {
        u64::try_from(self.local).unwrap_or(u64::MAX)
    }

    /// The local arguments set so far.
    pub(super) fn locals(&self) -> Vec<KernelArg> {
        let slots = self.slots.iter().enumerate();
        slots
            .filter_map(|(index, slot)| match slot.value {
                Some(ArgValue::Local(size)) => {
                    Some(wire(index, kernel_arg::Value::LocalSize(size)))
                }
                _ => None,
            })
            .collect()
    }

    /// Takes what a launch needs; changes nothing.
    ///
    /// # Errors
    /// `CL_INVALID_KERNEL_ARGS` when one was never set, `CL_INVALID_MEM_OBJECT` when a buffer is gone.
    pub(super) fn capture(&self) -> ClResult<Captured> {
        let mut captured = Captured {
            changed: Vec::new(),
            memory: Vec::with_capacity(self.memory),
        };
        for (index, slot) in self.slots.iter().enumerate() {
            let value = match &slot.value {
                None => return fail(CL_INVALID_KERNEL_ARGS),
                Some(ArgValue::Memory(Some(buffer))) => {
                    let buffer = buffer.upgrade().ok_or(Status(CL_INVALID_MEM_OBJECT))?;
                    let id = buffer.id_on(buffer.context().site())?.0;
                    captured.memory.push(buffer);
                    kernel_arg::Value::Memory(id)
                }
                _ if !slot.changed => continue,
                Some(ArgValue::Memory(None)) => kernel_arg::Value::Memory(0),
                Some(ArgValue::Plain(bytes)) => kernel_arg::Value::Plain(bytes.clone()),
                Some(ArgValue::Local(size)) => kernel_arg::Value::LocalSize(*size),
            };
            if slot.changed {
                captured.changed.push(wire(index, value));
            }
        }
        Ok(captured)
    }

    /// What was captured last has been sent.
    pub(super) fn sent(&mut self) {
        for slot in &mut self.slots {
            slot.changed = false;
        }
    }

    /// The same arguments for a kernel of which the node knows none.
    pub(super) fn for_clone(&self) -> Args {
        let mut copy = self.clone();
        for slot in &mut copy.slots {
            slot.changed = slot.value.is_some();
        }
        copy
    }
}

fn local_of(value: &ArgValue) -> u128 {
    match value {
        ArgValue::Local(size) => u128::from(*size),
        _ => 0,
    }
}

fn wire(index: usize, value: kernel_arg::Value) -> KernelArg {
    KernelArg {
        index: index as u32,
        value: Some(value),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plain(byte: u8) -> ArgValue {
        ArgValue::Plain(Bytes::copy_from_slice(&[byte; 4]))
    }

    fn changed(args: &Args) -> Vec<u32> {
        let captured = args.capture().unwrap();
        captured.changed.iter().map(|arg| arg.index).collect()
    }

    #[test]
    fn every_argument_must_have_been_set() {
        let mut args = Args::new(2);
        args.set(0, plain(1));
        assert_eq!(args.capture().unwrap_err().0, CL_INVALID_KERNEL_ARGS);
        args.set(1, ArgValue::Memory(None));
        assert_eq!(changed(&args), [0, 1]);
    }

    #[test]
    fn only_changes_travel_and_a_failed_send_loses_none() {
        let mut args = Args::new(3);
        args.set(0, plain(1));
        args.set(1, plain(2));
        args.set(2, ArgValue::Local(64));
        // Captured, but the send failed: nothing is forgotten.
        assert_eq!(changed(&args), [0, 1, 2]);
        assert_eq!(changed(&args), [0, 1, 2]);
        args.sent();
        assert!(changed(&args).is_empty());
        args.set(1, plain(2));
        assert!(changed(&args).is_empty(), "the same value is no change");
        args.set(1, plain(3));
        assert_eq!(changed(&args), [1]);
        assert_eq!(changed(&args.for_clone()), [0, 1, 2]);
    }

    #[test]
    fn a_buffer_that_is_gone_is_an_error_and_never_another_one() {
        let mut args = Args::new(1);
        args.set(0, ArgValue::Memory(Some(Weak::new())));
        assert_eq!(args.capture().unwrap_err().0, CL_INVALID_MEM_OBJECT);
    }

    #[test]
    fn local_memory_is_summed_over_what_is_set_now() {
        let mut args = Args::new(2);
        args.set(0, ArgValue::Local(100));
        args.set(1, ArgValue::Local(28));
        args.set(0, ArgValue::Local(4));
        assert_eq!((args.local_memory(), args.locals().len()), (32, 2));
    }
}
