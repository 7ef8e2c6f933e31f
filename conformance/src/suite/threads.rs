//! 32 threads on one context: the stress test `programs/threads.c`.

use std::time::Duration;

use crate::SetupError;
use crate::case::{Case, Verdict, first_difference};
use crate::programs::Programs;
use crate::sides::{Launch, Side, Sides};

/// The objects that the threads share; see the program.
const MODES: [&str; 4] = ["queues", "queue", "maps", "objects"];

pub(super) fn cases(programs: &Programs, _: &Sides) -> Result<Vec<Case>, SetupError> {
    let program = programs.path("threads")?;
    Ok(MODES
        .into_iter()
        .map(|mode| {
            let program = program.clone();
            Case::new(format!("threads/{mode}"), move |sides| {
                let launch = Launch::new(&program)
                    .args([mode])
                    .limit(Duration::from_secs(120));
                let native = sides.run(Side::Native, &launch)?;
                let causeway = sides.run(Side::Causeway, &launch)?;
                for (run, side) in [(&native, "native"), (&causeway, "causeway")] {
                    if !run.succeeded() {
                        let why = format!("{side}: {}\n{}", run.exit, run.tail());
                        return Ok(Verdict::Failed(why));
                    }
                }
                Ok(match first_difference(&native.stdout, &causeway.stdout) {
                    None => Verdict::Noted(format!(
                        "native {:.1} s, causeway {:.1} s",
                        native.took.as_secs_f64(),
                        causeway.took.as_secs_f64()
                    )),
                    Some(difference) => Verdict::Failed(difference),
                })
            })
        })
        .collect())
}
