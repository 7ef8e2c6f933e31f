//! Handles: what the application holds, what it may do with it, and how long it lives.
//!
//! A handle is a `repr(C)` block whose first two words are what loaders read
//! ([`cl_headers::ObjectHead`]). All live ones stand in one table by address, so that a NULL, foreign,
//! released or mistyped handle is recognised without touching its memory.
//!
//! A handle lives as long as its stub. The application's holds are counted apart
//! (`*_REFERENCE_COUNT` shows them alone) and keep the stub alive while there is one; after that other
//! objects may still hold it (a queue its context…), and a handle that a query gives back then is valid,
//! as on every driver. A kernel or buffer that only running commands still use is dead to the application.
//!
//! Loaders read the first words of every handle before we see it. So a block, once made, stays readable
//! for the life of the process: a dead one rests, empty, and is used again for a later object of its
//! kind when many others have died since.
//!
//! Invariant: an address is in the table exactly while the block behind it has a live stub; a block
//! rests only after its entry was removed under the table's shard lock.

use std::collections::VecDeque;
use std::hash::BuildHasherDefault;
use std::sync::{Arc, LazyLock, Weak};

use cl_headers::ObjectHead;
use cl_headers::server::{CL_INVALID_SERVER_WWU, cl_server_WWU};
use cl_headers::types::*;
use dashmap::DashMap;
use parking_lot::Mutex;
use rustc_hash::FxHasher;

use crate::error::{ClResult, fail};
use crate::stub::{
    Binding, Buffer, CommandBuffer, Context, Device, DeviceQueue, Event, Kernel, MutableCommand,
    Platform, Program, Queue, Sampler, Semaphore, Server,
};

/// Which OpenCL object a handle stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Platform,
    Device,
    Context,
    Queue,
    DeviceQueue,
    Memory,
    Program,
    Kernel,
    Event,
    Sampler,
    CommandBuffer,
    MutableCommand,
    Semaphore,
    Server,
}

/// A stub that applications hold by handle.
pub(crate) trait Object: Send + Sync + Sized + 'static {
    /// Its kind.
    const KIND: Kind;
    /// The code for a handle that is none of this kind.
    const INVALID: cl_int;
    /// The C handle type.
    type Raw: Copy;
    /// Its tie to a handle.
    fn binding(&self) -> &Binding;
    /// Whether the application may come by its handle again after its last hold: from a query on
    /// another object, or in a callback. Otherwise the handle is dead although commands still use
    /// the object.
    fn outlives_holds(&self) -> bool;
    /// The address behind a C handle.
    fn address(raw: Self::Raw) -> usize;
    /// The C handle at an address.
    fn raw(address: usize) -> Self::Raw;
}

macro_rules! objects {
    ($($stub:ty: $kind:ident, $raw:ty, $invalid:ident, $outlives:expr;)*) => {$(
        impl Object for $stub {
            const KIND: Kind = Kind::$kind;
            const INVALID: cl_int = $invalid;
            type Raw = $raw;
            fn binding(&self) -> &Binding {
                &self.binding
            }
            fn outlives_holds(&self) -> bool {
                let outlives: fn(&$stub) -> bool = $outlives;
                outlives(self)
            }
            fn address(raw: $raw) -> usize {
                raw.addr()
            }
            fn raw(address: usize) -> $raw {
                std::ptr::with_exposed_provenance_mut(address)
            }
        }
    )*};
}

objects! {
    Platform: Platform, cl_platform_id, CL_INVALID_PLATFORM, |_| true;
    Device: Device, cl_device_id, CL_INVALID_DEVICE, |_| true;
    Context: Context, cl_context, CL_INVALID_CONTEXT, |_| true;
    Queue: Queue, cl_command_queue, CL_INVALID_COMMAND_QUEUE, |_| true;
    DeviceQueue: DeviceQueue, cl_command_queue, CL_INVALID_COMMAND_QUEUE, |_| false;
    Buffer: Memory, cl_mem, CL_INVALID_MEM_OBJECT, Buffer::has_parts;
    Program: Program, cl_program, CL_INVALID_PROGRAM, |_| true;
    Kernel: Kernel, cl_kernel, CL_INVALID_KERNEL, Kernel::is_recorded;
    Event: Event, cl_event, CL_INVALID_EVENT, |_| true;
    Sampler: Sampler, cl_sampler, CL_INVALID_SAMPLER, |_| false;
    CommandBuffer: CommandBuffer, cl_command_buffer_khr, CL_INVALID_COMMAND_BUFFER_KHR, |_| false;
    MutableCommand: MutableCommand, cl_mutable_command_khr, CL_INVALID_MUTABLE_COMMAND_KHR, |_| true;
    Semaphore: Semaphore, cl_semaphore_khr, CL_INVALID_SEMAPHORE_KHR, |_| false;
    Server: Server, cl_server_WWU, CL_INVALID_SERVER_WWU, |_| true;
}

#[repr(C)]
struct Block<T> {
    head: ObjectHead,
    holds: Mutex<Holds<T>>,
}

struct Holds<T> {
    count: u32,
    stub: Weak<T>,
    // Some while the application holds the object.
    held: Option<Arc<T>>,
}

type Table = DashMap<usize, Kind, BuildHasherDefault<FxHasher>>;

static TABLE: LazyLock<Table> = LazyLock::new(Table::default);

/// Gives a new stub its handle, with one hold of the application's.
pub(crate) fn publish<T: Object>(stub: Arc<T>) -> T::Raw {
    publish_held(stub, 1)
}

/// Gives a stub its handle without any hold: platforms, servers and root devices, which are never released, and launches
/// of command buffers, which go with these.
pub(crate) fn publish_permanent<T: Object>(stub: &Arc<T>) -> T::Raw {
    publish_held(stub.clone(), 0)
}

fn publish_held<T: Object>(stub: Arc<T>, count: u32) -> T::Raw {
    let block = Block {
        head: super::loader::new_head(),
        holds: Mutex::new(Holds {
            count,
            stub: Arc::downgrade(&stub),
            held: (count > 0).then(|| stub.clone()),
        }),
    };
    let address = place(block);
    TABLE.insert(address, T::KIND);
    stub.binding().bind(address, retire::<T>);
    T::raw(address)
}

/// How many blocks of a kind rest before the oldest is used again. A program that still uses a handle
/// after so many later ones died is told of another object; one that does so earlier gets its error.
const AT_REST: usize = 4096;

// Addresses of blocks whose stubs are gone, the longest dead first; one list a kind, since a block is
// only used again for an object of its own type.
static RESTING: [Mutex<VecDeque<usize>>; Kind::Server as usize + 1] =
    [const { Mutex::new(VecDeque::new()) }; Kind::Server as usize + 1];

/// Puts a block into memory that stays readable for ever; its address.
fn place<T: Object>(block: Block<T>) -> usize {
    let rested = {
        let mut resting = RESTING[T::KIND as usize].lock();
        if resting.len() > AT_REST {
            resting.pop_front()
        } else {
            None
        }
    };
    let Some(address) = rested else {
        return Box::into_raw(Box::new(block)).expose_provenance();
    };
    // SAFETY: the address came from `Box::into_raw` of this type, nobody else has it since it was
    // taken from the list, and the empty block there needs no drop.
    unsafe { std::ptr::with_exposed_provenance_mut::<Block<T>>(address).write(block) };
    address
}

fn retire<T: Object>(address: usize) {
    if TABLE.remove(&address).is_none() {
        return;
    }
    // SAFETY: the entry, which is removed once, said that a block of this type is there; blocks are
    // never freed.
    let block = unsafe { &*std::ptr::with_exposed_provenance::<Block<T>>(address) };
    let dead = std::mem::replace(
        &mut *block.holds.lock(),
        Holds {
            count: 0,
            stub: Weak::new(),
            held: None,
        },
    );
    // What is left of the stub: its memory.
    drop(dead);
    RESTING[T::KIND as usize].lock().push_back(address);
}

/// The handle of a stub, as info answers need it; NULL for one that the application never saw.
pub(crate) fn raw_of<T: Object>(stub: &Arc<T>) -> T::Raw {
    T::raw(stub.binding().handle().unwrap_or(0))
}

fn with_holds<T: Object, R>(raw: T::Raw, body: impl FnOnce(&mut Holds<T>) -> R) -> ClResult<R> {
    let address = T::address(raw);
    if address == 0 {
        return fail(T::INVALID);
    }
    match TABLE.get(&address) {
        Some(kind) if *kind == T::KIND => {
            // SAFETY: the entry says that a block of this type is there; the guard keeps it.
            let block = unsafe { &*std::ptr::with_exposed_provenance::<Block<T>>(address) };
            Ok(body(&mut block.holds.lock()))
        }
        _ => fail(T::INVALID),
    }
}

/// The stub behind a handle.
///
/// # Errors
/// The kind's `CL_INVALID_*` for NULL, foreign, dead and mistyped handles.
pub(crate) fn resolve<T: Object>(raw: T::Raw) -> ClResult<Arc<T>> {
    // Outside of the table's lock: the last reference may go with what is refused.
    let (stub, held) = with_holds(raw, |holds: &mut Holds<T>| {
        (holds.stub.upgrade(), holds.count > 0)
    })?;
    match stub {
        Some(stub) if held || stub.outlives_holds() => Ok(stub),
        _ => fail(T::INVALID),
    }
}

/// One more hold.
///
/// # Errors
/// As [`resolve`].
pub(crate) fn retain<T: Object>(raw: T::Raw) -> ClResult {
    let stub = resolve::<T>(raw)?;
    with_holds(raw, |holds: &mut Holds<T>| {
        holds.count = holds.count.saturating_add(1);
        holds.held.get_or_insert_with(|| stub.clone());
    })
}

/// One hold less; the last one lets the stub go once nothing else holds it.
///
/// # Errors
/// As [`resolve`], and the same for a handle that the application holds no more.
pub(crate) fn release<T: Object>(raw: T::Raw) -> ClResult {
    release_one::<T>(raw).map(drop)
}

/// The same; says whether it was the application's last hold.
///
/// # Errors
/// As [`release`].
pub(crate) fn release_one<T: Object>(raw: T::Raw) -> ClResult<bool> {
    // The stub may be dropped by this, which removes the entry: not under the shard's lock.
    let last = with_holds(raw, |holds: &mut Holds<T>| {
        holds.count = holds.count.checked_sub(1)?;
        Some(if holds.count == 0 {
            holds.held.take()
        } else {
            None
        })
    })?;
    match last {
        Some(stub) => {
            let was_last = stub.is_some();
            drop(stub);
            Ok(was_last)
        }
        None => fail(T::INVALID),
    }
}

/// The application's holds, for `*_REFERENCE_COUNT`.
///
/// # Errors
/// As [`resolve`].
pub(crate) fn reference_count<T: Object>(raw: T::Raw) -> ClResult<cl_uint> {
    with_holds(raw, |holds: &mut Holds<T>| holds.count)
}

/// Sets the loader's word in a live object of this type (ICD 2).
pub(crate) fn set_dispatch_data<T: Object>(raw: T::Raw, data: *mut c_void) -> ClResult {
    let address = T::address(raw);
    match TABLE.get(&address) {
        Some(kind) if *kind == T::KIND => {
            // SAFETY: as in `with_holds`.
            let block = unsafe { &*std::ptr::with_exposed_provenance::<Block<T>>(address) };
            block.head.set_dispatch_data(data);
            Ok(())
        }
        _ => fail(T::INVALID),
    }
}
