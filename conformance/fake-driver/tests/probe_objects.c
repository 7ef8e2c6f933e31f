// Probes of programs, arguments, error codes and lifetimes.
#include "probe.h"

static void text_is(cl_program program, cl_program_build_info what, const char *want) {
    char text[512];
    OK(clGetProgramBuildInfo(program, device, what, sizeof text, text, NULL));
    if (!strstr(text, want)) printf("log is %s\n", text);
    TRUE(strstr(text, want));
}
static cl_program with_source(const char *source) {
    cl_program program = clCreateProgramWithSource(context, 1, &source, NULL, &code);
    OK(code);
    return program;
}
static volatile int built;
static void CL_CALLBACK note_build(cl_program program, void *data) {
    cl_build_status status;
    OK(clGetProgramBuildInfo(program, device, CL_PROGRAM_BUILD_STATUS, sizeof status, &status, NULL));
    TRUE(data == &built && status == CL_BUILD_SUCCESS);
    built = 1;
}

void programs(void) {
    cl_program bad = with_source("#error not today\nkernel void k() {}");
    EXPECT(CL_BUILD_PROGRAM_FAILURE, clBuildProgram(bad, 0, NULL, "-DX", NULL, NULL));
    text_is(bad, CL_PROGRAM_BUILD_LOG, "not today");
    text_is(bad, CL_PROGRAM_BUILD_OPTIONS, "-DX");
    clCreateKernel(bad, "k", &code);
    EXPECT(CL_INVALID_PROGRAM_EXECUTABLE, code);
    cl_program good = with_source(KERNELS);
    EXPECT(CL_INVALID_BUILD_OPTIONS, clBuildProgram(good, 0, NULL, "--nonsense", NULL, NULL));
    OK(clBuildProgram(good, 1, &device, "-cl-kernel-arg-info", note_build, (void *)&built));
    for (double start = now(); !built && now() - start < 10;) usleep(100);
    TRUE(built);
    size_t number, size;
    OK(clGetProgramInfo(good, CL_PROGRAM_NUM_KERNELS, sizeof number, &number, NULL));
    TRUE(number == 6);
    // Export and reload binaries.
    OK(clGetProgramInfo(good, CL_PROGRAM_BINARY_SIZES, sizeof size, &size, NULL));
    unsigned char *binary = malloc(size);
    OK(clGetProgramInfo(good, CL_PROGRAM_BINARIES, sizeof binary, &binary, NULL));
    cl_int status;
    cl_program loaded = clCreateProgramWithBinary(context, 1, &device, &size,
                                                  (const unsigned char **)&binary, &status, &code);
    OK(code);
    OK(status);
    OK(clBuildProgram(loaded, 0, NULL, NULL, NULL, NULL));
    cl_kernel kernel = clCreateKernel(loaded, "fake_copy", &code);
    OK(code);
    EXPECT(CL_INVALID_OPERATION, clBuildProgram(loaded, 0, NULL, NULL, NULL, NULL));
    OK(clReleaseKernel(kernel));
    binary[0] ^= 1;
    clCreateProgramWithBinary(context, 1, &device, &size, (const unsigned char **)&binary, &status, &code);
    EXPECT(CL_INVALID_BINARY, code);
    EXPECT(CL_INVALID_BINARY, status);
    // Compile separately with a header and a library.
    cl_program header = with_source("kernel void from_header() {}\n");
    cl_program one = with_source("#include \"h.h\"\n"), two = with_source("kernel void two(int a) {}");
    const char *name = "h.h";
    EXPECT(CL_COMPILE_PROGRAM_FAILURE, clCompileProgram(one, 0, NULL, NULL, 0, NULL, NULL, NULL, NULL));
    OK(clCompileProgram(one, 0, NULL, NULL, 1, &header, &name, NULL, NULL));
    OK(clCompileProgram(two, 0, NULL, NULL, 0, NULL, NULL, NULL, NULL));
    cl_program both[2] = {one, two};
    cl_program linked = clLinkProgram(context, 0, NULL, "", 2, both, NULL, NULL, &code);
    OK(code);
    char names[64];
    OK(clGetProgramInfo(linked, CL_PROGRAM_KERNEL_NAMES, sizeof names, names, NULL));
    TRUE(!strcmp(names, "from_header;two"));
    both[1] = one;
    cl_program failed = clLinkProgram(context, 0, NULL, "", 2, both, NULL, NULL, &code);
    EXPECT(CL_LINK_PROGRAM_FAILURE, code);
    TRUE(failed);
    text_is(failed, CL_PROGRAM_BUILD_LOG, "twice");
    cl_program built_in = clCreateProgramWithBuiltInKernels(context, 1, &device, "fake_copy", &code);
    OK(code);
    clCreateKernel(built_in, "fake_copy", &code);
    OK(code);
    clCreateProgramWithBuiltInKernels(context, 1, &device, "nothing", &code);
    EXPECT(CL_INVALID_VALUE, code);
}

void arguments(void) {
    cl_command_queue queue = new_queue(0);
    const char *source = "kernel __attribute__((reqd_work_group_size(4, 1, 1)))\n"
                         "void k(global const float *in, local int *tmp, float3 v, uchar c) {}";
    cl_program program = with_source(source);
    OK(clBuildProgram(program, 0, NULL, "-cl-kernel-arg-info", NULL, NULL));
    cl_kernel k = clCreateKernel(program, "k", &code);
    OK(code);
    char text[64];
    cl_kernel_arg_type_qualifier qualifier;
    OK(clGetKernelArgInfo(k, 0, CL_KERNEL_ARG_TYPE_NAME, sizeof text, text, NULL));
    TRUE(!strcmp(text, "float*"));
    OK(clGetKernelArgInfo(k, 0, CL_KERNEL_ARG_TYPE_QUALIFIER, sizeof qualifier, &qualifier, NULL));
    TRUE(qualifier == CL_KERNEL_ARG_TYPE_CONST);
    OK(clGetKernelInfo(k, CL_KERNEL_ATTRIBUTES, sizeof text, text, NULL));
    TRUE(!strcmp(text, "reqd_work_group_size(4,1,1)"));
    cl_kernel quiet = new_kernel(source, "k");
    EXPECT(CL_KERNEL_ARG_INFO_NOT_AVAILABLE,
           clGetKernelArgInfo(quiet, 0, CL_KERNEL_ARG_NAME, sizeof text, text, NULL));
    cl_mem buffer = new_buffer(64, NULL);
    float v[4] = {0};
    cl_uchar c = 1;
    size_t eight = 8, four = 4, two = 2;
    EXPECT(CL_INVALID_KERNEL_ARGS, clEnqueueNDRangeKernel(queue, k, 1, NULL, &eight, NULL, 0, NULL, NULL));
    EXPECT(CL_INVALID_ARG_INDEX, clSetKernelArg(k, 4, 1, &c));
    EXPECT(CL_INVALID_ARG_SIZE, clSetKernelArg(k, 0, 4, &buffer));
    EXPECT(CL_INVALID_MEM_OBJECT, clSetKernelArg(k, 0, sizeof queue, &queue));
    EXPECT(CL_INVALID_ARG_VALUE, clSetKernelArg(k, 1, 4, v));
    EXPECT(CL_INVALID_ARG_SIZE, clSetKernelArg(k, 1, 0, NULL));
    EXPECT(CL_INVALID_ARG_SIZE, clSetKernelArg(k, 2, 12, v));
    EXPECT(CL_INVALID_ARG_VALUE, clSetKernelArg(k, 3, 1, NULL));
    OK(clSetKernelArg(k, 0, sizeof buffer, NULL));
    OK(clSetKernelArg(k, 0, sizeof buffer, &buffer));
    OK(clSetKernelArg(k, 1, 256, NULL));
    OK(clSetKernelArg(k, 2, 16, v));
    OK(clSetKernelArg(k, 3, 1, &c));
    cl_ulong local;
    OK(clGetKernelWorkGroupInfo(k, device, CL_KERNEL_LOCAL_MEM_SIZE, sizeof local, &local, NULL));
    TRUE(local == 256);
    OK(clEnqueueNDRangeKernel(queue, k, 1, NULL, &eight, &four, 0, NULL, NULL));
    EXPECT(CL_INVALID_WORK_GROUP_SIZE, clEnqueueNDRangeKernel(queue, k, 1, NULL, &eight, &two, 0, NULL, NULL));
    EXPECT(CL_INVALID_WORK_DIMENSION, clEnqueueNDRangeKernel(queue, k, 4, NULL, &eight, &four, 0, NULL, NULL));
    // A launch copies its arguments at the enqueue and keeps the buffer alive. The kernel
    // does not keep the buffer.
    OK(clReleaseMemObject(buffer));
    EXPECT(CL_INVALID_KERNEL_ARGS, clEnqueueNDRangeKernel(queue, k, 1, NULL, &eight, &four, 0, NULL, NULL));
    OK(clFinish(queue));
}

void errors(void) {
    cl_command_queue queue = new_queue(0);
    cl_mem buffer = new_buffer(1024, NULL);
    cl_uint count;
    char bytes[64];
    cl_event event = (cl_event)0x5555, user = clCreateUserEvent(context, &code);
    EXPECT(CL_INVALID_CONTEXT, clRetainContext((cl_context)queue));
    EXPECT(CL_INVALID_COMMAND_QUEUE, clFinish((cl_command_queue)buffer));
    EXPECT(CL_INVALID_MEM_OBJECT, clRetainMemObject((cl_mem)context));
    EXPECT(CL_INVALID_DEVICE_TYPE, clGetDeviceIDs(platform, 0, 0, NULL, &count));
    EXPECT(CL_DEVICE_NOT_FOUND, clGetDeviceIDs(platform, CL_DEVICE_TYPE_CUSTOM, 0, NULL, &count));
    EXPECT(CL_INVALID_VALUE, clGetDeviceInfo(device, 0x1, 0, NULL, NULL));
    EXPECT(CL_INVALID_VALUE, clGetDeviceInfo(device, CL_DEVICE_NAME, 1, bytes, NULL));
    clCreateContext((cl_context_properties[]){CL_CONTEXT_PLATFORM, (cl_context_properties)platform,
                                              CL_CONTEXT_PLATFORM, (cl_context_properties)platform, 0},
                    1, &device, NULL, NULL, &code);
    EXPECT(CL_INVALID_PROPERTY, code);
    clCreateContext(NULL, 1, &device, NULL, bytes, &code);
    EXPECT(CL_INVALID_VALUE, code);
    clCreateBuffer(context, 0, 0, NULL, &code);
    EXPECT(CL_INVALID_BUFFER_SIZE, code);
    clCreateBuffer(context, CL_MEM_COPY_HOST_PTR, 4, NULL, &code);
    EXPECT(CL_INVALID_HOST_PTR, code);
    clCreateBuffer(context, CL_MEM_READ_ONLY | CL_MEM_WRITE_ONLY, 4, NULL, &code);
    EXPECT(CL_INVALID_VALUE, code);
    clCreateSubBuffer(buffer, 0, CL_BUFFER_CREATE_TYPE_REGION, &(cl_buffer_region){1, 4}, &code);
    EXPECT(CL_MISALIGNED_SUB_BUFFER_OFFSET, code);
    EXPECT(CL_INVALID_VALUE, clEnqueueReadBuffer(queue, buffer, 1, 1020, 8, bytes, 0, NULL, NULL));
    EXPECT(CL_INVALID_VALUE, clEnqueueReadBuffer(queue, buffer, 1, 0, 8, NULL, 0, NULL, NULL));
    EXPECT(CL_INVALID_VALUE, clEnqueueReadBuffer(queue, buffer, 1, SIZE_MAX, 8, bytes, 0, NULL, NULL));
    EXPECT(CL_INVALID_VALUE, clEnqueueFillBuffer(queue, buffer, bytes, 3, 0, 9, 0, NULL, NULL));
    EXPECT(CL_INVALID_EVENT_WAIT_LIST, clEnqueueMarkerWithWaitList(queue, 1, NULL, &event));
    EXPECT(CL_INVALID_EVENT_WAIT_LIST, clEnqueueMarkerWithWaitList(queue, 0, &user, &event));
    EXPECT(CL_INVALID_EVENT_WAIT_LIST, clEnqueueMarkerWithWaitList(queue, 1, (cl_event *)&queue, &event));
    TRUE(event == (cl_event)0x5555);
    EXPECT(CL_INVALID_VALUE, clWaitForEvents(0, NULL));
    cl_context second = clCreateContext(NULL, 1, &device, NULL, NULL, &code);
    cl_event stranger = clCreateUserEvent(second, &code);
    EXPECT(CL_INVALID_CONTEXT, clEnqueueMarkerWithWaitList(queue, 1, &stranger, NULL));
    EXPECT(CL_INVALID_OPERATION, clEnqueueNativeKernel(queue, NULL, NULL, 0, 0, NULL, NULL, 0, NULL, NULL));
    TRUE(!clSVMAlloc(context, 0, 16, 0));
    clCreatePipe(context, 0, 4, 4, NULL, &code);
    EXPECT(CL_INVALID_OPERATION, code);
    cl_queue_properties odd[] = {CL_QUEUE_PROPERTIES, 1 << 20, 0};
    clCreateCommandQueueWithProperties(context, device, odd, &code);
    EXPECT(CL_INVALID_VALUE, code);
}

static int destroyed[3], destructions;
static void CL_CALLBACK note_destruction(cl_mem mem, void *which) {
    (void)mem;
    destroyed[(intptr_t)which] = ++destructions;
}

void lifetimes(void) {
    cl_command_queue queue = new_queue(0);
    cl_event gate = clCreateUserEvent(context, &code);
    cl_kernel add = new_kernel(KERNELS, "fake_add_u32");
    cl_uint value = 3, result = 0, count;
    size_t one = 1;
    cl_mem buffer = new_buffer(4, &value);
    for (intptr_t i = 0; i < 3; i++) OK(clSetMemObjectDestructorCallback(buffer, note_destruction, (void *)i));
    OK(clSetKernelArg(add, 0, sizeof buffer, &buffer));
    OK(clSetKernelArg(add, 1, sizeof value, &value));
    OK(clEnqueueNDRangeKernel(queue, add, 1, NULL, &one, NULL, 1, &gate, NULL));
    OK(clEnqueueReadBuffer(queue, buffer, CL_FALSE, 0, 4, &result, 0, NULL, NULL));
    // Release everything that the commands need while they wait.
    OK(clReleaseMemObject(buffer));
    OK(clReleaseKernel(add));
    OK(clRetainContext(context));
    OK(clReleaseContext(context));
    EXPECT(CL_INVALID_MEM_OBJECT, clRetainMemObject(buffer));
    EXPECT(CL_INVALID_MEM_OBJECT, clReleaseMemObject(buffer));
    EXPECT(CL_INVALID_KERNEL, clReleaseKernel(add));
    TRUE(destructions == 0);
    OK(clSetUserEventStatus(gate, CL_COMPLETE));
    OK(clReleaseEvent(gate));
    OK(clFinish(queue));
    TRUE(result == 6);
    for (double start = now(); destructions < 3 && now() - start < 10;) usleep(100);
    TRUE(destroyed[2] == 1 && destroyed[1] == 2 && destroyed[0] == 3);
    OK(clRetainCommandQueue(queue));
    OK(clGetCommandQueueInfo(queue, CL_QUEUE_REFERENCE_COUNT, sizeof count, &count, NULL));
    TRUE(count == 2);
    OK(clReleaseCommandQueue(queue));
    OK(clReleaseCommandQueue(queue));
    EXPECT(CL_INVALID_COMMAND_QUEUE, clFinish(queue));
    // Create and release many objects; memory must not grow.
    for (int i = 0; i < 100000; i++) OK(clReleaseMemObject(new_buffer(4096, NULL)));
}
