//! Tests of the build cache of a daemon that admits users by token.

use std::collections::BTreeSet;
use std::io::{Read, Write};
use std::path::Path;

use causeway_proto::command::{Command, command::Kind, *};
use causeway_security::Token;
use prost::Message;

use crate::secured::{Caller, Cluster, commands};
use crate::support::{Daemon, Setup, eventually};

const SOURCE: &str = "kernel void f(global int *x, int n) { }";

fn start(cluster: &Cluster, cache: &Path) -> Daemon {
    let [certificate, key, tokens] = ["node", "node.key", "tokens"].map(|name| cluster.text(name));
    Setup::with_fake_driver("instant = true")
        .args(&["--tls-certificate", &certificate, "--tls-key", &key])
        .args(&["--tokens", &tokens])
        .env("CAUSEWAYD_BUILD_CACHE_DIR", cache)
        .env("CAUSEWAYD_BUILD_CACHE_SIZE", "1000000")
        .env("CAUSEWAYD_LOG", "debug")
        .start()
}

/// Builds in a session of the token's user.
async fn build(daemon: &Daemon, cluster: &Cluster, token: &Token) {
    let caller = Caller::reach(daemon.address(), &cluster.client(None), Some(token)).await;
    let reply = caller.unwrap().open().await.unwrap();
    let stream = commands(daemon, &reply);
    let (context, program, request) = (2, 3, 4);
    let kinds = [
        Kind::CreateContext(CreateContext {
            context,
            platform: 0,
            devices: vec![0],
        }),
        Kind::CreateProgram(CreateProgram {
            program,
            context,
            from: Some(create_program::From::Source(SOURCE.into())),
            request: 0,
        }),
        Kind::BuildProgram(BuildProgram {
            request,
            program,
            ..BuildProgram::default()
        }),
    ];
    let commands = kinds.map(|kind| Command { kind: Some(kind) }).into();
    let batch = CommandBatch {
        first: 1,
        commands,
        ..Default::default()
    }
    .encode_to_vec();
    let length = u32::try_from(batch.len()).unwrap().to_le_bytes();
    (&stream)
        .write_all(&[&length, &batch[..]].concat())
        .unwrap();
    loop {
        let mut length = [0; 4];
        (&stream).read_exact(&mut length).unwrap();
        let mut batch = vec![0; u32::from_le_bytes(length) as usize];
        (&stream).read_exact(&mut batch).unwrap();
        let batch = EventBatch::decode(&batch[..]).unwrap();
        if let Some(answer) = batch
            .answers
            .iter()
            .find(|answer| answer.request == request)
        {
            assert_eq!(answer.status, 0, "{}", answer.message);
            return;
        }
    }
}

fn entries(cache: &Path) -> Vec<String> {
    let files = std::fs::read_dir(cache).unwrap();
    let names = files.map(|file| file.unwrap().file_name().into_string().unwrap());
    names.filter(|name| !name.starts_with("new-")).collect()
}

fn until_entries(cache: &Path, count: usize) {
    eventually("a build is cached", || {
        (entries(cache).len() == count).then_some(())
    });
}

/// Returns how many builds came from the cache.
fn found(daemon: &Daemon) -> usize {
    let log = daemon.log();
    assert!(log.contains("build cache lookup"), "{log}");
    log.matches("found=true").count()
}

#[tokio::test]
async fn users_get_their_own_builds_and_nobody_elses() {
    let cluster = Cluster::new();
    let (alice, bob) = (cluster.token.clone(), Token::generate());
    cluster.list(&format!("{} alice\n{} bob\n", alice.hash(), bob.hash()));
    let cache = cluster.path("cache");
    let daemon = start(&cluster, &cache);
    build(&daemon, &cluster, &alice).await;
    until_entries(&cache, 1);
    build(&daemon, &cluster, &bob).await;
    until_entries(&cache, 2);
    assert_eq!(found(&daemon), 0);
    build(&daemon, &cluster, &alice).await;
    assert_eq!(found(&daemon), 1);
    drop(daemon);

    // Another token of the same user, after a restart.
    let another = Token::generate();
    cluster.list(&format!("{} alice\n{} bob\n", another.hash(), bob.hash()));
    let daemon = start(&cluster, &cache);
    build(&daemon, &cluster, &another).await;
    assert_eq!(found(&daemon), 1);
    build(&daemon, &cluster, &bob).await;
    assert_eq!(found(&daemon), 2);

    let names = entries(&cache);
    let parts = names.iter().map(|name| name.split_once('-').unwrap());
    let (owners, keys): (BTreeSet<&str>, BTreeSet<&str>) = parts.unzip();
    assert_eq!((owners.len(), keys.len()), (2, 1), "{names:?}");
}
