/*
 * Draws the Mandelbrot set on an OpenCL device and writes it as a PNG.
 *
 * This ordinary OpenCL 1.2 program in C99 links libOpenCL and nothing else. The program runs on any device
 * that the loader offers, wherever that device is. The picture depends only on the device's arithmetic and
 * the options. So two runs on one device give the same bytes.
 *
 *     cc -std=c99 -O2 mandelbrot.c -o mandelbrot -lOpenCL
 *     ./mandelbrot --width 1920 --height 1080 --output picture.png
 */
#define _POSIX_C_SOURCE 200809L
#define CL_TARGET_OPENCL_VERSION 120

#include <CL/cl.h>
#include <errno.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { MAX_PLATFORMS = 32, MAX_SIDE = 16384, MAX_ITERATIONS = 1000000 };

static const char *const KERNEL_SOURCE =
    "/* Colour of a point: black inside the set, else by smoothed escape time. */\n"
    "static uchar4 colour(float steps, float limit)\n"
    "{\n"
    "    if (steps >= limit)\n"
    "        return (uchar4)(0, 0, 0, 255);\n"
    "    const float t = 0.045f * steps;\n"
    "    const float3 phase = (float3)(0.0f, 0.6f, 1.2f);\n"
    "    const float3 rgb = 0.5f - 0.5f * cos(t + phase + 0.4f);\n"
    "    return (uchar4)(convert_uchar3_sat(255.0f * rgb), 255);\n"
    "}\n"
    "\n"
    "kernel void mandelbrot(global uchar4 *image, uint width, uint height,\n"
    "                       uint limit, float2 centre, float pixel)\n"
    "{\n"
    "    const uint x = get_global_id(0);\n"
    "    const uint y = get_global_id(1);\n"
    "    if (x >= width || y >= height)\n"
    "        return;\n"
    "    const float2 c = centre + pixel * (float2)((float)x - 0.5f * width,\n"
    "                                               0.5f * height - (float)y);\n"
    "    float2 z = (float2)(0.0f, 0.0f);\n"
    "    float norm = 0.0f;\n"
    "    uint n = 0;\n"
    "    while (n < limit && norm < 256.0f) {\n"
    "        z = (float2)(z.x * z.x - z.y * z.y, 2.0f * z.x * z.y) + c;\n"
    "        norm = z.x * z.x + z.y * z.y;\n"
    "        ++n;\n"
    "    }\n"
    "    const float steps = norm < 256.0f\n"
    "        ? (float)limit\n"
    "        : (float)n + 1.0f - log2(0.5f * log2(norm));\n"
    "    image[(size_t)y * width + x] = colour(steps, (float)limit);\n"
    "}\n";

struct options {
    cl_uint width;
    cl_uint height;
    cl_uint iterations;
    cl_uint device;
    const char *output;
};

struct times {
    double start; /* platform and device found, context, queue, kernel built */
    double compute;
    double read;
};

static void die(const char *message)
{
    fprintf(stderr, "mandelbrot: %s\n", message);
    exit(EXIT_FAILURE);
}

static void check(cl_int status, const char *call)
{
    if (status == CL_SUCCESS)
        return;
    fprintf(stderr, "mandelbrot: %s failed with code %d\n", call, (int)status);
    exit(EXIT_FAILURE);
}

static void *allocate(size_t size)
{
    void *memory = malloc(size);
    if (memory == NULL)
        die("out of memory");
    return memory;
}

static double seconds(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

/* ---- PNG: 8-bit RGB, its data in uncompressed deflate blocks ---- */

static uint32_t crc_table[256];

static void make_crc_table(void)
{
    for (uint32_t byte = 0; byte < 256; ++byte) {
        uint32_t crc = byte;
        for (int bit = 0; bit < 8; ++bit)
            crc = (crc & 1) ? 0xedb88320u ^ (crc >> 1) : crc >> 1;
        crc_table[byte] = crc;
    }
}

static uint32_t crc_update(uint32_t crc, const unsigned char *data, size_t size)
{
    for (size_t i = 0; i < size; ++i)
        crc = crc_table[(crc ^ data[i]) & 0xff] ^ (crc >> 8);
    return crc;
}

static void put_u32(unsigned char *out, uint32_t value)
{
    for (int i = 0; i < 4; ++i)
        out[i] = (unsigned char)(value >> (24 - 8 * i));
}

static void write_chunk(FILE *file, const char *type, const unsigned char *data, uint32_t size)
{
    unsigned char head[8], tail[4];
    put_u32(head, size);
    memcpy(head + 4, type, 4);
    const uint32_t crc = crc_update(crc_update(0xffffffffu, head + 4, 4), data, size);
    put_u32(tail, crc ^ 0xffffffffu);
    fwrite(head, 1, sizeof head, file);
    if (size > 0)
        fwrite(data, 1, size, file);
    fwrite(tail, 1, sizeof tail, file);
}

/* Writes the scanlines as a zlib stream of stored blocks, one IDAT chunk each. */
static void write_image_data(FILE *file, const unsigned char *lines, size_t size)
{
    enum { BLOCK = 65535, EXTRA = 2 + 5 + 4 };
    static unsigned char chunk[BLOCK + EXTRA];
    uint32_t a = 1, b = 0; /* Adler-32 */

    for (size_t done = 0; done < size;) {
        const size_t block = size - done < BLOCK ? size - done : BLOCK;
        const int first = done == 0;
        const int last = done + block == size;
        unsigned char *out = chunk;
        if (first) {
            *out++ = 0x78; /* deflate, 32 KiB window */
            *out++ = 0x01;
        }
        *out++ = (unsigned char)last;
        *out++ = (unsigned char)(block & 0xff);
        *out++ = (unsigned char)(block >> 8);
        *out++ = (unsigned char)(~block & 0xff);
        *out++ = (unsigned char)((~block >> 8) & 0xff);
        memcpy(out, lines + done, block);
        out += block;
        for (size_t i = 0; i < block; ++i) {
            a = (a + lines[done + i]) % 65521u;
            b = (b + a) % 65521u;
        }
        if (last) {
            put_u32(out, (b << 16) | a);
            out += 4;
        }
        write_chunk(file, "IDAT", chunk, (uint32_t)(out - chunk));
        done += block;
    }
}

static void write_png(const char *path, const unsigned char *rgba, cl_uint width, cl_uint height)
{
    static const unsigned char signature[8] = {0x89, 'P', 'N', 'G', '\r', '\n', 0x1a, '\n'};
    const size_t line = 1 + 3 * (size_t)width; /* a filter byte, then the pixels */
    unsigned char *lines = allocate(line * height);
    for (size_t y = 0; y < height; ++y) {
        unsigned char *out = lines + y * line;
        const unsigned char *in = rgba + 4 * y * width;
        *out++ = 0;
        for (size_t x = 0; x < width; ++x, in += 4, out += 3)
            memcpy(out, in, 3);
    }

    FILE *file = fopen(path, "wb");
    if (file == NULL) {
        fprintf(stderr, "mandelbrot: cannot write %s: %s\n", path, strerror(errno));
        exit(EXIT_FAILURE);
    }
    unsigned char header[13] = {0};
    put_u32(header, width);
    put_u32(header + 4, height);
    header[8] = 8; /* bits a channel */
    header[9] = 2; /* RGB */
    make_crc_table();
    fwrite(signature, 1, sizeof signature, file);
    write_chunk(file, "IHDR", header, sizeof header);
    write_image_data(file, lines, line * height);
    write_chunk(file, "IEND", NULL, 0);
    free(lines);
    if (ferror(file) | fclose(file)) {
        fprintf(stderr, "mandelbrot: cannot write %s: %s\n", path, strerror(errno));
        exit(EXIT_FAILURE);
    }
}

/* ---- OpenCL ---- */

/* Returns the index-th device of all platforms, counted in the loader's order. */
static cl_device_id find_device(cl_uint index, cl_platform_id *platform)
{
    cl_platform_id platforms[MAX_PLATFORMS];
    cl_uint platform_count = 0;
    const cl_int status = clGetPlatformIDs(MAX_PLATFORMS, platforms, &platform_count);
    if (status != CL_SUCCESS || platform_count == 0)
        die("no OpenCL platform found");
    if (platform_count > MAX_PLATFORMS)
        platform_count = MAX_PLATFORMS;

    cl_uint seen = 0;
    for (cl_uint p = 0; p < platform_count; ++p) {
        cl_uint count = 0;
        if (clGetDeviceIDs(platforms[p], CL_DEVICE_TYPE_ALL, 0, NULL, &count) != CL_SUCCESS)
            continue; /* a platform without devices */
        if (index - seen < count) {
            cl_device_id *devices = allocate(count * sizeof *devices);
            check(clGetDeviceIDs(platforms[p], CL_DEVICE_TYPE_ALL, count, devices, NULL),
                  "clGetDeviceIDs");
            const cl_device_id found = devices[index - seen];
            free(devices);
            *platform = platforms[p];
            return found;
        }
        seen += count;
    }
    fprintf(stderr, "mandelbrot: no device %u: there are %u\n", index, seen);
    exit(EXIT_FAILURE);
}

static void print_device(cl_device_id device, cl_platform_id platform)
{
    char device_name[256] = "?", platform_name[256] = "?";
    clGetDeviceInfo(device, CL_DEVICE_NAME, sizeof device_name, device_name, NULL);
    clGetPlatformInfo(platform, CL_PLATFORM_NAME, sizeof platform_name, platform_name, NULL);
    printf("device:  %s (%s)\n", device_name, platform_name);
}

static cl_program build(cl_context context, cl_device_id device)
{
    cl_int status;
    const char *source = KERNEL_SOURCE;
    cl_program program = clCreateProgramWithSource(context, 1, &source, NULL, &status);
    check(status, "clCreateProgramWithSource");
    status = clBuildProgram(program, 1, &device, "", NULL, NULL);
    if (status != CL_SUCCESS) {
        size_t size = 0;
        clGetProgramBuildInfo(program, device, CL_PROGRAM_BUILD_LOG, 0, NULL, &size);
        char *log = allocate(size + 1);
        log[0] = '\0';
        clGetProgramBuildInfo(program, device, CL_PROGRAM_BUILD_LOG, size, log, NULL);
        fprintf(stderr, "%s\n", log);
        free(log);
        check(status, "clBuildProgram");
    }
    return program;
}

static void set_arguments(cl_kernel kernel, cl_mem image, const struct options *options)
{
    /* The view is at least 3.2 wide and 2.5 high, which shows the whole set in its centre. */
    const cl_float2 centre = {{-0.65f, 0.0f}};
    const float by_width = 3.2f / (float)options->width;
    const float by_height = 2.5f / (float)options->height;
    const cl_float pixel = by_width > by_height ? by_width : by_height;

    cl_int status = clSetKernelArg(kernel, 0, sizeof image, &image);
    status |= clSetKernelArg(kernel, 1, sizeof options->width, &options->width);
    status |= clSetKernelArg(kernel, 2, sizeof options->height, &options->height);
    status |= clSetKernelArg(kernel, 3, sizeof options->iterations, &options->iterations);
    status |= clSetKernelArg(kernel, 4, sizeof centre, &centre);
    status |= clSetKernelArg(kernel, 5, sizeof pixel, &pixel);
    check(status, "clSetKernelArg");
}

/* Fills rgba, width x height x 4 bytes, on the chosen device. */
static struct times draw(const struct options *options, unsigned char *rgba)
{
    const size_t size = 4 * (size_t)options->width * options->height;
    const double begin = seconds();

    cl_int status;
    cl_platform_id platform;
    cl_device_id device = find_device(options->device, &platform);
    print_device(device, platform);
    const cl_context_properties properties[] = {
        CL_CONTEXT_PLATFORM, (cl_context_properties)platform, 0};
    cl_context context = clCreateContext(properties, 1, &device, NULL, NULL, &status);
    check(status, "clCreateContext");
    cl_command_queue queue = clCreateCommandQueue(context, device, 0, &status);
    check(status, "clCreateCommandQueue");
    cl_program program = build(context, device);
    cl_kernel kernel = clCreateKernel(program, "mandelbrot", &status);
    check(status, "clCreateKernel");
    cl_mem image = clCreateBuffer(context, CL_MEM_WRITE_ONLY, size, NULL, &status);
    check(status, "clCreateBuffer");
    set_arguments(kernel, image, options);
    const double ready = seconds();

    const size_t global[2] = {options->width, options->height};
    check(clEnqueueNDRangeKernel(queue, kernel, 2, NULL, global, NULL, 0, NULL, NULL),
          "clEnqueueNDRangeKernel");
    check(clFinish(queue), "clFinish");
    const double computed = seconds();

    check(clEnqueueReadBuffer(queue, image, CL_TRUE, 0, size, rgba, 0, NULL, NULL),
          "clEnqueueReadBuffer");
    const double end = seconds();

    clReleaseMemObject(image);
    clReleaseKernel(kernel);
    clReleaseProgram(program);
    clReleaseCommandQueue(queue);
    clReleaseContext(context);
    return (struct times){ready - begin, computed - ready, end - computed};
}

/* ---- command line ---- */

static const char USAGE[] =
    "usage: mandelbrot [--width N] [--height N] [--iterations N] [--device N] [--output FILE]\n"
    "  --width, --height   size of the picture in pixels, at most 16384 (1024 x 768)\n"
    "  --iterations        steps after which a point counts as inside (500)\n"
    "  --device            which device, counted over all platforms (0)\n"
    "  --output            PNG file to write (mandelbrot.png)\n";

static cl_uint parse_number(const char *option, const char *text, cl_uint least, cl_uint most)
{
    char *end;
    errno = 0;
    const unsigned long value = strtoul(text, &end, 10);
    if (text[0] < '0' || text[0] > '9' || *end != '\0' || errno != 0 || value < least ||
        value > most) {
        fprintf(stderr, "mandelbrot: %s takes a number from %u to %u, not \"%s\"\n", option,
                (unsigned)least, (unsigned)most, text);
        exit(EXIT_FAILURE);
    }
    return (cl_uint)value;
}

static struct options parse_options(int argc, char **argv)
{
    struct options options = {1024, 768, 500, 0, "mandelbrot.png"};
    for (int i = 1; i < argc; i += 2) {
        const char *option = argv[i];
        if (strcmp(option, "--help") == 0 || strcmp(option, "-h") == 0) {
            fputs(USAGE, stdout);
            exit(EXIT_SUCCESS);
        }
        const char *value = argv[i + 1];
        if (value == NULL)
            die("every option takes a value; see --help");
        if (strcmp(option, "--width") == 0)
            options.width = parse_number(option, value, 1, MAX_SIDE);
        else if (strcmp(option, "--height") == 0)
            options.height = parse_number(option, value, 1, MAX_SIDE);
        else if (strcmp(option, "--iterations") == 0)
            options.iterations = parse_number(option, value, 1, MAX_ITERATIONS);
        else if (strcmp(option, "--device") == 0)
            options.device = parse_number(option, value, 0, 1023);
        else if (strcmp(option, "--output") == 0)
            options.output = value;
        else {
            fprintf(stderr, "mandelbrot: unknown option %s\n%s", option, USAGE);
            exit(EXIT_FAILURE);
        }
    }
    return options;
}

int main(int argc, char **argv)
{
    const struct options options = parse_options(argc, argv);
    unsigned char *rgba = allocate(4 * (size_t)options.width * options.height);
    const struct times times = draw(&options, rgba);
    write_png(options.output, rgba, options.width, options.height);
    free(rgba);

    printf("picture: %s (%u x %u, %u iterations)\n", options.output, options.width,
           options.height, options.iterations);
    printf("start:   %8.2f ms\n", 1e3 * times.start);
    printf("compute: %8.2f ms\n", 1e3 * times.compute);
    printf("read:    %8.2f ms\n", 1e3 * times.read);
    return EXIT_SUCCESS;
}
