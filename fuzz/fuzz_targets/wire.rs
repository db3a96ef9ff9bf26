//! Fuzzes all decoders of the wire format: resources, the streams of a control plane and of its proxies, reports, and the cached configuration. Decoding never
//! panics, and a resource is in effect either completely or not at all. The first byte selects the decoder; recorded messages with mutations reach further than
//! random bytes.
#![no_main]

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::{Arc, LazyLock};

use aws_lc_rs::digest::{SHA256, digest};
use hyper_util::rt::{TokioExecutor, TokioIo};
use libfuzzer_sys::fuzz_target;
use pointsman_routing::Tables;
use pointsman_wire::client::{Cache, Replica};
use pointsman_wire::server::{self, Peer, Server, Subscription};
use pointsman_wire::xds::discovery::{DeltaDiscoveryResponse, Resource};
use pointsman_wire::{changes, decode};
use prost::Message;

const CONTROL_PLANE: &[u8] = include_bytes!("../../crates/wire/tests/data/control-plane.bin");
const PROXY: &[u8] = include_bytes!("../../crates/wire/tests/data/proxy.bin");
const RESUME: &[u8] = include_bytes!("../../crates/wire/tests/data/proxy-resume.bin");
const REPORTS: &[u8] = include_bytes!("../../crates/wire/tests/data/proxy-reports.bin");
const CACHE: &[u8] = include_bytes!("../../crates/wire/tests/data/cache/snapshot");
const CACHE_KEY: &[u8] = include_bytes!("../../crates/wire/tests/data/cache/key");

const DELTA_PATH: &str =
    "/envoy.service.discovery.v3.AggregatedDiscoveryService/DeltaAggregatedResources";
const REPORT_PATH: &str = "/pointsman.v1.ProxyReports/Report";

/// Messages in the framing of gRPC.
fn messages(mut bytes: &[u8]) -> Vec<Vec<u8>> {
    let mut all = Vec::new();
    while let Some((head, rest)) = bytes.split_at_checked(5) {
        let length = u32::from_be_bytes([head[1], head[2], head[3], head[4]]) as usize;
        let Some((message, rest)) = rest.split_at_checked(length) else {
            break;
        };
        all.push(message.to_vec());
        bytes = rest;
    }
    all
}

/// The recorded resources.
static RESOURCES: LazyLock<Vec<Resource>> = LazyLock::new(|| {
    let responses = messages(CONTROL_PLANE).into_iter();
    let responses = responses.map(|bytes| DeltaDiscoveryResponse::decode(&*bytes).expect("recorded"));
    let all = responses.flat_map(|response| response.resources);
    all.filter(|resource| resource.name != "snapshot").collect()
});

/// Overwrites, inserts or removes bytes, as instructions of four bytes each say.
fn mutate(bytes: &mut Vec<u8>, instructions: &[u8]) {
    for instruction in instructions.chunks_exact(4) {
        if bytes.is_empty() {
            return;
        }
        let at = usize::from(u16::from_le_bytes([instruction[1], instruction[2]])) % bytes.len();
        match instruction[0] % 4 {
            0 => bytes[at] = instruction[3],
            1 => bytes.insert(at, instruction[3]),
            2 => {
                let end = (at + usize::from(instruction[3] % 16) + 1).min(bytes.len());
                bytes.drain(at..end);
            }
            _ => {
                let end = (at + usize::from(instruction[3])).min(bytes.len());
                let part = bytes[at..end].to_vec();
                bytes.extend(part);
            }
        }
    }
}

/// Resources in effect, by name.
type InEffect = BTreeMap<String, Vec<u8>>;

fn apply(state: &mut InEffect, delta: &pointsman_binding::Delta) {
    for (id, resource) in changes(delta) {
        match resource {
            Some(resource) => drop(state.insert(id.name(), resource.encode())),
            None => drop(state.remove(&id.name())),
        }
    }
}

/// A proxy that is up to date receives a response, each of whose resources is applied separately.
fn receive(bytes: &[u8]) {
    let Ok(response) = DeltaDiscoveryResponse::decode(bytes) else {
        return;
    };
    let base = DeltaDiscoveryResponse {
        resources: RESOURCES.clone(),
        ..DeltaDiscoveryResponse::default()
    };
    let (mut replica, mut tables) = (Replica::default(), Tables::default());
    let (mut found, mut wanted) = (InEffect::new(), InEffect::new());
    for response in [base, response] {
        for resource in &response.resources {
            let alone = DeltaDiscoveryResponse {
                resources: vec![resource.clone()],
                ..DeltaDiscoveryResponse::default()
            };
            let decoded = decode(&alone.encode_to_vec()).expect("a response");
            apply(&mut wanted, &decoded.delta);
        }
        for name in &response.removed_resources {
            wanted.remove(name);
        }
        replica.receive(response);
        let delta = replica.commit();
        tables.apply(&delta);
        apply(&mut found, &delta);
    }
    // Resources that the last version of a rejected resource references are kept.
    if replica.rejected().count() == 0 {
        assert_eq!(found, wanted);
    }
    let buckets: Vec<u32> = (0..1024).collect();
    assert_eq!(replica.versions(&buckets).len(), replica.len());
}

/// A control plane that lives as long as the process.
static SERVER: LazyLock<(Arc<Server>, tokio::runtime::Runtime)> = LazyLock::new(|| {
    let mut builder = tokio::runtime::Builder::new_current_thread();
    let runtime = builder.enable_all().build().expect("a runtime");
    let allow = server::authorize_by_certificate(|_| Subscription::Everything);
    let server = Arc::new(Server::new("fuzz".to_owned(), allow, || {}));
    let response = DeltaDiscoveryResponse {
        resources: RESOURCES.clone(),
        ..DeltaDiscoveryResponse::default()
    };
    let decoded = decode(&response.encode_to_vec()).expect("a response");
    server.apply(server::encode_all(&decoded.delta));
    (server, runtime)
});

/// Sends bytes as the complete stream of a proxy, which the control plane has to close.
fn send(path: &str, bytes: Vec<u8>) {
    let (server, runtime) = &*SERVER;
    runtime.block_on(async {
        let (near, far) = tokio::io::duplex(1 << 20);
        let peer = Peer {
            address: ([127, 0, 0, 1], 1).into(),
            identities: None,
            token: None,
            certificate_expires: None,
        };
        let serving = tokio::spawn(server.clone().serve(far, peer));
        let builder = hyper::client::conn::http2::Builder::new(TokioExecutor::new());
        let handshake = builder.handshake(TokioIo::new(near));
        let (mut client, connection) = handshake.await.expect("HTTP/2");
        let connection = tokio::spawn(connection);
        let request = hyper::Request::post(format!("http://control-plane{path}"))
            .header("content-type", "application/grpc")
            .header("te", "trailers")
            .body(http_body_util::Full::new(bytes::Bytes::from(bytes)))
            .expect("a request");
        if let Ok(response) = client.send_request(request).await {
            let end = http_body_util::BodyExt::collect(response.into_body());
            let _ = tokio::time::timeout(std::time::Duration::from_secs(5), end)
                .await
                .expect("the stream ends");
        }
        drop(client);
        connection.abort();
        serving.abort();
    });
    server.take_reports();
    server.proxies();
}

static FOLDER: LazyLock<PathBuf> = LazyLock::new(|| {
    let folder = std::env::temp_dir().join(format!("fuzz-wire-{}", std::process::id()));
    std::fs::create_dir_all(&folder).expect("a folder");
    std::fs::write(folder.join("key"), CACHE_KEY).expect("written");
    folder
});

/// Loads a cache with these bytes and their hash.
fn load(mut bytes: Vec<u8>) {
    let hash = digest(&SHA256, &bytes);
    bytes.extend(hash.as_ref());
    std::fs::write(FOLDER.join("snapshot"), &bytes).expect("written");
    let cache = Cache::open(FOLDER.clone(), true).expect("a cache");
    if let Ok(mut replica) = cache.load(&Subscription::Everything) {
        Tables::default().apply(&replica.commit());
    }
}

fn mutated(bytes: &[u8], instructions: &[u8]) -> Vec<u8> {
    let mut bytes = bytes.to_vec();
    mutate(&mut bytes, instructions);
    bytes
}

fuzz_target!(|data: &[u8]| {
    let Some((&mode, data)) = data.split_first() else {
        return;
    };
    match mode % 10 {
        0 => receive(data),
        1..=4 => {
            let Some((&index, instructions)) = data.split_first() else {
                return;
            };
            let mut resource = RESOURCES[usize::from(index) % RESOURCES.len()].clone();
            if let Some(any) = &mut resource.resource {
                mutate(&mut any.value, instructions);
            }
            receive(
                &DeltaDiscoveryResponse {
                    resources: vec![resource],
                    ..DeltaDiscoveryResponse::default()
                }
                .encode_to_vec(),
            );
        }
        5 => {
            let recorded = messages(CONTROL_PLANE);
            let Some((&index, instructions)) = data.split_first() else {
                return;
            };
            receive(&mutated(&recorded[usize::from(index) % recorded.len()], instructions));
        }
        6 => send(DELTA_PATH, mutated(PROXY, data)),
        7 => send(DELTA_PATH, mutated(RESUME, data)),
        8 => send(REPORT_PATH, mutated(REPORTS, data)),
        _ => load(mutated(&CACHE[..CACHE.len() - 32], data)),
    }
});
