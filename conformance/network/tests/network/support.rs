//! Makes networks, or prints the reason why not. Small servers on hosts.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, SocketAddrV4, TcpListener, TcpStream, UdpSocket};
use std::thread;
use std::time::{Duration, Instant};

use causeway_network::{Builder, Host, Network};

/// Longer than any step here takes on a busy machine.
pub(crate) const PATIENCE: Duration = Duration::from_secs(20);
/// How long nothing must arrive to count as silence.
pub(crate) const SILENCE: Duration = Duration::from_millis(400);

/// Builds a network; `None`, after printing the reason, if that is impossible here.
pub(crate) fn build(builder: Builder) -> Option<Network> {
    match builder.build() {
        Ok(network) => Some(network),
        Err(error) if error.is_unavailable() => {
            eprintln!("skipped: {error}");
            None
        }
        Err(error) => panic!("{error}"),
    }
}

/// Opens a UDP socket of `host` with a read time limit.
pub(crate) fn socket(host: &Host, limit: Duration) -> UdpSocket {
    let address = SocketAddr::from((host.address(), 0));
    let socket = host.enter(|| UdpSocket::bind(address)).unwrap().unwrap();
    socket.set_read_timeout(Some(limit)).unwrap();
    socket
}

/// Starts a server on `host` that returns every datagram. Returns its address.
pub(crate) fn echo(host: &Host) -> SocketAddr {
    let socket = socket(host, PATIENCE);
    let address = socket.local_addr().unwrap();
    thread::spawn(move || {
        let mut buffer = [0; 2048];
        while let Ok((length, from)) = socket.recv_from(&mut buffer) {
            let _ = socket.send_to(&buffer[..length], from);
        }
    });
    address
}

/// Measures how long `to` takes to answer; `None` without an answer within the socket's time limit.
pub(crate) fn ping(from: &UdpSocket, to: SocketAddr) -> Option<Duration> {
    let begin = Instant::now();
    from.send_to(b"ping", to).unwrap();
    from.recv_from(&mut [0; 16]).ok()?;
    Some(begin.elapsed())
}

/// Starts a server on `host`, on any port if 0. It reads every byte, returns their number on the same
/// connection, and closes. Returns its port.
pub(crate) fn sink(host: &Host, port: u16) -> u16 {
    let address = SocketAddrV4::new(host.address(), port);
    let listener = host.enter(|| TcpListener::bind(address)).unwrap().unwrap();
    let port = listener.local_addr().unwrap().port();
    thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            stream.set_read_timeout(Some(PATIENCE)).unwrap();
            thread::spawn(move || {
                let mut taken = 0_u64;
                let mut buffer = vec![0; 1 << 16];
                while let Ok(length @ 1..) = stream.read(&mut buffer) {
                    // A pattern that shows any byte that is missing, doubled or misplaced.
                    let expected = (taken..).map(pattern);
                    assert!(buffer[..length].iter().copied().eq(expected.take(length)));
                    taken += length as u64;
                }
                let _ = stream.write_all(&taken.to_be_bytes());
            });
        }
    });
    port
}

fn pattern(at: u64) -> u8 {
    u8::try_from(at % 251).unwrap()
}

/// Opens a connection from a socket of `host`.
pub(crate) fn dial(
    host: &Host,
    to: Ipv4Addr,
    port: u16,
    limit: Duration,
) -> std::io::Result<TcpStream> {
    let address = SocketAddr::from((to, port));
    host.enter(|| TcpStream::connect_timeout(&address, limit))
        .unwrap()
}

/// Sends `bytes` to the sink at the other end and waits until it has received them all.
pub(crate) fn send(mut stream: TcpStream, bytes: usize) {
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream.set_write_timeout(Some(PATIENCE)).unwrap();
    let data: Vec<u8> = (0..bytes as u64).map(pattern).collect();
    stream.write_all(&data).unwrap();
    stream.shutdown(Shutdown::Write).unwrap();
    let mut taken = [0; 8];
    stream.read_exact(&mut taken).unwrap();
    assert_eq!(u64::from_be_bytes(taken), bytes as u64);
}
