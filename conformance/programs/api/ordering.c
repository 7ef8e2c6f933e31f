/* Markers, barriers, out-of-order queues, and host memory as part of the order. */
#include "../cltest.h"

CASE(marker_without_list)
{
    cl_event event;
    cl_mem buffer = counting_buffer(16, 0);
    cl_kernel kernel = standard_kernel("add");
    set_add(kernel, buffer, 1);
    for (int i = 0; i < 20; ++i)
        launch(queue, kernel, 16);
    EXPECT(clEnqueueMarkerWithWaitList(queue, 0, NULL, &event), CL_SUCCESS);
    OK(clWaitForEvents(1, &event));
    CHECK(holds_counting(buffer, 16, 20, 1));
    EXPECT(clEnqueueMarkerWithWaitList(queue, 0, NULL, NULL), CL_SUCCESS);
    EXPECT(clEnqueueBarrierWithWaitList(queue, 0, NULL, NULL), CL_SUCCESS);
    OK(clFinish(queue));
    OK(clReleaseEvent(event));
    OK(clReleaseKernel(kernel));
    OK(clReleaseMemObject(buffer));
}

CASE(marker_and_barrier_errors)
{
    cl_event event;
    EXPECT(clEnqueueMarkerWithWaitList(NULL, 0, NULL, &event), CL_INVALID_COMMAND_QUEUE);
    EXPECT(clEnqueueBarrierWithWaitList(NULL, 0, NULL, &event), CL_INVALID_COMMAND_QUEUE);
    EXPECT(clEnqueueMarkerWithWaitList(queue, 1, NULL, &event), CL_INVALID_EVENT_WAIT_LIST);
    EXPECT(clEnqueueBarrierWithWaitList(queue, 1, NULL, &event), CL_INVALID_EVENT_WAIT_LIST);
}

CASE(marker_failed_leaves_event)
{
    cl_event event = (cl_event)&err;
    EXPECT(clEnqueueMarkerWithWaitList(queue, 1, NULL, &event), CL_INVALID_EVENT_WAIT_LIST);
    CHECK(event == (cl_event)&err);
}

CASE(out_of_order_by_events)
{
    enum { LINKS = 50 };
    cl_command_queue on = out_of_order_queue();
    cl_event events[LINKS];
    cl_mem buffer = counting_buffer(16, 0);
    cl_kernel add = standard_kernel("add");
    const size_t count = 16;
    for (int i = 0; i < LINKS; ++i) {
        set_add(add, buffer, i + 1);
        OK(clEnqueueNDRangeKernel(on, add, 1, NULL, &count, NULL, i > 0,
                                  i > 0 ? &events[i - 1] : NULL, &events[i]));
    }
    OK(clFinish(on));
    CHECK(holds_counting(buffer, 16, LINKS * (LINKS + 1) / 2, 1));
    fact("50 launches ordered by their events");
    for (int i = 0; i < LINKS; ++i)
        OK(clReleaseEvent(events[i]));
    OK(clReleaseKernel(add));
    OK(clReleaseMemObject(buffer));
    OK(clReleaseCommandQueue(on));
}

CASE(out_of_order_diamond)
{
    const size_t count = 1024;
    cl_command_queue on = out_of_order_queue();
    cl_event top, sides[2], bottom;
    cl_mem a = buffer_of(4096), b = buffer_of(4096), c = buffer_of(4096);
    cl_kernel copy = standard_kernel("copy");
    int *values = malloc(4096), back[2] = {0};
    for (int i = 0; i < 1024; ++i)
        values[i] = i + 17;
    OK(clEnqueueWriteBuffer(on, a, CL_FALSE, 0, 4096, values, 0, NULL, &top));
    OK(clSetKernelArg(copy, 0, sizeof a, &a));
    OK(clSetKernelArg(copy, 1, sizeof b, &b));
    OK(clEnqueueNDRangeKernel(on, copy, 1, NULL, &count, NULL, 1, &top, &sides[0]));
    OK(clSetKernelArg(copy, 1, sizeof c, &c));
    OK(clEnqueueNDRangeKernel(on, copy, 1, NULL, &count, NULL, 1, &top, &sides[1]));
    OK(clEnqueueMarkerWithWaitList(on, 2, sides, &bottom));
    OK(clEnqueueReadBuffer(on, b, CL_FALSE, 4, 4, &back[0], 1, &bottom, NULL));
    OK(clEnqueueReadBuffer(on, c, CL_FALSE, 4092, 4, &back[1], 1, &bottom, NULL));
    OK(clFinish(on));
    fact("%d %d", back[0], back[1]);
    free(values);
    OK(clReleaseEvent(top));
    OK(clReleaseEvent(sides[0]));
    OK(clReleaseEvent(sides[1]));
    OK(clReleaseEvent(bottom));
    OK(clReleaseKernel(copy));
    OK(clReleaseMemObject(a));
    OK(clReleaseMemObject(b));
    OK(clReleaseMemObject(c));
    OK(clReleaseCommandQueue(on));
}

CASE(out_of_order_barrier)
{
    enum { COUNT = 16 };
    cl_command_queue on = out_of_order_queue();
    cl_mem buffers[COUNT], sum = counting_buffer(4, 0);
    cl_kernel spin = standard_kernel("spin"), copy = standard_kernel("copy");
    const cl_uint turns = 100000;
    const size_t one = 1;
    cl_uint back[COUNT];
    OK(clSetKernelArg(spin, 1, sizeof turns, &turns));
    for (int i = 0; i < COUNT; ++i) {
        buffers[i] = counting_buffer(1, i);
        OK(clSetKernelArg(spin, 0, sizeof buffers[i], &buffers[i]));
        OK(clEnqueueNDRangeKernel(on, spin, 1, NULL, &one, NULL, 0, NULL, NULL));
    }
    EXPECT(clEnqueueBarrierWithWaitList(on, 0, NULL, NULL), CL_SUCCESS);
    for (int i = 0; i < COUNT; ++i)
        OK(clEnqueueReadBuffer(on, buffers[i], CL_FALSE, 0, 4, &back[i], 0, NULL, NULL));
    OK(clFinish(on));
    int right = 1;
    for (int i = 0; i < COUNT; ++i) {
        right &= back[i] == spun((cl_uint)i, turns);
        OK(clReleaseMemObject(buffers[i]));
    }
    CHECK(right);
    fact("reads behind a barrier see all kernels before it");
    OK(clReleaseKernel(spin));
    OK(clReleaseKernel(copy));
    OK(clReleaseMemObject(sum));
    OK(clReleaseCommandQueue(on));
}

CASE(out_of_order_marker_waits_for_all)
{
    cl_command_queue on = out_of_order_queue();
    cl_event events[10], all;
    cl_mem buffer = counting_buffer(10, 0);
    cl_kernel spin = standard_kernel("spin");
    const cl_uint turns = 1000000;
    const size_t one = 1;
    OK(clSetKernelArg(spin, 0, sizeof buffer, &buffer));
    OK(clSetKernelArg(spin, 1, sizeof turns, &turns));
    for (size_t i = 0; i < 10; ++i)
        OK(clEnqueueNDRangeKernel(on, spin, 1, &i, &one, NULL, 0, NULL, &events[i]));
    OK(clEnqueueMarkerWithWaitList(on, 0, NULL, &all));
    OK(clWaitForEvents(1, &all));
    int complete = 0;
    for (int i = 0; i < 10; ++i) {
        complete += status_of(events[i]) == CL_COMPLETE;
        OK(clReleaseEvent(events[i]));
    }
    EQUAL(complete, 10);
    OK(clReleaseEvent(all));
    OK(clReleaseKernel(spin));
    OK(clReleaseMemObject(buffer));
    OK(clReleaseCommandQueue(on));
}

CASE(in_order_reads_see_earlier_kernels)
{
    cl_mem buffer = counting_buffer(1024, 0);
    cl_kernel kernel = standard_kernel("add");
    set_add(kernel, buffer, 1);
    for (int round = 1; round <= 50; ++round) {
        int last = 0;
        launch(queue, kernel, 1024);
        OK(clEnqueueReadBuffer(queue, buffer, CL_TRUE, 4092, 4, &last, 0, NULL, NULL));
        CHECK(last == 1023 + round);
    }
    fact("50 rounds of launch and read");
    OK(clReleaseKernel(kernel));
    OK(clReleaseMemObject(buffer));
}

/* ---- host memory: a read into P, then a write from P, without waiting ---- */

CASE(halo_exchange_in_order)
{
    enum { COUNT = 65536, ROUNDS = 20 };
    static int host[COUNT];
    cl_mem left = counting_buffer(COUNT, 1), right = buffer_of(COUNT * 4);
    cl_kernel add = standard_kernel("add");
    for (int round = 0; round < ROUNDS; ++round) {
        OK(clEnqueueReadBuffer(queue, left, CL_FALSE, 0, sizeof host, host, 0, NULL, NULL));
        OK(clEnqueueWriteBuffer(queue, right, CL_FALSE, 0, sizeof host, host, 0, NULL, NULL));
        set_add(add, right, 1);
        launch(queue, add, COUNT);
        OK(clEnqueueReadBuffer(queue, right, CL_FALSE, 0, sizeof host, host, 0, NULL, NULL));
        OK(clEnqueueWriteBuffer(queue, left, CL_FALSE, 0, sizeof host, host, 0, NULL, NULL));
    }
    OK(clFinish(queue));
    CHECK(holds_counting(left, COUNT, 1 + ROUNDS, 1));
    fact("20 exchanges through one host buffer");
    OK(clReleaseKernel(add));
    OK(clReleaseMemObject(left));
    OK(clReleaseMemObject(right));
}

CASE(halo_exchange_between_queues)
{
    enum { COUNT = 4096, ROUNDS = 30 };
    static int host[COUNT];
    cl_command_queue other = queue_with(0);
    cl_event read = NULL, written = NULL;
    cl_mem left = counting_buffer(COUNT, 1), right = buffer_of(COUNT * 4);
    cl_kernel add = standard_kernel("add");
    for (int round = 0; round < ROUNDS; ++round) {
        OK(clEnqueueReadBuffer(queue, left, CL_FALSE, 0, sizeof host, host, written != NULL,
                               written ? &written : NULL, &read));
        if (written != NULL)
            OK(clReleaseEvent(written));
        OK(clFlush(queue));
        OK(clEnqueueWriteBuffer(other, right, CL_FALSE, 0, sizeof host, host, 1, &read, NULL));
        OK(clReleaseEvent(read));
        set_add(add, right, 2);
        launch(other, add, COUNT);
        OK(clEnqueueCopyBuffer(other, right, left, 0, 0, sizeof host, 0, NULL, &written));
        OK(clFlush(other));
    }
    OK(clWaitForEvents(1, &written));
    OK(clReleaseEvent(written));
    CHECK(holds_counting(left, COUNT, 1 + 2 * ROUNDS, 1));
    fact("30 exchanges between two queues");
    OK(clReleaseKernel(add));
    OK(clReleaseMemObject(left));
    OK(clReleaseMemObject(right));
    OK(clReleaseCommandQueue(other));
}

CASE(halo_exchange_partial_overlap)
{
    enum { COUNT = 8192 };
    static int host[COUNT];
    cl_mem source = counting_buffer(COUNT, 0), target = buffer_of(COUNT * 4);
    for (int i = 0; i < COUNT; ++i)
        host[i] = -1;
    /* The read fills the upper half. The write takes the middle. */
    OK(clEnqueueReadBuffer(queue, source, CL_FALSE, COUNT * 2, COUNT * 2, host + COUNT / 2, 0,
                           NULL, NULL));
    OK(clEnqueueWriteBuffer(queue, target, CL_FALSE, 0, COUNT * 2, host + COUNT / 4, 0, NULL,
                            NULL));
    int *back = malloc(COUNT * 2), right = 1;
    OK(clEnqueueReadBuffer(queue, target, CL_TRUE, 0, COUNT * 2, back, 0, NULL, NULL));
    for (int i = 0; i < COUNT / 2; ++i)
        right &= back[i] == (i < COUNT / 4 ? -1 : COUNT / 4 + i);
    CHECK(right);
    fact("only the read part is new");
    free(back);
    OK(clReleaseMemObject(source));
    OK(clReleaseMemObject(target));
}

CASE(halo_exchange_through_map)
{
    enum { COUNT = 4096 };
    cl_event mapped_event;
    cl_mem source = counting_buffer(COUNT, 5), target = buffer_of(COUNT * 4);
    int *mapped = clEnqueueMapBuffer(queue, source, CL_FALSE, CL_MAP_READ, 0, COUNT * 4, 0, NULL,
                                     &mapped_event, &err);
    OK(err);
    OK(clEnqueueWriteBuffer(queue, target, CL_FALSE, 0, COUNT * 4, mapped, 1, &mapped_event,
                            NULL));
    CHECK(holds_counting(target, COUNT, 5, 1));
    fact("a write from memory that a pending map fills");
    OK(clEnqueueUnmapMemObject(queue, source, mapped, 0, NULL, NULL));
    OK(clFinish(queue));
    OK(clReleaseEvent(mapped_event));
    OK(clReleaseMemObject(source));
    OK(clReleaseMemObject(target));
}

CASE(write_memory_reused_after_blocking_write)
{
    enum { COUNT = 100 };
    int value = 0;
    static int back[COUNT];
    cl_mem buffer = buffer_of(COUNT * 4);
    for (int i = 0; i < COUNT; ++i) {
        value = i * 3;
        OK(clEnqueueWriteBuffer(queue, buffer, CL_TRUE, 4 * (size_t)i, 4, &value, 0, NULL, NULL));
    }
    value = -1;
    OK(clEnqueueReadBuffer(queue, buffer, CL_TRUE, 0, sizeof back, back, 0, NULL, NULL));
    int right = 1;
    for (int i = 0; i < COUNT; ++i)
        right &= back[i] == i * 3;
    CHECK(right);
    fact("a blocking write has taken its memory when it returns");
    OK(clReleaseMemObject(buffer));
}
