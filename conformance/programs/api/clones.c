/* clCloneKernel: makes a kernel with the same arguments and a lifetime of its own. */
#define CL_TARGET_OPENCL_VERSION 300
#include "../cltest.h"

static const char *const SOURCE =
    "typedef struct { int a; float b; short c[3]; } mixed;\n"
    "kernel __attribute__((reqd_work_group_size(4, 1, 1)))\n"
    "void mix_all(global int *out, mixed value, local int *scratch, global const int *none, uchar3 last)\n"
    "{\n"
    "    size_t i = get_global_id(0);\n"
    "    scratch[get_local_id(0)] = value.a + (int)value.b + value.c[2] + last.z;\n"
    "    barrier(CLK_LOCAL_MEM_FENCE);\n"
    "    out[i] += scratch[3 - get_local_id(0)] + (none ? 1000 : 0) + (int)get_local_id(0);\n"
    "}\n";

typedef struct {
    cl_int a;
    cl_float b;
    cl_short c[3];
} mixed;

enum { COUNT = 8 };

static void needs_clones(void)
{
    char version[256] = "";
    OK(clGetPlatformInfo(platform, CL_PLATFORM_VERSION, sizeof version, version, NULL));
    if (strcmp(version, "OpenCL 2.1") < 0)
        skip("the platform is older than 2.1");
}

static cl_kernel kernel_of(cl_program program)
{
    cl_kernel kernel = clCreateKernel(program, "mix_all", &err);
    OK(err);
    return kernel;
}

static void set_all(cl_kernel kernel, cl_mem buffer, cl_int number)
{
    const mixed value = {number, 2.5f, {1, 2, 3}};
    const cl_uchar last[4] = {1, 2, 40, 0};
    cl_mem none = NULL;
    OK(clSetKernelArg(kernel, 0, sizeof buffer, &buffer));
    OK(clSetKernelArg(kernel, 1, sizeof value, &value));
    OK(clSetKernelArg(kernel, 2, 4 * sizeof(cl_int), NULL));
    OK(clSetKernelArg(kernel, 3, sizeof none, &none));
    OK(clSetKernelArg(kernel, 4, sizeof last, last));
}

/* Launches the kernel, and tells whether it added `number` to the buffer's previous values. */
static int adds(cl_kernel kernel, cl_mem buffer, int number)
{
    const size_t global = COUNT, local = 4;
    int before[COUNT], after[COUNT], right = 1;
    OK(clEnqueueReadBuffer(queue, buffer, CL_TRUE, 0, sizeof before, before, 0, NULL, NULL));
    OK(clEnqueueNDRangeKernel(queue, kernel, 1, NULL, &global, &local, 0, NULL, NULL));
    OK(clEnqueueReadBuffer(queue, buffer, CL_TRUE, 0, sizeof after, after, 0, NULL, NULL));
    for (int i = 0; i < COUNT; ++i)
        right &= after[i] - before[i] == number + 2 + 3 + 40 + i % 4;
    return right;
}

CASE(clones_have_all_arguments_and_their_own_life)
{
    needs_clones();
    cl_mem buffer = counting_buffer(COUNT, 0);
    cl_program program = program_from(SOURCE, "");
    cl_kernel kernel = kernel_of(program);
    set_all(kernel, buffer, 100);
    cl_kernel twin = clCloneKernel(kernel, &err);
    EXPECT(err, CL_SUCCESS);
    CHECK(twin != kernel);
    /* Setting an argument of one kernel does not change the other kernel. */
    const mixed other = {500, 2.5f, {1, 2, 3}}, third = {700, 2.5f, {1, 2, 3}};
    OK(clSetKernelArg(kernel, 1, sizeof other, &other));
    CHECK(adds(twin, buffer, 100));
    CHECK(adds(kernel, buffer, 500));
    OK(clSetKernelArg(twin, 1, sizeof third, &third));
    CHECK(adds(kernel, buffer, 500));
    CHECK(adds(twin, buffer, 700));
    /* A clone of a clone outlives both kernels and the program. */
    cl_kernel last = clCloneKernel(twin, &err);
    EXPECT(err, CL_SUCCESS);
    OK(clReleaseKernel(kernel));
    OK(clReleaseKernel(twin));
    OK(clReleaseProgram(program));
    CHECK(adds(last, buffer, 700));
    OK(clReleaseKernel(last));
    OK(clReleaseMemObject(buffer));
    fact("clones keep what was set when they were made");
}

CASE(clones_lack_what_was_not_set)
{
    needs_clones();
    const size_t global = COUNT, local = 4;
    cl_mem buffer = counting_buffer(COUNT, 0);
    cl_program program = program_from(SOURCE, "");
    cl_kernel kernel = kernel_of(program);
    OK(clSetKernelArg(kernel, 0, sizeof buffer, &buffer));
    cl_kernel twin = clCloneKernel(kernel, &err);
    EXPECT(err, CL_SUCCESS);
    EXPECT(clEnqueueNDRangeKernel(queue, twin, 1, NULL, &global, &local, 0, NULL, NULL), CL_INVALID_KERNEL_ARGS);
    set_all(kernel, buffer, 100);
    EXPECT(clEnqueueNDRangeKernel(queue, twin, 1, NULL, &global, &local, 0, NULL, NULL), CL_INVALID_KERNEL_ARGS);
    set_all(twin, buffer, 200);
    CHECK(adds(twin, buffer, 200));
    CHECK(adds(kernel, buffer, 100));
    OK(clReleaseKernel(kernel));
    OK(clReleaseKernel(twin));
    OK(clReleaseProgram(program));
    OK(clReleaseMemObject(buffer));
}

CASE(clones_say_what_they_are)
{
    needs_clones();
    cl_program program = program_from(SOURCE, "-cl-kernel-arg-info"), of = NULL;
    cl_kernel kernel = kernel_of(program);
    cl_kernel twin = clCloneKernel(kernel, &err);
    OK(err);
    char name[32] = "", argument[32] = "";
    cl_uint references = 77, count = 77;
    size_t group[3] = {77, 77, 77};
    OK(clGetKernelInfo(twin, CL_KERNEL_FUNCTION_NAME, sizeof name, name, NULL));
    OK(clGetKernelInfo(twin, CL_KERNEL_REFERENCE_COUNT, sizeof references, &references, NULL));
    OK(clGetKernelInfo(twin, CL_KERNEL_NUM_ARGS, sizeof count, &count, NULL));
    OK(clGetKernelInfo(twin, CL_KERNEL_PROGRAM, sizeof of, &of, NULL));
    OK(clGetKernelArgInfo(twin, 3, CL_KERNEL_ARG_NAME, sizeof argument, argument, NULL));
    OK(clGetKernelWorkGroupInfo(twin, device, CL_KERNEL_COMPILE_WORK_GROUP_SIZE, sizeof group, group, NULL));
    fact("%s, %u references, %u arguments, %s, group of %zu", name, references, count, argument, group[0]);
    CHECK(of == program);
    /* A clone is attached to its program like any kernel. */
    OK(clReleaseKernel(kernel));
    EXPECT(clBuildProgram(program, 1, &device, "", NULL, NULL), CL_INVALID_OPERATION);
    OK(clReleaseKernel(twin));
    EXPECT(clBuildProgram(program, 1, &device, "", NULL, NULL), CL_SUCCESS);
    OK(clReleaseProgram(program));
}
