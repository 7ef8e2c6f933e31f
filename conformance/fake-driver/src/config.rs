//! The driver's settings: the raw tables as written, converted into checked settings.
//!
//! The source of the text, and when it is read again, are in `control`. Invariant: existing settings are
//! usable. Every mistake in the text is an error that names it.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use serde::Deserialize;

use crate::meeting::Meeting;
use crate::rows::Rows;

/// Why a configuration is refused.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ConfigError {
    #[error("{0}")]
    Syntax(#[from] toml::de::Error),
    #[error("[[call]]: OpenCL has no function {0:?}")]
    UnknownFunction(String),
    #[error("[[call]]: at counts from 1")]
    CallZero,
    #[error("an error code must be negative, {0} is not")]
    NotAnError(i32),
    #[error("[[device]] {0:?}: version {1:?} is none of 1.2, 2.0, 2.1, 2.2, 3.0")]
    UnknownVersion(String, String),
    #[error("[[device]]: count and memory must not be 0")]
    EmptyDevice,
    #[error("platforms must be numbered without gaps; there is no device on platform {0}")]
    EmptyPlatform(usize),
}

/// The order in which commands complete that could complete together.
#[derive(Clone, Copy, Debug, Default, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Order {
    /// In the order of the enqueues.
    #[default]
    Forward,
    /// The last one first.
    Reverse,
    /// In random order, by the seed.
    Random,
}

/// How a call or a kernel ends the process.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Crash {
    /// Calls `abort()`.
    Abort,
    /// Writes to a read-only page.
    Segv,
    /// Divides an integer by zero.
    Divide,
    /// Calls `_exit(3)`, which ends the process without a signal.
    Exit,
}

/// A kind of device.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "lowercase")]
pub(crate) enum DeviceKind {
    Cpu,
    Gpu,
    Accelerator,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, default)]
#[derive(Default)]
struct RawConfig {
    instant: bool,
    early_writes: bool,
    odd_layer_copies: bool,
    leaks: bool,
    order: Order,
    seed: u64,
    devices: Option<u32>,
    device: Vec<RawDevice>,
    kernel: HashMap<String, RawKernel>,
    call: Vec<RawCall>,
}

#[derive(Clone, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct RawDevice {
    count: u32,
    platform: usize,
    name: String,
    kind: DeviceKind,
    version: String,
    compiler: bool,
    images: bool,
    il: bool,
    sub_groups: u32,
    pipes: bool,
    device_queues: u32,
    fp64: bool,
    out_of_order: bool,
    unified_memory: bool,
    memory: u64,
    compute_units: u32,
    kernel_ns: u64,
    ns_per_item: f64,
    extensions: Vec<String>,
    vendor_id: u32,
    exclusive: Option<PathBuf>,
    card: Option<Card>,
}

/// What NVML says about a device.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct Card {
    /// Absent: the library does not say, as of parts of a card.
    pub(crate) utilization: Option<u32>,
    /// Bytes, without those of this process.
    pub(crate) memory_used: u64,
    pub(crate) temperature: u32,
    /// Bytes that a process with a context takes.
    pub(crate) context_memory: u64,
    /// Whether NVML's answers end the process.
    pub(crate) crash: bool,
}

impl Default for RawDevice {
    fn default() -> Self {
        Self {
            count: 1,
            platform: 0,
            name: "Fake Device".to_owned(),
            kind: DeviceKind::Gpu,
            version: "3.0".to_owned(),
            compiler: true,
            images: false,
            il: false,
            sub_groups: 0,
            pipes: false,
            device_queues: 0,
            fp64: true,
            out_of_order: true,
            unified_memory: false,
            memory: 4 << 30,
            compute_units: 8,
            kernel_ns: 0,
            ns_per_item: 0.0,
            extensions: Vec::new(),
            vendor_id: 0xFA6E,
            exclusive: None,
            card: None,
        }
    }
}

#[derive(Deserialize, Default)]
#[serde(deny_unknown_fields, default)]
struct RawKernel {
    ns: Option<u64>,
    fail: Option<i32>,
    crash: Option<Crash>,
    hang: bool,
    print: Option<String>,
    rows: Option<Rows>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawCall {
    name: String,
    at: Option<u64>,
    #[serde(default)]
    delay_us: u64,
    fail: Option<i32>,
    crash: Option<Crash>,
    meet: Option<PathBuf>,
    load: Option<PathBuf>,
    #[serde(default)]
    of: usize,
}

/// An OpenCL version of a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Version {
    pub(crate) major: u32,
    pub(crate) minor: u32,
}

/// One device, as configured.
#[derive(Clone, Debug)]
pub(crate) struct DeviceSettings {
    pub(crate) platform: usize,
    pub(crate) name: String,
    pub(crate) kind: DeviceKind,
    pub(crate) version: Version,
    /// Whether the device builds programs from source, and links.
    pub(crate) compiler: bool,
    pub(crate) images: bool,
    pub(crate) il: bool,
    /// Maximum number of sub-groups in a work-group; 0 for a device without sub-groups.
    pub(crate) sub_groups: u32,
    pub(crate) pipes: bool,
    /// Maximum number of device queues in a context; 0 for a device without them.
    pub(crate) device_queues: u32,
    pub(crate) fp64: bool,
    pub(crate) out_of_order: bool,
    pub(crate) unified_memory: bool,
    pub(crate) memory: u64,
    pub(crate) compute_units: u32,
    /// Time of a launch on this device, and additional time per work-item, in nanoseconds.
    pub(crate) kernel_ns: u64,
    pub(crate) ns_per_item: f64,
    /// Extensions besides those of every device. They are listed and defined as macros, but have no
    /// effect except PCI buses and hints for queues.
    pub(crate) extensions: Vec<String>,
    pub(crate) vendor_id: u32,
    /// The file that the one process with contexts on this device has locked.
    pub(crate) exclusive: Option<PathBuf>,
    pub(crate) card: Option<Card>,
}

/// Special settings for the kernels of one name.
#[derive(Debug)]
pub(crate) struct KernelRule {
    pub(crate) ns: Option<u64>,
    pub(crate) fail: Option<i32>,
    pub(crate) crash: Option<Crash>,
    pub(crate) hang: bool,
    pub(crate) print: Option<String>,
    pub(crate) rows: Option<Rows>,
}

/// The rule for calls of one function.
#[derive(Debug)]
pub(crate) struct CallRule {
    /// The function's slot in the dispatch table.
    pub(crate) slot: usize,
    at: Option<u64>,
    seen: AtomicU64,
    pub(crate) delay: Duration,
    pub(crate) fail: Option<i32>,
    pub(crate) crash: Option<Crash>,
    pub(crate) meeting: Option<Meeting>,
    /// A library that the call loads.
    pub(crate) load: Option<PathBuf>,
}

impl CallRule {
    /// Counts a call of the function. Returns whether the rule applies to this call.
    pub(crate) fn applies(&self) -> bool {
        let number = self.seen.fetch_add(1, Ordering::Relaxed) + 1;
        self.at.is_none_or(|at| at == number)
    }
}

/// All settings.
#[derive(Debug)]
pub(crate) struct Config {
    /// Commands that take no time complete within the enqueue.
    pub(crate) instant: bool,
    /// The bytes of a write are taken within the enqueue, whatever the write waits for.
    pub(crate) early_writes: bool,
    /// Copies between buffers and arrays of one-dimensional images are refused.
    pub(crate) odd_layer_copies: bool,
    /// Memory stays allocated after its object is gone.
    pub(crate) leaks: bool,
    pub(crate) order: Order,
    pub(crate) seed: u64,
    /// Read once. Later texts do not change the devices.
    pub(crate) devices: Vec<DeviceSettings>,
    pub(crate) kernels: HashMap<String, KernelRule>,
    pub(crate) calls: Vec<CallRule>,
}

impl Config {
    /// Parses a text. Outside of quotes, a `;` ends a line like a line feed. So a
    /// configuration fits on one line of a shell.
    pub(crate) fn parse(text: &str) -> Result<Self, ConfigError> {
        let raw: RawConfig = toml::from_str(&semicolons_to_lines(text))?;
        let mut calls = Vec::new();
        for call in raw.call {
            calls.push(check_call(call)?);
        }
        let mut kernels = HashMap::new();
        for (name, rule) in raw.kernel {
            if let Some(code) = rule.fail.filter(|code| *code >= 0) {
                return Err(ConfigError::NotAnError(code));
            }
            kernels.insert(
                name,
                KernelRule {
                    ns: rule.ns,
                    fail: rule.fail,
                    crash: rule.crash,
                    hang: rule.hang,
                    print: rule.print,
                    rows: rule.rows,
                },
            );
        }
        Ok(Self {
            instant: raw.instant,
            early_writes: raw.early_writes,
            odd_layer_copies: raw.odd_layer_copies,
            leaks: raw.leaks,
            order: raw.order,
            seed: raw.seed,
            devices: check_devices(raw.devices, raw.device)?,
            kernels,
            calls,
        })
    }
}

fn check_call(raw: RawCall) -> Result<CallRule, ConfigError> {
    if raw.at == Some(0) {
        return Err(ConfigError::CallZero);
    }
    if let Some(code) = raw.fail.filter(|code| *code >= 0) {
        return Err(ConfigError::NotAnError(code));
    }
    let entry = cl_headers::ENTRY_POINTS
        .iter()
        .find(|entry| entry.name == raw.name)
        .ok_or(ConfigError::UnknownFunction(raw.name))?;
    Ok(CallRule {
        slot: entry.slot,
        at: raw.at,
        seen: AtomicU64::new(0),
        delay: Duration::from_micros(raw.delay_us),
        fail: raw.fail,
        crash: raw.crash,
        meeting: raw.meet.map(|folder| Meeting { folder, of: raw.of }),
        load: raw.load,
    })
}

/// `devices = N` without tables means N plain devices. With tables, it repeats the list so often.
fn check_devices(
    times: Option<u32>,
    tables: Vec<RawDevice>,
) -> Result<Vec<DeviceSettings>, ConfigError> {
    let tables = if tables.is_empty() {
        vec![RawDevice::default()]
    } else {
        tables
    };
    let mut devices = Vec::new();
    for _ in 0..times.unwrap_or(1) {
        for table in &tables {
            let device = check_device(table)?;
            devices.extend(std::iter::repeat_n(device, table.count as usize));
        }
    }
    let platforms = devices.iter().map(|device| device.platform + 1).max();
    for platform in 0..platforms.unwrap_or(0) {
        if !devices.iter().any(|device| device.platform == platform) {
            return Err(ConfigError::EmptyPlatform(platform));
        }
    }
    Ok(devices)
}

fn check_device(raw: &RawDevice) -> Result<DeviceSettings, ConfigError> {
    let version = match raw.version.as_str() {
        "1.2" => Version { major: 1, minor: 2 },
        "2.0" => Version { major: 2, minor: 0 },
        "2.1" => Version { major: 2, minor: 1 },
        "2.2" => Version { major: 2, minor: 2 },
        "3.0" => Version { major: 3, minor: 0 },
        other => {
            return Err(ConfigError::UnknownVersion(
                raw.name.clone(),
                other.to_owned(),
            ));
        }
    };
    if raw.count == 0 || raw.memory == 0 {
        return Err(ConfigError::EmptyDevice);
    }
    Ok(DeviceSettings {
        platform: raw.platform,
        name: raw.name.clone(),
        kind: raw.kind,
        version,
        compiler: raw.compiler,
        images: raw.images,
        il: raw.il,
        sub_groups: raw.sub_groups,
        pipes: raw.pipes,
        device_queues: raw.device_queues,
        fp64: raw.fp64,
        out_of_order: raw.out_of_order,
        unified_memory: raw.unified_memory,
        memory: raw.memory,
        compute_units: raw.compute_units,
        kernel_ns: raw.kernel_ns,
        ns_per_item: raw.ns_per_item,
        extensions: raw.extensions.clone(),
        vendor_id: raw.vendor_id,
        exclusive: raw.exclusive.clone(),
        card: raw.card.clone(),
    })
}

fn semicolons_to_lines(text: &str) -> String {
    let mut quote = None;
    let mut escaped = false;
    text.chars()
        .map(|c| {
            match quote {
                Some('"') if c == '\\' && !escaped => {
                    escaped = true;
                    return c;
                }
                Some(open) if c == open && !escaped => quote = None,
                None if c == '"' || c == '\'' => quote = Some(c),
                None if c == ';' => return '\n',
                // A quote in a comment ends with its line.
                Some(_) if c == '\n' => quote = None,
                _ => {}
            }
            escaped = false;
            c
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_is_one_device() {
        let config = Config::parse("").unwrap();
        assert_eq!(config.devices.len(), 1);
        assert!(!config.instant);
        assert_eq!(config.devices[0].version, Version { major: 3, minor: 0 });
    }

    #[test]
    fn one_line_is_enough() {
        let config =
            Config::parse("instant = true; devices = 3; kernel.k = { ns = 5, print = \"a;b\" }")
                .unwrap();
        assert!(config.instant);
        assert_eq!(config.devices.len(), 3);
        assert_eq!(config.kernels["k"].ns, Some(5));
        assert_eq!(config.kernels["k"].print.as_deref(), Some("a;b"));
    }

    #[test]
    fn a_rule_for_the_nth_call_means_that_one() {
        let config = Config::parse("[[call]]\nname = \"clFinish\"\nat = 2\nfail = -5").unwrap();
        let rule = &config.calls[0];
        assert_eq!(
            [rule.applies(), rule.applies(), rule.applies()],
            [false, true, false]
        );
    }

    #[test]
    fn mistakes_are_named() {
        for (text, wrong) in [
            ("instnat = true", "instnat"),
            ("[[call]]\nname = \"clFoo\"", "clFoo"),
            ("[[call]]\nname = \"clFinish\"\nat = 0", "counts from 1"),
            ("kernel.k.fail = 5", "5"),
            ("kernel.k.rows = { ns = [1], first = 0 }", "stride"),
            ("[[device]]\nversion = \"4.0\"", "4.0"),
            ("[[device]]\nplatform = 1", "platform 0"),
            ("[[device]]\nmemory = 0", "memory"),
        ] {
            let error = Config::parse(text).unwrap_err().to_string();
            assert!(error.contains(wrong), "{text:?}: {error}");
        }
    }
}
