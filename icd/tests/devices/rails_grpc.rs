//! Tests a server with two addresses whose commands go over gRPC: it is opened over the address that works.

use super::rails::break_in_transfers;

#[test]
fn a_session_over_grpc_opens_and_goes_on_over_the_address_that_works() {
    own_process!(waits);
    break_in_transfers("grpc", Some(0));
}
