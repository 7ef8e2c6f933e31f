/* Devices: every answer that does not depend on the device's place. */
#include "../cltest.h"

#define ROW(name) {name, #name}

static void print_string(cl_device_info name, const char *label)
{
    char text[8192];
    size_t size = 0;
    OK(clGetDeviceInfo(device, name, sizeof text, text, &size));
    fact("%s: \"%s\" (%zu)", label, text, size);
    CHECK(strlen(text) + 1 == size);
}

static void print_bytes(cl_device_info name, const char *label)
{
    unsigned char bytes[1024];
    size_t size = 0;
    const cl_int status = clGetDeviceInfo(device, name, sizeof bytes, bytes, &size);
    if (status != CL_SUCCESS) {
        fact("%s: %s", label, status_name(status));
        return;
    }
    printf("%s:", label);
    for (size_t i = 0; i < size; ++i)
        printf(" %02x", bytes[i]);
    putchar('\n');
}

CASE(device_strings)
{
    print_string(CL_DEVICE_NAME, "name");
    print_string(CL_DEVICE_VENDOR, "vendor");
    print_string(CL_DRIVER_VERSION, "driver version");
    print_string(CL_DEVICE_PROFILE, "profile");
    print_string(CL_DEVICE_VERSION, "version");
    print_string(CL_DEVICE_OPENCL_C_VERSION, "OpenCL C version");
    print_string(CL_DEVICE_BUILT_IN_KERNELS, "built-in kernels");
}

CASE(device_limits)
{
    static const struct {
        cl_device_info name;
        const char *label;
    } rows[] = {
        ROW(CL_DEVICE_TYPE), ROW(CL_DEVICE_VENDOR_ID), ROW(CL_DEVICE_MAX_COMPUTE_UNITS),
        ROW(CL_DEVICE_MAX_WORK_ITEM_DIMENSIONS), ROW(CL_DEVICE_MAX_WORK_ITEM_SIZES),
        ROW(CL_DEVICE_MAX_WORK_GROUP_SIZE), ROW(CL_DEVICE_PREFERRED_VECTOR_WIDTH_CHAR),
        ROW(CL_DEVICE_PREFERRED_VECTOR_WIDTH_SHORT), ROW(CL_DEVICE_PREFERRED_VECTOR_WIDTH_INT),
        ROW(CL_DEVICE_PREFERRED_VECTOR_WIDTH_LONG), ROW(CL_DEVICE_PREFERRED_VECTOR_WIDTH_FLOAT),
        ROW(CL_DEVICE_PREFERRED_VECTOR_WIDTH_DOUBLE), ROW(CL_DEVICE_PREFERRED_VECTOR_WIDTH_HALF),
        ROW(CL_DEVICE_NATIVE_VECTOR_WIDTH_CHAR), ROW(CL_DEVICE_NATIVE_VECTOR_WIDTH_INT),
        ROW(CL_DEVICE_NATIVE_VECTOR_WIDTH_FLOAT), ROW(CL_DEVICE_NATIVE_VECTOR_WIDTH_DOUBLE),
        ROW(CL_DEVICE_MAX_CLOCK_FREQUENCY), ROW(CL_DEVICE_ADDRESS_BITS),
        ROW(CL_DEVICE_MAX_MEM_ALLOC_SIZE), ROW(CL_DEVICE_MAX_PARAMETER_SIZE),
        ROW(CL_DEVICE_MEM_BASE_ADDR_ALIGN), ROW(CL_DEVICE_MIN_DATA_TYPE_ALIGN_SIZE),
        ROW(CL_DEVICE_SINGLE_FP_CONFIG), ROW(CL_DEVICE_DOUBLE_FP_CONFIG),
        ROW(CL_DEVICE_GLOBAL_MEM_CACHE_TYPE), ROW(CL_DEVICE_GLOBAL_MEM_CACHELINE_SIZE),
        ROW(CL_DEVICE_GLOBAL_MEM_CACHE_SIZE), ROW(CL_DEVICE_GLOBAL_MEM_SIZE),
        ROW(CL_DEVICE_MAX_CONSTANT_BUFFER_SIZE), ROW(CL_DEVICE_MAX_CONSTANT_ARGS),
        ROW(CL_DEVICE_LOCAL_MEM_TYPE), ROW(CL_DEVICE_LOCAL_MEM_SIZE),
        ROW(CL_DEVICE_ERROR_CORRECTION_SUPPORT), ROW(CL_DEVICE_PROFILING_TIMER_RESOLUTION),
        ROW(CL_DEVICE_ENDIAN_LITTLE), ROW(CL_DEVICE_AVAILABLE), ROW(CL_DEVICE_COMPILER_AVAILABLE),
        ROW(CL_DEVICE_LINKER_AVAILABLE), ROW(CL_DEVICE_QUEUE_PROPERTIES),
        ROW(CL_DEVICE_PRINTF_BUFFER_SIZE), ROW(CL_DEVICE_REFERENCE_COUNT)};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; ++i)
        print_bytes(rows[i].name, rows[i].label);
}

CASE(device_info_rules)
{
    INFO_RULES(clGetDeviceInfo, device, CL_DEVICE_NAME);
    INFO_RULES(clGetDeviceInfo, device, CL_DEVICE_TYPE);
    INFO_RULES(clGetDeviceInfo, device, CL_DEVICE_VENDOR_ID);
    INFO_RULES(clGetDeviceInfo, device, CL_DEVICE_PLATFORM);
    INFO_RULES(clGetDeviceInfo, device, CL_DEVICE_EXTENSIONS);
    INFO_RULES(clGetDeviceInfo, device, CL_DEVICE_MAX_WORK_ITEM_SIZES);
    INFO_RULES(clGetDeviceInfo, device, CL_DEVICE_PARTITION_PROPERTIES);
    INFO_RULES(clGetDeviceInfo, device, CL_DEVICE_BUILT_IN_KERNELS);
    INFO_RULES(clGetDeviceInfo, device, CL_DEVICE_EXECUTION_CAPABILITIES);
    INFO_RULES(clGetDeviceInfo, device, CL_DEVICE_IMAGE_SUPPORT);
    INFO_RULES(clGetDeviceInfo, device, CL_DEVICE_HOST_UNIFIED_MEMORY);
    INFO_RULES(clGetDeviceInfo, device, CL_DEVICE_PARENT_DEVICE);
    EXPECT(clGetDeviceInfo(device, UNKNOWN_INFO, 0, NULL, NULL), CL_INVALID_VALUE);
}

CASE(device_info_sizes)
{
    size_t size;
    OK(clGetDeviceInfo(device, CL_DEVICE_TYPE, 0, NULL, &size));
    EQUAL(size, sizeof(cl_device_type));
    OK(clGetDeviceInfo(device, CL_DEVICE_AVAILABLE, 0, NULL, &size));
    EQUAL(size, sizeof(cl_bool));
    OK(clGetDeviceInfo(device, CL_DEVICE_MAX_WORK_GROUP_SIZE, 0, NULL, &size));
    EQUAL(size, sizeof(size_t));
    OK(clGetDeviceInfo(device, CL_DEVICE_GLOBAL_MEM_SIZE, 0, NULL, &size));
    EQUAL(size, sizeof(cl_ulong));
    OK(clGetDeviceInfo(device, CL_DEVICE_PLATFORM, 0, NULL, &size));
    EQUAL(size, sizeof(cl_platform_id));
    OK(clGetDeviceInfo(device, CL_DEVICE_MAX_WORK_ITEM_SIZES, 0, NULL, &size));
    CHECK(size == device_number(CL_DEVICE_MAX_WORK_ITEM_DIMENSIONS) * sizeof(size_t));
}

CASE(device_platform_and_parent)
{
    cl_platform_id owner = NULL;
    OK(clGetDeviceInfo(device, CL_DEVICE_PLATFORM, sizeof owner, &owner, NULL));
    CHECK(owner == platform);
    cl_device_id parent = device;
    OK(clGetDeviceInfo(device, CL_DEVICE_PARENT_DEVICE, sizeof parent, &parent, NULL));
    CHECK(parent == NULL);
    fact("a root device belongs to its platform and has no parent");
}

CASE(device_root_reference_count)
{
    EXPECT(clRetainDevice(device), CL_SUCCESS);
    EXPECT(clReleaseDevice(device), CL_SUCCESS);
    EXPECT(clReleaseDevice(device), CL_SUCCESS);
    cl_uint count = 0;
    OK(clGetDeviceInfo(device, CL_DEVICE_REFERENCE_COUNT, sizeof count, &count, NULL));
    EQUAL(count, 1);
}

CASE(device_null)
{
    cl_device_id none = NULL;
    EXPECT(clRetainDevice(NULL), CL_INVALID_DEVICE);
    EXPECT(clReleaseDevice(NULL), CL_INVALID_DEVICE);
    EXPECT(clGetDeviceInfo(none, CL_DEVICE_NAME, 0, NULL, NULL), CL_INVALID_DEVICE);
    EXPECT(clCreateSubDevices(none, NULL, 0, NULL, NULL), CL_INVALID_DEVICE);
}

SPEC_CASE(device_wrong_kind)
{
    EXPECT(clGetDeviceInfo((cl_device_id)context, CL_DEVICE_NAME, 0, NULL, NULL),
           CL_INVALID_DEVICE);
    EXPECT(clGetDeviceInfo((cl_device_id)queue, CL_DEVICE_NAME, 0, NULL, NULL),
           CL_INVALID_DEVICE);
    EXPECT(clRetainDevice((cl_device_id)platform), CL_INVALID_DEVICE);
}

CASE(device_sub_devices_as_announced)
{
    const cl_device_partition_property equally[] = {CL_DEVICE_PARTITION_EQUALLY, 1, 0};
    cl_uint most = 0, count = 0;
    OK(clGetDeviceInfo(device, CL_DEVICE_PARTITION_MAX_SUB_DEVICES, sizeof most, &most, NULL));
    cl_device_partition_property kinds[16] = {0};
    OK(clGetDeviceInfo(device, CL_DEVICE_PARTITION_PROPERTIES, sizeof kinds, kinds, NULL));
    int has_equally = 0;
    for (int i = 0; i < 16 && kinds[i] != 0; ++i)
        has_equally |= kinds[i] == CL_DEVICE_PARTITION_EQUALLY;
    const cl_int status = clCreateSubDevices(device, equally, 0, NULL, &count);
    CHECK(has_equally ? status != CL_INVALID_VALUE : status == CL_INVALID_VALUE);
    fact("clCreateSubDevices does what CL_DEVICE_PARTITION_PROPERTIES says");
    EXPECT(clCreateSubDevices(device, NULL, 0, NULL, &count), CL_INVALID_VALUE);
}

CASE(device_work_item_sizes_consistent)
{
    size_t sizes[16] = {0};
    OK(clGetDeviceInfo(device, CL_DEVICE_MAX_WORK_ITEM_SIZES, sizeof sizes, sizes, NULL));
    CHECK(device_number(CL_DEVICE_MAX_WORK_ITEM_DIMENSIONS) >= 3);
    CHECK(sizes[0] >= 1 && sizes[1] >= 1 && sizes[2] >= 1);
    CHECK(device_number(CL_DEVICE_EXECUTION_CAPABILITIES) & CL_EXEC_KERNEL);
    CHECK(device_number(CL_DEVICE_QUEUE_PROPERTIES) & CL_QUEUE_PROFILING_ENABLE);
    fact("the limits fit each other");
}

CASE(device_extensions_agree)
{
    enum { EXTENSIONS_WITH_VERSION = 0x1060 };
    struct named {
        cl_uint version;
        char name[64];
    } list[256];
    char text[16384], joined[16384] = "";
    size_t size = 0;
    OK(clGetDeviceInfo(device, CL_DEVICE_EXTENSIONS, sizeof text, text, NULL));
    if (clGetDeviceInfo(device, EXTENSIONS_WITH_VERSION, sizeof list, list, &size) != CL_SUCCESS)
        skip("the device has no extensions with versions");
    CHECK(size % sizeof *list == 0);
    for (size_t i = 0; i < size / sizeof *list; ++i) {
        CHECK(strstr(text, list[i].name) != NULL);
        CHECK(strstr(joined, list[i].name) == NULL || strcmp(list[i].name, "cl_khr_3d") == 0);
        strcat(joined, list[i].name);
        strcat(joined, " ");
    }
    size_t words = 0;
    for (char *word = strtok(text, " "); word != NULL; word = strtok(NULL, " "))
        ++words;
    EQUAL(words == size / sizeof *list, 1);
}

static cl_uint divide(const cl_device_partition_property *way, cl_device_id *parts)
{
    cl_uint count = 0;
    OK(clCreateSubDevices(device, way, 0, NULL, &count));
    CHECK(count > 0 && count <= 256);
    OK(clCreateSubDevices(device, way, count, parts, NULL));
    return count;
}

static void need(cl_device_partition_property way)
{
    cl_device_partition_property kinds[16] = {0};
    OK(clGetDeviceInfo(device, CL_DEVICE_PARTITION_PROPERTIES, sizeof kinds, kinds, NULL));
    for (int i = 0; i < 16 && kinds[i] != 0; ++i)
        if (kinds[i] == way)
            return;
    skip("the device cannot be divided so");
}

static void print_part(cl_device_id part)
{
    cl_device_id parent = NULL;
    OK(clGetDeviceInfo(part, CL_DEVICE_PARENT_DEVICE, sizeof parent, &parent, NULL));
    CHECK(parent == device);
    cl_platform_id owner = NULL;
    OK(clGetDeviceInfo(part, CL_DEVICE_PLATFORM, sizeof owner, &owner, NULL));
    CHECK(owner == platform);
    static const struct {
        cl_device_info name;
        const char *label;
    } rows[] = {ROW(CL_DEVICE_TYPE), ROW(CL_DEVICE_MAX_COMPUTE_UNITS),
                ROW(CL_DEVICE_PARTITION_TYPE), ROW(CL_DEVICE_PARTITION_PROPERTIES),
                ROW(CL_DEVICE_PARTITION_MAX_SUB_DEVICES), ROW(CL_DEVICE_GLOBAL_MEM_SIZE),
                ROW(CL_DEVICE_MAX_MEM_ALLOC_SIZE), ROW(CL_DEVICE_MAX_WORK_GROUP_SIZE),
                ROW(CL_DEVICE_LOCAL_MEM_SIZE), ROW(CL_DEVICE_REFERENCE_COUNT)};
    const cl_device_id root = device;
    device = part;
    print_string(CL_DEVICE_NAME, "name");
    for (size_t i = 0; i < sizeof rows / sizeof *rows; ++i)
        print_bytes(rows[i].name, rows[i].label);
    device = root;
}

CASE(device_parts_equally)
{
    const cl_device_partition_property way[] = {CL_DEVICE_PARTITION_EQUALLY, 1, 0};
    need(*way);
    cl_device_id parts[256];
    const cl_uint count = divide(way, parts);
    CHECK(count == device_number(CL_DEVICE_MAX_COMPUTE_UNITS));
    for (cl_uint i = 0; i < count; ++i) {
        print_part(parts[i]);
        EXPECT(clRetainDevice(parts[i]), CL_SUCCESS);
        EXPECT(clReleaseDevice(parts[i]), CL_SUCCESS);
        EXPECT(clReleaseDevice(parts[i]), CL_SUCCESS);
    }
}

CASE(device_parts_by_counts)
{
    need(CL_DEVICE_PARTITION_BY_COUNTS);
    const cl_device_partition_property whole = (cl_device_partition_property)
        device_number(CL_DEVICE_MAX_COMPUTE_UNITS);
    const cl_device_partition_property way[] = {CL_DEVICE_PARTITION_BY_COUNTS, whole,
                                                CL_DEVICE_PARTITION_BY_COUNTS_LIST_END, 0};
    const cl_device_partition_property more[] = {CL_DEVICE_PARTITION_BY_COUNTS, whole, 1,
                                                 CL_DEVICE_PARTITION_BY_COUNTS_LIST_END, 0};
    cl_device_id parts[256];
    EQUAL(divide(way, parts), 1);
    print_part(parts[0]);
    EXPECT(clReleaseDevice(parts[0]), CL_SUCCESS);
    EXPECT(clCreateSubDevices(device, more, 0, NULL, NULL), CL_INVALID_DEVICE_PARTITION_COUNT);
}

CASE(device_parts_refused)
{
    const cl_device_partition_property equally[] = {CL_DEVICE_PARTITION_EQUALLY, 1, 0};
    const cl_device_partition_property unknown[] = {0x999, 1, 0};
    const cl_device_partition_property empty[] = {0};
    need(*equally);
    cl_device_id parts[256];
    cl_uint count = 0;
    EXPECT(clCreateSubDevices(device, unknown, 0, NULL, &count), CL_INVALID_VALUE);
    EXPECT(clCreateSubDevices(device, empty, 0, NULL, &count), CL_INVALID_VALUE);
    EXPECT(clCreateSubDevices(device, equally, 0, parts, &count), CL_INVALID_VALUE);
    if (device_number(CL_DEVICE_MAX_COMPUTE_UNITS) > 1)
        EXPECT(clCreateSubDevices(device, equally, 1, parts, &count), CL_INVALID_VALUE);
    count = divide(equally, parts);
    cl_device_id none;
    EXPECT(clCreateSubDevices(parts[0], equally, 1, &none, NULL), CL_DEVICE_PARTITION_FAILED,
           CL_INVALID_VALUE);
    for (cl_uint i = 0; i < count; ++i)
        OK(clReleaseDevice(parts[i]));
}

CASE(device_parts_compute)
{
    const cl_device_partition_property way[] = {CL_DEVICE_PARTITION_EQUALLY, 1, 0};
    need(*way);
    cl_device_id parts[256];
    const cl_uint count = divide(way, parts);
    const char *source = "kernel void add(global int *x, int v) { x[get_global_id(0)] += v; }";
    cl_context own = clCreateContext(NULL, count, parts, NULL, NULL, &err);
    OK(err);
    cl_program program = clCreateProgramWithSource(own, 1, &source, NULL, &err);
    OK(err);
    OK(clBuildProgram(program, 0, NULL, "", NULL, NULL));
    cl_kernel kernel = clCreateKernel(program, "add", &err);
    OK(err);
    cl_int data[64] = {0};
    cl_mem buffer = clCreateBuffer(own, CL_MEM_COPY_HOST_PTR, sizeof data, data, &err);
    OK(err);
    OK(clSetKernelArg(kernel, 0, sizeof buffer, &buffer));
    cl_int sum = 0;
    for (cl_uint i = 0; i < count; ++i) {
        const cl_int value = (cl_int)i + 1;
        const size_t global = 64;
        sum += value;
        cl_command_queue part = clCreateCommandQueue(own, parts[i], 0, &err);
        OK(err);
        OK(clReleaseDevice(parts[i]));
        OK(clSetKernelArg(kernel, 1, sizeof value, &value));
        OK(clEnqueueNDRangeKernel(part, kernel, 1, NULL, &global, NULL, 0, NULL, NULL));
        OK(clEnqueueReadBuffer(part, buffer, CL_TRUE, 0, sizeof data, data, 0, NULL, NULL));
        cl_device_id its = NULL;
        OK(clGetCommandQueueInfo(part, CL_QUEUE_DEVICE, sizeof its, &its, NULL));
        CHECK(its == parts[i]);
        OK(clReleaseCommandQueue(part));
    }
    CHECK(data[0] == sum && data[63] == sum);
    fact("parts have computed on one buffer, each after the other");
    OK(clReleaseMemObject(buffer));
    OK(clReleaseKernel(kernel));
    OK(clReleaseProgram(program));
    OK(clReleaseContext(own));
}
