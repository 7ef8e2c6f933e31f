//! Kernels' signatures, found by a scan of the source. There is no compiler.
//!
//! The scan understands comments, `#error`, `#ifdef`, `#ifndef`, `#if 0`, `#if 1`, `#else`, `#endif` and
//! macros. The scan also understands kernel functions with their attributes and parameters. Everything
//! else is accepted unread. So any program builds, unless it reaches an `#error`.
//!
//! Invariant: the result depends only on the text and the names.

use cl_headers::types::*;

use crate::macros::{Macros, split_word};

/// The kind of value that a parameter takes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Parameter {
    /// A value of this many bytes; `None` for types that are not built in.
    Value(Option<usize>),
    /// A pointer to global or constant memory.
    Memory,
    /// A pointer to local memory.
    Local,
    Image,
    Sampler,
    Queue,
    Pipe,
}

/// One parameter of a kernel.
#[derive(Clone, Debug)]
pub(crate) struct Argument {
    pub(crate) parameter: Parameter,
    pub(crate) address: cl_kernel_arg_address_qualifier,
    pub(crate) access: cl_kernel_arg_access_qualifier,
    pub(crate) qualifiers: cl_ulong,
    pub(crate) type_name: String,
    pub(crate) name: String,
}

/// One kernel.
#[derive(Clone, Debug)]
pub(crate) struct Signature {
    pub(crate) name: String,
    /// The texts inside `__attribute__((…))`, separated by blanks.
    pub(crate) attributes: String,
    /// `reqd_work_group_size`, or zeros.
    pub(crate) required: [usize; 3],
    pub(crate) arguments: Vec<Argument>,
}

/// Evaluates the directives of a source. Returns the remaining text, or the text of an `#error`.
/// `include` returns the text of an included file.
pub(crate) fn preprocess(
    source: &str,
    macros: &mut Macros,
    include: &dyn Fn(&str) -> Option<String>,
    depth: usize,
) -> Result<String, String> {
    let mut text = String::with_capacity(source.len());
    // Whether the current branch of each enclosing conditional is taken.
    let mut taken: Vec<bool> = Vec::new();
    for line in without_comments(source).lines() {
        let active = taken.iter().all(|taken| *taken);
        let Some(directive) = line.trim_start().strip_prefix('#') else {
            if active {
                text.push_str(&macros.expand(line));
                text.push('\n');
            }
            continue;
        };
        let (word, rest) = split_word(directive.trim_start());
        let rest = rest.trim();
        match word {
            "ifdef" => taken.push(macros.is_defined(rest)),
            "ifndef" => taken.push(!macros.is_defined(rest)),
            "if" => taken.push(rest != "0"),
            "else" | "elif" => {
                if let Some(last) = taken.last_mut() {
                    *last = !*last;
                }
            }
            "endif" => {
                taken.pop();
            }
            _ if !active => {}
            "error" => return Err(format!("error: {rest}")),
            "define" => macros.define(rest),
            "undef" => macros.undefine(rest),
            "include" => {
                let name = rest.trim_matches(['"', '<', '>']);
                let Some(found) = include(name).filter(|_| depth < 32) else {
                    return Err(format!("error: {name}: no such header"));
                };
                text.push_str(&preprocess(&found, macros, include, depth + 1)?);
            }
            _ => {}
        }
    }
    Ok(text)
}

/// Replaces comments by blanks. Line numbers stay the same.
fn without_comments(source: &str) -> String {
    let mut text = String::with_capacity(source.len());
    let mut chars = source.chars().peekable();
    let mut quoted = false;
    while let Some(c) = chars.next() {
        match (c, chars.peek()) {
            ('\\', Some(next)) if quoted => {
                text.push(c);
                text.push(*next);
                chars.next();
            }
            ('"', _) => {
                quoted = !quoted;
                text.push(c);
            }
            ('\\', Some('\n')) => {
                chars.next();
            }
            ('/', Some('/')) if !quoted => while chars.next_if(|c| *c != '\n').is_some() {},
            ('/', Some('*')) if !quoted => {
                chars.next();
                text.push(' ');
                let mut last = ' ';
                for c in chars.by_ref() {
                    if c == '\n' {
                        text.push(c);
                    }
                    if last == '*' && c == '/' {
                        break;
                    }
                    last = c;
                }
            }
            ('\n', _) => {
                quoted = false;
                text.push(c);
            }
            _ => text.push(c),
        }
    }
    text
}

/// Returns the kernels of a text without directives and comments, in order.
pub(crate) fn kernels(text: &str) -> Vec<Signature> {
    let tokens = tokens(text);
    let mut found: Vec<Signature> = Vec::new();
    let mut at = 0;
    while at < tokens.len() {
        at += 1;
        if matches!(tokens[at - 1], "kernel" | "__kernel")
            && let Some((signature, next)) = kernel(&tokens, at)
        {
            at = next;
            if !found.iter().any(|known| known.name == signature.name) {
                found.push(signature);
            }
        }
    }
    found
}

/// Splits a text into words and single other characters.
fn tokens(text: &str) -> Vec<&str> {
    let mut tokens = Vec::new();
    let mut rest = text.trim_start();
    while let Some(first) = rest.chars().next() {
        let (word, _) = split_word(rest);
        let length = word.len().max(first.len_utf8());
        tokens.push(&rest[..length]);
        rest = rest[length..].trim_start();
    }
    tokens
}

/// Returns the tokens between the bracket at `open` and its closing bracket, and the place after them.
fn bracketed<'a, 'b>(tokens: &'b [&'a str], open: usize) -> Option<(&'b [&'a str], usize)> {
    if *tokens.get(open)? != "(" {
        return None;
    }
    let mut depth = 0_usize;
    for (at, token) in tokens.iter().enumerate().skip(open) {
        match *token {
            "(" => depth += 1,
            ")" => depth -= 1,
            _ => {}
        }
        if depth == 0 {
            return Some((&tokens[open + 1..at], at + 1));
        }
    }
    None
}

/// Parses the kernel whose keyword `kernel` stands before `at`.
fn kernel(tokens: &[&str], mut at: usize) -> Option<(Signature, usize)> {
    let mut attributes = Vec::new();
    let mut required = [0; 3];
    let name = loop {
        match *tokens.get(at)? {
            "__attribute__" | "__attribute" => {
                let (inside, next) = bracketed(tokens, at + 1)?;
                let inside = inside.get(1..inside.len().saturating_sub(1))?;
                attributes.push(inside.concat());
                if inside.first() == Some(&"reqd_work_group_size") {
                    let sizes = inside.iter().filter_map(|token| token.parse().ok());
                    for (place, size) in required.iter_mut().zip(sizes) {
                        *place = size;
                    }
                }
                at = next;
            }
            "(" | ")" | ";" | "{" => return None,
            word => {
                at += 1;
                if tokens.get(at) == Some(&"(") && !word.starts_with("__attribute") {
                    break word;
                }
            }
        }
    };
    let (inside, next) = bracketed(tokens, at)?;
    let arguments = if inside.is_empty() || inside == ["void"] {
        Vec::new()
    } else {
        split_arguments(inside).into_iter().map(argument).collect()
    };
    let signature = Signature {
        name: name.to_owned(),
        attributes: attributes.join(" "),
        required,
        arguments,
    };
    Some((signature, next))
}

fn split_arguments<'a, 'b>(tokens: &'b [&'a str]) -> Vec<&'b [&'a str]> {
    let mut depth = 0_i32;
    tokens
        .split(|token| {
            match *token {
                "(" | "[" => depth += 1,
                ")" | "]" => depth -= 1,
                _ => {}
            }
            depth == 0 && *token == ","
        })
        .collect()
}

fn argument(tokens: &[&str]) -> Argument {
    let mut address = CL_KERNEL_ARG_ADDRESS_PRIVATE;
    let mut access = CL_KERNEL_ARG_ACCESS_NONE;
    let mut qualifiers = 0;
    let mut pointers = 0;
    let mut words = Vec::new();
    for token in tokens {
        match *token {
            "global" | "__global" => address = CL_KERNEL_ARG_ADDRESS_GLOBAL,
            "local" | "__local" => address = CL_KERNEL_ARG_ADDRESS_LOCAL,
            "constant" | "__constant" => {
                address = CL_KERNEL_ARG_ADDRESS_CONSTANT;
                qualifiers |= cl_ulong::from(CL_KERNEL_ARG_TYPE_CONST);
            }
            "private" | "__private" => {}
            "read_only" | "__read_only" => access = CL_KERNEL_ARG_ACCESS_READ_ONLY,
            "write_only" | "__write_only" => access = CL_KERNEL_ARG_ACCESS_WRITE_ONLY,
            "read_write" | "__read_write" => access = CL_KERNEL_ARG_ACCESS_READ_WRITE,
            "pipe" | "__pipe" => qualifiers |= cl_ulong::from(CL_KERNEL_ARG_TYPE_PIPE),
            // A const after the star belongs to the pointer and is not reported.
            "const" if pointers == 0 => qualifiers |= cl_ulong::from(CL_KERNEL_ARG_TYPE_CONST),
            "volatile" => qualifiers |= cl_ulong::from(CL_KERNEL_ARG_TYPE_VOLATILE),
            "restrict" | "__restrict" | "__restrict__" => {
                qualifiers |= cl_ulong::from(CL_KERNEL_ARG_TYPE_RESTRICT);
            }
            "*" => pointers += 1,
            "const" | "struct" | "enum" | "union" => {}
            word => words.push(word),
        }
    }
    // The last word is the name, unless the type is the only word.
    let name = if words.len() > 1 { words.pop() } else { None };
    let base = type_name(&words);
    let parameter = parameter(&base, pointers > 0, address, qualifiers);
    if matches!(parameter, Parameter::Image | Parameter::Pipe) {
        address = CL_KERNEL_ARG_ADDRESS_GLOBAL;
        if access == CL_KERNEL_ARG_ACCESS_NONE {
            access = CL_KERNEL_ARG_ACCESS_READ_ONLY;
        }
    }
    if pointers == 0 {
        // A value's const is not reported.
        qualifiers &= cl_ulong::from(CL_KERNEL_ARG_TYPE_PIPE);
    }
    Argument {
        parameter,
        address,
        access,
        qualifiers,
        type_name: base + &"*".repeat(pointers),
        name: name.unwrap_or_default().to_owned(),
    }
}

/// Returns a type's name as OpenCL reports it: `unsigned int` is `uint`.
fn type_name(words: &[&str]) -> String {
    let Some(rest) = words.strip_prefix(&["unsigned"]) else {
        return words.join(" ");
    };
    format!("u{}", rest.first().unwrap_or(&"int"))
}

fn parameter(
    base: &str,
    pointer: bool,
    address: cl_kernel_arg_address_qualifier,
    qualifiers: cl_ulong,
) -> Parameter {
    if qualifiers & cl_ulong::from(CL_KERNEL_ARG_TYPE_PIPE) != 0 {
        Parameter::Pipe
    } else if pointer && address == CL_KERNEL_ARG_ADDRESS_LOCAL {
        Parameter::Local
    } else if pointer {
        Parameter::Memory
    } else if base.starts_with("image") && base.ends_with("_t") {
        Parameter::Image
    } else if base == "sampler_t" {
        Parameter::Sampler
    } else if base == "queue_t" {
        Parameter::Queue
    } else {
        Parameter::Value(value_size(base))
    }
}

/// Returns the size of a built-in scalar or vector type, in bytes.
fn value_size(name: &str) -> Option<usize> {
    let digits = name.trim_start_matches(|c: char| !c.is_ascii_digit());
    let base = &name[..name.len() - digits.len()];
    let scalar = match base {
        "char" | "uchar" => 1,
        "short" | "ushort" | "half" => 2,
        "int" | "uint" | "float" => 4,
        "long" | "ulong" | "double" => 8,
        "size_t" | "ptrdiff_t" | "intptr_t" | "uintptr_t" if digits.is_empty() => 8,
        _ => return None,
    };
    match digits {
        "" => Some(scalar),
        "3" => Some(4 * scalar),
        "2" | "4" | "8" | "16" => digits.parse::<usize>().ok().map(|width| width * scalar),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn scan(source: &str) -> Vec<Signature> {
        let text = preprocess(source, &mut Macros::default(), &|_| None, 0).unwrap();
        kernels(&text)
    }

    #[test]
    fn parameters_are_understood() {
        let found = scan(
            "typedef struct { int a; } S;\n\
             /* kernel void no(int x) {} */\n\
             __kernel __attribute__((reqd_work_group_size(8, 4, 1))) void k(\n\
               __global const float4 * restrict in, // first, second\n\
               global uint *out, __local int *scratch, constant int *c,\n\
               float3 v, unsigned int n, S s, read_only image2d_t i, sampler_t smp) { }",
        );
        assert_eq!(found.len(), 1);
        let kernel = &found[0];
        assert_eq!(kernel.name, "k");
        assert_eq!(kernel.attributes, "reqd_work_group_size(8,4,1)");
        assert_eq!(kernel.required, [8, 4, 1]);
        let parameters: Vec<_> = kernel
            .arguments
            .iter()
            .map(|a| a.parameter.clone())
            .collect();
        assert_eq!(
            parameters,
            [
                Parameter::Memory,
                Parameter::Memory,
                Parameter::Local,
                Parameter::Memory,
                Parameter::Value(Some(16)),
                Parameter::Value(Some(4)),
                Parameter::Value(None),
                Parameter::Image,
                Parameter::Sampler,
            ]
        );
        let first = &kernel.arguments[0];
        assert_eq!(
            (first.type_name.as_str(), first.name.as_str()),
            ("float4*", "in")
        );
        assert_eq!(first.qualifiers, 3);
        assert_eq!(kernel.arguments[5].type_name, "uint");
        assert_eq!(kernel.arguments[7].access, CL_KERNEL_ARG_ACCESS_READ_ONLY);
    }

    #[test]
    fn macros_make_kernels() {
        let found = scan("#define K(n) \\\nvoid kernel k##n(global int *a) {}\nK(1)\nK(2)\n");
        let names: Vec<_> = found.iter().map(|kernel| kernel.name.as_str()).collect();
        assert_eq!(names, ["k1", "k2"]);
    }

    #[test]
    fn kernel_may_follow_void() {
        assert_eq!(
            scan("void kernel a(int x) {} void __kernel b() {}").len(),
            2
        );
    }

    #[test]
    fn several_kernels_and_none() {
        let names: Vec<_> = scan("kernel void a(void){} void f(){} kernel void b(){}")
            .into_iter()
            .map(|kernel| kernel.name)
            .collect();
        assert_eq!(names, ["a", "b"]);
        assert!(scan("").is_empty());
        assert!(scan("kernel kernel __attribute__(( kernel void x(").is_empty());
    }

    #[test]
    fn error_directives_count_where_they_are_reached() {
        let none = |_: &str| None;
        let run = |source, defined: &[&str]| {
            let mut macros = Macros::of_options(defined.iter().copied());
            preprocess(source, &mut macros, &none, 0)
        };
        assert!(run("#error no\n", &[]).unwrap_err().contains("no"));
        assert!(run("#ifdef A\n#error no\n#endif\n", &[]).is_ok());
        assert!(run("#ifdef A\n#error no\n#endif\n", &["A"]).is_err());
        assert!(run("// #error\n\"#error\"\n", &[]).is_ok());
        assert!(run("#include \"x.h\"\n", &[]).is_err());
    }

    #[test]
    fn includes_are_put_in() {
        let include = |name: &str| (name == "a.h").then(|| "kernel void a() {}".to_owned());
        let text = preprocess("#include \"a.h\"\n", &mut Macros::default(), &include, 0).unwrap();
        assert_eq!(kernels(&text)[0].name, "a");
    }
}
