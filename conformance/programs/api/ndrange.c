/* Launches: ranges, offsets, local sizes, and refused launches. */
#include "../cltest.h"

static cl_int ndrange(cl_kernel kernel, cl_uint dims, const size_t *offset, const size_t *global,
                      const size_t *local)
{
    return clEnqueueNDRangeKernel(queue, kernel, dims, offset, global, local, 0, NULL, NULL);
}

static void places(cl_uint dims, const size_t *offset, const size_t *global, const size_t *local)
{
    const size_t x = global[0], y = dims > 1 ? global[1] : 1, z = dims > 2 ? global[2] : 1;
    cl_uint *back = malloc(4 * x * y * z);
    cl_mem out = buffer_of(4 * x * y * z);
    cl_kernel kernel = standard_kernel("places");
    OK(clSetKernelArg(kernel, 0, sizeof out, &out));
    OK(ndrange(kernel, dims, offset, global, local));
    OK(clEnqueueReadBuffer(queue, out, CL_TRUE, 0, 4 * x * y * z, back, 0, NULL, NULL));
    const size_t ox = offset ? offset[0] : 0, oy = offset && dims > 1 ? offset[1] : 0,
                 oz = offset && dims > 2 ? offset[2] : 0;
    int right = 1;
    for (size_t k = 0; k < z; ++k)
        for (size_t j = 0; j < y; ++j)
            for (size_t i = 0; i < x; ++i)
                right &= back[(k * y + j) * x + i] == (i + ox) + 100 * (j + oy) + 10000 * (k + oz);
    CHECK(right);
    free(back);
    OK(clReleaseKernel(kernel));
    OK(clReleaseMemObject(out));
}

CASE(ndrange_dimensions)
{
    const size_t one[1] = {37}, two[2] = {13, 7}, three[3] = {5, 4, 3};
    places(1, NULL, one, NULL);
    places(2, NULL, two, NULL);
    places(3, NULL, three, NULL);
    fact("1, 2 and 3 dimensions");
}

CASE(ndrange_offset)
{
    const size_t global[3] = {6, 4, 2}, offset[3] = {11, 5, 2};
    places(1, offset, global, NULL);
    places(2, offset, global, NULL);
    places(3, offset, global, NULL);
    fact("ids begin at the offset");
}

CASE(ndrange_local_sizes)
{
    const size_t global[3] = {16, 8, 4}, a[3] = {4, 2, 2}, b[3] = {16, 1, 1}, c[3] = {1, 8, 4};
    places(3, NULL, global, a);
    places(3, NULL, global, b);
    places(3, NULL, global, c);
    fact("local sizes that divide the global size");
}

CASE(ndrange_large)
{
    const size_t count = 1 << 20;
    cl_uint *back = malloc(4 * count);
    cl_mem out = buffer_of(4 * count);
    cl_kernel kernel = standard_kernel("write_id");
    OK(clSetKernelArg(kernel, 0, sizeof out, &out));
    launch(queue, kernel, count);
    OK(clEnqueueReadBuffer(queue, out, CL_TRUE, 0, 4 * count, back, 0, NULL, NULL));
    int right = 1;
    for (size_t i = 0; i < count; ++i)
        right &= back[i] == i;
    CHECK(right);
    fact("a million work-items");
    free(back);
    OK(clReleaseKernel(kernel));
    OK(clReleaseMemObject(out));
}

CASE(ndrange_argument_errors)
{
    const size_t one[3] = {1, 1, 1};
    cl_mem buffer = buffer_of(64);
    cl_kernel kernel = standard_kernel("write_id");
    OK(clSetKernelArg(kernel, 0, sizeof buffer, &buffer));
    EXPECT(clEnqueueNDRangeKernel(NULL, kernel, 1, NULL, one, NULL, 0, NULL, NULL),
           CL_INVALID_COMMAND_QUEUE);
    EXPECT(ndrange(kernel, 0, NULL, one, NULL), CL_INVALID_WORK_DIMENSION);
    EXPECT(ndrange(kernel, 4, NULL, one, NULL), CL_INVALID_WORK_DIMENSION);
    OK(clReleaseKernel(kernel));
    OK(clReleaseMemObject(buffer));
}

SPEC_CASE(ndrange_null_kernel)
{
    const size_t one = 1;
    EXPECT(ndrange(NULL, 1, NULL, &one, NULL), CL_INVALID_KERNEL);
    EXPECT(clEnqueueTask(queue, NULL, 0, NULL, NULL), CL_INVALID_KERNEL);
}

SPEC_CASE(ndrange_zero_size)
{
    /* Devices of 2.1 and later run nothing and complete. Earlier devices refuse. */
    const size_t zero[2] = {4, 0};
    cl_event done = NULL;
    cl_mem buffer = buffer_of(64);
    cl_kernel kernel = standard_kernel("write_id");
    OK(clSetKernelArg(kernel, 0, sizeof buffer, &buffer));
    char version[128];
    OK(clGetDeviceInfo(device, CL_DEVICE_VERSION, sizeof version, version, NULL));
    if (strncmp(version, "OpenCL 3", 8) != 0 && strncmp(version, "OpenCL 2.", 9) != 0)
        skip("the device is older than 2.1");
    EXPECT(clEnqueueNDRangeKernel(queue, kernel, 2, NULL, zero, NULL, 0, NULL, &done), CL_SUCCESS);
    OK(clWaitForEvents(1, &done));
    cl_command_type type = 0;
    OK(clGetEventInfo(done, CL_EVENT_COMMAND_TYPE, sizeof type, &type, NULL));
    EQUAL(type, CL_COMMAND_NDRANGE_KERNEL);
    OK(clReleaseEvent(done));
    EXPECT(ndrange(kernel, 1, NULL, NULL, NULL), CL_SUCCESS);
    OK(clFinish(queue));
    OK(clReleaseKernel(kernel));
    OK(clReleaseMemObject(buffer));
}

CASE(ndrange_local_size_errors)
{
    size_t sizes[3] = {0};
    const size_t total = device_number(CL_DEVICE_MAX_WORK_GROUP_SIZE);
    OK(clGetDeviceInfo(device, CL_DEVICE_MAX_WORK_ITEM_SIZES, sizeof sizes, sizes, NULL));
    cl_mem buffer = buffer_of(64);
    cl_kernel kernel = standard_kernel("write_id");
    OK(clSetKernelArg(kernel, 0, sizeof buffer, &buffer));
    const size_t wide_global[2] = {2 * total, 2}, wide[2] = {total, 2};
    EXPECT(ndrange(kernel, 2, NULL, wide_global, wide), CL_INVALID_WORK_GROUP_SIZE);
    const size_t long_global = 2 * sizes[0], beyond = 2 * sizes[0];
    EXPECT(ndrange(kernel, 1, NULL, &long_global, &beyond), CL_INVALID_WORK_ITEM_SIZE,
           CL_INVALID_WORK_GROUP_SIZE);
    OK(clReleaseKernel(kernel));
    OK(clReleaseMemObject(buffer));
}

/* Not every driver accepts what CL_KERNEL_WORK_GROUP_SIZE reports. Programs go by the device's limit. */
CASE(ndrange_groups_up_to_the_devices_size)
{
    const size_t most = device_number(CL_DEVICE_MAX_WORK_GROUP_SIZE);
    cl_mem buffer = counting_buffer(2 * most, 0);
    cl_kernel kernel = standard_kernel("add");
    set_add(kernel, buffer, 1);
    for (size_t local = 1; local <= most; local *= 2) {
        const size_t global = 2 * local;
        EXPECT(ndrange(kernel, 1, NULL, &global, &local), CL_SUCCESS);
        OK(clFinish(queue));
    }
    OK(clReleaseKernel(kernel));
    OK(clReleaseMemObject(buffer));
}

SPEC_CASE(ndrange_local_size_zero)
{
    const size_t global[2] = {8, 8}, local[2] = {0, 1};
    cl_mem buffer = buffer_of(256);
    cl_kernel kernel = standard_kernel("write_id");
    OK(clSetKernelArg(kernel, 0, sizeof buffer, &buffer));
    EXPECT(ndrange(kernel, 2, NULL, global, local), CL_INVALID_WORK_GROUP_SIZE,
           CL_INVALID_WORK_ITEM_SIZE);
    OK(clReleaseKernel(kernel));
    OK(clReleaseMemObject(buffer));
}

CASE(ndrange_not_divided)
{
    const size_t global = 10, local = 4;
    cl_mem buffer = buffer_of(64);
    cl_program program = program_from(STANDARD_SOURCE, "-cl-std=CL1.2");
    cl_kernel kernel = clCreateKernel(program, "write_id", &err);
    OK(err);
    OK(clSetKernelArg(kernel, 0, sizeof buffer, &buffer));
    EXPECT(ndrange(kernel, 1, NULL, &global, &local), CL_INVALID_WORK_GROUP_SIZE);
    OK(clReleaseKernel(kernel));
    OK(clReleaseProgram(program));
    OK(clReleaseMemObject(buffer));
}

static const char *const FIXED_SOURCE =
    "kernel __attribute__((reqd_work_group_size(4, 2, 1))) void fixed(global int *x)\n"
    "{ x[get_global_id(1) * get_global_size(0) + get_global_id(0)] =\n"
    "      10 * get_local_size(0) + get_local_size(1); }\n";

CASE(ndrange_required_size)
{
    const size_t global[2] = {8, 4}, local[2] = {4, 2};
    cl_mem buffer = buffer_of(4 * 32);
    cl_program program = program_from(FIXED_SOURCE, "");
    cl_kernel kernel = clCreateKernel(program, "fixed", &err);
    OK(err);
    OK(clSetKernelArg(kernel, 0, sizeof buffer, &buffer));
    EXPECT(ndrange(kernel, 2, NULL, global, local), CL_SUCCESS);
    CHECK(holds_counting(buffer, 32, 42, 0));
    OK(clReleaseKernel(kernel));
    OK(clReleaseProgram(program));
    OK(clReleaseMemObject(buffer));
}

SPEC_CASE(ndrange_required_size_errors)
{
    const size_t global[2] = {8, 4}, wrong[2] = {2, 2};
    cl_mem buffer = buffer_of(4 * 32);
    cl_program program = program_from(FIXED_SOURCE, "");
    cl_kernel kernel = clCreateKernel(program, "fixed", &err);
    OK(err);
    OK(clSetKernelArg(kernel, 0, sizeof buffer, &buffer));
    EXPECT(ndrange(kernel, 2, NULL, global, wrong), CL_INVALID_WORK_GROUP_SIZE);
    /* Without a local size, older versions refuse the launch, and 3.0 takes the size from the attribute. */
    EXPECT(ndrange(kernel, 2, NULL, global, NULL), CL_INVALID_WORK_GROUP_SIZE, CL_SUCCESS);
    OK(clFinish(queue));
    OK(clReleaseKernel(kernel));
    OK(clReleaseProgram(program));
    OK(clReleaseMemObject(buffer));
}

SPEC_CASE(ndrange_other_context)
{
    const size_t one = 1;
    cl_context other = another_context();
    cl_command_queue on = clCreateCommandQueue(other, device, 0, &err);
    OK(err);
    cl_mem buffer = buffer_of(64);
    cl_kernel kernel = standard_kernel("write_id");
    OK(clSetKernelArg(kernel, 0, sizeof buffer, &buffer));
    EXPECT(clEnqueueNDRangeKernel(on, kernel, 1, NULL, &one, NULL, 0, NULL, NULL),
           CL_INVALID_CONTEXT);
    OK(clReleaseKernel(kernel));
    OK(clReleaseMemObject(buffer));
    OK(clReleaseCommandQueue(on));
    OK(clReleaseContext(other));
}

CASE(task)
{
    cl_event done;
    cl_command_type type = 0;
    cl_mem buffer = counting_buffer(2, 5);
    cl_kernel kernel = standard_kernel("add");
    set_add(kernel, buffer, 10);
    EXPECT(clEnqueueTask(queue, kernel, 0, NULL, &done), CL_SUCCESS);
    OK(clWaitForEvents(1, &done));
    int back[2];
    OK(clEnqueueReadBuffer(queue, buffer, CL_TRUE, 0, 8, back, 0, NULL, NULL));
    fact("%d %d", back[0], back[1]);
    OK(clGetEventInfo(done, CL_EVENT_COMMAND_TYPE, sizeof type, &type, NULL));
    CHECK(type == CL_COMMAND_TASK || type == CL_COMMAND_NDRANGE_KERNEL);
    EXPECT(clEnqueueTask(NULL, kernel, 0, NULL, NULL), CL_INVALID_COMMAND_QUEUE);
    OK(clReleaseEvent(done));
    OK(clReleaseKernel(kernel));
    OK(clReleaseMemObject(buffer));
}

static void CL_CALLBACK native(void *arguments)
{
    **(int **)arguments = 1;
}

CASE(native_kernel_as_announced)
{
    int ran = 0;
    int *arguments = &ran;
    const int announced =
        (device_number(CL_DEVICE_EXECUTION_CAPABILITIES) & CL_EXEC_NATIVE_KERNEL) != 0;
    const cl_int status = clEnqueueNativeKernel(queue, native, &arguments, sizeof arguments, 0,
                                                NULL, NULL, 0, NULL, NULL);
    CHECK(status == (announced ? CL_SUCCESS : CL_INVALID_OPERATION));
    OK(clFinish(queue));
    CHECK(ran == announced);
    fact("native kernels run where CL_EXEC_NATIVE_KERNEL says so and are refused elsewhere");
    EXPECT(clEnqueueNativeKernel(NULL, native, NULL, 0, 0, NULL, NULL, 0, NULL, NULL),
           CL_INVALID_COMMAND_QUEUE);
}

CASE(ndrange_many_launches)
{
    enum { COUNT = 2000 };
    cl_mem buffer = counting_buffer(16, 0);
    cl_kernel kernel = standard_kernel("add");
    set_add(kernel, buffer, 1);
    for (int i = 0; i < COUNT; ++i)
        launch(queue, kernel, 16);
    CHECK(holds_counting(buffer, 16, COUNT, 1));
    fact("2000 launches, none lost");
    OK(clReleaseKernel(kernel));
    OK(clReleaseMemObject(buffer));
}

CASE(kernel_printf)
{
    static const char *const source =
        "kernel void speak(int value) { printf(\"value %d, %s\\n\", value, \"said\"); }\n";
    cl_program program = program_from(source, "");
    cl_kernel kernel = clCreateKernel(program, "speak", &err);
    OK(err);
    for (int i = 0; i < 5; ++i) {
        OK(clSetKernelArg(kernel, 0, sizeof i, &i));
        fact("before %d", i);
        launch(queue, kernel, 1);
        OK(clFinish(queue));
        fact("after %d", i);
    }
    OK(clReleaseKernel(kernel));
    OK(clReleaseProgram(program));
}
