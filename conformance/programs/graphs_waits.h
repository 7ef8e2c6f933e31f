/*
 * The other half of graphs.c: which thread waits for which events, which states are legal meanwhile, and
 * how every event must end.
 */

/* ---- waits ---- */

struct waiter {
    pthread_t thread;
    cl_command_queue queue; /* to finish; else events to wait for */
    cl_uint count;
    cl_event events[MOST_LIST];
    int failed;
};

static void *wait_for(void *argument)
{
    struct waiter *waiter = argument;
    if (waiter->queue != NULL) {
        /* clFinish has no code for failed commands, but may return one. */
        clFinish(waiter->queue);
        OK(clReleaseCommandQueue(waiter->queue));
        return NULL;
    }
    const cl_int status = clWaitForEvents(waiter->count, waiter->events);
    if (status != (waiter->failed ? CL_EXEC_STATUS_ERROR_FOR_EVENTS_IN_WAIT_LIST : CL_SUCCESS))
        wrong("clWaitForEvents -> %d", (int)status);
    for (cl_uint i = 0; i < waiter->count; ++i)
        OK(clReleaseEvent(waiter->events[i]));
    return NULL;
}

/* Starts a thread that waits for some of the current commands. */
static int start_waiter(struct waiter *waiter)
{
    memset(waiter, 0, sizeof *waiter);
    if (chance(40)) {
        const int q = (int)below((u64)line_count);
        waiter->queue = lines[q].queue;
        OK(clRetainCommandQueue(waiter->queue));
        tell("a thread finishes queue %d", q);
    } else {
        const struct list list = some_list(1);
        if (list.count == 0)
            return 0;
        waiter->count = list.count;
        waiter->failed = list.failed;
        memcpy(waiter->events, list.events, sizeof list.events);
        for (cl_uint i = 0; i < list.count; ++i)
            OK(clRetainEvent(waiter->events[i]));
        tell("a thread waits for [%s ]", list.text);
    }
    if (pthread_create(&waiter->thread, NULL, wait_for, waiter) != 0)
        wrong("no thread");
    return 1;
}

/* Lets this thread wait for events that can end without this thread. */
static void wait_here(void)
{
    if (chance(50)) {
        const int q = (int)below((u64)line_count);
        if (lines[q].all & unset)
            return;
        tell("finish queue %d", q);
        clFinish(lines[q].queue);
        return;
    }
    const struct list list = some_list(1);
    if (list.count == 0 || list.gates & unset)
        return;
    tell("wait for [%s ]", list.text);
    const cl_int status = clWaitForEvents(list.count, list.events);
    if (status != (list.failed ? CL_EXEC_STATUS_ERROR_FOR_EVENTS_IN_WAIT_LIST : CL_SUCCESS))
        wrong("clWaitForEvents -> %d", (int)status);
}

/* Checks that a status only falls. */
static void look(int index)
{
    cl_int status = 12345;
    struct node *node = &nodes[index];
    if (node->event == NULL)
        return;
    OK(clGetEventInfo(node->event, CL_EVENT_COMMAND_EXECUTION_STATUS, sizeof status, &status,
                      NULL));
    if (status > node->last_seen)
        wrong("the status of event %d rose from %d to %d", index, (int)node->last_seen,
              (int)status);
    if (status <= CL_COMPLETE && node->least & unset)
        wrong("event %d has ended with %d although a user event before it is not set", index,
              (int)status);
    node->last_seen = status;
}

static void *set_the_rest(void *unused)
{
    u64 order = current_seed;
    while (unset != 0) {
        const u64 turn = next_random(&order) % MOST_NODES;
        if (unset >> turn & 1)
            set_user_event((int)turn);
    }
    return unused;
}

static void check_ends(void)
{
    for (int i = 0; i < node_count; ++i) {
        const struct node *node = &nodes[i];
        cl_int status = 12345;
        if (node->event == NULL)
            continue;
        OK(clGetEventInfo(node->event, CL_EVENT_COMMAND_EXECUTION_STATUS, sizeof status, &status,
                          NULL));
        const int right = node->kind == USER ? status == node->user_status
                          : node->failed     ? status < 0
                                             : status == CL_COMPLETE;
        if (!right)
            wrong("event %d (%s) ended with %d", i, KIND_NAMES[node->kind], (int)status);
        failures_seen += status < 0;
        OK(clReleaseEvent(node->event));
    }
}
