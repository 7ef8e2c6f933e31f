/* Mapping and unmapping. */
#include "../cltest.h"

static void *map(cl_mem buffer, cl_map_flags flags, size_t offset, size_t size)
{
    void *mapped =
        clEnqueueMapBuffer(queue, buffer, CL_TRUE, flags, offset, size, 0, NULL, NULL, &err);
    OK(err);
    return mapped;
}

static void unmap(cl_mem buffer, void *mapped)
{
    OK(clEnqueueUnmapMemObject(queue, buffer, mapped, 0, NULL, NULL));
}

CASE(map_read)
{
    cl_mem buffer = counting_buffer(1000, 3);
    const int *values = map(buffer, CL_MAP_READ, 400, 400);
    int right = 1;
    for (int i = 0; i < 100; ++i)
        right &= values[i] == 103 + i;
    CHECK(right);
    fact("a part mapped for reading");
    unmap(buffer, (void *)values);
    CHECK(holds_counting(buffer, 1000, 3, 1));
    OK(clReleaseMemObject(buffer));
}

CASE(map_write)
{
    cl_mem buffer = counting_buffer(100, 0);
    int *values = map(buffer, CL_MAP_WRITE, 40, 40);
    int right = 1;
    for (int i = 0; i < 10; ++i)
        right &= values[i] == 10 + i; /* a write map promises the contents too */
    CHECK(right);
    for (int i = 0; i < 10; ++i)
        values[i] = i + 10;
    values[3] = 13;
    unmap(buffer, values);
    CHECK(holds_counting(buffer, 100, 0, 1));
    fact("a part mapped for writing keeps what is not written");
    OK(clReleaseMemObject(buffer));
}

CASE(map_write_invalidate)
{
    cl_mem buffer = counting_buffer(100, 0);
    int *values = map(buffer, CL_MAP_WRITE_INVALIDATE_REGION, 0, 400);
    for (int i = 0; i < 100; ++i)
        values[i] = 1000 + 2 * i;
    unmap(buffer, values);
    CHECK(holds_counting(buffer, 100, 1000, 2));
    fact("an invalidated region holds what was written");
    OK(clReleaseMemObject(buffer));
}

CASE(map_read_write)
{
    cl_mem buffer = counting_buffer(256, 0);
    cl_kernel kernel = standard_kernel("add");
    set_add(kernel, buffer, 1);
    for (int round = 0; round < 3; ++round) {
        launch(queue, kernel, 256);
        int *values = map(buffer, CL_MAP_READ | CL_MAP_WRITE, 0, 1024);
        for (int i = 0; i < 256; ++i)
            values[i] += 10;
        unmap(buffer, values);
    }
    CHECK(holds_counting(buffer, 256, 33, 1));
    fact("kernels and mapped writes take turns");
    OK(clReleaseKernel(kernel));
    OK(clReleaseMemObject(buffer));
}

CASE(map_count)
{
    cl_uint count = 77;
    cl_mem buffer = buffer_of(64);
    void *first = map(buffer, CL_MAP_READ, 0, 64);
    void *second = map(buffer, CL_MAP_READ, 16, 16);
    OK(clGetMemObjectInfo(buffer, CL_MEM_MAP_COUNT, sizeof count, &count, NULL));
    EQUAL(count, 2);
    CHECK((char *)second == (char *)first + 16);
    unmap(buffer, second);
    unmap(buffer, first);
    OK(clFinish(queue));
    /* PoCL lowers the map count a moment after the unmap command has ended. */
    const time_t begun = time(NULL);
    do
        OK(clGetMemObjectInfo(buffer, CL_MEM_MAP_COUNT, sizeof count, &count, NULL));
    while (count != 0 && time(NULL) - begun < 5);
    EQUAL(count, 0);
    OK(clReleaseMemObject(buffer));
}

CASE(map_same_region_twice)
{
    cl_mem buffer = counting_buffer(16, 0);
    void *first = map(buffer, CL_MAP_READ, 0, 64);
    void *second = map(buffer, CL_MAP_READ, 0, 64);
    CHECK(memcmp(first, second, 64) == 0);
    unmap(buffer, first);
    unmap(buffer, second);
    EXPECT(clFinish(queue), CL_SUCCESS);
    OK(clReleaseMemObject(buffer));
}

CASE(map_errors)
{
    cl_mem buffer = buffer_of(64), none = NULL;
    REFUSED(clEnqueueMapBuffer(NULL, buffer, CL_TRUE, CL_MAP_READ, 0, 4, 0, NULL, NULL, &err),
            CL_INVALID_COMMAND_QUEUE);
    REFUSED(clEnqueueMapBuffer(queue, none, CL_TRUE, CL_MAP_READ, 0, 4, 0, NULL, NULL, &err),
            CL_INVALID_MEM_OBJECT);
    REFUSED(clEnqueueMapBuffer(queue, buffer, CL_TRUE, CL_MAP_READ, 0, 65, 0, NULL, NULL, &err),
            CL_INVALID_VALUE);
    REFUSED(clEnqueueMapBuffer(queue, buffer, CL_TRUE, CL_MAP_READ, 60, 5, 0, NULL, NULL, &err),
            CL_INVALID_VALUE);
    OK(clReleaseMemObject(buffer));
}

SPEC_CASE(map_value_errors)
{
    cl_mem buffer = buffer_of(64);
    REFUSED(clEnqueueMapBuffer(queue, buffer, CL_TRUE, 1 << 20, 0, 4, 0, NULL, NULL, &err),
            CL_INVALID_VALUE);
    REFUSED(clEnqueueMapBuffer(queue, buffer, CL_TRUE, CL_MAP_READ, 0, 0, 0, NULL, NULL, &err),
            CL_INVALID_VALUE);
    REFUSED(clEnqueueMapBuffer(queue, buffer, CL_TRUE,
                               CL_MAP_READ | CL_MAP_WRITE_INVALIDATE_REGION, 0, 4, 0, NULL, NULL,
                               &err),
            CL_INVALID_VALUE);
    OK(clReleaseMemObject(buffer));
}

SPEC_CASE(map_overlapping_writes)
{
    cl_mem buffer = buffer_of(64);
    void *mapped = map(buffer, CL_MAP_WRITE, 0, 32);
    REFUSED(clEnqueueMapBuffer(queue, buffer, CL_TRUE, CL_MAP_WRITE, 16, 32, 0, NULL, NULL, &err),
            CL_INVALID_OPERATION);
    unmap(buffer, mapped);
    OK(clFinish(queue));
    OK(clReleaseMemObject(buffer));
}

CASE(unmap_errors)
{
    int elsewhere;
    cl_mem buffer = buffer_of(64), none = NULL;
    void *mapped = map(buffer, CL_MAP_READ, 0, 64);
    EXPECT(clEnqueueUnmapMemObject(NULL, buffer, mapped, 0, NULL, NULL),
           CL_INVALID_COMMAND_QUEUE);
    EXPECT(clEnqueueUnmapMemObject(queue, none, mapped, 0, NULL, NULL), CL_INVALID_MEM_OBJECT);
    EXPECT(clEnqueueUnmapMemObject(queue, buffer, &elsewhere, 0, NULL, NULL), CL_INVALID_VALUE);
    EXPECT(clEnqueueUnmapMemObject(queue, buffer, mapped, 0, NULL, NULL), CL_SUCCESS);
    OK(clFinish(queue));
    EXPECT(clEnqueueUnmapMemObject(queue, buffer, mapped, 0, NULL, NULL), CL_INVALID_VALUE);
    OK(clReleaseMemObject(buffer));
}

CASE(map_nonblocking)
{
    cl_event mapped_event, unmapped;
    cl_mem buffer = counting_buffer(4096, 0);
    int *values = clEnqueueMapBuffer(queue, buffer, CL_FALSE, CL_MAP_READ | CL_MAP_WRITE, 0,
                                     4096 * 4, 0, NULL, &mapped_event, &err);
    OK(err);
    CHECK(values != NULL);
    OK(clWaitForEvents(1, &mapped_event));
    EQUAL(values[4095], 4095);
    for (int i = 0; i < 4096; ++i)
        values[i] += 7;
    OK(clEnqueueUnmapMemObject(queue, buffer, values, 0, NULL, &unmapped));
    OK(clWaitForEvents(1, &unmapped));
    CHECK(holds_counting(buffer, 4096, 7, 1));
    cl_command_type type = 0;
    OK(clGetEventInfo(mapped_event, CL_EVENT_COMMAND_TYPE, sizeof type, &type, NULL));
    EQUAL(type, CL_COMMAND_MAP_BUFFER);
    OK(clGetEventInfo(unmapped, CL_EVENT_COMMAND_TYPE, sizeof type, &type, NULL));
    EQUAL(type, CL_COMMAND_UNMAP_MEM_OBJECT);
    OK(clReleaseEvent(mapped_event));
    OK(clReleaseEvent(unmapped));
    OK(clReleaseMemObject(buffer));
}

CASE(map_waits_for_earlier_kernel)
{
    const cl_uint turns = SPIN_LONG;
    cl_mem buffer = counting_buffer(1, 5);
    cl_kernel kernel = standard_kernel("spin");
    OK(clSetKernelArg(kernel, 0, sizeof buffer, &buffer));
    OK(clSetKernelArg(kernel, 1, sizeof turns, &turns));
    launch(queue, kernel, 1);
    cl_uint *value = map(buffer, CL_MAP_READ, 0, 4);
    CHECK(*value == spun(5, turns));
    fact("a blocking map shows the result of the kernel before it");
    unmap(buffer, value);
    OK(clFinish(queue));
    OK(clReleaseKernel(kernel));
    OK(clReleaseMemObject(buffer));
}

CASE(map_unmap_on_another_queue)
{
    cl_command_queue other = queue_with(0);
    cl_event done;
    cl_mem buffer = buffer_of(64);
    int *values = map(buffer, CL_MAP_WRITE_INVALIDATE_REGION, 0, 64);
    for (int i = 0; i < 16; ++i)
        values[i] = i;
    OK(clEnqueueUnmapMemObject(other, buffer, values, 0, NULL, &done));
    OK(clWaitForEvents(1, &done));
    CHECK(holds_counting(buffer, 16, 0, 1));
    fact("mapped on one queue, unmapped on another");
    OK(clReleaseEvent(done));
    OK(clReleaseMemObject(buffer));
    OK(clReleaseCommandQueue(other));
}

CASE(map_pointer_as_transfer_memory)
{
    cl_mem staging = clCreateBuffer(context, CL_MEM_ALLOC_HOST_PTR, 4096, NULL, &err);
    OK(err);
    cl_mem source = counting_buffer(1024, 9), target = buffer_of(4096);
    int *values = map(staging, CL_MAP_READ | CL_MAP_WRITE, 0, 4096);
    OK(clEnqueueReadBuffer(queue, source, CL_FALSE, 0, 4096, values, 0, NULL, NULL));
    OK(clEnqueueWriteBuffer(queue, target, CL_FALSE, 0, 4096, values, 0, NULL, NULL));
    OK(clFinish(queue));
    CHECK(holds_counting(target, 1024, 9, 1));
    fact("mapped memory serves as the host side of transfers");
    unmap(staging, values);
    OK(clFinish(queue));
    OK(clReleaseMemObject(staging));
    OK(clReleaseMemObject(source));
    OK(clReleaseMemObject(target));
}

CASE(map_read_while_kernel_reads)
{
    cl_mem in = counting_buffer(64, 0), out = buffer_of(256);
    int *values = map(in, CL_MAP_READ, 0, 256);
    cl_kernel kernel = standard_kernel("copy");
    OK(clSetKernelArg(kernel, 0, sizeof in, &in));
    OK(clSetKernelArg(kernel, 1, sizeof out, &out));
    launch(queue, kernel, 64);
    CHECK(holds_counting(out, 64, 0, 1));
    EQUAL(values[63], 63);
    unmap(in, values);
    OK(clFinish(queue));
    OK(clReleaseKernel(kernel));
    OK(clReleaseMemObject(in));
    OK(clReleaseMemObject(out));
}

CASE(map_disjoint_parts)
{
    cl_mem buffer = counting_buffer(64, 0);
    int *low = map(buffer, CL_MAP_WRITE, 0, 128), *high = map(buffer, CL_MAP_WRITE, 128, 128);
    for (int i = 0; i < 32; ++i) {
        low[i] = 500 + i;
        high[i] = 532 + i;
    }
    unmap(buffer, high);
    unmap(buffer, low);
    CHECK(holds_counting(buffer, 64, 500, 1));
    fact("two disjoint parts mapped for writing");
    OK(clReleaseMemObject(buffer));
}
