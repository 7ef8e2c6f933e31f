/* The loader's half of the handshake of cl_khr_icd 2.0.0, as small as possible.
 *
 *   icd2 LIBRARY plain|tagged NAME...
 *
 * The program loads the driver, takes its first platform, and looks for the tag in the two slots of the
 * dispatch table. If the tag is there, the program makes its own table from the functions of the given
 * names, passes its address to the driver and calls through it, as such a loader does. The program ends
 * with 0 if everything is as the second argument says. Otherwise it prints the first difference.
 */
#define CL_TARGET_OPENCL_VERSION 300
#include <CL/cl.h>
#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#define TAG ((intptr_t)0x4F50454E434C3331)
#define SLOTS 150

#define CHECK(condition)                                                                   \
    do {                                                                                   \
        if (!(condition)) {                                                                \
            fprintf(stderr, "line %d: not so: %s\n", __LINE__, #condition);                \
            return 1;                                                                      \
        }                                                                                  \
    } while (0)

/* The first words of every object of a driver. */
struct object {
    const intptr_t *dispatch;
    void *dispatch_data;
};

typedef void *(*get_by_name)(const char *);
typedef cl_int (*get_platforms)(cl_uint, cl_platform_id *, cl_uint *);
typedef void *(*get_for_platform)(cl_platform_id, const char *);
typedef cl_int (*set_dispatch_data)(cl_platform_id, void *);
typedef cl_int (*get_platform_info)(cl_platform_id, cl_platform_info, size_t, void *, size_t *);
typedef cl_int (*get_devices)(cl_platform_id, cl_device_type, cl_uint, cl_device_id *, cl_uint *);

typedef cl_context (*create_context)(const cl_context_properties *, cl_uint, const cl_device_id *,
                                     void (*)(const char *, const void *, size_t, void *), void *,
                                     cl_int *);
typedef cl_command_queue (*create_queue)(cl_context, cl_device_id, cl_command_queue_properties,
                                         cl_int *);
typedef cl_mem (*create_buffer)(cl_context, cl_mem_flags, size_t, void *, cl_int *);
typedef cl_event (*create_user_event)(cl_context, cl_int *);
typedef cl_program (*create_program)(cl_context, cl_uint, const char **, const size_t *, cl_int *);
typedef cl_int (*build_program)(cl_program, cl_uint, const cl_device_id *, const char *,
                                void (*)(cl_program, void *), void *);
typedef cl_kernel (*create_kernel)(cl_program, const char *, cl_int *);
typedef cl_int (*release)(void *);

/* The position of a name among the arguments, which are in slot order. */
static int slot_of(char **names, const char *name)
{
    for (int slot = 0; slot < SLOTS; slot++)
        if (strcmp(names[slot], name) == 0)
            return slot;
    return -1;
}

/* Makes objects of the device. Each must have the same first words as the platform. */
static int objects(char **names, void **table, cl_device_id device, const struct object *platform)
{
    cl_int code;
#define CALL(name, type, ...) ((type)table[slot_of(names, name)])(__VA_ARGS__)
#define CHECK_HEAD(handle)                                                                 \
    do {                                                                                   \
        const struct object *head = (const struct object *)(handle);                       \
        CHECK(head);                                                                       \
        CHECK(head->dispatch == platform->dispatch);                                       \
        CHECK(head->dispatch_data == platform->dispatch_data);                             \
    } while (0)

    CHECK_HEAD(device);
    cl_context context = CALL("clCreateContext", create_context, NULL, 1, &device, NULL, NULL, &code);
    CHECK(code == CL_SUCCESS);
    CHECK_HEAD(context);
    cl_command_queue queue = CALL("clCreateCommandQueue", create_queue, context, device, 0, &code);
    CHECK(code == CL_SUCCESS);
    CHECK_HEAD(queue);
    cl_mem buffer = CALL("clCreateBuffer", create_buffer, context, 0, 64, NULL, &code);
    CHECK(code == CL_SUCCESS);
    CHECK_HEAD(buffer);
    cl_event event = CALL("clCreateUserEvent", create_user_event, context, &code);
    CHECK(code == CL_SUCCESS);
    CHECK_HEAD(event);

    const char *source = "kernel void k(global int *p) { *p = 1; }";
    cl_program program =
        CALL("clCreateProgramWithSource", create_program, context, 1, &source, NULL, &code);
    CHECK(code == CL_SUCCESS);
    CHECK_HEAD(program);
    CHECK(CALL("clBuildProgram", build_program, program, 0, NULL, "", NULL, NULL) == CL_SUCCESS);
    cl_kernel kernel = CALL("clCreateKernel", create_kernel, program, "k", &code);
    CHECK(code == CL_SUCCESS);
    CHECK_HEAD(kernel);

    CHECK(CALL("clReleaseKernel", release, kernel) == CL_SUCCESS);
    CHECK(CALL("clReleaseProgram", release, program) == CL_SUCCESS);
    CHECK(CALL("clReleaseEvent", release, event) == CL_SUCCESS);
    CHECK(CALL("clReleaseMemObject", release, buffer) == CL_SUCCESS);
    CHECK(CALL("clReleaseCommandQueue", release, queue) == CL_SUCCESS);
    CHECK(CALL("clReleaseContext", release, context) == CL_SUCCESS);
    return 0;
}

int main(int argc, char **argv)
{
    CHECK(argc == 3 + SLOTS);
    const int tagged = strcmp(argv[2], "tagged") == 0;
    char **names = argv + 3;

    void *library = dlopen(argv[1], RTLD_NOW | RTLD_LOCAL);
    if (!library)
        fprintf(stderr, "%s\n", dlerror());
    CHECK(library);
    get_by_name by_name = (get_by_name)dlsym(library, "clGetExtensionFunctionAddress");
    CHECK(by_name);
    CHECK(dlsym(library, "clGetPlatformInfo"));
    get_platforms platforms = (get_platforms)by_name("clIcdGetPlatformIDsKHR");
    CHECK(platforms);
    CHECK(by_name("clIcdNoSuchFunctionKHR") == NULL);

    cl_uint count = 0;
    cl_platform_id platform = NULL;
    CHECK(platforms(0, NULL, &count) == CL_SUCCESS);
    CHECK(count == 1);
    CHECK(platforms(1, &platform, NULL) == CL_SUCCESS);
    struct object *head = (struct object *)platform;
    CHECK(head && head->dispatch);
    for (int slot = 0; slot < SLOTS; slot++)
        CHECK(head->dispatch[slot] != 0);
    CHECK((head->dispatch[0] == TAG) == tagged);
    CHECK((head->dispatch[31] == TAG) == tagged);

    get_for_platform for_platform =
        (get_for_platform)by_name("clIcdGetFunctionAddressForPlatformKHR");
    set_dispatch_data set_data = (set_dispatch_data)by_name("clIcdSetPlatformDispatchDataKHR");
    /* The table of the calls below: the driver's own, or with tags a table made by name. */
    void *table[SLOTS];
    if (tagged) {
        CHECK(for_platform && set_data);
        CHECK(for_platform(NULL, "clGetDeviceIDs") == NULL);
        CHECK(for_platform(platform, "clNoSuchFunction") == NULL);
        CHECK(set_data(NULL, table) == CL_INVALID_PLATFORM);
        for (int slot = 0; slot < SLOTS; slot++) {
            table[slot] = for_platform(platform, names[slot]);
            if (!table[slot])
                fprintf(stderr, "%s is not found\n", names[slot]);
            CHECK(table[slot]);
            if (slot != 0 && slot != 31)
                CHECK((intptr_t)table[slot] == head->dispatch[slot]);
        }
        CHECK(set_data(platform, table) == CL_SUCCESS);
        CHECK(head->dispatch_data == table);
    } else {
        memcpy(table, head->dispatch, sizeof(table));
    }

    char name[256];
    get_platform_info info = (get_platform_info)table[slot_of(names, "clGetPlatformInfo")];
    CHECK(info(platform, CL_PLATFORM_NAME, sizeof(name), name, NULL) == CL_SUCCESS);
    CHECK(strcmp(name, "Causeway") == 0);
    get_devices devices = (get_devices)table[slot_of(names, "clGetDeviceIDs")];
    cl_device_id device = NULL;
    cl_int code = devices(platform, CL_DEVICE_TYPE_ALL, 1, &device, &count);
    CHECK(code == CL_SUCCESS || code == CL_DEVICE_NOT_FOUND);
    printf("devices %u\n", code == CL_SUCCESS ? count : 0);
    if (code == CL_SUCCESS && objects(names, table, device, head) != 0)
        return 1;

    /* The library is linked so that it is never unloaded: the platform's functions are still there. */
    CHECK(dlclose(library) == 0);
    CHECK(info(platform, CL_PLATFORM_NAME, sizeof(name), name, NULL) == CL_SUCCESS);
    return 0;
}
