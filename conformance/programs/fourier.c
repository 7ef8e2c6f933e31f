/*
 * Fourier transforms by clFFT, whose library is loaded at run time: a machine without it builds this program too.
 *
 *     fourier [--rounds N]
 *
 * Each round writes complex numbers, transforms them forwards, reads them, transforms them back and reads them again.
 * A line is printed for each round and shape: digests of both results. On one device, two runs print the same text.
 */
#define _POSIX_C_SOURCE 200809L
#define CL_TARGET_OPENCL_VERSION 120

#include <CL/cl.h>
#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define LIBRARY "libclFFT.so.2"

#define OK(call)                                                                           \
    do {                                                                                   \
        const int ok_status = (int)(call);                                                 \
        if (ok_status != 0) {                                                              \
            fprintf(stderr, "line %d: %s -> %d\n", __LINE__, #call, ok_status);            \
            exit(EXIT_FAILURE);                                                            \
        }                                                                                  \
    } while (0)

/* From clFFT.h, as ABI: enumerations are `int`, and statuses contain the codes of OpenCL. */
struct setup {
    cl_uint major, minor, patch;
    cl_ulong debug_flags;
};
typedef size_t plan;
enum { FORWARD = -1, BACKWARD = 1 };

static int (*fft_setup)(const struct setup *);
static int (*fft_create_plan)(plan *, cl_context, int dimensions, const size_t *lengths);
static int (*fft_bake_plan)(plan, cl_uint, cl_command_queue *, void (*)(plan, void *), void *);
static int (*fft_enqueue)(plan, int direction, cl_uint, cl_command_queue *, cl_uint, const cl_event *,
                          cl_event *, cl_mem *input, cl_mem *output, cl_mem temporary);
static int (*fft_destroy_plan)(plan *);
static int (*fft_teardown)(void);

struct shape {
    const char *name;
    int dimensions;
    size_t lengths[3];
    plan plan;
};

/* Large transfers, and small ones with factors other than 2. */
static struct shape shapes[] = {
    {"1024 x 256", 2, {1024, 256, 1}, 0},
    {"243 x 125", 2, {243, 125, 1}, 0},
};
enum { SHAPES = sizeof shapes / sizeof *shapes };

static cl_command_queue queue;

static void load(void)
{
    void *library = dlopen(LIBRARY, RTLD_NOW);
    if (library == NULL) {
        fprintf(stderr, "%s; its package is libclfft2\n", dlerror());
        exit(EXIT_FAILURE);
    }
    const struct {
        void *place;
        const char *name;
    } functions[] = {
        {&fft_setup, "clfftSetup"},
        {&fft_create_plan, "clfftCreateDefaultPlan"},
        {&fft_bake_plan, "clfftBakePlan"},
        {&fft_enqueue, "clfftEnqueueTransform"},
        {&fft_destroy_plan, "clfftDestroyPlan"},
        {&fft_teardown, "clfftTeardown"},
    };
    for (size_t i = 0; i < sizeof functions / sizeof *functions; ++i) {
        void *found = dlsym(library, functions[i].name);
        if (found == NULL) {
            fprintf(stderr, "%s\n", dlerror());
            exit(EXIT_FAILURE);
        }
        memcpy(functions[i].place, &found, sizeof found);
    }
}

static size_t count_of(const struct shape *shape)
{
    return shape->lengths[0] * shape->lengths[1] * shape->lengths[2];
}

/* FNV-1a. */
static unsigned long long digest(const float *values, size_t count)
{
    const unsigned char *bytes = (const unsigned char *)values;
    uint64_t sum = 0xcbf29ce484222325u;
    for (size_t i = 0; i < count * sizeof *values; ++i)
        sum = (sum ^ bytes[i]) * 0x100000001b3u;
    return sum;
}

static void transform(struct shape *shape, int direction, cl_mem memory)
{
    OK(fft_enqueue(shape->plan, direction, 1, &queue, 0, NULL, NULL, &memory, NULL, NULL));
}

static void run(struct shape *shape, int round, cl_mem memory, float *values)
{
    const size_t count = 2 * count_of(shape), size = count * sizeof *values;
    for (size_t i = 0; i < count; ++i)
        values[i] = (float)(((i * 2654435761u + (size_t)round * 40503u) >> 8) % 1000) / 1000.0f - 0.5f;
    OK(clEnqueueWriteBuffer(queue, memory, CL_FALSE, 0, size, values, 0, NULL, NULL));
    transform(shape, FORWARD, memory);
    OK(clEnqueueReadBuffer(queue, memory, CL_TRUE, 0, size, values, 0, NULL, NULL));
    const unsigned long long there = digest(values, count);
    transform(shape, BACKWARD, memory);
    OK(clEnqueueReadBuffer(queue, memory, CL_TRUE, 0, size, values, 0, NULL, NULL));
    printf("round %d, %s: %016llx %016llx\n", round, shape->name, there, digest(values, count));
}

int main(int argc, char **argv)
{
    int rounds = 100;
    if (argc == 3 && strcmp(argv[1], "--rounds") == 0)
        rounds = atoi(argv[2]);
    load();

    cl_int status;
    cl_platform_id platform;
    cl_device_id device;
    OK(clGetPlatformIDs(1, &platform, NULL));
    OK(clGetDeviceIDs(platform, CL_DEVICE_TYPE_ALL, 1, &device, NULL));
    cl_context context = clCreateContext(NULL, 1, &device, NULL, NULL, &status);
    OK(status);
    queue = clCreateCommandQueue(context, device, 0, &status);
    OK(status);

    const struct setup version = {2, 12, 2, 0};
    OK(fft_setup(&version));
    size_t most = 0;
    for (int i = 0; i < SHAPES; ++i) {
        struct shape *shape = &shapes[i];
        OK(fft_create_plan(&shape->plan, context, shape->dimensions, shape->lengths));
        OK(fft_bake_plan(shape->plan, 1, &queue, NULL, NULL));
        most = count_of(shape) > most ? count_of(shape) : most;
    }
    const size_t size = 2 * most * sizeof(float);
    float *values = malloc(size);
    cl_mem memory = clCreateBuffer(context, CL_MEM_READ_WRITE, size, NULL, &status);
    OK(status);
    if (values == NULL)
        return EXIT_FAILURE;
    for (int round = 0; round < rounds; ++round)
        for (int i = 0; i < SHAPES; ++i)
            run(&shapes[i], round, memory, values);

    for (int i = 0; i < SHAPES; ++i)
        OK(fft_destroy_plan(&shapes[i].plan));
    OK(fft_teardown());
    clReleaseMemObject(memory);
    clReleaseCommandQueue(queue);
    clReleaseContext(context);
    free(values);
    return EXIT_SUCCESS;
}
