/* Build options: each option arrives unchanged, whatever it contains. */
#include "../cltest.h"

static cl_program from(const char *source)
{
    cl_program program = clCreateProgramWithSource(context, 1, &source, NULL, &err);
    OK(err);
    return program;
}

/* Builds the program, and reports the code of the build and the result of the kernel. */
static void build_with(const char *source, const char *options)
{
    size_t kernels = 0;
    cl_program program = from(source);
    const cl_int code = clBuildProgram(program, 1, &device, options, NULL, NULL);
    fact("%s: %s", options, status_name(code));
    if (code == CL_SUCCESS && clGetProgramInfo(program, CL_PROGRAM_NUM_KERNELS, sizeof kernels, &kernels, NULL) ==
                                  CL_SUCCESS && kernels == 1)
        fact("%d", answer_of(program));
    OK(clReleaseProgram(program));
}

CASE(options_of_the_specification)
{
    static const char *const options[] = {
        "-w", "-Werror", "-cl-single-precision-constant", "-cl-denorms-are-zero",
        "-cl-fp32-correctly-rounded-divide-sqrt", "-cl-opt-disable", "-cl-mad-enable",
        "-cl-no-signed-zeros", "-cl-unsafe-math-optimizations", "-cl-finite-math-only",
        "-cl-fast-relaxed-math", "-cl-uniform-work-group-size", "-cl-kernel-arg-info", "-cl-std=CL1.1",
        "-cl-std=CL1.2", "-cl-std=CL2.0", "-cl-std=CL3.0", "-cl-std=CL9.9", "-cl-std=", "-cl-no-such-option",
        "-x spir -spir-std=1.2", "-g", "-create-library", "-enable-link-options", "-cl-nv-verbose",
    };
    for (size_t i = 0; i < sizeof options / sizeof *options; ++i)
        build_with("kernel void answer(global int *x) { *x = 7; }\n", options[i]);
}

CASE(options_that_contradict_each_other)
{
    static const char *const options[] = {
        "-DX=1 -DX=2", "-DX=1 -UX", "-UX -DX=1", "-D X=1 -U X -D X=3", "-cl-std=CL1.1 -cl-std=CL1.2", "-w -Werror",
    };
    for (size_t i = 0; i < sizeof options / sizeof *options; ++i)
        build_with("kernel void answer(global int *x)\n{\n#ifdef X\n    *x = X;\n#else\n    *x = -1;\n#endif\n}\n",
                   options[i]);
}

CASE(options_that_define_numbers)
{
    static const char *const options[] = {
        "-DX=(1+2)", "-D X=(1+2)", "-DX=(1<<4)|1", "-DX=\"1 + 2\"", "\"-DX=1 + 2\"", "-D \"X=1 + 2\"", "-D'X=1 + 2'",
        "-DX=1\\ +\\ 2", "-D  X=4", " -DX=4\t-w ", "-DX=4 ", "-DX", "-D X -w", "-DY=4 -DX=Y", "-DF(a)=(a+1) -DX=F(4)",
        "-DX=0x1F", "-DX='a'", "-DX=-5", "-DX=sizeof(\"-I/tmp\")",
    };
    for (size_t i = 0; i < sizeof options / sizeof *options; ++i)
        build_with("kernel void answer(global int *x) { *x = X; }\n", options[i]);
}

CASE(options_that_define_texts)
{
    /* A driver may split its options as it likes, but must get them unchanged. The limits in icd/README.md list
       texts that may name a file of the node. */
    static const char *const options[] = {
        "-DTEXT=\\\"word\\\"", "-D TEXT=\\\"word\\\"", "-DTEXT=\"word\"", "-DTEXT=\"two words\"",
        "-DTEXT=\\\"two words\\\"", "-DTEXT=\"\\\"two words\\\"\"", "-DTEXT='\"two words\"'",
        "-D'TEXT=\"two words\"'", "-DTEXT=\\\"two\\ words\\\"", "-DTEXT=\\\"a\\\\b\\\"", "-DTEXT=\\\"\\\"",
        "-DTEXT=\\\"-I/tmp\\\"", "-DTEXT=\"-I /tmp\"", "-DTEXT=a;b&c|d", "-DTEXT=$HOME`x`",
        "-DTEXT=%s%n", "-DTEXT=~/x", "-DTEXT=<a>", "-DTEXT=a\\b", "-DTEXT=\xc3\xa9",
    };
    for (size_t i = 0; i < sizeof options / sizeof *options; ++i)
        build_with("#define TOLD(x) #x\n#define TELL(x) TOLD(x)\nconstant char text[] = TELL(TEXT);\n"
                   "kernel void answer(global int *x)\n"
                   "{ int sum = sizeof(text) << 20; for (int i = 0; text[i]; ++i) sum += text[i] * (i + 1); *x = sum; }\n",
                   options[i]);
}

CASE(options_that_are_long)
{
    static char options[65536];
    size_t length = 0;
    for (int i = 0; i < 2000; ++i)
        length += (size_t)snprintf(options + length, sizeof options - length, "-DX%d=%d ", i, i);
    cl_program program = from("kernel void answer(global int *x) { *x = X0 + X999 + X1999; }\n");
    EXPECT(clBuildProgram(program, 1, &device, options, NULL, NULL), CL_SUCCESS);
    EQUAL(answer_of(program), 2998);
    OK(clReleaseProgram(program));
}

/* PoCL reports some options in a changed form. NVIDIA's driver refuses some, and its answers
   about these are not judged. */
SPEC_CASE(options_are_told_as_they_were)
{
    static const char *const options[] = {
        "", "-g", "-cl-denorms-are-zero", "-cl-uniform-work-group-size", " -DX=4\t-w ", "-DX=\"1 + 2\"  -D  Y",
    };
    int taken = 0;
    for (size_t i = 0; i < sizeof options / sizeof *options; ++i) {
        char text[128] = "";
        cl_program program = from("kernel void answer(global int *x) { *x = 7; }\n");
        const cl_int code = clBuildProgram(program, 1, &device, options[i], NULL, NULL);
        fact("\"%s\": %s", options[i], status_name(code));
        if (code == CL_SUCCESS) {
            OK(clGetProgramBuildInfo(program, device, CL_PROGRAM_BUILD_OPTIONS, sizeof text, text, NULL));
            CHECK(strcmp(text, options[i]) == 0);
            ++taken;
        }
        OK(clReleaseProgram(program));
    }
    CHECK(taken > 0);
}

CASE(options_of_compile_and_link)
{
    static const char *const compile[] = {"-DX=\"1 + 2\"", "-DX=4 -cl-mad-enable", "-DX=5 -create-library"};
    static const char *const link[] = {"", "-cl-fast-relaxed-math", "-create-library", "-DX=1", "-cl-no-such-option",
                                       "-create-library -enable-link-options"};
    for (size_t c = 0; c < sizeof compile / sizeof *compile; ++c)
        for (size_t l = 0; l < sizeof link / sizeof *link; ++l) {
            cl_program part = from("kernel void answer(global int *x) { *x = X; }\n");
            const cl_int compiled = clCompileProgram(part, 1, &device, compile[c], 0, NULL, NULL, NULL, NULL);
            fact("%s: %s", compile[c], status_name(compiled));
            if (compiled == CL_SUCCESS) {
                cl_program whole = clLinkProgram(context, 1, &device, link[l], 1, &part, NULL, NULL, &err);
                fact("linked with \"%s\": %s", link[l], status_name(err));
                if (err == CL_SUCCESS) {
                    cl_program_binary_type type = 77;
                    OK(clGetProgramBuildInfo(whole, device, CL_PROGRAM_BINARY_TYPE, sizeof type, &type, NULL));
                    fact("type %u", type);
                    if (type == CL_PROGRAM_BINARY_TYPE_EXECUTABLE)
                        fact("%d", answer_of(whole));
                }
                if (whole != NULL)
                    OK(clReleaseProgram(whole));
            }
            OK(clReleaseProgram(part));
        }
}
