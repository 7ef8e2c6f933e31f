/*
 * Wrong arguments that the specification names and no other case covers: image descriptors, access flags,
 * properties and launch sizes. Other cases here use features that a device or program lacks.
 */
#define CL_TARGET_OPENCL_VERSION 300
#include "../refused.h"

SPEC_CASE(images_with_properties)
{
    needs_images();
    cl_image_desc desc = plain(), wide = plain(), strange = plain(), empty = plain();
    const cl_image_format none = {0x9999, CL_UNORM_INT8}, odd = {CL_RGB, CL_UNORM_INT8};
    const cl_mem_properties properties[] = {0}, unknown[] = {0x7777, 1, 0};
    wide.image_width = (size_t)1 << 40;
    strange.image_type = 0x7777;
    empty.image_height = 0;
    cl_mem image = clCreateImageWithProperties(context, properties, 0, &rgba, &desc, NULL, &err);
    OK(err);
    OK(clReleaseMemObject(image));
    REFUSED(clCreateImageWithProperties(context, unknown, 0, &rgba, &desc, NULL, &err),
            CL_INVALID_PROPERTY);
    REFUSED(clCreateImageWithProperties(context, NULL, 1u << 30, &rgba, &desc, NULL, &err),
            CL_INVALID_VALUE);
    REFUSED(clCreateImageWithProperties(context, NULL, 0, NULL, &desc, NULL, &err),
            CL_INVALID_IMAGE_FORMAT_DESCRIPTOR);
    REFUSED(clCreateImageWithProperties(context, NULL, 0, &none, &desc, NULL, &err),
            CL_INVALID_IMAGE_FORMAT_DESCRIPTOR);
    REFUSED(clCreateImageWithProperties(context, NULL, 0, &odd, &desc, NULL, &err),
            CL_INVALID_IMAGE_FORMAT_DESCRIPTOR, CL_IMAGE_FORMAT_NOT_SUPPORTED);
    const cl_image_format rare = {CL_LUMINANCE, CL_SNORM_INT16};
    cl_mem perhaps = clCreateImageWithProperties(context, NULL, 0, &rare, &desc, NULL, &err);
    CHECK(perhaps != NULL || err == CL_IMAGE_FORMAT_NOT_SUPPORTED);
    if (perhaps != NULL)
        OK(clReleaseMemObject(perhaps));
    REFUSED(clCreateImageWithProperties(context, NULL, 0, &rgba, NULL, NULL, &err),
            CL_INVALID_IMAGE_DESCRIPTOR);
    REFUSED(clCreateImageWithProperties(context, NULL, 0, &rgba, &strange, NULL, &err),
            CL_INVALID_IMAGE_DESCRIPTOR);
    REFUSED(clCreateImageWithProperties(context, NULL, 0, &rgba, &empty, NULL, &err),
            CL_INVALID_IMAGE_DESCRIPTOR, CL_INVALID_IMAGE_SIZE);
    REFUSED(clCreateImageWithProperties(context, NULL, 0, &rgba, &wide, NULL, &err),
            CL_INVALID_IMAGE_SIZE);
    REFUSED(clCreateImageWithProperties(context, NULL, CL_MEM_USE_HOST_PTR, &rgba, &desc, NULL, &err),
            CL_INVALID_HOST_PTR);
    REFUSED(clCreateImageWithProperties(context, NULL, 0, &rgba, &desc, bytes, &err),
            CL_INVALID_HOST_PTR);
}

SPEC_CASE(images_of_old)
{
    needs_images();
    const cl_image_format none = {0x9999, CL_UNORM_INT8};
    cl_mem image = clCreateImage2D(context, 0, &rgba, 4, 4, 0, NULL, &err);
    OK(err);
    OK(clReleaseMemObject(image));
    image = clCreateImage3D(context, CL_MEM_READ_ONLY, &rgba, 4, 4, 4, 0, 0, NULL, &err);
    OK(err);
    OK(clReleaseMemObject(image));
    REFUSED(clCreateImage2D(context, 1u << 30, &rgba, 4, 4, 0, NULL, &err), CL_INVALID_VALUE);
    REFUSED(clCreateImage3D(context, 1u << 30, &rgba, 4, 4, 4, 0, 0, NULL, &err), CL_INVALID_VALUE);
    REFUSED(clCreateImage2D(context, 0, &none, 4, 4, 0, NULL, &err), CL_INVALID_IMAGE_FORMAT_DESCRIPTOR);
    REFUSED(clCreateImage3D(context, 0, NULL, 4, 4, 4, 0, 0, NULL, &err),
            CL_INVALID_IMAGE_FORMAT_DESCRIPTOR);
    REFUSED(clCreateImage2D(context, 0, &rgba, 0, 4, 0, NULL, &err), CL_INVALID_IMAGE_SIZE);
    REFUSED(clCreateImage3D(context, 0, &rgba, 4, 4, 0, 0, 0, NULL, &err), CL_INVALID_IMAGE_SIZE);
    REFUSED(clCreateImage2D(context, CL_MEM_USE_HOST_PTR, &rgba, 4, 4, 0, NULL, &err),
            CL_INVALID_HOST_PTR);
    REFUSED(clCreateImage3D(context, 0, &rgba, 4, 4, 4, 0, 0, bytes, &err), CL_INVALID_HOST_PTR);
}

/* Finds the first legal format that the device lacks, if there is one. */
SPEC_CASE(formats_that_the_device_lacks)
{
    needs_images();
    const cl_channel_order orders[] = {CL_LUMINANCE, CL_INTENSITY, CL_RA, CL_RG, CL_A, CL_ARGB, CL_sRGBA};
    const cl_channel_type types[] = {CL_SNORM_INT8, CL_SNORM_INT16, CL_UNORM_INT16, CL_HALF_FLOAT,
                                     CL_UNORM_INT8};
    cl_image_format have[512];
    cl_uint count = 0;
    OK(clGetSupportedImageFormats(context, CL_MEM_READ_WRITE, CL_MEM_OBJECT_IMAGE2D, 512, have, &count));
    for (size_t o = 0; o < sizeof orders / sizeof *orders; ++o)
        for (size_t t = 0; t < sizeof types / sizeof *types; ++t) {
            const cl_image_format format = {orders[o], types[t]};
            const int eight = types[t] == CL_SNORM_INT8 || types[t] == CL_UNORM_INT8;
            if ((orders[o] == CL_ARGB && !eight) || (orders[o] == CL_sRGBA && types[t] != CL_UNORM_INT8))
                continue;
            int there = 0;
            for (cl_uint i = 0; i < count && !there; ++i)
                there = have[i].image_channel_order == orders[o] &&
                        have[i].image_channel_data_type == types[t];
            if (there)
                continue;
            const cl_image_desc desc = plain();
            REFUSED(clCreateImage(context, CL_MEM_READ_WRITE, &format, &desc, NULL, &err),
                    CL_IMAGE_FORMAT_NOT_SUPPORTED);
            REFUSED(clCreateImageWithProperties(context, NULL, CL_MEM_READ_WRITE, &format, &desc, NULL, &err),
                    CL_IMAGE_FORMAT_NOT_SUPPORTED);
            REFUSED(clCreateImage2D(context, CL_MEM_READ_WRITE, &format, 4, 4, 0, NULL, &err),
                    CL_IMAGE_FORMAT_NOT_SUPPORTED);
            REFUSED(clCreateImage3D(context, CL_MEM_READ_WRITE, &format, 4, 4, 4, 0, 0, NULL, &err),
                    CL_IMAGE_FORMAT_NOT_SUPPORTED);
            return;
        }
    skip("the device has every format");
}

SPEC_CASE(images_that_the_host_may_not_touch)
{
    needs_images();
    const cl_image_desc desc = plain();
    cl_mem closed = clCreateImage(context, CL_MEM_HOST_NO_ACCESS, &rgba, &desc, NULL, &err);
    OK(err);
    size_t row = 0, slice = 0;
    EXPECT(clEnqueueReadImage(queue, closed, CL_TRUE, origin, one, 0, 0, bytes, 0, NULL, NULL),
           CL_INVALID_OPERATION);
    EXPECT(clEnqueueWriteImage(queue, closed, CL_TRUE, origin, one, 0, 0, bytes, 0, NULL, NULL),
           CL_INVALID_OPERATION);
    CHECK(clEnqueueMapImage(queue, closed, CL_TRUE, CL_MAP_READ, origin, one, &row, &slice, 0, NULL,
                            NULL, &err) == NULL);
    EXPECT(err, CL_INVALID_OPERATION);
    OK(clReleaseMemObject(closed));
}

SPEC_CASE(copies_of_images_that_do_not_fit)
{
    needs_images();
    const cl_image_desc desc = plain();
    const cl_image_format wide = {CL_RGBA, CL_FLOAT};
    cl_mem first = clCreateImage(context, 0, &rgba, &desc, NULL, &err);
    OK(err);
    cl_mem second = clCreateImage(context, 0, &wide, &desc, NULL, &err);
    OK(err);
    const size_t all[3] = {4, 4, 1}, many[3] = {5, 1, 1}, at[3] = {1, 1, 0};
    EXPECT(clEnqueueCopyImage(queue, first, second, origin, origin, one, 0, NULL, NULL),
           CL_IMAGE_FORMAT_MISMATCH);
    EXPECT(clEnqueueCopyImage(queue, first, first, origin, at, many, 0, NULL, NULL), CL_INVALID_VALUE);
    EXPECT(clEnqueueCopyImage(queue, first, first, origin, origin, all, 0, NULL, NULL),
           CL_MEM_COPY_OVERLAP);
    OK(clReleaseMemObject(second));
    OK(clReleaseMemObject(first));
}

SPEC_CASE(samplers_with_properties)
{
    needs_images();
    const cl_sampler_properties properties[] = {CL_SAMPLER_NORMALIZED_COORDS, CL_FALSE,
                                                CL_SAMPLER_FILTER_MODE, CL_FILTER_LINEAR, 0};
    const cl_sampler_properties unknown[] = {0x7777, 1, 0};
    const cl_sampler_properties twice[] = {CL_SAMPLER_FILTER_MODE, CL_FILTER_LINEAR,
                                           CL_SAMPLER_FILTER_MODE, CL_FILTER_LINEAR, 0};
    cl_sampler sampler = clCreateSamplerWithProperties(context, properties, &err);
    OK(err);
    cl_filter_mode mode = 0;
    OK(clGetSamplerInfo(sampler, CL_SAMPLER_FILTER_MODE, sizeof mode, &mode, NULL));
    EQUAL(mode, CL_FILTER_LINEAR);
    OK(clReleaseSampler(sampler));
    REFUSED(clCreateSamplerWithProperties(context, unknown, &err), CL_INVALID_VALUE);
    REFUSED(clCreateSamplerWithProperties(context, twice, &err), CL_INVALID_VALUE);
}

SPEC_CASE(buffers_with_properties)
{
    const cl_mem_properties unknown[] = {0x7777, 1, 0};
    REFUSED(clCreateBufferWithProperties(context, unknown, 0, 64, NULL, &err), CL_INVALID_PROPERTY);
    REFUSED(clCreateBufferWithProperties(context, NULL, 1u << 30, 64, NULL, &err), CL_INVALID_VALUE);
    REFUSED(clCreateBufferWithProperties(context, NULL, 0, 0, NULL, &err), CL_INVALID_BUFFER_SIZE);
    REFUSED(clCreateBufferWithProperties(context, NULL, CL_MEM_COPY_HOST_PTR, 64, NULL, &err),
            CL_INVALID_HOST_PTR);
}

SPEC_CASE(queues_and_contexts_with_properties)
{
    const cl_context_properties twice[] = {CL_CONTEXT_PLATFORM, (cl_context_properties)platform,
                                           CL_CONTEXT_PLATFORM, (cl_context_properties)platform, 0};
    REFUSED(clCreateContextFromType(twice, CL_DEVICE_TYPE_ALL, NULL, NULL, &err), CL_INVALID_PROPERTY);
    EXPECT(clGetPlatformIDs(0, NULL, NULL), CL_INVALID_VALUE);
    cl_uint count = 0;
    OK(clGetPlatformIDs(0, NULL, &count));
    cl_command_queue_properties had = 0;
    EXPECT(clSetCommandQueueProperty(queue, (cl_command_queue_properties)1 << 30, CL_TRUE, &had),
           CL_INVALID_VALUE, CL_INVALID_OPERATION);
    cl_ulong host = 0, there = 0;
    EXPECT(clGetDeviceAndHostTimer(device, NULL, &host), CL_INVALID_VALUE, CL_INVALID_OPERATION);
    EXPECT(clGetDeviceAndHostTimer(device, &there, NULL), CL_INVALID_VALUE, CL_INVALID_OPERATION);
    EXPECT(clGetHostTimer(device, NULL), CL_INVALID_VALUE, CL_INVALID_OPERATION);
}

/* A queue with properties that the device lacks. */
SPEC_CASE(queues_that_the_device_lacks)
{
    cl_command_queue_properties on_host = 0, on_device = 0;
    OK(clGetDeviceInfo(device, CL_DEVICE_QUEUE_PROPERTIES, sizeof on_host, &on_host, NULL));
    if (clGetDeviceInfo(device, CL_DEVICE_QUEUE_ON_DEVICE_PROPERTIES, sizeof on_device, &on_device, NULL) !=
        CL_SUCCESS)
        on_device = 0;
    const cl_queue_properties out[] = {CL_QUEUE_PROPERTIES, CL_QUEUE_OUT_OF_ORDER_EXEC_MODE_ENABLE, 0};
    const cl_queue_properties own[] = {
        CL_QUEUE_PROPERTIES,
        CL_QUEUE_ON_DEVICE | CL_QUEUE_OUT_OF_ORDER_EXEC_MODE_ENABLE, 0};
    if ((on_host & CL_QUEUE_OUT_OF_ORDER_EXEC_MODE_ENABLE) == 0) {
        REFUSED(clCreateCommandQueue(context, device, CL_QUEUE_OUT_OF_ORDER_EXEC_MODE_ENABLE, &err),
                CL_INVALID_QUEUE_PROPERTIES);
        REFUSED(clCreateCommandQueueWithProperties(context, device, out, &err),
                CL_INVALID_QUEUE_PROPERTIES);
    }
    if (on_device == 0)
        REFUSED(clCreateCommandQueueWithProperties(context, device, own, &err),
                CL_INVALID_QUEUE_PROPERTIES, CL_INVALID_VALUE);
    fact("what the device lacks is refused");
}

SPEC_CASE(launches_out_of_range)
{
    cl_mem buffer = buffer_of(64);
    cl_kernel kernel = standard_kernel("write_id");
    OK(clSetKernelArg(kernel, 0, sizeof buffer, &buffer));
    size_t most[3] = {0, 0, 0}, group = 0;
    cl_uint bits = 0;
    OK(clGetDeviceInfo(device, CL_DEVICE_MAX_WORK_ITEM_SIZES, sizeof most, most, NULL));
    OK(clGetDeviceInfo(device, CL_DEVICE_MAX_WORK_GROUP_SIZE, sizeof group, &group, NULL));
    OK(clGetDeviceInfo(device, CL_DEVICE_ADDRESS_BITS, sizeof bits, &bits, NULL));
    const size_t global[3] = {1, 1, most[2] * 2}, local[3] = {1, 1, most[2] * 2};
    EXPECT(clEnqueueNDRangeKernel(queue, kernel, 3, NULL, global, local, 0, NULL, NULL),
           CL_INVALID_WORK_ITEM_SIZE, CL_INVALID_WORK_GROUP_SIZE);
    const size_t last = SIZE_MAX;
    if (bits == 64)
        EXPECT(clEnqueueNDRangeKernel(queue, kernel, 1, &last, &four, NULL, 0, NULL, NULL),
               CL_INVALID_GLOBAL_OFFSET);
    cl_kernel unset = standard_kernel("write_id");
    EXPECT(clEnqueueTask(queue, unset, 0, NULL, NULL), CL_INVALID_KERNEL_ARGS);
    cl_context other = another_context();
    cl_command_queue elsewhere = clCreateCommandQueue(other, device, 0, &err);
    OK(err);
    EXPECT(clEnqueueTask(elsewhere, kernel, 0, NULL, NULL), CL_INVALID_CONTEXT);
    OK(clReleaseCommandQueue(elsewhere));
    OK(clReleaseContext(other));
    OK(clReleaseKernel(unset));
    OK(clReleaseKernel(kernel));
    OK(clReleaseMemObject(buffer));
}

SPEC_CASE(links_with_strange_options)
{
    cl_program program = clCreateProgramWithSource(context, 1, (const char *[]){STANDARD_SOURCE}, NULL, &err);
    OK(err);
    OK(clCompileProgram(program, 1, &device, "", 0, NULL, NULL, NULL, NULL));
    /* A compiler that checks options only at the link may report them in the log of a failed link instead. */
    cl_program linked = clLinkProgram(context, 1, &device, "-no-such-option", 1, &program, NULL, NULL, &err);
    EXPECT(err, CL_INVALID_LINKER_OPTIONS, CL_LINK_PROGRAM_FAILURE);
    if (linked != NULL)
        OK(clReleaseProgram(linked));
    OK(clReleaseProgram(program));
}

SPEC_CASE(built_in_kernels)
{
    char names[4096] = "";
    OK(clGetDeviceInfo(device, CL_DEVICE_BUILT_IN_KERNELS, sizeof names, names, NULL));
    REFUSED(clCreateProgramWithBuiltInKernels(context, 1, &device, "no.such.kernel", &err),
            CL_INVALID_VALUE);
    REFUSED(clCreateProgramWithBuiltInKernels(context, 1, &device, NULL, &err), CL_INVALID_VALUE);
    if (names[0] == '\0')
        return;
    cl_program program = clCreateProgramWithBuiltInKernels(context, 1, &device, names, &err);
    OK(err);
    OK(clReleaseProgram(program));
}

SPEC_CASE(callbacks_of_programs)
{
    cl_program program = program_from(STANDARD_SOURCE, "");
    EXPECT(clSetProgramReleaseCallback(program, NULL, NULL), CL_INVALID_VALUE, CL_INVALID_OPERATION);
    OK(clReleaseProgram(program));
    OK(clUnloadCompiler());
    OK(clUnloadPlatformCompiler(platform));
}
