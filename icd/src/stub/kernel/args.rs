//! The arguments of a kernel, and which of them a site does not have yet.
//!
//! A launch carries the arguments that differ from the launch *sent* before to the same site. Every change
//! has its own number, so one comparison finds a difference, in whatever order captured launches are sent.
//! References to memory are weak: arguments do not keep a buffer alive, but launches do. Specification:
//! "Setting Kernel Arguments". Invariant: an argument counts as known to a site only after a command with
//! it was sent there.

use std::sync::{Arc, Weak};

use causeway_proto::command::{KernelArg, kernel_arg};
use cl_headers::types::CL_INVALID_MEM_OBJECT;
use smallvec::SmallVec;

use crate::error::{ClResult, Status};
use crate::stub::queue::encoded::Argument as Named;
use crate::stub::{Buffer, Device, DeviceQueue, Hold, Sampler};

/// The bytes of a value; up to 16 need no allocation.
pub type PlainBytes = SmallVec<[u8; 16]>;

/// The value of an argument.
#[derive(Clone, Debug)]
pub enum ArgValue {
    /// The bytes of a plain value.
    Plain(PlainBytes),
    /// A buffer or image; `None` for NULL.
    Memory(Option<Weak<Buffer>>),
    /// An address in shared virtual memory: the allocation and the offset in bytes.
    Svm(Weak<Buffer>, u64),
    /// The size of local memory, in bytes.
    Local(u64),
    /// A sampler. The argument keeps it alive, which an application cannot observe.
    Sampler(Arc<Sampler>),
    /// A device queue. The argument keeps it alive, too.
    Queue(Arc<DeviceQueue>),
}

impl ArgValue {
    // Whether setting `other` in place of this value would change nothing.
    fn is(&self, other: &ArgValue) -> bool {
        match (self, other) {
            (ArgValue::Plain(one), ArgValue::Plain(two)) => one == two,
            (ArgValue::Memory(None), ArgValue::Memory(None)) => true,
            (ArgValue::Memory(Some(one)), ArgValue::Memory(Some(two))) => Weak::ptr_eq(one, two),
            (ArgValue::Svm(one, at), ArgValue::Svm(two, there)) => {
                Weak::ptr_eq(one, two) && at == there
            }
            (ArgValue::Local(one), ArgValue::Local(two)) => one == two,
            (ArgValue::Sampler(one), ArgValue::Sampler(two)) => Arc::ptr_eq(one, two),
            (ArgValue::Queue(one), ArgValue::Queue(two)) => Arc::ptr_eq(one, two),
            _ => false,
        }
    }

    // The buffer that a launch with this argument must keep alive.
    fn buffer(&self) -> Option<&Weak<Buffer>> {
        match self {
            ArgValue::Memory(Some(buffer)) | ArgValue::Svm(buffer, _) => Some(buffer),
            _ => None,
        }
    }
}

#[derive(Clone, Debug, Default)]
struct ArgumentSlot {
    value: Option<ArgValue>,
    // The number of the change that set it; 0 if never set.
    change: u64,
}

/// The current arguments of a kernel; see the module.
#[derive(Clone, Debug)]
pub(super) struct Args {
    slots: Vec<ArgumentSlot>,
    reaches: Reaches,
    changes: u64,
    // Number of arguments that were never set.
    unset: usize,
    // Number of arguments that are buffers, images or shared virtual memory.
    memory: usize,
    // Number of device queues.
    queues: usize,
    // Sum of all local sizes. Wider than each size, so that the sum cannot overflow.
    local: u128,
}

/// The shared virtual memory that is reached through pointers in memory.
#[derive(Clone, Debug, Default)]
struct Reaches {
    memory: Vec<Weak<Buffer>>,
    // The number of the change that set it; 0 if never set.
    change: u64,
}

/// An argument of a launch: the number of the change that set it, and its value.
pub(super) type Argument<'a> = (u64, Value<'a>);

/// The value of an [`Argument`], with strong references.
#[derive(Clone, Copy, Debug)]
pub(super) enum Value<'a> {
    Plain(&'a [u8]),
    Memory(Option<&'a Arc<Buffer>>),
    Svm(&'a Arc<Buffer>, u64),
    Local(u64),
    Sampler(&'a Arc<Sampler>),
    Queue(&'a Arc<DeviceQueue>),
}

/// An argument of a launch that is sent later.
#[derive(Clone, Debug)]
pub(super) struct Captured {
    change: u64,
    value: CapturedValue,
}

#[derive(Clone, Debug)]
enum CapturedValue {
    Plain(PlainBytes),
    Memory(Option<Arc<Buffer>>),
    Svm(Arc<Buffer>, u64),
    Local(u64),
    Sampler(Arc<Sampler>),
    Queue(Arc<DeviceQueue>),
}

impl Captured {
    /// Returns the argument as it was when captured.
    pub(super) fn argument(&self) -> Argument<'_> {
        let value = match &self.value {
            CapturedValue::Plain(bytes) => Value::Plain(bytes),
            CapturedValue::Memory(buffer) => Value::Memory(buffer.as_ref()),
            CapturedValue::Svm(buffer, offset) => Value::Svm(buffer, *offset),
            CapturedValue::Local(size) => Value::Local(*size),
            CapturedValue::Sampler(sampler) => Value::Sampler(sampler),
            CapturedValue::Queue(queue) => Value::Queue(queue),
        };
        (self.change, value)
    }

    /// Returns the number of the change that set the argument.
    pub(super) fn change(&self) -> u64 {
        self.change
    }

    /// Returns the argument's buffer, if it has one.
    pub(super) fn buffer(&self) -> Option<&Arc<Buffer>> {
        match &self.value {
            CapturedValue::Memory(buffer) => buffer.as_ref(),
            CapturedValue::Svm(buffer, _) => Some(buffer),
            _ => None,
        }
    }
}

/// The changes that a site knows, for each argument: those of the latest launch sent there.
#[derive(Debug)]
pub(super) struct SentArgs {
    args: Box<[u64]>,
    reaches: u64,
}

impl SentArgs {
    /// Makes the state of a site that has received no launch.
    pub(super) fn nothing(count: usize) -> SentArgs {
        SentArgs {
            args: vec![0; count].into(),
            reaches: 0,
        }
    }

    /// Makes the state of a site that has received a launch with `args`.
    pub(super) fn of(args: &Args) -> SentArgs {
        let mut known = SentArgs::nothing(args.len());
        known.note(args.changes());
        known.note_reaches(args);
        known
    }

    /// Returns the arguments that the site needs for a launch. `named` converts a value to the site's ids.
    ///
    /// # Errors
    /// Those of `named`.
    pub(super) fn news<'a>(
        &self,
        arguments: impl Iterator<Item = Argument<'a>>,
        named: impl Fn(Value<'a>) -> ClResult<Named<'a>>,
    ) -> ClResult<Vec<KernelArg>> {
        let changed = self.changed(arguments);
        let news = changed.map(|(index, value)| Ok(wire(index, named(value)?.to_wire())));
        news.collect()
    }

    /// Returns the arguments that the site does not know yet, with their indices.
    pub(super) fn changed<'a>(
        &self,
        arguments: impl Iterator<Item = Argument<'a>>,
    ) -> impl Iterator<Item = (usize, Value<'a>)> {
        let compared = arguments.zip(&self.args).enumerate();
        compared.filter_map(|(index, ((change, value), known))| {
            (change != *known).then_some((index, value))
        })
    }

    /// Records that a launch was sent to the site; `changes` set its arguments.
    pub(super) fn note(&mut self, changes: impl Iterator<Item = u64>) {
        for (change, known) in changes.zip(&mut self.args) {
            *known = change;
        }
    }

    /// Returns the memory reached through pointers, if the site has to be told about it. The result is a
    /// part of `buffers`, which [`Args::buffers`] returned.
    pub(super) fn reaches<'a>(
        &self,
        args: &Args,
        buffers: &'a [Arc<Buffer>],
    ) -> Option<&'a [Arc<Buffer>]> {
        (self.reaches != args.reaches.change).then(|| args.reached(buffers))
    }

    /// Records that the site was told about the memory reached through pointers.
    pub(super) fn note_reaches(&mut self, args: &Args) {
        self.reaches = args.reaches.change;
    }
}

impl Args {
    pub(super) fn new(count: usize) -> Args {
        Args {
            slots: vec![ArgumentSlot::default(); count],
            reaches: Reaches::default(),
            changes: 0,
            unset: count,
            memory: 0,
            queues: 0,
            local: 0,
        }
    }

    /// Sets an argument. The caller has checked the index.
    pub(super) fn set(&mut self, index: usize, value: ArgValue) {
        let slot = &mut self.slots[index];
        // The same value again is no change, so a launch need not carry it.
        if slot.value.as_ref().is_some_and(|old| old.is(&value)) {
            return;
        }
        self.memory += usize::from(value.buffer().is_some());
        self.queues += usize::from(matches!(value, ArgValue::Queue(_)));
        self.local += local_of(&value);
        match &slot.value {
            Some(old) => {
                self.memory -= usize::from(old.buffer().is_some());
                self.queues -= usize::from(matches!(old, ArgValue::Queue(_)));
                self.local -= local_of(old);
            }
            None => self.unset -= 1,
        }
        self.changes += 1;
        *slot = ArgumentSlot {
            value: Some(value),
            change: self.changes,
        };
    }

    /// Replaces the memory that is reached through pointers.
    pub(super) fn set_reaches(&mut self, memory: Vec<Weak<Buffer>>) {
        self.changes += 1;
        self.reaches = Reaches {
            memory,
            change: self.changes,
        };
    }

    /// Returns the number of arguments.
    pub(super) fn len(&self) -> usize {
        self.slots.len()
    }

    /// Returns the memory reached through pointers: a part of `buffers`, which [`Args::buffers`] returned.
    pub(super) fn reached<'a>(&self, buffers: &'a [Arc<Buffer>]) -> &'a [Arc<Buffer>] {
        &buffers[self.memory..]
    }

    /// Returns the local memory that the arguments request, in bytes.
    pub(super) fn local_memory(&self) -> u64 {
        u64::try_from(self.local).unwrap_or(u64::MAX)
    }

    /// Whether all device queues among the arguments belong to `device`.
    pub(super) fn queues_are_of(&self, device: &Device) -> bool {
        let of_it = |slot: &ArgumentSlot| match &slot.value {
            Some(ArgValue::Queue(queue)) => std::ptr::eq(&**queue.device(), device),
            _ => true,
        };
        self.queues == 0 || self.slots.iter().all(of_it)
    }

    /// Returns the local arguments that are set.
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

    /// Whether every argument was set.
    pub(super) fn are_set(&self) -> bool {
        self.unset == 0
    }

    /// Returns the buffers that a launch uses: first those of the arguments, in order, then those reached
    /// through pointers that still exist.
    ///
    /// # Errors
    /// `CL_INVALID_MEM_OBJECT` when an argument's buffer no longer exists.
    pub(super) fn buffers(&self) -> ClResult<Hold> {
        let mut buffers = Hold::with_capacity(self.memory + self.reaches.memory.len());
        let set = self.slots.iter().filter_map(|slot| slot.value.as_ref());
        for buffer in set.filter_map(ArgValue::buffer) {
            buffers.push(buffer.upgrade().ok_or(Status(CL_INVALID_MEM_OBJECT))?);
        }
        buffers.extend(self.reaches.memory.iter().filter_map(Weak::upgrade));
        Ok(buffers)
    }

    /// Returns all arguments, combined with the buffers that [`Args::buffers`] returned.
    pub(super) fn with<'a>(
        &'a self,
        buffers: &'a [Arc<Buffer>],
    ) -> impl Iterator<Item = Argument<'a>> {
        let mut buffers = buffers.iter();
        self.slots.iter().map(move |slot| {
            let value = match &slot.value {
                Some(ArgValue::Plain(bytes)) => Value::Plain(bytes),
                Some(ArgValue::Local(size)) => Value::Local(*size),
                Some(ArgValue::Sampler(sampler)) => Value::Sampler(sampler),
                Some(ArgValue::Queue(queue)) => Value::Queue(queue),
                Some(ArgValue::Memory(Some(_))) => Value::Memory(buffers.next()),
                Some(ArgValue::Svm(_, offset)) => {
                    let next = buffers.next();
                    next.map_or(Value::Memory(None), |buffer| Value::Svm(buffer, *offset))
                }
                Some(ArgValue::Memory(None)) | None => Value::Memory(None),
            };
            (slot.change, value)
        })
    }

    /// Returns the numbers of the changes that set the arguments.
    pub(super) fn changes(&self) -> impl Iterator<Item = u64> {
        self.slots.iter().map(|slot| slot.change)
    }

    /// Captures the arguments for a launch that is sent later, when other values may be set.
    pub(super) fn capture(&self, buffers: &[Arc<Buffer>]) -> Box<[Captured]> {
        let kept = self.with(buffers).map(|(change, value)| Captured {
            change,
            value: match value {
                Value::Plain(bytes) => CapturedValue::Plain(bytes.into()),
                Value::Memory(buffer) => CapturedValue::Memory(buffer.cloned()),
                Value::Svm(buffer, offset) => CapturedValue::Svm(buffer.clone(), offset),
                Value::Local(size) => CapturedValue::Local(size),
                Value::Sampler(sampler) => CapturedValue::Sampler(sampler.clone()),
                Value::Queue(queue) => CapturedValue::Queue(queue.clone()),
            },
        });
        kept.collect()
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
    use crate::error::fail;

    fn plain(byte: u8) -> ArgValue {
        ArgValue::Plain([byte; 4][..].into())
    }

    fn named(value: Value<'_>) -> ClResult<Named<'_>> {
        match value {
            Value::Plain(bytes) => Ok(Named::Plain(bytes)),
            Value::Local(size) => Ok(Named::LocalSize(size)),
            Value::Memory(None) => Ok(Named::Memory(0)),
            _ => fail(CL_INVALID_MEM_OBJECT),
        }
    }

    fn news(args: &Args, known: &SentArgs) -> Vec<u32> {
        let news = known.news(args.with(&[]), named);
        news.unwrap().iter().map(|arg| arg.index).collect()
    }

    fn three() -> Args {
        let mut args = Args::new(3);
        args.set(0, plain(1));
        args.set(1, plain(2));
        args.set(2, ArgValue::Local(64));
        args
    }

    #[test]
    fn an_argument_that_was_never_set_is_missed_and_not_told() {
        let mut args = Args::new(2);
        args.set(0, plain(1));
        assert!(!args.are_set());
        assert_eq!(news(&args, &SentArgs::nothing(2)), [0]);
        let known = SentArgs::of(&args);
        args.set(1, ArgValue::Memory(None));
        assert!(args.are_set() && args.buffers().unwrap().is_empty());
        assert_eq!(news(&args, &SentArgs::nothing(2)), [0, 1]);
        assert_eq!(news(&args, &known), [1]);
    }

    #[test]
    fn only_changes_travel_and_a_failed_send_loses_none() {
        let (mut args, mut known) = (three(), SentArgs::nothing(3));
        // A failed send loses no change.
        assert_eq!(news(&args, &known), [0, 1, 2]);
        assert_eq!(news(&args, &known), [0, 1, 2]);
        known.note(args.changes());
        assert!(news(&args, &known).is_empty());
        args.set(1, plain(2));
        assert!(
            news(&args, &known).is_empty(),
            "the same value is no change"
        );
        args.set(1, plain(3));
        assert_eq!(news(&args, &known), [1]);
        // For another site, or for a clone, all are new.
        assert_eq!(news(&args, &SentArgs::nothing(3)), [0, 1, 2]);
    }

    #[test]
    fn a_launch_sent_later_takes_its_own_values_and_the_next_one_back_the_newer() {
        let (mut args, mut known) = (three(), SentArgs::nothing(3));
        let early = args.capture(&[]);
        args.set(1, plain(3));
        known.note(args.changes());
        let late = early.iter().map(Captured::argument);
        let news_of_early = known.news(late, named);
        assert_eq!(
            news_of_early.unwrap(),
            [wire(1, kernel_arg::Value::Plain(vec![2; 4].into()))]
        );
        known.note(early.iter().map(Captured::change));
        assert_eq!(news(&args, &known), [1]);
    }

    #[test]
    fn a_buffer_that_is_gone_is_an_error_and_never_another_one() {
        let mut args = Args::new(1);
        args.set(0, ArgValue::Memory(Some(Weak::new())));
        assert_eq!(args.buffers().unwrap_err().0, CL_INVALID_MEM_OBJECT);
    }

    #[test]
    fn memory_reached_by_pointers_is_told_once_and_never_keeps_what_is_gone() {
        let (mut args, mut known) = (Args::new(0), SentArgs::nothing(0));
        assert!(known.reaches(&args, &[]).is_none(), "never said");
        args.set_reaches(vec![Weak::new()]);
        let buffers = args.buffers().unwrap();
        assert!(known.reaches(&args, &buffers).is_some_and(<[_]>::is_empty));
        known.note_reaches(&args);
        assert!(known.reaches(&args, &buffers).is_none());
        assert!(SentArgs::nothing(0).reaches(&args, &buffers).is_some());
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
