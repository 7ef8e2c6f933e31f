//! What is enqueued on the devices' queues, and waited for.
//!
//! Invariant: a method that takes memory of the program returns when no command uses it any more, also after
//! an error.

use super::{Devices, Event, Kernel, Memory};
use crate::dealing;
use crate::opencl::ClError;

impl Devices {
    /// Keeps an event until all are released.
    fn keep(&self, event: Event) -> Event {
        self.made.borrow_mut().events.push(event);
        event
    }

    /// Launches a kernel of one or two dimensions on a device, after `waits`.
    pub(crate) fn launch(
        &self,
        device: usize,
        kernel: Kernel,
        global: &[usize],
        waits: &[Event],
    ) -> Result<Event, ClError> {
        let mut event = Event::NONE;
        self.cl
            .launch(self.queues[device], kernel, global, waits, Some(&mut event))?;
        Ok(self.keep(event))
    }

    /// Zeroes the first `size` bytes of a buffer by a device, after `waits`.
    pub(crate) fn zero(
        &self,
        device: usize,
        memory: Memory,
        size: usize,
        waits: &[Event],
    ) -> Result<Event, ClError> {
        let mut event = Event::NONE;
        self.cl
            .zero(self.queues[device], memory, size, waits, Some(&mut event))?;
        Ok(self.keep(event))
    }

    /// Writes pieces to buffers, each through the queue of a device, all at once, and waits.
    pub(crate) fn write(&self, pieces: &[(usize, Memory, &[u8])]) -> Result<(), ClError> {
        let enqueue = |(device, memory, data): &(usize, Memory, &[u8])| {
            let bytes = (data.as_ptr(), 0, data.len());
            // SAFETY: the slice stays borrowed until all queues are finished below.
            unsafe {
                self.cl
                    .start_write(self.queues[*device], *memory, bytes, None)
            }?;
            self.flush(*device)
        };
        let enqueued = pieces.iter().try_for_each(enqueue);
        enqueued.and(self.finish_all())
    }

    /// Reads from the beginning of a buffer through a device's queue, after `waits`, and waits.
    pub(crate) fn read(
        &self,
        device: usize,
        memory: Memory,
        data: &mut [u8],
        waits: &[Event],
    ) -> Result<(), ClError> {
        self.cl.read(self.queues[device], memory, data, waits)
    }

    /// Reads lines that were dealt to the devices in turn back into their places. Line `k` of `shares[d]` is
    /// line `d + k * shares.len()` of `lines`, and each has `width` elements. All devices' reads run at once.
    pub(crate) fn gather_lines(
        &self,
        shares: &[Memory],
        width: usize,
        lines: &mut [u32],
    ) -> Result<(), ClError> {
        let height = lines.len() / width;
        let bytes = width * size_of::<u32>();
        let target = lines.as_mut_ptr();
        let enqueue = |(device, share): (usize, &Memory)| {
            let count = dealing::share(height, shares.len(), device);
            if count == 0 {
                return Ok(());
            }
            let form = (bytes, count, bytes * shares.len());
            let at = target.wrapping_add(width * device).cast();
            // SAFETY: `count` lines from line `device` on, `shares.len()` apart, end within `lines`: that is
            // how `share` counts. No two devices have a line in common. The slice stays borrowed until all
            // queues are finished below.
            unsafe {
                self.cl
                    .start_read_of_lines(self.queues[device], *share, form, at)
            }?;
            self.flush(device)
        };
        let enqueued = shares.iter().enumerate().try_for_each(enqueue);
        // Also after an error, because the commands before it write into `lines`.
        enqueued.and(self.finish_all())
    }

    /// `clFlush`.
    pub(crate) fn flush(&self, device: usize) -> Result<(), ClError> {
        self.cl.flush(self.queues[device])
    }

    /// `clFinish` of every queue, also after an error of one.
    pub(crate) fn finish_all(&self) -> Result<(), ClError> {
        let mut all = Ok(());
        for queue in 0..self.queues.len() {
            all = all.and(self.finish(queue));
        }
        all
    }

    /// `clFinish`.
    pub(crate) fn finish(&self, device: usize) -> Result<(), ClError> {
        self.cl.finish(self.queues[device])
    }

    /// Waits for events, and releases all events made so far.
    pub(crate) fn wait(&self, events: &[Event]) -> Result<(), ClError> {
        let result = self.cl.wait(events);
        self.forget_events();
        result
    }

    /// Releases all events made so far. The caller uses none of them again.
    pub(super) fn forget_events(&self) {
        for event in self.made.borrow_mut().events.drain(..) {
            // An error means that the session is lost, and the event with it.
            let _ = self.cl.release_event(event);
        }
    }

    /// A user event, released with the events of the commands.
    pub(super) fn user_event(&self) -> Result<Event, ClError> {
        Ok(self.keep(self.cl.user_event(self.context)?))
    }
}
