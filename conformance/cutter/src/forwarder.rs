//! The forwarder: its listener, its connections, and the plan by which it cuts them.

use std::collections::BTreeMap;
use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};

use crate::connection::{Connection, Purpose};
use crate::random::Random;
use crate::{Cut, Direction, Hold, Target, socket};

/// How often the listener and held connections look at the forwarder's state.
const LOOK: Duration = Duration::from_millis(10);

/// Bytes that are forwarded at once.
const CHUNK: usize = 256 << 10;

/// One of this number of planned cuts is a silence.
const SILENT_OF: u64 = 8;

/// The cuts that a forwarder makes by itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Plan {
    /// None.
    Whole,
    /// Each connection but those for control is cut after a random number of bytes, in both directions together.
    /// The same seed gives the n-th connection the same number.
    Bytes {
        /// The mean number of bytes.
        mean: u64,
        /// The seed of the numbers.
        seed: u64,
        /// If not zero, some cuts are silences: the connections of open sessions pass nothing for this long, and are then
        /// reset. New connections pass, as after a router that has forgotten the old ones.
        silence: Duration,
    },
    /// All connections are cut at regular intervals.
    Every(Duration),
}

/// Counts since the start of a forwarder.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Accepted connections, by purpose in the order of [`Purpose::ALL`].
    pub connections: [u64; 5],
    /// Cut connections.
    pub cuts: u64,
    /// Silences that the plan made.
    pub silences: u64,
    /// Bytes to the node.
    pub up: u64,
    /// Bytes from the node.
    pub down: u64,
}

impl Counts {
    /// Accepted connections of this purpose.
    #[must_use]
    pub fn of(&self, purpose: Purpose) -> u64 {
        self.connections[purpose.number()]
    }
}

/// A running forwarder. Dropping it cuts its connections and closes its port.
pub struct Forwarder {
    shared: Arc<Shared>,
}

struct Shared {
    state: Mutex<ForwarderState>,
    changed: Condvar,
    up: AtomicU64,
    down: AtomicU64,
}

struct ForwarderState {
    listen: SocketAddr,
    target: Option<Target>,
    plan: Plan,
    hold: Hold,
    accepts: bool,
    /// The listener exists as `listen` and `accepts` say.
    is_settled: bool,
    ends: bool,
    connections: BTreeMap<u64, Arc<Connection>>,
    next: u64,
    counts: Counts,
}

impl ForwarderState {
    fn holds(&self, direction: Direction, purpose: Option<Purpose>) -> bool {
        self.hold.holds(direction, purpose)
    }

    fn cut(&mut self, how: Cut, which: impl Fn(&Connection) -> bool) -> usize {
        let chosen = self.connections.values().filter(|it| which(it));
        let cut = chosen.filter(|it| it.cut(how)).count();
        self.counts.cuts += cut as u64;
        cut
    }
}

impl Forwarder {
    /// Listens on a free port of 127.0.0.1.
    ///
    /// # Errors
    /// If no port can be opened.
    pub fn start(target: Option<Target>) -> io::Result<Forwarder> {
        Forwarder::start_on(SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 0), target)
    }

    /// Listens on this address.
    ///
    /// # Errors
    /// If the port cannot be opened.
    pub fn start_on(listen: SocketAddr, target: Option<Target>) -> io::Result<Forwarder> {
        let listener = TcpListener::bind(listen)?;
        let shared = Arc::new(Shared {
            state: Mutex::new(ForwarderState {
                listen: listener.local_addr()?,
                target,
                plan: Plan::Whole,
                hold: Hold::default(),
                accepts: true,
                is_settled: true,
                ends: false,
                connections: BTreeMap::new(),
                next: 0,
                counts: Counts::default(),
            }),
            changed: Condvar::new(),
            up: AtomicU64::new(0),
            down: AtomicU64::new(0),
        });
        let listening = Arc::clone(&shared);
        thread::spawn(move || listen_on(&listening, listener));
        Ok(Forwarder { shared })
    }

    /// The address for programs.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.shared.state.lock().listen
    }

    /// Sets the node for connections from now on.
    pub fn set_target(&self, target: Target) {
        self.shared.state.lock().target = Some(target);
    }

    /// Sets the plan for connections from now on.
    pub fn set_plan(&self, plan: Plan) {
        self.shared.state.lock().plan = plan;
        if let Plan::Every(pause) = plan {
            let shared = Arc::clone(&self.shared);
            thread::spawn(move || cut_every(&shared, pause));
        }
    }

    /// Cuts all connections, also those for control. Returns their number.
    pub fn cut_all(&self, how: Cut) -> usize {
        self.shared.state.lock().cut(how, |_| true)
    }

    /// Cuts the connections of this purpose. Returns their number.
    pub fn cut_those(&self, how: Cut, purpose: Purpose) -> usize {
        let mut state = self.shared.state.lock();
        state.cut(how, |it| it.purpose == purpose)
    }

    /// Cuts all connections of sessions. Returns their number.
    pub fn cut_sessions(&self, how: Cut) -> usize {
        let mut state = self.shared.state.lock();
        state.cut(how, |it| it.purpose != Purpose::Control)
    }

    /// Cuts one connection of a session, chosen by this number. Returns its purpose.
    pub fn cut_one(&self, how: Cut, choice: u64) -> Option<Purpose> {
        let mut state = self.shared.state.lock();
        let all = state.connections.values();
        let of_sessions: Vec<_> = all
            .filter(|it| it.purpose != Purpose::Control && !it.is_cut())
            .cloned()
            .collect();
        let index = usize::try_from(choice % of_sessions.len().max(1) as u64).unwrap_or(0);
        let chosen = of_sessions.get(index)?;
        chosen.cut(how).then(|| {
            state.counts.cuts += 1;
            chosen.purpose
        })
    }

    /// Holds connections, or lets them go on. Held bytes pass later.
    pub fn hold(&self, hold: Hold) {
        self.shared.state.lock().hold = hold;
        self.shared.changed.notify_all();
    }

    /// Closes the port, so that new connections are refused, and cuts all connections. Returns when it is closed.
    pub fn close(&self) {
        self.settle(|state| state.accepts = false);
        self.cut_all(Cut::Reset);
    }

    /// Sets the address of the machine at which the port is opened from now on.
    pub fn set_address(&self, address: IpAddr) {
        self.shared.state.lock().listen.set_ip(address);
    }

    /// Opens the port again. Returns when programs can connect.
    pub fn open(&self) {
        self.settle(|state| state.accepts = true);
    }

    /// The counts since the start.
    #[must_use]
    pub fn counts(&self) -> Counts {
        Counts {
            up: self.shared.up.load(Ordering::SeqCst),
            down: self.shared.down.load(Ordering::SeqCst),
            ..self.shared.state.lock().counts
        }
    }

    /// The connections that exist now, by purpose.
    #[must_use]
    pub fn connected(&self, purpose: Purpose) -> usize {
        let state = self.shared.state.lock();
        let all = state.connections.values();
        all.filter(|it| it.purpose == purpose && !it.is_cut())
            .count()
    }

    fn settle(&self, change: impl FnOnce(&mut ForwarderState)) {
        let mut state = self.shared.state.lock();
        change(&mut state);
        state.is_settled = false;
        self.shared.changed.notify_all();
        while !state.is_settled && !state.ends {
            self.shared.changed.wait(&mut state);
        }
    }
}

impl Drop for Forwarder {
    fn drop(&mut self) {
        {
            let mut state = self.shared.state.lock();
            state.ends = true;
            state.cut(Cut::Reset, |_| true);
        }
        self.shared.changed.notify_all();
    }
}

fn cut_every(shared: &Shared, pause: Duration) {
    loop {
        let mut state = shared.state.lock();
        if state.ends || state.plan != Plan::Every(pause) {
            return;
        }
        if shared.changed.wait_for(&mut state, pause).timed_out() {
            state.cut(Cut::Reset, |_| true);
        }
    }
}

fn listen_on(shared: &Arc<Shared>, first: TcpListener) {
    let mut listener = Some(first);
    loop {
        if !settled(shared, &mut listener) {
            return;
        }
        let Some(open) = &listener else {
            continue;
        };
        let _ = open.set_nonblocking(true);
        match open.accept() {
            Ok((stream, _)) => {
                let shared = Arc::clone(shared);
                thread::spawn(move || forward(&shared, stream));
            }
            Err(_) => wait_for_caller(open),
        }
    }
}

fn wait_for_caller(listener: &TcpListener) {
    use rustix::event::{PollFd, PollFlags, Timespec, poll};
    let mut polled = [PollFd::new(listener, PollFlags::IN)];
    let limit = Timespec::try_from(LOOK).unwrap_or_default();
    let _ = poll(&mut polled, Some(&limit));
}

/// Opens or closes the listener as the state says. False if the forwarder ends.
fn settled(shared: &Shared, listener: &mut Option<TcpListener>) -> bool {
    let mut state = shared.state.lock();
    if state.ends {
        state.is_settled = true;
        shared.changed.notify_all();
        return false;
    }
    if state.is_settled {
        if listener.is_none() {
            shared.changed.wait_for(&mut state, LOOK);
        }
        return true;
    }
    // First, so that the same port can be opened again.
    drop(listener.take());
    if state.accepts {
        match TcpListener::bind(state.listen) {
            Ok(opened) => *listener = Some(opened),
            Err(_) => {
                shared.changed.wait_for(&mut state, LOOK);
                return true;
            }
        }
    }
    state.is_settled = true;
    shared.changed.notify_all();
    true
}

fn forward(shared: &Arc<Shared>, stream: TcpStream) {
    let Ok(near) = socket::prepared(stream) else {
        return;
    };
    let mut first = vec![0; CHUNK];
    let Some((count, purpose)) = first_bytes(shared, &near, &mut first) else {
        return;
    };
    let target = shared.state.lock().target.clone();
    let Some(far) = target.and_then(|target| socket::dial(&target).ok()) else {
        return;
    };
    let (number, connection) = enter(shared, near, far, purpose);
    let (upward, downward) = (Arc::clone(&connection), Arc::clone(&connection));
    let other = Arc::clone(shared);
    let back = thread::spawn(move || pass(&other, &downward, Direction::Down, 0, vec![0; CHUNK]));
    pass(shared, &upward, Direction::Up, count, first);
    let _ = back.join();
    shared.state.lock().connections.remove(&number);
}

/// Waits for the first bytes of a connection. `None` if the caller has given up meanwhile: a network that was silent
/// would not have shown that connection to the node.
fn first_bytes(shared: &Shared, near: &OwnedFd, bytes: &mut [u8]) -> Option<(usize, Purpose)> {
    loop {
        if !until_free(shared, Direction::Up, None, || false) || socket::is_closed(near) {
            return None;
        }
        if !socket::readable(near, LOOK) {
            continue;
        }
        // A silence may have begun meanwhile.
        if shared.state.lock().holds(Direction::Up, None) {
            continue;
        }
        match socket::read(near, bytes) {
            Ok(None) => {}
            Ok(Some(count)) if count > 0 => {
                let purpose = Purpose::of(&bytes[..count]);
                let free = until_free(shared, Direction::Up, Some(purpose), || false);
                return (free && !socket::is_closed(near)).then_some((count, purpose));
            }
            _ => return None,
        }
    }
}

fn enter(shared: &Shared, near: OwnedFd, far: OwnedFd, purpose: Purpose) -> (u64, Arc<Connection>) {
    let mut state = shared.state.lock();
    let number = state.next;
    state.next += 1;
    state.counts.connections[purpose.number()] += 1;
    let left = match state.plan {
        Plan::Bytes { mean, seed, .. } if purpose != Purpose::Control => {
            let drawn = Random::of(seed, number).below(mean.saturating_mul(2).max(1));
            i64::try_from(drawn + 1).unwrap_or(i64::MAX)
        }
        _ => i64::MAX,
    };
    let connection = Connection::new(near, far, purpose, left);
    if state.ends {
        connection.cut(Cut::Reset);
    }
    state.connections.insert(number, Arc::clone(&connection));
    (number, connection)
}

/// Waits while the direction is held. False if `is_over`, or the forwarder ends.
fn until_free(
    shared: &Shared,
    direction: Direction,
    purpose: Option<Purpose>,
    is_over: impl Fn() -> bool,
) -> bool {
    let mut state = shared.state.lock();
    loop {
        if state.ends || is_over() {
            return false;
        }
        if !state.holds(direction, purpose) {
            return true;
        }
        shared.changed.wait_for(&mut state, LOOK);
    }
}

/// Forwards one direction until its end. The first `count` bytes are there already.
fn pass(
    shared: &Shared,
    connection: &Connection,
    direction: Direction,
    mut count: usize,
    mut bytes: Vec<u8>,
) {
    let (from, to, counter) = match direction {
        Direction::Up => (&connection.near, &connection.far, &shared.up),
        Direction::Down => (&connection.far, &connection.near, &shared.down),
    };
    let purpose = Some(connection.purpose);
    loop {
        if !until_free(shared, direction, purpose, || connection.is_cut()) {
            return;
        }
        if connection.is_silent(Instant::now()) {
            thread::sleep(LOOK);
            continue;
        }
        if count == 0 {
            if !socket::readable(from, LOOK) || shared.state.lock().holds(direction, purpose) {
                continue;
            }
            match socket::read(from, &mut bytes) {
                Ok(None) => continue,
                Ok(Some(0)) => return socket::end_bytes(to),
                Ok(Some(read)) => count = read,
                Err(_) => {
                    connection.cut(Cut::Reset);
                    return;
                }
            }
        }
        let allowed = connection.take(count);
        counter.fetch_add(allowed as u64, Ordering::SeqCst);
        if socket::write_all(to, &bytes[..allowed]).is_err() {
            connection.cut(Cut::Reset);
            return;
        }
        if allowed < count {
            planned_cut(shared, connection);
            return;
        }
        count = 0;
    }
}

/// Ends a connection whose bytes are used up: by a reset, a close, or a silence.
fn planned_cut(shared: &Shared, connection: &Connection) {
    let mut state = shared.state.lock();
    let (seed, silence) = match state.plan {
        Plan::Bytes { seed, silence, .. } => (seed, silence),
        _ => (0, Duration::ZERO),
    };
    let mut random = Random::of(!seed, state.counts.cuts);
    let how = match random.below(2) {
        0 => Cut::Reset,
        _ => Cut::Close,
    };
    let is_silence = !silence.is_zero() && random.below(SILENT_OF) == 0;
    if is_silence {
        let now = Instant::now();
        let of_sessions = state.connections.values();
        let of_sessions =
            of_sessions.filter(|it| it.purpose != Purpose::Control && !it.is_opening(now));
        of_sessions.for_each(|it| it.silence(now + silence));
        state.counts.silences += 1;
    }
    if connection.is_silent(Instant::now()) || connection.cut(how) {
        state.counts.cuts += 1;
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};

    use super::*;

    const SOON: Duration = Duration::from_secs(20);

    /// A node that returns every byte.
    fn echo() -> Target {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                thread::spawn(move || {
                    let (mut from, mut to) = (stream.try_clone().unwrap(), stream);
                    let _ = io::copy(&mut from, &mut to);
                });
            }
        });
        Target::Tcp(address)
    }

    fn call(forwarder: &Forwarder, purpose: u8) -> TcpStream {
        let mut stream = TcpStream::connect(forwarder.address()).unwrap();
        stream.set_read_timeout(Some(SOON)).unwrap();
        stream.write_all(&preamble(purpose)).unwrap();
        let mut back = [0; 8];
        stream.read_exact(&mut back).unwrap();
        assert_eq!(back, preamble(purpose));
        stream
    }

    fn preamble(purpose: u8) -> [u8; 8] {
        [b'C', b'S', b'W', b'Y', 0, 0, purpose, 0]
    }

    #[test]
    fn a_plan_cuts_after_the_same_bytes() {
        let passed = |seed| {
            let forwarder = Forwarder::start(Some(echo())).unwrap();
            forwarder.set_plan(Plan::Bytes {
                mean: 100_000,
                seed,
                silence: Duration::ZERO,
            });
            let mut stream = call(&forwarder, 3);
            let mut sender = stream.try_clone().unwrap();
            thread::spawn(move || while sender.write_all(&[0; 1000]).is_ok() {});
            let mut bytes = Vec::new();
            let _ = stream.read_to_end(&mut bytes);
            let counts = forwarder.counts();
            assert_eq!((counts.cuts, counts.of(Purpose::Lane)), (1, 1));
            counts.up + counts.down
        };
        let first = passed(7);
        assert!((1..=200_000).contains(&first));
        assert_eq!(first, passed(7));
        assert_ne!(first, passed(8));
    }

    #[test]
    fn held_bytes_pass_later() {
        let forwarder = Forwarder::start(Some(echo())).unwrap();
        let mut stream = call(&forwarder, 1);
        forwarder.hold(Hold::ALL);
        stream.write_all(b"late").unwrap();
        stream
            .set_read_timeout(Some(Duration::from_millis(100)))
            .unwrap();
        let mut back = [0; 4];
        assert!(stream.read(&mut back).is_err());
        forwarder.hold(Hold::default());
        stream.set_read_timeout(Some(SOON)).unwrap();
        stream.read_exact(&mut back).unwrap();
        assert_eq!(&back, b"late");
    }

    #[test]
    fn callers_that_gave_up_in_a_silence_never_reach_the_node() {
        let forwarder = Forwarder::start(Some(echo())).unwrap();
        forwarder.hold(Hold::ALL);
        let mut stream = TcpStream::connect(forwarder.address()).unwrap();
        stream.write_all(&preamble(1)).unwrap();
        drop(stream);
        thread::sleep(3 * LOOK);
        forwarder.hold(Hold::default());
        let _other = call(&forwarder, 4);
        assert_eq!(forwarder.counts().of(Purpose::Commands), 0);
    }

    #[test]
    fn a_closed_port_refuses_and_opens_again_elsewhere() {
        let forwarder = Forwarder::start(Some(echo())).unwrap();
        let mut stream = call(&forwarder, 1);
        forwarder.close();
        assert!(
            stream
                .read(&mut [0])
                .is_err_and(|error| { error.kind() == io::ErrorKind::ConnectionReset })
        );
        let refused = TcpStream::connect(forwarder.address());
        assert_eq!(
            refused.unwrap_err().kind(),
            io::ErrorKind::ConnectionRefused
        );
        forwarder.set_address(IpAddr::V4(Ipv4Addr::new(127, 0, 0, 2)));
        forwarder.open();
        let _again = call(&forwarder, 1);
    }
}
