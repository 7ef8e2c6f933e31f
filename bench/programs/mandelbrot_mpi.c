/*
 * The Mandelbrot picture by MPI and OpenCL: the same kernel and the same rows per device as the
 * single program, but a process on every node, each with its own device, context, program and
 * buffer, and the picture put together by hand. Compare programs/mandelbrot.cl and
 * src/mandelbrot/program.rs.
 *
 *     mpicc -std=c99 -O2 mandelbrot_mpi.c -o mandelbrot_mpi -lOpenCL
 *     mpirun -n 4 mandelbrot_mpi WIDTH HEIGHT ITERATIONS LEFT TOP PIXEL KERNEL-FILE
 *
 * Rank 0 prints one line of JSON: seconds of each phase, and the picture's checksum.
 */
#define PROGRAM "mandelbrot_mpi"
#include "ranks.h"

struct view {
    cl_uint width, height, iterations;
    cl_float left, top, pixel;
};

static size_t rows_of(cl_uint height, int rank, int ranks)
{
    return height > (cl_uint)rank ? (height - (cl_uint)rank - 1) / (cl_uint)ranks + 1 : 0;
}

static cl_kernel make_kernel(cl_context context, cl_device_id device, const char *source)
{
    cl_int code;
    cl_program program = clCreateProgramWithSource(context, 1, &source, NULL, &code);
    check(code, "clCreateProgramWithSource");
    check(clBuildProgram(program, 1, &device, "", NULL, NULL), "clBuildProgram");
    cl_kernel kernel = clCreateKernel(program, "mandelbrot", &code);
    check(code, "clCreateKernel");
    clReleaseProgram(program);
    return kernel;
}

static void set_arguments(cl_kernel kernel, cl_mem steps, const struct view *view, cl_uint first,
                          cl_uint stride)
{
    cl_int code = clSetKernelArg(kernel, 0, sizeof steps, &steps);
    code |= clSetKernelArg(kernel, 1, sizeof view->width, &view->width);
    code |= clSetKernelArg(kernel, 2, sizeof first, &first);
    code |= clSetKernelArg(kernel, 3, sizeof stride, &stride);
    code |= clSetKernelArg(kernel, 4, sizeof view->iterations, &view->iterations);
    code |= clSetKernelArg(kernel, 5, sizeof view->left, &view->left);
    code |= clSetKernelArg(kernel, 6, sizeof view->top, &view->top);
    code |= clSetKernelArg(kernel, 7, sizeof view->pixel, &view->pixel);
    check(code, "clSetKernelArg");
}

/* Gathers everyone's rows at rank 0 and puts them into their places. */
static void gather(const uint32_t *mine, uint32_t *picture, const struct view *view, int rank,
                   int ranks)
{
    const size_t width = view->width;
    int *counts = allocate((size_t)ranks * sizeof *counts);
    int *places = allocate((size_t)ranks * sizeof *places);
    uint32_t *all = rank == 0 ? allocate(4 * width * view->height) : NULL;
    int place = 0;
    for (int r = 0; r < ranks; ++r) {
        counts[r] = (int)(width * rows_of(view->height, r, ranks));
        places[r] = place;
        place += counts[r];
    }
    MPI_Gatherv(mine, counts[rank], MPI_UINT32_T, all, counts, places, MPI_UINT32_T, 0,
                MPI_COMM_WORLD);
    for (int r = 0; rank == 0 && r < ranks; ++r)
        for (size_t row = 0; row < rows_of(view->height, r, ranks); ++row)
            memcpy(picture + ((size_t)r + row * (size_t)ranks) * width,
                   all + (size_t)places[r] + row * width, 4 * width);
    free(all);
    free(places);
    free(counts);
}

int main(int argc, char **argv)
{
    double begin = seconds();
    MPI_Init(&argc, &argv);
    int rank, ranks;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    if (argc != 8)
        fail("wrong number of arguments", argc);
    const struct view view = {
        (cl_uint)strtoul(argv[1], NULL, 10), (cl_uint)strtoul(argv[2], NULL, 10),
        (cl_uint)strtoul(argv[3], NULL, 10), strtof(argv[4], NULL),
        strtof(argv[5], NULL),               strtof(argv[6], NULL)};

    const size_t rows = rows_of(view.height, rank, ranks);
    const size_t size = 4 * (size_t)view.width * rows;
    cl_device_id device = find_device(rank);
    cl_int code;
    cl_context context = clCreateContext(NULL, 1, &device, NULL, NULL, &code);
    check(code, "clCreateContext");
    cl_command_queue queue = clCreateCommandQueue(context, device, 0, &code);
    check(code, "clCreateCommandQueue");
    char *source = read_text(argv[7]);
    cl_kernel kernel = make_kernel(context, device, source);
    cl_mem steps = clCreateBuffer(context, CL_MEM_READ_WRITE, size > 0 ? size : 4, NULL, &code);
    check(code, "clCreateBuffer");
    set_arguments(kernel, steps, &view, (cl_uint)rank, (cl_uint)ranks);
    /* Pages of its own memory are no cost of the platform's: a time of their own. */
    const double filling = seconds();
    uint32_t *mine = allocate(size);
    memset(mine, 1, size);
    uint32_t *picture = NULL;
    if (rank == 0) {
        picture = allocate(4 * (size_t)view.width * view.height);
        memset(picture, 1, 4 * (size_t)view.width * view.height);
    }
    const double pages = seconds() - filling;
    begin += pages;
    MPI_Barrier(MPI_COMM_WORLD);
    const double ready = seconds();

    const size_t global[2] = {view.width, rows};
    if (rows > 0)
        check(clEnqueueNDRangeKernel(queue, kernel, 2, NULL, global, NULL, 0, NULL, NULL),
              "clEnqueueNDRangeKernel");
    check(clFinish(queue), "clFinish");
    MPI_Barrier(MPI_COMM_WORLD);
    const double computed = seconds();

    if (rows > 0)
        check(clEnqueueReadBuffer(queue, steps, CL_TRUE, 0, size, mine, 0, NULL, NULL),
              "clEnqueueReadBuffer");
    gather(mine, picture, &view, rank, ranks);
    const double end = seconds();

    if (rank == 0) {
        uint64_t hash = UINT64_C(0xcbf29ce484222325);
        for (size_t at = 0; at < (size_t)view.width * view.height; ++at)
            hash = (hash ^ picture[at]) * UINT64_C(0x100000001b3);
        printf("{\"initialisation\":%.6f,\"computation\":%.6f,\"transfer\":%.6f,"
               "\"pages\":%.6f,\"checksum\":%" PRIu64 "}\n",
               ready - begin, computed - ready, end - computed, pages, hash);
    }
    free(picture);
    free(mine);
    free(source);
    clReleaseMemObject(steps);
    clReleaseKernel(kernel);
    clReleaseCommandQueue(queue);
    clReleaseContext(context);
    MPI_Finalize();
    return EXIT_SUCCESS;
}
