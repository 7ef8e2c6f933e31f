//! `decoders`: bytes that no peer of ours sends, for everything that reads bytes from outside.
//!
//! ```text
//! cargo run -p causeway-decoders --config 'profile.dev.package.causeway-decoders.opt-level=3' -- \
//!     --inputs 1000000 --seed 1 [--only NAME]
//! ```
//! - `targets`: what reads, with valid bytes for each;
//! - `message`, `bytes`: what is made of valid bytes;
//! - `campaign`: many inputs, and what must hold for each.
//!
//! What must hold: no panic, no more memory than so many bytes for each byte of the input, an end. What was taken
//! and is written again is the same. The n-th input of a seed is always the same; a few of each run with the tests.
#![deny(unsafe_code)]

mod bytes;
mod campaign;
mod counting;
mod message;
mod targets;

use std::process::ExitCode;

use campaign::{Campaign, Plan};
use clap::Parser;

#[global_allocator]
static ALLOCATOR: counting::Counting = counting::Counting;

/// Runs decoders on bytes that no peer of ours sends.
#[derive(Debug, Parser)]
struct Options {
    /// Inputs in all; those of decoders that need the system for each have fewer.
    #[arg(long, default_value_t = 1_000_000)]
    inputs: u64,
    /// Which inputs.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Decoders whose names contain this.
    #[arg(long, default_value = "")]
    only: String,
    /// The number of the first input.
    #[arg(long, default_value_t = 0)]
    first: u64,
}

fn main() -> ExitCode {
    let options = Options::parse();
    let plan = Plan {
        inputs: options.inputs,
        seed: options.seed,
        first: options.first,
    };
    let mut campaign = match Campaign::new(&options.only, options.seed) {
        Ok(campaign) => campaign,
        Err(error) => {
            eprintln!("decoders: {error}");
            return ExitCode::from(2);
        }
    };
    let findings = campaign.run(&plan);
    for finding in &findings {
        eprintln!("{finding}");
    }
    ExitCode::from(u8::from(!findings.is_empty()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_decoder_takes_or_refuses_what_it_is_given() {
        let plan = Plan {
            inputs: 10_000,
            seed: 7,
            first: 0,
        };
        let findings = Campaign::new("", plan.seed).unwrap().run(&plan);
        assert!(findings.is_empty(), "{}", findings.join("\n"));
    }
}
