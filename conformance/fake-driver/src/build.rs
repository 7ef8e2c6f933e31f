//! Building, compiling and linking: from a source, options and headers to an object.
//!
//! Programs as objects are in `program`. Invariant: pure, except for the reading of headers. A binary
//! from this driver is read back as the code that it was made from.

use std::collections::HashSet;
use std::path::Path;
use std::sync::Arc;

use cl_headers::types::*;

use crate::error::{ClResult, Code, ensure};
use crate::macros::Macros;
use crate::source::{self, Signature};

/// First line of a binary.
const MAGIC: &str = "fake OpenCL binary 1";

/// The result of compiling.
#[derive(Clone, Debug)]
pub(crate) struct Object {
    pub(crate) kind: cl_program_binary_type,
    /// Whether `-cl-kernel-arg-info` was given.
    pub(crate) argument_info: bool,
    /// The source after preprocessing.
    text: String,
    pub(crate) kernels: Vec<Arc<Signature>>,
}

impl Object {
    pub(crate) fn new(kind: cl_program_binary_type, argument_info: bool, text: String) -> Self {
        let kernels = source::kernels(&text).into_iter().map(Arc::new).collect();
        Self {
            kind,
            argument_info,
            text,
            kernels,
        }
    }

    /// Returns the binary for a device of this name.
    pub(crate) fn to_binary(&self, device: &str) -> Vec<u8> {
        let info = u8::from(self.argument_info);
        format!("{MAGIC}\n{device}\n{} {info}\n{}", self.kind, self.text).into_bytes()
    }

    /// Reads a binary; `None` if it is not one for a device of this name.
    pub(crate) fn from_binary(device: &str, binary: &[u8]) -> Option<Self> {
        let mut parts = std::str::from_utf8(binary).ok()?.splitn(4, '\n');
        let (magic, name, numbers, text) =
            (parts.next()?, parts.next()?, parts.next()?, parts.next()?);
        let (kind, info) = numbers.split_once(' ')?;
        let kind = kind.parse().ok()?;
        let known = [
            CL_PROGRAM_BINARY_TYPE_COMPILED_OBJECT,
            CL_PROGRAM_BINARY_TYPE_LIBRARY,
            CL_PROGRAM_BINARY_TYPE_EXECUTABLE,
        ];
        let good = magic == MAGIC && name == device && known.contains(&kind);
        good.then(|| Self::new(kind, info == "1", text.to_owned()))
    }
}

/// The options that have an effect here.
#[derive(Clone, Debug, Default)]
pub(crate) struct Options {
    /// `NAME` or `NAME=VALUE`.
    defines: Vec<String>,
    directories: Vec<String>,
    pub(crate) argument_info: bool,
    pub(crate) library: bool,
}

impl Options {
    /// Returns the options for a device with these extensions, each of which is a macro.
    pub(crate) fn on_device<'a>(&self, extensions: impl Iterator<Item = &'a str>) -> Self {
        let mut options = self.clone();
        options.defines.extend(extensions.map(ToOwned::to_owned));
        options
    }

    /// Parses options. `invalid` is the error for an unknown option.
    pub(crate) fn parse(text: &str, invalid: cl_int) -> ClResult<Self> {
        let mut options = Self::default();
        let mut words = words(text).into_iter();
        while let Some(word) = words.next() {
            if let Some(rest) = word.strip_prefix("-D") {
                let define = operand(rest, &mut words).ok_or(Code(invalid))?;
                options.defines.push(define);
            } else if let Some(rest) = word.strip_prefix("-I") {
                let directory = operand(rest, &mut words).ok_or(Code(invalid))?;
                options.directories.push(directory);
            } else if word == "-x" {
                words.next();
            } else if word == "-cl-kernel-arg-info" {
                options.argument_info = true;
            } else if word == "-create-library" {
                options.library = true;
            } else {
                let known = ["-w", "-Werror", "-g", "-enable-link-options"];
                let fine = known.contains(&word.as_str()) || word.starts_with("-cl-");
                ensure(fine, invalid)?;
            }
        }
        Ok(options)
    }
}

/// Returns the operand of an option: the rest of the same word, or the next word.
fn operand(rest: &str, words: &mut impl Iterator<Item = String>) -> Option<String> {
    if rest.is_empty() {
        words.next()
    } else {
        Some(rest.to_owned())
    }
}

/// Splits at blanks outside of double quotes.
fn words(text: &str) -> Vec<String> {
    let mut words = vec![String::new()];
    let mut quoted = false;
    for c in text.chars() {
        match c {
            '"' => quoted = !quoted,
            c if c.is_whitespace() && !quoted => words.push(String::new()),
            c => words.last_mut().unwrap_or(&mut String::new()).push(c),
        }
    }
    words.retain(|word| !word.is_empty());
    words
}

/// Compiles a source. `headers` are names and texts. The error is the log.
pub(crate) fn compile(
    source: &str,
    options: &Options,
    headers: &[(String, String)],
    kind: cl_program_binary_type,
) -> Result<Object, String> {
    let include = |name: &str| {
        let given = headers.iter().find(|(known, _)| known == name);
        given.map(|(_, text)| text.clone()).or_else(|| {
            let paths = options
                .directories
                .iter()
                .map(|path| Path::new(path).join(name));
            paths
                .into_iter()
                .find_map(|path| std::fs::read_to_string(path).ok())
        })
    };
    let mut macros = Macros::of_options(options.defines.iter().map(String::as_str));
    let text = source::preprocess(source, &mut macros, &include, 0)?;
    Ok(Object::new(kind, options.argument_info, text))
}

/// Links objects. Fails if two kernels have the same name; the error is the log.
pub(crate) fn link(inputs: &[&Object], options: &Options) -> Result<Object, String> {
    let mut names = HashSet::new();
    for kernel in inputs.iter().flat_map(|input| &input.kernels) {
        if !names.insert(kernel.name.as_str()) {
            return Err(format!("error: kernel {} is defined twice", kernel.name));
        }
    }
    let kind = if options.library {
        CL_PROGRAM_BINARY_TYPE_LIBRARY
    } else {
        CL_PROGRAM_BINARY_TYPE_EXECUTABLE
    };
    let info = inputs.iter().all(|input| input.argument_info);
    let text = inputs.iter().map(|input| input.text.as_str());
    Ok(Object::new(kind, info, text.collect::<Vec<_>>().join("\n")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_are_read_and_unknown_ones_refused() {
        let parse = |text| Options::parse(text, CL_INVALID_BUILD_OPTIONS);
        let options = parse("-D A=1 -DB -I \"a b\" -Ic -cl-kernel-arg-info -cl-std=CL1.2").unwrap();
        assert_eq!(options.defines, ["A=1", "B"]);
        assert_eq!(options.directories, ["a b", "c"]);
        assert!(options.argument_info);
        assert!(parse("-foo").is_err());
        assert!(parse("-D").is_err());
    }

    #[test]
    fn binaries_come_back() {
        let kind = CL_PROGRAM_BINARY_TYPE_EXECUTABLE;
        let object = Object::new(kind, true, "kernel void k(int a) {}".to_owned());
        let back = Object::from_binary("D", &object.to_binary("D")).unwrap();
        assert_eq!((back.kind, back.argument_info), (kind, true));
        assert_eq!(back.kernels[0].name, "k");
        assert!(Object::from_binary("E", &object.to_binary("D")).is_none());
        assert!(Object::from_binary("D", b"ELF").is_none());
    }
}
