//! Parking, measured: a daemon is told to end while a session has device memory, and is started anew.
//!
//! The program is an ordinary OpenCL program in a process of its own. Invariant: no time is reported of a session whose
//! bytes are not the same afterwards.
#![forbid(unsafe_code)]

use std::io::{self, BufRead};
use std::path::PathBuf;
use std::time::Instant;

use rustix::process::Signal;
use serde::{Deserialize, Serialize};

use crate::content;
use crate::devices::Devices;
use crate::experiment::{Common, median};
use crate::measured::{Origin, Parking};
use crate::nodes::{Driver, Nodes, Settings};
use crate::setup::Process;

type Error = Box<dyn std::error::Error>;

/// The program's memory.
#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    /// Bytes of device memory
    #[arg(long)]
    bytes: usize,
}

/// The first line that the program prints.
#[derive(Debug, Serialize, Deserialize)]
struct Ready {
    device: String,
}

/// The program: fills its memory, and reads it when a line comes.
pub(crate) fn run(arguments: &Arguments) -> Result<(), Error> {
    let devices = Devices::open(1)?;
    let memory = devices.buffer(arguments.bytes)?;
    let data = content::half_a_picture(arguments.bytes);
    devices.write(&[(0, memory, &data)])?;
    let device = devices.name(0)?;
    println!("{}", serde_json::to_string(&Ready { device })?);
    let mut line = String::new();
    io::stdin().lock().read_line(&mut line)?;
    let mut back = vec![1; arguments.bytes];
    devices.read(0, memory, &mut back[..4.min(arguments.bytes)], &[])?;
    println!("back");
    devices.read(0, memory, &mut back, &[])?;
    if back != data {
        return Err("the device memory is not the same after the restart".into());
    }
    println!("equal");
    Ok(())
}

/// Measures the parking of `bytes`, round by round.
pub(super) fn measure(
    common: &Common,
    vendors: Option<PathBuf>,
    bytes: u64,
) -> Result<Parking, Error> {
    let driver = Driver::native(vendors, common.limit())?;
    let settings = Settings {
        parks: true,
        ..Settings::default()
    };
    let mut nodes = Nodes::start_with(driver, 1, common.limit(), settings)?;
    let (mut create, mut recover) = (Vec::new(), Vec::new());
    let mut device = String::new();
    for round in 1..=common.rounds {
        eprint!("\rround {round}: parking   ");
        let mut command = nodes.program("parking-program", 1)?;
        command.args(["--bytes", &bytes.to_string()]);
        let mut program = Process::start(&mut command)?;
        let ready: Ready = serde_json::from_str(&program.line()?)?;
        device = ready.device;
        let begin = Instant::now();
        nodes.signal(0, Signal::TERM)?;
        nodes.wait_for_end(0)?;
        create.push(begin.elapsed().as_secs_f64());
        let begin = Instant::now();
        nodes.restart(0)?;
        program.tell("read")?;
        expect(&mut program, "back")?;
        recover.push(begin.elapsed().as_secs_f64());
        expect(&mut program, "equal")?;
    }
    eprint!("\r{:40}\r", "");
    let middle = |values: &[f64]| median(values).unwrap_or_default();
    Ok(Parking {
        bytes,
        create: middle(&create),
        recover: middle(&recover),
        origin: Origin::now(&device),
    })
}

fn expect(program: &mut Process, wanted: &str) -> io::Result<()> {
    let line = program.line()?;
    match line == wanted {
        true => Ok(()),
        false => Err(io::Error::other(format!(
            "the program printed `{line}`; `{wanted}` was expected"
        ))),
    }
}
