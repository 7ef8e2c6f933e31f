//! Tests what a program sees of broken connections: the server's info, the context's callback and the log.

use std::ffi::{CStr, c_char, c_void};
use std::os::unix::net::UnixDatagram;
use std::path::Path;
use std::ptr::null;
use std::sync::mpsc::{self, Receiver, Sender};
use std::time::Duration;

use causeway::transport::manager::this_process;
use causeway::transport::report::{self, Reported, SessionReport};
use causeway_cutter::{Forwarder, Target};
use causeway_proto::control::EndAwayRequest;
use causeway_proto::control::node_client::NodeClient;
use causeway_proto::version::WireVersion;

use crate::frames::log::{self, IntoLog};
use crate::frames::servers::*;

const ONE: &str = "devices = 1";

unsafe extern "C" fn notified(text: *const c_char, _: *const c_void, _: usize, heard: *mut c_void) {
    // SAFETY: a C string, and the sender that `told` leaked for this callback.
    let (text, heard) = unsafe { (CStr::from_ptr(text), &*heard.cast::<Sender<String>>()) };
    let _ = heard.send(text.to_string_lossy().into_owned());
}

/// Makes a context on a server. Returns what its callback is told.
fn told(server: cl_server_WWU) -> Receiver<String> {
    let (tell, heard) = mpsc::channel::<String>();
    let tell: *mut Sender<String> = Box::into_raw(Box::new(tell));
    let device = devices_of(server)[0];
    make!(clCreateContext(
        null(),
        1,
        &raw const device,
        Some(notified),
        tell.cast()
    ))
    .expect("a context");
    heard
}

/// Waits for the text of a loss. The log has it too.
fn loss(heard: &Receiver<String>) -> String {
    let text = heard.recv_timeout(PATIENCE).expect("the callback");
    let log = log::logged();
    assert!(log.contains(&text), "{text}\n{log}");
    text
}

/// Whether the session on a server is away, and how often it was resumed.
fn breaks(server: cl_server_WWU) -> (u64, u64) {
    let ask = |name| number(&server_info(server, name));
    (ask(CL_SERVER_AWAY_WWU), ask(CL_SERVER_RESUMED_WWU))
}

fn until_breaks(server: cl_server_WWU, expected: (u64, u64)) {
    eventually("the server's info", || {
        (breaks(server) == expected).then_some(())
    });
}

/// A socket of a tool that runs this process.
struct Tool(UnixDatagram);

impl Tool {
    /// Must precede every call of the library.
    fn new(folder: &Path) -> Tool {
        let path = folder.join("reports");
        // SAFETY: the library has not been asked anything yet, so nobody reads the environment.
        unsafe { std::env::set_var(report::VARIABLE, &path) };
        let socket = UnixDatagram::bind(path).unwrap();
        socket.set_read_timeout(Some(PATIENCE)).unwrap();
        Tool(socket)
    }

    fn next(&self, server: &str) -> Reported {
        let mut bytes = [0; 4096];
        let count = self.0.recv(&mut bytes).expect("a report");
        let report = SessionReport::decode(&bytes[..count]).expect("a report");
        assert_eq!((report.pid, &*report.server), (std::process::id(), server));
        report.reported
    }
}

/// Ends the sessions of this process on a node, as its next process would after its end.
fn end_away(daemon: &Daemon) {
    let request = EndAwayRequest {
        wire_version: WireVersion::CURRENT.number().into(),
        client: Some(this_process()),
        ended: vec![this_process()],
        ..EndAwayRequest::default()
    };
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    let reply = runtime.block_on(async {
        let address = format!("http://{}", daemon.address);
        let mut node = NodeClient::connect(address).await.unwrap();
        node.end_away(request).await.unwrap()
    });
    assert_eq!(reply.into_inner().ended, 1);
}

#[test]
fn a_program_is_told_of_breaks_and_why_they_were_the_end() {
    own_process!();
    tracing_subscriber::fmt()
        .with_ansi(false)
        .with_writer(|| IntoLog)
        .init();
    let (first, second) = (Daemon::start(ONE), Daemon::start(ONE));
    let folder = tempfile::tempdir().unwrap();
    let tool = Tool::new(folder.path());
    let way = Forwarder::start(Some(Target::Tcp(first.address))).unwrap();
    configure(&format!("{},{}", way.address(), second.address));
    let servers = [devices()[0], devices()[1]].map(server_of);
    assert_eq!(servers.map(breaks), [(0, 0); 2]);
    let heard = servers.map(told);

    // ---- a break that ends
    way.close();
    until_breaks(servers[0], (1, 0));
    let named = way.address().to_string();
    assert!(matches!(tool.next(&named), Reported::Away(_)));
    assert_eq!(number(&server_info(servers[0], CL_SERVER_AVAILABLE_WWU)), 1);
    way.open();
    until_breaks(servers[0], (0, 1));
    let Reported::Resumed { times: 1, away } = tool.next(&named) else {
        panic!("another report")
    };
    assert!(away >= Duration::from_secs(1), "{away:?}");
    assert_eq!(breaks(servers[1]), (0, 0));

    // ---- the node ends the session during the break
    way.close();
    until_breaks(servers[0], (1, 1));
    eventually("the node notices the break", || {
        first.log().contains("the client is away").then_some(())
    });
    end_away(&first);
    way.open();
    let text = loss(&heard[0]);
    assert!(
        text.contains("the program that opened the session has ended"),
        "{text}"
    );
    assert!(text.contains("its connection had broken "), "{text}");
    assert!(text.contains(" s before: "), "{text}");
    assert_eq!(breaks(servers[0]), (0, 0));

    let (reason, away) = loop {
        match tool.next(&named) {
            // Only a break of a second is reported.
            Reported::Away(_) => {}
            Reported::Lost { reason, away } => break (reason, away),
            Reported::Resumed { .. } => panic!("the session was resumed"),
        }
    };
    assert!(text.ends_with(&reason), "{reason}");
    assert!(!away.is_zero());

    // ---- the node's own host refuses the port
    let address = second.kill();
    let text = loss(&heard[1]);
    assert!(text.contains(&address), "{text}");
    assert!(text.contains("nothing listens there any more: "), "{text}");
    assert!(text.contains("refused"), "{text}");
}
