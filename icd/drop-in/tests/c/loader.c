/* An ordinary program, linked with the system's loader and run with the drop-in in its place. It checks that
 * calls with NULL handles, and lookups by name, return what a loader returns. No server is configured. The
 * program exits with 0, or prints the first check that fails. */
#define CL_TARGET_OPENCL_VERSION 300
#define CL_USE_DEPRECATED_OPENCL_1_0_APIS
#define CL_USE_DEPRECATED_OPENCL_1_1_APIS
#define CL_USE_DEPRECATED_OPENCL_1_2_APIS
#define CL_USE_DEPRECATED_OPENCL_2_0_APIS
#define CL_USE_DEPRECATED_OPENCL_2_2_APIS
#include <CL/cl.h>
#include <CL/cl_ext.h>
#include <CL/cl_gl.h>
#include <stdio.h>
#include <string.h>

#define CHECK(condition)                                                                   \
    do {                                                                                   \
        if (!(condition)) {                                                                \
            fprintf(stderr, "line %d: not so: %s\n", __LINE__, #condition);                \
            return 1;                                                                      \
        }                                                                                  \
    } while (0)

/* Checks a call that must return NULL and write the expected error to `code`. */
#define REFUSED(expected, call)                                                            \
    do {                                                                                   \
        code = 1;                                                                          \
        CHECK((call) == NULL);                                                             \
        CHECK(code == (expected));                                                         \
    } while (0)

static int platforms(void)
{
    cl_uint count = 7;
    cl_platform_id platform = NULL;
    CHECK(clGetPlatformIDs(0, NULL, &count) == CL_PLATFORM_NOT_FOUND_KHR);
    CHECK(count == 0);
    CHECK(clGetPlatformIDs(1, &platform, NULL) == CL_PLATFORM_NOT_FOUND_KHR);
    CHECK(platform == NULL);
    CHECK(clGetPlatformIDs(0, NULL, NULL) == CL_INVALID_VALUE);
    CHECK(clGetPlatformIDs(0, &platform, NULL) == CL_INVALID_VALUE);
    CHECK(clGetPlatformInfo(NULL, CL_PLATFORM_NAME, 0, NULL, NULL) == CL_INVALID_PLATFORM);
    CHECK(clGetDeviceIDs(NULL, CL_DEVICE_TYPE_ALL, 0, NULL, &count) == CL_INVALID_PLATFORM);
    CHECK(clUnloadPlatformCompiler(NULL) == CL_INVALID_PLATFORM);
    CHECK(clUnloadCompiler() == CL_SUCCESS);
    return 0;
}

static int null_handles(void)
{
    cl_int code;
    CHECK(clGetDeviceInfo(NULL, CL_DEVICE_NAME, 0, NULL, NULL) == CL_INVALID_DEVICE);
    CHECK(clRetainDevice(NULL) == CL_INVALID_DEVICE);
    CHECK(clRetainContext(NULL) == CL_INVALID_CONTEXT);
    CHECK(clReleaseContext(NULL) == CL_INVALID_CONTEXT);
    CHECK(clReleaseCommandQueue(NULL) == CL_INVALID_COMMAND_QUEUE);
    CHECK(clFinish(NULL) == CL_INVALID_COMMAND_QUEUE);
    CHECK(clReleaseMemObject(NULL) == CL_INVALID_MEM_OBJECT);
    CHECK(clReleaseSampler(NULL) == CL_INVALID_SAMPLER);
    CHECK(clBuildProgram(NULL, 0, NULL, NULL, NULL, NULL) == CL_INVALID_PROGRAM);
    CHECK(clSetKernelArg(NULL, 0, 0, NULL) == CL_INVALID_KERNEL);
    CHECK(clReleaseEvent(NULL) == CL_INVALID_EVENT);
    CHECK(clEnqueueNDRangeKernel(NULL, NULL, 1, NULL, NULL, NULL, 0, NULL, NULL)
          == CL_INVALID_COMMAND_QUEUE);
    REFUSED(CL_INVALID_CONTEXT, clCreateBuffer(NULL, 0, 4, NULL, &code));
    REFUSED(CL_INVALID_CONTEXT, clCreateCommandQueue(NULL, NULL, 0, &code));
    REFUSED(CL_INVALID_CONTEXT, clCreateUserEvent(NULL, &code));
    REFUSED(CL_INVALID_PROGRAM, clCreateKernel(NULL, "k", &code));
    REFUSED(CL_INVALID_KERNEL, clCloneKernel(NULL, &code));
    REFUSED(CL_INVALID_MEM_OBJECT, clCreateSubBuffer(NULL, 0, 0, NULL, &code));
    REFUSED(CL_INVALID_COMMAND_QUEUE,
            clEnqueueMapBuffer(NULL, NULL, 1, 0, 0, 4, 0, NULL, NULL, &code));
    /* These calls have no pointer for the code. */
    CHECK(clCreateBuffer(NULL, 0, 4, NULL, NULL) == NULL);
    CHECK(clSVMAlloc(NULL, 0, 4, 0) == NULL);
    clSVMFree(NULL, &code);
    /* A loader forwards calls without a handle to the driver. */
    REFUSED(CL_INVALID_VALUE, clCreateContext(NULL, 0, NULL, NULL, NULL, &code));
    CHECK(clWaitForEvents(0, NULL) == CL_INVALID_VALUE);
    return 0;
}

static int names(void)
{
    typedef cl_int (*loader_info)(cl_uint, size_t, void *, size_t *);
    loader_info info = (loader_info)clGetExtensionFunctionAddress("clGetICDLoaderInfoOCLICD");
    CHECK(info);
    char text[256];
    size_t size = 0;
    for (cl_uint what = 1; what <= 4; what++) {
        CHECK(info(what, 0, NULL, &size) == CL_SUCCESS);
        CHECK(size > 1);
        CHECK(info(what, sizeof(text), text, NULL) == CL_SUCCESS);
        CHECK(strlen(text) + 1 == size);
        CHECK(info(what, size - 1, text, NULL) == CL_INVALID_VALUE);
    }
    CHECK(info(5, sizeof(text), text, NULL) == CL_INVALID_VALUE);

    CHECK(clGetExtensionFunctionAddress("clNoSuchFunction") == NULL);
    CHECK(clGetExtensionFunctionAddress("clCreateContext") == NULL);
    CHECK(clGetExtensionFunctionAddress("clIcdGetPlatformIDsKHR") == NULL);
    CHECK(clGetExtensionFunctionAddressForPlatform(NULL, "clCreateFromGLBuffer") == NULL);
    static const char *const known[] = {
        "clCreateFromGLBuffer", "clGetGLContextInfoKHR", "clCreateEventFromGLsyncKHR",
        "clCreateFromEGLImageKHR", "clCreateEventFromEGLSyncKHR", "clCreateSubDevicesEXT",
        "clGetKernelSubGroupInfoKHR", "clGetDeviceIDsFromD3D10KHR", "clCreateFromD3D11BufferKHR",
        "clCreateFromDX9MediaSurfaceKHR",
    };
    for (size_t i = 0; i < sizeof(known) / sizeof(*known); i++)
        CHECK(clGetExtensionFunctionAddress(known[i]));

    typedef cl_mem (*from_gl_buffer)(cl_context, cl_mem_flags, cl_GLuint, cl_int *);
    from_gl_buffer create =
        (from_gl_buffer)clGetExtensionFunctionAddress("clCreateFromGLBuffer");
    cl_int code;
    REFUSED(CL_INVALID_CONTEXT, create(NULL, 0, 1, &code));
    REFUSED(CL_INVALID_CONTEXT, clCreateFromGLBuffer(NULL, 0, 1, &code));
    return 0;
}

int main(void)
{
    return platforms() || null_handles() || names();
}
