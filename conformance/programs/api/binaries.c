/* Program binaries: valid and wrong ones, read and loaded. */
#include "../cltest.h"

#include <sys/wait.h>
#include <unistd.h>

static const char *const SOURCE = "kernel void answer(global int *x) { *x = 99; }\n";

/* Returns the program's binary for the only device. The caller frees it. */
static unsigned char *binary_of(cl_program program, size_t *size)
{
    OK(clGetProgramInfo(program, CL_PROGRAM_BINARY_SIZES, sizeof *size, size, NULL));
    CHECK(*size > 0);
    unsigned char *binary = malloc(*size);
    OK(clGetProgramInfo(program, CL_PROGRAM_BINARIES, sizeof binary, &binary, NULL));
    return binary;
}

CASE(binary_round_trip)
{
    size_t size = 0;
    cl_int status = 77;
    cl_program program = program_from(SOURCE, "");
    unsigned char *binary = binary_of(program, &size);
    cl_program again = clCreateProgramWithBinary(context, 1, &device, &size,
                                                 (const unsigned char **)&binary, &status, &err);
    EXPECT(err, CL_SUCCESS);
    EXPECT(status, CL_SUCCESS);
    EXPECT(clBuildProgram(again, 1, &device, NULL, NULL, NULL), CL_SUCCESS);
    EQUAL(answer_of(again), 99);
    cl_program_binary_type type = 77;
    OK(clGetProgramBuildInfo(again, device, CL_PROGRAM_BINARY_TYPE, sizeof type, &type, NULL));
    EQUAL(type, CL_PROGRAM_BINARY_TYPE_EXECUTABLE);
    free(binary);
    OK(clReleaseProgram(program));
    OK(clReleaseProgram(again));
}

CASE(binary_in_another_context)
{
    size_t size = 0;
    cl_program program = program_from(SOURCE, "");
    unsigned char *binary = binary_of(program, &size);
    cl_context other = another_context();
    cl_program again = clCreateProgramWithBinary(other, 1, &device, &size,
                                                 (const unsigned char **)&binary, NULL, &err);
    EXPECT(err, CL_SUCCESS);
    EXPECT(clBuildProgram(again, 0, NULL, "", NULL, NULL), CL_SUCCESS);
    char name[64];
    OK(clGetProgramInfo(again, CL_PROGRAM_KERNEL_NAMES, sizeof name, name, NULL));
    fact("kernels: %s", name);
    free(binary);
    OK(clReleaseProgram(again));
    OK(clReleaseContext(other));
    OK(clReleaseProgram(program));
}

SPEC_CASE(binary_null_entries_are_skipped)
{
    unsigned char *none = NULL;
    cl_program program = program_from(SOURCE, "");
    EXPECT(clGetProgramInfo(program, CL_PROGRAM_BINARIES, sizeof none, &none, NULL), CL_SUCCESS);
    CHECK(none == NULL);
    size_t size = 0;
    OK(clGetProgramInfo(program, CL_PROGRAM_BINARIES, 0, NULL, &size));
    EQUAL(size, sizeof(unsigned char *));
    OK(clReleaseProgram(program));
}

SPEC_CASE(binary_before_build)
{
    size_t size = 77;
    cl_program program = clCreateProgramWithSource(context, 1, (const char **)&SOURCE, NULL, &err);
    OK(err);
    EXPECT(clGetProgramInfo(program, CL_PROGRAM_BINARY_SIZES, sizeof size, &size, NULL),
           CL_SUCCESS);
    EQUAL(size, 0);
    OK(clReleaseProgram(program));
}

SPEC_CASE(binary_create_errors)
{
    const unsigned char bytes[4] = {1, 2, 3, 4};
    const unsigned char *binary = bytes, *none = NULL;
    const size_t size = sizeof bytes, zero = 0;
    REFUSED(clCreateProgramWithBinary(context, 0, &device, &size, &binary, NULL, &err),
            CL_INVALID_VALUE);
    REFUSED(clCreateProgramWithBinary(context, 1, NULL, &size, &binary, NULL, &err),
            CL_INVALID_VALUE);
    REFUSED(clCreateProgramWithBinary(context, 1, &device, NULL, &binary, NULL, &err),
            CL_INVALID_VALUE);
    REFUSED(clCreateProgramWithBinary(context, 1, &device, &size, NULL, NULL, &err),
            CL_INVALID_VALUE);
    REFUSED(clCreateProgramWithBinary(context, 1, &device, &zero, &binary, NULL, &err),
            CL_INVALID_VALUE);
    REFUSED(clCreateProgramWithBinary(context, 1, &device, &size, &none, NULL, &err),
            CL_INVALID_VALUE);
    REFUSED(clCreateProgramWithBinary(NULL, 1, &device, &size, &binary, NULL, &err),
            CL_INVALID_CONTEXT);
}

CASE(binary_of_garbage)
{
    unsigned char bytes[256];
    for (int i = 0; i < 256; ++i)
        bytes[i] = (unsigned char)(i * 37 + 11);
    const unsigned char *binary = bytes;
    const size_t size = sizeof bytes;
    cl_int status = 77;
    cl_program program =
        clCreateProgramWithBinary(context, 1, &device, &size, &binary, &status, &err);
    /* Drivers reject the binary when the program is created or when it is built. */
    if (program != NULL) {
        err = clBuildProgram(program, 1, &device, "", NULL, NULL);
        OK(clReleaseProgram(program));
    }
    CHECK(err != CL_SUCCESS);
    fact("garbage never becomes a program");
}

SPEC_CASE(binary_truncated)
{
    size_t size = 0;
    cl_program program = program_from(SOURCE, "");
    unsigned char *binary = binary_of(program, &size);
    size = 16;
    cl_program again = clCreateProgramWithBinary(context, 1, &device, &size,
                                                 (const unsigned char **)&binary, NULL, &err);
    if (again != NULL) {
        err = clBuildProgram(again, 1, &device, "", NULL, NULL);
        OK(clReleaseProgram(again));
    }
    CHECK(err != CL_SUCCESS);
    fact("a cut binary never becomes a program");
    free(binary);
    OK(clReleaseProgram(program));
}

CASE(binary_keeps_signature)
{
    /* Argument sizes are checked for programs from binaries too. */
    size_t size = 0;
    cl_program program =
        program_from("kernel void answer(global int *x, float4 v, local int *l) { *x = v.y; }\n",
                     "");
    unsigned char *binary = binary_of(program, &size);
    cl_program again = clCreateProgramWithBinary(context, 1, &device, &size,
                                                 (const unsigned char **)&binary, NULL, &err);
    OK(err);
    OK(clBuildProgram(again, 1, &device, "", NULL, NULL));
    cl_kernel kernel = clCreateKernel(again, "answer", &err);
    OK(err);
    cl_uint count = 0;
    OK(clGetKernelInfo(kernel, CL_KERNEL_NUM_ARGS, sizeof count, &count, NULL));
    EQUAL(count, 3);
    cl_mem buffer = buffer_of(4);
    const cl_float4 vector = {{1, 2, 3, 4}};
    EXPECT(clSetKernelArg(kernel, 0, sizeof buffer, &buffer), CL_SUCCESS);
    EXPECT(clSetKernelArg(kernel, 1, sizeof vector, &vector), CL_SUCCESS);
    EXPECT(clSetKernelArg(kernel, 2, 64, NULL), CL_SUCCESS);
    launch(queue, kernel, 1);
    int value = 0;
    OK(clEnqueueReadBuffer(queue, buffer, CL_TRUE, 0, 4, &value, 0, NULL, NULL));
    EQUAL(value, 2);
    free(binary);
    OK(clReleaseMemObject(buffer));
    OK(clReleaseKernel(kernel));
    OK(clReleaseProgram(again));
    OK(clReleaseProgram(program));
}

CASE(binary_of_compiled_object)
{
    size_t size = 0;
    cl_program part = clCreateProgramWithSource(context, 1, (const char **)&SOURCE, NULL, &err);
    OK(err);
    OK(clCompileProgram(part, 1, &device, "", 0, NULL, NULL, NULL, NULL));
    unsigned char *binary = binary_of(part, &size);
    cl_program again = clCreateProgramWithBinary(context, 1, &device, &size,
                                                 (const unsigned char **)&binary, NULL, &err);
    EXPECT(err, CL_SUCCESS);
    cl_program linked = clLinkProgram(context, 1, &device, "", 1, &again, NULL, NULL, &err);
    EXPECT(err, CL_SUCCESS);
    EQUAL(answer_of(linked), 99);
    free(binary);
    OK(clReleaseProgram(part));
    OK(clReleaseProgram(again));
    OK(clReleaseProgram(linked));
}

/* Environment variables that tell a rerun of this program to write or to read the binary's file. */
#define WRITE "CLTEST_WRITE_BINARY"
#define READ "CLTEST_READ_BINARY"

static void write_binary(const char *path)
{
    size_t size = 0;
    cl_program program = program_from(SOURCE, "");
    unsigned char *binary = binary_of(program, &size);
    FILE *file = fopen(path, "wb");
    CHECK(file != NULL && fwrite(binary, 1, size, file) == size && fclose(file) == 0);
    free(binary);
    OK(clReleaseProgram(program));
}

/* Returns the answer of the program from the file's binary. */
static int answer_of_file(const char *path)
{
    static unsigned char bytes[1 << 22];
    FILE *file = fopen(path, "rb");
    const size_t size = fread(bytes, 1, sizeof bytes, file);
    fclose(file);
    const unsigned char *binary = bytes;
    cl_int status = 77;
    cl_program program = clCreateProgramWithBinary(context, 1, &device, &size, &binary, &status, &err);
    OK(err);
    OK(status);
    OK(clBuildProgram(program, 1, &device, NULL, NULL, NULL));
    const int answer = answer_of(program);
    OK(clReleaseProgram(program));
    return answer;
}

/* Runs this case again in a new process, and returns how it ended. */
static int run_again(const char *role, const char *path)
{
    int how = -1;
    const pid_t run = fork();
    if (run == 0) {
        setenv(role, path, 1);
        execl("/proc/self/exe", "binaries", "binary_in_a_later_run", (char *)NULL);
        _exit(127);
    }
    CHECK(run > 0 && waitpid(run, &how, 0) == run);
    return how;
}

BARE_CASE(binary_in_a_later_run)
{
    const char *written = getenv(WRITE), *read = getenv(READ);
    if (written != NULL || read != NULL) {
        cltest_open();
        if (written != NULL)
            write_binary(written);
        else
            EQUAL(answer_of_file(read), 99);
        cltest_close();
        return;
    }
    char path[] = "/tmp/cltest-binary-XXXXXX";
    const int file = mkstemp(path);
    CHECK(file >= 0 && close(file) == 0);
    EQUAL(run_again(WRITE, path), 0);
    EQUAL(run_again(READ, path), 0);
    unlink(path);
}
