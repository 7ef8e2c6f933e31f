//! What is asked of the device manager: by options, else by the configuration, as the library reads it.

use causeway::config::{self, LeaseTerms, Settings};
use causeway_proto::manager::{Priority, RequestDevices};
use causeway_proto::request::DeviceRequest;
use causeway_proto::version::WireVersion;

use crate::failure::{Failure, USAGE};

/// On which terms.
#[derive(Debug, clap::Args)]
pub(crate) struct Terms {
    /// How urgently: low, normal or high (as CAUSEWAY_PRIORITY)
    #[arg(long, value_name = "CLASS", value_parser = class)]
    priority: Option<Priority>,
    /// Give the devices back after this long at the latest: 90s, 30min, 2h, … (as CAUSEWAY_TIME_LIMIT)
    #[arg(long, value_name = "DURATION", value_parser = config::duration)]
    time_limit: Option<std::time::Duration>,
}

fn class(name: &str) -> Result<Priority, String> {
    config::priority(name).ok_or_else(|| "it is none of low, normal, high".to_owned())
}

impl Terms {
    /// Whether one of the options was given.
    pub(crate) fn are_given(&self) -> bool {
        self.priority.is_some() || self.time_limit.is_some()
    }
}

/// Devices, and on which terms.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Wish {
    pub(crate) devices: DeviceRequest,
    terms: LeaseTerms,
}

impl Wish {
    /// What `line` asks for, else the configuration; `None`: nothing is asked for, or the devices are those of a
    /// lease that somebody else holds.
    ///
    /// # Errors
    /// What is wrong with it.
    pub(crate) fn of(
        line: Option<&str>,
        terms: &Terms,
        settings: &Settings,
    ) -> Result<Option<Wish>, Failure> {
        let configured = settings.lease.as_ref();
        let mut wish = match (line, configured.map(|lease| &lease.wish)) {
            (Some(line), _) => Wish {
                devices: line
                    .parse()
                    .map_err(|error| Failure::new(format!("{error}")).code(USAGE).cure(
                        "write for example '2, TYPE=GPU, GLOBAL_MEM_SIZE>=8GiB; spread'; '1' is any one device",
                    ))?,
                terms: configured.map(|lease| lease.terms).unwrap_or_default(),
            },
            (None, Some(config::Wish::Devices(devices))) => Wish {
                devices: devices.clone(),
                terms: configured.map(|lease| lease.terms).unwrap_or_default(),
            },
            (None, Some(config::Wish::Lease(_)) | None) => return Ok(None),
        };
        if let Some(priority) = terms.priority {
            wish.terms.priority = priority;
        }
        wish.terms.time_limit = terms.time_limit.or(wish.terms.time_limit);
        Ok(Some(wish))
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
