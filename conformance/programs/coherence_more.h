/*
 * The other half of coherence.c: fills, copies, launches, maps, and the start and end of a program.
 */

/* ---- fills and copies ---- */

static void fill(void)
{
    static const size_t sizes[] = {1, 2, 4, 8, 16, 32, 64};
    const int v = some_view();
    const struct view *view = &views[v];
    const size_t size = sizes[below(sizeof sizes / sizeof *sizes)], places = view->size / size;
    const size_t offset = size * below(places);
    const size_t length = size * between(1, places - offset / size);
    unsigned char pattern[64], *model = roots[view->root].model + view->origin + offset;
    struct command *command = fresh("fill");
    tell("  view %d, from %zu, %zu bytes, by %zu", v, offset, length, size);
    command->uses[command->use_count++] = range(view->root, 1, view->origin + offset, length);
    if (is_mapped(command))
        return;
    const struct list list = put_in_order(command);
    random_bytes(pattern, size);
    for (size_t i = 0; i < length; i += size)
        memcpy(model + i, pattern, size);
    enqueued(command, clEnqueueFillBuffer(queues[command->queue], view->buffer, pattern, size,
                                          offset, length, EVENTS));
}

static void copy(void)
{
    const int from = some_view(), to = some_view();
    size_t here, there, length, room;
    struct command *command = fresh("copy");
    some_range(&views[from], &here, &length);
    some_range(&views[to], &there, &room);
    if (room < length)
        length = room;
    tell("  view %d from %zu to view %d from %zu, %zu bytes", from, here, to, there, length);
    command->uses[command->use_count++] =
        range(views[from].root, 0, views[from].origin + here, length);
    command->uses[command->use_count++] = range(views[to].root, 1, views[to].origin + there, length);
    if (is_mapped(command) || overlap(&command->uses[0], &command->uses[1]))
        return;
    const struct list list = put_in_order(command);
    memcpy(roots[views[to].root].model + views[to].origin + there,
           roots[views[from].root].model + views[from].origin + here, length);
    enqueued(command, clEnqueueCopyBuffer(queues[command->queue], views[from].buffer,
                                          views[to].buffer, here, there, length, EVENTS));
}

/* ---- launches: a kernel may touch all bytes of its buffers ---- */

static cl_uint *words_of(int v)
{
    return (cl_uint *)(void *)(roots[views[v].root].model + views[v].origin);
}

static void launch(struct command *command, cl_kernel kernel, size_t first, size_t count)
{
    const struct list list = put_in_order(command);
    enqueued(command, clEnqueueNDRangeKernel(queues[command->queue], kernel, 1, &first, &count,
                                             NULL, EVENTS));
}

static void launch_of_one(void)
{
    const int which = (int)below(3), v = some_view();
    const cl_uint value = (cl_uint)below(1000000);
    const size_t items = views[v].size / 4, first = below(items);
    const size_t count = between(1, items - first < 2000 ? items - first : 2000);
    struct command *command = fresh(kernel_names[which]);
    tell("  view %d, items from %zu, %zu", v, first, count);
    command->uses[command->use_count++] = whole(v, 1);
    if (is_mapped(command))
        return;
    OK(clSetKernelArg(kernels[which], 0, sizeof(cl_mem), &views[v].buffer));
    OK(clSetKernelArg(kernels[which], 1, sizeof value, &value));
    launch(command, kernels[which], first, count);
    cl_uint *words = words_of(v);
    for (size_t i = first; i < first + count; ++i)
        words[i] = which == 0 ? value : which == 1 ? words[i] + value : value + (cl_uint)i;
}

static void launch_copy(void)
{
    const int to = some_view(), from = some_view();
    const size_t most = views[to].size < views[from].size ? views[to].size : views[from].size;
    const size_t first = below(most), count = between(1, most - first < 3000 ? most - first : 3000);
    struct command *command = fresh("fake_copy");
    tell("  from view %d to view %d, items from %zu, %zu", from, to, first, count);
    command->uses[command->use_count++] = whole(to, 1);
    command->uses[command->use_count++] = whole(from, 0);
    if (is_mapped(command) || overlap(&command->uses[0], &command->uses[1]))
        return;
    OK(clSetKernelArg(kernels[3], 0, sizeof(cl_mem), &views[to].buffer));
    OK(clSetKernelArg(kernels[3], 1, sizeof(cl_mem), &views[from].buffer));
    launch(command, kernels[3], first, count);
    memcpy(roots[views[to].root].model + views[to].origin + first,
           roots[views[from].root].model + views[from].origin + first, count);
}

static void launch_mingle(void)
{
    int v[4];
    size_t items = 1000;
    const cl_uint k = (cl_uint)below(1000000);
    struct command *command = fresh("mingle");
    for (int i = 0; i < 4; ++i) {
        v[i] = some_view();
        if (i < 3 && views[v[i]].size / 4 < items)
            items = views[v[i]].size / 4;
        command->uses[command->use_count++] = whole(v[i], i < 2);
        OK(clSetKernelArg(kernels[4], (cl_uint)i, sizeof(cl_mem), &views[v[i]].buffer));
    }
    tell("  views %d %d %d %d", v[0], v[1], v[2], v[3]);
    /* Written buffers must not overlap others, and constant memory is small. */
    for (int i = 0; i < 2; ++i)
        for (int j = i + 1; j < 4; ++j)
            if (overlap(&command->uses[i], &command->uses[j]))
                return;
    if (is_mapped(command) || views[v[3]].size > 32768)
        return;
    OK(clSetKernelArg(kernels[4], 4, sizeof k, &k));
    const size_t count = between(1, items);
    launch(command, kernels[4], 0, count);
    cl_uint *a = words_of(v[0]), *b = words_of(v[1]), *c = words_of(v[2]), *d = words_of(v[3]);
    for (size_t i = 0; i < count; ++i) {
        a[i] += b[i] * k + c[i];
        b[i] ^= d[i & 15];
    }
}

/* ---- maps ---- */

static void map_some(void)
{
    static const cl_map_flags all[] = {CL_MAP_READ, CL_MAP_WRITE, CL_MAP_READ | CL_MAP_WRITE,
                                       CL_MAP_WRITE_INVALIDATE_REGION};
    cl_int status;
    const int v = some_view();
    const struct view *view = &views[v];
    struct map map = {.view = v, .command = command_count, .flags = all[below(4)]};
    struct command *command = fresh("map");
    some_range(view, &map.offset, &map.length);
    tell("  view %d, from %zu, %zu bytes, flags %u", v, map.offset, map.length,
         (unsigned)map.flags);
    command->uses[command->use_count++] =
        range(view->root, map.flags != CL_MAP_READ, view->origin + map.offset, map.length);
    if (map_count == MOST_MAPS || is_mapped(command))
        return;
    const struct list list = put_in_order(command);
    const cl_bool blocks = may_block(command);
    map.at = clEnqueueMapBuffer(queues[command->queue], view->buffer, blocks, map.flags, map.offset,
                                map.length, EVENTS, &status);
    enqueued(command, status);
    wait_for(BIT(map.command));
    const struct root *root = &roots[view->root];
    if (root->host != NULL && map.at != root->host + view->origin + map.offset)
        wrong("event %d: a map of CL_MEM_USE_HOST_PTR lies elsewhere", map.command);
    if (map.flags != CL_MAP_WRITE_INVALIDATE_REGION) {
        command->length = map.length;
        command->got = bytes_of(map.length);
        command->expected = bytes_of(map.length);
        memcpy(command->got, map.at, map.length);
        memcpy(command->expected, root->model + view->origin + map.offset, map.length);
    }
    maps[map_count++] = map;
}

static void unmap(int m)
{
    const struct map map = maps[m];
    const struct view *view = &views[map.view];
    const cl_mem memory = map.picture != NULL ? map.picture->image : view->buffer;
    unsigned char *model = roots[view->root].model + view->origin + map.offset;
    maps[m] = maps[--map_count];
    struct command *command = fresh("unmap");
    tell("  of event %d", map.command);
    if (map.flags != CL_MAP_READ && map.picture != NULL) {
        write_map(&map);
    } else if (map.flags != CL_MAP_READ) {
        const size_t length = map.flags == CL_MAP_WRITE_INVALIDATE_REGION
                                  ? map.length
                                  : between(0, map.length);
        random_bytes(map.at, length);
        memcpy(model, map.at, length);
    }
    command->uses[command->use_count++] = commands[map.command].uses[0];
    const struct list list = put_in_order(command);
    enqueued(command,
             clEnqueueUnmapMemObject(queues[command->queue], memory, map.at, EVENTS));
}

/* ---- the rest ---- */

static void migrate(void)
{
    const int v = some_view();
    struct command *command = fresh("migrate");
    const cl_mem_migration_flags flags = chance(25) ? CL_MIGRATE_MEM_OBJECT_HOST : 0;
    tell("  view %d%s", v, flags ? ", to the host" : "");
    command->uses[command->use_count++] = whole(v, 0);
    if (is_mapped(command))
        return;
    const struct list list = put_in_order(command);
    enqueued(command, clEnqueueMigrateMemObjects(queues[command->queue], 1, &views[v].buffer, flags,
                                                 EVENTS));
}

static void add_gate(void)
{
    cl_int status;
    struct command *command = &commands[command_count];
    memset(command, 0, sizeof *command);
    command->queue = -1;
    command->event = clCreateUserEvent(context, &status);
    OK(status);
    if (!gates)
        OK(clSetUserEventStatus(command->event, CL_COMPLETE));
    tell("event %d: user event", command_count);
    unset |= BIT(command_count++);
}

static void synchronise(void)
{
    struct list none = {0, {NULL}}, list = none;
    const int q = (int)below(QUEUES);
    if (chance(50)) {
        struct command *command = fresh("barrier of all");
        command->before = queue_all[command->queue];
        list = none;
        enqueued(command, clEnqueueBarrierWithWaitList(queues[command->queue], EVENTS));
        queue_barrier[command->queue] = queue_all[command->queue];
        return;
    }
    tell("finish queue %d", q);
    set_gates(queue_all[q]);
    OK(clFinish(queues[q]));
    done |= queue_all[q];
}

static void new_sub_buffer(void)
{
    const int r = (int)below((u64)(root_count - picture_count));
    const size_t places = roots[r].size / ALIGNMENT;
    cl_int status;
    if (view_count == MOST_VIEWS)
        return;
    const size_t origin = ALIGNMENT * below(places);
    const size_t size = chance(60) ? ALIGNMENT * between(1, places - origin / ALIGNMENT)
                                   : 4 * between(16, (roots[r].size - origin) / 4);
    const cl_buffer_region region = {origin, size};
    const struct view view = {clCreateSubBuffer(roots[r].buffer, 0, CL_BUFFER_CREATE_TYPE_REGION,
                                                &region, &status),
                              r, origin, size};
    OK(status);
    tell("view %d: of root %d, from %zu, %zu bytes", view_count, r, origin, size);
    views[view_count++] = view;
}

static void step(void)
{
    const u64 what = below(100);
    if (picture_count > 0 && chance(30))
        step_of_picture();
    else if (what < 12)
        read_or_write(1);
    else if (what < 24)
        read_or_write(0);
    else if (what < 30)
        read_or_write_rect(1);
    else if (what < 36)
        read_or_write_rect(0);
    else if (what < 42)
        copy_rect();
    else if (what < 49)
        fill();
    else if (what < 57)
        copy();
    else if (what < 69)
        launch_of_one();
    else if (what < 76)
        launch_copy();
    else if (what < 82)
        computes ? launch_mingle() : launch_of_one();
    else if (what < 87)
        map_some();
    else if (what < 91)
        migrate();
    else if (what < 94)
        synchronise();
    else if (what < 97)
        new_sub_buffer();
    else
        add_gate();
    if (map_count > 0 && chance(30))
        unmap((int)below((u64)map_count));
    if (unset != 0 && chance(10))
        set_gates(chance(50) ? ~(mask)0 : BIT(below((u64)command_count)));
    if (chance(10))
        OK(clFlush(queues[below(QUEUES)]));
}

/* ---- a program ---- */

static void open_context(void)
{
    cl_int status;
    context = clCreateContext(NULL, device_count, devices, NULL, NULL, &status);
    OK(status);
    program = clCreateProgramWithSource(context, 1, (const char **)&SOURCE, NULL, &status);
    OK(status);
    OK(clBuildProgram(program, 0, NULL, "", NULL, NULL));
    for (int i = 0; i < 5; ++i) {
        kernels[i] = clCreateKernel(program, kernel_names[i], &status);
        OK(status);
    }
}

static void close_context(void)
{
    for (int i = 0; i < 5; ++i)
        OK(clReleaseKernel(kernels[i]));
    OK(clReleaseProgram(program));
    OK(clReleaseContext(context));
}

static void open_queues(void)
{
    for (int q = 0; q < QUEUES; ++q) {
        cl_int status;
        cl_command_queue_properties can = 0;
        const cl_device_id device = devices[below(5040) % device_count];
        OK(clGetDeviceInfo(device, CL_DEVICE_QUEUE_PROPERTIES, sizeof can, &can, NULL));
        in_order[q] = chance(60);
        const int out = !in_order[q] && (can & CL_QUEUE_OUT_OF_ORDER_EXEC_MODE_ENABLE);
        queues[q] = clCreateCommandQueue(
            context, device, out ? CL_QUEUE_OUT_OF_ORDER_EXEC_MODE_ENABLE : 0, &status);
        OK(status);
        queue_all[q] = queue_barrier[q] = 0;
        tell("queue %d: device %d, %s", q, device_of(q), in_order[q] ? "in order" : "out of order");
    }
}

static void open_root(void)
{
    static const cl_mem_flags all[] = {0, CL_MEM_COPY_HOST_PTR, CL_MEM_USE_HOST_PTR,
                                       CL_MEM_ALLOC_HOST_PTR | CL_MEM_COPY_HOST_PTR};
    cl_int status;
    struct root *root = &roots[root_count];
    memset(root, 0, sizeof *root);
    root->size = ALIGNMENT * (chance(8) ? between(800, 4000) : between(1, 40));
    root->flags = all[below(4)];
    root->model = bytes_of(root->size);
    random_bytes(root->model, root->size);
    void *host = NULL;
    if (root->flags & CL_MEM_USE_HOST_PTR) {
        if (posix_memalign(&host, 4096, root->size) != 0)
            abort();
        root->host = host;
        memcpy(host, root->model, root->size);
    } else if (root->flags & CL_MEM_COPY_HOST_PTR) {
        host = root->model;
    }
    root->buffer = clCreateBuffer(context, CL_MEM_READ_WRITE | root->flags, root->size, host, &status);
    OK(status);
    tell("view %d: root %d, %zu bytes, flags %u", view_count, root_count, root->size,
         (unsigned)root->flags);
    const struct view view = {root->buffer, root_count++, 0, root->size};
    root->view = view_count;
    views[view_count++] = view;
    if (root->flags == 0) {
        struct command *command = fresh("first write");
        command->uses[command->use_count++] = range(view.root, 1, 0, root->size);
        command->got = bytes_of(root->size);
        memcpy(command->got, root->model, root->size);
        const struct list list = put_in_order(command);
        enqueued(command, clEnqueueWriteBuffer(queues[command->queue], view.buffer, CL_FALSE, 0,
                                               root->size, command->got, EVENTS));
    }
}

static void read_all(void)
{
    for (int r = 0; r < root_count; ++r) {
        if (roots[r].picture > 0) {
            read_picture(&pictures[roots[r].picture - 1]);
            continue;
        }
        struct command *command = fresh("last read");
        command->uses[command->use_count++] = range(r, 0, 0, roots[r].size);
        command->length = roots[r].size;
        command->got = bytes_of(command->length);
        command->expected = bytes_of(command->length);
        memcpy(command->expected, roots[r].model, command->length);
        const struct list list = put_in_order(command);
        enqueued(command, clEnqueueReadBuffer(queues[command->queue], roots[r].buffer, CL_FALSE, 0,
                                              command->length, command->got, EVENTS));
    }
}

static void close_program(void)
{
    for (int i = 0; i < command_count; ++i) {
        check_read(&commands[i]);
        OK(clReleaseEvent(commands[i].event));
        free(commands[i].got);
        free(commands[i].expected);
    }
    for (int q = 0; q < QUEUES; ++q)
        OK(clReleaseCommandQueue(queues[q]));
    for (int v = 0; v < view_count; ++v)
        OK(clReleaseMemObject(views[v].buffer));
    for (int p = 0; p < picture_count; ++p)
        OK(clReleaseMemObject(pictures[p].image));
    for (int r = 0; r < root_count; ++r) {
        free(roots[r].model);
        free(roots[r].host);
    }
}

static void expect_all(cl_command_queue queue, cl_mem buffer, unsigned char value)
{
    unsigned char bytes[4096];
    OK(clEnqueueReadBuffer(queue, buffer, CL_TRUE, 0, sizeof bytes, bytes, 0, NULL, NULL));
    for (size_t i = 0; i < sizeof bytes; ++i)
        if (bytes[i] != value)
            wrong("byte %zu beside a gated writer is %02x, must be %02x", i, bytes[i], value);
}

/*
 * Queues a writer behind an unset user event, and readers of the same buffer on another queue.
 * The other queue is on another device if there is one. The readers must not wait for the
 * writer, and must find the bytes from before.
 */
static void read_beside_a_gated_writer(void)
{
    cl_int status;
    const unsigned char old = 0x11, new = 0x22;
    const int reader = (int)between(1, QUEUES - 1);
    cl_event gate = clCreateUserEvent(context, &status);
    OK(status);
    cl_mem buffer = clCreateBuffer(context, 0, 4096, NULL, &status);
    OK(status);
    cl_mem other = clCreateBuffer(context, 0, 4096, NULL, &status);
    OK(status);
    tell("a gated writer on queue 0, readers on queue %d", reader);
    OK(clEnqueueFillBuffer(queues[0], buffer, &old, 1, 0, 4096, 0, NULL, NULL));
    OK(clFinish(queues[0]));
    OK(clEnqueueFillBuffer(queues[0], buffer, &new, 1, 0, 4096, 1, &gate, NULL));
    expect_all(queues[reader], buffer, old);
    OK(clEnqueueCopyBuffer(queues[reader], buffer, other, 0, 0, 4096, 0, NULL, NULL));
    OK(clFinish(queues[reader]));
    OK(clSetUserEventStatus(gate, CL_COMPLETE));
    OK(clFinish(queues[0]));
    expect_all(queues[reader], buffer, new);
    expect_all(queues[reader], other, old);
    OK(clReleaseMemObject(buffer));
    OK(clReleaseMemObject(other));
    OK(clReleaseEvent(gate));
}

static void run_program(u64 seed)
{
    numbers = seed;
    command_count = view_count = root_count = map_count = picture_count = 0;
    done = unset = 0;
    digest = 0xcbf29ce484222325u;
    feed_watchdog(seed);
    open_queues();
    const int count = (int)between(1, MOST_ROOTS);
    for (int r = 0; r < count; ++r)
        open_root();
    if (has_images && chance(50))
        for (u64 p = between(1, MOST_PICTURES); p > 0; --p)
            open_picture();
    const int length = (int)between(5, MOST_COMMANDS - 2 * MOST_MAPS - MOST_ROOTS - MOST_PICTURES);
    for (int tries = 0; command_count < length && tries < 3 * length; ++tries)
        step();
    while (map_count > 0)
        unmap(map_count - 1);
    read_all();
    set_gates(~(mask)0);
    for (int q = 0; q < QUEUES; ++q)
        OK(clFinish(queues[q]));
    if (gates && seed % 4 == 0)
        read_beside_a_gated_writer();
    const int made = command_count;
    close_program();
    printf("seed %llu: %d commands, digest %016llx\n", (unsigned long long)seed, made,
           (unsigned long long)digest);
}
