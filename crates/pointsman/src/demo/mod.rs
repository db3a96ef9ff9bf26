//! The command `demo`: sample backends and manifests, and commands to try with them. Traffic is carried by the code of `run`.

mod client;
mod echo;
mod examples;

use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::path::Path;
use std::process::ExitCode;
use std::thread::JoinHandle;
use std::time::Duration;

use anyhow::{Context, Result, anyhow, bail};
use clap::Parser;

use crate::cli::{Cli, Demo, Verb};
use crate::output::print;
use echo::EchoProtocol;

/// Cluster IP of the Service in the mesh. All addresses in 127.0.0.0/8 belong to this machine.
const MESH: Ipv4Addr = Ipv4Addr::new(127, 0, 77, 10);
/// Address of a Pod in another namespace.
const POD: Ipv4Addr = Ipv4Addr::new(127, 0, 77, 21);

/// Manifests, with placeholders for addresses and ports.
const MANIFESTS: [(&str, &str); 3] = [
    ("gateway.yaml", include_str!("manifests/gateway.yaml")),
    ("routes.yaml", include_str!("manifests/routes.yaml")),
    ("mesh.yaml", include_str!("manifests/mesh.yaml")),
];

/// Services of the shop, with their protocol.
const SERVICES: [(&str, EchoProtocol); 5] = [
    ("web", EchoProtocol::Http1),
    ("web-beta", EchoProtocol::Http1),
    ("cart", EchoProtocol::Http1),
    ("cart-v2", EchoProtocol::Http1),
    ("catalog", EchoProtocol::Http2),
];

/// Addresses on which the demo listens.
struct DemoAddresses {
    front: SocketAddr,
    admin: SocketAddr,
    mesh: SocketAddr,
}

/// Runs the demo until a signal stops it, or with `--once` until all examples were run.
pub fn run(arguments: &Demo) -> Result<ExitCode> {
    let addresses = DemoAddresses {
        front: (Ipv4Addr::LOCALHOST, arguments.port).into(),
        admin: (Ipv4Addr::LOCALHOST, next(arguments.port, 1)?).into(),
        mesh: (MESH, next(arguments.port, 2)?).into(),
    };
    for address in [addresses.front, addresses.admin, addresses.mesh] {
        // Workers bind with SO_REUSEPORT, so only this check detects that a second demo is running.
        TcpListener::bind(address).with_context(|| {
            format!("can't listen on {address}; choose another port with --port")
        })?;
    }
    let folder = std::env::temp_dir().join(format!("pointsman-demo-{}", std::process::id()));
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .enable_all()
        .build()?;
    write(&folder, &addresses, &runtime.block_on(backends())?)?;
    let outcome = if arguments.once {
        once(&folder, &addresses, &runtime)
    } else {
        print(&examples::page(&addresses, &folder))?;
        serve(&folder, &addresses)
    };
    // The manifests are useless without the demo's backends.
    let _ = std::fs::remove_dir_all(&folder);
    outcome
}

fn next(port: u16, by: u16) -> Result<u16> {
    port.checked_add(by)
        .context("the port is too high: the two ports above it are used as well")
}

/// Starts a backend for each Service. Returns their ports.
async fn backends() -> Result<Vec<(&'static str, u16)>> {
    let mut ports = Vec::new();
    for (name, protocol) in SERVICES {
        ports.push((name, echo::start(name, protocol).await?));
    }
    Ok(ports)
}

/// Writes the manifests.
fn write(folder: &Path, addresses: &DemoAddresses, backends: &[(&str, u16)]) -> Result<()> {
    std::fs::create_dir_all(folder).with_context(|| folder.display().to_string())?;
    let mut services =
        "# Services of the shop. Each has one endpoint, which echoes requests.\n".to_owned();
    for ((name, protocol), (_, endpoint)) in SERVICES.iter().zip(backends) {
        let (port, protocol) = match protocol {
            EchoProtocol::Http1 => (80, "http"),
            EchoProtocol::Http2 => (9090, "kubernetes.io/h2c"),
        };
        services.push_str(&format!(
            "---\napiVersion: v1\nkind: Service\nmetadata: {{name: {name}, namespace: shop}}\nspec:\n  ports: [{{name: main, port: {port}, appProtocol: {protocol}}}]\n---\n\
             apiVersion: discovery.k8s.io/v1\nkind: EndpointSlice\nmetadata: {{name: {name}-1, namespace: shop, labels: {{kubernetes.io/service-name: {name}}}}}\n\
             addressType: IPv4\nports: [{{name: main, port: {endpoint}}}]\nendpoints: [{{addresses: [127.0.0.1]}}]\n"
        ));
    }
    std::fs::write(folder.join("services.yaml"), services)?;
    for (file, text) in MANIFESTS {
        let mut text = text
            .replace("@port@", &addresses.front.port().to_string())
            .replace("@mesh@", &addresses.mesh.ip().to_string())
            .replace("@mesh-port@", &addresses.mesh.port().to_string())
            .replace("@pod@", &POD.to_string());
        for (name, port) in backends {
            text = text.replace(&format!("@{name}@"), &port.to_string());
        }
        std::fs::write(folder.join(file), text)?;
    }
    Ok(())
}

/// Serves the manifests with the command `run`, until a signal stops it.
fn serve(folder: &Path, addresses: &DemoAddresses) -> Result<ExitCode> {
    let admin = addresses.admin.to_string();
    let line = [
        "pointsman",
        "run",
        "--workers",
        "1",
        "--admin",
        &admin,
        "-f",
    ];
    let line = line.iter().map(Path::new).chain([folder]);
    let mut verb = Cli::try_parse_from(line.map(Path::as_os_str))?.verb;
    if let Verb::Run(arguments) = &mut verb {
        arguments.quiet = true;
    }
    crate::execute(&verb)
}

/// Runs every example and prints the responses.
fn once(
    folder: &Path,
    addresses: &DemoAddresses,
    runtime: &tokio::runtime::Runtime,
) -> Result<ExitCode> {
    let (folder, served) = (folder.to_owned(), DemoAddresses { ..*addresses });
    let serving = std::thread::spawn(move || serve(&folder, &served));
    let ready = runtime.block_on(async {
        let ready = ready(addresses.admin, &serving);
        tokio::time::timeout(Duration::from_secs(30), ready).await
    });
    if !ready.context("`run` is not ready after 30 seconds")? {
        let ended = serving.join().map_err(|_| anyhow!("`run` panicked"))?;
        return ended.and_then(|_| bail!("`run` exited before it was ready"));
    }
    let succeeded = runtime.block_on(examples::run(addresses));
    // Shuts down like an interactive demo, before the manifests are removed.
    signal_hook::low_level::raise(signal_hook::consts::SIGTERM)?;
    let _ = serving.join();
    Ok(if succeeded? {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}

/// Waits until the demo is ready. Returns false if it exits first.
async fn ready(admin: SocketAddr, serving: &JoinHandle<Result<ExitCode>>) -> bool {
    while !serving.is_finished() {
        let response = client::get(admin, "localhost", "/readyz").send().await;
        if response.is_ok_and(|response| response.status == 200) {
            return true;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    false
}
