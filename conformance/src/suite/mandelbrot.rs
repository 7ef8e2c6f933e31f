//! The Mandelbrot program: compares the bytes of its picture.

use std::fs;

use crate::SetupError;
use crate::case::{Case, Verdict};
use crate::io_error;
use crate::process::Finished;
use crate::programs::Programs;
use crate::sides::{Launch, Side, Sides};

/// The pictures: width, height, iterations.
const PICTURES: [(u32, u32, u32); 3] = [(1024, 768, 500), (333, 217, 100), (1, 1, 1)];

/// A picture that takes about 20 seconds, so that connections that are cut every few seconds are cut in its middle.
const LONG: (u32, u32, u32) = (1024, 768, 40_000);

pub(super) fn cases(programs: &Programs, sides: &Sides) -> Result<Vec<Case>, SetupError> {
    let program = programs.path("mandelbrot")?;
    let long = sides.is_cut().then_some(LONG);
    Ok(PICTURES
        .into_iter()
        .chain(long)
        .map(|(width, height, iterations)| {
            let program = program.clone();
            let long = if iterations == LONG.2 { "-long" } else { "" };
            Case::new(format!("mandelbrot/{width}x{height}{long}"), move |sides| {
                let draw = |side| -> Result<(Finished, Vec<u8>), SetupError> {
                    let directory = sides.fresh_directory()?;
                    let launch = Launch::new(&program).directory(&directory).args([
                        "--width".to_owned(),
                        width.to_string(),
                        "--height".to_owned(),
                        height.to_string(),
                        "--iterations".to_owned(),
                        iterations.to_string(),
                    ]);
                    let finished = sides.run(side, &launch)?;
                    let picture = if finished.succeeded() {
                        fs::read(directory.join("mandelbrot.png"))
                            .map_err(io_error("cannot read the picture"))?
                    } else {
                        Vec::new()
                    };
                    Ok((finished, picture))
                };
                let (native, native_picture) = draw(Side::Native)?;
                let before = sides.cuts();
                let (causeway, causeway_picture) = draw(Side::Causeway)?;
                let verdict = judge(&native, &native_picture, &causeway, &causeway_picture);
                Ok(match verdict {
                    Verdict::Passed if sides.is_cut() => Verdict::Noted(format!(
                        "{} connections cut; native {:.1} s, causeway {:.1} s\n{}",
                        sides.cuts() - before,
                        native.took.as_secs_f64(),
                        causeway.took.as_secs_f64(),
                        causeway.stderr.trim_end()
                    )),
                    verdict => verdict,
                })
            })
        })
        .collect())
}

fn judge(native: &Finished, theirs: &[u8], causeway: &Finished, ours: &[u8]) -> Verdict {
    if !native.succeeded() {
        return Verdict::Failed(format!("native: {}\n{}", native.exit, native.tail()));
    }
    if !causeway.succeeded() {
        return Verdict::Failed(format!("causeway: {}\n{}", causeway.exit, causeway.tail()));
    }
    if theirs == ours {
        return Verdict::Passed;
    }
    let at = theirs.iter().zip(ours).take_while(|(a, b)| a == b).count();
    Verdict::Failed(format!(
        "the pictures differ from byte {at} on ({} and {} bytes)",
        theirs.len(),
        ours.len()
    ))
}
