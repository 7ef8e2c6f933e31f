/*
 * A small framework for conformance cases. Cases are ordinary OpenCL programs in C99 whose
 * printed text is the result.
 *
 * A case is a function. The program runs the case that its argument names, and prints facts that hold on
 * every correct driver. Such facts are the name of an error code, an answer that is the same wherever the
 * device is, or a check of data. The program never prints values that vary between drivers: an address, a
 * time, one of several legal codes. The runner compares the text of the native run with that of the run
 * through Causeway. So the program knows neither.
 *
 *     PROGRAM --list    one case per line; "spec" after a name: see SPEC_CASE
 *     PROGRAM NAME [N]  runs the case once, or N times; exit code 0: every expectation held; 1: one did not;
 *                       77: skipped, the last line says why
 */
#ifndef CLTEST_H
#define CLTEST_H

#ifndef _POSIX_C_SOURCE
#define _POSIX_C_SOURCE 200809L
#endif
#ifndef CL_TARGET_OPENCL_VERSION
#define CL_TARGET_OPENCL_VERSION 120
#endif
#define CL_USE_DEPRECATED_OPENCL_1_0_APIS
#define CL_USE_DEPRECATED_OPENCL_1_1_APIS
#define CL_USE_DEPRECATED_OPENCL_1_2_APIS
#define CL_USE_DEPRECATED_OPENCL_2_0_APIS
#define CL_USE_DEPRECATED_OPENCL_2_1_APIS
#define CL_USE_DEPRECATED_OPENCL_2_2_APIS

#include <CL/cl.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define HELPER static __attribute__((unused))

/* ---- objects that every case may use; the framework opens and closes them ---- */

HELPER cl_platform_id platform;
HELPER cl_device_id device;
HELPER cl_context context;
HELPER cl_command_queue queue; /* in order, no profiling */
HELPER cl_int err;             /* for the errcode_ret of create calls */

static int cltest_failures;

/* ---- names ---- */

HELPER const char *status_name(cl_int status)
{
#define NAME(code) case code: return #code;
    switch (status) {
    NAME(CL_SUCCESS) NAME(CL_DEVICE_NOT_FOUND) NAME(CL_DEVICE_NOT_AVAILABLE)
    NAME(CL_COMPILER_NOT_AVAILABLE) NAME(CL_MEM_OBJECT_ALLOCATION_FAILURE)
    NAME(CL_OUT_OF_RESOURCES) NAME(CL_OUT_OF_HOST_MEMORY)
    NAME(CL_PROFILING_INFO_NOT_AVAILABLE) NAME(CL_MEM_COPY_OVERLAP)
    NAME(CL_IMAGE_FORMAT_MISMATCH) NAME(CL_IMAGE_FORMAT_NOT_SUPPORTED)
    NAME(CL_BUILD_PROGRAM_FAILURE) NAME(CL_MAP_FAILURE)
    NAME(CL_MISALIGNED_SUB_BUFFER_OFFSET)
    NAME(CL_EXEC_STATUS_ERROR_FOR_EVENTS_IN_WAIT_LIST)
    NAME(CL_COMPILE_PROGRAM_FAILURE) NAME(CL_LINKER_NOT_AVAILABLE)
    NAME(CL_LINK_PROGRAM_FAILURE) NAME(CL_DEVICE_PARTITION_FAILED)
    NAME(CL_KERNEL_ARG_INFO_NOT_AVAILABLE)
    NAME(CL_INVALID_VALUE) NAME(CL_INVALID_DEVICE_TYPE) NAME(CL_INVALID_PLATFORM)
    NAME(CL_INVALID_DEVICE) NAME(CL_INVALID_CONTEXT) NAME(CL_INVALID_QUEUE_PROPERTIES)
    NAME(CL_INVALID_COMMAND_QUEUE) NAME(CL_INVALID_HOST_PTR) NAME(CL_INVALID_MEM_OBJECT)
    NAME(CL_INVALID_IMAGE_FORMAT_DESCRIPTOR) NAME(CL_INVALID_IMAGE_SIZE)
    NAME(CL_INVALID_SAMPLER) NAME(CL_INVALID_BINARY) NAME(CL_INVALID_BUILD_OPTIONS)
    NAME(CL_INVALID_PROGRAM) NAME(CL_INVALID_PROGRAM_EXECUTABLE)
    NAME(CL_INVALID_KERNEL_NAME) NAME(CL_INVALID_KERNEL_DEFINITION) NAME(CL_INVALID_KERNEL)
    NAME(CL_INVALID_ARG_INDEX) NAME(CL_INVALID_ARG_VALUE) NAME(CL_INVALID_ARG_SIZE)
    NAME(CL_INVALID_KERNEL_ARGS) NAME(CL_INVALID_WORK_DIMENSION)
    NAME(CL_INVALID_WORK_GROUP_SIZE) NAME(CL_INVALID_WORK_ITEM_SIZE)
    NAME(CL_INVALID_GLOBAL_OFFSET) NAME(CL_INVALID_EVENT_WAIT_LIST) NAME(CL_INVALID_EVENT)
    NAME(CL_INVALID_OPERATION) NAME(CL_INVALID_GL_OBJECT) NAME(CL_INVALID_BUFFER_SIZE)
    NAME(CL_INVALID_MIP_LEVEL) NAME(CL_INVALID_GLOBAL_WORK_SIZE) NAME(CL_INVALID_PROPERTY)
    NAME(CL_INVALID_IMAGE_DESCRIPTOR) NAME(CL_INVALID_COMPILER_OPTIONS)
    NAME(CL_INVALID_LINKER_OPTIONS) NAME(CL_INVALID_DEVICE_PARTITION_COUNT)
    case -69: return "CL_INVALID_PIPE_SIZE";
    case -70: return "CL_INVALID_DEVICE_QUEUE";
    case -71: return "CL_INVALID_SPEC_ID";
    case -72: return "CL_MAX_SIZE_RESTRICTION_EXCEEDED";
    case -1001: return "CL_PLATFORM_NOT_FOUND_KHR";
    default: break;
    }
#undef NAME
    static __thread char text[32];
    snprintf(text, sizeof text, "code %d", (int)status);
    return text;
}

/* ---- facts and expectations ---- */

HELPER void fact(const char *format, ...) __attribute__((format(printf, 1, 2)));
HELPER void fact(const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    vprintf(format, arguments);
    va_end(arguments);
    putchar('\n');
}

HELPER void fail(const char *format, ...) __attribute__((format(printf, 1, 2)));
HELPER void fail(const char *format, ...)
{
    va_list arguments;
    ++cltest_failures;
    printf("FAILED: ");
    va_start(arguments, format);
    vprintf(format, arguments);
    va_end(arguments);
    putchar('\n');
}

/* Ends the case as skipped, because the device lacks the feature under test. */
HELPER void skip(const char *reason)
{
    printf("skipped: %s\n", reason);
    exit(77);
}

HELPER void cltest_ok(const char *call, cl_int status, int line)
{
    if (status == CL_SUCCESS)
        return;
    printf("FAILED: line %d: %s -> %s\n", line, call, status_name(status));
    exit(EXIT_FAILURE);
}

HELPER void cltest_expect(const char *call, cl_int got, const cl_int *codes, size_t count,
                          const char *names, int line)
{
    for (size_t i = 0; i < count; ++i)
        if (got == codes[i]) {
            fact("%s -> %s%s", call, count > 1 ? "one of " : "", names);
            return;
        }
    fail("line %d: %s -> %s, expected %s", line, call, status_name(got), names);
}

HELPER void cltest_refused(const char *call, const void *made, const cl_int *codes,
                           size_t count, const char *names, int line)
{
    if (made != NULL)
        fail("line %d: %s made an object, code %s", line, call, status_name(err));
    cltest_expect(call, err, codes, count, names, line);
}

HELPER void cltest_check(const char *condition, int holds, int line)
{
    if (!holds)
        fail("line %d: %s", line, condition);
}

HELPER void cltest_equal(const char *expression, long long got, long long wanted, int line)
{
    if (got == wanted)
        fact("%s = %lld", expression, wanted);
    else
        fail("line %d: %s is %lld, expected %lld", line, expression, got, wanted);
}

/* The call must succeed, or else the case ends. Prints nothing. */
#define OK(call) cltest_ok(#call, (call), __LINE__)

/* The call must return this code, or one of several legal codes. */
#define EXPECT(call, ...)                                                                  \
    do {                                                                                   \
        const cl_int cltest_codes[] = {__VA_ARGS__};                                       \
        cltest_expect(#call, (call), cltest_codes, sizeof cltest_codes / sizeof(cl_int),   \
                      #__VA_ARGS__, __LINE__);                                             \
    } while (0)

/* The create call must return NULL and write this code to &err. */
#define REFUSED(create, ...)                                                               \
    do {                                                                                   \
        const cl_int cltest_codes[] = {__VA_ARGS__};                                       \
        err = 12345;                                                                       \
        const void *cltest_made = (const void *)(create);                                  \
        cltest_refused(#create, cltest_made, cltest_codes,                                 \
                       sizeof cltest_codes / sizeof(cl_int), #__VA_ARGS__, __LINE__);      \
    } while (0)

/* The condition must hold. Prints nothing when it holds. */
#define CHECK(condition) cltest_check(#condition, (condition) ? 1 : 0, __LINE__)

/* The expression must be this integer. */
#define EQUAL(expression, wanted)                                                          \
    cltest_equal(#expression, (long long)(expression), (long long)(wanted), __LINE__)

/*
 * Checks the rules of every info query. A query of the size alone succeeds. A query with exactly that size
 * or more returns the value. With one byte less, the query returns CL_INVALID_VALUE.
 */
#define INFO_RULES(get, object, name)                                                      \
    do {                                                                                   \
        size_t cltest_size = 0, cltest_again = 0;                                          \
        char cltest_value[65536];                                                          \
        cltest_ok(#get " " #name " size", get(object, name, 0, NULL, &cltest_size),        \
                  __LINE__);                                                               \
        CHECK(cltest_size < sizeof cltest_value);                                          \
        cltest_ok(#get " " #name,                                                          \
                  get(object, name, cltest_size, cltest_value, &cltest_again), __LINE__);  \
        CHECK(cltest_size == cltest_again);                                                \
        cltest_ok(#get " " #name " into more space",                                       \
                  get(object, name, sizeof cltest_value, cltest_value, NULL), __LINE__);   \
        if (cltest_size > 0) {                                                             \
            const cl_int cltest_small =                                                    \
                get(object, name, cltest_size - 1, cltest_value, NULL);                    \
            if (cltest_small != CL_INVALID_VALUE)                                          \
                fail("%s %s with one byte too few -> %s", #get, #name,                     \
                     status_name(cltest_small));                                           \
        }                                                                                  \
        fact("%s %s follows the rules of info queries", #get, #name);                      \
    } while (0)

#define UNKNOWN_INFO ((cl_uint)0x7777)

/* ---- waiting for callbacks: bounded, without polling ---- */

struct latch {
    pthread_mutex_t mutex;
    pthread_cond_t changed;
    int count;
};

#define LATCH {PTHREAD_MUTEX_INITIALIZER, PTHREAD_COND_INITIALIZER, 0}

HELPER void latch_add(struct latch *latch)
{
    pthread_mutex_lock(&latch->mutex);
    ++latch->count;
    pthread_cond_broadcast(&latch->changed);
    pthread_mutex_unlock(&latch->mutex);
}

HELPER int latch_count(struct latch *latch)
{
    pthread_mutex_lock(&latch->mutex);
    const int count = latch->count;
    pthread_mutex_unlock(&latch->mutex);
    return count;
}

/* Waits until the count is reached. The case fails after 10 seconds. */
HELPER void latch_wait(struct latch *latch, int count)
{
    struct timespec end;
    clock_gettime(CLOCK_REALTIME, &end);
    end.tv_sec += 10;
    pthread_mutex_lock(&latch->mutex);
    while (latch->count < count)
        if (pthread_cond_timedwait(&latch->changed, &latch->mutex, &end) != 0)
            break;
    const int reached = latch->count;
    pthread_mutex_unlock(&latch->mutex);
    if (reached < count)
        fail("waited 10 s for %d callbacks, got %d", count, reached);
}

/* ---- common objects ---- */

/* One source for most cases, so that drivers with a compiler cache build it once. */
HELPER const char *const STANDARD_SOURCE =
    "kernel void write_id(global uint *out) { out[get_global_id(0)] = get_global_id(0); }\n"
    "kernel void add(global int *x, int value) { x[get_global_id(0)] += value; }\n"
    "kernel void copy(global const int *in, global int *out)\n"
    "{ size_t i = get_global_id(0); out[i] = in[i]; }\n"
    "kernel void spin(global uint *x, uint turns)\n"
    "{\n"
    "    uint v = x[get_global_id(0)];\n"
    "    for (uint i = 0; i < turns; ++i) v = v * 1664525u + 1013904223u;\n"
    "    x[get_global_id(0)] = v;\n"
    "}\n"
    "kernel void is_null(global int *pointer, global int *answer)\n"
    "{ *answer = pointer == 0 ? 1 : 2; }\n"
    "kernel void reverse(global const int *in, global int *out, local int *scratch)\n"
    "{\n"
    "    size_t l = get_local_id(0), n = get_local_size(0);\n"
    "    scratch[l] = in[get_global_id(0)];\n"
    "    barrier(CLK_LOCAL_MEM_FENCE);\n"
    "    out[get_global_id(0)] = scratch[n - 1 - l];\n"
    "}\n"
    "kernel void places(global uint *out)\n"
    "{\n"
    "    size_t i = get_global_id(0) - get_global_offset(0);\n"
    "    size_t j = get_global_id(1) - get_global_offset(1);\n"
    "    size_t k = get_global_id(2) - get_global_offset(2);\n"
    "    size_t at = (k * get_global_size(1) + j) * get_global_size(0) + i;\n"
    "    out[at] = get_global_id(0) + 100 * get_global_id(1) + 10000 * get_global_id(2);\n"
    "}\n";

/* Returns what the kernel spin makes of one value. */
HELPER cl_uint spun(cl_uint value, cl_uint turns)
{
    for (cl_uint i = 0; i < turns; ++i)
        value = value * 1664525u + 1013904223u;
    return value;
}

enum { SPIN_LONG = 20000000 }; /* some tens of milliseconds on a CPU */

HELPER cl_program program_from(const char *source, const char *options)
{
    cl_program program = clCreateProgramWithSource(context, 1, &source, NULL, &err);
    OK(err);
    const cl_int status = clBuildProgram(program, 1, &device, options, NULL, NULL);
    if (status != CL_SUCCESS) {
        static char log[16384];
        clGetProgramBuildInfo(program, device, CL_PROGRAM_BUILD_LOG, sizeof log, log, NULL);
        fprintf(stderr, "%s\n", log);
    }
    OK(status);
    return program;
}

/* Makes a kernel of the standard source. Only the kernel holds its program. */
HELPER cl_kernel standard_kernel(const char *name)
{
    cl_program program = program_from(STANDARD_SOURCE, "");
    cl_kernel kernel = clCreateKernel(program, name, &err);
    OK(err);
    OK(clReleaseProgram(program));
    return kernel;
}

HELPER cl_mem buffer_of(size_t size)
{
    cl_mem buffer = clCreateBuffer(context, CL_MEM_READ_WRITE, size, NULL, &err);
    OK(err);
    return buffer;
}

/* Makes a buffer of count ints: start, start + 1, … */
HELPER cl_mem counting_buffer(size_t count, int start)
{
    int *values = malloc(count * sizeof *values);
    for (size_t i = 0; i < count; ++i)
        values[i] = start + (int)i;
    cl_mem buffer = clCreateBuffer(context, CL_MEM_READ_WRITE | CL_MEM_COPY_HOST_PTR,
                                   count * sizeof *values, values, &err);
    OK(err);
    free(values);
    return buffer;
}

/* Whether the buffer's first count ints are start, start + step, … */
HELPER int holds_counting(cl_mem buffer, size_t count, int start, int step)
{
    int *values = malloc(count * sizeof *values), right = 1;
    OK(clEnqueueReadBuffer(queue, buffer, CL_TRUE, 0, count * sizeof *values, values, 0, NULL,
                           NULL));
    for (size_t i = 0; i < count && right; ++i)
        if (values[i] != start + step * (int)i) {
            printf("value %zu is %d, expected %d\n", i, values[i], start + step * (int)i);
            right = 0;
        }
    free(values);
    return right;
}

HELPER void launch(cl_command_queue on, cl_kernel kernel, size_t global)
{
    OK(clEnqueueNDRangeKernel(on, kernel, 1, NULL, &global, NULL, 0, NULL, NULL));
}

/* Returns the value that the built kernel "answer" writes. */
HELPER int answer_of(cl_program program)
{
    int value = 0;
    cl_mem buffer = buffer_of(4);
    cl_kernel kernel = clCreateKernel(program, "answer", &err);
    OK(err);
    OK(clSetKernelArg(kernel, 0, sizeof buffer, &buffer));
    launch(queue, kernel, 1);
    OK(clEnqueueReadBuffer(queue, buffer, CL_TRUE, 0, 4, &value, 0, NULL, NULL));
    OK(clReleaseKernel(kernel));
    OK(clReleaseMemObject(buffer));
    return value;
}

HELPER void set_add(cl_kernel kernel, cl_mem buffer, cl_int value)
{
    OK(clSetKernelArg(kernel, 0, sizeof buffer, &buffer));
    OK(clSetKernelArg(kernel, 1, sizeof value, &value));
}

HELPER cl_int status_of(cl_event event)
{
    cl_int status = 12345;
    OK(clGetEventInfo(event, CL_EVENT_COMMAND_EXECUTION_STATUS, sizeof status, &status, NULL));
    return status;
}

HELPER cl_context another_context(void)
{
    cl_context other = clCreateContext(NULL, 1, &device, NULL, NULL, &err);
    OK(err);
    return other;
}

HELPER cl_ulong device_number(cl_device_info name)
{
    cl_ulong value = 0;
    OK(clGetDeviceInfo(device, name, sizeof value, &value, NULL));
    return value;
}

HELPER int has_images(void)
{
    return device_number(CL_DEVICE_IMAGE_SUPPORT) != CL_FALSE;
}

HELPER void needs_images(void)
{
    if (!has_images())
        skip("the device has no images");
}

HELPER cl_command_queue queue_with(cl_command_queue_properties properties)
{
    cl_command_queue made = clCreateCommandQueue(context, device, properties, &err);
    OK(err);
    return made;
}

/* Returns an out-of-order queue, or skips the case. */
HELPER cl_command_queue out_of_order_queue(void)
{
    if (!(device_number(CL_DEVICE_QUEUE_PROPERTIES) & CL_QUEUE_OUT_OF_ORDER_EXEC_MODE_ENABLE))
        skip("the device has no out-of-order queues");
    return queue_with(CL_QUEUE_OUT_OF_ORDER_EXEC_MODE_ENABLE);
}

#ifdef CL_VERSION_2_0
HELPER void needs_svm(void)
{
    cl_ulong capabilities = 0;
    cl_uint devices = 0;
    OK(clGetContextInfo(context, CL_CONTEXT_NUM_DEVICES, sizeof devices, &devices, NULL));
    if (devices > 1)
        skip("the context may be one of several nodes");
    if (clGetDeviceInfo(device, CL_DEVICE_SVM_CAPABILITIES, sizeof capabilities, &capabilities,
                        NULL) != CL_SUCCESS ||
        (capabilities & CL_DEVICE_SVM_COARSE_GRAIN_BUFFER) == 0)
        skip("the device has no coarse-grain shared virtual memory");
}
#endif

/* ---- cases ---- */

struct cltest_case {
    const char *name;
    void (*body)(void);
    int opens; /* platform to queue are opened before the body */
    int spec;  /* see SPEC_CASE */
};

enum { CLTEST_MOST = 100 };
static struct cltest_case cltest_cases[CLTEST_MOST];
static int cltest_count;

static void cltest_add(struct cltest_case one)
{
    if (cltest_count == CLTEST_MOST)
        abort();
    cltest_cases[cltest_count++] = one;
}

#define CLTEST_CASE(name, opens, spec)                                                     \
    static void case_##name(void);                                                         \
    __attribute__((constructor)) static void add_##name(void)                              \
    {                                                                                      \
        cltest_add((struct cltest_case){#name, case_##name, opens, spec});                 \
    }                                                                                      \
    static void case_##name(void)

/* A case with an open platform, device, context and queue. */
#define CASE(name) CLTEST_CASE(name, 1, 0)
/* A case that opens all objects itself. */
#define BARE_CASE(name) CLTEST_CASE(name, 0, 0)
/*
 * A case whose expectations follow the specification although a tested native driver does otherwise. A
 * failure of the native run is then only noted.
 */
#define SPEC_CASE(name) CLTEST_CASE(name, 1, 1)

HELPER void open_platform(void)
{
    cl_platform_id platforms[16];
    cl_uint count = 0;
    OK(clGetPlatformIDs(16, platforms, &count));
    for (cl_uint i = 0; i < count && i < 16; ++i)
        if (clGetDeviceIDs(platforms[i], CL_DEVICE_TYPE_ALL, 1, &device, NULL) == CL_SUCCESS) {
            platform = platforms[i];
            return;
        }
    printf("FAILED: no platform has a device\n");
    exit(EXIT_FAILURE);
}

static void cltest_open(void)
{
    open_platform();
    context = clCreateContext(NULL, 1, &device, NULL, NULL, &err);
    OK(err);
    queue = queue_with(0);
}

static void cltest_close(void)
{
    OK(clReleaseCommandQueue(queue));
    OK(clReleaseContext(context));
}

int main(int argc, char **argv)
{
    setvbuf(stdout, NULL, _IOLBF, 0);
    if (argc == 2 && strcmp(argv[1], "--list") == 0) {
        for (int i = 0; i < cltest_count; ++i)
            printf("%s%s\n", cltest_cases[i].name, cltest_cases[i].spec ? " spec" : "");
        return EXIT_SUCCESS;
    }
    const int named = argc == 2 || argc == 3;
    const int times = argc == 3 ? atoi(argv[2]) : 1;
    for (int i = 0; named && i < cltest_count; ++i) {
        if (strcmp(argv[1], cltest_cases[i].name) != 0)
            continue;
        for (int round = 0; round < times; ++round) {
            if (cltest_cases[i].opens)
                cltest_open();
            cltest_cases[i].body();
            if (cltest_cases[i].opens)
                cltest_close();
        }
        return cltest_failures == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
    }
    fprintf(stderr, "usage: %s --list | CASE [TIMES]\n", argv[0]);
    return 2;
}

#endif
