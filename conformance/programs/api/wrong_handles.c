/*
 * Handles of another kind than the function takes. The specification gives each function a code
 * for "not a valid ...". An object of another kind is the only invalid handle that a program
 * can pass without leaving the language.
 */
#define CL_TARGET_OPENCL_VERSION 300
#include "../refused.h"

/* A context's handle, which is of the wrong kind for every other type. */
#define WRONG(type) ((type)(void *)context)
/* A queue's handle, which is of the wrong kind for a context. */
#define WRONG_CONTEXT ((cl_context)(void *)queue)

static size_t size;

SPEC_CASE(wrong_platforms_and_devices)
{
    EXPECT(clGetDeviceInfo(WRONG(cl_device_id), CL_DEVICE_TYPE, 0, NULL, &size), CL_INVALID_DEVICE);
    EXPECT(clRetainDevice(WRONG(cl_device_id)), CL_INVALID_DEVICE);
    EXPECT(clReleaseDevice(WRONG(cl_device_id)), CL_INVALID_DEVICE);
    const cl_device_partition_property equally[] = {CL_DEVICE_PARTITION_EQUALLY, 1, 0};
    cl_device_id parts[4];
    cl_uint count = 0;
    EXPECT(clCreateSubDevices(WRONG(cl_device_id), equally, 4, parts, &count), CL_INVALID_DEVICE);
    cl_ulong host = 0, there = 0;
    EXPECT(clGetDeviceAndHostTimer(WRONG(cl_device_id), &there, &host), CL_INVALID_DEVICE);
    EXPECT(clGetHostTimer(WRONG(cl_device_id), &host), CL_INVALID_DEVICE);
    const cl_device_id wrong = WRONG(cl_device_id);
    REFUSED(clCreateContext(NULL, 1, &wrong, NULL, NULL, &err), CL_INVALID_DEVICE);
    REFUSED(clCreateCommandQueue(context, wrong, 0, &err), CL_INVALID_DEVICE);
    REFUSED(clCreateCommandQueueWithProperties(context, wrong, NULL, &err), CL_INVALID_DEVICE);
    EXPECT(clSetDefaultDeviceCommandQueue(context, wrong, queue), CL_INVALID_DEVICE,
           CL_INVALID_OPERATION);
}

static void CL_CALLBACK never(cl_context which, void *data)
{
    (void)which;
    (void)data;
    fail("the context of a refused call is told of");
}

SPEC_CASE(wrong_contexts)
{
    const cl_image_desc desc = plain();
    const char *source = STANDARD_SOURCE;
    const unsigned char *binary = (const unsigned char *)source;
    const size_t length = 8;
    cl_uint count = 0;
    EXPECT(clRetainContext(WRONG_CONTEXT), CL_INVALID_CONTEXT);
    EXPECT(clReleaseContext(WRONG_CONTEXT), CL_INVALID_CONTEXT);
    EXPECT(clGetContextInfo(WRONG_CONTEXT, CL_CONTEXT_DEVICES, 0, NULL, &size), CL_INVALID_CONTEXT);
    EXPECT(clSetContextDestructorCallback(WRONG_CONTEXT, never, NULL), CL_INVALID_CONTEXT);
    REFUSED(clCreateCommandQueue(WRONG_CONTEXT, device, 0, &err), CL_INVALID_CONTEXT);
    REFUSED(clCreateCommandQueueWithProperties(WRONG_CONTEXT, device, NULL, &err), CL_INVALID_CONTEXT);
    EXPECT(clSetDefaultDeviceCommandQueue(WRONG_CONTEXT, device, queue), CL_INVALID_CONTEXT,
           CL_INVALID_OPERATION);
    REFUSED(clCreateBuffer(WRONG_CONTEXT, 0, 4, NULL, &err), CL_INVALID_CONTEXT);
    REFUSED(clCreateBufferWithProperties(WRONG_CONTEXT, NULL, 0, 4, NULL, &err), CL_INVALID_CONTEXT);
    REFUSED(clCreateImage(WRONG_CONTEXT, 0, &rgba, &desc, NULL, &err), CL_INVALID_CONTEXT);
    REFUSED(clCreateImageWithProperties(WRONG_CONTEXT, NULL, 0, &rgba, &desc, NULL, &err),
            CL_INVALID_CONTEXT);
    REFUSED(clCreateImage2D(WRONG_CONTEXT, 0, &rgba, 4, 4, 0, NULL, &err), CL_INVALID_CONTEXT);
    REFUSED(clCreateImage3D(WRONG_CONTEXT, 0, &rgba, 4, 4, 4, 0, 0, NULL, &err), CL_INVALID_CONTEXT);
    EXPECT(clGetSupportedImageFormats(WRONG_CONTEXT, 0, CL_MEM_OBJECT_IMAGE2D, 0, NULL, &count),
           CL_INVALID_CONTEXT);
    REFUSED(clCreateSampler(WRONG_CONTEXT, CL_FALSE, CL_ADDRESS_CLAMP, CL_FILTER_NEAREST, &err),
            CL_INVALID_CONTEXT);
    REFUSED(clCreateSamplerWithProperties(WRONG_CONTEXT, NULL, &err), CL_INVALID_CONTEXT);
    REFUSED(clCreateProgramWithSource(WRONG_CONTEXT, 1, &source, NULL, &err), CL_INVALID_CONTEXT);
    REFUSED(clCreateProgramWithBinary(WRONG_CONTEXT, 1, &device, &length, &binary, NULL, &err),
            CL_INVALID_CONTEXT);
    REFUSED(clCreateProgramWithBuiltInKernels(WRONG_CONTEXT, 1, &device, "x", &err),
            CL_INVALID_CONTEXT);
    REFUSED(clCreateProgramWithIL(WRONG_CONTEXT, binary, 8, &err), CL_INVALID_CONTEXT,
            CL_INVALID_OPERATION);
    REFUSED(clLinkProgram(WRONG_CONTEXT, 0, NULL, "", 0, NULL, NULL, NULL, &err), CL_INVALID_CONTEXT,
            CL_INVALID_VALUE);
    REFUSED(clCreateUserEvent(WRONG_CONTEXT, &err), CL_INVALID_CONTEXT);
    REFUSED(clCreatePipe(WRONG_CONTEXT, 0, 4, 16, NULL, &err), CL_INVALID_CONTEXT,
            CL_INVALID_OPERATION);
}

SPEC_CASE(wrong_queues)
{
    cl_command_queue wrong = WRONG(cl_command_queue);
    cl_mem buffer = buffer_of(64), other = buffer_of(64);
    cl_kernel kernel = standard_kernel("write_id");
    cl_uint number = 0;
    cl_command_queue_properties properties = 0;
    OK(clSetKernelArg(kernel, 0, sizeof buffer, &buffer));
    EXPECT(clRetainCommandQueue(wrong), CL_INVALID_COMMAND_QUEUE);
    EXPECT(clReleaseCommandQueue(wrong), CL_INVALID_COMMAND_QUEUE);
    EXPECT(clGetCommandQueueInfo(wrong, CL_QUEUE_CONTEXT, 0, NULL, &size), CL_INVALID_COMMAND_QUEUE);
    EXPECT(clSetCommandQueueProperty(wrong, 0, CL_TRUE, &properties), CL_INVALID_COMMAND_QUEUE);
    EXPECT(clFlush(wrong), CL_INVALID_COMMAND_QUEUE);
    EXPECT(clFinish(wrong), CL_INVALID_COMMAND_QUEUE);
    EXPECT(clEnqueueReadBuffer(wrong, buffer, CL_TRUE, 0, 4, bytes, 0, NULL, NULL),
           CL_INVALID_COMMAND_QUEUE);
    EXPECT(clEnqueueWriteBuffer(wrong, buffer, CL_TRUE, 0, 4, bytes, 0, NULL, NULL),
           CL_INVALID_COMMAND_QUEUE);
    EXPECT(clEnqueueReadBufferRect(wrong, buffer, CL_TRUE, origin, origin, one, 0, 0, 0, 0, bytes, 0,
                                   NULL, NULL),
           CL_INVALID_COMMAND_QUEUE);
    EXPECT(clEnqueueWriteBufferRect(wrong, buffer, CL_TRUE, origin, origin, one, 0, 0, 0, 0, bytes, 0,
                                    NULL, NULL),
           CL_INVALID_COMMAND_QUEUE);
    EXPECT(clEnqueueCopyBuffer(wrong, buffer, other, 0, 0, 4, 0, NULL, NULL), CL_INVALID_COMMAND_QUEUE);
    EXPECT(clEnqueueCopyBufferRect(wrong, buffer, other, origin, origin, one, 0, 0, 0, 0, 0, NULL, NULL),
           CL_INVALID_COMMAND_QUEUE);
    EXPECT(clEnqueueFillBuffer(wrong, buffer, &number, 4, 0, 4, 0, NULL, NULL),
           CL_INVALID_COMMAND_QUEUE);
    EXPECT(clEnqueueMigrateMemObjects(wrong, 1, &buffer, 0, 0, NULL, NULL), CL_INVALID_COMMAND_QUEUE);
    CHECK(clEnqueueMapBuffer(wrong, buffer, CL_TRUE, CL_MAP_READ, 0, 4, 0, NULL, NULL, &err) == NULL);
    EXPECT(err, CL_INVALID_COMMAND_QUEUE);
    EXPECT(clEnqueueUnmapMemObject(wrong, buffer, bytes, 0, NULL, NULL), CL_INVALID_COMMAND_QUEUE);
    EXPECT(clEnqueueNDRangeKernel(wrong, kernel, 1, NULL, &four, NULL, 0, NULL, NULL),
           CL_INVALID_COMMAND_QUEUE);
    EXPECT(clEnqueueTask(wrong, kernel, 0, NULL, NULL), CL_INVALID_COMMAND_QUEUE);
    EXPECT(clEnqueueMarkerWithWaitList(wrong, 0, NULL, NULL), CL_INVALID_COMMAND_QUEUE);
    EXPECT(clEnqueueBarrierWithWaitList(wrong, 0, NULL, NULL), CL_INVALID_COMMAND_QUEUE);
    cl_event event = clCreateUserEvent(context, &err), made = NULL;
    OK(err);
    EXPECT(clEnqueueMarker(wrong, &made), CL_INVALID_COMMAND_QUEUE);
    EXPECT(clEnqueueBarrier(wrong), CL_INVALID_COMMAND_QUEUE);
    EXPECT(clEnqueueWaitForEvents(wrong, 1, &event), CL_INVALID_COMMAND_QUEUE);
    OK(clReleaseEvent(event));
    OK(clReleaseKernel(kernel));
    OK(clReleaseMemObject(other));
    OK(clReleaseMemObject(buffer));
}

SPEC_CASE(wrong_queues_of_images)
{
    cl_command_queue wrong = WRONG(cl_command_queue);
    const cl_image_desc desc = plain();
    cl_mem image = clCreateImage(context, 0, &rgba, &desc, NULL, &err);
    if (image == NULL)
        skip("no images");
    cl_mem buffer = buffer_of(64);
    const cl_uint colour[4] = {0, 0, 0, 0};
    size_t row = 0, slice = 0;
    EXPECT(clEnqueueReadImage(wrong, image, CL_TRUE, origin, one, 0, 0, bytes, 0, NULL, NULL),
           CL_INVALID_COMMAND_QUEUE);
    EXPECT(clEnqueueWriteImage(wrong, image, CL_TRUE, origin, one, 0, 0, bytes, 0, NULL, NULL),
           CL_INVALID_COMMAND_QUEUE);
    EXPECT(clEnqueueCopyImage(wrong, image, image, origin, origin, one, 0, NULL, NULL),
           CL_INVALID_COMMAND_QUEUE);
    EXPECT(clEnqueueCopyImageToBuffer(wrong, image, buffer, origin, one, 0, 0, NULL, NULL),
           CL_INVALID_COMMAND_QUEUE);
    EXPECT(clEnqueueCopyBufferToImage(wrong, buffer, image, 0, origin, one, 0, NULL, NULL),
           CL_INVALID_COMMAND_QUEUE);
    EXPECT(clEnqueueFillImage(wrong, image, colour, origin, one, 0, NULL, NULL),
           CL_INVALID_COMMAND_QUEUE);
    CHECK(clEnqueueMapImage(wrong, image, CL_TRUE, CL_MAP_READ, origin, one, &row, &slice, 0, NULL,
                            NULL, &err) == NULL);
    EXPECT(err, CL_INVALID_COMMAND_QUEUE);
    OK(clReleaseMemObject(buffer));
    OK(clReleaseMemObject(image));
}

SPEC_CASE(wrong_memory_objects)
{
    cl_mem wrong = WRONG(cl_mem);
    cl_mem buffer = buffer_of(64);
    const cl_buffer_region part = {0, 4};
    const cl_uint colour[4] = {0, 0, 0, 0};
    size_t row = 0, slice = 0;
    EXPECT(clRetainMemObject(wrong), CL_INVALID_MEM_OBJECT);
    EXPECT(clReleaseMemObject(wrong), CL_INVALID_MEM_OBJECT);
    EXPECT(clGetMemObjectInfo(wrong, CL_MEM_SIZE, 0, NULL, &size), CL_INVALID_MEM_OBJECT);
    EXPECT(clGetImageInfo(wrong, CL_IMAGE_WIDTH, 0, NULL, &size), CL_INVALID_MEM_OBJECT);
    EXPECT(clGetPipeInfo(wrong, CL_PIPE_PACKET_SIZE, 0, NULL, &size), CL_INVALID_MEM_OBJECT);
    EXPECT(clSetMemObjectDestructorCallback(wrong, NULL, NULL), CL_INVALID_MEM_OBJECT,
           CL_INVALID_VALUE);
    REFUSED(clCreateSubBuffer(wrong, 0, CL_BUFFER_CREATE_TYPE_REGION, &part, &err),
            CL_INVALID_MEM_OBJECT);
    EXPECT(clEnqueueReadBuffer(queue, wrong, CL_TRUE, 0, 4, bytes, 0, NULL, NULL),
           CL_INVALID_MEM_OBJECT);
    EXPECT(clEnqueueWriteBuffer(queue, wrong, CL_TRUE, 0, 4, bytes, 0, NULL, NULL),
           CL_INVALID_MEM_OBJECT);
    EXPECT(clEnqueueReadBufferRect(queue, wrong, CL_TRUE, origin, origin, one, 0, 0, 0, 0, bytes, 0,
                                   NULL, NULL),
           CL_INVALID_MEM_OBJECT);
    EXPECT(clEnqueueWriteBufferRect(queue, wrong, CL_TRUE, origin, origin, one, 0, 0, 0, 0, bytes, 0,
                                    NULL, NULL),
           CL_INVALID_MEM_OBJECT);
    EXPECT(clEnqueueCopyBuffer(queue, wrong, buffer, 0, 0, 4, 0, NULL, NULL), CL_INVALID_MEM_OBJECT);
    EXPECT(clEnqueueCopyBuffer(queue, buffer, wrong, 0, 0, 4, 0, NULL, NULL), CL_INVALID_MEM_OBJECT);
    EXPECT(clEnqueueCopyBufferRect(queue, wrong, buffer, origin, origin, one, 0, 0, 0, 0, 0, NULL, NULL),
           CL_INVALID_MEM_OBJECT);
    EXPECT(clEnqueueFillBuffer(queue, wrong, colour, 4, 0, 4, 0, NULL, NULL), CL_INVALID_MEM_OBJECT);
    EXPECT(clEnqueueMigrateMemObjects(queue, 1, &wrong, 0, 0, NULL, NULL), CL_INVALID_MEM_OBJECT);
    CHECK(clEnqueueMapBuffer(queue, wrong, CL_TRUE, CL_MAP_READ, 0, 4, 0, NULL, NULL, &err) == NULL);
    EXPECT(err, CL_INVALID_MEM_OBJECT);
    EXPECT(clEnqueueUnmapMemObject(queue, wrong, bytes, 0, NULL, NULL), CL_INVALID_MEM_OBJECT);
    EXPECT(clEnqueueReadImage(queue, wrong, CL_TRUE, origin, one, 0, 0, bytes, 0, NULL, NULL),
           CL_INVALID_MEM_OBJECT);
    EXPECT(clEnqueueWriteImage(queue, wrong, CL_TRUE, origin, one, 0, 0, bytes, 0, NULL, NULL),
           CL_INVALID_MEM_OBJECT);
    EXPECT(clEnqueueCopyImage(queue, wrong, wrong, origin, origin, one, 0, NULL, NULL),
           CL_INVALID_MEM_OBJECT);
    EXPECT(clEnqueueCopyImageToBuffer(queue, wrong, buffer, origin, one, 0, 0, NULL, NULL),
           CL_INVALID_MEM_OBJECT);
    EXPECT(clEnqueueCopyBufferToImage(queue, buffer, wrong, 0, origin, one, 0, NULL, NULL),
           CL_INVALID_MEM_OBJECT);
    EXPECT(clEnqueueFillImage(queue, wrong, colour, origin, one, 0, NULL, NULL),
           CL_INVALID_MEM_OBJECT);
    CHECK(clEnqueueMapImage(queue, wrong, CL_TRUE, CL_MAP_READ, origin, one, &row, &slice, 0, NULL,
                            NULL, &err) == NULL);
    EXPECT(err, CL_INVALID_MEM_OBJECT);
    /* A buffer is not an image, either. */
    EXPECT(clEnqueueReadImage(queue, buffer, CL_TRUE, origin, one, 0, 0, bytes, 0, NULL, NULL),
           CL_INVALID_MEM_OBJECT);
    EXPECT(clGetImageInfo(buffer, CL_IMAGE_WIDTH, 0, NULL, &size), CL_INVALID_MEM_OBJECT);
    cl_kernel kernel = standard_kernel("write_id");
    EXPECT(clSetKernelArg(kernel, 0, sizeof wrong, &wrong), CL_INVALID_MEM_OBJECT);
    OK(clReleaseKernel(kernel));
    OK(clReleaseMemObject(buffer));
}

SPEC_CASE(wrong_samplers)
{
    cl_sampler wrong = WRONG(cl_sampler);
    EXPECT(clRetainSampler(wrong), CL_INVALID_SAMPLER);
    EXPECT(clReleaseSampler(wrong), CL_INVALID_SAMPLER);
    EXPECT(clGetSamplerInfo(wrong, CL_SAMPLER_CONTEXT, 0, NULL, &size), CL_INVALID_SAMPLER);
    if (!has_images())
        return;
    cl_program program = program_from("kernel void sampled(read_only image2d_t from, sampler_t how,\n"
                                      "                    global float4 *to)\n"
                                      "{ *to = read_imagef(from, how, (float2)(0, 0)); }\n",
                                      "");
    cl_kernel kernel = clCreateKernel(program, "sampled", &err);
    OK(err);
    EXPECT(clSetKernelArg(kernel, 1, sizeof wrong, &wrong), CL_INVALID_SAMPLER);
    EXPECT(clSetKernelArg(kernel, 1, sizeof wrong, NULL), CL_INVALID_SAMPLER);
    OK(clReleaseKernel(kernel));
    OK(clReleaseProgram(program));
}

SPEC_CASE(wrong_programs)
{
    cl_program wrong = WRONG(cl_program);
    cl_uint count = 0, value = 0;
    EXPECT(clRetainProgram(wrong), CL_INVALID_PROGRAM);
    EXPECT(clReleaseProgram(wrong), CL_INVALID_PROGRAM);
    EXPECT(clBuildProgram(wrong, 0, NULL, "", NULL, NULL), CL_INVALID_PROGRAM);
    EXPECT(clCompileProgram(wrong, 0, NULL, "", 0, NULL, NULL, NULL, NULL), CL_INVALID_PROGRAM);
    REFUSED(clLinkProgram(context, 0, NULL, "", 1, &wrong, NULL, NULL, &err), CL_INVALID_PROGRAM);
    EXPECT(clGetProgramInfo(wrong, CL_PROGRAM_SOURCE, 0, NULL, &size), CL_INVALID_PROGRAM);
    EXPECT(clGetProgramBuildInfo(wrong, device, CL_PROGRAM_BUILD_LOG, 0, NULL, &size),
           CL_INVALID_PROGRAM);
    REFUSED(clCreateKernel(wrong, "write_id", &err), CL_INVALID_PROGRAM);
    EXPECT(clCreateKernelsInProgram(wrong, 0, NULL, &count), CL_INVALID_PROGRAM);
    EXPECT(clSetProgramSpecializationConstant(wrong, 0, 4, &value), CL_INVALID_PROGRAM,
           CL_INVALID_OPERATION);
    EXPECT(clSetProgramReleaseCallback(wrong, NULL, NULL), CL_INVALID_PROGRAM, CL_INVALID_OPERATION,
           CL_INVALID_VALUE);
    cl_program program = clCreateProgramWithSource(context, 1, (const char *[]){STANDARD_SOURCE}, NULL, &err);
    OK(err);
    const cl_device_id none = WRONG(cl_device_id);
    EXPECT(clBuildProgram(program, 1, &none, "", NULL, NULL), CL_INVALID_DEVICE);
    EXPECT(clCompileProgram(program, 1, &none, "", 0, NULL, NULL, NULL, NULL), CL_INVALID_DEVICE);
    EXPECT(clGetProgramBuildInfo(program, none, CL_PROGRAM_BUILD_LOG, 0, NULL, &size),
           CL_INVALID_DEVICE);
    OK(clCompileProgram(program, 1, &device, "", 0, NULL, NULL, NULL, NULL));
    REFUSED(clLinkProgram(context, 1, &none, "", 1, &program, NULL, NULL, &err), CL_INVALID_DEVICE);
    const unsigned char *binary = (const unsigned char *)bytes;
    const size_t length = 8;
    REFUSED(clCreateProgramWithBinary(context, 1, &none, &length, &binary, NULL, &err),
            CL_INVALID_DEVICE);
    REFUSED(clCreateProgramWithBuiltInKernels(context, 1, &none, "x", &err), CL_INVALID_DEVICE);
    OK(clReleaseProgram(program));
}

SPEC_CASE(wrong_kernels)
{
    cl_kernel wrong = WRONG(cl_kernel);
    cl_mem buffer = buffer_of(64);
    EXPECT(clRetainKernel(wrong), CL_INVALID_KERNEL);
    EXPECT(clReleaseKernel(wrong), CL_INVALID_KERNEL);
    REFUSED(clCloneKernel(wrong, &err), CL_INVALID_KERNEL);
    EXPECT(clSetKernelArg(wrong, 0, sizeof buffer, &buffer), CL_INVALID_KERNEL);
    EXPECT(clSetKernelArgSVMPointer(wrong, 0, NULL), CL_INVALID_KERNEL, CL_INVALID_OPERATION);
    EXPECT(clSetKernelExecInfo(wrong, CL_KERNEL_EXEC_INFO_SVM_PTRS, 0, NULL), CL_INVALID_KERNEL,
           CL_INVALID_OPERATION, CL_INVALID_VALUE);
    EXPECT(clGetKernelInfo(wrong, CL_KERNEL_FUNCTION_NAME, 0, NULL, &size), CL_INVALID_KERNEL);
    EXPECT(clGetKernelArgInfo(wrong, 0, CL_KERNEL_ARG_NAME, 0, NULL, &size), CL_INVALID_KERNEL);
    EXPECT(clGetKernelWorkGroupInfo(wrong, device, CL_KERNEL_WORK_GROUP_SIZE, 0, NULL, &size),
           CL_INVALID_KERNEL);
    EXPECT(clGetKernelSubGroupInfo(wrong, device, CL_KERNEL_MAX_NUM_SUB_GROUPS, 0, NULL, 0, NULL, &size),
           CL_INVALID_KERNEL, CL_INVALID_OPERATION);
    EXPECT(clEnqueueNDRangeKernel(queue, wrong, 1, NULL, &four, NULL, 0, NULL, NULL),
           CL_INVALID_KERNEL);
    EXPECT(clEnqueueTask(queue, wrong, 0, NULL, NULL), CL_INVALID_KERNEL);
    cl_kernel kernel = standard_kernel("write_id");
    EXPECT(clGetKernelWorkGroupInfo(kernel, WRONG(cl_device_id), CL_KERNEL_WORK_GROUP_SIZE, 0, NULL,
                                    &size),
           CL_INVALID_DEVICE);
    EXPECT(clGetKernelSubGroupInfo(kernel, WRONG(cl_device_id), CL_KERNEL_MAX_NUM_SUB_GROUPS, 0, NULL,
                                   0, NULL, &size),
           CL_INVALID_DEVICE, CL_INVALID_OPERATION);
    OK(clReleaseKernel(kernel));
    OK(clReleaseMemObject(buffer));
}

SPEC_CASE(wrong_events)
{
    cl_event wrong = WRONG(cl_event);
    EXPECT(clRetainEvent(wrong), CL_INVALID_EVENT);
    EXPECT(clReleaseEvent(wrong), CL_INVALID_EVENT);
    EXPECT(clGetEventInfo(wrong, CL_EVENT_COMMAND_TYPE, 0, NULL, &size), CL_INVALID_EVENT);
    EXPECT(clGetEventProfilingInfo(wrong, CL_PROFILING_COMMAND_END, 0, NULL, &size), CL_INVALID_EVENT);
    EXPECT(clSetUserEventStatus(wrong, CL_COMPLETE), CL_INVALID_EVENT);
    EXPECT(clSetEventCallback(wrong, CL_COMPLETE, NULL, NULL), CL_INVALID_EVENT, CL_INVALID_VALUE);
    EXPECT(clWaitForEvents(1, &wrong), CL_INVALID_EVENT);
    EXPECT(clEnqueueWaitForEvents(queue, 1, &wrong), CL_INVALID_EVENT);
    EXPECT(clEnqueueMarkerWithWaitList(queue, 1, &wrong, NULL), CL_INVALID_EVENT_WAIT_LIST);
    EXPECT(clEnqueueBarrierWithWaitList(queue, 1, &wrong, NULL), CL_INVALID_EVENT_WAIT_LIST);
}
