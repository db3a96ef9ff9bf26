//! `demo`: sample backends, sample manifests, and what to try with them. The traffic is carried by the very code of `run`.

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

/// The cluster IP of the shop's cart, and the address of a Pod of another namespace. All of 127.0.0.0/8 is this machine.
const MESH: Ipv4Addr = Ipv4Addr::new(127, 0, 77, 10);
const POD: Ipv4Addr = Ipv4Addr::new(127, 0, 77, 21);

/// The files of the folder, with addresses for addresses and ports.
const MANIFESTS: [(&str, &str); 3] = [
    ("gateway.yaml", include_str!("manifests/gateway.yaml")),
    ("routes.yaml", include_str!("manifests/routes.yaml")),
    ("mesh.yaml", include_str!("manifests/mesh.yaml")),
];

/// The shop's Services, and what each speaks.
const SERVICES: [(&str, EchoProtocol); 5] = [
    ("web", EchoProtocol::Http1),
    ("web-beta", EchoProtocol::Http1),
    ("cart", EchoProtocol::Http1),
    ("cart-v2", EchoProtocol::Http1),
    ("catalog", EchoProtocol::Http2),
];

/// Where everything is.
struct DemoAddresses {
    front: SocketAddr,
    admin: SocketAddr,
    mesh: SocketAddr,
}

/// Runs the demo: until it is ended, or with `--once` until all lines were tried.
pub fn run(arguments: &Demo) -> Result<ExitCode> {
    let addresses = DemoAddresses {
        front: (Ipv4Addr::LOCALHOST, arguments.port).into(),
        admin: (Ipv4Addr::LOCALHOST, next(arguments.port, 1)?).into(),
        mesh: (MESH, next(arguments.port, 2)?).into(),
    };
    for address in [addresses.front, addresses.admin, addresses.mesh] {
        // Workers share their sockets, so a second demo would not be refused: it is here.
        TcpListener::bind(address)
            .with_context(|| format!("{address} can't be had; choose another with --port"))?;
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
    // Left over, it would only puzzle its finder.
    let _ = std::fs::remove_dir_all(&folder);
    outcome
}

fn next(port: u16, by: u16) -> Result<u16> {
    port.checked_add(by)
        .context("the port is too high: the next two are used too")
}

/// Starts a backend for each Service and tells their ports.
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
        "# What the shop is made of. Each Service has one endpoint, which says what it was sent.\n"
            .to_owned();
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

/// What a user would type to have the same: `run` on the folder, until a signal ends it.
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

/// Tries every line and shows what came.
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
    if !ready.context("not ready after 30 seconds")? {
        let ended = serving.join().map_err(|_| anyhow!("it panicked"))?;
        return ended.and_then(|_| bail!("it ended before it was ready"));
    }
    let succeeded = runtime.block_on(examples::run(addresses));
    // It ends as it would for a user, before its folder goes.
    signal_hook::low_level::raise(signal_hook::consts::SIGTERM)?;
    let _ = serving.join();
    Ok(if succeeded? {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}

/// Waits until it serves; not if it ended first.
async fn ready(admin: SocketAddr, serving: &JoinHandle<Result<ExitCode>>) -> bool {
    while !serving.is_finished() {
        let asked = client::get(admin, "localhost", "/readyz").send().await;
        if asked.is_ok_and(|answer| answer.status == 200) {
            return true;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    false
}
