/* Images: formats, creation, transfers, maps, kernels, errors. */
#define CL_TARGET_OPENCL_VERSION 300
#include "../cltest.h"

static const cl_image_format RGBA8 = {CL_RGBA, CL_UNSIGNED_INT8};

enum { WIDTH = 24, ROWS = 10, SLICES = 5, ELEMENT = 4 };

static const cl_mem_object_type TYPES[] = {
    CL_MEM_OBJECT_IMAGE1D,       CL_MEM_OBJECT_IMAGE1D_ARRAY, CL_MEM_OBJECT_IMAGE2D,
    CL_MEM_OBJECT_IMAGE2D_ARRAY, CL_MEM_OBJECT_IMAGE3D,
};
enum { TYPE_COUNT = sizeof TYPES / sizeof TYPES[0] };

static cl_image_desc desc_of(cl_mem_object_type type)
{
    cl_image_desc desc;
    memset(&desc, 0, sizeof desc);
    desc.image_type = type;
    desc.image_width = WIDTH;
    if (type != CL_MEM_OBJECT_IMAGE1D && type != CL_MEM_OBJECT_IMAGE1D_ARRAY &&
        type != CL_MEM_OBJECT_IMAGE1D_BUFFER)
        desc.image_height = ROWS;
    if (type == CL_MEM_OBJECT_IMAGE3D)
        desc.image_depth = SLICES;
    if (type == CL_MEM_OBJECT_IMAGE1D_ARRAY)
        desc.image_array_size = ROWS;
    if (type == CL_MEM_OBJECT_IMAGE2D_ARRAY)
        desc.image_array_size = SLICES;
    return desc;
}

/* Elements, rows, slices. Layers of one-dimensional arrays are rows. */
static void extent_of(cl_mem_object_type type, size_t extent[3])
{
    extent[0] = WIDTH;
    extent[1] = type == CL_MEM_OBJECT_IMAGE1D ? 1 : ROWS;
    extent[2] = type == CL_MEM_OBJECT_IMAGE3D || type == CL_MEM_OBJECT_IMAGE2D_ARRAY ? SLICES : 1;
}

/* Returns a part that touches no edge in any direction that the type has. */
static void part_of(cl_mem_object_type type, size_t origin[3], size_t size[3])
{
    size_t extent[3];
    extent_of(type, extent);
    for (int i = 0; i < 3; ++i) {
        origin[i] = extent[i] > 2 ? 1 : 0;
        size[i] = extent[i] > 2 ? extent[i] - 2 : 1;
    }
}

static unsigned char element_byte(int seed, size_t at)
{
    return (unsigned char)(at * 31 + at / 251 + (size_t)seed * 97);
}

static size_t bytes_of(const size_t size[3])
{
    return size[0] * size[1] * size[2] * ELEMENT;
}

/* Creates an image with a pattern. */
static cl_mem image_of(cl_mem_object_type type, cl_mem_flags flags, int seed)
{
    static unsigned char bytes[WIDTH * ROWS * SLICES * ELEMENT];
    for (size_t at = 0; at < sizeof bytes; ++at)
        bytes[at] = element_byte(seed, at);
    const cl_image_desc desc = desc_of(type);
    cl_mem image = clCreateImage(context, flags | CL_MEM_COPY_HOST_PTR, &RGBA8, &desc, bytes, &err);
    OK(err);
    return image;
}

static void read_part(cl_mem image, const size_t origin[3], const size_t size[3], void *to)
{
    OK(clEnqueueReadImage(queue, image, CL_TRUE, origin, size, 0, 0, to, 0, NULL, NULL));
}

/* Whether the image holds one pattern inside the part, and another outside. */
static int holds(cl_mem image, cl_mem_object_type type, int seed, const unsigned char *inside)
{
    static unsigned char got[WIDTH * ROWS * SLICES * ELEMENT];
    const size_t zero[3] = {0, 0, 0};
    size_t extent[3], origin[3], size[3], packed = 0;
    extent_of(type, extent);
    part_of(type, origin, size);
    read_part(image, zero, extent, got);
    for (size_t z = 0; z < extent[2]; ++z)
        for (size_t y = 0; y < extent[1]; ++y)
            for (size_t x = 0; x < extent[0] * ELEMENT; ++x) {
                const size_t at = (z * extent[1] + y) * extent[0] * ELEMENT + x;
                const int in = inside != NULL && z >= origin[2] && z < origin[2] + size[2] &&
                               y >= origin[1] && y < origin[1] + size[1] &&
                               x >= origin[0] * ELEMENT && x < (origin[0] + size[0]) * ELEMENT;
                const unsigned char wanted = in ? inside[packed++] : element_byte(seed, at);
                if (got[at] != wanted) {
                    printf("byte %zu is %d, expected %d\n", at, got[at], wanted);
                    return 0;
                }
            }
    return 1;
}

/* Some formats are never offered over a network: elements of three bytes, and depth with stencil. The limits in
   icd/README.md list them. Depth with stencil only comes from graphics. */
static int is_left_out(const cl_image_format *format)
{
    const cl_channel_order order = format->image_channel_order;
    return order == CL_DEPTH_STENCIL || order == CL_sRGB || order == CL_sRGBx;
}

CASE(image_formats)
{
    needs_images();
    const cl_mem_flags flags[] = {CL_MEM_READ_WRITE, CL_MEM_READ_ONLY, CL_MEM_WRITE_ONLY};
    for (int f = 0; f < 3; ++f)
        for (cl_mem_object_type type = CL_MEM_OBJECT_IMAGE2D; type <= CL_MEM_OBJECT_IMAGE1D_BUFFER;
             ++type) {
            cl_uint count = 0;
            OK(clGetSupportedImageFormats(context, flags[f], type, 0, NULL, &count));
            cl_image_format *formats = calloc(count + 1, sizeof *formats);
            if (count > 0)
                OK(clGetSupportedImageFormats(context, flags[f], type, count, formats, NULL));
            cl_uint offered = 0;
            for (cl_uint i = 0; i < count; ++i)
                if (!is_left_out(&formats[i]))
                    formats[offered++] = formats[i];
            fact("flags %d, type %x: %u formats", (int)flags[f], (unsigned)type, offered);
            for (cl_uint i = 0; i < offered; ++i)
                fact("%x %x", formats[i].image_channel_order, formats[i].image_channel_data_type);
            free(formats);
        }
}

CASE(image_info)
{
    needs_images();
    for (int t = 0; t < TYPE_COUNT; ++t) {
        cl_mem image = image_of(TYPES[t], CL_MEM_READ_ONLY, 1);
        cl_image_format format = {0, 0};
        size_t numbers[6] = {77, 77, 77, 77, 77, 77};
        const cl_image_info names[6] = {CL_IMAGE_ELEMENT_SIZE, CL_IMAGE_WIDTH,      CL_IMAGE_HEIGHT,
                                        CL_IMAGE_DEPTH,        CL_IMAGE_ARRAY_SIZE, CL_IMAGE_ROW_PITCH};
        for (int i = 0; i < 6; ++i)
            OK(clGetImageInfo(image, names[i], sizeof(size_t), &numbers[i], NULL));
        OK(clGetImageInfo(image, CL_IMAGE_FORMAT, sizeof format, &format, NULL));
        cl_mem_object_type type = 0;
        cl_mem_flags flags = 0;
        cl_uint maps = 77, count = 0;
        cl_mem parent = image;
        OK(clGetMemObjectInfo(image, CL_MEM_TYPE, sizeof type, &type, NULL));
        OK(clGetMemObjectInfo(image, CL_MEM_FLAGS, sizeof flags, &flags, NULL));
        OK(clGetMemObjectInfo(image, CL_MEM_MAP_COUNT, sizeof maps, &maps, NULL));
        OK(clGetMemObjectInfo(image, CL_MEM_REFERENCE_COUNT, sizeof count, &count, NULL));
        OK(clGetMemObjectInfo(image, CL_MEM_ASSOCIATED_MEMOBJECT, sizeof parent, &parent, NULL));
        fact("type %x: element %zu, width %zu, height %zu, depth %zu, layers %zu", (unsigned)type,
             numbers[0], numbers[1], numbers[2], numbers[3], numbers[4]);
        CHECK(type == TYPES[t] && numbers[5] >= WIDTH * ELEMENT);
        CHECK(flags == (CL_MEM_READ_ONLY | CL_MEM_COPY_HOST_PTR));
        CHECK(format.image_channel_order == CL_RGBA &&
              format.image_channel_data_type == CL_UNSIGNED_INT8);
        CHECK(maps == 0 && count == 1 && parent == NULL);
        INFO_RULES(clGetImageInfo, image, CL_IMAGE_FORMAT);
        INFO_RULES(clGetImageInfo, image, CL_IMAGE_SLICE_PITCH);
        INFO_RULES(clGetImageInfo, image, CL_IMAGE_NUM_MIP_LEVELS);
        EXPECT(clGetImageInfo(image, UNKNOWN_INFO, 0, NULL, NULL), CL_INVALID_VALUE);
        OK(clReleaseMemObject(image));
    }
}

CASE(image_read_write)
{
    needs_images();
    for (int t = 0; t < TYPE_COUNT; ++t) {
        size_t origin[3], size[3];
        part_of(TYPES[t], origin, size);
        unsigned char *bytes = malloc(bytes_of(size));
        for (size_t at = 0; at < bytes_of(size); ++at)
            bytes[at] = element_byte(2, at);
        cl_mem image = image_of(TYPES[t], 0, 1);
        CHECK(holds(image, TYPES[t], 1, NULL));
        OK(clEnqueueWriteImage(queue, image, CL_FALSE, origin, size, 0, 0, bytes, 0, NULL, NULL));
        CHECK(holds(image, TYPES[t], 1, bytes));
        unsigned char *back = malloc(bytes_of(size));
        read_part(image, origin, size, back);
        CHECK(memcmp(back, bytes, bytes_of(size)) == 0);
        free(back);
        free(bytes);
        OK(clReleaseMemObject(image));
        fact("type %x holds what is written", (unsigned)TYPES[t]);
    }
}

CASE(image_pitches)
{
    needs_images();
    enum { PITCH = WIDTH * ELEMENT + 12 };
    const size_t zero[3] = {0, 0, 0}, size[3] = {WIDTH, ROWS, 1};
    static unsigned char memory[PITCH * ROWS];
    memset(memory, 0xee, sizeof memory);
    cl_mem image = image_of(CL_MEM_OBJECT_IMAGE2D, 0, 1);
    OK(clEnqueueReadImage(queue, image, CL_TRUE, zero, size, PITCH, 0, memory, 0, NULL, NULL));
    int right = 1;
    for (size_t y = 0; y < ROWS; ++y)
        for (size_t x = 0; x < PITCH; ++x) {
            const unsigned char wanted = x < WIDTH * ELEMENT
                                             ? element_byte(1, y * WIDTH * ELEMENT + x)
                                             : 0xee;
            right &= memory[y * PITCH + x] == wanted;
        }
    CHECK(right);
    OK(clReleaseMemObject(image));
    cl_image_desc desc = desc_of(CL_MEM_OBJECT_IMAGE2D);
    desc.image_row_pitch = PITCH;
    image = clCreateImage(context, CL_MEM_COPY_HOST_PTR, &RGBA8, &desc, memory, &err);
    OK(err);
    CHECK(holds(image, CL_MEM_OBJECT_IMAGE2D, 1, NULL));
    size_t pitch = 0;
    OK(clGetImageInfo(image, CL_IMAGE_ROW_PITCH, sizeof pitch, &pitch, NULL));
    CHECK(pitch >= WIDTH * ELEMENT);
    OK(clReleaseMemObject(image));
    fact("gaps between rows stay");
}

CASE(image_copies)
{
    needs_images();
    for (int t = 0; t < TYPE_COUNT; ++t) {
        size_t origin[3], size[3];
        part_of(TYPES[t], origin, size);
        const size_t length = bytes_of(size);
        cl_mem from = image_of(TYPES[t], 0, 1), to = image_of(TYPES[t], 0, 2);
        unsigned char *bytes = malloc(length);
        read_part(from, origin, size, bytes);
        OK(clEnqueueCopyImage(queue, from, to, origin, origin, size, 0, NULL, NULL));
        CHECK(holds(to, TYPES[t], 2, bytes));
        cl_mem buffer = buffer_of(length + 64);
        OK(clEnqueueCopyImageToBuffer(queue, from, buffer, origin, size, 64, 0, NULL, NULL));
        unsigned char *back = malloc(length);
        OK(clEnqueueReadBuffer(queue, buffer, CL_TRUE, 64, length, back, 0, NULL, NULL));
        CHECK(memcmp(back, bytes, length) == 0);
        for (size_t at = 0; at < length; ++at)
            back[at] = element_byte(3, at);
        OK(clEnqueueWriteBuffer(queue, buffer, CL_TRUE, 64, length, back, 0, NULL, NULL));
        OK(clEnqueueCopyBufferToImage(queue, buffer, from, 64, origin, size, 0, NULL, NULL));
        CHECK(holds(from, TYPES[t], 1, back));
        free(bytes);
        free(back);
        OK(clReleaseMemObject(buffer));
        OK(clReleaseMemObject(from));
        OK(clReleaseMemObject(to));
        fact("type %x is copied", (unsigned)TYPES[t]);
    }
}

CASE(image_fill)
{
    needs_images();
    const cl_uint colour[4] = {1, 2, 3, 250};
    for (int t = 0; t < TYPE_COUNT; ++t) {
        size_t origin[3], size[3];
        part_of(TYPES[t], origin, size);
        unsigned char *bytes = malloc(bytes_of(size));
        for (size_t at = 0; at < bytes_of(size); ++at)
            bytes[at] = (unsigned char)colour[at % 4];
        cl_mem image = image_of(TYPES[t], 0, 1);
        OK(clEnqueueFillImage(queue, image, colour, origin, size, 0, NULL, NULL));
        CHECK(holds(image, TYPES[t], 1, bytes));
        free(bytes);
        OK(clReleaseMemObject(image));
        fact("type %x is filled", (unsigned)TYPES[t]);
    }
}

CASE(image_map)
{
    needs_images();
    for (int t = 0; t < TYPE_COUNT; ++t) {
        size_t origin[3], size[3], row = 0, slice = 0;
        part_of(TYPES[t], origin, size);
        unsigned char *bytes = malloc(bytes_of(size));
        cl_mem image = image_of(TYPES[t], 0, 1);
        unsigned char *at = clEnqueueMapImage(queue, image, CL_TRUE, CL_MAP_READ | CL_MAP_WRITE,
                                              origin, size, &row, &slice, 0, NULL, NULL, &err);
        OK(err);
        const int layers = TYPES[t] == CL_MEM_OBJECT_IMAGE1D_ARRAY;
        CHECK(row >= WIDTH * ELEMENT);
        CHECK((slice != 0) == (layers || size[2] > 1));
        size_t packed = 0;
        for (size_t z = 0; z < size[2]; ++z)
            for (size_t y = 0; y < size[1]; ++y)
                for (size_t x = 0; x < size[0] * ELEMENT; ++x) {
                    unsigned char *byte = at + z * slice + y * (layers ? slice : row) + x;
                    *byte = bytes[packed] = (unsigned char)(*byte ^ 0x5a);
                    ++packed;
                }
        OK(clEnqueueUnmapMemObject(queue, image, at, 0, NULL, NULL));
        CHECK(holds(image, TYPES[t], 1, bytes));
        free(bytes);
        OK(clReleaseMemObject(image));
        fact("type %x is mapped", (unsigned)TYPES[t]);
    }
}

CASE(image_map_errors)
{
    needs_images();
    const size_t zero[3] = {0, 0, 0}, one[3] = {1, 1, 1}, wide[3] = {WIDTH + 1, 1, 1};
    size_t row, slice;
    cl_mem flat = image_of(CL_MEM_OBJECT_IMAGE2D, 0, 1), solid = image_of(CL_MEM_OBJECT_IMAGE3D, 0, 1);
    REFUSED(clEnqueueMapImage(queue, flat, CL_TRUE, CL_MAP_READ, zero, one, NULL, &slice, 0, NULL,
                              NULL, &err),
            CL_INVALID_VALUE);
    REFUSED(clEnqueueMapImage(queue, solid, CL_TRUE, CL_MAP_READ, zero, one, &row, NULL, 0, NULL,
                              NULL, &err),
            CL_INVALID_VALUE);
    REFUSED(clEnqueueMapImage(queue, flat, CL_TRUE, CL_MAP_READ, zero, wide, &row, NULL, 0, NULL,
                              NULL, &err),
            CL_INVALID_VALUE);
    OK(clReleaseMemObject(flat));
    OK(clReleaseMemObject(solid));
}

CASE(image_transfer_errors)
{
    needs_images();
    const size_t zero[3] = {0, 0, 0}, one[3] = {1, 1, 1}, wide[3] = {WIDTH + 1, 1, 1},
                 deep[3] = {1, 1, 2};
    char memory[WIDTH * ROWS * ELEMENT];
    cl_mem image = image_of(CL_MEM_OBJECT_IMAGE2D, 0, 1), buffer = buffer_of(64);
    EXPECT(clEnqueueReadImage(queue, buffer, CL_TRUE, zero, one, 0, 0, memory, 0, NULL, NULL),
           CL_INVALID_MEM_OBJECT);
    EXPECT(clEnqueueReadImage(queue, NULL, CL_TRUE, zero, one, 0, 0, memory, 0, NULL, NULL),
           CL_INVALID_MEM_OBJECT);
    EXPECT(clEnqueueReadImage(queue, image, CL_TRUE, zero, wide, 0, 0, memory, 0, NULL, NULL),
           CL_INVALID_VALUE);
    EXPECT(clEnqueueReadImage(queue, image, CL_TRUE, zero, deep, 0, 0, memory, 0, NULL, NULL),
           CL_INVALID_VALUE);
    EXPECT(clEnqueueReadImage(queue, image, CL_TRUE, NULL, one, 0, 0, memory, 0, NULL, NULL),
           CL_INVALID_VALUE);
    EXPECT(clEnqueueReadImage(queue, image, CL_TRUE, zero, one, 0, 0, NULL, 0, NULL, NULL),
           CL_INVALID_VALUE);
    EXPECT(clEnqueueWriteImage(queue, image, CL_TRUE, zero, wide, 0, 0, memory, 0, NULL, NULL),
           CL_INVALID_VALUE);
    EXPECT(clEnqueueCopyImage(queue, image, image, zero, zero, one, 0, NULL, NULL),
           CL_MEM_COPY_OVERLAP);
    EXPECT(clEnqueueCopyImageToBuffer(queue, image, buffer, zero, one, 61, 0, NULL, NULL),
           CL_INVALID_VALUE);
    EXPECT(clEnqueueCopyBufferToImage(queue, buffer, image, 61, zero, one, 0, NULL, NULL),
           CL_INVALID_VALUE);
    EXPECT(clEnqueueFillImage(queue, image, NULL, zero, one, 0, NULL, NULL), CL_INVALID_VALUE);
    OK(clReleaseMemObject(buffer));
    OK(clReleaseMemObject(image));
}

SPEC_CASE(image_create_errors)
{
    needs_images();
    static char memory[4096];
    const cl_image_format nonsense = {0x9999, CL_UNSIGNED_INT8}, wrong = {CL_RGB, CL_FLOAT};
    const cl_image_desc good = desc_of(CL_MEM_OBJECT_IMAGE2D);
    cl_image_desc bad = good;
    REFUSED(clCreateImage(context, 0, NULL, &good, NULL, &err), CL_INVALID_IMAGE_FORMAT_DESCRIPTOR);
    REFUSED(clCreateImage(context, 0, &nonsense, &good, NULL, &err),
            CL_INVALID_IMAGE_FORMAT_DESCRIPTOR, CL_IMAGE_FORMAT_NOT_SUPPORTED);
    REFUSED(clCreateImage(context, 0, &wrong, &good, NULL, &err),
            CL_INVALID_IMAGE_FORMAT_DESCRIPTOR, CL_IMAGE_FORMAT_NOT_SUPPORTED);
    REFUSED(clCreateImage(context, 0, &RGBA8, NULL, NULL, &err), CL_INVALID_IMAGE_DESCRIPTOR);
    REFUSED(clCreateImage(context, 0, &RGBA8, &good, memory, &err), CL_INVALID_HOST_PTR);
    REFUSED(clCreateImage(context, CL_MEM_COPY_HOST_PTR, &RGBA8, &good, NULL, &err),
            CL_INVALID_HOST_PTR);
    REFUSED(clCreateImage(context, CL_MEM_READ_ONLY | CL_MEM_WRITE_ONLY, &RGBA8, &good, NULL, &err),
            CL_INVALID_VALUE);
    bad.image_width = 0;
    REFUSED(clCreateImage(context, 0, &RGBA8, &bad, NULL, &err), CL_INVALID_IMAGE_DESCRIPTOR,
            CL_INVALID_IMAGE_SIZE);
    bad.image_width = (size_t)1 << 30;
    REFUSED(clCreateImage(context, 0, &RGBA8, &bad, NULL, &err), CL_INVALID_IMAGE_SIZE);
    bad = good;
    bad.image_row_pitch = WIDTH * ELEMENT - 4;
    REFUSED(clCreateImage(context, CL_MEM_COPY_HOST_PTR, &RGBA8, &bad, memory, &err),
            CL_INVALID_IMAGE_DESCRIPTOR);
    bad = desc_of(CL_MEM_OBJECT_IMAGE1D_BUFFER);
    REFUSED(clCreateImage(context, 0, &RGBA8, &bad, NULL, &err), CL_INVALID_IMAGE_DESCRIPTOR,
            CL_INVALID_MEM_OBJECT);
    cl_uint count;
    EXPECT(clGetSupportedImageFormats(context, 0, CL_MEM_OBJECT_BUFFER, 0, NULL, &count),
           CL_INVALID_VALUE);
}

CASE(image_lifetime)
{
    needs_images();
    cl_mem image = image_of(CL_MEM_OBJECT_IMAGE2D, 0, 1);
    cl_uint count = 0;
    OK(clRetainMemObject(image));
    OK(clGetMemObjectInfo(image, CL_MEM_REFERENCE_COUNT, sizeof count, &count, NULL));
    EQUAL(count, 2);
    OK(clReleaseMemObject(image));
    OK(clReleaseMemObject(image));
    cl_image_format format = RGBA8;
    image = clCreateImage2D(context, 0, &format, WIDTH, ROWS, 0, NULL, &err);
    OK(err);
    OK(clReleaseMemObject(image));
    image = clCreateImage3D(context, 0, &format, WIDTH, ROWS, SLICES, 0, 0, NULL, &err);
    OK(err);
    OK(clReleaseMemObject(image));
}

static const char *const IMAGE_SOURCE =
    "constant sampler_t exact =\n"
    "    CLK_NORMALIZED_COORDS_FALSE | CLK_ADDRESS_CLAMP_TO_EDGE | CLK_FILTER_NEAREST;\n"
    "kernel void invert(read_only image2d_t from, write_only image2d_t to)\n"
    "{\n"
    "    int2 at = (int2)(get_global_id(0), get_global_id(1));\n"
    "    write_imageui(to, at, 255u - read_imageui(from, exact, at));\n"
    "}\n"
    "kernel void sampled(read_only image2d_t from, sampler_t how, global uint4 *out, float x)\n"
    "{ *out = read_imageui(from, how, (float2)(x, 0.0f)); }\n";

CASE(image_kernels)
{
    needs_images();
    cl_program program = program_from(IMAGE_SOURCE, "");
    cl_kernel invert = clCreateKernel(program, "invert", &err);
    OK(err);
    cl_mem from = image_of(CL_MEM_OBJECT_IMAGE2D, CL_MEM_READ_ONLY, 1),
           to = image_of(CL_MEM_OBJECT_IMAGE2D, CL_MEM_WRITE_ONLY, 2);
    OK(clSetKernelArg(invert, 0, sizeof from, &from));
    OK(clSetKernelArg(invert, 1, sizeof to, &to));
    const size_t global[2] = {WIDTH, ROWS}, zero[3] = {0, 0, 0}, size[3] = {WIDTH, ROWS, 1};
    OK(clEnqueueNDRangeKernel(queue, invert, 2, NULL, global, NULL, 0, NULL, NULL));
    unsigned char got[WIDTH * ROWS * ELEMENT];
    read_part(to, zero, size, got);
    int right = 1;
    for (size_t at = 0; at < sizeof got; ++at)
        right &= got[at] == (unsigned char)(255 - element_byte(1, at));
    CHECK(right);
    cl_kernel sampled = clCreateKernel(program, "sampled", &err);
    OK(err);
    cl_mem out = buffer_of(16);
    const float x = WIDTH + 3.5f;
    OK(clSetKernelArg(sampled, 0, sizeof from, &from));
    OK(clSetKernelArg(sampled, 2, sizeof out, &out));
    OK(clSetKernelArg(sampled, 3, sizeof x, &x));
    const cl_addressing_mode modes[] = {CL_ADDRESS_CLAMP_TO_EDGE, CL_ADDRESS_CLAMP};
    for (int m = 0; m < 2; ++m) {
        cl_sampler sampler = clCreateSampler(context, CL_FALSE, modes[m], CL_FILTER_NEAREST, &err);
        OK(err);
        OK(clSetKernelArg(sampled, 1, sizeof sampler, &sampler));
        launch(queue, sampled, 1);
        cl_uint colour[4];
        OK(clEnqueueReadBuffer(queue, out, CL_TRUE, 0, 16, colour, 0, NULL, NULL));
        fact("outside: %u %u %u %u", colour[0], colour[1], colour[2], colour[3]);
        OK(clReleaseSampler(sampler));
    }
    OK(clReleaseMemObject(out));
    OK(clReleaseMemObject(from));
    OK(clReleaseMemObject(to));
    OK(clReleaseKernel(invert));
    OK(clReleaseKernel(sampled));
    OK(clReleaseProgram(program));
}

SPEC_CASE(image_argument_errors)
{
    needs_images();
    cl_program program = program_from(IMAGE_SOURCE, "");
    cl_kernel invert = clCreateKernel(program, "invert", &err);
    OK(err);
    cl_mem read = image_of(CL_MEM_OBJECT_IMAGE2D, CL_MEM_READ_ONLY, 1),
           written = image_of(CL_MEM_OBJECT_IMAGE2D, CL_MEM_WRITE_ONLY, 1), buffer = buffer_of(64);
    EXPECT(clSetKernelArg(invert, 0, sizeof read, &written), CL_INVALID_ARG_VALUE);
    EXPECT(clSetKernelArg(invert, 1, sizeof read, &read), CL_INVALID_ARG_VALUE);
    EXPECT(clSetKernelArg(invert, 0, sizeof read, &buffer), CL_INVALID_MEM_OBJECT,
           CL_INVALID_ARG_VALUE);
    EXPECT(clSetKernelArg(invert, 0, 4, &read), CL_INVALID_ARG_SIZE);
    EXPECT(clSetKernelArg(invert, 0, sizeof read, NULL), CL_INVALID_ARG_VALUE);
    OK(clReleaseMemObject(buffer));
    OK(clReleaseMemObject(read));
    OK(clReleaseMemObject(written));
    OK(clReleaseKernel(invert));
    OK(clReleaseProgram(program));
}
