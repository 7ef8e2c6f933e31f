//! A query to several sites at the same time.
//!
//! Not here: the contents of queries and answers. Invariant: every query that was sent is answered once, by
//! its node or by the loss of its session, so no wait here is endless.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use causeway_proto::command::Answer;
use parking_lot::{Condvar, Mutex};

use crate::stub::Site;
use crate::transport::WireError;

/// The answer of a site, or the error instead.
pub(in crate::stub) type Answered = Result<Answer, WireError>;

/// Receives the answer of one site; dropped when the query could not be sent.
pub(in crate::stub) type Receiver = Box<dyn FnOnce(Answered) + Send>;

struct Gathering<T> {
    answers: Vec<Option<Answered>>,
    // Number of outstanding answers, plus one until all queries have been sent.
    missing: usize,
    then: Option<T>,
}

impl<T: FnOnce(Vec<Answered>)> Gathering<T> {
    fn take(&mut self) -> Vec<Answered> {
        self.answers.drain(..).flatten().collect()
    }
}

fn one_less<T: FnOnce(Vec<Answered>)>(gathering: &Mutex<Gathering<T>>) {
    let complete = {
        let mut gathering = gathering.lock();
        gathering.missing -= 1;
        let over = gathering.missing == 0;
        let then = if over { gathering.then.take() } else { None };
        then.map(|then| (then, gathering.take()))
    };
    if let Some((then, answers)) = complete {
        then(answers);
    }
}

/// Calls `ask` for each site, and later `then` once, with the answers in the order of `sites`. `then` runs
/// on the thread that delivers the last answer. Does not wait.
///
/// # Errors
/// The error of each site when no query could be sent; `then` is not called.
pub(in crate::stub) fn ask_each<T>(
    sites: &[Arc<Site>],
    mut ask: impl FnMut(usize, Receiver) -> Result<(), WireError>,
    then: T,
) -> Result<(), Vec<WireError>>
where
    T: FnOnce(Vec<Answered>) + Send + 'static,
{
    let gathering = Arc::new(Mutex::new(Gathering {
        answers: sites.iter().map(|_| None).collect(),
        missing: sites.len() + 1,
        then: Some(then),
    }));
    let mut refused = Vec::new();
    for place in 0..sites.len() {
        let gathered = gathering.clone();
        let receiver = move |answer| {
            gathered.lock().answers[place] = Some(answer);
            one_less(&gathered);
        };
        if let Err(error) = ask(place, Box::new(receiver)) {
            refused.push(error.clone());
            // This cannot be the last one: the count includes one for this loop.
            let mut gathering = gathering.lock();
            gathering.answers[place] = Some(Err(error));
            gathering.missing -= 1;
        }
    }
    if refused.len() == sites.len() {
        return Err(refused);
    }
    one_less(&gathering);
    Ok(())
}

/// Like [`ask_each`], but waits for all answers. The waiting thread reads the connections, so the caller
/// must not hold a lock that a session's events need.
pub(in crate::stub) fn ask_all(
    sites: &[Arc<Site>],
    mut ask: impl FnMut(usize, Receiver) -> Result<(), WireError>,
) -> Vec<Answered> {
    // Not a channel: a channel needs thread-local data, which a program's last destructors no longer have.
    let arrived = Arc::new((Mutex::new(None), Condvar::new()));
    let arriving = arrived.clone();
    let settled: Arc<[AtomicBool]> = sites.iter().map(|_| AtomicBool::new(false)).collect();
    let ask = |place: usize, receiver: Receiver| {
        let settling = settled.clone();
        let receiver = move |answer| {
            receiver(answer);
            settling[place].store(true, Ordering::Release);
        };
        let asked = ask(place, Box::new(receiver));
        if asked.is_err() {
            settled[place].store(true, Ordering::Release);
        }
        asked
    };
    let asked = ask_each(sites, ask, move |answers| {
        *arriving.0.lock() = Some(answers);
        arriving.1.notify_one();
    });
    if let Err(refused) = asked {
        return refused.into_iter().map(Err).collect();
    }
    for site in sites {
        // The answer shows a failure.
        let _ = site.session().flush();
    }
    // This thread reads a session's connection while it waits there.
    for (site, settled) in sites.iter().zip(&*settled) {
        // An error of the session is also in the answer, with more detail.
        let over = || settled.load(Ordering::Acquire);
        let _ = site.session().wait_until(&over);
    }
    let mut answers = arrived.0.lock();
    arrived
        .1
        .wait_while(&mut answers, |answers| answers.is_none());
    answers.take().unwrap_or_default()
}
