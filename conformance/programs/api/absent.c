/*
 * Features that a device may lack, calls of OpenCL 2.0 to 3.0 among them. A device that says it lacks a
 * feature must answer the feature's calls as the specification's appendix on optional features demands. A
 * device that has the feature is not judged here.
 */
#define CL_TARGET_OPENCL_VERSION 300
#include "../cltest.h"

static cl_ulong or_zero(cl_device_info name)
{
    cl_ulong value = 0;
    if (clGetDeviceInfo(device, name, sizeof value, &value, NULL) != CL_SUCCESS)
        return 0;
    return value;
}

static void needs_platform_3(void)
{
    char version[256] = "";
    OK(clGetPlatformInfo(platform, CL_PLATFORM_VERSION, sizeof version, version, NULL));
    if (strncmp(version, "OpenCL 3", 8) != 0)
        skip("the platform is older than 3.0");
}

SPEC_CASE(absent_shared_virtual_memory)
{
    needs_platform_3();
    if (or_zero(CL_DEVICE_SVM_CAPABILITIES) == 0) {
        char memory[16] = "", pattern[4] = "";
        void *pointer = memory;
        cl_kernel kernel = standard_kernel("write_id");
        CHECK(clSVMAlloc(context, CL_MEM_READ_WRITE, 64, 0) == NULL);
        clSVMFree(context, NULL);
        CHECK(clEnqueueSVMFree(queue, 1, &pointer, NULL, NULL, 0, NULL, NULL) ==
              CL_INVALID_OPERATION);
        CHECK(clEnqueueSVMMemcpy(queue, CL_TRUE, memory, memory + 8, 4, 0, NULL, NULL) ==
              CL_INVALID_OPERATION);
        CHECK(clEnqueueSVMMemFill(queue, memory, pattern, 4, 16, 0, NULL, NULL) ==
              CL_INVALID_OPERATION);
        CHECK(clEnqueueSVMMap(queue, CL_TRUE, CL_MAP_READ, memory, 4, 0, NULL, NULL) ==
              CL_INVALID_OPERATION);
        CHECK(clEnqueueSVMUnmap(queue, memory, 0, NULL, NULL) == CL_INVALID_OPERATION);
        CHECK(clSetKernelArgSVMPointer(kernel, 0, memory) == CL_INVALID_OPERATION);
        CHECK(clSetKernelExecInfo(kernel, CL_KERNEL_EXEC_INFO_SVM_PTRS, sizeof pointer,
                                  &pointer) == CL_INVALID_OPERATION);
        OK(clReleaseKernel(kernel));
    }
    fact("shared virtual memory is there, or refused as the specification says");
}

SPEC_CASE(absent_pipes)
{
    needs_platform_3();
    cl_bool support = CL_FALSE;
    OK(clGetDeviceInfo(device, CL_DEVICE_PIPE_SUPPORT, sizeof support, &support, NULL));
    if (!support) {
        CHECK(clCreatePipe(context, 0, 4, 16, NULL, &err) == NULL);
        CHECK(err == CL_INVALID_OPERATION);
        cl_mem buffer = buffer_of(64);
        CHECK(clGetPipeInfo(buffer, CL_PIPE_PACKET_SIZE, 0, NULL, NULL) == CL_INVALID_MEM_OBJECT);
        OK(clReleaseMemObject(buffer));
    }
    fact("pipes are there, or refused as the specification says");
}

SPEC_CASE(absent_intermediate_language)
{
    needs_platform_3();
    char version[1024] = "";
    OK(clGetDeviceInfo(device, CL_DEVICE_IL_VERSION, sizeof version, version, NULL));
    if (version[0] == '\0') {
        const unsigned char words[8] = {0};
        size_t size = 77;
        cl_program program = program_from(STANDARD_SOURCE, "");
        CHECK(clCreateProgramWithIL(context, words, sizeof words, &err) == NULL);
        CHECK(err == CL_INVALID_OPERATION);
        CHECK(clSetProgramSpecializationConstant(program, 0, 4, words) == CL_INVALID_OPERATION);
        CHECK(clGetProgramInfo(program, CL_PROGRAM_IL, 0, NULL, &size) == CL_SUCCESS && size == 0);
        OK(clReleaseProgram(program));
    }
    fact("intermediate languages are there, or refused as the specification says");
}

SPEC_CASE(absent_sub_groups)
{
    needs_platform_3();
    cl_uint most = 0;
    OK(clGetDeviceInfo(device, CL_DEVICE_MAX_NUM_SUB_GROUPS, sizeof most, &most, NULL));
    if (most == 0) {
        const size_t size = 64;
        size_t count;
        cl_kernel kernel = standard_kernel("write_id");
        CHECK(clGetKernelSubGroupInfo(kernel, device, CL_KERNEL_SUB_GROUP_COUNT_FOR_NDRANGE,
                                      sizeof size, &size, sizeof count, &count,
                                      NULL) == CL_INVALID_OPERATION);
        OK(clReleaseKernel(kernel));
    }
    fact("sub-groups are there, or refused as the specification says");
}

SPEC_CASE(absent_device_queues)
{
    needs_platform_3();
    if (or_zero(CL_DEVICE_DEVICE_ENQUEUE_CAPABILITIES) == 0) {
        cl_uint size = 0;
        cl_command_queue most = queue;
        CHECK(clGetCommandQueueInfo(queue, CL_QUEUE_SIZE, sizeof size, &size, NULL) ==
              CL_INVALID_COMMAND_QUEUE);
        CHECK(clGetCommandQueueInfo(queue, CL_QUEUE_DEVICE_DEFAULT, sizeof most, &most, NULL) ==
                  CL_SUCCESS &&
              most == NULL);
        CHECK(clSetDefaultDeviceCommandQueue(context, device, queue) == CL_INVALID_OPERATION);
    }
    fact("device queues are there, or refused as the specification says");
}

SPEC_CASE(absent_timers)
{
    needs_platform_3();
    cl_ulong resolution = 0, times[2];
    OK(clGetPlatformInfo(platform, CL_PLATFORM_HOST_TIMER_RESOLUTION, sizeof resolution,
                         &resolution, NULL));
    if (resolution == 0) {
        CHECK(clGetDeviceAndHostTimer(device, &times[0], &times[1]) == CL_INVALID_OPERATION);
        CHECK(clGetHostTimer(device, &times[0]) == CL_INVALID_OPERATION);
    } else {
        CHECK(clGetDeviceAndHostTimer(device, &times[0], &times[1]) == CL_SUCCESS);
        CHECK(clGetHostTimer(device, &times[0]) == CL_SUCCESS);
    }
    fact("timers are there, or refused as the specification says");
}

SPEC_CASE(absent_timers_or_profiling_between_them)
{
    /* A command enqueued between two readings of the device's timer has its times between them. */
    needs_platform_3();
    cl_ulong resolution = 0, before[2], after[2], host[2], queued, ended;
    cl_command_queue timed = queue_with(CL_QUEUE_PROFILING_ENABLE);
    cl_mem buffer = buffer_of(64);
    OK(clGetPlatformInfo(platform, CL_PLATFORM_HOST_TIMER_RESOLUTION, sizeof resolution,
                         &resolution, NULL));
    for (cl_int i = 0; i < 20 && resolution != 0; ++i) {
        cl_event event;
        OK(clGetHostTimer(device, &host[0]));
        OK(clGetDeviceAndHostTimer(device, &before[0], &before[1]));
        OK(clEnqueueFillBuffer(timed, buffer, &i, sizeof i, 0, 64, 0, NULL, &event));
        OK(clWaitForEvents(1, &event));
        OK(clGetDeviceAndHostTimer(device, &after[0], &after[1]));
        OK(clGetHostTimer(device, &host[1]));
        OK(clGetEventProfilingInfo(event, CL_PROFILING_COMMAND_QUEUED, sizeof queued, &queued, NULL));
        OK(clGetEventProfilingInfo(event, CL_PROFILING_COMMAND_END, sizeof ended, &ended, NULL));
        CHECK(before[0] <= queued && queued <= ended && ended <= after[0]);
        CHECK(host[0] <= before[1] && before[1] <= after[1] && after[1] <= host[1]);
        OK(clReleaseEvent(event));
    }
    fact("times lie between the readings around them, where there are timers");
    OK(clReleaseMemObject(buffer));
    OK(clReleaseCommandQueue(timed));
}

SPEC_CASE(absent_release_callback)
{
    needs_platform_3();
    cl_program program = program_from(STANDARD_SOURCE, "");
    CHECK(clSetProgramReleaseCallback(program, NULL, NULL) != CL_SUCCESS);
    OK(clReleaseProgram(program));
    fact("program release callbacks are refused");
}

SPEC_CASE(absent_images)
{
    needs_platform_3();
    const int support = has_images();
    if (!support) {
        const cl_image_format format = {CL_RGBA, CL_UNORM_INT8};
        cl_image_desc description;
        memset(&description, 0, sizeof description);
        description.image_type = CL_MEM_OBJECT_IMAGE2D;
        description.image_width = description.image_height = 16;
        CHECK(clCreateImage(context, CL_MEM_READ_WRITE, &format, &description, NULL, &err) ==
              NULL);
        CHECK(err == CL_INVALID_OPERATION);
        CHECK(clCreateSampler(context, CL_FALSE, CL_ADDRESS_NONE, CL_FILTER_NEAREST, &err) ==
              NULL);
        CHECK(err == CL_INVALID_OPERATION);
    }
    fact("images are there, or refused as the specification says");
}

SPEC_CASE(clone_kernel)
{
    needs_platform_3();
    cl_mem buffer = counting_buffer(8, 0);
    cl_kernel kernel = standard_kernel("add");
    set_add(kernel, buffer, 5);
    cl_kernel twin = clCloneKernel(kernel, &err);
    EXPECT(err, CL_SUCCESS);
    OK(clSetKernelArg(kernel, 1, sizeof(cl_int), &(cl_int){100}));
    launch(queue, twin, 8);
    CHECK(holds_counting(buffer, 8, 5, 1));
    OK(clReleaseKernel(twin));
    OK(clReleaseKernel(kernel));
    OK(clReleaseMemObject(buffer));
    REFUSED(clCloneKernel(NULL, &err), CL_INVALID_KERNEL);
}

SPEC_CASE(buffer_with_properties)
{
    needs_platform_3();
    const cl_mem_properties none[] = {0}, unknown[] = {0x7777, 1, 0};
    size_t size = 77;
    cl_mem buffer = clCreateBufferWithProperties(context, NULL, 0, 64, NULL, &err);
    EXPECT(err, CL_SUCCESS);
    OK(clGetMemObjectInfo(buffer, CL_MEM_PROPERTIES, 0, NULL, &size));
    EQUAL(size, 0);
    OK(clReleaseMemObject(buffer));
    buffer = clCreateBufferWithProperties(context, none, 0, 64, NULL, &err);
    EXPECT(err, CL_SUCCESS);
    OK(clGetMemObjectInfo(buffer, CL_MEM_PROPERTIES, 0, NULL, &size));
    EQUAL(size, sizeof none);
    OK(clReleaseMemObject(buffer));
    REFUSED(clCreateBufferWithProperties(context, unknown, 0, 64, NULL, &err),
            CL_INVALID_PROPERTY);
}

static int context_order[4], context_count;

static void CL_CALLBACK on_context_destroyed(cl_context gone, void *user)
{
    (void)gone;
    context_order[context_count++ % 4] = *(int *)user;
}

SPEC_CASE(context_destructor_callbacks)
{
    needs_platform_3();
    static int numbers[2] = {1, 2};
    cl_context made = another_context();
    EXPECT(clSetContextDestructorCallback(made, on_context_destroyed, &numbers[0]), CL_SUCCESS);
    EXPECT(clSetContextDestructorCallback(made, on_context_destroyed, &numbers[1]), CL_SUCCESS);
    EXPECT(clSetContextDestructorCallback(made, NULL, NULL), CL_INVALID_VALUE);
    EXPECT(clSetContextDestructorCallback(NULL, on_context_destroyed, NULL), CL_INVALID_CONTEXT);
    OK(clReleaseContext(made));
    const struct timespec moment = {0, 10000000};
    for (int i = 0; i < 500 && *(volatile int *)&context_count < 2; ++i)
        nanosleep(&moment, NULL);
    fact("%d callbacks: %d %d", context_count, context_order[0], context_order[1]);
}

SPEC_CASE(device_info_of_version_3)
{
    needs_platform_3();
    cl_uint numeric = 0;
    char version[256];
    unsigned major = 0, minor = 0;
    OK(clGetDeviceInfo(device, CL_DEVICE_VERSION, sizeof version, version, NULL));
    OK(clGetDeviceInfo(device, CL_DEVICE_NUMERIC_VERSION, sizeof numeric, &numeric, NULL));
    CHECK(sscanf(version, "OpenCL %u.%u ", &major, &minor) == 2);
    CHECK(CL_VERSION_MAJOR(numeric) == major && CL_VERSION_MINOR(numeric) == minor);
    INFO_RULES(clGetDeviceInfo, device, CL_DEVICE_ILS_WITH_VERSION);
    INFO_RULES(clGetDeviceInfo, device, CL_DEVICE_BUILT_IN_KERNELS_WITH_VERSION);
    INFO_RULES(clGetDeviceInfo, device, CL_DEVICE_OPENCL_C_ALL_VERSIONS);
    INFO_RULES(clGetDeviceInfo, device, CL_DEVICE_OPENCL_C_FEATURES);
    INFO_RULES(clGetDeviceInfo, device, CL_DEVICE_ATOMIC_MEMORY_CAPABILITIES);
    INFO_RULES(clGetDeviceInfo, device, CL_DEVICE_NON_UNIFORM_WORK_GROUP_SUPPORT);
    INFO_RULES(clGetDeviceInfo, device, CL_DEVICE_LATEST_CONFORMANCE_VERSION_PASSED);
}

/* Whether this code refuses an image call on a device that has no images. */
static int refused(cl_int status)
{
    return status == CL_INVALID_OPERATION || status == CL_INVALID_MEM_OBJECT;
}

SPEC_CASE(absent_image_calls)
{
    needs_platform_3();
    const int support = has_images();
    if (!support) {
        const cl_image_format format = {CL_RGBA, CL_UNORM_INT8};
        const size_t zero[3] = {0, 0, 0}, region[3] = {1, 1, 1};
        char memory[64] = "";
        cl_uint count = 77;
        cl_mem buffer = buffer_of(64);
        CHECK(clGetSupportedImageFormats(context, CL_MEM_READ_WRITE, CL_MEM_OBJECT_IMAGE2D, 0,
                                         NULL, &count) == CL_SUCCESS &&
              count == 0);
        CHECK(clCreateImage2D(context, 0, &format, 4, 4, 0, NULL, &err) == NULL);
        CHECK(err == CL_INVALID_OPERATION);
        CHECK(clCreateImage3D(context, 0, &format, 4, 4, 4, 0, 0, NULL, &err) == NULL);
        CHECK(err == CL_INVALID_OPERATION);
        CHECK(clGetImageInfo(buffer, CL_IMAGE_WIDTH, 0, NULL, NULL) == CL_INVALID_MEM_OBJECT);
        CHECK(refused(clEnqueueReadImage(queue, buffer, CL_TRUE, zero, region, 0, 0, memory, 0,
                                         NULL, NULL)));
        CHECK(refused(clEnqueueWriteImage(queue, buffer, CL_TRUE, zero, region, 0, 0, memory, 0,
                                          NULL, NULL)));
        CHECK(refused(
            clEnqueueCopyImage(queue, buffer, buffer, zero, zero, region, 0, NULL, NULL)));
        CHECK(refused(clEnqueueFillImage(queue, buffer, memory, zero, region, 0, NULL, NULL)));
        CHECK(refused(
            clEnqueueCopyImageToBuffer(queue, buffer, buffer, zero, region, 0, 0, NULL, NULL)));
        CHECK(refused(
            clEnqueueCopyBufferToImage(queue, buffer, buffer, 0, zero, region, 0, NULL, NULL)));
        size_t pitch;
        CHECK(clEnqueueMapImage(queue, buffer, CL_TRUE, CL_MAP_READ, zero, region, &pitch, NULL, 0,
                                NULL, NULL, &err) == NULL);
        CHECK(refused(err));
        OK(clReleaseMemObject(buffer));
    }
    fact("image calls work, or are refused on a device without images");
}

SPEC_CASE(absent_sampler_calls)
{
    needs_platform_3();
    const int support = has_images();
    EXPECT(clRetainSampler(NULL), CL_INVALID_SAMPLER);
    EXPECT(clReleaseSampler(NULL), CL_INVALID_SAMPLER);
    EXPECT(clGetSamplerInfo(NULL, CL_SAMPLER_CONTEXT, 0, NULL, NULL), CL_INVALID_SAMPLER);
    if (!support) {
        CHECK(clCreateSamplerWithProperties(context, NULL, &err) == NULL);
        CHECK(err == CL_INVALID_OPERATION);
    }
}

SPEC_CASE(absent_calls_of_null_handles)
{
    needs_platform_3();
    EXPECT(clSetContextDestructorCallback(NULL, NULL, NULL), CL_INVALID_CONTEXT);
    EXPECT(clSetDefaultDeviceCommandQueue(NULL, device, queue), CL_INVALID_CONTEXT,
           CL_INVALID_OPERATION);
    EXPECT(clGetHostTimer(NULL, NULL), CL_INVALID_DEVICE, CL_INVALID_OPERATION);
    EXPECT(clSetKernelExecInfo(NULL, CL_KERNEL_EXEC_INFO_SVM_PTRS, 0, NULL), CL_INVALID_KERNEL);
    EXPECT(clSetKernelArgSVMPointer(NULL, 0, NULL), CL_INVALID_KERNEL);
    EXPECT(clGetPipeInfo(NULL, CL_PIPE_PACKET_SIZE, 0, NULL, NULL), CL_INVALID_MEM_OBJECT);
    EXPECT(clEnqueueSVMMap(NULL, CL_TRUE, CL_MAP_READ, NULL, 0, 0, NULL, NULL),
           CL_INVALID_COMMAND_QUEUE);
    EXPECT(clSetProgramReleaseCallback(NULL, NULL, NULL), CL_INVALID_PROGRAM,
           CL_INVALID_OPERATION);
    REFUSED(clCreateBufferWithProperties(NULL, NULL, 0, 64, NULL, &err), CL_INVALID_CONTEXT);
    REFUSED(clCreateProgramWithIL(NULL, "", 1, &err), CL_INVALID_CONTEXT, CL_INVALID_OPERATION);
}
