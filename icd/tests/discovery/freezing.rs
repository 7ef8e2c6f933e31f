//! Nodes that freeze, die and return while a program lists and computes.

use std::time::Duration;

use rustix::process::Signal;

use crate::frames::servers::*;
use crate::stage::*;

#[test]
fn nodes_that_freeze_die_and_return_keep_no_program_waiting() {
    own_process!(waits);
    let Some(network) = network(4) else { return };
    let certificates = Certificates::new();
    for name in ["gpu1", "gpu2", "gpu3"] {
        certificates.node(name);
    }
    certificates.configure("resume = \"0s\"", "");
    let [good, frozen, mut dying] =
        [("A", 1, "gpu1"), ("B", 2, "gpu2"), ("C", 3, "gpu3")].map(|(device, number, name)| {
            announced(network.host(number), device, &certificates.flags(name))
        });
    heard(network.host(0), &["gpu1", "gpu2", "gpu3"]);
    frozen.signal(Signal::STOP);
    let program = || {
        let begun = std::time::Instant::now();
        eventually("two nodes", || (names() == ["A", "C"]).then_some(()));
        let took = begun.elapsed();
        assert!(took < Duration::from_secs(10), "{took:?}");
        let (first, third) = (devices()[0], devices()[1]);
        dying.crash();
        // A session on a dead node is lost; the other one goes on.
        let cl = Fixture::on(first);
        let buffer = cl.buffer(CL_MEM_READ_WRITE, 1 << 16);
        assert!(context(third).is_err(), "nobody is there");
        frozen.signal(Signal::CONT);
        eventually("the frozen node", || {
            let all = devices();
            let names: Vec<String> = all
                .iter()
                .copied()
                .filter(|of| is_available(*of))
                .map(name_of)
                .collect();
            (names == ["A", "B"]).then_some(())
        });
        let flags = [certificates.flags("gpu3"), vec!["--announce".to_owned()]].concat();
        network
            .host(3)
            .enter(|| dying.start_again(&flags))
            .expect("the host's network");
        eventually("the dead node", || {
            let all = devices();
            (all.len() == 3 && all.iter().all(|of| is_available(*of))).then_some(())
        });
        assert_eq!(
            (devices()[0], devices()[1]),
            (first, third),
            "the handles stay"
        );
        cl.write(buffer, 0, &pattern(1, 1 << 16));
        assert!(cl.read(buffer, 0, 1 << 16) == pattern(1, 1 << 16));
        ok!(clReleaseMemObject(buffer));
    };
    network.host(0).enter(program).expect("the host's network");
    drop(good);
}
