/* Calls of OpenCL 1.0 and 1.1 that later versions replaced. They still work. */
#include "../cltest.h"

CASE(old_marker)
{
    cl_event event;
    cl_command_type type = 0;
    EXPECT(clEnqueueMarker(queue, &event), CL_SUCCESS);
    OK(clWaitForEvents(1, &event));
    OK(clGetEventInfo(event, CL_EVENT_COMMAND_TYPE, sizeof type, &type, NULL));
    EQUAL(type, CL_COMMAND_MARKER);
    OK(clReleaseEvent(event));
    EXPECT(clEnqueueMarker(NULL, &event), CL_INVALID_COMMAND_QUEUE);
}

SPEC_CASE(old_marker_without_event)
{
    EXPECT(clEnqueueMarker(queue, NULL), CL_INVALID_VALUE);
}

CASE(old_barrier)
{
    cl_mem buffer = counting_buffer(16, 0);
    cl_kernel kernel = standard_kernel("add");
    set_add(kernel, buffer, 1);
    launch(queue, kernel, 16);
    EXPECT(clEnqueueBarrier(queue), CL_SUCCESS);
    launch(queue, kernel, 16);
    CHECK(holds_counting(buffer, 16, 2, 1));
    EXPECT(clEnqueueBarrier(NULL), CL_INVALID_COMMAND_QUEUE);
    OK(clReleaseKernel(kernel));
    OK(clReleaseMemObject(buffer));
}

SPEC_CASE(old_wait_for_events)
{
    cl_event event;
    int back[16] = {0};
    cl_command_queue other = queue_with(0);
    cl_mem buffer = counting_buffer(16, 0);
    cl_kernel kernel = standard_kernel("add");
    const size_t count = 16;
    set_add(kernel, buffer, 30);
    OK(clEnqueueNDRangeKernel(queue, kernel, 1, NULL, &count, NULL, 0, NULL, &event));
    OK(clFlush(queue));
    EXPECT(clEnqueueWaitForEvents(other, 1, &event), CL_SUCCESS);
    OK(clEnqueueReadBuffer(other, buffer, CL_TRUE, 0, sizeof back, back, 0, NULL, NULL));
    EQUAL(back[15], 45);
    OK(clReleaseEvent(event));
    OK(clReleaseKernel(kernel));
    OK(clReleaseMemObject(buffer));
    OK(clReleaseCommandQueue(other));
}

SPEC_CASE(old_wait_for_events_errors)
{
    cl_event none = NULL;
    EXPECT(clEnqueueWaitForEvents(queue, 0, NULL), CL_INVALID_VALUE);
    EXPECT(clEnqueueWaitForEvents(queue, 1, NULL), CL_INVALID_VALUE);
    EXPECT(clEnqueueWaitForEvents(queue, 1, &none), CL_INVALID_EVENT);
    EXPECT(clEnqueueWaitForEvents(NULL, 1, &none), CL_INVALID_COMMAND_QUEUE);
}

CASE(old_unload_compiler)
{
    EXPECT(clUnloadCompiler(), CL_SUCCESS);
    cl_kernel kernel = standard_kernel("add");
    OK(clReleaseKernel(kernel));
}

CASE(old_extension_function_address)
{
    CHECK(clGetExtensionFunctionAddress("clNoSuchThingEXT") == NULL);
    fact("unknown functions have no address");
}

CASE(old_command_queue_and_task)
{
    cl_mem buffer = counting_buffer(1, 1);
    cl_kernel kernel = standard_kernel("add");
    cl_command_queue on = clCreateCommandQueue(context, device, CL_QUEUE_PROFILING_ENABLE, &err);
    EXPECT(err, CL_SUCCESS);
    set_add(kernel, buffer, 41);
    OK(clEnqueueTask(on, kernel, 0, NULL, NULL));
    OK(clFinish(on));
    CHECK(holds_counting(buffer, 1, 42, 0));
    OK(clReleaseKernel(kernel));
    OK(clReleaseMemObject(buffer));
    OK(clReleaseCommandQueue(on));
}
