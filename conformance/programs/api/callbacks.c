/* Callbacks of events, memory objects and contexts. */
#include "../cltest.h"

struct heard {
    struct latch latch;
    cl_event event;
    cl_int statuses[16];
    pthread_t thread;
};

#define HEARD {LATCH, NULL, {0}, 0}

static void CL_CALLBACK hear(cl_event event, cl_int status, void *user)
{
    struct heard *heard = user;
    heard->event = event;
    heard->thread = pthread_self();
    heard->statuses[latch_count(&heard->latch) % 16] = status;
    latch_add(&heard->latch);
}

static cl_event gate(void)
{
    cl_event event = clCreateUserEvent(context, &err);
    OK(err);
    return event;
}

CASE(callback_complete)
{
    struct heard heard = HEARD;
    cl_event event;
    cl_mem buffer = buffer_of(64);
    OK(clEnqueueFillBuffer(queue, buffer, &(cl_int){1}, 4, 0, 64, 0, NULL, &event));
    EXPECT(clSetEventCallback(event, CL_COMPLETE, hear, &heard), CL_SUCCESS);
    OK(clFlush(queue));
    latch_wait(&heard.latch, 1);
    CHECK(heard.event == event);
    EQUAL(heard.statuses[0], CL_COMPLETE);
    OK(clFinish(queue));
    EQUAL(latch_count(&heard.latch), 1);
    OK(clReleaseEvent(event));
    OK(clReleaseMemObject(buffer));
}

CASE(callback_every_state_once)
{
    struct heard submitted = HEARD, running = HEARD, complete = HEARD;
    cl_event open = gate(), event;
    cl_mem buffer = counting_buffer(16, 0);
    cl_kernel kernel = standard_kernel("add");
    const size_t count = 16;
    set_add(kernel, buffer, 1);
    OK(clEnqueueNDRangeKernel(queue, kernel, 1, NULL, &count, NULL, 1, &open, &event));
    EXPECT(clSetEventCallback(event, CL_SUBMITTED, hear, &submitted), CL_SUCCESS);
    EXPECT(clSetEventCallback(event, CL_RUNNING, hear, &running), CL_SUCCESS);
    EXPECT(clSetEventCallback(event, CL_COMPLETE, hear, &complete), CL_SUCCESS);
    OK(clFlush(queue));
    OK(clSetUserEventStatus(open, CL_COMPLETE));
    latch_wait(&submitted.latch, 1);
    latch_wait(&running.latch, 1);
    latch_wait(&complete.latch, 1);
    OK(clFinish(queue));
    EQUAL(latch_count(&submitted.latch), 1);
    EQUAL(latch_count(&running.latch), 1);
    EQUAL(latch_count(&complete.latch), 1);
    CHECK(submitted.statuses[0] <= CL_SUBMITTED && submitted.statuses[0] >= CL_COMPLETE);
    CHECK(running.statuses[0] <= CL_RUNNING && running.statuses[0] >= CL_COMPLETE);
    EQUAL(complete.statuses[0], CL_COMPLETE);
    OK(clReleaseEvent(open));
    OK(clReleaseEvent(event));
    OK(clReleaseKernel(kernel));
    OK(clReleaseMemObject(buffer));
}

SPEC_CASE(callback_registered_late)
{
    static const cl_int states[3] = {CL_SUBMITTED, CL_RUNNING, CL_COMPLETE};
    cl_event event;
    OK(clEnqueueMarkerWithWaitList(queue, 0, NULL, &event));
    OK(clWaitForEvents(1, &event));
    for (int i = 0; i < 3; ++i) {
        struct heard heard = HEARD;
        OK(clSetEventCallback(event, states[i], hear, &heard));
        latch_wait(&heard.latch, 1);
        EQUAL(latch_count(&heard.latch), 1);
    }
    OK(clReleaseEvent(event));
}

CASE(callback_several_on_one_event)
{
    enum { COUNT = 10 };
    struct heard heard = HEARD;
    cl_event open = gate();
    for (int i = 0; i < COUNT; ++i)
        OK(clSetEventCallback(open, CL_COMPLETE, hear, &heard));
    OK(clSetUserEventStatus(open, CL_COMPLETE));
    latch_wait(&heard.latch, COUNT);
    EQUAL(latch_count(&heard.latch), COUNT);
    OK(clReleaseEvent(open));
}

SPEC_CASE(callback_of_user_event_failure)
{
    struct heard heard = HEARD;
    cl_event open = gate();
    OK(clSetEventCallback(open, CL_COMPLETE, hear, &heard));
    OK(clSetUserEventStatus(open, -13));
    latch_wait(&heard.latch, 1);
    EQUAL(heard.statuses[0], -13);
    OK(clReleaseEvent(open));
}

SPEC_CASE(callback_of_dependant_failure)
{
    struct heard heard = HEARD;
    cl_event open = gate(), held;
    OK(clEnqueueMarkerWithWaitList(queue, 1, &open, &held));
    OK(clSetEventCallback(held, CL_COMPLETE, hear, &heard));
    OK(clSetUserEventStatus(open, -13));
    latch_wait(&heard.latch, 1);
    CHECK(heard.statuses[0] < 0);
    EQUAL(latch_count(&heard.latch), 1);
    OK(clReleaseEvent(open));
    OK(clReleaseEvent(held));
}

CASE(callback_errors)
{
    struct heard heard = HEARD;
    cl_event event = gate();
    EXPECT(clSetEventCallback(NULL, CL_COMPLETE, hear, &heard), CL_INVALID_EVENT);
    EXPECT(clSetEventCallback(event, CL_COMPLETE, NULL, &heard), CL_INVALID_VALUE);
    EXPECT(clSetEventCallback(event, 77, hear, &heard), CL_INVALID_VALUE);
    OK(clSetUserEventStatus(event, CL_COMPLETE));
    EQUAL(latch_count(&heard.latch), 0);
    OK(clReleaseEvent(event));
}

SPEC_CASE(callback_for_queued_is_refused)
{
    struct heard heard = HEARD;
    cl_event event = gate();
    EXPECT(clSetEventCallback(event, CL_QUEUED, hear, &heard), CL_INVALID_VALUE);
    EXPECT(clSetEventCallback(event, -1, hear, &heard), CL_INVALID_VALUE);
    OK(clSetUserEventStatus(event, CL_COMPLETE));
    OK(clReleaseEvent(event));
}

static void CL_CALLBACK release_own(cl_event event, cl_int status, void *user)
{
    (void)status;
    clReleaseEvent(event);
    latch_add(user);
}

CASE(callback_releases_its_event)
{
    enum { COUNT = 100 };
    struct latch latch = LATCH;
    for (int i = 0; i < COUNT; ++i) {
        cl_event event;
        OK(clEnqueueMarkerWithWaitList(queue, 0, NULL, &event));
        OK(clSetEventCallback(event, CL_COMPLETE, release_own, &latch));
    }
    OK(clFinish(queue));
    latch_wait(&latch, COUNT);
    EQUAL(latch_count(&latch), COUNT);
}

struct opener {
    struct latch latch;
    cl_event gate;
};

static void CL_CALLBACK open_gate(cl_event event, cl_int status, void *user)
{
    (void)event, (void)status;
    struct opener *opener = user;
    clSetUserEventStatus(opener->gate, CL_COMPLETE);
    latch_add(&opener->latch);
}

CASE(callback_sets_a_user_event)
{
    struct opener opener = {LATCH, gate()};
    cl_event first, second;
    cl_command_queue other = queue_with(0);
    OK(clEnqueueMarkerWithWaitList(other, 1, &opener.gate, &second));
    OK(clFlush(other));
    OK(clEnqueueMarkerWithWaitList(queue, 0, NULL, &first));
    OK(clSetEventCallback(first, CL_COMPLETE, open_gate, &opener));
    OK(clFlush(queue));
    EXPECT(clWaitForEvents(1, &second), CL_SUCCESS);
    latch_wait(&opener.latch, 1);
    OK(clReleaseEvent(first));
    OK(clReleaseEvent(second));
    OK(clReleaseEvent(opener.gate));
    OK(clReleaseCommandQueue(other));
}

struct enqueuer {
    struct latch latch;
    cl_command_queue on;
    cl_mem buffer;
    cl_int status;
    int value;
    cl_event done;
};

static void CL_CALLBACK enqueue_more(cl_event event, cl_int status, void *user)
{
    (void)event, (void)status;
    struct enqueuer *more = user;
    more->status = clEnqueueReadBuffer(more->on, more->buffer, CL_FALSE, 0, 4, &more->value, 0,
                                       NULL, &more->done);
    clFlush(more->on);
    latch_add(&more->latch);
}

CASE(callback_enqueues)
{
    struct enqueuer more = {LATCH, queue, counting_buffer(1, 77), 77, 0, NULL};
    cl_event first;
    OK(clEnqueueMarkerWithWaitList(queue, 0, NULL, &first));
    OK(clSetEventCallback(first, CL_COMPLETE, enqueue_more, &more));
    OK(clFlush(queue));
    latch_wait(&more.latch, 1);
    EXPECT(more.status, CL_SUCCESS);
    OK(clWaitForEvents(1, &more.done));
    EQUAL(more.value, 77);
    OK(clReleaseEvent(first));
    OK(clReleaseEvent(more.done));
    OK(clReleaseMemObject(more.buffer));
}

CASE(callback_many_events)
{
    enum { COUNT = 300 };
    struct latch latch = LATCH;
    cl_mem buffer = counting_buffer(16, 0);
    cl_kernel kernel = standard_kernel("add");
    const size_t count = 16;
    set_add(kernel, buffer, 1);
    for (int i = 0; i < COUNT; ++i) {
        cl_event event;
        OK(clEnqueueNDRangeKernel(queue, kernel, 1, NULL, &count, NULL, 0, NULL, &event));
        OK(clSetEventCallback(event, CL_COMPLETE, release_own, &latch));
    }
    OK(clFinish(queue));
    latch_wait(&latch, COUNT);
    CHECK(holds_counting(buffer, 16, COUNT, 1));
    EQUAL(latch_count(&latch), COUNT);
    OK(clReleaseKernel(kernel));
    OK(clReleaseMemObject(buffer));
}

CASE(callback_sees_the_data)
{
    struct heard heard = HEARD;
    static int back[65536];
    cl_event event;
    cl_mem buffer = counting_buffer(65536, 1);
    OK(clEnqueueReadBuffer(queue, buffer, CL_FALSE, 0, sizeof back, back, 0, NULL, &event));
    OK(clSetEventCallback(event, CL_COMPLETE, hear, &heard));
    OK(clFlush(queue));
    latch_wait(&heard.latch, 1);
    EQUAL(back[65535], 65536);
    OK(clFinish(queue));
    OK(clReleaseEvent(event));
    OK(clReleaseMemObject(buffer));
}

/* ---- destructor callbacks ---- */

struct destroyed {
    struct latch latch;
    int order[8];
};

struct registration {
    struct destroyed *into;
    int number;
};

static void CL_CALLBACK on_destroyed(cl_mem memory, void *user)
{
    (void)memory;
    struct registration *registration = user;
    registration->into->order[latch_count(&registration->into->latch) % 8] = registration->number;
    latch_add(&registration->into->latch);
}

CASE(destructor_reverse_order)
{
    struct destroyed destroyed = {LATCH, {0}};
    struct registration registrations[3] = {{&destroyed, 1}, {&destroyed, 2}, {&destroyed, 3}};
    cl_mem buffer = buffer_of(64);
    for (int i = 0; i < 3; ++i)
        OK(clSetMemObjectDestructorCallback(buffer, on_destroyed, &registrations[i]));
    EQUAL(latch_count(&destroyed.latch), 0);
    OK(clReleaseMemObject(buffer));
    latch_wait(&destroyed.latch, 3);
    fact("%d %d %d", destroyed.order[0], destroyed.order[1], destroyed.order[2]);
}

CASE(destructor_waits_for_last_reference)
{
    struct destroyed destroyed = {LATCH, {0}};
    struct registration registration = {&destroyed, 1};
    cl_mem buffer = buffer_of(64);
    OK(clSetMemObjectDestructorCallback(buffer, on_destroyed, &registration));
    OK(clRetainMemObject(buffer));
    OK(clReleaseMemObject(buffer));
    OK(clFinish(queue));
    EQUAL(latch_count(&destroyed.latch), 0);
    OK(clReleaseMemObject(buffer));
    latch_wait(&destroyed.latch, 1);
    EQUAL(latch_count(&destroyed.latch), 1);
}

CASE(destructor_waits_for_sub_buffers)
{
    struct destroyed destroyed = {LATCH, {0}};
    struct registration registration = {&destroyed, 1};
    const cl_buffer_region region = {0, 64};
    cl_mem buffer = buffer_of(4096);
    OK(clSetMemObjectDestructorCallback(buffer, on_destroyed, &registration));
    cl_mem part = clCreateSubBuffer(buffer, 0, CL_BUFFER_CREATE_TYPE_REGION, &region, &err);
    OK(err);
    OK(clReleaseMemObject(buffer));
    OK(clFinish(queue));
    EQUAL(latch_count(&destroyed.latch), 0);
    OK(clReleaseMemObject(part));
    latch_wait(&destroyed.latch, 1);
    EQUAL(latch_count(&destroyed.latch), 1);
}

SPEC_CASE(destructor_ignores_kernel_arguments)
{
    struct destroyed destroyed = {LATCH, {0}};
    struct registration registration = {&destroyed, 1};
    cl_mem buffer = buffer_of(64);
    cl_kernel kernel = standard_kernel("write_id");
    OK(clSetMemObjectDestructorCallback(buffer, on_destroyed, &registration));
    OK(clSetKernelArg(kernel, 0, sizeof buffer, &buffer));
    OK(clReleaseMemObject(buffer));
    latch_wait(&destroyed.latch, 1); /* the kernel holds nothing */
    EQUAL(latch_count(&destroyed.latch), 1);
    OK(clReleaseKernel(kernel));
}

CASE(destructor_after_pending_commands)
{
    struct destroyed destroyed = {LATCH, {0}};
    struct registration registration = {&destroyed, 1};
    static int memory[1024];
    cl_mem buffer = clCreateBuffer(context, CL_MEM_USE_HOST_PTR, sizeof memory, memory, &err);
    OK(err);
    cl_kernel kernel = standard_kernel("spin");
    const cl_uint turns = SPIN_LONG;
    OK(clSetKernelArg(kernel, 0, sizeof buffer, &buffer));
    OK(clSetKernelArg(kernel, 1, sizeof turns, &turns));
    launch(queue, kernel, 1);
    OK(clSetMemObjectDestructorCallback(buffer, on_destroyed, &registration));
    OK(clReleaseMemObject(buffer));
    OK(clReleaseKernel(kernel));
    OK(clFinish(queue));
    latch_wait(&destroyed.latch, 1);
    EQUAL(latch_count(&destroyed.latch), 1);
}

CASE(destructor_errors)
{
    cl_mem buffer = buffer_of(64);
    EXPECT(clSetMemObjectDestructorCallback(buffer, NULL, NULL), CL_INVALID_VALUE);
    OK(clReleaseMemObject(buffer));
}
