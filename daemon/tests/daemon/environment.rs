//! Tests which variables a worker inherits from the daemon's environment.

use std::path::Path;

use crate::support::{Daemon, Setup, eventually};

/// Returns the environment of the daemon's spare worker.
fn environment(daemon: &Daemon) -> Vec<String> {
    eventually("a spare worker alone", || {
        let [worker] = daemon.children()[..] else {
            return None;
        };
        let path = format!("/proc/{}/environ", worker.as_raw_nonzero());
        // Before the process executes our program, it has the daemon's environment.
        let text = String::from_utf8(std::fs::read(path).ok()?).ok()?;
        let environment: Vec<String> = text.split('\0').map(str::to_owned).collect();
        let is_ours = environment.iter().any(|of| of.starts_with("CAUSEWAY_"));
        is_ours.then_some(environment)
    })
}

#[test]
fn a_worker_has_the_variables_of_drivers_and_of_the_settings_alone() {
    let daemon = Setup::with_fake_driver("")
        .config("[sandbox]\nenvironment = [\"VENDOR_*\"]\n")
        .env("A_SECRET_OF_THE_SHELL", "hush")
        .env("VENDOR_TUNING", "1")
        .env("CUDA_MODULE_LOADING", "LAZY")
        .start();
    let environment = environment(&daemon);
    let has = |variable: &str| environment.iter().any(|of| of.starts_with(variable));
    assert!(has("CUDA_MODULE_LOADING=LAZY") && has("VENDOR_TUNING=1") && has("PATH="));
    assert!(has("FAKE_OPENCL_CONFIG="));
    assert!(!has("A_SECRET_OF_THE_SHELL"), "{environment:?}");
}

#[test]
fn a_worker_finds_no_mps_server_unless_the_settings_name_the_variable() {
    let setup = || Setup::with_fake_driver("").env("CUDA_MPS_PIPE_DIRECTORY", "/tmp/nvidia-mps");
    let pipes = |daemon: &Daemon| {
        let environment = environment(daemon);
        let mut values = environment
            .iter()
            .filter_map(|of| of.strip_prefix("CUDA_MPS_PIPE_DIRECTORY="));
        let value = values.next().unwrap().to_owned();
        assert_eq!(values.next(), None);
        value
    };
    let daemon = setup().start();
    let hidden = pipes(&daemon);
    assert!(Path::new(&hidden).is_absolute() && !Path::new(&hidden).exists());
    assert_ne!(hidden, "/tmp/nvidia-mps");
    let named = "[sandbox]\nenvironment = [\"CUDA_MPS_*\"]\n";
    assert_eq!(pipes(&setup().config(named).start()), "/tmp/nvidia-mps");
}
