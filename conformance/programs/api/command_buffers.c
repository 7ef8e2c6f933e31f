/*
 * Command buffers, their mutable launches, and the suggested local size. If a device names the extension,
 * it must do as the specification says. Otherwise each call must return the specified code. This file
 * defines the types, because Debian's headers have older versions of the extensions. The cases need exactly
 * version 0.9.8 of command buffers and 0.9.5 of mutable dispatch.
 */
#define CL_TARGET_OPENCL_VERSION 300
#include "../cltest.h"

#include <CL/cl_ext.h>

enum { COUNT = 256, SIZE = COUNT * 4 };

static const char *const SOURCE =
    "kernel void add(global int *x, int value) { x[get_global_id(0)] += value; }\n";

typedef cl_ulong property;
typedef cl_uint point;
typedef void *handle;

typedef struct {
    cl_uint index;
    size_t size;
    const void *value;
} changed_arg;

typedef struct {
    handle command;
    cl_uint num_args, num_svm_args, num_exec_infos, work_dim;
    const changed_arg *args, *svm_args;
    const void *exec_infos;
    const size_t *offset, *global, *local;
} change;

static handle (*create)(cl_uint, const cl_command_queue *, const property *, cl_int *);
static cl_int (*release)(handle), (*finalize)(handle);
static cl_int (*enqueue)(cl_uint, cl_command_queue *, handle, cl_uint, const cl_event *, cl_event *);
static cl_int (*fill)(handle, cl_command_queue, const property *, cl_mem, const void *, size_t, size_t,
                      size_t, cl_uint, const point *, point *, handle *);
static cl_int (*record)(handle, cl_command_queue, const property *, cl_kernel, cl_uint, const size_t *,
                        const size_t *, const size_t *, cl_uint, const point *, point *, handle *);
static cl_int (*get_info)(handle, cl_uint, size_t, void *, size_t *);
static cl_int (*update)(handle, cl_uint, const cl_uint *, const void **);
static cl_int (*command_info)(handle, cl_uint, size_t, void *, size_t *);

static void *function(const char *name)
{
    void *found = clGetExtensionFunctionAddressForPlatform(platform, name);
    if (!found)
        skip("the platform lacks a function of the extension");
    return found;
}

/* Fails the case unless the device has this version of the extension. Skips the case if the
   device reports no versions. */
static void needs(const char *name, unsigned patch)
{
    size_t size = 0;
    if (clGetDeviceInfo(device, CL_DEVICE_EXTENSIONS_WITH_VERSION, 0, NULL, &size) != CL_SUCCESS)
        skip("the device tells no versions of its extensions");
    cl_name_version *all = malloc(size);
    OK(clGetDeviceInfo(device, CL_DEVICE_EXTENSIONS_WITH_VERSION, size, all, NULL));
    const cl_version wanted = CL_MAKE_VERSION(0, 9, patch);
    int found = 0;
    for (size_t i = 0; i < size / sizeof *all; ++i)
        found |= strcmp(all[i].name, name) == 0 && all[i].version == wanted;
    free(all);
    if (!found) {
        printf("FAILED: the device lacks %s 0.9.%u\n", name, patch);
        exit(EXIT_FAILURE);
    }
}

static void open_functions(void)
{
    *(void **)&create = function("clCreateCommandBufferKHR");
    *(void **)&release = function("clReleaseCommandBufferKHR");
    *(void **)&finalize = function("clFinalizeCommandBufferKHR");
    *(void **)&enqueue = function("clEnqueueCommandBufferKHR");
    *(void **)&fill = function("clCommandFillBufferKHR");
    *(void **)&record = function("clCommandNDRangeKernelKHR");
    *(void **)&get_info = function("clGetCommandBufferInfoKHR");
    *(void **)&update = function("clUpdateMutableCommandsKHR");
    *(void **)&command_info = function("clGetMutableCommandInfoKHR");
}

static cl_kernel adding(cl_program program, cl_mem buffer, cl_int value)
{
    cl_kernel kernel = clCreateKernel(program, "add", &err);
    OK(err);
    OK(clSetKernelArg(kernel, 0, sizeof buffer, &buffer));
    OK(clSetKernelArg(kernel, 1, sizeof value, &value));
    return kernel;
}

/* Whether the numbers before `until` are all `first`, and the others all `rest`. */
static int holds(cl_mem buffer, int first, size_t until, int rest)
{
    int numbers[COUNT], right = 1;
    OK(clEnqueueReadBuffer(queue, buffer, CL_TRUE, 0, SIZE, numbers, 0, NULL, NULL));
    for (size_t i = 0; i < COUNT; ++i)
        right &= numbers[i] == (i < until ? first : rest);
    return right;
}

SPEC_CASE(command_buffers_replay_what_was_recorded)
{
    needs("cl_khr_command_buffer", 8);
    open_functions();
    const size_t global = COUNT;
    const cl_int zero = 0;
    cl_mem buffer = buffer_of(SIZE);
    cl_program program = program_from(SOURCE, "");
    cl_kernel kernel = adding(program, buffer, 3);
    handle recorded = create(1, &queue, NULL, &err);
    EXPECT(err, CL_SUCCESS);
    OK(fill(recorded, NULL, NULL, buffer, &zero, 4, 0, SIZE, 0, NULL, NULL, NULL));
    OK(record(recorded, NULL, NULL, kernel, 1, NULL, &global, NULL, 0, NULL, NULL, NULL));
    EXPECT(enqueue(0, NULL, recorded, 0, NULL, NULL), CL_INVALID_OPERATION);
    OK(finalize(recorded));
    EXPECT(finalize(recorded), CL_INVALID_OPERATION);
    EXPECT(record(recorded, NULL, NULL, kernel, 1, NULL, &global, NULL, 0, NULL, NULL, NULL),
           CL_INVALID_OPERATION);
    /* A recorded launch keeps its arguments when the kernel's arguments change later. */
    const cl_int other = 50;
    OK(clSetKernelArg(kernel, 1, sizeof other, &other));
    for (int i = 0; i < 3; ++i)
        OK(enqueue(0, NULL, recorded, 0, NULL, NULL));
    CHECK(holds(buffer, 3, COUNT, 3));
    cl_uint queues = 0;
    OK(get_info(recorded, 0x1295, sizeof queues, &queues, NULL));
    CHECK(queues == 1);
    OK(release(recorded));
    OK(clReleaseKernel(kernel));
    OK(clReleaseProgram(program));
    OK(clReleaseMemObject(buffer));
    fact("a command buffer does the same again");
}

SPEC_CASE(launches_of_command_buffers_change)
{
    needs("cl_khr_command_buffer_mutable_dispatch", 5);
    open_functions();
    const property mutable[] = {0x1293, 1 << 1, 0};
    const size_t global = COUNT, half = COUNT / 2;
    const cl_uint type = 0;
    cl_mem buffer = counting_buffer(COUNT, 0), other = buffer_of(SIZE);
    const cl_int zero = 0, ten = 10;
    OK(clEnqueueFillBuffer(queue, buffer, &zero, 4, 0, SIZE, 0, NULL, NULL));
    OK(clEnqueueFillBuffer(queue, other, &zero, 4, 0, SIZE, 0, NULL, NULL));
    cl_program program = program_from(SOURCE, "");
    cl_kernel kernel = adding(program, buffer, 1);
    handle recorded = create(1, &queue, mutable, &err), command = NULL;
    EXPECT(err, CL_SUCCESS);
    OK(record(recorded, NULL, NULL, kernel, 1, NULL, &global, NULL, 0, NULL, NULL, &command));
    const changed_arg args[] = {{0, sizeof other, &other}, {1, sizeof ten, &ten}};
    change both = {command, 2, 0, 0, 1, args, NULL, NULL, NULL, &half, NULL};
    const void *list[] = {&both};
    EXPECT(update(recorded, 1, &type, list), CL_INVALID_OPERATION);
    OK(finalize(recorded));
    OK(enqueue(0, NULL, recorded, 0, NULL, NULL));
    OK(update(recorded, 1, &type, list));
    OK(enqueue(0, NULL, recorded, 0, NULL, NULL));
    OK(enqueue(0, NULL, recorded, 0, NULL, NULL));
    CHECK(holds(buffer, 1, COUNT, 1));
    CHECK(holds(other, 20, COUNT / 2, 0));
    size_t now = 0;
    OK(command_info(command, 0x12A6, sizeof now, &now, NULL));
    CHECK(now == half);
    both.work_dim = 2;
    EXPECT(update(recorded, 1, &type, list), CL_INVALID_OPERATION);
    both.work_dim = 1;
    both.args = NULL;
    EXPECT(update(recorded, 1, &type, list), CL_INVALID_VALUE);
    both.command = recorded;
    CHECK(update(recorded, 1, &type, list) == -1141);
    OK(release(recorded));
    CHECK(command_info(command, 0x12A6, sizeof now, &now, NULL) == -1141);
    OK(clReleaseKernel(kernel));
    OK(clReleaseProgram(program));
    OK(clReleaseMemObject(buffer));
    OK(clReleaseMemObject(other));
    fact("launches change, and only those of later enqueues");
}

SPEC_CASE(suggested_local_size_is_a_launchs_own_or_refused)
{
    cl_int (*suggest)(cl_command_queue, cl_kernel, cl_uint, const size_t *, const size_t *, size_t *);
    char extensions[8192] = "";
    OK(clGetDeviceInfo(device, CL_DEVICE_EXTENSIONS, sizeof extensions, extensions, NULL));
    *(void **)&suggest = clGetExtensionFunctionAddressForPlatform(
        platform, "clGetKernelSuggestedLocalWorkSizeKHR");
    const size_t global = COUNT;
    size_t local = 0;
    cl_mem buffer = buffer_of(SIZE);
    cl_program program = program_from(SOURCE, "");
    cl_kernel kernel = adding(program, buffer, 1);
    if (strstr(extensions, "cl_khr_suggested_local_work_size")) {
        CHECK(suggest != NULL);
        OK(suggest(queue, kernel, 1, NULL, &global, &local));
        CHECK(local > 0 && COUNT % local == 0);
        EXPECT(suggest(queue, kernel, 0, NULL, &global, &local), CL_INVALID_WORK_DIMENSION);
        EXPECT(suggest(queue, kernel, 1, NULL, NULL, &local), CL_INVALID_GLOBAL_WORK_SIZE);
        EXPECT(suggest(queue, kernel, 1, NULL, &global, NULL), CL_INVALID_VALUE);
    } else if (suggest) {
        CHECK(suggest(queue, kernel, 1, NULL, &global, &local) == CL_INVALID_OPERATION);
        CHECK(suggest(NULL, kernel, 1, NULL, &global, &local) == CL_INVALID_COMMAND_QUEUE);
        CHECK(suggest(queue, NULL, 1, NULL, &global, &local) == CL_INVALID_KERNEL);
    }
    OK(clReleaseKernel(kernel));
    OK(clReleaseProgram(program));
    OK(clReleaseMemObject(buffer));
    fact("a suggested local size is told where the extension is, and else refused");
}
