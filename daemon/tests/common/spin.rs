//! A kernel that runs until the test stops it, so that a native queue stays busy.

use super::{Session, launch, memory};

/// Settings of the driver with which another command can run beside the kernel.
pub const TWO_THREADS: &[(&str, &str)] = &[
    ("POCL_MAX_PTHREAD_COUNT", "2"),
    ("POCL_PTHREAD_MIN_THREADS", "2"),
];

/// The kernel also ends by itself, much later than any test needs it.
const SOURCE: &str = "kernel void spin(volatile global int *flag) {
    for (int i = 0; i < 1000000000 && !atomic_or(flag, 0); i++);
}";

/// A kernel that runs, or will run.
pub struct Spin {
    flag: u64,
    beside: u64,
    /// The launch's event.
    pub event: u64,
}

impl Spin {
    /// Enqueues the kernel.
    pub fn start(session: &mut Session, context: u64, queue: u64) -> Spin {
        let beside = session.queue(context, 0);
        let flag = session.buffer(context, 4, &[0; 4]);
        let (program, answer) = session.build(context, SOURCE, "");
        assert_eq!(answer.status, 0);
        let kernel = session.kernel(program, "spin");
        let run = launch(kernel, vec![memory(flag)], &[1], &[]);
        let event = session.enqueue(queue, &[], run);
        Spin {
            flag,
            beside,
            event,
        }
    }

    /// Stops the kernel, which must still run.
    pub fn stop(self, session: &mut Session) {
        session.ping();
        assert!(!session.heard.completions.contains_key(&self.event));
        let stop = session.write(self.beside, &[], self.flag, 0, &[1, 0, 0, 0]);
        for event in [stop, self.event] {
            assert_eq!(session.wait(event).status, 0);
        }
    }
}
