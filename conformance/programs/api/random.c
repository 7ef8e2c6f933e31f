/*
 * Random sequences of transfers, copies, fills, maps and launches on a few buffers. A model in host memory does
 * the same steps at once. Each seed is a case. The program reports a difference with the step that found it.
 */
#include "../cltest.h"

enum { BUFFERS = 5, STEPS = 150, LARGEST = 1 << 18 };

static uint32_t state;

static uint32_t below(uint32_t limit)
{
    state = state * 1664525u + 1013904223u;
    return (uint32_t)(((uint64_t)state * limit) >> 32);
}

struct pair {
    cl_mem buffer;
    unsigned char *model;
    size_t size;
};

/* A pending read with its expected bytes, which the next finish compares. */
struct pending {
    unsigned char *got, *wanted;
    size_t size;
    int step;
};

static struct pair pairs[BUFFERS];
static struct pending reads[STEPS];
static unsigned char *sources[STEPS]; /* sources of non-blocking writes, until the finish */
static int read_count, source_count, chained;
static cl_command_queue on;
static cl_event last;
static cl_kernel add;

/* With an out-of-order queue, each command waits for the command before. */
static cl_uint waits(void)
{
    return chained && last != NULL;
}

static const cl_event *wait_list(void)
{
    return waits() ? &last : NULL;
}

static void follow(cl_event next)
{
    if (last != NULL)
        OK(clReleaseEvent(last));
    last = next;
}

static void part_of(const struct pair *pair, size_t *offset, size_t *size)
{
    *offset = 4 * below((uint32_t)(pair->size / 4));
    const size_t most = (pair->size - *offset) / 4;
    *size = 4 * (1 + below((uint32_t)(most < 64 || below(2) ? most : 64)));
}

static void settle(void)
{
    OK(clFinish(on));
    for (int i = 0; i < read_count; ++i) {
        if (memcmp(reads[i].got, reads[i].wanted, reads[i].size) != 0)
            fail("the read of step %d brought something else", reads[i].step);
        free(reads[i].got);
        free(reads[i].wanted);
    }
    for (int i = 0; i < source_count; ++i)
        free(sources[i]);
    read_count = source_count = 0;
}

static void write_part(struct pair *pair)
{
    size_t offset, size;
    cl_event next;
    const cl_bool blocking = below(3) == 0;
    part_of(pair, &offset, &size);
    unsigned char *source = malloc(size);
    for (size_t i = 0; i < size; ++i)
        source[i] = (unsigned char)below(256);
    OK(clEnqueueWriteBuffer(on, pair->buffer, blocking, offset, size, source, waits(),
                            wait_list(), &next));
    follow(next);
    memcpy(pair->model + offset, source, size);
    if (blocking)
        free(source);
    else
        sources[source_count++] = source;
}

static void read_part(struct pair *pair, int step)
{
    size_t offset, size;
    cl_event next;
    part_of(pair, &offset, &size);
    unsigned char *got = calloc(size, 1), *wanted = malloc(size);
    memcpy(wanted, pair->model + offset, size);
    OK(clEnqueueReadBuffer(on, pair->buffer, below(3) == 0, offset, size, got, waits(),
                           wait_list(), &next));
    follow(next);
    reads[read_count++] = (struct pending){got, wanted, size, step};
}

static void copy_part(struct pair *from, struct pair *to)
{
    size_t offset, size;
    cl_event next;
    if (from == to)
        return;
    part_of(from, &offset, &size);
    if (size > to->size)
        size = to->size;
    const size_t target = 4 * below((uint32_t)((to->size - size) / 4 + 1));
    OK(clEnqueueCopyBuffer(on, from->buffer, to->buffer, offset, target, size, waits(),
                           wait_list(), &next));
    follow(next);
    memcpy(to->model + target, from->model + offset, size);
}

static void fill_part(struct pair *pair)
{
    size_t offset, size;
    cl_event next;
    const uint32_t value = below(UINT32_MAX);
    part_of(pair, &offset, &size);
    OK(clEnqueueFillBuffer(on, pair->buffer, &value, 4, offset, size, waits(), wait_list(),
                           &next));
    follow(next);
    for (size_t i = 0; i < size; i += 4)
        memcpy(pair->model + offset + i, &value, 4);
}

static void map_part(struct pair *pair, int step)
{
    static const cl_map_flags kinds[] = {CL_MAP_READ, CL_MAP_WRITE, CL_MAP_READ | CL_MAP_WRITE,
                                         CL_MAP_WRITE_INVALIDATE_REGION};
    size_t offset, size;
    cl_event next;
    const cl_map_flags flags = kinds[below(4)];
    part_of(pair, &offset, &size);
    unsigned char *mapped = clEnqueueMapBuffer(on, pair->buffer, CL_TRUE, flags, offset, size,
                                               waits(), wait_list(), &next, &err);
    OK(err);
    follow(next);
    if (flags != CL_MAP_WRITE_INVALIDATE_REGION && memcmp(mapped, pair->model + offset, size) != 0)
        fail("the map of step %d shows something else", step);
    if (flags != CL_MAP_READ) {
        const size_t stride = flags == CL_MAP_WRITE_INVALIDATE_REGION ? 1 : 1 + below(7);
        for (size_t i = 0; i < size; i += stride)
            mapped[i] = pair->model[offset + i] = (unsigned char)below(256);
    }
    OK(clEnqueueUnmapMemObject(on, pair->buffer, mapped, waits(), wait_list(), &next));
    follow(next);
}

static void launch_add(struct pair *pair)
{
    cl_event next;
    const size_t count = pair->size / 4;
    const cl_int value = (cl_int)below(1000);
    set_add(add, pair->buffer, value);
    OK(clEnqueueNDRangeKernel(on, add, 1, NULL, &count, NULL, waits(), wait_list(), &next));
    follow(next);
    for (size_t i = 0; i < pair->size; i += 4) {
        uint32_t word;
        memcpy(&word, pair->model + i, 4);
        word += (uint32_t)value;
        memcpy(pair->model + i, &word, 4);
    }
}

static void read_rectangle(struct pair *pair, int step)
{
    /* Rows of 64 bytes, and a column of them, 4 to 32 bytes wide. */
    const size_t rows = pair->size / 64, width = 4 * (1 + below(8));
    const size_t left = 4 * below((uint32_t)((64 - width) / 4 + 1));
    const size_t origin[3] = {left, 0, 0}, zero[3] = {0, 0, 0}, region[3] = {width, rows, 1};
    cl_event next;
    unsigned char *got = calloc(rows, width), *wanted = malloc(rows * width);
    for (size_t row = 0; row < rows; ++row)
        memcpy(wanted + row * width, pair->model + row * 64 + left, width);
    OK(clEnqueueReadBufferRect(on, pair->buffer, CL_FALSE, origin, zero, region, 64, 0, 0, 0, got,
                               waits(), wait_list(), &next));
    follow(next);
    reads[read_count++] = (struct pending){got, wanted, rows * width, step};
}

static void step_at(int step)
{
    struct pair *pair = &pairs[below(BUFFERS)];
    switch (below(9)) {
    case 0: case 1: write_part(pair); break;
    case 2: read_part(pair, step); break;
    case 3: copy_part(pair, &pairs[below(BUFFERS)]); break;
    case 4: fill_part(pair); break;
    case 5: map_part(pair, step); break;
    case 6: launch_add(pair); break;
    case 7: read_rectangle(pair, step); break;
    default:
        if (below(3) == 0)
            settle();
        break;
    }
}

static void play(uint32_t seed, cl_command_queue queue_to_use, int chain)
{
    state = seed;
    on = queue_to_use;
    chained = chain;
    last = NULL;
    add = standard_kernel("add");
    for (int i = 0; i < BUFFERS; ++i) {
        pairs[i].size = i == 0 ? LARGEST : 64u << (2 * i);
        pairs[i].model = calloc(pairs[i].size, 1);
        pairs[i].buffer = clCreateBuffer(context, CL_MEM_READ_WRITE | CL_MEM_COPY_HOST_PTR,
                                         pairs[i].size, pairs[i].model, &err);
        OK(err);
    }
    for (int step = 0; step < STEPS; ++step)
        step_at(step);
    settle();
    for (int i = 0; i < BUFFERS; ++i) {
        unsigned char *back = malloc(pairs[i].size);
        OK(clEnqueueReadBuffer(on, pairs[i].buffer, CL_TRUE, 0, pairs[i].size, back, 0, NULL,
                               NULL));
        if (memcmp(back, pairs[i].model, pairs[i].size) != 0)
            fail("buffer %d ends with something else", i);
        free(back);
        free(pairs[i].model);
        OK(clReleaseMemObject(pairs[i].buffer));
    }
    follow(NULL);
    OK(clReleaseKernel(add));
    fact("seed %u: %d steps, all data as in the model", seed, STEPS);
}

CASE(random_in_order_1) { play(1, queue, 0); }
CASE(random_in_order_2) { play(20, queue, 0); }
CASE(random_in_order_3) { play(300, queue, 0); }
CASE(random_in_order_4) { play(4000, queue, 0); }

CASE(random_out_of_order_1)
{
    cl_command_queue unordered = out_of_order_queue();
    play(7, unordered, 1);
    OK(clReleaseCommandQueue(unordered));
}

CASE(random_out_of_order_2)
{
    cl_command_queue unordered = out_of_order_queue();
    play(70, unordered, 1);
    OK(clReleaseCommandQueue(unordered));
}
