//! The messages of Perfetto's format that a trace here consists of.
//!
//! A file is a `Trace`: a sequence of packets, each with field number [`PACKET`]. Names and numbers of the
//! fields are Perfetto's public ones (`TracePacket`, `TrackEvent`, `TrackDescriptor` and others). Fields that
//! are not used here are left out. This module decides nothing.

/// Field number of a packet in the file.
pub const PACKET: u32 = 1;

/// Field number of a packet's meaningless bytes, by which a packet fills a place. Perfetto does not use the number, and
/// its readers skip fields that they do not know.
pub const PADDING: u32 = 3000;

/// In [`Packet::sequence_flags`]: interned names begin anew with this packet.
pub const CLEARED: u32 = 1;
/// In [`Packet::sequence_flags`]: the packet uses interned names.
pub const NEEDS_NAMES: u32 = 2;

/// `TracePacket`.
#[derive(Clone, PartialEq, prost::Message)]
pub struct Packet {
    /// In nanoseconds.
    #[prost(uint64, optional, tag = "8")]
    pub timestamp: Option<u64>,
    /// Interned names are valid for the packets of one sequence.
    #[prost(uint32, optional, tag = "10")]
    pub trusted_packet_sequence_id: Option<u32>,
    /// A begin, an end, or an instant.
    #[prost(message, optional, tag = "11")]
    pub track_event: Option<TrackEvent>,
    /// Names for this packet and later ones.
    #[prost(message, optional, tag = "12")]
    pub interned_data: Option<InternedData>,
    /// [`CLEARED`], [`NEEDS_NAMES`].
    #[prost(uint32, optional, tag = "13")]
    pub sequence_flags: Option<u32>,
    /// Describes a track.
    #[prost(message, optional, tag = "60")]
    pub track_descriptor: Option<TrackDescriptor>,
}

/// `TrackEvent`.
#[derive(Clone, PartialEq, prost::Message)]
pub struct TrackEvent {
    /// Interned categories.
    #[prost(uint64, repeated, packed = "false", tag = "3")]
    pub category_iids: Vec<u64>,
    /// Further values.
    #[prost(message, repeated, tag = "4")]
    pub debug_annotations: Vec<DebugAnnotation>,
    /// Begin, end or instant.
    #[prost(enumeration = "Kind", optional, tag = "9")]
    pub r#type: Option<i32>,
    /// An interned name.
    #[prost(uint64, optional, tag = "10")]
    pub name_iid: Option<u64>,
    /// The track.
    #[prost(uint64, optional, tag = "11")]
    pub track_uuid: Option<u64>,
    /// Categories that are not interned.
    #[prost(string, repeated, tag = "22")]
    pub categories: Vec<String>,
    /// A name that is not interned.
    #[prost(string, optional, tag = "23")]
    pub name: Option<String>,
    /// Arrows that begin here.
    #[prost(fixed64, repeated, packed = "false", tag = "47")]
    pub flow_ids: Vec<u64>,
    /// Arrows that end here.
    #[prost(fixed64, repeated, packed = "false", tag = "48")]
    pub terminating_flow_ids: Vec<u64>,
}

/// `TrackEvent.Type`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, prost::Enumeration)]
#[repr(i32)]
pub enum Kind {
    /// No value that is written here.
    Unspecified = 0,
    /// The begin of a slice.
    Begin = 1,
    /// The end of the slice that began last on the track.
    End = 2,
    /// An instant.
    Instant = 3,
}

/// `DebugAnnotation`.
#[derive(Clone, PartialEq, prost::Message)]
pub struct DebugAnnotation {
    /// An interned name.
    #[prost(uint64, optional, tag = "1")]
    pub name_iid: Option<u64>,
    /// A number.
    #[prost(uint64, optional, tag = "3")]
    pub uint_value: Option<u64>,
    /// A number that may be negative.
    #[prost(int64, optional, tag = "4")]
    pub int_value: Option<i64>,
    /// A text.
    #[prost(string, optional, tag = "6")]
    pub string_value: Option<String>,
    /// A name that is not interned.
    #[prost(string, optional, tag = "10")]
    pub name: Option<String>,
}

/// `InternedData`.
#[derive(Clone, PartialEq, prost::Message)]
pub struct InternedData {
    /// Categories.
    #[prost(message, repeated, tag = "1")]
    pub event_categories: Vec<Name>,
    /// Names of slices.
    #[prost(message, repeated, tag = "2")]
    pub event_names: Vec<Name>,
    /// Names of further values.
    #[prost(message, repeated, tag = "3")]
    pub debug_annotation_names: Vec<Name>,
}

/// `EventName`, `EventCategory` and `DebugAnnotationName`, which are alike.
#[derive(Clone, PartialEq, prost::Message)]
pub struct Name {
    /// The number that stands for the name.
    #[prost(uint64, optional, tag = "1")]
    pub iid: Option<u64>,
    /// The name.
    #[prost(string, optional, tag = "2")]
    pub name: Option<String>,
}

/// `TrackDescriptor`.
#[derive(Clone, PartialEq, prost::Message)]
pub struct TrackDescriptor {
    /// The track's id.
    #[prost(uint64, optional, tag = "1")]
    pub uuid: Option<u64>,
    /// The name; not of processes and threads.
    #[prost(string, optional, tag = "2")]
    pub name: Option<String>,
    /// The track is a process.
    #[prost(message, optional, tag = "3")]
    pub process: Option<ProcessDescriptor>,
    /// The track is a thread.
    #[prost(message, optional, tag = "4")]
    pub thread: Option<ThreadDescriptor>,
    /// The track above this one.
    #[prost(uint64, optional, tag = "5")]
    pub parent_uuid: Option<u64>,
}

/// `ProcessDescriptor`.
#[derive(Clone, PartialEq, prost::Message)]
pub struct ProcessDescriptor {
    /// The process's id.
    #[prost(int32, optional, tag = "1")]
    pub pid: Option<i32>,
    /// The process's name.
    #[prost(string, optional, tag = "6")]
    pub process_name: Option<String>,
}

/// `ThreadDescriptor`.
#[derive(Clone, PartialEq, prost::Message)]
pub struct ThreadDescriptor {
    /// The process's id.
    #[prost(int32, optional, tag = "1")]
    pub pid: Option<i32>,
    /// The thread's id.
    #[prost(int64, optional, tag = "2")]
    pub tid: Option<i64>,
    /// The thread's name.
    #[prost(string, optional, tag = "5")]
    pub thread_name: Option<String>,
}
