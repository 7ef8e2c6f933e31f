/* Buffers: creation, host pointers, reads and writes. */
#include "../cltest.h"

CASE(buffer_info)
{
    cl_mem buffer = clCreateBuffer(context, CL_MEM_READ_ONLY, 4096, NULL, &err);
    OK(err);
    cl_mem_object_type type = 0;
    cl_mem_flags flags = 0;
    size_t size = 0, offset = 77;
    void *host = &size;
    cl_uint maps = 77, count = 0;
    cl_context owner = NULL;
    cl_mem parent = buffer;
    OK(clGetMemObjectInfo(buffer, CL_MEM_TYPE, sizeof type, &type, NULL));
    OK(clGetMemObjectInfo(buffer, CL_MEM_FLAGS, sizeof flags, &flags, NULL));
    OK(clGetMemObjectInfo(buffer, CL_MEM_SIZE, sizeof size, &size, NULL));
    OK(clGetMemObjectInfo(buffer, CL_MEM_HOST_PTR, sizeof host, &host, NULL));
    OK(clGetMemObjectInfo(buffer, CL_MEM_MAP_COUNT, sizeof maps, &maps, NULL));
    OK(clGetMemObjectInfo(buffer, CL_MEM_REFERENCE_COUNT, sizeof count, &count, NULL));
    OK(clGetMemObjectInfo(buffer, CL_MEM_CONTEXT, sizeof owner, &owner, NULL));
    OK(clGetMemObjectInfo(buffer, CL_MEM_ASSOCIATED_MEMOBJECT, sizeof parent, &parent, NULL));
    OK(clGetMemObjectInfo(buffer, CL_MEM_OFFSET, sizeof offset, &offset, NULL));
    EQUAL(type, CL_MEM_OBJECT_BUFFER);
    EQUAL(flags, CL_MEM_READ_ONLY);
    EQUAL(size, 4096);
    EQUAL(maps, 0);
    EQUAL(count, 1);
    EQUAL(offset, 0);
    CHECK(host == NULL && owner == context && parent == NULL);
    OK(clReleaseMemObject(buffer));
}

CASE(buffer_info_rules)
{
    cl_mem buffer = buffer_of(64);
    INFO_RULES(clGetMemObjectInfo, buffer, CL_MEM_TYPE);
    INFO_RULES(clGetMemObjectInfo, buffer, CL_MEM_FLAGS);
    INFO_RULES(clGetMemObjectInfo, buffer, CL_MEM_SIZE);
    INFO_RULES(clGetMemObjectInfo, buffer, CL_MEM_HOST_PTR);
    INFO_RULES(clGetMemObjectInfo, buffer, CL_MEM_MAP_COUNT);
    INFO_RULES(clGetMemObjectInfo, buffer, CL_MEM_REFERENCE_COUNT);
    INFO_RULES(clGetMemObjectInfo, buffer, CL_MEM_CONTEXT);
    INFO_RULES(clGetMemObjectInfo, buffer, CL_MEM_ASSOCIATED_MEMOBJECT);
    INFO_RULES(clGetMemObjectInfo, buffer, CL_MEM_OFFSET);
    EXPECT(clGetMemObjectInfo(buffer, UNKNOWN_INFO, 0, NULL, NULL), CL_INVALID_VALUE);
    OK(clReleaseMemObject(buffer));
}

CASE(buffer_create_errors)
{
    int memory[16];
    REFUSED(clCreateBuffer(context, 0, 0, NULL, &err), CL_INVALID_BUFFER_SIZE);
    REFUSED(clCreateBuffer(context, CL_MEM_READ_ONLY | CL_MEM_WRITE_ONLY, 16, NULL, &err),
            CL_INVALID_VALUE);
    REFUSED(clCreateBuffer(context, CL_MEM_READ_WRITE | CL_MEM_WRITE_ONLY, 16, NULL, &err),
            CL_INVALID_VALUE);
    REFUSED(clCreateBuffer(context, (cl_mem_flags)1 << 40, 16, NULL, &err), CL_INVALID_VALUE);
    REFUSED(clCreateBuffer(context, CL_MEM_USE_HOST_PTR, 16, NULL, &err), CL_INVALID_HOST_PTR);
    REFUSED(clCreateBuffer(context, CL_MEM_COPY_HOST_PTR, 16, NULL, &err), CL_INVALID_HOST_PTR);
    REFUSED(clCreateBuffer(context, 0, 16, memory, &err), CL_INVALID_HOST_PTR);
    REFUSED(clCreateBuffer(context, CL_MEM_USE_HOST_PTR | CL_MEM_COPY_HOST_PTR, 16, memory, &err),
            CL_INVALID_VALUE);
    REFUSED(clCreateBuffer(context, CL_MEM_USE_HOST_PTR | CL_MEM_ALLOC_HOST_PTR, 16, memory, &err),
            CL_INVALID_VALUE);
}

SPEC_CASE(buffer_host_access_flag_errors)
{
    REFUSED(clCreateBuffer(context, CL_MEM_HOST_READ_ONLY | CL_MEM_HOST_WRITE_ONLY, 16, NULL, &err),
            CL_INVALID_VALUE);
    REFUSED(clCreateBuffer(context, CL_MEM_HOST_NO_ACCESS | CL_MEM_HOST_READ_ONLY, 16, NULL, &err),
            CL_INVALID_VALUE);
    REFUSED(clCreateBuffer(context, CL_MEM_HOST_NO_ACCESS | CL_MEM_HOST_WRITE_ONLY, 16, NULL, &err),
            CL_INVALID_VALUE);
}

/* NVIDIA accepts larger buffers than it reports, and programs rely on this. */
CASE(buffer_larger_than_told)
{
    const cl_ulong most = device_number(CL_DEVICE_MAX_MEM_ALLOC_SIZE);
    cl_mem buffer = clCreateBuffer(context, 0, most + 4096, NULL, &err);
    if (buffer == NULL) {
        EXPECT(err, CL_INVALID_BUFFER_SIZE, CL_MEM_OBJECT_ALLOCATION_FAILURE);
        return;
    }
    /* NVIDIA's fills do not reach that far. */
    cl_program program =
        program_from("kernel void put(global uint *x, ulong at) { x[at] = 7; }", "");
    cl_kernel kernel = clCreateKernel(program, "put", &err);
    const cl_ulong at = most / 4 + 1023;
    cl_uint value = 0;
    OK(err);
    OK(clSetKernelArg(kernel, 0, sizeof buffer, &buffer));
    OK(clSetKernelArg(kernel, 1, sizeof at, &at));
    launch(queue, kernel, 1);
    OK(clEnqueueReadBuffer(queue, buffer, CL_TRUE, 4 * at, 4, &value, 0, NULL, NULL));
    EQUAL(value, 7);
    OK(clReleaseKernel(kernel));
    OK(clReleaseProgram(program));
    OK(clReleaseMemObject(buffer));
}

CASE(buffer_too_large)
{
    REFUSED(clCreateBuffer(context, 0, SIZE_MAX, NULL, &err), CL_INVALID_BUFFER_SIZE,
            CL_MEM_OBJECT_ALLOCATION_FAILURE);
}

SPEC_CASE(buffer_default_flags)
{
    /* Neither READ_ONLY nor WRITE_ONLY nor READ_WRITE: the default is READ_WRITE. */
    cl_mem buffer = clCreateBuffer(context, 0, 64, NULL, &err);
    OK(err);
    cl_mem_flags flags = 77;
    OK(clGetMemObjectInfo(buffer, CL_MEM_FLAGS, sizeof flags, &flags, NULL));
    fact("flags 0 or CL_MEM_READ_WRITE: %s", flags <= CL_MEM_READ_WRITE ? "yes" : "no");
    CHECK(flags <= CL_MEM_READ_WRITE);
    OK(clReleaseMemObject(buffer));
}

CASE(buffer_flags_told)
{
    static const cl_mem_flags asked[] = {
        CL_MEM_READ_WRITE, CL_MEM_WRITE_ONLY, CL_MEM_READ_ONLY | CL_MEM_HOST_WRITE_ONLY,
        CL_MEM_READ_WRITE | CL_MEM_ALLOC_HOST_PTR, CL_MEM_WRITE_ONLY | CL_MEM_HOST_READ_ONLY,
        CL_MEM_READ_WRITE | CL_MEM_HOST_NO_ACCESS};
    for (size_t i = 0; i < sizeof asked / sizeof *asked; ++i) {
        cl_mem buffer = clCreateBuffer(context, asked[i], 64, NULL, &err);
        OK(err);
        cl_mem_flags flags = 0;
        OK(clGetMemObjectInfo(buffer, CL_MEM_FLAGS, sizeof flags, &flags, NULL));
        fact("flags 0x%x told as 0x%x", (unsigned)asked[i], (unsigned)flags);
        CHECK(flags == asked[i]);
        OK(clReleaseMemObject(buffer));
    }
}

CASE(buffer_copy_host_ptr)
{
    int memory[256], back[256];
    for (int i = 0; i < 256; ++i)
        memory[i] = i * i;
    cl_mem buffer = clCreateBuffer(context, CL_MEM_READ_WRITE | CL_MEM_COPY_HOST_PTR,
                                   sizeof memory, memory, &err);
    OK(err);
    memset(memory, 0, sizeof memory); /* the buffer has its copy already */
    OK(clEnqueueReadBuffer(queue, buffer, CL_TRUE, 0, sizeof back, back, 0, NULL, NULL));
    int right = 1;
    for (int i = 0; i < 256; ++i)
        right &= back[i] == i * i;
    CHECK(right);
    void *host = memory;
    OK(clGetMemObjectInfo(buffer, CL_MEM_HOST_PTR, sizeof host, &host, NULL));
    fact("host pointer of COPY_HOST_PTR is %s", host == NULL ? "NULL" : "not NULL");
    OK(clReleaseMemObject(buffer));
}

CASE(buffer_use_host_ptr)
{
    static int memory[1024] __attribute__((aligned(4096)));
    for (int i = 0; i < 1024; ++i)
        memory[i] = i;
    cl_mem buffer = clCreateBuffer(context, CL_MEM_READ_WRITE | CL_MEM_USE_HOST_PTR,
                                   sizeof memory, memory, &err);
    OK(err);
    void *host = NULL;
    OK(clGetMemObjectInfo(buffer, CL_MEM_HOST_PTR, sizeof host, &host, NULL));
    CHECK(host == memory);
    cl_kernel kernel = standard_kernel("add");
    set_add(kernel, buffer, 5);
    launch(queue, kernel, 1024);
    int *mapped = clEnqueueMapBuffer(queue, buffer, CL_TRUE, CL_MAP_READ, 16, sizeof memory - 16,
                                     0, NULL, NULL, &err);
    OK(err);
    CHECK(mapped == memory + 4);
    int right = 1;
    for (int i = 4; i < 1024; ++i)
        right &= memory[i] == i + 5;
    CHECK(right);
    fact("a map gives host_ptr + offset with the newest data");
    OK(clEnqueueUnmapMemObject(queue, buffer, mapped, 0, NULL, NULL));
    OK(clFinish(queue));
    OK(clReleaseKernel(kernel));
    OK(clReleaseMemObject(buffer));
}

CASE(buffer_use_host_ptr_written_when_mapped)
{
    static int memory[64] __attribute__((aligned(4096)));
    cl_mem buffer = clCreateBuffer(context, CL_MEM_READ_WRITE | CL_MEM_USE_HOST_PTR,
                                   sizeof memory, memory, &err);
    OK(err);
    void *mapped = clEnqueueMapBuffer(queue, buffer, CL_TRUE, CL_MAP_WRITE, 0, sizeof memory, 0,
                                      NULL, NULL, &err);
    OK(err);
    for (int i = 0; i < 64; ++i)
        memory[i] = 100 + i;
    OK(clEnqueueUnmapMemObject(queue, buffer, mapped, 0, NULL, NULL));
    CHECK(holds_counting(buffer, 64, 100, 1));
    fact("what is written into mapped host memory arrives");
    OK(clReleaseMemObject(buffer));
}

CASE(buffer_alloc_host_ptr)
{
    cl_mem buffer = clCreateBuffer(context, CL_MEM_READ_WRITE | CL_MEM_ALLOC_HOST_PTR, 256, NULL,
                                   &err);
    OK(err);
    int *mapped = clEnqueueMapBuffer(queue, buffer, CL_TRUE, CL_MAP_WRITE, 0, 256, 0, NULL, NULL,
                                     &err);
    OK(err);
    for (int i = 0; i < 64; ++i)
        mapped[i] = i;
    OK(clEnqueueUnmapMemObject(queue, buffer, mapped, 0, NULL, NULL));
    CHECK(holds_counting(buffer, 64, 0, 1));
    OK(clReleaseMemObject(buffer));
    buffer = clCreateBuffer(context, CL_MEM_ALLOC_HOST_PTR | CL_MEM_COPY_HOST_PTR, 16,
                            "fifteen letters", &err);
    EXPECT(err, CL_SUCCESS);
    char back[16] = "";
    OK(clEnqueueReadBuffer(queue, buffer, CL_TRUE, 0, 16, back, 0, NULL, NULL));
    fact("%s", back);
    OK(clReleaseMemObject(buffer));
}

SPEC_CASE(buffer_alloc_host_ptr_has_no_host_ptr)
{
    cl_mem buffer = clCreateBuffer(context, CL_MEM_ALLOC_HOST_PTR, 256, NULL, &err);
    OK(err);
    void *host = &err;
    OK(clGetMemObjectInfo(buffer, CL_MEM_HOST_PTR, sizeof host, &host, NULL));
    CHECK(host == NULL);
    OK(clReleaseMemObject(buffer));
}

CASE(buffer_write_then_read)
{
    static const size_t sizes[] = {1, 3, 4, 63, 4095, 4096, 4097, 65535, 65536, 65537, 1000003};
    for (size_t s = 0; s < sizeof sizes / sizeof *sizes; ++s) {
        const size_t size = sizes[s];
        unsigned char *out = malloc(size), *back = calloc(size, 1);
        for (size_t i = 0; i < size; ++i)
            out[i] = (unsigned char)(i * 131 + s);
        cl_mem buffer = buffer_of(size);
        OK(clEnqueueWriteBuffer(queue, buffer, CL_TRUE, 0, size, out, 0, NULL, NULL));
        OK(clEnqueueReadBuffer(queue, buffer, CL_TRUE, 0, size, back, 0, NULL, NULL));
        CHECK(memcmp(out, back, size) == 0);
        fact("%zu bytes", size);
        OK(clReleaseMemObject(buffer));
        free(out);
        free(back);
    }
}

CASE(buffer_parts)
{
    unsigned char all[256], back[256], part[19];
    memset(all, 7, sizeof all);
    for (int i = 0; i < 19; ++i)
        part[i] = (unsigned char)(200 + i);
    cl_mem buffer = buffer_of(256);
    OK(clEnqueueWriteBuffer(queue, buffer, CL_TRUE, 0, 256, all, 0, NULL, NULL));
    OK(clEnqueueWriteBuffer(queue, buffer, CL_TRUE, 101, 19, part, 0, NULL, NULL));
    OK(clEnqueueReadBuffer(queue, buffer, CL_TRUE, 0, 256, back, 0, NULL, NULL));
    memcpy(all + 101, part, 19);
    CHECK(memcmp(all, back, 256) == 0);
    memset(back, 0, 256);
    OK(clEnqueueReadBuffer(queue, buffer, CL_TRUE, 110, 5, back, 0, NULL, NULL));
    fact("%d %d %d %d %d, then %d", back[0], back[1], back[2], back[3], back[4], back[5]);
    OK(clReleaseMemObject(buffer));
}

CASE(buffer_large)
{
    const size_t size = (size_t)64 << 20;
    cl_uint *out = malloc(size), *back = malloc(size);
    for (size_t i = 0; i < size / 4; ++i)
        out[i] = (cl_uint)(i * 2654435761u);
    memset(back, 0, size);
    cl_mem buffer = buffer_of(size);
    OK(clEnqueueWriteBuffer(queue, buffer, CL_FALSE, 0, size, out, 0, NULL, NULL));
    OK(clEnqueueReadBuffer(queue, buffer, CL_TRUE, 0, size, back, 0, NULL, NULL));
    CHECK(memcmp(out, back, size) == 0);
    fact("64 MiB out and back");
    OK(clReleaseMemObject(buffer));
    free(out);
    free(back);
}

CASE(buffer_nonblocking_in_order)
{
    enum { COUNT = 200 };
    static int values[COUNT], back[COUNT];
    cl_mem buffer = buffer_of(4);
    for (int i = 0; i < COUNT; ++i) {
        values[i] = i + 1000;
        OK(clEnqueueWriteBuffer(queue, buffer, CL_FALSE, 0, 4, &values[i], 0, NULL, NULL));
        OK(clEnqueueReadBuffer(queue, buffer, CL_FALSE, 0, 4, &back[i], 0, NULL, NULL));
    }
    OK(clFinish(queue));
    CHECK(memcmp(values, back, sizeof values) == 0);
    fact("200 writes and reads keep their order");
    OK(clReleaseMemObject(buffer));
}

CASE(buffer_transfer_errors)
{
    char memory[256];
    cl_mem buffer = buffer_of(64), none = NULL;
    EXPECT(clEnqueueReadBuffer(NULL, buffer, CL_TRUE, 0, 4, memory, 0, NULL, NULL),
           CL_INVALID_COMMAND_QUEUE);
    EXPECT(clEnqueueWriteBuffer(NULL, buffer, CL_TRUE, 0, 4, memory, 0, NULL, NULL),
           CL_INVALID_COMMAND_QUEUE);
    EXPECT(clEnqueueReadBuffer(queue, none, CL_TRUE, 0, 4, memory, 0, NULL, NULL),
           CL_INVALID_MEM_OBJECT);
    EXPECT(clEnqueueWriteBuffer(queue, none, CL_TRUE, 0, 4, memory, 0, NULL, NULL),
           CL_INVALID_MEM_OBJECT);
    EXPECT(clEnqueueReadBuffer(queue, buffer, CL_TRUE, 0, 4, NULL, 0, NULL, NULL),
           CL_INVALID_VALUE);
    EXPECT(clEnqueueWriteBuffer(queue, buffer, CL_TRUE, 0, 4, NULL, 0, NULL, NULL),
           CL_INVALID_VALUE);
    EXPECT(clEnqueueReadBuffer(queue, buffer, CL_TRUE, 61, 4, memory, 0, NULL, NULL),
           CL_INVALID_VALUE);
    EXPECT(clEnqueueWriteBuffer(queue, buffer, CL_TRUE, 65, 4, memory, 0, NULL, NULL),
           CL_INVALID_VALUE);
    EXPECT(clEnqueueReadBuffer(queue, buffer, CL_TRUE, 0, 65, memory, 0, NULL, NULL),
           CL_INVALID_VALUE);
    EXPECT(clEnqueueReadBuffer(queue, buffer, CL_TRUE, SIZE_MAX - 1, 4, memory, 0, NULL, NULL),
           CL_INVALID_VALUE);
    OK(clReleaseMemObject(buffer));
}

CASE(buffer_transfer_error_leaves_event)
{
    char memory[64];
    cl_mem buffer = buffer_of(64);
    cl_event event = (cl_event)&err;
    EXPECT(clEnqueueReadBuffer(queue, buffer, CL_TRUE, 0, 65, memory, 0, NULL, &event),
           CL_INVALID_VALUE);
    CHECK(event == (cl_event)&err);
    fact("a failed enqueue does not touch the event");
    OK(clReleaseMemObject(buffer));
}

SPEC_CASE(buffer_of_another_context)
{
    char memory[64];
    cl_context other = another_context();
    cl_mem foreign = clCreateBuffer(other, 0, 64, NULL, &err);
    OK(err);
    cl_mem own = buffer_of(64);
    EXPECT(clEnqueueReadBuffer(queue, foreign, CL_TRUE, 0, 64, memory, 0, NULL, NULL),
           CL_INVALID_CONTEXT);
    EXPECT(clEnqueueWriteBuffer(queue, foreign, CL_TRUE, 0, 64, memory, 0, NULL, NULL),
           CL_INVALID_CONTEXT);
    EXPECT(clEnqueueCopyBuffer(queue, own, foreign, 0, 0, 64, 0, NULL, NULL), CL_INVALID_CONTEXT);
    OK(clReleaseMemObject(foreign));
    OK(clReleaseMemObject(own));
    OK(clReleaseContext(other));
}

CASE(buffer_host_no_access)
{
    char memory[64];
    cl_mem buffer = clCreateBuffer(context, CL_MEM_HOST_NO_ACCESS, 64, NULL, &err);
    OK(err);
    EXPECT(clEnqueueReadBuffer(queue, buffer, CL_TRUE, 0, 64, memory, 0, NULL, NULL),
           CL_INVALID_OPERATION);
    EXPECT(clEnqueueWriteBuffer(queue, buffer, CL_TRUE, 0, 64, memory, 0, NULL, NULL),
           CL_INVALID_OPERATION);
    REFUSED(clEnqueueMapBuffer(queue, buffer, CL_TRUE, CL_MAP_READ, 0, 64, 0, NULL, NULL, &err),
            CL_INVALID_OPERATION);
    REFUSED(clEnqueueMapBuffer(queue, buffer, CL_TRUE, CL_MAP_WRITE, 0, 64, 0, NULL, NULL, &err),
            CL_INVALID_OPERATION);
    OK(clReleaseMemObject(buffer));
}

CASE(buffer_host_read_only)
{
    char memory[64] = "";
    cl_mem buffer = clCreateBuffer(context, CL_MEM_HOST_READ_ONLY, 64, NULL, &err);
    OK(err);
    EXPECT(clEnqueueReadBuffer(queue, buffer, CL_TRUE, 0, 64, memory, 0, NULL, NULL), CL_SUCCESS);
    EXPECT(clEnqueueWriteBuffer(queue, buffer, CL_TRUE, 0, 64, memory, 0, NULL, NULL),
           CL_INVALID_OPERATION);
    REFUSED(clEnqueueMapBuffer(queue, buffer, CL_TRUE, CL_MAP_WRITE, 0, 64, 0, NULL, NULL, &err),
            CL_INVALID_OPERATION);
    OK(clReleaseMemObject(buffer));
}

CASE(buffer_host_write_only)
{
    char memory[64] = "";
    cl_mem buffer = clCreateBuffer(context, CL_MEM_HOST_WRITE_ONLY, 64, NULL, &err);
    OK(err);
    EXPECT(clEnqueueWriteBuffer(queue, buffer, CL_TRUE, 0, 64, memory, 0, NULL, NULL),
           CL_SUCCESS);
    EXPECT(clEnqueueReadBuffer(queue, buffer, CL_TRUE, 0, 64, memory, 0, NULL, NULL),
           CL_INVALID_OPERATION);
    REFUSED(clEnqueueMapBuffer(queue, buffer, CL_TRUE, CL_MAP_READ, 0, 64, 0, NULL, NULL, &err),
            CL_INVALID_OPERATION);
    OK(clReleaseMemObject(buffer));
}

CASE(buffer_device_flags_do_not_bind_the_host)
{
    char memory[16] = "host data", back[16] = "";
    cl_mem read_only = clCreateBuffer(context, CL_MEM_READ_ONLY, 16, NULL, &err);
    OK(err);
    cl_mem write_only = clCreateBuffer(context, CL_MEM_WRITE_ONLY, 16, NULL, &err);
    OK(err);
    OK(clEnqueueWriteBuffer(queue, read_only, CL_TRUE, 0, 16, memory, 0, NULL, NULL));
    OK(clEnqueueCopyBuffer(queue, read_only, write_only, 0, 0, 16, 0, NULL, NULL));
    OK(clEnqueueReadBuffer(queue, write_only, CL_TRUE, 0, 16, back, 0, NULL, NULL));
    fact("%s", back);
    OK(clReleaseMemObject(read_only));
    OK(clReleaseMemObject(write_only));
}

CASE(buffer_reference_count)
{
    cl_uint count = 0;
    cl_mem buffer = buffer_of(16);
    OK(clRetainMemObject(buffer));
    OK(clGetMemObjectInfo(buffer, CL_MEM_REFERENCE_COUNT, sizeof count, &count, NULL));
    EQUAL(count, 2);
    OK(clReleaseMemObject(buffer));
    OK(clGetMemObjectInfo(buffer, CL_MEM_REFERENCE_COUNT, sizeof count, &count, NULL));
    EQUAL(count, 1);
    OK(clReleaseMemObject(buffer));
}

CASE(buffer_null)
{
    EXPECT(clRetainMemObject(NULL), CL_INVALID_MEM_OBJECT);
    EXPECT(clReleaseMemObject(NULL), CL_INVALID_MEM_OBJECT);
    EXPECT(clGetMemObjectInfo(NULL, CL_MEM_SIZE, 0, NULL, NULL), CL_INVALID_MEM_OBJECT);
    EXPECT(clSetMemObjectDestructorCallback(NULL, NULL, NULL), CL_INVALID_MEM_OBJECT);
}

SPEC_CASE(buffer_wrong_kind)
{
    char memory[4];
    EXPECT(clRetainMemObject((cl_mem)queue), CL_INVALID_MEM_OBJECT);
    EXPECT(clGetMemObjectInfo((cl_mem)context, CL_MEM_SIZE, 0, NULL, NULL),
           CL_INVALID_MEM_OBJECT);
    EXPECT(clEnqueueReadBuffer(queue, (cl_mem)device, CL_TRUE, 0, 4, memory, 0, NULL, NULL),
           CL_INVALID_MEM_OBJECT);
}

SPEC_CASE(buffer_size_zero_transfers)
{
    /* Transfers of size zero are valid since OpenCL 2.1, and platforms of 3.0 accept them. */
    char memory[4];
    cl_event event = NULL;
    cl_mem buffer = buffer_of(16), other = buffer_of(16);
    EXPECT(clEnqueueReadBuffer(queue, buffer, CL_TRUE, 0, 0, memory, 0, NULL, &event), CL_SUCCESS);
    EQUAL(status_of(event), CL_COMPLETE);
    OK(clReleaseEvent(event));
    EXPECT(clEnqueueWriteBuffer(queue, buffer, CL_TRUE, 0, 0, memory, 0, NULL, NULL), CL_SUCCESS);
    EXPECT(clEnqueueCopyBuffer(queue, buffer, other, 0, 0, 0, 0, NULL, NULL), CL_SUCCESS);
    OK(clFinish(queue));
    OK(clReleaseMemObject(buffer));
    OK(clReleaseMemObject(other));
}

CASE(buffer_many)
{
    enum { COUNT = 500 };
    static cl_mem buffers[COUNT];
    for (int i = 0; i < COUNT; ++i) {
        buffers[i] = buffer_of(64);
        OK(clEnqueueWriteBuffer(queue, buffers[i], CL_FALSE, 0, sizeof i, &(int){i}, 0, NULL,
                                NULL));
        OK(clFinish(queue));
    }
    int right = 1;
    for (int i = 0; i < COUNT; ++i) {
        int value = -1;
        OK(clEnqueueReadBuffer(queue, buffers[i], CL_TRUE, 0, sizeof value, &value, 0, NULL,
                               NULL));
        right &= value == i;
        OK(clReleaseMemObject(buffers[i]));
    }
    CHECK(right);
    fact("500 buffers at once");
}
