/*
 * 32 threads that share one context. Each form in this list shares more than the form before:
 *
 *     threads queues    a queue, a buffer and a kernel each
 *     threads queue     one queue for all, a buffer and a kernel each
 *     threads maps      one queue and one buffer, each maps and writes its own part
 *     threads objects   all kinds of objects made, retained and released throughout
 *
 * The program prints the output of every correct driver, and exits with 0 if all data is right.
 */
#define _POSIX_C_SOURCE 200809L
#define CL_TARGET_OPENCL_VERSION 120
#define CL_USE_DEPRECATED_OPENCL_1_2_APIS

#include <CL/cl.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { THREADS = 32, ROUNDS = 60, COUNT = 2048 };

static cl_device_id device;
static cl_context context;
static cl_command_queue shared_queue;
static cl_mem shared_buffer;
static cl_program program;

static const char *const SOURCE =
    "kernel void advance(global uint *x, uint a, uint b)\n"
    "{ size_t i = get_global_id(0); x[i] = x[i] * a + b; }\n";

#define OK(call)                                                                           \
    do {                                                                                   \
        const cl_int ok_status = (call);                                                   \
        if (ok_status != CL_SUCCESS) {                                                     \
            fprintf(stderr, "line %d: %s -> %d\n", __LINE__, #call, (int)ok_status);       \
            exit(EXIT_FAILURE);                                                            \
        }                                                                                  \
    } while (0)

static void start(void)
{
    cl_platform_id platform;
    cl_int status;
    OK(clGetPlatformIDs(1, &platform, NULL));
    OK(clGetDeviceIDs(platform, CL_DEVICE_TYPE_ALL, 1, &device, NULL));
    context = clCreateContext(NULL, 1, &device, NULL, NULL, &status);
    OK(status);
    shared_queue = clCreateCommandQueue(context, device, 0, &status);
    OK(status);
    program = clCreateProgramWithSource(context, 1, (const char **)&SOURCE, NULL, &status);
    OK(status);
    OK(clBuildProgram(program, 1, &device, "", NULL, NULL));
    shared_buffer =
        clCreateBuffer(context, CL_MEM_READ_WRITE, THREADS * COUNT * 4, NULL, &status);
    OK(status);
}

static cl_mem new_buffer(void)
{
    cl_int status;
    cl_mem buffer = clCreateBuffer(context, CL_MEM_READ_WRITE, COUNT * 4, NULL, &status);
    OK(status);
    return buffer;
}

static cl_kernel new_kernel(void)
{
    cl_int status;
    cl_kernel kernel = clCreateKernel(program, "advance", &status);
    OK(status);
    return kernel;
}

/* Writes, steps ROUNDS times and reads back. The host computes the expected values alongside. */
static intptr_t write_step_read(cl_command_queue queue, cl_uint number)
{
    cl_uint *values = malloc(COUNT * 4), *back = calloc(COUNT, 4);
    const size_t count = COUNT;
    cl_event last = NULL;
    cl_mem buffer = new_buffer();
    cl_kernel kernel = new_kernel();
    for (cl_uint i = 0; i < COUNT; ++i)
        values[i] = number * 100003u + i;
    OK(clEnqueueWriteBuffer(queue, buffer, CL_FALSE, 0, COUNT * 4, values, 0, NULL, &last));
    OK(clWaitForEvents(1, &last));
    OK(clReleaseEvent(last));
    OK(clSetKernelArg(kernel, 0, sizeof buffer, &buffer));
    for (cl_uint round = 0; round < ROUNDS; ++round) {
        const cl_uint a = 2 * round + 3, b = number + round;
        OK(clSetKernelArg(kernel, 1, sizeof a, &a));
        OK(clSetKernelArg(kernel, 2, sizeof b, &b));
        OK(clEnqueueNDRangeKernel(queue, kernel, 1, NULL, &count, NULL, 0, NULL,
                                  round % 7 == 0 ? &last : NULL));
        if (round % 7 == 0)
            OK(clReleaseEvent(last));
        for (cl_uint i = 0; i < COUNT; ++i)
            values[i] = values[i] * a + b;
    }
    OK(clReleaseKernel(kernel)); /* while its launches wait */
    OK(clEnqueueReadBuffer(queue, buffer, CL_TRUE, 0, COUNT * 4, back, 0, NULL, NULL));
    OK(clReleaseMemObject(buffer));
    const intptr_t right = memcmp(values, back, COUNT * 4) == 0;
    free(values);
    free(back);
    return right;
}

static void *own_queue(void *number)
{
    cl_int status;
    cl_command_queue queue = clCreateCommandQueue(context, device, 0, &status);
    OK(status);
    const intptr_t right = write_step_read(queue, (cl_uint)(uintptr_t)number);
    OK(clReleaseCommandQueue(queue));
    return (void *)right;
}

static void *one_queue(void *number)
{
    return (void *)write_step_read(shared_queue, (cl_uint)(uintptr_t)number);
}

static void *own_part(void *number)
{
    const cl_uint me = (cl_uint)(uintptr_t)number;
    const size_t offset = (size_t)me * COUNT * 4;
    intptr_t right = 1;
    for (cl_uint round = 0; round < ROUNDS / 2; ++round) {
        cl_int status;
        cl_event unmapped;
        cl_uint *part = clEnqueueMapBuffer(shared_queue, shared_buffer, CL_TRUE, CL_MAP_WRITE,
                                           offset, COUNT * 4, 0, NULL, NULL, &status);
        OK(status);
        for (cl_uint i = 0; i < COUNT; ++i)
            part[i] = me * 1000000u + round * 5000u + i;
        OK(clEnqueueUnmapMemObject(shared_queue, shared_buffer, part, 0, NULL, &unmapped));
        OK(clWaitForEvents(1, &unmapped));
        OK(clReleaseEvent(unmapped));
        part = clEnqueueMapBuffer(shared_queue, shared_buffer, CL_TRUE, CL_MAP_READ, offset,
                                  COUNT * 4, 0, NULL, NULL, &status);
        OK(status);
        for (cl_uint i = 0; i < COUNT; ++i)
            right &= part[i] == me * 1000000u + round * 5000u + i;
        OK(clEnqueueUnmapMemObject(shared_queue, shared_buffer, part, 0, NULL, NULL));
    }
    return (void *)right;
}

static void *objects(void *number)
{
    const cl_uint me = (cl_uint)(uintptr_t)number;
    intptr_t right = 1;
    for (cl_uint round = 0; round < ROUNDS; ++round) {
        cl_int status;
        const cl_uint value = me * 1000 + round;
        cl_uint back = 0;
        cl_mem buffer = new_buffer();
        cl_kernel kernel = new_kernel();
        cl_event gate = clCreateUserEvent(context, &status), read;
        OK(status);
        cl_command_queue queue = clCreateCommandQueue(context, device, 0, &status);
        OK(status);
        OK(clRetainMemObject(buffer));
        OK(clEnqueueFillBuffer(queue, buffer, &value, 4, 0, COUNT * 4, 1, &gate, NULL));
        OK(clEnqueueReadBuffer(queue, buffer, CL_FALSE, 40, 4, &back, 0, NULL, &read));
        OK(clReleaseMemObject(buffer));
        OK(clFlush(queue));
        OK(clSetUserEventStatus(gate, CL_COMPLETE));
        OK(clWaitForEvents(1, &read));
        OK(clReleaseEvent(gate));
        OK(clReleaseKernel(kernel));
        OK(clReleaseMemObject(buffer));
        OK(clReleaseCommandQueue(queue));
        OK(clReleaseEvent(read));
        right &= back == value;
    }
    return (void *)right;
}

int main(int argc, char **argv)
{
    static const struct {
        const char *name;
        void *(*body)(void *);
    } modes[] = {{"queues", own_queue}, {"queue", one_queue}, {"maps", own_part},
                 {"objects", objects}};
    void *(*body)(void *) = NULL;
    for (size_t i = 0; argc == 2 && i < sizeof modes / sizeof *modes; ++i)
        if (strcmp(argv[1], modes[i].name) == 0)
            body = modes[i].body;
    if (body == NULL) {
        fprintf(stderr, "usage: threads queues | queue | maps | objects\n");
        return 2;
    }

    pthread_t threads[THREADS];
    int right = 0;
    start();
    for (uintptr_t i = 0; i < THREADS; ++i)
        if (pthread_create(&threads[i], NULL, body, (void *)i) != 0) {
            fprintf(stderr, "cannot start thread %u\n", (unsigned)i);
            return EXIT_FAILURE;
        }
    for (int i = 0; i < THREADS; ++i) {
        void *result = NULL;
        pthread_join(threads[i], &result);
        right += result != NULL;
    }
    OK(clFinish(shared_queue));
    OK(clReleaseProgram(program));
    OK(clReleaseMemObject(shared_buffer));
    OK(clReleaseCommandQueue(shared_queue));
    OK(clReleaseContext(context));
    printf("%d of %d threads found their data right\n", right, THREADS);
    return right == THREADS ? EXIT_SUCCESS : EXIT_FAILURE;
}
