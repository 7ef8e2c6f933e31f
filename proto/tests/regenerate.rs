//! The committed code in `src/gen` is what the `.proto` files give.
//!
//! `CAUSEWAY_REGENERATE=1 cargo test -p causeway-proto --test regenerate` rewrites it.

use std::path::Path;

#[test]
fn generated_code_is_current() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let fresh = tempfile::tempdir().expect("a temporary folder");
    tonic_prost_build::configure()
        .bytes(".")
        .out_dir(fresh.path())
        .compile_protos(
            &[
                root.join("proto/control.proto"),
                root.join("proto/command.proto"),
            ],
            &[root.join("proto")],
        )
        .expect("protoc (Debian: protobuf-compiler) compiles the files");
    for name in ["causeway.control.v1.rs", "causeway.command.v1.rs"] {
        let fresh = std::fs::read_to_string(fresh.path().join(name)).expect("generated");
        let committed = root.join("src/gen").join(name);
        if std::env::var_os("CAUSEWAY_REGENERATE").is_some() {
            std::fs::write(&committed, &fresh).expect("src/gen is writable");
        }
        let committed = std::fs::read_to_string(&committed).unwrap_or_default();
        assert!(
            fresh == committed,
            "{name} differs; run with CAUSEWAY_REGENERATE=1"
        );
    }
}
