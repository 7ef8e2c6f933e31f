/* Contexts: creation, properties, information. */
#include "../cltest.h"

static void CL_CALLBACK notified(const char *text, const void *data, size_t size, void *user)
{
    (void)text, (void)data, (void)size, (void)user;
}

CASE(context_create_and_info)
{
    cl_uint count = 0;
    cl_device_id held = NULL;
    EXPECT(clGetContextInfo(context, CL_CONTEXT_NUM_DEVICES, sizeof count, &count, NULL),
           CL_SUCCESS);
    EQUAL(count, 1);
    OK(clGetContextInfo(context, CL_CONTEXT_DEVICES, sizeof held, &held, NULL));
    CHECK(held == device);
    size_t size = 1;
    OK(clGetContextInfo(context, CL_CONTEXT_DEVICES, 0, NULL, &size));
    EQUAL(size, sizeof(cl_device_id));
}

CASE(context_info_rules)
{
    INFO_RULES(clGetContextInfo, context, CL_CONTEXT_REFERENCE_COUNT);
    INFO_RULES(clGetContextInfo, context, CL_CONTEXT_DEVICES);
    INFO_RULES(clGetContextInfo, context, CL_CONTEXT_NUM_DEVICES);
    EXPECT(clGetContextInfo(context, UNKNOWN_INFO, 0, NULL, NULL), CL_INVALID_VALUE);
}

CASE(context_properties_echoed)
{
    const cl_context_properties properties[] = {CL_CONTEXT_PLATFORM,
                                                (cl_context_properties)platform, 0};
    cl_context_properties told[8] = {0};
    size_t size = 0;
    cl_context made = clCreateContext(properties, 1, &device, NULL, NULL, &err);
    OK(err);
    OK(clGetContextInfo(made, CL_CONTEXT_PROPERTIES, sizeof told, told, &size));
    EQUAL(size, sizeof properties);
    CHECK(memcmp(told, properties, sizeof properties) == 0);
    OK(clReleaseContext(made));
}

CASE(context_without_properties)
{
    size_t size = 77;
    EXPECT(clGetContextInfo(context, CL_CONTEXT_PROPERTIES, 0, NULL, &size), CL_SUCCESS);
    fact("no properties, size 0 or one terminator: %s",
         size == 0 || size == sizeof(cl_context_properties) ? "yes" : "no");
}

CASE(context_create_errors)
{
    cl_device_id none = NULL;
    int user = 0;
    REFUSED(clCreateContext(NULL, 0, &device, NULL, NULL, &err), CL_INVALID_VALUE);
    REFUSED(clCreateContext(NULL, 1, NULL, NULL, NULL, &err), CL_INVALID_VALUE);
    REFUSED(clCreateContext(NULL, 1, &device, NULL, &user, &err), CL_INVALID_VALUE);
    (void)none;
}

SPEC_CASE(context_null_device)
{
    cl_device_id devices[2] = {device, NULL};
    REFUSED(clCreateContext(NULL, 2, devices, NULL, NULL, &err), CL_INVALID_DEVICE);
}

SPEC_CASE(context_property_errors)
{
    const cl_context_properties unknown[] = {0x7777, 1, 0};
    const cl_context_properties twice[] = {CL_CONTEXT_PLATFORM, (cl_context_properties)platform,
                                           CL_CONTEXT_PLATFORM, (cl_context_properties)platform,
                                           0};
    const cl_context_properties sync[] = {CL_CONTEXT_INTEROP_USER_SYNC, CL_FALSE, 0};
    REFUSED(clCreateContext(unknown, 1, &device, NULL, NULL, &err), CL_INVALID_PROPERTY);
    REFUSED(clCreateContext(twice, 1, &device, NULL, NULL, &err), CL_INVALID_PROPERTY);
    cl_context made = clCreateContext(sync, 1, &device, NULL, NULL, &err);
    EXPECT(err, CL_SUCCESS);
    if (made != NULL)
        OK(clReleaseContext(made));
}

CASE(context_duplicate_devices)
{
    cl_device_id devices[3] = {device, device, device};
    cl_uint count = 0;
    cl_context made = clCreateContext(NULL, 3, devices, NULL, NULL, &err);
    OK(err);
    OK(clGetContextInfo(made, CL_CONTEXT_NUM_DEVICES, sizeof count, &count, NULL));
    EQUAL(count, 1);
    OK(clReleaseContext(made));
}

CASE(context_from_type)
{
    const cl_context_properties properties[] = {CL_CONTEXT_PLATFORM,
                                                (cl_context_properties)platform, 0};
    cl_context made =
        clCreateContextFromType(properties, CL_DEVICE_TYPE_ALL, NULL, NULL, &err);
    OK(err);
    cl_uint held = 0, offered = 0;
    OK(clGetContextInfo(made, CL_CONTEXT_NUM_DEVICES, sizeof held, &held, NULL));
    OK(clGetDeviceIDs(platform, CL_DEVICE_TYPE_ALL, 0, NULL, &offered));
    EQUAL(held == offered, 1);
    OK(clReleaseContext(made));
    made = clCreateContextFromType(properties, CL_DEVICE_TYPE_DEFAULT, notified, NULL, &err);
    EXPECT(err, CL_SUCCESS);
    OK(clReleaseContext(made));
}

SPEC_CASE(context_from_type_errors)
{
    const cl_context_properties properties[] = {CL_CONTEXT_PLATFORM,
                                                (cl_context_properties)platform, 0};
    int user = 0;
    REFUSED(clCreateContextFromType(properties, (cl_device_type)1 << 40, NULL, NULL, &err),
            CL_INVALID_DEVICE_TYPE);
    REFUSED(clCreateContextFromType(properties, CL_DEVICE_TYPE_ALL, NULL, &user, &err),
            CL_INVALID_VALUE);
    cl_uint count = 0;
    if (clGetDeviceIDs(platform, CL_DEVICE_TYPE_ACCELERATOR, 0, NULL, &count) == CL_SUCCESS)
        skip("the platform has an accelerator");
    REFUSED(clCreateContextFromType(properties, CL_DEVICE_TYPE_ACCELERATOR, NULL, NULL, &err),
            CL_DEVICE_NOT_FOUND);
}

CASE(context_reference_count)
{
    cl_uint count = 0;
    cl_context made = another_context();
    OK(clGetContextInfo(made, CL_CONTEXT_REFERENCE_COUNT, sizeof count, &count, NULL));
    EQUAL(count, 1);
    OK(clRetainContext(made));
    OK(clGetContextInfo(made, CL_CONTEXT_REFERENCE_COUNT, sizeof count, &count, NULL));
    EQUAL(count, 2);
    OK(clReleaseContext(made));
    OK(clGetContextInfo(made, CL_CONTEXT_REFERENCE_COUNT, sizeof count, &count, NULL));
    EQUAL(count, 1);
    OK(clReleaseContext(made));
}

SPEC_CASE(context_count_is_the_applications)
{
    cl_uint count = 0;
    cl_mem buffer = buffer_of(64);
    cl_kernel kernel = standard_kernel("add");
    OK(clGetContextInfo(context, CL_CONTEXT_REFERENCE_COUNT, sizeof count, &count, NULL));
    EQUAL(count, 1);
    OK(clReleaseMemObject(buffer));
    OK(clReleaseKernel(kernel));
}

CASE(context_null)
{
    EXPECT(clRetainContext(NULL), CL_INVALID_CONTEXT);
    EXPECT(clReleaseContext(NULL), CL_INVALID_CONTEXT);
    EXPECT(clGetContextInfo(NULL, CL_CONTEXT_DEVICES, 0, NULL, NULL), CL_INVALID_CONTEXT);
    REFUSED(clCreateBuffer(NULL, 0, 16, NULL, &err), CL_INVALID_CONTEXT);
    REFUSED(clCreateCommandQueue(NULL, device, 0, &err), CL_INVALID_CONTEXT);
    REFUSED(clCreateUserEvent(NULL, &err), CL_INVALID_CONTEXT);
    const char *source = "";
    REFUSED(clCreateProgramWithSource(NULL, 1, &source, NULL, &err), CL_INVALID_CONTEXT);
}

SPEC_CASE(context_wrong_kind)
{
    EXPECT(clRetainContext((cl_context)device), CL_INVALID_CONTEXT);
    EXPECT(clGetContextInfo((cl_context)queue, CL_CONTEXT_DEVICES, 0, NULL, NULL),
           CL_INVALID_CONTEXT);
    REFUSED(clCreateBuffer((cl_context)queue, 0, 16, NULL, &err), CL_INVALID_CONTEXT);
}

CASE(context_many)
{
    cl_context made[16];
    for (int i = 0; i < 16; ++i)
        made[i] = another_context();
    for (int i = 0; i < 16; ++i)
        OK(clReleaseContext(made[(i * 7) % 16]));
    fact("16 contexts at once");
}

CASE(context_released_while_objects_live)
{
    cl_context made = another_context();
    cl_command_queue on = clCreateCommandQueue(made, device, 0, &err);
    OK(err);
    cl_mem buffer = clCreateBuffer(made, 0, 64, NULL, &err);
    OK(err);
    OK(clReleaseContext(made));
    char data[64] = "still there", back[64] = "";
    OK(clEnqueueWriteBuffer(on, buffer, CL_TRUE, 0, 64, data, 0, NULL, NULL));
    OK(clEnqueueReadBuffer(on, buffer, CL_TRUE, 0, 64, back, 0, NULL, NULL));
    fact("%s", back);
    OK(clReleaseMemObject(buffer));
    OK(clReleaseCommandQueue(on));
}

SPEC_CASE(context_without_properties_has_size_zero)
{
    size_t size = 77;
    OK(clGetContextInfo(context, CL_CONTEXT_PROPERTIES, 0, NULL, &size));
    EQUAL(size, 0);
}
