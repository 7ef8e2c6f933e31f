/*
 * What the MPI programs share: the end of all ranks at an error, time, memory, text files, and a rank's device.
 * A program defines PROGRAM, its name in messages, before it includes this file.
 */
#define _POSIX_C_SOURCE 200809L
#define CL_TARGET_OPENCL_VERSION 120

#include <CL/cl.h>
#include <mpi.h>
#include <inttypes.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { MAX_DEVICES = 64, MAX_PLATFORMS = 16 };

static void fail(const char *what, int code)
{
    fprintf(stderr, PROGRAM ": %s: %d\n", what, code);
    MPI_Abort(MPI_COMM_WORLD, EXIT_FAILURE);
}

static void check(cl_int code, const char *call)
{
    if (code != CL_SUCCESS)
        fail(call, code);
}

static double seconds(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

static void *allocate(size_t size)
{
    void *memory = malloc(size > 0 ? size : 1);
    if (memory == NULL)
        fail("malloc", 0);
    return memory;
}

static char *read_text(const char *path)
{
    FILE *file = fopen(path, "rb");
    if (file == NULL || fseek(file, 0, SEEK_END) != 0)
        fail(path, 0);
    const long size = ftell(file);
    rewind(file);
    char *text = allocate((size_t)size + 1);
    if (fread(text, 1, (size_t)size, file) != (size_t)size)
        fail(path, 0);
    text[size] = '\0';
    fclose(file);
    return text;
}

/* The device of this rank: the ranks of one machine take its devices in turn. */
static cl_device_id find_device(int rank)
{
    cl_platform_id platforms[MAX_PLATFORMS];
    cl_uint platform_count = 0;
    check(clGetPlatformIDs(MAX_PLATFORMS, platforms, &platform_count), "clGetPlatformIDs");
    for (cl_uint p = 0; p < platform_count && p < MAX_PLATFORMS; ++p) {
        cl_device_id devices[MAX_DEVICES];
        cl_uint count = 0;
        if (clGetDeviceIDs(platforms[p], CL_DEVICE_TYPE_ALL, MAX_DEVICES, devices, &count) ==
                CL_SUCCESS && count > 0)
            return devices[(cl_uint)rank % (count < MAX_DEVICES ? count : MAX_DEVICES)];
    }
    fail("no OpenCL device", 0);
    return NULL;
}
