/* A program that closes every descriptor above the standard streams once it has a context, as some do that turn into
 * a daemon: what it then asks for ends, in whatever code. Its exit code says what went wrong; 77: there is no device. */
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
    /* A signal's end would be a hang's. */
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
