//! Tests a program on a node with TLS and a token: the results are those of a plain node, over either carrier
//! (`CAUSEWAY_TEST_CARRIER=grpc`), for small commands and large transfers.

use crate::frames::opencl::*;

fn round_trip(cl: &Fixture, length: usize) {
    let bytes = pattern(7, length);
    let buffer = cl.buffer_of(&vec![0; length]);
    cl.write(buffer, 0, &bytes);
    let got = cl.read(buffer, 0, length);
    assert!(got == bytes, "{length} bytes");
    ok!(clReleaseMemObject(buffer));
}

#[test]
fn what_goes_over_tls_arrives_as_it_was_sent() {
    own_process!();
    secured::secure();
    let cl = Fixture::new();
    for length in [1, 100, 16_000, 33_000, 1 << 20, (9 << 20) + 5] {
        round_trip(&cl, length);
    }
    // No byte went through shared memory.
    assert_eq!(causeway_lane::carried_bytes(), 0);
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                let cl = Fixture::new();
                for _ in 0..50 {
                    round_trip(&cl, 40_000);
                    round_trip(&cl, 64);
                }
            });
        }
    });
}
