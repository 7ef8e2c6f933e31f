//! Native contexts that a spare worker makes before a session asks for them (`[sessions] warm`).
//!
//! **What is warmed, and why.** For each device of the settings: a context of this device alone, and in it what
//! drivers do at the first use ([`use_once`]). In milliseconds; the last columns are after a warm-up:
//!
//! | first | NVIDIA 580, H200 | PoCL 3.1, 2 cores | NVIDIA later | PoCL later |
//! |---|---|---|---|---|
//! | `clCreateContext` | 110 to 2,000 | 1.3 | – | – |
//! | queue | 0.04 | 0.01 | 0.02 | 0.01 |
//! | fill and finish | 0.3 | 0.12 | 0.02 | 0.02 |
//! | build of a binary | 9 to 12: loads the compiler of PTX | 1.4 | 6 | 1.1 |
//! | launch and finish | 0.16 | 0.22 | 0.08 | 0.1 |
//!
//! So the context matters most. A queue and a fill are used once, which also shows that the context works. NVIDIA's
//! driver also builds and launches an empty kernel in PTX, in 9 ms. No source is built: that takes 40 to 160 ms on
//! NVIDIA and seconds on PoCL, competes with the builds of a session that begins meanwhile, and gains nothing over
//! this.
//!
//! **What is not.** Contexts of several devices or of sub-devices are the session's own. The queue has no
//! profiling: its first one measures the device's clock, and a spare worker may wait for hours, in which clocks
//! drift.
//!
//! **Who gets one.** A worker of one session hands a context out once, to the first request for exactly this
//! device. When the session has its first context, the worker releases the others, because they take memory of
//! devices that the session does not use. A host keeps them, as [`commons`](super::commons) says. A request never waits longer than [`PATIENCE`] for a context that is being
//! made, and does not wait at all for what follows: it takes the context as soon as it exists.
//!
//! Invariant: a context is handed out at most once, and only for equal platform and devices. So a session
//! reaches no device that its own request does not name. The request was checked against the session's lease.
#![forbid(unsafe_code)]

mod places;

use std::sync::Arc;
use std::time::{Duration, Instant};

use causeway_proto::id::{DeviceIndex, PlatformIndex};
use causeway_proto::status::Status;

pub(crate) use self::places::Kind;
use self::places::Places;
use super::listeners::Listeners;
use crate::runtime::buffer::Buffer;
use crate::runtime::context::Context as NativeContext;
use crate::runtime::kernel::Shape;
use crate::runtime::node::{Device, Node, Platform};
use crate::runtime::program::Program;
use crate::runtime::queue::Queue;

/// Time from the beginning of a context's creation after which a request makes a context of its own, because the
/// driver seems to hang. Drivers that work need less (see the module), so no request makes a second context
/// while the first is about to be ready.
const PATIENCE: Duration = Duration::from_secs(5);
/// An empty kernel, as NVIDIA's driver returns binaries. Drivers compile PTX of older versions.
const PTX: &[u8] =
    b".version 6.0\n.target sm_50\n.address_size 64\n.entry warm(.param .u64 x)\n{\nret;\n}\n\0";
/// `CL_MEM_READ_WRITE`.
const READ_WRITE: u64 = 1;

/// The contexts of a process that no session has used yet.
pub(crate) struct Warm(Places<WarmContext>);

/// A context, and those who hear its errors.
pub(crate) struct WarmContext {
    pub(crate) native: Arc<NativeContext>,
    pub(crate) listeners: Listeners,
}

impl Default for Warm {
    fn default() -> Warm {
        Warm(Places::new(PATIENCE))
    }
}

impl Warm {
    /// Makes the contexts, one after the other, except those that were asked for before. Returns how many it has
    /// made, also if they were taken meanwhile.
    pub(crate) fn make(&self, node: &Node, devices: &[(PlatformIndex, DeviceIndex)]) -> u32 {
        let mut made = 0;
        for &(platform, device) in devices {
            let kind = (platform, vec![device]);
            if !self.0.begin(&kind) {
                continue;
            }
            let began = Instant::now();
            match self.make_one(node, platform, device, &kind) {
                Ok(()) => {
                    made += 1;
                    tracing::debug!(
                        platform = platform.0,
                        device = device.0,
                        time = ?began.elapsed(),
                        "a context is ready before a session asks for it"
                    );
                }
                Err(error) => {
                    // A context that does not work is released here.
                    drop(self.0.withdraw(&kind));
                    tracing::warn!(
                        %error,
                        platform = platform.0,
                        device = device.0,
                        "no context can be made ready for [sessions] warm; sessions make their own"
                    );
                }
            }
        }
        made
    }

    fn make_one(
        &self,
        node: &Node,
        platform: PlatformIndex,
        device: DeviceIndex,
        kind: &Kind,
    ) -> Result<(), NotWarm> {
        let native = node.platform(platform).ok_or(NotWarm::NoDevice)?;
        let device = native.device(device).ok_or(NotWarm::NoDevice)?;
        let listeners = Listeners::default();
        let made = NativeContext::new(native, vec![device], listeners.for_driver());
        let native = Arc::new(made.map_err(|status| NotWarm::Driver("a context", status))?);
        let warm = WarmContext {
            native: Arc::clone(&native),
            listeners,
        };
        // From here on a session can take it. The session then does the rest itself.
        if self.0.put(kind, warm).is_err() {
            return Err(NotWarm::TooLate);
        }
        use_once(&native, device, || self.0.is_ready(kind))
    }

    /// Takes the context of exactly these devices. Waits if it is being made. Returns `None` if there is none,
    /// and none is made from now on.
    pub(crate) fn take(&self, kind: &Kind) -> Option<WarmContext> {
        self.0.take(kind)
    }

    /// Gives up the contexts that were not taken. [`release_rest`](Warm::release_rest) releases them.
    pub(crate) fn give_up(&self) {
        self.0.give_up();
    }

    /// Waits until the contexts that were not taken are given up, and releases them. The caller is a thread that
    /// may wait for the driver.
    pub(crate) fn release_rest(&self) {
        drop(self.0.wait_for_rest());
    }

    /// Makes no further contexts, because the session that this worker has now may need the time and memory.
    pub(crate) fn stop(&self) {
        self.0.close();
    }
}

/// Why a context is not ready.
#[derive(Debug, thiserror::Error)]
enum NotWarm {
    #[error("the driver shows no such device")]
    NoDevice,
    #[error("the driver took more than {} s", PATIENCE.as_secs())]
    TooLate,
    #[error("the driver refuses {0} ({1})")]
    Driver(&'static str, Status),
}

/// Makes a context of this device, and uses it once as the warm ones.
pub(crate) fn try_out(
    platform: &Platform,
    device: Device,
) -> Result<NativeContext, impl std::error::Error + use<>> {
    let listeners = Listeners::default();
    let made = NativeContext::new(platform, vec![device], listeners.for_driver());
    let native = made.map_err(|status| NotWarm::Driver("a context", status))?;
    use_once(&native, device, || true)?;
    Ok::<_, NotWarm>(native)
}

/// Returns whether a context that sessions have used still works: a kernel may have broken it for good.
pub(crate) fn works(native: &NativeContext, device: Device) -> bool {
    clear(native, device).is_ok()
}

/// Uses a queue and a buffer of the context, and a kernel if programs are PTX and `goes_on`. See the module.
fn use_once(
    native: &NativeContext,
    device: Device,
    goes_on: impl Fn() -> bool,
) -> Result<(), NotWarm> {
    let (queue, buffer) = clear(native, device)?;
    if device.loads_ptx() && goes_on() {
        // The context is useful without it.
        if let Err(status) = launch(native, &queue, &buffer) {
            tracing::debug!(%status, "no kernel can be launched before a session");
        }
    }
    Ok(())
}

/// Fills a new buffer with zeros over a new queue.
fn clear(native: &NativeContext, device: Device) -> Result<(Queue, Buffer), NotWarm> {
    let queue = Queue::new(native, device, &[]);
    let queue = queue.map_err(|status| NotWarm::Driver("a queue", status))?;
    let buffer = Buffer::new(native, READ_WRITE, 4, &[]);
    let buffer = buffer.map_err(|status| NotWarm::Driver("a buffer", status))?;
    let cleared = queue.clear(&buffer);
    cleared.map_err(|status| NotWarm::Driver("a command", status))?;
    Ok((queue, buffer))
}

fn launch(native: &NativeContext, queue: &Queue, buffer: &Buffer) -> Result<(), Status> {
    let (program, _) = Program::with_binaries(native, &[queue.device()], &[PTX]);
    let program = program?;
    program.build(&[queue.device()], None)?;
    let mut kernel = program.kernel("warm")?;
    kernel.set_buffer(0, Some(buffer))?;
    let shape = Shape::new(&[1], &[], &[]).ok_or(Status::INVALID_VALUE)?;
    queue.nd_range_without_event(&mut kernel, &shape)?;
    queue.finish()
}
