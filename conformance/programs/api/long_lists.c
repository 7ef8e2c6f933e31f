/*
 * Lists that are longer than any message between a program and a remote device. The call does what the
 * specification says or refuses, and the context stays usable.
 */
#define CL_TARGET_OPENCL_VERSION 300
#include "../cltest.h"

enum { LONG = 65537 };

static void *filled(const void *element)
{
    void **all = malloc(LONG * sizeof *all);
    for (size_t i = 0; i < LONG; ++i)
        all[i] = (void *)(uintptr_t)element;
    return all;
}

/* Checks that older objects still work. */
static void lives(cl_mem buffer)
{
    OK(clFinish(queue));
    CHECK(holds_counting(buffer, 16, 5, 1));
    OK(clReleaseMemObject(buffer));
}

CASE(migrate_many)
{
    cl_mem buffer = counting_buffer(16, 5);
    cl_mem *all = filled(buffer);
    cl_event event;
    cl_int end = 77;
    OK(clEnqueueMigrateMemObjects(queue, LONG, all, 0, 0, NULL, &event));
    OK(clWaitForEvents(1, &event));
    OK(clGetEventInfo(event, CL_EVENT_COMMAND_EXECUTION_STATUS, sizeof end, &end, NULL));
    EQUAL(end, CL_COMPLETE);
    OK(clReleaseEvent(event));
    free(all);
    lives(buffer);
}

/* All parts wait for the command's wait list, and the command ends after all parts. */
CASE(migrate_many_out_of_order)
{
    cl_mem buffer = counting_buffer(16, 5);
    cl_mem *all = filled(buffer);
    cl_event gate = clCreateUserEvent(context, &err), event;
    cl_int end = 77;
    OK(err);
    cl_command_queue other = clCreateCommandQueue(
        context, device, CL_QUEUE_OUT_OF_ORDER_EXEC_MODE_ENABLE, &err);
    if (err == CL_INVALID_QUEUE_PROPERTIES)
        skip("the device has no queues out of order");
    OK(err);
    OK(clEnqueueMigrateMemObjects(other, LONG, all, 0, 1, &gate, &event));
    OK(clSetUserEventStatus(gate, -5));
    CHECK(clWaitForEvents(1, &event) == CL_EXEC_STATUS_ERROR_FOR_EVENTS_IN_WAIT_LIST);
    OK(clGetEventInfo(event, CL_EVENT_COMMAND_EXECUTION_STATUS, sizeof end, &end, NULL));
    CHECK(end < 0);
    OK(clReleaseEvent(event));
    OK(clReleaseEvent(gate));
    OK(clReleaseCommandQueue(other));
    free(all);
    lives(buffer);
}

CASE(migrate_much_shared_memory)
{
    needs_svm();
    cl_mem buffer = counting_buffer(16, 5);
    void *memory = clSVMAlloc(context, CL_MEM_READ_WRITE, 4096, 0);
    CHECK(memory != NULL);
    const void **all = filled(memory);
    OK(clEnqueueSVMMigrateMem(queue, LONG, all, NULL, 0, 0, NULL, NULL));
    OK(clFinish(queue));
    clSVMFree(context, memory);
    free(all);
    lives(buffer);
}

/* "The first one encountered will be used." */
SPEC_CASE(many_headers_of_one_name)
{
    const char *sources[3] = {"#define VALUE 41\n", "#define VALUE 7\n",
                              "#include \"value.h\"\nkernel void answer(global int *x) { *x = VALUE; }\n"};
    cl_mem buffer = counting_buffer(16, 5);
    cl_program programs[3];
    for (int i = 0; i < 3; ++i) {
        programs[i] = clCreateProgramWithSource(context, 1, &sources[i], NULL, &err);
        OK(err);
    }
    cl_program *headers = filled(programs[1]);
    const char **names = filled("value.h");
    headers[0] = programs[0];
    OK(clCompileProgram(programs[2], 1, &device, "", LONG, headers, names, NULL, NULL));
    cl_program linked = clLinkProgram(context, 1, &device, "", 1, &programs[2], NULL, NULL, &err);
    OK(err);
    EQUAL(answer_of(linked), 41);
    OK(clReleaseProgram(linked));
    for (int i = 0; i < 3; ++i)
        OK(clReleaseProgram(programs[i]));
    free(headers);
    free(names);
    lives(buffer);
}

/* Drivers treat a program that is linked with itself differently. None may crash. */
CASE(link_many)
{
    const char *source = "int helper(int x) { return 2 * x + 1; }\n";
    cl_mem buffer = counting_buffer(16, 5);
    cl_program part = clCreateProgramWithSource(context, 1, &source, NULL, &err);
    OK(err);
    OK(clCompileProgram(part, 1, &device, "", 0, NULL, NULL, NULL, NULL));
    cl_program *all = filled(part);
    cl_program linked = clLinkProgram(context, 1, &device, "", LONG, all, NULL, NULL, &err);
    CHECK(err == CL_SUCCESS || err == CL_LINK_PROGRAM_FAILURE || err == CL_OUT_OF_HOST_MEMORY);
    if (linked != NULL)
        OK(clReleaseProgram(linked));
    OK(clReleaseProgram(part));
    free(all);
    lives(buffer);
}

CASE(wait_for_many)
{
    cl_mem buffer = counting_buffer(16, 5);
    cl_event gate = clCreateUserEvent(context, &err);
    OK(err);
    cl_event *all = filled(gate);
    OK(clEnqueueMarkerWithWaitList(queue, LONG, all, NULL));
    OK(clSetUserEventStatus(gate, CL_COMPLETE));
    OK(clReleaseEvent(gate));
    free(all);
    lives(buffer);
}

/* The numbers of counts lie around the longest list of properties that a message may have. */
CASE(divide_into_many)
{
    cl_mem buffer = counting_buffer(16, 5);
    for (size_t count = LONG - 2; count <= LONG; ++count) {
        cl_device_partition_property *list = calloc(count + 3, sizeof *list);
        list[0] = CL_DEVICE_PARTITION_BY_COUNTS;
        for (size_t i = 1; i <= count; ++i)
            list[i] = 1;
        cl_uint parts = 0;
        const cl_int status = clCreateSubDevices(device, list, 0, NULL, &parts);
        CHECK(status == CL_INVALID_DEVICE_PARTITION_COUNT || status == CL_INVALID_VALUE ||
              status == CL_DEVICE_PARTITION_FAILED);
        free(list);
    }
    lives(buffer);
}

/* A kernel's name may be of any length. No kernel is launched: PoCL's names of files are bounded. NVIDIA's driver
 * damages its memory when it lists names of 256 characters and more, so this program does not ask for the list. */
CASE(kernel_of_a_long_name)
{
    static const size_t LENGTHS[] = {255, 256, 512, 1024, 4096, LONG};
    cl_mem buffer = counting_buffer(16, 5);
    char *name = malloc(LONG + 1), *told = malloc(LONG + 1), *source = malloc(LONG + 100);
    for (size_t i = 0; i < sizeof LENGTHS / sizeof *LENGTHS; ++i) {
        memset(name, 'k', LENGTHS[i]);
        name[LENGTHS[i]] = 0;
        sprintf(source, "kernel void %s(global int *x) { *x = 1; }\n", name);
        const char *text = source;
        cl_program program = clCreateProgramWithSource(context, 1, &text, NULL, &err);
        OK(err);
        const cl_int built = clBuildProgram(program, 1, &device, "", NULL, NULL);
        CHECK(built == CL_SUCCESS || LENGTHS[i] == LONG);
        if (built == CL_SUCCESS) {
            cl_kernel kernel = clCreateKernel(program, name, &err);
            CHECK(kernel != NULL || LENGTHS[i] == LONG);
            if (kernel != NULL) {
                OK(clGetKernelInfo(kernel, CL_KERNEL_FUNCTION_NAME, LONG + 1, told, NULL));
                CHECK(strcmp(name, told) == 0);
                OK(clReleaseKernel(kernel));
            }
        }
        OK(clReleaseProgram(program));
    }
    free(name);
    free(told);
    free(source);
    lives(buffer);
}

CASE(queue_of_many_properties)
{
    cl_mem buffer = counting_buffer(16, 5);
    cl_queue_properties *list = calloc(2 * LONG + 1, sizeof *list);
    for (size_t i = 0; i < LONG; ++i)
        list[2 * i] = CL_QUEUE_PROPERTIES;
    cl_command_queue other = clCreateCommandQueueWithProperties(context, device, list, &err);
    if (other != NULL)
        OK(clReleaseCommandQueue(other));
    free(list);
    lives(buffer);
}

