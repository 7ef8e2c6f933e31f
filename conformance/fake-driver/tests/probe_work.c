// Probes of data, order and time.
#include "probe.h"

static void launch(cl_command_queue queue, cl_kernel kernel, cl_mem target, cl_uint value, size_t items) {
    OK(clSetKernelArg(kernel, 0, sizeof target, &target));
    OK(clSetKernelArg(kernel, 1, sizeof value, &value));
    OK(clEnqueueNDRangeKernel(queue, kernel, 1, NULL, &items, NULL, 0, NULL, NULL));
}

void flow(void) {
    cl_command_queue queue = new_queue(0);
    cl_kernel fill = new_kernel(KERNELS, "fake_fill_u32"), add = new_kernel(KERNELS, "fake_add_u32");
    cl_kernel iota = new_kernel(KERNELS, "fake_iota_u32"), copy = new_kernel(KERNELS, "fake_copy");
    cl_mem a = new_buffer(4096, NULL), b = new_buffer(4096, NULL);
    cl_uint data[1024], back[1024];
    launch(queue, fill, a, 7, 1024);
    launch(queue, add, a, 5, 512);
    size_t bytes = 4096;
    OK(clSetKernelArg(copy, 0, sizeof b, &b));
    OK(clSetKernelArg(copy, 1, sizeof a, &a));
    OK(clEnqueueNDRangeKernel(queue, copy, 1, NULL, &bytes, NULL, 0, NULL, NULL));
    OK(clEnqueueReadBuffer(queue, b, CL_TRUE, 0, 4096, back, 0, NULL, NULL));
    for (int i = 0; i < 1024; i++) TRUE(back[i] == (i < 512 ? 12u : 7u));
    launch(queue, iota, a, 100, 1024);
    // A launch far too large stays within the buffer.
    launch(queue, add, a, 1, 1 << 20);
    OK(clEnqueueCopyBuffer(queue, a, b, 1024, 2048, 1024, 0, NULL, NULL));
    OK(clEnqueueReadBuffer(queue, b, CL_TRUE, 2048, 1024, back, 0, NULL, NULL));
    for (cl_uint i = 0; i < 256; i++) TRUE(back[i] == 357 + i);
    for (cl_uint i = 0; i < 1024; i++) data[i] = 3 * i;
    OK(clEnqueueWriteBuffer(queue, a, CL_FALSE, 0, 4096, data, 0, NULL, NULL));
    cl_buffer_region region = {1024, 512};
    cl_mem part = clCreateSubBuffer(a, 0, CL_BUFFER_CREATE_TYPE_REGION, &region, &code);
    OK(code);
    cl_uint pattern[2] = {1, 2};
    OK(clEnqueueFillBuffer(queue, part, pattern, 8, 8, 16, 0, NULL, NULL));
    OK(clEnqueueMigrateMemObjects(queue, 1, &part, CL_MIGRATE_MEM_OBJECT_HOST, 0, NULL, NULL));
    OK(clEnqueueReadBuffer(queue, a, CL_TRUE, 0, 4096, back, 0, NULL, NULL));
    for (cl_uint i = 0; i < 1024; i++)
        TRUE(back[i] == (i >= 258 && i < 262 ? pattern[i % 2] : 3 * i));
    EXPECT(CL_MEM_COPY_OVERLAP, clEnqueueCopyBuffer(queue, a, part, 1000, 0, 512, 0, NULL, NULL));
}

void rectangles(void) {
    cl_command_queue queue = new_queue(0);
    unsigned char host[1000], back[1000];
    for (int i = 0; i < 1000; i++) host[i] = (unsigned char)i;
    cl_mem a = new_buffer(1000, NULL), b = new_buffer(1000, host);
    // A 4×3×2 box from (1,2,1) of a 10×5 host array to (2,0,0) of an 8×4 array.
    size_t from[3] = {1, 2, 1}, to[3] = {2, 0, 0}, box[3] = {4, 3, 2};
    OK(clEnqueueWriteBufferRect(queue, a, CL_TRUE, to, from, box, 8, 32, 10, 50, host, 0, NULL, NULL));
    memset(back, 0xEE, sizeof back);
    OK(clEnqueueReadBuffer(queue, a, CL_TRUE, 0, 64, back, 0, NULL, NULL));
    for (int z = 0; z < 2; z++)
        for (int y = 0; y < 4; y++)
            for (int x = 0; x < 8; x++) {
                int in = x >= 2 && x < 6 && y < 3;
                int want = in ? (z + 1) * 50 + (y + 2) * 10 + x - 1 : 0;
                TRUE(back[z * 32 + y * 8 + x] == (unsigned char)want);
            }
    OK(clEnqueueCopyBufferRect(queue, b, a, from, to, box, 10, 50, 8, 32, 0, NULL, NULL));
    memset(back, 0xEE, sizeof back);
    OK(clEnqueueReadBufferRect(queue, a, CL_TRUE, to, from, box, 8, 32, 10, 50, back, 0, NULL, NULL));
    for (int i = 0; i < 1000; i++) {
        int z = i / 50, y = i / 10 % 5, x = i % 10;
        int in = z >= 1 && z < 3 && y >= 2 && y < 5 && x >= 1 && x < 5;
        TRUE(back[i] == (in ? (unsigned char)i : 0xEE));
    }
    size_t zero[3] = {0}, far[3] = {4, 0, 0};
    EXPECT(CL_MEM_COPY_OVERLAP,
           clEnqueueCopyBufferRect(queue, a, a, zero, to, box, 8, 32, 8, 32, 0, NULL, NULL));
    OK(clEnqueueCopyBufferRect(queue, a, a, zero, far, box, 8, 32, 8, 32, 0, NULL, NULL));
    EXPECT(CL_INVALID_VALUE,
           clEnqueueCopyBufferRect(queue, a, a, zero, far, box, 8, 32, 9, 36, 0, NULL, NULL));
    EXPECT(CL_INVALID_VALUE,
           clEnqueueCopyBufferRect(queue, a, b, zero, to, box, 3, 0, 8, 32, 0, NULL, NULL));
    box[2] = SIZE_MAX / 2;
    EXPECT(CL_INVALID_VALUE,
           clEnqueueCopyBufferRect(queue, a, b, zero, to, box, 8, 32, 8, 32, 0, NULL, NULL));
}

void maps(void) {
    cl_command_queue queue = new_queue(0);
    cl_uint host[256];
    for (cl_uint i = 0; i < 256; i++) host[i] = i;
    cl_mem a = clCreateBuffer(context, CL_MEM_USE_HOST_PTR, sizeof host, host, &code);
    OK(code);
    cl_uint *mapped = clEnqueueMapBuffer(queue, a, CL_TRUE, CL_MAP_READ | CL_MAP_WRITE, 64, 128, 0,
                                         NULL, NULL, &code);
    OK(code);
    TRUE(mapped == host + 16 && mapped[0] == 16);
    mapped[1] = 99;
    cl_uint count;
    OK(clGetMemObjectInfo(a, CL_MEM_MAP_COUNT, sizeof count, &count, NULL));
    TRUE(count == 1);
    EXPECT(CL_INVALID_VALUE, clEnqueueUnmapMemObject(queue, a, host, 0, NULL, NULL));
    OK(clEnqueueUnmapMemObject(queue, a, mapped, 0, NULL, NULL));
    EXPECT(CL_INVALID_VALUE, clEnqueueUnmapMemObject(queue, a, mapped, 0, NULL, NULL));
    cl_uint back;
    OK(clEnqueueReadBuffer(queue, a, CL_TRUE, 68, 4, &back, 0, NULL, NULL));
    TRUE(back == 99);
    cl_mem shut = clCreateBuffer(context, CL_MEM_HOST_NO_ACCESS, 16, NULL, &code);
    OK(code);
    TRUE(!clEnqueueMapBuffer(queue, shut, CL_TRUE, CL_MAP_READ, 0, 16, 0, NULL, NULL, &code));
    EXPECT(CL_INVALID_OPERATION, code);
}

static volatile int called[4];
static void CL_CALLBACK note_status(cl_event event, cl_int status, void *slot) {
    cl_int kind;
    // The handle is valid here, even if others have released it.
    OK(clGetEventInfo(event, CL_EVENT_COMMAND_TYPE, sizeof kind, &kind, NULL));
    called[(intptr_t)slot] += 1 + (status < 0 ? 100 : 0);
}
static void await(int slot, int value) {
    for (double start = now(); called[slot] != value && now() - start < 10;) usleep(100);
    TRUE(called[slot] == value);
}

void events(void) {
    cl_command_queue queue = new_queue(CL_QUEUE_PROFILING_ENABLE);
    cl_kernel kernel = new_kernel(KERNELS, "plain");
    size_t one = 1;
    cl_event event;
    cl_ulong device_before, device_after, host, times[4];
    OK(clGetDeviceAndHostTimer(device, &device_before, &host));
    TRUE(device_before > host);
    OK(clEnqueueNDRangeKernel(queue, kernel, 1, NULL, &one, NULL, 0, NULL, &event));
    OK(clSetEventCallback(event, CL_SUBMITTED, note_status, (void *)0));
    OK(clSetEventCallback(event, CL_RUNNING, note_status, (void *)1));
    OK(clSetEventCallback(event, CL_COMPLETE, note_status, (void *)2));
    OK(clFinish(queue));
    OK(clGetDeviceAndHostTimer(device, &device_after, &host));
    for (int i = 0; i < 4; i++)
        OK(clGetEventProfilingInfo(event, CL_PROFILING_COMMAND_QUEUED + i, 8, &times[i], NULL));
    TRUE(device_before <= times[0] && times[0] <= times[1] && times[1] <= times[2]);
    TRUE(times[2] <= times[3] && times[3] <= device_after);
    for (int i = 0; i < 3; i++) await(i, 1);
    // A callback registered after the event's end is still called, even after the application's last release.
    OK(clSetEventCallback(event, CL_COMPLETE, note_status, (void *)3));
    OK(clReleaseEvent(event));
    await(3, 1);
    // A user event that fails.
    cl_event user = clCreateUserEvent(context, &code), dependent;
    OK(clEnqueueMarkerWithWaitList(queue, 1, &user, &dependent));
    OK(clSetEventCallback(dependent, CL_COMPLETE, note_status, (void *)3));
    EXPECT(CL_INVALID_VALUE, clSetUserEventStatus(user, CL_RUNNING));
    OK(clSetUserEventStatus(user, -77));
    EXPECT(CL_INVALID_OPERATION, clSetUserEventStatus(user, CL_COMPLETE));
    EXPECT(CL_EXEC_STATUS_ERROR_FOR_EVENTS_IN_WAIT_LIST, clWaitForEvents(1, &dependent));
    await(3, 102);
    EXPECT(CL_INVALID_EVENT, clSetUserEventStatus(dependent, CL_COMPLETE));
    EXPECT(CL_PROFILING_INFO_NOT_AVAILABLE,
           clGetEventProfilingInfo(dependent, CL_PROFILING_COMMAND_END, 8, &times[0], NULL));
    OK(clFinish(queue));
    cl_uint x = 0;
    cl_mem buffer = new_buffer(4, NULL);
    EXPECT(CL_EXEC_STATUS_ERROR_FOR_EVENTS_IN_WAIT_LIST,
           clEnqueueReadBuffer(queue, buffer, CL_TRUE, 0, 4, &x, 1, &user, NULL));
}

static cl_int status_of(cl_event event) {
    cl_int status;
    OK(clGetEventInfo(event, CL_EVENT_COMMAND_EXECUTION_STATUS, sizeof status, &status, NULL));
    return status;
}

// Checks that commands in out-of-order queues pass a gated command, but not a barrier.
void gates(void) {
    cl_command_queue ordered = new_queue(0), free = new_queue(CL_QUEUE_OUT_OF_ORDER_EXEC_MODE_ENABLE);
    cl_kernel kernel = new_kernel(KERNELS, "plain");
    cl_event gate = clCreateUserEvent(context, &code), gate2 = clCreateUserEvent(context, &code);
    cl_event gated, passing, marker, barrier, behind, successor, cross;
    size_t one = 1;
    OK(clEnqueueNDRangeKernel(free, kernel, 1, NULL, &one, NULL, 1, &gate, &gated));
    OK(clEnqueueNDRangeKernel(free, kernel, 1, NULL, &one, NULL, 0, NULL, &passing));
    OK(clEnqueueMarkerWithWaitList(free, 0, NULL, &marker));
    OK(clWaitForEvents(1, &passing));
    TRUE(status_of(gated) > CL_COMPLETE && status_of(marker) > CL_COMPLETE);
    OK(clEnqueueBarrierWithWaitList(free, 1, &gate2, &barrier));
    OK(clEnqueueNDRangeKernel(free, kernel, 1, NULL, &one, NULL, 0, NULL, &behind));
    OK(clSetUserEventStatus(gate, CL_COMPLETE));
    OK(clWaitForEvents(1, &marker));
    TRUE(status_of(gated) == CL_COMPLETE && status_of(behind) > CL_COMPLETE);
    // In an in-order queue, check a successor of a waiting command, and a wait list of
    // another queue that names the successor.
    OK(clEnqueueMarkerWithWaitList(ordered, 1, &behind, NULL));
    OK(clEnqueueNDRangeKernel(ordered, kernel, 1, NULL, &one, NULL, 0, NULL, &successor));
    OK(clEnqueueNDRangeKernel(free, kernel, 1, NULL, &one, NULL, 1, &successor, &cross));
    OK(clFlush(ordered));
    TRUE(status_of(successor) > CL_COMPLETE);
    OK(clSetUserEventStatus(gate2, CL_COMPLETE));
    OK(clFinish(free));
    TRUE(status_of(cross) == CL_COMPLETE && status_of(barrier) == CL_COMPLETE);
    OK(clFinish(ordered));
}

enum { THREADS = 8, ROUNDS = 1000 };
static cl_command_queue shared;
static void *work(void *unused) {
    (void)unused;
    cl_command_queue own = new_queue(CL_QUEUE_OUT_OF_ORDER_EXEC_MODE_ENABLE);
    cl_kernel add = new_kernel(KERNELS, "fake_add_u32");
    cl_mem sum = new_buffer(4, &(cl_uint){0}), scratch;
    cl_event last = NULL;
    size_t one = 1;
    cl_uint value = 1, total;
    OK(clSetKernelArg(add, 0, sizeof sum, &sum));
    OK(clSetKernelArg(add, 1, sizeof value, &value));
    for (int i = 0; i < ROUNDS; i++) {
        // A chain through both queues, where each addition follows the one before.
        cl_event next;
        cl_command_queue queue = i % 3 ? own : shared;
        OK(clEnqueueNDRangeKernel(queue, add, 1, NULL, &one, NULL, last != NULL, last ? &last : NULL, &next));
        if (last) OK(clReleaseEvent(last));
        last = next;
        if (i % 64 == 0) {
            scratch = new_buffer(256, NULL);
            OK(clEnqueueFillBuffer(own, scratch, &value, 4, 0, 256, 0, NULL, NULL));
            OK(clReleaseMemObject(scratch));
        }
    }
    OK(clEnqueueReadBuffer(own, sum, CL_TRUE, 0, 4, &total, 1, &last, NULL));
    TRUE(total == ROUNDS);
    OK(clReleaseEvent(last));
    OK(clReleaseMemObject(sum));
    OK(clReleaseKernel(add));
    OK(clReleaseCommandQueue(own));
    return NULL;
}

void threads(void) {
    shared = new_queue(0);
    pthread_t thread[THREADS];
    for (int i = 0; i < THREADS; i++) TRUE(!pthread_create(&thread[i], NULL, work, NULL));
    for (int i = 0; i < THREADS; i++) TRUE(!pthread_join(thread[i], NULL));
}
