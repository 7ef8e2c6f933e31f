/*
 * A library for LD_PRELOAD that shows a platform of many devices to an unmodified program of one device.
 * The program then uses the second device, or a context of all devices.
 *
 *     SPAN_FIRST=K       the platform's device K (from 0) is listed first; the others follow in order
 *     SPAN_DEVICES=N     a context of one device is made of the first N devices listed; programs are
 *                        built for all of the context's devices
 *     SPAN_QUEUES=deal   the queues of such a context go to its devices in turn, whatever device the
 *                        program names
 *
 * The library knows OpenCL, but not the implementation. So the native driver gets the same treatment. A
 * program that cannot run under this library, such as one that counts its context's devices, cannot run
 * under it natively either.
 */
#define _GNU_SOURCE
#define CL_TARGET_OPENCL_VERSION 300
#define CL_USE_DEPRECATED_OPENCL_1_2_APIS

#include <CL/cl.h>
#include <dlfcn.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

enum { MOST = 64 };

/*
 * Returns the function behind ours. A program that brings its own loader keeps it out of the global scope.
 * The library then searches the objects that the caller was linked with.
 */
static void *behind(const char *name, const void *caller)
{
    void *found = dlsym(RTLD_NEXT, name);
    Dl_info where;
    if (found == NULL && dladdr(caller, &where) != 0) {
        void *object = dlopen(where.dli_fname, RTLD_LAZY | RTLD_NOLOAD);
        if (object != NULL)
            found = dlsym(object, name);
    }
    if (found == NULL)
        abort();
    return found;
}

#define BEHIND(name) ((__typeof__(&name))behind(#name, __builtin_return_address(0)))

static cl_uint setting(const char *name)
{
    const char *value = getenv(name);
    return value == NULL ? 0 : (cl_uint)strtoul(value, NULL, 10);
}

static int deals(void)
{
    const char *value = getenv("SPAN_QUEUES");
    return value != NULL && strcmp(value, "deal") == 0;
}

/* Lists the platform's devices of these types, in the order in which the program sees them. */
static cl_int listed(__typeof__(&clGetDeviceIDs) ask, cl_platform_id platform, cl_device_type type,
                     cl_device_id *devices, cl_uint *count)
{
    const cl_int status = ask(platform, type, MOST, devices, count);
    const cl_uint first = setting("SPAN_FIRST");
    if (status == CL_SUCCESS && *count > MOST)
        *count = MOST;
    if (status == CL_SUCCESS && first < *count) {
        const cl_device_id chosen = devices[first];
        memmove(devices + 1, devices, first * sizeof *devices);
        devices[0] = chosen;
    }
    return status;
}

cl_int clGetDeviceIDs(cl_platform_id platform, cl_device_type type, cl_uint room,
                      cl_device_id *devices, cl_uint *number)
{
    __typeof__(&clGetDeviceIDs) ask = BEHIND(clGetDeviceIDs);
    const cl_int status = ask(platform, type, room, devices, number);
    cl_device_id all[MOST];
    cl_uint count = 0;
    if (status != CL_SUCCESS || devices == NULL || setting("SPAN_FIRST") == 0 ||
        listed(ask, platform, type, all, &count) != CL_SUCCESS)
        return status;
    memcpy(devices, all, (room < count ? room : count) * sizeof *all);
    return status;
}

/* Returns the devices for a context of one device: the first SPAN_DEVICES listed, that device among them. */
static cl_uint spanned(__typeof__(&clGetDeviceInfo) info, __typeof__(&clGetDeviceIDs) ask,
                       cl_device_id device, cl_device_id *devices)
{
    cl_platform_id platform = NULL;
    cl_uint count = 0;
    const cl_uint wanted = setting("SPAN_DEVICES");
    if (wanted > 1 &&
        info(device, CL_DEVICE_PLATFORM, sizeof platform, &platform, NULL) == CL_SUCCESS &&
        listed(ask, platform, CL_DEVICE_TYPE_ALL, devices, &count) == CL_SUCCESS &&
        wanted <= count)
        for (cl_uint i = 0; i < wanted; ++i)
            if (devices[i] == device)
                return wanted;
    devices[0] = device;
    return 1;
}

typedef void(CL_CALLBACK *told)(const char *, const void *, size_t, void *);

cl_context clCreateContext(const cl_context_properties *properties, cl_uint count,
                           const cl_device_id *devices, told notify, void *data, cl_int *status)
{
    __typeof__(&clCreateContext) create = BEHIND(clCreateContext);
    cl_device_id all[MOST];
    if (count != 1 || devices == NULL || devices[0] == NULL || setting("SPAN_DEVICES") < 2)
        return create(properties, count, devices, notify, data, status);
    count = spanned(BEHIND(clGetDeviceInfo), BEHIND(clGetDeviceIDs), devices[0], all);
    return create(properties, count, all, notify, data, status);
}

/*
 * Returns the context's device whose turn it is. Returns the program's own device if queues are not dealt.
 * The same holds if the program itself made the context of several devices or of parts of a device.
 */
static cl_device_id dealt(__typeof__(&clGetContextInfo) info, __typeof__(&clGetDeviceInfo) device,
                          __typeof__(&clGetDeviceIDs) ask, cl_context context, cl_device_id own)
{
    static atomic_uint turn;
    cl_device_id all[MOST];
    size_t size = 0;
    if (!deals() || info(context, CL_CONTEXT_DEVICES, sizeof all, all, &size) != CL_SUCCESS)
        return own;
    cl_device_id listed[MOST];
    if (own == NULL || spanned(device, ask, own, listed) != size / sizeof *all ||
        memcmp(all, listed, size) != 0)
        return own;
    const size_t count = size / sizeof *all;
    for (size_t i = 0; i < count; ++i)
        if (all[i] == own)
            return all[(i + atomic_fetch_add(&turn, 1)) % count];
    return own;
}

cl_command_queue clCreateCommandQueue(cl_context context, cl_device_id device,
                                      cl_command_queue_properties properties, cl_int *status)
{
    __typeof__(&clCreateCommandQueue) create = BEHIND(clCreateCommandQueue);
    device = dealt(BEHIND(clGetContextInfo), BEHIND(clGetDeviceInfo), BEHIND(clGetDeviceIDs), context,
                   device);
    return create(context, device, properties, status);
}

cl_command_queue clCreateCommandQueueWithProperties(cl_context context, cl_device_id device,
                                                    const cl_queue_properties *properties,
                                                    cl_int *status)
{
    __typeof__(&clCreateCommandQueueWithProperties) create =
        BEHIND(clCreateCommandQueueWithProperties);
    device = dealt(BEHIND(clGetContextInfo), BEHIND(clGetDeviceInfo), BEHIND(clGetDeviceIDs), context,
                   device);
    return create(context, device, properties, status);
}

/* If contexts are spanned, one device stands for all of the program's devices. */
static int for_all(cl_uint count, const cl_device_id *devices)
{
    return count == 1 && devices != NULL && devices[0] != NULL && setting("SPAN_DEVICES") > 1;
}

typedef void(CL_CALLBACK *ended)(cl_program, void *);

cl_int clBuildProgram(cl_program program, cl_uint count, const cl_device_id *devices,
                      const char *options, ended notify, void *data)
{
    __typeof__(&clBuildProgram) build = BEHIND(clBuildProgram);
    if (for_all(count, devices))
        return build(program, 0, NULL, options, notify, data);
    return build(program, count, devices, options, notify, data);
}

cl_int clCompileProgram(cl_program program, cl_uint count, const cl_device_id *devices,
                        const char *options, cl_uint headers, const cl_program *sources,
                        const char **names, ended notify, void *data)
{
    __typeof__(&clCompileProgram) compile = BEHIND(clCompileProgram);
    if (for_all(count, devices))
        return compile(program, 0, NULL, options, headers, sources, names, notify, data);
    return compile(program, count, devices, options, headers, sources, names, notify, data);
}

cl_program clLinkProgram(cl_context context, cl_uint count, const cl_device_id *devices,
                         const char *options, cl_uint inputs, const cl_program *programs,
                         ended notify, void *data, cl_int *status)
{
    __typeof__(&clLinkProgram) link = BEHIND(clLinkProgram);
    if (for_all(count, devices))
        return link(context, 0, NULL, options, inputs, programs, notify, data, status);
    return link(context, count, devices, options, inputs, programs, notify, data, status);
}
