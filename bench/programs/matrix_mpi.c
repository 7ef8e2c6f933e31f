/*
 * A chain of matrix products by MPI and OpenCL: A = A B, again and again. Rank 0 scatters the rows of A, each rank
 * multiplies its rows on its own device with the kernel of the farm, and rank 0 gathers the product. Checkpoints are the
 * application's own. Compare programs/matrix.cl and src/matrix/master.rs.
 *
 *     mpicc -std=c99 -O2 matrix_mpi.c -o matrix_mpi -lOpenCL
 *     mpirun -n 4 matrix_mpi SIZE PRODUCTS SEED INTERVAL STATE-FILE KERNEL-FILE
 *
 * INTERVAL are the seconds between checkpoints; with `inf`, only the result is written. Rank 0 prints the lines that
 * src/matrix/progress.rs describes.
 */
#define PROGRAM "matrix_mpi"
#include "ranks.h"
#include <unistd.h>

enum { FIELD = 61 };

struct device {
    cl_context context;
    cl_command_queue queue;
    cl_kernel kernel;
    cl_mem a, b, c;
};

/* SplitMix64, as src/random.rs. */
static uint64_t next_random(uint64_t *state)
{
    uint64_t z = *state += UINT64_C(0x9e3779b97f4a7c15);
    z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
    return z ^ (z >> 31);
}

static void fill(float *matrix, size_t count, uint64_t seed)
{
    for (size_t at = 0; at < count; ++at)
        matrix[at] = (float)(next_random(&seed) % FIELD);
}

/* As src/matrix/field.rs. */
static uint64_t checksum(const float *matrix, size_t count)
{
    uint64_t hash = UINT64_C(0xcbf29ce484222325);
    for (size_t at = 0; at < count; ++at) {
        uint32_t word;
        memcpy(&word, matrix + at, sizeof word);
        hash = (hash ^ word) * UINT64_C(0x100000001b3);
    }
    return hash;
}

/* Replaces the checkpoint durably; the form is that of src/matrix/state.rs. */
static void save(const char *path, uint64_t products, uint64_t n, const float *matrix)
{
    const double begin = seconds();
    const size_t count = (size_t)n * n;
    const uint64_t head[2] = {products, n}, sum = checksum(matrix, count);
    char part[4096];
    if (snprintf(part, sizeof part, "%s.part", path) >= (int)sizeof part)
        fail(path, 0);
    FILE *file = fopen(part, "wb");
    if (file == NULL || fwrite(head, sizeof head, 1, file) != 1 ||
        fwrite(matrix, sizeof *matrix, count, file) != count ||
        fwrite(&sum, sizeof sum, 1, file) != 1 || fflush(file) != 0 ||
        fsync(fileno(file)) != 0 || fclose(file) != 0 || rename(part, path) != 0)
        fail(part, 0);
    printf("{\"checkpoint\":{\"seconds\":%.6f}}\n", seconds() - begin);
    fflush(stdout);
}

/* Reads the checkpoint; the number of its products, or 0 and the first matrix if there is none. */
static uint64_t load(const char *path, uint64_t n, float *matrix, uint64_t seed)
{
    const size_t count = (size_t)n * n;
    uint64_t head[2], sum;
    FILE *file = fopen(path, "rb");
    if (file == NULL) {
        fill(matrix, count, seed);
        return 0;
    }
    if (fread(head, sizeof head, 1, file) != 1 || head[1] != n ||
        fread(matrix, sizeof *matrix, count, file) != count ||
        fread(&sum, sizeof sum, 1, file) != 1 || sum != checksum(matrix, count))
        fail("the checkpoint is damaged", 0);
    fclose(file);
    return head[0];
}

static cl_mem make_buffer(cl_context context, size_t size)
{
    cl_int code;
    cl_mem buffer = clCreateBuffer(context, CL_MEM_READ_WRITE, size > 0 ? size : 4, NULL, &code);
    check(code, "clCreateBuffer");
    return buffer;
}

/* Everything that one rank needs to multiply `rows` rows by `factor`. */
static struct device open_device(int rank, const char *source, const float *factor, cl_uint n,
                                 size_t rows)
{
    struct device self;
    cl_int code;
    cl_device_id id = find_device(rank);
    self.context = clCreateContext(NULL, 1, &id, NULL, NULL, &code);
    check(code, "clCreateContext");
    self.queue = clCreateCommandQueue(self.context, id, 0, &code);
    check(code, "clCreateCommandQueue");
    cl_program program = clCreateProgramWithSource(self.context, 1, &source, NULL, &code);
    check(code, "clCreateProgramWithSource");
    check(clBuildProgram(program, 1, &id, "", NULL, NULL), "clBuildProgram");
    self.kernel = clCreateKernel(program, "multiply", &code);
    check(code, "clCreateKernel");
    clReleaseProgram(program);
    const size_t all = 4 * (size_t)n * n;
    self.a = make_buffer(self.context, 4 * rows * n);
    self.b = make_buffer(self.context, all);
    self.c = make_buffer(self.context, 4 * rows * n);
    check(clEnqueueWriteBuffer(self.queue, self.b, CL_TRUE, 0, all, factor, 0, NULL, NULL),
          "clEnqueueWriteBuffer");
    code = clSetKernelArg(self.kernel, 0, sizeof self.a, &self.a);
    code |= clSetKernelArg(self.kernel, 1, sizeof self.b, &self.b);
    code |= clSetKernelArg(self.kernel, 2, sizeof self.c, &self.c);
    code |= clSetKernelArg(self.kernel, 3, sizeof n, &n);
    check(code, "clSetKernelArg");
    return self;
}

static void close_device(struct device *self)
{
    clReleaseMemObject(self->a);
    clReleaseMemObject(self->b);
    clReleaseMemObject(self->c);
    clReleaseKernel(self->kernel);
    clReleaseCommandQueue(self->queue);
    clReleaseContext(self->context);
}

/* Replaces rows by their product. */
static void multiply(struct device *self, float *mine, size_t rows, size_t n)
{
    const size_t size = 4 * rows * n, global[2] = {n, rows};
    if (rows == 0)
        return;
    check(clEnqueueWriteBuffer(self->queue, self->a, CL_FALSE, 0, size, mine, 0, NULL, NULL),
          "clEnqueueWriteBuffer");
    check(clEnqueueNDRangeKernel(self->queue, self->kernel, 2, NULL, global, NULL, 0, NULL, NULL),
          "clEnqueueNDRangeKernel");
    check(clEnqueueReadBuffer(self->queue, self->c, CL_TRUE, 0, size, mine, 0, NULL, NULL),
          "clEnqueueReadBuffer");
}

int main(int argc, char **argv)
{
    MPI_Init(&argc, &argv);
    int rank, ranks;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    if (argc != 7)
        fail("wrong number of arguments", argc);
    const uint64_t n = strtoull(argv[1], NULL, 10), products = strtoull(argv[2], NULL, 10);
    const uint64_t seed = strtoull(argv[3], NULL, 10);
    const double interval = strtod(argv[4], NULL);
    const char *state = argv[5];

    /* Consecutive rows for each rank, as equal as possible. */
    int *counts = allocate((size_t)ranks * sizeof *counts);
    int *places = allocate((size_t)ranks * sizeof *places);
    for (int r = 0; r < ranks; ++r) {
        const uint64_t first = n * (uint64_t)r / (uint64_t)ranks;
        const uint64_t last = n * ((uint64_t)r + 1) / (uint64_t)ranks;
        places[r] = (int)(first * n);
        counts[r] = (int)((last - first) * n);
    }
    const size_t count = (size_t)n * n, rows = (size_t)counts[rank] / n;
    float *factor = allocate(4 * count);
    float *matrix = rank == 0 ? allocate(4 * count) : NULL;
    float *mine = allocate(4 * rows * n);
    uint64_t done = 0;
    if (rank == 0) {
        fill(factor, count, seed + 1);
        done = load(state, n, matrix, seed);
    }
    MPI_Bcast(&done, 1, MPI_UINT64_T, 0, MPI_COMM_WORLD);
    MPI_Bcast(factor, (int)count, MPI_FLOAT, 0, MPI_COMM_WORLD);
    char *source = read_text(argv[6]);
    struct device device = open_device(rank, source, factor, (cl_uint)n, rows);
    /* Some drivers compile a kernel only when it is first launched. */
    memset(mine, 0, 4 * rows * n);
    multiply(&device, mine, rows, n);
    MPI_Barrier(MPI_COMM_WORLD);

    const double begin = seconds();
    double saved = begin;
    if (rank == 0) {
        printf("{\"ready\":{\"round\":%" PRIu64 "}}\n", done);
        fflush(stdout);
    }
    while (done < products) {
        MPI_Scatterv(matrix, counts, places, MPI_FLOAT, mine, counts[rank], MPI_FLOAT, 0,
                     MPI_COMM_WORLD);
        multiply(&device, mine, rows, n);
        MPI_Gatherv(mine, counts[rank], MPI_FLOAT, matrix, counts, places, MPI_FLOAT, 0,
                    MPI_COMM_WORLD);
        ++done;
        if (rank == 0 && done < products && seconds() - saved >= interval) {
            save(state, done, n, matrix);
            saved = seconds();
        }
    }
    if (rank == 0) {
        const double computed = seconds() - begin;
        save(state, products, n, matrix);
        printf("{\"done\":{\"seconds\":%.6f}}\n", computed);
        fflush(stdout);
    }
    close_device(&device);
    free(source);
    free(mine);
    free(matrix);
    free(factor);
    free(places);
    free(counts);
    MPI_Finalize();
    return EXIT_SUCCESS;
}
