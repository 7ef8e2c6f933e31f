/* Kernel arguments of all kinds except images and shared virtual memory. */
#include "../cltest.h"

static const char *const SOURCE =
    "typedef struct { char tag; int number; double_or_long wide; short tail; } record;\n"
    "kernel void scalars(global long *out, char c, uchar uc, short s, ushort us, int i, uint ui,\n"
    "                    long l, ulong ul, float f)\n"
    "{\n"
    "    out[0] = c; out[1] = uc; out[2] = s; out[3] = us; out[4] = i;\n"
    "    out[5] = ui; out[6] = l; out[7] = (long)ul; out[8] = (long)(f * 4.0f);\n"
    "}\n"
    "kernel void vectors(global int *out, char2 a, short3 b, int4 c, uint8 d, float16 e)\n"
    "{\n"
    "    out[0] = a.x + a.y; out[1] = b.x + b.y + b.z; out[2] = c.x + c.y + c.z + c.w;\n"
    "    out[3] = d.s0 + d.s7; out[4] = (int)(e.s0 + e.sf);\n"
    "}\n"
    "kernel void structure(global long *out, record r)\n"
    "{ out[0] = r.tag; out[1] = r.number; out[2] = r.wide; out[3] = r.tail; }\n"
    "kernel void tables(global int *out, constant int *a, constant int *b)\n"
    "{ out[get_global_id(0)] = a[get_global_id(0)] * 10 + b[get_global_id(0)]; }\n"
    "kernel void two_locals(global int *out, local int *a, local long *b)\n"
    "{\n"
    "    size_t l = get_local_id(0);\n"
    "    a[l] = (int)l; b[l] = 1000 * (long)l;\n"
    "    barrier(CLK_LOCAL_MEM_FENCE);\n"
    "    size_t m = get_local_size(0) - 1 - l;\n"
    "    out[get_global_id(0)] = a[m] + (int)b[m];\n"
    "}\n";

struct record {
    cl_char tag;
    cl_int number;
    cl_long wide;
    cl_short tail;
};

static cl_kernel kernel_named(const char *name)
{
    cl_program program = program_from(SOURCE, "-Ddouble_or_long=long");
    cl_kernel kernel = clCreateKernel(program, name, &err);
    OK(err);
    OK(clReleaseProgram(program));
    return kernel;
}

CASE(args_scalars)
{
    const cl_char c = -5;
    const cl_uchar uc = 250;
    const cl_short s = -30000;
    const cl_ushort us = 60000;
    const cl_int i = -2000000000;
    const cl_uint ui = 4000000000u;
    const cl_long l = -9000000000000000000LL;
    const cl_ulong ul = 0x0123456789abcdefULL;
    const cl_float f = 2.75f;
    cl_long out[9];
    cl_mem buffer = buffer_of(sizeof out);
    cl_kernel kernel = kernel_named("scalars");
    OK(clSetKernelArg(kernel, 0, sizeof buffer, &buffer));
    OK(clSetKernelArg(kernel, 1, sizeof c, &c));
    OK(clSetKernelArg(kernel, 2, sizeof uc, &uc));
    OK(clSetKernelArg(kernel, 3, sizeof s, &s));
    OK(clSetKernelArg(kernel, 4, sizeof us, &us));
    OK(clSetKernelArg(kernel, 5, sizeof i, &i));
    OK(clSetKernelArg(kernel, 6, sizeof ui, &ui));
    OK(clSetKernelArg(kernel, 7, sizeof l, &l));
    OK(clSetKernelArg(kernel, 8, sizeof ul, &ul));
    OK(clSetKernelArg(kernel, 9, sizeof f, &f));
    launch(queue, kernel, 1);
    OK(clEnqueueReadBuffer(queue, buffer, CL_TRUE, 0, sizeof out, out, 0, NULL, NULL));
    for (int n = 0; n < 9; ++n)
        fact("%lld", (long long)out[n]);
    OK(clReleaseKernel(kernel));
    OK(clReleaseMemObject(buffer));
}

CASE(args_vectors)
{
    const cl_char2 a = {{3, 4}};
    const cl_short3 b = {{100, 200, 300}};
    const cl_int4 c = {{1, 20, 300, 4000}};
    const cl_uint8 d = {{7, 0, 0, 0, 0, 0, 0, 70}};
    cl_float16 e;
    memset(&e, 0, sizeof e);
    e.s[0] = 1.5f;
    e.s[15] = 2.5f;
    cl_int out[5];
    cl_mem buffer = buffer_of(sizeof out);
    cl_kernel kernel = kernel_named("vectors");
    OK(clSetKernelArg(kernel, 0, sizeof buffer, &buffer));
    OK(clSetKernelArg(kernel, 1, sizeof a, &a));
    OK(clSetKernelArg(kernel, 2, sizeof b, &b)); /* 8 bytes: three take the room of four */
    OK(clSetKernelArg(kernel, 3, sizeof c, &c));
    OK(clSetKernelArg(kernel, 4, sizeof d, &d));
    OK(clSetKernelArg(kernel, 5, sizeof e, &e));
    launch(queue, kernel, 1);
    OK(clEnqueueReadBuffer(queue, buffer, CL_TRUE, 0, sizeof out, out, 0, NULL, NULL));
    fact("%d %d %d %d %d", out[0], out[1], out[2], out[3], out[4]);
    OK(clReleaseKernel(kernel));
    OK(clReleaseMemObject(buffer));
}

CASE(args_struct)
{
    const struct record record = {'x', -77, 1LL << 40, 1234};
    cl_long out[4];
    cl_mem buffer = buffer_of(sizeof out);
    cl_kernel kernel = kernel_named("structure");
    OK(clSetKernelArg(kernel, 0, sizeof buffer, &buffer));
    EXPECT(clSetKernelArg(kernel, 1, sizeof record, &record), CL_SUCCESS);
    launch(queue, kernel, 1);
    OK(clEnqueueReadBuffer(queue, buffer, CL_TRUE, 0, sizeof out, out, 0, NULL, NULL));
    fact("%lld %lld %lld %lld", (long long)out[0], (long long)out[1], (long long)out[2],
         (long long)out[3]);
    OK(clReleaseKernel(kernel));
    OK(clReleaseMemObject(buffer));
}

CASE(args_constant)
{
    cl_mem a = counting_buffer(8, 1), b = counting_buffer(8, 2), out = buffer_of(32);
    cl_kernel kernel = kernel_named("tables");
    OK(clSetKernelArg(kernel, 0, sizeof out, &out));
    OK(clSetKernelArg(kernel, 1, sizeof a, &a));
    OK(clSetKernelArg(kernel, 2, sizeof b, &b));
    launch(queue, kernel, 8);
    CHECK(holds_counting(out, 8, 12, 11));
    fact("two constant tables");
    OK(clReleaseKernel(kernel));
    OK(clReleaseMemObject(a));
    OK(clReleaseMemObject(b));
    OK(clReleaseMemObject(out));
}

CASE(args_local)
{
    const size_t global = 64, local = 16;
    int back[64], right = 1;
    cl_mem in = counting_buffer(64, 0), out = buffer_of(256);
    cl_kernel kernel = standard_kernel("reverse");
    OK(clSetKernelArg(kernel, 0, sizeof in, &in));
    OK(clSetKernelArg(kernel, 1, sizeof out, &out));
    EXPECT(clSetKernelArg(kernel, 2, local * sizeof(int), NULL), CL_SUCCESS);
    OK(clEnqueueNDRangeKernel(queue, kernel, 1, NULL, &global, &local, 0, NULL, NULL));
    OK(clEnqueueReadBuffer(queue, out, CL_TRUE, 0, sizeof back, back, 0, NULL, NULL));
    for (int i = 0; i < 64; ++i)
        right &= back[i] == (i / 16) * 16 + 15 - i % 16;
    CHECK(right);
    OK(clReleaseKernel(kernel));
    OK(clReleaseMemObject(in));
    OK(clReleaseMemObject(out));
}

CASE(args_two_locals)
{
    const size_t global = 32, local = 8;
    int back[32], right = 1;
    cl_mem out = buffer_of(128);
    cl_kernel kernel = kernel_named("two_locals");
    OK(clSetKernelArg(kernel, 0, sizeof out, &out));
    OK(clSetKernelArg(kernel, 1, local * 4, NULL));
    OK(clSetKernelArg(kernel, 2, local * 8, NULL));
    OK(clEnqueueNDRangeKernel(queue, kernel, 1, NULL, &global, &local, 0, NULL, NULL));
    OK(clEnqueueReadBuffer(queue, out, CL_TRUE, 0, sizeof back, back, 0, NULL, NULL));
    for (int i = 0; i < 32; ++i)
        right &= back[i] == 1001 * (7 - i % 8);
    CHECK(right);
    fact("two local arguments lie apart");
    OK(clReleaseKernel(kernel));
    OK(clReleaseMemObject(out));
}

CASE(args_null_buffer)
{
    cl_mem none = NULL, out = buffer_of(4), some = buffer_of(4);
    int answer = 0;
    cl_kernel kernel = standard_kernel("is_null");
    EXPECT(clSetKernelArg(kernel, 0, sizeof none, &none), CL_SUCCESS);
    OK(clSetKernelArg(kernel, 1, sizeof out, &out));
    launch(queue, kernel, 1);
    OK(clEnqueueReadBuffer(queue, out, CL_TRUE, 0, 4, &answer, 0, NULL, NULL));
    EQUAL(answer, 1);
    EXPECT(clSetKernelArg(kernel, 0, sizeof none, NULL), CL_SUCCESS);
    launch(queue, kernel, 1);
    OK(clEnqueueReadBuffer(queue, out, CL_TRUE, 0, 4, &answer, 0, NULL, NULL));
    EQUAL(answer, 1);
    EXPECT(clSetKernelArg(kernel, 0, sizeof some, &some), CL_SUCCESS);
    launch(queue, kernel, 1);
    OK(clEnqueueReadBuffer(queue, out, CL_TRUE, 0, 4, &answer, 0, NULL, NULL));
    EQUAL(answer, 2);
    OK(clReleaseKernel(kernel));
    OK(clReleaseMemObject(out));
    OK(clReleaseMemObject(some));
}

CASE(args_index_errors)
{
    int value = 0;
    cl_kernel kernel = standard_kernel("add");
    EXPECT(clSetKernelArg(kernel, 2, sizeof value, &value), CL_INVALID_ARG_INDEX);
    EXPECT(clSetKernelArg(kernel, 0xffffffffu, sizeof value, &value), CL_INVALID_ARG_INDEX);
    EXPECT(clSetKernelArg(NULL, 0, sizeof value, &value), CL_INVALID_KERNEL);
    OK(clReleaseKernel(kernel));
}

CASE(args_local_errors)
{
    int value = 0;
    cl_kernel kernel = standard_kernel("reverse");
    EXPECT(clSetKernelArg(kernel, 2, sizeof value, &value), CL_INVALID_ARG_VALUE);
    OK(clReleaseKernel(kernel));
}

SPEC_CASE(args_local_size_zero)
{
    /* Since OpenCL 3.1, a size of 0 is allowed. */
    cl_kernel kernel = standard_kernel("reverse");
    EXPECT(clSetKernelArg(kernel, 2, 0, NULL), CL_INVALID_ARG_SIZE, CL_SUCCESS);
    OK(clReleaseKernel(kernel));
}

CASE(args_buffer_size_errors)
{
    cl_mem buffer = buffer_of(64);
    cl_kernel kernel = standard_kernel("add");
    EXPECT(clSetKernelArg(kernel, 0, sizeof buffer - 1, &buffer), CL_INVALID_ARG_SIZE);
    EXPECT(clSetKernelArg(kernel, 0, sizeof buffer + 1, &buffer), CL_INVALID_ARG_SIZE);
    EXPECT(clSetKernelArg(kernel, 0, 0, &buffer), CL_INVALID_ARG_SIZE);
    OK(clReleaseKernel(kernel));
    OK(clReleaseMemObject(buffer));
}

SPEC_CASE(args_scalar_size_errors)
{
    cl_long value = 0;
    cl_kernel kernel = standard_kernel("add");
    EXPECT(clSetKernelArg(kernel, 1, 3, &value), CL_INVALID_ARG_SIZE);
    EXPECT(clSetKernelArg(kernel, 1, 5, &value), CL_INVALID_ARG_SIZE);
    EXPECT(clSetKernelArg(kernel, 1, 8, &value), CL_INVALID_ARG_SIZE);
    EXPECT(clSetKernelArg(kernel, 1, 0, &value), CL_INVALID_ARG_SIZE);
    EXPECT(clSetKernelArg(kernel, 1, 4, &value), CL_SUCCESS);
    OK(clReleaseKernel(kernel));
}

SPEC_CASE(args_vector_size_errors)
{
    cl_float16 value;
    memset(&value, 0, sizeof value);
    cl_kernel kernel = kernel_named("vectors");
    EXPECT(clSetKernelArg(kernel, 1, 1, &value), CL_INVALID_ARG_SIZE);
    EXPECT(clSetKernelArg(kernel, 2, 6, &value), CL_INVALID_ARG_SIZE);
    EXPECT(clSetKernelArg(kernel, 2, 8, &value), CL_SUCCESS);
    EXPECT(clSetKernelArg(kernel, 3, 12, &value), CL_INVALID_ARG_SIZE);
    EXPECT(clSetKernelArg(kernel, 4, 16, &value), CL_INVALID_ARG_SIZE);
    EXPECT(clSetKernelArg(kernel, 5, 64, &value), CL_SUCCESS);
    OK(clReleaseKernel(kernel));
}

CASE(args_struct_sizes)
{
    /* No query reports a structure's size, and drivers accept different sizes. */
    const struct record records[2] = {{0, 0, 0, 0}, {0, 0, 0, 0}};
    cl_kernel kernel = kernel_named("structure");
    EXPECT(clSetKernelArg(kernel, 1, sizeof records[0] - 1, records), CL_INVALID_ARG_SIZE,
           CL_SUCCESS);
    EXPECT(clSetKernelArg(kernel, 1, sizeof records, records), CL_INVALID_ARG_SIZE, CL_SUCCESS);
    EXPECT(clSetKernelArg(kernel, 1, sizeof records[0], records), CL_SUCCESS);
    OK(clReleaseKernel(kernel));
}

/* No driver reports a structure's size, but a size that no device could accept is an error. */
SPEC_CASE(args_struct_far_too_large)
{
    const struct record record = {'x', -77, 1LL << 40, 1234};
    const size_t large = (size_t)70 << 20;
    char *value = calloc(1, large);
    cl_mem buffer = buffer_of(64);
    cl_kernel kernel = kernel_named("structure");
    OK(clSetKernelArg(kernel, 0, sizeof buffer, &buffer));
    OK(clSetKernelArg(kernel, 1, sizeof record, &record));
    EXPECT(clSetKernelArg(kernel, 1, large, value), CL_INVALID_ARG_SIZE);
    launch(queue, kernel, 1);
    free(value);
    OK(clReleaseKernel(kernel));
    OK(clReleaseMemObject(buffer));
}

SPEC_CASE(args_struct_size_zero)
{
    const struct record record = {0, 0, 0, 0};
    cl_kernel kernel = kernel_named("structure");
    EXPECT(clSetKernelArg(kernel, 1, 0, &record), CL_INVALID_ARG_SIZE);
    OK(clReleaseKernel(kernel));
}

SPEC_CASE(args_scalar_null_value)
{
    cl_kernel kernel = standard_kernel("add");
    EXPECT(clSetKernelArg(kernel, 1, 4, NULL), CL_INVALID_ARG_VALUE);
    OK(clReleaseKernel(kernel));
}

SPEC_CASE(args_not_a_memory_object)
{
    cl_kernel kernel = standard_kernel("add");
    EXPECT(clSetKernelArg(kernel, 0, sizeof queue, &queue), CL_INVALID_MEM_OBJECT);
    OK(clReleaseKernel(kernel));
}

CASE(args_failed_set_keeps_the_old_value)
{
    cl_long wrong = 0;
    cl_mem buffer = counting_buffer(8, 0);
    cl_kernel kernel = standard_kernel("add");
    set_add(kernel, buffer, 50);
    EXPECT(clSetKernelArg(kernel, 1, 8, &wrong), CL_INVALID_ARG_SIZE);
    launch(queue, kernel, 8);
    CHECK(holds_counting(buffer, 8, 50, 1));
    fact("the value set before is used");
    OK(clReleaseKernel(kernel));
    OK(clReleaseMemObject(buffer));
}

CASE(args_captured_at_enqueue)
{
    enum { COUNT = 100 };
    cl_mem buffer = counting_buffer(16, 0);
    cl_kernel kernel = standard_kernel("add");
    for (int i = 1; i <= COUNT; ++i) {
        set_add(kernel, buffer, i);
        launch(queue, kernel, 16);
    }
    CHECK(holds_counting(buffer, 16, COUNT * (COUNT + 1) / 2, 1));
    fact("each launch uses the values of its time");
    OK(clReleaseKernel(kernel));
    OK(clReleaseMemObject(buffer));
}

CASE(args_kept_between_launches)
{
    cl_mem buffer = counting_buffer(16, 0);
    cl_kernel kernel = standard_kernel("add");
    set_add(kernel, buffer, 3);
    for (int i = 0; i < 10; ++i)
        launch(queue, kernel, 16);
    CHECK(holds_counting(buffer, 16, 30, 1));
    fact("arguments stay set");
    OK(clReleaseKernel(kernel));
    OK(clReleaseMemObject(buffer));
}

CASE(args_unset)
{
    const size_t one = 1;
    cl_mem buffer = buffer_of(64);
    cl_kernel kernel = standard_kernel("add");
    EXPECT(clEnqueueNDRangeKernel(queue, kernel, 1, NULL, &one, NULL, 0, NULL, NULL),
           CL_INVALID_KERNEL_ARGS);
    OK(clSetKernelArg(kernel, 0, sizeof buffer, &buffer));
    EXPECT(clEnqueueNDRangeKernel(queue, kernel, 1, NULL, &one, NULL, 0, NULL, NULL),
           CL_INVALID_KERNEL_ARGS);
    OK(clSetKernelArg(kernel, 1, 4, &(cl_int){1}));
    EXPECT(clEnqueueNDRangeKernel(queue, kernel, 1, NULL, &one, NULL, 0, NULL, NULL), CL_SUCCESS);
    OK(clFinish(queue));
    OK(clReleaseKernel(kernel));
    OK(clReleaseMemObject(buffer));
}

CASE(args_same_buffer_twice)
{
    cl_mem buffer = counting_buffer(16, 40);
    cl_kernel kernel = standard_kernel("copy");
    OK(clSetKernelArg(kernel, 0, sizeof buffer, &buffer));
    OK(clSetKernelArg(kernel, 1, sizeof buffer, &buffer));
    launch(queue, kernel, 16);
    CHECK(holds_counting(buffer, 16, 40, 1));
    fact("one buffer as two arguments");
    OK(clReleaseKernel(kernel));
    OK(clReleaseMemObject(buffer));
}

CASE(args_large_struct)
{
    static const char *const source =
        "typedef struct { int values[200]; } large;\n"
        "kernel void sum(global int *out, large l)\n"
        "{ int s = 0; for (int i = 0; i < 200; ++i) s += l.values[i]; *out = s; }\n";
    struct {
        cl_int values[200];
    } large;
    int wanted = 0, sum = 0;
    for (int i = 0; i < 200; ++i)
        wanted += large.values[i] = i * 3;
    cl_program program = program_from(source, "");
    cl_kernel kernel = clCreateKernel(program, "sum", &err);
    OK(err);
    cl_mem out = buffer_of(4);
    OK(clSetKernelArg(kernel, 0, sizeof out, &out));
    EXPECT(clSetKernelArg(kernel, 1, sizeof large, &large), CL_SUCCESS);
    launch(queue, kernel, 1);
    OK(clEnqueueReadBuffer(queue, out, CL_TRUE, 0, 4, &sum, 0, NULL, NULL));
    EQUAL(sum == wanted, 1);
    OK(clReleaseMemObject(out));
    OK(clReleaseKernel(kernel));
    OK(clReleaseProgram(program));
}
