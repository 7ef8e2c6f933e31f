/* User events: gates that the program opens, fails or never sets. */
#include "../cltest.h"

static cl_event gate(void)
{
    cl_event event = clCreateUserEvent(context, &err);
    OK(err);
    return event;
}

CASE(user_event_info)
{
    cl_event event = gate();
    cl_command_type type = 0;
    cl_command_queue on = queue;
    cl_context owner = NULL;
    EQUAL(status_of(event), CL_SUBMITTED);
    OK(clGetEventInfo(event, CL_EVENT_COMMAND_TYPE, sizeof type, &type, NULL));
    EQUAL(type, CL_COMMAND_USER);
    OK(clGetEventInfo(event, CL_EVENT_COMMAND_QUEUE, sizeof on, &on, NULL));
    OK(clGetEventInfo(event, CL_EVENT_CONTEXT, sizeof owner, &owner, NULL));
    CHECK(on == NULL && owner == context);
    OK(clSetUserEventStatus(event, CL_COMPLETE));
    EQUAL(status_of(event), CL_COMPLETE);
    OK(clReleaseEvent(event));
}

CASE(user_event_status_errors)
{
    cl_event event = gate(), command;
    EXPECT(clSetUserEventStatus(NULL, CL_COMPLETE), CL_INVALID_EVENT);
    EXPECT(clSetUserEventStatus(event, CL_RUNNING), CL_INVALID_VALUE);
    EXPECT(clSetUserEventStatus(event, CL_QUEUED), CL_INVALID_VALUE);
    EXPECT(clSetUserEventStatus(event, CL_COMPLETE), CL_SUCCESS);
    EXPECT(clSetUserEventStatus(event, CL_COMPLETE), CL_INVALID_OPERATION);
    EXPECT(clSetUserEventStatus(event, -1), CL_INVALID_OPERATION);
    OK(clReleaseEvent(event));
    OK(clEnqueueMarkerWithWaitList(queue, 0, NULL, &command));
    EXPECT(clSetUserEventStatus(command, CL_COMPLETE), CL_INVALID_EVENT);
    OK(clWaitForEvents(1, &command));
    OK(clReleaseEvent(command));
}

CASE(user_event_gates_a_write)
{
    int value = 5, back = 0;
    cl_event open = gate(), written;
    cl_mem buffer = counting_buffer(1, 1);
    OK(clEnqueueWriteBuffer(queue, buffer, CL_FALSE, 0, 4, &value, 1, &open, &written));
    OK(clFlush(queue));
    const cl_int before = status_of(written);
    CHECK(before == CL_QUEUED || before == CL_SUBMITTED);
    value = 6; /* not yet read: the gate is closed */
    OK(clSetUserEventStatus(open, CL_COMPLETE));
    OK(clWaitForEvents(1, &written));
    OK(clEnqueueReadBuffer(queue, buffer, CL_TRUE, 0, 4, &back, 0, NULL, NULL));
    EQUAL(back, 6);
    OK(clReleaseEvent(open));
    OK(clReleaseEvent(written));
    OK(clReleaseMemObject(buffer));
}

CASE(user_event_gates_a_kernel_and_what_follows)
{
    const size_t count = 64;
    int back[64];
    cl_event open = gate(), read;
    cl_mem buffer = counting_buffer(64, 0);
    cl_kernel kernel = standard_kernel("add");
    set_add(kernel, buffer, 1000);
    OK(clEnqueueNDRangeKernel(queue, kernel, 1, NULL, &count, NULL, 1, &open, NULL));
    set_add(kernel, buffer, 2000); /* the gated launch keeps the first value */
    launch(queue, kernel, count);
    OK(clEnqueueReadBuffer(queue, buffer, CL_FALSE, 0, sizeof back, back, 0, NULL, &read));
    OK(clFlush(queue));
    const cl_int before = status_of(read);
    CHECK(before == CL_QUEUED || before == CL_SUBMITTED);
    OK(clSetUserEventStatus(open, CL_COMPLETE));
    OK(clWaitForEvents(1, &read));
    int right = 1;
    for (int i = 0; i < 64; ++i)
        right &= back[i] == i + 3000;
    CHECK(right);
    fact("a closed gate holds its command and the in-order successors");
    OK(clReleaseEvent(open));
    OK(clReleaseEvent(read));
    OK(clReleaseKernel(kernel));
    OK(clReleaseMemObject(buffer));
}

CASE(user_event_other_queue_goes_on)
{
    cl_event open = gate(), held;
    cl_command_queue other = queue_with(0);
    cl_mem buffer = counting_buffer(4, 7);
    int back[4] = {0};
    OK(clEnqueueMarkerWithWaitList(queue, 1, &open, &held));
    OK(clFlush(queue));
    OK(clEnqueueReadBuffer(other, buffer, CL_TRUE, 0, sizeof back, back, 0, NULL, NULL));
    fact("%d %d %d %d while the other queue is held", back[0], back[1], back[2], back[3]);
    const cl_int before = status_of(held);
    CHECK(before == CL_QUEUED || before == CL_SUBMITTED);
    OK(clSetUserEventStatus(open, CL_COMPLETE));
    OK(clWaitForEvents(1, &held));
    OK(clReleaseEvent(open));
    OK(clReleaseEvent(held));
    OK(clReleaseMemObject(buffer));
    OK(clReleaseCommandQueue(other));
}

CASE(user_event_failure_reaches_dependants)
{
    int value = 5, back = 0;
    cl_event open = gate(), written;
    cl_mem buffer = counting_buffer(1, 1);
    cl_command_queue other = queue_with(0);
    OK(clEnqueueWriteBuffer(queue, buffer, CL_FALSE, 0, 4, &value, 1, &open, &written));
    OK(clSetUserEventStatus(open, -42));
    EXPECT(clWaitForEvents(1, &written), CL_EXEC_STATUS_ERROR_FOR_EVENTS_IN_WAIT_LIST);
    CHECK(status_of(written) < 0); /* which negative code is open */
    EQUAL(status_of(open), -42);
    OK(clEnqueueReadBuffer(other, buffer, CL_TRUE, 0, 4, &back, 0, NULL, NULL));
    EQUAL(back, 1);
    OK(clReleaseEvent(open));
    OK(clReleaseEvent(written));
    OK(clReleaseMemObject(buffer));
    OK(clReleaseCommandQueue(other));
}

SPEC_CASE(user_event_failure_in_a_chain)
{
    enum { LINKS = 10 };
    cl_event open = gate(), links[LINKS];
    cl_command_queue queues[2] = {queue_with(0), queue_with(0)};
    for (int i = 0; i < LINKS; ++i)
        OK(clEnqueueMarkerWithWaitList(queues[i % 2], 1, i == 0 ? &open : &links[i - 1],
                                       &links[i]));
    OK(clFlush(queues[0]));
    OK(clFlush(queues[1]));
    OK(clSetUserEventStatus(open, -7));
    EXPECT(clWaitForEvents(1, &links[LINKS - 1]), CL_EXEC_STATUS_ERROR_FOR_EVENTS_IN_WAIT_LIST);
    int failed = 0;
    for (int i = 0; i < LINKS; ++i) {
        failed += status_of(links[i]) < 0;
        OK(clReleaseEvent(links[i]));
    }
    EQUAL(failed, LINKS);
    OK(clReleaseEvent(open));
    OK(clReleaseCommandQueue(queues[0]));
    OK(clReleaseCommandQueue(queues[1]));
}

SPEC_CASE(user_event_failure_and_blocking_call)
{
    int back = 0;
    cl_event open = gate();
    cl_mem buffer = counting_buffer(1, 1);
    OK(clSetUserEventStatus(open, -5));
    EXPECT(clEnqueueReadBuffer(queue, buffer, CL_TRUE, 0, 4, &back, 1, &open, NULL),
           CL_EXEC_STATUS_ERROR_FOR_EVENTS_IN_WAIT_LIST);
    OK(clReleaseEvent(open));
    OK(clReleaseMemObject(buffer));
}

SPEC_CASE(user_event_context_usable_after_failure)
{
    cl_event open = gate(), held;
    cl_mem buffer = counting_buffer(16, 0);
    OK(clEnqueueMarkerWithWaitList(queue, 1, &open, &held));
    OK(clSetUserEventStatus(open, -1));
    EXPECT(clWaitForEvents(1, &held), CL_EXEC_STATUS_ERROR_FOR_EVENTS_IN_WAIT_LIST);
    OK(clReleaseEvent(held));
    OK(clReleaseEvent(open));
    cl_command_queue fresh = queue_with(0);
    cl_kernel kernel = standard_kernel("add");
    set_add(kernel, buffer, 4);
    launch(fresh, kernel, 16);
    EXPECT(clFinish(fresh), CL_SUCCESS);
    int back[16] = {0};
    OK(clEnqueueReadBuffer(fresh, buffer, CL_TRUE, 0, sizeof back, back, 0, NULL, NULL));
    EQUAL(back[15], 19);
    OK(clReleaseKernel(kernel));
    OK(clReleaseMemObject(buffer));
    OK(clReleaseCommandQueue(fresh));
}

SPEC_CASE(user_event_two_failures_end_one_waiter_once)
{
    cl_event gates[2] = {gate(), gate()}, held;
    OK(clEnqueueMarkerWithWaitList(queue, 2, gates, &held));
    OK(clSetUserEventStatus(gates[0], -3));
    OK(clSetUserEventStatus(gates[1], -4));
    EXPECT(clWaitForEvents(1, &held), CL_EXEC_STATUS_ERROR_FOR_EVENTS_IN_WAIT_LIST);
    CHECK(status_of(held) < 0);
    OK(clReleaseEvent(held));
    OK(clReleaseEvent(gates[0]));
    OK(clReleaseEvent(gates[1]));
}

CASE(user_event_wait_for_failed)
{
    cl_event open = gate();
    OK(clSetUserEventStatus(open, -9));
    EXPECT(clWaitForEvents(1, &open), CL_EXEC_STATUS_ERROR_FOR_EVENTS_IN_WAIT_LIST);
    EQUAL(status_of(open), -9);
    OK(clReleaseEvent(open));
}

CASE(user_event_many_gates)
{
    enum { COUNT = 50 };
    cl_event gates[COUNT], done;
    for (int i = 0; i < COUNT; ++i)
        gates[i] = gate();
    OK(clEnqueueMarkerWithWaitList(queue, COUNT, gates, &done));
    OK(clFlush(queue));
    for (int i = COUNT; i-- > 0;) {
        const cl_int status = status_of(done);
        CHECK(status == CL_QUEUED || status == CL_SUBMITTED);
        OK(clSetUserEventStatus(gates[i], CL_COMPLETE));
    }
    EXPECT(clWaitForEvents(1, &done), CL_SUCCESS);
    for (int i = 0; i < COUNT; ++i)
        OK(clReleaseEvent(gates[i]));
    OK(clReleaseEvent(done));
}

CASE(user_event_many_dependants)
{
    enum { COUNT = 200 };
    cl_event open = gate(), last;
    cl_mem buffer = counting_buffer(16, 0);
    cl_kernel kernel = standard_kernel("add");
    set_add(kernel, buffer, 1);
    const size_t count = 16;
    for (int i = 0; i < COUNT; ++i)
        OK(clEnqueueNDRangeKernel(queue, kernel, 1, NULL, &count, NULL, 1, &open,
                                  i == COUNT - 1 ? &last : NULL));
    OK(clFlush(queue));
    OK(clSetUserEventStatus(open, CL_COMPLETE));
    OK(clWaitForEvents(1, &last));
    CHECK(holds_counting(buffer, 16, COUNT, 1));
    fact("200 launches behind one gate");
    OK(clReleaseEvent(open));
    OK(clReleaseEvent(last));
    OK(clReleaseKernel(kernel));
    OK(clReleaseMemObject(buffer));
}

CASE(user_event_gate_released_after_set)
{
    cl_event open = gate(), done;
    OK(clEnqueueMarkerWithWaitList(queue, 1, &open, &done));
    OK(clSetUserEventStatus(open, CL_COMPLETE));
    OK(clReleaseEvent(open));
    EXPECT(clWaitForEvents(1, &done), CL_SUCCESS);
    OK(clReleaseEvent(done));
}

static void *open_from_thread(void *event)
{
    OK(clSetUserEventStatus(event, CL_COMPLETE));
    return NULL;
}

CASE(user_event_set_by_another_thread)
{
    cl_event open = gate(), done;
    pthread_t thread;
    OK(clEnqueueMarkerWithWaitList(queue, 1, &open, &done));
    pthread_create(&thread, NULL, open_from_thread, open);
    EXPECT(clWaitForEvents(1, &done), CL_SUCCESS);
    EXPECT(clFinish(queue), CL_SUCCESS);
    pthread_join(thread, NULL);
    OK(clReleaseEvent(open));
    OK(clReleaseEvent(done));
}

CASE(user_event_create_errors)
{
    REFUSED(clCreateUserEvent(NULL, &err), CL_INVALID_CONTEXT);
    cl_event event = clCreateUserEvent(context, NULL);
    CHECK(event != NULL);
    OK(clReleaseEvent(event));
    fact("an event whose status is never set can be dropped");
}
