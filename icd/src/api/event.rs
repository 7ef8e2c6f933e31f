//! Events: waits, info, user events, callbacks and profiling. Also markers and barriers.

use std::sync::Arc;

use cl_headers::types::*;

use super::entry::entry_point;
use super::handle;
use super::info::{Answered, Info, list};
use crate::error::{ClResult, Status, fail, require};
use crate::stub::{Command, Context, Enqueue, Event, EventSpec, Hold, NodeCommand, Queue};

/// The arguments that end each enqueue function: the wait list, and the place for the command's event.
#[derive(Clone, Copy)]
pub(super) struct Events {
    count: cl_uint,
    list: *const cl_event,
    event: *mut cl_event,
}

impl Events {
    /// Takes the three arguments of an enqueue function.
    ///
    /// # Safety
    /// `list` is NULL or points to `count` handles. `event` is NULL or writable.
    pub(super) unsafe fn from_c(
        count: cl_uint,
        list: *const cl_event,
        event: *mut cl_event,
    ) -> Events {
        Events { count, list, event }
    }

    /// Reads and checks the wait list of a command in `context`.
    ///
    /// # Errors
    /// `CL_INVALID_EVENT_WAIT_LIST`, `CL_INVALID_CONTEXT`.
    pub(super) fn wait_list(self, context: &Arc<Context>) -> ClResult<Vec<Arc<Event>>> {
        let Events {
            count,
            list: events,
            ..
        } = self;
        // clEnqueue*: CL_INVALID_EVENT_WAIT_LIST when the list is NULL and its count is not 0, or the list
        // is not NULL and its count is 0.
        require(events.is_null() == (count == 0), CL_INVALID_EVENT_WAIT_LIST)?;
        // SAFETY: by `from_c`'s contract NULL or `count` handles.
        let handles = unsafe { list(events, count as usize) };
        // clEnqueue*: CL_INVALID_EVENT_WAIT_LIST when an element is not a valid event.
        let wait = handles
            .iter()
            .map(|&raw| handle::resolve::<Event>(raw).or(fail(CL_INVALID_EVENT_WAIT_LIST)))
            .collect::<ClResult<Vec<_>>>()?;
        let same = wait
            .iter()
            .all(|event| Arc::ptr_eq(event.context(), context));
        // clEnqueue*: CL_INVALID_CONTEXT when an event belongs to another context than the queue.
        require(same, CL_INVALID_CONTEXT)?;
        Ok(wait)
    }

    /// Whether the application asks for the command's event.
    pub(super) fn wants_event(self) -> bool {
        !self.event.is_null()
    }

    /// Gives a command's event to the application, if the application asked for it.
    pub(super) fn give(self, stub: Arc<Event>) {
        if self.wants_event() {
            // SAFETY: not NULL, so by `from_c`'s contract writable.
            unsafe { self.event.write(handle::publish(stub)) };
        }
    }
}

/// Enqueues a marker or barrier.
fn synchronise(
    command_queue: cl_command_queue,
    event_type: cl_command_type,
    events: Events,
) -> ClResult {
    let queue = handle::resolve::<Queue>(command_queue)?;
    let command = if event_type == CL_COMMAND_MARKER {
        NodeCommand::Marker
    } else {
        NodeCommand::Barrier
    };
    let event = EventSpec {
        event_type,
        wait: events.wait_list(queue.context())?,
        hold: Hold::new(),
        finisher: None,
        visible: events.wants_event(),
        note: None,
    };
    let command = Command::Node(command);
    events.give(queue.enqueue(Enqueue { command, event })?.event);
    Ok(())
}

#[entry_point]
pub(crate) fn clWaitForEvents(num_events: cl_uint, event_list: *const cl_event) -> ClResult {
    // clWaitForEvents: CL_INVALID_VALUE when num_events is 0 or event_list is NULL.
    require(num_events > 0 && !event_list.is_null(), CL_INVALID_VALUE)?;
    // SAFETY: not NULL, with `num_events` handles.
    let handles = unsafe { list(event_list, num_events as usize) };
    // clWaitForEvents: CL_INVALID_EVENT when an element is not a valid event.
    let events = handles
        .iter()
        .map(|&raw| handle::resolve::<Event>(raw))
        .collect::<ClResult<Vec<_>>>()?;
    let same = events
        .iter()
        .all(|event| Arc::ptr_eq(event.context(), events[0].context()));
    // clWaitForEvents: CL_INVALID_CONTEXT when the events are not all of one context.
    require(same, CL_INVALID_CONTEXT)?;
    // The call waits for all events, even after one has failed. The first error is the result.
    let mut result = Ok(());
    for event in &events {
        result = result.and(event.wait());
    }
    result
}

#[entry_point]
pub(crate) fn clGetEventInfo(event: cl_event, param_name: cl_event_info, info: Info) -> ClResult {
    let stub = handle::resolve::<Event>(event)?;
    answer(event, &stub, param_name, info).map(drop)
}

#[entry_point]
pub(crate) fn clGetEventProfilingInfo(
    event: cl_event,
    param_name: cl_profiling_info,
    info: Info,
) -> ClResult {
    let stub = handle::resolve::<Event>(event)?;
    let profiled = stub
        .queue()
        .is_some_and(|queue| queue.properties() & CL_QUEUE_PROFILING_ENABLE != 0);
    // clGetEventProfilingInfo: CL_PROFILING_INFO_NOT_AVAILABLE for a user event, and when the queue was
    // created without profiling.
    require(profiled, CL_PROFILING_INFO_NOT_AVAILABLE)?;
    let place = match param_name {
        CL_PROFILING_COMMAND_QUEUED => 0,
        CL_PROFILING_COMMAND_SUBMIT => 1,
        CL_PROFILING_COMMAND_START => 2,
        CL_PROFILING_COMMAND_END => 3,
        // Includes the commands that this command has enqueued on its device.
        CL_PROFILING_COMMAND_COMPLETE => 4,
        // clGetEventProfilingInfo: CL_INVALID_VALUE when param_name is not a known query.
        _ => return fail(CL_INVALID_VALUE),
    };
    match stub.times() {
        Some(times) => info.give(times[place]).map(drop),
        // clGetEventProfilingInfo: CL_PROFILING_INFO_NOT_AVAILABLE when the command is not complete.
        None => fail(CL_PROFILING_INFO_NOT_AVAILABLE),
    }
}

#[entry_point]
pub(crate) fn clRetainEvent(event: cl_event) -> ClResult {
    handle::retain::<Event>(event)
}

#[entry_point]
pub(crate) fn clReleaseEvent(event: cl_event) -> ClResult {
    handle::release::<Event>(event)
}

#[entry_point]
pub(crate) fn clCreateUserEvent(context: cl_context) -> ClResult<cl_event> {
    let context = handle::resolve::<Context>(context)?;
    Ok(handle::publish(Event::user(&context)?))
}

#[entry_point]
pub(crate) fn clSetUserEventStatus(event: cl_event, execution_status: cl_int) -> ClResult {
    let stub = handle::resolve::<Event>(event)?;
    // clSetUserEventStatus: CL_INVALID_EVENT when the event is not a user event.
    require(stub.is_user(), CL_INVALID_EVENT)?;
    // clSetUserEventStatus: CL_INVALID_VALUE when the status is neither CL_COMPLETE nor negative.
    require(
        execution_status == CL_COMPLETE || execution_status < 0,
        CL_INVALID_VALUE,
    )?;
    stub.set_user_status(execution_status)
}

#[entry_point]
pub(crate) fn clSetEventCallback(
    event: cl_event,
    command_exec_callback_type: cl_int,
    pfn_notify: EventCallback,
    user_data: *mut c_void,
) -> ClResult {
    let stub = handle::resolve::<Event>(event)?;
    // clSetEventCallback: CL_INVALID_VALUE when pfn_notify is NULL.
    let Some(callback) = pfn_notify else {
        return fail(CL_INVALID_VALUE);
    };
    let known = matches!(
        command_exec_callback_type,
        CL_SUBMITTED | CL_RUNNING | CL_COMPLETE
    );
    // clSetEventCallback: CL_INVALID_VALUE when the type is not CL_SUBMITTED, CL_RUNNING or
    // CL_COMPLETE.
    require(known, CL_INVALID_VALUE)?;
    let user_data = user_data.expose_provenance();
    stub.on_status(
        command_exec_callback_type,
        Box::new(move |event, status| {
            let user_data = std::ptr::with_exposed_provenance_mut(user_data);
            // SAFETY: the application gave this callback and this data for exactly this call, from any
            // thread.
            unsafe { callback(handle::raw_of(event), status, user_data) };
        }),
    );
    Ok(())
}

#[entry_point]
pub(crate) fn clEnqueueMarkerWithWaitList(
    command_queue: cl_command_queue,
    events: Events,
) -> ClResult {
    synchronise(command_queue, CL_COMMAND_MARKER, events)
}

#[entry_point]
pub(crate) fn clEnqueueBarrierWithWaitList(
    command_queue: cl_command_queue,
    events: Events,
) -> ClResult {
    synchronise(command_queue, CL_COMMAND_BARRIER, events)
}

#[entry_point]
pub(crate) fn clEnqueueMarker(command_queue: cl_command_queue, event: *mut cl_event) -> ClResult {
    handle::resolve::<Queue>(command_queue)?;
    // clEnqueueMarker: CL_INVALID_VALUE when event is NULL.
    require(!event.is_null(), CL_INVALID_VALUE)?;
    // SAFETY: not NULL, so the specification demands room for an event.
    let events = unsafe { Events::from_c(0, std::ptr::null(), event) };
    synchronise(command_queue, CL_COMMAND_MARKER, events)
}

#[entry_point]
pub(crate) fn clEnqueueBarrier(command_queue: cl_command_queue) -> ClResult {
    // SAFETY: NULL is allowed.
    let events = unsafe { Events::from_c(0, std::ptr::null(), std::ptr::null_mut()) };
    synchronise(command_queue, CL_COMMAND_BARRIER, events)
}

#[entry_point]
pub(crate) fn clEnqueueWaitForEvents(
    command_queue: cl_command_queue,
    num_events: cl_uint,
    event_list: *const cl_event,
) -> ClResult {
    handle::resolve::<Queue>(command_queue)?;
    // clEnqueueWaitForEvents: CL_INVALID_VALUE when num_events is 0 or event_list is NULL.
    require(num_events > 0 && !event_list.is_null(), CL_INVALID_VALUE)?;
    let wrong_list = |status: Status| {
        // clEnqueueWaitForEvents: CL_INVALID_EVENT, not the wait list's code, when an element is not a
        // valid event.
        if status.0 == CL_INVALID_EVENT_WAIT_LIST {
            Status(CL_INVALID_EVENT)
        } else {
            status
        }
    };
    // SAFETY: the specification demands `num_events` handles.
    let events = unsafe { Events::from_c(num_events, event_list, std::ptr::null_mut()) };
    synchronise(command_queue, CL_COMMAND_BARRIER, events).map_err(wrong_list)
}

fn answer(
    raw: cl_event,
    event: &Arc<Event>,
    name: cl_event_info,
    info: Info,
) -> ClResult<Answered> {
    match name {
        CL_EVENT_COMMAND_QUEUE => {
            info.give(event.queue().map_or(std::ptr::null_mut(), handle::raw_of))
        }
        CL_EVENT_CONTEXT => info.give(handle::raw_of(event.context())),
        CL_EVENT_COMMAND_TYPE => info.give(event.command()),
        CL_EVENT_COMMAND_EXECUTION_STATUS => info.give(event.status()),
        CL_EVENT_REFERENCE_COUNT => info.give(handle::reference_count::<Event>(raw)?),
        // clGetEventInfo: CL_INVALID_VALUE when param_name is not a known query.
        _ => fail(CL_INVALID_VALUE),
    }
}
