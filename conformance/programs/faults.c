/*
 * An ordinary OpenCL program that stops at a known place in its work, for tests that break something there:
 *
 *     faults enumerate        asks for devices
 *     faults steady           computes, and goes on with the result for each line on stdin, until its end
 *     faults transfer         writes 64 MiB after 64 MiB, for ever
 *     faults build            builds a program
 *     faults kernel           launches a kernel that never ends, and waits for it
 *     faults divide           launches a kernel that divides by zero
 *     faults outside          launches a kernel that writes far outside its buffer
 *     faults flood            enqueues 100,000 launches behind a user event, sets it, waits
 *     faults fork             lets a child of fork use what its parent made
 *     faults exit             ends by exit() with all of the above under way
 *     faults threads          makes a context, a queue and a buffer in each of 1,000 threads
 *
 * The program prints a line for each place that it reaches. The first failed call prints "saw CALL -> CODE"
 * and ends the program with exit code 3. The contexts' callback prints "told TEXT".
 */
#define _POSIX_C_SOURCE 200809L
#define CL_TARGET_OPENCL_VERSION 120
#define CL_USE_DEPRECATED_OPENCL_1_2_APIS

#include <CL/cl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { COUNT = 1024, LAUNCHES = 100000, THREADS = 1000, SAW_AN_ERROR = 3 };

static const size_t LARGE = (size_t)64 << 20;

static cl_device_id device;
static cl_context context;
static cl_command_queue queue;

/* The first kernel's name and parameters belong to a kernel that the fake driver really runs. */
static const char *const SOURCE =
    "kernel void fake_add_u32(global uint *target, uint value) { target[get_global_id(0)] += value; }\n"
    "kernel void forever(global volatile uint *x) { while (x[0] != 0xFFFFFFFFu) x[1] += 1; }\n"
    "kernel void divide(global int *x, int zero) { x[0] = 1 / zero; x[0] += x[0] % zero; }\n"
    "kernel void outside(global int *x, long far) { x[far] = 1; }\n";

static const char *name_of(cl_int status)
{
#define NAME(code) case code: return #code;
    switch (status) {
    NAME(CL_SUCCESS) NAME(CL_DEVICE_NOT_FOUND) NAME(CL_DEVICE_NOT_AVAILABLE)
    NAME(CL_OUT_OF_RESOURCES) NAME(CL_OUT_OF_HOST_MEMORY)
    NAME(CL_EXEC_STATUS_ERROR_FOR_EVENTS_IN_WAIT_LIST) NAME(CL_BUILD_PROGRAM_FAILURE)
    NAME(CL_INVALID_VALUE) NAME(CL_INVALID_CONTEXT) NAME(CL_INVALID_OPERATION)
    NAME(CL_INVALID_PLATFORM) NAME(CL_INVALID_DEVICE) NAME(CL_INVALID_COMMAND_QUEUE)
    NAME(CL_MEM_OBJECT_ALLOCATION_FAILURE)
    case -1001: return "CL_PLATFORM_NOT_FOUND_KHR";
    default: break;
    }
#undef NAME
    static char text[32];
    snprintf(text, sizeof text, "code %d", (int)status);
    return text;
}

static pthread_mutex_t hearing = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t heard = PTHREAD_COND_INITIALIZER;
static int times_told;

static void CL_CALLBACK hear(const char *text, const void *info, size_t size, void *data)
{
    (void)info, (void)size, (void)data;
    pthread_mutex_lock(&hearing);
    printf("told %s\n", text);
    ++times_told;
    pthread_cond_signal(&heard);
    pthread_mutex_unlock(&hearing);
}

/* Waits until the context's callback reports a lost device. The report may come after the call's return. */
static void until_told(void)
{
    struct timespec end;
    int late = 0;
    clock_gettime(CLOCK_REALTIME, &end);
    end.tv_sec += 5;
    pthread_mutex_lock(&hearing);
    while (times_told == 0 && late == 0)
        late = pthread_cond_timedwait(&heard, &hearing, &end);
    pthread_mutex_unlock(&hearing);
}

static void check(const char *call, cl_int status)
{
    if (status == CL_SUCCESS)
        return;
    printf("saw %.*s -> %s\n", (int)strcspn(call, "("), call, name_of(status));
    if (context != NULL && status == CL_DEVICE_NOT_AVAILABLE)
        until_told();
    exit(SAW_AN_ERROR);
}

#define OK(call) check(#call, (call))

static void open_device(void)
{
    cl_platform_id platform;
    OK(clGetPlatformIDs(1, &platform, NULL));
    OK(clGetDeviceIDs(platform, CL_DEVICE_TYPE_ALL, 1, &device, NULL));
}

static void open_all(void)
{
    cl_int status;
    open_device();
    context = clCreateContext(NULL, 1, &device, hear, NULL, &status);
    check("clCreateContext", status);
    queue = clCreateCommandQueue(context, device, 0, &status);
    check("clCreateCommandQueue", status);
}

static cl_mem buffer_of(size_t size)
{
    cl_int status;
    cl_mem buffer = clCreateBuffer(context, CL_MEM_READ_WRITE, size, NULL, &status);
    check("clCreateBuffer", status);
    return buffer;
}

static cl_program built(const char *source)
{
    cl_int status;
    cl_program program = clCreateProgramWithSource(context, 1, &source, NULL, &status);
    check("clCreateProgramWithSource", status);
    /* With optimisation, a compiler may change the behaviour of the faulty kernels. */
    OK(clBuildProgram(program, 1, &device, "-cl-opt-disable", NULL, NULL));
    return program;
}

static cl_kernel kernel_of(cl_program program, const char *name)
{
    cl_int status;
    cl_kernel kernel = clCreateKernel(program, name, &status);
    check("clCreateKernel", status);
    return kernel;
}

/* Waits until the device's driver has taken all enqueued commands. A build's answer comes after them. */
static void until_taken(void)
{
    OK(clFlush(queue));
    OK(clReleaseProgram(built("kernel void nothing(void) {}\n")));
}

static void launch(cl_kernel kernel, size_t items, cl_uint gates, const cl_event *gate)
{
    OK(clEnqueueNDRangeKernel(queue, kernel, 1, NULL, &items, NULL, gates, gate, NULL));
}

static void enumerate(void)
{
    printf("asking\n");
    open_device();
    printf("devices\n");
}

static void steady(void)
{
    static cl_uint data[COUNT];
    char line[16];
    cl_uint by = 7;
    open_all();
    cl_mem buffer = buffer_of(sizeof data);
    cl_kernel kernel = kernel_of(built(SOURCE), "fake_add_u32");
    OK(clSetKernelArg(kernel, 0, sizeof buffer, &buffer));
    OK(clSetKernelArg(kernel, 1, sizeof by, &by));
    for (cl_uint i = 0; i < COUNT; ++i)
        data[i] = i;
    OK(clEnqueueWriteBuffer(queue, buffer, CL_TRUE, 0, sizeof data, data, 0, NULL, NULL));
    for (cl_uint round = 0; round == 0 || fgets(line, sizeof line, stdin) != NULL; ++round) {
        launch(kernel, COUNT, 0, NULL);
        OK(clEnqueueReadBuffer(queue, buffer, CL_TRUE, 0, sizeof data, data, 0, NULL, NULL));
        for (cl_uint i = 0; i < COUNT; ++i)
            if (data[i] != i + by * (round + 1)) {
                printf("wrong data in round %u\n", round);
                exit(EXIT_FAILURE);
            }
        printf("round %u\n", round);
    }
    printf("done\n");
}

static void transfer(void)
{
    char *bytes = calloc(1, LARGE);
    open_all();
    cl_mem buffer = buffer_of(LARGE);
    for (unsigned round = 1;; ++round) {
        OK(clEnqueueWriteBuffer(queue, buffer, CL_TRUE, 0, LARGE, bytes, 0, NULL, NULL));
        printf("wrote %u\n", round);
    }
}

static void build(void)
{
    open_all();
    printf("building\n");
    built(SOURCE);
    printf("built\n");
}

static void run_forever(void)
{
    cl_uint zeros[2] = {0, 0};
    cl_mem buffer = buffer_of(sizeof zeros);
    cl_kernel kernel = kernel_of(built(SOURCE), "forever");
    OK(clEnqueueWriteBuffer(queue, buffer, CL_TRUE, 0, sizeof zeros, zeros, 0, NULL, NULL));
    OK(clSetKernelArg(kernel, 0, sizeof buffer, &buffer));
    launch(kernel, 1, 0, NULL);
    until_taken();
}

static void in_kernel(void)
{
    open_all();
    run_forever();
    printf("in kernel\n");
    OK(clFinish(queue));
    printf("finished\n");
}

/* Launches a kernel that takes a buffer and a number. */
static void faulty(const char *name, const void *number, size_t size)
{
    open_all();
    cl_mem buffer = buffer_of(16);
    cl_kernel kernel = kernel_of(built(SOURCE), name);
    OK(clSetKernelArg(kernel, 0, sizeof buffer, &buffer));
    OK(clSetKernelArg(kernel, 1, size, number));
    printf("ready\n");
    getchar();
    launch(kernel, 1, 0, NULL);
    OK(clFinish(queue));
    printf("finished\n");
}

static void flood(void)
{
    cl_int status;
    cl_uint value = 0, by = 1;
    open_all();
    cl_mem buffer = buffer_of(sizeof value);
    cl_kernel kernel = kernel_of(built(SOURCE), "fake_add_u32");
    cl_event gate = clCreateUserEvent(context, &status);
    check("clCreateUserEvent", status);
    OK(clEnqueueWriteBuffer(queue, buffer, CL_TRUE, 0, sizeof value, &value, 0, NULL, NULL));
    OK(clSetKernelArg(kernel, 0, sizeof buffer, &buffer));
    OK(clSetKernelArg(kernel, 1, sizeof by, &by));
    printf("flooding\n");
    for (int i = 0; i < LAUNCHES; ++i)
        launch(kernel, 1, 1, &gate);
    printf("enqueued\n");
    OK(clSetUserEventStatus(gate, CL_COMPLETE));
    OK(clEnqueueReadBuffer(queue, buffer, CL_TRUE, 0, sizeof value, &value, 0, NULL, NULL));
    printf("ran %u\n", value);
}

/* Uses the parent's context and queue in the child. Every call must fail soon. */
static int use_in_child(cl_mem buffer)
{
    cl_int status;
    cl_uint value = 0;
    cl_context another;
    status = clEnqueueReadBuffer(queue, buffer, CL_TRUE, 0, sizeof value, &value, 0, NULL, NULL);
    printf("child saw clEnqueueReadBuffer -> %s\n", name_of(status));
    status = clFinish(queue);
    printf("child saw clFinish -> %s\n", name_of(status));
    another = clCreateContext(NULL, 1, &device, NULL, NULL, &status);
    printf("child saw clCreateContext -> %s\n", name_of(status));
    fflush(stdout);
    return another == NULL && status != CL_SUCCESS ? EXIT_SUCCESS : EXIT_FAILURE;
}

static void with_fork(void)
{
    cl_uint value = 5;
    int ended = -1;
    open_all();
    cl_mem buffer = buffer_of(sizeof value);
    OK(clEnqueueWriteBuffer(queue, buffer, CL_TRUE, 0, sizeof value, &value, 0, NULL, NULL));
    printf("forking\n");
    fflush(stdout);
    const pid_t child = fork();
    if (child == 0)
        exit(use_in_child(buffer));
    if (waitpid(child, &ended, 0) != child || ended != 0) {
        printf("the child ended with %d\n", ended);
        exit(EXIT_FAILURE);
    }
    value = 0;
    OK(clEnqueueReadBuffer(queue, buffer, CL_TRUE, 0, sizeof value, &value, 0, NULL, NULL));
    printf("parent read %u\n", value);
}

/* Leaves behind a launch that never ends and a transfer behind it. Also leaves a user event that nobody
   sets, and a launch behind that event. */
static void leave(void)
{
    cl_int status;
    cl_uint by = 1;
    char *bytes = calloc(1, LARGE);
    open_all();
    run_forever();
    cl_mem buffer = buffer_of(LARGE);
    cl_kernel kernel = kernel_of(built(SOURCE), "fake_add_u32");
    cl_event gate = clCreateUserEvent(context, &status);
    check("clCreateUserEvent", status);
    OK(clEnqueueWriteBuffer(queue, buffer, CL_FALSE, 0, LARGE, bytes, 0, NULL, NULL));
    OK(clSetKernelArg(kernel, 0, sizeof buffer, &buffer));
    OK(clSetKernelArg(kernel, 1, sizeof by, &by));
    launch(kernel, COUNT, 1, &gate);
    printf("leaving\n");
    exit(EXIT_SUCCESS);
}

static pthread_barrier_t all_are_there;

static void *one_of_many(void *index)
{
    cl_int status;
    cl_uint value = (cl_uint)(size_t)index, seen = 0;
    cl_context own = clCreateContext(NULL, 1, &device, NULL, NULL, &status);
    check("clCreateContext", status);
    cl_command_queue commands = clCreateCommandQueue(own, device, 0, &status);
    check("clCreateCommandQueue", status);
    cl_mem buffer = clCreateBuffer(own, CL_MEM_READ_WRITE, sizeof value, NULL, &status);
    check("clCreateBuffer", status);
    pthread_barrier_wait(&all_are_there);
    OK(clEnqueueWriteBuffer(commands, buffer, CL_FALSE, 0, sizeof value, &value, 0, NULL, NULL));
    OK(clEnqueueReadBuffer(commands, buffer, CL_TRUE, 0, sizeof seen, &seen, 0, NULL, NULL));
    OK(clReleaseMemObject(buffer));
    OK(clReleaseCommandQueue(commands));
    OK(clReleaseContext(own));
    return seen == value ? index : NULL;
}

static void threads(void)
{
    static pthread_t all[THREADS];
    pthread_attr_t small;
    size_t right = 0;
    open_device();
    pthread_attr_init(&small);
    pthread_attr_setstacksize(&small, (size_t)256 << 10);
    pthread_barrier_init(&all_are_there, NULL, THREADS);
    for (size_t i = 0; i < THREADS; ++i)
        if (pthread_create(&all[i], &small, one_of_many, (void *)(i + 1)) != 0) {
            printf("no thread %zu\n", i);
            exit(EXIT_FAILURE);
        }
    for (size_t i = 0; i < THREADS; ++i) {
        void *index = NULL;
        pthread_join(all[i], &index);
        right += index == (void *)(i + 1);
    }
    printf("%zu threads right\n", right);
}

int main(int argc, char **argv)
{
    const cl_int zero = 0;
    const cl_long far = (cl_long)1 << 44;
    const char *mode = argc == 2 ? argv[1] : "";
    setvbuf(stdout, NULL, _IOLBF, 0);
    if (strcmp(mode, "enumerate") == 0)
        enumerate();
    else if (strcmp(mode, "steady") == 0)
        steady();
    else if (strcmp(mode, "transfer") == 0)
        transfer();
    else if (strcmp(mode, "build") == 0)
        build();
    else if (strcmp(mode, "kernel") == 0)
        in_kernel();
    else if (strcmp(mode, "divide") == 0)
        faulty("divide", &zero, sizeof zero);
    else if (strcmp(mode, "outside") == 0)
        faulty("outside", &far, sizeof far);
    else if (strcmp(mode, "flood") == 0)
        flood();
    else if (strcmp(mode, "fork") == 0)
        with_fork();
    else if (strcmp(mode, "exit") == 0)
        leave();
    else if (strcmp(mode, "threads") == 0)
        threads();
    else {
        fprintf(stderr, "usage: %s MODE; the source tells the modes\n", argv[0]);
        return 2;
    }
    return EXIT_SUCCESS;
}
