//! Handles: the C objects that the application sees, their reference counts and their lifetime.
//!
//! A handle is a `repr(C)` block that begins with the two words that loaders read
//! ([`cl_headers::ObjectHead`]). One table lists all live blocks by address. So a NULL, foreign, released
//! or mistyped handle is recognised without a read of its memory.
//!
//! A handle lives as long as its stub. The application's references are counted separately, and only they
//! appear in `*_REFERENCE_COUNT`. They keep the stub alive. Other objects may keep it alive for longer, for
//! example a queue keeps its context. A query may then return the handle again, and it is valid. A kernel
//! or buffer that only running commands still use is invalid for the application.
//!
//! Loaders read the first words of a handle before this library sees it. So a block stays readable for the
//! life of the process. The block of a destroyed object stays empty, and is reused for an object of the
//! same kind only after many others of that kind were destroyed.
//!
//! Invariant: an address is in the table exactly while its block has a live stub. A block becomes reusable
//! only after its entry was removed under the table's shard lock.

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

/// The kind of OpenCL object that a handle stands for.
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

/// A stub to which the application has a handle.
pub(crate) trait Object: Send + Sync + Sized + 'static {
    const KIND: Kind;
    /// The error code for a handle that is not a live one of this kind.
    const INVALID: cl_int;
    type Raw: Copy;
    /// The stub's link to its handle.
    fn binding(&self) -> &Binding;
    /// Whether the application may get the handle again after it has released its last reference: from a
    /// query on another object, or in a callback. Otherwise the handle is invalid from then on, even while
    /// commands use the object.
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
    // `Some` while the application's reference count is not 0: this keeps the stub alive.
    held: Option<Arc<T>>,
}

type Table = DashMap<usize, Kind, BuildHasherDefault<FxHasher>>;

static TABLE: LazyLock<Table> = LazyLock::new(Table::default);

/// Gives a new stub its handle, with a reference count of 1.
pub(crate) fn publish<T: Object>(stub: Arc<T>) -> T::Raw {
    publish_held(stub, 1)
}

/// Gives a stub a handle with a reference count of 0. This is for objects that the application never
/// releases: platforms, servers and root devices, and the launches of command buffers, which end with their
/// command buffer.
pub(crate) fn publish_permanent<T: Object>(stub: &Arc<T>) -> T::Raw {
    publish_held(stub.clone(), 0)
}

fn publish_held<T: Object>(stub: Arc<T>, count: u32) -> T::Raw {
    let block = Block {
        head: super::head::new(),
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

/// Number of empty blocks of a kind that are kept before the oldest is reused. A program that uses a
/// released handle gets an error until its block is reused. After that the handle means another object.
const AT_REST: usize = 4096;

// Addresses of blocks whose stubs are gone, the oldest first. There is one list per kind, because a block
// is reused only for an object of its own type.
static RESTING: [Mutex<VecDeque<usize>>; Kind::Server as usize + 1] =
    [const { Mutex::new(VecDeque::new()) }; Kind::Server as usize + 1];

/// Puts a block into memory that stays readable for the life of the process. Returns its address.
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
    // SAFETY: the address came from `Box::into_raw` of this type. It was removed from the list under its
    // lock, so no other thread uses it. The empty block there needs no drop.
    unsafe { std::ptr::with_exposed_provenance_mut::<Block<T>>(address).write(block) };
    address
}

fn retire<T: Object>(address: usize) {
    // Only the call that removes the entry goes on, so a block is emptied once.
    if TABLE.remove(&address).is_none() {
        return;
    }
    // SAFETY: the entry, which is removed only once, said that a block of this type is there. Blocks are
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
    // The stub itself is already destroyed. This frees the memory that the weak reference kept.
    drop(dead);
    RESTING[T::KIND as usize].lock().push_back(address);
}

/// The handle of a stub, for info answers. Returns NULL for a stub without a handle.
pub(crate) fn raw_of<T: Object>(stub: &Arc<T>) -> T::Raw {
    T::raw(stub.binding().handle().unwrap_or(0))
}

fn with_holds<T: Object, R>(raw: T::Raw, body: impl FnOnce(&mut Holds<T>) -> R) -> ClResult<R> {
    let address = T::address(raw);
    // All functions: the kind's CL_INVALID_* when the handle is NULL.
    if address == 0 {
        return fail(T::INVALID);
    }
    match TABLE.get(&address) {
        Some(kind) if *kind == T::KIND => {
            // SAFETY: the entry says that a block of this type is there. The guard keeps the entry in the
            // table.
            let block = unsafe { &*std::ptr::with_exposed_provenance::<Block<T>>(address) };
            Ok(body(&mut block.holds.lock()))
        }
        // All functions: the kind's CL_INVALID_* when no live object of this kind has the address.
        _ => fail(T::INVALID),
    }
}

/// Returns the stub behind a handle. This is the handle check of every entry point.
///
/// # Errors
/// The kind's `CL_INVALID_*` for NULL, foreign, released and mistyped handles.
pub(crate) fn resolve<T: Object>(raw: T::Raw) -> ClResult<Arc<T>> {
    // Every function: CL_INVALID_CONTEXT, CL_INVALID_MEM_OBJECT and so on when a handle is not a valid
    // object of its type.
    // The stub leaves the closure: if it is refused, this may drop the last reference, which must not
    // happen under the table's lock.
    let (stub, held) = with_holds(raw, |holds: &mut Holds<T>| {
        (holds.stub.upgrade(), holds.count > 0)
    })?;
    match stub {
        Some(stub) if held || stub.outlives_holds() => Ok(stub),
        _ => fail(T::INVALID),
    }
}

/// Increments the application's reference count.
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

/// Decrements the application's reference count. At 0 the stub is destroyed once no other object uses it.
///
/// # Errors
/// As [`resolve`]. The code is the same for a handle whose reference count is 0 already.
pub(crate) fn release<T: Object>(raw: T::Raw) -> ClResult {
    release_one::<T>(raw).map(drop)
}

/// As [`release`]. Returns whether this was the application's last reference.
///
/// # Errors
/// As [`release`].
pub(crate) fn release_one<T: Object>(raw: T::Raw) -> ClResult<bool> {
    // The stub leaves the closure too: its drop removes the entry, which needs the shard lock that the
    // closure holds.
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
        // clRelease*: the kind's CL_INVALID_* when the application has no reference left to release.
        None => fail(T::INVALID),
    }
}

/// The application's reference count, for `*_REFERENCE_COUNT`.
///
/// # Errors
/// As [`resolve`].
pub(crate) fn reference_count<T: Object>(raw: T::Raw) -> ClResult<cl_uint> {
    with_holds(raw, |holds: &mut Holds<T>| holds.count)
}

/// Sets the loader's word in a live object of this type (`cl_khr_icd` 2).
pub(crate) fn set_dispatch_data<T: Object>(raw: T::Raw, data: *mut c_void) -> ClResult {
    let address = T::address(raw);
    match TABLE.get(&address) {
        Some(kind) if *kind == T::KIND => {
            // SAFETY: the entry says that a block of this type is there. The guard keeps the entry in the
            // table.
            let block = unsafe { &*std::ptr::with_exposed_provenance::<Block<T>>(address) };
            block.head.set_dispatch_data(data);
            Ok(())
        }
        // clIcdSetPlatformDispatchDataKHR: CL_INVALID_PLATFORM when the handle is not a valid platform.
        _ => fail(T::INVALID),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Probe {
        binding: Binding,
    }

    impl Object for Probe {
        // No unit test of this crate makes a server, so blocks of the two types never mix.
        const KIND: Kind = Kind::Server;
        const INVALID: cl_int = CL_INVALID_SERVER_WWU;
        type Raw = usize;
        fn binding(&self) -> &Binding {
            &self.binding
        }
        fn outlives_holds(&self) -> bool {
            false
        }
        fn address(raw: usize) -> usize {
            raw
        }
        fn raw(address: usize) -> usize {
            address
        }
    }

    fn probe() -> Arc<Probe> {
        Arc::new(Probe {
            binding: Binding::default(),
        })
    }

    #[test]
    fn a_handle_is_valid_until_the_application_has_released_it() {
        let stub = probe();
        let raw = publish(stub.clone());
        assert!(Arc::ptr_eq(&resolve::<Probe>(raw).unwrap(), &stub));
        retain::<Probe>(raw).unwrap();
        assert_eq!(reference_count::<Probe>(raw).unwrap(), 2);
        assert!(!release_one::<Probe>(raw).unwrap());
        assert!(release_one::<Probe>(raw).unwrap());
        // A running command may still use the stub; the application may not.
        assert!(resolve::<Probe>(raw).is_err() && release::<Probe>(raw).is_err());
        assert_eq!(Arc::strong_count(&stub), 1);
        drop(stub);
        assert!(reference_count::<Probe>(raw).is_err());
    }

    #[test]
    fn what_is_no_live_handle_of_this_kind_is_refused_unread() {
        let live = publish(probe());
        let foreign = Box::new(0usize);
        let address = (&raw const *foreign).addr();
        for wrong in [0, 1, live + 1, address, usize::MAX] {
            assert!(resolve::<Probe>(wrong).is_err());
            assert!(retain::<Probe>(wrong).is_err());
            assert!(set_dispatch_data::<Probe>(wrong, std::ptr::null_mut()).is_err());
        }
        assert!(resolve::<Context>(std::ptr::with_exposed_provenance_mut(live)).is_err());
        release::<Probe>(live).unwrap();
    }

    #[test]
    fn a_block_is_reused_after_many_others_only() {
        let first = publish(probe());
        release::<Probe>(first).unwrap();
        let mut until_reuse = 0;
        loop {
            let next = publish(probe());
            release::<Probe>(next).unwrap();
            if next == first {
                break;
            }
            until_reuse += 1;
            assert!(resolve::<Probe>(first).is_err());
        }
        // The other tests of this module put some of the blocks to rest.
        assert!(until_reuse > AT_REST - 100);
    }

    #[test]
    fn threads_that_race_with_a_release_see_the_object_or_the_error() {
        for _ in 0..20 {
            let raw = publish(probe());
            std::thread::scope(|scope| {
                for _ in 0..2 {
                    scope.spawn(|| {
                        while let Ok(stub) = resolve::<Probe>(raw) {
                            assert_eq!(stub.binding().handle(), Some(raw));
                        }
                    });
                }
                scope.spawn(|| release::<Probe>(raw).unwrap());
            });
        }
    }
}
