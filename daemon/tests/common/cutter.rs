//! A proxy in front of a daemon that counts connections, and cuts everything after a number of bytes. It can be closed.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::sync::{Arc, mpsc};

use parking_lot::Mutex;

use super::{Daemon, LIMIT};

pub struct Cutter {
    pub address: String,
    left: Arc<AtomicI64>,
    wall: Arc<Wall>,
    accepted: mpsc::Receiver<()>,
}

/// The proxy's connections, which it refuses while it is closed.
#[derive(Default)]
struct Wall {
    is_closed: AtomicBool,
    sockets: Mutex<Vec<TcpStream>>,
}

impl Cutter {
    pub fn before(daemon: &Daemon) -> Cutter {
        Cutter::at(&daemon.address)
    }

    pub fn at(target: &str) -> Cutter {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let (left, target) = (Arc::new(AtomicI64::new(i64::MAX)), target.to_owned());
        let (shared, wall) = (Arc::clone(&left), Arc::new(Wall::default()));
        let (counter, accepted) = mpsc::channel();
        let of = Arc::clone(&wall);
        std::thread::spawn(move || {
            for near in listener.incoming() {
                let near = near.unwrap();
                let far = {
                    let mut sockets = of.sockets.lock();
                    let _ = counter.send(());
                    if of.is_closed.load(Ordering::SeqCst) {
                        continue;
                    }
                    let far = TcpStream::connect(&target).unwrap();
                    sockets.extend([near.try_clone().unwrap(), far.try_clone().unwrap()]);
                    far
                };
                for (from, to) in [(&near, &far), (&far, &near)] {
                    let (from, to) = (from.try_clone().unwrap(), to.try_clone().unwrap());
                    let left = Arc::clone(&shared);
                    std::thread::spawn(move || pass(&from, &to, &left));
                }
            }
        });
        Cutter {
            address,
            left,
            wall,
            accepted,
        }
    }

    /// Breaks all connections, and closes each new one at once.
    pub fn close(&self) {
        let mut sockets = self.wall.sockets.lock();
        self.wall.is_closed.store(true, Ordering::SeqCst);
        for socket in sockets.drain(..) {
            let _ = socket.shutdown(Shutdown::Both);
        }
    }

    /// Forwards connections again.
    pub fn open(&self) {
        self.wall.is_closed.store(false, Ordering::SeqCst);
    }

    pub fn cut_after(&self, bytes: i64) {
        self.left.store(bytes, Ordering::SeqCst);
    }

    /// Returns how many connections there were since the last time.
    pub fn count(&self) -> usize {
        self.accepted.try_iter().count()
    }

    /// Waits for the next connection.
    pub fn accepted(&self) {
        self.accepted.recv_timeout(LIMIT).expect("a connection");
    }
}

fn pass(mut from: &TcpStream, mut to: &TcpStream, left: &AtomicI64) {
    let mut bytes = vec![0; 64 << 10];
    while let Ok(got @ 1..) = from.read(&mut bytes) {
        if left.fetch_sub(got as i64, Ordering::SeqCst) < got as i64
            || to.write_all(&bytes[..got]).is_err()
        {
            break;
        }
    }
    let _ = from.shutdown(Shutdown::Both);
    let _ = to.shutdown(Shutdown::Both);
}
