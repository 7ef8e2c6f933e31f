//! Objects behind handles: their memory, their two reference counts, and the check of a handle.
//!
//! A handle is the address of an [`Object`]. Objects come from pools whose memory is never returned
//! and whose places are reused late, so that a dead handle can be looked at and is found dead. The
//! application's count and the driver's own holds are kept apart: the first is what queries show
//! and what makes a handle valid, the second keeps the body.
//!
//! Not here: what the objects are ([`Body`] is implemented beside each).
//!
//! Invariants: a body is present exactly while `strong > 0`; the application as a whole owns one of
//! those strong holds while `application > 0`; `generation` changes each time a place is reused.

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

/// Places that stay unused before the first of them is used again.
const QUARANTINE: usize = 256;
/// Places made at a time, and moved at a time between a thread and the pool.
const CHUNK: usize = 64;
const DEAD: u32 = 0xDEAD;

/// What an object of one kind holds.
pub(crate) trait Body: Sized + Send + Sync + 'static {
    /// Marks the kind in the object; never [`DEAD`].
    const TAG: u32;
    /// The error for a handle that is none of this kind.
    const INVALID: cl_int;

    /// Where the objects of this kind come from.
    fn pool() -> &'static Pool<Self>;
    /// The calling thread's share of it.
    fn cache() -> &'static LocalKey<RefCell<Cache<Self>>>;
    /// Counts the names given to this kind.
    fn serials() -> &'static AtomicU64;
    /// Runs when the application's count has reached zero, before its hold is given up.
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

/// What all objects begin with, whatever their kind.
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
    /// The prefix behind a handle of any kind, if a live object of this driver is there.
    ///
    /// # Safety
    /// `handle` is NULL, or readable as far as an object's prefix reaches. (Any address that was
    /// ever a handle of this driver is.)
    unsafe fn behind<'a>(handle: *mut c_void) -> Option<&'a Self> {
        let prefix = handle.cast::<Self>();
        if prefix.is_null() || !prefix.is_aligned() {
            return None;
        }
        // SAFETY: readable by the function's contract; every field but the first word is atomic,
        // and that is only compared.
        let prefix = unsafe { &*prefix };
        let ours = ptr::eq(prefix.head.dispatch(), &raw const DISPATCH);
        let held = prefix.application.load(Ordering::Relaxed) > 0;
        (ours && held && prefix.tag.load(Ordering::Relaxed) != DEAD).then_some(prefix)
    }
}

/// The kind and number of a live handle of any kind, for the log.
///
/// # Safety
/// As [`Prefix::behind`].
pub(crate) unsafe fn tag_and_serial(handle: *mut c_void) -> Option<(u32, u64)> {
    // SAFETY: passed on.
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

// SAFETY: the prefix is atomic; the body is written only while nobody else has the object (when it
// is made and when the last hold is gone), and is Sync itself.
unsafe impl<B: Body> Sync for Object<B> {}
// SAFETY: as above, and the body is Send.
unsafe impl<B: Body> Send for Object<B> {}

impl<B: Body> Deref for Object<B> {
    type Target = B;

    fn deref(&self) -> &B {
        // SAFETY: whoever has an `&Object` holds it, or the application does for it; so the body
        // is present and nobody has it exclusively.
        unsafe { (*self.body.get()).assume_init_ref() }
    }
}

impl<B: Body> Object<B> {
    /// The object behind an application's handle; the kind's error if it is none.
    ///
    /// # Safety
    /// `handle` is as [`Prefix::behind`] demands, and the application keeps its hold on it as long
    /// as the reference is used (OpenCL asks that for the length of a call).
    pub(crate) unsafe fn borrow<'a>(handle: *mut c_void) -> ClResult<&'a Self> {
        // SAFETY: passed on.
        let prefix = unsafe { Prefix::behind(handle) };
        match prefix {
            Some(prefix) if prefix.tag.load(Ordering::Relaxed) == B::TAG => {
                // SAFETY: the tag says what kind of object the prefix belongs to.
                Ok(unsafe { &*handle.cast::<Self>() })
            }
            _ => fail(B::INVALID),
        }
    }

    /// The handle of this object.
    pub(crate) fn handle(&self) -> *mut c_void {
        ptr::from_ref(self).cast_mut().cast()
    }

    /// A hold of the driver's own.
    pub(crate) fn hold(&self) -> Ref<B> {
        self.prefix.strong.fetch_add(1, Ordering::Relaxed);
        Ref(Slot(NonNull::from(self)))
    }

    /// A reference that keeps nothing.
    pub(crate) fn weak(&self) -> Weak<B> {
        Weak {
            slot: Slot(NonNull::from(self)),
            generation: self.prefix.generation.load(Ordering::Relaxed),
        }
    }

    /// The application's count, as queries show it.
    pub(crate) fn references(&self) -> u32 {
        self.prefix.application.load(Ordering::Relaxed)
    }

    /// Adds one to the application's count.
    pub(crate) fn retain(&self) {
        self.prefix.application.fetch_add(1, Ordering::Relaxed);
    }

    /// Makes the handle valid for the length of a callback, whatever the application has done with
    /// it meanwhile. [`release`](Self::release) ends that.
    pub(crate) fn lend(&self) {
        if self.prefix.application.fetch_add(1, Ordering::AcqRel) == 0 {
            self.prefix.strong.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Takes one from the application's count. With the last one the handle is dead.
    pub(crate) fn release(&self) -> ClResult {
        let taken =
            self.prefix
                .application
                .fetch_update(Ordering::AcqRel, Ordering::Relaxed, |count| {
                    count.checked_sub(1)
                });
        ensure(taken.is_ok(), B::INVALID)?;
        if taken == Ok(1) {
            // The application's one strong hold, given back when this goes out of scope.
            let held = Ref(Slot(NonNull::from(self)));
            B::abandoned(&held);
        }
        Ok(())
    }
}

/// A place for an object.
struct Slot<B: Body>(NonNull<Object<B>>);

impl<B: Body> Clone for Slot<B> {
    fn clone(&self) -> Self {
        *self
    }
}
impl<B: Body> Copy for Slot<B> {}
// SAFETY: a slot is an address; what may be done with it is said where it is done.
unsafe impl<B: Body> Send for Slot<B> {}
// SAFETY: as above.
unsafe impl<B: Body> Sync for Slot<B> {}

/// The driver's own hold on an object.
pub(crate) struct Ref<B: Body>(Slot<B>);

impl<B: Body> Ref<B> {
    /// A new object that only the driver holds.
    pub(crate) fn new(body: B) -> Self {
        let slot = take_slot::<B>();
        // SAFETY: a slot from the pool is nobody else's, and its memory is never returned. Others
        // may look at the prefix through dead handles, which is atomic; the head is never changed.
        let object = unsafe { slot.0.as_ref() };
        // SAFETY: as above; a DEAD object's body is not looked at.
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

    /// The same, but the driver keeps its hold as well.
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
        // SAFETY: this hold keeps the object.
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
        // SAFETY: that was the last hold; the body is dropped once and no more looked at.
        unsafe { (*self.body.get()).assume_init_drop() };
        self.prefix.generation.fetch_add(1, Ordering::Release);
        put_slot(self.0);
    }
}

/// A reference that keeps nothing: a kernel's to its arguments.
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
    /// A hold, if the application still has the object.
    pub(crate) fn upgrade(&self) -> Option<Ref<B>> {
        // SAFETY: memory of a pool stays; only the prefix is looked at, which is atomic.
        let object = unsafe { self.slot.0.as_ref() };
        object
            .prefix
            .strong
            .fetch_update(Ordering::Acquire, Ordering::Relaxed, |strong| {
                (strong > 0).then(|| strong + 1)
            })
            .ok()?;
        // From here on whatever lives in the place is held; is it still the same object?
        let held = Ref(self.slot);
        let same = object.prefix.generation.load(Ordering::Relaxed) == self.generation;
        (same && object.references() > 0).then_some(held)
    }
}

/// All unused places of one kind.
pub(crate) struct Pool<B: Body> {
    spare: Mutex<VecDeque<Slot<B>>>,
}

impl<B: Body> Pool<B> {
    pub(crate) const fn new() -> Self {
        Self {
            spare: Mutex::new(VecDeque::new()),
        }
    }

    /// Some places: the longest unused, or new ones.
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

/// A thread's share of a pool, so that making an object rarely takes the pool's lock.
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
    // The thread is ending and its share is gone.
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
