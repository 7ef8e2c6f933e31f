//! Tests that a restarted daemon's devices keep their identity, also when other devices appear.

use crate::frames::servers::*;

#[test]
fn devices_are_known_again_after_a_restart() {
    own_process!();
    let daemon = Daemon::start("[[device]]\nname = \"A\"\n[[device]]\nname = \"B\"");
    configure(&daemon.address.to_string());
    let before = devices();
    assert_eq!(names(), ["A", "B"]);
    assert_eq!(try_out(before[0]), CL_SUCCESS);

    // ---- away: still listed, not available
    let address = daemon.kill();
    eventually("the loss is noticed", || {
        (!is_available(before[0])).then_some(())
    });
    assert_eq!(devices(), before);
    assert_eq!(try_out(before[1]), CL_DEVICE_NOT_AVAILABLE);

    // ---- back, with a further device at the end: a context on the old device needs no enumeration
    let daemon = Daemon::start_at(
        &address,
        "[[device]]\nname = \"A\"\n[[device]]\nname = \"B\"\n[[device]]\nname = \"C\"",
    );
    assert_eq!(try_out(before[1]), CL_SUCCESS);
    assert!(is_available(before[0]));
    assert_eq!(devices()[..2], before);
    assert_eq!(names(), ["A", "B", "C"]);

    // ---- back with other devices in front, and one missing: no device is mistaken for another
    let address = daemon.kill();
    let third = devices()[2];
    let _daemon = Daemon::start_at(
        &address,
        "[[device]]\nname = \"X\"\n[[device]]\nname = \"B\"\n[[device]]\nname = \"A\"",
    );
    eventually("the new devices are found", || {
        (names() == ["X", "B", "A"]).then_some(())
    });
    let after = devices();
    assert_eq!((after[1], after[2]), (before[1], before[0]));
    for &device in &after {
        assert_eq!(try_out(device), CL_SUCCESS, "{}", name_of(device));
    }
    assert!(!is_available(third));
    assert_eq!(try_out(third), CL_DEVICE_NOT_AVAILABLE);
    assert_eq!(name_of(third), "C");
}
