/* Filling, copying and migrating buffers. */
#include "../cltest.h"

CASE(fill_patterns)
{
    static const size_t sizes[] = {1, 2, 4, 8, 16, 32, 64, 128};
    unsigned char pattern[128], back[1024];
    for (int i = 0; i < 128; ++i)
        pattern[i] = (unsigned char)(i + 1);
    cl_mem buffer = buffer_of(1024);
    for (size_t s = 0; s < 8; ++s) {
        const size_t size = sizes[s];
        OK(clEnqueueFillBuffer(queue, buffer, pattern, size, 0, 1024, 0, NULL, NULL));
        OK(clEnqueueReadBuffer(queue, buffer, CL_TRUE, 0, 1024, back, 0, NULL, NULL));
        int right = 1;
        for (size_t i = 0; i < 1024; ++i)
            right &= back[i] == pattern[i % size];
        CHECK(right);
        fact("a pattern of %zu bytes", size);
    }
    OK(clReleaseMemObject(buffer));
}

CASE(fill_part)
{
    const cl_int value = -5;
    int back[64];
    cl_mem buffer = counting_buffer(64, 0);
    OK(clEnqueueFillBuffer(queue, buffer, &value, 4, 40, 80, 0, NULL, NULL));
    OK(clEnqueueReadBuffer(queue, buffer, CL_TRUE, 0, sizeof back, back, 0, NULL, NULL));
    int right = 1;
    for (int i = 0; i < 64; ++i)
        right &= back[i] == (i >= 10 && i < 30 ? -5 : i);
    CHECK(right);
    fact("only the part is filled");
    OK(clReleaseMemObject(buffer));
}

CASE(fill_pattern_is_captured)
{
    cl_int value = 1;
    cl_mem buffer = buffer_of(256);
    OK(clEnqueueFillBuffer(queue, buffer, &value, 4, 0, 256, 0, NULL, NULL));
    value = 2;
    CHECK(holds_counting(buffer, 64, 1, 0));
    fact("the pattern may change after the call");
    OK(clReleaseMemObject(buffer));
}

CASE(fill_errors)
{
    unsigned char pattern[256] = {0};
    cl_mem buffer = buffer_of(256), none = NULL;
    EXPECT(clEnqueueFillBuffer(NULL, buffer, pattern, 4, 0, 256, 0, NULL, NULL),
           CL_INVALID_COMMAND_QUEUE);
    EXPECT(clEnqueueFillBuffer(queue, none, pattern, 4, 0, 256, 0, NULL, NULL),
           CL_INVALID_MEM_OBJECT);
    EXPECT(clEnqueueFillBuffer(queue, buffer, NULL, 4, 0, 256, 0, NULL, NULL), CL_INVALID_VALUE);
    EXPECT(clEnqueueFillBuffer(queue, buffer, pattern, 0, 0, 256, 0, NULL, NULL),
           CL_INVALID_VALUE);
    EXPECT(clEnqueueFillBuffer(queue, buffer, pattern, 3, 0, 255, 0, NULL, NULL),
           CL_INVALID_VALUE);
    EXPECT(clEnqueueFillBuffer(queue, buffer, pattern, 256, 0, 256, 0, NULL, NULL),
           CL_INVALID_VALUE);
    EXPECT(clEnqueueFillBuffer(queue, buffer, pattern, 4, 2, 64, 0, NULL, NULL),
           CL_INVALID_VALUE);
    EXPECT(clEnqueueFillBuffer(queue, buffer, pattern, 4, 0, 66, 0, NULL, NULL),
           CL_INVALID_VALUE);
    EXPECT(clEnqueueFillBuffer(queue, buffer, pattern, 4, 0, 260, 0, NULL, NULL),
           CL_INVALID_VALUE);
    EXPECT(clEnqueueFillBuffer(queue, buffer, pattern, 4, 256, 4, 0, NULL, NULL),
           CL_INVALID_VALUE);
    OK(clReleaseMemObject(buffer));
}

CASE(fill_host_no_access)
{
    const cl_int value = 42;
    cl_mem hidden = clCreateBuffer(context, CL_MEM_HOST_NO_ACCESS, 64, NULL, &err);
    OK(err);
    cl_mem open = buffer_of(64);
    OK(clEnqueueFillBuffer(queue, hidden, &value, 4, 0, 64, 0, NULL, NULL));
    OK(clEnqueueCopyBuffer(queue, hidden, open, 0, 0, 64, 0, NULL, NULL));
    CHECK(holds_counting(open, 16, 42, 0));
    fact("HOST_NO_ACCESS binds neither fills nor copies");
    OK(clReleaseMemObject(hidden));
    OK(clReleaseMemObject(open));
}

CASE(copy_buffer)
{
    cl_mem source = counting_buffer(100, 0), target = counting_buffer(100, 1000);
    OK(clEnqueueCopyBuffer(queue, source, target, 40, 80, 120, 0, NULL, NULL));
    int back[100], right = 1;
    OK(clEnqueueReadBuffer(queue, target, CL_TRUE, 0, sizeof back, back, 0, NULL, NULL));
    for (int i = 0; i < 100; ++i)
        right &= back[i] == (i >= 20 && i < 50 ? i - 10 : 1000 + i);
    CHECK(right);
    fact("a part copied to another place");
    OK(clReleaseMemObject(source));
    OK(clReleaseMemObject(target));
}

CASE(copy_within_one_buffer)
{
    cl_mem buffer = counting_buffer(100, 0);
    OK(clEnqueueCopyBuffer(queue, buffer, buffer, 0, 200, 200, 0, NULL, NULL));
    int back[100], right = 1;
    OK(clEnqueueReadBuffer(queue, buffer, CL_TRUE, 0, sizeof back, back, 0, NULL, NULL));
    for (int i = 0; i < 100; ++i)
        right &= back[i] == i % 50;
    CHECK(right);
    fact("one half copied over the other");
    OK(clReleaseMemObject(buffer));
}

CASE(copy_chain)
{
    enum { LINKS = 20 };
    cl_mem chain[LINKS];
    chain[0] = counting_buffer(4096, 77);
    for (int i = 1; i < LINKS; ++i) {
        chain[i] = buffer_of(4096 * 4);
        OK(clEnqueueCopyBuffer(queue, chain[i - 1], chain[i], 0, 0, 4096 * 4, 0, NULL, NULL));
    }
    CHECK(holds_counting(chain[LINKS - 1], 4096, 77, 1));
    fact("20 buffers, each copied from the one before");
    for (int i = 0; i < LINKS; ++i)
        OK(clReleaseMemObject(chain[i]));
}

CASE(copy_errors)
{
    cl_mem small = buffer_of(64), large = buffer_of(256);
    EXPECT(clEnqueueCopyBuffer(NULL, small, large, 0, 0, 4, 0, NULL, NULL),
           CL_INVALID_COMMAND_QUEUE);
    EXPECT(clEnqueueCopyBuffer(queue, NULL, large, 0, 0, 4, 0, NULL, NULL),
           CL_INVALID_MEM_OBJECT);
    EXPECT(clEnqueueCopyBuffer(queue, small, NULL, 0, 0, 4, 0, NULL, NULL),
           CL_INVALID_MEM_OBJECT);
    EXPECT(clEnqueueCopyBuffer(queue, small, large, 0, 0, 65, 0, NULL, NULL), CL_INVALID_VALUE);
    EXPECT(clEnqueueCopyBuffer(queue, large, small, 0, 0, 65, 0, NULL, NULL), CL_INVALID_VALUE);
    EXPECT(clEnqueueCopyBuffer(queue, small, large, 60, 0, 8, 0, NULL, NULL), CL_INVALID_VALUE);
    EXPECT(clEnqueueCopyBuffer(queue, small, large, 0, 255, 2, 0, NULL, NULL), CL_INVALID_VALUE);
    OK(clReleaseMemObject(small));
    OK(clReleaseMemObject(large));
}

CASE(copy_overlap)
{
    cl_mem buffer = buffer_of(256);
    EXPECT(clEnqueueCopyBuffer(queue, buffer, buffer, 0, 10, 20, 0, NULL, NULL),
           CL_MEM_COPY_OVERLAP);
    EXPECT(clEnqueueCopyBuffer(queue, buffer, buffer, 10, 0, 20, 0, NULL, NULL),
           CL_MEM_COPY_OVERLAP);
    EXPECT(clEnqueueCopyBuffer(queue, buffer, buffer, 0, 20, 20, 0, NULL, NULL), CL_SUCCESS);
    OK(clFinish(queue));
    OK(clReleaseMemObject(buffer));
}

CASE(migrate_keeps_data)
{
    cl_event event = NULL;
    cl_mem buffers[2] = {counting_buffer(64, 0), counting_buffer(64, 100)};
    EXPECT(clEnqueueMigrateMemObjects(queue, 2, buffers, 0, 0, NULL, &event), CL_SUCCESS);
    OK(clWaitForEvents(1, &event));
    cl_command_type type = 0;
    OK(clGetEventInfo(event, CL_EVENT_COMMAND_TYPE, sizeof type, &type, NULL));
    EQUAL(type, CL_COMMAND_MIGRATE_MEM_OBJECTS);
    EXPECT(clEnqueueMigrateMemObjects(queue, 1, buffers, CL_MIGRATE_MEM_OBJECT_HOST, 0, NULL,
                                      NULL),
           CL_SUCCESS);
    CHECK(holds_counting(buffers[0], 64, 0, 1));
    CHECK(holds_counting(buffers[1], 64, 100, 1));
    OK(clReleaseEvent(event));
    OK(clReleaseMemObject(buffers[0]));
    OK(clReleaseMemObject(buffers[1]));
}

CASE(migrate_undefined_contents)
{
    cl_mem buffer = buffer_of(256);
    EXPECT(clEnqueueMigrateMemObjects(queue, 1, &buffer,
                                      CL_MIGRATE_MEM_OBJECT_CONTENT_UNDEFINED, 0, NULL, NULL),
           CL_SUCCESS);
    OK(clEnqueueFillBuffer(queue, buffer, &(cl_int){9}, 4, 0, 256, 0, NULL, NULL));
    CHECK(holds_counting(buffer, 64, 9, 0));
    OK(clReleaseMemObject(buffer));
}

CASE(migrate_errors)
{
    cl_mem buffer = buffer_of(64), none = NULL;
    EXPECT(clEnqueueMigrateMemObjects(NULL, 1, &buffer, 0, 0, NULL, NULL),
           CL_INVALID_COMMAND_QUEUE);
    EXPECT(clEnqueueMigrateMemObjects(queue, 0, &buffer, 0, 0, NULL, NULL), CL_INVALID_VALUE);
    EXPECT(clEnqueueMigrateMemObjects(queue, 1, NULL, 0, 0, NULL, NULL), CL_INVALID_VALUE);
    EXPECT(clEnqueueMigrateMemObjects(queue, 1, &none, 0, 0, NULL, NULL), CL_INVALID_MEM_OBJECT);
    EXPECT(clEnqueueMigrateMemObjects(queue, 1, &buffer, (cl_mem_migration_flags)1 << 20, 0, NULL,
                                      NULL),
           CL_INVALID_VALUE);
    OK(clReleaseMemObject(buffer));
}
