//! Lists of the tool while the connection to the manager breaks, as it does when another manager takes over.

use std::io::{self, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::thread;

use super::super::process::Manager;
use super::Tool;

/// Length of the client's preface and of a frame's head in HTTP/2.
const PREFACE: usize = 24;
const HEAD: usize = 9;
/// The type of the frame with which a call begins.
const HEADERS: u8 = 1;

/// Forwards connections to `manager`, and cuts each one at its second call: the first one asks whether the manager
/// leads.
fn cutting(manager: SocketAddr) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    thread::spawn(move || {
        for client in listener.incoming() {
            let (client, server) = (client.unwrap(), TcpStream::connect(manager).unwrap());
            let (mut answers, mut back) =
                (server.try_clone().unwrap(), client.try_clone().unwrap());
            thread::spawn(move || io::copy(&mut answers, &mut back));
            thread::spawn(move || {
                let ended = calls(&client, &server);
                for socket in [client, server] {
                    drop(socket.shutdown(Shutdown::Both));
                }
                ended
            });
        }
    });
    address
}

/// Forwards frames up to the second call.
fn calls(mut client: &TcpStream, mut server: &TcpStream) -> io::Result<()> {
    let mut preface = [0; PREFACE];
    client.read_exact(&mut preface)?;
    server.write_all(&preface)?;
    let mut begun = 0;
    loop {
        let mut frame = vec![0; HEAD];
        client.read_exact(&mut frame)?;
        begun += usize::from(frame[3] == HEADERS);
        if begun == 2 {
            return Ok(());
        }
        let length = u32::from_be_bytes([0, frame[0], frame[1], frame[2]]) as usize;
        frame.resize(HEAD + length, 0);
        client.read_exact(&mut frame[HEAD..])?;
        server.write_all(&frame)?;
    }
}

#[test]
fn a_list_is_asked_for_again_when_the_connection_breaks() {
    let manager = Manager::start();
    let cut = cutting(manager.address);
    let of = |managers: String| Tool::of("root").with("CAUSEWAY_MANAGER", managers);
    let tool = of(format!("{cut},{}", manager.address));
    for verb in [
        "managers",
        "nodes",
        "devices",
        "leases",
        "queue",
        "quota",
        "users",
        "tokens",
        "request 1",
    ] {
        let said = tool.run(verb);
        assert_eq!(
            said.err,
            of(manager.address.to_string()).run(verb).err,
            "{verb}"
        );
    }
    tool.does("managers");
    // A busy manager answers late, and the tool then asks at the second address, too. So that one is also cut.
    let tool = of(format!("{cut},{}", cutting(manager.address)));
    // A change may have been carried out, so nothing repeats it.
    assert!(
        tool.refuses("users add ann")
            .contains("closed the connection")
    );
}
