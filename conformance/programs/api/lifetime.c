/* Objects released while commands use them, and other ends of lifetimes. */
#include "../cltest.h"

#include <signal.h>
#include <sys/types.h>
#include <sys/wait.h>
#include <unistd.h>

static void CL_CALLBACK count_latch(cl_event event, cl_int status, void *user)
{
    (void)event, (void)status;
    latch_add(user);
}

static cl_kernel long_spin(cl_mem buffer)
{
    const cl_uint turns = SPIN_LONG;
    cl_kernel kernel = standard_kernel("spin");
    OK(clSetKernelArg(kernel, 0, sizeof buffer, &buffer));
    OK(clSetKernelArg(kernel, 1, sizeof turns, &turns));
    return kernel;
}

CASE(release_kernel_while_running)
{
    cl_mem buffer = counting_buffer(1, 2);
    cl_kernel kernel = long_spin(buffer);
    cl_uint value = 0;
    launch(queue, kernel, 1);
    OK(clReleaseKernel(kernel)); /* and with it its program */
    OK(clEnqueueReadBuffer(queue, buffer, CL_TRUE, 0, 4, &value, 0, NULL, NULL));
    CHECK(value == spun(2, SPIN_LONG));
    fact("the launch holds kernel and program");
    OK(clReleaseMemObject(buffer));
}

CASE(release_program_before_kernel)
{
    cl_uint count = 0;
    cl_mem buffer = counting_buffer(8, 0);
    cl_program program = program_from(STANDARD_SOURCE, "");
    cl_kernel kernel = clCreateKernel(program, "add", &err);
    OK(err);
    OK(clReleaseProgram(program));
    set_add(kernel, buffer, 6);
    launch(queue, kernel, 8);
    CHECK(holds_counting(buffer, 8, 6, 1));
    OK(clGetKernelInfo(kernel, CL_KERNEL_NUM_ARGS, sizeof count, &count, NULL));
    EQUAL(count, 2);
    OK(clReleaseKernel(kernel));
    OK(clReleaseMemObject(buffer));
}

CASE(release_buffer_while_running)
{
    cl_event done;
    const size_t one = 1;
    cl_mem buffer = counting_buffer(1, 2);
    cl_kernel kernel = long_spin(buffer);
    OK(clEnqueueNDRangeKernel(queue, kernel, 1, NULL, &one, NULL, 0, NULL, &done));
    OK(clReleaseMemObject(buffer));
    EXPECT(clWaitForEvents(1, &done), CL_SUCCESS);
    EQUAL(status_of(done), CL_COMPLETE);
    OK(clReleaseEvent(done));
    OK(clReleaseKernel(kernel));
}

CASE(release_buffer_with_pending_transfers)
{
    static int values[4096], back[4096];
    cl_event read;
    for (int i = 0; i < 4096; ++i)
        values[i] = i ^ 0x55;
    cl_mem buffer = buffer_of(sizeof values);
    OK(clEnqueueWriteBuffer(queue, buffer, CL_FALSE, 0, sizeof values, values, 0, NULL, NULL));
    OK(clEnqueueReadBuffer(queue, buffer, CL_FALSE, 0, sizeof back, back, 0, NULL, &read));
    OK(clReleaseMemObject(buffer));
    OK(clWaitForEvents(1, &read));
    CHECK(memcmp(values, back, sizeof values) == 0);
    fact("pending transfers hold their buffer");
    OK(clReleaseEvent(read));
}

CASE(release_queue_while_running)
{
    cl_event done;
    const size_t one = 1;
    cl_uint value = 0;
    cl_command_queue other = queue_with(0);
    cl_mem buffer = counting_buffer(1, 4);
    cl_kernel kernel = long_spin(buffer);
    OK(clEnqueueNDRangeKernel(other, kernel, 1, NULL, &one, NULL, 0, NULL, &done));
    OK(clReleaseCommandQueue(other));
    EXPECT(clWaitForEvents(1, &done), CL_SUCCESS);
    OK(clEnqueueReadBuffer(queue, buffer, CL_TRUE, 0, 4, &value, 0, NULL, NULL));
    CHECK(value == spun(4, SPIN_LONG));
    OK(clReleaseEvent(done));
    OK(clReleaseKernel(kernel));
    OK(clReleaseMemObject(buffer));
}

SPEC_CASE(event_outlives_everything)
{
    cl_context own = another_context();
    cl_command_queue on = clCreateCommandQueue(own, device, 0, &err);
    OK(err);
    cl_mem buffer = clCreateBuffer(own, 0, 64, NULL, &err);
    OK(err);
    cl_event done;
    OK(clEnqueueFillBuffer(on, buffer, &(cl_int){3}, 4, 0, 64, 0, NULL, &done));
    OK(clReleaseMemObject(buffer));
    OK(clReleaseCommandQueue(on));
    OK(clReleaseContext(own));
    EXPECT(clWaitForEvents(1, &done), CL_SUCCESS);
    EQUAL(status_of(done), CL_COMPLETE);
    cl_context owner = NULL;
    OK(clGetEventInfo(done, CL_EVENT_CONTEXT, sizeof owner, &owner, NULL));
    CHECK(owner == own);
    OK(clReleaseEvent(done));
}

CASE(everything_released_at_once)
{
    for (int i = 0; i < 5; ++i) {
        cl_mem buffer = counting_buffer(1024, 0);
        cl_kernel kernel = standard_kernel("add");
        cl_command_queue on = queue_with(0);
        set_add(kernel, buffer, 1);
        for (int n = 0; n < 20; ++n)
            launch(on, kernel, 1024);
        OK(clReleaseKernel(kernel));
        OK(clReleaseMemObject(buffer));
        OK(clReleaseCommandQueue(on));
    }
    EXPECT(clFinish(queue), CL_SUCCESS);
}

SPEC_CASE(released_buffer_as_argument)
{
    /* The kernel holds no reference to its arguments. A launch with a dead argument must fail, not crash. */
    const size_t one = 1;
    cl_mem buffer = buffer_of(64);
    cl_kernel kernel = standard_kernel("write_id");
    OK(clSetKernelArg(kernel, 0, sizeof buffer, &buffer));
    OK(clReleaseMemObject(buffer));
    const cl_int status =
        clEnqueueNDRangeKernel(queue, kernel, 1, NULL, &one, NULL, 0, NULL, NULL);
    CHECK(status != CL_SUCCESS);
    fact("a launch with a dead argument is refused");
    OK(clReleaseKernel(kernel));
}

SPEC_CASE(dead_handles_among_arguments)
{
    /* The queue is alive, but the other objects of the call are not. */
    char memory[4];
    const size_t one = 1;
    cl_event done;
    cl_mem buffer = buffer_of(64);
    cl_kernel kernel = standard_kernel("write_id");
    cl_event event = clCreateUserEvent(context, &err);
    OK(err);
    OK(clSetUserEventStatus(event, CL_COMPLETE));
    OK(clReleaseMemObject(buffer));
    OK(clReleaseKernel(kernel));
    OK(clReleaseEvent(event));
    EXPECT(clEnqueueReadBuffer(queue, buffer, CL_TRUE, 0, 4, memory, 0, NULL, NULL),
           CL_INVALID_MEM_OBJECT);
    EXPECT(clEnqueueNDRangeKernel(queue, kernel, 1, NULL, &one, NULL, 0, NULL, NULL),
           CL_INVALID_KERNEL);
    EXPECT(clEnqueueMarkerWithWaitList(queue, 1, &event, &done), CL_INVALID_EVENT_WAIT_LIST);
    OK(clFinish(queue));
}

SPEC_CASE(dead_handles_released_again)
{
    cl_mem buffer = buffer_of(64);
    cl_command_queue on = queue_with(0);
    cl_event event = clCreateUserEvent(context, &err);
    OK(err);
    OK(clReleaseMemObject(buffer));
    OK(clReleaseCommandQueue(on));
    OK(clReleaseEvent(event));
    EXPECT(clReleaseMemObject(buffer), CL_INVALID_MEM_OBJECT);
    EXPECT(clFinish(on), CL_INVALID_COMMAND_QUEUE);
    EXPECT(clSetUserEventStatus(event, CL_COMPLETE), CL_INVALID_EVENT);
}

CASE(exit_with_work_in_flight)
{
    /* The process ends while a kernel runs and a read is pending. It must end soon and cleanly. */
    static int back[1024];
    cl_mem buffer = counting_buffer(1024, 0);
    cl_kernel kernel = long_spin(buffer);
    launch(queue, kernel, 4);
    OK(clEnqueueReadBuffer(queue, buffer, CL_FALSE, 0, sizeof back, back, 0, NULL, NULL));
    OK(clFlush(queue));
    fact("ending");
    exit(EXIT_SUCCESS);
}

CASE(exit_without_releasing_anything)
{
    cl_mem buffer = counting_buffer(64, 0);
    cl_kernel kernel = standard_kernel("add");
    set_add(kernel, buffer, 2);
    launch(queue, kernel, 64);
    CHECK(holds_counting(buffer, 64, 2, 1));
    (void)another_context();
    fact("ending");
    exit(EXIT_SUCCESS);
}

/* The driver's threads outlive the main thread of such a process, but must not keep the process for ever. */
BARE_CASE(main_that_left_its_process_can_be_ended)
{
    int ready[2], status = 0;
    char byte;
    CHECK(pipe(ready) == 0);
    const pid_t child = fork();
    if (child == 0) {
        cltest_open();
        cl_mem buffer = counting_buffer(16, 0);
        cl_event event;
        struct latch heard = LATCH;
        OK(clEnqueueFillBuffer(queue, buffer, &(cl_int){1}, 4, 0, 64, 0, NULL, &event));
        OK(clSetEventCallback(event, CL_COMPLETE, count_latch, &heard));
        OK(clFinish(queue));
        latch_wait(&heard, 1);
        CHECK(write(ready[1], "", 1) == 1);
        pthread_exit(NULL);
    }
    CHECK(child > 0);
    CHECK(read(ready[0], &byte, 1) == 1);
    CHECK(kill(child, SIGTERM) == 0);
    CHECK(waitpid(child, &status, 0) == child);
    CHECK(WIFSIGNALED(status) ? WTERMSIG(status) == SIGTERM : WEXITSTATUS(status) == 0);
    fact("it has ended");
}

CASE(many_objects_come_and_go)
{
    for (int i = 0; i < 300; ++i) {
        cl_mem buffer = buffer_of(1024);
        cl_event event;
        OK(clEnqueueFillBuffer(queue, buffer, &i, 4, 0, 1024, 0, NULL, &event));
        OK(clReleaseMemObject(buffer));
        OK(clReleaseEvent(event));
    }
    EXPECT(clFinish(queue), CL_SUCCESS);
}
