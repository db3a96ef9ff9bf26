//! Many proxies without a data plane: each follows a control plane with the client of `crates/wire`, as a real proxy does, and puts every change into effect at
//! once.
//!
//! `simulate-proxies HOST:PORT COUNT [--gateways N] [--cold]`: with `--gateways`, proxy number I subscribes to Gateway `bench/edge-I%N`; without, to
//! everything. Proxies with equal subscriptions start with the configuration that the first one of them has received, in shared memory; with `--cold` each
//! receives its own.
//!
//! A line on standard input is a command, and lines on standard output are JSON:
//! - `await N` prints `{"armed": N}`, and `{"applied": N, "first": …, "last": …}` once N proxies have applied a commit since, in nanoseconds since the Unix
//! epoch.
//! - `state` prints `{"connected": …, "failures": …, "resources": …}`, sums over all proxies.

use std::error::Error;
use std::io::{BufRead, Write};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use pointsman_wire::client::{Cache, Client, ClientOptions, Commit, Replica, StateReader};
use pointsman_wire::server::Subscription;
use tokio::sync::mpsc;
use tokio::task::JoinSet;

type Failure = Box<dyn Error + Send + Sync>;

/// Counts proxies that have applied a commit.
#[derive(Default)]
struct Counter {
    /// Number of proxies that have done so since the last command.
    seen: Vec<bool>,
    count: usize,
    wanted: usize,
    first: u128,
}

struct Arguments {
    address: String,
    count: usize,
    gateways: Option<usize>,
    is_cold: bool,
}

fn main() -> Result<(), Failure> {
    let arguments = arguments()?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(run(arguments))
}

fn arguments() -> Result<Arguments, Failure> {
    let mut words = std::env::args().skip(1);
    let usage = "usage: simulate-proxies HOST:PORT COUNT [--gateways N] [--cold]";
    let mut arguments = Arguments {
        address: words.next().ok_or(usage)?,
        count: words.next().ok_or(usage)?.parse()?,
        gateways: None,
        is_cold: false,
    };
    while let Some(word) = words.next() {
        match word.as_str() {
            "--gateways" => arguments.gateways = Some(words.next().ok_or(usage)?.parse()?),
            "--cold" => arguments.is_cold = true,
            _ => return Err(usage.into()),
        }
    }
    Ok(arguments)
}

async fn run(arguments: Arguments) -> Result<(), Failure> {
    let counter: Arc<Mutex<Counter>> = Arc::default();
    let mut states = Vec::new();
    let groups = arguments.gateways.unwrap_or(1);
    let arguments = Arc::new(arguments);
    let mut replicas = vec![Replica::default(); groups];
    if !arguments.is_cold {
        let mut receiving = JoinSet::new();
        for group in 0..groups {
            let arguments = arguments.clone();
            receiving.spawn(async move { Ok::<_, Failure>((group, receive(&arguments, group).await?)) });
        }
        while let Some(received) = receiving.join_next().await {
            let (group, replica) = received??;
            replicas[group] = replica;
        }
    }
    for number in 0..arguments.count {
        let options = options(&arguments, number, None)?;
        let replica = replicas[number % groups].clone();
        let (sender, commits) = mpsc::channel(1);
        let client = Client::new(options, replica, Arc::default(), sender);
        states.push(client.state());
        tokio::spawn(client.run());
        tokio::spawn(apply(number, commits, counter.clone()));
    }
    print("{\"started\": true}");
    tokio::task::spawn_blocking(move || obey(&counter, &states)).await?
}

/// Receives the configuration of a group of proxies once, through a cache.
async fn receive(arguments: &Arguments, group: usize) -> Result<Replica, Failure> {
    let folder = std::env::temp_dir().join(format!("simulated-{}-{group}", std::process::id()));
    let cache = Cache::open(folder.clone(), false)?;
    let (sender, mut commits) = mpsc::channel(1);
    let options = options(arguments, group, Some(cache.clone()))?;
    let subscription = options.subscription.clone();
    let task = tokio::spawn(Client::new(options, Replica::default(), Arc::default(), sender).run());
    let commit: Commit = commits.recv().await.ok_or("the client has ended")?;
    let _ = commit.applied.send(());
    while !folder.join("snapshot").exists() {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    task.abort();
    let mut replica = cache.load(&subscription)?;
    // The commit is in effect.
    replica.commit();
    std::fs::remove_dir_all(folder)?;
    Ok(replica)
}

fn options(arguments: &Arguments, number: usize, cache: Option<Cache>) -> Result<ClientOptions, Failure> {
    let names: Vec<String> = match arguments.gateways {
        Some(gateways) => vec![format!("gateway/bench/edge-{}", number % gateways)],
        None => Vec::new(),
    };
    Ok(ClientOptions {
        control_planes: vec![format!("http://{}", arguments.address).parse()?],
        name: format!("simulated-{number}"),
        software: env!("CARGO_PKG_VERSION").to_owned(),
        tls: None,
        token: None,
        cache,
        subscription: Subscription::parse(&names)?,
        own_servers: Default::default(),
        control_plane_servers: Default::default(),
    })
}

/// Puts commits into effect.
async fn apply(number: usize, mut commits: mpsc::Receiver<Commit>, counter: Arc<Mutex<Counter>>) {
    while let Some(commit) = commits.recv().await {
        let _ = commit.applied.send(());
        let is_local = commit.version == 0;
        if !is_local {
            count(&counter, number);
        }
    }
}

fn count(counter: &Mutex<Counter>, number: usize) {
    let mut counter = counter.lock().unwrap_or_else(PoisonError::into_inner);
    if counter.count == counter.wanted {
        return;
    }
    if counter.seen.len() <= number {
        counter.seen.resize(number + 1, false);
    }
    if std::mem::replace(&mut counter.seen[number], true) {
        return;
    }
    counter.count += 1;
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_nanos();
    if counter.count == 1 {
        counter.first = now;
    }
    if counter.count == counter.wanted {
        let (wanted, first) = (counter.wanted, counter.first);
        print(&format!("{{\"applied\": {wanted}, \"first\": {first}, \"last\": {now}}}"));
    }
}

/// Executes commands until the end of input.
fn obey(counter: &Mutex<Counter>, states: &[StateReader]) -> Result<(), Failure> {
    for line in std::io::stdin().lock().lines() {
        let line = line?;
        match line.split_once(' ') {
            Some(("await", wanted)) => {
                let wanted = wanted.parse()?;
                let mut counter = counter.lock().unwrap_or_else(PoisonError::into_inner);
                *counter = Counter { wanted, ..Counter::default() };
                print(&format!("{{\"armed\": {wanted}}}"));
            }
            _ if line == "state" => {
                let states: Vec<_> = states.iter().map(StateReader::current).collect();
                let connected = states.iter().filter(|state| state.connected.is_some()).count();
                let failures: u64 = states.iter().map(|state| state.failures).sum();
                let resources: usize = states.iter().map(|state| state.resources).sum();
                print(&format!(
                    "{{\"connected\": {connected}, \"failures\": {failures}, \"resources\": {resources}}}"
                ));
            }
            _ => return Err(format!("unknown command: {line}").into()),
        }
    }
    std::process::exit(0)
}

fn print(line: &str) {
    let mut out = std::io::stdout().lock();
    let _ = writeln!(out, "{line}").and_then(|()| out.flush());
}
