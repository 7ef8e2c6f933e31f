/* A program without some of its standard streams, which its argument names. It still prints and moves bytes. With `f`
 * in front, a thread opens and closes files meanwhile, which have the free numbers for a moment. The exit code says
 * what failed; 77: there is no device. */
#define _GNU_SOURCE
#define CL_TARGET_OPENCL_VERSION 120
#include <CL/cl.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define SIZE (8u << 20)

/* Whether the closed streams are still closed. */
static int still_closed(const char *streams)
{
    for (; *streams != 0; streams++)
        if (fcntl(*streams - '0', F_GETFD) != -1 || errno != EBADF)
            return 0;
    return 1;
}

static int moves(cl_context context, cl_command_queue queue)
{
    unsigned char *sent = malloc(SIZE), *got = calloc(SIZE, 1);
    cl_int code;
    cl_mem buffer = clCreateBuffer(context, CL_MEM_READ_WRITE, SIZE, NULL, &code);
    if (sent == NULL || got == NULL || code != CL_SUCCESS)
        return 0;
    for (unsigned i = 0; i < SIZE; i++)
        sent[i] = (unsigned char)(i * 7 + (i >> 12));
    if (clEnqueueWriteBuffer(queue, buffer, CL_FALSE, 0, SIZE, sent, 0, NULL, NULL) != CL_SUCCESS)
        return 0;
    if (clEnqueueReadBuffer(queue, buffer, CL_TRUE, 0, SIZE, got, 0, NULL, NULL) != CL_SUCCESS)
        return 0;
    return memcmp(sent, got, SIZE) == 0;
}

static atomic_int ends;

static void *opens(void *nothing)
{
    while (!ends) {
        int file = memfd_create("passing", MFD_CLOEXEC);
        usleep(10);
        if (file != -1)
            close(file);
        usleep(10);
    }
    return nothing;
}

static void prints(void)
{
    char read_in;
    /* A closed output is no failure. */
    for (int i = 0; i < 100; i++) {
        if (printf("what nobody hears\n") < 0 || fflush(stdout) != 0)
            clearerr(stdout);
        if (fprintf(stderr, "nor this\n") < 0)
            clearerr(stderr);
    }
    if (read(0, &read_in, 1) > 0)
        _exit(9);
}

int main(int count, char **arguments)
{
    cl_platform_id platform;
    cl_device_id device;
    cl_int code;
    const char *streams = count > 1 ? arguments[1] : "";
    pthread_t opener;
    int has_opener = *streams == 'f';
    streams += has_opener;
    for (const char *stream = streams; *stream != 0; stream++)
        close(*stream - '0');
    if (has_opener && pthread_create(&opener, NULL, opens, NULL) != 0)
        return 1;
    if (clGetPlatformIDs(1, &platform, NULL) != CL_SUCCESS)
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
    prints();
    if (!moves(context, queue))
        return 4;
    prints();
    if (!moves(context, queue))
        return 5;
    ends = 1;
    if (has_opener)
        pthread_join(opener, NULL);
    return still_closed(streams) ? 0 : 6;
}
