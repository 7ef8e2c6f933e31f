/* Queries of programs of every kind. */
#define CL_TARGET_OPENCL_VERSION 300
#include "../cltest.h"

static const char *const SOURCE = "constant int numbers[4] = {1, 2, 3, 4};\n"
                                  "kernel void answer(global int *x) { *x = numbers[*x & 3]; }\n";

static cl_program from(const char *source)
{
    cl_program program = clCreateProgramWithSource(context, 1, &source, NULL, &err);
    OK(err);
    return program;
}

static cl_uint type_of(cl_program program)
{
    cl_program_binary_type type = 77;
    OK(clGetProgramBuildInfo(program, device, CL_PROGRAM_BINARY_TYPE, sizeof type, &type, NULL));
    return type;
}

static cl_int status_of_build(cl_program program)
{
    cl_build_status status = 77;
    OK(clGetProgramBuildInfo(program, device, CL_PROGRAM_BUILD_STATUS, sizeof status, &status, NULL));
    return status;
}

static size_t size_of_binary(cl_program program)
{
    size_t size = 77;
    OK(clGetProgramInfo(program, CL_PROGRAM_BINARY_SIZES, sizeof size, &size, NULL));
    return size;
}

static void say(const char *what, cl_program program)
{
    const cl_int status = status_of_build(program);
    fact("%s: type %u, status %d", what, type_of(program), status);
    CHECK(status != CL_BUILD_SUCCESS || size_of_binary(program) > 0);
}

CASE(queries_of_each_kind)
{
    cl_program source = from(SOURCE), part = from(SOURCE);
    say("source", source);
    OK(clBuildProgram(source, 1, &device, "", NULL, NULL));
    say("built", source);
    OK(clCompileProgram(part, 1, &device, "", 0, NULL, NULL, NULL, NULL));
    say("compiled", part);
    cl_program library = clLinkProgram(context, 1, &device, "-create-library", 1, &part, NULL, NULL, &err);
    OK(err);
    say("library", library);
    cl_program linked = clLinkProgram(context, 1, &device, "", 1, &part, NULL, NULL, &err);
    OK(err);
    say("linked", linked);
    size_t size = size_of_binary(source);
    unsigned char *binary = malloc(size);
    OK(clGetProgramInfo(source, CL_PROGRAM_BINARIES, sizeof binary, &binary, NULL));
    cl_program loaded = clCreateProgramWithBinary(context, 1, &device, &size, (const unsigned char **)&binary, NULL,
                                                  &err);
    OK(err);
    OK(clBuildProgram(loaded, 1, &device, "", NULL, NULL));
    say("loaded", loaded);
    free(binary);
    OK(clReleaseProgram(loaded));
    OK(clReleaseProgram(linked));
    OK(clReleaseProgram(library));
    OK(clReleaseProgram(part));
    OK(clReleaseProgram(source));
}

SPEC_CASE(queries_of_a_failed_build)
{
    cl_program program = from("kernel void broken(global int *x) { *x = nothing; }\n");
    EXPECT(clBuildProgram(program, 1, &device, "", NULL, NULL), CL_BUILD_PROGRAM_FAILURE);
    EQUAL(status_of_build(program), CL_BUILD_ERROR);
    EQUAL(type_of(program), CL_PROGRAM_BINARY_TYPE_NONE);
    EQUAL(size_of_binary(program), 0);
    OK(clReleaseProgram(program));
}

SPEC_CASE(queries_since_version_2)
{
    char version[256] = "";
    OK(clGetPlatformInfo(platform, CL_PLATFORM_VERSION, sizeof version, version, NULL));
    if (strcmp(version, "OpenCL 2.2") < 0)
        skip("the platform is older than 2.2");
    cl_bool constructors = 77, destructors = 77;
    size_t module = 77, variables = (size_t)-1;
    cl_program program = program_from(SOURCE, "");
    OK(clGetProgramInfo(program, CL_PROGRAM_SCOPE_GLOBAL_CTORS_PRESENT, sizeof constructors, &constructors, NULL));
    OK(clGetProgramInfo(program, CL_PROGRAM_SCOPE_GLOBAL_DTORS_PRESENT, sizeof destructors, &destructors, NULL));
    OK(clGetProgramInfo(program, CL_PROGRAM_IL, 0, NULL, &module));
    OK(clGetProgramBuildInfo(program, device, CL_PROGRAM_BUILD_GLOBAL_VARIABLE_TOTAL_SIZE, sizeof variables, &variables,
                             NULL));
    EQUAL(constructors, CL_FALSE);
    EQUAL(destructors, CL_FALSE);
    EQUAL(module, 0);
    CHECK(variables != (size_t)-1);
    OK(clReleaseProgram(program));
}

static void CL_CALLBACK on_release(cl_program gone, void *user)
{
    (void)gone;
    ++*(int *)user;
}

/* These callbacks are for constructors of OpenCL 2.2's C++, which 3.0 removed. */
SPEC_CASE(release_callbacks_are_refused)
{
    int calls = 0;
    cl_program program = program_from(SOURCE, "");
    EXPECT(clSetProgramReleaseCallback(program, on_release, &calls), CL_INVALID_OPERATION);
    OK(clReleaseProgram(program));
    EQUAL(calls, 0);
}
