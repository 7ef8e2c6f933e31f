/*
 * Objects of another context, invalid wait lists, and events that failed before a blocking call. The cases
 * cover the functions of buffers, rectangles, images and launches.
 */
#define CL_TARGET_OPENCL_VERSION 300
#include "../refused.h"

static cl_mem image_in(cl_context where, cl_channel_order order)
{
    const cl_image_format format = {order, CL_UNORM_INT8};
    const cl_image_desc desc = plain();
    return clCreateImage(where, CL_MEM_READ_WRITE, &format, &desc, NULL, &err);
}

SPEC_CASE(other_contexts_buffers)
{
    const cl_uint number = 0;
    cl_context other = another_context();
    cl_mem buffer = buffer_of(64);
    cl_mem strange = clCreateBuffer(other, 0, 64, NULL, &err);
    OK(err);
    EXPECT(clEnqueueReadBufferRect(queue, strange, CL_TRUE, origin, origin, one, 0, 0, 0, 0, bytes, 0,
                                   NULL, NULL),
           CL_INVALID_CONTEXT);
    EXPECT(clEnqueueWriteBufferRect(queue, strange, CL_TRUE, origin, origin, one, 0, 0, 0, 0, bytes, 0,
                                    NULL, NULL),
           CL_INVALID_CONTEXT);
    EXPECT(clEnqueueCopyBufferRect(queue, strange, buffer, origin, origin, one, 0, 0, 0, 0, 0, NULL, NULL),
           CL_INVALID_CONTEXT);
    EXPECT(clEnqueueCopyBufferRect(queue, buffer, strange, origin, origin, one, 0, 0, 0, 0, 0, NULL, NULL),
           CL_INVALID_CONTEXT);
    EXPECT(clEnqueueFillBuffer(queue, strange, &number, 4, 0, 4, 0, NULL, NULL), CL_INVALID_CONTEXT);
    EXPECT(clEnqueueMigrateMemObjects(queue, 1, &strange, 0, 0, NULL, NULL), CL_INVALID_CONTEXT);
    CHECK(clEnqueueMapBuffer(queue, strange, CL_TRUE, CL_MAP_READ, 0, 4, 0, NULL, NULL, &err) == NULL);
    EXPECT(err, CL_INVALID_CONTEXT);
    EXPECT(clEnqueueUnmapMemObject(queue, strange, bytes, 0, NULL, NULL), CL_INVALID_CONTEXT);
    OK(clReleaseMemObject(strange));
    OK(clReleaseMemObject(buffer));
    OK(clReleaseContext(other));
}

SPEC_CASE(other_contexts_events)
{
    cl_context other = another_context();
    cl_event strange = clCreateUserEvent(other, &err);
    OK(err);
    cl_mem buffer = buffer_of(64);
    cl_kernel kernel = standard_kernel("write_id");
    OK(clSetKernelArg(kernel, 0, sizeof buffer, &buffer));
    EXPECT(clEnqueueTask(queue, kernel, 1, &strange, NULL), CL_INVALID_CONTEXT);
    EXPECT(clEnqueueNDRangeKernel(queue, kernel, 1, NULL, &four, NULL, 1, &strange, NULL),
           CL_INVALID_CONTEXT);
    EXPECT(clEnqueueWaitForEvents(queue, 1, &strange), CL_INVALID_CONTEXT);
    EXPECT(clEnqueueBarrierWithWaitList(queue, 1, &strange, NULL), CL_INVALID_CONTEXT);
    EXPECT(clEnqueueMarkerWithWaitList(queue, 1, &strange, NULL), CL_INVALID_CONTEXT);
    OK(clSetUserEventStatus(strange, CL_COMPLETE));
    OK(clReleaseEvent(strange));
    OK(clReleaseKernel(kernel));
    OK(clReleaseMemObject(buffer));
    OK(clReleaseContext(other));
}

SPEC_CASE(other_contexts_images)
{
    needs_images();
    cl_context other = another_context();
    cl_mem image = image_in(context, CL_RGBA), strange = image_in(other, CL_RGBA);
    cl_mem buffer = buffer_of(64);
    const cl_uint colour[4] = {0, 0, 0, 0};
    size_t row = 0, slice = 0;
    EXPECT(clEnqueueReadImage(queue, strange, CL_TRUE, origin, one, 0, 0, bytes, 0, NULL, NULL),
           CL_INVALID_CONTEXT);
    EXPECT(clEnqueueWriteImage(queue, strange, CL_TRUE, origin, one, 0, 0, bytes, 0, NULL, NULL),
           CL_INVALID_CONTEXT);
    EXPECT(clEnqueueCopyImage(queue, image, strange, origin, origin, one, 0, NULL, NULL),
           CL_INVALID_CONTEXT);
    EXPECT(clEnqueueCopyImageToBuffer(queue, strange, buffer, origin, one, 0, 0, NULL, NULL),
           CL_INVALID_CONTEXT);
    EXPECT(clEnqueueCopyBufferToImage(queue, buffer, strange, 0, origin, one, 0, NULL, NULL),
           CL_INVALID_CONTEXT);
    EXPECT(clEnqueueFillImage(queue, strange, colour, origin, one, 0, NULL, NULL), CL_INVALID_CONTEXT);
    CHECK(clEnqueueMapImage(queue, strange, CL_TRUE, CL_MAP_READ, origin, one, &row, &slice, 0, NULL,
                            NULL, &err) == NULL);
    EXPECT(err, CL_INVALID_CONTEXT);
    OK(clReleaseMemObject(buffer));
    OK(clReleaseMemObject(strange));
    OK(clReleaseMemObject(image));
    OK(clReleaseContext(other));
}

SPEC_CASE(wait_lists_that_are_none)
{
    cl_mem buffer = buffer_of(64), second = buffer_of(64);
    cl_event event = clCreateUserEvent(context, &err);
    OK(err);
    /* Passes a count without a list, and a list without a count. */
    EXPECT(clEnqueueCopyBufferRect(queue, buffer, second, origin, origin, one, 0, 0, 0, 0, 1, NULL, NULL),
           CL_INVALID_EVENT_WAIT_LIST);
    EXPECT(clEnqueueCopyBufferRect(queue, buffer, second, origin, origin, one, 0, 0, 0, 0, 0, &event, NULL),
           CL_INVALID_EVENT_WAIT_LIST);
    EXPECT(clEnqueueUnmapMemObject(queue, buffer, bytes, 1, NULL, NULL), CL_INVALID_EVENT_WAIT_LIST,
           CL_INVALID_VALUE);
    void *mapped = clEnqueueMapBuffer(queue, buffer, CL_TRUE, CL_MAP_READ, 0, 4, 0, NULL, NULL, &err);
    OK(err);
    EXPECT(clEnqueueUnmapMemObject(queue, buffer, mapped, 1, NULL, NULL), CL_INVALID_EVENT_WAIT_LIST);
    OK(clEnqueueUnmapMemObject(queue, buffer, mapped, 0, NULL, NULL));
    EXPECT(clWaitForEvents(0, &event), CL_INVALID_VALUE);
    EXPECT(clWaitForEvents(1, NULL), CL_INVALID_VALUE);
    OK(clSetUserEventStatus(event, CL_COMPLETE));
    OK(clReleaseEvent(event));
    OK(clReleaseMemObject(second));
    OK(clReleaseMemObject(buffer));
}

SPEC_CASE(wait_lists_of_images_that_are_none)
{
    needs_images();
    cl_mem image = image_in(context, CL_RGBA), buffer = buffer_of(64);
    const cl_uint colour[4] = {0, 0, 0, 0};
    size_t row = 0, slice = 0;
    EXPECT(clEnqueueReadImage(queue, image, CL_TRUE, origin, one, 0, 0, bytes, 1, NULL, NULL),
           CL_INVALID_EVENT_WAIT_LIST);
    EXPECT(clEnqueueWriteImage(queue, image, CL_TRUE, origin, one, 0, 0, bytes, 1, NULL, NULL),
           CL_INVALID_EVENT_WAIT_LIST);
    EXPECT(clEnqueueCopyImage(queue, image, image, origin, (const size_t[3]){2, 2, 0}, one, 1, NULL, NULL),
           CL_INVALID_EVENT_WAIT_LIST);
    EXPECT(clEnqueueCopyImageToBuffer(queue, image, buffer, origin, one, 0, 1, NULL, NULL),
           CL_INVALID_EVENT_WAIT_LIST);
    EXPECT(clEnqueueCopyBufferToImage(queue, buffer, image, 0, origin, one, 1, NULL, NULL),
           CL_INVALID_EVENT_WAIT_LIST);
    EXPECT(clEnqueueFillImage(queue, image, colour, origin, one, 1, NULL, NULL),
           CL_INVALID_EVENT_WAIT_LIST);
    CHECK(clEnqueueMapImage(queue, image, CL_TRUE, CL_MAP_READ, origin, one, &row, &slice, 1, NULL,
                            NULL, &err) == NULL);
    EXPECT(err, CL_INVALID_EVENT_WAIT_LIST);
    OK(clReleaseMemObject(buffer));
    OK(clReleaseMemObject(image));
}

SPEC_CASE(blocking_calls_after_a_failed_event)
{
    cl_mem buffer = buffer_of(64);
    cl_event failed = clCreateUserEvent(context, &err);
    OK(err);
    OK(clSetUserEventStatus(failed, -5));
    EXPECT(clEnqueueReadBuffer(queue, buffer, CL_TRUE, 0, 4, bytes, 1, &failed, NULL),
           CL_EXEC_STATUS_ERROR_FOR_EVENTS_IN_WAIT_LIST);
    EXPECT(clEnqueueWriteBuffer(queue, buffer, CL_TRUE, 0, 4, bytes, 1, &failed, NULL),
           CL_EXEC_STATUS_ERROR_FOR_EVENTS_IN_WAIT_LIST);
    EXPECT(clEnqueueReadBufferRect(queue, buffer, CL_TRUE, origin, origin, one, 0, 0, 0, 0, bytes, 1,
                                   &failed, NULL),
           CL_EXEC_STATUS_ERROR_FOR_EVENTS_IN_WAIT_LIST);
    EXPECT(clEnqueueWriteBufferRect(queue, buffer, CL_TRUE, origin, origin, one, 0, 0, 0, 0, bytes, 1,
                                    &failed, NULL),
           CL_EXEC_STATUS_ERROR_FOR_EVENTS_IN_WAIT_LIST);
    EXPECT(clWaitForEvents(1, &failed), CL_EXEC_STATUS_ERROR_FOR_EVENTS_IN_WAIT_LIST);
    OK(clReleaseEvent(failed));
    OK(clReleaseMemObject(buffer));
}

SPEC_CASE(blocking_calls_of_images_after_a_failed_event)
{
    needs_images();
    cl_mem image = image_in(context, CL_RGBA);
    cl_event failed = clCreateUserEvent(context, &err);
    OK(err);
    OK(clSetUserEventStatus(failed, -5));
    EXPECT(clEnqueueReadImage(queue, image, CL_TRUE, origin, one, 0, 0, bytes, 1, &failed, NULL),
           CL_EXEC_STATUS_ERROR_FOR_EVENTS_IN_WAIT_LIST);
    EXPECT(clEnqueueWriteImage(queue, image, CL_TRUE, origin, one, 0, 0, bytes, 1, &failed, NULL),
           CL_EXEC_STATUS_ERROR_FOR_EVENTS_IN_WAIT_LIST);
    OK(clReleaseEvent(failed));
    OK(clReleaseMemObject(image));
}
