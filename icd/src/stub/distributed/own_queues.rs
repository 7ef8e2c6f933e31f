//! The sequence's internal queues on a site.
//!
//! Only events order the commands on these queues. A device with out-of-order queues needs one queue. An
//! in-order queue is blocked by a command that waits, so there are several, and a command goes to the least
//! loaded. This module sends nothing. Invariant: a load is the number of a queue's commands that have not
//! ended.

use causeway_proto::id::{EventId, QueueId};
use cl_headers::types::{
    CL_DEVICE_QUEUE_ON_HOST_PROPERTIES, CL_QUEUE_OUT_OF_ORDER_EXEC_MODE_ENABLE,
};
use rustc_hash::FxHashMap;

use crate::stub::{Device, Site};

/// Number of in-order queues that replace one out-of-order queue. Each costs the driver resources, often a
/// thread.
const IN_ORDER: usize = 4;

/// The queues of one purpose on one site.
#[derive(Debug, Default)]
pub(super) struct Pool(Vec<QueueId>);

/// The number of incomplete commands on each in-order queue.
#[derive(Debug, Default)]
pub(super) struct Loads {
    of: FxHashMap<QueueId, usize>,
    running: FxHashMap<EventId, QueueId>,
}

/// Returns the device for internal queues, and whether it has out-of-order queues. Prefers a device that
/// has.
pub(super) fn device(site: &Site) -> (&Device, bool) {
    let devices = site.devices();
    let is_out_of_order = |device: &Device| {
        let offered = device.number(CL_DEVICE_QUEUE_ON_HOST_PROPERTIES);
        offered & CL_QUEUE_OUT_OF_ORDER_EXEC_MODE_ENABLE != 0
    };
    let found = devices.iter().find(|device| is_out_of_order(device));
    (found.unwrap_or(&devices[0]), found.is_some())
}

impl Pool {
    /// Returns the queue for the next command; `None` when the caller must add another queue first.
    pub(super) fn choose(&self, loads: &Loads) -> Option<QueueId> {
        let queues = self.0.iter().copied();
        let (load, queue) = queues.map(|queue| (loads.of(queue), queue)).min()?;
        (load == 0 || self.0.len() >= IN_ORDER).then_some(queue)
    }

    /// Adds a queue. Its commands are counted only if it is in order.
    pub(super) fn add(&mut self, queue: QueueId, is_in_order: bool, loads: &mut Loads) {
        self.0.push(queue);
        if is_in_order {
            loads.of.insert(queue, 0);
        }
    }

    /// Returns all queues.
    pub(super) fn into_queues(self) -> Vec<QueueId> {
        self.0
    }
}

impl Loads {
    // Always 0 for an out-of-order queue, where a waiting command blocks no other.
    fn of(&self, queue: QueueId) -> usize {
        self.of.get(&queue).copied().unwrap_or(0)
    }

    /// Counts a command that goes to `queue`, which may also be a queue of the application.
    pub(super) fn begin(&mut self, event: EventId, queue: QueueId) {
        if let Some(load) = self.of.get_mut(&queue) {
            *load += 1;
            self.running.insert(event, queue);
        }
    }

    /// Counts a command that has ended.
    pub(super) fn end(&mut self, event: EventId) {
        let queue = self.running.remove(&event);
        if let Some(load) = queue.and_then(|queue| self.of.get_mut(&queue)) {
            *load -= 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_idle_queue_is_taken_first_then_a_new_one_then_the_least_loaded() {
        let (mut pool, mut loads) = (Pool::default(), Loads::default());
        let mut event = 0;
        let mut run = |loads: &mut Loads, queue| {
            event += 1;
            loads.begin(EventId(event), queue);
            EventId(event)
        };
        for number in 1..=IN_ORDER as u64 {
            assert_eq!(pool.choose(&loads), None);
            pool.add(QueueId(number), true, &mut loads);
            assert_eq!(pool.choose(&loads), Some(QueueId(number)));
            run(&mut loads, QueueId(number));
        }
        let second = run(&mut loads, QueueId(1));
        assert_eq!(pool.choose(&loads), Some(QueueId(2)));
        for number in 2..=IN_ORDER as u64 {
            run(&mut loads, QueueId(number));
        }
        run(&mut loads, QueueId(2));
        loads.end(second);
        loads.end(second);
        assert_eq!(pool.choose(&loads), Some(QueueId(1)));
        // Commands of other queues are not recorded.
        let other = run(&mut loads, QueueId(99));
        loads.end(other);
        assert_eq!(loads.of.len(), IN_ORDER);
    }

    #[test]
    fn one_queue_that_is_out_of_order_is_enough() {
        let (mut pool, mut loads) = (Pool::default(), Loads::default());
        pool.add(QueueId(1), false, &mut loads);
        for event in 0..100 {
            assert_eq!(pool.choose(&loads), Some(QueueId(1)));
            loads.begin(EventId(event), QueueId(1));
        }
        assert!(loads.running.is_empty());
    }
}
