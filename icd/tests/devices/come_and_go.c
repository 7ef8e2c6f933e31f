/*
 * A program that connects its own server, argv[1]. Valid C99 and C++. It prints what it finds. Anything
 * unexpected ends the program with a line number.
 */
#include <CL/cl.h>
#include <CL/cl_ext_causeway.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CHECK(condition)                                                    \
    do {                                                                    \
        if (!(condition)) {                                                 \
            fprintf(stderr, "line %d: %s\n", __LINE__, #condition);         \
            exit(1);                                                        \
        }                                                                   \
    } while (0)

static cl_uint count_devices(cl_platform_id platform)
{
    cl_uint count = 0;
    cl_int code = clGetDeviceIDs(platform, CL_DEVICE_TYPE_ALL, 0, NULL, &count);
    CHECK(code == CL_SUCCESS || code == CL_DEVICE_NOT_FOUND);
    return code == CL_SUCCESS ? count : 0;
}

static void *function(cl_platform_id platform, const char *name)
{
    void *address = clGetExtensionFunctionAddressForPlatform(platform, name);
    CHECK(address != NULL);
    return address;
}

int main(int argc, char **argv)
{
    cl_platform_id platform;
    char extensions[1024], address[256];
    clConnectServerWWU_fn connect_server;
    clDisconnectServerWWU_fn disconnect_server;
    clGetServerInfoWWU_fn server_info;
    clGetLinkInfoWWU_fn link_info;
    cl_server_WWU server, same;
    cl_device_id devices[8], device;
    cl_uint before, listed;
    cl_int code;
    cl_bool available;
    cl_link_route route;
    cl_ulong age;
    size_t size;

    CHECK(argc == 2);
    CHECK(clGetPlatformIDs(1, &platform, NULL) == CL_SUCCESS);
    CHECK(clGetPlatformInfo(platform, CL_PLATFORM_EXTENSIONS, sizeof extensions, extensions, NULL) == CL_SUCCESS);
    CHECK(strstr(extensions, CL_WWU_SERVER_EXTENSION_NAME) != NULL);
    connect_server = (clConnectServerWWU_fn)function(platform, "clConnectServerWWU");
    disconnect_server = (clDisconnectServerWWU_fn)function(platform, "clDisconnectServerWWU");
    server_info = (clGetServerInfoWWU_fn)function(platform, "clGetServerInfoWWU");
    link_info = (clGetLinkInfoWWU_fn)function(platform, "clGetLinkInfoWWU");

    before = count_devices(platform);
    server = connect_server(argv[1], &code);
    CHECK(server != NULL && code == CL_SUCCESS);
    CHECK(server_info(server, CL_SERVER_NUM_DEVICES_WWU, sizeof listed, &listed, NULL) == CL_SUCCESS);
    CHECK(count_devices(platform) == before + listed && listed >= 1);
    CHECK(server_info(server, CL_SERVER_ADDRESS_WWU, sizeof address, address, NULL) == CL_SUCCESS);
    CHECK(strcmp(address, argv[1]) == 0);
    CHECK(server_info(server, CL_SERVER_DEVICES_WWU, sizeof devices, devices, NULL) == CL_SUCCESS);
    device = devices[listed - 1];
    CHECK(clGetDeviceInfo(device, CL_DEVICE_SERVER_WWU, sizeof same, &same, NULL) == CL_SUCCESS);
    CHECK(same == server);
    CHECK(link_info(device, device, CL_LINK_ROUTE_WWU, sizeof route, &route, &size) == CL_SUCCESS);
    CHECK(route == CL_LINK_ROUTE_SAME_SERVER_WWU && size == sizeof route);
    CHECK(link_info(device, device, CL_LINK_AGE_WWU, sizeof age, &age, NULL) == CL_SUCCESS);
    CHECK(age == CL_ULONG_MAX);
    CHECK(link_info(device, NULL, CL_LINK_ROUTE_WWU, sizeof route, &route, NULL) == CL_INVALID_DEVICE);
    CHECK(link_info(device, device, CL_LINK_ROUTE_WWU, 1, &route, NULL) == CL_INVALID_VALUE);

    CHECK(disconnect_server(server) == CL_SUCCESS);
    CHECK(count_devices(platform) == before);
    CHECK(clGetDeviceInfo(device, CL_DEVICE_AVAILABLE, sizeof available, &available, NULL) == CL_SUCCESS);
    CHECK(available == CL_FALSE);
    CHECK(connect_server("no-such-host.invalid", &code) == NULL);
    CHECK(code == CL_CONNECTION_FAILURE_WWU);
    printf("before %u, with the server %u\n", (unsigned)before, (unsigned)(before + listed));
    return 0;
}
