//! Compares the list of entry points with Khronos' C header as Debian packages it. For every slot that the
//! header has, the C compiler checks position and signature.
//!
//! Needs `cc` and the package `opencl-c-headers`.

use std::fmt::Write as _;
use std::io::Write as _;
use std::process::{Command, Stdio};

use cl_headers::{ENTRY_POINTS, Origin, SLOTS};

/// A function of the list, with its types in Rust's spelling.
struct Signature {
    name: &'static str,
    parameters: &'static [&'static str],
    result: &'static str,
}

macro_rules! signatures {
    ($($slot:literal $origin:ident($of:tt) $node:ident null($($null:tt)*) fails($how:ident)
       fn $name:ident($($parameter:ident: $ty:ty),*) -> $ret:ty;)*) => {
        &[$(Signature {
            name: stringify!($name),
            parameters: &[$(stringify!($ty)),*],
            result: stringify!($ret),
        }),*]
    };
}

static SIGNATURES: &[Signature] = cl_headers::for_each_entry_point!(signatures);

/// C's names for types that the list names as Rust does.
const PRELUDE: &str = r"
#define CL_TARGET_OPENCL_VERSION 300
#define CL_USE_DEPRECATED_OPENCL_1_0_APIS
#define CL_USE_DEPRECATED_OPENCL_1_1_APIS
#define CL_USE_DEPRECATED_OPENCL_1_2_APIS
#define CL_USE_DEPRECATED_OPENCL_2_0_APIS
#define CL_USE_DEPRECATED_OPENCL_2_1_APIS
#define CL_USE_DEPRECATED_OPENCL_2_2_APIS
#include <stddef.h>
#include <CL/cl_icd.h>
typedef char c_char;
typedef unsigned char c_uchar;
typedef void c_void;
typedef void (*ContextCallback)(const char *, const void *, size_t, void *);
typedef void (*ContextDestructorCallback)(cl_context, void *);
typedef void (*MemCallback)(cl_mem, void *);
typedef void (*ProgramCallback)(cl_program, void *);
typedef void (*EventCallback)(cl_event, cl_int, void *);
typedef void (*SvmFreeCallback)(cl_command_queue, cl_uint, void **, void *);
typedef void (*NativeKernel)(void *);
#define CHECK(what, ...) _Static_assert((__VA_ARGS__), what)
";

/// A type of the list as C writes it: `*const T` becomes `T const *`.
fn c_type(rust: &str) -> String {
    let rust = rust.trim();
    // The compiler's output for a pointer type may or may not have a space after the star.
    let Some(pointer) = rust.strip_prefix('*') else {
        return if rust == "()" {
            "void".to_owned()
        } else {
            rust.to_owned()
        };
    };
    let pointer = pointer.trim_start();
    if let Some(target) = pointer.strip_prefix("const ") {
        format!("{} const *", c_type(target))
    } else {
        let target = pointer
            .strip_prefix("mut ")
            .expect("a raw pointer is const or mut");
        format!("{} *", c_type(target))
    }
}

/// Runs the C compiler on `source` without writing a file. Returns its messages if it fails.
fn compile(source: &str) -> Result<(), String> {
    let mut compiler = Command::new("cc")
        .args([
            "-std=c11",
            "-fsyntax-only",
            "-Wno-deprecated-declarations",
            "-x",
            "c",
            "-",
        ])
        .stdin(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the C compiler `cc` is needed");
    compiler
        .stdin
        .take()
        .expect("piped")
        .write_all(source.as_bytes())
        .expect("cc reads its input");
    let output = compiler.wait_with_output().expect("cc ends");
    if output.status.success() {
        Ok(())
    } else {
        Err(String::from_utf8_lossy(&output.stderr).into_owned())
    }
}

/// Whether the installed header has this slot. Slots that are newer than the header cannot be compared.
fn in_header(header: &str, name: &str) -> bool {
    header.contains(&format!("cl_api_{name}"))
}

/// On Linux the header declares these slots as plain `void *`.
fn is_untyped(origin: Origin) -> bool {
    matches!(
        origin,
        Origin::Extension(
            "cl_khr_d3d10_sharing" | "cl_khr_d3d11_sharing" | "cl_khr_dx9_media_sharing"
        )
    )
}

#[test]
fn every_slot_of_the_c_header_has_our_place_and_signature() {
    let header = std::fs::read_to_string("/usr/include/CL/cl_icd.h")
        .expect("the package opencl-c-headers is needed");
    let mut source = PRELUDE.to_owned();
    let mut compared = 0;
    for (entry, signature) in ENTRY_POINTS.iter().zip(SIGNATURES) {
        let name = entry.name;
        assert_eq!(name, signature.name);
        if !in_header(&header, name) {
            continue;
        }
        compared += 1;
        writeln!(
            source,
            "CHECK(\"place of {name}\", \
             offsetof(cl_icd_dispatch, {name}) == {} * sizeof(void *));",
            entry.slot
        )
        .expect("writing to a string");
        if is_untyped(entry.origin) {
            continue;
        }
        let parameters: Vec<String> = signature.parameters.iter().map(|ty| c_type(ty)).collect();
        let parameters = if parameters.is_empty() {
            "void".to_owned()
        } else {
            parameters.join(", ")
        };
        writeln!(
            source,
            "CHECK(\"signature of {name}\", __builtin_types_compatible_p(\
             __typeof__(((cl_icd_dispatch *)0)->{name}), {} (*)({parameters})));",
            c_type(signature.result)
        )
        .expect("writing to a string");
    }
    writeln!(
        source,
        "CHECK(\"size\", sizeof(cl_icd_dispatch) == {compared} * sizeof(void *));"
    )
    .expect("writing to a string");
    // The header of OpenCL 3.0 ends one slot before this list.
    assert!(
        compared == SLOTS - 1 || compared == SLOTS,
        "{compared} slots compared"
    );
    if let Err(complaint) = compile(&source) {
        panic!("the C header disagrees:\n{complaint}");
    }
}

#[test]
fn error_codes_have_the_names_of_the_c_header() {
    let mut source = PRELUDE.to_owned();
    let mut named = 0;
    for code in -1200..=0 {
        let name = cl_headers::error_name(code);
        if name.starts_with("CL_") {
            named += 1;
            // Constants of Windows' extensions and of newer ones may be missing in the header.
            writeln!(
                source,
                "#ifdef {name}\nCHECK(\"{name}\", {name} == {code});\n#endif"
            )
            .expect("writing to a string");
        }
        let core = (-19..=0).contains(&code) || (-72..=-30).contains(&code);
        if core {
            writeln!(
                source,
                "#ifndef {name}\n#error no {name} in the header\n#endif"
            )
            .expect("writing to a string");
        }
    }
    assert!(named > 64, "{named} codes have names");
    for (name, value) in [
        ("CL_DEPTH_STENCIL", cl_headers::types::CL_DEPTH_STENCIL),
        ("CL_UNORM_INT24", cl_headers::types::CL_UNORM_INT24),
    ] {
        writeln!(source, "CHECK(\"{name}\", {name} == {value});").expect("writing to a string");
    }
    if let Err(complaint) = compile(&source) {
        panic!("the C header disagrees:\n{complaint}");
    }
}

#[test]
fn a_wrong_place_or_signature_would_be_noticed() {
    for wrong in [
        "CHECK(\"place\", offsetof(cl_icd_dispatch, clFlush) == 0);",
        "CHECK(\"signature\", __builtin_types_compatible_p(\
         __typeof__(((cl_icd_dispatch *)0)->clFlush), cl_int (*)(cl_context)));",
    ] {
        let complaint = compile(&format!("{PRELUDE}{wrong}")).expect_err("wrong on purpose");
        assert!(complaint.contains("static assertion failed"), "{complaint}");
    }
}
