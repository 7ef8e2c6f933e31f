//! `decoders`: sends malformed bytes to everything that reads bytes from outside.
//!
//! ```text
//! cargo run -p causeway-decoders --config 'profile.dev.package.causeway-decoders.opt-level=3' -- \
//!     --inputs 1000000 --seed 1 [--only NAME]
//! ```
//! - `targets`: the decoders, with valid input for each;
//! - `message`, `bytes`: the changes to valid input;
//! - `campaign`: many inputs, and the checks for each.
//!
//! A decoder must not panic, must end, and may use only a limited amount of memory per byte of input.
//! Input that was accepted and encoded again must stay the same. The n-th input of a seed is always the
//! same. A few inputs of each decoder run with the tests.
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

/// Runs decoders on malformed bytes.
#[derive(Debug, Parser)]
struct Options {
    /// Number of inputs in all; slow decoders get fewer.
    #[arg(long, default_value_t = 1_000_000)]
    inputs: u64,
    /// Seed of the inputs.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Only decoders whose names contain this.
    #[arg(long, default_value = "")]
    only: String,
    /// Number of the first input.
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
