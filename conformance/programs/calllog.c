/*
 * Calls with distinct arguments for the suite `calllog`, one section per run. The fake driver logs the
 * calls that reach it, natively and through Causeway. Both logs must match.
 *
 *     PROGRAM SECTION    exit code 0, or 1 where a call failed or data is wrong
 *
 * A section ends with a command that the program waits for. Objects that the program released before may be
 * freed a little later. The program stays while the file named by CALLLOG_HOLD exists, for a minute at
 * most. So the suite sees these late releases.
 */
#define _POSIX_C_SOURCE 200809L
#define CL_TARGET_OPENCL_VERSION 300
#define CL_USE_DEPRECATED_OPENCL_1_0_APIS
#define CL_USE_DEPRECATED_OPENCL_1_1_APIS
#define CL_USE_DEPRECATED_OPENCL_1_2_APIS
#include <CL/cl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define OK(call) check((call), #call, __LINE__)
#define MADE(what) (OK(code), (what))

static cl_platform_id platform;
static cl_device_id device;
static cl_context context;
static cl_command_queue queue;
static cl_int code;

static const char *KERNELS =
    "kernel void fake_fill_u32(global uint *target, uint value) { target[get_global_id(0)] = value; }\n"
    "kernel void fake_add_u32(global uint *target, uint value) { target[get_global_id(0)] += value; }\n"
    "kernel void fake_copy(global uchar *to, global const uchar *from) {}\n"
    "kernel void every(global float4 *a, constant int *b, local short *c, char d, uchar2 e, short3 f,\n"
    "                  ushort4 g, int h, uint8 i, long j, ulong16 k, float l, double2 m) {}\n"
    "kernel __attribute__((reqd_work_group_size(4, 2, 1))) void shaped(global int *a) {}\n"
    "kernel void slow() {}\n";

static void check(cl_int got, const char *what, int line)
{
    if (got != CL_SUCCESS) {
        printf("line %d: %s gave %d\n", line, what, got);
        exit(1);
    }
}

static void same(const void *a, const void *b, size_t size, int line)
{
    if (memcmp(a, b, size) != 0) {
        printf("line %d: wrong data\n", line);
        exit(1);
    }
}
#define SAME(a, b, size) same((a), (b), (size), __LINE__)

/* Makes bytes that occur nowhere else. */
static unsigned char *pattern(size_t size, unsigned seed)
{
    unsigned char *bytes = malloc(size);
    for (size_t i = 0; i < size; i++)
        bytes[i] = (unsigned char)((i * 167 + i / 251 + seed * 31) >> (seed % 3));
    return bytes;
}

static cl_mem buffer(cl_mem_flags flags, size_t size, void *host)
{
    return MADE(clCreateBuffer(context, flags, size, host, &code));
}

static cl_kernel kernel_of(cl_program program, const char *name)
{
    cl_kernel kernel = clCreateKernel(program, name, &code);
    OK(code);
    return kernel;
}

static cl_program program_of(const char *source, const char *options)
{
    cl_program program = clCreateProgramWithSource(context, 1, &source, NULL, &code);
    OK(code);
    OK(clBuildProgram(program, 1, &device, options, NULL, NULL));
    return program;
}

static void settle(void)
{
    cl_event last;
    OK(clEnqueueMarkerWithWaitList(queue, 0, NULL, &last));
    OK(clWaitForEvents(1, &last));
    OK(clReleaseEvent(last));
}

static void buffers(void)
{
    unsigned char *bytes = pattern(200000, 1);
    cl_mem made[8];
    made[0] = buffer(0, 1, NULL);
    made[1] = buffer(CL_MEM_READ_ONLY, 12345, NULL);
    made[2] = buffer(CL_MEM_WRITE_ONLY | CL_MEM_ALLOC_HOST_PTR, 4096, NULL);
    made[3] = buffer(CL_MEM_COPY_HOST_PTR, 1000, bytes + 3);
    made[4] = buffer(CL_MEM_READ_ONLY | CL_MEM_COPY_HOST_PTR, 200000, bytes);
    made[5] = buffer(CL_MEM_USE_HOST_PTR | CL_MEM_HOST_READ_ONLY, 777, bytes);
    cl_buffer_region part = {1024, 2048};
    made[6] = clCreateSubBuffer(made[4], 0, CL_BUFFER_CREATE_TYPE_REGION, &part, &code);
    OK(code);
    cl_buffer_region last = {12288, 57};
    made[7] = clCreateSubBuffer(made[1], CL_MEM_READ_ONLY, CL_BUFFER_CREATE_TYPE_REGION, &last, &code);
    OK(code);
    unsigned char back[2048];
    OK(clEnqueueReadBuffer(queue, made[6], CL_TRUE, 0, 2048, back, 0, NULL, NULL));
    SAME(back, bytes + 1024, 2048);
    for (int i = 7; i >= 0; i--)
        OK(clReleaseMemObject(made[i]));
    settle();
}

static void transfers(void)
{
    unsigned char *small = pattern(4000, 2), *back = malloc(3 << 20);
    cl_mem a = buffer(0, 4096, NULL), b = buffer(0, 8192, NULL);
    cl_event done;
    OK(clEnqueueWriteBuffer(queue, a, CL_FALSE, 17, 3001, small, 0, NULL, NULL));
    OK(clEnqueueWriteBuffer(queue, a, CL_TRUE, 0, 1, small + 5, 0, NULL, NULL));
    OK(clEnqueueCopyBuffer(queue, a, b, 17, 4000, 1500, 0, NULL, NULL));
    uint32_t word = 0xAABBCCDD;
    OK(clEnqueueFillBuffer(queue, b, &word, 4, 8, 400, 0, NULL, NULL));
    unsigned char wide[128];
    memcpy(wide, small, 128);
    OK(clEnqueueFillBuffer(queue, b, wide, 128, 1024, 1280, 0, NULL, NULL));
    OK(clEnqueueReadBuffer(queue, b, CL_FALSE, 4000, 1500, back, 0, NULL, &done));
    OK(clWaitForEvents(1, &done));
    OK(clReleaseEvent(done));
    SAME(back, small, 1500);
    OK(clEnqueueReadBuffer(queue, b, CL_TRUE, 1023, 130, back, 0, NULL, NULL));
    SAME(back + 1, wide, 128);
    cl_mem both[2] = {a, b};
    OK(clEnqueueMigrateMemObjects(queue, 2, both, 0, 0, NULL, NULL));
    OK(clEnqueueMigrateMemObjects(queue, 1, &b, CL_MIGRATE_MEM_OBJECT_CONTENT_UNDEFINED, 0, NULL, NULL));
    OK(clReleaseMemObject(a));
    OK(clReleaseMemObject(b));
    settle();
}

/* Sizes above the limit for data inside a command, and above the size of one bulk chunk. */
static void bulk(void)
{
    static const size_t sizes[] = {32 << 10, (32 << 10) + 1, 1 << 20, (3 << 20) - 5};
    cl_mem a = buffer(0, 3 << 20, NULL);
    for (unsigned i = 0; i < 4; i++) {
        unsigned char *bytes = pattern(sizes[i], 3 + i), *back = malloc(sizes[i]);
        OK(clEnqueueWriteBuffer(queue, a, i % 2, i, sizes[i], bytes, 0, NULL, NULL));
        OK(clEnqueueReadBuffer(queue, a, CL_TRUE, i, sizes[i], back, 0, NULL, NULL));
        SAME(back, bytes, sizes[i]);
        free(bytes);
        free(back);
    }
    OK(clReleaseMemObject(a));
    settle();
}

static void rectangles(void)
{
    unsigned char *bytes = pattern(64 * 64 * 8, 9), *back = calloc(1, 64 * 64 * 8);
    cl_mem a = buffer(0, 64 * 64 * 8, NULL), b = buffer(0, 64 * 64 * 8, NULL);
    size_t zero[3] = {0, 0, 0}, at[3] = {5, 3, 1}, to[3] = {9, 11, 2};
    size_t box[3] = {7, 6, 4}, row[3] = {64, 4, 1};
    OK(clEnqueueWriteBufferRect(queue, a, CL_TRUE, at, to, box, 64, 64 * 64, 32, 32 * 32, bytes, 0, NULL, NULL));
    OK(clEnqueueReadBufferRect(queue, a, CL_TRUE, at, zero, box, 64, 64 * 64, 0, 0, back, 0, NULL, NULL));
    SAME(back, bytes + 2 * 1024 + 11 * 32 + 9, 7);
    OK(clEnqueueCopyBufferRect(queue, a, b, at, to, box, 64, 64 * 64, 48, 48 * 32, 0, NULL, NULL));
    /* Whole rows form a plain range. */
    OK(clEnqueueWriteBufferRect(queue, b, CL_FALSE, zero, zero, row, 0, 0, 0, 0, bytes, 0, NULL, NULL));
    OK(clEnqueueReadBufferRect(queue, b, CL_TRUE, zero, zero, row, 64, 0, 64, 0, back, 0, NULL, NULL));
    SAME(back, bytes, 256);
    OK(clReleaseMemObject(a));
    OK(clReleaseMemObject(b));
    settle();
}

static void maps(void)
{
    unsigned char *host = pattern(4096, 10);
    cl_mem a = buffer(CL_MEM_USE_HOST_PTR, 4096, host), b = buffer(0, 4096, NULL);
    unsigned char *p = MADE(clEnqueueMapBuffer(queue, a, CL_TRUE, CL_MAP_READ, 100, 200, 0, NULL, NULL, &code));
    SAME(p, host + 100, 200);
    /* A command that moves nothing exists only if the program asks for its event. */
    cl_event unmapped, mapped;
    OK(clEnqueueUnmapMemObject(queue, a, p, 0, NULL, &unmapped));
    OK(clReleaseEvent(unmapped));
    p = MADE(clEnqueueMapBuffer(queue, a, CL_TRUE, CL_MAP_WRITE, 300, 50, 0, NULL, NULL, &code));
    memset(p, 0x5A, 25);
    OK(clEnqueueUnmapMemObject(queue, a, p, 0, NULL, NULL));
    p = MADE(clEnqueueMapBuffer(queue, b, CL_TRUE, CL_MAP_WRITE_INVALIDATE_REGION, 4, 4000, 0, NULL, &mapped, &code));
    OK(clReleaseEvent(mapped));
    memset(p, 0xA5, 4000);
    OK(clEnqueueUnmapMemObject(queue, b, p, 0, NULL, NULL));
    unsigned char back[2];
    OK(clEnqueueReadBuffer(queue, b, CL_TRUE, 4002, 2, back, 0, NULL, NULL));
    SAME(back, "\xA5\xA5", 2);
    OK(clReleaseMemObject(a));
    OK(clReleaseMemObject(b));
    settle();
}

static void launches(void)
{
    cl_program program = program_of(KERNELS, "-DA=1 -w");
    cl_mem a = buffer(0, 4096, NULL), b = buffer(CL_MEM_READ_ONLY, 4096, NULL), null = NULL;
    cl_kernel every = kernel_of(program, "every"), shaped = kernel_of(program, "shaped");
    cl_kernel fill = kernel_of(program, "fake_fill_u32"), copy = kernel_of(program, "fake_copy");
    unsigned char *v = pattern(256, 11);
    static const size_t sizes[] = {1, 2, 8, 8, 4, 32, 8, 128, 4, 16};
    OK(clSetKernelArg(every, 0, sizeof a, &a));
    OK(clSetKernelArg(every, 1, sizeof b, &b));
    OK(clSetKernelArg(every, 2, 96, NULL));
    for (cl_uint i = 0; i < 10; i++)
        OK(clSetKernelArg(every, 3 + i, sizes[i], v + i));
    size_t global[3] = {24, 10, 6}, offset[3] = {100, 3, 7}, local[3] = {8, 5, 2};
    OK(clEnqueueNDRangeKernel(queue, every, 3, offset, global, local, 0, NULL, NULL));
    OK(clEnqueueNDRangeKernel(queue, every, 2, NULL, global, local, 0, NULL, NULL));
    OK(clSetKernelArg(every, 0, sizeof null, &null));
    OK(clSetKernelArg(every, 2, 512, NULL));
    OK(clSetKernelArg(every, 6, 8, v + 64));
    OK(clEnqueueNDRangeKernel(queue, every, 1, offset, global, NULL, 0, NULL, NULL));
    OK(clSetKernelArg(every, 0, sizeof b, &b));
    OK(clEnqueueTask(queue, every, 0, NULL, NULL));
    size_t four[2] = {8, 4}, group[2] = {4, 2};
    OK(clSetKernelArg(shaped, 0, sizeof a, &a));
    OK(clEnqueueNDRangeKernel(queue, shaped, 2, NULL, four, group, 0, NULL, NULL));
    cl_uint value = 0x01020304, back[2];
    size_t words = 1024, bytes = 4096;
    OK(clSetKernelArg(fill, 0, sizeof a, &a));
    OK(clSetKernelArg(fill, 1, 4, &value));
    OK(clEnqueueNDRangeKernel(queue, fill, 1, NULL, &words, NULL, 0, NULL, NULL));
    /* Arguments set after the launch must not reach the launch. */
    value = 9;
    OK(clSetKernelArg(fill, 1, 4, &value));
    OK(clSetKernelArg(copy, 0, sizeof b, &b));
    OK(clSetKernelArg(copy, 1, sizeof a, &a));
    OK(clEnqueueNDRangeKernel(queue, copy, 1, NULL, &bytes, NULL, 0, NULL, NULL));
    OK(clEnqueueReadBuffer(queue, b, CL_TRUE, 4088, 8, back, 0, NULL, NULL));
    value = 0x01020304;
    SAME(&back[0], &value, 4);
    SAME(&back[1], &value, 4);
    OK(clReleaseKernel(every));
    OK(clReleaseKernel(shaped));
    OK(clReleaseKernel(fill));
    OK(clReleaseKernel(copy));
    OK(clReleaseProgram(program));
    OK(clReleaseMemObject(a));
    OK(clReleaseMemObject(b));
    settle();
}

static void programs(void)
{
    const char *pieces[] = {"kernel void one(int a) {}\n", "kernel void two(global int *b) {} // rest"};
    size_t lengths[] = {0, 33};
    cl_program split = MADE(clCreateProgramWithSource(context, 2, pieces, lengths, &code));
    OK(clBuildProgram(split, 0, NULL, "-cl-mad-enable -DNAME=\"a b\"", NULL, NULL));
    size_t size;
    OK(clGetProgramInfo(split, CL_PROGRAM_BINARY_SIZES, sizeof size, &size, NULL));
    unsigned char *binary = malloc(size);
    OK(clGetProgramInfo(split, CL_PROGRAM_BINARIES, sizeof binary, &binary, NULL));
    cl_int status;
    cl_program loaded = MADE(clCreateProgramWithBinary(context, 1, &device, &size,
                                                       (const unsigned char **)&binary, &status, &code));
    OK(clBuildProgram(loaded, 1, &device, NULL, NULL, NULL));
    cl_kernel kernels[2];
    cl_uint number;
    OK(clCreateKernelsInProgram(loaded, 2, kernels, &number));
    const char *text = "#include \"x/y.h\"\nkernel void three() {}\n", *header_text = "kernel void inner() {}\n";
    const char *name = "x/y.h", *other_text = "kernel void four(float a) {}\n";
    cl_program header = MADE(clCreateProgramWithSource(context, 1, &header_text, NULL, &code));
    cl_program parts[2];
    parts[0] = MADE(clCreateProgramWithSource(context, 1, &text, NULL, &code));
    parts[1] = MADE(clCreateProgramWithSource(context, 1, &other_text, NULL, &code));
    OK(clCompileProgram(parts[0], 1, &device, "-DPART", 1, &header, &name, NULL, NULL));
    OK(clCompileProgram(parts[1], 0, NULL, NULL, 0, NULL, NULL, NULL, NULL));
    cl_program linked = MADE(clLinkProgram(context, 1, &device, "-cl-fast-relaxed-math", 2, parts, NULL, NULL, &code));
    cl_kernel inner = kernel_of(linked, "inner"), four = kernel_of(linked, "four");
    cl_program built_in = MADE(clCreateProgramWithBuiltInKernels(context, 1, &device, "fake_copy;fake_fill_u32", &code));
    size_t one = 1;
    float value = 1.5f;
    OK(clSetKernelArg(four, 0, sizeof value, &value));
    OK(clEnqueueNDRangeKernel(queue, four, 1, NULL, &one, NULL, 0, NULL, NULL));
    OK(clEnqueueNDRangeKernel(queue, inner, 1, NULL, &one, NULL, 0, NULL, NULL));
    OK(clReleaseKernel(kernels[0]));
    OK(clReleaseKernel(kernels[1]));
    OK(clReleaseKernel(inner));
    OK(clReleaseKernel(four));
    OK(clReleaseProgram(split));
    OK(clReleaseProgram(loaded));
    OK(clReleaseProgram(header));
    OK(clReleaseProgram(parts[0]));
    OK(clReleaseProgram(parts[1]));
    OK(clReleaseProgram(linked));
    OK(clReleaseProgram(built_in));
    settle();
}

/* Every command waits behind a kernel that takes long, so that no wait ends before it begins. */
static void waits(void)
{
    cl_program program = program_of(KERNELS, NULL);
    cl_kernel slow = kernel_of(program, "slow");
    cl_command_queue free =
        MADE(clCreateCommandQueue(context, device, CL_QUEUE_OUT_OF_ORDER_EXEC_MODE_ENABLE, &code));
    cl_mem a = buffer(0, 4096, NULL);
    cl_uint values[4] = {1, 2, 3, 4}, back[4];
    cl_event first, second, third, fourth, list[3];
    size_t one = 1;
    OK(clEnqueueNDRangeKernel(queue, slow, 1, NULL, &one, NULL, 0, NULL, &first));
    OK(clEnqueueMarkerWithWaitList(queue, 1, &first, &second));
    OK(clEnqueueWriteBuffer(free, a, CL_FALSE, 0, 16, values, 1, &second, &third));
    list[0] = first;
    list[1] = third;
    OK(clEnqueueFillBuffer(free, a, values, 16, 16, 64, 2, list, &fourth));
    OK(clEnqueueBarrierWithWaitList(free, 1, &fourth, NULL));
    OK(clEnqueueCopyBuffer(free, a, a, 16, 2048, 64, 0, NULL, NULL));
    OK(clEnqueueBarrierWithWaitList(free, 0, NULL, NULL));
    OK(clEnqueueMarker(free, &list[2]));
    OK(clEnqueueWaitForEvents(queue, 1, &list[2]));
    OK(clEnqueueBarrier(queue));
    OK(clEnqueueReadBuffer(queue, a, CL_TRUE, 2048, 16, back, 1, &list[2], NULL));
    SAME(back, values, 16);
    OK(clReleaseEvent(first));
    OK(clReleaseEvent(second));
    OK(clReleaseEvent(third));
    OK(clReleaseEvent(fourth));
    OK(clReleaseEvent(list[2]));
    OK(clFinish(free));
    OK(clReleaseCommandQueue(free));
    OK(clReleaseMemObject(a));
    OK(clReleaseKernel(slow));
    OK(clReleaseProgram(program));
    settle();
}

/* Commands behind an unset user event, and objects released meanwhile. */
static void gates(void)
{
    cl_program program = program_of(KERNELS, NULL);
    cl_kernel add = kernel_of(program, "fake_add_u32");
    cl_uint start[4] = {5, 6, 7, 8}, value = 10, back[4];
    cl_mem a = buffer(CL_MEM_COPY_HOST_PTR, 16, start);
    cl_event gate = MADE(clCreateUserEvent(context, &code));
    size_t four = 4;
    OK(clSetKernelArg(add, 0, sizeof a, &a));
    OK(clSetKernelArg(add, 1, sizeof value, &value));
    OK(clEnqueueNDRangeKernel(queue, add, 1, NULL, &four, NULL, 1, &gate, NULL));
    value = 100;
    OK(clSetKernelArg(add, 1, sizeof value, &value));
    OK(clEnqueueNDRangeKernel(queue, add, 1, NULL, &four, NULL, 0, NULL, NULL));
    OK(clEnqueueReadBuffer(queue, a, CL_FALSE, 0, 16, back, 0, NULL, NULL));
    OK(clReleaseKernel(add));
    OK(clReleaseProgram(program));
    OK(clReleaseMemObject(a));
    OK(clFlush(queue));
    OK(clSetUserEventStatus(gate, CL_COMPLETE));
    OK(clReleaseEvent(gate));
    settle();
    cl_uint want[4] = {115, 116, 117, 118};
    SAME(back, want, 16);
}

static void queues(void)
{
    cl_queue_properties properties[] = {CL_QUEUE_PROPERTIES, CL_QUEUE_PROFILING_ENABLE, 0};
    cl_command_queue made[4];
    made[0] = MADE(clCreateCommandQueue(context, device, 0, &code));
    made[1] = MADE(clCreateCommandQueue(context, device, CL_QUEUE_PROFILING_ENABLE, &code));
    made[2] = MADE(clCreateCommandQueue(
        context, device, CL_QUEUE_PROFILING_ENABLE | CL_QUEUE_OUT_OF_ORDER_EXEC_MODE_ENABLE, &code));
    made[3] = MADE(clCreateCommandQueueWithProperties(context, device, properties, &code));
    cl_mem a = buffer(0, 64, NULL);
    for (int i = 0; i < 4; i++) {
        cl_event event;
        OK(clEnqueueFillBuffer(made[i], a, &i, 4, 4 * (size_t)i, 4, 0, NULL, &event));
        OK(clWaitForEvents(1, &event));
        OK(clReleaseEvent(event));
        OK(clFinish(made[i]));
    }
    int back[4], want[4] = {0, 1, 2, 3};
    OK(clEnqueueReadBuffer(made[3], a, CL_TRUE, 0, 16, back, 0, NULL, NULL));
    SAME(back, want, 16);
    for (int i = 0; i < 4; i++)
        OK(clReleaseCommandQueue(made[i]));
    OK(clReleaseMemObject(a));
    settle();
}

static void hold(void)
{
    const char *file = getenv("CALLLOG_HOLD");
    struct timespec pause = {0, 1000000};
    for (int i = 0; file && access(file, F_OK) == 0 && i < 60000; i++)
        nanosleep(&pause, NULL);
}

int main(int argc, char **argv)
{
    static const struct { const char *name; void (*run)(void); } SECTIONS[] = {
        {"buffers", buffers}, {"transfers", transfers}, {"bulk", bulk}, {"rectangles", rectangles},
        {"maps", maps}, {"launches", launches}, {"programs", programs}, {"waits", waits},
        {"gates", gates}, {"queues", queues},
    };
    OK(clGetPlatformIDs(1, &platform, NULL));
    OK(clGetDeviceIDs(platform, CL_DEVICE_TYPE_ALL, 1, &device, NULL));
    context = MADE(clCreateContext(NULL, 1, &device, NULL, NULL, &code));
    queue = MADE(clCreateCommandQueue(context, device, 0, &code));
    for (size_t i = 0; i < sizeof SECTIONS / sizeof *SECTIONS; i++)
        if (argc > 1 && strcmp(argv[1], SECTIONS[i].name) == 0) {
            SECTIONS[i].run();
            hold();
            return 0;
        }
    printf("usage: calllog SECTION\n");
    return 2;
}
