//! The examples: a curl command for each, the same request made by the demo itself, and the expected response.

use std::path::Path;

use anyhow::Result;

use super::client::{self, DemoResponse};
use super::{DemoAddresses, POD};
use crate::output::{Paint, Style, print};

/// Title of the demo.
const SHOP: &str = "A shop with a canary, a beta, a redirect, a gRPC service and a mesh";

/// An example.
struct Example {
    /// Description.
    title: &'static str,
    /// Shell command.
    command: String,
}

fn examples(addresses: &DemoAddresses) -> Vec<Example> {
    let port = addresses.front.port();
    let shop = format!("http://shop.localhost:{port}");
    let table = [
        ("default rule", format!("curl {shop}/")),
        (
            "header match: `x-beta: yes` selects the beta version",
            format!("curl -i -H 'x-beta: yes' {shop}/"),
        ),
        (
            "canary: exactly one request in ten goes to cart-v2",
            format!("for i in 0 1 2 3 4 5 6 7 8 9; do curl -s {shop}/cart | head -1; done"),
        ),
        (
            "redirect of a path that has moved",
            format!("curl -i {shop}/basket/7"),
        ),
        (
            "gRPC: the catalog echoes the message",
            format!(
                "printf '\\0\\0\\0\\0\\5hello' | curl -s --http2-prior-knowledge -H 'content-type: application/grpc' -H 'te: trailers' --data-binary @- http://catalog.localhost:{port}/shop.v1.Catalog/Say | tail -c 5"
            ),
        ),
        (
            "mesh: requests from any client to the cart",
            format!("curl http://{}/", addresses.mesh),
        ),
        (
            "mesh: requests from namespace checkout follow its consumer route",
            format!("curl --interface {POD} http://{}/", addresses.mesh),
        ),
        (
            "no matching route: 404",
            format!("curl -i http://nobody.localhost:{port}/"),
        ),
    ];
    table
        .into_iter()
        .map(|(title, command)| Example { title, command })
        .collect()
}

/// Renders the text that is printed when the demo starts.
pub fn page(addresses: &DemoAddresses, folder: &Path) -> String {
    let paint = Paint::new();
    let shop = paint.paint(Style::Strong, SHOP);
    let mut text = format!("{shop} is running. Try these commands in another terminal:\n");
    for Example { title, command } in examples(addresses) {
        text.push_str(&format!(
            "\n  {}\n  {}\n",
            paint.paint(Style::Faint, &format!("# {title}")),
            paint.paint(Style::Strong, &command)
        ));
    }
    text.push_str(&format!(
        "\nEdit a manifest in {} and repeat a request: changes take effect immediately.\nStatus page: {}\nPress Ctrl-C to stop.\n",
        paint.paint(Style::Strong, &folder.display().to_string()),
        paint.paint(Style::Strong, &format!("http://{}/", addresses.admin))
    ));
    text
}

/// Runs each example with the demo's own client and prints the responses. Returns whether all are as expected.
pub async fn run(addresses: &DemoAddresses) -> Result<bool> {
    let paint = Paint::new();
    let mut succeeded = true;
    let shop = paint.paint(Style::Strong, SHOP);
    print(&format!(
        "{shop}. Each command is run once; without --once, the demo keeps running for you to try them.\n\n"
    ))?;
    for (number, Example { title, command }) in examples(addresses).into_iter().enumerate() {
        let heading = paint.paint(Style::Faint, &format!("# {title}"));
        let command = paint.paint(Style::Strong, &format!("$ {command}"));
        print(&format!("{heading}\n{command}\n"))?;
        let (output, problem) = match run_example(number, addresses).await {
            Ok(result) => result,
            Err(error) => (String::new(), Some(format!("{error:#}"))),
        };
        print(&format!("{}\n", output.trim_end()))?;
        if let Some(problem) = problem {
            succeeded = false;
            print(&format!(
                "{}\n",
                paint.paint(Style::Bad, &format!("✗ {problem}"))
            ))?;
        }
        print("\n")?;
    }
    let end = match succeeded {
        true => paint.paint(Style::Good, "all responses are as expected"),
        false => paint.paint(Style::Bad, "some responses are not as expected"),
    };
    print(&format!("{end}\n"))?;
    Ok(succeeded)
}

/// Runs an example. Returns its output, and a description of the problem if the response is not as expected.
async fn run_example(number: usize, addresses: &DemoAddresses) -> Result<(String, Option<String>)> {
    let shop = |target: &str| {
        client::get(
            addresses.front,
            &format!("shop.localhost:{}", addresses.front.port()),
            target,
        )
    };
    let mesh = || client::get(addresses.mesh, &addresses.mesh.to_string(), "/");
    Ok(match number {
        0 => expect_backend(&shop("/").send().await?, "web"),
        1 => {
            let response = shop("/").header("x-beta", "yes").send().await?;
            let (_, problem) = expect_backend(&response, "web-beta");
            let edition = expect("x-edition", response.header("x-edition"), "beta");
            (with_head(&response), problem.or(edition))
        }
        2 => canary(&shop).await?,
        3 => {
            let response = shop("/basket/7").send().await?;
            let expected = format!("http://shop.localhost:{}/cart/7", addresses.front.port());
            let problem = expect("the status", Some(&response.status.to_string()), "301");
            (
                with_head(&response),
                problem.or(expect("location", response.header("location"), &expected)),
            )
        }
        4 => {
            let host = format!("catalog.localhost:{}", addresses.front.port());
            let response =
                client::call(addresses.front, &host, "shop.v1.Catalog/Say", "hello").await?;
            let problem = expect("grpc-status", response.header("grpc-status"), "0");
            (
                response.body.clone(),
                problem.or(expect("the message", Some(&response.body), "hello")),
            )
        }
        5 => expect_backend(&mesh().send().await?, "cart"),
        6 => expect_backend(&mesh().from(POD).send().await?, "cart-v2"),
        _ => {
            let host = format!("nobody.localhost:{}", addresses.front.port());
            let response = client::get(addresses.front, &host, "/").send().await?;
            (
                with_head(&response),
                expect("the status", Some(&response.status.to_string()), "404"),
            )
        }
    })
}

/// Sends ten requests, of which exactly one should go to the new version.
async fn canary(shop: &impl Fn(&str) -> client::Get) -> Result<(String, Option<String>)> {
    let (mut output, mut new) = (String::new(), 0);
    for _ in 0..10 {
        let response = shop("/cart").send().await?;
        if let (_, Some(problem)) = expect_backend(&response, "cart")
            && response.header("x-backend") != Some("cart-v2")
        {
            return Ok((output, Some(problem)));
        }
        new += usize::from(response.header("x-backend") == Some("cart-v2"));
        output.push_str(&format!(
            "{}\n",
            response.body.lines().next().unwrap_or_default()
        ));
    }
    Ok((
        output,
        expect("requests to cart-v2", Some(&new.to_string()), "1"),
    ))
}

/// Returns the body, and a problem if the response is not from this backend.
fn expect_backend(response: &DemoResponse, backend: &str) -> (String, Option<String>) {
    (
        response.body.clone(),
        expect("the backend", response.header("x-backend"), backend),
    )
}

/// Renders a response like `curl -i`.
fn with_head(response: &DemoResponse) -> String {
    let mut text = format!("HTTP/1.1 {} {}\n", response.status, response.reason);
    for (name, value) in &response.headers {
        text.push_str(&format!("{name}: {value}\n"));
    }
    text + "\n" + &response.body
}

fn expect(name: &str, got: Option<&str>, expected: &str) -> Option<String> {
    let got = got.unwrap_or("nothing");
    (got != expected).then(|| format!("{name}: expected {expected}, got {got}"))
}
