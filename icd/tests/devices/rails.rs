//! Tests of a server with two addresses: lanes use both, and a broken one costs neither bytes nor an error.

use std::net::SocketAddr;
use std::ptr::null_mut;
use std::sync::Arc;

use causeway_cutter::{Forwarder, Hold, Purpose, Target};

use crate::frames::servers::*;

const SIZE: usize = 96 << 20;
/// A rail breaks when so many bytes have crossed it since the transfer began.
const BROKEN_AFTER: u64 = 8 << 20;

/// A daemon behind a forwarder on each of two addresses.
struct Rails {
    forwarders: [Arc<Forwarder>; 2],
    _daemon: Daemon,
}

impl Rails {
    /// Starts all. The forwarder of the `dead` rail refuses connections.
    fn start(carrier: &str, dead: Option<usize>) -> Rails {
        let daemon = Daemon::start("[[device]]\nname = \"A\"");
        let forwarders = ["127.0.0.1:0", "127.0.0.2:0"].map(|listen| {
            let listen: SocketAddr = listen.parse().unwrap();
            let target = Some(Target::Tcp(daemon.address));
            Arc::new(Forwarder::start_on(listen, target).unwrap())
        });
        if let Some(dead) = dead {
            forwarders[dead].close();
        }
        let [first, second] = &forwarders;
        let file = std::env::temp_dir().join(format!("rails-{}.toml", std::process::id()));
        let text = format!(
            "[[server]]\naddress = [\"{}\", \"{}\"]\ncarrier = \"{carrier}\"\nshared_memory = false\n",
            first.address(),
            second.address()
        );
        std::fs::write(&file, text).unwrap();
        // SAFETY: the library has not been asked anything yet, so nobody reads the environment.
        unsafe {
            std::env::remove_var("CAUSEWAY_SERVERS");
            std::env::set_var("CAUSEWAY_CONFIG", &file);
        }
        assert_eq!(names(), ["A"]);
        std::fs::remove_file(file).unwrap();
        Rails {
            forwarders,
            _daemon: daemon,
        }
    }

    fn lanes(&self) -> [usize; 2] {
        [0, 1].map(|rail| self.forwarders[rail].connected(Purpose::Lane))
    }

    /// Breaks a rail by `how` once bytes of the next transfer have crossed it.
    fn break_in_a_transfer(&self, rail: usize, how: fn(&Forwarder)) -> std::thread::JoinHandle<()> {
        let forwarder = Arc::clone(&self.forwarders[rail]);
        let crossed = move || forwarder.counts().up + forwarder.counts().down;
        let until = crossed() + BROKEN_AFTER;
        let forwarder = Arc::clone(&self.forwarders[rail]);
        std::thread::spawn(move || {
            while crossed() < until {
                std::thread::yield_now();
            }
            how(&forwarder);
        })
    }
}

#[test]
fn a_rail_that_breaks_in_a_transfer_costs_no_byte_and_comes_back() {
    own_process!(waits);
    break_in_transfers("direct", None);
}

/// Breaks each rail in a transfer. The `dead` rail does not work when the session opens.
pub(super) fn break_in_transfers(carrier: &str, dead: Option<usize>) {
    let rails = Rails::start(carrier, dead);
    let device = first_device();
    let mut cl = Fixture {
        device,
        context: context(device).unwrap(),
        queue: null_mut(),
    };
    cl.queue = cl.another_queue(0);
    let buffer = cl.buffer(CL_MEM_READ_WRITE, SIZE);
    let bytes = pattern(1, SIZE);
    cl.write(buffer, 0, &bytes);
    assert!(cl.read(buffer, 0, SIZE) == bytes);
    if let Some(dead) = dead {
        assert_eq!(rails.lanes()[dead], 0);
        rails.forwarders[dead].open();
    }
    eventually("both rails have a lane", || {
        (rails.lanes() == [1, 1]).then_some(())
    });
    // If both have worked from the start, the second one has a lane only; the first has commands and heartbeats, too.
    for (round, rail) in [(2, 1), (3, 0)] {
        let bytes = pattern(round, SIZE);
        let breaking = rails.break_in_a_transfer(rail, Forwarder::close);
        cl.write(buffer, 0, &bytes);
        breaking.join().unwrap();
        assert!(cl.read(buffer, 0, SIZE) == bytes);
        eventually("the other rail has all lanes", || {
            (rails.lanes()[1 - rail] == 2).then_some(())
        });
        assert!(is_available(device));
        rails.forwarders[rail].open();
        eventually("the rail has a lane again", || {
            (rails.lanes() == [1, 1]).then_some(())
        });
        assert!(cl.read(buffer, 0, SIZE) == bytes);
    }
    // As a tunnel that is stuck: it takes bytes, acknowledges them, and passes none. Commands are on the other rail now.
    assert_eq!(rails.forwarders[0].connected(Purpose::Commands), 0);
    let bytes = pattern(4, SIZE);
    let breaking = rails.break_in_a_transfer(0, |rail| rail.hold(Hold::ALL));
    cl.write(buffer, 0, &bytes);
    breaking.join().unwrap();
    assert!(cl.read(buffer, 0, SIZE) == bytes);
    ok!(clReleaseMemObject(buffer));
}
