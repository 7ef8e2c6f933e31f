//! Random event graphs between three nodes: `programs/graphs.c`. The program's model knows how each event must
//! end. The program's watchdog reports the seed of a graph that hangs.
//!
//! Most graphs use the fake driver for speed. Either commands complete at once and in order, or launches
//! take time and the order is random. Some graphs use the system's driver. The native fake driver runs
//! the same graphs, so that the model is checked against a driver as well. Native PoCL is not used,
//! because it hangs on a user event with a negative status.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use crate::SetupError;
use crate::case::{Case, Verdict, first_difference};
use crate::places::fake_driver;
use crate::programs::Programs;
use crate::sides::{Launch, Side, Sides};

/// Number of nodes, and of native devices.
const NODES: usize = 3;

/// Number of graphs per process.
const SHARE: u32 = 500;

/// One of this number of graphs also runs over the system's driver.
const NATIVE_SHARE: u32 = 40;

/// Behaviours of the fake driver: name and settings.
const BEHAVIOURS: [(&str, &str); 2] = [
    ("at-once", "kernel.fails.fail = -5"),
    (
        "any-order",
        "order = 'random'; kernel.fails.fail = -5; kernel.fails.ns = 300000; \
         kernel.fake_add_u32.ns = 200000",
    ),
];

pub(super) fn cases(programs: &Programs, sides: &Sides) -> Result<Vec<Case>, SetupError> {
    let program = programs.path("graphs")?;
    let Some(nodes) = sides.on_nodes(NODES)? else {
        return Ok(vec![Case::skipped(
            "graphs",
            "--server names too few nodes",
        )]);
    };
    let nodes = Arc::new(nodes);
    let mut cases = Vec::new();
    let half = sides.effort.graphs / 2;
    for ((name, settings), half_before) in BEHAVIOURS.into_iter().zip(0_u32..) {
        let variables = [("FAKE_OPENCL_CONFIG", settings.to_owned())];
        let Some(over) = nodes.over(&fake_driver(), &variables)? else {
            let reason = "the driver of daemons given by --server cannot be chosen";
            cases.push(Case::skipped(format!("graphs/{name}"), reason));
            continue;
        };
        let over = Arc::new(over);
        // The two halves have different seeds, so no graph runs twice.
        let seed = sides.effort.seed + u64::from(half_before * half);
        for share in shares(seed, half) {
            let (over, nodes, program) = (over.clone(), nodes.clone(), program.clone());
            let title = format!("graphs/{name}/from-{}", share.seed);
            cases.push(Case::new(title, move |_| {
                // Keeps `nodes` alive, which owns the drivers' directory.
                let _ = &nodes;
                over_fake(&over, &program, settings, &share)
            }));
        }
    }
    let share = Share {
        seed: sides.effort.seed,
        graphs: (sides.effort.graphs / NATIVE_SHARE).max(1),
    };
    cases.push(Case::new("graphs/system-driver", move |_| {
        if !nodes.is_causeway() {
            let reason = "native PoCL aborts or hangs on failed user events";
            return Ok(Verdict::Skipped(reason.to_owned()));
        }
        let run = nodes.run(Side::Causeway, &share.launch(&program, false))?;
        Ok(if run.succeeded() {
            Verdict::Noted(run.stdout.trim_end().to_owned())
        } else {
            Verdict::Failed(format!("{}\n{}", run.exit, run.stdout))
        })
    }));
    Ok(cases)
}

/// Graphs with consecutive seeds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Share {
    seed: u64,
    graphs: u32,
}

impl Share {
    fn launch(self, program: &PathBuf, failing: bool) -> Launch {
        let limit = Duration::from_secs(120) + Duration::from_millis(250) * self.graphs;
        Launch::new(program)
            .args(["--devices".to_owned(), NODES.to_string()])
            .args(["--seed".to_owned(), self.seed.to_string()])
            .args(["--graphs".to_owned(), self.graphs.to_string()])
            .args(["--failing".to_owned(), u8::from(failing).to_string()])
            .limit(limit)
    }
}

/// Divides the graphs into one share per process.
fn shares(seed: u64, graphs: u32) -> Vec<Share> {
    (0..graphs)
        .step_by(SHARE as usize)
        .map(|first| Share {
            seed: seed + u64::from(first),
            graphs: SHARE.min(graphs - first),
        })
        .collect()
}

fn over_fake(
    sides: &Sides,
    program: &PathBuf,
    settings: &str,
    share: &Share,
) -> Result<Verdict, SetupError> {
    let launch = share.launch(program, true).env(
        "FAKE_OPENCL_CONFIG",
        format!("devices = {NODES}; {settings}"),
    );
    let native = sides.run(Side::Native, &launch)?;
    let causeway = sides.run(Side::Causeway, &launch)?;
    for (run, side) in [(&native, "native"), (&causeway, "causeway")] {
        if !run.succeeded() {
            return Ok(Verdict::Failed(format!(
                "{side}: {}\n{}",
                run.exit, run.stdout
            )));
        }
    }
    Ok(match first_difference(&native.stdout, &causeway.stdout) {
        Some(difference) => Verdict::Failed(difference),
        None => Verdict::Noted(format!(
            "{}; native {:.1} s, causeway {:.1} s",
            causeway.stdout.trim_end(),
            native.took.as_secs_f64(),
            causeway.took.as_secs_f64()
        )),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_cover_all_graphs_once() {
        let shares = shares(7, 2 * SHARE + 3);
        let (mut seed, mut graphs) = (7, 0);
        for share in &shares {
            assert_eq!(share.seed, seed);
            seed += u64::from(share.graphs);
            graphs += share.graphs;
        }
        assert_eq!((shares.len(), graphs), (3, 2 * SHARE + 3));
    }
}
