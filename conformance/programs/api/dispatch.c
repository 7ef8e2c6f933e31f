/*
 * Functions that no loader on this system exports, called through the dispatch table of an object. Some
 * share objects with graphics APIs, and are refused where they are not offered. Others are functions that a
 * loader answers by itself.
 */
#define CL_TARGET_OPENCL_VERSION 300
#include "../cltest.h"
#include <CL/cl_icd.h>

static const cl_icd_dispatch *table(void)
{
    return *(const cl_icd_dispatch *const *)(const void *)platform;
}

static int offers(const char *extension)
{
    static char names[65536];
    OK(clGetDeviceInfo(device, CL_DEVICE_EXTENSIONS, sizeof names, names, NULL));
    return strstr(names, extension) != NULL;
}

/* Casts a function of the table to its type. */
#define AS(type, function) ((type)(void (*)(void))table()->function)
/* Expects a refusal, if the driver has the function. Prints nothing, because not every driver has every function. */
#define REFUSES(type, function, ...)                                                          \
    do {                                                                                      \
        if (table()->function != NULL)                                                        \
            CHECK(AS(type, function) __VA_ARGS__ == CL_INVALID_OPERATION);                    \
    } while (0)
#define MAKES_NOTHING(type, function, ...)                                                    \
    do {                                                                                      \
        if (table()->function != NULL) {                                                      \
            CHECK(AS(type, function) __VA_ARGS__ == NULL);                                    \
            CHECK(err == CL_INVALID_OPERATION);                                               \
        }                                                                                     \
    } while (0)

typedef cl_mem (*make_gl)(cl_context, cl_mem_flags, cl_uint, cl_int *);
typedef cl_mem (*make_gl_texture)(cl_context, cl_mem_flags, cl_uint, cl_int, cl_uint, cl_int *);
typedef cl_int (*ask_gl_object)(cl_mem, cl_uint *, cl_uint *);
typedef cl_int (*ask_gl_texture)(cl_mem, cl_uint, size_t, void *, size_t *);
typedef cl_int (*pass)(cl_command_queue, cl_uint, const cl_mem *, cl_uint, const cl_event *, cl_event *);
typedef cl_int (*ask_gl_context)(const cl_context_properties *, cl_uint, size_t, void *, size_t *);
typedef cl_event (*make_event)(cl_context, void *, cl_int *);
typedef cl_event (*make_egl_event)(cl_context, void *, void *, cl_int *);
typedef cl_mem (*make_egl)(cl_context, void *, void *, cl_mem_flags, const intptr_t *, cl_int *);

SPEC_CASE(sharing_with_opengl)
{
    if (offers("cl_khr_gl_sharing"))
        skip("the device shares with OpenGL");
    cl_mem buffer = buffer_of(64);
    size_t size = 0;
    cl_uint type = 0, name = 0;
    MAKES_NOTHING(make_gl, clCreateFromGLBuffer, (context, 0, 1, &err));
    MAKES_NOTHING(make_gl, clCreateFromGLRenderbuffer, (context, 0, 1, &err));
    MAKES_NOTHING(make_gl_texture, clCreateFromGLTexture2D, (context, 0, 1, 0, 1, &err));
    MAKES_NOTHING(make_gl_texture, clCreateFromGLTexture3D, (context, 0, 1, 0, 1, &err));
    MAKES_NOTHING(make_gl_texture, clCreateFromGLTexture, (context, 0, 1, 0, 1, &err));
    REFUSES(ask_gl_object, clGetGLObjectInfo, (buffer, &type, &name));
    REFUSES(ask_gl_texture, clGetGLTextureInfo, (buffer, 0, 0, NULL, &size));
    REFUSES(pass, clEnqueueAcquireGLObjects, (queue, 1, &buffer, 0, NULL, NULL));
    REFUSES(pass, clEnqueueReleaseGLObjects, (queue, 1, &buffer, 0, NULL, NULL));
    REFUSES(ask_gl_context, clGetGLContextInfoKHR, (NULL, 0, 0, NULL, &size));
    MAKES_NOTHING(make_event, clCreateEventFromGLsyncKHR, (context, NULL, &err));
    OK(clReleaseMemObject(buffer));
    fact("sharing is refused");
}

SPEC_CASE(sharing_with_egl)
{
    if (offers("cl_khr_egl_"))
        skip("the device shares with EGL");
    cl_mem buffer = buffer_of(64);
    MAKES_NOTHING(make_egl, clCreateFromEGLImageKHR, (context, NULL, NULL, 0, NULL, &err));
    REFUSES(pass, clEnqueueAcquireEGLObjectsKHR, (queue, 1, &buffer, 0, NULL, NULL));
    REFUSES(pass, clEnqueueReleaseEGLObjectsKHR, (queue, 1, &buffer, 0, NULL, NULL));
    MAKES_NOTHING(make_egl_event, clCreateEventFromEGLSyncKHR, (context, NULL, NULL, &err));
    OK(clReleaseMemObject(buffer));
    fact("sharing is refused");
}

typedef cl_int (*d3d_devices)(cl_platform_id, cl_uint, void *, cl_uint, cl_uint, cl_device_id *, cl_uint *);
typedef cl_int (*dx9_devices)(cl_platform_id, cl_uint, void *, void *, cl_uint, cl_uint, cl_device_id *,
                              cl_uint *);
typedef cl_mem (*make_d3d)(cl_context, cl_mem_flags, void *, cl_int *);
typedef cl_mem (*make_d3d_part)(cl_context, cl_mem_flags, void *, cl_uint, cl_int *);
typedef cl_mem (*make_dx9)(cl_context, cl_mem_flags, cl_uint, void *, cl_uint, cl_int *);

SPEC_CASE(sharing_with_direct3d)
{
    cl_mem buffer = buffer_of(64);
    cl_device_id found = NULL;
    cl_uint count = 0;
    REFUSES(d3d_devices, clGetDeviceIDsFromD3D10KHR, (platform, 0, NULL, 0, 1, &found, &count));
    MAKES_NOTHING(make_d3d, clCreateFromD3D10BufferKHR, (context, 0, NULL, &err));
    MAKES_NOTHING(make_d3d_part, clCreateFromD3D10Texture2DKHR, (context, 0, NULL, 0, &err));
    MAKES_NOTHING(make_d3d_part, clCreateFromD3D10Texture3DKHR, (context, 0, NULL, 0, &err));
    REFUSES(pass, clEnqueueAcquireD3D10ObjectsKHR, (queue, 1, &buffer, 0, NULL, NULL));
    REFUSES(pass, clEnqueueReleaseD3D10ObjectsKHR, (queue, 1, &buffer, 0, NULL, NULL));
    REFUSES(d3d_devices, clGetDeviceIDsFromD3D11KHR, (platform, 0, NULL, 0, 1, &found, &count));
    MAKES_NOTHING(make_d3d, clCreateFromD3D11BufferKHR, (context, 0, NULL, &err));
    MAKES_NOTHING(make_d3d_part, clCreateFromD3D11Texture2DKHR, (context, 0, NULL, 0, &err));
    MAKES_NOTHING(make_d3d_part, clCreateFromD3D11Texture3DKHR, (context, 0, NULL, 0, &err));
    REFUSES(pass, clEnqueueAcquireD3D11ObjectsKHR, (queue, 1, &buffer, 0, NULL, NULL));
    REFUSES(pass, clEnqueueReleaseD3D11ObjectsKHR, (queue, 1, &buffer, 0, NULL, NULL));
    REFUSES(dx9_devices, clGetDeviceIDsFromDX9MediaAdapterKHR,
            (platform, 0, NULL, NULL, 0, 1, &found, &count));
    MAKES_NOTHING(make_dx9, clCreateFromDX9MediaSurfaceKHR, (context, 0, 0, NULL, 0, &err));
    REFUSES(pass, clEnqueueAcquireDX9MediaSurfacesKHR, (queue, 1, &buffer, 0, NULL, NULL));
    REFUSES(pass, clEnqueueReleaseDX9MediaSurfacesKHR, (queue, 1, &buffer, 0, NULL, NULL));
    OK(clReleaseMemObject(buffer));
    fact("sharing is refused");
}

/* Functions that a loader answers by itself, but that a driver must have too. */
SPEC_CASE(what_loaders_answer)
{
    cl_platform_id found = NULL;
    cl_uint count = 0;
    if (table()->clGetPlatformIDs != NULL) {
        OK(table()->clGetPlatformIDs(1, &found, &count));
        CHECK(found == platform && count >= 1);
        EXPECT(table()->clGetPlatformIDs(0, NULL, NULL), CL_INVALID_VALUE);
    }
    cl_event event = clCreateUserEvent(context, &err);
    OK(err);
    OK(clSetUserEventStatus(event, CL_COMPLETE));
    CHECK(table()->clWaitForEvents(0, &event) == CL_INVALID_VALUE);
    CHECK(table()->clWaitForEvents(1, NULL) == CL_INVALID_VALUE);
    OK(clReleaseEvent(event));
    if (table()->clUnloadCompiler != NULL)
        OK(table()->clUnloadCompiler());
    if (table()->clGetExtensionFunctionAddress != NULL) {
        CHECK(table()->clGetExtensionFunctionAddress("clIcdGetPlatformIDsKHR") != NULL);
        CHECK(table()->clGetExtensionFunctionAddress("clNoSuchFunction") == NULL);
    }
    fact("the driver answers what its loader does");
}

typedef cl_int (*count_device)(cl_device_id);
typedef cl_int (*divide)(cl_device_id, const cl_ulong *, cl_uint, cl_device_id *, cl_uint *);

/* cl_ext_device_fission, from before OpenCL 1.2. */
SPEC_CASE(parts_of_devices_before_version_1_2)
{
    if (offers("cl_ext_device_fission"))
        skip("the device has cl_ext_device_fission");
    enum { EQUALLY = 0x4050 };
    const cl_ulong equally[] = {EQUALLY, 1, 0};
    cl_uint count = 77;
    /* A root device has no reference count. */
    if (table()->clRetainDeviceEXT != NULL)
        OK(AS(count_device, clRetainDeviceEXT)(device));
    if (table()->clReleaseDeviceEXT != NULL)
        OK(AS(count_device, clReleaseDeviceEXT)(device));
    if (table()->clCreateSubDevicesEXT != NULL)
        CHECK(AS(divide, clCreateSubDevicesEXT)(device, equally, 0, NULL, &count) == CL_INVALID_VALUE);
    CHECK(count == 77);
    fact("the forerunner of sub-devices is not offered, and refused");
}
