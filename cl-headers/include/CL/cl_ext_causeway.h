/*
 * cl_wwu_server: servers that come and go while a program runs. Version 1.1.0.
 *
 * The platform "Causeway" offers the OpenCL devices of other machines as its own. Usually its configuration
 * names those machines. With this extension a program adds and removes machines itself. It also queries
 * where a device is, its round-trip time, the bandwidth to it, and the link between two devices.
 *
 * A SERVER is one machine that runs causewayd, however many addresses it has. Connecting a server appends its
 * devices to the list that clGetDeviceIDs returns from then on. Devices of different servers may share a
 * context.
 *
 * No loader exports the functions. Get each of them by clGetExtensionFunctionAddressForPlatform, if
 * CL_PLATFORM_EXTENSIONS lists cl_wwu_server:
 *
 *     clConnectServerWWU_fn connect = (clConnectServerWWU_fn)
 *         clGetExtensionFunctionAddressForPlatform(platform, "clConnectServerWWU");
 *     cl_int error;
 *     cl_server_WWU server = connect("render3.example.org", &error);
 *
 * All functions may be called from any thread. In a child of fork() whose parent used the platform, they
 * fail as every OpenCL function does there. The names are those of dOpenCL by Kegel, Steuwer and Gorlatch
 * (University of Muenster, WWU).
 *
 * Include it beside <CL/cl.h>. C99 or later, or C++.
 */
#ifndef OPENCL_CL_EXT_CAUSEWAY_H_
#define OPENCL_CL_EXT_CAUSEWAY_H_

#include <CL/cl.h>

#ifdef __cplusplus
extern "C" {
#endif

#define cl_wwu_server 1
#define CL_WWU_SERVER_EXTENSION_NAME "cl_wwu_server"

/*
 * A handle of a server. Handles of the same server are equal. A handle stays valid until the process ends,
 * also while the server is disconnected or lost.
 */
typedef struct _cl_server_WWU *cl_server_WWU;

/* A query of clGetServerInfoWWU. */
typedef cl_uint cl_server_info;

/* A query of clGetLinkInfoWWU, and the way of bytes between two devices. Since version 1.1.0. */
typedef cl_uint cl_link_info;
typedef cl_uint cl_link_route;

/* ---- error codes ------------------------------------------------------------------------------ */

/* The handle is not a server. */
#define CL_INVALID_SERVER_WWU                    -57500
/*
 * The server did not answer in time, is not a Causeway server of this version, or refused the connection.
 * The platform's log (stderr; CAUSEWAY_LOG) says which.
 */
#define CL_CONNECTION_FAILURE_WWU                -57501

/* ---- cl_server_info --------------------------------------------------------------------------- */
/* No query waits for the network. The numbers begin with "WWU" in ASCII. */

/* char[]: "host:port", the address at which it was first reached; IPv6 literals in brackets. */
#define CL_SERVER_ADDRESS_WWU                    0x57575500
/* char[]: its display name from the configuration, else the name that the server reports. */
#define CL_SERVER_NAME_WWU                       0x57575501
/*
 * cl_uchar[16]: identifies the server, whatever its address. It stays when causewayd is restarted. Exceptions: a private
 * causewayd, one without a folder for its state, and a second one that uses the same folder.
 */
#define CL_SERVER_UUID_WWU                       0x57575502
/* char[]: the version of its causewayd. */
#define CL_SERVER_DAEMON_VERSION_WWU             0x57575503
/* cl_bool: CL_FALSE from when it is disconnected until it is connected again. */
#define CL_SERVER_CONNECTED_WWU                  0x57575504
/*
 * cl_bool: whether it is connected and answered the last request. clGetDeviceIDs (from time to time) and the
 * creation of a context on its devices try to reach a lost server again.
 */
#define CL_SERVER_AVAILABLE_WWU                  0x57575505
/* cl_uint: the number of its devices. */
#define CL_SERVER_NUM_DEVICES_WWU                0x57575506
/* cl_device_id[]: its devices, in the order of clGetDeviceIDs, also while it is disconnected or lost. */
#define CL_SERVER_DEVICES_WWU                    0x57575507
/* cl_uint: see clConnectServerWWU. Consider it stale immediately, as every reference count. */
#define CL_SERVER_REFERENCE_COUNT_WWU            0x57575508
/* cl_ulong: as CL_DEVICE_ROUND_TRIP_TIME_WWU. */
#define CL_SERVER_ROUND_TRIP_TIME_WWU            0x57575509
/* cl_ulong: as CL_DEVICE_BANDWIDTH_WWU. */
#define CL_SERVER_BANDWIDTH_WWU                  0x5757550A
/*
 * cl_bool: whether the connections to the server are broken and its session waits for new ones. Commands then
 * wait, and none fails. CL_SERVER_AVAILABLE_WWU stays CL_TRUE. Since version 1.1.0.
 */
#define CL_SERVER_AWAY_WWU                       0x5757550B
/*
 * cl_ulong: how often the process's session on the server was resumed after a break. 0 without a session; a
 * session that replaces a lost one counts anew. Since version 1.1.0.
 */
#define CL_SERVER_RESUMED_WWU                    0x5757550C

/* ---- cl_device_info --------------------------------------------------------------------------- */

/* cl_server_WWU: the server of a device. Takes no reference. */
#define CL_DEVICE_SERVER_WWU                     0x57575520
/*
 * cl_ulong: the shortest round-trip time to the device's server, in nanoseconds, since it was last connected.
 * Half of it bounds the error of the profiling times of its devices. 0: not measured.
 */
#define CL_DEVICE_ROUND_TRIP_TIME_WWU            0x57575521
/*
 * cl_ulong: the bandwidth to the device's server, in bytes per second, of recent large transfers of this
 * process. Before those, the lower bandwidth of the two directions that "causeway links --measure" has measured in the
 * last 30 days. 0: there is neither. The query sends nothing to measure it.
 */
#define CL_DEVICE_BANDWIDTH_WWU                  0x57575522

/* ---- cl_link_info ----------------------------------------------------------------------------- */
/* The figures are those of the present route. Since version 1.1.0. */

/* cl_link_route: how bytes get from the first device to the second. Does not wait for the network. */
#define CL_LINK_ROUTE_WWU                        0x57575540
/*
 * cl_ulong: the shortest round-trip time in nanoseconds. Through the program, the sum of both servers'
 * CL_DEVICE_ROUND_TRIP_TIME_WWU. Between two servers, what "causeway links --measure" has measured. 0: not known.
 * Servers of a device manager do not tell what was measured.
 */
#define CL_LINK_ROUND_TRIP_TIME_WWU              0x57575541
/*
 * cl_ulong: the bandwidth from the first device to the second, in bytes per second, of transfers of this process of
 * 8 MiB and more. Before those, what "causeway links --measure" has measured in the last 30 days. 0: not known.
 */
#define CL_LINK_BANDWIDTH_WWU                    0x57575542
/* cl_ulong: the age of the bandwidth in nanoseconds. CL_ULONG_MAX: the bandwidth is not known. */
#define CL_LINK_AGE_WWU                          0x57575543

/* ---- cl_link_route ---------------------------------------------------------------------------- */

/* Both devices are of one server. No network is between them, and round trip and bandwidth are 0. */
#define CL_LINK_ROUTE_SAME_SERVER_WWU            0x57575550
/* Between the two servers. Also before a transfer has shown whether they can reach each other. */
#define CL_LINK_ROUTE_DIRECT_WWU                 0x57575551
/* Through this program: the servers cannot reach each other, or their link is interrupted. */
#define CL_LINK_ROUTE_VIA_CLIENT_WWU             0x57575552

/* ---- functions -------------------------------------------------------------------------------- */

/*
 * Connects a server: clGetDeviceIDs lists its devices from then on. Waits at most one second until the server
 * accepts the connection, and then at most its answer_limit (3 s by default) for its answer. The call waits as
 * long again for configured servers, if the program has never queried devices before.
 *
 * url  "host", "host:port", "[IPv6 address]", "[IPv6 address]:port", with an optional "causeway://" before it
 *      and an optional "/" after it. The default port is 7079.
 *
 * For a server that is known already, by this address or another one, the same handle is returned, and no
 * devices are added. Each successful call takes one reference, and so does the configuration. The server stays
 * connected as long as there is a reference. A server that was disconnected is connected again, and its
 * devices have the same cl_device_id as before.
 *
 * Returns the server and, if errcode_ret is not NULL, CL_SUCCESS. Otherwise returns NULL and the first of
 * these codes that applies:
 *   CL_INVALID_VALUE           url is NULL or not of the form above;
 *   CL_INVALID_PLATFORM        there is no platform: nothing is configured, or the process is a server's own;
 *   CL_CONNECTION_FAILURE_WWU  see above; nothing has changed then;
 *   CL_OUT_OF_RESOURCES, CL_OUT_OF_HOST_MEMORY.
 */
typedef cl_server_WWU (CL_API_CALL *clConnectServerWWU_fn)(
    const char *url,
    cl_int     *errcode_ret);

/*
 * Releases one reference. The last release disconnects the server: clGetDeviceIDs no longer lists its
 * devices, and their CL_DEVICE_AVAILABLE is CL_FALSE, but their handles stay valid for queries. Contexts with
 * these devices lose the server as if it had failed. Commands that are not complete there soon end with a
 * negative status. The other servers of such a context continue. Memory objects keep their contents as far as
 * another server or the host has them. Creation of a context on a device of the server fails with
 * CL_DEVICE_NOT_AVAILABLE. Does not wait for the network.
 *
 * Returns CL_SUCCESS or the first of these codes that applies:
 *   CL_INVALID_SERVER_WWU      server is not a server;
 *   CL_INVALID_OPERATION       the server is disconnected;
 *   CL_OUT_OF_RESOURCES, CL_OUT_OF_HOST_MEMORY.
 */
typedef cl_int (CL_API_CALL *clDisconnectServerWWU_fn)(
    cl_server_WWU server);

/*
 * Queries a property of a server. The last three arguments have the meaning that they have in clGet*Info.
 *
 * Returns CL_SUCCESS or the first of these codes that applies:
 *   CL_INVALID_SERVER_WWU      server is not a server;
 *   CL_INVALID_VALUE           param_name is not a known query, or param_value is not NULL and
 *                              param_value_size is too small;
 *   CL_OUT_OF_RESOURCES, CL_OUT_OF_HOST_MEMORY.
 */
typedef cl_int (CL_API_CALL *clGetServerInfoWWU_fn)(
    cl_server_WWU  server,
    cl_server_info param_name,
    size_t         param_value_size,
    void          *param_value,
    size_t        *param_value_size_ret);

/*
 * Queries the link from one device to another one. The last three arguments have the meaning that they have in
 * clGet*Info. Nothing is measured. A query of a figure between two servers asks both of them at most once a minute what
 * the user has had measured there, and waits a second for each at most. Since version 1.1.0.
 *
 * Returns CL_SUCCESS or the first of these codes that applies:
 *   CL_INVALID_DEVICE          from or to is not a device;
 *   CL_INVALID_VALUE           param_name is not a known query, or param_value is not NULL and
 *                              param_value_size is too small;
 *   CL_OUT_OF_RESOURCES, CL_OUT_OF_HOST_MEMORY.
 */
typedef cl_int (CL_API_CALL *clGetLinkInfoWWU_fn)(
    cl_device_id   from,
    cl_device_id   to,
    cl_link_info   param_name,
    size_t         param_value_size,
    void          *param_value,
    size_t        *param_value_size_ret);

#ifdef __cplusplus
}
#endif

#endif /* OPENCL_CL_EXT_CAUSEWAY_H_ */
