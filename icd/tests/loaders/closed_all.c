/* A program that closes every descriptor above the standard streams once it has a context, as some programs do that
 * become daemons. Its later calls must return, with any code. The exit code says what failed; 77: no device. */
#define CL_TARGET_OPENCL_VERSION 120
#include <CL/cl.h>
#include <stdlib.h>
#include <unistd.h>

#define SIZE (1u << 20)

int main(void)
{
    cl_platform_id platform;
    cl_device_id device;
    cl_int code;
    unsigned char *bytes = calloc(SIZE, 1);
    if (bytes == NULL || clGetPlatformIDs(1, &platform, NULL) != CL_SUCCESS)
        return 1;
    code = clGetDeviceIDs(platform, CL_DEVICE_TYPE_ALL, 1, &device, NULL);
    if (code == CL_DEVICE_NOT_FOUND)
        return 77;
    cl_context context = clCreateContext(NULL, 1, &device, NULL, NULL, &code);
    if (code != CL_SUCCESS)
        return 2;
    cl_command_queue queue = clCreateCommandQueue(context, device, 0, &code);
    if (code != CL_SUCCESS)
        return 3;
    cl_mem buffer = clCreateBuffer(context, CL_MEM_READ_WRITE, SIZE, NULL, &code);
    if (code != CL_SUCCESS)
        return 4;
    if (clEnqueueWriteBuffer(queue, buffer, CL_TRUE, 0, SIZE, bytes, 0, NULL, NULL) != CL_SUCCESS)
        return 5;
    for (int descriptor = 3; descriptor < 256; descriptor++)
        close(descriptor);
    /* An end by a signal counts as a hang. */
    alarm(30);
    code = clEnqueueReadBuffer(queue, buffer, CL_TRUE, 0, SIZE, bytes, 0, NULL, NULL);
    if (code == CL_SUCCESS)
        return 6;
    if (clFinish(queue) == CL_SUCCESS)
        return 7;
    clReleaseMemObject(buffer);
    clReleaseCommandQueue(queue);
    clReleaseContext(context);
    return 0;
}
