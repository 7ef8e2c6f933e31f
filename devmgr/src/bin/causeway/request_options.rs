//! The request for the device manager: from options, or from the configuration, as the library reads it.
//!
//! Invariant: options are passed as the environment variables that they override. So the library's
//! configuration is the only place that parses them, and an error there becomes a failure here.

use std::ffi::OsString;

use causeway::config::{self, LeaseTerms, Settings};
use causeway_proto::manager::RequestDevices;
use causeway_proto::request::DeviceRequest;
use causeway_proto::version::WireVersion;

use crate::failure::{Failure, USAGE};

/// Terms of a request.
#[derive(Debug, clap::Args)]
pub(crate) struct Terms {
    /// Priority class: low, normal or high; overrides CAUSEWAY_PRIORITY
    #[arg(long, value_name = "CLASS", value_parser = class)]
    priority: Option<String>,
    /// Release the devices after this time at the latest: 90s, 30min, 2h, …; overrides
    /// CAUSEWAY_TIME_LIMIT
    #[arg(long, value_name = "DURATION", value_parser = limit)]
    time_limit: Option<String>,
}

fn class(name: &str) -> Result<String, String> {
    let class = config::priority(name).map(|_| name.to_owned());
    class.ok_or_else(|| "invalid priority class; expected low, normal or high".to_owned())
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

/// The request line and the terms as environment variables.
pub(crate) fn variables(line: Option<&str>, terms: &Terms) -> Vec<(&'static str, OsString)> {
    let said = [
        ("CAUSEWAY_REQUEST", line),
        // A configured lease would take precedence over the request.
        ("CAUSEWAY_LEASE", line.map(|_| "")),
        ("CAUSEWAY_PRIORITY", terms.priority.as_deref()),
        ("CAUSEWAY_TIME_LIMIT", terms.time_limit.as_deref()),
    ];
    let said = said.into_iter();
    said.filter_map(|(name, value)| Some((name, value?.into())))
        .collect()
}

/// A request: devices and terms.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct RequestOptions {
    pub(crate) devices: DeviceRequest,
    terms: LeaseTerms,
}

impl RequestOptions {
    /// The request of `settings`, which were loaded with [`variables`]. `None`: no devices are requested,
    /// or a lease of another process is configured.
    ///
    /// # Errors
    /// The request cannot be parsed, or a setting is wrong.
    pub(crate) fn of(
        line: Option<&str>,
        settings: &Settings,
    ) -> Result<Option<RequestOptions>, Failure> {
        let configured = settings.lease.as_ref();
        let wanted = configured.map(|lease| (&lease.wanted, lease.terms));
        match (line, wanted) {
            (_, Some((config::LeaseWanted::Devices(devices), terms))) => Ok(Some(RequestOptions {
                devices: devices.clone(),
                terms,
            })),
            (Some(line), _) => RequestOptions::unchecked(line, settings).map(Some),
            (None, _) => Ok(None),
        }
    }

    /// A request from a line that the configuration did not accept.
    fn unchecked(line: &str, settings: &Settings) -> Result<RequestOptions, Failure> {
        let devices = line.parse().map_err(|error| {
            let failure = Failure::new(format!("{error}")).code(USAGE);
            failure.cure("write for example '2, TYPE=GPU, GLOBAL_MEM_SIZE>=8GiB; spread'; '1' is any one device")
        })?;
        match (&settings.manager, settings.problems.last()) {
            // Then a term is wrong, which the configuration finds last.
            (Some(_), Some(problem)) => Err(Failure::new(problem.to_string())),
            // The connection reports that no manager is configured.
            _ => Ok(RequestOptions {
                devices,
                terms: LeaseTerms::default(),
            }),
        }
    }

    /// The request as a message.
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
