/*
 * Random event graphs: commands on in-order and out-of-order queues of several devices, beside waits of
 * every kind. User events are set late and in any order, some with a negative status.
 *
 *     graphs --devices N --seed S --graphs G [--failing 1] [--most EVENTS]
 *
 * Graph i has the seed S + i. A model says how every event must end. A command fails if its wait list has a
 * failed event. A command that only follows the failed one does not fail: later in a queue, or behind a
 * marker or barrier without a list. Events that need no unset user event must end although others wait for
 * one. Nothing may hang, or else the watchdog prints the seed. With --failing, the driver must end every
 * launch of the kernel `fails` with an error. The bytes that commands write are not checked.
 */
#include "random.h"

enum {
    MOST_NODES = 64,
    MOST_QUEUES = 2 * MOST_DEVICES,
    BUFFERS = 3,
    BUFFER_SIZE = 1024,
    MOST_LIST = 4,
    MOST_WAITERS = 3
};

/* The graph's events are commands and user events, in the order of their creation. */
enum kind { USER, MARKER, BARRIER, ALL_MARKER, ALL_BARRIER, FILL, ADD, FAILS, COPY, WRITE, READ, MIGRATE };
static const char *const KIND_NAMES[] = {"user event", "marker", "barrier", "marker of all",
                                         "barrier of all", "fill", "kernel add", "kernel fails",
                                         "copy", "write", "read", "migrate"};

struct node {
    enum kind kind;
    int queue;
    int failed;        /* by the model, once everything is set */
    u64 gates;         /* user events set by this thread; once these are set it can end */
    u64 least;         /* the same, but it ends not before; a command that must fail may do so at once */
    cl_event event;    /* NULL where the program did not ask for one, or has released it */
    cl_int user_status;
    cl_int last_seen;
    int calls, call_wanted; /* of callbacks for the end; under call_lock */
    int sets;               /* a user event that its callback sets, or -1 */
    unsigned char bytes[256];
};

struct line {
    cl_command_queue queue;
    int in_order;
    u64 all, all_least;         /* of all its commands */
    u64 barrier, barrier_least; /* of what its later commands come behind */
};

static cl_context context;
static cl_program program;
static cl_kernel add, fails;
static cl_mem buffers[BUFFERS];
static struct line lines[MOST_QUEUES];
static int line_count;
static struct node nodes[MOST_NODES];
static int node_count;
static u64 unset; /* user events that this thread has still to set */
static int failing, most_nodes;
static unsigned long commands_made, failures_seen;

static pthread_mutex_t call_lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t call_made = PTHREAD_COND_INITIALIZER;

static const char *const SOURCE =
    "kernel void fake_add_u32(global uint *target, uint value)\n"
    "{ target[get_global_id(0)] += value; }\n"
    "kernel void fails(global uint *target) { target[0] = 1; }\n";

/* ---- objects ---- */

static cl_kernel kernel_of(const char *name)
{
    cl_int status;
    cl_kernel kernel = clCreateKernel(program, name, &status);
    OK(status);
    return kernel;
}

static void open_context(void)
{
    cl_int status;
    context = clCreateContext(NULL, device_count, devices, NULL, NULL, &status);
    OK(status);
    program = clCreateProgramWithSource(context, 1, (const char **)&SOURCE, NULL, &status);
    OK(status);
    OK(clBuildProgram(program, 0, NULL, "", NULL, NULL));
    add = kernel_of("fake_add_u32");
    fails = kernel_of("fails");
    for (int i = 0; i < BUFFERS; ++i) {
        buffers[i] = clCreateBuffer(context, CL_MEM_READ_WRITE, BUFFER_SIZE, NULL, &status);
        OK(status);
    }
}

static void close_context(void)
{
    for (int i = 0; i < BUFFERS; ++i)
        OK(clReleaseMemObject(buffers[i]));
    OK(clReleaseKernel(add));
    OK(clReleaseKernel(fails));
    OK(clReleaseProgram(program));
    OK(clReleaseContext(context));
}

static void open_queues(void)
{
    line_count = 0;
    for (cl_uint d = 0; d < device_count; ++d) {
        const int here = (int)between(1, 2);
        for (int i = 0; i < here; ++i) {
            cl_int status;
            cl_command_queue_properties can = 0;
            OK(clGetDeviceInfo(devices[d], CL_DEVICE_QUEUE_PROPERTIES, sizeof can, &can, NULL));
            const int in_order =
                !(can & CL_QUEUE_OUT_OF_ORDER_EXEC_MODE_ENABLE) || chance(65);
            struct line line = {NULL, in_order, 0, 0, 0, 0};
            line.queue = clCreateCommandQueue(
                context, devices[d], in_order ? 0 : CL_QUEUE_OUT_OF_ORDER_EXEC_MODE_ENABLE,
                &status);
            OK(status);
            tell("queue %d: device %u, %s", line_count, (unsigned)d,
                 in_order ? "in order" : "out of order");
            lines[line_count++] = line;
        }
    }
}

static void close_queues(void)
{
    for (int i = 0; i < line_count; ++i)
        OK(clReleaseCommandQueue(lines[i].queue));
}

/* ---- what hangs, for the watchdog ---- */

static void describe_graph(void)
{
    for (int i = 0; i < node_count; ++i) {
        cl_int status = 12345;
        if (nodes[i].event != NULL)
            clGetEventInfo(nodes[i].event, CL_EVENT_COMMAND_EXECUTION_STATUS, sizeof status,
                           &status, NULL);
        printf("event %d (%s): status %d, %s, %d of %d callbacks came\n", i,
               KIND_NAMES[nodes[i].kind], (int)status,
               nodes[i].gates & unset ? "gated"
               : nodes[i].failed      ? "must fail"
                                      : "must end",
               nodes[i].calls, nodes[i].call_wanted);
    }
}

/* ---- callbacks ---- */

static void CL_CALLBACK ended(cl_event event, cl_int status, void *index)
{
    struct node *node = &nodes[(intptr_t)index];
    (void)event;
    if (status > CL_COMPLETE)
        wrong("a callback for the end of event %d came with %d", (int)(intptr_t)index, (int)status);
    if (node->sets >= 0)
        OK(clSetUserEventStatus(nodes[node->sets].event, nodes[node->sets].user_status));
    pthread_mutex_lock(&call_lock);
    if ((status < 0) != (node->failed != 0))
        wrong("the callback of event %d came with %d", (int)(intptr_t)index, (int)status);
    ++node->calls;
    pthread_cond_signal(&call_made);
    pthread_mutex_unlock(&call_lock);
}

static void call_back(int index)
{
    nodes[index].call_wanted += 1;
    OK(clSetEventCallback(nodes[index].event, CL_COMPLETE, ended, (void *)(intptr_t)index));
}

static void wait_for_callbacks(void)
{
    pthread_mutex_lock(&call_lock);
    for (int i = 0; i < node_count; ++i) {
        while (nodes[i].calls < nodes[i].call_wanted)
            pthread_cond_wait(&call_made, &call_lock); /* the watchdog bounds it */
        if (nodes[i].calls > nodes[i].call_wanted)
            wrong("%d callbacks of event %d, not %d", nodes[i].calls, i, nodes[i].call_wanted);
    }
    pthread_mutex_unlock(&call_lock);
}

/* ---- user events ---- */

static int new_node(enum kind kind)
{
    struct node *node = &nodes[node_count];
    memset(node, 0, sizeof *node);
    node->kind = kind;
    node->queue = -1;
    node->sets = -1;
    node->last_seen = CL_QUEUED;
    return node_count++;
}

static int new_user_event(void)
{
    cl_int status;
    const int index = new_node(USER);
    struct node *node = &nodes[index];
    node->user_status = chance(25) ? -(cl_int)between(1, 2000) : CL_COMPLETE;
    node->failed = node->user_status < 0;
    node->last_seen = CL_SUBMITTED;
    node->event = clCreateUserEvent(context, &status);
    OK(status);
    return index;
}

static void set_user_event(int index)
{
    tell("set user event %d to %d", index, (int)nodes[index].user_status);
    unset &= ~((u64)1 << index);
    OK(clSetUserEventStatus(nodes[index].event, nodes[index].user_status));
}

/* Adds a user event that this thread sets, or that the callback of another event sets. */
static void add_user_event(void)
{
    const int by = node_count > 0 && chance(25) ? (int)below(node_count) : -1;
    const int index = new_user_event();
    if (by >= 0 && nodes[by].event != NULL && nodes[by].sets < 0 && nodes[by].call_wanted == 0) {
        nodes[index].gates = nodes[by].gates;
        nodes[index].least = nodes[by].least;
        nodes[by].sets = index;
        tell("event %d: user event, set to %d by the callback of %d", index,
             (int)nodes[index].user_status, by);
        call_back(by);
        return;
    }
    nodes[index].gates = nodes[index].least = (u64)1 << index;
    unset |= (u64)1 << index;
    tell("event %d: user event, %d", index, (int)nodes[index].user_status);
}

static int some_unset(void)
{
    int all[MOST_NODES], count = 0;
    for (int i = 0; i < node_count; ++i)
        if (unset >> i & 1)
            all[count++] = i;
    return count == 0 ? -1 : all[below((u64)count)];
}

/* ---- commands ---- */

struct list {
    cl_uint count;
    cl_event events[MOST_LIST];
    u64 gates, least;
    int failed;
    char text[96];
};

/* Chooses some of the existing events, with a preference for young ones. */
static struct list some_list(int at_least)
{
    struct list list = {0, {NULL}, 0, 0, 0, ""};
    const int wanted = at_least + (int)below(MOST_LIST - at_least + 1);
    size_t length = 0;
    for (int tries = 0; tries < 12 && (int)list.count < wanted; ++tries) {
        if (node_count == 0)
            break;
        const int window = chance(60) && node_count > 8 ? 8 : node_count;
        const int index = node_count - 1 - (int)below((u64)window);
        if (nodes[index].event == NULL)
            continue;
        list.events[list.count++] = nodes[index].event;
        list.gates |= nodes[index].gates;
        list.least |= nodes[index].least;
        list.failed |= nodes[index].failed;
        length += (size_t)snprintf(list.text + length, sizeof list.text - length, " %d", index);
    }
    return list;
}

static cl_int enqueue(enum kind kind, cl_command_queue queue, const struct list *list,
                      unsigned char *bytes, cl_event *event)
{
    cl_mem buffer = buffers[below(BUFFERS)];
    const size_t items = 4, one = 1;
    const cl_uint value = 7, count = list->count;
    const cl_event *events = count == 0 ? NULL : list->events;
    const size_t offset = 4 * below(64), size = 4 * between(1, 64);
    switch (kind) {
    case MARKER:
    case ALL_MARKER:
        return clEnqueueMarkerWithWaitList(queue, count, events, event);
    case BARRIER:
    case ALL_BARRIER:
        return clEnqueueBarrierWithWaitList(queue, count, events, event);
    case FILL:
        return clEnqueueFillBuffer(queue, buffer, &value, 4, offset, size, count, events, event);
    case ADD:
        OK(clSetKernelArg(add, 0, sizeof buffer, &buffer));
        OK(clSetKernelArg(add, 1, sizeof value, &value));
        return clEnqueueNDRangeKernel(queue, add, 1, NULL, &items, NULL, count, events, event);
    case FAILS:
        OK(clSetKernelArg(fails, 0, sizeof buffer, &buffer));
        return clEnqueueNDRangeKernel(queue, fails, 1, NULL, &one, NULL, count, events, event);
    case COPY: {
        cl_mem from = buffers[below(BUFFERS)];
        return clEnqueueCopyBuffer(queue, from, buffer, from == buffer ? 0 : offset,
                                   from == buffer ? 512 : 0, size, count, events, event);
    }
    case WRITE:
        return clEnqueueWriteBuffer(queue, buffer, CL_FALSE, offset, size, bytes, count, events,
                                    event);
    case READ:
        return clEnqueueReadBuffer(queue, buffer, CL_FALSE, offset, size, bytes, count, events,
                                   event);
    case MIGRATE:
        return clEnqueueMigrateMemObjects(queue, 1, &buffer, 0, count, events, event);
    default:
        return CL_INVALID_VALUE;
    }
}

static enum kind some_kind(void)
{
    static const enum kind all[] = {MARKER, BARRIER, ALL_MARKER, ALL_BARRIER, FILL, ADD,  ADD,
                                    ADD,    COPY,    WRITE,      READ,        READ, MIGRATE};
    if (failing && chance(8))
        return FAILS;
    return all[below(sizeof all / sizeof *all)];
}

static void add_command(void)
{
    const int q = (int)below((u64)line_count);
    struct line *line = &lines[q];
    const enum kind kind = some_kind();
    const int of_all = kind == ALL_MARKER || kind == ALL_BARRIER;
    const int needs_list = kind == MARKER || kind == BARRIER;
    const struct list list = some_list(of_all ? MOST_LIST : needs_list ? 1 : 0);
    if (needs_list && list.count == 0)
        return;
    struct list none = {0, {NULL}, 0, 0, 0, ""};
    const struct list *waits = of_all ? &none : &list;
    const int index = new_node(kind);
    struct node *node = &nodes[index];
    node->queue = q;
    node->failed = waits->failed || kind == FAILS;
    node->gates = waits->gates | line->barrier | (line->in_order || of_all ? line->all : 0);
    if (!node->failed)
        node->least = waits->least | line->barrier_least |
                      (line->in_order || of_all ? line->all_least : 0);
    line->all |= node->gates;
    line->all_least |= node->least;
    if (kind == BARRIER || kind == ALL_BARRIER) {
        line->barrier |= node->gates;
        line->barrier_least |= node->least;
    }
    const int named = chance(85);
    tell("event %d: %s on queue %d after [%s ]%s%s", index, KIND_NAMES[kind], q, waits->text,
         named ? "" : ", not named", node->failed ? ", must fail" : "");
    const cl_int status = enqueue(kind, line->queue, waits, node->bytes, named ? &node->event : NULL);
    if (status != CL_SUCCESS)
        wrong("the enqueue of event %d -> %d", index, (int)status);
    ++commands_made;
    if (named && chance(30))
        call_back(index);
}

#include "graphs_waits.h"

/* ---- a graph ---- */

static void step(void)
{
    if (chance(14) && node_count < MOST_NODES - 1)
        add_user_event();
    else
        add_command();
    if (node_count == 0)
        return;
    if (chance(12)) {
        const int index = some_unset();
        if (index >= 0 && chance(50))
            set_user_event(index);
    }
    if (chance(10))
        wait_here();
    if (chance(20))
        look((int)below((u64)node_count));
    if (chance(10))
        OK(clFlush(lines[below((u64)line_count)].queue));
    if (chance(4)) {
        const int index = (int)below((u64)node_count);
        if (nodes[index].event != NULL && nodes[index].kind != USER) {
            tell("release event %d", index);
            OK(clReleaseEvent(nodes[index].event));
            nodes[index].event = NULL;
        }
    }
}

static void run_graph(u64 seed)
{
    struct waiter waiters[MOST_WAITERS];
    int waiting = 0;
    pthread_t setter;
    numbers = seed;
    node_count = 0;
    unset = 0;
    feed_watchdog(seed);
    open_queues();
    const int size = (int)between(4, (u64)most_nodes);
    for (int tries = 0; node_count < size && tries < 4 * size; ++tries) {
        if (node_count == 0 && chance(50))
            add_user_event();
        step();
        if (waiting < MOST_WAITERS && chance(8))
            waiting += start_waiter(&waiters[waiting]);
    }
    tell("the rest is set");
    if (pthread_create(&setter, NULL, set_the_rest, NULL) != 0)
        wrong("no thread");
    /* Finishes the queues in any order. Each finish must return without help from those that follow. */
    const u64 first = below((u64)line_count);
    for (int i = 0; i < line_count; ++i)
        clFinish(lines[(first + (u64)i) % (u64)line_count].queue);
    pthread_join(setter, NULL);
    for (int i = 0; i < waiting; ++i)
        pthread_join(waiters[i].thread, NULL);
    /* Waits for user events that callbacks set. These callbacks come after the ends of commands. */
    wait_for_callbacks();
    for (int i = 0; i < line_count; ++i)
        clFinish(lines[i].queue);
    check_ends();
    close_queues();
}

int main(int argc, char **argv)
{
    const u64 seed = option(argc, argv, "--seed", 1);
    const u64 graphs = option(argc, argv, "--graphs", 100);
    setvbuf(stdout, NULL, _IOLBF, 0);
    failing = option(argc, argv, "--failing", 0) != 0;
    most_nodes = (int)option(argc, argv, "--most", MOST_NODES - 2);
    describe = describe_graph;
    open_devices((cl_uint)option(argc, argv, "--devices", 2));
    start_watchdog();
    open_context();
    for (u64 i = 0; i < graphs; ++i) {
        if (i % 100 == 99) {
            close_context();
            open_context();
        }
        run_graph(seed + i);
    }
    close_context();
    printf("%llu graphs, %lu commands, %lu events failed as they had to\n",
           (unsigned long long)graphs, commands_made, failures_seen);
    return EXIT_SUCCESS;
}
