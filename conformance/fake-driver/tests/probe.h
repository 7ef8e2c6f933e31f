// Code that the probes share: a context on the first device, and checks that name the failed call.
#define CL_TARGET_OPENCL_VERSION 300
#define CL_USE_DEPRECATED_OPENCL_1_2_APIS
#define CL_USE_DEPRECATED_OPENCL_1_1_APIS
#include <CL/cl.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define EXPECT(code, call)                                                                         \
    do {                                                                                           \
        cl_int got_ = (call);                                                                      \
        if (got_ != (code)) {                                                                      \
            printf("%s:%d: %s gave %d, not %d\n", __FILE__, __LINE__, #call, got_, (int)(code));   \
            fflush(stdout);                                                                        \
            exit(1);                                                                               \
        }                                                                                          \
    } while (0)
#define OK(call) EXPECT(CL_SUCCESS, call)
#define TRUE(condition)                                                                            \
    do {                                                                                           \
        if (!(condition)) {                                                                        \
            printf("%s:%d: not true: %s\n", __FILE__, __LINE__, #condition);                       \
            fflush(stdout);                                                                        \
            exit(1);                                                                               \
        }                                                                                          \
    } while (0)

extern cl_platform_id platform;
extern cl_device_id device;
extern cl_context context;
extern cl_int code;

cl_command_queue new_queue(cl_command_queue_properties properties);
cl_mem new_buffer(size_t size, void *contents);
cl_kernel new_kernel(const char *source, const char *name);
double now(void);

extern const char *KERNELS;
