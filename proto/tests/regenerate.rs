//! Checks that the committed code in `src/gen` matches the `.proto` files.
//!
//! `CAUSEWAY_REGENERATE=1 cargo test -p causeway-proto --test regenerate` rewrites it.

use std::path::Path;

#[test]
fn generated_code_is_current() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let fresh = tempfile::tempdir().expect("a temporary folder");
    let compile = |folder: &str, builder: tonic_prost_build::Builder, names: &[&str]| {
        let out = fresh.path().join(folder);
        std::fs::create_dir(&out).expect("a folder");
        let files: Vec<_> = names.iter().map(|n| root.join("proto").join(n)).collect();
        builder
            .bytes(".")
            .out_dir(out)
            .compile_protos(&files, &[root.join("proto")])
            .expect("protoc (Debian: protobuf-compiler) compiles the files");
    };
    let configure = tonic_prost_build::configure;
    compile("node", configure(), &["control.proto", "command.proto"]);
    // manager.proto uses messages of `control`, which `lib.rs` defines. The separate folders keep the
    // code that this step would generate for control.proto apart.
    let descriptors = fresh.path().join("services.bin");
    let manager = configure()
        .extern_path(".causeway.control.v1", "crate::control")
        .codec_path("crate::codec::SmallBuffers")
        .file_descriptor_set_path(&descriptors);
    compile("manager", manager, &["manager.proto"]);
    for (folder, name) in [
        ("node", "causeway.control.v1.rs"),
        ("node", "causeway.command.v1.rs"),
        ("manager", "causeway.manager.v1.rs"),
        // The descriptors for gRPC reflection. They include the control service, which manager.proto
        // imports.
        ("", "services.bin"),
    ] {
        let fresh = std::fs::read(fresh.path().join(folder).join(name)).expect("generated");
        let committed = root.join("src/gen").join(name);
        if std::env::var_os("CAUSEWAY_REGENERATE").is_some() {
            std::fs::write(&committed, &fresh).expect("src/gen is writable");
        }
        let committed = std::fs::read(&committed).unwrap_or_default();
        assert!(
            fresh == committed,
            "{name} differs; run with CAUSEWAY_REGENERATE=1"
        );
    }
}
