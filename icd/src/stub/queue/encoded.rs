//! The encoded operation of a command, in a buffer that the thread reuses.
//!
//! Launches and small writes are most of what a program enqueues, so their messages are never built: sizes,
//! changed arguments and bytes are written straight to the wire format. All other commands are encoded by
//! the generated types. Invariant: the bytes are those that the generated types would produce (a test
//! compares them).
#![forbid(unsafe_code)]

use std::cell::Cell;

use bytes::Bytes;
use causeway_proto::command::{
    Marker, ReadBuffer, SvmPointer, SvmPointers, WriteBuffer, enqueue::Operation, kernel_arg,
};
use causeway_proto::id::{EventId, KernelId, MemoryId, QueueId};
use causeway_proto::region::Region;
use prost::encoding::{WireType, encode_key, encode_varint, encoded_len_varint, message, uint64};

use crate::transport::EncodeCommand;

/// Maximum capacity, in bytes, of a buffer that is kept for reuse.
const KEEP_CAPACITY: usize = 64 << 10;

thread_local! {
    // The thread's buffer, between two commands.
    static SPARE: Cell<Vec<u8>> = const { Cell::new(Vec::new()) };
}

/// An argument of a launch.
#[derive(Clone, Copy, Debug)]
pub(in crate::stub) enum Argument<'a> {
    /// The bytes of a value.
    Plain(&'a [u8]),
    /// A buffer's or image's id; 0 for NULL.
    Memory(u64),
    /// An address in shared virtual memory.
    Svm(SvmPointer),
    /// Size of local memory, in bytes.
    LocalSize(u64),
    /// A sampler's id.
    Sampler(u64),
    /// A device queue's id.
    DeviceQueue(u64),
}

impl Argument<'_> {
    /// Converts the argument to its generated type.
    pub(in crate::stub) fn to_wire(self) -> kernel_arg::Value {
        match self {
            Argument::Plain(bytes) => kernel_arg::Value::Plain(Bytes::copy_from_slice(bytes)),
            Argument::Memory(id) => kernel_arg::Value::Memory(id),
            Argument::Svm(at) => kernel_arg::Value::Svm(at),
            Argument::LocalSize(size) => kernel_arg::Value::LocalSize(size),
            Argument::Sampler(id) => kernel_arg::Value::Sampler(id),
            Argument::DeviceQueue(id) => kernel_arg::Value::DeviceQueue(id),
        }
    }
}

/// The encoded operation of an `Enqueue`.
#[derive(Debug)]
pub struct Encoded {
    // Number of the operation's field; `None` if `body` is the whole field, with its key and length.
    tag: Option<u32>,
    body: Vec<u8>,
}

impl Encoded {
    fn new(tag: Option<u32>) -> Encoded {
        // The program's last destructors may enqueue after the thread-local buffer is gone.
        let mut body = SPARE.try_with(Cell::take).unwrap_or_default();
        body.clear();
        Encoded { tag, body }
    }

    /// Begins a launch. Arguments and then sizes must follow.
    pub(in crate::stub) fn launch(kernel: KernelId) -> Encoded {
        let mut launch = Encoded::new(Some(field::ND_RANGE));
        launch.number(field::KERNEL, kernel.0);
        launch
    }

    /// Adds the next argument that has changed.
    pub(in crate::stub) fn argument(&mut self, index: u32, argument: Argument<'_>) {
        let index = u64::from(index);
        // Fields with the default value 0 are not sent.
        let of_index = if index == 0 {
            0
        } else {
            1 + encoded_len_varint(index)
        };
        let length = of_index
            + match argument {
                Argument::Plain(bytes) => 1 + encoded_len_varint(bytes.len() as u64) + bytes.len(),
                Argument::Memory(number)
                | Argument::LocalSize(number)
                | Argument::Sampler(number)
                | Argument::DeviceQueue(number) => 1 + encoded_len_varint(number),
                Argument::Svm(at) => message::encoded_len(field::SVM, &at),
            };
        encode_key(field::ARGS, WireType::LengthDelimited, &mut self.body);
        encode_varint(length as u64, &mut self.body);
        self.number(field::INDEX, index);
        match argument {
            Argument::Plain(bytes) => self.bytes(field::PLAIN, bytes.len(), |out| {
                out.extend_from_slice(bytes);
            }),
            // A member of a `oneof` is sent even if its value is 0.
            Argument::Memory(id) => uint64::encode(field::MEMORY, &id, &mut self.body),
            Argument::Svm(at) => message::encode(field::SVM, &at, &mut self.body),
            Argument::LocalSize(size) => uint64::encode(field::LOCAL_SIZE, &size, &mut self.body),
            Argument::Sampler(id) => uint64::encode(field::SAMPLER, &id, &mut self.body),
            Argument::DeviceQueue(id) => {
                uint64::encode(field::DEVICE_QUEUE, &id, &mut self.body);
            }
        }
    }

    /// Adds the sizes. Each list has one entry for each dimension, or is empty.
    pub(in crate::stub) fn sizes(&mut self, global: &[u64], offset: &[u64], local: &[u64]) {
        uint64::encode_packed(field::GLOBAL, global, &mut self.body);
        uint64::encode_packed(field::OFFSET, offset, &mut self.body);
        uint64::encode_packed(field::LOCAL, local, &mut self.body);
    }

    /// Adds the memory that the kernel reaches through pointers from now on.
    pub(in crate::stub) fn reaches(&mut self, memory: &[u64]) {
        let memory = memory.to_vec();
        message::encode(field::REACHES, &SvmPointers { memory }, &mut self.body);
    }

    /// Encodes a write; `append` adds its bytes, as many as the region has.
    pub(in crate::stub) fn write(
        buffer: MemoryId,
        region: &Region,
        append: impl FnOnce(&mut Vec<u8>),
    ) -> Encoded {
        let mut write = Encoded::new(Some(field::WRITE_BUFFER));
        write.number(field::BUFFER, buffer.0);
        message::encode(field::REGION, &region.to_wire(), &mut write.body);
        let length = region.packed_length() as usize;
        if length > 0 {
            write.bytes(field::CONTENTS, length, append);
        }
        write
    }

    /// Encodes a write whose bytes follow on bulk connections: `eager` ones at once, others on credit.
    pub(in crate::stub) fn bulk_write(buffer: MemoryId, region: &Region, eager: bool) -> Encoded {
        Encoded::of(&Operation::WriteBuffer(WriteBuffer {
            buffer: buffer.0,
            region: Some(region.to_wire()),
            contents: Bytes::new(),
            bulk: true,
            eager,
        }))
    }

    /// Encodes a read; its bytes come inside of the completion, or on bulk connections.
    pub(in crate::stub) fn read(buffer: MemoryId, region: &Region, bulk: bool) -> Encoded {
        Encoded::of(&Operation::ReadBuffer(ReadBuffer {
            buffer: buffer.0,
            region: Some(region.to_wire()),
            bulk,
        }))
    }

    /// Encodes a marker.
    pub(in crate::stub) fn marker() -> Encoded {
        Encoded::of(&Operation::Marker(Marker {}))
    }

    /// Encodes any operation by its generated type.
    pub(in crate::stub) fn of(operation: &Operation) -> Encoded {
        let mut encoded = Encoded::new(None);
        operation.encode(&mut encoded.body);
        encoded
    }

    /// Returns the encoded message of a launch or of a write with its bytes; for other operations, the field
    /// that contains the message.
    #[must_use]
    pub fn body(&self) -> &[u8] {
        &self.body
    }

    // Length of the operation's field, with its key and length.
    fn field_len(&self) -> usize {
        let body = self.body.len();
        match self.tag {
            Some(_) => 1 + encoded_len_varint(body as u64) + body,
            None => body,
        }
    }

    fn number(&mut self, tag: u32, number: u64) {
        if number != 0 {
            uint64::encode(tag, &number, &mut self.body);
        }
    }

    fn bytes(&mut self, tag: u32, length: usize, append: impl FnOnce(&mut Vec<u8>)) {
        encode_key(tag, WireType::LengthDelimited, &mut self.body);
        encode_varint(length as u64, &mut self.body);
        let begin = self.body.len();
        append(&mut self.body);
        debug_assert_eq!(self.body.len() - begin, length, "as many as were announced");
    }
}

impl Drop for Encoded {
    fn drop(&mut self) {
        let body = std::mem::take(&mut self.body);
        if body.capacity() <= KEEP_CAPACITY {
            // Has no effect on a thread that is about to end.
            let _ = SPARE.try_with(|spare| spare.set(body));
        }
    }
}

/// An `Enqueue` with an encoded operation.
#[derive(Debug)]
pub(in crate::stub) struct EncodedEnqueue<'a> {
    /// The event of the command.
    pub(in crate::stub) event: EventId,
    /// The queue of the command.
    pub(in crate::stub) queue: QueueId,
    /// The ids of the wait list.
    pub(in crate::stub) wait: &'a [u64],
    /// Whether nobody can observe the command's end.
    pub(in crate::stub) unobserved: bool,
    /// The operation of the command.
    pub(in crate::stub) operation: &'a Encoded,
}

impl EncodedEnqueue<'_> {
    // Length of the `Enqueue` without its own key and length.
    fn body_len(&self) -> usize {
        uint64::encoded_len(field::EVENT, &self.event.0)
            + uint64::encoded_len(field::QUEUE, &self.queue.0)
            + uint64::encoded_len_packed(field::WAIT, self.wait)
            + if self.unobserved { 2 } else { 0 }
            + self.operation.field_len()
    }
}

impl EncodeCommand for EncodedEnqueue<'_> {
    fn encoded_len(&self) -> usize {
        let body = self.body_len();
        1 + encoded_len_varint(body as u64) + body
    }

    fn encode(&self, out: &mut Vec<u8>) {
        encode_key(field::ENQUEUE, WireType::LengthDelimited, out);
        encode_varint(self.body_len() as u64, out);
        // These ids are never 0, so the generated type would always send them.
        uint64::encode(field::EVENT, &self.event.0, out);
        uint64::encode(field::QUEUE, &self.queue.0, out);
        uint64::encode_packed(field::WAIT, self.wait, out);
        if self.unobserved {
            encode_key(field::UNOBSERVED, WireType::Varint, out);
            encode_varint(1, out);
        }
        if let Some(tag) = self.operation.tag {
            encode_key(tag, WireType::LengthDelimited, out);
            encode_varint(self.operation.body.len() as u64, out);
        }
        out.extend_from_slice(&self.operation.body);
    }
}

/// Field numbers of `command.proto`; all below 16, so that each key is one byte.
mod field {
    // Command
    pub(in crate::stub) const ENQUEUE: u32 = 1;
    // Enqueue
    pub(in crate::stub) const EVENT: u32 = 1;
    pub(in crate::stub) const QUEUE: u32 = 2;
    pub(in crate::stub) const WAIT: u32 = 3;
    pub(in crate::stub) const UNOBSERVED: u32 = 4;
    pub(in crate::stub) const ND_RANGE: u32 = 10;
    pub(in crate::stub) const WRITE_BUFFER: u32 = 11;
    // NdRange
    pub(in crate::stub) const KERNEL: u32 = 1;
    pub(in crate::stub) const ARGS: u32 = 2;
    pub(in crate::stub) const GLOBAL: u32 = 3;
    pub(in crate::stub) const OFFSET: u32 = 4;
    pub(in crate::stub) const LOCAL: u32 = 5;
    pub(in crate::stub) const REACHES: u32 = 6;
    // KernelArg
    pub(in crate::stub) const INDEX: u32 = 1;
    pub(in crate::stub) const PLAIN: u32 = 2;
    pub(in crate::stub) const MEMORY: u32 = 3;
    pub(in crate::stub) const LOCAL_SIZE: u32 = 4;
    pub(in crate::stub) const SAMPLER: u32 = 5;
    pub(in crate::stub) const SVM: u32 = 6;
    pub(in crate::stub) const DEVICE_QUEUE: u32 = 7;
    // WriteBuffer
    pub(in crate::stub) const BUFFER: u32 = 1;
    pub(in crate::stub) const REGION: u32 = 2;
    pub(in crate::stub) const CONTENTS: u32 = 3;
}

#[cfg(test)]
mod tests {
    use super::*;
    use causeway_proto::command::{Enqueue, KernelArg, NdRange, command::Kind};
    use proptest::prelude::*;

    #[test]
    fn a_thread_that_is_ending_may_still_enqueue() {
        use std::sync::mpsc::{Sender, channel};

        struct Last(Sender<usize>);
        impl Drop for Last {
            fn drop(&mut self) {
                let launch = Encoded::launch(KernelId(3));
                self.0.send(launch.body.len()).unwrap();
            }
        }
        thread_local! {
            static LAST: Cell<Option<Last>> = const { Cell::new(None) };
        }

        let (sender, lengths) = channel();
        let ending = std::thread::spawn(move || {
            // Thread-local values are dropped in reverse order, so this one goes after the thread's buffer.
            LAST.set(Some(Last(sender)));
            drop(Encoded::launch(KernelId(3)));
        });
        ending.join().unwrap();
        assert_eq!(lengths.recv(), Ok(2));
    }

    fn encoded(command: &impl EncodeCommand) -> Vec<u8> {
        let mut bytes = Vec::new();
        command.encode(&mut bytes);
        assert_eq!(bytes.len(), command.encoded_len());
        bytes
    }

    // Encodes the same command in both ways.
    fn both(
        (event, queue, wait, unobserved): (u64, u64, Vec<u64>, bool),
        operation: &Encoded,
        message: Operation,
    ) -> (Vec<u8>, Vec<u8>) {
        let ours = EncodedEnqueue {
            event: EventId(event),
            queue: QueueId(queue),
            wait: &wait,
            unobserved,
            operation,
        };
        let theirs = Kind::Enqueue(Enqueue {
            event,
            queue,
            wait: wait.clone(),
            unobserved,
            operation: Some(message),
        });
        (encoded(&ours), encoded(&theirs))
    }

    fn head() -> impl Strategy<Value = (u64, u64, Vec<u64>, bool)> {
        let wait = proptest::collection::vec(any::<u64>(), 0..4);
        (1..=u64::MAX, 1u64..1 << 20, wait, any::<bool>())
    }

    fn value() -> impl Strategy<Value = kernel_arg::Value> {
        prop_oneof![
            proptest::collection::vec(any::<u8>(), 0..200)
                .prop_map(|bytes| kernel_arg::Value::Plain(bytes.into())),
            prop_oneof![Just(0), any::<u64>()].prop_map(kernel_arg::Value::Memory),
            prop_oneof![Just(0), any::<u64>()].prop_map(kernel_arg::Value::LocalSize),
            any::<u64>().prop_map(kernel_arg::Value::Sampler),
            any::<u64>().prop_map(kernel_arg::Value::DeviceQueue),
            (any::<u64>(), prop_oneof![Just(0), any::<u64>()]).prop_map(|(memory, offset)| {
                kernel_arg::Value::Svm(SvmPointer { memory, offset })
            }),
        ]
    }

    fn sizes() -> impl Strategy<Value = Vec<u64>> {
        proptest::collection::vec(any::<u64>(), 0..=3)
    }

    proptest! {
        #[test]
        fn a_launch_is_what_its_message_would_be(
            head in head(), kernel in any::<u64>(),
            args in proptest::collection::vec((0u32..300, value()), 0..6),
            global in sizes(), offset in sizes(), local in sizes(),
            reaches in proptest::option::of(proptest::collection::vec(any::<u64>(), 0..4)),
        ) {
            let mut launch = Encoded::launch(KernelId(kernel));
            for (index, value) in &args {
                let argument = match value {
                    kernel_arg::Value::Plain(bytes) => Argument::Plain(bytes),
                    kernel_arg::Value::Memory(id) => Argument::Memory(*id),
                    kernel_arg::Value::LocalSize(size) => Argument::LocalSize(*size),
                    kernel_arg::Value::Sampler(id) => Argument::Sampler(*id),
                    kernel_arg::Value::DeviceQueue(id) => Argument::DeviceQueue(*id),
                    kernel_arg::Value::Svm(at) => Argument::Svm(*at),
                };
                prop_assert_eq!(&argument.to_wire(), value);
                launch.argument(*index, argument);
            }
            launch.sizes(&global, &offset, &local);
            if let Some(memory) = &reaches {
                launch.reaches(memory);
            }
            let reaches = reaches.map(|memory| SvmPointers { memory });
            let args = args.into_iter().map(|(index, value)| KernelArg { index, value: Some(value) });
            let message = NdRange { kernel, args: args.collect(), global, offset, local, reaches };
            let (ours, theirs) = both(head, &launch, Operation::NdRange(message));
            prop_assert_eq!(ours, theirs);
        }

        #[test]
        fn a_write_is_what_its_message_would_be(
            head in head(), buffer in any::<u64>(), offset in 0u64..1 << 40,
            contents in proptest::collection::vec(any::<u8>(), 0..500),
        ) {
            let region = Region::linear(offset, contents.len() as u64).unwrap();
            let write = Encoded::write(MemoryId(buffer), &region, |out| {
                out.extend_from_slice(&contents);
            });
            let message = WriteBuffer {
                buffer,
                region: Some(region.to_wire()),
                contents: contents.into(),
                bulk: false,
                eager: false,
            };
            let (ours, theirs) = both(head, &write, Operation::WriteBuffer(message));
            prop_assert_eq!(ours, theirs);
        }
    }

    proptest! {
        #[test]
        fn any_other_operation_is_what_its_message_would_be(
            head in head(), buffer in any::<u64>(), length in 0u64..1 << 40, flag in any::<bool>(),
        ) {
            let region = Region::linear(3, length).unwrap();
            let read = Encoded::read(MemoryId(buffer), &region, flag);
            let message = ReadBuffer { buffer, region: Some(region.to_wire()), bulk: flag };
            let (ours, theirs) = both(head.clone(), &read, Operation::ReadBuffer(message));
            prop_assert_eq!(ours, theirs);
            // An empty message is a key and a length of 0.
            let marker = Operation::Marker(Marker {});
            let (ours, theirs) = both(head, &Encoded::of(&marker), marker);
            prop_assert_eq!(ours, theirs);
        }
    }

    #[test]
    fn the_buffer_of_one_command_serves_the_next() {
        let mut first = Encoded::launch(KernelId(1));
        first.argument(0, Argument::Plain(&[7; 100]));
        let buffer = first.body.as_ptr();
        drop(first);
        let second = Encoded::launch(KernelId(1));
        assert_eq!(second.body.as_ptr(), buffer);
        assert_eq!(second.body.len(), 2);
    }
}
