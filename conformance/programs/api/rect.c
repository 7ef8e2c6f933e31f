/* Rectangular reads, writes and copies. */
#include "../cltest.h"

enum { ROW = 32, ROWS = 16, SLICES = 4, SIZE = ROW * ROWS * SLICES };

static unsigned char pattern[SIZE];

static cl_mem patterned(void)
{
    for (int i = 0; i < SIZE; ++i)
        pattern[i] = (unsigned char)(i * 7 + i / 251);
    cl_mem buffer = clCreateBuffer(context, CL_MEM_READ_WRITE | CL_MEM_COPY_HOST_PTR, SIZE,
                                   pattern, &err);
    OK(err);
    return buffer;
}

static size_t at(size_t x, size_t y, size_t z)
{
    return (z * ROWS + y) * ROW + x;
}

CASE(rect_read)
{
    unsigned char back[6 * 5 * 2];
    const size_t origin[3] = {3, 2, 1}, host[3] = {0, 0, 0}, region[3] = {6, 5, 2};
    cl_mem buffer = patterned();
    OK(clEnqueueReadBufferRect(queue, buffer, CL_TRUE, origin, host, region, ROW, ROW * ROWS, 0, 0,
                               back, 0, NULL, NULL));
    int right = 1;
    for (size_t z = 0; z < 2; ++z)
        for (size_t y = 0; y < 5; ++y)
            for (size_t x = 0; x < 6; ++x)
                right &= back[(z * 5 + y) * 6 + x] == pattern[at(3 + x, 2 + y, 1 + z)];
    CHECK(right);
    fact("a box out of the middle, tight on the host");
    OK(clReleaseMemObject(buffer));
}

CASE(rect_read_into_host_pitch)
{
    unsigned char back[20 * 8];
    memset(back, 0xee, sizeof back);
    const size_t origin[3] = {0, 1, 0}, host[3] = {4, 2, 0}, region[3] = {8, 3, 1};
    cl_mem buffer = patterned();
    OK(clEnqueueReadBufferRect(queue, buffer, CL_TRUE, origin, host, region, ROW, 0, 20, 0, back,
                               0, NULL, NULL));
    int right = 1;
    for (size_t y = 0; y < 8; ++y)
        for (size_t x = 0; x < 20; ++x) {
            const int inside = x >= 4 && x < 12 && y >= 2 && y < 5;
            right &= back[y * 20 + x] == (inside ? pattern[at(x - 4, y - 2 + 1, 0)] : 0xee);
        }
    CHECK(right);
    fact("what lies around the box on the host is untouched");
    OK(clReleaseMemObject(buffer));
}

CASE(rect_write)
{
    unsigned char box[4 * 3 * 2], back[SIZE];
    for (size_t i = 0; i < sizeof box; ++i)
        box[i] = (unsigned char)(255 - i);
    const size_t origin[3] = {5, 6, 1}, host[3] = {0, 0, 0}, region[3] = {4, 3, 2};
    cl_mem buffer = patterned();
    OK(clEnqueueWriteBufferRect(queue, buffer, CL_TRUE, origin, host, region, ROW, ROW * ROWS, 4,
                                12, box, 0, NULL, NULL));
    OK(clEnqueueReadBuffer(queue, buffer, CL_TRUE, 0, SIZE, back, 0, NULL, NULL));
    for (size_t z = 0; z < 2; ++z)
        for (size_t y = 0; y < 3; ++y)
            for (size_t x = 0; x < 4; ++x)
                pattern[at(5 + x, 6 + y, 1 + z)] = box[(z * 3 + y) * 4 + x];
    CHECK(memcmp(back, pattern, SIZE) == 0);
    fact("a box written into the middle");
    OK(clReleaseMemObject(buffer));
}

CASE(rect_write_nonblocking_reads_host_pitch)
{
    static unsigned char host_side[64 * 64];
    for (size_t i = 0; i < sizeof host_side; ++i)
        host_side[i] = (unsigned char)(i % 253);
    const size_t origin[3] = {0, 0, 0}, host[3] = {10, 20, 0}, region[3] = {ROW, ROWS, 1};
    cl_mem buffer = patterned();
    unsigned char back[ROW * ROWS];
    OK(clEnqueueWriteBufferRect(queue, buffer, CL_FALSE, origin, host, region, ROW, 0, 64, 0,
                                host_side, 0, NULL, NULL));
    OK(clEnqueueReadBuffer(queue, buffer, CL_TRUE, 0, sizeof back, back, 0, NULL, NULL));
    int right = 1;
    for (size_t y = 0; y < ROWS; ++y)
        right &= memcmp(back + y * ROW, host_side + (20 + y) * 64 + 10, ROW) == 0;
    CHECK(right);
    fact("a box out of host memory with its own pitch");
    OK(clReleaseMemObject(buffer));
}

CASE(rect_copy)
{
    unsigned char back[SIZE], wanted[SIZE] = {0};
    const unsigned char zero = 0;
    const size_t from[3] = {1, 2, 0}, to[3] = {7, 3, 2}, region[3] = {9, 4, 2};
    cl_mem source = patterned(), target = buffer_of(SIZE);
    OK(clEnqueueFillBuffer(queue, target, &zero, 1, 0, SIZE, 0, NULL, NULL));
    OK(clEnqueueCopyBufferRect(queue, source, target, from, to, region, ROW, ROW * ROWS, ROW,
                               ROW * ROWS, 0, NULL, NULL));
    OK(clEnqueueReadBuffer(queue, target, CL_TRUE, 0, SIZE, back, 0, NULL, NULL));
    for (size_t z = 0; z < 2; ++z)
        for (size_t y = 0; y < 4; ++y)
            for (size_t x = 0; x < 9; ++x)
                wanted[at(7 + x, 3 + y, 2 + z)] = pattern[at(1 + x, 2 + y, z)];
    CHECK(memcmp(back, wanted, SIZE) == 0);
    fact("a box copied from buffer to buffer");
    OK(clReleaseMemObject(source));
    OK(clReleaseMemObject(target));
}

CASE(rect_copy_within_one_buffer)
{
    unsigned char back[SIZE];
    const size_t from[3] = {0, 0, 0}, to[3] = {16, 0, 0}, region[3] = {16, ROWS, 1};
    cl_mem buffer = patterned();
    OK(clEnqueueCopyBufferRect(queue, buffer, buffer, from, to, region, ROW, ROW * ROWS, ROW,
                               ROW * ROWS, 0, NULL, NULL));
    OK(clEnqueueReadBuffer(queue, buffer, CL_TRUE, 0, SIZE, back, 0, NULL, NULL));
    for (size_t y = 0; y < ROWS; ++y)
        memcpy(pattern + at(16, y, 0), pattern + at(0, y, 0), 16);
    CHECK(memcmp(back, pattern, SIZE) == 0);
    fact("interleaved boxes of one buffer that do not overlap");
    OK(clReleaseMemObject(buffer));
}

CASE(rect_copy_overlap)
{
    const size_t from[3] = {0, 0, 0}, to[3] = {8, 1, 0}, region[3] = {16, 4, 1};
    cl_mem buffer = patterned();
    EXPECT(clEnqueueCopyBufferRect(queue, buffer, buffer, from, to, region, ROW, 0, ROW, 0, 0,
                                   NULL, NULL),
           CL_MEM_COPY_OVERLAP);
    OK(clReleaseMemObject(buffer));
}

SPEC_CASE(rect_copy_pitches_of_one_buffer)
{
    const size_t from[3] = {0, 0, 0}, to[3] = {0, 8, 0}, region[3] = {8, 2, 1};
    cl_mem buffer = patterned();
    EXPECT(clEnqueueCopyBufferRect(queue, buffer, buffer, from, to, region, ROW, 0, ROW / 2, 0, 0,
                                   NULL, NULL),
           CL_INVALID_VALUE);
    OK(clReleaseMemObject(buffer));
}

CASE(rect_pitch_errors)
{
    unsigned char memory[SIZE];
    const size_t zero[3] = {0, 0, 0}, region[3] = {8, 4, 2};
    cl_mem buffer = patterned();
    EXPECT(clEnqueueReadBufferRect(queue, buffer, CL_TRUE, zero, zero, region, 7, 0, 0, 0, memory,
                                   0, NULL, NULL),
           CL_INVALID_VALUE);
    EXPECT(clEnqueueReadBufferRect(queue, buffer, CL_TRUE, zero, zero, region, 0, 0, 7, 0, memory,
                                   0, NULL, NULL),
           CL_INVALID_VALUE);
    EXPECT(clEnqueueWriteBufferRect(queue, buffer, CL_TRUE, zero, zero, region, 8, 31, 0, 0,
                                    memory, 0, NULL, NULL),
           CL_INVALID_VALUE);
    EXPECT(clEnqueueWriteBufferRect(queue, buffer, CL_TRUE, zero, zero, region, 8, 36, 0, 0,
                                    memory, 0, NULL, NULL),
           CL_INVALID_VALUE);
    OK(clReleaseMemObject(buffer));
}

CASE(rect_bounds_errors)
{
    unsigned char memory[SIZE];
    const size_t zero[3] = {0, 0, 0}, wide[3] = {ROW, ROWS, SLICES + 1}, far[3] = {1, 0, 0},
                 all[3] = {ROW, ROWS, SLICES};
    cl_mem buffer = patterned();
    EXPECT(clEnqueueReadBufferRect(queue, buffer, CL_TRUE, zero, zero, wide, ROW, 0, 0, 0, memory,
                                   0, NULL, NULL),
           CL_INVALID_VALUE);
    EXPECT(clEnqueueWriteBufferRect(queue, buffer, CL_TRUE, far, zero, all, ROW, ROW * ROWS, 0, 0,
                                    memory, 0, NULL, NULL),
           CL_INVALID_VALUE);
    EXPECT(clEnqueueCopyBufferRect(queue, buffer, buffer, zero, far, all, ROW, 0, ROW, 0, 0, NULL,
                                   NULL),
           CL_INVALID_VALUE, CL_MEM_COPY_OVERLAP);
    OK(clReleaseMemObject(buffer));
}

CASE(rect_argument_errors)
{
    unsigned char memory[SIZE];
    const size_t zero[3] = {0, 0, 0}, region[3] = {8, 4, 2}, flat[3] = {8, 0, 1};
    cl_mem buffer = patterned(), none = NULL;
    EXPECT(clEnqueueReadBufferRect(NULL, buffer, CL_TRUE, zero, zero, region, 0, 0, 0, 0, memory,
                                   0, NULL, NULL),
           CL_INVALID_COMMAND_QUEUE);
    EXPECT(clEnqueueReadBufferRect(queue, none, CL_TRUE, zero, zero, region, 0, 0, 0, 0, memory, 0,
                                   NULL, NULL),
           CL_INVALID_MEM_OBJECT);
    EXPECT(clEnqueueReadBufferRect(queue, buffer, CL_TRUE, zero, zero, region, 0, 0, 0, 0, NULL, 0,
                                   NULL, NULL),
           CL_INVALID_VALUE);
    EXPECT(clEnqueueWriteBufferRect(queue, buffer, CL_TRUE, zero, zero, flat, 0, 0, 0, 0, memory,
                                    0, NULL, NULL),
           CL_INVALID_VALUE);
    OK(clReleaseMemObject(buffer));
}

SPEC_CASE(rect_copy_null_buffers)
{
    const size_t zero[3] = {0, 0, 0}, region[3] = {8, 4, 2};
    cl_mem buffer = patterned(), none = NULL;
    EXPECT(clEnqueueCopyBufferRect(queue, buffer, none, zero, zero, region, 0, 0, 0, 0, 0, NULL,
                                   NULL),
           CL_INVALID_MEM_OBJECT);
    EXPECT(clEnqueueCopyBufferRect(queue, none, buffer, zero, zero, region, 0, 0, 0, 0, 0, NULL,
                                   NULL),
           CL_INVALID_MEM_OBJECT);
    OK(clReleaseMemObject(buffer));
}

SPEC_CASE(rect_null_regions)
{
    unsigned char memory[SIZE];
    const size_t zero[3] = {0, 0, 0}, region[3] = {8, 4, 2};
    cl_mem buffer = patterned();
    EXPECT(clEnqueueReadBufferRect(queue, buffer, CL_TRUE, zero, zero, NULL, 0, 0, 0, 0, memory, 0,
                                   NULL, NULL),
           CL_INVALID_VALUE);
    EXPECT(clEnqueueWriteBufferRect(queue, buffer, CL_TRUE, NULL, zero, region, 0, 0, 0, 0, memory,
                                    0, NULL, NULL),
           CL_INVALID_VALUE);
    OK(clReleaseMemObject(buffer));
}

SPEC_CASE(rect_overflowing_origin)
{
    unsigned char memory[SIZE];
    const size_t zero[3] = {0, 0, 0}, huge[3] = {0, SIZE_MAX / 16, 0}, region[3] = {8, 4, 1};
    cl_mem buffer = patterned();
    EXPECT(clEnqueueReadBufferRect(queue, buffer, CL_TRUE, huge, zero, region, ROW, 0, 0, 0,
                                   memory, 0, NULL, NULL),
           CL_INVALID_VALUE);
    OK(clReleaseMemObject(buffer));
}

CASE(rect_host_access_flags)
{
    unsigned char memory[64] = {0};
    const size_t zero[3] = {0, 0, 0}, region[3] = {8, 4, 1};
    cl_mem buffer = clCreateBuffer(context, CL_MEM_HOST_NO_ACCESS, 64, NULL, &err);
    OK(err);
    EXPECT(clEnqueueReadBufferRect(queue, buffer, CL_TRUE, zero, zero, region, 0, 0, 0, 0, memory,
                                   0, NULL, NULL),
           CL_INVALID_OPERATION);
    EXPECT(clEnqueueWriteBufferRect(queue, buffer, CL_TRUE, zero, zero, region, 0, 0, 0, 0, memory,
                                    0, NULL, NULL),
           CL_INVALID_OPERATION);
    OK(clReleaseMemObject(buffer));
}
