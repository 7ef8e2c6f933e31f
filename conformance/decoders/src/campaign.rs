//! Runs many inputs through each decoder and checks each result.

use std::io::Write;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::{Duration, Instant};

use rand::rngs::StdRng;
use rand::seq::IndexedRandom;
use rand::{Rng, SeedableRng};

use crate::counting::most_held;
use crate::targets::{Form, Target};
use crate::{bytes, message, targets};

/// Time limit for one input, on any machine.
const PATIENCE: Duration = Duration::from_secs(120);
/// Number of findings after which a decoder is not run further.
const ENOUGH: usize = 5;
/// Maximum number of changes to one input.
const CHANGES: u32 = 4;

/// The selection of inputs.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Plan {
    /// Number of inputs in all.
    pub(crate) inputs: u64,
    pub(crate) seed: u64,
    /// Number of each decoder's first input.
    pub(crate) first: u64,
}

/// The decoders to run.
pub(crate) struct Campaign {
    targets: Vec<Target>,
    // Number of inputs that have begun, for the watchdog.
    begun: Arc<AtomicU64>,
}

impl Campaign {
    /// Selects the decoders whose names contain `only`.
    pub(crate) fn new(only: &str, seed: u64) -> std::io::Result<Campaign> {
        let mut targets = targets::all(&mut StdRng::seed_from_u64(seed))?;
        targets.retain(|target| target.name.contains(only));
        Ok(Campaign {
            targets,
            begun: Arc::default(),
        })
    }

    /// Runs the campaign. Returns the findings as text.
    pub(crate) fn run(&mut self, plan: &Plan) -> Vec<String> {
        let watch = Watch::over(Arc::clone(&self.begun));
        let weights: u64 = self.targets.iter().map(|target| target.weight).sum();
        let mut findings = Vec::new();
        let mut all = 0;
        for target in &mut self.targets {
            let count = (plan.inputs * target.weight).div_ceil(weights.max(1));
            say(&format!("{:<32}", target.name));
            let begun = Instant::now();
            let (taken, found) = inputs(target, count, plan, &self.begun);
            let seconds = begun.elapsed().as_secs_f64();
            say(&format!(
                "{count:>10} inputs, {taken:>9} taken, {seconds:>7.1} s, {} findings\n",
                found.len()
            ));
            all += count;
            findings.extend(found);
        }
        say(&format!(
            "seed {}: {all} inputs, {} findings\n",
            plan.seed,
            findings.len()
        ));
        drop(watch);
        findings
    }
}

// Flushed at once, so that the text is visible even if the next step ends the process.
fn say(text: &str) {
    let mut out = std::io::stdout().lock();
    let _ = out.write_all(text.as_bytes()).and_then(|()| out.flush());
}

fn inputs(target: &mut Target, count: u64, plan: &Plan, begun: &AtomicU64) -> (u64, Vec<String>) {
    let (mut taken, mut found) = (0, Vec::new());
    for number in plan.first..plan.first.saturating_add(count) {
        begun.fetch_add(1, Ordering::Relaxed);
        let input = input(target, plan.seed, number);
        let read = || catch_unwind(AssertUnwindSafe(|| (target.read)(&input)));
        let (outcome, held) = most_held(read);
        let limit = target.memory + target.memory_each * input.len();
        let wrong = match outcome {
            Err(_) => "panics".to_owned(),
            Ok(_) if held > limit => format!("takes {held} bytes, more than {limit}"),
            Ok(accepted) => {
                taken += u64::from(accepted);
                continue;
            }
        };
        let shown: String = input[..input.len().min(2048)].escape_ascii().to_string();
        found.push(format!(
            "{} {wrong}: --seed {} --first {number} --inputs 1 --only \"{}\": {} bytes: {shown}",
            target.name,
            plan.seed,
            target.name,
            input.len()
        ));
        if found.len() == ENOUGH {
            break;
        }
    }
    (taken, found)
}

// Returns the input for a seed, decoder and number: always the same one.
fn input(target: &Target, seed: u64, number: u64) -> Vec<u8> {
    let name = target.name.bytes().fold(seed, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    });
    let random = &mut StdRng::seed_from_u64(name ^ number.wrapping_mul(0x9e37_79b9_7f4a_7c15));
    if random.random_ratio(1, 16) {
        return bytes::raw(random);
    }
    let mut input = target.valid.choose(random).cloned().unwrap_or_default();
    for _ in 0..random.random_range(0..=CHANGES) {
        input = match &target.form {
            Form::Message if random.random_ratio(7, 8) => message::changed(&input, random),
            Form::Text(words) => bytes::reworded(&input, words, random),
            _ => bytes::changed(&input, random),
        };
    }
    input
}

/// Ends the process when one input takes too long. Nothing else can be done about a hanging thread.
struct Watch {
    end: Option<mpsc::Sender<()>>,
    thread: Option<thread::JoinHandle<()>>,
}

impl Watch {
    fn over(begun: Arc<AtomicU64>) -> Watch {
        let (end, ended) = mpsc::channel::<()>();
        let watch = move || {
            let mut last = begun.load(Ordering::Relaxed);
            while ended.recv_timeout(PATIENCE) == Err(mpsc::RecvTimeoutError::Timeout) {
                let now = begun.load(Ordering::Relaxed);
                if now == last {
                    eprintln!("decoders: an input takes longer than {PATIENCE:?}");
                    std::process::abort();
                }
                last = now;
            }
        };
        Watch {
            end: Some(end),
            thread: Some(thread::spawn(watch)),
        }
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        drop(self.end.take());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}
