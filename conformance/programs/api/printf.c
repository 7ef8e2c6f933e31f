/* Output of kernels' printf: where, in which order and by when the text appears. */
#include "../cltest.h"

#include <unistd.h>

static char path[64];
static int saved;

/* Redirects the program's standard output to a file. */
static void redirect(void)
{
    strcpy(path, "/tmp/cltest-printf-XXXXXX");
    int file = mkstemp(path);
    if (file < 0)
        skip("no file can be made");
    close(file);
    fflush(stdout);
    saved = dup(fileno(stdout));
    if (!freopen(path, "w", stdout))
        exit(EXIT_FAILURE);
}

/* Returns the contents of the file, and restores the program's standard output. */
static char *printed(void)
{
    FILE *file = fopen(path, "r");
    fseek(file, 0, SEEK_END);
    size_t length = (size_t)ftell(file);
    rewind(file);
    char *text = calloc(1, length + 1);
    if (fread(text, 1, length, file) != length)
        exit(EXIT_FAILURE);
    fclose(file);
    unlink(path);
    fflush(stdout);
    dup2(saved, fileno(stdout));
    close(saved);
    return text;
}

static const char *const SPEAK =
    "kernel void speak(int n) { printf(\"said %d\\n\", n); }\n"
    "kernel void fill(int n, global int *x) { printf(\"said %d\\n\", n); *x = n; }\n"
    "kernel void lines(int n) {\n"
    "    for (int i = 0; i < 1000; ++i)\n"
    "        printf(\"line %6d of launch %4d: %s\\n\", i, n, \"abcdefghijklmnopqrstuvwxyz\");\n"
    "}\n";

static cl_kernel kernel_of(cl_program program, const char *name, int n)
{
    cl_kernel kernel = clCreateKernel(program, name, &err);
    OK(err);
    OK(clSetKernelArg(kernel, 0, sizeof n, &n));
    return kernel;
}

static void enqueue(cl_command_queue to, cl_kernel kernel, int n)
{
    size_t one = 1;
    OK(clSetKernelArg(kernel, 0, sizeof n, &n));
    OK(clEnqueueNDRangeKernel(to, kernel, 1, NULL, &one, &one, 0, NULL, NULL));
}

CASE(printf_is_there_when_finish_returns)
{
    cl_program program = program_from(SPEAK, "");
    cl_kernel kernel = kernel_of(program, "speak", 0);
    redirect();
    for (int n = 0; n < 5; ++n)
        enqueue(queue, kernel, n);
    OK(clFinish(queue));
    OK(clFinish(queue));
    char *text = printed();
    fact("%s", text);
    free(text);
    OK(clReleaseKernel(kernel));
    OK(clReleaseProgram(program));
}

CASE(printf_mixes_with_the_programs_own_text)
{
    cl_program program = program_from(SPEAK, "");
    cl_kernel kernel = kernel_of(program, "speak", 0);
    redirect();
    for (int n = 0; n < 3; ++n) {
        printf("before %d\n", n);
        fflush(stdout);
        enqueue(queue, kernel, n);
        OK(clFinish(queue));
        printf("after %d\n", n);
    }
    fflush(stdout);
    char *text = printed();
    fact("%s", text);
    free(text);
    OK(clReleaseKernel(kernel));
    OK(clReleaseProgram(program));
}

CASE(printf_is_there_when_any_wait_returns)
{
    int value = 0;
    size_t one = 1;
    cl_event event;
    cl_program program = program_from(SPEAK, "");
    cl_kernel kernel = kernel_of(program, "fill", 7);
    cl_mem buffer = buffer_of(4);
    OK(clSetKernelArg(kernel, 1, sizeof buffer, &buffer));
    redirect();
    OK(clEnqueueNDRangeKernel(queue, kernel, 1, NULL, &one, &one, 0, NULL, &event));
    OK(clWaitForEvents(1, &event));
    char *text = printed();
    fact("after clWaitForEvents: %s", text);
    free(text);
    OK(clReleaseEvent(event));

    redirect();
    enqueue(queue, kernel, 8);
    OK(clEnqueueReadBuffer(queue, buffer, CL_TRUE, 0, 4, &value, 0, NULL, NULL));
    text = printed();
    fact("after a blocking read: %s", text);
    free(text);

    redirect();
    OK(clEnqueueNDRangeKernel(queue, kernel, 1, NULL, &one, &one, 0, NULL, &event));
    OK(clFlush(queue));
    cl_int status = CL_QUEUED;
    while (status > CL_COMPLETE)
        OK(clGetEventInfo(event, CL_EVENT_COMMAND_EXECUTION_STATUS, sizeof status, &status, NULL));
    text = printed();
    fact("when the status is complete: %s", text);
    free(text);
    OK(clReleaseEvent(event));
    OK(clReleaseMemObject(buffer));
    OK(clReleaseKernel(kernel));
    OK(clReleaseProgram(program));
}

/* Whether every launch's lines are present, whole and in order. */
static int is_complete(const char *text, int launches)
{
    int *next = calloc((size_t)launches, sizeof *next), good = 1, lines = 0;
    for (const char *at = text; *at && good; at = strchr(at, '\n') + 1, ++lines) {
        int line, launch;
        char rest[40] = "";
        good = sscanf(at, "line %d of launch %d: %39[a-z]", &line, &launch, rest) == 3
               && launch >= 0 && launch < launches && line == next[launch]++
               && !strcmp(rest, "abcdefghijklmnopqrstuvwxyz") && strchr(at, '\n');
    }
    free(next);
    return good && lines == launches * 1000;
}

CASE(printf_of_megabytes_is_complete)
{
    const int launches = 30;
    cl_program program = program_from(SPEAK, "");
    cl_kernel kernel = kernel_of(program, "lines", 0);
    redirect();
    for (int n = 0; n < launches; ++n)
        enqueue(queue, kernel, n);
    OK(clFinish(queue));
    char *text = printed();
    fact("%zu bytes", strlen(text));
    fact("complete: %s", is_complete(text, launches) ? "yes" : "no");
    free(text);
    OK(clReleaseKernel(kernel));
    OK(clReleaseProgram(program));
}

CASE(printf_of_several_queues)
{
    enum { QUEUES = 3, LAUNCHES = 12 };
    cl_command_queue queues[QUEUES];
    cl_program program = program_from(SPEAK, "");
    cl_kernel kernel = kernel_of(program, "lines", 0);
    for (int q = 0; q < QUEUES; ++q) {
        queues[q] = clCreateCommandQueue(context, device, 0, &err);
        OK(err);
    }
    redirect();
    for (int n = 0; n < LAUNCHES; ++n)
        enqueue(queues[n % QUEUES], kernel, n);
    for (int q = 0; q < QUEUES; ++q)
        OK(clFlush(queues[q]));
    for (int q = 0; q < QUEUES; ++q)
        OK(clFinish(queues[q]));
    char *text = printed();
    fact("%zu bytes", strlen(text));
    for (int q = 0; q < QUEUES; ++q) {
        const char *last = text;
        int order = 1;
        for (int n = q; n < LAUNCHES; n += QUEUES) {
            char first[64];
            snprintf(first, sizeof first, "line %6d of launch %4d:", 0, n);
            const char *at = strstr(text, first);
            order = order && at && at >= last;
            last = at ? at : last;
        }
        fact("queue %d in order: %s", q, order ? "yes" : "no");
        OK(clReleaseCommandQueue(queues[q]));
    }
    free(text);
    OK(clReleaseKernel(kernel));
    OK(clReleaseProgram(program));
}

CASE(printf_of_all_kinds)
{
    static const char *const source =
        "kernel void kinds(float f, long l) {\n"
        "    printf(\"%d %u %x %o %c %% %s|%5d|%-5d|%+d|%05d\\n\", -1, 2u, 255, 8, 'c', \"text\", 6, 7, 8, 9);\n"
        "    printf(\"%f %e %g %a %.2f\\n\", f, f, f, 1.0f, f);\n"
        "    printf(\"%ld %lu %hd %hhd\\n\", l, (ulong)l, (short)3, (char)4);\n"
        "    printf(\"%v4hld %v2hlf\\n\", (int4)(1, 2, 3, 4), (float2)(1.5f, 2.5f));\n"
        "    printf(\"no newline\");\n"
        "    printf(\"\\n\");\n"
        "}\n";
    float f = 3.25f;
    cl_long l = -5;
    size_t one = 1;
    cl_program program = program_from(source, "");
    cl_kernel kernel = clCreateKernel(program, "kinds", &err);
    OK(err);
    OK(clSetKernelArg(kernel, 0, sizeof f, &f));
    OK(clSetKernelArg(kernel, 1, sizeof l, &l));
    redirect();
    OK(clEnqueueNDRangeKernel(queue, kernel, 1, NULL, &one, &one, 0, NULL, NULL));
    OK(clFinish(queue));
    char *text = printed();
    fact("%s", text);
    free(text);
    OK(clReleaseKernel(kernel));
    OK(clReleaseProgram(program));
}

CASE(printf_from_a_binary)
{
    size_t size = 0;
    cl_program program = program_from(SPEAK, "");
    OK(clGetProgramInfo(program, CL_PROGRAM_BINARY_SIZES, sizeof size, &size, NULL));
    unsigned char *binary = malloc(size);
    OK(clGetProgramInfo(program, CL_PROGRAM_BINARIES, sizeof binary, &binary, NULL));
    OK(clReleaseProgram(program));
    const unsigned char *given = binary;
    program = clCreateProgramWithBinary(context, 1, &device, &size, &given, NULL, &err);
    OK(err);
    OK(clBuildProgram(program, 1, &device, NULL, NULL, NULL));
    cl_kernel kernel = kernel_of(program, "speak", 0);
    redirect();
    enqueue(queue, kernel, 11);
    OK(clFinish(queue));
    char *text = printed();
    fact("%s", text);
    free(text);
    free(binary);
    OK(clReleaseKernel(kernel));
    OK(clReleaseProgram(program));
}
