/* Command queues. */
#include "../cltest.h"

CASE(queue_info)
{
    cl_context owner = NULL;
    cl_device_id on = NULL;
    cl_command_queue_properties properties = 77;
    OK(clGetCommandQueueInfo(queue, CL_QUEUE_CONTEXT, sizeof owner, &owner, NULL));
    OK(clGetCommandQueueInfo(queue, CL_QUEUE_DEVICE, sizeof on, &on, NULL));
    OK(clGetCommandQueueInfo(queue, CL_QUEUE_PROPERTIES, sizeof properties, &properties, NULL));
    CHECK(owner == context && on == device);
    EQUAL(properties, 0);
}

CASE(queue_info_rules)
{
    INFO_RULES(clGetCommandQueueInfo, queue, CL_QUEUE_CONTEXT);
    INFO_RULES(clGetCommandQueueInfo, queue, CL_QUEUE_DEVICE);
    INFO_RULES(clGetCommandQueueInfo, queue, CL_QUEUE_REFERENCE_COUNT);
    INFO_RULES(clGetCommandQueueInfo, queue, CL_QUEUE_PROPERTIES);
    EXPECT(clGetCommandQueueInfo(queue, UNKNOWN_INFO, 0, NULL, NULL), CL_INVALID_VALUE);
}

CASE(queue_properties_kept)
{
    const cl_command_queue_properties offered = device_number(CL_DEVICE_QUEUE_PROPERTIES);
    for (cl_command_queue_properties asked = 0; asked < 4; ++asked) {
        if ((asked & offered) != asked)
            continue;
        cl_command_queue_properties told = 77;
        cl_command_queue made = queue_with(asked);
        OK(clGetCommandQueueInfo(made, CL_QUEUE_PROPERTIES, sizeof told, &told, NULL));
        CHECK(told == asked);
        fact("properties %d are kept", (int)asked);
        OK(clReleaseCommandQueue(made));
    }
}

CASE(queue_create_errors)
{
    REFUSED(clCreateCommandQueue(context, NULL, 0, &err), CL_INVALID_DEVICE);
    REFUSED(clCreateCommandQueue(context, device, (cl_command_queue_properties)1 << 20, &err),
            CL_INVALID_VALUE);
}

CASE(queue_reference_count)
{
    cl_uint count = 0;
    cl_command_queue made = queue_with(0);
    OK(clRetainCommandQueue(made));
    OK(clRetainCommandQueue(made));
    OK(clGetCommandQueueInfo(made, CL_QUEUE_REFERENCE_COUNT, sizeof count, &count, NULL));
    EQUAL(count, 3);
    OK(clReleaseCommandQueue(made));
    OK(clReleaseCommandQueue(made));
    OK(clGetCommandQueueInfo(made, CL_QUEUE_REFERENCE_COUNT, sizeof count, &count, NULL));
    EQUAL(count, 1);
    OK(clReleaseCommandQueue(made));
}

SPEC_CASE(queue_count_is_the_applications)
{
    cl_uint count = 0;
    cl_event marker;
    OK(clEnqueueMarkerWithWaitList(queue, 0, NULL, &marker));
    OK(clGetCommandQueueInfo(queue, CL_QUEUE_REFERENCE_COUNT, sizeof count, &count, NULL));
    EQUAL(count, 1);
    OK(clReleaseEvent(marker));
}

CASE(queue_null)
{
    EXPECT(clRetainCommandQueue(NULL), CL_INVALID_COMMAND_QUEUE);
    EXPECT(clReleaseCommandQueue(NULL), CL_INVALID_COMMAND_QUEUE);
    EXPECT(clGetCommandQueueInfo(NULL, CL_QUEUE_CONTEXT, 0, NULL, NULL),
           CL_INVALID_COMMAND_QUEUE);
    EXPECT(clFlush(NULL), CL_INVALID_COMMAND_QUEUE);
    EXPECT(clFinish(NULL), CL_INVALID_COMMAND_QUEUE);
}

SPEC_CASE(queue_wrong_kind)
{
    EXPECT(clFlush((cl_command_queue)context), CL_INVALID_COMMAND_QUEUE);
    EXPECT(clFinish((cl_command_queue)device), CL_INVALID_COMMAND_QUEUE);
    EXPECT(clGetCommandQueueInfo((cl_command_queue)context, CL_QUEUE_CONTEXT, 0, NULL, NULL),
           CL_INVALID_COMMAND_QUEUE);
}

CASE(queue_release_flushes)
{
    int value[4] = {0};
    cl_mem buffer = counting_buffer(4, 10);
    cl_event done;
    cl_command_queue made = queue_with(0);
    OK(clEnqueueReadBuffer(made, buffer, CL_FALSE, 0, sizeof value, value, 0, NULL, &done));
    OK(clReleaseCommandQueue(made));
    EXPECT(clWaitForEvents(1, &done), CL_SUCCESS);
    fact("%d %d %d %d", value[0], value[1], value[2], value[3]);
    OK(clReleaseEvent(done));
    OK(clReleaseMemObject(buffer));
}

CASE(queue_finish_after_flush)
{
    cl_mem buffer = counting_buffer(1, 1);
    cl_kernel kernel = standard_kernel("spin");
    const cl_uint turns = SPIN_LONG;
    OK(clSetKernelArg(kernel, 0, sizeof buffer, &buffer));
    OK(clSetKernelArg(kernel, 1, sizeof turns, &turns));
    const size_t one = 1;
    cl_event done;
    OK(clEnqueueNDRangeKernel(queue, kernel, 1, NULL, &one, NULL, 0, NULL, &done));
    EXPECT(clFlush(queue), CL_SUCCESS);
    EXPECT(clFinish(queue), CL_SUCCESS);
    EQUAL(status_of(done), CL_COMPLETE);
    EXPECT(clFinish(queue), CL_SUCCESS);
    EXPECT(clFlush(queue), CL_SUCCESS);
    OK(clReleaseEvent(done));
    OK(clReleaseKernel(kernel));
    OK(clReleaseMemObject(buffer));
}

CASE(queue_many)
{
    cl_command_queue made[32];
    cl_mem buffer = counting_buffer(32, 0);
    int values[32] = {0};
    for (int i = 0; i < 32; ++i) {
        made[i] = queue_with(0);
        OK(clEnqueueReadBuffer(made[i], buffer, CL_FALSE, 4 * (size_t)i, 4, &values[i], 0, NULL,
                               NULL));
    }
    for (int i = 0; i < 32; ++i) {
        OK(clFinish(made[i]));
        CHECK(values[i] == i);
        OK(clReleaseCommandQueue(made[i]));
    }
    fact("32 queues on one device");
    OK(clReleaseMemObject(buffer));
}

SPEC_CASE(queue_set_property)
{
    cl_command_queue_properties before = 0;
    EXPECT(clSetCommandQueueProperty(queue, CL_QUEUE_PROFILING_ENABLE, CL_FALSE, &before),
           CL_SUCCESS, CL_INVALID_OPERATION);
    EXPECT(clSetCommandQueueProperty(NULL, CL_QUEUE_PROFILING_ENABLE, CL_FALSE, &before),
           CL_INVALID_COMMAND_QUEUE, CL_INVALID_OPERATION);
}

CASE(queue_with_properties)
{
    static const cl_bitfield list[] = {CL_QUEUE_PROPERTIES, CL_QUEUE_PROFILING_ENABLE, 0};
    typedef cl_command_queue(CL_API_CALL * create)(cl_context, cl_device_id, const cl_bitfield *,
                                                   cl_int *);
    extern cl_command_queue CL_API_CALL clCreateCommandQueueWithProperties(
        cl_context, cl_device_id, const cl_bitfield *, cl_int *);
    const create make = clCreateCommandQueueWithProperties;
    static const cl_bitfield unknown[] = {0x7777, 1, 0};
    cl_command_queue made = make(context, device, list, &err);
    OK(err);
    cl_command_queue_properties told = 0;
    OK(clGetCommandQueueInfo(made, CL_QUEUE_PROPERTIES, sizeof told, &told, NULL));
    EQUAL(told, CL_QUEUE_PROFILING_ENABLE);
    OK(clReleaseCommandQueue(made));
    made = make(context, device, NULL, &err);
    EXPECT(err, CL_SUCCESS);
    OK(clReleaseCommandQueue(made));
    REFUSED(make(context, device, unknown, &err), CL_INVALID_VALUE);
    REFUSED(make(NULL, device, list, &err), CL_INVALID_CONTEXT);
    REFUSED(make(context, NULL, list, &err), CL_INVALID_DEVICE);
}
