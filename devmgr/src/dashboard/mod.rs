//! The dashboard's content: what a caller sees, and how it changes; pure. The page is `page.html`, `page.css`, `page.js`.
//!
//! - [`view`]: from listings to the rows that a page shows.
//! - [`page`]: such rows as JSON text, and the change from one page to another. [`change`]: the change of one row.
//! - [`hour`]: how busy each device was in the last hour.
//! - [`files`]: the page.
//!
//! Sockets and callers are in [`crate::service`]. Invariant: what a page shows is what `--json` of the tool would show the
//! same caller, apart from times, which are absolute here, and rates.

mod change;
pub(crate) mod files;
pub(crate) mod hour;
pub(crate) mod page;
pub(crate) mod view;
