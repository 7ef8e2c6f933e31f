//! Shared virtual memory: coarse-grain allocations, and a lookup by address.
//!
//! An allocation is a buffer whose shadow has the same address as the memory on the node. So pointers
//! stored in the memory are valid on both sides, and all code for buffers works on it. The node's driver
//! chooses the address; if this process already uses it, the driver is asked again. Drivers of several
//! nodes choose differently, so contexts of several sites have no such memory. Specification: "Shared
//! Virtual Memory". Invariant: a page in this process belongs to one allocation at most. The allocation
//! keeps it as long as a command or another buffer uses it, even after the application has freed it.
#![forbid(unsafe_code)]

mod migrate;

use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::{Arc, LazyLock};

use causeway_proto::command::{CreateSvm, ObjectKind, answer::Body, command::Kind};
use causeway_proto::id::RequestId;
use causeway_proto::limits::INLINE_PAYLOAD;
use cl_headers::types::{
    CL_COMMAND_SVM_FREE, CL_DEVICE_SVM_CAPABILITIES, CL_DEVICE_SVM_COARSE_GRAIN_BUFFER,
    CL_INVALID_OPERATION, CL_INVALID_VALUE,
};
use parking_lot::Mutex;

pub use self::migrate::migrate;

use crate::error::{ClResult, Status, require};
use crate::shadow::{Shadow, page_size};
use crate::stub::event::Finisher;
use crate::stub::memory::buffer::KERNEL_ACCESS;
use crate::stub::memory::transfer::nothing;
use crate::stub::{
    Buffer, BufferSpec, Context, Device, Event, Hold, Queue, Site, event::callbacks, next_id,
};

/// Maximum number of attempts to get an address that is free in this process.
const ATTEMPTS: u32 = 8;
/// Size of an extra allocation after the first attempt, which moves the driver's next address further away;
/// freed at the end. The size grows eightfold with each attempt, up to [`LARGEST_SPACER`].
const SPACER: u64 = 4 << 20;
/// Largest size of such an allocation. All spacers together cover 1.5 GiB, more than the memory arenas of a
/// program with sixteen threads.
const LARGEST_SPACER: u64 = 256 << 20;
/// Smallest size from the second attempt on. A driver that uses `malloc`, such as PoCL, takes smaller sizes
/// from an arena, which no spacer moves. glibc maps sizes above 32 MiB one by one.
const APART: u64 = 33 << 20;

/// The process's allocations, by address.
static ALLOCATIONS: LazyLock<Mutex<BTreeMap<usize, Arc<Buffer>>>> = LazyLock::new(Mutex::default);

/// Whether the device supports coarse-grain shared virtual memory.
#[must_use]
pub fn is_offered(device: &Device) -> bool {
    device.number(CL_DEVICE_SVM_CAPABILITIES) & CL_DEVICE_SVM_COARSE_GRAIN_BUFFER != 0
}

impl Context {
    /// Whether the context supports allocations of shared virtual memory.
    #[must_use]
    pub fn has_svm(&self) -> bool {
        !self.is_distributed() && self.devices().iter().any(|device| is_offered(device))
    }
}

/// `clSVMAlloc`: allocates `size` bytes (not 0) at the start of a page, and waits for the node. `flags` say
/// how kernels may access it. The allocation keeps its context alive until it is [freed](free).
///
/// # Errors
/// `CL_INVALID_OPERATION` when the context has no such memory. The node's code when it has none left.
/// `CL_OUT_OF_HOST_MEMORY` when no address of the driver's is free in this process.
pub fn allocate(context: &Arc<Context>, flags: u64, size: u64) -> ClResult<usize> {
    // clSVMAlloc fails when no device of the context supports SVM.
    require(context.has_svm(), CL_INVALID_OPERATION)?;
    let page = page_size() as u64;
    // Whole pages, so that nothing else shares the last one.
    let length = size.checked_next_multiple_of(page);
    let length = length.ok_or(Status::OUT_OF_HOST_MEMORY)?;
    let make = |length| OnNode::new(context.site(), flags, length, page);
    let claim = |made: &OnNode<'_>| Shadow::at(usize::try_from(made.address).ok()?, length);
    let (made, shadow) = agree(length, make, claim)?;
    let address = shadow.address();
    let spec = BufferSpec {
        context: context.clone(),
        flags,
        properties: Vec::new(),
        size,
        host_address: None,
        image: None,
    };
    let buffer = Buffer::svm(spec, made.adopted(), shadow);
    ALLOCATIONS.lock().insert(address, buffer);
    Ok(address)
}

/// Makes memory until its address can be claimed; all failed attempts are then released.
fn agree<T, C>(
    length: u64,
    make: impl Fn(u64) -> ClResult<T>,
    claim: impl Fn(&T) -> Option<C>,
) -> ClResult<(T, C)> {
    let mut in_vain = Vec::new();
    for attempt in 0..ATTEMPTS {
        let made = if attempt == 0 {
            make(length)?
        } else {
            // The node may have no room for the larger size.
            make(length.max(APART)).or_else(|_| make(length))?
        };
        if let Some(claimed) = claim(&made) {
            return Ok((made, claimed));
        }
        // Kept until the end, so that the driver does not return the same address again.
        in_vain.push(made);
        in_vain.extend(make((SPACER << (3 * attempt)).min(LARGEST_SPACER)).ok());
    }
    tracing::warn!(
        "clSVMAlloc failed: all {ATTEMPTS} addresses that the node's driver chose are in use in this process; \
         free memory or retry"
    );
    Err(Status::OUT_OF_HOST_MEMORY)
}

/// An allocation on the node, released when dropped.
struct OnNode<'a> {
    site: &'a Site,
    id: u64,
    address: u64,
}

impl OnNode<'_> {
    fn new(site: &Site, flags: u64, size: u64, alignment: u64) -> ClResult<OnNode<'_>> {
        let request = RequestId(next_id());
        let mut made = OnNode {
            site,
            id: next_id(),
            address: 0,
        };
        let create = Kind::CreateSvm(CreateSvm {
            request: request.0,
            buffer: made.id,
            context: site.context().0,
            flags: flags & KERNEL_ACCESS,
            size,
            alignment,
        });
        if size > INLINE_PAYLOAD as u64 {
            site.session().expect_transfers();
        }
        let answer = site.session().request(request, &create)?;
        require(answer.status >= 0, answer.status)?;
        let Some(Body::Value(bytes)) = answer.body else {
            return Err(Status(CL_INVALID_VALUE));
        };
        let address = <[u8; 8]>::try_from(&bytes[..]).map_err(|_| Status(CL_INVALID_VALUE))?;
        made.address = u64::from_le_bytes(address);
        Ok(made)
    }

    /// Returns the id to a new owner, which must release it.
    fn adopted(self) -> u64 {
        let id = self.id;
        std::mem::forget(self);
        id
    }
}

impl Drop for OnNode<'_> {
    fn drop(&mut self) {
        self.site.release(ObjectKind::Memory, self.id);
    }
}

/// Returns the context's allocation that contains an address, and the offset in it.
#[must_use]
pub fn find(context: &Arc<Context>, address: usize) -> Option<(Arc<Buffer>, u64)> {
    let allocations = ALLOCATIONS.lock();
    let mut before = allocations.range((Bound::Unbounded, Bound::Included(address)));
    let (base, buffer) = before.next_back()?;
    let offset = (address - base) as u64;
    let inside = offset < buffer.size() && Arc::ptr_eq(buffer.context(), context);
    inside.then(|| (buffer.clone(), offset))
}

/// `clSVMFree`: frees an allocation of the context; ignores all other addresses.
pub fn free(context: &Arc<Context>, address: usize) {
    let freed = {
        let mut allocations = ALLOCATIONS.lock();
        let own = |buffer: &Arc<Buffer>| Arc::ptr_eq(buffer.context(), context);
        let found = allocations.get(&address).is_some_and(own);
        found.then(|| allocations.remove(&address))
    };
    // Dropping the buffer may send, so the lock is released first.
    drop(freed);
}

/// Enqueues `clEnqueueSVMFree`. When it is the command's turn, runs `callback`, or [`free`] for each
/// address if there is none. The event ends after that. Nothing runs if the wait list fails. `hold` keeps
/// the allocations alive.
///
/// # Errors
/// Those of [`Queue::enqueue`].
pub fn free_in_order(
    queue: &Arc<Queue>,
    addresses: Vec<usize>,
    callback: Option<Box<dyn FnOnce() + Send>>,
    wait: Vec<Arc<Event>>,
    hold: Hold,
) -> ClResult<Arc<Event>> {
    let event_type = CL_COMMAND_SVM_FREE;
    let Some(callback) = callback else {
        let context = queue.context().clone();
        let finisher: Finisher = Box::new(move |status, _| {
            if !status.is_error() {
                addresses.into_iter().for_each(|of| free(&context, of));
            }
        });
        return nothing(queue, event_type, wait, hold, Some(finisher), true);
    };
    // The first command waits for its turn; the second, whose event the application gets, ends after the
    // callback.
    let called = Event::gate(queue.context(), queue.would_gate(&wait))?;
    let opening = called.clone();
    let finisher: Finisher = Box::new(move |status, _| {
        if status.is_error() {
            return opening.open();
        }
        callbacks::run(move || {
            callback();
            opening.open();
        });
    });
    let turn = nothing(queue, event_type, wait, hold, Some(finisher), true)?;
    nothing(
        queue,
        event_type,
        vec![turn, called],
        Hold::new(),
        None,
        true,
    )
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;

    use super::*;

    #[test]
    fn a_driver_is_asked_until_an_address_is_free_with_more_and_more_between() {
        let asked = RefCell::new(Vec::new());
        let make = |length| {
            asked.borrow_mut().push(length);
            Ok(asked.borrow().len())
        };
        let (made, claimed) = agree(8, make, |made| (*made >= 5).then_some("free")).unwrap();
        assert_eq!((made, claimed), (5, "free"));
        assert_eq!(*asked.borrow(), [8, SPACER, APART, SPACER << 3, APART]);
    }

    #[test]
    fn it_ends_when_the_node_has_no_more_or_no_address_is_ever_free() {
        let refused = agree(8, |_| Err::<u8, _>(Status(-4)), |_| Some(()));
        assert_eq!(refused.unwrap_err(), Status(-4));
        let asked = RefCell::new(0);
        let make = |length| {
            *asked.borrow_mut() += 1;
            // Other sizes than the wanted one may be too large for the node; that does no harm.
            require(length == 8, -4)
        };
        let taken = agree(8, make, |()| None::<()>);
        assert_eq!(taken.unwrap_err(), Status::OUT_OF_HOST_MEMORY);
        assert_eq!(*asked.borrow(), 3 * ATTEMPTS - 1);
    }
}
