/*
 * cl_wwu_server: servers that come and go while a program runs. Version 1.0.0.
 *
 * The platform "Causeway" shows the OpenCL devices of other machines as its own. Which machines those are
 * usually stands in its configuration. With this extension a program adds and removes machines itself,
 * and asks where a device is, how far away, and how fast bytes get there.
 *
 * A SERVER is one machine that runs causewayd, however many addresses it has. Connecting it adds its
 * devices to the list that clGetDeviceIDs returns from then on, behind those that are there; devices of
 * different servers may share a context.
 *
 * The functions are not exported by any loader. Get each one by clGetExtensionFunctionAddressForPlatform,
 * once CL_PLATFORM_EXTENSIONS names cl_wwu_server:
 *
 *     clConnectServerWWU_fn connect = (clConnectServerWWU_fn)
 *         clGetExtensionFunctionAddressForPlatform(platform, "clConnectServerWWU");
 *     cl_int error;
 *     cl_server_WWU server = connect("render3.example.org", &error);
 *
 * All functions may be called from any thread. In a child of fork() whose parent used the platform they
 * fail as every OpenCL function does there. The names are those that Kegel, Steuwer and Gorlatch gave
 * them in dOpenCL (University of Muenster, WWU).
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
 * A server. Handles of the same server are equal, and stay valid until the process ends, also while the
 * server is disconnected or lost.
 */
typedef struct _cl_server_WWU *cl_server_WWU;

/* What clGetServerInfoWWU can be asked. */
typedef cl_uint cl_server_info;

/* ---- error codes ------------------------------------------------------------------------------ */

/* The handle is not a server. */
#define CL_INVALID_SERVER_WWU                    -57500
/*
 * The server could not be reached within a second, does not speak as a Causeway server of this version
 * does, or refused. The platform's log (stderr; CAUSEWAY_LOG) says which.
 */
#define CL_CONNECTION_FAILURE_WWU                -57501

/* ---- cl_server_info --------------------------------------------------------------------------- */
/* All of them are answered without the network. The numbers begin with "WWU" in ASCII. */

/* char[]: "host:port", where it was first reached; IPv6 literals in brackets. */
#define CL_SERVER_ADDRESS_WWU                    0x57575500
/* char[]: the name for people that the configuration gives it, else the one it gives itself. */
#define CL_SERVER_NAME_WWU                       0x57575501
/* cl_uchar[16]: tells it from all others, whatever its address; another one when causewayd was restarted. */
#define CL_SERVER_UUID_WWU                       0x57575502
/* char[]: the version of its causewayd. */
#define CL_SERVER_DAEMON_VERSION_WWU             0x57575503
/* cl_bool: CL_FALSE once it was disconnected, until it is connected again. */
#define CL_SERVER_CONNECTED_WWU                  0x57575504
/*
 * cl_bool: whether it is connected and answered when it was last spoken to. A lost server is asked again
 * by clGetDeviceIDs (every now and then) and by the creation of a context on its devices.
 */
#define CL_SERVER_AVAILABLE_WWU                  0x57575505
/* cl_uint: the number of its devices. */
#define CL_SERVER_NUM_DEVICES_WWU                0x57575506
/* cl_device_id[]: its devices, in the order of clGetDeviceIDs; also while it is disconnected or lost. */
#define CL_SERVER_DEVICES_WWU                    0x57575507
/* cl_uint: see clConnectServerWWU. To be taken as stale at once, as all reference counts. */
#define CL_SERVER_REFERENCE_COUNT_WWU            0x57575508
/* cl_ulong: as CL_DEVICE_ROUND_TRIP_TIME_WWU. */
#define CL_SERVER_ROUND_TRIP_TIME_WWU            0x57575509
/* cl_ulong: as CL_DEVICE_BANDWIDTH_WWU. */
#define CL_SERVER_BANDWIDTH_WWU                  0x5757550A

/* ---- cl_device_info --------------------------------------------------------------------------- */

/* cl_server_WWU: the server of a device. Takes no reference. */
#define CL_DEVICE_SERVER_WWU                     0x57575520
/*
 * cl_ulong: nanoseconds from here to the device's server and back, the least that was measured since it
 * was last connected; half of it bounds the error of the profiling times of its devices. 0: not measured.
 */
#define CL_DEVICE_ROUND_TRIP_TIME_WWU            0x57575521
/*
 * cl_ulong: bytes per second between here and the device's server, as large transfers of this process
 * went lately. 0: there was none yet. Nothing is sent to find out.
 */
#define CL_DEVICE_BANDWIDTH_WWU                  0x57575522

/* ---- functions -------------------------------------------------------------------------------- */

/*
 * Connects a server: its devices join the list of clGetDeviceIDs. Waits for the server, one second at
 * most (and as long for configured servers, if the program never asked for devices before).
 *
 * url  "host", "host:port", "[IPv6 address]", "[IPv6 address]:port"; "causeway://" may stand before it
 *      and "/" behind it. Without a port it is 7079.
 *
 * A server that is known already, by this address or another one, is given back once more and has no
 * second set of devices. Each successful call, and the configuration as well, holds one reference; as long
 * as there is one the server is connected. A server that was disconnected is connected again, and its
 * devices are the same cl_device_id as before.
 *
 * Returns the server and, if errcode_ret is not NULL, CL_SUCCESS; otherwise NULL and the first that
 * applies of
 *   CL_INVALID_VALUE           url is NULL or not of the form above;
 *   CL_INVALID_PLATFORM        there is no platform: nothing is configured, or this is a server's own
 *                              process;
 *   CL_CONNECTION_FAILURE_WWU  see above; nothing has changed then;
 *   CL_OUT_OF_RESOURCES, CL_OUT_OF_HOST_MEMORY.
 */
typedef cl_server_WWU (CL_API_CALL *clConnectServerWWU_fn)(
    const char *url,
    cl_int     *errcode_ret);

/*
 * Gives one reference back. With the last one the server is disconnected: clGetDeviceIDs lists its
 * devices no more and CL_DEVICE_AVAILABLE of them is CL_FALSE, but their handles stay valid for queries.
 * Contexts made of them lose this server as if it had failed: commands that have not completed there end
 * with a negative status, soon; the other servers of such a context go on. Memory objects keep their
 * contents as far as another server or the host has them. A new context on a device of it is refused with
 * CL_DEVICE_NOT_AVAILABLE. Does not wait for the network.
 *
 * Returns CL_SUCCESS or the first that applies of
 *   CL_INVALID_SERVER_WWU      server is not a server;
 *   CL_INVALID_OPERATION       it is disconnected;
 *   CL_OUT_OF_RESOURCES, CL_OUT_OF_HOST_MEMORY.
 */
typedef cl_int (CL_API_CALL *clDisconnectServerWWU_fn)(
    cl_server_WWU server);

/*
 * Tells of a server, with the usual meaning of the last three arguments.
 *
 * Returns CL_SUCCESS or the first that applies of
 *   CL_INVALID_SERVER_WWU      server is not a server;
 *   CL_INVALID_VALUE           param_name is none of cl_server_info, or param_value is not NULL and
 *                              param_value_size is too small;
 *   CL_OUT_OF_RESOURCES, CL_OUT_OF_HOST_MEMORY.
 */
typedef cl_int (CL_API_CALL *clGetServerInfoWWU_fn)(
    cl_server_WWU  server,
    cl_server_info param_name,
    size_t         param_value_size,
    void          *param_value,
    size_t        *param_value_size_ret);

#ifdef __cplusplus
}
#endif

#endif /* OPENCL_CL_EXT_CAUSEWAY_H_ */
