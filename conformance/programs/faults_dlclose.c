/*
 * A program that loads OpenCL by hand, closes it with work in flight, and loads it again. Hosts of plug-ins
 * do this. A driver's threads that still run must find their code in its old place.
 */
#define _POSIX_C_SOURCE 200809L
#define CL_TARGET_OPENCL_VERSION 120
#define CL_USE_DEPRECATED_OPENCL_1_2_APIS

#include <CL/cl.h>
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>

enum { ROUNDS = 5 };

static const size_t LARGE = (size_t)64 << 20;

/* Turns an object pointer into a function pointer, as POSIX allows. */
#define FIND(library, function) \
    __typeof__(&function) function##_; \
    *(void **)&function##_ = dlsym(library, #function); \
    if (function##_ == NULL) { \
        printf("no %s\n", #function); \
        exit(EXIT_FAILURE); \
    }

static void check(const char *call, cl_int status)
{
    if (status == CL_SUCCESS)
        return;
    printf("%s -> %d\n", call, (int)status);
    exit(EXIT_FAILURE);
}

static void use(char *bytes)
{
    cl_platform_id platform;
    cl_device_id device;
    cl_int status;
    int value = 0;
    const int five = 5;
    void *library = dlopen("libOpenCL.so.1", RTLD_NOW | RTLD_LOCAL);
    if (library == NULL) {
        printf("%s\n", dlerror());
        exit(EXIT_FAILURE);
    }
    FIND(library, clGetPlatformIDs)
    FIND(library, clGetDeviceIDs)
    FIND(library, clCreateContext)
    FIND(library, clCreateCommandQueue)
    FIND(library, clCreateBuffer)
    FIND(library, clEnqueueWriteBuffer)
    FIND(library, clEnqueueReadBuffer)
    FIND(library, clFlush)
    check("clGetPlatformIDs", clGetPlatformIDs_(1, &platform, NULL));
    check("clGetDeviceIDs", clGetDeviceIDs_(platform, CL_DEVICE_TYPE_ALL, 1, &device, NULL));
    cl_context context = clCreateContext_(NULL, 1, &device, NULL, NULL, &status);
    check("clCreateContext", status);
    cl_command_queue queue = clCreateCommandQueue_(context, device, 0, &status);
    check("clCreateCommandQueue", status);
    cl_mem buffer = clCreateBuffer_(context, CL_MEM_READ_WRITE, LARGE, NULL, &status);
    check("clCreateBuffer", status);
    check("clEnqueueWriteBuffer", clEnqueueWriteBuffer_(queue, buffer, CL_TRUE, 0, sizeof five, &five,
                                                        0, NULL, NULL));
    check("clEnqueueReadBuffer", clEnqueueReadBuffer_(queue, buffer, CL_TRUE, 0, sizeof value, &value,
                                                      0, NULL, NULL));
    if (value != five) {
        printf("wrong data\n");
        exit(EXIT_FAILURE);
    }
    check("clEnqueueWriteBuffer", clEnqueueWriteBuffer_(queue, buffer, CL_FALSE, 0, LARGE, bytes, 0,
                                                        NULL, NULL));
    check("clFlush", clFlush_(queue));
    dlclose(library);
}

int main(void)
{
    char *bytes = calloc(1, LARGE);
    for (int round = 0; round < ROUNDS; ++round)
        use(bytes);
    printf("closed %d times\n", ROUNDS);
    return EXIT_SUCCESS;
}
