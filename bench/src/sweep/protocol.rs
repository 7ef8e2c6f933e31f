//! DOCL's protocol of mutual exclusion for throughput tests (its figures 22 and 23), in simulated time. Pure.
//!
//! Each host has a serial queue of jobs and a time TS, when its current test ends. One host of each pair is the client.
//!
//! - A client's job with TS set tries again at TS, or in 1 s if TS has passed. Else it connects, and waits in the queue for the
//!   answer, for 1 s at most. Later answers are jobs of their own.
//! - A server's job with TS set answers the remaining time, after which the client tries again. Else it sets TS, and the test runs.
//!
//! All hosts know each other at the beginning, within a second. Invariant: a host runs one test at a time.

use std::cmp::Ordering;
use std::collections::{BinaryHeap, VecDeque};

use crate::random::Random;

/// Duration of a test, in seconds.
pub(super) const DURATION: f64 = 60.0;
/// How long a client waits in its queue for an answer.
const IN_QUEUE: f64 = 1.0;
/// Pause after an overrun.
const AGAIN: f64 = 1.0;
/// Delay of a message on the local network.
const LATENCY: f64 = 0.000_3;
/// A client's results take up to this time after its test.
const RESULTS: f64 = 0.05;

#[derive(Clone, Copy, Debug, PartialEq)]
enum What {
    /// A job of the client: begin.
    Attempt,
    /// A job of the server: a client has connected.
    Accept,
    /// The server's answer arrives: the remaining time, or the test begins.
    Answer(Option<f64>),
    /// A late answer, as a job of the client.
    LateAnswer(Option<f64>),
    /// The client no longer waits in its queue.
    GiveUp,
    /// A job of the client or the server: the test is over.
    Over { is_client: bool },
}

/// Something that happens to a pair at a time.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Event {
    at: f64,
    /// Order among events of one time.
    number: u64,
    pair: usize,
    what: What,
}

impl Eq for Event {}

impl Ord for Event {
    fn cmp(&self, other: &Event) -> Ordering {
        // The heap has the largest on top.
        let (one, two) = ((other.at, other.number), (self.at, self.number));
        one.0.total_cmp(&two.0).then(one.1.cmp(&two.1))
    }
}

impl PartialOrd for Event {
    fn partial_cmp(&self, other: &Event) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

#[derive(Clone, Debug, Default)]
struct Host {
    ends: Option<f64>,
    /// The pair whose answer the queue waits for.
    waits_for: Option<usize>,
    queue: VecDeque<(usize, What)>,
}

struct Pair {
    client: usize,
    server: usize,
    /// Number of ends that have finished the test.
    finished: u8,
    /// Whether the client has hung up on the test that the server has begun.
    is_refused: bool,
}

struct Simulation<'r> {
    hosts: Vec<Host>,
    pairs: Vec<Pair>,
    events: BinaryHeap<Event>,
    number: u64,
    random: &'r mut Random,
    now: f64,
}

/// Seconds until all pairs of hosts are tested.
pub(super) fn sweep(hosts: usize, random: &mut Random) -> f64 {
    let mut pairs = Vec::new();
    for one in 0..hosts {
        for other in one + 1..hosts {
            let (client, server) = match random.unit() < 0.5 {
                true => (one, other),
                false => (other, one),
            };
            pairs.push(Pair {
                client,
                server,
                finished: 0,
                is_refused: false,
            });
        }
    }
    let mut simulation = Simulation {
        hosts: vec![Host::default(); hosts],
        events: BinaryHeap::new(),
        number: 0,
        now: 0.0,
        random,
        pairs,
    };
    for pair in 0..simulation.pairs.len() {
        let found = simulation.random.unit();
        simulation.at(found, pair, What::Attempt);
    }
    while let Some(event) = simulation.events.pop() {
        simulation.now = event.at;
        simulation.happens(event.pair, event.what);
        if simulation.pairs.iter().all(|pair| pair.finished == 2) {
            break;
        }
    }
    simulation.now
}

impl Simulation<'_> {
    fn at(&mut self, at: f64, pair: usize, what: What) {
        self.number += 1;
        let number = self.number;
        self.events.push(Event {
            at,
            number,
            pair,
            what,
        });
    }

    fn happens(&mut self, pair: usize, what: What) {
        let client = self.pairs[pair].client;
        let host = match what {
            What::Answer(answer) if self.hosts[client].waits_for == Some(pair) => {
                self.hosts[client].waits_for = None;
                self.begin_or_wait(pair, answer);
                return self.next(client);
            }
            What::Answer(answer) => return self.happens(pair, What::LateAnswer(answer)),
            What::GiveUp if self.hosts[client].waits_for == Some(pair) => {
                self.hosts[client].waits_for = None;
                return self.next(client);
            }
            What::GiveUp => return,
            What::Attempt | What::LateAnswer(_) | What::Over { is_client: true } => client,
            What::Accept | What::Over { is_client: false } => self.pairs[pair].server,
        };
        self.hosts[host].queue.push_back((pair, what));
        self.next(host);
    }

    /// Runs the jobs of a host until its queue waits.
    fn next(&mut self, host: usize) {
        while self.hosts[host].waits_for.is_none() {
            let Some((pair, what)) = self.hosts[host].queue.pop_front() else {
                return;
            };
            self.run(host, pair, what);
        }
    }

    fn run(&mut self, host: usize, pair: usize, what: What) {
        let (now, ends) = (self.now, self.hosts[host].ends);
        match what {
            What::Attempt => match ends {
                Some(ends) if ends > now => self.at(ends, pair, What::Attempt),
                Some(_) => self.at(now + AGAIN, pair, What::Attempt),
                None => {
                    self.hosts[host].waits_for = Some(pair);
                    self.at(now + LATENCY, pair, What::Accept);
                    self.at(now + IN_QUEUE, pair, What::GiveUp);
                }
            },
            What::Accept => {
                let left = ends.map(|ends| (ends - now).max(0.0));
                if left.is_none() {
                    self.hosts[host].ends = Some(now + DURATION);
                    self.pairs[pair].is_refused = false;
                    let over = now + DURATION + RESULTS;
                    self.at(over, pair, What::Over { is_client: false });
                }
                self.at(now + LATENCY, pair, What::Answer(left));
            }
            What::LateAnswer(answer) => match (answer, ends) {
                (None, Some(ends)) => {
                    // The client hangs up, and the server's host is free at once.
                    self.pairs[pair].is_refused = true;
                    let server = self.pairs[pair].server;
                    self.hosts[server].ends = None;
                    self.at(ends.max(now + LATENCY), pair, What::Attempt);
                }
                _ => self.begin_or_wait(pair, answer),
            },
            What::Over { is_client } => {
                // The end of a test on which the client has hung up.
                if !is_client && self.pairs[pair].is_refused {
                    self.pairs[pair].is_refused = false;
                    return;
                }
                self.hosts[host].ends = None;
                self.pairs[pair].finished += 1;
            }
            What::Answer(_) | What::GiveUp => {}
        }
    }

    /// What the client does with an answer.
    fn begin_or_wait(&mut self, pair: usize, answer: Option<f64>) {
        match answer {
            Some(left) => self.at(self.now + left, pair, What::Attempt),
            None => {
                let client = self.pairs[pair].client;
                self.hosts[client].ends = Some(self.now + DURATION);
                let results = RESULTS * self.random.unit();
                let over = self.now + DURATION + results;
                self.at(over, pair, What::Over { is_client: true });
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_hosts_take_one_test() {
        let took = sweep(2, &mut Random::new(1));
        assert!((DURATION..DURATION + 2.0).contains(&took), "{took}");
    }

    #[test]
    fn every_sweep_ends_and_none_is_faster_than_the_least_time() {
        for hosts in 3..9 {
            let least = causeway_links::rounds(hosts).len() as f64 * DURATION;
            let mut random = Random::new(hosts as u64);
            for _ in 0..50 {
                let took = sweep(hosts, &mut random);
                // A greedy colouring needs less than twice the least number.
                assert!(took >= least && took < 2.2 * least, "{hosts}: {took}");
            }
        }
    }
}
