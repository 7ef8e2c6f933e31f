/* Separate compiling and linking. */
#include "../cltest.h"

static cl_program from(const char *source)
{
    cl_program program = clCreateProgramWithSource(context, 1, &source, NULL, &err);
    OK(err);
    return program;
}

static cl_program compiled(const char *source)
{
    cl_program program = from(source);
    OK(clCompileProgram(program, 1, &device, "", 0, NULL, NULL, NULL, NULL));
    return program;
}

static cl_program_binary_type type_of(cl_program program)
{
    cl_program_binary_type type = 77;
    OK(clGetProgramBuildInfo(program, device, CL_PROGRAM_BINARY_TYPE, sizeof type, &type, NULL));
    return type;
}

static const char *const MAIN = "int helper(int x);\n"
                                "kernel void answer(global int *x) { *x = helper(20); }\n";
static const char *const HELPER_SOURCE = "int helper(int x) { return 2 * x + 1; }\n";

CASE(compile_then_link)
{
    cl_program parts[2] = {compiled(MAIN), compiled(HELPER_SOURCE)};
    EQUAL(type_of(parts[0]), CL_PROGRAM_BINARY_TYPE_COMPILED_OBJECT);
    cl_program linked = clLinkProgram(context, 1, &device, "", 2, parts, NULL, NULL, &err);
    EXPECT(err, CL_SUCCESS);
    EQUAL(type_of(linked), CL_PROGRAM_BINARY_TYPE_EXECUTABLE);
    EQUAL(answer_of(linked), 41);
    OK(clReleaseProgram(parts[0]));
    OK(clReleaseProgram(parts[1]));
    OK(clReleaseProgram(linked));
}

/* NVIDIA's linker fails on such a kernel with argument info, which a layer may add by itself. */
CASE(link_a_kernel_without_arguments)
{
    cl_program parts[2] = {compiled("int helper(int x);\n"
                                    "kernel void nothing(void) { helper(1); }\n"
                                    "kernel void answer(global int *x) { *x = helper(20); }\n"),
                           compiled(HELPER_SOURCE)};
    for (int round = 0; round < 2; round++) {
        cl_program linked = clLinkProgram(context, 1, &device, "", 2, parts, NULL, NULL, &err);
        EXPECT(err, CL_SUCCESS);
        cl_kernel kernel = clCreateKernel(linked, "nothing", &err);
        OK(err);
        launch(queue, kernel, 1);
        EXPECT(clFinish(queue), CL_SUCCESS);
        OK(clReleaseKernel(kernel));
        EQUAL(answer_of(linked), 41);
        OK(clReleaseProgram(linked));
    }
    OK(clReleaseProgram(parts[0]));
    OK(clReleaseProgram(parts[1]));
}

CASE(compile_with_headers)
{
    const char *names[2] = {"value.h", "inner/more.h"};
    cl_program headers[2] = {from("#include \"inner/more.h\"\n#define VALUE (MORE + 1)\n"),
                             from("#define MORE 50\n")};
    cl_program part =
        from("#include \"value.h\"\nkernel void answer(global int *x) { *x = VALUE; }\n");
    EXPECT(clCompileProgram(part, 1, &device, "", 2, headers, names, NULL, NULL), CL_SUCCESS);
    cl_program linked = clLinkProgram(context, 1, &device, "", 1, &part, NULL, NULL, &err);
    EXPECT(err, CL_SUCCESS);
    EQUAL(answer_of(linked), 51);
    OK(clReleaseProgram(headers[0]));
    OK(clReleaseProgram(headers[1]));
    OK(clReleaseProgram(part));
    OK(clReleaseProgram(linked));
}

CASE(compile_failure)
{
    cl_build_status status = 77;
    static char log[65536];
    cl_program part = from("kernel void answer(global int *x) { *x = missing_thing; }\n");
    EXPECT(clCompileProgram(part, 1, &device, "", 0, NULL, NULL, NULL, NULL),
           CL_COMPILE_PROGRAM_FAILURE);
    OK(clGetProgramBuildInfo(part, device, CL_PROGRAM_BUILD_STATUS, sizeof status, &status, NULL));
    EQUAL(status, CL_BUILD_ERROR);
    OK(clGetProgramBuildInfo(part, device, CL_PROGRAM_BUILD_LOG, sizeof log, log, NULL));
    fact("the log names the culprit: %s", strstr(log, "missing_thing") ? "yes" : "no");
    OK(clReleaseProgram(part));
}

CASE(compile_errors)
{
    int user = 0;
    cl_program part = from(HELPER_SOURCE);
    EXPECT(clCompileProgram(NULL, 1, &device, "", 0, NULL, NULL, NULL, NULL), CL_INVALID_PROGRAM);
    EXPECT(clCompileProgram(part, 0, &device, "", 0, NULL, NULL, NULL, NULL), CL_INVALID_VALUE);
    EXPECT(clCompileProgram(part, 1, NULL, "", 0, NULL, NULL, NULL, NULL), CL_INVALID_VALUE);
    EXPECT(clCompileProgram(part, 1, &device, "", 0, NULL, NULL, NULL, &user), CL_INVALID_VALUE);
    OK(clReleaseProgram(part));
}

SPEC_CASE(compile_header_errors)
{
    const char *name = "a.h";
    cl_program part = from(HELPER_SOURCE), header = from("\n");
    EXPECT(clCompileProgram(part, 1, &device, "", 1, NULL, &name, NULL, NULL), CL_INVALID_VALUE);
    EXPECT(clCompileProgram(part, 1, &device, "", 1, &header, NULL, NULL, NULL),
           CL_INVALID_VALUE);
    EXPECT(clCompileProgram(part, 1, &device, "", 0, &header, &name, NULL, NULL),
           CL_INVALID_VALUE);
    OK(clReleaseProgram(part));
    OK(clReleaseProgram(header));
}

CASE(compile_bad_options)
{
    cl_program part = from(HELPER_SOURCE);
    EXPECT(clCompileProgram(part, 1, &device, "-no-such-option", 0, NULL, NULL, NULL, NULL),
           CL_INVALID_COMPILER_OPTIONS, CL_COMPILE_PROGRAM_FAILURE);
    OK(clReleaseProgram(part));
}

SPEC_CASE(link_failure_returns_program)
{
    cl_build_status status = 77;
    size_t size = 0;
    cl_program part = compiled(MAIN); /* without its helper */
    cl_program linked = clLinkProgram(context, 1, &device, "", 1, &part, NULL, NULL, &err);
    EXPECT(err, CL_LINK_PROGRAM_FAILURE);
    CHECK(linked != NULL);
    if (linked != NULL) {
        OK(clGetProgramBuildInfo(linked, device, CL_PROGRAM_BUILD_STATUS, sizeof status, &status,
                                 NULL));
        EQUAL(status, CL_BUILD_ERROR);
        OK(clGetProgramBuildInfo(linked, device, CL_PROGRAM_BUILD_LOG, 0, NULL, &size));
        fact("there is a log: %s", size > 1 ? "yes" : "no");
        OK(clReleaseProgram(linked));
    }
    OK(clReleaseProgram(part));
}

CASE(link_errors)
{
    int user = 0;
    cl_program part = compiled("kernel void answer(global int *x) { *x = 1; }\n");
    REFUSED(clLinkProgram(NULL, 1, &device, "", 1, &part, NULL, NULL, &err), CL_INVALID_CONTEXT);
    REFUSED(clLinkProgram(context, 0, &device, "", 1, &part, NULL, NULL, &err), CL_INVALID_VALUE);
    REFUSED(clLinkProgram(context, 1, NULL, "", 1, &part, NULL, NULL, &err), CL_INVALID_VALUE);
    REFUSED(clLinkProgram(context, 1, &device, "", 0, &part, NULL, NULL, &err), CL_INVALID_VALUE);
    REFUSED(clLinkProgram(context, 1, &device, "", 1, NULL, NULL, NULL, &err), CL_INVALID_VALUE);
    REFUSED(clLinkProgram(context, 1, &device, "", 1, &part, NULL, &user, &err),
            CL_INVALID_VALUE);
    OK(clReleaseProgram(part));
}

SPEC_CASE(link_null_program)
{
    cl_program none = NULL;
    REFUSED(clLinkProgram(context, 1, &device, "", 1, &none, NULL, NULL, &err),
            CL_INVALID_PROGRAM);
}

SPEC_CASE(link_program_not_compiled)
{
    cl_program part = from(HELPER_SOURCE);
    REFUSED(clLinkProgram(context, 1, &device, "", 1, &part, NULL, NULL, &err),
            CL_INVALID_OPERATION);
    OK(clReleaseProgram(part));
}

CASE(link_library)
{
    cl_program helper = compiled(HELPER_SOURCE), part = compiled(MAIN);
    cl_program library =
        clLinkProgram(context, 1, &device, "-create-library", 1, &helper, NULL, NULL, &err);
    EXPECT(err, CL_SUCCESS);
    EQUAL(type_of(library), CL_PROGRAM_BINARY_TYPE_LIBRARY);
    cl_program both[2] = {part, library};
    cl_program linked = clLinkProgram(context, 1, &device, "", 2, both, NULL, NULL, &err);
    EXPECT(err, CL_SUCCESS);
    EQUAL(answer_of(linked), 41);
    OK(clReleaseProgram(helper));
    OK(clReleaseProgram(part));
    OK(clReleaseProgram(library));
    OK(clReleaseProgram(linked));
}

static void CL_CALLBACK on_done(cl_program program, void *user)
{
    (void)program;
    latch_add(user);
}

CASE(compile_and_link_callbacks)
{
    struct latch compiled_latch = LATCH, linked_latch = LATCH;
    cl_program part = from("kernel void answer(global int *x) { *x = 64; }\n");
    EXPECT(clCompileProgram(part, 1, &device, "", 0, NULL, NULL, on_done, &compiled_latch),
           CL_SUCCESS);
    latch_wait(&compiled_latch, 1);
    cl_program linked =
        clLinkProgram(context, 1, &device, "", 1, &part, on_done, &linked_latch, &err);
    EXPECT(err, CL_SUCCESS);
    latch_wait(&linked_latch, 1);
    EQUAL(answer_of(linked), 64);
    EQUAL(latch_count(&compiled_latch), 1);
    EQUAL(latch_count(&linked_latch), 1);
    OK(clReleaseProgram(part));
    OK(clReleaseProgram(linked));
}

CASE(link_keeps_inputs_usable)
{
    cl_program part = compiled("kernel void answer(global int *x) { *x = 8; }\n");
    for (int round = 0; round < 3; ++round) {
        cl_program linked = clLinkProgram(context, 1, &device, "", 1, &part, NULL, NULL, &err);
        OK(err);
        EQUAL(answer_of(linked), 8);
        OK(clReleaseProgram(linked));
    }
    OK(clReleaseProgram(part));
}

SPEC_CASE(compile_with_kernels_attached)
{
    cl_program program = program_from("kernel void answer(global int *x) { *x = 1; }\n", "");
    cl_kernel kernel = clCreateKernel(program, "answer", &err);
    OK(err);
    EXPECT(clCompileProgram(program, 1, &device, "", 0, NULL, NULL, NULL, NULL),
           CL_INVALID_OPERATION);
    OK(clReleaseKernel(kernel));
    OK(clReleaseProgram(program));
}

SPEC_CASE(compiled_program_has_no_kernels)
{
    cl_program part = compiled("kernel void answer(global int *x) { *x = 8; }\n");
    REFUSED(clCreateKernel(part, "answer", &err), CL_INVALID_PROGRAM_EXECUTABLE);
    OK(clReleaseProgram(part));
}
