//! Tests a driver that repeats a notice: the log contains it once with a count, and the application gets every one.

use std::ffi::{CStr, c_char, c_void};
use std::ptr::null;
use std::sync::mpsc::{self, Receiver, Sender};

use causeway_proto::command::command::Kind;
use causeway_proto::command::{EventBatch, Notice};

use crate::frames::fake_node::{FakeNode, FakeWorker, Faults, PATIENCE};
use crate::frames::log::{self, IntoLog};
use crate::frames::opencl::*;

const FLUSH: &str = "Unknown error executing clFlush";
const FAULT: &str = "CL_OUT_OF_RESOURCES error executing a kernel";

/// Counts the lines of the log with this end.
fn logged(end: &str) -> usize {
    let log = log::logged();
    log.lines().filter(|line| line.ends_with(end)).count()
}

unsafe extern "C" fn notified(
    text: *const c_char,
    _: *const c_void,
    _: size_t,
    heard: *mut c_void,
) {
    // SAFETY: a C string, and the sender that `Told` leaked for this callback.
    let (text, heard) = unsafe { (CStr::from_ptr(text), &*heard.cast::<Sender<String>>()) };
    let _ = heard.send(text.to_string_lossy().into_owned());
}

unsafe extern "C" fn destroyed(_: cl_context, gone: *mut c_void) {
    // SAFETY: the sender that `Told` leaked for this callback.
    let gone = unsafe { &*gone.cast::<Sender<()>>() };
    let _ = gone.send(());
}

/// A context that records its callbacks.
struct Told {
    context: cl_context,
    /// Id of the native context.
    id: u64,
    heard: Receiver<String>,
    gone: Receiver<()>,
}

impl Told {
    fn new(device: cl_device_id, worker: impl FnOnce() -> FakeWorker) -> (Told, FakeWorker) {
        let (tell, heard) = mpsc::channel::<String>();
        let (end, gone) = mpsc::channel::<()>();
        let tell: *mut Sender<String> = Box::into_raw(Box::new(tell));
        let end: *mut Sender<()> = Box::into_raw(Box::new(end));
        let context = make!(clCreateContext(
            null(),
            1,
            &raw const device,
            Some(notified),
            tell.cast()
        ))
        .expect("a context");
        ok!(clSetContextDestructorCallback(
            context,
            Some(destroyed),
            end.cast()
        ));
        let mut worker = worker();
        let id = loop {
            let commands = worker.receive().commands.into_iter();
            let mut made = commands.filter_map(|command| match command.kind {
                Some(Kind::CreateContext(create)) => Some(create.context),
                _ => None,
            });
            if let Some(id) = made.next() {
                break id;
            }
        };
        let told = Told {
            context,
            id,
            heard,
            gone,
        };
        (told, worker)
    }

    fn notice(&self, text: &str) -> Notice {
        Notice {
            id: self.id,
            context: self.id,
            message: text.to_owned(),
            ..Notice::default()
        }
    }

    fn hears(&self) -> String {
        self.heard.recv_timeout(PATIENCE).expect("a notice")
    }
}

fn device_of(fake: &FakeNode) -> cl_device_id {
    configure(&fake.address.to_string());
    first_device()
}

#[test]
fn the_log_says_a_text_once_a_context_and_the_application_hears_it_each_time() {
    own_process!();
    let log = tracing_subscriber::fmt().with_writer(|| IntoLog);
    tracing::subscriber::set_global_default(log.with_ansi(false).finish()).expect("the first");
    let fake = FakeNode::start(Faults::default());
    let device = device_of(&fake);
    let (first, worker) = Told::new(device, || fake.worker());
    let (second, mut worker) = Told::new(device, || worker);

    let mut notices = vec![first.notice(FLUSH); 30];
    notices.push(first.notice(FAULT));
    notices.extend([second.notice(FLUSH), second.notice(FLUSH)]);
    worker.send(EventBatch {
        notices,
        ..EventBatch::default()
    });
    for _ in 0..30 {
        assert_eq!(first.hears(), FLUSH);
    }
    assert_eq!(first.hears(), FAULT);
    assert_eq!([second.hears(), second.hears()], [FLUSH, FLUSH]);
    assert_eq!(logged(&format!(": {FLUSH}")), 2, "once a context");
    assert_eq!(logged(FAULT), 1);
    assert_eq!(logged(&format!("more times: {FLUSH}")), 0);

    ok!(clReleaseContext(first.context));
    first
        .gone
        .recv_timeout(PATIENCE)
        .expect("the context's end");
    assert_eq!(logged(&format!("repeated 29 more times: {FLUSH}")), 1);
    assert_eq!(logged(FAULT), 1, "a single notice is not counted");

    worker.die();
    second.hears();
    assert_eq!(logged(&format!("repeated 1 more times: {FLUSH}")), 1);
    ok!(clReleaseContext(second.context));
    second
        .gone
        .recv_timeout(PATIENCE)
        .expect("the context's end");
    assert_eq!(logged(&format!("more times: {FLUSH}")), 2);
}
