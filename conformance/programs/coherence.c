/*
 * Random programs over buffers that several devices share, checked against a model of flat memory.
 *
 *     coherence --devices N --seed S --rounds R [--computes 0] [--gates 0] [--sub-rects 0] [--images 0]
 *
 * Program i has the seed S + i. Commands that touch the same bytes are ordered by wait lists, in-order
 * queues or the host's waits. Other commands are not ordered. So every read has one right answer, which the
 * model knows at the read's enqueue. The random numbers do not depend on the number of devices. One device
 * runs the same program and prints the same digests.
 *
 * With --computes 0, the program leaves out a kernel of several arguments that the fake driver does not
 * know. With --gates 0, user events are set as soon as they are created. On some drivers blocking calls wait
 * for a whole queue. If all devices have images, some of the buffers are images (--images 0: none). With
 * --sub-rects 0, rectangles are not copied between sub-buffers, because PoCL 3.1 crashes on such copies.
 */
#include "random.h"

enum {
    MOST_COMMANDS = 120,
    MOST_ROOTS = 4, /* buffers */
    MOST_VIEWS = 14,
    MOST_USES = 4,
    QUEUES = 6,
    ALIGNMENT = 512,
    MOST_MAPS = 3
};

typedef unsigned __int128 mask;
#define BIT(i) ((mask)1 << (i))

struct root {
    cl_mem buffer;
    size_t size;
    cl_mem_flags flags;
    unsigned char *model;
    unsigned char *host; /* of CL_MEM_USE_HOST_PTR */
    int view;
    int picture; /* the number of the image that it is, counted from 1 */
};

/* A buffer or a sub-buffer. */
struct view {
    cl_mem buffer;
    int root;
    size_t origin, size;
};

/* The bytes of a root that a command reads or writes: rows in slices. A plain range is one row. */
struct use {
    int root, writes;
    size_t begin, row, pitch, slice;
    size_t rows, slices;
};

struct command {
    cl_event event;
    int queue;      /* -1: a user event */
    mask before;    /* all that ends before it does */
    struct use uses[MOST_USES];
    int use_count;
    unsigned char *got, *expected; /* of a read; of a write, `got` is the source */
    size_t length;
};

struct map {
    unsigned char *at;
    int view, command;
    size_t offset, length;
    cl_map_flags flags;
    const struct picture *picture; /* of an image: which box of it, and how its rows lie */
    size_t origin[3], region[3], pitch, slice;
};

static cl_context context;
static cl_program program;
static cl_kernel kernels[5]; /* in the order of kernel_names */
static cl_command_queue queues[QUEUES];
static int in_order[QUEUES];
static mask queue_all[QUEUES];
static mask queue_barrier[QUEUES]; /* before whatever is enqueued next */
static struct root roots[MOST_ROOTS + 2];
static int root_count;
static struct view views[MOST_VIEWS];
static int view_count;
static struct command commands[MOST_COMMANDS];
static int command_count;
static struct map maps[MOST_MAPS];
static int map_count;
static mask done, unset; /* commands known to have ended; user events still to be set */
static u64 digest;
static int computes, gates, sub_rects;

static const char *const kernel_names[] = {"fake_fill_u32", "fake_add_u32", "fake_iota_u32",
                                           "fake_copy", "mingle"};
static const char *const SOURCE =
    "kernel void fake_fill_u32(global uint *target, uint value)\n"
    "{ target[get_global_id(0)] = value; }\n"
    "kernel void fake_add_u32(global uint *target, uint value)\n"
    "{ target[get_global_id(0)] += value; }\n"
    "kernel void fake_iota_u32(global uint *target, uint first)\n"
    "{ target[get_global_id(0)] = first + (uint)get_global_id(0); }\n"
    "kernel void fake_copy(global uchar *target, global const uchar *source)\n"
    "{ target[get_global_id(0)] = source[get_global_id(0)]; }\n"
    "kernel void mingle(global uint *a, global uint *b, global const uint *c, constant uint *d,\n"
    "                   uint k)\n"
    "{ size_t i = get_global_id(0); a[i] += b[i] * k + c[i]; b[i] ^= d[i & 15]; }\n";

static void put_in_digest(const unsigned char *bytes, size_t length)
{
    for (size_t i = 0; i < length; ++i)
        digest = (digest ^ bytes[i]) * 0x100000001b3u;
}

static void random_bytes(unsigned char *bytes, size_t length)
{
    for (size_t i = 0; i < length; i += 8) {
        const u64 word = next_random(&numbers);
        memcpy(bytes + i, &word, length - i < 8 ? length - i : 8);
    }
}

static unsigned char *bytes_of(size_t length)
{
    unsigned char *bytes = malloc(length == 0 ? 1 : length);
    if (bytes == NULL)
        abort();
    return bytes;
}

/* ---- what may run at the same time ---- */

static size_t end_of(const struct use *use)
{
    return use->begin + (use->slices - 1) * use->slice + (use->rows - 1) * use->pitch + use->row;
}

static size_t row_of(const struct use *use, size_t i)
{
    return use->begin + i / use->rows * use->slice + i % use->rows * use->pitch;
}

static int overlap(const struct use *a, const struct use *b)
{
    if (a->root != b->root || a->begin >= end_of(b) || b->begin >= end_of(a))
        return 0;
    /* Both lists of rows ascend, so one pass over both is enough. */
    for (size_t i = 0, j = 0; i < a->rows * a->slices && j < b->rows * b->slices;) {
        const size_t first = row_of(a, i), other = row_of(b, j);
        if (first + a->row <= other)
            ++i;
        else if (other + b->row <= first)
            ++j;
        else
            return 1;
    }
    return 0;
}

static struct use range(int root, int writes, size_t begin, size_t length)
{
    const struct use use = {root, writes, begin, length, length, length, 1, 1};
    return use;
}

static struct use whole(int view, int writes)
{
    return range(views[view].root, writes, views[view].origin, views[view].size);
}

static int conflict(const struct command *a, const struct command *b)
{
    for (int i = 0; i < a->use_count; ++i)
        for (int j = 0; j < b->use_count; ++j)
            if ((a->uses[i].writes || b->uses[j].writes) && overlap(&a->uses[i], &b->uses[j]))
                return 1;
    return 0;
}

/* Whether the bytes are mapped, so that no command may touch them. */
static int is_mapped(const struct command *command)
{
    for (int m = 0; m < map_count; ++m)
        if (conflict(command, &commands[maps[m].command]))
            return 1;
    return 0;
}

/* ---- order ---- */

static void set_gates(mask of)
{
    for (int i = 0; i < command_count; ++i)
        if (of & unset & BIT(i)) {
            tell("  set user event %d", i);
            unset &= ~BIT(i);
            if (gates)
                OK(clSetUserEventStatus(commands[i].event, CL_COMPLETE));
        }
}

/* Lets the host wait for these commands, and so for all before them. */
static void wait_for(mask of)
{
    cl_event events[MOST_COMMANDS];
    cl_uint count = 0;
    for (int i = 0; i < command_count; ++i)
        if (of & BIT(i)) {
            set_gates(commands[i].before | BIT(i));
            events[count++] = commands[i].event;
            done |= commands[i].before | BIT(i);
        }
    if (count > 0)
        OK(clWaitForEvents(count, events));
}

struct list {
    cl_uint count;
    cl_event events[MOST_COMMANDS];
};

/* Makes the last command of the table wait for all commands that conflict with it. */
static struct list put_in_order(struct command *command)
{
    struct list list = {0, {NULL}};
    const int q = command->queue;
    mask needed = 0;
    for (int i = 0; i < command_count; ++i)
        if (!(done & BIT(i)) && conflict(command, &commands[i]))
            needed |= BIT(i);
    command->before = in_order[q] ? queue_all[q] : queue_barrier[q];
    needed &= ~command->before;
    if (needed != 0 && chance(8)) {
        wait_for(needed);
        return list;
    }
    char text[300] = "";
    size_t length = 0;
    /* Adds the needed events one by one. Now and then adds others: any command, or a user event not set yet. */
    while (needed != 0 || (chance(10) && command_count > 0) || (chance(25) && unset != 0)) {
        const mask among = needed != 0 ? needed : unset != 0 ? unset : ~(mask)0;
        int i = (int)below((u64)command_count);
        while (!(among & BIT(i)))
            i = (i + 1) % command_count;
        list.events[list.count++] = commands[i].event;
        command->before |= commands[i].before | BIT(i);
        needed &= ~command->before;
        if (length < sizeof text - 8)
            length += (size_t)snprintf(text + length, sizeof text - length, " %d", i);
    }
    tell("  waits for [%s ]", text);
    return list;
}

#define EVENTS list.count, list.count == 0 ? NULL : list.events, &command->event

static int device_of(int q)
{
    cl_device_id device;
    OK(clGetCommandQueueInfo(queues[q], CL_QUEUE_DEVICE, sizeof device, &device, NULL));
    for (cl_uint d = 0; d < device_count; ++d)
        if (devices[d] == device)
            return (int)d;
    return -1;
}

/* Returns a new, empty command on a random queue. */
static struct command *fresh(const char *what)
{
    struct command *command = &commands[command_count];
    memset(command, 0, sizeof *command);
    command->queue = (int)below(QUEUES);
    tell("event %d: %s on queue %d", command_count, what, command->queue);
    return command;
}

static void enqueued(struct command *command, cl_int status)
{
    const int index = (int)(command - commands);
    if (status != CL_SUCCESS)
        wrong("the enqueue of event %d -> %d", index, (int)status);
    queue_all[command->queue] |= command->before | BIT(index);
    ++command_count;
}

/* A blocking call is allowed only when no earlier command waits for this thread. */
static cl_bool may_block(struct command *command)
{
    if (!chance(25))
        return CL_FALSE;
    set_gates(command->before);
    tell("  blocking");
    return CL_TRUE;
}

/* ---- reads and writes ---- */

static int some_view(void)
{
    return (int)below((u64)view_count);
}

/* Chooses an unaligned offset and length within a view. */
static void some_range(const struct view *view, size_t *offset, size_t *length)
{
    if (chance(25)) {
        *offset = 0;
        *length = view->size;
        return;
    }
    *offset = below(view->size);
    *length = between(1, view->size - *offset);
    if (chance(50) && *length > 64)
        *length = between(1, 64);
}

static void check_read(struct command *command)
{
    if (command->expected == NULL)
        return;
    for (size_t i = 0; i < command->length; ++i)
        if (command->got[i] != command->expected[i])
            wrong("event %d: byte %zu of %zu is %02x, must be %02x", (int)(command - commands), i,
                  command->length, command->got[i], command->expected[i]);
    put_in_digest(command->got, command->length);
}

static void read_or_write(int writes)
{
    const int v = some_view();
    const struct view *view = &views[v];
    size_t offset, length;
    struct command *command = fresh(writes ? "write" : "read");
    some_range(view, &offset, &length);
    command->uses[command->use_count++] = range(view->root, writes, view->origin + offset, length);
    tell("  view %d, from %zu, %zu bytes", v, offset, length);
    if (is_mapped(command))
        return;
    unsigned char *model = roots[view->root].model + view->origin + offset;
    command->length = length;
    command->got = bytes_of(length);
    random_bytes(command->got, length < 512 ? length : 512);
    if (length > 512)
        memset(command->got + 512, (int)below(256), length - 512);
    const struct list list = put_in_order(command);
    const cl_bool blocks = may_block(command);
    if (writes) {
        memcpy(model, command->got, length);
        enqueued(command, clEnqueueWriteBuffer(queues[command->queue], view->buffer, blocks, offset,
                                               length, command->got, EVENTS));
        if (blocks) /* taken: the program's memory is its own again */
            memset(command->got, 0xee, length);
    } else {
        command->expected = bytes_of(length);
        memcpy(command->expected, model, length);
        enqueued(command, clEnqueueReadBuffer(queues[command->queue], view->buffer, blocks, offset,
                                              length, command->got, EVENTS));
    }
    if (blocks)
        done |= command->before | BIT(command - commands);
}

/* ---- rectangles ---- */

struct box {
    size_t origin[3], pitch, slice;
};

/* Chooses a region's place near the beginning of a view. The pitch is 0 if the region does not fit. */
static struct box some_box(size_t space, const size_t *region)
{
    struct box box = {{0, 0, 0}, 0, 0};
    box.pitch = region[0] + below(9);
    box.slice = box.pitch * (region[1] + below(3));
    const size_t needs = (region[2] - 1) * box.slice + (region[1] - 1) * box.pitch + region[0];
    if (needs > space)
        return (struct box){{0, 0, 0}, 0, 0};
    size_t left = space - needs;
    box.origin[2] = below(left / box.slice + 1 < 3 ? left / box.slice + 1 : 3);
    left -= box.origin[2] * box.slice;
    box.origin[1] = below(left / box.pitch + 1 < 20 ? left / box.pitch + 1 : 20);
    left -= box.origin[1] * box.pitch;
    box.origin[0] = below((left < box.pitch - region[0] ? left : box.pitch - region[0]) + 1);
    return box;
}

static size_t start_of(const struct box *box)
{
    return box->origin[2] * box->slice + box->origin[1] * box->pitch + box->origin[0];
}

static struct use boxed(int v, int writes, const struct box *box, const size_t *region)
{
    const struct use use = {views[v].root, writes, views[v].origin + start_of(box),
                            region[0],     box->pitch, box->slice, region[1], region[2]};
    return use;
}

static void copy_box(unsigned char *to, const struct box *there, const unsigned char *from,
                     const struct box *here, const size_t *region)
{
    for (size_t s = 0; s < region[2]; ++s)
        for (size_t r = 0; r < region[1]; ++r)
            memcpy(to + start_of(there) + s * there->slice + r * there->pitch,
                   from + start_of(here) + s * here->slice + r * here->pitch, region[0]);
}

static void read_or_write_rect(int writes)
{
    enum { HOST_SPACE = 16384 };
    const int v = some_view();
    const struct view *view = &views[v];
    const size_t region[3] = {between(1, 40), between(1, 12), between(1, 3)};
    const struct box box = some_box(view->size, region), host = some_box(HOST_SPACE, region);
    struct command *command = fresh(writes ? "write rect" : "read rect");
    if (box.pitch == 0)
        return;
    tell("  view %d from %zu, region %zu %zu %zu, pitches %zu %zu", v, start_of(&box), region[0],
         region[1], region[2], box.pitch, box.slice);
    command->uses[command->use_count++] = boxed(v, writes, &box, region);
    if (is_mapped(command))
        return;
    unsigned char *model = roots[view->root].model + view->origin;
    command->length = HOST_SPACE;
    command->got = bytes_of(HOST_SPACE);
    random_bytes(command->got, HOST_SPACE);
    const struct list list = put_in_order(command);
    const cl_bool blocks = may_block(command);
    const cl_command_queue queue = queues[command->queue];
    if (writes) {
        copy_box(model, &box, command->got, &host, region);
        enqueued(command, clEnqueueWriteBufferRect(queue, view->buffer, blocks, box.origin,
                                                   host.origin, region, box.pitch, box.slice,
                                                   host.pitch, host.slice, command->got, EVENTS));
    } else {
        command->expected = bytes_of(HOST_SPACE);
        memcpy(command->expected, command->got, HOST_SPACE);
        copy_box(command->expected, &host, model, &box, region);
        enqueued(command, clEnqueueReadBufferRect(queue, view->buffer, blocks, box.origin,
                                                  host.origin, region, box.pitch, box.slice,
                                                  host.pitch, host.slice, command->got, EVENTS));
    }
    if (blocks)
        done |= command->before | BIT(command - commands);
}

static void copy_rect(void)
{
    int from = some_view(), to = some_view();
    if (!sub_rects) {
        from = roots[views[from].root].view;
        to = roots[views[to].root].view;
    }
    const size_t region[3] = {between(1, 40), between(1, 12), between(1, 3)};
    const struct box here = some_box(views[from].size, region);
    const struct box there = some_box(views[to].size, region);
    struct command *command = fresh("copy rect");
    /* Copies within one buffer only if not even the ranges touch, because the drivers' rules are stricter. */
    if (here.pitch == 0 || there.pitch == 0 || views[from].root == views[to].root)
        return;
    tell("  view %d from %zu to view %d from %zu, region %zu %zu %zu, pitches %zu %zu, %zu %zu",
         from, start_of(&here), to, start_of(&there), region[0], region[1], region[2], here.pitch,
         here.slice, there.pitch, there.slice);
    command->uses[command->use_count++] = boxed(from, 0, &here, region);
    command->uses[command->use_count++] = boxed(to, 1, &there, region);
    if (is_mapped(command))
        return;
    const struct list list = put_in_order(command);
    copy_box(roots[views[to].root].model + views[to].origin, &there,
             roots[views[from].root].model + views[from].origin, &here, region);
    enqueued(command, clEnqueueCopyBufferRect(queues[command->queue], views[from].buffer,
                                              views[to].buffer, here.origin, there.origin, region,
                                              here.pitch, here.slice, there.pitch, there.slice,
                                              EVENTS));
}

#include "coherence_images.h"
#include "coherence_more.h"

int main(int argc, char **argv)
{
    const u64 seed = option(argc, argv, "--seed", 1);
    const u64 rounds = option(argc, argv, "--rounds", 20);
    setvbuf(stdout, NULL, _IOLBF, 0);
    sub_rects = option(argc, argv, "--sub-rects", 1) != 0;
    gates = option(argc, argv, "--gates", 1) != 0;
    computes = option(argc, argv, "--computes", 1) != 0;
    open_devices((cl_uint)option(argc, argv, "--devices", 1));
    has_images = option(argc, argv, "--images", 1) != 0;
    for (cl_uint d = 0; d < device_count; ++d) {
        cl_bool can = CL_FALSE;
        OK(clGetDeviceInfo(devices[d], CL_DEVICE_IMAGE_SUPPORT, sizeof can, &can, NULL));
        has_images &= can;
    }
    start_watchdog();
    open_context();
    for (u64 i = 0; i < rounds; ++i)
        run_program(seed + i);
    close_context();
    return EXIT_SUCCESS;
}
