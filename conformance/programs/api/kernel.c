/* Kernels: creation, information, work-group answers, argument information. */
#include "../cltest.h"

static const char *const SOURCE =
    "typedef struct { int a; float b; } pair;\n"
    "kernel void one(global int *x) { x[0] = 1; }\n"
    "kernel void two(global const float *in, constant int *table, local float4 *scratch,\n"
    "                uint count, pair p, const volatile global char *v, global int * restrict r)\n"
    "{ r[0] = table[0] + p.a + count + v[0] + (int)in[0]; scratch[0] = 1.0f; }\n"
    "kernel __attribute__((reqd_work_group_size(4, 2, 1))) void fixed(global int *x)\n"
    "{ x[get_global_linear_id()] = get_local_size(0); }\n"
    "kernel void with_local(global int *x)\n"
    "{\n"
    "    local int shared[256];\n"
    "    shared[get_local_id(0)] = x[get_global_id(0)];\n"
    "    barrier(CLK_LOCAL_MEM_FENCE);\n"
    "    x[get_global_id(0)] = shared[get_local_size(0) - 1 - get_local_id(0)];\n"
    "}\n";

static cl_kernel kernel_named(const char *name, const char *options)
{
    cl_program program = program_from(SOURCE, options);
    cl_kernel kernel = clCreateKernel(program, name, &err);
    OK(err);
    OK(clReleaseProgram(program));
    return kernel;
}

CASE(kernel_info)
{
    char name[64];
    cl_uint count = 0;
    cl_context owner = NULL;
    cl_program from = NULL, program = program_from(SOURCE, "");
    cl_kernel kernel = clCreateKernel(program, "two", &err);
    OK(err);
    OK(clGetKernelInfo(kernel, CL_KERNEL_FUNCTION_NAME, sizeof name, name, NULL));
    fact("name %s", name);
    OK(clGetKernelInfo(kernel, CL_KERNEL_NUM_ARGS, sizeof count, &count, NULL));
    EQUAL(count, 7);
    OK(clGetKernelInfo(kernel, CL_KERNEL_REFERENCE_COUNT, sizeof count, &count, NULL));
    EQUAL(count, 1);
    OK(clGetKernelInfo(kernel, CL_KERNEL_CONTEXT, sizeof owner, &owner, NULL));
    OK(clGetKernelInfo(kernel, CL_KERNEL_PROGRAM, sizeof from, &from, NULL));
    CHECK(owner == context && from == program);
    OK(clReleaseKernel(kernel));
    OK(clReleaseProgram(program));
}

CASE(kernel_info_rules)
{
    cl_kernel kernel = kernel_named("one", "");
    INFO_RULES(clGetKernelInfo, kernel, CL_KERNEL_FUNCTION_NAME);
    INFO_RULES(clGetKernelInfo, kernel, CL_KERNEL_NUM_ARGS);
    INFO_RULES(clGetKernelInfo, kernel, CL_KERNEL_REFERENCE_COUNT);
    INFO_RULES(clGetKernelInfo, kernel, CL_KERNEL_CONTEXT);
    INFO_RULES(clGetKernelInfo, kernel, CL_KERNEL_PROGRAM);
    INFO_RULES(clGetKernelInfo, kernel, CL_KERNEL_ATTRIBUTES);
    EXPECT(clGetKernelInfo(kernel, UNKNOWN_INFO, 0, NULL, NULL), CL_INVALID_VALUE);
    EXPECT(clGetKernelInfo(NULL, CL_KERNEL_NUM_ARGS, 0, NULL, NULL), CL_INVALID_KERNEL);
    OK(clReleaseKernel(kernel));
}

CASE(kernel_attributes)
{
    char text[256];
    cl_kernel kernel = kernel_named("fixed", "");
    OK(clGetKernelInfo(kernel, CL_KERNEL_ATTRIBUTES, sizeof text, text, NULL));
    fact("names reqd_work_group_size: %s", strstr(text, "reqd_work_group_size") ? "yes" : "no");
    OK(clReleaseKernel(kernel));
}

CASE(kernel_create_errors)
{
    cl_program program = program_from(SOURCE, "");
    REFUSED(clCreateKernel(program, "three", &err), CL_INVALID_KERNEL_NAME);
    REFUSED(clCreateKernel(program, "", &err), CL_INVALID_KERNEL_NAME);
    REFUSED(clCreateKernel(program, NULL, &err), CL_INVALID_VALUE);
    OK(clReleaseProgram(program));
    program = clCreateProgramWithSource(context, 1, (const char **)&SOURCE, NULL, &err);
    OK(err);
    REFUSED(clCreateKernel(program, "one", &err), CL_INVALID_PROGRAM_EXECUTABLE);
    OK(clReleaseProgram(program));
}

CASE(kernels_in_program)
{
    cl_kernel kernels[8] = {NULL};
    cl_uint count = 0;
    cl_program program = program_from(SOURCE, "");
    OK(clCreateKernelsInProgram(program, 0, NULL, &count));
    EQUAL(count, 4);
    EXPECT(clCreateKernelsInProgram(program, 1, kernels, NULL), CL_INVALID_VALUE);
    OK(clCreateKernelsInProgram(program, 8, kernels, &count));
    EQUAL(count, 4);
    const char *wanted[4] = {"one", "two", "fixed", "with_local"};
    int found = 0;
    for (cl_uint i = 0; i < count; ++i) {
        char name[64];
        OK(clGetKernelInfo(kernels[i], CL_KERNEL_FUNCTION_NAME, sizeof name, name, NULL));
        for (int w = 0; w < 4; ++w)
            found |= (strcmp(name, wanted[w]) == 0) << w;
        OK(clReleaseKernel(kernels[i]));
    }
    EQUAL(found, 15);
    OK(clReleaseProgram(program));
}

CASE(kernels_in_program_errors)
{
    cl_uint count;
    cl_program program =
        clCreateProgramWithSource(context, 1, (const char **)&SOURCE, NULL, &err);
    OK(err);
    EXPECT(clCreateKernelsInProgram(NULL, 0, NULL, &count), CL_INVALID_PROGRAM);
    EXPECT(clCreateKernelsInProgram(program, 0, NULL, &count), CL_INVALID_PROGRAM_EXECUTABLE);
    OK(clReleaseProgram(program));
}

CASE(kernel_reference_count)
{
    cl_uint count = 0;
    cl_kernel kernel = kernel_named("one", "");
    OK(clRetainKernel(kernel));
    OK(clGetKernelInfo(kernel, CL_KERNEL_REFERENCE_COUNT, sizeof count, &count, NULL));
    EQUAL(count, 2);
    OK(clReleaseKernel(kernel));
    OK(clGetKernelInfo(kernel, CL_KERNEL_REFERENCE_COUNT, sizeof count, &count, NULL));
    EQUAL(count, 1);
    OK(clReleaseKernel(kernel));
    EXPECT(clRetainKernel(NULL), CL_INVALID_KERNEL);
    EXPECT(clReleaseKernel(NULL), CL_INVALID_KERNEL);
}

SPEC_CASE(kernel_wrong_kind)
{
    int value = 0;
    EXPECT(clRetainKernel((cl_kernel)queue), CL_INVALID_KERNEL);
    EXPECT(clSetKernelArg((cl_kernel)context, 0, 4, &value), CL_INVALID_KERNEL);
    EXPECT(clGetKernelInfo((cl_kernel)device, CL_KERNEL_NUM_ARGS, 0, NULL, NULL),
           CL_INVALID_KERNEL);
}

static cl_int group_info(cl_kernel kernel, cl_kernel_work_group_info name, size_t size,
                         void *value, size_t *told)
{
    return clGetKernelWorkGroupInfo(kernel, device, name, size, value, told);
}

CASE(work_group_info_rules)
{
    cl_kernel kernel = kernel_named("fixed", "");
    INFO_RULES(group_info, kernel, CL_KERNEL_WORK_GROUP_SIZE);
    INFO_RULES(group_info, kernel, CL_KERNEL_COMPILE_WORK_GROUP_SIZE);
    INFO_RULES(group_info, kernel, CL_KERNEL_LOCAL_MEM_SIZE);
    INFO_RULES(group_info, kernel, CL_KERNEL_PREFERRED_WORK_GROUP_SIZE_MULTIPLE);
    INFO_RULES(group_info, kernel, CL_KERNEL_PRIVATE_MEM_SIZE);
    EXPECT(group_info(kernel, UNKNOWN_INFO, 0, NULL, NULL), CL_INVALID_VALUE);
    EXPECT(group_info(NULL, CL_KERNEL_WORK_GROUP_SIZE, 0, NULL, NULL), CL_INVALID_KERNEL);
    OK(clReleaseKernel(kernel));
}

CASE(work_group_info_answers)
{
    size_t size = 0, multiple = 0, fixed[3] = {9, 9, 9};
    cl_ulong local_memory = 77;
    cl_kernel kernel = kernel_named("fixed", "");
    OK(group_info(kernel, CL_KERNEL_COMPILE_WORK_GROUP_SIZE, sizeof fixed, fixed, NULL));
    fact("fixed: %zu %zu %zu", fixed[0], fixed[1], fixed[2]);
    OK(clReleaseKernel(kernel));
    kernel = kernel_named("one", "");
    OK(group_info(kernel, CL_KERNEL_COMPILE_WORK_GROUP_SIZE, sizeof fixed, fixed, NULL));
    fact("one: %zu %zu %zu", fixed[0], fixed[1], fixed[2]);
    OK(group_info(kernel, CL_KERNEL_WORK_GROUP_SIZE, sizeof size, &size, NULL));
    OK(group_info(kernel, CL_KERNEL_PREFERRED_WORK_GROUP_SIZE_MULTIPLE, sizeof multiple, &multiple,
                  NULL));
    fact("at most %zu, preferably a multiple of %zu", size, multiple);
    OK(group_info(kernel, CL_KERNEL_LOCAL_MEM_SIZE, sizeof local_memory, &local_memory, NULL));
    fact("local memory %llu", (unsigned long long)local_memory);
    OK(clReleaseKernel(kernel));
}

CASE(work_group_info_local_arguments_count)
{
    cl_ulong none = 77, set = 0, less = 0;
    cl_kernel kernel = standard_kernel("reverse");
    OK(group_info(kernel, CL_KERNEL_LOCAL_MEM_SIZE, sizeof none, &none, NULL));
    OK(clSetKernelArg(kernel, 2, 4096, NULL));
    OK(group_info(kernel, CL_KERNEL_LOCAL_MEM_SIZE, sizeof set, &set, NULL));
    OK(clSetKernelArg(kernel, 2, 1024, NULL));
    OK(group_info(kernel, CL_KERNEL_LOCAL_MEM_SIZE, sizeof less, &less, NULL));
    fact("grows by %lld with 4096 bytes set, by %lld with 1024", (long long)(set - none),
         (long long)(less - none));
    OK(clReleaseKernel(kernel));
}

CASE(work_group_info_static_local)
{
    cl_ulong local_memory = 77;
    cl_kernel kernel = kernel_named("with_local", "");
    OK(group_info(kernel, CL_KERNEL_LOCAL_MEM_SIZE, sizeof local_memory, &local_memory, NULL));
    fact("static local memory is told: %s", local_memory >= 1024 ? "yes" : "no");
    OK(clReleaseKernel(kernel));
}

CASE(work_group_info_null_device)
{
    size_t size = 0;
    cl_kernel kernel = kernel_named("one", "");
    EXPECT(clGetKernelWorkGroupInfo(kernel, NULL, CL_KERNEL_WORK_GROUP_SIZE, sizeof size, &size,
                                    NULL),
           CL_SUCCESS);
    CHECK(size > 0);
    OK(clReleaseKernel(kernel));
}

SPEC_CASE(work_group_info_global_size)
{
    size_t sizes[3];
    cl_kernel kernel = kernel_named("one", "");
    EXPECT(group_info(kernel, CL_KERNEL_GLOBAL_WORK_SIZE, sizeof sizes, sizes, NULL),
           CL_INVALID_VALUE);
    OK(clReleaseKernel(kernel));
}

static cl_kernel asked_kernel;

static cl_int arg_info(cl_uint index, cl_kernel_arg_info name, size_t size, void *value,
                       size_t *told)
{
    return clGetKernelArgInfo(asked_kernel, index, name, size, value, told);
}

CASE(arg_info_answers)
{
    asked_kernel = kernel_named("two", "-cl-kernel-arg-info");
    for (cl_uint i = 0; i < 7; ++i) {
        char name[64], type[64];
        cl_kernel_arg_address_qualifier address = 0;
        cl_kernel_arg_access_qualifier access = 0;
        cl_kernel_arg_type_qualifier qualifier = 0;
        OK(arg_info(i, CL_KERNEL_ARG_NAME, sizeof name, name, NULL));
        OK(arg_info(i, CL_KERNEL_ARG_TYPE_NAME, sizeof type, type, NULL));
        OK(arg_info(i, CL_KERNEL_ARG_ADDRESS_QUALIFIER, sizeof address, &address, NULL));
        OK(arg_info(i, CL_KERNEL_ARG_ACCESS_QUALIFIER, sizeof access, &access, NULL));
        OK(arg_info(i, CL_KERNEL_ARG_TYPE_QUALIFIER, sizeof qualifier, &qualifier, NULL));
        fact("%u: %s %s, address %x, access %x, qualifier %x", i, type, name, address, access,
             (unsigned)qualifier);
    }
    OK(clReleaseKernel(asked_kernel));
}

CASE(arg_info_rules)
{
    asked_kernel = kernel_named("two", "-cl-kernel-arg-info");
    INFO_RULES(arg_info, 1, CL_KERNEL_ARG_NAME);
    INFO_RULES(arg_info, 2, CL_KERNEL_ARG_TYPE_NAME);
    INFO_RULES(arg_info, 3, CL_KERNEL_ARG_ADDRESS_QUALIFIER);
    INFO_RULES(arg_info, 4, CL_KERNEL_ARG_ACCESS_QUALIFIER);
    INFO_RULES(arg_info, 5, CL_KERNEL_ARG_TYPE_QUALIFIER);
    EXPECT(arg_info(0, UNKNOWN_INFO, 0, NULL, NULL), CL_INVALID_VALUE);
    EXPECT(arg_info(7, CL_KERNEL_ARG_NAME, 0, NULL, NULL), CL_INVALID_ARG_INDEX);
    OK(clReleaseKernel(asked_kernel));
    asked_kernel = NULL;
    EXPECT(arg_info(0, CL_KERNEL_ARG_NAME, 0, NULL, NULL), CL_INVALID_KERNEL);
}

CASE(arg_info_not_asked_for)
{
    /* Without the option, drivers may answer or refuse, but must not crash. */
    char name[64];
    asked_kernel = kernel_named("one", "");
    const cl_int status = arg_info(0, CL_KERNEL_ARG_NAME, sizeof name, name, NULL);
    CHECK(status == CL_KERNEL_ARG_INFO_NOT_AVAILABLE ||
          (status == CL_SUCCESS && strcmp(name, "x") == 0));
    fact("the right answer or none");
    OK(clReleaseKernel(asked_kernel));
}

CASE(kernel_many_of_one_program)
{
    enum { COUNT = 50 };
    cl_kernel kernels[COUNT];
    cl_mem buffer = counting_buffer(64, 0);
    cl_program program = program_from(STANDARD_SOURCE, "");
    for (int i = 0; i < COUNT; ++i) {
        kernels[i] = clCreateKernel(program, "add", &err);
        OK(err);
        set_add(kernels[i], buffer, i);
    }
    for (int i = 0; i < COUNT; ++i)
        launch(queue, kernels[i], 64);
    CHECK(holds_counting(buffer, 64, COUNT * (COUNT - 1) / 2, 1));
    fact("50 kernels of one function keep their own arguments");
    for (int i = 0; i < COUNT; ++i)
        OK(clReleaseKernel(kernels[i]));
    OK(clReleaseProgram(program));
    OK(clReleaseMemObject(buffer));
}
