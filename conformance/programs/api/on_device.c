/*
 * Pipes and queues on the device: the duties of a device that has them. The file absent.c
 * judges devices without them.
 */
#define CL_TARGET_OPENCL_VERSION 300
#include "../cltest.h"

enum { COUNT = 64, SIZE = COUNT * sizeof(cl_int) };

static const char *const PIPES =
    "kernel void put(write_only pipe int to, global const int *from)\n"
    "{\n"
    "    int packet = from[get_global_id(0)];\n"
    "    write_pipe(to, &packet);\n"
    "}\n"
    "kernel void take(read_only pipe int from, global int *to)\n"
    "{\n"
    "    int packet;\n"
    "    if (read_pipe(from, &packet) == 0) to[packet] = packet + 1;\n"
    "}\n";

static const char *const ENQUEUES =
    "kernel void parent(queue_t queue, global int *numbers)\n"
    "{\n"
    "    enqueue_kernel(queue, CLK_ENQUEUE_FLAGS_WAIT_KERNEL, ndrange_1D(64),\n"
    "                   ^{ numbers[get_global_id(0)] = 3 * (int)get_global_id(0); });\n"
    "}\n"
    "kernel void by_default(global int *numbers)\n"
    "{\n"
    "    enqueue_kernel(get_default_queue(), CLK_ENQUEUE_FLAGS_WAIT_KERNEL, ndrange_1D(64),\n"
    "                   ^{ numbers[get_global_id(0)] += 1; });\n"
    "}\n";

static cl_ulong number_of(cl_device_info name)
{
    cl_ulong value = 0;
    return clGetDeviceInfo(device, name, sizeof value, &value, NULL) == CL_SUCCESS ? value : 0;
}

/* Builds a program as OpenCL C 2.0 for a device of version 2.x, otherwise as OpenCL C 3.0. */
static cl_program modern(const char *source)
{
    char version[256] = "";
    OK(clGetDeviceInfo(device, CL_DEVICE_VERSION, sizeof version, version, NULL));
    return program_from(source, version[7] == '2' ? "-cl-std=CL2.0" : "-cl-std=CL3.0");
}

static cl_kernel kernel_of(cl_program program, const char *name)
{
    cl_kernel kernel = clCreateKernel(program, name, &err);
    OK(err);
    return kernel;
}

SPEC_CASE(packets_go_through_a_pipe)
{
    if (number_of(CL_DEVICE_MAX_PIPE_ARGS) == 0)
        skip("the device has no pipes");
    cl_program program = modern(PIPES);
    cl_int numbers[COUNT];
    for (int i = 0; i < COUNT; ++i)
        numbers[i] = i;
    cl_mem source = clCreateBuffer(context, CL_MEM_COPY_HOST_PTR, SIZE, numbers, &err);
    OK(err);
    cl_mem target = buffer_of(SIZE);
    REFUSED(clCreatePipe(context, 0, 0, COUNT, NULL, &err), CL_INVALID_PIPE_SIZE);
    REFUSED(clCreatePipe(context, 0, 4, 0, NULL, &err), CL_INVALID_PIPE_SIZE);
    REFUSED(clCreatePipe(context, CL_MEM_COPY_HOST_PTR, 4, COUNT, NULL, &err), CL_INVALID_VALUE);
    cl_mem pipe = clCreatePipe(context, 0, 4, COUNT, NULL, &err);
    OK(err);
    cl_uint told[2] = {0, 0};
    cl_mem_object_type type = 0;
    OK(clGetPipeInfo(pipe, CL_PIPE_PACKET_SIZE, sizeof told[0], &told[0], NULL));
    OK(clGetPipeInfo(pipe, CL_PIPE_MAX_PACKETS, sizeof told[1], &told[1], NULL));
    OK(clGetMemObjectInfo(pipe, CL_MEM_TYPE, sizeof type, &type, NULL));
    EQUAL(told[0], 4);
    EQUAL(told[1], COUNT);
    EQUAL(type, CL_MEM_OBJECT_PIPE);
    EXPECT(clGetPipeInfo(pipe, UNKNOWN_INFO, 0, NULL, NULL), CL_INVALID_VALUE);
    cl_kernel put = kernel_of(program, "put"), take = kernel_of(program, "take");
    EXPECT(clSetKernelArg(put, 0, sizeof source, &source), CL_INVALID_MEM_OBJECT);
    OK(clSetKernelArg(put, 0, sizeof pipe, &pipe));
    OK(clSetKernelArg(put, 1, sizeof source, &source));
    OK(clSetKernelArg(take, 0, sizeof pipe, &pipe));
    OK(clSetKernelArg(take, 1, sizeof target, &target));
    launch(queue, put, COUNT);
    launch(queue, take, COUNT);
    CHECK(holds_counting(target, COUNT, 1, 1));
    OK(clReleaseKernel(put));
    OK(clReleaseKernel(take));
    OK(clReleaseMemObject(pipe));
    OK(clReleaseMemObject(source));
    OK(clReleaseMemObject(target));
    OK(clReleaseProgram(program));
}

SPEC_CASE(kernels_enqueue_kernels)
{
    if (number_of(CL_DEVICE_QUEUE_ON_DEVICE_PROPERTIES) == 0)
        skip("the device has no queues of its own");
    const cl_queue_properties list[] = {
        CL_QUEUE_PROPERTIES,
        CL_QUEUE_ON_DEVICE | CL_QUEUE_ON_DEVICE_DEFAULT | CL_QUEUE_OUT_OF_ORDER_EXEC_MODE_ENABLE, 0};
    cl_command_queue own = clCreateCommandQueueWithProperties(context, device, list, &err), told = NULL;
    OK(err);
    OK(clGetCommandQueueInfo(queue, CL_QUEUE_DEVICE_DEFAULT, sizeof told, &told, NULL));
    CHECK(told == own);
    EXPECT(clFinish(own), CL_INVALID_COMMAND_QUEUE);
    cl_program program = modern(ENQUEUES);
    cl_kernel parent = kernel_of(program, "parent"), by_default = kernel_of(program, "by_default");
    cl_mem numbers = buffer_of(SIZE);
    EXPECT(clSetKernelArg(parent, 0, sizeof queue, &queue), CL_INVALID_DEVICE_QUEUE);
    OK(clSetKernelArg(parent, 0, sizeof own, &own));
    OK(clSetKernelArg(parent, 1, sizeof numbers, &numbers));
    OK(clSetKernelArg(by_default, 0, sizeof numbers, &numbers));
    launch(queue, parent, 1);
    launch(queue, by_default, 1);
    CHECK(holds_counting(numbers, COUNT, 1, 3));
    OK(clReleaseKernel(parent));
    OK(clReleaseKernel(by_default));
    OK(clReleaseMemObject(numbers));
    OK(clReleaseProgram(program));
    OK(clReleaseCommandQueue(own));
}
