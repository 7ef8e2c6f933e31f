//! Measurements of native OpenCL, a bare TCP socket and Causeway in one run, and the marks for them.
//!
//! ```text
//! runner ──► stage ──spawns──► probe (native driver)      the same measuring code, in turns,
//!               │   ├─────────► probe (through Causeway)   a round each
//!               │   ├─────────► causewayd
//!               └── socket      bare TCP against a child process
//! ```
//! - [`rows`]: the measurements, in files by theme; [`marks`]: the table of their marks.
//! - [`stages`]: the processes that a row needs, and a round of it.
//! - [`probe`]: the measuring side, one process per platform, which exchanges JSON lines with the stage.
//!   [`content`]: the bytes that it sends where their contents matter.
//! - [`socket`]: the yardstick, the same bytes over bare TCP; [`iperf`]: the speed of iperf3 on a link.
//! - [`figures`], [`report`], [`plot`]: medians, table and JSON, SVG; [`compare`]: two reports.
//!
//! The paper's experiments, one command each, are ordinary OpenCL programs over several nodes:
//! - [`mandelbrot`]: one picture on 1 to 16 nodes, and by MPI.
//! - [`osem`]: the reconstruction of a PET image on 1 to 4 nodes.
//! - [`transfer`]: 1 to 1024 MiB over a link of a given rate, beside iperf3.
//! - [`rails`]: a server with two addresses, one of which is cut.
//! - [`sharing`]: applications that want a device each, with and without the device manager; [`slices`]: devices
//!   of one processor that do not disturb each other.
//! - [`tenants`]: programs that share a device, natively, with a worker each, and with one worker for all.
//! - [`scale`]: the device manager with a thousand simulated nodes and ten thousand clients, and changes of the leader.
//! - [`sustainability`]: what failures cost a run, after a model; [`matrix`]: a chain of matrix products by a farm and
//!   by MPI, with processes that are killed. [`measured`]: times that one of them measures for the other.
//! - [`standstill`]: how long a program stands while its session moves or is put together again.
//! - [`whole`]: whole programs with `reexecute` and without.
//! - [`mesh`], [`sweep`]: how fast DOCL and ours find all nodes, and measure all links.
//! - [`nodes`]: their daemons on loopback; [`manager`]: a device manager; [`cables`]: daemons on an emulated network.
//! - [`experiment`], [`bars`], [`lines`], [`png`], [`dealing`], [`random`], [`mpi`]: parts that the experiments share.
//!
//! [`secured`]: TLS for a node of the run.
//!
//! [`devices`] is the OpenCL side of all programs, [`opencl`] its calls, and [`setup`] starts the processes. No test
//! asserts a time: `bench` itself reports and judges the figures. Invariant: the figures of one line were measured in
//! one run, in alternating rounds.

mod bars;
mod cables;
mod compare;
mod content;
mod dealing;
mod devices;
mod experiment;
mod figures;
mod iperf;
mod lines;
mod manager;
mod mandelbrot;
mod marks;
mod matrix;
mod measured;
mod mesh;
mod mpi;
mod nodes;
mod opencl;
mod options;
mod osem;
mod plot;
mod png;
mod probe;
mod process;
mod rails;
mod random;
mod report;
mod rows;
mod runner;
mod scale;
mod secured;
mod setup;
mod sharing;
mod slices;
mod socket;
mod stages;
mod standstill;
mod sustainability;
mod sweep;
mod tenants;
mod transfer;
mod whole;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

use options::Options;
use rows::Group;

/// Measure native OpenCL, a bare TCP socket and Causeway in one run.
#[derive(Debug, Parser)]
#[command(name = "bench", version)]
struct Arguments {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, Subcommand)]
enum Verb {
    /// Every row; ends with an error when a mark is missed
    All(Options),
    /// Enqueues, launch and finish, small reads
    Latency(Options),
    /// Commands a second and many threads, on the fake driver
    Commands(Options),
    /// Time of many simultaneous commands divided by that of fewer, on the fake driver
    Growth(Options),
    /// Blocking writes and reads of 4 KiB to 1 GiB, map and unmap
    Bandwidth(Options),
    /// Program builds
    Build(Options),
    /// The first devices of a process, and the load of the library
    Start(Options),
    /// Memory at the peak of a transfer of 4 GiB
    Memory(Options),
    /// Emulated links of 1 and 10 Gbit/s, beside iperf3; needs root
    Links(Options),
    /// The Mandelbrot on sixteen nodes, compared with the ideal
    Nodes(Options),
    /// The cost of TLS, the device manager and the sandbox
    Cost(Options),
    /// Sessions that outlive their connections: pauses, bytes sent twice, and the cost of being able to
    Resume(Options),
    /// What became better or worse from one report to another
    Compare(compare::Options),
    /// The paper's Mandelbrot on several nodes, and by MPI
    Mandelbrot(mandelbrot::Options),
    /// The paper's list-mode OSEM on several nodes
    Osem(osem::Options),
    /// The reconstruction itself; started by the experiment
    #[command(hide = true)]
    OsemProgram(osem::program::Arguments),
    /// The paper's transfers over links of 1 and 10 Gbit/s, beside iperf3; needs root
    Transfer(transfer::Options),
    /// The transfers themselves; started by the experiment
    #[command(hide = true)]
    TransferProgram(transfer::program::Arguments),
    /// A server with two addresses: transfers over one link, over two, and with one cut; needs root
    Rails(rails::Options),
    /// The transfers themselves; started by the experiment
    #[command(hide = true)]
    RailsProgram(rails::program::Arguments),
    /// The Mandelbrot itself; started by the experiment
    #[command(hide = true)]
    MandelbrotProgram(mandelbrot::program::Arguments),
    /// The paper's applications that want a device each, with and without the device manager; needs root
    Manager(sharing::Options),
    /// Programs that share one device: natively, with a worker each, and with one worker for all
    Sharing(tenants::Options),
    /// One of these programs; started by the experiment
    #[command(hide = true)]
    Tenant(tenants::program::Arguments),
    /// What failures cost a run and what tolerating them is worth, after a model, and the best interval for checkpoints
    Sustainability(sustainability::Options),
    /// A program whose session is parked; started by the experiment
    #[command(hide = true)]
    ParkingProgram(sustainability::parking::Arguments),
    /// A chain of matrix products by a farm and by MPI; with --mtbf, with processes that are killed
    Matrix(matrix::Options),
    /// The farm's master; started by the experiment
    #[command(hide = true)]
    MatrixMaster(matrix::master::Arguments),
    /// A worker of the farm; started by its master
    #[command(hide = true)]
    MatrixWorker(matrix::worker::Arguments),
    /// The chain as a plain program; started by the experiment
    #[command(hide = true)]
    MatrixPlain(matrix::plain::Arguments),
    /// How long a program stands still while its session moves to another node, or recovers from a death
    Standstill(standstill::Options),
    /// A program that is watched; started by the experiment
    #[command(hide = true)]
    StandstillProgram(standstill::Arguments),
    /// Whole programs that can outlive a node's process, and the same without
    Whole(whole::Options),
    /// How long until all nodes know each other: DOCL's rule, simulated, and ours; needs root
    Mesh(mesh::Options),
    /// How long it takes to measure all links: DOCL's protocol, simulated, and ours; needs root
    Sweep(sweep::Options),
    /// The device manager with 1,000 simulated nodes and 10,000 clients
    ManagerScale(scale::Options),
    /// How long a change of the leader takes, of three managers with 1,000 simulated nodes
    Failover(scale::failover::Options),
    /// Prints how many devices a program finds; started by the experiments
    #[command(hide = true)]
    DeviceCount,
    /// The measuring side; started by the others
    #[command(hide = true)]
    Probe {
        /// A part of the platform's name [default: the first platform with a device]
        #[arg(long)]
        platform: Option<String>,
        /// Number of devices in one context; the rows of one device use the first
        #[arg(long, default_value_t = 1)]
        devices: usize,
    },
    /// Prints how long this process's first clGetDeviceIDs took; started by the others
    #[command(hide = true)]
    FirstDevices,
    /// Prints the costs of this process's platform list; started by the others
    #[command(hide = true)]
    Platforms,
    /// Prints how long this process took until its first context; started by the others
    #[command(hide = true)]
    FirstContext,
    /// Prints how long this process's first work on a device took; started by the others
    #[command(hide = true)]
    FirstProgram,
    /// The other end of the bare socket; started by the others
    #[command(hide = true)]
    SocketPeer {
        /// The address to listen on
        #[arg(long, default_value = "127.0.0.1:0")]
        listen: String,
    },
}

fn main() -> ExitCode {
    let done = |result: Result<(), Box<dyn std::error::Error>>| result.map(|()| true);
    let rows = |options: &Options, group| runner::run(options, &[group]);
    let result = match Arguments::parse().verb {
        Verb::All(options) => runner::run(&options, &Group::ALL),
        Verb::Latency(options) => rows(&options, Group::Latency),
        Verb::Commands(options) => rows(&options, Group::Commands),
        Verb::Growth(options) => rows(&options, Group::Growth),
        Verb::Bandwidth(options) => rows(&options, Group::Bandwidth),
        Verb::Build(options) => rows(&options, Group::Build),
        Verb::Start(options) => rows(&options, Group::Start),
        Verb::Memory(options) => rows(&options, Group::Memory),
        Verb::Links(options) => rows(&options, Group::Links),
        Verb::Nodes(options) => rows(&options, Group::Nodes),
        Verb::Cost(options) => rows(&options, Group::Cost),
        Verb::Resume(options) => rows(&options, Group::Resume),
        Verb::Compare(options) => compare::run(&options),
        Verb::Mandelbrot(options) => done(mandelbrot::run(&options)),
        Verb::MandelbrotProgram(arguments) => done(mandelbrot::program::run(&arguments)),
        Verb::Osem(options) => done(osem::run(&options)),
        Verb::OsemProgram(arguments) => done(osem::program::run(&arguments)),
        Verb::Transfer(options) => done(transfer::run(&options)),
        Verb::TransferProgram(arguments) => done(transfer::program::run(&arguments)),
        Verb::Rails(options) => rails::run(&options),
        Verb::RailsProgram(arguments) => done(rails::program::run(&arguments)),
        Verb::Manager(options) => done(sharing::run(&options)),
        Verb::Sharing(options) => done(tenants::run(&options)),
        Verb::Tenant(arguments) => done(tenants::program::run(&arguments)),
        Verb::Sustainability(options) => done(sustainability::run(&options)),
        Verb::ParkingProgram(arguments) => done(sustainability::parking::run(&arguments)),
        Verb::Matrix(options) => done(matrix::run(&options)),
        Verb::MatrixMaster(arguments) => done(matrix::master::run(&arguments)),
        Verb::MatrixWorker(arguments) => done(matrix::worker::run(&arguments)),
        Verb::Standstill(options) => done(standstill::run(&options).map_err(|error| error as _)),
        Verb::StandstillProgram(arguments) => {
            done(standstill::program(&arguments).map_err(|error| error as _))
        }
        Verb::Whole(options) => done(whole::run(&options)),
        Verb::MatrixPlain(arguments) => done(matrix::plain::run(&arguments)),
        Verb::Mesh(options) => mesh::run(&options),
        Verb::Sweep(options) => sweep::run(&options),
        Verb::ManagerScale(options) => scale::run(&options),
        Verb::Failover(options) => scale::failover::run(&options),
        Verb::DeviceCount => devices::count()
            .map(|count| println!("{count}"))
            .map(|()| true)
            .map_err(Into::into),
        Verb::Probe { platform, devices } => done(probe::serve(platform.as_deref(), devices)),
        Verb::FirstDevices => done(probe::first_devices()),
        Verb::FirstContext => done(probe::first_context()),
        Verb::FirstProgram => done(probe::first_program()),
        Verb::Platforms => done(probe::platforms()),
        Verb::SocketPeer { listen } => done(socket::peer(&listen, probe::call)),
    };
    match result {
        Ok(true) => ExitCode::SUCCESS,
        // The cause has been printed already.
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("bench: {error}");
            ExitCode::FAILURE
        }
    }
}
