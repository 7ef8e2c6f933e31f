/* An ordinary program: lists the platforms that the system's loader finds, one name a line. */
#define CL_TARGET_OPENCL_VERSION 120
#include <CL/cl.h>
#include <stdio.h>

int main(void)
{
    cl_platform_id platforms[16];
    cl_uint count = 0;
    cl_int code = clGetPlatformIDs(16, platforms, &count);
    if (code != CL_SUCCESS) {
        printf("error %d\n", code);
        return 0;
    }
    for (cl_uint i = 0; i < count && i < 16; i++) {
        char name[256] = "", suffix[64] = "";
        cl_uint devices = 0;
        if (clGetPlatformInfo(platforms[i], CL_PLATFORM_NAME, sizeof(name), name, NULL) != CL_SUCCESS)
            return 1;
        if (clGetPlatformInfo(platforms[i], 0x0920, sizeof(suffix), suffix, NULL) != CL_SUCCESS)
            return 1;
        code = clGetDeviceIDs(platforms[i], CL_DEVICE_TYPE_ALL, 0, NULL, &devices);
        printf("%s, suffix %s, devices %u, code %d\n", name, suffix, devices, code);
    }
    return 0;
}
