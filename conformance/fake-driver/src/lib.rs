//! A fake OpenCL driver for loaders. It records the calls that it gets, and misbehaves on request.
//!
//! The daemon loads it in tests and for the command-rate benchmark. It has devices of any kind, real
//! memory, queues, events and programs, with the error codes of a careful driver. It does not compute.
//! Kernels are found by [reading](source) the source, and all but [a few](launch) have no effect when
//! launched. SVM and sub-devices are not supported.
//!
//! # Loading it
//!
//! A loader finds the driver by an `.icd` file with the path of `libfake_opencl.so`:
//! `OCL_ICD_VENDORS=DIR-WITH-THE-ICD-FILE clinfo -l`.
//!
//! # Settings
//!
//! `FAKE_OPENCL_CONFIG` is the text of the settings or the path of a control file. A text contains a `=`.
//! The driver reads a control file again whenever it has changed. The format is TOML. Outside of quotes,
//! a `;` ends a line as well. Everything may be left out. The first reading fixes the devices.
//!
//! ```toml
//! instant = false       # commands that take no time complete within the enqueue
//! early_writes = false  # the bytes of a write are taken within the enqueue, whatever it waits for
//! odd_layer_copies = false
//!                       # copies between buffers and arrays of 1D images are refused, as by NVIDIA
//! leaks = false         # memory of objects that are gone stays allocated, and counts on its devices
//! order = "forward"     # of commands that could complete together, on out-of-order queues and
//!                       # between queues; "reverse"; "random", then of callbacks as well
//! seed = 0              # for "random"
//! devices = 1           # how often the list of devices is repeated
//!
//! [[device]]
//! count = 1
//! platform = 0          # one platform for each number
//! name = "Fake Device"
//! kind = "gpu"          # "cpu", "accelerator"
//! version = "3.0"       # "2.2", "2.1", "2.0", "1.2"
//! compiler = true       # and linker
//! images = false        # of RGBA bytes; kernels do not touch them
//! il = false            # takes SPIR-V
//! pipes = false
//! device_queues = 0     # of a context at most
//! fp64 = true
//! out_of_order = true
//! unified_memory = false
//! memory = 4294967296   # bytes
//! compute_units = 8
//! kernel_ns = 0         # time of a launch on this device, and
//! ns_per_item = 0.0     # what each work-item adds to it
//! vendor_id = 0xFA6E
//! exclusive = "/PATH"   # one process at a time has contexts, the one that has locked this file; see [`nvml`]
//! card = { utilization = 0, memory_used = 0, temperature = 0, context_memory = 0, crash = false }
//!                       # what NVML says; without it, NVML knows the mode only
//!
//! [kernel.NAME]         # launches of kernels of this name
//! ns = 1000             # take so long, whatever the device
//! fail = -5             # end their event with this status
//! print = "text"        # write to stdout before they complete
//! crash = "abort"       # end the process: "segv", "divide", "exit"
//! hang = false          # never complete, and occupy their device
//! rows = { ns = [20, 30, 10], first = 2, stride = 3 }
//!                       # a share of a picture's [rows], each with a time of its own
//!
//! [[call]]              # calls of one function
//! name = "clFinish"
//! at = 3                # only the third one, counted from when the settings were read
//! delay_us = 0
//! fail = -5
//! crash = "abort"
//! meet = "FOLDER"       # wait until as many calls are there, of any processes, each of which leaves
//! of = 2                # a file in the folder; ten seconds at most, then fail
//! load = "FILE.so"      # load this library, as drivers do with their compilers
//! ```
//!
//! # The log
//!
//! `FAKE_OPENCL_LOG` names a file for one line per call. `%p` in the name becomes the process's number.
//! [`log`] defines the format.
//!
//! # Where things are
//!
//! [`entry`] makes the C functions from the list of `cl-headers` and does their common work. The
//! functions' bodies are in the modules of their nouns, in a module `api` each. [`object`] defines the
//! objects behind handles. [`command`] defines what enqueues make, and [`engine`] runs it.
#![allow(
    rustdoc::private_intra_doc_links,
    reason = "the documentation is for those who read the source; nothing is public"
)]

mod arg;
mod build;
mod clock;
mod command;
mod config;
mod context;
mod control;
mod crash;
mod device;
mod device_info;
mod engine;
mod entry;
mod error;
mod event;
mod exclusive;
mod il;
mod image;
mod image_commands;
mod info;
mod kernel;
mod kernel_info;
mod late;
mod launch;
mod log;
mod macros;
mod map;
mod meeting;
mod memory;
mod nvml;
mod object;
mod on_device;
mod pipe;
mod platform;
mod program;
mod program_build;
mod program_info;
mod queue;
mod rect;
mod rows;
mod sampler;
mod source;
mod svm;
mod tag;
mod transfer;
