/* Events of commands: information, waiting, profiling. */
#include "../cltest.h"

static cl_event marker(void)
{
    cl_event event;
    OK(clEnqueueMarkerWithWaitList(queue, 0, NULL, &event));
    return event;
}

CASE(event_info)
{
    cl_command_queue on = NULL;
    cl_context owner = NULL;
    cl_event event = marker();
    OK(clGetEventInfo(event, CL_EVENT_COMMAND_QUEUE, sizeof on, &on, NULL));
    OK(clGetEventInfo(event, CL_EVENT_CONTEXT, sizeof owner, &owner, NULL));
    CHECK(on == queue && owner == context);
    OK(clWaitForEvents(1, &event));
    EQUAL(status_of(event), CL_COMPLETE);
    OK(clReleaseEvent(event));
}

SPEC_CASE(event_count_is_the_applications)
{
    cl_uint count = 0;
    cl_event open = clCreateUserEvent(context, &err);
    cl_event event;
    OK(err);
    OK(clEnqueueMarkerWithWaitList(queue, 1, &open, &event));
    OK(clGetEventInfo(open, CL_EVENT_REFERENCE_COUNT, sizeof count, &count, NULL));
    EQUAL(count, 1);
    OK(clGetEventInfo(event, CL_EVENT_REFERENCE_COUNT, sizeof count, &count, NULL));
    EQUAL(count, 1);
    OK(clSetUserEventStatus(open, CL_COMPLETE));
    OK(clWaitForEvents(1, &event));
    OK(clReleaseEvent(open));
    OK(clReleaseEvent(event));
}

CASE(event_info_rules)
{
    cl_event event = marker();
    OK(clWaitForEvents(1, &event));
    INFO_RULES(clGetEventInfo, event, CL_EVENT_COMMAND_QUEUE);
    INFO_RULES(clGetEventInfo, event, CL_EVENT_CONTEXT);
    INFO_RULES(clGetEventInfo, event, CL_EVENT_COMMAND_TYPE);
    INFO_RULES(clGetEventInfo, event, CL_EVENT_COMMAND_EXECUTION_STATUS);
    INFO_RULES(clGetEventInfo, event, CL_EVENT_REFERENCE_COUNT);
    EXPECT(clGetEventInfo(event, UNKNOWN_INFO, 0, NULL, NULL), CL_INVALID_VALUE);
    EXPECT(clGetEventInfo(NULL, CL_EVENT_CONTEXT, 0, NULL, NULL), CL_INVALID_EVENT);
    OK(clReleaseEvent(event));
}

static void print_type(const char *what, cl_event event)
{
    cl_command_type type = 0;
    OK(clWaitForEvents(1, &event));
    OK(clGetEventInfo(event, CL_EVENT_COMMAND_TYPE, sizeof type, &type, NULL));
    fact("%s: 0x%x", what, type);
    OK(clReleaseEvent(event));
}

CASE(event_command_types)
{
    char memory[256] = {0};
    const size_t zero[3] = {0, 0, 0}, region[3] = {4, 4, 1}, one = 1;
    const cl_int value = 0;
    cl_event event;
    cl_mem a = buffer_of(256), b = buffer_of(256);
    cl_kernel kernel = standard_kernel("write_id");
    OK(clSetKernelArg(kernel, 0, sizeof a, &a));
    OK(clEnqueueReadBuffer(queue, a, CL_FALSE, 0, 4, memory, 0, NULL, &event));
    print_type("read", event);
    OK(clEnqueueWriteBuffer(queue, a, CL_FALSE, 0, 4, memory, 0, NULL, &event));
    print_type("write", event);
    OK(clEnqueueCopyBuffer(queue, a, b, 0, 0, 4, 0, NULL, &event));
    print_type("copy", event);
    OK(clEnqueueFillBuffer(queue, a, &value, 4, 0, 256, 0, NULL, &event));
    print_type("fill", event);
    OK(clEnqueueReadBufferRect(queue, a, CL_FALSE, zero, zero, region, 0, 0, 0, 0, memory, 0, NULL,
                               &event));
    print_type("read rect", event);
    OK(clEnqueueWriteBufferRect(queue, a, CL_FALSE, zero, zero, region, 0, 0, 0, 0, memory, 0,
                                NULL, &event));
    print_type("write rect", event);
    OK(clEnqueueCopyBufferRect(queue, a, b, zero, zero, region, 0, 0, 0, 0, 0, NULL, &event));
    print_type("copy rect", event);
    OK(clEnqueueNDRangeKernel(queue, kernel, 1, NULL, &one, NULL, 0, NULL, &event));
    print_type("kernel", event);
    OK(clEnqueueMarkerWithWaitList(queue, 0, NULL, &event));
    print_type("marker", event);
    OK(clEnqueueBarrierWithWaitList(queue, 0, NULL, &event));
    print_type("barrier", event);
    OK(clReleaseKernel(kernel));
    OK(clReleaseMemObject(a));
    OK(clReleaseMemObject(b));
}

CASE(event_reference_count)
{
    cl_uint count = 0;
    cl_event event = clCreateUserEvent(context, &err);
    OK(err);
    OK(clRetainEvent(event));
    OK(clGetEventInfo(event, CL_EVENT_REFERENCE_COUNT, sizeof count, &count, NULL));
    EQUAL(count, 2);
    OK(clReleaseEvent(event));
    OK(clSetUserEventStatus(event, CL_COMPLETE));
    OK(clGetEventInfo(event, CL_EVENT_REFERENCE_COUNT, sizeof count, &count, NULL));
    EQUAL(count, 1);
    OK(clReleaseEvent(event));
    EXPECT(clRetainEvent(NULL), CL_INVALID_EVENT);
    EXPECT(clReleaseEvent(NULL), CL_INVALID_EVENT);
}

SPEC_CASE(event_wrong_kind)
{
    EXPECT(clRetainEvent((cl_event)queue), CL_INVALID_EVENT);
    EXPECT(clGetEventInfo((cl_event)context, CL_EVENT_CONTEXT, 0, NULL, NULL), CL_INVALID_EVENT);
    cl_event wrong = (cl_event)queue;
    EXPECT(clWaitForEvents(1, &wrong), CL_INVALID_EVENT);
}

CASE(wait_errors)
{
    cl_event none = NULL, event = marker();
    EXPECT(clWaitForEvents(0, NULL), CL_INVALID_VALUE);
    EXPECT(clWaitForEvents(0, &event), CL_INVALID_VALUE);
    EXPECT(clWaitForEvents(1, NULL), CL_INVALID_VALUE);
    EXPECT(clWaitForEvents(1, &none), CL_INVALID_EVENT);
    OK(clReleaseEvent(event));
}

CASE(wait_many)
{
    enum { COUNT = 100 };
    cl_event events[COUNT];
    for (int i = 0; i < COUNT; ++i)
        events[i] = marker();
    EXPECT(clWaitForEvents(COUNT, events), CL_SUCCESS);
    for (int i = 0; i < COUNT; ++i) {
        CHECK(status_of(events[i]) == CL_COMPLETE);
        OK(clReleaseEvent(events[i]));
    }
}

CASE(wait_same_event_twice)
{
    cl_event event = marker();
    cl_event both[2] = {event, event};
    EXPECT(clWaitForEvents(2, both), CL_SUCCESS);
    EXPECT(clWaitForEvents(1, &event), CL_SUCCESS);
    OK(clReleaseEvent(event));
}

SPEC_CASE(wait_events_of_two_contexts)
{
    cl_context other = another_context();
    cl_event events[2] = {clCreateUserEvent(context, &err), clCreateUserEvent(other, &err)};
    OK(clSetUserEventStatus(events[0], CL_COMPLETE));
    OK(clSetUserEventStatus(events[1], CL_COMPLETE));
    EXPECT(clWaitForEvents(2, events), CL_INVALID_CONTEXT);
    OK(clReleaseEvent(events[0]));
    OK(clReleaseEvent(events[1]));
    OK(clReleaseContext(other));
}

CASE(wait_across_queues)
{
    const cl_uint turns = SPIN_LONG;
    cl_event spun_event;
    cl_uint value = 0;
    cl_command_queue other = queue_with(0);
    cl_mem buffer = counting_buffer(1, 3);
    cl_kernel kernel = standard_kernel("spin");
    const size_t one = 1;
    OK(clSetKernelArg(kernel, 0, sizeof buffer, &buffer));
    OK(clSetKernelArg(kernel, 1, sizeof turns, &turns));
    OK(clEnqueueNDRangeKernel(queue, kernel, 1, NULL, &one, NULL, 0, NULL, &spun_event));
    OK(clFlush(queue));
    OK(clEnqueueReadBuffer(other, buffer, CL_TRUE, 0, 4, &value, 1, &spun_event, NULL));
    CHECK(value == spun(3, turns));
    fact("a read on another queue waits for the kernel");
    OK(clReleaseEvent(spun_event));
    OK(clReleaseKernel(kernel));
    OK(clReleaseMemObject(buffer));
    OK(clReleaseCommandQueue(other));
}

CASE(wait_list_errors)
{
    char memory[4];
    const size_t zero[3] = {0, 0, 0}, region[3] = {4, 1, 1};
    const cl_int value = 0;
    cl_event none = NULL, event = marker();
    cl_mem a = buffer_of(64), b = buffer_of(64);
    EXPECT(clEnqueueReadBuffer(queue, a, CL_FALSE, 0, 4, memory, 1, NULL, NULL),
           CL_INVALID_EVENT_WAIT_LIST);
    EXPECT(clEnqueueReadBuffer(queue, a, CL_FALSE, 0, 4, memory, 0, &event, NULL),
           CL_INVALID_EVENT_WAIT_LIST);
    EXPECT(clEnqueueReadBuffer(queue, a, CL_FALSE, 0, 4, memory, 1, &none, NULL),
           CL_INVALID_EVENT_WAIT_LIST);
    EXPECT(clEnqueueWriteBuffer(queue, a, CL_FALSE, 0, 4, memory, 1, NULL, NULL),
           CL_INVALID_EVENT_WAIT_LIST);
    EXPECT(clEnqueueCopyBuffer(queue, a, b, 0, 0, 4, 0, &event, NULL), CL_INVALID_EVENT_WAIT_LIST);
    EXPECT(clEnqueueFillBuffer(queue, a, &value, 4, 0, 4, 1, &none, NULL),
           CL_INVALID_EVENT_WAIT_LIST);
    EXPECT(clEnqueueReadBufferRect(queue, a, CL_FALSE, zero, zero, region, 0, 0, 0, 0, memory, 1,
                                   NULL, NULL),
           CL_INVALID_EVENT_WAIT_LIST);
    EXPECT(clEnqueueWriteBufferRect(queue, a, CL_FALSE, zero, zero, region, 0, 0, 0, 0, memory, 0,
                                    &event, NULL),
           CL_INVALID_EVENT_WAIT_LIST);
    REFUSED(clEnqueueMapBuffer(queue, a, CL_FALSE, CL_MAP_READ, 0, 4, 1, &none, NULL, &err),
            CL_INVALID_EVENT_WAIT_LIST);
    EXPECT(clEnqueueMarkerWithWaitList(queue, 1, NULL, NULL), CL_INVALID_EVENT_WAIT_LIST);
    EXPECT(clEnqueueBarrierWithWaitList(queue, 0, &event, NULL), CL_INVALID_EVENT_WAIT_LIST);
    EXPECT(clEnqueueMigrateMemObjects(queue, 1, &a, 0, 1, &none, NULL),
           CL_INVALID_EVENT_WAIT_LIST);
    OK(clFinish(queue));
    OK(clReleaseEvent(event));
    OK(clReleaseMemObject(a));
    OK(clReleaseMemObject(b));
}

SPEC_CASE(wait_list_errors_of_launches)
{
    const size_t one = 1;
    cl_event none = NULL, event = marker();
    cl_mem buffer = buffer_of(64);
    cl_kernel kernel = standard_kernel("write_id");
    OK(clSetKernelArg(kernel, 0, sizeof buffer, &buffer));
    EXPECT(clEnqueueNDRangeKernel(queue, kernel, 1, NULL, &one, NULL, 1, NULL, NULL),
           CL_INVALID_EVENT_WAIT_LIST);
    EXPECT(clEnqueueNDRangeKernel(queue, kernel, 1, NULL, &one, NULL, 0, &event, NULL),
           CL_INVALID_EVENT_WAIT_LIST);
    EXPECT(clEnqueueNDRangeKernel(queue, kernel, 1, NULL, &one, NULL, 1, &none, NULL),
           CL_INVALID_EVENT_WAIT_LIST);
    EXPECT(clEnqueueTask(queue, kernel, 0, &event, NULL), CL_INVALID_EVENT_WAIT_LIST);
    OK(clFinish(queue));
    OK(clReleaseEvent(event));
    OK(clReleaseKernel(kernel));
    OK(clReleaseMemObject(buffer));
}

SPEC_CASE(wait_list_of_another_context)
{
    char memory[4];
    const size_t one = 1;
    cl_context other = another_context();
    cl_event foreign = clCreateUserEvent(other, &err);
    OK(err);
    OK(clSetUserEventStatus(foreign, CL_COMPLETE));
    cl_mem buffer = buffer_of(64);
    cl_kernel kernel = standard_kernel("write_id");
    OK(clSetKernelArg(kernel, 0, sizeof buffer, &buffer));
    EXPECT(clEnqueueReadBuffer(queue, buffer, CL_TRUE, 0, 4, memory, 1, &foreign, NULL),
           CL_INVALID_CONTEXT);
    EXPECT(clEnqueueNDRangeKernel(queue, kernel, 1, NULL, &one, NULL, 1, &foreign, NULL),
           CL_INVALID_CONTEXT);
    EXPECT(clEnqueueMarkerWithWaitList(queue, 1, &foreign, NULL), CL_INVALID_CONTEXT);
    OK(clFinish(queue));
    OK(clReleaseKernel(kernel));
    OK(clReleaseMemObject(buffer));
    OK(clReleaseEvent(foreign));
    OK(clReleaseContext(other));
}

CASE(event_released_before_completion)
{
    const cl_uint turns = SPIN_LONG;
    cl_uint value = 0;
    const size_t one = 1;
    cl_event event;
    cl_mem buffer = counting_buffer(1, 8);
    cl_kernel kernel = standard_kernel("spin");
    OK(clSetKernelArg(kernel, 0, sizeof buffer, &buffer));
    OK(clSetKernelArg(kernel, 1, sizeof turns, &turns));
    OK(clEnqueueNDRangeKernel(queue, kernel, 1, NULL, &one, NULL, 0, NULL, &event));
    OK(clReleaseEvent(event));
    OK(clEnqueueReadBuffer(queue, buffer, CL_TRUE, 0, 4, &value, 0, NULL, NULL));
    CHECK(value == spun(8, turns));
    fact("the command goes on without its event");
    OK(clReleaseKernel(kernel));
    OK(clReleaseMemObject(buffer));
}

CASE(event_polled)
{
    const size_t count = 1024;
    cl_event event;
    cl_mem buffer = buffer_of(4 * count);
    cl_kernel kernel = standard_kernel("write_id");
    OK(clSetKernelArg(kernel, 0, sizeof buffer, &buffer));
    OK(clEnqueueNDRangeKernel(queue, kernel, 1, NULL, &count, NULL, 0, NULL, &event));
    OK(clFlush(queue));
    cl_int status, last = CL_QUEUED;
    const time_t end = time(NULL) + 20;
    do {
        status = status_of(event);
        CHECK(status <= last); /* the status only falls */
        last = status;
    } while (status > CL_COMPLETE && time(NULL) < end);
    EQUAL(status, CL_COMPLETE);
    CHECK(holds_counting(buffer, count, 0, 1));
    OK(clReleaseEvent(event));
    OK(clReleaseKernel(kernel));
    OK(clReleaseMemObject(buffer));
}

/* ---- profiling ---- */

static const cl_profiling_info PROFILING[4] = {
    CL_PROFILING_COMMAND_QUEUED, CL_PROFILING_COMMAND_SUBMIT, CL_PROFILING_COMMAND_START,
    CL_PROFILING_COMMAND_END};

static void check_times(cl_event event, cl_ulong times[4])
{
    for (int i = 0; i < 4; ++i)
        OK(clGetEventProfilingInfo(event, PROFILING[i], sizeof times[i], &times[i], NULL));
    CHECK(times[0] <= times[1] && times[1] <= times[2] && times[2] <= times[3]);
}

CASE(profiling_order)
{
    const cl_uint turns = SPIN_LONG;
    const size_t one = 1;
    char memory[64];
    cl_ulong times[4];
    cl_event kernel_event, read_event;
    cl_command_queue timed = queue_with(CL_QUEUE_PROFILING_ENABLE);
    cl_mem buffer = counting_buffer(16, 0);
    cl_kernel kernel = standard_kernel("spin");
    OK(clSetKernelArg(kernel, 0, sizeof buffer, &buffer));
    OK(clSetKernelArg(kernel, 1, sizeof turns, &turns));
    OK(clEnqueueNDRangeKernel(timed, kernel, 1, NULL, &one, NULL, 0, NULL, &kernel_event));
    OK(clEnqueueReadBuffer(timed, buffer, CL_FALSE, 0, 64, memory, 0, NULL, &read_event));
    OK(clFinish(timed));
    check_times(kernel_event, times);
    const cl_ulong kernel_end = times[3];
    CHECK(times[3] - times[2] > 100000 && times[3] - times[2] < 20000000000ull);
    check_times(read_event, times);
    CHECK(times[2] >= kernel_end);
    fact("QUEUED <= SUBMIT <= START <= END, and the read starts after the kernel's end");
    OK(clReleaseEvent(kernel_event));
    OK(clReleaseEvent(read_event));
    OK(clReleaseKernel(kernel));
    OK(clReleaseMemObject(buffer));
    OK(clReleaseCommandQueue(timed));
}

CASE(profiling_rules)
{
    cl_event event;
    cl_command_queue timed = queue_with(CL_QUEUE_PROFILING_ENABLE);
    cl_mem buffer = buffer_of(64);
    OK(clEnqueueFillBuffer(timed, buffer, &(cl_int){0}, 4, 0, 64, 0, NULL, &event));
    OK(clWaitForEvents(1, &event));
    for (int i = 0; i < 4; ++i)
        INFO_RULES(clGetEventProfilingInfo, event, PROFILING[i]);
    EXPECT(clGetEventProfilingInfo(NULL, CL_PROFILING_COMMAND_END, 0, NULL, NULL),
           CL_INVALID_EVENT);
    OK(clReleaseEvent(event));
    OK(clReleaseMemObject(buffer));
    OK(clReleaseCommandQueue(timed));
}

CASE(profiling_not_available)
{
    cl_ulong time = 0;
    cl_event event = marker(), user = clCreateUserEvent(context, &err);
    OK(err);
    OK(clWaitForEvents(1, &event));
    EXPECT(clGetEventProfilingInfo(event, CL_PROFILING_COMMAND_START, sizeof time, &time, NULL),
           CL_PROFILING_INFO_NOT_AVAILABLE);
    EXPECT(clGetEventProfilingInfo(user, CL_PROFILING_COMMAND_START, sizeof time, &time, NULL),
           CL_PROFILING_INFO_NOT_AVAILABLE);
    OK(clSetUserEventStatus(user, CL_COMPLETE));
    EXPECT(clGetEventProfilingInfo(user, CL_PROFILING_COMMAND_START, sizeof time, &time, NULL),
           CL_PROFILING_INFO_NOT_AVAILABLE);
    OK(clReleaseEvent(event));
    OK(clReleaseEvent(user));
}

SPEC_CASE(profiling_unknown_name)
{
    cl_event event;
    cl_command_queue timed = queue_with(CL_QUEUE_PROFILING_ENABLE);
    OK(clEnqueueMarkerWithWaitList(timed, 0, NULL, &event));
    OK(clWaitForEvents(1, &event));
    EXPECT(clGetEventProfilingInfo(event, UNKNOWN_INFO, 0, NULL, NULL), CL_INVALID_VALUE);
    OK(clReleaseEvent(event));
    OK(clReleaseCommandQueue(timed));
}

SPEC_CASE(profiling_before_completion)
{
    cl_ulong time = 0;
    cl_event done, gate = clCreateUserEvent(context, &err);
    OK(err);
    cl_command_queue timed = queue_with(CL_QUEUE_PROFILING_ENABLE);
    OK(clEnqueueMarkerWithWaitList(timed, 1, &gate, &done));
    EXPECT(clGetEventProfilingInfo(done, CL_PROFILING_COMMAND_END, sizeof time, &time, NULL),
           CL_PROFILING_INFO_NOT_AVAILABLE);
    OK(clSetUserEventStatus(gate, CL_COMPLETE));
    OK(clWaitForEvents(1, &done));
    EXPECT(clGetEventProfilingInfo(done, CL_PROFILING_COMMAND_END, sizeof time, &time, NULL),
           CL_SUCCESS);
    OK(clReleaseEvent(done));
    OK(clReleaseEvent(gate));
    OK(clReleaseCommandQueue(timed));
}

CASE(profiling_of_many_kinds)
{
    cl_ulong times[4];
    char memory[1024] = {0};
    cl_event events[5];
    cl_command_queue timed = queue_with(CL_QUEUE_PROFILING_ENABLE);
    cl_mem a = buffer_of(1024), b = buffer_of(1024);
    OK(clEnqueueWriteBuffer(timed, a, CL_FALSE, 0, 1024, memory, 0, NULL, &events[0]));
    OK(clEnqueueCopyBuffer(timed, a, b, 0, 0, 1024, 0, NULL, &events[1]));
    OK(clEnqueueReadBuffer(timed, b, CL_TRUE, 0, 1024, memory, 0, NULL, &events[2]));
    void *mapped =
        clEnqueueMapBuffer(timed, a, CL_TRUE, CL_MAP_READ, 0, 1024, 0, NULL, &events[3], &err);
    OK(err);
    OK(clEnqueueUnmapMemObject(timed, a, mapped, 0, NULL, &events[4]));
    OK(clFinish(timed));
    for (int i = 0; i < 5; ++i) {
        check_times(events[i], times);
        OK(clReleaseEvent(events[i]));
    }
    fact("transfers and maps have times too");
    OK(clReleaseMemObject(a));
    OK(clReleaseMemObject(b));
    OK(clReleaseCommandQueue(timed));
}
