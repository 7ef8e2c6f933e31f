//! Objects behind handles: their memory, their two reference counts, and the check of a handle.
//!
//! A handle is the address of an [`Object`]. Objects come from pools whose memory is never freed and
//! whose slots are reused late. So a dead handle can be read and is recognised as dead. The application's
//! count and the driver's own references are separate. The first is what queries show and what makes a
//! handle valid. The second keeps the body alive.
//!
//! The kinds of objects are defined elsewhere; each implements [`Body`].
//!
//! Invariants: a body is present exactly while `strong > 0`. While `application > 0`, the application
//! owns one of those strong references. `generation` changes each time a slot is reused.

use std::cell::{RefCell, UnsafeCell};
use std::collections::VecDeque;
use std::ffi::c_void;
use std::marker::PhantomData;
use std::mem::MaybeUninit;
use std::ops::Deref;
use std::ptr::{self, NonNull};
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::thread::LocalKey;

use cl_headers::ObjectHead;
use cl_headers::types::cl_int;
use parking_lot::Mutex;

use crate::entry::DISPATCH;
use crate::error::{ClResult, ensure, fail};

/// Number of slots that stay unused before the first of them is reused.
const QUARANTINE: usize = 256;
/// Number of slots made at a time, and moved at a time between a thread and the pool.
const CHUNK: usize = 64;
const DEAD: u32 = 0xDEAD;

/// The contents of an object of one kind.
pub(crate) trait Body: Sized + Send + Sync + 'static {
    /// Identifies the kind in the object; never [`DEAD`].
    const TAG: u32;
    /// The error for a handle of another kind.
    const INVALID: cl_int;

    /// The pool of this kind's slots.
    fn pool() -> &'static Pool<Self>;
    /// The calling thread's cache of the pool.
    fn cache() -> &'static LocalKey<RefCell<Cache<Self>>>;
    /// Counts the objects of this kind, for their names in the log.
    fn serials() -> &'static AtomicU64;
    /// Runs when the application's count has reached zero, before its strong reference is dropped.
    fn abandoned(_object: &Object<Self>) {}
}

/// Implements [`Body`] for a type: `body!(Queue, tag::QUEUE, CL_INVALID_COMMAND_QUEUE);`
macro_rules! body {
    ($body:ty, $tag:expr, $invalid:expr $(, abandoned $abandoned:path)?) => {
        impl $crate::object::Body for $body {
            const TAG: u32 = $tag;
            const INVALID: cl_headers::types::cl_int = $invalid;

            fn pool() -> &'static $crate::object::Pool<Self> {
                static POOL: $crate::object::Pool<$body> = $crate::object::Pool::new();
                &POOL
            }

            fn cache()
            -> &'static std::thread::LocalKey<std::cell::RefCell<$crate::object::Cache<Self>>> {
                thread_local! {
                    static CACHE: std::cell::RefCell<$crate::object::Cache<$body>> =
                        const { std::cell::RefCell::new($crate::object::Cache::new()) };
                }
                &CACHE
            }

            fn serials() -> &'static std::sync::atomic::AtomicU64 {
                static SERIALS: std::sync::atomic::AtomicU64 =
                    std::sync::atomic::AtomicU64::new(0);
                &SERIALS
            }

            $(fn abandoned(object: &$crate::object::Object<Self>) {
                $abandoned(object);
            })?
        }
    };
}
pub(crate) use body;

/// The common beginning of all objects.
#[repr(C)]
pub(crate) struct Prefix {
    head: ObjectHead,
    tag: AtomicU32,
    application: AtomicU32,
    strong: AtomicU32,
    generation: AtomicU32,
    serial: AtomicU64,
}

impl Prefix {
    /// Returns the prefix behind a handle of any kind, if it is a live object of this driver.
    ///
    /// # Safety
    /// `handle` is NULL, or readable to the length of an object's prefix. (Any address that was ever a
    /// handle of this driver is.)
    unsafe fn behind<'a>(handle: *mut c_void) -> Option<&'a Self> {
        let prefix = handle.cast::<Self>();
        if prefix.is_null() || !prefix.is_aligned() {
            return None;
        }
        // SAFETY: readable by this function's contract. Every field except the first word is atomic, and
        // that word is only compared.
        let prefix = unsafe { &*prefix };
        let ours = ptr::eq(prefix.head.dispatch(), &raw const DISPATCH);
        let held = prefix.application.load(Ordering::Relaxed) > 0;
        (ours && held && prefix.tag.load(Ordering::Relaxed) != DEAD).then_some(prefix)
    }
}

/// Returns the kind and number of a live handle of any kind, for the log.
///
/// # Safety
/// As [`Prefix::behind`].
pub(crate) unsafe fn tag_and_serial(handle: *mut c_void) -> Option<(u32, u64)> {
    // SAFETY: the caller keeps the same contract.
    let prefix = unsafe { Prefix::behind(handle) }?;
    Some((
        prefix.tag.load(Ordering::Relaxed),
        prefix.serial.load(Ordering::Relaxed),
    ))
}

/// An object: prefix and body.
#[repr(C)]
pub(crate) struct Object<B: Body> {
    prefix: Prefix,
    body: UnsafeCell<MaybeUninit<B>>,
}

// SAFETY: the prefix is atomic. The body is written only when the object is made and when the last
// reference is gone. The body is Sync.
unsafe impl<B: Body> Sync for Object<B> {}
// SAFETY: as above, and the body is Send.
unsafe impl<B: Body> Send for Object<B> {}

impl<B: Body> Deref for Object<B> {
    type Target = B;

    fn deref(&self) -> &B {
        // SAFETY: an `&Object` implies a reference of its owner or of the application. So the body is
        // present, and no one has exclusive access.
        unsafe { (*self.body.get()).assume_init_ref() }
    }
}

impl<B: Body> Object<B> {
    /// Returns the object behind an application's handle. Fails with the kind's error if the handle is invalid.
    ///
    /// # Safety
    /// `handle` is as [`Prefix::behind`] requires. The application keeps its reference as long as the
    /// result is used (OpenCL requires that for the length of a call).
    pub(crate) unsafe fn borrow<'a>(handle: *mut c_void) -> ClResult<&'a Self> {
        // SAFETY: the caller keeps the same contract.
        let prefix = unsafe { Prefix::behind(handle) };
        match prefix {
            Some(prefix) if prefix.tag.load(Ordering::Relaxed) == B::TAG => {
                // SAFETY: the tag identifies the kind of object that the prefix belongs to.
                Ok(unsafe { &*handle.cast::<Self>() })
            }
            _ => fail(B::INVALID),
        }
    }

    /// Returns the handle of this object.
    pub(crate) fn handle(&self) -> *mut c_void {
        ptr::from_ref(self).cast_mut().cast()
    }

    /// Returns a strong reference for the driver.
    pub(crate) fn hold(&self) -> Ref<B> {
        self.prefix.strong.fetch_add(1, Ordering::Relaxed);
        Ref(Slot(NonNull::from(self)))
    }

    /// Returns a reference that does not keep the object alive.
    pub(crate) fn weak(&self) -> Weak<B> {
        Weak {
            slot: Slot(NonNull::from(self)),
            generation: self.prefix.generation.load(Ordering::Relaxed),
        }
    }

    /// Returns the application's count, as queries show it.
    pub(crate) fn references(&self) -> u32 {
        self.prefix.application.load(Ordering::Relaxed)
    }

    /// Adds one to the application's count.
    pub(crate) fn retain(&self) {
        self.prefix.application.fetch_add(1, Ordering::Relaxed);
    }

    /// Makes the handle valid for the length of a callback, even if the application has released it.
    /// [`release`](Self::release) ends that.
    pub(crate) fn lend(&self) {
        if self.prefix.application.fetch_add(1, Ordering::AcqRel) == 0 {
            self.prefix.strong.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Subtracts one from the application's count. At zero, the handle is dead.
    pub(crate) fn release(&self) -> ClResult {
        let taken =
            self.prefix
                .application
                .fetch_update(Ordering::AcqRel, Ordering::Relaxed, |count| {
                    count.checked_sub(1)
                });
        ensure(taken.is_ok(), B::INVALID)?;
        if taken == Ok(1) {
            // The application's strong reference, which ends with this scope.
            let held = Ref(Slot(NonNull::from(self)));
            B::abandoned(&held);
        }
        Ok(())
    }
}

/// A slot for an object.
struct Slot<B: Body>(NonNull<Object<B>>);

impl<B: Body> Clone for Slot<B> {
    fn clone(&self) -> Self {
        *self
    }
}
impl<B: Body> Copy for Slot<B> {}
// SAFETY: a slot is only an address. Each use states what makes it valid.
unsafe impl<B: Body> Send for Slot<B> {}
// SAFETY: as above.
unsafe impl<B: Body> Sync for Slot<B> {}

/// The driver's strong reference to an object.
pub(crate) struct Ref<B: Body>(Slot<B>);

impl<B: Body> Ref<B> {
    /// Makes an object that only the driver references.
    pub(crate) fn new(body: B) -> Self {
        let slot = take_slot::<B>();
        // SAFETY: nothing else owns a slot from the pool, and its memory is never freed. Others may read
        // the prefix through dead handles, but it is atomic, and the head never changes.
        let object = unsafe { slot.0.as_ref() };
        // SAFETY: as above; the body of a DEAD object is never read.
        unsafe { (*object.body.get()).write(body) };
        object.prefix.strong.store(1, Ordering::Relaxed);
        object.prefix.application.store(0, Ordering::Relaxed);
        object.prefix.serial.store(0, Ordering::Relaxed);
        object.prefix.tag.store(B::TAG, Ordering::Release);
        Self(slot)
    }

    /// Gives the object to the application: a handle with count 1, and a name for the log.
    pub(crate) fn publish(self) -> *mut c_void {
        let handle = self.offer();
        std::mem::forget(self);
        handle
    }

    /// As [`Self::publish`], but the driver keeps its reference as well.
    pub(crate) fn share(&self) -> *mut c_void {
        self.clone().publish()
    }

    fn offer(&self) -> *mut c_void {
        if crate::log::enabled() {
            let serial = B::serials().fetch_add(1, Ordering::Relaxed) + 1;
            self.prefix.serial.store(serial, Ordering::Relaxed);
        }
        self.prefix.application.store(1, Ordering::Release);
        self.handle()
    }
}

impl<B: Body> Deref for Ref<B> {
    type Target = Object<B>;

    fn deref(&self) -> &Object<B> {
        // SAFETY: this reference keeps the object alive.
        unsafe { self.0.0.as_ref() }
    }
}

impl<B: Body> Clone for Ref<B> {
    fn clone(&self) -> Self {
        self.hold()
    }
}

impl<B: Body> Drop for Ref<B> {
    fn drop(&mut self) {
        if self.prefix.strong.fetch_sub(1, Ordering::Release) != 1 {
            return;
        }
        std::sync::atomic::fence(Ordering::Acquire);
        self.prefix.tag.store(DEAD, Ordering::Relaxed);
        // SAFETY: this was the last reference, so the body is dropped once and never read again.
        unsafe { (*self.body.get()).assume_init_drop() };
        self.prefix.generation.fetch_add(1, Ordering::Release);
        put_slot(self.0);
    }
}

/// A reference that does not keep the object alive, as a kernel has to its arguments.
pub(crate) struct Weak<B: Body> {
    slot: Slot<B>,
    generation: u32,
}

impl<B: Body> Clone for Weak<B> {
    fn clone(&self) -> Self {
        *self
    }
}
impl<B: Body> Copy for Weak<B> {}

impl<B: Body> Weak<B> {
    /// Returns a strong reference, if the application still has the object.
    pub(crate) fn upgrade(&self) -> Option<Ref<B>> {
        // SAFETY: memory of a pool is never freed. Only the prefix is read, which is atomic.
        let object = unsafe { self.slot.0.as_ref() };
        object
            .prefix
            .strong
            .fetch_update(Ordering::Acquire, Ordering::Relaxed, |strong| {
                (strong > 0).then(|| strong + 1)
            })
            .ok()?;
        // From here on, the object in the slot is kept alive. Check whether it is still the same one.
        let held = Ref(self.slot);
        let same = object.prefix.generation.load(Ordering::Relaxed) == self.generation;
        (same && object.references() > 0).then_some(held)
    }
}

/// All unused slots of one kind.
pub(crate) struct Pool<B: Body> {
    spare: Mutex<VecDeque<Slot<B>>>,
}

impl<B: Body> Pool<B> {
    pub(crate) const fn new() -> Self {
        Self {
            spare: Mutex::new(VecDeque::new()),
        }
    }

    /// Adds some slots: those that were unused longest, or new ones.
    fn refill(&self, fresh: &mut Vec<Slot<B>>) {
        let mut spare = self.spare.lock();
        if spare.len() >= QUARANTINE + CHUNK {
            fresh.extend(spare.drain(..CHUNK));
            return;
        }
        drop(spare);
        let places: Vec<Object<B>> = (0..CHUNK)
            .map(|_| Object {
                prefix: Prefix {
                    head: ObjectHead::new(&DISPATCH, ptr::null_mut()),
                    tag: AtomicU32::new(DEAD),
                    application: AtomicU32::new(0),
                    strong: AtomicU32::new(0),
                    generation: AtomicU32::new(0),
                    serial: AtomicU64::new(0),
                },
                body: UnsafeCell::new(MaybeUninit::uninit()),
            })
            .collect();
        fresh.extend(places.leak().iter_mut().map(|place| Slot(place.into())));
    }
}

/// A thread's cache of a pool, so that making an object rarely takes the pool's lock.
pub(crate) struct Cache<B: Body> {
    fresh: Vec<Slot<B>>,
    used: Vec<Slot<B>>,
    kind: PhantomData<B>,
}

impl<B: Body> Cache<B> {
    pub(crate) const fn new() -> Self {
        Self {
            fresh: Vec::new(),
            used: Vec::new(),
            kind: PhantomData,
        }
    }
}

impl<B: Body> Drop for Cache<B> {
    fn drop(&mut self) {
        let mut spare = B::pool().spare.lock();
        spare.extend(self.used.drain(..));
        spare.extend(self.fresh.drain(..));
    }
}

fn take_slot<B: Body>() -> Slot<B> {
    let taken = B::cache().try_with(|cache| {
        let mut cache = cache.borrow_mut();
        if cache.fresh.is_empty() {
            B::pool().refill(&mut cache.fresh);
        }
        cache.fresh.pop()
    });
    if let Ok(Some(slot)) = taken {
        return slot;
    }
    // The thread is ending, and its cache is gone.
    let mut fresh = Vec::new();
    B::pool().refill(&mut fresh);
    let slot = fresh.remove(0);
    B::pool().spare.lock().extend(fresh);
    slot
}

fn put_slot<B: Body>(slot: Slot<B>) {
    let put = B::cache().try_with(|cache| {
        let mut cache = cache.borrow_mut();
        cache.used.push(slot);
        if cache.used.len() >= CHUNK {
            B::pool().spare.lock().extend(cache.used.drain(..));
        }
    });
    if put.is_err() {
        B::pool().spare.lock().push_back(slot);
    }
}
