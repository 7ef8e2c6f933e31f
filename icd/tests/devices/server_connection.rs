//! Tests servers that are connected and disconnected while the program runs. Devices come and go, handles stay, and a
//! node is one server under all of its addresses.

use std::ptr::{null, null_mut};

use crate::frames::servers::*;

fn references(server: cl_server_WWU) -> u64 {
    number(&server_info(server, CL_SERVER_REFERENCE_COUNT_WWU))
}

#[test]
fn devices_come_and_go_with_their_servers() {
    own_process!();
    let first = Daemon::start("[[device]]\nname = \"A\"\ncount = 2");
    let second = Daemon::start("[[device]]\nname = \"B\"");
    configure(&format!("{},{}", first.address, first.other_address()));

    // ---- configured twice, listed once
    assert_eq!(names(), ["A", "A"]);
    let configured = devices();
    let home = server_of(configured[0]);
    assert_eq!(server_of(configured[1]), home);
    assert_eq!(references(home), 1);
    arguments_are_checked(home);

    // ---- connected: listed after the existing ones
    let server = connect(&second.address.to_string()).expect("the server is there");
    assert_ne!(server, home);
    let all = devices();
    assert_eq!(all[..2], configured);
    assert_eq!(devices_of(server), all[2..]);
    assert_eq!(name_of(all[2]), "B");
    assert_eq!(server_of(all[2]), server);

    // ---- another address names the same server, without duplicates
    let url = format!("causeway://{}/", second.other_address());
    assert_eq!(connect(&url), Ok(server));
    assert_eq!(references(server), 2);
    assert_eq!(devices(), all);
    told(server, &second);

    // ---- one reference less: the server stays
    let device = all[2];
    let context = context(device).expect("a context");
    let queue = make!(clCreateCommandQueue(context, device, 0)).expect("a queue");
    assert_eq!(round_trip(context, queue), CL_SUCCESS);
    assert_eq!(disconnect(server), CL_SUCCESS);
    assert_eq!(round_trip(context, queue), CL_SUCCESS);

    // ---- the last reference: the devices are gone, the handles stay
    let gate = make!(clCreateUserEvent(context)).expect("a user event");
    let mut held = null_mut();
    ok!(clEnqueueMarkerWithWaitList(
        queue,
        1,
        &raw const gate,
        &raw mut held
    ));
    assert_eq!(disconnect(server), CL_SUCCESS);
    assert_eq!(devices(), configured);
    assert!(!is_available(device) && is_available(configured[0]));
    assert_eq!(name_of(device), "B");
    assert_eq!(server_info(server, CL_SERVER_CONNECTED_WWU), [0; 4]);
    assert_eq!(devices_of(server), [device]);
    assert!(
        code!(clWaitForEvents(1, &raw const held)) < 0,
        "what runs there ends, in failure"
    );
    assert_eq!(round_trip(context, queue), CL_DEVICE_NOT_AVAILABLE);
    assert_eq!(try_out(device), CL_DEVICE_NOT_AVAILABLE);
    assert_eq!(try_out(configured[1]), CL_SUCCESS, "the other one goes on");
    assert_eq!(disconnect(server), CL_INVALID_OPERATION);

    // ---- connected again
    assert_eq!(connect(&second.address.to_string()), Ok(server));
    assert_eq!(devices(), all);
    assert!(is_available(device));
    assert_eq!(try_out(device), CL_SUCCESS);
    assert_eq!(
        round_trip(context, queue),
        CL_DEVICE_NOT_AVAILABLE,
        "what was lost stays lost"
    );

    // ---- a configured server can be disconnected too
    assert_eq!(disconnect(home), CL_SUCCESS);
    assert_eq!(devices(), [device]);
    assert_eq!(try_out(configured[0]), CL_DEVICE_NOT_AVAILABLE);
    assert_eq!(connect(&first.other_address()), Ok(home));
    let mut sorted = devices();
    sorted.sort();
    let mut expected = all.clone();
    expected.sort();
    assert_eq!(sorted, expected);

    bandwidth_is_seen(configured[1]);
    the_rest_of_a_shared_context_goes_on(configured[0], device, server);

    ok!(clReleaseEvent(held));
    ok!(clSetUserEventStatus(gate, CL_COMPLETE));
    ok!(clReleaseEvent(gate));
    ok!(clReleaseCommandQueue(queue));
    ok!(clReleaseContext(context));
}

fn bandwidth_is_seen(device: cl_device_id) {
    assert_eq!(number(&device_info(device, CL_DEVICE_BANDWIDTH_WWU)), 0);
    read_much(device);
    assert_ne!(number(&device_info(device, CL_DEVICE_BANDWIDTH_WWU)), 0);
}

/// Reads so much from a device that the process learns its bandwidth.
pub(crate) fn read_much(device: cl_device_id) {
    const SIZE: usize = 64 << 20;
    let context = context(device).expect("a context");
    let queue = make!(clCreateCommandQueue(context, device, 0)).expect("a queue");
    let buffer =
        make!(clCreateBuffer(context, CL_MEM_READ_WRITE, SIZE, null_mut())).expect("a buffer");
    let mut bytes = vec![0u8; SIZE];
    ok!(clEnqueueReadBuffer(
        queue,
        buffer,
        CL_TRUE,
        0,
        SIZE,
        bytes.as_mut_ptr().cast(),
        0,
        null(),
        null_mut()
    ));
    ok!(clReleaseMemObject(buffer));
    ok!(clReleaseCommandQueue(queue));
    ok!(clReleaseContext(context));
}

fn the_rest_of_a_shared_context_goes_on(
    here: cl_device_id,
    there: cl_device_id,
    server: cl_server_WWU,
) {
    let both = [here, there];
    let context = make!(clCreateContext(null(), 2, both.as_ptr(), None, null_mut()))
        .expect("a context of both");
    let queue = make!(clCreateCommandQueue(context, here, 0)).expect("a queue");
    assert_eq!(round_trip(context, queue), CL_SUCCESS);
    assert_eq!(disconnect(server), CL_SUCCESS);
    assert!(is_available(here) && !is_available(there));
    for _ in 0..3 {
        assert_eq!(round_trip(context, queue), CL_SUCCESS);
    }
    ok!(clReleaseCommandQueue(queue));
    ok!(clReleaseContext(context));
}

fn arguments_are_checked(server: cl_server_WWU) {
    assert_eq!(connect_raw(null()), Err(CL_INVALID_VALUE));
    for url in ["", "http://localhost", "localhost:0", "a b"] {
        assert_eq!(connect(url), Err(CL_INVALID_VALUE), "{url:?}");
    }
    let nobody = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = nobody.local_addr().expect("an address").to_string();
    drop(nobody);
    assert_eq!(connect(&address), Err(CL_CONNECTION_FAILURE_WWU));

    let foreign: cl_server_WWU = platform();
    for handle in [null_mut(), foreign] {
        assert_eq!(disconnect(handle), CL_INVALID_SERVER_WWU);
        let code = server_info_code(handle, CL_SERVER_NAME_WWU, 0, null_mut(), null_mut());
        assert_eq!(code, CL_INVALID_SERVER_WWU);
    }
    let mut byte = 0u8;
    let room = (&raw mut byte).cast();
    let code = server_info_code(server, CL_SERVER_NUM_DEVICES_WWU, 1, room, null_mut());
    assert_eq!(code, CL_INVALID_VALUE, "too little room");
    let code = server_info_code(server, CL_DEVICE_SERVER_WWU, 0, null_mut(), null_mut());
    assert_eq!(code, CL_INVALID_VALUE, "another object's name");
}

fn told(server: cl_server_WWU, daemon: &Daemon) {
    let said = |name| text(&server_info(server, name));
    assert_eq!(said(CL_SERVER_ADDRESS_WWU), daemon.address.to_string());
    assert!(!said(CL_SERVER_NAME_WWU).is_empty());
    assert_eq!(
        said(CL_SERVER_DAEMON_VERSION_WWU),
        env!("CARGO_PKG_VERSION")
    );
    let uuid = server_info(server, CL_SERVER_UUID_WWU);
    assert!(uuid.len() == 16 && uuid != [0; 16]);
    assert_eq!(server_info(server, CL_SERVER_CONNECTED_WWU), [1, 0, 0, 0]);
    assert_eq!(server_info(server, CL_SERVER_AVAILABLE_WWU), [1, 0, 0, 0]);
    assert_eq!(server_info(server, CL_SERVER_NUM_DEVICES_WWU), [1, 0, 0, 0]);
    let round_trip = server_info(server, CL_SERVER_ROUND_TRIP_TIME_WWU);
    assert!(
        (1..1_000_000_000).contains(&number(&round_trip)),
        "{round_trip:?}"
    );
    assert_eq!(
        number(&server_info(server, CL_SERVER_BANDWIDTH_WWU)),
        0,
        "nothing was moved yet"
    );
    let device = devices_of(server)[0];
    assert_eq!(
        device_info(device, CL_DEVICE_ROUND_TRIP_TIME_WWU),
        round_trip
    );
    assert_eq!(device_info(device, CL_DEVICE_BANDWIDTH_WWU), [0; 8]);
}
