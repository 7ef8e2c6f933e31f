//! Tests of the paper's experiments with small settings: they succeed, and their statements about their results hold.
//!
//! No time is checked. The tests need the daemon, the library and the fake driver of the same profile beside them:
//! `cargo build --workspace`.

use std::process::Command;

use serde_json::Value;

/// Runs an experiment to its end. Returns its report.
fn report(experiment: &str, arguments: &[&str], variables: &[(&str, &str)]) -> Value {
    let folder = tempfile::tempdir().unwrap();
    let json = folder.path().join("report.json");
    let output = Command::new(env!("CARGO_BIN_EXE_bench"))
        .arg(experiment)
        .args(["--rounds", "1", "--timeout", "60"])
        .args(arguments)
        .arg("--json")
        .arg(&json)
        .arg("--plots")
        .arg(folder.path())
        .envs(variables.iter().copied())
        .env_remove("OCL_ICD_VENDORS")
        .output()
        .unwrap();
    assert!(
        output.status.success(),
        "{}\n{}",
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    );
    let plot = folder.path().join(format!("{experiment}.svg"));
    assert!(plot.is_file(), "{}", plot.display());
    serde_json::from_slice(&std::fs::read(json).unwrap()).unwrap()
}

#[test]
fn dealt_lines_come_back_to_their_places() {
    let report = report(
        "mandelbrot",
        &[
            "--nodes=1,3",
            "--width=256",
            "--height=100",
            "--device-seconds=0.2",
            "--native",
            "--no-mpi",
        ],
        &[],
    );
    assert_eq!(report["right"], 1.0);
    // Both sides were measured. How long they took depends on the machine.
    for side in ["causeway", "native"] {
        let total = report["rows"][0][side]["total"].as_f64().unwrap();
        assert!(total > 0.0, "{side}: {total}");
    }
}

#[test]
fn several_devices_reconstruct_the_same_image() {
    let report = report(
        "osem",
        &[
            "--nodes=3",
            "--size=16",
            "--iterations=2",
            "--subsets=2",
            "--native",
        ],
        &[("POCL_DEVICES", "pthread pthread pthread")],
    );
    for row in report["rows"].as_array().unwrap() {
        assert!(row["difference"].as_f64().unwrap() < 1e-3);
    }
    let likelihood = |iteration: usize| report["merits"][iteration]["likelihood"].as_f64().unwrap();
    assert!(likelihood(1) > likelihood(0));
}

#[test]
fn the_calculator_reproduces_the_paper_and_measures_parking() {
    // The experiment itself checks that a parked session has the same bytes afterwards.
    let report = report("sustainability", &["--park=2", "--intervals=2000"], &[]);
    let near = |value: &Value, wanted: f64| {
        let value = value.as_f64().unwrap();
        assert!((value - wanted).abs() < 1e-3 * wanted, "{value}, {wanted}");
    };
    near(&report["tolerated"]["interval"], 1920.0 * 60.0);
    near(&report["saving"], 39.5 * 60.0);
    near(&report["break_even"], 1.371);
    assert_eq!(report["needs_checkpoints"], false);
    assert!(report["claim"]["bound"].as_f64().unwrap() < 3.0);
    let recommended = &report["recommendation"];
    assert_eq!(recommended["parking"]["bytes"], 2 << 20);
    let time = |name: &str| recommended["parking"][name].as_f64().unwrap();
    near(
        &recommended["interval"],
        (2.0 * time("create") * 10_800.0).sqrt(),
    );
}

#[test]
fn a_farm_and_mpi_compute_the_same_product() {
    // The experiment itself checks every result, and that all are equal. Without MPI, the farm is alone.
    let arguments = "--size=48 --multiplications=3 --nodes=1,3 --grains=5,48";
    let arguments: Vec<&str> = arguments.split(' ').collect();
    let report = report("matrix", &arguments, &[]);
    let rows = report["rows"].as_array().unwrap();
    assert_eq!(rows.len(), 2);
    for row in rows {
        assert_eq!(row["farm"].as_array().unwrap().len(), 2);
        assert_ne!(row["mpi"].is_null(), report["no_mpi"].is_null());
    }
}

#[test]
fn late_work_is_taken_again_and_counts_once() {
    // All work is late before it can be finished, so idle workers take what others compute. MPI is not found.
    let arguments = "--size=48 --multiplications=5 --nodes=3 --grains=6 --late=1ms";
    let arguments: Vec<&str> = arguments.split(' ').collect();
    // PoCL links its kernels by `ld`.
    let folder = tempfile::tempdir().unwrap();
    std::os::unix::fs::symlink("/usr/bin/ld", folder.path().join("ld")).unwrap();
    let path = folder.path().to_str().unwrap();
    let report = report("matrix", &arguments, &[("PATH", path)]);
    assert_eq!(report["rows"][0]["farm"][0]["grain"], 6);
    assert_eq!(
        report["no_mpi"],
        "mpicc is missing; openmpi-bin and libopenmpi-dev have it"
    );
}

/// Runs a short chain of products whose processes are killed. Returns its report.
fn chain_with_failures(arguments: &str) -> Value {
    let folder = tempfile::tempdir().unwrap();
    let json = folder.path().join("report.json");
    let chain = "matrix --rounds 1 --timeout 120 --size 48 --nodes 2 --grains 12";
    let output = Command::new(env!("CARGO_BIN_EXE_bench"))
        .args(chain.split(' ').chain(arguments.split(' ')))
        .arg("--json")
        .arg(&json)
        .arg("--plots")
        .arg(folder.path())
        .env_remove("OCL_ICD_VENDORS")
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{text}\n{errors}");
    assert!(folder.path().join("matrix-failures.svg").is_file());
    serde_json::from_slice(&std::fs::read(json).unwrap()).unwrap()
}

#[test]
fn a_farm_and_a_plain_program_survive_their_nodes_and_their_own_death() {
    // With this seed, the first failures are those of a node and of the master or program. They wait until all is ready.
    // More failures could meet each start of a slow machine, so that no run ends.
    let arguments = "--multiplications 150 --seed 10 --mtbf 2s --failures 2 --no-mpi";
    let report = chain_with_failures(arguments);
    for (place, name) in ["farm", "re-executed"].into_iter().enumerate() {
        let series = &report["series"][place];
        assert_eq!(series["name"], name);
        let point = &series["points"][0];
        let count = |name: &str| point[name].as_u64().unwrap();
        assert!(
            count("fatal") >= 1 && count("failures") > count("fatal"),
            "{point}"
        );
    }
}

#[test]
fn mpi_goes_on_from_its_checkpoint() {
    // With this seed, the first failure comes before MPI is ready, and waits for that.
    let report = chain_with_failures("--multiplications 100 --seed 2 --mtbf 20s");
    let series = report["series"].as_array().unwrap();
    let Some(mpi) = series.iter().find(|one| one["name"] == "MPI") else {
        eprintln!("skipped: {}", report["no_mpi"]);
        return;
    };
    let point = &mpi["points"][0];
    assert!(point["fatal"].as_u64().unwrap() >= 1, "{point}");
}

#[test]
fn a_manager_gives_each_application_a_device_of_its_own() {
    // The experiment itself checks that each application had its own device, and that all pictures are equal.
    let folder = tempfile::tempdir().unwrap();
    let json = folder.path().join("report.json");
    let arguments = "manager --rounds 1 --nodes 2 --width 64 --height 48 --iterations 50";
    let output = Command::new(env!("CARGO_BIN_EXE_bench"))
        .args(arguments.split(' '))
        .arg("--json")
        .arg(&json)
        .arg("--plots")
        .arg(folder.path())
        .env_remove("OCL_ICD_VENDORS")
        .output()
        .unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    if errors.contains("no control group") {
        eprintln!("skipped: {errors}");
        return;
    }
    assert!(output.status.success(), "{errors}");
    let report: Value = serde_json::from_slice(&std::fs::read(json).unwrap()).unwrap();
    assert_eq!(report["rows"].as_array().unwrap().len(), 2);
    assert!(folder.path().join("manager.svg").is_file());
}

#[test]
fn a_manager_serves_many_and_comes_back_with_all_it_knew() {
    let report = scaled("redb");
    assert_all_came_back(&report);
}

#[test]
fn a_manager_over_etcd_does_so_too() {
    if Command::new("etcd").arg("--version").output().is_err() {
        return eprintln!("skipped: no etcd on this machine (Debian: etcd-server)");
    }
    let report = scaled("etcd");
    for engine in ["redb", "etcd"] {
        assert_eq!(report[engine]["store"], *engine);
        assert_all_came_back(&report[engine]);
        let commits = &report[engine]["rate_commits"];
        assert_eq!(commits["grants"], 12, "{commits}");
        assert!(commits["microseconds"].as_u64() > Some(0), "{commits}");
    }
}

/// The report of a small `manager-scale` over this store.
fn scaled(store: &str) -> Value {
    let folder = tempfile::tempdir().unwrap();
    let json = folder.path().join("report.json");
    // A request that finds every device leased fails the run. At this rate the eight devices are taken only if
    // the machine stalls for almost 3 s. A store in memory cannot stall as a disk does.
    let arguments =
        "manager-scale --nodes 2 --devices 4 --clients 12 --rate 3 --hold 100 --viewers 2";
    let memory = tempfile::tempdir_in("/dev/shm").unwrap();
    let output = Command::new(env!("CARGO_BIN_EXE_bench"))
        .args(arguments.split(' '))
        .args(["--store", store, "--folder"])
        .arg(memory.path())
        .arg("--json")
        .arg(&json)
        .output()
        .unwrap();
    // The marks are not checked, because they depend on the machine. A failed run reports nothing.
    let report = std::fs::read(json)
        .unwrap_or_else(|_| panic!("{}", String::from_utf8_lossy(&output.stderr)));
    serde_json::from_slice(&report).unwrap()
}

fn assert_all_came_back(report: &Value) {
    assert_eq!(
        (&report["leases"], &report["waiting"]),
        (&8.into(), &4.into())
    );
    assert!(report["restart"]["all_known"].as_f64().is_some());
    // At least the first snapshot of each, and changes while the clients came and went.
    let events = report["views"]["events"].as_u64();
    assert!(events > Some(4), "{}", report["views"]);
    // The wait for the first event and the one for the end count, too.
    let [pause, seconds] = ["pause", "seconds"].map(|name| report["views"][name].as_f64().unwrap());
    assert!(0.0 < pause && pause <= seconds, "{}", report["views"]);
}
