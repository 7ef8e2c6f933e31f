//! The dashboard's content: what a caller sees, and how it changes; pure. The page is `page.html`, `page.css`, `page.js`.
//!
//! - [`view`]: from listings to the JSON object that a page shows.
//! - [`change`]: from two such objects to the change between them.
//! - [`hour`]: how busy each device was in the last hour.
//! - [`files`]: the page.
//!
//! Sockets and callers are in [`crate::service`]. Invariant: what a page shows is what `--json` of the tool would show the
//! same caller, apart from times, which are absolute here, and rates.

pub(crate) mod change;
pub(crate) mod files;
pub(crate) mod hour;
pub(crate) mod view;
