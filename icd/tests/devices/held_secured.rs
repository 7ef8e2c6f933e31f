//! Tests of `hold = "client"` with TLS and a token, over gRPC: the session has a new certificate after its daemon was killed.

use crate::frames::opencl::secured;
use crate::frames::servers::*;
use crate::held::{DEVICE, configure, outlives};

#[test]
fn a_program_with_tls_outlives_its_daemon() {
    own_process!();
    secured::secure();
    let flags = secured::arguments();
    let mut daemon = Daemon::start_flagged("127.0.0.1:0", DEVICE, &flags);
    let address = daemon.address;
    configure(&format!(
        "[[server]]\naddress = \"{address}\"\ncarrier = \"grpc\"\n"
    ));
    outlives(&mut daemon, &flags, devices()[0]);
}
