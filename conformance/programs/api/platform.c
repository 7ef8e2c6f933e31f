/* Platforms: enumeration, information, devices by type. */
#include "../cltest.h"

BARE_CASE(platform_ids)
{
    cl_uint count = 0;
    OK(clGetPlatformIDs(0, NULL, &count));
    EQUAL(count, 1);
    cl_platform_id first = NULL, second = NULL;
    EXPECT(clGetPlatformIDs(1, &first, NULL), CL_SUCCESS);
    EXPECT(clGetPlatformIDs(1, &second, &count), CL_SUCCESS);
    CHECK(first != NULL && first == second);
}

BARE_CASE(platform_ids_errors)
{
    EXPECT(clGetPlatformIDs(0, NULL, NULL), CL_INVALID_VALUE);
    EXPECT(clGetPlatformIDs(0, &platform, NULL), CL_INVALID_VALUE);
}

CASE(platform_info_rules)
{
    INFO_RULES(clGetPlatformInfo, platform, CL_PLATFORM_PROFILE);
    INFO_RULES(clGetPlatformInfo, platform, CL_PLATFORM_VERSION);
    INFO_RULES(clGetPlatformInfo, platform, CL_PLATFORM_NAME);
    INFO_RULES(clGetPlatformInfo, platform, CL_PLATFORM_VENDOR);
    INFO_RULES(clGetPlatformInfo, platform, CL_PLATFORM_EXTENSIONS);
    INFO_RULES(clGetPlatformInfo, platform, 0x0920); /* CL_PLATFORM_ICD_SUFFIX_KHR */
    EXPECT(clGetPlatformInfo(platform, UNKNOWN_INFO, 0, NULL, NULL), CL_INVALID_VALUE);
}

CASE(platform_info_answers)
{
    char text[16384];
    OK(clGetPlatformInfo(platform, CL_PLATFORM_PROFILE, sizeof text, text, NULL));
    fact("profile %s", text);
    OK(clGetPlatformInfo(platform, CL_PLATFORM_VERSION, sizeof text, text, NULL));
    int major = 0, minor = 0;
    CHECK(sscanf(text, "OpenCL %d.%d ", &major, &minor) == 2);
    fact("platform of version 3 or more: %s", major >= 3 ? "yes" : "no");
    OK(clGetPlatformInfo(platform, CL_PLATFORM_EXTENSIONS, sizeof text, text, NULL));
    fact("has cl_khr_icd: %s", strstr(text, "cl_khr_icd") ? "yes" : "no");
    size_t size = 0;
    OK(clGetPlatformInfo(platform, CL_PLATFORM_NAME, sizeof text, text, &size));
    CHECK(strlen(text) + 1 == size);
    CHECK(size > 1);
}

CASE(device_ids_counts)
{
    cl_uint all = 0, again = 0;
    OK(clGetDeviceIDs(platform, CL_DEVICE_TYPE_ALL, 0, NULL, &all));
    fact("devices: %u", all);
    cl_device_id devices[64], others[64];
    OK(clGetDeviceIDs(platform, CL_DEVICE_TYPE_ALL, 64, devices, &again));
    EQUAL(again == all, 1);
    OK(clGetDeviceIDs(platform, CL_DEVICE_TYPE_ALL, 64, others, NULL));
    CHECK(memcmp(devices, others, all * sizeof *devices) == 0);
    fact("handles are the same at every query");
}

CASE(device_ids_by_type)
{
    static const struct {
        cl_device_type type;
        const char *name;
    } types[] = {{CL_DEVICE_TYPE_CPU, "CPU"},
                 {CL_DEVICE_TYPE_GPU, "GPU"},
                 {CL_DEVICE_TYPE_ACCELERATOR, "ACCELERATOR"},
                 {CL_DEVICE_TYPE_DEFAULT, "DEFAULT"},
                 {CL_DEVICE_TYPE_CPU | CL_DEVICE_TYPE_GPU, "CPU|GPU"}};
    for (size_t i = 0; i < sizeof types / sizeof *types; ++i) {
        cl_uint count = 0;
        const cl_int status = clGetDeviceIDs(platform, types[i].type, 0, NULL, &count);
        fact("%s: %s, %u devices", types[i].name, status_name(status),
             status == CL_SUCCESS ? count : 0);
    }
}

CASE(device_ids_errors)
{
    cl_device_id one;
    EXPECT(clGetDeviceIDs(platform, CL_DEVICE_TYPE_ALL, 0, NULL, NULL), CL_INVALID_VALUE);
    EXPECT(clGetDeviceIDs(platform, CL_DEVICE_TYPE_ALL, 0, &one, NULL), CL_INVALID_VALUE);
}

SPEC_CASE(device_ids_bad_types)
{
    cl_device_id one;
    cl_uint count;
    EXPECT(clGetDeviceIDs(platform, 0, 1, &one, &count), CL_INVALID_DEVICE_TYPE);
    EXPECT(clGetDeviceIDs(platform, (cl_device_type)1 << 40, 1, &one, &count),
           CL_INVALID_DEVICE_TYPE);
}

CASE(default_device_is_one)
{
    cl_device_id devices[64];
    cl_uint count = 0;
    OK(clGetDeviceIDs(platform, CL_DEVICE_TYPE_DEFAULT, 64, devices, &count));
    EQUAL(count, 1);
    cl_device_type type = 0;
    OK(clGetDeviceInfo(devices[0], CL_DEVICE_TYPE, sizeof type, &type, NULL));
    CHECK(!(type & CL_DEVICE_TYPE_CUSTOM));
}

CASE(unknown_extension_function)
{
    CHECK(clGetExtensionFunctionAddressForPlatform(platform, "clNoSuchFunctionXYZ") == NULL);
    CHECK(clGetExtensionFunctionAddress("clNoSuchFunctionXYZ") == NULL);
    fact("unknown names give NULL");
}

CASE(null_platform)
{
    /* Some loaders answer this call themselves, with success. */
    EXPECT(clUnloadPlatformCompiler(NULL), CL_INVALID_PLATFORM, CL_SUCCESS);
    CHECK(clGetExtensionFunctionAddressForPlatform(NULL, "clNoSuchFunctionXYZ") == NULL);
    /* Elsewhere, the implementation chooses the meaning of a NULL platform, but must not crash. */
    char text[4096];
    cl_uint count;
    (void)clGetPlatformInfo(NULL, CL_PLATFORM_NAME, sizeof text, text, NULL);
    (void)clGetDeviceIDs(NULL, CL_DEVICE_TYPE_ALL, 0, NULL, &count);
    fact("NULL platforms do no harm");
}

CASE(platform_numeric_version)
{
    enum { NUMERIC_VERSION = 0x0906, EXTENSIONS_WITH_VERSION = 0x0907 };
    cl_uint version = 0;
    char text[256];
    OK(clGetPlatformInfo(platform, CL_PLATFORM_VERSION, sizeof text, text, NULL));
    unsigned major = 0, minor = 0;
    CHECK(sscanf(text, "OpenCL %u.%u ", &major, &minor) == 2);
    EXPECT(clGetPlatformInfo(platform, NUMERIC_VERSION, sizeof version, &version, NULL),
           CL_SUCCESS);
    CHECK(version >> 22 == major && ((version >> 12) & 0x3ff) == minor);
    INFO_RULES(clGetPlatformInfo, platform, EXTENSIONS_WITH_VERSION);
}
