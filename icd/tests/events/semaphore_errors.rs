//! Tests which calls on semaphores are refused, with which code, and what queries answer.

use std::ptr::{null, null_mut};

use crate::frames::opencl::*;
use crate::frames::signalled::*;

#[test]
fn creation_wants_a_type_and_at_most_one_device_of_the_context() {
    let cl = Fixture::new();
    let code = |properties: Option<&[u64]>| create(cl.context, properties).err();
    let device = cl.device.expose_provenance() as u64;
    let queue = cl.queue.expose_provenance() as u64;
    assert_eq!(
        create(null_mut(), Some(&[TYPE, BINARY, 0])),
        Err(CL_INVALID_CONTEXT)
    );
    assert_eq!(
        create(cl.queue.cast(), Some(&[TYPE, BINARY, 0])),
        Err(CL_INVALID_CONTEXT)
    );
    assert_eq!(code(None), Some(CL_INVALID_VALUE));
    assert_eq!(code(Some(&[0])), Some(CL_INVALID_VALUE));
    assert_eq!(code(Some(&[DEVICES, device, 0, 0])), Some(CL_INVALID_VALUE));
    for wrong in [
        &[TYPE, BINARY, TYPE, BINARY, 0][..],
        &[TYPE, 2, 0],
        &[TYPE, u64::MAX, 0],
        &[u64::MAX, BINARY, 0],
        &[TYPE, BINARY, u64::from(CL_QUEUE_PROPERTIES), 0, 0],
        &[TYPE, BINARY, DEVICES, device, 0, DEVICES, device, 0, 0],
        // A property of an extension that is not offered.
        &[TYPE, BINARY, CL_SEMAPHORE_EXPORT_HANDLE_TYPES_KHR, 0, 0],
    ] {
        assert_eq!(code(Some(wrong)), Some(CL_INVALID_PROPERTY), "{wrong:?}");
    }
    for wrong in [
        &[TYPE, BINARY, DEVICES, 0, 0][..],
        &[TYPE, BINARY, DEVICES, queue, 0, 0],
        &[TYPE, BINARY, DEVICES, device, device, 0, 0],
    ] {
        assert_eq!(code(Some(wrong)), Some(CL_INVALID_DEVICE), "{wrong:?}");
    }
}

#[test]
fn queries_answer_what_it_was_made_with() {
    let cl = Fixture::new();
    let device = cl.device.expose_provenance() as u64;
    for properties in [
        &[TYPE, BINARY, 0][..],
        &[TYPE, BINARY, DEVICES, device, 0, 0],
        &[DEVICES, device, 0, TYPE, BINARY, 0],
    ] {
        let raw = create(cl.context, Some(properties)).expect("a semaphore");
        assert_eq!(
            info(raw, CL_SEMAPHORE_TYPE_KHR, 77u32),
            CL_SEMAPHORE_TYPE_BINARY_KHR
        );
        assert_eq!(info(raw, CL_SEMAPHORE_CONTEXT_KHR, null_mut()), cl.context);
        assert_eq!(
            info(raw, CL_SEMAPHORE_DEVICE_HANDLE_LIST_KHR, null_mut()),
            cl.device
        );
        assert_eq!(payload(raw), 0);
        let (mut back, mut size) = ([77u64; 6], 0);
        let name = CL_SEMAPHORE_PROPERTIES_KHR;
        let to = back.as_mut_ptr().cast();
        assert_eq!(call!(info(raw, name, 48, to, &raw mut size)), CL_SUCCESS);
        assert_eq!(back[..size / 8], *properties);
        assert_eq!(call!(info(raw, name, 8, to, null_mut())), CL_INVALID_VALUE);
        let none = null_mut();
        assert_eq!(
            call!(info(raw, u32::MAX, 0, none, none.cast())),
            CL_INVALID_VALUE
        );
        let exportable = CL_SEMAPHORE_EXPORTABLE_KHR;
        assert_eq!(
            call!(info(raw, exportable, 0, none, none.cast())),
            CL_INVALID_VALUE
        );
        let_go(raw);
    }
}

#[test]
fn handles_count_and_die() {
    let cl = Fixture::new();
    let raw = semaphore(cl.context);
    let count = || info(raw, CL_SEMAPHORE_REFERENCE_COUNT_KHR, 77u32);
    assert_eq!(count(), 1);
    assert_eq!(call!(retain(raw)), CL_SUCCESS);
    assert_eq!(count(), 2);
    let_go(raw);
    assert_eq!(count(), 1);
    let_go(raw);
    for dead in [raw, null_mut(), cl.queue.cast()] {
        assert_eq!(call!(retain(dead)), CL_INVALID_SEMAPHORE_KHR);
        assert_eq!(call!(release(dead)), CL_INVALID_SEMAPHORE_KHR);
        let name = CL_SEMAPHORE_TYPE_KHR;
        let asked = call!(info(dead, name, 0, null_mut(), null_mut()));
        assert_eq!(asked, CL_INVALID_SEMAPHORE_KHR);
        assert_eq!(
            try_signal(cl.queue, &[dead], &[]),
            Err(CL_INVALID_SEMAPHORE_KHR)
        );
        assert_eq!(
            try_wait(cl.queue, &[dead], &[]),
            Err(CL_INVALID_SEMAPHORE_KHR)
        );
    }
}

/// Signal or wait.
type Enqueue = fn(cl_command_queue, &[cl_semaphore_khr], &[cl_event]) -> Result<cl_event, cl_int>;

#[test]
fn commands_want_a_queue_semaphores_and_a_wait_list_of_one_context() {
    let cl = Fixture::new();
    let other = Fixture::new();
    let raw = semaphore(cl.context);
    let strange = other.user_event();
    let own = cl.user_event();
    // A signal, in case that one of the waits is enqueued.
    assert_eq!(finish(signal(cl.queue, raw, &[])), CL_COMPLETE);
    for enqueue in [try_signal as Enqueue, try_wait] {
        for wrong in [null_mut(), cl.context.cast()] {
            assert_eq!(enqueue(wrong, &[raw], &[]), Err(CL_INVALID_COMMAND_QUEUE));
        }
        assert_eq!(enqueue(cl.queue, &[], &[]), Err(CL_INVALID_VALUE));
        let some_dead = [raw, null_mut()];
        assert_eq!(
            enqueue(cl.queue, &some_dead, &[]),
            Err(CL_INVALID_SEMAPHORE_KHR)
        );
        assert_eq!(enqueue(other.queue, &[raw], &[]), Err(CL_INVALID_CONTEXT));
        assert_eq!(
            enqueue(cl.queue, &[raw], &[strange]),
            Err(CL_INVALID_CONTEXT)
        );
        let no_event = [own, null_mut()];
        assert_eq!(
            enqueue(cl.queue, &[raw], &no_event),
            Err(CL_INVALID_EVENT_WAIT_LIST)
        );
    }
    let (list, event) = (&raw const raw, null_mut());
    for (count, events) in [(0, &raw const own), (1, null())] {
        let code = call!(signal(cl.queue, 1, list, null(), count, events, event));
        assert_eq!(code, CL_INVALID_EVENT_WAIT_LIST);
        let code = call!(wait(cl.queue, 1, list, null(), count, events, event));
        assert_eq!(code, CL_INVALID_EVENT_WAIT_LIST);
    }
    for (count, list) in [(0, list), (1, null())] {
        let code = call!(signal(cl.queue, count, list, null(), 0, null(), event));
        assert_eq!(code, CL_INVALID_VALUE);
        let code = call!(wait(cl.queue, count, list, null(), 0, null(), event));
        assert_eq!(code, CL_INVALID_VALUE);
    }
    assert_eq!(payload(raw), 1, "no command was enqueued");
    for event in [strange, own] {
        ok!(clReleaseEvent(event));
    }
    let_go(raw);
}

#[test]
fn device_and_platform_say_that_they_are_there_and_that_no_handles_are() {
    let cl = Fixture::new();
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).expect("text");
    let mut size = 0;
    let mut room = vec![0u8; 1 << 16];
    let to = room.as_mut_ptr().cast();
    let at = &raw mut size;
    ok!(clGetDeviceInfo(
        cl.device,
        CL_DEVICE_EXTENSIONS,
        room.len(),
        to,
        at
    ));
    let of_device = text(room[..size - 1].to_vec());
    ok!(clGetPlatformInfo(
        platform(),
        CL_PLATFORM_EXTENSIONS,
        room.len(),
        to,
        at
    ));
    let of_platform = text(room[..size - 1].to_vec());
    for names in [of_device, of_platform] {
        assert!(
            names.split(' ').any(|name| name == "cl_khr_semaphore"),
            "{names}"
        );
        assert!(!names.contains("cl_khr_external_semaphore"), "{names}");
    }
    let mut types = [77u32; 2];
    let to = types.as_mut_ptr().cast();
    ok!(clGetDeviceInfo(
        cl.device,
        CL_DEVICE_SEMAPHORE_TYPES_KHR,
        8,
        to,
        at
    ));
    assert_eq!((types, size), ([CL_SEMAPHORE_TYPE_BINARY_KHR, 77], 4));
    ok!(clGetPlatformInfo(
        platform(),
        CL_PLATFORM_SEMAPHORE_TYPES_KHR,
        8,
        to,
        at
    ));
    assert_eq!((types, size), ([CL_SEMAPHORE_TYPE_BINARY_KHR, 77], 4));
    for external in [
        CL_DEVICE_SEMAPHORE_IMPORT_HANDLE_TYPES_KHR,
        CL_DEVICE_SEMAPHORE_EXPORT_HANDLE_TYPES_KHR,
    ] {
        let code = code!(clGetDeviceInfo(cl.device, external, 0, null_mut(), at));
        assert_eq!(code, CL_INVALID_VALUE);
    }
}

#[test]
fn no_semaphore_has_a_handle_of_another_driver() {
    let cl = Fixture::new();
    let address = address_by_name(c"clGetSemaphoreHandleForTypeKHR");
    assert!(!address.is_null());
    // SAFETY: the function of that name has this type.
    let function: clGetSemaphoreHandleForTypeKHR_fn = unsafe { std::mem::transmute(address) };
    let function = function.expect("an address");
    let properties = [
        u64::from(CL_SEMAPHORE_TYPE_KHR),
        u64::from(CL_SEMAPHORE_TYPE_BINARY_KHR),
        0,
    ];
    let semaphore = create(cl.context, Some(&properties)).expect("a semaphore");
    let mut size = 77;
    let mut ask = |semaphore, device| {
        let kind = CL_SEMAPHORE_HANDLE_OPAQUE_FD_KHR;
        // SAFETY: no handle is asked for but its size.
        unsafe { function(semaphore, device, kind, 0, null_mut(), &raw mut size) }
    };
    assert_eq!(ask(null_mut(), null_mut()), CL_INVALID_SEMAPHORE_KHR);
    assert_eq!(ask(semaphore, null_mut()), CL_INVALID_DEVICE);
    assert_eq!(ask(semaphore, cl.device), CL_INVALID_VALUE);
    assert_eq!(size, 77);
    let code = call!(release(semaphore));
    assert_eq!(code, CL_SUCCESS);
}
