/* Programs: source, building, logs, information. */
#include "../cltest.h"

static const char *const GOOD = "kernel void good(global int *x) { x[0] = 1; }\n"
                                "kernel void other(global int *x) { x[0] = 2; }\n";
static const char *const BAD = "kernel void bad(global int *x) { x[0] = no_such_name; }\n";

static cl_program from(const char *source)
{
    cl_program program = clCreateProgramWithSource(context, 1, &source, NULL, &err);
    OK(err);
    return program;
}

static cl_build_status build_status(cl_program program)
{
    cl_build_status status = 77;
    OK(clGetProgramBuildInfo(program, device, CL_PROGRAM_BUILD_STATUS, sizeof status, &status,
                             NULL));
    return status;
}

CASE(program_source_info)
{
    const char *strings[3] = {"kernel void a", "(global int *x)XXXX", " { x[0] = 1; }"};
    const size_t lengths[3] = {0, 15, 0};
    char source[256];
    size_t size = 0;
    cl_program program = clCreateProgramWithSource(context, 3, strings, lengths, &err);
    OK(err);
    OK(clGetProgramInfo(program, CL_PROGRAM_SOURCE, sizeof source, source, &size));
    fact("\"%s\", size %zu", source, size);
    cl_context owner = NULL;
    cl_device_id on = NULL;
    cl_uint count = 0;
    OK(clGetProgramInfo(program, CL_PROGRAM_CONTEXT, sizeof owner, &owner, NULL));
    OK(clGetProgramInfo(program, CL_PROGRAM_DEVICES, sizeof on, &on, NULL));
    OK(clGetProgramInfo(program, CL_PROGRAM_NUM_DEVICES, sizeof count, &count, NULL));
    CHECK(owner == context && on == device);
    EQUAL(count, 1);
    OK(clBuildProgram(program, 0, NULL, NULL, NULL, NULL));
    OK(clReleaseProgram(program));
}

CASE(program_info_rules)
{
    cl_program program = program_from(GOOD, "");
    INFO_RULES(clGetProgramInfo, program, CL_PROGRAM_REFERENCE_COUNT);
    INFO_RULES(clGetProgramInfo, program, CL_PROGRAM_CONTEXT);
    INFO_RULES(clGetProgramInfo, program, CL_PROGRAM_NUM_DEVICES);
    INFO_RULES(clGetProgramInfo, program, CL_PROGRAM_DEVICES);
    INFO_RULES(clGetProgramInfo, program, CL_PROGRAM_SOURCE);
    INFO_RULES(clGetProgramInfo, program, CL_PROGRAM_BINARY_SIZES);
    INFO_RULES(clGetProgramInfo, program, CL_PROGRAM_NUM_KERNELS);
    INFO_RULES(clGetProgramInfo, program, CL_PROGRAM_KERNEL_NAMES);
    EXPECT(clGetProgramInfo(program, UNKNOWN_INFO, 0, NULL, NULL), CL_INVALID_VALUE);
    OK(clReleaseProgram(program));
}

static cl_int build_info(cl_program program, cl_program_build_info name, size_t size, void *value,
                         size_t *told)
{
    return clGetProgramBuildInfo(program, device, name, size, value, told);
}

CASE(program_build_info_rules)
{
    cl_program program = program_from(GOOD, "-DX=1");
    INFO_RULES(build_info, program, CL_PROGRAM_BUILD_STATUS);
    INFO_RULES(build_info, program, CL_PROGRAM_BUILD_OPTIONS);
    INFO_RULES(build_info, program, CL_PROGRAM_BUILD_LOG);
    INFO_RULES(build_info, program, CL_PROGRAM_BINARY_TYPE);
    EXPECT(build_info(program, UNKNOWN_INFO, 0, NULL, NULL), CL_INVALID_VALUE);
    cl_program none = NULL;
    EXPECT(build_info(none, CL_PROGRAM_BUILD_STATUS, 0, NULL, NULL), CL_INVALID_PROGRAM);
    EXPECT(clGetProgramBuildInfo(program, NULL, CL_PROGRAM_BUILD_STATUS, 0, NULL, NULL),
           CL_INVALID_DEVICE);
    OK(clReleaseProgram(program));
}

CASE(program_kernel_names)
{
    char names[64];
    size_t count = 0;
    cl_program program = program_from(GOOD, "");
    OK(clGetProgramInfo(program, CL_PROGRAM_NUM_KERNELS, sizeof count, &count, NULL));
    EQUAL(count, 2);
    OK(clGetProgramInfo(program, CL_PROGRAM_KERNEL_NAMES, sizeof names, names, NULL));
    CHECK(strcmp(names, "good;other") == 0 || strcmp(names, "other;good") == 0);
    fact("both names, divided by a semicolon");
    OK(clReleaseProgram(program));
}

CASE(program_names_before_build)
{
    size_t count;
    char names[64];
    cl_program program = from(GOOD);
    EXPECT(clGetProgramInfo(program, CL_PROGRAM_NUM_KERNELS, sizeof count, &count, NULL),
           CL_INVALID_PROGRAM_EXECUTABLE);
    EXPECT(clGetProgramInfo(program, CL_PROGRAM_KERNEL_NAMES, sizeof names, names, NULL),
           CL_INVALID_PROGRAM_EXECUTABLE);
    OK(clReleaseProgram(program));
}

SPEC_CASE(program_create_errors)
{
    const char *strings[2] = {"kernel void a() {}", NULL};
    REFUSED(clCreateProgramWithSource(context, 0, strings, NULL, &err), CL_INVALID_VALUE);
    REFUSED(clCreateProgramWithSource(context, 1, NULL, NULL, &err), CL_INVALID_VALUE);
    REFUSED(clCreateProgramWithSource(context, 2, strings, NULL, &err), CL_INVALID_VALUE);
}

CASE(program_build_states)
{
    char text[64] = "x";
    cl_program_binary_type type = 77;
    cl_program program = from(GOOD);
    EQUAL(build_status(program), CL_BUILD_NONE);
    OK(clGetProgramBuildInfo(program, device, CL_PROGRAM_BUILD_OPTIONS, sizeof text, text, NULL));
    fact("options before the build: \"%s\"", text);
    OK(clGetProgramBuildInfo(program, device, CL_PROGRAM_BINARY_TYPE, sizeof type, &type, NULL));
    EQUAL(type, CL_PROGRAM_BINARY_TYPE_NONE);
    OK(clBuildProgram(program, 1, &device, "-DSOME=1 -cl-mad-enable", NULL, NULL));
    EQUAL(build_status(program), CL_BUILD_SUCCESS);
    OK(clGetProgramBuildInfo(program, device, CL_PROGRAM_BUILD_OPTIONS, sizeof text, text, NULL));
    fact("options after the build: \"%s\"", text);
    OK(clGetProgramBuildInfo(program, device, CL_PROGRAM_BINARY_TYPE, sizeof type, &type, NULL));
    EQUAL(type, CL_PROGRAM_BINARY_TYPE_EXECUTABLE);
    OK(clReleaseProgram(program));
}

SPEC_CASE(program_options_echoed_exactly)
{
    static const char *const options = "  -DSOME=1\t -D OTHER  ";
    char text[64] = "x";
    cl_program program = program_from(GOOD, options);
    OK(clGetProgramBuildInfo(program, device, CL_PROGRAM_BUILD_OPTIONS, sizeof text, text, NULL));
    CHECK(strcmp(text, options) == 0);
    OK(clReleaseProgram(program));
}

SPEC_CASE(program_log_before_build)
{
    char text[64] = "x";
    cl_program program = from(GOOD);
    OK(clGetProgramBuildInfo(program, device, CL_PROGRAM_BUILD_LOG, sizeof text, text, NULL));
    fact("log before the build: \"%s\"", text);
    CHECK(text[0] == '\0');
    OK(clReleaseProgram(program));
}

CASE(program_build_failure)
{
    size_t size = 0;
    static char log[65536];
    cl_program program = from(BAD);
    EXPECT(clBuildProgram(program, 1, &device, "", NULL, NULL), CL_BUILD_PROGRAM_FAILURE);
    EQUAL(build_status(program), CL_BUILD_ERROR);
    OK(clGetProgramBuildInfo(program, device, CL_PROGRAM_BUILD_LOG, sizeof log, log, &size));
    CHECK(strlen(log) + 1 == size);
    fact("the log names the culprit: %s", strstr(log, "no_such_name") ? "yes" : "no");
    REFUSED(clCreateKernel(program, "bad", &err), CL_INVALID_PROGRAM_EXECUTABLE);
    OK(clReleaseProgram(program));
}

CASE(program_build_failure_then_success)
{
    const char *source = "#ifndef VALUE\n#error give a value\n#endif\n"
                         "kernel void answer(global int *x) { *x = VALUE; }\n";
    cl_program program = from(source);
    EXPECT(clBuildProgram(program, 1, &device, "", NULL, NULL), CL_BUILD_PROGRAM_FAILURE);
    EXPECT(clBuildProgram(program, 1, &device, "-DVALUE=41", NULL, NULL), CL_SUCCESS);
    EQUAL(answer_of(program), 41);
    EXPECT(clBuildProgram(program, 1, &device, "-D VALUE=43", NULL, NULL), CL_SUCCESS);
    EQUAL(answer_of(program), 43);
    OK(clReleaseProgram(program));
}

CASE(program_build_options)
{
    const char *source = "kernel void answer(global int *x)\n{\n"
                         "#ifdef __FAST_RELAXED_MATH__\n    *x = VALUE + 1000;\n"
                         "#else\n    *x = VALUE;\n#endif\n}\n";
    static const char *const options[] = {"-DVALUE=5", "-D VALUE=6 -w",
                                          "-cl-fast-relaxed-math -DVALUE=7",
                                          "  -cl-opt-disable   -DVALUE=(3+5)  "};
    for (size_t i = 0; i < sizeof options / sizeof *options; ++i) {
        cl_program program = program_from(source, options[i]);
        fact("\"%s\": %d", options[i], answer_of(program));
        OK(clReleaseProgram(program));
    }
}

CASE(program_bad_options)
{
    cl_program program = from(GOOD);
    EXPECT(clBuildProgram(program, 1, &device, "-no-such-option", NULL, NULL),
           CL_INVALID_BUILD_OPTIONS, CL_BUILD_PROGRAM_FAILURE);
    OK(clReleaseProgram(program));
}

CASE(program_build_errors)
{
    int user = 0;
    cl_device_id none = NULL;
    cl_program program = from(GOOD);
    EXPECT(clBuildProgram(NULL, 1, &device, "", NULL, NULL), CL_INVALID_PROGRAM);
    EXPECT(clBuildProgram(program, 0, &device, "", NULL, NULL), CL_INVALID_VALUE);
    EXPECT(clBuildProgram(program, 1, NULL, "", NULL, NULL), CL_INVALID_VALUE);
    EXPECT(clBuildProgram(program, 1, &device, "", NULL, &user), CL_INVALID_VALUE);
    (void)none;
    OK(clReleaseProgram(program));
}

SPEC_CASE(program_build_foreign_device)
{
    cl_device_id none = NULL;
    cl_program program = from(GOOD);
    EXPECT(clBuildProgram(program, 1, &none, "", NULL, NULL), CL_INVALID_DEVICE);
    OK(clReleaseProgram(program));
}

CASE(program_build_with_kernels)
{
    cl_program program = program_from(GOOD, "");
    cl_kernel kernel = clCreateKernel(program, "good", &err);
    OK(err);
    EXPECT(clBuildProgram(program, 1, &device, "", NULL, NULL), CL_INVALID_OPERATION);
    OK(clReleaseKernel(kernel));
    EXPECT(clBuildProgram(program, 1, &device, "", NULL, NULL), CL_SUCCESS);
    OK(clReleaseProgram(program));
}

struct built {
    struct latch latch;
    cl_program program;
    void *user;
    cl_build_status status;
};

static void CL_CALLBACK on_built(cl_program program, void *user)
{
    struct built *built = user;
    built->program = program;
    clGetProgramBuildInfo(program, device, CL_PROGRAM_BUILD_STATUS, sizeof built->status,
                          &built->status, NULL);
    latch_add(&built->latch);
}

CASE(program_build_callback)
{
    struct built built = {LATCH, NULL, NULL, 77};
    cl_program program = from(GOOD);
    EXPECT(clBuildProgram(program, 1, &device, "", on_built, &built), CL_SUCCESS);
    latch_wait(&built.latch, 1);
    CHECK(built.program == program);
    EQUAL(built.status, CL_BUILD_SUCCESS);
    cl_kernel kernel = clCreateKernel(program, "good", &err);
    EXPECT(err, CL_SUCCESS);
    OK(clReleaseKernel(kernel));
    OK(clReleaseProgram(program));
    EQUAL(latch_count(&built.latch), 1);
}

SPEC_CASE(program_build_callback_of_failure)
{
    struct built built = {LATCH, NULL, NULL, 77};
    cl_program program = from(BAD);
    EXPECT(clBuildProgram(program, 1, &device, "", on_built, &built), CL_SUCCESS,
           CL_BUILD_PROGRAM_FAILURE);
    latch_wait(&built.latch, 1);
    EQUAL(built.status, CL_BUILD_ERROR);
    EQUAL(latch_count(&built.latch), 1);
    OK(clReleaseProgram(program));
}

CASE(program_many_builds_by_callback)
{
    enum { COUNT = 8 };
    struct built built = {LATCH, NULL, NULL, 77};
    cl_program programs[COUNT];
    for (int i = 0; i < COUNT; ++i) {
        programs[i] = from(GOOD);
        OK(clBuildProgram(programs[i], 1, &device, "", on_built, &built));
    }
    latch_wait(&built.latch, COUNT);
    for (int i = 0; i < COUNT; ++i) {
        CHECK(build_status(programs[i]) == CL_BUILD_SUCCESS);
        OK(clReleaseProgram(programs[i]));
    }
    EQUAL(latch_count(&built.latch), COUNT);
}

CASE(program_reference_count)
{
    cl_uint count = 0;
    cl_program program = from(GOOD);
    OK(clRetainProgram(program));
    OK(clGetProgramInfo(program, CL_PROGRAM_REFERENCE_COUNT, sizeof count, &count, NULL));
    EQUAL(count, 2);
    OK(clReleaseProgram(program));
    OK(clGetProgramInfo(program, CL_PROGRAM_REFERENCE_COUNT, sizeof count, &count, NULL));
    EQUAL(count, 1);
    OK(clReleaseProgram(program));
}

CASE(program_null)
{
    EXPECT(clRetainProgram(NULL), CL_INVALID_PROGRAM);
    EXPECT(clReleaseProgram(NULL), CL_INVALID_PROGRAM);
    EXPECT(clGetProgramInfo(NULL, CL_PROGRAM_SOURCE, 0, NULL, NULL), CL_INVALID_PROGRAM);
    REFUSED(clCreateKernel(NULL, "x", &err), CL_INVALID_PROGRAM);
}

SPEC_CASE(program_wrong_kind)
{
    EXPECT(clRetainProgram((cl_program)queue), CL_INVALID_PROGRAM);
    EXPECT(clBuildProgram((cl_program)context, 1, &device, "", NULL, NULL), CL_INVALID_PROGRAM);
    REFUSED(clCreateKernel((cl_program)device, "x", &err), CL_INVALID_PROGRAM);
}

CASE(program_unload_compiler)
{
    EXPECT(clUnloadPlatformCompiler(platform), CL_SUCCESS);
    EXPECT(clUnloadCompiler(), CL_SUCCESS);
    cl_program program = program_from("kernel void answer(global int *x) { *x = 12; }", "");
    EXPECT(clUnloadPlatformCompiler(platform), CL_SUCCESS);
    EQUAL(answer_of(program), 12);
    OK(clReleaseProgram(program));
}

CASE(program_built_in_kernels)
{
    REFUSED(clCreateProgramWithBuiltInKernels(context, 0, &device, "x", &err), CL_INVALID_VALUE);
    REFUSED(clCreateProgramWithBuiltInKernels(context, 1, NULL, "x", &err), CL_INVALID_VALUE);
    REFUSED(clCreateProgramWithBuiltInKernels(context, 1, &device, NULL, &err),
            CL_INVALID_VALUE);
    REFUSED(clCreateProgramWithBuiltInKernels(context, 1, &device, "no.such.kernel", &err),
            CL_INVALID_VALUE);
}

CASE(program_build_warnings)
{
    const char *source = "#warning take care\nkernel void answer(global int *x) { *x = 4; }\n";
    static char log[65536];
    cl_program program = program_from(source, "");
    OK(clGetProgramBuildInfo(program, device, CL_PROGRAM_BUILD_LOG, sizeof log, log, NULL));
    fact("the log of a good build has the warning: %s", strstr(log, "take care") ? "yes" : "no");
    EQUAL(answer_of(program), 4);
    OK(clReleaseProgram(program));
    program = from(source);
    EXPECT(clBuildProgram(program, 1, &device, "-Werror", NULL, NULL), CL_BUILD_PROGRAM_FAILURE,
           CL_SUCCESS);
    OK(clReleaseProgram(program));
}

CASE(program_source_with_odd_bytes)
{
    const char *source = "/* \303\274ml\303\244ut, tab\tand\r\n returns */\r\n"
                         "kernel void answer(global int *x) { *x = 21; }\n";
    char told[256];
    cl_program program = program_from(source, "");
    OK(clGetProgramInfo(program, CL_PROGRAM_SOURCE, sizeof told, told, NULL));
    CHECK(strcmp(told, source) == 0);
    EQUAL(answer_of(program), 21);
    OK(clReleaseProgram(program));
}

CASE(program_without_kernels)
{
    size_t count = 77;
    cl_program program = program_from("int f(int x) { return x; }\n", "");
    OK(clGetProgramInfo(program, CL_PROGRAM_NUM_KERNELS, sizeof count, &count, NULL));
    EQUAL(count, 0);
    OK(clReleaseProgram(program));
}

CASE(program_of_nothing)
{
    cl_program program = from("");
    OK(clBuildProgram(program, 1, &device, "", NULL, NULL));
    EQUAL(build_status(program), CL_BUILD_SUCCESS);
    size_t kernels = 77;
    OK(clGetProgramInfo(program, CL_PROGRAM_NUM_KERNELS, sizeof kernels, &kernels, NULL));
    EQUAL(kernels, 0);
    OK(clReleaseProgram(program));
    program = from("");
    OK(clCompileProgram(program, 1, &device, "", 0, NULL, NULL, NULL, NULL));
    OK(clReleaseProgram(program));
}

CASE(program_include_directory)
{
    /* The headers lie on the client's side. -I names their directory by its absolute path. */
    char directory[] = "/tmp/cltest-include-XXXXXX", path[256], options[512];
    if (mkdtemp(directory) == NULL)
        skip("no temporary directory");
    for (int value = 1; value <= 2; ++value) {
        snprintf(path, sizeof path, "%s/value.h", directory);
        FILE *file = fopen(path, "w");
        fprintf(file, "#define VALUE %d\n", 30 + value);
        fclose(file);
        snprintf(options, sizeof options, "-I %s", directory);
        cl_program program = program_from(
            "#include \"value.h\"\nkernel void answer(global int *x) { *x = VALUE; }\n", options);
        fact("the header says %d", answer_of(program));
        OK(clReleaseProgram(program));
    }
    remove(path);
    remove(directory);
}
