// Small programs against -lOpenCL, one per case, which the tests run on the fake driver. Each prints what
// its test checks, and exits with 1 if a check fails.
#include "probe.h"

cl_platform_id platform;
cl_device_id device;
cl_context context;
cl_int code;

const char *KERNELS = "kernel void fake_fill_u32(global uint *target, uint value) {}\n"
                      "kernel void fake_add_u32(global uint *target, uint value) {}\n"
                      "kernel void fake_iota_u32(global uint *target, uint first) {}\n"
                      "kernel void fake_copy(global uchar *target, global const uchar *source) {}\n"
                      "kernel void plain() {}\n"
                      "kernel void other() {}\n";

cl_command_queue new_queue(cl_command_queue_properties properties) {
    cl_command_queue queue = clCreateCommandQueue(context, device, properties, &code);
    OK(code);
    return queue;
}

cl_mem new_buffer(size_t size, void *contents) {
    cl_mem buffer = clCreateBuffer(context, contents ? CL_MEM_COPY_HOST_PTR : 0, size, contents, &code);
    OK(code);
    return buffer;
}

cl_kernel new_kernel(const char *source, const char *name) {
    cl_program program = clCreateProgramWithSource(context, 1, &source, NULL, &code);
    OK(code);
    OK(clBuildProgram(program, 0, NULL, NULL, NULL, NULL));
    cl_kernel kernel = clCreateKernel(program, name, &code);
    OK(code);
    OK(clReleaseProgram(program));
    return kernel;
}

double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static void devices(void) {
    cl_platform_id platforms[8];
    cl_uint number;
    OK(clGetPlatformIDs(8, platforms, &number));
    for (cl_uint p = 0; p < number; p++) {
        char text[256];
        OK(clGetPlatformInfo(platforms[p], CL_PLATFORM_NAME, sizeof text, text, NULL));
        printf("%s\n", text);
        cl_device_id list[16];
        cl_uint count;
        OK(clGetDeviceIDs(platforms[p], CL_DEVICE_TYPE_ALL, 16, list, &count));
        for (cl_uint d = 0; d < count; d++) {
            cl_device_type type;
            cl_ulong memory;
            cl_bool images;
            char version[64];
            OK(clGetDeviceInfo(list[d], CL_DEVICE_NAME, sizeof text, text, NULL));
            OK(clGetDeviceInfo(list[d], CL_DEVICE_VERSION, sizeof version, version, NULL));
            OK(clGetDeviceInfo(list[d], CL_DEVICE_TYPE, sizeof type, &type, NULL));
            OK(clGetDeviceInfo(list[d], CL_DEVICE_GLOBAL_MEM_SIZE, sizeof memory, &memory, NULL));
            OK(clGetDeviceInfo(list[d], CL_DEVICE_IMAGE_SUPPORT, sizeof images, &images, NULL));
            printf("  %s|%s|%d|%lu|%u\n", text, version, (int)type, memory, images);
        }
    }
}

static void launch_one(const char *name) {
    cl_command_queue queue = new_queue(CL_QUEUE_PROFILING_ENABLE);
    cl_kernel kernel = new_kernel(KERNELS, name);
    size_t one = 1;
    cl_event event;
    printf("launching\n");
    fflush(stdout);
    OK(clEnqueueNDRangeKernel(queue, kernel, 1, NULL, &one, NULL, 0, NULL, &event));
    cl_int waited = clWaitForEvents(1, &event), status;
    OK(clGetEventInfo(event, CL_EVENT_COMMAND_EXECUTION_STATUS, sizeof status, &status, NULL));
    printf("waited %d, status %d\n", waited, status);
    if (status == CL_COMPLETE) {
        cl_ulong start, end;
        OK(clGetEventProfilingInfo(event, CL_PROFILING_COMMAND_START, 8, &start, NULL));
        OK(clGetEventProfilingInfo(event, CL_PROFILING_COMMAND_END, 8, &end, NULL));
        printf("ns %lu\n", end - start);
    }
}

static void finish_thrice(void) {
    cl_command_queue queue = new_queue(0);
    for (int i = 0; i < 3; i++) {
        double before = now();
        cl_int got = clFinish(queue);
        printf("%d%s ", got, now() - before > 0.02 ? " late" : "");
        fflush(stdout);
    }
    printf("\n");
}

static volatile int rank;
static int ranks[16];
static void CL_CALLBACK note_rank(cl_event event, cl_int status, void *which) {
    (void)event, (void)status;
    ranks[(intptr_t)which] = rank++;
}

// Prints the order in which ten commands end that become ready together.
static void order_of(cl_command_queue_properties properties) {
    cl_command_queue queue = new_queue(properties);
    cl_event gate = clCreateUserEvent(context, &code), events[10];
    cl_kernel kernel = new_kernel(KERNELS, "plain");
    size_t one = 1;
    for (intptr_t i = 0; i < 10; i++) {
        OK(clEnqueueNDRangeKernel(queue, kernel, 1, NULL, &one, NULL, 1, &gate, &events[i]));
        OK(clSetEventCallback(events[i], CL_COMPLETE, note_rank, (void *)i));
    }
    OK(clSetUserEventStatus(gate, CL_COMPLETE));
    OK(clWaitForEvents(10, events));
    for (double start = now(); rank < 10 && now() - start < 10;) usleep(100);
    for (int i = 0; i < 10; i++) printf("%d ", ranks[i]);
    printf("\n");
}

// Prints the result of `clFinish` for each input line. The test changes the control file between lines.
static void follow(void) {
    cl_command_queue queue = new_queue(0);
    printf("ready\n");
    fflush(stdout);
    char line[16];
    while (fgets(line, sizeof line, stdin)) {
        printf("%d\n", clFinish(queue));
        fflush(stdout);
    }
}

// Prints the cost of an enqueue to the calling thread. Other programs use the machine too, so
// the best of many batches counts.
static void rate(void) {
    cl_command_queue queue = new_queue(0);
    cl_kernel kernel = new_kernel(KERNELS, "other");
    size_t one = 1;
    for (int events = 0; events < 2; events++) {
        double best = 1;
        for (int batch = 0; batch < 200; batch++) {
            OK(clFinish(queue));
            double before = now();
            for (int i = 0; i < 5000; i++) {
                cl_event event;
                clEnqueueNDRangeKernel(queue, kernel, 1, NULL, &one, NULL, 0, NULL, events ? &event : NULL);
                if (events) clReleaseEvent(event);
            }
            double each = (now() - before) / 5000;
            if (each < best) best = each;
        }
        printf("%s %.0f ns\n", events ? "with event" : "without", best * 1e9);
    }
}

void flow(void);
void rectangles(void);
void maps(void);
void events(void);
void gates(void);
void programs(void);
void arguments(void);
void errors(void);
void lifetimes(void);
void threads(void);

int main(int argc, char **argv) {
    const char *which = argc > 1 ? argv[1] : "";
    OK(clGetPlatformIDs(1, &platform, NULL));
    OK(clGetDeviceIDs(platform, CL_DEVICE_TYPE_ALL, 1, &device, NULL));
    if (!strcmp(which, "devices")) return devices(), 0;
    context = clCreateContext(NULL, 1, &device, NULL, NULL, &code);
    OK(code);
    if (!strcmp(which, "launch")) launch_one(argv[2]);
    else if (!strcmp(which, "finish")) finish_thrice();
    else if (!strcmp(which, "order")) order_of(CL_QUEUE_OUT_OF_ORDER_EXEC_MODE_ENABLE);
    else if (!strcmp(which, "in-order")) order_of(0);
    else if (!strcmp(which, "follow")) follow();
    else if (!strcmp(which, "rate")) rate();
    else if (!strcmp(which, "flow")) flow();
    else if (!strcmp(which, "rectangles")) rectangles();
    else if (!strcmp(which, "maps")) maps();
    else if (!strcmp(which, "events")) events();
    else if (!strcmp(which, "gates")) gates();
    else if (!strcmp(which, "programs")) programs();
    else if (!strcmp(which, "arguments")) arguments();
    else if (!strcmp(which, "errors")) errors();
    else if (!strcmp(which, "lifetimes")) lifetimes();
    else if (!strcmp(which, "threads")) threads();
    else return printf("no case %s\n", which), 2;
    printf("done\n");
    return 0;
}
