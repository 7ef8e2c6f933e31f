//! Compiles `CL/cl_ext_causeway.h` alone and together with `<CL/cl.h>`, as C99, C11 and C++. Compares its
//! numbers and signatures with `cl_headers::server`.
//!
//! Needs `cc`, `c++` and the package `opencl-c-headers`.

use std::fmt::Write as _;
use std::io::Write as _;
use std::process::{Command, Stdio};

use cl_headers::server::CONSTANTS;

/// Checks a program's syntax and types.
fn compile(compiler: &str, language: &[&str], program: &str) {
    let mut child = Command::new(compiler)
        .args(["-Wall", "-Wextra", "-Wpedantic", "-Werror", "-fsyntax-only"])
        .args(language)
        .arg("-DCL_TARGET_OPENCL_VERSION=300")
        .arg(concat!("-I", env!("CARGO_MANIFEST_DIR"), "/include"))
        .arg("-")
        .stdin(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap_or_else(|error| panic!("the compiler `{compiler}` is needed: {error}"));
    let mut source = child.stdin.take().expect("piped");
    source.write_all(program.as_bytes()).expect("it reads");
    drop(source);
    let output = child.wait_with_output().expect("it ends");
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(
        output.status.success(),
        "{compiler} {language:?}:\n{errors}\n{program}"
    );
}

const ALONE: &str = "#include <CL/cl_ext_causeway.h>\ntypedef int not_empty;\n";

const USE: &str = r#"
#include <CL/cl.h>
#include <CL/cl_ext.h>
#include <CL/cl_ext_causeway.h>
#include <CL/cl_ext_causeway.h>
cl_int use(cl_platform_id platform);
cl_int use(cl_platform_id platform)
{
    clConnectServerWWU_fn connect_server = (clConnectServerWWU_fn)
        clGetExtensionFunctionAddressForPlatform(platform, "clConnectServerWWU");
    clDisconnectServerWWU_fn disconnect_server = (clDisconnectServerWWU_fn)
        clGetExtensionFunctionAddressForPlatform(platform, "clDisconnectServerWWU");
    clGetServerInfoWWU_fn server_info = (clGetServerInfoWWU_fn)
        clGetExtensionFunctionAddressForPlatform(platform, "clGetServerInfoWWU");
    clGetLinkInfoWWU_fn link_info = (clGetLinkInfoWWU_fn)
        clGetExtensionFunctionAddressForPlatform(platform, "clGetLinkInfoWWU");
    cl_link_info query = CL_LINK_ROUTE_WWU;
    cl_link_route route = CL_LINK_ROUTE_SAME_SERVER_WWU;
    cl_int error = CL_SUCCESS;
    cl_server_WWU server = connect_server("localhost:7079", &error);
    cl_server_info name = CL_SERVER_NUM_DEVICES_WWU;
    cl_uint count = 0;
    if (server == NULL)
        return error;
    error = server_info(server, name, sizeof count, &count, NULL);
    if (error != CL_SUCCESS)
        return error;
    error = link_info(NULL, NULL, query, sizeof route, &route, NULL);
    if (error == CL_SUCCESS)
        return CL_INVALID_DEVICE;
    return disconnect_server(server);
}
"#;

#[test]
fn it_compiles_as_c_and_as_cpp() {
    for standard in ["-std=c99", "-std=c11"] {
        compile("cc", &["-xc", standard], ALONE);
        // The cast from a data pointer to a function pointer is not pedantic C.
        compile("cc", &["-xc", standard, "-Wno-pedantic"], USE);
    }
    for standard in ["-std=c++11", "-std=c++20"] {
        compile("c++", &["-xc++", standard], ALONE);
        compile("c++", &["-xc++", standard], USE);
    }
}

#[test]
fn its_numbers_are_ours() {
    let mut program = String::from("#include <CL/cl_ext_causeway.h>\n");
    for (name, value) in CONSTANTS {
        writeln!(program, "_Static_assert({name} == {value}, \"{name}\");").expect("memory");
    }
    let name = cl_headers::server::CL_WWU_SERVER_EXTENSION_NAME;
    writeln!(
        program,
        "_Static_assert(sizeof(CL_WWU_SERVER_EXTENSION_NAME) == {}, \"name\");",
        name.len() + 1
    )
    .expect("memory");
    compile("cc", &["-xc", "-std=c11"], &program);
}

#[test]
fn every_number_is_used_once() {
    for (place, (name, value)) in CONSTANTS.iter().enumerate() {
        let twice = CONSTANTS[..place].iter().find(|(_, other)| other == value);
        assert!(twice.is_none(), "{name} and {twice:?}");
    }
}
