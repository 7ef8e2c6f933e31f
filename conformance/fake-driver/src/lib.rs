//! A fake OpenCL driver: an ICD that loaders load, which records what it is asked and misbehaves
//! when it is told to.
//!
//! It is what the daemon loads in tests and for the command-rate benchmark. It has devices of any
//! kind, real memory, queues, events and programs, with the error codes of a careful driver; it does
//! not compute: kernels are found by [reading](source) the source, and but for [a few](launch) they
//! do nothing when launched. It has no SVM or sub-devices.
//!
//! # Loading it
//!
//! A loader finds it by an `.icd` file that holds the path of `libfake_opencl.so`:
//! `OCL_ICD_VENDORS=DIR-WITH-THE-ICD-FILE clinfo -l`.
//!
//! # Settings
//!
//! `FAKE_OPENCL_CONFIG` is the text of the settings (it contains a `=`), or the path of a control
//! file that is read again whenever it has changed. They are TOML; outside of quotes a `;` ends a
//! line as well. Everything may be left out. Devices are fixed by the first reading.
//!
//! ```toml
//! instant = false       # commands that take no time complete within the enqueue
//! early_writes = false  # the bytes of a write are taken within the enqueue, whatever it waits for
//! odd_layer_copies = false
//!                       # copies between buffers and arrays of 1D images are refused, as by NVIDIA
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
//! `FAKE_OPENCL_LOG` names a file for one line per call (`%p` in it becomes the process's number);
//! [`log`] tells the format.
//!
//! # Where things are
//!
//! [`entry`] makes the C functions from `cl-headers`' list and does what is the same for all. The
//! functions' bodies are in the modules of their nouns, in a module `api` each. [`object`] is what
//! handles lead to; [`command`] and [`engine`] are what enqueues make and who runs it.
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
