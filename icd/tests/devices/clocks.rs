//! Tests with nodes and devices whose clocks have different origins: the program sees all times on its own clock.

use std::ptr::{null, null_mut};

use crate::frames::servers::*;

/// The host clock, read by the API.
fn host(device: cl_device_id) -> u64 {
    let mut now = 0;
    ok!(clGetHostTimer(device, &raw mut now));
    now
}

/// The tolerated error of a device's times: half of the round trip, plus the time to read the device's clock by the
/// node's. That time is short if the driver reads the clock, and otherwise the time of a marker. The bound is far
/// above both on an idle machine.
fn error(device: cl_device_id) -> u64 {
    let round_trip = number(&device_info(device, CL_DEVICE_ROUND_TRIP_TIME_WWU));
    assert_ne!(round_trip, 0);
    let own = if name_of(device) == "new" {
        1_000_000
    } else {
        10_000_000
    };
    round_trip / 2 + own
}

struct Profiled {
    device: cl_device_id,
    context: cl_context,
    queue: cl_command_queue,
    buffer: cl_mem,
}

impl Profiled {
    fn new(device: cl_device_id) -> Profiled {
        let context = context(device).expect("a context");
        Profiled {
            device,
            context,
            queue: make!(clCreateCommandQueue(
                context,
                device,
                CL_QUEUE_PROFILING_ENABLE
            ))
            .expect("a queue"),
            buffer: make!(clCreateBuffer(context, CL_MEM_READ_WRITE, 64, null_mut()))
                .expect("a buffer"),
        }
    }

    /// Runs a command between two readings of the host clock. Returns its times (queued, submitted, started, ended)
    /// and both readings.
    fn run(&self) -> ([u64; 4], u64, u64) {
        let before = host(self.device);
        let mut event = null_mut();
        let contents = [1u8; 64];
        ok!(clEnqueueWriteBuffer(
            self.queue,
            self.buffer,
            CL_FALSE,
            0,
            64,
            contents.as_ptr().cast(),
            0,
            null(),
            &raw mut event
        ));
        let sent = host(self.device);
        ok!(clWaitForEvents(1, &raw const event));
        let after = host(self.device);
        let names = [
            CL_PROFILING_COMMAND_QUEUED,
            CL_PROFILING_COMMAND_SUBMIT,
            CL_PROFILING_COMMAND_START,
            CL_PROFILING_COMMAND_END,
        ];
        let moments = names.map(|name| {
            number(&bytes(|size, value, ret| {
                code!(clGetEventProfilingInfo(event, name, size, value, ret))
            }))
        });
        ok!(clReleaseEvent(event));
        assert!(moments.is_sorted(), "{moments:?}");
        let error = error(self.device);
        assert!(
            (before.saturating_sub(error)..=sent + error).contains(&moments[0]),
            "{before} {moments:?} {sent}"
        );
        for moment in moments {
            let allowed = before - error..=after + error;
            assert!(
                allowed.contains(&moment),
                "{before} {moments:?} {after}, error {error}"
            );
        }
        (moments, before, after)
    }
}

impl Drop for Profiled {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            ok!(clReleaseMemObject(self.buffer));
            ok!(clReleaseCommandQueue(self.queue));
            ok!(clReleaseContext(self.context));
        }
    }
}

#[test]
fn all_nodes_times_are_on_one_scale() {
    own_process!();
    // One device has a timer function and the other has none. Each of the fake driver's devices has its own clock.
    let settings = "[[device]]\nname = \"new\"\n[[device]]\nname = \"old\"\nversion = \"1.2\"";
    let daemons = [
        Daemon::start_ahead(settings, 0),
        Daemon::start_ahead(settings, 3_600_000_000_000),
        Daemon::start_ahead(settings, 400_000_000_000_000),
    ];
    configure(
        &daemons
            .each_ref()
            .map(|daemon| daemon.address.to_string())
            .join(","),
    );
    let resolution = bytes(|size, value, ret| {
        code!(clGetPlatformInfo(
            platform(),
            CL_PLATFORM_HOST_TIMER_RESOLUTION,
            size,
            value,
            ret
        ))
    });
    assert_eq!(number(&resolution), 1);
    let all: Vec<Profiled> = devices().into_iter().map(Profiled::new).collect();
    assert_eq!(all.len(), 6);

    // The commands go to the nodes in turn, one after the other, so their times must be in this order.
    let mut last = 0;
    for round in 0..5 {
        for profiled in &all {
            let (moments, ..) = profiled.run();
            let error = error(profiled.device);
            assert!(
                moments[2] + 2 * error >= last,
                "round {round}: {moments:?} after {last}"
            );
            last = moments[3];
        }
    }
    // Times of one device are exactly ordered.
    for profiled in &all {
        let mut ended = 0;
        for _ in 0..10 {
            let (moments, ..) = profiled.run();
            assert!(moments[2] >= ended);
            ended = moments[3];
        }
    }
    all.iter().for_each(the_timers_agree);
}

fn the_timers_agree(profiled: &Profiled) {
    let device = profiled.device;
    let mut last = (0, 0);
    for _ in 0..5 {
        let before = host(device);
        let (mut device_ns, mut host_ns) = (0, 0);
        ok!(clGetDeviceAndHostTimer(
            device,
            &raw mut device_ns,
            &raw mut host_ns
        ));
        let after = host(device);
        assert!((before..=after).contains(&host_ns));
        let allowed = before - error(device)..=after + error(device);
        assert!(allowed.contains(&device_ns), "{before} {device_ns} {after}");
        assert!(device_ns >= last.0 && host_ns >= last.1, "time goes on");
        last = (device_ns, host_ns);
    }
    // A command that ended before the timer was read has an earlier time.
    let (moments, ..) = profiled.run();
    let (mut device_ns, mut host_ns) = (0, 0);
    ok!(clGetDeviceAndHostTimer(
        device,
        &raw mut device_ns,
        &raw mut host_ns
    ));
    assert!(device_ns >= moments[3], "{device_ns} {moments:?}");

    assert_eq!(
        code!(clGetDeviceAndHostTimer(
            device,
            null_mut(),
            &raw mut host_ns
        )),
        CL_INVALID_VALUE
    );
    assert_eq!(
        code!(clGetDeviceAndHostTimer(
            device,
            &raw mut device_ns,
            null_mut()
        )),
        CL_INVALID_VALUE
    );
    assert_eq!(code!(clGetHostTimer(device, null_mut())), CL_INVALID_VALUE);
    assert_eq!(
        code!(clGetHostTimer(null_mut(), &raw mut host_ns)),
        CL_INVALID_DEVICE
    );
}
