//! Validation of numbers in the file.

use std::fmt::Display;

use toml::Spanned;

use super::file::ConfigFile;
use super::settings::BadSettings;

pub(super) fn ranged<T: PartialOrd + Display + Copy>(
    file: &ConfigFile,
    value: Option<&Spanned<T>>,
    range: (T, T),
    default: T,
) -> Result<T, BadSettings> {
    match value {
        None => Ok(default),
        Some(n) if *n.get_ref() >= range.0 && *n.get_ref() <= range.1 => Ok(*n.get_ref()),
        Some(n) => Err(file.wrong(n, &out_of_range(n.get_ref(), range)).into()),
    }
}

/// Returns a limit that the file may lower, but not raise above the wire protocol's.
pub(super) fn at_most(
    file: &ConfigFile,
    value: Option<&Spanned<usize>>,
    most: usize,
) -> Result<usize, BadSettings> {
    ranged(file, value, (1, most), most)
}

pub(super) fn out_of_range<T: Display>(value: &T, range: (T, T)) -> String {
    format!("{value} is out of range: {} to {}", range.0, range.1)
}
