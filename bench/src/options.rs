//! The options of `bench all` and of its groups.
#![forbid(unsafe_code)]

use std::path::PathBuf;

/// The options of a run.
#[derive(Debug, Clone, clap::Args)]
pub(crate) struct Options {
    /// Also write the results to this file
    #[arg(long, value_name = "FILE", num_args = 0..=1, default_missing_value = "bench.json")]
    pub(crate) json: Option<PathBuf>,
    /// Draw the plots into this folder
    #[arg(long, value_name = "DIR", default_value = "target/bench")]
    pub(crate) plots: PathBuf,
    /// Alternating rounds; the table shows medians over them
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u16).range(1..))]
    pub(crate) rounds: u16,
    /// Only rows whose id or name contains one of these, e.g. wait/ or write/64MiB
    #[arg(long = "row", value_delimiter = ',', value_name = "TEXT,…")]
    pub(crate) filters: Vec<String>,
    /// Say which rows there are, with their marks, and measure nothing
    #[arg(long)]
    pub(crate) list: bool,
    /// Small sizes and short transfers: to see that all works, not how fast
    #[arg(long)]
    pub(crate) quick: bool,
    /// The largest transfer, MiB
    #[arg(long, default_value_t = 1024)]
    pub(crate) largest: u64,
    /// The node's .icd folder: what the daemon and the native side load
    #[arg(long, value_name = "DIR")]
    pub(crate) native_vendors: Option<PathBuf>,
    /// The command carrier to measure
    #[arg(long, default_value = "direct")]
    pub(crate) carrier: String,
    /// Measure the platform whose name contains this, too, in the same rounds
    #[arg(long, value_name = "NAME")]
    pub(crate) peer_platform: Option<String>,
    /// The .icd folder where that platform is found [default: the system's]
    #[arg(long, value_name = "DIR", requires = "peer_platform")]
    pub(crate) peer_vendors: Option<PathBuf>,
    /// Environment of the process that measures it
    #[arg(long = "peer-env", value_name = "NAME=VALUE", requires = "peer_platform", value_parser = variable)]
    pub(crate) peer_environment: Vec<(String, String)>,
}

fn variable(text: &str) -> Result<(String, String), String> {
    let parts = text.split_once('=');
    let (name, value) = parts.ok_or_else(|| format!("{text:?} has no '='"))?;
    Ok((name.to_owned(), value.to_owned()))
}

impl Options {
    /// The largest transfer, bytes.
    pub(crate) fn most_bytes(&self) -> u64 {
        let most = if self.quick { 16 } else { u64::MAX >> 20 };
        self.largest.min(most) << 20
    }
}
