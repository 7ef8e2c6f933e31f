//! What a rival process reports: on which devices it could make a context.

use prost::Message;

/// A device on which a rival process has tried to make a context.
#[derive(Clone, Copy, PartialEq, Eq, Message)]
pub struct TriedDevice {
    /// Index of the platform.
    #[prost(uint32, tag = "1")]
    pub platform: u32,
    /// Index of the device in its platform.
    #[prost(uint32, tag = "2")]
    pub device: u32,
    /// Whether the driver has made the context.
    #[prost(bool, tag = "3")]
    pub made: bool,
}

/// The whole report.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct Trials {
    /// The devices whose mode is not known otherwise.
    #[prost(message, repeated, tag = "1")]
    pub tried: Vec<TriedDevice>,
}
