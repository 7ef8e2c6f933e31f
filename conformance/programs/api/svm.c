/*
 * Coarse-grain shared virtual memory in a context of one device: the duties of a device with this feature.
 * The file absent.c judges devices without the feature.
 */
#define CL_TARGET_OPENCL_VERSION 300
#include "../cltest.h"

enum { COUNT = 1024, SIZE = COUNT * sizeof(cl_int) };

struct node {
    struct node *next;
    cl_int value;
};

static const char *const LISTS =
    "struct node { global struct node *next; int value; };\n"
    "kernel void sum(global struct node *first, global int *total)\n"
    "{\n"
    "    *total = 0;\n"
    "    for (global struct node *at = first; at; at = at->next) *total += at->value;\n"
    "}\n"
    "kernel void chain(global struct node *nodes, int count)\n"
    "{\n"
    "    for (int i = 0; i < count; ++i) {\n"
    "        nodes[i].next = i + 1 < count ? nodes + i + 1 : 0;\n"
    "        nodes[i].value = 3 * i;\n"
    "    }\n"
    "}\n";

static void *allocate(size_t size)
{
    void *at = clSVMAlloc(context, CL_MEM_READ_WRITE, size, 0);
    if (at == NULL) {
        fail("no %zu bytes of shared virtual memory", size);
        exit(EXIT_FAILURE);
    }
    return at;
}

static void map(void *at, size_t size, cl_map_flags flags)
{
    OK(clEnqueueSVMMap(queue, CL_TRUE, flags, at, size, 0, NULL, NULL));
}

static void unmap(void *at)
{
    OK(clEnqueueSVMUnmap(queue, at, 0, NULL, NULL));
}

static void count_from(cl_int *at, cl_int start)
{
    map(at, SIZE, CL_MAP_WRITE_INVALIDATE_REGION);
    for (int i = 0; i < COUNT; ++i)
        at[i] = start + i;
    unmap(at);
}

static int counts_from(cl_int *at, cl_int start)
{
    int right = 1;
    map(at, SIZE, CL_MAP_READ);
    for (int i = 0; i < COUNT; ++i)
        right &= at[i] == start + i;
    unmap(at);
    return right;
}

static cl_command_type command_of(cl_event event)
{
    cl_command_type type = 0;
    OK(clGetEventInfo(event, CL_EVENT_COMMAND_TYPE, sizeof type, &type, NULL));
    return type;
}

SPEC_CASE(svm_arguments_and_maps)
{
    needs_svm();
    cl_int *numbers = allocate(SIZE);
    cl_kernel kernel = standard_kernel("add");
    count_from(numbers, 5);
    EXPECT(clSetKernelArgSVMPointer(kernel, 0, numbers), CL_SUCCESS);
    OK(clSetKernelArg(kernel, 1, sizeof(cl_int), &(cl_int){100}));
    launch(queue, kernel, COUNT);
    CHECK(counts_from(numbers, 105));
    /* A pointer into the allocation. */
    EXPECT(clSetKernelArgSVMPointer(kernel, 0, numbers + 16), CL_SUCCESS);
    launch(queue, kernel, 4);
    map(numbers, SIZE, CL_MAP_READ | CL_MAP_WRITE);
    fact("%d %d %d %d", numbers[15], numbers[16], numbers[19], numbers[20]);
    unmap(numbers);
    EXPECT(clSetKernelArgSVMPointer(kernel, 9, numbers), CL_INVALID_ARG_INDEX);
    EXPECT(clSetKernelArgSVMPointer(kernel, 1, numbers), CL_INVALID_ARG_VALUE);
    OK(clFinish(queue));
    clSVMFree(context, numbers);
    clSVMFree(context, NULL);
    OK(clReleaseKernel(kernel));
}

SPEC_CASE(svm_pointers_in_memory)
{
    needs_svm();
    cl_program program = program_from(LISTS, "");
    cl_kernel sum = clCreateKernel(program, "sum", &err), chain = clCreateKernel(program, "chain", &err);
    struct node *nodes[8], *many = allocate(COUNT * sizeof *many);
    cl_int *total = allocate(sizeof *total), n = COUNT, seen = 0;
    for (int i = 0; i < 8; ++i)
        nodes[i] = allocate(sizeof *nodes[i]);
    for (int i = 0; i < 8; ++i) {
        map(nodes[i], sizeof *nodes[i], CL_MAP_WRITE);
        nodes[i]->next = i < 7 ? nodes[i + 1] : NULL;
        nodes[i]->value = 10 + i;
        unmap(nodes[i]);
    }
    OK(clSetKernelArgSVMPointer(sum, 0, nodes[0]));
    OK(clSetKernelArgSVMPointer(sum, 1, total));
    EXPECT(clSetKernelExecInfo(sum, CL_KERNEL_EXEC_INFO_SVM_PTRS, sizeof nodes, nodes), CL_SUCCESS);
    launch(queue, sum, 1);
    map(total, sizeof *total, CL_MAP_READ);
    EQUAL(*total, 108);
    unmap(total);
    /* Checks the numbers that a kernel made, too. */
    OK(clSetKernelArgSVMPointer(chain, 0, many));
    OK(clSetKernelArg(chain, 1, sizeof n, &n));
    launch(queue, chain, 1);
    map(many, COUNT * sizeof *many, CL_MAP_READ);
    for (struct node *at = many; at != NULL; at = at->next)
        seen += at->value == 3 * seen;
    EQUAL(seen, COUNT);
    unmap(many);
    OK(clFinish(queue));
    for (int i = 0; i < 8; ++i)
        clSVMFree(context, nodes[i]);
    clSVMFree(context, many);
    clSVMFree(context, total);
    OK(clReleaseKernel(sum));
    OK(clReleaseKernel(chain));
    OK(clReleaseProgram(program));
}

SPEC_CASE(svm_copies_and_fills)
{
    needs_svm();
    cl_int *one = allocate(SIZE), *other = allocate(SIZE), *mine = calloc(2 * COUNT, sizeof *mine);
    cl_event events[5];
    const cl_int seven = 7;
    count_from(one, 1);
    OK(clEnqueueSVMMemcpy(queue, CL_FALSE, other, one, SIZE, 0, NULL, &events[0]));
    OK(clEnqueueSVMMemFill(queue, other + 8, &seven, sizeof seven, 4 * sizeof seven, 0, NULL, &events[1]));
    OK(clEnqueueSVMMemcpy(queue, CL_TRUE, mine, other, SIZE, 0, NULL, &events[2]));
    fact("%d %d %d %d %d", mine[0], mine[7], mine[8], mine[11], mine[12]);
    OK(clEnqueueSVMMap(queue, CL_TRUE, CL_MAP_WRITE, other, SIZE, 0, NULL, &events[3]));
    OK(clEnqueueSVMUnmap(queue, other, 0, NULL, &events[4]));
    const int types[] = {CL_COMMAND_SVM_MEMCPY, CL_COMMAND_SVM_MEMFILL, CL_COMMAND_SVM_MEMCPY,
                         CL_COMMAND_SVM_MAP, CL_COMMAND_SVM_UNMAP};
    for (int i = 0; i < 5; ++i) {
        EQUAL(command_of(events[i]), types[i]);
        OK(clReleaseEvent(events[i]));
    }
    for (int i = 0; i < COUNT; ++i)
        mine[i] = 50 + i;
    OK(clEnqueueSVMMemcpy(queue, CL_TRUE, one, mine, SIZE, 0, NULL, NULL));
    CHECK(counts_from(one, 50));
    OK(clEnqueueSVMMemcpy(queue, CL_TRUE, mine + COUNT, mine, SIZE, 0, NULL, NULL));
    CHECK(memcmp(mine, mine + COUNT, SIZE) == 0);
    const void *pointers[] = {one, other};
    const size_t sizes[] = {0, SIZE};
    EXPECT(clEnqueueSVMMigrateMem(queue, 2, pointers, sizes, 0, 0, NULL, NULL), CL_SUCCESS);
    EXPECT(clEnqueueSVMMigrateMem(queue, 2, pointers, NULL, CL_MIGRATE_MEM_OBJECT_HOST, 0, NULL, NULL),
           CL_SUCCESS);
    CHECK(counts_from(one, 50));
    OK(clFinish(queue));
    clSVMFree(context, one);
    clSVMFree(context, other);
    free(mine);
}

SPEC_CASE(svm_wrong_arguments)
{
    needs_svm();
    cl_command_queue wrong = (cl_command_queue)(void *)context;
    cl_context another = another_context();
    cl_event of_another = clCreateUserEvent(another, &err);
    cl_int *at = allocate(SIZE), host[8] = {0};
    void *list[] = {at};
    const void *pointers[] = {at};
    const size_t more[] = {SIZE + 1};
    cl_kernel kernel = standard_kernel("add");
    CHECK(clSVMAlloc(context, CL_MEM_READ_WRITE, 0, 0) == NULL);
    CHECK(clSVMAlloc(context, CL_MEM_READ_WRITE | CL_MEM_READ_ONLY, 64, 0) == NULL);
    CHECK(clSVMAlloc(context, CL_MEM_READ_WRITE, 64, 3) == NULL);
    CHECK(clSVMAlloc(context, CL_MEM_SVM_ATOMICS, 64, 0) == NULL);
    EXPECT(clEnqueueSVMMap(wrong, CL_TRUE, CL_MAP_READ, at, 4, 0, NULL, NULL), CL_INVALID_COMMAND_QUEUE);
    EXPECT(clEnqueueSVMMap(queue, CL_TRUE, CL_MAP_READ, NULL, 4, 0, NULL, NULL), CL_INVALID_VALUE);
    EXPECT(clEnqueueSVMMap(queue, CL_TRUE, CL_MAP_READ, at, 0, 0, NULL, NULL), CL_INVALID_VALUE);
    EXPECT(clEnqueueSVMMap(queue, CL_TRUE, (cl_map_flags)1 << 9, at, 4, 0, NULL, NULL), CL_INVALID_VALUE);
    EXPECT(clEnqueueSVMMap(queue, CL_TRUE, CL_MAP_READ, at, 4, 1, NULL, NULL), CL_INVALID_EVENT_WAIT_LIST);
    EXPECT(clEnqueueSVMUnmap(wrong, at, 0, NULL, NULL), CL_INVALID_COMMAND_QUEUE);
    EXPECT(clEnqueueSVMUnmap(queue, NULL, 0, NULL, NULL), CL_INVALID_VALUE);
    map(at, SIZE, CL_MAP_READ);
    EXPECT(clEnqueueSVMUnmap(queue, at, 1, NULL, NULL), CL_INVALID_EVENT_WAIT_LIST);
    unmap(at);
    EXPECT(clEnqueueSVMMemcpy(wrong, CL_TRUE, at, host, 4, 0, NULL, NULL), CL_INVALID_COMMAND_QUEUE);
    EXPECT(clEnqueueSVMMemcpy(queue, CL_TRUE, at, NULL, 4, 0, NULL, NULL), CL_INVALID_VALUE);
    EXPECT(clEnqueueSVMMemcpy(queue, CL_TRUE, NULL, at, 4, 0, NULL, NULL), CL_INVALID_VALUE);
    EXPECT(clEnqueueSVMMemcpy(queue, CL_TRUE, at, at + 2, 12, 0, NULL, NULL), CL_MEM_COPY_OVERLAP);
    EXPECT(clEnqueueSVMMemcpy(queue, CL_TRUE, at, host, 4, 1, NULL, NULL), CL_INVALID_EVENT_WAIT_LIST);
    EXPECT(clEnqueueSVMMemcpy(queue, CL_TRUE, at, host, 4, 1, &of_another, NULL), CL_INVALID_CONTEXT);
    EXPECT(clEnqueueSVMMemFill(wrong, at, host, 4, 4, 0, NULL, NULL), CL_INVALID_COMMAND_QUEUE);
    EXPECT(clEnqueueSVMMemFill(queue, NULL, host, 4, 4, 0, NULL, NULL), CL_INVALID_VALUE);
    EXPECT(clEnqueueSVMMemFill(queue, (char *)at + 2, host, 4, 4, 0, NULL, NULL), CL_INVALID_VALUE);
    EXPECT(clEnqueueSVMMemFill(queue, at, host, 3, 12, 0, NULL, NULL), CL_INVALID_VALUE);
    EXPECT(clEnqueueSVMMemFill(queue, at, host, 4, 6, 0, NULL, NULL), CL_INVALID_VALUE);
    EXPECT(clEnqueueSVMMemFill(queue, at, NULL, 4, 4, 0, NULL, NULL), CL_INVALID_VALUE);
    EXPECT(clEnqueueSVMMemFill(queue, at, host, 4, 4, 1, NULL, NULL), CL_INVALID_EVENT_WAIT_LIST);
    EXPECT(clEnqueueSVMMigrateMem(wrong, 1, pointers, NULL, 0, 0, NULL, NULL), CL_INVALID_COMMAND_QUEUE);
    EXPECT(clEnqueueSVMMigrateMem(queue, 0, pointers, NULL, 0, 0, NULL, NULL), CL_INVALID_VALUE);
    EXPECT(clEnqueueSVMMigrateMem(queue, 1, NULL, NULL, 0, 0, NULL, NULL), CL_INVALID_VALUE);
    EXPECT(clEnqueueSVMMigrateMem(queue, 1, pointers, more, 0, 0, NULL, NULL), CL_INVALID_VALUE);
    EXPECT(clEnqueueSVMMigrateMem(queue, 1, pointers, NULL, 0, 1, NULL, NULL), CL_INVALID_EVENT_WAIT_LIST);
    EXPECT(clEnqueueSVMFree(wrong, 1, list, NULL, NULL, 0, NULL, NULL), CL_INVALID_COMMAND_QUEUE);
    EXPECT(clEnqueueSVMFree(queue, 0, list, NULL, NULL, 0, NULL, NULL), CL_INVALID_VALUE);
    EXPECT(clEnqueueSVMFree(queue, 1, NULL, NULL, NULL, 0, NULL, NULL), CL_INVALID_VALUE);
    EXPECT(clEnqueueSVMFree(queue, 1, list, NULL, NULL, 1, NULL, NULL), CL_INVALID_EVENT_WAIT_LIST);
    EXPECT(clSetKernelExecInfo(kernel, 0x7777, sizeof list, list), CL_INVALID_VALUE);
    EXPECT(clSetKernelExecInfo(kernel, CL_KERNEL_EXEC_INFO_SVM_PTRS, sizeof list, NULL), CL_INVALID_VALUE);
    const cl_bool no = CL_FALSE;
    EXPECT(clSetKernelExecInfo(kernel, CL_KERNEL_EXEC_INFO_SVM_FINE_GRAIN_SYSTEM, sizeof no, &no),
           CL_SUCCESS);
    const cl_bool yes = CL_TRUE;
    EXPECT(clSetKernelExecInfo(kernel, CL_KERNEL_EXEC_INFO_SVM_FINE_GRAIN_SYSTEM, sizeof yes, &yes),
           CL_INVALID_OPERATION);
    OK(clFinish(queue));
    clSVMFree(context, at);
    OK(clReleaseEvent(of_another));
    OK(clReleaseContext(another));
    OK(clReleaseKernel(kernel));
}

static struct latch freed = LATCH;

static void CL_CALLBACK on_free(cl_command_queue of, cl_uint count, void **pointers, void *user)
{
    cl_context owner = NULL;
    OK(clGetCommandQueueInfo(of, CL_QUEUE_CONTEXT, sizeof owner, &owner, NULL));
    for (cl_uint i = 0; i < count; ++i)
        clSVMFree(owner, pointers[i]);
    *(cl_uint *)user = count;
    latch_add(&freed);
}

SPEC_CASE(svm_enqueued_free)
{
    needs_svm();
    cl_uint count = 0;
    void *both[] = {allocate(SIZE), allocate(64)}, *last[] = {allocate(SIZE)};
    cl_event event;
    OK(clEnqueueSVMFree(queue, 2, both, on_free, &count, 0, NULL, &event));
    OK(clWaitForEvents(1, &event));
    latch_wait(&freed, 1);
    EQUAL(count, 2);
    EQUAL(command_of(event), CL_COMMAND_SVM_FREE);
    EXPECT(clEnqueueSVMFree(queue, 1, last, NULL, NULL, 1, &event, NULL), CL_SUCCESS);
    OK(clFinish(queue));
    OK(clReleaseEvent(event));
}

SPEC_CASE(svm_buffers_over_an_allocation)
{
    needs_svm();
    cl_int *numbers = allocate(SIZE);
    cl_bool uses = CL_FALSE;
    cl_kernel kernel = standard_kernel("add");
    count_from(numbers, 5);
    REFUSED(clCreateBuffer(context, CL_MEM_USE_HOST_PTR, 2 * SIZE, numbers, &err), CL_INVALID_BUFFER_SIZE);
    cl_mem buffer = clCreateBuffer(context, CL_MEM_USE_HOST_PTR, SIZE, numbers, &err), plain = buffer_of(64);
    EXPECT(err, CL_SUCCESS);
    OK(clGetMemObjectInfo(buffer, CL_MEM_USES_SVM_POINTER, sizeof uses, &uses, NULL));
    EQUAL(uses, CL_TRUE);
    OK(clGetMemObjectInfo(plain, CL_MEM_USES_SVM_POINTER, sizeof uses, &uses, NULL));
    EQUAL(uses, CL_FALSE);
    CHECK(holds_counting(buffer, COUNT, 5, 1));
    set_add(kernel, buffer, 10);
    launch(queue, kernel, COUNT);
    CHECK(counts_from(numbers, 15));
    OK(clSetKernelArgSVMPointer(kernel, 0, numbers));
    launch(queue, kernel, COUNT);
    CHECK(holds_counting(buffer, COUNT, 25, 1));
    const cl_int *mapped = clEnqueueMapBuffer(queue, buffer, CL_TRUE, CL_MAP_READ, 0, SIZE, 0, NULL, NULL, &err);
    CHECK(mapped == numbers && mapped[3] == 28);
    OK(clEnqueueUnmapMemObject(queue, buffer, (void *)mapped, 0, NULL, NULL));
    OK(clFinish(queue));
    OK(clReleaseMemObject(buffer));
    OK(clReleaseMemObject(plain));
    OK(clReleaseKernel(kernel));
    clSVMFree(context, numbers);
}
