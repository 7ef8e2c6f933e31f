//! A proxy in front of a daemon that counts connections, and cuts everything after a number of bytes.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, mpsc};

use super::{Daemon, LIMIT};

pub struct Cutter {
    pub address: String,
    left: Arc<AtomicI64>,
    accepted: mpsc::Receiver<()>,
}

impl Cutter {
    pub fn before(daemon: &Daemon) -> Cutter {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let (left, target) = (Arc::new(AtomicI64::new(i64::MAX)), daemon.address.clone());
        let shared = Arc::clone(&left);
        let (counter, accepted) = mpsc::channel();
        std::thread::spawn(move || {
            for near in listener.incoming() {
                let near = near.unwrap();
                let _ = counter.send(());
                let far = TcpStream::connect(&target).unwrap();
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
            accepted,
        }
    }

    pub fn cut_after(&self, bytes: i64) {
        self.left.store(bytes, Ordering::SeqCst);
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
