/*
 * An ordinary OpenCL program that creates one context of several devices and moves data between them. The
 * program stops at known places, for tests that count bytes or break something there:
 *
 *     hosts pingpong MIB STEPS   one buffer, changed on the first and the second device in turn
 *     hosts const MIB DEVICES    a buffer that the host writes, read by a kernel on every device
 *     hosts halves MIB           two devices change halves of one buffer through sub-buffers
 *     hosts rects MIB            the host writes halves of rows through two devices; each is copied
 *     hosts lost MIB             what only the second device holds, and what others hold
 *
 * The program prints a line at each place, and continues when a line arrives on stdin. The first call that
 * fails unexpectedly prints "saw CALL -> CODE" and ends the program with exit code 3.
 */
#define _POSIX_C_SOURCE 200809L
#define CL_TARGET_OPENCL_VERSION 120
#define CL_USE_DEPRECATED_OPENCL_1_2_APIS

#include <CL/cl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MOST = 16, SAW_AN_ERROR = 3 };

static cl_device_id devices[MOST];
static cl_uint device_count;
static cl_context context;
static cl_command_queue queues[MOST];
static cl_kernel add, copy;

/* Names and parameters belong to kernels that the fake driver really runs. */
static const char *const SOURCE =
    "kernel void fake_add_u32(global uint *target, uint value) { target[get_global_id(0)] += value; }\n"
    "kernel void fake_copy(global uchar *target, global const uchar *source)\n"
    "{ target[get_global_id(0)] = source[get_global_id(0)]; }\n";

static void check(const char *call, cl_int status)
{
    if (status == CL_SUCCESS)
        return;
    printf("saw %s -> %d\n", call, (int)status);
    exit(SAW_AN_ERROR);
}

#define OK(call) check(#call, (call))

/* Prints a place, and waits for a line. */
static void at(const char *place)
{
    char line[64];
    printf("%s\n", place);
    if (fgets(line, sizeof line, stdin) == NULL)
        exit(EXIT_FAILURE);
}

static void open_all(void)
{
    cl_int status;
    cl_platform_id platform;
    OK(clGetPlatformIDs(1, &platform, NULL));
    OK(clGetDeviceIDs(platform, CL_DEVICE_TYPE_ALL, MOST, devices, &device_count));
    if (device_count > MOST)
        device_count = MOST;
    context = clCreateContext(NULL, device_count, devices, NULL, NULL, &status);
    check("clCreateContext", status);
    for (cl_uint i = 0; i < device_count; ++i) {
        queues[i] = clCreateCommandQueue(context, devices[i], 0, &status);
        check("clCreateCommandQueue", status);
    }
    cl_program program =
        clCreateProgramWithSource(context, 1, (const char **)&SOURCE, NULL, &status);
    check("clCreateProgramWithSource", status);
    OK(clBuildProgram(program, 0, NULL, "", NULL, NULL));
    add = clCreateKernel(program, "fake_add_u32", &status);
    check("clCreateKernel", status);
    copy = clCreateKernel(program, "fake_copy", &status);
    check("clCreateKernel", status);
}

static cl_mem buffer_of(size_t size)
{
    cl_int status;
    cl_mem buffer = clCreateBuffer(context, CL_MEM_READ_WRITE, size, NULL, &status);
    check("clCreateBuffer", status);
    return buffer;
}

static cl_mem part_of(cl_mem buffer, size_t origin, size_t size)
{
    cl_int status;
    const cl_buffer_region region = {origin, size};
    cl_mem part = clCreateSubBuffer(buffer, 0, CL_BUFFER_CREATE_TYPE_REGION, &region, &status);
    check("clCreateSubBuffer", status);
    return part;
}

static void fill(cl_uint device, cl_mem buffer, size_t size, cl_uint value)
{
    OK(clEnqueueFillBuffer(queues[device], buffer, &value, 4, 0, size, 0, NULL, NULL));
    OK(clFinish(queues[device]));
}

/* Adds 1 to the first and the last word, by a kernel that may touch the whole buffer. */
static cl_int add_one(cl_uint device, cl_mem buffer, size_t size)
{
    const cl_uint one = 1;
    const size_t items = 1, last = size / 4 - 1;
    OK(clSetKernelArg(add, 0, sizeof buffer, &buffer));
    OK(clSetKernelArg(add, 1, sizeof one, &one));
    OK(clEnqueueNDRangeKernel(queues[device], add, 1, NULL, &items, NULL, 0, NULL, NULL));
    OK(clEnqueueNDRangeKernel(queues[device], add, 1, &last, &items, NULL, 0, NULL, NULL));
    return clFinish(queues[device]);
}

static cl_uint word(cl_uint device, cl_mem buffer, size_t index)
{
    cl_uint value = 0;
    OK(clEnqueueReadBuffer(queues[device], buffer, CL_TRUE, 4 * index, 4, &value, 0, NULL, NULL));
    return value;
}

static void pingpong(size_t size, cl_uint steps)
{
    cl_mem buffer = buffer_of(size);
    fill(0, buffer, size, 7);
    at("filled");
    for (cl_uint step = 1; step <= steps; ++step) {
        OK(add_one(step % 2, buffer, size));
        printf("step %u\n", step);
    }
    at("stepped");
    printf("first %u, last %u\n", word(0, buffer, 0), word(1, buffer, size / 4 - 1));
}

static void constant(size_t size, cl_uint wanted)
{
    enum { PART = 4096 };
    cl_mem parts[MOST];
    const size_t items = PART;
    unsigned char *bytes = malloc(size), seen[PART];
    cl_uint right = 0;
    for (size_t i = 0; i < size; ++i)
        bytes[i] = (unsigned char)(i * 31 + i / 4093);
    cl_mem source = buffer_of(size);
    for (cl_uint i = 0; i < wanted && i < device_count; ++i)
        parts[i] = buffer_of(PART);
    at("opened");
    OK(clEnqueueWriteBuffer(queues[0], source, CL_TRUE, 0, size, bytes, 0, NULL, NULL));
    OK(clFinish(queues[0]));
    at("written");
    for (cl_uint i = 0; i < wanted && i < device_count; ++i) {
        const size_t first = 0;
        OK(clSetKernelArg(copy, 0, sizeof(cl_mem), &parts[i]));
        OK(clSetKernelArg(copy, 1, sizeof(cl_mem), &source));
        OK(clEnqueueNDRangeKernel(queues[i], copy, 1, &first, &items, NULL, 0, NULL, NULL));
        OK(clFlush(queues[i]));
    }
    for (cl_uint i = 0; i < wanted && i < device_count; ++i)
        OK(clFinish(queues[i]));
    at("read");
    for (cl_uint i = 0; i < wanted && i < device_count; ++i) {
        OK(clEnqueueReadBuffer(queues[i], parts[i], CL_TRUE, 0, PART, seen, 0, NULL, NULL));
        right += memcmp(seen, bytes, PART) == 0;
    }
    printf("%u devices right\n", right);
}

static void halves(size_t size)
{
    cl_mem buffer = buffer_of(size);
    const size_t half = size / 2;
    cl_mem parts[2] = {part_of(buffer, 0, half), part_of(buffer, half, half)};
    at("opened");
    fill(0, parts[0], half, 5);
    fill(1, parts[1], half, 6);
    for (int round = 0; round < 3; ++round)
        for (cl_uint i = 0; i < 2; ++i)
            OK(add_one(i, parts[i], half));
    at("halves");
    /* The first device needs the second device's data. */
    OK(add_one(0, buffer, size));
    at("whole");
    /* After the first device changes the whole buffer, a piece of the second device's half returns
       to the second device. */
    cl_mem piece = part_of(buffer, half, half / 4);
    OK(add_one(1, piece, half / 4));
    at("piece");
    printf("words %u %u %u\n", word(0, buffer, 0), word(0, buffer, half / 4),
           word(1, buffer, size / 4 - 1));
}

/* Rows of 64 KiB: the left halves through the first device, the right halves through the second. */
static void rects(size_t size)
{
    const size_t row = 65536, origin[3] = {0, 0, 0}, right[3] = {row / 2, 0, 0};
    const size_t region[3] = {row / 2, size / row, 1};
    unsigned char *bytes = malloc(size), *seen = calloc(1, size);
    for (size_t i = 0; i < size; ++i)
        bytes[i] = (unsigned char)(i * 7 + i / 4091);
    cl_mem buffer = buffer_of(size), left_copy = buffer_of(size), right_copy = buffer_of(size);
    at("opened");
    OK(clEnqueueWriteBufferRect(queues[0], buffer, CL_TRUE, origin, origin, region, row, 0, row, 0,
                                bytes, 0, NULL, NULL));
    OK(clEnqueueWriteBufferRect(queues[1], buffer, CL_TRUE, right, right, region, row, 0, row, 0,
                                bytes, 0, NULL, NULL));
    at("written");
    OK(clEnqueueCopyBufferRect(queues[0], buffer, left_copy, origin, origin, region, row, 0, row, 0,
                               0, NULL, NULL));
    OK(clEnqueueCopyBufferRect(queues[1], buffer, right_copy, right, right, region, row, 0, row, 0,
                               0, NULL, NULL));
    OK(clFinish(queues[0]));
    OK(clFinish(queues[1]));
    at("copied");
    OK(clEnqueueReadBuffer(queues[0], buffer, CL_TRUE, 0, size, seen, 0, NULL, NULL));
    printf("gathered %s\n", memcmp(seen, bytes, size) == 0 ? "right" : "wrong");
}

static void lost(size_t size)
{
    cl_mem only = buffer_of(size), shared = buffer_of(size), kept = buffer_of(size);
    cl_mem half = part_of(only, 0, size / 2);
    cl_uint value = 0;
    fill(0, only, size, 1);
    fill(0, shared, size, 2);
    fill(0, kept, size, 3);
    /* Only the second device holds the first half of `only`. Other devices hold everything else too. */
    OK(add_one(1, half, size / 2));
    OK(add_one(1, shared, size));
    OK(add_one(0, shared, size));
    at("placed");
    const cl_int gone = clEnqueueReadBuffer(queues[0], only, CL_TRUE, 0, 4, &value, 0, NULL, NULL);
    printf("of the lost half: %d\n", (int)gone);
    clFinish(queues[0]); /* may tell of it once more */
    printf("other half %u, shared %u, kept %u\n", word(0, only, size / 4 - 1), word(0, shared, 0),
           word(device_count - 1, kept, 0));
    OK(add_one(device_count - 1, kept, size));
    fill(0, only, size, 9);
    printf("after: kept %u, only %u\n", word(0, kept, 0), word(device_count - 1, only, 0));
}

int main(int argc, char **argv)
{
    const char *mode = argc > 2 ? argv[1] : "";
    const size_t size = argc > 2 ? (size_t)strtoul(argv[2], NULL, 10) << 20 : 0;
    const cl_uint number = argc > 3 ? (cl_uint)strtoul(argv[3], NULL, 10) : 0;
    setvbuf(stdout, NULL, _IOLBF, 0);
    open_all();
    if (strcmp(mode, "pingpong") == 0)
        pingpong(size, number);
    else if (strcmp(mode, "const") == 0)
        constant(size, number);
    else if (strcmp(mode, "halves") == 0)
        halves(size);
    else if (strcmp(mode, "rects") == 0)
        rects(size);
    else if (strcmp(mode, "lost") == 0)
        lost(size);
    else {
        fprintf(stderr, "usage: %s MODE MIB [NUMBER]; the source tells the modes\n", argv[0]);
        return 2;
    }
    printf("done\n");
    return EXIT_SUCCESS;
}
