/* Sub-buffers: ranges of a parent. */
#include "../cltest.h"

enum { PARENT = 64 * 1024 };

/* The alignment of origins in bytes. The device reports bits. */
static size_t alignment(void)
{
    return device_number(CL_DEVICE_MEM_BASE_ADDR_ALIGN) / 8;
}

static cl_mem sub(cl_mem parent, cl_mem_flags flags, size_t origin, size_t size)
{
    const cl_buffer_region region = {origin, size};
    cl_mem made =
        clCreateSubBuffer(parent, flags, CL_BUFFER_CREATE_TYPE_REGION, &region, &err);
    OK(err);
    return made;
}

CASE(subbuffer_info)
{
    const size_t origin = 4 * alignment();
    cl_mem parent = clCreateBuffer(context, CL_MEM_READ_WRITE, PARENT, NULL, &err);
    OK(err);
    cl_mem part = sub(parent, CL_MEM_READ_ONLY, origin, 1000);
    size_t size = 0, offset = 0;
    cl_mem above = NULL;
    cl_mem_flags flags = 0;
    OK(clGetMemObjectInfo(part, CL_MEM_SIZE, sizeof size, &size, NULL));
    OK(clGetMemObjectInfo(part, CL_MEM_OFFSET, sizeof offset, &offset, NULL));
    OK(clGetMemObjectInfo(part, CL_MEM_ASSOCIATED_MEMOBJECT, sizeof above, &above, NULL));
    OK(clGetMemObjectInfo(part, CL_MEM_FLAGS, sizeof flags, &flags, NULL));
    EQUAL(size, 1000);
    CHECK(offset == origin);
    CHECK(above == parent);
    EQUAL(flags, CL_MEM_READ_ONLY);
    OK(clReleaseMemObject(part));
    OK(clReleaseMemObject(parent));
}

SPEC_CASE(subbuffer_inherits_flags)
{
    cl_mem_flags flags = 0;
    cl_mem parent = clCreateBuffer(
        context, CL_MEM_READ_ONLY | CL_MEM_ALLOC_HOST_PTR | CL_MEM_HOST_WRITE_ONLY, PARENT, NULL,
        &err);
    OK(err);
    cl_mem part = sub(parent, 0, 0, 1024);
    OK(clGetMemObjectInfo(part, CL_MEM_FLAGS, sizeof flags, &flags, NULL));
    EQUAL(flags, CL_MEM_READ_ONLY | CL_MEM_ALLOC_HOST_PTR | CL_MEM_HOST_WRITE_ONLY);
    OK(clReleaseMemObject(part));
    OK(clReleaseMemObject(parent));
}

CASE(subbuffer_host_ptr)
{
    static char memory[PARENT] __attribute__((aligned(4096)));
    const size_t origin = alignment();
    cl_mem parent = clCreateBuffer(context, CL_MEM_READ_WRITE | CL_MEM_USE_HOST_PTR, PARENT,
                                   memory, &err);
    OK(err);
    cl_mem part = sub(parent, 0, origin, 512);
    char *host = NULL;
    OK(clGetMemObjectInfo(part, CL_MEM_HOST_PTR, sizeof host, &host, NULL));
    CHECK(host == memory + origin);
    char *mapped =
        clEnqueueMapBuffer(queue, part, CL_TRUE, CL_MAP_READ, 8, 16, 0, NULL, NULL, &err);
    OK(err);
    CHECK(mapped == memory + origin + 8);
    fact("host pointers of sub-buffers are the parent's plus the origin");
    OK(clEnqueueUnmapMemObject(queue, part, mapped, 0, NULL, NULL));
    OK(clFinish(queue));
    OK(clReleaseMemObject(part));
    OK(clReleaseMemObject(parent));
}

CASE(subbuffer_shares_data)
{
    const size_t origin = 2 * alignment();
    cl_mem parent = counting_buffer(PARENT / 4, 0);
    cl_mem part = sub(parent, CL_MEM_READ_WRITE, origin, 1024);
    CHECK(holds_counting(part, 256, (int)(origin / 4), 1));
    cl_kernel kernel = standard_kernel("add");
    set_add(kernel, part, 1000000);
    launch(queue, kernel, 256);
    CHECK(holds_counting(part, 256, (int)(origin / 4) + 1000000, 1));
    int edge[2];
    OK(clEnqueueReadBuffer(queue, parent, CL_TRUE, origin - 4, 8, edge, 0, NULL, NULL));
    CHECK(edge[0] == (int)(origin / 4) - 1 && edge[1] == (int)(origin / 4) + 1000000);
    OK(clEnqueueReadBuffer(queue, parent, CL_TRUE, origin + 1020, 8, edge, 0, NULL, NULL));
    CHECK(edge[0] == (int)(origin / 4) + 255 + 1000000 && edge[1] == (int)(origin / 4) + 256);
    fact("a kernel on the part changes the parent there and nowhere else");
    OK(clReleaseKernel(kernel));
    OK(clReleaseMemObject(part));
    OK(clReleaseMemObject(parent));
}

CASE(subbuffer_write_parent_read_part)
{
    const size_t origin = alignment();
    cl_mem parent = counting_buffer(PARENT / 4, 0);
    cl_mem part = sub(parent, 0, origin, 64);
    int values[16], back[16];
    for (int i = 0; i < 16; ++i)
        values[i] = -i;
    OK(clEnqueueWriteBuffer(queue, parent, CL_TRUE, origin, 64, values, 0, NULL, NULL));
    OK(clEnqueueReadBuffer(queue, part, CL_TRUE, 0, 64, back, 0, NULL, NULL));
    CHECK(memcmp(values, back, 64) == 0);
    fact("the part sees writes to the parent");
    OK(clReleaseMemObject(part));
    OK(clReleaseMemObject(parent));
}

CASE(subbuffer_create_errors)
{
    cl_mem parent = clCreateBuffer(context, CL_MEM_READ_ONLY, PARENT, NULL, &err);
    OK(err);
    const cl_buffer_region good = {0, 64}, empty = {0, 0}, beyond = {PARENT - alignment(), PARENT};
    REFUSED(clCreateSubBuffer(NULL, 0, CL_BUFFER_CREATE_TYPE_REGION, &good, &err),
            CL_INVALID_MEM_OBJECT);
    REFUSED(clCreateSubBuffer(parent, 0, CL_BUFFER_CREATE_TYPE_REGION, NULL, &err),
            CL_INVALID_VALUE);
    REFUSED(clCreateSubBuffer(parent, 0, 0x7777, &good, &err), CL_INVALID_VALUE);
    REFUSED(clCreateSubBuffer(parent, 0, CL_BUFFER_CREATE_TYPE_REGION, &empty, &err),
            CL_INVALID_BUFFER_SIZE);
    REFUSED(clCreateSubBuffer(parent, 0, CL_BUFFER_CREATE_TYPE_REGION, &beyond, &err),
            CL_INVALID_VALUE);
    REFUSED(clCreateSubBuffer(parent, CL_MEM_WRITE_ONLY, CL_BUFFER_CREATE_TYPE_REGION, &good, &err),
            CL_INVALID_VALUE);
    REFUSED(clCreateSubBuffer(parent, CL_MEM_READ_WRITE, CL_BUFFER_CREATE_TYPE_REGION, &good, &err),
            CL_INVALID_VALUE);
    REFUSED(clCreateSubBuffer(parent, CL_MEM_COPY_HOST_PTR, CL_BUFFER_CREATE_TYPE_REGION, &good,
                              &err),
            CL_INVALID_VALUE);
    OK(clReleaseMemObject(parent));
}

CASE(subbuffer_host_access_errors)
{
    cl_mem parent = clCreateBuffer(context, CL_MEM_HOST_NO_ACCESS, PARENT, NULL, &err);
    OK(err);
    const cl_buffer_region good = {0, 64};
    REFUSED(clCreateSubBuffer(parent, CL_MEM_HOST_READ_ONLY, CL_BUFFER_CREATE_TYPE_REGION, &good,
                              &err),
            CL_INVALID_VALUE);
    REFUSED(clCreateSubBuffer(parent, CL_MEM_HOST_WRITE_ONLY, CL_BUFFER_CREATE_TYPE_REGION, &good,
                              &err),
            CL_INVALID_VALUE);
    OK(clReleaseMemObject(parent));
}

SPEC_CASE(subbuffer_of_subbuffer)
{
    cl_mem parent = buffer_of(PARENT);
    cl_mem part = sub(parent, 0, 0, 4096);
    const cl_buffer_region inner = {0, 64};
    REFUSED(clCreateSubBuffer(part, 0, CL_BUFFER_CREATE_TYPE_REGION, &inner, &err),
            CL_INVALID_MEM_OBJECT);
    OK(clReleaseMemObject(part));
    OK(clReleaseMemObject(parent));
}

CASE(subbuffer_misaligned)
{
    if (alignment() < 2)
        skip("the device aligns nothing");
    cl_mem parent = buffer_of(PARENT);
    const cl_buffer_region region = {alignment() / 2, 64};
    cl_mem part = clCreateSubBuffer(parent, 0, CL_BUFFER_CREATE_TYPE_REGION, &region, &err);
    if (part == NULL) {
        EXPECT(err, CL_MISALIGNED_SUB_BUFFER_OFFSET);
    } else {
        /* NVIDIA accepts any origin, and programs rely on this. */
        cl_kernel kernel = standard_kernel("add");
        cl_int value = 0;
        OK(clEnqueueFillBuffer(queue, part, &(cl_int){1}, 4, 0, 64, 0, NULL, NULL));
        set_add(kernel, part, 2);
        launch(queue, kernel, 16);
        OK(clEnqueueReadBuffer(queue, parent, CL_TRUE, region.origin + 60, 4, &value, 0, NULL, NULL));
        EQUAL(value, 3);
        OK(clReleaseKernel(kernel));
        OK(clReleaseMemObject(part));
    }
    OK(clReleaseMemObject(parent));
}

CASE(subbuffer_outlives_parents_release)
{
    cl_mem parent = counting_buffer(PARENT / 4, 0);
    cl_mem part = sub(parent, 0, 0, 256);
    OK(clReleaseMemObject(parent));
    CHECK(holds_counting(part, 64, 0, 1));
    fact("the part holds its parent");
    OK(clReleaseMemObject(part));
}

CASE(subbuffer_copies)
{
    const size_t step = alignment() > 256 ? alignment() : 256;
    cl_mem parent = counting_buffer(PARENT / 4, 0);
    cl_mem low = sub(parent, 0, 0, step), high = sub(parent, 0, step, step);
    OK(clEnqueueCopyBuffer(queue, low, high, 0, 0, step, 0, NULL, NULL));
    CHECK(holds_counting(high, step / 4, 0, 1));
    fact("parts of one parent that do not overlap can be copied");
    OK(clReleaseMemObject(low));
    OK(clReleaseMemObject(high));
    OK(clReleaseMemObject(parent));
}

SPEC_CASE(subbuffer_copy_overlap)
{
    const size_t step = alignment() > 256 ? alignment() : 256;
    cl_mem parent = buffer_of(PARENT);
    cl_mem low = sub(parent, 0, 0, 2 * step), high = sub(parent, 0, step, 2 * step);
    EXPECT(clEnqueueCopyBuffer(queue, low, high, 0, 0, 2 * step, 0, NULL, NULL),
           CL_MEM_COPY_OVERLAP);
    OK(clReleaseMemObject(low));
    OK(clReleaseMemObject(high));
    OK(clReleaseMemObject(parent));
}

CASE(subbuffer_transfer_bounds)
{
    char memory[128];
    cl_mem parent = buffer_of(PARENT);
    cl_mem part = sub(parent, 0, 0, 64);
    EXPECT(clEnqueueReadBuffer(queue, part, CL_TRUE, 0, 65, memory, 0, NULL, NULL),
           CL_INVALID_VALUE);
    EXPECT(clEnqueueWriteBuffer(queue, part, CL_TRUE, 60, 8, memory, 0, NULL, NULL),
           CL_INVALID_VALUE);
    OK(clReleaseMemObject(part));
    OK(clReleaseMemObject(parent));
}
