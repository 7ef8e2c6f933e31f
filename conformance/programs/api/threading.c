/* One context, many threads. The suite "threads" is the heavy form. */
#include "../cltest.h"

enum { THREADS = 8, ROUNDS = 20 };

static cl_program shared_program;

static void *own_everything(void *number)
{
    const int start = (int)(intptr_t)number * 1000;
    cl_command_queue on = queue_with(0);
    cl_int status;
    cl_kernel kernel = clCreateKernel(shared_program, "add", &status);
    OK(status);
    cl_mem buffer = clCreateBuffer(context, CL_MEM_READ_WRITE, 1024, NULL, &status);
    OK(status);
    int values[256], right = 1;
    for (int i = 0; i < 256; ++i)
        values[i] = start + i;
    OK(clEnqueueWriteBuffer(on, buffer, CL_TRUE, 0, 1024, values, 0, NULL, NULL));
    set_add(kernel, buffer, 1);
    for (int round = 0; round < ROUNDS; ++round)
        launch(on, kernel, 256);
    OK(clEnqueueReadBuffer(on, buffer, CL_TRUE, 0, 1024, values, 0, NULL, NULL));
    for (int i = 0; i < 256; ++i)
        right &= values[i] == start + i + ROUNDS;
    OK(clReleaseKernel(kernel));
    OK(clReleaseMemObject(buffer));
    OK(clReleaseCommandQueue(on));
    return (void *)(intptr_t)right;
}

static int run_threads(void *(*body)(void *))
{
    pthread_t threads[THREADS];
    int right = 1;
    for (int i = 0; i < THREADS; ++i)
        pthread_create(&threads[i], NULL, body, (void *)(intptr_t)(i + 1));
    for (int i = 0; i < THREADS; ++i) {
        void *result = NULL;
        pthread_join(threads[i], &result);
        right &= result != NULL;
    }
    return right;
}

CASE(threads_with_own_queues)
{
    shared_program = program_from(STANDARD_SOURCE, "");
    EQUAL(run_threads(own_everything), 1);
    OK(clReleaseProgram(shared_program));
}

static cl_mem shared_buffer;

static void *share_the_queue(void *number)
{
    const size_t at = 4 * (size_t)(intptr_t)number;
    int right = 1;
    for (int round = 0; round < 50; ++round) {
        int value = round, back = -1;
        OK(clEnqueueWriteBuffer(queue, shared_buffer, CL_FALSE, at, 4, &value, 0, NULL, NULL));
        OK(clEnqueueReadBuffer(queue, shared_buffer, CL_TRUE, at, 4, &back, 0, NULL, NULL));
        right &= back == round;
    }
    return (void *)(intptr_t)right;
}

CASE(threads_on_one_queue)
{
    shared_buffer = buffer_of(4096);
    EQUAL(run_threads(share_the_queue), 1);
    OK(clReleaseMemObject(shared_buffer));
}

static void *own_context(void *number)
{
    cl_int status;
    int value = (int)(intptr_t)number, back = 0;
    cl_context own = clCreateContext(NULL, 1, &device, NULL, NULL, &status);
    OK(status);
    cl_command_queue on = clCreateCommandQueue(own, device, 0, &status);
    OK(status);
    cl_mem buffer = clCreateBuffer(own, CL_MEM_COPY_HOST_PTR, 4, &value, &status);
    OK(status);
    OK(clEnqueueReadBuffer(on, buffer, CL_TRUE, 0, 4, &back, 0, NULL, NULL));
    OK(clReleaseMemObject(buffer));
    OK(clReleaseCommandQueue(on));
    OK(clReleaseContext(own));
    return (void *)(intptr_t)(back == value);
}

CASE(threads_with_own_contexts)
{
    EQUAL(run_threads(own_context), 1);
}

static cl_event shared_gate;

static void *wait_at_gate(void *number)
{
    (void)number;
    return (void *)(intptr_t)(clWaitForEvents(1, &shared_gate) == CL_SUCCESS);
}

static void *open_shared_gate(void *unused)
{
    (void)unused;
    const struct timespec moment = {0, 20000000};
    nanosleep(&moment, NULL); /* lets most waiters block first; any order is right */
    OK(clSetUserEventStatus(shared_gate, CL_COMPLETE));
    return NULL;
}

CASE(threads_wait_for_one_event)
{
    pthread_t opener;
    shared_gate = clCreateUserEvent(context, &err);
    OK(err);
    pthread_create(&opener, NULL, open_shared_gate, NULL);
    EQUAL(run_threads(wait_at_gate), 1);
    pthread_join(opener, NULL);
    OK(clReleaseEvent(shared_gate));
}

static void *retain_and_release(void *number)
{
    (void)number;
    for (int i = 0; i < 1000; ++i) {
        OK(clRetainMemObject(shared_buffer));
        OK(clRetainContext(context));
        OK(clRetainCommandQueue(queue));
        OK(clReleaseCommandQueue(queue));
        OK(clReleaseContext(context));
        OK(clReleaseMemObject(shared_buffer));
    }
    return (void *)1;
}

CASE(threads_count_references)
{
    cl_uint count = 0;
    shared_buffer = buffer_of(64);
    EQUAL(run_threads(retain_and_release), 1);
    OK(clGetMemObjectInfo(shared_buffer, CL_MEM_REFERENCE_COUNT, sizeof count, &count, NULL));
    EQUAL(count, 1);
    OK(clReleaseMemObject(shared_buffer));
}

static void *build_own(void *number)
{
    cl_int status;
    const char *source = STANDARD_SOURCE;
    (void)number;
    cl_program program = clCreateProgramWithSource(context, 1, &source, NULL, &status);
    OK(status);
    const cl_int built = clBuildProgram(program, 1, &device, "", NULL, NULL);
    OK(clReleaseProgram(program));
    return (void *)(intptr_t)(built == CL_SUCCESS);
}

CASE(threads_build)
{
    EQUAL(run_threads(build_own), 1);
}
