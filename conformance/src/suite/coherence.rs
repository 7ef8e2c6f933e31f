//! Random programs over buffers that three nodes share: `programs/coherence.c`, which checks every read
//! against a model of flat memory.
//!
//! Most use the fake driver for speed; some use the system's driver. The same programs run natively on
//! one device. Both sides must print the same digests of the bytes read.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use crate::SetupError;
use crate::case::{Case, Verdict, first_difference};
use crate::places::fake_driver;
use crate::programs::Programs;
use crate::sides::{Launch, Side, Sides};

/// Number of nodes. The native side has one device.
const NODES: usize = 3;

/// Number of programs per process.
const SHARE: u32 = 100;

/// One of this number of programs also runs over the system's driver.
const NATIVE_SHARE: u32 = 10;

/// Behaviours of the fake driver: name and settings.
const BEHAVIOURS: [(&str, &str); 2] = [
    ("at-once", "order = 'forward'"),
    (
        "any-order",
        "order = 'random'; kernel.fake_add_u32.ns = 300000; kernel.fake_copy.ns = 200000; \
         kernel.fake_fill_u32.ns = 100000",
    ),
];

pub(super) fn cases(programs: &Programs, sides: &Sides) -> Result<Vec<Case>, SetupError> {
    let program = programs.path("coherence")?;
    let Some(nodes) = sides.on_nodes(NODES)? else {
        let reason = "--server names too few nodes";
        return Ok(vec![Case::skipped("coherence", reason)]);
    };
    let nodes = Arc::new(nodes);
    let mut cases = Vec::new();
    let half = sides.effort.rounds / 2;
    for ((name, settings), half_before) in BEHAVIOURS.into_iter().zip(0_u32..) {
        let variables = [("FAKE_OPENCL_CONFIG", settings.to_owned())];
        let Some(over) = nodes.over(&fake_driver(), &variables)? else {
            let reason = "the driver of daemons given by --server cannot be chosen";
            cases.push(Case::skipped(format!("coherence/{name}"), reason));
            continue;
        };
        let over = Arc::new(over);
        // The two halves have different seeds, so no program runs twice.
        let seed = sides.effort.seed + u64::from(half_before * half);
        for (seed, rounds) in shares(seed, half) {
            let (over, nodes, program) = (over.clone(), nodes.clone(), program.clone());
            cases.push(Case::new(
                format!("coherence/{name}/from-{seed}"),
                move |_| {
                    // Keeps `nodes` alive, which owns the drivers' directory.
                    let _ = &nodes;
                    compare(&over, &program, seed, rounds, |launch| {
                        launch
                            .args(["--computes", "0"])
                            .env("FAKE_OPENCL_CONFIG", settings)
                    })
                },
            ));
        }
    }
    for (seed, rounds) in shares(sides.effort.seed, sides.effort.rounds / NATIVE_SHARE) {
        let (nodes, program) = (nodes.clone(), program.clone());
        let title = format!("coherence/system-driver/from-{seed}");
        cases.push(Case::new(title, move |_| {
            compare(&nodes, &program, seed, rounds, |launch| {
                launch.args(["--sub-rects", "0"])
            })
        }));
    }
    Ok(cases)
}

/// Returns first seeds and numbers of programs, a process's share each.
fn shares(seed: u64, rounds: u32) -> impl Iterator<Item = (u64, u32)> {
    (0..rounds)
        .step_by(SHARE as usize)
        .map(move |first| (seed + u64::from(first), SHARE.min(rounds - first)))
}

fn compare(
    sides: &Sides,
    program: &PathBuf,
    seed: u64,
    rounds: u32,
    more: impl Fn(Launch) -> Launch,
) -> Result<Verdict, SetupError> {
    let launch = |devices: usize| {
        let limit = Duration::from_secs(120) + Duration::from_millis(1500) * rounds;
        more(Launch::new(program))
            .args(["--devices".to_owned(), devices.to_string()])
            .args(["--seed".to_owned(), seed.to_string()])
            .args(["--rounds".to_owned(), rounds.to_string()])
            .limit(limit)
    };
    // The native run has no gates, because a blocking call of PoCL waits for everything in its queue.
    let native = sides.run(Side::Native, &launch(1).args(["--gates", "0"]))?;
    let causeway = if sides.is_causeway() {
        sides.run(Side::Causeway, &launch(NODES))?
    } else {
        native.clone()
    };
    for (run, side) in [(&native, "native"), (&causeway, "causeway")] {
        if !run.succeeded() {
            let mut lines = run.stdout.lines().filter(|line| !line.contains("digest"));
            let told: Vec<&str> = lines.by_ref().collect();
            return Ok(Verdict::Failed(format!(
                "{side}: {}\n{}\n{}",
                run.exit,
                told.join("\n"),
                run.tail()
            )));
        }
    }
    Ok(match first_difference(&native.stdout, &causeway.stdout) {
        Some(difference) => Verdict::Failed(difference),
        None => Verdict::Noted(format!(
            "{rounds} programs; native {:.1} s, causeway {:.1} s",
            native.took.as_secs_f64(),
            causeway.took.as_secs_f64()
        )),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_cover_all_programs_once() {
        let shares: Vec<_> = shares(5, SHARE + 1).collect();
        assert_eq!(shares, [(5, SHARE), (5 + u64::from(SHARE), 1)]);
    }
}
