//! What is asked of the device manager: by options, else by the configuration, as the library reads it.
//!
//! Invariant: options are read as the environment variables that they stand for, so that what holds of them, of the
//! environment and of files is decided in one place, and what is wrong there is refused here.

use std::ffi::OsString;

use causeway::config::{self, LeaseTerms, Settings};
use causeway_proto::manager::RequestDevices;
use causeway_proto::request::DeviceRequest;
use causeway_proto::version::WireVersion;

use crate::failure::{Failure, USAGE};

/// On which terms.
#[derive(Debug, clap::Args)]
pub(crate) struct Terms {
    /// How urgently: low, normal or high (as CAUSEWAY_PRIORITY)
    #[arg(long, value_name = "CLASS", value_parser = class)]
    priority: Option<String>,
    /// Give the devices back after this long at the latest: 90s, 30min, 2h, … (as CAUSEWAY_TIME_LIMIT)
    #[arg(long, value_name = "DURATION", value_parser = limit)]
    time_limit: Option<String>,
}

fn class(name: &str) -> Result<String, String> {
    let class = config::priority(name).map(|_| name.to_owned());
    class.ok_or_else(|| "it is none of low, normal, high".to_owned())
}

fn limit(text: &str) -> Result<String, config::BadDuration> {
    config::duration(text).map(|_| text.to_owned())
}

impl Terms {
    /// Whether one of the options was given.
    pub(crate) fn are_given(&self) -> bool {
        self.priority.is_some() || self.time_limit.is_some()
    }
}

/// What `line` and `terms` say, as the environment would.
pub(crate) fn variables(line: Option<&str>, terms: &Terms) -> Vec<(&'static str, OsString)> {
    let said = [
        ("CAUSEWAY_REQUEST", line),
        // A lease would come before the request.
        ("CAUSEWAY_LEASE", line.map(|_| "")),
        ("CAUSEWAY_PRIORITY", terms.priority.as_deref()),
        ("CAUSEWAY_TIME_LIMIT", terms.time_limit.as_deref()),
    ];
    let said = said.into_iter();
    said.filter_map(|(name, value)| Some((name, value?.into())))
        .collect()
}

/// Devices, and on which terms.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Wish {
    pub(crate) devices: DeviceRequest,
    terms: LeaseTerms,
}

impl Wish {
    /// What `settings` ask for, into which `line` has been read with [`variables`]; `None`: nothing is asked for, or the
    /// devices are those of a lease that somebody else holds.
    ///
    /// # Errors
    /// What is wrong with it.
    pub(crate) fn of(line: Option<&str>, settings: &Settings) -> Result<Option<Wish>, Failure> {
        let configured = settings.lease.as_ref();
        let wish = configured.map(|lease| (&lease.wish, lease.terms));
        match (line, wish) {
            (_, Some((config::Wish::Devices(devices), terms))) => Ok(Some(Wish {
                devices: devices.clone(),
                terms,
            })),
            (Some(line), _) => Wish::unheard(line, settings).map(Some),
            (None, _) => Ok(None),
        }
    }

    /// Of a line from which the configuration has made no request.
    fn unheard(line: &str, settings: &Settings) -> Result<Wish, Failure> {
        let devices = line.parse().map_err(|error| {
            let failure = Failure::new(format!("{error}")).code(USAGE);
            failure.cure("write for example '2, TYPE=GPU, GLOBAL_MEM_SIZE>=8GiB; spread'; '1' is any one device")
        })?;
        match (&settings.manager, settings.problems.last()) {
            // Else a term is wrong, which is found after all files have been read.
            (Some(_), Some(problem)) => Err(Failure::new(problem.to_string())),
            // Whoever asks the manager says that there is none.
            _ => Ok(Wish {
                devices,
                terms: LeaseTerms::default(),
            }),
        }
    }

    /// As the manager is asked.
    pub(crate) fn message(&self, program: &str) -> RequestDevices {
        let mut client = causeway::transport::manager::this_process();
        program.clone_into(&mut client.program);
        RequestDevices {
            wire_version: u32::from(WireVersion::CURRENT.number()),
            client: Some(client),
            request: self.devices.to_string(),
            priority: self.terms.priority.into(),
            time_limit_ms: self.terms.time_limit_ms(),
            ..RequestDevices::default()
        }
    }
}
