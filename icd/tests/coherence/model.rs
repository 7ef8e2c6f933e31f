//! Random programs on one to six sites and the client, run in any order that their plans allow, against
//! a flat memory and a directory of single bytes.
//!
//! The test proves for every program: each byte that is read is what a flat memory would contain. Nothing moves to
//! where it is valid already, and every missing byte moves once. After a write, its place has the only valid copy.
//! Every edge goes from an earlier to a later command, so everything that was sent ends. A range is reported as lost
//! exactly if it is lost. A failure reaches only what depends on it. Nothing that has ended is remembered.
//!
//! Missing edges are found too: commands run in random order, bound by waits and in-order queues only. So a missing
//! edge lets some program read wrong bytes.

mod bytes;
mod choices;
mod machine;
mod news;
mod oracle;
mod program;
mod steps;

use std::cell::Cell;

use choices::Choices;
use program::{Faults, Program};
use proptest::prelude::*;
use proptest::test_runner::{Config, RngAlgorithm, TestRng, TestRunner};

/// Programs of each of the four tests. 100,000 in all must run in a minute on two slow cores.
const PROGRAMS: u32 = 26_000;

fn run(faults: Faults, seed: u64, steps: &[u64]) {
    let mut choices = Choices::new(seed);
    let mut program = Program::new(faults, &mut choices);
    for step in steps {
        program.act(*step);
    }
    program.end(&mut choices);
}

fn check(faults: impl Fn(&mut Choices) -> Faults) {
    let default = Config::default();
    let config = Config {
        // PROPTEST_CASES can raise the number of cases, not lower it.
        cases: default.cases.max(PROGRAMS),
        failure_persistence: None,
        ..default
    };
    let ran = Cell::new(0u32);
    let strategy = (any::<u64>(), prop::collection::vec(any::<u64>(), 1..20));
    // The gate runs the same programs each time. COHERENCE_RANDOM=1 runs others.
    let mut runner = if std::env::var_os("COHERENCE_RANDOM").is_some() {
        TestRunner::new(config.clone())
    } else {
        let rng = TestRng::deterministic_rng(RngAlgorithm::ChaCha);
        TestRunner::new_with_rng(config.clone(), rng)
    };
    let outcome = runner.run(&strategy, |(seed, steps)| {
        ran.set(ran.get() + 1);
        run(faults(&mut Choices::new(seed)), seed, &steps);
        Ok(())
    });
    if let Err(failure) = outcome {
        panic!("{failure}");
    }
    assert!(ran.get() >= config.cases);
    println!("{} programs", ran.get());
}

#[test]
fn programs_where_nothing_fails() {
    check(|choices| Faults {
        strict: choices.one_in(2),
        ..Faults::default()
    });
}

#[test]
fn programs_where_commands_fail() {
    check(|choices| Faults {
        commands: true,
        strict: choices.one_in(2),
        ..Faults::default()
    });
}

#[test]
fn programs_where_transfers_fail() {
    check(|choices| Faults {
        commands: choices.one_in(2),
        transfers: true,
        losses: false,
        strict: choices.one_in(2),
    });
}

#[test]
fn programs_where_sites_are_lost() {
    check(|choices| Faults {
        commands: choices.one_in(2),
        transfers: choices.one_in(2),
        losses: true,
        strict: choices.one_in(2),
    });
}
