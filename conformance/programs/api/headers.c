/* Headers of the program's machine: where the compiler looks for them, and how they may be named. */
#include "../cltest.h"

#include <sys/stat.h>
#include <unistd.h>

static char folder[64];

static void put(const char *name, const char *text)
{
    char path[256];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    FILE *file = fopen(path, "w");
    fputs(text, file);
    fclose(file);
}

static void make_folder(void)
{
    char path[128];
    strcpy(folder, "/tmp/cltest-headers-XXXXXX");
    if (!mkdtemp(folder))
        skip("no folder can be made");
    snprintf(path, sizeof path, "%s/in", folder);
    mkdir(path, 0700);
}

static void remove_folder(void)
{
    char command[128];
    snprintf(command, sizeof command, "rm -r %s", folder);
    if (system(command))
        fail("the folder cannot be removed");
}

static cl_program from(const char *source)
{
    cl_program program = clCreateProgramWithSource(context, 1, &source, NULL, &err);
    OK(err);
    return program;
}

/* Builds with these options. Each %s in them becomes the folder. */
static cl_int build(cl_program program, const char *options)
{
    char text[1024];
    snprintf(text, sizeof text, options, folder, folder, folder);
    return clBuildProgram(program, 1, &device, text, NULL, NULL);
}

/* Returns the value that `answer` writes, or -1 if the build failed. */
static int answer(const char *source, const char *options)
{
    int value = -1;
    cl_program program = from(source);
    if (build(program, options) == CL_SUCCESS)
        value = answer_of(program);
    OK(clReleaseProgram(program));
    return value;
}

#define ANSWER(what) "kernel void answer(global int *x) { *x = " what "; }\n"

CASE(headers_quoted_angled_and_nested)
{
    make_folder();
    put("value.h", "#include \"in/more.h\"\n#define VALUE (MORE + 1)\n");
    put("in/more.h", "#include \"most.h\"\n#define MORE (MOST + 1)\n");
    put("in/most.h", "#pragma once\n#define MOST 5\nconstant int most = 6;\n");
    EQUAL(answer("#include <value.h>\n#include \"in/most.h\"\n" ANSWER("VALUE"), "-I %s"), 7);
    EQUAL(answer("#include \"most.h\"\n#include <in/most.h>\n" ANSWER("MOST"), "-I%s -I %s/in"), 5);
    EQUAL(answer("#include \"nowhere.h\"\n" ANSWER("1"), "-I %s"), -1);
    EQUAL(answer("#if 0\n#include \"nowhere.h\"\n#endif\n" ANSWER("1"), "-I %s"), 1);
    remove_folder();
}

SPEC_CASE(headers_in_folders_in_quotes)
{
    make_folder();
    put("in/value.h", "#define VALUE 6\n");
    EQUAL(answer("#include \"value.h\"\n" ANSWER("VALUE"), "-w -I \"%s/in\""), 6);
    EQUAL(answer("#include \"value.h\"\n" ANSWER("VALUE"), "-I\"%s/in\" -w"), 6);
    remove_folder();
}

CASE(headers_absolute)
{
    char source[512];
    make_folder();
    put("value.h", "#include \"in/more.h\"\n");
    put("in/more.h", "#define VALUE 8\n");
    snprintf(source, sizeof source, "#include \"%s/value.h\"\n" ANSWER("VALUE"), folder);
    EQUAL(answer(source, ""), 8);
    remove_folder();
}

CASE(headers_relative_to_the_working_directory)
{
    make_folder();
    put("in/value.h", "#define VALUE 9\n");
    if (chdir(folder))
        fail("the folder cannot be entered");
    EQUAL(answer("#include <value.h>\n" ANSWER("VALUE"), "-I in"), 9);
    EQUAL(answer("#include \"in/value.h\"\n" ANSWER("VALUE"), "-I."), 9);
    if (chdir("/"))
        fail("the folder cannot be left");
    remove_folder();
}

CASE(headers_named_by_macros)
{
    make_folder();
    put("one.h", "#define VALUE 1\n");
    put("two.h", "#define VALUE 2\n");
    put("in/one.h", "#define VALUE 3\n");
    put("which.h", "#ifdef SECOND\n#define FILE two.h\n#else\n#define FILE one.h\n#endif\n");
    const char *chosen = "#include \"which.h\"\n#define TEXT(x) #x\n#define STRING(x) TEXT(x)\n"
                         "#include STRING(FILE)\n" ANSWER("VALUE");
    EQUAL(answer(chosen, "-I %s"), 1);
    EQUAL(answer(chosen, "-I %s -DSECOND"), 2);
    const char *by_folder = "#define TEXT(x) #x\n#define STRING(x) TEXT(x)\n"
                            "#define NAMED(a, b) STRING(FOLDER/a ## b.h)\n"
                            "#include NAMED(o, ne)\n" ANSWER("VALUE");
    EQUAL(answer(by_folder, "-D FOLDER=%s/in"), 3);
    EQUAL(answer(by_folder, "-D FOLDER=%s"), 1);
    const char *again = "#define WHICH <one.h>\n#include WHICH\n#undef WHICH\n#undef VALUE\n"
                        "#define WHICH <two.h>\n#include WHICH\n" ANSWER("VALUE");
    EQUAL(answer(again, "-I %s"), 2);
    EQUAL(answer("#include NOTHING\n" ANSWER("1"), "-I %s"), -1);
    remove_folder();
}

CASE(headers_that_include_themselves)
{
    make_folder();
    put("list.h", "#ifndef LEVEL\n#define LEVEL 1\nconstant int a = 10;\n#include \"list.h\"\n"
                  "#elif LEVEL == 1\n#undef LEVEL\n#define LEVEL 2\nconstant int b = 20;\n"
                  "#include \"list.h\"\n#include \"list.h\"\n#else\n#define LAST 3\n#endif\n");
    EQUAL(answer("#include \"list.h\"\n" ANSWER("a + b + LAST"), "-I %s"), 33);
    put("typed.h", "T NAME(T x) { return x + 1; }\n#undef T\n#undef NAME\n");
    EQUAL(answer("#define T int\n#define NAME one\n#include \"typed.h\"\n"
                 "#define T long\n#define NAME two\n#include \"typed.h\"\n"
                 ANSWER("one(2) + (int)two(3)"), "-I %s"), 7);
    remove_folder();
}

CASE(headers_asked_for)
{
    make_folder();
    put("there.h", "#define VALUE 4\n");
    EQUAL(answer("#ifdef __has_include\n#if __has_include(<there.h>) && !__has_include(\"gone.h\")\n"
                 "#include <there.h>\n#endif\n#endif\n" ANSWER("VALUE"), "-I %s"), 4);
    remove_folder();
}

/* Editors of some systems begin a text with a byte order mark. Compilers skip this mark. */
CASE(headers_with_byte_order_marks)
{
    make_folder();
    put("value.h", "\xEF\xBB\xBF#include \"in/more.h\"\n#define VALUE (MORE + 1)\n");
    put("in/more.h", "\xEF\xBB\xBF#pragma once\n#define MORE 5\n");
    put("guarded.h", "\xEF\xBB\xBF#ifndef G\n#define G\nconstant int g = 3;\n#endif\n");
    EQUAL(answer("#include \"value.h\"\n" ANSWER("VALUE"), "-I %s"), 6);
    EQUAL(answer("\xEF\xBB\xBF#include \"value.h\"\n" ANSWER("VALUE"), "-I %s"), 6);
    EQUAL(answer("\xEF\xBB\xBF#if __has_include(\"value.h\")\n" ANSWER("7") "#endif\n", "-I %s"), 7);
    EQUAL(answer("\xEF\xBB\xBF" ANSWER("__LINE__"), ""), 1);
    EQUAL(answer("\xEF\xBB\xBF#include \"guarded.h\"\n#include \"guarded.h\"\n" ANSWER("g"), "-I %s"), 3);
    EQUAL(answer("\xEF\xBB\xBF#define P(a, b) a##b\n" ANSWER("P(4, 2)"), ""), 42);
    remove_folder();
}

/* No compiler builds a text in UTF-16, either. */
CASE(headers_with_marks_given_with_the_call)
{
    const char *name = "value.h";
    cl_program header = from("\xEF\xBB\xBF#define P(a, b) a##b\n#define VALUE P(4, 3)\n");
    cl_program part = from("\xEF\xBB\xBF#include \"value.h\"\n" ANSWER("VALUE"));
    EXPECT(clCompileProgram(part, 1, &device, "", 1, &header, &name, NULL, NULL), CL_SUCCESS);
    cl_program linked = clLinkProgram(context, 1, &device, "", 1, &part, NULL, NULL, &err);
    EXPECT(err, CL_SUCCESS);
    EQUAL(answer_of(linked), 43);
    OK(clReleaseProgram(header));
    OK(clReleaseProgram(part));
    OK(clReleaseProgram(linked));
    EQUAL(answer("\xFF\xFE#\n", ""), -1);
}

/* Texts that look like the beginning of a comment, but are none. */
CASE(headers_behind_texts_that_are_no_comments)
{
    make_folder();
    put("value.h", "#define VALUE 8\n");
    EQUAL(answer("#warning /*\n#include \"value.h\"\n" ANSWER("VALUE"), "-I %s"), 8);
    EQUAL(answer("#pragma mark /*\n#include \"value.h\"\n" ANSWER("VALUE"), "-I %s"), 8);
    EQUAL(answer("#if 0\ncan't /*\n#endif\n#include \"value.h\"\n" ANSWER("VALUE"), "-I %s"), 8);
    EQUAL(answer("#if 0\n#error /*\n#include \"gone.h\"\n*/\n#endif\n" ANSWER("9"), "-I %s"), 9);
    EQUAL(answer("/*\n#include \"gone.h\"\n*/\n#include \"value.h\" // \"\n" ANSWER("VALUE"), "-I %s"), 8);
    remove_folder();
}

CASE(headers_changed_are_read_again)
{
    make_folder();
    cl_program program = from("#include \"value.h\"\n" ANSWER("VALUE"));
    for (int value = 1; value <= 3; ++value) {
        char text[32];
        snprintf(text, sizeof text, "#define VALUE %d\n", value);
        put("value.h", text);
        EQUAL(answer("#include \"value.h\"\n" ANSWER("VALUE"), "-I %s"), value);
        EXPECT(build(program, "-I %s"), CL_SUCCESS);
    }
    OK(clReleaseProgram(program));
    remove_folder();
}

CASE(headers_show_their_own_names_and_lines)
{
    char expected[128], name[128] = "";
    const char *source = "#include \"in/named.h\"\n"
                         "kernel void answer(global int *x) { *x = line * 100 + __LINE__; }\n"
                         "kernel void tell(global char *x) { int i = 0;\n"
                         "do x[i] = name[i]; while (name[i++]); }\n";
    char options[128];
    make_folder();
    put("in/named.h", "#define FIRST\n#ifdef FIRST\n\nconstant int line = __LINE__;\n#endif\n"
                      "constant char name[] = __FILE__;\n");
    EQUAL(answer(source, "-I %s"), 402);
    EQUAL(answer("#if 0\n#include \"in/named.h\"\n#endif\n" ANSWER("__LINE__"), "-I %s"), 4);
    cl_program program = from(source);
    snprintf(options, sizeof options, "-I %s", folder);
    OK(clBuildProgram(program, 1, &device, options, NULL, NULL));
    cl_mem buffer = buffer_of(sizeof name);
    cl_kernel kernel = clCreateKernel(program, "tell", &err);
    OK(err);
    OK(clSetKernelArg(kernel, 0, sizeof buffer, &buffer));
    launch(queue, kernel, 1);
    OK(clEnqueueReadBuffer(queue, buffer, CL_TRUE, 0, sizeof name, name, 0, NULL, NULL));
    snprintf(expected, sizeof expected, "%s/in/named.h", folder);
    fact("__FILE__ is the header's path: %s", strcmp(name, expected) ? "no" : "yes");
    OK(clReleaseKernel(kernel));
    OK(clReleaseMemObject(buffer));
    OK(clReleaseProgram(program));
    remove_folder();
}

CASE(headers_with_mistakes_are_named_in_the_log)
{
    static char log[65536];
    char place[160];
    make_folder();
    put("good.h", "#define WHICH \"in/bad.h\"\n");
    put("in/bad.h", "\nint f(int x) { return x + nothing; }\n");
    cl_program program = from("#include \"good.h\"\n#include WHICH\n" ANSWER("f(1)"));
    EXPECT(build(program, "-I %s"), CL_BUILD_PROGRAM_FAILURE);
    OK(clGetProgramBuildInfo(program, device, CL_PROGRAM_BUILD_LOG, sizeof log, log, NULL));
    snprintf(place, sizeof place, "%s/in/bad.h:2:", folder);
    fact("the log names file and line: %s", strstr(log, place) ? "yes" : "no");
    OK(clReleaseProgram(program));
    remove_folder();
}

CASE(headers_by_other_options)
{
    make_folder();
    put("value.h", "#define VALUE 4\n");
    put("in/value.h", "#define VALUE 5\n");
    const char *const options[] = {"-include %s/value.h", "-isystem %s", "-iquote %s/in -I %s"};
    for (size_t i = 0; i < sizeof options / sizeof *options; ++i) {
        cl_program program = from("#ifndef VALUE\n#include \"value.h\"\n#endif\n" ANSWER("VALUE"));
        cl_int code = build(program, options[i]);
        fact("%s: %s", options[i], status_name(code));
        if (code == CL_SUCCESS)
            fact("%d", answer("#ifndef VALUE\n#include \"value.h\"\n#endif\n" ANSWER("VALUE"), options[i]));
        OK(clReleaseProgram(program));
    }
    remove_folder();
}

CASE(headers_beside_those_given_with_the_call)
{
    make_folder();
    put("given.h", "#define GIVEN 100\n");
    put("other.h", "#include \"given.h\"\n#define OTHER (GIVEN + 1)\n");
    const char *name = "given.h";
    char options[128];
    cl_program header = from("#define GIVEN 200\n");
    cl_program part = from("#include \"other.h\"\n" ANSWER("OTHER"));
    snprintf(options, sizeof options, "-I %s", folder);
    EXPECT(clCompileProgram(part, 1, &device, options, 1, &header, &name, NULL, NULL), CL_SUCCESS);
    OK(clReleaseProgram(header));
    OK(clReleaseProgram(part));
    remove_folder();
}

/* Paths and options are bytes. Here a folder, files and a macro are not UTF-8. */
CASE(headers_of_any_encoding)
{
    char path[256], options[256], told[256] = "";
    size_t length = 0;
    make_folder();
    snprintf(path, sizeof path, "%s/caf\xe9", folder);
    mkdir(path, 0700);
    put("caf\xe9/value.h", "#include \"\xe8.h\"\n#define VALUE (MORE + 1)\n");
    put("caf\xe9/\xe8.h", "#define MORE 40\n");
    const char *source = "#include <value.h>\nkernel void answer(global int *x) { *x = VALUE; }\n";
    cl_program program = from(source);
    snprintf(options, sizeof options, "-I%s/caf\xe9 -DUNUSED=\xe9", folder);
    EXPECT(clBuildProgram(program, 1, &device, options, NULL, NULL), CL_SUCCESS);
    EQUAL(answer_of(program), 41);
    OK(clGetProgramBuildInfo(program, device, CL_PROGRAM_BUILD_OPTIONS, sizeof told, told, &length));
    CHECK(length == strlen(options) + 1 && strcmp(told, options) == 0);
    OK(clReleaseProgram(program));
    snprintf(path, sizeof path,
             "#include \"%s/caf\xe9/value.h\"\nkernel void answer(global int *x) { *x = VALUE; }\n", folder);
    EQUAL(answer(path, ""), 41);
    remove_folder();
}

/* Header names that are given with the call may have any encoding too. */
CASE(headers_given_by_names_of_any_encoding)
{
    const char *name = "caf\xe9.h";
    cl_program header = from("#define VALUE 42\n");
    cl_program part = from("#include \"caf\xe9.h\"\nkernel void answer(global int *x) { *x = VALUE; }\n");
    EXPECT(clCompileProgram(part, 1, &device, "", 1, &header, &name, NULL, NULL), CL_SUCCESS);
    cl_program linked = clLinkProgram(context, 1, &device, "", 1, &part, NULL, NULL, &err);
    EXPECT(err, CL_SUCCESS);
    EQUAL(answer_of(linked), 42);
    OK(clReleaseProgram(header));
    OK(clReleaseProgram(part));
    OK(clReleaseProgram(linked));
}

/* A program that includes the same file many thousand times. */
CASE(headers_in_long_tables)
{
    enum { ROWS = 21000 };
    make_folder();
    put("row.h", "s += 1;\n");
    char *source = malloc(ROWS * 64 + 256), *end = source;
    end += sprintf(end, "kernel void answer(global int *x) { int s = 0;\n");
    for (int i = 0; i < ROWS; ++i)
        end += sprintf(end, "#include \"%s/row.h\"\n", folder);
    sprintf(end, "*x = s; }\n");
    EQUAL(answer(source, ""), ROWS);
    free(source);
    remove_folder();
}
