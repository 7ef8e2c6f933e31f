/*
 * Conjugate gradients for the Laplacian of a square grid. The host steers every step by what it reads.
 *
 *     gradients [--side N] [--steps N]
 *
 * In each step the device multiplies and adds vectors, and the host sums the products. The sums are exact functions
 * of the bytes read, so two runs on one device print the same digits. One wrong or missing byte changes all later
 * lines.
 */
#define _POSIX_C_SOURCE 200809L
#define CL_TARGET_OPENCL_VERSION 120

#include <CL/cl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *const SOURCE =
    "kernel void apply(global const float *p, global float *q, int side)\n"
    "{\n"
    "    const int x = get_global_id(0), y = get_global_id(1), i = y * side + x;\n"
    "    float sum = 4.0f * p[i];\n"
    "    if (x > 0) sum -= p[i - 1];\n"
    "    if (x < side - 1) sum -= p[i + 1];\n"
    "    if (y > 0) sum -= p[i - side];\n"
    "    if (y < side - 1) sum -= p[i + side];\n"
    "    q[i] = sum;\n"
    "}\n"
    "kernel void add(global float *target, global const float *other, float factor)\n"
    "{ const size_t i = get_global_id(0); target[i] = target[i] + factor * other[i]; }\n"
    "kernel void turn(global float *p, global const float *r, float factor)\n"
    "{ const size_t i = get_global_id(0); p[i] = r[i] + factor * p[i]; }\n";

#define OK(call)                                                                           \
    do {                                                                                   \
        const cl_int ok_status = (call);                                                   \
        if (ok_status != CL_SUCCESS) {                                                     \
            fprintf(stderr, "line %d: %s -> %d\n", __LINE__, #call, (int)ok_status);       \
            exit(EXIT_FAILURE);                                                            \
        }                                                                                  \
    } while (0)

static cl_context context;
static cl_command_queue queue;
static size_t count;

static cl_mem vector(const float *values)
{
    cl_int status;
    const cl_mem_flags flags = CL_MEM_READ_WRITE | CL_MEM_COPY_HOST_PTR;
    cl_mem made = clCreateBuffer(context, flags, count * sizeof *values, (void *)values, &status);
    OK(status);
    return made;
}

static cl_kernel kernel_of(cl_program program, const char *name)
{
    cl_int status;
    cl_kernel made = clCreateKernel(program, name, &status);
    OK(status);
    return made;
}

static void add(cl_kernel kernel, cl_mem target, cl_mem other, float factor)
{
    OK(clSetKernelArg(kernel, 0, sizeof target, &target));
    OK(clSetKernelArg(kernel, 1, sizeof other, &other));
    OK(clSetKernelArg(kernel, 2, sizeof factor, &factor));
    OK(clEnqueueNDRangeKernel(queue, kernel, 1, NULL, &count, NULL, 0, NULL, NULL));
}

static double product(cl_mem a, cl_mem b, float *left, float *right)
{
    OK(clEnqueueReadBuffer(queue, a, CL_FALSE, 0, count * sizeof *left, left, 0, NULL, NULL));
    OK(clEnqueueReadBuffer(queue, b, CL_TRUE, 0, count * sizeof *right, right, 0, NULL, NULL));
    double sum = 0;
    for (size_t i = 0; i < count; ++i)
        sum += (double)left[i] * right[i];
    return sum;
}

int main(int argc, char **argv)
{
    int side = 256, steps = 200;
    for (int i = 1; i + 1 < argc; i += 2) {
        if (strcmp(argv[i], "--side") == 0)
            side = atoi(argv[i + 1]);
        else if (strcmp(argv[i], "--steps") == 0)
            steps = atoi(argv[i + 1]);
    }
    count = (size_t)side * (size_t)side;
    float *left = malloc(count * sizeof *left), *right = malloc(count * sizeof *right);
    float *start = calloc(count, sizeof *start);
    if (left == NULL || right == NULL || start == NULL)
        return EXIT_FAILURE;

    cl_int status;
    cl_platform_id platform;
    cl_device_id device;
    OK(clGetPlatformIDs(1, &platform, NULL));
    OK(clGetDeviceIDs(platform, CL_DEVICE_TYPE_ALL, 1, &device, NULL));
    context = clCreateContext(NULL, 1, &device, NULL, NULL, &status);
    OK(status);
    queue = clCreateCommandQueue(context, device, 0, &status);
    OK(status);
    cl_program program =
        clCreateProgramWithSource(context, 1, (const char **)&SOURCE, NULL, &status);
    OK(status);
    OK(clBuildProgram(program, 1, &device, "-cl-opt-disable", NULL, NULL));
    cl_kernel apply = kernel_of(program, "apply"), plus = kernel_of(program, "add");
    cl_kernel turn = kernel_of(program, "turn");

    cl_mem x = vector(start);
    for (size_t i = 0; i < count; ++i)
        start[i] = (float)((i * 2654435761u >> 8) % 1000) / 1000.0f;
    cl_mem r = vector(start), p = vector(start), q = vector(start);

    double old = product(r, r, left, right);
    for (int step = 0; step < steps && old > 1e-12; ++step) {
        const size_t grid[2] = {(size_t)side, (size_t)side};
        OK(clSetKernelArg(apply, 0, sizeof p, &p));
        OK(clSetKernelArg(apply, 1, sizeof q, &q));
        OK(clSetKernelArg(apply, 2, sizeof side, &side));
        OK(clEnqueueNDRangeKernel(queue, apply, 2, NULL, grid, NULL, 0, NULL, NULL));
        const float alpha = (float)(old / product(p, q, left, right));
        add(plus, x, p, alpha);
        add(plus, r, q, -alpha);
        const double now = product(r, r, left, right);
        add(turn, p, r, (float)(now / old));
        old = now;
        printf("step %d: %a\n", step, now);
    }
    printf("solution %a\n", product(x, x, left, right));

    clReleaseMemObject(x), clReleaseMemObject(r), clReleaseMemObject(p), clReleaseMemObject(q);
    clReleaseKernel(apply), clReleaseKernel(plus), clReleaseKernel(turn);
    clReleaseProgram(program);
    clReleaseCommandQueue(queue);
    clReleaseContext(context);
    free(left), free(right), free(start);
    return EXIT_SUCCESS;
}
